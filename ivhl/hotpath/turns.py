"""Turns of a training loop, from one optimizer step to the next: most need not be looked at.

A mode of PyTorch alone, which only passes each call on, takes a tenth of a training step of the
size of docs/hotpath.md. So after two turns that did the same, some are not looked at. Of these only
what was differentiated is known, by its graph. What runs compiled is compared call by call, always.
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
_nodes_made: Final = torch._C._autograd._get_sequence_nr  # noqa: SLF001  (by this thread)


def graph_of(losses: Any) -> list[Any]:
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
            shapes = [fact.shape for fact in getattr(before, "_input_metadata", ())]
            found += [one.shape, type(node), type(before), shapes]
    return found


class TrainingTurns:
    """Decides which turns are looked at, and counts the others.

    Attributes:
        rests: Turns that will still not be looked at.
    """

    def __init__(self, count: Callable[[Call], None], limit: Callable[[], int]) -> None:
        self.rests = 0
        self._count = count
        self._limit = limit
        self._ended: list[Call] = []  # the sequences that ended in this turn
        self._ended_before: list[Call] = []
        self._graphs: list[Any] = []  # of what was differentiated in this turn
        self._graphs_before: list[Any] = []
        self._nodes = 0  # made by this thread before this turn
        self._most = _FEWEST_SKIPPED

    def add(self, node: Call) -> None:
        """Note that a sequence ended."""
        self._ended.append(node)

    def differentiate(self, losses: Any) -> None:
        """Note what is differentiated, and how many nodes of autograd were made in this turn."""
        if self._ended_before or self._ended:
            self._graphs += graph_of(losses)
            self._graphs.append(_nodes_made() - self._nodes)

    def open(self) -> None:
        """Leave out what was made outside of the block."""
        self._nodes = _nodes_made()

    def forget(self) -> None:
        """Begin a turn anew; the one before is not compared."""
        self.rests = 0
        self._ended, self._graphs = [], []
        self._most = _FEWEST_SKIPPED
        self._nodes = _nodes_made()

    def end(self) -> None:
        """Note that an optimizer made a step.

        A turn that was not looked at counts if its losses have the same graph.
        """
        graphs, self._graphs = self._graphs, []
        self._nodes = _nodes_made()
        are_same = graphs == self._graphs_before
        self._graphs_before = graphs
        if self.rests:
            self.rests = self.rests - 1 if are_same else 0
            if are_same:
                for one in self._ended_before:
                    self._count(one)
            return
        ended, self._ended = self._ended, []
        is_alike = bool(ended) and are_same and ended == self._ended_before
        self._ended_before = ended
        self._most = min(2 * self._most, _MOST_SKIPPED) if is_alike else _FEWEST_SKIPPED
        if is_alike and not any(one.hot for one in ended):
            # Turns until the one that makes a sequence hot; each may run several times in a turn.
            cold = [
                (self._limit() - one.count - 1) // ended.count(one)
                for one in ended
                if one.sequence is None
            ]
            self.rests = max(0, min([self._most, *cold]))
