"""``ivhl blame``: which release, stage and setting make what a case shows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ivhl.bench.blame import Blamed, Suspicion, blame
from ivhl.bench.blame_report import culprit_of, write_report
from ivhl.bench.checks import check_device
from ivhl.cli import app, options
from ivhl.cli.declared import declared, folder_to_write, given, locked, results_folder
from ivhl.cli.names import find_case, narrow, the_one
from ivhl.cli.run import blame_file
from ivhl.cli.screen import picked, print_json
from ivhl.errors import SpecError
from ivhl.git import find_commit
from ivhl.matrix.project import load
from ivhl.matrix.spec import CellSpec
from ivhl.measure.effort import DEADLINE_S, Effort
from ivhl.records.record import FAILURE_CLASSES, RunRecord
from ivhl.script.running import Script
from ivhl.tracker.causes.blame import by_release, runs_of, slower, suspected, symptom_of
from ivhl.tracker.changes.repetition import outcome_of
from ivhl.tracker.store.index import open_index
from ivhl.tracker.store.metrics import measured
from ivhl.tracker.store.records import case_name
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.wording import counted, seconds

# Beside the failure classes, what can be sought.
_SYMPTOMS = ("failure", "slowdown", "graph-break")
# Fields of a trial in JSON.
_TRIED = "outcome text compiled_s breaks"


@app.command("blame")
def blame_command(
    context: typer.Context,
    case: Annotated[
        str,
        typer.Argument(
            help="A case WORKLOAD/SIZE/VARIANT, a workload (its core variant), or a script FILE.py."
        ),
    ],
    python: options.OnePython = None,
    torch: options.OneRelease = None,
    good: options.Good = None,
    sought: options.AnySymptom = "failure",
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

    Writes a report with a minimal script that can be posted upstream. A script, outside of a
    project, takes --python, --torch, --with, --network and --deadline.
    """
    if case.endswith(".py"):
        named = ("case", "python", "torch", "requirement", "network", "deadline")
        others = given(context, without=named)
        to_run = Script(path=Path(case), deadline_s=deadline, network=network)
        blame_file(to_run, torch, python, requirement or (), others=others)
        return
    console = Terminal(stderr=as_json, highlight=False, soft_wrap=True)
    effort = Effort(device=device, threads=threads, deadline_s=deadline)
    asked, found, report = blame_case(
        case, effort, console, python=python, torch=torch, good=good, sought=sought,
        machine=machine, commit=commit, output=output, results=results, force=force,
    )  # fmt: skip
    if as_json:
        print_json("ivhl.blame/1", **_as_dict(asked, found, report))
    else:
        _print(console, found, report)


def blame_case(
    case: str,
    effort: Effort,
    console: Terminal,
    *,
    python: str | None = None,
    torch: str | None = None,
    good: str | None = None,
    sought: str = "failure",
    machine: str | None = None,
    commit: str = "HEAD",
    output: Path | None = None,
    results: Path | None = None,
    force: bool = False,
) -> tuple[Suspicion, Blamed, Path]:
    """Blame a case of this project; return what was asked and found, and the path of its report.

    Args: as the options of ``ivhl blame``.

    Raises:
        SpecError: If a name is not known, or the case shows nothing.
        IvhlError: If a cell cannot be made.
    """
    root, matrix = load()
    check_device(effort.device)
    one = find_case(declared(root), case, effort.device)
    if one.variant.engine != "compile":
        raise SpecError(
            f"{one.name} is run by {one.variant.engine}, which has no stages of torch.compile",
            hint="name a variant of the engine compile",
        )
    python = the_one("Python", python or matrix.pythons[0], matrix.pythons)
    sought = the_one("symptom", sought, (*_SYMPTOMS, *FAILURE_CLASSES))
    symptom = sought if sought in FAILURE_CLASSES else None
    index = open_index(results_folder(results, root))
    entries = [
        e
        for e in narrow(index.entries, None, machine=machine)
        if case_name(e.case) == one.name
        and e.python == python
        and e.case.device.split()[0] == effort.device
        and not e.case.existing
    ]
    records = by_release(index.read(entries))
    ends = torch and matrix.release(torch), good and matrix.release(good)
    good_release: str | None
    if sought == "slowdown":
        bad_release, good_release = slower(runs_of(index, entries), index.spreads, *ends, one.name)
    else:
        shown = "graph-break" if sought == "graph-break" else "failure"
        bad_release, good_release = suspected(records, *ends, shown, one.name)
    if bad_release == good_release:
        raise SpecError(
            f"--torch and --good are the same release, {bad_release}",
            hint="--good: name a release in which the case works, or is faster",
        )
    cells = [CellSpec(python, release) for release in filter(None, (bad_release, good_release))]
    asked_as = {matrix.release(text): text for text in filter(None, (torch, good))}
    for cell in cells:
        locked(root, matrix, cell, asked_as, "name another release with --torch or --good")
    usual = root / ".asv" / "blame" / f"{one.name.replace('/', '-')}-{bad_release}"
    asked = Suspicion(
        case=one,
        bad=cells[0],
        good=cells[1] if good_release else None,
        force=force,
        symptom=symptom_of(sought, symptom, records.get(bad_release), one.name),
        commit=find_commit(root, commit),
        folder=folder_to_write(output or usual),
        effort=effort,
    )
    asked.folder.mkdir(parents=True, exist_ok=True)  # refused now, and not after all trials
    beside = f"beside {good_release}" if good_release else "no release is known to work"
    text = f"{one.name}, Python {python}, PyTorch {bad_release}: {asked.symptom}; {beside}"
    console.print(Text(text, "bold"))
    found = blame(root, asked, console)
    command = _again(asked, sought)
    known = {release: _seen(record) for release, record in records.items()}
    return asked, found, write_report(root, asked, found, known, command)


def _again(asked: Suspicion, sought: str) -> str:
    """Return the command that asks the same again, with all that its trials depend on."""
    good, effort = asked.good, asked.effort
    return (
        f"ivhl blame {asked.case.name} --python {asked.bad.python} --torch {asked.bad.torch}"
        f"{f' --good {good.torch}' if good is not None else ''}"
        f"{f' --for {sought}' if sought != 'failure' else ''}"
        f"{f' --device {effort.device}' if effort.device != 'cpu' else ''}"
        f"{f' --threads {effort.threads}' if effort.threads != 1 else ''}"
        f" --commit {asked.commit[:12]}"
    )


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
        **picked(found, "stage bisected cures differences rate"),
        "sure": found.is_sure,
        "culprit": culprit_of(found),
        "stages": {name: picked(one, _TRIED) for name, one in found.stages.items()},
        "settings": {name: picked(one, _TRIED) for name, one in found.settings.items()},
        "factors": {stage: factor._asdict() for stage, factor in found.factors.items()},
        "script": {cell: shows for cell, (shows, _) in found.shown.items()},
        "report": str(report),
    }
