"""Make one cell outside of a run, in the folder where runs find it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asv.config import Config
from asv.environment import EnvironmentUnavailable

from ivhl.asv.configuration import load_configuration
from ivhl.asv.environment import Locked
from ivhl.errors import LockError
from ivhl.matrix.environment import CellError

if TYPE_CHECKING:
    from pathlib import Path

    from ivhl.matrix.spec import CellSpec


def make_cell(root: Path, cell: CellSpec) -> Path:
    """Return the folder of a cell's environment; create it from its lock if it is not there.

    Raises:
        SpecError: See ``load_configuration``.
        LockError: If the environment cannot be made.
    """
    environment = _environment(root, cell)
    try:
        environment.make()
    except CellError as error:
        raise LockError(f"{cell.id}: {error}", hint="see what uv says, then try again") from error
    return environment.folder


def find_cell(root: Path, cell: CellSpec) -> Path | None:
    """Return the folder of a cell's environment; ``None`` if it is not there, or not of its lock.

    Raises:
        SpecError: See ``load_configuration``.
        LockError: If its lock is missing or stale.
    """
    environment = _environment(root, cell)
    return environment.folder if environment.check_presence() else None


def _environment(root: Path, cell: CellSpec) -> Locked:
    conf = Config.from_json(load_configuration(root))
    try:
        return Locked(conf, cell.python, {"torch": cell.torch}, {})
    except EnvironmentUnavailable as error:
        raise LockError(str(error), hint="ivhl lock") from error
