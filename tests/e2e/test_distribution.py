"""What we distribute installs into an empty environment, and `ivhl init` runs there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import uv

ROOT = Path(__file__).parents[2]
PYPROJECT = """\
[build-system]
requires = ["flit_core>=3.12,<4"]
build-backend = "flit_core.buildapi"
[project]
name = "softplus"
version = "0.1.0"
description = "Softplus"
dependencies = ["torch>=2", "opt_einsum>=3.3"]
"""


def run(*words: str, cwd: Path, expect: int = 0) -> str:
    """Run a command and return what it printed."""
    done = subprocess.run(
        words, cwd=cwd, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == expect, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the source distribution, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    # By way of the source distribution, as `python -m build` does: it must hold all of the wheel.
    command = [uv.find_uv_bin(), "build", "--python", sys.executable]
    run(*command, "--out-dir", str(folder), str(ROOT), cwd=folder)
    return folder


@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_it_installs_into_an_empty_environment_and_init_runs_there(
    built: Path, kind: str, tmp_path: Path
) -> None:
    (distribution,) = built.glob(kind)
    tool = uv.find_uv_bin()
    run(tool, "venv", "--python", sys.executable, str(tmp_path / "empty"), cwd=tmp_path)
    python = tmp_path / "empty" / "bin" / "python"
    run(tool, "pip", "install", "--python", str(python), str(distribution), cwd=tmp_path)
    project = tmp_path / "softplus"
    (project / "softplus").mkdir(parents=True)
    (project / "softplus" / "__init__.py").write_text('__version__ = "0.1.0"\n')
    (project / "pyproject.toml").write_text(PYPROJECT)
    run("git", "init", "--quiet", "-b", "main", cwd=project)
    # Isolated: this checkout is on the path of the tests.
    ivhl = [str(python), "-I", "-m", "ivhl"]
    command = ["init", "--python", "3.12", "--torch", "2.6.0"]
    # An archive does not tell its commit, to which a workflow pins ivhl's actions.
    refused = run(*ivhl, *command, "--format", "github", cwd=project, expect=2)
    assert "the commit of the installed ivhl is not known" in refused
    assert not (project / "envs").exists()
    said = run(*ivhl, *command, cwd=project)
    assert "wrote envs/locks/py3.12-torch2.6.0.txt" in said
    assert "in order: 1 cell, 2 workloads" in run(*ivhl, "check", cwd=project)
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    assert "nothing to do" in run(*ivhl, *command, cwd=project)
    assert before == {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
