"""In which releases a script shows a symptom, and the text of an issue on it, without a cell."""

from __future__ import annotations

import ast
import math
import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from ivhl.cli.report import _report_of
from ivhl.errors import ResultsError, UnknownNameError
from ivhl.matrix.locks import lock_state
from ivhl.matrix.spec import CellSpec
from ivhl.observatory.plain import script_of_case
from ivhl.observatory.signatures import CAUSE_KINDS, fault_of, with_same_cause
from ivhl.observatory.views import Libraries, load_libraries
from ivhl.script.cells import SHIPPED
from ivhl.script.matrix import Wanted
from ivhl.script.outcome import ScriptOutcome, not_run
from ivhl.script.report import ScriptReport, as_markdown, scrubbed, since, without_secrets
from ivhl.script.symptom import (
    OFF,
    Onset,
    ScriptBlame,
    Symptom,
    blame_script,
    find_first,
    find_symptom,
)
from ivhl.shipped import shipped_records
from studies.house import ROOT
from tests.builders.observatory import VERDICTS, make_observed, make_row
from tests.unit.test_signatures import SHOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

RIGHT = ScriptOutcome(ending="exit 0", output="1.0\n", graphs=1, graph_breaks=0, recompiles=0)
BAD = replace(RIGHT, ending="exit 1", exception="torch._dynamo.exc.Unsupported", message="so")
OTHER = replace(RIGHT, ending="SIGSEGV")
_SETATTR = (
    "Attempted setattr on a user-defined object that does not have an AttributeMutation "
    "mutation_type"
)
_SETS = replace(OTHER, message=_SETATTR)
ENDS = {
    "shows": (BAD, RIGHT),
    "right": (RIGHT, RIGHT),
    "other": (OTHER, RIGHT),
    "refuses": (replace(BAD, message="Dynamo is not supported on Python 3.12+"), RIGHT),
    "eager": (BAD, BAD),
    "absent": (not_run("no wheel"), not_run("no wheel")),
}
LIBRARIES, _ = load_libraries(shipped_records())


def _run_of(
    words: Sequence[str],
) -> tuple[Callable[..., ScriptOutcome], list[CellSpec], list[Any]]:
    """Return a function that runs a script in a cell of each word, the cells, and what ran."""
    cells = [CellSpec("3.12", f"2.{n}.0") for n in range(len(words))]
    ran: list[Any] = []

    def run(cell: CellSpec, change: Any = None) -> ScriptOutcome:  # noqa: ANN401
        ran.append((cell, change))
        return ENDS[words[cells.index(cell)]][change == OFF]

    return run, cells, ran


@given(
    st.lists(st.sampled_from(sorted(ENDS)), max_size=20),
    st.lists(st.sampled_from(["right", "absent"]), max_size=4),
)
def test_the_first_release_shows_it_and_the_one_before_does_not(
    older: list[str], newer: list[str]
) -> None:
    words = [*older, "shows", *newer]
    run, cells, ran = _run_of(words)
    onset = find_symptom(run, cells)
    spent = len(ran)
    find_first(run, onset, cells)
    assert onset.cell == cells[len(older)]
    known = [cell for cell in cells if words[cells.index(cell)] != "absent"]
    assert words[cells.index(onset.first)] == "shows"
    below = known.index(onset.first) - 1
    assert onset.before == (known[below] if below >= 0 else None)
    assert onset.before is None or words[cells.index(onset.before)] != "shows"
    above = known[known.index(onset.cell) + 1 :]
    assert onset.fixed == (above[0] if above else None)
    shown = [word == "shows" for word in older if word != "absent"]
    if shown == sorted(shown):  # it began once
        assert onset.first == next(cell for cell in known if words[cells.index(cell)] == "shows")
    halves = 2 * (2 + math.ceil(math.log2(len(older) + 1)))
    halves *= 1 if onset.before is None or words[cells.index(onset.before)] != "other" else 2
    assert len(ran) - spent <= halves + older.count("absent")
    assert onset.right is None or words[cells.index(onset.right)] == "right"


@given(st.integers(0, 2), st.integers(0, 9), st.integers(0, 9), st.integers(1, 3))
def test_where_the_release_before_ends_in_another_way_the_newest_that_is_right_is_found(
    refuse: int, right: int, other: int, show: int
) -> None:
    words = ["refuses"] * refuse + ["right"] * right + ["other"] * other + ["shows"] * show
    run, cells, _ = _run_of(words)
    onset = find_symptom(run, cells)
    find_first(run, onset, cells)
    assert onset.first == cells[refuse + right + other]
    assert onset.right == (cells[refuse + right - 1] if right and other else None)
    last = cells[refuse + right - 1].torch
    more = f", as releases since {cells[refuse + right].torch} do" if other > 1 else ""
    assert (f"(`SIGSEGV`){more}; {last} is right" in since(onset)) == bool(right and other)
    oldest = ", the oldest that compiles on Python 3.12; " in since(onset)
    assert oldest == bool(refuse and not right and not other)


