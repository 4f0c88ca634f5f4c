"""Known failures from a text, and the files of a site in memory."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ivhl.pages.build import _parts
from ivhl.tracker.support.expectations import EXPECTATIONS, Expectations, load_expectations

if TYPE_CHECKING:
    from ivhl.observatory.views import Libraries
    from ivhl.tracker.views.source import Source


def site_files(source: Source, libraries: Libraries | None = None) -> dict[str, bytes]:
    """Return the content of every file of the site by its address."""
    return {
        file.path: file.content() for _, part in _parts(source, "", libraries) for file in part()
    }


def parse_expectations(text: str) -> Expectations:
    """Return the known failures that a file with this text declares."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / EXPECTATIONS
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
        return load_expectations(Path(folder))
