"""Check the arguments of a gated recurrent unit, of one step or of a sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def check_inputs(
    x_name: str,
    x: torch.Tensor,
    h_name: str,
    h: torch.Tensor,
    parameters: tuple[torch.Tensor, ...],
) -> None:
    """Check inputs, state and parameters.

    Args:
        x_name: ``x_sequence``, whose steps are its first axis, or another name for one step's input.
        x: Inputs, ``[n_steps, batch, n_inputs]`` or ``[batch, n_inputs]``.
        h_name: Name of the state in messages.
        h: State, ``[batch, n_hidden]``.
        parameters: Three weights ``[n_hidden, n_inputs + n_hidden]`` and three biases
            ``[n_hidden]``: of the update gate, the reset gate and the candidate.

    Raises:
        ValueError: If a shape, dtype or device is wrong.
    """
    leading = "n_steps, batch, " if x_name == "x_sequence" else "batch, "
    if x.ndim != leading.count(",") + 1:
        raise ValueError(f"{x_name} must have shape [{leading}n_inputs], got {list(x.shape)}")
    if not x.dtype.is_floating_point:
        raise ValueError(f"{x_name} must be real floating point, got {x.dtype}")
    batch, n_inputs = x.shape[-2:]
    if h.ndim != 2 or h.shape[0] != batch:  # noqa: PLR2004  (axes)
        raise ValueError(
            f"{h_name} must have shape [{batch}, n_hidden], {batch} being the batch of {x_name}, "
            f"got {list(h.shape)}"
        )
    n_hidden = h.shape[1]
    weights, biases = [n_hidden, n_inputs + n_hidden], [n_hidden]
    names = ("w_z", "w_r", "w_h", "b_z", "b_r", "b_h")
    for name, values, shape in zip(names, parameters, 3 * (weights,) + 3 * (biases,), strict=True):
        if list(values.shape) != shape:
            raise ValueError(f"{name} must have shape {shape}, got {list(values.shape)}")
    for name, values in zip((h_name, *names), (h, *parameters), strict=True):
        if values.dtype != x.dtype:
            raise ValueError(
                f"{name} must have the dtype of {x_name}, {x.dtype}, got {values.dtype}"
            )
        if values.device != x.device:
            raise ValueError(
                f"{name} must be on the device of {x_name}, {x.device}, got {values.device}"
            )
