"""Predict what another run of the same case would show, learnt from repeated runs.

The interval in a record comes from the rounds of one run. Another run has other processes, another
memory layout and another time of day. How much its ratio differs is learnt from repeated runs on
one machine under equal conditions, per kind of case, and checked on held-out runs (``coverage``).

The scale of a run is ``sqrt(tau**2 + within**2)``: the standard deviation between runs, and the
standard error implied by the run's own interval. How many scales contain 95 or 98 % of the
differences is counted, not assumed: split conformal prediction, as in Vovk, Gammerman and Shafer,
Algorithmic Learning in a Random World (2005), section 4.1.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import combinations, product
from statistics import NormalDist, fmean, median
from typing import TYPE_CHECKING, Literal, NamedTuple

from ivhl.instrument import version_of
from ivhl.records.record import Interval
from ivhl.records.store import device_type, key_of
from ivhl.tracker.metrics import JUDGED, difference, is_calibrated, within

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ivhl.records.record import RunRecord
    from ivhl.tracker.metrics import Metric

CONFIDENCE = 0.95
# For verdicts that people act on: at most 1 % false ones in each direction.
VERDICT_CONFIDENCE = 0.98
# With fewer pairs or runs, the spreads shipped in spread.json are used.
ENOUGH_PAIRS = 40
ENOUGH_RUNS = 4
# Limits in seconds per compiled call between short, medium and long cases: shorter ones are noisier.
SHORT_S, LONG_S = 1e-4, 1e-3
_STANDARD = NormalDist()
_NORMAL_95 = _STANDARD.inv_cdf(0.975)
_DEFAULTS = "spread.json"


class CaseKind(NamedTuple):
    """A kind of case: runs of its cases are expected to differ equally."""

    instrument: str
    device: str
    clock: str
    length: Literal["short", "medium", "long"]


@dataclass(frozen=True, slots=True)
class Spread:
    """How much two runs of one kind of case differ.

    Attributes:
        tau: Standard deviation between runs of the logarithm of the ratio, beyond what the
            intervals of the runs explain.
        scores: Confidence to the number of scales that contains this part of the differences.
        pairs: Number of pairs of runs it was learnt from.
        origin: Which runs these were, as text.
    """

    tau: float
    scores: Mapping[float, float]
    pairs: int
    origin: str

    def factor(self, *runs: RunRecord, confidence: float, metric: Metric = "speedup") -> float:
        """Return the factor by which two runs differ at most, with this confidence.

        Args:
            runs: Both runs, or one: its own interval is then used for the other run as well.
            confidence: A key of ``scores``.
            metric: Which quantity of the records.
        """
        return math.exp(self.scores[confidence] * self.scale(*runs, metric=metric))

    def scale(self, *runs: RunRecord, metric: Metric = "speedup") -> float:
        """Return the scale of the difference of two runs; see ``factor``."""
        both = runs if len(runs) > 1 else runs * 2
        return math.hypot(*(_scale(self.tau, within(run, metric)) for run in both))


class Spreads:
    """The spreads learnt from records, by machine and kind of case.

    Args:
        records: All records, including those that a later one replaces.
    """

    def __init__(self, records: Iterable[RunRecord] = ()) -> None:
        self._repeats = tuple(repeats(records))
        self._learnt: dict[tuple[Metric, bool], dict[tuple[str, CaseKind], Spread]] = {}

    def of(
        self, record: RunRecord, metric: Metric = "speedup", *, calibrated: bool = False
    ) -> Spread:
        """Return the spread of the record's machine and kind, or the shipped one.

        Args:
            record: A run of the case.
            metric: Which quantity.
            calibrated: Whether runs are compared relative to the speed of the machine.
        """
        if (metric, calibrated) not in self._learnt:
            self._learnt[metric, calibrated] = self._learn(metric, calibrated=calibrated)
        kind = kind_of(record)
        found = self._learnt[metric, calibrated].get((record.machine.name, kind))
        return found or shipped(kind, metric, calibrated=calibrated)

    def _learn(self, metric: Metric, *, calibrated: bool) -> dict[tuple[str, CaseKind], Spread]:
        pairs: dict[tuple[str, CaseKind], list[_Pair]] = defaultdict(list)
        for runs in self._repeats:
            for one, other in combinations(runs, 2):
                pair = _pair(one, other, metric)
                if pair is not None and is_calibrated(one, other, metric) == calibrated:
                    pairs[one.machine.name, kind_of(one)].append(pair)
        return {
            key: learn(found, f"{len(found)} pairs of runs on {key[0]}")
            for key, found in pairs.items()
            if len(found) >= ENOUGH_PAIRS
            and len({run for pair in found for run in pair.runs}) >= ENOUGH_RUNS
        }

    def another_run(self, record: RunRecord, *, confidence: float = CONFIDENCE) -> Interval | None:
        """Return the speedup's interval for another run; ``None`` if the record has no speedup."""
        found = record.speedup
        if found is None:
            return None
        factor = self.of(record).factor(record, confidence=confidence)
        return Interval(
            value=found.value,
            low=found.value / factor,
            high=found.value * factor,
            confidence=confidence,
            n=found.n,
        )


