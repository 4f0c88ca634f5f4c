"""``ivhl init`` leaves what a project builds as it was, whatever builds it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest
import uv

from ivhl.init.declare import FileChange, write_changes
from ivhl.init.plan import _benchmarks, _setting
from ivhl.init.source import read_source

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PROJECT = '[project]\nname = "mymod"\nversion = "1.0"\ndependencies = []\ndescription = "x"\n'
PACKAGE = {
    "mymod/__init__.py": '"""Things."""\n',
    "mymod/data/no_init.py": "x = 1\n",
    "mymod/not-a-package/script.py": "x = 1\n",
    "tests/test_it.py": "x = 1\n",
    "docs/conf.py": "x = 1\n",
}
SRC = {f"src/{name}": text for name, text in PACKAGE.items() if name.startswith("mymod")}


def backend(name: str, requires: str) -> str:
    """Return the table of a build backend."""
    return f'[build-system]\nrequires = ["{requires}"]\nbuild-backend = "{name}"\n'


SETUPTOOLS = backend("setuptools.build_meta", "setuptools>=61")
PDM = backend("pdm.backend", "pdm-backend")
KINDS: dict[str, Mapping[str, str]] = {
    "setuptools-flat": {"pyproject.toml": SETUPTOOLS + PROJECT, **PACKAGE},
    "setuptools-flat-with-a-table": {
        "pyproject.toml": SETUPTOOLS + PROJECT + "[tool.setuptools]\nzip-safe = false\n",
        **PACKAGE,
    },
    "setuptools-flat-benchmarks-taken": {
        "pyproject.toml": SETUPTOOLS + PROJECT,
        "benchmarks/mine.py": "x = 1\n",
        **PACKAGE,
    },
    "setuptools-module": {"pyproject.toml": SETUPTOOLS + PROJECT, "mymod.py": "x = 1\n"},
    "setuptools-py-modules": {
        "pyproject.toml": SETUPTOOLS + PROJECT + '[tool.setuptools]\npy-modules = ["mymod"]\n',
        "mymod.py": "x = 1\n",
    },
    "setuptools-nothing": {"pyproject.toml": SETUPTOOLS + PROJECT},
    "setuptools-src": {"pyproject.toml": SETUPTOOLS + PROJECT, **SRC},
    "setuptools-without-build-system": {"pyproject.toml": PROJECT, **PACKAGE},
    "setup-py": {
        "setup.py": (
            "from setuptools import setup\n"
            'setup(name="mymod", version="1.0", packages=["mymod"], install_requires=[])\n'
        ),
        **PACKAGE,
    },
    "hatch": {"pyproject.toml": backend("hatchling.build", "hatchling") + PROJECT, **PACKAGE},
    "flit": {"pyproject.toml": backend("flit_core.buildapi", "flit_core") + PROJECT, **PACKAGE},
    "poetry": {
        "pyproject.toml": backend("poetry.core.masonry.api", "poetry-core") + PROJECT,
        **PACKAGE,
    },
    "pdm": {"pyproject.toml": PDM + PROJECT, **PACKAGE},
    "pdm-module": {"pyproject.toml": PDM + PROJECT, "mymod.py": "x = 1\n"},
    "pdm-src": {"pyproject.toml": PDM + PROJECT, **SRC},
    "uv": {"pyproject.toml": backend("uv_build", "uv_build") + PROJECT, **SRC},
    "scikit-build": {
        "pyproject.toml": backend("scikit_build_core.build", "scikit-build-core") + PROJECT,
        "CMakeLists.txt": (
            "cmake_minimum_required(VERSION 3.15)\nproject(mymod LANGUAGES NONE)\n"
        ),
        **PACKAGE,
    },
}


def run(*words: str, cwd: Path) -> None:
    """Run a command that must not fail."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("UV_PYTHON")}
    done = subprocess.run(
        words, cwd=cwd, env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def made(root: Path, files: Mapping[str, str]) -> Path:
    """Make a git repository with these files."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    run("git", "init", "--quiet", "-b", "main", cwd=root)
    commit(root)
    return root


def commit(root: Path) -> None:
    """Commit everything: some backends ask git what belongs to the project."""
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.invalid")
    run("git", "add", "--all", cwd=root)
    run("git", *identity, "commit", "--quiet", "-m", "All of it", cwd=root)


def wheel(root: Path, out: Path) -> dict[str, str]:
    """Return the hash of each file of the wheel that a clone of the last commit builds."""
    run("git", "clone", "--quiet", str(root), str(out / "tree"), cwd=root)
    for name in ("results/here/records", "site/asv", ".asv/env"):  # as after `ivhl bench`
        if (root / name).exists():
            (out / "tree" / name).mkdir(parents=True, exist_ok=True)
    tree = str(out / "tree")
    command = [uv.find_uv_bin(), "build", "--wheel", "--python", sys.executable]
    run(*command, "--out-dir", str(out), tree, cwd=out)
    (path,) = out.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        return {
            name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()
        }


def adopt(root: Path) -> None:
    """Write what ``ivhl init`` writes, with a lock that nobody resolved, and what a run leaves."""
    source = read_source(root)
    folder = "ivhl_benchmarks" if (root / "benchmarks").exists() else "benchmarks"
    setting = _setting(source, folder, declared=False)
    assert setting is not None
    changes = (
        FileChange.of(root.joinpath("envs", "matrix.toml").relative_to(root), "torch = []\n"),
        FileChange.of(root.joinpath("envs", "locks", "x.txt").relative_to(root), "x==1\n"),
        *_benchmarks(source, folder),
        setting,
    )
    write_changes(root, changes)
    for name in ("results/here/records", "site/asv", ".asv/env"):
        (root / name).mkdir(parents=True)


# In `tests` the ones that failed; the others in `tests-full`.
QUICK = ("setuptools-flat", "setuptools-module")


@pytest.mark.parametrize(
    "kind",
    [pytest.param(one, marks=[] if one in QUICK else [pytest.mark.full]) for one in KINDS],
)
def test_the_wheel_has_the_same_files_before_and_after(kind: str, tmp_path: Path) -> None:
    root = made(tmp_path / "mymod", KINDS[kind])
    (tmp_path / "before").mkdir()
    before = wheel(root, tmp_path / "before")
    adopt(root)
    commit(root)
    (tmp_path / "after").mkdir()
    assert wheel(root, tmp_path / "after") == before
