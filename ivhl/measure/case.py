"""One process of a case: compiles it or times it, and writes each finding to its journal.

The journal gets a line of JSON per finding as soon as it is known, so that a crash, a hang or a
kill loses only what was not yet measured. ``runner`` makes the record from the journals.
"""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

# Imported before any project code, which could replace the clocks.
from ivhl.measure.failures import (
    CaseError,
    classify,
    exit_error,
    lacks,
    message_of,
    reported,
)
from ivhl.measure.first_compile import use_compiler
from ivhl.measure.imports import import_torch, import_workload
from ivhl.measure.job import Job, case_of, read_job
from ivhl.measure.journal import Journal
from ivhl.measure.supervisor import adopt_orphans
from ivhl.measure.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ivhl.measure.compilation import VariantArm
    from ivhl.measure.eager import Begun
    from ivhl.measure.imports import Setup
    from ivhl.measure.rounds import EagerBefore
    from ivhl.records.record import FailureClass, Phase
    from ivhl.workload import Case


def main(argv: list[str]) -> NoReturn:
    """Measure the case that ``argv[1]`` describes; exit with 0 even if the case fails."""
    job = read_job(argv[1])
    # PyTorch's bytecode is that of the first compile (``ivhl.measure.shared``).
    sys.dont_write_bytecode = job.stage == "import"
    adopt_orphans()  # before any code of the project runs: it can start processes, too
    journal = Journal(Path(job.journal))
    seen: Counter[str] = Counter()

    def keep(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        text = " ".join(str(message).split())[:400]
        seen[f"{category.__name__}: {text}"] += 1

    warnings.showwarning = keep
    journal.enter("import")
    case = None
    try:
        case = case_of(job)
        refuse_other_version(case, job)
        Measurement(job, case, journal).run()
    except Exception as error:  # noqa: BLE001  (every exception is a result of the case)
        failed = class_of(error, journal.phase, job)
        journal.note(failure=reported(error, failed, journal.phase))
    if case is not None and job.stage in ("compile", "import"):  # every function of it has run
        journal.note(**sources_of(case, job))
    journal.note(
        warnings=[{"text": t, "count": n} for t, n in seen.most_common(50)],
        done=True,
    )
    journal.close()
    sys.stdout.flush()
    sys.stderr.flush()
    # All findings are on disk. A normal exit takes 2.6 s in a process that has compiled, and a crash
    # in a destructor does not belong to the measurement.
    os._exit(0)


class Measurement:
    """The phases of one process of a case, in order."""

    def __init__(self, job: Job, case: Case, journal: Journal) -> None:
        self.job = job
        self.case = case
        self.journal = journal
        self._turns = Turns(job.turns)

    def run(self) -> None:
        """Go through the phases of the job's stage; raises whatever a phase raises."""
        try:
            self._go()
        except SystemExit as error:  # it would end the process without a result
            raise exit_error(error, self.journal.phase) from error

    def _go(self) -> None:
        setup = import_torch(self.job, self.case, self.journal)
        if self.job.stage == "seed":
            self.journal.enter("compile")
            use_compiler(device=self.job.effort.device)
            return
        if self.job.stage == "import":
            import_workload(setup)
            return
        begun = self._begin(setup, warn=True)
        if self.job.stage == "eager":
            self._time_eager(begun, "eager", "eager_again")
            return
        timed, earlier = self.job.effort.is_timed, None
        if timed and self.job.stage != "compile":
            earlier = self._time_eager(begun, "eager_before")
        from ivhl.measure.eager import refuse_work_beside_the_call, run_source  # noqa: PLC0415

        source = run_source(begun)
        refuse_work_beside_the_call(begun, source)
        # Not earlier: eager is timed first, without what only compiling needs.
        from ivhl.measure.compilation import Compilation  # noqa: PLC0415

        variant = Compilation(begun, self._compiler(setup)).run()
        if self.job.stage == "size":
            return
        if earlier is not None or not timed:
            self._time(begun, earlier, source, variant)
        if not timed:
            self._call_at_another_size()

    def _call_at_another_size(self) -> None:
        """Warn if code that need not be static is not right at another declared size, too.

        No verdict: there the case is another.
        """
        sizes = [size for size in self.case.workload.sizes if size != self.case.size]
        if not sizes or self.case.variant.dynamic is False:
            return
        beside = self.job.references and f"{self.job.references}.size"
        job = replace(self.job, stage="size", size=sizes[0], references=beside)
        case, journal = replace(self.case, size=sizes[0]), Journal(Path(os.devnull))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                Measurement(job, case, journal).run()
        except Exception as error:  # noqa: BLE001  (whatever the code under test raises)
            found = f"{class_of(error, journal.phase, job)}: {message_of(error)}"
            warnings.warn(f"ivhl: then, at size {sizes[0]}, {found}", stacklevel=1)

    def _begin(self, setup: Setup, *, warn: bool = False) -> Begun:
        """Import the workload, make its inputs, and judge eager.

        Args:
            setup: The process.
            warn: Whether to warn if importing or making inputs changes the process.
        """
        from ivhl.measure.anchors import (  # noqa: PLC0415  (imports torch)
            Anchors,
            run_reference,
            typical_outputs,
            warn_of_rounded_references,
        )
        from ivhl.measure.data import Data  # noqa: PLC0415
        from ivhl.measure.eager import Begun, run_eager, try_eager  # noqa: PLC0415
        from ivhl.measure.judge import OutputJudge  # noqa: PLC0415
        from ivhl.measure.state import snapshot, warn_of_changes  # noqa: PLC0415

        before = snapshot() if warn else {}
        functions = import_workload(setup)
        data, subject, exact = Data(setup, functions), functions.subject, functions.exact
        self.journal.enter("eager")
        subject.warm_up(data.draws[0])
        call = subject.eager_arm(data.inputs)
        if warn:
            warn_of_changes(before)
        allowed = try_eager(data, subject, call)
        references, moves = run_reference(setup, exact, data.draws)
        warn_of_rounded_references(setup, references)
        typical = typical_outputs(references, moves)
        anchors = Anchors(setup, exact, typical)
        eager = run_eager(
            setup, data, subject, call, references=references, judge=anchors, allowed=allowed
        )
        return Begun(
            setup=setup,
            functions=functions,
            data=data,
            eager=eager,
            anchors=anchors,
            judge=OutputJudge(setup, exact, typical),
        )

    def _compiler(self, setup: Setup) -> Callable[..., Any]:
        """Return ``torch.compile`` with the settings of the variant."""
        from ivhl.measure.compilation import torch_compiler  # noqa: PLC0415  (imports torch)

        return torch_compiler(setup)

    def _time_eager(self, begun: Begun, *names: str) -> EagerBefore:
        """Time eager briefly, before the variant has run."""
        from ivhl.measure.rounds import time_eager  # noqa: PLC0415  (imports torch)

        self.journal.enter("eager")
        with self._alone():
            return time_eager(begun.setup, begun.eager.call, *names)

    def _time(
        self,
        begun: Begun,
        earlier: EagerBefore | None,
        source: Callable[[], Any],
        variant: VariantArm,
    ) -> None:
        """Time all arms, and what follows from that; without ``earlier``, for a verdict alone."""
        from ivhl.measure.footprint import measure_memory  # noqa: PLC0415  (imports torch)
        from ivhl.measure.fresh import FreshCalls  # noqa: PLC0415
        from ivhl.measure.rounds import compare_with_eager_before, time_variant  # noqa: PLC0415

        with self._alone():
            times, calibrations = time_variant(begun, source, variant)
            if earlier is not None:
                compare_with_eager_before(
                    self.journal, earlier, times["eager"].samples_s, calibrations
                )
            FreshCalls(begun, source, variant, times).call()
        if self.job.process == 0 and earlier is not None:
            measure_memory(begun.setup, begun.eager.call, variant.compiled.call)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Time alone on the machine, while the case's other processes wait."""
        self.journal.book(self.journal.phase)
        self._turns.take()
        self.journal.book("waiting")
        yield
        self.journal.book(self.journal.phase)
        self._turns.share()
        self.journal.book("waiting")


def class_of(error: Exception, phase: Phase, job: Job) -> FailureClass:
    """Return the failure class of the exception that ended the case."""
    if isinstance(error, CaseError):
        return error.failure_class
    package = sys.modules.get(job.workloads)
    if package is not None and package.__file__ is not None:  # a folder of benchmarks
        from ivhl.measure.sources import is_of_project  # noqa: PLC0415  (only where one fails)

        def is_theirs(top: str) -> bool:
            return top != job.workloads and is_of_project(top, job.workloads, job.project)

        if lacks(error, is_theirs, Path(package.__file__).parent):
            return "absent"
    return classify(error, phase)


def refuse_other_version(case: Case, job: Job) -> None:
    """Refuse a workload that this commit declares otherwise than the one that is asked for.

    Raises:
        CaseError: If its version is another one.
    """
    version = case.workload.version
    if job.version not in (None, version):
        message = f"{job.workload}: this commit has version {version}, not {job.version}"
        raise CaseError("absent", message)


def sources_of(case: Case, job: Job) -> dict[str, str | None]:
    """Return the hashes of the sources that the case reaches; empty, with a warning, on errors."""
    from ivhl.measure.sources import reached_sources  # noqa: PLC0415  (only once per case)

    gc.disable()  # each collection would traverse all objects of torch
    try:
        found = reached_sources(case, job.workloads, job.project)
    except Exception as error:  # noqa: BLE001  (the project's sources may hold anything)
        warnings.warn(f"ivhl: sources were not hashed: {error}", stacklevel=1)
        return {}
    return {"sources": found.project, "benchmark": found.benchmark}


if __name__ == "__main__":
    main(sys.argv)
