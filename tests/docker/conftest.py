"""Provide the engine of DOCKER_HOST, or start one; without any, tests are skipped."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import tempfile
import time
import warnings
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
    remove,
    socket_of,
    start,
    stop,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PYTHON = "3.12"


def pytest_configure(config: pytest.Config) -> None:
    """Ignore unclosed sockets: docker's SDK leaves them to the garbage collector."""
    config.addinivalue_line("filterwarnings", "ignore:unclosed:ResourceWarning")


@dataclass
class Daemon:
    """An engine for the tests.

    Attributes:
        folder: Folder of its data; ``None`` if it was running before.
        base: Name of the base image.
        process: Process of the engine, if it was started here.
    """

    client: Any
    folder: Path | None
    base: str
    process: subprocess.Popen[bytes] | None

    def die(self) -> None:
        """Kill the engine."""
        assert self.process is not None
        assert self.folder is not None
        # Its containerd dies a moment later. A new engine that finds the process id of a dead one
        # that is not yet reaped would wait for it.
        name = self.folder / "exec-root" / "containerd" / "containerd.pid"
        status = Path("/proc", name.read_text(), "status")
        self.process.kill()
        self.process.wait()
        while status.exists() and "State:\tZ" not in status.read_text():
            time.sleep(0.05)
        name.unlink()

    def restart(self) -> None:
        """Start the engine again."""
        assert self.folder is not None
        self.process = start(self.folder)

    def end(self) -> None:
        """Stop the engine if it was started here, and remove its data."""
        if self.process is None or self.folder is None:
            self.client.images.remove(self.base, force=True)
        self.client.close()
        if self.process is not None and self.folder is not None:
            stop(self.folder)
            self.process.wait()
            remove(self.folder)


def _no_engine(reason: str) -> None:
    if os.environ.get("IVHL_REQUIRE_ENGINE") == "1":
        pytest.fail(f"no Docker engine: {reason}")
    pytest.skip(f"no Docker engine: {reason}")


@pytest.fixture(scope="session")
def daemon() -> Iterator[Daemon]:
    """Yield an engine with a base image; an engine started here ends with the tests."""
    with pytest.MonkeyPatch.context() as patch:
        # The base holds this machine's certificates; tests of the settings bring their own.
        for name in [n for n in os.environ if n.startswith("UV_")] + ["SSL_CERT_FILE"]:
            patch.delenv(name, raising=False)
        folder: Path | None = None
        process: subprocess.Popen[bytes] | None = None
        try:
            interpreter = find_python(PYTHON)
            if "DOCKER_HOST" not in os.environ and not answers(None):
                # Not in pytest's folders: its next runs would try to remove mounts.
                folder = Path(tempfile.mkdtemp(prefix="ivhl-engine-"))
                process = start(folder)
                patch.setenv("DOCKER_HOST", socket_of(folder))
            base = make_base(None, PYTHON, interpreter)
        except EngineError as error:
            if folder is not None:
                stop(folder)
                if process is not None:
                    process.wait()
                remove(folder)
            _no_engine(str(error))
            return
        patch.setenv("IVHL_IMAGE_BASE", base)
        patch.setenv("DOCKER_BUILDKIT", "0")
        found = Daemon(docker.from_env(), folder, base, process)
        try:
            yield found
        finally:
            found.client.close()
            found.end()
            # docker-py leaves the sockets of requests that a killed engine cut off to the garbage
            # collector, which would report them after the last test.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                gc.collect()


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
