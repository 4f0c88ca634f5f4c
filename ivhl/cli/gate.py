"""``ivhl gate``: compare a commit with its base, and decide an exit code."""

from __future__ import annotations

import html
import math
import os
import re
from collections import defaultdict
from itertools import accumulate
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

import typer

from ivhl.cli import app, options
from ivhl.cli.compare import in_json
from ivhl.cli.declared import (
    declared,
    executor_for,
    folder_to_write,
    results_folder,
    warn,
    warn_unread,
)
from ivhl.cli.names import RELEASE, all_named, recorded
from ivhl.cli.sarif import SarifResult, place_in, to_sarif
from ivhl.cli.screen import picked, print_json, screen
from ivhl.errors import FixedError, IvhlError, SpecError, WorseError
from ivhl.git import commits_of_same_code, find_commit, tracked_files
from ivhl.machine.identity import BY_PROCESSOR, this_machine
from ivhl.matrix.project import MATRIX, find_root
from ivhl.matrix.spec import load_matrix
from ivhl.observatory.signatures import text_of
from ivhl.records.identity import CaseInCell, case_of
from ivhl.records.text import printable
from ivhl.tracker.changes.disturbed import disturbed_keys
from ivhl.tracker.changes.gate import REGRESSIONS, Verdict, judge
from ivhl.tracker.changes.incidents import note_on
from ivhl.tracker.changes.kinds import MEANINGS, Between
from ivhl.tracker.store.index import Index, open_index
from ivhl.tracker.store.records import case_name, grouped_by, newest_by
from ivhl.tracker.support.compat import release_key
from ivhl.tracker.support.expectations import EXPECTATIONS, load_expectations, never_covering
from ivhl.tracker.support.known import causes_of
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.views.source import case_page
from ivhl.tracker.wording import NOT_TIMED, counted, marked, seconds, shown_reason, some, times

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from ivhl.bench.confirm import Confirmed
    from ivhl.bench.experiment import Runs
    from ivhl.bench.main import Executor
    from ivhl.records.record import Arm, RunRecord
    from ivhl.tracker.changes.compare import Comparison
    from ivhl.tracker.support.expectations import Expectations

# GitHub accepts comments of at most 65,536 characters, and the action that posts them cuts after
# 60,000 bytes.
_ROOM = 55_000
_ROWS_SHOWN = 50
_NAMED = 3  # cells, cases and entries with the same signature
_MOST_NOTES = 10
# A plain link would list the pull request below the report of PyTorch, once per comment.
_REPORTS = ("https://github.com/", "https://redirect.github.com/")
_ROUNDS = 5  # at most, to confirm suspects


class GapsError(IvhlError):
    """No case is known to be worse, but records are missing or cannot be compared."""

    exit_code: ClassVar[int] = 8


