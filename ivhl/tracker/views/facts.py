"""The facts of one record as labelled texts."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, TypeAlias

from ivhl.instrument import describe_instrument
from ivhl.tracker import wording
from ivhl.tracker.store.kept import Provenance, digest_of
from ivhl.tracker.store.metrics import Metric, measured
from ivhl.tracker.store.records import is_existing
from ivhl.tracker.support.compat import format_speedup
from ivhl.workload import INDUCTOR_ENGINES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ivhl.records.record import Arm, RunRecord, Wheel
    from ivhl.tracker.store.spread import Spreads


# A label and its value, e.g. ``cold`` and ``6.4 s``.
Fact: TypeAlias = tuple[str, str]


def fact_groups(record: RunRecord, spreads: Spreads) -> dict[str, list[Fact]]:
    """Return what a record says of speed, compiling, memory and its run, by title."""
    groups = {
        "Verdict": [*_verdict(record)],
        "Speed": [*_speed(record, spreads)],
        "Compiling": [*_compiling(record)],
        "Peak memory of a call": [*_memory(record)],
        "Run on the GPU by a call": [*_kernels(record)],
        "Run": [*_run(record)],
    }
    return {title: facts for title, facts in groups.items() if facts}


def signed_by(record: RunRecord, provenance: Mapping[str, Provenance]) -> dict[str, list[Fact]]:
    """Return which workflow signed a record that was imported; nothing for any other."""
    found = provenance.get(digest_of(record)) if provenance else None
    if found is None:
        return {}
    facts = [
        ("workflow", found.workflow),
        ("at commit", found.commit),
        ("run", found.run),
        ("checked at import", found.at),
    ]
    return {"Signed by": facts}


def _verdict(record: RunRecord) -> Iterable[Fact]:
    # Of a case that failed before its outputs, nothing was judged.
    if record.failure is None or record.failure.failure_class == "wrong":
        yield ("outputs", wording.REFERENCE_MEANINGS[record.reference])
    if record.leaves is not None:
        yield ("outputs judged", f"{record.leaves}, of which the worst are listed")
    if record.passes is not None:
        yield ("what a call does", wording.PASSES_WORDS[record.passes])
    if record.uncommitted:
        yield (wording.UNCOMMITTED_MARK, wording.UNCOMMITTED_MEANING)


def _speed(record: RunRecord, spreads: Spreads) -> Iterable[Fact]:
    if record.speedup:
        percent = f"{record.speedup.confidence:.0%}"
        another = spreads.another_run(record)
        if another is not None:
            learnt = spreads.of(record).origin
            text = f"{format_speedup(another)} (from {learnt})"
            yield ("speedup, expected for another run", text)
        yield (f"speedup, {percent} interval within this run", format_speedup(record.speedup))
        yield ("pairs of samples", str(record.speedup.n))
    if record.aa:
        yield ("eager over eager (noise)", format_speedup(record.aa))
    if record.formulation_speedup:
        yield ("speedup over the same source, eager", format_speedup(record.formulation_speedup))
    arms: tuple[tuple[str, Arm | None, Metric | None], ...] = (
        ("eager", record.eager, "eager"),
        (_arm_word(record), record.compiled, "compiled"),
        ("same source eager", record.formulation_eager, None),
    )
    for label, arm, metric in arms:
        if arm is not None and arm.samples_s:
            yield (f"{label}, median call", wording.seconds(median(arm.samples_s)))
        found = measured(record, metric) if metric is not None else None
        # As ivhl course and the curves have it: one process that was slow counts as one.
        if found is not None:
            yield (f"{label}, mean of the processes' medians", wording.seconds(found.value))


def _compiling(record: RunRecord) -> Iterable[Fact]:
    facts = record.compile
    if facts is None:
        return
    first = wording.FIRST_CALL_WORDS.get(record.engine, "first call")
    if facts.cold_s is not None:
        yield (first, wording.seconds(facts.cold_s))
    if facts.cold_cpu_s is not None:
        yield ("its CPU time, all processes", wording.seconds(facts.cold_cpu_s))
    if facts.cold_at is not None:
        yield ("its time of measurement", facts.cold_at)
    if record.engine in INDUCTOR_ENGINES:
        warm = "not measured" if facts.warm_s is None else wording.seconds(facts.warm_s)
        yield ("warm compile, cache on disk", warm)
    if facts.graphs is None:  # the engine does not use Dynamo
        return
    yield ("frames compiled", f"{facts.frames_ok} of {facts.frames_total}")
    yield ("graphs", str(facts.graphs))
    yield ("operations captured", str(facts.calls_captured))
    yield ("graph breaks", str(sum(c.count for c in facts.graph_breaks)))
    yield ("recompiles", str(sum(c.count for c in facts.recompiles)))


def _arm_word(record: RunRecord) -> str:
    """Return the name of the variant's arm, ``variant`` if its engine does not compile."""
    return "compiled" if record.engine in INDUCTOR_ENGINES else "variant"


