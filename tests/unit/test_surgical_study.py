"""The parts of ``studies/surgical_parts.py`` for a GPU, at sizes of which a CPU runs them."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is only in the cells")
import torch

from benchmarks.surgical import rope, stack
from ivhl.measure.timing import Schedule
from ivhl.surgical import StackConfiguration
from ivhl.surgical.configuration import StackSize
from studies import surgical_parts as study

pytestmark = [
    pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning"),
    # Dynamo of 2.6.0 warns so where its settings are copied; the compiler would fail.
    pytest.mark.filterwarnings("ignore:Skipping serialization of skipfiles:UserWarning"),
    # Dynamo looks at intermediate tensors.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]

SCHEDULE = Schedule(block_s=1e-4, total_s=1e-3, min_rounds=6, max_rounds=6)
SIZE = stack.Size(n_layers=2, n_hidden=64, n_heads=2, n_inner=96, n_batch=2, n_tokens=32)
CPU = torch.device("cpu")
# bfloat16 has 8 bits, e4m3 4.
BFLOAT16_RMS = 0.03
FP8_RMS = 0.3


@pytest.fixture(autouse=True)
def eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile without generating code, and without what other tests have compiled.

    The parts of a plan are closures of one function, of which Dynamo keeps eight graphs.
    """
    torch.compiler.reset()
    compiler = torch.compile
    monkeypatch.setattr(
        torch,
        "compile",
        lambda function, **options: compiler(
            function, backend="eager", fullgraph=options["fullgraph"]
        ),
    )


def test_rope_by_rotate_is_the_nearest_to_float64() -> None:
    rows = study.time_rope_in(torch.bfloat16, rope.Size(1, 2, 16, 32), CPU, SCHEDULE)
    error = {row["form"]: row["rms"] for row in rows}
    assert error["rotate"] == error["rotate, eager"] < error["eager"] < BFLOAT16_RMS


def test_plans_in_bfloat16_are_near_float64() -> None:
    rows = study.time_stack_in_bfloat16(SIZE, CPU, SCHEDULE)
    assert [row["form"] for row in rows] == [
        *("eager", "by hand", "surgical", "pointwise", "sdpa", "whole")
    ]
    assert all(0.0 < row["rms"] < BFLOAT16_RMS for row in rows)


def test_gradients_in_bfloat16_are_near_float64() -> None:
    rows = study.time_gradient_in_bfloat16(SIZE, CPU, SCHEDULE)
    assert all(0.0 < row["rms"] < BFLOAT16_RMS for row in rows)


def test_fp8_layers_are_near_float64_however_they_round() -> None:
    rows = study.time_fp8(SIZE, CPU, SCHEDULE)
    assert [row["over_hand"][0] for row in rows if row["form"] == "eager, FP8"] == [1.0]
    for row in rows:
        least, most = (BFLOAT16_RMS, FP8_RMS) if "FP8" in row["form"] else (0.0, BFLOAT16_RMS)
        assert least < row["rms"] < most, row["form"]


def test_one_fp8_layer_rounds_the_same_numbers_in_every_form() -> None:
    rows = study.time_linear(SIZE, CPU, SCHEDULE)
    errors = {row["rms"] for row in rows if row["form"] != "eager"}
    assert len(errors) == 1


def test_the_difference_can_be_found_at_another_size() -> None:
    size = StackSize(StackConfiguration(n_layers=1, n_hidden=32, n_heads=2, n_inner=48), 2, 16)
    rows = study.find_difference(size, CPU)
    # This compiler rounds as eager code does, so only other code differs.
    differing = {row["what"].partition(", ")[2] for row in rows if row["largest"] > 0.0}
    assert differing == {"RoPE compiled beside eager rounded once"}
