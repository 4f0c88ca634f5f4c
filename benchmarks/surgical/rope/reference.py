"""The same by complex numbers."""

from __future__ import annotations

import torch


def reference(
    q: torch.Tensor, k: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return turned queries and keys, float64."""
    turn = torch.complex(cosines.double(), sines.double())
    turned = [
        torch.view_as_real(torch.view_as_complex(x.double().unflatten(-1, (-1, 2))) * turn)
        for x in (q, k)
    ]
    return turned[0].flatten(-2), turned[1].flatten(-2)
