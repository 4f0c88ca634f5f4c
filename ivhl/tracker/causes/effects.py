"""Estimate the effect on a quantity of each axis in which two cells differ, and interactions.

Interactions are effects that axes have only together (``ivhl attribute``). The effect of an axis is
a mean over all settings of the others. Where these disagree, that mean is nowhere: of twice the
seconds in one cell of four it says 1.41x for both axes. So each axis has an effect at each setting
of the others, too, and each part of the cells one against all others.
"""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import combinations, product
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from ivhl.tracker.store.metrics import NORMAL_95, RELEVANT, STANDARD, Metric

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence


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


_MOVED: Final = frozenset({"slower", "faster"})
# What share of an effect, on a logarithmic scale, a cell may lack or another may have.
_SHARE: Final = 0.5


def local_contrasts(
    factors: Sequence[Factor],
) -> list[tuple[tuple[Factor, ...], Held, dict[Setting, float]]]:
    """Return the axes, the settings that are held, and the weights over the corners.

    First each axis at each setting of the others; then, without an axis, the cells at two settings
    and more against all others.
    """
    n = len(factors)
    settings = [*product((False, True), repeat=n)]
    found: list[tuple[tuple[Factor, ...], Held, dict[Setting, float]]] = []
    for i, others in ((i, [j for j in range(n) if j != i]) for i in range(n) if n > 1):
        for values in product((False, True), repeat=n - 1):
            chosen = [s for s in settings if tuple(s[j] for j in others) == values]
            held = tuple((factors[j], on) for j, on in zip(others, values, strict=True))
            found.append(((factors[i],), held, {s: 1.0 if s[i] else -1.0 for s in chosen}))
    for size in range(2, n + 1):
        for axes in combinations(range(n), size):
            for values in product((False, True), repeat=size):
                inside = [s for s in settings if tuple(s[j] for j in axes) == values]
                n_outside = len(settings) - len(inside)
                weights = {s: 1 / len(inside) if s in inside else -1 / n_outside for s in settings}
                held = tuple((factors[j], on) for j, on in zip(axes, values, strict=True))
                found.append(((), held, weights))
    return found


def reported(effects: Iterable[Effect], local: Iterable[Effect]) -> list[Effect]:
    """Return each effect for the cells in which it holds.

    Axes that do something only together have no mean over the cells here: in its place is the part
    of the cells that differs from all others. If there is none, it is the axis that does most at
    each setting of the others, and these where that axis is the first cell's: everything else
    follows from them.

    Args:
        effects: Means over the cells, and interactions (``attribution.contrasts``).
        local: The effects of ``local_contrasts``.
    """
    means, local = tuple(effects), tuple(local)
    joined: dict[Metric, set[Factor]] = {effect.metric: set() for effect in means}
    for effect in means:
        if len(effect.factors) > 1 and effect.word in _MOVED:
            joined[effect.metric].update(effect.factors)
    leading = _leading(local, joined)
    found: list[Effect] = []
    for metric, axes in joined.items():
        steps = [e for e in local if e.metric == metric and e.factors]
        places = [e for e in local if e.metric == metric and not e.factors]
        found += [e for e in means if e.metric == metric and axes.isdisjoint(e.factors)]
        place = next((one for one in places if axes and _is_alone(one, steps)), None)
        if place is not None:
            found.append(place)
            continue
        found += [
            step
            for step in steps
            if step.factors[0] in axes
            and (step.factors[0] == leading or (leading, True) not in step.held)
        ]
    return found


def _leading(
    local: Iterable[Effect], joined: Mapping[Metric, Collection[Factor]]
) -> Factor | None:
    """Return the axis that does most of what axes do only together; ``None`` if none do."""
    size: dict[Factor, float] = defaultdict(float)
    for step in local:
        if step.factors and step.factors[0] in joined.get(step.metric, ()):
            size[step.factors[0]] += abs(math.log(step.ratio))
    return max(size, key=size.__getitem__, default=None)


def is_everywhere(effect: Effect, local: Iterable[Effect]) -> bool:
    """Return whether the effect of an axis is seen, by half at least, wherever the others are."""
    whole = math.log(effect.ratio)
    return all(
        math.log(one.ratio) / whole >= _SHARE for one in at_each_setting(effect, local) if whole
    )


def at_each_setting(effect: Effect, local: Iterable[Effect]) -> list[Effect]:
    """Return what an axis does at each setting of the others; nothing for an interaction."""
    return [one for one in local if (one.factors, one.metric) == (effect.factors, effect.metric)]


def _is_alone(place: Effect, steps: Sequence[Effect]) -> bool:
    """Return whether each step into a part of the cells shows its effect, and no other step."""
    at = dict(place.held)
    size = abs(math.log(place.ratio))
    for step in steps:
        (axis,) = step.factors
        where = dict(step.held)
        crosses = axis in at and all(where[f] == on for f, on in at.items() if f != axis)
        if not crosses:
            if step.word in _MOVED or abs(math.log(step.ratio)) > _SHARE * size:
                return False
        elif step.word not in _MOVED or (step.ratio > 1) != ((place.ratio > 1) == at[axis]):
            return False
    return True
