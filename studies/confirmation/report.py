"""Tables of what ``ivhl gate --confirm`` says of stored sessions, and what processes did.

The rule is today's, on the pairs that a session kept, round by round. An earlier rule may have ended
a session where today's would go on.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from itertools import chain
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from ivhl.bench.experiment.evidence import ROUNDS, WEIGHED, evidence_of, verdict_of
from studies.tables.layout import markdown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

STORED: Final = Path(__file__).with_name("comparisons.jsonl")
DRAWN: Final = Path(__file__).with_name("drawn.json")
# Not decided after the rounds that were measured, which were fewer than today's rule takes.
GOES_ON: Final = "to continue"
# Words of the stored sessions that have changed since.
_FORMER: Final = {"noisy": "inconclusive", "same": "unchanged"}
PLANTED: Final = {"same": "the same code", "more": "5 % more work"}


def report(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the lines of both tables, and of the conditions."""
    said = []
    for planted, name in PLANTED.items():
        mine = [row for row in rows if row["planted"] == planted]
        ratios = [math.exp(median(chain(*row["moves"]["compiled"]))) for row in mine]
        judged = [judge_again(row["moves"]) for row in mine]
        before = Counter(_FORMER.get(row["before"], row["before"]) for row in mine)
        after = Counter(v for v, _ in judged)
        said.append(
            [
                name,
                f"{min(ratios):.2f}x to {max(ratios):.2f}x",
                *(
                    ", ".join(f"{n} {word}" for word, n in sorted(c.items()))
                    for c in (before, after)
                ),
            ]
        )
    loads = [row["load"] for row in rows]
    sessions = len({(row["session"], row["session_s"]) for row in rows})
    conditions = (
        f"{sessions} sessions of six cases each, load average {min(loads):.1f} to {max(loads):.1f}. "
        "Median of a round of the same code:"
    )
    heads = ["head", "compiled", "by one run of each", "by `confirm`"]
    return [
        *markdown(heads, said),
        "",
        *_drawn(),
        "",
        conditions,
        "",
        *markdown(
            ["quantity", "rounds", "95 % within"],
            _apart(rows),
        ),
    ]


def judge_again(moves: Mapping[str, Sequence[Sequence[float]]]) -> tuple[str, int]:
    """Return what today's rule says of the rounds of a comparison, and after how many."""
    number = 0
    for number in range(1, len(moves["compiled"]) + 1):
        verdict = verdict_of({m: evidence_of(m, moves[m][:number]) for m in WEIGHED})
        if verdict != "inconclusive":
            return verdict, number
    return ("inconclusive" if number == ROUNDS else GOES_ON), number


def _drawn() -> Iterator[str]:
    """Yield the table of the verdicts in drawn sessions."""
    drawn = json.loads(DRAWN.read_text(encoding="utf-8"))
    words = ("slower", "faster", "unchanged", "inconclusive")
    yield f"Of {drawn['sessions']:,} sessions that are drawn from the pairs of processes:"
    yield ""
    yield from markdown(
        ["head", *words],
        [
            [
                name,
                *(_share(drawn["verdicts"][planted].get(w, 0), drawn["sessions"]) for w in words),
            ]
            for planted, name in PLANTED.items()
        ],
    )


def _share(count: int, of: int) -> str:
    return f"{100 * count / of:.2f} %"


def _apart(rows: Sequence[dict[str, Any]]) -> Iterator[list[str]]:
    same = [row for row in rows if row["planted"] == "same"]
    for metric in WEIGHED:
        rounds = [one for row in same for one in row["moves"][metric]]
        middles = [abs(median(one)) for one in rounds]
        yield [
            metric,
            str(len(rounds)),
            _percent(_most_of(middles)),
        ]


def _most_of(sizes: Sequence[float]) -> float:
    """Return what 95 % of the values do not exceed."""
    return sorted(sizes)[math.ceil(0.95 * len(sizes)) - 1]


def _percent(size: float) -> str:
    return f"{100 * size:.1f} %"
