"""Write the pages into a folder."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ivhl.pages.render import compatibility_json, data_script, feed, render, static_files
from ivhl.tracker.views.case import case_view, cell_details
from ivhl.tracker.views.environment import environment_views
from ivhl.tracker.views.front import front_view
from ivhl.tracker.views.incidents import regressions_view
from ivhl.tracker.views.matrix import matrix_views
from ivhl.tracker.views.run import run_views
from ivhl.tracker.views.sides import choices, side_files, sides_of
from ivhl.tracker.views.source import cell_data

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ivhl.tracker.views.source import Source

_MOST_RUNS = 500  # that the list of runs shows


def write_pages(source: Source, new: Path, old: Path | None = None, asv: str = "") -> None:
    """Write all pages and their data.

    Args:
        source: What they show.
        new: Folder to write into.
        old: Folder of the earlier site: what is unchanged is linked from it and not written again.
        asv: When asv's pages were made, as text; empty if the site has none.
    """
    made: set[Path] = set()
    with _opened(old) as earlier:
        for path, data in site_files(source, asv):
            target = new / path
            if target.parent not in made:
                target.parent.mkdir(parents=True, exist_ok=True)
                made.add(target.parent)
            if earlier is None or not _linked(earlier, path, target, data):
                target.write_bytes(data)


def site_files(source: Source, asv: str = "") -> Iterator[tuple[str, bytes]]:
    """Yield the address and the content of every file of the site."""
    page = source.page
    yield from static_files().items()
    yield "compatibility.json", compatibility_json(source.rows)
    for place in page.places:
        front = front_view(source, place)
        yield front.href, render("front.html", page, front.href, view=front)
        for matrix in matrix_views(source, place):
            yield matrix.href, render("matrix.html", page, matrix.href, view=matrix)
    for series, rows in source.by_series.items():
        case = case_view(source, series)
        yield case.href, render("case.html", page, case.href, view=case)
        for row in rows:
            if row.record is not None:
                path = cell_data(series, row.cell)
                yield path, data_script(path, cell_details(source, row))
    regressions = regressions_view(source)
    yield (
        "regressions.html",
        render("regressions.html", page, "regressions.html", view=regressions),
    )
    path = "compare.html"
    sides = sides_of(source)
    yield path, render(path, page, path, choices=choices(source, sides))
    for path, side in side_files(source, sides):
        yield path, data_script(path, side)
    yield "feed.xml", feed(regressions)
    cells, runs = environment_views(source), run_views(source)
    for one in cells:
        yield one.href, render("environment.html", page, one.href, view=one)
    for run in runs:
        yield run.href, render("run.html", page, run.href, view=run)
    path = "environments.html"
    left_out = max(0, len(runs) - _MOST_RUNS)
    yield path, render(path, page, path, cells=cells, runs=runs[:_MOST_RUNS], left_out=left_out)
    yield "asv.html", render("asv.html", page, "asv.html", made=asv)


@contextmanager
def _opened(folder: Path | None) -> Iterator[int | None]:
    """Yield a descriptor of the folder, which stays the same if another run replaces it."""
    if folder is None or not folder.is_dir():
        yield None
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _linked(earlier: int, path: str, target: Path, data: bytes) -> bool:
    """Link an unchanged file of the earlier site; return whether it is one and could be linked."""
    try:
        with open(os.open(path, os.O_RDONLY, dir_fd=earlier), "rb") as file:  # noqa: PTH123
            if file.read() != data:
                return False
        os.link(path, target, src_dir_fd=earlier)
    except OSError:
        return False
    return True