def test_wrong_values_without_a_graph_are_none_of_the_compiler() -> None:
    """A script catches what Dynamo raises, and prints it."""
    symptom = Symptom(seen=replace(RIGHT, output="stale\n"), without=RIGHT)
    refused = replace(RIGHT, output="Dynamo is not supported on Python 3.12+\n", graphs=0)
    assert symptom.of(refused) == "other"
    assert symptom.of(replace(refused, graphs=1)) == "shows"
    assert symptom.of(replace(refused, graphs=None)) == "shows"
    cells = [CellSpec("3.12", "2.2.2"), CellSpec("3.12", "2.4.1")]
    onset = Onset(symptom=symptom, cell=cells[1], first=cells[1], before=cells[0])
    onset.outcomes |= {cells[0]: (refused, "other"), cells[1]: (symptom.seen, "shows")}
    text = "2.2.2 ends in another way (`Dynamo is not supported on Python 3.12+`)"
    assert text in since(onset)


@pytest.mark.parametrize(
    ("text", "ends", "named"),
    [
        # The cause is in all releases before 2.15: where 2.13.0 is right, it is another.
        ("f(x).copy_(y)\nx.add_(1)", {"2.12.1": BAD}, "pytorch/pytorch#198131"),
        ("f(x).copy_(y)\nx.add_(1)", {"2.12.1": BAD, "2.13.0": RIGHT}, ""),
        # A release before the first has the message of a known cause.
        (
            "f(x)",
            {"2.8.0": RIGHT, "2.9.1": _SETS, "2.10.0": _SETS, "2.12.1": BAD},
            "pytorch/pytorch#171590",
        ),
    ],
)
def test_a_cause_is_named_by_the_releases_beside_those_that_show_it(
    text: str, ends: dict[str, ScriptOutcome], named: str
) -> None:
    cells = [CellSpec("3.12", torch) for torch in ends]

    def run(cell: CellSpec, change: object) -> ScriptOutcome:
        return RIGHT if change == OFF else ends[cell.torch]

    onset = find_symptom(run, cells)
    find_first(run, onset, cells)
    report = _report_of(text, onset, ScriptBlame("inductor"), None, "ivhl report x.py")
    assert [one.short for one in report.perhaps] == [named] * bool(named)


def test_a_script_that_shows_nothing_says_what_else_can_be_asked() -> None:
    run, cells, ran = _run_of(["absent", "right", "right"])
    with pytest.raises(ResultsError, match=r"no failure to report.* in 2 releases") as raised:
        find_symptom(run, cells)
    assert "--expect" in raised.value.hint
    run, cells, ran = _run_of(["right", "eager"])
    with pytest.raises(ResultsError, match=r"Unsupported: so without the compiler, too"):
        find_symptom(run, cells)
    assert len(ran) == 2  # older releases tell nothing of a script that fails by itself

    def breaks(cell: CellSpec, change: object) -> ScriptOutcome:
        del cell
        return replace(RIGHT, graph_breaks=0 if change == OFF else 2, reasons=("a print",))

    with pytest.raises(ResultsError) as raised:
        find_symptom(breaks, cells)
    assert "--for graph-break" in raised.value.hint
    onset = find_symptom(breaks, cells, count="graph_breaks")
    assert onset.cell == cells[-1]
    with pytest.raises(ResultsError, match="has no recompiles"):
        find_symptom(breaks, cells, count="recompiles")
    run, cells, _ = _run_of(["absent"])
    with pytest.raises(ResultsError, match="ran in no cell: no wheel"):
        find_symptom(run, cells)


def test_a_release_that_refuses_this_python_is_no_symptom_once_a_later_one_works() -> None:
    """But it is one where no later release was asked for: the founding case of ivhl."""
    refused = replace(BAD, message="Dynamo is not supported on Python 3.12+")
    cells = [CellSpec("3.12", "2.2.2"), CellSpec("3.12", "2.4.1")]

    def run(cell: CellSpec, change: object) -> ScriptOutcome:
        return refused if cell.torch == "2.2.2" and change != OFF else RIGHT

    with pytest.raises(ResultsError, match="no failure to report"):
        find_symptom(run, cells)
    assert find_symptom(run, cells[:1]).cell == cells[0]


def test_an_older_release_in_which_eager_code_fails_is_neither_right_nor_a_symptom() -> None:
    run, cells, _ = _run_of(["shows", "eager", "right"])
    onset = find_symptom(run, cells)
    assert (onset.cell, onset.fixed) == (cells[0], cells[2])
    assert onset.outcomes[cells[1]][1] == "eager"
    run, cells, _ = _run_of(["eager", "right"])
    with pytest.raises(ResultsError, match="in 1 release"):
        find_symptom(run, cells)


