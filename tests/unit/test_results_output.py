"""Files that commands write with ``--output``, and files of records that no reader takes."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from ivhl.cli import app
from ivhl.errors import ResultsError, SpecError
from ivhl.records.files import replaced_whole
from tests.builders.fleet import make_fleet_project, write_records
from tests.builders.records import make_record

if TYPE_CHECKING:
    from pathlib import Path

RECORD = make_record()


def test_a_file_to_write_that_cannot_be_one_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_fleet_project(tmp_path)
    write_records(tmp_path / "results", RECORD)
    monkeypatch.chdir(tmp_path)
    os.mkfifo(tmp_path / "pipe.csv")
    for name, rule in (
        ("nowhere/records.csv", "must be in a folder that exists"),
        ("pipe.csv", "must be a file or not exist"),
    ):
        done = CliRunner().invoke(app, ["results", "--output", name])
        assert isinstance(done.exception, SpecError)
        assert f"{name}: {rule}" in str(done.exception)


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        (["results", "--output", "r.txt"], "e.g. r.csv"),
        (["results", "--output", "records"], "e.g. records.csv"),
        (["compat", "--output", "compat.parquet"], "e.g. compat.csv"),
        (["course", "--output", "course.txt"], "e.g. course.csv"),
        (["compare", "2.5.1", "2.6.0", "--output", "compare"], "e.g. compare.csv"),
        (["regressions", "--output", "regressions.xml"], "e.g. regressions.csv"),
    ],
)
def test_a_file_whose_name_says_another_form_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], hint: str
) -> None:
    make_fleet_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, command)
    assert isinstance(done.exception, SpecError)
    assert f"{command[-1]}: the name must end in " in str(done.exception)
    assert done.exception.hint == hint
    assert not (tmp_path / command[-1]).exists()


def test_only_a_full_disk_asks_for_room(tmp_path: Path) -> None:
    for number, hint in (
        (errno.ENOSPC, "make room"),
        (errno.EACCES, "check the permissions"),
        (errno.EROFS, "this disk cannot be written"),
    ):
        with pytest.raises(ResultsError) as told, replaced_whole(tmp_path / "x.csv"):
            raise OSError(number, os.strerror(number))
        assert told.value.hint.startswith(hint)


def test_a_report_that_cannot_be_written_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text("raise SystemExit(3)\n")

    def refused(path: str) -> str:
        done = CliRunner().invoke(app, ["report", "script.py", "--output", path])
        assert isinstance(done.exception, SpecError)
        assert done.output == ""
        return str(done.exception)

    rule = "must be in a folder that exists and can be written"
    assert refused("nowhere/x.md") == f"nowhere/x.md: {rule}"
    # The tests may run as root, who may write everywhere.
    monkeypatch.setattr("ivhl.cli.screen.os.access", lambda *_: False)
    assert refused("x.md") == f"x.md: {rule}"


def test_a_folder_of_a_blame_that_cannot_be_made_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_fleet_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    called = []
    monkeypatch.setattr("ivhl.cli.blame.locked", lambda *_: called.append("locked"))
    monkeypatch.setattr("ivhl.cli.blame.blame", lambda *_: called.append("ran"))
    command = "blame ops.one/small/a --torch 2.6.0 --for compile --output file/x"
    done = CliRunner().invoke(app, command.split())
    assert isinstance(done.exception, NotADirectoryError | FileExistsError), done.exception
    assert "ran" not in called
