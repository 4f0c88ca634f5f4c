"""The same intensity by a hypotenuse."""

from __future__ import annotations

import torch


def reference(field: torch.Tensor) -> torch.Tensor:
    """Return the intensity, shape of ``field``, float64."""
    return torch.hypot(field.real.double(), field.imag.double()).square()
