"""Run the variant's own source eagerly, before the compiler could be blamed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ivhl.measure.draws import cast, made_of
from ivhl.measure.failures import CaseError
from ivhl.measure.state import Unchanged

if TYPE_CHECKING:
    from collections.abc import Callable

    from ivhl.measure.anchors import Anchors
    from ivhl.measure.data import Data
    from ivhl.measure.eager import EagerArm
    from ivhl.measure.imports import Functions, Setup
    from ivhl.measure.judge import OutputJudge


def run_source(
    setup: Setup,
    functions: Functions,
    data: Data,
    eager: EagerArm,
    *,
    anchors: Anchors,
    judge: OutputJudge,
) -> Callable[[], Any]:
    """Judge the variant's own source on every draw, and return its call."""
    subject = functions.subject
    setup.journal.enter("eager")
    data.use(0)
    state = Unchanged(subject.eager, eager.allowed)
    arm = subject.variant_arm(
        lambda function: function, data.variant_inputs, subject.variant_copy()
    )
    source = subject.with_same_numbers(arm)
    for number in range(len(data.draws)):
        data.use(number)
        outputs = data.detached(source())
        anchors.note_source(outputs, eager.anchors[number])
        if subject.is_own_source:
            which = "the variant's own source, run eagerly: its"
            judge.judge(outputs, eager.anchors[number], which)
    if subject.is_own_source:
        state.refuse_changes("the variant's own source")
    return source


def refuse_work_beside_the_call(
    setup: Setup, functions: Functions, data: Data, source: Callable[[], Any]
) -> None:
    """Refuse a ``prepare`` or ``finish`` that computes: no clock runs while they do.

    They may rearrange numbers, and compute from ``fixed`` inputs, as an application would do
    once. So every prepared number that differs between draws must be a number of the inputs,
    and every number that ``finish`` returns must be one of the call's outputs, up to the sign.
    """
    variant = setup.case.variant
    if variant.prepare and len(data.draws) > 1:
        own = cast(data.draws[0], setup.variant_dtype, setup.device)
        if not made_of(data.variant_draws[0], own, unlike=data.variant_draws[1]):
            raise CaseError(
                "side_effect",
                f"{variant.prepare} does work of the call without being timed: it may only "
                "rearrange numbers, or compute from `fixed` inputs",
            )
    if functions.finish:
        data.use(0)
        outputs = source()
        if not made_of(functions.finish(outputs), outputs):
            raise CaseError(
                "side_effect",
                f"{variant.finish} does work of the call without being timed: it may only "
                "rearrange numbers",
            )
