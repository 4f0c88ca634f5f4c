"""Records are read, the latest of each key wins, and unreadable lines are named."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ivhl.git import commit_order
from ivhl.records.answers import newest_keys, newest_of_other_commits
from ivhl.records.files import append_record, record_file
from ivhl.records.identity import case_of, key_of
from ivhl.records.reader import read_record
from ivhl.records.record import RunRecord, to_json
from ivhl.tracker.store.records import device_type, is_existing
from studies.stored import Loaded, latest_per_case, load_records
from tests.builders.records import COMMIT, make_failure, make_record, verdict

if TYPE_CHECKING:
    import random
    from pathlib import Path

OTHER_COMMIT = "f" * 40


def write(results: Path, *records: RunRecord) -> Path:
    path = results
    for record in records:
        path = record_file(results, record.machine.name, record.commit, record.cell.id)
        append_record(path, record)
    return path


def test_every_field_survives_writing_and_reading(tmp_path: Path) -> None:
    records = (make_record(), make_failure(python="3.13"))
    write(tmp_path, *records)
    assert load_records(tmp_path) == Loaded(records=records, problems=())


def test_a_missing_folder_has_no_records(tmp_path: Path) -> None:
    assert load_records(tmp_path / "nothing") == Loaded(records=(), problems=())


def test_the_later_line_of_a_key_wins_whatever_its_time(tmp_path: Path) -> None:
    first = make_record(speedup=2.0)
    second = make_failure(recorded_at="2020-01-01T00:00:00+00:00")
    write(tmp_path, first, second)
    assert load_records(tmp_path).records == (second,)


def test_the_later_time_wins_between_files(tmp_path: Path) -> None:
    early = make_record(recorded_at="2026-11-01T12:00:00+00:00")
    late = make_record(recorded_at="2026-11-01T13:00:00+00:00", speedup=3.0)
    append_record(tmp_path / "bench/records/a.jsonl", late)
    append_record(tmp_path / "bench/records/b.jsonl", early)
    assert load_records(tmp_path).records == (late,)


def test_the_two_devices_of_a_machine_do_not_replace_each_other(tmp_path: Path) -> None:
    on_cpu = make_record()
    conditions = replace(on_cpu.conditions, device="cuda NVIDIA H200", clock="cuda_event")
    on_cuda = replace(on_cpu, conditions=conditions)
    write(tmp_path, on_cpu, on_cuda)
    loaded = load_records(tmp_path).records
    assert [device_type(record) for record in loaded] == ["cpu", "cuda"]


def test_an_unreadable_line_is_named_and_the_others_load(tmp_path: Path) -> None:
    path = write(tmp_path, make_record(), make_record(size="medium"))
    lines = path.read_bytes().splitlines(keepends=True)
    wrong = json.loads(lines[0])
    wrong["cell"]["python"] = 3.12
    unknown = json.loads(lines[0]) | {"schema": "ivhl.run/9"}
    both = json.loads(lines[0])
    both["speedup"] = None
    not_finite = lines[0].replace(b'"duration_s":31.0', b'"duration_s":NaN')
    bad = [lines[0][:40] + b"\n", b"\xff\xfe\n", not_finite]
    bad += [json.dumps(item).encode() + b"\n" for item in (wrong, unknown, both)]
    path.write_bytes(lines[0] + b"".join(bad) + b"\n" + lines[1])

    loaded = load_records(tmp_path)

    assert [record.size for record in loaded.records] == ["medium", "small"]
    assert [problem.line for problem in loaded.problems] == [2, 3, 4, 5, 6, 7]
    texts = [str(problem) for problem in loaded.problems]
    assert texts[0].startswith(f"{path}:2: must be JSON")
    assert texts[2] == f"{path}:4: duration_s: must be from 0 to 1e+09 (got nan)"
    assert "cell.python: must be a text (got 3.12)" in texts[3]
    assert texts[4] == (
        f"{path}:6: schema: must be 'ivhl.run/5' or older (got 'ivhl.run/9'); "
        "a newer ivhl wrote it: update ivhl"
    )
    assert "a record has either a speedup or a failure" in texts[5]


def test_an_unreadable_file_is_named_and_the_others_load(tmp_path: Path) -> None:
    write(tmp_path, make_record())
    folder = tmp_path / "bench/records/not-a-file.jsonl"
    folder.mkdir()
    loaded = load_records(tmp_path)
    assert len(loaded.records) == 1
    assert [(p.path, p.line) for p in loaded.problems] == [(folder, None)]


def test_a_truncated_line_loses_only_itself(tmp_path: Path) -> None:
    path = write(tmp_path, make_record())
    with path.open("ab") as file:
        file.write(to_json(make_record(size="medium")).encode()[:-30])
    write(tmp_path, make_record(size="large"))
    loaded = load_records(tmp_path)
    assert [record.size for record in loaded.records] == ["large", "small"]
    assert len(loaded.problems) == 1


RECORDS = st.builds(
    make_record,
    python=st.sampled_from(["3.12", "3.13"]),
    size=st.sampled_from(["small", "medium"]),
    commit=st.sampled_from([COMMIT, OTHER_COMMIT]),
    recorded_at=st.integers(10, 59).map(lambda s: f"2026-11-01T12:00:{s}+00:00"),
    duration_s=st.floats(0, 1e6),
)


@given(st.lists(RECORDS, max_size=12), st.randoms(use_true_random=False))
def test_latest_per_case_does_not_depend_on_the_order(
    records: list[RunRecord], rng: random.Random
) -> None:
    # one record per key, as load_records leaves them
    unique = list({key_of(record): record for record in records}.values())
    shuffled = rng.sample(unique, len(unique))
    order = (COMMIT, OTHER_COMMIT)
    assert latest_per_case(unique, order) == latest_per_case(shuffled, order)


@given(st.lists(RECORDS, max_size=12))
def test_the_last_commit_wins_whatever_its_time(records: list[RunRecord]) -> None:
    unique = list({key_of(record): record for record in records}.values())
    for record in latest_per_case(unique, (COMMIT, OTHER_COMMIT)):
        rivals = [r for r in unique if (r.cell, r.size) == (record.cell, record.size)]
        newest = OTHER_COMMIT if any(r.commit == OTHER_COMMIT for r in rivals) else COMMIT
        assert record.commit == newest


def test_without_an_order_of_commits_time_decides() -> None:
    old = make_record(commit=COMMIT, recorded_at="2026-11-02T00:00:00+00:00")
    new = make_record(commit=OTHER_COMMIT, recorded_at="2026-11-03T00:00:00+00:00")
    assert latest_per_case([new, old]) == (new,)
    assert latest_per_case([new, old], (OTHER_COMMIT, COMMIT)) == (old,)


def test_older_versions_of_a_workload_are_left_out() -> None:
    old = make_record(commit=OTHER_COMMIT, python="3.13")
    new = make_record(workload_version=2)
    assert latest_per_case([old, new], (COMMIT, OTHER_COMMIT)) == (new,)


def test_commit_order_is_oldest_first_and_empty_without_git(tmp_path: Path) -> None:
    assert commit_order(tmp_path / "missing") == ()
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for name in ("one", "two"):
        subprocess.run(
            [*git, "commit", "-q", "--allow-empty", "-m", name], cwd=tmp_path, check=True
        )
    log = subprocess.run(
        ["git", "log", "--format=%H"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert commit_order(tmp_path) == tuple(reversed(log.stdout.split()))


def test_an_existing_environment_does_not_replace_a_locked_cell(tmp_path: Path) -> None:
    locked = make_record()
    bare = replace(locked, cell=replace(locked.cell, lock_sha256=None))
    write(tmp_path, locked, bare)
    loaded = load_records(tmp_path)
    assert [is_existing(record) for record in loaded.records] == [False, True]
    assert len(latest_per_case(loaded.records)) == 2


def test_a_record_of_2099_answers_for_no_case_of_today(tmp_path: Path) -> None:
    """In a cell, as everywhere else."""
    now = make_record(commit="a" * 40, sources="a" * 64, recorded_at="2026-11-20T00:00:00+00:00")
    later = replace(now, commit="b" * 40, recorded_at="2099-01-01T00:00:00+00:00")
    folder = tmp_path / "bench" / "records"
    for record in (now, later):
        append_record(record_file(tmp_path, "bench", record.commit, record.cell.id), record)
    (made,) = newest_keys(record_file(tmp_path, "bench", now.commit, now.cell.id)).values()
    (found,) = newest_of_other_commits(folder, made[:-1]).values()
    assert found.commit == now.commit


def test_a_verdict_answers_no_request_for_timing_and_a_full_record_answers_both(
    tmp_path: Path,
) -> None:
    full = make_record(sources="a" * 64)
    asked = verdict(full)
    assert read_record(to_json(asked).encode()) == asked
    path = write(tmp_path, asked)
    assert newest_keys(path) == {}
    (made,) = newest_keys(path, timed=False).values()
    assert newest_of_other_commits(path.parent, made[:-1]) == {}
    assert [*newest_of_other_commits(path.parent, made[:-1], timed=False).values()] == [asked]
    write(tmp_path, full)
    assert (
        newest_keys(path) == newest_keys(path, timed=False) == {(case_of(full).case, "cpu"): made}
    )
    assert load_records(tmp_path).records == (full,)


def test_a_record_that_was_timed_has_a_speedup_or_a_failure() -> None:
    with pytest.raises(ValueError, match="either a speedup or a failure"):
        replace(verdict(make_record()), conditions=make_record().conditions)
    with pytest.raises(ValueError, match="either a speedup or a failure"):
        replace(verdict(make_failure()), speedup=make_record().speedup)
