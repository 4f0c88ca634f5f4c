"""The amount of data and the length of training: the full job, and a small one for tests."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

from studies.training.dataset import Plan
from studies.training.fit import Recipe
from studies.training.subjects import FAMILIES, TRAINED, UNSEEN

# Raised when ``studies.training`` changes the labels that it makes from a plan.
LABELS_VERSION: Final = "1"


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """All settings of a run.

    Attributes:
        plan: Plan of the labels.
        trained: Molecules for training.
        unseen: Molecules for evaluation only.
        recipe: Settings of the training.
    """

    plan: Plan
    trained: tuple[str, ...]
    unseen: tuple[str, ...]
    recipe: Recipe


def full_job(seed: int) -> Job:
    """Return the job that makes the shipped weights."""
    return Job(
        plan=Plan(
            families=FAMILIES, n_trajectories=10, n_frames=8, seed=seed, versions=label_versions()
        ),
        trained=TRAINED,
        unseen=UNSEEN,
        recipe=Recipe(seed=seed, n_epochs=75, batch_size=16, learning_rate=1e-3, ema_decay=0.999),
    )


def quick_job(seed: int) -> Job:
    """Return a job that takes seconds; its weights are useless."""
    return Job(
        plan=Plan(
            families=(FAMILIES[0], FAMILIES[3], FAMILIES[5], FAMILIES[7]),
            n_trajectories=3,
            n_frames=2,
            seed=seed,
            versions=label_versions(),
        ),
        trained=("H2", "H2O", "N2", "CO"),
        unseen=("CO2",),
        recipe=Recipe(seed=seed, n_epochs=2, batch_size=4, learning_rate=1e-3, ema_decay=0.9),
    )


def label_versions() -> dict[str, str]:
    """Return the versions of the packages that labels depend on."""
    packages = {name: version(name) for name in ("ase", "numpy", "tblite")}
    return {"studies.training": LABELS_VERSION, **packages}
