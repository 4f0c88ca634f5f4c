"""Statuses and rows of the compatibility view."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ivhl.matrix.spec import CellSpec
from ivhl.records.record import FAILURE_CLASSES, FailureClass
from ivhl.tracker.store.spread import SHIPPED
from ivhl.tracker.support.compat import (
    compat_rows,
    headline,
    python_key,
    release_key,
    retired,
    status_of,
)
from ivhl.tracker.support.spans import word_of_cases
from ivhl.tracker.wording import CLASS_MEANINGS, STATUS_MEANINGS, STATUS_WORDS, STATUSES
from ivhl.workload import Case, Variant
from tests.builders.records import EMPTY_WORKLOAD, Known, make_failure, make_record

if TYPE_CHECKING:
    from ivhl.records.record import RunRecord
    from ivhl.tracker.wording import Status


@pytest.mark.parametrize(
    ("speedup", "width", "tau", "slow"),
    [
        (0.8, 0.02, 0.01, True),
        (0.8, 0.02, 0.1, False),  # other runs would find eager as fast
        (0.8, 0.3, 0.01, False),  # the interval within the run does not show it
        (0.97, 0.001, 0.001, True),
        (1.01, 0.001, 0.001, False),
    ],
)
def test_slow_means_that_other_runs_would_be_slow(
    speedup: float, width: float, tau: float, *, slow: bool
) -> None:
    status = status_of(make_record(speedup=speedup, width=width), Known(tau))
    assert (status == "slow") is slow


@pytest.mark.parametrize(
    ("speedup", "width", "tau", "status"),
    [
        (0.8, 0.02, 0.01, "slow"),
        (0.8, 0.02, 0.1, "noisy"),  # this run was slower; others may not be
        (0.99, 0.02, 0.01, "works"),  # neither was this run
        (1.01, 0.02, 0.2, "noisy"),  # slower by 1.3x would not show
        (2.0, 0.02, 0.2, "works"),  # wide, and faster all the same
    ],
)
def test_what_noise_hides_is_not_said_to_work(
    speedup: float, width: float, tau: float, status: Status
) -> None:
    assert status_of(make_record(speedup=speedup, width=width), Known(tau)) == status


@given(st.floats(0.1, 0.99), st.floats(0, 0.005), st.floats(0, 0.5))
def test_no_spread_turns_slow_into_works(speedup: float, width: float, tau: float) -> None:
    record = make_record(speedup=speedup, width=width)
    assert status_of(record, Known(0.0)) != "slow" or status_of(record, Known(tau)) != "works"


@given(st.floats(0.1, 3), st.floats(0, 0.5), st.floats(0, 0.5))
def test_more_spread_never_makes_a_case_slow(speedup: float, tau: float, more: float) -> None:
    record = make_record(speedup=speedup)
    assert (
        status_of(record, Known(tau)) == "slow" or status_of(record, Known(tau + more)) != "slow"
    )


@pytest.mark.parametrize("failure_class", FAILURE_CLASSES)
def test_every_failure_class_has_a_status(failure_class: FailureClass) -> None:
    special: dict[FailureClass, Status] = {
        "support_gate": "unsupported",
        "unsupported": "unsupported",
        "unavailable": "unavailable",
        "absent": "unavailable",
        "wrong": "wrong",
    }
    status = status_of(make_failure(failure_class))
    assert status == special.get(failure_class, "failed")
    assert status in STATUSES


def test_a_row_has_every_documented_json_field() -> None:
    (row,) = compat_rows([make_failure(python="3.13", torch="2.5.1")])
    data = json.loads(json.dumps(row.to_dict()))
    assert data["status"] == "unsupported"
    assert data["failure_class"] == "support_gate"
    assert data["message"] == "Dynamo is not supported on Python 3.13+"
    assert (data["python"], data["torch"], data["cell"]) == ("3.13", "2.5.1", "py3.13-torch2.5.1")
    assert data["speedup"] is None
    assert data["command"].startswith("ivhl bench")
    assert "record" not in data
    (measured,) = compat_rows([make_record(speedup=2.0)])
    assert (measured.speedup, measured.within_low, measured.within_high) == (2.0, 1.96, 2.04)
    another = SHIPPED.another_run(make_record(speedup=2.0))
    assert another is not None
    assert (measured.speedup_low, measured.speedup_high) == (another.low, another.high)
    assert (measured.status, measured.failure_class, measured.message) == ("works", None, "")


def test_the_message_of_a_slow_row_has_speedup_and_noise() -> None:
    (row,) = compat_rows([make_record(speedup=0.5)], spreads=Known(0.0))
    assert row.status == "slow"
    assert "0.50x [0.49, 0.51]" in row.message
    assert "1.00x [0.99, 1.01]" in row.message


def test_cells_without_a_record_have_rows() -> None:
    cells = [CellSpec("3.12", "2.6.0"), CellSpec("3.13", "2.4.1"), CellSpec("3.13", "2.6.0")]
    rows = compat_rows(
        [make_record()], cells=cells, unavailable={"py3.13-torch2.4.1": "no wheel for cp313"}
    )
    assert [(row.cell, row.status) for row in rows] == [
        ("py3.12-torch2.6.0", "works"),
        ("py3.13-torch2.4.1", "unavailable"),
        ("py3.13-torch2.6.0", "not_run"),
    ]
    assert rows[1].failure_class == "unavailable"
    assert rows[1].message == "no wheel for cp313"


def test_a_record_precedes_the_statement_unavailable() -> None:
    rows = compat_rows([make_record()], unavailable={"py3.12-torch2.6.0": "gone"})
    assert [row.status for row in rows] == ["works"]


def test_cases_never_run_are_shown_where_their_device_applies() -> None:
    workload = replace(
        EMPTY_WORKLOAD,
        name="ops.new",
        variants=(Variant(name="a", call="m:f"), Variant(name="b", call="m:f", devices=("cuda",))),
    )
    cases = [Case(workload=workload, size="small", variant=v) for v in workload.variants]
    cells = [CellSpec("3.12", "2.6.0")]
    rows = compat_rows([], cells=cells, cases=cases)
    assert [(r.workload, r.variant, r.status, r.machine) for r in rows] == [
        ("ops.new", "a", "not_run", "")
    ]
    assert compat_rows([make_record()], cells=cells, workloads=[workload]) == ()
    beside = compat_rows([make_record()], cells=cells, cases=cases)
    assert [(r.workload, r.status) for r in beside] == [
        ("ops.gp_evolve", "works"),
        ("ops.new", "not_run"),
    ]


def on(machine: str, record: RunRecord) -> RunRecord:
    return replace(record, machine=replace(record.machine, name=machine))


def test_workloads_of_another_machine_are_not_expected() -> None:
    workloads = [replace(EMPTY_WORKLOAD, name=name) for name in ("ops.gp_evolve", "ops.nobody")]
    variant = Variant(name="naive-compiled", call="m:f")
    cases = [Case(workload=workload, size="small", variant=variant) for workload in workloads]
    records = [
        on("first", make_record()),
        on("second", make_record(workload="ops.mine")),
        on("second", make_record(workload="ops.mine", torch="2.4.1")),
    ]
    cells = [CellSpec("3.12", "2.4.1"), CellSpec("3.12", "2.6.0")]
    rows = compat_rows(records, cells=cells, cases=cases, releases=["2.6.0"])
    assert {(r.machine, r.workload, r.torch, r.status) for r in rows} == {
        ("first", "ops.gp_evolve", "2.6.0", "works"),
        ("second", "ops.mine", "2.4.1", "works"),
        ("second", "ops.mine", "2.6.0", "works"),
        # Of the machine that ran most: 150 machines would have 150 times what nobody ran.
        ("second", "ops.nobody", "2.6.0", "not_run"),
    }


def test_an_extended_python_has_rows_only_on_a_machine_that_ran_it() -> None:
    records = [
        on("first", make_record()),
        on("second", make_record(python="3.15")),
    ]
    cells = [CellSpec(python, "2.6.0") for python in ("3.12", "3.13", "3.15")]
    rows = compat_rows(records, cells=cells, pythons=["3.12", "3.13"])
    assert {(r.machine, r.python, r.status) for r in rows} == {
        ("first", "3.12", "works"),
        ("first", "3.13", "not_run"),
        ("second", "3.12", "not_run"),
        ("second", "3.13", "not_run"),
        ("second", "3.15", "works"),
    }


def test_extended_releases_have_rows_only_for_cases_that_ran() -> None:
    records = [
        make_record(size=size, variant=variant)
        for size in ("small", "large")
        for variant in ("naive-compiled", "one-graph")
    ]
    records.append(make_record(size="small", torch="2.4.1"))
    cells = [CellSpec("3.12", "2.4.1"), CellSpec("3.12", "2.6.0")]
    rows = compat_rows(records, cells=cells, releases=["2.6.0"])
    assert {(r.size, r.variant, r.status) for r in rows if r.torch == "2.4.1"} == {
        ("small", "naive-compiled", "works"),
        ("small", "one-graph", "not_run"),
    }


def test_workloads_that_only_the_cpu_ran_are_not_expected_of_the_gpu() -> None:
    workload = replace(EMPTY_WORKLOAD, name="ops.gp_evolve")
    case = Case(
        workload=workload, size="small", variant=Variant(name="naive-compiled", call="m:f")
    )
    other = make_record(workload="ops.other")
    on_gpu = replace(other, conditions=replace(other.conditions, device="cuda NVIDIA H200"))
    rows = compat_rows([make_record(), on_gpu], cells=[CellSpec("3.12", "2.6.0")], cases=[case])
    assert {(r.device, r.workload, r.status) for r in rows} == {
        ("cpu", "ops.gp_evolve", "works"),
        ("cuda", "ops.other", "works"),
    }


def test_retired_cases_have_no_row_and_are_named() -> None:
    workload = replace(
        EMPTY_WORKLOAD,
        name="ops.gp_evolve",
        version=2,
        variants=(Variant(name="kept", call="m:f", devices=("cpu",)),),
    )
    kept = make_record(variant="kept", workload_version=2)
    other_size = make_record(variant="kept", workload_version=2, size="huge")
    gone = [
        make_record(variant="dropped", workload_version=2),
        make_record(variant="kept", workload_version=1),
        make_record(variant="kept", workload_version=2, workload="ops.dropped"),
        make_record(
            variant="kept",
            workload_version=2,
            conditions=replace(kept.conditions, device="cuda NVIDIA H200"),
        ),
    ]
    records = [kept, other_size, *gone]
    assert retired(records, [workload]) == tuple(gone)
    assert {row.record for row in compat_rows(records, workloads=[workload])} == {kept, other_size}
    # Without a readable list of workloads no case is retired.
    assert retired(records, []) == ()


def test_releases_sort_as_versions() -> None:
    versions = ["2.10.0", "nightly", "2.9.1", "2.10.0rc1"]
    assert sorted(versions, key=release_key) == ["2.9.1", "2.10.0rc1", "2.10.0", "nightly"]


def test_a_release_that_is_too_noisy_to_judge_is_not_a_bad_one() -> None:
    (row,) = compat_rows([make_record(torch="2.9.1", speedup=0.98, width=0.01)])
    assert row.status == "noisy"
    assert row.passes


def test_a_release_with_which_a_case_is_slow_is_not_a_bad_one() -> None:
    """``ivhl advise`` counts it as one that passes."""
    slow = [make_record(torch=torch, speedup=0.5) for torch in ("2.8.0", "2.9.1")]
    assert all(row.passes for row in compat_rows(slow))
    assert headline(compat_rows([*slow, make_record(torch="2.10.0")])) == (
        "3 results of 1 case in 3 cells: 3 pass (2 slow)"
    )
    assert headline(compat_rows([make_record()])) == "1 result of 1 case in 1 cell: 1 passes"


def test_the_word_of_a_cell_hides_no_case_that_does_not_pass() -> None:
    def word(*records: RunRecord, most: int = 0) -> str:
        return word_of_cases(compat_rows(records), most or len(records))

    right, slow = make_record(workload="a"), make_record(workload="b", speedup=0.5)
    off, no = make_failure("wrong", workload="c"), make_failure("compile", workload="d")
    assert word(right, slow) == "works"
    assert word(right, off, no) == "works (1 of 3 wrong, 1 fail)"
    assert word(slow, no) == "works (1 of 2 fail)"
    assert word(slow) == "slow"
    assert word(no) == "fails (compile)"
    # The commit lacks the code of this case: there was nothing to try.
    assert word(right, slow, make_failure("absent", workload="d"), most=2) == "works"
    # Where other cells have more cases, the word says how many it is over, or is none.
    assert word(right, slow, most=4) == "works (2 of 4 run)"
    assert word(slow, no, most=3) == "works (1 of 2 fail, 2 of 3 run)"
    assert word(no, most=2) == "fails (compile) (1 of 2 run)"
    assert word(right, most=33) == "only 1 of 33 cases run with"
    assert word(make_failure("unavailable"), most=33) == "unavailable"


@pytest.mark.parametrize(
    ("failure_class", "exception", "decides"),
    [
        ("build", "", False),
        ("timeout", "", False),
        ("out_of_memory", "", False),
        ("crash", "SIGKILL", False),
        ("crash", "SIGSEGV", True),
        ("backend_compile", "torch.Error", True),
    ],
)
def test_exceeded_limits_are_no_failures_of_pytorch(
    failure_class: FailureClass, exception: str, *, decides: bool
) -> None:
    (row,) = compat_rows([make_failure(failure_class, "no", exception=exception)])
    assert row.is_failure is decides


def test_an_existing_environment_is_expected_only_on_its_machine() -> None:
    here = make_record()
    there = make_record(python="3.11", torch="2.6.0")
    there = replace(
        there,
        cell=replace(there.cell, lock_sha256=None),
        machine=replace(there.machine, name="gpubox"),
    )
    rows = compat_rows([here, there], cells=[CellSpec("3.12", "2.6.0")])
    found = {(row.machine, row.cell): (row.status, row.existing) for row in rows}
    assert found == {
        ("bench", "py3.12-torch2.6.0"): ("works", False),
        ("gpubox", "py3.11-torch2.6.0"): ("works", True),
    }
    both = [here, there, replace(here, machine=there.machine, workload="other")]
    rows = compat_rows(both, cells=[CellSpec("3.12", "2.6.0")])
    # A machine that measures in cells, too, is expected to measure all of them.
    assert ("gpubox", "py3.12-torch2.6.0", there.workload, "not_run") in {
        (row.machine, row.cell, row.workload, row.status) for row in rows
    }
    locked = replace(there, cell=replace(there.cell, lock_sha256="0" * 64))
    rows = compat_rows([here, locked], cells=[CellSpec("3.12", "2.6.0")])
    assert ("bench", "py3.11-torch2.6.0") in {(row.machine, row.cell) for row in rows}


def test_a_locked_cell_precedes_an_existing_environment_with_its_id() -> None:
    locked = make_record()
    bare = make_record(
        speedup=9.0,
        cell=replace(locked.cell, lock_sha256=None),
        recorded_at="2026-12-01T00:00:00+00:00",
    )
    for records in ([locked, bare], [bare, locked]):
        (row,) = compat_rows(records)
        assert (row.existing, row.speedup) == (False, 2.0)
    (row,) = compat_rows([bare])
    assert row.existing


def test_every_failure_class_and_status_has_a_text() -> None:
    assert set(CLASS_MEANINGS) == set(FAILURE_CLASSES)
    assert set(STATUS_WORDS) == set(STATUS_MEANINGS) == set(STATUSES)


def test_a_version_of_thousands_of_digits_sorts_with_other_names() -> None:
    names = ["2." + "6" * 5000, "2.6.0", "nightly"]
    assert min(names, key=release_key) == "2.6.0"
    assert min(["3." + "1" * 5000, "3.12"], key=python_key) == "3.12"
