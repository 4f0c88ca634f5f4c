"""The observatory on a fleet: which jobs there are, how one is measured, how records come home."""

from __future__ import annotations

import json
import platform
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from packaging.version import Version
from pydantic import ValidationError

from ivhl.errors import LockError, ResultsError, SpecError
from ivhl.fleet.bring import Batch, Imported
from ivhl.fleet.coordinate import results, set_aside, take_home
from ivhl.fleet.keys import SIGNERS, check_signature
from ivhl.fleet.queue import Need, ObserveJob
from ivhl.fleet.sources import Refused
from ivhl.instrument import INSTRUMENT
from ivhl.matrix.locks import lock_state
from ivhl.matrix.spec import CellSpec, explain
from ivhl.measure.alone import only_run_here
from ivhl.observatory.observing import (
    LOCKS,
    RECORDS,
    LibraryInCell,
    Observatory,
    name_of,
    repetition_of,
)
from ivhl.observatory.record import Observed, append, to_line
from ivhl.observatory.rows import read_rows
from ivhl.records.age import is_in_future
from ivhl.records.files import write_whole
from ivhl.script.cells import SHIPPED
from ivhl.tracker.views.project import LIBRARIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ivhl.fleet.queue import FleetQueue
    from ivhl.observatory.rows import Library

# Of these, a control repeats a record each: what works, and what does not.
_CONTROLS: Final = ("works", "wrong", "failed")
_LIBRARIES: Final = 10_000  # more than a table has


def need_of(cell: CellSpec) -> Need:
    """Return what a job in a cell needs; a machine with the cell's Python serves it."""
    return Need(cell.id, "cpu", platform.machine(), str(INSTRUMENT))


def jobs_of(
    observatory: Observatory, libraries: Sequence[Library], cells: Sequence[CellSpec]
) -> list[ObserveJob]:
    """Return a job for each library in a cell that lacks a record; the newest release is first."""
    places = {library.name: number for number, library in enumerate(libraries)}
    return [
        ObserveJob(
            need=need_of(one.cell),
            library=one.library.name,
            rows=tuple(question.row for question in one.questions),
            lock=one.lock,
            core_s=round(observatory.core_s(one), 1),
            worth=_worth(one.cell) * _LIBRARIES - places[one.library.name],
        )
        for one in observatory.work(libraries, cells)
    ]


def _worth(cell: CellSpec) -> int:
    """Return the number of a release, larger for a newer one: 21500 of 2.15.0."""
    major, minor, micro = (*Version(cell.torch).release, 0, 0)[:3]
    return (major * 100 + minor) * 100 + micro


def measure(
    folder: Path, job: ObserveJob, attempt: int, machine: str, tell: Callable[[str], object]
) -> str:
    """Return the records of a job and the locks of what its library adds, as JSON.

    Nothing is written into the folder.

    Args:
        folder: ``observatory`` of a checkout.
        job: The job.
        attempt: Number of this try.
        machine: Name of this machine in the records.
        tell: Called with each line for the person who waits.

    Raises:
        SpecError: If row or lock differ here.
        ResultsError: If a question has no answer.
    """
    cell = CellSpec(*job.need.cell.removeprefix("py").split("-torch"))
    row = next((one for one in read_rows(folder) if one.name == job.library), None)
    questions = tuple(one for one in row.questions if one.row in job.rows) if row else ()
    if row is None or len(questions) != len(job.rows):
        raise SpecError(
            f"the row of {job.library} is another in this checkout",
            hint="check out the commit of the coordinator",
        )
    lock = lock_state(SHIPPED, cell).sha256
    if lock != job.lock:
        raise SpecError(
            f"the lock of {cell.id} is another here", hint="install the ivhl of the fleet"
        )
    told: list[str] = []
    with TemporaryDirectory(prefix="ivhl-fleet-") as name:
        place = Path(name)
        observatory = Observatory(place, told.append, machine)
        work = LibraryInCell(cell=cell, lock=lock, library=row, questions=questions)
        records = []
        for record in observatory.run([work]):
            tell(f"{record.cell} {record.library} {record.case} {record.ask}: {record.why}")
            records.append(to_line(record))
        if len(records) != len(questions):
            raise ResultsError("; ".join(told) or "no record", hint="another machine tries")
        locks = {path.stem: path.read_text() for path in (place / LOCKS).glob("*.txt")}
    return json.dumps({"attempt": attempt, "records": records, "locks": locks})


