"""A gated recurrent unit over a sequence: one step after another, and few, large multiplications.

The gradient is that of autograd, which goes back through the steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from torch.nn.functional import linear

from ivhl.compile import get_compiled
from ivhl.ops.gru.arguments import check_inputs
from ivhl.ops.gru.cell import gru_step

if TYPE_CHECKING:
    from collections.abc import Callable

# A compiled call has an overhead of some 20 us, as much as a small step takes.
STEPS_PER_CALL: Final = 4


def gru_sequence(  # noqa: PLR0917  (inputs of a workload come in order)
    x_sequence: torch.Tensor,
    h0: torch.Tensor,
    w_z: torch.Tensor,
    w_r: torch.Tensor,
    w_h: torch.Tensor,
    b_z: torch.Tensor,
    b_r: torch.Tensor,
    b_h: torch.Tensor,
) -> torch.Tensor:
    """Return the state after every step of a sequence: ``gru_step`` in a loop.

    Args:
        x_sequence: Inputs, shape ``[n_steps, batch, n_inputs]``.
        h0: State before the first step, shape ``[batch, n_hidden]``.
        w_z: Weights of the update gate, shape ``[n_hidden, n_inputs + n_hidden]``.
        w_r: Weights of the reset gate, same shape.
        w_h: Weights of the candidate, same shape.
        b_z: Bias of the update gate, shape ``[n_hidden]``.
        b_r: Bias of the reset gate, same shape.
        b_h: Bias of the candidate, same shape.

    Returns:
        States, shape ``[n_steps, batch, n_hidden]``.

    Raises:
        ValueError: If a shape, dtype or device is wrong.
    """
    return make_gru_sequence(lambda function: function)(
        x_sequence, h0, w_z, w_r, w_h, b_z, b_r, b_h
    )


def make_gru_sequence(compiler: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """Return ``gru_sequence`` with ``gru_step`` compiled unchanged.

    Args:
        compiler: Compiles a function, e.g. ``torch.compile``; the identity leaves it eager.

    Returns:
        A function with the arguments and the result of ``gru_sequence``.
    """
    step = compiler(gru_step)

    def sequence(
        x_sequence: torch.Tensor, h0: torch.Tensor, *parameters: torch.Tensor
    ) -> torch.Tensor:
        check_inputs("x_sequence", x_sequence, "h0", h0, parameters)
        states = []
        h = h0
        for x in x_sequence:
            h = step(x, h, *parameters)
            states.append(h)
        return torch.stack(states) if states else _no_states(h0)

    return sequence


def recurrent_steps(
    from_inputs: torch.Tensor, h: torch.Tensor, w_gates: torch.Tensor, w_candidate: torch.Tensor
) -> torch.Tensor:
    """Return the states of a few steps, from inputs already multiplied by their weights.

    Args:
        from_inputs: ``W x + b`` of both gates and the candidate, shape
            ``[n_steps, batch, 3 * n_hidden]``.
        h: State before, shape ``[batch, n_hidden]``.
        w_gates: Weights from the state to both gates, shape ``[2 * n_hidden, n_hidden]``.
        w_candidate: Weights from the reset state, shape ``[n_hidden, n_hidden]``.

    Returns:
        States, shape ``[n_steps, batch, n_hidden]``.
    """
    n_hidden = h.shape[1]
    states = []
    for step in from_inputs.unbind():
        gates = torch.sigmoid(step[:, : 2 * n_hidden] + linear(h, w_gates))
        z, r = gates[:, :n_hidden], gates[:, n_hidden:]
        n = torch.tanh(step[:, 2 * n_hidden :] + linear(r * h, w_candidate))
        h = n + z * (h - n)
        states.append(h)
    return torch.stack(states)


def make_rnn_gru(compiler: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """Return ``gru_sequence`` with few, large matrix multiplications and compiled steps.

    One multiplication covers the inputs of all steps, another both gates of a step; everything
    between two multiplications is one loop. One compiled call makes four steps. If the number of
    steps is no multiple of four, steps are added and their states dropped.

    Args:
        compiler: Compiles a function, e.g. ``torch.compile``; the identity leaves it eager.

    Returns:
        A function with the arguments and the result of ``gru_sequence``.
    """
    steps = compiler(recurrent_steps)

    def sequence(  # noqa: PLR0917  (inputs of a workload come in order)
        x_sequence: torch.Tensor,
        h0: torch.Tensor,
        w_z: torch.Tensor,
        w_r: torch.Tensor,
        w_h: torch.Tensor,
        b_z: torch.Tensor,
        b_r: torch.Tensor,
        b_h: torch.Tensor,
    ) -> torch.Tensor:
        check_inputs("x_sequence", x_sequence, "h0", h0, (w_z, w_r, w_h, b_z, b_r, b_h))
        n_steps, batch, n_inputs = x_sequence.shape
        if n_steps == 0 or batch == 0:
            return _no_states(h0, n_steps)
        weights = torch.cat((w_z, w_r, w_h))
        w_gates = torch.cat((w_z[:, n_inputs:], w_r[:, n_inputs:]))
        w_candidate = w_h[:, n_inputs:].contiguous()
        from_inputs = linear(x_sequence, weights[:, :n_inputs], torch.cat((b_z, b_r, b_h)))
        n_missing = -n_steps % STEPS_PER_CALL
        if n_missing:
            from_inputs = torch.cat((from_inputs, from_inputs[:1].expand(n_missing, -1, -1)))
        calls = []
        h = h0.contiguous()
        for chunk in from_inputs.split(STEPS_PER_CALL):
            states = steps(chunk, h, w_gates, w_candidate)
            # The next replay of a CUDA graph overwrites the outputs of this one.
            calls.append(states.clone() if states.is_cuda else states)
            h = calls[-1][-1]
        return torch.cat(calls)[:n_steps]

    return sequence


def rnn_gru(  # noqa: PLR0917  (the order of the seed)
    x_sequence: torch.Tensor,
    h0: torch.Tensor,
    w_z: torch.Tensor,
    w_r: torch.Tensor,
    w_h: torch.Tensor,
    b_z: torch.Tensor,
    b_r: torch.Tensor,
    b_h: torch.Tensor,
) -> torch.Tensor:
    """Return the state after every step of a sequence; each step is ``rnn_step_gru``.

    Args:
        x_sequence: Inputs, shape ``[n_steps, batch, n_inputs]``, real floating point.
        h0: State before the first step, shape ``[batch, n_hidden]``.
        w_z: Weights of the update gate, shape ``[n_hidden, n_inputs + n_hidden]``; the columns of
            the input come first.
        w_r: Weights of the reset gate, same shape.
        w_h: Weights of the candidate, same shape.
        b_z: Bias of the update gate, shape ``[n_hidden]``.
        b_r: Bias of the reset gate, same shape.
        b_h: Bias of the candidate, same shape.

    Returns:
        States, shape ``[n_steps, batch, n_hidden]``, dtype of ``h0``.

    Raises:
        ValueError: If a shape, dtype or device is wrong.

    Source:
        Cho et al., arXiv:1406.1078, eqs. (5) to (8).
    """
    return _compiled_sequence(x_sequence, h0, w_z, w_r, w_h, b_z, b_r, b_h)


def _no_states(h0: torch.Tensor, n_steps: int = 0) -> torch.Tensor:
    return h0.new_empty(n_steps, *h0.shape)


_compiled_sequence = make_rnn_gru(get_compiled(dynamic=True, fullgraph=True))
