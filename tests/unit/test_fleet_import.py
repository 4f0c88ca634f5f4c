"""``ivhl import`` checks each record and imports it once, in any order, without loss."""

from __future__ import annotations

import hashlib
import json
import resource
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from ivhl.asv.files import OwnSuite, write_foreign, write_places
from ivhl.cli import app
from ivhl.cli.imports import RefusedError
from ivhl.errors import ResultsError, SpecError
from ivhl.fleet.bring import MOST_NEW_MACHINES, Imported, import_records, merge_records
from ivhl.measure.alone import only_run_here
from ivhl.observatory.record import to_line
from ivhl.records.files import append_record, record_file, write_whole
from ivhl.records.record import RecordedObservation, Wheel, to_json
from studies.schemas import SCHEMAS
from studies.stored import load_records
from tests.builders.fleet import (
    a_record,
    commit,
    lock_file,
    machine,
    make_fleet_project,
    on_gpu,
    tree,
    write_records,
)
from tests.builders.observatory import VERDICTS, make_observed
from tests.builders.project import git
from tests.builders.records import UNSEEN, make_failure, make_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ivhl.records.record import RunRecord

HERE = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("once")
    make_fleet_project(folder)
    return folder


@pytest.fixture
def root(made_once: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made_once, tmp_path / "project")


def offer(root: Path, *records: RunRecord) -> Path:
    """Return a file with the records."""
    path = root.parent / "offered.jsonl"
    path.write_text("".join(to_json(record) + "\n" for record in records))
    return path


def take(root: Path, *records: RunRecord) -> Imported:
    return import_records(root, [offer(root, *records)], root / "results")


def test_an_import_writes_records_and_the_machine(root: Path) -> None:
    done = take(root, a_record(root), a_record(root, variant="b", speedup=3.0))
    assert done.refused == ()
    assert done.new.total() == 2
    head = a_record(root).commit
    assert sorted(tree(root / "results")) == [
        "box/machine.json",
        f"box/records/{head[:8]}-py3.12-torch2.6.0.jsonl",
    ]


@contextmanager
def only_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def test_importing_again_changes_nothing(root: Path) -> None:
    take(root, a_record(root))
    before = tree(root / "results")
    again = take(root, a_record(root), a_record(root))
    assert (again.new.total(), again.had.total()) == (0, 2)
    assert tree(root / "results") == before


def test_the_order_of_files_does_not_matter(root: Path) -> None:
    records = [
        *(a_record(root, minute=n, speedup=1.0 + n) for n in range(4)),
        a_record(root, minute=2, workload="ops.two", torch="2.5.1"),
        a_record(root, minute=3, existing=True, torch="2.9.1"),
        on_gpu(a_record(root, minute=1, workload="ops.three", variant="gpu")),
        replace(make_failure("crash"), **about(a_record(root, minute=5, variant="b"))),
    ]
    sources = [
        offer(root, record).rename(root.parent / f"{n}.jsonl") for n, record in enumerate(records)
    ]
    trees: list[dict[str, bytes]] = []
    for order in ((0, 1, 2, 3, 4, 5, 6, 7), (7, 3, 6, 2, 5, 1, 4, 0)):
        shuffled = [sources[n] for n in order]
        results = root.parent / f"results-{len(trees)}"
        for n in range(0, len(shuffled), 4):
            assert import_records(root, shuffled[n : n + 4], results).refused == ()
        trees.append(tree(results))
    assert trees[0] == trees[1]
    loaded = load_records(root.parent / "results-0")
    (newest,) = [
        r
        for r in loaded.records
        if r.workload == "ops.one" and r.variant == "a" and r.cell.torch == "2.6.0"
    ]
    assert newest.recorded_at.endswith("12:03:00+00:00")


def about(record: RunRecord) -> dict[str, Any]:
    """Return the fields that place a record in the project, to set them in another record."""
    names = "project commit cell machine workload workload_version size variant recorded_at"
    return {name: getattr(record, name) for name in names.split()}


