"""Inputs of backpropagation through time, and the gradient over either form of the sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from benchmarks.recurrent.rnn_gru import calls as rnn_gru_calls
from ivhl.ops.gru.sequence import gru_sequence, make_gru_sequence, make_rnn_gru

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.recurrent.rnn_gru import Size

    Gradients = tuple[torch.Tensor, ...]


def make_inputs(size: Size, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Draw a projection, and what ``ops.rnn_gru`` draws.

    Returns:
        Projection of the last state ``[batch, n_hidden]``, and the inputs of ``gru_sequence``,
        float64.
    """
    shape = (size.batch, size.n_hidden)
    projection = torch.randn(shape, dtype=torch.float64, generator=generator) / size.batch
    return projection, *rnn_gru_calls.make_inputs(size, generator)


def gradient(*inputs: torch.Tensor) -> Gradients:
    """Return the derivatives of ``sum(projection * last state)`` by the weights and biases.

    Args:
        inputs: Projection, and the inputs of ``gru_sequence``.

    Returns:
        Six tensors of the shapes of three weights and three biases.
    """
    return _gradient_of(gru_sequence)(*inputs)


def make_gradient(compiler: Callable[..., Any]) -> Callable[..., Gradients]:
    """Return ``gradient`` with one step compiled unchanged, with its backward pass."""
    return _gradient_of(make_gru_sequence(compiler))


def make_fused_gradient(compiler: Callable[..., Any]) -> Callable[..., Gradients]:
    """Return ``gradient`` over few, large multiplications and steps; both passes compiled."""
    return _gradient_of(make_rnn_gru(compiler))


def _gradient_of(sequence: Callable[..., torch.Tensor]) -> Callable[..., Gradients]:
    def derivatives(
        projection: torch.Tensor,
        x_sequence: torch.Tensor,
        h0: torch.Tensor,
        *parameters: torch.Tensor,
    ) -> Gradients:
        # The first state requires a gradient too: without one, the first step would be a second
        # graph.
        state, *leaves = (x.detach().requires_grad_() for x in (h0, *parameters))
        states = sequence(x_sequence, state, *leaves)
        gradients: Gradients = torch.autograd.grad((projection * states[-1]).sum(), leaves)
        return gradients

    return derivatives
