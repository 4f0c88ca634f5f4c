"""Watch Dynamo: count frames, graphs, graph breaks and recompiles, with their reasons and places.

Each release counts otherwise (``tests/contract/test_dynamo.py`` compares them):

- ``counters["frames"]``: in 2.5 and 2.6, a frame given up for a break in a loop counts as compiled.
- ``counters["graph_break"]`` lacks branches on data; ``counters["unimplemented"]`` has, in 2.15,
  such branches and frames that are given up; in 2.5 and 2.6 only the latter, and not all.
- ``graph_break_reasons`` has every place where a graph ended, with the user's stack, in all three.

So graph breaks are those of ``graph_break_reasons``, and frames that are given up are those that
Dynamo logs, at the level INFO.
"""

from __future__ import annotations

import logging
import re
import sysconfig
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from ivhl.measure.failures import is_of_torch
from ivhl.records.record import Counted
from ivhl.records.text import tidy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ivhl.records.record import FailureClass

# "torch._dynamo hit config.cache_size_limit (8)" up to 2.6, "recompile_limit" later.
LIMIT = re.compile(r"hit config\.(?:accumulated_)?(?:cache_size|recompile)_limit")
# Messages of the level INFO about frames that run eagerly as a whole. The second one, of 2.5 and
# 2.6, is about frames that count as compiled.
GIVEN_UP = "WON'T CONVERT "
IN_A_LOOP = "Skipping frame because there is a graph break in a for/while loop"
CODE = re.compile(r"WON'T CONVERT (?P<name>\S+) (?P<file>\S+) line (?P<line>\d+)")
# ``File "a/b.py", line 3, in f`` of a traceback; ``at a/b.py:3`` of a message.
FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+),? in (?P<name>\S+)')
SUMMARY = re.compile(r"file (?P<file>[^\s,>]+), line (?P<line>\d+) in (?P<name>\S+)")
PLACE = re.compile(r"in user code at (?P<file>\S+):(?P<line>\d+)$", re.MULTILINE)
# Dynamo compiles the rest of ``f`` behind a break in line 3 as ``torch_dynamo_resume_in_f_at_3``.
RESUMED = re.compile(r"^torch_dynamo_resume_in_(?P<name>.+)_at_\d+$")
# Texts that say little in place of what they stand for.
PLAIN = {
    "generic_jump TensorVariable()": "data-dependent branching (generic_jump TensorVariable())",
    "Data-dependent jump": "data-dependent branching",
    "step_unsupported": "a step that cannot be resumed (step_unsupported)",
}
_REASON = re.compile(
    r"(?:Graph Break |^)Reason: (?:Unsupported: )?(?P<text>.*)", re.DOTALL | re.MULTILINE
)


