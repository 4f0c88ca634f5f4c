"""The timing of a case: eager before the variant has run, then all arms, with checks between."""

from __future__ import annotations

import gc
import random
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from ivhl.measure.calibration import calibrate
from ivhl.measure.failures import CaseError
from ivhl.measure.supervisor import living_descendants
from ivhl.measure.timing import BRIEF, SCHEDULE, Bystander, time_arms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ivhl.measure.compilation import VariantArm
    from ivhl.measure.eager import Begun
    from ivhl.measure.imports import Setup
    from ivhl.measure.journal import Journal
    from ivhl.measure.timing import Block, Times

# Limit for eager's time in the rounds over its time before the variant ran. A case fails if, in
# every process, all blocks of one lie above all blocks of the other by this factor.
DISTURBED = 1.5
# Most CPU time of other threads and processes during eager's blocks, as a fraction of eager's.
ELSEWHERE = 0.05
# Fraction of the blocks whose output is judged, besides the first, the middle and the last block.
LOOKS = 0.1


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
    arms = dict.fromkeys(names, setup.timed(call))
    times = time_arms(arms, clock=setup.clock, schedule=BRIEF, seed=setup.job.seed)
    calibration = calibrate(setup.device)
    if "eager_again" in names:
        note_times(setup, times)
    return EagerBefore(next(iter(times.values())).samples_s, calibration)


def time_variant(
    begun: Begun, source: Callable[[], Any], variant: VariantArm
) -> tuple[dict[str, Times], list[dict[str, float]]]:
    """Return the times of all arms, and the calibrations before and after."""
    setup, compiled, eager = begun.setup, variant.compiled, begun.eager.call
    setup.journal.enter("timing")
    arms = {"eager": eager, "eager_again": eager, "compiled": compiled.call}
    case = setup.case
    # With the engine ``eager``, the arm ``compiled`` already is the source run eagerly.
    if case.variant.engine != "eager" and (
        case.call != case.workload.eager or setup.variant_dtype != setup.dtype
    ):
        arms["formulation_eager"] = source
    arms = {name: setup.timed(call) for name, call in arms.items()}
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
            bystander=Around(begun, variant),
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


class Around(Bystander):
    """Changes the data before each block, and checks outputs, inputs and process after it.

    Args:
        begun: What the phases before the compiler have made.
        variant: The compiled code.
    """

    def __init__(self, begun: Begun, variant: VariantArm) -> None:
        self._setup, self._data = begun.setup, begun.data
        self._eager, self._variant = begun.eager, variant
        # The number of the draw, in a list of one.
        self._draw = [0]
        self._look = random.Random(begun.setup.job.seed)  # noqa: S311  (a choice, not a secret)
        self.descendants = living_descendants()

    def before(self, arm: str, number: int) -> None:
        """Copy in the draw of this round."""
        del arm
        self._draw[0] = self._data.use(number)
        self._setup.synchronize()

    def after(self, arm: str, number: int, rounds: int, block: Block) -> None:
        """Refuse an arm with wrong outputs, or one that affects the times of other arms."""
        setup, variant, draw = self._setup, self._variant, self._draw[0]
        looked = number in (0, rounds // 2, rounds - 1) or self._look.random() < LOOKS
        if arm in ("eager", "eager_again"):
            busy = block.elsewhere_s > ELSEWHERE * block.cpu_s and setup.job.effort.threads == 1
            if busy and setup.device.type == "cpu":
                raise CaseError(
                    "side_effect",
                    f"while eager was timed, other threads and processes used "
                    f"{block.elsewhere_s / block.cpu_s:.0%} of the CPU time",
                )
            if looked:
                self._data.refuse_changed_eager_inputs(draw)
            return
        # Read the outputs first: work left undone when the clock stopped must not finish unnoticed.
        outputs = self._data.detached(block.output) if arm == "compiled" and looked else None
        variant.state.refuse_changes(f"the arm {arm!r}")
        if gc.isenabled():
            raise CaseError("side_effect", f"the arm {arm!r} turns the garbage collector on")
        if outputs is not None:
            which = f"the output after round {number + 1} of {rounds}: its"
            variant.judge.judge(outputs, self._eager.anchors[draw], which)
            self._data.refuse_changed_inputs(draw)
        if number == rounds - 1 and (new := set(living_descendants()) - set(self.descendants)):
            raise CaseError(
                "side_effect", f"{len(new)} process(es) were started while arms were timed"
            )
