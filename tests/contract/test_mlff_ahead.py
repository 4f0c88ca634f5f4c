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

    def export(*_: object) -> Path:
        exports.append(made.name)
        made.write_bytes(whole)
        return made

    # Another process: nothing in memory, and no compiler called
    monkeypatch.setattr(ahead, "_export", export)
    ahead._compile.cache_clear()
    check(ahead.compile_ahead(LENGTH, dtype=torch.float64))
    assert exports == []
    # A file that was cut short is not loaded, which would end the process, but made anew
    made.unlink()  # not written over: this process has it loaded
    made.write_bytes(whole[:-1])
    ahead._compile.cache_clear()
    check(ahead.compile_ahead(LENGTH, dtype=torch.float64))
    assert exports == [made.name]


def test_another_length_dtype_or_number_of_threads_is_another_file() -> None:
    cpu = torch.device("cpu")
    keys = [
        ahead._key(4, torch.float64, cpu, 1),
        ahead._key(5, torch.float64, cpu, 1),
        ahead._key(4, torch.float32, cpu, 1),
        ahead._key(4, torch.float64, cpu, 2),
    ]
    assert len(set(keys)) == len(keys)


def test_lengths_and_dtypes_that_make_no_sense_are_named() -> None:
    with pytest.raises(ValueError, match="n_atoms must be at least 1, got 0"):
        ahead.compile_ahead(0)
    with pytest.raises(ValueError, match=r"got torch\.int64"):
        ahead.compile_ahead(2, dtype=torch.int64)
