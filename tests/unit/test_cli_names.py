"""A name is found by a part of it, in any letter case, and never by a part of a number."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from ivhl.cli import app
from ivhl.cli.names import RELEASE, matching, recorded, the_one
from ivhl.errors import IvhlError, ResultsError, SpecError, UnknownNameError
from ivhl.tracker.support.table import csv_text
from tests.builders.fleet import a_record, make_fleet_project, write_records
from tests.builders.project import make_commits
from tests.builders.records import make_failure

if TYPE_CHECKING:
    from pathlib import Path

NAMES = st.sets(st.text("aB1.2_-", min_size=1, max_size=6), min_size=1, max_size=8)


@given(NAMES, st.data())
def test_an_exact_name_wins(names: set[str], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(names)))
    assert matching("case", name, names) == (name,)
    assert the_one("case", name, names) == name


@given(NAMES, st.text("aB1.2_-", min_size=1, max_size=3))
def test_what_is_found_contains_the_text_in_any_letter_case(names: set[str], text: str) -> None:
    try:
        found = matching("case", text, names)
    except UnknownNameError:
        assert text not in names
        return
    assert set(found) <= names
    assert all(text.casefold() in name.casefold() for name in found)
    if len(found) == 1:
        assert the_one("case", text, names) == found[0]
    else:
        with pytest.raises(SpecError, match=f"is part of {len(found)} names"):
            the_one("case", text, names)


def test_a_number_is_a_whole_number() -> None:
    known = {"2.1.0", "2.10.0", "2.11.0", "12.1.5"}
    assert matching("x", "2.1", known) == ("2.1.0",)
    assert matching("x", "core1", {"vm-core1-x", "vm-core12"}) == ("vm-core1-x",)
    with pytest.raises(UnknownNameError):
        matching("Python", "3.1", {"3.12", "3.13"})
    assert matching(RELEASE, "2.6", {"2.6.0", "2.6.1", "2.16.0"}) == ("2.6.1",)
    assert matching("Python", "3", {"3.12", "3.13t"}) == ("3.12", "3.13t")


def test_several_names_are_all_for_a_filter_and_an_error_where_one_is_needed() -> None:
    known = {"vm-a", "VM-b", "xeon"}
    assert recorded("machine", ["vm"], known) == {"vm-a", "VM-b"}
    assert recorded("machine", None, known) == known
    with pytest.raises(SpecError, match="machine 'vm' is part of 2 names") as error:
        the_one("machine", "vm", known)
    assert error.value.hint == "name one: VM-b, vm-a"
    with pytest.raises(ResultsError, match="in the matrix, but has no record") as none_yet:
        recorded("Python", ["3.14"], {"3.12"}, {"3.12": "a", "3.14": "ivhl bench --python 3.14"})
    assert none_yet.value.hint == "measure it with: ivhl bench --python 3.14"


@pytest.fixture
def recorded_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with records of two workloads in two cells."""
    make_fleet_project(tmp_path)
    (commit,) = make_commits(tmp_path, 1)
    records = (
        replace(a_record(tmp_path, torch=torch, variant="a"), workload=name, commit=commit)
        for torch in ("2.5.1", "2.6.0")
        for name in ("ops.one", "ops.two", "ops.three")
    )
    write_records(tmp_path / "results", *records)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("recorded_project")
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("bisect 2.5.1 2.6.0 --case OPS.T --dry-run", "case 'OPS.T' is part of 2 names"),
        ("bisect 2.5.1 2.6.0 --case TWO --python 3 --dry-run", "Python '3' is part of 2 names"),
        ("blame OPS.T", "case 'OPS.T' is part of 2 names"),
        ("blame two --python 3", "Python '3' is part of 2 names"),
        ("blame two --machine nope", "unknown machine 'nope'"),
        ("blame two --for COMP", "symptom 'COMP' is part of 5 names"),
        ("attribute torch2.5 torch2.6.0", "cell 'torch2.5' is part of 2 names"),
        ("attribute 12-TORCH2.5 12-torch2.6 --case OPS.T", "case 'OPS.T' is part of 2 names"),
        ("attribute 12-torch2.5 12-torch2.6 --machine nope", "unknown machine 'nope'"),
        ("repeat OPS.T", "case 'OPS.T' is part of 2 names"),
        ("repeat TWO --torch 9.9", "unknown PyTorch release '9.9'"),
        ("try TWO --python 3", "Python '3' is part of 2 names"),
    ],
)
def test_what_measures_finds_a_name_by_its_part_and_lists_the_candidates(
    command: str, said: str
) -> None:
    """These took only whole names, which no other command asks for."""
    error = CliRunner().invoke(app, command.split()).exception
    assert isinstance(error, SpecError), error
    assert said in str(error)
    assert error.hint


