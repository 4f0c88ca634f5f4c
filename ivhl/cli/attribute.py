"""``ivhl attribute``: whose doing a difference between two cells is."""

from __future__ import annotations

import os
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from ivhl.bench.attribution import RecordedLocks, measure_corners, measure_swap
from ivhl.bench.experiment import Runs
from ivhl.bench.request import Request
from ivhl.bench.selection import named_case
from ivhl.cli import app, options
from ivhl.cli.declared import declared, folder_to_write, results_folder, warn, warn_unread
from ivhl.cli.screen import print_json
from ivhl.errors import LockError, ResultsError, SpecError, UnknownNameError
from ivhl.git import commits_of_same_code, find_commit
from ivhl.machine.identity import this_machine
from ivhl.matrix.locks import lock_state
from ivhl.matrix.project import load
from ivhl.matrix.spec import CellSpec
from ivhl.matrix.swap import swap_package
from ivhl.measure.flags import parse_flag
from ivhl.tracker.causes.attribution import (
    FACTOR_WORDS,
    Treatment,
    attribute,
    complete,
    corners_of,
    factors_of,
    judge_together,
    not_matched,
    overall,
    overall_local,
)
from ivhl.tracker.causes.interaction import at_each_setting, is_everywhere, reported
from ivhl.tracker.changes.comparable import builds_beside
from ivhl.tracker.store.entries import code_of
from ivhl.tracker.store.index import open_index
from ivhl.tracker.store.records import case_name
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.wording import counted, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from ivhl.matrix.spec import Matrix
    from ivhl.records.record import RunRecord
    from ivhl.tracker.causes.attribution import Attributed, Corner
    from ivhl.tracker.causes.effects import Effect, Factor, Held
    from ivhl.tracker.store.entries import Entry
    from ivhl.tracker.store.index import Index
    from ivhl.tracker.store.metrics import Metric

_NAMED = 3  # of cases that fail alike
_LONGEST = 120  # characters of an outcome
# Packages that torch requires, and that no eager kernel of a CPU calls.
_BESIDE_EAGER = {
    *("filelock", "fsspec", "jinja2", "markupsafe", "mpmath", "networkx", "setuptools", "sympy"),
    *("triton", "typing-extensions"),
}
_STYLES = {"slower": "red", "faster": "green"}


@app.command("attribute")
def attribute_command(
    first: Annotated[
        str, typer.Argument(metavar="A", help="A cell, e.g. py3.12-torch2.6.0, or CELL@COMMIT.")
    ],
    last: Annotated[
        str | None,
        typer.Argument(
            metavar="B", help="Another one; none with --swap, none or one with --flag."
        ),
    ] = None,
    case: options.Cases = None,
    rounds: options.Rounds = None,
    machine: options.OneMachine = None,
    results: options.Results = None,
    swap: options.Swap = None,
    flag: options.Flags = None,
    *,
    every: options.Every = False,
    as_json: options.Json = False,
) -> None:
    """Say whether Python, PyTorch, a package, flags or the commit is the cause.

    Uses a factorial: both cells, and those with one axis of each. Cells that differ in what is
    installed beyond these axes are refused.
    """
    root, matrix = load()
    console = Terminal(stderr=as_json, highlight=False, soft_wrap=True)
    cases = _cases(root, case or ())
    if rounds and not cases:
        raise SpecError("--rounds: needs --case", hint="name the cases to measure")
    installed = RecordedLocks(root, matrix)
    pairs: list[tuple[RunRecord, RunRecord]] = []
    flags = _flags(flag or (), rounds or 0, swap)
    if (last is None and not flags) != (swap is not None):
        raise SpecError(
            "needs a second cell, or --swap, or --flag; --swap and a second cell not both",
            hint="ivhl attribute --help",
        )
    if rounds:
        here = this_machine(machine or os.uname().nodename).name
        folder = folder_to_write(results or root / "results")
        request = Request(root=root, python=matrix.pythons[0], machine=here, results=folder)
        ends, found = _measured(
            Runs(request, console), matrix, (first, last or first, swap, flags), cases, rounds,
            lambda records: pairs.extend(_pairs(records)),
        )  # fmt: skip
        factors, corners = _factorial(*ends)
    else:
        index = open_index(results_folder(results, root))
        warn_unread(index.problems, results)
        _check_machine(machine, index)
        entries = [
            entry
            for entry in index.entries
            if entry.case.machine == (machine or entry.case.machine)
            and not entry.case.existing
            and (not cases or case_name(entry.case) in cases)
        ]
        ends, tables = _from_records(root, matrix, (first, last or first), index, entries)
        factors, corners = _factorial(*ends)
        reasons = {key: not_matched(one, factors, installed) for key, one in tables.items()}
        pairs += [pair for one in tables.values() for pair in _pairs(one.values())]
        if tables and all(reasons.values()):
            _refuse(next(iter(reasons.values())))
        found = [
            attribute(one, factors, index.spreads)
            for key, one in tables.items()
            if not reasons[key]
        ]
        if left := {key: why for key, why in reasons.items() if why}:
            warn(f"left out: {' '.join(key)}: {why[0]}" for key, why in left.items())
    found = judge_together(found)
    if as_json:
        print_json("ivhl.attribution/1", **_as_dict(ends, factors, found))
    else:
        for text in builds_beside(pairs):
            console.print(text)
        _print(console, ends, factors, corners, found, every=every or bool(case))
    _refuse_nothing(found if rounds else None, factors)


