"""The GRU resets before its matrix multiplication, and its fast form is the same function."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is only in the cells")
import torch

from ivhl.ops.gru.cell import _compiled_step, fused_step, gru_step, rnn_step_gru
from ivhl.ops.gru.sequence import (
    STEPS_PER_CALL,
    gru_sequence,
    make_gru_sequence,
    make_rnn_gru,
    rnn_gru,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Form = Callable[..., torch.Tensor]

# Torch's own, each from one release or another; none is about the code under test.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Pickle, copy, and deepcopy support:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    pytest.mark.filterwarnings("ignore:Skipping serialization of skipfiles:UserWarning"),
]

fused_sequence = make_rnn_gru(lambda f: f)
steps = pytest.mark.parametrize("step", [gru_step, fused_step], ids=["naive", "fused"])
sequences = pytest.mark.parametrize(
    "sequence", [gru_sequence, fused_sequence], ids=["naive", "fused"]
)


def make_inputs(
    n_steps: int = 5, batch: int = 3, n_inputs: int = 2, n_hidden: int = 4, seed: int = 0
) -> tuple[torch.Tensor, ...]:
    """Return a sequence, a state, three weights and three biases, float64."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=generator)

    weights = (draw(n_hidden, n_inputs + n_hidden) for _ in range(3))
    biases = (draw(n_hidden) for _ in range(3))
    return draw(n_steps, batch, n_inputs), draw(batch, n_hidden), *weights, *biases


def step_by_hand(inputs: tuple[torch.Tensor, ...]) -> list[list[float]]:
    """Return the first state number by number, in plain Python."""
    xs, hs = inputs[0][0].tolist(), inputs[1].tolist()
    w_z, w_r, w_h, b_z, b_r, b_h = (parameter.tolist() for parameter in inputs[2:])

    def product(row: list[float], values: list[float], bias: float) -> float:
        return math.fsum([bias, *(w * v for w, v in zip(row, values, strict=True))])

    def sigmoid(a: float) -> float:
        return 1.0 / (1.0 + math.exp(-a))

    states = []
    for x, h in zip(xs, hs, strict=True):
        reset = [
            sigmoid(product(row, x + h, b)) * value
            for row, b, value in zip(w_r, b_r, h, strict=True)
        ]
        keep = [sigmoid(product(row, x + h, b)) for row, b in zip(w_z, b_z, strict=True)]
        new = [math.tanh(product(row, x + reset, b)) for row, b in zip(w_h, b_h, strict=True)]
        states.append([z * a + (1.0 - z) * n for z, a, n in zip(keep, h, new, strict=True)])
    return states


def make_cell(inputs: tuple[torch.Tensor, ...]) -> torch.nn.GRUCell:
    """Return torch's cell with the same weights; its order is reset, update, candidate."""
    w_z, w_r, w_h, b_z, b_r, b_h = inputs[2:]
    n_inputs, n_hidden = inputs[0].shape[2], inputs[1].shape[1]
    cell = torch.nn.GRUCell(n_inputs, n_hidden, dtype=torch.float64)
    with torch.no_grad():
        cell.weight_ih.copy_(torch.cat((w_r, w_z, w_h))[:, :n_inputs])
        cell.weight_hh.copy_(torch.cat((w_r, w_z, w_h))[:, n_inputs:])
        cell.bias_ih.copy_(torch.cat((b_r, b_z, b_h)))
        cell.bias_hh.zero_()
    return cell


@steps
@pytest.mark.parametrize("seed", range(3))
def test_step_is_the_formula_number_by_number(step: Form, seed: int) -> None:
    inputs = make_inputs(seed=seed)
    expected = torch.tensor(step_by_hand(inputs), dtype=torch.float64)
    torch.testing.assert_close(step(inputs[0][0], *inputs[1:]), expected, rtol=0.0, atol=1e-15)


@steps
def test_resetting_before_the_product_is_not_what_torch_does(step: Form) -> None:
    inputs = make_inputs()
    theirs = make_cell(inputs)(inputs[0][0], inputs[1]).detach()
    assert float((step(inputs[0][0], *inputs[1:]) - theirs).abs().max()) > 0.05


