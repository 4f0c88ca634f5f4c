"""The same layers once more: moments of the norm, complex RoPE, a softmax by exponentials, erfc."""

from __future__ import annotations

import math

import torch

Weights = dict[str, torch.Tensor]
EPS = 1e-5  # repeated on purpose: the reference shares nothing with eager


def reference(
    weights: Weights, x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor
) -> torch.Tensor:
    """Return the tokens after all layers, float64."""
    x = x.double()
    layer = 0
    while f"{layer}.qkv" in weights:
        w = {name: weights[f"{layer}.{name}"].double() for name in NAMES}
        h = norm(x, w["first.gain"], w["first.shift"])
        x = x + attention(h, w["qkv"], cosines, sines) @ w["out"].T
        inner = norm(x, w["second.gain"], w["second.shift"]) @ w["up"].T
        x = x + (inner * normal(inner)) @ w["down"].T
        layer += 1
    return x


NAMES = (
    *("first.gain", "first.shift", "second.gain", "second.shift"),
    *("qkv", "out", "up", "down"),
)


def norm(x: torch.Tensor, gain: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """Return tokens less their mean over their standard deviation, from the first two moments."""
    mean = x.mean(-1, keepdim=True)
    variance = (x**2).mean(-1, keepdim=True) - mean**2
    return (x - mean) / torch.sqrt(variance + EPS) * gain + shift


def attention(
    h: torch.Tensor, weight: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor
) -> torch.Tensor:
    """Return what the heads make of the tokens, head by head."""
    n_head = 2 * cosines.shape[-1]
    turn = torch.complex(cosines.double(), sines.double())
    q, k, v = (h @ weight.T).chunk(3, dim=-1)
    found = []
    for first in range(0, h.shape[-1], n_head):
        part = slice(first, first + n_head)
        turned = [
            torch.view_as_complex(one[..., part].unflatten(-1, (-1, 2)).contiguous()) * turn
            for one in (q, k)
        ]
        # The real part of a product with a conjugate is the scalar product of the pairs.
        scores = torch.einsum("bmp,bnp->bmn", turned[0], turned[1].conj()).real
        powers = torch.exp((scores - scores.amax(-1, keepdim=True)) / math.sqrt(n_head))
        found.append(
            torch.einsum("bmn,bnd->bmd", powers, v[..., part]) / powers.sum(-1)[..., None]
        )
    return torch.cat(found, dim=-1)


def normal(x: torch.Tensor) -> torch.Tensor:
    """Return the probability that a normal number is less."""
    return 0.5 * torch.erfc(-x / math.sqrt(2.0))
