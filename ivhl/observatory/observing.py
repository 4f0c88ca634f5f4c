"""Ask each question of the table in each cell, and append what is found to the records.

Questions with a record are not asked again, so a run that was killed goes on where it was.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import resource
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, Final

from packaging.version import Version

from ivhl.errors import InterpreterError, LockError, SpecError
from ivhl.instrument import INSTRUMENT
from ivhl.machine.identity import BY_PROCESSOR, this_machine
from ivhl.machine.memory import memory_limit
from ivhl.matrix.interpreter import find_interpreter
from ivhl.matrix.locks import lock_state
from ivhl.matrix.spec import CellSpec
from ivhl.measure.effort import Effort
from ivhl.measure.supervisor import cpu_seconds, living_descendants
from ivhl.observatory.record import (
    LARGEST,
    LONGEST_MESSAGE,
    LONGEST_NAME,
    MOST_BREAKS,
    Key,
    Observed,
    append,
    read_observed,
)
from ivhl.observatory.signatures import fault_of, is_undecided
from ivhl.records.files import write_whole
from ivhl.records.text import tidy
from ivhl.script import overlay
from ivhl.script.cells import (
    MARK,
    SHIPPED,
    cell_in_use,
    cells_folder,
    newest_overlay,
    overlay_of_its_time,
)
from ivhl.script.overlay import UnavailableError
from ivhl.script.trying import TargetTried, Trials
from ivhl.script.verdict import first_line, recompiles, verdict
from ivhl.tracker.changes.repetition import Repetition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ivhl.observatory.rows import AskedCase, Library
    from ivhl.tracker.changes.kinds import Kind

RECORDS: Final = "records"
LOCKS: Final = "locks"
# Limits of a case on a free core; most cases take a tenth of the time.
EFFORT: Final = Effort(deadline_s=600.0, memory_limit=min(8 << 30, memory_limit()))
# CPU seconds of a case without an earlier record, and GB of what has to be made.
_USUAL_S: Final = 25.0
_CELL_GB: Final = 7.0
_OVERLAY_GB: Final = 0.02
# Load for each CPU at which a time limit says more of the machine than of the case: a CPU may be one
# of two threads of a core, and a step of ultralytics that compiled in the end was called failed.
_BUSY: Final = 0.75
# Part of the time that a case which only waits, as for a lock, has a CPU.
_ASLEEP: Final = 0.1
# By how much the limits grow at most where others use the machine.
_LONGEST_WAIT: Final = 4.0
_FULL: Final = os.strerror(errno.ENOSPC)
_WITHOUT_TORCH: Final = "No module named 'torch'"  # a cell that somebody has moved or removed


@dataclass(frozen=True, kw_only=True, slots=True)
class LibraryInCell:
    """The questions to a library in a cell, whose environment is made once for all of them.

    Attributes:
        lock: SHA-256 of the cell's lock; ``None`` if it cannot exist.
        repeats: The record that is repeated, in its own environment; the second run is not kept.
    """

    cell: CellSpec
    lock: str | None
    library: Library
    questions: tuple[AskedCase, ...]
    repeats: Observed | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunCost:
    """The cost of a run: questions to ask, seconds of a core, and GB on disk at most."""

    runs: int
    core_s: float
    gigabytes: float


class Observatory:
    """The folder of the table and of its records.

    Args:
        folder: ``observatory`` of a checkout.
        tell: Called with each line for the person who waits.
        machine: Name of this machine in its records, by default made of its processor.
        of_fleet: Whether a record of any machine answers a question, and a cell whose Python this
            machine lacks can be tried.

    Attributes:
        known: The newest record of each case in each cell, by each machine.
    """

    def __init__(
        self,
        folder: Path,
        tell: Callable[[str], object],
        machine: str = BY_PROCESSOR,
        *,
        of_fleet: bool = False,
    ) -> None:
        self._folder, self._tell = folder, tell
        self._machine = this_machine(machine).name
        self.known = read_observed(folder / RECORDS, tell)
        self._locks: dict[str, bytes] = {}  # of overlays, by their names
        self._of_fleet = of_fleet
        self._answering = {key.machine for key in self.known} if of_fleet else {self._machine}

    def work(
        self, libraries: Iterable[Library], cells: Sequence[CellSpec], *, force: bool = False
    ) -> list[LibraryInCell]:
        """Return what no record answers: the newest release first, in it the given order.

        Args:
            libraries: What to ask, the most downloaded first.
            cells: Where.
            force: Whether to ask also what a record answers.
        """
        found = []
        locks = dict(self._usable(cells))
        for cell in sorted(locks, key=lambda one: Version(one.torch), reverse=True):
            for library in libraries:
                questions = tuple(
                    one
                    for one in library.questions
                    if force or not self._is_answered(library, one, cell, locks[cell])
                )
                if questions:
                    found.append(
                        LibraryInCell(
                            cell=cell, lock=locks[cell], library=library, questions=questions
                        )
                    )
        return found

    def _usable(self, cells: Iterable[CellSpec]) -> Iterator[tuple[CellSpec, str | None]]:
        """Yield the cells that can be tried here with their locks; say which cannot."""
        for cell in cells:
            lock, why = lock_state(SHIPPED, cell), ""
            if lock.kind == "missing":
                why = "ivhl ships no lock for it"
            elif lock.kind == "locked" and not self._of_fleet:
                try:
                    find_interpreter(Path.home(), cell.python)
                except InterpreterError as error:
                    why = str(error)
            if why:
                self._tell(f"{cell.id}: left out: {why}")
            else:
                yield cell, lock.sha256

    def _is_answered(
        self, library: Library, question: AskedCase, cell: CellSpec, lock: str | None
    ) -> bool:
        about = (library.name, question.case, question.ask, cell.id)
        keys = (Key(*about, machine) for machine in self._answering)
        return any(
            (record.row, record.lock, record.instrument) == (question.row, lock, str(INSTRUMENT))
            and (record.overlay is None or self._lock_file(record.overlay).is_file())
            for record in map(self.known.get, keys)
            if record is not None
        )

    def _lock_file(self, name: str) -> Path:
        return self._folder / LOCKS / f"{name}.txt"

    def again(self, recorded: Observed, row: Library) -> Observed | None:
        """Ask again what a record says, in an environment of both its locks; nothing is kept.

        Returns:
            The second record; ``None`` after a message, if the case cannot run now.

        Args:
            recorded: The record.
            row: The row of its library.

        Raises:
            SpecError: If the row, its file or the lock of the cell is another today.
        """
        cell = CellSpec(recorded.python, recorded.torch)
        lock = lock_state(SHIPPED, cell).sha256
        asked = tuple(one for one in row.questions if one.row == recorded.row)
        if asked and lock == recorded.lock:
            work = LibraryInCell(
                cell=cell, lock=lock, library=row, questions=asked, repeats=recorded
            )
            return next(self.run([work]), None)
        what = "lock of its cell" if asked else "row of its case"
        raise SpecError(
            f"{recorded.library} in {cell.id}: the {what} has changed since {recorded.at[:10]}",
            hint="check out a commit of that day, or run `ivhl observe`",
        )

    def estimate(self, work: Sequence[LibraryInCell]) -> RunCost:
        """Return what a run of the work takes, by earlier records of the same cases."""
        there = {mark.parent.name.rpartition("-")[0] for mark in cells_folder().glob(f"*/{MARK}")}
        missing = {one.cell.id for one in work if one.lock is not None} - there
        return RunCost(
            runs=sum(len(one.questions) for one in work),
            core_s=sum(map(self.core_s, work)),
            gigabytes=len(missing) * _CELL_GB + len(work) * _OVERLAY_GB,
        )

    def core_s(self, work: LibraryInCell) -> float:
        """Return the CPU seconds of some questions, by earlier records of the same cases."""
        name = work.library.name
        return sum(
            mean(self._took.get((name, one.case, one.ask), (_USUAL_S,))) for one in work.questions
        )

    @cached_property
    def _took(self) -> Mapping[tuple[str, str, str], list[float]]:
        took = defaultdict[tuple[str, str, str], list[float]](list)
        for record in self.known.values():
            took[record.library, record.case, record.ask].append(record.cpu_s)
        return took

    def run(
        self,
        work: Sequence[LibraryInCell],
        *,
        newest: bool = False,
        network: bool = False,
        effort: Effort = EFFORT,
    ) -> Iterator[Observed]:
        """Ask, and yield each record when it is on disk.

        A library whose environment cannot be made now, as without a network, gets no record.

        Args:
            work: What to ask.
            newest: Whether to look for newer versions of libraries that this machine has.
            network: Whether cases may use the network.
            effort: Limits of each case; the time is longer where others use the machine.

        Raises:
            OSError: If a record cannot be written.
        """
        for one in work:
            took = _Took()
            try:
                needs = one.library.requirements
                recorded = self._recorded_lock(one.repeats)
                text = newest_overlay(one.cell, needs) if newest else recorded
                unfit = []
                for record in self._asked(one, text, effort, network=network):
                    if one.repeats is None and _is_unfit(record):
                        unfit.append(record)
                    else:
                        yield self._kept(one, record)
                for record in self._of_its_time(one, unfit, effort, network=network):
                    yield self._kept(one, record)
            except UnavailableError as error:
                tried = TargetTried({"unavailable": str(error)}, "")
                for question in one.questions:
                    of = {"machine": self._machine, "unavailable": error.kind}
                    yield self._kept(one, _record(one, question, tried, took.since(), **of))
            except LockError as error:
                text = f"{error}; {error.hint or 'try again'}".removeprefix(f"{one.cell.id}: ")
                self._tell(f"{one.cell.id} {one.library.name}: not run: {text}")

    def _asked(
        self, work: LibraryInCell, overlay_text: str | None, effort: Effort, *, network: bool
    ) -> Iterator[Observed]:
        """Ask in one environment, and yield a record of each question that was decided."""
        took = _Took()
        with cell_in_use(work.cell, work.library.requirements, overlay_text) as place:
            environment = self._environment_of(work, place)
            for question, tried in _tried(work, place, effort, network=network):
                spent = took.since()
                spent["cpu_s"] = max(spent["cpu_s"], tried.cpu_s)
                if why := _undecided(tried, **spent):
                    self._tell(f"{work.cell.id} {question.text}: not run: {why}")
                else:
                    yield _record(work, question, tried, spent, **environment)

    def _of_its_time(
        self, work: LibraryInCell, unfit: Sequence[Observed], effort: Effort, *, network: bool
    ) -> Iterator[Observed]:
        """Ask again with the versions of when the cell's release was the newest.

        The newest version of a library does not always say which releases it is made for.

        Yields:
            For each record the second, or the first where the second is no better.
        """
        rest = {one.key: one for one in unfit}
        needs = work.library.requirements
        if unfit and (text := overlay_of_its_time(work.cell, needs, self._tell)):
            cases = {(one.case, one.ask) for one in unfit}
            asked = tuple(x for x in work.library.questions if (x.case, x.ask) in cases)
            older = replace(work, questions=asked)
            with suppress(LockError, UnavailableError):
                for second in self._asked(older, text, effort, network=network):
                    first = rest.pop(second.key)
                    yield first if _is_unfit(second) else second
        yield from rest.values()

    def _recorded_lock(self, record: Observed | None) -> str | None:
        """Return the lock of what the library of a record had added to the cell.

        Raises:
            LockError: If the file is gone, or is not the one that was written.
        """
        if record is None or record.overlay is None:
            return None
        path = self._lock_file(record.overlay)
        data = path.read_bytes() if path.is_file() else b""
        if name_of(data) != record.overlay:
            raise LockError(
                f"locks/{path.name}: is gone, or not what was written",
                hint="git checkout observatory/locks",
            )
        return data.decode()

    def _environment_of(self, work: LibraryInCell, place: Path) -> dict[str, str | None]:
        """Return the machine, and version and lock of what the library adds to a cell."""
        mark = json.loads((place / MARK).read_text(encoding="utf-8"))
        found = {"machine": self._machine, "version": mark.get("added", {}).get(work.library.name)}
        lock = place / overlay.LOCK
        if not lock.is_file():
            return found
        data = lock.read_bytes()
        self._locks[name_of(data)] = data
        return {**found, "overlay": name_of(data)}

    def _kept(self, work: LibraryInCell, record: Observed) -> Observed:
        """Keep a record and the lock of its environment, unless it repeats another."""
        if work.repeats is None:
            if record.overlay is not None:
                write_whole(
                    self._lock_file(record.overlay), self._locks[record.overlay], self._folder
                )
            append(self._folder / RECORDS, record)
            self.known[record.key] = record
        return record


def _tried(
    work: LibraryInCell, place: Path, effort: Effort, *, network: bool
) -> Iterator[tuple[AskedCase, TargetTried]]:
    """Yield what each question found. A file of a row shadows no package, so all find its folder."""
    folder = next((one.folder for one in work.questions if one.folder is not None), None)
    several = len(work.questions) > 1
    with Trials(place, folder, effort, network=network, apart=True, forks=several) as trials:
        for question in work.questions:
            shared = min(max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)), _LONGEST_WAIT)
            yield question, trials.run(question.target, effort.deadline_s * shared)


def _record(
    work: LibraryInCell,
    question: AskedCase,
    tried: TargetTried,
    spent: Mapping[str, float],
    **more: str | None,
) -> Observed:
    about = {
        "library": work.library.name,
        "case": question.case,
        "ask": question.ask,
        "target": question.text,
        "cell": work.cell.id,
        "python": work.cell.python,
        "torch": work.cell.torch,
        "lock": work.lock,
        "row": question.row,
        "instrument": str(INSTRUMENT),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        **spent,
        **more,
    }
    try:
        return Observed.model_validate(about | _found(tried))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        # The code under test runs in the process that reports.
        return Observed.model_validate(about | _found(_UNREADABLE))


def name_of(lock: bytes) -> str:
    """Return the name of the lock of what a library adds to a cell."""
    return hashlib.sha256(lock).hexdigest()[:16]


def repetition_of(recorded: Observed, again: Observed) -> Repetition:
    """Say whether a second run has the same verdict, failure and graph breaks as a record."""
    before, now = (
        (
            one.status,
            one.failure and (one.failure.failure_class, one.failure.exception),
            sum(reason.count for reason in one.graph_breaks),
            one.recompiles,
        )
        for one in (recorded, again)
    )
    if before == now:
        return Repetition("unchanged", "the same verdict and graph breaks")
    worse = again.status != "works" or (recorded.status == "works" and now[2:] > before[2:])
    kind: Kind = "fixed" if not worse else "fails" if again.status != "works" else "degraded"
    return Repetition(kind, f"{recorded.why or 'works'} then, {again.why or 'works'} now")


def _undecided(tried: TargetTried, *, cpu_s: float, wall_s: float) -> str:
    """Return why a case says nothing of its library: its machine was used, full, or ended it."""
    failure = tried.found.get("failure") or {}
    load, cpus = os.getloadavg()[0], os.cpu_count() or 1
    is_late = failure.get("failure_class") == "timeout" and load > _BUSY * cpus
    is_late = is_late and cpu_s > _ASLEEP * wall_s
    if _FULL in (message := str(failure.get("message"))) or message == _WITHOUT_TORCH:
        return tidy(message, LONGEST_MESSAGE)
    if not is_late and failure.get("exception") != "SIGKILL":
        return ""
    return f"{failure['message']}, at a load of {load:.1f} on {cpus} CPUs"


def _is_unfit(record: Observed) -> bool:
    """Return whether a library fails on its own, as one made for a newer PyTorch does."""
    failure = record.failure
    if failure is None or failure.failure_class in ("timeout", "out_of_memory"):
        return False
    return is_undecided(fault_of(failure), failure.phase)


class _Took:
    """Wall seconds since the last record, and CPU seconds of what this process has started."""

    def __init__(self) -> None:
        self._last = self._now()

    @staticmethod
    def _now() -> tuple[float, float]:
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        living = cpu_seconds(living_descendants())
        return ended.ru_utime + ended.ru_stime + living, time.monotonic()

    def since(self) -> dict[str, float]:
        """Return both, and begin again."""
        before, self._last = self._last, self._now()
        # A killed process takes along the seconds of the processes that it had started.
        cpu, wall = (max(now - then, 0.0) for now, then in zip(self._last, before, strict=True))
        return {"cpu_s": round(cpu, 2), "wall_s": round(wall, 2)}


_UNREADABLE: Final = TargetTried(
    {
        "failure": {
            "phase": "import",
            "failure_class": "crash",
            "exception": "",
            "message": "its process sent an invalid report",
            "where": "",
        }
    },
    "",
)


def _found(tried: TargetTried) -> dict[str, Any]:
    """Return the fields of a record that a process has found."""
    found = tried.found
    facts = found.get("compile") or {}
    second = found.get("second")
    return {
        "status": verdict(tried),
        "why": tidy(first_line(tried), LONGEST_MESSAGE),
        "inputs": found["inputs"][:LONGEST_MESSAGE] if "inputs" in found else None,
        "failure": _failure(found),
        "graphs": facts.get("graphs"),
        "graph_breaks": [
            {"text": tidy(one["text"], LONGEST_MESSAGE), "count": one["count"]}
            for one in facts.get("graph_breaks", ())[:MOST_BREAKS]
        ],
        "recompiles": recompiles(found) if facts else None,
        "second": second and {name: second.get(name) for name in ("inputs", "recompiles", "off")},
        "error": _worst(found.get("accuracy", ())),
        "compile_s": facts.get("cold_s"),
        "eager_s": found.get("eager_s"),
        "compiled_s": found.get("compiled_s"),
    }


def _failure(found: Mapping[str, Any]) -> dict[str, str] | None:
    failure = found.get("failure")
    if failure is None:
        return None
    return {
        "phase": failure["phase"],
        "class": failure["failure_class"],
        "exception": failure["exception"][:LONGEST_NAME],
        "message": tidy(failure["message"], LONGEST_MESSAGE),
        "where": (found.get("own_place") or failure["where"])[:LONGEST_NAME],
        "frame": found.get("frame", "")[:LONGEST_NAME],
    }


def _worst(errors: Iterable[Mapping[str, Any]]) -> float | None:
    """Return the largest RMSE over its limit; ``None`` if no output has both."""
    ratios = [
        min(one["compiled_rmse"] / one["limit_rmse"], LARGEST)
        for one in errors
        if one["compiled_rmse"] is not None and one["limit_rmse"]
    ]
    return max(ratios, default=None)
