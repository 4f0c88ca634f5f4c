"""``ivhl compare``: two commits, releases, Pythons, machines or stored results, case by case."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from itertools import chain, product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.text import Text

from ivhl.cli import app, options
from ivhl.cli.declared import (
    check_any,
    known_changes,
    matrix_beside_records,
    results_folder,
    warn_unread,
)
from ivhl.cli.names import RELEASE, commands_of, narrow, recorded, the_one
from ivhl.cli.screen import fold, give, picked, screen
from ivhl.errors import ResultsError, SpecError, UnknownNameError
from ivhl.git import commits_of_same_code, find_commit
from ivhl.matrix.project import find_root
from ivhl.matrix.spec import Matrix, newest_of
from ivhl.records.identity import titles_of
from ivhl.records.text import printable
from ivhl.tracker.changes.comparable import Axis, builds_beside
from ivhl.tracker.changes.compare import (
    axis_of,
    choose,
    compare,
    disturbed_cases,
    summarise,
    values_of,
)
from ivhl.tracker.changes.disturbed import disturbed_keys
from ivhl.tracker.changes.incidents import changes_between, counts_of
from ivhl.tracker.changes.kinds import BETTER, KINDS, WORSE, CaseChange
from ivhl.tracker.store.index import Index, open_index
from ivhl.tracker.store.metrics import WORDS
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.wording import counted, some

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ivhl.tracker.changes.compare import Comparison, Mean, Summary
    from ivhl.tracker.store.entries import Entry


_SORTS: dict[Axis, str] = {
    "torch": RELEASE, "python": "Python", "machine": "machine", "commit": "commit",
    "results": "folder",
}  # fmt: skip
# Kinds of which only the number is printed, unless all are asked for.
_HIDDEN = ("unchanged", "new", "missing", "incomparable", "inconclusive")
_LISTED = 2  # cases of a kind, unless all are asked for
_PLACES = 3  # with most cases, or named of those on one side only; unless all are asked for
_HINT = (
    "both must be commits, or PyTorch releases, Pythons or machines with records (ivhl results), or "
    "folders of results"
)


@app.command("compare")
@options.choosing()
def compare_command(
    before: Annotated[
        str, typer.Argument(help="A commit, PyTorch release, Python, machine or results folder.")
    ],
    after: Annotated[str, typer.Argument(help="A second one of the same kind.")],
    *,
    asked: options.Asked,
) -> None:
    """Compare two commits, PyTorch releases, Pythons, machines or folders of results.

    Means are over the cases that ran on both sides; what fails, is fixed, new or missing is listed.
    --output writes .csv or .json.
    """
    names = before, after
    root = find_root()
    folder = results_folder(asked.results, root)
    index = open_index(folder)
    if is_folders := all(Path(name).is_dir() for name in names):
        _check_apart("results", names, *(Path(name).resolve() for name in names))
    places = [Path(name) for name in names] if is_folders else [folder]
    indices = [open_index(place) for place in places] if is_folders else [index]
    unread = chain.from_iterable(one.problems for one in indices)
    warn_unread(unread, *(places if is_folders else [asked.results]))
    for one, place in zip(indices, places, strict=True):
        check_any(one, place)
    matrix = matrix_beside_records(root)
    kept = narrow([entry for one in indices for entry in one.entries], matrix, **asked.chosen)
    axis: Axis = "results"
    was: Sequence[Entry] = indices[0].entries
    now: Sequence[Entry] = indices[-1].entries
    if not is_folders:
        axis, was, now = _sides(root, matrix, index, names, kept)
    old, new = indices[0].read(was), indices[-1].read(now)
    # Judged beside all others, so that a case is the same whatever is asked for.
    wanted = {entry.case.along(axis) for entry in kept}
    disturbed = disturbed_keys(indices[0].entries), disturbed_keys(indices[-1].entries)
    every_case = compare(old, new, axis, index.spreads, disturbed)
    found = tuple(one for one in every_case if one.case in wanted)
    if not found:
        raise ResultsError(
            f"neither {before} nor {after} has a record here",
            hint="ivhl results lists the records; ivhl bench measures",
        )
    summaries = summarise(found)
    first = next((r.cell.torch if axis == "torch" else r.cell.python for r in old), "")
    changes = changes_between(found, old, axis, first)
    known = known_changes(folder, root)
    cause, cause_better = (
        known.causes([one for one in changes if one.kind in kinds]) for kinds in (WORSE, BETTER)
    )
    if asked.is_for_programs:
        values = _as_dict(summaries, found)
        give(
            "ivhl.comparison/1", asked.output, map(_as_row, found),
            axis=axis, cause=cause, cause_better=cause_better, **values,
        )  # fmt: skip
        return
    with screen(every=asked.every) as console:
        # One record of each build: all pairs of two Pythons are millions.
        each = [{r.conditions.python_build: r for r in side}.values() for side in (old, new)]
        builds = builds_beside(product(*each)) if axis == "python" else []
        for text in builds if asked.every else builds[:1]:
            console.print(text)
        _summarise_all(console, summaries, names)
        for what, text in (("worse", cause), ("better", cause_better)):
            if text:
                fold(console, f"known causes of {what}: {printable(text)}", "cyan", short=True)
        _list_all(console, found)
        if cases := disturbed_cases(found):
            console.print(f"{cases}, by the calibration: times not compared", style="bright_black")


def _summarise_all(
    console: Terminal, summaries: Sequence[Summary], names: tuple[str, str]
) -> None:
    """Print what moved at each place; unasked, at those with most cases."""
    compared = [summary for summary in summaries if summary.on_both]
    most = sorted(compared, key=lambda summary: -summary.on_both)[:_PLACES]
    shown = [summary for summary in compared if console.every or summary in most]
    for summary in shown:
        fold(console, _sentence(*names, summary), "bold")
        means = {WORDS[name]: _ratio(mean) for name, mean in summary.means.items()}
        seconds = [f"{word} {text}" for word, text in means.items() if word != WORDS["speedup"]]
        fold(console, "; ".join([*seconds, counts_of(summary.counts)]), indent=2)
        if summary.apart and summary.means:
            apart = f"the mean does not describe other cases: {printable(summary.apart)}"
            fold(console, apart, "yellow", indent=2, short=True)
    if len(shown) < len(compared):
        more = counted(len(compared) - len(shown), "more place")
        console.print(f"{more}, with fewer cases: --all", style="bright_black")
    if alone := [summary for summary in summaries if not summary.on_both]:
        named = some([", ".join(summary.place) for summary in alone], _PLACES, "; ")
        console.print(f"measured on one side only: {named}", style="bright_black")


def _sides(
    root: Path,
    matrix: Matrix | None,
    index: Index,
    names: tuple[str, str],
    kept: Sequence[Entry],
) -> tuple[Axis, Sequence[Entry], Sequence[Entry]]:
    """Return what is compared, and the entries of both sides.

    Raises:
        SpecError: If both names are nothing that records have, and no commits, or are the same.
        ResultsError: If they are known and no record is of one of them.
    """
    known = matrix.releases("extended") if matrix else ()
    # A machine or a Python may have the name of a series of releases: what records have comes first.
    for meant in (names, tuple(newest_of(name, known) for name in names)):
        if axis := axis_of(meant, kept):
            _check_apart(axis, names, *meant)
            one, other = (choose(index.entries, axis, {name}) for name in meant)
            return axis, one, other
    hashes = {entry.commit for entry in kept}
    try:
        commits = [find_commit(root, name) for name in names]
    except SpecError as error:
        with suppress(SpecError):  # a machine is named by a part, unless that has another meaning
            machines = values_of(kept)["machine"]
            parts = [the_one("machine", name, machines) for name in names]
            _check_apart("machine", names, *parts)
            one, other = (choose(kept, "machine", {name}) for name in parts)
            return "machine", one, other
        _refuse(root, matrix, index.entries, kept, names, str(error))
    _check_apart("commit", names, *commits)
    one, other = (
        choose(index.entries, "commit", commits_of_same_code(root, commit, hashes))
        for commit in commits
    )
    return "commit", one, other


def _check_apart(axis: Axis, names: tuple[str, str], one: object, other: object) -> None:
    """Refuse two names of one thing: all of it would be unchanged, whatever it is.

    Raises:
        SpecError: If both mean the same.
    """
    if one == other:
        raise SpecError(
            f"{names[0]} and {names[1]} are the same {_SORTS[axis]}",
            hint="name two different ones; ivhl results lists the records",
        )


def _refuse(
    root: Path,
    matrix: Matrix | None,
    every: Sequence[Entry],
    entries: Sequence[Entry],
    names: tuple[str, str],
    unknown: str,
) -> NoReturn:
    """Say which of two names cannot be compared, and why.

    Args:
        root: Root of the project.
        matrix: Its matrix, if that is valid.
        every: All entries.
        entries: Those that the options leave.
        names: As given; not both are commits.
        unknown: What git says of the first that is no commit.

    Raises:
        SpecError: If a name is nothing, or both are of different sorts.
        ResultsError: If no record is of one of them.
    """
    what = f"cannot compare {names[0]!r} with {names[1]!r}"
    commands = commands_of(matrix)
    there = values_of(every)
    known = {axis: {*values, *commands.get(_SORTS[axis], ())} for axis, values in there.items()}
    meant = [newest_of(name, commands.get(RELEASE, ())) for name in names]
    sorts = [_sort_of(root, name, known) for name in meant]
    sort = sorts[0] or sorts[1]
    if sort is None:
        raise SpecError(f"{what}: {unknown}", hint=_HINT)
    if sorts[0] != sorts[1]:
        if None in sorts and sort in known:
            error = UnknownNameError(_SORTS[sort], names[sorts.index(None)], known[sort])
            raise SpecError(f"{what}: {error}", hint=error.hint)
        # That of which something is known first.
        told = sorted(zip(names, sorts, strict=True), key=lambda one: one[1] is None)
        texts = [
            f"{name} is a {_SORTS[one]}" if one else f"{name!r} is none" for name, one in told
        ]
        raise SpecError(f"{what}: {', '.join(texts)}", hint=_HINT)
    for name in meant:
        recorded(_SORTS[sort], [name], there[sort], commands.get(_SORTS[sort]))
    without = [name for name in meant if name not in values_of(entries)[sort]]
    raise ResultsError(
        f"no record of {_SORTS[sort]} {' or '.join(without)} has these options",
        hint="leave out an option; ivhl results lists the records",
    )


def _sort_of(root: Path, name: str, known: Mapping[Axis, Collection[str]]) -> Axis | None:
    """Return what a name is; ``None`` if it is nothing that can be compared."""
    if axis := next((axis for axis, values in known.items() if name in values), None):
        return axis
    if Path(name).is_dir():
        return "results"
    with suppress(SpecError):
        find_commit(root, name)
        return "commit"
    return None


def _sentence(before: str, after: str, summary: Summary) -> str:
    """Return e.g. ``3.12 -> 3.13 on box, cpu, PyTorch 2.15.0: 26 cases, 1.00x [0.99, 1.01]``."""
    mean = summary.means.get("speedup")
    place = ", ".join(summary.place)
    if mean is None:  # cases that fail on both sides are compared, and unchanged
        both = f"{counted(summary.on_both, 'case')} on both sides, times not compared"
        return "; ".join(filter(None, (f"{before} -> {after} on {place}: {both}", summary.apart)))
    of = "" if mean.cases == summary.on_both else f"{mean.cases} of "
    cases = f"{of}{counted(summary.on_both, 'case')} on both sides"
    return f"{before} -> {after} on {place}: {cases}, speedup {_ratio(mean)} of what it was"


def _ratio(mean: Mean) -> str:
    """Return e.g. ``1.02x [0.98, 1.06]``; of one case, which has no interval of cases, its ratio."""
    interval = f" [{mean.low:.2f}, {mean.high:.2f}]" if mean.cases > 1 else ""
    return f"{mean.ratio:.2f}x{interval}"


def _list_all(console: Terminal, found: Sequence[Comparison]) -> None:
    """Print the cases by kind; of unchanged ones and those of one side only how many."""
    hidden = 0
    titles = titles_of(one.case for one in found)
    for kind in KINDS:
        group = [one for one in found if one.kind == kind]
        if kind in _HIDDEN and not console.every:
            hidden += len(group)
        elif group:
            _list(console, kind, [(titles[one.case], one) for one in group])
    if hidden:
        kinds = f"{', '.join(_HIDDEN[:-1])} or {_HIDDEN[-1]}"
        console.print(f"{counted(hidden, 'case')} {kinds}: --all")


def _list(console: Terminal, kind: str, group: Sequence[tuple[str, Comparison]]) -> None:
    style = "red" if kind in WORSE else "green" if kind in BETTER else "bold"
    console.print(Text(f"\n{kind} ({len(group)})", style))
    shown = group if console.every else group[:_LISTED]
    for title, one in shown:
        fold(console, f"{title}  {', '.join(one.case.place)}", indent=2)
        if one.reason:
            fold(console, printable(one.reason), "bright_black", indent=4, short=True)
    if len(group) > len(shown):
        console.print(f"  and {counted(len(group) - len(shown), 'more case')}: --all")


def _as_dict(summaries: Sequence[Summary], found: Sequence[Comparison]) -> dict[str, Any]:
    return {
        "summaries": [
            {
                **picked(summary, "place counts apart"),
                "means": {m: _finite(mean._asdict()) for m, mean in summary.means.items()},
            }
            for summary in summaries
        ],
        "cases": [
            {
                **one.case._asdict(),
                **picked(one, "kind reason"),
                "disturbed": one.is_disturbed,
                **(in_json(one.times) if one.times else {"facts": [], "changes": []}),
            }
            for one in found
        ],
    }


def in_json(change: CaseChange) -> dict[str, Any]:
    """Return what changed in a case, for JSON."""
    return {
        "facts": [asdict(fact) for fact in change.facts],
        "changes": [asdict(one) for one in change.changes.values()],
    }


def _as_row(one: Comparison) -> dict[str, Any]:
    """Return a case as a row of CSV, with the ratio of after to before of each quantity."""
    changes = one.times.changes if one.times else {}
    ratios = {str(metric): asdict(change).get("ratio") for metric, change in changes.items()}
    return one.case._asdict() | picked(one, "kind reason") | ratios


def _finite(mean: dict[str, Any]) -> dict[str, Any]:
    """Return a mean without the limits that one case does not have."""
    return {name: value for name, value in mean.items() if value not in (0.0, float("inf"))}
