"""Device, precision and profile follow the hardware."""

from __future__ import annotations

import contextlib
import gzip
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch", reason="torch is only in the cells")
import torch

from ivhl import device as module
from ivhl.device import autocast_context, autocast_dtype, compute_capability, get_device, profile

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning")


def pretend(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int] | None) -> None:
    """Pretend that this machine has an NVIDIA GPU, or none."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: capability is not None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: capability)


def test_the_device_is_the_current_gpu_or_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, (9, 0))
    assert get_device() == torch.device("cuda", 1)
    pretend(monkeypatch, None)
    assert get_device() == torch.device("cpu") == torch.ones(1, device=get_device()).device


def test_only_nvidia_has_a_compute_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, (9, 0))
    monkeypatch.setattr(torch.version, "hip", None)
    assert compute_capability(torch.device("cuda")) == (9, 0)
    assert compute_capability(torch.device("cpu")) is None
    monkeypatch.setattr(torch.version, "hip", "6.2")
    assert compute_capability(torch.device("cuda")) is None


@pytest.mark.parametrize(
    ("capability", "dtype"),
    [
        ((6, 1), None),
        ((7, 0), torch.float16),
        ((7, 5), torch.float16),
        ((8, 0), torch.bfloat16),
        ((9, 0), torch.bfloat16),
        ((12, 0), torch.bfloat16),
    ],
)
def test_a_gpu_uses_a_dtype_of_its_tensor_cores(
    capability: tuple[int, int], dtype: torch.dtype | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, capability)
    monkeypatch.setattr(torch.version, "hip", None)
    assert autocast_dtype() == autocast_dtype("cuda:0") == dtype


@pytest.mark.parametrize(
    ("avx512_bf16", "amx", "dtype"),
    [(False, False, None), (True, False, torch.bfloat16), (False, True, torch.bfloat16)],
)
def test_a_cpu_uses_bfloat16_only_with_hardware_support(
    avx512_bf16: bool,  # noqa: FBT001
    amx: bool,  # noqa: FBT001
    dtype: torch.dtype | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512_bf16)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    assert autocast_dtype("cpu") == dtype


def test_other_devices_use_a_dtype_that_they_support() -> None:
    assert autocast_dtype("mps") == torch.float16
    assert autocast_dtype("meta") is None


def test_the_dtype_of_this_cpu_is_bfloat16_or_none() -> None:
    assert autocast_dtype("cpu") in {None, torch.bfloat16}


@pytest.mark.parametrize("dtype", [torch.bfloat16, None])
def test_the_context_sets_the_precision_of_matrix_multiplications(
    dtype: torch.dtype | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "autocast_dtype", lambda _device: dtype)
    a = torch.ones(4, 4)
    with autocast_context("cpu"):
        assert (a @ a).dtype == (dtype or torch.float32)
        z = torch.complex(a, a)
        assert (z @ z).dtype == torch.complex64
    assert (a @ a).dtype == torch.float32


def test_a_context_without_a_precision_keeps_the_outer_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "autocast_dtype", lambda _device: None)
    a = torch.ones(4, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16), autocast_context("cpu"):
        assert (a @ a).dtype == torch.bfloat16


@pytest.mark.parametrize("name", ["trace.json", "deep/er/trace.json.gz"])
def test_a_profile_is_a_table_and_a_chrome_trace(name: str, tmp_path: Path) -> None:
    a = torch.ones(64, 64)
    with profile(tmp_path / name, device="cpu") as seen:
        for _ in range(3):
            (a @ a).sin()
    table = seen.table(row_limit=5)
    assert "aten::mm" in table
    assert "aten::sin" in table
    opened = gzip.open if name.endswith(".gz") else open
    with opened(tmp_path / name, "rt", encoding="utf-8") as file:
        names = [event.get("name") for event in json.load(file)["traceEvents"]]
    assert names.count("aten::mm") == 3


def test_kernels_are_operations_and_no_ranges() -> None:
    a = torch.ones(64, 64)
    # As compiled code marks its calls, unlike a user.
    called = torch._C._profiler._RecordFunctionFast("## Call CompiledFxGraph fh2inw6x ##")
    with profile(device="cpu") as seen, torch.profiler.record_function("mine"), called:
        (a @ a).sin()
    assert "## Call CompiledFxGraph" in seen.table()
    assert {"aten::mm", "aten::sin"} <= {name for name, _, _ in seen.kernels()}
    assert all(name.startswith("aten::") for name, _, _ in seen.kernels())


def test_kernels_of_a_gpu_are_what_ran_there_once() -> None:
    kinds = torch.autograd.DeviceType

    def event(key: str, kind: Any, us: float, *, marked: bool = False) -> SimpleNamespace:  # noqa: ANN401
        return SimpleNamespace(
            key=key,
            device_type=kind,
            self_device_time_total=us,
            count=2,
            is_user_annotation=marked,
        )

    events = [
        event("aten::mm", kinds.CPU, 4.0),
        event("mine", kinds.CUDA, 9.0, marked=True),
        event("void at::native::vectorized<4>(int, float)", kinds.CUDA, 1.0),
        event("ampere_sgemm_128x64_nn", kinds.CUDA, 4.0),
    ]
    profiler: Any = SimpleNamespace(key_averages=lambda: events)
    seen = module.Profile(profiler, torch.device("cuda", 0))
    seen.end()
    assert [(name, calls) for name, _, calls in seen.kernels()] == [
        ("ampere_sgemm_128x64_nn", 2),
        ("void at::native::vectorized<4>(int, float)", 2),
    ]


def test_a_trace_can_be_written_later(tmp_path: Path) -> None:
    with profile(device="cpu", shapes=True, memory=True) as seen:
        torch.ones(8).sin()
    assert seen.write_trace(tmp_path / "trace.json").stat().st_size > 0


def test_a_profile_cannot_be_read_inside_its_block() -> None:
    with profile(device="cpu") as seen:
        torch.ones(8).sin()
        with pytest.raises(RuntimeError, match="once its 'with' block has ended"):
            seen.table()


def test_an_exception_in_a_profiled_block_is_raised_and_leaves_no_trace(tmp_path: Path) -> None:
    with (
        contextlib.suppress(ZeroDivisionError),
        profile(tmp_path / "trace.json", device="cpu"),
    ):
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())
    with profile(device="cpu") as seen:  # the only profiler of the process is free again
        torch.ones(8).sin()
    assert "aten::sin" in seen.table()
