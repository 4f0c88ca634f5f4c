"""``ivhl blame``: which release, stage and setting make what a case shows."""

from __future__ import annotations

from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from ivhl.bench.blame import Suspicion, blame
from ivhl.bench.blame_report import culprit_of, write_report
from ivhl.bench.checks import check_device
from ivhl.bench.selection import named_case
from ivhl.cli import app, options
from ivhl.cli.declared import as_given, declared, folder_to_write, results_folder
from ivhl.cli.run import blame_file
from ivhl.cli.screen import print_json
from ivhl.errors import LockError, SpecError, UnknownNameError
from ivhl.git import find_commit
from ivhl.matrix.locks import ensure_lock
from ivhl.matrix.project import load
from ivhl.matrix.spec import CellSpec
from ivhl.measure.effort import DEADLINE_S, Effort
from ivhl.records.record import FAILURE_CLASSES
from ivhl.script.running import Script
from ivhl.tracker.causes.blame import breaks_in, symptom_in
from ivhl.tracker.changes.kinds import judge_changes
from ivhl.tracker.changes.repetition import outcome_of
from ivhl.tracker.store.index import open_index
from ivhl.tracker.store.metrics import measured
from ivhl.tracker.store.records import case_name, newest_by
from ivhl.tracker.support.compat import release_key
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.wording import counted, seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ivhl.bench.blame import Blamed
    from ivhl.records.record import RunRecord
    from ivhl.tracker.changes.kinds import CaseChange
    from ivhl.tracker.store.entries import Entry
    from ivhl.tracker.store.index import Index
    from ivhl.tracker.store.spread import Spreads


