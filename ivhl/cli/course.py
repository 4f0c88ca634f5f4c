"""``ivhl course``: cases over all releases and Pythons, and where each side of them moved."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import groupby, product
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ivhl.bench.attribution import RecordedLocks
from ivhl.cli import app, options
from ivhl.cli.declared import known_changes, matrix_beside_records, stored
from ivhl.cli.names import narrow, recorded
from ivhl.cli.screen import fold, give, picked, screen
from ivhl.matrix.diff import diff_locks
from ivhl.records.identity import CaseInCell, titles_of
from ivhl.records.text import printable
from ivhl.tracker.changes.comparable import builds_beside
from ivhl.tracker.changes.disturbed import disturbed_of, left_out
from ivhl.tracker.changes.kinds import Between, Kind
from ivhl.tracker.changes.steps import QUANTITIES, cases_of, ends_of, find_steps, of_one_code
from ivhl.tracker.store.metrics import SIDES
from ivhl.tracker.store.records import case_name
from ivhl.tracker.support.compat import python_key, release_key
from ivhl.tracker.terminal import Columns, Terminal
from ivhl.tracker.wording import counted, seconds, times

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ivhl.tracker.changes.incidents import KnownCauses
    from ivhl.tracker.changes.steps import CourseStep, QuantityStep, StepAxis
    from ivhl.tracker.store.entries import Entry

# Only these have names of their own in what a step changed; the rest are counted.
_NVIDIA = ("nvidia-", "cuda-")
_NO_STEP = "no step is shown between neighbouring releases or Pythons"
# Cases that are named for each place, of those with the largest steps.
_NAMED = 4


@app.command("course")
@options.choosing("workload", "size", "variant")
def course_command(
    case: Annotated[
        list[str] | None,
        typer.Argument(
            help="WORKLOAD/SIZE/VARIANT, or a part of it. Without a case: the changes of "
            "all cases, by release and Python."
        ),
    ] = None,
    *,
    asked: options.Asked,
) -> None:
    """Show cases over all releases and Pythons, and where a side changed.

    From the records alone: speedup and seconds of each cell, the steps of each side between
    neighbours, and what was installed that differs there. Without a case: for each step, in which
    cases; --all names all of them. --output writes the cells as .csv, or .json.
    """
    root, folder, index = stored(asked.results)
    matrix = matrix_beside_records(root)
    entries = narrow(index.entries, matrix, **asked.chosen)
    names = {name for e in entries for name in (e.case.workload, case_name(e.case))}
    wanted = recorded("case", case, names)
    cases = cases_of(
        entry
        for entry in entries
        if not wanted.isdisjoint((entry.case.workload, case_name(entry.case)))
    )
    beside = _Beside(
        None if matrix is None else RecordedLocks(root, matrix),
        disturbed_of(index.entries),
        known_changes(folder, root),
    )
    courses = [
        _Course(
            subject,
            dtype,
            runs := of_one_code(cells),
            find_steps(
                runs,
                index.spreads,
                every=asked.every and bool(case or asked.is_for_programs),
                disturbed=beside.disturbed,
            ),
        )
        for (subject, dtype), cells in cases.items()
    ]
    if asked.is_for_programs:
        found = [_as_dict(one, beside) for one in courses]
        give("ivhl.course/1", asked.output, _rows(found), cases=found)
        return
    with screen(every=asked.every) as console:
        if not case:
            _print_places(console, courses, beside)
            return
        titles = titles_of(one.subject for one in courses)
        for one in courses:
            _print(console, one, titles[one.subject], beside)


class _Beside(NamedTuple):
    """What courses are read beside: what was installed, which runs are disturbed, known causes."""

    locks: RecordedLocks | None
    disturbed: frozenset[int]
    known: KnownCauses


class _Course(NamedTuple):
    """A case over releases and Pythons."""

    subject: CaseInCell
    dtype: str
    runs: Sequence[Entry]
    steps: Sequence[CourseStep]

    def change(self, step: CourseStep) -> Between:
        """Return a step as a change, of which the cause may be known."""
        is_up = {side: found.ratio > 1 for side, found in step.sides.items() if found.moved}
        is_slower = is_up.get("compiled") or is_up.get("speedup") is False
        kind: Kind = "slower" if is_slower else "faster"
        return Between(step.along, step.before, step.place, self.subject, kind, step.whose)

    def installed(self, step: CourseStep, locks: RecordedLocks | None) -> str:
        """Return how the packages differ at the ends of a step.

        Empty without a matrix, or if the locks of the runs are not in git.
        """
        if locks is None:
            return ""
        states = [
            one.made.lock and locks.state(one.python, one.torch, one.made.lock)
            for one in ends_of(step, self.runs)
        ]
        if not (states[0] and states[1]):
            return ""
        found = diff_locks(locks.matrix, states[0], states[1])
        moved = {name: f"{name} {a} -> {b}" for name, (a, b) in found.changed.items()}
        moved |= {name: f"{name} {version} added" for name, version in found.added.items()}
        moved |= {name: f"{name} {version} removed" for name, version in found.removed.items()}
        named = [text for name, text in sorted(moved.items()) if not name.startswith(_NVIDIA)]
        if rest := len(moved) - len(named):
            named.append(counted(rest, "package") + " of CUDA")
        return ", ".join(named) or "nothing"


def _rows(cases: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a row of CSV for each cell of each case."""
    for case in cases:
        about = {name: value for name, value in case.items() if name not in ("cells", "steps")}
        yield from (about | cell for cell in case["cells"])


