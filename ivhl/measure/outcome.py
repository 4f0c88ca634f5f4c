"""Make the record of a case from what its processes found."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import distributions
from statistics import median
from typing import TYPE_CHECKING, Any, get_args

from ivhl.instrument import INSTRUMENT
from ivhl.measure.contents import python_build
from ivhl.measure.earlier import benchmark_of
from ivhl.measure.failures import LIMIT_REACHED, failed
from ivhl.measure.intervals import clocks_disagree, paired_ratio
from ivhl.measure.job import choose_clock
from ivhl.measure.paths import folders_here, without_folders
from ivhl.measure.run import repeat_command
from ivhl.measure.wheels import installed_wheels
from ivhl.records.reader import read_record
from ivhl.records.record import (
    Arm,
    Calibration,
    CompileFacts,
    Conditions,
    Counted,
    Failure,
    FailureClass,
    Kernels,
    Memory,
    OutputError,
    Phase,
    RecordedObservation,
    RunRecord,
    to_json,
)

if TYPE_CHECKING:
    from ivhl.measure.run import Run
    from ivhl.workload import Case

_LONGEST_MESSAGE = 4000  # characters: the reader takes 64 KiB
ARMS = ("eager", "eager_again", "formulation_eager", "compiled")
_TIMES = frozenset({*ARMS, "calibration", "memory", "kernels", "prepare_s", "finish_s"})


def make_record(
    run: Run,
    case: Case,
    findings: dict[str, Any],
    failure: Failure | None,
    *,
    duration_s: float,
    load: float | None,
    stability: tuple[RecordedObservation, ...] | None = None,
    in_cell: bool = True,
) -> RunRecord:
    """Return the record of a case from its findings and its failure.

    ``in_cell`` says whether this process runs in the cell, so that its packages are the cell's.
    """
    arms = {name: arm_of(data) for name in ARMS if (data := findings.get(name))}
    clock = findings.get("clock", choose_clock(run.effort.device, run.effort.threads))
    eager, compiled = arms.get("eager"), arms.get("compiled")
    if clock == "cpu" and eager and compiled and clocks_disagree(eager, compiled):
        clock = "wall"
        arms = {name: replace(arm, samples_s=arm.wall_s or ()) for name, arm in arms.items()}
        eager, compiled = arms["eager"], arms["compiled"]
    formulation = arms.get("formulation_eager")
    rounds = tuple(findings.get("rounds", ()))
    speedup = formulation_speedup = None
    if failure is None and eager and compiled:
        speedup = paired_ratio(eager.samples_s, compiled.samples_s, rounds)
        if formulation:
            formulation_speedup = paired_ratio(formulation.samples_s, compiled.samples_s, rounds)
    aa = paired_ratio(eager.samples_s, arms["eager_again"].samples_s, rounds) if eager else None
    folders = folders_here(run.scratch, run.project_path)
    return RunRecord(
        recorded_at=datetime.now(UTC).isoformat(timespec="seconds"),
        duration_s=round(duration_s, 3),
        project=run.project,
        commit=run.commit,
        cell=run.cell,
        machine=run.machine,
        conditions=Conditions(
            device=findings.get("device", run.effort.device),
            threads=run.effort.threads,
            clock=clock,
            load_average=load,
            instrument=str(INSTRUMENT),
            python_full=sys.version.split()[0] if in_cell else run.cell.python,
            torch_full=findings.get("torch_full"),
            packages=installed_packages(run.project_path) if in_cell else (),
            image=run.image,
            stability=stability,
            wheels=installed_wheels() if in_cell else None,
            gil=findings.get("gil"),
            flags=run.effort.flags,
            quick=not run.effort.is_timed,
            python_build=python_build() if in_cell else None,
        ),
        sources=findings.get("sources"),
        # A process that died has not reported it.
        benchmark=findings.get("benchmark") or (benchmark_of(run, case) if in_cell else None),
        workload=case.workload.name,
        workload_version=case.workload.version,
        size=case.size,
        variant=case.variant.name,
        mode=case.variant.mode,
        dtype=case.dtype,
        engine=case.variant.engine,
        failure=without_folders(failure, folders),
        speedup=speedup,
        aa=aa,
        formulation_speedup=formulation_speedup,
        eager=eager,
        eager_again=arms.get("eager_again"),
        formulation_eager=formulation,
        compiled=compiled,
        compile=without_folders(compile_facts(findings.get("compile")), folders),
        accuracy=tuple(_error_of(e) for e in findings.get("accuracy", [])),
        memory=Memory(**findings["memory"]) if "memory" in findings else None,
        warnings=without_folders(counted(findings.get("warnings", [])), folders),
        command=repeat_command(run, case),
        rounds=rounds,
        draws=findings.get("draws"),
        prepare_s=findings.get("prepare_s"),
        finish_s=findings.get("finish_s"),
        phase_s=findings.get("phase_s"),
        calibration=Calibration(
            **{name: tuple(seconds) for name, seconds in findings["calibration"].items()}
        )
        if "calibration" in findings
        else None,
        uncommitted=run.uncommitted,
        reference=case.level,
        passes=findings.get("passes"),
        leaves=findings.get("leaves"),
        kernels=Kernels(**findings["kernels"]) if "kernels" in findings else None,
    )


def _error_of(found: dict[str, Any]) -> OutputError:
    lists = {
        name: tuple(found[name]) for name in ("shape", "values") if found.get(name) is not None
    }
    return OutputError(**found | lists)


def checked_record(
    run: Run,
    case: Case,
    findings: tuple[dict[str, Any], list[dict[str, Any]]],
    failure: Failure | None,
    **about: Any,  # noqa: ANN401  (those of ``make_record``)
) -> RunRecord:
    """Return the record of a case, which every reader takes.

    The code under test can write into the journals, and its clocks can be wrong. What no reader
    would take is a failure of the case: as a record it would answer for the case, and nobody would
    see it.

    Args:
        run: Settings of the run.
        case: The case.
        findings: Those of the process that compiled, and of those that timed.
        failure: Why it has no result, if it has none.
        about: See ``make_record``.
    """
    compiled, timed = findings
    try:
        found = merge(compiled, timed)
        if not run.effort.is_timed:
            found = without_times(found)
        record = make_record(run, case, found, failure or disturbance(timed), **about)
        read_record(to_json(record).encode())
    except Exception as error:  # noqa: BLE001  (whatever is wrong with what was written there)
        mistake = f"{type(error).__name__}: {error}"[:_LONGEST_MESSAGE]
    else:
        return record
    failure = failed(
        failure.phase if failure else "timing",
        "crash",
        f"its processes reported what no case does: {mistake}",
        output_tail=failure.output_tail if failure else "",
    )
    return make_record(run, case, {}, failure, **about)


def without_times(findings: dict[str, Any]) -> dict[str, Any]:
    """Return the findings without those that a table or a detector would read as a speed."""
    kept = {name: one for name, one in findings.items() if name not in _TIMES}
    if "compile" in kept:
        facts = kept["compile"].items()
        kept["compile"] = {k: v for k, v in facts if not k.startswith(("cold", "warm"))}
    return kept


def failed_everywhere(
    run: Run, case: Case, *, phase: Phase, failure_class: FailureClass, message: str, output: str
) -> RunRecord:
    """Return the record of a case that could not start because its cell could not be set up."""
    assert phase in get_args(Phase)  # noqa: S101  (a mistake in ivhl, not of a user)
    message = message[:_LONGEST_MESSAGE]
    failure = failed(phase, failure_class, message, output_tail=output[-4000:])
    return make_record(run, case, {}, failure, duration_s=0.0, load=None, in_cell=False)


def finished(record: RunRecord) -> dict[str, Any]:
    """Return what the event of a finished case says of it, for the progress display."""
    return {
        "seconds": record.duration_s,
        "speedup": record.speedup.value if record.speedup else None,
        "failure_class": record.failure.failure_class if record.failure else None,
        "beside": what_runs_eagerly(record),
    }


def what_runs_eagerly(record: RunRecord) -> str:
    """Return what of the compiled arm runs eagerly or is compiled again; empty if nothing is.

    It stands beside a speedup: nothing else says that a change of such code has no effect on what
    is compiled.
    """
    facts = record.compile
    if facts is None:
        return ""
    total, compiled = facts.frames_total or 0, facts.frames_ok or 0
    parts = [f"{total - compiled} of {total} frames run eagerly"] if compiled < total else []
    if any(LIMIT_REACHED in warning.text for warning in record.warnings):
        parts.append("the recompile limit was reached")
    for name, counts in (("graph break", facts.graph_breaks), ("recompile", facts.recompiles)):
        if n := sum(one.count for one in counts):
            parts.append(f"{n} {name}{'s' if n > 1 else ''}")
    return ", ".join(parts)


def merge(compiled: dict[str, Any], timed: list[dict[str, Any]]) -> dict[str, Any]:
    """Merge the findings of all processes of a case.

    Samples are concatenated, process by process. The warm compile time is the median of the
    processes; other findings are those of the last process.
    """
    findings = dict(compiled)
    phases: Counter[str] = Counter(compiled.get("phase_s", {}))
    for found in timed:
        phases.update(found.get("phase_s", {}))
        findings |= {k: v for k, v in found.items() if k not in (*ARMS, "compile", "warnings")}
    findings["phase_s"] = {name: round(s, 3) for name, s in phases.items()}
    measured = [found for found in timed if "eager" in found]
    for name in ARMS:
        arms = [found[name] for found in measured if name in found]
        if arms and len(arms) == len(measured):
            findings[name] = {"calls": arms[0]["calls"]} | {
                clock: [s for arm in arms for s in arm[clock]]
                for clock in ("samples_s", "wall_s", "cpu_s")
            }
    if calibrated := [found["calibration"] for found in timed if "calibration" in found]:
        findings["calibration"] = {
            name: [s for one in calibrated for s in one[name]] for name in calibrated[0]
        }
    findings["rounds"] = [len(found["eager"]["samples_s"]) for found in measured]
    warm = [found["compile"] for found in timed if "compile" in found]
    if warm:
        facts = dict(warm[-1])
        for name in ("warm_s", "warm_cpu_s"):
            facts[name] = median(w[name] for w in warm)
        cold = compiled.get("compile", {})
        findings["compile"] = facts | {k: v for k, v in cold.items() if k.startswith("cold")}
    every = [w for found in (compiled, *timed) for w in found.get("warnings", [])]
    counts: Counter[str] = Counter()
    for one in every:
        counts[one["text"]] += one["count"]
    findings["warnings"] = [{"text": t, "count": n} for t, n in counts.most_common(50)]
    return findings


def disturbance(timed: list[dict[str, Any]]) -> Failure | None:
    """Return the failure of a variant that changed eager's times, if all processes report it."""
    if not timed or not all(found.get("disturbed") for found in timed):
        return None
    return failed("timing", "side_effect", timed[0]["disturbed"])


