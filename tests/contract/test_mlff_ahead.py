"""What AOTInductor made of the model is the model, for all weights, and is found again."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
import torch
from torch._inductor.utils import clear_inductor_caches

from ivhl.compile import CACHE_VARIABLE
from ivhl.mlff import ahead
from ivhl.mlff.batch import batch_energies_forces
from ivhl.mlff.painn import make_parameters
from ivhl.mlff.parameters import join_parameters, separate_parameters

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
        clear_inductor_caches()
        yield own
        ahead._compile.cache_clear()
        clear_inductor_caches()  # what is compiled elsewhere must not include files of this folder


def make_inputs(seed: int, numbers: torch.Tensor) -> tuple[torch.Tensor, ...]:
    random = torch.Generator().manual_seed(seed)
    weights = make_parameters(random)
    positions = torch.randn(1, LENGTH, 3, dtype=torch.float64, generator=random)
    return join_parameters(weights).float(), numbers, positions.float()


def check(run: ahead.Run, inputs: tuple[torch.Tensor, ...]) -> None:
    weights, numbers, positions = inputs
    energy, forces = run(weights, numbers, positions)
    exact = separate_parameters(weights.double())
    expected = batch_energies_forces(exact, numbers, positions.double())
    assert energy.shape == (1,)
    assert abs(float(energy - expected[0])) <= 1e-5 * max(1.0, abs(float(expected[0])))
    error = (forces - expected[1]).abs().max()
    assert float(error) <= 2e-5 * float(expected[1].abs().max())


@pytest.mark.full
def test_it_is_the_model_and_is_found_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [make_inputs(seed, n) for seed, n in enumerate((WATER, AMMONIUM, WATER))]
    # What holds around the call that compiles stays out of what is compiled
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        torch.inference_mode(),
        torch.device("meta"),
    ):
        run = ahead.compile_ahead(LENGTH, device="cpu")
    for inputs in cases:
        check(run, inputs)
    # Who has a function does not wait while another thread compiles
    with ahead._compiling:
        having = threading.Thread(target=ahead.compile_ahead, args=(LENGTH,), daemon=True)
        having.start()
        having.join(timeout=30.0)
        assert not having.is_alive()
    # Views whose numbers are not side by side
    weights, numbers, positions = cases[0]
    strided = numbers.repeat_interleave(2, dim=1)[:, ::2]
    turned = positions.transpose(1, 2).contiguous().transpose(1, 2)
    assert not strided.is_contiguous()
    assert not turned.is_contiguous()
    check(run, (weights, strided, turned))
    for wrong, message in (
        ((weights.double(), numbers, positions), r"weights must .*float32 on cpu, .*float64"),
        ((weights, numbers.int(), positions), r"atomic_numbers must .*int64 on cpu, .*int32"),
        ((weights, numbers, positions[0]), r"positions must have shape \[1, 4, 3\].*\[4, 3\]"),
    ):
        with pytest.raises(ValueError, match=message):
            run(*wrong)

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
    check(ahead.compile_ahead(LENGTH), cases[0])
    assert exports == []
    # A file that was cut short is not loaded, which would end the process, but made anew
    made.unlink()  # not written over: this process has it loaded
    made.write_bytes(whole[:-1])
    ahead._compile.cache_clear()
    check(ahead.compile_ahead(LENGTH), cases[0])
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