@app.command("gate")
def gate_command(
    context: typer.Context,
    base: options.Base,
    commit: options.OneCommit = "HEAD",
    machine: options.Machines = None,
    results: options.Results = None,
    form: options.Form = None,
    workload: options.Workloads = None,
    python: options.Pythons = None,
    torch: options.Releases = None,
    rounds: options.Rounds = None,
    executor: options.Executor = "here",
    slurm: options.Slurm = None,
    site_url: options.SiteUrl = "",
    *,
    measure: options.Measure = False,
    confirm: options.Confirm = False,
    allow_missing: options.AllowMissing = False,
    every: options.Every = False,
    as_json: options.Json = False,
) -> None:
    """Fail if a case newly fails, breaks more graphs, or is slower than at the base.

    Exit code 7 if a case is worse; 11 if a case passes that envs/expectations.toml expects to fail;
    8 if none is, but records are missing or cannot be compared; 0 otherwise.
    """
    root = find_root()
    chosen = executor_for(root, context, executor, slurm)
    # What measures makes the folder.
    folder = folder_to_write(results if measure and results else results_folder(results, root))
    commits = _commits(root, base, commit)
    matrix = load_matrix(root / MATRIX)
    # The name under which this machine measures may be another one than its host name.
    here = machine[0] if machine and len(machine) == 1 else os.uname().nodename
    if BY_PROCESSOR in (machine or ()):
        here = this_machine(BY_PROCESSOR).name
        machine = [here if name == BY_PROCESSOR else name for name in machine or ()]
    workloads = declared(root)
    names = all_named("workload", workload, {one.name for one in workloads})
    runs = _runs(root, folder, here, chosen) if measure or confirm else None
    if runs is not None and measure:
        from ivhl.bench.confirm import measure_pair  # noqa: PLC0415  (it needs all that measures)

        cells = matrix.cells(all_named("Python", python, matrix.pythons), torch or ())
        measure_pair(runs, cells, commits, names)
    index = open_index(folder)
    warn_unread(index.problems, results)
    recorded_cases = [entry.case for entry in index.entries]
    machines = recorded("machine", machine, {case.machine for case in recorded_cases})
    releases = {*matrix.releases("extended"), *(case.torch for case in recorded_cases)}
    wanted_pythons = recorded(
        "Python", python, {*matrix.pythons, *(case.python for case in recorded_cases)}
    )
    wanted_releases = recorded(RELEASE, [matrix.release(one) for one in torch or ()], releases)
    entries = [entry for entry in index.entries if entry.case.machine in machines]
    hashes = {entry.commit for entry in entries}
    before, after = (commits_of_same_code(root, commit, hashes) for commit in commits)

    def wanted(case: CaseInCell) -> bool:
        return (
            (not names or case.workload in names)
            and case.python in wanted_pythons
            and case.torch in wanted_releases
        )

    records = index.read(entry for entry in entries if entry.commit in before | after)
    expectations = _expectations(root, index)
    verdict = judge(
        records,
        before,
        after,
        workloads,
        index.spreads,
        expectations=expectations,
        disturbed=disturbed_keys(index.entries),
        wanted=wanted,
    )
    found: list[Confirmed] = []
    if runs is not None and confirm:
        most = min(rounds or _ROUNDS, _ROUNDS)
        verdict, found = _confirmed(runs, commits, verdict, most, every=bool(workload))
    short = commits[0][:8], commits[1][:8]
    notes = _notes(verdict, commits, expectations)
    if as_json:
        print_json("ivhl.gate/1", **_as_dict(verdict, *short, found, notes))
    elif form == "sarif":
        typer.echo(_as_sarif(verdict, records, after, root))
    elif form is not None:
        text = _verdict_markdown(verdict, *short, site_url, notes)
        shown = [record for record in records if wanted(case_of(record))]
        timed = times_table(shown, before, after, _ROOM - bytes_of([text]))
        typer.echo("\n".join([text, *timed]))
    else:
        with screen(every=every) as console:
            console.print(_verdict_text(verdict, *short, notes))
    _raise_for(verdict, commits, allow_missing=allow_missing)


def _raise_for(verdict: Verdict, commits: tuple[str, str], *, allow_missing: bool) -> None:
    """Raise the error whose exit code a verdict has, if it has any."""
    gaps = verdict.gaps
    if verdict.worse:
        raise WorseError(
            f"{_headline(verdict)}, compared with {commits[0][:8]}",
            hint="--confirm measures them again; ivhl results --workload NAME shows the records",
        )
    if outdated := verdict.outdated:
        raise FixedError(
            f"{counted(len(outdated), 'result')} passing: {EXPECTATIONS} still expects a failure",
            hint="remove or narrow the entries: ivhl check expectations names the cases",
        )
    if (gaps or not verdict.compared) and not allow_missing:
        what = f"{counted(len(gaps), 'result')} missing or incomparable" if gaps else ""
        raise GapsError(
            what or "nothing to compare: records are missing, or no longer declared",
            hint=f"measure {commits[0][:8]} and {commits[1][:8]} in the same way, or pass "
            "--allow-missing",
        )


def _runs(root: Path, results: Path, machine: str, executor: Executor) -> Runs:
    """Return what measures with an executor."""
    # Imported here: they need all that measures.
    from ivhl.bench.executors import measuring  # noqa: PLC0415
    from ivhl.bench.experiment import Runs  # noqa: PLC0415
    from ivhl.bench.request import Request  # noqa: PLC0415

    name = this_machine(machine).name
    request = Request(root=root, python="", machine=name, results=results)
    return Runs(
        request, Terminal(stderr=True, highlight=False, soft_wrap=True), measuring(executor)
    )


def _commits(root: Path, base: str, head: str) -> tuple[str, str]:
    """Return the full hashes of two commits.

    Raises:
        SpecError: If they are the same: every case would be unchanged, and a wrong base would let
            everything pass.
    """
    commits = find_commit(root, base), find_commit(root, head)
    if commits[0] == commits[1]:
        raise SpecError(
            f"--base {base} and --commit {head} are the same commit",
            hint="name another base, e.g. --base HEAD~1; on a branch, --base main",
        )
    return commits


