"""``ivhl course``: cases over all releases and Pythons, and where each side of them moved."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from ivhl.bench.attribution import RecordedLocks
from ivhl.cli import app, options
from ivhl.cli.complete import complete_cases
from ivhl.cli.declared import (
    check_any,
    known_changes,
    matrix_beside_records,
    results_folder,
    warn_unread,
)
from ivhl.cli.names import narrow, recorded
from ivhl.cli.screen import check_suffix, print_json, screen, write_rows
from ivhl.matrix.diff import diff_locks
from ivhl.matrix.project import find_root
from ivhl.records.text import printable
from ivhl.tracker.changes.comparable import builds_beside
from ivhl.tracker.changes.disturbed import disturbed_of, left_out
from ivhl.tracker.changes.kinds import Between
from ivhl.tracker.changes.steps import QUANTITIES, cases_of, find_steps, of_one_code
from ivhl.tracker.store.index import open_index
from ivhl.tracker.store.metrics import SIDES
from ivhl.tracker.store.records import case_name
from ivhl.tracker.support.compat import python_key, release_key
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.wording import counted, seconds, times

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ivhl.matrix.spec import Matrix
    from ivhl.records.identity import CaseInCell
    from ivhl.tracker.changes.incidents import KnownCauses
    from ivhl.tracker.changes.kinds import Kind
    from ivhl.tracker.changes.steps import CourseStep, QuantityStep, StepAxis
    from ivhl.tracker.store.entries import Entry
    from ivhl.tracker.store.spread import Spreads

SCHEMA = "ivhl.course/1"
_WORDS = {"torch": "PyTorch", "python": "Python"}
# Only these have names of their own in what a step changed; the rest are counted.
_NVIDIA = ("nvidia-", "cuda-")
# Cases that are named for each place, of those with the largest steps.
_NAMED = 4


@app.command("course")
def course_command(
    case: Annotated[
        list[str] | None,
        typer.Argument(
            help="WORKLOAD/SIZE/VARIANT, or a part of it. Without a case, what changed at each "
            "place, over all cases.",
            autocompletion=complete_cases,
        ),
    ] = None,
    python: options.Pythons = None,
    torch: options.Releases = None,
    machine: options.Machines = None,
    device: options.AnyDevice = None,
    results: options.Results = None,
    output: options.Output = None,
    *,
    every: options.Every = False,
    as_json: options.Json = False,
) -> None:
    """Show cases over all releases and Pythons, and where a side changed.

    From the records alone: speedup and seconds of each cell, the steps of each side between
    neighbours, and what was installed that differs there. Without a case: for each step, in which
    cases; --all names all of them. --output writes the cells as .csv, or .json.
    """
    check_suffix(output, ".csv", ".json")
    root = find_root()
    matrix = matrix_beside_records(root)
    folder = results_folder(results, root)
    index = open_index(folder)
    warn_unread(index.problems, results)
    check_any(index, folder)
    entries = narrow(
        index.entries, matrix, python=python, torch=torch, machine=machine, device=device
    )
    names = {name for e in entries for name in (e.case.workload, case_name(e.case))}
    wanted = recorded("case", case, names)
    chosen = cases_of(
        entry
        for entry in entries
        if not wanted.isdisjoint((entry.case.workload, case_name(entry.case)))
    )
    disturbed = disturbed_of(index.entries)
    installed = _Installed(root, matrix)
    known = known_changes(folder, root)
    if not case and not as_json and output is None:
        with screen(every=every) as console:
            _print_places(console, chosen, index.spreads, disturbed, known, every=every)
        return
    found = []
    with screen(every=every) as console:
        for (subject, dtype), cells in chosen.items():
            runs = of_one_code(cells)
            steps = find_steps(runs, index.spreads, every=every, disturbed=disturbed)
            if as_json or output is not None:
                found.append(_as_dict(subject, dtype, runs, steps, installed, disturbed, known))
            else:
                _print(console, subject, dtype, runs, steps, installed, disturbed, known)
    if as_json:
        print_json(SCHEMA, cases=found)
    elif output is not None:
        write_rows(output, [*_rows(found)], {"schema": SCHEMA, "cases": found})


def _rows(cases: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a row of CSV for each cell of each case."""
    for case in cases:
        about = {name: value for name, value in case.items() if name not in ("cells", "steps")}
        yield from (about | cell for cell in case["cells"])


