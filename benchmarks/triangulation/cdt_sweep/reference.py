"""The same moves, one lattice after the other, on strips that are lists of triangles.

Nothing is linked here: a strip is the list of its triangles from left to right, and whether a pair
can be flipped or a vertex has order 4 is seen by looking at the strips. Only the order in which the
candidates are counted, which is part of what a move means, is kept by the same rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch

WORD = 2**31
FEWEST_VERTICES_OF_A_SLICE = 3


def reference(
    lattices: torch.Tensor, words: torch.Tensor, slices: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return volume profile and numbers of candidates after all moves, float64.

    The cosmological constant is critical: adding a vertex has the weight 1/4, deleting one 4.
    """
    n_slices = slices.shape[0]
    profiles, candidates = [], []
    for lattice, moves in zip(lattices, words.unbind(dim=1), strict=True):
        universe = read_universe(lattice.tolist(), n_slices)
        for kind_word, pick, chance in moves.tolist():
            kind = kind_word * 4 // WORD
            if kind == 0:
                universe.try_to_add(pick, chance)
            elif kind == 1:
                universe.try_to_delete(pick, chance)
            else:
                universe.try_to_flip(pick, chance)
        profiles.append([universe.slice_size(time) for time in range(n_slices)])
        candidates.append([universe.n_vertices, universe.n_four, universe.n_pairs])
    return (
        torch.tensor(profiles, dtype=torch.float64, device=lattices.device),
        torch.tensor(candidates, dtype=torch.float64, device=lattices.device),
    )


@dataclass
class Universe:
    """One triangulation: triangles ``2 i`` (up) and ``2 i + 1`` (down) share the edge ``i``.

    Attributes:
        strips: Triangles between each slice and the next, from left to right, periodic.
        times: Slice of each edge, by label.
        vertices: Labels of edges, equally of vertices at their right ends: of order 4, others,
            unused ones.
        pairs: Triangles: those whose right neighbour is of the other kind, and the rest.
        n_vertices: How many labels of ``vertices`` are in use.
        n_four: How many of them have order 4.
        n_pairs: How many of ``pairs`` can be flipped.
    """

    strips: list[list[int]]
    times: list[int]
    vertices: list[int]
    pairs: list[int]
    n_vertices: int
    n_four: int
    n_pairs: int

    def slice_size(self, time: int) -> int:
        """Count the edges of a slice: the up triangles that stand on it."""
        return sum(triangle % 2 == 0 for triangle in self.strips[time])

    def strip_of(self, triangle: int) -> list[int]:
        """Return the strip in which a triangle is."""
        return self.strips[self.times[triangle // 2] - triangle % 2]

    def starts_pair(self, triangle: int) -> bool:
        """Say whether the right neighbour is of the other kind."""
        strip = self.strip_of(triangle)
        right = strip[(strip.index(triangle) + 1) % len(strip)]
        return (right - triangle) % 2 == 1

    def has_order_four(self, vertex: int) -> bool:
        """Say whether just one link goes up from a vertex, and one down."""
        return not self.starts_pair(2 * vertex) and not self.starts_pair(2 * vertex + 1)

    def try_to_add(self, pick: int, chance: int) -> None:
        """Split an edge; the new one lies to its left."""
        edge = self.vertices[pick * self.n_vertices // WORD]
        full = self.n_vertices == len(self.vertices)
        if full or 4 * chance * (self.n_four + 1) >= WORD * self.n_vertices:
            return
        new = self.vertices[self.n_vertices]
        self.times[new] = self.times[edge]
        for side in (0, 1):
            strip = self.strip_of(2 * edge + side)
            strip.insert(strip.index(2 * edge + side), 2 * new + side)
        _exchange(self.vertices, self.n_vertices, self.n_four)
        self.n_vertices += 1
        self.n_four += 1

    def try_to_delete(self, pick: int, chance: int) -> None:
        """Remove a vertex of order 4 and the edge to its left."""
        if self.n_four == 0:
            return
        place = pick * self.n_four // WORD
        old = self.vertices[place]
        small = self.slice_size(self.times[old]) == FEWEST_VERTICES_OF_A_SLICE
        if small or chance * (self.n_vertices - 1) >= 4 * WORD * self.n_four:
            return
        for side in (0, 1):
            self.strip_of(2 * old + side).remove(2 * old + side)
        self.n_four -= 1
        _exchange(self.vertices, place, self.n_four)
        self.n_vertices -= 1
        _exchange(self.vertices, self.n_four, self.n_vertices)

    def try_to_flip(self, pick: int, chance: int) -> None:
        """Let two neighbours of different kinds change places."""
        triangle = self.pairs[pick * self.n_pairs // WORD]
        strip = self.strip_of(triangle)
        place = strip.index(triangle)
        run = [(place + shift) % len(strip) for shift in (-1, 0, 1, 2)]
        left, first, second, right = (strip[i] for i in run)
        before = _count_pairs([left, first, second, right])
        after = _count_pairs([left, second, first, right])
        if chance * (self.n_pairs + after - before) >= WORD * self.n_pairs:
            return
        strip[run[1]], strip[run[2]] = second, first
        # What stands in the list so far is compared with the strip, from left to right.
        listed = set(self.pairs[: self.n_pairs])
        for changed in (left, first, second):
            if self.starts_pair(changed) != (changed in listed):
                self.update_pair(changed)
                self.update_vertex(changed // 2)

    def update_pair(self, triangle: int) -> None:
        """Move a triangle across the border of the list of pairs."""
        place = self.pairs.index(triangle)
        if place < self.n_pairs:
            self.n_pairs -= 1
            _exchange(self.pairs, place, self.n_pairs)
        else:
            _exchange(self.pairs, place, self.n_pairs)
            self.n_pairs += 1

    def update_vertex(self, vertex: int) -> None:
        """Move a vertex across the border of the list of those of order 4, if it has to."""
        place = self.vertices.index(vertex)
        if self.has_order_four(vertex) == (place < self.n_four):
            return
        if place < self.n_four:
            self.n_four -= 1
            _exchange(self.vertices, place, self.n_four)
        else:
            _exchange(self.vertices, place, self.n_four)
            self.n_four += 1


def read_universe(rows: list[list[int]], n_slices: int) -> Universe:
    """Return a lattice as strips, found by going from each triangle to its right neighbour.

    Args:
        rows: The 12 rows of a lattice.
        n_slices: Its number of slices.
    """
    right = rows[0] + rows[1]
    vertices, times, counts = rows[8], rows[10], rows[11]
    strips: list[list[int]] = [[] for _ in range(n_slices)]
    for edge in vertices[: counts[0]]:
        strip = strips[times[edge]]
        if not strip:
            strip.append(2 * edge)
            while right[strip[-1]] != strip[0]:
                strip.append(right[strip[-1]])
    return Universe(
        strips, list(times), list(vertices), rows[4] + rows[5], counts[0], counts[1], counts[2]
    )


def _count_pairs(run: list[int]) -> int:
    return sum((b - a) % 2 for a, b in pairwise(run))


def _exchange(labels: list[int], place: int, other: int) -> None:
    labels[place], labels[other] = labels[other], labels[place]
