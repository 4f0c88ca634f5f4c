"""The same states by columns: sums written out as ``einsum``, gates by tanh."""

from __future__ import annotations

import torch


def reference(  # noqa: PLR0917  (inputs of a workload come in order)
    x_sequence: torch.Tensor,
    h0: torch.Tensor,
    w_z: torch.Tensor,
    w_r: torch.Tensor,
    w_h: torch.Tensor,
    b_z: torch.Tensor,
    b_r: torch.Tensor,
    b_h: torch.Tensor,
) -> torch.Tensor:
    """Return the state after every step, shape ``[n_steps, batch, n_hidden]``, float64."""
    n_inputs = x_sequence.shape[2]

    def gate(
        weights: torch.Tensor, bias: torch.Tensor, x: torch.Tensor, h: torch.Tensor
    ) -> torch.Tensor:
        from_input = torch.einsum("ji,bi->bj", weights[:, :n_inputs], x)
        return from_input + torch.einsum("jk,bk->bj", weights[:, n_inputs:], h) + bias

    h = h0.double()
    states = [h]
    for x in x_sequence.double():
        # sigmoid(a) = (1 + tanh(a / 2)) / 2
        reset = 0.5 * h + 0.5 * h * torch.tanh(0.5 * gate(w_r, b_r, x, h))
        keep = torch.tanh(0.5 * gate(w_z, b_z, x, h))
        candidate = 1.0 - 2.0 / (torch.exp(2.0 * gate(w_h, b_h, x, reset)) + 1.0)
        h = 0.5 * (h + candidate) + 0.5 * keep * (h - candidate)
        states.append(h)
    return torch.stack(states)[1:]
