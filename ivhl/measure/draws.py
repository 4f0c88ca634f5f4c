"""Inputs whose values change while their addresses stay the same.

A function that returns an earlier result would look fast. So the values change between blocks of
calls: the draws take turns in the same tensors, which changes neither guards nor allocations. Each
draw has its own reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_map_only

from ivhl.measure.accuracy import as_real
from ivhl.measure.leaves import plain

if TYPE_CHECKING:
    from collections.abc import Callable

# Number of draws that take turns. More would cost time for references and detect nothing else.
N_DRAWS = 3


class ShapesDifferError(Exception):
    """Two draws do not fit into the same tensors, or have the same values."""


def draw(
    make_inputs: Callable[..., Any],
    size: Any,  # noqa: ANN401  (whatever the workload's sizes are)
    seed: int,
    *,
    first: tuple[Any, ...] | None = None,
    fixed: tuple[int, ...] = (),
) -> tuple[Any, ...]:
    """Return the inputs from a seed.

    Args:
        make_inputs: Function of the workload.
        size: Parameters of the size.
        seed: Seed of the generator.
        first: The first draw, which provides the fixed inputs.
        fixed: Positions of inputs that are the same in every draw, such as the weights of a model.
    """
    inputs = make_inputs(size, torch.Generator().manual_seed(seed))
    if first is None:
        return tuple(inputs)
    return tuple(first[i] if i in fixed else item for i, item in enumerate(inputs))


def precision_of(tensor: torch.Tensor, dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of a tensor that is cast to ``dtype``: integers stay as they are."""
    if tensor.is_complex():
        return torch.complex128 if dtype == torch.float64 else torch.complex64
    return dtype if tensor.is_floating_point() else tensor.dtype


def cast(inputs: Any, dtype: torch.dtype, device: torch.device) -> Any:  # noqa: ANN401  (any pytree)
    """Return a copy of the pytree; floating and complex tensors get the precision of ``dtype``."""

    def convert(leaf: Any) -> Any:  # noqa: ANN401
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return leaf.to(device=device, dtype=precision_of(leaf, dtype), copy=True)

    return tree_map(convert, inputs)


def rounded_again(nest: Any, unit: float, seed: int) -> Any:  # noqa: ANN401  (any pytree)
    """Return a copy of the pytree, each floating or complex number moved by one rounding.

    Args:
        nest: Tensors of it in float64 or complex128 are moved.
        unit: The unit roundoff; the direction is drawn.
        seed: Seed of the directions.
    """
    generator = torch.Generator().manual_seed(seed)

    def move(leaf: Any) -> Any:  # noqa: ANN401
        exact = (torch.float64, torch.complex128)
        if not isinstance(leaf, torch.Tensor) or leaf.dtype not in exact:
            return leaf
        signs = torch.randint(2, leaf.shape, generator=generator).to(leaf.device) * 2 - 1
        moved = leaf.clone()
        plain(moved.detach()).mul_(1 + unit * signs.to(torch.float64))
        return moved

    return tree_map(move, nest)


def clone(inputs: Any) -> Any:  # noqa: ANN401  (any pytree)
    """Return a copy of the pytree; no tensor shares memory with the original."""
    return tree_map_only(torch.Tensor, lambda tensor: tensor.detach().clone(), inputs)


def check_alike(one: Any, other: Any) -> None:  # noqa: ANN401  (any pytree)
    """Refuse two draws if one cannot be copied into the other.

    Raises:
        ShapesDifferError: If the structure, a shape, a dtype or a value other than a tensor differs.
    """
    a, a_spec = tree_flatten(one)
    b, b_spec = tree_flatten(other)
    if a_spec != b_spec:
        raise ShapesDifferError("two draws differ in their pytree structure")
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
    """Refuse two equal draws.

    Raises:
        ShapesDifferError: If all tensors are equal.
    """
    if holds(other, one):
        raise ShapesDifferError("every draw has the same values")


def fill(live: Any, source: Any) -> None:  # noqa: ANN401  (any pytree)
    """Copy the values of ``source`` into the tensors of ``live``."""
    with torch.no_grad():
        for target, values in zip(tree_leaves(live), tree_leaves(source), strict=True):
            if isinstance(target, torch.Tensor):
                target.copy_(values)


def holds(live: Any, source: Any) -> bool:  # noqa: ANN401  (any pytree)
    """Return whether every tensor of ``live`` has the values of ``source``; NaN equals NaN."""
    pairs = zip(tree_leaves(live), tree_leaves(source), strict=True)
    return all(same(a, b) for a, b in pairs if isinstance(b, torch.Tensor))


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether two tensors are equal; NaN equals NaN."""
    if not isinstance(a, torch.Tensor) or a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = plain(a), plain(b)
    return bool(((a == b) | ((a != a) & (b != b))).all())  # noqa: PLR0124


def touch(nest: Any) -> None:  # noqa: ANN401  (any pytree)
    """Increase the version counter of every tensor without changing its values."""
    with torch.no_grad():
        for leaf in tree_leaves(nest):
            if isinstance(leaf, torch.Tensor) and leaf.dim():
                leaf[:0].zero_()


# Most numbers of one tensor that are searched for.
LOOKED_UP = 4096


def made_of(made: Any, parts: Any, *, unlike: Any = None) -> bool:  # noqa: ANN401  (any pytree)
    """Return whether every number of one pytree occurs in another one, up to the sign.

    Args:
        made: Up to ``LOOKED_UP`` numbers of each of its tensors are searched for.
        parts: Pytree that should contain them.
        unlike: ``made`` of another draw; numbers that both have at the same position are skipped.
    """
    known = torch.cat([_numbers(leaf) for leaf in tree_leaves(parts)]).sort()[0]
    leaves = tree_leaves(made)
    others = [None] * len(leaves) if unlike is None else tree_leaves(unlike)
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
    """Return the absolute values of a tensor's real numbers, float64; empty for other values."""
    if not isinstance(leaf, torch.Tensor):
        return torch.empty(0, dtype=torch.float64)
    return as_real(plain(leaf.detach()).cpu()).reshape(-1).abs()
