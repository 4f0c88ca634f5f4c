"""Predict what another run of the same case would show, learnt from repeated runs.

The interval in a record comes from the rounds of one run. Another run has other processes, another
memory layout and another time of day. How much its ratio differs is learnt from repeated runs on
one machine under equal conditions, per kind of case and per case, and checked on held-out runs
(``python -m studies.spread``).

The scale of a run is ``sqrt(tau**2 + within**2)``: the standard deviation between runs, and the
standard error implied by the run's own interval. How many scales contain 95 or 98 % of the
differences is counted, not assumed: split conformal prediction, as in Vovk, Gammerman and Shafer,
Algorithmic Learning in a Random World (2005), section 4.1.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from dataclasses import astuple, dataclass, replace
from functools import cache
from hashlib import sha256
from importlib.resources import files
from itertools import combinations
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from ivhl.records.identity import CaseInCell, case_of
from ivhl.records.record import Interval, RunRecord
from ivhl.tracker.store.entries import Entry, Recorded, Run, code_of, entry_of, made_of
from ivhl.tracker.store.metrics import SECONDS, STANDARD, Metric, difference, is_calibrated, within
from ivhl.tracker.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


CONFIDENCE = 0.95
# For verdicts that people act on: at most 1 % false ones in each direction.
VERDICT_CONFIDENCE = 0.98
# With fewer pairs or runs, the spreads shipped in spread.json are used.
ENOUGH_PAIRS = 40
ENOUGH_RUNS = 4
# Pairs of one case that count for that: one case says nothing of the others. A search over commits
# that runs its case ten times within an hour has 45.
_PAIRS_OF_CASE: Final = 15
# Of a case that ran more often, the newest: n runs make n (n - 1) / 2 pairs.
MOST_RUNS = 20
# Weight of what cases of one kind differ by, in runs, beside the runs of the case itself: with 1 to
# 8, the coverage of the repeats is 94.7 to 95.3 %.
OWN_PRIOR = 2
# Limits in seconds per compiled call between short, medium and long cases: shorter ones are noisier.
SHORT_S, LONG_S = 1e-4, 1e-3
_DEFAULTS = "spread.json"


class CaseKind(NamedTuple):
    """A kind of case: runs of its cases are expected to differ equally."""

    instrument: str
    device: str
    clock: str
    length: Literal["short", "medium", "long"]


ANY_KIND: Final = CaseKind("", "", "", "long")  # of a case that has not run


class Scores(NamedTuple):
    """Numbers of scales that contain a part of the differences of two runs.

    Attributes:
        another_95: Contains 95 %, where the scale is of one run, which predicts another.
        another_98: Likewise 98 %.
        verdict: Contains 98 %, where the scale is of both runs.
    """

    another_95: float
    another_98: float
    verdict: float

    def of(self, confidence: float) -> float:
        """Return the score for an interval of this confidence."""
        return self.another_98 if confidence > CONFIDENCE else self.another_95


@dataclass(frozen=True, slots=True)
class Spread:
    """How much two runs of one kind of case differ.

    Attributes:
        tau: Standard deviation between runs of the logarithm of the ratio, beyond what the
            intervals of the runs explain.
        scores: How many scales the differences are.
        own_scores: The same for scales that are corrected by other runs of the case.
        pairs: Number of pairs of runs it was learnt from.
        origin: Which runs these were, as text.
        calibrated: Whether they were compared relative to the speed of the machine.
    """

    tau: float
    scores: Scores
    own_scores: Scores
    pairs: int
    origin: str
    calibrated: bool = False

    def corrected_by(self, own: Own) -> Spread:
        """Return the spread of a case, of which its own runs say this.

        Cases of one kind differ. Their common variance counts as ``OWN_PRIOR`` runs beside the
        case's own: the posterior mean for a scaled inverse chi-squared prior.
        """
        variance = (OWN_PRIOR * self.tau**2 + own.runs * own.variance) / (OWN_PRIOR + own.runs)
        return replace(self, tau=math.sqrt(max(variance, 0.0)), scores=self.own_scores)

    def scale(self, *runs: Run, metric: Metric = "speedup") -> float:
        """Return the scale of the difference of two runs; see ``factor``."""
        scales = [
            math.hypot(self.tau, within(run, metric, calibrated=self.calibrated)) for run in runs
        ]
        return math.hypot(scales[0], scales[-1])


class Own(NamedTuple):
    """What the repeated runs of one case say about it.

    Attributes:
        variance: Between its runs, of the logarithm, beyond what their intervals explain.
        runs: Number of runs, beyond the first of each subject.
    """

    variance: float
    runs: int


class Learnt(NamedTuple):
    """What was learnt of one quantity: by machine and kind of case, and by case."""

    kinds: dict[tuple[str, CaseKind], Spread]
    cases: dict[CaseInCell, Own]


class Spreads:
    """The spreads learnt from runs, by machine and kind of case, and by case.

    Args:
        runs: All runs, including those that a later one replaces; as a function, it is called once
            something is learnt from them.
        kept: Returns what was learnt before from the same runs, by a name, or calls what learns it
            and keeps that, as JSON (``Index.kept``).
    """

    def __init__(
        self,
        runs: Iterable[Run] | Callable[[], Iterable[Run]] = (),
        kept: Callable[[str, Callable[[], Any]], Any] = lambda _, learn: learn(),
    ) -> None:
        self._runs = runs
        self._repeats: tuple[tuple[Entry, ...], ...] | None = None
        self._kept = kept
        self._learnt: dict[tuple[Metric, bool], Learnt] = {}
        self._of: dict[tuple[Metric, bool, CaseKind, CaseInCell], Spread] = {}

    def of(self, run: Run, metric: Metric = "speedup", *, calibrated: bool = False) -> Spread:
        """Return the spread of a run's case.

        That of its machine and kind, or the shipped one; corrected by the past of the case itself.

        Args:
            run: A run of the case.
            metric: Which quantity.
            calibrated: Whether runs are compared relative to the speed of the machine.
        """
        case = run.case if isinstance(run, Entry) else case_of(run)
        key = metric, calibrated, kind_of(run), case
        if key not in self._of:
            self._of[key] = self._find(*key)
        return self._of[key]

    def _find(self, metric: Metric, calibrated: bool, kind: CaseKind, case: CaseInCell) -> Spread:  # noqa: FBT001  (a key)
        learnt = self._learnt_of(metric, calibrated=calibrated)
        found = learnt.kinds.get((case.machine, kind)) or shipped(
            kind, metric, calibrated=calibrated
        )
        own = learnt.cases.get(case)
        found = found if own is None else found.corrected_by(own)
        return found if found.calibrated == calibrated else replace(found, calibrated=calibrated)

    def digest(self, metrics: Iterable[Metric]) -> str:
        """Return a digest of all that was learnt of some quantities."""
        learnt = [
            self._learnt_of(metric, calibrated=calibrated)
            for metric in metrics
            for calibrated in ((False, True) if metric in SECONDS else (False,))
        ]
        return sha256(repr(learnt).encode()).hexdigest()

    def _learnt_of(self, metric: Metric, *, calibrated: bool) -> Learnt:
        key = metric, calibrated
        if key not in self._learnt:
            kinds, cases = self._kept(
                f"learnt {key}", lambda: self._learn(metric, calibrated=calibrated)
            )
            self._learnt[key] = Learnt(
                {
                    (machine, CaseKind(*kind)): Spread(tau, Scores(*any_), Scores(*own), *rest)
                    for machine, kind, tau, any_, own, *rest in kinds
                },
                {CaseInCell(*case): Own(*own) for case, own in cases},
            )
        return self._learnt[key]

    def _learn(self, metric: Metric, *, calibrated: bool) -> tuple[list[Any], list[Any]]:
        """Return the values of what is learnt: of each machine and kind, and of each case."""
        if self._repeats is None:
            self._repeats = tuple(repeats(self._runs() if callable(self._runs) else self._runs))
        pairs: dict[tuple[str, CaseKind], list[list[Pair]]] = defaultdict(list)
        own: dict[CaseInCell, list[Own]] = defaultdict(list)
        for runs in self._repeats:
            mine: list[Pair] = []
            for one, other in combinations(runs, 2):
                pair = pair_of(one, other, metric)
                if pair is not None and is_calibrated(one, other, metric) == calibrated:
                    mine.append(pair)
            if mine:
                pairs[runs[0].case.machine, kind_of(runs[0])].append(mine)
                own[runs[0].case].append(own_of(mine))
        kinds = [
            (*key, *astuple(learn(found, f" on {key[0]}")))
            for key, found in pairs.items()
            if sum(min(len(case), _PAIRS_OF_CASE) for case in found) >= ENOUGH_PAIRS
            and len({run for case in found for pair in case for run in pair.runs}) >= ENOUGH_RUNS
        ]
        return kinds, [(case, _together(found)) for case, found in own.items()]

    def another_run(
        self, record: RunRecord | Recorded, *, confidence: float = CONFIDENCE
    ) -> Interval | None:
        """Return the speedup's interval for another run; ``None`` if the record has no speedup."""
        found = self.another_runs(record, confidence)
        return found[0] if found else None

    def another_runs(
        self, record: RunRecord | Recorded, *confidences: float
    ) -> tuple[Interval, ...]:
        """Return ``another_run`` at each confidence; empty if the record has no speedup."""
        run: Run
        if isinstance(record, RunRecord):
            run, found = record, record.speedup
        else:
            run, found = record.entry, record.facts.speedup
        if found is None:
            return ()
        spread = self.of(run)
        scale = spread.scale(run)
        factors = [(c, math.exp(spread.scores.of(c) * scale)) for c in confidences]
        return tuple(
            Interval(
                value=found.value,
                low=found.value / factor,
                high=found.value * factor,
                confidence=confidence,
                n=found.n,
            )
            for confidence, factor in factors
        )


