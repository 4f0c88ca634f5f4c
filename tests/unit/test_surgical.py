"""The transformer of which chosen operations are compiled: its operations, plans and training."""

from __future__ import annotations

import copy
import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is only in the cells")
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter

from ivhl import surgical
from ivhl.surgical import (
    PLANS,
    SIZES,
    CompilePlan,
    StackConfiguration,
    TransformerStack,
    choose_operations,
    make_angles,
    rotate,
    train_step,
)
from ivhl.surgical.operations import (
    attend_sdpa,
    attend_softmax,
    combine_heads,
    normalise,
    rotate_beside_swapped,
    split_heads,
)
from ivhl.surgical.stack import apply_stack, make_weights

if TYPE_CHECKING:
    from collections.abc import Callable

    from ivhl.surgical.configuration import ActivationKind, NormKind

pytestmark = [
    pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning"),
    # Dynamo reads .grad of every input, including tokens between two operations.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]

SMALL = StackConfiguration(n_layers=2, n_hidden=32, n_heads=2, n_inner=48)


def tokens(*shape: int, seed: int = 3, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    drawn = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return drawn.to(dtype)


def stack_of(
    configuration: StackConfiguration,
    plan: CompilePlan | str = "eager",
    **options: Any,  # noqa: ANN401
) -> TransformerStack:
    stack = TransformerStack(configuration, plan, n_positions=64, **options)
    stack.load_weights(make_weights(configuration, torch.Generator().manual_seed(1)))
    return stack


class Layer(nn.Module):  # type: ignore[misc]
    """A layer out of PyTorch's modules, with complex numbers for RoPE: another way to the same."""

    def __init__(self, configuration: StackConfiguration, weights: dict[str, Any]) -> None:
        super().__init__()
        self.configuration, self.weights = configuration, weights
        width = configuration.n_hidden
        self.norms = {}
        for name in ("first", "second"):
            if configuration.norm == "layer":
                norm = nn.LayerNorm(width, eps=configuration.eps, dtype=torch.float64)
                norm.bias.data.copy_(weights[f"{name}.shift"])
            else:
                norm = nn.RMSNorm(width, eps=configuration.eps, dtype=torch.float64)
            norm.weight.data.copy_(weights[f"{name}.gain"])
            self.norms[name] = norm
        self.activation = {
            "gelu": nn.GELU(), "gelu-tanh": nn.GELU(approximate="tanh"), "silu": nn.SiLU()
        }[configuration.activation]  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the tokens after the layer."""
        w, n_heads = self.weights, self.configuration.n_heads
        n_head = self.configuration.n_head
        q, k, v = (self.norms["first"](x) @ w["qkv"].T).chunk(3, -1)
        pair = torch.arange(n_head // 2, dtype=torch.float64)
        place = torch.arange(x.shape[1], dtype=torch.float64)
        angle = torch.outer(place, self.configuration.base ** (-2.0 * pair / n_head))
        turn = torch.polar(torch.ones_like(angle), angle)
        heads = []
        for head in range(n_heads):
            part = slice(head * n_head, (head + 1) * n_head)
            turned = [
                torch.view_as_real(
                    torch.view_as_complex(one[..., part].unflatten(-1, (-1, 2)).contiguous())
                    * turn
                ).flatten(-2)
                for one in (q, k)
            ]
            scores = turned[0] @ turned[1].mT / math.sqrt(n_head)
            if self.configuration.causal:
                allowed = torch.ones_like(scores[0], dtype=torch.bool).tril()
                scores = torch.where(allowed, scores, -torch.inf)
            heads.append(torch.softmax(scores, -1) @ v[..., part])
        x = x + torch.cat(heads, -1) @ w["out"].T
        return x + self.activation(self.norms["second"](x) @ w["up"].T) @ w["down"].T


def test_every_public_name_is_there_and_nothing_else() -> None:
    assert sorted(surgical._MODULES) == sorted(surgical.__all__)
    assert all(getattr(surgical, name) is not None for name in surgical.__all__)
    with pytest.raises(AttributeError, match=r"'ivhl\.surgical' has no attribute 'nothing'"):
        surgical.nothing  # noqa: B018  (looking it up is what is tested)


def test_the_size_of_the_document_has_the_operations_that_were_counted_of_it() -> None:
    size = SIZES["document"]
    assert (size.n_batch, size.n_tokens) == (8, 2048)
    assert size.configuration.n_head == 128
    assert size.configuration.flops(8, 2048) == pytest.approx(5.50e12, rel=1e-3)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    norm=st.sampled_from(["layer", "rms"]),
    activation=st.sampled_from(["gelu", "gelu-tanh", "silu"]),
    causal=st.booleans(),
    plan=st.sampled_from(["eager", "sdpa"]),
)
def test_a_stack_computes_what_layers_out_of_modules_compute(
    norm: NormKind,
    activation: ActivationKind,
    causal: bool,  # noqa: FBT001
    plan: str,
) -> None:
    configuration = StackConfiguration(
        n_layers=2, n_hidden=32, n_heads=2, n_inner=48,
        norm=norm, activation=activation, causal=causal,
    )  # fmt: skip
    weights = make_weights(configuration, torch.Generator().manual_seed(1))
    x = tokens(2, 7, 32)
    stack = stack_of(configuration, plan, compiler=lambda function: function).double()
    stack.load_weights(weights)
    expected = x
    for number in range(2):
        own = {
            name.partition(".")[2]: value
            for name, value in weights.items()
            if name.startswith(f"{number}.")
        }
        expected = Layer(configuration, own)(expected)
    torch.testing.assert_close(stack(x), expected, rtol=1e-12, atol=1e-12)


def test_rope_leaves_position_0_as_it_is() -> None:
    cosines, sines = make_angles(16, 8)
    for dtype in (torch.float32, torch.bfloat16):
        x = tokens(2, 3, 16, 8, dtype=dtype)
        turned = rotate(x, cosines, sines)
        assert torch.equal(turned[..., 0, :], x[..., 0, :])
        assert not torch.equal(turned[..., 1:, :], x[..., 1:, :])


@settings(max_examples=20, deadline=None, derandomize=True)
@given(first=st.integers(0, 40), second=st.integers(0, 40), moved=st.integers(0, 2000))
def test_a_score_depends_on_the_difference_of_two_positions_only(
    first: int, second: int, moved: int
) -> None:
    cosines, sines = make_angles(2048, 16, dtype=torch.float64)

    def score(m: int, n: int) -> float:
        q, k = tokens(1, 16, seed=1), tokens(1, 16, seed=2)
        at = [rotate(x, cosines[p : p + 1], sines[p : p + 1]) for x, p in ((q, m), (k, n))]
        return float((at[0] * at[1]).sum())

    assert score(first, second) == pytest.approx(score(first + moved, second + moved), abs=1e-11)
    assert score(first, second) != pytest.approx(score(first, second + 1), abs=1e-6)


def test_rope_refuses_tables_of_fewer_positions_than_tokens() -> None:
    with pytest.raises(ValueError, match="must have at least 5 positions, got 1 and 1"):
        rotate(tokens(1, 2, 5, 16), *make_angles(1, 16, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_rope_of_a_gpu_is_the_other_form_to_the_last_bit(dtype: torch.dtype) -> None:
    x = torch.randn(2, 3, 7, 10, dtype=torch.float64).to(dtype)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    cosines, sines = make_angles(7, 10, dtype=wide)
    found = rotate_beside_swapped(x, cosines, sines)
    assert found.dtype == dtype
    assert torch.equal(found, rotate(x, cosines, sines))


def test_rope_keeps_the_length_of_each_pair() -> None:
    x = tokens(2, 64, 16)
    turned = rotate(x, *make_angles(64, 16, dtype=torch.float64))
    lengths = [one.unflatten(-1, (-1, 2)).norm(dim=-1) for one in (x, turned)]
    torch.testing.assert_close(*lengths, rtol=1e-13, atol=1e-13)


def test_angles_are_those_of_float64_at_every_position_and_a_short_precision_is_refused() -> None:
    cosines, sines = make_angles(2048, 128)
    assert cosines.dtype == sines.dtype == torch.float32
    for m, i in ((1, 0), (2047, 0), (2047, 63), (1999, 5)):
        angle = m * 10000.0 ** (-2 * i / 128)
        assert float(cosines[m, i]) == pytest.approx(math.cos(angle), abs=6e-8)
        assert float(sines[m, i]) == pytest.approx(math.sin(angle), abs=6e-8)
    # What the original did: its positions in bfloat16 are 641 numbers, its angles up to 9.68 off.
    positions = torch.arange(2048, dtype=torch.bfloat16)
    assert len(positions.unique()) == 641
    with pytest.raises(ValueError, match=r"must be float32 or float64, got torch\.bfloat16"):
        make_angles(4, 8, dtype=torch.bfloat16)


def test_tables_of_a_stack_in_bfloat16_stay_in_float32() -> None:
    stack = stack_of(SMALL).bfloat16()
    for ours, exact in zip((stack.cosines, stack.sines), make_angles(64, 16), strict=True):
        assert torch.equal(ours, exact)
    stack = stack.double()
    wide = make_angles(64, 16, dtype=torch.float64)
    for ours, exact in zip((stack.cosines, stack.sines), wide, strict=True):
        assert torch.equal(ours, exact)
    assert not {"cosines", "sines"} & set(stack.state_dict())


def test_a_stack_that_is_compiled_by_others_is_compiled_once_for_all_lengths() -> None:
    counter = CompileCounter()
    stack = torch.compile(stack_of(SMALL), backend=counter, dynamic=True)
    with torch.no_grad():
        for n_tokens in (5, 9, 5, 9, 7):
            stack(tokens(1, n_tokens, 32, dtype=torch.float32))
    assert counter.frame_count == 1


def test_a_stack_moved_in_inference_mode_can_be_trained() -> None:
    stack = stack_of(SMALL)
    with torch.inference_mode():
        stack.to("cpu")
    stack(tokens(1, 5, 32, dtype=torch.float32)).sum().backward()
    assert stack.get_parameter("0_qkv.weight").grad is not None


def test_splitting_and_combining_heads_move_numbers_and_change_none() -> None:
    qkv = tokens(2, 5, 96, dtype=torch.bfloat16)
    parts = split_heads(qkv, 4)
    for number, one in enumerate(parts):
        assert one.shape == (2, 4, 5, 8)
        assert one.untyped_storage().data_ptr() == qkv.untyped_storage().data_ptr()
        assert torch.equal(combine_heads(one), qkv[..., 32 * number : 32 * (number + 1)])


@pytest.mark.parametrize("causal", [False, True])
def test_both_forms_of_attention_agree(causal: bool) -> None:  # noqa: FBT001
    q, k, v = (tokens(2, 2, 9, 8, seed=n) for n in range(3))
    one, other = (form(q, k, v, causal=causal) for form in (attend_softmax, attend_sdpa))
    torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    if causal:
        v[..., 5:, :] = 0.0  # later than position 4
        assert torch.equal(one[..., :5, :], attend_softmax(q, k, v, causal=True)[..., :5, :])


def test_an_rms_norm_is_computed_in_float32_and_rounded_once() -> None:
    x, gain = tokens(3, 64, dtype=torch.bfloat16), tokens(64, seed=9).float()
    exact = normalise("rms", x.double(), gain.double(), None, 1e-5)
    assert torch.equal(normalise("rms", x, gain, None, 1e-5), exact.bfloat16())


class Counting:
    """Compiles nothing, and remembers how many functions it was given and how often they ran."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, counted."""
        number = len(self.calls)
        self.calls.append(0)

        def run(*values: Any, **named: Any) -> Any:  # noqa: ANN401
            self.calls[number] += 1
            return function(*values, **named)

        return run


@pytest.mark.parametrize(
    ("plan", "calls"),
    [
        ("eager", []),
        ("surgical", [2, 2, 2]),  # split, RoPE, combine: once a layer
        ("pointwise", [2, 2, 2, 2, 4, 4]),
        # attention with its neighbours, activation, first norm, last residual, residuals with norms
        ("sdpa", [1, 1, 2, 2, 3]),
        ("whole", [1]),
    ],
)
def test_a_plan_compiles_what_it_names_once_for_all_layers(plan: str, calls: list[int]) -> None:
    compiler = Counting()
    stack = stack_of(SMALL, plan, compiler=compiler)
    expected = stack_of(SMALL)(tokens(1, 5, 32).float())
    torch.testing.assert_close(stack(tokens(1, 5, 32).float()), expected)
    assert sorted(compiler.calls) == sorted(calls)


@pytest.mark.full
def test_compiled_operations_give_the_results_and_gradients_of_eager_code() -> None:
    x = tokens(2, 16, 32).float()
    found = []
    for name in ("eager", "sdpa"):
        stack = stack_of(SMALL, name, compiler=lambda f: torch.compile(f, fullgraph=True))
        stack(x).square().mean().backward()
        found.append((stack(x).detach(), [p.grad for p in stack.parameters()]))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)


def test_a_copy_of_a_stack_has_weights_of_its_own_however_it_is_compiled() -> None:
    x = tokens(1, 5, 32).float()
    for plan in ("eager", "sdpa", "whole"):
        stack = stack_of(SMALL, plan, compiler=Counting())
        before = stack(x)
        other = copy.deepcopy(stack)
        with torch.no_grad():
            for weight in other.parameters():
                weight.mul_(0.5)
        expected = stack_of(SMALL)
        expected.load_state_dict(other.state_dict())
        torch.testing.assert_close(other(x), expected(x))
        assert torch.equal(stack(x), before)


def test_a_stack_can_be_trained_after_a_call_in_inference_mode() -> None:
    stack, x = stack_of(SMALL), tokens(1, 5, 32).float()
    with torch.inference_mode():
        before = stack(x)
    after = stack(x)
    after.square().mean().backward()
    assert torch.equal(after, before)
    # As part of a graph, too: Dynamo can trace no question about inference mode.
    compiled = torch.compile(stack_of(SMALL), fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x), after)


