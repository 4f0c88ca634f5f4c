"""Contraction of a tensor network along a path that is chosen before anything is computed.

The order of contractions changes the cost of a network, not its value: a wrong order on a ring or a
grid builds tensors that grow exponentially with the number of sites. The path depends on equation
and shapes only, and is found once for each. It is a list of contractions of two tensors.
"""

from __future__ import annotations

import functools
import importlib
import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Product:
    """A contraction of two tensors as one matrix multiplication.

    Attributes:
        swap: Whether the second tensor is the left operand.
        left: Permutation of the left operand's axes that puts the summed ones last.
        right: Permutation of the right operand's axes that puts the summed ones first.
        n_summed: Product of the sizes of the summed axes.
        shape: Shape of the result: axes of the left operand, then of the right.
    """

    swap: bool
    left: tuple[int, ...]
    right: tuple[int, ...]
    n_summed: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One contraction.

    Attributes:
        positions: Indices of the operands in the list, the larger first. The operands are removed
            and the result is appended.
        equation: Equation of this step for ``torch.einsum``.
        product: The step as a matrix multiplication, which has no equation to parse at each call;
            ``None`` if it cannot be one.
    """

    positions: tuple[int, ...]
    equation: str
    product: Product | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The order of all contractions, and its cost.

    Attributes:
        steps: In order.
        n_products: Multiplications of two numbers, over all steps.
        largest_intermediate: Elements of the largest result of a step.
    """

    steps: tuple[Step, ...]
    n_products: int
    largest_intermediate: int


def contract_tensor_network(equation: str, *tensors: torch.Tensor) -> torch.Tensor:
    """Return the contraction of a network, like ``torch.einsum``, along a good path.

    The path is cached per equation and shapes, so a second call does the arithmetic only. Each step
    is a matrix multiplication by a library call, for complex numbers too. Nothing between two steps
    could be fused, so they are not compiled.

    Args:
        equation: One term per tensor and, after ``->``, the indices of the result; without
            ``->``, all indices that occur once, sorted. Any character but ``,``, ``.``, ``-``,
            ``>`` and blanks is an index, so there may be more than 52 of them.
        *tensors: At least one, all of one floating or complex dtype, on one device.

    Returns:
        The contraction: axes in the order of the equation, dtype of the tensors.

    Raises:
        ValueError: If equation and tensors do not fit, or their dtypes or devices differ.
        ImportError: If there are more than two tensors and ``opt_einsum`` is not installed.

    Source:
        Smith and Gray, J. Open Source Softw. 3, 753 (2018) (``opt_einsum``); dynamic programming:
        Pfeifer, Haegeman and Verstraete, Phys. Rev. E 90, 033315 (2014), arXiv:1304.6112.
    """
    _check_tensors(tensors)
    return contract(plan_contraction(equation, shapes_of(tensors)), tensors)


def tensor_network(equation: str, *tensors: torch.Tensor) -> torch.Tensor:
    """Return the same contraction, from left to right in the order of the equation.

    ``torch.einsum`` does this if ``opt_einsum`` is not installed. If it is, ``torch.einsum``
    searches for a path at every call, so a baseline has to fix which of the two it times.

    Args:
        equation: As for ``contract_tensor_network``.
        *tensors: As for ``contract_tensor_network``.

    Returns:
        The contraction.

    Raises:
        ValueError: If equation and tensors do not fit, or their dtypes or devices differ.
    """
    _check_tensors(tensors)
    return contract(plan_in_order(equation, shapes_of(tensors)), tensors)


def make_contract_tensor_network(
    compiler: Callable[..., Callable[..., torch.Tensor]],
    equation: str,
    shapes: Sequence[Sequence[int]],
) -> Callable[..., torch.Tensor]:
    """Return ``contract_tensor_network`` for one equation and one set of shapes, compiled.

    Args:
        compiler: Compiles a function, e.g. ``torch.compile``; the identity leaves it eager.
        equation: As for ``contract_tensor_network``.
        shapes: Shape of each tensor.

    Returns:
        A function from tensors of these shapes to their contraction.

    Raises:
        ValueError: If equation and shapes do not fit.
        ImportError: If there are more than two shapes and ``opt_einsum`` is not installed.
    """
    plan = plan_contraction(equation, tuple(tuple(shape) for shape in shapes))

    def contract_all(*tensors: torch.Tensor) -> torch.Tensor:
        return contract(plan, tensors)

    return compiler(contract_all)


