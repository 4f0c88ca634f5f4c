"""The student with the original's weights equals the original's ONNX graph.

The file is not part of the project; ``IVHL_STUDENT_ONNX`` is its path.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is only in the cells")
pytest.importorskip("onnx", reason="onnx is only in the environment of nox -s founding-tests")
pytest.importorskip("ase", reason="ase is only in the environment of nox -s founding-tests")
import numpy as np
import onnx
import torch
from ase.build import molecule
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from studies.founding.student_seed import energy, energy_all_pairs, energy_forces, load_original

PATH = os.environ.get("IVHL_STUDENT_ONNX", "")

pytestmark = [
    pytest.mark.skipif(
        not Path(PATH).is_file(),
        reason="IVHL_STUDENT_ONNX names no file; it should be the original's original_model.onnx",
    ),
    # ase uses it, and NumPy 2.5 deprecates it.
    pytest.mark.filterwarnings("ignore:Setting the shape on a NumPy array:DeprecationWarning"),
]

# Spread of the energy over 50 random rotations in eV: lower and upper bound, measured here.
SPREADS = {"H2": (0.08, 0.12), "H2O": (0.14, 0.20), "CH4": (0.02, 0.05), "C6H6": (0.01, 0.02)}
# Energy just inside minus energy just outside the cutoff, in eV.
JUMPS = {(1, 1): -0.253, (8, 8): -0.309, (6, 8): -0.502, (6, 6): -0.803}


@cache
def graph() -> Any:  # noqa: ANN401  (onnx.ModelProto; onnx is not where types are checked)
    return onnx.load(PATH)


@cache
def parameters() -> dict[str, Any]:
    return load_original(
        {
            tensor.name: torch.from_numpy(numpy_helper.to_array(tensor).copy())
            for tensor in graph().graph.initializer
        }
    )


@cache
def corrected_graph() -> Any:  # noqa: ANN401
    """Return the original's graph with messages added, which opset 16 supports and 14 does not."""
    corrected = onnx.ModelProto()
    corrected.CopyFrom(graph())
    corrected.opset_import[0].version = 16
    for node in corrected.graph.node:
        if node.op_type == "ScatterElements":
            node.attribute.append(onnx.helper.make_attribute("reduction", "add"))
    return corrected


def shaken(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    atoms = molecule(name)
    noise = np.random.default_rng(0).normal(size=atoms.positions.shape)
    return torch.tensor(atoms.numbers), torch.tensor(atoms.positions + 0.05 * noise)


def energy_of_graph(model: Any, numbers: torch.Tensor, positions: torch.Tensor) -> float:  # noqa: ANN401
    feeds = {"atomic_numbers": numbers.numpy(), "positions": positions.float().numpy()}
    return float(ReferenceEvaluator(model).run(None, feeds)[0])


@pytest.mark.parametrize("name", ["H2", "H2O", "CH4", "C6H6"])
def test_energy_equals_the_originals_graph_with_messages_added(name: str) -> None:
    numbers, positions = shaken(name)
    expected = energy_of_graph(corrected_graph(), numbers, positions)
    assert float(energy(parameters(), numbers, positions)) == pytest.approx(expected, rel=1e-6)
    assert float(energy_all_pairs(parameters(), numbers, positions)) == pytest.approx(
        expected, rel=1e-6
    )


def test_the_originals_unchanged_file_keeps_one_message_per_atom() -> None:
    numbers, positions = shaken("H2")  # where each atom has but one
    assert energy_of_graph(graph(), numbers, positions) == pytest.approx(
        float(energy(parameters(), numbers, positions)), rel=1e-6
    )
    numbers, positions = shaken("C6H6")
    lost = energy_of_graph(graph(), numbers, positions) - float(
        energy(parameters(), numbers, positions)
    )
    assert lost > 10.0


@pytest.mark.parametrize("name", SPREADS)
def test_energy_depends_on_the_orientation_as_documented(name: str) -> None:
    atoms = molecule(name)
    numbers, positions = torch.tensor(atoms.numbers), torch.tensor(atoms.positions)
    found = []
    for seed in range(50):
        generator = torch.Generator().manual_seed(seed)
        q = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=generator))[0]
        turned = positions @ (q * torch.linalg.det(q).sign())
        found.append(float(energy(parameters(), numbers, turned)))
    least, most = SPREADS[name]
    assert least < max(found) - min(found) < most


def test_symmetric_methane_has_a_force_on_carbon() -> None:
    atoms = molecule("CH4")
    numbers, positions = torch.tensor(atoms.numbers), torch.tensor(atoms.positions)
    pushes = []
    for seed in range(50):
        generator = torch.Generator().manual_seed(seed)
        q = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=generator))[0]
        forces = energy_forces(parameters(), numbers, positions @ q)[1]
        pushes.append(float(forces[0].norm()))
    assert max(pushes) > 1.0  # eV/Å; by symmetry it must be zero


@pytest.mark.parametrize("pair", JUMPS)
def test_energy_jumps_at_the_cutoff_as_documented(
    pair: tuple[int, int],
) -> None:
    inside, outside = (
        energy(
            parameters(),
            torch.tensor(pair),
            torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, d]], dtype=torch.float64),
        )
        for d in (5.0 - 1e-6, 5.0 + 1e-6)
    )
    assert float(inside - outside) == pytest.approx(JUMPS[pair], abs=1e-3)