class Watch(logging.Handler):
    """Collects graph breaks and recompiles from now on; use after ``torch._dynamo.reset()``."""

    compiler_name = "Dynamo"
    fell_back_as: FailureClass = "recompile_limit"

    def __init__(self) -> None:
        super().__init__()
        self.recompiles: Counter[str] = Counter()
        self._last: logging.LogRecord | None = None
        import torch._dynamo  # noqa: PLC0415  (imports Inductor's half, seconds; only when compiling)
        from torch._dynamo.utils import counters, graph_break_reasons  # noqa: PLC0415

        self._counters = counters
        counters.clear()
        self._breaks = graph_break_reasons
        graph_break_reasons.clear()
        self._given_up: Counter[str] = Counter()
        self._unconverted = self._skipped = 0
        # By ``file:line``: the reason last logged, and the place with its function.
        self._reasons: dict[str, str] = {}
        self._places: dict[str, str] = {}
        # No counter of 2.2 to 2.15 counts recompiles, but every release logs each one.
        torch._logging.set_logs(recompiles=True, graph_breaks=True)  # noqa: SLF001
        logging.getLogger("torch._dynamo.guards.__recompiles").addHandler(self)
        for module in ("symbolic_convert", "convert_frame"):
            logger = logging.getLogger(f"torch._dynamo.{module}.__graph_breaks")
            logger.addHandler(self)
            logger.propagate = False  # each has pages of text, which the record has in short
            _Heard.listen(self, logging.getLogger(f"torch._dynamo.{module}"))
        # At the recompile limit, a frame without ``fullgraph`` runs eagerly; only this log says so.
        logging.getLogger("torch._dynamo").addHandler(self)
        self._limits: Counter[str] = Counter()

    def note_given_up(self, record: logging.LogRecord) -> None:
        """Count a frame that Dynamo gave up, by the reason and the place of the break in it."""
        message = record.getMessage()
        if message.startswith(GIVEN_UP):
            error = record.exc_info[1] if record.exc_info else None
            stack = getattr(error, "real_stack", None) or ()
            frames = [(f.filename, f.lineno, f.name) for f in stack]
            if (code := CODE.match(message)) is not None:
                frames.insert(0, (code["file"], int(code["line"]), code["name"]))
            place = user_frame(frames)
            reason = str(getattr(error, "msg", error)).partition("\n\nfrom user code")[0]
            self._unconverted += 1
        else:
            place = user_frame(frames_in(message))
            self._skipped += 1
            reason = "data-dependent branching (in a loop: the frame runs eagerly)"
        known = self._reasons.get(place.partition(" ")[0])
        if known and not message.startswith(GIVEN_UP):
            known += " (in a loop: the frame runs eagerly)"
        self._given_up[at(known or reason, place)] += 1

    def emit(self, record: logging.LogRecord) -> None:
        """Count one recompile or one frame that is given up, or note that the limit was reached."""
        # What goes to the logger of recompiles goes on to that of Dynamo.
        if record is self._last:
            return
        self._last = record
        message = record.getMessage()
        if record.name.endswith("__recompiles"):
            self.recompiles[tidy(message)] += 1
        elif record.name.endswith("__graph_breaks"):
            reason, place = _reason_in(record, message), self._place_in(message)
            self._reasons[place.partition(" ")[0]] = tidy(PLAIN.get(reason, reason))
        elif LIMIT.search(message):
            self._limits[tidy(message)] += 1

    def _place_in(self, message: str) -> str:
        """Return the user's frame of a break; a message about one seen before has no stack."""
        place = user_frame(frames_in(message))
        if place:
            return self._places.setdefault(place.partition(" ")[0], place)
        if found := PLACE.search(message):
            place = user_frame([(found["file"], int(found["line"]), "")]).strip()
        return self._places.get(place, place)

    def fell_back(self) -> str | None:
        """Return Dynamo's message if it gave up recompiling a frame, else ``None``."""
        return next(iter(self._limits), None)

    def mark(self) -> dict[str, int]:
        """Return the current counts, for ``since``."""
        return {
            "frames": self.frames()[0],
            "graphs": self.graphs()[0],
            "graph breaks": sum(b.count for b in self.graph_breaks()),
            "recompiles": self.recompiles.total(),
        }

    def since(self, mark: dict[str, int]) -> str:
        """Return what Dynamo did since the mark, e.g. ``2 recompiles, 2 graphs``, or nothing."""
        more = {name: now - mark[name] for name, now in self.mark().items()}
        text = ", ".join(f"{n} {name}" for name, n in more.items() if n > 0)
        if text and more["recompiles"] > 0:
            text += f" ({next(iter(self.recompiles))})"
        return text

    def frames(self) -> tuple[int, int]:
        """Return how many frames Dynamo saw and how many it compiled; the others run eagerly.

        With ``fullgraph`` Dynamo counts no frames, so graphs are counted: each frame is one graph
        or raises.
        """
        frames = self._counters["frames"]
        if not frames["total"]:
            graphs, _ = self.graphs()
            return graphs, graphs
        # Those skipped for a break in a loop count as compiled up to 2.6.
        return int(frames["total"]), max(int(frames["ok"]) - self._skipped, 0)

    def graphs(self) -> tuple[int, int]:
        """Return how many graphs went to the backend, and the operations in them."""
        stats = self._counters["stats"]
        return int(stats["unique_graphs"]), int(stats["calls_captured"])

    def not_compiled(self) -> str:
        """Return why no graph with an operation went to the backend; empty if one did.

        If one did, frames that run eagerly are graph breaks, of which the record has the reasons:
        most of the work may be compiled nevertheless.
        """
        (total, ok), (graphs, captured) = self.frames(), self.graphs()
        if graphs and captured:
            return ""
        reasons = "; ".join(one.text for one in self.graph_breaks()[:3])
        return (
            f"Dynamo saw {total} frames and compiled {ok} of them, with {captured} operations "
            f"in {graphs} graphs; the rest ran eagerly without an error"
            + (f": {reasons}" if reasons else "")
        )

    def graph_breaks(self) -> tuple[Counted, ...]:
        """Return the reason, the user's frame and the number of each graph break.

        A frame that runs eagerly as a whole counts as one. If Dynamo names no reason for such
        frames, they are counted without one.
        """
        found = Counter(self._given_up)
        for one in self._breaks:
            place = user_frame((f.filename, f.lineno, f.name) for f in one.user_stack)
            reason = str(one.reason)
            if reason == "step_unsupported":  # only the log says what the step does not support
                reason = self._reasons.get(place.partition(" ")[0], reason)
            found[at(reason, place)] += 1
        total, ok = self.frames()
        if (unnamed := total - ok - self._unconverted - self._skipped) > 0:
            found["Dynamo ran a frame eagerly and named no reason"] += unnamed
        return counted(found)

    def recompile_reasons(self) -> tuple[Counted, ...]:
        """Return the reason and number of each recompile."""
        return counted(self.recompiles)


