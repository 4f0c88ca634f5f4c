"""Linear layers in FP8: rounding, scales, histories, the kernels, and what is refused."""

from __future__ import annotations

import copy
import functools
import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is only in the cells")
import torch
from torch import nn
from torch.nn.functional import gelu

from ivhl.compile import CompileFallbackWarning, get_compiled, measuring
from ivhl.surgical import (
    Fp8Linear,
    ScalingRecipe,
    StackConfiguration,
    TransformerStack,
    fp8,
    fp8_kernel,
    fp8_step,
    train_step,
)
from ivhl.surgical.fp8 import (
    E4M3,
    E4M3_MAX,
    multiply_emulated,
    multiply_scaled,
    quantise,
    round_at,
    round_first,
)
from ivhl.surgical.plan import compile_static

if TYPE_CHECKING:
    from collections.abc import Callable

    from ivhl.surgical.fp8 import AmaxChoice

pytestmark = [
    pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    # 2.6.0, about its own settings, where pytest takes the compiler's logs.
    pytest.mark.filterwarnings("ignore:Skipping serialization of:UserWarning"),
]


def drawn(*shape: int, seed: int = 4) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def layer_of(recipe: ScalingRecipe | None = None, **options: Any) -> Fp8Linear:  # noqa: ANN401
    layer = Fp8Linear(32, 16, recipe=recipe, **options)
    layer.weight.data.copy_(drawn(16, 32, seed=1) / math.sqrt(32))
    return layer


def step(layer: Fp8Linear, largest: float) -> None:
    """Run a step whose input has this largest absolute value."""
    x = drawn(4, 32)
    with fp8_step(layer), torch.no_grad():
        layer(x * (largest / float(x.abs().max())))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(scale=st.floats(1e-3, 1e3), seed=st.integers(0, 9))
def test_a_number_is_rounded_to_e4m3_by_at_most_a_sixteenth_and_never_overflows(
    scale: float, seed: int
) -> None:
    x = 100.0 * drawn(64, seed=seed)
    rounded = quantise(x, torch.tensor(scale)).float() / scale
    inside = (x * scale).abs().clamp(max=E4M3_MAX) / scale
    assert bool(rounded.isfinite().all())
    # Three bits after the point; below 2 ** -6 numbers are spaced evenly.
    allowed = torch.maximum(inside / 16.0, torch.tensor(2.0**-10 / scale))
    assert bool(((rounded.abs() - inside).abs() <= 1.001 * allowed).all())


def test_the_first_step_takes_the_scale_of_its_tensors_and_later_ones_that_of_the_steps_before() -> (
    None
):
    layer = layer_of(ScalingRecipe(history=3))
    assert float(layer.input_scale.scale) == 1.0
    x = drawn(4, 32)
    close = x @ layer.weight.detach().t()
    with torch.no_grad():
        first = layer(x)
    assert float((first - close).abs().max()) < 0.1 * float(close.abs().max())
    step(layer, 2.0)
    assert float(layer.input_scale.scale) == pytest.approx(E4M3_MAX / 2.0, rel=1e-6)
    with torch.no_grad():  # eight times as large as what the scale was chosen for: cut off
        cut = layer(8.0 * x)
    assert float((cut - 8.0 * close).abs().max()) > 0.3 * float(close.abs().max())


def test_a_scale_holds_during_a_step_and_changes_once_at_its_end() -> None:
    layer = layer_of()
    step(layer, 1.0)
    with fp8_step(layer), torch.no_grad():
        for largest in (5.0, 3.0):  # a layer called twice: the larger one counts
            layer(torch.full((1, 32), largest))
            assert float(layer.input_scale.scale) == pytest.approx(E4M3_MAX)
    assert float(layer.input_scale.scale) == pytest.approx(E4M3_MAX / 5.0)
    assert layer.input_scale.history[:3].tolist() == pytest.approx([5.0, 1.0, 0.0])


