"""Judge how a case changed between two runs: facts, and each measured quantity.

Three words are kept apart. A change is *significant* if runs of the same code seldom differ so much
(after correction for all cases that are judged together), *relevant* if it is large enough to act
on, and its *magnitude* says how large it is. Only what is both is a verdict.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeVar, get_args

from ivhl.tracker.store import metrics
from ivhl.tracker.store.entries import entry_of
from ivhl.tracker.store.facts import FactChange, changed_facts
from ivhl.tracker.store.spread import VERDICT_CONFIDENCE, Spread, Spreads
from ivhl.tracker.wording import memory, seconds, times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ivhl.records.identity import CaseInCell
    from ivhl.records.record import Failure, RunRecord
    from ivhl.tracker.store.entries import Entry, Run

K = TypeVar("K")
Outcome = Literal["improved", "regressed", "unchanged", "inconclusive"]
Magnitude = Literal["none", "small", "medium", "large"]
# What can have changed between two runs of a case, the worst first. Everything that compares two
# runs uses these words; that a failure is expected is a mark beside them.
Kind = Literal[
    "fails", "degraded", "slower", "eager slower", "missing", "unavailable", "incomparable",
    "inconclusive", "new", "fixed", "faster", "unchanged",
]  # fmt: skip
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
WORSE: Final[frozenset[Kind]] = frozenset(
    {"fails", "degraded", "slower", "eager slower", "missing"}
)
BETTER: Final[frozenset[Kind]] = frozenset({"fixed", "faster"})
MEANINGS: Final[dict[Kind, str]] = {
    "fails": "worked before and fails now",
    "degraded": "breaks graphs, recompiles, falls back or errs more than before",
    "slower": "compiled code takes longer, or gains less over eager code that did not get faster",
    "eager slower": "eager code takes longer, and compiled code does not",
    "missing": "had a record before and has none now",
    "unavailable": "ran before; now there is no distribution of this PyTorch for this Python",
    "incomparable": "measured under other conditions, disturbed, or failed for a reason outside the "
    "code: measure again",
    "inconclusive": "too noisy to say: a change by 1.3x would not show, or the run was disturbed",
    "new": "has a record now and had none before",
    "fixed": "failed before and works now",
    "faster": "compiled code takes less time, or gains more over eager code",
    "unchanged": "nothing changed that could be shown",
}

# Failures without a run of the code.
_NOT_RUN: Final = frozenset({"environment", "unavailable", "absent"})
# The share of false ones among all significant changes of one comparison of many cases.
FALSE_DISCOVERIES = 0.05
MEDIUM, LARGE = 1.1, 1.3
# What a reason shows of the numbers; the others are in the JSON.
SHOWN: Final[tuple[metrics.Metric, ...]] = ("speedup", "eager", "compiled")
# At most this share of comparisons of the same code is significant, however few are judged.
FALSE_ALARMS = 1 - VERDICT_CONFIDENCE


def is_outside(failed: Failure | Entry) -> bool:
    """Return whether a failure says nothing of the code: nothing ran, or it was killed."""
    # SIGKILL: somebody, or Linux for lack of memory.
    return failed.failure_class in _NOT_RUN or failed.exception == "SIGKILL"


@dataclass(frozen=True, slots=True)
class QuantityChange:
    """The change of one quantity of a case.

    Attributes:
        before: Value of the earlier run: a ratio, seconds or bytes.
        ratio: ``after`` over ``before``; seconds relative to the speed of the machine, if both runs
            measured it (``calibrated``).
        low: With ``high``, the 95 % interval of the ratio if both sides were run again.
        p: How probable a change of this size is between two runs of the same code.
        significant: Whether it is, after correction for everything judged beside it.
        smallest: The smallest factor that would be significant by itself.
    """

    metric: metrics.Metric
    outcome: Outcome
    before: float
    after: float
    ratio: float
    low: float
    high: float
    p: float
    significant: bool
    relevant: bool
    magnitude: Magnitude
    smallest: float
    calibrated: bool

    @property
    def factor(self) -> float:
        """How large the change is, whichever way."""
        return max(self.ratio, 1 / self.ratio)

    @property
    def is_none(self) -> bool:
        """Whether no relevant change is in the interval."""
        relevant = metrics.RELEVANT[self.metric]
        return 1 / relevant <= self.low and self.high <= relevant

    def __str__(self) -> str:
        """Return e.g. ``compiled 1.2 ms to 2.4 ms: 2.00x [1.80, 2.22]``."""
        form = _FORMS.get(self.metric, seconds)
        text = f"{metrics.WORDS[self.metric]} {form(self.before)} to {form(self.after)}"
        speed = " at equal speed of the machine" if self.calibrated else ""
        text += f": {self.ratio:.2f}x [{self.low:.2f}, {self.high:.2f}]{speed}"
        if self.outcome == "inconclusive" and self.factor < self.smallest:
            text += f", too noisy to say: below {self.smallest:.2f}x nothing would show"
        elif self.outcome == "inconclusive":
            text += ", too noisy to say beside so many cases"
        return text


class Between(NamedTuple):
    """What a case did between two commits, releases or Pythons, as its cause is looked up.

    Attributes:
        along: What ``before`` and ``place`` are: ``commit``, ``torch`` or ``python``.
        reason: Of a failure, its class and message.
    """

    along: str
    before: str
    place: str
    case: CaseInCell
    kind: Kind
    reason: str
    effect_of: metrics.Metric = "speedup"


class CaseChange(NamedTuple):
    """What changed in a case of which both runs were measured.

    Attributes:
        in_session: Whether both runs are of the same hour.
    """

    facts: tuple[FactChange, ...]
    changes: Mapping[metrics.Metric, QuantityChange]
    in_session: bool = False

    @property
    def worse_facts(self) -> tuple[FactChange, ...]:
        """The facts that became worse."""
        return tuple(fact for fact in self.facts if fact.worse)

    def outcome(self, metric: metrics.Metric) -> Outcome | None:
        """Return the outcome of a quantity; ``None`` if a run lacks it."""
        found = self.changes.get(metric)
        return None if found is None else found.outcome

    @property
    def kind(self) -> Kind:
        """What this amounts to. Facts come first: they need no test.

        Of the times, those of compiled code decide. A speedup also falls when eager code gets
        faster, and that is no regression. Eager code that takes longer, while compiled code does
        not, has a kind of its own: the speedup rose, and nothing got better.
        """
        eager, compiled = self.outcome("eager"), self.outcome("compiled")
        speedup = self.outcome("speedup")
        if self.worse_facts:
            return "degraded"
        if compiled == "regressed" or (speedup == "regressed" and eager != "improved"):
            return "slower"
        if compiled == "improved" or (speedup == "improved" and eager != "regressed"):
            return "faster"
        if eager == "regressed":
            return "eager slower"
        # Without a speedup, one of the runs was not timed.
        return "inconclusive" if speedup in {None, "inconclusive"} else "unchanged"

    @property
    def reason(self) -> str:
        """Why it is of this kind, with the numbers."""
        numbers = "; ".join(str(self.changes[m]) for m in SHOWN if m in self.changes)
        facts = "; ".join(fact.text for fact in self.facts)
        parts = (facts, self.side, numbers) if self.worse_facts else (self.side, numbers, facts)
        return "; ".join(filter(None, parts))

    @property
    def side(self) -> str:
        """Which side of the speedup moved, as a sentence without its full stop."""
        eager, compiled = self.outcome("eager"), self.outcome("compiled")
        moved = {"improved": "faster", "regressed": "slower"}
        if eager in moved and compiled in moved:
            return (
                f"both became {moved[eager]}"
                if eager == compiled
                else f"eager became {moved[eager]}, compiled {moved[compiled]}"
            )
        if compiled in moved:
            return f"compiled became {moved[compiled]}"
        if eager in moved:
            return f"eager became {moved[eager]}"
        if all(self.changes[m].is_none for m in ("eager", "compiled") if m in self.changes):
            return "neither side's seconds moved"
        if self.outcome("speedup") in moved or "inconclusive" in (eager, compiled):
            return "which side moved cannot be told from the seconds"
        return "neither side's seconds are shown to have moved"


def judge_changes(
    pairs: Mapping[K, tuple[RunRecord, RunRecord]], spreads: Spreads
) -> dict[K, CaseChange]:
    """Judge many cases together: false discoveries are controlled over all of them.

    Args:
        pairs: Key of a case to two comparable measured runs, the earlier first.
        spreads: What runs of the same code differ by.
    """
    tests = {key: tests_of(*pair, spreads) for key, pair in pairs.items()}
    limits = limits_of(tests.values())
    return {
        key: CaseChange(changed_facts(*pairs[key]), decide(found, limits), _in_hour(*pairs[key]))
        for key, found in tests.items()
    }


def _in_hour(*runs: RunRecord) -> bool:
    one, other = (datetime.fromisoformat(run.recorded_at) for run in runs)
    return abs(other - one) <= timedelta(hours=1)


class Tested(NamedTuple):
    """The test of one quantity of two runs.

    Attributes:
        before: Value of the earlier run.
        apart: Logarithm of ``after`` over ``before``, of seconds relative to the calibration.
        scale: By how much runs of the same code differ (``Spread.scale``).
        p: See ``Change.p``.
    """

    before: float
    after: float
    apart: float
    scale: float
    spread: Spread
    calibrated: bool
    p: float


def tests_of(before: Run, after: Run, spreads: Spreads) -> dict[metrics.Metric, Tested]:
    """Return the test of each quantity that both runs have."""
    # A record computes each quantity again whenever it is asked.
    before, after = entry_of(before), entry_of(after)
    tests: dict[metrics.Metric, Tested] = {}
    for metric in metrics.JUDGED:
        was, now = metrics.measured(before, metric), metrics.measured(after, metric)
        apart = metrics.difference(before, after, metric)
        if was is None or now is None or apart is None:
            continue
        calibrated = metrics.is_calibrated(before, after, metric)
        spread = spreads.of(after, metric, calibrated=calibrated)
        scale = spread.scale(before, after, metric=metric)
        p = probability(apart, scale, spread)
        tests[metric] = Tested(was.value, now.value, apart, scale, spread, calibrated, p)
    return tests


def limits_of(tests: Iterable[Mapping[metrics.Metric, Tested]]) -> dict[metrics.Metric, float]:
    """Return for each quantity the largest probability that is significant among all tests.

    Source:
        Y. Benjamini and Y. Hochberg, J. R. Stat. Soc. B 57 (1995) 289, theorem 1.
    """
    every = tuple(tests)
    return {
        metric: largest_significant([found[metric].p for found in every if metric in found])
        for metric in metrics.JUDGED
    }


def decide(
    tests: Mapping[metrics.Metric, Tested], limits: Mapping[metrics.Metric, float]
) -> dict[metrics.Metric, QuantityChange]:
    """Return the changes of one pair of runs, judged beside others.

    Where the speedup changed, one of its sides did. Which one is then asked of this case alone, and
    not again of all cases together.
    """
    changes = {metric: _change(metric, test, limits[metric]) for metric, test in tests.items()}
    speedup = changes.get("speedup")
    if speedup is not None and speedup.outcome in ("improved", "regressed"):
        for side in ("eager", "compiled"):
            if side in tests:
                changes[side] = _change(side, tests[side], FALSE_ALARMS)
    return changes


def _change(metric: metrics.Metric, test: Tested, limit: float) -> QuantityChange:
    reach = test.spread.scores.another_95 * test.scale
    factor = _exp(abs(test.apart))
    worse = (test.apart < 0) == (metric == "speedup")
    significant, relevant = test.p <= limit, factor >= metrics.RELEVANT[metric]
    smallest = _exp(test.spread.scores.verdict * test.scale)
    outcome: Outcome = "unchanged"
    if significant and relevant:
        outcome = "regressed" if worse else "improved"
    elif smallest > LARGE:
        outcome = "inconclusive"
    return QuantityChange(
        metric=metric,
        outcome=outcome,
        before=test.before,
        after=test.after,
        ratio=_exp(test.apart),
        low=_exp(test.apart - reach),
        high=_exp(test.apart + reach),
        p=test.p,
        significant=significant,
        relevant=relevant,
        magnitude=_magnitude(factor, metrics.RELEVANT[metric]),
        smallest=smallest,
        calibrated=test.calibrated,
    )


def _exp(exponent: float) -> float:
    """Return the exponential, finite also where records of other machines are absurd."""
    return math.exp(max(-_LARGEST_EXPONENT, min(exponent, _LARGEST_EXPONENT)))


def probability(apart: float, scale: float, spread: Spread) -> float:
    """Return the two-sided probability of a difference between two runs of the same code.

    The tail is that of Student's t with 4 degrees of freedom, heavier than the normal one, scaled
    so that it agrees with the counted score of verdicts. Counting alone could not show less than one
    in the number of pairs that were repeated.
    """
    usual = scale * spread.scores.verdict
    if usual <= 0:  # runs that repeat to the last digit leave no room for any difference
        return 0.0 if apart else 1.0
    t = min(abs(apart) / usual * _T4_99, _LARGEST_T)
    root = math.sqrt(1 + t * t / 4)
    upper = 0.5 - 0.375 * (t / root) * (1 - t * t / 12 / (1 + t * t / 4))
    return min(max(2 * upper, 0.0), 1.0)


_LARGEST_EXPONENT = 700.0
_LARGEST_T = 1e9  # of which the probability is 0, and the square finite
# 99 % quantile of Student's t with 4 degrees of freedom, whose distribution function is elementary.
_T4_99 = 3.746947


def largest_significant(probabilities: list[float]) -> float:
    """Return the largest probability that is significant; see ``limits_of``."""
    n = len(probabilities)
    passed = [
        p for rank, p in enumerate(sorted(probabilities), 1) if p <= FALSE_DISCOVERIES * rank / n
    ]
    return min(max(passed, default=-1.0), FALSE_ALARMS)


def _magnitude(factor: float, relevant: float) -> Magnitude:
    if factor < relevant:
        return "none"
    if factor < MEDIUM:
        return "small"
    return "medium" if factor < LARGE else "large"


_FORMS: Final[dict[metrics.Metric, Callable[[float], str]]] = {"speedup": times, "memory": memory}
