"""The facts of a record, which have no noise, and their changes between two records.

Times need a test; these do not. A graph break, a recompile or a larger error is a finding by
itself, and the first candidate for the cause of a change in time.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, get_args

from ivhl.records.record import JUMPS, CompileFacts, Counted, OutputError, RunRecord
from ivhl.tracker.wording import counted, eager_frames

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


FactKind = Literal[
    "outputs", "fallback", "graph_breaks", "recompiles", "graphs", "error", "warnings", "size"
]  # fmt: skip
FACT_KINDS: tuple[FactKind, ...] = get_args(FactKind)

# A larger error is worse from this factor on; below one rounding of the largest value it counts as
# that.
WORSE_ERROR = 2.0
_ROUNDING = {"float64": 2.0**-53, "float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}
# A record has the worst of several draws, which are not the same in every run. Over many elements
# that makes no difference; the error of a single number, such as a loss, moves by some roundings.
_ROUNDINGS_OF_ONE_NUMBER = 4
# What PyTorch said of the harness itself, in each case: 2.10.0 of the profiler, by which it measures
# memory, until 25 November 2026; 2.4.1 and 2.5.1 of how it loads references, until 27 November 2026.
_OF_THE_HARNESS = (
    "Profiler clears events at the end of each cycle",
    "You are using `torch.load` with `weights_only=False`",
)
# What differs between two runs or two edits of a file, and is not the reason itself: also where a
# resumed function begins, which compilation of a function a guard is of, and quoted source.
_VARYING = re.compile(
    r"0x[0-9a-f]+|(?<=[:\s])\d+(?=[,:)\s]|$)|line \d+|(?<=_at)_\d+|\b\d+/\d+\b|\s#.*",
    re.IGNORECASE | re.MULTILINE,
)
_RECOMPILED = "Recompiling function "
_GUARD_LINES = (
    3  # function, "triggered by ...", and the guard of the newest compilation that failed
)
_SHOWN = 160


@dataclass(frozen=True, slots=True)
class FactChange:
    """A change in what a record says without noise.

    Attributes:
        worse: ``True`` if it costs something, ``False`` if it saves something, ``None`` if neither
            can be said.
        text: What it was and is now, with the reasons that are new or gone.
        causes: Of graph breaks and recompiles, those that are more than before: reason and function,
            without lines.
    """

    kind: FactKind
    worse: bool | None
    text: str
    causes: tuple[str, ...] = ()


def changed_facts(before: RunRecord, after: RunRecord) -> tuple[FactChange, ...]:
    """Return what changed, the worst first.

    Args:
        before: A measured record of the case.
        after: Another one; it may be of another commit, release or Python.
    """
    found = [
        *_outputs(before, after),
        *_compiling(before.compile, after.compile),
        *_errors(before, after),
    ]
    was, now = (_warnings(record) for record in (before, after))
    if new := [text for bare, text in now.items() if bare not in was]:
        found.append(FactChange("warnings", None, f"new warning: {_listed(new)}"))
    elif gone := was.keys() - now.keys():
        found.append(FactChange("warnings", None, f"{counted(len(gone), 'warning')} less"))
    return tuple(sorted(found, key=_rank))


def is_still_worse(before: RunRecord, after: RunRecord, newest: RunRecord) -> bool:
    """Return whether a later record still shows a fact that became worse between two.

    A graph break or recompile of another cause is another change.
    """
    then, now = (
        [fact for fact in changed_facts(before, record) if fact.worse]
        for record in (after, newest)
    )
    return any(
        one.kind == other.kind and (not one.causes or set(one.causes) & set(other.causes))
        for one in then
        for other in now
    )


def facts_digest(record: RunRecord) -> str:
    """Return a digest of all that ``changed_facts`` compares, but the errors (``errors_of``)."""
    facts = record.compile
    compiling = None
    if facts is not None:
        reasons = [
            sorted((_bare(one.text), one.count) for one in listed)
            for listed in (facts.graph_breaks, facts.recompiles)
        ]
        compiling = [
            *reasons, facts.frames_total, facts.frames_ok, facts.graphs, facts.calls_captured
        ]  # fmt: skip
    returned = [
        (one.output, one.dtype, one.shape, one.values)
        for one in record.accuracy
        if one.dtype is not None
    ]
    text = json.dumps([compiling, sorted(_warnings(record)), returned])
    return sha256(text.encode()).hexdigest()[:16]


def errors_of(record: RunRecord) -> list[tuple[str, float | None, float]]:
    """Return the name, error and scale of each output."""
    return [(one.output, one.compiled_rmse, one.scale) for one in record.accuracy]


def warnings_of(record: RunRecord) -> tuple[Counted, ...]:
    """Return the warnings of the code that was measured, without those of the harness."""
    return tuple(
        one for one in record.warnings if not any(text in one.text for text in _OF_THE_HARNESS)
    )


def _warnings(record: RunRecord) -> dict[str, str]:
    """Return the warnings by their text without what varies."""
    return {_bare(one.text): one.text for one in warnings_of(record)}


def _rank(change: FactChange) -> tuple[int, int]:
    return ((True, None, False).index(change.worse), FACT_KINDS.index(change.kind))


def _compiling(before: CompileFacts | None, after: CompileFacts | None) -> Iterator[FactChange]:
    if before is None or after is None:
        return
    yield from _reasons("graph_breaks", "graph break", before.graph_breaks, after.graph_breaks)
    yield from _reasons("recompiles", "recompile", before.recompiles, after.recompiles)
    if None not in (before.frames_total, before.frames_ok, after.frames_total, after.frames_ok):
        was, now = eager_frames(before), eager_frames(after)
        if was != now:
            text = f"{now} of {after.frames_total} frames run eagerly, {was} before"
            yield FactChange("fallback", now > was, text)
    if before.graphs is not None and after.graphs is not None and before.graphs != after.graphs:
        text = f"{counted(after.graphs, 'graph')}, {before.graphs} before"
        # More graphs without more breaks: the code was divided, which may well be an improvement.
        yield FactChange("graphs", None, text)
    was_captured, now_captured = before.calls_captured, after.calls_captured
    if None not in (was_captured, now_captured) and was_captured != now_captured:
        text = f"{counted(now_captured or 0, 'operation')} in the graphs, {was_captured} before"
        yield FactChange("size", None, text)


def _reasons(
    kind: FactKind, word: str, before: Iterable[Counted], after: Iterable[Counted]
) -> Iterator[FactChange]:
    """Compare counted reasons by cause and function: lines and addresses in them do not count."""
    was, now = (Counter[str]() for _ in range(2))
    shown: dict[str, str] = {}
    for counts, reasons in ((was, before), (now, after)):
        for one in reasons:
            counts[_bare(one.text)] += one.count
            shown[_bare(one.text)] = one.text
    more, less = now - was, was - now
    if not more and not less:
        return
    a, b = was.total(), now.total()
    worse = b > a if a != b else None
    which = more or less
    sign = "new" if more else "gone"
    reasons_shown = _listed([shown[text] for text in which])
    text = f"{counted(b, word)}, {a} before; {sign}: {reasons_shown}"
    yield FactChange(kind, worse, text, tuple(sorted(more)))


def _outputs(before: RunRecord, after: RunRecord) -> Iterator[FactChange]:
    """Compare what eager code returns: both arms changed alike, so no error shows it."""
    was = {one.output: one for one in before.accuracy}
    if text := _structure(before, after):
        yield FactChange("outputs", worse=True, text=text)
    values = _are_of_equal_inputs(before, after)
    for now in after.accuracy:
        then = was.get(now.output)
        if then is None or None in (then.dtype, now.dtype):
            continue
        a, b = ((one.dtype, one.shape) for one in (then, now))
        text = _value(then, now) if values else ""
        if a != b:
            text = f"{_tensor(now)}, {_tensor(then)} before"
        if text:
            text = f"output {now.output}: eager returns {text}"
            yield FactChange("outputs", worse=True, text=text)


def _structure(before: RunRecord, after: RunRecord) -> str:
    """Return which outputs eager code returns at one of two commits only; empty if none.

    Between releases of PyTorch the state of an optimizer has other names. A record of a large
    model names some outputs only.
    """
    if before.cell.torch != after.cell.torch:
        return ""
    was, now = ([one.output for one in r.accuracy if one.dtype] for r in (before, after))
    counts = [record.leaves or len(record.accuracy) for record in (before, after)]
    if [len(was), len(now)] == counts and 0 not in counts:
        new, gone = ([n for n in one if n not in other] for one, other in ((now, was), (was, now)))
        if new and gone:
            return f"eager returns {_listed(new)}, {_listed(gone)} before"
        if new or gone:
            return f"eager returns {_listed(new or gone)} {'now' if new else 'no longer'}"
    if None not in (before.leaves, after.leaves) and counts[0] != counts[1]:
        return f"eager returns {counted(counts[1], 'output')}, {counts[0]} before"
    return ""


def _are_of_equal_inputs(before: RunRecord, after: RunRecord) -> bool:
    """Return whether the first input sets are equal, and no rounding decides what is returned."""
    was, now = (
        (record.benchmark, record.cell, record.machine.name, record.machine.cpu,
         record.conditions.device)
        for record in (before, after)
    )  # fmt: skip
    jumps = any(JUMPS in one.text for one in (*before.warnings, *after.warnings))
    return was == now and before.benchmark is not None and not jumps


def _value(then: OutputError, now: OutputError) -> str:
    """Return the first value that is off by more than the errors of both; empty if none is."""
    if then.values is None or now.values is None or None in (then.limit_max, now.limit_max):
        return ""
    allowed = (then.limit_max or 0.0) + (now.limit_max or 0.0)
    for a, b in zip(then.values, now.values, strict=False):
        if abs(a - b) > allowed:
            return f"{b:.6g} where it returned {a:.6g} before; {allowed:.2g} is allowed"
    return ""


def _tensor(error: OutputError) -> str:
    return f"{error.dtype} {list(error.shape or ())}"


def _errors(before: RunRecord, after: RunRecord) -> Iterator[FactChange]:
    """Compare the errors against float64, each of the worst draw of its run."""
    was = {one.output: one for one in before.accuracy}
    for now in after.accuracy:
        then = was.get(now.output)
        if then is None or then.compiled_rmse is None or now.compiled_rmse is None:
            continue
        floor = _ROUNDING.get(after.dtype, 2.0**-24) * max(now.scale, then.scale)
        if then.compiled_rmse == then.compiled_max and now.compiled_rmse == now.compiled_max:
            floor *= _ROUNDINGS_OF_ONE_NUMBER
        a, b = max(then.compiled_rmse, floor), max(now.compiled_rmse, floor)
        if not (a > 0 and b > 0) or max(a, b) < WORSE_ERROR * min(a, b):
            continue
        yield FactChange(
            "error",
            b > a,
            f"error of {now.output}: RMSE {now.compiled_rmse:.2g} against float64, "
            f"{then.compiled_rmse:.2g} before{_eager_error(then, now)}",
        )


def _eager_error(then: OutputError, now: OutputError) -> str:
    if then.eager_rmse is None or now.eager_rmse is None or not then.eager_rmse:
        return ""
    moved = now.eager_rmse / then.eager_rmse
    if 1 / WORSE_ERROR < moved < WORSE_ERROR:
        return "; eager's is as before"
    return f"; eager's went from {then.eager_rmse:.2g} to {now.eager_rmse:.2g}"


@lru_cache(maxsize=1024)  # most runs of a case say the same
def _bare(text: str) -> str:
    """Return a reason without what an edit elsewhere in the file changes.

    Of a recompile, Dynamo lists a guard of each compilation that did not fit, until the record cuts
    the list.
    """
    if text.startswith(_RECOMPILED):
        text = "\n".join(text.splitlines()[:_GUARD_LINES])
    return " ".join(_VARYING.sub("", text).split())


def _listed(texts: Iterable[str]) -> str:
    lines = [" ".join(text.split()) for text in texts]
    first = lines[0] if len(lines[0]) <= _SHOWN else lines[0][: _SHOWN - 1] + "…"
    return first if len(lines) == 1 else f"{first} (and {len(lines) - 1} more)"
