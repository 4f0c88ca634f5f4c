"""``python -m ivhl.measure``: measure in an existing environment that has torch."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ivhl.errors import IvhlError, ResultsError
from ivhl.git import current_commit, is_uncommitted
from ivhl.machine.identity import this_machine
from ivhl.machine.memory import memory_limit
from ivhl.measure.alone import only_user_of_gpu, only_writer, refuse_without_device
from ivhl.measure.effort import DEADLINE_S, MOST_THREADS, PROCESSES, Effort
from ivhl.measure.outcome import what_runs_eagerly
from ivhl.measure.run import Run, this_cell
from ivhl.measure.runner import CaseEvent, run_cases
from ivhl.records.text import printable
from ivhl.workload import (
    MODES,
    broken_benchmarks,
    check_memory,
    load_workloads,
    select_cases,
    use_benchmarks,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ivhl.records.record import RunRecord
    from ivhl.workload import Case


_Number = TypeVar("_Number", int, float)
# Of a number on the command line.
MOST = 1e9


def main(argv: Sequence[str] | None = None) -> int:
    """Run the requested cases in this interpreter and write their records."""
    return exit_code(measure, parser().parse_args(argv), "stopped: the same command continues")


def exit_code(
    command: Callable[[argparse.Namespace], None], arguments: argparse.Namespace, stopped: str
) -> int:
    """Run a command, print its error, and return its exit code; ``stopped`` is for Ctrl-C."""
    try:
        command(arguments)
    except IvhlError as error:
        say(f"error: {error}")
        say(f"next: {error.hint}" * bool(error.hint))
        return error.exit_code
    except KeyboardInterrupt:
        say(stopped)
        sys.stdout.flush()
        # A normal exit would wait for the threads that wait for cases.
        os._exit(128 + signal.SIGINT)
    return 0


def measure(arguments: argparse.Namespace) -> None:
    """Run the requested cases, or list them.

    Raises:
        IvhlError: If a name is unknown, or records cannot be written.
    """
    if ":" not in arguments.workloads:
        use_benchmarks(Path.cwd(), arguments.workloads)
    for problem in broken_benchmarks(arguments.workloads):
        print(f"warning: left out: {problem}", file=sys.stderr)
    cases = select_cases(
        load_workloads(arguments.workloads),
        names=arguments.workload,
        size=arguments.size,
        variants=arguments.variant,
        device=arguments.device,
        mode=arguments.compile_mode,
    )
    if arguments.list:
        print(json.dumps([c.name for c in cases], indent=1))
        return
    limit = limit_for(cases, arguments)
    out = Path(arguments.out).resolve()
    run = Run(
        project=arguments.project,
        commit=arguments.commit or current_commit(Path.cwd()),
        workloads=arguments.workloads,
        cell=this_cell(),
        machine=this_machine(arguments.machine),
        results=str(out),
        scratch=str(out / ".scratch"),
        repeat=f"python -m ivhl.measure --out DIR --workloads {arguments.workloads}",
        uncommitted=None if arguments.commit else is_uncommitted(Path.cwd(), out),
        effort=Effort(
            device=arguments.device,
            threads=arguments.threads,
            force=arguments.force,
            deadline_s=arguments.deadline,
            memory_limit=limit,
            processes=arguments.processes,
        ),
    )
    try:
        out.mkdir(parents=True, exist_ok=True)
        # Others may append, too, but nobody may replace or pack the files meanwhile.
        with only_writer(out, beside_others=True), only_user_of_gpu(run.effort.device, say):
            run_cases(run, cases, show)
    except OSError as error:
        raise ResultsError(str(error), hint="choose a writable folder with --out") from error
    print(f"records: {run.record_file}")


def limit_for(cases: Sequence[Case], arguments: argparse.Namespace) -> int | None:
    """Return the bytes of memory that each case may have; ``None`` if nobody limits them.

    Raises:
        SpecError: If the cases do not fit, or the device is not there.
    """
    refuse_without_device(arguments.device)
    limit = None if arguments.memory_limit is None else int(arguments.memory_limit * 2**30)
    if arguments.device == "cpu":
        check_memory(cases, limit or memory_limit())
    return limit


def add_options(p: argparse.ArgumentParser) -> None:
    """Add the options that say where and how cases are measured."""
    p.add_argument("--workloads", default="benchmarks", metavar="PACKAGE")
    p.add_argument("--compile-mode", choices=MODES, help="replaces the declared modes")
    p.add_argument("--device", default="cpu", help="a name of PyTorch: cpu, cuda, xpu, mps, ...")
    p.add_argument("--threads", type=positive(int, MOST_THREADS + 1), default=1)
    p.add_argument("--machine", default=os.uname().nodename, metavar="NAME")
    p.add_argument("--memory-limit", type=positive(float), metavar="GIB")


def parser() -> argparse.ArgumentParser:
    """Return the argument parser."""
    p = argparse.ArgumentParser(prog="python -m ivhl.measure", description=__doc__)
    p.add_argument("--out", default="results", help="folder for the records")
    add_options(p)
    p.add_argument(
        "--workload",
        action="append",
        default=[],
        metavar="NAME",
        help="repeatable, as --variant is",
    )
    p.add_argument("--size", metavar="NAME")
    p.add_argument("--variant", action="append", default=[], metavar="NAME")
    p.add_argument("--force", action="store_true", help="measure again cases that have a record")
    p.add_argument("--project", default="ivhl")
    p.add_argument("--commit", type=commit_hash, help="40 hex digits (default: git's HEAD)")
    p.add_argument("--processes", type=int, choices=range(33), default=PROCESSES, metavar="N")
    p.add_argument("--deadline", type=positive(float), default=DEADLINE_S, metavar="SECONDS")
    p.add_argument("--list", action="store_true", help="print the cases and stop")
    return p


def positive(kind: type[_Number], below: float = MOST) -> Callable[[str], _Number]:
    """Return a converter for argparse that accepts only positive numbers below one."""

    def convert(text: str) -> _Number:
        try:
            number = kind(text)
        except ValueError:
            what = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"must be {what} (got {text!r})") from None
        if not 0 < number < below:  # also not "nan"
            raise argparse.ArgumentTypeError(
                f"must be more than 0, and less than {below:g} (got {text})"
            )
        return number

    return convert


def commit_hash(text: str) -> str:
    """Return the hash of a commit, which becomes a part of a file name.

    Raises:
        ArgumentTypeError: If it is none.
    """
    if not re.fullmatch("[0-9a-f]{40}", text):
        raise argparse.ArgumentTypeError(f"must be 40 hex digits (got {text!r})")
    return text


def say(text: str) -> None:
    """Print a line on standard error."""
    print(text, file=sys.stderr, flush=True)


def show(event: CaseEvent, case: Case, record: RunRecord | None) -> None:
    """Print one line per finished case."""
    if event == "kept":
        print(f"{case.name}: has a record already")
    elif record is not None and record.failure is not None:
        failure = record.failure
        print(f"{case.name}: {failure.failure_class}: {printable(failure.message)}")
    elif record is not None:
        s = record.speedup
        known = "works" if s is None else f"{s.value:.2f}x [{s.low:.2f}, {s.high:.2f}]"
        beside = f", {text}" if (text := what_runs_eagerly(record)) else ""
        print(f"{case.name}: {known}{beside}")


if __name__ == "__main__":
    sys.exit(main())
