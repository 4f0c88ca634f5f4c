"""The same gradients by hand: layer after layer forward, then backward, in float64."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from benchmarks.surgical.stack.reference import EPS, NAMES, normal

Weights = dict[str, torch.Tensor]


class NormTrace(NamedTuple):
    """What the backward pass of a norm needs: the normalised tokens and one over the deviation."""

    unit: torch.Tensor
    scale: torch.Tensor


class LayerTrace(NamedTuple):
    """What the backward pass of a layer needs of its forward pass."""

    weights: Weights
    first: NormTrace
    second: NormTrace
    queries: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    shares: torch.Tensor
    inner: torch.Tensor


def reference(
    weights: Weights,
    x: torch.Tensor,
    cosines: torch.Tensor,
    sines: torch.Tensor,
    projection: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """Return the gradients by tokens, and by ``qkv``, first gain and ``down`` of the first layer."""
    turn = torch.complex(cosines.double(), sines.double())
    layers: list[LayerTrace] = []
    x = x.double()
    while f"{len(layers)}.qkv" in weights:
        w = {name: weights[f"{len(layers)}.{name}"].double() for name in NAMES}
        x, kept = _forward(w, x, turn)
        layers.append(kept)
    by_x = projection.double()
    by_weights: Weights = {}
    for layer in reversed(layers):
        by_x, by_weights = _backward(layer, by_x, turn)
    return by_x, by_weights["qkv"], by_weights["gain"], by_weights["down"]


def _forward(w: Weights, x: torch.Tensor, turn: torch.Tensor) -> tuple[torch.Tensor, LayerTrace]:
    first = _norm(x)
    h = first.unit * w["first.gain"] + w["first.shift"]
    n_pairs = turn.shape[-1]
    qkv = (h @ w["qkv"].T).unflatten(-1, (3, -1, 2 * n_pairs))
    queries, keys = (_turned(qkv[..., number, :, :], turn) for number in (0, 1))
    values = qkv[..., 2, :, :]
    scores = torch.einsum("bmhd,bnhd->bhmn", queries, keys) / math.sqrt(2 * n_pairs)
    powers = torch.exp(scores - scores.amax(-1, keepdim=True))
    shares = powers / powers.sum(-1, keepdim=True)
    heads = torch.einsum("bhmn,bnhd->bmhd", shares, values).flatten(2)
    x = x + heads @ w["out"].T
    second = _norm(x)
    inner = (second.unit * w["second.gain"] + w["second.shift"]) @ w["up"].T
    kept = LayerTrace(w, first, second, queries, keys, values, shares, inner)
    return x + (inner * normal(inner)) @ w["down"].T, kept


def _backward(
    layer: LayerTrace, by_x: torch.Tensor, turn: torch.Tensor
) -> tuple[torch.Tensor, Weights]:
    w = layer.weights
    # Feed-forward: d(x Phi(x)) = Phi(x) + x phi(x).
    active = layer.inner * normal(layer.inner)
    by_down = torch.einsum("bmo,bmi->oi", by_x, active)
    density = torch.exp(-0.5 * layer.inner**2) / math.sqrt(2.0 * math.pi)
    by_inner = (by_x @ w["down"]) * (normal(layer.inner) + layer.inner * density)
    by_x = by_x + _norm_backward(layer.second, by_inner @ w["up"] * w["second.gain"])
    # Attention: the softmax turns a gradient g into s * (g - sum(s g)).
    by_heads = (by_x @ w["out"]).unflatten(-1, layer.values.shape[-2:])
    by_values = torch.einsum("bhmn,bmhd->bnhd", layer.shares, by_heads)
    by_shares = torch.einsum("bmhd,bnhd->bhmn", by_heads, layer.values)
    inside = (by_shares * layer.shares).sum(-1, keepdim=True)
    by_scores = layer.shares * (by_shares - inside) / math.sqrt(layer.values.shape[-1])
    by_queries = torch.einsum("bhmn,bnhd->bmhd", by_scores, layer.keys)
    by_keys = torch.einsum("bhmn,bmhd->bnhd", by_scores, layer.queries)
    back = turn.conj()  # a rotation is undone by its inverse
    parts = [_turned(by_queries, back), _turned(by_keys, back), by_values]
    by_qkv = torch.stack(parts, dim=2).flatten(2)
    h = layer.first.unit * w["first.gain"] + w["first.shift"]
    by_h = by_qkv @ w["qkv"]
    by_weights = {
        "qkv": torch.einsum("bmo,bmi->oi", by_qkv, h),
        "gain": (by_h * layer.first.unit).sum((0, 1)),
        "down": by_down,
    }
    return by_x + _norm_backward(layer.first, by_h * w["first.gain"]), by_weights


def _norm(x: torch.Tensor) -> NormTrace:
    mean = x.mean(-1, keepdim=True)
    scale = 1.0 / torch.sqrt((x**2).mean(-1, keepdim=True) - mean**2 + EPS)
    return NormTrace((x - mean) * scale, scale)


def _norm_backward(norm: NormTrace, by_unit: torch.Tensor) -> torch.Tensor:
    """Return the gradient by the tokens: what moves their mean or deviation is taken out."""
    mean = by_unit.mean(-1, keepdim=True)
    along = (by_unit * norm.unit).mean(-1, keepdim=True)
    return norm.scale * (by_unit - mean - norm.unit * along)


def _turned(x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """Return heads ``[n_batch, n_tokens, n_heads, n_head]`` with each pair turned."""
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * turn[:, None]).flatten(-2)
