"""The JSON that commands print for programs, as types; docs/schemas/ holds them as JSON Schema.

``python -m ivhl.cli.schemas docs/schemas`` writes them.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pydantic import ConfigDict, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from ivhl.records.record import FailureClass, Phase
from ivhl.script.outcome import Outcome
from ivhl.tracker.changes import Kind, QuantityChange
from ivhl.tracker.comparable import Axis
from ivhl.tracker.confirmations import Confirmation
from ivhl.tracker.facts import FactChange
from ivhl.tracker.metrics import Metric
from ivhl.tracker.regressions import ChangeState
from ivhl.tracker.series import Along
from ivhl.tracker.steps import StepAxis
from ivhl.tracker.wording import Status


@dataclass(frozen=True, kw_only=True)
class _Strict:
    __pydantic_config__ = ConfigDict(extra="forbid")


@dataclass(frozen=True, kw_only=True)
class _Case(_Strict):
    machine: str
    device: str
    workload: str
    workload_version: int
    size: str
    variant: str
    existing: bool


@dataclass(frozen=True, kw_only=True)
class RegressionsChange(_Case):
    """One change of one case; ``effect`` is the factor of what ``effect_of`` names."""

    python: str
    torch: str
    along: Along
    before: str
    place: str
    kind: Kind
    reason: str
    effect: float | None
    effect_of: Metric
    of_levels: bool
    state: ChangeState
    at: str
    command: str
    note: str | None
    confirmation: Confirmation | None


@dataclass(frozen=True, kw_only=True)
class RegressionsIncident(_Strict):
    """Changes in one direction between ``before`` and ``place``; ``cause`` is empty if not known."""

    along: Along
    before: str
    place: str
    worse: bool
    at: str
    cause: str
    changes: list[RegressionsChange]


@dataclass(frozen=True, kw_only=True)
class Regressions(_Strict):
    """What ``ivhl regressions --json`` prints."""

    schema: Literal["ivhl.regressions/1"]
    incidents: list[RegressionsIncident]


@dataclass(frozen=True, kw_only=True)
class ComparisonMean(_Strict):
    """Geometric mean of a ratio; without the limits that one case does not have."""

    ratio: float
    low: float | None = None
    high: float | None = None
    cases: int


@dataclass(frozen=True, kw_only=True)
class ComparisonSummary(_Strict):
    """What was compared in one place, such as a machine; ``means`` are of after over before."""

    place: tuple[str, ...]
    means: dict[Metric, ComparisonMean]
    counts: dict[Kind, int]
    apart: str


@dataclass(frozen=True, kw_only=True)
class ComparisonCase(_Case):
    """One case; ``changes`` are of its times, ``facts`` of what has no noise."""

    python: str
    torch: str
    kind: Kind
    reason: str
    disturbed: bool
    facts: list[FactChange]
    changes: list[QuantityChange]


@dataclass(frozen=True, kw_only=True)
class ComparisonOfTwo(_Strict):
    """What ``ivhl compare --json`` prints."""

    schema: Literal["ivhl.comparison/1"]
    axis: Axis
    cause: str
    summaries: list[ComparisonSummary]
    cases: list[ComparisonCase]


@dataclass(frozen=True, kw_only=True)
class CourseCell(_Strict):
    """One run; ``speedup`` is over eager, ``eager`` and ``compiled`` are seconds, if it has them."""

    python: str
    torch: str
    commit: str
    failure: str | None
    disturbed: bool
    speedup: float | None = None
    eager: float | None = None
    compiled: float | None = None


@dataclass(frozen=True, kw_only=True)
class CourseSide(_Strict):
    """How far one quantity moved at a step, with a 95 % interval."""

    metric: Metric
    ratio: float
    low: float
    high: float
    each: dict[str, float]
    moved: bool


@dataclass(frozen=True, kw_only=True)
class CourseStepOf(_Strict):
    """A place at which a quantity moved, and what differs in the packages installed there."""

    along: StepAxis
    before: str
    place: str
    cells: tuple[str, ...]
    sides: dict[Metric, CourseSide]
    whose: str
    cause: str
    installed: str


@dataclass(frozen=True, kw_only=True)
class CourseCase(_Case):
    """One case on one machine, over all cells."""

    dtype: str
    cells: list[CourseCell]
    steps: list[CourseStepOf]


@dataclass(frozen=True, kw_only=True)
class Course(_Strict):
    """What ``ivhl course --json`` prints."""

    schema: Literal["ivhl.course/1"]
    cases: list[CourseCase]


@dataclass(frozen=True, kw_only=True)
class RunCell(_Strict):
    """How a script ended in a cell; ``group`` is the same number where it ended alike."""

    cell: str
    python: str
    torch: str
    group: int | None
    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class ScriptRun(_Strict):
    """What ``ivhl run --json`` prints; cells are by Python and release."""

    schema: Literal["ivhl.script/1"]
    cells: list[RunCell]
    differences: list[tuple[str, str]]
    unexpected: list[str]


@dataclass(frozen=True, kw_only=True)
class TryFailure(_Strict):
    """Why a target failed, as in a record."""

    phase: Phase
    failure_class: FailureClass
    exception: str
    message: str
    where: str = ""


@dataclass(frozen=True, kw_only=True)
class TrySecond(_Strict):
    """A call with a larger batch; ``off`` is the largest difference over the largest value."""

    inputs: str
    recompiles: int | None = None
    off: float | None = None
    failure: str | None = None


@dataclass(frozen=True, kw_only=True)
class TryCell(_Strict):
    """A target in a cell; ``compile`` and ``accuracy`` are as in a record."""

    cell: str
    python: str
    torch: str
    status: Status
    reason: str
    inputs: str | None
    failure: TryFailure | None
    compile: dict[str, object] | None
    accuracy: list[dict[str, object]]
    eager_s: float | None
    compiled_s: float | None
    second: TrySecond | None


@dataclass(frozen=True, kw_only=True)
class TargetTried(_Strict):
    """What ``ivhl try TARGET --json`` prints."""

    schema: Literal["ivhl.try/1"]
    target: str
    cells: list[TryCell]


SCHEMAS: Final[dict[str, TypeAdapter[object]]] = {
    "regressions": TypeAdapter(Regressions),
    "comparison": TypeAdapter(ComparisonOfTwo),
    "course": TypeAdapter(Course),
    "script": TypeAdapter(ScriptRun),
    "try": TypeAdapter(TargetTried),
}


def schema_text(name: str) -> str:
    """Return a schema as docs/schemas/ has it."""
    found = SCHEMAS[name].json_schema() | {"$schema": GenerateJsonSchema.schema_dialect}
    return json.dumps(found, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    for _name in SCHEMAS:
        Path(sys.argv[1], f"{_name}.json").write_text(schema_text(_name), encoding="utf-8")