@settings(max_examples=40, deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=5),
    own=st.lists(st.integers(0, 9), max_size=3, unique=True),
)
def test_any_split_into_imports_gives_the_same_file(
    batches: list[list[int]], own: list[int]
) -> None:
    """Importing is a union: the result depends only on the set of records."""
    kinds = [
        make_record(speedup=1.0 + n, recorded_at=f"2026-11-20T12:00:0{n // 2}+00:00")
        for n in range(10)
    ]
    with only_folder() as folder:
        path, other = folder / "a.jsonl", folder / "b.jsonl"
        for n in own:
            append_record(path, kinds[n])
        for batch in batches:
            merge_records(path, [kinds[n] for n in batch])
        every = {*own, *(n for batch in batches for n in batch)}
        merge_records(other, [kinds[n] for n in sorted(every, reverse=True)])
        if every - set(own):
            assert path.read_bytes() == other.read_bytes()
        lines = path.read_text().splitlines() if path.exists() else []
        assert sorted(lines) == sorted(to_json(kinds[n]) for n in every)


def test_unreadable_lines_in_the_results_are_kept(root: Path) -> None:
    record = a_record(root)
    path = record_file(root / "results", "box", record.commit, record.cell.id)
    append_record(path, a_record(root, minute=1))
    with path.open("a") as file:
        file.write('{"cut off')
    take(root, record)
    assert sorted(path.read_text().splitlines()) == sorted(
        ['{"cut off', to_json(a_record(root, minute=1)), to_json(record)]
    )


def changed(record: RunRecord, place: str, value: Any) -> RunRecord:  # noqa: ANN401
    """Return the record with another value in a field, e.g. ``machine.name``."""
    field, _, inner = place.partition(".")
    if inner:
        value = replace(getattr(record, field), **{inner: value})
    changes: dict[str, Any] = {field: value}
    return replace(record, **changes)


def told(check: str = "load", seen: str = "0.10 in the last minute") -> RecordedObservation:
    return RecordedObservation(check=check, level="ok", seen=seen)


def wheel(**changes: Any) -> Wheel:  # noqa: ANN401  (any field)
    record = Wheel(
        name="torch", version="2.6.0", build="1", tags=("any",), record_sha256="ab" * 32
    )
    return replace(record, **changes)