def _expectations(root: Path, index: Index) -> Expectations:
    """Return the known failures; name those that no measured case matches."""
    expectations = load_expectations(root)
    measured = {entry.case for entry in index.entries}
    unmatched = never_covering(expectations.entries, measured)
    warn(f"{EXPECTATIONS}: matches no measured case: {one.title}" for one in unmatched)
    return expectations


def _confirmed(
    runs: Runs, commits: tuple[str, str], verdict: Verdict, rounds: int, *, every: bool
) -> tuple[Verdict, list[Confirmed]]:
    """Measure suspects again; return the verdict without what this did not confirm."""
    from ivhl.bench.confirm import confirm, confirmed_only, suspects_on  # noqa: PLC0415

    here = str(runs.request.machine)
    suspects = suspects_on(here, verdict, every=every)
    if not suspects:
        runs.console.print(
            f"no {'case' if every else 'suspects'} on {here}: nothing to confirm here "
            "(--machine NAME, or --measure first)"
        )
    found = confirm(runs, commits, suspects, rounds)
    return confirmed_only(verdict, here, found), found


def _notes(
    verdict: Verdict, commits: tuple[str, str], expectations: Expectations
) -> dict[CaseInCell, str]:
    """Return what the project says of the changes of cases, of those of which it says something."""
    said = {
        one.case: note_on(
            Between("commit", *commits, one.case, one.kind, one.reason), expectations.notes
        )
        for one in verdict.findings
    }
    return {case: text for case, text in said.items() if text}


def _verdict_text(verdict: Verdict, base: str, head: str, notes: Mapping[CaseInCell, str]) -> str:
    lines = [_headline(verdict), f"{head} against {base}: {_counts(verdict)}"]
    for title, meaning, found in verdict.listed():
        lines += ["", f"{title}: {meaning}"]
        groups = grouped_by(
            ((one.case, one.reason, notes.get(one.case)) for one in found),
            lambda one: (one[0].machine, one[0].device, one[0].cell, *one[1:]),
        )
        for (machine, device, cell, reason, note), alike in groups.items():
            lines.append(f"  {machine}, {device}, {cell}: {', '.join(c.name for c, *_ in alike)}")
            lines.append(f"    {shown_reason(printable(reason))}")
            lines += [f"    known: {printable(note)}"] if note else []
    lines += ["", *elsewhere] if (elsewhere := _elsewhere(verdict)) else []
    return "\n".join(lines)


def _headline(verdict: Verdict) -> str:
    """Return what the comparison shows; where it can show little, that comes first."""
    worse = {kind: n for kind, n in verdict.counts.items() if kind in REGRESSIONS}
    words = {kind: "fail" if kind == "fails" and n > 1 else kind for kind, n in worse.items()}
    found = [", ".join(f"{counted(n, 'result')} {words[kind]}" for kind, n in worse.items())]
    if outdated := len(verdict.outdated):
        verb = "passes" if outdated == 1 else "pass"
        found.append(f"{counted(outdated, 'result')} {verb}, which {EXPECTATIONS} expects to fail")
    judged, total = verdict.judged, len(verdict.findings)
    if not total:
        return "Cannot judge: no case has a record of both commits"
    if 2 * judged < total:
        found.append(f"cannot judge {total - judged} of {counted(total, 'result')}")
    text = "; ".join(filter(None, found))
    return text[:1].upper() + text[1:] or (
        f"No regression in {counted(judged, 'result')} that could be judged"
    )


def _counts(verdict: Verdict) -> str:
    found = ", ".join(f"{n} {kind}" for kind, n in verdict.counts.items()) or "no records"
    return f"{found}; times are corrected over {counted(verdict.together, 'result')}"


def _elsewhere(verdict: Verdict) -> list[str]:
    lines = [
        f"no record on {machine}, {device} ({counted(n, 'result')} at the base)"
        for (machine, device), n in verdict.elsewhere.items()
    ]
    if verdict.undeclared:
        lines.append(f"{counted(verdict.undeclared, 'result')} no longer declared, not compared")
    return lines


