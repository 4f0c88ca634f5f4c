"""One step of a gated recurrent unit that resets before the matrix multiplication."""

from __future__ import annotations

import torch
from torch.nn.functional import linear

from ivhl.compile import get_compiled
from ivhl.ops.gru.arguments import check_inputs


def gru_step(  # noqa: PLR0917  (inputs of a workload come in order)
    x: torch.Tensor,
    h: torch.Tensor,
    w_z: torch.Tensor,
    w_r: torch.Tensor,
    w_h: torch.Tensor,
    b_z: torch.Tensor,
    b_r: torch.Tensor,
    b_h: torch.Tensor,
) -> torch.Tensor:
    """Return the next state, computed literally from the formula.

    Args:
        x: Input, shape ``[batch, n_inputs]``.
        h: State, shape ``[batch, n_hidden]``.
        w_z: Weights of the update gate, shape ``[n_hidden, n_inputs + n_hidden]``.
        w_r: Weights of the reset gate, same shape.
        w_h: Weights of the candidate, same shape.
        b_z: Bias of the update gate, shape ``[n_hidden]``.
        b_r: Bias of the reset gate, same shape.
        b_h: Bias of the candidate, same shape.

    Returns:
        State, shape and dtype of ``h``.
    """
    both = torch.cat((x, h), dim=1)
    z = torch.sigmoid(both @ w_z.T + b_z)
    r = torch.sigmoid(both @ w_r.T + b_r)
    n = torch.tanh(torch.cat((x, r * h), dim=1) @ w_h.T + b_h)
    return z * h + (1.0 - z) * n


def fused_step(  # noqa: PLR0917  (inputs of a workload come in order)
    x: torch.Tensor,
    h: torch.Tensor,
    w_z: torch.Tensor,
    w_r: torch.Tensor,
    w_h: torch.Tensor,
    b_z: torch.Tensor,
    b_r: torch.Tensor,
    b_h: torch.Tensor,
) -> torch.Tensor:
    """Return ``gru_step`` in the order that compiles best: without concatenating ``x`` and ``r h``.

    The weights are not stacked: for one step, copying costs more than one multiplication less saves.
    """
    n_inputs = x.shape[1]
    both = torch.cat((x, h), dim=1)
    z = torch.sigmoid(linear(both, w_z, b_z))
    r = torch.sigmoid(linear(both, w_r, b_r))
    n = torch.tanh(linear(x, w_h[:, :n_inputs], b_h) + linear(r * h, w_h[:, n_inputs:]))
    return n + z * (h - n)


def rnn_step_gru(  # noqa: PLR0917  (the order of the seed)
    x: torch.Tensor,
    h: torch.Tensor,
    w_z: torch.Tensor,
    w_r: torch.Tensor,
    w_h: torch.Tensor,
    b_z: torch.Tensor,
    b_r: torch.Tensor,
    b_h: torch.Tensor,
) -> torch.Tensor:
    """Return the state after one step of a GRU that resets before the matrix multiplication.

    Not compiled on a CPU, where that would not make it faster. For a sequence use ``rnn_gru``.

    Args:
        x: Input, shape ``[batch, n_inputs]``, real floating point.
        h: State, shape ``[batch, n_hidden]``.
        w_z: Weights of the update gate, shape ``[n_hidden, n_inputs + n_hidden]``; the columns of
            the input come first.
        w_r: Weights of the reset gate, same shape.
        w_h: Weights of the candidate, same shape.
        b_z: Bias of the update gate, shape ``[n_hidden]``.
        b_r: Bias of the reset gate, same shape.
        b_h: Bias of the candidate, same shape.

    Returns:
        State, shape and dtype of ``h``.

    Raises:
        ValueError: If a shape, dtype or device is wrong.

    Source:
        Cho et al., arXiv:1406.1078, eqs. (5) to (8); in this order Zynerji/iVHL,
        scripts/compiled_ops.py, ``rnn_step_gru``.
    """
    parameters = (w_z, w_r, w_h, b_z, b_r, b_h)
    check_inputs("x", x, "h", h, parameters)
    if x.shape[0] == 0:
        return h.new_empty(h.shape)
    if x.device.type == "cpu":
        # A few small matrix multiplications: the overhead of a compiled call exceeds its gain.
        return fused_step(x, h, *parameters)
    # Contiguous: other strides would recompile.
    inputs = (t.contiguous() for t in (x, h, *parameters))
    step: torch.Tensor = _compiled_step(*inputs)
    return step


_compiled_step = get_compiled(fused_step, dynamic=True, fullgraph=True)
