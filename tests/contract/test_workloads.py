"""The rules that every workload must follow."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ivhl.measure.failures import classify
from ivhl.workload import (
    DYNAMO_ENGINES,
    INDUCTOR_ENGINES,
    Variant,
    Workload,
    core_variant,
    load_workloads,
    resolve,
    select_cases,
)

if TYPE_CHECKING:
    import torch

# Warnings of torch in some releases; none concerns the code under test.
WORKLOADS = load_workloads("benchmarks")
pytestmark = [
    pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.trace.* is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.trace.* is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.freeze.* is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.freeze.* is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Pickle, copy, and deepcopy support:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Skipping serialization of skipfiles:UserWarning"),
    # Dynamo reads .grad of every input, including states between two steps.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    # Expected from naive variants.
    pytest.mark.filterwarnings(
        "ignore:Torchinductor does not support code generation for complex"
    ),
]

FEW_ELEMENTS = 1000

# Inductor 2.5 and 2.6 on naive complex code; the records of the cases have these failures, too.
KNOWN_FAILURES = (
    "'complex' object has no attribute 'get_name'",  # backward pass of 1j * x
    "must be 1 to view ComplexFloat as Float",  # a sum of tensors whose last axis has strides
)

# Takes minutes of C++ compilation, for code that ``mlff.energy_forces`` compiles as well.
TWICE = frozenset({"mlff.trajectory"})
# Each takes half a minute or more to compile; compiled here on the newest release only, in cells on
# all.
LONG = frozenset(
    {
        ("mlff.energy_forces", "packed-compiled"),
        ("mlff.energy_forces", "one-graph-fp16-compiled"),
        ("mlff.energy_forces", "aotinductor"),
        ("mlff.edge_list", "naive-compiled"),
        ("rollout.instance", "aotinductor"),
        ("rollout.instance", "mixed-compiled"),
        ("rollout.group", "naive-compiled"),
        ("rollout.group", "mixed-compiled"),
        ("rollout.group", "joined-compiled"),
        ("surgical.stack", "naive-compiled"),
        ("surgical.stack_gradient", "naive-compiled"),
    }
)
SLOW = re.compile(r"rollout\.|surgical\.|.*_gradient$|ops\.(condensate_potential|gp_evolve)$")
# With one thread, these releases lose additions of index_add (docs/findings.md).
LOSING_ADDITIONS = ("2.5.", "2.6.")

workloads = pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.name)
CPU_VARIANTS = [
    (w, v)
    for w in WORKLOADS
    for v in w.variants
    if "cpu" in v.devices and not (w.name in TWICE and v.engine in INDUCTOR_ENGINES)
]
cpu_variants = pytest.mark.parametrize(
    ("workload", "variant"), [pytest.param(w, v, id=f"{w.name}-{v.name}") for w, v in CPU_VARIANTS]
)
# For each change the variants that `bench` measures, without gradients and what takes as long to
# compile; the others each night.
compiled_variants = pytest.mark.parametrize(
    ("workload", "variant"),
    [
        pytest.param(
            w,
            v,
            id=f"{w.name}-{v.name}",
            marks=pytest.mark.full if v.name != core_variant(w) or SLOW.match(w.name) else [],
        )
        for w, v in CPU_VARIANTS
    ],
)
precise_variants = pytest.mark.parametrize(
    ("workload", "variant"),
    [
        pytest.param(w, v, id=f"{w.name}-{v.name}")
        for w in WORKLOADS
        for v in w.variants
        if v.dtype is not None
    ],
)


def flatten(node: Any) -> list[torch.Tensor]:  # noqa: ANN401  (a nest of tensors)
    if isinstance(node, dict):
        node = list(node.values())
    if isinstance(node, (tuple, list)):
        return [t for child in node for t in flatten(child)]
    return [node]


def cast(node: Any, *, double: bool) -> Any:  # noqa: ANN401  (a nest of tensors)
    if isinstance(node, dict):
        return {name: cast(child, double=double) for name, child in node.items()}
    if isinstance(node, (tuple, list)):
        return type(node)(cast(child, double=double) for child in node)
    if node.is_floating_point():
        return node.double() if double else node.float()
    if node.is_complex():
        return node.cdouble() if double else node.cfloat()
    return node


def inputs_of(workload: Workload, seed: int = 0, size_name: str | None = None) -> Any:  # noqa: ANN401  (a nest of tensors)
    torch = pytest.importorskip("torch", reason="torch is only in the cells")
    size = workload.sizes[size_name or next(iter(workload.sizes))]
    return resolve(workload.make_inputs)(size, torch.Generator().manual_seed(seed))


@dataclass(frozen=True)
class Anchor:
    """Inputs in float32, eager's output and the float64 reference, to compare variants with."""

    inputs: Any
    eager: list[torch.Tensor]
    reference: list[torch.Tensor]


