"""Collect the events of a run, and show them: cell, case, elapsed time, estimated time left."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Self

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

    from ivhl.workload import Case


# Estimates until the first case of the run has finished; then the mean of the finished ones.
GUESS_CELL_S = 15.0
GUESS_CASE_S = 25.0


class RunState:
    """Folds the events that the cells append to a file.

    Args:
        events: The file.
        cells: Ids of the cells to measure in.
        cases: Cases to measure in each.

    Attributes:
        cannot_write: Why a record could not be written; empty if all were.
        measured_something: Whether any cell reached its cases, or failed with a record.
    """

    def __init__(self, events: Path, cells: Sequence[str], cases: Sequence[Case]) -> None:
        self._events = events
        self._position = 0
        self._n_cases = len(cases)
        self._left = {cell: [case.name for case in cases] for cell in cells}
        self._case_seconds: list[float] = []
        self._case_began = time.time()
        self.cannot_write = ""
        self.measured_something = False

    def read(self) -> tuple[dict[str, Any], ...]:
        """Fold the events since the last call, and return them."""
        with self._events.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._position += len(whole)
        events = tuple(json.loads(line) for line in whole.splitlines())
        for event in events:
            self._fold(event)
        return events

    @property
    def n_cases(self) -> int:
        """Number of cases in all cells."""
        return len(self._left) * self._n_cases

    @property
    def n_left(self) -> int:
        """Number of cases not yet measured."""
        return sum(len(names) for names in self._left.values())

    def left(self) -> tuple[str, ...]:
        """Return the cases not yet measured, as ``cell: case``."""
        return tuple(f"{cell}: {case}" for cell, names in self._left.items() for case in names)

    def seconds_left(self) -> float:
        """Estimate the seconds left from the cases finished so far."""
        n = len(self._case_seconds)
        mean = sum(self._case_seconds) / n if n else GUESS_CASE_S
        untouched = sum(len(names) == self._n_cases for names in self._left.values())
        return self.n_left * mean + untouched * GUESS_CELL_S

    def _fold(self, event: dict[str, Any]) -> None:
        cell, case = event.get("cell", ""), event.get("case", "")
        match event["event"]:
            case "cell-failed":
                self._left[cell] = []
                self.measured_something = True
            case "cell-measuring":
                self.measured_something = True
            case "case-started":
                self._case_began = event["at"]
            case "case-kept" | "case-unchanged":
                self._finish(cell, case)
            case "case-finished":
                self._finish(cell, case)
                self._case_seconds.append(event["at"] - self._case_began)
                self._case_began = event["at"]  # of cases that are compiled beside each other
            case "cannot-write":
                self.cannot_write = f"{event['path']}: {event['message']}"

    def _finish(self, cell: str, case: str) -> None:
        if case in self._left.get(cell, []):
            self._left[cell].remove(case)


# Event to what a run does after it.
_DOING = {
    "cell-creating": "creating the environment",
    "cell-building": "installing commit {commit:.8}",
    "cell-measuring": "starting PyTorch",
    "case-started": "{case}",
    "cell-measured": "asv is reading the values",
}
_WARMS_UP = "cases without a record wait for PyTorch to start: 10 s, in a new cell up to a minute"


class Display:
    """Prints a line per finished step, and updates a live last line. It only draws the state."""

    def __init__(self, console: Console, state: RunState) -> None:
        self._console = console
        self._state = state
        self._doing = "starting asv"
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=16),
            TextColumn("{task.completed}/{task.total}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task(self._doing, total=state.n_cases, left="")

    def __enter__(self) -> Self:
        """Start the live line."""
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the live line."""
        self._progress.stop()

    def update(self) -> None:
        """Show the events since the last call."""
        state = self._state
        for event in state.read():
            self._show(event)
        left = f"about {minutes(state.seconds_left())} left" if state.n_left else ""
        self._progress.update(
            self._task,
            description=self._doing,
            completed=state.n_cases - state.n_left,
            left=left,
        )

    def _show(self, event: dict[str, Any]) -> None:
        cell, case = event.get("cell", ""), event.get("case", "")
        if event["event"] in _DOING:
            self._doing = f"{cell}: {_DOING[event['event']].format(**event)}"
        match event["event"]:
            case "cell-created":
                self._say(f"{cell}: environment ready", event["seconds"])
            case "cell-failed":
                first = event["message"].partition("\n")[0]
                self._say(f"{cell}: FAILED: {first}", event["seconds"])
            case "cell-measuring":
                self._say(f"{cell}: {_WARMS_UP}", None)
            case "case-kept":
                self._say(f"{cell}: {case}: has a record already", None)
            case "case-unchanged":
                self._say(f"{cell}: {case}: unchanged since its record at another commit", None)
            case "case-finished":
                self._say(f"{cell}: {case}: {outcome(event)}", event["seconds"])

    def _say(self, text: str, seconds: float | None) -> None:
        took = "" if seconds is None else f"  ({seconds:.1f} s)"
        self._console.print(f"{text}{took}", soft_wrap=True)


def outcome(event: dict[str, Any]) -> str:
    """Return the speedup of a finished case with what of it runs eagerly, or its failure class."""
    if event["failure_class"]:
        return str(event["failure_class"])
    speedup = event["speedup"]
    known = "works" if speedup is None else f"{speedup:.2f}x"
    return ", ".join(filter(None, (known, event.get("beside"))))


def minutes(seconds: float) -> str:
    """Return e.g. ``40 s`` or ``3 min``."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"  # noqa: PLR2004
