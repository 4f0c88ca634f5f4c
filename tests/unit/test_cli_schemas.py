"""What commands print for programs is what docs/schemas/ says, on all committed records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from ivhl.cli import app
from studies.schemas import SCHEMAS, schema_text
from tests.builders.project import git

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER: Final = Path(__file__).parents[2] / "docs" / "schemas"
COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "regressions": ("regressions", "--all"),
    "comparison": ("compare", "2.8.0", "2.9.1"),
    "course": ("course", "ops.field_superposition"),
    "compat": ("compat", "--torch", "2.15.0"),
    "results": ("results", "--workload", "ops.gp_evolve", "--torch", "2.6.0"),
    "advice": ("advise",),
    "ready": ("ready", "envs/locks/py3.12-torch2.6.0.txt"),
    "doctor": ("doctor",),
    "check": ("check", "expectations"),
    "version-checks": ("version-checks", "tests/unit/test_hotpath.py"),
    "matrix": ("matrix", "--shard", "1/1"),
    "cell": ("matrix", "py3.12-torch2.6.0"),
    "cell-diff": ("matrix", "py3.12-torch2.5.1", "py3.13-torch2.5.1"),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_written_schema_is_that_of_the_types(name: str) -> None:
    """Write it anew with ``python -m studies.schemas docs/schemas``."""
    assert (FOLDER / f"{name}.json").read_text(encoding="utf-8") == schema_text(name)


def test_every_schema_is_written() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(SCHEMAS)


def test_every_schema_is_compared_with_what_its_command_prints() -> None:
    # In the tests of these commands, some of which measure.
    elsewhere = {
        *("attribution", "bisection", "blame", "estimate", "gate", "import", "releases"),
        *("fleet-plan", "fleet-status"),  # tests/fleet
        *("observatory", "repetition", "script", "try"),
    }
    assert {*COMMANDS} | elsewhere == set(SCHEMAS)


@pytest.mark.parametrize(("name", "command"), COMMANDS.items())
def test_what_a_command_prints_is_of_its_schema(name: str, command: tuple[str, ...]) -> None:
    printed = CliRunner().invoke(app, [*command, "--json"]).stdout
    SCHEMAS[name].validate_json(printed)
    told = json.loads(printed)
    assert [value for name, value in told.items() if name != "schema"] != [[]]
    assert told["schema"].startswith(f"ivhl.{name}/")
    # A field that no schema has, or another type of one that it has, would be seen.
    with pytest.raises(ValidationError):
        SCHEMAS[name].validate_python(told | {"more": 1})
    with pytest.raises(ValidationError):
        SCHEMAS[name].validate_python(told | {"schema": f"ivhl.{name}/0"})


@pytest.mark.parametrize("name", SCHEMAS)
def test_an_answer_that_loses_a_field_has_another_number(name: str) -> None:
    """A program that asks for ``ivhl.estimate/1`` may read each field that it ever had."""
    path = FOLDER / f"{name}.json"
    now = json.loads(path.read_text(encoding="utf-8"))["properties"]
    commits = git(FOLDER, "log", "--format=%h", "--", path.name).split()
    assert commits
    for commit in commits:
        then = json.loads(git(FOLDER, "show", f"{commit}:./{path.name}"))["properties"]
        if then["schema"] == now["schema"]:
            assert then.keys() <= now.keys(), commit
