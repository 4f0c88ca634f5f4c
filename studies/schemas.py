"""The JSON that commands print for programs, and the files that ivhl reads, as types.

``python -m studies.schemas docs/schemas`` writes them as JSON Schema; with ``--release``, also
those of the files into ``released``. The fields of an answer are a text, ``NAMES: TYPE; ...``;
names without a type are texts.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final, Literal, NotRequired

from pydantic import ConfigDict, TypeAdapter, with_config
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import TypedDict

from ivhl.matrix.spec import Matrix
from ivhl.observatory.record import Observed
from ivhl.observatory.rows import _CaseTable, _RowTable
from ivhl.records.record import FailureClass, Machine, RunRecord
from ivhl.script.outcome import ScriptOutcome
from ivhl.tracker.changes.comparable import Axis
from ivhl.tracker.changes.confirmations import Confirmation
from ivhl.tracker.changes.kinds import Kind, QuantityChange
from ivhl.tracker.changes.regressions import ChangeState
from ivhl.tracker.changes.series import Along
from ivhl.tracker.changes.steps import StepAxis
from ivhl.tracker.store.facts import FactChange
from ivhl.tracker.store.metrics import Metric
from ivhl.tracker.support.expectations import _File as ExpectationsFile
from ivhl.tracker.wording import Status

# Names that the texts of fields use, beside those of Python and the objects themselves.
_TYPES: Final[dict[str, Any]] = {
    "Any": Any, "Along": Along, "Axis": Axis, "ChangeState": ChangeState,
    "Confirmation": Confirmation, "FactChange": FactChange,
    "FailureClass": FailureClass, "Kind": Kind, "Machine": Machine, "Metric": Metric,
    "NotRequired": NotRequired, "QuantityChange": QuantityChange, "RunRecord": RunRecord,
    "ScriptOutcome": ScriptOutcome, "Status": Status, "StepAxis": StepAxis,
}  # fmt: skip
_CASE = "machine device workload size variant; workload_version: int; existing: bool; "
_PLACED = "tier interpreter python_full: str | None; "
# The fields of what is in answers, by its name.
_OBJECTS: Final = {
    # ``effect`` is the factor of what ``effect_of`` names.
    "Change": _CASE + "python torch before place reason at command; along: Along; kind: Kind; "
    "effect: float | None; effect_of: Metric; of_levels: bool; state: ChangeState; "
    "note: str | None; confirmation: Confirmation | None",
    # ``cause`` is empty if it is not known.
    "Incident": "before place at cause; along: Along; worse: bool; changes: list[Change]",
    # Without the limits that one case does not have.
    "RatioOfCases": "ratio: float; low high: NotRequired[float]; cases: int",
    "Summary": "apart; place: tuple[str, ...]; means: dict[Metric, RatioOfCases]; "
    "counts: dict[Kind, int]",
    "Compared": _CASE
    + "python torch reason; kind: Kind; disturbed: bool; facts: list[FactChange]; "
    "changes: list[QuantityChange]",
    # ``speedup`` is over eager, ``eager`` and ``compiled`` are seconds, if the run has them.
    "Ran": "python torch commit; failure: str | None; disturbed: bool; "
    "speedup eager compiled: NotRequired[float]",
    "Side": "metric: Metric; ratio low high: float; each: dict[str, float]; moved: bool",
    "Step": "before place whose installed cause; along: StepAxis; cells: tuple[str, ...]; "
    "sides: dict[Metric, Side]",
    "CourseOfCase": _CASE + "dtype; cells: list[Ran]; steps: list[Step]",
    "Cell": _PLACED + "id python torch lock message; cases: NotRequired[list[str]]",
    "FailingCase": "case cell machine device",
    "UnexpectedCase": "case cell machine device class message",
    "KnownFailure": "python torch workload variant size machine device class reason; "
    "free-threaded: bool | None; occurs fixed otherwise: list[FailingCase]; link: str | None; "
    "never_matches: bool",
    "Contradicted": "works: list[str]; since: str | None",
    "VersionCheck": "file kind name source reason excludes standing; line: int; "
    "contradicted: dict[str, Contradicted]; evidence: list[str]",
    "CellWorth": "run passing slow short over: int; speedup: float | None",
    "MeanOfCells": "ratio low high: float; cases: int",
    "OtherPython": "fails degraded slower fixed: list[str]; speedup: MeanOfCells | None",
    "Span": "word; torch not_run: list[str]",
    "ExpectedFailure": "class reason; link: str | None",
    "CaseInCell": "python torch cell machine device workload size variant status message; "
    "failure_class reference commit recorded_at command: str | None; "
    "speedup speedup_low speedup_high within_low within_high aa_low aa_high: float | None; "
    "quick existing uncommitted: bool | None; graph_breaks eager_frames recompiles: int | None; "
    "expectation: ExpectedFailure | None",
    "Observed": "check level seen hint",
    "Batch": "machine device commit cell; existing: bool; new had: int",
    "RefusedRecord": "place rule hint",
    # ``jobs`` are libraries; ``workers`` serve the cell.
    "PlannedCell": "cell; jobs workers: int; core_s: float",
    "FleetMember": "machine; id beat_s: int; serves: list[str]; now: str | None",
    "QueuedCell": "cell; todo doing done imported failed core_s: int",
    "JobSetAside": "name cell; said: list[str]",
    "NotMeasured": "machine device; cases: int",
    "ConfirmedCase": "cell case verdict text; rounds: int",
    "Between": "place reason",
    "Installable": "lock message",
    "FailedTarget": "phase exception message; failure_class: FailureClass; where: NotRequired[str]",
    # A call with a larger batch; ``off`` is the largest difference over the largest value.
    "LargerBatch": "inputs; recompiles: NotRequired[int]; varies: NotRequired[bool]; "
    "off: NotRequired[float]; unlike failure: NotRequired[str]",
    "TriedInCell": "cell python torch reason; status: Status; inputs: str | None; "
    "failure: FailedTarget | None; compile: dict[str, Any] | None; accuracy: list[dict[str, Any]]; "
    "eager_s compiled_s: float | None; second: LargerBatch | None; known: list[str]",
    # ``verdict`` is the word of the pages.
    "ObservedInCell": "verdict library case ask target cell python torch instrument machine at why "
    "unavailable page; status: Status; rank graphs recompiles: int | None; graph_breaks: int; "
    "inputs version lock overlay: str | None; failure_class: FailureClass | None; "
    "cpu_s wall_s: float; error compile_s eager_s compiled_s: float | None; signatures: list[str]",
    "Pair": "torch python",
    "JudgedDependency": "name word why version asked over_releases at",
    # How a script ended; ``group`` is the same number in cells where it ended alike.
    "RunInCell": "cell python torch; group: int | None; outcome: ScriptOutcome; known: list[str]",
}
# The fields of each answer; its schema is one more.
_ANSWERS: Final = {
    "regressions": "incidents: list[Incident]",
    "comparison": "cause cause_better; axis: Axis; summaries: list[Summary]; cases: list[Compared]",
    "course": "cases: list[CourseOfCase]",
    "compat": "rows: list[CaseInCell]",
    "results": "records: list[RunRecord]",
    "advice": "machine device python torch text; cell: CellWorth; support_over: int; "
    "compared_with: dict[str, OtherPython]; support: dict[str, list[Span]]",
    "ready": "place; judged: list[JudgedDependency]; pair newer newest later: Pair | None; "
    "holding unknown notes: list[str]; others: int; is_allowed: bool; tried: list[Pair]",
    "doctor": "device; machine: Machine; counts: dict[str, int]; findings: list[Observed]",
    "check": "problems notes unused_notes: list[str]; expected: list[KnownFailure]; "
    "not_expected: list[UnexpectedCase]",
    "import": "batches: list[Batch]; refused: list[RefusedRecord]",
    "fleet-plan": "cells: list[PlannedCell]",
    "fleet-status": "workers: list[FleetMember]; cells: list[QueuedCell]; "
    "aside: list[JobSetAside]",
    "gate": "headline base head; findings: list[dict[str, Any]]; not_measured: list[NotMeasured]; "
    "corrected_over: int; confirmed: list[ConfirmedCase]",
    "attribution": "first last: dict[str, Any]; factors: list[str]; "
    "overall cases: list[dict[str, Any]]",
    "bisection": "along case python for before after evidence command; culprit: str | None; "
    "between: list[Between]; probability seconds: float; ends: Any; notes: list[str]; "
    "answers runs: int",
    "estimate": "places runs most_runs answers: int; clear_runs: int | None; run_s: float | None",
    "blame": "case bad symptom report; good stage culprit: str | None; sure: bool; "
    "rate bisected cures differences: Any; stages settings factors script: dict[str, Any]",
    "repetition": "kind because lock recorded; beside: list[str]; again: dict[str, Any]",
    "version-checks": "checks: list[VersionCheck]",
    "matrix": "cells: list[Cell]",
    "cell": _PLACED + "id python torch lock path message; sha256: str | None; "
    "packages: dict[str, str]",
    "cell-diff": "first second axis; matched: bool; reasons: list[str]; "
    "added removed forced: dict[str, str]; changed: dict[str, tuple[str, str]]",
    "releases": "releases: dict[str, dict[str, Installable]]",
    "script": "cells: list[RunInCell]; differences: list[tuple[str, str]]; unexpected: list[str]",
    "try": "target; cells: list[TriedInCell]",
    # A file of the site.
    "observatory": "rows: list[ObservedInCell]",
}


def _object(name: str, text: str, **more: object) -> Any:  # noqa: ANN401  (a type)
    """Return the type of an object with these fields and no others."""
    parts = [part.partition(":") for part in text.split(";")]
    fields = {
        field: eval(kind.strip() or "str", _TYPES)  # noqa: S307  (a text of this module)
        for names, _, kind in parts
        for field in names.split()
    }
    return with_config(ConfigDict(extra="forbid"))(TypedDict(name, fields | more))  # type: ignore[operator]


for _name, _text in _OBJECTS.items():
    _TYPES[_name] = _object(_name, _text)

# Numbers of the answers that have lost a field; all other answers have 1.
_NUMBERS: Final = {"estimate": 2}
SCHEMAS: Final[dict[str, TypeAdapter[object]]] = {
    name: TypeAdapter(
        _object(name, text, schema=Literal.__getitem__(f"ivhl.{name}/{_NUMBERS.get(name, 1)}"))
    )
    for name, text in _ANSWERS.items()
}


class _LibraryRow(_RowTable):
    cases: dict[str, str | _CaseTable]  # each is read by itself


# Of files that ivhl reads; ``record`` is of every version, and ``expectations`` also holds the
# annotations of changes. The site's compatibility.json is the answer ``compat``. The index of the
# records is a cache: ivhl makes it again, so its form has no schema.
FILES: Final[dict[str, TypeAdapter[Any]]] = {
    "record": TypeAdapter(RunRecord),
    "expectations": TypeAdapter(ExpectationsFile),
    "matrix": TypeAdapter(Matrix),
    "libraries": TypeAdapter(dict[str, _LibraryRow]),
    "observed": TypeAdapter(Observed),
}


def schema_text(name: str) -> str:
    """Return the schema of an answer as docs/schemas/ has it."""
    return _as_text(SCHEMAS[name].json_schema())


def file_schema_text(name: str) -> str:
    """Return the schema of a file as docs/schemas/files/ has it.

    Readers refuse unknown fields, also those of dataclasses, which pydantic would pass over.
    """
    found = FILES[name].json_schema()
    for part in (found, *found.get("$defs", {}).values()):
        if "properties" in part:
            part.setdefault("additionalProperties", False)
    return _as_text(found)


def _as_text(schema: dict[str, Any]) -> str:
    found = schema | {"$schema": GenerateJsonSchema.schema_dialect}
    return json.dumps(found, indent=1, sort_keys=True) + "\n"


def main() -> None:
    """Write all schemas."""
    parser = argparse.ArgumentParser(prog="python -m studies.schemas", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--release", action="store_true", help="these are the released ones now")
    arguments = parser.parse_args()
    for name in SCHEMAS:
        (arguments.folder / f"{name}.json").write_text(schema_text(name), encoding="utf-8")
    for folder in ("files", "released")[: 1 + arguments.release]:
        for name in FILES:
            path = arguments.folder / folder / f"{name}.json"
            path.write_text(file_schema_text(name), encoding="utf-8")


if __name__ == "__main__":
    main()
