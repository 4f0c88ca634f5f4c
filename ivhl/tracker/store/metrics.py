"""The measured quantities by which two runs of a case are compared, each with its own noise."""

from __future__ import annotations

import math
import re
from itertools import accumulate, compress, pairwise
from statistics import NormalDist, fmean, median, stdev
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, get_args

from ivhl.records.record import Arm, Interval, RunRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


Metric = Literal["speedup", "aa", "eager", "compiled", "cold", "warm", "memory"]
METRICS: tuple[Metric, ...] = get_args(Metric)
# Those whose change is judged. A/A only shows the noise.
JUDGED: Final[tuple[Metric, ...]] = ("compiled", "speedup", "eager", "cold", "warm", "memory")
# The operands of the speedup.
SIDES: Final[tuple[Metric, ...]] = ("eager", "compiled")
# Those that the speed of the machine moves, and the calibration corrects.
SECONDS: Final[frozenset[Metric]] = frozenset({"eager", "compiled", "cold", "warm"})
_LONGER: Final = {"aa": "A/A", "cold": "cold compile", "warm": "warm compile"}
WORDS: Final[dict[Metric, str]] = {metric: _LONGER.get(metric, metric) for metric in METRICS}
# Smallest change that is relevant, as a factor.
RELEVANT: Final[dict[Metric, float]] = {
    "speedup": 1.03, "compiled": 1.03, "eager": 1.03, "cold": 1.1, "warm": 1.1, "memory": 1.05,
}  # fmt: skip
STANDARD: Final = NormalDist()
NORMAL_95: Final = STANDARD.inv_cdf(0.975)
# A calibration was disturbed if it is longer by more than this factor than the shortest of its run.
# Of the 2160 processes of vm-core1, 97 % are within 1.03x of the median and 2 % beyond 1.2x, so that
# any factor between says nearly the same (docs/measuring.md).
DISTURBED: Final = 1.1
_OTHER_SINE: Final = (2, 5)
# With more processes, their medians show the error better than the rounds.
MANY_PROCESSES = 3
# Standard error of a median over that of a mean, for normal noise.
MEDIAN_ERROR: Final = math.sqrt(math.pi / 2)


class Measured(NamedTuple):
    """A quantity of one run.

    Attributes:
        value: A ratio, seconds or bytes; above 0.
        error: Standard error of its logarithm, from the rounds of the run; 0 if there are none.
    """

    value: float
    error: float


class Speed(NamedTuple):
    """How fast the machine was: the seconds of a yardstick.

    Attributes:
        value: Seconds, above 0.
        error: Standard error of the logarithm of ``value``.
        yardstick: Name of the work that was timed. Speeds by two yardsticks say nothing together.
    """

    value: float
    error: float
    yardstick: str


class Quantities(Protocol):
    """What an index keeps of a record: its quantities."""

    @property
    def values(self) -> Mapping[Metric, Measured]: ...  # noqa: D102
    @property
    def calibration(self) -> Speed | None: ...  # noqa: D102


Run = RunRecord | Quantities


def measured(record: Run, metric: Metric) -> Measured | None:
    """Return a quantity of a run; ``None`` if the record lacks it.

    Compile seconds are CPU seconds of the process and its descendants. ``cold`` is ``None`` if it
    was measured in an earlier run, whose compiled code this one used.
    """
    return (
        _of_record(record, metric) if isinstance(record, RunRecord) else record.values.get(metric)
    )


def quantities_of(record: RunRecord) -> dict[Metric, Measured]:
    """Return all quantities that a record has; what they share is computed once."""
    quiet = _quiet(record)
    found = ((metric, _of_record(record, metric, quiet)) for metric in METRICS)
    return {metric: value for metric, value in found if value is not None}


def _of_record(
    record: RunRecord, metric: Metric, quiet: Sequence[bool] | None = None
) -> Measured | None:
    if metric in ("speedup", "aa"):
        found: Interval | None = record.speedup if metric == "speedup" else record.aa
        return None if found is None else _positive(found.value, _interval_error(found))
    if metric in ("eager", "compiled"):
        arm = record.eager if metric == "eager" else record.compiled
        if arm is None or record.failure is not None:
            return None
        return _seconds(arm, record.rounds, _quiet(record) if quiet is None else quiet)
    if metric == "memory":
        peak = record.memory.compiled_peak if record.memory else None
        return None if peak is None else _positive(float(peak), 0.0)
    facts = record.compile
    if facts is None or (metric == "cold" and facts.cold_at is not None):
        return None
    cpu, wall = (
        (facts.cold_cpu_s, facts.cold_s) if metric == "cold" else (facts.warm_cpu_s, facts.warm_s)
    )
    return _positive(cpu if cpu is not None else wall or 0.0, 0.0)


