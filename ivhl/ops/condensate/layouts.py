"""Layouts of a condensate: complex outside, real numbers on three axes in compiled code.

Compiled functions take a ``complex64`` as words (``ivhl.ops.words``). Where a gradient is wanted,
and in ``complex128``, they take real and imaginary part as a last axis of two: pairs. From either
they make planes, a tensor for the real and one for the imaginary part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from ivhl.ops.words import fits_words, halves_of_words

if TYPE_CHECKING:
    from collections.abc import Callable

Planes = tuple[torch.Tensor, torch.Tensor]

# Of the grid in compiled code, and the most that a condensate may have.
MAX_AXES: Final = 3


def as_cube(phi: torch.Tensor) -> torch.Tensor:
    """Return a condensate of one to three axes as a contiguous one of three, ``[a, b, c]``.

    On an added axis of one point, the point is its own neighbour: the Laplacian is 0 along it.
    """
    shape = (1,) * (MAX_AXES - phi.ndim) + tuple(phi.shape)
    return phi.reshape(shape).resolve_conj().contiguous()


def on_cube(
    phi: torch.Tensor,
    by_words: Callable[..., torch.Tensor],
    by_pairs: Callable[..., torch.Tensor],
    *arguments: torch.Tensor,
) -> torch.Tensor:
    """Return a condensate after a function in real arithmetic.

    Args:
        phi: Condensate, one to three axes, complex.
        by_words: Function of words ``[a, b, c]`` that returns words.
        by_pairs: The same of pairs ``[a, b, c, 2]``, where words will not do.
        *arguments: Further arguments of either.

    Returns:
        Condensate, shape and dtype of ``phi``.
    """
    cube = as_cube(phi)
    if fits_words(cube):
        result = by_words(cube.view(torch.float64), *arguments)
    else:
        result = by_pairs(torch.view_as_real(cube), *arguments)
    return as_complex(result).reshape(phi.shape)


def as_complex(result: torch.Tensor) -> torch.Tensor:
    """Return words ``[a, b, c]`` or pairs ``[a, b, c, 2]`` as a complex tensor ``[a, b, c]``."""
    if result.ndim == MAX_AXES:
        return result.view(torch.complex64)
    return torch.view_as_complex(result)


def rings_of_words(words: torch.Tensor) -> Planes:
    """Return real and imaginary part of words, each as ``ring_of`` does.

    The halo comes first: 2.6.0 does not compile a concatenation of tensors viewed as another dtype.
    """
    lower, upper = halves_of_words(words)
    return ring_of(lower).view(torch.float32), ring_of(upper).view(torch.float32)


def planes_of_pairs(pairs: torch.Tensor) -> Planes:
    """Return the real and imaginary part of pairs, views of shape ``[a, b, c]``."""
    return pairs[..., 0], pairs[..., 1]


def pairs_of_planes(re: torch.Tensor, im: torch.Tensor) -> torch.Tensor:
    """Return pairs from real and imaginary part; the inverse of ``planes_of_pairs``."""
    return torch.stack((re, im), dim=-1)


def ring_of(x: torch.Tensor) -> torch.Tensor:
    """Return a plane with a halo of one point at both ends of the last axis: ``[a, b, c + 2]``.

    With indices modulo n, Inductor does not vectorise the innermost loop; with a halo it does.
    """
    return torch.cat((x[..., -1:], x, x[..., :1]), dim=-1)


def total_of(x: torch.Tensor) -> torch.Tensor:
    """Return the sum of a plane, axis by axis.

    Short sums lose fewer digits, and torch 2.15 has different, slower code for sums over more than
    4096 numbers. The rows of a slab come first: they add without a shuffle.
    """
    return x.sum(dim=1).sum(dim=0).sum(dim=0)