@app.command("blame")
def blame_command(
    case: Annotated[
        str,
        typer.Argument(
            help="WORKLOAD/SIZE/VARIANT, or a workload: then its core variant; or a script, FILE.py."
        ),
    ],
    python: options.OnePython = None,
    torch: options.OneRelease = None,
    good: options.Good = None,
    sought: options.For = "failure",
    symptom: options.Symptom = None,
    machine: options.OneMachine = None,
    commit: options.OneCommit = "HEAD",
    device: options.Device = "cpu",
    threads: options.Threads = 1,
    deadline: options.Deadline = DEADLINE_S,
    output: options.Output = None,
    results: options.Results = None,
    requirement: options.With = None,
    *,
    network: options.Network = False,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Find the compiler stage and setting behind a failure or slowness.

    Writes a report with a minimal script that can be posted upstream. Of a script outside of a
    project it takes --python, --torch, --with, --network and --deadline.
    """
    if case.endswith(".py"):
        others = (good, symptom, machine, output, results, as_json, sought != "failure")
        to_run = Script(path=Path(case), deadline_s=deadline, network=network)
        blame_file(to_run, torch, python, requirement or (), is_case=any(others))
        return
    root, matrix = load()
    check_device(device)
    console = Terminal(stderr=as_json, highlight=False, soft_wrap=True)
    one = named_case(declared(root), case, device)
    if one.variant.engine != "compile":
        raise SpecError(
            f"{one.name} is run by {one.variant.engine}, which has no stages of torch.compile",
            hint="name a variant of the engine compile",
        )
    python = python or matrix.pythons[0]
    if python not in matrix.pythons:
        raise UnknownNameError("Python", python, matrix.pythons)
    index = open_index(results_folder(results, root))
    machines = {entry.case.machine for entry in index.entries}
    if machine is not None and machine not in machines:
        raise UnknownNameError("machine", machine, sorted(machines))
    entries = [
        e
        for e in index.entries
        if case_name(e.case) == one.name
        and e.python == python
        and e.case.machine in ([machine] if machine else machines)
        and e.case.device.split()[0] == device
        and not e.case.existing
    ]
    records = _records(index, entries)
    ends = torch and matrix.release(torch), good and matrix.release(good)
    good_release: str | None
    if sought == "slowdown":
        runs = _runs(index, entries)
        bad_release, good_release = _slower(runs, index.spreads, *ends, one.name)
    else:
        bad_release, good_release = _releases(records, *ends, sought, one.name)
    if bad_release == good_release:
        raise SpecError(
            f"--torch and --good are the same release, {bad_release}",
            hint="--good: a release in which it works, or is faster",
        )
    cells = [CellSpec(python, release) for release in filter(None, (bad_release, good_release))]
    given = {matrix.release(text): text for text in filter(None, (torch, good))}
    for cell in cells:
        with as_given(given):
            lock = ensure_lock(root, matrix, cell)
        if lock.kind != "locked":
            raise LockError(
                f"{cell.id} cannot be made: {lock.message.splitlines()[0]}",
                hint="name another release with --torch or --good",
            )
    asked = Suspicion(
        case=one,
        bad=cells[0],
        good=cells[1] if good_release else None,
        symptom=_symptom(sought, symptom, records.get(bad_release), one.name),
        commit=find_commit(root, commit),
        effort=Effort(device=device, threads=threads, deadline_s=deadline),
        folder=folder_to_write(
            output or root / ".asv" / "blame" / f"{one.name.replace('/', '-')}-{bad_release}"
        ),
        force=force,
    )
    beside = f"beside {good_release}" if good_release else "no release is known to work"
    console.print(
        Text(
            f"{one.name}, Python {python}, PyTorch {bad_release}: {asked.symptom}; {beside}",
            "bold",
        )
    )
    found = blame(root, asked, console)
    command = _again(asked, sought, symptom)
    known = {release: _seen(record) for release, record in records.items()}
    report = write_report(root, asked, found, known, command)
    if as_json:
        print_json("ivhl.blame/1", **_as_dict(asked, found, report))
    else:
        _print(console, found, report)


def _again(asked: Suspicion, sought: str, symptom: str | None) -> str:
    """Return the command that asks the same again, with all that its trials depend on."""
    good, effort = asked.good, asked.effort
    return (
        f"ivhl blame {asked.case.name} --python {asked.bad.python} --torch {asked.bad.torch}"
        f"{f' --good {good.torch}' if good is not None else ''}"
        f"{f' --for {sought}' if sought != 'failure' else ''}"
        f"{f' --symptom {symptom}' if symptom else ''}"
        f"{f' --device {effort.device}' if effort.device != 'cpu' else ''}"
        f"{f' --threads {effort.threads}' if effort.threads != 1 else ''}"
        f" --commit {asked.commit[:12]}"
    )


def _records(index: Index, entries: Sequence[Entry]) -> dict[str, RunRecord]:
    """Return the newest record of each release, oldest release first."""
    newest = newest_by(index.read(entries), lambda record: record.cell.torch)
    return {release: newest[release] for release in sorted(newest, key=release_key)}


def _runs(index: Index, entries: Sequence[Entry]) -> tuple[dict[str, RunRecord], ...]:
    """Return the newest record of each release, of each machine at each commit by itself."""
    runs: dict[tuple[str, str], list[RunRecord]] = {}
    for record in index.read(entries):
        runs.setdefault((record.machine.name, record.commit), []).append(record)
    found = []
    for group in runs.values():
        newest = newest_by(group, lambda record: record.cell.torch)
        found.append({release: newest[release] for release in sorted(newest, key=release_key)})
    return tuple(found)


def _releases(
    records: Mapping[str, RunRecord], bad: str | None, good: str | None, sought: str, case: str
) -> tuple[str, str | None]:
    """Return the release that shows it and one that does not, by the records where not named.

    Raises:
        SpecError: If no record shows it and no release is named.
    """
    fewest = min(map(breaks_in, records.values()), default=0)
    shows = {
        release: record.failure is not None if sought == "failure" else breaks_in(record) > fewest
        for release, record in records.items()
    }
    if bad is None:
        bad = next((release for release in reversed(shows) if shows[release]), None)
    if bad is None:
        raise SpecError(
            f"no record of {case} on this Python shows a {sought}",
            hint="name the release: --torch RELEASE, and --symptom CLASS if it has no record",
        )
    if good is None:
        works = [release for release, shown in shows.items() if not shown and release != bad]
        key = release_key(bad)
        later = [release for release in works if release_key(release) > key]
        good = later[0] if later else (works[-1] if works else None)
    return bad, good


def _slower(
    runs: Iterable[Mapping[str, RunRecord]],
    spreads: Spreads,
    bad: str | None,
    good: str | None,
    case: str,
) -> tuple[str, str]:
    """Return the releases of the largest slowdown between neighbours that were measured alike.

    The largest by the lower end of its interval, of those that noise does not explain.

    Raises:
        SpecError: If no records show one and a release is not named.
    """
    if bad is not None and good is not None:
        return bad, good
    pairs: dict[tuple[int, str, str], tuple[RunRecord, RunRecord]] = {}
    for number, records in enumerate(runs):
        timed = [release for release, one in records.items() if measured(one, "compiled")]
        for one, other in pairwise(timed):
            if bad in (None, other) and good in (None, one):
                pairs[number, one, other] = records[one], records[other]
    steps = {
        (one, other): _least(change)
        for (_, one, other), change in judge_changes(pairs, spreads).items()
        if change.kind == "slower"
    }
    if not steps:
        raise SpecError(
            f"no records of one machine and commit show that compiled code of {case} became slower "
            "from a release to the next by more than noise",
            hint="name both: --torch SLOWER --good FASTER",
        )
    before, after = max(steps, key=lambda step: steps[step])
    return after, before


def _least(change: CaseChange) -> float:
    """Return by how much compiled code became slower at least, alone or against eager code."""
    alone, beside = (change.changes.get(metric) for metric in ("compiled", "speedup"))
    return max(alone.low if alone else 0.0, 1 / beside.high if beside else 0.0)


def _symptom(sought: str, given: str | None, record: RunRecord | None, case: str) -> str:
    """Return the failure class that is asked for.

    Raises:
        SpecError: If neither an option nor a record names it.
        UnknownNameError: If an option names another class.
    """
    if given is not None and given not in FAILURE_CLASSES:
        raise UnknownNameError("failure class", given, FAILURE_CLASSES)
    if sought == "slowdown":
        return "slow"
    found = given or (symptom_in(record) if record is not None else "")
    if sought == "graph-break":
        return "graph-break"
    if not found or found == "graph-break":
        raise SpecError(
            f"no record says how {case} fails there",
            hint="--symptom wrong, compile, backend_compile or another class (docs/measuring.md)",
        )
    return found


def _seen(record: RunRecord) -> str:
    text = outcome_of(record)
    compiled = measured(record, "compiled")
    at = f"commit {record.commit[:8]}, {record.machine.name}"
    return f"{text}{f', compiled {seconds(compiled.value)}' if compiled else ''} ({at})"


def _print(console: Terminal, found: Blamed, report: Path) -> None:
    console.print(Text(culprit_of(found), "bold red"))
    if found.factors:
        parts = ", ".join(f"{stage} {factor}" for stage, factor in found.factors.items())
        console.print(f"  {parts}")
    cures = found.cures
    here = sum(one.outcome != "not here" for one in found.settings.values())
    tried = counted(here, "setting")
    if found.settings:
        console.print(f"  cured by {', '.join(cures) if cures else 'none'} of {tried}")
    for line in found.differences:
        console.print(f"  {line}" if not line.startswith("```") else line)
    for cell, (shows, printed) in found.shown.items():
        console.print(f"  the script, {cell}: {'shows it' if shows else 'does not'}: {printed}")
    if why := found.script.get("why"):
        console.print(f"  no script: {why}")
    for text in found.undecided:
        console.print(f"  not decided: {text}")
    console.print(f"  report: {report}")


def _as_dict(asked: Suspicion, found: Blamed, report: Path) -> dict[str, object]:
    return {
        "case": asked.case.name,
        "bad": asked.bad.id,
        "good": asked.good.id if asked.good else None,
        "symptom": asked.symptom,
        "stage": found.stage,
        "sure": found.is_sure,
        "rate": list(found.rate),
        "culprit": culprit_of(found),
        "bisected": found.bisected,
        "cures": found.cures,
        "stages": {name: _tried(one) for name, one in found.stages.items()},
        "settings": {name: _tried(one) for name, one in found.settings.items()},
        "factors": {stage: factor._asdict() for stage, factor in found.factors.items()},
        "differences": found.differences,
        "script": {cell: shows for cell, (shows, _) in found.shown.items()},
        "report": str(report),
    }


def _tried(one: object) -> dict[str, object]:
    kept = ("outcome", "text", "compiled_s", "breaks")
    return {key: value for key, value in asdict(one).items() if key in kept}  # type: ignore[call-overload]
