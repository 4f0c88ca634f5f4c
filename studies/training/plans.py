"""The amount of data and the length of training: the full job, and a small one for tests."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

from studies.training.dataset import SamplingPlan
from studies.training.fit import Hyperparameters
from studies.training.subjects import FAMILIES, TRAINED, UNSEEN

# Raised when ``studies.training`` changes the labels that it makes from a plan.
LABELS_VERSION: Final = "1"


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingJob:
    """All settings of a run.

    Attributes:
        plan: How the labels are sampled.
        trained: Molecules for training.
        unseen: Molecules for evaluation only.
        recipe: Settings of the training.
    """

    plan: SamplingPlan
    trained: tuple[str, ...]
    unseen: tuple[str, ...]
    recipe: Hyperparameters


def full_job(seed: int) -> TrainingJob:
    """Return the job that makes the shipped weights."""
    return TrainingJob(
        plan=SamplingPlan(
            families=FAMILIES, n_trajectories=10, n_frames=8, seed=seed, versions=label_versions()
        ),
        trained=TRAINED,
        unseen=UNSEEN,
        recipe=Hyperparameters(
            seed=seed, n_epochs=75, batch_size=16, learning_rate=1e-3, ema_decay=0.999
        ),
    )


def quick_job(seed: int) -> TrainingJob:
    """Return a job that takes seconds; its weights are useless."""
    return TrainingJob(
        plan=SamplingPlan(
            families=(FAMILIES[0], FAMILIES[3], FAMILIES[5], FAMILIES[7]),
            n_trajectories=3,
            n_frames=2,
            seed=seed,
            versions=label_versions(),
        ),
        trained=("H2", "H2O", "N2", "CO"),
        unseen=("CO2",),
        recipe=Hyperparameters(
            seed=seed, n_epochs=2, batch_size=4, learning_rate=1e-3, ema_decay=0.9
        ),
    )


def label_versions() -> dict[str, str]:
    """Return the versions of the packages that labels depend on."""
    packages = {name: version(name) for name in ("ase", "numpy", "tblite")}
    return {"studies.training": LABELS_VERSION, **packages}
