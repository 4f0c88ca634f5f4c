"""The calls of a segment, in which turns of a loop are found.

Everything here takes a time of its own part of a segment: segments of a program that reads nothing
have thousands of calls, and each of them is looked at when it comes.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import torch

from ivhl.hotpath.calls import CONSTANTS, Given, Intermediate, fill

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ivhl.hotpath.calls import Call, Result, Role

# Calls in a row by which turns of a loop are looked for, and how many such places are compared.
_ROW: Final = 8
_MOST_PLACES: Final = 64


class Path:
    """Calls from the first one of a segment on.

    Attributes:
        calls: In their order.
        brought: Facts and class of each tensor from outside, by number.
        made: Each tensor that they made, by number.
    """

    def __init__(self, calls: Iterable[Call] = ()) -> None:
        self.calls: list[Call] = []
        self.brought: list[Any] = []
        self.made: list[Result] = []
        self._n_made: list[int] = []  # before each call
        # What calls are, as far as that costs little; rows of them, and where each such row ends.
        self._looks: list[int] = []
        self._places: dict[int, list[int]] = {}
        for call in calls:
            self.add(call)

    def add(self, call: Call) -> None:
        """Add the next call."""
        self._n_made.append(len(self.made))
        self.calls.append(call)
        self.brought += call.brings
        self.made += [one for one in call.results if one.is_new]

    def turn(self, begin: int, end: int, *, in_segment: bool) -> str:
        """Return what calls do, in terms of themselves alone.

        Two turns of a loop return the same. Tensors from outside are numbered by their first use, as
        in a sequence of its own.

        Args:
            begin: Of the turn.
            end: Of the turn.
            in_segment: Whether both turns are in this path: then parameters must be the same
                objects, which tells turns of a loop from equal layers of a model.
        """
        brought, made, n_before = self.brought, self.made, self._n_made[begin]
        outside: dict[Role, int] = {}

        def of_role(role: Role) -> Any:
            if isinstance(role, Given):
                facts = brought[role.index]
                if in_segment and facts[-1] is torch.nn.Parameter:
                    return role
            elif role.index < n_before:
                facts = (*made[role.index].facts, torch.Tensor)
            else:
                return role.index - n_before, Intermediate
            return outside.setdefault(role, len(outside)), *facts

        # As a text, in which 1 is neither True nor 1.0, and nan is itself.
        return repr(
            [
                (call.func, call.grad, fill(call.args, of_role), fill(call.kwargs, of_role))
                for call in self.calls[begin:end]
            ]
        )

    def are_alike(self, end: int, length: int) -> bool:
        """Return whether the turn of a loop before a place does what the one behind it does.

        Args:
            end: Of the first of the two turns.
            length: Of each.
        """
        return all(
            self._likeness(place) == self._likeness(place - length)
            for place in range(end + length - 1, end - 1, -1)
        ) and (
            self.turn(end - length, end, in_segment=True)
            == self.turn(end, end + length, in_segment=True)
        )

    def _likeness(self, place: int) -> str:
        """Return what a call does, but for the calls that made its arguments."""
        call = self.calls[place]
        if not call.likeness:
            call.likeness = self.turn(place, place + 1, in_segment=True)
        return call.likeness

    def last_turn(self, turns: int, least: int) -> int:
        """Return the calls of a turn, if the last ones are equal turns of a loop; else 0.

        Args:
            turns: How many are a loop.
            least: Calls of the shortest turn.
        """
        n, looks = len(self.calls), self._looks
        places: list[int] = []
        for place in range(len(looks), n):
            looks.append(self._look(self.calls[place]))
            row = hash(tuple(looks[max(0, place - _ROW + 1) :]))
            places = self._places.setdefault(row, [])
            places.append(place)
        # Turns that are too short for equal rows, and those with a row such as the last one.
        lengths = chain(
            range(least, -(-_ROW // (turns - 1))),
            (n - 1 - place for place in reversed(places[-_MOST_PLACES:-1])),
        )
        for length in lengths:
            if turns * length > n:
                break
            if (
                length >= least
                and looks[n - turns * length : n - length] == looks[n - (turns - 1) * length :]
                and all(self.are_alike(n - k * length, length) for k in range(1, turns))
            ):
                return length
        return 0

    def _look(self, call: Call) -> int:
        """Return a number that equal calls of two turns share, and few others do."""
        constants = [
            part
            for part in call.key[1:]
            if type(part) is tuple and part and (part[0] is float or part[0] in CONSTANTS)
        ]
        parameters = [
            role.index
            for role in call.args
            if type(role) is Given and self.brought[role.index][-1] is torch.nn.Parameter
        ]
        facts = [one.facts for one in call.results]
        return hash((call.func, *facts, *constants, *parameters))

    def turns_like(self, other: Path) -> int:
        """Return how often this path ran at the end of another one, or anywhere in one that was cut.

        Args:
            other: Of a segment that ended earlier.
        """
        length, end, found = len(self.calls), len(other.calls), 0
        while length < len(other.calls) and length <= end:
            if self._ends_at(other, end):
                found += 1
                end -= length
            elif other.calls[-1].is_cut:
                end -= 1
            else:
                break
        return found

    def _ends_at(self, other: Path, end: int) -> bool:
        length = len(self.calls)

        def are_same(begin: int, end_here: int, shift: int) -> bool:
            return self.turn(begin, end_here, in_segment=False) == other.turn(
                begin + shift, end_here + shift, in_segment=False
            )

        # First what costs little.
        shift = end - length
        return all(
            self.calls[place].func is other.calls[place + shift].func
            and are_same(place, place + 1, shift)
            for place in range(length - 1, -1, -1)
        ) and are_same(0, length, shift)
