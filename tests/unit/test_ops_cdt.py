"""Moves keep triangulations valid tori with causal strips, and keep detailed balance exactly."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from functools import cache
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is only in the cells")
import torch

from benchmarks.triangulation.cdt_sweep.reference import read_universe, reference
from ivhl.ops import cdt
from ivhl.ops.cdt import (
    ADD,
    CRITICAL_LAMBDA,
    DELETE,
    FLIP,
    cdt_candidates,
    cdt_propose_moves,
    cdt_sweep,
    cdt_sweep_masked,
    cdt_volume_profile,
    draw_cdt_words,
    make_cdt_lattices,
    make_cdt_sweep,
)

if TYPE_CHECKING:
    from collections.abc import Callable

# Torch's own, each from one release or another; none is about the code under test.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Skipping serialization of skipfiles:UserWarning"),
]

KIND_SHARES = {ADD: 0.25, DELETE: 0.25, FLIP: 0.5}

sweep_eagerly = make_cdt_sweep(lambda f: f)
forms = pytest.mark.parametrize("sweep", [sweep_eagerly, cdt_sweep_masked], ids=["ours", "naive"])


def draw(n_moves: int, n_lattices: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return draw_cdt_words(n_moves, n_lattices, generator=generator)


def make_some(n_lattices: int = 8, n_moves: int = 60, seed: int = 0) -> torch.Tensor:
    """Return lattices of 3 slices after some moves."""
    lattices = make_cdt_lattices(n_lattices, n_slices=3, slice_size=4, capacity=20)
    return sweep_eagerly(lattices, draw(n_moves, n_lattices, seed))


def propose(
    lattices: torch.Tensor, kinds: list[int], choices: list[int], lam: float = CRITICAL_LAMBDA
) -> tuple[torch.Tensor, torch.Tensor]:
    """Do what ``cdt_propose_moves`` does, uncompiled."""
    flat, acceptance = cdt.propose(
        lattices.reshape(len(lattices), -1),
        torch.tensor(kinds)[:, None],
        torch.tensor(choices)[:, None],
        cdt._boltzmann(lam, lattices),
    )
    return flat.view(lattices.shape), acceptance


def strips_of(lattice: torch.Tensor, n_slices: int) -> list[list[int]]:
    """Return the strips, each from the least triangle on."""
    strips = read_universe(lattice.tolist(), n_slices).strips
    return [s[s.index(min(s)) :] + s[: s.index(min(s))] for s in strips]


def is_rotated(one: list[int], other: list[int]) -> bool:
    return any(one[i:] + one[:i] == other for i in range(len(one)))


def check(lattice: torch.Tensor, n_slices: int) -> None:
    """Compare everything that a lattice says of itself with the triangles it is made of."""
    rows = lattice.tolist()
    capacity = len(rows[0])
    right, left = rows[0] + rows[1], rows[2] + rows[3]
    pairs, pair_places = rows[4] + rows[5], rows[6] + rows[7]
    vertices, vertex_places, slices, counts = rows[8:]
    n_vertices, n_four, n_pairs = counts[:3]
    used = set(vertices[:n_vertices])
    triangles = [2 * edge + side for edge in used for side in (0, 1)]

    # The lists are permutations.
    assert [pairs[place] for place in pair_places] == list(range(2 * capacity))
    assert [vertices[place] for place in vertex_places] == list(range(capacity))
    # Neighbours agree; each strip holds the triangles of its two slices, in the same cyclic order.
    assert all(left[right[t]] == t == right[left[t]] for t in triangles)
    strips = strips_of(lattice, n_slices)
    assert sorted(itertools.chain(*strips)) == sorted(triangles)
    for time, strip in enumerate(strips):
        ups = [t // 2 for t in strip if t % 2 == 0]
        downs_below = [t // 2 for t in strips[time - 1] if t % 2 == 1]
        assert {slices[edge] for edge in ups} == {time}
        assert is_rotated(ups, downs_below)
        assert len(ups) == counts[3 + time] >= 3
    assert sum(counts[3 : 3 + n_slices]) == n_vertices <= capacity
    assert set(counts[3 + n_slices :]) <= {0}
    # The first labels of the lists are those with the property.
    starts = {t for t in triangles if (t ^ right[t]) & 1}
    assert set(pairs[:n_pairs]) == starts
    # Corners glued along edges: 0 left, 1 right, 2 the one opposite to the spatial edge.
    orders = Counter(glue_corners(triangles, right))
    n_triangles, n_edges = len(triangles), 3 * len(triangles) // 2
    assert n_triangles == 2 * n_vertices
    assert len(orders) - n_edges + n_triangles == 0
    assert sum(order == 4 for order in orders.values()) == n_four
    assert min(orders.values()) >= 4
    four = {v for v in used if 2 * v not in starts and 2 * v + 1 not in starts}
    assert set(vertices[:n_four]) == four


def glue_corners(triangles: list[int], right: list[int]) -> list[tuple[int, int]]:
    """Return the vertex of every corner of every triangle, as one of the vertex's corners."""
    parent = {(t, corner): (t, corner) for t in triangles for corner in range(3)}

    def find(corner: tuple[int, int]) -> tuple[int, int]:
        while parent[corner] != corner:
            corner = parent[corner]
        return corner

    def lower_and_upper(t: int, side: int) -> tuple[tuple[int, int], tuple[int, int]]:
        return ((t, side), (t, 2)) if t % 2 == 0 else ((t, 2), (t, side))

    for t in triangles:
        if t % 2 == 0:
            for side in (0, 1):
                parent[find((t, side))] = find((t + 1, side))
        for one, other in zip(lower_and_upper(t, 1), lower_and_upper(right[t], 0), strict=True):
            parent[find(one)] = find(other)
    return [find(corner) for corner in parent]


