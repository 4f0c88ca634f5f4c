"""``ivhl fleet``: libraries of the observatory, shared among machines by a queue."""

from __future__ import annotations

import os
import shutil
import signal
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from ivhl.bench.request import Selection
from ivhl.cli import app, options
from ivhl.cli.declared import declared, interpreter_of
from ivhl.cli.names import all_named
from ivhl.cli.run import cells_of
from ivhl.cli.screen import check_suffix, print_json, screen
from ivhl.errors import InterpreterError, SpecError
from ivhl.fleet import coordinate
from ivhl.fleet.keys import sign
from ivhl.fleet.observed import control, jobs_of, measure
from ivhl.fleet.queue import FleetQueue, Need, need_of
from ivhl.fleet.timings import time_cases, timing_jobs
from ivhl.fleet.worker import FleetWorker
from ivhl.git import changed_files, find_commit
from ivhl.machine.cpu import unsteady_clock
from ivhl.machine.gpu import has_nvidia_driver
from ivhl.machine.identity import checked_name
from ivhl.machine.memory import GIB, memory_limit
from ivhl.machine.system import System
from ivhl.matrix.locks import lock_state
from ivhl.matrix.project import find_root, load
from ivhl.observatory.observing import EFFORT, Observatory
from ivhl.observatory.rows import TABLE, read_rows
from ivhl.records.files import replaced_whole
from ivhl.script.cells import SHIPPED, cells_folder, shipped_matrix
from ivhl.shipped import shipped_records
from ivhl.tracker.terminal import Columns, Terminal
from ivhl.tracker.views.project import LIBRARIES
from ivhl.tracker.wording import counted, seconds, some

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ivhl.fleet.queue import FleetJob
    from ivhl.matrix.spec import CellSpec

# A cell with its libraries has to fit, and what a case writes.
_ROOM_GB = 10
_MEMORY = 8 * GIB

fleet = typer.Typer(no_args_is_help=True)
Libraries = Annotated[
    list[str] | None, typer.Argument(help="Rows of observatory/libraries.toml (default: all).")
]


@fleet.callback()
def fleet_command() -> None:
    """Share the work of the observatory among machines, by a queue.

    IVHL_QUEUE has the address of the queue; docs/fleet.md sets one up.
    """


@fleet.command("plan")
def plan_command(
    library: Libraries = None,
    torch: options.Releases = None,
    python: options.Pythons = None,
    commit: options.Commits = None,
    device: options.Device = "cpu",
    machine: options.OneMachine = None,
    *,
    as_json: options.Json = False,
) -> None:
    """Show what has no record yet: cells, jobs, hours, and the workers that could do them.

    A job is a library in a cell; with --commit, the timings of a cell. --machine: only that
    machine does them. Workers are those of the queue, if one is given.
    """
    jobs = _jobs(library, torch, python, commit, device, machine)
    workers: list[dict[str, Any]] = []
    if address := os.environ.get("IVHL_QUEUE"):
        with FleetQueue(address, _tell) as opened:
            if opened.is_installed():
                opened.check()
                workers = coordinate.workers(opened)
    cells: dict[str, dict[str, Any]] = {}
    for one in jobs:
        cell = cells.setdefault(one.need.cell, {"jobs": 0, "core_s": 0.0})
        cell["jobs"] += 1
        cell["core_s"] += one.core_s
        cell["workers"] = sum(str(one.need) in worker["serves"] for worker in workers)
    if as_json:
        print_json(
            "ivhl.fleet-plan/1", cells=[{"cell": name, **cell} for name, cell in cells.items()]
        )
        return
    if not cells:
        typer.echo("nothing to run: every case has a record")
        return
    with screen(every=False, more="--json has all") as console:
        table = Columns("cell", "jobs", "of a core", "workers")
        for name, cell in cells.items():
            table.add_row(name, str(cell["jobs"]), seconds(cell["core_s"]), str(cell["workers"]))
        console.print(table)
        if address and (unable := _unserved(jobs, workers)):
            console.print(f"no worker can run {counted(len(unable), 'cell')}: {some(unable, 3)}")


