"""Write the pages into a folder."""

from __future__ import annotations

import errno
import json
import os
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ivhl.errors import IvhlError
from ivhl.observatory import views
from ivhl.pages.render import badge, code_digest, data_script, feed, render, static_files
from ivhl.tracker.support.compat import Row, compat_json
from ivhl.tracker.support.table import csv_text
from ivhl.tracker.views.case import case_view, cell_details, course_part, parts_of
from ivhl.tracker.views.environment import environment_views
from ivhl.tracker.views.facts import signed_by
from ivhl.tracker.views.front import front_view
from ivhl.tracker.views.incidents import regressions_view
from ivhl.tracker.views.matrix import matrix_views
from ivhl.tracker.views.run import run_lines, run_view
from ivhl.tracker.views.sides import JUDGED, choices, side, side_files, sides_of
from ivhl.tracker.views.source import Source, View, case_page, cell_data

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ivhl.observatory.rows import Library
    from ivhl.observatory.views import Libraries
    from ivhl.tracker.store.entries import Entry

# What the system answers to a name that no file can have, or that another file has.
_OF_A_NAME: Final = frozenset(
    (errno.EEXIST, errno.EILSEQ, errno.EINVAL, errno.EISDIR, errno.ENAMETOOLONG, errno.ENOTDIR)
)
_LONGEST_REASON = 500
_MOST_RUNS = 500  # that the list of runs shows
_MOST_SIGNATURES = 200  # that their list shows
# What each file of a site was made from, so that the next site need not make it again.
MADE_FROM: Final = ".made-from.json"


class SiteFile(NamedTuple):
    """A file of the site.

    Attributes:
        path: Address from the root of the site.
        content: Makes its content.
        made_from: Digest of all that the content is made from; empty where making it is the way to
            find out whether it is another one.
    """

    path: str
    content: Callable[[], bytes]
    made_from: str = ""


def write_pages(
    source: Source,
    new: Path,
    old: Path | None = None,
    asv: str = "",
    libraries: Libraries | None = None,
) -> tuple[str, ...]:
    """Write all pages and their data; return those that cannot be made, each with the reason.

    Records come from other machines: a page that one of them breaks is left out, and keeps none of
    the others from being written.

    Args:
        source: What they show.
        new: Folder to write into, without any of the files: one may be a link into another site.
        old: Folder of the earlier site: what is unchanged is linked from it and not written again.
        asv: When asv's pages were made, as text; empty if the site has none.
        libraries: What is known of libraries; ``None`` if the project has no table of them.

    Raises:
        IvhlError: If the records change meanwhile.
        OSError: If the disk is full, or the folder cannot be written.
    """
    left_out: list[str] = []
    made_from: dict[str, str] = {}
    with _opened(old) as earlier:
        known = {} if earlier is None else _known(earlier)
        for name, part in _parts(source, asv, libraries):
            files = part()
            while True:
                file = None
                with _leaving_out(name, left_out):
                    file = next(files, None)
                if file is None:
                    break
                with _leaving_out(file.path, left_out):
                    _write(file, new, earlier, known)
                    if file.made_from:
                        made_from[file.path] = file.made_from
    (new / MADE_FROM).write_text(json.dumps(made_from), encoding="utf-8")
    return tuple(left_out)


