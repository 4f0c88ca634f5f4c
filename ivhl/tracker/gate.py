"""Compare the records of a commit with those of its base (``ivhl gate``)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from ivhl.records.store import case_name, is_existing, newest_by
from ivhl.tracker.comparable import differences
from ivhl.tracker.compat import (
    NONE_EXPECTED,
    python_key,
    release_key,
    retired,
)
from ivhl.tracker.disturbed import judge_apart
from ivhl.tracker.expectations import EXPECTATIONS
from ivhl.tracker.spread import SHIPPED, Spreads
from ivhl.tracker.wording import marked, short_message, times

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from ivhl.records.record import RunRecord
    from ivhl.records.store import Key
    from ivhl.tracker.changes import CaseChange
    from ivhl.tracker.expectations import Expectation, Expectations
    from ivhl.workload import Workload

FindingKind = Literal[
    "fails", "degraded", "slower", "missing", "incomparable", "undecided", "noisy", "new", "mended",
    "faster", "expected", "held",
]  # fmt: skip
KINDS: tuple[FindingKind, ...] = get_args(FindingKind)
MEANINGS: dict[FindingKind, str] = {
    "fails": "worked at the base and fails now",
    "degraded": "breaks graphs, recompiles, falls back or errs more than at the base",
    "slower": "compiled code takes longer, or gains less over eager code that did not get faster",
    "missing": "the base has a record and this commit has none",
    "incomparable": "measured under other conditions: the difference may not come from the code",
    "undecided": "failed for a reason outside the code, or the run was disturbed: measure it again",
    "noisy": "too noisy to say: even a change by 1.3x would not show, or the run was disturbed",
    "new": "this commit has a record and the base has none",
    "mended": "failed at the base and works now",
    "faster": "compiled code takes less time, or gains more over eager code",
    "expected": "fails, as envs/expectations.toml says",
    "held": "nothing changed that could be shown",
}
REGRESSIONS: frozenset[FindingKind] = frozenset({"fails", "degraded", "slower"})
GAPS: frozenset[FindingKind] = frozenset({"missing", "incomparable", "undecided"})


class CaseKey(NamedTuple):
    """The unit of comparison: one case in one cell, on one device of one machine."""

    machine: str
    device: str
    python: str
    torch: str
    cell: str
    existing: bool
    workload: str
    workload_version: int
    size: str
    variant: str

    @property
    def case(self) -> str:
        """Workload, size and variant."""
        return case_name(self)


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of comparing one case.

    Attributes:
        reason: Why it has this kind, with the numbers.
        change: What changed, where both commits were measured in the same way.
        expectation: The known failure that the head shows; or, if it passes, the entry that still
            expects it to fail.
    """

    key: CaseKey
    kind: FindingKind
    reason: str
    change: CaseChange | None = None
    expectation: Expectation | None = None

    @property
    def is_outdated(self) -> bool:
        """Whether the head passes although an entry expects it to fail: the entry must go."""
        return self.expectation is not None and self.kind not in ("fails", "expected", "new")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of comparing two commits.

    Attributes:
        findings: Worst kind first.
        elsewhere: Machine and device without any record of the head, to the number of cases that
            the base has there. They have no finding.
    """

    findings: tuple[Finding, ...]
    elsewhere: dict[tuple[str, str], int]

    def of(self, kinds: Collection[FindingKind]) -> tuple[Finding, ...]:
        """Return the findings with one of these kinds."""
        return tuple(finding for finding in self.findings if finding.kind in kinds)

    @property
    def eager_alone(self) -> tuple[Finding, ...]:
        """Return what held, although its eager code takes longer: no verdict on compiled code."""
        return tuple(
            one
            for one in self.of({"held"})
            if one.change is not None and one.change.outcome("eager") == "regressed"
        )

    @property
    def outdated(self) -> tuple[Finding, ...]:
        """Return what passes although an entry of the known failures expects it to fail."""
        return tuple(one for one in self.findings if one.is_outdated)

    @property
    def compared(self) -> int:
        """Number of cases that could be compared."""
        return sum(finding.kind not in GAPS | {"new"} for finding in self.findings)

    @property
    def judged(self) -> int:
        """Number of cases that could be compared, and whose changes would show."""
        return sum(finding.kind not in GAPS | {"new", "noisy"} for finding in self.findings)


def judge(
    records: Iterable[RunRecord],
    base: Collection[str],
    head: Collection[str],
    workloads: Sequence[Workload] = (),
    spreads: Spreads = SHIPPED,
    *,
    expectations: Expectations = NONE_EXPECTED,
    disturbed: Collection[Key] = (),
) -> Verdict:
    """Compare the newest records of two commits, case by case.

    Args:
        records: Records of any commits.
        base: Full hashes of the commits with the base's code.
        head: Full hashes of the commits with the code that is judged.
        workloads: Current workloads of the project; retired cases do not count as missing.
        spreads: Learnt differences between runs.
        expectations: Known failures of the project.
        disturbed: The disturbed runs of the history (``disturbed_keys``).
    """
    records = tuple(records)
    gone = {id(record) for record in retired(records, workloads)}
    current = [record for record in records if id(record) not in gone]
    before, after = (
        newest_by((record for record in current if record.commit in side), _key)
        for side in (base, head)
    )
    measured = {(key.machine, key.device) for key in after}
    elsewhere = Counter(
        (key.machine, key.device) for key in before if (key.machine, key.device) not in measured
    )
    known = {
        key: _judge(before.get(key), after.get(key))
        for key in before.keys() | after.keys()
        if (key.machine, key.device) in measured
    }
    open_cases = {key: (before[key], after[key]) for key, found in known.items() if found is None}
    changes = judge_apart(open_cases, spreads, (disturbed, disturbed))
    findings = []
    for key, found in known.items():
        kind, reason = found or _kind_of(*changes[key])
        finding = Finding(key, kind, reason, changes[key][0] if key in changes else None)
        findings.append(_expecting(finding, after.get(key), expectations))
    findings.sort(key=_order)
    return Verdict(tuple(findings), dict(sorted(elsewhere.items())))


def _expecting(finding: Finding, head: RunRecord | None, expectations: Expectations) -> Finding:
    """Return a finding with what the known failures of the project say of the head."""
    if head is None or finding.key.existing:  # what no lock describes may hold anything
        return finding
    failure_class = None if head.failure is None else head.failure.failure_class
    entry = expectations.of(finding.key, failure_class)
    if entry is None:
        return finding
    if failure_class is None:
        kind: FindingKind = finding.kind
        if kind in ("held", "new", "noisy", "faster"):
            kind = "mended"
        expected = f"{entry.failure_class}: {entry.why}"
        text = f"passes, and {EXPECTATIONS} expects {expected}; {finding.reason}"
        return replace(finding, kind=kind, reason=text, expectation=entry)
    kind = "new" if finding.kind == "new" else "expected"
    text = f"expected: {entry.why}; {finding.reason}"
    return replace(finding, kind=kind, reason=text, expectation=entry)


def _order(finding: Finding) -> tuple[object, ...]:
    key = finding.key
    place = (key.machine, key.device, python_key(key.python), release_key(key.torch))
    return (KINDS.index(finding.kind), *place, key)


def _key(record: RunRecord) -> CaseKey:
    return CaseKey(
        machine=record.machine.name,
        device=record.conditions.device,
        python=record.cell.python,
        torch=record.cell.torch,
        cell=record.cell.id,
        existing=is_existing(record),
        workload=record.workload,
        workload_version=record.workload_version,
        size=record.size,
        variant=record.variant,
    )


def _judge(  # noqa: PLR0911  (one for each reason)
    base: RunRecord | None, head: RunRecord | None
) -> tuple[FindingKind, str] | None:
    """Return the kind and the reason; ``None`` if what was measured must decide."""
    if head is None:
        return "missing", "no record of this commit"
    if head.failure is not None and head.failure.failure_class == "absent":
        return "missing", "this commit lacks the code that the workload measures"
    if base is None or (base.failure is not None and base.failure.failure_class == "absent"):
        return "new", _result(head)
    if head.failure is not None or base.failure is not None:
        kind: FindingKind = "mended"
        if head.failure is not None:
            kind = "undecided" if _is_external(head) else "fails"
            kind = kind if base.failure is None else "held"
        return kind, f"{_result(base)} before; {_result(head)} now"
    if apart := differences(base, head, "commit"):
        return "incomparable", "; ".join(apart)
    if base.sources is not None and base.sources == head.sources:
        return "held", "the case reaches the same sources at both commits"
    return None


def _kind_of(found: CaseChange, side: str) -> tuple[FindingKind, str]:
    """Return the kind and the reason; eager code is not judged (``Verdict.eager_alone``).

    Where the times of a disturbed run moved, they must be measured again: they neither show nor rule
    out that the code is slower.
    """
    if side and not found.worse_facts:
        kind: FindingKind = "noisy" if found.kind in ("same", "noisy") else "undecided"
        return kind, f"{side}; {found.reason}"
    if found.kind == "eager slower":
        return ("noisy" if found.outcome("speedup") == "inconclusive" else "held"), found.reason
    return ("held" if found.kind == "same" else found.kind), found.reason


def _is_external(record: RunRecord) -> bool:
    """Return whether the environment or a SIGKILL caused the failure, not the code."""
    failure = record.failure
    return failure is not None and (
        failure.failure_class in ("environment", "unavailable") or failure.exception == "SIGKILL"
    )


def noise(record: RunRecord) -> float:
    """Return the noise of a run as a factor: the A/A interval's limit farther from 1."""
    if record.aa is None or record.aa.low <= 0:
        return 1.0
    return max(record.aa.high, 1 / record.aa.low, 1.0)


def _result(record: RunRecord) -> str:
    if record.failure is not None:
        message = short_message(record.failure.message)
        return marked(f"{record.failure.failure_class}: {message}".removesuffix(": "), record)
    return marked(times(record.speedup.value), record) if record.speedup else ""
