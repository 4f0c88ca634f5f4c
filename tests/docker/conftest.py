"""An engine: the one of DOCKER_HOST, or one that is started here; without any, tests are skipped."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docker
import pytest

from tests.docker.engine import (
    EngineError,
    answers,
    find_python,
    make_base,
    socket_of,
    start,
    stop,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PYTHON = "3.12"


@dataclass
class Daemon:
    """An engine for the tests.

    Attributes:
        folder: Where it keeps everything; ``None`` if it was there before.
        base: Name of the base image.
    """

    client: Any
    folder: Path | None
    base: str

    def restart(self) -> None:
        """Start it again after it died."""
        assert self.folder is not None
        start(self.folder)


def _no_engine(reason: str) -> None:
    if os.environ.get("IVHL_REQUIRE_ENGINE") == "1":
        pytest.fail(f"no Docker engine: {reason}")
    pytest.skip(f"no Docker engine: {reason}")


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Yield an engine that has a base image; what was started here ends with the tests."""
    with pytest.MonkeyPatch.context() as patch:
        # The base holds this machine's certificates; tests of the settings bring their own.
        for name in [n for n in os.environ if n.startswith("UV_")] + ["SSL_CERT_FILE"]:
            patch.delenv(name, raising=False)
        folder: Path | None = None
        try:
            interpreter = find_python(PYTHON)
            if "DOCKER_HOST" not in os.environ and not answers(None):
                folder = tmp_path_factory.mktemp("engine")
                start(folder)
                patch.setenv("DOCKER_HOST", socket_of(folder))
            base = make_base(None, PYTHON, interpreter)
        except EngineError as error:
            if folder is not None:
                stop(folder)
            _no_engine(str(error))
            return
        patch.setenv("IVHL_IMAGE_BASE", base)
        patch.setenv("DOCKER_BUILDKIT", "0")
        client = docker.from_env()
        try:
            yield Daemon(client, folder, base)
        finally:
            if folder is None:
                client.images.remove(base, force=True)
            client.close()
            if folder is not None:
                stop(folder)
                shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a clone of the working tree, with its uncommitted envs/docker and no results."""
    folder = tmp_path_factory.mktemp("clone") / "ivhl"
    commands = (
        ("git", "clone", "--quiet", str(ROOT), str(folder)),
        ("git", "-C", str(folder), "rm", "-r", "--quiet", "--ignore-unmatch", "results"),
    )
    for command in commands:
        subprocess.run(command, check=True, capture_output=True)
    shutil.copytree(ROOT / "envs" / "docker", folder / "envs" / "docker", dirs_exist_ok=True)
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.invalid")
    for words in (("add", "-A"), ("commit", "--quiet", "--allow-empty", "-m", "No results")):
        subprocess.run(["git", "-C", str(folder), *identity, *words], check=True)
    return folder