def _ends(step: CourseStep, runs: Sequence[Entry]) -> tuple[Entry, Entry]:
    """Return the runs before and after a step, in its first cell."""
    by_cell = {(run.python, run.torch): run for run in runs}
    cell = step.cells[0]
    if step.along == "python":
        return by_cell[step.before, cell], by_cell[step.place, cell]
    return by_cell[cell, step.before], by_cell[cell, step.place]


class _Installed:
    """What differs between what is installed at the two ends of a step."""

    def __init__(self, root: Path, matrix: Matrix | None) -> None:
        self._locks = None if matrix is None else RecordedLocks(root, matrix)
        self._matrix = matrix

    def __call__(self, step: CourseStep, runs: Sequence[Entry]) -> str:
        """Return it in words; empty without a matrix, or if the locks of the runs are not in git."""
        if self._locks is None or self._matrix is None:
            return ""
        ends = _ends(step, runs)
        states = []
        for end in ends:
            lock = end.made.lock
            state = None if lock is None else self._locks.state(end.python, end.torch, lock)
            if state is None:
                return ""
            states.append(state)
        found = diff_locks(self._matrix, *states)
        moved = {name: f"{name} {a} -> {b}" for name, (a, b) in found.changed.items()}
        moved |= {name: f"{name} {version} added" for name, version in found.added.items()}
        moved |= {name: f"{name} {version} removed" for name, version in found.removed.items()}
        named = [text for name, text in sorted(moved.items()) if not name.startswith(_NVIDIA)]
        if rest := len(moved) - len(named):
            named.append(counted(rest, "package") + " of CUDA")
        return ", ".join(named) or "nothing"


def _print_places(
    console: Terminal,
    cases: Mapping[tuple[CaseInCell, str], Sequence[Entry]],
    spreads: Spreads,
    disturbed: frozenset[int],
    known: KnownCauses,
    *,
    every: bool,
) -> None:
    """Print what moved at each place, in which cases, one machine and device after another."""
    for (machine, device), subjects in groupby(
        cases, key=lambda one: (one[0].machine, one[0].device)
    ):
        places: dict[tuple[StepAxis, str, str], list[tuple[tuple[CaseInCell, str], CourseStep]]]
        places = defaultdict(list)
        runs = {subject: of_one_code(cases[subject]) for subject in subjects}
        for subject, entries in runs.items():
            for step in find_steps(entries, spreads, disturbed=disturbed):
                places[step.along, step.before, step.place].append((subject, step))
        shared = Counter(subject.workload for subject, _ in runs)
        titles = {
            one: one[0].workload if shared[one[0].workload] == 1 else one[0].name for one in runs
        }
        releases = {run.torch for entries in runs.values() for run in entries}
        pythons = {run.python for entries in runs.values() for run in entries}
        console.print(
            Text(
                f"{machine}, {device}: {counted(len(runs), 'case')} over "
                f"{counted(len(releases), 'PyTorch release')} and "
                f"{counted(len(pythons), 'Python')}",
                "bold",
            )
        )
        alone = [step for steps in places.values() for _, step in steps if step.may_be_disturbed]
        for place in sorted(places, key=_place_key):
            seen = [one for one in places[place] if not one[1].may_be_disturbed]
            if seen:
                _print_place(
                    console, place, [(titles[one], step) for one, step in seen], every=every
                )
                _print_cause(console, known, [_happened(one[0], step) for one, step in seen])
                pairs = [_ends(step, runs[subject]) for subject, step in places[place]]
                for text in builds_beside(pairs if place[0] == "python" else []):
                    console.print(f"    {text}")
        if not len(alone) < sum(map(len, places.values())):
            console.print("  no step is shown between neighbouring releases or Pythons")
        if alone:
            console.print(
                f"  {counted(len(alone), 'step')} that one cell of several shows alone, so perhaps "
                "disturbed runs: ivhl course CASE",
                style="bright_black",
            )
        if loud := [run for found in runs.values() for run in found if run.id in disturbed]:
            console.print(f"  {left_out(loud)}", style="bright_black")


