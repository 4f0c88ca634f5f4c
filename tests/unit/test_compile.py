"""Decorated functions follow the mode, fall back to eager, and are reported."""

from __future__ import annotations

import functools
import gc
import inspect
import logging
import math
import os
import re
import subprocess
import sys
import tempfile
import threading
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, assert_type

import pytest

pytest.importorskip("torch", reason="torch is only in the cells")
import torch
import torch._dynamo
from torch._inductor.utils import clear_inductor_caches
from torch.fx.experimental import _config as shapes

from ivhl import compile as module
from ivhl.compile import (
    CACHE_VARIABLE,
    MEASURING_VARIABLE,
    CompileFallbackWarning,
    FunctionReport,
    Mode,
    clear_compile_cache,
    compile_mode,
    compile_report,
    get_compile_mode,
    get_compiled,
    measuring,
    set_compile_mode,
)
from ivhl.measure.failures import SUPPORT_GATE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning")

GATE = "Dynamo is not supported on Python 3.13+"
NO_COMPILER = "no such compiler"


def who_runs(x: torch.Tensor) -> torch.Tensor:
    """Return whether this is compiled code (1) or not (0)."""
    # Not is_compiling(), which is true while any thread compiles.
    return torch.ones_like(x) if torch.compiler.is_dynamo_compiling() else torch.zeros_like(x)


