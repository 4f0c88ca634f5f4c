"""One cell measured in one container, which hears nothing and touches nothing but its scratch."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docker.errors import APIError, NotFound
from docker.types import DeviceRequest, Mount
from requests.exceptions import RequestException

import ivhl
from ivhl.errors import SpecError
from ivhl.image import inside
from ivhl.image.engine import Client, EngineError, told_plainly
from ivhl.measure.runner import MEASURING_CODE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ivhl.measure.settings import Settings
    from ivhl.records import Cell, Machine

RUN_LABEL = "org.ivhl.run"
HOME = "/ivhl"
SCRATCH = "/scratch"
USER = 10001  # of the Dockerfile
# Of the machine's memory, for what Inductor writes; most of it stays empty.
_SCRATCH_SHARE = 0.25
_SAID = 5
_STOP_S = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a container may use.

    A quota of CPU time is not among them: the kernel enforces it by stopping a process in the middle
    of what is being timed.

    Attributes:
        cpus: Numbers of the CPUs on which everything in it runs.
        memory_bytes: All of its processes and its scratch together; swap is off.
        gpus: Ids or numbers of the cards; empty means all that there are.
    """

    cpus: tuple[int, ...]
    memory_bytes: int
    gpus: tuple[str, ...] = ()


def choose_cpus(text: str, machine: Machine, threads: int) -> tuple[int, ...]:
    """Return the CPUs to pin to.

    Args:
        text: As ``2-3,6``; empty means the last ones, as many as threads and one for the process
            that watches over them.
        machine: The engine's.
        threads: Of the measured code.

    Raises:
        SpecError: If the text means no CPUs, or some that the machine does not have.
    """
    if not text:
        first = max(0, machine.n_cpus - threads - 1)
        return tuple(range(first, machine.n_cpus))
    chosen: set[int] = set()
    try:
        for part in text.split(","):
            low, _, high = part.partition("-")
            chosen |= set(range(int(low), int(high or low) + 1))
    except ValueError:
        chosen = set()
    if not chosen or max(chosen) >= machine.n_cpus:
        raise SpecError(
            f"--cpus: must be numbers of CPUs from 0 to {machine.n_cpus - 1} (got {text!r})",
            hint="two of them are 2,3 or 2-3",
        )
    return tuple(sorted(chosen))


