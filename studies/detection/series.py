"""Series with known or labelled changes, and how they are read from files."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["LabelledSeries", "read_folder"]


@dataclass(frozen=True, slots=True)
class LabelledSeries:
    """One history of measurements.

    Attributes:
        name: Unique within its suite.
        suite: Which metrics apply; `studies.detection.report` lists them.
        family: Kind of noise, or of length.
        values: The measurements, oldest first.
        annotations: Annotator to indices of the first point of each new regime.
        steps: Relative size of each change; only where it was planted.
        intervals: 95 % interval of each value, ``(low, high)``.
    """

    name: str
    suite: str
    family: str
    values: tuple[float, ...]
    annotations: Mapping[str, tuple[int, ...]]
    steps: tuple[float, ...] = ()
    intervals: tuple[tuple[float, float], ...] | None = field(default=None)

    @property
    def truth(self) -> tuple[int, ...]:
        """Return the indices that any annotator names, ascending."""
        return tuple(sorted({i for found in self.annotations.values() for i in found}))


def read_folder(folder: Path) -> dict[str, list[LabelledSeries]]:
    """Read every ``*.json`` of a folder; return suite to series.

    Args:
        folder: Files are lists of objects with ``name``, ``values``, ``annotations`` and optionally
            ``family``, ``steps`` and ``ci``; the suite is the name of the file.

    Raises:
        FileNotFoundError: If the folder holds no such file.
    """
    suites = {
        path.stem: [_series(entry, path.stem) for entry in json.loads(path.read_text())]
        for path in sorted(folder.glob("*.json"))
    }
    if not suites:
        raise FileNotFoundError(f"{folder}: no *.json in it")
    return suites


def _series(entry: dict[str, object], suite: str) -> LabelledSeries:
    """Read one object of a file."""
    ci = entry.get("ci")
    values, annotations, steps = entry["values"], entry["annotations"], entry.get("steps") or ()
    if not (
        isinstance(values, list)
        and isinstance(annotations, dict)
        and isinstance(steps, list | tuple)
    ):
        raise TypeError(f"{suite}: {entry.get('name')}: values, annotations or steps: wrong type")
    return LabelledSeries(
        name=str(entry["name"]),
        suite=suite,
        family=str(entry.get("family", "-")),
        values=tuple(float(value) for value in values),
        annotations={who: tuple(found) for who, found in annotations.items()},
        steps=tuple(float(step) for step in steps),
        intervals=tuple((float(a), float(b)) for a, b in ci) if isinstance(ci, list) else None,
    )
