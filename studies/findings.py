"""Write docs/findings.md anew from the known causes: ``python -m studies.findings``.

What stands above the mark is written by hand; a section of each cause comes below.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ivhl.tracker.support.known import known_causes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ivhl.tracker.support.known import KnownCause

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "findings.md"
_MARK: Final = "<!--below: ivhl/tracker/support/causes -->\n"
_GROUPS: Final = {
    "wrong": "Silently wrong",
    "fails": "Does not compile",
    "breaks": "Graph breaks and recompiles",
    "slow": "Slower",
}


def findings() -> str:
    """Return the page, with the causes as their files have them."""
    by_hand = PAGE.read_text(encoding="utf-8").partition(_MARK)[0]
    return "\n".join([by_hand + _MARK, *_sections()])


def _sections() -> Iterator[str]:
    order = list(_GROUPS)
    causes = sorted(known_causes(), key=lambda one: (order.index(_group(one)), one.name))
    for group, members in groupby(causes, _group):
        yield f"## {_GROUPS[group]}\n"
        for one in members:
            yield from _section(one)


def _group(cause: KnownCause) -> str:
    return cause.name.partition("-")[0]


def _section(cause: KnownCause) -> Iterator[str]:
    yield f"### {cause.title}\n"
    text = cause.text.strip()
    if cause.url and cause.url not in text:
        text = f"{text} Report: [{cause.short.partition('/')[2]}]({cause.url}).".strip()
    yield f"{text}\n"
    if cause.script:
        releases = ",".join(release for release, _ in cause.prints)
        python = "" if cause.python == "3.12" else f" --python {cause.python}"
        yield f"```console\n$ ivhl run {cause.script} --torch {releases}{python}"
        alike = groupby(cause.prints, lambda one: one[1])
        yield from (f"{', '.join(release for release, _ in some)}: {said}" for said, some in alike)
    else:
        yield f"```console\n$ {cause.command}"
    yield "```\n"


if __name__ == "__main__":
    PAGE.write_text(findings(), encoding="utf-8")
