"""Inputs whose values change while their addresses stay.

A function that gives back what it computed before is fast and useless. It is caught by changing the
numbers between blocks of calls: several draws are made, and each is copied into the same tensors, so
that neither guards nor allocations change. Each draw has a reference of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

if TYPE_CHECKING:
    from collections.abc import Callable

# How many draws are gone through in turn; more cost time for references, and catch no more.
N_DRAWS = 3


class ShapesDifferError(Exception):
    """Two draws cannot be copied into the same tensors, or there is no use in doing so."""


def draw(
    make_inputs: Callable[..., Any],
    size: Any,  # noqa: ANN401  (whatever the workload's sizes are)
    seed: int,
    *,
    first: tuple[Any, ...] | None = None,
    fixed: tuple[int, ...] = (),
) -> tuple[Any, ...]:
    """Return the inputs that a seed makes.

    Args:
        make_inputs: Of the workload.
        size: Its parameters.
        seed: Of the generator.
        first: The first draw, whose values stay where ``fixed`` says so.
        fixed: Positions of inputs that are the same in every draw, such as the weights of a model.
    """
    inputs = make_inputs(size, torch.Generator().manual_seed(seed))
    if first is None:
        return tuple(inputs)
    return tuple(first[i] if i in fixed else item for i, item in enumerate(inputs))


def cast(inputs: Any, dtype: torch.dtype, device: torch.device) -> Any:  # noqa: ANN401  (any pytree)
    """Return a copy of the nest with floating and complex tensors in the precision of ``dtype``."""

    def convert(leaf: Any) -> Any:  # noqa: ANN401
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if leaf.is_complex():
            wide = torch.complex128 if dtype == torch.float64 else torch.complex64
            return leaf.to(device=device, dtype=wide, copy=True)
        if leaf.is_floating_point():
            return leaf.to(device=device, dtype=dtype, copy=True)
        return leaf.to(device=device, copy=True)

    leaves, spec = tree_flatten(inputs)
    return tree_unflatten([convert(leaf) for leaf in leaves], spec)


def clone(inputs: Any) -> Any:  # noqa: ANN401  (any pytree)
    """Return a copy of the nest in which no tensor shares its memory with the original."""
    leaves, spec = tree_flatten(inputs)
    return tree_unflatten(
        [leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves],
        spec,
    )


def check_alike(one: Any, other: Any) -> None:  # noqa: ANN401  (any pytree)
    """Refuse two draws of which one cannot be copied into the other.

    Raises:
        ShapesDifferError: If structure, a shape, a dtype or a value that is no tensor differs.
    """
    a, a_spec = tree_flatten(one)
    b, b_spec = tree_flatten(other)
    if a_spec != b_spec:
        raise ShapesDifferError("the nests of two draws differ")
    for x, y in zip(a, b, strict=True):
        tensors = isinstance(x, torch.Tensor), isinstance(y, torch.Tensor)
        if all(tensors):
            if (x.shape, x.dtype) != (y.shape, y.dtype):
                raise ShapesDifferError(
                    f"one draw has {tuple(x.shape)} {x.dtype}, another {tuple(y.shape)} {y.dtype}"
                )
        elif any(tensors) or (x is not y and x != y):
            raise ShapesDifferError(f"one draw has {x!r}, another {y!r}"[:300])


def check_different(one: Any, other: Any) -> None:  # noqa: ANN401  (any pytree)
    """Refuse two draws that are the same.

    Raises:
        ShapesDifferError: If every value of one is that of the other.
    """
    if holds(other, one):
        raise ShapesDifferError("every draw has the same values")


def fill(live: Any, source: Any) -> None:  # noqa: ANN401  (any pytree)
    """Copy the values of ``source`` into the tensors of ``live``, where they are."""
    with torch.no_grad():
        for target, values in zip(tree_flatten(live)[0], tree_flatten(source)[0], strict=True):
            if isinstance(target, torch.Tensor):
                target.copy_(values)


def holds(live: Any, source: Any) -> bool:  # noqa: ANN401  (any pytree)
    """Say whether every tensor of ``live`` has the values of ``source``, NaN being NaN."""
    pairs = zip(tree_flatten(live)[0], tree_flatten(source)[0], strict=True)
    return all(same(a, b) for a, b in pairs if isinstance(b, torch.Tensor))


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Say whether two tensors are equal, NaN being equal to itself."""
    if not isinstance(a, torch.Tensor) or a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(((a == b) | ((a != a) & (b != b))).all())  # noqa: PLR0124


def touch(nest: Any) -> None:  # noqa: ANN401  (any pytree)
    """Raise the version of every tensor, and leave memory and caches as they are."""
    with torch.no_grad():
        for leaf in tree_flatten(nest)[0]:
            if isinstance(leaf, torch.Tensor) and leaf.dim():
                leaf[:0].zero_()


# How many numbers are looked up.
LOOKED_UP = 4096


def made_of(made: Any, parts: Any, *, unlike: Any = None) -> bool:  # noqa: ANN401  (any pytree)
    """Say whether every number of one nest is one of another nest, but for its sign.

    Args:
        made: Of which some thousand numbers are looked up.
        parts: Where they have to be.
        unlike: Like ``made``, of another draw; what both have in one place need not be there.
    """
    known = torch.cat([_numbers(leaf) for leaf in tree_flatten(parts)[0]]).sort()[0]
    leaves = tree_flatten(made)[0]
    others = [None] * len(leaves) if unlike is None else tree_flatten(unlike)[0]
    for leaf, other in zip(leaves, others, strict=True):
        numbers = _numbers(leaf)
        if other is not None:
            numbers = numbers[numbers != _numbers(other)]
        if not numbers.numel():
            continue
        if not known.numel():
            return False
        stride = -(-numbers.numel() // LOOKED_UP)
        asked = numbers[::stride].contiguous()
        found = torch.searchsorted(known, asked).clamp(max=known.numel() - 1)
        if not bool((known[found] == asked).all()):
            return False
    return True


def _numbers(leaf: Any) -> torch.Tensor:  # noqa: ANN401  (a leaf of any pytree)
    """Return the absolute values of all real numbers of a tensor; none of anything else."""
    if not isinstance(leaf, torch.Tensor):
        return torch.empty(0, dtype=torch.float64)
    real = torch.view_as_real(leaf.detach().resolve_conj()) if leaf.is_complex() else leaf.detach()
    return real.reshape(-1).to(device="cpu", dtype=torch.float64).abs()