def test_without_steps_no_scale_is_ever_updated() -> None:
    # The original runs all its passes in one block: this is what its layers saw.
    layer = layer_of()
    step(layer, 1.0)
    with fp8_step(layer), torch.no_grad():
        for _ in range(62):
            layer(torch.full((1, 32), 100.0))
            assert float(layer.input_scale.scale) == pytest.approx(E4M3_MAX)


def test_the_history_remembers_its_steps_and_forgets_older_ones() -> None:
    largest, recent = (
        layer_of(ScalingRecipe(history=3, amax=amax)) for amax in ("max", "most-recent")
    )
    for amax in (8.0, 1.0, 2.0):
        step(largest, amax)
        step(recent, amax)
    assert largest.input_scale.history.tolist() == pytest.approx([2.0, 1.0, 8.0])
    assert float(largest.input_scale.scale) == pytest.approx(E4M3_MAX / 8.0)
    assert float(recent.input_scale.scale) == pytest.approx(E4M3_MAX / 2.0)
    step(largest, 1.0)  # the 8 is forgotten
    assert float(largest.input_scale.scale) == pytest.approx(E4M3_MAX / 2.0)


def test_a_margin_halves_the_scale_and_current_scaling_needs_no_history() -> None:
    layer = layer_of(ScalingRecipe(margin=1))
    step(layer, 2.0)
    assert float(layer.input_scale.scale) == pytest.approx(E4M3_MAX / 4.0)
    current = layer_of(ScalingRecipe(history=0))
    x = drawn(4, 32)
    with torch.no_grad():
        small = current(x)
        with fp8_step(current):
            current(1e-3 * x)
        assert torch.equal(current(x), small)
        torch.testing.assert_close(current(1024.0 * x), 1024.0 * small)


def test_the_largest_margin_still_leaves_the_amax_a_number() -> None:
    layer = Fp8Linear(16, 16, recipe=ScalingRecipe(margin=17))
    with torch.no_grad():
        layer.weight.fill_(1.0)
    # 448 / 2 ** 17 is 1.75 times the smallest number: 2 times is nearest.
    product = layer(torch.full((1, 16), 3.0))
    torch.testing.assert_close(product, torch.full((1, 16), 48.0 * (2.0 / 1.75) ** 2))


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0])
def test_a_step_of_zeros_or_without_finite_numbers_changes_no_scale(bad: float) -> None:
    layer = layer_of()
    step(layer, 2.0)
    before = layer.input_scale.history.tolist()
    with fp8_step(layer), torch.no_grad():
        layer(torch.full((1, 32), bad))
    assert layer.input_scale.history.tolist() == before
    assert float(layer.input_scale.scale) == pytest.approx(E4M3_MAX / 2.0)
    assert float(layer.input_scale.seen) == 0.0


def test_a_step_that_raises_updates_nothing() -> None:
    layer = layer_of()
    with pytest.raises(ValueError, match=r"shape \[..., 32\], got \[1, 48\]"), fp8_step(layer):
        layer(drawn(1, 48))
    assert float(layer.input_scale.scale) == 1.0


def test_scales_stay_in_float32_when_a_model_is_cast_and_are_saved_with_it() -> None:
    layer = layer_of()
    step(layer, 3.0)
    layer.bfloat16()
    assert layer.weight.dtype == torch.bfloat16
    assert layer.input_scale.scale.dtype == torch.float32
    assert float(layer.input_scale.scale) == pytest.approx(E4M3_MAX / 3.0, rel=1e-6)
    other = layer_of()
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other.input_scale.history, layer.input_scale.history)


@pytest.mark.parametrize("usual", [torch.float64, torch.bfloat16])
def test_scales_are_float32_whatever_the_default_dtype_is(usual: torch.dtype) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(usual)
    try:
        layer = Fp8Linear(32, 16)
        x = torch.randn(4, 32)
        with fp8_step(layer):
            layer(x)
        y = layer(x)
    finally:
        torch.set_default_dtype(before)
    assert layer.weight.dtype == y.dtype == usual
    assert {buffer.dtype for buffer in layer.buffers()} == {torch.float32}
    amax = float(x.abs().max())
    assert float(layer.input_scale.scale) == pytest.approx(E4M3_MAX / amax, rel=1e-6)