def test_compiled_data_movement_is_bitwise_equal() -> None:
    qkv = tokens(2, 6, 96, dtype=torch.bfloat16)
    compiled = torch.compile(
        lambda x: tuple(map(combine_heads, split_heads(x, 2))), fullgraph=True
    )
    assert torch.equal(torch.cat(compiled(qkv), -1), qkv)


@pytest.mark.parametrize("kind", [list, set, tuple])
def test_a_plan_takes_any_collection_and_can_be_hashed(kind: type) -> None:
    plan = CompilePlan(compiled=kind(["rope", "split"]))
    assert plan == CompilePlan(compiled=frozenset({"split", "rope"}))
    assert hash(plan) == hash(CompilePlan(compiled=frozenset({"split", "rope"})))


def test_a_plan_with_an_unknown_operation_and_a_whole_one_with_parts_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must name operations of norm, split.*got 'softmax'"):
        CompilePlan(compiled=frozenset({"softmax"}))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the whole stack or operations of it"):
        CompilePlan(compiled=frozenset({"rope"}), whole=True)
    with pytest.raises(ValueError, match="attention must be one of softmax, sdpa, got 'flash'"):
        CompilePlan(attention="flash")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="n_positions must be at least 1, got 0"):
        TransformerStack(SMALL, n_positions=0)
    with pytest.raises(ValueError, match=r"the plan must be one of eager, surgical.*got 'fast'"):
        TransformerStack(SMALL, "fast")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"n_heads": 3}, "n_hidden must be a multiple of twice n_heads, 6"),
        ({"n_layers": 0}, "n_layers must be an integer of at least 1, got 0"),
        ({"norm": "batch"}, "norm must be one of layer, rms, got 'batch'"),
        ({"activation": "relu"}, "activation must be one of gelu, gelu-tanh, silu, got 'relu'"),
        ({"base": math.inf}, "base must be a positive number, got inf"),
        ({"eps": "small"}, "eps must be a positive number, got 'small'"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(options: Any, text: str) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match=text):
        StackConfiguration(**{"n_hidden": 32, "n_heads": 2, **options})


