"""Write the pages into the folder in which asv builds its site."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ivhl.pages.render import compatibility_html, compatibility_json, speedup_html
from ivhl.tracker.views import compatibility_view, page_view, rows_of, speedup_view

if TYPE_CHECKING:
    from pathlib import Path

    from ivhl.tracker.project import State


def write_pages(state: State, html_dir: Path) -> None:
    """Write *Compatibility* and *Speedup*, and ``compatibility.json``."""
    rows = rows_of(state)
    page = page_view(state, f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
    pages = {
        "compatibility.html": compatibility_html(compatibility_view(state, rows, page)),
        "speedup.html": speedup_html(speedup_view(state, rows, page)),
        "compatibility.json": compatibility_json(rows),
    }
    for name, text in pages.items():
        (html_dir / name).write_text(text, encoding="utf-8")
