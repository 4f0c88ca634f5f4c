"""Each known cause shows as its file says: its script in the releases, or its command."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ivhl.errors import InterpreterError
from ivhl.matrix.interpreter import find_interpreter
from ivhl.tracker.support.known import known_causes

if TYPE_CHECKING:
    from ivhl.tracker.support.known import KnownCause

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.full


def ivhl(*words: str) -> subprocess.CompletedProcess[str]:
    # A path of the user's own project would be found before that of the checkout.
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "ivhl", *words],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    "cause", [one for one in known_causes() if one.script], ids=lambda one: one.name
)
def test_a_script_prints_in_each_release_what_its_cause_says(cause: KnownCause) -> None:
    try:
        find_interpreter(Path.home(), cause.python, install=False)
    except InterpreterError:
        pytest.skip(f"needs Python {cause.python}")
    releases = ",".join(release for release, _ in cause.prints)
    done = ivhl(
        "run", "--json", "--python", cause.python, "--torch", releases,
        cause.script,
    )  # fmt: skip
    assert done.stdout, done.stderr
    outcomes = {one["torch"]: one["outcome"] for one in json.loads(done.stdout)["cells"]}
    for release, said in cause.prints:
        found = outcomes[release]
        text = " ".join(found[name] for name in ("ending", "output", "exception", "message"))
        assert said in text, release


@pytest.mark.parametrize(
    "cause", [one for one in known_causes() if one.command], ids=lambda one: one.name
)
def test_a_command_names_its_cause_or_prints_what_the_cause_says(cause: KnownCause) -> None:
    program, *words = shlex.split(cause.command)
    assert program == "ivhl"
    done = ivhl(*words)
    text = " ".join(done.stdout.split())
    for _, said in cause.prints or (("", cause.plain),):
        assert said in text, done.stderr
