"""The same gradient by hand: all states forward, then the chain rule step by step backwards."""

from __future__ import annotations

import torch


def reference(  # noqa: PLR0917  (inputs of a workload come in order)
    projection: torch.Tensor,
    x_sequence: torch.Tensor,
    h0: torch.Tensor,
    w_z: torch.Tensor,
    w_r: torch.Tensor,
    w_h: torch.Tensor,
    b_z: torch.Tensor,
    b_r: torch.Tensor,
    b_h: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """Return the derivatives of ``sum(projection * last state)`` by weights and biases, float64.

    ``g`` being the derivative by a step's new state ``z h + (1 - z) n``, those by what goes into
    the update gate are ``g (h - n) z'``, by what goes into the candidate ``g (1 - z) (1 - n^2)``, by
    the reset state that times its weights, and so on to ``h``. Of a gate ``(1 + k) / 2`` with
    ``k = tanh(a / 2)``, the derivative is ``(1 - k^2) / 4``.

    Returns:
        Three tensors ``[n_hidden, n_inputs + n_hidden]`` and three ``[n_hidden]``.
    """
    n_inputs = x_sequence.shape[2]

    def gate(
        weights: torch.Tensor, bias: torch.Tensor, x: torch.Tensor, h: torch.Tensor
    ) -> torch.Tensor:
        from_input = torch.einsum("ji,bi->bj", weights[:, :n_inputs], x)
        return from_input + torch.einsum("jk,bk->bj", weights[:, n_inputs:], h) + bias

    h, steps = h0.double(), []
    for x in x_sequence.double():
        k_z = torch.tanh(0.5 * gate(w_z, b_z, x, h))
        k_r = torch.tanh(0.5 * gate(w_r, b_r, x, h))
        n = torch.tanh(gate(w_h, b_h, x, 0.5 * (h + k_r * h)))
        steps.append((x, h, k_z, k_r, n))
        h = 0.5 * (h + n) + 0.5 * k_z * (h - n)

    weights = (w_z, w_r, w_h)
    by_weight = [torch.zeros_like(w) for w in weights]
    by_bias = [torch.zeros_like(b) for b in (b_z, b_r, b_h)]
    g = projection.double()
    for x, h, k_z, k_r, n in reversed(steps):
        into_n = 0.5 * g * (1.0 - k_z) * (1.0 - n * n)
        into_z = 0.25 * g * (h - n) * (1.0 - k_z * k_z)
        by_reset = torch.einsum("bj,jk->bk", into_n, w_h[:, n_inputs:])
        into_r = 0.25 * by_reset * h * (1.0 - k_r * k_r)
        reset = 0.5 * (1.0 + k_r) * h
        for i, (into, state) in enumerate(((into_z, h), (into_r, h), (into_n, reset))):
            by_weight[i][:, :n_inputs] += torch.einsum("bj,bi->ji", into, x)
            by_weight[i][:, n_inputs:] += torch.einsum("bj,bk->jk", into, state)
            by_bias[i] += torch.einsum("bj->j", into)
        g = 0.5 * g * (1.0 + k_z) + 0.5 * by_reset * (1.0 + k_r)
        g = g + torch.einsum("bj,jk->bk", into_z, w_z[:, n_inputs:])
        g = g + torch.einsum("bj,jk->bk", into_r, w_r[:, n_inputs:])
    return *by_weight, *by_bias
