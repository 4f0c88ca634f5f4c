"""Attribute a difference between two cells to the axes in which they differ: a factorial.

With two axes, Python and PyTorch, there are four corners: both cells, and each with one axis of the
other. The effect of an axis is the mean of its changes at all settings of the others; an interaction
is by how much the effect of one axis differs with the other. All are on logarithms, so as factors.

Source:
    G. E. P. Box, J. S. Hunter and W. G. Hunter, Statistics for Experimenters, 2nd ed. (2005),
    chapter 5.
"""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import combinations, compress, product
from operator import ne
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, get_args

from ivhl.errors import ResultsError, SpecError
from ivhl.git import commits_of_same_code
from ivhl.matrix.locks import lock_state
from ivhl.matrix.spec import CellSpec
from ivhl.records.age import recorded_rank
from ivhl.tracker.changes.comparable import differences
from ivhl.tracker.changes.compare import session_reach
from ivhl.tracker.changes.kinds import largest_significant
from ivhl.tracker.store.entries import Entry, code_of
from ivhl.tracker.store.metrics import (
    NORMAL_95,
    RELEVANT,
    STANDARD,
    Metric,
    difference,
    is_calibrated,
    measured,
)
from ivhl.tracker.store.records import case_name, grouped_by
from ivhl.tracker.wording import failed_as

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ivhl.records.record import RunRecord
    from ivhl.tracker.store.index import Index
    from ivhl.tracker.store.spread import Spreads

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


FACTORS: Final[tuple[Factor, ...]] = get_args(Factor)
FACTOR_WORDS: Final[dict[Factor, str]] = {
    "python": "Python",
    "torch": "PyTorch",
    "commit": "the commit",
    "flags": "the compiler flags",
}
ATTRIBUTED: Final[tuple[Metric, ...]] = ("eager", "compiled", "speedup")


