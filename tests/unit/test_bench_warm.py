"""New cells get ready beside each other; one that is there or was altered is left to the run."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

import ivhl.bench.main as warm
from ivhl.matrix.spec import CellSpec
from ivhl.measure import lanes
from ivhl.measure.effort import Effort
from ivhl.measure.settings import VARIABLE, Settings
from ivhl.records.record import Machine
from tests.builders.machine import script

if TYPE_CHECKING:
    from collections.abc import Sequence

# Ends when as many have begun as there are cells, or after five seconds.
WAITS_FOR_ALL = """\
echo "$IVHL_CELL" >> "{begun}"
for _ in $(seq 100); do
    [ $(wc -l < "{begun}") -ge {cells} ] && echo done >> "{ended}" && exit 0
    sleep 0.05
done
"""
SPECS = [CellSpec("3.12", release) for release in ("2.5.1", "2.6.0", "2.15.0")]


@dataclass
class Cells:
    """Cells whose Python is a script.

    Attributes:
        there: Those that an earlier run has made.
        altered: Those whose files are not those of their wheels.
    """

    root: Path
    there: Sequence[CellSpec] = ()
    altered: Sequence[CellSpec] = ()

    def folder(self, spec: CellSpec) -> Path:
        """Return the folder of a cell's environment."""
        return self.root / "env" / spec.id

    def use_scripts(self, n_cells: int) -> None:
        """Have each Python wait until that many have begun."""
        begun, ended = self.root / "begun", self.root / "ended"
        for spec in SPECS:
            text = WAITS_FOR_ALL.format(begun=begun, ended=ended, cells=n_cells)
            script(self.folder(spec) / "bin" / "python", text)

    def warm(self, **effort: Any) -> list[str]:  # noqa: ANN401
        """Return the cells in which a process was started."""
        settings = Settings.of_checkout(
            self.root,
            project="demo",
            workloads="m:W",
            machine=Machine(name="m", cpu="c", n_cpus=2, memory_bytes=1 << 30, system="s"),
            results=self.root / "results",
            effort=Effort(**effort),
        )
        locks: Any = [SimpleNamespace(cell=spec, sha256="0" * 64) for spec in SPECS]
        warm.warm_cells(settings, locks, Console(quiet=True), list)
        begun = self.root / "begun"
        lines = begun.read_text(encoding="utf-8").splitlines() if begun.exists() else []
        return sorted(json.loads(line)["torch"] for line in lines)


@pytest.fixture
def cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cells:
    made = Cells(tmp_path)
    made.use_scripts(len(SPECS))

    def altered_files(folder: Path, **_: object) -> list[str]:
        return ["torch.py"] if folder in map(made.folder, made.altered) else []

    monkeypatch.setattr(warm, "make_cell", lambda _, spec: made.folder(spec))
    monkeypatch.setattr(
        warm, "find_cell", lambda _, spec: made.folder(spec) if spec in made.there else None
    )
    monkeypatch.setattr(warm, "altered_files", altered_files)
    monkeypatch.setattr(warm, "copy_instrument", lambda *_: tmp_path)
    monkeypatch.setattr(warm, "PATIENCE_S", 5.0)
    return made


def test_all_new_cells_are_warmed_beside_each_other(cells: Cells) -> None:
    assert cells.warm() == ["2.15.0", "2.5.1", "2.6.0"]
    assert (cells.root / "ended").read_text(encoding="utf-8").split() == ["done"] * 3


def test_a_single_new_cell_is_left_to_the_run(cells: Cells) -> None:
    cells.there = SPECS[1:]
    assert cells.warm() == []


def test_nothing_runs_in_a_cell_whose_files_were_altered(cells: Cells) -> None:
    cells.altered = SPECS[:1]
    cells.use_scripts(2)
    assert cells.warm() == ["2.15.0", "2.6.0"]


@pytest.mark.parametrize("effort", [{"device": "cuda"}, {"cold": True}])
def test_nothing_is_kept_for_a_run_that_would_not_use_it(
    cells: Cells, effort: dict[str, Any]
) -> None:
    assert cells.warm(**effort) == []


def test_processes_that_do_not_end_are_ended(
    cells: Cells, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm, "PATIENCE_S", 0.2)
    pids = cells.root / "pids"
    for spec in SPECS:
        script(cells.folder(spec) / "bin" / "python", f'echo $$ >> "{pids}"; exec sleep 600')
    cells.warm()
    alive = [
        pid for pid in pids.read_text(encoding="utf-8").split() if Path(f"/proc/{pid}").exists()
    ]
    assert alive == []


def test_the_environment_of_the_process_is_as_before(
    cells: Cells, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "before")
    cells.warm()
    assert os.environ[VARIABLE] == "before"


def test_the_kept_throwaway_depends_on_the_packages_but_not_on_the_project(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def key(*packages: str) -> str:
        monkeypatch.setattr(lanes, "installed_packages", lambda: packages)
        run: Any = SimpleNamespace(
            project="my_demo",
            effort=Effort(),
            cell=SimpleNamespace(lock_sha256="0" * 64),
            machine=SimpleNamespace(cpu="c"),
            image=None,
        )
        return lanes.key_of_throwaway(run)

    assert key("my-demo==1", "torch==2.6.0") == key("torch==2.6.0")
    assert key("my-demo==1", "torch==2.6.0") == key("my-demo==2", "torch==2.6.0")
    assert key("torch==2.6.0") != key("torch==2.5.1")
