"""``ivhl bench``: measure cells. The nox sessions ``bench-*`` call it."""

from __future__ import annotations

import os
import shlex
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ivhl.asv.publish import publish
from ivhl.bench import bench
from ivhl.bench.request import Request
from ivhl.bench.selection import Selection
from ivhl.bench.slurm import parse_options, run_on_slurm
from ivhl.bench.work import in_turns, parse_shard
from ivhl.cli import app
from ivhl.cli.declared import folder_to_write
from ivhl.errors import IvhlError, ResultsError, SpecError
from ivhl.git import commits_of_range
from ivhl.image.executor import DockerExecutor
from ivhl.matrix.project import MATRIX, find_root
from ivhl.matrix.spec import Tier, load_matrix
from ivhl.measure.effort import DEADLINE_S, MOST_THREADS, PROCESSES, Effort
from ivhl.measure.flags import parse_flag
from ivhl.tracker.compat import NONE_EXPECTED
from ivhl.tracker.expectations import load_expectations
from ivhl.tracker.index import open_index
from ivhl.tracker.store import case_name
from ivhl.tracker.table import render_results
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.timings import recorded_since, render_timings
from ivhl.tracker.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ivhl.bench.request import Done, Executor
    from ivhl.tracker.expectations import Expectations
    from ivhl.tracker.index import Index


@app.command("bench")
def bench_command(
    context: typer.Context,
    python: Annotated[
        list[str] | None,
        typer.Option(help="Python of the matrix, e.g. 3.12; repeatable (default: of the tier)."),
    ] = None,
    torch: Annotated[
        list[str] | None, typer.Option(help="PyTorch release; repeatable (default: default tier).")
    ] = None,
    tier: Annotated[
        Tier, typer.Option(help="Cells to measure where --python or --torch does not say.")
    ] = "default",
    workload: Annotated[
        list[str] | None, typer.Option(help="Measure only this workload; repeatable.")
    ] = None,
    size: Annotated[
        str | None, typer.Option(help="Size (default: each workload's default size).")
    ] = None,
    variant: Annotated[
        list[str] | None, typer.Option(help="Measure only this variant; repeatable.")
    ] = None,
    commit: Annotated[str, typer.Option(help="Commit to measure.")] = "HEAD",
    commits: Annotated[
        str | None,
        typer.Option(
            help="A..B, or tags: newest, oldest, middle first; tags and branches may be A, B."
        ),
    ] = None,
    at_most: Annotated[
        int | None, typer.Option(min=1, help="With --commits: how many of them, spread evenly.")
    ] = None,
    machine: Annotated[
        str | None, typer.Option(help="Machine name in the results (default: the host name).")
    ] = None,
    results: Annotated[
        Path | None, typer.Option(help="Folder of the results (default: results).")
    ] = None,
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="Device to measure on.")] = "cpu",
    threads: Annotated[int, typer.Option(min=1, max=MOST_THREADS, help="CPU threads.")] = 1,
    deadline: Annotated[
        float, typer.Option(min=1, help="Time limit in seconds for each process of a case.")
    ] = DEADLINE_S,
    memory_limit: Annotated[
        float | None,
        typer.Option(min=0.1, help="Memory limit in GiB (default: 90 % of the machine's)."),
    ] = None,
    processes: Annotated[
        int, typer.Option(min=1, max=32, help="Processes that time each case, one by one.")
    ] = PROCESSES,
    flag: Annotated[
        list[str] | None,
        typer.Option(
            help="A setting of the compiler, e.g. inductor.cpp.simdlen=1; repeatable; needs "
            "--results, since these records answer for no others."
        ),
    ] = None,
    shard: Annotated[
        str | None, typer.Option(help="I/N: measure only the I-th of N shares, for a fleet.")
    ] = None,
    executor: Annotated[
        Literal["here", "slurm"], typer.Option(help="slurm: run on a node of a Slurm cluster.")
    ] = "here",
    slurm: Annotated[
        list[str] | None,
        typer.Option(help="Slurm option NAME=VALUE, e.g. partition=gpu; repeatable."),
    ] = None,
    *,
    suite: Annotated[
        Literal["core", "full"] | None,
        typer.Option(
            help="core: every workload in its core variant (default when no workload, size or "
            "variant is named). full: all variants, and the core variants at all sizes."
        ),
    ] = None,
    cold: Annotated[
        bool, typer.Option("--cold", help="Ignore the compile cache of earlier runs.")
    ] = False,
    timings: Annotated[
        bool, typer.Option("--timings", help="Print the seconds spent in each phase.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Measure again cases that have a record.")
    ] = False,
    in_docker: Annotated[
        bool,
        typer.Option(
            "--docker", help="Measure in containers of the cells' images (docs/docker.md)."
        ),
    ] = False,
    cpus: Annotated[
        str, typer.Option(help="With --docker: CPUs to pin the container to, e.g. 2-3.")
    ] = "",
    no_publish: Annotated[
        bool, typer.Option("--no-publish", help="Do not build the site.")
    ] = False,
) -> None:
    """Measure cells, publish the site and print the table."""
    root = find_root()
    if executor == "slurm":
        arguments = ["bench", *_given(context, without=("executor", "slurm"))]
        options = parse_options(slurm or ())
        code = run_on_slurm(root, arguments, options, lambda text: typer.echo(text, nl=False))
        raise typer.Exit(code)
    if slurm:
        raise SpecError("--slurm: needs --executor slurm", hint="add --executor slurm")
    console = Terminal()
    selection = Selection(
        workloads=tuple(workload or ()),
        size=size,
        variants=tuple(variant or ()),
        suite=suite,
    )
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
    names = _commits(root, commit, commits, at_most)
    if commits is not None:
        how = "newest, oldest, middle first"
        console.print(f"{counted(len(names), 'commit')} of {commits}, {how}")
    began = datetime.now(UTC)
    requests = [
        Request(
            root=root,
            python=version,
            releases=tuple(torch or ()),
            tier=tier,
            commit=name,
            machine=machine,
            results=results,
            selection=selection,
            effort=effort,
            shard=share,
        )
        for name, version in product(names, python or load_matrix(root / MATRIX).pythons_of(tier))
    ]
    with _telling_how_to_go_on(context, console, force=force):
        done, failed = _measure(
            requests, console, DockerExecutor(root, cpus=cpus) if in_docker else None
        )
    if share is not None and not any(one.cells for one in done):
        console.print(f"share {shard} has no work for Python {', '.join(python or ['any'])}")
        return
    index = open_index(results or root / "results")
    expectations, unread = _expectations(root)
    _show(console, done, index, effort, expectations, began if timings else None)
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
        console.print(f"warning: {problem}", markup=False, highlight=False, soft_wrap=True)
    if failed:
        raise ResultsError(
            "not measured: " + "; ".join(f"{place}: {error}" for place, error in failed.items()),
            hint=next(iter(failed.values())).hint,
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
            "--flag: these records would take the place of those without",
            hint="--results FOLDER puts them elsewhere; ivhl attribute --flag compares both",
        )
    return tuple(str(parse_flag(text)) for text in texts)


