"""Compute everything that the published pages show; the templates only insert it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from ivhl.instrument import describe_instrument
from ivhl.records.store import device_type, is_existing, key_of, recorded_rank
from ivhl.tracker.charts import make_chart
from ivhl.tracker.compat import (
    STATUSES,
    Row,
    Series,
    compat_rows,
    format_speedup,
    python_key,
    release_key,
    retired,
    status_of,
    support,
)
from ivhl.tracker.wording import (
    CLASS_MEANINGS,
    ENGINE_WORDS,
    FIRST_CALL_WORDS,
    PASSES_WORDS,
    REFERENCE_MEANINGS,
    STATUS_MEANINGS,
    STATUS_WORDS,
    UNCOMMITTED_MARK,
    UNCOMMITTED_MEANING,
    marked,
    memory,
    seconds,
    short_message,
    support_sentence,
)
from ivhl.workload import INDUCTOR_ENGINES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ivhl.records.record import Arm, Counted, Failure, RunRecord, Wheel
    from ivhl.tracker.charts import Chart
    from ivhl.tracker.compat import Status
    from ivhl.tracker.project import State
    from ivhl.tracker.spread import Spreads

_PAST_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Fact:
    """A label and its value, e.g. ``cold`` and ``6.4 s``."""

    label: str
    value: str


@dataclass(frozen=True, slots=True)
class FactGroup:
    """Facts that belong together."""

    title: str
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class ErrorLine:
    """Error of one output against the float64 reference."""

    output: str
    eager: str
    compiled: str
    limit: str
    verdict: str


@dataclass(frozen=True, slots=True)
class Past:
    """The result of a case at one commit, for its history."""

    commit: str
    recorded_at: str
    status: Status
    word: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """The details of one case in one cell."""

    id: str
    title: str
    place: str
    status: Status
    word: str
    text: str
    meaning: str
    message: str
    failure: Failure | None
    groups: tuple[FactGroup, ...]
    graph_breaks: tuple[Counted, ...]
    recompiles: tuple[Counted, ...]
    warnings: tuple[Counted, ...]
    errors: tuple[ErrorLine, ...]
    past: tuple[Past, ...]
    environment: str
    lock: str
    command: str


@dataclass(frozen=True, slots=True)
class CellView:
    """A cell of a matrix.

    Attributes:
        href: Id of the details that it opens; empty if there are none.
        label: The cell as text, for screen readers.
    """

    status: Status
    word: str
    value: str
    detail: str
    href: str
    label: str


@dataclass(frozen=True, slots=True)
class PythonLine:
    """A row of a matrix."""

    python: str
    cells: tuple[CellView, ...]
    first_good: str
    last_bad: str
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixView:
    """A row per Python and a column per PyTorch release, for one case on one machine."""

    id: str
    size: str
    variant: str
    machine: str
    device: str
    releases: tuple[str, ...]
    lines: tuple[PythonLine, ...]
    statuses: tuple[Status, ...]


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """All matrices of a workload.

    Attributes:
        not_run: Cases without a record in any cell; they have no matrix.
    """

    name: str
    title: str
    source: str
    matrices: tuple[MatrixView, ...]
    not_run: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cause:
    """Cases that fail for the same reason."""

    status: Status
    word: str
    failure_class: str
    meaning: str
    exception: str
    message: str
    cases: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Tally:
    """How many cases have a status."""

    status: Status
    word: str
    meaning: str
    count: int


@dataclass(frozen=True, slots=True)
class Environment:
    """The packages of the environment in which a record was measured."""

    id: str
    cell: str
    python: str
    lock: str
    packages: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageView:
    """What both pages share."""

    project: str
    built_at: str
    newest_commit: str
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompatibilityView:
    """The page *Compatibility*."""

    page: PageView
    tallies: tuple[Tally, ...]
    causes: tuple[Cause, ...]
    workloads: tuple[WorkloadView, ...]
    retired: tuple[str, ...]
    reasons: tuple[Reason, ...]
    environments: tuple[Environment, ...]


@dataclass(frozen=True, slots=True)
class SpeedupBlock:
    """All charts of a workload."""

    name: str
    title: str
    charts: tuple[Chart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedupView:
    """The page *Speedup*."""

    page: PageView
    workloads: tuple[SpeedupBlock, ...]


def slug(*parts: str) -> str:
    """Return an HTML id, unique for the parts and stable, so that links to it keep working."""
    return "/".join(re.sub(r"[^A-Za-z0-9_.-]", lambda c: f"~{ord(c[0]):x}", p) for p in parts)


def rows_of(state: State) -> tuple[Row, ...]:
    """Return the rows of this project; see ``compat_rows``."""
    return compat_rows(
        state.records,
        cells=state.cells,
        unavailable=state.unavailable,
        cases=state.cases,
        workloads=state.workloads,
        commit_order=state.commit_order,
        releases=state.releases,
        spreads=state.spreads,
    )


def without_broken(state: State) -> State:
    """Return the state without the records of which no page can be made; each becomes a problem.

    Records come from other machines. What the bounds of ``ivhl.records.bounds`` do not foresee in
    one of them must not keep the pages from all others.
    """
    good, problems = [], list(state.problems)
    for record in state.records:
        alone = replace(
            state, records=(record,), problems=(), cells=(), cases=(), releases=None, workloads=()
        )
        try:
            rows = rows_of(alone)
            compatibility_view(alone, rows, page_view(alone, ""))
            speedup_view(alone, rows, page_view(alone, ""))
        except Exception as error:  # noqa: BLE001  (whatever it is, the others are shown)
            name = "/".join(map(str, key_of(record)))
            problems.append(f"{name}: cannot be shown: {type(error).__name__}: {error}"[:500])
        else:
            good.append(record)
    return replace(state, records=tuple(good), problems=tuple(problems))


def retired_cases(state: State) -> tuple[str, ...]:
    """Return the cases with records that the project no longer has."""
    gone = retired(state.records, state.workloads)
    return tuple(
        sorted({f"{r.workload}/{r.size}/{r.variant} (version {r.workload_version})" for r in gone})
    )


def page_view(state: State, built_at: str) -> PageView:
    """Return what both pages share.

    Args:
        state: The project.
        built_at: When the pages were built, as text.
    """
    newest = max(state.records, key=recorded_rank, default=None)
    return PageView(
        project=state.name,
        built_at=built_at,
        newest_commit="" if newest is None else newest.commit[:8],
        problems=state.problems,
    )


def compatibility_view(state: State, rows: Sequence[Row], page: PageView) -> CompatibilityView:
    """Return the page *Compatibility*."""
    environments = _environments(rows)
    past = _past(state.records, state.commit_order)
    known = [row for row in rows if row.status != "not_run"]
    return CompatibilityView(
        page=page,
        tallies=tuple(
            Tally(
                status,
                STATUS_WORDS[status],
                STATUS_MEANINGS[status],
                sum(row.status == status for row in rows),
            )
            for status in STATUSES
        ),
        causes=_causes(known),
        workloads=tuple(
            WorkloadView(name, *_about(state, name), _matrices(group), _not_run(group))
            for name, group in _by_workload(state, rows).items()
        ),
        retired=retired_cases(state),
        reasons=tuple(_reason(row, environments, past, state.spreads) for row in known),
        environments=tuple(environments.values()),
    )


def speedup_view(state: State, rows: Sequence[Row], page: PageView) -> SpeedupView:
    """Return the page *Speedup*; a series without any speedup has no chart."""
    blocks = []
    for name, group in _by_workload(state, rows).items():
        charts = tuple(
            make_chart(
                slug("chart", *series), series, lines, {row: _reason_id(row) for row in lines}
            )
            for series, lines in _by_series(group).items()
            if any(row.speedup is not None for row in lines)
        )
        if charts:
            blocks.append(SpeedupBlock(name, _about(state, name)[0], charts))
    return SpeedupView(page=page, workloads=tuple(blocks))


def _by_workload(state: State, rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return the rows per workload, in the order of the project's list, unlisted ones last."""
    groups: dict[str, list[Row]] = {workload.name: [] for workload in state.workloads}
    for row in sorted(rows, key=lambda row: row.workload):
        groups.setdefault(row.workload, []).append(row)
    return {name: group for name, group in groups.items() if group}


