"""The same steps once more: convolutions by shifted sums, moments of the norm, erfc."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    Weights = dict[str, Any]
    Function = Callable[[torch.Tensor], torch.Tensor]

STEP = 0.1  # repeated on purpose: the reference shares nothing with eager
EPS = 1e-5


def reference(parameters: Weights, state: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Return the states after all steps, float64."""
    return evolve(parameters, state, noise, n_groups=None, activation=gelu)


def evolve(
    parameters: Weights,
    state: torch.Tensor,
    noise: torch.Tensor,
    *,
    n_groups: int | None,
    activation: Function,
) -> torch.Tensor:
    """Return the states by a norm over so many groups (``None``: each channel) and an activation."""
    x = state.double()
    for drawn in noise.double():
        x = (1.0 - STEP) * x + STEP * (x + _operator(parameters, x, n_groups, activation) + drawn)
    return x


def _operator(
    p: Weights, x: torch.Tensor, n_groups: int | None, activation: Function
) -> torch.Tensor:
    def layer(name: str, h: torch.Tensor) -> torch.Tensor:
        h = _convolution(p[name], h)
        return _norm(h, p[f"{name}.gain"], p[f"{name}.shift"], n_groups)

    h = activation(layer("stem", x))
    number = 0
    while f"block{number}.first" in p:
        block = f"block{number}"
        inner = activation(layer(f"{block}.first", h))
        kept = _convolution(p[f"{block}.project"], h) if f"{block}.project" in p else h
        h = activation(layer(f"{block}.second", inner) + kept)
        number += 1
    return _convolution(p["last"], h) + p["last.shift"].double()[:, None, :, None, None]


def _convolution(weight: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    """Return the sum over all shifts of a field with zeros around it; operators are an axis."""
    weight = weight.double()
    size = weight.shape[-1]
    reach, (rows, columns) = size // 2, h.shape[-2:]
    wide = h.new_zeros(*h.shape[:-2], rows + 2 * reach, columns + 2 * reach)
    wide[..., reach : reach + rows, reach : reach + columns] = h
    total = h.new_zeros(*h.shape[:2], weight.shape[1], rows, columns)
    for i in range(size):
        for j in range(size):
            shifted = wide[..., i : i + rows, j : j + columns]
            total += torch.einsum("oki,oriyx->orkyx", weight[..., i, j], shifted)
    return total


def _norm(
    h: torch.Tensor, gain: torch.Tensor, shift: torch.Tensor, n_groups: int | None
) -> torch.Tensor:
    """Return the field less its mean over its standard deviation, from its first two moments."""
    group = 1 if n_groups is None else h.shape[2] // n_groups
    cells = h.unflatten(2, (-1, group)).flatten(3)
    mean = cells.mean(-1)
    variance = (cells**2).mean(-1) - mean**2
    scale = 1.0 / torch.sqrt(variance + EPS)
    mean, scale = (m.repeat_interleave(group, -1)[..., None, None] for m in (mean, scale))
    gain, shift = (v.double()[:, None, :, None, None] for v in (gain, shift))
    return h * (scale * gain) + (shift - mean * scale * gain)


def gelu(h: torch.Tensor) -> torch.Tensor:
    """Return ``h`` times the probability that a normal number is less."""
    return 0.5 * h * torch.erfc(-h / math.sqrt(2.0))
