"""``ivhl bench``: measure cells. The nox sessions ``bench-*`` call it."""

from __future__ import annotations

import os
import shlex
import signal
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import typer  # noqa: TC002  (it reads the annotation of the context)

from ivhl.asv.publish import publish
from ivhl.bench.executors import naming
from ivhl.bench.main import bench
from ivhl.bench.request import Done, Request
from ivhl.bench.work import in_turns, parse_shard
from ivhl.cli import app, options
from ivhl.cli.declared import declared, executor_for, folder_to_write, given
from ivhl.cli.names import all_named, selection_of
from ivhl.errors import IvhlError, NoSpeedupError, ResultsError, SpecError
from ivhl.git import commits_of_range
from ivhl.matrix.project import MATRIX, find_root, load_project
from ivhl.matrix.spec import Matrix, load_matrix
from ivhl.measure.effort import DEADLINE_S, PROCESSES, Effort
from ivhl.measure.flags import parse_flag
from ivhl.tracker.store.index import Index, open_index
from ivhl.tracker.store.records import case_name
from ivhl.tracker.support.compat import Row, compat_rows
from ivhl.tracker.support.expectations import Expectations, read_expectations
from ivhl.tracker.support.table import ResultsTable
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.wording import counted, some
from ivhl.workload import every_case, load_workloads

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ivhl.bench.main import Executor


@app.command("bench")
def bench_command(
    context: typer.Context,
    python: options.Pythons = None,
    torch: options.Releases = None,
    tier: options.Tier = "default",
    workload: options.Workloads = None,
    size: options.OneSize = None,
    variant: options.Variants = None,
    commit: options.Commits = None,
    machine: options.OneMachine = None,
    results: options.Results = None,
    device: options.Device = "cpu",
    threads: options.Threads = 1,
    deadline: options.Deadline = DEADLINE_S,
    memory_limit: options.MemoryLimit = None,
    processes: options.Processes = PROCESSES,
    flag: options.Flags = None,
    shard: options.Shard = None,
    executor: options.Executor = "here",
    slurm: options.Slurm = None,
    *,
    suite: options.Suite = None,
    cold: options.Cold = False,
    force: options.Force = False,
    no_publish: options.NoPublish = False,
) -> None:
    """Measure cells, publish the site and print the table.

    --commit takes a commit (default: HEAD), several, a range A..B, or tags; of several, the newest,
    the oldest and the middle are measured first. --machine is the name in the results (default: the
    host name). --flag needs --results. Exit code 7 if every case failed.
    """
    root = find_root()
    chosen = executor_for(root, context, executor, slurm)
    console = Terminal()
    workloads = declared(root) if workload or size or variant else ()
    selection = selection_of(workloads, workload, size, variant, suite)
    effort = Effort(
        device=device,
        threads=threads,
        force=force,
        cold=cold,
        deadline_s=deadline,
        memory_limit=None if memory_limit is None else int(memory_limit * 2**30),
        processes=processes,
        flags=_flags(flag or (), root, results),
    )
    share = None if shard is None else parse_shard(shard)
    names = _commits(root, commit or ["HEAD"])
    if len(names) > 1:
        how = "newest, oldest, middle first"
        console.print(f"{counted(len(names), 'commit')} of {' '.join(commit or ())}, {how}")
    matrix = load_matrix(root / MATRIX)
    pythons = all_named("Python", python, matrix.pythons) or matrix.pythons_of(tier)
    common = Request(
        root=root,
        python=pythons[0],
        releases=tuple(torch or ()),
        tier=tier,
        machine=machine,
        results=results,
        selection=selection,
        effort=effort,
        shard=share,
    )
    places = product(names, pythons)
    requests = [replace(common, commit=name, python=version) for name, version in places]
    shown = None if results is not None or no_publish else root
    console.print(_scope(requests, matrix), soft_wrap=True)
    with _telling_how_to_go_on(context, console, shown, force=force):
        done, failed = _measure(requests, console, chosen)
    if share is not None and not any(one.cells for one in done):
        console.print(f"share {shard} has no work for Python {', '.join(python or ['any'])}")
        return
    index = open_index(results or root / "results")
    expectations, unread = read_expectations(root)  # what was measured is shown anyway
    rows = _show(console, done, index, effort, expectations)
    if missing := [case for one in done for case in one.missing]:
        raise ResultsError(
            f"{counted(len(missing), 'case')} without a record: {'; '.join(missing[:5])}",
            hint=f"run the same command again; asv's output is in {done[-1].log}",
        )
    problems = [*(str(problem) for problem in index.problems), *unread]
    if results is not None and not no_publish:
        problems.append(
            f"site not built: it shows only {root / 'results'}, and this run wrote to {results}"
        )
    elif not no_publish:
        problems += _publish(root, console)
    for problem in dict.fromkeys(problems):
        console.print(f"warning: {problem}", soft_wrap=True)
    _raise_failed(failed, rows)