# Texts of a record that asv's files repeat, which asv's own pages show as they are.
_IN_ASVS_FILES = (
    *("machine.name", "machine.cpu", "machine.system", "conditions.device"),
    *("cell.python", "cell.torch", "size", "variant"),
)
# Field, value, part of the rule, part of the hint.
WRONG: list[tuple[str, Any, str, str]] = [
    ("commit", "f" * 40, "commit: must be in this repository", "git fetch"),
    ("commit", "0" * 40, "(got 0000000000", "--commit"),
    ("commit", "../../etc", "commit: must be 40 or 64 hex digits", "ivhl"),
    (
        "cell.lock_sha256",
        "ab" * 32,
        "must be the hash of a committed lock of py3.12-torch2.6.0",
        "envs/locks/py3.12-torch2.6.0.txt",
    ),
    ("cell.id", "../../up", "cell.id: must follow from", "ivhl"),
    ("cell.torch", "2/../..", "cell.torch: must be a version", "ivhl"),
    ("workload", "ops.none", "workload: must be a workload of this project", "check out"),
    ("workload_version", 3, "must be at most 2, the version of ops.one", "raised it"),
    ("workload_version", 0, "workload_version: must be at least 1", "ivhl"),
    ("project", "other", "project: must be 'demo'", "clone of its own"),
    ("machine.name", "../up", "machine.name: must have at most", "ivhl"),
    ("machine.name", ".x", "machine.name: must have at most", "ivhl"),
    ("machine.name", "x" * 101, "at most 100", "ivhl"),
    ("machine.system", " ", "machine.system: must be a short text", "ivhl"),
    ("machine.cpu", "x" * 300, "machine.cpu: must be a short text", "ivhl"),
    ("machine.memory_bytes", 10**4000, "machine.memory_bytes: must be from 0 to 1e+18", "ivhl"),
    ("machine.n_cpus", -1, "machine.n_cpus: must be from 0", "ivhl"),
    ("conditions.device", "TPU 5", "conditions.device: must be cpu, or another", "ivhl"),
    ("conditions.image", "latest", "conditions.image: must be sha256: and 64 hex digits", "ivhl"),
    ("conditions.instrument", "the new one", "must be a version or a digest", "ivhl"),
    ("sources", "none", "sources: must be 64 hex digits", "ivhl"),
    ("conditions.wheels", (wheel(name="\x1b[2J"),), "wheels.0.name: must be a short", "ivhl"),
    ("conditions.wheels", (wheel(version=" "),), "wheels.0.version: must be a short", "ivhl"),
    ("conditions.wheels", (wheel(build="\n"),), "wheels.0.build: must be a short text", "ivhl"),
    (
        "conditions.wheels",
        (wheel(tags=("x",) * 51),),
        "wheels.0.tags: must have at most 50 parts (got 51)",
        "ivhl",
    ),
    ("conditions.wheels", (wheel(record_sha256="x"),), "record_sha256: must be 64 hex", "ivhl"),
    ("conditions.wheels", (wheel(),) * 21, "must have at most 20 parts (got 21)", "ivhl"),
    (
        "conditions.stability",
        (told(seen="x" * 1001),),
        "stability.0.seen: must be one line",
        "ivhl",
    ),
    (
        "conditions.stability",
        (told(seen="\x1b[2J"),),
        "stability.0.seen: must be one line",
        "ivhl",
    ),
    (
        "conditions.stability",
        (told(), told(check=" ")),
        "stability.1.check: must be one line",
        "ivhl",
    ),
    ("conditions.stability", (told(),) * 201, "must have at most 200 parts (got 201)", "ivhl"),
    ("conditions.device", "cuda \x1b[2J", "conditions.device: must be cpu", "ivhl"),
    ("memory.compiled_peak", 10**400, "memory.compiled_peak: must be from 0", "ivhl"),
    ("compile.cold_s", -1.0, "compile.cold_s: must be from 0 to 1e+09", "ivhl"),
    ("variant", "a/b", "variant: must be a name", "ivhl"),
    ("size", "a\x1b[2J", "size: must be a name", "ivhl"),
    ("recorded_at", "tomorrow", "recorded_at: must be UTC to the second", "ivhl"),
    ("recorded_at", "2026-11-20T12:00:00+01:00", "recorded_at: must be UTC", "ivhl"),
    ("speedup.low", 0.0, "speedup: must be positive", "ivhl"),
    ("speedup.low", 1e-320, "speedup.low: must be 0, or from 1e-75", "ivhl"),
    ("speedup.value", 99.0, "speedup: must be positive and inside its interval", "ivhl"),
    ("compiled", None, "compiled: required if", "ivhl"),
    ("compile", None, "compile: required if", "ivhl"),
    ("eager.samples_s", (), "eager.samples_s: must hold positive", "ivhl"),
    ("eager.samples_s", (1e308, 1e308), "eager.samples_s: must hold positive", "ivhl"),
    ("duration_s", -1.0, "duration_s: must be from 0 to 1e+09", "ivhl"),
    *(
        (place, f"{'cuda ' * (place == 'conditions.device')}x{sign}y", f"{place}: must", "ivhl")
        for place in _IN_ASVS_FILES
        for sign in UNSEEN
    ),
]


