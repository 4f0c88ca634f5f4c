"""Pass a complex64 to compiled code as one word of 64 bits.

Inductor generates no code for complex numbers. Real and imaginary part as a last axis of two mean
loads with a stride of two: they stop Inductor from vectorising its loops, and cost more than the
arithmetic between them. A word is one contiguous load, which compiled code splits in registers.
"""

from __future__ import annotations

import torch


def fits_words(field: torch.Tensor) -> bool:
    """Return whether a tensor may be passed as words: complex64, and no gradient wanted.

    A view of bits has no gradient.
    """
    wants_gradient = field.requires_grad and torch.is_grad_enabled()
    return field.dtype == torch.complex64 and not wants_gradient


def halves_of_words(words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the bits of the real and imaginary part as int32, in the shape of ``words``.

    Args:
        words: A contiguous complex64 viewed as float64, any shape.
    """
    bits = words.view(torch.int64)
    return bits.to(torch.int32), (bits >> 32).to(torch.int32)


def planes_of_words(words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the real and imaginary part as float32, in the shape of ``words``.

    Args:
        words: A contiguous complex64 viewed as float64, any shape.
    """
    lower, upper = halves_of_words(words)
    return lower.view(torch.float32), upper.view(torch.float32)


def words_of_planes(re: torch.Tensor, im: torch.Tensor) -> torch.Tensor:
    """Return words from real and imaginary part; the inverse of ``planes_of_words``.

    Args:
        re: Real part, float32, any shape.
        im: Imaginary part, shape of ``re``.
    """
    lower = re.view(torch.int32).to(torch.int64) & 0xFFFFFFFF
    upper = im.view(torch.int32).to(torch.int64) << 32
    return (lower | upper).view(torch.float64)
