"""Run ``ivhl bench`` as a job on a Slurm node and wait for it (``--executor slurm``)."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from ivhl.errors import ResultsError, SpecError
from ivhl.measure.process import run_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

# Slurm's states of a job that has not ended.
_LIVES = frozenset(
    {
        *("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING"),
        *("SIGNALING", "STAGE_OUT", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED"),
    }
)
# Exclusive, because other jobs on the node would disturb the timings. The time is in minutes.
_DEFAULTS: dict[str, Any] = {"exclusive": True, "time": 24 * 60}
_POLL_S = 1.0
# Interval of squeue calls: the controller serves the whole cluster.
_ASK_S = 15.0
# How long a network file system may take to show a result that the node has written.
_GRACE_S = 30.0


def measure_here(command: Sequence[str], root: str) -> int:
    """Run a command on the node; return its exit code. Its output goes to the job's log."""
    return run_tree(command, isolated=False, cwd=root).returncode


def parse_options(texts: Sequence[str]) -> dict[str, Any]:
    """Parse options of a job, e.g. ``partition=gpu``; numbers and booleans are converted.

    Raises:
        SpecError: If an option has no ``=``, or is given twice.
    """
    options: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value) or name in options:
            raise SpecError(
                f"--slurm: expected NAME=VALUE, each name once (got {text!r})",
                hint="e.g. --slurm partition=gpu --slurm gpus_per_node=1 --slurm time=600",
            )
        words = {"true": True, "false": False}
        options[name] = int(value) if value.isdecimal() else words.get(value, value)
    return options


def run_on_slurm(
    root: Path, arguments: Sequence[str], options: dict[str, Any], show: Callable[[str], None]
) -> int:
    """Run ``ivhl`` with these arguments on a node; return its exit code.

    The node must mount the file system with the checkout and this Python. An interrupt cancels
    the job; the records written until then are kept.

    Args:
        root: Root of the project; logs go to ``.asv/slurm``.
        arguments: Arguments of ``ivhl``.
        options: See ``parse_options``; the names are submitit's.
        show: Called with the job's output as it appears.

    Raises:
        SpecError: If Slurm or submitit is not installed here, or Slurm rejects the job.
        ResultsError: If the job ends without a result: cancelled, out of time, its node lost.
    """
    job = _submit(root, [sys.executable, "-m", "ivhl", *arguments], options)
    try:
        show(f"job {job.job_id}; its output is in {job.paths.stdout}\n")
        _wait(job, show)
    except KeyboardInterrupt:
        job.cancel(check=False)
        raise
    try:
        code = int(job.result())
    except Exception as error:
        raise ResultsError(
            f"Slurm job {job.job_id} failed before it could measure: {_last_line(error)}",
            hint=f"see {job.paths.stderr}",
        ) from error
    if code < 0:
        raise ResultsError(
            f"Slurm job {job.job_id}: signal {-code} ended the run",
            hint="it was cancelled, or ran out of time or memory: raise --slurm time=... or "
            "mem=...; the same command again continues where it stopped",
        )
    return code


def _wait(job: Any, show: Callable[[str], None]) -> None:  # noqa: ANN401  (submitit's job)
    """Print the job's output until its result exists.

    Raises:
        ResultsError: If the job ended without a result, or Slurm does not answer.
    """
    printed = 0
    ask_at = time.monotonic()
    while not job.paths.result_pickle.exists():
        printed = _print_new(job.paths.stdout, printed, show)
        if time.monotonic() >= ask_at:
            state = _state(job.job_id)
            if state not in _LIVES and not _appears(job.paths.result_pickle):
                _print_new(job.paths.stdout, printed, show)
                ended = state or "Slurm no longer knows it"
                raise ResultsError(
                    f"Slurm job {job.job_id} ended without a result: {ended}",
                    hint=f"see {job.paths.stderr}; the same command again continues where it "
                    "stopped",
                )
            ask_at = time.monotonic() + _ASK_S
        time.sleep(_POLL_S)
    _print_new(job.paths.stdout, printed, show)


def _submit(root: Path, command: Sequence[str], options: dict[str, Any]) -> Any:  # noqa: ANN401  (submitit's job)
    try:
        import submitit  # noqa: PLC0415  (an extra)
    except ImportError as error:
        raise SpecError(
            "--executor slurm: needs submitit, which is not installed",
            hint="python -m pip install -e '.[slurm]'",
        ) from error
    if shutil.which("sbatch") is None:
        raise SpecError(
            "--executor slurm: no sbatch on PATH",
            hint="run this on a submit host, or leave out --executor",
        )
    folder = root / ".asv" / "slurm"
    executor = submitit.SlurmExecutor(folder=folder, python=shlex.quote(sys.executable))
    try:
        executor.update_parameters(job_name="ivhl", **{**_DEFAULTS, **options})
        return executor.submit(measure_here, list(command), str(root))
    except (ValueError, TypeError) as error:
        known = ", ".join(sorted(executor._valid_parameters()))  # noqa: SLF001  (it has no other way)
        raise SpecError(
            f"--slurm: {str(error).splitlines()[0]}",
            hint=f"known options: {known}",
        ) from error
    except submitit.core.utils.FailedJobError as error:
        raise SpecError(
            f"Slurm rejected the job: {_last_line(error)}",
            hint="compare the --slurm options with sinfo",
        ) from error


def _state(job_id: str) -> str:
    """Return the state of a job; empty if Slurm does not know the job, or no longer.

    Calls squeue. submitit calls sacct, which needs accounting, and many clusters have none.

    Raises:
        ResultsError: If squeue fails for 250 s.
    """
    problem = ""
    for wait in (0, 10, 60, 180):  # the controller may be restarting
        time.sleep(wait)
        asked = ["squeue", "--noheader", "--states", "all", "--format", "%T", "--jobs", job_id]
        try:
            done = subprocess.run(
                asked, capture_output=True, text=True, errors="replace", check=False, timeout=120
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            problem = str(error)
            continue
        if done.returncode == 0:
            return done.stdout.strip()
        problem = done.stderr.strip()
        if "Invalid job id" in problem:
            return ""
    raise ResultsError(
        f"squeue cannot show job {job_id}: {problem}",
        hint="the job may still run: check with squeue, and repeat the command when it has ended",
    )


def _appears(path: Path) -> bool:
    ends = time.monotonic() + _GRACE_S
    while not path.exists():
        if time.monotonic() > ends:
            return False
        # Listing the folder refreshes the cache of a network file system.
        list(path.parent.iterdir())
        time.sleep(_POLL_S)
    return True


def _print_new(log: Path, printed: int, show: Callable[[str], None]) -> int:
    """Print what is new in the log; return how many of its bytes are printed by now."""
    try:
        with log.open("rb") as file:
            file.seek(printed)
            data = file.read()
    except OSError:  # the job has not created it yet
        return printed
    if data:
        show(data.decode("utf-8", "replace"))
    return printed + len(data)


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
