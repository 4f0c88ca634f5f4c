"""Run eager code, before the compiler could be blamed: baseline and the variant's own source."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ivhl.measure.accuracy import values_of
from ivhl.measure.anchors import note_accuracy
from ivhl.measure.data import leaves_in
from ivhl.measure.draws import cast, made_of
from ivhl.measure.failures import CaseError
from ivhl.measure.state import RANDOM_STATES, Unchanged, changes, differing, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from ivhl.measure.anchors import Anchor, Anchors
    from ivhl.measure.data import Data
    from ivhl.measure.imports import Functions, Setup
    from ivhl.measure.judge import OutputJudge
    from ivhl.measure.leaves import Leaves
    from ivhl.measure.subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class EagerArm:
    """Eager, which was judged on every draw.

    Attributes:
        call: Calls it on the inputs of ``Data``.
        anchors: What outputs are judged by, for each draw.
        allowed: What eager changes of the process, and a variant may change, too.
        reuses_memory: Whether a call returns the memory that the call before it returned.
    """

    call: Callable[[], Any]
    anchors: list[Anchor]
    allowed: frozenset[str]
    reuses_memory: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """What the phases before the compiler have made.

    Attributes:
        setup: The process.
        functions: Those of the workload.
        data: The inputs.
        eager: The eager arm.
        anchors: Judges eager.
        judge: Judges the variant.
    """

    setup: Setup
    functions: Functions
    data: Data
    eager: EagerArm
    anchors: Anchors
    judge: OutputJudge


def try_eager(data: Data, subject: Subject, call: Callable[[], Any]) -> frozenset[str]:
    """Call eager once, before the reference could be blamed for what cannot run at all.

    Returns what of the random numbers eager changes.
    """
    data.use(0)
    before = snapshot(subject.eager)
    subject.note_random_numbers(call)
    return refuse_eager_that_changes(subject, before, frozenset())


def run_eager(
    setup: Setup,
    data: Data,
    subject: Subject,
    call: Callable[[], Any],
    *,
    references: list[dict[str, Any]],
    judge: Anchors,
    allowed: frozenset[str],
) -> EagerArm:
    """Judge eager on every draw; refuse it if it changes its inputs or the process."""
    setup.journal.enter("eager")
    anchors: list[Anchor] = []
    data.use(0)
    before = snapshot(subject.eager)
    places = []
    values: tuple[tuple[float, ...], ...] = ()
    for number in range(len(data.draws)):
        data.use(number)
        returned = call()
        outputs = leaves_in(returned)
        if number == 0:
            values = tuple(map(values_of, outputs.tensors.values()))
        places.append([(t, t.data_ptr()) for t in outputs.tensors.values()])
        data.eager_types |= set(outputs.types.values())
        data.refuse_changed_eager_inputs(number)
        # Leaves of a model are copies already; a function may overwrite its last outputs.
        first = outputs if outputs is returned else outputs.copied()
        try:
            anchors.append(judge.anchor_of(outputs, data.draws[number], references[number]))
        except CaseError as error:
            data.use(number)
            hint = "" if subject.draws_random_numbers else _hint(setup, first, call)
            raise CaseError(error.failure_class, f"{error}{hint}") from None
        subject.note_eager(outputs)
    if not subject.draws_random_numbers:
        for anchor in anchors:
            anchor.errors = tuple(
                replace(error, values=of_output)
                for error, of_output in zip(anchor.errors, values, strict=True)
            )
    judge.note_largest_errors(anchors)
    call = subject.with_same_numbers(call)
    allowed = refuse_eager_that_changes(subject, before, allowed)
    reuses_memory = share_memory(*places[:2]) if len(places) > 1 else True
    note_accuracy(setup, anchors[0].errors)
    return EagerArm(call=call, anchors=anchors, allowed=allowed, reuses_memory=reuses_memory)


def _hint(setup: Setup, first: Leaves, call: Callable[[], Any]) -> str:
    """Return why eager differs from its reference, if its next call differs from the first."""
    with suppress(Exception):  # whatever this call raises, the first error stands
        again = leaves_in(call()).tensors.values()
        pairs = zip(first.tensors.values(), again, strict=False)
        if not all(setup.torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs):
            return (
                "; eager's next call on the same inputs has another result: the code keeps what "
                "a call changes (a counter, a cache, a random generator): take that from the "
                "inputs, or set it each time"
            )
    return ""


def refuse_eager_that_changes(
    subject: Subject, before: dict[str, Any], allowed: frozenset[str]
) -> frozenset[str]:
    """Refuse eager if it changes the process; return what is allowed to change from now on."""
    # If eager draws random numbers, a variant may draw them, too.
    allowed |= RANDOM_STATES & set(differing(before, snapshot(subject.eager)))
    if changed := changes(before, snapshot(subject.eager), allowed):
        raise CaseError("eager_failed", f"eager changes the process: {'; '.join(changed)}")
    return allowed


def share_memory(one: list[tuple[Any, int]], other: list[tuple[Any, int]]) -> bool:
    """Return whether the outputs of two calls, both still referenced, share an address."""
    return any(
        a == b and tensor.numel() > 0 for (tensor, a), (_, b) in zip(one, other, strict=False)
    )


def run_source(begun: Begun) -> Callable[[], Any]:
    """Judge the variant's own source on every draw, and return its call."""
    subject, data, eager = begun.functions.subject, begun.data, begun.eager
    begun.setup.journal.enter("eager")
    data.use(0)
    state = Unchanged(subject.eager, eager.allowed)
    arm = subject.variant_arm(
        lambda function: function, data.variant_inputs, subject.variant_copy()
    )
    source = subject.with_same_numbers(arm)
    for number in range(len(data.draws)):
        data.use(number)
        outputs = data.detached(source())
        begun.anchors.note_source(outputs, eager.anchors[number])
        if subject.is_own_source:
            which = "the variant's own source, run eagerly: its"
            begun.judge.judge(outputs, eager.anchors[number], which)
    if subject.is_own_source:
        state.refuse_changes("the variant's own source")
    return source


def refuse_work_beside_the_call(begun: Begun, source: Callable[[], Any]) -> None:
    """Refuse a ``prepare`` or ``finish`` that computes: no clock runs while they do.

    They may rearrange numbers, and compute from ``fixed`` inputs, as an application would do
    once. So every prepared number that differs between draws must be a number of the inputs,
    and every number that ``finish`` returns must be one of the call's outputs, up to the sign.
    """
    setup, data, finish = begun.setup, begun.data, begun.functions.finish
    variant = setup.case.variant
    if variant.prepare and len(data.draws) > 1:
        own = cast(data.draws[0], setup.variant_dtype, setup.device)
        if not made_of(data.variant_draws[0], own, unlike=data.variant_draws[1]):
            raise CaseError(
                "side_effect",
                f"{variant.prepare} does work of the call without being timed: it may only "
                "rearrange numbers, or compute from `fixed` inputs",
            )
    if finish:
        data.use(0)
        outputs = source()
        if not made_of(finish(outputs), outputs):
            raise CaseError(
                "side_effect",
                f"{variant.finish} does work of the call without being timed: it may only "
                "rearrange numbers",
            )
