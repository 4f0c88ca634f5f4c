"""Which releases the records suspect: where a case shows a symptom, and where it does not."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from ivhl.errors import SpecError
from ivhl.tracker.causes.blame import breaks_in, symptom_in
from ivhl.tracker.changes.kinds import judge_changes
from ivhl.tracker.store.metrics import measured
from ivhl.tracker.store.records import grouped_by, newest_by
from ivhl.tracker.support.compat import release_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ivhl.records.record import RunRecord
    from ivhl.tracker.changes.kinds import CaseChange
    from ivhl.tracker.store.entries import Entry
    from ivhl.tracker.store.index import Index
    from ivhl.tracker.store.spread import Spreads


def by_release(records: Iterable[RunRecord]) -> dict[str, RunRecord]:
    """Return the newest record of each release, oldest release first."""
    newest = newest_by(records, lambda record: record.cell.torch)
    return {release: newest[release] for release in sorted(newest, key=release_key)}


def runs_of(index: Index, entries: Sequence[Entry]) -> list[dict[str, RunRecord]]:
    """Return the newest record of each release, of each machine at each commit by itself."""
    runs = grouped_by(index.read(entries), lambda record: (record.machine.name, record.commit))
    return [*map(by_release, runs.values())]


def suspected(
    records: Mapping[str, RunRecord], bad: str | None, good: str | None, sought: str, case: str
) -> tuple[str, str | None]:
    """Return the release that shows it and one that does not, by the records where not named.

    Raises:
        SpecError: If no record shows it and no release is named.
    """
    fewest = min(map(breaks_in, records.values()), default=0)
    shows = {
        release: record.failure is not None if sought == "failure" else breaks_in(record) > fewest
        for release, record in records.items()
    }
    if bad is None:
        bad = next((release for release in reversed(shows) if shows[release]), None)
    if bad is None:
        raise SpecError(
            f"no record of {case} on this Python shows a {sought}",
            hint="name the release: --torch RELEASE, and --for CLASS if it has no record",
        )
    if good is None:
        works = [release for release, shown in shows.items() if not shown and release != bad]
        key = release_key(bad)
        later = [release for release in works if release_key(release) > key]
        good = later[0] if later else (works[-1] if works else None)
    return bad, good


def slower(
    runs: Iterable[Mapping[str, RunRecord]],
    spreads: Spreads,
    bad: str | None,
    good: str | None,
    case: str,
) -> tuple[str, str]:
    """Return the releases of the largest slowdown between neighbours that were measured alike.

    The largest by the lower end of its interval, of those that noise does not explain.

    Raises:
        SpecError: If no records show one and a release is not named.
    """
    if bad is not None and good is not None:
        return bad, good
    pairs: dict[tuple[int, str, str], tuple[RunRecord, RunRecord]] = {}
    for number, records in enumerate(runs):
        timed = [release for release, one in records.items() if measured(one, "compiled")]
        for one, other in pairwise(timed):
            if bad in (None, other) and good in (None, one):
                pairs[number, one, other] = records[one], records[other]
    steps = {
        (one, other): _least(change)
        for (_, one, other), change in judge_changes(pairs, spreads).items()
        if change.kind == "slower"
    }
    if not steps:
        raise SpecError(
            f"no records of one machine and commit show that compiled code of {case} became slower "
            "from a release to the next by more than noise",
            hint="name both: --torch SLOWER --good FASTER",
        )
    before, after = max(steps, key=lambda step: steps[step])
    return after, before


def _least(change: CaseChange) -> float:
    """Return by how much compiled code became slower at least, alone or against eager code."""
    alone, beside = (change.changes.get(metric) for metric in ("compiled", "speedup"))
    return max(alone.low if alone else 0.0, 1 / beside.high if beside else 0.0)


def symptom_of(sought: str, given: str | None, record: RunRecord | None, case: str) -> str:
    """Return the failure class that is asked for.

    Raises:
        SpecError: If neither an option nor a record names it.
    """
    if sought == "slowdown":
        return "slow"
    found = given or (symptom_in(record) if record is not None else "")
    if sought == "graph-break":
        return "graph-break"
    if not found or found == "graph-break":
        raise SpecError(
            f"no record says how {case} fails there",
            hint="--for wrong, compile, backend_compile or another class (docs/measuring.md)",
        )
    return found
