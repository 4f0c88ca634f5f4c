"""``ivhl compat`` and ``ivhl results``: filters, JSON and warnings."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from ivhl.cli import app
from ivhl.cli.declared import warn, warn_unread
from ivhl.errors import ResultsError, SpecError, UnknownNameError
from ivhl.matrix.spec import newest_of
from ivhl.records.record import to_json
from ivhl.tracker.store.records import case_name
from ivhl.tracker.views.project import load_state, rows_of
from ivhl.tracker.wording import ANOTHER_RUN
from tests.builders.fleet import CELLS, a_record, commit, make_fleet_project, write_records
from tests.builders.project import make_project
from tests.builders.records import make_failure, make_record

if TYPE_CHECKING:
    from typer.testing import Result

    from ivhl.records.record import RunRecord
    from ivhl.tracker.support.compat import Row


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    make_project(root)
    return root


@pytest.fixture(autouse=True)
def _inside(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, catch_exceptions=False, env={"COLUMNS": "80"})


def test_compat_json_has_every_documented_field() -> None:
    rows = json.loads(run("compat", "--json", "--python", "3.13", "--torch", "2.5.1").stdout)[
        "rows"
    ]
    gated = [row for row in rows if row["status"] != "not_run"]
    assert {(row["python"], row["torch"], row["status"]) for row in gated} == {
        ("3.13", "2.5.1", "unsupported")
    }
    page = (Path(__file__).parents[2] / "docs" / "track.md").read_text(encoding="utf-8")
    table = page.partition("| field | content |")[2].partition("\n\n")[0]
    promised = [re.findall(r"`(\w+)`", line.split("|")[1]) for line in table.splitlines()[2:]]
    assert {name for line in promised for name in line} == set(gated[0])


def test_a_record_has_one_interval_in_compat_and_results_and_both_name_it(
    root: Path, tmp_path: Path
) -> None:
    """`results` had that of the rounds, `compat` that of another run, and neither said so."""
    del root
    record = make_record(speedup=3.0)
    write_records(tmp_path, record)
    there = ("--results", str(tmp_path), "--workload", record.workload)
    compat, results = run("compat", "--all", *there).stdout, run("results", *there).stdout
    (interval,) = set(re.findall(r"3\.00x \[[^]]*\]", compat + results))
    assert interval in compat
    assert interval in results
    (row,) = (
        row
        for row in json.loads(run("compat", *there, "--json").stdout)["rows"]
        if row["speedup"] is not None
    )
    assert interval == f"3.00x [{row['speedup_low']:.2f}, {row['speedup_high']:.2f}]"
    assert all(ANOTHER_RUN in " ".join(text.split()) for text in (compat, results))


def test_advice_for_programs_has_numbers_and_names(root: Path, tmp_path: Path) -> None:
    """`ivhl advise --json` was the sentences for people, as JSON."""
    del root
    slow = [make_record(python="3.13", size=size, speedup=0.5) for size in ("small", "large")]
    fast = [make_record(size="small", speedup=4.0), make_failure("crash", size="large")]
    write_records(tmp_path, *slow, *fast)
    told = json.loads(run("advise", "--results", str(tmp_path), "--json").stdout)
    assert (told["schema"], told["machine"]) == ("ivhl.advice/1", "bench")
    assert told["python"] == "3.13"
    assert told["cell"] == {
        "run": 2, "passing": 2, "slow": 2, "short": 0, "speedup": 0.5, "over": 1,
    }  # fmt: skip
    beside = told["compared_with"]["3.12"]
    assert beside["fixed"] == [case_name(fast[1])]
    assert beside["slower"] == [case_name(fast[0])]
    assert told["support_over"] == 2
    (only,) = told["support"]["3.12"]
    assert only == {"word": "works (1 of 2 fail)", "torch": ["2.6.0"], "not_run": []}


def test_a_folder_without_code_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="has no Python files"):
        run("version-checks", str(tmp_path))


@pytest.mark.parametrize("command", ["compat", "results"])
def test_a_release_without_records_is_known(command: str) -> None:
    with pytest.raises(ResultsError, match=r"release 2\.10\.0: is in the matrix") as none_yet:
        run(command, "--torch", "2.10.0")
    assert none_yet.value.hint == "measure it with: ivhl bench --python 3.12 --torch 2.10.0"
    with pytest.raises(UnknownNameError, match=r"unknown PyTorch release '2\.10\.1'") as unknown:
        run(command, "--torch", "2.10.1")
    assert "2.10.0" in unknown.value.hint


@pytest.mark.parametrize("command", ["compat", "results"])
def test_a_python_without_records_is_known(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    project = shutil.copytree(root, tmp_path / "project")
    matrix = project / "envs" / "matrix.toml"
    text = matrix.read_text(encoding="utf-8")
    row = '  {version = "3.14t", tier = "extended"},'
    matrix.write_text(text.replace("python = [", f"python = [\n{row}"), encoding="utf-8")
    monkeypatch.chdir(project)
    with pytest.raises(ResultsError, match=r"Python 3\.14t: is in the matrix") as none_yet:
        run(command, "--python", "3.14t")
    assert none_yet.value.hint == "measure it with: ivhl bench --python 3.14t"


@pytest.mark.parametrize("command", ["compat", "results"])
def test_the_committed_records_can_be_shown(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    text = run(command, "--all", "--machine", "vm-core1").stdout
    assert "support_gate" in text
    # The extended tier has one workload only, so the table has gaps.
    assert "py3.12-torch2.2.2" in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_compat_table_fits_the_terminal_and_has_reasons() -> None:
    text = run("compat", "--all", "--workload", "ops.gp_evolve").stdout
    assert max(map(len, text.splitlines())) <= 80
    assert "Dynamo is not supported on Python 3.14+" in " ".join(text.split())
    assert "unsupported 2.4.1 to 2.5.1, works 2.6.0" in " ".join(text.split())
    assert "releases with which a case passes on bench, cpu" in text


def test_results_lists_the_stored_records() -> None:
    records = json.loads(
        run("results", "--json", "--machine", "bench", "--workload", "ops.gp_evolve").stdout
    )["records"]
    assert len(records) == 4 * 3 * 5 * 2
    assert records == sorted(records, key=lambda record: record["recorded_at"], reverse=True)
    assert {record["schema"] for record in records} == {"ivhl.run/5"}
    text = run("results", "--all").stdout
    assert "ops.gp_evolve/small/real-compiled" in text
    assert max(map(len, text.splitlines())) <= 80


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"ops\.gp_evolvv'") as error:
        run("compat", "--workload", "ops.gp_evolvv")
    assert "ops.gp_evolve" in error.value.hint


def test_names_that_are_known_but_together_on_no_case_have_no_records(root: Path) -> None:
    """A GPU in an existing environment has rows for that one only."""
    gpu = make_record(python="3.12", torch="2.11.0")
    gpu = replace(
        gpu,
        cell=replace(gpu.cell, lock_sha256=None),
        machine=replace(gpu.machine, name="gpubox"),
    )
    file = root / "results" / "gpubox" / "records" / f"{gpu.commit[:8]}-{gpu.cell.id}.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text(to_json(gpu) + "\n")
    try:
        for command in ("compat", "results", "regressions", "advise", "course"):
            with pytest.raises(ResultsError, match="no record matches all of these options"):
                run(command, "--machine", "gpubox", "--python", "3.13")
        with pytest.raises(UnknownNameError, match="unknown machine 'gpuboks'"):
            run("compat", "--machine", "gpuboks", "--python", "3.13")
        with pytest.raises(ResultsError, match="gpubox has results only in existing environments"):
            run("advise", "--machine", "gpubox")
    finally:
        shutil.rmtree(file.parents[1])


def test_a_case_that_no_machine_measured_is_no_machine_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_fleet_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    with pytest.raises(UnknownNameError) as told:
        run("compat", "--machine", "nowhere")
    assert told.value.hint == "known: none"


@pytest.mark.parametrize("command", [("advise",), ("compat",), ("version-checks", __file__)])
def test_records_that_cannot_be_read_are_named(root: Path, command: tuple[str, ...]) -> None:
    file = root / "results" / "bench" / "records" / "00000000-py3.12-torch2.6.0.jsonl"
    file.write_text('{"broken\n')
    try:
        assert "00000000-py3.12-torch2.6.0.jsonl:1" in run(*command).stderr
    finally:
        file.unlink()


@pytest.mark.parametrize("command", ["compat", "results"])
def test_a_missing_results_folder_is_refused(command: str) -> None:
    with pytest.raises(ResultsError, match=r"--results: must be a folder \(got 'nowhere'\)"):
        run(command, "--results", "nowhere")


def test_advice_over_no_records_names_the_folder(root: Path) -> None:
    (root / "empty").mkdir()
    error = CliRunner().invoke(app, ["advise", "--results", "empty"]).exception
    assert isinstance(error, ResultsError)
    assert str(error) == "no records in empty"


def test_advice_for_cells_without_a_wheel_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_fleet_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    absent = make_failure("unavailable", "no wheels", python="3.13", torch="2.5.1")
    kept = ["project", "commit", "machine", "workload", "workload_version", "size", "variant"]
    here = a_record(tmp_path)
    absent = replace(absent, **{name: getattr(here, name) for name in kept})
    write_records(tmp_path / "results", here, absent)
    with pytest.raises(ResultsError) as told:
        run("advise", "--python", "3.13", "--torch", "2.5.1")
    assert str(told.value) == "there is no wheel of PyTorch 2.5.1 for Python 3.13"
    assert "Take Python 3.12 with PyTorch 2.6.0" in run("advise").stdout


def test_the_folder_of_a_machine_in_place_of_all_results_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_fleet_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    write_records(tmp_path / "results", a_record(tmp_path))
    (tmp_path / "other").mkdir()
    hint = "name the machine, or the folder of all: results"
    for command in (("compare", "results/box", "other"), ("compat", "--results", "results/box")):
        with pytest.raises(ResultsError, match="no records in results/box") as told:
            run(*command)
        assert told.value.hint == hint


def test_version_prints_the_version_of_the_package() -> None:
    assert run("--version").stdout == f"ivhl {version('ivhl')}\n"


def test_an_unreadable_record_is_a_warning(root: Path) -> None:
    torn = root / "results" / "bench" / "records" / "torn.jsonl"
    torn.write_text("{")
    try:
        done = run("compat", "--json")
        assert done.exit_code == 0
        assert "results/bench/records/torn.jsonl:1: must be JSON" in done.stderr
        assert any(row["status"] == "works" for row in json.loads(done.stdout)["rows"])
    finally:
        torn.unlink()


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("compat", 50),
        ("regressions", 50),
        ("gate --base HEAD~1 --allow-missing", 50),
        ("compare 3.12 3.13", 50),
        ("check expectations", 50),
        ("results", 120),
    ],
)
def test_a_file_of_garbage_is_named_by_every_command_and_fills_no_screen(
    root: Path, tmp_path: Path, command: str, named: int
) -> None:
    results = shutil.copytree(root / "results", tmp_path / "results")
    (results / "bench" / "records" / "torn.jsonl").write_text("{\n" * 120)
    done = CliRunner().invoke(app, [*command.split(), "--results", str(results)])
    assert done.stderr.count("torn.jsonl") == named
    more = f"and 70 more problems: ivhl results --results {results} names all"
    assert (more in done.stderr) == (named == 50)


def test_what_names_all_unread_records_is_said_of_records_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = [f"line {number}" for number in range(51)]
    warn_unread(lines, None)
    assert "and 1 more problem: ivhl results names all\n" in capsys.readouterr().err
    warn_unread(lines, Path("a b"), Path("c"))
    said = "ivhl results --results 'a b' and ivhl results --results c names all\n"
    assert said in capsys.readouterr().err
    warn(lines)
    assert capsys.readouterr().err.endswith("and 1 more problem\n")


def test_a_release_of_the_extended_tier_is_shown_once_it_has_records(root: Path) -> None:
    matrix = root / "envs" / "matrix.toml"
    text = matrix.read_text(encoding="utf-8")
    assert '"2.4.1", tier = "default"' in text
    changed = text.replace('"2.4.1", tier = "default"', '"2.4.1", tier = "extended"').replace(
        "torch = [", 'torch = [\n  {release = "2.3.1", tier = "extended"},'
    )
    matrix.write_text(changed, encoding="utf-8")
    try:
        cells = {cell.id for cell in load_state(root, root / "results").cells}
    finally:
        matrix.write_text(text, encoding="utf-8")
    assert {"py3.12-torch2.4.1", "py3.13-torch2.4.1", "py3.12-torch2.9.1"} <= cells
    assert not any("2.3.1" in cell for cell in cells)


def test_a_shallow_clone_is_named(root: Path, tmp_path: Path) -> None:
    assert not any("shallow" in problem for problem in load_state(root, root / "results").problems)
    source = tmp_path / "source"
    source.mkdir()
    make_fleet_project(source)
    records = [a_record(source, python=python, torch=torch) for python, torch in CELLS]
    (source / "more").write_text("more")
    commit(source, "a second commit")
    clone = tmp_path / "clone"
    command = ["git", "clone", "-q", "--depth", "1", source.as_uri(), str(clone)]
    subprocess.run(command, check=True)
    write_records(clone / "results", *records)
    (problem,) = load_state(clone, clone / "results").problems
    assert "git fetch --unshallow" in problem


def test_expected_cases_are_the_core_suite_and_those_of_the_machine(tmp_path: Path) -> None:
    make_fleet_project(tmp_path)
    core = {"ops.one": "b", "ops.two": "a", "ops.three": "a"}
    records = [
        a_record(tmp_path, python=python, torch=torch, workload=workload, variant=variant)
        for python, torch in CELLS
        for workload, variant in core.items()
    ]

    def rows(*more: RunRecord) -> list[Row]:
        results = tmp_path / "results"
        shutil.rmtree(results, ignore_errors=True)
        write_records(results, *more)
        return list(rows_of(load_state(tmp_path, results)))

    assert {row.status for row in rows(*records)} == {"works"}
    assert len(rows(*records)) == len(records)
    # For a core case that a cell lacks, and for another case that some cell has.
    lacking = [row for row in rows(*records[1:]) if row.status == "not_run"]
    assert [(row.cell, row.workload, row.variant) for row in lacking] == [
        ("py3.12-torch2.5.1", "ops.one", "b")
    ]
    elsewhere = a_record(tmp_path, "other", workload="ops.two")
    more = rows(*records, a_record(tmp_path, workload="ops.one", variant="a"), elsewhere)
    assert {
        (row.machine, row.workload, row.variant) for row in more if row.status == "not_run"
    } == {
        ("box", "ops.one", "a"),
        ("other", "ops.two", "a"),
    }


def test_compat_begins_with_the_counts_of_statuses() -> None:
    rows = rows_of(load_state(Path.cwd(), Path("results")))
    first = " ".join(run("compat").stdout.partition("PyTorch")[0].split())
    first = first.removeprefix("bench, cpu: ")
    assert first.startswith(f"{len(rows)} results of ")
    counts = first.partition(": ")[2]
    # In brackets are cases that are counted as passing already.
    numbers = map(int, re.findall(r"\d+", re.sub(r"\([^)]*\)", "", counts)))
    assert sum(numbers) == len(rows)
    assert counts.startswith(f"{sum(row.passes for row in rows)} pass (2 slow, 1 too noisy)")


def test_compat_filters_by_size_variant_and_status() -> None:
    rows = json.loads(run("compat", "--json").stdout)["rows"]
    one = next(row for row in rows if row["status"] == "unsupported")
    for name in ("size", "variant", "status"):
        shown = json.loads(run("compat", "--json", f"--{name}", one[name]).stdout)["rows"]
        assert shown == [row for row in rows if row[name] == one[name]]


def test_major_minor_selects_the_newest_patch_release() -> None:
    def shown(torch: str) -> str:
        return run("compat", "--json", "--torch", torch).stdout

    assert shown("2.6") == shown("2.6.0")
    assert newest_of("2.9", ("2.9.0", "2.9.1", "2.10.0")) == "2.9.1"
    assert newest_of("2.9", ("2.10.0",)) == "2.9"
    assert newest_of("2.9.0", ("2.9.1",)) == "2.9.0"