def _by_series(rows: Iterable[Row]) -> dict[Series, list[Row]]:
    groups: dict[Series, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.series, []).append(row)
    return groups


def _about(state: State, workload: str) -> tuple[str, str]:
    known = {w.name: (w.title, w.source) for w in state.workloads}
    return known.get(workload, ("", ""))


def _reason_id(row: Row) -> str:
    return slug(row.cell, row.workload, row.size, row.variant, row.machine, row.device)


def _was_run(rows: Iterable[Row]) -> bool:
    return any(row.record is not None for row in rows)


def _not_run(rows: Sequence[Row]) -> tuple[str, ...]:
    return tuple(
        f"{series.variant} {series.size}"
        + (f" on {series.machine}, {series.device}" if series.machine else "")
        for series, group in _by_series(rows).items()
        if not _was_run(group)
    )


def _matrices(rows: Sequence[Row]) -> tuple[MatrixView, ...]:
    views = []
    for series, group in _by_series(rows).items():
        if not _was_run(group):
            continue
        releases = sorted({row.torch for row in group}, key=release_key)
        at = {(row.python, row.torch): row for row in group}
        good = {found.python: found for found in support(group)}
        lines = []
        for python in sorted({row.python for row in group}, key=python_key):
            found = good[python]
            bad = found.last_bad_status
            lines.append(
                PythonLine(
                    python,
                    tuple(_cell(python, torch, at.get((python, torch))) for torch in releases),
                    found.first_good or "",
                    f"{found.last_bad} ({STATUS_WORDS[bad]})" if bad else "",
                    support_sentence(found),
                )
            )
        views.append(
            MatrixView(
                id=slug("matrix", *series),
                size=series.size,
                variant=series.variant,
                machine=series.machine,
                device=series.device,
                releases=tuple(releases),
                lines=tuple(lines),
                statuses=tuple(s for s in STATUSES if any(r.status == s for r in group)),
            )
        )
    return tuple(views)


