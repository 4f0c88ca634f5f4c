"""Choose a device and its fast precision, capture CUDA graphs, and profile code."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

BFLOAT16_CAPABILITY: Final = (8, 0)  # first with bfloat16 tensor cores
FLOAT16_CAPABILITY: Final = (7, 0)  # first with tensor cores: float16
RUNS_BEFORE_CAPTURE: Final = 3  # what is compiled or chosen at first must not be in the graph


def get_device() -> torch.device:
    """Return the current CUDA device (NVIDIA, or AMD under ROCm) if there is one, else the CPU.

    The device has an index, so it equals the ``device`` of tensors made on it. Apple's and Intel's
    GPUs are never chosen: Apple's have no float64, and the operations were tested on neither. To
    use one, pass tensors that are on it.
    """
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def _as_device(device: torch.device | str | None) -> torch.device:
    return get_device() if device is None else torch.device(device)


def compute_capability(device: torch.device) -> tuple[int, int] | None:
    """Return NVIDIA's compute capability, e.g. ``(9, 0)``; ``None`` for any other device.

    ROCm reports AMD's numbers in the same field, on another scale.
    """
    if device.type != "cuda" or torch.version.hip:
        return None
    major, minor = torch.cuda.get_device_capability(device)
    return major, minor


def autocast_dtype(device: torch.device | str | None = None) -> torch.dtype | None:
    """Return the reduced precision in which a device is fast.

    Args:
        device: Default: ``get_device()``.

    Returns:
        bfloat16 for NVIDIA GPUs from compute capability 8.0, for AMD's, and for x86 processors
        that multiply it in hardware (AVX512-BF16 or AMX); float16 for NVIDIA GPUs from 7.0 and for
        Apple's; ``None`` for all others, which emulate both, slower than float32.
    """
    on = _as_device(device)
    if on.type == "cuda":
        capability = compute_capability(on)
        if capability is None or capability >= BFLOAT16_CAPABILITY:
            return torch.bfloat16
        return torch.float16 if capability >= FLOAT16_CAPABILITY else None
    if on.type == "cpu":
        # PyTorch 2.5 has no public name for these two.
        native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()  # noqa: SLF001
        return torch.bfloat16 if native else None
    return torch.float16 if on.type == "mps" else None


def autocast_context(device: torch.device | str | None = None) -> AbstractContextManager[None]:
    """Return ``torch.autocast`` with ``autocast_dtype``, or a null context if that is ``None``.

    Autocast leaves complex tensors and float64 unchanged.

    Args:
        device: Default: ``get_device()``.
    """
    on = _as_device(device)
    dtype = autocast_dtype(on)
    if dtype is None:
        return contextlib.nullcontext()
    context: AbstractContextManager[None] = torch.autocast(on.type, dtype=dtype)
    return context


def capture(*runs: Callable[[], object], device: torch.device) -> list[Callable[[], None]]:
    """Return the replays of functions as CUDA graphs.

    A graph reads and writes the memory that its function read and wrote, which the caller keeps. The
    graphs share memory for what lies between, so no two of them may run at once.

    Args:
        *runs: Each starts kernels only; called ``RUNS_BEFORE_CAPTURE`` times before it is captured.
        device: A GPU.

    Raises:
        RuntimeError: If one does what cannot be captured, as waiting for the device.
    """
    replays: list[Callable[[], None]] = []
    with torch.cuda.device(device):
        pool = torch.cuda.graph_pool_handle()
        for run in runs:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(RUNS_BEFORE_CAPTURE):
                    run()
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            # Other threads may allocate meanwhile.
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                run()
            replays.append(graph.replay)
    return replays


class Profile:
    """Results of ``profile``; readable after its block has ended."""

    def __init__(self, profiler: torch.profiler.profile, device: torch.device) -> None:
        self._profiler = profiler
        self._device = device
        self._ended = False

    def table(self, *, sort_by: str | None = None, row_limit: int = 20) -> str:
        """Return the operations as a table, the most expensive first.

        Args:
            sort_by: A column of ``torch.profiler``; default: self time on the device.
            row_limit: Maximum number of rows.

        Raises:
            RuntimeError: If the block has not ended.
        """
        own = "self_cpu_time_total" if self._device.type == "cpu" else "self_device_time_total"
        text: str = (
            self._finished().key_averages().table(sort_by=sort_by or own, row_limit=row_limit)
        )
        return text

    def kernels(self) -> list[tuple[str, float, int]]:
        """Return name, own seconds on the device and calls of each kernel, longest first.

        On the CPU these are PyTorch's operations and what Inductor made; on a GPU what ran there.
        Ranges that a user or PyTorch's compiler marks are none.

        Raises:
            RuntimeError: If the block has not ended.
        """
        own = "self_cpu_time_total" if self._device.type == "cpu" else "self_device_time_total"
        found = [
            (str(event.key), 1e-6 * float(getattr(event, own)), int(event.count))
            for event in self._finished().key_averages()
            if self._is_kernel(event)
        ]
        return sorted(found, key=lambda one: -one[1])

    def _is_kernel(self, event: Any) -> bool:  # noqa: ANN401
        if getattr(event, "is_user_annotation", False):  # PyTorch 2.5 does not say
            return False
        on_cpu = event.device_type == torch.autograd.DeviceType.CPU
        if self._device.type == "cpu":
            # A range of the compiler has words for a name: "Torch-Compiled Region: 0/0".
            return on_cpu and " " not in str(event.key)
        return not on_cpu  # an operation on the CPU has the time of its kernels a second time

    def write_trace(self, path: str | Path) -> Path:
        """Write a trace for ``chrome://tracing`` or https://ui.perfetto.dev; return its path.

        A second call raises, since the profiler hands over its events at the first.

        Args:
            path: ``*.json`` or ``*.json.gz``. Missing folders are created.

        Raises:
            OSError: If the folder cannot be written.
            RuntimeError: If the block has not ended, or the trace was already written.
        """
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._finished().export_chrome_trace(str(path))
        return path

    def end(self) -> None:
        """Mark the block as ended."""
        self._ended = True

    def _finished(self) -> torch.profiler.profile:
        if not self._ended:
            raise RuntimeError("a profile can be read once its 'with' block has ended")
        return self._profiler


@contextlib.contextmanager
def profile(
    trace: str | Path | None = None,
    *,
    device: torch.device | str | None = None,
    shapes: bool = False,
    memory: bool = False,
) -> Iterator[Profile]:
    """Profile a block with ``torch.profiler``.

    ``with profile("field.json") as seen: ...`` and then ``print(seen.table())``. A process has one
    profiler, so profiles cannot be nested. Call compiled code once before, or the profile includes
    its compilation.

    Args:
        trace: Where to write the Chrome trace when the block ends without an exception.
        device: Device to profile besides the CPU; default: ``get_device()``.
        shapes: Whether to record the shapes of inputs.
        memory: Whether to record allocations.

    Yields:
        The profile, readable after the block.

    Raises:
        OSError: If the trace cannot be written.
    """
    on = _as_device(device)
    activity = torch.profiler.ProfilerActivity
    activities = [activity.CPU]
    if on.type == "cuda":
        activities.append(activity.CUDA)
    with torch.profiler.profile(
        activities=activities, record_shapes=shapes, profile_memory=memory
    ) as profiler:
        seen = Profile(profiler, on)
        yield seen
        if on.type == "cuda":
            torch.cuda.synchronize(on)  # wait for kernels launched in the block
    seen.end()
    if trace is not None:
        seen.write_trace(trace)
