"""The operations between the linear layers, as functions of tensors, eager.

They are pure, so each may be compiled or not, alone or with its neighbours (``ivhl.surgical.plan``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.functional import gelu, layer_norm, scaled_dot_product_attention, silu

if TYPE_CHECKING:
    from ivhl.surgical.configuration import ActivationKind, NormKind

Heads = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def make_angles(
    n_positions: int,
    n_head: int,
    *,
    base: float = 10000.0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosines and sines of RoPE's angles.

    The angle of pair ``i`` at position ``m`` is ``m * base ** (-2 i / n_head)``, computed in float64
    and rounded once, as cosine and sine.

    Args:
        n_positions: Positions, from 0.
        n_head: Width of a head, even.
        base: Base of the wavelengths.
        dtype: float32 or float64. In bfloat16, of 2048 positions 641 are distinct.
        device: Where the tables go; they are computed on the CPU.

    Returns:
        Two tensors ``[n_positions, n_head / 2]``.

    Raises:
        ValueError: If ``n_head`` is odd, a number is less than 1, or the dtype is a shorter one.

    Source:
        Su et al., arXiv:2104.09864, eq. (15).
    """
    if n_positions < 1 or n_head < 1 or n_head % 2:
        raise ValueError(
            f"RoPE needs at least one position and an even width of a head, got {n_positions} "
            f"positions and {n_head}"
        )
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"the tables of RoPE must be float32 or float64, got {dtype}: shorter ones miss angles"
        )
    pairs = torch.arange(0, n_head, 2, dtype=torch.float64)
    angles = torch.arange(n_positions, dtype=torch.float64)[:, None] * base ** (-pairs / n_head)
    return angles.cos().to(device, dtype), angles.sin().to(device, dtype)


def normalise(
    kind: NormKind,
    x: torch.Tensor,
    gain: torch.Tensor,
    shift: torch.Tensor | None,
    eps: float,
) -> torch.Tensor:
    """Return tokens normalised over their last axis, in the dtype of ``x``.

    Args:
        kind: ``layer`` or ``rms``.
        x: Tokens ``[..., n_hidden]``.
        gain: ``[n_hidden]``.
        shift: ``[n_hidden]`` for ``layer``; not read for ``rms``.
        eps: Added under the root.
    """
    if kind == "layer":
        return layer_norm(x, gain.shape, gain, shift, eps)
    wide = _at_least_float32(x)
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale * gain).to(x.dtype)


def split_heads(qkv: torch.Tensor, n_heads: int) -> Heads:
    """Return queries, keys and values, views ``[n_batch, n_heads, n_tokens, n_head]``.

    Args:
        qkv: ``[n_batch, n_tokens, 3 n_hidden]``: all queries, all keys, all values.
        n_heads: Heads.
    """
    q, k, v = qkv.unflatten(-1, (3, n_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
    return q, k, v


def rotate(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """Return queries or keys with each pair ``(2 i, 2 i + 1)`` turned by its angle.

    Computes in float32, or in float64 if ``x`` is float64, and rounds once to the dtype of ``x``, so
    that eager and compiled code round at the same place. The original computes in bfloat16: there
    eager code rounds three times, compiled code once (docs/surgical.md).

    Args:
        x: ``[..., n_tokens, n_head]``.
        cosines: From ``make_angles``, of at least ``n_tokens`` positions.
        sines: Like ``cosines``.

    Raises:
        ValueError: If there are fewer positions than tokens.
    """
    n_tokens = x.shape[-2]
    # Tables of one position would turn all tokens alike.
    if n_tokens > min(cosines.shape[-2], sines.shape[-2]):
        raise ValueError(
            f"the tables of RoPE must have at least {n_tokens} positions, got "
            f"{cosines.shape[-2]} and {sines.shape[-2]}"
        )
    cosines, sines = cosines[:n_tokens], sines[:n_tokens]
    if x.device.type == "cuda" and torch.compiler.is_compiling():
        return rotate_beside_swapped(x, cosines, sines)
    first, second = _at_least_float32(x).unflatten(-1, (-1, 2)).unbind(-1)
    turned = (first * cosines - second * sines, first * sines + second * cosines)
    return torch.stack(turned, dim=-1).flatten(-2).to(x.dtype)


def rotate_beside_swapped(
    x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor
) -> torch.Tensor:
    """Return what ``rotate`` returns, from each number and its neighbour in the pair.

    For a GPU: what Inductor makes of this form is 1.3 times as fast there as what it makes of the
    stacked pairs (docs/gpu.md).

    Args:
        x: As for ``rotate``.
        cosines: ``[n_tokens, n_head / 2]``.
        sines: Like ``cosines``.
    """
    wide = _at_least_float32(x)
    swapped = wide.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    cosines = cosines.repeat_interleave(2, -1)
    sines = torch.stack((-sines, sines), dim=-1).flatten(-2)
    return (wide * cosines + swapped * sines).to(x.dtype)


def attend_softmax(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool
) -> torch.Tensor:
    """Return attention as the original has it: all scores, their softmax, a matrix multiplication.

    Args:
        q: ``[n_batch, n_heads, n_tokens, n_head]``.
        k: Like ``q``.
        v: Like ``q``.
        causal: Whether a token sees only those before it and itself.
    """
    scores = torch.matmul(q, k.transpose(-2, -1)) * q.shape[-1] ** -0.5
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return torch.matmul(scores.softmax(-1), v)


def attend_sdpa(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool
) -> torch.Tensor:
    """Return the same by PyTorch's fused kernel, which keeps no scores."""
    return scaled_dot_product_attention(q, k, v, is_causal=causal)


def combine_heads(x: torch.Tensor) -> torch.Tensor:
    """Return ``[n_batch, n_tokens, n_hidden]`` of ``[n_batch, n_heads, n_tokens, n_head]``."""
    return x.transpose(1, 2).flatten(2)


def activate(kind: ActivationKind, x: torch.Tensor) -> torch.Tensor:
    """Return the activation of every number."""
    if kind == "silu":
        return silu(x)
    return gelu(x, approximate="tanh" if kind == "gelu-tanh" else "none")


def add_residual(x: torch.Tensor, branch: torch.Tensor) -> torch.Tensor:
    """Return tokens plus what a branch made of them."""
    return x + branch


def _at_least_float32(x: torch.Tensor) -> torch.Tensor:
    return x if x.dtype == torch.float64 else x.float()