def test_a_layer_that_was_made_without_numbers_begins_with_no_step() -> None:
    with torch.device("meta"):
        made = Fp8Linear(32, 16)
    layer = made.to_empty(device="cpu")
    layer.weight.data.copy_(layer_of().weight)
    assert layer.input_scale.scale.tolist() == 1.0
    assert layer.input_scale.history.tolist() == [0.0] * 16
    x = drawn(4, 32)
    assert torch.equal(layer(x), layer_of()(x))
    assert layer.to("meta").input_scale.scale.is_meta


@pytest.mark.parametrize("compiled", [False, True])
def test_a_layer_takes_every_shape_that_a_linear_layer_takes(compiled: bool) -> None:  # noqa: FBT001
    # Nothing is compiled: Dynamo's limit of graphs for these functions is that of all tests.
    layer = layer_of(compiler=(lambda function: function) if compiled else None)
    step(layer, 2.0)
    history = layer.input_scale.history.tolist()
    for shape in ((0, 32), (2, 0, 32)):
        x = torch.zeros(shape, requires_grad=True)
        with fp8_step(layer):
            y = layer(x)
            y.sum().backward()
        assert y.shape == (*shape[:-1], 16)
        assert x.grad.shape == shape
    assert layer.input_scale.history.tolist() == history
    assert torch.equal(layer.weight.grad, torch.zeros(16, 32))
    row = drawn(32)
    assert torch.equal(layer(row), layer(row[None])[0])


def test_gradients_are_those_of_the_product_without_rounding() -> None:
    layer, x = layer_of(), drawn(4, 32).requires_grad_()
    weights = drawn(4, 16, seed=8)
    (layer(x) * weights).sum().backward()
    torch.testing.assert_close(x.grad, weights @ layer.weight.detach())
    torch.testing.assert_close(layer.weight.grad, weights.t() @ x.detach())


def test_both_kernels_multiply_the_same_numbers() -> None:
    """Run ``torch._scaled_mm`` where a release has it for the CPU, as 2.15.0 does."""
    scales = (torch.tensor(100.0), torch.tensor(60.0))
    left, right = (
        quantise(drawn(*shape, seed=n), scale)
        for n, (shape, scale) in enumerate(zip(((48, 32), (16, 32)), scales, strict=True))
    )
    assert left.dtype == right.dtype == E4M3
    try:
        native = multiply_scaled(left, right, scales, torch.bfloat16)
    except NotImplementedError as error:
        pytest.skip(f"no torch._scaled_mm here: {str(error)[:60]}")
    inverse = (scales[0] * scales[1]).reciprocal()
    emulated = multiply_emulated(left, right, inverse, torch.bfloat16)
    torch.testing.assert_close(native, emulated, rtol=2**-7, atol=1e-3)


def test_what_multiplies_is_named_and_fp8_on_a_device_without_it_is_refused_by_name() -> None:
    assert fp8_kernel("cpu") == "emulated"
    assert "kernel=emulated" in repr(layer_of())
    for kernel in ("scaled_mm", "transformer_engine"):
        layer = layer_of(kernel=kernel)
        with pytest.raises(
            ValueError,
            match=f"FP8 by {kernel} needs an NVIDIA GPU of compute capability 8.9 or more, and cpu "
            "is none; kernel='emulated'",
        ):
            layer(drawn(1, 32))


def test_widths_recipes_and_kernels_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="multiples of 16, got 30 to 16"):
        Fp8Linear(30, 16)
    with pytest.raises(ValueError, match=r"the kernel must be one of .*got 'fast'"):
        Fp8Linear(32, 16, kernel="fast")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"margin must be at most 17, .* got 18"):
        ScalingRecipe(margin=18)
    with pytest.raises(ValueError, match=r"floating-point dtype, got torch\.int64"):
        Fp8Linear(16, 16)(torch.ones(2, 16, dtype=torch.int64))
    with pytest.raises(ValueError, match="history must be an integer of at least 0, got -1"):
        ScalingRecipe(history=-1)
    with pytest.raises(ValueError, match="amax must be one of max, most-recent, got 'mean'"):
        ScalingRecipe(amax="mean")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a recipe belongs to FP8 layers, got linear='linear'"):
        TransformerStack(StackConfiguration(n_hidden=32, n_heads=2), recipe=ScalingRecipe())


