"""Invalid atoms are refused by index before anything is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is only in the cells")
import torch

from ivhl.mlff.atoms import MIN_DISTANCE, check_atoms
from ivhl.mlff.batch import pad_molecules
from ivhl.mlff.edges import join_molecules
from ivhl.mlff.weights import load_painn

if TYPE_CHECKING:
    from collections.abc import Callable

    Molecules = list[tuple[torch.Tensor, torch.Tensor]]

pytestmark = pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning")

WATER = torch.tensor([[0.0, 0.0, 0.0], [0.96, 0.0, 0.0], [-0.24, 0.93, 0.0]])
NAN, INF = float("nan"), float("inf")

BAD = {
    "empty": ([], [], "positions must hold at least one atom, got none"),
    "no element": (
        [8, 0],
        WATER[:2],
        r"atoms\[1\]: atomic number must be in \[1, 100\], got 0",
    ),
    "negative": ([-1], WATER[:1], r"atoms\[0\]: atomic number .* got -1"),
    "too heavy": ([8, 101], WATER[:2], r"atoms\[1\]: atomic number .* got 101"),
    "NaN": (
        [8, 1],
        [[0.0, 0.0, 0.0], [NAN, 0.0, 1.0]],
        r"atoms\[1\] must have a finite position, got \[nan, 0.0, 1.0\]",
    ),
    "infinite": ([8, 1], [[0.0, 0.0, 0.0], [0.0, INF, 0.0]], r"atoms\[1\] must have a finite"),
    "overlap": (
        [8, 1, 1],
        [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0005]],
        r"atoms\[1\] and .*atoms\[2\] must be at least 0.001 Å apart, got 0.0005 Å",
    ),
    "shape": ([8], WATER, r"atomic_numbers must have shape \[3\], one per position, got \[1\]"),
}
bad = pytest.mark.parametrize(("numbers", "positions", "message"), BAD.values(), ids=BAD)


def tensors(numbers: list[int], positions: object) -> tuple[torch.Tensor, torch.Tensor]:
    given = torch.as_tensor(positions, dtype=torch.float32).reshape(-1, 3)
    return torch.tensor(numbers, dtype=torch.int64), given


@bad
def test_what_is_no_molecule_is_named(numbers: list[int], positions: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_atoms(*tensors(numbers, positions))


@bad
@pytest.mark.parametrize("make", [pad_molecules, join_molecules])
def test_in_a_batch_it_is_named_with_its_place(
    make: Callable[[Molecules], object], numbers: list[int], positions: object, message: str
) -> None:
    right = (torch.tensor([8, 1, 1]), WATER)
    with pytest.raises(ValueError, match=rf"molecules\[1\](: |\.){message}"):
        make([right, tensors(numbers, positions)])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_what_is_a_molecule_passes(dtype: torch.dtype) -> None:
    check_atoms(torch.tensor([8, 1, 1]), WATER.to(dtype))
    check_atoms(torch.tensor([100]), WATER[:1].to(dtype).requires_grad_())


def test_weights_know_their_elements() -> None:
    weights = load_painn(device="cpu")
    check_atoms(torch.tensor([8, 1, 1]), WATER, parameters=weights)
    with pytest.raises(ValueError, match=r"atoms\[2\]: .* must be one of 1, 6, 7, 8, got 26"):
        check_atoms(torch.tensor([8, 1, 26]), WATER, parameters=weights)


@settings(deadline=None)
@given(
    distance=st.floats(0.0, 3.0 * MIN_DISTANCE),
    places=st.lists(st.integers(0, 5), min_size=2, max_size=2, unique=True),
)
def test_any_two_atoms_may_be_the_ones_that_are_too_near(
    distance: float, places: list[int]
) -> None:
    positions = 2.0 * torch.arange(6).double()[:, None] * torch.ones(3).double()
    first, second = sorted(places)
    positions[second] = positions[first] + torch.tensor([0.0, distance, 0.0]).double()
    real = float((positions[second] - positions[first]).norm())
    if real >= MIN_DISTANCE:
        check_atoms(torch.ones(6, dtype=torch.int64), positions)
        return
    with pytest.raises(ValueError, match=rf"atoms\[{first}\] and atoms\[{second}\]"):
        check_atoms(torch.ones(6, dtype=torch.int64), positions)
