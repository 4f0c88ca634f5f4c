"""Packed weights are the same model."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is only in the cells")

from hypothesis import given, settings  # noqa: E402  (torch first)
from hypothesis import strategies as st  # noqa: E402

from benchmarks.molecules.energy_forces.literal import energy_forces  # noqa: E402
from ivhl.mlff import packed as packed_module  # noqa: E402
from ivhl.mlff import painn  # noqa: E402
from ivhl.mlff.batch import (  # noqa: E402
    batch_energies_forces,
    batch_energies_forces_one_graph,
)
from ivhl.mlff.packed import pack_parameters, packed_energy_forces  # noqa: E402
from ivhl.mlff.weights import load_painn  # noqa: E402

PARAMETERS = painn.make_parameters(torch.Generator().manual_seed(0))


@settings(max_examples=20, deadline=None)
@given(
    numbers=st.lists(st.integers(1, 100), min_size=1, max_size=7),
    seed=st.integers(0, 2**20),
    spread=st.sampled_from([0.8, 2.5, 6.0]),
)
def test_packing_changes_nothing(numbers: list[int], seed: int, spread: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(len(numbers), 3, dtype=torch.float64, generator=generator)
    positions = spread * noise + 1.5 * torch.arange(len(numbers))[:, None]
    inputs = torch.tensor(numbers), positions
    energy, forces = energy_forces(PARAMETERS, *inputs)
    e, f = packed_energy_forces(pack_parameters(PARAMETERS), *inputs)
    torch.testing.assert_close(e, energy, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(f, forces, rtol=1e-12, atol=1e-11)


def test_trained_weights_can_be_packed() -> None:
    parameters = load_painn(dtype=torch.float64)
    positions = torch.tensor([[0.0, 0.0, 0.1], [0.0, 0.76, -0.5], [0.0, -0.76, -0.5]])
    inputs = torch.tensor([8, 1, 1]), positions.double()
    energy, forces = energy_forces(parameters, *inputs)
    e, f = packed_energy_forces(pack_parameters(parameters), *inputs)
    torch.testing.assert_close(e, energy, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(f, forces, rtol=1e-12, atol=1e-11)


def test_sums_of_products_are_the_same_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compiled for few rows on a GPU, here on a CPU."""
    positions = torch.tensor([[0.0, 0.0, 0.1], [0.0, 0.76, -0.5], [0.0, -0.76, -0.5]]).double()
    numbers, packed = torch.tensor([8, 1, 1]), pack_parameters(PARAMETERS)
    forms: dict[Any, tuple[Any, ...]] = {
        packed_energy_forces: (packed, numbers, positions),
        batch_energies_forces: (PARAMETERS, numbers[None], positions[None]),
        batch_energies_forces_one_graph: (PARAMETERS, numbers[None], positions[None]),
    }
    expected = {form: form(*inputs) for form, inputs in forms.items()}
    rows: list[int] = []

    def sums_products(x: Any) -> bool:  # noqa: ANN401  (a tensor)
        rows.append(x.shape[:-1].numel())
        return True

    for module in (painn, packed_module):
        monkeypatch.setattr(module, "sums_products", sums_products)
    for form, inputs in forms.items():
        rows.clear()
        energy, forces = form(*inputs)
        torch.testing.assert_close(energy, expected[form][0], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(forces, expected[form][1], rtol=1e-12, atol=1e-11)
        # Atoms, and their vectors; never pairs, of which there are many.
        assert set(rows) == {3, 9}


@pytest.mark.parametrize(
    ("kind", "compiling", "n_rows", "expected"),
    [
        ("cuda", True, painn.MAX_SUMMED_ROWS, True),
        ("cuda", True, painn.MAX_SUMMED_ROWS + 1, False),
        ("cuda", False, 1, False),
        ("cpu", True, 1, False),
    ],
)
def test_products_are_summed_for_few_rows_compiled_for_a_gpu(
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    compiling: bool,  # noqa: FBT001
    n_rows: int,
    expected: bool,  # noqa: FBT001
) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: compiling)
    x = SimpleNamespace(device=SimpleNamespace(type=kind), shape=torch.Size([1, n_rows, 128]))
    assert painn.sums_products(x) is expected


def test_wrong_inputs_are_named() -> None:
    packed = pack_parameters(PARAMETERS)
    with pytest.raises(
        ValueError, match=r"positions must have shape \[n_atoms, 3\], got \[3, 2\]"
    ):
        packed_energy_forces(packed, torch.tensor([1, 1, 1]), torch.zeros(3, 2))
    with pytest.raises(ValueError, match=r"atomic_numbers must be int64, got torch.int32"):
        packed_energy_forces(packed, torch.tensor([1]).int(), torch.full((1, 3), math.pi))
