"""The index says what the records say, whatever happened to either."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ivhl.errors import ResultsError
from ivhl.records.files import append_record, record_file
from ivhl.records.identity import key_of
from ivhl.records.reader import read_record
from ivhl.records.record import to_json
from ivhl.tracker.changes.regressions import changes_of, find_changes, steps_in
from ivhl.tracker.detection.changepoints import detect
from ivhl.tracker.store.course import point_of
from ivhl.tracker.store.entries import entry_of, row_facts_of
from ivhl.tracker.store.index import index_file, open_index
from ivhl.tracker.store.metrics import JUDGED, difference
from ivhl.tracker.store.spread import Spreads
from ivhl.tracker.support.compat import compat_json, compat_rows
from studies.stored import latest_per_case, load_records
from tests.builders.fleet import write_records
from tests.builders.records import make_failure, make_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from ivhl.records.record import RunRecord
    from ivhl.tracker.store.entries import Entry


def at(n: int, **changes: object) -> RunRecord:
    record = make_record(speedup=2.0 + 0.01 * n)
    about = {"commit": f"{n:040x}", "recorded_at": f"2026-11-01T00:00:{n:02}+00:00"}
    return replace(record, **about | changes)  # type: ignore[arg-type]


def bare(entries: Iterable[Entry]) -> list[Entry]:
    return sorted(entry._replace(id=0) for entry in entries)


def same_as_records(results: Path) -> None:
    """Assert that the index and the records themselves say the same."""
    loaded, index = load_records(results), open_index(results)
    assert bare(index.entries) == bare(map(entry_of, loaded.records))
    assert sorted(map(str, index.problems)) == sorted(map(str, loaded.problems))
    assert sorted(map(to_json, index.read(index.entries))) == sorted(map(to_json, loaded.records))
    order = sorted({record.commit for record in loaded.records})[1:]
    newest = latest_per_case((one.record for one in index.newest(order)), order)
    assert newest == latest_per_case(loaded.records, order)
    rows = compat_rows(index.every())
    assert compat_json(rows) == compat_json(compat_rows(loaded.records))
    assert {one.entry.key: one.facts for one in index.every()} == {
        key_of(record): row_facts_of(record) for record in loaded.records
    }


def records_at(results: Path, n: int = 0) -> Path:
    record = at(n)
    return record_file(results, record.machine.name, record.commit, record.cell.id)


RECORDS = (
    at(0), at(1), at(2, workload="ops.other"), at(3, failure=make_failure().failure, speedup=None),
    at(1, recorded_at="2020-01-01T00:00:00+00:00"), at(0, recorded_at="2099-01-01T00:00:00+00:00"),
)  # fmt: skip
DAMAGES = st.sampled_from(
    ["append", "cut", "broken line", "delete", "rewrite", "touch", "elsewhere", "not utf-8"]
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(DAMAGES, st.integers(0, 5)), max_size=6))
def test_the_index_follows_whatever_happens_to_the_files(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    results = tmp_path_factory.mktemp("results")
    write_records(results, *RECORDS[:4])
    same_as_records(results)
    for damage, n in steps:
        record, path = RECORDS[n], records_at(results, n % 4)
        line = to_json(record).encode() + b"\n"
        if damage == "append":
            write_records(results, record)
        elif damage == "elsewhere":
            other = path.with_name(f"copied-{n}.jsonl")
            other.write_bytes(line)
        elif not path.is_file():
            continue
        elif damage == "cut":
            path.write_bytes(path.read_bytes()[: -1 - 40 * n])
        elif damage == "broken line":
            path.write_bytes(path.read_bytes() + b'{"schema": 1}\n')
        elif damage == "not utf-8":
            path.write_bytes(b"\xff\xfe\n" + path.read_bytes())
        elif damage == "delete":
            path.unlink()
        elif damage == "rewrite":
            path.write_bytes(line)
        else:
            os.utime(path, (n, n))
        same_as_records(results)


def test_an_index_may_end_in_another_thread(tmp_path: Path) -> None:
    # The collector runs in whatever thread allocates, such as the event loop of zarr.
    write_records(tmp_path, make_record())
    index = open_index(tmp_path)
    errors: list[object] = []
    thread = threading.Thread(target=index.close)
    before, threading.excepthook = threading.excepthook, errors.append
    try:
        thread.start()
        thread.join()
    finally:
        threading.excepthook = before
    assert errors == []


def test_an_appended_record_is_all_that_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_records(tmp_path, *RECORDS)
    open_index(tmp_path)
    parsed: list[bytes] = []

    def count(line: bytes) -> RunRecord:
        parsed.append(line)
        return read_record(line)

    monkeypatch.setattr("ivhl.records.reader.read_record", count)
    write_records(tmp_path, at(0, recorded_at="2026-12-01T00:00:00+00:00"))
    open_index(tmp_path)
    assert len(parsed) == 1


@pytest.mark.parametrize("room", [0, 1 << 20])
def test_what_was_read_to_update_the_index_is_read_once_if_it_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    monkeypatch.setattr("ivhl.tracker.store.indexing._MOST_PARSED", room)
    write_records(tmp_path, *RECORDS)
    index = open_index(tmp_path)
    parsed: list[bytes] = []

    def count(line: bytes) -> RunRecord:
        parsed.append(line)
        return read_record(line)

    monkeypatch.setattr("ivhl.tracker.store.index.read_record", count)
    found = index.read(index.entries)
    assert len(parsed) == (0 if room else len(found))
    index.close()
    assert open_index(tmp_path).read(index.entries) == found


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"no database",
        lambda data: data[: len(data) // 2],
        lambda data: data[:-100],
        lambda _: b"",
        lambda data: data[:60] + b"\0\0\0\7" + data[64:],  # the version
    ],
)
def test_a_broken_index_is_made_again(tmp_path: Path, damage: object) -> None:
    write_records(tmp_path, *RECORDS)
    open_index(tmp_path).close()
    place = index_file(tmp_path)
    place.write_bytes(damage(place.read_bytes()))  # type: ignore[operator]
    same_as_records(tmp_path)


def test_an_index_that_cannot_be_kept_is_made_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_records(tmp_path, *RECORDS)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert open_index(tmp_path).place is None
    same_as_records(tmp_path)


def test_a_user_without_a_home_has_an_index_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr("pathlib.Path.home", home)
    write_records(tmp_path, *RECORDS)
    assert open_index(tmp_path).place is None
    same_as_records(tmp_path)


def test_the_index_of_another_folder_is_never_read(tmp_path: Path) -> None:
    write_records(tmp_path / "one", at(0))
    write_records(tmp_path / "two", at(1))
    assert [e.commit for e in open_index(tmp_path / "one").entries] == [at(0).commit]
    assert [e.commit for e in open_index(tmp_path / "two").entries] == [at(1).commit]
    assert open_index(tmp_path / "none").entries == ()


WRITER = """
import sys
from pathlib import Path
from ivhl.tracker.store.index import open_index
while True:
    open_index(Path(sys.argv[1])).close()