def test_fewer_recompiles_are_said_to_be_fewer() -> None:
    cells = [CellSpec("3.12", release) for release in ("2.5.1", "2.6.0")]
    seen, few = replace(RIGHT, recompiles=8), replace(RIGHT, recompiles=1)
    onset = Onset(
        symptom=Symptom(seen=seen, without=seen, count="recompiles"),
        cell=cells[1],
        outcomes={cells[0]: (few, "other"), cells[1]: (seen, "shows")},
        first=cells[1],
        before=cells[0],
    )
    assert "; 2.5.1 has fewer (`1 recompile`); the newest shows it, too." in since(onset)
    assert "| 2.5.1 | has fewer | `1 recompile` |" in as_markdown(_report(onset=onset))
    onset.outcomes[CellSpec("3.12", "2.2.2")] = not_run("no wheel"), "absent"
    assert "| 2.2.2 |" not in as_markdown(_report(onset=onset))


def test_what_varies_between_two_runs_is_no_symptom() -> None:
    times = iter(range(100))

    def timed(cell: CellSpec, change: object) -> ScriptOutcome:
        del cell, change
        return replace(RIGHT, output=f"took {next(times)}.5 s\n")

    with pytest.raises(ResultsError, match="no failure to report"):
        find_symptom(timed, [CellSpec("3.12", "2.6.0")])
    ends = iter([BAD, RIGHT])
    with pytest.raises(ResultsError, match="flaky"):
        find_symptom(
            lambda _, change: RIGHT if change else next(ends), [CellSpec("3.12", "2.6.0")]
        )


def test_wrong_values_need_not_be_the_same_to_be_one_symptom() -> None:
    symptom = Symptom(seen=replace(RIGHT, output="nan\n"), without=RIGHT)
    assert symptom.of(replace(RIGHT, output="3e38\n")) == "shows"
    assert symptom.of(RIGHT) == "right"
    assert symptom.of(BAD) == "other"
    off = Symptom(seen=replace(RIGHT, output="1.5\n"), without=RIGHT)
    ends = {"1.5": "shows", "1.004": "right", "1.006": "shows", "nan": "shows", "0.2": "shows"}
    assert {x: off.of(replace(RIGHT, output=f"{x}\n")) for x in ends} == ends
    asserts = replace(BAD, exception="AssertionError", frames=(("x.py", 3, "<module>"),))
    compares = replace(asserts, frames=(("/lib/torch/testing/_comparison.py", 9, "error_metas"),))
    inside = replace(asserts, frames=(("/lib/torch/_dynamo/guards.py", 9, "build"),))
    assert [symptom.of(one) for one in (asserts, compares, inside)] == ["shows", "shows", "other"]
    caught = replace(asserts, inner=("torch._dynamo.exc.Unsupported", "so"))
    assert symptom.of(caught) == "other"
    raises = Symptom(seen=inside, without=RIGHT)
    for exception, message, word in (
        ("torch._dynamo.exc.InternalTorchDynamoError", "AssertionError: so", "shows"),
        ("torch._dynamo.exc.Unsupported", "Data dependent operator", "other"),
        ("torch._inductor.exc.InductorError", "CppCompileError: C++ compile error", "other"),
    ):
        assert raises.of(replace(BAD, exception=exception, message=message)) == word
    reworded = Symptom(seen=replace(BAD, message="Unexpected type <class 'keys'>"), without=RIGHT)
    assert reworded.of(replace(BAD, message="Unexpected type: <class 'keys'> of f")) == "shows"
    nothing = replace(RIGHT, recompiles=0, graphs=0)
    counted = Symptom(seen=replace(RIGHT, recompiles=8), without=RIGHT, count="recompiles")
    assert counted.of(nothing) == "other"
    recompiles = {8: "shows", 4: "shows", 1: "other", 0: "right", None: "other"}
    assert {n: counted.of(replace(RIGHT, recompiles=n)) for n in recompiles} == recompiles
    assert counted.of(replace(BAD, recompiles=0)) == "other"
    assert raises.of(replace(BAD, message="Dynamo is not supported on Python 3.12+")) == "other"
    assert raises.of(replace(BAD, ending="SIGSEGV")) == "other"
    wanted = replace(symptom, expected=Wanted(lines=("2.0",)))
    assert wanted.of(RIGHT) == "shows"
    assert wanted.of(replace(RIGHT, output="2.0\n")) == "right"


def _observed(error: str) -> ScriptOutcome:
    """Return how a release from 2.7 says that compiled code raised an exception."""
    message = (
        "Observed exception\n  Explanation: Dynamo found no exception handler at the top-level "
        f"compiled function when encountering an exception.\n\n  Developer debug context: raised "
        f"exception {error}\n\n For more details about this graph break, please visit: "
        "https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0088.html\n"
    )
    return replace(_raised("torch._dynamo.exc.Unsupported", message), graphs=0)


def _raised(
    exception: str, message: str, function: str = "", inner: tuple[str, str] = ("", "")
) -> ScriptOutcome:
    frames = (("/cell/site-packages/torch/x.py", 1, function or "compile_wrapper"),)
    return replace(BAD, exception=exception, message=message, inner=inner, frames=frames)


