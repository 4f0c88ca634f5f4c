"""Run one case by one stage or setting of the compiler after another, for ``ivhl blame``.

``python -m ivhl.measure.stages JOB TRIALS`` in a cell. A process that has used the compiler forks
one for each trial, which goes the way of a case (``ivhl.measure.case``) with another backend or
setting, and writes a journal of its own: a trial that crashes or hangs ends alone, and sets nothing
for the next one.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from ivhl.measure.case import Measurement, class_of
from ivhl.measure.failures import reported
from ivhl.measure.first_compile import use_compiler
from ivhl.measure.flags import Flag, NoSuchFlagError, set_flag
from ivhl.measure.imports import import_torch
from ivhl.measure.job import case_of, read_job
from ivhl.measure.journal import Journal
from ivhl.measure.paths import folders_here, without_folders
from ivhl.measure.supervisor import adopt_orphans, end_descendants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ivhl.measure.eager import Begun
    from ivhl.measure.imports import Setup
    from ivhl.measure.job import Job
    from ivhl.records.record import Phase
    from ivhl.workload import Case

# What a trial does beside compiling and judging.
Task = Literal["judge", "bisect", "reduce"]
POLL_S = 0.05
# PyTorch's log of the kernels that it generates, and its logger.
_KERNELS, _KERNEL_LOGGER = "kernel_code", "torch._inductor.async_compile.__kernel_code"


@dataclass(frozen=True, kw_only=True, slots=True)
class StageTrial:
    """One way to compile the case.

    Attributes:
        name: Names it in the answers, and its journal.
        backend: Backend of ``torch.compile``.
        module: Module of a setting, e.g. ``torch._inductor.config``; empty for none.
        field: Its name in the module, e.g. ``cpp.simdlen``.
        value: Its value.
        dynamic: Replaces the variant's ``dynamic``; ``"as declared"`` does not.
        fullgraph: Replaces the variant's ``fullgraph``; ``None`` does not.
        threads: CPU threads; 0 for those of the job.
        task: What is done.
        read: Whether the journal gets the generated kernels.
        symptom: Failure class that the trial asks for, where it must know.
    """

    name: str
    backend: str = "inductor"
    module: str = ""
    field: str = ""
    value: Any = None
    dynamic: bool | Literal["as declared"] | None = "as declared"
    fullgraph: bool | None = None
    threads: int = 0
    task: Task = "judge"
    read: bool = False
    symptom: str = ""


class NotHereError(Exception):
    """This release lacks a setting."""


def main(argv: list[str]) -> int:
    """Run the trials of the file ``argv[2]``, one after the other."""
    job = read_job(argv[1])
    adopt_orphans()
    trials = [StageTrial(**one) for one in json.loads(Path(argv[2]).read_text(encoding="utf-8"))]
    with suppress(Exception):  # each trial meets it again, and says so
        import_module("torch._inductor.compile_fx")
        use_compiler(device=job.effort.device)
    fork = job.effort.device == "cpu"  # CUDA does not survive a fork
    folder = Path(job.journal)
    for trial in trials:
        mine = replace(job, journal=str(folder / f"{trial.name}.jsonl"))
        began = time.monotonic()
        forget_bisection()
        pid = os.fork() if fork else _spawn(argv, trial)
        if pid == 0:
            run_trial(mine, trial, folder / f"{trial.name}.txt")
        status = _wait(pid, began + job.effort.deadline_s)
        end_descendants()
        with (folder / "ended.jsonl").open("a", encoding="utf-8") as ended:
            seconds = time.monotonic() - began
            line = {"name": trial.name, "status": status, "seconds": seconds}
            ended.write(json.dumps(line) + "\n")
    return 0


def forget_bisection() -> None:
    """Remove what a killed bisector left in the compiler's cache: each compilation obeys it."""
    with suppress(ImportError):
        bisector = import_module("torch._inductor.compiler_bisector").CompilerBisector
        shutil.rmtree(bisector.get_dir(), ignore_errors=True)


