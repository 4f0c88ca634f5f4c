"""Check the arguments of operations on a condensate, and hand its constants to compiled code."""

from __future__ import annotations

import functools
import math

import torch

from ivhl.ops.condensate.interaction import MAX_RANK
from ivhl.ops.condensate.layouts import MAX_AXES


def check_condensate(phi: torch.Tensor, rank: int, **parameters: object) -> None:
    """Check a condensate, the rank of its interaction, and further constants by their names.

    Raises:
        ValueError: If ``phi`` is not complex or has no or more than three axes, ``rank`` is not an
            integer from 2 to 32, or another constant is not a finite Python number.
    """
    if phi.dtype not in (torch.complex64, torch.complex128):
        raise ValueError(f"phi must be complex64 or complex128, got {phi.dtype}")
    if not 1 <= phi.ndim <= MAX_AXES:
        raise ValueError(f"phi must have 1 to {MAX_AXES} axes, got shape {list(phi.shape)}")
    check_integer("rank", rank, at_least=2)
    if rank > MAX_RANK:
        raise ValueError(f"rank must be at most {MAX_RANK}, got {rank}")
    for name, value in parameters.items():
        # A tensor would be a key of the cache below, which would miss a change of its value.
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ValueError(f"{name} must be a finite Python number, got {value!r}")


def check_integer(name: str, value: object, *, at_least: int) -> None:
    """Check that a value is an integer of at least ``at_least``.

    Raises:
        ValueError: If it is not.
    """
    if not isinstance(value, int) or value < at_least:
        raise ValueError(f"{name} must be an integer of at least {at_least}, got {value!r}")


def numbers_like(phi: torch.Tensor, *values: float) -> torch.Tensor:
    """Return constants as a tensor, one axis, the real dtype and the device of ``phi``.

    A Python number would be a constant in the graph, and each change of it a recompile.
    """
    return _tensor_of(values, phi.dtype.to_real(), phi.device)


@functools.lru_cache(maxsize=256)
def _tensor_of(
    values: tuple[float, ...], dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    # Cached: a simulation uses the same values at every step, and on an accelerator each would be a
    # copy to wait for. Not inference tensors: later calls may want gradients.
    with torch.inference_mode(mode=False):
        return torch.tensor(values, dtype=dtype, device=device)