def choose_memory(limit: int | None, machine: Machine) -> int:
    """Return the bytes that a container may hold, so that a case is ended before the container is.

    A case may hold 90 % of what there is (``measure.process.memory_limit``); here that is 90 % of
    the container's.
    """
    if limit is None:
        return machine.memory_bytes
    return min(machine.memory_bytes, int(limit / 0.9))


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to measure in a container.

    Attributes:
        image: Digest.
        records: Lines of JSON of the records that need not be made again.
        run: Names this run, so that what a killed one left behind can be found.
    """

    root: Path
    image: str
    settings: Settings
    cell: Cell
    commit: str
    records: tuple[str, ...]
    limits: Limits
    run: str


def measure_in_container(
    client: Client, order: Order, hear: Callable[[dict[str, Any]], None]
) -> None:
    """Run the cases of a cell in a container, which is gone when this returns.

    Args:
        client: See ``connect``.
        order: What to measure.
        hear: Called with each thing that the container says; if it raises, the container ends.

    Raises:
        EngineError: If the container cannot be made, ends before its work, or the engine goes away;
            what was heard before is the caller's already.
        SpecError: If git has no such commit.
    """
    payload = _payload(order)
    doing = f"measuring {order.cell.id}"
    with _container(client, order, doing) as container:
        with told_plainly(doing):
            container.put_archive(HOME, payload)
            stream = container.attach(stdout=True, stderr=True, stream=True, demux=True)
            container.start()
        errors: list[bytes] = []
        done = False
        for message in _messages(stream, errors, doing):
            done |= message["event"] in {"cell-measured", "cell-failed", "refused"}
            hear(message)
        with told_plainly(doing):
            status = container.wait(timeout=60)["StatusCode"]
            container.reload()
    if not done:
        raise _ended_early(order, container.attrs["State"], status, b"".join(errors))


def _ended_early(order: Order, state: dict[str, Any], status: int, errors: bytes) -> EngineError:
    lines = errors.decode(errors="replace").strip().splitlines()
    why = f"exit status {status}"
    if state.get("OOMKilled"):
        why = f"out of memory at {order.limits.memory_bytes / 2**30:.1f} GiB"
    elif lines:
        why += ": " + " | ".join(line.strip() for line in lines[-_SAID:])[-600:]
    return EngineError(
        f"the container of {order.cell.id} ended before its work was done ({why})",
        hint="run the same command again: it goes on where it stopped",
    )


@contextmanager
def _container(client: Client, order: Order, doing: str) -> Iterator[Any]:
    settings = order.settings
    requests = []
    if settings.device == "cuda":
        ids = list(order.limits.gpus)
        cards = {"device_ids": ids} if ids else {"count": -1}
        requests.append(DeviceRequest(capabilities=[["gpu"]], **cards))
    memory = order.limits.memory_bytes
    scratch = int(memory * _SCRATCH_SHARE)
    with told_plainly(doing):
        container = client.containers.create(
            order.image,
            ["python", f"{HOME}/inside.py"],
            labels={RUN_LABEL: order.run},
            environment={"HOME": SCRATCH, "TMPDIR": SCRATCH, "USER": "ivhl", "LANG": "C.UTF-8"},
            user=f"{USER}:{USER}",
            network_mode="none",
            read_only=True,
            # Inductor loads what it compiles there.
            tmpfs={SCRATCH: f"rw,exec,nosuid,nodev,mode=1777,size={scratch}"},
            mounts=[Mount(target=HOME, source="", type="volume")],
            cpuset_cpus=",".join(map(str, order.limits.cpus)),
            mem_limit=memory,
            memswap_limit=memory,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            device_requests=requests,
            init=True,
        )
    try:
        yield container
    finally:
        # Whatever happened, nothing goes on measuring; the engine may be what went away.
        with suppress(APIError, RequestException, OSError):
            container.remove(v=True, force=True)


def remove_leftovers(client: Client, run: str) -> None:
    """Remove the containers that an earlier run of this checkout left behind.

    Raises:
        EngineError: If the engine does not answer.
    """
    with told_plainly("looking for containers of an earlier run"):
        for container in client.containers.list(all=True, filters={"label": f"{RUN_LABEL}={run}"}):
            with suppress(NotFound):
                container.remove(v=True, force=True)


def _messages(stream: Any, errors: list[bytes], doing: str) -> Iterator[dict[str, Any]]:  # noqa: ANN401
    """Yield what the container says, line by line; what it prints elsewhere is kept."""
    pending = b""
    with told_plainly(doing):
        for out, error in stream:
            if error:
                errors.append(error)
                del errors[:-50]
            pending += out or b""
            *lines, pending = pending.split(b"\n")
            for line in lines:
                try:
                    message = json.loads(line)
                except ValueError:  # not ours; an engine that breaks off ends within a line
                    errors.append(line)
                else:
                    yield message


def _payload(order: Order) -> bytes:
    """Return what the container is given: the commit, the instrument, and what to do."""
    settings = replace(
        order.settings, root=HOME, results=f"{SCRATCH}/results", scratch=f"{SCRATCH}/cases",
        events="", interpreters={},
    )  # fmt: skip
    about = {
        "cell": asdict(order.cell),
        "commit": order.commit,
        "image": order.image,
        "records": order.records,
    }
    source = subprocess.run(
        ["git", "archive", "--format=tar", "--prefix=source/", order.commit],
        cwd=order.root,
        capture_output=True,
        check=False,
    )
    if source.returncode:
        said = source.stderr.decode(errors="replace").strip()
        raise SpecError(
            f"git has no files of commit {order.commit}: {said}",
            hint="name a commit that is here with --commit",
        )
    payload = BytesIO()
    with tarfile.open(fileobj=payload, mode="w") as archive:
        for name, text in (("order", about), ("settings", asdict(settings))):
            data = json.dumps(text).encode()
            entry = tarfile.TarInfo(f"{name}.json")
            entry.size = len(data)
            archive.addfile(_owned(entry) or entry, BytesIO(data))
        archive.add(str(inside.__file__), "inside.py", filter=_owned)
        package = Path(ivhl.__file__).parent
        for part in MEASURING_CODE:
            archive.add(package / part, f"instrument/ivhl/{part}", filter=_owned)
        with tarfile.open(fileobj=BytesIO(source.stdout)) as files:
            for entry in files:
                if owned := _owned(entry):
                    archive.addfile(owned, files.extractfile(entry))
    return payload.getvalue()


def _owned(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Return an entry as the container's user has it; none for compiled code of another Python."""
    if os.path.basename(entry.name) == "__pycache__":  # noqa: PTH119  (a name in an archive)
        return None
    entry.uid = entry.gid = USER
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    return entry
