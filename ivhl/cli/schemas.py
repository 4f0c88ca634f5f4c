"""The JSON that commands print for programs, as types; docs/schemas/ holds them as JSON Schema.

``python -m ivhl.cli.schemas docs/schemas`` writes them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import GenericAlias
from typing import Any, Final, Literal, NotRequired

from pydantic import ConfigDict, TypeAdapter, with_config
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import TypedDict

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
from ivhl.tracker.wording import Status
from ivhl.version_checks.sites import CompileSite


def _object(name: str, texts: str = "", **fields: object) -> Any:  # noqa: ANN401  (a type)
    """Return the type of an object with these fields and no others; ``texts`` names its texts."""
    every = dict.fromkeys(texts.split(), str) | fields
    return with_config(ConfigDict(extra="forbid"))(TypedDict(name, every))  # type: ignore[operator]


def _list(of: object) -> Any:  # noqa: ANN401  (a type)
    return GenericAlias(list, (of,))


def _by_name(of: object) -> Any:  # noqa: ANN401  (a type)
    return GenericAlias(dict, (str, of))


def _answer(name: str, texts: str = "", **fields: object) -> TypeAdapter[object]:
    """Return what a command prints: an object that names its schema."""
    return TypeAdapter(
        _object(name, texts, schema=Literal.__getitem__(f"ivhl.{name}/1"), **fields)
    )


_Maybe = str | None
_CASE = {
    **dict.fromkeys(("machine", "device", "workload", "size", "variant"), str),
    "workload_version": int,
    "existing": bool,
}
# ``effect`` is the factor of what ``effect_of`` names.
_Change = _object(
    "Change",
    "python torch before place reason at command",
    **_CASE,
    along=Along,
    kind=Kind,
    effect=float | None,
    effect_of=Metric,
    of_levels=bool,
    state=ChangeState,
    note=str | None,
    confirmation=Confirmation | None,
)
# ``cause`` is empty if it is not known.
_Incident = _object(
    "Incident", "before place at cause", along=Along, worse=bool, changes=_list(_Change)
)
# Without the limits that one case does not have.
_RatioOfCases = _object(
    "RatioOfCases", "", ratio=float, low=NotRequired[float], high=NotRequired[float], cases=int
)
_Summary = _object(
    "Summary",
    "apart",
    place=tuple[str, ...],
    means=GenericAlias(dict, (Metric, _RatioOfCases)),
    counts=dict[Kind, int],
)
_Compared = _object(
    "Compared",
    "python torch reason",
    **_CASE,
    kind=Kind,
    disturbed=bool,
    facts=list[FactChange],
    changes=list[QuantityChange],
)
# ``speedup`` is over eager, ``eager`` and ``compiled`` are seconds, if the run has them.
_Ran = _object(
    "Ran",
    "python torch commit",
    failure=str | None,
    disturbed=bool,
    **dict.fromkeys(("speedup", "eager", "compiled"), NotRequired[float]),
)
_Side = _object(
    "Side",
    "",
    metric=Metric,
    **dict.fromkeys(("ratio", "low", "high"), float),
    each=dict[str, float],
    moved=bool,
)
_Step = _object(
    "Step",
    "before place whose installed cause",
    along=StepAxis,
    cells=tuple[str, ...],
    sides=GenericAlias(dict, (Metric, _Side)),
)
_Course = _object("CourseOfCase", "dtype", **_CASE, cells=_list(_Ran), steps=_list(_Step))
_Count = dict[str, int]
_PLACED = {"tier": _Maybe, "interpreter": _Maybe, "python_full": _Maybe}
_Cell = _object("Cell", "id python torch lock message", **_PLACED, cases=NotRequired[list[str]])
_Failing = _object("FailingCase", "case cell machine device")
_NotExpected = _object("UnexpectedCase", "case cell machine device class message")
_Known = _object(
    "KnownFailure",
    "python torch workload variant size machine device class reason",
    **{"free-threaded": bool | None},
    **dict.fromkeys(("occurs", "fixed", "otherwise"), _list(_Failing)),
    link=_Maybe,
    never_matches=bool,
)
_Check = _object(
    "VersionCheck",
    "file kind name source reason excludes standing",
    line=int,
    contradicted=_by_name(_object("Contradicted", works=list[str], since=_Maybe)),
    evidence=list[str],
)
_Worth = _object(
    "CellWorth",
    "",
    **dict.fromkeys(("run", "passing", "slow", "short", "over"), int),
    speedup=float | None,
)
_Mean = _object("MeanOfCells", ratio=float, low=float, high=float, cases=int)
_Beside = _object(
    "OtherPython",
    "",
    **dict.fromkeys(("fails", "degraded", "slower", "fixed"), list[str]),
    speedup=_Mean | None,
)
_Span = _object("Span", "word", torch=list[str], not_run=list[str])
_Evidence = _object(
    "Evidence",
    "text machine device",
    own=bool,
    support=_list(_object("SupportOfCase", "what python text")),
    cell=tuple[str, str] | None,
)
_Row = _object(
    "CaseInCell",
    "python torch cell machine device workload size variant status message",
    **dict.fromkeys(("failure_class", "reference", "commit", "recorded_at", "command"), _Maybe),
    **dict.fromkeys(("speedup", "speedup_low", "speedup_high", "within_low"), float | None),
    **dict.fromkeys(("within_high", "aa_low", "aa_high"), float | None),
    **dict.fromkeys(("quick", "existing", "uncommitted"), bool | None),
    **dict.fromkeys(("graph_breaks", "eager_frames", "recompiles"), int | None),
    expectation=_object("ExpectedFailure", "class reason", link=_Maybe) | None,
)

SCHEMAS: Final[dict[str, TypeAdapter[object]]] = {
    "regressions": _answer("regressions", incidents=_list(_Incident)),
    "comparison": _answer(
        "comparison", "cause", axis=Axis, summaries=_list(_Summary), cases=_list(_Compared)
    ),
    "course": _answer("course", cases=_list(_Course)),
    "compat": _answer("compat", rows=_list(_Row)),
    "results": _answer("results", records=list[RunRecord]),
    "advice": _answer(
        "advice",
        "machine device python torch text",
        cell=_Worth,
        support_over=int,
        compared_with=_by_name(_Beside),
        support=_by_name(_list(_Span)),
    ),
    "code-advice": _answer(
        "code-advice",
        "name version recommendation",
        requires=_object("Required", "python", torch=list[str]),
        files=int,
        problems=list[str],
        compiles=list[CompileSite],
        version_checks_that_exclude_it=list[str],
        evidence=_list(_Evidence),
    ),
    "doctor": _answer(
        "doctor",
        "device",
        machine=Machine,
        counts=_Count,
        findings=_list(_object("Observed", "check level seen hint")),
    ),
    "check": _answer(
        "check",
        problems=list[str],
        notes=list[str],
        expected=_list(_Known),
        not_expected=_list(_NotExpected),
    ),
    "import": _answer(
        "import",
        batches=_list(
            _object("Batch", "machine device commit cell", existing=bool, new=int, had=int)
        ),
        refused=_list(_object("RefusedRecord", "place rule hint")),
    ),
    "gate": _answer(
        "gate",
        "headline base head",
        findings=list[dict[str, Any]],
        not_measured=_list(_object("NotMeasured", "machine device", cases=int)),
        corrected_over=int,
        confirmed=_list(_object("ConfirmedCase", "cell case verdict text", rounds=int)),
    ),
    "attribution": _answer(
        "attribution",
        "",
        **dict.fromkeys(("first", "last"), dict[str, Any]),
        factors=list[str],
        **dict.fromkeys(("overall", "cases"), list[dict[str, Any]]),
    ),
    "bisection": _answer(
        "bisection",
        "along case python for before after evidence command",
        culprit=_Maybe,
        between=_list(_object("Between", "place reason")),
        probability=float,
        ends=Any,
        notes=list[str],
        answers=int,
        runs=int,
        seconds=float,
    ),
    "estimate": _answer(
        "estimate",
        "",
        **dict.fromkeys(("places", "runs", "most_runs", "answers"), int),
        clear_runs=int | None,
        run_s=float | None,
    ),
    "blame": _answer(
        "blame",
        "case bad symptom report",
        **dict.fromkeys(("good", "stage", "culprit"), _Maybe),
        sure=bool,
        **dict.fromkeys(("rate", "bisected", "cures", "differences"), Any),
        **dict.fromkeys(("stages", "settings", "factors", "script"), dict[str, Any]),
    ),
    "repetition": _answer(
        "repetition",
        "kind because lock recorded",
        beside=list[str],
        again=dict[str, Any],
    ),
    "version-checks": _answer("version-checks", checks=_list(_Check)),
    "matrix": _answer("matrix", cells=_list(_Cell)),
    "cell": _answer(
        "cell",
        "id python torch lock path message",
        **_PLACED,
        sha256=_Maybe,
        packages=dict[str, str],
    ),
    "cell-diff": _answer(
        "cell-diff",
        "first second axis",
        matched=bool,
        reasons=list[str],
        **dict.fromkeys(("added", "removed", "forced"), dict[str, str]),
        changed=dict[str, tuple[str, str]],
    ),
    "releases": _answer(
        "releases", releases=_by_name(_by_name(_object("Installable", "lock message")))
    ),
}

_Failed = _object(
    "FailedTarget", "phase exception message", failure_class=FailureClass, where=NotRequired[str]
)
# A call with a larger batch; ``off`` is the largest difference over the largest value.
_Second = _object(
    "LargerBatch",
    "inputs",
    recompiles=NotRequired[int],
    random=NotRequired[bool],
    off=NotRequired[float],
    unlike=NotRequired[str],
    failure=NotRequired[str],
)
_Tried = _object(
    "TriedInCell",
    "cell python torch reason",
    status=Status,
    inputs=_Maybe,
    failure=_Failed | None,
    compile=dict[str, Any] | None,
    accuracy=list[dict[str, Any]],
    **dict.fromkeys(("eager_s", "compiled_s"), float | None),
    second=_Second | None,
)
# How a script ended; ``group`` is the same number in cells where it ended alike.
_RanScript = _object("RunInCell", "cell python torch", group=int | None, outcome=ScriptOutcome)
SCHEMAS["script"] = _answer(
    "script",
    cells=_list(_RanScript),
    differences=list[tuple[str, str]],
    unexpected=list[str],
)
SCHEMAS["try"] = _answer("try", "target", cells=_list(_Tried))


def schema_text(name: str) -> str:
    """Return a schema as docs/schemas/ has it."""
    found = SCHEMAS[name].json_schema() | {"$schema": GenerateJsonSchema.schema_dialect}
    return json.dumps(found, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    for _name in SCHEMAS:
        Path(sys.argv[1], f"{_name}.json").write_text(schema_text(_name), encoding="utf-8")
