"""Run uv, which resolves, locks and finds Pythons."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import tomllib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uv

from ivhl.errors import LockError
from ivhl.matrix.spec import read_plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Variables that uv is given: they say where packages and Pythons come from, and where uv keeps them.
# Every other setting of the user or of a project would change a lock or a cell.
_KEPT_VARIABLES = re.compile(
    r"UV_(?:\w*INDEX\w*|FIND_LINKS|KEYRING_PROVIDER|CREDENTIALS_DIR|INSECURE_HOST|NATIVE_TLS"
    r"|SYSTEM_CERTS|OFFLINE|\w*_MIRROR(?:_URL)?|HTTP_\w+|REQUEST_TIMEOUT|CONCURRENT_\w+|CACHE_DIR"
    r"|LINK_MODE|LOCK_TIMEOUT|PYTHON_DOWNLOADS\w*|PYTHON_INSTALL_DIR|PYTHON_CACHE_DIR|TOOL_DIR)"
)
# The same in files. ``config-settings`` is how a project builds itself, not what a cell holds.
_KEPT_SETTINGS = (
    *("index", "index-url", "extra-index-url", "find-links", "no-index", "index-strategy"),
    *("keyring-provider", "allow-insecure-host", "native-tls", "system-certs", "offline"),
    *("http-proxy", "https-proxy", "no-proxy", "python-install-mirror", "python-downloads"),
    *("python-downloads-json-url", "cache-dir", "link-mode", "config-settings"),
)
_PLACES = ("index", "extra-index-url", "find-links")
_PROJECT_FILES = ("uv.toml", "pyproject.toml")


# Lines of a failed build that say what is wrong; the others say that something is.
_TELLING = re.compile(r"(?:fatal |\b\w*)error\b|not found", re.IGNORECASE)
_WRAPPING = re.compile(r"error: (?:Failed|command)|cause: |hint: ", re.IGNORECASE)
_SHOWN_LINES = 3

# For all threads, since an exception reaches the main thread only.
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
    arguments: Sequence[str], *, cwd: Path, project: Path | None = None, timeout_s: float = 900.0
) -> subprocess.CompletedProcess[str]:
    """Run uv and return its output; the caller checks the exit status.

    uv is given those settings of the user and of the project that say where packages come from. No
    other setting can change a lock or a cell.

    Args:
        arguments: Those of uv.
        cwd: Folder in which it runs.
        project: Folder of the project, by default the one around ``cwd``.
        timeout_s: Seconds after which it is killed.

    Raises:
        LockError: If uv is missing, does not end in time, or a file of its settings is no TOML.
    """
    if _STOPPED.is_set():
        raise LockError("uv is not started: this command is being stopped")
    settings = kept_settings(project or cwd)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".toml") as file:
        file.writelines(f"{name} = {_toml(value)}\n" for name, value in settings.items())
        file.flush()
        process = subprocess.Popen(
            [uv_bin(), "--config-file", file.name, *arguments],
            cwd=cwd,
            env=_environment(),
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
                hint="check that the package registry answers, then try again",
            ) from error
        finally:
            if process.returncode is None:
                _kill(process)
                process.communicate()
            _RUNNING.discard(process)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def _environment() -> dict[str, str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("UV_") or _KEPT_VARIABLES.fullmatch(name)
    }
    # No colours and no wrapping: ivhl parses the messages.
    environment |= {"NO_COLOR": "1", "UV_NO_PROGRESS": "1", "COLUMNS": "100000"}
    environment.pop("FORCE_COLOR", None)
    environment.pop("CLICOLOR_FORCE", None)
    return environment


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


def kept_settings(cwd: Path) -> dict[str, Any]:
    """Return the settings in uv's files that say where packages come from.

    The files are those of the project around ``cwd``, of the user and of the system, or the one that
    ``UV_CONFIG_FILE`` names. The first file that has a value counts; lists add up.

    Raises:
        LockError: If a file is no TOML.
    """
    found: dict[str, Any] = {}
    for path, settings in _settings_files(cwd.absolute()):
        for name in _KEPT_SETTINGS:
            if name not in settings:
                continue
            value = settings[name]
            if not isinstance(value, list):
                found.setdefault(name, value)
                continue
            here = [_placed(x, path.parent) for x in value] if name in _PLACES else value
            found[name] = [*found.get(name, ()), *here]
    return found


def _settings_files(cwd: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    if named := os.environ.get("UV_CONFIG_FILE"):
        yield cwd / named, _read(cwd / named)
        return
    if os.environ.get("UV_NO_CONFIG"):
        return
    around = (folder / name for folder in (cwd, *cwd.parents) for name in _PROJECT_FILES)
    found = ((path, _read(path)) for path in around if path.is_file())
    yield from islice(((path, settings) for path, settings in found if settings), 1)
    user = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    for path in (Path(user, "uv", "uv.toml"), Path("/etc/uv/uv.toml")):
        if path.is_file():
            yield path, _read(path)


def _read(path: Path) -> dict[str, Any]:
    """Return uv's settings in a file; none if it is the ``pyproject.toml`` of another tool."""
    try:
        found: Any = tomllib.loads(read_plain(path).decode())
    except (OSError, ValueError, RecursionError) as error:
        raise LockError(
            f"{path}: must be TOML, since uv reads it: {error}", hint="correct it, then try again"
        ) from error
    if path.name == "pyproject.toml":
        tool = found.get("tool")
        found = tool.get("uv") if isinstance(tool, dict) else None
    return found if isinstance(found, dict) else {}


def _placed(item: Any, folder: Path) -> Any:  # noqa: ANN401  (a value of TOML)
    """Return an item of a list of indexes with its path, relative to its file, made absolute."""
    if isinstance(item, dict):
        return {name: _placed(x, folder) if name == "url" else x for name, x in item.items()}
    is_path = isinstance(item, str) and "://" not in item
    return str(folder / item) if is_path else item


def _toml(value: Any) -> str:  # noqa: ANN401  (likewise)
    """Return a value of TOML in one line; JSON and TOML write texts, numbers and lists alike."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)
