"""Locate a change from the answers so far, and describe the change, without measuring."""

from __future__ import annotations

import math
from collections import Counter
from statistics import fmean
from typing import TYPE_CHECKING, Final

from ivhl.bench.experiment.evidence import ROUNDS, WEIGHED, Evidence, noise_of, weigh_moves
from ivhl.tracker.causes.culprit import Gap, Rates, Shift, find_gaps
from ivhl.tracker.store.metrics import RELEVANT
from ivhl.tracker.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ivhl.bench.bisection.question import Answer, Question, Symptom


# Runs of each end that show how often a flaky case fails there, and how probable it may be that
# chance alone makes the ends so different.
FLAKY_RUNS, FLAKY_CHANCE = 8, 0.05


# A change that leaves this much of the whole to others is not all of it.
_PART: Final = 0.75


# Rounds at one place, as a multiple of those that two clear levels need.
_PATIENCE: Final = 4


class Search:
    """What the answers of a search tell.

    Args:
        question: The change to search for.
        answers: The answers, to which others may be added.
    """

    def __init__(self, question: Question, answers: Sequence[Answer]) -> None:
        self._question, self._answers = question, answers
        self.names = {p.name: i for i, p in enumerate(question.positions)}
        self.last = len(question.positions) - 1

    def moves(self, place: int, against: int = 0) -> list[Answer]:
        """Return the answers that compare a place with another one."""
        names = self._question.positions[place].name, self._question.positions[against].name
        return [a for a in self._answers if (a.place, a.against) == names and a.apart is not None]

    def shown(self, place: int) -> list[bool]:
        """Return whether each run of a place is like the last place."""
        found = map(self.like_last, self.symptoms(place))
        return [one for one in found if one is not None]

    def runs_first(self, place: int) -> bool:
        """Return whether a place is run by itself before it is compared: its code may be known.

        That run is less than the comparison, and lost where the code is new: it is made as long as
        at least half of the places seen so far had the code of another one.
        """
        name = self._question.positions[place].name
        if self._question.along != "commit" or any(a.place == name for a in self._answers):
            return False
        ends = {self._question.positions[end].name for end in (0, self.last)}
        alike = {a.place for a in self._answers if a.alike}
        seen = alike | {a.place for a in self._answers if a.apart is not None and not a.alike}
        return 2 * len(alike) >= len(seen - ends)

    def symptoms(self, place: int) -> list[Symptom]:
        """Return what each run of a place showed."""
        return [a.symptom for a in self._runs_of(place) if a.symptom is not None]

    def _runs_of(self, place: int) -> list[Answer]:
        """Return the answers with a symptom of a place."""
        name = self._question.positions[place].name
        return [a for a in self._answers if a.place == name and a.symptom is not None]

    def apart(self) -> tuple[Symptom, Symptom]:
        """Return the symptoms that tell the first place from the last one; the same if none does.

        A flaky end shows at times what the other one always shows: what is seen most at one end and
        least at the other tells them apart.
        """
        first, last = Counter(self.symptoms(0)), Counter(self.symptoms(self.last))
        pairs = [(one, other) for one in first for other in last if one != other]
        if not pairs:
            return next(iter(first)), next(iter(last))
        return max(
            pairs, key=lambda pair: first[pair[0]] - last[pair[0]] + last[pair[1]] - first[pair[1]]
        )

    def mended(self) -> bool:
        """Return whether the last place is the better one."""
        first, last = self.apart()
        if isinstance(first, int) and isinstance(last, int):
            return last < first
        return isinstance(last, int) or last in ("works", "right")

    def like_last(self, symptom: Symptom) -> bool | None:
        """Return whether a symptom is that of the last place; ``None`` if it is neither's."""
        first, last = self.apart()
        numbers = (symptom, first, last)
        if all(isinstance(one, int) for one in numbers):
            value, was, now = (int(one or 0) for one in numbers)
            return (value > was) == (now > was) and value != was
        return True if symptom == last else (False if symptom == first else None)

    def skips(self) -> dict[int, str]:
        """Return the places that cannot be asked, each with its reason."""
        found = {self.names[a.place]: a.skip for a in self._answers if a.skip}
        first = self._question.positions[0].name
        asked = Counter(
            self.names[a.place]
            for a in self._answers
            if a.symptom is not None or (a.apart is not None and a.against == first)
        )
        most = self.most_answers()
        for place, number in asked.items():
            if number >= most and 0 < place < self.last:
                unclear = (
                    f"neither like the first nor like the last in {counted(number, 'answer')}"
                )
                found.setdefault(place, unclear)
        return found

    def alike(self) -> list[tuple[int, int]]:
        """Return the places whose code is that of another one, with that one."""
        return [(self.names[a.place], self.names[a.alike]) for a in self._answers if a.alike]

    def chosen(self, place: int) -> int:
        """Return the place with own answers that stands for one with the same code."""
        return next((other for one, other in self.alike() if one == place and other), place)

    def gaps(self, prior: Sequence[float]) -> tuple[Gap, ...]:
        """Return where the change may be, with what is known so far."""
        return find_gaps(prior, self.weights(), self.skips().keys(), self.alike())

    def weights(self) -> dict[int, float]:
        """Return by how much the answers at each place between the ends speak for the last one."""
        inner = {self.names[a.place] for a in self._answers} - {0, self.last}
        if not self._question.timed:
            rates = Rates.of(self.shown(0), self.shown(self.last), flaky=self.flaky())
            return {place: sum(map(rates.evidence, self.shown(place))) for place in inner}
        shift = self.shift()
        return {
            place: sum(shift.evidence(a.apart) for a in self.moves(place) if a.apart is not None)
            for place in inner
        }

    def shift(self) -> Shift:
        """Return by how much the ends differ, and how sure that is."""
        ends = [a.apart for a in self.moves(self.last) if a.apart is not None]
        scale, freedom = self.noise()
        # What is known of the ends has noise, too.
        return Shift(fmean(ends), scale * math.sqrt(1 + 1 / len(ends)), freedom)

    def noise(self) -> tuple[float, int]:
        """Return the standard deviation of an answer, with its degrees of freedom."""
        groups: dict[tuple[str, str], list[float]] = {}
        for a in self._answers:
            if a.apart is not None:
                groups.setdefault((a.place, a.against), []).append(a.apart)
        noises = [a.noise for a in self._answers if a.apart is not None]
        return noise_of(groups.values(), noises)

    def most_answers(self) -> int:
        """Return after how many answers a place is left."""
        if not self._question.timed:
            return 2 * FLAKY_RUNS
        shift, odds = self.shift(), math.log((1 - self._question.error) / self._question.error)
        needed = 2 * odds * (shift.scale / shift.apart) ** 2
        return max(ROUNDS, math.ceil(_PATIENCE * needed))

    def flaky(self) -> bool:
        """Return whether runs of one place show different things."""
        places = {self.names[a.place] for a in self._answers}
        return any(len(set(self.shown(place))) > 1 for place in places)

    def strength(self) -> float:
        """Return the difference of the ends in standard deviations of an answer."""
        if not self._question.timed:
            return math.inf
        shift = self.shift()
        return abs(shift.apart) / shift.scale

    def unseen(self, gap: Gap) -> Iterator[int]:
        """Yield the sides of a gap of which more must be seen before it is named."""
        for place in (gap.before, gap.after):
            if self.chosen(place) != place or (place, 0) in self.alike():
                continue
            if self._question.timed:
                if place not in (0, self.last) and not self.moves(place):
                    yield place
            elif len(self.shown(place)) < 2:  # noqa: PLR2004  (once more than once)
                yield place

    def are_alike(self) -> bool:
        """Return whether all runs of both ends showed the same; not if one was never run."""
        seen = [self.symptoms(place) for place in (0, self.last)]
        return all(seen) and len({symptom for one in seen for symptom in one}) == 1

    def weigh(self, place: int, against: int) -> Evidence:
        """Return how two places differ, by all answers that compare them."""
        moves = self.moves(place, against)
        return weigh_moves(
            self._question.metric,
            [a.apart for a in moves if a.apart is not None],
            [a.noise for a in moves],
        )

    def turns(self, gap: Gap) -> Evidence | None:
        """Return how both sides of a gap differ; ``None`` if more rounds could tell."""
        if not self.moves(gap.after, gap.before):
            return None
        found, relevant = self.weigh(gap.after, gap.before), RELEVANT[self._question.metric]
        moved = found.low > 1 or found.high < 1
        stayed = found.high < relevant and found.low > 1 / relevant
        return found if moved or stayed or found.rounds >= ROUNDS else None

    def part(self, gap: Gap) -> str:
        """Return that a gap has not all graph breaks that the ends differ by; empty if it has."""
        newest = (
            next(reversed(self.symptoms(self.chosen(place))), None)
            for place in (0, gap.before, gap.after, self.last)
        )
        numbers = [one for one in newest if isinstance(one, int)]
        if len(numbers) < 4:  # noqa: PLR2004  (a number at each)
            return ""
        first, before, after, last = numbers
        if abs(after - before) >= abs(last - first):
            return ""
        return (
            f"this is {abs(after - before)} of the {abs(last - first)} that the ends differ by: "
            "search the rest before and after it"
        )

    def text(self, place: int, *, like_last: bool | None = None) -> str:
        """Return what the newest run of a place showed, if it can be one that is like an end."""
        seen = self._runs_of(self.chosen(place))
        if like_last is not None:
            seen = [a for a in seen if self.like_last(a.symptom) is like_last] or seen
        return seen[-1].text if seen else "not measured"

    def rate(self, place: int) -> str:
        """Return in how many runs a place showed what is searched for."""
        shown, mended = self.shown(place), self.mended()
        return f"{sum(one is not mended for one in shown)} of {counted(len(shown), 'run')}"

    def title(self, place: int) -> str:
        """Return what a place is called."""
        return self._question.positions[place].title

    def shown_at(self, place: int) -> str:
        """Return in how many runs a place showed what is searched for, with its title."""
        return f"{self.rate(place)} at {self.title(place)}"

    def evidence_of_symptoms(self, gap: Gap) -> tuple[str, list[str]]:
        """Return how both sides of a gap differ in what has no noise, and what to know of it."""
        notes = []
        if self.flaky():
            places = (self.last, gap.before, gap.after)
            rest = ", ".join(map(self.shown_at, places))
            notes.append(f"flaky: {self.rate(0)} show it at {self.title(0)}, {rest}")
        if part := self.part(gap):
            notes.append(part)
        before = self.text(gap.before, like_last=False)
        return f"{before} -> {self.text(gap.after, like_last=True)}", notes

    def evidence_of_times(self, gap: Gap, found: Evidence) -> tuple[str, list[str]]:
        """Return how both sides of a gap differ in seconds, and what to know of it.

        Args:
            gap: The gap.
            found: How they differ in the quantity that is searched.
        """
        notes = []
        part = math.log(found.ratio) / self.shift().apart
        if found.low <= 1 <= found.high:
            notes.append(
                "measured in turns, these two do not clearly differ: noise may have misled the "
                "search; ivhl bisect ... --force --error 0.01 begins again"
            )
        elif part < _PART:
            notes.append(
                f"this is {max(part, 0):.0%} of what the ends differ by: search the rest before "
                "and after it"
            )
        moves = self.moves(gap.after, gap.before)
        beside = [
            weigh_moves(
                metric,
                [a.beside[metric][0] for a in moves],
                [a.beside[metric][1] for a in moves],
            )
            for metric in WEIGHED
            if all(metric in a.beside for a in moves)
        ]
        return "; ".join(map(str, (found, *beside))), notes
