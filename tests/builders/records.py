"""Make records as cells write them, without running anything."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ivhl.instrument import INSTRUMENT
from ivhl.matrix.spec import CellSpec
from ivhl.records.record import (
    Arm,
    Cell,
    CompileFacts,
    Conditions,
    Counted,
    Failure,
    Interval,
    Machine,
    Memory,
    OutputError,
    RunRecord,
)
from ivhl.tracker.store.spread import Scores, Spread, Spreads
from ivhl.workload import Workload

if TYPE_CHECKING:
    from ivhl.records.record import FailureClass, Phase
    from ivhl.tracker.store.entries import Run
    from ivhl.tracker.store.metrics import Metric

_NOT_MEASURED: dict[str, Any] = {
    "speedup": None,
    "aa": None,
    "eager": None,
    "eager_again": None,
    "compiled": None,
    "compile": None,
    "accuracy": (),
    "memory": None,
}

EMPTY_WORKLOAD = Workload(
    name="ops.empty",
    version=1,
    title="Nothing",
    sizes={"small": 1},
    default_size="small",
    make_inputs="m:f",
    eager="m:f",
    reference="m:f",
    outputs=("y",),
    variants=(),
)
COMMIT = "0123456789abcdef0123456789abcdef01234567"
# What no reader sees: one character of each kind that can hide in a text.
UNSEEN = (
    "\u200b\u200d\u2060\ufeff\u00ad"  # zero width, soft hyphen
    "\u034f\u115f\u17b4\u180b\u3164\uffa0\ufe0f\U000e0100"  # letters and marks that are blank
    "\U000e0041\U000e007f"  # tags
    "\u202e\u2066\u061c\u2028\u2029\x85"  # direction, lines
    "\ue000\U0010ffff\ufff8\uffff\u00a0\u2800"  # private, unassigned, blanks
)


def interval(value: float, width: float = 0.02) -> Interval:
    return Interval(
        value=value,
        low=value * (1 - width),
        high=value * (1 + width),
        confidence=0.95,
        n=40,
    )


def make_record(
    *,
    python: str = "3.12",
    torch: str = "2.6.0",
    workload: str = "ops.gp_evolve",
    size: str = "small",
    variant: str = "naive-compiled",
    speedup: float | None = 2.0,
    width: float = 0.02,
    failure: Failure | None = None,
    **changes: Any,  # noqa: ANN401  (any field of the record)
) -> RunRecord:
    """Return a measured record; ``changes`` replace its fields."""
    cell = CellSpec(python, torch)
    eager_s = 1.2e-3
    record = RunRecord(
        recorded_at="2026-11-01T12:00:00+00:00",
        duration_s=31.0,
        project="ivhl",
        commit=COMMIT,
        cell=Cell(id=cell.id, python=python, torch=torch, lock_sha256="ab" * 32),
        machine=Machine(
            name="bench", cpu="A CPU", n_cpus=8, memory_bytes=32 << 30, system="Linux 6.1"
        ),
        conditions=Conditions(
            device="cpu",
            threads=1,
            clock="cpu",
            quick=False,
            load_average=0.3,
            instrument=str(INSTRUMENT),
            python_full=f"{python}.1",
            torch_full=f"{torch}+cpu",
            packages=("numpy==2.1.0", f"torch=={torch}", "triton==3.1.0"),
        ),
        workload=workload,
        workload_version=1,
        size=size,
        variant=variant,
        mode="default",
        dtype="float32",
        failure=failure,
        speedup=None if speedup is None else interval(speedup, width),
        aa=interval(1.0, 0.01),
        formulation_speedup=None,
        eager=Arm(calls=10, samples_s=(eager_s,) * 8),
        eager_again=Arm(calls=10, samples_s=(eager_s,) * 8),
        formulation_eager=None,
        compiled=Arm(calls=10, samples_s=(eager_s / (speedup or 1.0),) * 8),
        compile=CompileFacts(
            cold_s=6.4,
            warm_s=0.9,
            frames_total=2,
            frames_ok=2,
            graphs=2,
            calls_captured=31,
            graph_breaks=(Counted(text="call to print()", count=1),),
            recompiles=(Counted(text="tensor 'x' size mismatch at index 0", count=2),),
        ),
        accuracy=(
            OutputError(
                output="psi",
                scale=1.0,
                eager_max=3.0e-7,
                eager_rmse=1.1e-7,
                compiled_max=2.8e-7,
                compiled_rmse=1.0e-7,
                limit_rmse=1.0e-5,
                passed=True,
            ),
        ),
        memory=Memory(eager_peak=48 << 20, compiled_peak=16 << 20),
        warnings=(),
        command=(
            f"ivhl bench --python {cell.python} --torch {cell.torch} --workload {workload} "
            f"--size {size} --variant {variant} --force"
        ),
    )
    return replace(record, **changes)


def verdict(record: RunRecord) -> RunRecord:
    """Return the record of a run that asks only whether the case works."""
    facts = record.compile and replace(record.compile, cold_s=None, warm_s=None)
    return replace(
        record,
        conditions=replace(record.conditions, quick=True),
        compile=facts,
        speedup=None,
        aa=None,
        eager=None,
        eager_again=None,
        compiled=None,
        memory=None,
    )


def whole(record: RunRecord) -> RunRecord:
    """Return a record of code that compiling took in whole: no graph break, no recompile."""
    assert record.compile is not None
    facts = replace(record.compile, graph_breaks=(), recompiles=())
    return replace(record, compile=facts)


def make_failure(
    failure_class: FailureClass = "support_gate",
    message: str = "Dynamo is not supported on Python 3.13+",
    *,
    phase: Phase = "compile",
    exception: str = "builtins.RuntimeError",
    output_tail: str = "Traceback (most recent call last):\n  ...",
    **changes: Any,  # noqa: ANN401  (any argument of make_record)
) -> RunRecord:
    """Return a record of a case that failed before anything could be compared."""
    failure = Failure(
        phase=phase,
        failure_class=failure_class,
        exception=exception,
        message=message,
        where="gp.py:41",
        output_tail=output_tail,
    )
    return make_record(**{"failure": failure, **_NOT_MEASURED, **changes})


class Known(Spreads):
    """Spreads that are the same for all records."""

    def __init__(self, tau: float) -> None:
        super().__init__()
        self._spread = Spread(tau, Scores(2.0, 2.5, 2.5), Scores(2.0, 2.5, 2.5), 100, "a test")

    def of(self, run: Run, metric: Metric = "speedup", *, calibrated: bool = False) -> Spread:
        """Return the spread."""
        del run, metric
        return replace(self._spread, calibrated=calibrated)
