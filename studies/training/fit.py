"""Training: batches, loss, Adam, and a checkpoint after every epoch."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import torch
from torch.nn.functional import huber_loss

from ivhl.mlff.batch import batch_energies_forces_one_graph
from ivhl.mlff.painn import N_INTERACTIONS, Parameters, make_parameters
from ivhl.records.files import replaced_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from studies.training.dataset import Array, Labelled

    StepLoss = Callable[..., torch.Tensor]

# Molecules are padded to one of these lengths. Each compiles to a graph, which takes a minute.
LENGTHS: Final = (4, 6, 9, 12)
# Errors are divided by these scales. Below 1 the loss is quadratic, above it linear, so that the few
# frames with forces of 20 eV/Å do not dominate.
ENERGY_SCALE: Final = 0.01  # eV per atom
FORCE_SCALE: Final = 0.1  # eV/Å
LARGEST_GRADIENT: Final = 10.0  # norm; a longer one is shortened


@dataclass(frozen=True, kw_only=True, slots=True)
class Hyperparameters:
    """Settings of a training run.

    Attributes:
        seed: Seed of the initial weights and of the order of frames.
        n_epochs: Number of times that each frame is used.
        batch_size: Molecules per step.
        learning_rate: Largest learning rate. It rises over the first hundredth of the steps, then
            falls to zero as a cosine.
        ema_decay: The result is a running mean of the trained weights over about
            ``1 / (1 - ema_decay)`` steps.
    """

    seed: int
    n_epochs: int
    batch_size: int
    learning_rate: float
    ema_decay: float


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Group:
    """Frames of one length, padded.

    Attributes:
        numbers: Shape ``[n_frames, n_atoms]``, int64, 0 where there is no atom.
        positions: Shape ``[n_frames, n_atoms, 3]``, in Å.
        energies: Shape ``[n_frames]``, in eV, without reference energies.
        forces: Shape ``[n_frames, n_atoms, 3]``, in eV/Å.
    """

    numbers: torch.Tensor
    positions: torch.Tensor
    energies: torch.Tensor
    forces: torch.Tensor

    def take(self, places: torch.Tensor, size: int) -> tuple[torch.Tensor, ...]:
        """Return some frames, padded to ``size`` with frames without atoms."""
        missing = size - len(places)
        fields = (self.numbers, self.positions, self.energies, self.forces)
        return tuple(torch.cat((x[places], x.new_zeros(missing, *x.shape[1:]))) for x in fields)


def make_groups(
    frames: Sequence[Labelled], reference_energies: Array, dtype: torch.dtype = torch.float32
) -> list[Group]:
    """Group frames by length, and pad them.

    Args:
        frames: Frames of molecules with at most 12 atoms.
        reference_energies: Shape ``[n_elements + 1]``, in eV; subtracted in float64.
        dtype: Dtype of positions and labels.

    Raises:
        ValueError: If a molecule has more atoms.
    """
    by_length: dict[int, list[Labelled]] = {}
    for molecule in frames:
        n_atoms = len(molecule.numbers)
        length = next((n for n in LENGTHS if n >= n_atoms), None)
        if length is None:
            raise ValueError(
                f"a molecule must have at most {LENGTHS[-1]} atoms, got {molecule.name} "
                f"with {n_atoms}"
            )
        by_length.setdefault(length, []).append(molecule)
    groups = []
    for length, molecules in sorted(by_length.items()):
        n_frames = sum(len(m.energies) for m in molecules)
        group = Group(
            numbers=torch.zeros(n_frames, length, dtype=torch.int64),
            positions=torch.zeros(n_frames, length, 3, dtype=dtype),
            energies=torch.zeros(n_frames, dtype=dtype),
            forces=torch.zeros(n_frames, length, 3, dtype=dtype),
        )
        first = 0
        for m in molecules:
            these, n = slice(first, first + len(m.energies)), len(m.numbers)
            centred = m.positions - m.positions.mean(axis=1, keepdims=True)
            group.numbers[these, :n] = torch.from_numpy(m.numbers)
            group.positions[these, :n] = torch.from_numpy(centred).to(dtype)
            bound = m.energies - reference_energies[m.numbers].sum()
            group.energies[these] = torch.from_numpy(bound).to(dtype)
            group.forces[these, :n] = torch.from_numpy(m.forces).to(dtype)
            first += len(m.energies)
        groups.append(group)
    return groups


def loss(
    leaves: list[torch.Tensor],
    numbers: torch.Tensor,
    positions: torch.Tensor,
    energies: torch.Tensor,
    forces: torch.Tensor,
) -> torch.Tensor:
    """Return the mean Huber loss of energies per atom plus that of forces, each in its scale.

    Args:
        leaves: Weights, in the order of ``leaves_of``.
        numbers: Shape ``[n_molecules, n_atoms]``, int64; 0 is no atom. A molecule without atoms
            is ignored.
        positions: Shape ``[n_molecules, n_atoms, 3]``, in Å.
        energies: Shape ``[n_molecules]``, in eV.
        forces: Shape ``[n_molecules, n_atoms, 3]``, in eV/Å, 0 where there is no atom.

    Returns:
        A tensor without axes, which can be differentiated by the weights.
    """
    found_energies, found_forces = batch_energies_forces_one_graph(
        nest_of(leaves), numbers, positions
    )
    n_atoms = (numbers != 0).sum(dim=1)
    per_atom = ENERGY_SCALE * n_atoms.clamp(min=1)
    of_energies = huber_loss(found_energies / per_atom, energies / per_atom, reduction="sum")
    of_forces = huber_loss(found_forces / FORCE_SCALE, forces / FORCE_SCALE, reduction="sum")
    return of_energies / (n_atoms != 0).sum() + of_forces / (3 * n_atoms.sum())


def leaves_of(parameters: Parameters) -> list[torch.Tensor]:
    """Return the weights as a list, sorted by name, those of the layers first."""
    layers = parameters["layers"]
    outside = [name for name in sorted(parameters) if name != "layers"]
    return [layer[name] for layer in layers for name in sorted(layer)] + [
        parameters[name] for name in outside
    ]


def nest_of(leaves: Sequence[torch.Tensor]) -> Parameters:
    """Return the weights from a list; the inverse of ``leaves_of``."""
    taken = iter(leaves)
    layers = [{name: next(taken) for name in LAYER_NAMES} for _ in range(N_INTERACTIONS)]
    return {"layers": layers, **{name: next(taken) for name in OUTSIDE_NAMES}}


_ANY = make_parameters(torch.Generator().manual_seed(0))
LAYER_NAMES: Final = tuple(sorted(_ANY["layers"][0]))
OUTSIDE_NAMES: Final = tuple(sorted(name for name in _ANY if name != "layers"))


def first_weights(seed: int, elements: set[int]) -> list[torch.Tensor]:
    """Draw initial weights, float32; those of elements without data are zero."""
    parameters = make_parameters(torch.Generator().manual_seed(seed))
    seen = torch.zeros(len(parameters["embedding"]), 1, dtype=torch.bool)
    seen[sorted(elements)] = True
    parameters["embedding"] = parameters["embedding"] * seen
    return [leaf.float().requires_grad_() for leaf in leaves_of(parameters)]


def rate_at(step: int, n_steps: int, largest: float) -> float:
    """Return the learning rate of a step: linear warm-up, then cosine decay."""
    n_up = max(1, n_steps // 100)
    if step < n_up:
        return largest * (step + 1) / n_up
    return largest * 0.5 * (1.0 + math.cos(math.pi * (step - n_up) / max(1, n_steps - n_up)))


def order_of(
    groups: Sequence[Group], recipe: Hyperparameters, epoch: int
) -> list[tuple[int, torch.Tensor]]:
    """Return the batches of an epoch in order, each as the index of a group and of its frames.

    The order depends only on the seed and the epoch, so that a run can resume after any epoch.
    """
    generator = torch.Generator().manual_seed(recipe.seed * 1_000_003 + epoch)
    batches = [
        (place, chosen)
        for place, group in enumerate(groups)
        for chosen in torch.randperm(len(group.energies), generator=generator).split(
            recipe.batch_size
        )
    ]
    return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]


def train(
    groups: Sequence[Group],
    recipe: Hyperparameters,
    *,
    checkpoint: Path,
    step_loss: StepLoss = loss,
    after_epoch: Callable[[int, Parameters], None] = lambda _epoch, _parameters: None,
) -> Parameters:
    """Train, from the start or from a checkpoint.

    Args:
        groups: Frames for training.
        recipe: Settings of the training.
        checkpoint: File that is written after each epoch, and read at the start if it exists.
        step_loss: ``loss``, eager or compiled.
        after_epoch: Called with the number of finished epochs and the running mean of the weights.

    Returns:
        The running mean of the weights after the last epoch, float32.

    Raises:
        ValueError: If the checkpoint has another recipe.
    """
    elements = {int(z) for group in groups for z in group.numbers.unique() if z}
    leaves = first_weights(recipe.seed, elements)
    mean = [leaf.detach().clone() for leaf in leaves]
    optimiser = torch.optim.Adam(leaves, lr=recipe.learning_rate, fused=True)
    epoch = 0
    if checkpoint.is_file():
        state = torch.load(checkpoint, weights_only=True)
        if state["recipe"] != asdict(recipe):
            raise ValueError(
                f"{checkpoint} must have the recipe {asdict(recipe)}, got {state['recipe']}: "
                "delete it to start again"
            )
        epoch = state["epoch"]
        for leaf, saved in zip(leaves, state["leaves"], strict=True):
            leaf.data.copy_(saved)
        mean = state["mean"]
        optimiser.load_state_dict(state["optimiser"])
    n_batches = len(order_of(groups, recipe, 0))
    n_steps = n_batches * recipe.n_epochs
    while epoch < recipe.n_epochs:
        began, total = time.monotonic(), 0.0
        for number, (place, chosen) in enumerate(order_of(groups, recipe, epoch)):
            step = epoch * n_batches + number
            for settings in optimiser.param_groups:
                settings["lr"] = rate_at(step, n_steps, recipe.learning_rate)
            value = step_loss(leaves, *groups[place].take(chosen, recipe.batch_size))
            optimiser.zero_grad()
            value.backward()
            torch.nn.utils.clip_grad_norm_(leaves, LARGEST_GRADIENT)
            optimiser.step()
            # Early weights are poor, so the mean covers few steps at first.
            decay = min(recipe.ema_decay, (1.0 + step) / (10.0 + step))
            with torch.no_grad():
                for kept, leaf in zip(mean, leaves, strict=True):
                    kept.lerp_(leaf, 1.0 - decay)
            total += float(value.detach())
        epoch += 1
        state = {
            "recipe": asdict(recipe),
            "epoch": epoch,
            "leaves": [leaf.detach() for leaf in leaves],
            "mean": mean,
            "optimiser": optimiser.state_dict(),
        }
        with replaced_whole(checkpoint) as unfinished:
            torch.save(state, unfinished)
        seconds = time.monotonic() - began
        print(f"epoch {epoch}/{recipe.n_epochs}  loss {total / n_batches:.4f}  {seconds:.1f} s")
        after_epoch(epoch, nest_of(mean))
    return nest_of(mean)
