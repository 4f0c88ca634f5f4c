"""Search commits or releases for a change by answers that may be wrong (``ivhl bisect``).

The places are commits or releases; the first one and the last one are known to differ. Between two
neighbours, which one *gap* holds, the behaviour changed. Every answer at a place shifts the
probabilities of the gaps by its likelihood, the next question is asked where they are halved, and
the search ends when one gap is probable enough. So a clear answer decides at once, a noisy one is
asked again, and a wrong one is overruled.

Source:
    M. Horstein, IEEE Trans. Inf. Theory 9 (1963) 136; R. Waeber, P. I. Frazier and
    S. G. Henderson, SIAM J. Control Optim. 51 (2013) 2261. docs/adr/0027.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

# Of places without noise, one answer in so many is expected to be wrong all the same.
SURPRISE: Final = 0.005
# Searches that are simulated for what one is expected to cost.
_SIMULATED: Final = 60
# Degrees of freedom of the noise in them: what the first rounds leave.
_FREEDOM: Final = 4.0
# A search that needs more answers than this has lost its way.
_ENDLESS: Final = 400


class Gap(NamedTuple):
    """Two neighbouring places that can be measured, and how probable the change is between them.

    Attributes:
        before: Index of the last place that behaves like the first one.
        after: Index of the first place that behaves like the last one.
    """

    before: int
    after: int
    probability: float


@dataclass(frozen=True, slots=True)
class Shift:
    """How much a quantity moved between the ends, and the noise of one answer.

    Attributes:
        apart: Logarithm of the last place over the first one.
        scale: Standard deviation of one answer.
        freedom: Degrees of freedom with which the scale is known.
    """

    apart: float
    scale: float
    freedom: float

    def evidence(self, seen: float) -> float:
        """Return the log likelihood ratio that a place is like the last one and not the first.

        Student's t has the tails of noise whose scale is not well known: no single answer decides
        against many others.

        Args:
            seen: Logarithm of the place over the first one.
        """
        return self._log_density(seen - self.apart) - self._log_density(seen)

    def _log_density(self, distance: float) -> float:
        scaled = distance / self.scale
        return -(self.freedom + 1) / 2 * math.log1p(scaled * scaled / self.freedom)


@dataclass(frozen=True, slots=True)
class Rates:
    """How often each end shows what is searched for.

    Attributes:
        first: Share of the runs of the first place, above 0 and below 1.
        last: Likewise of the last place.
    """

    first: float
    last: float

    @classmethod
    def of(cls, first: Sequence[bool], last: Sequence[bool], *, flaky: bool) -> Rates:
        """Return the rates that runs of both ends show.

        Args:
            first: Whether each run of the first place showed it.
            last: Likewise of the last place.
            flaky: Whether runs of one place have differed.
        """
        more = 0.5 if flaky else SURPRISE
        return cls(*((sum(runs) + more) / (len(runs) + 2 * more) for runs in (first, last)))

    def evidence(self, seen: bool) -> float:  # noqa: FBT001  (an answer)
        """Return the log likelihood ratio that a place is like the last one and not the first."""
        if seen:
            return math.log(self.last / self.first)
        return math.log((1 - self.last) / (1 - self.first))


def chance_of(first: Sequence[bool], last: Sequence[bool]) -> float:
    """Return how probable it is that the last place shows so much more by chance alone.

    Source:
        R. A. Fisher, Statistical Methods for Research Workers (1934), section 21.02: the exact test.
    """
    shown, runs = sum(first) + sum(last), len(first) + len(last)
    ways = sum(
        math.comb(len(last), k) * math.comb(len(first), shown - k)
        for k in range(sum(last), min(shown, len(last)) + 1)
    )
    return ways / math.comb(runs, shown)


def find_gaps(
    prior: Sequence[float],
    evidence: Mapping[int, float],
    skipped: Collection[int] = (),
    alike: Iterable[tuple[int, int]] = (),
) -> tuple[Gap, ...]:
    """Return the gaps between the places that can be measured, with their probabilities.

    Args:
        prior: For each place but the first, how probable it is that the change is there.
        evidence: Place to the sum of its evidence, for those between the ends that were asked.
        skipped: Places that cannot be asked: the gaps beside them become one.
        alike: Pairs of places with the same code, between which nothing changed.
    """
    last = len(prior)
    asked = [place for place in range(last + 1) if place not in skipped]
    pairs = [sorted(pair) for pair in alike]
    logs: list[float] = []
    ends = list(pairwise(asked))
    above = sum(evidence.get(place, 0.0) for place in asked[1:-1])
    for before, after in ends:
        weight = sum(prior[before:after])
        same = any(low <= before and after <= high for low, high in pairs)
        logs.append(-math.inf if same or weight <= 0 else math.log(weight) + above)
        above -= evidence.get(after, 0.0)
    top = max(logs)
    shares = [math.exp(log - top) if top > -math.inf else 1.0 for log in logs]
    total = sum(shares)
    return tuple(Gap(*end, share / total) for end, share in zip(ends, shares, strict=True))


def most_probable(gaps: Iterable[Gap]) -> Gap:
    """Return the gap that most probably holds the change."""
    return max(gaps, key=lambda gap: gap.probability)


def next_place(gaps: Sequence[Gap]) -> int | None:
    """Return the place whose answer halves the probabilities best; ``None`` if there is no other.

    That is a place between the ends.
    """
    below, found, best = 0.0, None, math.inf
    for gap in gaps[:-1]:
        below += gap.probability
        if abs(below - 0.5) < best:
            found, best = gap.after, abs(below - 0.5)
    return found


def blend(prior: Sequence[float], evidence: Mapping[int, float]) -> list[float]:
    """Return a prior of which half comes from earlier evidence and half from none.

    Earlier evidence says where to look first. It may mislead as a whole, e.g. if the first place was
    measured in a slow hour; then it costs some answers, and cannot decide.

    Args:
        prior: See ``find_gaps``; sums to 1.
        evidence: Likewise.
    """
    gaps = find_gaps(prior, evidence)
    return [(gap.probability + share) / 2 for gap, share in zip(gaps, prior, strict=True)]


def expected_answers(places: int, error: float, strength: float) -> tuple[float, int]:
    """Return how many answers a search needs: the mean, and what nine of ten do with.

    Simulated with the same rules, since no formula has the places that are asked again.

    Args:
        places: Number of places behind the first.
        error: Probability of a wrong gap.
        strength: By how many standard deviations of one answer both ends differ; infinite for
            what has no noise.
    """
    draw = random.Random(1)  # noqa: S311  (noise)
    counts = sorted(
        simulate(places, error, strength, draw.randint(1, places), draw).answers
        for _ in range(_SIMULATED)
    )
    return fmean(counts), counts[int(0.9 * len(counts))]


class Simulated(NamedTuple):
    """A search among places of which the truth is known."""

    found: Gap
    answers: int


def simulate(
    places: int, error: float, strength: float, truth: int, draw: random.Random
) -> Simulated:
    """Search for a change that is known, with answers that are drawn.

    Args:
        places: Number of places behind the first.
        error: Probability of a wrong gap.
        strength: See ``expected_answers``.
        truth: First place that is like the last one.
        draw: Source of the noise.
    """
    ask: Callable[[int], float]
    if math.isinf(strength):
        rates = Rates.of((False,) * 2, (True,) * 2, flaky=False)

        def ask(place: int) -> float:
            return rates.evidence(place >= truth)
    else:
        shift = Shift(strength, 1.0, _FREEDOM)

        def ask(place: int) -> float:
            return shift.evidence(draw.gauss(strength if place >= truth else 0.0, 1.0))

    return search(places, error, ask)


def search(places: int, error: float, ask: Callable[[int], float]) -> Simulated:
    """Ask until a gap is probable enough."""
    prior, evidence = [1 / places] * places, dict[int, float]()
    for answers in range(_ENDLESS):
        gaps = find_gaps(prior, evidence)
        found, place = most_probable(gaps), next_place(gaps)
        if found.probability >= 1 - error or place is None:
            return Simulated(found, answers)
        evidence[place] = evidence.get(place, 0.0) + ask(place)
    return Simulated(most_probable(find_gaps(prior, evidence)), _ENDLESS)
