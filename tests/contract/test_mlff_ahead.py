"""What AOTInductor made of the model is the model, for all weights, and is found again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from ivhl.compile import CACHE_VARIABLE
from ivhl.mlff import ahead
from ivhl.mlff.batch import batch_energies_forces
from ivhl.mlff.painn import make_parameters
from ivhl.mlff.parameters import join_parameters

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*(Failed to initialize NumPy|is deprecated|FakeTensor|copy, and deepcopy)"
)

LENGTH = 4
WATER = torch.tensor([[8, 1, 1, 0]])
AMMONIUM = torch.tensor([[1, 7, 1, 1]])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give an empty cache folder of the user's own, and forget what was made in it."""
    with pytest.MonkeyPatch.context() as patch:
        own = tmp_path_factory.mktemp("inductor")
        patch.setenv(CACHE_VARIABLE, str(own))
        ahead._compile.cache_clear()
        yield own
        ahead._compile.cache_clear()


def check(run: ahead.Run) -> None:
    for seed, numbers in enumerate((WATER, AMMONIUM, WATER)):
        weights = make_parameters(torch.Generator().manual_seed(seed))
        random = torch.Generator().manual_seed(seed)
        positions = torch.randn(1, LENGTH, 3, dtype=torch.float64, generator=random)
        energy, forces = run(join_parameters(weights), numbers, positions)
        expected = batch_energies_forces(weights, numbers, positions)
        assert energy.shape == (1,)
        assert abs(float(energy - expected[0])) <= 1e-12 * max(1.0, abs(float(expected[0])))
        error = (forces - expected[1]).abs().max()
        assert float(error) <= 1e-12 * float(expected[1].abs().max())


def test_it_is_the_model_and_is_found_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(ahead.compile_ahead(LENGTH, dtype=torch.float64))
    (made,) = (folder / "ahead").iterdir()
    whole = made.read_bytes()
    exports = []

    def export(path: Path, *_: object) -> None:
        exports.append(path)
        path.write_bytes(whole)

    # Another process: nothing in memory, and no compiler called
    monkeypatch.setattr(ahead, "_export", export)
    ahead._compile.cache_clear()
    check(ahead.compile_ahead(LENGTH, dtype=torch.float64))
    assert exports == []
    # A file that was cut short is made anew
    made.unlink()  # not written over: this process has it loaded
    made.write_bytes(whole[:1000])
    ahead._compile.cache_clear()
    check(ahead.compile_ahead(LENGTH, dtype=torch.float64))
    assert exports == [made]
    # Another length, dtype or number of threads is another file
    threads = torch.get_num_threads()
    places = {
        ahead._place(LENGTH, torch.float64, torch.device("cpu"), threads),
        ahead._place(LENGTH + 1, torch.float64, torch.device("cpu"), threads),
        ahead._place(LENGTH, torch.float32, torch.device("cpu"), threads),
        ahead._place(LENGTH, torch.float64, torch.device("cpu"), threads + 1),
    }
    assert made in places
    assert len(places) == 4


def test_lengths_and_dtypes_that_make_no_sense_are_named() -> None:
    with pytest.raises(ValueError, match="n_atoms must be at least 1, got 0"):
        ahead.compile_ahead(0)
    with pytest.raises(ValueError, match=r"got torch\.int64"):
        ahead.compile_ahead(2, dtype=torch.int64)
