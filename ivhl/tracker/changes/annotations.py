"""Notes on known changes, kept in ``results/annotations.jsonl`` under version control."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from ivhl.tracker.store.kept import load_lines
from ivhl.tracker.support.compat import release_key

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ivhl.tracker.changes.kinds import Between
    from ivhl.tracker.changes.regressions import Change

NAME = "annotations.jsonl"
# Matching takes longer than linearly, and no name of a case is as long.
_LONGEST_PATTERN = 500


@dataclass(frozen=True, slots=True)
class Annotation:
    """What somebody says about the changes at a place.

    Attributes:
        place: Commit (or the beginning of its hash), PyTorch release or Python. A release or Python
            that was not run stands for the next one that was.
        cases: Pattern of cases, ``WORKLOAD/SIZE/VARIANT`` with ``*`` and ``?``.
        text: The word.
        at: The time of the note, as text.
        until: Release or Python from which it no longer holds; empty if it still does. It explains
            no change to that one or a later one.
    """

    place: str
    cases: str
    text: str
    at: str = ""
    until: str = ""

    def is_of(self, change: Change | Between) -> bool:
        """Return whether this is about a change."""
        if change.along == "commit":
            there = change.place.startswith(self.place)
        else:  # releases between the two were not run
            first, last = release_key(change.before), release_key(change.place)
            there = first < release_key(self.place) <= last
            there = there and (not self.until or last < release_key(self.until))
        return there and fnmatchcase(change.case.name, self.cases)


def load_annotations(results: Path) -> tuple[Annotation, ...]:
    """Return the annotations, oldest first.

    Raises:
        ResultsError: If a line is no annotation; names the line.
    """
    return load_lines(results / NAME, _annotation, "annotation", "a person (docs/regressions.md)")


def note_of(change: Change | Between, annotations: Iterable[Annotation]) -> str:
    """Return the last word on a change; empty if there is none."""
    words = [one.text for one in annotations if one.is_of(change)]
    return words[-1] if words else ""


def _annotation(data: Any) -> Annotation:  # noqa: ANN401  (JSON)
    found = Annotation(**data)
    for name, value in asdict(found).items():
        if not isinstance(value, str) or not (value.strip() or name in ("at", "until")):
            raise ValueError(f"{name} must be a text (got {value!r})")
    if len(found.cases) > _LONGEST_PATTERN:
        rule = f"cases must have at most {_LONGEST_PATTERN} characters"
        raise ValueError(f"{rule} (got {len(found.cases)})")
    return found
