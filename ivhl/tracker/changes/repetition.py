"""Decide whether a second run reproduces a record (``ivhl repeat``).

Status and facts have no noise: they are the same or not. Seconds are judged as two runs of the same
code are everywhere: by what such runs differ by (``tracker.spread``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ivhl.records.answers import is_final
from ivhl.tracker.changes.comparable import differences
from ivhl.tracker.changes.kinds import Kind, judge_changes
from ivhl.tracker.store.entries import code_of
from ivhl.tracker.store.facts import FactKind, changed_facts
from ivhl.tracker.support.compat import status_of
from ivhl.tracker.wording import STATUS_WORDS, failed_as

if TYPE_CHECKING:
    from ivhl.records.record import Machine, RunRecord
    from ivhl.tracker.store.metrics import Metric
    from ivhl.tracker.store.spread import Spreads

# What must be the same; an error only on the same machine, whose vector instructions are in it.
# Warnings and the number of graphs are shown: neither costs anything.
_EXACT: Final[frozenset[FactKind]] = frozenset(
    {"outputs", "fallback", "graph_breaks", "recompiles"}
)
_TIMES: Final[tuple[Metric, ...]] = ("speedup", "compiled", "eager")
_OTHER_BENCHMARK: Final = (
    "the record was made with another benchmark than commit {commit} has, so the second run says "
    "nothing of it: uncommitted benchmarks, or those of another commit; commit them, measure that"
)


class Repetition(NamedTuple):
    """What a second run says of a record.

    Attributes:
        kind: How the second run differs; ``unchanged`` if it reproduces the record,
            ``inconclusive`` if it cannot say.
        because: What decides, as a sentence.
        beside: What else was seen, a line each.
    """

    kind: Kind
    because: str
    beside: tuple[str, ...] = ()


def judge_repetition(recorded: RunRecord, again: RunRecord, spreads: Spreads) -> Repetition:
    """Judge a second run of what a record describes.

    Args:
        recorded: The record.
        again: The second run, in an environment of the same lock, at the same commit.
        spreads: What runs of the same code differ by.
    """
    unlike = tuple(_unlike(recorded, again))
    if _has_other_benchmark(recorded, again):
        return Repetition("inconclusive", _OTHER_BENCHMARK.format(commit=again.commit[:8]), unlike)
    was, now = outcome_of(recorded), outcome_of(again)
    if again.failure is not None and not is_final(again.failure):
        return Repetition("inconclusive", f"the second run says nothing: {now}", unlike)
    if recorded.failure is not None or again.failure is not None:
        return _of_failures(recorded, again, unlike)
    facts = changed_facts(recorded, again)
    exact = _EXACT if unlike else _EXACT | {"error"}
    if moved := [fact for fact in facts if fact.kind in exact]:
        kind: Kind = "degraded" if any(fact.worse for fact in moved) else "fixed"
        return Repetition(kind, "; ".join(fact.text for fact in moved), unlike)
    shown = tuple(fact.text for fact in facts)
    if unlike:
        text = f"{was} then, {now} now; the same facts; seconds are not compared"
        same = status_of(recorded) == status_of(again)
        return Repetition("unchanged" if same else "inconclusive", text, (*unlike, *shown))
    return _of_times(recorded, again, spreads, shown)


def outcome_of(record: RunRecord) -> str:
    """Return the status of a record with its number or its failure."""
    word = STATUS_WORDS[status_of(record)]
    if record.failure is not None:
        return failed_as(record.failure)
    return word if record.speedup is None else f"{word}, {record.speedup.value:.2f}x"


def other_machine(recorded: Machine, here: Machine) -> str:
    """Return how this machine differs from that of a record; empty if it does not."""
    pairs = (
        ("processor", recorded.cpu, here.cpu),
        ("CPUs", recorded.n_cpus, here.n_cpus),
        ("system", recorded.system, here.system),
    )
    found = [f"{name} {was} then, {now} now" for name, was, now in pairs if was != now]
    return f"another machine than {recorded.name}: {'; '.join(found)}" if found else ""


def _of_times(
    recorded: RunRecord, again: RunRecord, spreads: Spreads, shown: tuple[str, ...]
) -> Repetition:
    change = judge_changes({"": (recorded, again)}, spreads)[""]
    times = {metric: change.changes[metric] for metric in _TIMES if metric in change.changes}
    lines = (*map(str, times.values()), *shown)
    if moved := [m for m, one in times.items() if one.outcome in ("improved", "regressed")]:
        text = f"{' and '.join(moved)} moved by more than two runs of the same code differ by"
        return Repetition("slower" if change.kind == "slower" else "faster", text, lines)
    noisy = [metric for metric, one in times.items() if one.outcome == "inconclusive"]
    if not times or "speedup" in noisy:
        return Repetition("inconclusive", "the same facts; too noisy for the speedup", lines)
    # The speedup is what a record is made for, and pairs make it the steadiest: seconds of runs that
    # are hours apart rule out no change of 1.3x on many virtual machines.
    sure = "speedup" if noisy else "speedup and seconds"
    text = f"the same facts, and {sure} no further apart than two runs of the same code"
    return Repetition("unchanged", f"{text}; too noisy for the seconds" if noisy else text, lines)


def _of_failures(recorded: RunRecord, again: RunRecord, unlike: tuple[str, ...]) -> Repetition:
    was, now = outcome_of(recorded), outcome_of(again)
    one, other = recorded.failure, again.failure
    if other is None:
        return Repetition("fixed", f"{was} then; {now} now", unlike)
    if one is None or one.failure_class != other.failure_class:
        return Repetition("fails", f"{was} then; {now} now", unlike)
    if (one.phase, one.exception) != (other.phase, other.exception):
        text = f"{was} then; {now} now, {other.exception or 'no exception'} in {other.phase}"
        return Repetition("fails", text, unlike)
    beside = () if was == now else (f"then: {was}",)
    return Repetition("unchanged", now, (*unlike, *beside))


def _has_other_benchmark(recorded: RunRecord, again: RunRecord) -> bool:
    """Return whether the question was another one: a benchmark may be of a working tree.

    Where the benchmark is a part of the project, neither record has a hash of its own for it.
    """
    hashes = recorded.benchmark, again.benchmark
    return None not in hashes and recorded.benchmark != again.benchmark


def _unlike(recorded: RunRecord, again: RunRecord) -> list[str]:
    """Return what else differs between the two runs, so that their seconds cannot be compared."""
    found = [other_machine(recorded.machine, again.machine)]
    # Where the code is another one, both its hashes differ; older records count the benchmark in.
    was, now = code_of(recorded)[0], code_of(again)[0]
    if recorded.sources is not None and (recorded.benchmark is None) == (again.benchmark is None):
        found.append("" if was == now else "sources: the case reaches other code than then")
    found += differences(recorded, again, "commit")
    return [text for text in found if text]
