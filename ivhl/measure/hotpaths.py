"""The engine ``hotpath``: compiles a function by ``ivhl.hotpath``, and counts what it did.

Each call is a block of its own, so that nothing of the harness is recorded; what is counted and
compiled is kept between calls. The first call, which the harness times as the compilation, repeats
the function until its sequences are hot and compiled. ``ivhl.hotpath`` is code under test, not of
the harness: a cell has that of its commit, or none.
"""

from __future__ import annotations

import importlib
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from ivhl.measure.dynamo import counted
from ivhl.measure.failures import CaseError, UnsupportedHereError
from ivhl.records.text import tidy

if TYPE_CHECKING:
    from collections.abc import Callable

    from ivhl.records.record import Counted, FailureClass

    Function = Callable[..., Any]

# Calls after which a sequence is hot, as in ``ivhl.hotpath``.
THRESHOLD: Final = 10
# Calls before the one that shows how many graphs run in each: the last of them compiles.
CALLS_BEFORE: Final = THRESHOLD + 1


class HotPaths:
    """Compiles functions, and answers what ``ivhl.measure.dynamo.Watch`` answers for Dynamo."""

    compiler_name = "ivhl.hotpath"
    fell_back_as: FailureClass = "not_compiled"

    def __init__(self) -> None:
        self._functions: list[_HotFunction] = []

    def compiler(self, function: Function) -> Function:
        """Return the function, compiled at its first call."""
        made = _HotFunction(function)
        self._functions.append(made)
        return made

    def frames(self) -> tuple[int, int]:
        """Return how many sequences were hot, and how many of them are compiled."""
        paths = self._paths()
        return len(paths), sum(_is_compiled(one) for one in paths)

    def graphs(self) -> tuple[int, int]:
        """Return how many graphs there are, and the operations in the compiled sequences."""
        paths = [one for one in self._paths() if _is_compiled(one)]
        return sum(one.compiles for one in paths), sum(one.calls for one in paths)

    def not_compiled(self) -> str:
        """Return why nothing is compiled; empty if something is."""
        if any(one.hits for one in self._paths()):
            return ""
        reasons = self._texts("OFF") + [one.text for one in self.graph_breaks()]
        return (
            "hot paths compiled no sequence, so all of it ran eagerly: "
            f"{'; '.join(reasons[:3]) or 'no sequence of operations repeated'}"
        )

    def fell_back(self) -> str | None:
        """Return why a call ran eagerly after the first one, or in part; ``None`` if none did."""
        return next(filter(None, (one.fell_back() for one in self._functions)), None)

    def mark(self) -> dict[str, int]:
        """Return the current counts, for ``since``."""
        return {"graphs": self.graphs()[0]}

    def since(self, mark: dict[str, int]) -> str:
        """Return what was compiled since the mark, or nothing."""
        n = self.graphs()[0] - mark["graphs"]
        return f"{n} graphs" if n > 0 else ""

    def graph_breaks(self) -> tuple[Counted, ...]:
        """Return why calls are in no sequence, or a sequence is not compiled; each once.

        How often they ran depends on how often the function was called.
        """
        reasons = [reason for one in self._functions for reason in one.report.reasons]
        return counted(Counter(tidy(reason) for reason in dict.fromkeys(reasons)))

    def recompile_reasons(self) -> tuple[Counted, ...]:
        """Return what was compiled a second time."""
        return counted(Counter(map(tidy, self._texts("RECOMPILE"))))

    def _texts(self, kind: str) -> list[str]:
        """Return what the events of a kind say."""
        events = (event for one in self._functions for event in one.report.events)
        return [event.text for event in events if event.kind == kind]

    def _paths(self) -> list[Any]:
        return [path for one in self._functions for path in one.report.paths]


class _HotFunction:
    """A function of which each call is a block, with the number of its calls.

    Raises:
        UnsupportedHereError: If the cell has no ``ivhl.hotpath``, or one that needs a newer PyTorch.
        CaseError: If it is that of a commit before functions could be blocks.
    """

    def __init__(self, function: Function) -> None:
        try:
            auto = importlib.import_module("ivhl.hotpath").auto
        except ModuleNotFoundError as error:
            raise UnsupportedHereError(
                f"the engine 'hotpath' needs the package ivhl in the cell, which lacks {error.name}"
            ) from error
        except ImportError as error:  # this PyTorch is too old for it
            raise UnsupportedHereError(str(error)) from error
        self._block = auto(threshold=THRESHOLD)
        if not callable(self._block):
            raise CaseError("absent", "hotpath.auto of this commit cannot take a function")
        self._call: Function = self._block(function)
        self._calls = 0  # since it was hot
        self._first: dict[str, tuple[int, int]] = {}
        self._each: dict[str, int] = {}

    @property
    def report(self) -> Any:  # noqa: ANN401  (of the code under test)
        """What the calls did."""
        return self._block.report

    def __call__(self, *inputs: Any, **named: Any) -> Any:  # noqa: ANN401  (any pytree)
        if not self._calls:
            for _ in range(CALLS_BEFORE):
                self._call(*inputs, **named)
            before = self._ran()
            self._call(*inputs, **named)
            self._first = self._ran()
            self._each = {
                number: hits - before.get(number, (0, 0))[0]
                for number, (hits, _) in self._first.items()
            }
        self._calls += 1
        return self._call(*inputs, **named)

    def fell_back(self) -> str | None:
        """Return why a call since the first one ran eagerly, or in part; ``None`` if none did."""
        for one in self.report.paths:
            hits, misses = self._first.get(one.number, (0, one.misses))
            expected = self._calls * self._each.get(one.number, 0)
            if one.misses > misses or one.hits - hits < expected:
                missed = max(one.misses - misses, expected - (one.hits - hits))
                why = one.refused or self._last_fallback()
                return f"{one.name} ran eagerly in {missed} of {self._calls} calls: {why}"
        return None

    def _last_fallback(self) -> str:
        texts = [one.text for one in self.report.events if one.kind == "FALLBACK"]
        return texts[-1] if texts else "the program went another way"

    def _ran(self) -> dict[str, tuple[int, int]]:
        return {one.number: (one.hits, one.misses) for one in self.report.paths if one.number}


def _is_compiled(path: Any) -> bool:  # noqa: ANN401  (of the code under test)
    return bool(path.hits and not path.refused)
