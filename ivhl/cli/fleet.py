"""``ivhl import`` and ``ivhl gate``: import records, and compare a commit with its base."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ivhl.cli import app
from ivhl.cli.markdown import code
from ivhl.errors import IvhlError, ResultsError, UnknownNameError
from ivhl.fleet.bring import import_records
from ivhl.fleet.sources import printable
from ivhl.git import commits_of_same_code, find_commit
from ivhl.matrix.project import find_root, load_project
from ivhl.tracker.gate import GAPS, KINDS, MEANINGS, REGRESSIONS, judge
from ivhl.tracker.spread import Spreads
from ivhl.tracker.store import load_records
from ivhl.tracker.wording import counted
from ivhl.workload import load_workloads

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ivhl.fleet.bring import Imported
    from ivhl.fleet.sources import Refused
    from ivhl.tracker.gate import Verdict

_PLACES_SHOWN = 3
# GitHub accepts comments of at most 65,536 characters.
_ROWS_SHOWN = 50


class RefusedError(ResultsError):
    """At least one record was refused; all others were imported."""

    exit_code: ClassVar[int] = 6


@app.command("import")
def import_command(
    records: Annotated[
        list[Path], typer.Argument(help="Record files, folders or zip archives with such files.")
    ],
    results: Annotated[
        Path | None, typer.Option("--results", help="Folder to import into (default: results).")
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Import records from other machines. Checks each one and skips duplicates.

    Exit code 6 if a record was refused; the others are imported. Running the same command again
    imports only what is missing.
    """
    root = find_root()
    imported = import_records(root, records, (results or root / "results").resolve())
    if as_json:
        typer.echo(json.dumps(_as_dict(imported), indent=1))
    else:
        _print(imported)
    if imported.refused:
        raise RefusedError(
            f"{len(imported.refused)} refused; all others were imported",
            hint="fix what each reason names, then run the same command again",
        )


class WorseError(IvhlError):
    """A case newly fails or is clearly slower."""

    exit_code: ClassVar[int] = 7


class GapsError(IvhlError):
    """No case is known to be worse, but records are missing or cannot be compared."""

    exit_code: ClassVar[int] = 8


@app.command("gate")
def gate_command(
    base: Annotated[str, typer.Option(help="Commit to compare with.")],
    head: Annotated[str, typer.Option(help="Commit to judge.")] = "HEAD",
    machine: Annotated[
        list[str] | None, typer.Option("--machine", help="Only this machine; repeatable.")
    ] = None,
    results: Annotated[
        Path | None, typer.Option("--results", help="Folder of the results (default: results).")
    ] = None,
    form: Annotated[
        Literal["text", "json", "github"],
        typer.Option("--format", help="github: Markdown for a pull request comment."),
    ] = "text",
    *,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Do not fail when records are missing.")
    ] = False,
) -> None:
    """Fail if a case newly fails or is clearly slower than at the base commit.

    Exit code 7 if a case is worse; 8 if none is, but records are missing or cannot be compared;
    0 otherwise.
    """
    root = find_root()
    loaded = load_records(results or root / "results")
    for problem in loaded.problems:
        Console(stderr=True, soft_wrap=True).print(f"warning: {problem}", markup=False)
    records = [r for r in loaded.records if not machine or r.machine.name in machine]
    for name in machine or ():
        if not any(record.machine.name == name for record in records):
            raise UnknownNameError("machine", name, {r.machine.name for r in loaded.records})
    hashes = {record.commit for record in records}
    commits = [find_commit(root, name) for name in (base, head)]
    before, after = (commits_of_same_code(root, commit, hashes) for commit in commits)
    workloads = load_workloads(load_project(root).workloads)
    spreads = Spreads((*loaded.records, *loaded.replaced))
    verdict = judge(records, before, after, workloads, spreads)
    writers = {"text": _verdict_text, "json": _verdict_json, "github": _verdict_markdown}
    typer.echo(writers[form](verdict, *(commit[:8] for commit in commits)))
    worse, gaps = verdict.of(REGRESSIONS), verdict.of(GAPS)
    if worse:
        raise WorseError(
            f"{counted(len(worse), 'case')} newly failing or clearly slower than {commits[0][:8]}",
            hint="ivhl results --workload NAME shows the records; measure again with --force to "
            "see whether it repeats",
        )
    if (gaps or not verdict.compared) and not allow_missing:
        what = f"{counted(len(gaps), 'case')} cannot be judged" if gaps else "nothing to compare"
        raise GapsError(
            f"{what}: records are missing or were measured under other conditions",
            hint=f"measure {commits[0][:8]} and {commits[1][:8]} in the same way, or pass "
            "--allow-missing",
        )


