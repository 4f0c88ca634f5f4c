"""``ivhl attribute``: whose doing a difference between two cells is."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.text import Text

from ivhl.bench.attribution import RecordedLocks, measure_corners
from ivhl.bench.experiment import Runs
from ivhl.bench.request import Request
from ivhl.cli import app, options
from ivhl.cli.declared import declared, folder_to_write, results_folder, warn, warn_unread
from ivhl.cli.names import find_case, find_cell, narrow
from ivhl.cli.screen import picked, print_json, screen
from ivhl.errors import LockError, ResultsError, SpecError
from ivhl.git import find_commit
from ivhl.machine.identity import this_machine
from ivhl.matrix.project import load
from ivhl.measure.flags import parse_flag
from ivhl.tracker.causes.attribution import (
    FACTOR_WORDS,
    Treatment,
    at_each_setting,
    attribute,
    disturbed_by,
    factorial,
    is_everywhere,
    judge_together,
    not_matched,
    overall,
    overall_local,
    recorded_corners,
    reported,
)
from ivhl.tracker.changes.comparable import builds_beside
from ivhl.tracker.store.index import open_index
from ivhl.tracker.store.records import case_name, grouped_by
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.wording import counted, shortened, some

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from ivhl.matrix.spec import Matrix
    from ivhl.records.record import RunRecord
    from ivhl.tracker.causes.attribution import Attributed, Corner, Effect, Factor, Held

_NAMED = 3  # of cases that fail alike
_LONGEST = 120  # characters of an outcome
_STYLES = {"slower": "red", "faster": "green"}


@app.command("attribute")
def attribute_command(
    first: Annotated[
        str, typer.Argument(metavar="A", help="A cell, e.g. py3.12-torch2.6.0, or CELL@COMMIT.")
    ],
    last: Annotated[
        str | None,
        typer.Argument(metavar="B", help="Another cell; optional with --flag."),
    ] = None,
    case: options.Cases = None,
    rounds: options.Rounds = None,
    machine: options.OneMachine = None,
    results: options.Results = None,
    flag: options.Flags = None,
    *,
    every: options.Every = False,
    as_json: options.Json = False,
) -> None:
    """Say whether Python, PyTorch, flags or the commit is the cause.

    Uses a factorial: both cells, and those with one axis of each. Cells that differ in what is
    installed beyond these axes are refused.
    """
    root, matrix = load()
    console = Terminal(stderr=as_json, highlight=False, soft_wrap=True)
    workloads = declared(root) if case else ()
    cases = tuple(dict.fromkeys(find_case(workloads, text, "cpu").name for text in case or ()))
    if rounds and not cases:
        raise SpecError("--rounds: needs --case", hint="name the cases to measure")
    if flag and not rounds:
        raise SpecError(
            "--flag: needs --case and --rounds, since no record has these flags",
            hint="--case NAME --rounds 3",
        )
    flags = tuple(str(parse_flag(text)) for text in flag or ())
    if last is None and not flags:
        raise SpecError("needs a second cell, or --flag", hint="ivhl attribute --help")
    if rounds:
        here = this_machine(machine).name
        folder = folder_to_write(results or root / "results")
        request = Request(root=root, python=matrix.pythons[0], machine=here, results=folder)
        runs = Runs(request, console)
        done = _measured(runs, matrix, (first, last or first), flags, cases, rounds)
    else:
        done = _recorded(root, matrix, (first, last or first), cases, machine, results)
    done = done._replace(found=judge_together(done.found))
    if as_json:
        print_json("ivhl.attribution/1", **_as_dict(done))
    else:
        with screen(every=every) as shown:
            for text in builds_beside(done.pairs):
                shown.print(text)
            _print(shown, done, every=every or bool(case))
    if rounds and not any(one.effects or one.whose(done.factors) for one in done.found):
        raise ResultsError(
            "nothing to attribute: each case fails in the same way in all cells",
            hint="ivhl try shows details of a case in a cell",
        )


class _Factorial(NamedTuple):
    """Both cells, the axes and design points between them, and what is found of each case.

    Attributes:
        pairs: Records of one case on two Pythons, that of the first cell first.
    """

    ends: tuple[Treatment, Treatment]
    factors: tuple[Factor, ...]
    corners: tuple[Corner, ...]
    found: list[Attributed]
    pairs: list[tuple[RunRecord, RunRecord]]


def _pairs(records: Iterable[RunRecord]) -> list[tuple[RunRecord, RunRecord]]:
    """Return the pairs of records on two Pythons, that of the first cell first."""
    pairs = combinations(records, 2)
    return [(one, other) for one, other in pairs if one.cell.python != other.cell.python]


def _measured(
    runs: Runs,
    matrix: Matrix,
    texts: tuple[str, str],
    flags: tuple[str, ...],
    cases: Sequence[str],
    rounds: int,
) -> _Factorial:
    """Measure both ends and what lies between."""
    root = runs.request.root
    head = find_commit(root, "HEAD")
    first, last = (_end(root, matrix, text, head) for text in texts)
    pairs: list[tuple[RunRecord, RunRecord]] = []
    ends = first, last._replace(flags=flags)
    factors, corners = factorial(*ends)

    def check(records: Mapping[Corner, RunRecord]) -> None:
        _refuse(not_matched(records, factors, RecordedLocks(root, matrix)))
        pairs.extend(_pairs(records.values()))

    found = measure_corners(runs, ends, cases, rounds=rounds, check=check)
    return _Factorial(ends, factors, corners, found, pairs)


def _recorded(
    root: Path,
    matrix: Matrix,
    texts: tuple[str, str],
    cases: Collection[str],
    machine: str | None,
    results: Path | None,
) -> _Factorial:
    """Return what the records say.

    Raises:
        UnknownNameError: If no record is of the machine.
    """
    index = open_index(results_folder(results, root))
    warn_unread(index.problems, results)
    entries = [
        entry
        for entry in narrow(index.entries, None, machine=machine)
        if not entry.case.existing and (not cases or case_name(entry.case) in cases)
    ]
    named = any("@" in text for text in texts)
    commit = find_commit(root, "HEAD") if named else ""
    first, last = (_end(root, matrix, text, commit) for text in texts)
    ends, tables = recorded_corners(root, (first, last), index, entries, named=named)
    factors, corners = factorial(*ends)
    installed = RecordedLocks(root, matrix)
    reasons = {key: not_matched(one, factors, installed) for key, one in tables.items()}
    if all(reasons.values()):
        _refuse(next(iter(reasons.values())))
    warn(f"left out: {' '.join(key)}: {why[0]}" for key, why in reasons.items() if why)
    kept = [one for key, one in tables.items() if not reasons[key]]
    found = [attribute(one, factors, index.spreads) for one in kept]
    pairs = [pair for one in tables.values() for pair in _pairs(one.values())]
    return _Factorial(ends, factors, corners, found, pairs)


def _end(root: Path, matrix: Matrix, text: str, commit: str) -> Treatment:
    """Return the cell and commit that a text names.

    Args:
        root: Root of the project.
        matrix: Has the cell.
        text: ``CELL`` or ``CELL@COMMIT``.
        commit: Full hash, for a text without one.

    Raises:
        UnknownNameError: If the matrix has no such cell.
        SpecError: If several cells are meant, or git has no such commit.
    """
    cell_id, _, named = text.partition("@")
    cell = find_cell(matrix, cell_id)
    return Treatment(cell.python, cell.torch, find_commit(root, named) if named else commit)


def _refuse(reasons: Sequence[str]) -> None:
    """Raise if cells are not matched.

    Raises:
        LockError: With every difference.
    """
    if reasons:
        shown = "\n  ".join(reasons)
        raise LockError(
            f"these cells are not matched:\n  {shown}",
            hint="compare cells that differ only in the axes: ivhl matrix A B",
        )


def _named(ends: tuple[Treatment, Treatment], factors: Sequence[Factor]) -> str:
    """Return the axes of an effect, e.g. ``PyTorch 2.5.1 -> 2.6.0``."""
    first, last = ends
    joined = " with ".join(
        f"{_word(factor)} {_value(first, factor)} -> {_value(last, factor)}" for factor in factors
    )
    return joined if len(factors) == 1 else f"{joined}, beyond each"


def _word(factor: Factor) -> str:
    return FACTOR_WORDS[factor].removeprefix("the ")


def _print(console: Terminal, done: _Factorial, *, every: bool) -> None:
    ends, factors, corners, found, _ = done
    groups = grouped_by(found, lambda one: (one.machine, one.device))
    commits = {corner.at.commit[:8] for corner in corners}
    for (machine, device), group in groups.items():
        measured = [one for one in group if one.effects]
        head = (
            f"{machine}, {device}, commit {' and '.join(sorted(commits))}: "
            f"{counted(len(group), 'case')} in {counted(len(corners), 'cell')}, {len(measured)} "
            "measured in all of them"
        )
        console.print(Text(head, "bold"))
        means = overall(measured), overall_local(measured)
        _print_effects(console, ends, reported(*means), means[1], "  ")
        failed: dict[tuple[str, tuple[str, ...]], list[Attributed]] = {}
        shown = 0
        for one in group:
            shown_effects = reported(one.effects, one.local)
            moving = {(e.factors, e.metric) for e in shown_effects if e.word in _STYLES}
            # What an axis does not do at one setting is half of what it does at another.
            moved = [e for e in shown_effects if (e.factors, e.metric) in moving]
            whose = one.whose(factors)
            if not one.effects and (every or whose):
                failed.setdefault((whose, tuple(one.outcomes.values())), []).append(one)
            elif every or moved:
                shown += 1
                console.print(Text(f"  {one.case}"))
                listed = shown_effects if every else moved
                _print_effects(console, ends, listed, one.local, "    ")
        for (whose, _), alike in failed.items():
            shown += len(alike)
            _print_outcomes(console, whose, alike)
        for text in disturbed_by(group):
            console.print(text)
        if hidden := len(group) - shown:
            console.print(f"{counted(hidden, 'case')} without a change: --all")


def _print_outcomes(console: Terminal, whose: str, alike: Sequence[Attributed]) -> None:
    """Print cases that fail in the same corners in the same way."""
    console.print(Text(f"  {some([one.case for one in alike], _NAMED)}"))
    if whose:
        console.print(f"    {whose}")
    outcomes = alike[0].outcomes
    n_commits = len({corner.at.commit for corner in outcomes})
    for corner, outcome in outcomes.items():
        at = corner.at
        commit = f"@{at.commit[:8]}" if n_commits > 1 else ""
        changed = "".join(f" with {one}" for one in at.flags)
        where = f"py{at.python}-torch{at.torch}{commit}{changed}"
        console.print(Text(f"    {where}: {shortened(outcome, _LONGEST)}", "bright_black"))


def _print_effects(
    console: Terminal,
    ends: tuple[Treatment, Treatment],
    effects: Sequence[Effect],
    local: Sequence[Effect],
    indent: str,
) -> None:
    # One line has the effects of an axis at all settings of the other axes.
    by = grouped_by(effects, lambda one: (one.factors, () if one.factors else one.held))
    for (names, held), group in by.items():
        styles = {_STYLES[e.word] for e in group if e.word in _STYLES}
        texts = "; ".join(
            f"{metric} {', '.join(_text(ends, effect, local) for effect in each)}"
            for metric, each in grouped_by(group, lambda effect: effect.metric).items()
        )
        where = _named(ends, names) if names else f"only on {_held(ends, held)}"
        console.print(Text(f"{indent}{where}: {texts}", next(iter(sorted(styles)), "")))


def _text(ends: tuple[Treatment, Treatment], effect: Effect, local: Sequence[Effect]) -> str:
    """Return an effect in words, and where it is, without its quantity.

    Of a mean over cells that moved, also what it is in each.
    """
    size = str(effect).removeprefix(f"{effect.metric} ")
    if effect.held:
        return f"on {_held(ends, effect.held)} {size}" if effect.factors else size
    each = at_each_setting(effect, local)
    if not each or effect.word not in _STYLES:
        return size
    parts = ", ".join(f"{one.ratio:.2f}x on {_held(ends, one.held)}" for one in each)
    return f"{size}{'' if is_everywhere(effect, local) else ' on average'} ({parts})"


def _held(ends: tuple[Treatment, Treatment], held: Held) -> str:
    """Return settings of axes in words, e.g. ``Python 3.13 with PyTorch 2.6.0``."""
    return " with ".join(f"{_word(factor)} {_value(ends[on], factor)}" for factor, on in held)


def _value(end: Treatment, factor: Factor) -> str:
    if factor == "commit":
        return end.commit[:8]
    return " ".join(end.flags) or "none" if factor == "flags" else str(getattr(end, factor))


def _as_dict(done: _Factorial) -> dict[str, Any]:
    ends, factors, _, found, _ = done

    def effect_of(effect: Effect) -> dict[str, Any]:
        return {**effect._asdict(), "word": effect.word}

    return {
        "first": ends[0]._asdict(),
        "last": ends[1]._asdict(),
        "factors": list(factors),
        "overall": [effect_of(e) for e in overall(found)],
        "cases": [
            {
                **picked(one, "machine device case"),
                "whose": one.whose(factors),
                "outcomes": [
                    {**corner.at._asdict(), "outcome": text}
                    for corner, text in one.outcomes.items()
                ],
                "effects": [effect_of(e) for e in one.effects],
                "local": [effect_of(e) for e in one.local],
                "reported": [effect_of(e) for e in reported(one.effects, one.local)],
            }
            for one in found
        ],
    }