def _spawn(argv: list[str], trial: StageTrial) -> int:
    path = Path(argv[2]).with_name(f"{trial.name}.trial.json")
    path.write_text(json.dumps(asdict(trial)), encoding="utf-8")
    words = [sys.executable, "-m", "ivhl.measure.stages", "--one", argv[1], str(path)]
    return subprocess.Popen(words).pid


def _one(argv: list[str]) -> NoReturn:
    """Run one trial in this process: ``--one JOB FILE``."""
    job, path = read_job(argv[2]), Path(argv[3])
    trial = StageTrial(**json.loads(path.read_text(encoding="utf-8")))
    folder = Path(job.journal)
    mine = replace(job, journal=str(folder / f"{trial.name}.jsonl"))
    run_trial(mine, trial, folder / f"{trial.name}.txt")


def _wait(pid: int, until: float) -> int | None:
    """Return the exit status of a process; ``None`` if it was killed at its deadline."""
    while time.monotonic() < until:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(POLL_S)
    with suppress(ProcessLookupError):
        os.kill(pid, 9)
    os.waitpid(pid, 0)
    return None


def run_trial(job: Job, trial: StageTrial, output: Path) -> NoReturn:
    """Run one trial in this process, write its journal, and end the process."""
    sink = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for stream in (1, 2):
        os.dup2(sink, stream)
    journal = Journal(Path(job.journal))
    # Before the project runs, which may leave this folder.
    folders = folders_of_trials()
    try:
        case = case_of(job)
        set_up(trial)
        if trial.threads:
            job = replace(job, effort=replace(job.effort, threads=trial.threads))
        Staged(job, case, journal, trial).run()
    except NotHereError as error:
        journal.note(not_here=str(error))
    except Exception as error:  # noqa: BLE001  (every exception is an answer)
        journal.note(failure=failure_of(error, journal.phase, job, folders))
    journal.note(done=True)
    journal.close()
    os._exit(0)


def folders_of_trials() -> dict[str, str]:
    """Return the folders that texts of a trial may name, as ``folders_here``: reports are posted."""
    project_path = os.environ.get("PYTHONPATH", "").split(os.pathsep)[-1]
    return folders_here(str(Path.cwd()), project_path)


def failure_of(
    error: Exception, phase: Phase, job: Job, folders: Mapping[str, str]
) -> dict[str, str]:
    """Return the failure of a trial as its journal keeps it, without the folders of this machine."""
    found = reported(error, class_of(error, phase, job), phase)
    return {name: without_folders(text, folders) for name, text in found.items()}


def set_up(trial: StageTrial) -> None:
    """Set what the trial sets.

    Raises:
        NotHereError: If this release has no such setting.
    """
    if not trial.module:
        return
    try:
        before = set_flag(Flag(trial.module, trial.field, trial.value))
    except NoSuchFlagError as error:
        raise NotHereError(str(error)) from error
    if before == trial.value:
        raise NotHereError(f"{trial.module}.{trial.field} is {trial.value!r} already")


