"""The state of the process, which no arm may change.

A call that changes the number of threads, the default dtype or the gradient mode also changes the
times and results of the other arms. So the state is compared between calls.
"""

from __future__ import annotations

import gc
import hashlib
import os
import random
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import torch

from ivhl.measure.failures import CaseError, warn

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

# The first call of a compiled function may draw random numbers; every block resets these states.
RANDOM_STATES = frozenset({"the random state of torch", "the random state of random"})
# What the harness sets itself after the workload's modules are imported, and at each call.
SET_AGAIN = RANDOM_STATES | {"torch.get_num_threads()", "torch.get_num_interop_threads()"}
# Functions that a workload could replace to change its own measured times.
_CLOCKS = (
    "perf_counter_ns",
    "process_time_ns",
    "thread_time_ns",
    "perf_counter",
    "clock_gettime_ns",
)


_HAS_SCHEDULER = hasattr(os, "sched_getscheduler")
# Prefixes of environment variables that compilers set for themselves.
_OF_COMPILERS = ("TORCH", "_TORCH", "TRITON", "KINETO", "PYTORCH", "KMP_DUPLICATE_LIB_OK", "CUDA")


def snapshot(eager: Callable[..., Any] | None = None) -> dict[str, Any]:
    """Return the state: the name that messages use, to a value that ``==`` compares.

    Args:
        eager: The eager function; the functions of its module belong to the state.
    """
    denormal = torch.full((8,), 1e-310, dtype=torch.float64, device="cpu") * 0.5
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
        "gc.get_threshold()": gc.get_threshold(),
        "gc.callbacks": len(gc.callbacks),
        "sys.getprofile() or sys.gettrace()": (sys.getprofile(), sys.gettrace()),
        "signal.getsignal(SIGCHLD) == SIG_IGN": _children_uncounted(),
        "os.sched_getscheduler()": os.sched_getscheduler(0) if _HAS_SCHEDULER else 0,
        "os.sched_getaffinity()": _affinity(),
        "os.getpriority()": os.getpriority(os.PRIO_PROCESS, 0),
        "os.environ": _environment(),
        "os.getcwd()": os.getcwd(),  # noqa: PTH109  (works in a deleted folder, too)
        "the clocks of time": tuple(id(getattr(time, name)) for name in _CLOCKS),
        "the functions of torch": _functions(),
        "the kernels of torch": _kernels(),
        "the functions of eager's module": _own_functions(eager),
        "the number of torch's active modes": _modes(),
    }


