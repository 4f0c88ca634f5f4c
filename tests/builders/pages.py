"""The code blocks of the documentation, as a reader copies them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from markdown_it import MarkdownIt

from studies.tables.blocks import blocks_of

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (
    "README.md",
    "CONTRIBUTING.md",
    "observatory/README.md",
    "changelog.d/README.md",
    *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))),
)
# A comment after a command: two spaces before it, or a hash.
_COMMENT: Final = re.compile(r"\s{2,}\S.*$|\s+#\s.*$")
_PROMPT: Final = "$ "


class CodeBlock(NamedTuple):
    """A block of code of a page: its place, its language (empty if indented) and its text."""

    page: str
    line: int
    language: str
    text: str


def code_blocks() -> Iterator[CodeBlock]:
    """Yield the blocks of all pages, except what ``python -m studies.tables`` writes and tests."""
    for page in PAGES:
        path = ROOT / page
        text = path.read_text(encoding="utf-8")
        made = [range(b.line, b.line + len(b.content) + 2) for b in blocks_of(path)]
        for token in MarkdownIt().parse(text):
            if token.type not in {"fence", "code_block"} or token.map is None:
                continue
            line = token.map[0] + 1
            if not any(line in lines for lines in made):
                yield CodeBlock(page, line, token.info, token.content)


def commands(block: CodeBlock) -> list[str]:
    """Return the command lines of a block: all lines if it is indented, else those with a prompt."""
    lines = block.text.replace("\\\n", " ").splitlines()
    if block.language == "console":
        lines = [line.removeprefix(_PROMPT) for line in lines if line.startswith(_PROMPT)]
    return [" ".join(_COMMENT.sub("", line).split(" ")).strip() for line in lines if line.strip()]
