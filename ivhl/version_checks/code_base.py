"""What the records say about a code base: its own ones, and those of a suite that has other code.

A record of other code shows what `torch.compile` does in a cell, never what it does to this code. So
the two kinds of evidence are kept apart, and each sentence says which one it rests on.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ivhl.tracker.causes.advice import advise
from ivhl.tracker.support.compat import python_key, release_key
from ivhl.tracker.support.spans import spans, spans_sentence, word_of, words_of_cells
from ivhl.tracker.wording import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ivhl.records.identity import AtCommit
    from ivhl.tracker.causes.advice import Advice
    from ivhl.tracker.store.spread import Spreads
    from ivhl.tracker.support.compat import Row

_NAMED: Final = 3
CellName = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeEvidence:
    """The records of one project on one machine, in the cells that a code base allows.

    Attributes:
        own: Whether they are records of this code base; else of other code.
        project: Name of the project that has them.
        rows: Its cases in these cells, measured or not, without existing environments.
        allowed: All cells that the code base allows, measured or not.
        unavailable: Those of them for which nothing can be installed.
        disturbed: The disturbed runs of the project: of a case with one, times are not compared.
    """

    own: bool
    project: str
    machine: str
    device: str
    rows: tuple[Row, ...]
    allowed: tuple[CellName, ...]
    unavailable: frozenset[CellName] = frozenset()
    spreads: Spreads
    disturbed: Collection[AtCommit] = ()

    @property
    def measured(self) -> tuple[Row, ...]:
        """The rows that have a record."""
        return tuple(row for row in self.rows if row.recorded is not None)

    def __str__(self) -> str:
        """Return how many records of what, where, and at which commits."""
        newest = sorted(self.measured, key=lambda row: row.recorded_at or "", reverse=True)
        commits = list(dict.fromkeys((row.commit or "")[:8] for row in newest))
        more = f" and {len(commits) - _NAMED} more" if len(commits) > _NAMED else ""
        at = f"{'commit' if len(commits) == 1 else 'commits'} {', '.join(commits[:_NAMED])}{more}"
        what = counted(len(newest), "record")
        return f"{what} of {self.project}, {self.machine}, {self.device}, {at}"


class SupportLine(NamedTuple):
    """Where a case works on one Python, in intervals of releases."""

    what: str
    python: str
    text: str


def support_lines(evidence: CodeEvidence) -> tuple[SupportLine, ...]:
    """Return where each case of the code base works; of other code, where compiled cases do."""
    groups: dict[str, list[Row]] = defaultdict(list)
    names = _names(evidence)
    # ``ivhl version-checks`` takes all machines: what this one lacks may work on another.
    lacking = "not measured" if evidence.own else f"not measured on {evidence.machine}"
    for row in evidence.rows:
        if evidence.own:
            groups[names[_case(row)]].append(row)
        elif row.engine in ("", "compile"):
            groups["torch.compile"].append(row)
    found = []
    for what, group in groups.items():
        cells: dict[CellName, list[Row]] = defaultdict(list)
        for row in group:
            if row.status != "not_run":
                cells[row.python, row.torch].append(row)
        known = words_of_cells(cells)
        for python in _pythons(evidence.allowed):
            words = {
                torch: "unavailable" if (p, torch) in evidence.unavailable else lacking
                for p, torch in evidence.allowed
                if p == python
            }
            words |= {torch: word for (p, torch), word in known.items() if p == python}
            found.append(SupportLine(what, python, spans_sentence(spans(words))))
    return tuple(found)


def _case(row: Row) -> str:
    return f"{row.workload}/{row.size}/{row.variant}"


def _names(evidence: CodeEvidence) -> dict[str, str]:
    """Return the name of each case: that of its workload, if it is the only case of it."""
    cases = {_case(row): row.workload for row in evidence.rows}
    counts = Counter(cases.values())
    return {case: name if counts[name] == 1 else case for case, name in cases.items()}


def _pythons(cells: Iterable[CellName]) -> list[str]:
    return sorted({python for python, _ in cells}, key=python_key)


def recommended(evidence: CodeEvidence) -> Advice | None:
    """Return the cell to take by this evidence; ``None`` if no case has a right result."""
    return advise(evidence.measured, evidence.spreads, evidence.disturbed)


def recommendation(name: str, own: CodeEvidence | None, suite: CodeEvidence | None) -> str:
    """Return one paragraph: the cell to take, with what it rests on and what it does not show.

    Args:
        name: The code base.
        own: Records of it.
        suite: Records of other code.
    """
    texts = []
    if own is not None and own.measured:
        texts.append(_by_own(name, own))
        if suite is not None:
            texts += _beyond(own, suite)
        return " ".join(texts)
    texts.append(
        f"No record is of {name}: nothing here shows that it compiles, is right compiled, or gets "
        "faster."
    )
    found = None if suite is None else recommended(suite)
    if suite is None or found is None:
        texts.append("No other record here has a right result in a cell that it allows.")
    else:
        texts.append(
            f"What is known is about torch.compile itself, in the cells that {name} allows, by the "
            f"cases of {suite.project}: try Python {found.python} with PyTorch {found.torch} first, "
            f"where {_passing(suite, (found.python, found.torch))}."
        )
        texts += [
            f"Against Python {python} these cases show: {why}."
            for python, why in found.against.items()
        ]
        texts += filter(None, [found.builds])
        texts.append(f"Evidence: {suite}.")
    texts.append(
        f"Whether {name} can be installed there was not tried; `ivhl init` in its repository, then "
        "`ivhl bench`, would measure it."
    )
    return " ".join(texts)


def _by_own(name: str, own: CodeEvidence) -> str:
    found = recommended(own)
    if found is None:
        classes = Counter(word_of(row) for row in own.measured)
        why = ", ".join(f"{word}: {n}" for word, n in classes.most_common())
        return (
            f"No cell can be recommended for {name}: none of its own cases has a right result "
            f"compiled ({why}). Evidence: {own}."
        )
    texts = [f"By its own records take Python {found.python} with PyTorch {found.torch}:"]
    texts.append(f"{found.worth}.")
    texts += [f"It costs something, too: {found.cost}."] if found.cost else []
    texts += [f"Not Python {python}: {why}." for python, why in found.against.items()]
    texts += filter(None, [found.builds, found.changed])
    return " ".join([*texts, f"Evidence: {own}."])


def _beyond(own: CodeEvidence, suite: CodeEvidence) -> list[str]:
    """Return what other code shows of newer Pythons that the code base was not measured on."""
    # Without the letter of a free-threaded build, which is not newer than the other build.
    tried = max(python_key(row.python)[:2] for row in own.measured)
    newer = [python for python in _pythons(own.allowed) if python_key(python)[:2] > tried]
    works = {
        python: max((r.torch for r in suite.measured if _right(r, python)), key=release_key)
        for python in newer
        if any(_right(row, python) for row in suite.measured)
    }
    texts = [
        f"Python {python} is not in its own records; torch.compile works there with PyTorch {torch} "
        f"in cases of {suite.project}, which says nothing of this code."
        for python, torch in works.items()
    ]
    return [*texts, f"Evidence of that: {suite}."] if texts else []


def _right(row: Row, python: str) -> bool:
    return row.python == python and row.speedup is not None


def _passing(evidence: CodeEvidence, cell: CellName) -> str:
    here = [row for row in evidence.measured if (row.python, row.torch) == cell]
    right = [row for row in here if row.speedup is not None]
    slow = sum(row.status == "slow" for row in right)
    text = (
        f"{len(right)} of {counted(len(here), 'case')} {'is' if len(right) == 1 else 'are'} right"
    )
    return text + (f", {slow} of them slower than eager" if slow else "")
