"""A run on a node of a Slurm cluster: the same command there, waited for here."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from ivhl.errors import ResultsError, SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

# What Slurm calls a job that is still to end.
_LIVES = frozenset(
    {
        *("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING"),
        *("SIGNALING", "STAGE_OUT", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED"),
    }
)
# Nobody else on the node: another job there would be measured with ours.
_DEFAULTS: dict[str, Any] = {"exclusive": True, "time": 24 * 60}
_POLL_S = 1.0
# Between questions to Slurm's controller, which has others to answer.
_ASK_S = 15.0
# For a result that was written on a node to be seen here, through a network's file system.
_GRACE_S = 30.0


def measure_here(command: Sequence[str], root: str) -> int:
    """Run a command on the node and return its exit code; what it says goes to the job's log."""
    return subprocess.run(command, cwd=root, check=False).returncode


def parse_options(texts: Sequence[str]) -> dict[str, Any]:
    """Return options of a job, e.g. ``partition=gpu``, numbers as such.

    Raises:
        SpecError: If one has no ``=``, or is given twice.
    """
    options: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value) or name in options:
            raise SpecError(
                f"--slurm: must be NAME=VALUE, each name once (got {text!r})",
                hint="e.g. --slurm partition=gpu --slurm gpus_per_node=1 --slurm time=600",
            )
        words = {"true": True, "false": False}
        options[name] = int(value) if value.isdecimal() else words.get(value, value)
    return options


def run_on_slurm(
    root: Path, arguments: Sequence[str], options: dict[str, Any], say: Callable[[str], None]
) -> int:
    """Run ``ivhl`` with these arguments on a node, and return its exit code.

    The checkout and this Python must be on a file system that the node has too. Interrupting it
    cancels the job; whatever was measured until then is kept, as it is without Slurm.

    Args:
        root: Of the project; logs are in ``.asv/slurm``.
        arguments: Of ``ivhl``.
        options: See ``parse_options``; the names are those of submitit.
        say: Gets what the job prints, as it comes.

    Raises:
        SpecError: If there is no Slurm or no submitit here, or Slurm does not take the job.
        ResultsError: If the job ends without an answer: cancelled, out of time, its node lost.
    """
    job = _submit(root, [sys.executable, "-m", "ivhl", *arguments], options)
    try:
        say(f"job {job.job_id}; its output is in {job.paths.stdout}\n")
        _wait(job, say)
    except KeyboardInterrupt:
        job.cancel(check=False)
        raise
    try:
        code = int(job.result())
    except Exception as error:
        raise ResultsError(
            f"Slurm's job {job.job_id} failed before it could measure: {_last_line(error)}",
            hint=f"see {job.paths.stderr}",
        ) from error
    if code < 0:
        raise ResultsError(
            f"Slurm's job {job.job_id}: the run was ended by signal {-code}",
            hint="it was cancelled, or out of time or memory: see --slurm time=... and mem=...; the "
            "same command again goes on where it stopped",
        )
    return code


def _wait(job: Any, say: Callable[[str], None]) -> None:  # noqa: ANN401  (submitit's job)
    """Say what the job prints until its result is there.

    Raises:
        ResultsError: If there will be none, or Slurm cannot be asked.
    """
    told = 0
    ask_at = time.monotonic()
    while not job.paths.result_pickle.exists():
        told = _tell(job.paths.stdout, told, say)
        if time.monotonic() >= ask_at:
            state = _state(job.job_id)
            if state not in _LIVES and not _comes(job.paths.result_pickle):
                _tell(job.paths.stdout, told, say)
                raise ResultsError(
                    f"Slurm's job {job.job_id} ended without an answer: {state or 'unknown to it'}",
                    hint=f"see {job.paths.stderr}; the same command again goes on where it stopped",
                )
            ask_at = time.monotonic() + _ASK_S
        time.sleep(_POLL_S)
    _tell(job.paths.stdout, told, say)


def _submit(root: Path, command: Sequence[str], options: dict[str, Any]) -> Any:  # noqa: ANN401  (submitit's job)
    try:
        import submitit  # noqa: PLC0415  (an extra)
    except ImportError as error:
        raise SpecError(
            "--executor slurm needs submitit, which is not installed",
            hint="python -m pip install -e '.[slurm]'",
        ) from error
    if shutil.which("sbatch") is None:
        raise SpecError(
            "--executor slurm: there is no sbatch on PATH",
            hint="run this where jobs are submitted, or leave --executor away",
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
            hint=f"known: {known}",
        ) from error
    except submitit.core.utils.FailedJobError as error:
        raise SpecError(
            f"Slurm does not take the job: {_last_line(error)}",
            hint="see sinfo, and the --slurm options given",
        ) from error


def _state(job_id: str) -> str:
    """Return the state of a job, empty when Slurm does not know it (any more).

    Not through sacct, which submitit asks: many clusters keep no accounts.

    Raises:
        ResultsError: If Slurm cannot be asked for several minutes.
    """
    told = ""
    for wait in (0, 10, 60, 180):  # a controller that is being restarted
        time.sleep(wait)
        asked = ["squeue", "--noheader", "--states", "all", "--format", "%T", "--jobs", job_id]
        try:
            done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=120)
        except (OSError, subprocess.TimeoutExpired) as error:
            told = str(error)
            continue
        if done.returncode == 0:
            return done.stdout.strip()
        told = done.stderr.strip()
        if "Invalid job id" in told:
            return ""
    raise ResultsError(
        f"Slurm cannot be asked for job {job_id}: {told}",
        hint="the job may still run: see squeue, and run the same command again when it has ended",
    )


def _comes(path: Path) -> bool:
    ends = time.monotonic() + _GRACE_S
    while not path.exists():
        if time.monotonic() > ends:
            return False
        # A listing makes a network's file system look again.
        list(path.parent.iterdir())
        time.sleep(_POLL_S)
    return True


def _tell(log: Path, told: int, say: Callable[[str], None]) -> int:
    """Say what is new in the log, and return how many bytes of it are told."""
    try:
        with log.open("rb") as file:
            file.seek(told)
            data = file.read()
    except OSError:  # not there yet
        return told
    if data:
        say(data.decode("utf-8", "replace"))
    return told + len(data)


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
