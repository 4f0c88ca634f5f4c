"""The command line stays small, says one thing in one way, and fills no more than a screen."""

from __future__ import annotations

import ast
import io
import re
from collections import Counter
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from rich.text import Text
from typer.testing import CliRunner

from ivhl.cli import COMMANDS, app
from ivhl.cli.fleet import fleet
from ivhl.cli.screen import LINES, screen
from ivhl.errors import SpecError
from ivhl.matrix.spec import CellSpec
from ivhl.tracker.support.compat import compat_rows
from ivhl.tracker.support.table import ResultsTable
from ivhl.tracker.terminal import Terminal
from studies.house import tool
from tests.builders.fleet import a_record, make_fleet_project, write_records
from tests.builders.records import make_record

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
PANELS: Final = ("Start", "Measure", "Read", "Explain", "Maintain")
# What reads the committed records, unasked and chosen.
READING: Final = (
    "advise",
    "check",
    "check expectations",
    "compare 2.6.0 2.15.0",
    "compare 3.12 3.13",
    "compat",
    "compat --torch 2.15.0",
    "compat --workload ops.condensate_potential",
    "course",
    "course ops.condensate_potential",
    "doctor",
    "matrix",
    "matrix py3.12-torch2.6.0",
    "matrix py3.12-torch2.5.1 py3.13-torch2.5.1",
    "matrix --shard 1/1",
    "regressions",
    "results",
    "results --machine vm-core1 --python 3.13",
    "version-checks tests/unit",
)


def _options() -> Iterator[tuple[str, str]]:
    """Yield the file and the name of every declaration of an option."""
    for path in tool(ROOT):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "typer.Option":
                name = ast.unparse(node.args[0]) if node.args else "without a name"
                yield path.relative_to(ROOT).as_posix(), name


def test_there_are_at_most_27_commands_in_panels_and_fleet_alone_has_commands_below() -> None:
    assert len(COMMANDS) <= 27
    assert [one.name for one in app.registered_groups] == ["fleet"]
    assert len(fleet.registered_commands) == 6
    assert list(dict.fromkeys(panel for _, panel in COMMANDS.values())) == [*PANELS]
    help_text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).output
    places = [help_text.index(f"─ {panel} ─") for panel in PANELS]
    assert places == sorted(places)


def test_every_option_is_declared_once_in_one_module() -> None:
    declared = [*_options()]
    twice = [name for name, number in Counter(name for _, name in declared).items() if number > 1]
    assert twice == []
    assert {path for path, name in declared if name != "'--version'"} == {"ivhl/cli/options.py"}


@pytest.mark.parametrize("command", READING)
def test_a_reading_command_fills_at_most_a_screen_unasked(
    command: str, user_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ivhl compat` printed 18,427 lines."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("XDG_CACHE_HOME", str(user_cache))
    done = CliRunner().invoke(app, command.split(), env={"COLUMNS": "80"})
    # The machine of the tests may lack what a measurement needs, such as space on its disk.
    is_short = command == "doctor" and re.search(r", [1-9]\d* wrong$", done.stdout.rstrip())
    assert done.exit_code == bool(is_short), done.output
    rows = sum(
        max(1, -(-Text.from_ansi(line).cell_len // 80)) for line in done.stdout.splitlines()
    )
    assert 0 < rows <= LINES


def test_what_a_screen_leaves_out_is_counted_and_printed_if_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for lines, wide in ((39, 1), (40, 1), (41, 1), (500, 1), (100, 300)):
        text = "x" * wide
        for every in (True, False):
            told = io.StringIO()
            with redirect_stdout(told), screen(every=every) as console:
                for _ in range(lines):
                    console.print(text)
            shown = told.getvalue().splitlines()
            if every or lines * -(-wide // 80) < LINES:
                assert shown == [text] * lines
            else:
                rows = sum(-(-len(line) // 80) for line in shown)
                assert rows <= LINES
                hidden = lines - shown.count(text)
                if hidden:
                    assert shown[-1].startswith(f"... {hidden} more line")


def test_what_was_printed_before_an_error_is_shown() -> None:
    told = io.StringIO()
    with suppress(SpecError), redirect_stdout(told), screen(every=False) as console:
        console.print("so far")
        raise SpecError("no", hint="")
    assert told.getvalue() == "so far\n"


@pytest.mark.parametrize("columns", [40, 80])
def test_no_table_loses_its_results_whatever_the_length_of_a_name(
    columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_fleet_project(tmp_path)
    variant = ("long-name-" * 9)[:88]
    record = replace(
        a_record(tmp_path, workload="ops.one"),
        variant=variant,
        speedup=make_record(speedup=3.21).speedup,
    )
    write_records(tmp_path / "results", record)
    monkeypatch.chdir(tmp_path)
    for command in ("results", "course ops.one"):
        told = CliRunner().invoke(app, command.split(), env={"COLUMNS": str(columns)})
        assert told.exit_code == 0, told.output
        assert "3.21x" in told.stdout, command
    console = Terminal(width=columns, file=io.StringIO())
    console.print(
        ResultsTable(
            compat_rows([record], cells=[CellSpec(record.cell.python, record.cell.torch)])
        )
    )
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= columns
    assert sum("3.21x [" in line for line in lines) == 1
    assert variant in "".join(line[: columns - 22].strip() for line in lines)


@pytest.mark.parametrize("command", ["advise", "compat", "regressions"])
def test_these_take_the_same_options_of_where(
    command: str, user_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("XDG_CACHE_HOME", str(user_cache))
    words = [
        command,
        "--python",
        "3.12",
        "--torch",
        "2.6",
        "--device",
        "cpu",
        "--machine",
        "CORE1",
    ]
    done = CliRunner().invoke(app, words, env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    "command",
    ["advise", "compat", "results", "compare 2.5.1 2.6.0", "course", "regressions"],
)
def test_what_finds_no_records_exits_alike(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_fleet_project(tmp_path)
    (tmp_path / "results").mkdir()
    monkeypatch.chdir(tmp_path)
    for more in ([], ["--json"]):
        raised = CliRunner().invoke(app, [*command.split(), *more]).exception
        assert (str(raised), getattr(raised, "exit_code", None)) == (
            f"no records in {tmp_path / 'results'}",
            5,
        )