"""


def test_writers_at_once_and_kills_lose_nothing(tmp_path: Path) -> None:
    write_records(tmp_path, *RECORDS)
    words = [sys.executable, "-c", WRITER, str(tmp_path)]
    for round_ in range(3):
        writers = [subprocess.Popen(words) for _ in range(2)]
        for n in range(8):
            write_records(tmp_path, at(10 * round_ + n, workload=f"ops.w{n}"))
            time.sleep(0.1)
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
    same_as_records(tmp_path)
    check = sqlite3.connect(index_file(tmp_path))
    assert check.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    check.close()


def test_what_a_wrong_clock_hid_is_shown_once_the_clock_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_records(tmp_path, at(0))
    elsewhere = records_at(tmp_path).with_name("elsewhere.jsonl")
    append_record(elsewhere, at(0, recorded_at="2099-01-01T00:00:00+00:00"))
    with monkeypatch.context() as patch:
        patch.setattr(
            "ivhl.tracker.store.indexing.latest_possible", lambda: "2100-01-01T00:00:00+00:00"
        )
        assert [one.recorded_at[:4] for one in open_index(tmp_path).entries] == ["2099"]
    same_as_records(tmp_path)


def test_a_writer_between_two_reads_mixes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"timeout": 0.1, "isolation_level": None, "check_same_thread": False}
    monkeypatch.setattr("ivhl.tracker.store.index._OPTIONS", options)
    write_records(tmp_path, at(0))
    index = open_index(tmp_path)
    written: list[str] = []

    def write(statement: str) -> None:
        if "FROM subject" in statement and not written:
            written.append(statement)
            write_records(tmp_path, at(1, workload="ops.new"))
            open_index(tmp_path).close()

    index._db.set_trace_callback(write)
    assert [one.commit for one in index.entries] == [at(0).commit]
    assert written
    same_as_records(tmp_path)


def test_numbers_of_an_index_that_another_ivhl_made_again_mean_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_records(tmp_path, *RECORDS)
    index = open_index(tmp_path)
    entries = index.entries
    monkeypatch.setattr("ivhl.tracker.store.indexing.code_version", lambda: "0" * 64)
    open_index(tmp_path).close()
    for use in (index.read, index.points):
        with pytest.raises(ResultsError, match="was made again"):
            use(entries)
    same_as_records(tmp_path)


def test_a_later_run_that_another_process_adds_stops_no_page(tmp_path: Path) -> None:
    write_records(tmp_path, at(0), at(1))
    index = open_index(tmp_path)
    entries = index.entries
    write_records(tmp_path, at(0, recorded_at="2026-12-01T00:00:00+00:00"))
    open_index(tmp_path).close()
    assert index.points(entries) == [point_of(entry) for entry in entries]
    assert len(index.read(entries)) == 2
    records_at(tmp_path).unlink()
    open_index(tmp_path).close()
    with pytest.raises(ResultsError, match="changed while it was read"):
        index.read(entries)


def test_pages_of_the_index_that_a_disk_lost_are_made_again(tmp_path: Path) -> None:
    write_records(tmp_path, *(at(0, workload=f"ops.w{n}") for n in range(30)))
    open_index(tmp_path).close()
    data = index_file(tmp_path).read_bytes()
    page, hints = 4096, set()
    for start in range(page, len(data), page):
        index_file(tmp_path).write_bytes(data[:start] + bytes(page) + data[start + page :])
        try:
            same_as_records(tmp_path)
        except ResultsError as error:
            hints.add(error.hint)
            same_as_records(tmp_path)
    assert hints == {"run the same command again: the index is made from the records"}


def test_a_link_to_nothing_among_the_records_is_named(tmp_path: Path) -> None:
    write_records(tmp_path, at(0))
    link = records_at(tmp_path).with_name("link.jsonl")
    link.symlink_to("nothing")
    same_as_records(tmp_path)
    (problem,) = open_index(tmp_path).problems
    assert problem.path == link
    link.unlink()
    assert open_index(tmp_path).problems == ()


def test_a_record_that_moved_is_not_taken_for_the_one_that_was_there(tmp_path: Path) -> None:
    write_records(tmp_path, at(0, workload="ops.a"), at(0, workload="ops.b"))
    open_index(tmp_path).close()
    index = open_index(tmp_path)  # it reads no record before it is asked to
    entries = index.entries
    lines = records_at(tmp_path).read_bytes().splitlines(keepends=True)
    assert len(lines[0]) == len(lines[1])
    records_at(tmp_path).write_bytes(lines[1] + lines[0])
    with pytest.raises(ResultsError, match="changed while it was read"):
        index.read(entries)
    same_as_records(tmp_path)


def test_a_file_that_changes_after_the_update_is_named(tmp_path: Path) -> None:
    write_records(tmp_path, at(0))
    open_index(tmp_path).close()
    index = open_index(tmp_path)
    records_at(tmp_path).write_bytes(b"something else\n" * 1000)
    with pytest.raises(ResultsError, match="changed while it was read"):
        index.read(index.entries)


def test_entries_judge_as_their_records_do(tmp_path: Path) -> None:
    write_records(tmp_path, *RECORDS)
    index = open_index(tmp_path)
    records = index.read(index.entries)
    for one, other in zip(index.entries, index.entries[1:], strict=False):
        pair = records[index.entries.index(one)], records[index.entries.index(other)]
        for metric in JUDGED:
            assert difference(one, other, metric) == difference(*pair, metric)


def test_what_was_learnt_is_kept_until_a_record_is_added(tmp_path: Path) -> None:
    runs = [
        replace(at(n), commit=at(0).commit, workload=f"ops.w{n % 7}", sources="a" * 64)
        for n in range(56)
    ]
    write_records(tmp_path, *runs)
    learnt = open_index(tmp_path).spreads.of(runs[0])
    assert learnt == Spreads(runs).of(runs[0])
    kept = open_index(tmp_path)
    kept.__dict__["_repeated"] = tuple
    assert kept.spreads.of(runs[0]) == learnt
    write_records(tmp_path, replace(runs[0], recorded_at="2026-11-02T00:00:00+00:00"))
    assert open_index(tmp_path).spreads.of(runs[0]).pairs > learnt.pairs


def test_steps_are_found_once(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    values = [1.0, 1.01, 0.99, 1.0, 1.02, 1.0, 1.3, 1.31, 1.29, 1.3, 1.31, 1.3, 1.29, 1.3]
    intervals = [(value * 0.99, value * 1.01) for value in values]
    series = [(values, intervals), (values[:7], intervals[:7]), (values, intervals)]
    found = steps_in(index, series)
    assert found[0]
    assert found == steps_in(index, series) == [detect(*one) for one in series]


def commits(n: int) -> list[RunRecord]:
    """Return records of so many commits, the last of which fails."""
    failed = make_failure().failure
    return [*(at(i) for i in range(n - 1)), at(n - 1, failure=failed, speedup=None)]


def test_the_changes_of_a_history_are_searched_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_records(tmp_path, *commits(4))
    order = [at(n).commit for n in range(9)]
    index = open_index(tmp_path)
    found = changes_of(index, index.spreads, order)
    assert [change.kind for change in found] == ["fails"]
    assert found == find_changes(index, index.spreads, order)
    with monkeypatch.context() as patch:
        patch.setattr("ivhl.tracker.changes.regressions.find_changes", None)
        for _ in range(2):
            again = open_index(tmp_path)
            assert changes_of(again, again.spreads, order) == found
        questions: tuple[Callable[[], object], ...] = (
            lambda: changes_of(again, again.spreads, order[1:]),
            lambda: changes_of(again, again.spreads, order, ["torch"]),
            lambda: changes_of(again, again.spreads, order, wanted=lambda e: e.commit != order[0]),
            lambda: changes_of(again, Spreads(), order),
        )
        for another in questions:
            with pytest.raises(TypeError):  # is searched
                another()


@pytest.mark.parametrize(
    "change",
    [
        lambda results: write_records(results, at(4)),
        lambda results: write_records(results, at(3, recorded_at="2026-12-01T00:00:00+00:00")),
        lambda results: records_at(results, 3).unlink(),
    ],
)
def test_what_changed_is_searched_again_after_any_change_of_a_record(
    tmp_path: Path, change: Callable[[Path], object]
) -> None:
    write_records(tmp_path, *commits(4))
    order = [at(n).commit for n in range(9)]
    index = open_index(tmp_path)
    changes_of(index, index.spreads, order)
    change(tmp_path)
    now = open_index(tmp_path)
    assert changes_of(now, now.spreads, order) == find_changes(now, now.spreads, order)


def test_a_process_with_earlier_records_keeps_no_answer_for_later_ones(tmp_path: Path) -> None:
    write_records(tmp_path, at(0))
    earlier = open_index(tmp_path)
    write_records(tmp_path, at(1))
    later = open_index(tmp_path)
    earlier.keep({"how many": 1})
    assert later.answer("how many") is None
    assert earlier.answer("how many") == 1


def test_an_answer_of_other_code_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_records(tmp_path, at(0))
    index = open_index(tmp_path)
    index.keep({"lasting": [1, 2]}, lasts=True)
    assert open_index(tmp_path).answer("lasting", lasts=True) == [1, 2]
    monkeypatch.setattr("ivhl.tracker.store.index.code_version", lambda: "0" * 64)
    assert index.answer("lasting", lasts=True) is None


def test_an_index_in_a_folder_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_records(tmp_path, *RECORDS)
    open_index(tmp_path).close()
    before = index_file(tmp_path).read_bytes()
    monkeypatch.setattr("os.getuid", lambda: tmp_path.stat().st_uid + 1)
    assert open_index(tmp_path).place is None
    same_as_records(tmp_path)
    assert index_file(tmp_path).read_bytes() == before


def test_only_the_user_may_write_into_the_folder_of_indexes(tmp_path: Path) -> None:
    write_records(tmp_path, *RECORDS)
    folder = index_file(tmp_path).parent
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)
    open_index(tmp_path).close()
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_link_in_the_place_of_an_index_is_not_followed(tmp_path: Path) -> None:
    write_records(tmp_path / "results", *RECORDS)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"kept")
    index_file(tmp_path / "results").parent.mkdir(parents=True, exist_ok=True)
    index_file(tmp_path / "results").symlink_to(elsewhere)
    same_as_records(tmp_path / "results")
    assert elsewhere.read_bytes() == b"kept"


def test_a_record_of_a_row_is_read_with_the_others_of_its_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two in each of two files.
    records = [at(0, workload=f"ops.w{n}", commit=f"{n % 2}" * 40) for n in range(4)]
    write_records(tmp_path, *records)
    open_index(tmp_path).close()
    parsed: list[bytes] = []

    def count(line: bytes) -> RunRecord:
        parsed.append(line)
        return read_record(line)

    monkeypatch.setattr("ivhl.tracker.store.index.read_record", count)
    first, *_ = found = open_index(tmp_path).newest()
    assert parsed == []
    assert first.record in records
    assert len(parsed) == 2
    assert sorted(map(to_json, (one.record for one in found))) == sorted(map(to_json, records))
    assert len(parsed) == len(records)
