"""Hot-path compilation: finds sequences of operations that repeat, and compiles them.

User guide: docs/hotpath.md. Needs torch only; boundaries from YAML need the extra ``hotpath``.
"""

from __future__ import annotations

from ivhl.hotpath.block import auto, boundary, start_for_process
from ivhl.hotpath.log import LogEntry
from ivhl.hotpath.report import HotpathReport, PathReport
from ivhl.hotpath.settings import load_boundaries
from ivhl.hotpath.timeline import TimelineSpan

__all__ = [
    "HotpathReport",
    "LogEntry",
    "PathReport",
    "TimelineSpan",
    "auto",
    "boundary",
    "load_boundaries",
]

start_for_process()
