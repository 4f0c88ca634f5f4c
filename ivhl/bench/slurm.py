"""Run ``ivhl`` as a job on a Slurm node and wait for it (``--executor slurm``)."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ivhl.bench.main import Executor
from ivhl.errors import ResultsError, SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

# Exclusive, because other jobs on the node would disturb the timings. The time is in minutes.
_DEFAULTS: Final = {"exclusive": "true", "time": str(24 * 60)}
_POLL_S = 1.0
# How long a network file system may take to show a file that the node has written.
_GRACE_S = 30.0
# A shell's exit code of a program that a signal ended is this plus the signal.
_SIGNAL: Final = 128


class SlurmExecutor(Executor):
    """A node of a Slurm cluster: the command itself is the job."""

    interface = 1

    def run_elsewhere(
        self, arguments: Sequence[str], options: Sequence[str], show: Callable[[str], object]
    ) -> int:
        """Run the command as a job; see ``run_on_slurm``."""
        return run_on_slurm(self.root, arguments, parse_options(options), show)


def parse_options(texts: Sequence[str]) -> dict[str, str]:
    """Parse options of a job, e.g. ``partition=gpu``.

    Raises:
        SpecError: If an option has no ``=``, or is given twice.
    """
    options: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.replace("_", "-")
        if not (name and equals and value) or name in options:
            raise SpecError(
                f"--slurm: expected NAME=VALUE, each name once (got {text!r})",
                hint="e.g. --slurm partition=gpu --slurm gpus_per_node=1 --slurm time=600",
            )
        options[name] = value
    return options


def run_on_slurm(
    root: Path, arguments: Sequence[str], options: dict[str, str], show: Callable[[str], object]
) -> int:
    """Run ``ivhl`` with these arguments on a node; return its exit code.

    The node must mount the file system with the checkout and this Python. An interrupt cancels
    the job; the records written until then are kept.

    Args:
        root: Root of the project; logs go to ``.asv/slurm``.
        arguments: Arguments of ``ivhl``.
        options: Long names of ``sbatch`` options and values; ``true`` sets an option without a
            value, ``false`` leaves an option out.
        show: Called with the job's output as it appears.

    Raises:
        SpecError: If Slurm is not installed here, or rejects the job.
        ResultsError: If the job ends without a result: cancelled, out of time, its node lost.
    """
    name = f"ivhl-{uuid.uuid4().hex[:8]}"
    folder = root / ".asv" / "slurm"
    folder.mkdir(parents=True, exist_ok=True)
    log, ended = folder / f"{name}.log", folder / f"{name}.code"
    command = shlex.join([sys.executable, "-m", "ivhl", *arguments])
    words = [
        *(f"--job-name={name}", f"--chdir={root}", f"--output={log}", "--open-mode=append"),
        f"--wrap={command}; echo $? > {shlex.quote(str(ended))}",
    ]
    with _submitted([*_as_words(_DEFAULTS | options), *words]) as waiting:
        try:
            show(f"job {name}; its output is in {log}\n")
            printed = 0
            while waiting.poll() is None and not ended.exists():
                time.sleep(_POLL_S)
                printed = _print_new(log, printed, show)
        except BaseException:
            subprocess.run(["scancel", f"--name={name}", "--me"], check=False)
            raise
        finally:
            waiting.terminate()  # it would ask for the job once in 32 s
        job, errors = waiting.communicate()
    if not (job or ended.exists()):
        raise SpecError(
            f"Slurm rejected the job: {' | '.join(errors.split(chr(10))[:2])}",
            hint="compare the --slurm options with sinfo, and their names with sbatch --help",
        )
    code = _code(ended)
    _print_new(log, printed, show)
    if code is None or code > _SIGNAL:
        how = (
            "ended without a result" if code is None else f"signal {code - _SIGNAL} ended the run"
        )
        raise ResultsError(
            f"Slurm job {name}: {how}",
            hint="it was cancelled, ran out of time or memory, or lost its node: raise "
            f"--slurm time=... or mem=..., see {log}; the same command again continues where it "
            "stopped",
        )
    return code


def _as_words(options: Mapping[str, str]) -> Iterator[str]:
    for name, value in options.items():
        if value != "false":
            yield f"--{name}" if value == "true" else f"--{name}={value}"


def _submitted(words: Sequence[str]) -> subprocess.Popen[str]:
    """Return an ``sbatch`` that waits for its job.

    With ``--wait`` it asks the controller until the job has ended, also over a restart of the
    controller, and needs no accounting as ``sacct`` does.

    Raises:
        SpecError: If there is none here.
    """
    try:
        return subprocess.Popen(
            ["sbatch", "--wait", "--parsable", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    except FileNotFoundError as error:
        raise SpecError(
            "--executor slurm: no sbatch on PATH",
            hint="run this on a submit host, or leave out --executor",
        ) from error


def _code(path: Path) -> int | None:
    """Return the exit code that the job has written; ``None`` if it did not get so far."""
    ends = time.monotonic() + _GRACE_S
    while time.monotonic() < ends:
        with suppress(OSError, ValueError):
            return int(path.read_text(encoding="ascii"))
        # Listing the folder refreshes the cache of a network file system.
        list(path.parent.iterdir())
        time.sleep(_POLL_S)
    return None


def _print_new(log: Path, printed: int, show: Callable[[str], object]) -> int:
    """Print what is new in the log; return how many of its bytes are printed by now."""
    data = b""
    with suppress(OSError), log.open("rb") as file:  # the job may not have created it yet
        file.seek(printed)
        data = file.read()
    if data:
        show(data.decode("utf-8", "replace"))
    return printed + len(data)
