"""Show the progress of a run on the terminal: cell, case, elapsed time, estimated time left."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Self

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

    from rich.console import Console

    from ivhl.workload import Case

# Estimates until the first case of the run has finished; then the mean of the finished ones.
GUESS_CELL_S = 15.0
GUESS_CASE_S = 25.0


class Display:
    """Follows the file of events: prints a line per finished step and updates a live last line.

    Attributes:
        cannot_write: Why a record could not be written; empty if all were.
        measured_something: Whether any cell reached its cases, or failed with a record.
    """

    def __init__(
        self, console: Console, events: Path, cells: Sequence[str], cases: Sequence[Case]
    ) -> None:
        self._console = console
        self._events = events
        self._position = 0
        self._cells = list(cells)
        self._n_cases = len(cases)
        self._left = {cell: [c.name for c in cases] for cell in cells}
        self._case_seconds: list[float] = []
        self._case_began = time.time()
        self._began = time.time()
        self._doing = "starting asv"
        self.cannot_write = ""
        self.measured_something = False
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
        self._task = self._progress.add_task(
            self._doing, total=len(cells) * self._n_cases, left=""
        )

    def __enter__(self) -> Self:
        """Start the live line."""
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the live line."""
        self._progress.stop()

    def update(self) -> None:
        """Read and show the events since the last call."""
        with self._events.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._position += len(whole)
        for line in whole.splitlines():
            self._handle(json.loads(line))
        remaining = sum(len(names) for names in self._left.values())
        self._progress.update(
            self._task,
            description=self._doing,
            completed=len(self._cells) * self._n_cases - remaining,
            left=f"about {minutes(self.seconds_left())} left" if remaining else "",
        )

    def left(self) -> tuple[str, ...]:
        """Return the cases not yet measured, as ``cell: case``."""
        return tuple(f"{cell}: {case}" for cell, names in self._left.items() for case in names)

    def seconds_left(self) -> float:
        """Estimate the seconds left from the cases finished so far."""
        remaining = sum(len(names) for names in self._left.values())
        n = len(self._case_seconds)
        mean = sum(self._case_seconds) / n if n else GUESS_CASE_S
        untouched = sum(len(names) == self._n_cases for names in self._left.values())
        return remaining * mean + untouched * GUESS_CELL_S

    def _handle(self, event: dict[str, Any]) -> None:  # noqa: C901  (one arm per event)
        cell, case = event.get("cell", ""), event.get("case", "")
        match event["event"]:
            case "cell-creating":
                self._doing = f"{cell}: creating the environment"
            case "cell-created":
                self._say(f"{cell}: environment ready", event["seconds"])
            case "cell-building":
                self._doing = f"{cell}: installing commit {event['commit'][:8]}"
            case "cell-failed":
                first = event["message"].partition("\n")[0]
                self._say(f"{cell}: FAILED: {first}", event["seconds"])
                self._left[cell] = []
                self.measured_something = True
            case "cell-measuring":
                self.measured_something = True
            case "case-started":
                self._doing = f"{cell}: {case}"
                self._case_began = event["at"]
            case "case-kept":
                self._finish(cell, case)
                self._say(f"{cell}: {case}: has a record already", None)
            case "case-unchanged":
                self._finish(cell, case)
                self._say(f"{cell}: {case}: unchanged since its record at another commit", None)
            case "case-finished":
                self._finish(cell, case)
                self._case_seconds.append(event["at"] - self._case_began)
                self._say(f"{cell}: {case}: {outcome(event)}", event["seconds"])
            case "cell-measured":
                self._doing = f"{cell}: asv is reading the values"
            case "cannot-write":
                self.cannot_write = f"{event['path']}: {event['message']}"

    def _finish(self, cell: str, case: str) -> None:
        if case in self._left.get(cell, []):
            self._left[cell].remove(case)

    def _say(self, text: str, seconds: float | None) -> None:
        took = "" if seconds is None else f"  ({seconds:.1f} s)"
        self._console.print(f"{text}{took}", markup=False, highlight=False, soft_wrap=True)


def outcome(event: dict[str, Any]) -> str:
    """Return the speedup of a finished case, or its failure class."""
    if event["failure_class"]:
        return str(event["failure_class"])
    return f"{event['speedup']:.2f}x"


def minutes(seconds: float) -> str:
    """Return e.g. ``40 s`` or ``3 min``."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"  # noqa: PLR2004
