"""Every change of the process is reported by name until it is undone."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import torch

from ivhl.measure.state import changes, differing, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def eager(x: torch.Tensor) -> torch.Tensor:
    return part(x)


def part(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x)


@contextmanager
def setting(setter: Callable[[Any], object], value: Any, old: Any) -> Iterator[None]:  # noqa: ANN401
    setter(value)
    try:
        yield
    finally:
        setter(old)


@contextmanager
def replaced(place: Any, name: str, value: Any) -> Iterator[None]:  # noqa: ANN401
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, name, value)
        yield


@contextmanager
def environment(**values: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setenv(name, value)
        yield


@contextmanager
def folder() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir("/")
        yield


@contextmanager
def kernel() -> Iterator[None]:
    library = torch.library.Library("aten", "IMPL")
    library.impl("digamma", lambda x: x, "CPU")
    try:
        yield
    finally:
        library._destroy()


YES, NO = True, False


def other_state() -> Any:  # noqa: ANN401
    return torch.Generator().manual_seed(77).get_state()


CHANGES: dict[str, Callable[[], Any]] = {
    "torch.get_num_threads()": lambda: setting(
        torch.set_num_threads, torch.get_num_threads() + 1, torch.get_num_threads()
    ),
    "torch.is_grad_enabled()": torch.no_grad,
    "torch.is_inference_mode_enabled()": torch.inference_mode,
    "torch.is_autocast_enabled()": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "torch.get_default_dtype()": lambda: setting(
        torch.set_default_dtype, torch.float64, torch.float32
    ),
    "torch.get_default_device()": lambda: torch.device("meta"),
    "torch.are_deterministic_algorithms_enabled()": lambda: setting(
        lambda on: torch.use_deterministic_algorithms(mode=on), YES, NO
    ),
    "torch.get_float32_matmul_precision()": lambda: setting(
        torch.set_float32_matmul_precision, "medium", torch.get_float32_matmul_precision()
    ),
    "torch.set_flush_denormal()": lambda: setting(torch.set_flush_denormal, YES, NO),
    "torch.backends.mkldnn.enabled": lambda: torch.backends.mkldnn.flags(enabled=False),
    "torch.backends.cudnn": lambda: replaced(torch.backends.cudnn, "benchmark", YES),
    "the random state of torch": lambda: setting(
        torch.set_rng_state, other_state(), torch.get_rng_state()
    ),
    "the random state of random": lambda: setting(
        random.setstate, (3, random.getstate()[1], 0.5), random.getstate()
    ),
    "sys.getswitchinterval()": lambda: setting(
        sys.setswitchinterval, 0.123, sys.getswitchinterval()
    ),
    "gc.get_threshold()": lambda: setting(
        lambda all_of_it: gc.set_threshold(*all_of_it), (1, 2, 3), gc.get_threshold()
    ),
    "gc.callbacks": lambda: replaced(gc, "callbacks", [lambda *_: None, *gc.callbacks]),
    "sys.getprofile() or sys.gettrace()": lambda: setting(
        sys.setprofile, lambda *_: None, sys.getprofile()
    ),
    "signal.getsignal(SIGCHLD) == SIG_IGN": lambda: setting(
        lambda handler: signal.signal(signal.SIGCHLD, handler),
        signal.SIG_IGN,
        signal.getsignal(signal.SIGCHLD),
    ),
    "os.sched_getaffinity()": lambda: setting(
        lambda cpus: os.sched_setaffinity(0, cpus),
        {min(os.sched_getaffinity(0))},
        os.sched_getaffinity(0),
    ),
    "os.environ": lambda: environment(OMP_SCHEDULE="dynamic"),
    "os.getcwd()": folder,
    "the clocks of time": lambda: replaced(time, "perf_counter_ns", lambda: 0),
    "the functions of torch": lambda: replaced(torch, "sin", torch.cos),
    "the kernels of torch": kernel,
    "the functions of eager's module": lambda: replaced(sys.modules[__name__], "part", eager),
    "the number of torch's active modes": lambda: torch.device("cpu"),
}
# These cannot be undone: the number of interop threads, the niceness without
# root, and the scheduler.
ONE_WAY = {
    "torch.get_num_interop_threads()",
    "os.getpriority()",
    "os.sched_getscheduler()",
}


@pytest.mark.filterwarnings("ignore")  # warning about an overridden kernel
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_reported_by_name_until_it_is_undone(name: str) -> None:
    if name == "os.sched_getaffinity()" and len(os.sched_getaffinity(0)) == 1:
        pytest.skip("one CPU")
    before = snapshot(eager)
    with CHANGES[name]():
        found = changes(before, snapshot(eager))
    assert [text for text in found if text.startswith(name)]
    assert changes(before, snapshot(eager)) == []


def test_every_part_of_the_state_has_a_test() -> None:
    assert set(snapshot(eager)) == set(CHANGES) | ONE_WAY


def test_changes_of_readable_values_have_both_values() -> None:
    before = snapshot()
    with torch.no_grad():
        (text,) = changes(before, snapshot())
    assert text == "torch.is_grad_enabled() was True and is False"


def test_replaced_functions_are_named() -> None:
    before = snapshot(eager)
    with replaced(torch, "sin", torch.cos), replaced(sys.modules[__name__], "part", eager):
        told = "; ".join(changes(before, snapshot(eager)))
    assert "torch.sin" in told
    assert "part" in told


def test_replacing_the_code_of_eager_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(x: torch.Tensor) -> torch.Tensor:
        return x

    before = snapshot(eager)
    monkeypatch.setattr(eager, "__code__", other.__code__)
    assert changes(before, snapshot(eager)) == [
        "the functions of eager's module changed: eager, itself"
    ]


def test_allowed_differences_are_no_changes() -> None:
    before = snapshot()
    with CHANGES["the random state of torch"]():
        after = snapshot()
    assert differing(before, after) == ["the random state of torch"]
    assert changes(before, after, ["the random state of torch"]) == []


def test_compiler_variables_and_new_functions_are_no_changes() -> None:
    before = snapshot(eager)
    with environment(TORCHINDUCTOR_NOTE="1"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "made_by_a_compiler", print, raising=False)
        assert changes(before, snapshot(eager)) == []


def test_a_wrapper_by_torch_is_no_change() -> None:
    # Importing Dynamo wraps ``manual_seed``.
    def wrapper(seed: int) -> None:
        raise NotImplementedError(seed)

    def of(module: str) -> Any:  # noqa: ANN401
        wrapper.__name__, wrapper.__module__ = "manual_seed", module
        return wrapper

    before = snapshot(eager)
    with replaced(torch, "manual_seed", of("torch._dynamo.eval_frame")):
        assert changes(before, snapshot(eager)) == []
    with replaced(torch, "manual_seed", of("torchless")):
        assert changes(before, snapshot(eager)) == [
            "the functions of torch changed: torch.manual_seed"
        ]


def test_functions_that_dynamo_adds_and_removes_are_no_changes() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[__name__], "__compiled_fn_3", print, raising=False)
        before = snapshot(eager)
    assert changes(before, snapshot(eager)) == []


# What PyTorch loads, sets up or registers at the first use of each, in 2.6.0 and 2.15.0.
AT_FIRST_USE = {
    "vmap": "torch.vmap(lambda row: row.sin().sum())(x)",
    "hessian": "torch.func.hessian(lambda t: (t**3).sum())(x)",
    "jacobian of rows": "torch.vmap(torch.func.jacrev(torch.sin))(x)",
    "nested": "torch.nested.nested_tensor([x, x], layout=torch.jagged).sin()",
    "distributed": "import torch.distributed.tensor, torch.distributed.fsdp",
    "quantised": "torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8).dequantize()",
    "quantised modules": "import torch.ao.quantization, torch.ao.nn.quantized",
    "decompositions": "import torch._decomp; torch._decomp.core_aten_decompositions()",
    "graph of operations": "from torch.fx.experimental.proxy_tensor import make_fx; make_fx(f)(x)",
    "flex attention": "from torch.nn.attention.flex_attention import flex_attention",
    "masked": "import torch.masked; torch.masked.masked_tensor(x, x > 0).sum()",
    "parametrized": "torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 3))",
    "profiler": "import torch.profiler; torch.profiler.profile().__enter__().__exit__(*[None] * 3)",
    "compiler": "torch.compile(f, backend='eager')(x)",
}
LOADS = """
import sys, warnings
warnings.simplefilter("ignore")
import torch
from ivhl.measure.state import changes, snapshot
f, x = torch.sin, torch.eye(3, dtype=torch.float64)
before = snapshot()
for name, code in {uses!r}.items():
    exec(code)
    found = changes(before, snapshot(), ["the random state of torch"])
    assert not found, (name, found)
library = torch.library.Library("aten", "IMPL")
library.impl("digamma", lambda x: x, "CPU")
print(changes(before, snapshot()))
"""


def test_what_pytorch_loads_at_its_first_use_is_no_change() -> None:
    code = LOADS.format(uses=AT_FIRST_USE)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "the kernels of torch was" in done.stdout  # what the code itself replaces is one
