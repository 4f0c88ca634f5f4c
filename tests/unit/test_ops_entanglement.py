"""Entropies of states with known entropy, and the invariances of the entropy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is only in the cells")
import torch

from ivhl.ops.entanglement import (
    compute_entanglement_entropy,
    entanglement_entropy,
    make_entanglement_entropy,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Entropy = Callable[..., torch.Tensor]

pytestmark = [
    pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Pickle, copy, and deepcopy support:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Skipping serialization of skipfiles:UserWarning"),
]

DOUBLE = torch.complex128

eager_entropy = make_entanglement_entropy(lambda f: f)
forms = pytest.mark.parametrize(
    "entropy", [entanglement_entropy, eager_entropy], ids=["naive", "fast"]
)


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = DOUBLE) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=DOUBLE, generator=generator).to(dtype)


def state_with(weights: list[float], rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    """Return a state with these Schmidt weights in random bases."""
    left, right = (
        torch.linalg.qr(draw(rows, rows, seed=seed))[0],
        torch.linalg.qr(draw(columns, columns, seed=seed + 1))[0],
    )
    middle = torch.zeros(rows, columns, dtype=DOUBLE)
    for k, weight in enumerate(weights):
        middle[k, k] = math.sqrt(weight)
    return left @ middle @ right


def shannon(weights: list[float]) -> float:
    total = math.fsum(weights)
    return -math.fsum(w / total * math.log2(w / total) for w in weights if w > 0.0)


@forms
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, DOUBLE])
def test_bell_state_is_one_bit_and_product_none(entropy: Entropy, dtype: torch.dtype) -> None:
    bell = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=dtype)  # norm sqrt 2
    product = torch.outer(torch.tensor([1.0, 2.0]), torch.tensor([3.0, -1.0])).to(dtype)
    eps = torch.finfo(dtype).eps
    assert float(entropy(bell, 1)) == pytest.approx(1.0, abs=4 * eps)
    assert float(entropy(product, 1)) == pytest.approx(0.0, abs=8 * eps)
    assert entropy(bell, 1).dtype == bell.real.dtype
    assert entropy(bell, 1).shape == ()


@forms
@pytest.mark.parametrize("base", [2.0, math.e, 10.0, 0.5])
def test_base_is_that_of_the_logarithm(entropy: Entropy, base: float) -> None:
    ghz = torch.zeros(3, 3, 3, dtype=DOUBLE)
    for k in range(3):
        ghz[k, k, k] = 1.0
    for n_left in (1, 2):
        assert float(entropy(ghz, n_left, base)) == pytest.approx(math.log(3.0) / math.log(base))


@forms
@settings(deadline=None, max_examples=40)
@given(
    weights=st.lists(st.floats(1e-6, 1.0, allow_subnormal=False), min_size=1, max_size=4),
    shape=st.tuples(st.integers(4, 5), st.sampled_from([4, 6, 32])),
    seed=st.integers(0, 100),
)
@pytest.mark.parametrize("dtype", [torch.complex64, DOUBLE])
def test_entropy_is_that_of_the_schmidt_weights(
    entropy: Entropy,
    dtype: torch.dtype,
    weights: list[float],
    shape: tuple[int, int],
    seed: int,
) -> None:
    psi = state_with(weights, *shape, seed).to(dtype)
    limit = 1e-4 if dtype == torch.complex64 else 1e-9
    assert float(entropy(psi, 1)) == pytest.approx(shannon(weights), abs=limit)


@forms
@settings(deadline=None, max_examples=30)
@given(shape=st.lists(st.integers(1, 4), max_size=5), data=st.data())
def test_both_subsystems_have_the_same_entropy(
    entropy: Entropy, shape: list[int], data: st.DataObject
) -> None:
    psi = draw(*shape)
    n_left = data.draw(st.integers(0, len(shape)))
    other = psi.permute([*range(n_left, len(shape)), *range(n_left)])
    value = float(entropy(psi, n_left))
    assert value == pytest.approx(float(entropy(other, len(shape) - n_left)), abs=1e-10)
    smaller = min(math.prod(shape[:n_left]), math.prod(shape[n_left:]))
    assert -1e-10 < value < math.log2(smaller) + 1e-10


@forms
@pytest.mark.parametrize("dtype", [torch.complex64, DOUBLE])
@pytest.mark.parametrize("shape", [(4, 4), (3, 20)])
def test_local_unitaries_and_the_norm_change_nothing(
    entropy: Entropy, dtype: torch.dtype, shape: tuple[int, int]
) -> None:
    psi = draw(*shape)
    left = torch.linalg.qr(draw(shape[0], shape[0], seed=1))[0]
    right = torch.linalg.qr(draw(shape[1], shape[1], seed=2))[0]
    turned = (1000.0 * left @ psi @ right).to(dtype)
    expected = float(entanglement_entropy(psi, 1))
    assert float(entropy(turned, 1)) == pytest.approx(expected, abs=8 * torch.finfo(dtype).eps)


@forms
@pytest.mark.parametrize(("rows", "columns"), [(4, 8), (8, 8), (2, 64)])
def test_mean_over_random_states_is_pages(entropy: Entropy, rows: int, columns: int) -> None:
    exact = math.fsum(1.0 / k for k in range(columns + 1, rows * columns + 1))
    exact = (exact - (rows - 1) / (2.0 * columns)) / math.log(2.0)
    values = [float(entropy(draw(rows, columns, seed=seed), 1)) for seed in range(200)]
    assert sum(values) / len(values) == pytest.approx(exact, abs=0.02)


def test_single_precision_loses_no_digits_to_squares() -> None:
    """One weight of 1e-6: its square in single precision would be lost in the density matrix."""
    weights = [1.0, 1e-6]
    for columns in (4, 32):  # singular values, density matrix
        psi = state_with(weights, 4, columns).to(torch.complex64)
        assert float(eager_entropy(psi, 1)) == pytest.approx(shannon(weights), rel=1e-3)


def test_compiled_is_eager_at_all_sizes() -> None:
    for shape, n_left in (((2,) * 6, 3), ((3, 5), 1), ((2, 32), 1), ((7,), 1)):
        for dtype in (torch.complex64, DOUBLE):
            psi = draw(*shape, dtype=dtype)
            before = psi.clone()
            actual = compute_entanglement_entropy(psi, n_left)
            limit = 16 * torch.finfo(dtype).eps
            assert float(actual) == pytest.approx(float(eager_entropy(psi, n_left)), abs=limit)
            assert torch.equal(psi, before)


@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 2)])
def test_gradients_are_right(shape: tuple[int, ...]) -> None:
    psi = draw(*shape).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: eager_entropy(x, 1), (psi,))


def test_gradient_over_the_density_matrix_is_that_over_singular_values() -> None:
    psi = draw(3, 20)
    gradients = []
    for dtype in (torch.complex64, DOUBLE):
        x = psi.to(dtype).requires_grad_()
        gradients.append(torch.autograd.grad(eager_entropy(x, 1), x)[0].to(DOUBLE))
    assert torch.allclose(gradients[0], gradients[1], atol=1e-6)


# Dynamo looks at the .grad of everything that it is given.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("shape", [(3, 4), (2, 32), (2, 3, 2)])
def test_compiled_gradient_is_that_of_the_naive_form(shape: tuple[int, ...]) -> None:
    gradients = []
    for entropy in (compute_entanglement_entropy, entanglement_entropy):
        psi = draw(*shape).requires_grad_()
        gradients.append(torch.autograd.grad(entropy(psi, 1), psi)[0])
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("shape", [(2, 2), (2, 16)])
@pytest.mark.parametrize("dtype", [torch.complex64, DOUBLE])
def test_gradient_at_a_product_state_is_finite(shape: tuple[int, int], dtype: torch.dtype) -> None:
    psi = torch.zeros(shape, dtype=dtype)
    psi[0, 0] = 1.0
    psi.requires_grad_()
    (gradient,) = torch.autograd.grad(eager_entropy(psi, 1), psi)
    assert bool(torch.isfinite(torch.view_as_real(gradient)).all())
    assert float(gradient.abs().max()) < 1e-5


@forms
def test_any_strides_will_do(entropy: Entropy) -> None:
    psi = draw(4, 6)
    assert float(entropy(psi.mT.contiguous().mT, 1)) == pytest.approx(float(entropy(psi, 1)))
    assert float(entropy(psi.conj(), 1)) == pytest.approx(float(entropy(psi, 1)))


@pytest.mark.parametrize("entropy", [entanglement_entropy, compute_entanglement_entropy])
@pytest.mark.parametrize(
    ("psi", "n_left", "base", "message"),
    [
        (torch.ones(2, 2, dtype=torch.int64), 1, 2.0, r"psi must be float .* got torch.int64"),
        (torch.ones(2, 2, dtype=torch.float16), 1, 2.0, r"psi must be float .* got torch.float16"),
        (torch.ones(2, 0), 1, 2.0, r"psi must have at least one element, got shape \[2, 0\]"),
        (torch.ones(2, 2), 3, 2.0, r"n_left must be from 0 to 2, got 3"),
        (torch.ones(2, 2), -1, 2.0, r"n_left must be from 0 to 2, got -1"),
        (torch.ones(2, 2), 1, 1.0, r"base must be positive, finite and not 1, got 1.0"),
        (torch.ones(2, 2), 1, 0.0, r"base must be positive, finite and not 1, got 0.0"),
        (torch.ones(2, 2), 1, math.inf, r"base must be .* got inf"),
        (torch.ones(2, 2), 1, math.nan, r"base must be .* got nan"),
    ],
)
def test_wrong_inputs_are_named(
    entropy: Entropy, psi: torch.Tensor, n_left: int, base: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        entropy(psi, n_left, base)
