"""``ivhl gate``: compare a commit with its base, and decide an exit code."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal
from xml.etree import ElementTree as ET

import typer

from ivhl.cli import app
from ivhl.cli.declared import declared, folder_to_write, results_folder, warn, warn_unread
from ivhl.cli.markdown import code
from ivhl.cli.sides import times_table
from ivhl.errors import FixedError, IvhlError, SpecError, UnknownNameError, WorseError
from ivhl.git import commits_of_same_code, find_commit
from ivhl.machine.identity import BY_PROCESSOR, this_machine
from ivhl.matrix.project import MATRIX, find_root
from ivhl.matrix.spec import load_matrix
from ivhl.records.text import printable
from ivhl.tracker.disturbed import disturbed_keys
from ivhl.tracker.expectations import EXPECTATIONS, load_expectations, never_covering
from ivhl.tracker.gate import REGRESSIONS, judge
from ivhl.tracker.index import open_index
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.wording import counted, shown_reason

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ivhl.tracker.changes import CaseChange
    from ivhl.tracker.compare import Comparison
    from ivhl.tracker.gate import Verdict

# GitHub accepts comments of at most 65,536 characters.
_ROWS_SHOWN = 50


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
        Literal["text", "json", "github", "junit", "annotations"],
        typer.Option(
            "--format",
            help="github: Markdown for a pull request comment. annotations: for the log of GitHub "
            "Actions.",
        ),
    ] = "text",
    python: Annotated[list[str] | None, typer.Option(help="Only this Python; repeatable.")] = None,
    torch: Annotated[
        list[str] | None,
        typer.Option(help="Only this PyTorch release; repeatable. With --measure: measure it."),
    ] = None,
    *,
    measure: Annotated[
        bool,
        typer.Option("--measure", help="First measure both commits here, cell by cell in turns."),
    ] = False,
    confirm: Annotated[
        bool,
        typer.Option("--confirm", help="Measure suspects of this machine again."),
    ] = False,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Do not fail when records are missing.")
    ] = False,
) -> None:
    """Fail if a case newly fails, breaks more graphs, or is slower than at the base commit.

    Exit code 7 if a case is worse; 11 if a case passes that envs/expectations.toml expects to fail;
    8 if none is, but records are missing or cannot be compared; 0 otherwise.
    """
    root = find_root()
    # What measures makes the folder.
    folder = folder_to_write(results if measure and results else results_folder(results, root))
    commits = find_commit(root, base), find_commit(root, head)
    if commits[0] == commits[1]:
        # Every case would be unchanged: a wrong base would let everything pass.
        raise SpecError(
            f"--base {base} and --head {head} are the same commit",
            hint="name another base, e.g. --base HEAD~1; on a branch, --base main",
        )
    matrix = load_matrix(root / MATRIX)
    releases = tuple(map(matrix.release, torch or ()))
    # The name under which this machine measures may be another one than its host name.
    here = machine[0] if machine and len(machine) == 1 else os.uname().nodename
    if BY_PROCESSOR in (machine or ()):
        here = this_machine(BY_PROCESSOR).name
        machine = [here if name == BY_PROCESSOR else name for name in machine or ()]
    if measure:
        # Imported here: it needs all that measures.
        from ivhl.bench.turns import measure_both  # noqa: PLC0415

        console = Terminal(stderr=True, highlight=False, soft_wrap=True)
        cells = matrix.cells(python or (), releases)
        measure_both(root, cells, commits, console, machine=here, results=folder)
    index = open_index(folder)
    warn_unread(index.problems, results)
    _check_names("machine", machine or (), {entry.case.machine for entry in index.entries})
    pythons = {*matrix.pythons, *(entry.python for entry in index.entries)}
    _check_names("Python", python or (), pythons)
    known = {*matrix.releases("extended"), *(entry.torch for entry in index.entries)}
    _check_names("PyTorch release", releases, known)
    entries = [e for e in index.entries if not machine or e.case.machine in machine]
    hashes = {entry.commit for entry in entries}
    before, after = (commits_of_same_code(root, commit, hashes) for commit in commits)
    records = [
        record
        for record in index.read(entry for entry in entries if entry.commit in before | after)
        if record.cell.python in (python or (record.cell.python,))
        and record.cell.torch in (releases or (record.cell.torch,))
    ]
    workloads = declared(root)
    expectations = load_expectations(root)
    measured = {entry.case for entry in index.entries}
    unmatched = never_covering(expectations, measured)
    warn(f"{EXPECTATIONS}: never matches a measured case: {one.title}" for one in unmatched)
    verdict = judge(
        records,
        before,
        after,
        workloads,
        index.spreads,
        expectations=expectations,
        disturbed=disturbed_keys(index.entries),
    )
    if confirm:
        verdict = _confirmed(root, folder, commits, verdict, here)
    _print(verdict, commits, form)
    if form == "github":
        typer.echo("\n".join(times_table(records, before, after)))
    gaps = verdict.gaps
    if verdict.worse:
        raise WorseError(
            f"{_headline(verdict)}, compared with {commits[0][:8]}",
            hint="ivhl confirm measures them again; ivhl results --workload NAME shows the records",
        )
    if outdated := verdict.outdated:
        raise FixedError(
            f"{counted(len(outdated), 'case')} passing: {EXPECTATIONS} still expects a failure",
            hint="remove or narrow the entries: ivhl expect --update",
        )
    if (gaps or not verdict.compared) and not allow_missing:
        what = f"{counted(len(gaps), 'case')} missing or incomparable" if gaps else ""
        raise GapsError(
            what or "nothing to compare: records are missing, or no longer declared",
            hint=f"measure {commits[0][:8]} and {commits[1][:8]} in the same way, or pass "
            "--allow-missing",
        )


def _check_names(kind: str, names: Iterable[str], known: Collection[str]) -> None:
    """Refuse names that nobody measured: a verdict over nothing would look like one."""
    for name in names:
        if name not in known:
            raise UnknownNameError(kind, name, known)


def _print(verdict: Verdict, commits: tuple[str, str], form: str) -> None:
    writers = {
        "json": _verdict_json,
        "github": _verdict_markdown,
        "junit": _verdict_junit,
        "annotations": _verdict_annotations,
    }
    base, head = (commit[:8] for commit in commits)
    if form == "text":
        text = _verdict_text(verdict, base, head)
        Terminal(highlight=False, soft_wrap=True).print(text)
    else:
        typer.echo(writers[form](verdict, base, head))


def _confirmed(
    root: Path, results: Path, commits: tuple[str, str], verdict: Verdict, here: str
) -> Verdict:
    # Imported here: it needs all that measures.
    from ivhl.cli.confirm import confirm_cells, confirmed_only, suspects_on  # noqa: PLC0415

    suspects = suspects_on(here, verdict)
    console = Terminal(stderr=True, highlight=False, soft_wrap=True)
    if not suspects:
        console.print(f"no suspects on {here}: nothing to confirm here (--machine NAME)")
    found = confirm_cells(root, results, commits, suspects, here, console)
    return confirmed_only(verdict, here, found)


def _verdict_text(verdict: Verdict, base: str, head: str) -> str:
    lines = [_headline(verdict), f"{head} against {base}: {_counts(verdict)}"]
    for title, meaning, found in verdict.listed():
        lines += ["", f"{title}: {meaning}"]
        groups: dict[tuple[str, str], list[str]] = {}
        for one in found:
            place = f"{one.case.machine}, {one.case.device}, {one.case.cell}"
            groups.setdefault((place, printable(one.reason)), []).append(one.case.name)
        for (place, reason), cases in groups.items():
            lines += [
                f"  {place}: {', '.join(cases)}",
                f"    {shown_reason(reason)}",
            ]
    lines += ["", *notes] if (notes := _elsewhere(verdict)) else []
    return "\n".join(lines)


def _headline(verdict: Verdict) -> str:
    """Return what the comparison shows; where it can show little, that comes first."""
    worse = {kind: n for kind, n in verdict.counts.items() if kind in REGRESSIONS}
    words = {kind: "fail" if kind == "fails" and n > 1 else kind for kind, n in worse.items()}
    found = ", ".join(f"{counted(n, 'case')} {words[kind]}" for kind, n in worse.items())
    if outdated := len(verdict.outdated):
        verb = "passes" if outdated == 1 else "pass"
        passing = f"{counted(outdated, 'case')} {verb}, which {EXPECTATIONS} expects to fail"
        found = f"{found}; {passing}" if found else passing
    judged, total = verdict.judged, len(verdict.findings)
    if not total:
        return "Cannot judge: no case has a record of both commits"
    if 2 * judged < total:
        blind = f"cannot judge {total - judged} of {counted(total, 'case')}"
        return f"{found}; {blind}" if found else blind.capitalize()
    return found or f"No regression in {counted(judged, 'case')} that could be judged"


def _failing(verdict: Verdict) -> tuple[Comparison, ...]:
    """Return the findings for which the gate fails."""
    worse = set(map(id, verdict.worse))
    return tuple(one for one in verdict.findings if id(one) in worse or one.is_outdated)


def _counts(verdict: Verdict) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in verdict.counts.items()) or "no records"


def _elsewhere(verdict: Verdict) -> list[str]:
    lines = [
        f"no record on {machine}, {device} ({counted(n, 'case')} at the base)"
        for (machine, device), n in verdict.elsewhere.items()
    ]
    if verdict.undeclared:
        lines.append(f"{counted(verdict.undeclared, 'case')} no longer declared, and not compared")
    return lines


def _verdict_json(verdict: Verdict, base: str, head: str) -> str:
    findings = [
        {
            **one.case._asdict(),
            "cell": one.case.cell,
            "kind": one.kind,
            "expected": one.is_expected,
            "reason": one.reason,
            "expectation": one.expectation and one.expectation.model_dump(by_alias=True),
            **_details(one.change),
        }
        for one in verdict.findings
    ]
    elsewhere = [
        {"machine": machine, "device": device, "cases": n}
        for (machine, device), n in verdict.elsewhere.items()
    ]
    about = {
        "headline": _headline(verdict), "base": base, "head": head, "findings": findings,
        "not_measured": elsewhere,
    }  # fmt: skip
    return json.dumps(about, indent=1)


def _details(change: CaseChange | None) -> dict[str, Any]:
    if change is None:
        return {}
    return {
        "facts": [asdict(fact) for fact in change.facts],
        "changes": [asdict(one) for one in change.changes.values()],
    }


def _verdict_junit(verdict: Verdict, base: str, head: str) -> str:
    """Return a test case per finding: worse ones fail, those that cannot be judged are skipped."""
    suite = ET.Element("testsuite", name=f"ivhl gate {head} against {base}")
    failing, gaps = (set(map(id, found)) for found in (_failing(verdict), verdict.gaps))
    for one in verdict.findings:
        place = printable(f"{one.case.machine}.{one.case.device}.{one.case.cell}")
        case = ET.SubElement(suite, "testcase", classname=place, name=printable(one.case.name))
        if id(one) in failing:
            ET.SubElement(case, "failure", type=one.kind).text = printable(one.reason)
        elif id(one) in gaps:
            ET.SubElement(case, "skipped", message=printable(one.reason))
    counts = {"failures": len(failing), "skipped": len(gaps - failing)}
    for name, n in {"tests": len(verdict.findings), **counts}.items():
        suite.set(name, str(n))
    return ET.tostring(suite, encoding="unicode", xml_declaration=True)


def _verdict_annotations(verdict: Verdict, base: str, head: str) -> str:
    """Return commands of GitHub Actions: errors for what is worse, a notice with the headline."""
    lines = [f"::notice title=ivhl gate::{head} against {base}: {_escaped(_headline(verdict))}"]
    for one in _failing(verdict):
        title = _escaped(f"{one.kind}: {one.case.name} in {one.case.cell}").replace(",", "%2C")
        lines.append(f"::error title={title.replace(':', '%3A')}::{_escaped(one.reason)}")
    return "\n".join(lines)


def _escaped(text: str) -> str:
    """Return text as the commands of GitHub Actions need it: no line ends a command."""
    return printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _verdict_markdown(verdict: Verdict, base: str, head: str) -> str:
    """Return the verdict as a Markdown comment; text from records is escaped."""
    lines = [f"### {_headline(verdict)}", "", f"`{head}` against `{base}`: {_counts(verdict)}."]
    for title, meaning, found in verdict.listed():
        table = ["| machine | cell | case | |", "|---|---|---|---|"]
        for one in found[:_ROWS_SHOWN]:
            case = one.case
            place = f"{case.machine}, {case.device}"
            cells = (code(place), code(case.cell), code(case.name), code(one.reason))
            table.append(f"| {' | '.join(cells)} |")
        if len(found) > _ROWS_SHOWN:
            table += ["", f"And {len(found) - _ROWS_SHOWN} more."]
        heading = f"{title}: {meaning} ({len(found)})"
        if title in REGRESSIONS or any(one.is_outdated for one in found):
            lines += ["", f"**{heading}**", "", *table]
        else:
            lines += ["", f"<details><summary>{heading}</summary>", "", *table, "", "</details>"]
    lines += ["", *(f"- {code(text)}" for text in _elsewhere(verdict))]
    return "\n".join(lines).rstrip()
