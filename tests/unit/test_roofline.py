"""``python -m studies.roofline``: selection, checks before measuring, table and export."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ivhl.errors import SpecError, UnknownNameError
from ivhl.records.reader import read_record
from ivhl.records.record import Arm
from ivhl.workload import Case, Cost, Variant, check_memory
from studies.roofline import (
    Ceilings,
    choose_cases,
    export,
    fraction_of_limit,
    main,
    named,
    parser,
    print_table,
)
from tests.builders.records import EMPTY_WORKLOAD, make_failure, make_record

if TYPE_CHECKING:
    from pathlib import Path

LIMITS = Ceilings(bytes_per_s=1e9, flops_per_s=1e10)
VARIANTS = (
    Variant(name="plain", call="m:f"),
    Variant(name="tuned", call="m:f", mode="max-autotune", devices=("cuda",)),
)
WORKLOADS = tuple(
    replace(EMPTY_WORKLOAD, name=name, variants=VARIANTS)
    for name in ("ops.field_superposition", "ops.vortex_field", "ops.gp_evolve", "ops.gp_euler")
)


def cost(size: int) -> Cost:
    """Return a cost that grows with the size; the workload below refers to it."""
    return Cost(flops=2e7 * size, bytes=1e6 * size, memory=2.0**30 * size)


COSTLY = replace(
    EMPTY_WORKLOAD,
    name="ops.costly",
    variants=VARIANTS,
    sizes={"small": 1, "extreme": 64},
    cost=f"{__name__}:cost",
)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("ops.gp_evolve", ["ops.gp_evolve"]),
        ("vortex_field", ["ops.vortex_field"]),
        ("field", ["ops.field_superposition"]),
        ("gp", ["ops.gp_evolve", "ops.gp_euler"]),
        ("euler", ["ops.gp_euler"]),
    ],
)
def test_an_operation_is_found_by_name_prefix_or_word(text: str, names: list[str]) -> None:
    assert named(text, WORKLOADS) == names


def test_an_unknown_operation_suggests_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="unknown operation 'vortx'") as caught:
        named("vortx", WORKLOADS)
    assert "vortex_field" in caught.value.hint


def chosen(*arguments: str) -> set[str]:
    every = ["--workloads", f"{__name__}:WORKLOADS", "--size", "small", *arguments]
    return {case.name for case in choose_cases(parser().parse_args(every))}


def test_a_mode_replaces_the_declared_ones() -> None:
    assert chosen("--operation", "euler") == {"ops.gp_euler/small/plain"}
    assert chosen("--operation", "euler", "--compile-mode", "max-autotune") == {
        "ops.gp_euler/small/plain-max-autotune"
    }
    # On a GPU the workload declares this mode already; it is not measured twice.
    assert chosen(
        "--operation", "euler", "--device", "cuda", "--compile-mode", "max-autotune"
    ) == {"ops.gp_euler/small/tuned"}


def test_an_error_is_printed_as_a_message(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["--operation", "banana"]) == 2
    assert capsys.readouterr().err.startswith("error: unknown operation 'banana'\nnext: known: ")
    assert main(["--export", str(tmp_path / "nowhere" / "x.json")]) == 5
    assert "No such file or directory" in capsys.readouterr().err
    assert main(["--export", str(tmp_path / "x.csv")]) == 5
    assert "x.csv: the name must end in .json" in capsys.readouterr().err
    assert not (tmp_path / "x.csv").exists()


def test_a_case_that_does_not_fit_is_refused_before_the_run() -> None:
    small, extreme = (
        Case(workload=COSTLY, size=size, variant=VARIANTS[0]) for size in COSTLY.sizes
    )
    check_memory([small], 2.0**30)
    with pytest.raises(SpecError, match=r"ops\.costly/extreme needs 64\.0 GiB, and 8\.0 GiB are"):
        check_memory([small, extreme], 8 * 2.0**30)
    silent = Case(workload=WORKLOADS[0], size="small", variant=VARIANTS[0])
    check_memory([silent], 0)


def test_the_least_time_is_that_of_bytes_or_operations() -> None:
    case = Case(workload=COSTLY, size="small", variant=VARIANTS[0])
    record = make_record()
    compiled = Arm(calls=1, samples_s=(0.004, 0.004, 0.004))
    record = replace(record, compiled=compiled)
    # 2e7 operations at 1e10 a second take 2 ms, 1e6 bytes at 1e9 take 1 ms.
    assert fraction_of_limit(record, case, LIMITS) == pytest.approx(0.5)
    slow_memory = replace(LIMITS, bytes_per_s=2.5e8)
    assert fraction_of_limit(record, case, slow_memory) == pytest.approx(1.0)
    uncounted = Case(workload=WORKLOADS[0], size="small", variant=VARIANTS[0])
    assert fraction_of_limit(record, uncounted, LIMITS) is None
    assert fraction_of_limit(make_failure(), case, LIMITS) is None


def test_the_table_shows_speedups_failures_and_the_mean(
    capsys: pytest.CaptureFixture[str],
) -> None:
    about: dict[str, Any] = {"workload": "ops.costly", "size": "small", "variant": "plain"}
    case = Case(workload=COSTLY, size="small", variant=VARIANTS[0])
    other = replace(case, workload=WORKLOADS[0])
    records = [
        make_record(speedup=2.0, **about),
        make_record(speedup=8.0, **about | {"workload": other.workload.name}),
        make_failure(**about),
    ]
    print_table(records, {case.name: case, other.name: other}, LIMITS)
    text = capsys.readouterr().out
    assert "2.00x [1.96, 2.04]" in text
    assert "geometric mean speedup of plain: 4.00x, n = 2" in text
    assert "support_gate: Dynamo is not supported on Python 3.13+" in text


def test_an_export_has_the_stored_records(tmp_path: Path) -> None:
    record = make_record()
    export(tmp_path / "r.json", LIMITS, [record])
    data = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert data["limits"] == {"bytes_per_s": 1e9, "flops_per_s": 1e10}
    assert read_record(json.dumps(data["records"][0]).encode()) == record
