"""Watch Dynamo: count frames, graphs, graph breaks and recompiles, with their reasons.

Read from Dynamo's counters and log artifacts, which are the same from PyTorch 2.2 to 2.15; the
structured trace and the metrics objects changed with nearly every release.
"""

from __future__ import annotations

import logging
import re
from collections import Counter

from ivhl.records.record import Counted

# "at 0x7f..." and paths would make two equal reasons differ between runs and machines.
ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
FOLDERS = re.compile(r"(?<![\w./])/(?:[^\s/:'\"]+/)+(?=[^\s/:'\"]+)")

# "torch._dynamo hit config.cache_size_limit (8)" up to 2.6, "recompile_limit" later.
LIMIT = re.compile(r"hit config\.(?:accumulated_)?(?:cache_size|recompile)_limit")


class Watch(logging.Handler):
    """Collects graph breaks and recompiles from now on; use after ``torch._dynamo.reset()``."""

    def __init__(self) -> None:
        super().__init__()
        self.recompiles: Counter[str] = Counter()
        import torch._dynamo  # noqa: PLC0415  (imports Inductor's half, seconds; only when compiling)
        from torch._dynamo.utils import counters  # noqa: PLC0415

        self._counters = counters
        counters.clear()
        # No counter of 2.2 to 2.15 counts recompiles, but every release logs each one.
        torch._logging.set_logs(recompiles=True)  # noqa: SLF001
        logging.getLogger("torch._dynamo.guards.__recompiles").addHandler(self)
        # At the recompile limit, a frame without ``fullgraph`` runs eagerly; only this log says so.
        logging.getLogger("torch._dynamo").addHandler(self)
        self._limits: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Count one recompile by its reason, or note that Dynamo gave up on a frame."""
        text = tidy(record.getMessage())
        if record.name.endswith("__recompiles"):
            self.recompiles[text] += 1
        elif LIMIT.search(text):
            self._limits[text] += 1

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
        """Return how many frames Dynamo saw and how many it compiled.

        With ``fullgraph`` Dynamo counts no frames, so graphs are counted: each frame is one graph
        or raises.
        """
        frames = self._counters["frames"]
        if not frames["total"]:
            graphs, _ = self.graphs()
            return graphs, graphs
        return int(frames["total"]), int(frames["ok"])

    def graphs(self) -> tuple[int, int]:
        """Return how many graphs went to the backend, and the operations in them."""
        stats = self._counters["stats"]
        return int(stats["unique_graphs"]), int(stats["calls_captured"])

    def graph_breaks(self) -> tuple[Counted, ...]:
        """Return the reason and number of each graph break.

        Up to 2.6, if Dynamo gives up a frame and compiles only the frames that it calls, the reason
        is counted only as ``unimplemented``.
        """
        breaks = self._counters["graph_break"] or self._counters["unimplemented"]
        return counted(Counter({tidy(str(k)): int(v) for k, v in breaks.items()}))

    def recompile_reasons(self) -> tuple[Counted, ...]:
        """Return the reason and number of each recompile."""
        return counted(self.recompiles)


def counted(counter: Counter[str]) -> tuple[Counted, ...]:
    """Return the counter as a tuple, most frequent first."""
    return tuple(Counted(text=t, count=n) for t, n in counter.most_common())


def tidy(text: str, limit: int = 600) -> str:
    """Return a reason without addresses and folders, so that equal reasons compare equal."""
    return FOLDERS.sub("", ADDRESS.sub("0x…", text)).strip()[:limit]
