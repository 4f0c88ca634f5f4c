"""A package without a wheel is built once, with locked packages, and the lock has its hash."""

from __future__ import annotations

import hashlib
import io
import os
import sys
import tarfile
from typing import TYPE_CHECKING

import pytest

from ivhl.errors import LockError
from ivhl.matrix import wheels
from ivhl.matrix.check import check_locks
from ivhl.matrix.locks import lock_state, make_lock
from ivhl.matrix.spec import CellSpec
from ivhl.matrix.uv import run_uv
from ivhl.matrix.wheels import build_missing, needed_wheels, wheel_for
from tests.unit.test_matrix_locks import matrix_of

if TYPE_CHECKING:
    from pathlib import Path

    from ivhl.matrix.spec import Matrix

PYTHON = "{}.{}".format(*sys.version_info)
PIN = "ivhl-only-source==1.0"
MODULE = "def one():\n    return 1\n"
PYPROJECT = """\
[build-system]
requires = ["flit_core==3.12.0"]
build-backend = "flit_core.buildapi"
[project]
name = "ivhl-only-source"
version = "1.0"
description = "x"
"""


def matrix() -> Matrix:
    return matrix_of(
        python=[{"version": PYTHON}],
        torch=[{"release": "2.15.0", "tier": "default"}],
        requires=["ivhl-only-source"],
        built=[PIN],
    )


@pytest.fixture
def registry(tmp_path: Path) -> None:
    """Skip without access to a package registry."""
    (tmp_path / "asked.in").write_text("flit_core==3.12.0\n", encoding="utf-8")
    asked = run_uv(["pip", "compile", "asked.in", "--python", sys.executable], cwd=tmp_path)
    if asked.returncode and os.environ.get("CI"):
        pytest.fail(f"no package registry: {asked.stderr}")
    if asked.returncode:
        pytest.skip(f"no package registry: {asked.stderr.splitlines()[0]}")


def offer(monkeypatch: pytest.MonkeyPatch, pyproject: str = PYPROJECT) -> None:
    """Offer a source distribution in place of the download."""

    def fetch(here: Path, pin: str) -> Path:
        path = here / f"{pin.replace('==', '-')}.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            for name, text in {
                "pyproject.toml": pyproject,
                "ivhl_only_source.py": MODULE,
                "PKG-INFO": "Metadata-Version: 2.1\nName: ivhl-only-source\nVersion: 1.0\n",
            }.items():
                member = tarfile.TarInfo(f"ivhl-only-source-1.0/{name}")
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text.encode()))
        return path

    monkeypatch.setattr(wheels, "_fetch", fetch)


@pytest.mark.usefixtures("registry")
def test_a_wheel_is_built_once_and_its_hash_is_in_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch)
    cell = CellSpec(PYTHON, "2.15.0")
    assert f"no wheel of {PIN} for Python {PYTHON}" in check_locks(tmp_path, matrix())[1]
    wheel, log = build_missing(tmp_path, matrix())
    assert wheel == wheel_for(tmp_path, PIN, PYTHON)
    assert "flit-core==3.12.0" in log.read_text(encoding="utf-8")
    assert "--hash=sha256:" in log.read_text(encoding="utf-8")
    assert build_missing(tmp_path, matrix()) == []
    before = wheel.read_bytes()
    state = make_lock(tmp_path, matrix(), cell)
    (pin,) = [pin for pin in state.pins if pin.name == "ivhl-only-source"]
    assert pin.hashes == (f"sha256:{hashlib.sha256(before).hexdigest()}",)
    assert str(tmp_path) not in state.path.read_text(encoding="utf-8")
    assert check_locks(tmp_path, matrix()) == []
    # The times in it are fixed, so building it again gives the same file.
    wheel.unlink()
    build_missing(tmp_path, matrix())
    assert wheel.read_bytes() == before
    assert lock_state(tmp_path, cell).kind == "locked"


@pytest.mark.usefixtures("registry")
def test_what_cannot_be_built_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, PYPROJECT.replace("flit_core.buildapi", "no_such_backend"))
    with pytest.raises(
        LockError, match=f"{PIN} has no wheel and cannot be built: .*no_such_backend"
    ):
        build_missing(tmp_path, matrix())
    assert not list(tmp_path.rglob("*.whl"))


def test_packages_that_would_have_to_be_built_are_read_from_uvs_message() -> None:
    text = (
        "Wheels are required for `antlr4-python3-runtime` because building from source is disabled"
    )
    assert needed_wheels(f"no solution\nhint: {text} for all") == ["antlr4-python3-runtime"]
    assert needed_wheels("no solution") == []