_QUANTILE = (
    "Dynamo failed to run FX node with fake tensors: call_function <built-in method quantile of "
    "type object at 0x7f14c4f42d60>(*(GradTrackingTensor(lvl=1, value=\n        FakeTensor(..., "
    "size=(3, 4))\n    ), FakeTensor(..., size=(2,))), **{'dim': 1}): got RuntimeError("
    "'InferenceMode::is_enabled() && self.is_inference() INTERNAL ASSERT FAILED at \"/pytorch/aten/"
    "src/ATen/native/VariableMethodStubs.cpp\":66, please report a bug to PyTorch.')"
)
_CPP = (
    "CppCompileError: C++ compile error\n\nCommand:\ng++ a\n\nOutput:\n/tmp/a.cpp:9:3: error: {}"
)
_WORDS_OF_2_4 = 'Observed exception\n\nfrom user code:\n   File "x.py", line 4, in f\n'
_INDUCTOR = "torch._inductor.exc.InductorError"
_BACKEND = "torch._dynamo.exc.BackendCompilerFailed"
_TORCH_RUNTIME = "torch._dynamo.exc.TorchRuntimeError"
# Messages as releases print them, without advice; those of other tests by their names.
FAILURES = {
    **{
        one["name"]: _raised(
            one["failure"]["exception"],
            one["failure"]["message"],
            (one["failure"].get("frame") or "").rpartition(":")[2],
        )
        for one in SHOWN.values()
        if "failure" in one
    },
    "quantile-2.9.1": _raised(
        "torch._dynamo.exc.Unsupported",
        "Data dependent operator\n  Explanation: Operator `aten.equal.default` has a non-Tensor "
        "output whose value is dependent on the data of Tensor inputs.\n",
    ),
    "quantile-2.12.1": _raised(
        _TORCH_RUNTIME,
        f"RuntimeError when making fake tensor call\n  Explanation: {_QUANTILE}\n  Hint: none\n",
    ),
    "quantile-2.15.0": _observed(
        f"RuntimeError({_QUANTILE.replace('/pytorch/', '/__w/pytorch/pytorch/')!r})"
    ),
    "raises-2.4.1": _raised("torch._dynamo.exc.Unsupported", _WORDS_OF_2_4, "exception_handler"),
    "raises-2.9.1": _observed("ValueError([ConstantVariable(str: 'four rows')])"),
    "raises-2.15.0": _observed("ValueError('four rows')"),
    "key-2.9.1": _observed("KeyError([])"),
    "key-2.15.0": _observed("KeyError('b')"),
    "op5-2.7.1": _raised(_INDUCTOR, "KeyError: 'op5'", "finalize"),
    "op8-2.7.1": _raised(_INDUCTOR, "KeyError: 'op8'", "finalize"),
    "op8-elsewhere": _raised(_INDUCTOR, "KeyError: 'op8'", "prune"),
    "bare-2.8.0": _raised(
        _BACKEND, "backend='inductor' raised:\nAssertionError: \n", "simplify_and_reorder"
    ),
    "bare-2.12.1": _raised(_INDUCTOR, "AssertionError: \n\nSet TORCH", "simplify_and_reorder"),
    "bare-elsewhere": _raised(_INDUCTOR, "AssertionError: \n\nSet TORCH", "get_size"),
    "declared-2.12.1": _raised(_INDUCTOR, _CPP.format("'tmp9' was not declared in this scope")),
    "declared-2.6.0": _raised(
        _BACKEND,
        "backend='inductor' raised:\n" + _CPP.format("'tmp7' was not declared in this scope"),
    ),
    "conflicting-2.15.0": _raised(
        _INDUCTOR, _CPP.format("conflicting declaration 'auto at_Half_tmp_acc1_vec'")
    ),
    "odict-2.7.1": _raised("AssertionError", "Unexpected type <class 'odict_keys'>"),
    "odict-inside": _raised(
        "torch._dynamo.exc.InternalTorchDynamoError",
        "AssertionError: Unexpected type <class 'odict_keys'>\n\nfrom user code:\n",
    ),
    "odict-reworded": _raised("AssertionError", "Unexpected type: <class 'odict_keys'> of f"),
    "is_input_buffer-2.6.0": _raised(
        _BACKEND,
        "backend='inductor' raised:\nLoweringException: AttributeError: 'TensorBox' object has no "
        "attribute 'is_input_buffer'",
    ),
    "get_name-2.6.0": _raised(
        _BACKEND,
        "backend='inductor' raised:\nAttributeError: 'complex' object has no attribute 'get_name'",
    ),
}
for _name in (
    "mismatch-compile-liba-2.5.1",
    "mismatch-compile-liba-2.15.0",
    "reshape-liba-2.15.0",
):
    _inner = (FAILURES[_name].exception, FAILURES[_name].message)
    FAILURES[f"caught-{_name}"] = _raised("RuntimeError", "my model does not compile", "f", _inner)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("quantile-2.12.1", "quantile-2.15.0"),
        ("mismatch-compile-liba-2.5.1", "mismatch-compile-liba-2.15.0"),
        ("caught-mismatch-compile-liba-2.5.1", "caught-mismatch-compile-liba-2.15.0"),
        ("caught-mismatch-compile-liba-2.5.1", "mismatch-compile-liba-2.15.0"),
        ("reshape-liba-2.6.0", "reshape-liba-2.15.0"),
        ("raises-2.4.1", "raises-2.15.0"),
        ("raises-2.9.1", "raises-2.15.0"),
        ("key-2.9.1", "key-2.15.0"),
        ("op5-2.7.1", "op8-2.7.1"),
        ("bare-2.8.0", "bare-2.12.1"),
        ("declared-2.6.0", "declared-2.12.1"),
        ("cpp-liba-2.5.1", "cpp-liba-2.15.0"),
        ("complex-liba-2.5.1", "complex-liba-2.15.0"),
        ("unique_lowering-torchdiffeq-2.5.1", "unique_lowering-torchdiffeq-2.15.0"),
        ("missing-cut-liba-2.6.0", "missing-cut-liba-2.15.0"),
        ("backend-liba-2.6.0", "backend-liba-2.15.0"),
        ("names2-liba-2.5.1", "names2-liba-2.15.0"),
        ("odict-2.7.1", "odict-inside"),
        ("odict-inside", "odict-reworded"),
    ],
)
def test_a_failure_is_one_over_releases_by_its_innermost_cause(one: str, other: str) -> None:
    for a, b in ((one, other), (other, one)):
        assert Symptom(seen=FAILURES[a], without=RIGHT).of(FAILURES[b]) == "shows"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("quantile-2.9.1", "quantile-2.12.1"),
        ("quantile-2.9.1", "quantile-2.15.0"),
        ("quantile-2.15.0", "raises-2.15.0"),
        ("raises-2.15.0", "key-2.15.0"),
        ("raises-2.9.1", "key-2.9.1"),
        ("mismatch-compile-liba-2.15.0", "reshape-liba-2.15.0"),
        ("caught-mismatch-compile-liba-2.15.0", "caught-reshape-liba-2.15.0"),
        ("op8-2.7.1", "op8-elsewhere"),
        ("op8-2.7.1", "bare-2.12.1"),
        ("bare-2.12.1", "bare-elsewhere"),
        ("declared-2.12.1", "conflicting-2.15.0"),
        ("is_input_buffer-2.6.0", "get_name-2.6.0"),
        ("complex-liba-2.15.0", "unique_lowering-torchdiffeq-2.15.0"),
        ("missing-cut-liba-2.15.0", "missing-cut-libb-2.15.0"),
        ("names2-liba-2.15.0", "odict-2.7.1"),
    ],
)
def test_two_failures_of_a_script_stay_two(one: str, other: str) -> None:
    for a, b in ((one, other), (other, one)):
        assert Symptom(seen=FAILURES[a], without=RIGHT).of(FAILURES[b]) == "other"


