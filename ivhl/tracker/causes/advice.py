"""Recommend a Python and a PyTorch release, with what the records have for and against them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Final, NamedTuple

from ivhl.tracker.changes.comparable import BUILDS_UNKNOWN
from ivhl.tracker.changes.compare import Comparison, Mean, compare, disturbed_cases, summarise
from ivhl.tracker.store.records import grouped_by
from ivhl.tracker.support.compat import (
    is_free_threaded,
    is_prerelease,
    newest_release,
    python_key,
    release_key,
)
from ivhl.tracker.support.spans import cases_run, cell_mean, matched_cases, ran_enough
from ivhl.tracker.wording import counted, seconds, some, times

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ivhl.records.identity import AtCommit, CaseInCell
    from ivhl.records.record import RunRecord
    from ivhl.tracker.store.spread import Spreads
    from ivhl.tracker.support.compat import Row

# Calling compiled code takes some 10 µs of Python (docs/findings.md), so an eager call of less than
# a few of these is hardly ever worth compiling, whatever is in it.
SHORT_CALL_S: Final = 50e-6
_SHORT_CALLS: Final = "where calling compiled code decides and its kernels do not"
# Cases that a sentence names; the rest are counted.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Worth:
    """What the cases of a cell are worth.

    Attributes:
        run: Number of cases that were run.
        passing: How many of them pass.
        slow: How many of these are slower than eager.
        short: How many of these in calls of less than ``SHORT_CALL_S``.
        speedup: Geometric mean over the matched cases (``matched_cases``); ``None`` if one of them
            does not pass.
        over: Number of matched cases.
    """

    run: int
    passing: int
    slow: int
    short: int
    speedup: float | None
    over: int

    @property
    def cases(self) -> str:
        """How many cases pass, as text."""
        text = f"{self.passing} of {counted(self.run, 'case')} pass"
        text += f", {self.slow} of them slower than eager" if self.slow else ""
        if self.short:
            text += f", {self.short} in calls of less than {seconds(SHORT_CALL_S)}, {_SHORT_CALLS}"
        return text

    def __str__(self) -> str:
        """Return one or two sentences, a line each, without the last full stop."""
        if self.speedup is None:
            return self.cases
        over = f"the {counted(self.over, 'case')} that {'passes' if self.over == 1 else 'pass'}"
        mean = f"The mean speedup over eager is {times(self.speedup)}, for {over}"
        return f"{self.cases}.\n{mean} in all compared cells"


class Beside(NamedTuple):
    """A cell compared with another one.

    Attributes:
        speedup: The change of the mean speedup; ``None`` if it has no interval.
    """

    found: tuple[Comparison, ...]
    speedup: Mean | None = None

    def named(self, kind: str) -> list[str]:
        """Return the names of the cases that changed so."""
        return [one.case.name for one in self.found if one.kind == kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A cell to take.

    Attributes:
        worth: How many cases pass there, and how fast they are.
        reasons: Compared with each other Python on the same release; empty if nothing is to say.
        cost: What it costs compared with other Pythons; empty if nothing was shown.
        against: Python to what it costs compared with the Python to take, as a sentence.
        changed: What the release changed on this Python, compared with the one tried before it.
        beside: Python to what this one is compared with it.
        builds: That these Pythons were built in other ways, if they were, or that nobody knows.
    """

    python: str
    torch: str
    worth: Worth
    reasons: tuple[str, ...]
    against: Mapping[str, str]
    changed: str
    cost: str = ""
    builds: str = ""
    beside: Mapping[str, Beside]

    def __str__(self) -> str:
        """Return a line per fact."""
        found = [f"Take Python {self.python} with PyTorch {self.torch}: {self.worth}."]
        found += [self.cost and f"But {self.cost}.", *self.reasons, *self.against.values()]
        return "\n".join(filter(None, [*found, self.builds, self.changed]))


