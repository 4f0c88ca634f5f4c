"""Datasets of trajectories in zarr, written operator by operator.

A chunk is the trajectory of one realisation. zarr writes each file under another name first, so
there is none by half, and ``finite_steps`` of an operator is written after all of its chunks: what
has it is complete, and a run that was killed goes on with the others. Only this module needs zarr:
``pip install 'ivhl[zarr]'``.
"""

from __future__ import annotations

import errno
import json
import math
import shutil
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

import torch

from ivhl.errors import ResultsError, SpecError
from ivhl.rollout.evolution import evolve
from ivhl.rollout.noise import StepNoise, seed_of
from ivhl.rollout.operator import Architecture, make_parameters
from ivhl.rollout.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ivhl.rollout.operator import Parameters

SCHEMA: Final = "ivhl.rollout/1"
GROUP: Final = "zarr.json"  # of a folder that is a dataset
NOT_YET: Final = -1  # in finite_steps
# A chunk is in memory as a whole, and zarr's compressors take no more at once.
MOST_OF_A_CHUNK: Final = 2**31 - 1
# Operators whose inputs are made before they are needed.
AHEAD: Final = 2
# Where a dataset is made in a folder that is there already.
UNFINISHED: Final = ".ivhl-unfinished"
# Wave numbers above this part of the largest have no part in initial conditions.
SMOOTH: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetRecipe:
    """What a dataset holds; with the seed, every number of it.

    Attributes:
        architecture: Architecture of all operators.
        policy: Policy of all.
        noise: Scale of the noise; 0: none.
        n_realisations: Realisations of each operator.
        n_steps: Steps of a trajectory.
        keep_every: A state is kept after each so many steps.
        height: Rows of a field.
        width: Columns.
        seed: Seed of weights, initial conditions and noise.
        precision: Precision of the operator, ``float32``, ``bfloat16`` or ``float16``.

    Raises:
        ValueError: If a number is too small.
    """

    architecture: Architecture = field(default_factory=Architecture)
    policy: Policy = field(default_factory=Policy)
    noise: float = 0.01
    n_realisations: int = 5
    n_steps: int = 500
    keep_every: int = 10
    height: int = 128
    width: int = 128
    seed: int = 0
    precision: str = "float32"

    def __post_init__(self) -> None:
        for name, least in (
            ("n_realisations", 1),
            ("n_steps", 1),
            ("keep_every", 1),
            ("height", 2),
            ("width", 2),
        ):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.keep_every > self.n_steps:
            raise ValueError(
                f"keep_every must be at most n_steps, {self.n_steps}, got {self.keep_every}"
            )
        StepNoise(self.noise)
        chunk = 4 * self.n_kept * self.architecture.n_channels * self.height * self.width
        if chunk > MOST_OF_A_CHUNK:
            raise ValueError(
                f"a trajectory of {self.n_kept} states is a chunk of {chunk} bytes, of at most "
                f"{MOST_OF_A_CHUNK}: keep fewer states (keep_every) or take fewer steps"
            )

    @property
    def n_kept(self) -> int:
        """States of a trajectory, the initial one included."""
        return 1 + self.n_steps // self.keep_every


@dataclass(frozen=True, slots=True)
class DatasetProgress:
    """How far a dataset is.

    Attributes:
        operators: Operators that are complete.
        of: Operators that it shall have.
        diverged: Realisations written in this run that are not finite to the end.
        seconds: Since this run began.
        written: Operators written in this run.
        unreadable: Those of them that were said to be complete, and could not be read.
    """

    operators: int
    of: int
    diverged: int
    seconds: float
    written: int
    unreadable: int = 0


