"""The grid of tensors with other contraction libraries, all on the same torch tensors."""

from __future__ import annotations

import importlib
import math
import string
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[[], torch.Tensor]


def make_torch(*tensors: torch.Tensor) -> Call:
    """Return ``torch.einsum`` of the whole grid.

    Raises:
        ValueError: If the grid has more indices than ``torch.einsum`` has letters.
    """
    equation = grid_equation(math.isqrt(len(tensors)))
    n_indices = len(set(equation) - set(",->"))
    if n_indices > len(string.ascii_letters):
        raise ValueError(
            f"torch.einsum has {len(string.ascii_letters)} letters, this network {n_indices} indices"
        )
    return lambda: torch.einsum(equation, *tensors)


def make_opt_einsum(*tensors: torch.Tensor) -> Call:
    """Return opt_einsum's expression for these shapes, with its path searched once."""
    opt_einsum: Any = importlib.import_module("opt_einsum")
    equation = grid_equation(math.isqrt(len(tensors)))
    shapes = [tuple(tensor.shape) for tensor in tensors]
    expression = opt_einsum.contract_expression(equation, *shapes, optimize="auto-hq")
    return lambda: expression(*tensors)


def make_cotengra(*tensors: torch.Tensor) -> Call:
    """Return cotengra's expression for these shapes, with its path searched once."""
    cotengra: Any = importlib.import_module("cotengra")
    equation = grid_equation(math.isqrt(len(tensors)))
    shapes = [tuple(tensor.shape) for tensor in tensors]
    expression = cotengra.einsum_expression(equation, *shapes, optimize="auto-hq")
    return lambda: expression(*tensors)


def make_quimb(*tensors: torch.Tensor) -> Call:
    """Return the contraction of a quimb ``TensorNetwork``, with its tree searched once."""
    quimb: Any = importlib.import_module("quimb.tensor")
    terms, _, output = grid_equation(math.isqrt(len(tensors))).partition("->")
    network = quimb.TensorNetwork(
        [
            quimb.Tensor(t, inds=tuple(term))
            for t, term in zip(tensors, terms.split(","), strict=True)
        ]
    )
    tree = network.contraction_tree(optimize="auto-hq", output_inds=tuple(output))

    def call() -> torch.Tensor:
        data: torch.Tensor = network.contract(optimize=tree, output_inds=tuple(output)).data
        return data

    return call


def grid_equation(n: int) -> str:
    """Return the einsum equation of the workload's ``n`` by ``n`` grid.

    The axes of each tensor are up, left, right and down, where it has a neighbour; the axis down of
    the last tensor is the index of the result. Symbols beyond the 52 letters are other characters.
    """
    symbols: dict[tuple[str, int, int], str] = {}

    def symbol(kind: str, row: int, column: int) -> str:
        number = len(symbols)
        letters = string.ascii_letters
        new = letters[number] if number < len(letters) else chr(0x100 + number)
        return symbols.setdefault((kind, row, column), new)

    last = n - 1
    terms = [
        (symbol("down", row - 1, column) if row else "")
        + (symbol("right", row, column - 1) if column else "")
        + (symbol("right", row, column) if column < last else "")
        + (symbol("down", row, column) if row < last or column == last else "")
        for row in range(n)
        for column in range(n)
    ]
    return f"{','.join(terms)}->{symbol('down', last, last)}"