def contract(plan: Plan, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the contraction of the tensors along a plan.

    Args:
        plan: Plan for the equation and the shapes of these tensors.
        tensors: In the order of the equation.

    Returns:
        The contraction.
    """
    operands = list(tensors)
    for step in plan.steps:
        picked = [operands.pop(position) for position in step.positions]
        if step.product is None:
            operands.append(torch.einsum(step.equation, *picked))
        else:
            operands.append(_multiply(step.product, *picked))
    return operands[0]


def _multiply(product: Product, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    if product.swap:
        left, right = right, left
    rows = left.permute(product.left).reshape(-1, product.n_summed)
    columns = right.permute(product.right).reshape(product.n_summed, -1)
    return torch.mm(rows, columns).reshape(product.shape)


@functools.lru_cache(maxsize=1024)
def plan_contraction(equation: str, shapes: tuple[tuple[int, ...], ...]) -> Plan:
    """Return a cheap plan, with at most the multiplications of the order in the equation.

    For up to 16 tensors the path is optimal among those without outer products. For more, it is the
    best of 128 greedy paths from fixed seeds, so the plan depends on equation and shapes only.

    Args:
        equation: As for ``contract_tensor_network``.
        shapes: Shape of each tensor.

    Returns:
        The plan; the same object for the same arguments.

    Raises:
        ValueError: If equation and shapes do not fit.
        ImportError: If there are more than two shapes and ``opt_einsum`` is not installed.
    """
    terms, output, sizes = parse(equation, shapes)
    written = _plan(terms, output, sizes, _path_in_order(len(terms)), as_products=True)
    if len(shapes) <= 2:  # noqa: PLR2004  (only one order)
        return written
    path = _find_path(terms, output, sizes)
    found = _plan(terms, output, sizes, path, as_products=True)
    return min(written, found, key=lambda plan: (plan.n_products, plan.largest_intermediate))


@functools.lru_cache(maxsize=1024)
def plan_in_order(equation: str, shapes: tuple[tuple[int, ...], ...]) -> Plan:
    """Return the plan that contracts from left to right, one ``torch.einsum`` per step.

    Args:
        equation: As for ``contract_tensor_network``.
        shapes: Shape of each tensor.

    Returns:
        The plan.

    Raises:
        ValueError: If equation and shapes do not fit.
    """
    terms, output, sizes = parse(equation, shapes)
    return _plan(terms, output, sizes, _path_in_order(len(terms)), as_products=False)


def parse(
    equation: str, shapes: Sequence[Sequence[int]]
) -> tuple[tuple[str, ...], str, dict[str, int]]:
    """Return the terms, the indices of the result, and the size of each index.

    Args:
        equation: As for ``contract_tensor_network``.
        shapes: Shape of each tensor.

    Returns:
        One term per tensor, the output term, and a size per index.

    Raises:
        ValueError: If equation and shapes do not fit.
    """
    if not shapes:
        raise ValueError("tensors must be at least one, got 0")
    left, arrow, output = "".join(equation.split()).partition("->")
    terms = tuple(left.split(","))
    if set(left + output) & set(".->"):
        raise ValueError(
            f"equation must be terms of indices, without '...' and with one '->', got {equation!r}"
        )
    if len(terms) != len(shapes):
        raise ValueError(
            f"equation must have one term per tensor, {len(shapes)}, got {len(terms)} "
            f"in {equation!r}"
        )
    sizes: dict[str, int] = {}
    for number, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        if len(term) != len(shape):
            raise ValueError(
                f"tensors[{number}] must have one axis per index of {term!r}, got {list(shape)}"
            )
        for index, size in zip(term, shape, strict=True):
            if sizes.setdefault(index, size) != size:
                raise ValueError(
                    f"tensors[{number}] must have size {sizes[index]} along {index!r} of {term!r}, "
                    f"as before, got {list(shape)}"
                )
    if not arrow:
        joined = "".join(terms)
        output = "".join(sorted(index for index in sizes if joined.count(index) == 1))
    if len(set(output)) != len(output) or not set(output) <= set(sizes):
        raise ValueError(
            f"equation must name each index of the result once, and among the terms, got {output!r}"
        )
    return terms, output, sizes


def shapes_of(tensors: Sequence[torch.Tensor]) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of tensors in the form of ``plan_contraction``."""
    return tuple(tuple(tensor.shape) for tensor in tensors)


def _path_in_order(n_terms: int) -> list[tuple[int, ...]]:
    if n_terms == 1:
        return [(0,)]
    # The result so far is last in the list, the next tensor first.
    return [(0, 1), *((0, n_left - 1) for n_left in range(n_terms - 1, 1, -1))]


def _plan(
    terms: Sequence[str],
    output: str,
    sizes: Mapping[str, int],
    path: Sequence[tuple[int, ...]],
    *,
    as_products: bool,
) -> Plan:
    remaining = list(terms)
    steps, n_products, largest = [], 0, 0
    for positions in path:
        descending = tuple(sorted(positions, reverse=True))
        picked = [remaining.pop(position) for position in descending]
        here = "".join(dict.fromkeys("".join(picked)))
        needed = set(output).union(*remaining)
        result = "".join(i for i in here if i in needed) if remaining else output
        product = _as_product(picked, result, sizes) if as_products else None
        letters = dict(zip(here, _LETTERS, strict=False))
        inputs = ",".join("".join(letters[i] for i in term) for term in picked)
        equation = f"{inputs}->{''.join(letters[i] for i in result)}"
        steps.append(Step(descending, equation, product))
        n_products += math.prod(sizes[i] for i in here)
        largest = max(largest, math.prod(sizes[i] for i in result))
        remaining.append(result)
    return Plan(tuple(steps), n_products, largest)


def _as_product(picked: Sequence[str], result: str, sizes: Mapping[str, int]) -> Product | None:
    """Return the step as a matrix multiplication; ``None`` if it is not one in this axis order."""
    if len(picked) != 2 or any(len(set(term)) != len(term) for term in picked):  # noqa: PLR2004
        return None
    for swap in (False, True):
        left, right = reversed(picked) if swap else picked
        summed = [i for i in left if i in right]
        kept_left = [i for i in left if i not in summed]
        kept_right = [i for i in right if i not in summed]
        # For an empty tensor, reshape(-1, n) cannot infer the number of rows.
        if result == "".join(kept_left + kept_right) and all(sizes[i] for i in left + right):
            return Product(
                swap=swap,
                left=tuple(left.index(i) for i in kept_left + summed),
                right=tuple(right.index(i) for i in summed + kept_right),
                n_summed=math.prod(sizes[i] for i in summed),
                shape=tuple(sizes[i] for i in result),
            )
    return None


def _find_path(
    terms: Sequence[str], output: str, sizes: Mapping[str, int]
) -> Sequence[tuple[int, ...]]:
    opt_einsum = _import_opt_einsum()
    # Indices as numbers: sets of letters have another order in each process, and paths would differ.
    # opt_einsum compares logarithms of costs, so an empty axis counts as one element.
    numbers = {index: number for number, index in enumerate(sizes)}
    inputs = [frozenset(numbers[index] for index in term) for term in terms]
    extents = {numbers[index]: max(1, size) for index, size in sizes.items()}
    find = opt_einsum.paths.get_path_fn("auto-hq")
    # Its search of large networks seeds the generator that the caller's own code draws from.
    state = random.getstate()
    try:
        path = find(inputs, frozenset(numbers[index] for index in output), extents, None)
    finally:
        random.setstate(state)
    found: Sequence[tuple[int, ...]] = path
    return found


def _import_opt_einsum() -> Any:  # noqa: ANN401  (a module)
    # Imported here because no other operation needs it.
    try:
        return importlib.import_module("opt_einsum")
    except ImportError as error:
        raise ImportError(
            "contract_tensor_network finds its path with opt_einsum, which is not installed: "
            "pip install opt_einsum==3.4.0"
        ) from error


def _check_tensors(tensors: Sequence[torch.Tensor]) -> None:
    for number, tensor in enumerate(tensors):
        if not (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
            raise ValueError(f"tensors[{number}] must be floating or complex, got {tensor.dtype}")
        if tensor.dtype != tensors[0].dtype:
            raise ValueError(
                f"tensors[{number}] must have the dtype of tensors[0], {tensors[0].dtype}, "
                f"got {tensor.dtype}"
            )
        if tensor.device != tensors[0].device:
            raise ValueError(
                f"tensors[{number}] must be on the device of tensors[0], {tensors[0].device}, "
                f"got {tensor.device}"
            )