def _verdict_text(verdict: Verdict, base: str, head: str) -> str:
    lines = [f"{head} against {base}: {_counts(verdict)}"]
    for kind in KINDS:
        found = verdict.of({kind})
        if not found or kind == "held":
            continue
        lines += ["", f"{kind}: {MEANINGS[kind]}"]
        groups: dict[tuple[str, str], list[str]] = {}
        for one in found:
            place = f"{one.key.machine}, {one.key.device}, {one.key.cell}"
            groups.setdefault((place, printable(one.reason)), []).append(one.key.case)
        for (place, reason), cases in groups.items():
            lines += [f"  {place}: {', '.join(cases)}", f"    {reason}"]
    lines += ["", *_elsewhere(verdict)] if verdict.elsewhere else []
    return "\n".join(lines)


def _counts(verdict: Verdict) -> str:
    counts = {kind: len(verdict.of({kind})) for kind in KINDS}
    return ", ".join(f"{n} {kind}" for kind, n in counts.items() if n) or "no records"


def _elsewhere(verdict: Verdict) -> list[str]:
    return [
        f"no record on {machine}, {device} ({counted(n, 'case')} at the base)"
        for (machine, device), n in verdict.elsewhere.items()
    ]


def _verdict_json(verdict: Verdict, base: str, head: str) -> str:
    findings = [
        {**one.key._asdict(), "kind": one.kind, "reason": one.reason} for one in verdict.findings
    ]
    elsewhere = [
        {"machine": machine, "device": device, "cases": n}
        for (machine, device), n in verdict.elsewhere.items()
    ]
    about = {"base": base, "head": head, "findings": findings, "not_measured": elsewhere}
    return json.dumps(about, indent=1)


def _verdict_markdown(verdict: Verdict, base: str, head: str) -> str:
    """Return the verdict as a Markdown comment; text from records is escaped."""
    worse = len(verdict.of(REGRESSIONS))
    title = (
        "Nothing newly failing or clearly slower"
        if not worse
        else f"{counted(worse, 'case')} worse"
    )
    lines = [f"### {title}", "", f"`{head}` against `{base}`: {_counts(verdict)}."]
    for kind in KINDS:
        found = verdict.of({kind})
        if not found or kind == "held":
            continue
        table = ["| machine | cell | case | |", "|---|---|---|---|"]
        for one in found[:_ROWS_SHOWN]:
            key = one.key
            place = f"{key.machine}, {key.device}"
            cells = (code(place), code(key.cell), code(key.case), code(one.reason))
            table.append(f"| {' | '.join(cells)} |")
        if len(found) > _ROWS_SHOWN:
            table += ["", f"And {len(found) - _ROWS_SHOWN} more."]
        heading = f"{kind}: {MEANINGS[kind]} ({len(found)})"
        if kind in REGRESSIONS:
            lines += ["", f"**{heading}**", "", *table]
        else:
            lines += ["", f"<details><summary>{heading}</summary>", "", *table, "", "</details>"]
    lines += ["", *(f"- {code(text)}" for text in _elsewhere(verdict))]
    return "\n".join(lines).rstrip()


def _as_dict(imported: Imported) -> dict[str, object]:
    return {
        "batches": [
            {**batch._asdict(), "new": imported.new[batch], "had": imported.had[batch]}
            for batch in imported.new
        ],
        "refused": [asdict(one) for one in imported.refused],
        "set_aside": [str(problem) for problem in imported.set_aside],
    }


def _print(imported: Imported) -> None:
    console = Console(highlight=False, soft_wrap=True)
    table = Table("machine", "device", "commit", "cell", "new", "here", box=None, pad_edge=False)
    for batch in imported.new:
        cell = Text(batch.cell)
        if batch.existing:
            cell.append(" existing environment", "yellow")
        counts = (str(imported.new[batch]), str(imported.had[batch]))
        table.add_row(Text(batch.machine), batch.device, batch.commit[:8], cell, *counts)
    if imported.new:
        console.print(table)
    new, had = imported.new.total(), imported.had.total()
    console.print(f"{counted(new, 'new record')}, {had} already present")
    for problem in imported.set_aside:
        console.print(f"warning: set aside: {problem}", markup=False)
    for (rule, hint), places in _by_reason(imported.refused).items():
        console.print(f"refused: {rule}", markup=False, style="red")
        for place in places[:_PLACES_SHOWN]:
            console.print(f"  {place}", markup=False)
        if len(places) > _PLACES_SHOWN:
            console.print(f"  and {len(places) - _PLACES_SHOWN} more")
        console.print(f"  next: {hint}", markup=False)
    if new:
        console.print("next: ivhl publish")


def _by_reason(refused: Iterable[Refused]) -> dict[tuple[str, str], list[str]]:
    groups: dict[tuple[str, str], list[str]] = {}
    for one in refused:
        groups.setdefault((one.rule, one.hint), []).append(one.place)
    return groups
