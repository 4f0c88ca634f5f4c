"""Passages of the pages, for the search of docs/theme/static/search.js: an extension of Sphinx.

A passage is a section without its subsections, a row of the glossary, an option, or a function of
the API: what a reader looks for has an address of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from docutils import nodes
from sphinx import addnodes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sphinx.application import Sphinx

# Passages of their own, or no text of the page.
_APART: Final = (nodes.section, nodes.title, addnodes.desc, addnodes.toctree, nodes.comment)


class Passage(NamedTuple):
    """What the search finds.

    Attributes:
        page: Name of the page in the site.
        anchor: Place in the page; empty at its beginning.
        title: Title of the page.
        heading: Heading, word of the glossary, option or name; empty at the beginning of a page.
        text: What stands there, without markup.
        task: What the navigation says of the page, at its beginning.
    """

    page: str
    anchor: str
    title: str
    heading: str
    text: str
    task: str = ""


def passages_of(page: str, document: nodes.document) -> Iterator[Passage]:
    """Yield the passages of a page."""
    title = next((one.astext() for one in document.findall(nodes.title)), page)
    for section in document.findall(nodes.section):
        is_first = section.parent is document
        if not is_first and any(one["caption"] for one in section.findall(addnodes.toctree)):
            continue  # a group of the navigation, which tasks_of reads
        anchor, heading = ("", "") if is_first else (section["ids"][0], section[0].astext())
        rows = [row for row in section.findall(nodes.row) if _is_apart(row)]
        yield Passage(page, anchor, title, heading, _text(*section.children[1:]))
        for row in rows:
            words, *rest = row.children
            (target, *_) = row.findall(nodes.target)
            yield Passage(page, target["ids"][0], title, _text(words), _text(*rest))
    for described in document.findall(addnodes.desc):
        signature = next(described.findall(addnodes.desc_signature))
        names = ", ".join(_text(name) for name in signature.findall(addnodes.desc_name))
        anchor = next(iter(signature["ids"]), "")
        yield Passage(page, anchor, title, names, _text(*described.children[1:]))


def _is_apart(node: nodes.Node) -> bool:
    """Return whether a node is a passage of its own, or none."""
    # A row of the glossary has its words in the index.
    is_word = isinstance(node, nodes.row) and any(node.findall(addnodes.index))
    return is_word or isinstance(node, _APART)


def _text(*found: nodes.Node) -> str:
    """Return the text of nodes without the passages below them, in one line."""
    return " ".join("".join(_parts(found)).split())


def _parts(found: Iterable[nodes.Node]) -> Iterator[str]:
    for node in found:
        if isinstance(node, nodes.Text):
            yield node.astext()
        elif not _is_apart(node):
            yield from _parts(node.children)
            if not isinstance(node, nodes.Inline):  # a block ends
                yield " "


def tasks_of(front: nodes.document) -> dict[str, str]:
    """Return what the lists of the front page say of each page that they link to."""
    found = {}
    for item in front.findall(nodes.list_item):
        link = next(item.findall(nodes.reference), None)
        if link is not None and link.get("internal") and _text(item).startswith(_text(link)):
            found[link["refuri"].partition("#")[0].removesuffix(".html")] = _text(item)
    return found


class _Collected:
    """The passages of all pages, while Sphinx writes them."""

    def __init__(self) -> None:
        self.passages: list[Passage] = []
        self.tasks: dict[str, str] = {}

    def add(self, app: Sphinx, document: nodes.document, page: str) -> None:
        self.passages += passages_of(page, document)
        if page == app.config.root_doc:
            self.tasks = tasks_of(document)

    def write(self, app: Sphinx, _error: Exception | None) -> None:
        rows = [
            one._replace(task="" if one.heading else self.tasks.get(one.page, ""))
            for one in self.passages
        ]
        # A script, and no JSON: a page that is read from a disk may not load data.
        text = f"window.PASSAGES = {json.dumps(rows, ensure_ascii=False)};\n"
        (Path(app.outdir) / "passages.js").write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Collect the passages of the pages that Sphinx writes."""
    collected = _Collected()
    app.connect("doctree-resolved", collected.add)
    app.connect("build-finished", collected.write)
    return {"parallel_read_safe": True, "parallel_write_safe": False}
