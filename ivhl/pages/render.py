"""Render the views as HTML, scripts with data, JSON and a feed."""

from __future__ import annotations

import json
import math
import re
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from ivhl.records.text import visible, visible_json
from ivhl.tracker.store.indexing import code_version
from ivhl.tracker.views.source import PageView, slug
from ivhl.tracker.wording import seconds, times

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ivhl.observatory.views import WorseRelease
    from ivhl.tracker.views.source import View

# The tabs: address from the root of the site, and text.
TABS: Final = (
    ("index.html", "Overview"),
    ("matrix.html", "Matrix"),
    ("regressions.html", "Regressions"),
    ("compare.html", "Compare"),
    ("environments.html", "Environments"),
    ("asv.html", "asv"),
)
# Of a site that shows libraries first: its own suite comes after them.
_TABS_WITH_LIBRARIES: Final = (
    ("index.html", "Libraries"),
    ("signatures.html", "Signatures"),
    ("suite.html", "Suite"),
    *TABS[1:],
)
_UPLOT: Final = "vendor/uPlot-1.6.32.iife.min.js"
_UPLOT_STYLE: Final = "vendor/uPlot-1.6.32.min.css"
# Template to its tab, its scripts, and whether it draws.
_PAGES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "front.html": ("index.html", ()),
    "matrix.html": ("matrix.html", ("site.js", "details.js", "matrix.js")),
    "case.html": ("matrix.html", (_UPLOT, "site.js", "details.js", "charts.js", "case.js")),
    "regressions.html": ("regressions.html", ("site.js", "regressions.js")),
    "compare.html": ("compare.html", ("site.js", "compare.js")),
    "environment.html": ("environments.html", ()),
    "environments.html": ("environments.html", ()),
    "run.html": ("environments.html", ()),
    "asv.html": ("asv.html", ("site.js",)),
    "libraries.html": ("index.html", ("site.js", "libraries.js")),
    "library.html": ("index.html", ("site.js",)),
    "release.html": ("index.html", ()),
    "signature.html": ("signatures.html", ("site.js",)),
    "signatures.html": ("signatures.html", ()),
}
_REPORT: Final = re.compile(
    r"https://github\.com/pytorch/(?P<name>[\w-]+)/(?P<kind>issues|pull)/(?P<number>\d{1,9})\b"
    r"|\b(?:pytorch/)?(?P<project>pytorch)#(?P<short>\d{1,9})\b"
    r"|(?<![\w/.])(?P<document>docs/[\w-]+\.md)(?P<anchor>#[\w-]+)?",
    re.ASCII,
)
_SMALL_HEIGHT = 32.0  # of the small picture of a change
_SMALL_EDGE = 5.0


