"""``ivhl run``: a plain script in many cells, outside of any project."""

from __future__ import annotations

import dataclasses
import re
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from packaging.version import Version

from ivhl.cli import app, options
from ivhl.cli.screen import print_json
from ivhl.errors import ResultsError, SpecError, UnknownNameError
from ivhl.matrix.locks import lock_state
from ivhl.measure.failures import COMPILER_ERROR
from ivhl.script.cells import SHIPPED, shipped_matrix
from ivhl.script.matrix import ScriptRuns, Wanted
from ivhl.script.outcome import ending, without_logs
from ivhl.script.overlay import UnavailableError
from ivhl.script.requirements import needs_of
from ivhl.script.running import Script, network_can_be_left
from ivhl.script.symptom import OFF, blame_script
from ivhl.tracker.store.records import grouped_by
from ivhl.tracker.support.known import causes_in
from ivhl.tracker.support.messages import dynamo_id
from ivhl.tracker.terminal import Columns, Terminal
from ivhl.tracker.wording import counted, shortened

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ivhl.matrix.spec import CellSpec, Matrix, Tier
    from ivhl.script.outcome import ScriptOutcome

SCHEMA: Final = "ivhl.script/1"
DIFFERS: Final = 7
_SHOWN_LINES: Final = 8
_LONGEST: Final = 90  # characters of an outcome in a sentence
_NARROWEST: Final = 20
_BESIDE: Final = 60  # columns of what stands beside an outcome
_STATUS: Final = re.compile(r"[0-9]{1,2}|1[0-9]{2}|2[0-4][0-9]|25[0-5]")
_COUNTS: Final = ("graphs", "breaks", "recompiles", "s")
_TIERS: Final[dict[str, Tier]] = {"default": "default", "all": "extended", "next": "next"}


# Without -h: it would be found in any option of the script that has one dash and an h.
_SCRIPTS: Final = {"ignore_unknown_options": True, "help_option_names": ["--help"]}