@contextmanager
def _leaving_out(name: str, left_out: list[str]) -> Iterator[None]:
    """Name what cannot be made, and go on with what comes after it."""
    try:
        yield
    except (IvhlError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno not in _OF_A_NAME:
            raise
        text = f"{name}: cannot be made and is left out: {type(error).__name__}: {error}"
        left_out.append(text[:_LONGEST_REASON])


def _write(file: SiteFile, new: Path, earlier: int | None, known: Mapping[str, str]) -> None:
    target = new / file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    same = file.made_from and known.get(file.path) == file.made_from
    if same and earlier is not None and _linked(earlier, file.path, target):
        return
    data = file.content()
    if earlier is None or not _linked(earlier, file.path, target, data):
        with target.open("xb", buffering=0) as written:  # of thousands, each in one call
            written.write(data)


def _parts(
    source: Source, asv: str, libraries: Libraries | None
) -> Iterator[tuple[str, Callable[[], Iterator[SiteFile]]]]:
    """Yield the name of each part of the site, and what yields its files.

    A part that breaks keeps no other from being made.
    """
    yield "static files", _static
    compatibility = SiteFile("compatibility.json", lambda: compat_json(source.rows).encode())
    yield compatibility.path, lambda: iter([compatibility])
    pages = partial(partial, _pages, source)
    for place in source.page.places:
        yield f"front page of {place.name}", pages("front.html", front_view, source, place)
        yield f"matrix of {place.name}", pages("matrix.html", matrix_views, source, place)
    for series, rows in source.by_series.items():
        yield case_page(series), pages("case.html", case_view, source, series)
        for row in rows:
            if row.recorded is not None:
                yield cell_data(series, row.cell), partial(_details, source, row)
    yield "regressions.html", partial(_regressions, source, libraries)
    yield "compare.html", partial(_comparison, source)
    yield "environments.html", partial(_environments, source)
    yield "asv.html", lambda: iter([_page(source, "asv.html", "asv.html", made=asv)])
    if libraries is None:
        return
    for path, python in (("index.html", libraries.main), *libraries.pythons):
        yield path, partial(_table, source, libraries, path, python)
    for library in libraries.rows:
        view = views.library_view, libraries, source, library
        yield views.library_page(library.name), pages("library.html", *view)
        yield views.badge_page(library.name), partial(_badges, libraries, library)
    yield "signatures.html", partial(_signatures, source, libraries)
    yield "pages of releases", pages("release.html", views.release_views, libraries)
    yield "observatory.json", partial(_observed, libraries)
    yield "locks of libraries", partial(_locks, libraries)


def _pages(
    source: Source, template: str, make: Callable[..., Any], *asked: object
) -> Iterator[SiteFile]:
    """Yield the pages of what makes one view, or several."""
    found = make(*asked)
    for view in (found,) if hasattr(found, "href") else found:
        yield _page(source, template, view.href, view=view)


def _table(source: Source, libraries: Libraries, path: str, python: str) -> Iterator[SiteFile]:
    yield _page(source, "libraries.html", path, view=views.table_view(libraries, source, python))


def _signatures(source: Source, libraries: Libraries) -> Iterator[SiteFile]:
    every = views.signature_views(libraries)
    shown = {"views": every[:_MOST_SIGNATURES], "left_out": max(0, len(every) - _MOST_SIGNATURES)}
    yield _page(source, "signatures.html", "signatures.html", **shown)
    for view in every:
        yield _page(source, "signature.html", view.href, view=view)


def _observed(libraries: Libraries) -> Iterator[SiteFile]:
    rows = views.rows_for_programs(libraries)
    lines = ",\n".join(map(json.dumps, rows))
    whole = f'{{"schema": "{views.SCHEMA}", "rows": [\n{lines}\n]}}\n'
    yield SiteFile("observatory.json", whole.encode)
    table = csv_text(rows)
    yield SiteFile("observatory.csv", partial(table.encode, errors="backslashreplace"))


def _badges(libraries: Libraries, row: Library) -> Iterator[SiteFile]:
    """Yield each badge as a picture, and as what shields.io makes a picture of."""
    for path, said in views.badges_of(libraries, row):
        yield SiteFile(f"{path}.svg", partial(badge, said))
        yield SiteFile(f"{path}.json", json.dumps({"schemaVersion": 1, **said}).encode)


def _locks(libraries: Libraries) -> Iterator[SiteFile]:
    """Yield what libraries add to the locks of cells, as it is."""
    for name, data in libraries.locks.items():
        yield SiteFile(f"lock/{name}.txt", partial(bytes, data))


def _static() -> Iterator[SiteFile]:
    for path, data in static_files().items():
        yield SiteFile(path, partial(bytes, data))


def _regressions(source: Source, libraries: Libraries | None) -> Iterator[SiteFile]:
    view = regressions_view(source)
    releases = views.worse_releases(libraries) if libraries is not None else []
    yield _page(source, "regressions.html", "regressions.html", view=view)
    yield SiteFile("feed.xml", partial(feed, source.page, view, releases))


def _comparison(source: Source) -> Iterator[SiteFile]:
    sides = sides_of(source)
    yield _page(source, "compare.html", "compare.html", choices=choices(source, sides))
    learnt = source.state.spreads.digest(JUDGED)
    for path, entries in side_files(sides):
        yield _side(source, path, entries, learnt)


def _environments(source: Source) -> Iterator[SiteFile]:
    cells, runs = environment_views(source), run_lines(source)
    for cell in cells:
        yield _page(source, "environment.html", cell.href, view=cell)
    for run in runs:
        yield _run(source, run)
    left_out = max(0, len(runs) - _MOST_RUNS)
    shown = {"cells": cells, "runs": runs[:_MOST_RUNS], "left_out": left_out}
    yield _page(source, "environments.html", "environments.html", **shown)


def _page(source: Source, template: str, path: str, **values: object) -> SiteFile:
    return SiteFile(path, partial(render, template, source.page, path, **values))


def _details(source: Source, row: Row) -> Iterator[SiteFile]:
    """Yield the file that the details of a case in a cell are loaded from, and its older course."""
    path, course = cell_data(row.series, row.cell), source.course(row)
    *older, newest = parts_of(course)
    assert row.recorded is not None  # noqa: S101  (the caller looked)
    entry = row.recorded.entry
    spread = source.state.spreads.of(entry)
    signed = signed_by(row.record, source.provenance) if source.provenance and row.record else ()
    made_from = source.digest_of(
        course, *(code_digest(), entry.commit, repr(spread), repr(signed), repr(row.expectation))
    )

    def content() -> bytes:
        return data_script(path, cell_details(source, row), points=source.points_of(newest))

    yield SiteFile(path, content, made_from)
    for number, part in enumerate(older, 1):
        yield _older_part(source, row, number, part)


def _older_part(source: Source, row: Row, number: int, part: Sequence[Entry]) -> SiteFile:
    """Return the file of an older part of a course; ``number`` counts from the oldest, from 1."""
    path = cell_data(row.series, row.cell, number)
    end = number * len(part)
    # With the point before, to which the first one is compared.
    seen = source.course(row)[max(0, end - len(part) - 1) : end]

    def content() -> bytes:
        history = {"history": course_part(source, row, number)}
        return data_script(path, history, points=source.points_of(part))

    return SiteFile(path, content, source.digest_of(seen, code_digest(), f"{number}"))


def _side(source: Source, path: str, entries: Sequence[Entry], learnt: str) -> SiteFile:
    """Return the file of a side of a comparison; ``learnt`` is a digest of the spreads."""

    def content() -> bytes:
        return data_script(path, side(source, entries))

    return SiteFile(path, content, source.digest_of(entries, code_digest(), learnt))


def _run(source: Source, line: View) -> SiteFile:
    page = source.page
    made_from = source.digest_of(line.entries, code_digest(), page.project, *page.problems)

    def content() -> bytes:
        return render("run.html", page, line.href, view=run_view(source, line))

    return SiteFile(line.href, content, made_from)


def _known(earlier: int) -> Mapping[str, str]:
    """Return what the files of the earlier site were made from; empty if it does not say."""
    try:
        with open(os.open(MADE_FROM, os.O_RDONLY, dir_fd=earlier), "rb") as file:  # noqa: PTH123
            known = json.load(file)
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


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


def _linked(earlier: int, path: str, target: Path, data: bytes | None = None) -> bool:
    """Link a file of the earlier site; return whether that could be done.

    Args:
        earlier: Descriptor of the earlier site.
        path: Address of the file.
        target: The link.
        data: What the file must hold, if that is not known otherwise.
    """
    try:
        if data is not None:
            with open(os.open(path, os.O_RDONLY, dir_fd=earlier), "rb") as file:  # noqa: PTH123
                if file.read() != data:
                    return False
        os.link(path, target, src_dir_fd=earlier)
    except OSError:
        return False
    return True