def test_each_record_is_checked_alone_and_the_others_are_imported(root: Path) -> None:
    good = [a_record(root), a_record(root, torch="2.5.1")]
    records = [changed(good[0], place, value) for place, value, *_ in WRONG]
    bare = replace(good[0].conditions, packages=())
    records.append(a_record(root, existing=True, conditions=bare))
    lock = good[1].cell.lock_sha256
    records.append(changed(good[0], "cell.lock_sha256", lock))
    reasons = [(told, hint) for *_, told, hint in WRONG]
    reasons.append(("conditions.packages: must list the packages", "ivhl"))
    reasons.append(
        ("must be the hash of a committed lock of py3.12-torch2.6.0", "fetch the branch")
    )
    done = take(root, good[0], *records, good[1])
    assert done.new.total() == 2
    refused = {int(one.place.rpartition("offered.jsonl:")[2]): one for one in done.refused}
    assert len(refused) == len(done.refused) == len(reasons)
    numbered = list(enumerate(reasons, 2))
    assert [
        (told, refused[n].rule) for n, (told, _) in numbered if told not in refused[n].rule
    ] == []
    for n, (_, hint) in numbered:
        assert hint in refused[n].hint
        assert refused[n].rule.isprintable()
    assert {path.name for path in root.parent.iterdir()} == {"project", "offered.jsonl"}
    assert {path.name for path in (root / "results").iterdir()} == {"box"}
    assert len(load_records(root / "results").records) == 2


def test_a_record_with_image_stability_and_wheels_is_imported(root: Path) -> None:
    here = a_record(root)
    image = f"sha256:{'a' * 64}"
    record = replace(
        here,
        sources="cd" * 32,
        conditions=replace(
            here.conditions,
            image=image,
            stability=(told(),) * 200,
            wheels=(wheel(), wheel(name="triton", build=None, tags=(), record_sha256=None)),
            gil=True,
        ),
    )
    done = take(root, record)
    assert (done.new.total(), done.refused) == (1, ())
    assert load_records(root / "results").records == (record,)


def test_a_record_of_the_observatory_is_refused_with_its_place(root: Path) -> None:
    path = root.parent / "timm.jsonl"
    path.write_text(to_line(make_observed(**VERDICTS["works"])) + "\n")
    (refused,) = import_records(root, [path], root / "results").refused
    assert refused.rule == "is a record of the observatory"
    assert "observatory/records" in refused.hint


def test_a_newer_schema_is_refused_with_the_advice_to_update(root: Path) -> None:
    newer = to_json(a_record(root)).replace("ivhl.run/5", "ivhl.run/12")
    path = offer(root, a_record(root))
    path.write_text(path.read_text() + newer + "\n" + '{"schema": "\x1b[31m"}\n{"cut\n[[[\n')
    done = import_records(root, [path], root / "results")
    assert done.new.total() == 1
    first, *others = done.refused
    assert first.rule == "schema: must be 'ivhl.run/5' or older (got 'ivhl.run/12')"
    assert "update ivhl" in first.hint
    assert all("copy the file again" in one.hint and one.rule.isprintable() for one in others)
    assert len(others) == 3


def test_a_lock_of_an_earlier_commit_is_known(root: Path) -> None:
    old = a_record(root)
    lock_file(root, "3.12", "2.6.0").write_text("torch==2.6.0\n# again\n")
    commit(root, "new lock")
    assert take(root, old, a_record(root)).refused == ()


def test_a_lock_that_a_merge_dropped_is_known(root: Path) -> None:
    git(root, "checkout", "-q", "-b", "side")
    lock_file(root, "3.12", "2.6.0").write_text("torch==2.6.0\n# of the branch\n")
    commit(root, "new lock")
    measured = a_record(root)
    git(root, "checkout", "-q", "main")
    commit(root, "meanwhile")
    git(root, "merge", "-q", "-s", "ours", "-m", "merge, without its lock", "side")
    git(root, "branch", "-q", "-D", "side")
    assert take(root, measured).refused == ()


def test_the_statement_of_an_unavailable_cell_counts_as_its_lock(root: Path) -> None:
    path = lock_file(root, "3.13", "2.4.1").with_suffix(".unavailable.txt")
    path.write_text("no wheels\n")
    commit(root, "unavailable")
    made = a_record(root, python="3.13", torch="2.4.1")
    sha = hashlib.sha256(path.read_bytes()).hexdigest()
    failed = replace(make_failure("unavailable", phase="environment"), **about(made))
    assert take(root, replace(failed, cell=replace(made.cell, lock_sha256=sha))).refused == ()


def test_a_retired_workload_with_records_is_known(root: Path) -> None:
    gone = a_record(root, workload="ops.gone")
    assert len(take(root, gone).refused) == 1
    write_records(root / "results", gone)
    assert take(root, a_record(root, minute=1, workload="ops.gone")).refused == ()


