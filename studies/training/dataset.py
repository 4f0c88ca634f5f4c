"""Make, store and split labelled geometries.

Each molecule has one file in the folder of the labels. Its contents depend only on the plan and the
molecule's name, not on the order in which files are made, nor on where a run was killed.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from ivhl.records.files import replaced_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from studies.training.subjects import Family

    Array = Any  # numpy.ndarray; the tool's type check has no numpy
    Part = Literal["train", "validation", "held back"]

# Frames with a larger force, in eV/Å, are dropped: their atoms overlap.
MAX_FORCE: Final = 25.0


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingPlan:
    """The geometries to make of each molecule.

    Attributes:
        families: Ways to make geometries.
        n_trajectories: Trajectories of each family.
        n_frames: Frames of each trajectory.
        seed: Seed of all random numbers.
        versions: Versions of the packages that the labels depend on.
    """

    families: tuple[Family, ...]
    n_trajectories: int
    n_frames: int
    seed: int
    versions: dict[str, str]

    def digest(self) -> str:
        """Return eight hexadecimal digits of a hash of the plan."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Labelled:
    """Frames of one molecule with their labels.

    Attributes:
        name: Name of the molecule.
        numbers: Atomic numbers, shape ``[n_atoms]``.
        positions: Shape ``[n_frames, n_atoms, 3]``, in Å.
        energies: Shape ``[n_frames]``, in eV.
        forces: Shape ``[n_frames, n_atoms, 3]``, in eV/Å.
        families: Index into the plan's families, shape ``[n_frames]``.
        trajectories: Number within the family, shape ``[n_frames]``.
        n_dropped: Number of frames with too large a force, or whose charges did not converge.
    """

    name: str
    numbers: Array
    positions: Array
    energies: Array
    forces: Array
    families: Array
    trajectories: Array
    n_dropped: int

    def take(self, chosen: Array) -> Labelled:
        """Return the frames where ``chosen``, shape ``[n_frames]``, is true."""
        return Labelled(
            name=self.name,
            numbers=self.numbers,
            positions=self.positions[chosen],
            energies=self.energies[chosen],
            forces=self.forces[chosen],
            families=self.families[chosen],
            trajectories=self.trajectories[chosen],
            n_dropped=self.n_dropped,
        )


def generator_of(seed: int, *names: object) -> np.random.Generator:
    """Return a random generator that depends only on the seed and names."""
    return np.random.default_rng([seed, *(zlib.crc32(str(name).encode()) for name in names)])


def part_of(trajectory: int, n_trajectories: int) -> Part:
    """Return the part of a trajectory: the last is held back, the last but one is for validation.

    Frames of one trajectory are correlated, so all of them belong to the same part.
    """
    if trajectory == n_trajectories - 1:
        return "held back"
    return "validation" if trajectory == n_trajectories - 2 else "train"


def select_part(labelled: Labelled, part: Part, n_trajectories: int) -> Labelled:
    """Return the frames of one part."""
    parts = [part_of(int(t), n_trajectories) for t in labelled.trajectories]
    return labelled.take(np.array([p == part for p in parts], dtype=bool))


def make_labelled(name: str, plan: SamplingPlan) -> Labelled:
    """Make geometries of a molecule and label them.

    Raises:
        RuntimeError: If the relaxation does not converge, or if no frame is left.
    """
    # tblite and ase are only in envs/train/, and reading labels needs neither.
    from tblite.exceptions import TBLiteRuntimeError  # noqa: PLC0415

    from studies.training.geometries import find_minimum, make_trajectory  # noqa: PLC0415
    from studies.training.xtb import label  # noqa: PLC0415

    minimum = find_minimum(name)
    numbers = minimum.atoms.numbers.astype(np.int64)
    kept: list[tuple[Array, float, Array, int, int]] = []
    n_dropped = 0
    for index, family in enumerate(plan.families):
        for trajectory in range(plan.n_trajectories):
            generator = generator_of(plan.seed, name, family.name, trajectory)
            for positions in make_trajectory(minimum, family, plan.n_frames, generator):
                try:
                    energy, forces = label(numbers, positions)
                except TBLiteRuntimeError:
                    n_dropped += 1
                    continue
                if np.abs(forces).max() > MAX_FORCE:
                    n_dropped += 1
                    continue
                kept.append((positions, energy, forces, index, trajectory))
    if not kept:
        raise RuntimeError(f"no frame of {name} could be labelled")
    return Labelled(
        name=name,
        numbers=numbers,
        positions=np.stack([frame[0] for frame in kept]),
        energies=np.array([frame[1] for frame in kept]),
        forces=np.stack([frame[2] for frame in kept]),
        families=np.array([frame[3] for frame in kept]),
        trajectories=np.array([frame[4] for frame in kept]),
        n_dropped=n_dropped,
    )


def write_labelled(path: Path, labelled: Labelled) -> None:
    """Write a file atomically."""
    arrays: dict[str, Any] = asdict(labelled)
    with replaced_whole(path) as unfinished, unfinished.open("wb") as file:
        np.savez(file, **arrays)


def load_labelled(path: Path) -> Labelled:
    """Read a file from ``write_labelled``."""
    with np.load(path) as file:
        fields: dict[str, Any] = {name: file[name] for name in file.files}
    return Labelled(
        **{**fields, "name": str(fields["name"]), "n_dropped": int(fields["n_dropped"])}
    )


def load_or_make(folder: Path, names: Iterable[str], plan: SamplingPlan) -> list[Labelled]:
    """Return labelled frames of molecules; read those that are already in the folder.

    Args:
        folder: Folder of all labels; each plan has its own subfolder.
        names: Names of the molecules.
        plan: How the labels are sampled.
    """
    here = folder / f"labels-{plan.digest()}"
    here.mkdir(parents=True, exist_ok=True)
    found = []
    for name in names:
        path = here / f"{name}.npz"
        if not path.is_file():
            write_labelled(path, make_labelled(name, plan))
            print(f"labelled {name}", flush=True)
        found.append(load_labelled(path))
    return found


def fit_reference_energies(frames: Sequence[Labelled], n_elements: int) -> Array:
    """Return energies of the elements whose sums best fit the energies of the molecules.

    Uses least squares over all frames, in float64.

    Args:
        frames: Frames for training.
        n_elements: Largest atomic number.

    Returns:
        Shape ``[n_elements + 1]``, in eV: 0 for no atom, NaN for elements without frames.
    """
    counts = np.concatenate(
        [
            np.tile(np.bincount(f.numbers, minlength=n_elements + 1), (len(f.energies), 1))
            for f in frames
        ]
    ).astype(float)
    energies = np.concatenate([f.energies for f in frames])
    present = counts.any(axis=0)
    solution, *_ = np.linalg.lstsq(counts[:, present], energies, rcond=None)
    reference = np.full(n_elements + 1, np.nan)
    reference[0] = 0.0
    reference[present] = solution
    return reference
