"""Mass and interaction: powers of the density, and the rotation of each point's phase by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from ivhl.ops.condensate.layouts import Planes

Power = Callable[[torch.Tensor], torch.Tensor]

# A power of the density is a chain of multiplications; much longer ones overflow and do not compile.
MAX_RANK: Final = 32


def power_of_density(rank: int) -> Power:
    """Return ``|phi|^(rank-2)`` as a function of ``|phi|^2``.

    With ``dynamic=True``, Dynamo would make a symbol of the number ``rank`` in a graph.

    Args:
        rank: From 2 to ``MAX_RANK``.
    """
    if rank == 2:  # noqa: PLR2004  (a second mass term, no interaction)
        return lambda density: torch.ones_like(density)  # noqa: PLW0108  (typed, unlike it)
    if rank == 3:  # noqa: PLR2004
        # The gradient of a square root is infinite at zero, and zero times infinity is NaN.
        return lambda density: density.clamp(min=torch.finfo(density.dtype).tiny).sqrt()
    if rank == 4:  # noqa: PLR2004
        return lambda density: density
    lower = power_of_density(rank - 2)

    def power(density: torch.Tensor) -> torch.Tensor:
        return density * lower(density)

    return power


def turn_planes(re: torch.Tensor, im: torch.Tensor, rates: torch.Tensor, power: Power) -> Planes:
    """Rotate the phase of every point by the potential; no modulus changes.

    Args:
        re: Real part, any shape.
        im: Imaginary part, shape of ``re``.
        rates: Time multiplied by ``m2``, and by ``lam``, shape ``[2]``.
        power: ``|phi|^(rank-2)`` of ``|phi|^2``.

    Returns:
        Two planes of the shape of ``re``.
    """
    own, interaction = rates.unbind()
    angle = own + interaction * power(re * re + im * im)
    c, s = torch.cos(angle), torch.sin(angle)
    return re * c + im * s, im * c - re * s
