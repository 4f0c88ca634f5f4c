"""The gradient of the loss is correct, and training is reproducible, also if resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch", reason="torch is only in the cells")
pytest.importorskip("numpy", reason="NumPy is where weights are made, and in the tests")
import numpy as np
import torch

from ivhl.mlff.batch import batch_energies_forces
from ivhl.mlff.painn import MAX_ATOMIC_NUMBER, make_parameters
from studies.training.dataset import Labelled, generator_of
from studies.training.fit import (
    ENERGY_SCALE,
    FORCE_SCALE,
    Group,
    Hyperparameters,
    leaves_of,
    loss,
    make_groups,
    nest_of,
    order_of,
    rate_at,
    train,
)

if TYPE_CHECKING:
    from pathlib import Path

# torch.func issues the last two once per process, in the first test that uses it.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:FutureWarning"),
]

RECIPE = Hyperparameters(seed=3, n_epochs=3, batch_size=4, learning_rate=1e-3, ema_decay=0.9)
REFERENCE = np.array([0.0, -13.0, *[np.nan] * 4, -58.0, np.nan, -110.0])


def make_frames(name: str, numbers: list[int], n_frames: int) -> Labelled:
    """Return frames of a molecule with springs between all atoms."""
    generator = generator_of(11, name)
    at_rest = 1.2 * np.arange(len(numbers))[:, None] * np.array([[1.0, 0.3, 0.1]])
    shift = 0.1 * generator.standard_normal((n_frames, len(numbers), 3))
    return Labelled(
        name=name,
        numbers=np.array(numbers),
        positions=at_rest + shift,
        energies=REFERENCE[numbers].sum() + 5.0 * np.square(shift).sum(axis=(1, 2)),
        forces=-10.0 * shift,
        families=np.zeros(n_frames, dtype=np.int64),
        trajectories=np.zeros(n_frames, dtype=np.int64),
        n_dropped=0,
    )


def make_all(dtype: torch.dtype = torch.float32) -> list[Group]:
    molecules = [("H2O", [8, 1, 1]), ("CO", [6, 8]), ("CH4", [6, 1, 1, 1, 1])]
    return make_groups([make_frames(*m, 5) for m in molecules], REFERENCE, dtype)


def fields_of(group: Group) -> tuple[torch.Tensor, ...]:
    return group.numbers, group.positions, group.energies, group.forces


def weights() -> list[torch.Tensor]:
    return leaves_of(make_parameters(torch.Generator().manual_seed(0)))


def test_groups_subtract_reference_energies_and_pad_with_no_atoms() -> None:
    short, long = make_all(torch.float64)
    assert short.numbers.shape == (10, 4)
    assert long.numbers.shape == (5, 6)
    assert short.numbers[0].tolist() == [8, 1, 1, 0]
    frames = make_frames("H2O", [8, 1, 1], 5)
    expected = torch.from_numpy(frames.energies - (REFERENCE[8] + 2.0 * REFERENCE[1]))
    torch.testing.assert_close(short.energies[:5], expected)
    torch.testing.assert_close(short.forces[:5, :3], torch.from_numpy(frames.forces))
    assert float(short.forces[:5, 3].abs().max()) == 0.0
    bonds = short.positions[:5, 1] - short.positions[:5, 0]
    torch.testing.assert_close(
        bonds, torch.from_numpy(frames.positions[:, 1] - frames.positions[:, 0])
    )


def test_a_molecule_with_too_many_atoms_is_named() -> None:
    frames = make_frames("chain", [6] * 13, 1)
    with pytest.raises(ValueError, match="at most 12 atoms, got chain with 13"):
        make_groups([frames], REFERENCE)


def test_weights_survive_conversion_to_a_list() -> None:
    parameters = make_parameters(torch.Generator().manual_seed(0))
    back = nest_of(leaves_of(parameters))
    assert back.keys() == parameters.keys()
    for mine, other in zip(back["layers"], parameters["layers"], strict=True):
        assert mine.keys() == other.keys()
        assert all(mine[name] is other[name] for name in other)
    assert all(back[name] is parameters[name] for name in parameters if name != "layers")


def test_the_gradient_of_the_loss_is_correct() -> None:
    leaves = [leaf.requires_grad_() for leaf in weights()]
    batch = fields_of(make_all(torch.float64)[1])
    gradient = torch.autograd.grad(loss(leaves, *batch), leaves)
    generator = torch.Generator().manual_seed(1)
    for k in (0, 3, 7, len(leaves) - 1, len(leaves) - 5):
        along = torch.randn(leaves[k].shape, dtype=torch.float64, generator=generator)

        def at(step: float, k: int = k, along: torch.Tensor = along) -> float:
            moved = [x + step * along if i == k else x for i, x in enumerate(leaves)]
            return float(loss(moved, *batch).detach())

        h = 1e-5
        expected = (8.0 * (at(h) - at(-h)) - at(2.0 * h) + at(-2.0 * h)) / (12.0 * h)
        assert abs(expected) > 1e-6
        assert float((gradient[k] * along).sum()) == pytest.approx(expected, rel=1e-6)


def test_loss_is_zero_for_the_models_own_labels_and_known_for_others() -> None:
    numbers, positions, _, _ = fields_of(make_all(torch.float64)[0])
    energies, forces = batch_energies_forces(nest_of(weights()), numbers, positions)
    assert float(loss(weights(), numbers, positions, energies, forces)) < 1e-20
    # An error of half a scale is in the quadratic part, 0.5 * 0.5²; 3 scales are in the linear.
    n_atoms = (numbers != 0).sum(dim=1)
    off = energies + 0.5 * ENERGY_SCALE * n_atoms
    assert float(loss(weights(), numbers, positions, off, forces)) == pytest.approx(0.125)
    real = (numbers != 0)[..., None]
    pushed = forces + 3.0 * FORCE_SCALE * real
    assert float(loss(weights(), numbers, positions, energies, pushed)) == pytest.approx(2.5)


def test_molecules_without_atoms_do_not_change_the_loss() -> None:
    group = make_all(torch.float64)[0]
    places = torch.arange(3)
    filled = group.take(places, 8)
    assert [x.shape[0] for x in filled] == [8] * 4
    alone = loss(weights(), *group.take(places, 3))
    torch.testing.assert_close(loss(weights(), *filled), alone)


def test_an_epoch_uses_each_frame_once_and_epochs_differ() -> None:
    groups = make_all()
    orders = [order_of(groups, RECIPE, epoch) for epoch in (0, 1)]
    for order in orders:
        for place, group in enumerate(groups):
            seen = torch.cat([chosen for where, chosen in order if where == place])
            assert sorted(seen.tolist()) == list(range(len(group.energies)))
        assert max(len(chosen) for _, chosen in order) == RECIPE.batch_size
    texts = [str(order) for order in orders]
    assert texts[0] != texts[1]
    assert texts[0] == str(order_of(groups, RECIPE, 0))


def test_learning_rate_rises_and_falls() -> None:
    rates = [rate_at(step, 1000, 2.0) for step in range(1000)]
    assert rates[0] == pytest.approx(0.2)
    assert max(rates) == rates[9] == rates[10] == 2.0
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[505] == pytest.approx(1.0)
    assert 0.0 < rates[-1] < 1e-4


def test_training_is_deterministic_and_can_be_resumed(tmp_path: Path) -> None:
    first = train(make_all(), RECIPE, checkpoint=tmp_path / "first.pt")
    second = train(make_all(), RECIPE, checkpoint=tmp_path / "second.pt")

    def stop(epoch: int, _: Any) -> None:  # noqa: ANN401  (weights)
        if epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(make_all(), RECIPE, checkpoint=tmp_path / "third.pt", after_epoch=stop)
    epochs: list[int] = []
    third = train(
        make_all(),
        RECIPE,
        checkpoint=tmp_path / "third.pt",
        after_epoch=lambda epoch, _: epochs.append(epoch),
    )
    assert epochs == [3]
    for a, b, c in zip(leaves_of(first), leaves_of(second), leaves_of(third), strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)
    assert not any(leaf.requires_grad for leaf in leaves_of(first))


def test_a_checkpoint_of_another_recipe_is_refused(tmp_path: Path) -> None:
    train(make_all(), RECIPE, checkpoint=tmp_path / "c.pt")
    other = Hyperparameters(seed=4, n_epochs=3, batch_size=4, learning_rate=1e-3, ema_decay=0.9)
    with pytest.raises(ValueError, match=r"c\.pt must have the recipe .*'seed': 4.* got .*3"):
        train(make_all(), other, checkpoint=tmp_path / "c.pt")


@pytest.mark.full
def test_training_reduces_errors_and_leaves_missing_elements_zero(
    tmp_path: Path,
) -> None:
    recipe = Hyperparameters(seed=3, n_epochs=30, batch_size=4, learning_rate=3e-3, ema_decay=0.9)
    groups = make_all()
    after: list[float] = []

    def watch(_: int, parameters: Any) -> None:  # noqa: ANN401  (weights)
        values = [loss(leaves_of(parameters), *fields_of(g)) for g in groups]
        after.append(float(sum(values)))

    parameters = train(groups, recipe, checkpoint=tmp_path / "c.pt", after_epoch=watch)
    assert after[-1] < 0.3 * after[0]
    strange = [z for z in range(MAX_ATOMIC_NUMBER + 1) if z not in {1, 6, 8}]
    assert float(parameters["embedding"][strange].abs().max()) == 0.0
    assert float(parameters["embedding"][[1, 6, 8]].abs().min()) > 0.0
