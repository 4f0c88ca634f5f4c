"""Connect to the Docker engine, describe its machine, and turn its errors into ivhl's."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import docker
from docker.errors import APIError, ContainerError, DockerException, ImageNotFound
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from ivhl.errors import IvhlError
from ivhl.machine.identity import checked_name, cpu_model
from ivhl.records.record import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator

Client: TypeAlias = Any  # docker has no types

_AGAIN = "start it and run the same command again: it goes on where it stopped"
_DEFAULT = "unix:///var/run/docker.sock"
# Exceptions that mean the engine has gone away.
_LOST = (RequestException, HTTPError, DockerException, ConnectionError, TimeoutError)


class EngineError(IvhlError):
    """No Docker engine answers, the connection was lost, or the engine refused a request."""

    exit_code: ClassVar[int] = 9


def connect() -> Client:
    """Return a client of the engine at ``DOCKER_HOST``, or at this machine's socket.

    Raises:
        EngineError: If no engine answers, or access is denied.
    """
    place = os.environ.get("DOCKER_HOST") or _DEFAULT
    try:
        client = docker.from_env()
        client.ping()
    except (*_LOST, OSError) as error:
        raise EngineError(
            f"no Docker engine answers at {place}: {_message(error)}", hint=_what_to_do(error)
        ) from error
    return client


def _what_to_do(error: BaseException) -> str:
    text = str(error)
    if "Permission" in text:
        return "join the group docker (usermod -aG docker $USER), and log in again"
    return (
        "start one (systemctl start docker), or name another with DOCKER_HOST; without one, "
        "omit --docker to measure on this machine itself"
    )


@contextmanager
def engine_errors(doing: str) -> Iterator[None]:
    """Raise an ``EngineError`` for any error of the engine or its connection in the block.

    Args:
        doing: The operation, e.g. ``building py3.12-torch2.6.0``.

    Raises:
        EngineError: For any error of docker, its connection or the system.
    """
    try:
        yield
    except (*_LOST, OSError) as error:
        raise EngineError(f"{doing}: {_message(error)}", hint=_hint_for(error)) from error


def _message(error: BaseException) -> str:
    text = getattr(error, "explanation", None) or str(error)
    return " ".join(str(text).split())[:500]


def _hint_for(error: BaseException) -> str:
    """Return the next step for an error of the engine, its connection or the system."""
    message = _message(error)
    if "no space left" in message:
        return "make room: docker image rm, docker system df; then run the same command again"
    if "capabilities: [[gpu]]" in message or "nvidia" in message:
        return "the engine cannot reach a GPU: install the NVIDIA container toolkit on its machine"
    return next(
        (hint for kind, hint in _HINTS.items() if isinstance(error, kind)),
        "check disk space, files and permissions on this machine",
    )


# By the kind of error, the first that fits.
_HINTS: dict[type[BaseException] | tuple[type[BaseException], ...], str] = {
    ImageNotFound: "run the same command again: it is built when it is missing",
    APIError: "the engine's own log says more (journalctl -u docker)",
    ContainerError: "the image lacks a program of every cell: build it again, or use another base",
    _LOST: f"the connection to the engine was lost: {_AGAIN}",
}


def machine_of(client: Client, image: str, name: str | None) -> Machine:
    """Return the engine's machine, as ``python -m ivhl.measure`` on it would describe it.

    A container reads the data, since the engine may run on another machine.

    Args:
        client: See ``connect``.
        image: Any image of the engine that has ``cat``.
        name: Name for the machine; ``None`` means the engine's name for it.

    Raises:
        EngineError: If no container can be run.
        SpecError: If the name is not valid for a folder.
    """
    with engine_errors("describing the machine of the engine"):
        info = client.info()
        output = client.containers.run(
            image, ["cat", "/proc/cpuinfo"], network_mode="none", remove=True, entrypoint=""
        )
    cpuinfo = output.decode(errors="replace")
    n_cpus = sum(line.startswith("processor") for line in cpuinfo.splitlines())
    architecture = str(info["Architecture"])
    return Machine(
        name=checked_name(name or str(info["Name"])),
        cpu=cpu_model(cpuinfo) or architecture,
        n_cpus=n_cpus or int(info["NCPU"]),
        memory_bytes=int(info["MemTotal"]),
        system=f"Linux {architecture}",
    )