def _place_key(place: tuple[StepAxis, str, str]) -> tuple[bool, Any, Any]:
    along, before, after = place
    key = release_key if along == "torch" else python_key
    return along == "python", key(after), key(before)


def _print_place(
    console: Terminal,
    place: tuple[StepAxis, str, str],
    steps: Sequence[tuple[str, CourseStep]],
    *,
    every: bool,
) -> None:
    along, before, after = place
    cells = sorted(
        {cell for _, step in steps for cell in step.cells},
        key=python_key if along == "torch" else release_key,
    )
    on = "Python" if along == "torch" else "PyTorch"
    console.print(
        Text(f"  {_WORDS[along]} {before} -> {after}, on {on} {', '.join(cells)}", "bold")
    )
    for side in QUANTITIES:
        for is_up in (True, False):
            moved = [
                (title, step.sides[side])
                for title, step in steps
                if side in step.sides
                and step.sides[side].moved
                and (step.sides[side].ratio > 1) == is_up
            ]
            if not moved:
                continue
            moved.sort(key=lambda one: one[1].ratio, reverse=is_up)
            named = [
                f"{title} {times(found.ratio)} [{found.low:.2f}, {found.high:.2f}]"
                for title, found in moved[: None if every else _NAMED]
            ]
            if rest := len(moved) - len(named):
                named.append(f"{rest} more")
            style = "red" if is_up != (side == "speedup") else "green"
            word = moved[0][1].word
            text = f"    {side} {word}, {counted(len(moved), 'case')}: {', '.join(named)}"
            console.print(Text(text, style))


def _print(
    console: Terminal,
    subject: CaseInCell,
    dtype: str,
    runs: Sequence[Entry],
    steps: Sequence[CourseStep],
    installed: _Installed,
    disturbed: frozenset[int],
    known: KnownCauses,
) -> None:
    commits = sorted({run.commit[:8] for run in runs})
    where = f"{subject.machine}, {subject.device}, {dtype}"
    console.print(Text(f"{subject.name}  {where}, commit {', '.join(commits)}", "bold"))
    _print_cells(console, runs, steps, disturbed)
    if not steps:
        console.print("  no step is shown between neighbouring releases or Pythons")
    for step in steps:
        ends = f"{_WORDS[step.along]} {step.before} -> {step.place}"
        on = "Python" if step.along == "torch" else "PyTorch"
        console.print(Text(f"  {ends}, on {on} {', '.join(step.cells)}", "bold"))
        for side in QUANTITIES:
            if side in step.sides:
                _print_side(console, side, step.sides[side])
        console.print(f"    {step.whose}")
        _print_cause(console, known, [_happened(subject, step)])
        for text in builds_beside([_ends(step, runs)] if step.along == "python" else []):
            console.print(f"    {text}")
        if changed := installed(step, runs):
            console.print(Text(f"    installed: {changed}", "bright_black"))


def _print_cause(console: Terminal, known: KnownCauses, moved: Sequence[Between]) -> None:
    if cause := known.causes(moved):
        console.print(Text(f"    known: {printable(cause)}", "cyan"))


def _happened(subject: CaseInCell, step: CourseStep) -> Between:
    """Return a step as a change, of which the cause may be known."""
    is_up = {side: found.ratio > 1 for side, found in step.sides.items() if found.moved}
    kind: Kind = "slower" if is_up.get("compiled") or is_up.get("speedup") is False else "faster"
    return Between(step.along, step.before, step.place, subject, kind, step.whose)