def _finalize(value: object) -> object:
    """Write out what cannot be seen in any text, before it is escaped."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _height(value: float, values: Sequence[float]) -> str:
    """Return the height of a point in the small picture, on a logarithmic scale."""
    logs = [math.log(one) if one > 0 else 0.0 for one in values]
    low, high = min(logs), max(logs)
    share = ((math.log(value) if value > 0 else 0.0) - low) / ((high - low) or 1.0)
    return f"{_SMALL_HEIGHT - _SMALL_EDGE - share * (_SMALL_HEIGHT - 2 * _SMALL_EDGE):.1f}"


def _linked(text: str, repository: str = "") -> Markup:
    """Return what a maintainer wrote, with links to reports of PyTorch and the project's docs only.

    Only for known failures, notes on changes and known causes: texts of records are no links.

    Args:
        text: What was written.
        repository: Address of the project on GitHub; empty if it has none, and no docs are linked.
    """
    parts, end = [], 0
    text = visible(text)
    for found in _REPORT.finditer(text):
        shown, name = found["document"] or found[0], found["name"] or found["project"]
        # GitHub leads from an issue to a pull request and back.
        page = "pull" if found["kind"] == "pull" else "issues"
        href = f"https://github.com/pytorch/{name}/{page}/{found['number'] or found['short']}"
        if found["document"]:
            href = f"{repository}/blob/HEAD/{found[0]}"
        parts += [escape(text[end : found.start()])]
        is_link = not found["document"] or repository
        link = Markup('<a href="{}" rel="noreferrer">{}</a>')
        parts += [link.format(href, shown) if is_link else escape(shown)]
        end = found.end()
    return Markup("").join([*parts, escape(text[end:])])


def _data_block(data: object) -> Markup:
    """Return data for a ``<script type="application/json">``: nothing in it can end the element."""
    text = visible_json(_ENCODE(data))
    return Markup(text.replace("<", "\\u003c"))  # noqa: S704  (escaped here)


# Packages and modules that decide what is in a file of the site.
_SOURCES: Final = ("pages", "observatory", "tracker", "records", "instrument.py", "workload.py")
code_digest = partial(code_version, *_SOURCES)

_TEMPLATES = Environment(
    loader=PackageLoader("ivhl.pages", "templates"),
    autoescape=True,  # exception messages come from untrusted code
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    finalize=_finalize,
)
_TEMPLATES.filters |= {
    "slug": slug,
    "times": times,
    "seconds": seconds,
    "height": _height,
    "linked": _linked,
    "data_block": _data_block,
}


@cache
def static_files() -> dict[str, bytes]:
    """Return the scripts, styles and vendored files of the site by their address."""
    folder = Path(__file__).with_name("static")
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def render(template: str, page: PageView, path: str, **values: object) -> bytes:
    """Return a page.

    Args:
        template: File name of its template.
        page: What all pages share.
        path: Address of the page from the root of the site.
        values: What the template inserts.
    """
    tab, scripts = _PAGES[template]
    styles = ("site.css", _UPLOT_STYLE) if _UPLOT in scripts else ("site.css",)
    html = _TEMPLATES.get_template(template).render(
        page=page,
        tab=page.front if template == "front.html" else tab,
        tabs=TABS if page.front == "index.html" else _TABS_WITH_LIBRARIES,
        scripts=scripts,
        styles=styles,
        root="../" * path.count("/"),
        version=code_version("pages/static")[:10],  # so that a browser keeps no older scripts
        **values,
    )
    return html.encode("utf-8", "backslashreplace")


def feed(page: PageView, view: View, releases: Sequence[WorseRelease] = ()) -> bytes:
    """Return what became worse as an Atom feed, newest first.

    Its links are whole if the address of the site is known, else relative to it.
    """
    entries = [
        {
            "id": one.id,
            "at": one.at,
            "href": f"regressions.html#{one.id}",
            "title": f"{one.title}: {one.counts}",
            "summary": f"Largest: {one.worst}. "
            + (f"Known: {one.cause.rstrip('.')}." if one.cause else "Cause not known.")
            + f" State: {one.states}.",
        }
        for one in view.incidents
        if one.worse
    ] + [one._asdict() for one in releases]
    entries.sort(key=lambda one: one["at"], reverse=True)
    text = _TEMPLATES.get_template("feed.xml").render(page=page, entries=entries[:_MOST_ENTRIES])
    return text.encode("utf-8", "backslashreplace")


def badge(said: Mapping[str, str]) -> bytes:
    """Return a picture of a label and a message, ``color`` behind the message."""
    # Verdana of 11 pixels is 6.6 wide on average; ``textLength`` fits other fonts in.
    left, right = (round(6.6 * len(said[name])) + 12 for name in ("label", "message"))
    return _TEMPLATES.get_template("badge.svg").render(left=left, right=right, **said).encode()


def data_script(path: str, data: dict[str, Any], **lists: Iterable[str]) -> bytes:
    """Return a file of data: a script that calls a function of ``site.js``.

    A page that is opened as a file may load scripts, and nothing else, of its folder.

    Args:
        path: Address of the file.
        data: An object for JSON.
        lists: More of its members: lists whose items are JSON already.
    """
    text = _ENCODE(data)
    for name, items in lists.items():
        text = f'{text[:-1]},"{name}":[{",".join(items)}]}}'
    return f"site.give({_ENCODE(path)},{visible_json(text)});\n".encode()


_MOST_ENTRIES: Final = 100
_ENCODE: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
