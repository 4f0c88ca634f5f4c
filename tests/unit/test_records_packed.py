"""Packing and exporting records loses no value."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from ivhl.cli import app
from ivhl.errors import ResultsError, SpecError
from ivhl.fleet.merge import Merged, merge_records
from ivhl.measure.alone import only_writer
from ivhl.records.files import record_file
from ivhl.records.lines import LARGEST
from ivhl.records.record import Counted, to_json
from ivhl.tracker.store.compact import compact
from ivhl.tracker.store.index import open_index
from ivhl.tracker.store.reading import packed, read_records_file, unpacked
from ivhl.tracker.store.records import load_records
from tests.builders.fleet import make_fleet_project, tree, write_records
from tests.builders.records import make_failure, make_record

if TYPE_CHECKING:
    from pathlib import Path

    from ivhl.records.record import RunRecord

COMMITS = 5


def at(n: int) -> RunRecord:
    at = f"2026-11-{n + 1:02}T00:00:00+00:00"
    return make_record(speedup=2.0 + n, commit=f"{n:02}" * 20, recorded_at=at)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    write_records(tmp_path, *map(at, range(COMMITS)), replace(make_failure(), size="large"))
    return tmp_path


def said(results: Path) -> list[str]:
    index = open_index(results)
    assert sorted(map(to_json, index.read(index.entries))) == sorted(
        map(to_json, load_records(results).records)
    )
    assert not index.problems
    return sorted(map(to_json, index.read((*index.entries, *index.replaced))))


def test_packed_records_are_read_as_before_and_the_newest_stay(results: Path) -> None:
    before = said(results)
    done = compact(results, open_index(results), keep=2)
    assert done.files == COMMITS - 2 + 1  # the failure is of another, older commit
    assert said(results) == before
    plain = [path.name for path in results.rglob("*.jsonl")]
    assert sorted(name[:2] for name in plain) == ["03", "04"]
    assert compact(results, open_index(results), keep=2).files == 0


def test_a_commit_dated_2099_is_not_among_the_newest(results: Path) -> None:
    write_records(results, replace(at(0), recorded_at="2099-01-01T00:00:00+00:00"))
    compact(results, open_index(results), keep=2)
    plain = [path.name for path in results.rglob("*.jsonl")]
    assert sorted(name[:2] for name in plain) == ["03", "04"]


def test_a_record_of_a_packed_commit_is_appended_and_packed_again(results: Path) -> None:
    compact(results, open_index(results), keep=1)
    again = replace(at(0), recorded_at="2026-11-01T12:00:00+00:00", size="large")
    write_records(results, again)
    before = said(results)
    assert to_json(again) in before
    compact(results, open_index(results), keep=1)
    assert said(results) == before
    assert len([*results.rglob("00*")]) == 1


def test_a_kill_between_writing_and_deleting_loses_and_doubles_nothing(results: Path) -> None:
    before = said(results)
    path = record_file(results, at(0).machine.name, at(0).commit, at(0).cell.id)
    left = path.read_bytes()
    compact(results, open_index(results), keep=1)
    path.write_bytes(left)
    assert len(open_index(results).entries) == len(before)
    compact(results, open_index(results), keep=1)
    assert said(results) == before


def test_a_kill_while_a_commit_is_packed_again_loses_nothing(results: Path) -> None:
    path = record_file(results, at(0).machine.name, at(0).commit, at(0).cell.id)
    compact(results, open_index(results), keep=1)
    later = replace(at(0), recorded_at="2026-11-01T12:00:00+00:00", size="large")
    write_records(results, later)
    left, before = path.read_bytes(), said(results)
    compact(results, open_index(results), keep=1)
    path.write_bytes(left)  # killed after writing, before deleting
    compact(results, open_index(results), keep=1)
    assert said(results) == before
    assert not path.exists()


def test_an_empty_file_and_a_line_that_was_cut_off_lose_nothing_when_packed(results: Path) -> None:
    path = record_file(results, at(0).machine.name, at(0).commit, at(0).cell.id)
    compact(results, open_index(results), keep=1)
    before = said(results)
    path.write_bytes(b"")  # a full disk leaves one
    compact(results, open_index(results), keep=1)
    assert said(results) == before
    path.write_bytes(b'{"cut off')
    compact(results, open_index(results), keep=1)
    later = replace(at(0), recorded_at="2026-11-01T12:00:00+00:00", size="large")
    write_records(results, later)
    compact(results, open_index(results), keep=1)
    loaded = load_records(results)
    assert sorted(map(to_json, loaded.records)) == sorted([*before, to_json(later)])
    assert len(loaded.problems) == 1


def test_an_import_unpacks_what_it_adds_to(results: Path) -> None:
    compact(results, open_index(results), keep=1)
    path = record_file(results, at(0).machine.name, at(0).commit, at(0).cell.id)
    beside = path.with_name(f"{path.name}.zst")
    assert merge_records(path, [at(0)]) == Merged(new=0, had=1)
    assert beside.exists()
    # Older than the packed one: packed as two files, it would count as the newer one afterwards.
    older = replace(at(0), recorded_at="2026-10-01T00:00:00+00:00")
    assert merge_records(path, [older]) == Merged(new=1, had=0)
    assert not beside.exists()
    compact(results, open_index(results), keep=1)
    assert at(0) in load_records(results).records
    assert load_records(results).replaced == (older,)


def test_nothing_is_packed_while_another_process_appends(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = results / "project"
    root.mkdir()
    make_fleet_project(root)
    write_records(root / "results", *map(at, range(COMMITS)))
    monkeypatch.chdir(root)
    before = tree(root / "results")
    with only_writer(root / "results", beside_others=True):
        with only_writer(root / "results", beside_others=True):
            pass
        done = CliRunner().invoke(app, ["compact", "1"])
    assert isinstance(done.exception, ResultsError)
    assert "another ivhl is writing" in str(done.exception)
    assert tree(root / "results") == before


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[:20] + bytes([data[20] ^ 1]) + data[21:],
        lambda _: b"not packed",
        lambda data: data + packed(b"another frame\n"),
        lambda _: b"",
        # A frame of one repeated byte that says to hold more than is unpacked.
        lambda _: b"\x28\xb5\x2f\xfd\xe0" + (LARGEST + 1).to_bytes(8, "little") + b"\x03\0\0x",
    ],
)
def test_a_damaged_packed_file_is_named_and_the_rest_is_read(
    results: Path, damage: object
) -> None:
    compact(results, open_index(results), keep=4)
    (path, *_) = sorted(results.rglob("00*.zst"))
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    (problem,) = open_index(results).problems
    assert problem.path == path
    assert "cannot be unpacked" in problem.rule
    assert [str(p) for p in load_records(results).problems] == [str(problem)]
    assert len(open_index(results).entries) == COMMITS
    before = tree(results)
    with pytest.raises(ResultsError, match="unpacked"):
        read_records_file(path)
    assert tree(results) == before


def test_packing_is_exact() -> None:
    for data in (b"", b"\n", b"x" * 100_000, bytes(range(256)) * 9):
        assert unpacked(packed(data)) == data


def test_every_record_and_sample_is_in_the_parquet_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="ivhl[parquet] is not installed")
    root = tmp_path / "project"
    root.mkdir()
    make_fleet_project(root)
    monkeypatch.chdir(root)
    again = replace(at(0), recorded_at="2026-12-01T00:00:00+00:00")
    write_records(root / "results", at(0), again, at(1), make_failure("wrong", "far off"))
    done = CliRunner().invoke(app, ["results", "--output", "records.parquet"])
    assert done.exit_code == 0, done.output
    rows = parquet.read_table(root / "records.parquet").to_pylist()
    assert len(rows) == 4
    assert sorted(row["latest"] for row in rows) == [False, True, True, True]
    (row,) = (row for row in rows if row["commit"] == at(1).commit)
    compiled = at(1).compiled
    assert compiled is not None
    assert tuple(row["compiled_samples_s"]) == compiled.samples_s
    assert row["speedup"] == 3.0
    assert row["graph_breaks"] == 1
    (failed,) = (row for row in rows if row["failure_class"])
    assert (failed["failure_class"], failed["message"]) == ("wrong", "far off")
    json.dumps(rows)


def test_an_export_to_nowhere_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow", reason="ivhl[parquet] is not installed")
    make_fleet_project(tmp_path)
    write_records(tmp_path / "results", at(0))
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["results", "--output", "nowhere/records.parquet"])
    assert isinstance(done.exception, SpecError)
    assert "nowhere/records.parquet: must be in a folder that exists" in str(done.exception)
    os.mkfifo(tmp_path / "pipe.parquet")
    done = CliRunner().invoke(app, ["results", "--output", "pipe.parquet"])
    assert isinstance(done.exception, SpecError)
    assert "pipe.parquet: must be a file or not exist" in str(done.exception)


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


def test_the_largest_counts_of_a_record_can_be_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow", reason="ivhl[parquet] is not installed")
    make_fleet_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    facts = at(0).compile
    assert facts is not None
    # As many as a record of one MiB holds.
    breaks = (Counted(text="x", count=2**40),) * 29_000
    write_records(
        tmp_path / "results", replace(at(0), compile=replace(facts, graph_breaks=breaks))
    )
    done = CliRunner().invoke(app, ["results", "--output", "records.parquet"])
    assert done.exit_code == 0, done.output
    assert [path.name for path in tmp_path.glob("*parquet*")] == ["records.parquet"]


def test_a_link_to_nothing_is_named_and_not_packed(results: Path) -> None:
    path = record_file(results, at(0).machine.name, "9" * 40, at(0).cell.id)
    path.symlink_to("nothing")
    with pytest.raises(ResultsError, match=rf"{path.name}: must not be a link"):
        compact(results, open_index(results), keep=2)
    assert path.is_symlink()
