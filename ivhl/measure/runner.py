"""The parent process: runs the processes of each case and writes its record, even if they crash.

Never imports torch, so that a crash in torch cannot end the run.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ivhl.machine.stability import observe_stability
from ivhl.measure import cache
from ivhl.measure.earlier import (
    case_key,
    expected_compile_s,
    is_answered,
    records_of_other_commits,
    same_subject,
)
from ivhl.measure.lanes import CompiledCase, Lanes, compile_case, make_seed
from ivhl.measure.outcome import checked_record
from ivhl.records.answers import newest_keys
from ivhl.records.files import append_line, append_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ivhl.measure.launcher import Seed
    from ivhl.measure.run import Run
    from ivhl.records.record import Phase, RecordedObservation, RunRecord
    from ivhl.workload import Case

CaseEvent = Literal["kept", "unchanged", "started", "finished"]
# Cases per core that are compiled before any is timed.
LARGEST_BATCH = 16
# After a failure in one of these phases, eager cannot be timed either.
BEFORE_TIMING: frozenset[Phase] = frozenset({"import", "inputs", "reference", "eager"})


def run_cases(
    run: Run,
    cases: Sequence[Case],
    on_event: Callable[[CaseEvent, Case, RunRecord | None], None] = lambda *_: None,
) -> None:
    """Measure every case without a record; write each record before the next case starts.

    Args:
        run: Settings of the run.
        cases: Cases in the order in which to run them.
        on_event: Called at each event of a case, with its record once that exists.

    Raises:
        OSError: If a record cannot be written (a full disk); records written before stay.
    """
    newest = {} if run.effort.force else newest_keys(run.record_file)
    Path(run.scratch).mkdir(parents=True, exist_ok=True)
    elsewhere = {} if run.effort.force else records_of_other_commits(run)
    todo = []
    for case in cases:
        if is_answered(run, case, newest):
            on_event("kept", case, None)
        elif data := same_subject(run, case, elsewhere):
            append_line(run.record_file, json.dumps(data, sort_keys=True, separators=(",", ":")))
            on_event("unchanged", case, None)
        else:
            todo.append(case)
    if not todo:
        return
    with (
        tempfile.TemporaryDirectory(
            prefix="seed-", dir=run.scratch, ignore_cleanup_errors=True
        ) as folder,
        closing(Lanes(run, Path(folder))) as lanes,
    ):
        # Observe before the first child starts: from then on, the run itself is load.
        stability = observe_stability(run.effort.device)
        seed = make_seed(run, todo[0], lanes)
        expected = expected_compile_s(run)
        for batch in batches(todo, lanes.n, begun=bool(newest)):
            for case in batch:
                on_event("started", case, None)
            # Compile on all cores first, so that timing afterwards has the machine alone.
            dearest = sorted(batch, key=lambda c: -expected.get(case_key(run, c), 0.0))
            done = lanes.compile(dearest, seed)
            found = {case.name: one for case, one in zip(dearest, done, strict=True)}
            for case in batch:
                with found[case.name] as compiled:
                    record = measure_case(run, case, compiled, seed, lanes, stability)
                if record.failure is not None and compiled.key is not None:
                    # The cached code may have caused the failure: drop it and compile again.
                    cache.drop(Path(run.cache or ""), compiled.key)
                    with compile_case(run, case, seed, lanes.first) as fresh:
                        record = measure_case(run, case, fresh, seed, lanes, stability)
                append_record(run.record_file, record)
                on_event("finished", case, record)


def batches(cases: Sequence[Case], n: int, *, begun: bool = False) -> Iterator[list[Case]]:
    """Yield batches of cases to compile together: ``n`` first, for an early result, then many.

    If the cell has ``begun`` in an earlier run, the first batch is large, too. Large batches keep
    all cores busy. Compiled code stays in the cache, so an interrupted run loses little.
    """
    left, size = list(cases), LARGEST_BATCH * n if begun else n
    while left:
        yield left[:size]
        left, size = left[size:], LARGEST_BATCH * n


def measure_case(  # noqa: PLR0917  (all are required)
    run: Run,
    case: Case,
    compiled: CompiledCase,
    seed: Seed,
    lanes: Lanes,
    stability: tuple[RecordedObservation, ...],
) -> RunRecord:
    """Time one case in its own processes and return its record, measured or failed.

    Args:
        run: Settings of the run.
        case: Case to measure.
        compiled: Outcome of compiling it.
        seed: Cache from which the cell's cases start.
        lanes: Starts the processes.
        stability: Observations about the machine before the first case.
    """
    here = Path(compiled.folder.name)
    findings, failure = compiled.findings, compiled.failure
    seconds = compiled.seconds
    timed: list[dict[str, Any]] = []
    stage = "time" if failure is None else "eager"
    if failure is None or failure.phase not in BEFORE_TIMING:
        for found, failed, took in lanes.time(case, here, stage, seed):
            seconds += took
            timed.append(found)
            if stage == "time":
                failure = failed
            if failed is not None:
                break
    return checked_record(
        run,
        case,
        (findings, timed),
        failure,
        duration_s=seconds,
        load=compiled.load,
        stability=stability,
    )
