"""``ivhl bisect``: which commit or release changed a case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.text import Text

from ivhl.bench.bisection.bisect import bisect
from ivhl.bench.bisection.cost import announce
from ivhl.bench.bisection.question import (
    Question,
    lacking_releases,
    log_of_search,
    newest_python,
    positions_between,
)
from ivhl.bench.checks import check_device
from ivhl.bench.experiment.journal import digest_of_tree
from ivhl.bench.request import Request
from ivhl.cli import app, options
from ivhl.cli.declared import declared, folder_to_write
from ivhl.cli.names import find_case, the_one
from ivhl.cli.screen import picked, print_json
from ivhl.errors import SpecError
from ivhl.machine.identity import this_machine
from ivhl.matrix.locks import lock_state
from ivhl.matrix.project import load
from ivhl.matrix.spec import CellSpec
from ivhl.measure.effort import DEADLINE_S, Effort
from ivhl.tracker.store.index import open_index
from ivhl.tracker.store.metrics import RELEVANT, Metric
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.wording import counted, seconds

if TYPE_CHECKING:
    from ivhl.bench.bisection.question import Culprit, Sought

# Smallest slowdown that is searched for unless --effect says another.
SLOWDOWN = 1.05


@app.command("bisect")
def bisect_command(
    before: Annotated[
        str, typer.Argument(help='A commit or PyTorch release before the change ("good").')
    ],
    after: Annotated[str, typer.Argument(help='A commit or release after the change ("bad").')],
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

    Run again, it goes on where it was stopped. A script has a search of its own: ivhl run FILE
    --search.
    """
    root, matrix = load()
    folder = folder_to_write(results or root / "results")
    console = Terminal(stderr=as_json, highlight=False, soft_wrap=True)
    metric = _metric(sought, side)
    python = python and the_one("Python", python, matrix.pythons)
    along, positions = positions_between(
        root, matrix, (before, after), tier, torch=torch, commit=commit
    )
    releases = (positions[0].torch, positions[-1].torch)
    refused: set[str] = set()
    if sought in ("slowdown", "compile-time"):  # of what is refused there are no seconds
        refused = {
            entry.python
            for entry in open_index(folder).entries
            if entry.torch in releases and entry.failure_class == "support_gate"
        }
    python = python or newest_python(root, matrix, releases, refused)
    for release in releases:
        lock = lock_state(root, CellSpec(python, release))
        if lock.kind == "unavailable":
            raise SpecError(
                f"PyTorch {release} cannot be installed on Python {python}: "
                f"{lock.message.splitlines()[0]}",
                hint="name releases that can be installed, or another --python",
            )
    check_device(device)
    question = Question(
        positions=positions,
        along=along,
        python=python,
        sought=sought,
        metric=metric,
        error=error,
        case=find_case(declared(root), case, device).name,
        effect=effect or (RELEVANT[metric] if metric == "cold" else SLOWDOWN),
        tree=digest_of_tree(root, [CellSpec(python, place.torch) for place in positions]),
    )
    request = Request(
        root=root,
        python=python,
        machine=this_machine(machine).name,
        results=folder,
        effort=Effort(device=device, threads=threads, deadline_s=deadline),
    )
    if force:
        log_of_search(root, question, request).unlink(missing_ok=True)
    expected = announce(question, request, folder, console)
    lacking = lacking_releases([place.torch for place in positions]) if along == "torch" else ()
    if lacking:
        console.print(
            f"not searched, since envs/matrix.toml lacks them (--tier {tier}): PyTorch "
            f"{', '.join(lacking)}; a change there shows at the next release",
            style="bright_black",
        )
    if dry_run:
        if as_json:
            print_json("ivhl.estimate/2", **expected._asdict())
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
            f"--side {side}: not with --for {sought}, which compares no times",
            hint="omit --side, or use --for slowdown",
        )
    return "cold" if sought == "compile-time" else side or "compiled"


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
