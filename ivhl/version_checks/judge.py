"""What the records say of the version checks of a code base."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from ivhl.tracker.store.records import grouped_by
from ivhl.tracker.support.compat import Row, python_key, release_key
from ivhl.tracker.support.spans import spans, spans_sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ivhl.version_checks.find import FoundCheck

CellState = Literal["works", "refused", "unavailable"]


CheckStanding = Literal["contradicted", "agrees", "excludes nothing", "cannot tell"]


@dataclass(frozen=True, slots=True)
class CheckJudgement:
    """What the evidence says of a check.

    Attributes:
        contradicted: Python to the releases that are excluded and work, and since which all do.
        text: A sentence for each thing to say.
    """

    standing: CheckStanding
    contradicted: Mapping[str, tuple[tuple[str, ...], str | None]]
    text: tuple[str, ...]


# Of a condition that has nothing to do with compiling, records of compiled code say nothing.
NOT_JUDGED: Final = CheckJudgement("cannot tell", {}, ())


class CellEvidence(NamedTuple):
    """What the records say of `torch.compile` in a cell.

    Attributes:
        passed: Compiled cases that have a right result, of ``tried``.
    """

    state: CellState
    passed: int
    tried: int


def evidence_of(rows: Iterable[Row]) -> dict[tuple[str, str], CellEvidence]:
    """Return what the records say of `torch.compile` in each cell, over all machines."""
    compiled = (row for row in rows if row.engine == "compile" or row.status == "unavailable")
    groups = grouped_by(compiled, lambda row: (row.python, row.torch))
    found: dict[tuple[str, str], CellEvidence] = {}
    for cell, group in groups.items():
        tried = [row for row in group if row.status != "unavailable"]
        passed = sum(row.failure_class is None for row in tried)
        if passed:
            found[cell] = CellEvidence("works", passed, len(tried))
        elif any(row.status == "unsupported" for row in tried):
            found[cell] = CellEvidence("refused", 0, len(tried))
        elif not tried:
            found[cell] = CellEvidence("unavailable", 0, 0)
    return found


def judge(check: FoundCheck, evidence: Mapping[tuple[str, str], CellEvidence]) -> CheckJudgement:
    """Return what the evidence says of a check."""
    where = {cell: check.excludes.holds(*cell) for cell in evidence}
    excluded = [cell for cell, holds in where.items() if holds]
    unclear = [cell for cell, holds in where.items() if holds is None]
    if not excluded:
        if unclear:
            text = "what else it asks decides, which the syntax tree does not tell"
            return CheckJudgement("cannot tell", {}, (text,))
        text = "excludes no cell that was measured"
        return CheckJudgement("excludes nothing", {}, (text,))
    contradicted: dict[str, tuple[tuple[str, ...], str | None]] = {}
    texts: list[str] = []
    for python in sorted({python for python, _ in excluded}, key=python_key):
        releases = sorted((t for p, t in excluded if p == python), key=release_key)
        words = {torch: _word(evidence[python, torch]) for torch in releases}
        texts.append(f"excludes on Python {python}: {spans_sentence(spans(words))}")
        works = tuple(t for t in releases if evidence[python, t].state == "works")
        if works:
            contradicted[python] = (works, _since(python, releases, evidence))
    for python, (works, since) in contradicted.items():
        last = evidence[python, works[-1]]
        texts.append(
            f"contradicted: torch.compile works on Python {python} "
            + (f"since PyTorch {since}" if since else f"with PyTorch {', '.join(works)}")
            + f": {last.passed} of {last.tried} compiled results pass with {works[-1]}"
        )
    if not contradicted:
        texts.append("the records agree: torch.compile works in none of these cells")
    return CheckJudgement("contradicted" if contradicted else "agrees", contradicted, tuple(texts))


def _word(found: CellEvidence) -> str:
    """Return what a cell is, in the words of ``ivhl advise``."""
    if found.state == "works" and found.passed < found.tried:
        return f"works ({found.tried - found.passed} of {found.tried} fail)"
    return {"works": "works", "refused": "unsupported", "unavailable": "unavailable"}[found.state]


def _since(
    python: str, releases: Sequence[str], evidence: Mapping[tuple[str, str], CellEvidence]
) -> str | None:
    """Return the oldest excluded release from which every one measured works."""
    since = None
    for torch in reversed(releases):
        if evidence[python, torch].state != "works":
            break
        since = torch
    return since
