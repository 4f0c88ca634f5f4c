"""Draw sessions of ``ivhl gate --confirm`` from stored pairs of processes, and count its verdicts.

``python -m studies.confirmation.drawn`` writes ``drawn.json``. A session has the noise of one case
in one measured session: a round is one of its rounds, each pair with a random sign, since which
process was the head's made no difference. Few comparisons can be measured and many be drawn.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

from ivhl.bench.experiment.evidence import ROUNDS, WEIGHED, evidence_of, verdict_of
from studies.confirmation.report import DRAWN, STORED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ivhl.tracker.changes.kinds import Kind

SESSIONS: Final = 20_000
# What the head takes: unchanged code, and 5 % more seconds of compiled code.
SHIFTS: Final = {"same": 0.0, "more": math.log(1.05)}
# The pairs of a round, each with its logarithm of every quantity in the order of ``WEIGHED``.
Round = list[tuple[float, ...]]


def main() -> None:
    """Run the command line."""
    rows = [json.loads(line) for line in STORED.read_text(encoding="utf-8").splitlines()]
    counts = {
        planted: draw_sessions(rows, shift, SESSIONS, random.Random(1))  # noqa: S311
        for planted, shift in SHIFTS.items()
    }
    text = json.dumps({"sessions": SESSIONS, "verdicts": counts}, indent=1)
    DRAWN.write_text(text + "\n", encoding="utf-8")


def draw_sessions(
    rows: Sequence[Mapping[str, Any]], shift: float, n: int, draw: random.Random
) -> dict[str, int]:
    """Return how often each verdict came out of ``n`` drawn sessions.

    Args:
        rows: Stored comparisons; those of unchanged code count.
        shift: Logarithm of what the head's compiled seconds are times those of the base.
        n: Number of sessions.
        draw: Source of chance.
    """
    noises: dict[tuple[str, str], list[Round]] = defaultdict(list)
    for row in rows:
        if row["planted"] == "same":
            for metrics in zip(*(row["moves"][metric] for metric in WEIGHED), strict=True):
                noises[row["session"], row["case"]].append(list(zip(*metrics, strict=True)))
    each = list(noises.values())
    shifts = [{"compiled": shift, "speedup": -shift}.get(metric, 0.0) for metric in WEIGHED]
    return dict(Counter(_session(draw.choice(each), shifts, draw) for _ in range(n)))


def _session(rounds: Sequence[Round], shifts: Sequence[float], draw: random.Random) -> Kind:
    seen: list[Round] = []
    verdict: Kind = "inconclusive"
    while verdict == "inconclusive" and len(seen) < ROUNDS:
        signed = ((draw.choice((-1, 1)), pair) for pair in draw.choice(rounds))
        seen.append(
            [
                tuple(sign * move + by for move, by in zip(pair, shifts, strict=True))
                for sign, pair in signed
            ]
        )
        verdict = verdict_of(
            {
                metric: evidence_of(metric, [[pair[place] for pair in one] for one in seen])
                for place, metric in enumerate(WEIGHED)
            }
        )
    return verdict


if __name__ == "__main__":
    main()