def _raise_failed(failed: Mapping[str, IvhlError], rows: Sequence[Row]) -> None:
    """Raise if a commit was not measured, or every case failed as nobody expects.

    Raises:
        ResultsError: If a commit was not measured.
        NoSpeedupError: If every case failed.
    """
    if failed:
        raise ResultsError(
            "not measured: " + "; ".join(f"{place}: {error}" for place, error in failed.items()),
            hint=next(iter(failed.values())).hint,
        )
    if rows and all(row.status in ("failed", "wrong") and not row.expectation for row in rows):
        raise NoSpeedupError(
            f"every case failed ({len(rows)}), which is exit code {NoSpeedupError.exit_code}",
            hint=f"ivhl try {rows[0].workload} shows the whole traceback",
        )


def _flags(texts: Sequence[str], root: Path, results: Path | None) -> tuple[str, ...]:
    """Return the settings of the compiler, each as it is written in records.

    Raises:
        SpecError: If one is not of that form, or records with them would replace others.
    """
    if texts and (
        results is None or folder_to_write(results) == folder_to_write(root / "results")
    ):
        raise SpecError(
            "--flag: these records would replace records without flags",
            hint="use --results FOLDER for another folder; ivhl attribute --flag compares both",
        )
    return tuple(str(parse_flag(text)) for text in texts)


def _commits(root: Path, texts: Sequence[str]) -> tuple[str, ...]:
    """Return the commits to measure, in this order.

    Raises:
        SpecError: If git does not know a commit.
    """
    found = [
        name
        for text in texts
        for name in (commits_of_range(root, text) if ".." in text or text == "tags" else [text])
    ]
    return in_turns(found)


def _scope(requests: Sequence[Request], matrix: Matrix) -> str:
    """Return what is measured, of how much, and the options that measure more."""
    first = requests[0]
    selection, device = first.selection, first.effort.device
    workloads = load_workloads(load_project(first.root).workloads)
    cases = selection.choose(workloads, device)
    names = {case.workload.name for case in cases}
    every = every_case([one for one in workloads if one.name in names], device)
    variants, all_variants = (
        len({(case.workload.name, case.variant.name) for case in part}) for part in (cases, every)
    )
    sizes, all_sizes = (list(dict.fromkeys(case.size for case in part)) for part in (cases, every))
    what = f"{variants} of {counted(all_variants, 'variant')}, "
    what += f"{len(sizes)} of {counted(len(all_sizes), 'size')}: {some(sizes, 3)}"
    if len(cases) < len(every):
        is_narrow = selection.size or selection.variants or selection.chosen_suite == "full"
        what += f"; {'--size NAME' if is_narrow else '--suite full'} measures others"
    pythons = tuple(dict.fromkeys(request.python for request in requests))
    cells = matrix.cells(pythons, first.releases, first.tier)
    where = "as named" if first.releases else f"tier {first.tier}"
    if len(cells) < len(matrix.cells(pythons, first.releases, "extended")):
        where += "; --tier extended measures more"
    return f"{counted(len(cases), 'case')} ({what}) in {counted(len(cells), 'cell')} ({where})"