def advise(
    rows: Iterable[Row], spreads: Spreads, disturbed: Collection[AtCommit] = ()
) -> Advice | None:
    """Return the newest Python, on the newest release with a right result, that costs nothing.

    It costs something if a case that passes on another Python fails, breaks more graphs or is
    slower, or if the mean speedup is shown to be lower. If each costs something, the one with most
    passing cases is taken.

    A free-threaded Python is compared with the one to take, and is taken only if no other has a
    right result: who wants it, wants it for another reason than that it is newer.

    Args:
        rows: All rows of one machine and device.
        spreads: What runs of the same code differ by.
        disturbed: The disturbed runs of the history (``disturbed_keys``): of a case with one, times
            are not compared.
    """
    run = _enough([row for row in rows if row.recorded is not None and not row.existing])
    passing = [row for row in run if row.speedup is not None]
    if not passing:
        return None
    passing = [row for row in passing if not is_free_threaded(row.python)] or passing
    torch = newest_release(row.torch for row in passing)
    cells = {
        python: [row for row in run if (row.python, row.torch) == (python, torch)]
        for python in sorted({row.python for row in run if row.torch == torch}, key=python_key)
    }
    compared = {
        (other, python): _compared(cells[other], cells[python], spreads, disturbed)
        for other, python in permutations(cells, 2)
    }
    costs = _costs(cells, compared)
    free = [python for python, cost in costs.items() if not cost]
    python = free[-1] if free else max(costs, key=lambda name: (_passed(cells[name]), name))
    others = [other for other in cells if other != python]
    here = [row for row in run if row.python == python]
    # The means are in the reasons, the other way round.
    against = {o: _cost(Beside(compared[python, o].found), o, python) for o in others}
    return Advice(
        python=python,
        torch=torch,
        worth=worth_of(cells[python], matched_cases(rows)),
        reasons=tuple(_reason(compared[other, python], python, other) for other in others),
        against={other: f"{cost}." for other, cost in against.items() if cost},
        changed=_changed(here, torch, spreads, disturbed),
        cost=costs[python],
        builds=_builds(cells),
        beside={other: compared[other, python] for other in others},
    )


def _costs(
    cells: Mapping[str, Sequence[Row]], compared: Mapping[tuple[str, str], Beside]
) -> dict[str, str]:
    """Return what each Python that may be taken costs compared with the others of these.

    Args:
        cells: Python to its rows.
        compared: Another Python and the one that is compared with it, to how they differ.
    """
    eligible = [python for python in cells if not is_free_threaded(python)]
    if not any(_passed(cells[python]) for python in eligible):
        eligible = [*cells]
    return {
        python: "; ".join(
            filter(None, (_cost(compared[o, python], python, o) for o in eligible if o != python))
        )
        for python in eligible
    }