def _print_side(console: Terminal, side: str, found: QuantityStep) -> None:
    text = f"    {side} {found.word}: {times(found.ratio)} [{found.low:.2f}, {found.high:.2f}]"
    if len(found.each) > 1:
        text += (
            f" ({', '.join(f'{times(ratio)} on {cell}' for cell, ratio in found.each.items())})"
        )
    is_worse = (found.ratio > 1) != (side == "speedup")
    style = "" if not found.moved else "red" if is_worse else "green"
    console.print(Text(text, style))


def _print_cells(
    console: Terminal,
    runs: Sequence[Entry],
    steps: Sequence[CourseStep],
    disturbed: frozenset[int],
) -> None:
    """Print a row for each release, with speedup, eager and compiled seconds for each Python."""
    pythons = sorted({run.python for run in runs}, key=python_key)
    releases = sorted({run.torch for run in runs}, key=release_key)
    by_cell = {(run.python, run.torch): run for run in runs}
    table = [["PyTorch", *(f"Python {python}" for python in pythons)]]
    for torch in releases:
        row = [torch]
        for python in pythons:
            run = by_cell.get((python, torch))
            text = "" if run is None else _cell(run, steps)
            row.append(f"{text} !" if run is not None and run.id in disturbed else text)
        table.append(row)
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    for row in table:
        cells = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        console.print(f"  {'  '.join(cells).rstrip()}")
    legend = "  speedup, eager, compiled; * moved since the release before"
    if any(step.along == "python" for step in steps):
        legend += ", ^ since the Python before"
    if any(run.id in disturbed for run in runs):
        legend += "; ! disturbed, in no step"
    console.print(legend, style="bright_black")


def _cell(run: Entry, steps: Sequence[CourseStep]) -> str:
    if run.failure_class is not None:
        return run.failure_class
    marks = {
        side: "".join(
            mark
            for along, mark in (("torch", "*"), ("python", "^"))
            if any(
                _is_at(step, run, along) and step.sides[side].moved
                for step in steps
                if side in step.sides
            )
        )
        for side in QUANTITIES
    }
    parts = [
        (times if side == "speedup" else seconds)(run.values[side].value) + marks[side]
        for side in ("speedup", *SIDES)
        if side in run.values
    ]
    return ", ".join(parts)


def _is_at(step: CourseStep, run: Entry, along: str) -> bool:
    """Return whether a step of this axis lies between a run and the one before."""
    place, cell = (run.torch, run.python) if along == "torch" else (run.python, run.torch)
    return step.along == along and step.place == place and cell in step.cells


def _as_dict(
    subject: CaseInCell,
    dtype: str,
    runs: Sequence[Entry],
    steps: Sequence[CourseStep],
    installed: _Installed,
    disturbed: frozenset[int],
    known: KnownCauses,
) -> dict[str, Any]:
    return {
        "machine": subject.machine,
        "device": subject.device,
        **subject.case._asdict(),
        "dtype": dtype,
        "existing": subject.existing,
        "cells": [
            {
                "python": run.python,
                "torch": run.torch,
                "commit": run.commit,
                "failure": run.failure_class,
                "disturbed": run.id in disturbed,
                **{
                    name: run.values[name].value
                    for name in ("speedup", *SIDES)
                    if name in run.values
                },
            }
            for run in sorted(
                runs, key=lambda run: (python_key(run.python), release_key(run.torch))
            )
        ],
        "steps": [
            {
                "along": step.along,
                "before": step.before,
                "place": step.place,
                "cells": step.cells,
                "sides": {side: dict(found._asdict()) for side, found in step.sides.items()},
                "whose": step.whose,
                "cause": known.cause(_happened(subject, step)),
                "installed": installed(step, runs),
            }
            for step in steps
        ],
    }