def test_an_fp8_stack_trains_in_float32_and_updates_its_scales_each_step() -> None:
    configuration = StackConfiguration(n_layers=1, n_hidden=32, n_heads=2, n_inner=48)
    torch.manual_seed(0)
    stack = TransformerStack(configuration, "eager", linear="fp8")
    optimizer = torch.optim.SGD(stack.parameters(), lr=0.05)
    x, target = drawn(2, 8, 32), drawn(2, 8, 32, seed=5)
    losses = [train_step(stack, optimizer, x, target) for _ in range(5)]
    assert losses[-1] < losses[0]
    layers = [layer for layer in stack.modules() if isinstance(layer, Fp8Linear)]
    assert len(layers) == 4
    assert all(int((layer.weight_scale.history > 0.0).sum()) == 5 for layer in layers)


class Between(nn.Module):  # type: ignore[misc]
    """An FP8 layer between two activations."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = layer_of()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the activation of what the layer makes of activations."""
        return gelu(self.layer(gelu(x)))


def test_an_fp8_layer_stays_eager_in_compiled_code() -> None:
    graphs: list[Any] = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:  # noqa: ANN401
        graphs.append(graph)
        return graph.forward

    model, x = Between(), drawn(4, 32)
    with torch.no_grad():
        expected = model(x)
        torch.testing.assert_close(torch.compile(model, backend=backend)(x), expected)
    names = [str(node.target) for graph in graphs for node in graph.graph.nodes]
    assert sum("gelu" in name for name in names) == 2
    assert not any("float8" in name or "mm" in name for name in names)


def test_the_whole_stack_cannot_be_one_graph_with_layers_that_stay_eager() -> None:
    with pytest.raises(ValueError, match=r"FP8 layers stay eager.*plan sdpa"):
        TransformerStack(StackConfiguration(n_hidden=32, n_heads=2), "whole", linear="fp8")


# --- compiled rounding ---------------------------------------------------------------------------


class Recorder:
    """Compiles without generating code; says what it compiled and which of it was called."""

    def __init__(self) -> None:
        self.compiled: list[str] = []
        self.called: list[str] = []

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Compile a function."""
        self.compiled.append(function.__name__)
        made = torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=False)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            self.called.append(function.__name__)
            return made(*args, **kwargs)

        return call

    def calls(self) -> list[str]:
        """Return what was called since the last time."""
        called, self.called = self.called, []
        return called


def same(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    """Return whether tensors are the same bits, of whatever sign a NaN is."""
    assert one is not None
    assert other is not None
    short = one.dtype == other.dtype == E4M3
    left, right = (one.float(), other.float()) if short else (one, other)
    nan = left.isnan()
    return bool(
        one.dtype == other.dtype
        and torch.equal(nan, right.isnan())
        and torch.equal(left.masked_fill(nan, 0.0), right.masked_fill(nan, 0.0))
    )


def pair_of(recipe: ScalingRecipe, compiler: Any) -> tuple[Fp8Linear, Fp8Linear]:  # noqa: ANN401
    """Return a layer that rounds eagerly, and the same one compiled."""
    return layer_of(recipe), layer_of(recipe, compiler=compiler)


def run_step(layer: Fp8Linear, x: torch.Tensor) -> list[torch.Tensor | None]:
    """Run a step of two calls; return results, gradients and buffers after it."""
    x = x.clone().requires_grad_()
    layer.weight.grad = None
    with fp8_step(layer):
        results = [layer(x), layer(2.0 * x)]
        sum(result.float().square().sum() for result in results).backward()
    return [*results, x.grad, layer.weight.grad, *layer.buffers()]


@functools.cache
def compiled_for(function: Callable[..., Any], *_: object) -> Callable[..., Any]:
    """Return a function compiled for itself in each case: Dynamo's limit is 8."""
    return compile_static(function)


