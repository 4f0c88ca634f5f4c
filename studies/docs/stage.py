"""Copy the pages into the folder that Sphinx reads, with links that work there.

A page stays as GitHub shows it. In its copy, links to other pages become links between pages of the
site, and links to files of the repository become links to the repository at the version.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

REPOSITORY: Final = "https://github.com/ivhl/ivhl"
FRONT: Final = "index"
# Pages outside of docs/, and folders that pages link to, each with its page of the site.
_NAMED: Final = {
    "README.md": FRONT,
    "docs/README.md": FRONT,
    "CONTRIBUTING.md": "contributing",
    "docs/commands.md": "commands/index",
    "observatory/README.md": "observatory",
    "docs/adr": "adr/index",
    "docs/reports": "reports/index",
    "docs/reports/README.md": "reports/index",
    "docs/schemas": "schemas",
}
_LINK: Final = re.compile(r"\]\((?!https?:|#|mailto:)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
_FENCE: Final = re.compile(r" *(`{3,}|~{3,})")
_ITEM: Final = re.compile(r"- \[(?P<title>[^]]+)\]\((?P<path>[^)#]+)\)")
# The list of pages on the front page takes the place of this section.
_NEXT: Final = "\n## Next\n"
_EVERY: Final = "```{toctree}\n:hidden:\n:glob:\n\n*\n```\n"


class PageError(ValueError):
    """A page cannot be built; the message names page, line and rule."""


def pages_of(root: Path) -> dict[str, str]:
    """Return the pages of the site: path in the repository to name in the site."""
    docs = root / "docs"
    found = {f"docs/{path.name}": path.stem for path in sorted(docs.glob("*.md"))}
    for folder in ("adr", "reports"):
        found |= {
            f"docs/{folder}/{path.name}": f"{folder}/{path.stem}"
            for path in sorted((docs / folder).glob("*.md"))
        }
    return found | _NAMED


def stage(root: Path, target: Path, commit: str, more: Mapping[str, Mapping[str, str]]) -> None:
    """Write the source of the site.

    Args:
        root: Folder of the repository.
        target: Empty folder.
        commit: Tag or commit to which links to files lead.
        more: Pages made from code: group of the navigation to titles, each with its page.

    Raises:
        PageError: If a link leads nowhere, or a group of the navigation is missing.
    """
    pages = pages_of(root)
    for path, name in pages.items():
        if name == FRONT or not (root / path).is_file():
            continue
        text = _with_links(root, path, name, pages, commit)
        if path == "docs/glossary.md":
            text = _with_index(text)
        if name == "reports/index":
            text += f"\n{_EVERY}"
        _write(target, name, text)
    _write(target, "adr/index", f"# Decisions\n\nEach with its reasons, and what was rejected.\n\n{
        _EVERY.replace(':hidden:', ':maxdepth: 1')}")
    _write(target, FRONT, _front(root, pages, commit, more))
    shutil.copytree(root / "docs" / "images", target / "images")


def _front(
    root: Path,
    pages: Mapping[str, str],
    commit: str,
    more: Mapping[str, Mapping[str, str]],
) -> str:
    """Return README.md, and below it the groups of docs/README.md with the navigation."""
    readme = _with_links(root, "README.md", FRONT, pages, commit).partition(_NEXT)[0]
    listed = (root / "docs" / "README.md").read_text(encoding="utf-8")
    left = dict(more)
    lines = []
    for group in listed.split("\n## ")[1:]:
        caption, _, text = group.partition("\n")
        items = [(m["title"], _resolved("docs/README.md", m["path"])) for m in _ITEM.finditer(text)]
        entries = [(t, "self" if pages[p] == FRONT else pages[p]) for t, p in items]
        made = [(title, name) for title, name in left.pop(caption, {}).items()]
        listing = _linked(root, text, "docs/README.md", FRONT, pages, commit).rstrip()
        lines += [f"\n## {caption}", listing, *(f"- [{t}]({name}.md)" for t, name in made), ""]
        lines += ["```{toctree}", ":hidden:", f":caption: {caption}", ""]
        lines += [*(f"{title} <{name}>" for title, name in (*entries, *made)), "```", ""]
    if left:
        raise PageError(f"docs/README.md: the groups must be there: {', '.join(left)}")
    return readme + "\n".join(lines)


def _with_links(
    root: Path, path: str, name: str, pages: Mapping[str, str], commit: str
) -> str:
    text = (root / path).read_text(encoding="utf-8")
    return _linked(root, text, path, name, pages, commit)


def _linked(
    root: Path, text: str, path: str, name: str, pages: Mapping[str, str], commit: str
) -> str:
    """Return the text of a page with the links that its copy needs; code is left as it is."""
    lines, fence = [], ""
    for number, line in enumerate(text.splitlines(), start=1):
        mark = _FENCE.match(line)
        if mark is not None and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        if fence:
            lines.append(line)
            continue

        def address(link: re.Match[str], number: int = number) -> str:
            to, anchor = _resolved(path, link["path"]), link["anchor"] or ""
            if not (root / to).exists():
                raise PageError(f"{path}:{number}: the link must lead to a file (got {to})")
            if to in pages:
                page = os.path.relpath(f"{pages[to]}.md", PurePosixPath(name).parent)
                return f"]({page}{anchor})"
            if to.startswith("docs/images/"):
                image = os.path.relpath(to.removeprefix("docs/"), PurePosixPath(name).parent)
                return f"]({image})"
            if to.startswith("docs/schemas/"):
                page = os.path.relpath("schemas.md", PurePosixPath(name).parent)
                return f"]({page}#{PurePosixPath(to).stem})"
            kind = "tree" if (root / to).is_dir() else "blob"
            return f"]({REPOSITORY}/{kind}/{commit}/{to}{anchor})"

        lines.append(_LINK.sub(address, line))
    return "\n".join(lines) + "\n"


def _resolved(path: str, link: str) -> str:
    return os.path.normpath(PurePosixPath(path).parent / link)


def _with_index(text: str) -> str:
    """Return the glossary with its words in the index, so that the search finds their rows."""

    def words(row: re.Match[str]) -> str:
        return "| " + ", ".join(f"{{index}}`!{word}`" for word in row[1].split(", ")) + " |"

    return re.sub(r"(?m)^\| (?!word |status )([\w, -]+?) \|", words, text)


def _write(target: Path, name: str, text: str) -> None:
    page = target / f"{name}.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, encoding="utf-8")
