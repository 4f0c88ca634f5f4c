"""Maps agree with the formulas; norms, traces and expectation values are conserved."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is only in the cells")
import torch

from benchmarks.mera.mera_ascend import reference as ascended
from benchmarks.mera.mera_descend import calls as descended
from ivhl.ops.mera import (
    CONES,
    apply_mera_map,
    ascend,
    coarse_grain,
    contract_mera_layer,
    descend,
    make_apply_mera_map,
    make_mera_map,
    mera_layer,
    pack_mera_map,
    refine,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ivhl.ops.mera import Cone

    Layer = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

pytestmark = [
    pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Pickle, copy, and deepcopy support:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Skipping serialization of skipfiles:UserWarning"),
]

DOUBLE = torch.complex128


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = DOUBLE) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=DOUBLE, generator=generator).to(dtype)


def draw_isometry(rows: int, columns: int, seed: int) -> torch.Tensor:
    return torch.linalg.qr(draw(rows, columns, seed=seed))[0]


def draw_maps(chi: int, chi_coarse: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    u = draw_isometry(chi**2, chi**2, seed + 1).reshape((chi,) * 4)
    return u, draw_isometry(chi**2, chi_coarse, seed + 2).reshape(chi, chi, chi_coarse)


def draw_layer(
    n_sites: int, d: int, bond: int, dtype: torch.dtype = DOUBLE
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    n_pairs, width = n_sites // 2, 2 * d**2
    return (
        draw(n_sites, d, d, seed=1, dtype=dtype),
        draw(n_pairs, width, width, seed=2, dtype=dtype) / math.sqrt(max(1, width)),
        draw(n_pairs, width, bond, seed=3, dtype=dtype) / math.sqrt(max(1, width)),
    )


def fast_layer(t: torch.Tensor, u: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return apply_mera_map(t, make_mera_map(u, w))


def packed_layer(t: torch.Tensor, u: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return make_apply_mera_map(lambda f: f)(t, pack_mera_map(make_mera_map(u, w)))


def relative(actual: torch.Tensor, expected: torch.Tensor) -> float:
    assert actual.shape == expected.shape
    scale = expected.abs().max() if expected.numel() else torch.tensor(1.0)
    return float((actual - expected).abs().sum() / scale)


def as_matrix(operator: torch.Tensor) -> torch.Tensor:
    half = operator.ndim // 2
    return operator.reshape(math.prod(operator.shape[:half]), -1)


def expectation(density: torch.Tensor, operator: torch.Tensor) -> torch.Tensor:
    return torch.trace(as_matrix(density) @ as_matrix(operator))


def reduce_to(psi: torch.Tensor, first: int, n_sites: int) -> torch.Tensor:
    """Return the density matrix of neighbouring sites of a periodic chain."""
    sites = [(first + k) % psi.ndim for k in range(n_sites)]
    rest = [site for site in range(psi.ndim) if site not in sites]
    chi = psi.shape[0]
    matrix = psi.permute(*sites, *rest).reshape(chi**n_sites, -1)
    return (matrix @ matrix.mH).reshape((chi,) * (2 * n_sites))


# Chains of 12, 8 and 8 sites.
on_chains = pytest.mark.parametrize(
    ("chi", "chi_coarse", "n_blocks"), [(2, 2, 6), (2, 3, 4), (3, 2, 4)]
)
dimensions = pytest.mark.parametrize(("chi", "chi_coarse"), [(2, 2), (2, 4), (3, 2), (1, 1)])
cones = pytest.mark.parametrize("cone", CONES)
layers = pytest.mark.parametrize(
    "layer",
    [mera_layer, contract_mera_layer, fast_layer, packed_layer],
    ids=["naive", "two maps", "one map", "planes"],
)


@layers
@settings(deadline=None, max_examples=30)
@given(n_pairs=st.integers(0, 3), d=st.integers(1, 3), bond=st.integers(0, 40))
def test_layer_is_the_formula(layer: Layer, n_pairs: int, d: int, bond: int) -> None:
    t, u, w = draw_layer(2 * n_pairs, d, bond)
    expected = torch.zeros(n_pairs, bond, dtype=DOUBLE)
    for p in range(n_pairs):
        x = torch.cat((t[2 * p].flatten(), t[2 * p + 1].flatten()))
        expected[p] = w[p].T @ (u[p].T @ x)
    assert relative(layer(t, u, w), expected) < 1e-12 * max(1, n_pairs * bond)


@layers
@pytest.mark.parametrize("dtype", [torch.complex64, DOUBLE])
def test_layer_takes_any_strides_and_leaves_its_inputs_alone(
    layer: Layer, dtype: torch.dtype
) -> None:
    t, u, w = draw_layer(4, 2, 3, dtype)
    expected = layer(t, u, w)
    strided = (x.mT.contiguous().mT for x in (t, u, w))
    flipped = [x.conj().resolve_conj().conj() for x in strided]
    assert all(x.is_conj() and not x.is_contiguous() for x in flipped)
    before = [x.clone() for x in flipped]
    actual = layer(*flipped)
    assert actual.dtype == dtype
    assert relative(actual, expected) < (1e-4 if dtype == torch.complex64 else 1e-13)
    assert all(torch.equal(x, y) for x, y in zip(flipped, before, strict=True))


@layers
def test_gradients_of_the_layer_are_right(layer: Layer) -> None:
    inputs = tuple(x.requires_grad_() for x in draw_layer(4, 2, 3))
    assert torch.autograd.gradcheck(layer, inputs)


def test_unitary_and_isometry_keep_the_norm_of_what_they_keep() -> None:
    t = draw(4, 2, 2)
    u = torch.stack([draw_isometry(8, 8, seed) for seed in (1, 2)])
    assert float(contract_mera_layer(t, u, u).norm()) == pytest.approx(float(t.norm()), rel=1e-13)
    w = u[:, :, :3]
    assert float(contract_mera_layer(t, u, w).norm()) < float(t.norm())


@pytest.mark.parametrize("bond", [5, 16, 48])
def test_packed_map_holds_every_number_once(bond: int) -> None:
    mera_map = draw(2, 8, bond)
    packed = pack_mera_map(mera_map)
    assert packed.is_contiguous()
    for plane, numbers in zip(packed, (mera_map.real, mera_map.imag), strict=True):
        assert sorted(plane.flatten().tolist()) == sorted(numbers.flatten().tolist())


def test_compiled_planes_are_the_layer_at_all_sizes_in_one_graph() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    apply = make_apply_mera_map(lambda f: torch.compile(f, dynamic=True, fullgraph=True))
    for n_sites, d, bond in ((8, 5, 48), (12, 7, 64), (20, 4, 80)):
        t, u, w = draw_layer(n_sites, d, bond, torch.complex64)
        actual = apply(t, pack_mera_map(make_mera_map(u, w)))
        assert relative(actual, mera_layer(t, u, w)) < 1e-6 * actual.numel()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


# Dynamo looks at the .grad of everything that it is given.
@pytest.mark.full
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_gradient_of_compiled_planes_is_that_of_the_layer() -> None:
    torch._dynamo.reset()
    apply = make_apply_mera_map(lambda f: torch.compile(f, dynamic=True, fullgraph=True))

    def compiled_layer(t: torch.Tensor, u: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return apply(t, pack_mera_map(make_mera_map(u, w)))

    gradients = []
    for layer in (compiled_layer, mera_layer):
        inputs = [x.requires_grad_() for x in draw_layer(6, 3, 48)]
        coarse = layer(*inputs)
        loss = (draw(*coarse.shape, seed=4) * coarse).real.sum()
        gradients.append(torch.autograd.grad(loss, inputs))
    for actual, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-11, atol=1e-12)


@on_chains
def test_refining_keeps_the_norm_and_coarse_graining_undoes_it(
    chi: int, chi_coarse: int, n_blocks: int
) -> None:
    maps = draw_maps(chi, chi_coarse)
    psi = draw(*(chi_coarse,) * n_blocks)
    fine = refine(psi, *maps)
    assert fine.shape == (chi,) * (2 * n_blocks)
    assert float(fine.norm()) == pytest.approx(float(psi.norm()), rel=1e-13)
    assert relative(coarse_grain(fine, *maps), psi) < 1e-10


@on_chains
def test_there_and_back_is_an_orthogonal_projector(
    chi: int, chi_coarse: int, n_blocks: int
) -> None:
    maps = draw_maps(chi, chi_coarse)
    psi = draw(*(chi,) * (2 * n_blocks))
    coarse = coarse_grain(psi, *maps)
    assert float(coarse.norm()) < float(psi.norm())
    kept = refine(coarse, *maps)
    assert torch.allclose(refine(coarse_grain(kept, *maps), *maps), kept)
    # Orthogonal: what is kept and what is not are perpendicular.
    assert abs(complex(torch.vdot(kept.flatten(), (psi - kept).flatten()))) < 1e-9


@on_chains
def test_coarse_graining_is_the_product_of_all_maps(
    chi: int, chi_coarse: int, n_blocks: int
) -> None:
    u, w = draw_maps(chi, chi_coarse)
    psi = draw(*(chi,) * (2 * n_blocks))
    expected = psi
    n = psi.ndim
    for j in range(n_blocks):
        a, b = 2 * j + 1, (2 * j + 2) % n
        moved = torch.tensordot(u, expected, dims=([2, 3], [a, b]))
        expected = torch.movedim(moved, (0, 1), (a, b))
    for j in reversed(range(n_blocks)):
        moved = torch.tensordot(w.conj(), expected, dims=([0, 1], [2 * j, 2 * j + 1]))
        expected = torch.movedim(moved, 0, 2 * j)
    assert torch.allclose(coarse_grain(psi, u, w), expected)


@on_chains
@pytest.mark.parametrize("cone", ["left", "right"])
def test_local_expectation_is_that_of_the_whole_state(
    chi: int, chi_coarse: int, n_blocks: int, cone: Cone
) -> None:
    maps = draw_maps(chi, chi_coarse)
    coarse = draw(*(chi_coarse,) * n_blocks)
    coarse = coarse / coarse.norm()
    fine = refine(coarse, *maps)
    three, two = draw(*(chi,) * 6, seed=7), draw(*(chi,) * 4, seed=8)
    for j in range(n_blocks):
        site, block = (2 * j, j - 1) if cone == "left" else (2 * j + 1, j)
        under = reduce_to(fine, site, 3)
        above = reduce_to(coarse, block, 3)
        assert torch.allclose(descend(above, *maps, cone=cone), under)
        up = expectation(above, ascend(three, *maps, cone=cone))
        assert torch.allclose(up, expectation(under, three))
        up = expectation(above, ascend(two, *maps, cone=cone))
        assert torch.allclose(up, expectation(reduce_to(fine, site, 2), two))


@on_chains
def test_mean_over_all_sites_is_the_mean_over_all_blocks(
    chi: int, chi_coarse: int, n_blocks: int
) -> None:
    maps = draw_maps(chi, chi_coarse)
    coarse = draw(*(chi_coarse,) * n_blocks)
    fine = refine(coarse, *maps)
    o = draw(*(chi,) * 6, seed=7)
    up = ascend(o, *maps)
    fine_mean = sum(expectation(reduce_to(fine, j, 3), o) for j in range(fine.ndim))
    coarse_mean = sum(expectation(reduce_to(coarse, j, 3), up) for j in range(n_blocks))
    assert torch.allclose(torch.as_tensor(fine_mean), 2.0 * torch.as_tensor(coarse_mean))


def test_a_fine_site_moves_three_coarse_sites_at_most() -> None:
    """The causal cone: on the coarse chain the operator acts on three blocks and on no other."""
    maps = draw_maps(2, 2)
    coarse = draw(*(2,) * 6)
    fine = refine(coarse, *maps)
    o = draw_isometry(8, 8, 5)
    for site, block in ((4, 1), (5, 2)):
        order = [(site + k) % 12 for k in range(12)]
        moved = (o @ fine.permute(order).reshape(8, -1)).reshape((2,) * 12)
        moved = moved.permute([order.index(k) for k in range(12)])
        kept = ascend(o.reshape((2,) * 6), *maps, cone="left" if site == 4 else "right")
        whole = [(block + k) % 6 for k in range(6)]
        expected = (as_matrix(kept) @ coarse.permute(whole).reshape(8, -1)).reshape((2,) * 6)
        expected = expected.permute([whole.index(k) for k in range(6)])
        assert torch.allclose(coarse_grain(moved, *maps), expected)


@cones
@dimensions
def test_ascending_keeps_one_and_descending_the_trace(
    chi: int, chi_coarse: int, cone: Cone
) -> None:
    maps = draw_maps(chi, chi_coarse)
    for n_sites in (2, 3):
        one = torch.eye(chi**n_sites, dtype=DOUBLE).reshape((chi,) * (2 * n_sites))
        up = as_matrix(ascend(one, *maps, cone=cone))
        assert torch.allclose(up, torch.eye(chi_coarse**3, dtype=DOUBLE))
    rho = draw(*(chi_coarse,) * 6)
    down = as_matrix(descend(rho, *maps, cone=cone))
    assert torch.allclose(torch.trace(down), torch.trace(as_matrix(rho)))


@cones
@dimensions
def test_the_two_maps_are_dual(chi: int, chi_coarse: int, cone: Cone) -> None:
    maps = draw_maps(chi, chi_coarse)
    rho, o = draw(*(chi_coarse,) * 6, seed=3), draw(*(chi,) * 6, seed=4)
    up = expectation(rho, ascend(o, *maps, cone=cone))
    assert torch.allclose(up, expectation(descend(rho, *maps, cone=cone), o))


@cones
@dimensions
def test_hermitian_stays_hermitian_and_positive_positive(
    chi: int, chi_coarse: int, cone: Cone
) -> None:
    maps = draw_maps(chi, chi_coarse)
    root = draw(chi_coarse**3, 2)
    rho = (root @ root.mH).reshape((chi_coarse,) * 6)
    down = as_matrix(descend(rho, *maps, cone=cone))
    assert torch.allclose(down, down.mH)
    assert float(torch.linalg.eigvalsh(down).min()) > -1e-12 * float(torch.trace(down).real)


@cones
@dimensions
def test_spectrum_of_an_ascended_operator_lies_within(
    chi: int, chi_coarse: int, cone: Cone
) -> None:
    maps = draw_maps(chi, chi_coarse)
    h = as_matrix(draw(*(chi,) * 6))
    h = h + h.mH
    fine = torch.linalg.eigvalsh(h)
    up = torch.linalg.eigvalsh(as_matrix(ascend(h.reshape((chi,) * 6), *maps, cone=cone)))
    assert float(up.min()) > float(fine.min()) - 1e-12
    assert float(up.max()) < float(fine.max()) + 1e-12


def test_average_is_the_mean_of_left_and_right() -> None:
    maps, o, rho = draw_maps(2, 3), draw(*(2,) * 6), draw(*(3,) * 6)
    for change, x in ((ascend, o), (descend, rho)):
        left, right = change(x, *maps, cone="left"), change(x, *maps, cone="right")
        assert not torch.allclose(left, right)
        assert torch.allclose(change(x, *maps), 0.5 * (left + right))


def test_gradients_flow_through_states_and_operators() -> None:
    u, w = (x.requires_grad_() for x in draw_maps(2, 2))
    psi = draw(2, 2, 2, 2).requires_grad_()
    assert torch.autograd.gradcheck(coarse_grain, (psi, u, w))
    assert torch.autograd.gradcheck(refine, (draw(2, 2).requires_grad_(), u, w))
    assert torch.autograd.gradcheck(ascend, (draw(2, 2, 2, 2).requires_grad_(), u, w))
    assert torch.autograd.gradcheck(descend, (draw(*(2,) * 6).requires_grad_(), u, w))


def test_real_maps_of_the_shortest_chain() -> None:
    u, w = (x.real.contiguous() for x in draw_maps(2, 2))
    psi = draw(2, 2).real.contiguous()
    coarse = coarse_grain(psi, u, w)
    swapped = torch.einsum("abcd,dc->ba", u, psi)  # sites 1 and 2 are 1 and 0
    assert torch.allclose(coarse, torch.einsum("abx,ab->x", w, swapped))
    assert refine(coarse, u, w).dtype == torch.float64


T, U, W = draw_layer(4, 2, 3)
u2, w2 = draw_maps(2, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: contract_mera_layer(T.real, U, W), r"tensors must be complex, got torch.float64"),
        (lambda: contract_mera_layer(T[:3], U, W), r"n_sites even, got \[3, 2, 2\]"),
        (lambda: mera_layer(T[:, :1], U, W), r"\[n_sites, d, d\].* got \[4, 1, 2\]"),
        (lambda: mera_layer(T, U[:1], W), r"disentanglers .*\[2, 8, 8\], got \[1, 8, 8\]"),
        (
            lambda: contract_mera_layer(T, U, W[:, :7]),
            r"isometries .*\[2, 8, bond\], got \[2, 7, 3",
        ),
        (lambda: contract_mera_layer(T.cfloat(), U, W), r"dtype of tensors, torch.complex64, got"),
        (lambda: contract_mera_layer(T, U, W.cfloat()), r"isometries .* dtype of disentanglers"),
        (
            lambda: contract_mera_layer(T, U.to("meta"), W),
            r"on the device of tensors, cpu, got meta",
        ),
        (lambda: make_mera_map(U[0], W), r"\[n_pairs, width, width\], got \[8, 8\]"),
        (lambda: make_mera_map(U.real, W), r"disentanglers must be complex, got torch.float64"),
        (lambda: apply_mera_map(T, W[:1]), r"mera_map .*\[2, 8, bond\], got \[1, 8, 3\]"),
        (lambda: coarse_grain(draw(2, 2, 2), u2, w2), r"psi .* axes of size 2, got .*\[2, 2, 2\]"),
        (lambda: coarse_grain(draw(3, 3), u2, w2), r"psi .* axes of size 2, got .*\[3, 3\]"),
        (lambda: refine(draw(3), u2, w2), r"psi .* size 2, got shape \[3\]"),
        (
            lambda: refine(torch.tensor(1j, dtype=DOUBLE), u2, w2),
            r"psi .* one axis.* got shape \[\]",
        ),
        (lambda: refine(draw(2).cfloat(), u2, w2), r"psi must have the dtype of disentangler"),
        (lambda: refine(draw(2), u2[0], w2), r"disentangler must have shape \[chi, chi"),
        (lambda: refine(draw(2), u2.real.long(), w2), r"disentangler must be floating or complex"),
        (lambda: refine(draw(2), u2, w2[0]), r"isometry must have shape \[2, 2, chi_coarse\]"),
        (lambda: refine(draw(2), u2, draw(2, 2, 5)), r"from 1 to 4, got \[2, 2, 5\]"),
        (lambda: ascend(draw(2, 2), u2, w2), r"operator must have 4 or 6 axes of size 2, got"),
        (lambda: descend(draw(2, 2, 2, 2), u2, w2), r"density must have 6 axes of size 2, got"),
        (lambda: ascend(draw(2, 2, 2, 2), u2, w2, cone=wrong_cone()), r"cone .* got 'centre'"),
    ],
)
def test_wrong_inputs_are_named(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def wrong_cone() -> Any:  # noqa: ANN401  (what no type checker lets pass)
    return "centre"


@pytest.mark.parametrize(("chi", "coarse"), [(2, 2), (3, 2), (2, 3), (4, 4)])
def test_the_reference_of_large_sites_is_that_of_small_ones(chi: int, coarse: int) -> None:
    # Neither formula needs an isometry, which cannot have more columns than rows.
    maps = draw_maps(chi, chi)[0], draw(chi, chi, coarse, seed=3)
    operator, density = draw(*(chi,) * 6, seed=4), draw(*(coarse,) * 6, seed=5)
    torch.testing.assert_close(
        ascended.by_network(operator, *maps), ascended.reference(operator, *maps)
    )
    torch.testing.assert_close(
        descended.by_network(density, *maps), descended.reference(density, *maps)
    )
