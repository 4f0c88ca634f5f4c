"""Inputs of the workload of causal triangulations, and its calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ivhl.ops.cdt import (
    cdt_candidates,
    cdt_sweep_masked,
    cdt_volume_profile,
    draw_cdt_words,
    make_cdt_lattices,
    make_cdt_sweep,
    make_cdt_sweep_masked,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.triangulation.cdt_sweep import Size

    Observe = Callable[..., tuple[torch.Tensor, torch.Tensor]]


def make_inputs(size: Size, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Draw the random words; the lattices are regular.

    Returns:
        Lattices ``[n_lattices, 12, capacity]`` and words ``[n_moves, n_lattices, 3]``, int32, and
        the numbers of the slices, int64.
    """
    lattices = make_cdt_lattices(
        size.n_lattices,
        n_slices=size.n_slices,
        slice_size=size.slice_size,
        capacity=size.capacity,
    )
    words = draw_cdt_words(size.n_moves, size.n_lattices, generator=generator)
    return lattices, words, torch.arange(size.n_slices)


def masked(
    lattices: torch.Tensor, words: torch.Tensor, slices: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return volume profile and numbers of candidates after all moves.

    Returns:
        Vertices per slice ``[n_lattices, n_slices]``, and vertices, vertices of order 4 and pairs
        that can be flipped ``[n_lattices, 3]``; integers in float64.
    """
    return _observe(cdt_sweep_masked(lattices, words), slices)


def make_masked(compiler: Callable[..., Any]) -> Observe:
    """Return ``masked`` with its moves compiled by ``compiler``."""
    sweep = make_cdt_sweep_masked(compiler)
    return lambda lattices, words, slices: _observe(sweep(lattices, words), slices)


def make_gathered(compiler: Callable[..., Any]) -> Observe:
    """Return the same with all reads of a move before all writes, compiled by ``compiler``."""
    sweep = make_cdt_sweep(compiler)
    return lambda lattices, words, slices: _observe(sweep(lattices, words), slices)


def _observe(lattices: torch.Tensor, slices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    profile = cdt_volume_profile(lattices, n_slices=slices.shape[0])
    return profile.double(), cdt_candidates(lattices).double()
