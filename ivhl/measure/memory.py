"""Most bytes that one call holds beyond its inputs, from the allocator's own trace."""

from __future__ import annotations

import json
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.profiler import ProfilerActivity, profile

if TYPE_CHECKING:
    from collections.abc import Callable


def peak_bytes(call: Callable[[], Any], device: torch.device) -> int | None:
    """Run the call once and return its peak, outputs included; ``None`` if nothing was traced.

    On the CPU, sums up the allocator's events: resident memory would miss allocations that reuse
    memory which the C library kept from the previous call, and those smaller than a page.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        call()
        torch.cuda.synchronize(device)
        return int(torch.cuda.max_memory_allocated(device) - before)
    with warnings.catch_warnings():
        # PyTorch 2.10.0 warns of its own profiler, whatever is profiled.
        warnings.filterwarnings("ignore", message=r".*Profiler clears events")
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
            result = call()
    del result
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        trace.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    held = peak = 0
    steps = [e for e in events if e.get("name") == "[memory]" and "Bytes" in e.get("args", {})]
    if not steps:
        return None
    for event in sorted(steps, key=lambda e: float(e["ts"])):
        held += int(event["args"]["Bytes"])
        peak = max(peak, held)
    return peak
