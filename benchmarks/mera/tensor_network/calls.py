"""Inputs of the tensor network's workload, and its calls."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import torch

from ivhl.ops.tensor_network import (
    contract,
    make_contract_tensor_network,
    plan_in_order,
    shapes_of,
    tensor_network,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.mera.tensor_network import Size

# Latin Extended-A: letters only, and more of them than a to z and A to Z.
_FIRST_INDEX = 0x100


def make_inputs(size: Size, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Draw a grid of tensors, row by row, complex128.

    The axes of each are up, left, right and down, as far as there is a neighbour; the last tensor
    has one down although there is none. They are scaled so that the result is of size one.
    """
    terms = _equation(size.n).partition("->")[0].split(",")
    return tuple(
        torch.randn((size.bond,) * len(term), dtype=torch.complex128, generator=generator)
        / size.bond ** (len(term) / 4.0)
        for term in terms
    )


def contract_in_order(*tensors: torch.Tensor) -> torch.Tensor:
    """Return the contraction, row by row, shape ``[bond]``."""
    return tensor_network(_equation(math.isqrt(len(tensors))), *tensors)


def make_contract_in_order(compiler: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """Return ``contract_in_order``, compiled by ``compiler`` but for its plan."""

    @functools.cache
    def compiled(shapes: tuple[tuple[int, ...], ...]) -> Callable[..., torch.Tensor]:
        plan = plan_in_order(_equation(math.isqrt(len(shapes))), shapes)

        def contract_all(*tensors: torch.Tensor) -> torch.Tensor:
            return contract(plan, tensors)

        made: Callable[..., torch.Tensor] = compiler(contract_all)
        return made

    return lambda *tensors: compiled(shapes_of(tensors))(*tensors)


def make_contract_on_path(compiler: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """Return the same contraction along the best path, compiled by ``compiler``."""

    @functools.cache
    def compiled(shapes: tuple[tuple[int, ...], ...]) -> Callable[..., torch.Tensor]:
        return make_contract_tensor_network(compiler, _equation(math.isqrt(len(shapes))), shapes)

    return lambda *tensors: compiled(shapes_of(tensors))(*tensors)


@functools.cache
def _equation(n: int) -> str:
    """Return the equation of an ``n`` by ``n`` grid; the index down of the last tensor is open."""
    names: dict[tuple[str, int, int], str] = {}

    def name(kind: str, row: int, column: int) -> str:
        return names.setdefault((kind, row, column), chr(_FIRST_INDEX + len(names)))

    terms = []
    for row in range(n):
        for column in range(n):
            term = name("down", row - 1, column) if row else ""
            term += name("right", row, column - 1) if column else ""
            term += name("right", row, column) if column < n - 1 else ""
            term += name("down", row, column) if row < n - 1 or column == n - 1 else ""
            terms.append(term)
    return f"{','.join(terms)}->{name('down', n - 1, n - 1)}"