def _memory(record: RunRecord) -> Iterable[Fact]:
    held = record.memory
    if held is None:
        return
    if held.eager_peak is not None:
        yield ("eager", wording.memory(held.eager_peak))
    if held.compiled_peak is not None:
        yield (_arm_word(record), wording.memory(held.compiled_peak))


def _kernels(record: RunRecord) -> Iterable[Fact]:
    ran = record.kernels
    if ran is None:
        return
    yield ("eager", f"{wording.counted(ran.eager, 'kernel')}, {wording.seconds(ran.eager_s)}")
    yield (
        _arm_word(record),
        f"{wording.counted(ran.compiled, 'kernel')}, {wording.seconds(ran.compiled_s)}",
    )


def _run(record: RunRecord) -> Iterable[Fact]:
    conditions, machine = record.conditions, record.machine
    yield ("commit", record.commit)
    yield ("recorded", record.recorded_at)
    yield ("duration", wording.seconds(record.duration_s))
    if is_existing(record):
        yield ("environment", "existing, without a lock")
    yield ("kind of run", f"quick: {wording.QUICK_MEANING}" if conditions.quick else "full")
    yield ("engine", wording.ENGINE_WORDS.get(record.engine, record.engine))
    yield ("mode, dtype", f"{record.mode}, {record.dtype}")
    yield ("device", conditions.device)
    if conditions.image is not None:
        yield ("container image", conditions.image)
    yield ("instrument", describe_instrument(conditions.instrument))
    yield ("threads, clock", f"{conditions.threads}, {conditions.clock}")
    if conditions.load_average is not None:
        yield ("load before the case", f"{conditions.load_average:.2f}")
    for one in conditions.stability or ():
        mark = "" if one.level == "ok" else f" ({one.level})"
        yield (f"{one.check} before the run", f"{one.seen}{mark}")
    yield ("machine", f"{machine.name}: {machine.cpu}, {machine.n_cpus} CPUs")
    yield ("memory, system", f"{wording.memory(machine.memory_bytes)}, {machine.system}")
    built = f", built with {conditions.python_build}" if conditions.python_build else ""
    yield ("Python", f"{conditions.python_full}{built}")
    if conditions.torch_full is not None:
        yield ("PyTorch", conditions.torch_full)
    for wheel in conditions.wheels or ():
        yield (f"{wheel.name} wheel", _wheel(wheel))
    if conditions.gil is not None:
        yield ("global interpreter lock", "on" if conditions.gil else "off")
    if record.sources is not None:
        yield ("sources that the case reaches", record.sources[:12])
    if record.benchmark is not None:
        yield ("sources of the benchmark", record.benchmark[:12])
    yield ("workload version", str(record.workload_version))


def _wheel(wheel: Wheel) -> str:
    build = "" if wheel.build is None else f"build {wheel.build}, "
    return f"{build}{', '.join(wheel.tags)}, files {(wheel.record_sha256 or 'unknown')[:12]}"


def error_lines(record: RunRecord) -> list[dict[str, str]]:
    """Return the errors of the outputs against the float64 reference."""
    verdicts = {True: "passed", False: "exceeded", None: "not judged"}
    return [
        {
            "output": error.output,
            "eager": _number(error.eager_rmse)
            + (
                ""
                if error.anchor_rmse is None
                else f"; {_number(error.anchor_rmse)} in {record.dtype}"
            ),
            "compiled": _number(error.compiled_rmse),
            "limit": _number(error.limit_rmse),
            "verdict": verdicts[error.passed],
        }
        for error in record.accuracy
    ]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2e}"  # noqa: RUF001  (a missing value)