def _as_dict(
    verdict: Verdict,
    base: str,
    head: str,
    found: Sequence[Confirmed],
    notes: Mapping[CaseInCell, str],
) -> dict[str, Any]:
    return {
        "headline": _headline(verdict),
        "base": base,
        "head": head,
        "findings": [
            {
                **one.case._asdict(),
                **picked(one, "kind reason"),
                "cell": one.case.cell,
                "note": notes.get(one.case, ""),
                "expected": one.is_expected,
                "expectation": one.expectation and one.expectation.model_dump(by_alias=True),
                **(in_json(one.change) if one.change else {}),
            }
            for one in verdict.findings
        ],
        "not_measured": [
            {"machine": machine, "device": device, "cases": n}
            for (machine, device), n in verdict.elsewhere.items()
        ],
        "corrected_over": verdict.together,
        "confirmed": [one._asdict() for one in found],
    }


def _as_sarif(
    verdict: Verdict, records: Sequence[RunRecord], after: Collection[str], root: Path
) -> str:
    """Return what is worse as SARIF, at the lines of the project that failures and breaks name."""
    texts: dict[CaseInCell, list[str]] = defaultdict(list)
    for record in records:
        if record.commit in after:
            broken = record.compile.graph_breaks if record.compile else ()
            message = record.failure.message if record.failure else ""
            texts[case_of(record)] += [message, *(one.text for one in broken)]
    files = tracked_files(root, ("*.py",))
    found = (
        SarifResult(
            one.kind,
            "error",
            f"{one.case.name} in {one.case.cell} on {one.case.machine}: {one.reason}",
            *place_in([one.reason, *texts[one.case]], files, MATRIX.as_posix()),
        )
        for one in verdict.worse
    )
    return to_sarif({kind: MEANINGS[kind] for kind in sorted(REGRESSIONS)}, found)


def _verdict_markdown(
    verdict: Verdict, base: str, head: str, site: str, said: Mapping[CaseInCell, str]
) -> str:
    """Return the verdict as a Markdown comment; text from records is escaped."""
    lines = [f"### {_headline(verdict)}", "", f"`{head}` against `{base}`: {_counts(verdict)}."]
    notes = [f"- {code(text)}" for text in _elsewhere(verdict)]
    notes = ["", some(notes, _MOST_NOTES, "\n")] if notes else []
    if verdict.worse and not site:
        notes += [
            "",
            "Paths are pages of the site (`ivhl publish`); `--site-url` makes them links.",
        ]
    for title, meaning, found in verdict.listed():
        signed = "signature" if title in ("fails", "expected") else "reason"
        heads = ["results", "machine", "cell", "case", signed]
        room = _ROOM - bytes_of([*lines, *notes])
        shown = table(heads, _rows(found, site, said), _ROWS_SHOWN, room)
        heading = f"{title}: {meaning} ({len(found)})"
        if title in REGRESSIONS or any(one.is_outdated for one in found):
            lines += ["", f"**{heading}**", "", *shown]
        else:
            lines += ["", f"<details><summary>{heading}</summary>", "", *shown, "", "</details>"]
    return "\n".join([*lines, *notes]).rstrip()


def _rows(
    found: Sequence[Comparison], site: str, said: Mapping[CaseInCell, str]
) -> list[list[str]]:
    """Return a row for each signature: how many results have it, where, and what is known of it."""
    groups = grouped_by(found, _signature)
    rows = []
    for (text, _), group in sorted(groups.items(), key=lambda item: -len(item[1])):
        cases = [one.case for one in group]
        places = dict.fromkeys(code(f"{one.machine}, {one.device}") for one in cases)
        cells = dict.fromkeys(code(one.cell) for one in cases)
        pages = {case_page(one): code(one.name) for one in cases}
        linked = [
            link(name, f"{site}{page}") if site else f"{name} {code(page)}"
            for page, name in pages.items()
        ]
        where = (some([*names], _NAMED) for names in (places, cells))
        noted = dict.fromkeys(said[one] for one in cases if one in said)
        known = [code(f"known: {one}") for one in [*noted][:_NAMED]]
        about = "<br>".join([code(text), *known, *_known(group)])
        rows.append([f"{len(group)}", *where, some(linked, _NAMED, "<br>"), about])
    return rows


def _signature(one: Comparison) -> tuple[str, str]:
    """Return what makes a result fail, and of which workload a wrong one is; else the reason."""
    failure = one.after.failure if one.after else None
    if failure is None or not (one.is_expected or one.kind in ("fails", "new")):
        # Missing results are alike, whatever they were before.
        return one.reason.partition("; before: ")[0], ""
    text = f"{failure.phase}, {failure.failure_class}: {text_of(failure)}"
    return text, one.case.workload if failure.failure_class == "wrong" else ""


