"""Measure for ``ivhl bench`` on a Docker engine: one image and one container per cell."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ivhl.asv.run import log_of
from ivhl.bench.main import Executor, write_record
from ivhl.bench.progress import Display, RunState
from ivhl.errors import ResultsError, SpecError
from ivhl.fleet.check import first_mistake, not_locked
from ivhl.git import find_commit
from ivhl.image.build import Client, EngineError, build_image, connect, list_images, machine_of
from ivhl.image.container import (
    Order,
    choose_cpus,
    choose_memory,
    measure_in_container,
    remove_leftovers,
    taken_cpus,
)
from ivhl.image.recipe import choose_base, make_recipe, sources_here
from ivhl.measure.outcome import failed_everywhere, finished
from ivhl.records.files import record_file
from ivhl.records.identity import AtCommit, key_of
from ivhl.records.lines import read_plain
from ivhl.records.reader import read_record, records_in
from ivhl.tracker.store.records import case_name, device_type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.console import Console

    from ivhl.bench.request import Request
    from ivhl.image.build import Image
    from ivhl.matrix.locks import LockState
    from ivhl.measure.settings import Settings
    from ivhl.records.record import Machine, RunRecord
    from ivhl.workload import Case

_LOOK_S = 0.2


class DockerExecutor(Executor):
    """A Docker engine.

    Args:
        root: Root of the project.

    Raises:
        EngineError: If no engine answers.
    """

    interface = 1
    keeps_compiled = False

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.client = connect()
        self._sources = sources_here()
        self._cpus = os.environ.get("IVHL_IMAGE_CPUS", "")
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        self._gpus = tuple(gpu.strip() for gpu in visible.split(",") if gpu.strip())
        # Two checkouts may use one engine, also from two hosts that have them in the same folder.
        self._run = run_label(root)

    def machine(self, request: Request) -> Machine:
        """Return the machine of the engine.

        Raises:
            EngineError: If no container can be run on it.
            SpecError: If its name is not valid for a folder, or ``bases.toml`` is not valid.
        """
        images = list_images(self.client)
        image = images[0].id if images else choose_base(self.root, request.effort.device)
        try:
            return machine_of(self.client, image, request.machine)
        except EngineError as error:
            raise EngineError(
                str(error),
                hint="let IVHL_IMAGE_BASE name a base image that the engine has or can pull",
            ) from error

    def check(self, settings: Settings, python: str) -> Settings:  # noqa: ARG002  (an executor's method)
        """Check the CPUs.

        Raises:
            SpecError: If ``IVHL_IMAGE_CPUS`` names CPUs that the machine does not have.
            EngineError: If the engine does not answer.
        """
        choose_cpus(self._cpus, settings.machine, settings.effort.threads)
        return settings

    def prepare(self, settings: Settings, locks: Sequence[LockState], console: Console) -> None:
        """Do nothing: an image is a cell, and its container compiles in a folder of its own."""

    def measure(
        self,
        settings: Settings,
        locks: Sequence[LockState],
        cases: Sequence[Case],
        *,
        commit: str,
        console: Console,
    ) -> tuple[str, ...]:
        """Measure the cases in the cells, one after the other; return the cases without a record.

        If an image cannot be built, or a container ends early, the other cells are still measured.

        Raises:
            EngineError: If the engine goes away.
            ResultsError: If a record cannot be written.
        """
        # Only now: this run holds the lock of the checkout, so the container of no other is removed.
        remove_leftovers(self.client, self._run)
        events = Path(settings.events)
        events.parent.mkdir(parents=True, exist_ok=True)
        events.write_text("", encoding="utf-8")
        log = log_of(Path(settings.root))
        lost: list[str] = []
        state = RunState(events, [lock.cell.id for lock in locks], cases)
        try:
            with Display(console, state) as display, log.open("a") as sink:
                for lock in locks:
                    order = self._order(settings, lock, commit)
                    pins = {pin.name: pin.version for pin in lock.pins}
                    one = _Cell(self.client, order, {case.name: case for case in cases}, pins)
                    try:
                        _follow(display, partial(self._measure_cell, one, lock, sink))
                    except EngineError as error:
                        one.report("cell-failed", seconds=one.seconds, message=str(error))
                        display.update()
                        hint = f"next: {error.hint}"
                        console.print(hint, soft_wrap=True)
                        lost += [f"{lock.cell.id}: {name}" for name in one.left]
                        connect()  # raises if the engine is gone: the other cells need it
        except BaseException:
            with suppress(EngineError):
                remove_leftovers(connect(), self._run)
            raise
        return tuple(dict.fromkeys((*lost, *state.left())))

    def _order(self, settings: Settings, lock: LockState, commit: str) -> Order:
        # Chosen when the container is created; but building an image for nothing takes minutes.
        taken = taken_cpus(self.client)
        choose_cpus(self._cpus, settings.machine, settings.effort.threads, taken)
        return Order(
            root=self.root,
            image="",
            settings=settings,
            cell=lock.cell.as_recorded(lock.sha256),
            commit=commit,
            records=(),
            cpus=self._cpus,
            memory_bytes=choose_memory(settings.effort.memory_limit, settings.machine),
            gpus=self._gpus,
            run=self._run,
        )

    def _measure_cell(self, one: _Cell, lock: LockState, log: TextIO) -> None:
        one.report("cell-creating")
        image = self.image(
            lock, one.order.settings.effort.device, lambda line: print(line, file=log)
        )
        one.report("cell-created", seconds=one.seconds, message="")
        one.measure(image.id)

    def image(
        self,
        lock: LockState,
        device: str,
        show: Callable[[str], None],
        *,
        fresh: bool = False,
    ) -> Image:
        """Return the image of a cell; build it if there is none with the current recipe.

        Args:
            lock: Lock of the cell.
            device: ``cpu`` or ``cuda``.
            show: Called with each line of a build.
            fresh: Whether to build even if there is one.

        Raises:
            EngineError: If it cannot be built, or the engine goes away.
            SpecError: If the Dockerfile, ``bases.toml`` or the certificates cannot be read.
        """
        commit = find_commit(self.root, "HEAD")
        recipe = make_recipe(self.root, lock, device=device, commit=commit)
        for image in () if fresh else list_images(self.client, lock.cell.id):
            if (image.lock, image.recipe) == (lock.sha256, recipe.digest):
                return image
        return build_image(self.client, recipe, self._sources, show)


def run_label(root: Path) -> str:
    """Return the label of this checkout's containers: no other on any host has it."""
    machine_id = Path("/etc/machine-id")
    here = machine_id.read_text(encoding="utf-8") if machine_id.is_file() else ""
    parts = (os.uname().nodename, here, str(os.getuid()), str(root))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@dataclass