@pytest.mark.full
@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    size=st.floats(-7.0, 4.0),
    scale=st.floats(-5.0, 8.0),
    latest=st.sampled_from([0.0, 2.0]),
    odd=st.sampled_from([None, 0.0, math.inf, math.nan]),
    margin=st.integers(0, 1),
    seed=st.integers(0, 9),
)
@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32,
        *(pytest.param(t, marks=pytest.mark.full) for t in (torch.bfloat16, torch.float16)),
    ],
)
def test_compiled_code_rounds_to_the_bits_of_eager_code(  # noqa: PLR0917
    dtype: torch.dtype,
    size: float,
    scale: float,
    latest: float,
    odd: float | None,
    margin: int,
    seed: int,
) -> None:
    x = (10.0**size * drawn(300, seed=seed).double()).to(dtype)
    if odd is not None:
        x[7] = odd
    held = (torch.tensor(10.0**scale), torch.tensor(latest))
    seen = [torch.tensor(0.5) for _ in range(6)]
    with measuring():  # nothing falls back to eager code
        at = compiled_for(round_at, dtype)(x, held[0], seen[0])
        first = compiled_for(round_first, dtype, margin)(x, held, seen[1], margin)
        current = compiled_for(round_first, dtype, margin, None)(x, None, seen[2], margin)
    assert same(at, round_at(x, held[0], seen[3]))
    for one, other in zip(first, round_first(x, held, seen[4], margin), strict=True):
        assert same(one, other)
    for one, other in zip(current, round_first(x, None, seen[5], margin), strict=True):
        assert same(one, other)
    assert all(same(one, seen[3]) for one in seen)


@pytest.mark.parametrize("history", [0, 16])
@pytest.mark.parametrize("amax", ["max", "most-recent"])
def test_steps_with_compiled_rounding_are_those_with_eager_rounding(
    history: int, amax: AmaxChoice
) -> None:
    compiler = functools.cache(Recorder())

    @settings(max_examples=15, deadline=None, derandomize=True)
    @given(
        sizes=st.lists(st.floats(1e-6, 1e6) | st.just(0.0) | st.just(math.nan), max_size=4),
        margin=st.integers(0, 1),
    )
    def check(sizes: list[float], margin: int) -> None:
        layers = pair_of(ScalingRecipe(history=history, margin=margin, amax=amax), compiler)
        for seed, size in enumerate(sizes):
            eager, compiled = (
                run_step(layer, size * drawn(2, 4, 32, seed=seed)) for layer in layers
            )
            assert all(same(one, other) for one, other in zip(eager, compiled, strict=True))

    check()


def test_compiled_rounding_follows_autocast_casts_and_copies() -> None:
    recorder = Recorder()
    layers: tuple[nn.Module, ...] = pair_of(ScalingRecipe(), functools.cache(recorder))

    def check(x: torch.Tensor) -> None:
        eager, compiled = (run_step(layer, x) for layer in layers)
        assert all(same(one, other) for one, other in zip(eager, compiled, strict=True))

    for seed in range(2):
        check(drawn(4, 32, seed=seed))
        with torch.autocast("cpu", torch.bfloat16):
            check(drawn(4, 32, seed=seed).bfloat16())
    layers = tuple(copy.deepcopy(layer).bfloat16().to("cpu") for layer in layers)
    check(drawn(4, 32, seed=3).bfloat16())
    layers = tuple(layer.double() for layer in layers)
    check(drawn(4, 32, seed=4).double())
    with torch.inference_mode():
        x = drawn(4, 32).double()
        assert same(layers[0](x), layers[1](x))
    assert {"round_at", "round_weight_at"} <= set(recorder.calls())