def _cell(python: str, torch: str, row: Row | None) -> CellView:
    status: Status = "not_run" if row is None else row.status
    word = STATUS_WORDS[status]
    value, detail = "", ""
    if row is not None and row.speedup is not None:
        word += " · quick" if row.quick else ""
        word += " · existing" if row.existing else ""
        value = f"{row.speedup:.2f}x"
        detail = f"{row.speedup_low:.2f}–{row.speedup_high:.2f}"  # noqa: RUF001  (a range)
    elif row is not None and (status == "failed" or row.failure_class == "absent"):
        detail = (row.failure_class or "").replace("_", " ")
    if row is not None and row.record is not None:
        word = marked(word, row.record)
    label = f"Python {python}, PyTorch {torch}: {' '.join(t for t in (word, value, detail) if t)}"
    href = "" if row is None or status == "not_run" else _reason_id(row)
    return CellView(status, word, value, detail, href, label)


def _causes(rows: Iterable[Row]) -> tuple[Cause, ...]:
    groups: dict[tuple[Status, str, str, str], list[Row]] = {}
    for row in rows:
        if row.status in ("works", "slow"):
            continue
        failure = row.record.failure if row.record else None
        exception = failure.exception if failure else ""
        key = (row.status, row.failure_class or "", exception, short_message(row.message))
        groups.setdefault(key, []).append(row)
    causes = []
    for (status, name, exception, message), group in groups.items():
        meaning = CLASS_MEANINGS[group[0].failure_class] if group[0].failure_class else ""
        cases = tuple(
            (
                f"Python {row.python}, PyTorch {row.torch}: {'/'.join(row.series[2:])}",
                _reason_id(row),
            )
            for row in group
        )
        word = STATUS_WORDS[status]
        causes.append(Cause(status, word, name, meaning, exception, message, cases))
    order = list(STATUSES)
    return tuple(sorted(causes, key=lambda c: (order.index(c.status), -len(c.cases))))


def _environments(rows: Iterable[Row]) -> dict[tuple[object, ...], Environment]:
    found: dict[tuple[object, ...], Environment] = {}
    for row in rows:
        if row.record is None or not row.record.conditions.packages:
            continue
        key = _environment_key(row.record)
        if key not in found:
            found[key] = Environment(
                f"environment-{len(found) + 1}",
                row.cell,
                row.record.conditions.python_full,
                row.record.cell.lock_sha256 or "",
                row.record.conditions.packages,
            )
    return found


def _environment_key(record: RunRecord) -> tuple[object, ...]:
    conditions = record.conditions
    cell = record.cell
    return (cell.id, cell.lock_sha256, conditions.python_full, conditions.packages)


_CaseKey = tuple[str, Series, int]


def _case_key(record: RunRecord) -> _CaseKey:
    series = Series(
        record.machine.name, device_type(record), record.workload, record.size, record.variant
    )
    return (record.cell.id, series, record.workload_version)


