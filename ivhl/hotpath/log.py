"""The stream of what hotpath does: calls when debugging, and always what changes how code runs."""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final

logger = logging.getLogger("ivhl.hotpath")
logger.addHandler(logging.NullHandler())

_MOST: Final = 10_000


@dataclass(frozen=True, slots=True)
class LogEntry:
    """An event of a block.

    Attributes:
        at_s: Seconds since the block began.
        kind: ``DETECTED``, ``COMPILE``, ``SPEEDUP``, ``RECOMPILE``, ``FALLBACK``, ``REFUSED``,
            ``CUT``, ``UNUSED``, ``OFF``; with ``debug`` also ``CALL`` and ``HIT``.
        text: What happened.
        number: The sequence, or empty.
        seconds: How long it took, or ``None``.
    """

    at_s: float
    kind: str
    text: str
    number: str = ""
    seconds: float | None = None

    def __str__(self) -> str:
        return f"{self.at_s:9.3f}s | {self.kind:<9} | {self.text}"


@dataclass(eq=False)
class Log:
    """The last entries; each is also a record of the logger ``ivhl.hotpath``.

    Attributes:
        debug: Whether to print each entry, and each call, to standard error.
    """

    debug: bool = False
    begun: float = field(default_factory=time.perf_counter)
    entries: deque[LogEntry] = field(default_factory=lambda: deque(maxlen=_MOST))

    def add(self, kind: str, text: str, number: str = "", seconds: float | None = None) -> None:
        """Add an entry."""
        entry = LogEntry(time.perf_counter() - self.begun, kind, text, number, seconds)
        self.entries.append(entry)
        if kind in {"CALL", "HIT"}:
            logger.debug("%s", entry)
        else:
            level = logging.WARNING if kind in {"REFUSED", "FALLBACK", "UNUSED"} else logging.INFO
            logger.log(level, "%s: %s", kind, text)
        if self.debug:
            sys.stderr.write(f"[hotpath] {entry}\n")