def is_compiled(function: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    """Return whether compiled code runs ``who_runs``."""
    return bool(function(torch.zeros(2)).all())


class Compiler:
    """Replaces Inductor, which takes seconds, by Dynamo with another backend or none."""

    def __init__(self) -> None:
        self.modes: list[str] = []
        self.graphs = 0
        self.fails_at: int | None = None  # number of the first graph that fails
        self.refuses = False
        self._compile = torch.compile

    def __call__(self, function: Callable[..., Any], *, mode: str, **options: Any) -> Any:  # noqa: ANN401
        """Replace ``torch.compile``."""
        self.modes.append(mode)
        if self.refuses:
            raise RuntimeError(GATE)
        return self._compile(function, backend=self.backend, **options)

    def backend(self, graph: torch.fx.GraphModule, _inputs: list[torch.Tensor]) -> Any:  # noqa: ANN401
        """Compile a graph as a backend of ``torch.compile``."""
        self.graphs += 1
        if self.fails_at is not None and self.graphs >= self.fails_at:
            raise OSError(NO_COMPILER)
        return graph.forward


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv(CACHE_VARIABLE, "the user's")
    monkeypatch.delenv(MEASURING_VARIABLE, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    clear_compile_cache()
    yield
    set_compile_mode("auto")
    clear_compile_cache()
    clear_inductor_caches()  # later compilations must not include files from a test's folder


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    compiler = Compiler()
    monkeypatch.setattr(torch, "compile", compiler)
    return compiler


def the_report() -> FunctionReport:
    (report,) = compile_report().functions
    return report


# --- decorating ----------------------------------------------------------------------------------


def test_a_function_is_decorated_with_and_without_arguments(compiler: Compiler) -> None:
    @get_compiled
    def twice(x: torch.Tensor, *, plus: float = 0.0) -> torch.Tensor:
        """Double it."""
        return 2.0 * x + plus

    @get_compiled(dynamic=True, fullgraph=True)
    def thrice(x: torch.Tensor, plus: float = 0.0, *others: float) -> torch.Tensor:
        return 3.0 * x + plus + sum(others)

    x = torch.arange(3.0)
    assert torch.equal(twice(x, plus=1.0), 2.0 * x + 1.0)
    assert torch.equal(thrice(x, 1.0, 2.0), 3.0 * x + 3.0)
    sin: Callable[[torch.Tensor], torch.Tensor] = torch.sin
    assert torch.equal(get_compiled(sin, fullgraph=True)(x), x.sin())
    assert compiler.modes == ["default"] * 3
    assert compiler.graphs == 3
    assert (twice.__name__, twice.__doc__) == ("twice", "Double it.")
    assert list(inspect.signature(thrice).parameters) == ["x", "plus", "others"]


def test_methods_and_callable_objects_are_decorated_too(compiler: Compiler) -> None:
    class Scale:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @get_compiled(fullgraph=True)
        def apply(self, x: torch.Tensor) -> torch.Tensor:
            return self.factor * x

        def plain(self, x: torch.Tensor) -> torch.Tensor:
            return self.factor * x

    x = torch.arange(3.0)
    linear: Callable[[torch.Tensor], torch.Tensor] = torch.nn.Linear(3, 2)
    assert torch.equal(Scale(2.0).apply(x), 2.0 * x)
    assert torch.equal(get_compiled(Scale(3.0).plain)(x), 3.0 * x)
    assert torch.equal(get_compiled(functools.partial(torch.mul, x))(x), x * x)
    assert torch.equal(get_compiled(linear, fullgraph=True)(x), linear(x))
    assert compiler.graphs == 4


if TYPE_CHECKING:

    @get_compiled
    def bare(n: int, *, key: str = "") -> bytes: ...

    @get_compiled(dynamic=True)
    def with_arguments(n: int, *, key: str = "") -> bytes: ...

    assert_type(bare(1, key="a"), bytes)
    assert_type(with_arguments(1), bytes)
    bare("1")  # type: ignore[arg-type]
    with_arguments(1, kee="a")  # type: ignore[call-arg]
    get_compiled(mode="fast")  # type: ignore[call-overload]


def test_nothing_is_compiled_before_the_first_call(compiler: Compiler) -> None:
    function = get_compiled(who_runs)
    assert compiler.modes == []
    assert compile_report().functions == ()
    assert is_compiled(function)
    assert is_compiled(function)
    assert compiler.modes == ["default"]


def test_the_callers_own_compile_includes_a_decorated_function() -> None:
    function = get_compiled(lambda x: x.sin() + 1.0)
    x = torch.arange(3.0)

    def outer(x: torch.Tensor) -> torch.Tensor:
        return 2.0 * function(x)

    whole = torch.compile(outer, backend="eager", fullgraph=True)
    assert torch.equal(whole(x), 2.0 * (x.sin() + 1.0))
    assert compile_report().functions == ()


def test_gradients_pass_through_compiled_functions(compiler: Compiler) -> None:
    x = torch.arange(3.0, requires_grad=True)
    get_compiled(lambda x: x * x, fullgraph=True)(x).sum().backward()
    assert torch.equal(x.grad, 2.0 * x.detach())
    assert compiler.graphs == 1


def test_each_closure_of_a_factory_has_its_own_recompile_limit(compiler: Compiler) -> None:
    def scaled(factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
        return get_compiled(lambda x: factor * x, fullgraph=True)

    x = torch.arange(3.0)
    for n in range(12):  # Dynamo's limit is 8, and a failure would be a warning here
        assert torch.equal(scaled(float(n))(x), n * x)
    assert compiler.graphs == 12


# --- modes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capability", "mode", "in_a_thread"),
    [
        (None, "default", "default"),
        ((7, 5), "default", "default"),
        ((8, 0), "reduce-overhead", "default"),
        ((8, 9), "reduce-overhead", "default"),
        ((9, 0), "max-autotune", "max-autotune-no-cudagraphs"),
        ((12, 0), "max-autotune", "max-autotune-no-cudagraphs"),
    ],
)
def test_the_mode_follows_from_the_device(
    capability: tuple[int, int] | None,
    mode: str,
    in_a_thread: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "compute_capability", lambda _device: capability)
    monkeypatch.setattr(module, "get_device", lambda: torch.device("cuda", 0))
    assert get_compile_mode() == get_compile_mode("cuda:1") == mode
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(get_compile_mode).result() == in_a_thread


def test_the_cpu_compiles_by_default() -> None:
    assert get_compile_mode("cpu") == "default"


def test_the_mode_of_a_call_follows_the_device_of_its_tensors(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_has_gpu", lambda: True)
    monkeypatch.setattr(module, "get_device", lambda: torch.device("cuda", 0))
    monkeypatch.setattr(
        module, "compute_capability", lambda device: (9, 0) if device.type == "meta" else None
    )
    function = get_compiled(lambda a, b: a if b is None else b)
    function(torch.ones(2), torch.ones((), device="meta"))
    assert compiler.modes == ["max-autotune"]
    function(torch.ones(2), b=torch.ones(3))
    assert compiler.modes == ["max-autotune", "default"]
    function(torch.ones(()), b=torch.ones(3, device="meta"))
    assert compiler.modes == ["max-autotune", "default"]


def test_a_mode_takes_effect_on_functions_already_decorated(compiler: Compiler) -> None:
    function = get_compiled(who_runs)
    assert is_compiled(function)
    set_compile_mode(None)
    assert get_compile_mode() is None
    assert not is_compiled(function)
    assert not is_compiled(get_compiled(who_runs))
    set_compile_mode("max-autotune-no-cudagraphs")
    assert get_compile_mode() == "max-autotune-no-cudagraphs"
    assert is_compiled(function)
    set_compile_mode("auto")
    assert is_compiled(function)  # what was compiled before is still there
    assert compiler.modes == ["default", "max-autotune-no-cudagraphs"]


def test_the_innermost_block_sets_the_mode_until_it_ends(compiler: Compiler) -> None:
    function = get_compiled(who_runs)
    set_compile_mode("reduce-overhead")
    with compile_mode(None):
        assert not is_compiled(function)
        with compile_mode("max-autotune"):
            assert is_compiled(function)
            set_compile_mode("default")
            assert get_compile_mode() == "max-autotune"
        assert get_compile_mode() is None
        with pytest.raises(ZeroDivisionError), compile_mode("max-autotune"):
            raise ZeroDivisionError
        assert not is_compiled(function)
    assert get_compile_mode() == "default"
    assert compiler.modes == ["max-autotune"]


def test_a_block_applies_to_its_thread_and_set_mode_to_all() -> None:
    with ThreadPoolExecutor(1) as pool, compile_mode("max-autotune"):
        assert pool.submit(get_compile_mode).result() == "default"
        set_compile_mode("reduce-overhead")
        assert pool.submit(get_compile_mode).result() == "reduce-overhead"


def test_a_functions_own_mode_applies_unless_all_is_eager(compiler: Compiler) -> None:
    function = get_compiled(who_runs, mode="max-autotune")
    for mode in ("auto", "default", "reduce-overhead"):
        with compile_mode(mode):
            assert is_compiled(function)
    with compile_mode(None):
        assert not is_compiled(function)
    assert compiler.modes == ["max-autotune"]


def test_an_unknown_mode_is_refused_by_name() -> None:
    for refuse in (set_compile_mode, lambda m: compile_mode(m).__enter__()):
        with pytest.raises(ValueError, match=r"default, .*auto, or None for eager, got 'fast'"):
            refuse("fast")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"one of default, .*, got 'auto'"):
        get_compiled(mode="auto")  # type: ignore[call-overload]


def test_outputs_of_cuda_graphs_are_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    class OnGpu(torch.Tensor):  # type: ignore[misc]
        is_cuda = True

    gpu, cpu = torch.ones(2).as_subclass(OnGpu), torch.ones(2)
    copying = module._copying_outputs(lambda *outputs: {"tensors": outputs, "n": 1})
    outputs = copying(gpu, cpu)
    assert outputs["n"] == 1
    assert torch.equal(outputs["tensors"][0], gpu)
    assert outputs["tensors"][0].data_ptr() != gpu.data_ptr()
    assert outputs["tensors"][1] is cpu

    monkeypatch.setattr(module, "_has_gpu", lambda: True)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    for mode in module.MODES:
        with compile_mode(mode):
            has_copied = get_compiled(lambda x: x)(gpu) is not gpu
        assert has_copied == (mode in {"reduce-overhead", "max-autotune"})


# --- falling back --------------------------------------------------------------------------------


def test_a_failing_call_runs_eagerly_and_warns_once(
    compiler: Compiler, caplog: pytest.LogCaptureFixture
) -> None:
    compiler.fails_at = 1
    function = get_compiled(who_runs)
    with pytest.warns(CompileFallbackWarning) as warned:
        assert not is_compiled(function)
    assert not is_compiled(function)  # warnings are errors here
    assert compiler.graphs == 1
    (warning,) = warned
    assert re.search(r"who_runs \(mode default\) runs eagerly .*no such compiler", str(warning))
    assert Path(warning.filename) == Path(__file__)
    (record,) = [r for r in caplog.records if r.name == "ivhl.compile"]
    assert record.levelno == logging.WARNING
    assert record.getMessage() == str(warning.message)
    report = the_report()
    assert report.fell_back
    assert NO_COMPILER in report.cause
    assert "runs eagerly: BackendCompilerFailed" in str(compile_report())


def test_an_assertion_of_dynamo_is_a_failure_to_compile(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = torch._dynamo.output_graph.OutputGraph
    made: dict[str, Any] = {"__name__": place.__module__}
    exec("def fail(*_, **__): assert False, 'has no mutation_type'", made)  # noqa: S102
    # Dynamo raises assertions as they are.
    monkeypatch.setattr(place, "__init__", made["fail"])
    with pytest.warns(CompileFallbackWarning, match="has no mutation_type"):
        assert not is_compiled(get_compiled(who_runs))
    assert compiler.graphs == 0


def test_after_a_failure_another_mode_is_tried(compiler: Compiler) -> None:
    compiler.fails_at = 1
    function = get_compiled(who_runs)
    with pytest.warns(CompileFallbackWarning):
        function(torch.zeros(2))
    compiler.fails_at = None
    with compile_mode("max-autotune"):
        assert is_compiled(function)
    assert not is_compiled(function)
    assert [f.fell_back for f in compile_report().functions] == [True, False]


def test_a_failure_after_successes_also_falls_back(compiler: Compiler) -> None:
    function = get_compiled(who_runs, fullgraph=True, dynamic=False)
    assert is_compiled(function)
    compiler.fails_at = 2
    with pytest.warns(CompileFallbackWarning):
        assert not function(torch.zeros(3)).any()


@pytest.mark.parametrize("own_choice", [True, False])
def test_axes_of_equal_length_are_not_assumed_equal(
    compiler: Compiler, *, own_choice: bool
) -> None:
    function = get_compiled(lambda x, y: x.sum() + y.sum(), dynamic=True)
    with shapes.patch(use_duck_shape=own_choice):
        for size in ((8, 8), (9, 8), (8, 10)):
            assert function(torch.ones(size), torch.ones(8)) == math.prod(size) + 8
        assert shapes.use_duck_shape is own_choice
    assert compiler.graphs == 1
    assert the_report().recompiles == {}


def test_the_callers_own_compile_keeps_its_handling_of_shapes(compiler: Compiler) -> None:
    get_compiled(lambda x: x * 2, dynamic=True)(torch.ones(3))
    other = compiler(lambda x: x.sum(), mode="default", dynamic=True)
    compiler.graphs = 0
    for size in ((8, 8), (9, 8)):
        other(torch.ones(size))
    assert compiler.graphs == 2


def test_reaching_the_recompile_limit_is_a_failure(compiler: Compiler) -> None:
    function = get_compiled(lambda x, n: x * n, fullgraph=True, dynamic=False)
    x = torch.ones(2)
    for n in range(8):
        assert torch.equal(function(x, n), n * x)
    with pytest.warns(CompileFallbackWarning, match="limit"):
        assert torch.equal(function(x, 8), 8 * x)
    assert torch.equal(function(x, 9), 9 * x)
    assert compiler.graphs == 8
    assert sum(the_report().recompiles.values()) == 8  # the last one was refused


def test_with_fallback_disabled_the_failure_is_raised(compiler: Compiler) -> None:
    compiler.fails_at = 1
    function = get_compiled(who_runs, fallback_on_error=False)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=NO_COMPILER):
            function(torch.zeros(2))
    assert not the_report().fell_back


def test_measuring_disables_the_fallback(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler.fails_at = 1
    before, function = get_compiled(who_runs), get_compiled(who_runs)
    with pytest.warns(CompileFallbackWarning):
        before(torch.zeros(2))
    with measuring(), ThreadPoolExecutor(1) as pool:
        for failing in (before, function):
            with pytest.raises(RuntimeError, match=NO_COMPILER):
                failing(torch.zeros(2))
            with pytest.raises(RuntimeError, match=NO_COMPILER):
                pool.submit(failing, torch.zeros(2)).result()
        with compile_mode(None):
            assert not is_compiled(function)  # eager was requested
    assert not is_compiled(before)
    monkeypatch.setenv(MEASURING_VARIABLE, "1")
    with pytest.raises(RuntimeError, match=NO_COMPILER):
        before(torch.zeros(2))
    monkeypatch.setenv(MEASURING_VARIABLE, "0")
    with pytest.warns(CompileFallbackWarning):
        assert not is_compiled(function)


def checked(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if x.ndim != 1:
        raise ValueError(f"x must have one axis, got {x.ndim}")
    return x @ y


@pytest.mark.parametrize("fullgraph", [True, False])
def test_an_error_of_the_caller_is_raised_unchanged(fullgraph: bool, compiler: Compiler) -> None:  # noqa: FBT001
    function = get_compiled(checked, fullgraph=fullgraph)
    for _ in range(2):
        with pytest.raises(ValueError, match="x must have one axis, got 2") as raised:
            function(torch.ones(2, 2), torch.ones(2))
        assert raised.value.__context__ is None
        with pytest.raises(RuntimeError, match="size"):
            function(torch.ones(2), torch.ones(3))
    assert torch.equal(function(torch.ones(2), torch.ones(2)), torch.tensor(2.0))
    assert not the_report().fell_back
    if fullgraph:  # otherwise Dynamo itself may give up a function after such a mistake
        assert compiler.graphs == 1


def test_out_of_memory_does_not_fall_back(compiler: Compiler) -> None:
    def huge(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.sin(), torch.empty(1 << 55, dtype=torch.uint8)

    with pytest.raises(RuntimeError, match="memory"):
        get_compiled(huge)(torch.ones(2))
    assert not the_report().fell_back
    assert compiler.modes == ["default"]


def test_a_call_that_has_begun_is_not_repeated_eagerly(compiler: Compiler) -> None:
    def add_and_square(x: torch.Tensor) -> torch.Tensor:
        x.add_(1.0)
        torch._dynamo.graph_break()
        return x * x

    compiler.fails_at = 2
    function = get_compiled(add_and_square)
    x = torch.zeros(2)
    with (
        pytest.warns(CompileFallbackWarning),
        pytest.raises(RuntimeError, match=NO_COMPILER) as raised,
    ):
        function(x)
    assert "had run in part" in raised.value.__notes__[0]
    assert torch.equal(x, torch.ones(2))
    assert torch.equal(function(x), torch.full((2,), 4.0))
    assert the_report().fell_back


def test_with_a_support_gate_all_runs_eagerly_with_one_warning(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler.refuses = True
    first, second = get_compiled(who_runs), get_compiled(who_runs, mode="max-autotune")
    third = get_compiled(who_runs, fallback_on_error=False)
    with pytest.warns(
        CompileFallbackWarning, match=r"^everything runs eagerly.*3\.13\+"
    ) as warned:
        assert not is_compiled(first)
    assert len(warned) == 1
    assert not is_compiled(second)
    assert compiler.modes == ["default"]
    assert all(GATE in f.cause for f in compile_report().functions)
    with pytest.raises(RuntimeError, match="not supported on Python"):
        third(torch.zeros(2))
    with measuring(), pytest.raises(RuntimeError, match="not supported on Python"):
        first(torch.zeros(2))
    monkeypatch.setattr(compiler, "refuses", False)
    clear_compile_cache()
    assert is_compiled(first)


def test_compile_and_measure_know_the_same_support_gates() -> None:
    assert module.SUPPORT_GATE.pattern == SUPPORT_GATE.pattern


def test_inductor_without_a_compiler_falls_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import torch._inductor.config as settings  # noqa: PLC0415

    function = get_compiled(lambda x: x.sin() + 1.0, fullgraph=True)
    x = torch.arange(5.0)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    with (
        settings.patch({"cpp.cxx": (NO_COMPILER,)}),
        pytest.warns(CompileFallbackWarning, match="InvalidCxxCompiler"),
    ):
        assert torch.equal(function(x), x.sin() + 1.0)


# --- report --------------------------------------------------------------------------------------


def test_the_report_counts_frames_breaks_recompiles_and_seconds(compiler: Compiler) -> None:
    @get_compiled(dynamic=False)
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    whole = get_compiled(lambda x: x.sin(), fullgraph=True, dynamic=False)
    for n in (2, 3, 2, 3, 3):
        broken(torch.ones(n))
        whole(torch.ones(n + 1))
    whole(torch.ones(2, dtype=torch.float64))
    one, other = compile_report().functions
    assert one.name.endswith("broken")
    assert (one.mode, one.fell_back, one.cause) == ("default", False, "")
    assert (one.frames, other.frames) == (4, 3)
    assert list(one.graph_breaks.values()) == [2]
    assert "graph_break" in next(iter(one.graph_breaks))
    assert other.graph_breaks == {}
    assert sum(one.recompiles.values()) == 2
    assert sum(other.recompiles.values()) == 2
    assert any("size mismatch at index 0. expected 2, actual 3" in text for text in one.recompiles)
    assert any("dtype mismatch" in text for text in other.recompiles)
    assert one.seconds > 0.0
    assert other.seconds > 0.0
    assert compiler.graphs == 7
    table = str(compile_report())
    assert re.search(r"^ +4 +2 +2 +\d+\.\d\d  .*broken \(default\)$", table, re.MULTILINE)
    assert re.search(r"1x recompiled: .*dtype mismatch", table)


def test_dynamic_shapes_are_compiled_once(compiler: Compiler) -> None:
    function = get_compiled(lambda x: x.sin(), fullgraph=True, dynamic=True)
    for n in range(2, 9):
        function(torch.ones(n))
    assert (the_report().frames, the_report().recompiles) == (1, {})
    assert compiler.graphs == 1


def test_the_report_continues_after_a_reset_of_dynamo(compiler: Compiler) -> None:
    function = get_compiled(who_runs)
    assert is_compiled(function)
    torch._dynamo.reset()
    assert is_compiled(function)
    assert (the_report().frames, compiler.graphs) == (2, 2)


def test_code_compiled_by_others_is_not_in_the_report(compiler: Compiler) -> None:
    function = get_compiled(who_runs)
    function(torch.zeros(2))
    theirs = torch._dynamo.optimize("eager", dynamic=False)(lambda x: x.cos())
    for n in range(2, 5):
        theirs(torch.ones(n))
    assert (the_report().frames, the_report().recompiles) == (1, {})
    assert compiler.graphs == 1


def test_a_deleted_function_is_not_in_the_report(compiler: Compiler) -> None:
    function = get_compiled(who_runs)
    assert is_compiled(function)
    del function
    torch._dynamo.reset()
    gc.collect()
    assert compile_report().functions == ()
    assert compiler.graphs == 1


def test_inputs_of_a_failed_call_are_not_kept(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.logger, "disabled", True)  # pytest keeps log records
    compiler.fails_at = 1
    function = get_compiled(who_runs)
    x = torch.zeros(2)
    kept = weakref.ref(x)
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(x)
        del x
        torch._dynamo.reset()
        assert kept() is None
    finally:
        gc.enable()


def test_clearing_the_cache_compiles_again_and_forgets_fallbacks(compiler: Compiler) -> None:
    function, failing = get_compiled(who_runs), get_compiled(who_runs)
    assert is_compiled(function)
    compiler.fails_at = 1
    with pytest.warns(CompileFallbackWarning):
        failing(torch.zeros(2))
    compiler.fails_at = None
    clear_compile_cache()
    assert compile_report().functions == ()
    assert is_compiled(function)
    assert is_compiled(failing)
    assert compiler.modes == ["default"] * 4


# --- threads -------------------------------------------------------------------------------------


def test_threads_share_functions_and_modes(compiler: Compiler) -> None:
    def scaled(factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
        return get_compiled(lambda x: factor * x, fullgraph=True, dynamic=True)

    functions = [scaled(float(n)) for n in range(3)]
    modes: tuple[Mode | Literal["auto"] | None, ...] = ("default", None, "max-autotune", "auto")
    together = threading.Barrier(8)

    def work(thread: int) -> None:
        together.wait()
        for i in range(40):
            n = (thread + i) % len(functions)
            with compile_mode(modes[(thread + i // 3) % len(modes)]):
                x = torch.arange(2.0 + i % 5)
                assert torch.equal(functions[n](x), n * x)
            compile_report()

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work, thread) for thread in range(8)]:
            done.result()
    assert sorted(compiler.modes) == ["default"] * 3 + ["max-autotune"] * 3
    assert sum(f.frames for f in compile_report().functions) == compiler.graphs


def test_threads_that_fail_together_warn_once(compiler: Compiler) -> None:
    compiler.fails_at = 1
    function = get_compiled(who_runs)
    together = threading.Barrier(4)

    def work() -> bool:
        together.wait()
        return is_compiled(function)

    with pytest.warns(CompileFallbackWarning) as warned, ThreadPoolExecutor(4) as pool:
        assert not any(f.result() for f in [pool.submit(work) for _ in range(4)])
    assert len(warned) == 1


# --- caches --------------------------------------------------------------------------------------


def test_a_cache_folder_set_by_the_user_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, "/somewhere")
    module.choose_cache_folder()
    assert os.environ[CACHE_VARIABLE] == "/somewhere"


def test_changing_the_cache_folder_clears_inductors_caches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cleared = []
    monkeypatch.setattr("torch._inductor.utils.clear_inductor_caches", lambda: cleared.append(1))
    monkeypatch.delenv(CACHE_VARIABLE)
    module.choose_cache_folder()
    assert len(cleared) == 1
    module.choose_cache_folder()
    assert len(cleared) == 1


@pytest.mark.parametrize("inherited", ["", "pytorch's", "ours"])
def test_the_cache_folder_depends_on_environment_and_threads(
    inherited: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from torch._inductor.runtime.runtime_utils import default_cache_dir  # noqa: PLC0415

    default = Path(default_cache_dir())
    assert default.is_relative_to(tmp_path)
    if inherited:
        folder = default if inherited == "pytorch's" else default / "ivhl" / "old" / "threads7"
        monkeypatch.setenv(CACHE_VARIABLE, str(folder))
    else:
        monkeypatch.delenv(CACHE_VARIABLE)
    folders = set()
    for threads in (1, 2):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        module.choose_cache_folder()
        folder = Path(os.environ[CACHE_VARIABLE])
        assert folder.parent.parent == default / "ivhl"
        assert torch.__version__ in folder.parent.name
        assert folder.name == f"threads{threads}"
        folders.add(folder)
    assert len(folders) == 2


@pytest.mark.full
def test_kernels_for_another_number_of_threads_are_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(CACHE_VARIABLE)
    function = get_compiled(lambda x: (x.sin() + 1.0) * x, fullgraph=True)
    x = torch.linspace(0.0, 1.0, 1 << 17)  # enough for a parallel loop
    threads = torch.get_num_threads()
    try:
        for n in (2, 1, 2):
            torch.set_num_threads(n)
            torch.testing.assert_close(function(x), (x.sin() + 1.0) * x)
    finally:
        torch.set_num_threads(threads)

    def is_parallel(folder: str) -> bool:
        sources = [
            path.read_text(encoding="utf-8", errors="replace")
            for path in tmp_path.rglob("*.cpp")
            if folder in path.parts
        ]
        assert sources
        return any("#pragma omp parallel" in text for text in sources)

    assert is_parallel("threads2")
    assert not is_parallel("threads1")
    assert the_report().frames == 2
    assert not the_report().fell_back
    assert any("GLOBAL_STATE" in text for text in the_report().recompiles)

    clear_compile_cache(disk=True)
    assert not list(tmp_path.rglob("threads*"))
    torch.testing.assert_close(function(x), (x.sin() + 1.0) * x)
    assert not the_report().fell_back


# Of a program that uses ``ivhl.compile`` and compiles a training step of its own.
TRAINING = """
import torch
from ivhl.compile import get_compiled

get_compiled(lambda x: 2.0 * x)(torch.ones(3))
w = torch.ones(4, 4, requires_grad=True)

def step(x):
    loss = (x @ w).relu().sum()
    loss.backward()
    return loss

print(float(torch.compile(step, backend="aot_eager")(torch.ones(2, 4))))
"""


@pytest.mark.full
def test_a_training_step_compiled_beside_ours_ends(tmp_path: Path) -> None:
    # Its backward pass is compiled within it, where Dynamo would compile our callbacks, too: it
    # waited for its own lock. In a process of its own, since nothing else ends that.
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TRAINING],
        env=os.environ | {CACHE_VARIABLE: str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "32.0"
