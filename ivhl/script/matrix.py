"""Run a script in many cells, newest first, and say which release is the first that differs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from packaging.version import Version

from ivhl.matrix.uv import uv_pool
from ivhl.script.outcome import ScriptOutcome, are_alike, noisy_numbers, not_run, signature
from ivhl.script.overlay import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ivhl.matrix.spec import CellSpec
    from ivhl.script.requirements import Needs
    from ivhl.script.running import Script

# Cells that are made at the same time: uv's own work is in parallel already.
_AT_ONCE: Final = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What counts as good.

    Attributes:
        ending: ``exit N`` or the name of a signal; empty for any.
        lines: Texts that standard output must contain.
    """

    ending: str = ""
    lines: tuple[str, ...] = ()

    def is_met(self, outcome: ScriptOutcome) -> bool:
        """Return whether an outcome is as expected."""
        return self.ending in ("", outcome.ending) and all(
            line in outcome.output for line in self.lines
        )


class ScriptRuns:
    """The outcomes of a script in cells, each run as often as a comparison needs.

    Args:
        script: The script.
        needs: What it needs.
        expected: What counts as good; ``None`` to compare the cells with each other.
        tell: Called with each cell and its outcome, when it is known.
    """

    def __init__(
        self,
        script: Script,
        needs: Needs,
        expected: Wanted | None,
        tell: Callable[[CellSpec, ScriptOutcome], None],
    ) -> None:
        self._script, self._needs, self._expected = script, needs, expected
        self._tell = tell
        # By the signature of a text: another one has other numbers in these places.
        self._noisy: dict[tuple[object, ...], frozenset[int]] = {}
        self._asked: list[CellSpec] = []  # by a search
        self.outcomes: dict[CellSpec, ScriptOutcome] = {}

    def run(self, cells: Sequence[CellSpec]) -> None:
        """Run the script in all cells; the next cells are made meanwhile.

        Raises:
            LockError: If a cell cannot be made.
            InterpreterError: If this machine lacks a Python.
        """
        with uv_pool(_AT_ONCE) as pool:
            made = {cell: pool.submit(self._make, cell) for cell in cells}
            for cell in cells:
                made[cell].result()
                self.run_in(cell)

    def _make(self, cell: CellSpec) -> None:
        with suppress(UnavailableError), self._needs.cell_in_use(cell):
            pass

    def run_in(self, cell: CellSpec) -> ScriptOutcome:
        """Run the script once more in a cell, and return what is known of the cell."""
        try:
            with self._needs.cell_in_use(cell) as folder:
                outcome = self._script.run_in(folder)
        except UnavailableError as error:
            outcome = not_run(str(error))
        earlier = self.outcomes.get(cell)
        if earlier is not None:
            text = signature(outcome, self._releases)
            found = noisy_numbers(earlier, outcome, self._releases)
            self._noisy[text] = self._noisy.get(text, frozenset()) | found
            outcome = earlier.again(outcome)
        self.outcomes[cell] = outcome
        self._tell(cell, outcome)
        return outcome

    def are_alike(self, one: CellSpec, other: CellSpec) -> bool:
        """Return whether the script ends alike in two cells, as far as is known."""
        a, b = self.outcomes[one], self.outcomes[other]
        if self._expected is not None:
            return self._expected.is_met(a) == self._expected.is_met(b)
        noisy = self._noisy.get(signature(a, self._releases), ())
        return are_alike(a, b, noisy, self._releases)

    @property
    def _releases(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(cell.torch for cell in self.outcomes))

    def settle(self) -> None:
        """Run each side of every boundary again: a number that varies is no difference.

        A boundary that vanishes so may show another; each cell is run twice at most.
        """
        while True:
            once = {
                cell
                for pair in self.boundaries()
                for cell in pair
                if self.outcomes[cell].runs == 1
            }
            if not once:
                return
            for cell in sorted(once, key=list(self.outcomes).index):
                self.run_in(cell)

    def boundaries(self) -> list[tuple[CellSpec, CellSpec]]:
        """Return neighbouring cells of one Python between which the outcome changes, in order.

        A flaky cell is on no side.
        """
        ran = [
            cell
            for cell in self.in_order()
            if self.outcomes[cell].has_run and not self.outcomes[cell].flaky
        ]
        return [
            (one, other)
            for one, other in pairwise(ran)
            if one.python == other.python and not self.are_alike(one, other)
        ]

    def in_order(self) -> list[CellSpec]:
        """Return the cells with an outcome, by Python and release."""
        return sorted(self.outcomes, key=lambda cell: (cell.python, Version(cell.torch)))

    def groups(self) -> dict[CellSpec, int]:
        """Return a number for each cell that has run: cells with the same number are alike."""
        found: dict[CellSpec, int] = {}
        for cell in self.in_order():
            if self.outcomes[cell].has_run:
                alike = (n for other, n in found.items() if self.are_alike(cell, other))
                found[cell] = next(alike, len(set(found.values())))
        return found

    def is_unexpected(self, cell: CellSpec) -> bool:
        """Return whether the script has run in a cell and was not as expected."""
        outcome = self.outcomes[cell]
        return (
            self._expected is not None and outcome.has_run and not self._expected.is_met(outcome)
        )

    def search(self, cells: Sequence[CellSpec]) -> None:
        """Find the boundary at which the outcome of the last cell begins, with the fewest runs.

        Nothing more is run if both ends are alike.

        Args:
            cells: Of one Python, oldest first; those that cannot exist are passed over.
        """
        self._asked += cells
        left = list(cells)
        while left and not self._exists(left[0]):
            left.pop(0)
        while left and not self._exists(left[-1]):
            left.pop()
        if len(left) < 2 or self._ends_like(left[0], last := left[-1]):  # noqa: PLR2004  (both ends)
            return
        while len(left) > 2:  # noqa: PLR2004
            middle = len(left) // 2
            if not self._exists(left[middle]):
                del left[middle]
            elif self._ends_like(left[middle], last):
                left = left[: middle + 1]
            else:
                left = left[middle:]

    def _ends_like(self, cell: CellSpec, last: CellSpec) -> bool:
        """Return whether a cell is like the last, which runs again if only numbers differ."""
        ends = {signature(self.outcomes[one], self._releases) for one in (cell, last)}
        is_noise = self._expected is None and len(ends) == 1 and self.outcomes[last].runs == 1
        if is_noise and not self.are_alike(cell, last):
            self.run_in(last)
        return self.are_alike(cell, last)

    def not_run(self, one: CellSpec, other: CellSpec) -> list[CellSpec]:
        """Return the cells between two neighbours that a search has left out."""
        if one not in self._asked:
            return []
        between = self._asked[self._asked.index(one) : self._asked.index(other)]
        return [cell for cell in between if cell not in self.outcomes]

    def _exists(self, cell: CellSpec) -> bool:
        return (self.outcomes.get(cell) or self.run_in(cell)).has_run
