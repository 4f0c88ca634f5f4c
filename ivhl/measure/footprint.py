"""The memory of a call, and its kernels on a GPU."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from ivhl.measure.timing import Restored

if TYPE_CHECKING:
    from collections.abc import Callable

    from ivhl.measure.imports import Setup


def measure_memory(setup: Setup, eager: Callable[[], Any], compiled: Callable[[], Any]) -> None:
    """Note the peak memory of a call of both arms, and on a GPU the number of kernels."""
    from ivhl.measure.memory import peak_bytes  # noqa: PLC0415

    setup.journal.enter("memory")
    try:
        memory = {
            name: peak_bytes(from_its_state(call), setup.device)
            for name, call in (("eager_peak", eager), ("compiled_peak", compiled))
        }
    except Exception as error:  # noqa: BLE001  (an error of the profiler is none of the case)
        warnings.warn(f"ivhl: memory was not measured: {error}", stacklevel=1)
    else:
        setup.journal.note(memory=memory)
    if setup.device.type == "cuda":
        count(setup, eager, compiled)


def count(setup: Setup, eager: Callable[[], Any], compiled: Callable[[], Any]) -> None:
    """Note how many kernels a call of both arms starts."""
    from ivhl.measure.kernels import count_kernels  # noqa: PLC0415  (imports torch)

    kernels: dict[str, float] = {}
    try:
        for name, call in (("eager", eager), ("compiled", compiled)):
            number, seconds = count_kernels(from_its_state(call), setup.device)
            kernels |= {name: number, f"{name}_s": seconds}
    except Exception as error:  # noqa: BLE001  (an error of the profiler is none of the case)
        warnings.warn(f"ivhl: kernels were not counted: {error}", stacklevel=1)
    else:
        setup.journal.note(kernels=kernels)


def from_its_state(call: Callable[[], Any]) -> Callable[[], Any]:
    """Return what of a call is measured, with its state put back."""
    if not isinstance(call, Restored):
        return call
    call.restore()
    return call.call