def arm_of(data: dict[str, Any]) -> Arm:
    """Return an arm from its journal entry."""
    return Arm(
        calls=data["calls"],
        samples_s=rounded(data["samples_s"]),
        wall_s=rounded(data["wall_s"]),
        cpu_s=rounded(data["cpu_s"]),
    )


def rounded(samples: list[float]) -> tuple[float, ...]:
    """Round the samples to five digits: more are noise, and would make most of a record's size."""
    return tuple(float(f"{sample:.5g}") for sample in samples)


def compile_facts(data: dict[str, Any] | None) -> CompileFacts | None:
    """Return the facts about compiling from the journal."""
    if data is None:
        return None
    reasons = {name: counted(data[name]) for name in ("graph_breaks", "recompiles")}
    return CompileFacts(**{"cold_s": None, "warm_s": None} | data | reasons)


def counted(items: list[dict[str, Any]]) -> tuple[Counted, ...]:
    """Return the counted reasons or warnings of the journal."""
    return tuple(Counted(**item) for item in items)


def installed_packages(project_path: str | None = None) -> tuple[str, ...]:
    """Return every distribution of this interpreter as ``name==version``, sorted.

    Args:
        project_path: See ``Run``; what is there hides what has the same name elsewhere.
    """
    places = [path for path in (project_path,) if path] + sys.path
    found: dict[str, str] = {}
    for one in distributions(path=places):
        found.setdefault(one.name.lower().replace("_", "-"), one.version)
    return tuple(sorted(f"{name}=={version}" for name, version in found.items()))
