"""``ivhl confirm``: measure suspects again, base and head in turns."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.text import Text

from ivhl.bench.confirm import ROUNDS, WEIGHED, confirm
from ivhl.bench.request import Request
from ivhl.cli import app
from ivhl.cli.declared import declared, folder_to_write, warn_unread
from ivhl.errors import ResultsError, SpecError, WorseError
from ivhl.git import commits_of_same_code, find_commit
from ivhl.machine.identity import this_machine
from ivhl.matrix.project import MATRIX, find_root
from ivhl.matrix.spec import load_matrix
from ivhl.tracker.changes import BETTER, KINDS, WORSE
from ivhl.tracker.confirmations import Confirmation, keep_confirmations
from ivhl.tracker.disturbed import disturbed_keys
from ivhl.tracker.expectations import load_expectations
from ivhl.tracker.gate import REGRESSIONS, judge
from ivhl.tracker.index import open_index
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ivhl.bench.confirm import Confirmed
    from ivhl.tracker.compare import Comparison
    from ivhl.tracker.gate import Verdict
    from ivhl.tracker.metrics import Metric

# Changes by these factors are measured again also where noise may have made them.
DOUBTFUL: Final[dict[Metric, float]] = {"compiled": 1.15, "speedup": 1.15}
# Likewise where both runs are of the same hour: what runs of other days differ by hides less.
DOUBTFUL_IN_SESSION: Final[dict[Metric, float]] = {"compiled": 1.10, "speedup": 1.05}


@app.command("confirm")
def confirm_command(
    base: Annotated[str, typer.Option(help="Commit to compare with.")],
    head: Annotated[str, typer.Option(help="Commit to judge.")] = "HEAD",
    case: Annotated[
        list[str] | None,
        typer.Option(
            "--case", help="WORKLOAD/SIZE/VARIANT; repeatable (default: suspects of the gate)."
        ),
    ] = None,
    python: Annotated[
        list[str] | None, typer.Option("--python", help="Only this Python; repeatable.")
    ] = None,
    torch: Annotated[
        list[str] | None, typer.Option("--torch", help="Only this PyTorch release; repeatable.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, max=ROUNDS, help="Most rounds.")] = ROUNDS,
    machine: Annotated[
        str | None, typer.Option(help="Name of this machine (default: the host name).")
    ] = None,
    results: Annotated[
        Path | None, typer.Option(help="Folder of the results (default: results).")
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Measure cases again, base and head in turns, and say which changes are real.

    Exit code 7 if one is confirmed to be worse.
    """
    root = find_root()
    folder = folder_to_write(results or root / "results")
    commits = find_commit(root, base), find_commit(root, head)
    if commits[0] == commits[1]:
        raise SpecError(
            f"--base {base} and --head {head} are the same commit",
            hint="name two commits, e.g. --base main",
        )
    here = this_machine(machine or os.uname().nodename).name
    matrix = load_matrix(root / MATRIX)
    releases = tuple(map(matrix.release, torch or ()))
    named = [(cell.python, cell.torch) for cell in matrix.cells(python or (), releases)]
    if case:
        if not python or not torch:
            raise SpecError(
                "--case: needs --python and --torch", hint="name the cell to measure in"
            )
        cells = dict.fromkeys(named, tuple(case))
    else:
        suspects = suspects_on(here, _verdict(root, folder, commits, here))
        cells = {
            (p, t): cases
            for (p, t), cases in suspects.items()
            if p in (python or (p,)) and t in (releases or (t,))
        }
    console = Terminal(stderr=as_json, highlight=False, soft_wrap=True)
    found = confirm_cells(root, folder, commits, cells, here, console, rounds)
    if as_json:
        typer.echo(json.dumps([one._asdict() for one in found], indent=1))
    else:
        _print(console, found)
    if worse := sum(one.verdict in WORSE for one in found):
        raise WorseError(
            f"{counted(worse, 'case')} confirmed to be worse than {commits[0][:8]}",
            hint="ivhl compare shows which side moved",
        )


