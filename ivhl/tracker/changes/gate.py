"""The policy of ``ivhl gate``: which changes between a base and a head let it fail."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ivhl.records.identity import AtCommit, CaseInCell, case_of
from ivhl.tracker.changes.compare import Comparison, compare, place_order
from ivhl.tracker.changes.kinds import KINDS, MEANINGS, Kind
from ivhl.tracker.store.spread import SHIPPED, Spreads
from ivhl.tracker.support.compat import NONE_EXPECTED, retired
from ivhl.tracker.support.expectations import EXPECTATIONS, Expectations

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from ivhl.records.record import RunRecord
    from ivhl.workload import Workload

REGRESSIONS: Final[frozenset[Kind]] = frozenset({"fails", "degraded", "slower"})
GAPS: Final[frozenset[Kind]] = frozenset({"missing", "incomparable"})
_EXPECTED: Final = f"fails, as {EXPECTATIONS} says"
_OUTDATED: Final = f"passes, and {EXPECTATIONS} still expects a failure"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of comparing two commits.

    Attributes:
        findings: Worst kind first.
        elsewhere: Machine and device without any record of the head, to the number of cases that
            the base has there. They have no finding.
        undeclared: Number of cases with records of either commit that the project declares no more.
        together: Number of cases over which the limits of the times are corrected.
    """

    findings: tuple[Comparison, ...]
    elsewhere: dict[tuple[str, str], int]
    undeclared: int = 0
    together: int = 0

    def of(self, kinds: Collection[Kind]) -> tuple[Comparison, ...]:
        """Return the findings with one of these kinds, without expected failures."""
        return tuple(one for one in self.findings if one.kind in kinds and not one.is_expected)

    @property
    def worse(self) -> tuple[Comparison, ...]:
        """Return the findings for which the gate fails."""
        return self.of(REGRESSIONS)

    @property
    def gaps(self) -> tuple[Comparison, ...]:
        """Return the findings that nothing is known about."""
        return self.of(GAPS)

    @property
    def outdated(self) -> tuple[Comparison, ...]:
        """Return the cases that pass although an entry of the known failures expects otherwise."""
        return tuple(one for one in self.findings if one.is_outdated)

    @property
    def compared(self) -> int:
        """Number of cases that could be compared."""
        return len(self.findings) - len(self.of(GAPS | {"new"}))

    @property
    def judged(self) -> int:
        """Number of cases that could be compared, and whose changes would show."""
        return self.compared - sum(map(_hides_changes, self.findings))

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of findings of each kind, and of expected failures."""
        found: dict[str, int] = {kind: len(self.of({kind})) for kind in KINDS}
        found["expected"] = sum(one.is_expected for one in self.findings)
        return {kind: n for kind, n in found.items() if n}

    def listed(self) -> Iterator[tuple[str, str, tuple[Comparison, ...]]]:
        """Yield what a person reads: title, meaning and findings, the worst first."""
        for kind in KINDS:
            is_regression = kind in REGRESSIONS
            found = tuple(one for one in self.of({kind}) if is_regression or not one.is_outdated)
            if found and kind != "unchanged":
                yield kind, MEANINGS[kind], found
        if passes := tuple(one for one in self.outdated if one.kind not in REGRESSIONS):
            yield "passes", _OUTDATED, passes
        if expected := tuple(one for one in self.findings if one.is_expected):
            yield "expected", _EXPECTED, expected


def judge(
    records: Iterable[RunRecord],
    base: Collection[str],
    head: Collection[str],
    workloads: Sequence[Workload] = (),
    spreads: Spreads = SHIPPED,
    *,
    expectations: Expectations = NONE_EXPECTED,
    disturbed: Collection[AtCommit] = (),
    wanted: Callable[[CaseInCell], bool] = lambda _: True,
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
        wanted: Which cases the verdict has. All are judged, since limits are corrected for all.
    """
    records = tuple(records)
    gone = {id(record) for record in retired(records, workloads)}
    current = [record for record in records if id(record) not in gone]
    before, after = ([r for r in current if r.commit in side] for side in (base, head))
    measured = {_place(record) for record in after}
    not_measured = {case_of(r) for r in before if _place(r) not in measured}
    not_measured = {case for case in not_measured if wanted(case)}
    elsewhere = Counter((case.machine, case.device) for case in not_measured)
    found = compare(
        (record for record in before if _place(record) in measured),
        after,
        "commit",
        spreads,
        (disturbed, disturbed),
    )
    mine = [_expecting(one, expectations) for one in found if wanted(one.case)]
    undeclared = {case_of(r) for r in records if id(r) in gone and r.commit in {*base, *head}}
    return Verdict(
        tuple(sorted(mine, key=_order)),
        dict(sorted(elsewhere.items())),
        sum(map(wanted, undeclared)),
        sum(one.change is not None for one in found),
    )


def _place(record: RunRecord) -> tuple[str, str]:
    subject = case_of(record)
    return subject.machine, subject.device


def _expecting(found: Comparison, expectations: Expectations) -> Comparison:
    """Return a comparison with what the known failures of the project say of the head."""
    if found.after is None or found.case.existing:  # what no lock describes may hold anything
        return found
    failure = found.after.failure
    entry = expectations.of(found.case, None if failure is None else failure.failure_class)
    if entry is None:
        return found
    if failure is not None:
        return replace(found, reason=f"expected: {entry.why}; {found.reason}", expectation=entry)
    expected = f"{entry.failure_class}: {entry.why}"
    text = f"passes, and {EXPECTATIONS} expects {expected}; {found.reason}"
    return replace(found, reason=text, expectation=entry)


def _hides_changes(found: Comparison) -> bool:
    """Return whether compiled code could be slower by much and nothing would show it."""
    if found.kind != "eager slower" or found.change is None:
        return found.kind == "inconclusive"
    return found.change.outcome("speedup") == "inconclusive"


def _order(found: Comparison) -> tuple[object, ...]:
    return KINDS.index(found.kind), *place_order(found.case)[:-1], found.case