@steps
def test_without_a_reset_it_is_what_torch_does(step: Form) -> None:
    x, h, w_z, w_r, w_h, b_z, b_r, b_h = make_inputs()
    open_gate = torch.full_like(b_r, 100.0)  # sigmoid(100) is 1 to the last digit
    theirs = make_cell((x, h, w_z, w_r, w_h, b_z, open_gate, b_h))(x[0], h).detach()
    ours = step(x[0], h, w_z, w_r, w_h, b_z, open_gate, b_h)
    torch.testing.assert_close(ours, theirs, rtol=0.0, atol=1e-15)


@steps
def test_an_update_gate_of_one_keeps_the_state(step: Form) -> None:
    x, h, w_z, w_r, w_h, b_z, b_r, b_h = make_inputs()
    after = step(x[0], h, w_z, w_r, w_h, torch.full_like(b_z, 100.0), b_r, b_h)
    torch.testing.assert_close(after, h, rtol=0.0, atol=1e-15)


@steps
def test_closed_gates_forget_the_state(step: Form) -> None:
    x, h, w_z, w_r, w_h, b_z, _, b_h = make_inputs()
    closed = torch.full_like(b_z, -800.0)
    after = step(x[0], h, w_z, w_r, w_h, closed, closed, b_h)
    torch.testing.assert_close(after, torch.tanh(x[0] @ w_h[:, :2].T + b_h), rtol=0.0, atol=1e-15)


@sequences
@settings(deadline=None, max_examples=25)
@given(
    n_steps=st.integers(0, 2 * STEPS_PER_CALL + 1),
    shape=st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 4)),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    layout=st.sampled_from(["rows", "columns"]),
)
def test_sequence_is_one_step_after_another(
    sequence: Form, n_steps: int, shape: tuple[int, int, int], dtype: torch.dtype, layout: str
) -> None:
    inputs = tuple(t.to(dtype) for t in make_inputs(n_steps, *shape))
    if layout == "columns":
        inputs = tuple(t.mT.contiguous().mT if t.ndim > 1 else t for t in inputs)
    states = sequence(*inputs)
    assert states.shape == (n_steps, *inputs[1].shape)
    assert states.dtype == dtype
    h = inputs[1]
    for x, state in zip(inputs[0], states, strict=True):
        h = gru_step(x, h, *inputs[2:])
        tolerance = 1e-5 if dtype == torch.float32 else 1e-13
        torch.testing.assert_close(state, h, rtol=0.0, atol=tolerance)


@sequences
def test_states_stay_between_minus_one_and_one(sequence: Form) -> None:
    inputs = list(make_inputs(40))
    inputs[1] = inputs[1].tanh()
    assert float(sequence(*inputs).abs().max()) <= 1.0


@steps
def test_gradients_of_a_step_are_right(step: Form) -> None:
    inputs = make_inputs()
    leaves = tuple(t.requires_grad_() for t in (inputs[0][0].clone(), *inputs[1:]))
    assert torch.autograd.gradcheck(step, leaves)


@sequences
def test_gradients_of_a_sequence_are_right(sequence: Form) -> None:
    leaves = tuple(t.requires_grad_() for t in make_inputs(STEPS_PER_CALL + 1, 2, 2, 2))
    assert torch.autograd.gradcheck(sequence, leaves)


@pytest.mark.full
def test_compiled_step_is_the_eager_one_with_its_gradients() -> None:
    # The public one is compiled on a GPU only.
    compare_with_gradients(
        lambda x, *rest: _compiled_step(x[0], *rest), lambda x, *rest: gru_step(x[0], *rest)
    )


def test_one_step_on_a_cpu_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ivhl.ops.gru.cell._compiled_step", None)
    x, *rest = make_inputs()
    torch.testing.assert_close(rnn_step_gru(x[0], *rest), gru_step(x[0], *rest))


@pytest.mark.full
def test_compiled_sequence_is_the_eager_one_with_its_gradients() -> None:
    compare_with_gradients(rnn_gru, gru_sequence)


