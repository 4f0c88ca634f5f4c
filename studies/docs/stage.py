"""Copy the pages into the folder that Sphinx reads, with links that work there.

A page stays as GitHub shows it. In its copy, links to other pages become links between pages of the
site, links to files of the repository become links to the repository at the version, and the title
is the name that the navigation has for the page.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
# The text of a link may be the name of its file.
_LINK: Final = re.compile(
    r"(?P<text>\[[\w/.-]+\.md)?\]\((?!https?:|#|mailto:)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)"
)
_FENCE: Final = re.compile(r" *(`{3,}|~{3,})")
_ITEM: Final = re.compile(r"- \[(?P<title>[^]]+)\]\((?P<name>[^)#]+)\.md\)")
# As GitHub shows it: a link to an issue or pull request.
_ISSUE: Final = re.compile(r"(?<![\w/`\[(])([\w.-]+/[\w.-]+)#(\d+)\b")
# A report quotes docstrings, in which code stands between two marks.
_CODE: Final = re.compile(r"\\`\\`(.+?)\\`\\`")
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


@dataclass(frozen=True, slots=True)
class PagesAtVersion:
    """The pages of a repository, and where their links lead.

    Attributes:
        root: Folder of the repository.
        pages: Path in the repository to name in the site.
        version: Tag or branch to which links to files lead.
    """

    root: Path
    pages: Mapping[str, str]
    version: str

    def read(self, path: str) -> str:
        """Return the text of a page with the links that its copy needs."""
        text = (self.root / path).read_text(encoding="utf-8")
        return self.linked(text, path, self.pages[path])

    def linked(self, text: str, path: str, name: str) -> str:
        """Return the text of the page ``path`` with the links of the page ``name`` of the site.

        Code stays as it is. A link whose text is the name of a page gets no text: MyST then takes
        the title of the page.

        Raises:
            PageError: If a link leads nowhere.
        """
        lines, fence = [], ""
        for number, line in enumerate(text.splitlines(), start=1):
            mark = _FENCE.match(line)
            if mark is not None and (not fence or mark[1].startswith(fence)):
                fence = "" if fence else mark[1]
            changed = line
            if not fence:
                for link in _LINK.finditer(line):
                    address = self._address(link["path"], path, name, number)
                    text = "[" if link["text"] and ":" not in address else link["text"] or ""
                    shown = f"{text}]({address}{link['anchor'] or ''})"
                    changed = changed.replace(link[0], shown)
                changed = _CODE.sub(lambda code: "`" + code[1].replace("\\", "") + "`", changed)
                changed = _ISSUE.sub(r"[\1#\2](https://github.com/\1/issues/\2)", changed)
            lines.append(changed)
        return "\n".join(lines) + "\n"

    def _address(self, link: str, path: str, name: str, number: int) -> str:
        to = _resolved(path, link)
        if not (self.root / to).exists():
            raise PageError(f"{path}:{number}: the link must lead to a file (got {to})")
        if to in self.pages:
            place = f"{self.pages[to]}.md"
        elif to.startswith("docs/images/"):
            place = to.removeprefix("docs/")
        elif to.startswith("docs/schemas/"):
            page = os.path.relpath("schemas.md", Path(name).parent)
            return f"{page}#{anchor_of(Path(to))}"
        else:
            kind = "tree" if (self.root / to).is_dir() else "blob"
            return f"{REPOSITORY}/{kind}/{self.version}/{to}"
        return os.path.relpath(place, Path(name).parent)


def anchor_of(schema: Path) -> str:
    """Return where the page of all schemas has one, or a folder of them, by its path."""
    return "-".join(schema.with_suffix("").parts[2:])


def stage(root: Path, target: Path, version: str, more: Mapping[str, Sequence[str]]) -> None:
    """Write the source of the site.

    Args:
        root: Folder of the repository.
        target: Empty folder.
        version: Tag or branch to which links to files lead.
        more: Pages made from code: group of the navigation to items of its list.

    Raises:
        PageError: If a link leads nowhere, or a group of the navigation is missing.
    """
    source = PagesAtVersion(root, pages_of(root), version)
    titles = {m["name"]: m["title"] for m in _ITEM.finditer(source.read("docs/README.md"))}
    for path, name in source.pages.items():
        if name == FRONT or not (root / path).is_file():
            continue
        text = source.read(path)
        if name in titles:
            text = f"# {titles[name]}\n" + text.partition("\n")[2]
        if path == "docs/glossary.md":
            text = _with_index(text)
        if name == "reports/index":
            text += f"\n{_EVERY}"
        _write(target, name, text)
    shown = _EVERY.replace(":hidden:", ":maxdepth: 1")
    _write(target, "adr/index", f"# Decisions\n\nEach with what was rejected, and why.\n\n{shown}")
    _write(target, FRONT, _front(source, more))
    shutil.copytree(root / "docs" / "images", target / "images")


def _front(source: PagesAtVersion, more: Mapping[str, Sequence[str]]) -> str:
    """Return README.md, and below it the groups of docs/README.md with the navigation."""
    listed = source.read("docs/README.md")
    left = dict(more)
    lines = []
    for group in listed.split("\n## ")[1:]:
        caption, _, text = group.partition("\n")
        rows = [*text.strip().splitlines(), *left.pop(caption, ())]
        items = [(m["title"], m["name"]) for m in _ITEM.finditer("\n".join(rows))]
        entries = [f"{title} <{'self' if name == FRONT else name}>" for title, name in items]
        shown = [row for row in rows if f"]({FRONT}.md)" not in row]  # the page itself
        lines += [f"\n## {caption}", "", *shown, "", "```{toctree}"]
        lines += [":hidden:", f":caption: {caption}"]
        lines += ["", *entries, "```", ""]
    if left:
        raise PageError(f"docs/README.md: a group must be there: {', '.join(left)}")
    return source.read("README.md").partition(_NEXT)[0] + "\n".join(lines)


def _resolved(path: str, link: str) -> str:
    return os.path.normpath(Path(path).parent / link)


def _with_index(text: str) -> str:
    """Return the glossary with its words in the index, so that the search finds their rows."""

    def words(row: re.Match[str]) -> str:
        return "| " + ", ".join(f"{{index}}`!{word}`" for word in row[1].split(", ")) + " |"

    return re.sub(r"(?m)^\| (?!word |status )([\w, -]+?) \|", words, text)


def _write(target: Path, name: str, text: str) -> None:
    page = target / f"{name}.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, encoding="utf-8")