# Where nobody has repeated runs of a metric, e.g. of cold compiling, which repeats do not do again.
ASSUMED = Spread(
    tau=0.1, scores={CONFIDENCE: 1.96, VERDICT_CONFIDENCE: 2.33}, pairs=0, origin="assumed: 10 %"
)


class _Pair(NamedTuple):
    difference: float
    within: tuple[float, float]
    runs: frozenset[str]


def kind_of(record: RunRecord) -> CaseKind:
    """Return the kind of a record's case; without measured seconds, its length is ``long``."""
    seconds = median(record.compiled.samples_s) if record.compiled else math.inf
    length: Literal["short", "medium", "long"] = "long"
    if seconds < LONG_S:
        length = "short" if seconds < SHORT_S else "medium"
    return CaseKind(
        instrument=version_of(record.conditions.instrument),
        device=device_type(record),
        clock=record.conditions.clock,
        length=length,
    )


def repeats(records: Iterable[RunRecord]) -> Iterator[tuple[RunRecord, ...]]:
    """Yield the runs of each case that was repeated under equal conditions.

    Runs of different commits count as repeats if the sources that the case reaches are equal.
    """
    groups: dict[object, dict[str, RunRecord]] = defaultdict(dict)
    for record in records:
        if record.speedup is None:
            continue
        conditions = record.conditions
        subject = record.sources or record.commit, record.benchmark
        same = (
            key_of(record)._replace(commit=""), subject, record.cell.lock_sha256, conditions.threads,
            conditions.image, conditions.packages,
            # Without the length: noise moves a case near a limit from one length to the other.
            kind_of(record)._replace(length="long"),
        )  # fmt: skip
        # Keyed by time: the same record in two files is one run.
        groups[same][record.recorded_at] = record
    for runs in groups.values():
        if len(runs) > 1:
            yield tuple(runs[at] for at in sorted(runs))


def learn(pairs: Sequence[_Pair], origin: str) -> Spread:
    """Return the spread of pairs of runs."""
    beyond = fmean(p.difference**2 - p.within[0] ** 2 - p.within[1] ** 2 for p in pairs) / 2
    tau = math.sqrt(max(beyond, 0.0))
    scores = sorted(
        abs(p.difference) / (math.hypot(*(_scale(tau, w) for w in p.within)) or 1.0) for p in pairs
    )
    return Spread(
        tau=tau,
        scores={c: _quantile(scores, c) for c in (CONFIDENCE, VERDICT_CONFIDENCE)},
        pairs=len(pairs),
        origin=origin,
    )


def _pair(one: RunRecord, other: RunRecord, metric: Metric) -> _Pair | None:
    apart = difference(one, other, metric)
    if apart is None:
        return None
    return _Pair(
        difference=apart,
        within=(within(one, metric), within(other, metric)),
        runs=frozenset({one.recorded_at, other.recorded_at}),
    )


def _scale(tau: float, own: float) -> float:
    return math.hypot(tau, own)


def _quantile(scores: Sequence[float], confidence: float) -> float:
    """Return the score that another one exceeds with probability ``1 - confidence`` at most.

    With too few scores for that rank, the largest one, but at least the normal quantile.
    """
    rank = math.ceil((len(scores) + 1) * confidence)
    normal = _STANDARD.inv_cdf((1 + confidence) / 2)
    if rank > len(scores):
        return max(scores[-1], normal)
    return scores[rank - 1]


