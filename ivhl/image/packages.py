"""List the packages of an image, and the differences between two."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ivhl.image.engine import Client, EngineError, engine_errors
from ivhl.measure import contents as measured

if TYPE_CHECKING:
    from collections.abc import Mapping

# Runs in the cell's Python, where nothing of ivhl is.
_ASK = Path(measured.__file__).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between two images; ``None`` if one image lacks the package.

    Attributes:
        kind: ``python``, ``package`` of the cell, or ``system package`` of the base.
        before: Version; for a package also a digest of its file list with their sha256.
        after: The same for the other image.
    """

    kind: str
    name: str
    before: str | None
    after: str | None


def contents(client: Client, image: str) -> dict[str, dict[str, str]]:
    """Return the content of an image: kind to name to version.

    Args:
        client: See ``connect``.
        image: Digest of an image of a cell.

    Raises:
        EngineError: If no container of the image can be run, or its output is not valid.
    """
    with engine_errors(f"looking into the image {image[:19]}"):
        printed = client.containers.run(
            image, ["python", "-c", _ASK], network_mode="none", read_only=True, remove=True
        )
    try:
        found: dict[str, dict[str, str]] = json.loads(printed)
    except ValueError as error:
        raise EngineError(
            f"the image {image[:19]} does not say what is in it: {printed[-300:]!r}",
            hint="build it again: ivhl image CELL --force",
        ) from error
    return found


def differences(
    before: Mapping[str, Mapping[str, str]], after: Mapping[str, Mapping[str, str]]
) -> tuple[Difference, ...]:
    """Return the differences of two contents, by kind and name; empty if they are equal."""
    return tuple(
        Difference(kind, name, old.get(name), new.get(name))
        for kind in sorted(before.keys() | after.keys())
        for old, new in [(before.get(kind, {}), after.get(kind, {}))]
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    )
