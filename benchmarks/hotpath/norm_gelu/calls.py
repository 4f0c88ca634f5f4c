"""Layer norm, GELU and residual, as one would write them from their formulas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from benchmarks.hotpath.norm_gelu import Size

EPS: Final = 1e-5


def make_inputs(
    size: Size, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draw rows ``[n_rows, n_wide]``, and gain and shift ``[n_wide]``."""

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=generator)

    return draw(size.n_rows, size.n_wide), 1.0 + 0.1 * draw(size.n_wide), 0.1 * draw(size.n_wide)


def norm_gelu(x: torch.Tensor, gain: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """Return ``x + GELU(layer norm of x)``, by the approximation with a hyperbolic tangent."""
    mean = x.mean(-1, keepdim=True)
    variance = x.var(-1, unbiased=False, keepdim=True)
    h = (x - mean) * torch.rsqrt(variance + EPS) * gain + shift
    inner = 0.7978845608028654 * (h + 0.044715 * h * h * h)
    return x + 0.5 * h * (1.0 + torch.tanh(inner))
