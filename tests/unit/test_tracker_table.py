"""The table that is printed at the end of a benchmark session."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import pytest
from rich.console import Console

from ivhl.matrix.spec import CellSpec
from ivhl.records.record import Reference
from ivhl.tracker.store.course import FIELDS
from ivhl.tracker.store.entries import recorded
from ivhl.tracker.store.spread import SHIPPED
from ivhl.tracker.support.compat import compat_rows
from ivhl.tracker.support.expectations import Expectation, Expectations
from ivhl.tracker.support.table import ResultsTable
from ivhl.tracker.views.case import cell_details
from ivhl.tracker.views.matrix import cell_view, matrix_views, notes_of
from ivhl.tracker.views.project import State
from ivhl.tracker.views.source import Source
from ivhl.tracker.wording import (
    REFERENCE_MARKS,
    REFERENCE_MEANINGS,
    marked,
    marks_of,
    short_message,
)
from tests.builders.records import Known, make_failure, make_record, verdict, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ivhl.records.record import RunRecord

TORCHES = ("2.4.1", "2.5.1", "2.6.0", "2.9.1", "2.10.0")
CELLS = [CellSpec("3.12", torch) for torch in TORCHES]
DECISIVE = "CppCompileError: C++ compile error: " + "fatal error: Python.h: No such file; " * 6


def render_results(
    records: Sequence[RunRecord],
    cells: Sequence[CellSpec],
    **more: Any,  # noqa: ANN401
) -> ResultsTable:
    """Return the table of the newest record of each case in some cells."""
    shown = {cell.id for cell in cells}
    records = [record for record in records if record.cell.id in shown]
    return ResultsTable(compat_rows(records, cells=cells, **more))


def printed(width: int = 80) -> str:
    records = [
        make_record(torch="2.4.1", speedup=6.41, width=0.03, workload="ops.field_superposition"),
        make_record(torch="2.5.1", speedup=0.5, workload="ops.field_superposition"),
        make_failure(torch="2.6.0", workload="ops.field_superposition"),
        make_failure("backend_compile", DECISIVE, torch="2.9.1"),
        make_failure("backend_compile", DECISIVE, torch="2.10.0"),
        make_record(python="3.13", workload="ops.elsewhere"),
    ]
    console = Console(file=io.StringIO(), width=width)
    console.print(render_results(records, CELLS, unavailable={"py3.12-torch2.4.1": "no wheel"}))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_an_entry_is_the_speedup_with_its_interval() -> None:
    another = SHIPPED.another_run(
        make_record(torch="2.4.1", speedup=6.41, width=0.03, workload="ops.field_superposition")
    )
    assert another is not None
    assert f"6.41x [{another.low:.2f}, {another.high:.2f}]" in printed()


def test_a_verdict_alone_works_and_is_not_timed() -> None:
    asked = verdict(make_record())
    console = Console(file=io.StringIO(), width=100)
    console.print(render_results([asked], CELLS))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "works, not timed" in text
    assert "None" not in text
    (row,) = (row for row in compat_rows([asked], cells=CELLS) if row.recorded)
    assert (row.status, row.speedup, row.passes, row.failure_class) == ("works", None, True, None)
    assert cell_view(row, None).text == "works, not timed"
    entry = recorded(asked).entry
    assert (entry.values, entry.compiled_s, entry.calibration) == ({}, None, None)


def test_everything_fits_into_80_columns() -> None:
    text = printed()
    assert max(len(line) for line in text.splitlines()) <= 80
    for cell in CELLS:
        assert cell.id in text
    flat = " ".join(text.split())
    assert " ".join(DECISIVE.split()) in flat
    assert "support_gate: builtins.RuntimeError: Dynamo is not supported on Python 3.13+" in flat


def test_the_same_reason_is_explained_once() -> None:
    text = printed()
    assert text.count("backend_compile (") == 2
    assert text.count("CppCompileError") == 1


def test_a_wide_terminal_shows_all_cells_side_by_side() -> None:
    header = next(line for line in printed(400).splitlines() if "py3.12-torch2.4.1" in line)
    assert all(cell.id in header for cell in CELLS)


def test_unselected_cells_are_left_out() -> None:
    assert "ops.elsewhere" not in printed()


def test_unexpected_cases_stay_empty() -> None:
    records = [make_record(workload="ops.one"), make_record(workload="ops.two")]
    records.append(make_record(workload="ops.one", torch="2.4.1"))
    cells = [CellSpec("3.12", "2.4.1"), CellSpec("3.12", "2.6.0")]
    console = Console(file=io.StringIO(), width=200)
    console.print(ResultsTable(compat_rows(records, cells=cells, releases=["2.6.0"])))
    assert isinstance(console.file, io.StringIO)
    one, two = (line for line in console.file.getvalue().splitlines() if " small " in line)
    assert one.count("x [") == 2
    assert two.count("x [") == 1
    assert "not run" not in one + two


def test_without_records_the_table_says_so() -> None:
    console = Console(file=io.StringIO(), width=80)
    console.print(render_results([], CELLS))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().strip() == "no records"


def test_a_message_loses_advice_but_not_its_reason() -> None:
    text = (
        "backend='inductor' raised:\nCppCompileError: g++ failed\n\n"
        "Set TORCHDYNAMO_VERBOSE=1 for the internal stack trace\n"
    )
    assert short_message(text) == "backend='inductor' raised: CppCompileError: g++ failed"
    assert short_message("Set TORCH_LOGS=x") == "Set TORCH_LOGS=x"
    advice = "  Hint: Remove the `torch._dynamo.graph_break()` call.\n  Hint: Use torch.where"
    assert short_message(f"Tensor.item at m.py:3 f\n{advice}") == (
        "Tensor.item at m.py:3 f Hint: Use torch.where"
    )
    inserted = f"Call to `torch._dynamo.graph_break()` at m.py:3 f\n{advice}"
    assert "Remove the" in short_message(inserted)
    graph = "must be 1, got 4\n\nWhile executing %add : [num_users=1]\nOriginal traceback:\n  File"
    assert short_message(graph) == "must be 1, got 4"
    assert short_message("x = f(y)\n    ~^^^^\nraised") == "x = f(y) raised"
    cells = ["env/0a/lib/python3.12", "env/1b/lib/python3.13"]
    places = {short_message(f'failed\n  File "{c}/site-packages/a/b.py", line 3') for c in cells}
    assert places == {'failed File "a/b.py", line 3'}
    long = "start " + "x" * 5000 + " end"
    assert short_message(long).startswith("start ")
    assert short_message(long).endswith(" end")
    assert short_message(long, 40) == f"start {'x' * 14} […] {'x' * 16} end"


def test_slow_is_shown_as_text() -> None:
    console = Console(file=io.StringIO(), width=80)
    cells = [CellSpec("3.12", "2.6.0")]
    console.print(render_results([make_record(speedup=0.5)], cells, spreads=Known(0.0)))
    assert isinstance(console.file, io.StringIO)
    assert "0.50x [0.49, 0.51] slow" in console.file.getvalue()


def test_a_known_failure_is_marked_with_its_reason_and_its_report() -> None:
    """As by ``ivhl compat`` and on the site; also in the table of ``ivhl bench``."""
    entry = Expectation.model_validate(
        {
            "python": "", "torch": "", "workload": "*", "class": "support_gate", "reason": "a gate",
            "link": "https://github.com/pytorch/pytorch/issues/1",
        }
    )  # fmt: skip
    console = Console(file=io.StringIO(), width=200)
    failed, cells = make_failure("support_gate", "no"), [CellSpec("3.12", "2.6.0")]
    expectations = Expectations((entry,))
    console.print(render_results([failed], cells, expectations=expectations))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "support_gate (1) · expected" in text
    assert "expected: a gate (https://github.com/pytorch/pytorch/issues/1)" in text


def test_existing_environments_are_noted() -> None:
    record = make_record()
    bare = replace(record, cell=replace(record.cell, lock_sha256=None))
    console = Console(file=io.StringIO(), width=80)
    console.print(render_results([bare], [CellSpec("3.12", "2.6.0")]))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "existing environments, without a lock: py3.12-torch2.6.0 on bench" in text
    assert "without a lock" not in printed()


@pytest.mark.parametrize("reference", get_args(Reference))
def test_a_weaker_reference_is_marked_wherever_a_verdict_is_shown(reference: Reference) -> None:
    record = whole(make_record(reference=reference))
    mark, meaning = REFERENCE_MARKS[reference], REFERENCE_MEANINGS[reference]
    console = Console(file=io.StringIO(), width=200)
    console.print(render_results([record], [CellSpec("3.12", "2.6.0")]))
    assert isinstance(console.file, io.StringIO)
    (row,) = compat_rows([record])
    assert row.to_dict()["reference"] == reference
    state = State(
        name="demo", recorded=(recorded(record),), problems=(), cells=(), releases=None,
        unavailable={}, workloads=(), cases=(), commit_order=(),
    )  # fmt: skip
    source = Source(state)
    (matrix,) = matrix_views(source, source.page.main)
    ((cell,),) = (line.cells for group in matrix.groups for line in group.lines)
    details = cell_details(source, row)
    assert meaning in {fact[1] for group in details["groups"] for fact in group["facts"]}
    (point,) = map(json.loads, source.points_of(source.course(row)))
    shown = (console.file.getvalue(), details["word"], point[FIELDS.index("result")])
    if reference == "independent":
        assert not any("·" in text for text in shown)
        assert cell.notes == ()
    else:
        assert all(f" · {mark}" in text for text in shown)
        assert cell.notes == (mark,)
        assert meaning in shown[0]


def test_a_record_of_an_uncommitted_tree_says_so() -> None:
    console = Console(file=io.StringIO(), width=200)
    console.print(render_results([make_record(uncommitted=True)], [CellSpec("3.12", "2.6.0")]))
    assert isinstance(console.file, io.StringIO)
    assert " · uncommitted" in console.file.getvalue()
    assert "the working tree differed from the commit" in console.file.getvalue()


def test_what_compiling_did_not_take_in_stands_beside_the_speedup() -> None:
    """A case with a graph break read `0.19x slow`, and only `ivhl regressions` had the break."""
    made = make_record(speedup=0.19)
    assert made.compile is not None
    record = replace(made, compile=replace(made.compile, frames_total=3, frames_ok=1))
    marks = ("1 graph break", "2 of 3 frames eager", "2 recompiles")
    console = Console(file=io.StringIO(), width=200)
    console.print(render_results([record], [CellSpec("3.12", "2.6.0")], spreads=Known(0.0)))
    assert isinstance(console.file, io.StringIO)
    said = " · ".join(marks)
    assert f"] slow · {said}" in console.file.getvalue()
    (row,) = compat_rows([record])
    assert notes_of(row) == marks
    assert set(marks) <= set(marked("", record).split(" · "))  # gate, results, pull requests
    state = State(
        name="demo", recorded=(recorded(record),), problems=(), cells=(), releases=None,
        unavailable={}, workloads=(), cases=(), commit_order=(),
    )  # fmt: skip
    source = Source(state)
    (matrix,) = matrix_views(source, source.page.main)
    assert dict(matrix.notes).keys() == {"graph break", "frames eager", "recompile"}
    assert said in cell_details(source, row)["word"]
    assert marks_of(whole(record)) == ("2 of 3 frames eager",)
    assert marks_of(whole(made)) == marks_of(None) == ()
