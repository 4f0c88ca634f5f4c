"""What confined code can read and write, by bubblewrap itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ivhl.script import confined as module
from ivhl.script.confined import bubblewrap, confined

_TRIES = """
import json, pathlib, sys
def tried(what):
    try:
        return what()
    except OSError as error:
        return type(error).__name__
home, own, results = map(pathlib.Path, sys.argv[1:])
print(json.dumps({
    "key": tried((home / "key").read_text),
    "other": tried(lambda: [one.name for one in own.parent.iterdir()]),
    "results": tried(lambda: (results / "new").write_text("x")),
    "read": tried((results / "old").read_text),
    "own": tried(lambda: (own / "new").write_text("x")),
}))
"""


@pytest.mark.skipif(bubblewrap() is None, reason="no bubblewrap that works")
def test_confined_code_writes_its_own_folders_and_sees_no_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, own, others = tmp_path / "home", tmp_path / "run" / "own", tmp_path / "run" / "others"
    results = tmp_path / "results"
    for folder in (home, own, others, results):
        folder.mkdir(parents=True)
    (home / "key").write_text("secret")
    (results / "old").write_text("known")
    monkeypatch.setenv("HOME", str(home))
    words = [sys.executable, "-c", _TRIES, str(home), str(own), str(results)]

    def found(command: list[str]) -> dict[str, object]:
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        told: dict[str, object] = json.loads(done.stdout)
        return told

    assert found(confined(words, cell=Path(sys.prefix), writes=[own], reads=[results])) == {
        "key": "FileNotFoundError",
        "other": ["own"],
        "results": "OSError",
        "read": "known",
        "own": 1,
    }
    assert found(words)["key"] == "secret", "without bubblewrap"


def test_without_bubblewrap_a_command_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "bubblewrap", lambda: None)
    assert confined(["python", "x.py"], cell=Path(sys.prefix), writes=[]) == ["python", "x.py"]


def test_a_bubblewrap_that_fails_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bwrap").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert bubblewrap.__wrapped__() is None
    (tmp_path / "bwrap").write_text("#!/bin/sh\nexit 0\n")
    assert bubblewrap.__wrapped__() == str(tmp_path / "bwrap")