def _past(
    records: Iterable[RunRecord], commit_order: Sequence[str]
) -> dict[_CaseKey, tuple[Past, ...]]:
    position = {commit: i for i, commit in enumerate(commit_order)}
    groups: dict[_CaseKey, list[RunRecord]] = {}
    for record in records:
        groups.setdefault(_case_key(record), []).append(record)
    return {
        key: tuple(
            _past_point(record)
            for record in sorted(
                group, key=lambda r: (position.get(r.commit, -1), recorded_rank(r)), reverse=True
            )[:_PAST_SHOWN]
        )
        for key, group in groups.items()
    }


def _past_point(record: RunRecord) -> Past:
    status = status_of(record)
    failure = record.failure
    text = format_speedup(record.speedup) if record.speedup else ""
    if failure is not None:
        text = failure.failure_class
    word = marked(STATUS_WORDS[status], record)
    return Past(record.commit[:8], record.recorded_at, status, word, text)


def _reason(
    row: Row,
    environments: dict[tuple[object, ...], Environment],
    past: dict[_CaseKey, tuple[Past, ...]],
    spreads: Spreads,
) -> Reason:
    record = row.record
    failure = record.failure if record else None
    meaning = STATUS_MEANINGS[row.status]
    if row.failure_class is not None:
        meaning = CLASS_MEANINGS[row.failure_class]
    compiled = record.compile if record else None
    environment = environments.get(_environment_key(record)) if record else None
    places = (f"Python {row.python}", f"PyTorch {row.torch}", row.machine, row.device)
    return Reason(
        id=_reason_id(row),
        title=f"{row.workload} / {row.size} / {row.variant}",
        place=" · ".join(part for part in places if part),
        status=row.status,
        word=marked(STATUS_WORDS[row.status], record) if record else STATUS_WORDS[row.status],
        text=format_speedup(record.speedup) if record and record.speedup else "",
        meaning=meaning,
        message=row.message,
        failure=failure,
        groups=_fact_groups(record, spreads) if record else (),
        graph_breaks=compiled.graph_breaks if compiled else (),
        recompiles=compiled.recompiles if compiled else (),
        warnings=record.warnings if record else (),
        errors=_errors(record) if record else (),
        past=past.get(_case_key(record), ()) if record else (),
        environment=environment.id if environment else "",
        lock=(record.cell.lock_sha256 or "") if record else "",
        command=row.command or "",
    )


def _fact_groups(record: RunRecord, spreads: Spreads) -> tuple[FactGroup, ...]:
    groups = (
        FactGroup("Speed", tuple(_speed(record, spreads))),
        FactGroup("Compiling", tuple(_compiling(record))),
        FactGroup("Peak memory of a call", tuple(_memory(record))),
        FactGroup("Verdict", tuple(_verdict(record))),
        FactGroup("Run", tuple(_run(record))),
    )
    return tuple(group for group in groups if group.facts)


def _speed(record: RunRecord, spreads: Spreads) -> Iterable[Fact]:
    if record.speedup:
        percent = f"{record.speedup.confidence:.0%}"
        another = spreads.another_run(record)
        if another is not None:
            learnt = spreads.of(record).origin
            text = f"{format_speedup(another)} (from {learnt})"
            yield Fact("speedup, expected for another run", text)
        yield Fact(f"speedup, {percent} interval within this run", format_speedup(record.speedup))
        yield Fact("pairs of samples", str(record.speedup.n))
    if record.aa:
        yield Fact("eager over eager (noise)", format_speedup(record.aa))
    if record.formulation_speedup:
        yield Fact(
            "speedup over the same source, eager", format_speedup(record.formulation_speedup)
        )
    arms: tuple[tuple[str, Arm | None], ...] = (
        ("eager, median call", record.eager),
        (f"{_arm_word(record)}, median call", record.compiled),
        ("same source eager, median call", record.formulation_eager),
    )
    for label, arm in arms:
        if arm is not None and arm.samples_s:
            yield Fact(label, seconds(median(arm.samples_s)))


