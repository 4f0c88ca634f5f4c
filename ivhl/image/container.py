"""Measure one cell in one container: no network, read-only root, one writable scratch folder."""

from __future__ import annotations

import json
import os
import tarfile
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from http import HTTPStatus
from io import BytesIO
from typing import TYPE_CHECKING, Any

from docker.errors import APIError, NotFound
from docker.types import DeviceRequest, Mount
from requests.exceptions import RequestException

from ivhl import git
from ivhl.errors import SpecError
from ivhl.image import inside
from ivhl.image.build import Client, EngineError, engine_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from ivhl.measure.settings import Settings
    from ivhl.records.record import Cell, Machine

RUN_LABEL = "org.ivhl.run"
# An engine gives a name to one container: the one that has this name is pinned next.
PINNED_NEXT = "ivhl-pinned-next"
HOME = "/ivhl"
SCRATCH = "/scratch"
USER = 10001  # as in the Dockerfile
# Share of the memory limit for Inductor's files; most of it stays empty.
_SCRATCH_SHARE = 0.25
_SHOWN_LINES = 5
_LOOK_S = 0.1
# Choosing takes less than a second: a host that does for so long was killed.
_MOST_CHOOSING_S = 60.0
# So is one that has not started its container after that.
_MOST_CREATED = timedelta(minutes=10)
_MOST_PROCESSES = 4096
# Of one message; a record has at most 1 MiB (``ivhl.fleet.sources``).
_LONGEST_LINE = 8 * 2**20
_KEPT_LINES, _KEPT_BYTES = 50, 2000  # of other output, to say why a container ended
# What a container may send: event to the texts that come with it. Measured code can print, too.
_EVENTS: dict[str, tuple[str, ...]] = {
    "cell-building": (),
    "cell-measuring": (),
    "cell-measured": (),
    "cell-failed": ("commit", "message", "output"),
    "build-failed": ("commit", "message", "output"),
    "refused": ("message", "hint"),
    "case-started": ("case",),
    "case-record": ("case", "record"),
    "case-finished": ("case",),
    "case-kept": ("case",),
    "case-unchanged": ("case",),
}


def choose_cpus(
    text: str, machine: Machine, threads: int, taken: Collection[int] = ()
) -> tuple[int, ...]:
    """Return the CPUs to pin to.

    Args:
        text: E.g. ``2-3,6``. Empty means the last free CPUs: one per thread, and one for the
            process that supervises them.
        machine: Machine of the engine.
        threads: Threads of the measured code.
        taken: CPUs of other containers that measure, which may be started by another host.

    Raises:
        SpecError: If the text names no CPUs, or CPUs that the machine does not have; or if it is
            empty, and others measure on so many that too few are free.
    """
    if not text:
        wanted = min(threads + 1, machine.n_cpus)
        free = [cpu for cpu in range(machine.n_cpus) if cpu not in taken]
        if len(free) < wanted:
            raise SpecError(
                f"other containers measure on CPUs {_cpu_list(taken)} of {machine.n_cpus}, and "
                f"{wanted} are needed",
                hint="wait for them to end, or name CPUs yourself: IVHL_IMAGE_CPUS",
            )
        return tuple(free[-wanted:])
    chosen: set[int] = set()
    try:
        for part in text.split(","):
            low, _, high = part.partition("-")
            # One more than there are, to be refused: a number of many digits is not counted up to.
            chosen |= set(range(int(low), min(int(high or low), machine.n_cpus) + 1))
    except ValueError:
        chosen = set()
    if not chosen or max(chosen) >= machine.n_cpus:
        raise SpecError(
            f"IVHL_IMAGE_CPUS: must be CPUs from 0 to {machine.n_cpus - 1} (got {text!r})",
            hint="two of them are 2,3 or 2-3",
        )
    return tuple(sorted(chosen))


def _cpu_list(cpus: Collection[int]) -> str:
    return ",".join(map(str, sorted(cpus)))


def taken_cpus(client: Client, but: str = "") -> frozenset[int]:
    """Return the CPUs to which containers of any checkout and host are pinned.

    Args:
        client: See ``connect``.
        but: Id of a container that does not count.

    Raises:
        EngineError: If the engine does not answer.
    """
    taken: set[int] = set()
    with engine_errors("looking for other containers that measure"):
        now = datetime.fromisoformat(client.info()["SystemTime"])
        listed = client.containers.list(
            all=True, filters={"label": RUN_LABEL}, ignore_removed=True
        )
        for container in listed:
            if container.id == but or not _measures(container.attrs, now):
                continue
            # What this module wrote: numbers and commas.
            pinned = str(container.attrs.get("HostConfig", {}).get("CpusetCpus") or "")
            taken |= {int(cpu) for cpu in pinned.split(",") if cpu.isdecimal()}
    return frozenset(taken)