def _print_places(console: Terminal, courses: Sequence[_Course], beside: _Beside) -> None:
    """Print what moved at each place, in which cases, one machine and device after another."""
    for (machine, device), group in groupby(
        courses, key=lambda one: (one.subject.machine, one.subject.device)
    ):
        here = [*group]
        runs = [run for one in here for run in one.runs]
        names = {one.subject.name: one.subject.workload for one in here}
        shared = Counter(names.values())
        titles = {
            case: (case.workload if shared[case.workload] == 1 else case.name)
            + title.removeprefix(case.name)
            for case, title in titles_of(one.subject for one in here).items()
        }
        places: dict[tuple[StepAxis, str, str], list[tuple[_Course, CourseStep]]]
        places = defaultdict(list)
        alone = 0
        for one in here:
            for step in one.steps:
                if step.may_be_disturbed:
                    alone += 1
                else:
                    places[step.along, step.before, step.place].append((one, step))
        over = f"{counted(len({run.torch for run in runs}), 'PyTorch release')} and "
        over += counted(len({run.python for run in runs}), "Python")
        fold(console, f"{machine}, {device}: {counted(len(names), 'case')} over {over}", "bold")
        for place in sorted(places, key=_place_key):
            seen = places[place]
            steps = [(titles[one.subject], step) for one, step in seen]
            _print_place(console, steps)
            _print_known(console, beside.known, seen)
        if not places:
            fold(console, _NO_STEP, indent=2)
        if alone:
            text = f"{counted(alone, 'step')} in one of several cells only, perhaps of "
            fold(console, text + "disturbed runs: ivhl course CASE", "bright_black", indent=2)
        if loud := left_out(runs, beside.disturbed):
            fold(console, loud, "bright_black", indent=2)


def _place_key(place: tuple[StepAxis, str, str]) -> tuple[bool, Any, Any]:
    along, before, after = place
    key = release_key if along == "torch" else python_key
    return along == "python", key(after), key(before)


def _print_place(console: Terminal, steps: Sequence[tuple[str, CourseStep]]) -> None:
    first = steps[0][1]
    key = python_key if first.along == "torch" else release_key
    cells = tuple(sorted({cell for _, step in steps for cell in step.cells}, key=key))
    fold(console, first._replace(cells=cells).title("->"), "bold", indent=2)
    for side, is_up in product(QUANTITIES, (True, False)):
        moved = [
            (title, found, step)
            for title, step in steps
            if (found := step.sides.get(side)) and found.moved and (found.ratio > 1) == is_up
        ]
        if not moved:
            continue
        moved.sort(key=lambda one: one[1].ratio, reverse=is_up)
        # A case steps more than once where its Pythons do not share the step.
        n_steps = Counter(title for title, *_ in moved)
        texts = [
            f"{title}{' on ' + ', '.join(step.cells) if n_steps[title] > 1 else ''} {found.size}"
            for title, found, step in moved
        ]
        named = texts if console.every else texts[:_NAMED]
        if rest := len(moved) - len(named):
            named.append(f"{rest} more")
        # Versions of a case are one case.
        cases = counted(len({title.partition(" (")[0] for title in n_steps}), "case")
        text = f"{side} {moved[0][1].word}, {cases}: {', '.join(named)}"
        fold(console, text, _style(side, moved[0][1]), indent=4)


