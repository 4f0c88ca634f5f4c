"""A small project with locks and commits, and records of its machines."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ivhl.matrix.locks import matrix_digest
from ivhl.matrix.spec import CellSpec, load_matrix
from ivhl.records.files import append_record, record_file
from ivhl.records.record import Cell, Machine
from ivhl.workload import Variant
from tests.builders.project import git
from tests.builders.records import EMPTY_WORKLOAD, make_record

if TYPE_CHECKING:
    from pathlib import Path

    from ivhl.records.record import RunRecord

PYTHONS = ("3.12", "3.13")
RELEASES = ("2.5.1", "2.6.0")
CELLS = tuple((python, torch) for python in PYTHONS for torch in RELEASES)
WORKLOADS = (
    replace(
        EMPTY_WORKLOAD,
        name="ops.one",
        version=2,
        variants=(Variant(name="a", call="m:f"), Variant(name="b", call="m:f")),
    ),
    replace(EMPTY_WORKLOAD, name="ops.two", variants=(Variant(name="a", call="m:f"),)),
    replace(
        EMPTY_WORKLOAD,
        name="ops.three",
        variants=(
            Variant(name="a", call="m:f"),
            Variant(name="gpu", call="m:f", devices=("cuda",)),
        ),
    ),
)
VERSIONS = {workload.name: workload.version for workload in WORKLOADS}
_MATRIX = """\
exclude-newer = 2026-11-15
platform = "linux"
python = [{version = "3.12"}, {version = "3.13"}]
torch = [{release = "2.5.1", tier = "default"}, {release = "2.6.0", tier = "default"}]
"""
_PYPROJECT = """\
[project]
name = "demo"
[tool.ivhl]
workloads = "tests.builders.fleet:WORKLOADS"
"""
_CONF = {
    "version": 1,
    "project": "demo",
    "repo": ".",
    "branches": ["main"],
    "plugins": [".ivhl.asv"],
    "environment_type": "locked",
    "env_dir": ".asv/env",
    "html_dir": "site",
    "results_dir": "results",
}


def make_fleet_project(root: Path) -> str:
    """Write a project without records into ``root``; return its commit."""
    git(root, "init", "-q", "-b", "main")
    (root / "pyproject.toml").write_text(_PYPROJECT)
    (root / "asv.conf.json").write_text(json.dumps(_CONF))
    (root / ".gitignore").write_text(".asv/\nsite/\n")
    (root / "envs" / "locks").mkdir(parents=True)
    (root / "envs" / "matrix.toml").write_text(_MATRIX)
    matrix = load_matrix(root / "envs" / "matrix.toml")
    for python, torch in CELLS:
        digest = matrix_digest(matrix, CellSpec(python, torch))
        lock_file(root, python, torch).write_text(f"# Matrix digest: {digest}\n\ntorch=={torch}\n")
    return commit(root, "a project")


def commit(root: Path, message: str) -> str:
    """Commit everything; return the hash."""
    git(root, "add", "-A")
    git(root, "commit", "-q", "--allow-empty", "-m", message)
    return git(root, "rev-parse", "HEAD")


def lock_file(root: Path, python: str, torch: str) -> Path:
    return root / "envs" / "locks" / f"py{python}-torch{torch}.txt"


def machine(name: str, cpu: str = "A CPU") -> Machine:
    return Machine(name=name, cpu=cpu, n_cpus=8, memory_bytes=32 << 30, system="Linux x86_64")


def a_record(root: Path, name: str = "box", minute: int = 0, **changes: Any) -> RunRecord:  # noqa: ANN401
    """Return a record as a machine would have written it for the project at ``root``.

    Args:
        root: The project.
        name: Name of the machine.
        minute: Minute at which it was recorded.
        changes: Fields of ``make_record``, or of the record.
    """
    python, torch = changes.pop("python", "3.12"), changes.pop("torch", "2.6.0")
    workload = changes.pop("workload", "ops.one")
    existing = changes.pop("existing", False)
    path = lock_file(root, python, torch)
    sha = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "0" * 64
    about: dict[str, Any] = {
        "project": "demo",
        "commit": git(root, "rev-parse", "HEAD"),
        "cell": Cell(
            id=f"py{python}-torch{torch}",
            python=python,
            torch=torch,
            lock_sha256=None if existing else sha,
        ),
        "machine": machine(name),
        "recorded_at": f"2026-11-20T12:{minute:02d}:00+00:00",
        "workload_version": VERSIONS.get(workload, 1),
        "variant": "a",
    }
    return make_record(python=python, torch=torch, workload=workload, **about | changes)


def on_gpu(record: RunRecord) -> RunRecord:
    """Return the record with a GPU as its device."""
    return replace(record, conditions=replace(record.conditions, device="cuda NVIDIA H200"))


def write_records(results: Path, *records: RunRecord) -> None:
    """Write the records into the results, as runs do."""
    for record in records:
        path = record_file(results, record.machine.name, record.commit, record.cell.id)
        append_record(path, record)


def tree(folder: Path) -> dict[str, bytes]:
    """Return every file below the folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