# Where nobody has repeated runs of a metric, e.g. of cold compiling, which repeats do not do again.
_NORMAL_SCORES: Final = Scores(1.96, 2.33, 2.33)
ASSUMED = Spread(0.1, _NORMAL_SCORES, _NORMAL_SCORES, 0, "assumed: 10 %")


class Pair(NamedTuple):
    """How much two runs of a case differ in a quantity.

    Attributes:
        difference: As a logarithm.
        within: Standard error of each within its run.
        runs: When each was recorded.
    """

    difference: float
    within: tuple[float, float]
    runs: tuple[str, str]


def kind_of(run: Run) -> CaseKind:
    """Return the kind of a run's case; without measured seconds, its length is ``long``."""
    if isinstance(run, Entry):
        seconds, device = run.compiled_s, run.case.device
    else:
        seconds = median(run.compiled.samples_s) if run.compiled else None
        device = case_of(run).device
    length: Literal["short", "medium", "long"] = "long"
    if seconds is not None and seconds < LONG_S:
        length = "short" if seconds < SHORT_S else "medium"
    made = made_of(run)
    return CaseKind(made.instrument, device, made.clock, length)


def repeats(runs: Iterable[Run]) -> Iterator[tuple[Entry, ...]]:
    """Yield the runs of each case that was repeated under equal conditions, oldest first.

    Runs of different commits count as repeats if the sources that the case reaches are equal. Of
    more than ``MOST_RUNS``, the newest are taken.
    """
    groups: dict[object, dict[str, Entry]] = defaultdict(dict)
    for run in runs:
        entry = entry_of(run)
        if "speedup" not in entry.values:
            continue
        # Without what older records do not have.
        made = entry.made._replace(wheels=(), python_build=None)
        # Keyed by time: the same record in two files is one run.
        groups[entry.case, code_of(entry), made][entry.recorded_at] = entry
    for found in groups.values():
        if len(found) > 1:
            yield tuple(found[at] for at in sorted(found)[-MOST_RUNS:])