def anchor_of(workload: Workload, variant: Variant | None = None) -> Anchor:
    """Return the anchor at the smallest size; for 16-bit variants at the default size.

    Small molecules have small forces, for which bfloat16 is too inexact (docs/adr/0016).
    """
    return make_anchor(workload.name, workload.default_size if variant and variant.dtype else None)


@cache
def make_anchor(name: str, size_name: str | None) -> Anchor:
    workload = next(w for w in WORKLOADS if w.name == name)
    inputs = cast(inputs_of(workload, size_name=size_name), double=False)
    return Anchor(
        inputs=inputs,
        eager=flatten(resolve(workload.eager)(*inputs)),
        reference=flatten(resolve(workload.reference)(*cast(inputs, double=True))),
    )


def rmse(actual: torch.Tensor, reference: torch.Tensor) -> float:
    return float((actual.to(reference.dtype) - reference).abs().square().mean().sqrt())


def mistakes_of(outputs: list[torch.Tensor], anchor: Anchor, tolerance: float) -> list[str]:
    """Return the outputs that exceed the error budget anchored by eager."""
    import torch  # noqa: PLC0415  (this module is collected without torch, too)

    found = []
    for number, (actual, eager, reference) in enumerate(
        zip(outputs, anchor.eager, anchor.reference, strict=True)
    ):
        if actual.shape != eager.shape or actual.dtype != eager.dtype:
            found.append(f"{number}: {actual.dtype} {list(actual.shape)}")
        elif not torch.allclose(actual, eager, rtol=tolerance, atol=tolerance):
            found.append(f"{number}: not close to eager")
        else:
            factor = 3.0 if actual.numel() < FEW_ELEMENTS else 2.0
            limit = factor * rmse(eager, reference) + tolerance / 10.0
            if not rmse(actual, reference) <= limit:
                found.append(f"{number}: RMSE {rmse(actual, reference):.2e} above {limit:.2e}")
    return found


def inputs_for(workload: Workload, variant: Variant) -> Any:  # noqa: ANN401  (a nest of tensors)
    """Return the inputs of a variant, in its own precision if it has one."""
    import torch  # noqa: PLC0415

    inputs = anchor_of(workload, variant).inputs
    if variant.dtype is not None:
        from ivhl.measure.draws import cast  # noqa: PLC0415  (imports torch)

        inputs = cast(inputs, getattr(torch, variant.dtype), torch.device("cpu"))
    return resolve(variant.prepare)(*inputs) if variant.prepare is not None else inputs


def eager_form(variant: Variant) -> Any:  # noqa: ANN401  (any function)
    call = resolve(variant.call)
    return call if variant.compiles == "whole" else call(lambda function: function)


@cache
def eager_outputs(name: str, variant_name: str) -> list[torch.Tensor]:
    """Return what a variant returns that runs eagerly: in 16 bits it takes seconds."""
    workload = next(w for w in WORKLOADS if w.name == name)
    variant = next(v for v in workload.variants if v.name == variant_name)
    return flatten(eager_form(variant)(*inputs_for(workload, variant)))


def judge(workload: Workload, variant: Variant, outputs: list[torch.Tensor]) -> list[str]:
    """Return the outputs that exceed the variant's budget; in its own precision, by the harness."""
    anchor = anchor_of(workload, variant)
    if variant.dtype is None:
        return mistakes_of(outputs, anchor, workload.tolerance)
    from ivhl.measure.accuracy import judge_compiled, judge_eager  # noqa: PLC0415  (torch)

    source = eager_outputs(workload.name, variant.name)
    judged = judge_compiled(
        judge_eager(workload.outputs, anchor.eager, anchor.reference),
        outputs,
        anchor.reference,
        dtype=variant.dtype,
        tolerance=workload.tolerance,
        anchors=judge_eager(workload.outputs, source, anchor.reference),
    )
    found = [
        f"{e.output}: RMSE {e.compiled_rmse} above {e.limit_rmse}" for e in judged if not e.passed
    ]
    found += [
        f"{name}: {tensor.dtype}"
        for name, tensor in zip(workload.outputs, outputs, strict=True)
        if tensor.dtype != source[0].dtype
    ]
    return found


