"""The findings of one process of a case, a line of JSON each as soon as it is known."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from ivhl.records.record import Phase


class Journal:
    """Append-only findings; every line is on disk before the next step starts."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8", buffering=1)
        self.phase: Phase = "import"
        self._entered = time.perf_counter()
        self._seconds: dict[str, float] = defaultdict(float)

    def close(self) -> None:
        """Note how long each phase took, and close the file."""
        self.enter(self.phase)
        self.note(phase_s=dict(self._seconds))
        self._file.close()

    def enter(self, phase: Phase) -> None:
        """Note that a phase begins."""
        self.book(self.phase)
        self.phase = phase
        self._write({"phase": phase})

    def book(self, what: str) -> None:
        """Book the seconds since the last booking under a name."""
        now = time.perf_counter()
        self._seconds[what] += now - self._entered
        self._entered = now

    def note(self, **findings: Any) -> None:  # noqa: ANN401  (JSON)
        """Note findings under their names in the record."""
        self._write({"findings": findings})

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line, allow_nan=False) + "\n")
