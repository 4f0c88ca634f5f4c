"""Monte Carlo moves of causal dynamical triangulations (CDT) in 1+1 dimensions, many at once.

A triangulation of the torus is a stack of periodic slices, circles of at least 3 vertices. Between
one slice and the next lies a strip of triangles: an up triangle has its spatial edge in the lower
slice, a down triangle in the upper one. The cyclic order of its triangles defines a strip. Every
spatial edge ``i`` belongs to exactly two triangles: the up triangle ``2 i`` in the strip above and
the down triangle ``2 i + 1`` in the strip below. Vertex ``i`` is the right end of edge ``i``.
For ``N0`` vertices this gives ``N1 = 3 N0`` edges and ``N2 = 2 N0`` triangles. The action is
``S = lambda N2``, since by the Gauss-Bonnet theorem the curvature term is constant; its critical
point is ``lambda = ln 2``.

Two facts make the moves local. A triangle and its right neighbour are a pair that can be flipped if
one is up and the other down. Vertex ``i`` has order 4 if neither of its two triangles starts such a
pair. Hence adding or deleting a vertex of order 4 does not change which pairs can be flipped.

The ensemble is that of Ambjorn and Loll: all orders of triangles are allowed, including those in
which two links around the circle join the same two vertices, and each has the weight
``exp(-S) / |Aut|``. A slice has 3 vertices or more, so that it is a simplicial circle. There are at
least 2 slices; with one, both triangles of an edge would lie in one strip. A fixed capacity bounds
``N0``: moves beyond it are rejected, which keeps detailed balance.

Sources: Ambjorn and Loll, Nucl. Phys. B 536, 407 (1998); Brunekreef, Gorlich and Loll,
arXiv:2310.16744, section 2.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from ivhl.compile import get_compiled

if TYPE_CHECKING:
    from collections.abc import Callable

MIN_SLICE_SIZE: Final = 3
MIN_SLICES: Final = 2
CRITICAL_LAMBDA: Final = math.log(2.0)
MAX_CAPACITY: Final = 1 << 15  # products of two counts and a random word fit in 63 bits
WORD_BITS: Final = 31  # random words are integers in [0, 2^31)

ADD: Final = 0
DELETE: Final = 1
FLIP: Final = 2
N_KINDS: Final = 3

# A lattice is ROWS rows of ``capacity`` numbers; a table with one entry per triangle takes two rows.
ROWS: Final = 12
RIGHT: Final = 0  # right neighbour of each triangle in its strip
LEFT: Final = 2  # left neighbour
PAIRS: Final = 4  # all triangles; first those that start a pair that can be flipped
PAIR_PLACES: Final = 6  # position of each triangle in PAIRS
VERTICES: Final = 8  # all vertices; those of order 4 first, then the others, then unused labels
VERTEX_PLACES: Final = 9  # position of each vertex in VERTICES
SLICES: Final = 10  # slice of each vertex
COUNTS: Final = 11  # N0, N0 of order 4, number of pairs that can be flipped, then slice sizes


def make_cdt_lattices(
    n_lattices: int,
    *,
    n_slices: int,
    slice_size: int,
    capacity: int,
    device: torch.device | str = "cpu",
) -> torch.Tensor:
    """Return lattices with equal slices, in which up and down triangles alternate.

    Args:
        n_lattices: Number of lattices.
        n_slices: Slices in periodic time, at least 2.
        slice_size: Vertices in each slice, at least 3.
        capacity: Largest number of vertices that a lattice can have, at most 32768.
        device: Device of the result.

    Returns:
        Lattices, shape ``[n_lattices, 12, capacity]``, int32; rows as named in this module.

    Raises:
        ValueError: If a number is out of range.
    """
    if n_lattices < 0:
        raise ValueError(f"n_lattices must be at least 0, got {n_lattices}")
    if n_slices < MIN_SLICES:
        raise ValueError(f"n_slices must be at least {MIN_SLICES}, got {n_slices}")
    if slice_size < MIN_SLICE_SIZE:
        raise ValueError(f"slice_size must be at least {MIN_SLICE_SIZE}, got {slice_size}")
    n_vertices = n_slices * slice_size
    if not n_vertices <= capacity <= MAX_CAPACITY:
        raise ValueError(
            f"capacity must be between n_slices * slice_size = {n_vertices} and {MAX_CAPACITY}, "
            f"got {capacity}"
        )
    edge = torch.arange(n_vertices)
    following = torch.where((edge + 1) % slice_size == 0, edge + 1 - slice_size, edge + 1)
    up, down_above = 2 * edge, 2 * ((edge + slice_size) % n_vertices) + 1
    lattice = torch.zeros(ROWS, capacity, dtype=torch.int32)
    right, left = lattice[RIGHT:LEFT].view(-1), lattice[LEFT:PAIRS].view(-1)
    for near, far in ((up, down_above), (down_above, up[following])):
        right[near] = far.int()
        left[far] = near.int()
    for row in (PAIRS, PAIR_PLACES):
        lattice[row : row + 2] = torch.arange(2 * capacity).view(2, capacity)
    lattice[VERTICES] = lattice[VERTEX_PLACES] = torch.arange(capacity)
    lattice[SLICES, :n_vertices] = (edge // slice_size).int()
    lattice[COUNTS, 0] = n_vertices
    lattice[COUNTS, 2] = 2 * n_vertices
    lattice[COUNTS, N_KINDS : N_KINDS + n_slices] = slice_size
    return lattice.to(device).repeat(n_lattices, 1, 1)


def draw_cdt_words(
    n_moves: int,
    n_lattices: int,
    *,
    generator: torch.Generator | None = None,
    device: torch.device | str = "cpu",
) -> torch.Tensor:
    """Return the random numbers of ``cdt_sweep``.

    They are integers, so that every choice and every acceptance is exact and the same on every
    device and in every dtype.

    Args:
        n_moves: Attempted moves per lattice.
        n_lattices: Number of lattices.
        generator: Source of randomness, on ``device``.
        device: Device of the result.

    Returns:
        Words, shape ``[n_moves, n_lattices, 3]``, int32, uniform in ``[0, 2^31)``.

    Raises:
        ValueError: If a number is below 0.
    """
    for name, value in (("n_moves", n_moves), ("n_lattices", n_lattices)):
        if value < 0:
            raise ValueError(f"{name} must be at least 0, got {value}")
    shape = (n_moves, n_lattices, 3)
    words = torch.randint(1 << WORD_BITS, shape, generator=generator, device=device)
    return words.to(torch.int32)


def cdt_candidates(lattices: torch.Tensor) -> torch.Tensor:
    """Return the number of candidates for each kind of move.

    Args:
        lattices: Lattices, shape ``[n_lattices, 12, capacity]``, int32.

    Returns:
        Shape ``[n_lattices, 3]``, int64: ``N0`` edges to split, ``N0(4)`` vertices to delete, pairs
        to flip.

    Raises:
        ValueError: If the shape or the dtype is wrong.
    """
    _check_lattices(lattices)
    return lattices[:, COUNTS, :N_KINDS].long()


def cdt_volume_profile(lattices: torch.Tensor, *, n_slices: int) -> torch.Tensor:
    """Return the number of vertices in each slice.

    Args:
        lattices: Lattices, shape ``[n_lattices, 12, capacity]``, int32.
        n_slices: Number of slices of each lattice.

    Returns:
        Shape ``[n_lattices, n_slices]``, int64.

    Raises:
        ValueError: If the shape or the dtype is wrong, or there is no room for so many slices.
    """
    _check_lattices(lattices)
    if not MIN_SLICES <= n_slices <= lattices.shape[2] // MIN_SLICE_SIZE:
        raise ValueError(
            f"n_slices must be between {MIN_SLICES} and a third of the capacity "
            f"{lattices.shape[2]}, got {n_slices}"
        )
    return lattices[:, COUNTS, N_KINDS : N_KINDS + n_slices].long()


def cdt_propose_moves(
    lattices: torch.Tensor,
    kinds: torch.Tensor,
    choices: torch.Tensor,
    cosmological_constant: float = CRITICAL_LAMBDA,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each lattice after one proposed move, and the probability to accept it.

    * add (2 -> 4 triangles): split edge ``choice`` by a new vertex, accepted with
      ``min(1, N0 / (N0(4) + 1) exp(-2 lambda))``;
    * delete (4 -> 2): remove vertex ``choice`` of order 4,
      ``min(1, N0(4) / (N0 - 1) exp(2 lambda))``;
    * flip (2 -> 2): exchange the triangles of pair ``choice``, ``min(1, n_flip / n_flip')``.

    The ratios assume a uniform choice among the candidates of a kind, and add and delete attempted
    equally often. A new vertex always has order 4, and every other vertex of order 4 keeps its
    order, so ``N0(4) + 1`` is exact.

    Args:
        lattices: Lattices, shape ``[n_lattices, 12, capacity]``, int32, from ``make_cdt_lattices``
            or earlier moves.
        kinds: 0 add, 1 delete, 2 flip; shape ``[n_lattices]``, integers.
        choices: Number of the candidate, from 0 to ``cdt_candidates`` - 1; shape ``[n_lattices]``.
        cosmological_constant: ``lambda``, per triangle.

    Returns:
        The lattices after the move, and acceptance probabilities, shape ``[n_lattices]``, float64.
        Where the move is impossible (no such kind or candidate, a slice of 3, no capacity left) the
        probability is 0 and the lattice is unchanged.

    Raises:
        ValueError: If a shape, dtype or device is wrong, or ``cosmological_constant`` is not finite.

    Source:
        Brunekreef, Gorlich and Loll, arXiv:2310.16744, section 2.
    """
    return _compiled_proposal(lattices, kinds, choices, cosmological_constant)


