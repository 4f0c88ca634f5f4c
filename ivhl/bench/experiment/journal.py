"""The journal of an experiment: what is asked, and a line for each step, so a killed one goes on."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ivhl.errors import SpecError
from ivhl.matrix.locks import lock_state
from ivhl.matrix.project import load_project
from ivhl.records.files import append_line
from ivhl.tracker.store.kept import load_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from ivhl.matrix.spec import CellSpec

Line = TypeVar("Line")
# Raised when the lines of a journal come to mean something else.
FORM: Final = 1


def digest_of(about: Sequence[str]) -> str:
    """Return the name of what an experiment asks: 16 hex digits."""
    return hashlib.sha256("\n".join(about).encode()).hexdigest()[:16]


def journal_of(root: Path, kind: str, about: Sequence[str]) -> Path:
    """Return the file of the journal of an experiment.

    Args:
        root: Root of the project.
        kind: The command, such as ``bisect``.
        about: All that the answers depend on.
    """
    return root / ".asv" / kind / f"{digest_of(about)}.jsonl"


def digest_of_tree(root: Path, cells: Iterable[CellSpec]) -> str:
    """Return a digest of what the working tree adds to each commit: benchmarks, and locks of cells.

    Raises:
        SpecError: If the project is not valid.
    """
    locks = {lock_state(root, cell).sha256 for cell in cells}
    parts = (load_project(root).digest_of_benchmarks, *sorted(map(str, locks)))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def drop_torn_line(path: Path) -> None:
    """Remove what a killed process has left of the last line of a file."""
    if path.is_file():
        whole = path.read_bytes()
        if not whole.endswith(b"\n"):
            path.write_bytes(whole[: whole.rfind(b"\n") + 1])


class ExperimentJournal(Generic[Line]):
    """The lines of an experiment, in a file whose first line says what is asked.

    Args:
        path: The file (``journal_of``).
        about: All that the answers depend on.
        parse: Makes a line of JSON; raises ``ValueError`` or ``TypeError`` if it cannot.
        what: The name of a line in error messages.

    Raises:
        ResultsError: If a line is none; names the line.
        SpecError: If the file belongs to another experiment, or to an ivhl of before.
    """

    def __init__(
        self, path: Path, about: Sequence[str], parse: Callable[[Any], Line], what: str
    ) -> None:
        self.path, self._head = path, {"experiment": FORM, "about": [*about]}
        drop_torn_line(path)

        def line_of(data: Any) -> Any:  # noqa: ANN401  (JSON)
            return data if isinstance(data, dict) and "experiment" in data else parse(data)

        head, *lines = load_lines(path, line_of, what, "an experiment") or (self._head,)
        if head != self._head:
            raise SpecError(
                f"{path}: is the journal of an experiment from before: it does not begin with what "
                "is asked now",
                hint="move the file, and the same command begins again; records stay in the results",
            )
        self.lines: list[Line] = lines

    def add(self, line: Line, data: dict[str, Any]) -> None:
        """Keep a line, whose JSON is ``data``."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self.path.is_file():
            append_line(self.path, json.dumps(self._head))
        append_line(self.path, json.dumps(data))
        self.lines.append(line)

    def end(self) -> None:
        """Remove the journal of an experiment that has ended: the next one begins anew."""
        self.path.unlink(missing_ok=True)
