"""A release is made as CONTRIBUTING.md says, built by its workflow, and tried with Python alone."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.builders.project import git
from tests.builders.registry import served
from tests.docker.conftest import ROOT, Daemon

if TYPE_CHECKING:
    from pathlib import Path

WHO = "release@example.invalid"
IDENTITY = {
    f"GIT_{role}_{what}": WHO for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
}


def run(script: str, cwd: Path, **more: str) -> str:
    """Run a script as a step of a workflow; return and print what it prints."""
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=cwd,
        env=os.environ | IDENTITY | more,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stdout
    return done.stdout


def build_steps() -> tuple[str, ...]:
    """Return the scripts of the job that builds: of the commit, of the packages, of the files."""
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    job = yaml.safe_load(text)["jobs"]["build"]
    return tuple(step["run"] for step in job["steps"] if "run" in step)


@pytest.mark.full
def test_a_release_is_built_twice_and_works_where_there_is_only_python(
    daemon: Daemon, tmp_path: Path
) -> None:
    """It comes from an index on this machine, and all that it needs from the usual index."""
    origin, clone = tmp_path / "origin.git", tmp_path / "clone"
    git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", str(origin))
    # Whatever branch this checkout is on.
    git(ROOT, "push", "--quiet", str(origin), "HEAD:refs/heads/main")
    git(tmp_path, "clone", "--quiet", str(origin), str(clone))
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    part = text.split("\n## Release\n")[1].split("\n## ")[0]
    commands = re.findall(r"^    (.+)$", part, re.MULTILINE)
    (tag,) = set(re.findall(r"v\d+\.\d+\.\d+", part))
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "ci")], check=True)
    more = {
        "PATH": f"{tmp_path / 'ci' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(clone),
        "GITHUB_REF_NAME": tag,
        "MAIN": "origin/main",
    }
    of_commit, of_packages, of_files = build_steps()
    run(of_packages, clone, **more)
    run("\n".join(commands), clone, **more)
    published = git(origin, "rev-parse", f"{tag}^{{commit}}")
    assert published == git(clone, "rev-parse", "HEAD")
    run(of_commit, clone, **more)
    run(of_files, clone, **more)
    assert {path.suffix for path in (clone / "release" / "dist").iterdir()} == {".whl", ".gz"}
    assert (clone / "release" / "notes.md").read_text(encoding="utf-8").startswith("### ")
    assert len(list((clone / "release").glob("*.cdx.json"))) == 1
    given = [
        f"{name}={value}"
        for name, value in os.environ.items()
        if re.match(r"PIP_(CERT|\w*INDEX)|UV_\w*INDEX", name)
    ]
    options = [word for one in (*given, "TARGET=torch.nn:Linear(4, 4)") for word in ("--env", one)]
    with served(clone / "release" / "dist") as (index, *_):
        inside = ("/ci/try-release", "--extra-index-url", index, f"ivhl=={tag.removeprefix('v')}")
        options += ["--network", "host", "--volume", f"{clone}/.ci:/ci:ro"]
        said = run(shlex.join(["docker", "run", "--rm", *options, daemon.base, *inside]), tmp_path)
    assert "Take Python 3.1" in said
    assert "Linear(4, 4)" in said
    assert len(re.findall(r"^ *\d+ ms  ", said, re.MULTILINE)) == 7
    assert len(re.findall(r"^ *\d+ MB  ", said, re.MULTILINE)) == 3
