"""The state of the process that every arm is measured under, and that none may change.

A call that leaves more threads, another default dtype or gradient mode behind changes how long the
other arms take and what they return. So the state is looked at between calls.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
import time
from typing import Any

import torch

# What a workload could replace to change the clocks that it is measured with.
_CLOCKS = ("perf_counter_ns", "process_time_ns", "thread_time_ns", "perf_counter", "clock_gettime_ns")


def snapshot() -> dict[str, Any]:
    """Return the state by the name under which it is reported, each value comparable by ``==``."""
    denormal = torch.full((8,), 1e-310, dtype=torch.float64) * 0.5
    return {
        "torch.get_num_threads()": torch.get_num_threads(),
        "torch.get_num_interop_threads()": torch.get_num_interop_threads(),
        "torch.is_grad_enabled()": torch.is_grad_enabled(),
        "torch.is_inference_mode_enabled()": torch.is_inference_mode_enabled(),
        "torch.is_autocast_enabled()": _autocast(),
        "torch.get_default_dtype()": str(torch.get_default_dtype()),
        "torch.get_default_device()": str(torch.empty(0).device),
        "torch.are_deterministic_algorithms_enabled()": (
            torch.are_deterministic_algorithms_enabled()
        ),
        "torch.get_float32_matmul_precision()": torch.get_float32_matmul_precision(),
        "torch.set_flush_denormal()": not bool(denormal.any()),
        "torch.backends.mkldnn.enabled": torch.backends.mkldnn.enabled,
        "torch.backends.cudnn": (
            torch.backends.cudnn.enabled,
            torch.backends.cudnn.benchmark,
            torch.backends.cudnn.deterministic,
            torch.backends.cudnn.allow_tf32,
        ),
        "the random state of torch": _digest(torch.get_rng_state()),
        "the random state of random": hash(random.getstate()),
        "sys.getswitchinterval()": sys.getswitchinterval(),
        "os.sched_getaffinity()": _affinity(),
        "os.getpriority()": os.getpriority(os.PRIO_PROCESS, 0),
        "os.environ": hash(frozenset(os.environ.items())),
        "os.getcwd()": os.getcwd(),  # noqa: PTH109  (of a folder that is gone, too)
        "the clocks of time": tuple(id(getattr(time, name)) for name in _CLOCKS),
        "the functions of torch": _functions(),
        "the number of torch's active modes": _modes(),
    }


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return what differs, with both values where they mean something to a reader."""
    found = []
    for name, old in before.items():
        new = after[name]
        if old != new:
            plain = isinstance(old, (bool, str, int, float)) and "state" not in name
            plain = plain and name != "os.environ"
            found.append(f"{name} was {old} and is {new}" if plain else f"{name} changed")
    return found


def _autocast() -> tuple[bool, ...]:
    try:
        return tuple(torch.is_autocast_enabled(device) for device in ("cpu", "cuda"))
    except TypeError:  # before PyTorch 2.4
        return torch.is_autocast_cpu_enabled(), torch.is_autocast_enabled()


def _affinity() -> tuple[int, ...]:
    return tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()


def _functions() -> int:
    """Return what changes when somebody replaces a function that eager calls."""
    places = (torch, torch.Tensor, torch.nn.functional, torch.linalg)
    return hash(
        tuple(
            (name, id(value))
            for place in places
            for name, value in sorted(vars(place).items())
            if callable(value) and not name.startswith("_")
        )
    )


def _modes() -> int:
    stack = getattr(torch._C, "_len_torch_function_stack", lambda: 0)  # noqa: SLF001
    dispatch = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)  # noqa: SLF001
    return int(stack()) + int(dispatch())


def _digest(state: torch.Tensor) -> str:
    return hashlib.sha256(bytes(state.tolist())).hexdigest()