def compare_with_gradients(ours: Form, naive: Form) -> None:
    results = []
    for function in (ours, naive):
        leaves = [t.requires_grad_() for t in make_inputs(STEPS_PER_CALL + 2)]
        before = [t.detach().clone() for t in leaves]
        states = function(*leaves)
        states.square().sum().backward()
        assert all(torch.equal(a, b) for a, b in zip(leaves, before, strict=True))
        results.append([states.detach(), *(t.grad for t in leaves)])
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("make", [make_gru_sequence, make_rnn_gru], ids=["naive", "fused"])
def test_compiled_in_bfloat16_is_as_near_to_float64_as_eager(
    make: Callable[[Any], Form],
) -> None:
    inputs = [t.bfloat16() for t in make_inputs(STEPS_PER_CALL + 2, 8, 16, 32)]
    exact = gru_sequence(*(t.double() for t in inputs))

    def error(states: torch.Tensor) -> float:
        assert states.dtype == torch.bfloat16
        return float((states.double() - exact).square().mean().sqrt())

    compiled = make(lambda f: torch.compile(f, fullgraph=True, dynamic=False))
    eager = error(gru_sequence(*inputs))
    assert 0.0 < eager < 0.05
    assert error(compiled(*inputs)) <= 3.0 * eager


def test_compiled_sequence_takes_every_size_without_compiling_again() -> None:
    counters = torch._dynamo.utils.counters
    counters.clear()  # of the tests before
    n_graphs = None
    with torch.no_grad():
        # Dynamo takes sizes that are equal in the first call for one and the same.
        for shape in ((3, 5, 3, 7), (9, 3, 2, 6), (8, 7, 5, 2)):
            inputs = make_inputs(*shape)
            expected = gru_sequence(*inputs)
            torch.testing.assert_close(rnn_gru(*inputs), expected, rtol=0.0, atol=1e-13)
            n_graphs = counters["stats"]["unique_graphs"] if n_graphs is None else n_graphs
    assert counters["stats"]["unique_graphs"] == n_graphs
    assert not counters["graph_break"]


def test_nothing_to_do_gives_no_states() -> None:
    assert rnn_gru(*make_inputs(n_steps=0)).shape == (0, 3, 4)
    inputs = make_inputs(batch=0)
    assert rnn_gru(*inputs).shape == (5, 0, 4)
    assert rnn_step_gru(inputs[0][0], *inputs[1:]).shape == (0, 4)


GOOD = make_inputs()


def replaced(number: int, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (*GOOD[:number], values, *GOOD[number + 1 :])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (replaced(0, GOOD[0][0]), r"x_sequence must have shape \[n_steps, batch, n_inputs\], got"),
        (replaced(0, GOOD[0].long()), r"x_sequence must be real floating point, got torch.int64"),
        (
            replaced(0, GOOD[0].to(torch.cfloat)),
            r"x_sequence must be real floating point, got torch.complex64",
        ),
        (replaced(1, GOOD[1][:2]), r"h0 must have shape \[3, n_hidden\], .* got \[2, 4\]"),
        (replaced(1, GOOD[1].float()), r"h0 must have the dtype of x_sequence, torch.float64"),
        (replaced(2, GOOD[2][:, 1:]), r"w_z must have shape \[4, 6\], got \[4, 5\]"),
        (replaced(4, GOOD[4].T), r"w_h must have shape \[4, 6\], got \[6, 4\]"),
        (replaced(5, GOOD[5][:1]), r"b_z must have shape \[4\], got \[1\]"),
        (replaced(7, GOOD[7].float()), r"b_h must have the dtype .* got torch.float32"),
        (replaced(3, GOOD[3].to("meta")), r"w_r must be on the device of x_sequence, cpu, got"),
    ],
)
@pytest.mark.parametrize("sequence", [rnn_gru, gru_sequence])
def test_wrong_inputs_are_named(
    sequence: Form, inputs: tuple[torch.Tensor, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        sequence(*inputs)


def test_a_wrong_step_is_named() -> None:
    with pytest.raises(
        ValueError, match=r"x must have shape \[batch, n_inputs\], got \[5, 3, 2\]"
    ):
        rnn_step_gru(*GOOD)
    with pytest.raises(ValueError, match=r"h must have shape \[3, n_hidden\], .* got \[4\]"):
        rnn_step_gru(GOOD[0][0], GOOD[1][0], *GOOD[2:])


def test_forms_that_compile_a_step_are_the_naive_one() -> None:
    assert torch.equal(make_gru_sequence(lambda f: f)(*GOOD), gru_sequence(*GOOD))
