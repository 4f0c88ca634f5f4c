"""``python -m studies.roofline``: measure every operation in this environment, and print a table.

Uses no matrix, locks or asv. It measures as in the cells (``ivhl.measure``) and needs only torch.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import geometric_mean, median
from typing import TYPE_CHECKING

from ivhl.errors import ResultsError, UnknownNameError
from ivhl.git import current_commit
from ivhl.machine.identity import this_machine
from ivhl.measure.__main__ import add_options, exit_code, limit_for, say
from ivhl.measure.alone import only_user_of_gpu
from ivhl.measure.effort import Effort
from ivhl.measure.job import choose_clock
from ivhl.measure.run import Run, this_cell
from ivhl.measure.runner import CaseEvent, run_cases
from ivhl.workload import load_workloads, select_cases, use_benchmarks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ivhl.records.record import Arm, RunRecord
    from ivhl.workload import Case, Workload

SCHEMA = "ivhl.benchmarks/1"
COPY_BYTES = 256 * 2**20
MATRIX = 2048
ROUNDS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Ceilings:
    """Ceilings of this device, measured at the start of the run.

    Attributes:
        bytes_per_s: Bytes read and written per second, by copying an array larger than the caches.
        flops_per_s: Operations per second of a large float32 matrix multiplication.
    """

    bytes_per_s: float
    flops_per_s: float


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, and export it with ``--export``."""
    return exit_code(benchmark, parser().parse_args(argv), "stopped")


def parser() -> argparse.ArgumentParser:
    """Return the argument parser."""
    p = argparse.ArgumentParser(prog="python -m studies.roofline", description=__doc__)
    p.add_argument("--size", default="medium", help="size of every operation (default: medium)")
    p.add_argument("--operation", action="append", default=[], metavar="NAME", help="repeatable")
    p.add_argument("--export", metavar="FILE", help="write all results as JSON")
    add_options(p)
    return p


def benchmark(arguments: argparse.Namespace) -> None:
    """Measure the requested cases, print the table and write the export.

    Raises:
        IvhlError: If a name is unknown, or the export cannot be written.
    """
    cases = choose_cases(arguments)
    limit = limit_for(cases, arguments)
    if arguments.export:
        check_export(Path(arguments.export))
    records: list[RunRecord] = []

    def keep(event: CaseEvent, case: Case, record: RunRecord | None) -> None:
        if record is not None:
            records.append(record)
        elif event == "started":
            print(f"{case.name} ...", file=sys.stderr)

    with tempfile.TemporaryDirectory(prefix="ivhl-roofline-") as folder:
        run = Run(
            project="ivhl",
            commit=current_commit(Path.cwd()),
            workloads=arguments.workloads,
            cell=this_cell(),
            machine=this_machine(arguments.machine),
            results=f"{folder}/results",
            scratch=f"{folder}/scratch",
            repeat=f"python -m ivhl.measure --out DIR --workloads {arguments.workloads}",
            effort=Effort(device=arguments.device, threads=arguments.threads, memory_limit=limit),
        )
        with only_user_of_gpu(arguments.device, say):
            limits = measure_limits(arguments.device, arguments.threads)
            print_head(run, limits)
            try:
                run_cases(run, cases, keep)
            finally:  # an interrupted run prints the results so far
                print_table(records, {case.name: case for case in cases}, limits)
                if arguments.export:
                    export(Path(arguments.export), limits, records)


def choose_cases(arguments: argparse.Namespace) -> tuple[Case, ...]:
    """Return the requested cases.

    Raises:
        SpecError: If no case has the operation or the size.
    """
    if ":" not in arguments.workloads:
        use_benchmarks(Path.cwd(), arguments.workloads)
    workloads = load_workloads(arguments.workloads)
    names = [name for text in arguments.operation for name in named(text, workloads)]
    return select_cases(
        workloads,
        names=names,
        size=arguments.size,
        device=arguments.device,
        mode=arguments.compile_mode,
    )


def named(text: str, workloads: Iterable[Workload]) -> list[str]:
    """Return the workloads that match a text: the whole name, else a prefix, else a word.

    Raises:
        UnknownNameError: If none does.
    """
    names = [workload.name for workload in workloads]
    functions = {name: name.partition(".")[2] for name in names}
    ways = (
        [name for name in names if text in (name, functions[name])],
        [name for name in names if functions[name].startswith(text)],
        [name for name in names if text in functions[name].split("_")],
    )
    found = next((way for way in ways if way), None)
    if found is None:
        raise UnknownNameError("operation", text, functions.values())
    return found