def _report(**changes: Any) -> ScriptReport:  # noqa: ANN401
    cell = CellSpec("3.12", "2.6.0")
    onset = Onset(
        symptom=Symptom(seen=changes.pop("seen", BAD), without=changes.pop("without", RIGHT)),
        cell=cell,
        outcomes={cell: (BAD, "shows"), CellSpec("3.12", "2.5.1"): (OTHER, "other")},
        first=cell,
        before=CellSpec("3.12", "2.5.1"),
    )
    usual = ScriptReport(
        text="print(1)\n",
        onset=onset,
        blame=ScriptBlame("inductor", cures=("a.b=1",)),
        lock=lock_state(SHIPPED, cell),
        command="ivhl report x.py",
    )
    return replace(usual, **changes)


def _report_of_count(**seen: Any) -> ScriptReport:  # noqa: ANN401
    cell = CellSpec("3.12", "2.6.0")
    count: Any = "recompiles" if "recompiles" in seen else "graph_breaks"
    bad = replace(RIGHT, **seen)
    symptom = Symptom(seen=bad, without=bad, count=count)
    outcomes: Any = {cell: (bad, "shows")}
    return _report(onset=Onset(symptom=symptom, cell=cell, outcomes=outcomes, first=cell))


def test_a_report_of_a_count_lists_the_reasons() -> None:
    report = _report_of_count(recompiles=8, failed_guards=("L['n'] == 0", "size mismatch"))
    assert report.title == "[inductor] 8 recompiles: L['n'] == 0 size mismatch"
    text = as_markdown(report)
    assert "## Reasons of recompiles\n\n```\nL['n'] == 0\n```\n\n```\nsize mismatch\n```\n" in text
    text = as_markdown(_report_of_count(graph_breaks=1, reasons=("a print",)))
    assert "## Reasons of graph breaks\n\n```\na print\n```\n" in text
    text = as_markdown(_report_of_count(recompiles=8))
    assert "## Reasons of recompiles\n\nPyTorch 2.6.0 keeps none.\n" in text