class Staged(Measurement):
    """The phases of a case with another backend."""

    def __init__(self, job: Job, case: Case, journal: Journal, trial: StageTrial) -> None:
        super().__init__(job, case, journal)
        self._trial = trial
        self.graphs: list[tuple[Any, list[Any]]] = []

    def _go(self) -> None:
        if self._trial.task == "judge":
            with heard(self.journal) if self._trial.read else nullcontext():
                super()._go()
            return
        from ivhl.measure.eager import run_source  # noqa: PLC0415  (imports torch)

        begun = self._begin(import_torch(self.job, self.case, self.journal))
        run_source(begun)
        if self._trial.task == "bisect":
            self._bisect(begun)
        else:
            self._reduce(begun)

    def _compiler(self, setup: Setup) -> Callable[..., Any]:
        trial, variant = self._trial, self.case.variant
        if trial.task == "reduce":
            keep_graph = partial(self._keep_graph, setup.torch.Tensor)
            return lambda function: setup.torch.compile(
                function, backend=keep_graph, dynamic=self._dynamic
            )
        whole = variant.fullgraph if trial.fullgraph is None else trial.fullgraph
        arguments: dict[str, Any] = {"dynamic": self._dynamic, "fullgraph": whole}
        if trial.backend == "inductor" and variant.mode != "default":
            arguments["mode"] = variant.mode
        return lambda function: setup.torch.compile(function, backend=trial.backend, **arguments)

    @property
    def _dynamic(self) -> bool | None:
        asked = self._trial.dynamic
        return self.case.variant.dynamic if asked == "as declared" else asked

    def _keep_graph(self, tensor: Any, graph: Any, inputs: list[Any]) -> Callable[..., Any]:  # noqa: ANN401
        """Keep a graph with the inputs of its first call; those of now may be no real tensors."""
        del inputs
        seen: list[Any] = []

        def call(*given: Any) -> Any:  # noqa: ANN401  (a graph's outputs)
            if not seen:
                copied = [
                    one.detach().clone().requires_grad_(one.requires_grad)
                    if isinstance(one, tensor)
                    else one
                    for one in given
                ]
                seen.append(copied)
                self.graphs.append((graph, copied))
            return graph.forward(*given)

        return call

    def _bisect(self, begun: Begun) -> None:
        """Let PyTorch find the pass or lowering that makes the symptom."""
        from ivhl.measure.compilation import Compilation  # noqa: PLC0415  (imports torch)

        try:
            module = import_module("torch._inductor.compiler_bisector")
        except ImportError as error:
            raise NotHereError("this release has no compiler_bisector") from error

        def is_good() -> bool:
            try:
                Compilation(begun, self._compiler(begun.setup)).run()
            except Exception as error:  # noqa: BLE001  (the symptom is one)
                return class_of(error, self.journal.phase, self.job) != self._trial.symptom
            return True

        found = module.CompilerBisector.do_bisect(is_good)
        if found is not None:
            self.journal.note(
                bisected={
                    "backend": found.backend,
                    "subsystem": found.subsystem,
                    "number": found.bisect_number,
                    "about": str(found.debug_info or "")[:600],
                }
            )

    def _reduce(self, begun: Begun) -> None:
        """Keep the graphs that Dynamo makes, and write the smallest script that shows it."""
        from ivhl.measure.reduction import write_script  # noqa: PLC0415  (imports torch)

        folder = Path(self.job.journal).with_suffix("")
        folder.mkdir(exist_ok=True)
        with suppress(Exception):  # what breaks later has left its graphs
            setup, data, subject = begun.setup, begun.data, begun.functions.subject
            setup.torch._dynamo.reset()  # noqa: SLF001
            data.use(0)
            held = subject.variant_copy()
            arm = subject.variant_arm(self._compiler(setup), data.variant_inputs, held)
            data.detached(arm())
        self.journal.note(
            **write_script(
                self.graphs,
                folder / "repro.py",
                backend=self._trial.backend,
                dynamic=self._dynamic,
                symptom=self._trial.symptom,
                threads=self.job.effort.threads,
            )
        )


@contextmanager
def heard(journal: Journal) -> Iterator[None]:
    """Note the kernels that PyTorch prints meanwhile."""
    import torch  # noqa: PLC0415

    found: list[str] = []
    # 2.2.2 has no kernel_code, and refuses a log that it does not have.
    known = torch._logging._internal.log_registry.artifact_names  # noqa: SLF001
    ours = {_KERNELS: True} if _KERNELS in known else {}
    set_logs = torch._logging.set_logs  # noqa: SLF001

    def with_ours(**logs: Any) -> None:  # noqa: ANN401  (each call replaces what others have set)
        set_logs(**ours | logs)

    torch._logging.set_logs = with_ours  # noqa: SLF001
    with_ours()
    logging.getLogger(_KERNEL_LOGGER).addHandler(_IntoTexts(found))
    try:
        yield
    finally:
        journal.note(kernels=found)


class _IntoTexts(logging.Handler):
    def __init__(self, texts: list[str]) -> None:
        super().__init__()
        self._texts = texts

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the text."""
        self._texts.append(re.sub(r"\x1b\[[0-9;]*m", "", record.getMessage()))


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        _one(sys.argv)
    sys.exit(main(sys.argv))
