"""A record is measured again in its own environment, and judged by what equal runs differ by."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from ivhl.bench.repetition import check_repeatable, install_lock, recorded_lock, repeat
from ivhl.cli import app
from ivhl.errors import IvhlError, LockError, ResultsError, SpecError, UnknownNameError
from ivhl.machine.identity import this_machine
from ivhl.matrix.locks import ensure_lock, write_missing_sums
from ivhl.matrix.spec import CellSpec, load_matrix
from ivhl.records.files import append_record
from ivhl.tracker.changes.repetition import judge_repetition
from studies.schemas import SCHEMAS
from tests.builders.fleet import (
    a_record,
    commit,
    lock_file,
    make_fleet_project,
    write_records,
)
from tests.builders.project import git, make_commits
from tests.builders.records import Known, make_failure, make_record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typer.testing import Result

    from ivhl.bench.repetition import Repeated
    from ivhl.records.record import Arm, RunRecord

CELL = CellSpec("3.12", "2.6.0")


def times(arm: Arm, factor: float) -> Arm:
    return replace(arm, samples_s=tuple(s * factor for s in arm.samples_s))


def slower(record: RunRecord, factor: float) -> RunRecord:
    assert record.compiled is not None
    assert record.speedup is not None
    value = record.speedup.value / factor
    speedup = replace(record.speedup, value=value, low=value * 0.98, high=value * 1.02)
    return replace(record, compiled=times(record.compiled, factor), speedup=speedup)


def test_two_runs_of_the_same_code_reproduce_each_other() -> None:
    record = make_record()
    found = judge_repetition(record, slower(record, 1.01), Known(0.02))
    assert found.kind == "unchanged"
    assert any("compiled" in line and "1.01x" in line for line in found.beside)


def test_seconds_further_apart_than_equal_runs_do_not_reproduce() -> None:
    record = make_record(width=0.001)
    found = judge_repetition(record, slower(record, 1.5), Known(0.02))
    assert found.kind == "slower"
    assert "speedup and compiled moved" in found.because


def test_noise_that_hides_everything_decides_nothing() -> None:
    record = make_record()
    assert judge_repetition(record, slower(record, 1.1), Known(0.5)).kind == "inconclusive"


def test_where_seconds_are_too_noisy_the_speedup_decides_and_it_is_said() -> None:
    class Uneven(Known):
        """Seconds that repeat far worse than speedups."""

        def of(self, run: Any, metric: Any = "speedup", *, calibrated: bool = False) -> Any:  # noqa: ANN401
            return Known(0.02 if metric == "speedup" else 0.5).of(
                run, metric, calibrated=calibrated
            )

    record = make_record(width=0.001)
    found = judge_repetition(record, slower(record, 1.01), Uneven(0.02))
    assert found.kind == "unchanged"
    assert found.because.endswith("too noisy for the seconds")
    assert judge_repetition(record, slower(record, 1.5), Uneven(0.02)).kind == "slower"


def test_one_graph_break_more_does_not_reproduce() -> None:
    record = make_record()
    assert record.compile is not None
    again = replace(record, compile=replace(record.compile, graph_breaks=()))
    found = judge_repetition(record, again, Known(0.02))
    assert found.kind == "fixed"
    assert "graph break" in found.because


def test_the_same_failure_reproduces_and_another_does_not() -> None:
    gate = make_failure()
    assert judge_repetition(gate, gate, Known(0.02)).kind == "unchanged"
    for other in (
        make_record(),
        make_failure("wrong", "RMSE 3"),
        make_failure(phase="accuracy"),
        make_failure(exception="builtins.TypeError"),
    ):
        found = judge_repetition(gate, other, Known(0.02))
        assert found.kind in ("fails", "fixed")
        assert "Dynamo is not supported" in found.because


def test_benchmarks_that_were_not_committed_are_named_and_not_the_difference_that_they_make() -> (
    None
):
    record = replace(make_record(), sources="5" * 64, benchmark="a" * 64)
    for now in (
        slower(record, 2),
        replace(record, compile=None),
        make_failure("absent", "the commit lacks it"),
    ):
        again = replace(now, sources="5" * 64, benchmark="b" * 64)
        found = judge_repetition(record, again, Known(0.02))
        assert found.kind == "inconclusive"
        assert "uncommitted benchmarks" in found.because
        assert "benchmark aaaaaaaaaaaa before, bbbbbbbbbbbb now" in found.beside


def test_a_second_run_that_was_killed_says_nothing() -> None:
    killed = make_failure("timeout", "still in phase compile after 600 s", exception="")
    found = judge_repetition(make_record(), killed, Known(0.02))
    assert found.kind == "inconclusive"
    assert "still in phase compile" in found.because


def test_seconds_of_another_machine_or_instrument_are_not_compared() -> None:
    record = make_record()
    elsewhere = replace(
        slower(record, 1.5), machine=replace(record.machine, name="other", cpu="Another CPU")
    )
    found = judge_repetition(record, elsewhere, Known(0.001))
    assert found.kind == "unchanged"
    assert "another machine than bench: processor A CPU then, Another CPU now" in found.beside[0]
    old = replace(record, conditions=replace(record.conditions, instrument="4"))
    found = judge_repetition(old, slower(record, 1.5), Known(0.001))
    assert found.kind == "unchanged"
    assert any("instrument version 4 before" in line for line in found.beside)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    make_fleet_project(folder)
    monkeypatch.chdir(folder)
    return folder


def made_here(root: Path, **changes: Any) -> RunRecord:  # noqa: ANN401  (fields of a record)
    """Return a record of this machine: a failure, which repeats without noise."""
    record = a_record(root, **{"machine": this_machine("box"), **changes})
    return replace(record, failure=make_failure().failure, speedup=None)


def leaving(*records: RunRecord) -> Callable[..., None]:
    """Return a run that leaves these records."""

    def measure(tree: Path, arguments: Sequence[str], console: Console) -> None:
        del tree, console
        folder = Path(arguments[arguments.index("--results") + 1])
        for record in records:
            append_record(folder / "box" / "records" / "all.jsonl", record)

    return measure


def again(
    root: Path, record: RunRecord, *left: RunRecord, measure: Callable[..., None] | None = None
) -> Repeated:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ivhl.bench.repetition.run_ivhl", measure or leaving(*left))
        return repeat(root, record, results=root / "results", console=Console(file=StringIO()))


def test_the_recorded_lock_and_matrix_are_used_when_todays_are_others(root: Path) -> None:
    record = made_here(root)
    locked, matrix = lock_file(root, "3.12", "2.6.0"), root / "envs" / "matrix.toml"
    then = locked.read_bytes(), matrix.read_bytes()
    matrix.write_text(matrix.read_text().replace("2026-11-15", "2026-11-16"))
    locked.write_text("# Matrix digest: 0123\n\ntorch==2.6.0\n")
    commit(root, "other locks")
    seen: dict[str, bytes] = {}

    def measure(tree: Path, arguments: Sequence[str], console: Console) -> None:
        seen["lock"] = lock_file(tree, "3.12", "2.6.0").read_bytes()
        seen["matrix"] = (tree / "envs" / "matrix.toml").read_bytes()
        seen["arguments"] = " ".join(arguments).encode()
        leaving(record)(tree, arguments, console)

    found = again(root, record, measure=measure)
    assert (seen["lock"], seen["matrix"]) == then
    assert f"--commit {record.commit}".encode() in seen["arguments"]
    assert "today has another" in found.lock
    assert found.judged.kind == "unchanged"
    assert not found.folder.exists()


def test_a_lock_from_a_later_commit_finds_the_matrix_that_made_it(root: Path) -> None:
    first = made_here(root)
    matrix = root / "envs" / "matrix.toml"
    text = lock_file(root, "3.12", "2.6.0").read_bytes()
    matrix.write_text(matrix.read_text().replace("2026-11-15", "2026-10-01"))
    commit(root, "another day")
    tree = root / ".asv" / "tree"
    (tree / "envs" / "locks").mkdir(parents=True)
    (tree / "envs" / "matrix.toml").write_bytes(matrix.read_bytes())
    # The clone has the hash of its own lock; that of the record was not edited all the same.
    lock_file(tree, "3.12", "2.6.0").write_text("# Matrix digest: 0123\n\ntorch==2.6.0\n")
    write_missing_sums(tree)
    install_lock(root, tree, CELL, text)
    made = ensure_lock(tree, load_matrix(tree / "envs" / "matrix.toml"), CELL)
    assert made.path.read_bytes() == text
    assert "2026-11-15" in (tree / "envs" / "matrix.toml").read_text()
    assert first.cell.lock_sha256


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"commit": "ab" * 20}, SpecError, "git knows no commit"),
        ({"uncommitted": True}, SpecError, "working tree that differed"),
        ({"existing": True}, SpecError, "no lock describes it"),
    ],
)
def test_what_cannot_be_repeated_is_said_in_a_sentence(
    root: Path, change: dict[str, Any], error: type[IvhlError], says: str
) -> None:
    with pytest.raises(error, match=says) as raised:
        again(root, made_here(root, **change))
    assert raised.value.hint


@pytest.mark.parametrize("name", ["HEAD~1", "HEAD", "main", "a-tag"])
def test_what_is_cloned_is_the_commit_that_the_record_names(root: Path, name: str) -> None:
    """Git leads an expression, and the hash of a tag, to another commit than is printed."""
    git(root, "commit", "-q", "--allow-empty", "-m", "more")
    git(root, "tag", "-a", "-m", "a tag", "a-tag", "HEAD~1")
    text = git(root, "rev-parse", name) if name == "a-tag" else name
    with pytest.raises(SpecError, match=f"git knows no commit {text}"):
        again(root, replace(made_here(root), same_as=text))


def test_a_lock_that_no_commit_has_is_named(root: Path) -> None:
    with pytest.raises(LockError, match=r"the lock abababababab of py3\.12-torch2\.6\.0"):
        recorded_lock(root, CELL, "ab" * 32)


def test_a_matrix_that_no_commit_has_is_named(root: Path) -> None:
    tree = root / ".asv" / "tree"
    (tree / "envs" / "locks").mkdir(parents=True)
    (tree / "envs" / "matrix.toml").write_bytes((root / "envs" / "matrix.toml").read_bytes())
    with pytest.raises(LockError, match="has the digest 0123"):
        install_lock(root, tree, CELL, b"# Matrix digest: 0123\n\ntorch==2.6.0\n")


def test_files_that_are_gone_from_the_index_end_it(root: Path) -> None:
    record = made_here(root)
    gone = make_failure(
        "environment", "uv pip sync failed: there is no version of torch==2.6.0",
        phase="environment", exception="",
        **{k: getattr(record, k) for k in ("workload", "variant", "cell", "machine", "commit")},
    )  # fmt: skip
    with pytest.raises(
        LockError, match=r"cannot be made any more: .* no version of torch"
    ) as told:
        again(root, record, gone)
    assert "gone from the index" in told.value.hint


def test_a_run_that_leaves_nothing_is_no_verdict(root: Path) -> None:
    with pytest.raises(ResultsError, match=r"no record of ops\.one/small/a was written"):
        again(root, made_here(root))


@pytest.mark.parametrize("benchmark", ["a" * 64, None])
def test_a_benchmark_that_the_commit_lacks_is_said_to_be_uncommitted(
    root: Path, benchmark: str | None
) -> None:
    def measure(*_: object, **__: object) -> None:
        raise SpecError("ivhl bench ended with status 2: unknown workload 'ops.one'", hint="")

    record = replace(made_here(root), sources="5" * 64, benchmark=benchmark)
    with pytest.raises(SpecError, match="unknown workload") as told:
        again(root, record, measure=measure)
    assert ("was not committed" in (told.value.hint or "")) == (benchmark is not None)


def test_nothing_installed_is_nothing_to_repeat() -> None:
    with pytest.raises(SpecError, match="has no distribution"):
        check_repeatable(make_failure("unavailable", "no wheels"))


def test_the_command_chooses_one_record_or_says_which(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = made_here(root), made_here(root, workload="ops.two")
    write_records(root / "results", one, two)
    monkeypatch.setattr("ivhl.bench.repetition.run_ivhl", leaving(one))

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["repeat", *arguments], catch_exceptions=False)

    with pytest.raises(SpecError, match="case 'ops' is part of 2 names"):
        run("ops")
    with pytest.raises(ResultsError, match=r"2\.5\.1: is in the matrix, but has no record"):
        run("ops.one", "--torch", "2.5.1")
    # What names nothing is no missing record.
    for name, option, value in (
        ("Python", "--python", "9"),
        ("PyTorch release", "--torch", "9.9.9"),
        ("machine", "--machine", "nowhere"),
    ):
        with pytest.raises(UnknownNameError, match=f"unknown {name} '{value}'") as raised:
            run("ops.one", option, value)
        assert raised.value.exit_code == 2
        assert raised.value.hint
    make_commits(root, 1)
    with pytest.raises(ResultsError, match=r"ops\.one has no record of commit "):
        run("ops.one", "--commit", "HEAD")
    with pytest.raises(SpecError, match=r"unknown case 'ops\.onn'"):
        run("ops.onn")
    (root / "empty").mkdir()
    with pytest.raises(ResultsError, match="no records in empty"):
        run("ops.one", "--results", "empty")
    for case in ("ops.one/small/a", "ops.one"):
        done = run(case, "--json")
        assert done.exit_code == 0
        SCHEMAS["repetition"].validate_json(done.stdout)
        assert json.loads(done.stdout)["kind"] == "unchanged"
    fixed = a_record(root, machine=this_machine("box"))
    monkeypatch.setattr("ivhl.bench.repetition.run_ivhl", leaving(fixed))
    done = run("ops.one")
    assert done.exit_code == 7
    assert "differs, for the better: " in done.output
