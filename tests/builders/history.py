"""A made-up history: a support gate, a regression, a failure of each kind."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ivhl.matrix.spec import toml_text
from ivhl.records.record import Arm, CompileFacts, Counted
from ivhl.tracker.support.expectations import EXPECTATIONS
from tests.builders.records import make_failure, make_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ivhl.records.record import RunRecord

PYTHONS = ("3.12", "3.13", "3.14")
TORCHES = ("2.4.1", "2.5.1", "2.6.0", "2.8.0", "2.9.1")
# Speedup by release.
SPEEDUPS = {
    ("ops.field_superposition", "naive-compiled"): (5.1, 5.4, 6.41, 6.6, 6.5),
    ("ops.gp_evolve", "naive-compiled"): (0.97, 0.93, 0.55, 1.04, 1.31),
    ("ops.gp_evolve", "real-compiled"): (1.9, 2.1, 2.2, 2.15, 1.2),
    ("mlff.energy_forces", "naive-compiled"): (1.4, 1.42, 1.51, 1.55, 1.61),
}
GATE = "Dynamo is not supported on Python {}+"
SCRIPT = "<script>window.broken = true</script>"
IMAGE = '"><img src=x onerror="window.broken = true">'
COMPILER_ERROR = (
    "backend='inductor' raised:\nCppCompileError: C++ compile error\n\nCommand:\ng++ /tmp/x.cpp "
    "-shared -fPIC -O3\n\nOutput:\n/tmp/x.cpp:2:10: fatal error: Python.h: No such file or "
    "directory\n\nSet TORCHDYNAMO_VERBOSE=1 for the internal stack trace"
)
_GATED = {"3.13": ("2.4.1", "2.5.1"), "3.14": ("2.4.1", "2.5.1", "2.6.0", "2.8.0")}
_BREAK = CompileFacts(
    cold_s=11.2,
    warm_s=1.7,
    frames_total=4,
    frames_ok=4,
    graphs=3,
    calls_captured=212,
    graph_breaks=(Counted(text="Tensor.item() in pair_list, painn.py:88", count=2),),
    recompiles=(
        Counted(
            text="tensor 'edges' size mismatch at index 0. expected 1824, actual 1790", count=3
        ),
    ),
)


def note_change(root: Path, **keys: str) -> None:
    """Add a note on changes to the project's known failures, as a person does."""
    path = root / EXPECTATIONS
    path.parent.mkdir(exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write("\n[[change]]\n")
        file.writelines(f"{key} = {toml_text(value)}\n" for key, value in keys.items())


def history(commits: Sequence[str]) -> Iterator[RunRecord]:
    """Yield records of every case at every commit, oldest first.

    At the last commit ``ops.gp_evolve/real-compiled`` has fallen from 2.15x to 1.2x with the
    newest PyTorch.
    """
    for position, commit in enumerate(commits):
        last = position == len(commits) - 1
        for python in PYTHONS:
            for number, torch in enumerate(TORCHES):
                for (workload, variant), speedups in SPEEDUPS.items():
                    speedup = speedups[number] * (1.0 + 0.02 * PYTHONS.index(python))
                    if torch == TORCHES[-1] and variant == "real-compiled" and not last:
                        speedup = 2.15
                    record = _one(python, torch, workload, variant, speedup)
                    yield replace(
                        record,
                        commit=commit,
                        recorded_at=f"2026-11-{10 + position:02d}T12:{number:02d}:00+00:00",
                    )


def _one(python: str, torch: str, workload: str, variant: str, speedup: float) -> RunRecord:
    about: dict[str, Any] = {
        "python": python,
        "torch": torch,
        "workload": workload,
        "variant": variant,
    }
    if torch in _GATED.get(python, ()):
        return make_failure(message=GATE.format(python), **about)
    if workload == "mlff.energy_forces" and torch == "2.6.0":
        if python == "3.12":
            return make_failure("wrong", SCRIPT, phase="accuracy", exception="", **about)
        return make_failure("backend_compile", COMPILER_ERROR, output_tail=IMAGE, **about)
    record = make_record(speedup=speedup, width=0.035, **about)
    if workload.startswith("mlff"):
        record = replace(record, compile=_BREAK)
    if record.eager is None:  # for the type checker: make_record measures
        return record
    return replace(record, formulation_eager=Arm(calls=4, samples_s=record.eager.samples_s))
