"""What every public operation promises on every release: compiled, it is the formula.

Workloads measure only some of them, and a failure of the compiler would be answered by running
eagerly; here it raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch", reason="torch is only in the cells")
import torch

from ivhl import ops
from ivhl.compile import clear_compile_cache, compile_report, get_compiled, measuring
from ivhl.ops.condensate.energy import make_condensate_energy
from ivhl.ops.condensate.euler import condensate_euler
from ivhl.ops.condensate.hops import _shifted_sums
from ivhl.ops.condensate.potential import condensate_potential
from ivhl.ops.condensate.waves import gp_evolve, make_condensate_strang
from ivhl.ops.field import field_superposition
from ivhl.ops.gru.sequence import gru_sequence
from ivhl.ops.mera import mera_layer
from ivhl.ops.vortex import vortex_field

if TYPE_CHECKING:
    from collections.abc import Callable

    Operation = Callable[..., Any]

pytestmark = [
    pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning"),
    # Torch's own, while it compiles, each from one release or another.
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Pickle, copy, and deepcopy support:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Skipping serialization of skipfiles:UserWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]

DT, M2, LAM = 0.01, -0.5, 0.1
CUBE = (9, 10, 11)


def noise(*shape: int, complex_: bool = True) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    dtype = torch.complex64 if complex_ else torch.float32
    return 0.5 * torch.randn(shape, dtype=dtype, generator=generator)


def real(*shape: int) -> torch.Tensor:
    return noise(*shape, complex_=False)


def field_at_rest(*inputs: torch.Tensor) -> torch.Tensor:
    grid_points, sources, frequencies, amplitudes, phases = inputs
    t = grid_points.new_zeros(())
    return field_superposition(grid_points, sources, frequencies, amplitudes, phases, t)


def energy(phi: torch.Tensor) -> Any:  # noqa: ANN401  (a tensor)
    return make_condensate_energy(lambda function: function, rank=3)(phi, M2, LAM)


def entropy(psi: torch.Tensor) -> torch.Tensor:
    p = torch.linalg.svdvals(psi).square()
    p = p / p.sum()
    return -torch.special.xlogy(p, p).sum() / torch.tensor(2.0, dtype=p.dtype).log()


# Public operation, the formula, and inputs in single precision.
CASES: dict[str, tuple[Operation, Operation, tuple[torch.Tensor, ...]]] = {
    "field": (
        ops.compute_field_superposition,
        field_at_rest,
        (4.0 * real(50, 3), real(7, 3), real(7), real(7), real(7)),
    ),
    "vortex": (ops.compute_vortex_field, vortex_field, (real(50, 3), real(4, 3), real(4))),
    "intensity": (ops.compute_intensity, lambda psi: psi.abs().square(), (noise(*CUBE),)),
    "normalize": (ops.normalize_field, lambda psi: psi / psi.abs().norm(), (noise(*CUBE),)),
    "phase": (
        ops.compute_phase_gradient,
        lambda psi: torch.gradient(torch.angle(psi)),
        (noise(*CUBE),),
    ),
    "potential": (
        lambda phi: ops.compute_condensate_potential(phi, M2, LAM),
        lambda phi: condensate_potential(phi, mass_sq=M2, lambda_coupling=LAM),
        (noise(*CUBE),),
    ),
    "energy": (lambda phi: ops.compute_condensate_energy(phi, M2, LAM), energy, (noise(*CUBE),)),
    "euler": (
        lambda phi: ops.evolve_condensate_euler(phi, DT, M2, LAM),
        lambda phi: condensate_euler(phi, dt=DT, mass_sq=M2, lambda_coupling=LAM),
        (noise(*CUBE),),
    ),
    "gp-stencil": (
        lambda phi: ops.evolve_condensate_gp(phi, DT, M2, LAM, 4, 3),
        lambda phi: gp_evolve(phi, dt=DT, m2=M2, lam=LAM, n_steps=3),
        (noise(8, 8, 8),),
    ),
    "gp-fourier": (
        lambda phi: ops.evolve_condensate_gp(phi, 0.7, M2, LAM, 4, 3),
        lambda phi: gp_evolve(phi, dt=0.7, m2=M2, lam=LAM, n_steps=3),
        (noise(8, 8, 8),),
    ),
    "mera": (
        ops.contract_mera_layer,
        mera_layer,
        (noise(4, 2, 2), noise(2, 8, 8), noise(2, 8, 4)),
    ),
    "network": (
        lambda *tensors: ops.contract_tensor_network("ab,bc,cd->ad", *tensors),
        lambda a, b, c: a @ b @ c,
        (noise(3, 4), noise(4, 5), noise(5, 6)),
    ),
    "entropy": (lambda psi: ops.compute_entanglement_entropy(psi, 1), entropy, (noise(8, 16),)),
    "gru": (
        ops.rnn_gru,
        gru_sequence,
        (real(6, 3, 4), real(3, 5), real(5, 9), real(5, 9), real(5, 9), real(5), real(5), real(5)),
    ),
}

# Each takes 6 to 30 s to compile.
LONG = frozenset(
    {"field", "vortex", "phase", "potential", "euler", "gp-stencil", "gp-fourier", "gru"}
)


def outputs_of(found: Any) -> list[torch.Tensor]:  # noqa: ANN401  (a tensor or some)
    return [found] if isinstance(found, torch.Tensor) else list(found)


@pytest.mark.parametrize(
    ("public", "formula", "inputs"),
    [
        pytest.param(*case, id=name, marks=pytest.mark.full if name in LONG else [])
        for name, case in CASES.items()
    ],
)
def test_public_operation_compiles_and_is_the_formula(
    public: Operation, formula: Operation, inputs: tuple[torch.Tensor, ...]
) -> None:
    torch._dynamo.reset()
    before = [t.clone() for t in inputs]
    doubled = [t.to(torch.complex128 if t.is_complex() else torch.float64) for t in inputs]
    exact = outputs_of(formula(*doubled))
    with measuring():
        found = [outputs_of(public(*inputs)) for _ in range(2)]
    for outputs in found:
        for actual, expected in zip(outputs, exact, strict=True):
            single = torch.complex64 if expected.is_complex() else torch.float32
            assert actual.dtype == single
            scale = float(expected.abs().max())
            torch.testing.assert_close(
                actual.to(expected.dtype), expected, rtol=0.0, atol=1e-5 * max(scale, 1e-2)
            )
    assert all(torch.equal(a, b) for a, b in zip(inputs, before, strict=True))


def points_and(m: int) -> tuple[torch.Tensor, ...]:
    return real(m, 3), real(m), real(m), real(m)


def gru_inputs(batch: int, h: int) -> tuple[torch.Tensor, ...]:
    weights, biases = [real(h, h + 4)] * 3, [real(h)] * 3
    return (real(6, batch, 4), real(batch, h), *weights, *biases)


# Sizes are equal first and differ later: Dynamo would take equal ones for one.
BOXES = ((8, 8, 8), (9, 10, 11), (16, 8, 12), (32, 32, 32), (64, 64, 64))
# Without ``contract_mera_layer``, which is a product by a library.
SWEEPS: dict[str, tuple[Operation, tuple[Any, ...]]] = {
    "field": (
        lambda n, m: ops.compute_field_superposition(real(n, 3), *points_and(m)),
        ((50, 3), (7, 7), (3, 3), (512, 10), (2048, 20)),
    ),
    "vortex": (
        lambda n, m: ops.compute_vortex_field(real(n, 3), real(m, 3), real(m)),
        ((512, 3), (2048, 5), (7, 7), (8192, 10)),
    ),
    "intensity": (lambda *box: ops.compute_intensity(noise(*box)), BOXES),
    "normalize": (lambda *box: ops.normalize_field(noise(*box)), BOXES),
    "phase": (lambda *box: ops.compute_phase_gradient(noise(*box)), BOXES),
    "potential": (lambda *box: ops.compute_condensate_potential(noise(*box), M2, LAM), BOXES),
    "energy": (lambda *box: ops.compute_condensate_energy(noise(*box), M2, LAM), BOXES),
    "euler": (lambda *box: ops.evolve_condensate_euler(noise(*box), DT, M2, LAM), BOXES),
    "gp-stencil": (lambda *box: ops.evolve_condensate_gp(noise(*box), DT, M2, LAM, 4, 2), BOXES),
    "gp-fourier": (lambda *box: ops.evolve_condensate_gp(noise(*box), 0.7, M2, LAM, 4, 2), BOXES),
    "entropy": (
        lambda *shape: ops.compute_entanglement_entropy(noise(*shape), 1),
        ((4, 4), (9, 10), (16, 8)),
    ),
    # Never as many rows as hidden units: Inductor looks for a pattern that asks whether they are.
    "gru": (lambda *sizes: ops.rnn_gru(*gru_inputs(*sizes)), ((4, 5), (5, 6), (3, 9), (16, 32))),
}
# Inductor of 2.15 adds up to 4096 numbers in another way than more of them.
COMPILED_TWICE = {"normalize"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.full if name in LONG else []) for name in SWEEPS],
)
def test_public_operation_is_compiled_once_for_all_sizes(name: str) -> None:
    call, sizes = SWEEPS[name]
    clear_compile_cache()
    with measuring():
        call(*sizes[0])
        frames = sum(f.frames for f in compile_report().functions)
        for size in sizes[1:]:
            call(*size)
    report = compile_report()
    n_more = sum(f.frames for f in report.functions) - frames
    assert frames >= 1
    assert n_more <= (name in COMPILED_TWICE), str(report)
    assert sum(sum(f.recompiles.values()) for f in report.functions) == n_more, str(report)
    assert not any(f.graph_breaks for f in report.functions), str(report)


@pytest.mark.full
def test_public_stencil_rolls_around_axes_that_are_shorter_than_its_reach() -> None:
    # Compiled by 2.5.1 or 2.6.0 for any shape, a roll by more than there is reads outside of it.
    torch._dynamo.reset()
    by_transforms = make_condensate_strang(lambda function: function, rank=4)
    with measuring():
        for shape in ((5, 6, 12), (3, 4, 9), (4, 3, 30), (2, 5, 16), (3, 3, 3)):
            phi = noise(*shape).to(torch.complex128)
            found = ops.evolve_condensate_gp(phi, 0.01, M2, LAM, 4, 2)
            expected = by_transforms(phi, 0.01, M2, LAM, 2)
            torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-12)


@pytest.mark.full
def test_gradient_of_a_stencil_that_is_longer_than_an_axis_is_that_of_eager_code() -> None:
    # The backward pass of a roll rolls the other way, by more than there is again.
    torch._dynamo.reset()

    def along(x: torch.Tensor) -> torch.Tensor:
        sums = _shifted_sums(x, 0, 6)
        return sum((one * (n + 1) for n, one in enumerate(sums)), torch.zeros_like(x))

    x, weight = noise(3, 4, 9).real.clone(), noise(3, 4, 9).imag.clone()
    slopes = []
    for function in (torch.compile(along, dynamic=True), along):
        leaf = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad((weight * function(leaf)).sum(), leaf)
        slopes.append(slope)
    torch.testing.assert_close(*slopes)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_public_gradient_of_the_stencil_is_that_of_the_transforms(dtype: torch.dtype) -> None:
    # Compiled by 2.5.1 or 2.6.0 for any shape, it would be NaN.
    torch._dynamo.reset()
    by_transforms = make_condensate_strang(lambda function: function, rank=3)

    def public(phi: torch.Tensor) -> torch.Tensor:
        return ops.evolve_condensate_gp(phi, 0.05, M2, LAM)

    def expected(phi: torch.Tensor) -> torch.Tensor:
        return by_transforms(phi, 0.05, M2, LAM, 1)

    weight = noise(5, 6, 7).to(dtype).conj()
    slopes = []
    for evolve in (public, expected):
        leaf = noise(7, 5, 6).reshape(5, 6, 7).to(dtype).requires_grad_()
        (slope,) = torch.autograd.grad((weight * evolve(leaf)).real.sum(), leaf)
        slopes.append(slope)
    close = 1e-5 if dtype == torch.complex64 else 1e-12
    torch.testing.assert_close(*slopes, rtol=0.0, atol=close)


@pytest.mark.parametrize(
    "negate",
    [lambda x: torch.complex(x, x).conj().imag, torch._neg_view],
    ids=["strided", "contiguous"],
)
def test_a_view_with_its_sign_in_a_bit_keeps_its_sign(
    negate: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    torch._dynamo.reset()
    grid_points, sources, frequencies, amplitudes, phases = CASES["field"][2]
    negated = negate(amplitudes)
    assert negated.is_neg()
    inputs = (grid_points, sources, frequencies, negated, phases)
    torch.testing.assert_close(ops.compute_field_superposition(*inputs), field_at_rest(*inputs))
    twice = get_compiled(lambda x: 2.0 * x)
    for found in (twice(negated), twice(x=negated)):
        assert torch.equal(found, -2.0 * amplitudes)
