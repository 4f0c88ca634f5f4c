"""The path changes the cost of a network, never its value."""

from __future__ import annotations

import importlib
import os
import random
import string
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is only in the cells")
pytest.importorskip("opt_einsum", reason="opt_einsum is only in the cells")
import torch

from benchmarks.mera import tensor_network as workload
from benchmarks.mera.tensor_network import calls as workload_calls
from ivhl.ops.tensor_network import (
    contract,
    contract_tensor_network,
    make_contract_tensor_network,
    plan_contraction,
    plan_in_order,
    tensor_network,
)

if TYPE_CHECKING:
    from collections.abc import Callable

np = pytest.importorskip("numpy", reason="an independent einsum")

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Pickle, copy, and deepcopy support:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Skipping serialization of skipfiles:UserWarning"),
    pytest.mark.filterwarnings(
        "ignore:Torchinductor does not support code generation for complex"
    ),
]

LETTERS = "abcdefgh"

forms = pytest.mark.parametrize(
    "form", [tensor_network, contract_tensor_network], ids=["in order", "on path"]
)


def draw_all(equation: str, sizes: dict[str, int], seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    terms = equation.partition("->")[0].split(",")
    return [
        torch.randn([sizes[i] for i in term], dtype=torch.complex128, generator=generator)
        for term in terms
    ]


def index(number: int) -> str:
    return chr(0x100 + number)


def ring_of(n: int, bond: int) -> tuple[str, tuple[tuple[int, ...], ...]]:
    """Return a ring whose tensors are written in random order, the worst for left to right."""
    terms = [index(site) + index((site + 1) % n) for site in range(n)]
    random.Random(0).shuffle(terms)  # noqa: S311  (no secret)
    return ",".join(terms) + "->", ((bond, bond),) * n


def grid_of(n: int, bond: int) -> tuple[str, tuple[tuple[int, ...], ...]]:
    terms = [""] * (n * n)
    number = 0
    for row in range(n):
        for column in range(n):
            for other in ([row * n + column + 1] if column < n - 1 else []) + (
                [(row + 1) * n + column] if row < n - 1 else []
            ):
                terms[row * n + column] += index(number)
                terms[other] += index(number)
                number += 1
    random.Random(0).shuffle(terms)  # noqa: S311  (no secret)
    return ",".join(terms) + "->", tuple((bond,) * len(term) for term in terms)


@st.composite
def networks(draw: st.DrawFn) -> tuple[str, dict[str, int]]:
    """Draw an equation with hyperedges, diagonals, outer products, scalars and lonely indices."""
    terms = draw(st.lists(st.text(LETTERS, max_size=3), min_size=1, max_size=7))
    used = sorted(set("".join(terms)))
    output = "".join(draw(st.permutations(used))[: draw(st.integers(0, 3))])
    sizes = {i: draw(st.integers(0, 3)) for i in used}
    return f"{','.join(terms)}->{output}", sizes


@forms
@settings(deadline=None, max_examples=150)
@given(network=networks())
def test_every_network_is_what_numpy_says(
    form: Callable[..., torch.Tensor], network: tuple[str, dict[str, int]]
) -> None:
    equation, sizes = network
    tensors = draw_all(equation, sizes)
    expected = np.einsum(equation, *[t.numpy() for t in tensors])
    actual = form(equation, *tensors).numpy()
    assert actual.shape == expected.shape
    assert np.allclose(actual, expected, rtol=1e-10, atol=1e-10)


@forms
def test_without_an_arrow_lonely_indices_are_the_result(form: Callable[..., torch.Tensor]) -> None:
    tensors = draw_all("cb,ba", {"a": 2, "b": 3, "c": 4})
    expected = np.einsum("cb,ba", *[t.numpy() for t in tensors])
    assert np.allclose(form(" cb, ba", *tensors).numpy(), expected)


@forms
@pytest.mark.parametrize(("n", "bond"), [(3, 2), (4, 2)])
def test_small_rings_and_grids_are_what_numpy_says(
    form: Callable[..., torch.Tensor], n: int, bond: int
) -> None:
    for equation, shapes in (ring_of(2 * n, bond), grid_of(n, bond)):
        indices = sorted(set(equation) - set(",->"))
        in_ascii = equation.translate(
            {ord(i): string.ascii_letters[k] for k, i in enumerate(indices)}
        )
        sizes = dict.fromkeys(indices, bond)
        tensors = draw_all(equation, sizes)
        assert tuple(tuple(t.shape) for t in tensors) == shapes
        expected = np.einsum(in_ascii, *[t.numpy() for t in tensors], optimize="greedy")
        assert np.allclose(form(equation, *tensors).numpy(), expected)


def test_a_ring_of_sixty_does_not_blow_up() -> None:
    equation, shapes = ring_of(60, 4)
    plan = plan_contraction(equation, shapes)
    assert plan.largest_intermediate == 4**2
    assert plan.n_products <= 60 * 4**3
    assert plan_in_order(equation, shapes).largest_intermediate > 4**10
    matrices = draw_all(equation, dict.fromkeys((index(k) for k in range(60)), 4))
    by_name = dict(zip(equation[:-2].split(","), matrices, strict=True))
    product = torch.eye(4, dtype=torch.complex128)
    for site in range(60):
        product = product @ by_name[index(site) + index((site + 1) % 60)]
    value = contract_tensor_network(equation, *matrices)
    assert torch.allclose(value, torch.trace(product), rtol=1e-9)


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_a_grid_costs_what_its_side_costs(n: int) -> None:
    """A state along one side is needed, ``bond^n``; all indices would be ``bond^(2n(n-1))``."""
    bond = 3
    plan = plan_contraction(*grid_of(n, bond))
    assert plan.largest_intermediate <= bond ** (n + 1)
    assert plan.n_products <= 2 * n * n * bond ** (n + 2)


def test_cost_of_a_grid_grows_with_the_bond_as_a_power_of_the_side() -> None:
    few, many = (plan_contraction(*grid_of(5, bond)).n_products for bond in (4, 8))
    assert many / few <= 2.0 ** (5 + 3)


@settings(deadline=None)
@given(network=networks())
def test_a_plan_costs_no_more_than_the_order_as_written(
    network: tuple[str, dict[str, int]],
) -> None:
    equation, sizes = network
    shapes = tuple(tuple(t.shape) for t in draw_all(equation, sizes))
    found, written = plan_contraction(equation, shapes), plan_in_order(equation, shapes)
    assert found.n_products <= written.n_products
    assert len(found.steps) >= 1


def test_products_are_counted_as_by_hand() -> None:
    shapes = ((2, 3), (3, 5), (5, 7))
    assert plan_in_order("ab,bc,cd->ad", shapes).n_products == 2 * 3 * 5 + 2 * 5 * 7
    assert plan_in_order("ab,bc,cd->ad", shapes).largest_intermediate == 14
    assert plan_contraction("ab,bc,cd->ad", shapes).n_products == 2 * 3 * 5 + 2 * 5 * 7


def test_the_path_is_searched_once_per_equation_and_shapes() -> None:
    shapes = ((2, 2),) * 3
    assert plan_contraction("ab,bc,ca->", shapes) is plan_contraction("ab,bc,ca->", shapes)


@pytest.mark.parametrize("n_sites", [4, 60])
def test_the_search_leaves_the_random_state_of_the_caller_alone(n_sites: int) -> None:
    equation, shapes = ring_of(n_sites, 2)
    plan_contraction.cache_clear()
    random.seed(5)
    before = random.getstate()
    plan_contraction(equation, shapes)
    assert random.getstate() == before


def test_compiled_is_one_graph_and_the_same() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    equation, shapes = grid_of(3, 3)
    sizes = dict.fromkeys(set(equation) - set(",->"), 3)
    tensors = draw_all(equation, sizes)
    compiled = make_contract_tensor_network(
        lambda f: torch.compile(f, fullgraph=True), equation, shapes
    )
    assert torch.allclose(compiled(*tensors), tensor_network(equation, *tensors))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_gradients_are_right_and_inputs_left_alone() -> None:
    equation = "ab,bc,cad,d->d"
    tensors = draw_all(equation, dict.fromkeys("abcd", 2))
    before = [t.clone() for t in tensors]
    strided = [t.mT.contiguous().mT if t.ndim > 1 else t for t in tensors]
    assert torch.allclose(
        contract_tensor_network(equation, *strided), contract_tensor_network(equation, *tensors)
    )
    assert all(torch.equal(a, b) for a, b in zip(tensors, before, strict=True))
    inputs = [t.requires_grad_() for t in tensors]
    assert torch.autograd.gradcheck(lambda *x: contract_tensor_network(equation, *x), inputs)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_compiled_gradient_is_that_of_the_naive_form(dtype: torch.dtype) -> None:
    torch._dynamo.reset()
    equation, shapes = grid_of(2, 3)
    drawn = draw_all(equation, dict.fromkeys(set(equation) - set(",->"), 3))
    compiled = make_contract_tensor_network(
        lambda f: torch.compile(f, fullgraph=True), equation, shapes
    )

    def naive(*tensors: torch.Tensor) -> torch.Tensor:
        return tensor_network(equation, *tensors)

    gradients = []
    for contraction in (compiled, naive):
        inputs = [(x if dtype.is_complex else x.real).clone().requires_grad_() for x in drawn]
        gradients.append(torch.autograd.grad(contraction(*inputs).abs(), inputs))
    for actual, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_dtype_is_kept(dtype: torch.dtype) -> None:
    tensors = [torch.ones(2, 2, dtype=dtype)] * 3
    assert contract_tensor_network("ab,bc,cd->ad", *tensors).dtype == dtype


one = torch.ones(2, 2)


@forms
@pytest.mark.parametrize(
    ("equation", "tensors", "message"),
    [
        ("->", (), r"tensors must be at least one, got 0"),
        ("ab,bc->ac", (one,), r"one term per tensor, 1, got 2 in 'ab,bc->ac'"),
        ("ab,b->a", (one, one), r"tensors\[1\] must have one axis per index of 'b', got \[2, 2\]"),
        (
            "ab,bc->ac",
            (one, torch.ones(3, 2)),
            r"tensors\[1\] must have size 2 along 'b' .*\[3, 2",
        ),
        ("ab->az", (one,), r"each index of the result once, and among the terms, got 'az'"),
        ("ab->aa", (one,), r"each index of the result once, .* got 'aa'"),
        ("...b->b", (one,), r"without '...' and with one '->', got '...b->b'"),
        ("ab->a->b", (one,), r"with one '->'"),
        ("ab->ab", (one.long(),), r"tensors\[0\] must be floating or complex, got torch.int64"),
        ("ab,bc->ac", (one, one.double()), r"dtype of tensors\[0\], torch.float32, got torch.fl"),
        ("ab,bc->ac", (one, one.to("meta")), r"device of tensors\[0\], cpu, got meta"),
    ],
)
def test_wrong_inputs_are_named(
    form: Callable[..., torch.Tensor],
    equation: str,
    tensors: tuple[torch.Tensor, ...],
    message: str,
) -> None:
    with pytest.raises(ValueError, match=message):
        form(equation, *tensors)


def test_without_opt_einsum_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(name: str) -> Any:  # noqa: ANN401  (never returns)
        raise ImportError(name)

    plan_contraction.cache_clear()
    monkeypatch.setattr(importlib, "import_module", refuse)
    assert contract_tensor_network("ab,bc->ac", one, one).shape == (2, 2)
    with pytest.raises(ImportError, match=r"pip install opt_einsum==3.4.0"):
        contract_tensor_network("ab,bc,cd->ad", one, one, one)


@pytest.mark.parametrize(
    ("equation", "shapes", "products"),
    [
        ("ab,bc,cd->ad", ((2, 3), (3, 4), (4, 5)), 2),
        ("ab,cd->abcd", ((2, 3), (4, 5)), 1),  # nothing is summed
        ("zab,zbc->zac", ((2, 3, 4), (2, 4, 5)), 0),  # one axis is in all three
        ("aab,bc->c", ((2, 2, 3), (3, 4)), 0),  # a diagonal
        ("abx,bc->ac", ((2, 3, 6), (3, 4)), 0),  # a sum over one tensor alone
        ("ab,bc->ca", ((2, 3), (3, 4)), 1),
        ("abc,cd->adb", ((2, 3, 4), (4, 5)), 0),  # another order
    ],
)
def test_steps_that_are_products_of_matrices_are_done_as_such(
    equation: str, shapes: tuple[tuple[int, ...], ...], products: int
) -> None:
    plan = plan_contraction(equation, shapes)
    assert sum(step.product is not None for step in plan.steps) == products
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(shape, dtype=torch.complex128, generator=generator) for shape in shapes]
    expected = torch.einsum(equation, *tensors)
    torch.testing.assert_close(contract(plan, tensors), expected, rtol=1e-12, atol=1e-12)


