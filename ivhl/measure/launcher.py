"""Start the processes of cases, and read their journals, their output and how they ended."""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

from ivhl.machine.memory import memory_limit
from ivhl.measure.failures import failed
from ivhl.measure.job import Job
from ivhl.measure.process import Ending, Nursery, NurseryError, beginning, run_limited, tail
from ivhl.records.record import Failure, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ivhl.measure.effort import Effort
    from ivhl.measure.run import Run
    from ivhl.records.record import FailureClass
    from ivhl.workload import Case

# A child's findings, its failure if it failed, and its duration in seconds.
Stage = tuple[dict[str, Any], "Failure | None", float]
# glibc returns large blocks to the kernel above a threshold that it raises when a process frees
# memory; the same eager code then takes 0.5 or 2 ms. These are the values that it would reach.
ALLOCATOR = "glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=67108864"
PHASES: Final = get_args(Phase)
# Of a journal; those of models with hundreds of outputs have less than one MiB.
LONGEST_JOURNAL: Final = 64 << 20
# Findings that the parent takes apart before there is a record.
_KINDS: Final[dict[str, type]] = {
    **dict.fromkeys(("failure", "compile", "calibration"), dict),
    **dict.fromkeys(("eager", "eager_again", "formulation_eager", "compiled"), dict),
    "warnings": list,
}
# Variables that a cell inherits from the caller. Others could change the measurement (OMP_*, TORCH*,
# LD_PRELOAD, ...) and are dropped; of PYTHON*, only PYTHONPATH is kept.
KEPT_VARIABLES = (
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "CC",
    "CXX",
    "CUDA_HOME",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "LD_LIBRARY_PATH",
)


class Launcher:
    """Starts the processes of cases: forked from a nursery, which has used the compiler, or new.

    Args:
        effort: How they are measured.
        environment: The whole environment of a nursery.
        folder: Where the nursery's output and caches go.
        cache: Inductor's cache that the nursery uses. Several may share one; Inductor has locks for
            that. ``None`` means one of its own.
        python: Python of the cell, with what it is run by.
        module: Runs a job.
    """

    def __init__(
        self,
        effort: Effort,
        environment: dict[str, str],
        folder: Path,
        cache: Path | None = None,
        *,
        python: Sequence[str] = (sys.executable,),
        module: str = "ivhl.measure.case",
    ) -> None:
        self._effort, self._environment = effort, environment
        self._folder = folder
        self._python, self._module = python, module
        self.cache = cache or folder / "inductor"
        self.may_fork = sys.platform == "linux"
        self._nursery: Nursery | None = None
        self._starting = threading.Lock()
        self._closed = False

    def launch(
        self,
        job: Job,
        *,
        environment: dict[str, str],
        output: Path,
        deadline_s: float,
        folder: Path | None = None,
    ) -> Ending:
        """Run one process of a case, in a folder if one is given, and return how it ended."""
        nursery = self.start()
        run: Callable[..., Ending] = run_limited if nursery is None else nursery.run
        words = [*self._python, "-m"] if nursery is None else []
        try:
            return run(
                [*words, self._module, json.dumps(asdict(job))],
                environment=environment,
                output=output,
                deadline_s=deadline_s,
                memory_limit=self._effort.memory_limit or memory_limit(),
                folder=folder,
            )
        except NurseryError:
            # The nursery was killed, and its child with it. A retry in the same folder would find
            # the caches filled.
            self.restart()
            return Ending(how="signal", code=signal.SIGKILL, seconds=0.0, peak_bytes=0)

    def start(self) -> Nursery | None:
        """Return the nursery, started if necessary; ``None`` if it cannot run here."""
        with self._starting:
            if self.may_fork and (self._nursery is None or self._nursery.is_closed):
                self._start()
            return self._nursery

    def _start(self) -> None:
        # It is not to start Inductor's worker processes while it imports.
        environment = self._environment | {
            "TORCHINDUCTOR_CACHE_DIR": str(self.cache),
            "TORCH_WARM_POOL": "0",
            # Asks NVML for the number of GPUs, and not the driver, which does not survive a fork.
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        }
        self._folder.mkdir(exist_ok=True)
        nursery = Nursery(
            self._python,
            self._module,
            environment=environment,
            output=self._folder / "nursery.txt",
            device=self._effort.device,
        )
        self._nursery = nursery  # before it is ready, so that it can be closed
        if self._closed:
            nursery.close()
        try:
            nursery.wait()
        except NurseryError:
            nursery.close()
            self._nursery = None
            self.may_fork = False

    def restart(self) -> None:
        """End the nursery; the next case starts a new one."""
        if self._nursery is not None:
            self._nursery.close()
            self._nursery = None

    def close(self) -> None:
        """End the nursery, including one that is still starting."""
        self._closed = True
        self.restart()


def launcher_of(run: Run, folder: Path, cache: Path | None = None) -> Launcher:
    """Return what starts the processes of a run's cases; see ``Launcher``."""
    return Launcher(run.effort, case_environment(run, folder), folder, cache)