def _commits(root: Path, commit: str, commits: str | None, at_most: int | None) -> tuple[str, ...]:
    """Return the commits to measure, in this order.

    Raises:
        SpecError: If the options contradict each other, or git does not know a commit.
    """
    if commits is None:
        if at_most is not None:
            raise SpecError("--at-most: needs --commits", hint="add --commits A..B")
        return (commit,)
    if commit != "HEAD":
        raise SpecError("--commit and --commits: name one of them", hint="leave one out")
    return in_turns(commits_of_range(root, commits), at_most)


def _measure(
    requests: Sequence[Request], console: Terminal, executor: Executor | None
) -> tuple[list[Done], dict[str, IvhlError]]:
    """Return what was done, and what failed: one commit of many must not cost the others.

    Raises:
        IvhlError: If every one failed.
    """
    done: list[Done] = []
    failed: dict[str, IvhlError] = {}
    for request in requests:
        if len(requests) > 1:
            console.print(f"commit {request.commit[:8]}, Python {request.python}", style="bold")
        try:
            done.append(bench(request, console, executor))
        except IvhlError as error:
            failed[f"{request.commit[:8]}, Python {request.python}"] = error
            if len(failed) == len(requests):
                raise
            console.print(f"warning: {error}", markup=False, soft_wrap=True)
    return done, failed


def _expectations(root: Path) -> tuple[Expectations, list[str]]:
    """Return the known failures, and a line for each mistake: what was measured is shown anyway."""
    try:
        return load_expectations(root), []
    except SpecError as error:
        return NONE_EXPECTED, str(error).splitlines()


def _show(
    console: Terminal,
    done: Sequence[Done],
    index: Index,
    effort: Effort,
    expectations: Expectations,
    began: datetime | None,
) -> None:
    """Print a table for each commit and Python, and the seconds of its phases since ``began``."""
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
        console.print(
            render_results(records, one.cells, spreads=index.spreads, expectations=expectations)
        )
        console.print(
            f"commit {one.commit[:8]}, {counted(len(one.cells), 'cell')}, {one.seconds:.0f} s",
            highlight=False,
        )
        if began is not None:
            console.print(render_timings(recorded_since(records, began), wall_s=one.seconds))


def _publish(root: Path, console: Terminal) -> list[str]:
    """Build the site, print where it is, and return its problems.

    Of a long history it takes minutes, in which nothing else is printed.
    """
    console.print("builds the site of all records")
    try:
        site = publish(root, root / "site", asv=True)
    except KeyboardInterrupt:
        console.print("stopped: everything is measured; ivhl publish builds the site")
        raise
    console.print(f"site: {site.output / 'index.html'}", soft_wrap=True)
    return list(site.problems)


@contextmanager
def _telling_how_to_go_on(
    context: typer.Context, console: Terminal, *, force: bool
) -> Iterator[None]:
    """Say what goes on with a run that somebody interrupts."""
    try:
        yield
    except KeyboardInterrupt:
        goes_on = "measures all of them again (--force)" if force else "goes on with the others"
        console.print(
            f"stopped: the cases measured so far are kept; {_command(context)} {goes_on}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        raise


def _command(context: typer.Context) -> str:
    """Return this command as it was called, by nox or directly."""
    session = os.environ.get("NOX_CURRENT_SESSION", "")
    (*_, python) = context.params.get("python") or [""]
    if session != f"bench-{python}":
        return shlex.join(["ivhl", "bench", *_given(context, without=())])
    words = _given(context, without=("python",))
    return shlex.join(["nox", "-s", session, *(["--", *words] if words else [])])


def _given(context: typer.Context, *, without: tuple[str, ...]) -> list[str]:
    """Return this command's arguments, without those that have their default."""
    words: list[str] = []
    for option in context.command.params:
        value = context.params.get(str(option.name))
        if option.name in without or value in (None, [], ()) or value == option.default:
            continue
        if value is True:
            words.append(option.opts[0])
        else:
            values = value if isinstance(value, list | tuple) else [value]
            for one in values:
                # The job runs in the root: a path relative to this folder would not resolve there.
                words += [option.opts[0], str(one.resolve() if isinstance(one, Path) else one)]
    return words