def measure_limits(device: str, threads: int) -> Ceilings:
    """Return the best of some large copies and matrix multiplications, by the clock of the cases."""
    import torch  # noqa: PLC0415  (this_cell() has reported it if torch is missing)

    from ivhl.measure.timing import time_block  # noqa: PLC0415  (imports torch)

    torch.set_num_threads(threads)
    clock = choose_clock(device, threads)
    source = torch.ones(COPY_BYTES // 4, device=device)
    target = torch.empty_like(source)
    a = torch.ones(MATRIX, MATRIX, device=device)
    product = torch.empty_like(a)
    copies = [time_block(lambda: target.copy_(source), 1, clock) for _ in range(ROUNDS)]
    products = [time_block(lambda: torch.mm(a, a, out=product), 1, clock) for _ in range(ROUNDS)]
    copy_s, mm_s = (min(block.seconds for block in blocks) for blocks in (copies, products))
    return Ceilings(bytes_per_s=2 * COPY_BYTES / copy_s, flops_per_s=2 * MATRIX**3 / mm_s)


def fraction_of_limit(record: RunRecord, case: Case, limits: Ceilings) -> float | None:
    """Return the least possible time over the time of the compiled call.

    The least time is that of the bytes or of the operations, whichever is longer. ``None`` if the
    workload does not count them, or the case failed.

    Source:
        The roofline of Williams, Waterman and Patterson, CACM 52(4), 65 (2009).
    """
    if case.cost is None or record.compiled is None:
        return None
    least = max(case.cost.bytes / limits.bytes_per_s, case.cost.flops / limits.flops_per_s)
    return least / median(record.compiled.samples_s)


def print_head(run: Run, limits: Ceilings) -> None:
    """Print device, versions and limits."""
    machine = run.machine
    threads = run.effort.threads
    plural = "s" if threads > 1 else ""
    print(
        f"device   {run.effort.device}: {machine.cpu}, {threads} thread{plural} of {machine.n_cpus}"
    )
    print(f"versions Python {run.cell.python}, PyTorch {run.cell.torch}, commit {run.commit[:8]}")
    print(
        f"limits   copy {limits.bytes_per_s / 1e9:.3g} GB/s, float32 matrix multiplication "
        f"{limits.flops_per_s / 1e9:.3g} GFLOP/s (measured now)"
    )


def print_table(records: Sequence[RunRecord], cases: dict[str, Case], limits: Ceilings) -> None:
    """Print a line per case, and the mean speedups."""
    rows = [("operation", "variant", "eager", "compiled", "speedup", "of the limit")]
    speedups: dict[str, list[float]] = {}
    for record in records:
        name = f"{record.workload}/{record.size}"
        case = cases[f"{name}/{record.variant}"]
        eager = milliseconds(record.eager)
        if record.speedup is None or record.failure is not None:
            reason = record.failure.failure_class if record.failure else ""
            rows.append((name, record.variant, eager, "", reason, ""))
            continue
        s = record.speedup
        fraction = fraction_of_limit(record, case, limits)
        speedups.setdefault(record.variant, []).append(s.value)
        rows.append(
            (
                name,
                record.variant,
                eager,
                milliseconds(record.compiled),
                f"{s.value:.2f}x [{s.low:.2f}, {s.high:.2f}]",
                "" if fraction is None else f"{fraction:.1%}",
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    print()
    for row in rows:
        print("  ".join(text.ljust(w) for text, w in zip(row, widths, strict=True)).rstrip())
    print()
    for variant, values in speedups.items():
        print(
            f"geometric mean speedup of {variant}: {geometric_mean(values):.2f}x, n = {len(values)}"
        )
    for record in records:
        if record.failure is not None:
            failure = record.failure
            message = " ".join(failure.message.split())[:300]
            print(f"{record.workload}/{record.variant}: {failure.failure_class}: {message}")


def milliseconds(arm: Arm | None) -> str:
    """Return the median time of an arm's calls as text, empty without an arm."""
    return "" if arm is None else f"{median(arm.samples_s) * 1e3:.3g} ms"


def check_export(path: Path) -> None:
    """Check before measuring that the export can be written; an existing file stays unchanged.

    Raises:
        ResultsError: If it cannot be written, or its name says that it holds something else.
    """
    if path.suffix.lower() != ".json":
        raise ResultsError(f"--export {path}: the name must end in .json, since JSON is written")
    try:
        with path.open("ab"):
            pass
    except OSError as error:
        raise ResultsError(f"--export {path}: {error.strerror}") from error


def export(path: Path, limits: Ceilings, records: Sequence[RunRecord]) -> None:
    """Write the limits, and the records in their stored form.

    Raises:
        ResultsError: If the file cannot be written.
    """
    data = {
        "schema": SCHEMA,
        "limits": asdict(limits),
        "records": [asdict(record) for record in records],
    }
    try:
        path.write_text(json.dumps(data, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise ResultsError(f"--export {path}: {error.strerror}") from error


if __name__ == "__main__":
    sys.exit(main())