def test_a_report_shows_what_the_exception_of_a_script_was_raised_from() -> None:
    report = _report(seen=FAILURES["caught-reshape-liba-2.15.0"])
    assert report.title == (
        "[inductor] TorchRuntimeError: RuntimeError when making fake tensor call, as RuntimeError: "
        "my model does not compile"
    )
    text = as_markdown(report)
    assert (
        "RuntimeError: my model does not compile\n\nraised from\n"
        f"{_TORCH_RUNTIME}: RuntimeError when making fake tensor call\n"
    ) in text


def test_what_is_alike_has_the_cause_of_an_exception_that_a_script_wraps() -> None:
    inner = ("AssertionError", "Unexpected type <class 'odict_keys'>")
    onset = _report(seen=_raised("RuntimeError", "my model does not compile", "f", inner)).onset
    report = _report_of("", onset, ScriptBlame("eager"), LIBRARIES, "ivhl report x.py")
    assert any("gpytorch" in one for one in report.alike)


def test_a_report_of_a_crash_has_no_logs_and_no_warnings() -> None:
    """As PyTorch 2.13.0 prints them, for pytorch/pytorch#190856."""
    errors = (
        "the script's own line\n"
        "/lib/python3.12/site-packages/torch/_subclasses/functional_tensor.py:368: UserWarning: "
        "Failed to initialize NumPy: No module named 'numpy' (Triggered internally at x.cpp:84.)\n"
        '  cpu = _conversion_method_template(device=torch.device("cpu"))\n'
        "W1129 22:43:33.761000 3537 torch/utils/cpp_extension.py:178] [0/0] No CUDA runtime\n"
        "[rank0]:E1129 22:43:33.761000 3537 torch/_dynamo/utils.py:1] [0/0] failed while\n"
        "Exception ignored in: <function f>\n"
        "Traceback (most recent call last):\n"
        + "".join(f'  File "x.py", line {n}, in f{n}\n    f{n + 1}()\n' for n in range(9))
        + "ValueError: of the script\n"
        "double free or corruption (out)\n"
    )
    text = as_markdown(_report(seen=replace(OTHER, output="", errors=errors)))
    ((_, _, shown),) = [re.findall(r"(## Seen)(.*?)```\n(.*?)\n```", text, re.DOTALL)[0]]
    assert shown.splitlines() == [
        "the script's own line",
        "Exception ignored in: <function f>",
        "Traceback (most recent call last):",
        *(
            line
            for n in (6, 7, 8)
            for line in (f'  File "x.py", line {n}, in f{n}', f"    f{n + 1}()")
        ),
        "ValueError: of the script",
        "double free or corruption (out)",
        "(SIGSEGV)",
    ]


HOSTILE = st.text(alphabet="`~#*_|<>[]()!\\\n\r\t &\x1b\u202e[31mabc-=", max_size=40)


@given(HOSTILE)
def test_nothing_that_a_script_prints_is_markup(text: str) -> None:
    bad = replace(BAD, message=f"x{text}", output=text, frames=((f"/a/{text}.py", 1, text),))
    blame = ScriptBlame("", why=text)
    report = as_markdown(_report(text=f"# {text}\n", seen=bad, blame=blame, alike=(f"x{text}",)))
    plain = as_markdown(_report(blame=ScriptBlame("", why="x"), alike=("x",)))
    assert not re.search("[\x1b\u202e\r]", report)

    def shape(markdown: str) -> list[tuple[str, str]]:
        """Return the blocks of a text, and what is no text in its lines."""
        found = []
        for token in MarkdownIt("commonmark").enable("table").parse(markdown):
            if token.type != "inline":
                found.append((token.type, token.tag))
            found += [
                (child.type, child.tag)
                for child in token.children or ()
                if child.type not in ("text", "text_special", "code_inline", "softbreak")
            ]
        return found

    assert shape(report) == shape(plain)


def test_a_report_names_no_folder_no_token_and_no_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "s3cr3t-of-mine")
    monkeypatch.setenv("HOME", "/home/somebody")
    torn = "hf_" + "a" * 30
    text = (
        f"File /home/somebody/cells/lib/python3.12/site-packages/torch/x.py:3 {torn} "
        f"s3cr3t-of-mine https://me:pass@host.org/a/b \x1b[31mred\x1b[0m in /tmp/torch_me/k.cpp "
        "'/usr/local' at 0x7fa6210a7740"
    )
    assert scrubbed(text) == (
        "File site-packages/torch/x.py:3 TOKEN TOKEN https://TOKEN@host.org/a/b red in k.cpp "
        "'/usr/local' at 0x..."
    )
    code = "open('/home/somebody/x.pt'); open('/dev/null'); open('/home/somebody2')"
    assert without_secrets(code) == "open('~/x.pt'); open('/dev/null'); open('/home/somebody2')"
    report = as_markdown(_report(seen=replace(BAD, message=text)))
    assert not re.search(f"somebody|s3cr3t|{torn}|:pass", report)
    host = os.uname().nodename
    assert len(host) < 8 or host not in report


