"""A fleet of three machines, from the split to the site, measures every cell once."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from ivhl.asv.publish import publish
from ivhl.bench.main import cases_of_cells
from ivhl.bench.request import Request
from ivhl.bench.work import Shard
from ivhl.fleet.bring import import_records
from ivhl.instrument import INSTRUMENT
from ivhl.matrix.locks import lock_state
from ivhl.matrix.project import load_project
from ivhl.matrix.spec import load_matrix
from ivhl.measure import runner
from ivhl.measure.lanes import CompiledCase
from ivhl.measure.launcher import Launcher
from ivhl.measure.settings import Settings
from ivhl.records.record import to_json
from ivhl.workload import select_cases
from studies.stored import load_records
from tests.builders.fleet import (
    CELLS,
    WORKLOADS,
    a_record,
    commit,
    machine,
    make_fleet_project,
    tree,
    write_records,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ivhl.measure.runner import Commit
    from ivhl.records.record import RunRecord
    from ivhl.workload import Case

COUNT = 3
EVERY = {
    (f"py{python}-torch{torch}", case.name)
    for python, torch in CELLS
    for case in select_cases(WORKLOADS)
}


@dataclass
class Meter:
    """Replaces the harness: makes a record of a case, or is killed.

    Attributes:
        dies_after: Number of cases after which the machine fails.
    """

    root: Path
    measured: list[tuple[str, str, str]] = field(default_factory=list)
    dies_after: int | None = None

    def measure(
        self, commits: Sequence[Commit], cases: Sequence[Case], *_: object
    ) -> list[list[RunRecord]]:
        """Replace ``ivhl.measure.runner.time_cases``."""
        (commit,), (case,) = commits, cases
        run = commit.run
        if self.dies_after is not None and len(self.measured) >= self.dies_after:
            raise KeyboardInterrupt
        self.measured.append((run.machine.name, run.cell.id, case.name))
        record = a_record(
            self.root,
            run.machine.name,
            minute=len(self.measured),
            workload=case.workload.name,
            variant=case.variant.name,
            speedup=1.0 + len(self.measured),
            torch=run.cell.torch,
        )
        # With the current instrument, so that the case is not measured again after a restart.
        conditions = replace(record.conditions, instrument=str(INSTRUMENT))
        return [[replace(record, commit=run.commit, cell=run.cell, conditions=conditions)]]


def compiled_nothing(*_: object) -> CompiledCase:
    """Replace ``ivhl.measure.lanes.compile_case``; the folder is empty."""
    folder = tempfile.TemporaryDirectory()
    return CompiledCase(folder=folder, findings={}, failure=None, seconds=0.0, load=0.0)


def measure_share(root: Path, name: str, shard: Shard) -> None:
    """Run the bench sessions of a machine, with real files and replaced cells."""
    matrix = load_matrix(root / "envs" / "matrix.toml")
    project = load_project(root)
    for python in matrix.pythons:
        request = Request(root=root, python=python, shard=shard, machine=name)
        settings = Settings.of_checkout(
            root,
            project=project.name,
            workloads=project.workloads,
            machine=machine(name),
            results=root / "results",
        )
        head = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=root, check=True, capture_output=True, text=True
        ).stdout.strip()
        share = cases_of_cells(request, matrix, settings.cases(), head)
        for spec, cases in share.items():
            cell = spec.as_recorded(lock_state(root, spec).sha256)
            runner.run_cases(settings.run_in(cell, head), cases)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a project with earlier records, which give the durations of its cases."""
    root = tmp_path / "home"
    root.mkdir()
    make_fleet_project(root)
    old = [
        a_record(root, "old", python=python, torch=torch, workload="ops.one", duration_s=seconds)
        for (python, torch), seconds in zip(CELLS, (40.0, 10.0, 20.0, 30.0), strict=True)
    ]
    write_records(root / "results", *old)
    commit(root, "what an older machine measured")
    return root