def _pairs(records: Iterable[RunRecord]) -> Iterator[tuple[RunRecord, RunRecord]]:
    """Yield the pairs of corners on two Pythons, that of the first cell first."""
    for one, other in combinations(records, 2):
        if one.cell.python != other.cell.python:
            yield one, other


def _measured(
    runs: Runs,
    matrix: Matrix,
    asked: tuple[str, str, str | None, tuple[str, ...]],
    cases: Sequence[str],
    rounds: int,
    seen: Callable[[Collection[RunRecord]], None],
) -> tuple[tuple[Treatment, Treatment], list[Attributed]]:
    """Measure both ends and what lies between; return them, and whose doing a difference is.

    Args:
        runs: Measures.
        matrix: Has the cells.
        asked: Both cells, the package that is swapped, and the flags.
        cases: Names of cases.
        rounds: How often.
        seen: Is given the records of all corners of a case.
    """
    (first, last, swap, flags), root = asked, runs.request.root
    head = find_commit(root, "HEAD")
    end = _ends(root, matrix, first, head)
    if swap is not None:
        swapped = swap_package(root, matrix, lock_state(root, CellSpec(*end[:2])), swap)
        ends = end._replace(package=swapped.before), end._replace(package=swapped.after)
        return ends, measure_swap(runs, swapped, ends, cases, rounds=rounds)
    ends = end, _ends(root, matrix, last, head)._replace(flags=flags)
    factors, _ = _factorial(*ends)

    def check(records: Mapping[Corner, RunRecord]) -> None:
        _refuse(not_matched(records, factors, RecordedLocks(root, matrix)))
        seen(records.values())

    return ends, measure_corners(runs, ends, cases, rounds=rounds, check=check)


def _flags(texts: Sequence[str], rounds: int, swap: str | None) -> tuple[str, ...]:
    """Return the flags of the second cell, each as it is written in records.

    Raises:
        SpecError: If one is none, or they cannot be measured.
    """
    if swap is not None and not rounds:
        raise SpecError(
            "--swap: needs --case and --rounds: no record is of a swapped package",
            hint="--case NAME --rounds 3",
        )
    if texts and (swap is not None or not rounds):
        raise SpecError(
            "--flag: not with --swap"
            if rounds
            else "--flag: needs --case and --rounds: no record is of changed flags",
            hint="swap a package, or set a flag" if rounds else "--case NAME --rounds 3",
        )
    return tuple(str(parse_flag(text)) for text in texts)


def _check_machine(machine: str | None, index: Index) -> None:
    """Raise if no record is of a machine.

    Raises:
        UnknownNameError: Names those that have records.
    """
    known = {entry.case.machine for entry in index.entries}
    if machine is not None and machine not in known:
        raise UnknownNameError("machine", machine, known)


def _factorial(first: Treatment, last: Treatment) -> tuple[tuple[Factor, ...], tuple[Corner, ...]]:
    factors = factors_of(first, last)
    if not factors:
        raise SpecError(
            "both cells are the same",
            hint="name two that differ in Python, PyTorch or commit: CELL@COMMIT; or --flag",
        )
    return factors, corners_of(first, last)


def _ends(root: Path, matrix: Matrix, text: str, commit: str) -> Treatment:
    """Return the cell and commit that a text names.

    Args:
        root: Root of the project.
        matrix: Has the cell.
        text: ``CELL`` or ``CELL@COMMIT``.
        commit: Full hash, for a text without one.

    Raises:
        UnknownNameError: If the matrix has no such cell.
        SpecError: If git has no such commit.
    """
    cell_id, _, named = text.partition("@")
    cell = matrix.cell(cell_id)
    return Treatment(cell.python, cell.torch, find_commit(root, named) if named else commit)