def test_a_name_belongs_to_one_machine(root: Path) -> None:
    take(root, a_record(root))
    other = a_record(root, machine=machine("box", "Another CPU"), variant="b")
    done = take(root, other, a_record(root, minute=1))
    assert done.new.total() == 1
    (refused,) = done.refused
    assert "machine 'box' here is another machine" in refused.rule
    assert "cpu 'A CPU' there, 'Another CPU' here" in refused.rule
    assert "--machine" in refused.hint


def test_an_import_takes_50_new_machines_and_says_how_to_get_the_others(root: Path) -> None:
    """Whoever can invent records can invent names; each machine has pages of its own."""
    names = [f"box{number:03d}" for number in range(MOST_NEW_MACHINES + 3)]
    records = [a_record(root, name) for name in (*reversed(names), names[-1])]
    take(root, a_record(root, "known"))
    first = take(root, a_record(root, "known", minute=1), *records)
    assert first.new.total() == MOST_NEW_MACHINES + 1
    (refused,) = first.refused
    assert refused.place == "3 machines, box050 to box052"
    assert "an import takes 50 new machines, in order of their names" in refused.rule
    assert "import the same files again" in refused.hint
    assert not (root / "results" / "box050").exists()
    again = take(root, *records)
    assert (again.new.total(), again.refused) == (3, ())