def _compiling(record: RunRecord) -> Iterable[Fact]:
    facts = record.compile
    if facts is None:
        return
    first = FIRST_CALL_WORDS.get(record.engine, "first call")
    if facts.cold_s is not None:
        yield Fact(first, seconds(facts.cold_s))
    if facts.cold_cpu_s is not None:
        yield Fact("its CPU time, all processes", seconds(facts.cold_cpu_s))
    if facts.cold_at is not None:
        yield Fact("its time of measurement", facts.cold_at)
    if record.engine in INDUCTOR_ENGINES:
        warm = "not measured" if facts.warm_s is None else seconds(facts.warm_s)
        yield Fact("warm compile, cache on disk", warm)
    if facts.graphs is None:  # the engine does not use Dynamo
        return
    yield Fact("frames compiled", f"{facts.frames_ok} of {facts.frames_total}")
    yield Fact("graphs", str(facts.graphs))
    yield Fact("operations captured", str(facts.calls_captured))
    yield Fact("graph breaks", str(sum(c.count for c in facts.graph_breaks)))
    yield Fact("recompiles", str(sum(c.count for c in facts.recompiles)))


def _arm_word(record: RunRecord) -> str:
    """Return the name of the variant's arm, ``variant`` if its engine does not compile."""
    return "compiled" if record.engine in INDUCTOR_ENGINES else "variant"


def _memory(record: RunRecord) -> Iterable[Fact]:
    held = record.memory
    if held is None:
        return
    if held.eager_peak is not None:
        yield Fact("eager", memory(held.eager_peak))
    if held.compiled_peak is not None:
        yield Fact(_arm_word(record), memory(held.compiled_peak))


def _verdict(record: RunRecord) -> Iterable[Fact]:
    yield Fact("outputs", REFERENCE_MEANINGS[record.reference])
    if record.leaves is not None:
        yield Fact("outputs judged", f"{record.leaves}, of which the worst are listed")
    if record.passes is not None:
        yield Fact("what a call does", PASSES_WORDS[record.passes])
    if record.uncommitted:
        yield Fact(UNCOMMITTED_MARK, UNCOMMITTED_MEANING)


def _run(record: RunRecord) -> Iterable[Fact]:
    conditions, machine = record.conditions, record.machine
    yield Fact("commit", record.commit)
    yield Fact("recorded", record.recorded_at)
    yield Fact("duration", seconds(record.duration_s))
    if is_existing(record):
        yield Fact("environment", "existing, without a lock")
    yield Fact("kind of run", "quick: few samples" if conditions.quick else "full")
    yield Fact("engine", ENGINE_WORDS.get(record.engine, record.engine))
    yield Fact("mode, dtype", f"{record.mode}, {record.dtype}")
    yield Fact("device", conditions.device)
    if conditions.image is not None:
        yield Fact("container image", conditions.image)
    yield Fact("instrument", describe_instrument(conditions.instrument))
    yield Fact("threads, clock", f"{conditions.threads}, {conditions.clock}")
    if conditions.load_average is not None:
        yield Fact("load before the case", f"{conditions.load_average:.2f}")
    for one in conditions.stability or ():
        mark = "" if one.level == "ok" else f" ({one.level})"
        yield Fact(f"{one.check} before the run", f"{one.seen}{mark}")
    yield Fact("machine", f"{machine.name}: {machine.cpu}, {machine.n_cpus} CPUs")
    yield Fact("memory, system", f"{memory(machine.memory_bytes)}, {machine.system}")
    yield Fact("Python", conditions.python_full)
    if conditions.torch_full is not None:
        yield Fact("PyTorch", conditions.torch_full)
    for wheel in conditions.wheels or ():
        yield Fact(f"{wheel.name} wheel", _wheel(wheel))
    if conditions.gil is not None:
        yield Fact("global interpreter lock", "on" if conditions.gil else "off")
    if record.sources is not None:
        yield Fact("sources that the case reaches", record.sources[:12])
    if record.benchmark is not None:
        yield Fact("sources of the benchmark", record.benchmark[:12])
    yield Fact("workload version", str(record.workload_version))


def _wheel(wheel: Wheel) -> str:
    build = "" if wheel.build is None else f"build {wheel.build}, "
    return f"{build}{', '.join(wheel.tags)}, files {(wheel.record_sha256 or 'unknown')[:12]}"


def _errors(record: RunRecord) -> tuple[ErrorLine, ...]:
    verdicts = {True: "passed", False: "exceeded", None: "not judged"}
    return tuple(
        ErrorLine(
            error.output,
            _number(error.eager_rmse)
            + (
                ""
                if error.anchor_rmse is None
                else f"; {_number(error.anchor_rmse)} in {record.dtype}"
            ),
            _number(error.compiled_rmse),
            _number(error.limit_rmse),
            verdicts[error.passed],
        )
        for error in record.accuracy
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2e}"  # noqa: RUF001  (a missing value)
