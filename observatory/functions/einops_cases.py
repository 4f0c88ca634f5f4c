"""Attention in einops' notation."""

from einops import einsum, rearrange


def attention(q, k, v):
    """Return attention of four heads; each input has the shape (batch, tokens, width)."""
    q, k, v = (rearrange(x, "b n (h d) -> b h n d", h=4) for x in (q, k, v))
    weights = einsum(q, k, "b h i d, b h j d -> b h i j").softmax(-1)
    return rearrange(einsum(weights, v, "b h i j, b h j d -> b h i d"), "b h n d -> b n (h d)")
