"""Each engine returns correct results, and every timed call evaluates the model."""

from __future__ import annotations

from contextlib import closing
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import pytest

torch = pytest.importorskip("torch", reason="torch is only in the cells")


from benchmarks.molecules.energy_forces import WORKLOAD as ENERGY_FORCES  # noqa: E402
from benchmarks.molecules.energy_forces import literal, one_graph  # noqa: E402
from benchmarks.molecules.trajectory import N_FRAMES  # noqa: E402
from ivhl.measure import accuracy, anchors, eager, engine, fresh, timing  # noqa: E402  (torch first)
from ivhl.measure.case import Measurement  # noqa: E402
from ivhl.measure.compilation import torch_compiler  # noqa: E402
from ivhl.measure.effort import Effort  # noqa: E402
from ivhl.measure.failures import CaseError, UnsupportedHereError  # noqa: E402
from ivhl.measure.job import Job  # noqa: E402
from ivhl.measure.journal import Journal  # noqa: E402
from ivhl.measure.launcher import read_journal  # noqa: E402
from ivhl.measure.leaves import leaves_of  # noqa: E402
from ivhl.mlff import packed  # noqa: E402
from ivhl.workload import Variant, load_workloads, select_cases  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ivhl.workload import Mode

WORKLOADS = load_workloads("benchmarks")
pytestmark = [
    pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning"),
    pytest.mark.filterwarnings("ignore:Pickle, copy, and deepcopy support:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Skipping serialization of skipfiles:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.*deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.*deprecated:FutureWarning"),
]

EVALUATIONS = [0]
# An operation that every engine accepts, and that counts its runs.
LIBRARY = torch.library.Library("ivhl_test", "DEF")
LIBRARY.define("counted(Tensor x) -> Tensor")


def counted(x: Any) -> Any:  # noqa: ANN401  (a tensor; torch is not where types are checked)
    EVALUATIONS[0] += 1
    return x.clone()


LIBRARY.impl("counted", counted, "CPU")
LIBRARY.impl("counted", torch.empty_like, "Meta")


