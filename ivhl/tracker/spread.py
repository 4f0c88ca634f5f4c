"""What another run of the same case would show, learnt from cases that were run more than once.

The interval of a record is of the rounds of one run. Another run has other processes, another layout
of memory, another hour. How far its ratio lies away is learnt from runs of one machine that differ
in nothing else, per kind of case, and checked on runs that were not learnt from (``coverage``).

The scale of a run is ``sqrt(tau**2 + within**2)``: what differs between runs, and the standard error
that its own interval stands for. How many such scales hold 95 or 98 % of the differences is counted,
not assumed: split conformal prediction, as in Vovk, Gammerman and Shafer, Algorithmic Learning in a
Random World (2005), section 4.1.
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
# For a verdict that somebody acts on: at most 1 % of them may be false, on each side.
VERDICT_CONFIDENCE = 0.98
# Fewer pairs of runs do not show a spread; those that are shipped are then taken.
ENOUGH_PAIRS = 40
ENOUGH_RUNS = 4
# Compiled calls of less than this many seconds are of one kind, and so on: the shorter, the noisier.
SHORT_S, LONG_S = 1e-4, 1e-3
_STANDARD = NormalDist()
_DEFAULTS = "spread.json"


class Kind(NamedTuple):
    """Cases whose runs are expected to differ alike."""

    instrument: str
    device: str
    clock: str
    length: Literal["short", "medium", "long"]


@dataclass(frozen=True, slots=True)
class Spread:
    """How far apart two runs of one kind of case lie.

    Attributes:
        tau: Standard deviation between runs of the logarithm of the ratio, beyond what the
            intervals of the runs themselves explain.
        scores: Confidence to how many scales hold that part of the differences.
        pairs: How many pairs of runs it was learnt from.
        origin: Where these were run.
    """

    tau: float
    scores: Mapping[float, float]
    pairs: int
    origin: str

    def factor(self, *runs: RunRecord, confidence: float, ratio: Ratio = "speedup") -> float:
        """Return by which factor two runs differ at most, with that confidence.

        Args:
            runs: Both, or one, whose own interval then stands for the other's as well.
            confidence: One of those in ``scores``.
            ratio: Which ratio of the records.
        """
        both = runs if len(runs) > 1 else runs * 2
        scale = math.hypot(*(_scale(self.tau, within(run, ratio)) for run in both))
        return math.exp(self.scores[confidence] * scale)


class Spreads:
    """What was learnt, by machine and kind of case.

    Args:
        records: Every record there is, those that a later one replaces included.
    """

    def __init__(self, records: Iterable[RunRecord] = ()) -> None:
        pairs: dict[tuple[str, Kind], list[_Pair]] = defaultdict(list)
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
        """Return the spread of the record's machine and kind, or the one that is shipped."""
        kind = kind_of(record)
        return self._learnt.get((record.machine.name, kind)) or shipped(kind)

    def another_run(
        self, record: RunRecord, *, confidence: float = CONFIDENCE, ratio: Ratio = "speedup"
    ) -> Interval | None:
        """Return where another run would be expected; ``None`` where nothing was measured."""
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


def kind_of(record: RunRecord) -> Kind:
    """Return the kind of a record's case; one that was not measured counts as long."""
    seconds = median(record.compiled.samples_s) if record.compiled else math.inf
    length: Literal["short", "medium", "long"] = "long"
    if seconds < LONG_S:
        length = "short" if seconds < SHORT_S else "medium"
    return Kind(
        instrument=version_of(record.conditions.instrument),
        device=device_type(record),
        clock=record.conditions.clock,
        length=length,
    )


def repeats(records: Iterable[RunRecord]) -> Iterator[tuple[RunRecord, ...]]:
    """Yield the runs of each case that differ in nothing that could change a number.

    Runs of two commits count if the sources that the case reaches are equal.
    """
    groups: dict[object, dict[str, RunRecord]] = defaultdict(dict)
    for record in records:
        if record.speedup is None:
            continue
        conditions = record.conditions
        subject = record.sources or record.commit
        same = (
            key_of(record)._replace(commit=""), subject, record.cell.lock_sha256, conditions.threads,
            conditions.image, conditions.packages,
            # Not the length: a case near a limit is of one length or the other by chance.
            kind_of(record)._replace(length="long"),
        )  # fmt: skip
        # One run writes one record of a case; the same line in two files is no second run.
        groups[same][record.recorded_at] = record
    for runs in groups.values():
        if len(runs) > 1:
            yield tuple(runs[at] for at in sorted(runs))


def within(record: RunRecord, ratio: Ratio = "speedup") -> float:
    """Return the standard error of the logarithm of a ratio that its own interval stands for."""
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
    """Return the score below which another one lies with that confidence; never below a normal's."""
    rank = math.ceil((len(scores) + 1) * confidence)
    normal = _STANDARD.inv_cdf((1 + confidence) / 2)
    if rank > len(scores):  # too few to have seen one that large
        return max(scores[-1], normal)
    return scores[rank - 1]


@cache
def _defaults() -> dict[str, dict[str, object]]:
    text = (files("ivhl.tracker") / _DEFAULTS).read_text(encoding="utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


def shipped(kind: Kind) -> Spread:
    """Return the spread that the committed experiments have shown for a kind of case.

    ``nox -s repeat`` makes the records, ``ivhl spread --write`` the file. A kind that was never
    repeated takes the widest that there is.
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
    """How often the interval of one run held the value of another one.

    Attributes:
        pairs: Ordered pairs of runs.
        another_run: Part of them in which the interval for another run did.
        within_run: Part of them in which the interval of the run's own rounds did.
        slower: Part of them in which the second would be called slower than the first.
    """

    pairs: int
    another_run: float
    within_run: float
    slower: float


def coverage(groups: Iterable[Sequence[RunRecord]], ratio: Ratio = "speedup") -> Coverage:
    """Return how well intervals foretell runs that nothing was learnt from.

    Args:
        groups: Runs of each case, from ``repeats``. What the interval of a case takes is learnt from
            all other cases.
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
        if len(others) < ENOUGH_PAIRS:  # of any length, then
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
    """Return what is shipped: a spread for each instrument and length of calls, and for any.

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


# What is known where no machine has repeated anything.
SHIPPED = Spreads()
