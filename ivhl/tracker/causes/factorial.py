"""The factorial of two cells, and the records that stand at its design points."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ivhl.errors import ResultsError, SpecError
from ivhl.git import commits_of_same_code
from ivhl.matrix.locks import lock_state
from ivhl.matrix.spec import CellSpec
from ivhl.tracker.causes.attribution import Treatment, complete, corners_of, factors_of
from ivhl.tracker.store.entries import code_of
from ivhl.tracker.store.records import case_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ivhl.records.record import RunRecord
    from ivhl.tracker.causes.attribution import Attributed, Corner
    from ivhl.tracker.causes.effects import Factor
    from ivhl.tracker.store.entries import Entry
    from ivhl.tracker.store.index import Index


def factorial(first: Treatment, last: Treatment) -> tuple[tuple[Factor, ...], tuple[Corner, ...]]:
    """Return the axes in which two cells differ, and the design points between them.

    Raises:
        SpecError: If they do not differ.
    """
    factors = factors_of(first, last)
    if not factors:
        raise SpecError(
            "both cells are the same",
            hint="name two that differ in Python, PyTorch or commit: CELL@COMMIT; or --flag",
        )
    return factors, corners_of(first, last)


def recorded_corners(
    root: Path,
    ends: tuple[Treatment, Treatment],
    index: Index,
    entries: Sequence[Entry],
    *,
    named: bool,
) -> tuple[tuple[Treatment, Treatment], dict[tuple[str, str, str], dict[Corner, RunRecord]]]:
    """Return both ends, and the records of the cases that every corner has.

    Without a named commit, it is the one of which most cases were measured in all corners, there or
    at another commit with the same code of the case; of several, the newest.

    Args:
        root: Root of the project.
        ends: Both cells.
        index: Reads the records.
        entries: Records of the cases that are asked for.
        named: Whether the commits of the ends count.

    Raises:
        ResultsError: If there is no such case; names the corners without records.
    """
    first, last = ends
    _, corners = factorial(first, last)
    if named:
        hashes = {entry.commit for entry in entries}
        same = {
            like: corner.at.commit
            for corner in corners
            for like in commits_of_same_code(root, corner.at.commit, hashes)
        }
    else:
        commit, entries = _of_best_commit(corners, entries)
        first, last = first._replace(commit=commit), last._replace(commit=commit)
        _, corners = factorial(first, last)
        same = {entry.commit: commit for entry in entries}
    places = {corner.at for corner in corners}
    mine = [e for e in entries if Treatment(e.python, e.torch, same.get(e.commit, "")) in places]
    tables = complete(index.read(mine), corners, same)
    if not tables:
        there = {Treatment(e.python, e.torch, same[e.commit]) for e in mine}
        lacking = [
            f"py{at.python}-torch{at.torch}{f' at {at.commit[:8]}' if named else ''}"
            for at in sorted(places - there)
        ]
        never = [
            cell.id
            for cell in dict.fromkeys(CellSpec(at.python, at.torch) for at in sorted(places))
            if lock_state(root, cell).kind == "unavailable"
        ]
        raise ResultsError(
            "no case has records in all cells of the factorial"
            + (f"; none in {', '.join(lacking)}" if lacking else ""),
            hint=f"{', '.join(never)} cannot be installed: name cells that differ in one axis, or "
            "whose other corners can be"
            if never
            else "ivhl attribute ... --case NAME --rounds 3 measures them",
        )
    return (first, last), tables


def _of_best_commit(
    corners: Sequence[Corner], entries: Sequence[Entry]
) -> tuple[str, list[Entry]]:
    """Return the commit of which most cases have records in all cells, and the records of its code.

    A record counts for each commit at which the case has the same code. Empty if there is none.
    """
    cells = {(corner.at.python, corner.at.torch) for corner in corners}
    entries = [e for e in entries if (e.python, e.torch) in cells]
    codes: dict[str, set[tuple[object, ...]]] = defaultdict(set)
    for e in entries:
        codes[e.commit].add(_code_of(e))
    best, found, most = "", [], (-1, "")
    for commit, mine in codes.items():
        # What failed early may not say its code.
        alike = [e for e in entries if e.commit == commit or _code_of(e) in mine]
        there: dict[tuple[str, ...], set[tuple[str, str]]] = defaultdict(set)
        for e in alike:
            there[e.case.machine, e.case.device, case_name(e.case)].add((e.python, e.torch))
        newest = max(e.recorded_at for e in alike if e.commit == commit)
        size = sum(places == cells for places in there.values()), newest
        if size > most:
            best, found, most = commit, alike, size
    return best, found


def _code_of(entry: Entry) -> tuple[object, ...]:
    """Return a case on a machine with its code."""
    case = entry.case
    return case.machine, case.device, case_name(case), entry.dtype, code_of(entry)


def disturbed_by(found: Sequence[Attributed]) -> Iterator[str]:
    """Yield that runs were disturbed, if eager code moved with flags, which cannot reach it."""
    moved = (e for one in found for e in one.effects if e.metric == "eager")
    if any("flags" in e.factors and e.word in ("slower", "faster") for e in moved):
        yield (
            "no compiler flag moves eager code, and eager moved with it: these runs were "
            "disturbed; measure again, with more --rounds"
        )
