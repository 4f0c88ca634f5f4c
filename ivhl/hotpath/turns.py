"""Turns of a training loop, from one optimizer step to the next: most need not be looked at.

A mode of PyTorch alone, which only passes each call on, takes a tenth of a training step of the
size of docs/hotpath.md. So after two turns that did the same, some are not looked at. Of these only
what was differentiated is known, by its graph. The second turn counts as the same if it begins and
is differentiated as the first. What runs compiled is compared call by call, always.

In a new block, what is differentiated at once is *left out* of the record twice: its graph alone is
known (``Recorder`` puts the record off, and needs it for anything else). It counts for the first
sequence that is recorded and ends in such a graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from ivhl.hotpath.calls import Call

# Turns between two that are looked at; doubled each time these two are alike.
_FEWEST_SKIPPED: Final = 8
_MOST_SKIPPED: Final = 63
# Calls of a turn that are in no sequence, such as dropout.
_CALLS_BESIDE: Final = 8
nodes_made: Final = torch._C._autograd._get_sequence_nr  # noqa: SLF001  (by this thread)
# Times that a sequence is left out of the record.
MOST_LEFT_OUT: Final = 2

Graph = tuple[Any, ...]


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
        follows: Calls of the second turn that are let pass; none of another turn.
        left_out: How often a sequence ran that is in no record, by the graph that it ends in and the
            nodes that it makes.
    """

    def __init__(self, count: Callable[[Call], None], limit: Callable[[], int]) -> None:
        self.rests = 0
        self.follows = 0
        self.left_out: dict[Graph, int] = {}
        self._steps = 0  # of optimizers
        self._count = count
        self._limit = limit
        self._ended: list[Call] = []  # the sequences that ended in this turn
        self._ended_before: list[Call] = []
        self._left: list[Graph] = []  # left out in this turn
        self._left_before: list[Graph] = []
        self._graphs: list[Any] = []  # of what was differentiated in this turn
        self._graphs_before: list[Any] = []
        self._nodes = 0  # made by this thread before this turn
        self._most = _FEWEST_SKIPPED

    def add(self, node: Call) -> None:
        """Note that a sequence ended."""
        self._ended.append(node)

    def leave_out(self, graph: Graph) -> bool:
        """Note a sequence that is not recorded; return whether the next one is."""
        count = self.left_out[graph] = self.left_out.get(graph, 0) + 1
        self._left.append(graph)
        return count >= MOST_LEFT_OUT

    def count_left_out(self, graph: Graph, node: Call) -> int:
        """Return how often a sequence was left out that is recorded now, and ends at ``node``."""
        self._ended += [node] * self._left.count(graph)
        self._left = [one for one in self._left if one != graph]
        return self.left_out.pop(graph, 0)

    def is_last(self) -> bool:
        """Return whether what was left out is hot if it runs once more."""
        return max(self.left_out.values(), default=0) + 1 >= self._limit()

    def differentiate(self, losses: Any) -> None:
        """Note what is differentiated, and how many nodes of autograd were made in this turn."""
        if self._ended_before or self._ended or self._left or self._left_before:
            self._graphs += graph_of(losses)
            self._graphs.append(nodes_made() - self._nodes)

    def open(self) -> None:
        """Leave out what was made outside of the block."""
        self._nodes = nodes_made()

    def begins_as_first(self, call: Call) -> bool:
        """Return whether the second turn begins as the first did, and need not be looked at.

        Sets ``follows``: a turn with more calls is another one.
        """
        if self._steps != 1 or self._ended or not self._ended_before:
            return False
        paths = [one.path() for one in self._ended_before]
        if call is not paths[0][0] or self._turns_left() < 1:
            return False
        self.follows = _CALLS_BESIDE + 2 * sum(len(path) for path in paths)
        return True

    def pass_one(self) -> bool:
        """Return whether a call of the second turn is let pass."""
        self.follows -= 1
        if not self.follows:  # no turn of a training loop, or another one
            self._ended_before = []
        return self.follows > 0

    def forget(self) -> None:
        """Begin a turn anew; the one before is not compared."""
        self.rests = self.follows = self._steps = 0
        self._ended, self._left, self._graphs = [], [], []
        self._most = _FEWEST_SKIPPED
        self._nodes = nodes_made()

    def end(self) -> None:
        """Note that an optimizer made a step.

        A turn that was not looked at counts if its losses have the same graph.
        """
        graphs, self._graphs = self._graphs, []
        self._nodes = nodes_made()
        self._steps += 1
        are_same = graphs == self._graphs_before
        self._graphs_before = graphs
        if self.rests:
            self.rests = self.rests - 1 if are_same else 0
            if are_same:
                self._count_again()
            return
        if self.follows:
            self.follows = 0
            ended = self._ended_before if are_same else []
            is_alike = are_same
            if are_same:
                self._count_again()
        else:
            ended, self._ended = self._ended, []
            left, self._left = self._left, []
            is_alike = (
                bool(ended or left)
                and are_same
                and ended == self._ended_before
                and left == self._left_before
            )
            self._left_before = left
        self._ended_before = ended
        self._most = min(2 * self._most, _MOST_SKIPPED) if is_alike else _FEWEST_SKIPPED
        if is_alike and not any(one.hot for one in ended):
            self.rests = max(0, min(self._most, self._turns_left()))

    def _count_again(self) -> None:
        for one in self._ended_before:
            self._count(one)
        for graph in self._left_before:
            if graph in self.left_out:
                self.left_out[graph] += 1

    def _turns_left(self) -> int:
        """Return how many turns come before the one that makes a sequence hot, at most."""
        ended = self._ended_before
        cold = [
            (self._limit() - one.count - 1)
            // ended.count(one)  # each may run several times in one
            for one in ended
            if one.sequence is None
        ]
        cold += [
            (self._limit() - self.left_out.get(graph, 0) - 1) // self._left_before.count(graph)
            for graph in self._left_before
        ]
        return min(cold, default=_MOST_SKIPPED)
