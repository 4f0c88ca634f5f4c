"""A small training run is reproducible, also if it is stopped and resumed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("tblite", reason="tblite and ase are only in envs/train/")
import numpy as np
import torch

from ivhl.mlff.batch import batch_energies_forces
from ivhl.mlff.parameters import add_reference_energies
from ivhl.mlff.weights import load_painn
from studies.training import __main__ as command
from studies.training.__main__ import CARD, SAMPLES, WEIGHTS, main
from studies.training.card import BEGIN, END
from studies.training.dataset import load_labelled
from studies.training.fit import leaves_of, train

if TYPE_CHECKING:
    from pathlib import Path

# ase sets shapes in a way that NumPy 2.5 deprecates.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Setting the shape on a NumPy array:DeprecationWarning"
)

ARGUMENTS = ["--quick", "--eager", "--seed", "7"]


def run(cache: Path) -> Path:
    """Run in a folder, and return the checkout that it wrote."""
    assert main([*ARGUMENTS, "--cache", str(cache)]) == 0
    return cache / "quick"


def assert_same_weights(a: Path, b: Path) -> None:
    mine, others = (load_painn(path / WEIGHTS) for path in (a, b))
    for x, y in zip(leaves_of(mine), leaves_of(others), strict=True):
        assert torch.equal(x.nan_to_num(), y.nan_to_num())


def test_the_same_command_makes_the_same_labels_weights_and_card(tmp_path: Path) -> None:
    first, second = run(tmp_path / "a"), run(tmp_path / "b")
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.npz"))
    assert [path.stem for path in files] == ["CO", "CO2", "H2", "H2O", "N2"]
    for file in files:
        a, b = (load_labelled(tmp_path / side / file) for side in ("a", "b"))
        assert np.array_equal(a.positions, b.positions)
        assert np.array_equal(a.energies, b.energies)
        assert np.array_equal(a.forces, b.forces)
    assert_same_weights(first, second)
    cards = [(side / CARD).read_text(encoding="utf-8") for side in (first, second)]
    assert cards[0] == cards[1]
    assert str(tmp_path) not in cards[0]
    assert "`nox -s train-mlff -- --seed 7 --quick --eager`" in cards[0]
    assert cards[0].startswith(BEGIN)
    assert END in cards[0]
    assert "| CO2 | 24 |" in cards[0]


def test_a_resumed_run_gives_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(tmp_path / "a")

    def stopped(*arguments: object, **named: object) -> object:
        def stop(epoch: int, _: object) -> None:
            if epoch == 1:
                raise KeyboardInterrupt

        return train(*arguments, **{**named, "after_epoch": stop})  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(command, "train", stopped)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "b")
    assert not (tmp_path / "b" / "quick").exists()
    assert_same_weights(whole, run(tmp_path / "b"))


def test_energies_with_references_are_near_the_labels(tmp_path: Path) -> None:
    out = run(tmp_path / "a")
    parameters = load_painn(out / WEIGHTS, dtype=torch.float64)
    samples = json.loads((out / SAMPLES).read_text(encoding="utf-8"))
    assert [m["molecule"] for m in samples] == ["H2", "H2O", "N2", "CO"]
    for m in samples:
        numbers = torch.tensor([m["numbers"]] * len(m["energies"]))
        positions = torch.tensor(m["positions"], dtype=torch.float64)
        bound, _ = batch_energies_forces(parameters, numbers, positions)
        energies = add_reference_energies(parameters, numbers, bound)
        # Almost all of the hundreds of eV come from the elements.
        assert float((energies - torch.tensor(m["energies"])).abs().max()) < 30.0
