"""Intervals have their coverage, whatever the distribution of the noise."""

from __future__ import annotations

import math
import random
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ivhl.measure.intervals import (
    DISAGREEMENT,
    clocks_disagree,
    median_ranks,
    paired_ratio,
    split,
)
from ivhl.records.record import Arm

seconds = st.floats(min_value=1e-9, max_value=1e3)
pairs = st.lists(st.tuples(seconds, seconds), min_size=1, max_size=60)


def test_nine_samples_give_the_second_smallest_and_the_second_largest() -> None:
    # Counted by hand: P(fewer than 2 of 9 below the median) = (1 + 9) / 512, so 96.1 % are kept;
    # one rank further in, (1 + 9 + 36) / 512 on each side leave 82 %.
    assert median_ranks(9) == (1, 7)


@pytest.mark.parametrize("n", range(6, 200))
def test_the_ranks_cover_95_percent_and_no_narrower_ones_do(n: int) -> None:
    low, high = median_ranks(n)
    outside = 2 * sum(math.comb(n, k) for k in range(low + 1)) / 2**n
    inside_one_more = 2 * sum(math.comb(n, k) for k in range(low + 2)) / 2**n
    assert high == n - 1 - low
    assert outside <= 0.05 < inside_one_more


@pytest.mark.parametrize("n", range(1, 6))
def test_with_few_samples_the_extremes_are_returned(n: int) -> None:
    assert median_ranks(n) == (0, n - 1)


def test_an_empty_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        median_ranks(0)


@given(pairs)
def test_the_value_lies_in_its_interval(samples: list[tuple[float, float]]) -> None:
    a, b = zip(*samples, strict=True)
    found = paired_ratio(a, b)
    assert found.low <= found.value <= found.high
    assert found.n == len(samples)


@given(pairs, st.randoms())
def test_the_order_of_the_rounds_does_not_matter(
    samples: list[tuple[float, float]], chance: random.Random
) -> None:
    a, b = zip(*samples, strict=True)
    mixed = samples[:]
    chance.shuffle(mixed)
    c, d = zip(*mixed, strict=True)
    assert paired_ratio(a, b) == paired_ratio(c, d)


@given(pairs)
def test_a_load_that_slows_both_arms_of_a_round_changes_nothing(
    samples: list[tuple[float, float]],
) -> None:
    a, b = zip(*samples, strict=True)
    slow = [2.0 ** (i % 5) for i in range(len(samples))]
    loaded = paired_ratio(
        tuple(x * s for x, s in zip(a, slow, strict=True)),
        tuple(x * s for x, s in zip(b, slow, strict=True)),
    )
    assert loaded == paired_ratio(a, b)


@given(pairs)
def test_swapping_the_arms_inverts_the_interval(samples: list[tuple[float, float]]) -> None:
    a, b = zip(*samples, strict=True)
    there, back = paired_ratio(a, b), paired_ratio(b, a)
    assert back.low == pytest.approx(1 / there.high)
    assert back.high == pytest.approx(1 / there.low)


@pytest.mark.parametrize("outliers", [0.0, 0.1], ids=["log-normal", "with outliers"])
@pytest.mark.parametrize("n", [9, 15, 31])
def test_of_many_intervals_at_least_95_percent_hold_the_truth(n: int, outliers: float) -> None:
    chance = random.Random(0)  # noqa: S311

    def sample(truth: float) -> float:
        noise = math.exp(NormalDist(0, 0.05).inv_cdf(chance.uniform(1e-9, 1 - 1e-9)))
        return truth * noise * (10 if chance.random() < outliers else 1)

    truth, trials = 2.0, 2000
    held = 0
    for _ in range(trials):
        found = paired_ratio(
            tuple(sample(truth) for _ in range(n)), tuple(sample(1.0) for _ in range(n))
        )
        held += found.low <= truth <= found.high
    # Three standard deviations below 95 % for 2000 trials.
    assert held / trials >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / trials)


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ((1.0, 2.0), (1.0,), "2 samples cannot be paired with 1"),
        ((1.0, 0.0), (1.0, 1.0), "positive"),
        ((1.0, math.nan), (1.0, 1.0), "positive"),
        ((1.0, math.inf), (1.0, 1.0), "positive"),
    ],
)
def test_samples_that_are_not_positive_times_are_refused(
    a: tuple[float, ...], b: tuple[float, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        paired_ratio(a, b)


def test_the_value_of_two_processes_is_the_geometric_mean_of_their_medians() -> None:
    found = paired_ratio([2.0] * 9 + [8.0] * 9, [1.0] * 18, [9, 9])
    assert found.value == pytest.approx(4.0)
    # Differences between processes are in the interval, however steady each process is.
    assert (found.low, found.high) == (2.0, 8.0)
    assert found.n == 18


def test_a_process_outside_of_the_interval_widens_it() -> None:
    samples = [1.0] * 30 + [2.0] * 3
    together = paired_ratio(samples, [1.0] * 33)
    apart = paired_ratio(samples, [1.0] * 33, [30, 3])
    assert together.high == 1.0
    assert apart.high == 2.0
    assert apart.low <= apart.value <= apart.high


@pytest.mark.parametrize("rounds", [[1, 1], [3, 1], [3, 0]])
def test_rounds_that_do_not_add_up_are_refused(rounds: list[int]) -> None:
    with pytest.raises(ValueError, match="3 samples are not"):
        split([1.0, 2.0, 3.0], rounds)


def arm(wall: float, cpu: float, noise: random.Random) -> Arm:
    """Return 20 rounds in which a busy machine stretches elapsed time."""
    walls = tuple(wall * (1 + noise.random()) for _ in range(20))
    return Arm(calls=1, samples_s=(cpu,) * 20, wall_s=walls, cpu_s=(cpu,) * 20)


@pytest.mark.parametrize(
    ("eager_wall", "compiled_wall", "disagree"),
    [
        pytest.param(1.0, 1.0, False, id="neither waits"),
        pytest.param(3.0, 3.0, False, id="a busy machine"),
        pytest.param(1.0, 4.0, True, id="compiled waits"),
        pytest.param(4.0, 1.0, False, id="eager waits, which is no merit of compiled"),
    ],
)
def test_a_variant_that_waits_is_detected(
    eager_wall: float, compiled_wall: float, *, disagree: bool
) -> None:
    noise = random.Random(3)  # noqa: S311
    eager, compiled = arm(eager_wall, 1.0, noise), arm(compiled_wall, 1.0, noise)
    assert clocks_disagree(eager, compiled) is disagree


def test_zero_cpu_time_is_a_disagreement_but_a_missing_clock_is_not() -> None:
    noise = random.Random(3)  # noqa: S311
    eager, idle = arm(1.0, 1.0, noise), arm(1.0, 0.0, noise)
    assert clocks_disagree(eager, idle)
    old = Arm(calls=1, samples_s=(1.0,))
    assert not clocks_disagree(old, old)
    assert DISAGREEMENT > 1
