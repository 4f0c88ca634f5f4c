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
from itertools import combinations, permutations
from statistics import NormalDist, fmean, median
from typing import TYPE_CHECKING, Literal, NamedTuple

from ivhl.instrument import version_of
from ivhl.records import Interval
from ivhl.tracker.store import device_type, key_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ivhl.records import RunRecord

Ratio = Literal["speedup", "aa"]

CONFIDENCE = 0.95
# For verdicts that people act on: at most 1 % false ones in each direction.
VERDICT_CONFIDENCE = 0.98
# With fewer pairs or runs, the spreads shipped in spread.json are used.
ENOUGH_PAIRS = 40
ENOUGH_RUNS = 4
# Limits in seconds per compiled call between short, medium and long cases: shorter ones are noisier.
SHORT_S, LONG_S = 1e-4, 1e-3
_STANDARD = NormalDist()
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

    def factor(self, *runs: RunRecord, confidence: float, ratio: Ratio = "speedup") -> float:
        """Return the factor by which two runs differ at most, with this confidence.

        Args:
            runs: Both runs, or one: its own interval is then used for the other run as well.
            confidence: A key of ``scores``.
            ratio: Which ratio of the records.
        """
        both = runs if len(runs) > 1 else runs * 2
        scale = math.hypot(*(_scale(self.tau, within(run, ratio)) for run in both))
        return math.exp(self.scores[confidence] * scale)


class Spreads:
    """The spreads learnt from records, by machine and kind of case.

    Args:
        records: All records, including those that a later one replaces.
    """

    def __init__(self, records: Iterable[RunRecord] = ()) -> None:
        pairs: dict[tuple[str, CaseKind], list[_Pair]] = defaultdict(list)
        for runs in repeats(records):
            for one, other in combinations(runs, 2):
                pairs[one.machine.name, kind_of(one)].append(_pair(one, other, "speedup"))
        self._learnt = {
            key: learn(found, f"{len(found)} pairs of runs on {key[0]}")
            for key, found in pairs.items()
            if len(found) >= ENOUGH_PAIRS
            and len({run for pair in found for run in pair.runs}) >= ENOUGH_RUNS
        }

    def of(self, record: RunRecord) -> Spread:
        """Return the spread of the record's machine and kind, or the shipped one."""
        kind = kind_of(record)
        return self._learnt.get((record.machine.name, kind)) or shipped(kind)

    def another_run(
        self, record: RunRecord, *, confidence: float = CONFIDENCE, ratio: Ratio = "speedup"
    ) -> Interval | None:
        """Return the interval expected for another run; ``None`` if the record lacks the ratio."""
        found = getattr(record, ratio)
        if found is None:
            return None
        factor = self.of(record).factor(record, confidence=confidence, ratio=ratio)
        return Interval(
            value=found.value,
            low=found.value / factor,
            high=found.value * factor,
            confidence=confidence,
            n=found.n,
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


def within(record: RunRecord, ratio: Ratio = "speedup") -> float:
    """Return the standard error of a ratio's logarithm, implied by the record's own interval."""
    found: Interval | None = getattr(record, ratio)
    if found is None or not 0 < found.low <= found.high:
        return 0.0
    return math.log(found.high / found.low) / (2 * _STANDARD.inv_cdf((1 + found.confidence) / 2))


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


def _pair(one: RunRecord, other: RunRecord, ratio: Ratio) -> _Pair:
    a, b = getattr(one, ratio), getattr(other, ratio)
    return _Pair(
        difference=math.log(a.value / b.value),
        within=(within(one, ratio), within(other, ratio)),
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


def shipped(kind: CaseKind) -> Spread:
    """Return the spread of a kind of case from ``spread.json``, learnt from repeated runs.

    ``nox -s repeat`` makes the records, ``ivhl spread --write`` the file. A kind without an entry
    uses that of its instrument's long cases, else that of all cases.
    """
    entries = _defaults()
    names = (f"{kind.instrument}/{kind.length}", f"{kind.instrument}/long", "any")
    found = next(entries[name] for name in names if name in entries)
    scores = found["scores"]
    assert isinstance(scores, dict)  # noqa: S101  (for the type checker)
    return Spread(
        tau=float(str(found["tau"])),
        scores={float(c): float(s) for c, s in scores.items()},
        pairs=int(str(found["pairs"])),
        origin=str(found["origin"]),
    )


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


def coverage(groups: Iterable[Sequence[RunRecord]], ratio: Ratio = "speedup") -> Coverage:
    """Return how well the intervals predict held-out runs, by leave-one-case-out validation.

    Args:
        groups: Runs of each case, from ``repeats``. The interval of a case is computed from the
            runs of all other cases.
        ratio: Which ratio of the records.
    """
    groups = [group for group in groups if all(getattr(run, ratio) for run in group)]
    learnt_from = [
        (kind_of(runs[0]), [_pair(one, other, ratio) for one, other in combinations(runs, 2)])
        for runs in groups
    ]
    held = own = slower = n = 0
    for number, runs in enumerate(groups):
        kind = kind_of(runs[0])
        others = [
            pair
            for k, (other_kind, pairs) in enumerate(learnt_from)
            if k != number and other_kind.length == kind.length
            for pair in pairs
        ]
        if len(others) < ENOUGH_PAIRS:  # too few of this length: use all lengths
            others = [p for k, (_, pairs) in enumerate(learnt_from) if k != number for p in pairs]
        spread = learn(others, "") if len(others) >= ENOUGH_PAIRS else shipped(kind)
        for a, b in permutations(runs, 2):
            x, y = getattr(a, ratio), getattr(b, ratio)
            factor = spread.factor(a, confidence=CONFIDENCE, ratio=ratio)
            bound = spread.factor(a, b, confidence=VERDICT_CONFIDENCE, ratio=ratio)
            n += 1
            held += x.value / factor <= y.value <= x.value * factor
            own += x.low <= y.value <= x.high
            slower += y.value * bound < x.value
    if not n:
        return Coverage(0, math.nan, math.nan, math.nan)
    return Coverage(n, held / n, own / n, slower / n)


def spreads_by_length(groups: Iterable[Sequence[RunRecord]]) -> dict[str, Spread]:
    """Return the contents of ``spread.json``: a spread per instrument and length, and ``any``.

    Args:
        groups: Runs of each case, from ``repeats``.
    """
    pairs: dict[str, list[_Pair]] = defaultdict(list)
    for runs in groups:
        kind = kind_of(runs[0])
        for one, other in combinations(runs, 2):
            pair = _pair(one, other, "speedup")
            pairs[f"{kind.instrument}/{kind.length}"].append(pair)
            pairs["any"].append(pair)
    return {
        name: learn(found, f"{len(found)} pairs of runs on other machines")
        for name, found in sorted(pairs.items())
    }


# For callers without records: only the shipped spreads.
SHIPPED = Spreads()
