"""The timing of a case: eager before the variant has run, then all arms."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from ivhl.measure.around import Around
from ivhl.measure.calibration import calibrate
from ivhl.measure.failures import CaseError
from ivhl.measure.timing import BRIEF, SCHEDULE, time_arms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ivhl.measure.compilation import VariantArm
    from ivhl.measure.data import Data
    from ivhl.measure.eager import EagerArm
    from ivhl.measure.imports import Setup
    from ivhl.measure.journal import Journal
    from ivhl.measure.timing import Times

# Limit for eager's time in the rounds over its time before the variant ran. A case fails if, in
# every process, all blocks of one lie above all blocks of the other by this factor.
DISTURBED = 1.5


@dataclass(frozen=True, slots=True)
class EagerBefore:
    """What eager took before the variant was first called.

    Attributes:
        samples_s: Seconds of a call, by block.
        calibration: Seconds of the calibration just then.
    """

    samples_s: Sequence[float]
    calibration: dict[str, float]


def time_eager(setup: Setup, call: Callable[[], Any], *names: str) -> EagerBefore:
    """Time eager briefly, before the variant has run; to be called alone on the machine."""
    times = time_arms(
        dict.fromkeys(names, call), clock=setup.clock, schedule=BRIEF, seed=setup.job.seed
    )
    calibration = calibrate(setup.device)
    if "eager_again" in names:
        note_times(setup, times)
    return EagerBefore(next(iter(times.values())).samples_s, calibration)


def time_variant(
    setup: Setup, data: Data, eager: EagerArm, source: Callable[[], Any], variant: VariantArm
) -> tuple[dict[str, Times], list[dict[str, float]]]:
    """Return the times of all arms, and the calibrations before and after."""
    compiled = variant.compiled

    setup.journal.enter("timing")
    arms: dict[str, Callable[[], Any]] = {
        "eager": eager.call,
        "eager_again": eager.call,
        "compiled": compiled.call,
    }
    case = setup.case
    # With the engine ``eager``, the arm ``compiled`` already is the source run eagerly.
    if case.variant.engine != "eager" and (
        case.call != case.workload.eager or setup.variant_dtype != setup.dtype
    ):
        arms["formulation_eager"] = source
    times: dict[str, Times] = {}
    calibrations = [calibrate(setup.device)]
    for last in (False, True):
        mark = compiled.watch.mark() if compiled.watch else None
        times = time_arms(
            arms,
            clock=setup.clock,
            # A verdict needs calls between changes of the data, and no narrow interval.
            schedule=SCHEDULE if setup.job.effort.is_timed else BRIEF,
            seed=setup.job.seed + last,
            bystander=Around(setup, data, eager, variant),
        )
        compiled.note(setup.journal)
        compiled.note_a_fallback()
        if compiled.watch is None or mark is None or not (news := compiled.watch.since(mark)):
            break
        # The times include this compilation. Time once more: Dynamo may have settled.
        if last:
            raise CaseError(
                "recompiles",
                f"{compiled.watch.compiler_name} recompiled while the variant was timed: {news}",
            )
    calibrations.append(calibrate(setup.device))
    setup.journal.note(calibration={k: [c[k] for c in calibrations] for k in calibrations[0]})
    note_times(setup, times)
    return times, calibrations


def compare_with_eager_before(
    journal: Journal,
    earlier: EagerBefore,
    samples_s: Sequence[float],
    calibrations: Sequence[Mapping[str, float]],
) -> None:
    """Note that eager takes another time than before the variant was first called."""
    before, after = earlier.samples_s, samples_s
    # Where others used the memory just then, eager was slow and so was a copy of memory. A
    # machine that is slower later excuses nothing: the variant may have done that, too.
    then = earlier.calibration
    slower_then = max(then[kind] / min(c[kind] for c in calibrations) for kind in then)
    least = min(before) / max(slower_then, 1.0)
    if min(after) > DISTURBED * max(before) or max(after) * DISTURBED < least:
        # Not a failure yet: other load on the machine looks the same, but not in every process
        # of the case.
        journal.note(
            disturbed=f"eager takes {median(after) / median(before):.2g} times as long as "
            "before the variant was first called: the variant changes eager's times"
        )


def note_times(setup: Setup, times: Mapping[str, Times]) -> None:
    """Note the times of arms."""
    setup.journal.note(clock=setup.clock, **{name: asdict(arm) for name, arm in times.items()})
