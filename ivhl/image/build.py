"""Connect to the Docker engine, and build, list, find and remove the images of cells.

Also describes the engine's machine, and turns its errors into ivhl's.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import docker
from docker.errors import APIError, ContainerError, DockerException, ImageNotFound
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from ivhl.errors import IvhlError
from ivhl.image.recipe import LABEL, PackageSources, Recipe, write_context
from ivhl.machine.identity import checked_name, cpu_model
from ivhl.records.record import Machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


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
        "omit --executor docker to measure on this machine itself"
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


# Stages of the Dockerfile.
_INSTALLED, _WITHOUT_SETTINGS = "install", "without-settings"
_SHOWN_LINES = 15
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image that was built here.

    Attributes:
        id: Digest, ``sha256:`` and 64 hex digits.
        lock: sha256 of its lock.
        recipe: See ``Recipe.digest``.
        size_bytes: Size of all layers, including shared ones.
        created: UTC, as the engine writes it.
    """

    id: str
    lock: str
    recipe: str
    size_bytes: int
    created: str


def list_images(client: Client, cell: str = "") -> tuple[Image, ...]:
    """Return the images of cells that the engine has, newest first.

    Args:
        client: See ``connect``.
        cell: Id of the cell to list; empty means all.

    Raises:
        EngineError: If the engine does not answer.
    """
    label = f"{LABEL}cell={cell}" if cell else f"{LABEL}cell"
    with engine_errors("listing images"):
        found = [one.attrs for one in client.images.list(filters={"label": label})]
    images = [_image(attributes) for attributes in found]
    return tuple(sorted(images, key=lambda image: (image.created, image.id), reverse=True))


def build_image(
    client: Client,
    recipe: Recipe,
    sources: PackageSources,
    show: Callable[[str], None] = lambda _: None,
) -> Image:
    """Build the image of a cell, even if there is one.

    Args:
        client: See ``connect``.
        recipe: The image to build.
        sources: Where packages come from.
        show: Called with each line of the build.

    Raises:
        EngineError: If the build fails, or the engine goes away; earlier images stay.
        SpecError: If the certificates cannot be read.
    """
    printed: list[str] = []

    def keep(line: str) -> None:
        printed.append(line)
        show(line)

    with engine_errors(f"building {recipe.lock.cell.id}"):
        if has_buildkit():
            built = _build_with_buildkit(recipe, sources, keep)
        else:
            built = _build_classic(client, recipe, sources, keep)
        if not built:
            raise _failed(recipe, printed)
        made = client.images.get(recipe.tag).attrs
    return _image(made)


def has_buildkit() -> bool:
    """Return whether this machine's docker command builds with BuildKit.

    The SDK cannot, since BuildKit needs a session that only the command opens. ``DOCKER_BUILDKIT``
    takes precedence if set: older commands have BuildKit without ``buildx``.
    """
    wanted = os.environ.get("DOCKER_BUILDKIT")
    if shutil.which("docker") is None or wanted == "0":
        return False
    if wanted == "1":
        return True
    return not subprocess.run(
        ["docker", "buildx", "version"], capture_output=True, check=False
    ).returncode


def _build_classic(
    client: Client,
    recipe: Recipe,
    sources: PackageSources,
    keep: Callable[[str], None],
) -> bool:
    build = uuid.uuid4().hex
    settings = sources.script()
    try:
        with tempfile.TemporaryFile() as context:
            text = recipe.classic_dockerfile()
            write_context(recipe, context, dockerfile=text, settings=settings)
            context.seek(0)
            lines = client.api.build(
                fileobj=context,
                custom_context=True,
                tag=recipe.tag,
                buildargs=_arguments(recipe) | {"UV_NO_CACHE": "1", "BUILD": build},
                labels=recipe.labels,
                target=_WITHOUT_SETTINGS if settings else _INSTALLED,
                network_mode=sources.network or None,
                rm=True,
                forcerm=True,
                decode=True,
                timeout=None,  # the build prints nothing while it installs
            )
            failures: list[str] = []
            for line in _whole_lines(_pieces(lines, failures)):
                keep(line.strip())
        return not failures
    finally:
        # The builder caches this stage, which contains the settings: remove it.
        client.images.prune(filters={"dangling": True, "label": f"{LABEL}build={build}"})


def _pieces(printed: Iterable[dict[str, Any]], failures: list[str]) -> Iterator[str]:
    """Yield the output of a build up to a failure, which is appended to ``failures``."""
    for one in printed:
        yield str(one["stream"]) if "stream" in one else f"{one.get('status', '')}\n"
        if "error" in one:
            failures.append(str(one["error"]))
            yield f"\n{failures[-1]}\n"
            return


def _whole_lines(pieces: Iterable[str]) -> Iterator[str]:
    """Join pieces of output to lines, and remove the colour codes of stderr."""
    rest = ""
    for piece in pieces:
        *lines, rest = (rest + _COLOUR.sub("", piece)).split("\n")
        yield from lines
    yield rest


def _build_with_buildkit(
    recipe: Recipe,
    sources: PackageSources,
    keep: Callable[[str], None],
) -> bool:
    with tempfile.TemporaryDirectory(prefix="ivhl-image-") as name:
        context, secret = Path(name, "context.tar"), Path(name, "settings")
        with context.open("wb") as file:
            write_context(recipe, file, dockerfile=recipe.dockerfile, settings=b"")
        secret.write_bytes(sources.script())
        command = ["docker", "build", "--progress", "plain", "--tag", recipe.tag]
        command += ["--target", _INSTALLED]
        for argument, value in _arguments(recipe).items():
            command += ["--build-arg", f"{argument}={value}"]
        for label, value in recipe.labels.items():
            command += ["--label", f"{label}={value}"]
        command += ["--secret", f"id=settings,src={secret}"]
        if sources.network:
            command += ["--network", sources.network]
        with context.open("rb") as file:
            process = subprocess.Popen(
                [*command, "-"],
                env=os.environ | {"DOCKER_BUILDKIT": "1"},
                stdin=file,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
        assert process.stdout is not None  # noqa: S101  (for the type checker)
        with process:
            for line in process.stdout:
                keep(line.strip())
        return process.returncode == 0


def _arguments(recipe: Recipe) -> dict[str, str]:
    return {"BASE": recipe.base, "PYTHON": recipe.lock.cell.python}


def _failed(recipe: Recipe, printed: Iterable[str]) -> EngineError:
    lines = [line for line in printed if line]
    output = "\n".join(lines[-_SHOWN_LINES:])
    if "no space left" in output.lower():
        hint = "make room: docker image rm, docker system df; then run the same command again"
    elif recipe.base in output and "not found" in output.lower():
        hint = "let IVHL_IMAGE_BASE name a base image that the engine has or can pull"
    else:
        hint = (
            "set the sources of packages with UV_DEFAULT_INDEX, SSL_CERT_FILE, IVHL_IMAGE_NETWORK "
            "(docs/docker.md), then run the same command again"
        )
    reasons = [line for line in lines if "error" in line.lower()][-2:] or lines[-1:]
    return EngineError(
        f"the image of {recipe.lock.cell.id} cannot be built: {' | '.join(reasons)[-600:]}",
        hint=hint,
    )


def _image(attributes: dict[str, Any]) -> Image:
    labels = (attributes.get("Config") or {}).get("Labels") or {}
    return Image(
        id=attributes["Id"],
        lock=labels.get(f"{LABEL}lock", ""),
        recipe=labels.get(f"{LABEL}recipe", ""),
        size_bytes=int(attributes.get("Size", 0)),
        created=str(attributes.get("Created", "")),
    )