def generate(
    recipe: DatasetRecipe,
    folder: Path,
    *,
    n_operators: int,
    device: torch.device | str = "cpu",
    compiled: bool = True,
    memory_budget: int | None = None,
    check: bool = False,
    report: Callable[[DatasetProgress], None] = lambda _: None,
) -> DatasetProgress:
    """Write a dataset, or what is missing of it.

    Args:
        recipe: What it holds.
        folder: Its folder; not there, empty, or with a dataset of this recipe. More operators than
            it has are added.
        n_operators: How many operators it shall have.
        device: Where to compute.
        compiled: As for ``evolve``.
        memory_budget: As for ``evolve``.
        check: Whether to read all that is complete first, and write again what cannot be read; so
            it is done where files of it are gone or empty.
        report: Called when it begins and after each operator.

    Returns:
        How far it is at the end.

    Raises:
        SpecError: If zarr is not installed, or the folder holds something else.
        ResultsError: If zarr cannot read what is there, the disk is full, or the folder cannot be
            written; what is complete stays.
        ValueError: If an argument is wrong.
    """
    if n_operators < 1:
        raise ValueError(f"n_operators must be at least 1, got {n_operators}")
    began = time.monotonic()
    with _writing(folder):
        group = _open(recipe, folder, n_operators)
    marks, state, weights = group["finite_steps"], group["state"], group["weights"]
    with _writing(folder):
        for number in (unmarked := _unreadable_rows(marks)):
            marks[number] = NOT_YET
    check = check or _lacks_chunks(group, folder)
    broken = [n for n in range(n_operators) if not _is_readable(group, n)] if check else []
    with _writing(folder):
        for number in broken:
            marks[number] = NOT_YET
    unreadable = len({*broken, *(number for number in unmarked if number < n_operators)})
    rows = marks[:n_operators].tolist()
    missing = [number for number, row in enumerate(rows) if NOT_YET in row]
    diverged = written = 0

    def so_far() -> DatasetProgress:
        return DatasetProgress(
            operators=n_operators - len(missing) + written,
            of=n_operators,
            diverged=diverged,
            seconds=time.monotonic() - began,
            written=written,
            unreadable=unreadable,
        )

    report(so_far())
    for number, (parameters, start) in zip(missing, _ahead(recipe, missing), strict=True):
        kept = evolve(
            recipe.architecture,
            {name: values.to(device) for name, values in parameters.items()},
            start[None].to(device),
            recipe.n_steps,
            policy=recipe.policy,
            noise=StepNoise(recipe.noise, recipe.seed) if recipe.noise else None,
            precision=getattr(torch, recipe.precision),
            compiled=compiled,
            keep_every=recipe.keep_every,
            memory_budget=memory_budget,
            first_operator=number,
            check=False,
        )
        trajectories = kept[:, 0].transpose(0, 1).contiguous().cpu()
        finite = _finite_steps(trajectories, recipe.keep_every)
        with _writing(folder):
            weights[number] = torch.cat([v.flatten() for v in parameters.values()]).numpy()
            for realisation, trajectory in enumerate(trajectories):
                state[number, realisation] = trajectory.numpy()
            marks[number] = finite.numpy()
        diverged += int((finite < (recipe.n_kept - 1) * recipe.keep_every).sum())
        written += 1
        report(so_far())
    return so_far()


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Name the dataset where its disk refuses a file: the names of zarr's files say nothing.

    Raises:
        ResultsError: In place of an error of the system.
    """
    try:
        yield
    except OSError as error:
        hint = "check the permissions of this folder and its disk, or choose another one (--out)"
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            hint = (
                "make room there and run the same command again, it goes on; or choose another "
                "folder (--out)"
            )
        elif error.errno == errno.EROFS:
            hint = "choose a folder on a disk that can be written (--out)"
        raise ResultsError(
            f"{folder}: the dataset cannot be written: {error.strerror or error}", hint=hint
        ) from error


def _open(recipe: DatasetRecipe, folder: Path, n_operators: int) -> Any:  # noqa: ANN401  (zarr.Group)
    """Return the group of the dataset, made or extended."""
    try:
        import zarr  # noqa: PLC0415  (an extra)
    except ImportError as error:
        raise SpecError(
            "datasets need zarr, which is not installed",
            hint="python -m pip install 'ivhl[zarr]'",
        ) from error
    about = _about(recipe)
    if not _holds_a_dataset(folder):
        return _make(zarr, folder, recipe, about, n_operators)
    for left in folder.rglob("*.partial"):  # of a run that was killed while it wrote
        left.unlink(missing_ok=True)
    if (folder / UNFINISHED).is_dir():  # ... or after it had moved all out of it
        (folder / UNFINISHED).rmdir()
    try:
        group = zarr.open_group(folder, mode="r+", zarr_format=3)
        found = dict(group.attrs)
        arrays = {
            name: group[name] for name in ("operator", "time", "weights", "state", "finite_steps")
        }
    except (KeyError, ValueError, TypeError, FileNotFoundError) as error:
        raise ResultsError(
            f"{folder}: zarr cannot read the dataset there: {error}",
            hint="remove the folder if its first run was killed at once; else its chunks are still "
            "there: a zarr.json that is broken is the same in a new folder with this recipe and as "
            "many operators",
        ) from error
    if found != about:
        names = sorted(n for n in {*found, *about} if found.get(n) != about.get(n))
        differing = "; ".join(
            f"{name}: {found.get(name)!r} there, {about.get(name)!r} asked for" for name in names
        )
        raise SpecError(
            f"{folder}: holds a dataset of another recipe: {differing}",
            hint="ask for the same, or choose another folder",
        )
    _extend(arrays, recipe, n_operators)
    return group


def _extend(arrays: dict[str, Any], recipe: DatasetRecipe, n_operators: int) -> None:
    """Make room for more operators, and write coordinates that are not what they shall be."""
    for name, array in arrays.items():
        if name != "time" and array.shape[0] < n_operators:
            array.resize((n_operators, *array.shape[1:]))
    _keep(arrays["time"], _times(recipe))
    # Also where a run was killed after it had resized the array.
    _keep(arrays["operator"], list(range(arrays["operator"].shape[0])))


def _keep(array: Any, numbers: list[int]) -> None:  # noqa: ANN401  (zarr.Array)
    """Write a coordinate again if it does not hold these numbers or cannot be read."""
    try:
        holds = array[:].tolist() == numbers
    except Exception:  # noqa: BLE001  (whatever the codecs of zarr raise)
        holds = False
    if not holds:
        array[:] = numbers


def _times(recipe: DatasetRecipe) -> list[int]:
    return [recipe.keep_every * number for number in range(recipe.n_kept)]


def _unreadable_rows(marks: Any) -> list[int]:  # noqa: ANN401  (zarr.Array)
    """Return the operators whose marks cannot be read: they are written again."""
    found = []
    try:
        marks[:]
    except Exception:  # noqa: BLE001  (whatever the codecs of zarr raise)
        for number in range(marks.shape[0]):
            try:
                marks[number]
            except Exception:  # noqa: BLE001  (as above)
                found.append(number)
    return found


def _lacks_chunks(group: Any, folder: Path) -> bool:  # noqa: ANN401  (zarr.Group)
    """Return whether files of complete operators are gone or empty, as after a power cut."""
    marks = group["finite_steps"][:]
    complete = int((marks != NOT_YET).all(axis=1).sum())

    def has(name: str) -> int:
        files = (folder / name / "c").rglob("*")
        return sum(path.is_file() and path.stat().st_size > 0 for path in files)

    return has("state") < complete * marks.shape[1] or has("weights") < complete


def _is_readable(group: Any, number: int) -> bool:  # noqa: ANN401  (zarr.Group)
    """Return whether all of an operator can be read, or it is not yet complete."""
    try:
        names = ("finite_steps", "weights", "state")
        marks, weights, state = (torch.from_numpy(group[name][number]) for name in names)
    except Exception:  # noqa: BLE001  (whatever the codecs of zarr raise)
        return False
    # A chunk whose file is missing is read as numbers that are not finite.
    whole = bool(weights.isfinite().all() and state[:, 0].isfinite().all())
    return whole or NOT_YET in marks.tolist()


def _holds_a_dataset(folder: Path) -> bool:
    """Return whether the folder has a dataset to go on with.

    Raises:
        SpecError: If it has anything else.
    """
    if folder.exists() and not folder.is_dir():
        raise SpecError(f"{folder}: must be a folder or not exist", hint="choose another name")
    if (folder / GROUP).is_file():
        return True
    # That of a run that was killed at once belongs to us, and so does what it had moved.
    if folder.exists() and any(folder.iterdir()) and not (folder / UNFINISHED).is_dir():
        raise SpecError(f"{folder}: holds files and no dataset", hint="choose an empty folder")
    return False


def _make(
    zarr: Any,  # noqa: ANN401  (the module)
    folder: Path,
    recipe: DatasetRecipe,
    about: dict[str, Any],
    n_operators: int,
) -> Any:  # noqa: ANN401
    """Make the arrays in another folder first: what has the name is whole.

    A folder that is there stays: it may be the current one, a link, or a disk of its own.
    """
    is_there = folder.is_dir()
    unfinished = folder / UNFINISHED
    if not is_there:
        unfinished = folder.with_name(f"{folder.name}.unfinished")
    group = zarr.open_group(unfinished, mode="w", zarr_format=3, attributes=about)
    of, per = recipe.n_realisations, recipe.architecture
    frame = (per.n_channels, recipe.height, recipe.width)
    axes = ("channel", "y", "x")

    def array(
        name: str, dtype: str, shape: tuple[int, ...], chunks: tuple[int, ...], *names: str
    ) -> Any:  # noqa: ANN401
        fill = {"int32": NOT_YET, "int64": 0}.get(dtype, math.nan)
        return group.create_array(
            name, shape=shape, chunks=chunks, dtype=dtype, fill_value=fill, dimension_names=names
        )

    array("operator", "int64", (n_operators,), (n_operators,), "operator")[:] = list(
        range(n_operators)
    )
    times = array("time", "int64", (recipe.n_kept,), (recipe.n_kept,), "time")
    times[:] = _times(recipe)
    shape = (n_operators, of, recipe.n_kept, *frame)
    names = ("operator", "realisation", "time", *axes)
    array("state", "float32", shape, (1, 1, *shape[2:]), *names)
    n_weights = per.n_weights
    array("weights", "float32", (n_operators, n_weights), (1, n_weights), "operator", "weight")
    array("finite_steps", "int32", (n_operators, of), (1, of), "operator", "realisation")
    if is_there:
        _move_into(folder, unfinished)
    else:
        unfinished.rename(folder)
    return zarr.open_group(folder, mode="r+", zarr_format=3)


def _move_into(folder: Path, unfinished: Path) -> None:
    """Move a dataset up into its folder, the file that makes it one last."""
    for path in sorted(unfinished.iterdir(), key=lambda path: path.name == GROUP):
        place = folder / path.name
        if place.is_dir():  # moved by a run that was killed then
            shutil.rmtree(place)
        path.rename(place)
    unfinished.rmdir()


def _about(recipe: DatasetRecipe) -> dict[str, Any]:
    """Return the recipe as attributes of the dataset, as JSON keeps them."""
    about: dict[str, Any] = json.loads(json.dumps(asdict(recipe)))
    return {"schema": SCHEMA, **about}


def _ahead(recipe: DatasetRecipe, numbers: list[int]) -> Iterator[tuple[Parameters, torch.Tensor]]:
    """Yield weights and initial states of each operator, made while others are evolved."""

    def make(number: int) -> tuple[Parameters, torch.Tensor]:
        return operator_parameters(recipe, number), initial_conditions(recipe, number)

    with ThreadPoolExecutor(max_workers=1) as pool:
        waiting = deque(pool.submit(make, number) for number in numbers[:AHEAD])
        for number in [*numbers[AHEAD:], *[None] * min(AHEAD, len(numbers))]:
            inputs = waiting.popleft().result()
            if number is not None:
                waiting.append(pool.submit(make, number))
            yield inputs


def operator_parameters(recipe: DatasetRecipe, number: int) -> Parameters:
    """Return the weights of one operator of a dataset, float32."""
    generator = torch.Generator().manual_seed(seed_of(recipe.seed, "weights", number))
    drawn = make_parameters(recipe.architecture, generator)
    return {name: values.float() for name, values in drawn.items()}


def initial_conditions(recipe: DatasetRecipe, number: int) -> torch.Tensor:
    """Return smooth random fields of unit variance and no mean, periodic at the boundary.

    Args:
        recipe: The recipe of the dataset.
        number: Number of the operator.

    Returns:
        Shape ``[n_realisations, n_channels, height, width]``, float32.
    """
    generator = torch.Generator().manual_seed(seed_of(recipe.seed, "initial", number))
    shape = (recipe.n_realisations, recipe.architecture.n_channels, recipe.height, recipe.width)
    waves = torch.fft.rfft2(torch.randn(shape, dtype=torch.float64, generator=generator))
    rows = torch.fft.fftfreq(recipe.height, dtype=torch.float64)[:, None]
    columns = torch.fft.rfftfreq(recipe.width, dtype=torch.float64)
    squared = (rows**2 + columns**2) / (0.5 * SMOOTH) ** 2
    damped = torch.exp(-0.5 * squared)
    damped[0, 0] = 0.0
    field = torch.fft.irfft2(waves * damped, s=shape[-2:])
    return (field / field.std((-2, -1), keepdim=True)).float()


def _finite_steps(trajectories: torch.Tensor, keep_every: int) -> torch.Tensor:
    """Return the last kept step of each realisation up to which all is finite, int32."""
    finite = trajectories.isfinite().flatten(2).all(2).int().cumprod(1)
    return ((finite.sum(1) - 1) * keep_every).clamp(min=0).int()