def frames_in(text: str) -> list[tuple[str, int | None, str]]:
    """Return file, line and function of each frame that a message of Dynamo's shows."""
    return [
        (found["file"], int(found["line"]), found["name"].rstrip(">"))
        for pattern in (FRAME, SUMMARY)
        for found in pattern.finditer(text)
    ]


def user_frame(frames: Iterable[tuple[str, int | None, str]]) -> str:
    """Return the innermost frame outside of PyTorch and the standard library.

    Args:
        frames: File, line and function of each, outermost first.

    Returns:
        ``folder/file.py:line function``, or nothing.
    """
    library = Path(sysconfig.get_path("stdlib"))
    for file, line, name in reversed(list(frames)):
        path = Path(file)
        inside = path.is_relative_to(library) and "site-packages" not in path.parts
        if inside or is_of_torch(path.parts) or file.startswith("<"):
            continue
        resumed = RESUMED.match(name)
        return f"{'/'.join(path.parts[-2:])}:{line} {resumed['name'] if resumed else name}"
    return ""


def at(reason: str, place: str) -> str:
    """Return a reason in short, with its place."""
    first, _, rest = tidy(PLAIN.get(reason, reason)).partition("\n")
    return "\n".join(filter(None, (f"{first} at {place}" if place else first, rest)))


def _reason_in(record: logging.LogRecord, message: str) -> str:
    """Return why Dynamo gave a frame up: from the exception up to 2.6, from the message later."""
    if record.exc_info and record.exc_info[1] is not None:
        return str(record.exc_info[1]).partition("\n\nfrom user code")[0]
    text = message.partition("Graph break encountered:")[2] or message
    if found := _REASON.search(text):
        text = found["text"]
    return text.partition("User code traceback:")[0].strip()


class _Heard(logging.Filter):
    """Hears what a logger says of frames that are given up, and shows no more than before."""

    def __init__(self, watch: Watch, shown: int) -> None:
        super().__init__()
        self._watch = watch
        self.shown = shown

    @classmethod
    def listen(cls, watch: Watch, logger: logging.Logger) -> None:
        """Let a watch hear a logger, in place of an earlier watch."""
        shown = logger.getEffectiveLevel()
        for old in [one for one in logger.filters if isinstance(one, cls)]:
            shown = old.shown
            logger.removeFilter(old)
        logger.setLevel(min(shown, logging.INFO))
        logger.addFilter(cls(watch, shown))

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell the watch; pass on what would have been shown anyway."""
        if str(record.msg).startswith((GIVEN_UP, IN_A_LOOP)):
            self._watch.note_given_up(record)
        return record.levelno >= self.shown


def counted(counter: Counter[str]) -> tuple[Counted, ...]:
    """Return the counter as a tuple, most frequent first."""
    return tuple(Counted(text=t, count=n) for t, n in counter.most_common())
