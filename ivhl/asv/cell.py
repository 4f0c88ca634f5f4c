"""Make one cell outside of a run, in the folder where runs find it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asv.config import Config

from ivhl.asv.configuration import load_configuration
from ivhl.asv.environment import CellError, Locked
from ivhl.errors import LockError

if TYPE_CHECKING:
    from pathlib import Path

    from ivhl.matrix.spec import CellSpec


def make_cell(root: Path, cell: CellSpec) -> Path:
    """Return the folder of a cell's environment; create it from its lock if it is not there.

    Raises:
        SpecError: See ``load_configuration``.
        LockError: If the environment cannot be made.
    """
    conf = Config.from_json(load_configuration(root))
    environment = Locked(conf, cell.python, {"torch": cell.torch}, {})
    try:
        environment.make()
    except CellError as error:
        raise LockError(f"{cell.id}: {error}", hint="see what uv says, then try again") from error
    return environment.folder
