"""Inputs and reference of the recurrent step: those of a sequence of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.recurrent import rnn_gru
from benchmarks.recurrent.rnn_gru import calls as rnn_gru_calls
from benchmarks.recurrent.rnn_gru import reference as rnn_gru_reference

if TYPE_CHECKING:
    import torch

    from benchmarks.recurrent.rnn_step_gru import Size


def make_inputs(size: Size, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Draw an input of noise, a state, and weights as ``torch.nn.GRU`` starts with.

    Returns:
        Input ``[batch, n_inputs]``, state ``[batch, n_hidden]``, three weights
        ``[n_hidden, n_inputs + n_hidden]`` and three biases ``[n_hidden]``, float64.
    """
    sequence = rnn_gru.Size(1, size.batch, size.n_inputs, size.n_hidden)
    x_sequence, *others = rnn_gru_calls.make_inputs(sequence, generator)
    return (x_sequence[0], *others)


def reference(x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
    """Return the next state, shape ``[batch, n_hidden]``, float64."""
    return rnn_gru_reference.reference(x[None], *others)[0]