def confirm_cells(
    root: Path,
    results: Path,
    commits: tuple[str, str],
    cells: Mapping[tuple[str, str], tuple[str, ...]],
    machine: str,
    console: Terminal,
    rounds: int = ROUNDS,
) -> list[Confirmed]:
    """Measure cases again, cell by cell, and keep what was decided.

    Args:
        root: Root of the project.
        results: Folder of the results.
        commits: Full hashes of base and head.
        cells: Python and release to names of cases.
        machine: Name of this machine.
        console: Where progress is printed.
        rounds: Most rounds per cell.
    """
    found: list[Confirmed] = []
    for (python, torch), cases in sorted(cells.items()):
        request = Request(
            root=root, python=python, releases=(torch,), machine=machine, results=results
        )
        outcomes = confirm(
            request, *commits, cases, results=results, console=console, rounds=rounds
        )  # fmt: skip
        at = datetime.now(UTC).isoformat(timespec="seconds")
        decided = [
            Confirmation(
                machine=machine, python=python, torch=torch, case=one.case, base=commits[0],
                head=commits[1], verdict=one.verdict, rounds=one.rounds, text=one.text, at=at,
            )
            for one in outcomes
            if one.rounds
        ]  # fmt: skip
        keep_confirmations(results, decided)
        found += outcomes
    return found


def suspects_on(machine: str, verdict: Verdict) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the cases that got worse on a machine, or may have, by Python and release."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in verdict.findings:
        case, is_worse = one.case, one.kind in REGRESSIONS and not one.is_expected
        if case.machine == machine and (is_worse or _may_be_worse(one)):
            found.setdefault((case.python, case.torch), []).append(case.name)
    return {cell: tuple(cases) for cell, cases in found.items()}


def _may_be_worse(finding: Comparison) -> bool:
    """Return whether a change for the worse was seen that noise alone could have made."""
    if finding.kind in BETTER or finding.change is None:
        return False
    if finding.change.kind == "slower":  # by a disturbed run, so that it is no regression yet
        return True
    changes = finding.change.changes
    limits = DOUBTFUL_IN_SESSION if finding.change.in_session else DOUBTFUL
    return any(
        changes[metric].ratio ** WEIGHED[metric] >= limit
        for metric, limit in limits.items()
        if metric in changes
    )


def confirmed_only(verdict: Verdict, machine: str, found: Iterable[Confirmed]) -> Verdict:
    """Return a verdict without what new runs on the machine did not confirm.

    What they could not measure stays as it was.
    """
    outcomes = {(one.cell, one.case): one for one in found}
    findings = []
    for finding in verdict.findings:
        outcome = outcomes.get((finding.case.cell, finding.case.name))
        if finding.case.machine != machine or outcome is None:
            findings.append(finding)
            continue
        text = f"{said_of(outcome)}: {outcome.text}; before: {finding.reason}"
        # A run that failed clears nobody.
        kind = outcome.verdict if outcome.rounds else finding.kind
        findings.append(replace(finding, kind=kind, reason=text))
    findings.sort(key=lambda one: KINDS.index(one.kind))
    return replace(verdict, findings=tuple(findings))


def _verdict(root: Path, results: Path, commits: tuple[str, str], machine: str) -> Verdict:
    """Return the gate's verdict from the records of this machine.

    Raises:
        ResultsError: If it has no record of one of the commits.
    """
    index = open_index(results)
    warn_unread(index.problems, None if results == root / "results" else results)
    entries = [entry for entry in index.entries if entry.case.machine == machine]
    hashes = {entry.commit for entry in entries}
    before, after = (commits_of_same_code(root, commit, hashes) for commit in commits)
    if not before & hashes or not after & hashes:
        raise ResultsError(
            f"no records of both commits on {machine}, so there are no suspects",
            hint="measure both (ivhl bench --commit REV), or name cases with --case, --python and "
            "--torch",
        )
    records = index.read(entry for entry in entries if entry.commit in before | after)
    return judge(
        records,
        before,
        after,
        declared(root),
        index.spreads,
        expectations=load_expectations(root),
        disturbed=disturbed_keys(index.entries),
    )


def _print(console: Terminal, found: Sequence[Confirmed]) -> None:
    if not found:
        console.print("no suspects: nothing to confirm")
    for one in found:
        style = "red" if one.verdict in WORSE else "green" if one.verdict in BETTER else ""
        console.print(Text(f"{said_of(one)}: {one.case} in {one.cell}", style))
        console.print(Text(f"  {one.text}", "bright_black"))


def said_of(one: Confirmed) -> str:
    """Return e.g. ``confirmed slower in 3 rounds``."""
    word = {"unchanged": "not confirmed", "inconclusive": "inconclusive"}.get(
        one.verdict, f"confirmed {one.verdict}"
    )
    return f"{word} in {counted(one.rounds, 'round')}"