@cache
def _defaults() -> dict[str, dict[str, object]]:
    text = (files("ivhl.tracker") / _DEFAULTS).read_text(encoding="utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


def shipped(kind: CaseKind, metric: Metric = "speedup", *, calibrated: bool = False) -> Spread:
    """Return the spread of a kind of case from ``spread.json``, learnt from repeated runs.

    ``nox -s repeat`` makes the records, ``ivhl spread --write`` the file. A kind without an entry
    uses that of its instrument's long cases, else that of all cases, else ``ASSUMED``.
    """
    entries = _defaults()
    room = _room(metric, calibrated=calibrated)
    names = (
        f"{room}{kind.instrument}/{kind.length}",
        f"{room}{kind.instrument}/long",
        f"{room}any",
    )
    name = next((name for name in names if name in entries), None)
    if name is None:
        return ASSUMED
    found = entries[name]
    scores = found["scores"]
    assert isinstance(scores, dict)  # noqa: S101  (for the type checker)
    return Spread(
        tau=float(str(found["tau"])),
        scores={float(c): float(s) for c, s in scores.items()},
        pairs=int(str(found["pairs"])),
        origin=str(found["origin"]),
    )


def _room(metric: Metric, *, calibrated: bool) -> str:
    """Return the beginning of the names of a metric's entries in ``spread.json``."""
    if metric in ("speedup", "aa"):  # the noise of both is that of a ratio of two arms
        return ""
    return f"{metric}, calibrated/" if calibrated else f"{metric}/"


class Coverage(NamedTuple):
    """How often the interval of one run contained the value of another run.

    Attributes:
        pairs: Number of ordered pairs of runs.
        another_run: Fraction of pairs where the interval for another run contained it.
        within_run: Fraction of pairs where the interval of the run's own rounds contained it.
        slower: Fraction of pairs where the second run would be judged slower than the first.
    """

    pairs: int
    another_run: float
    within_run: float
    slower: float


def coverage(groups: Iterable[Sequence[RunRecord]], metric: Metric = "speedup") -> Coverage:
    """Return how well the intervals predict held-out runs, by leave-one-case-out validation.

    Args:
        groups: Runs of each case, from ``repeats``. The interval of a case is computed from the
            runs of all other cases.
        metric: Which quantity. A ``slower`` run is one whose difference exceeds what the verdict
            allows, in one direction.
    """
    learnt_from = []
    for runs in groups:
        pairs = (_pair(one, other, metric) for one, other in combinations(runs, 2))
        learnt_from.append((kind_of(runs[0]), [pair for pair in pairs if pair is not None]))
    held = own = slower = n = 0
    for number, (kind, mine) in enumerate(learnt_from):
        others = [
            pair
            for k, (other_kind, found) in enumerate(learnt_from)
            if k != number and other_kind.length == kind.length
            for pair in found
        ]
        if len(others) < ENOUGH_PAIRS:  # too few of this length: use all lengths
            others = [p for k, (_, found) in enumerate(learnt_from) if k != number for p in found]
        spread = learn(others, "") if len(others) >= ENOUGH_PAIRS else shipped(kind, metric)
        for pair in mine:
            for apart, (first, second) in (
                (pair.difference, pair.within),
                (-pair.difference, pair.within[::-1]),
            ):
                scale = math.hypot(_scale(spread.tau, first), _scale(spread.tau, first))
                both = math.hypot(_scale(spread.tau, first), _scale(spread.tau, second))
                n += 1
                held += abs(apart) <= spread.scores[CONFIDENCE] * scale
                own += abs(apart) <= _NORMAL_95 * first
                slower += apart > spread.scores[VERDICT_CONFIDENCE] * both
    if not n:
        return Coverage(0, math.nan, math.nan, math.nan)
    return Coverage(n, held / n, own / n, slower / n)


def spreads_by_length(groups: Iterable[Sequence[RunRecord]]) -> dict[str, Spread]:
    """Return the contents of ``spread.json``: spreads per metric, instrument and length.

    Args:
        groups: Runs of each case, from ``repeats``.
    """
    pairs: dict[str, list[_Pair]] = defaultdict(list)
    for runs in groups:
        kind = kind_of(runs[0])
        for (one, other), metric in product(combinations(runs, 2), JUDGED):
            pair = _pair(one, other, metric)
            if pair is None:
                continue
            room = _room(metric, calibrated=is_calibrated(one, other, metric))
            pairs[f"{room}{kind.instrument}/{kind.length}"].append(pair)
            pairs[f"{room}any"].append(pair)
    return {
        name: learn(found, f"{len(found)} pairs of runs on other machines")
        for name, found in sorted(pairs.items())
        if len(found) >= ENOUGH_PAIRS
    }


# For callers without records: only the shipped spreads.
SHIPPED = Spreads()
