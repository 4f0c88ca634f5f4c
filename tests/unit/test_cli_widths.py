"""A table loses neither its result nor what identifies a row, however narrow the terminal is."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from ivhl.cli import app
from ivhl.errors import IvhlError
from ivhl.records.files import append_record, record_file
from ivhl.workload import Variant
from tests.builders.fleet import a_record, make_fleet_project
from tests.builders.project import make_commits
from tests.builders.records import EMPTY_WORKLOAD, make_failure

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from typer.testing import Result

LONG = f"ops.{'w' * 84}"
VARIANT = f"{'v' * 79}-compiled"
CASE = f"{LONG}/small/{VARIANT}"
CELLS = ("py3.12-torch2.5.1", "py3.13-torch2.6.0")
RELEASES = ("2.5.1", "2.6.0")


WORKLOAD = replace(
    EMPTY_WORKLOAD, name=LONG, variants=(Variant(name=VARIANT, call="m:f"),), core=VARIANT
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a project with names of 88 letters, whose case fails with the newer release."""
    root = tmp_path_factory.mktemp("wide")
    make_fleet_project(root)
    (commit,) = make_commits(root, 1)
    for python, torch in product(("3.12", "3.13"), RELEASES):
        found = a_record(root, python=python, torch=torch, variant=VARIANT)
        if torch == "2.6.0":
            wrong = make_failure("wrong", "far off", python=python, torch=torch)
            found = replace(found, failure=wrong.failure, speedup=None, compiled=None)
        record = replace(found, workload=LONG, workload_version=1, size="small", commit=commit)
        path = record_file(root / "results", record.machine.name, commit, record.cell.id)
        append_record(path, record)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.builders.fleet.WORKLOADS", (WORKLOAD,))
        yield root


def printed(command: str, columns: int) -> Result:
    done = CliRunner().invoke(app, command.split(), env={"COLUMNS": str(columns)})
    assert done.exception is None or isinstance(done.exception, IvhlError | SystemExit), command
    return done


def holds(lines: Sequence[str], text: str) -> bool:
    """Return whether lines hold a text, perhaps folded in its column or by the terminal."""
    if any(text in line for line in lines):
        return True
    return any(
        text.startswith(line[column:].split("  ")[0].strip() or "\0")
        and _goes_on(lines[number:], column, text)
        for number, line in enumerate(lines)
        for column in range(len(line))
    )


def _goes_on(lines: Sequence[str], column: int, text: str) -> bool:
    left = text.replace(" ", "")
    for line in lines:
        piece = line[column:].split("  ")[0].replace(" ", "")
        if not piece or not left.startswith(piece):
            return left != "" and bool(piece) and piece.startswith(left)
        left = left.removeprefix(piece)
        if not left:
            return True
    return False


@pytest.mark.parametrize("columns", [40, 47, 64, 80, 200])
@pytest.mark.parametrize(
    ("command", "needed"),
    [
        ("compat --all", (LONG, VARIANT, *CELLS, "wrong (1)")),
        ("results --all", (CASE, *CELLS, "wrong")),
        ("matrix --all", (*CELLS, "default")),
        ("matrix --all --shard 1/1", (*CELLS, "default")),
        (f"course {CASE}", (CASE, *RELEASES, "Python 3.13", "wrong")),
        ("compare 2.5.1 2.6.0 --all", (CASE, "fails", "Python 3.13")),
        ("regressions --all", (CASE, "2.5.1 -> 2.6.0", "fails")),
        ("advise --all", ("Python 3.12:", "2.5.1")),
    ],
)
def test_a_table_is_whole_at_every_width(
    root: Path, command: str, needed: Sequence[str], columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    done = printed(command, columns)
    lines = done.stdout.splitlines()
    assert [text for text in needed if not holds(lines, text)] == [], done.output
    if command.startswith(("course", "compare", "regressions")):  # the terminal folds nothing
        assert max(map(len, lines)) <= columns
    assert "…" not in done.stdout
