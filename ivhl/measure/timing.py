"""Interleaved timing: in every round each arm runs one block of calls, in random order.

Load, clock frequency and heat change over seconds; arms of one round see the same of it, so their
ratio does not. Which arm comes first is drawn anew in each round, because the first one after a
pause is systematically slower.
"""

from __future__ import annotations

import gc
import random
import time
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any

import torch

from ivhl.records import Arm

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ivhl.measure.job import Clock


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """How long to measure.

    Attributes:
        block_s: A block has as many calls as take about this long.
        total_s: Rounds are added until about this much is used.
        min_rounds: Never fewer; 9 is the least that gives a 95 % interval inside the extremes.
        max_rounds: Never more.
    """

    block_s: float
    total_s: float
    min_rounds: int
    max_rounds: int


# Wall time of a block over what its own clock may say: above what a busy machine causes.
MOST_WALL_PER_BLOCK = 10

# More than the L2 cache of any GPU; as much as triton.testing.do_bench writes.
FLUSHED_BYTES = 256 * 2**20

FULL = Effort(block_s=0.02, total_s=6.0, min_rounds=15, max_rounds=101)
QUICK = Effort(block_s=0.005, total_s=1.0, min_rounds=9, max_rounds=31)


def time_block(call: Callable[[], Any], calls: int, clock: Clock) -> float:
    """Return seconds per call of one block."""
    if clock == "cuda_event":
        return _time_on_gpu(call, calls)
    now = time.process_time_ns if clock == "cpu" else time.perf_counter_ns
    began = now()
    for _ in repeat(None, calls):
        call()
    return (now() - began) / 1e9 / calls


def _time_on_gpu(call: Callable[[], Any], calls: int) -> float:
    """Return seconds per call between two events around each, each with a cold L2 cache.

    In a program other work comes between two calls; call after call, whatever fits would be read
    from the cache at twice the speed of the memory. While the GPU writes the buffer, the CPU is
    ahead with its launches, so that these count only as far as they take longer than that.
    """
    buffer = torch.empty(FLUSHED_BYTES, dtype=torch.int8, device="cuda")
    windows = []
    for _ in repeat(None, calls):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        buffer.zero_()
        start.record()
        call()
        end.record()
        windows.append((start, end))
    torch.cuda.synchronize()
    return float(sum(start.elapsed_time(end) for start, end in windows)) / 1e3 / calls


def block_length(call: Callable[[], Any], clock: Clock, block_s: float) -> int:
    """Return how many calls take about ``block_s``, found by doubling; warms the arm up too.

    A call that waits (for a lock, a file, another process) spends no CPU time, and no number of
    calls would fill the block; the wall clock then ends the search.
    """
    call()
    calls = 1
    while True:
        began = time.perf_counter()
        per_call = time_block(call, calls, clock)
        if per_call * calls >= block_s / 2:
            return max(1, round(block_s / per_call))
        if time.perf_counter() - began >= MOST_WALL_PER_BLOCK * block_s:
            return calls
        calls *= 2


def time_arms(
    arms: Mapping[str, Callable[[], Any]], *, clock: Clock, effort: Effort, seed: int
) -> dict[str, Arm]:
    """Time all arms against each other.

    The number of rounds is fixed before the first one, from the calibration: stopping when the
    interval looks good would make the interval a lie.

    Args:
        arms: Name to a call without arguments.
        clock: From ``choose_clock``.
        effort: How long to measure.
        seed: Of the order within the rounds.

    Returns:
        One ``Arm`` per name, all with the same number of samples.
    """
    calls = {name: block_length(call, clock, effort.block_s) for name, call in arms.items()}
    # Once more in the order of the rounds: calibration left the last arm warm and the first cold.
    began = time.perf_counter()
    round_s = sum(time_block(call, calls[n], clock) * calls[n] for n, call in arms.items())
    round_s = max(round_s, (time.perf_counter() - began) / MOST_WALL_PER_BLOCK)
    wanted = int(effort.total_s / max(round_s, 1e-9))
    rounds = min(max(wanted, effort.min_rounds), effort.max_rounds)
    samples: dict[str, list[float]] = {name: [] for name in arms}
    order = list(arms)
    shuffle = random.Random(seed).shuffle  # noqa: S311  (an order, not a secret)
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            shuffle(order)
            for name in order:
                samples[name].append(time_block(arms[name], calls[name], clock))
    finally:
        if collecting:
            gc.enable()
    return {n: Arm(calls=calls[n], samples_s=tuple(samples[n])) for n in arms}
