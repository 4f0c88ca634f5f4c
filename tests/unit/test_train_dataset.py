"""Frames keep their labels, parts share no trajectory, and dynamics has the right temperature."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("numpy", reason="NumPy is where weights are made, and in the tests")
import numpy as np

from studies.training import dataset
from studies.training.dataset import (
    Labelled,
    SamplingPlan,
    fit_reference_energies,
    generator_of,
    load_labelled,
    load_or_make,
    part_of,
    select_part,
    write_labelled,
)
from studies.training.dynamics import BOLTZMANN, run_langevin
from studies.training.subjects import FAMILIES, TRAINED, UNSEEN

if TYPE_CHECKING:
    from pathlib import Path

PLAN = SamplingPlan(
    families=FAMILIES[:2], n_trajectories=4, n_frames=3, seed=5, versions={"tblite": "0"}
)


def make_frames(name: str, numbers: list[int], n_trajectories: int = 4) -> Labelled:
    """Return two families of trajectories of three frames, with arbitrary labels."""
    generator = generator_of(3, name)
    n = 2 * n_trajectories * 3
    return Labelled(
        name=name,
        numbers=np.array(numbers),
        positions=generator.standard_normal((n, len(numbers), 3)),
        energies=generator.standard_normal(n),
        forces=generator.standard_normal((n, len(numbers), 3)),
        families=np.repeat([0, 1], n // 2),
        trajectories=np.tile(np.repeat(np.arange(n_trajectories), 3), 2),
        n_dropped=1,
    )


def assert_same(a: Labelled, b: Labelled) -> None:
    assert (a.name, a.n_dropped) == (b.name, b.n_dropped)
    for field in ("numbers", "positions", "energies", "forces", "families", "trajectories"):
        assert np.array_equal(getattr(a, field), getattr(b, field)), field


def test_no_trajectory_is_in_two_parts_and_no_frame_is_lost() -> None:
    frames = make_frames("H2O", [8, 1, 1], n_trajectories=10)
    parts = {p: select_part(frames, p, 10) for p in ("train", "validation", "held back")}
    seen = {
        name: set(zip(part.families.tolist(), part.trajectories.tolist(), strict=True))
        for name, part in parts.items()
    }
    assert {name: len(rows) for name, rows in seen.items()} == {
        "train": 16,
        "validation": 2,
        "held back": 2,
    }
    assert not seen["train"] & seen["held back"]
    assert not seen["train"] & seen["validation"]
    assert not seen["validation"] & seen["held back"]
    energies = np.concatenate([part.energies for part in parts.values()])
    assert sorted(energies) == sorted(frames.energies)


def test_each_frame_keeps_its_own_labels() -> None:
    frames = make_frames("H2O", [8, 1, 1])
    held_back = select_part(frames, "held back", 4)
    for k, energy in enumerate(held_back.energies):
        place = int(np.flatnonzero(frames.energies == energy)[0])
        assert part_of(int(frames.trajectories[place]), 4) == "held back"
        assert np.array_equal(held_back.positions[k], frames.positions[place])
        assert np.array_equal(held_back.forces[k], frames.forces[place])


def test_molecules_are_trained_on_or_unseen() -> None:
    assert {"H2", "H2O", "CH4", "C6H6"} <= set(TRAINED)
    assert len(set(TRAINED)) == len(TRAINED)
    assert not set(TRAINED) & set(UNSEEN)


def test_a_file_survives_writing_and_reading(tmp_path: Path) -> None:
    frames = make_frames("CH4", [6, 1, 1, 1, 1])
    write_labelled(tmp_path / "CH4.npz", frames)
    assert_same(load_labelled(tmp_path / "CH4.npz"), frames)
    assert [path.name for path in tmp_path.iterdir()] == ["CH4.npz"]


def test_existing_labels_are_read_and_each_plan_has_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def make(name: str, plan: SamplingPlan) -> Labelled:
        made.append((name, plan.seed))
        if len(made) == 2:
            raise KeyboardInterrupt
        return make_frames(name, [1, 1])

    monkeypatch.setattr(dataset, "make_labelled", make)
    with pytest.raises(KeyboardInterrupt):
        load_or_make(tmp_path, ["H2", "N2"], PLAN)
    found = load_or_make(tmp_path, ["H2", "N2"], PLAN)
    assert made == [("H2", 5), ("N2", 5), ("N2", 5)]
    assert_same(found[0], make_frames("H2", [1, 1]))
    changes: list[dict[str, Any]] = [{"families": FAMILIES[:1]}, {"n_frames": 4}, {"seed": 6}]
    others = [replace(PLAN, **change) for change in changes]
    assert len({plan.digest() for plan in (PLAN, *others)}) == 4
    load_or_make(tmp_path, ["H2"], others[-1])
    assert made[-1] == ("H2", 6)


def test_generators_differ_by_each_name_and_by_the_seed() -> None:
    names = [(1, "H2", "MD", 0), (2, "H2", "MD", 0), (1, "N2", "MD", 0), (1, "H2", "MD", 1)]
    draws = [generator_of(*name).standard_normal() for name in names]
    assert len(set(draws)) == len(draws)
    assert generator_of(*names[0]).standard_normal() == draws[0]


def test_reference_energies_recover_the_summands() -> None:
    of_element = {1: -13.6, 6: -1030.0, 8: -2040.0}
    molecules = [("CH4", [6, 1, 1, 1, 1]), ("H2O", [8, 1, 1]), ("CO2", [6, 8, 8])]
    frames = []
    for name, numbers in molecules:
        made = make_frames(name, numbers)
        made.energies[:] = sum(of_element[z] for z in numbers)
        frames.append(made)
    found = fit_reference_energies(frames, 100)
    assert found.shape == (101,)
    assert found[0] == 0.0
    for element, energy in of_element.items():
        assert found[element] == pytest.approx(energy, rel=1e-12)
    assert np.isnan(found).sum() == 101 - 4


def test_a_harmonic_oscillator_has_its_period() -> None:
    mass, stiffness, step = 12.0, 30.0, 0.05  # u, eV/Å², fs
    # From the definitions of the units in SI.
    in_si = stiffness * 1.602176634e-19 / 1e-20 / (mass * 1.66053906660e-27)
    period = 2.0 * math.pi / math.sqrt(in_si) * 1e15
    path = run_langevin(
        lambda x: -stiffness * x,
        np.array([[0.1, 0.0, 0.0]]),
        np.array([mass]),
        temperature=0.0,
        time_step=step,
        friction=0.0,
        generator=np.random.default_rng(0),
    )
    n_steps = round(10.0 * period / step)
    x = np.array([next(path)[0, 0] for _ in range(n_steps)])
    assert x[-1] == pytest.approx(0.1, abs=1e-4)
    assert x[round(n_steps - 0.5 * period / step) - 1] == pytest.approx(-0.1, abs=1e-4)


@pytest.mark.parametrize("friction", [0.02, 0.2])
def test_harmonic_oscillators_have_the_temperature(friction: float) -> None:
    temperature, stiffness = 900.0, 20.0
    masses = np.linspace(1.0, 16.0, 500)
    path = run_langevin(
        lambda x: -stiffness * x,
        np.zeros((500, 3)),
        masses,
        temperature=temperature,
        time_step=0.5,
        friction=friction,
        generator=np.random.default_rng(1),
    )
    frames = np.stack([next(path) for _ in range(1200)])[400:]
    expected = BOLTZMANN * temperature / stiffness  # of x², by equipartition
    assert np.square(frames).mean() == pytest.approx(expected, rel=0.03)
    # The same for light and heavy ones.
    assert np.square(frames[:, :100]).mean() == pytest.approx(expected, rel=0.06)
    assert np.square(frames[:, 400:]).mean() == pytest.approx(expected, rel=0.06)
