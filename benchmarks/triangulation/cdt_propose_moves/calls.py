"""Inputs of the workload of proposed moves, its calls, and its reference on strips."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.triangulation.cdt_sweep import calls as cdt_sweep_calls
from benchmarks.triangulation.cdt_sweep.reference import (
    FEWEST_VERTICES_OF_A_SLICE,
    WORD,
    Universe,
    read_universe,
)
from ivhl.ops.cdt import (
    CRITICAL_LAMBDA,
    cdt_candidates,
    cdt_sweep_masked,
    cdt_volume_profile,
    make_cdt_propose_moves,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.triangulation.cdt_sweep import Size

    Propose = Callable[..., tuple[torch.Tensor, torch.Tensor, torch.Tensor]]


def make_inputs(size: Size, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Draw moves of lattices that have gone through some moves before.

    Returns:
        Lattices ``[n_lattices, 12, capacity]``, int32; kinds and choices ``[n_lattices]``, and the
        numbers of the slices, int64. One choice in nine or so is too large for its kind.
    """
    regular, words, slices = cdt_sweep_calls.make_inputs(size, generator)
    lattices = cdt_sweep_masked(regular, words)
    kinds = torch.randint(3, (size.n_lattices,), generator=generator)
    n_candidates = torch.take_along_dim(cdt_candidates(lattices), kinds[:, None], dim=1)[:, 0]
    part = torch.rand(size.n_lattices, dtype=torch.float64, generator=generator)
    choices = (part * 1.125 * n_candidates).long().clamp(max=n_candidates)
    return lattices, kinds, choices, slices


def propose_moves(
    lattices: torch.Tensor, kinds: torch.Tensor, choices: torch.Tensor, slices: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the probabilities of the moves, and what can be counted after them.

    Returns:
        Probabilities ``[n_lattices]``, vertices per slice ``[n_lattices, n_slices]``, and vertices,
        vertices of order 4 and pairs that can be flipped ``[n_lattices, 3]``; float64.
    """
    return make_propose_moves(lambda function: function)(lattices, kinds, choices, slices)


def make_propose_moves(compiler: Callable[..., Any]) -> Propose:
    """Return ``propose_moves`` with the moves compiled by ``compiler``."""
    propose = make_cdt_propose_moves(compiler)

    def call(
        lattices: torch.Tensor, kinds: torch.Tensor, choices: torch.Tensor, slices: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        proposed, acceptance = propose(lattices, kinds, choices)
        profile = cdt_volume_profile(proposed, n_slices=slices.shape[0])
        return acceptance, profile.double(), cdt_candidates(proposed).double()

    return call


def reference(
    lattices: torch.Tensor, kinds: torch.Tensor, choices: torch.Tensor, slices: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the same of strips that are lists of triangles, one lattice after the other."""
    acceptances, profiles, candidates = [], [], []
    for lattice, kind, choice in zip(lattices, kinds.tolist(), choices.tolist(), strict=True):
        universe = read_universe(lattice.tolist(), slices.shape[0])
        acceptances.append(_make_move(universe, kind, choice))
        profiles.append([universe.slice_size(time) for time in range(slices.shape[0])])
        candidates.append([universe.n_vertices, universe.n_four, universe.n_pairs])
    made = (acceptances, profiles, candidates)
    acceptance, profile, counts = (
        torch.tensor(numbers, dtype=torch.float64, device=lattices.device) for numbers in made
    )
    return acceptance, profile, counts


def _make_move(universe: Universe, kind: int, choice: int) -> float:
    """Make a move if it is possible, and return its probability by counting before and after."""
    before = [universe.n_vertices, universe.n_four, universe.n_pairs]
    moves = (universe.try_to_add, universe.try_to_delete, universe.try_to_flip)
    n_candidates = before[kind]
    if not 0 <= choice < n_candidates:
        return 0.0
    if kind == 1 and _is_smallest(universe, choice):
        return 0.0
    # The least word that picks this candidate, and a chance that accepts whatever is possible.
    moves[kind](-(-choice * WORD // n_candidates), 0)
    after = [universe.n_vertices, universe.n_four, universe.n_pairs]
    if kind == 0 and after == before:
        return 0.0  # no capacity left
    # Detailed balance: candidates here over candidates of the reverse move, and the weight of the
    # triangles that come.
    way_back = after[(1, 0, 2)[kind]]
    weight = math.exp(-2.0 * CRITICAL_LAMBDA * (after[0] - before[0]))
    return min(1.0, n_candidates / way_back * weight)


def _is_smallest(universe: Universe, choice: int) -> bool:
    time = universe.times[universe.vertices[choice]]
    return universe.slice_size(time) == FEWEST_VERTICES_OF_A_SLICE