def test_compiled_rounding_reads_a_tensor_once_as_soon_as_there_was_a_step() -> None:
    recorder = Recorder()
    layer = layer_of(compiler=recorder)
    first, later = ["round_first", "round_weight_first"], ["round_at", "round_weight_at"]
    with torch.no_grad():
        layer(drawn(4, 32))
        assert recorder.calls() == first
        step(layer, math.nan)  # no step for the input, one for the weight
        recorder.calls()
        layer(drawn(4, 32))
        assert recorder.calls() == ["round_first", "round_weight_at"]
        step(layer, 1.0)
        recorder.calls()
        layer(drawn(4, 32))
        assert recorder.calls() == later
        other = layer_of(compiler=recorder)
        other.load_state_dict(layer.state_dict())
        other(drawn(4, 32))
        assert recorder.calls() == later
        other.load_state_dict(layer_of().state_dict())  # back to before any step
        other(drawn(4, 32))
        assert recorder.calls() == first


def test_layers_of_a_stack_share_what_its_compiler_makes_and_an_eager_plan_compiles_nothing() -> (
    None
):
    configuration = StackConfiguration(n_layers=2, n_hidden=32, n_heads=2, n_inner=48)
    recorders, results = [Recorder(), Recorder(), Recorder()], []
    stacks = []
    for recorder, plan in zip(recorders, ("eager", "surgical", "sdpa"), strict=True):
        torch.manual_seed(0)
        stacks.append(TransformerStack(configuration, plan, linear="fp8", compiler=recorder))
        optimizer = torch.optim.SGD(stacks[-1].parameters(), lr=0.05)
        x, target = drawn(2, 8, 32), drawn(2, 8, 32, seed=5)
        results.append([train_step(stacks[-1], optimizer, x, target) for _ in range(3)])
    rounding = ["round_at", "round_first", "round_weight_at", "round_weight_first"]
    assert recorders[0].compiled == []
    for recorder in recorders[1:]:
        assert sorted(name for name in recorder.compiled if name.startswith("round")) == rounding
        # 8 layers, 3 steps, of which the first has no history
        counts = {name: recorder.called.count(name) for name in rounding}
        assert counts == dict(zip(rounding, (16, 8, 16, 8), strict=True))
    assert results[1] == results[0]
    assert results[2] == pytest.approx(results[0], rel=0.02)


def test_what_cannot_be_compiled_rounds_eagerly() -> None:
    def broken(*_: Any) -> Any:  # noqa: ANN401
        raise NotImplementedError("no such device")

    compiler = functools.partial(get_compiled, backend=broken, fullgraph=True, dynamic=False)
    layers = pair_of(ScalingRecipe(), compiler)
    with pytest.warns(CompileFallbackWarning, match="round"):
        found = [[run_step(layer, drawn(4, 32, seed=seed)) for seed in (1, 2)] for layer in layers]
    for eager, fallen in zip(*found, strict=True):
        assert all(same(one, other) for one, other in zip(eager, fallen, strict=True))


def test_rounding_is_compiled_inside_of_a_model_that_is_compiled_too() -> None:
    runs: list[int] = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:  # noqa: ANN401
        def run(*inputs: Any) -> Any:  # noqa: ANN401
            runs.append(len(inputs))
            return graph.forward(*inputs)

        return run

    compiler = functools.partial(torch.compile, backend=backend, fullgraph=True, dynamic=False)
    model, x = Between(), drawn(4, 32)
    with torch.no_grad():
        expected = model(x)
        model.layer = layer_of(compiler=compiler)
        torch.testing.assert_close(torch.compile(model, backend="eager")(x), expected)
    assert runs == [4, 4]  # a tensor, the scale held, the last amax, that of the step


def test_what_a_device_can_do_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def capability(device: torch.device) -> tuple[int, int]:
        asked.append(device)
        return (9, 0) if device.index == 0 else (8, 0)

    monkeypatch.setattr(fp8, "_capability_at", functools.cache(capability))
    monkeypatch.setattr(fp8, "find_spec", asked.append)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    fp8._has_transformer_engine.cache_clear()
    try:
        for _ in range(2):
            assert fp8_kernel("cuda:0") == "scaled_mm"
            assert fp8_kernel("cuda:1") == fp8_kernel("cuda") == "emulated"
    finally:
        fp8._has_transformer_engine.cache_clear()
    assert asked == [torch.device("cuda:0"), "transformer_engine", torch.device("cuda:1")]
