"""Operations on a condensate have right gradients, name wrong inputs, and compile once."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("torch", reason="torch is only in the cells")
import torch

from ivhl.ops.condensate.energy import compute_condensate_energy
from ivhl.ops.condensate.euler import evolve_condensate_euler
from ivhl.ops.condensate.potential import compute_condensate_potential
from ivhl.ops.condensate.strang import evolve_condensate_gp
from tests.builders.condensates import (
    LAM,
    M2,
    by_fourier,
    by_stencil,
    dtypes,
    energy_of,
    euler,
    make_noise,
    naive_euler,
    potential_of,
    relative,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.builders.condensates import Evolve

# Torch's own, from one release or another.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Pickle, copy, and deepcopy support:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Skipping serialization of skipfiles:UserWarning"),
]

# --- gradients -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [2, 3, 4, 5])
@pytest.mark.parametrize(
    "function",
    [
        lambda phi, rank: potential_of(phi, M2, LAM, rank),
        lambda phi, rank: energy_of(phi, rank=rank),
        lambda phi, rank: euler(phi, dt=0.1, m2=M2, lam=LAM, rank=rank),
        lambda phi, rank: by_fourier(phi, dt=0.1, rank=rank, n_steps=2),
        lambda phi, rank: by_stencil(phi, dt=0.1, rank=rank, n_steps=2),
    ],
    ids=["potential", "energy", "euler", "fourier", "stencil"],
)
def test_gradients_are_those_of_finite_differences(function: Evolve, rank: int) -> None:
    phi = make_noise(2, 3, 2).requires_grad_()
    gradcheck: Callable[..., bool] = torch.autograd.gradcheck
    assert gradcheck(partial(function, rank=rank), (phi,))


def test_the_gradient_is_finite_where_there_is_no_condensate() -> None:
    phi = torch.zeros(3, 4, dtype=torch.complex64, requires_grad=True)
    total = potential_of(phi, M2, LAM, 3) + energy_of(phi, rank=3)
    for after in (euler(phi, dt=0.1, m2=M2, lam=LAM, rank=3), by_stencil(phi, dt=0.1, rank=3)):
        total = total + after.real.sum()
    (slope,) = torch.autograd.grad(total, phi)
    assert bool(torch.isfinite(torch.view_as_real(slope)).all())


def test_gradients_work_after_a_call_in_inference_mode() -> None:
    phi = make_noise(3, 4, 5)
    with torch.inference_mode():
        potential_of(phi, 0.321, LAM, 3)
    leaf = phi.clone().requires_grad_()
    potential_of(leaf, 0.321, LAM, 3).backward()
    assert leaf.grad is not None


# --- inputs --------------------------------------------------------------------------------------


@dtypes
@pytest.mark.parametrize(
    "view",
    [
        lambda phi: phi.transpose(0, 2),
        lambda phi: phi[::2, 1:, ::3],
        lambda phi: phi[1].t(),
        lambda phi: phi[:1, 0, 0].expand(5),
        lambda phi: phi.conj(),
    ],
    ids=["transposed", "steps", "two axes", "expanded", "conjugate"],
)
def test_strides_do_not_matter_and_inputs_are_left_alone(view: Evolve, dtype: torch.dtype) -> None:
    phi = make_noise(6, 5, 7, dtype=dtype)
    before, viewed = phi.clone(), view(phi)
    plain = torch.complex(viewed.real.contiguous(), viewed.imag.contiguous())
    functions: list[Evolve] = [
        lambda phi: potential_of(phi, M2, LAM, 3),
        energy_of,
        lambda phi: euler(phi, dt=0.1, m2=M2, lam=LAM, rank=3),
        lambda phi: by_fourier(phi, dt=0.1, n_steps=2),
        lambda phi: by_stencil(phi, dt=0.1, n_steps=2),
    ]
    for function in functions:
        assert torch.equal(function(viewed), function(plain))
    assert torch.equal(phi, before)


FIELD = torch.zeros(4, 4, 4, dtype=torch.complex64)
OPERATIONS: dict[str, Evolve] = {
    "potential": lambda phi, dt=0.1, **kwargs: compute_condensate_potential(  # noqa: ARG005
        phi, **kwargs
    ),
    "energy": lambda phi, dt=0.1, **kwargs: compute_condensate_energy(  # noqa: ARG005
        phi, **kwargs
    ),
    "euler": lambda phi, dt=0.1, **kwargs: evolve_condensate_euler(phi, dt, **kwargs),
    "strang": lambda phi, dt=0.1, **kwargs: evolve_condensate_gp(phi, dt, **kwargs),
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
@pytest.mark.parametrize(
    ("phi", "constants", "message"),
    [
        (FIELD.real, {}, r"phi must be complex64 or complex128, got torch.float32"),
        (FIELD.real.int(), {}, r"phi must be complex64 or complex128, got torch.int32"),
        (FIELD[0, 0, 0], {}, r"phi must have 1 to 3 axes, got shape \[\]"),
        (FIELD[None], {}, r"phi must have 1 to 3 axes, got shape \[1, 4, 4, 4\]"),
        (FIELD, {"rank": 1}, r"rank must be an integer of at least 2, got 1"),
        (FIELD, {"rank": 33}, r"rank must be at most 32, got 33"),
        (FIELD, {"rank": 2.5}, r"rank must be an integer of at least 2, got 2.5"),
        (FIELD, {"mass_sq": math.nan}, r"mass_sq must be a finite Python number, got nan"),
        (FIELD, {"mass_sq": torch.tensor(1.0)}, r"mass_sq must be .* number, got tensor\(1\.\)"),
        (FIELD, {"lambda_coupling": -math.inf}, r"lambda_coupling must be .* got -inf"),
        (FIELD, {"lambda_coupling": 1j}, r"lambda_coupling must be .* got 1j"),
    ],
)
def test_wrong_inputs_are_named(
    operation: Evolve, phi: torch.Tensor, constants: dict[str, float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        operation(phi, **{"mass_sq": M2, "lambda_coupling": LAM, "rank": 3, **constants})


def test_wrong_steps_are_named() -> None:
    for evolve in (evolve_condensate_euler, evolve_condensate_gp):
        with pytest.raises(ValueError, match=r"dt must be a finite Python number, got inf"):
            evolve(FIELD, math.inf, M2, LAM)
    with pytest.raises(ValueError, match=r"n_steps must be an integer of at least 1, got 0"):
        evolve_condensate_gp(FIELD, 0.1, M2, LAM, n_steps=0)


# --- compiled ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def _fresh_dynamo() -> Iterator[None]:
    try:
        torch._dynamo.eval_frame.check_if_dynamo_supported()
    except RuntimeError as error:
        pytest.skip(str(error))
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("_fresh_dynamo")
@pytest.mark.parametrize(
    ("compiled", "expected"),
    [
        pytest.param(
            lambda phi, scale: compute_condensate_potential(phi, M2 * scale, LAM * scale),
            lambda phi, scale: potential_of(phi, M2 * scale, LAM * scale, 3),
            id="potential",
        ),
        pytest.param(
            lambda phi, scale: compute_condensate_energy(phi, M2 * scale, LAM * scale),
            lambda phi, scale: energy_of(phi, M2 * scale, LAM * scale, 3),
            id="energy",
        ),
        pytest.param(
            lambda phi, scale: evolve_condensate_euler(phi, 0.01 * scale, M2, LAM),
            lambda phi, scale: euler(phi, dt=0.01 * scale, m2=M2, lam=LAM, rank=3),
            id="euler",
        ),
        pytest.param(
            lambda phi, scale: evolve_condensate_gp(phi, 0.01 * scale, M2, LAM, n_steps=2),
            lambda phi, scale: by_stencil(phi, dt=0.01 * scale, rank=3, n_steps=2),
            id="stencil",
            marks=pytest.mark.full,
        ),
        pytest.param(
            lambda phi, scale: evolve_condensate_gp(phi, 0.7 * scale, M2, LAM, n_steps=2),
            lambda phi, scale: by_fourier(phi, dt=0.7 * scale, rank=3, n_steps=2),
            id="fourier",
            marks=pytest.mark.full,
        ),
    ],
)
def test_compiled_once_for_all_sizes_and_constants(compiled: Evolve, expected: Evolve) -> None:
    phi = make_noise(12, 10, 9, size=0.1, dtype=torch.complex64)
    torch.testing.assert_close(compiled(phi, 1.0), expected(phi, 1.0), rtol=1e-5, atol=1e-6)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for shape, scale in (((6, 17, 8), 1.5), ((16, 16, 16), 0.8), ((130, 40, 60), 1.0)):
            phi = make_noise(*shape, size=0.1, dtype=torch.complex64)
            torch.testing.assert_close(
                compiled(phi, scale), expected(phi, scale), rtol=1e-5, atol=1e-6
            )


# Dynamo looks at the .grad of everything that it is given.
@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"
)
@pytest.mark.usefixtures("_fresh_dynamo")
@pytest.mark.parametrize(
    ("compiled", "expected"),
    [
        pytest.param(
            lambda phi: compute_condensate_potential(phi, M2, LAM),
            lambda phi: potential_of(phi, M2, LAM, 3),
            id="potential",
            marks=pytest.mark.full,
        ),
        pytest.param(
            lambda phi: compute_condensate_energy(phi, M2, LAM),
            lambda phi: energy_of(phi, M2, LAM, 3),
            id="energy",
            marks=pytest.mark.full,
        ),
        pytest.param(
            lambda phi: evolve_condensate_euler(phi, 0.1, M2, LAM),
            lambda phi: naive_euler(phi, dt=0.1, m2=M2, lam=LAM, rank=3),
            id="euler",
            marks=pytest.mark.full,
        ),
        pytest.param(
            lambda phi: evolve_condensate_gp(phi, 0.01, M2, LAM),
            lambda phi: by_fourier(phi, dt=0.01, rank=3),
            id="stencil",
            marks=pytest.mark.full,
        ),
        pytest.param(
            lambda phi: evolve_condensate_gp(phi, 0.7, M2, LAM, n_steps=2),
            lambda phi: by_stencil(phi, dt=0.7, rank=3, n_steps=2),
            id="fourier",
            marks=pytest.mark.full,
        ),
    ],
)
def test_compiled_gradient_is_the_eager_one(compiled: Evolve, expected: Evolve) -> None:
    slopes = []
    for function in (compiled, expected):
        leaf = make_noise(5, 6, 7).requires_grad_()
        result = function(leaf)
        weight = make_noise(*result.shape, seed=1)
        (slope,) = torch.autograd.grad((weight.conj() * result).real.sum(), leaf)
        slopes.append(slope)
    assert relative(*slopes) < 1e-12