# These take half a minute to more than one to compile.
LONG = (
    *("naive-compiled", "aotinductor", "packed-compiled", "one-graph-fp16-compiled"),
    "one-graph-compiled",
    *("fp16-eager", "bf16-eager", "torchscript-fp16"),
)
VARIANTS = [
    pytest.param(v.name, marks=[pytest.mark.full] if v.name in LONG else [])
    for v in ENERGY_FORCES.variants
    if "cpu" in v.devices
]


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Count evaluations of the model; return, for each timed block, its calls and evaluations."""
    pairs, time_block = packed.pairs_of, timing.time_block
    blocks: list[tuple[int, int]] = []

    def counting_pairs(positions: Any) -> Any:  # noqa: ANN401  (tensors)
        # Not on the differentiated path: torch.func.grad does not accept our operation.
        return pairs(positions + 0.0 * torch.ops.ivhl_test.counted(positions.detach()))

    def counting_block(
        call: Callable[[], Any],
        calls: int,
        *arguments: Any,  # noqa: ANN401  (clock and descendants)
    ) -> timing.Block:
        before = EVALUATIONS[0]
        block = time_block(call, calls, *arguments)
        if call is not fresh.nothing:  # whose time is that of reading the clock
            blocks.append((calls, EVALUATIONS[0] - before))
        return block

    for module in (literal, one_graph, packed):
        monkeypatch.setattr(module, "pairs_of", counting_pairs)
    monkeypatch.setattr(timing, "time_block", counting_block)
    return blocks


def measure(workload: str, variant: str, folder: Path) -> dict[str, Any]:
    """Measure a case in this process, and return its findings."""
    (chosen,) = select_cases(WORKLOADS, names=[workload], size="tiny", variants=[variant])
    job = Job(
        project="ivhl",
        workloads="benchmarks",
        workload=workload,
        size="tiny",
        variant=variant,
        effort=Effort(),
        stage="time",
        journal=str(folder / "time.jsonl"),
        references=str(folder / "references.pt"),
    )
    with closing(Journal(folder / "time.jsonl")) as journal:
        Measurement(job, chosen, journal).run()
    return read_journal(folder / "time.jsonl")[1]


@pytest.mark.parametrize(
    ("workload", "evaluations"),
    [("mlff.energy_forces", 1), pytest.param("mlff.trajectory", N_FRAMES, marks=pytest.mark.full)],
)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_timed_call_evaluates_the_model(
    counting: list[tuple[int, int]],
    tmp_path: Path,
    workload: str,
    variant: str,
    evaluations: int,
) -> None:
    findings = measure(workload, variant, tmp_path)
    arms = [findings[name] for name in ("eager", "eager_again", "compiled")]
    assert len(counting) > sum(len(arm["samples_s"]) for arm in arms)
    assert {done / calls for calls, done in counting} == {evaluations}
    if variant == "torchscript":  # an engine without Dynamo
        assert findings["compile"]["graphs"] is None
        assert findings["compile"]["warm_s"] > 0
        assert "formulation_eager" in findings


def test_a_cache_in_front_of_the_model_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As ASE's calculators do if the geometry did not change.
    evaluate, kept = literal.energy_forces, {}

    def cached(*inputs: Any) -> Any:  # noqa: ANN401  (tensors)
        key = (inputs[2].dtype, inputs[2].data_ptr())
        if key not in kept:
            kept[key] = evaluate(*inputs)
        return kept[key]

    monkeypatch.setattr(literal, "energy_forces", cached)
    with pytest.raises(CaseError, match="does not agree with the reference"):
        measure("mlff.energy_forces", "fp16-eager", tmp_path)


@pytest.mark.parametrize(
    "keeps", [True, pytest.param(False, marks=pytest.mark.full)], ids=["counts", "wrong"]
)
def test_eager_code_that_counts_its_calls_is_told_from_wrong_code(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    keeps: bool,  # noqa: FBT001
) -> None:
    evaluate, calls = literal.energy_forces, count(1)

    def off(*inputs: Any) -> Any:  # noqa: ANN401  (tensors)
        factor = 1 + next(calls) if keeps else 2
        return tuple(factor * output for output in evaluate(*inputs))

    monkeypatch.setattr(literal, "energy_forces", off)
    with pytest.raises(CaseError, match="does not agree with the reference") as caught:
        measure("mlff.energy_forces", "fp16-eager", tmp_path)
    assert (
        "eager's next call on the same inputs has another result" in str(caught.value)
    ) is keeps


def test_a_second_call_that_raises_or_cannot_be_compared_hides_no_error() -> None:
    setup: Any = SimpleNamespace(torch=torch)
    narrow = torch.zeros(2).to(torch.float8_e4m3fn)  # has no nan_to_num
    zeros = leaves_of(torch.zeros(2))
    assert eager._hint(setup, leaves_of(narrow), lambda: narrow) == ""
    assert eager._hint(setup, zeros, lambda: 1 / 0) == ""
    assert "has another result" in eager._hint(setup, zeros, lambda: torch.ones(2))


def test_a_variant_in_its_own_precision_has_its_own_anchor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scales = []

    def noting(*arguments: Any, **options: Any) -> accuracy.Typical:  # noqa: ANN401  (tensors)
        scales.append(typical_of(*arguments, **options).scale)
        return typical_of(*arguments, **options)

    typical_of = accuracy.typical_of
    monkeypatch.setattr(anchors, "typical_of", noting)
    findings = measure("mlff.energy_forces", "fp16-eager", tmp_path)
    assert "formulation_eager" not in findings  # it is the variant itself
    for error in findings["accuracy"]:
        assert error["passed"]
        assert error["eager_rmse"] < error["anchor_rmse"] == error["compiled_rmse"]
        # Few elements are judged by their largest value on any draw; which new draw this record
        # shows, depends on how many there was time for.
        assert error["limit_rmse"] <= 64 * 2.0**-11 * max(error["scale"], *scales)


def not_asked(_: object) -> Any:  # noqa: ANN401  (it does not return)
    pytest.fail("torch.compile has no part in this engine")


@pytest.mark.parametrize("name", ["torchscript", "eager"])
def test_an_engine_does_not_change_results(name: Any) -> None:  # noqa: ANN401
    def function(x: Any, y: Any) -> Any:  # noqa: ANN401  (tensors)
        return torch.sin(x) * y, x @ y

    x, y = torch.rand(2, 3, 3)
    made = engine.compiler_of(name, not_asked)(function)
    for factor in (1.0, 2.0):
        torch.testing.assert_close(tuple(made(factor * x, y)), function(factor * x, y))


def test_a_release_without_aotinductor_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("torch._inductor.aoti_compile_and_package", raising=False)
    monkeypatch.delattr("torch._export.aot_load", raising=False)
    with pytest.raises(UnsupportedHereError, match=torch.__version__.split("+")[0]):
        engine.compiler_of("aotinductor", not_asked)(torch.sin)(torch.ones(2))


def test_results_of_a_part_outlive_the_memory_of_its_graph() -> None:
    memory = torch.zeros(3)

    def replay(x: Any) -> list[Any]:  # noqa: ANN401  (as above)
        return [memory.copy_(x), 7]

    part = engine.returning_copies(replay)
    first, number = part(torch.ones(3))
    part(torch.full((3,), 2.0))
    assert (first.tolist(), number) == ([1.0] * 3, 7)


@pytest.mark.parametrize(
    ("device", "mode", "compiles", "copies"),
    [
        ("cuda", "reduce-overhead", "parts", True),
        ("cuda", "max-autotune", "parts", True),
        ("cuda", "reduce-overhead", "whole", False),
        ("cuda", "default", "parts", False),
        ("cpu", "reduce-overhead", "parts", False),  # which has no graphs there
    ],
)
def test_only_parts_that_a_gpu_replays_return_copies(
    device: str, mode: Mode, compiles: Literal["whole", "parts"], *, copies: bool
) -> None:
    kept = torch.zeros(3)
    variant = Variant(name="v", call="m:f", mode=mode, compiles=compiles)
    setup: Any = SimpleNamespace(
        case=SimpleNamespace(variant=variant),
        device=torch.device(device),
        torch=SimpleNamespace(compile=lambda function, **_: function),
    )
    part = torch_compiler(setup)(lambda: kept)
    assert (part() is not kept) is copies