def _from_records(
    root: Path, matrix: Matrix, texts: tuple[str, str], index: Index, entries: Sequence[Entry]
) -> tuple[tuple[Treatment, Treatment], dict[tuple[str, str, str], dict[Corner, RunRecord]]]:
    """Return both ends, and the records of the cases that every corner has.

    Without a commit, it is the one of which most cases were measured in all corners, there or at
    another commit with the same code of the case; of several, the newest.

    Raises:
        ResultsError: If there is no such case; names the corners without records.
    """
    named = any("@" in text for text in texts)
    commit = find_commit(root, "HEAD") if named else ""
    first, last = (_ends(root, matrix, text, commit) for text in texts)
    _, corners = _factorial(first, last)
    if named:
        hashes = {entry.commit for entry in entries}
        same = {
            like: corner.at.commit
            for corner in corners
            for like in commits_of_same_code(root, corner.at.commit, hashes)
        }
    else:
        commit, entries = _of_best_commit(corners, entries)
        first, last = first._replace(commit=commit), last._replace(commit=commit)
        _, corners = _factorial(first, last)
        same = {entry.commit: commit for entry in entries}
    places = {corner.at for corner in corners}
    mine = [e for e in entries if Treatment(e.python, e.torch, same.get(e.commit, "")) in places]
    tables = complete(index.read(mine), corners, same)
    if not tables:
        there = {Treatment(e.python, e.torch, same[e.commit]) for e in mine}
        lacking = [
            f"py{at.python}-torch{at.torch}{f' at {at.commit[:8]}' if named else ''}"
            for at in sorted(places - there)
        ]
        never = [
            cell.id
            for cell in dict.fromkeys(CellSpec(at.python, at.torch) for at in sorted(places))
            if lock_state(root, cell).kind == "unavailable"
        ]
        raise ResultsError(
            "no case has records in all cells of the factorial"
            + (f"; none in {', '.join(lacking)}" if lacking else ""),
            hint=f"{', '.join(never)} cannot be installed: name cells that differ in one axis, or "
            "whose other corners can be"
            if never
            else "ivhl attribute ... --case NAME --rounds 3 measures them",
        )
    return (first, last), tables


def _of_best_commit(
    corners: Sequence[Corner], entries: Sequence[Entry]
) -> tuple[str, list[Entry]]:
    """Return the commit of which most cases have records in all cells, and the records of its code.

    A record counts for each commit at which the case has the same code. Empty if there is none.
    """
    cells = {(corner.at.python, corner.at.torch) for corner in corners}
    entries = [e for e in entries if (e.python, e.torch) in cells]
    codes: dict[str, set[tuple[object, ...]]] = defaultdict(set)
    for e in entries:
        codes[e.commit].add(_code_of(e))
    best, found, most = "", [], (-1, "")
    for commit, mine in codes.items():
        # What failed early may not say its code.
        alike = [e for e in entries if e.commit == commit or _code_of(e) in mine]
        there: dict[tuple[str, ...], set[tuple[str, str]]] = defaultdict(set)
        for e in alike:
            there[e.case.machine, e.case.device, case_name(e.case)].add((e.python, e.torch))
        newest = max(e.recorded_at for e in alike if e.commit == commit)
        size = sum(places == cells for places in there.values()), newest
        if size > most:
            best, found, most = commit, alike, size
    return best, found


def _code_of(entry: Entry) -> tuple[object, ...]:
    """Return a case on a machine with its code."""
    case = entry.case
    return case.machine, case.device, case_name(case), entry.dtype, code_of(entry)


