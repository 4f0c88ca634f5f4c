"""The table of executors: those of ivhl, and what other distributions add (docs/adr/0051)."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib.metadata import EntryPoint, distributions
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ivhl.bench.main import INTERFACE, Executor, bench
from ivhl.errors import IvhlError, SpecError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from ivhl.bench.experiment import Measure
    from ivhl.bench.request import Request

GROUP: Final = "ivhl.executors"
# Not in the metadata of ivhl itself, which an editable installation keeps as it was once.
_OWN: Final = {
    "here": "ivhl.bench.main:Executor",
    "docker": "ivhl.image.executor:DockerExecutor",
    "slurm": "ivhl.bench.slurm:SlurmExecutor",
}


def executor_of(name: str, root: Path) -> Executor:
    """Return the executor with this name.

    Args:
        name: As in ``--executor``.
        root: Root of the project.

    Raises:
        UnknownNameError: If no installed distribution has it.
        SpecError: If two distributions have it, or it is no executor of this interface.
        IvhlError: If it cannot measure here, e.g. without an engine.
    """
    own = [EntryPoint(one, value, GROUP) for one, value in _OWN.items()]
    points = [*own, *_added(root).values()]
    found = [point for point in points if point.name == name]
    if not found:
        raise UnknownNameError("executor", name, {point.name for point in points})
    if len(found) > 1:
        both = " and ".join(map(_distribution, found))
        raise SpecError(
            f"--executor {name}: must be the name of one executor (got {both})",
            hint=f"uninstall one of them: {both}",
        )
    distribution = _distribution(found[0])
    with naming(name, distribution):
        kind = found[0].load()
    rule = ""
    if not (isinstance(kind, type) and issubclass(kind, Executor)):
        rule = f"must be a class that derives from ivhl.bench.main.Executor (got {kind!r:.100})"
    elif (version := vars(kind).get("interface")) != INTERFACE:
        # Not what it inherits, which is always the version of this ivhl.
        rule = f"its class must set interface = {INTERFACE} (got {version!r:.100})"
    if rule:
        raise SpecError(
            f"--executor {name} of {distribution}: {rule}",
            hint=f"update {distribution} or ivhl, or leave out --executor",
        )
    with naming(name, distribution):
        made: Executor = kind(root)
    made.name, made.distribution = name, distribution
    return made


@contextmanager
def naming(name: str, distribution: str) -> Iterator[None]:
    """Name an executor and its distribution in errors that nobody foresaw.

    Raises:
        SpecError: In their place; not for the executors of ivhl.
    """
    try:
        yield
    except IvhlError:
        raise
    except Exception as error:
        if distribution == "ivhl":
            raise
        raise SpecError(
            f"--executor {name} of {distribution}: {type(error).__name__}: {error}",
            hint=f"IVHL_TRACEBACK=1 shows where; update {distribution}, or leave out --executor",
        ) from error


def measuring(executor: Executor) -> Measure:
    """Return what measures with an executor."""

    def measure(request: Request, console: Console) -> object:
        with naming(executor.name, executor.distribution):
            return bench(request, console, executor)

    return measure


def _added(root: Path) -> dict[tuple[str, str], EntryPoint]:
    """Return the entry points of installed distributions, by distribution and name.

    A project is no place for one: ``python -m`` finds it there, and whoever wrote it is not trusted.
    """
    theirs = {Path.cwd(), root.resolve()}
    places = [place for place in sys.path if Path(place).resolve() not in theirs]
    found: dict[tuple[str, str], EntryPoint] = {}
    for one in distributions(path=places):
        for point in one.entry_points.select(group=GROUP):
            found.setdefault((one.name, point.name), point)  # of two versions the first counts
    return found


def _distribution(point: EntryPoint) -> str:
    return "ivhl" if point.dist is None else f"{point.dist.name} {point.dist.version}"