def test_workloads_load_as_the_project_names_them() -> None:
    # By their texts: another test of this process may have imported the benchmarks again.
    assert list(map(repr, load_workloads("benchmarks"))) == list(map(repr, WORKLOADS))


def test_importing_the_workloads_does_not_import_torch() -> None:
    code = (
        "import sys; from ivhl.workload import load_workloads; load_workloads('benchmarks')\n"
        "print('torch' in sys.modules)"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout.strip() == "False"


@workloads
def test_every_reference_resolves_to_a_function(workload: Workload) -> None:
    pytest.importorskip("torch", reason="torch is only in the cells")
    names = [workload.make_inputs, workload.eager, workload.reference]
    for variant in workload.variants:
        names += [n for n in (variant.call, variant.prepare, variant.finish) if n is not None]
    assert all(callable(resolve(name)) for name in names)


@workloads
def test_sizes_are_small_medium_and_large(workload: Workload) -> None:
    pytest.importorskip("torch", reason="torch is only in the cells")
    assert [size for size in workload.sizes if size != "tiny"][:3] == ["small", "medium", "large"]
    assert workload.default_size in workload.sizes


@workloads
def test_costs_grow_with_the_size(workload: Workload) -> None:
    costs = [
        case.cost
        for size in workload.sizes
        for case in select_cases([workload], size=size, variants=[workload.variants[0].name])
    ]
    for smaller, larger in pairwise(costs):
        assert smaller is not None
        assert larger is not None
        if "cdt" in workload.name:  # integers only
            assert smaller.flops == larger.flops == 0.0
            assert smaller.bytes < larger.bytes
        else:
            assert 0 < smaller.flops < larger.flops
        assert 0 < smaller.bytes <= larger.bytes
        assert 0 < smaller.memory <= larger.memory


@workloads
def test_same_seed_gives_same_inputs(workload: Workload) -> None:
    import torch  # noqa: PLC0415

    one, same, other = (flatten(inputs_of(workload, seed)) for seed in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@workloads
def test_floating_inputs_are_drawn_in_float64(workload: Workload) -> None:
    inputs = inputs_of(workload)
    for before, after in zip(flatten(inputs), flatten(cast(inputs, double=True)), strict=True):
        assert before.dtype == after.dtype


@workloads
def test_eager_leaves_its_inputs_alone(workload: Workload) -> None:
    import torch  # noqa: PLC0415

    inputs = inputs_of(workload)
    before = [t.clone() for t in flatten(inputs)]
    resolve(workload.eager)(*inputs)
    resolve(workload.reference)(*inputs)
    assert all(torch.equal(a, b) for a, b in zip(flatten(inputs), before, strict=True))
    assert not any(t.requires_grad for t in flatten(inputs))


@workloads
def test_eager_in_float64_equals_the_reference(workload: Workload) -> None:
    inputs = inputs_of(workload)
    outputs = flatten(resolve(workload.eager)(*inputs))
    references = flatten(resolve(workload.reference)(*inputs))
    assert len(outputs) == len(references) == len(workload.outputs)
    for actual, expected in zip(outputs, references, strict=True):
        assert actual.dtype == expected.dtype
        assert float((actual - expected).abs().max() / expected.abs().max()) < 1e-12


def skip_without_dynamo() -> None:
    import torch  # noqa: PLC0415

    try:
        torch._dynamo.eval_frame.check_if_dynamo_supported()
    except RuntimeError as error:
        pytest.skip(str(error))


def skip_what_takes_long(workload: Workload, variant: Variant) -> None:
    if (workload.name, variant.name) not in LONG:
        return
    import torch  # noqa: PLC0415

    from ivhl.matrix.spec import load_matrix  # noqa: PLC0415  (needs more than torch)

    newest = load_matrix(Path("envs/matrix.toml")).releases("default")[-1]
    if torch.__version__.split("+")[0] != newest:
        pytest.skip(f"a minute of the C++ compiler: only on PyTorch {newest}")


def assert_within_budget(workload: Workload, variant: Variant, outputs: list[Any]) -> None:
    import torch  # noqa: PLC0415

    wrong = judge(workload, variant, outputs)
    known = workload.name == "mlff.edge_list"
    if wrong and known and torch.__version__.startswith(LOSING_ADDITIONS):
        pytest.xfail(f"this release loses additions: {wrong}")
    assert wrong == []


def assert_was_compiled(variant: Variant, hot: Any) -> None:  # noqa: ANN401  (it imports torch)
    import torch  # noqa: PLC0415

    if variant.engine == "hotpath":
        assert hot.not_compiled() == ""
        assert hot.fell_back() is None
    if variant.engine not in DYNAMO_ENGINES:
        return
    counters = torch._dynamo.utils.counters
    assert counters["stats"]["unique_graphs"] >= 1
    if variant.fullgraph:
        assert not counters["graph_break"]


@compiled_variants
def test_compiled_stays_within_the_error_budget(workload: Workload, variant: Variant) -> None:
    torch = pytest.importorskip("torch", reason="torch is only in the cells")
    from ivhl.measure.engine import compiler_of  # noqa: PLC0415  (imports torch)
    from ivhl.measure.hotpaths import HotPaths  # noqa: PLC0415

    if variant.engine in INDUCTOR_ENGINES - {"hotpath"}:
        skip_without_dynamo()
    skip_what_takes_long(workload, variant)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()

    def torch_compile(function: Any) -> Any:  # noqa: ANN401  (any function)
        return torch.compile(
            function, mode=variant.mode, dynamic=variant.dynamic, fullgraph=variant.fullgraph
        )

    hot = HotPaths()
    compiler = (
        hot.compiler if variant.engine == "hotpath" else compiler_of(variant.engine, torch_compile)
    )
    call = resolve(variant.call)
    compiled = compiler(call) if variant.compiles == "whole" else call(compiler)
    inputs = inputs_for(workload, variant)
    before = [t.clone() for t in flatten(inputs)]
    try:
        first, second = (compiled(*inputs) for _ in range(2))
    except Exception as error:
        if classify(error, "compile") == "unsupported":
            pytest.skip(f"this release does not have it: {error}")
        if variant.fullgraph or not any(text in str(error) for text in KNOWN_FAILURES):
            raise
        pytest.xfail(f"this release does not compile it: {error}")
    if variant.finish is not None:
        first, second = (resolve(variant.finish)(outputs) for outputs in (first, second))
    for outputs in (first, second):
        assert_within_budget(workload, variant, flatten(outputs))
    assert all(torch.equal(a, b) for a, b in zip(flatten(inputs), before, strict=True))
    assert_was_compiled(variant, hot)


@cpu_variants
def test_a_variant_run_eagerly_is_within_the_error_budget(
    workload: Workload, variant: Variant
) -> None:
    pytest.importorskip("torch", reason="torch is only in the cells")
    outputs = eager_form(variant)(*inputs_for(workload, variant))
    if variant.finish is not None:
        outputs = resolve(variant.finish)(outputs)
    assert judge(workload, variant, flatten(outputs)) == []


@precise_variants
def test_the_rule_rejects_a_wrong_result_in_a_short_precision(
    workload: Workload, variant: Variant
) -> None:
    pytest.importorskip("torch", reason="torch is only in the cells")
    right = eager_outputs(workload.name, variant.name)
    assert judge(workload, variant, right) == []
    for number, output in enumerate(right):
        wrong = list(right)
        wrong[number] = output + 0.1 * output.abs().max()
        (mistake,) = judge(workload, variant, wrong)
        assert mistake.startswith(workload.outputs[number])


@workloads
def test_the_rule_rejects_a_small_systematic_error(workload: Workload) -> None:
    anchor = anchor_of(workload)
    assert mistakes_of(anchor.eager, anchor, workload.tolerance) == []
    for number in range(len(anchor.eager)):
        wrong = list(anchor.eager)
        wrong[number] = wrong[number] + 5e-5  # allclose would pass it
        assert mistakes_of(wrong, anchor, workload.tolerance) != []


@workloads
def test_modes_that_change_nothing_on_a_cpu_are_not_run_there(workload: Workload) -> None:
    for variant in workload.variants:
        if variant.mode == "reduce-overhead":
            assert variant.devices == ("cuda",), f"{variant.name} is the default mode on a CPU"
    assert sum(v.name == "naive-compiled" for v in workload.variants) == 1
