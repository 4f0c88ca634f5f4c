"""Moves of causal triangulations with NumPy, in all lattices at once, one kind of move at a time.

Selects the lattices that try a kind of move, then those that accept it, and makes the move in these
with one write after another. The other lattices are not written. The lists are those of
``ivhl.ops.cdt``, each as an array with space for all lattices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ivhl.ops.cdt import (
    ADD,
    COUNTS,
    DELETE,
    FLIP,
    LEFT,
    MIN_SLICE_SIZE,
    N_KINDS,
    PAIR_PLACES,
    PAIRS,
    RIGHT,
    SLICES,
    VERTEX_PLACES,
    VERTICES,
    WORD_BITS,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    Array = Any  # numpy.ndarray; the tool's type check has no numpy

# At the critical point exp(-2 lambda) is 1/4; in units of 2^-31.
WEIGHT_OF_ADD = 1 << (WORD_BITS - 2)
WEIGHT_OF_DELETE = 1 << (WORD_BITS + 2)
WEIGHT_OF_FLIP = 1 << WORD_BITS


def make_sweep(
    lattices: torch.Tensor, words: torch.Tensor, slices: torch.Tensor
) -> Callable[[], tuple[Array, Array]]:
    """Return the sweep followed by the workload's observables.

    Args:
        lattices: Lattices, shape ``[n_lattices, 12, capacity]``, int32.
        words: Random words, shape ``[n_moves, n_lattices, 3]``, int32.
        slices: Numbers of the slices.
    """
    start = Strips(lattices.numpy(), slices.shape[0])
    # int64, the type of an index, and one row per word, so that moves need no conversion.
    rows = np.ascontiguousarray(words.numpy().transpose(0, 2, 1).astype(np.int64))

    def call() -> tuple[Array, Array]:
        strips = start.copy()
        kinds = np.minimum(rows[:, 0] >> (WORD_BITS - 2), FLIP)
        for kind, (_, pick, chance) in zip(kinds, rows, strict=True):
            for number, move in ((ADD, strips.add), (DELETE, strips.delete), (FLIP, strips.flip)):
                who = np.flatnonzero(kind == number)
                if who.size:
                    move(who, pick[who], chance[who])
        return strips.sizes.reshape(-1, strips.n_slices), strips.counts.T

    return call


class Strips:
    """The lists of all lattices, concatenated in flat arrays.

    Args:
        lattices: Lattices, shape ``[n_lattices, 12, capacity]``, int32.
        n_slices: Slices in periodic time.
    """

    def __init__(self, lattices: Array, n_slices: int) -> None:
        def flat(row: int, n_rows: int) -> Array:
            return lattices[:, row : row + n_rows].astype(np.int64).ravel()

        self.capacity, self.n_slices = lattices.shape[2], n_slices
        self.right, self.left = flat(RIGHT, 2), flat(LEFT, 2)
        self.pairs, self.pair_places = flat(PAIRS, 2), flat(PAIR_PLACES, 2)
        self.vertices, self.vertex_places = flat(VERTICES, 1), flat(VERTEX_PLACES, 1)
        self.slices = flat(SLICES, 1)
        counts = lattices[:, COUNTS].astype(np.int64)
        self.counts = np.ascontiguousarray(counts[:, :N_KINDS].T)  # a row per kind
        self.sizes = np.ascontiguousarray(counts[:, N_KINDS : N_KINDS + n_slices]).ravel()

    def copy(self) -> Strips:
        """Return a copy of all lists."""
        new = object.__new__(Strips)
        for name, value in vars(self).items():
            setattr(new, name, value.copy() if isinstance(value, np.ndarray) else value)
        return new

    def add(self, who: Array, pick: Array, chance: Array) -> None:
        """Split an edge of each lattice in ``who`` that accepts the move."""
        n_vertices, n_four = self.counts[0][who], self.counts[1][who]
        accepted = (n_vertices < self.capacity) & (
            chance * (n_four + 1) < n_vertices * WEIGHT_OF_ADD
        )
        who, n_vertices, n_four = who[accepted], n_vertices[accepted], n_four[accepted]
        if not who.size:
            return
        edges, triangles = who * self.capacity, who * (2 * self.capacity)
        edge = self.vertices[edges + (pick[accepted] * n_vertices >> WORD_BITS)]
        new = self.vertices[edges + n_vertices]
        for side in (0, 1):
            a, between = 2 * edge + side, 2 * new + side
            x = self.left[triangles + a]
            self._link(triangles, x, between)
            self._link(triangles, between, a)
        place = self.slices[edges + edge]
        self.slices[edges + new] = place
        _swap(self.vertices, self.vertex_places, edges, new, n_four)
        self.counts[0][who] += 1
        self.counts[1][who] += 1
        self.sizes[who * self.n_slices + place] += 1

    def delete(self, who: Array, pick: Array, chance: Array) -> None:
        """Remove a vertex of order 4 from each lattice in ``who`` that accepts the move."""
        n_vertices, n_four = self.counts[0][who], self.counts[1][who]
        edges = who * self.capacity
        old = self.vertices[edges + (pick * n_four >> WORD_BITS)]
        place = who * self.n_slices + self.slices[edges + old]
        accepted = (
            (n_four > 0)
            & (self.sizes[place] > MIN_SLICE_SIZE)
            & (chance * (n_vertices - 1) < n_four * WEIGHT_OF_DELETE)
        )
        who, edges, old, place = who[accepted], edges[accepted], old[accepted], place[accepted]
        if not who.size:
            return
        triangles = 2 * edges
        for side in (0, 1):
            a = triangles + (2 * old + side)
            self._link(triangles, self.left[a], self.right[a])
        _swap(self.vertices, self.vertex_places, edges, old, n_four[accepted] - 1)
        _swap(self.vertices, self.vertex_places, edges, old, n_vertices[accepted] - 1)
        self.counts[0][who] -= 1
        self.counts[1][who] -= 1
        self.sizes[place] -= 1

    def flip(self, who: Array, pick: Array, chance: Array) -> None:
        """Swap two neighbours in each lattice in ``who`` that accepts the move."""
        n_pairs = self.counts[2][who]
        triangles = who * (2 * self.capacity)
        a = self.pairs[triangles + (pick * n_pairs >> WORD_BITS)]
        x, b = self.left[triangles + a], self.right[triangles + a]
        y = self.right[triangles + b]
        change_of_x, change_of_other = 1 - 2 * ((x ^ a) & 1), 1 - 2 * ((b ^ y) & 1)
        after = n_pairs + change_of_x + change_of_other
        accepted = np.flatnonzero(chance * after < n_pairs * WEIGHT_OF_FLIP)
        if not accepted.size:
            return
        who, triangles, x, a, b, y, change_of_x, change_of_other = (
            values[accepted]
            for values in (who, triangles, x, a, b, y, change_of_x, change_of_other)
        )
        for near, far in ((x, b), (b, a), (a, y)):
            self._link(triangles, near, far)
        self._toggle(who, triangles, x, change_of_x)
        self._toggle(who, triangles, np.where(change_of_other > 0, b, a), change_of_other)

    def _link(self, triangles: Array, near: Array, far: Array) -> None:
        self.right[triangles + near] = far
        self.left[triangles + far] = near

    def _toggle(self, who: Array, triangles: Array, triangle: Array, change: Array) -> None:
        """Add (change 1) or remove (-1) the pair that a triangle starts; update its vertex."""
        starts = change > 0
        n_pairs = self.counts[2][who]
        _swap(self.pairs, self.pair_places, triangles, triangle, n_pairs - (change < 0))
        twin_is_apart = self.pair_places[triangles + (triangle ^ 1)] >= n_pairs
        self.counts[2][who] = n_pairs + change
        matters = np.flatnonzero(twin_is_apart)
        if matters.size:
            who, starts = who[matters], starts[matters]
            n_four = self.counts[1][who]
            vertex = triangle[matters] >> 1
            _swap(self.vertices, self.vertex_places, who * self.capacity, vertex, n_four - starts)
            self.counts[1][who] = n_four - change[matters]


def _swap(labels: Array, places: Array, base: Array, label: Array, end: Array) -> None:
    """Swap each label with the label at position ``end``."""
    start, end = base + places[base + label], base + end
    displaced = labels[end]
    labels[start], labels[end] = displaced, label
    places[base + displaced], places[base + label] = start - base, end - base
