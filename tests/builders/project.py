"""A small project with a git history and results of earlier runs."""

from __future__ import annotations

import atexit
import datetime as dt
import functools
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asv.results import Results
from asv.runner import BenchmarkResult

from ivhl.records.files import append_record, record_file
from ivhl.workload import load_workloads
from tests.builders.history import SPEEDUPS, history

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ivhl.records.record import RunRecord

N_COMMITS = 4
MACHINE = {
    "arch": "x86_64",
    "cpu": "A CPU",
    "machine": "bench",
    "num_cpu": "8",
    "os": "Linux",
    "ram": "32",
    "version": 1,
}
CASES = sorted(f"{workload}/small/{variant}" for workload, variant in SPEEDUPS)
BENCHMARK = "suite.Suite.track_relative_time"
MATRIX = """\
exclude-newer = 2026-11-15
platform = "linux"
python = [{version = "3.12"}, {version = "3.13"}, {version = "3.14"}]
torch = [
  {release = "2.4.1", tier = "default"},
  {release = "2.5.1", tier = "default"},
  {release = "2.6.0", tier = "default"},
  {release = "2.8.0", tier = "default"},
  {release = "2.9.1", tier = "default"},
  {release = "2.10.0", tier = "extended"},
]
"""
WORKLOADS = load_workloads("benchmarks")
PYPROJECT = """\
[project]
name = "demo"
[tool.ivhl]
workloads = "tests.builders.project:WORKLOADS"
"""


def git(root: Path, *arguments: str) -> str:
    """Run git with a fixed author and time."""
    identity = ["-c", "user.name=demo", "-c", "user.email=demo@example.org"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=root, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def make_commits(root: Path, count: int) -> list[str]:
    """Add empty commits; return their hashes, oldest first."""
    for number in range(count):
        git(root, "commit", "-q", "--allow-empty", "-m", f"change {number}")
    return git(root, "rev-list", "--reverse", "HEAD").split()[-count:]


def make_project(root: Path) -> list[str]:
    """Write a project with results of asv and ours into ``root``; return its commits."""
    folder, commits = _made_once()
    shutil.copytree(folder, root, dirs_exist_ok=True)
    return list(commits)


@functools.cache
def _made_once() -> tuple[str, list[str]]:
    """Return the folder of the project, which git takes 0.3 s of CPU to make, and its commits."""
    folder = tempfile.TemporaryDirectory(prefix="project-")
    atexit.register(folder.cleanup)
    return folder.name, _make_project(Path(folder.name))


def _make_project(root: Path) -> list[str]:
    git(root, "init", "-q", "-b", "main")
    (root / "pyproject.toml").write_text(PYPROJECT)
    (root / "envs").mkdir()
    (root / "envs" / "matrix.toml").write_text(MATRIX)
    (root / "asv.conf.json").write_text(
        "// as people write it\n"
        + json.dumps(
            {
                "version": 1,
                "project": "demo",
                "repo": ".",
                "branches": ["main"],
                "environment_type": "existing",
                "plugins": [".ivhl.asv"],
                "results_dir": "results",
            }
        )
    )
    commits = make_commits(root, N_COMMITS)
    records = list(history(commits))
    results = root / "results"
    for record in records:
        append_record(
            record_file(results, record.machine.name, record.commit, record.cell.id), record
        )
    write_asv_results(root, records)
    return commits


def write_asv_results(root: Path, records: Sequence[RunRecord]) -> None:
    """Write asv's result files, as a run would have written them."""
    results = root / "results"
    benchmark: dict[str, Any] = {
        "code": "",
        "name": BENCHMARK,
        "param_names": ["case"],
        "params": [[repr(case) for case in CASES]],
        "timeout": 60.0,
        "type": "track",
        "unit": "compiled / eager",
        "version": "1",
    }
    (results / "benchmarks.json").write_text(json.dumps({BENCHMARK: benchmark, "version": 2}))
    (results / "bench" / "machine.json").write_text(json.dumps(MACHINE))
    runs: dict[tuple[str, str, str], dict[str, float]] = {}
    for record in records:
        run = runs.setdefault((record.commit, record.cell.python, record.cell.torch), {})
        if record.speedup is not None:
            case = f"{record.workload}/{record.size}/{record.variant}"
            run[case] = 1 / record.speedup.value
    when = dt.datetime(2026, 11, 10, tzinfo=dt.UTC)
    for (commit, python, torch), values in runs.items():
        requirements = {"torch": torch}
        result = Results(
            {key: value for key, value in MACHINE.items() if key != "version"}
            | {"python": python, **requirements},
            requirements,
            commit,
            int(git(root, "show", "-s", "--format=%ct", commit)) * 1000,
            python,
            f"locked-py{python}-torch{torch}",
            {},
        )
        measured = BenchmarkResult(
            [values.get(case) for case in CASES],
            [None] * len(CASES),
            [None] * len(CASES),
            0,
            "",
            None,
        )
        result.add_result(benchmark, measured, started_at=when, duration=1.0)
        result.save(str(results))
