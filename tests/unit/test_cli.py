"""The list of commands is printed without importing any of them, and is what they say themselves."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import ivhl.cli
from ivhl.cli import COMMANDS, app
from ivhl.errors import SpecError
from tests.builders.fleet import make_fleet_project
from tests.builders.project import make_commits

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
    result = CliRunner().invoke(app, ["compatt"])
    assert result.exit_code == 2
    assert "compat" in result.output


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
    parts = {"__init__", "codebase", "declared", "markdown", "sides"}
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    modules = packages | {path.stem for path in folder.glob("*.py")} - parts
    assert modules == {module for module, _ in COMMANDS.values()}


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