def learn(groups: Iterable[Sequence[Pair]], origin: str = "") -> Spread:
    """Return the spread of the pairs of runs of several cases.

    Args:
        groups: Pairs of runs, case by case.
        origin: Where they are from; their number comes first.
    """
    cases = tuple(groups)
    pairs = [pair for case in cases for pair in case]
    tau = math.sqrt(max(_beyond(pairs), 0.0))
    of = f"{counted(len(pairs), 'pair')} of runs{origin}"
    first = Spread(tau, _NORMAL_SCORES, _NORMAL_SCORES, len(pairs), of)
    left_out = [(pair, own, place) for case in cases for pair, own, place in leave_out(case)]
    return replace(
        first,
        scores=_quantiles([(pair, tau, place) for pair, _, place in left_out]),
        own_scores=_quantiles(
            [
                (pair, first.corrected_by(own).tau if own else tau, place)
                for pair, own, place in left_out
            ]
        ),
    )


def _quantiles(pairs: Iterable[tuple[Pair, float, int]]) -> Scores:
    """Return the scores of pairs, each with the spread of its case and which run is predicted.

    An interval for another run knows the error of one run only, a verdict those of both.
    """
    predictions, verdicts = [], []
    for pair, tau, predicted in pairs:
        known = math.hypot(tau, pair.within[1 - predicted])
        other = math.hypot(tau, pair.within[predicted])
        predictions.append(abs(pair.difference) / (math.hypot(known, known) or 1.0))
        verdicts.append(abs(pair.difference) / (math.hypot(known, other) or 1.0))
    predictions.sort()
    return Scores(
        another_95=_quantile(predictions, CONFIDENCE),
        another_98=_quantile(predictions, VERDICT_CONFIDENCE),
        verdict=_quantile(sorted(verdicts), VERDICT_CONFIDENCE),
    )


