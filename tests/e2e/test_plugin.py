"""A distribution outside of the tree adds an executor and a back end, and both measure."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
import time
from pathlib import Path
from typing import Any

import pytest
import uv

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "tests" / "plugin"
WORKLOAD = "ops.field_superposition"
DECLARED = """
from ivhl.workload import Variant, Workload

WORKLOADS = (
    Workload(
        name="demo.sine", title="Sine", version=1, make_inputs="demo_calls:make",
        eager="demo_calls:sine", reference="float64", sizes={"small": 4096}, default_size="small",
        variants=(
            Variant(name="unfused", engine="backend:unfused"),
            Variant(name="nothing", engine="backend:nothing"),
        ),
    ),
)
"""
CALLS = """
import torch


def make(size, generator):
    return (torch.randn(size, generator=generator),)


def sine(x):
    return torch.sin(x).square() + 1
"""


def run(*words: str, cwd: Path, path: Path = ROOT, expect: int = 0) -> str:
    """Run a command and return what it printed."""
    done = subprocess.run(
        words, cwd=cwd, env=environment(path), check=False, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert done.returncode == expect, done.stdout
    return done.stdout


def environment(path: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("NOX", "IVHL"))}
    return kept | {"COLUMNS": "100", "PYTHONPATH": str(path)}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the Python of an environment with the plug-in beside all that this one has."""
    folder = tmp_path_factory.mktemp("plugged")
    shutil.copytree(PLUGIN, folder / "plugin")
    command, made = uv.find_uv_bin(), folder / "venv"
    run(command, "venv", "--quiet", "--python", sysconfig.get_path("scripts") + "/python",
        str(made), cwd=folder)  # fmt: skip
    run(command, "pip", "install", "--quiet", "--no-deps", "--python", str(made),
        str(folder / "plugin"), cwd=folder)  # fmt: skip
    (site,) = made.glob("lib/*/site-packages")
    (site / "beside.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return str(made / "bin" / "python")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clone") / "ivhl"
    run("git", "clone", "--quiet", str(ROOT), str(folder), cwd=ROOT)
    return folder


def priorities(of: str) -> set[int]:
    """Return the priorities of the running processes whose command line has a text."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if of in (process / "cmdline").read_text(encoding="utf-8", errors="replace"):
                stat = (process / "stat").read_text(encoding="utf-8").rpartition(")")[2]
                found.add(int(stat.split()[16]))
        except OSError:
            continue  # it has ended
    return found


@pytest.mark.full
def test_an_executor_of_a_plug_in_measures_a_cell(python: str, clone: Path) -> None:
    command = [
        *(python, "-m", "ivhl", "bench", "--executor", "nice", "--machine", "here"),
        *("--python", "3.12", "--torch", "2.5.1", "--no-publish", "--workload", WORKLOAD),
        *("--variant", "real-compiled"),
    ]
    seen: set[int] = set()
    printed = clone.parent / "printed"
    with (
        printed.open("w", encoding="utf-8") as sink,
        subprocess.Popen(
            command, cwd=clone, env=environment(clone), stdout=sink, stderr=subprocess.STDOUT
        ) as process,
    ):
        while process.poll() is None:
            # All processes of the cell have its folder in their command line.
            seen |= priorities(f"{clone}/.asv/env/")
            time.sleep(0.1)
    assert process.returncode == 0, printed.read_text(encoding="utf-8")
    assert seen == {5}
    said = run(python, "-m", "ivhl", "results", "--json", "--machine", "here-nice",
               "--torch", "2.5.1", "--workload", WORKLOAD, cwd=clone, path=clone)  # fmt: skip
    (record,) = json.loads(said)["records"]
    assert record["speedup"] is not None


def test_a_plug_in_names_itself_where_two_have_the_name(python: str, tmp_path: Path) -> None:
    about = tmp_path / "other-2.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 2.0\n")
    (about / "entry_points.txt").write_text("[ivhl.executors]\nnice = nowhere:Nothing\n")
    beside = Path(f"{tmp_path}{os.pathsep}{ROOT}")
    said = run(
        python, "-m", "ivhl", "bench", "--executor", "nice", cwd=ROOT, path=beside, expect=2
    )
    assert "must be the name of one executor (got ivhl-nice 1.0 and other 2.0)" in " ".join(
        said.split()
    ) or "other 2.0 and ivhl-nice 1.0" in " ".join(said.split())


def test_a_back_end_of_a_plug_in_is_an_engine(python: str, tmp_path: Path) -> None:
    (tmp_path / "demo.py").write_text(DECLARED, encoding="utf-8")
    (tmp_path / "demo_calls.py").write_text(CALLS, encoding="utf-8")
    run("git", "init", "--quiet", cwd=tmp_path)
    run("git", "add", "--all", cwd=tmp_path)
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.invalid")
    run("git", *identity, "commit", "--quiet", "-m", "Demo", cwd=tmp_path)
    run(python, "-m", "ivhl.measure", "--workloads", "demo:WORKLOADS", "--project", "demo",
        "--machine", "here", "--processes", "0", "--out", str(tmp_path / "out"), cwd=tmp_path,
        path=Path(f"{tmp_path}{os.pathsep}{ROOT}"))  # fmt: skip
    (file,) = tmp_path.glob("out/here/records/*.jsonl")
    records: dict[str, dict[str, Any]] = {
        record["variant"]: record
        for record in map(json.loads, file.read_text(encoding="utf-8").splitlines())
    }
    measured, refused = records["unfused"], records["nothing"]
    assert (measured["failure"], measured["engine"]) == (None, "backend:unfused")
    assert (measured["compile"]["graphs"], measured["compile"]["frames_ok"]) == (1, 1)
    assert refused["failure"]["failure_class"] == "unsupported"
    assert "Invalid backend: 'nothing'" in refused["failure"]["message"]
