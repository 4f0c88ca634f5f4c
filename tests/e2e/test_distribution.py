"""What we distribute installs into an empty environment, and `ivhl init` runs there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
import uv

from ivhl.shipped import PACKED

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
    tree = folder / "tree"
    names = run("git", "ls-files", "-z", cwd=ROOT).split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():  # a link to a folder is made below
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name, follow_symlinks=False)
        else:
            (tree / name).symlink_to((ROOT / name).readlink())
    packed = tree / PACKED.relative_to(ROOT)
    pack(packed)
    build(tree, folder)
    return folder


def pack(path: Path) -> None:
    # A release has the smallest archive, which takes 24 s.
    run(sys.executable, "-m", "studies.shipped", str(path), "1", cwd=ROOT)


def build(tree: Path, folder: Path) -> None:
    # By way of the source distribution, as `python -m build` does: it must hold all of the wheel.
    command = [uv.find_uv_bin(), "build", "--python", sys.executable, "--out-dir", str(folder)]
    run("env", "SOURCE_DATE_EPOCH=1780000000", *command, str(tree), cwd=tree)


@pytest.mark.full
def test_two_builds_have_the_same_bytes_and_say_what_they_are(built: Path, tmp_path: Path) -> None:
    again = tmp_path / PACKED.name
    pack(again)
    assert again.read_bytes() == (built / "tree" / PACKED.relative_to(ROOT)).read_bytes()
    build(built / "tree", tmp_path)
    (wheel,), (other,) = built.glob("*.whl"), tmp_path.glob("*.whl")
    assert wheel.read_bytes() == other.read_bytes()
    assert wheel.stat().st_size < 8e6
    with ZipFile(wheel) as opened:
        names = opened.namelist()
        (metadata,) = (name for name in names if name.endswith("/METADATA"))
        about = opened.read(metadata).decode()
    assert {"ivhl/py.typed", "ivhl/shipped/ivhl-records.tar.xz"} < set(names)
    for line in ("License-Expression: MIT", "Classifier: Typing :: Typed", "Project-URL: Issues"):
        assert f"\n{line}" in about


@pytest.mark.parametrize("kind", ["*.whl", pytest.param("*.tar.gz", marks=pytest.mark.full)])
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
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    # The records that ship answer where there is no project; a second process finds them unpacked.
    ivhl = ["env", f"XDG_CACHE_HOME={tmp_path / 'cache'}", *ivhl]
    for _ in range(2):
        assert "the records that ship with ivhl" in run(*ivhl, "advise", cwd=nothing)
    assert len(list((tmp_path / "cache" / "ivhl").glob("records-*"))) == 1
    (nothing / "requirements.txt").write_text("einops\n")
    assert "Newest on which all compile" in run(*ivhl, "ready", "requirements.txt", cwd=nothing)
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
