"""Run uv, which resolves, locks and finds Pythons."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import uv

from ivhl.errors import LockError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

# Settings of the user that would change a lock. The user's settings for the registry, its
# certificates and the cache are kept.
_DROPPED = (
    "UV_BUILD_CONSTRAINT",
    "UV_CONSTRAINT",
    "UV_CUSTOM_COMPILE_COMMAND",
    "UV_EXCLUDE",
    "UV_EXCLUDE_NEWER",
    "UV_EXCLUDE_NEWER_PACKAGE",
    "UV_FORK_STRATEGY",
    "UV_NO_BINARY",
    "UV_OVERRIDE",
    "UV_PRERELEASE",
    "UV_PROJECT",
    "UV_PYTHON",
    "UV_PYTHON_PLATFORM",
    "UV_RESOLUTION",
    "UV_TORCH_BACKEND",
    "UV_WORKING_DIR",
)


# Lines of a failed build that say what is wrong; the others say that something is.
_TELLING = re.compile(r"(?:fatal |\b\w*)error\b|not found", re.IGNORECASE)
_WRAPPING = re.compile(r"error: (?:Failed|command)|cause: |hint: ", re.IGNORECASE)
_SHOWN_LINES = 3

# Of all threads: an exception reaches the main one alone.
_RUNNING: set[subprocess.Popen[str]] = set()
_STOPPED = threading.Event()


def cause_of(printed: str) -> str:
    """Return the lines of a failed build that say what is wrong, in one.

    Args:
        printed: What ``uv build`` printed without ``--quiet``, which hides what the backend says.
    """
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    telling = [x for x in lines if _TELLING.search(x) and not _WRAPPING.match(x)]
    return " | ".join((telling or lines)[-_SHOWN_LINES:])[:800]


def uv_bin() -> str:
    """Return the executable of the installed ``uv`` package.

    Raises:
        LockError: If the package has no executable.
    """
    try:
        return uv.find_uv_bin()
    except FileNotFoundError as error:
        raise LockError(
            f"uv has no executable: {error}", hint="reinstall it: pip install --force-reinstall uv"
        ) from error


def run_uv(
    arguments: Sequence[str], *, cwd: Path, timeout_s: float = 900.0
) -> subprocess.CompletedProcess[str]:
    """Run uv and return its output; the caller checks the exit status.

    Raises:
        LockError: If uv is missing, or does not end in time.
    """
    environment = {k: v for k, v in os.environ.items() if k not in _DROPPED}
    # No colours and no wrapping: ivhl parses the messages.
    environment |= {"NO_COLOR": "1", "UV_NO_PROGRESS": "1", "COLUMNS": "100000"}
    environment.pop("FORCE_COLOR", None)
    environment.pop("CLICOLOR_FORCE", None)
    if _STOPPED.is_set():
        raise LockError("uv is not started: this command is being stopped")
    process = subprocess.Popen(
        [uv_bin(), *arguments],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,  # with what builds the project, which uv leaves behind
    )
    _RUNNING.add(process)
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise LockError(
            f"uv {' '.join(arguments[:2])} did not end within {timeout_s:.0f} s",
            hint="see whether the package registry answers, then try again",
        ) from error
    finally:
        if process.returncode is None:
            _kill(process)
            process.communicate()
        _RUNNING.discard(process)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@contextmanager
def uv_pool(at_once: int) -> Iterator[ThreadPoolExecutor]:
    """Yield threads that run uv; an exception, as of Ctrl-C or SIGTERM, ends what they run."""
    pool = ThreadPoolExecutor(at_once)
    try:
        yield pool
    except BaseException:
        _STOPPED.set()
        pool.shutdown(wait=False, cancel_futures=True)
        for process in tuple(_RUNNING):
            _kill(process)
        raise
    finally:
        pool.shutdown()
        _STOPPED.clear()


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
