"""Measure inside a container whose image its caller does not name.

A job of Kubernetes gets a container and no engine, and nothing in a container knows the digest of
its image. So the bill of materials that `ivhl image bill` made beside the engine comes along, and
the container must hold exactly what it lists, to the hash of each file of a package.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ivhl.errors import SpecError
from ivhl.measure.contents import changed_files, contents
from ivhl.measure.run import this_cell
from ivhl.records.record import Cell

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

# By the kind of a component's package URL.
_KINDS = {"pkg:generic/": "python", "pkg:pypi/": "package", "pkg:deb/": "system package"}
_SHOWN = 5


def given_image(bill: Path) -> tuple[Cell, str]:
    """Return the cell and the digest of the image that this container is, by its bill.

    Raises:
        SpecError: If the bill cannot be read, or the container holds anything else; names both.
    """
    try:
        data = json.loads(bill.read_text(encoding="utf-8"))
        image = data["metadata"]["component"]
        digest, name = str(image["version"]), str(image["name"])
        lock = next(p["value"] for p in image["properties"] if p["name"] == "ivhl:lock")
        listed = _listed(data["components"])
    except (OSError, ValueError, LookupError, TypeError, StopIteration, AttributeError) as error:
        raise SpecError(
            f"--bill {bill}: is no bill of an image: {type(error).__name__}: {error}",
            hint="make it beside the engine: ivhl image bill CELL > bill.json",
        ) from error
    apart = [*_apart(listed, contents())]
    # Hashing takes seconds: only of what may be the image.
    apart = apart or [f"{file} is not the file of its package" for file in changed_files()]
    if apart:
        more = f"; and {len(apart) - _SHOWN} more" if len(apart) > _SHOWN else ""
        raise SpecError(
            f"--bill {bill}: this is not the image {digest[:19]}: {'; '.join(apart[:_SHOWN])}{more}",
            hint="run the job in the image of the bill, by its digest, and install nothing into it",
        )
    here = this_cell()
    if here.id != name:
        raise SpecError(
            f"--bill {bill}: is of {name}, and this Python is of {here.id}",
            hint="run the Python of the image's cell, which is first on its PATH",
        )
    return Cell(id=name, python=here.python, torch=here.torch, lock_sha256=lock), digest


def _listed(components: Any) -> dict[str, dict[str, str]]:  # noqa: ANN401  (JSON)
    """Return what a bill lists as ``contents`` does."""
    found: dict[str, dict[str, str]] = {kind: {} for kind in _KINDS.values()}
    for one in components:
        address = one.get("purl", "")
        for beginning, kind in _KINDS.items():
            if address.startswith(beginning):
                hashes = [p["value"] for p in one.get("properties", ())]
                version = one["version"] + "".join(f" ({value})" for value in hashes)
                found[kind][one["name"]] = version
    return found


def _apart(
    listed: Mapping[str, Mapping[str, str]], held: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    for kind, names in listed.items():
        here = held[kind]
        for name in sorted(names.keys() | here.keys()):
            if names.get(name) != here.get(name):
                yield (
                    f"{kind} {name} is {here.get(name, 'not there')}, in the bill "
                    f"{names.get(name, 'not there')}"
                )