@pytest.mark.usefixtures("recorded_project")
@pytest.mark.parametrize(
    ("command", "exit_code"),
    [
        ("matrix --torch 9.9", 2),
        ("compat --torch 9.9", 2),
        ("results --torch 9.9", 2),
        ("regressions --torch 9.9", 2),
        ("course --torch 9.9", 2),
        ("advise --torch 9.9", 2),
        ("matrix --tier next", 5),
        ("compat --status wrong", 5),
        ("compat --torch 2.5.1 --status wrong", 5),
        # Both: a release that is not in the matrix stands beside one that is.
        ("matrix --torch 9.9 --torch 2.6", 0),
    ],
)
def test_what_finds_nothing_ends_alike_in_every_command(command: str, exit_code: int) -> None:
    error = CliRunner().invoke(app, command.split()).exception
    assert (error.exit_code if isinstance(error, IvhlError) else 0) == exit_code, error


@given(
    st.lists(
        st.dictionaries(st.sampled_from("abc"), st.none() | st.integers() | st.text("=+@-x\n"))
    )
)
def test_a_table_is_read_back_from_csv_and_no_cell_is_a_formula(
    rows: list[dict[str, object]],
) -> None:
    read = [*csv.reader(io.StringIO(csv_text(rows)))]
    names = [*dict.fromkeys(name for row in rows for name in row)]
    if not names:
        return
    assert read[0] == names
    # csv leaves out a line that holds one empty cell.
    for line in read[1:]:
        assert all(not cell.startswith(("=", "+", "@")) or cell[1:].isdecimal() for cell in line)


def test_tables_are_written_as_the_suffix_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_fleet_project(tmp_path)
    write_records(
        tmp_path / "results",
        a_record(tmp_path, torch="2.5.1", variant="a"),
        a_record(tmp_path, torch="2.6.0", variant="a"),
        make_failure("wrong", "=1+1"),
    )
    monkeypatch.chdir(tmp_path)
    for command, schema in (
        ("compat", "compat"),
        ("results", "results"),
        ("course", "course"),
        ("compare 2.5.1 2.6.0", "comparison"),
        ("regressions", "regressions"),
    ):
        for suffix in ("csv", "JSON"):
            file = tmp_path / f"table.{suffix}"
            done = CliRunner().invoke(app, [*command.split(), "--output", str(file)])
            assert done.exit_code == 0, (command, done.exception)
            text = file.read_text(encoding="utf-8")
            if suffix == "csv":
                rows = [*csv.DictReader(io.StringIO(text))]
                assert rows or command == "regressions"
                assert "workload" in (rows[0] if rows else ["workload"])
            else:
                assert json.loads(text)["schema"] == f"ivhl.{schema}/1"
    (row,) = (
        row
        for row in csv.DictReader(io.StringIO(_of(tmp_path, "results")))
        if row["failure_class"] == "wrong"
    )
    assert row["message"] == "'=1+1"


def _of(folder: Path, command: str) -> str:
    CliRunner().invoke(app, [command, "--output", str(folder / "again.csv")])
    return (folder / "again.csv").read_text(encoding="utf-8")