@app.command("run", context_settings=_SCRIPTS)
def run_command(
    *,
    script: Annotated[Path, typer.Argument(help="A Python script.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(help="Arguments of the script; after -- if ivhl has the same option."),
    ] = None,
    torch: options.Releases = None,
    python: options.Pythons = None,
    requirement: options.With = None,
    expect: options.Expect = None,
    search: options.Search = False,
    network: options.Network = False,
    deadline: options.Deadline = 300.0,
    as_json: options.Json = False,
) -> None:
    """Run a script in each PyTorch release, and name the first that differs.

    --torch also takes a range such as 2.6.0..2.15.0, all, and next. The script runs unmodified, as
    `python SCRIPT` in the current folder. Exit code 7 if the releases differ, or are not as
    expected.
    """
    needs = needs_of(script, requirement or ())
    matrix = shipped_matrix()
    cells = cells_of(matrix, torch or ["default"], python or ())
    to_run = Script(
        path=script, arguments=tuple(arguments or ()), deadline_s=deadline, network=network
    )
    console = Terminal(stderr=True, highlight=False, soft_wrap=True)
    tell_of_network(console, "script", network=network)

    def tell(cell: CellSpec, outcome: ScriptOutcome) -> None:
        took = "again" if outcome.runs > 1 else f"{outcome.seconds:.1f} s"
        console.print(f"{cell.id}: {outcome_text(outcome)}, {took}")

    runs = ScriptRuns(to_run, needs, expected_of(expect or ()), tell)
    try:
        if search:
            for one in dict.fromkeys(cell.python for cell in cells):
                runs.search([cell for cell in cells if cell.python == one])
        else:
            runs.run(sorted(cells, key=lambda cell: Version(cell.torch), reverse=True))
        runs.settle()
    finally:
        # After Ctrl-C, or where a cell cannot be made, what is known is shown all the same.
        if runs.outcomes:
            _show(runs, as_json=as_json)
    if not any(outcome.has_run for outcome in runs.outcomes.values()):
        raise ResultsError(
            "the script ran in no cell",
            hint="see the reasons above; choose other cells with --torch or --python",
        )
    flaky = any(outcome.flaky for outcome in runs.outcomes.values())
    if flaky or runs.boundaries() or any(map(runs.is_unexpected, runs.outcomes)):
        raise typer.Exit(DIFFERS)


def tell_of_network(console: Terminal, what: str, *, network: bool) -> None:
    """Print that the network cannot be left, where that is wanted."""
    if not network and not network_can_be_left():
        console.print(f"this user may not disable the network: the {what} can reach it")


def blame_file(
    to_run: Script,
    torch: str | None,
    python: str | None,
    requirements: Sequence[str],
    *,
    others: Sequence[str],
) -> None:
    """Print which stage of the compiler makes a script end otherwise, and what cures it.

    Raises:
        SpecError: If options of a case are given (``others``).
        ResultsError: If the cell cannot exist.
        typer.Exit: With 7 if a stage does.
    """
    from ivhl.bench.blame import SETTINGS_OF_CPUS  # noqa: PLC0415  (`ivhl run` needs nothing of it)
    from ivhl.tracker.causes.blame import STAGES  # noqa: PLC0415

    if others:
        raise SpecError(
            f"{to_run.path}: is a script, which takes no other option than --python, --torch, "
            f"--with, --network and --deadline (got {' '.join(others)})",
            hint=f"ivhl blame {to_run.path}",
        )
    stages = {str(name): text for name, text in STAGES.items()}
    needs = needs_of(to_run.path, requirements)
    matrix = shipped_matrix()
    cell = cells_of(matrix, [torch or matrix.releases()[-1]], [python] if python else ())[-1]
    console = Terminal(highlight=False, soft_wrap=True)

    def run(change: Mapping[str, Any] | None) -> ScriptOutcome:
        outcome = to_run.run_in(folder, change)
        console.print(f"{cell.id}{changed(change)}: {_in_short(outcome)}", style="bright_black")
        return outcome

    try:
        with needs.cell_in_use(cell) as folder:
            found = blame_script(run, tuple(stages), SETTINGS_OF_CPUS)
    except UnavailableError as error:
        raise ResultsError(f"{cell.id}: {error}", hint="name another --torch") from error
    if not found.stage:
        console.print(f"{cell.id}: no stage can be named: {found.why}")
        return
    console.print(f"{cell.id}: stage {found.stage} ({stages[found.stage]})")
    console.print(f"cured by {', '.join(found.cures) or 'none of its settings'}")
    raise typer.Exit(DIFFERS)


def changed(change: Mapping[str, Any] | None) -> str:
    """Return what is changed of the compiler, as the rest of a sentence."""
    if not change:
        return ""
    if change == OFF:
        return " without the compiler"
    if "backend" in change:
        return f" with {change['backend']}"
    names = [f"{one['field']}={one['value']!r}" for one in change["settings"]]
    return f" with {names[0]}" + (f" and {len(names) - 1} more" if names[1:] else "")


def expected_of(texts: Sequence[str]) -> Wanted | None:
    """Return what counts as good; ``None`` if nothing is said."""
    if not texts:
        return None
    if "" in texts:
        raise SpecError("--expect: must not be empty", hint="e.g. --expect 0, or a printed text")
    endings = {
        f"exit {int(text)}" if _STATUS.fullmatch(text) else text
        for text in texts
        if _STATUS.fullmatch(text) or text.startswith("SIG")
    }
    if len(endings) > 1:
        raise SpecError("--expect: names two exit statuses", hint="name one")
    lines = (text for text in texts if not (_STATUS.fullmatch(text) or text.startswith("SIG")))
    return Wanted(ending=min(endings, default=""), lines=tuple(lines))


def cells_of(matrix: Matrix, releases: Sequence[str], pythons: Sequence[str]) -> list[CellSpec]:
    """Return the cells that are asked for, by Python and release.

    Args:
        matrix: The shipped matrix.
        releases: Releases, ranges, tiers or ``all``, also several with commas between.
        pythons: Empty for the Python that has most of them; of several, the oldest.

    Raises:
        SpecError: If a release or a range is not valid, or is not in the matrix.
        UnknownNameError: If a Python is not in the matrix.
    """
    chosen: dict[str, None] = {}
    pythons = [part.strip() for item in pythons for part in item.split(",")]
    for text in (part.strip() for item in releases for part in item.split(",")):
        chosen.update(dict.fromkeys(_releases_of(matrix, text)))
    if not pythons:

        def locked(python: str) -> int:
            cells = matrix.cells([python], list(chosen))
            return sum(lock_state(SHIPPED, cell).kind == "locked" for cell in cells)

        pythons = [max(matrix.pythons_of("default"), key=locked)]
    return list(matrix.cells(list(pythons), list(chosen)))


def _releases_of(matrix: Matrix, text: str) -> Sequence[str]:
    known = matrix.every_release
    if text in _TIERS:
        if not (releases := matrix.releases(_TIERS[text])):
            raise SpecError(
                f"--torch {text}: envs/matrix.toml has no release of this tier",
                hint="docs/matrix.md says how to add one",
            )
        return releases
    first, dots, last = text.partition("..")
    if not dots:
        release = matrix.release(text)
        if release not in known:
            raise UnknownNameError("PyTorch release", text, known)
        return (release,)
    ends = [Version(matrix.release(end)) for end in (first or known[0], last or known[-1])]
    found = [release for release in known if ends[0] <= Version(release) <= ends[1]]
    if not found:
        reverse = any(ends[1] <= Version(release) <= ends[0] for release in known)
        raise SpecError(
            f"--torch {text}: no release is in this range",
            hint=f"older release first: {last}..{first}" if reverse else f"e.g. {known[0]}..",
        )
    return found


def outcome_text(outcome: ScriptOutcome) -> str:
    """Return how a script ended, in a few words."""
    # An exception ends Python with 1. Above the error of a C++ compiler is its command line.
    text = "" if outcome.exception and outcome.ending == "exit 1" else f"{outcome.ending}, "
    if error := COMPILER_ERROR.search(outcome.message):
        text += f"CppCompileError: {error['text']}"
    else:
        text += ending(outcome) if outcome.exception else outcome.first_line
    text = text.removesuffix(", ")
    number = dynamo_id(outcome.message)
    return text + (f" [{number}]" if number else "") + ", flaky" * outcome.flaky


def _show(runs: ScriptRuns, *, as_json: bool) -> None:
    if as_json:
        print_json(SCHEMA, **_as_json(runs))
        return
    console = Terminal(highlight=False)
    groups = runs.groups()
    ordered = runs.in_order()
    table = Columns("cell", "", "outcome", *_COUNTS)
    for cell in ordered:
        outcome = runs.outcomes[cell]
        found = (outcome.graphs, outcome.graph_breaks, outcome.recompiles)
        numbers = (*("-" if n is None else str(n) for n in found), f"{outcome.seconds:.1f}")
        letter = chr(ord("A") + groups[cell]) if cell in groups else ""
        text = outcome_text(outcome)
        if (
            outcome.exception or outcome.message
        ):  # in one line where there is room: all of it is printed below
            text = shortened(text, max(console.width - _BESIDE, _NARROWEST))
        table.add_row(cell.id, letter, text, *(numbers if letter else ()))
    console.print(table)
    for group in sorted(set(groups.values())):
        cells = [cell for cell in ordered if groups.get(cell) == group]
        _show_output(console, chr(ord("A") + group), runs.outcomes[cells[0]])
    for sentence in sentences(runs):
        console.print(sentence, soft_wrap=True)


def _show_output(console: Terminal, letter: str, outcome: ScriptOutcome) -> None:
    """Print what the script printed in the first cell of a group."""
    message = f"{outcome.exception}: {outcome.message}".splitlines() if outcome.exception else []
    is_silent = not message and outcome.ending != "exit 0"
    errors = without_logs(outcome.errors).strip().splitlines()
    for what, lines in (
        ("raises", [line for line in message if line.strip()]),
        ("prints", outcome.output.strip().splitlines()),
        ("prints on standard error", errors if is_silent else []),
    ):
        if not lines:
            continue
        ends = what != "raises"  # the end of an output says most, and the beginning of a message
        shown = lines[-_SHOWN_LINES:] if ends else lines[:_SHOWN_LINES]
        more = f", the {'last' if ends else 'first'} {_SHOWN_LINES} lines"
        console.print(f"\n{letter} {what}{more if len(lines) > len(shown) else ''}:")
        for line in shown:
            console.print(f"  {line[:200]}", soft_wrap=True)


def sentences(runs: ScriptRuns) -> list[str]:
    """Return what the outcomes say: where they change, or that they are alike."""
    found = []
    flaky = [cell.id for cell, outcome in runs.outcomes.items() if outcome.flaky]
    if flaky:
        found.append(f"flaky, so no verdict: two runs differ in {', '.join(flaky)}")
    for one, other in runs.boundaries():
        pair = runs.outcomes[one], runs.outcomes[other]
        ends = (_in_short(*pair), _in_short(*reversed(pair)))
        left_out = ", ".join(cell.torch for cell in runs.not_run(one, other))
        more = f" ({left_out} not run)" if left_out else ""
        found.append(f"{one.id} and {other.id} differ{more}: {' | '.join(ends)}")
    ran = sum(outcome.has_run for outcome in runs.outcomes.values())
    if ran > 1 and not runs.boundaries() and not flaky:
        found.append(f"alike in {counted(ran, 'cell')}")
    known = [(c, cell.id) for cell in runs.in_order() for c in _known(cell, runs.outcomes[cell])]
    for cause, alike in grouped_by(known, itemgetter(0)).items():
        found.append(f"known: {cause}: {', '.join(cell for _, cell in alike)}")
    unmet = [cell.id for cell in runs.in_order() if runs.is_unexpected(cell)]
    if unmet:
        found.append(f"not as expected: {', '.join(unmet)}")
    return found


def _known(cell: CellSpec, outcome: ScriptOutcome) -> list[str]:
    return [str(cause) for cause in causes_in(cell, "", outcome.message)]


def _in_short(outcome: ScriptOutcome, other: ScriptOutcome | None = None) -> str:
    """Return how a script ended; if it raised nothing, the last line that another did not print."""
    lines = outcome.output.strip().splitlines()
    text = outcome_text(outcome)
    if lines and not outcome.exception:
        others = other.output.splitlines() if other else ()
        own = [line for line in lines if line not in others] or lines
        text += f", prints {own[-1]}"
    return shortened(text, _LONGEST)


def _as_json(runs: ScriptRuns) -> dict[str, object]:
    groups = runs.groups()
    return {
        "cells": [
            {
                "cell": cell.id,
                "python": cell.python,
                "torch": cell.torch,
                "group": groups.get(cell),
                "outcome": dataclasses.asdict(runs.outcomes[cell]),
                "known": _known(cell, runs.outcomes[cell]),
            }
            for cell in runs.in_order()
        ],
        "differences": [[one.id, other.id] for one, other in runs.boundaries()],
        "unexpected": [cell.id for cell in runs.in_order() if runs.is_unexpected(cell)],
    }
