"""Hot paths: find repeated sequences of operations, and compile them.

User guide: docs/hotpath.md. Needs torch 2.5 or newer; boundaries from YAML need the extra
``hotpath``.

Raises:
    ImportError: If torch is older.
"""

from __future__ import annotations

import torch

# Without it nobody knows whether a backward pass may come twice.
if not hasattr(torch._C._autograd, "_get_current_graph_task_keep_graph"):  # noqa: SLF001
    raise ImportError(
        f"ivhl.hotpath needs PyTorch 2.5 or newer (found {torch.__version__})", name="torch"
    )

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
