"""Interleaved timing: in every round each arm runs one block of calls, in balanced order.

Load, clock frequency and temperature change over seconds; they affect the arms of one round
equally, so the ratio is stable. The position of each arm and its predecessor are balanced over the
rounds: an arm finds other caches after a slow arm than after itself.
"""

from __future__ import annotations

import gc
import random
import time
from dataclasses import dataclass, replace
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any

import torch

from ivhl.measure.clocks import Stretch, begin, since
from ivhl.records.record import Arm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ivhl.measure.job import Clock


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """How long to measure in one process.

    Attributes:
        block_s: Approximate duration of one block of calls.
        total_s: Approximate duration of all rounds.
        min_rounds: Fewest rounds.
        max_rounds: Most rounds.
    """

    block_s: float
    total_s: float
    min_rounds: int
    max_rounds: int


@dataclass(frozen=True, slots=True)
class Block:
    """One block of calls.

    Attributes:
        seconds: Per call, by the requested clock.
        wall_s: Per call, elapsed.
        cpu_s: Per call, CPU time of the process and its descendants.
        elsewhere_s: Per call, CPU time of other threads of the process and of its descendants.
        output: Output of a randomly chosen call.
    """

    seconds: float
    wall_s: float
    cpu_s: float
    elsewhere_s: float
    output: Any


@dataclass(slots=True)
class Times:
    """The times of one arm per round, in seconds per call; see ``Block``."""

    calls: int
    samples_s: list[float]
    wall_s: list[float]
    cpu_s: list[float]

    def arm(self) -> Arm:
        """Return the times as an ``Arm`` of a record."""
        return Arm(
            calls=self.calls,
            samples_s=tuple(self.samples_s),
            wall_s=tuple(self.wall_s),
            cpu_s=tuple(self.cpu_s),
        )

    def add(self, block: Block) -> None:
        """Add the block of one round."""
        self.samples_s.append(block.seconds)
        self.wall_s.append(block.wall_s)
        self.cpu_s.append(block.cpu_s)


@dataclass(slots=True)
class Restored:
    """A call that begins from a state: put back before it, read after it, neither of which is timed.

    Attributes:
        call: What is timed.
        restore: Puts the state back.
        read: Takes what the call returned; returns it with a copy of the state.
        each: Whether the state is put back before each call; else, since no call of eager changes
            it, before each block.
    """

    call: Callable[[], Any]
    restore: Callable[[], None]
    read: Callable[[Any], Any]
    each: bool = True

    def __call__(self) -> Any:  # noqa: ANN401  (any pytree)
        """Call once, from the state, and return what was read."""
        self.restore()
        return self.read(self.call())


class Bystander:
    """Hooks before and after each block, outside of the timing; these do nothing.

    Attributes:
        descendants: Processes whose CPU time counts as well.
    """

    descendants: tuple[int, ...] = ()

    def before(self, arm: str, number: int) -> None:
        """Prepare the arm for round ``number``."""

    def after(self, arm: str, number: int, rounds: int, block: Block) -> None:
        """Check what the arm did in round ``number`` of ``rounds``."""


# A separate generator: the harness checks that the state of ``random`` itself does not change.
_CHOICE = random.Random()  # noqa: S311  (unpredictable for the variant, but not a secret)

# Limit for the wall time of a block over ``block_s``; a busy machine stays below it.
MOST_WALL_PER_BLOCK = 10
# The same on a GPU, where flushing takes most of the time of short calls: it does not count.
MOST_WALL_PER_GPU_BLOCK = 2

# More than the L2 cache of any GPU; as much as triton.testing.do_bench writes.
FLUSHED_BYTES = 256 * 2**20

# Flushes before a call that is timed alone, 1 ms or more: meanwhile the CPU gets ahead of the GPU,
# as it is within a block.
FLUSHES_AHEAD = 20

# A call longer than this many blocks finds cold caches, whatever ran before it.
LONG_CALL_BLOCKS = 10

