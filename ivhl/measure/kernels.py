"""What one call runs on a GPU: kernels and copies, as PyTorch's profiler sees them."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch.profiler import ProfilerActivity, profile

if TYPE_CHECKING:
    from collections.abc import Callable


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
    with warnings.catch_warnings():
        # PyTorch from 2.10.0 on warns of its own profiler, whatever is profiled.
        warnings.filterwarnings("ignore", message=r".*Profiler clears events")
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
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
