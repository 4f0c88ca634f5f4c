"""Observations of the programs and names that a run needs, and ``ivhl doctor``, which prints all."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ivhl.asv.machine import asv_machine, save_machine
from ivhl.bench.checks import observe_names, observe_tools
from ivhl.cli import app
from ivhl.errors import ResultsError
from ivhl.machine.identity import this_machine
from ivhl.matrix.project import find_root
from tests.builders.machine import HEALTHY, fake_smi, only, script


def test_a_cache_on_another_file_system_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    assert only(observe_tools(tmp_path, ()), "uv cache").level == "ok"
    elsewhere = Path("/proc")
    if not elsewhere.is_dir():
        pytest.skip("no /proc, the one file system that is surely another")
    monkeypatch.setenv("UV_CACHE_DIR", str(elsewhere))
    found = only(observe_tools(tmp_path, ()), "uv cache")
    assert (found.level, str(elsewhere) in found.seen) == ("warning", True)


def test_programs_that_are_there_are_ok(tmp_path: Path, programs: Path) -> None:
    root = find_root(Path(__file__))
    observed = tuple(observe_tools(root, ()))
    assert {one.check: one.level for one in observed} == {
        "uv cache": only(observed, "uv cache").level,  # as this machine has it
        "uv": "ok",
        "git": only(observed, "git").level,  # a checkout of CI may be shallow
        "C++ compiler": "ok",
    }
    script(programs / "git", '[ "$1" = --version ] && echo git 2 || echo true')
    found = only(observe_tools(tmp_path, ()), "git")
    assert (found.level, "shallow" in found.seen) == ("warning", True)


@pytest.mark.usefixtures("empty_path")
def test_programs_that_are_missing_are_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path))
    observed = tuple(observe_tools(tmp_path, ["3.99"]))
    assert only(observed, "git").level == "wrong"
    assert "no-such-compiler" in only(observed, "C++ compiler").seen
    assert only(observed, "C++ compiler").level == "wrong"
    assert only(observed, "Python 3.99").level == "warning"


def test_git_outside_of_a_clone_is_wrong(tmp_path: Path) -> None:
    assert only(observe_tools(tmp_path, ()), "git").level == "wrong"


def test_a_python_without_headers_is_wrong(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = json.dumps(
        {
            "executable": str(programs / "python3.12"),
            "full_version": "3.12.9",
            "minor": "3.12",
            "free_threaded": False,
            "implementation": "cpython",
        }
    )
    header = f"echo {tmp_path}/Python.h"
    body = f"case $3 in *get_paths*) {header} ;; *) echo '{answer}' ;; esac"
    script(programs / "python3.12", body)
    monkeypatch.setenv("HOME", str(tmp_path))
    found = only(observe_tools(tmp_path, ["3.12"]), "Python 3.12")
    assert (found.level, "Python.h" in found.seen) == ("wrong", True)
    (tmp_path / "Python.h").touch()
    assert only(observe_tools(tmp_path, ["3.12"]), "Python 3.12").level == "ok"


def test_a_name_belongs_to_one_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    here = this_machine("lab-1")
    assert only(observe_names(tmp_path, here), "machine name").level == "ok"
    known = asv_machine(here)
    (tmp_path / "lab-1").mkdir()
    (tmp_path / "lab-1" / "machine.json").write_text(json.dumps(known), encoding="utf-8")
    assert "has this machine" in only(observe_names(tmp_path, here), "machine name").seen
    (tmp_path / "lab-1" / "machine.json").write_text(
        json.dumps(known | {"cpu": "Another"}), encoding="utf-8"
    )
    found = only(observe_names(tmp_path, here), "machine name")
    assert (found.level, "'Another' there" in found.seen) == ("wrong", True)


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ('{"version": 1, "a": {}}', "ok"),
        ('{"version": 2}', "wrong"),
        ("{", "wrong"),
        ("[]", "wrong"),
        ("{}", "wrong"),
    ],
)
def test_a_damaged_list_of_machines_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, level: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".asv-machine.json").write_text(text, encoding="utf-8")
    found = only(observe_names(tmp_path, this_machine("lab-1")), "asv machine file")
    assert found.level == level


def test_runs_that_begin_at_once_all_find_their_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    one = this_machine("lab")
    here = [replace(one, name=f"lab-{number}") for number in range(24)]
    with ThreadPoolExecutor(8) as several:
        list(several.map(save_machine, here))
    stored = json.loads((tmp_path / ".asv-machine.json").read_text(encoding="utf-8"))
    assert {name for name in stored if name != "version"} == {one.name for one in here}
    assert [path.name for path in tmp_path.iterdir()] == [".asv-machine.json"]


def test_a_home_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "gone"))
    with pytest.raises(ResultsError, match="gone, where asv keeps"):
        save_machine(this_machine("lab-1"))


# The command.


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["doctor", *arguments])
    assert not done.exception or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def test_the_exit_code_tells_whether_something_is_wrong(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(find_root(Path(__file__)))
    fake_smi(programs, HEALTHY.replace("Default", "Prohibited"))
    code, text = run("--device", "cuda", "--machine", "a-new-name", "--json")
    report = json.loads(text)
    assert (code, report["schema"], report["machine"]["name"]) == (
        1,
        "ivhl.doctor/1",
        "a-new-name",
    )
    wrong = {one["check"] for one in report["findings"] if one["level"] == "wrong"}
    assert "GPU 0 compute mode" in wrong
    assert report["counts"]["wrong"] == len(wrong)
    code, text = run("--device", "cuda", "--machine", "a-new-name")
    assert code == 1
    assert "wrong   GPU 0 compute mode" in text
    assert "next: sudo nvidia-smi -i 0 -c DEFAULT" in text
    fake_smi(programs, HEALTHY)
    report = json.loads(run("--json", "--machine", "a-new-name")[1])
    left = {one["check"] for one in report["findings"] if one["level"] == "wrong"}
    assert left == wrong - {"GPU 0 compute mode"}
