"""Settings that the caller writes for the cells, in the file that ``IVHL_SETTINGS`` names."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import ivhl
from ivhl.measure.effort import Effort, read_effort
from ivhl.measure.harness import harness
from ivhl.measure.run import Run
from ivhl.measure.shared import shared_folder
from ivhl.records.record import Cell, Machine
from ivhl.workload import Case, load_workloads, named_cases, select_cases

VARIABLE = "IVHL_SETTINGS"
CELL_VARIABLE = "IVHL_CELL"
COMMIT_VARIABLE = "IVHL_COMMIT"
# Folders with the project at the commit of the run and at its base, where the two take turns.
PROJECT_VARIABLE = "IVHL_PROJECT"
BASE_VARIABLE = "IVHL_BASE"


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """One run over several cells; see ``ivhl.measure.run.Run`` for what it becomes in each.

    Attributes:
        names: Cases wanted, as ``Case.name``; empty means every variant at the default size.
        events: File that gets a line of JSON for everything that happens, for the progress display.
        interpreters: Python of the matrix to executable.
        shared: See ``ivhl.measure.run.Run``.
        base: Commit whose processes take turns with those of the run's; ``None`` if there is none.
    """

    root: str
    project: str
    workloads: str
    machine: Machine
    results: str
    scratch: str
    events: str
    interpreters: dict[str, str]
    names: tuple[str, ...] = ()
    effort: Effort = field(default_factory=Effort)
    shared: str | None = None
    base: str | None = None

    @classmethod
    def of_checkout(
        cls,
        root: Path,
        *,
        project: str,
        workloads: str,
        machine: Machine,
        results: Path,
        effort: Effort | None = None,
    ) -> Settings:
        """Return the settings of a run in a checkout, whose working files are in ``.asv``.

        Args:
            root: Root of the project.
            project: Name of the project.
            workloads: See ``ivhl.workload.load_workloads``.
            machine: The machine that the records describe.
            results: Folder of the results.
            effort: How to measure; ``None`` means the defaults.
        """
        home, shared = root / ".asv", shared_folder()
        return cls(
            root=str(root),
            project=project,
            workloads=workloads,
            machine=machine,
            results=str(results),
            scratch=str(home / "scratch"),
            events=str(home / "events.jsonl"),
            interpreters={},
            shared=None if shared is None else str(shared),
            effort=effort or Effort(),
        )

    def run_in(
        self,
        cell: Cell,
        commit: str,
        *,
        image: str | None = None,
        project_path: str | None = None,
    ) -> Run:
        """Return the run of one cell at one commit, in a container of the image if there is one."""
        folder = Path(self.scratch).parent
        return Run(
            project=self.project,
            commit=commit,
            workloads=self.workloads,
            cell=cell,
            machine=self.machine,
            results=self.results,
            scratch=self.scratch,
            repeat=f"ivhl bench --python {cell.python} --torch {cell.torch} --commit {commit[:8]}",
            effort=self.effort,
            # A container's would go with it, and takes of its memory until then. What other flags
            # compiled is no cold start.
            cache=None if image or self.effort.flags else str(folder / "compile-cache"),
            shared=None if image or self.effort.flags else self.shared,
            image=image,
            project_path=project_path,
        )

    def cases(self) -> tuple[Case, ...]:
        """Return the cases that are wanted.

        Raises:
            UnknownNameError: If there is no case of a name that was asked for.
        """
        workloads = load_workloads(self.workloads)
        if not self.names:
            return select_cases(workloads, device=self.effort.device)
        return named_cases(workloads, self.names, self.effort.device)

    def carried(self) -> list[tuple[Path, str]]:
        """Return what a cell is given to measure with: file or folder, and its name there.

        That is the measuring half of this checkout, and the folder of benchmarks if there is one.
        """
        package = Path(ivhl.__file__).parent
        parts = [package / "__init__.py", *harness().values()]
        found = [(part, f"ivhl/{part.name}") for part in parts]
        if ":" not in self.workloads:
            found.append((Path(self.root) / self.workloads, self.workloads))
        return found

    def report(self, event: str, **details: Any) -> None:  # noqa: ANN401  (JSON)
        """Append an event; a display that cannot be written must not end a measurement."""
        line = json.dumps({"event": event, "at": time.time(), **details})
        try:
            with Path(self.events).open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError:
            return


def write_settings(path: Path, settings: Settings) -> None:
    """Write the settings as JSON.

    Raises:
        OSError: If the folder cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(settings), indent=1), encoding="utf-8")


def read_settings(path: Path | None = None) -> Settings:
    """Return the settings of this run.

    Raises:
        KeyError: If ``IVHL_SETTINGS`` is not set and no path is given.
        OSError: If the file cannot be read.
    """
    path = path or Path(os.environ[VARIABLE])
    data = json.loads(path.read_text(encoding="utf-8"))
    return Settings(
        **data
        | {
            "machine": Machine(**data["machine"]),
            "effort": read_effort(data["effort"]),
            "names": tuple(data["names"]),
        }
    )