class Treatment(NamedTuple):
    """What one arm of an experiment measures: a cell at a commit, perhaps with something changed.

    Attributes:
        commit: Full hash.
        flags: Settings of the compiler that are changed here.
    """

    python: str
    torch: str
    commit: str
    flags: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return its cell, commit and what is changed."""
        changed = " ".join(self.flags)
        where = f"py{self.python}-torch{self.torch} at {self.commit[:8]}"
        return f"{where} with {changed}" if changed else where


class Corner(NamedTuple):
    """One setting of all axes.

    Attributes:
        setting: For each axis, whether it is that of the second cell.
    """

    setting: Setting
    at: Treatment

    def __str__(self) -> str:
        """Return its cell, commit and what is changed."""
        return str(self.at)


class Attributed(NamedTuple):
    """One case at all corners.

    Attributes:
        outcomes: What each corner shows: ``works``, or the failure class with its message.
        effects: Empty if a corner failed.
        in_turns: Whether the corners were measured in turns, and not in a session each.
        local: What the axes do at some settings (``interaction.local_contrasts``).
    """

    machine: str
    device: str
    case: str
    outcomes: Mapping[Corner, str]
    effects: tuple[Effect, ...]
    in_turns: bool = False
    local: tuple[Effect, ...] = ()

    def whose(self, factors: Sequence[Factor]) -> str:
        """Return which axes change the outcome; empty if no corner has another one.

        Between ends of the same outcome, an axis may change it and another one change it back.
        """
        by = {corner.setting: text.partition(":")[0] for corner, text in self.outcomes.items()}
        n = len(factors)
        first, last = by[(False,) * n], by[(True,) * n]
        if first == last:
            others = [
                f"with only the second cell's {_names(factors, setting)}: {outcome}"
                for setting, outcome in by.items()
                if outcome != first
            ]
            return "; ".join([f"{first} in both cells", *others]) if others else ""
        alone = [
            FACTOR_WORDS[factors[i]]
            for i in range(n)
            if by[tuple(i == j for j in range(n))] == last
        ]
        if not alone:
            who = "none of them alone, only several together"
        elif len(alone) == n > 1:
            who = f"each of {', '.join(alone)} alone"
        else:
            who = " or ".join(alone) + (" alone" if n > 1 else "")
        return f"{first} -> {last}: {who}"


def _names(factors: Sequence[Factor], setting: Setting) -> str:
    words = (FACTOR_WORDS[one] for one in compress(factors, setting))
    return " and ".join(word.removeprefix("the ") for word in words)


def factors_of(first: Treatment, last: Treatment) -> tuple[Factor, ...]:
    """Return the axes in which two ends differ."""
    return tuple(f for f in FACTORS if getattr(first, f) != getattr(last, f))


def corners_of(first: Treatment, last: Treatment) -> tuple[Corner, ...]:
    """Return all settings of the axes that differ, the first end first and the last one last."""
    factors = factors_of(first, last)
    return tuple(
        Corner(on, first._replace(**{f: getattr(last, f) for f in compress(factors, on)}))
        for on in product((False, True), repeat=len(factors))
    )


def edges_of(corners: Sequence[Corner]) -> tuple[tuple[Corner, Corner, int], ...]:
    """Return the pairs of corners that differ in one axis, with its number."""
    pairs = [*combinations(corners, 2)]
    apart = ([i for i, on in enumerate(map(ne, a.setting, b.setting)) if on] for a, b in pairs)
    return tuple((*p, axes[0]) for p, axes in zip(pairs, apart, strict=True) if len(axes) == 1)


def not_matched(
    records: Mapping[Corner, RunRecord],
    factors: Sequence[Factor],
    installed: Callable[[RunRecord, RunRecord], Iterable[str]],
) -> list[str]:
    """Return why the records of the corners of a case do not differ in the axes alone.

    Args:
        records: Corner to its record.
        factors: The axes.
        installed: Returns what else differs between what is installed in two cells.
    """
    found: dict[str, None] = {}
    for one, other, axis in edges_of(tuple(records)):
        pair = records[one], records[other]
        factor = factors[axis]
        apart = differences(*pair, factor)
        if factor not in ("commit", "flags"):
            apart += installed(*pair)
        for reason in apart:
            found[f"{one} and {other}: {reason}"] = None
    return list(found)


def attribute(
    records: Mapping[Corner, RunRecord], factors: Sequence[Factor], spreads: Spreads
) -> Attributed:
    """Return what each axis does to a case, by one record of each corner.

    Intervals hold what another run of all corners would show: each corner has the scale that runs of
    its case differ by.

    Args:
        records: Corner to its record, matched.
        factors: The axes.
        spreads: What runs of the same code differ by.
    """
    (base, *_) = records.values()
    effects: list[Effect] = []
    if not any(record.failure for record in records.values()):
        for metric in ATTRIBUTED:
            logs = {c.setting: difference(base, record, metric) for c, record in records.items()}
            known = {setting: log for setting, log in logs.items() if log is not None}
            if len(known) < len(logs):
                continue
            scales, scores = {}, []
            for corner, record in records.items():
                calibrated = is_calibrated(base, record, metric)
                spread = spreads.of(record, metric, calibrated=calibrated)
                # ``scale`` is that of the difference of two such runs.
                scales[corner.setting] = spread.scale(record, metric=metric) / math.sqrt(2)
                scores.append(spread.scores.of(CONFIDENCE))
            for names, held, weights in every_contrast(factors):
                middle = sum(weight * known[setting] for setting, weight in weights.items())
                noise = math.hypot(*(w * scales[setting] for setting, w in weights.items()))
                effects.append(_effect(names, metric, middle, max(scores) * noise, held))
    return _attributed(records, effects, in_turns=False)


def attribute_rounds(
    rounds: Sequence[Mapping[Corner, RunRecord]],
    factors: Sequence[Factor],
    reach_of: Callable[[Sequence[float], Sequence[float]], tuple[float, float]],
    noise_of: Callable[[Metric, Sequence[RunRecord], Sequence[float]], float],
) -> Attributed:
    """Return what each axis does to a case, by rounds in each of which all corners were measured.

    Args:
        rounds: Corner to its record, for each round.
        factors: The axes.
        reach_of: Returns the mean and half the interval of an effect, from its values in the rounds
            and their expected noise.
        noise_of: Returns the noise that is expected of a weighted sum of runs.
    """
    last = rounds[-1]
    effects: list[Effect] = []
    for metric in ATTRIBUTED:
        table: list[dict[Setting, float]] = []
        for records in rounds:
            values = {c.setting: measured(r, metric) for c, r in records.items()}
            table.append({s: math.log(v.value) for s, v in values.items() if v is not None})
        if any(len(row) < len(last) for row in table):
            continue
        for names, held, weights in every_contrast(factors):
            moves = [sum(w * row[s] for s, w in weights.items()) for row in table]
            noises = []
            for records in rounds:
                runs = {c.setting: r for c, r in records.items()}
                noises.append(noise_of(metric, [runs[s] for s in weights], [*weights.values()]))
            effects.append(_effect(names, metric, *reach_of(moves, noises), held))
    return _attributed(last, effects, in_turns=True)


def _attributed(
    records: Mapping[Corner, RunRecord], effects: Iterable[Effect], *, in_turns: bool
) -> Attributed:
    (base, *_) = records.values()
    effects = tuple(effects)
    return Attributed(
        base.machine.name,
        base.conditions.device.split()[0],
        case_name(base),
        {corner: _outcome(record) for corner, record in records.items()},
        tuple(effect for effect in effects if not effect.held),
        in_turns,
        tuple(effect for effect in effects if effect.held),
    )


def contrasts(factors: Sequence[Factor]) -> list[tuple[tuple[Factor, ...], dict[Setting, float]]]:
    """Return the weights of each effect over the corners: single axes, then interactions."""
    n, found = len(factors), []
    settings = [*product((False, True), repeat=n)]
    for size in range(1, n + 1):
        for chosen in combinations(range(n), size):
            weights = {
                setting: math.prod(1 if setting[i] else -1 for i in chosen) / 2 ** (n - size)
                for setting in settings
            }
            found.append((tuple(factors[i] for i in chosen), weights))
    return found


def every_contrast(
    factors: Sequence[Factor],
) -> list[tuple[tuple[Factor, ...], Held, dict[Setting, float]]]:
    """Return the weights of all effects, those over all corners first."""
    whole = ((names, (), weights) for names, weights in contrasts(factors))
    return [*whole, *local_contrasts(factors)]


def judge_together(found: Sequence[Attributed]) -> list[Attributed]:
    """Return the cases with the effects marked that stand out of all; see ``changes.limits_of``."""
    every = [effect for one in found for effect in one.effects]
    of_metric = grouped_by(every, lambda effect: effect.metric)
    limits = {metric: largest_significant([e.p for e in of]) for metric, of in of_metric.items()}
    return [
        one._replace(
            effects=tuple(e._replace(significant=e.p <= limits[e.metric]) for e in one.effects)
        )
        for one in found
    ]


def overall(found: Iterable[Attributed]) -> tuple[Effect, ...]:
    """Return the mean of each effect over the cases, with the interval that the cases show.

    Of corners that were measured in a session each, the interval holds what sessions differ by.
    """
    return _means((one, one.effects) for one in found)


def overall_local(found: Iterable[Attributed]) -> tuple[Effect, ...]:
    """Return likewise the mean over the cases of what the axes do at some settings."""
    return _means((one, one.local) for one in found)


def _means(found: Iterable[tuple[Attributed, Sequence[Effect]]]) -> tuple[Effect, ...]:
    logs: dict[tuple[tuple[Factor, ...], Metric, Held], list[float]] = defaultdict(list)
    sessions: dict[tuple[tuple[Factor, ...], Metric, Held], float] = {}
    for one, effects in found:
        for effect in effects:
            key = effect.factors, effect.metric, effect.held
            logs[key].append(math.log(effect.ratio))
            sessions[key] = 0.0 if one.in_turns else _sessions_in(effect, len(one.outcomes))
    means = []
    for key, values in logs.items():
        if len(values) > 1:
            names, metric, held = key
            reach = NORMAL_95 * stdev(values) / math.sqrt(len(values))
            reach = math.hypot(reach, session_reach(metric) * sessions[key])
            mean = _effect(names, metric, fmean(values), reach, held)
            means.append(mean._replace(cases=len(values)))
    return tuple(means)


def _sessions_in(effect: Effect, n_corners: int) -> float:
    """Return how many differences of two sessions are in an effect, if each corner has its own."""
    if effect.held and effect.factors:
        squares = 2.0  # one corner less another one
    elif effect.held:
        inside = n_corners / 2 ** len(effect.held)
        squares = 1 / inside + 1 / (n_corners - inside)
    else:
        squares = 4 ** len(effect.factors) / n_corners
    return math.sqrt(squares / 2)


def complete(
    records: Iterable[RunRecord], corners: Sequence[Corner], same: Mapping[str, str]
) -> dict[tuple[str, str, str], dict[Corner, RunRecord]]:
    """Return the newest records of the cases that every corner has, by machine, device and case.

    Args:
        records: Records of any cells and commits.
        corners: All corners.
        same: Commit to the commit of a corner with the same code.
    """
    wanted = {(c.at.python, c.at.torch, c.at.commit): c for c in corners}
    found: dict[tuple[str, str, str], dict[Corner, RunRecord]] = defaultdict(dict)
    for record in sorted(records, key=recorded_rank):
        commit = same.get(record.commit, "")
        corner = wanted.get((record.cell.python, record.cell.torch, commit))
        if corner is not None:
            device = record.conditions.device.split()[0]
            found[record.machine.name, device, case_name(record)][corner] = record
    return {
        key: {corner: by[corner] for corner in corners}
        for key, by in sorted(found.items())
        if len(by) == len(corners)
    }


def _effect(
    names: tuple[Factor, ...], metric: Metric, middle: float, reach: float, held: Held = ()
) -> Effect:
    low, high = math.exp(middle - reach), math.exp(middle + reach)
    return Effect(names, metric, math.exp(middle), low, high, held=held)


def _outcome(record: RunRecord) -> str:
    return "works" if record.failure is None else failed_as(record.failure)


def factorial(first: Treatment, last: Treatment) -> tuple[tuple[Factor, ...], tuple[Corner, ...]]:
    """Return the axes in which two cells differ, and the design points between them.

    Raises:
        SpecError: If they do not differ.
    """
    factors = factors_of(first, last)
    if not factors:
        raise SpecError(
            "both cells are the same",
            hint="name two that differ in Python, PyTorch or commit: CELL@COMMIT; or --flag",
        )
    return factors, corners_of(first, last)


def recorded_corners(
    root: Path,
    ends: tuple[Treatment, Treatment],
    index: Index,
    entries: Sequence[Entry],
    *,
    named: bool,
) -> tuple[tuple[Treatment, Treatment], dict[tuple[str, str, str], dict[Corner, RunRecord]]]:
    """Return both ends, and the records of the cases that every corner has.

    Without a named commit, it is the one of which most cases were measured in all corners, there or
    at another commit with the same code of the case; of several, the newest.

    Args:
        root: Root of the project.
        ends: Both cells.
        index: Reads the records.
        entries: Records of the cases that are asked for.
        named: Whether the commits of the ends count.

    Raises:
        ResultsError: If there is no such case; names the corners without records.
    """
    first, last = ends
    _, corners = factorial(first, last)
    if named:
        hashes = {entry.commit for entry in entries}
        same = {
            like: corner.at.commit
            for corner in corners
            for like in commits_of_same_code(root, corner.at.commit, hashes)
        }
    else:
        commit, entries = _of_best_commit(corners, entries)
        first, last = first._replace(commit=commit), last._replace(commit=commit)
        _, corners = factorial(first, last)
        same = {entry.commit: commit for entry in entries}
    places = {corner.at for corner in corners}
    mine = [e for e in entries if Treatment(e.python, e.torch, same.get(e.commit, "")) in places]
    tables = complete(index.read(mine), corners, same)
    if not tables:
        there = {Treatment(e.python, e.torch, same[e.commit]) for e in mine}
        lacking = [
            f"py{at.python}-torch{at.torch}{f' at {at.commit[:8]}' if named else ''}"
            for at in sorted(places - there)
        ]
        never = [
            cell.id
            for cell in dict.fromkeys(CellSpec(at.python, at.torch) for at in sorted(places))
            if lock_state(root, cell).kind == "unavailable"
        ]
        raise ResultsError(
            "no case has records in all cells of the factorial"
            + (f"; none in {', '.join(lacking)}" if lacking else ""),
            hint=f"{', '.join(never)} cannot be installed: name cells that differ in one axis, or "
            "whose other corners can be"
            if never
            else "ivhl attribute ... --case NAME --rounds 3 measures them",
        )
    return (first, last), tables


def _of_best_commit(
    corners: Sequence[Corner], entries: Sequence[Entry]
) -> tuple[str, list[Entry]]:
    """Return the commit of which most cases have records in all cells, and the records of its code.

    A record counts for each commit at which the case has the same code. Empty if there is none.
    """
    cells = {(corner.at.python, corner.at.torch) for corner in corners}
    entries = [e for e in entries if (e.python, e.torch) in cells]
    codes: dict[str, set[tuple[object, ...]]] = defaultdict(set)
    for e in entries:
        codes[e.commit].add(_code_of(e))
    best, found, most = "", [], (-1, "")
    for commit, mine in codes.items():
        # What failed early may not say its code.
        alike = [e for e in entries if e.commit == commit or _code_of(e) in mine]
        there: dict[tuple[str, ...], set[tuple[str, str]]] = defaultdict(set)
        for e in alike:
            there[e.case.machine, e.case.device, case_name(e.case)].add((e.python, e.torch))
        newest = max(e.recorded_at for e in alike if e.commit == commit)
        size = sum(places == cells for places in there.values()), newest
        if size > most:
            best, found, most = commit, alike, size
    return best, found


def _code_of(entry: Entry) -> tuple[object, ...]:
    """Return a case on a machine with its code."""
    case = entry.case
    return case.machine, case.device, case_name(case), entry.dtype, code_of(entry)


def disturbed_by(found: Sequence[Attributed]) -> Iterator[str]:
    """Yield that runs were disturbed, if eager code moved with flags, which cannot reach it."""
    moved = (e for one in found for e in one.effects if e.metric == "eager")
    if any("flags" in e.factors and e.word in ("slower", "faster") for e in moved):
        yield (
            "no compiler flag moves eager code, and eager moved with it: these runs were "
            "disturbed; measure again, with more --rounds"
        )