def _unserved(jobs: Sequence[FleetJob], workers: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the cells of jobs that no worker serves."""
    served = {need for worker in workers for need in worker["serves"]}
    return [*dict.fromkeys(one.need.cell for one in jobs if str(one.need) not in served)]


def _jobs(
    library: Sequence[str] | None,
    torch: Sequence[str] | None,
    python: Sequence[str] | None,
    commit: Sequence[str] | None,
    device: str,
    machine: str | None,
) -> list[FleetJob]:
    if commit:
        if library:
            raise SpecError(
                f"--commit {commit[0]}: times the project's cases, not {library[0]}",
                hint="omit --commit or the library",
            )
        return _timings(commit, torch, python, device, machine)
    if device != "cpu" or machine:
        raise SpecError(
            f"--{'machine' if machine else 'device'}: needs --commit",
            hint="libraries are tried on the CPU of any machine",
        )
    folder = find_root() / LIBRARIES.parent
    if not (folder / TABLE).is_file():
        raise SpecError(f"this project has no {LIBRARIES}", hint="--commit HEAD: its timings")
    rows = read_rows(folder)
    names = all_named("library", library, [one.name for one in rows])
    chosen = [one for one in rows if not library or one.name in names]
    cells = cells_of(shipped_matrix(), torch or ["default"], python or ())
    return jobs_of(Observatory(folder, _tell, of_fleet=True), chosen, cells)


def _timings(
    commits: Sequence[str],
    torch: Sequence[str] | None,
    python: Sequence[str] | None,
    device: str,
    machine: str | None,
) -> list[FleetJob]:
    root, matrix = load()
    if changed := changed_files(root):
        _tell(f"warning: workers measure what is committed, not {some(changed, 3)}")
    cells = matrix.cells(all_named("Python", python, matrix.pythons), torch or (), "default")
    cases = Selection().choose(declared(root), device)
    return [
        job
        for commit in dict.fromkeys(find_commit(root, name) for name in commits)
        for job in timing_jobs(
            root,
            cells,
            cases,
            commit=commit,
            device=device,
            machine=None if machine is None else checked_name(machine),
        )
    ]


@fleet.command("submit")
def submit_command(
    library: Libraries = None,
    torch: options.Releases = None,
    python: options.Pythons = None,
    commit: options.Commits = None,
    device: options.Device = "cpu",
    machine: options.OneMachine = None,
) -> None:
    """Queue what `ivhl fleet plan` shows. The first call makes the tables of the queue.

    What the queue has is not queued again, so several coordinators may submit the same.
    """
    jobs = _jobs(library, torch, python, commit, device, machine)
    with FleetQueue(_address(), _tell) as opened:
        opened.install()
        new = coordinate.submit(opened, jobs)
        unable = _unserved(jobs, coordinate.workers(opened))
    typer.echo(f"{counted(new, 'new job')}, {len(jobs) - new} already in the queue")
    if unable:
        typer.echo(f"no worker can run {counted(len(unable), 'cell')} now: {some(unable, 3)}")


@fleet.command("work")
def work_command(python: options.Pythons = None, key: options.Key = None) -> None:
    """Work for a queue until Ctrl-C or SIGTERM; then the job that runs is finished first.

    A process does one job at a time: start at most one process per core. The checkout stays as it
    is.
    """
    address = _address()
    del os.environ["IVHL_QUEUE"]  # its token is not for the cases
    if (EFFORT.memory_limit or 0) < _MEMORY:
        raise SpecError(
            f"a case may take {_MEMORY // GIB} GiB, this machine has {memory_limit() / GIB:.1f}",
            hint="use a machine with more memory",
        )
    root = find_root()
    folder = root / LIBRARIES.parent
    # Machines of a project without a table repeat the records that ship.
    if not (folder / TABLE).is_file():
        folder = shipped_records() / LIBRARIES.parent
        python = python or [*load()[1].pythons]
    read_rows(folder)
    cells = _served(python)
    with FleetQueue(address, _tell) as opened:
        opened.check()
        machine = checked_name(opened.machine)
    places = cells_folder().parent / "fleet"
    places.mkdir(parents=True, exist_ok=True)
    # A wrong key, or a repository that git refuses, ends the worker before it measures.
    if key is not None:
        sign("", key)
    find_commit(root, "HEAD")
    worker = FleetWorker(
        address,
        _needs(cells, machine),
        measure=lambda job, attempt: (
            time_cases(root, job, attempt, machine, Terminal(stderr=True))
            if job.commit
            else measure(folder, job, attempt, machine, _tell)
        ),
        sign=lambda text: sign(text, key) if key else None,
        control=lambda: control(folder, cells, machine, _tell),
        busy=lambda: _busy(places),
        places=[places / f"{number}.lock" for number in range(os.cpu_count() or 1)],
        turn=places / "turn.lock",
        tell=_tell,
    )

    def drain(*_: object) -> None:
        _tell("ending after this job; a second one ends at once, and another worker does the job")
        worker.stop()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, drain)
    _tell(f"{machine} serves {counted(len(cells), 'cell')}")
    worker.work()


def _served(python: Sequence[str] | None) -> list[CellSpec]:
    """Return the cells whose Python is here, and those that cannot exist."""
    matrix, home = shipped_matrix(), Path.home()
    cells = [
        cell
        for cell in cells_of(matrix, ["all"], python or matrix.pythons_of("extended"))
        if lock_state(SHIPPED, cell).kind == "unavailable" or interpreter_of(home, cell.python)
    ]
    if not cells:
        raise InterpreterError("no Python of the matrix is here", hint="ivhl doctor names them")
    return cells


def _needs(cells: Sequence[CellSpec], machine: str) -> list[Need]:
    """Return what this machine serves: libraries, and timings where its clock is steady."""
    needs = [need_of(cell) for cell in cells]
    if unsteady := unsteady_clock(System()):
        _tell(f"no timings here: {unsteady}")
        return needs
    devices = ["cpu", *["cuda"] * has_nvidia_driver()]
    alone = [one._replace(device=device, alone=True) for one in needs for device in devices]
    return [*needs, *alone, *(one._replace(machine=machine) for one in alone)]


def _address() -> str:
    """Return the address of the queue; all users of this machine would see that of an option."""
    if not (address := os.environ.get("IVHL_QUEUE")):
        raise SpecError(
            "no queue is given", hint="IVHL_QUEUE=postgresql://MACHINE:TOKEN@HOST/DATABASE"
        )
    return address


def _busy(folder: Path) -> str:
    free = shutil.disk_usage(folder).free / 1e9
    return "" if free > _ROOM_GB else f"{free:.1f} GB are free on disk, {_ROOM_GB} are needed"


@fleet.command("status")
def status_command(
    output: options.Output = None,
    *,
    every: options.Every = False,
    as_json: options.Json = False,
) -> None:
    """Show workers, jobs by cell, what remains, and what was set aside, with its reason.

    --output writes .html.
    """
    check_suffix(output, ".html")
    with FleetQueue(_address(), _tell) as opened:
        opened.check()
        workers, cells = coordinate.workers(opened), coordinate.cells(opened)
        aside = coordinate.set_aside_jobs(opened)
    if as_json:
        print_json("ivhl.fleet-status/1", workers=workers, cells=cells, aside=aside)
    elif output is not None:
        page = Terminal(record=True, file=StringIO(), width=120)
        _print(page, workers, cells, aside)
        page.print(f"written {datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
        html = page.export_html().replace("<html>", '<html lang="en">', 1)
        html = html.replace("<head>", "<head>\n<title>ivhl fleet status</title>", 1)
        with replaced_whole(output) as unfinished:
            unfinished.write_text(html, encoding="utf-8")
    else:
        with screen(every=every) as console:
            _print(console, workers, cells, aside)


def _print(
    console: Terminal,
    workers: Sequence[dict[str, Any]],
    cells: Sequence[dict[str, Any]],
    aside: Sequence[dict[str, Any]],
) -> None:
    table = Columns("worker", "machine", "cells", "beat", "now")
    for one in workers:
        beat = f"{seconds(one['beat_s'])} ago"
        serves = str(len({need.partition(" ")[0] for need in one["serves"]}))
        table.add_row(str(one["id"]), one["machine"], serves, beat, one["now"] or "-")
    if workers:
        console.print(table)
        console.print()
    table = Columns("cell", "waiting", "running", "done", "imported", "set aside", "of a core")
    for one in cells:
        numbers = [str(one[name]) for name in ("todo", "doing", "done", "imported", "failed")]
        table.add_row(one["cell"], *numbers, seconds(one["core_s"]) if one["core_s"] else "-")
    if cells:
        console.print(table)
    core_s = sum(one["core_s"] for one in cells)
    rest = f"{seconds(core_s)} of a core remain" if core_s else "nothing waits"
    if core_s and workers:
        rest += f", {seconds(core_s / len(workers))} for {counted(len(workers), 'worker')}"
    console.print(rest)
    if results := sum(one["done"] - one["imported"] for one in cells):
        console.print(f"next: ivhl import takes {counted(results, 'result')} home")
    for one in aside:
        console.print(Text(f"{one['name']} in {one['cell']}, set aside", "red"))
        for said in one["said"]:
            console.print(f"  {said}")
    if aside:
        console.print("next: ivhl fleet retry")


@fleet.command("retry")
def retry_command(
    library: Annotated[
        list[str] | None,
        typer.Argument(help="Libraries or commits whose jobs were set aside (default: all)."),
    ] = None,
) -> None:
    """Put back the jobs that were set aside, for any machine."""
    with FleetQueue(_address(), _tell) as opened:
        opened.check()
        typer.echo(f"{counted(coordinate.retry(opened, library or ()), 'job')} put back")


@fleet.command("cancel")
def cancel_command(
    names: Annotated[
        list[str], typer.Argument(help="Libraries, commits or cells, as `status` names them.")
    ],
) -> None:
    """Remove jobs that wait or were set aside; what runs goes on."""
    with FleetQueue(_address(), _tell) as opened:
        opened.check()
        for name in names:
            typer.echo(f"{name}: {counted(coordinate.cancel(opened, name), 'job')} removed")


def _tell(line: object) -> None:
    Terminal(stderr=True, highlight=False, soft_wrap=True).print(line)


app.add_typer(fleet, name="fleet")