# For a single process: python -m studies.roofline, and the studies that compare other libraries.
FULL = Schedule(block_s=0.02, total_s=6.0, min_rounds=15, max_rounds=101)
QUICK = Schedule(block_s=0.005, total_s=1.0, min_rounds=9, max_rounds=31)
# For each of the two processes of a case. Processes differ several times more than rounds do
# (docs/measuring.md), so more rounds would not improve the estimate.
SCHEDULE = Schedule(block_s=0.01, total_s=0.6, min_rounds=8, max_rounds=40)
# For eager before the variant has run, and for eager alone if compiling fails.
BRIEF = Schedule(block_s=0.01, total_s=0.15, min_rounds=4, max_rounds=8)


def time_block(
    call: Callable[[], Any], calls: int, clock: Clock, descendants: tuple[int, ...] = ()
) -> Block:
    """Time one block of calls."""
    if isinstance(call, Restored):
        return _time_restored(call, calls, clock, descendants)
    if clock == "cuda_event":
        return _time_on_gpu(call, calls)
    # A random call: a variant that is right in some calls only must not know which one is checked.
    chosen = _CHOICE.randrange(calls)
    began = begin(descendants)
    for _ in repeat(None, chosen):
        call()
    output = call()
    for _ in repeat(None, calls - 1 - chosen):
        call()
    took = since(began, descendants)
    return _block(took, calls, took.cpu if clock == "cpu" else took.wall, output)


def _time_restored(
    call: Restored, calls: int, clock: Clock, descendants: tuple[int, ...]
) -> Block:
    """Time calls of which each, or the first, begins from the state."""
    if not call.each:
        call.restore()
        block = time_block(call.call, calls, clock, descendants)
        return replace(block, output=call.read(block.output))
    chosen = _CHOICE.randrange(calls)
    blocks = []
    output = None
    for number in range(calls):
        call.restore()
        blocks.append(time_block(call.call, 1, clock, descendants))
        if number == chosen:
            output = call.read(blocks[-1].output)
        blocks[-1] = replace(blocks[-1], output=None)
    names = ("seconds", "wall_s", "cpu_s", "elsewhere_s")
    means = {name: sum(getattr(block, name) for block in blocks) / calls for name in names}
    return Block(**means, output=output)


def _block(took: Stretch, calls: int, clock_ns: float, output: Any) -> Block:  # noqa: ANN401
    return Block(
        seconds=clock_ns / 1e9 / calls,
        wall_s=took.wall / 1e9 / calls,
        cpu_s=took.cpu / 1e9 / calls,
        elsewhere_s=(took.cpu - took.thread) / 1e9 / calls,
        output=output,
    )


def time_call(call: Callable[[], Any], clock: Clock, descendants: tuple[int, ...] = ()) -> Block:
    """Time a single call as the calls of a block are timed: on a GPU, launched before it runs."""
    if clock == "cuda_event" and not isinstance(call, Restored):
        return _time_on_gpu(call, 1, flushes=FLUSHES_AHEAD)
    return time_block(call, 1, clock, descendants)


def _time_on_gpu(call: Callable[[], Any], calls: int, *, flushes: int = 1) -> Block:
    """Time each call between two CUDA events, each with a cold L2 cache.

    In an application, other work comes between two calls. In consecutive calls, data that fits
    would come from the L2 cache, at twice the speed of the memory. So a buffer is written before
    each call; meanwhile the CPU queues the launches, which then count only where they take longer.
    """
    buffer = torch.empty(FLUSHED_BYTES, dtype=torch.int8, device="cuda")
    windows = []
    began = begin()
    output = None
    for _ in repeat(None, calls):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in repeat(None, flushes):
            buffer.zero_()
        start.record()
        output = call()
        end.record()
        windows.append((start, end))
    torch.cuda.synchronize()
    took = since(began)
    events_ms = float(sum(start.elapsed_time(end) for start, end in windows))
    return _block(took, calls, events_ms * 1e6, output)


