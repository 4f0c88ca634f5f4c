"""How a search is told to people."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from ivhl.bench.experiment.evidence import WEIGHED, weigh_moves
from ivhl.tracker.wording import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ivhl.bench.bisection.question import (
        Answer,
        Question,
    )
    from ivhl.bench.bisection.search import Search
    from ivhl.bench.experiment.evidence import Evidence
    from ivhl.tracker.culprit import Gap


# A change that leaves this much of the whole to others is not all of it.
_PART: Final = 0.75


class SearchReport:
    """What the answers of a search are in words.

    Args:
        question: The change to search for.
        answers: The answers, to which others may be added.
        search: What they tell.
    """

    def __init__(self, question: Question, answers: Sequence[Answer], search: Search) -> None:
        self._question, self._answers, self._search = question, answers, search

    def text(self, place: int, *, like_last: bool | None = None) -> str:
        """Return what the newest run of a place showed, if it can be one that is like an end."""
        name = self._question.positions[self._search.chosen(place)].name
        seen = [a for a in self._answers if a.place == name and a.symptom is not None]
        if like_last is not None:
            seen = [a for a in seen if self._search.like_last(a.symptom) is like_last] or seen
        return seen[-1].text if seen else "not measured"

    def rate(self, place: int) -> str:
        """Return in how many runs a place showed what is searched for."""
        shown, mended = self._search.shown(place), self._search.mended()
        return f"{sum(one is not mended for one in shown)} of {counted(len(shown), 'run')}"

    def title(self, place: int) -> str:
        """Return what a place is called."""
        return self._question.positions[place].title

    def shown_at(self, place: int) -> str:
        """Return in how many runs a place showed what is searched for, with its title."""
        return f"{self.rate(place)} at {self.title(place)}"

    def symptoms(self, gap: Gap) -> tuple[str, list[str]]:
        """Return how both sides of a gap differ in what has no noise, and what to know of it."""
        notes = []
        if self._search.flaky():
            places = (self._search.last, gap.before, gap.after)
            rest = ", ".join(map(self.shown_at, places))
            notes.append(f"flaky: {self.rate(0)} show it at {self.title(0)}, {rest}")
        if part := self._search.part(gap):
            notes.append(part)
        before = self.text(gap.before, like_last=False)
        return f"{before} -> {self.text(gap.after, like_last=True)}", notes

    def times(self, gap: Gap, found: Evidence) -> tuple[str, list[str]]:
        """Return how both sides of a gap differ in seconds, and what to know of it.

        Args:
            gap: The gap.
            found: How they differ in the quantity that is searched.
        """
        notes = []
        part = math.log(found.ratio) / self._search.shift().apart
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
        moves = self._search.moves(gap.after, gap.before)
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
