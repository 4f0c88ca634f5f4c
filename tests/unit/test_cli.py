"""The list of commands is printed without importing any of them, and is what they say themselves."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer
from typer.testing import CliRunner

import ivhl.cli
from ivhl.cli import COMMANDS, app, surgical, tryout
from ivhl.errors import InterpreterError, SpecError, UnknownNameError
from ivhl.matrix.locks import LockState
from ivhl.workload import broken_benchmarks
from tests.builders.fleet import make_fleet_project
from tests.builders.project import make_commits

if TYPE_CHECKING:
    from ivhl.matrix.spec import CellSpec

HEAVY = ("asv", "docker", "pydantic", "jinja2", "nox", "torch", "numpy")


def test_every_command_is_listed_with_the_first_sentence_of_its_help() -> None:
    for module, _ in COMMANDS.values():
        import_module(f"ivhl.cli.{module}")
    commands = typer.main.get_group(app).commands
    assert {
        name: command.help.replace("\n", " ").partition(".  ")[0].removesuffix(".")
        for name, command in commands.items()
        if command.help is not None
    } == {name: sentence.removesuffix(".") for name, (_, sentence) in COMMANDS.items()}


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


def test_the_short_option_of_help_is_that_of_every_command() -> None:
    for words in (["-h"], ["compat", "-h"], ["matrix", "lock", "-h"]):
        assert "Usage: " in CliRunner().invoke(app, words).output


@pytest.mark.parametrize(
    "command",
    [
        "bisect a b --case c --tier nope",
        "bisect a b --case c --for nope",
        "gate --base HEAD --format nope",
        "bench --suite nope",
        "surgical advise m:f --device nope",
        "matrix list --tier nope",
    ],
)
def test_a_choice_is_refused_in_plain_words(command: str) -> None:
    """Typer leaves in the message what pydantic puts before it."""
    result = CliRunner().invoke(app, command.split(), env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert ": 'nope' is not one of '" in result.output
    assert f"Invalid value for '{command.split()[-2]}'" in result.output


@pytest.mark.parametrize("module", ["m", ":", "m:", ":f"])
def test_a_model_without_a_name_is_refused_before_a_cell_is_made(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_fleet_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(app, ["surgical", "advise", module])
    assert isinstance(found.exception, SpecError)
    assert str(found.exception) == f"{module!r} is not of the form 'package.module:function'"
    assert not (tmp_path / ".asv").exists()


def test_every_module_of_commands_is_in_the_list() -> None:
    folder = Path(ivhl.cli.__file__).parent
    parts = {"__init__", "codebase", "declared", "markdown", "schemas", "sides"}
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    modules = packages | {path.stem for path in folder.glob("*.py")} - parts
    assert modules == {module for module, _ in COMMANDS.values()}


@pytest.fixture
def cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the cells for which parts of a model were measured.

    In a project with locks of Python 3.12 and 3.15, on a machine that has 3.12 only.
    """
    make_fleet_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "envs" / "matrix.toml"
    path.write_text(path.read_text().replace('"3.13"', '"3.15"'))
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "model.py").write_text("")

    def find(_: Path, python: str, *, install: bool = True) -> None:
        assert not install
        if python != "3.12":
            raise InterpreterError(f"no Python {python}", hint="install it")

    def locked(root: Path, cell: CellSpec) -> LockState:
        return LockState(cell, "locked", root / "lock.txt")

    made: list[str] = []

    def advise(_: Path, cell: CellSpec, *__: object, **___: object) -> int:
        made.append(cell.id)
        return 0

    monkeypatch.setattr(tryout, "find_interpreter", find)
    monkeypatch.setattr(tryout, "ensure_lock", lambda root, _, cell: locked(root, cell))
    monkeypatch.setattr(surgical, "advise_in_cell", advise)
    for module in (tryout, surgical):
        monkeypatch.setattr(module, "lock_state", locked)
    return made


def test_parts_are_measured_on_the_newest_python_that_is_here(cells: list[str]) -> None:
    assert CliRunner().invoke(app, ["surgical", "advise", "deep.model:f"]).exit_code == 0
    assert [cell.partition("-")[0] for cell in cells] == ["py3.12"]


def test_a_module_that_is_not_there_is_named_before_its_cell_is_made(cells: list[str]) -> None:
    found = CliRunner().invoke(app, ["surgical", "advise", "deep.modell:f"]).exception
    assert isinstance(found, SpecError)
    assert str(found).startswith("there is no module deep.modell: ")
    assert cells == []


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


@pytest.mark.parametrize("command", [["matrix", "list", "--stale"], ["gate", "--base", "HEAD~1"]])
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


@pytest.mark.parametrize(
    "command", ["bench", "try a", "blame a", "bisect a b --case c", "surgical advise a:b"]
)
def test_more_threads_than_pytorch_survives_are_refused(command: str) -> None:
    """With 99999 it ends by SIGSEGV, which ivhl try reported as a crash of the case."""
    done = CliRunner().invoke(app, [*command.split(), "--threads", "99999"])
    assert done.exit_code == 2
    assert "--threads" in done.output
    assert "less than or equal to 1024" in done.output
