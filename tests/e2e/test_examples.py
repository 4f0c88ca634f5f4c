"""Projects of PyPI in examples/ are measured from their locks, as their folders stand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NEWEST = "2.15.0"


def ivhl(*words: str, cwd: Path) -> str:
    """Run ivhl in a folder and return its output."""
    done = subprocess.run(
        [sys.executable, "-m", "ivhl", *words],
        cwd=cwd,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["x_transformers", "e3nn"])
def test_an_example_has_a_right_and_compiled_forward_pass_and_step(
    name: str, tmp_path: Path
) -> None:
    folder = EXAMPLES / name
    ivhl("check", cwd=folder)
    cell = ("--python", "3.12", "--torch", NEWEST)
    ivhl("bench", *cell, "--results", str(tmp_path), "--machine", "here", cwd=folder)
    told = ivhl("results", "--results", str(tmp_path), "--json", cwd=folder)
    records = {one["workload"]: one for one in json.loads(told[told.index("[\n") :])}
    assert sorted(records) == ["model.forward", "model.step"]
    for record in records.values():
        assert record["failure"] is None, record["failure"]
        assert record["speedup"]["value"] > 0
    assert any(error["output"].startswith("grad.") for error in records["model.step"]["accuracy"])
