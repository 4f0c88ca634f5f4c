"""Moves of causal triangulations in plain Python, one lattice after the other, with lists.

Each move is a few assignments, independent of the size of the lattice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    from collections.abc import Callable, Sequence

    import torch

    Rows = list[list[int]]


def make_sweep(
    lattices: torch.Tensor, words: torch.Tensor, slices: torch.Tensor
) -> Callable[[], tuple[Rows, Rows]]:
    """Return the sweep followed by the workload's observables.

    Args:
        lattices: Lattices, shape ``[n_lattices, 12, capacity]``, int32.
        words: Random words, shape ``[n_moves, n_lattices, 3]``, int32.
        slices: Numbers of the slices.
    """
    start = [_lists(rows, slices.shape[0]) for rows in lattices.tolist()]
    moves_of = words.transpose(0, 1).tolist()

    def call() -> tuple[Rows, Rows]:
        profiles, candidates = [], []
        for lists, moves in zip(start, moves_of, strict=True):
            universe = Triangulations([values.copy() for values in lists])
            universe.run(moves)
            profiles.append(universe.sizes)
            candidates.append([universe.n_vertices, universe.n_four, universe.n_pairs])
        return profiles, candidates

    return call


class Triangulations:
    """One triangulation, linked as in ``ivhl.ops.cdt``.

    Args:
        lists: Lists from ``_lists``; moves change them.
    """

    __slots__ = (
        "left",
        "n_four",
        "n_pairs",
        "n_vertices",
        "pair_places",
        "pairs",
        "right",
        "sizes",
        "slices",
        "vertex_places",
        "vertices",
    )

    def __init__(self, lists: Rows) -> None:
        self.right, self.left, self.pairs, self.pair_places = lists[:4]
        self.vertices, self.vertex_places, self.slices, self.sizes = lists[4:8]
        self.n_vertices, self.n_four, self.n_pairs = lists[8]

    def run(self, moves: Sequence[Sequence[int]]) -> None:
        """Try one move after the other; each is three words: kind, pick and chance."""
        for kind_word, pick, chance in moves:
            kind = kind_word >> (WORD_BITS - 2)
            if kind >= FLIP:
                self.flip(pick, chance)
            elif kind == ADD:
                self.add(pick, chance)
            elif kind == DELETE:
                self.delete(pick, chance)

    def add(self, pick: int, chance: int) -> None:
        """Split an edge if the move is accepted. At the critical point exp(-2 lambda) is 1/4."""
        n_vertices = self.n_vertices
        full = n_vertices == len(self.vertices)
        if full or 4 * chance * (self.n_four + 1) >= n_vertices << WORD_BITS:
            return
        edge = self.vertices[pick * n_vertices >> WORD_BITS]
        new = self.vertices[n_vertices]
        right, left = self.right, self.left
        for side in (0, 1):
            a, between = 2 * edge + side, 2 * new + side
            x = left[a]
            right[x], left[between] = between, x
            right[between], left[a] = a, between
        self.slices[new] = self.slices[edge]
        self.sizes[self.slices[new]] += 1
        _swap(self.vertices, self.vertex_places, new, self.n_four)
        self.n_vertices += 1
        self.n_four += 1

    def delete(self, pick: int, chance: int) -> None:
        """Remove a vertex of order 4 if the move is accepted."""
        n_four = self.n_four
        if n_four == 0 or chance * (self.n_vertices - 1) >= n_four << (WORD_BITS + 2):
            return
        old = self.vertices[pick * n_four >> WORD_BITS]
        if self.sizes[self.slices[old]] <= MIN_SLICE_SIZE:
            return
        right, left = self.right, self.left
        for a in (2 * old, 2 * old + 1):
            x, b = left[a], right[a]
            right[x], left[b] = b, x
        self.sizes[self.slices[old]] -= 1
        self.n_four -= 1
        self.n_vertices -= 1
        _swap(self.vertices, self.vertex_places, old, self.n_four)
        _swap(self.vertices, self.vertex_places, old, self.n_vertices)

    def flip(self, pick: int, chance: int) -> None:
        """Swap two neighbours of different kinds if the move is accepted."""
        right, left = self.right, self.left
        a = self.pairs[pick * self.n_pairs >> WORD_BITS]
        x, b = left[a], right[a]
        y = right[b]
        x_starts, other_starts = (x ^ a) & 1 == 0, (b ^ y) & 1 == 0
        after = self.n_pairs + 2 * (x_starts + other_starts) - 2
        if chance * after >= self.n_pairs << WORD_BITS:
            return
        right[x], right[b], right[a] = b, a, y
        left[b], left[a], left[y] = x, b, a
        self.toggle(x, starts=x_starts)
        self.toggle(b if other_starts else a, starts=other_starts)

    def toggle(self, triangle: int, *, starts: bool) -> None:
        """Add or remove the pair that a triangle starts, and update the order of its vertex."""
        twin_is_apart = self.pair_places[triangle ^ 1] >= self.n_pairs
        if starts:
            _swap(self.pairs, self.pair_places, triangle, self.n_pairs)
            self.n_pairs += 1
        else:
            self.n_pairs -= 1
            _swap(self.pairs, self.pair_places, triangle, self.n_pairs)
        if not twin_is_apart:
            return
        if starts:
            self.n_four -= 1
            _swap(self.vertices, self.vertex_places, triangle >> 1, self.n_four)
        else:
            _swap(self.vertices, self.vertex_places, triangle >> 1, self.n_four)
            self.n_four += 1


def _lists(rows: Rows, n_slices: int) -> Rows:
    def two(row: int) -> list[int]:
        return rows[row] + rows[row + 1]

    counts = rows[COUNTS]
    return [
        *(two(RIGHT), two(LEFT), two(PAIRS), two(PAIR_PLACES)),
        *(rows[VERTICES], rows[VERTEX_PLACES], rows[SLICES]),
        *(counts[N_KINDS : N_KINDS + n_slices], counts[:N_KINDS]),
    ]


def _swap(labels: list[int], places: list[int], label: int, end: int) -> None:
    """Swap a label with the label at position ``end``."""
    start = places[label]
    displaced = labels[end]
    labels[start], labels[end] = displaced, label
    places[displaced], places[label] = start, end
