"""Another project adopts ivhl, and measures a commit from before it did."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
# The files of docs/workloads.md, as a reader writes them.
PAGE: dict[str, str] = dict(
    re.findall(
        r"`([\w/]+(?:\.\w+)+)`(?:(?!\n\n).)*:\n\n```\w+\n(.*?)```",
        (ROOT / "docs" / "workloads.md").read_text(encoding="utf-8"),
        re.DOTALL,
    )
)
# A release that the other tests install as well.
PAGE["envs/matrix.toml"] = PAGE["envs/matrix.toml"].replace("2.6.0", "2.5.1")
BEFORE = ("softplus/__init__.py", "softplus/ops.py", "pyproject.toml")
# Not on the page: functions that only later commits have, and a broken module.
MORE = {
    "softplus/smooth.py": """
        from softplus.ops import softplus

        def smooth_abs(x):
            return softplus(x) + softplus(-x)
    """,
    "benchmarks/later.py": """
        from dataclasses import replace

        from benchmarks import ops
        from ivhl.workload import Variant

        def declare(name, function):
            return replace(
                ops.WORKLOADS[0], name=f"ops.{name}", eager=function, reference=function,
                variants=(Variant(name="compiled", call=function),),
            )

        WORKLOADS = (
            declare("smooth_abs", "softplus.smooth:smooth_abs"),
            declare("renamed", "benchmarks.renamed:run"),
        )
    """,
    "benchmarks/renamed.py": """
        from softplus import ops

        def run(x):
            return ops.renamed(x)
    """,
    "benchmarks/unfinished.py": "import nowhere\n\nWORKLOADS = ()\n",
}


def run(*words: str, cwd: Path, expect: int = 0) -> str:
    """Run a command in the project and return what it printed."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("NOX", "IVHL", "UV_"))}
    environment |= {"COLUMNS": "200"}
    done = subprocess.run(
        words,
        cwd=cwd,
        env=environment,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == expect, done.stdout
    return done.stdout


def commit(root: Path, files: dict[str, str], message: str) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text).lstrip(), encoding="utf-8")
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.invalid")
    run("git", "add", "--all", cwd=root)
    run("git", *identity, "commit", "--quiet", "-m", message, cwd=root)


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the project, and what measuring its first commit printed."""
    root = tmp_path_factory.mktemp("foreign")
    run("git", "init", "--quiet", "-b", "main", cwd=root)
    commit(root, {name: PAGE[name] for name in BEFORE}, "Softplus")
    commit(root, PAGE | MORE, "Measure it with ivhl")
    version = "{}.{}".format(*sys.version_info)
    (root / ".python-version").write_text(f"{version}\n")
    told = run(
        sys.executable, "-m", "ivhl", "bench", "--python", "3.12", "--commit", "HEAD~1",
        "--machine", "here", "--processes", "1", cwd=root,
    )  # fmt: skip
    return root, told


@pytest.fixture(scope="module")
def rows(said: tuple[Path, str]) -> dict[str, Any]:
    """Return the rows of ``ivhl compat`` by workload."""
    # From a folder below, where ivhl's own benchmarks come first if it is an editable install.
    told = run(sys.executable, "-m", "ivhl", "compat", "--json", cwd=said[0] / "softplus")
    return {row["workload"]: row for row in json.loads(told[told.index("{\n") :])["rows"]}


def test_code_that_the_old_commit_has_is_measured(rows: dict[str, Any]) -> None:
    row = rows["ops.softplus"]
    assert row["failure_class"] is None
    assert row["speedup"] > 0


@pytest.mark.parametrize("name", ["smooth_abs", "renamed"])
def test_code_that_the_old_commit_lacks_is_absent(
    rows: dict[str, Any], said: tuple[Path, str], name: str
) -> None:
    row = rows[f"ops.{name}"]
    assert (row["status"], row["failure_class"]) == ("unavailable", "absent")
    assert name.partition("_")[0] in row["message"]
    graphs = list((said[0] / "site" / "asv" / "graphs").rglob("*track_failed.json"))
    points = [json.loads(path.read_text(encoding="utf-8")) for path in graphs]
    assert points
    values = [v for graph in points for _, v in graph]
    assert 1 not in [
        v for found in values for v in (found if isinstance(found, list) else [found])
    ]


def test_a_broken_module_removes_only_its_own_workloads(
    said: tuple[Path, str],
) -> None:
    assert "left out: benchmarks.unfinished does not import: ModuleNotFoundError" in said[1]


def test_records_have_separate_hashes_of_project_and_benchmark(said: tuple[Path, str]) -> None:
    told = run(sys.executable, "-m", "ivhl", "results", "--json", cwd=said[0])
    records = {r["workload"]: r for r in json.loads(told[told.index("{\n") :])["records"]}
    record = records["ops.softplus"]
    assert len(record["sources"]) == len(record["benchmark"]) == 64
    assert record["sources"] != record["benchmark"]


@pytest.mark.full
def test_the_uncommitted_tree_is_tried_without_a_record(said: tuple[Path, str]) -> None:
    root = said[0]
    before = {path: path.read_bytes() for path in (root / "results").rglob("*") if path.is_file()}
    ops = root / "softplus" / "ops.py"
    text = ops.read_text(encoding="utf-8")
    told = run(sys.executable, "-m", "ivhl", "try", "ops.softplus", cwd=root)
    assert "right, and " in told
    try:
        ops.write_text(text.replace("return ", "raise ValueError('not yet')\n    return "))
        told = run(sys.executable, "-m", "ivhl", "try", "ops.softplus", cwd=root, expect=7)
    finally:
        ops.write_text(text)
    assert "Traceback (most recent call last):" in told
    assert "softplus/ops.py" in told
    assert "ivhl/measure" not in told  # frames of the harness say nothing of the project
    assert "eager_failed in phase eager: ValueError: not yet (softplus/ops.py:" in told
    after = {path: path.read_bytes() for path in (root / "results").rglob("*") if path.is_file()}
    assert before == after
