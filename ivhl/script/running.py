"""Run a script in a cell, as ``python script.py`` would, and return how it ended."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from ivhl.measure.process import ProcessTree, watch
from ivhl.script import no_network, observer
from ivhl.script.outcome import LATE, ScriptOutcome, not_run, without_logs
from ivhl.tracker.store.kept import read_object

if TYPE_CHECKING:
    from collections.abc import Mapping

# Bytes of each stream that are kept: so many of its beginning, and as many of its end.
KEPT: Final = 1 << 20
# What would bring packages of another environment, or files of the user's own Python.
_LEFT_OUT: Final = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONDONTWRITEBYTECODE")


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """A script and how to run it.

    Attributes:
        path: As its user has written it.
        arguments: Its command line.
        deadline_s: Wall seconds after which it is ended.
        network: Whether it may use the network.
    """

    path: Path
    arguments: tuple[str, ...] = ()
    deadline_s: float = 300.0
    network: bool = False

    def run_in(self, cell: Path, change: Mapping[str, Any] | None = None) -> ScriptOutcome:
        """Run it with the Python of a cell, in the current folder.

        Args:
            cell: Folder of the cell's environment.
            change: What ``observer.change_compiler`` changes; ``None`` to run it as it is.
        """
        with tempfile.TemporaryDirectory(prefix="ivhl-run-") as name:
            report = Path(name) / "report.json"
            command = [str(cell / "bin" / "python"), self._named(), *self.arguments]
            if not self.network:
                command = [sys.executable, "-I", "-S", no_network.__file__, *command]
            with ProcessTree(
                command,
                env=_environment(cell)
                | {observer.VARIABLE: str(report)}
                | {observer.CHANGE: json.dumps(change)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            ) as tree:
                output, errors = _Stream(tree.process.stdout), _Stream(tree.process.stderr)
                ended = watch(
                    *(tree, tree.wait, tree.end),
                    deadline_s=self.deadline_s,
                    memory_limit=sys.maxsize,
                )
                tree.end()
                texts = output.text(), errors.text()
            found = read_object(report)
        late = {"deadline": f"{LATE} {self.deadline_s:g} s", "signal": ended.signal_name}
        ending = late.get(ended.how, f"exit {ended.code}")
        outcome = _outcome(ending, ended.seconds, texts, found)
        if ended.how == "deadline" and not outcome.exception:  # a busy machine is no hang
            outcome = replace(outcome, message=f"{ended.cpu_s:.0f} s of them on a CPU")
        return replace(outcome, left_out=output.left_out())

    def _named(self) -> str:
        """Return the path as its user wrote it, and not as an option of Python."""
        text = str(self.path)
        return f"./{text}" if text.startswith("-") else text


def network_can_be_left() -> bool:
    """Return whether this user may run a script without the network."""
    command = [sys.executable, "-I", "-S", no_network.__file__]
    return subprocess.run(command, check=False).returncode == 0


def _environment(cell: Path) -> dict[str, str]:
    environment = {name: text for name, text in os.environ.items() if name not in _LEFT_OUT}
    # Compiled C++ is kept, by its content; what is decided before it is decided again.
    caches = {
        "TORCHINDUCTOR_CACHE_DIR": str((cell / "inductor").resolve()),
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
    }
    path = os.pathsep.join((str(cell / "bin"), environment.get("PATH", os.defpath)))
    return caches | environment | {"VIRTUAL_ENV": str(cell), "PATH": path}


def _outcome(
    ending: str, seconds: float, texts: tuple[str, str], found: Mapping[str, Any]
) -> ScriptOutcome:
    if why := found.get("refused"):
        return not_run(why)
    if found.get("captured") and found.get("changed") is False:
        return not_run("the script chooses another backend than Inductor")
    # Code in C may print an exception, which Python keeps also where the script ends well.
    exception = found.get("exception", {}) if ending != "exit 0" else {}
    kind, message = exception.get("type", ""), exception.get("message", "")
    if not exception and ending != "exit 0":
        kind, message = _last_error(texts[1])
    if not kind and ending.startswith("exit ") and ending != "exit 0":
        message = "".join(without_logs(texts[1]).rstrip().splitlines()[-1:])  # of sys.exit("...")
    counts: dict[str, Any] = {n: found.get(n) for n in ("graphs", "graph_breaks", "recompiles")}
    counts |= {name: tuple(found.get(name, ())) for name in ("reasons", "failed_guards")}
    return ScriptOutcome(
        ending=ending,
        exception=kind,
        message=message,
        inner=tuple(exception.get("inner", ("", ""))),
        output=texts[0],
        errors=texts[1],
        frames=tuple((str(f), int(n or 0), str(w)) for f, n, w in exception.get("frames", ())),
        seconds=seconds,
        **counts,
    )


_EXCEPTION: Final = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$")


def _last_error(text: str) -> tuple[str, str]:
    """Return the exception that a traceback on standard error ends with; empty without one."""
    _, mark, after = text.rpartition("Traceback (most recent call last):\n")
    for line in after.splitlines() if mark else ():
        if line[:1].strip() and (found := _EXCEPTION.match(line)):
            return found["type"], found["message"] or ""
    return "", ""


class _Stream:
    """Reads a stream to its end in a thread, and keeps its beginning and its end.

    Args:
        stream: A pipe; a process that prints gigabytes costs no memory and no disk.
    """

    def __init__(self, stream: IO[bytes] | None) -> None:
        assert stream is not None  # noqa: S101  (for the type checker)
        self._stream = stream
        self._first = self._last = b""
        self._dropped = 0
        self._digest = sha256()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with suppress(OSError, ValueError):
            while data := os.read(self._stream.fileno(), 1 << 16):
                room = KEPT - len(self._first)
                self._first += data[:room]
                self._last += data[room:]
                if len(self._last) > 2 * KEPT:
                    self._drop()

    def _drop(self) -> None:
        dropped, self._last = self._last[:-KEPT], self._last[-KEPT:]
        self._dropped += len(dropped)
        self._digest.update(dropped)

    def text(self) -> str:
        """Return what was kept, after the end of all that could write."""
        self._thread.join(timeout=5)
        if len(self._last) > KEPT:
            self._drop()
        middle = f"\n[{self._dropped:,} bytes left out]\n".encode() if self._dropped else b""
        return (self._first + middle + self._last).decode("utf-8", "replace")

    def left_out(self) -> str:
        """Return the hash of what was not kept; empty if all was."""
        return self._digest.hexdigest() if self._dropped else ""
