"""A release is made as CONTRIBUTING.md says, built as its workflow does, and tried with Python alone."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.builders.project import git
from tests.builders.registry import served
from tests.docker.conftest import ROOT, Daemon

if TYPE_CHECKING:
    from collections.abc import Mapping

IDENTITY = {
    f"GIT_{who}_{what}": "release@example.invalid"
    for who in ("AUTHOR", "COMMITTER")
    for what in ("NAME", "EMAIL")
}


def run(script: str, cwd: Path, **more: str) -> str:
    """Run a script as a step of a workflow, and return and print what it prints."""
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


def steps(job: str) -> Mapping[str, str]:
    """Return the scripts of a job of the workflow, by their first words."""
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    found = [step["run"] for step in yaml.safe_load(text)["jobs"][job]["steps"] if "run" in step]
    return {" ".join(script.split()[:2]): script for script in found}


@pytest.mark.full
def test_a_release_is_built_twice_and_works_where_there_is_only_python(
    daemon: Daemon, tmp_path: Path
) -> None:
    """Installs from an index on this machine; all that ivhl needs comes from the usual index."""
    git(tmp_path, "clone", "--quiet", "--bare", str(ROOT), "origin.git")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(tmp_path / "origin.git"), str(clone))
    git(clone, "checkout", "--quiet", "-B", "main")
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    part = text.split("\n## Release\n")[1].split("\n## ")[0]
    commands = re.findall(r"^    (.+?)(?: {2,}.*)?$", part, re.MULTILINE)
    (tag,) = set(re.findall(r"v\d+\.\d+\.\d+", part))
    assert [shlex.split(line)[0] for line in commands] == ["uv", "towncrier", "git", "git", "git"]
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "ci")], check=True)
    path = {"PATH": f"{tmp_path / 'ci' / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    build = steps("build")
    run(build["python -m"], clone, **path)
    run("\n".join(commands), clone, **path)
    assert git(tmp_path / "origin.git", "rev-parse", f"{tag}^{{commit}}") == git(
        clone, "rev-parse", "HEAD"
    )
    more = path | {"GITHUB_REF_NAME": tag, "PYTHONPATH": str(clone), "MAIN": "origin/main"}
    run(build["git merge-base"], clone, **more)
    run(build['.ci/build-release "$GITHUB_REF_NAME"'], clone, **more)
    assert {path.suffix for path in (clone / "release" / "dist").iterdir()} == {".whl", ".gz"}
    assert "\n### Added\n" in "\n" + (clone / "release" / "notes.md").read_text(encoding="utf-8")
    given = [
        f"{name}={value}"
        for name, value in os.environ.items()
        if re.match("PIP_(CERT|INDEX)|UV_|SSL", name)
    ]
    options = [word for one in (*given, "TARGET=torch.nn:Linear(4, 4)") for word in ("--env", one)]
    with served(clone / "release" / "dist") as (index, *_):
        said = run(
            shlex.join(
                ["docker", "run", "--rm", "--network", "host", *options]
                + ["--volume", f"{clone}/.ci:/ci:ro", daemon.base, "/ci/try-release"]
                + ["--extra-index-url", index, f"ivhl=={tag.removeprefix('v')}"]
            ),
            tmp_path,
        )
    assert "Take Python 3.1" in said
    assert "works" in said
    assert len(re.findall(r"^ *\d+ ms ", said, re.MULTILINE)) == 7
    assert len(re.findall(r"^ *\d+ MB ", said, re.MULTILINE)) == 3