def _style(side: str, found: QuantityStep) -> str:
    return "red" if (found.ratio > 1) != (side == "speedup") else "green"


def _print(console: Terminal, course: _Course, title: str, beside: _Beside) -> None:
    subject = course.subject
    commits = sorted({run.commit[:8] for run in course.runs})
    where = ", ".join((*subject.place, course.dtype))
    fold(console, f"{title}  {where}, commit {', '.join(commits)}", "bold")
    _print_cells(console, course, beside.disturbed)
    if not course.steps:
        fold(console, _NO_STEP, indent=2)
    for step in course.steps:
        fold(console, step.title("->"), "bold", indent=2)
        for side in QUANTITIES:
            if found := step.sides.get(side):
                each = ", ".join(f"{times(r)} on {cell}" for cell, r in found.each.items())
                more = f" ({each})" if len(found.each) > 1 else ""
                style = _style(side, found) if found.moved else ""
                fold(console, f"{found}{more}", style, indent=4)
        fold(console, step.whose, indent=4)
        _print_known(console, beside.known, [(course, step)])
        if changed := course.installed(step, beside.locks):
            fold(console, f"installed: {changed}", "bright_black", indent=4)


def _print_known(
    console: Terminal, known: KnownCauses, steps: Sequence[tuple[_Course, CourseStep]]
) -> None:
    """Print the known cause of steps of one place, and the builds of Python that differ there."""
    if cause := known.causes([course.change(step) for course, step in steps]):
        fold(console, f"known: {printable(cause)}", "cyan", indent=4)
    pairs = [ends_of(step, course.runs) for course, step in steps if step.along == "python"]
    for text in builds_beside(pairs):
        fold(console, text, indent=4)


def _print_cells(console: Terminal, course: _Course, disturbed: frozenset[int]) -> None:
    """Print a row for each release, with speedup, eager and compiled seconds for each Python."""
    runs = course.runs
    pythons = sorted({run.python for run in runs}, key=python_key)
    by_cell = {(run.python, run.torch): run for run in runs}
    table = Columns("  PyTorch", *(f"Python {python}" for python in pythons))
    for torch in sorted({run.torch for run in runs}, key=release_key):
        found = [by_cell.get((python, torch)) for python in pythons]
        texts = [
            "" if run is None else _cell(run, course.steps) + " !" * (run.id in disturbed)
            for run in found
        ]
        table.add_row(f"  {torch}", *texts)
    console.print(table)
    legend = "speedup, eager, compiled; * moved since the release before"
    if any(step.along == "python" for step in course.steps):
        legend += ", ^ since the Python before"
    if any(run.id in disturbed for run in runs):
        legend += "; ! disturbed, in no step"
    fold(console, legend, "bright_black", indent=2)


def _cell(run: Entry, steps: Sequence[CourseStep]) -> str:
    if run.failure_class is not None:
        return run.failure_class
    mine = [step for step in steps if _is_at(step, run)]
    marks = {
        side: "".join(
            mark
            for along, mark in (("torch", "*"), ("python", "^"))
            if any(
                step.along == along and side in step.sides and step.sides[side].moved
                for step in mine
            )
        )
        for side in QUANTITIES
    }
    return ", ".join(
        (times if side == "speedup" else seconds)(run.values[side].value) + marks[side]
        for side in ("speedup", *SIDES)
        if side in run.values
    )


def _is_at(step: CourseStep, run: Entry) -> bool:
    """Return whether a step lies between a run and the one before."""
    ends = (run.torch, run.python) if step.along == "torch" else (run.python, run.torch)
    return step.place == ends[0] and ends[1] in step.cells


def _as_dict(course: _Course, beside: _Beside) -> dict[str, Any]:
    subject = course.subject
    runs = sorted(course.runs, key=lambda run: (python_key(run.python), release_key(run.torch)))
    return {
        **picked(subject, "machine device existing"),
        **subject.case._asdict(),
        "dtype": course.dtype,
        "cells": [
            {
                **picked(run, "python torch commit"),
                "failure": run.failure_class,
                "disturbed": run.id in beside.disturbed,
                **{side: run.values[side].value for side in QUANTITIES if side in run.values},
            }
            for run in runs
        ],
        "steps": [
            {
                **picked(step, "along before place cells whose"),
                "sides": {side: found._asdict() for side, found in step.sides.items()},
                "cause": beside.known.cause(course.change(step)),
                "installed": course.installed(step, beside.locks),
            }
            for step in course.steps
        ],
    }