def canonical(lattice: list[list[int]], n_slices: int) -> tuple[object, int]:
    """Return a triangulation without its labels, and the number of its symmetries.

    Read from an edge of slice 0: the kinds of triangles in each strip, from the first triangle on
    the first edge that the strip before met, and how far around one comes back to slice 0.
    """
    right = lattice[0] + lattice[1]
    vertices, slices, counts = lattice[8], lattice[10], lattice[11]
    forms = []
    for root in (v for v in vertices[: counts[0]] if slices[v] == 0):
        edge, form, bottom = root, [], []
        for time in range(n_slices):
            run = [2 * edge]
            while right[run[-1]] != run[0]:
                run.append(right[run[-1]])
            form.append(tuple(t & 1 for t in run))
            if time == 0:
                bottom = [t // 2 for t in run if t % 2 == 0]
            edge = next(t // 2 for t in run if t % 2 == 1)
        forms.append((tuple(form), bottom.index(edge)))
    return min(forms), forms.count(min(forms))


def volume_weight(sizes: tuple[int, ...]) -> int:
    """Return the sum of ``1 / |Aut|`` over all triangulations with these slices.

    A strip over ``a`` edges with ``b`` above and a marked lower one is an order of ``a + b``
    triangles that starts with it; marks above and below cancel all around the torus.
    """
    return math.prod(
        math.comb(a + b - 1, b) for a, b in zip(sizes, sizes[1:] + sizes[:1], strict=True)
    )


class Ensemble:
    """All triangulations that moves reach, and the probabilities to go from one to another."""

    def __init__(self, n_slices: int, capacity: int, lam: float) -> None:
        start = make_cdt_lattices(1, n_slices=n_slices, slice_size=3, capacity=capacity)
        form, n_symmetries = canonical(start[0].tolist(), n_slices)
        self.sizes = {form: (3,) * n_slices}
        self.n_symmetries = {form: n_symmetries}
        self.steps: defaultdict[tuple[object, object], float] = defaultdict(float)
        new, forms = start, [form]
        while forms:
            n_candidates = cdt_candidates(new).tolist()
            moves = [
                (i, kind, choice)
                for i, counts in enumerate(n_candidates)
                for kind, count in enumerate(counts)
                for choice in range(count)
            ]
            origins, kinds, choices = (list(column) for column in zip(*moves, strict=True))
            proposed, acceptance = propose(new[origins], kinds, choices, lam)
            profiles = cdt_volume_profile(proposed, n_slices=n_slices).tolist()
            found, reached = [], []
            for number, rows in enumerate(proposed.tolist()):
                origin, kind = origins[number], kinds[number]
                if not acceptance[number] > 0.0:
                    continue
                after, n_symmetries = canonical(rows, n_slices)
                share = KIND_SHARES[kind] / n_candidates[origin][kind]
                self.steps[forms[origin], after] += share * float(acceptance[number])
                if after not in self.sizes:
                    self.sizes[after] = tuple(profiles[number])
                    self.n_symmetries[after] = n_symmetries
                    found.append(number)
                    reached.append(after)
            new, forms = proposed[found], reached


@cache
def enumerate_all(n_slices: int, capacity: int, lam: float) -> Ensemble:
    return Ensemble(n_slices, capacity, lam)


@pytest.mark.parametrize(
    ("n_slices", "capacity", "lam"),
    [
        pytest.param(2, 8, CRITICAL_LAMBDA, marks=pytest.mark.full),
        (2, 7, 0.3),
        (2, 7, -0.4),
    ],
)
def test_detailed_balance_holds_for_every_pair_of_triangulations(
    n_slices: int, capacity: int, lam: float
) -> None:
    ensemble = enumerate_all(n_slices, capacity, lam)
    # The weights in the moves have 31 bits, but one fourth is exact.
    precision = 1e-14 if lam == CRITICAL_LAMBDA else 1e-8

    def flow(one: object, other: object) -> float:
        weight = math.exp(-2.0 * lam * sum(ensemble.sizes[one])) / ensemble.n_symmetries[one]
        return weight * ensemble.steps[one, other]

    for one, other in list(ensemble.steps):
        assert flow(one, other) == pytest.approx(flow(other, one), rel=precision)


@pytest.mark.parametrize(("n_slices", "capacity"), [(2, 8), (3, 9)])
def test_moves_reach_all_triangulations_there_are(n_slices: int, capacity: int) -> None:
    ensemble = enumerate_all(n_slices, capacity, CRITICAL_LAMBDA)
    totals: defaultdict[tuple[int, ...], float] = defaultdict(float)
    for form, sizes in ensemble.sizes.items():
        totals[sizes] += 1.0 / ensemble.n_symmetries[form]
    assert sorted(totals) == sorted(
        sizes
        for sizes in itertools.product(range(3, capacity), repeat=n_slices)
        if sum(sizes) <= capacity
    )
    for sizes, total in totals.items():
        assert total == pytest.approx(volume_weight(sizes), rel=1e-12)


def test_volumes_are_distributed_as_counting_says() -> None:
    n_slices, capacity, n_lattices = 3, 12, 2000
    lattices = make_cdt_lattices(n_lattices, n_slices=n_slices, slice_size=3, capacity=capacity)
    after = sweep_eagerly(lattices, draw(300, n_lattices))
    seen = Counter(tuple(sorted(p)) for p in cdt_volume_profile(after, n_slices=3).tolist())
    weights: defaultdict[tuple[int, ...], float] = defaultdict(float)
    for sizes in itertools.product(range(3, capacity), repeat=n_slices):
        if sum(sizes) <= capacity:
            weights[tuple(sorted(sizes))] += volume_weight(sizes) * 4.0 ** -sum(sizes)
    assert set(seen) <= set(weights)
    for sizes, weight in weights.items():
        p = weight / sum(weights.values())
        error = (seen[sizes] - p * n_lattices) / math.sqrt(n_lattices * p * (1.0 - p))
        assert abs(error) < 4.0


@forms
@settings(deadline=None, max_examples=15)
@given(
    shape=st.tuples(st.integers(2, 5), st.integers(3, 5), st.integers(0, 12)),
    lam=st.floats(0.0, 2.0, allow_subnormal=False),
    seed=st.integers(0, 1000),
)
def test_lattices_stay_causal_tori(
    sweep: Callable[..., torch.Tensor], shape: tuple[int, int, int], lam: float, seed: int
) -> None:
    n_slices, slice_size, spare = shape
    capacity = n_slices * slice_size + spare
    lattices = make_cdt_lattices(3, n_slices=n_slices, slice_size=slice_size, capacity=capacity)
    for lattice in sweep(lattices, draw(40, 3, seed), lam):
        check(lattice, n_slices)


def test_lattices_stay_causal_tori_for_long() -> None:
    lattices = make_cdt_lattices(16, n_slices=4, slice_size=4, capacity=40)
    after = sweep_eagerly(lattices, draw(1000, 16))
    for lattice in after:
        check(lattice, 4)
    assert len(set(cdt_candidates(after)[:, 0].tolist())) > 4
    assert sum(cdt_candidates(after)[:, 1].tolist()) > 0


@forms
def test_sweep_is_the_simulation_on_lists(sweep: Callable[..., torch.Tensor]) -> None:
    n_slices = 3
    lattices = make_cdt_lattices(12, n_slices=n_slices, slice_size=3, capacity=16)
    words = draw(500, 12)
    profile, candidates = reference(lattices, words, torch.arange(n_slices))
    after = sweep(lattices, words)
    assert torch.equal(cdt_volume_profile(after, n_slices=n_slices).double(), profile)
    assert torch.equal(cdt_candidates(after).double(), candidates)


def test_the_naive_form_is_ours_to_the_last_label() -> None:
    lattices = make_cdt_lattices(12, n_slices=2, slice_size=3, capacity=12)
    words = draw(300, 12)
    assert torch.equal(sweep_eagerly(lattices, words, 0.5), cdt_sweep_masked(lattices, words, 0.5))


@pytest.mark.full
def test_compiled_is_eager_for_every_size_without_compiling_again() -> None:
    counters = torch._dynamo.utils.counters
    counters.clear()  # of the tests before
    n_graphs = None
    # Not 3 lattices first: Dynamo would take them for the 3 words of a move.
    for n_lattices, n_slices, spare in ((5, 3, 5), (8, 4, 0), (3, 2, 30)):
        capacity = 4 * n_slices + spare
        lattices = make_cdt_lattices(
            n_lattices, n_slices=n_slices, slice_size=4, capacity=capacity
        )
        words = draw(40, n_lattices)
        before = lattices.clone()
        assert torch.equal(cdt_sweep(lattices, words, 0.6), sweep_eagerly(lattices, words, 0.6))
        assert torch.equal(lattices, before)
        n_graphs = counters["stats"]["unique_graphs"] if n_graphs is None else n_graphs
    assert counters["stats"]["unique_graphs"] == n_graphs
    assert not counters["graph_break"]


@pytest.mark.full
def test_compiled_proposals_are_the_eager_ones() -> None:
    lattices = make_some()
    kinds, choices = [0, 1, 2, 0, 1, 2, 2, 0], [3, 0, 4, 0, 0, 1, 10, 7]
    expected, probabilities = propose(lattices, kinds, choices, 0.5)
    proposed, acceptance = cdt_propose_moves(
        lattices, torch.tensor(kinds), torch.tensor(choices, dtype=torch.int32), 0.5
    )
    assert torch.equal(proposed, expected)
    assert torch.equal(acceptance, probabilities)


def test_a_move_is_its_proposal_if_accepted() -> None:
    lattices = make_some(64)
    words = draw(1, 64, seed=5)
    kinds = (words[0, :, 0].long() * 4 // 2**31).clamp(max=2)
    n_candidates = cdt_candidates(lattices).gather(1, kinds[:, None])[:, 0]
    choices = words[0, :, 1].long() * n_candidates // 2**31
    proposed, acceptance = propose(lattices, kinds.tolist(), choices.tolist())
    accepted = words[0, :, 2].double() < acceptance * 2.0**31
    assert {0, 1, 2} == set(kinds[accepted].tolist())
    assert not accepted.all()
    after = sweep_eagerly(lattices, words)
    used = [0, 1, 2, 3, 4, 5, 8, 11]
    expected = torch.where(accepted[:, None, None], proposed, lattices)
    assert torch.equal(after[:, used], expected[:, used])


def test_acceptance_is_that_of_the_literature() -> None:
    lattices = make_some(60)
    kinds = [number % 3 for number in range(60)]
    lam = 0.55
    proposed, acceptance = propose(lattices, kinds, 60 * [1], lam)
    for kind, before, after, probability in zip(
        kinds,
        cdt_candidates(lattices).tolist(),
        cdt_candidates(proposed).tolist(),
        acceptance.tolist(),
        strict=True,
    ):
        if probability == 0.0:
            assert before == after
            continue
        ways_there, ways_back, weight = {
            ADD: (before[0], after[1], math.exp(-2.0 * lam)),
            DELETE: (before[1], after[0], math.exp(2.0 * lam)),
            FLIP: (before[2], after[2], 1.0),
        }[kind]
        ratio = ways_there / ways_back * weight
        assert probability == pytest.approx(min(1.0, ratio), rel=1e-8)
        change = {ADD: 1, DELETE: -1, FLIP: 0}[kind]
        assert after[0] - before[0] == change
        assert kind == FLIP or after[1] - before[1] == change


def test_deleting_what_was_added_gives_the_lattice_back() -> None:
    lattices = make_some(40)
    _, n_four, _ = cdt_candidates(lattices).unbind(1)
    room = cdt_candidates(lattices)[:, 0] < 20
    added, _ = propose(lattices, 40 * [ADD], list(range(10)) * 4)
    assert not any(torch.equal(a, b) for a, b in zip(added[room], lattices[room], strict=True))
    back, acceptance = propose(added, 40 * [DELETE], n_four.tolist())
    for one, other in zip(back[room], lattices[room], strict=True):
        assert strips_of(one, 3) == strips_of(other, 3)
        assert torch.equal(one[[4, 5, 8, 11]], other[[4, 5, 8, 11]])
    assert float(acceptance[room].min()) > 0.0


def test_flipping_twice_gives_the_lattice_back() -> None:
    lattices = make_some(40)
    choices = list(range(10)) * 4
    flipped, _ = propose(lattices, 40 * [FLIP], choices)
    pairs, right = lattices[:, 4:6].flatten(1), lattices[:, 0:2].flatten(1)
    first = pairs.gather(1, torch.tensor(choices)[:, None])
    second = right.gather(1, first.long())
    places = flipped[:, 6:8].flatten(1).gather(1, second.long())[:, 0]
    back, _ = propose(flipped, 40 * [FLIP], places.tolist())
    for before, between, after in zip(lattices, flipped, back, strict=True):
        assert strips_of(before, 3) != strips_of(between, 3)
        assert strips_of(before, 3) == strips_of(after, 3)
        assert torch.equal(before[11], after[11])
        check(between, 3)


def test_moves_that_are_impossible_change_nothing() -> None:
    regular = make_cdt_lattices(5, n_slices=2, slice_size=3, capacity=6)
    # Full, without a vertex of order 4, no such pair, no such edge, no such kind.
    proposed, acceptance = propose(regular, [ADD, DELETE, FLIP, ADD, 3], [0, 0, 12, -1, 0])
    assert torch.equal(proposed[:, [0, 1, 4, 5, 8, 11]], regular[:, [0, 1, 4, 5, 8, 11]])
    assert acceptance.tolist() == 5 * [0.0]


def test_slices_keep_three_vertices() -> None:
    lattices = make_cdt_lattices(30, n_slices=3, slice_size=3, capacity=9)
    lattices = sweep_eagerly(lattices, draw(200, 30))
    assert int(cdt_candidates(lattices)[:, 1].max()) > 0
    _, acceptance = propose(lattices, 30 * [DELETE], 30 * [0])
    assert acceptance.tolist() == 30 * [0.0]
    assert cdt_volume_profile(lattices, n_slices=3).tolist() == 30 * [[3, 3, 3]]


def test_a_large_cosmological_constant_shrinks_and_a_small_one_fills() -> None:
    lattices = make_cdt_lattices(4, n_slices=2, slice_size=4, capacity=12)
    words = draw(600, 4)
    assert cdt_candidates(sweep_eagerly(lattices, words, 400.0))[:, 0].tolist() == 4 * [6]
    assert cdt_candidates(sweep_eagerly(lattices, words, -400.0))[:, 0].tolist() == 4 * [12]


def test_negative_words_skip_the_move() -> None:
    lattices = make_some()
    words = draw(20, 8)
    words[:, :, 0] = -1
    assert torch.equal(sweep_eagerly(lattices, words), lattices)


def test_each_lattice_goes_its_own_way() -> None:
    lattices = make_cdt_lattices(6, n_slices=2, slice_size=4, capacity=12)
    words = draw(50, 6)
    together = sweep_eagerly(lattices, words)
    for number in range(6):
        alone = sweep_eagerly(lattices[number : number + 1], words[:, number : number + 1])
        assert torch.equal(alone[0], together[number])


@pytest.mark.parametrize(("n_lattices", "n_moves"), [(0, 3), (1, 1), (2, 0)])
@forms
def test_few_lattices_and_few_moves(
    sweep: Callable[..., torch.Tensor], n_lattices: int, n_moves: int
) -> None:
    lattices = make_cdt_lattices(n_lattices, n_slices=2, slice_size=3, capacity=8)
    after = sweep(lattices, draw(n_moves, n_lattices))
    assert after.shape == lattices.shape
    assert after.data_ptr() != lattices.data_ptr() or n_lattices == 0


def test_words_are_uniform_whole_numbers() -> None:
    words = draw(100, 50)
    assert words.dtype == torch.int32
    assert int(words.min()) >= 0
    assert float(words.double().mean()) == pytest.approx(2.0**30, rel=0.02)
    assert float(words.double().std()) == pytest.approx(2.0**31 / math.sqrt(12.0), rel=0.02)


GOOD = make_cdt_lattices(2, n_slices=2, slice_size=3, capacity=8)


@pytest.mark.parametrize(
    ("lattices", "words", "lam", "message"),
    [
        (GOOD.long(), draw(1, 2), 0.7, r"lattices must be int32, got torch.int64"),
        (GOOD[0], draw(1, 2), 0.7, r"lattices must have shape .* got \[12, 8\]"),
        (GOOD[:, :, :5], draw(1, 2), 0.7, r"capacity from 6 to 32768, got \[2, 12, 5\]"),
        (GOOD, draw(1, 2).double(), 0.7, r"words must be int32, got torch.float64"),
        (GOOD, draw(1, 3), 0.7, r"words must have shape \[n_moves, 2, 3\], got \[1, 3, 3\]"),
        (GOOD, draw(1, 2)[0], 0.7, r"words must have shape \[n_moves, 2, 3\], got \[2, 3\]"),
        (GOOD, draw(1, 2), math.nan, r"cosmological_constant must be finite, got nan"),
        (GOOD, draw(1, 2), math.inf, r"cosmological_constant must be finite, got inf"),
        (GOOD, draw(1, 2).to("meta"), 0.7, r"words must be on the device of lattices, cpu"),
    ],
)
@pytest.mark.parametrize("sweep", [cdt_sweep, cdt_sweep_masked])
def test_wrong_inputs_are_named(
    sweep: Callable[..., torch.Tensor],
    lattices: torch.Tensor,
    words: torch.Tensor,
    lam: float,
    message: str,
) -> None:
    with pytest.raises(ValueError, match=message):
        sweep(lattices, words, lam)


@pytest.mark.parametrize(
    ("kinds", "choices", "message"),
    [
        (torch.zeros(2), torch.zeros(2).long(), r"kinds must be integers, got torch.float32"),
        (torch.zeros(2).long(), torch.zeros(2).bool(), r"choices must be integers, got"),
        (torch.zeros(3).long(), torch.zeros(2).long(), r"kinds must have shape \[2\], one per"),
        (torch.zeros(2).long(), torch.zeros(2, 1).long(), r"choices .* got \[2, 1\]"),
    ],
)
def test_wrong_proposals_are_named(
    kinds: torch.Tensor, choices: torch.Tensor, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        cdt_propose_moves(GOOD, kinds, choices)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((-1, 2, 3, 6), r"n_lattices must be at least 0, got -1"),
        ((1, 1, 3, 6), r"n_slices must be at least 2, got 1"),
        ((1, 2, 2, 6), r"slice_size must be at least 3, got 2"),
        ((1, 2, 3, 5), r"capacity must be between .* = 6 and 32768, got 5"),
        ((1, 2, 3, 40000), r"capacity must be between .* and 32768, got 40000"),
    ],
)
def test_lattices_that_cannot_be_are_refused(
    numbers: tuple[int, int, int, int], message: str
) -> None:
    n_lattices, n_slices, slice_size, capacity = numbers
    with pytest.raises(ValueError, match=message):
        make_cdt_lattices(n_lattices, n_slices=n_slices, slice_size=slice_size, capacity=capacity)


def test_a_profile_of_too_many_slices_is_refused() -> None:
    with pytest.raises(ValueError, match=r"n_slices must be between 2 and .* 8, got 3"):
        cdt_volume_profile(GOOD, n_slices=3)


@pytest.mark.parametrize(
    ("n_moves", "n_lattices", "name"), [(-1, 2, "n_moves"), (2, -1, "n_lattices")]
)
def test_a_negative_number_of_words_is_refused(n_moves: int, n_lattices: int, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 0, got -1"):
        draw_cdt_words(n_moves, n_lattices)
