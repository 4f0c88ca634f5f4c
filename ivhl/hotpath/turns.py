"""Turns of a training loop, from one optimizer step to the next: most need not be looked at.

Of a program without an optimizer they end with the backward pass.

A mode of PyTorch alone, which only passes each call on, takes a tenth of a training step of the
size of docs/hotpath.md. So after a turn that did what one before did, some are not looked at. Of
these only what was differentiated is known, by its graph: that tells which *kind* of turn it was,
such as one with the last batch of an epoch. A turn that begins as one kind does is let pass, too,
and counts if it is differentiated as that one. What runs compiled is compared call by call, always.

Behind a single turn, too, some are not looked at, from where the model begins in the next one: if
that does not differentiate the same, all are looked at until what it did differentiate comes again.

Something else may follow instead of a turn, such as an evaluation. Its signs (``signs.py``) are
counted in every turn; with one more than any kind of turn has, calls are looked at again.

In a new block, what is differentiated at once is *left out* of the record twice: its graph alone is
known (``Recorder`` puts the record off, and needs it for anything else). It counts for the first
sequence that is recorded and ends in such a graph.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import torch

from ivhl.hotpath.calls import identity
from ivhl.hotpath.signs import model_of_caller, watch_sign

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ivhl.hotpath.calls import Call

# Turns between two that are looked at; doubled each time these two are alike.
_FEWEST_SKIPPED: Final = 8
_MOST_SKIPPED: Final = 63
# Calls of a turn that are in no sequence, such as dropout.
_CALLS_BESIDE: Final = 8
nodes_made: Final = torch._C._autograd._get_sequence_nr  # noqa: SLF001  (by this thread)
# Times that a sequence is left out of the record.
MOST_LEFT_OUT: Final = 2
# Kinds of turns that are known; and turns after which one is no kind of now.
_MOST_KINDS: Final = 64
_LATELY: Final = 64
# What is known of a turn in which one tensor was differentiated (``TrainingTurns._graphs``).
_FACTS_OF_ONE: Final = 5

Graph = tuple[Any, ...]
# What was differentiated in a turn, and how often each sign was seen.
Evidence = tuple[Graph, frozenset[tuple[int, int]]]
First = tuple[Any, bool]  # the key of a call, and whether gradients were recorded


@dataclass(eq=False, slots=True)
class _Kind:
    """Turns of the same evidence.

    Attributes:
        ended: The sequences that ended in the last one that was looked at.
        left: The graphs of what was left out in it.
        first: The call with which it began (``First``), if that tells the kind.
        most_calls: Calls of a turn of this kind; one with more is another one.
        signs: How often each was seen.
        trusted: Turns that may still be let pass before one is looked at.
        next_trusted: The same, from then on.
        looked: Which of the turns that were looked at was the last of this kind.
    """

    signs: Mapping[int, int]
    ended: list[Call]
    left: list[Graph]
    first: First | None = None
    most_calls: int = 0
    trusted: int = 1
    next_trusted: int = _FEWEST_SKIPPED
    looked: int = 0


@dataclass(eq=False, slots=True)
class _Turn:
    """What is known of the turn that runs now.

    Attributes:
        nodes: Of autograd that this thread had made before it.
        ended: The sequences that ended in it.
        left: The graphs of what was left out in it.
        first_left: The first call of what was left out, and how many there were.
        graphs: Of what was differentiated in it (``Graph``).
        signs: How often each was seen.
        is_partial: Whether it is looked at from a sign on.
    """

    nodes: int
    ended: list[Call] = field(default_factory=list)
    left: list[Graph] = field(default_factory=list)
    first_left: tuple[First, int] | None = None
    graphs: list[Any] = field(default_factory=list)
    signs: dict[int, int] = field(default_factory=dict)
    is_partial: bool = False

    @property
    def has_run(self) -> bool:
        """Whether a sequence has ended in it."""
        return bool(self.ended or self.left)


def graph_of(losses: Any) -> Graph:
    """Return of each loss the shape and the last two nodes of its graph, with the shape between."""
    several = losses if isinstance(losses, list | tuple) else [losses]
    found: list[Any] = []
    for one in several:
        if isinstance(one, torch.Tensor):
            node = one.grad_fn
            before = (
                node.next_functions[0][0] if node is not None and node.next_functions else None
            )
            # A class of Python may have no such facts.
            shapes = tuple([tuple(fact.shape) for fact in getattr(before, "_input_metadata", ())])
            found += [one.shape, type(node), type(before), shapes]
    return tuple(found)


class TrainingTurns:
    """Decides which turns are looked at, and counts the others.

    Attributes:
        rests: Turns that will still not be looked at.
        follows: Calls of this turn that are let pass; none of one that is looked at.
        left_out: How often a sequence ran that is in no record, by the graph that it ends in and the
            nodes that it makes.
        counted: Turns that were counted and not looked at.
    """

    def __init__(self, count: Callable[[Call], None], limit: Callable[[], int]) -> None:
        self.rests = 0
        self.follows = 0
        self.left_out: dict[Graph, int] = {}
        self.counted = 0
        self._count = count
        self._limit = limit
        self._kinds: dict[Evidence, _Kind] = {}
        # The kind by the first call of a turn; None if several begin so.
        self._by_first: dict[First, _Kind | None] = {}
        self._turn = _Turn(0)
        self._followed: _Kind | None = None  # which this turn is let pass as
        self._looked = 0  # turns
        self._is_open = False  # whether this turn began where another one ended
        self._since_compiled = _LATELY  # turns since something ran compiled, up to this number
        self._most = _MOST_SKIPPED  # turns in a row that are not looked at
        self._most_signs: dict[int, int] = {}  # of a turn that is not looked at
        # Where a sequence ends that was left out at first.
        self._ends: dict[Graph, Call] = {}
        self._wary = 0  # turns that are looked at, since one was not counted as a whole
        # The graph of the second turn, if it was not looked at and was another than the first one's;
        # a loop of several kinds of turns is looked at until it comes again.
        self._other: Graph = ()

    @property
    def is_unseen(self) -> bool:
        """Whether this turn is not looked at: it counts when it ends."""
        return bool(self.rests or self.follows)

    def add(self, node: Call) -> None:
        """Note that a sequence ended."""
        self._turn.ended.append(node)

    def ran_compiled(self) -> None:
        """Note that a compiled sequence ran: turns like this one must be looked at."""
        self._since_compiled = 0
        self._most = _FEWEST_SKIPPED

    def leave_out(self, graph: Graph, first: Callable[[], First], n_calls: int) -> bool:
        """Note a sequence that is not recorded; return whether the next one is.

        Args:
            graph: In which it ends.
            first: Returns its first call, which is asked for if there are several such sequences.
            n_calls: Number of its calls.
        """
        count = self._add_left_out(graph)
        self._turn.left.append(graph)
        self._turn.first_left = (first(), n_calls) if len(self.left_out) > 1 else None
        return count >= (self._limit() - 1 if self._other else MOST_LEFT_OUT)

    def count_left_out(self, graph: Graph, node: Call) -> int:
        """Return how often a sequence was left out that is recorded now, and ends at ``node``."""
        if len(self._ends) >= _MOST_KINDS:
            self._ends.pop(next(iter(self._ends)))
        self._ends[graph] = node
        turn = self._turn
        turn.ended += [node] * turn.left.count(graph)
        turn.left = [one for one in turn.left if one != graph]
        return self.left_out.pop(graph, 0)

    def most_left_out(self) -> int:
        """Return how often any one sequence ran that is in no record."""
        return max(self.left_out.values(), default=0)

    def differentiate(self, losses: Any) -> None:
        """Note what is differentiated, and how many nodes of autograd were made in this turn."""
        turn = self._turn
        if self._kinds or turn.has_run:
            turn.graphs += graph_of(losses)
            turn.graphs.append(nodes_made() - turn.nodes)

    def begin(self) -> None:
        """Note which model runs, at the first call of a turn that is looked at."""
        if self._turn.has_run:
            return
        is_first = not self._is_open
        if is_first:  # what precedes a loop, such as the making of its model, is no part of it
            self._turn.signs.clear()
        model = model_of_caller()
        if model is not None and (watch_sign(model) or is_first):
            self._turn.signs[identity(model)] = 1  # which runs now

    def is_something_else(self, sign: int) -> bool:
        """Count a sign; return whether turns that are not looked at have not so many of it.

        Then this one is looked at from here on.
        """
        signs = self._turn.signs
        count = signs[sign] = signs.get(sign, 0) + 1
        usual: Mapping[int, int]
        if self.rests:
            usual = self._most_signs
        elif self._followed is not None:
            usual = self._followed.signs
        else:
            return False
        if count <= usual.get(sign, 0):
            return False
        self._look_from_here()
        return True

    def begins_as_first(self, sign: int) -> bool:
        """Return whether a turn begins with the model of the only one that was looked at.

        Of that one nothing but what it differentiated is known. Neither this turn nor some more are
        looked at, as behind two that are alike: each counts if it is differentiated as that one.
        """
        if self._looked != 1 or len(self._kinds) != 1 or not self._is_open or self._turn.has_run:
            return False
        (kind,) = self._kinds.values()
        is_alike = not kind.ended and len(kind.left) == 1 and self._turn.signs == kind.signs
        if not is_alike or sign not in kind.signs or not self._may_rest():
            return False
        self._rest()
        return True

    def leave_out_nodes(self) -> None:
        """Leave out what was made up to now, such as outside of the block."""
        self._turn.nodes = nodes_made()

    def begins_as_known(self, first: First) -> bool:
        """Return whether a turn begins as one kind does, and need not be looked at.

        Sets ``follows``: a turn with more calls is another one.
        """
        if self._turn.has_run or self._wary or not self._is_open:
            return False
        kind = self._by_first.get(first)
        if kind is None or not kind.trusted or not self._may_skip(kind):
            return False
        if any(count > kind.signs.get(sign, 0) for sign, count in self._turn.signs.items()):
            return False
        kind.trusted -= 1
        self._followed = kind
        self.follows = kind.most_calls
        return True

    def pass_one(self) -> bool:
        """Return whether a call of a turn is let pass."""
        self.follows -= 1
        if not self.follows:  # no turn of a training loop, or another one
            self._look_from_here()
        return self.follows > 0

    def forget(self) -> None:
        """Begin a turn anew; those before are not compared."""
        self.rests = self.follows = 0
        self._is_open = False
        self._followed = None
        self._kinds, self._by_first = {}, {}
        self._turn = _Turn(nodes_made())

    def end(self) -> None:
        """Note that an optimizer made a step, or a backward pass in a program that has none.

        A turn that was not looked at counts if its losses have the graph of a known kind.
        """
        turn, self._turn = self._turn, _Turn(nodes_made())
        graphs = tuple(turn.graphs)
        self._is_open = True
        self._since_compiled = min(self._since_compiled + 1, _LATELY)
        evidence = graphs, frozenset(turn.signs.items())
        kind = self._kinds.get(evidence)
        if self.rests:
            self._rested(graphs, kind)
            return
        if turn.is_partial:
            return
        if self.follows:
            self.follows = 0
            is_alike = kind is not None and kind is self._followed
            if kind is not None and is_alike:
                self._followed = None
                self._count_again(kind)
            else:
                self._forget_followed()
                self._leave_out(graphs)
        else:
            is_alike = turn.has_run and self._looked_at(turn, evidence, kind)
        if is_alike and self._may_rest():
            self._rest()

    def _rest(self) -> None:
        self.rests, self._most = self._most, min(2 * self._most, _MOST_SKIPPED)
        self._most_signs = {}
        for one in self._kinds_of_now():
            for sign, count in one.signs.items():
                self._most_signs[sign] = max(count, self._most_signs.get(sign, 0))

    def _rested(self, graphs: Graph, kind: _Kind | None) -> None:
        if kind is None or any(one.hot for one in kind.ended):
            self.rests = 0
            if self._looked == 1 and not self.counted:  # see begins_as_first
                self._other, self._wary = graphs, _LATELY
            self._leave_out(graphs)
            return
        self._count_again(kind)
        self.rests = self.rests - 1 if self._left_of(kind) > 0 else 0

    def _leave_out(self, graphs: Graph) -> None:
        """Count a turn of an unknown kind for the sequence that is recorded with its graph."""
        if len(graphs) == _FACTS_OF_ONE:
            self._add_left_out(graphs)
        # Of what else such turns run, such as an evaluation, this one cannot count.
        if any(len(one.ended) + len(one.left) > 1 for one in self._kinds_of_now()):
            self._wary = _LATELY

    def _add_left_out(self, graph: Graph) -> int:
        count = self.left_out.get(graph, 0) + 1
        if count == 1 and len(self.left_out) >= _MOST_KINDS:
            # Of a loop whose shapes hardly come again.
            self.left_out.pop(next(iter(self.left_out)))
        self.left_out[graph] = count
        return count

    def _looked_at(self, turn: _Turn, evidence: Evidence, kind: _Kind | None) -> bool:
        """Return whether a turn that was looked at did what one of its kind did before."""
        ended, left, first_left = turn.ended, turn.left, turn.first_left
        self._looked += 1
        self._wary -= self._wary > 0
        has_come_again = bool(self._other) and self._other == evidence[0]
        if has_come_again:
            self._other, self._wary = (), 0
        if kind is not None and kind.ended == ended and kind.left == left:
            kind.looked = self._looked
            if kind.first is None and first_left is not None and not ended:
                self._note_first(kind, *first_left)
            kind.trusted = kind.next_trusted
            kind.next_trusted = min(2 * kind.next_trusted, _MOST_SKIPPED)
            return True
        if kind is not None and kind.first is not None:
            self._by_first.pop(kind.first, None)
        while len(self._kinds) >= _MOST_KINDS:
            oldest = self._kinds.pop(next(iter(self._kinds)))
            if oldest.first is not None:
                self._by_first.pop(oldest.first, None)
        # Some turns have an evaluation. The first one may have had what precedes a loop.
        if any(one.signs != turn.signs and one.looked > 1 for one in self._kinds_of_now()):
            self._wary = _LATELY
        kind = self._kinds[evidence] = _Kind(turn.signs, ended, left, looked=self._looked)
        # What ran compiled in it is in neither list, and would be let pass with the turn.
        if ended and not left and self._since_compiled > 1:
            paths = [one.path() for one in ended]
            first = paths[0][0]
            self._note_first(kind, (first.key, first.grad), sum(map(len, paths)))
        elif first_left is not None and not ended:
            self._note_first(kind, *first_left)
        return has_come_again

    def _note_first(self, kind: _Kind, first: First, n_calls: int) -> None:
        kind.first = first
        kind.most_calls = _CALLS_BESIDE + 2 * n_calls
        self._by_first[first] = None if first in self._by_first else kind

    def _look_from_here(self) -> None:
        """Look at the rest of a turn that was not looked at, and at all for a while."""
        self.rests = self.follows = 0
        self._forget_followed()
        self._turn.is_partial = True
        self._wary = _LATELY

    def _forget_followed(self) -> None:
        """Look at the turns of a kind again, since one began like it and was another one."""
        kind, self._followed = self._followed, None
        if kind is not None and kind.first is not None:
            self._by_first[kind.first] = None

    def _count_again(self, kind: _Kind) -> None:
        self.counted += 1
        for one in kind.ended:
            self._count(one)
        for graph in kind.left:
            if graph in self.left_out:
                self.left_out[graph] += 1
            elif graph in self._ends:
                self._count(self._ends[graph])

    def _may_skip(self, kind: _Kind) -> bool:
        """Return whether a turn of a kind makes nothing hot, and runs nothing compiled."""
        return not any(one.hot for one in kind.ended) and self._left_of(kind) >= 1

    def _may_rest(self) -> bool:
        """Return whether the next turn need not be looked at, whatever kind of now it is of."""
        return (
            not self._wary
            and self._since_compiled >= _LATELY
            and all(map(self._may_skip, self._kinds_of_now()))
        )

    def _kinds_of_now(self) -> list[_Kind]:
        return [one for one in self._kinds.values() if self._looked - one.looked < _LATELY]

    def _left_of(self, kind: _Kind) -> int:
        """Return how many turns of a kind come before the one that makes a sequence hot."""
        cold = [
            (self._limit() - one.count - 1)
            // kind.ended.count(one)  # each may run several times in one
            for one in kind.ended
            if one.sequence is None
        ]
        cold += [
            (self._limit() - self.left_out.get(graph, 0) - 1) // kind.left.count(graph)
            for graph in kind.left
        ]
        return min(cold, default=_MOST_SKIPPED)