def test_tokens_and_weights_that_do_not_fit_are_refused() -> None:
    stack = stack_of(SMALL)
    with pytest.raises(ValueError, match=r"shape \[n_batch, n_tokens, 32\].*got \[1, 5, 31\]"):
        stack(tokens(1, 5, 31).float())
    with pytest.raises(ValueError, match="at most n_positions tokens, 64, got 65"):
        stack(tokens(1, 65, 32).float())
    weights = make_weights(SMALL, torch.Generator())
    del weights["1.up"]
    weights["0.out"] = weights["0.out"][:, 1:]
    with pytest.raises(ValueError, match=r"another shape: 0\.out, 1\.up"):
        stack.load_weights(weights)


def test_a_training_step_goes_down_the_gradient() -> None:
    stack = stack_of(SMALL)
    optimizer = torch.optim.SGD(stack.parameters(), lr=0.1)
    x, target = (tokens(2, 16, 32, seed=n).float() for n in (1, 2))
    losses = [train_step(stack, optimizer, x, target) for _ in range(4)]
    assert all(after < before for before, after in pairwise(losses))


def test_bfloat16_weights_stand_still_under_small_steps_and_are_refused() -> None:
    # Why: 500 steps of 0.001 move a weight of 1 by 0.5 in float32, and not at all in bfloat16.
    weights = [torch.ones(1, dtype=dtype) for dtype in (torch.float32, torch.bfloat16)]
    for _ in range(500):
        weights = [w - 0.001 for w in weights]
    assert float(weights[0]) == pytest.approx(0.5, abs=1e-4)
    assert float(weights[1]) == 1.0
    stack = stack_of(SMALL).bfloat16()
    optimizer = torch.optim.SGD(stack.parameters(), lr=0.001)
    with pytest.raises(
        ValueError, match=r"must be float32 or float64 to be trained, got torch.bf"
    ):
        train_step(stack, optimizer, tokens(1, 4, 32).bfloat16(), tokens(1, 4, 32).bfloat16())


def test_weights_that_are_inputs_give_what_a_module_with_them_gives() -> None:
    weights = make_weights(SMALL, torch.Generator().manual_seed(1))
    x, stack = tokens(1, 9, 32), stack_of(SMALL).double()
    stack.load_weights(weights)
    angles = make_angles(9, SMALL.n_head, dtype=torch.float64)
    operations = choose_operations(SMALL, PLANS["eager"])
    assert torch.equal(apply_stack(SMALL.n_layers, operations, weights, x, angles), stack(x))