def control(
    folder: Path, cells: Iterable[CellSpec], machine: str, tell: Callable[[str], object]
) -> str:
    """Repeat known records of the newest of some cells; return where they differ, twice.

    Args:
        folder: ``observatory`` of a checkout.
        cells: What this machine serves.
        machine: Name of this machine.
        tell: Called with each line for the person who waits.
    """
    newest = max((Version(one.torch) for one in cells), default=Version("0"))
    served = {one.id for one in cells if Version(one.torch) == newest}
    observatory = Observatory(folder, tell, machine)
    rows = {one.name: one for one in read_rows(folder)}
    for status in _CONTROLS:
        for known in sorted(observatory.known.values(), key=lambda one: (one.cpu_s, one.key)):
            if (known.status, known.instrument) != (status, str(INSTRUMENT)):
                continue
            if known.cell not in served or known.machine == machine or known.library not in rows:
                continue
            try:
                differs = _differs(observatory, known, rows[known.library])
            except (SpecError, LockError):  # its row or its lock has changed since
                continue
            tell(f"control {known.cell} {known.library} {known.case}: {differs or 'the same'}")
            if differs:
                return differs
            break
    return ""


def _differs(observatory: Observatory, known: Observed, row: Library) -> str:
    """Return how two new runs differ from a record; a single one that differs is no difference."""
    differs = ""
    for _ in range(2):
        again = observatory.again(known, row)
        if again is None:
            raise SpecError(f"{known.library}: not run")
        judged = repetition_of(known, again)
        if judged.kind == "unchanged":
            return ""
        differs = f"{known.cell} {known.library} {known.case} {known.ask}: {judged.because}"
    return differs


def import_queue(root: Path, queue: FleetQueue) -> Imported:
    """Append the records that a queue holds to those of the observatory, and say what is refused.

    If ``observatory/allowed_signers`` is there, each result must be signed by its machine.
    The job of a refused result is set aside. After a kill the same call completes the import.

    Args:
        root: Root of the checkout.
        queue: The queue, at the address of its owner.

    Raises:
        SpecError: If this database has no queue.
        ResultsError: If another run measures in this checkout.
    """
    queue.check()
    folder = root / LIBRARIES.parent
    signers = folder / SIGNERS
    new: Counter[Batch] = Counter()
    had: Counter[Batch] = Counter()
    refused = []
    with only_run_here(root):
        observatory = Observatory(folder, lambda _: None)
        rows = {q.row: one.name for one in read_rows(folder) for q in one.questions}
        here = set(observatory.known.values())
        for result in results(queue):
            try:
                if signers.is_file():
                    check_signature(result, signers)
                records = _records_of(result, rows)
            except ValueError as error:
                place = f"result {result['id']} of {result['machine']}"
                hint = "ivhl fleet retry puts its job back, for any machine"
                refused.append(Refused(place, str(error), hint))
                set_aside(queue, result["id"], f"refused: {error}")
                continue
            for record, lock in records:
                batch = Batch(record.machine, "cpu", "", record.cell, existing=False)
                if record in here:
                    had[batch] += 1
                    continue
                if lock is not None:
                    write_whole(folder / LOCKS / f"{record.overlay}.txt", lock, folder)
                append(folder / RECORDS, record)
                here.add(record)
                new[batch] += 1
            take_home(queue, result["id"])
    return Imported(new, had, tuple(refused))


def _records_of(
    result: dict[str, Any], rows: dict[str, str]
) -> list[tuple[Observed, bytes | None]]:
    """Return the records of a result, with the lock of what the library adds, if there is one.

    Raises:
        ValueError: The first rule that one of them breaks.
    """
    if result["before"] is None:
        raise ValueError("its machine must repeat known records first, and did not")
    if differs := result["before"] or result["after"]:
        raise ValueError(f"its machine must repeat known records ({differs})")
    try:
        found = json.loads(result["found"])
        locks = {str(name): str(text).encode() for name, text in found["locks"].items()}
        records = [Observed.model_validate(json.loads(line)) for line in found["records"]]
        attempt = int(found["attempt"])
    except ValidationError as error:
        raise ValueError(explain(error, Observed)[0]) from error
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise ValueError("must be records in JSON, as a worker writes them") from error
    if attempt != result["id"]:
        raise ValueError(f"attempt: must be this try, {result['id']} (got {attempt})")
    known = [(one, locks.get(one.overlay or "")) for one in records]
    for record, lock in known:
        state = lock_state(SHIPPED, CellSpec(record.python, record.torch))
        for rule, holds in {
            f"machine: must be {result['machine']}": record.machine == result["machine"],
            "library: must have this row": rows.get(record.row) == record.library,
            f"lock: must be that of {record.cell}": state.kind != "missing"
            and record.lock == state.sha256,
            f"instrument: must be {INSTRUMENT}": record.instrument == str(INSTRUMENT),
            "at: must not be in the future": not is_in_future(record.at),
            "overlay: must come with its lock": record.overlay is None
            or (lock is not None and name_of(lock) == record.overlay),
        }.items():
            if not holds:
                raise ValueError(f"{rule} (got {record.library} in {record.cell})")
    return known
