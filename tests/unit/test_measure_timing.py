"""Timing runs its arms in balanced order, as often as stated. No test asserts times."""

from __future__ import annotations

import gc
from collections import Counter
from functools import partial
from itertools import islice, pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ivhl.measure import timing
from ivhl.measure.footprint import peak_bytes
from ivhl.measure.imports import Setup
from ivhl.measure.job import choose_clock
from ivhl.measure.timing import (
    Block,
    Bystander,
    Schedule,
    balanced_orders,
    block_length,
    design_length,
    time_arms,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEDULE = Schedule(block_s=1e-4, total_s=5e-3, min_rounds=9, max_rounds=12)


def counting(log: list[str], name: str) -> Callable[[], None]:
    def call() -> None:
        log.append(name)
        sum(range(200))

    return call


def test_every_arm_has_a_sample_of_every_round_and_the_orders_are_balanced() -> None:
    log: list[str] = []
    names = ("a", "b", "c")
    arms = time_arms(
        {name: counting(log, name) for name in names}, clock="wall", schedule=SCHEDULE, seed=0
    )
    assert set(arms) == set(names)
    lengths = {
        len(part) for arm in arms.values() for part in (arm.samples_s, arm.wall_s, arm.cpu_s)
    }
    (rounds,) = lengths
    assert rounds >= SCHEDULE.min_rounds
    assert rounds < SCHEDULE.max_rounds + design_length(3)
    assert rounds % design_length(3) == 0
    assert all(t > 0 for arm in arms.values() for t in arm.samples_s)


@given(st.integers(1, 7), st.integers(0, 5), st.integers(1, 3))
def test_each_arm_is_equally_often_at_each_position_and_after_each_other_arm(
    n: int, seed: int, designs: int
) -> None:
    names = [f"arm {number}" for number in range(n)]
    rounds = list(islice(balanced_orders(names, seed), designs * design_length(n)))
    places = Counter((place, name) for order in rounds for place, name in enumerate(order))
    assert {places[place, name] for place in range(n) for name in names} == {len(rounds) // n}
    after = Counter(pair for order in rounds for pair in pairwise(order))
    assert len({after[a, b] for a in names for b in names if a != b}) <= 1
    assert not any(after[name, name] for name in names)


def test_the_orders_depend_only_on_the_seed() -> None:
    one, again, other = (list(islice(balanced_orders("abcd", s), 40)) for s in (1, 1, 2))
    assert one == again != other


def test_the_bystander_is_called_around_every_block_with_its_output() -> None:
    seen: list[tuple[str, str, int]] = []

    class Notes(Bystander):
        def before(self, arm: str, number: int) -> None:
            seen.append(("before", arm, number))

        def after(self, arm: str, number: int, rounds: int, block: Block) -> None:
            assert block.output == f"of {arm}"
            assert number < rounds
            seen.append(("after", arm, number))

    arms = time_arms(
        {"a": lambda: "of a", "b": lambda: "of b"},
        clock="wall",
        schedule=SCHEDULE,
        seed=0,
        bystander=Notes(),
    )
    rounds = len(arms["a"].samples_s)
    in_rounds = seen[-4 * rounds :]
    for before, after in zip(in_rounds[::2], in_rounds[1::2], strict=True):
        assert (before[0], after[0]) == ("before", "after")
        assert before[1:] == after[1:]


def test_the_kept_output_comes_from_a_random_call_of_the_block() -> None:
    calls = [0]

    def call() -> int:
        calls[0] += 1
        return calls[0] % 4

    kept = {timing.time_block(call, 4, "wall").output for _ in range(200)}
    assert calls[0] == 800
    # The probability that one of four is never taken is below 4 * 0.75**200, or 1e-24.
    assert kept == {0, 1, 2, 3}


def test_a_block_has_the_given_number_of_calls() -> None:
    log: list[str] = []
    arms = time_arms({"a": counting(log, "a")}, clock="wall", schedule=SCHEDULE, seed=0)
    # The last blocks are the rounds; before them are calibration and one block per arm.
    in_rounds = arms["a"].calls * len(arms["a"].samples_s)
    assert len(log) >= in_rounds + arms["a"].calls
    assert Counter(log)["a"] == len(log)


def test_the_garbage_collector_is_off_only_while_timing() -> None:
    seen: set[bool] = set()
    schedule = Schedule(block_s=1e-9, total_s=1e-9, min_rounds=3, max_rounds=3)
    calls = [0]

    def call() -> None:
        calls[0] += 1
        seen.add(gc.isenabled())

    def fail_later() -> None:
        calls[0] += 1
        if calls[0] > 8:
            raise ValueError("late")

    assert gc.isenabled()
    time_arms({"a": call}, clock="wall", schedule=schedule, seed=0)
    assert seen == {True, False}
    assert gc.isenabled()
    with pytest.raises(ValueError, match="late"):
        time_arms({"a": fail_later}, clock="wall", schedule=schedule, seed=0)
    assert gc.isenabled()


def test_a_call_that_only_waits_ends_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    elapsed = [0.0]

    def wait() -> None:
        elapsed[0] += 0.001

    idle = SimpleNamespace(perf_counter=lambda: elapsed[0], process_time_ns=lambda: 0)
    monkeypatch.setattr("ivhl.measure.timing.time", idle)
    # Ten times the block, 20 ms, end it: 16 calls take 16 ms, 32 take 32.
    assert block_length(wait, "cpu", 0.002) == 32
    schedule = Schedule(block_s=0.002, total_s=0.01, min_rounds=3, max_rounds=1000)
    arms = time_arms({"a": wait}, clock="cpu", schedule=schedule, seed=0)
    assert len(arms["a"].samples_s) == 3


def test_a_slow_call_makes_blocks_of_one() -> None:
    assert block_length(partial(sum, range(200_000)), "wall", 1e-6) == 1


def test_on_a_gpu_each_call_has_its_own_events(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    milliseconds = iter((1.0, 2.0, 6.0))

    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            log.append("event")

        def elapsed_time(self, end: Event) -> float:
            assert isinstance(end, Event)
            assert log[-1] == "synchronize"
            return next(milliseconds)

    # Replaces only what needs a GPU, and logs the order in which it gets its work.
    gpu = SimpleNamespace(Event=Event, synchronize=lambda: log.append("synchronize"))
    buffer = SimpleNamespace(zero_=lambda: log.append("flush"))
    monkeypatch.setattr(
        timing,
        "torch",
        SimpleNamespace(cuda=gpu, int8=torch.int8, empty=lambda *_, **__: buffer),
    )
    block = timing.time_block(lambda: log.append("call"), 3, "cuda_event")
    assert block.seconds == pytest.approx(3e-3)
    assert log == ["flush", "event", "call", "event"] * 3 + ["synchronize"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_a_gpu_returns_positive_times() -> None:
    x = torch.rand(64, 64, device="cuda")
    assert timing.time_block(partial(torch.mm, x, x), 5, "cuda_event").seconds > 0.0


@pytest.mark.parametrize(
    ("device", "threads", "clock"),
    [("cpu", 1, "cpu"), ("cpu", 2, "wall"), ("cuda", 1, "cuda_event"), ("xpu", 1, "wall")],
)
def test_the_clock_follows_device_and_threads(device: str, threads: int, clock: str) -> None:
    assert choose_clock(device, threads) == clock


@pytest.mark.parametrize(
    ("device", "waited"), [("cpu", 0), ("cuda", 0), ("xpu", 3), ("privateuseone", 3)]
)
def test_elapsed_time_includes_what_the_device_still_runs(device: str, waited: int) -> None:
    """Without CUDA's events, a call that only launches would look fast."""
    log: list[str] = []
    module = SimpleNamespace(synchronize=lambda: log.append("waited"))
    setup: Any = object.__new__(Setup)
    object.__setattr__(setup, "torch", SimpleNamespace(**{device: module}))
    object.__setattr__(setup, "device", torch.device(device))

    def call() -> str:
        log.append("called")
        return "result"

    restored = timing.Restored(call, lambda: log.append("restored"), lambda output: output)
    assert setup.timed(call)() == "result"
    assert timing.time_block(setup.timed(call), 1, "wall").output == "result"
    assert timing.time_block(setup.timed(restored), 1, "wall").output == "result"
    assert isinstance(setup.timed(restored), timing.Restored)  # or restoring would be timed
    assert log.count("waited") == waited
    assert not waited or log[-3:] == ["restored", "called", "waited"]
    if device == "cpu":
        assert setup.timed(call) is call


@pytest.mark.filterwarnings("ignore")  # a warning of the profiler
def test_the_peak_is_the_largest_sum_of_live_bytes() -> None:
    n = 1 << 16
    x = torch.rand(n)
    cpu = torch.device("cpu")
    assert peak_bytes(x.sin, cpu) == 4 * n
    # Three at once: the two terms, and their sum.
    assert peak_bytes(lambda: x.sin() + x.cos(), cpu) == 3 * 4 * n
    # One after the other: two at once.
    assert peak_bytes(lambda: x.sin().cos().exp(), cpu) == 2 * 4 * n
    assert peak_bytes(lambda: 3, cpu) is None
