"""PyTorch's gated recurrent unit, and inputs for which it equals ours.

``torch.nn.GRU`` resets after the matrix multiplication, ``r (W h)``, ours before it, ``W (r h)``.
With a bias of 50 the reset gate is 1 to rounding, and both are equal. This changes neither time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from benchmarks.recurrent.rnn_gru import calls as rnn_gru_calls
from benchmarks.recurrent.rnn_gru.reference import reference

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.recurrent.rnn_gru import Size

    Call = Callable[[], torch.Tensor]

OPEN_GATE = 50.0


def make_inputs(size: Size, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Draw the inputs of the recurrent workload, with the reset gate open."""
    *others, b_r, b_h = rnn_gru_calls.make_inputs(size, generator)
    return *others, torch.full_like(b_r, OPEN_GATE), b_h


def make_step_inputs(size: Size, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Draw the same inputs with only the first element of the sequence, ``[batch, n_inputs]``."""
    x_sequence, *others = make_inputs(size, generator)
    return x_sequence[0], *others


def step_reference(x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
    """Return the state after one step, shape ``[batch, n_hidden]``, float64."""
    return reference(x[None], *others)[0]


def make_cell(
    x: torch.Tensor, h: torch.Tensor, *parameters: torch.Tensor, compiled: bool = False
) -> Call:
    """Return one step of ``torch.nn.GRUCell``, eager or compiled.

    Args:
        x: Input, shape ``[batch, n_inputs]``.
        h: State, shape ``[batch, n_hidden]``.
        *parameters: Weights and biases of the workload.
        compiled: Whether to use ``torch.compile``.
    """
    cell = torch.nn.GRUCell(x.shape[1], h.shape[1]).requires_grad_(requires_grad=False)
    _set_parameters(cell, "", x.shape[1], parameters)
    step = torch.compile(cell, fullgraph=True) if compiled else cell
    return lambda: step(x, h)


def make_sequence(x_sequence: torch.Tensor, h0: torch.Tensor, *parameters: torch.Tensor) -> Call:
    """Return the states of ``torch.nn.GRU``.

    Args:
        x_sequence: Inputs, shape ``[n_steps, batch, n_inputs]``.
        h0: State, shape ``[batch, n_hidden]``.
        *parameters: Weights and biases of the workload.
    """
    n_inputs = x_sequence.shape[2]
    unit = torch.nn.GRU(n_inputs, h0.shape[1]).requires_grad_(requires_grad=False)
    _set_parameters(unit, "_l0", n_inputs, parameters)
    state = h0[None]

    def call() -> torch.Tensor:
        states: torch.Tensor = unit(x_sequence, state)[0]
        return states

    return call


def _set_parameters(
    module: torch.nn.Module, suffix: str, n_inputs: int, parameters: tuple[torch.Tensor, ...]
) -> None:
    """Copy our weights into a module, whose order is reset, update, candidate."""
    w_z, w_r, w_h, b_z, b_r, b_h = parameters
    weights, biases = torch.cat((w_r, w_z, w_h)), torch.cat((b_r, b_z, b_h))
    for name, values in (
        ("weight_ih", weights[:, :n_inputs]),
        ("weight_hh", weights[:, n_inputs:]),
        ("bias_ih", biases),
        ("bias_hh", torch.zeros_like(biases)),
    ):
        getattr(module, name + suffix).copy_(values)