def test_a_file_that_would_be_over_a_limit_ends_no_import_of_others(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(root, a_record(root, "box"))
    (path,) = (root / "results/box/records").iterdir()
    before = path.read_bytes()
    monkeypatch.setattr("ivhl.records.lines.LARGEST", 2 * len(before))
    more = [a_record(root, "box", minute=minute) for minute in (1, 2)]
    done = take(root, *more, a_record(root, "other"))
    assert done.new.total() == 1
    (refused,) = done.refused
    assert refused.place.startswith("2 records from ")
    assert "would be no file of records any more" in refused.rule
    assert path.read_bytes() == before
    assert (root / "results/other/machine.json").is_file()


def test_the_oldest_record_describes_a_new_machine(root: Path) -> None:
    late = a_record(root, minute=9, machine=machine("box", "Another CPU"))
    for records in ([late, a_record(root)], [a_record(root), late]):
        done = take(root, *records)
        assert "'A CPU' there, 'Another CPU' here" in done.refused[0].rule
        (root / "results" / "box" / "machine.json").unlink()


def test_a_machine_name_that_is_a_file_or_link_is_refused(root: Path) -> None:
    (root / "results").mkdir()
    (root / "elsewhere").mkdir()
    (root / "results" / "box").symlink_to(root / "elsewhere")
    (root / "results" / "benchmarks.json").write_text('{"version": 2}')
    done = take(root, a_record(root), a_record(root, "benchmarks.json"), a_record(root, "good"))
    assert [one.rule.partition(":")[0] for one in done.refused] == ["machine.name"] * 2
    assert list((root / "elsewhere").iterdir()) == []
    assert done.new.total() == 1


def test_an_existing_environment_and_a_gpu_have_separate_files_of_asv(root: Path) -> None:
    locked, bare = a_record(root), a_record(root, existing=True, torch="2.9.1")
    gpu = on_gpu(a_record(root, minute=1, workload="ops.three", variant="gpu"))
    assert take(root, locked, bare, gpu).refused == ()
    view = root.parent / "view"
    write_foreign(root / "results", view)
    write_places(root, view, OwnSuite(load_records(root / "results").records, ()))
    found = {path.stem.split("-", 1)[1] for path in view.glob("box/*-*.json")}
    assert found == {"ivhl-3.12-cpu-locked", "ivhl-3.12-cpu-existing", "ivhl-3.12-cuda-locked"}


@contextmanager
def disk_of(size: int) -> Iterator[None]:
    """Limit the size of files, so that writing fails as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_changes_no_file_and_gives_a_hint(root: Path) -> None:
    take(root, a_record(root))
    before = tree(root / "results")
    path = offer(root, *(a_record(root, minute=n) for n in range(1, 9)))
    with (
        disk_of(6000),
        pytest.raises(ResultsError, match="cannot be written: File too large") as full,
    ):
        import_records(root, [path], root / "results")
    assert "run the same command again" in full.value.hint
    assert tree(root / "results") == before
    assert import_records(root, [path], root / "results").new.total() == 8


@pytest.mark.parametrize("killed_at", [0, 2, 4])
def test_after_a_kill_the_same_command_completes_the_import(
    root: Path, monkeypatch: pytest.MonkeyPatch, killed_at: int
) -> None:
    path = offer(root, a_record(root), a_record(root, torch="2.5.1"), a_record(root, "other"))
    import_records(root, [path], root.parent / "whole")
    left = killed_at

    def replace_or_die(self: Path, target: Path) -> Path:
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1
        return rename(self, target)

    rename = Path.rename
    monkeypatch.setattr(Path, "replace", replace_or_die)
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)  # who is killed clears nothing away
    with pytest.raises(KeyboardInterrupt):
        import_records(root, [path], root / "results")
    monkeypatch.undo()
    assert any(".part" in name for name in tree(root / "results"))
    (root / "results" / "other" / "records").mkdir(parents=True, exist_ok=True)
    (root / "results" / "other" / "records" / ".ivhl-import-earlier.jsonl.part").write_text("{")
    import_records(root, [path], root / "results")
    assert tree(root / "results") == tree(root.parent / "whole")


def test_a_file_is_written_only_if_it_changes(tmp_path: Path) -> None:
    assert write_whole(tmp_path / "a", b"1", tmp_path)
    assert not write_whole(tmp_path / "a", b"1", tmp_path)
    assert write_whole(tmp_path / "a", b"2", tmp_path)
    with pytest.raises(ResultsError, match="cannot be written"):
        write_whole(tmp_path / "a" / "b", b"", tmp_path)


def test_an_import_during_a_run_is_refused(root: Path) -> None:
    path = offer(root, a_record(root))
    with only_run_here(root), pytest.raises(ResultsError, match="another run is measuring"):
        import_records(root, [path], root / "results")
    assert not list((root / "results").iterdir())


def test_a_folder_without_git_is_an_error(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = a_record(root)
    (root / ".git").rename(root.parent / "git")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(root.parent))
    with pytest.raises(SpecError, match="is in no git repository"):
        take(root, record)


def test_the_command_imports_paths_and_returns_an_exit_code(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    sent = root.parent / "artifact"
    (sent / "box").mkdir(parents=True)
    good, bad = to_json(a_record(root)), to_json(a_record(root, workload="ops.none"))
    (sent / "box" / "x.jsonl").write_text(f"{good}\n{bad}\n{bad}\n", encoding="utf-8")
    (sent / "up.jsonl").symlink_to(sent / "box" / "x.jsonl")
    run = CliRunner().invoke
    with pytest.raises(RefusedError, match="3 refused; all others were imported") as error:
        run(app, ["import", str(sent)], catch_exceptions=False)
    assert error.value.exit_code == 6
    monkeypatch.setattr("ivhl.cli.imports.RefusedError", lambda *_, **__: SystemExit(6))
    said = run(app, ["import", str(sent)])
    assert said.exit_code == 6
    text = " ".join(said.stdout.split())
    assert "box cpu" in text
    assert "0 new records, 1 already present" in text
    assert text.count("workload: must be a workload of this project (got 'ops.none')") == 1
    assert "up.jsonl" in text
    printed = run(app, ["import", "--json", str(offer(root, a_record(root)))]).stdout
    SCHEMAS["import"].validate_json(printed)
    told = json.loads(printed)
    assert told["batches"][0]["had"] == 1
    assert told["refused"] == []


def test_an_import_without_a_record_says_that_nothing_was_imported(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    (empty := root.parent / "nothing").mkdir()
    done = CliRunner().invoke(app, ["import", str(empty)])
    assert str(done.exception) == "1 refused; nothing was imported"
