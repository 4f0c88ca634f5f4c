"""Inputs of the recurrent workload."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from benchmarks.recurrent.rnn_gru import Size


def make_inputs(size: Size, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Draw a sequence of noise, a state, and weights as ``torch.nn.GRU`` starts with.

    Returns:
        Inputs ``[n_steps, batch, n_inputs]``, state ``[batch, n_hidden]``, three weights
        ``[n_hidden, n_inputs + n_hidden]`` and three biases ``[n_hidden]``, float64.
    """

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=generator)

    def draw_parameter(*shape: int) -> torch.Tensor:
        uniform = torch.rand(shape, dtype=torch.float64, generator=generator)
        return (2.0 * uniform - 1.0) / math.sqrt(size.n_hidden)

    shape = (size.n_hidden, size.n_inputs + size.n_hidden)
    return (
        draw(size.n_steps, size.batch, size.n_inputs),
        draw(size.batch, size.n_hidden).tanh(),
        *(draw_parameter(*shape) for _ in range(3)),
        *(draw_parameter(size.n_hidden) for _ in range(3)),
    )