def leave_out(pairs: Sequence[Pair]) -> Iterator[tuple[Pair, Own | None, int]]:
    """Yield each pair twice, with what the other runs of the case say but one of the two.

    The last item is which of the two is predicted, and left out.
    """
    total, of_run, n_of_run = 0.0, defaultdict[str, float](float), Counter[str]()
    for pair in pairs:
        beyond = _beyond([pair])
        total += beyond
        for run in pair.runs:
            of_run[run] += beyond
            n_of_run[run] += 1
    for pair in pairs:
        for place, run in enumerate(pair.runs):
            n = len(pairs) - n_of_run[run]
            own = Own((total - of_run[run]) / n, len(n_of_run) - 2) if n else None
            yield pair, own, place


def own_of(pairs: Sequence[Pair]) -> Own:
    """Return what pairs of runs of one case say about it."""
    runs = len({run for pair in pairs for run in pair.runs})
    return Own(_beyond(pairs), runs - 1)


def _together(found: Sequence[Own]) -> Own:
    runs = sum(own.runs for own in found)
    return Own(sum(own.variance * own.runs for own in found) / runs, runs)


def _beyond(pairs: Iterable[Pair]) -> float:
    """Return the variance between runs beyond that within; negative by chance if there is none."""
    return fmean(p.difference**2 - p.within[0] ** 2 - p.within[1] ** 2 for p in pairs) / 2


def pair_of(one: Entry, other: Entry, metric: Metric) -> Pair | None:
    """Return how much two runs differ; ``None`` if one of them lacks the quantity."""
    apart = difference(one, other, metric)
    if apart is None:
        return None
    calibrated = is_calibrated(one, other, metric)
    first, second = (within(run, metric, calibrated=calibrated) for run in (one, other))
    return Pair(apart, (first, second), (one.recorded_at, other.recorded_at))


def _quantile(scores: Sequence[float], confidence: float) -> float:
    """Return the score that another one exceeds with probability ``1 - confidence`` at most.

    With too few scores for that rank, the largest one, but at least the normal quantile.
    """
    rank = math.ceil((len(scores) + 1) * confidence)
    normal = STANDARD.inv_cdf((1 + confidence) / 2)
    if rank > len(scores):
        return max(scores[-1], normal)
    return scores[rank - 1]


@cache
def _defaults() -> dict[str, dict[str, Any]]:
    text = (files("ivhl.tracker.store") / _DEFAULTS).read_text(encoding="utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


@cache
def shipped(kind: CaseKind, metric: Metric = "speedup", *, calibrated: bool = False) -> Spread:
    """Return the spread of a kind of case from ``spread.json``, learnt from repeated runs.

    ``nox -s repeat`` makes the records, ``python -m studies.spread --write`` the file. A kind
    without an entry uses that of its instrument's long cases, else that of all cases, else
    ``ASSUMED``.
    """
    entries = _defaults()
    room = room_of(metric, calibrated=calibrated)
    for name in (f"{kind.instrument}/{kind.length}", f"{kind.instrument}/long", "any"):
        if found := entries.get(room + name):
            scores = {name: Scores(**found[name]) for name in ("scores", "own_scores")}
            return Spread(**found | scores)
    return ASSUMED


def room_of(metric: Metric, *, calibrated: bool) -> str:
    """Return the beginning of the names of a metric's entries in ``spread.json``."""
    if metric in ("speedup", "aa"):  # the noise of both is that of a ratio of two arms
        return ""
    return f"{metric}, calibrated/" if calibrated else f"{metric}/"


# For callers without records: only the shipped spreads.
SHIPPED = Spreads()