def _measure(
    requests: Sequence[Request], console: Terminal, executor: Executor
) -> tuple[list[Done], dict[str, IvhlError]]:
    """Return what was done, and what failed: one commit of many must not cost the others.

    Raises:
        IvhlError: If every one failed.
    """
    done: list[Done] = []
    failed: dict[str, IvhlError] = {}
    for request in requests:
        place = f"{request.commit[:8]}, Python {request.python}"
        if len(requests) > 1:
            console.print(f"commit {place}", style="bold")
        try:
            with naming(executor.name, executor.distribution):
                done.append(bench(request, console, executor))
        except IvhlError as error:
            failed[place] = error
            if len(failed) == len(requests):
                raise
            console.print(f"warning: {error}", soft_wrap=True)
    return done, failed


def _show(
    console: Terminal,
    done: Sequence[Done],
    index: Index,
    effort: Effort,
    expectations: Expectations,
) -> list[Row]:
    """Print a table for each commit and Python.

    Returns:
        The rows of the tables that have a record.
    """
    every = []
    for one in done:
        # Only this run's commit: the folder may hold records of newer ones.
        records = index.read(
            entry
            for entry in index.entries
            if entry.commit == one.commit
            and (entry.case.machine, entry.case.device) == (one.machine, effort.device)
            and entry.made.threads == effort.threads
            and case_name(entry.case) in one.cases
        )
        shown = {cell.id for cell in one.cells}
        rows = compat_rows(
            [record for record in records if record.cell.id in shown],
            cells=one.cells,
            spreads=index.spreads,
            expectations=expectations,
        )
        every += [row for row in rows if row.recorded]
        console.print(ResultsTable(rows))
        console.print(
            f"commit {one.commit[:8]}, {counted(len(one.cells), 'cell')}, {one.seconds:.0f} s",
        )
    return every


def _publish(root: Path, console: Terminal, *, asv: bool | None = True) -> list[str]:
    """Build the site, print where it is, and return its problems.

    Of a long history it takes minutes, in which nothing else is printed.
    """
    console.print("builds the site of all records")
    try:
        site = publish(root, root / "site", asv=asv)
    except KeyboardInterrupt:
        console.print("stopped: ivhl publish builds the site")
        raise
    console.print(f"site: {site.output / 'index.html'}", soft_wrap=True)
    return list(site.problems)


@contextmanager
def _telling_how_to_go_on(
    context: typer.Context, console: Terminal, shown: Path | None, *, force: bool
) -> Iterator[None]:
    """Say what goes on with a run that somebody interrupts, and publish the project ``shown``.

    The first Ctrl-C ends the run, the second leaves out the site; none cuts short what ends
    processes.
    """
    pressed = 0
    is_building = False

    def press(*_: object) -> None:
        nonlocal pressed
        pressed += 1
        if pressed == 1:  # not by the console, which this may interrupt
            then = ", then builds the site; a second Ctrl-C skips the site" * (shown is not None)
            os.write(2, f"\nCtrl-C: stops the run{then}\n".encode())
        if pressed == 1 or is_building:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, press)
    try:
        yield
    except KeyboardInterrupt:
        goes_on = "measures all of them again (--force)" if force else "continues with the others"
        console.print(
            f"stopped: the cases measured so far are kept; {_command(context)} {goes_on}",
            soft_wrap=True,
        )
        is_building = True
        if shown is not None and pressed <= 1:
            try:
                # asv's pages of before: it reads all results, and takes most of the time.
                _publish(shown, console, asv=None)
            except IvhlError as error:
                console.print(f"site not built: {error}", soft_wrap=True)
        elif shown is not None:
            console.print("site not built: ivhl publish builds it")
        raise
    finally:
        signal.signal(signal.SIGINT, before)


def _command(context: typer.Context) -> str:
    """Return this command as it was called, by nox or directly."""
    session = os.environ.get("NOX_CURRENT_SESSION", "")
    (*_, python) = context.params.get("python") or [""]
    if session != f"bench-{python}":
        return shlex.join(["ivhl", "bench", *given(context, without=())])
    words = given(context, without=("python",))
    return shlex.join(["nox", "-s", session, *(["--", *words] if words else [])])
