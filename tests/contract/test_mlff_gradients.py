"""Gradients by the weights of compiled code are those of eager code: what training needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch", reason="torch is only in the cells")
import torch

from benchmarks.molecules.energy_forces.calls import MOLECULES
from ivhl.mlff.batch import batch_energies_forces_one_graph, pad_molecules
from ivhl.mlff.painn import make_parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [
    pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Pickle, copy, and deepcopy support:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Skipping serialization of skipfiles:UserWarning"),
]


@pytest.fixture
def _one_thread() -> Iterator[None]:
    """Set the number of threads with which 2.5.1 and 2.6.0 lose additions."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def leaves(node: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:  # noqa: ANN401  (a nest)
    if isinstance(node, torch.Tensor):
        yield name, node
    else:
        for key, child in node.items() if isinstance(node, dict) else enumerate(node):
            yield from leaves(child, f"{name}.{key}")


@pytest.mark.full
@pytest.mark.usefixtures("_one_thread")
def test_what_is_trained_compiled_gets_the_gradients_of_eager_code() -> None:
    numbers, positions = pad_molecules(
        [
            (
                torch.tensor([atom[0] for atom in MOLECULES[name]]),
                torch.tensor([atom[1:] for atom in MOLECULES[name]], dtype=torch.float64),
            )
            for name in ("H2O", "CH4")  # each element that stands there twice adds up
        ]
    )

    def gradients(model: Callable[..., Any]) -> dict[str, torch.Tensor]:
        weights = make_parameters(torch.Generator().manual_seed(0))
        for _, weight in leaves(weights):
            weight.requires_grad_()
        energies, forces = model(weights, numbers, positions)
        (energies.square().sum() + forces.square().sum()).backward()
        return {name: w.grad for name, w in leaves(weights) if w.grad is not None}

    compiled = torch.compile(batch_energies_forces_one_graph, dynamic=False, fullgraph=True)
    actual, expected = gradients(compiled), gradients(batch_energies_forces_one_graph)
    assert actual.keys() == expected.keys()
    assert ".embedding" in actual
    for name, gradient in expected.items():
        error = float((actual[name] - gradient).abs().max())
        assert error <= 1e-10 * float(gradient.abs().max()), name