def _known(group: Sequence[Comparison]) -> list[str]:
    """Return the known causes of failures: entries of the project, and causes in PyTorch."""
    entries = {one.expectation: None for one in group if one.expectation and one.is_expected}
    causes = dict.fromkeys(
        cause
        for one in group
        if one.after is not None and (failure := one.after.failure) is not None
        for cause in causes_of(one.case, failure.failure_class, failure.message)
    )
    return [
        *(code(f"expected: {one.why}") for one in [*entries][:_NAMED]),
        *(
            f"{link(code(one.short), one.url.replace(*_REPORTS))} {code(one.plain)}"
            if one.url
            else code(one.plain)
            for one in causes
        ),
    ]


_LONGEST_SHOWN = 250
# References that ``html.escape`` wrote stay as they are: they contain "&" and ";" only.
_MARKDOWN = re.compile(r"[\\`*_{}\[\]()#!|~@$:^=]|(?<=\bwww)\.", re.IGNORECASE)


def code(text: str) -> str:
    """Return the text escaped, as code for a table cell, cut after 250 characters.

    Inside of ``<code>``, Markdown still makes links, images and emphasis, and GitHub makes links of
    addresses (``https:``, ``www.``), mentions and issues. None begins with a character reference.
    """
    plain = html.escape(printable(text[:_LONGEST_SHOWN]), quote=False)
    # In one pass: the replacements themselves contain "&", "#" and ";".
    return f"<code>{_MARKDOWN.sub(lambda sign: f'&#{ord(sign[0])};', plain)}</code>"


def link(text: str, address: str) -> str:
    """Return Markdown as a link, also within a table."""
    # What neither ends the address nor the cell, nor is more of Markdown in it.
    return f"[{text}]({quote(address, safe='/:%+~')})"


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    most: int | None = None,
    room: float = math.inf,
) -> list[str]:
    """Return the lines of a table of cells that are Markdown; of more rows, how many there are.

    Args:
        heads: The first row.
        rows: The others.
        most: Rows that are shown.
        room: Bytes that they may have.
    """
    lines = [f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows)]
    sizes = accumulate(bytes_of([line]) for line in lines)
    shown = sum(size <= room for size in sizes) - 2
    shown = max(0, shown if most is None else min(shown, most))
    more = ["", f"And {len(rows) - shown} more."] if shown < len(rows) else []
    return [*lines[: shown + 2], *more]


def bytes_of(lines: Iterable[str]) -> int:
    """Return the size of lines, each with its end."""
    return sum(len(line.encode()) + 1 for line in lines)


_TIMES_SHOWN = 60
_MACHINES = 3


def times_table(
    records: Iterable[RunRecord],
    before: Collection[str],
    after: Collection[str],
    room: float = math.inf,
) -> list[str]:
    """Return the lines of a Markdown table: a row for each case that the head was measured in.

    Args:
        records: Records of any commits.
        before: Hashes of the commits with the base's code.
        after: Hashes of the commits with the head's code.
        room: Bytes that its rows may have.
    """
    records = list(records)
    base = newest_by((r for r in records if r.commit in before), case_of)
    head = newest_by((r for r in records if r.commit in after), case_of)
    rows = []
    for case in sorted(
        head, key=lambda one: (one.machine, one.python, release_key(one.torch), one)
    ):
        record = head[case]
        failed = record.failure.failure_class if record.failure else NOT_TIMED
        speedup = marked(times(record.speedup.value), record) if record.speedup else code(failed)
        arms = (base[case].eager if case in base else None, record.eager, record.compiled)
        names = code(record.cell.id), code(case_name(record))
        rows.append([*names, *map(_time, arms), speedup])
    if not rows:
        return []
    machines = some(sorted({code(case.machine) for case in head}), _MACHINES)
    heads = ["cell", "case", "base eager", "head eager", "head compiled", "speedup"]
    return [
        "",
        f"<details><summary>seconds per call on {machines}</summary>",
        "",
        *table(heads, rows, _TIMES_SHOWN, room),
        "",
        "</details>",
    ]


def _time(arm: Arm | None) -> str:
    return seconds(median(arm.samples_s)) if arm and arm.samples_s else "-"
