"""The parent process: runs the processes of each case and writes its record, even if they crash.

Never imports torch, so that a crash in torch cannot end the run.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

from ivhl.machine.stability import observe_stability
from ivhl.measure import cache
from ivhl.measure.earlier import (
    case_key,
    is_answered,
    records_of_other_commits,
    same_subject,
    sources_at,
)
from ivhl.measure.lanes import (
    CompiledCase,
    Lanes,
    Timing,
    compile_case,
    make_seed,
    time_in_turns,
)
from ivhl.measure.launcher import launcher_of, run_stage
from ivhl.measure.outcome import checked_record
from ivhl.measure.shared import lacks_bytecode
from ivhl.records.answers import cold_seconds, newest_keys, read_records
from ivhl.records.files import append_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ivhl.measure.launcher import Stage
    from ivhl.measure.run import Run
    from ivhl.measure.sources import Sources
    from ivhl.records.record import Phase, RecordedObservation, RunRecord
    from ivhl.workload import Case

CaseEvent = Literal["kept", "unchanged", "started", "finished"]
# Cases per core that are compiled before any is timed.
LARGEST_BATCH = 16
# A cell with more modules than this is not asked first: each import takes seconds of a core.
MOST_IMPORTS = 4
# After a failure in one of these phases, eager cannot be timed either.
BEFORE_TIMING: frozenset[Phase] = frozenset({"import", "inputs", "reference", "eager"})


def run_cases(
    run: Run,
    cases: Sequence[Case],
    on_event: Callable[[CaseEvent, Case, RunRecord | None], None] = lambda *_: None,
    reached: Mapping[str, Sources] = MappingProxyType({}),
) -> None:
    """Measure every case without a record; write each record before the next case starts.

    Args:
        run: Settings of the run.
        cases: Cases in the order in which to run them.
        on_event: Called at each event of a case, with its record once that exists.
        reached: What cases reach, by name, where this process cannot tell.

    Raises:
        OSError: If a record cannot be written (a full disk); records written before stay.
    """
    newest = {}
    if not run.effort.force:
        newest = newest_keys(run.record_file, timed=run.effort.is_timed)
    Path(run.scratch).mkdir(parents=True, exist_ok=True)
    elsewhere = {} if run.effort.force else records_of_other_commits(run)
    todo = []
    for case in cases:
        here = reached.get(case.name)
        if is_answered(run, case, newest, here):
            on_event("kept", case, None)
        elif record := same_subject(run, case, elsewhere, here):
            append_record(run.record_file, record)
            on_event("unchanged", case, None)
        else:
            todo.append(case)
    if not todo:
        return
    _measure((run,), todo, on_event, begun=bool(newest))


def run_in_turns(
    runs: Sequence[Run],
    cases: Sequence[Case],
    on_event: Callable[[CaseEvent, Case, RunRecord | None], None] = lambda *_: None,
) -> None:
    """Measure every case at several commits, whose processes take turns; write a record of each.

    A case that reaches the same code at all of them is measured once. Of others, earlier records
    answer only where all commits have some: what is compared is measured side by side. With
    ``force``, none does.

    Args:
        runs: A run for each commit; they differ in nothing else.
        cases: Cases in the order in which to run them.
        on_event: See ``run_cases``; it gets the record of the last commit.

    Raises:
        OSError: As ``run_cases``.
    """
    Path(runs[0].scratch).mkdir(parents=True, exist_ok=True)
    if len(runs) == 1:
        run_cases(runs[0], cases, on_event, sources_at(runs[0], cases))
        return
    if not runs[0].effort.force:
        cases = _without_answers(runs, cases, on_event)
    if cases:
        _measure(runs, cases, on_event, begun=True)


def _without_answers(
    runs: Sequence[Run],
    cases: Sequence[Case],
    on_event: Callable[[CaseEvent, Case, RunRecord | None], None],
) -> list[Case]:
    """Measure once what reaches the same code at all commits; return what must be compared."""
    base, *_, head = runs
    reached, *others = (sources_at(run, cases) for run in runs)
    alike = [
        case
        for case in cases
        if case.name in reached
        and all(other.get(case.name) == reached[case.name] for other in others)
    ]
    # Of the base, only that it is busy: the case has ended when the head has its record.
    run_cases(
        base,
        alike,
        lambda event, case, _: on_event(event, case, None) if event == "started" else None,
        reached,
    )
    answers = {
        key: record
        for key, made, record in read_records(base.record_file, timed=base.effort.is_timed)
        if made
    }
    newest = [newest_keys(run.record_file) for run in runs]
    left = []
    for case in cases:
        here = reached.get(case.name) if case in alike else None
        if all(
            is_answered(run, case, known, of_run.get(case.name))
            for run, known, of_run in zip(runs, newest, (reached, *others), strict=True)
        ):
            on_event("kept", case, None)
        elif here and (record := same_subject(head, case, answers, here)):
            append_record(head.record_file, record)
            on_event("unchanged", case, None)
        else:
            left.append(case)
    return left


def _measure(
    runs: Sequence[Run],
    cases: Sequence[Case],
    on_event: Callable[[CaseEvent, Case, RunRecord | None], None],
    *,
    begun: bool,
) -> None:
    run = runs[0]
    with (
        tempfile.TemporaryDirectory(
            prefix="seed-", dir=run.scratch, ignore_cleanup_errors=True
        ) as folder,
        ExitStack() as stack,
    ):
        every: list[Lanes] = []
        for number, one in enumerate(runs):
            (own := Path(folder) / str(number)).mkdir()
            needed = None if run.effort.is_timed else len(cases)
            every.append(stack.enter_context(closing(Lanes(one, own, needed))))
        # Observe before the first child starts: from then on, the run itself is load.
        stability = observe_stability(run.effort.device)
        if not begun and lacks_bytecode():
            cases = _without_unimportable(run, cases, Path(folder), stability, on_event)
        if not cases:
            return
        commits = [Commit(one, lanes) for one, lanes in zip(runs, every, strict=True)]
        for commit in commits:
            make_seed(commit.run, cases[0], commit.lanes)
        measure = _time if run.effort.is_timed else _ask
        measure(commits, cases, stability, on_event, begun=begun)


def _time(
    commits: Sequence[Commit],
    cases: Sequence[Case],
    stability: tuple[RecordedObservation, ...],
    on_event: Callable[[CaseEvent, Case, RunRecord | None], None],
    *,
    begun: bool,
) -> None:
    """Compile cases in batches, time them, and write their records."""
    run, lanes = commits[0]
    longest_first = _longest_first(run, cases)
    # What compiles alone comes last: by then, all others have their records.
    tuned = [case for case in cases if lanes.is_tuned(case)]
    others = [case for case in cases if case not in tuned]
    for batch in (*batches(others, lanes.n, begun=begun), *batches(tuned, 1, begun=begun)):
        for case in batch:
            on_event("started", case, None)
        # Compile on all cores first, so that timing afterwards has the machine alone.
        found = _compile_all(commits, [case for case in longest_first if case in batch])
        # What is known to fail has its record before minutes of timing the others.
        batch.sort(key=lambda case: all(one.failure is None for one in found[case.name]))
        size = lanes.cases_in_turns(len(commits))
        for first in range(0, len(batch), size):
            group = batch[first : first + size]
            of_group = [found[case.name] for case in group]
            measured = measure_cases(commits, group, of_group, stability)
            for case, records in zip(group, measured, strict=True):
                for one, record in zip(commits, records, strict=True):
                    append_record(one.run.record_file, record)
                on_event("finished", case, records[-1])


def _longest_first(run: Run, cases: Sequence[Case]) -> list[Case]:
    """Return cases so that no core is left waiting for a long one at the end."""
    expected = cold_seconds(Path(run.results), run.cell.id)
    return sorted(cases, key=lambda case: -expected.get(case_key(run, case), 0.0))


def _ask(
    commits: Sequence[Commit],
    cases: Sequence[Case],
    stability: tuple[RecordedObservation, ...],
    on_event: Callable[[CaseEvent, Case, RunRecord | None], None],
    *,
    begun: bool,
) -> None:
    """Write the record of each case as soon as it is known whether it works."""
    del begun
    on_event("started", cases[0], None)
    for run, lanes in commits:
        for case, compiled in lanes.compile_each(_longest_first(run, cases)):
            with compiled:
                record = _record_of(run, case, compiled, (), stability)
            append_record(run.record_file, record)
            on_event("finished", case, record)


def _compile_all(
    commits: Sequence[Commit], cases: Sequence[Case]
) -> dict[str, list[CompiledCase]]:
    """Return of each case, by name, what compiling it at each commit gave."""
    found: dict[str, list[CompiledCase]] = {case.name: [] for case in cases}
    for commit in commits:
        for case, compiled in zip(cases, commit.lanes.compile(cases), strict=True):
            found[case.name].append(compiled)
    return found


def _without_unimportable(
    run: Run,
    cases: Sequence[Case],
    folder: Path,
    stability: tuple[RecordedObservation, ...],
    on_event: Callable[[CaseEvent, Case, RunRecord | None], None],
) -> Sequence[Case]:
    """Record the cases whose modules cannot be imported, and return the others.

    In a new cell a first compile takes up to a minute, after which they would fail all the same.
    """
    alike: dict[tuple[str, ...], list[Case]] = {}
    for case in cases:
        alike.setdefault(_modules_of(case), []).append(case)
    if run.effort.device != "cpu" or len(alike) > MOST_IMPORTS:
        return cases
    pairs = [(of_one, folder / f"import-{n}") for n, of_one in enumerate(alike.values())]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        stages = list(pool.map(lambda pair: _import(run, pair[0][0], pair[1]), pairs))
    failed: set[str] = set()
    for (of_one, _), (findings, failure, seconds) in zip(pairs, stages, strict=True):
        # Any other failure, such as a crash, is perhaps that of one case.
        if failure is None or failure.failure_class != "import":
            continue
        for case in of_one:
            on_event("started", case, None)
            record = checked_record(
                run, case, (findings, []), failure,
                duration_s=seconds, load=os.getloadavg()[0], stability=stability,
            )  # fmt: skip
            append_record(run.record_file, record)
            on_event("finished", case, record)
            failed.add(case.name)
    return [case for case in cases if case.name not in failed]


def _modules_of(case: Case) -> tuple[str, ...]:
    workload, variant = case.workload, case.variant
    names = (
        workload.make_inputs, workload.make_model, workload.eager, workload.reference,
        variant.prepare, variant.finish,
    )  # fmt: skip
    return tuple((name or "").partition(":")[0] for name in names)


def _import(run: Run, case: Case, folder: Path) -> Stage:
    """Import the modules of a case in a process of its own."""
    folder.mkdir()
    launcher = launcher_of(run, folder / "lane")
    launcher.may_fork = False
    return run_stage(run, case, folder, "import", launcher)


class Commit(NamedTuple):
    """One of the commits that a case is measured at.

    Attributes:
        run: Settings of the run.
        lanes: Starts the processes.
    """

    run: Run
    lanes: Lanes


def measure_cases(
    commits: Sequence[Commit],
    cases: Sequence[Case],
    compiled: Sequence[Sequence[CompiledCase]],
    stability: tuple[RecordedObservation, ...],
) -> Iterator[list[RunRecord]]:
    """Time cases at all commits, and yield the records of each, measured or failed.

    Args:
        commits: What the records are of.
        cases: Cases to measure; the processes of all take turns.
        compiled: Outcome of compiling each, at each commit.
        stability: Observations about the machine before the first case.
    """
    with ExitStack() as stack:
        for one in itertools.chain.from_iterable(compiled):
            stack.enter_context(one)
        every = time_cases(commits, cases, compiled, stability)
    for case, of_case, records in zip(cases, compiled, every, strict=True):
        for number, (commit, one) in enumerate(zip(commits, of_case, strict=True)):
            if records[number].failure is not None and one.key is not None:
                # The cached code may have caused the failure: drop it and compile again.
                cache.drop(Path(commit.run.cache or ""), one.key)
                with compile_case(commit.run, case, commit.lanes.first) as fresh:
                    ((again,),) = time_cases([commit], [case], [[fresh]], stability)
                records[number] = again
        yield records


def batches(cases: Sequence[Case], n: int, *, begun: bool = False) -> Iterator[list[Case]]:
    """Yield batches of cases to compile together: ``n`` first, for an early result, then many.

    If the cell has ``begun`` in an earlier run, the first batch is large, too. Large batches keep
    all cores busy. Compiled code stays in the cache, so an interrupted run loses little.
    """
    left, size = list(cases), LARGEST_BATCH * n if begun else n
    while left:
        yield left[:size]
        left, size = left[size:], LARGEST_BATCH * n


def time_cases(
    commits: Sequence[Commit],
    cases: Sequence[Case],
    compiled: Sequence[Sequence[CompiledCase]],
    stability: tuple[RecordedObservation, ...],
) -> list[list[RunRecord]]:
    """Time cases in processes of their own, and return the records; see ``measure_cases``."""
    timings = {}
    for place, (case, of_case) in enumerate(zip(cases, compiled, strict=True)):
        for number, (commit, one) in enumerate(zip(commits, of_case, strict=True)):
            if one.failure is None or one.failure.phase not in BEFORE_TIMING:
                stage = "time" if one.failure is None else "eager"
                timings[place, number] = Timing(commit.lanes, case, Path(one.folder.name), stage)
    processes = commits[0].run.effort.processes
    stages = dict(zip(timings, time_in_turns([*timings.values()], processes), strict=True))
    return [
        [
            _record_of(commit.run, case, one, stages.get((place, number), ()), stability)
            for number, (commit, one) in enumerate(zip(commits, of_case, strict=True))
        ]
        for place, (case, of_case) in enumerate(zip(cases, compiled, strict=True))
    ]


def _record_of(
    run: Run,
    case: Case,
    compiled: CompiledCase,
    stages: Sequence[Stage],
    stability: tuple[RecordedObservation, ...],
) -> RunRecord:
    failure, timed, seconds = compiled.failure, [], compiled.seconds
    for found, failed, took in stages:
        seconds += took
        timed.append(found)
        if compiled.failure is None:
            failure = failed
        if failed is not None:
            break
    return checked_record(
        run,
        case,
        (compiled.findings, timed),
        failure,
        duration_s=seconds,
        load=compiled.load,
        stability=stability,
    )