def run_stage(
    run: Run,
    case: Case,
    folder: Path,
    stage: str,
    launcher: Launcher,
    *,
    process: int = 0,
    turns: Path | None = None,
    taking: int = 1,
) -> Stage:
    """Run one child; return its findings, its failure if it failed, and its seconds.

    ``taking`` is the number of processes that take these ``turns``.
    """
    # A process that waits for its turn needs the time of the others as well.
    deadline_s = run.effort.deadline_s * taking
    name = f"{stage}-{process}"
    job = Job(
        project=run.project,
        workloads=run.workloads,
        workload=case.workload.name,
        size=case.size,
        variant=case.variant.name,
        effort=run.effort,
        stage=stage,
        process=process,
        journal="",
        references=str(folder / "references.pt"),
        turns=str(turns or ""),
        mode=case.mode,
        version=case.workload.version,
        seed=secrets.randbits(62),
        secret=secrets.randbits(62),
    )
    try:
        # New files, whose names the code of an earlier process could not know: a repeated process
        # must not inherit findings, and to open somebody's pipe would wait for ever.
        journal, output = (_new_file(folder, name, ending) for ending in (".jsonl", ".txt"))
    except (FileNotFoundError, NotADirectoryError) as error:
        why = f"an earlier process of the case removed {error.filename}"
        return {}, failed("import", "crash", why), 0.0
    job = replace(job, journal=str(journal))
    began = time.monotonic()
    ending = launcher.launch(
        job, environment=case_environment(run, folder), output=output, deadline_s=deadline_s
    )
    seconds = time.monotonic() - began
    phase, findings = read_journal(journal)
    phase_s = findings.setdefault("phase_s", {})
    phase_s["start"] = max(0.0, seconds - sum(phase_s.values()))
    return findings, failure_of(phase, findings, ending, output), seconds


def case_environment(run: Run, folder: Path) -> dict[str, str]:
    """Return the environment of a child: few inherited variables, and caches of its own.

    Each case needs its own cache folder: Inductor's FX graph cache ignores the number of threads,
    and a cache filled by another case would make a cold compile warm.
    """
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    threads = str(run.effort.threads)
    return kept | {
        # First the folder of this code: the child must import the same harness.
        "PYTHONPATH": os.pathsep.join(
            filter(
                None,
                (str(Path(__file__).parents[2]), run.project_path, os.environ.get("PYTHONPATH")),
            )
        ),
        "PYTHONUNBUFFERED": "1",
        "PYTHONHASHSEED": "0",
        "GLIBC_TUNABLES": ALLOCATOR,
        # Read by ivhl.compile of the commit under test, so that eager code stays eager.
        "IVHL_MEASURING": "1",
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "IVHL_PACKAGES": str(folder / "packages"),
        # Cases compile in parallel; Inductor's own workers would compete with them.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TRITON_CACHE_DIR": str(folder / "triton"),
        # A shared remote cache would make cold compiles warm.
        "TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE": "0",
    }


def _new_file(folder: Path, name: str, ending: str) -> Path:
    number, path = tempfile.mkstemp(prefix=f"{name}-", suffix=ending, dir=folder)
    os.close(number)
    return Path(path)


def read_journal(path: Path) -> tuple[Phase, dict[str, Any]]:
    """Return the last phase that the child entered, and its findings.

    Skips a last line that was cut off when the child was killed, and what is no finding: the code
    under test runs in the child and can write there, too.
    """
    phase: Phase = "import"
    findings: dict[str, Any] = {}
    for line in beginning(path, LONGEST_JOURNAL).decode("utf-8", "replace").splitlines():
        with suppress(ValueError, RecursionError):
            data = json.loads(line)
            if not isinstance(data, dict):
                continue
            if data.get("phase") in PHASES:
                phase = data["phase"]
            found = data.get("findings")
            if isinstance(found, dict):
                findings |= {name: one for name, one in found.items() if _is_finding(name, one)}
    return phase, findings


def _is_finding(name: str, value: object) -> bool:
    """Return whether a finding has the type that the parent relies on; the record checks all."""
    if name == "phase_s":
        return isinstance(value, dict) and all(
            type(seconds) in (int, float) for seconds in value.values()
        )
    return isinstance(value, _KINDS.get(name, object))


def failure_of(
    phase: Phase, findings: dict[str, Any], ending: Ending, output: Path
) -> Failure | None:
    """Return why the case failed, or ``None`` if it did not."""
    text = tail(output)
    if reported := findings.get("failure"):
        with suppress(TypeError):  # the code under test wrote it
            return Failure(**reported, output_tail=text)
    if findings.get("done") and ending.how == "exit" and ending.code == 0:
        return None
    failure_class: FailureClass = "crash"
    exception = ""
    if ending.how == "deadline":
        failure_class = "timeout"
        message = f"still in phase {phase} after {ending.seconds:.0f} s"
        message += f", {ending.cpu_s:.0f} s of them on a CPU"  # a busy machine is no hang
    elif ending.how == "memory":
        failure_class = "out_of_memory"
        message = f"killed at {ending.peak_bytes / 2**30:.1f} GiB of resident memory"
    elif ending.how == "signal":
        exception = ending.signal_name
        message = f"ended by {exception} in phase {phase}"
        if exception == "SIGKILL":
            message += " (from outside: by a person, or by the kernel for lack of memory)"
    else:
        exception = "SystemExit"
        message = (
            f"exited with status {ending.code} in phase {phase} without a result: os._exit, or code "
            "outside of Python, ended the process"
        )
    return failed(phase, failure_class, message, exception=exception, output_tail=text)