def _enough(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of cells in which enough cases were run for a word on the cell."""
    cells = grouped_by(rows, lambda row: row.cell)
    most = max(map(cases_run, cells.values()), default=0)
    return [row for group in cells.values() if ran_enough(cases_run(group), most) for row in group]


def _passed(rows: Iterable[Row]) -> int:
    return sum(row.speedup is not None for row in rows)


def worth_of(rows: Iterable[Row], matched: frozenset[CaseInCell]) -> Worth:
    """Return what the cases of a cell are worth."""
    run = [row for row in rows if row.status != "not_run"]
    slow = [row for row in run if row.status == "slow"]
    return Worth(
        run=len(run),
        passing=_passed(run),
        slow=len(slow),
        short=sum(map(_is_short, slow)),
        speedup=cell_mean(run, matched),
        over=len(matched),
    )


def _is_short(row: Row) -> bool:
    eager_s = None if row.recorded is None else row.recorded.facts.eager_s
    return eager_s is not None and eager_s < SHORT_CALL_S


def _cost(beside: Beside, python: str, other: str) -> str:
    """Return what a Python costs compared with another one; empty if nothing was shown."""
    parts = []
    here, there = f"on {python}", f"on {other}"
    for kind, of_one, of_more in (
        ("fails", f"passes {there} but fails {here}", f"pass {there} but fail {here}"),
        ("degraded", *(f"{b} more graphs {here} than {there}" for b in ("breaks", "break"))),
        ("slower", *(f"{be} slower {here} than {there}" for be in ("is", "are"))),
    ):
        if names := beside.named(kind):
            what = of_one if len(names) == 1 else of_more
            parts.append(f"{counted(len(names), 'case')} {what}: {some(names, _NAMED)}")
    mean = beside.speedup
    if not parts and mean is not None and mean.high < 1:
        parts.append(f"on average {_ratio(mean, python, other)}")
    return "; ".join(parts)


def _reason(beside: Beside, python: str, other: str) -> str:
    found, mean = beside
    disturbed = disturbed_cases(found)
    if mean is not None:
        rest = f"; {disturbed} left out" if disturbed else ""
        return f"On average, {_ratio(mean, python, other)} ({mean.cases} comparable cases{rest})."
    if any(one.kind == "incomparable" and not one.is_disturbed for one in found):
        return f"Times on {other} were measured in another way and are not compared."
    return f"Times on {other} are not compared: {disturbed}." if disturbed else ""


def _builds(cells: Mapping[str, Sequence[Row]]) -> str:
    """Return how Pythons that are compared were built, unless all in one way."""
    builds = {
        python: made
        for python, rows in cells.items()
        if (made := {record.conditions.python_build for record in _records(rows)})
    }
    several = set().union(*builds.values())
    if len(builds) < 2 or (len(several) == 1 and None not in several):  # noqa: PLR2004  (a pair)
        return ""
    if None in several:
        return f"{BUILDS_UNKNOWN[0].upper()}{BUILDS_UNKNOWN[1:]}."
    named = "; ".join(
        f"{python}: {' or '.join(sorted(filter(None, made)))}" for python, made in builds.items()
    )
    return f"These Pythons differ in their builds, too, which may change speed ({named})."


def _changed(
    rows: Sequence[Row], torch: str, spreads: Spreads, disturbed: Collection[AtCommit]
) -> str:
    """Return what a release changed on a Python compared with the newest one tried before it."""
    newest = release_key(torch)
    # What could not be installed was not mended by a release that can.
    tried = {row.torch for row in rows if row.status != "unavailable"}
    earlier = [one for one in tried if release_key(one) < newest and not is_prerelease(one)]
    if not earlier:
        return ""
    last = max(earlier, key=release_key)
    before, now = (
        _records(
            row
            for row in rows
            if row.torch == one and (one == torch or row.status != "unavailable")
        )
        for one in (last, torch)
    )
    since = Beside(compare(before, now, "torch", spreads, (disturbed, disturbed)))
    parts = [
        f"{counted(len(names), f'{what} case')}: {some(names, _NAMED)}"
        for kind, what in (("fails", "failing"), ("slower", "slower"), ("fixed", "fixed"))
        if (names := since.named(kind))
    ]
    if not parts:
        return ""
    parts += filter(None, [disturbed_cases(since.found)])
    return f"Since PyTorch {last}: {'; '.join(parts)}."


def _compared(
    before: Sequence[Row], after: Sequence[Row], spreads: Spreads, disturbed: Collection[AtCommit]
) -> Beside:
    """Return how two Pythons differ on one release."""
    sides = disturbed, disturbed
    found = compare(_records(before), _records(after), "python", spreads, sides)
    means = [one.means.get("speedup") for one in summarise(found)]
    return Beside(found, next((one for one in means if one and math.isfinite(one.high)), None))


def _records(rows: Iterable[Row]) -> list[RunRecord]:
    return [row.record for row in rows if row.record is not None]


def _ratio(mean: Mean, python: str, other: str) -> str:
    ratio = f"{mean.ratio:.2f} [{mean.low:.2f}, {mean.high:.2f}]"
    return f"speedups on {python} are {ratio} times those on {other}"
