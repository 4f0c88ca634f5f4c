"""The memory of a call, and its kernels on a GPU, from the allocator and PyTorch's profiler."""

from __future__ import annotations

import json
import tempfile
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.profiler import ProfilerActivity, profile

from ivhl.measure.failures import warn
from ivhl.measure.timing import Restored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ivhl.measure.imports import Setup


def measure_memory(setup: Setup, eager: Callable[[], Any], compiled: Callable[[], Any]) -> None:
    """Note the peak memory of a call of both arms, and on a GPU the number of kernels."""
    setup.journal.enter("memory")
    arms = {"eager": eager, "compiled": compiled}
    with _warning("memory was not measured"):
        memory = {
            f"{name}_peak": peak_bytes(from_its_state(call), setup.device)
            for name, call in arms.items()
        }
        setup.journal.note(memory=memory)
    if setup.device.type == "cuda":
        with _warning("kernels were not counted"):
            kernels: dict[str, float] = {}
            for name, call in arms.items():
                number, seconds = count_kernels(from_its_state(call), setup.device)
                kernels |= {name: number, f"{name}_s": seconds}
            setup.journal.note(kernels=kernels)


@contextmanager
def _warning(what: str) -> Iterator[None]:
    """Warn of an error of the profiler, which is none of the case."""
    try:
        yield
    except Exception as error:  # noqa: BLE001
        warn(f"{what}: {error}")


def from_its_state(call: Callable[[], Any]) -> Callable[[], Any]:
    """Return what of a call is measured, with its state put back."""
    if not isinstance(call, Restored):
        return call
    call.restore()
    return call.call


def peak_bytes(call: Callable[[], Any], device: torch.device) -> int | None:
    """Run the call once and return its peak, outputs included; ``None`` if nothing was traced.

    On the CPU, sums up the allocator's events: resident memory would miss allocations that reuse
    memory which the C library kept from the previous call, and those smaller than a page.

    Returns:
        Most bytes that the call holds beyond its inputs.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        call()
        torch.cuda.synchronize(device)
        return int(torch.cuda.max_memory_allocated(device) - before)
    if device.type != "cpu":  # few of them count it
        return None
    with _profiled(ProfilerActivity.CPU, profile_memory=True) as trace:
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


def count_kernels(call: Callable[[], Any], device: torch.device) -> tuple[int, float]:
    """Return how many kernels and copies a call runs on the GPU, and their seconds.

    The call runs twice: loading a kernel for the first time would count as more. A CUDA graph
    counts as the kernels that are captured in it.

    Args:
        call: Runs on the GPU.
        device: The GPU.
    """
    call()
    torch.cuda.synchronize(device)
    with _profiled(ProfilerActivity.CPU, ProfilerActivity.CUDA) as seen:
        call()
        torch.cuda.synchronize(device)
    on_gpu = [
        event
        for event in seen.key_averages()
        if event.device_type == torch.autograd.DeviceType.CUDA
        and not getattr(event, "is_user_annotation", False)  # PyTorch 2.5 does not say
    ]
    microseconds = sum(float(event.self_device_time_total) for event in on_gpu)
    return sum(int(event.count) for event in on_gpu), microseconds / 1e6


@contextmanager
def _profiled(*activities: ProfilerActivity, profile_memory: bool = False) -> Iterator[profile]:
    with warnings.catch_warnings():
        # PyTorch from 2.10.0 on warns of its own profiler, whatever is profiled.
        warnings.filterwarnings("ignore", message=r".*Profiler clears events")
        with profile(activities=activities, profile_memory=profile_memory) as trace:
            yield trace