def speed_of_machine(record: Run) -> Speed | None:
    """Return the seconds of the calibration, with their error; ``None`` without one.

    The geometric mean over the processes of a run that were not disturbed (``DISTURBED``). Of what a
    process measured before and after its rounds, the shorter counts: a disturbance of those
    milliseconds is not one of the rounds, whose median forgets it. Where most of a run's were
    disturbed, so were the rounds, and all of them count.
    """
    if not isinstance(record, RunRecord):
        return record.calibration
    yardstick, seconds = _yardstick(record)
    if not seconds or min(seconds) <= 0:
        return None
    shorter, quiet = _shorter(seconds), _quiet(record)
    counted = [*compress(shorter, quiet)]
    logs = [math.log(one) for one in counted or seconds]
    n_processes = len(counted or shorter)
    error = stdev(logs) / math.sqrt(n_processes) if len(logs) > 1 else 0.0
    found = _positive(math.exp(fmean(logs)), error)
    return None if found is None else Speed(*found, yardstick)


def _yardstick(record: RunRecord) -> tuple[str, Sequence[float]]:
    """Return what work a record's calibration timed, and its seconds; none without one.

    The sine of torch is MKL's on x86-64, which chooses its code by processor. Between PyTorch 2.4.1
    and 2.5.1 that for AVX-512 on Intel's became 1.12x faster; on AMD's all 30 cells agree within 2 %
    (docs/measuring.md). So elsewhere than there both are yardsticks of their own.
    """
    calibration = record.calibration
    if calibration is None:
        return "", ()
    if calibration.code_s:
        return "machine code", calibration.code_s
    release = re.match(r"(\d+)\.(\d+)", record.cell.torch)
    older = release is not None and (int(release[1]), int(release[2])) < _OTHER_SINE
    one_sine = record.machine.cpu.startswith("AMD") or record.conditions.clock == "cuda_event"
    name = "sine before PyTorch 2.5" if older and not one_sine else "sine"
    return name, calibration.compute_s


def _shorter(seconds: Sequence[float]) -> tuple[float, ...]:
    """Return the shorter calibration of each process: before its rounds, or after them."""
    return tuple(min(seconds[i : i + 2]) for i in range(0, len(seconds), 2))


def _quiet(record: RunRecord) -> tuple[bool, ...]:
    """Return of each process with a calibration whether it was not disturbed.

    None of them where most calibrations of the run were disturbed. All of them on a GPU, whose clock
    does not see what slows the processor.
    """
    _, seconds = _yardstick(record)
    shorter = _shorter(seconds)
    if record.conditions.clock == "cuda_event":
        return (True,) * len(shorter)
    limit = DISTURBED * min(seconds, default=0.0)
    most = 2 * sum(one > limit for one in seconds) > len(seconds)
    return tuple(one <= limit and not most for one in shorter)


def difference(before: Run, after: Run, metric: Metric) -> float | None:
    """Return the logarithm of ``after`` over ``before``; ``None`` if either lacks the quantity.

    Seconds are divided by those of the calibration, if both records have it of one yardstick.
    """
    was, now = measured(before, metric), measured(after, metric)
    if was is None or now is None:
        return None
    found = math.log(now.value / was.value)
    if metric in SECONDS and (slower := slowdown(before, after)) is not None:
        found -= slower
    return found


def slowdown(before: Run, after: Run) -> float | None:
    """Return the logarithm of how much slower the machine was; ``None`` without one yardstick."""
    was, now = speed_of_machine(before), speed_of_machine(after)
    if was is None or now is None or was.yardstick != now.yardstick:
        return None
    return math.log(now.value / was.value)


def differences_in_turns(before: RunRecord, after: RunRecord, metric: Metric) -> tuple[float, ...]:
    """Return ``after`` over ``before``, as a logarithm, of each pair of processes that took turns.

    Both ran within seconds, so what the machine did meanwhile is in neither. Empty if either run
    lacks the quantity.
    """
    was, now = _by_process(before, metric), _by_process(after, metric)
    return tuple(late - early for early, late in zip(was, now, strict=False))