def _measures(container: dict[str, Any], now: datetime) -> bool:
    """Return whether a container runs, or will: it gets its files between creating and starting."""
    state = container["State"]["Status"]
    if state == "created":
        return now - datetime.fromisoformat(container["Created"]) < _MOST_CREATED
    return state in {"running", "paused", "restarting"}


def choose_memory(limit: int | None, machine: Machine) -> int:
    """Return a container's memory limit in bytes, so that a case is ended before the container is.

    A case may use 90 % of the memory (``machine.memory.memory_limit``), here that of the container.
    """
    if limit is None:
        return machine.memory_bytes
    return min(machine.memory_bytes, int(limit / 0.9))


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A request to measure in a container.

    Attributes:
        image: Digest.
        records: JSON lines of records that need not be measured again.
        cpus: The CPUs that its processes are pinned to; see ``choose_cpus``. There is no quota of
            CPU time: the kernel enforces one by pausing processes, also while they are timed.
        memory_bytes: Limit for all of its processes and its scratch together; swap is off.
        gpus: Ids or indices of the GPUs; empty means all.
        run: Label of the containers of this checkout, to find those of a killed run.
    """

    root: Path
    image: str
    settings: Settings
    cell: Cell
    commit: str
    records: tuple[str, ...]
    cpus: str
    memory_bytes: int
    run: str
    gpus: tuple[str, ...] = ()


def measure_in_container(
    client: Client, order: Order, receive: Callable[[dict[str, Any]], None]
) -> None:
    """Run the cases of a cell in a container, and remove the container.

    Args:
        client: See ``connect``.
        order: The request.
        receive: Called with each message from the container; if it raises, the container is removed.

    Raises:
        EngineError: If the container cannot be created, ends before its work is done, or the engine
            goes away. Messages before that were passed to ``receive``.
        SpecError: If git does not have the commit.
    """
    payload = _payload(order)
    doing = f"measuring {order.cell.id}"
    with _container(client, order, doing) as container:
        with engine_errors(doing):
            container.put_archive(HOME, payload)
            stream = container.attach(stdout=True, stderr=True, stream=True, demux=True)
            container.start()
        errors: list[bytes] = []
        done = False
        try:
            for message in _messages(stream, errors, doing):
                done |= message["event"] in {"cell-measured", "cell-failed", "refused"}
                receive(message)
        finally:
            # Where the engine is gone, or has ended the connection, there is no socket to shut down.
            with suppress(OSError, AttributeError):
                stream.close()
        with engine_errors(doing):
            status = container.wait(timeout=60)["StatusCode"]
            container.reload()
    if not done:
        raise _ended_early(order, container.attrs["State"], status, b"".join(errors))


def _ended_early(order: Order, state: dict[str, Any], status: int, errors: bytes) -> EngineError:
    lines = errors.decode(errors="replace").strip().splitlines()
    why = f"exit status {status}"
    if state.get("OOMKilled"):
        why = f"out of memory at {order.memory_bytes / 2**30:.1f} GiB"
    elif lines:
        why += ": " + " | ".join(line.strip() for line in lines[-_SHOWN_LINES:])[-600:]
    return EngineError(
        f"the container of {order.cell.id} ended before its work was done ({why})",
        hint="run the same command again: it goes on where it stopped",
    )


@contextmanager
def _container(client: Client, order: Order, doing: str) -> Iterator[Any]:
    settings = order.settings
    requests = []
    if settings.effort.device == "cuda":
        ids = list(order.gpus)
        which = {"device_ids": ids} if ids else {"count": -1}
        requests.append(DeviceRequest(capabilities=[["gpu"]], **which))
    memory = order.memory_bytes
    scratch = int(memory * _SCRATCH_SHARE)
    with engine_errors(doing):
        container = _create_alone(
            client,
            image=order.image,
            command=["python", f"{HOME}/inside.py"],
            labels={RUN_LABEL: order.run},
            environment={"HOME": SCRATCH, "TMPDIR": SCRATCH, "USER": "ivhl", "LANG": "C.UTF-8"},
            user=f"{USER}:{USER}",
            network_mode="none",
            read_only=True,
            # exec: Inductor loads libraries that it compiles there.
            tmpfs={SCRATCH: f"rw,exec,nosuid,nodev,mode=1777,size={scratch}"},
            mounts=[Mount(target=HOME, source="", type="volume")],
            # Far more than compiling on all cores needs: code that forks without end ends itself,
            # and not the machine of the engine.
            pids_limit=_MOST_PROCESSES,
            mem_limit=memory,
            memswap_limit=memory,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            device_requests=requests,
            init=True,
        )
    try:
        taken = taken_cpus(client, but=container.id)
        cpus = choose_cpus(order.cpus, settings.machine, settings.effort.threads, taken)
        with engine_errors(doing):
            container.update(cpuset_cpus=_cpu_list(cpus))
            container.rename(f"ivhl-{container.id[:12]}")  # the next one may choose
        yield container
    finally:
        # No container may go on measuring. Errors are ignored, since the engine may be gone.
        with suppress(APIError, RequestException, OSError):
            container.remove(v=True, force=True)


def _create_alone(client: Client, **options: Any) -> Any:  # noqa: ANN401  (docker has no types)
    """Create a container under the name ``PINNED_NEXT``, as soon as no other one has it.

    Two hosts that look for free CPUs in the same moment would find the same ones.
    """
    holder, since = "", time.monotonic()
    while True:
        try:
            return client.containers.create(**options, name=PINNED_NEXT)
        except APIError as error:
            if error.status_code != HTTPStatus.CONFLICT:
                raise
        with suppress(NotFound):
            other = client.containers.get(PINNED_NEXT)
            if other.id != holder:
                holder, since = other.id, time.monotonic()
            elif time.monotonic() - since > _MOST_CHOOSING_S:
                other.remove(v=True, force=True)
                continue
        time.sleep(_LOOK_S)


def remove_leftovers(client: Client, run: str) -> None:
    """Remove the containers that an earlier run of this checkout left behind.

    Raises:
        EngineError: If the engine does not answer.
    """
    with engine_errors("looking for containers of an earlier run"):
        for container in client.containers.list(all=True, filters={"label": f"{RUN_LABEL}={run}"}):
            with suppress(NotFound):
                container.remove(v=True, force=True)


def _messages(stream: Any, errors: list[bytes], doing: str) -> Iterator[dict[str, str]]:  # noqa: ANN401
    """Yield the container's messages; append the end of its other output to ``errors``.

    Raises:
        EngineError: If the connection is lost, or a line never ends.
    """
    pending = b""
    with engine_errors(doing):
        for out, error in stream:
            _keep(errors, error or b"")
            pending += out or b""
            *lines, pending = pending.split(b"\n")
            if len(pending) > _LONGEST_LINE:
                raise EngineError(
                    f"{doing}: the container printed a line of more than {_LONGEST_LINE >> 20} MiB",
                    hint="measured code prints to the output of the harness: see what it does",
                )
            for line in lines:
                if (message := read_message(line)) is not None:
                    yield message
                else:  # other output, or a line cut off when the engine stops
                    _keep(errors, line)


def _keep(errors: list[bytes], text: bytes) -> None:
    if text:
        errors.append(text[-_KEPT_BYTES:])
        del errors[:-_KEPT_LINES]


def read_message(line: bytes) -> dict[str, str] | None:
    """Return a message of the container with the texts that belong to it; ``None`` for others."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    event = message.get("event") if isinstance(message, dict) else None
    if not isinstance(event, str) or event not in _EVENTS:
        return None
    details = {name: message.get(name) for name in _EVENTS[event]}
    if not all(isinstance(value, str) for value in details.values()):
        return None
    return {"event": event, **details}