def block_length(call: Callable[[], Any], clock: Clock, block_s: float) -> int:
    """Return how many calls take about ``block_s``, found by doubling. Also warms up the arm.

    A call that waits (for a lock, a file, another process) uses no CPU time, and no number of calls
    would fill the block; the wall clock then ends the search.
    """
    call()
    calls = 1
    most = MOST_WALL_PER_GPU_BLOCK if clock == "cuda_event" else MOST_WALL_PER_BLOCK
    while True:
        began = time.perf_counter()
        per_call = time_block(call, calls, clock).seconds
        if per_call * calls >= block_s / 2:
            return max(1, round(block_s / per_call))
        if time.perf_counter() - began >= most * block_s:
            return calls
        calls *= 2


def balanced_orders(names: Sequence[str], seed: int) -> Iterator[tuple[str, ...]]:
    """Yield the order of the arms in each round, without end.

    After each ``design_length`` rounds, every arm has been at every position equally often, and has
    followed every other arm within a round equally often. The assignment of arms to the design and
    the order of its rows are drawn anew each time.

    Source:
        Williams, Australian Journal of Scientific Research A 2 (1949) 149.
    """
    n = len(names)
    first = [(step // 2 + 1 if step % 2 else n - step // 2) % n for step in range(n)]
    rows = [[(place + shift) % n for place in first] for shift in range(n)]
    if n % 2:
        rows += [row[::-1] for row in rows]
    draw = random.Random(seed)  # noqa: S311  (an order, not a secret)
    while True:
        arms = draw.sample(list(names), n)
        for row in draw.sample(rows, len(rows)):
            yield tuple(arms[place] for place in row)


def design_length(n_arms: int) -> int:
    """Return the number of rounds after which the orders are balanced."""
    return 2 * n_arms if n_arms % 2 and n_arms > 1 else n_arms


def time_arms(
    arms: Mapping[str, Callable[[], Any]],
    *,
    clock: Clock,
    schedule: Schedule,
    seed: int,
    bystander: Bystander | None = None,
) -> dict[str, Times]:
    """Time all arms against each other.

    Calibration fixes the number of rounds before the first one: stopping once the interval is
    narrow would bias the interval. An untimed call precedes each block, except for calls so long
    that the previous block does not affect their time.

    Args:
        arms: Name to a call without arguments.
        clock: From ``choose_clock``.
        schedule: How long to measure.
        seed: Seed of the order within the rounds.
        bystander: Hooks around the blocks.

    Returns:
        Times per name, from the same rounds.
    """
    around = bystander or Bystander()
    times: dict[str, Times] = {}
    for name, call in arms.items():
        around.before(name, 0)
        times[name] = Times(block_length(call, clock, schedule.block_s), [], [], [])
    # Time all arms once more, in turn: calibration left the last arm warm and the first one cold.
    began = time.perf_counter()
    took = {n: time_block(c, times[n].calls, clock) for n, c in arms.items()}
    round_s = sum(block.seconds * times[n].calls for n, block in took.items())
    round_s = max(round_s, (time.perf_counter() - began) / MOST_WALL_PER_BLOCK)
    long = {n for n, b in took.items() if b.seconds > LONG_CALL_BLOCKS * schedule.block_s}
    wanted = min(
        max(int(schedule.total_s / max(round_s, 1e-9)), schedule.min_rounds), schedule.max_rounds
    )
    balanced = design_length(len(arms))
    rounds = -(-wanted // balanced) * balanced
    # No collection before either: with a compiler in the process, one takes as long as all rounds.
    collecting = gc.isenabled()
    gc.disable()
    try:
        for number, order in enumerate(islice(balanced_orders(list(arms), seed), rounds)):
            for name in order:
                around.before(name, number)
                if name not in long:
                    arms[name]()
                block = time_block(arms[name], times[name].calls, clock, around.descendants)
                times[name].add(block)
                around.after(name, number, rounds, block)
    finally:
        if collecting:
            gc.enable()
    return times
