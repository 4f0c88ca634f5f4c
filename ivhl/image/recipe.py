"""Describe how to build an image: base, lock, uv, and this machine's sources of packages."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import tarfile
from dataclasses import dataclass, field
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field

from ivhl.errors import SpecError
from ivhl.matrix.spec import StrictModel, read_plain, read_toml, validated
from ivhl.matrix.uv import uv_bin

if TYPE_CHECKING:
    from ivhl.matrix.locks import LockState

FOLDER = Path("envs", "docker")
LABEL = "org.ivhl."
BASE_LABEL = "org.opencontainers.image.base.name"
COMMIT_LABEL = "org.opencontainers.image.revision"
BASE_VARIABLE = "IVHL_IMAGE_BASE"
NETWORK_VARIABLE = "IVHL_IMAGE_NETWORK"
# Variables for uv's package sources that are passed to the build. Proxies are not among them: the
# engine has its own configuration (~/.docker/config.json).
_PASSED_ON = (
    "UV_DEFAULT_INDEX",
    "UV_INDEX",
    "UV_INDEX_URL",
    "UV_EXTRA_INDEX_URL",
    "UV_INSECURE_HOST",
    "UV_HTTP_TIMEOUT",
    "UV_PYTHON_INSTALL_MIRROR",
    "UV_SYSTEM_CERTS",
    "UV_NATIVE_TLS",
)
_MOUNT = re.compile(r"--mount=\S+\s+")
_CERTIFICATES = "/tmp/ivhl-certificates.pem"  # noqa: S108  (in the build's container)


def _digest(text: str) -> str:
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", text):
        raise ValueError("must be of the form sha256: and 64 hex digits")
    return text


class _Base(StrictModel):
    image: Annotated[str, Field(min_length=1)]
    digest: Annotated[str, AfterValidator(_digest)]


class _Bases(StrictModel):
    cpu: _Base
    cuda: _Base


def load_base(root: Path, device: str) -> str:
    """Return the base image for a device, with its digest.

    Args:
        root: Root of the project.
        device: ``cpu`` or ``cuda``.

    Raises:
        SpecError: If ``envs/docker/bases.toml`` cannot be read or breaks rules.
    """
    path = root / FOLDER / "bases.toml"
    hint = f"correct {path}"
    bases = validated(_Bases, read_toml(path, hint), path.name, hint)
    base: _Base = getattr(bases, device)
    return f"{base.image}@{base.digest}"


@dataclass(frozen=True, slots=True)
class PackageSources:
    """This machine's sources of packages; they do not become part of an image.

    Attributes:
        variables: Environment variables for uv.
        certificates: File of trusted certificates; ``None`` means those of uv.
        network: Network of the build, as for ``docker build --network``; empty means the engine's
            default.
    """

    variables: dict[str, str] = field(default_factory=dict)
    certificates: Path | None = None
    network: str = ""

    def script(self) -> bytes:
        """Return the shell script that the build sources before it installs.

        Raises:
            SpecError: If the certificates cannot be read.
        """
        lines = [f"export {name}={shlex.quote(value)}" for name, value in self.variables.items()]
        if self.certificates is not None:
            try:
                text = self.certificates.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise SpecError(
                    f"certificates {self.certificates}: cannot be read: {error}",
                    hint="let SSL_CERT_FILE name a PEM file",
                ) from error
            lines += [
                f"cat > {_CERTIFICATES} <<'IVHL_END'",
                text.rstrip("\n"),
                "IVHL_END",
                f"export SSL_CERT_FILE={_CERTIFICATES}",
            ]
        return "".join(f"{line}\n" for line in lines).encode()


def sources_here() -> PackageSources:
    """Return this machine's sources of packages, from the environment."""
    named = os.environ.get("SSL_CERT_FILE", "")
    return PackageSources(
        {name: os.environ[name] for name in _PASSED_ON if os.environ.get(name)},
        Path(named) if named else None,
        os.environ.get(NETWORK_VARIABLE, ""),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How to build the image of a cell.

    Attributes:
        device: ``cpu`` or ``cuda``.
        base: Base image.
        commit: The project's HEAD, the origin of the recipe; the image holds no code of the project.
        uv: Version of the uv that installs.
        dockerfile: Text of the Dockerfile, for BuildKit.
    """

    lock: LockState
    device: str
    base: str
    commit: str
    uv: str
    dockerfile: str

    @property
    def tag(self) -> str:
        """Name of the image."""
        return f"ivhl:{self.lock.cell.id}" + ("" if self.device == "cpu" else f"-{self.device}")

    @property
    def digest(self) -> str:
        """Digest of all inputs that determine the image, except the lock."""
        parts = (self.dockerfile, self.base, self.uv, self.lock.cell.python, self.device)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the image."""
        cell = self.lock.cell
        return {
            f"{LABEL}cell": cell.id,
            f"{LABEL}lock": str(self.lock.sha256),
            f"{LABEL}recipe": self.digest,
            f"{LABEL}python": cell.python,
            f"{LABEL}torch": cell.torch,
            f"{LABEL}uv": self.uv,
            BASE_LABEL: self.base,
            COMMIT_LABEL: self.commit,
        }

    def classic_dockerfile(self) -> str:
        """Return the Dockerfile for an engine without BuildKit."""
        return _MOUNT.sub("", self.dockerfile)


def choose_base(root: Path, device: str) -> str:
    """Return the base image: ``IVHL_IMAGE_BASE``, else the device's default.

    Raises:
        SpecError: If the default is needed and ``bases.toml`` is not valid.
    """
    return os.environ.get(BASE_VARIABLE) or load_base(root, device)


def make_recipe(root: Path, lock: LockState, *, device: str, commit: str) -> Recipe:
    """Return the recipe of a cell.

    Args:
        root: Root of the project.
        lock: Lock of the cell.
        device: ``cpu`` or ``cuda``.
        commit: See ``Recipe``.

    Raises:
        SpecError: If the Dockerfile or ``bases.toml`` cannot be read.
    """
    path = root / FOLDER / "Dockerfile"
    try:
        text = read_plain(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: cannot be read: {error}", hint=f"see {path}") from error
    return Recipe(
        lock=lock,
        device=device,
        base=choose_base(root, device),
        commit=commit,
        uv=version("uv"),
        dockerfile=text,
    )


def write_context(recipe: Recipe, file: Any, *, dockerfile: str, settings: bytes) -> None:  # noqa: ANN401
    """Write the context of a build as a tar archive.

    All time stamps are zero, so that the builder's cache treats equal contexts as equal.

    Args:
        recipe: The image to build.
        file: Binary file to write to.
        dockerfile: Text of the Dockerfile.
        settings: Script from ``PackageSources.script``; empty with BuildKit, which mounts it as
            a secret.
    """
    with tarfile.open(fileobj=file, mode="w") as archive:
        small = {
            "Dockerfile": dockerfile.encode(),
            "lock.txt": read_plain(recipe.lock.path),
            "settings.sh": settings,
        }
        for name, data in small.items():
            archive.addfile(_entry(name, len(data), 0o644), BytesIO(data))
        uv = Path(uv_bin())
        with uv.open("rb") as source:
            archive.addfile(_entry("uv", uv.stat().st_size, 0o755), source)


def _entry(name: str, size: int, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, mode
    return entry