def _payload(order: Order) -> bytes:
    """Return a tar archive for the container: the commits, the instrument and the request."""
    settings = replace(
        order.settings, root=HOME, results=f"{SCRATCH}/results", scratch=f"{SCRATCH}/cases",
        events="", interpreters={},
    )  # fmt: skip
    about = {
        "cell": asdict(order.cell),
        "commit": order.commit,
        "base": order.settings.base,
        "image": order.image,
        "records": order.records,
    }
    commits = filter(None, (order.settings.base, order.commit))
    sources = [git.archive(order.root, one, f"sources/{one}") for one in commits]
    payload = BytesIO()
    with tarfile.open(fileobj=payload, mode="w") as archive:
        for name, text in (("order", about), ("settings", asdict(settings))):
            data = json.dumps(text).encode()
            entry = tarfile.TarInfo(f"{name}.json")
            entry.size = len(data)
            archive.addfile(_owned(entry) or entry, BytesIO(data))
        archive.add(str(inside.__file__), "inside.py", filter=_owned)
        for path, name in order.settings.carried():
            archive.add(path, f"instrument/{name}", filter=_owned)
        for source in sources:
            with tarfile.open(fileobj=BytesIO(source)) as files:
                for entry in files:
                    if owned := _owned(entry):
                        archive.addfile(owned, files.extractfile(entry))
    return payload.getvalue()


def _owned(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Return an entry owned by the container's user; ``None`` for ``__pycache__``."""
    if os.path.basename(entry.name) == "__pycache__":  # noqa: PTH119  (a name in an archive)
        return None
    entry.uid = entry.gid = USER
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    return entry