def _by_process(record: RunRecord, metric: Metric) -> tuple[float, ...]:
    """Return the logarithm of the quantity in each process; for the speedup, of paired rounds."""
    eager, compiled = record.eager, record.compiled
    if record.failure is not None or eager is None or compiled is None:
        return ()
    if metric == "speedup":
        samples: tuple[float, ...] = tuple(
            e / c if c > 0 else 0.0
            for e, c in zip(eager.samples_s, compiled.samples_s, strict=True)
        )
    else:
        samples = (eager if metric == "eager" else compiled).samples_s
    parts = _parts(samples, record.rounds)
    return tuple(math.log(median(part)) for part in parts) if min(samples) > 0 else ()


def is_calibrated(before: Run, after: Run, metric: Metric) -> bool:
    """Return whether ``difference`` takes the speed of the machine out."""
    return metric in SECONDS and slowdown(before, after) is not None


def within(record: Run, metric: Metric = "speedup", *, calibrated: bool = False) -> float:
    """Return the standard error of a quantity's logarithm, from the run itself; 0 if unknown.

    Args:
        record: The run.
        metric: Which quantity.
        calibrated: Whether it is taken relative to the speed of the machine, which has its own
            error.
    """
    found = measured(record, metric)
    error = 0.0 if found is None else found.error
    speed = speed_of_machine(record) if calibrated else None
    return error if speed is None else math.hypot(error, speed.error)


def student(z: float, freedom: int) -> float:
    """Return the t with the tail probability of a normal deviate, by Wallace's approximation."""
    scaled = z * (8 * freedom + 3) / (8 * freedom + 1)
    return math.sqrt(freedom * math.expm1(scaled * scaled / freedom))


def _positive(value: float, error: float) -> Measured | None:
    return Measured(value, error) if 0 < value < math.inf else None


def _interval_error(found: Interval) -> float:
    if not 0 < found.low <= found.high:
        return 0.0
    return math.log(found.high / found.low) / (2 * STANDARD.inv_cdf((1 + found.confidence) / 2))


def _seconds(arm: Arm, rounds: Sequence[int], quiet: Sequence[bool]) -> Measured | None:
    """Return the geometric mean of the medians of the processes.

    A process is left out if its calibration was disturbed and it took longer than the quiet ones.
    What disturbs a process beside the calibration shows in how far the processes differ, so few
    processes have at least the error which that implies: with two, either is within one error.

    Args:
        arm: The samples.
        rounds: Their number in each process.
        quiet: Which processes were not disturbed (``_quiet``); of another number than the
            processes that were timed, it says nothing of them.
    """
    if min(arm.samples_s) <= 0:
        return _positive(median(arm.samples_s), 0.0)
    parts = _parts(arm.samples_s, rounds)
    if len(quiet) == len(parts) and any(quiet):
        middles = [median(part) for part in parts]
        longest = max(compress(middles, quiet))
        parts = [part for part, middle in zip(parts, middles, strict=True) if middle <= longest]
        medians = [math.log(middle) for middle in middles if middle <= longest]
    else:
        medians = [math.log(median(part)) for part in parts]
    error = _samples_error([seconds for part in parts for seconds in part])
    if len(medians) > 1:
        between = stdev(medians) / math.sqrt(len(medians))
        error = between if len(medians) > MANY_PROCESSES else max(error, between)
    return _positive(math.exp(fmean(medians)), error)


def _parts(samples: Sequence[float], rounds: Sequence[int]) -> list[Sequence[float]]:
    """Return the samples of each process."""
    ends = [*accumulate(rounds)] if sum(rounds) == len(samples) else [len(samples)]
    return [samples[a:b] for a, b in pairwise([0, *ends]) if b > a]


def _samples_error(samples: Iterable[float]) -> float:
    logs = [math.log(seconds) for seconds in samples if seconds > 0]
    return MEDIAN_ERROR * _spread(logs) / math.sqrt(len(logs)) if len(logs) > 1 else 0.0


def _spread(values: Sequence[float]) -> float:
    """Return the standard deviation, robust against single slow rounds if there are enough."""
    middle = median(values)
    robust = 1.4826 * median(abs(value - middle) for value in values)
    return robust or stdev(values)