class _Cell:
    """One cell of a run: turns the container's messages into events and records.

    Attributes:
        client: See ``connect``.
        order: The request; ``measure`` adds the image.
        cases: All requested cases, by name.
        pins: Versions of the packages of the cell's lock.
    """

    client: Client
    order: Order
    cases: Mapping[str, Case]
    pins: Mapping[str, str]
    _began: float = field(default_factory=time.monotonic)
    _done: set[str] = field(default_factory=set)
    _sent: frozenset[str] = frozenset()
    _received: dict[tuple[str, str], RunRecord] = field(default_factory=dict)
    _measuring: bool = False

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    @property
    def left(self) -> tuple[str, ...]:
        """Names of the cases that have no record yet."""
        return tuple(name for name in self.cases if name not in self._done)

    def report(self, event: str, **details: Any) -> None:  # noqa: ANN401  (JSON)
        """Write an event for the display."""
        self.order.settings.report(event, cell=self.order.cell.id, **details)

    def measure(self, image: str) -> None:
        """Measure in a container of the image.

        Raises:
            EngineError: See ``measure_in_container``.
            ResultsError: If a record cannot be written.
            SpecError: If this commit lacks a requested workload, size or variant.
        """
        kept = () if self.order.settings.effort.force else self._records_of(image)
        self.order = replace(self.order, image=image, records=kept)
        records = [read_record(line.encode()) for line in kept]
        self._sent = frozenset(case_name(r) for r in records if r.commit == self.order.commit)
        measure_in_container(self.client, self.order, self._receive)

    @property
    def _commits(self) -> tuple[str, ...]:
        """The commits that were ordered, the base first."""
        return tuple(filter(None, (self.order.settings.base, self.order.commit)))

    def _records_of(self, image: str) -> tuple[str, ...]:
        return tuple(
            line
            for commit in self._commits
            for line in records_of_image(self._file(commit), image)
        )

    def _file(self, commit: str) -> Path:
        settings = self.order.settings
        results = Path(settings.results)
        return record_file(results, settings.machine.name, commit, self.order.cell.id)

    def _receive(self, message: dict[str, Any]) -> None:
        event, details = message.pop("event"), message
        if "case" in details and details["case"] not in self.cases:
            raise self._forged(f"case: was not ordered (got {ascii(details['case'])[:100]})")
        match event:
            case "case-record":
                record = self._keep(self._checked(details["case"], details["record"]))
                self._received[record.commit, details["case"]] = record
                return
            case "case-finished" | "case-unchanged" | "case-kept":
                details = self._ended(event, details["case"])
            case "cell-building":
                details = {"commit": self.order.commit}
            case "cell-measuring":
                self._measuring = True
            case "cell-failed" | "build-failed":
                self._keep_failed_build(details)
                if event == "build-failed":
                    return
                details = {"message": details["message"], "seconds": 0.0}
            case "refused":
                raise SpecError(details["message"], hint=details["hint"])
        self.report(event, **details)

    def _ended(self, event: str, case: str) -> dict[str, Any]:
        """Return what the display shows of a case that has its record now.

        Raises:
            EngineError: If it has none.
        """
        found = self._received.get((self.order.commit, case))
        if found is None and not (event == "case-kept" and case in self._sent):
            raise self._forged(f"{case}: has no record that could be kept")
        self._done.add(case)
        if found is None or event != "case-finished":
            return {"case": case}
        return {"case": case, **finished(found)}

    def _checked(self, case: str, line: str) -> RunRecord:
        """Return the record of a case, if it is what was ordered.

        Code that is measured runs in the container, and can print what it likes.

        Raises:
            EngineError: If it is no record, or one of something else.
        """
        try:
            record = read_record(line.encode(errors="replace"))
        except ValueError as error:
            raise self._forged(str(error)) from error
        order, settings = self.order, self.order.settings
        version = self.cases[case].workload.version
        ordered: dict[str, tuple[object, tuple[object, ...]]] = {
            "commit": (record.commit, self._commits),
            "same_as": (record.same_as, (*self._commits, None)),
            "project": (record.project, (settings.project,)),
            "cell": (record.cell, (order.cell,)),
            "machine": (record.machine, (settings.machine,)),
            "case": (case_name(record), (case,)),
            "workload_version": (record.workload_version, (version,)),
            "conditions.device": (device_type(record), (settings.effort.device,)),
        }
        for name, (got, wanted) in ordered.items():
            if got not in wanted:
                rule = " or ".join(str(one) for one in wanted if one is not None)
                raise self._forged(f"{name}: must be {rule} (got {ascii(got)[:200]})")
        mistake = first_mistake(record) or not_locked(record.conditions.packages, self.pins)
        if mistake:
            raise self._forged(mistake)
        return record

    def _forged(self, rule: str) -> EngineError:
        return EngineError(
            f"the container of {self.order.cell.id} printed a record that was not ordered: {rule}",
            hint="code of the project prints messages like those of the harness: see what it does",
        )

    def _keep(self, record: RunRecord) -> RunRecord:
        """Write a record, with what the container does not know: its image and the full command.

        Raises:
            ResultsError: If it cannot be written.
        """
        kept = replace(
            record,
            conditions=replace(record.conditions, image=self.order.image),
            command=f"{record.command} --executor docker",
        )
        write_record(self._file(kept.commit), kept)
        return kept

    def _keep_failed_build(self, details: dict[str, Any]) -> None:
        if self._measuring:
            raise self._forged("the build cannot fail once cases are measured")
        if details["commit"] not in self._commits:
            raise self._forged(f"commit: was not ordered (got {ascii(details['commit'])[:100]})")
        run = self.order.settings.run_in(self.order.cell, details["commit"])
        for case in self.cases.values():
            record = failed_everywhere(
                run,
                case,
                phase="build",
                failure_class="build",
                message=details["message"],
                output=details["output"],
            )
            self._keep(record)
            if run.commit == self.order.commit:
                self._done.add(case.name)


def records_of_image(path: Path, image: str) -> tuple[str, ...]:
    """Return the lines of a record file that a container of this image need not measure again.

    Only the newest record of each case counts. If it was not measured in this image, the case is
    measured again.
    """
    newest: dict[AtCommit, tuple[str, bool]] = {}
    try:
        data = read_plain(path)
    except ResultsError:
        return ()
    for line, record in records_in(data):
        if isinstance(record, str):
            continue  # commands that show results report it; the case is measured again
        mine = record.conditions.image == image
        newest[key_of(record)] = (line.data.decode() + "\n", mine)
    return tuple(line for line, mine in newest.values() if mine)


def _follow(display: Display, work: Callable[[], None]) -> None:
    """Run the work in a thread, and update the display meanwhile.

    Raises:
        Exception: Any exception of the work.
    """
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  (raised again below, in the main thread)
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        display.update()
        thread.join(_LOOK_S)
    display.update()
    if raised:
        raise raised[0]
