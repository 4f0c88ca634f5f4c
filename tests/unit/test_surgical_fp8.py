"""Linear layers in FP8: rounding, scales, histories, the kernels, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is only in the cells")
import torch
from torch import nn
from torch.nn.functional import gelu

from ivhl.surgical import (
    Fp8Linear,
    ScalingRecipe,
    StackConfiguration,
    TransformerStack,
    fp8_kernel,
    fp8_step,
    train_step,
)
from ivhl.surgical.fp8 import E4M3, E4M3_MAX, multiply_emulated, multiply_scaled, quantise

pytestmark = [
    pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
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
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), fp8_step(layer):
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
