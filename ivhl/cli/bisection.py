"""``ivhl bisect``: which commit or release changed a case."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.text import Text

from ivhl.bench.bisection.bisect import bisect
from ivhl.bench.bisection.cost import announce
from ivhl.bench.bisection.question import Position, Question, log_of_search
from ivhl.bench.checks import check_device
from ivhl.bench.experiment.journal import digest_of_tree
from ivhl.bench.request import Request
from ivhl.cli import app, options
from ivhl.cli.declared import declared, folder_to_write, interpreter_of
from ivhl.cli.names import RELEASE, find_case, the_one
from ivhl.cli.screen import picked, print_json
from ivhl.errors import SpecError
from ivhl.git import commit_titles, commits_of_range, find_commit, leads_to
from ivhl.machine.identity import this_machine
from ivhl.matrix.locks import lock_state
from ivhl.matrix.project import load
from ivhl.matrix.spec import CellSpec, newest_of
from ivhl.measure.effort import DEADLINE_S, Effort
from ivhl.tracker.store.index import open_index
from ivhl.tracker.store.metrics import RELEVANT
from ivhl.tracker.support.compat import python_key, release_key
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.wording import counted, seconds

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from ivhl.bench.bisection.question import Culprit, Sought
    from ivhl.matrix.spec import Matrix, Tier
    from ivhl.tracker.store.metrics import Metric

# Smallest slowdown that is searched for unless --effect says another.
SLOWDOWN = 1.05
_SERIES = re.compile(r"(\d+)\.(\d{1,4})\.")
_VERSION = re.compile(r"\d+\.\d+(\.\d+)?\w*")


@app.command("bisect")
def bisect_command(
    before: Annotated[
        str, typer.Argument(help='A commit or PyTorch release before the change ("good").')
    ],
    after: Annotated[str, typer.Argument(help='Another one after the change ("bad").')],
    case: options.OneCase,
    sought: options.For = "slowdown",
    side: options.Side = None,
    python: options.OnePython = None,
    torch: options.OneRelease = None,
    commit: options.AnyCommit = None,
    tier: options.Tier = "extended",
    effect: options.Effect = None,
    error: options.Error = 0.05,
    device: options.Device = "cpu",
    threads: options.Threads = 1,
    deadline: options.Deadline = DEADLINE_S,
    machine: options.OneMachine = None,
    results: options.Results = None,
    *,
    force: options.Force = False,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
) -> None:
    """Find the commit or PyTorch release that changed a case, by measuring.

    Run again, it goes on where it was stopped.
    """
    root, matrix = load()
    folder = folder_to_write(results or root / "results")
    console = Terminal(stderr=as_json, highlight=False, soft_wrap=True)
    metric = _metric(sought, side)
    python = python and the_one("Python", python, matrix.pythons)
    along, positions = _positions(root, matrix, (before, after), torch, commit, tier)
    releases = (positions[0].torch, positions[-1].torch)
    refused: set[str] = set()
    if sought in ("slowdown", "compile-time"):  # of what is refused there are no seconds
        refused = {
            entry.python
            for entry in open_index(folder).entries
            if entry.torch in releases and entry.failure_class == "support_gate"
        }
    python = python or _newest_python(root, matrix, releases, refused)
    for release in releases:
        lock = lock_state(root, CellSpec(python, release))
        if lock.kind == "unavailable":
            raise SpecError(
                f"PyTorch {release} cannot be installed on Python {python}: "
                f"{lock.message.splitlines()[0]}",
                hint="name ends that can, or another --python",
            )
    check_device(device)
    question = Question(
        positions=positions,
        along=along,
        python=python,
        case=find_case(declared(root), case, device).name,
        sought=sought,
        metric=metric,
        effect=effect or (RELEVANT[metric] if metric == "cold" else SLOWDOWN),
        error=error,
        tree=digest_of_tree(root, [CellSpec(python, place.torch) for place in positions]),
    )
    request = Request(
        root=root,
        python=python,
        machine=this_machine(machine or os.uname().nodename).name,
        results=folder,
        effort=Effort(device=device, threads=threads, deadline_s=deadline),
    )
    if force:
        log_of_search(root, question, request).unlink(missing_ok=True)
    expected = announce(question, request, folder, console)
    lacking = lacking_releases([place.torch for place in positions]) if along == "torch" else ()
    if lacking:
        console.print(
            f"not searched, for want of a release in envs/matrix.toml (--tier {tier}): PyTorch "
            f"{', '.join(lacking)}; a change there is found at the next release",
            style="bright_black",
        )
    if dry_run:
        if as_json:
            print_json("ivhl.estimate/1", **expected._asdict())
        return
    found = bisect(question, request, results=folder, console=console)
    command = _command(question, found, machine)
    if as_json:
        print_json("ivhl.bisection/1", **_as_dict(question, found, command))
    else:
        _print(console, question, found, command)


def _metric(sought: Sought, side: Literal["compiled", "eager", "speedup"] | None) -> Metric:
    """Return the quantity that is searched.

    Raises:
        SpecError: If a side is named of what has none.
    """
    if side is not None and sought != "slowdown":
        raise SpecError(
            f"--side {side}: not with --for {sought}, which has no sides",
            hint="leave --side out, or --for slowdown",
        )
    return "cold" if sought == "compile-time" else side or "compiled"


def _newest_python(
    root: Path, matrix: Matrix, releases: tuple[str, str], refused: Container[str]
) -> str:
    """Return the newest Python that is here and has both releases; the newest at all if none is.

    Args:
        root: Root of the project.
        matrix: Its matrix.
        releases: The ends.
        refused: Pythons on which one of them refuses to compile.
    """
    for python in sorted(matrix.pythons, key=python_key, reverse=True):
        if python in refused:
            continue
        cells = [CellSpec(python, release) for release in releases]
        if (
            not python.endswith("t")
            and all(lock_state(root, cell).kind == "locked" for cell in cells)
            and interpreter_of(root, python) is not None
        ):
            return python
    return matrix.newest_python


def _positions(
    root: Path,
    matrix: Matrix,
    ends: tuple[str, str],
    torch: str | None,
    commit: str | None,
    tier: Tier,
) -> tuple[Literal["commit", "torch"], tuple[Position, ...]]:
    """Return what lies between two releases, or two commits, both included.

    Raises:
        SpecError: If the ends are neither, the same, or in the wrong order; or if what is searched
            is also given as one.
    """
    along: Literal["commit", "torch"] = "torch" if _are_releases(root, matrix, ends) else "commit"
    known = matrix.releases("extended")
    word, words = ("release", "releases") if along == "torch" else ("commit", "commits")
    if along == "commit":
        for name, beside in (ends, ends[::-1]):
            if newest_of(name, known) in known:
                raise SpecError(
                    f"{name} is a PyTorch release and {beside} is none",
                    hint="name two commits, or two releases",
                )
    if given := torch if along == "torch" else commit:
        raise SpecError(
            f"--{along} {given}: not between two {words}, each of which is measured",
            hint=f"leave --{along} out, or name two {'commits' if along == 'torch' else 'releases'}",
        )
    if along == "torch":
        first, last = (the_one(RELEASE, name, matrix.every_release) for name in ends)
    else:
        first, last = (find_commit(root, name) for name in ends)
    if first == last:
        raise SpecError(
            f"{ends[0]} and {ends[1]} are the same {word}",
            hint=f"name two of {', '.join(known)}" if along == "torch" else "e.g. v1.0 main",
        )
    if along == "torch":
        return along, _releases_between(
            matrix, first, last, tier, find_commit(root, commit or "HEAD")
        )
    release = the_one(RELEASE, torch or matrix.releases()[-1], matrix.every_release)
    return along, _commits_between(root, first, last, ends, release)


def _releases_between(
    matrix: Matrix, first: str, last: str, tier: Tier, commit: str
) -> tuple[Position, ...]:
    if release_key(first) > release_key(last):
        raise SpecError(
            f"BEFORE must be older than AFTER (got {first} and {last})",
            hint=f"ivhl bisect {last} {first}; releases: {', '.join(matrix.releases('extended'))}",
        )
    releases = sorted({first, last, *matrix.releases(tier)}, key=release_key)
    between = releases[releases.index(first) : releases.index(last) + 1]
    return tuple(Position(one, f"PyTorch {one}", commit, one) for one in between)


def _commits_between(
    root: Path, first: str, last: str, ends: tuple[str, str], release: str
) -> tuple[Position, ...]:
    if not leads_to(root, first, last):
        raise SpecError(
            f"no commit leads from {ends[0]} to {ends[1]}",
            hint="BEFORE must be an ancestor of AFTER: is the order right? Of two branches, search "
            f"from where they part: git merge-base {ends[0]} {ends[1]}",
        )
    line = (first, *reversed(commits_of_range(root, f"{first}..{last}")))
    titles = commit_titles(root, line)
    return tuple(Position(one, titles[one], one, release) for one in line)


def lacking_releases(releases: Sequence[str]) -> tuple[str, ...]:
    """Return the series between the first and last release of which none is given.

    Args:
        releases: Releases of one major version, oldest first, such as ``2.6.0``; nightlies have no
            series.
    """
    found = [match.groups() for one in releases if (match := _SERIES.match(one))]
    if len({major for major, _ in found}) != 1:
        return ()
    (major, _), minors = found[0], {int(minor) for _, minor in found}
    return tuple(f"{major}.{n}" for n in range(min(minors), max(minors)) if n not in minors)


def _are_releases(root: Path, matrix: Matrix, names: tuple[str, str]) -> bool:
    """Return whether both names are releases: of the matrix, or versions that git does not know."""
    known = matrix.releases("extended")
    if all(newest_of(name, known) in known for name in names):
        return True
    with suppress(SpecError):
        return not all(find_commit(root, name) for name in names)
    return all(_VERSION.fullmatch(name) for name in names)


def _command(question: Question, found: Culprit, machine: str | None) -> str:
    """Return the command that measures both sides of the culprit again."""
    is_commit = question.along == "commit"
    longest = 12 if is_commit else None
    words = [
        f"ivhl bisect {found.before.name[:longest]} {found.after.name[:longest]}",
        f"--case {question.case} --for {question.sought} --python {question.python}",
        f"--side {question.metric}" if question.sought == "slowdown" else "",
        f"--torch {found.after.torch}" if is_commit else f"--commit {found.after.commit[:12]}",
        f"--machine {machine}" if machine else "",
        "--force",
    ]
    return " ".join(filter(None, words))


def _print(console: Terminal, question: Question, found: Culprit, command: str) -> None:
    place = f"{question.case}, Python {question.python}"
    if question.along == "commit":
        place += f", PyTorch {found.after.torch}"
    console.print(Text(found.after.title, "bold red"))
    if found.between:
        console.print(
            f"  or {counted(len(found.between), question.word)} before it: the change is "
            f"behind {found.before.title}, and these could not be judged:"
        )
        for position, reason in found.between:
            console.print(f"    {position.title}: {reason}")
    else:
        console.print(f"  the one before is {found.before.title}")
    console.print(f"  {place}: {found.evidence}")
    console.print(f"  between the ends: {found.whole}")
    console.print(
        f"  probability {found.probability:.3f}; {counted(found.answers, 'answer')}, "
        f"{counted(found.runs, 'run')}, {seconds(found.seconds)}"
        + (f"; {counted(found.earlier, 'answer')} from an earlier session" * (found.earlier > 0))
    )
    for note in found.notes:
        console.print(f"  {note}")
    console.print(f"  again: {command}")


def _as_dict(question: Question, found: Culprit, command: str) -> dict[str, Any]:
    return {
        **picked(question, "along case python"),
        "for": question.sought,
        "culprit": None if found.between else found.after.name,
        "before": found.before.name,
        "after": found.after.name,
        "between": [{"place": p.name, "reason": reason} for p, reason in found.between],
        "ends": found.whole,
        **picked(found, "probability evidence notes answers runs seconds"),
        "command": command,
    }
