"""The observatory on a fleet: which jobs there are, how one is measured, how records come home."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from packaging.version import Version
from pydantic import ValidationError

from ivhl.errors import LockError, ResultsError, SpecError
from ivhl.fleet.bring import Batch, Imported, joined
from ivhl.fleet.coordinate import check_importer, found_in, results, set_aside, take_home
from ivhl.fleet.keys import SIGNERS, check_signature
from ivhl.fleet.queue import FleetJob, Need, cell_of, need_of, worth_of
from ivhl.fleet.sources import Refused
from ivhl.fleet.timings import import_timings
from ivhl.git import find_commit
from ivhl.instrument import INSTRUMENT
from ivhl.matrix.locks import lock_state
from ivhl.matrix.spec import explain
from ivhl.measure.alone import only_run_here, only_writer
from ivhl.observatory import observing
from ivhl.observatory.record import Observed, append, to_line
from ivhl.observatory.rows import TABLE, read_rows
from ivhl.records.age import is_in_future
from ivhl.records.files import write_whole
from ivhl.records.text import printable
from ivhl.script.cells import SHIPPED
from ivhl.tracker.views.project import LIBRARIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ivhl.fleet.database import Rows
    from ivhl.fleet.queue import FleetQueue
    from ivhl.matrix.spec import CellSpec
    from ivhl.observatory.rows import Library

# A control repeats a record of each of these statuses.
_CONTROLS: Final = ("works", "wrong", "failed")
_MISSED: Final = 3
_PIN: Final = re.compile(r"[A-Za-z0-9][\w.-]*==[\w.!+-]+(?: --hash=sha256:[0-9a-f]{64})+")
_LARGEST: Final = 1 << 20  # bytes of the lock of what a library adds


def jobs_of(
    observatory: observing.Observatory, libraries: Sequence[Library], cells: Sequence[CellSpec]
) -> list[FleetJob]:
    """Return a job for each library in a cell that lacks a record; the newest release is first."""
    places = {library.name: number for number, library in enumerate(libraries)}
    return [
        FleetJob(
            need=need_of(one.cell),
            name=one.library.name,
            rows=tuple(question.row for question in one.questions),
            lock=one.lock,
            core_s=round(observatory.core_s(one), 1),
            worth=worth_of(one.cell) - places[one.library.name],
        )
        for one in observatory.work(libraries, cells)
    ]


def measure(
    folder: Path, job: FleetJob, attempt: int, machine: str, tell: Callable[[str], object]
) -> str:
    """Return the records of a job and the locks of what its library adds, as JSON.

    The folder stays as it is.

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
    cell = cell_of(job.need)
    row = next((one for one in read_rows(folder) if one.name == job.name), None)
    questions = tuple(one for one in row.questions if one.row in job.rows) if row else ()
    if row is None or len(questions) != len(job.rows):
        raise SpecError(
            f"the row of {job.name} differs in this checkout",
            hint="check out the commit of the coordinator",
        )
    lock = lock_state(SHIPPED, cell).sha256
    if lock != job.lock:
        raise SpecError(
            f"the lock of {cell.id} differs here", hint="install the ivhl of the fleet"
        )
    told: list[str] = []
    with TemporaryDirectory(prefix="ivhl-fleet-") as name:
        place = Path(name)
        observatory = observing.Observatory(place, told.append, machine)
        work = observing.LibraryInCell(cell=cell, lock=lock, library=row, questions=questions)
        records = []
        for record in observatory.run([work]):
            tell(f"{record.cell} {record.library} {record.case} {record.ask}: {record.why}")
            records.append(to_line(record))
        if len(records) != len(questions):
            raise ResultsError("; ".join(told) or "no record", hint="another machine tries")
        locks = {path.stem: path.read_text() for path in (place / observing.LOCKS).glob("*.txt")}
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

    Raises:
        LockError: If none can be repeated now.
    """
    served = {one.id for one in cells}
    tell("control: repeating known records")
    observatory = observing.Observatory(folder, tell, machine)
    rows = {one.name: one for one in read_rows(folder)}
    here = (one for one in observatory.known.values() if one.cell in served)
    known = [x for x in here if x.instrument == str(INSTRUMENT) and x.library in rows]
    newest = max((Version(one.torch) for one in known), default=None)
    # A record of another machine tells more.
    known.sort(key=lambda one: (one.machine == machine, one.cpu_s, one.key))
    repeated, missed = 0, 0
    for status in _CONTROLS:
        for one in known:
            if one.status != status or Version(one.torch) != newest:
                continue
            try:
                differs = _differs(observatory, one, rows[one.library])
            except SpecError:  # its row or its lock has changed since
                continue
            except LockError:
                missed += 1
                if missed == _MISSED:  # not a library that has vanished: nothing runs here
                    raise
                continue
            tell(f"control {one.cell} {one.library} {one.case}: {differs or 'the same'}")
            if differs:
                return differs
            repeated += 1
            break
    if not repeated:
        raise LockError(
            "no record of the cells that this machine serves can be repeated",
            hint="observe some libraries in one of them, and commit the records",
        )
    return ""


def _differs(observatory: observing.Observatory, known: Observed, row: Library) -> str:
    """Return how two new runs differ from a record; a single one that differs is no difference."""
    differs = ""
    for _ in range(2):
        again = observatory.again(known, row)
        if again is None:
            raise LockError(f"{known.library} did not run", hint="see the line before")
        judged = observing.repetition_of(known, again)
        if judged.kind == "unchanged":
            return ""
        differs = f"{known.cell} {known.library} {known.case} {known.ask}: {judged.because}"
    return differs


def import_queue(root: Path, queue: FleetQueue, *, again: bool = False) -> Imported:
    """Append the records that a queue holds to those of the checkout, and say what is refused.

    If ``observatory/allowed_signers`` is there, each result must be signed by its machine.
    The job of a refused result is set aside. After a kill the same call completes the import.

    Args:
        root: Root of the checkout.
        queue: The queue, at the address of its owner.
        again: Whether to take also what was imported before, perhaps into another checkout.

    Raises:
        SpecError: If this database has no queue, or this role may not import.
        ResultsError: If another run measures or imports in this checkout.
    """
    check_importer(queue)
    with only_writer(root):
        return _import_results(root, results(queue, again=again), queue)


def _import_results(root: Path, found: Rows, queue: FleetQueue) -> Imported:
    folder = root / LIBRARIES.parent
    signers = folder / SIGNERS
    rows = {
        q.row: (one.name, q.case, q.ask, q.text)
        for one in (read_rows(folder) if (folder / TABLE).is_file() else ())
        for q in one.questions
    }
    here = set(observing.Observatory(folder, lambda _: None).known.values())
    homes = []
    for result in found:
        place = f"result {result['id']} of {result['machine']}"
        try:
            if signers.is_file():
                check_signature(result, signers)
            _check_checkout(root, result["args"], rows)
        except (SpecError, ValueError) as error:
            hint = "fix this checkout, and import again: the queue keeps the result"
            homes.append(_refused(place, error, hint))
            continue
        try:
            _check_machine(result)
            if result["args"]["commit"]:
                home = import_timings(root, result)
            else:
                home = _import_observed(root, _records_of(result, rows), here)
        except ValueError as error:
            home = _refused(place, error, "ivhl fleet retry puts its job back, for any machine")
        homes.append(home)
        if home.new or home.had:
            take_home(queue, result["id"])
        else:
            set_aside(queue, result["id"], f"refused: {home.refused[0].rule}")
    return joined(homes)


def _refused(place: str, error: Exception, hint: str) -> Imported:
    return Imported(Counter(), Counter(), (Refused(place, printable(str(error)), hint),))


def _import_observed(
    root: Path, records: Iterable[tuple[Observed, bytes | None]], here: set[Observed]
) -> Imported:
    """Append records that are not here yet, each with the lock of what its library adds."""
    folder = root / LIBRARIES.parent
    new: Counter[Batch] = Counter()
    had: Counter[Batch] = Counter()
    with only_run_here(root):
        for record, lock in records:
            batch = Batch(record.machine, "cpu", "", record.cell, existing=False)
            if record in here:
                had[batch] += 1
                continue
            if lock is not None:
                write_whole(folder / observing.LOCKS / f"{record.overlay}.txt", lock, folder)
            append(folder / observing.RECORDS, record)
            here.add(record)
            new[batch] += 1
    return Imported(new, had, ())


def _check_checkout(root: Path, args: dict[str, Any], rows: Mapping[str, tuple[str, ...]]) -> None:
    """Check that this checkout has what a job is about, and the lock of its cell.

    Raises:
        SpecError, ValueError: If not; the result may be right in another one.
    """
    need, name = Need(*args["need"]), args["name"]
    if args["commit"]:
        find_commit(root, args["commit"])
    elif any(rows.get(row, ("",))[0] != name for row in args["rows"]):
        raise ValueError(f"the row of {name} differs in this checkout")
    if lock_state(root if args["commit"] else SHIPPED, cell_of(need)).sha256 != args["lock"]:
        raise ValueError(f"the lock of {need.cell} differs here")
    if need.instrument != str(INSTRUMENT):
        raise ValueError(f"instrument: must be {INSTRUMENT} (got {need.instrument})")


def _check_machine(result: dict[str, Any]) -> None:
    """Check that a result is of the machine of its job, which repeated known records all the time.

    Raises:
        ValueError: If not.
    """
    only = Need(*result["args"]["need"]).machine
    if only not in ("", result["machine"]):
        raise ValueError(f"machine: must be {only}, which the job names (got {result['machine']})")
    if result["before"] is None:
        raise ValueError("its machine must repeat known records first (got none)")
    if differs := result["before"] or result["after"]:
        raise ValueError(f"its machine must repeat known records ({differs})")


def _records_of(
    result: dict[str, Any], rows: Mapping[str, tuple[str, ...]]
) -> list[tuple[Observed, bytes | None]]:
    """Return the records of a result, with the lock of what the library adds, if there is one.

    Raises:
        ValueError: The first rule that one of them breaks.
    """
    lines, locks = found_in(result)
    try:
        records = [Observed.model_validate(json.loads(line)) for line in lines]
    except ValidationError as error:
        raise ValueError(explain(error, Observed)[0]) from error
    except (ValueError, RecursionError) as error:
        raise ValueError("records: must be records in JSON") from error
    args = result["args"]
    if sorted(one.row for one in records) != sorted(args["rows"]):
        raise ValueError(f"records: must answer once each of {len(args['rows'])} questions")
    known = [(one, locks.get(one.overlay or "")) for one in records]
    for record, lock in known:
        for rule, holds in {
            f"machine: must be {result['machine']}": record.machine == result["machine"],
            "library, case, ask, target: must be those of the row": rows[record.row]
            == (record.library, record.case, record.ask, record.target),
            f"cell: must be {args['need'][0]}": record.cell == args["need"][0],
            "lock: must be the lock of the job": record.lock == args["lock"],
            f"instrument: must be {INSTRUMENT}": record.instrument == str(INSTRUMENT),
            "at: must not be in the future": not is_in_future(record.at),
            "overlay: must come with its lock": record.overlay is None
            or (lock is not None and observing.name_of(lock) == record.overlay),
            "overlay: must pin packages of an index, by hashes": lock is None or _is_pins(lock),
        }.items():
            if not holds:
                raise ValueError(f"{rule} (got {record.library} in {record.cell})")
    return known


def _is_pins(lock: bytes) -> bool:
    """Return whether a lock has versions with hashes alone: a path or an address would be run."""
    lines = lock.decode(errors="replace").splitlines()
    return len(lock) <= _LARGEST and all(map(_PIN.fullmatch, lines))
