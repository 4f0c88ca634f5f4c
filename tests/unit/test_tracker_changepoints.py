"""Steps in histories: what is one, what is none, and what must not matter."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ivhl.tracker.detection import changepoints
from ivhl.tracker.detection.changepoints import detect, detect_all
from ivhl.tracker.detection.short_series import posterior

NOISE = 0.01


def make(
    n: int = 60, *, steps: dict[int, float] | None = None, seed: int = 0, sd: float = NOISE
) -> list[float]:
    """Return `n` values around 100 with Gaussian noise, and steps: index to factor."""
    x = np.random.default_rng(seed).normal(math.log(100), sd, n)
    for index, factor in (steps or {}).items():
        x[index:] += math.log(factor)
    return [float(value) for value in np.exp(x)]


def two_modes(n: int, seed: int, *, leave: float, offset: float = 0.06) -> list[float]:
    """Return values that are in the upper of two modes for ``1 / leave`` points at a time."""
    rng = np.random.default_rng(seed)
    mode, values = False, []
    for _ in range(n):
        mode ^= bool(rng.random() < leave)
        values.append(100 * math.exp(rng.normal(0, 0.005) + offset * mode))
    return values


@pytest.mark.parametrize("n", range(4))
def test_too_few_points_hold_no_step(n: int) -> None:
    assert detect([1.0, 2.0, 4.0][:n]) == []


@given(
    value=st.floats(allow_nan=False, allow_infinity=False),
    n=st.integers(0, 80),
    some=st.booleans(),
)
def test_equal_values_hold_no_step(value: float, n: int, some: bool) -> None:  # noqa: FBT001
    intervals = [(value, value)] * n if some else None
    assert detect([value] * n, intervals) == []


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("factor", [1.1, 0.9, 1.3, 2.0, 0.5])
@pytest.mark.parametrize("index", [10, 30, 55])
def test_a_clear_step_is_found_where_it_is(seed: int, factor: float, index: int) -> None:
    assert detect(make(steps={index: factor}, seed=seed)) == [index]


@pytest.mark.parametrize("n", [40, 100, 400, 1500])
def test_steps_are_found_in_series_of_any_length(n: int) -> None:
    steps = {n // 4: 1.1, n // 2: 0.85, 3 * n // 4: 1.2}
    assert detect(make(n, steps=steps)) == list(steps)


def test_a_step_of_a_series_without_noise_is_found() -> None:
    assert detect([100.0] * 30 + [102.0] * 20) == [30]


def test_a_step_that_is_too_small_to_matter_is_not_reported() -> None:
    assert detect([100.0] * 30 + [100.9] * 20) == []


def test_noise_holds_few_steps() -> None:
    found = [detect(make(100, seed=seed)) for seed in range(40)]
    assert sum(map(bool, found)) <= 1


@given(index=st.integers(0, 59), factor=st.sampled_from([0.3, 0.8, 1.2, 1.5, 10.0]))
@settings(max_examples=60)
def test_a_spike_is_no_step(index: int, factor: float) -> None:
    values = make()
    values[index] *= factor
    assert detect(values) == []


def test_two_spikes_side_by_side_in_a_series_that_has_them_are_no_step() -> None:
    values = make(80)
    for index in (10, 11, 33, 50, 51, 78, 79):
        values[index] *= 1.3
    assert detect(values) == []


@given(
    seed=st.integers(0, 200),
    power=st.integers(-200, 200),
    factor=st.sampled_from([1.0, 1.05, 0.8]),
)
@settings(max_examples=40, deadline=None)
def test_the_unit_does_not_matter(seed: int, power: int, factor: float) -> None:
    values = make(50, steps={20: factor}, seed=seed, sd=0.02)
    assert detect([value * 10.0**power for value in values]) == detect(values)


@given(seed=st.integers(0, 200), factor=st.sampled_from([1.0, 1.05, 0.8]))
@settings(max_examples=40, deadline=None)
def test_a_rate_has_the_steps_of_its_time(seed: int, factor: float) -> None:
    values = make(50, steps={20: factor}, seed=seed, sd=0.02)
    assert detect([1 / value for value in values]) == detect(values)


def test_the_same_input_gives_the_same_output() -> None:
    values = make(200, steps={50: 1.05, 120: 0.97}, sd=0.02)
    assert detect(values) == detect(list(values)) == detect(tuple(values))


@given(
    st.lists(
        st.one_of(
            st.floats(),
            st.sampled_from([0.0, -1.0, 1.0, 2.0, 1e-320, 1e308, -1e308, math.inf, math.nan]),
        ),
        max_size=50,
    ),
    st.booleans(),
)
@settings(deadline=None)
def test_any_floats_give_indices_of_finite_values(values: list[float], some: bool) -> None:  # noqa: FBT001
    intervals = [(value, value * 1.1) for value in values] if some else None
    found = detect(values, intervals)
    assert found == sorted(set(found))
    assert all(0 < index < len(values) and math.isfinite(values[index]) for index in found)


def test_missing_values_leave_the_index_of_the_others() -> None:
    values = make(steps={30: 1.2})
    for index in (3, 17, 30, 31, 44):
        values[index] = math.nan if index % 2 else math.inf
    assert detect(values) == [32]


def test_counts_that_start_at_zero_have_steps() -> None:
    assert detect([0.0] * 20 + [1.0] * 20) == [20]
    assert detect([4.0] * 20 + [0.0] * 20) == [20]
    assert detect([-3.0] * 20 + [3.0] * 20) == [20]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("leave", [0.5, 0.25])
def test_two_modes_are_not_steps(seed: int, leave: float) -> None:
    assert detect(two_modes(120, seed, leave=leave)) == []


@pytest.mark.parametrize("seed", range(5))
def test_a_step_under_two_modes_is_found(seed: int) -> None:
    values = two_modes(120, seed, leave=0.4)
    (found,) = detect([value * (1.1 if i >= 70 else 1) for i, value in enumerate(values)])
    assert abs(found - 70) <= 1


def test_correlated_noise_holds_few_steps() -> None:
    alarms = 0
    for seed in range(30):
        rng, x = np.random.default_rng(seed), np.zeros(120)
        for i in range(1, 120):
            x[i] = 0.6 * x[i - 1] + rng.normal(0, NOISE)
        alarms += bool(detect([float(value) for value in np.exp(x)]))
    assert alarms <= 3


def test_drift_is_no_step() -> None:
    alarms = [
        bool(detect([value * (1 + i / 3000) for i, value in enumerate(make(120, seed=seed))]))
        for seed in range(20)
    ]
    assert sum(alarms) <= 1


@pytest.mark.parametrize(
    ("growth", "until", "n", "sd"),
    [(0.3, 20, 60, 0.01), (0.1, 30, 60, 0.01), (0.2, 50, 100, 0.02), (0.5, 25, 60, 0.02)],
)
def test_growth_that_ends_is_no_step(growth: float, until: int, n: int, sd: float) -> None:
    x = growth * np.minimum(1, np.arange(n) / until)
    alarms = [bool(detect([*(make(n, seed=seed, sd=sd) * np.exp(x))])) for seed in range(20)]
    assert sum(alarms) <= 5


@pytest.mark.parametrize("factor", [1.25, 0.8])
def test_a_jump_between_two_slopes_is_a_step(factor: float) -> None:
    slope = np.exp(0.08 * np.tile(np.linspace(0, 1, 60), 2))
    for seed in range(10):
        (found,) = detect([*(make(120, seed=seed, steps={60: factor}) * slope)])
        assert abs(found - 60) <= 1


def test_one_point_of_a_new_regime_is_not_enough_and_three_are() -> None:
    values = make(steps={40: 1.2})
    assert detect(values[:41]) == []
    assert detect(values[:43]) == [40]


def test_more_of_the_same_does_not_move_a_step() -> None:
    moved = 0
    for seed in range(10):
        values = make(120, steps={40: 1.06}, seed=seed)
        places = [detect(values[:n]) for n in range(55, 121, 5)]
        moved += any(found != places[0] for found in places)
    assert moved <= 1


def test_each_value_needs_its_interval() -> None:
    with pytest.raises(ValueError, match="5 values need as many intervals, not 4"):
        detect([1.0] * 5, [(0.9, 1.1)] * 4)


def around(values: Sequence[float], half: float) -> list[tuple[float, float]]:
    """Return an interval of relative half width `half` for each value."""
    return [(value * (1 - half), value * (1 + half)) for value in values]


def test_few_points_with_intervals_show_a_large_step() -> None:
    values = [1.51, 1.49, 1.50, 1.20, 1.21]
    assert detect(values, around(values, 0.01)) == [3]


def test_few_points_do_not_show_what_their_intervals_hide() -> None:
    values = [1.51, 1.49, 1.50, 1.45, 1.46]
    assert detect(values, around(values, 0.08)) == []


def test_the_last_point_alone_is_no_step() -> None:
    values = [1.51, 1.49, 1.50, 1.50, 1.51, 1.49, 1.0]
    assert detect(values, around(values, 0.01)) == []


@pytest.mark.parametrize("bad", [(math.nan, 1.0), (2.0, 1.0), (0.0, 0.0), (-1.0, math.inf)])
def test_an_impossible_interval_counts_as_a_typical_one(bad: tuple[float, float]) -> None:
    values = make(40, steps={20: 1.1})
    intervals = around(values, 0.01)
    intervals[5] = bad
    assert detect(values, intervals) == [20]


@pytest.mark.parametrize("n", [5, 12, 30])
def test_probabilities_of_a_step_are_probabilities(n: int) -> None:
    x = np.log(make(n, steps={n // 2: 1.1}))
    p = posterior(x, np.full(n, 0.005))
    assert p.shape == (n,)
    assert p[0] == 0
    assert np.min(p) >= 0
    assert np.max(p) <= 1
    assert np.argmax(p) == n // 2


@pytest.mark.parametrize(
    "n", [5, 33, *(pytest.param(n, marks=pytest.mark.full) for n in (31, 32, 60, 120))]
)
def test_many_series_at_once_have_the_steps_that_each_has_alone(n: int) -> None:
    every: list[list[float]] = []
    for seed in range(0, 20, 2):
        noise = make(n, seed=seed, sd=0.03)
        walk = np.cumsum(np.random.default_rng(seed).normal(0, 0.01, n))
        every += [
            noise,
            make(n, seed=seed, steps={n // 2: 1.0 + 0.02 * seed}),
            make(n, seed=seed, steps={n // 3: 1.1, n // 2: 0.9}),
            two_modes(n, seed, leave=0.2),
            [float(value) for value in np.exp(walk)],
            [round(value, -1) for value in noise],
            [value - 100 for value in noise],
            [*noise[:3], noise[3] * 4, *noise[4:]],
        ]
    every += [[1.0] * n, [0.0] * n, make(n + 4), [math.nan, *make(n)]]
    series = [(values, around(values, 0.001 * (i % 30))) for i, values in enumerate(every)]
    one = make(n, steps={n // 2: 1.2})
    for bad in ((2.0, 1.0), (0.0, 1.0), (1.0, math.inf), (math.nan, 1.0), (-1.0, -2.0)):
        series += [(one, [bad] * n), (one, [bad, *around(one[1:], 0.01)])]
    assert detect_all(series) == [detect(*one) for one in series]
    assert detect_all([]) == []


def test_of_many_quiet_series_few_are_searched_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[object] = []
    alone = changepoints._steps_of_many

    def count(*arguments: object) -> list[int]:
        searched.append(arguments)
        return alone(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(changepoints, "_steps_of_many", count)
    quiet = [make(40, seed=seed, sd=0.03) for seed in range(100)]
    stepped = [make(40, seed=seed, sd=0.01, steps={20: 1.2}) for seed in range(10)]
    found = detect_all([(values, around(values, 0.01)) for values in (*quiet, *stepped)])
    assert found[100:] == [[20]] * 10
    assert 10 <= len(searched) <= 30