def _cases(root: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Return the full names of cases; a workload stands for its core variant."""
    workloads = declared(root) if names else ()
    return tuple(dict.fromkeys(named_case(workloads, name, "cpu").name for name in names))


def _refuse(reasons: Sequence[str]) -> None:
    """Raise if cells are not matched.

    Raises:
        LockError: With every difference.
    """
    if reasons:
        shown = "\n  ".join(reasons)
        raise LockError(
            f"these cells are not matched:\n  {shown}",
            hint="compare cells that differ in the axes alone: ivhl matrix A B",
        )


def _refuse_nothing(measured: Sequence[Attributed] | None, factors: Sequence[Factor]) -> None:
    """Raise if what was measured, if anything was, says nothing.

    Raises:
        ResultsError: If each case fails in all cells, in the same way.
    """
    if measured is not None and not any(one.effects or one.whose(factors) for one in measured):
        raise ResultsError(
            "nothing is attributed: each case fails alike in all cells",
            hint="ivhl try shows more of a case in a cell",
        )


def _named(ends: tuple[Treatment, Treatment], factors: Sequence[Factor]) -> str:
    """Return the axes of an effect, e.g. ``PyTorch 2.5.1 -> 2.6.0``."""
    texts = []
    for factor in factors:
        was, now = (_value(end, factor) for end in ends)
        texts.append(f"{FACTOR_WORDS[factor].removeprefix('the ')} {was} -> {now}")
    joined = " with ".join(texts)
    return joined if len(texts) == 1 else f"{joined}, beyond each"


def _print(
    console: Terminal,
    ends: tuple[Treatment, Treatment],
    factors: Sequence[Factor],
    corners: Sequence[Corner],
    found: Sequence[Attributed],
    *,
    every: bool,
) -> None:
    groups: dict[tuple[str, str], list[Attributed]] = {}
    for one in found:
        groups.setdefault((one.machine, one.device), []).append(one)
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
        _warn_of_disturbance(console, group)
        if hidden := len(group) - shown:
            console.print(f"{counted(hidden, 'case')} that nothing moved: --all")


def _warn_of_disturbance(console: Terminal, found: Sequence[Attributed]) -> None:
    """Say that runs were disturbed if eager code moved with what cannot reach it."""
    packages = {corner.at.package.partition("==")[0] for one in found for corner in one.outcomes}
    idle = {"flags": "compiler flag"}
    if packages <= _BESIDE_EAGER:
        idle["package"] = f"version of {', '.join(packages)}"
    moved = {
        factor
        for one in found
        for effect in one.effects
        for factor in effect.factors
        if effect.metric == "eager" and effect.word in _STYLES
    }
    for factor in idle.keys() & moved:
        console.print(
            f"no {idle[factor]} moves eager code, and eager moved with it: these runs were "
            "disturbed; measure again, with more --rounds"
        )


def _print_outcomes(console: Terminal, whose: str, alike: Sequence[Attributed]) -> None:
    """Print cases that fail in the same corners in the same way."""
    names = ", ".join(one.case for one in alike[:_NAMED])
    if len(alike) > _NAMED:
        names += f" and {len(alike) - _NAMED} more"
    console.print(Text(f"  {names}"))
    if whose:
        console.print(f"    {whose}")
    outcomes = alike[0].outcomes
    n_commits = len({corner.at.commit for corner in outcomes})
    for corner, outcome in outcomes.items():
        at = corner.at
        commit = f"@{at.commit[:8]}" if n_commits > 1 else ""
        swapped = "".join(f" with {one}" for one in (at.package, *at.flags) if one)
        where = f"py{at.python}-torch{at.torch}{commit}{swapped}"
        console.print(Text(f"    {where}: {shortened(outcome, _LONGEST)}", "bright_black"))


def _print_effects(
    console: Terminal,
    ends: tuple[Treatment, Treatment],
    effects: Sequence[Effect],
    local: Sequence[Effect],
    indent: str,
) -> None:
    by: dict[tuple[tuple[Factor, ...], Held], list[Effect]] = {}
    for effect in effects:
        # What an axis does at several settings of the others is said in one line.
        by.setdefault((effect.factors, () if effect.factors else effect.held), []).append(effect)
    for (names, held), group in by.items():
        styles = {_STYLES[e.word] for e in group if e.word in _STYLES}
        of_metric: dict[Metric, list[str]] = {}
        for effect in group:
            of_metric.setdefault(effect.metric, []).append(_text(ends, effect, local))
        texts = "; ".join(f"{metric} {', '.join(each)}" for metric, each in of_metric.items())
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
    return " with ".join(
        f"{FACTOR_WORDS[factor].removeprefix('the ')} {_value(ends[on], factor)}"
        for factor, on in held
    )


def _value(end: Treatment, factor: Factor) -> str:
    if factor == "commit":
        return end.commit[:8]
    return " ".join(end.flags) or "none" if factor == "flags" else str(getattr(end, factor))


def _as_dict(
    ends: tuple[Treatment, Treatment], factors: Sequence[Factor], found: Sequence[Attributed]
) -> dict[str, Any]:
    def effect_of(effect: Effect) -> dict[str, Any]:
        return {**effect._asdict(), "word": effect.word}

    return {
        "first": ends[0]._asdict(),
        "last": ends[1]._asdict(),
        "factors": list(factors),
        "overall": [effect_of(e) for e in overall(found)],
        "cases": [
            {
                "machine": one.machine,
                "device": one.device,
                "case": one.case,
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