def run_fleet(home: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Meter:
    """Measure on three machines; the second one fails half-way and is restarted."""
    meter = Meter(home)
    monkeypatch.setattr(runner, "time_cases", meter.measure)
    monkeypatch.setattr(runner, "make_seed", lambda _, __, lanes: lanes.begin())
    monkeypatch.setattr(Launcher, "start", lambda _: None)
    monkeypatch.setattr("ivhl.measure.lanes.compile_case", compiled_nothing)
    for index in range(1, COUNT + 1):
        root = folder / f"clone-{index}"
        subprocess.run(["git", "clone", "-q", str(home), str(root)], check=True)
        name, shard = f"machine-{index}", Shard(index, COUNT)
        if index == 2:
            meter.dies_after = len(meter.measured) + 2
            with pytest.raises(KeyboardInterrupt):
                measure_share(root, name, shard)
            meter.dies_after = None
            # It failed while it was writing: half a record is on its disk.
            last = max((root / "results" / name / "records").glob("*.jsonl"))
            last.write_bytes(last.read_bytes() + b'{"aa":{"confid')
        measure_share(root, name, shard)
    return meter


def artifacts(folder: Path) -> list[Path]:
    """Return what the machines send: a folder, its records alone, a bare file."""
    one, two, three = (
        folder / f"clone-{index}" / "results" / f"machine-{index}" for index in (1, 2, 3)
    )
    records = folder / "records-machine-2"
    shutil.copytree(two / "records", records)
    bare = folder / "machine-3.jsonl"
    bare.write_bytes(b"".join(path.read_bytes() for path in sorted(three.glob("records/*.jsonl"))))
    return [one, records, bare]


def test_a_fleet_measures_every_case_once(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meter = run_fleet(home, tmp_path, monkeypatch)
    counts = Counter((cell, case) for _, cell, case in meter.measured)
    assert set(counts) == EVERY
    assert set(counts.values()) == {1}
    assert {name for name, *_ in meter.measured} == {"machine-1", "machine-2", "machine-3"}

    one, records, bare = artifacts(tmp_path)
    trees: list[dict[str, bytes]] = []
    for order in ([bare, one, records], [records, bare, one]):
        results = tmp_path / f"results-{len(trees)}"
        refused = [
            line for source in order for line in import_records(home, [source], results).refused
        ]
        # Half a record is refused; its case was measured again.
        (half,) = refused
        assert "records-machine-2/" in half.place
        assert "must be JSON" in half.rule
        trees.append(tree(results))
    assert trees[0] == trees[1]

    import_records(home, [records, one, bare, one], home / "results")
    mine = [r for r in load_records(home / "results").records if r.machine.name != "old"]
    found = Counter((r.cell.id, f"{r.workload}/{r.size}/{r.variant}") for r in mine)
    assert set(found) == EVERY
    assert set(found.values()) == {1}
    files = (home / "results").glob("machine-*/records/*.jsonl")
    lines = [line for path in files for line in path.read_text().splitlines()]
    assert len(lines) == len(EVERY) == len({to_json(record) for record in mine})

    site = publish(home, home / "site")
    assert site.problems == ()
    rows = json.loads((site.output / "compatibility.json").read_text())["rows"]
    shown = Counter(
        (row["cell"], f"{row['workload']}/{row['size']}/{row['variant']}")
        for row in rows
        if row["status"] != "not_run" and row["machine"] != "old"
    )
    assert shown == found
    index = json.loads((site.output / "asv" / "index.json").read_text())
    assert {"machine-1", "machine-2", "machine-3"} <= set(index["machines"])
    assert points(site.output) == len(EVERY)


def points(site: Path) -> int:
    """Return the number of values in asv's graphs of the speedup on the fleet's machines."""
    graphs = [
        path
        for path in site.glob("asv/graphs/**/*.track_speedup.json")
        if any(part.startswith("machine-machine") for part in path.parts)
    ]
    return sum(
        value is not None
        for path in graphs
        for _, values in json.loads(path.read_text())
        for value in (values if isinstance(values, list) else [values])
    )
