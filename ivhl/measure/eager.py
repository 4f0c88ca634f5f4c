"""The phases of the eager arm."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ivhl.measure.accuracy import values_of
from ivhl.measure.anchors import note_accuracy
from ivhl.measure.data import leaves_in
from ivhl.measure.failures import CaseError
from ivhl.measure.state import RANDOM_STATES, changes, differing, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from ivhl.measure.anchors import Anchor, Anchors
    from ivhl.measure.data import Data
    from ivhl.measure.imports import Setup
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
        outputs = leaves_in(call())
        if number == 0:
            values = tuple(map(values_of, outputs.tensors.values()))
        places.append([(t, t.data_ptr()) for t in outputs.tensors.values()])
        data.eager_types |= set(outputs.types.values())
        data.refuse_changed_eager_inputs(number)
        anchors.append(judge.anchor_of(outputs, data.draws[number], references[number]))
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