def make_cdt_propose_moves(
    compiler: Callable[..., Any],
) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """Return ``cdt_propose_moves`` with its moves compiled.

    Args:
        compiler: Compiles a function, e.g. ``torch.compile``; the identity leaves it eager.

    Returns:
        A function with the arguments and the results of ``cdt_propose_moves``.
    """
    compiled = compiler(propose)

    def propose_moves(
        lattices: torch.Tensor,
        kinds: torch.Tensor,
        choices: torch.Tensor,
        cosmological_constant: float = CRITICAL_LAMBDA,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        _check_proposal(lattices, kinds, choices)
        weights = _boltzmann(cosmological_constant, lattices)
        flat, acceptance = compiled(
            lattices.flatten(1), kinds.long()[:, None], choices.long()[:, None], weights
        )
        return flat.view(lattices.shape), acceptance

    return propose_moves


def cdt_sweep(
    lattices: torch.Tensor,
    words: torch.Tensor,
    cosmological_constant: float = CRITICAL_LAMBDA,
) -> torch.Tensor:
    """Return the lattices after a sequence of Metropolis moves in each.

    The first word of a move selects its kind (add and delete one in four each, flip one in two; a
    negative word skips the move), the second the candidate, and the third whether it is accepted,
    with the probabilities of ``cdt_propose_moves``.

    Args:
        lattices: Lattices, shape ``[n_lattices, 12, capacity]``, int32, from ``make_cdt_lattices``
            or earlier moves.
        words: Random words (``draw_cdt_words``), shape ``[n_moves, n_lattices, 3]``, int32.
        cosmological_constant: ``lambda``, per triangle; ``exp(-2 lambda)`` is rounded to 31 bits.

    Returns:
        Lattices, shape and dtype of ``lattices``.

    Raises:
        ValueError: If a shape, dtype or device is wrong, or ``cosmological_constant`` is not finite.

    Source:
        Brunekreef, Gorlich and Loll, arXiv:2310.16744, section 2.
    """
    return _compiled_sweep(lattices, words, cosmological_constant)


def make_cdt_sweep(compiler: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """Return ``cdt_sweep`` with its moves compiled.

    One move reads some 25 numbers of each lattice and writes 29. All reads come first, then all
    writes in one scatter, where a write that does not apply repeats the present value. So compiled
    code has one loop over the lattices for the arithmetic and one for the writes, and copies
    nothing. Each move of a lattice depends on the last, so a Python loop over moves remains.

    Args:
        compiler: Compiles a function, e.g. ``torch.compile``; the identity leaves it eager.

    Returns:
        A function with the arguments and the result of ``cdt_sweep``.
    """
    return _make_sweep(compiler(move))


def cdt_sweep_masked(
    lattices: torch.Tensor,
    words: torch.Tensor,
    cosmological_constant: float = CRITICAL_LAMBDA,
) -> torch.Tensor:
    """Return the same as ``cdt_sweep``, computed literally from the definition of the moves.

    Makes each kind of move in turn, one masked write after the other.

    Args:
        lattices: Lattices, shape ``[n_lattices, 12, capacity]``, int32.
        words: Random words, shape ``[n_moves, n_lattices, 3]``, int32.
        cosmological_constant: ``lambda``, per triangle.

    Returns:
        Lattices, shape and dtype of ``lattices``.

    Raises:
        ValueError: If a shape, dtype or device is wrong, or ``cosmological_constant`` is not finite.
    """
    return make_cdt_sweep_masked(_as_is)(lattices, words, cosmological_constant)


def make_cdt_sweep_masked(compiler: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """Return ``cdt_sweep_masked`` with its moves compiled.

    Args:
        compiler: Compiles a function, e.g. ``torch.compile``; the identity leaves it eager.

    Returns:
        A function with the arguments and the result of ``cdt_sweep_masked``.
    """
    return _make_sweep(compiler(_masked_move))


def _make_sweep(moves: Callable[..., None]) -> Callable[..., torch.Tensor]:
    def sweep(
        lattices: torch.Tensor,
        words: torch.Tensor,
        cosmological_constant: float = CRITICAL_LAMBDA,
    ) -> torch.Tensor:
        _check_sweep(lattices, words)
        weights = _boltzmann(cosmological_constant, lattices)
        flat = lattices.flatten(1).clone()
        for word in words:
            moves(flat, word, weights)
        return flat.view(lattices.shape)

    return sweep


def move(flat: torch.Tensor, words: torch.Tensor, weights: torch.Tensor) -> None:
    """Attempt one move in each lattice, in place.

    Args:
        flat: Lattices, shape ``[n_lattices, 12 * capacity]``, int32; modified.
        words: Random words, shape ``[n_lattices, 3]``, int32.
        weights: Boltzmann weights of the three kinds in units of ``2^-31``, shape ``[3]``, int64.
    """
    _apply(flat, *_decide(flat, words, weights))


def propose(
    flat: torch.Tensor, kind: torch.Tensor, choice: torch.Tensor, weights: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the lattices after a move wherever it is possible, and its acceptance probability.

    Args:
        flat: Lattices, shape ``[n_lattices, 12 * capacity]``, int32.
        kind: Kind of move, shape ``[n_lattices, 1]``, int64.
        choice: Number of the candidate, shape ``[n_lattices, 1]``, int64.
        weights: Boltzmann weights of the three kinds in units of ``2^-31``, shape ``[3]``, int64.

    Returns:
        Lattices, shape of ``flat``, and probabilities, shape ``[n_lattices]``, float64.
    """
    n_candidates = _n_candidates(flat, kind)
    known = torch.minimum(choice, n_candidates - 1).clamp(min=0)
    proposal = _propose(flat, kind, known, weights)
    possible = proposal.possible & (choice >= 0) & (choice < n_candidates)
    ratio = proposal.numerator.double() / proposal.denominator.double()
    probability = (ratio * proposal.weight.double() * 0.5**WORD_BITS).clamp(max=1.0)
    proposed = flat.clone()
    _apply(proposed, proposal, possible)
    return proposed, torch.where(possible, probability, 0.0)[:, 0]


class _Proposal(NamedTuple):
    """A proposed move for each lattice; every tensor has shape ``[n_lattices, 1]``."""

    kind: torch.Tensor
    possible: torch.Tensor
    numerator: torch.Tensor  # probability to accept: numerator * weight / denominator
    denominator: torch.Tensor
    weight: torch.Tensor
    run: tuple[torch.Tensor, ...]  # triangles x, a, b, y from left to right; a is the chosen one
    twin_run: tuple[torch.Tensor, ...]  # the same around the other triangle of a's edge
    changes: tuple[torch.Tensor, ...]  # in pairs at (x, a) and (b, y) if a and b swap


def _decide(
    flat: torch.Tensor, words: torch.Tensor, weights: torch.Tensor
) -> tuple[_Proposal, torch.Tensor]:
    kind_word, pick, chance = words.long().split(1, dim=1)
    kind = (kind_word >> (WORD_BITS - 2)).clamp(max=FLIP)
    choice = (pick * _n_candidates(flat, kind)) >> WORD_BITS
    proposal = _propose(flat, kind, choice, weights)
    accepted = proposal.possible & (
        chance * proposal.denominator < proposal.numerator * proposal.weight
    )
    return proposal, accepted


def _propose(
    flat: torch.Tensor, kind: torch.Tensor, choice: torch.Tensor, weights: torch.Tensor
) -> _Proposal:
    flips, deletes = kind == FLIP, kind == DELETE
    n_vertices, n_four, n_pairs = _counts(flat)
    item = _at(flat, torch.where(flips, PAIRS, VERTICES), choice)
    a = torch.where(flips, item, 2 * item)
    x, b = _at(flat, LEFT, a), _at(flat, RIGHT, a)
    y = _at(flat, RIGHT, b)
    twin = a ^ 1
    # The last bit of a label tells up from down. Exchanging a and b turns two alike neighbours into
    # a pair that can be flipped, and two different ones into one that cannot.
    changes = (1 - 2 * ((x ^ a) & 1), 1 - 2 * ((b ^ y) & 1))
    size = _at(flat, COUNTS, N_KINDS + _at(flat, SLICES, a >> 1))
    room = n_vertices < flat.shape[1] // ROWS
    can_delete = (n_four > 0) & (size > MIN_SLICE_SIZE)
    return _Proposal(
        kind=kind,
        possible=torch.where(deletes, can_delete, flips | (room & (kind == ADD))),
        numerator=_n_candidates(flat, kind),
        denominator=torch.where(
            flips,
            n_pairs + changes[0] + changes[1],
            torch.where(deletes, n_vertices - 1, n_four + 1),
        ),
        weight=torch.where(
            flips, weights[FLIP], torch.where(deletes, weights[DELETE], weights[ADD])
        ),
        run=(x, a, b, y),
        twin_run=(_at(flat, LEFT, twin), twin, _at(flat, RIGHT, twin)),
        changes=changes,
    )


def _apply(flat: torch.Tensor, proposal: _Proposal, accepted: torch.Tensor) -> None:
    """Make the accepted moves: read everything first, then write everything."""
    adds = accepted & (proposal.kind == ADD)
    deletes = accepted & (proposal.kind == DELETE)
    flips = accepted & (proposal.kind == FLIP)
    n_vertices, n_four, n_pairs = _counts(flat)
    capacity = flat.shape[1] // ROWS
    x, a, b, y = proposal.run
    twin_x, twin_a, twin_b = proposal.twin_run
    unused = _at(flat, VERTICES, n_vertices.clamp(max=capacity - 1))
    vertex = torch.where(adds, unused, a >> 1)  # the one added or deleted
    up, down = 2 * vertex, 2 * vertex + 1

    # Links from a triangle to its right neighbour; if fewer than four change, one is repeated.
    to_first = torch.where(adds, up, torch.where(deletes | flips, b, a))
    near = (
        x,
        torch.where(adds | deletes, twin_x, torch.where(flips, b, x)),
        torch.where(adds, up, torch.where(flips, a, x)),
        torch.where(adds, down, x),
    )
    far = (
        to_first,
        torch.where(adds, down, torch.where(deletes, twin_b, torch.where(flips, a, to_first))),
        torch.where(adds, a, torch.where(flips, y, to_first)),
        torch.where(adds, twin_a, to_first),
    )

    # A flip changes whether x starts a pair, and whether one of a and b does.
    one, other = x, torch.where(proposal.changes[1] > 0, b, a)
    one_pairs = torch.where(flips, proposal.changes[0], 0)
    other_pairs = torch.where(flips, proposal.changes[1], 0)
    pair_places, pair_labels = _swap_twice(
        flat,
        (PAIRS, PAIR_PLACES),
        (one, n_pairs, one_pairs),
        (other, n_pairs + one_pairs, other_pairs),
    )

    # A vertex loses order 4 when one of its triangles starts a pair and the other does not.
    growth = adds.long() - deletes.long()
    one_fours = -one_pairs * (_at(flat, PAIR_PLACES, one ^ 1) >= n_pairs)
    other_fours = -other_pairs * (_at(flat, PAIR_PLACES, other ^ 1) >= n_pairs)
    vertex_places, vertex_labels = _swap_twice(
        flat,
        (VERTICES, VERTEX_PLACES),
        (torch.where(flips, one >> 1, vertex), n_four, one_fours + growth),
        (
            torch.where(flips, other >> 1, vertex),
            torch.where(deletes, n_vertices, n_four + one_fours),
            other_fours - deletes.long(),
        ),
    )

    slice_number = _at(flat, SLICES, a >> 1)
    size = _at(flat, COUNTS, N_KINDS + slice_number)
    writes = (
        *((RIGHT, p, q) for p, q in zip(near, far, strict=True)),
        *((LEFT, q, p) for p, q in zip(near, far, strict=True)),
        *((PAIRS, p, q) for p, q in zip(pair_places, pair_labels, strict=True)),
        *((PAIR_PLACES, q, p) for p, q in zip(pair_places, pair_labels, strict=True)),
        *((VERTICES, p, q) for p, q in zip(vertex_places, vertex_labels, strict=True)),
        *((VERTEX_PLACES, q, p) for p, q in zip(vertex_places, vertex_labels, strict=True)),
        (SLICES, vertex, slice_number),
        (COUNTS, N_KINDS + slice_number, size + growth),
        (COUNTS, torch.zeros_like(a), n_vertices + growth),
        (COUNTS, torch.ones_like(a), n_four + growth + one_fours + other_fours),
        (COUNTS, torch.full_like(a, 2), n_pairs + one_pairs + other_pairs),
    )
    # Place and value in one number: half as many tensors to concatenate, the most costly operation.
    packed = torch.cat(
        [((row * capacity + place) << 32) | value for row, place, value in writes], dim=1
    )
    lattice = torch.arange(flat.shape[0], device=flat.device)[:, None]
    flat[lattice, packed >> 32] = packed.to(torch.int32)


def _swap_twice(
    flat: torch.Tensor,
    rows: tuple[int, int],
    one: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    other: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
    """Move two labels, one after the other, across the border between the two parts of a list.

    A label joins the first part by exchanging places with the first label after the border, and
    leaves it by exchanging places with the last label before the border.

    Args:
        flat: Lattices.
        rows: Row of the list, and row of the places of its labels.
        one: A label, the border, and 1 to join, -1 to leave, 0 to stay.
        other: The same for the second label, with the border after the first move. It may be the
            same label with another border.

    Returns:
        Four places and their new labels; equal places have equal labels.
    """
    row, place_row = rows
    label, border, change = one
    start = _at(flat, place_row, label)
    end = torch.where(change == 0, start, border - (change < 0).long())
    displaced = _at(flat, row, end)

    next_label, border, change = other
    next_start = torch.where(
        next_label == label,
        end,
        torch.where(next_label == displaced, start, _at(flat, place_row, next_label)),
    )
    next_end = torch.where(change == 0, next_start, border - (change < 0).long())
    next_displaced = torch.where(
        next_end == start,
        displaced,
        torch.where(next_end == end, label, _at(flat, row, next_end)),
    )

    def label_at(place: torch.Tensor, unless_moved: torch.Tensor) -> torch.Tensor:
        kept = torch.where(place == next_start, next_displaced, unless_moved)
        return torch.where(place == next_end, next_label, kept)

    return (
        (start, end, next_start, next_end),
        (
            label_at(start, displaced),
            label_at(end, label),
            label_at(next_start, next_displaced),
            next_label,
        ),
    )


def _masked_move(flat: torch.Tensor, words: torch.Tensor, weights: torch.Tensor) -> None:
    proposal, accepted = _decide(flat, words, weights)
    adds = accepted & (proposal.kind == ADD)
    deletes = accepted & (proposal.kind == DELETE)
    flips = accepted & (proposal.kind == FLIP)
    n_vertices, n_four, _ = _counts(flat)
    capacity = flat.shape[1] // ROWS
    x, a, b, y = proposal.run
    twin_x, twin_a, twin_b = proposal.twin_run
    slice_number = _at(flat, SLICES, a >> 1)

    new = _at(flat, VERTICES, n_vertices.clamp(max=capacity - 1))
    for near, far in ((x, 2 * new), (2 * new, a), (twin_x, 2 * new + 1), (2 * new + 1, twin_a)):
        _link(flat, near, far, adds)
    _write(flat, SLICES, new, slice_number, adds)
    _swap(flat, (VERTICES, VERTEX_PLACES), new, n_four, adds)
    for count in (0, 1, N_KINDS + slice_number):
        _count(flat, count, 1, adds)

    old = a >> 1
    for near, far in ((x, b), (twin_x, twin_b)):
        _link(flat, near, far, deletes)
    _swap(flat, (VERTICES, VERTEX_PLACES), old, n_four - 1, deletes)
    _swap(flat, (VERTICES, VERTEX_PLACES), old, n_vertices - 1, deletes)
    for count in (0, 1, N_KINDS + slice_number):
        _count(flat, count, -1, deletes)

    for near, far in ((x, b), (b, a), (a, y)):
        _link(flat, near, far, flips)
    change_of_x, change_of_other = proposal.changes
    _toggle(flat, x, change_of_x, flips)
    _toggle(flat, torch.where(change_of_other > 0, b, a), change_of_other, flips)


def _toggle(
    flat: torch.Tensor, triangle: torch.Tensor, change: torch.Tensor, mask: torch.Tensor
) -> None:
    """Mark that a triangle starts a pair (change 1) or no longer does (-1); update its vertex."""
    _, n_four, n_pairs = _counts(flat)
    starts = change > 0
    _swap(flat, (PAIRS, PAIR_PLACES), triangle, torch.where(starts, n_pairs, n_pairs - 1), mask)
    matters = mask & (_at(flat, PAIR_PLACES, triangle ^ 1) >= n_pairs)
    end = torch.where(starts, n_four - 1, n_four)
    _swap(flat, (VERTICES, VERTEX_PLACES), triangle >> 1, end, matters)
    _count(flat, 1, -change, matters)
    _count(flat, 2, change, mask)


def _swap(
    flat: torch.Tensor,
    rows: tuple[int, int],
    label: torch.Tensor,
    end: torch.Tensor,
    mask: torch.Tensor,
) -> None:
    row, place_row = rows
    start, end = _at(flat, place_row, label), torch.where(mask, end, 0)
    displaced = _at(flat, row, end)
    _write(flat, row, start, displaced, mask)
    _write(flat, row, end, label, mask)
    _write(flat, place_row, displaced, start, mask)
    _write(flat, place_row, label, end, mask)


def _link(flat: torch.Tensor, near: torch.Tensor, far: torch.Tensor, mask: torch.Tensor) -> None:
    _write(flat, RIGHT, near, far, mask)
    _write(flat, LEFT, far, near, mask)


def _count(
    flat: torch.Tensor,
    which: torch.Tensor | int,
    change: torch.Tensor | int,
    mask: torch.Tensor,
) -> None:
    place = which + torch.zeros_like(mask, dtype=torch.int64)
    _write(flat, COUNTS, place, _at(flat, COUNTS, place) + change, mask)


def _write(
    flat: torch.Tensor, row: int, place: torch.Tensor, value: torch.Tensor, mask: torch.Tensor
) -> None:
    kept = _at(flat, row, place)
    lattice = torch.arange(flat.shape[0], device=flat.device)[:, None]
    flat[lattice, row * (flat.shape[1] // ROWS) + place] = torch.where(mask, value, kept).int()


def _n_candidates(flat: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
    n_vertices, n_four, n_pairs = _counts(flat)
    return torch.where(kind == FLIP, n_pairs, torch.where(kind == DELETE, n_four, n_vertices))


def _as_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _counts(flat: torch.Tensor) -> tuple[torch.Tensor, ...]:
    start = COUNTS * (flat.shape[1] // ROWS)
    counts: tuple[torch.Tensor, ...] = flat[:, start : start + N_KINDS].long().split(1, dim=1)
    return counts


def _at(flat: torch.Tensor, row: torch.Tensor | int, place: torch.Tensor) -> torch.Tensor:
    """Read the number at a place of a row, for each lattice."""
    return flat.gather(1, row * (flat.shape[1] // ROWS) + place).long()


def _boltzmann(cosmological_constant: float, lattices: torch.Tensor) -> torch.Tensor:
    """Return the weights of add, delete and flip in units of ``2^-31``, shape ``[3]``, int64.

    A weight is capped where every move is accepted, so that products fit in 63 bits.
    """
    if not math.isfinite(cosmological_constant):
        raise ValueError(f"cosmological_constant must be finite, got {cosmological_constant}")
    unit = 1 << WORD_BITS
    most = lattices.shape[2]
    limit = math.log(most) if most > 1 else 0.0
    weights = [
        round(math.exp(exponent) * unit) if exponent < limit else most * unit
        for exponent in (-2.0 * cosmological_constant, 2.0 * cosmological_constant)
    ]
    return torch.tensor([*weights, unit], device=lattices.device)


def _check_lattices(lattices: torch.Tensor) -> None:
    if lattices.dtype != torch.int32:
        raise ValueError(f"lattices must be int32, got {lattices.dtype}")
    smallest = MIN_SLICES * MIN_SLICE_SIZE
    if (
        lattices.ndim != 3  # noqa: PLR2004  (axes)
        or lattices.shape[1] != ROWS
        or not smallest <= lattices.shape[2] <= MAX_CAPACITY
    ):
        raise ValueError(
            f"lattices must have shape [n_lattices, {ROWS}, capacity] with a capacity from "
            f"{smallest} to {MAX_CAPACITY}, got {list(lattices.shape)}"
        )


def _check_device(name: str, values: torch.Tensor, lattices: torch.Tensor) -> None:
    if values.device != lattices.device:
        raise ValueError(
            f"{name} must be on the device of lattices, {lattices.device}, got {values.device}"
        )


def _check_proposal(lattices: torch.Tensor, kinds: torch.Tensor, choices: torch.Tensor) -> None:
    _check_lattices(lattices)
    for name, values in (("kinds", kinds), ("choices", choices)):
        if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
            raise ValueError(f"{name} must be integers, got {values.dtype}")
        if values.shape != lattices.shape[:1]:
            raise ValueError(
                f"{name} must have shape [{lattices.shape[0]}], one per lattice, "
                f"got {list(values.shape)}"
            )
        _check_device(name, values, lattices)


def _check_sweep(lattices: torch.Tensor, words: torch.Tensor) -> None:
    _check_lattices(lattices)
    if words.dtype != torch.int32:
        raise ValueError(f"words must be int32, got {words.dtype}")
    if words.ndim != 3 or words.shape[1:] != (lattices.shape[0], 3):  # noqa: PLR2004  (axes)
        raise ValueError(
            f"words must have shape [n_moves, {lattices.shape[0]}, 3], got {list(words.shape)}"
        )
    _check_device("words", words, lattices)


_compiled_proposal = make_cdt_propose_moves(get_compiled(dynamic=True, fullgraph=True))
_compiled_sweep = make_cdt_sweep(get_compiled(dynamic=True, fullgraph=True))
