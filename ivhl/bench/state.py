"""Collect the events of a run: remaining work, failures, and how long cases take."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

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
