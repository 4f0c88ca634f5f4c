"""Tables of Markdown for a pull request, of untrusted text: times of base and head, and others."""

from __future__ import annotations

import html
import math
import re
from itertools import accumulate
from statistics import median
from typing import TYPE_CHECKING
from urllib.parse import quote

from ivhl.records.identity import case_of
from ivhl.records.text import printable
from ivhl.tracker.store.records import case_name, newest_by
from ivhl.tracker.support.compat import release_key
from ivhl.tracker.wording import NOT_TIMED, marked, seconds, some, times

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from ivhl.records.record import Arm, RunRecord


_LONGEST_SHOWN = 250
# Of the references that ``html.escape`` wrote, nothing: they contain "&" and ";" only.
_MARKDOWN = re.compile(r"[\\`*_{}\[\]()#!|~@$:^=]|(?<=\bwww)\.", re.IGNORECASE)


def code(text: str) -> str:
    """Return the text escaped, as code for a table cell, cut after 250 characters.

    Inside of ``<code>``, Markdown still makes links, images and emphasis, and GitHub makes links of
    addresses (``https:``, ``www.``), mentions and issues. None begins with a character reference.
    """
    plain = html.escape(printable(text[:_LONGEST_SHOWN]), quote=False)
    # In one pass: the replacements themselves contain "&", "#" and ";".
    return f"<code>{_MARKDOWN.sub(lambda sign: f'&#{ord(sign[0])};', plain)}</code>"


def link(text: str, address: str) -> str:
    """Return Markdown as a link, also within a table."""
    # What neither ends the address nor the cell, nor is more of Markdown in it.
    return f"[{text}]({quote(address, safe='/:%+~')})"


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    most: int | None = None,
    room: float = math.inf,
) -> list[str]:
    """Return the lines of a table of cells that are Markdown; of more rows, how many there are.

    Args:
        heads: The first row.
        rows: The others.
        most: Rows that are shown.
        room: Bytes that they may have.
    """
    lines = [f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows)]
    sizes = accumulate(bytes_of([line]) for line in lines)
    shown = sum(size <= room for size in sizes) - 2
    shown = max(0, shown if most is None else min(shown, most))
    more = ["", f"And {len(rows) - shown} more."] if shown < len(rows) else []
    return [*lines[: shown + 2], *more]


def bytes_of(lines: Iterable[str]) -> int:
    """Return the size of lines, each with its end."""
    return sum(len(line.encode()) + 1 for line in lines)


_ROWS_SHOWN = 60
_MACHINES = 3


def times_table(
    records: Iterable[RunRecord],
    before: Collection[str],
    after: Collection[str],
    room: float = math.inf,
) -> list[str]:
    """Return the lines of a Markdown table: a row for each case that the head was measured in.

    Args:
        records: Records of any commits.
        before: Hashes of the commits with the base's code.
        after: Hashes of the commits with the head's code.
        room: Bytes that its rows may have.
    """
    records = list(records)
    base = newest_by((r for r in records if r.commit in before), case_of)
    head = newest_by((r for r in records if r.commit in after), case_of)
    rows = []
    for case in sorted(
        head, key=lambda one: (one.machine, one.python, release_key(one.torch), one)
    ):
        record = head[case]
        failed = record.failure.failure_class if record.failure else NOT_TIMED
        speedup = marked(times(record.speedup.value), record) if record.speedup else code(failed)
        arms = (base[case].eager if case in base else None, record.eager, record.compiled)
        names = code(record.cell.id), code(case_name(record))
        rows.append([*names, *map(_time, arms), speedup])
    if not rows:
        return []
    machines = some(sorted({code(case.machine) for case in head}), _MACHINES)
    heads = ["cell", "case", "base eager", "head eager", "head compiled", "speedup"]
    return [
        "",
        f"<details><summary>seconds per call on {machines}</summary>",
        "",
        *table(heads, rows, _ROWS_SHOWN, room),
        "",
        "</details>",
    ]


def _time(arm: Arm | None) -> str:
    return seconds(median(arm.samples_s)) if arm and arm.samples_s else "-"
