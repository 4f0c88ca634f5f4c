"""Estimate the effect on a quantity of each axis in which two cells differ."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from ivhl.tracker.store.metrics import NORMAL_95, RELEVANT, STANDARD

if TYPE_CHECKING:
    from ivhl.tracker.store.metrics import Metric

_SPEEDUP_WORDS: Final = {"slower": "fell", "faster": "rose"}
Factor = Literal["python", "torch", "commit", "flags"]


# Whether each axis is that of the second cell.
Setting = tuple[bool, ...]


# Some axes, each with whether it is that of the second cell.
Held = tuple[tuple[Factor, bool], ...]


CONFIDENCE = 0.95


class Effect(NamedTuple):
    """What axes do to a quantity, alone or beyond what each does alone.

    Attributes:
        factors: One axis, or several for an interaction; none for what the cells at the settings
            that are held differ by from all others.
        ratio: The factor; ``low`` and ``high`` hold another run's with 95 %.
        cases: How many cases it is the mean of.
        significant: Whether it stands out of all that are judged beside it.
        held: The settings of other axes at which it is; without any, a mean over all of them.
    """

    factors: tuple[Factor, ...]
    metric: Metric
    ratio: float
    low: float
    high: float
    cases: int = 1
    significant: bool = True
    held: Held = ()

    @property
    def word(self) -> str:
        """What it amounts to; seconds that grow are slower, as is a speedup that falls.

        A limit that is shown as 1.00 rules nothing out.
        """
        relevant = RELEVANT[self.metric]
        if self.significant and (round(self.low, 2) > 1 or round(self.high, 2) < 1):
            if max(self.ratio, 1 / self.ratio) < relevant:
                return "unchanged"
            grew = self.ratio > 1
            return "slower" if grew != (self.metric == "speedup") else "faster"
        if self.high < relevant and self.low > 1 / relevant:
            return "unchanged"
        return "inconclusive"

    @property
    def p(self) -> float:
        """How probable an effect of this size is if the axes do nothing."""
        reach = math.log(self.high / self.low) / 2
        return 2 * STANDARD.cdf(-NORMAL_95 * abs(math.log(self.ratio)) / reach) if reach else 0.0

    def __str__(self) -> str:
        """Return e.g. ``compiled 1.40x [1.35, 1.45] slower``; a speedup rose or fell."""
        word = self.word
        if self.metric == "speedup":
            word = _SPEEDUP_WORDS.get(word, word)
        return f"{self.metric} {self.ratio:.2f}x [{self.low:.2f}, {self.high:.2f}] {word}"
