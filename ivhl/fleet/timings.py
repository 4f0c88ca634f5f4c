"""Timings on a fleet: which cells of a commit to measure, measuring one, and its way home."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ivhl.bench.main import bench
from ivhl.bench.request import Request, Selection
from ivhl.bench.work import cases_to_measure, list_work, records_at
from ivhl.errors import ResultsError, SpecError
from ivhl.fleet.bring import Imported, import_records
from ivhl.fleet.coordinate import found_in
from ivhl.fleet.queue import FleetJob, cell_of, need_of, worth_of
from ivhl.fleet.sources import ENDING, Refused
from ivhl.git import clone_of
from ivhl.matrix.locks import lock_state
from ivhl.measure.effort import Effort
from ivhl.records.reader import read_record
from ivhl.records.record import to_json
from ivhl.script.cells import cells_folder
from ivhl.tracker.store.records import case_name
from ivhl.tracker.wording import some

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from ivhl.matrix.spec import CellSpec
    from ivhl.records.record import RunRecord
    from ivhl.workload import Case


def timing_jobs(
    root: Path,
    cells: Sequence[CellSpec],
    cases: Sequence[Case],
    *,
    commit: str,
    device: str,
    machine: str | None,
) -> list[FleetJob]:
    """Return a job for each cell with cases that lack a record of a commit.

    Args:
        root: Root of the project.
        cells: Cells to measure in.
        cases: Cases to measure in each.
        commit: Full hash.
        device: Device type.
        machine: The only machine that may do them; ``None`` for any. Times of two machines are not
            comparable.

    Raises:
        SpecError: If git does not know the commit.
    """
    work = cases_to_measure(
        root, cells, cases, shard=None, stale=True, commit=commit, device=device, machine=machine
    )
    records = records_at(root, commit)
    return [
        FleetJob(
            need=need_of(cell)._replace(device=device, alone=True, machine=machine or ""),
            name=commit[:8],
            rows=tuple(case.name for case in work[cell.id]),
            lock=lock_state(root, cell).sha256,
            core_s=round(
                sum(
                    one.seconds for one in list_work([cell], work[cell.id], records, device=device)
                ),
                1,
            ),
            worth=worth_of(cell),
            commit=commit,
        )
        for cell in cells
        if cell.id in work
    ]


def time_cases(root: Path, job: FleetJob, attempt: int, machine: str, console: Console) -> str:
    """Return the records of a job, as JSON; the checkout stays as it is.

    After a kill, the next try on this machine goes on where this one ended.

    Args:
        root: Root of a checkout that has the commit.
        job: The job.
        attempt: Number of this try.
        machine: Name of this machine in the records.
        console: Where progress is printed.

    Raises:
        IvhlError: If the commit or the lock is not here, or a case has no record.
    """
    cell = cell_of(job.need)
    if lock_state(root, cell).sha256 != job.lock:
        raise SpecError(
            f"the lock of {cell.id} differs in this checkout",
            hint="check out the commit of the coordinator",
        )
    fleet = cells_folder().parent / "fleet"
    results = fleet / f"timings-{job.key[:12]}"
    # A job that is alone is the only one here: another folder is of a job that this worker lost.
    for other in fleet.glob("timings-*"):
        if other != results:
            shutil.rmtree(other)
    done = bench(
        Request(
            root=clone_of(root, fleet),
            python=cell.python,
            releases=(cell.torch,),
            commit=job.commit,
            machine=machine,
            results=results,
            selection=Selection(cases=job.rows),
            effort=Effort(device=job.need.device),
        ),
        console,
    )
    if done.missing:
        raise ResultsError(
            f"without a record: {some(done.missing, 3)}", hint=f"{done.log} says why"
        )
    files = sorted(results.rglob(f"*{ENDING}"))
    lines = [line for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    shutil.rmtree(results)
    return json.dumps({"attempt": attempt, "records": lines})


def import_timings(root: Path, result: dict[str, Any]) -> Imported:
    """Append the records of a result to those of the project, and say what is refused.

    Args:
        root: Root of the checkout.
        result: See ``coordinate.results``.

    Raises:
        ValueError: The first rule that a record breaks as the answer to its job.
        IvhlError: See ``import_records``.
    """
    records = _records_of(result)
    with TemporaryDirectory(prefix="ivhl-fleet-") as name:
        file = Path(name) / f"result-{result['id']}{ENDING}"
        # Not the lines of the result: what was checked is what is read.
        file.write_text("".join(f"{to_json(record)}\n" for record in records), encoding="utf-8")
        imported = import_records(root, [file], root / "results")
        place = f"result {result['id']} of {result['machine']}"
        refused = tuple(
            Refused(one.place.replace(str(file), place), one.rule, one.hint)
            for one in imported.refused
        )
    return Imported(imported.new, imported.had, refused)


def _records_of(result: dict[str, Any]) -> list[RunRecord]:
    """Return the records of a result, each of its job.

    Raises:
        ValueError: The first rule that one of them breaks.
    """
    args = result["args"]
    lines, _ = found_in(result)
    records = [read_record(line.encode()) for line in lines]
    if not {case_name(one) for one in records} >= {*args["rows"]}:
        raise ValueError(f"records: must be those of {len(args['rows'])} cases")
    for record in records:
        for rule, holds in {
            f"machine: must be {result['machine']}": record.machine.name == result["machine"],
            f"commit: must be {args['commit']}": record.commit == args["commit"],
            f"cell: must be {args['need'][0]}": record.cell.id == args["need"][0],
            "case: must be in the job": case_name(record) in args["rows"],
        }.items():
            if not holds:
                raise ValueError(f"{rule} (got {case_name(record)} in {record.cell.id})")
    return records