def differing(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return the names of the values that differ."""
    return [name for name, old in before.items() if _differs(old, after[name])]


def changes(
    before: dict[str, Any], after: dict[str, Any], allowed: Iterable[str] = ()
) -> list[str]:
    """Return a message for each difference that is not allowed, with both values if readable."""
    found = []
    for name in differing(before, after):
        old, new = before[name], after[name]
        if name in allowed:
            continue
        if isinstance(old, dict):
            which = sorted(str(key) for key in old if old[key] != new.get(key))
            found.append(f"{name} changed: {', '.join(which[:5])}")
        elif isinstance(old, (bool, str, int, float)) and "state" not in name:
            found.append(f"{name} was {old} and is {new}")
        else:
            found.append(f"{name} changed")
    return found


def _differs(old: Any, new: Any) -> bool:  # noqa: ANN401  (values of a snapshot)
    if isinstance(old, dict):  # new entries change nothing for code that does not know them
        return any(new.get(key) != value for key, value in old.items())
    return bool(old != new)


def _autocast() -> tuple[bool, ...]:
    try:
        return tuple(torch.is_autocast_enabled(device) for device in ("cpu", "cuda"))
    except TypeError:  # before PyTorch 2.4
        return torch.is_autocast_cpu_enabled(), torch.is_autocast_enabled()


def _affinity() -> tuple[int, ...]:
    return tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()


def _functions() -> dict[str, Any]:
    """Return values that change when a function of torch is replaced.

    When it is imported, Dynamo wraps some functions, such as ``manual_seed``; they keep their name.
    """
    places = (torch, torch.Tensor, torch.nn.functional, torch.linalg, torch.fft)
    return {
        f"{place.__name__}.{name}": value.__name__ if _is_of_torch(value) else id(value)
        for place in places
        for name, value in vars(place).items()
        if callable(value) and not name.startswith("_")
    }


def _is_of_torch(value: Any) -> bool:  # noqa: ANN401  (any callable)
    module = str(getattr(value, "__module__", ""))
    return hasattr(value, "__name__") and (module + ".").startswith("torch.")


def _own_functions(eager: Callable[..., Any] | None) -> dict[str, Any]:
    """Return values that change when eager or a function in its module is replaced.

    Dynamo adds its own functions there, such as ``__compiled_fn_3``, and removes them to compile
    again.
    """
    own = getattr(eager, "__globals__", {}) | {"itself": eager}
    return {
        name: (id(value), id(getattr(value, "__code__", None)))
        for name, value in own.items()
        if callable(value) and not name.startswith("__")
    }


def _kernels() -> int:
    """Return the number of ATen kernels that were replaced through ``torch.library``.

    PyTorch loads some of its own at their first use, such as those of ``vmap``; they do not count.
    """
    replaced = _replaced()
    later = replaced - _AT_FIRST
    return len(replaced) - len(later & _of_pytorch() if later else later)


def _replaced() -> frozenset[str]:
    """Return the kernels, e.g. ``aten/mse_loss_backward/FuncTorchBatched``."""
    known = getattr(torch.library, "_impls", ())
    return frozenset(str(name) for name in known if str(name).startswith("aten/"))


# No code of the project has run yet.
_AT_FIRST = _replaced()


def _of_pytorch() -> set[str]:
    """Return the kernels that modules of PyTorch's have replaced."""
    modules = [one for name, one in list(sys.modules.items()) if name.startswith("torch.")]
    values = [value for one in modules for value in list(vars(one).values())]
    libraries = [value for value in values if type(value) is torch.library.Library]
    return {str(name) for one in libraries for name in one._op_impls}  # noqa: SLF001


def _environment() -> dict[str, str]:
    """Return the environment variables except those of compilers."""
    return {k: v for k, v in os.environ.items() if not k.startswith(_OF_COMPILERS)} | {
        "how many": str(sum(not k.startswith(_OF_COMPILERS) for k in os.environ))
    }


def _children_uncounted() -> bool:
    """Return whether SIGCHLD is ignored: the kernel then drops the CPU time of children."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:  # noqa: PTH123  (quicker)
            ignored = next(line for line in file if line.startswith("SigIgn"))
    except (OSError, StopIteration):
        return signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN
    return bool(int(ignored.split()[1], 16) >> (signal.SIGCHLD - 1) & 1)


def _modes() -> int:
    stack = getattr(torch._C, "_len_torch_function_stack", lambda: 0)  # noqa: SLF001
    dispatch = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)  # noqa: SLF001
    return int(stack()) + int(dispatch())


def _digest(state: torch.Tensor) -> str:
    return hashlib.sha256(bytes(state.tolist())).hexdigest()


class Unchanged:
    """The state of the process at one time, which the variant must leave as it is.

    Args:
        eager: The function of the eager arm.
        allowed: Names of what may change.
    """

    def __init__(self, eager: Callable[..., Any], allowed: Collection[str]) -> None:
        self._eager, self._allowed = eager, allowed
        self._before = snapshot(eager)

    def refuse_changes(self, who: str = "the variant") -> None:
        """Raise ``CaseError`` if the state is another one now."""
        if changed := changes(self._before, snapshot(self._eager), self._allowed):
            raise CaseError(
                "side_effect",
                f"{who} changes the process in which all arms are measured: " + "; ".join(changed),
            )


def warn_of_changes(before: dict[str, Any]) -> None:
    """Warn if what is not timed has changed PyTorch: that holds for all arms."""
    after = snapshot()
    of_torch = [name for name in before if "torch" in name and name not in SET_AGAIN]
    before, after = ({name: one[name] for name in of_torch} for one in (before, after))
    if changed := changes(before, after):
        warn(
            "importing the workload's modules, or making its inputs and its model, "
            f"changes the process in which all arms are measured: {'; '.join(changed)}; set it "
            "inside of the function, or not at all"
        )
