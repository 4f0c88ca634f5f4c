"""The list of commands is printed without importing any of them, and is what they say themselves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib import import_module
from inspect import cleandoc
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import ivhl.cli
from ivhl.bench.trial import TrialEnd
from ivhl.cli import COMMANDS, app, help_of, tryout
from ivhl.cli.bench import _raise_failed
from ivhl.errors import InterpreterError, NoSpeedupError, UnknownNameError, nearest
from ivhl.matrix.locks import LockState
from ivhl.matrix.spec import CellSpec, load_matrix
from ivhl.tracker.support.compat import compat_rows
from ivhl.workload import broken_benchmarks
from tests.builders.fleet import make_fleet_project
from tests.builders.project import make_commits
from tests.builders.records import make_failure, make_record

HEAVY = ("asv", "docker", "pydantic", "jinja2", "nox", "torch", "numpy")

HERE = Path(__file__).parents[2]


def test_every_command_is_listed_with_the_first_paragraph_of_its_help() -> None:
    for module, _ in COMMANDS.values():
        import_module(f"ivhl.cli.{module}")
    commands = typer.main.get_group(app).commands
    helps = {name: command.help or "" for name, command in commands.items()}
    assert {name: cleandoc(text).partition("\n\n")[0] for name, text in helps.items()} == {
        name: cleandoc(help_of(module)) for name, (module, _) in COMMANDS.items()
    }
    assert all(help_of(module) for module, _ in COMMANDS.values())


def test_the_help_imports_nothing_that_takes_long() -> None:
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from ivhl.cli import app\n"
        "print(CliRunner().invoke(app, ['--help']).output)\n"
        "print('imported', *sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    *shown, modules = ran.stdout.strip().splitlines()
    assert all(any(f" {name} " in line for line in shown) for name in COMMANDS)
    assert {name.partition(".")[0] for name in modules.split()}.isdisjoint(HEAVY)


def test_a_trial_of_a_target_imports_nothing_of_asv() -> None:
    code = "import sys, ivhl.cli.tryout; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "asv" not in ran.stdout.split()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_of_its_own(name: str) -> None:
    result = CliRunner().invoke(app, [name, "--help"])
    assert result.exit_code == 0
    assert f"Usage: ivhl {name} " in result.output


def test_an_unknown_command_is_refused_and_the_nearest_is_named() -> None:
    for typed, meant in (("compatt", "compat"), ("benhc", "bench")):
        error = CliRunner().invoke(app, [typed]).exception
        assert isinstance(error, UnknownNameError)
        assert (error.exit_code, meant in error.hint) == (2, True)
    capital = CliRunner().invoke(app, ["Compat"]).exception
    assert isinstance(capital, UnknownNameError)
    assert capital.hint == "did you mean compat?"  # nothing but the letter case differs
    assert nearest("zzz", ["ops.b/small/a", "ops.b"]) == "known: ops.b"
    pythons = [f"3.{n}" for n in range(10, 16)]
    assert nearest("3.16", pythons) == "did you mean 3.15 or 3.14 or 3.13?"
    releases = ["2.6.0", "2.9.1", "2.10.0", "2.14.1", "2.15.0", "nightly"]
    assert nearest("2.16.0", releases) == "did you mean 2.15.0 or 2.14.1 or 2.10.0?"
    assert nearest("2.9.9", releases).startswith("did you mean 2.9.1 or ")
    assert nearest("zzz", map(str, range(12))) == "known: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"


def ended(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Return what a command does whose reader has gone, as that of ``| head -1``."""
    read, write = os.pipe()
    os.close(read)
    try:
        return subprocess.run(
            [sys.executable, "-m", "ivhl", *arguments],
            cwd=HERE,
            env=os.environ | environment,
            stdout=write,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(write)


@pytest.mark.parametrize("command", ["--help", "--version", "matrix --all", "matrix --json"])
def test_a_command_whose_reader_has_gone_ends_as_by_sigpipe(command: str) -> None:
    """Exit code 1 would be that of a problem; 141 is that of other programs in a shell."""
    for unbuffered in ("", "1"):
        done = ended(*command.split(), PYTHONUNBUFFERED=unbuffered)
        assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


def test_what_the_terminal_cannot_show_is_replaced() -> None:
    code = "import ivhl.cli; ivhl.cli.app = lambda: print('2.5 \\u2192 2.6'); ivhl.cli.main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=HERE,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"2.5 ? 2.6\n", b"")


@pytest.mark.parametrize("command", ["--help", "matrix"])
def test_a_terminal_of_no_width_gets_80_columns(command: str) -> None:
    def printed(columns: str) -> bytes:
        environment = os.environ | {"COLUMNS": columns}
        command_line = [sys.executable, "-m", "ivhl", command]
        return subprocess.check_output(command_line, cwd=HERE, env=environment)

    usual = printed("80")
    assert usual
    assert printed("0") == printed("3") == usual != printed("30")


def test_the_short_option_of_help_is_that_of_every_command() -> None:
    for words in (["-h"], ["compat", "-h"], ["lock", "-h"]):
        assert "Usage: " in CliRunner().invoke(app, words).output


@pytest.mark.parametrize(
    "command",
    [
        "bisect a b --case c --tier nope",
        "bisect a b --case c --for nope",
        "gate --base HEAD --format nope",
        "bench --suite nope",
        "matrix --tier nope",
    ],
)
def test_a_choice_is_refused_in_plain_words(command: str) -> None:
    """Typer leaves in the message what pydantic puts before it."""
    result = CliRunner().invoke(app, command.split(), env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert ": 'nope' is not one of '" in result.output
    assert f"Invalid value for '{command.split()[-2]}'" in result.output


def test_every_module_of_commands_is_in_the_list() -> None:
    folder = Path(ivhl.cli.__file__).parent
    parts = {
        *("__init__", "codebase", "declared", "markdown", "names", "options", "sarif"),
        *("releases", "screen", "sides", "target"),
    }
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    modules = packages | {path.stem for path in folder.glob("*.py")} - parts
    assert modules == {module for module, *_ in COMMANDS.values()}


def test_a_case_is_tried_on_the_newest_python_that_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_fleet_project(tmp_path)
    path = tmp_path / "envs" / "matrix.toml"
    path.write_text(path.read_text().replace('"3.13"', '"3.15"'))

    def find(_: Path, python: str, *, install: bool = True) -> object:
        assert not install
        if python != "3.12":
            raise InterpreterError(f"no Python {python}", hint="install it")
        return object()

    def locked(root: Path, cell: CellSpec) -> LockState:
        return LockState(cell, "locked", root / "lock.txt")

    monkeypatch.setattr("ivhl.cli.declared.find_interpreter", find)
    monkeypatch.setattr("ivhl.cli.declared.ensure_lock", lambda root, _, cell: locked(root, cell))
    monkeypatch.setattr(tryout, "lock_state", locked)
    cell = tryout.newest_cell(tmp_path, load_matrix(path), None, None)
    assert cell.python == "3.12"


def test_a_benchmark_that_is_no_python_is_named_with_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_fleet_project(tmp_path)
    folder = tmp_path / "odd_bench"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "bad.py").write_text("WORKLOADS = (\n")
    monkeypatch.syspath_prepend(tmp_path)
    (told,) = broken_benchmarks("odd_bench")
    assert "(bad.py, line 1)" in told


@pytest.mark.parametrize("command", [["matrix", "--stale"], ["gate", "--base", "HEAD~1"]])
def test_a_module_of_benchmarks_that_does_not_import_is_named(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_fleet_project(tmp_path)
    make_commits(tmp_path, 1)
    folder = tmp_path / "broken_bench"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "good.py").write_text("from tests.builders.fleet import WORKLOADS\n")
    (folder / "bad.py").write_text("import no_such_module\nWORKLOADS = ()\n")
    path = tmp_path / "pyproject.toml"
    path.write_text('[project]\nname = "demo"\n[tool.ivhl]\nbenchmarks = "broken_bench"\n')
    monkeypatch.chdir(tmp_path)
    told = CliRunner().invoke(app, command)
    assert "warning: left out: broken_bench.bad" in told.stderr
    assert "no_such_module" in told.stderr


@pytest.mark.parametrize("command", ["bench", "try a", "blame a", "bisect a b --case c"])
def test_more_threads_than_pytorch_survives_are_refused(command: str) -> None:
    """With 99999 it ends by SIGSEGV, which ivhl try reported as a crash of the case."""
    done = CliRunner().invoke(app, [*command.split(), "--threads", "99999"])
    assert done.exit_code == 2
    assert "--threads" in done.output
    assert "less than or equal to 1024" in done.output


@pytest.mark.parametrize("codes", [(0,), (7,), (0, 7), (7, 7, 7)])
def test_a_verdict_is_printed_first_and_last_and_the_exit_code_is_explained(
    codes: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It printed 635 lines for two cases, and ended with 7 without a word."""
    make_fleet_project(tmp_path)
    make_commits(tmp_path, 1)
    monkeypatch.chdir(tmp_path)
    ended = iter(codes)
    monkeypatch.setattr(tryout, "newest_cell", lambda *_: CellSpec("3.12", "2.6.0"))

    def tried(*_: object, logs: str | None, console: object) -> TrialEnd:
        assert (logs, console is None) == (None, False)
        code = next(ended)
        lines = tuple(f"line {number}" for number in range(500))
        return TrialEnd(code, "wrong in phase judge: far off" if code else "right, and 2x", lines)

    monkeypatch.setattr("ivhl.bench.trial.try_case", tried)
    names = ["ops.one", "ops.two", "ops.three"][: len(codes)]
    done = CliRunner().invoke(app, ["try", *names])
    lines = done.stdout.splitlines()
    assert "ops.one" in lines[1]
    assert ("wrong in phase" if codes[0] else "right, and 2x") in lines[1]
    assert len(lines) <= 40
    assert ("line 499" in lines) == (len(codes) == 1 or any(codes))
    if any(codes):
        assert "wrong in phase judge: far off" in lines[-1]
        assert isinstance(done.exception, NoSpeedupError)
        assert str(done.exception).endswith("without a speedup, which is exit code 7")
    else:
        assert lines[-1] == "1 case with a speedup over eager"


def test_a_run_in_which_every_case_fails_unexpectedly_exits_with_7() -> None:
    records = [make_failure("wrong", "far off"), make_failure("crash", variant="b")]
    cells = [CellSpec(records[0].cell.python, records[0].cell.torch)]
    failed = compat_rows(records, cells=cells)
    with pytest.raises(NoSpeedupError, match=r"every case failed \(2\), which is exit code 7"):
        _raise_failed({}, failed)
    _raise_failed({}, ())
    _raise_failed({}, compat_rows([*records, make_record(variant="c")], cells=cells))
    # That PyTorch refuses a Python is a result.
    _raise_failed({}, compat_rows([make_failure("support_gate")], cells=cells))


def test_doctor_runs_outside_of_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["doctor"])
    assert done.exit_code in (0, 1), done.exception
    assert "no ivhl project here, so the machine alone was checked" in done.stdout