def test_the_products_that_the_workload_counts_are_those_of_the_best_path() -> None:
    opt_einsum = importlib.import_module("opt_einsum")
    for size in workload.WORKLOAD.sizes.values():
        generator = torch.Generator().manual_seed(0)
        tensors = workload_calls.make_inputs(size, generator)
        names: dict[tuple[str, int, int], str] = {}

        def name(
            kind: str, row: int, column: int, names: dict[tuple[str, int, int], str] = names
        ) -> str:
            return names.setdefault((kind, row, column), index(len(names)))

        last = size.n - 1
        terms = [
            name("down", row - 1, column) * (row > 0)
            + name("right", row, column - 1) * (column > 0)
            + name("right", row, column) * (column < last)
            + name("down", row, column) * (row < last or column == last)
            for row in range(size.n)
            for column in range(size.n)
        ]
        equation = f"{','.join(terms)}->{name('down', last, last)}"
        shapes = [tuple(t.shape) for t in tensors]
        _, info = opt_einsum.contract_path(equation, *shapes, shapes=True, optimize="dp")
        counted = workload.cost(size)
        assert counted.flops == 4.0 * float(info.opt_cost)
        assert counted.bytes == 8.0 * (sum(t.numel() for t in tensors) + size.bond)


@pytest.mark.full
def test_every_process_finds_the_same_path() -> None:
    # Sets of strings are ordered by PYTHONHASHSEED; 25 tensors are past the optimal path.
    equation, shapes = grid_of(5, 4)
    code = (
        "from ivhl.ops.tensor_network import plan_contraction\n"
        f"print(hash('a'), plan_contraction({equation!r}, {shapes!r}).steps)"
    )
    said = [
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"},
            check=True,
            capture_output=True,
            text=True,
            encoding="utf-8",
        ).stdout.split(maxsplit=1)
        for seed in ("0", "1", "2")
    ]
    assert len({of_letter for of_letter, _ in said}) == len(said)
    assert len({steps for _, steps in said}) == 1