def test_a_report_says_since_when_where_and_what_cures() -> None:
    report = _report(alike=("botorch: the same message",))
    assert report.title == "[inductor] Unsupported: so"
    text = as_markdown(report)
    assert "raises `Unsupported: so`; without the compiler it ends well." in text
    assert "The first release that shows it is 2.6.0; 2.5.1 ends in another way" in text
    assert "Cured by `a.b=1`." in text
    assert "- botorch: the same message" in text
    assert "torch 2.6.0" in text
    alone = replace(report.onset, before=None, fixed=CellSpec("3.12", "2.7.1"))
    assert since(alone) == (
        "The first release that shows it is 2.6.0, the oldest that can be tried; 2.7.1 is right "
        "again."
    )


WRONG = replace(RIGHT, output="2.0\n")
_MODEL = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
    def forward(self, x):
        return torch.argmin(self.layer(x).transpose(0, 1) + 1, dim=0)
net = Net()
print(torch.compile(net)(torch.randn(2, 2)))
"""


@pytest.mark.parametrize(
    ("text", "seen", "title"),
    [
        (
            "@torch.compile\ndef f(x):\n    return torch.sin(x.atan())\nprint(f(torch.ones(3)))",
            WRONG,
            "other values than eager code: atan, sin",
        ),
        (
            "def f(x):\n    return torch.ldexp(x, x)\nf2 = torch.compile(f, backend='inductor')",
            replace(RIGHT, ending="exit 1"),
            "exit 1: ldexp",
        ),
        (
            "def f(x):\n    return x[-1] + 1\ntorch.compile(f)",
            replace(RIGHT, ending="SIGSEGV"),
            "SIGSEGV: x[-1] + 1",
        ),
        ("def f(x):\n    x += 1\ntorch.compile(f)", WRONG, "other values than eager code"),
        ("torch.compile(lambda x: x.abs())", WRONG, "other values than eager code: abs"),
        (_MODEL, WRONG, "other values than eager code: transpose, argmin"),
        (
            _MODEL.replace("compile(net)", "compile(Net())"),
            WRONG,
            "other values than eager code: transpose, argmin",
        ),
        (f'"""A sum is off."""\n{_MODEL}', WRONG, "other values than eager code: A sum is off."),
        ("not Python", WRONG, "other values than eager code"),
        (
            "x = 1\nraise RuntimeError('the wrong row')",
            replace(
                BAD,
                exception="RuntimeError",
                message="the wrong row",
                frames=(("x.py", 2, "<module>"),),
            ),
            "a check of the script fails: the wrong row",
        ),
        (
            "",
            replace(
                BAD,
                exception="torch._dynamo.exc.BackendCompilerFailed",
                message="backend='inductor' raised:\nRuntimeError: no alias",
            ),
            "RuntimeError: no alias",
        ),
        (
            "",
            replace(
                BAD,
                exception="torch._inductor.exc.CppCompileError",
                message="C++ compile error\n\nx.cpp:3:4: error: no match",
            ),
            "CppCompileError: C++ compile error: no match",
        ),
    ],
)
def test_a_title_says_what_the_script_is_about(text: str, seen: ScriptOutcome, title: str) -> None:
    assert _report(text=text, seen=seen).title == f"[inductor] {title}"


def test_a_report_on_what_is_mended_says_so_first() -> None:
    report = _report()
    assert "No new issue" not in as_markdown(report)
    later = CellSpec("3.12", "2.7.1")
    outcomes: Any = report.onset.outcomes | {later: (RIGHT, "right")}
    fixed = replace(report, onset=replace(report.onset, outcomes=outcomes, fixed=later))
    assert "\n\n> No new issue: PyTorch 2.7.1 and later are right.\n" in as_markdown(fixed)
    outcomes |= {CellSpec("3.12", "2.8.0"): (BAD, "shows")}
    again = replace(report, onset=replace(report.onset, outcomes=outcomes, fixed=later))
    assert "No new issue" not in as_markdown(again)


def test_other_values_are_said_beside_those_without_the_compiler() -> None:
    text = as_markdown(_report(seen=WRONG, without=RIGHT))
    assert "prints other values than without the compiler. The first release" in text


def test_releases_that_end_otherwise_again_are_not_said_to_end_alike() -> None:
    releases = ("2.6.0", "2.7.1", "2.8.0", "2.9.1")
    right, old, older, first = (CellSpec("3.12", release) for release in releases)
    unlike = replace(OTHER, ending="exit 1", exception="ValueError", message="aliasing")
    outcomes: Any = {right: (RIGHT, "right"), old: (unlike, "other"), older: (OTHER, "other")}
    onset = replace(_report().onset, outcomes=outcomes, first=first, before=older, right=right)
    assert since(onset).startswith(
        "The first release that shows it is 2.9.1; 2.8.0 ends in another way (`SIGSEGV`); 2.7.1 in "
        "yet another (`ValueError: aliasing`); 2.6.0 is right; "
    )


def test_a_cure_may_be_a_setting_of_an_earlier_stage_and_other_endings_are_kept() -> None:
    def run(change: Any) -> ScriptOutcome:  # noqa: ANN401
        if change == {"backend": "eager"}:
            return OTHER
        settings = (change or {}).get("settings", ())
        return RIGHT if any(one["field"] == "shapes" for one in settings) else BAD

    settings = {"eager": [("m", "shapes", 1)], "aot": [("m", "cse", 0)], "inductor": []}
    blame = blame_script(run, ("eager", "aot", "inductor"), settings, _report().onset.symptom)
    assert (blame.stage, blame.cures) == ("aot", ("m.shapes=1",))
    assert blame.others == (("eager", OTHER),)
    text = as_markdown(_report(blame=ScriptBlame("inductor", others=(("aot_eager", OTHER),))))
    assert "With `aot_eager` it ends in another way: `SIGSEGV`." in text


def test_libraries_with_the_same_message_are_found_whatever_raised_it() -> None:
    assert LIBRARIES is not None
    found = with_same_cause(
        LIBRARIES.signatures, "AssertionError", "Unexpected type <class 'odict_keys'>"
    )
    assert {name for one in found for name in one.libraries} >= {"botorch", "gpytorch"}
    assert with_same_cause(LIBRARIES.signatures, "AssertionError", "") == []


def _bad_cases() -> list[str]:
    assert LIBRARIES is not None
    found = (one for one in LIBRARIES.newest if one.status in CAUSE_KINDS)
    whose = (one for one in found if one.failure is None or fault_of(one.failure) == "PyTorch")
    return sorted({f"{one.library}/{one.case}/{one.ask}" for one in whose})


def test_each_case_that_fails_is_a_plain_script() -> None:
    assert LIBRARIES is not None
    cases = _bad_cases()
    assert len(cases) > 20
    for case in cases:
        text, record = script_of_case(LIBRARIES, case)
        imports = {
            alias.name if isinstance(node, ast.Import) else node.module or ""
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        assert not any(name.startswith("ivhl") for name in imports)
        assert f'dependencies = ["{record.library}' in text
        assert f"{record.library} {record.version}: {record.case}" in text


def test_the_script_of_a_case_is_that_of_a_release_and_of_a_candidate_if_no_other_is_bad() -> None:
    records = {t: make_observed(torch=t, **VERDICTS["failed"]) for t in ("2.15.0", "2.16.0rc1")}
    both = Libraries([make_row("timm")], records.values())
    assert script_of_case(both, "timm/small")[1] == records["2.15.0"]
    alone = Libraries([make_row("timm")], [records["2.16.0rc1"]])
    assert script_of_case(alone, "timm/small")[1] == records["2.16.0rc1"]


def test_a_case_that_is_unknown_or_works_has_no_script() -> None:
    assert LIBRARIES is not None
    with pytest.raises(UnknownNameError, match="unknown case of timm"):
        script_of_case(LIBRARIES, "timm/none")
    own = Libraries([make_row("timm")], [make_observed(**VERDICTS["undecided"])])
    with pytest.raises(ResultsError, match="because of its own code"):
        script_of_case(own, "timm/small/forward")
    for keys, says in (
        (["works", "nowheel"], "works in all tried cells"),
        (["nowheel", "nowheel", "pinned"], "never ran: no wheel or pinned out in all 3 cells"),
        ([], "has no record"),
    ):
        found = [make_observed(torch=f"2.{n}.0", **VERDICTS[key]) for n, key in enumerate(keys, 7)]
        with pytest.raises(ResultsError, match=f"no failure to report: timm small forward {says}"):
            script_of_case(Libraries([make_row("timm")], found), "timm/small")


REPORTS = sorted((ROOT / "docs" / "reports").glob("[!R]*.md"))


def test_the_list_of_reports_names_each_with_its_release() -> None:
    listed = (ROOT / "docs" / "reports" / "README.md").read_text(encoding="utf-8")
    assert len(REPORTS) == 10
    for path in REPORTS:
        text = path.read_text(encoding="utf-8")
        found = re.search(r"^PyTorch (\S+) on.* that shows it is (\d[\d.]*\d)", text, re.MULTILINE)
        assert found is not None
        torch, first = found.groups()
        (row,) = [line for line in listed.splitlines() if f"]({path.name})" in line]
        assert f"| {torch}, Python" in row
        assert f"| {first} |" in row
        known = set(re.findall(r"\[(pytorch/pytorch#\d+)\]", text))
        assert known == set(re.findall(r"pytorch/pytorch#\d+", row))


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_a_report_of_the_documents_is_scrubbed_and_its_script_needs_no_ivhl(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert scrubbed(text) == text
    (code,) = re.findall(r"^```python\n(.*?)\n```$", text, re.MULTILINE | re.DOTALL)
    assert "ivhl" not in code.replace("without ivhl", "")
    ast.parse(code)
