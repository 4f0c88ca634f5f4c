"""Tables of what the stored sessions of ``ivhl confirm`` said, and of what their processes did."""

from __future__ import annotations

import math
from collections import Counter
from itertools import chain
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from ivhl.bench.confirm import WEIGHED
from studies.tables.layout import markdown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STORED: Final = Path(__file__).with_name("comparisons.jsonl")
PLANTED: Final = {"same": "the same code", "more": "5 % more work"}


def report(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the lines of both tables, and of the conditions."""
    said = []
    for planted, name in PLANTED.items():
        mine = [row for row in rows if row["planted"] == planted]
        ratios = [math.exp(median(chain(*row["moves"]["compiled"]))) for row in mine]
        before, after = (Counter(str(row[f]) for row in mine) for f in ("before", "verdict"))
        rounds = Counter(row["rounds"] for row in mine)
        said.append(
            [
                name,
                f"{min(ratios):.2f}x to {max(ratios):.2f}x",
                *(
                    ", ".join(f"{n} {word}" for word, n in sorted(c.items()))
                    for c in (before, after)
                ),
                ", ".join(f"{n} after {number}" for number, n in sorted(rounds.items())),
            ]
        )
    loads = [row["load"] for row in rows]
    sessions = len({(row["session"], row["session_s"]) for row in rows})
    conditions = (
        f"{sessions} sessions of six cases each, load average {min(loads):.1f} to {max(loads):.1f}. "
        "What two processes of the same code that took turns differ by, and the median of a round:"
    )
    heads = ["head", "compiled", "by one run of each", "by `confirm`", "rounds"]
    return [
        *markdown(heads, said),
        "",
        conditions,
        "",
        *markdown(
            ["quantity", "pairs", "half within", "95 % within", "rounds", "95 % within"],
            _apart(rows),
        ),
    ]


def _apart(rows: Sequence[dict[str, Any]]) -> Iterator[list[str]]:
    same = [row for row in rows if row["planted"] == "same"]
    for metric in WEIGHED:
        rounds = [one for row in same for one in row["moves"][metric]]
        pairs = [abs(move) for one in rounds for move in one]
        middles = [abs(median(one)) for one in rounds]
        yield [
            metric,
            str(len(pairs)),
            _percent(median(pairs)),
            _percent(_most_of(pairs)),
            str(len(rounds)),
            _percent(_most_of(middles)),
        ]


def _most_of(sizes: Sequence[float]) -> float:
    """Return what 95 % of the values do not exceed."""
    return sorted(sizes)[math.ceil(0.95 * len(sizes)) - 1]


def _percent(size: float) -> str:
    return f"{100 * size:.1f} %"
