"""A release with a fault is refused before anything is published, by one job that can."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ivhl.matrix.project import find_root
from studies.licences import needed, vendored
from tests.builders.project import git

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = find_root(Path(__file__))
WORKFLOW = yaml.safe_load((HERE / ".github" / "workflows" / "release.yml").read_text("utf-8"))
PACKED = "ivhl/shipped/ivhl-records.tar.xz"
CHANGELOG = "# Changelog\n\n## 0.2.0 (2026-12-01)\n\n### Added\n\n- A thing.\n\n## 0.1.0\n\nOld.\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a checkout with a release of two files in `release/`, in which nothing is wrong."""
    root = tmp_path / "tree"
    files = {
        "pyproject.toml": '[project]\nname = "ivhl"\nversion = "0.2.0"\n',
        "CHANGELOG.md": CHANGELOG,
        "changelog.d/README.md": "How.\n",
        "ivhl/__init__.py": "",
        "ivhl/cli.py": "",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    (root / ".ci").mkdir()
    shutil.copy(HERE / ".ci" / "check-release.py", root / ".ci")
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    pack(root, "ivhl/__init__.py", "ivhl/cli.py", PACKED)
    return root


def pack(root: Path, *names: str, of_source: tuple[str, ...] = (), data: bytes = b"") -> None:
    """Write both distributions with these files."""
    dist = root / "release" / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir(parents=True)
    with ZipFile(dist / "ivhl-0.2.0-py3-none-any.whl", "w") as wheel:
        for name in (*names, "ivhl-0.2.0.dist-info/METADATA"):
            wheel.writestr(name, data)
    with tarfile.open(dist / "ivhl-0.2.0.tar.gz", "w:gz") as source:
        for name in (*(of_source or names), "PKG-INFO", "envs/locks/SHA256SUMS"):
            source.addfile(tarfile.TarInfo(f"ivhl-0.2.0/{name}"), io.BytesIO())


def check(root: Path, tag: str = "v0.2.0") -> str:
    """Return what the check prints; empty if it takes the release."""
    command = [sys.executable, str(root / ".ci" / "check-release.py"), tag, str(root / "release")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (done.stderr == "")
    assert "Traceback" not in done.stderr
    assert (root / "release" / "notes.md").exists() == (done.returncode == 0)
    return done.stderr


def test_a_release_without_a_fault_gets_its_notes(tree: Path) -> None:
    assert check(tree) == ""
    assert (tree / "release" / "notes.md").read_text() == "### Added\n\n- A thing.\n"


def fragment(root: Path) -> None:
    (root / "changelog.d" / "54.added.md").write_text("A thing.\n")


def old_changelog(root: Path) -> None:
    (root / "CHANGELOG.md").write_text(CHANGELOG.replace("0.2.0", "0.1.9"))


def older_wheel(root: Path) -> None:
    (root / "release" / "dist" / "ivhl-0.1.0-py3-none-any.whl").touch()


def untracked(root: Path) -> None:
    pack(root, "ivhl/__init__.py", "ivhl/cli.py", PACKED, "ivhl/secret.py")


def another_package(root: Path) -> None:
    pack(root, "ivhl/__init__.py", "ivhl/cli.py", PACKED, "tests/test_x.py")


def no_records(root: Path) -> None:
    pack(root, "ivhl/__init__.py", "ivhl/cli.py")


def records_twice(root: Path) -> None:
    (root / "ivhl" / "x.jsonl").write_text("{}\n")
    git(root, "add", "--all")
    pack(root, "ivhl/__init__.py", "ivhl/cli.py", "ivhl/x.jsonl", PACKED)


def a_test(root: Path) -> None:
    (root / "ivhl" / "test_cli.py").write_text("")
    git(root, "add", "--all")
    pack(root, "ivhl/__init__.py", "ivhl/cli.py", "ivhl/test_cli.py", PACKED)


def too_large(root: Path) -> None:
    pack(root, "ivhl/__init__.py", "ivhl/cli.py", PACKED, data=b"x" * 2_700_000)


def relative_links(root: Path) -> None:
    text = b"[a](https://x.org) [b](#b) ![c](docs/images/c.png)"
    pack(root, "ivhl/__init__.py", "ivhl/cli.py", PACKED, data=text)


def lean_source(root: Path) -> None:
    names = ("ivhl/__init__.py", "ivhl/cli.py", PACKED)
    pack(root, *names, of_source=(PACKED, "ivhl/__init__.py", "docs/x.md"))


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (
            fragment,
            "changelog.d: must have no fragment (got 1, 54.added.md first); next: towncrier",
        ),
        (old_changelog, "CHANGELOG.md: must begin with the part of 0.2.0; next: towncrier build"),
        (
            older_wheel,
            "(got ivhl-0.1.0-py3-none-any.whl, ivhl-0.2.0-py3-none-any.whl, ivhl-0.2.0.",
        ),
        (untracked, "ivhl-0.2.0-py3-none-any.whl: must not have ivhl/secret.py"),
        (another_package, "ivhl-0.2.0-py3-none-any.whl: must not have tests/test_x.py"),
        (no_records, f"must have {PACKED}; next: python -m studies.shipped"),
        (records_twice, "no record beside the packed records (got ivhl/x.jsonl)"),
        (a_test, "must have no test, and no record beside the packed records (got ivhl/test_cli"),
        (too_large, "must have at most 8000000 bytes (got 1080"),
        (relative_links, "PyPI has no files (got docs/images/c.png); next"),
        (lean_source, "ivhl-0.2.0.tar.gz: must have ivhl/cli.py"),
        (lean_source, "ivhl-0.2.0.tar.gz: must not have docs/x.md"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_release_with_a_fault_is_refused(
    tree: Path, plant: Callable[[Path], None], said: str
) -> None:
    plant(tree)
    assert said in check(tree)


@pytest.mark.parametrize("tag", ["v0.1.0", "0.2.0", "v0.2.0.post1", "main", ""])
def test_a_tag_that_is_not_the_version_is_refused(tree: Path, tag: str) -> None:
    said = check(tree, tag)
    assert f"error: pyproject.toml: version: must be that of the tag {tag!r} (got '0.2.0')" in said


def test_a_tree_with_changes_is_not_built(tree: Path) -> None:
    """The records are packed from it: they would not be those of the commit."""
    git(tree, "commit", "--quiet", "--message", "one")
    shutil.copy(HERE / ".ci" / "build-release", tree / ".ci")
    (tree / "ivhl" / "cli.py").write_text("changed = 1\n")
    command = [str(tree / ".ci" / "build-release"), "v0.2.0", "release"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: the tree must be as it is committed")
    assert (tree / "release" / "dist").is_dir()


def test_what_the_records_answer_is_timed_and_a_failure_ends_the_trial(tmp_path: Path) -> None:
    """Programs of this test stand for python and pip: `tests/docker` has the real ones."""
    programs = tmp_path / "bin"
    programs.mkdir()
    ivhl = '#!/bin/sh\\necho "ivhl $@"\\n[ "$1" != "$BROKEN" ]\\n'
    made = f'mkdir -p "$3/bin"; printf \'{ivhl}\' > "$3/bin/ivhl"; cp "$0" "$3/bin/python"'
    python = f'#!/bin/sh\ncase "$2" in venv) {made}; chmod +x "$3"/bin/*;; esac\n'
    (programs / "python3").write_text(python)
    (programs / "python3").chmod(0o755)

    def trial(**more: str) -> subprocess.CompletedProcess[str]:
        path = {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
        cache = {"XDG_CACHE_HOME": str(tmp_path)}
        command = [str(HERE / ".ci" / "try-release"), "ivhl==0.2.0"]
        return subprocess.run(
            command,
            env=os.environ | path | cache | more,
            capture_output=True,
            text=True,
            check=False,
        )

    done = trial(TARGET="torch.nn:Linear(4, 4)")
    assert done.returncode == 0, done.stderr
    shown = [line for line in done.stdout.splitlines() if line.startswith("ivhl ")]
    assert shown == [
        "ivhl --version",
        "ivhl advise",
        "ivhl compat",
        "ivhl ready requirements.txt",
        "ivhl try torch.nn:Linear(4, 4)",
    ]
    assert done.stdout.count(" ms  ") == 7
    failed = trial(BROKEN="compat")
    assert failed.returncode == 1
    assert "error: failed: " in failed.stdout
    assert "ivhl ready" not in failed.stdout


def test_only_one_job_can_publish() -> None:
    """PyPI takes what a job with `id-token` in the environment `pypi` of this workflow hands in."""
    assert WORKFLOW[True] == {"push": {"tags": ["v[0-9]+.[0-9]+.[0-9]+"]}}
    jobs = WORKFLOW["jobs"]
    assert [name for name, job in jobs.items() if "id-token" in job["permissions"]] == ["publish"]
    publish = jobs["publish"]
    assert publish["permissions"] == {"id-token": "write", "attestations": "write"}
    assert publish["environment"] == "pypi"
    assert publish["needs"] == ["build", "try"]
    # Actions alone: no script, and no checkout.
    assert [step["uses"].partition("@")[0] for step in publish["steps"]] == [
        "actions/download-artifact",
        "actions/attest",
        "pypa/gh-action-pypi-publish",
    ]
    scripts = [step["run"] for step in jobs["build"]["steps"] if "run" in step]
    assert scripts[0] == 'git merge-base --is-ancestor HEAD "$MAIN"'


def test_each_package_that_ships_or_is_needed_has_a_licence() -> None:
    """The texts of licences are compared by `nox -s lint`, which has the locked versions."""
    held, needs = (HERE / "LICENCES.md").read_text("utf-8").split("## What ivhl needs")
    rows = re.findall(r"^\| (\S+) \| ([^|]+) \| (\S+) \|$", held, re.MULTILINE)
    assert rows == sorted(set(vendored()))
    assert {folder for _, _, folder in rows} == {
        path.parent.relative_to(HERE).as_posix() for path in HERE.glob("ivhl/**/vendor/README.md")
    }
    named = re.findall(r"^\| ([\w.-]+) \| [^|]*[A-Z][^|]* \|$", needs, re.MULTILINE)
    assert named == sorted(needed())


def test_the_locks_of_ci_are_hashed_and_name_no_address() -> None:
    folder = HERE / "envs" / "ci"
    pins = {}
    for path in sorted(folder.iterdir()):
        text = path.read_text("utf-8")
        assert "://" not in text
        found = re.findall(
            r"^([\w.-]+==[^\n]+?) \\\n    --hash=sha256:[0-9a-f]{64}", text, re.MULTILINE
        )
        assert len(found) == len(re.findall(r"^[\w.-]+==", text, re.MULTILINE))
        pins[path.stem] = {pin.partition(" ;")[0] for pin in found}
    assert pins["tool"] <= pins["groups"]
    project = tomllib.loads((HERE / "pyproject.toml").read_text("utf-8"))
    locked = {pin.partition("==")[0] for pin in pins["groups"]}
    asked = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    asked += [one for group in project["dependency-groups"].values() for one in group]
    asked += [
        one for extra in project["project"]["optional-dependencies"].values() for one in extra
    ]
    assert {canonicalize_name(Requirement(one).name) for one in asked} <= locked
