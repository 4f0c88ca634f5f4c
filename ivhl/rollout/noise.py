"""Noise that does not depend on what runs: compiled or eager, in which batch, in which order.

Inductor's random numbers differ from eager's. So the noise of a step is drawn before it, by
PyTorch's generators, and is an input. Each realisation of each operator has a generator of its own.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class StepNoise:
    """Gaussian noise that is added to the output of the operator in every step.

    Attributes:
        scale: Its standard deviation.
        seed: Together with the numbers of operator and realisation it determines every number. On
            another type of device they are others.

    Raises:
        ValueError: If the scale is negative or not finite, or the seed is no ``int``.
    """

    scale: float = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.scale) and self.scale >= 0.0):
            raise ValueError(
                f"the scale of noise must be finite and not negative, got {self.scale}"
            )
        # Numbers follow from how it is written, and NumPy's are written in two ways.
        if type(self.seed) is not int:
            raise ValueError(f"the seed of noise must be an int, got {self.seed!r}")


class NoiseSource:
    """Draws the noise of a batch, step by step.

    Args:
        noise: What to draw.
        members: Operator and realisation of each row of the batch.
        device: Where to draw.
    """

    def __init__(
        self, noise: StepNoise, members: Iterable[tuple[int, int]], device: torch.device
    ) -> None:
        self._scale = noise.scale
        self._generators = [
            torch.Generator(device).manual_seed(seed_of(noise.seed, "noise", *member))
            for member in members
        ]

    def fill(self, rows: torch.Tensor) -> None:
        """Draw the noise of the next step.

        Args:
            rows: Overwritten; a row for each member. Float32 numbers are drawn whatever its dtype
                is, so a float64 run gets the noise of the float32 one.
        """
        for row, generator in zip(rows, self._generators, strict=True):
            if row.dtype == torch.float32 and row.is_contiguous():
                row.normal_(generator=generator)  # as torch.randn does, without a copy
            else:
                drawn = torch.randn(
                    row.shape, generator=generator, device=row.device, dtype=torch.float32
                )
                row.copy_(drawn)
        rows.mul_(self._scale)


def seed_of(*parts: int | str) -> int:
    """Return a seed for what these parts identify: neighbours share no numbers."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
