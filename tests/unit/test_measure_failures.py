"""Every failure gets its class."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ivhl.errors import SpecError
from ivhl.measure.failures import (
    MISSING,
    CaseError,
    classify,
    frame_of,
    headline,
    lacks,
    message_of,
    own_place_of,
    place_of,
    qualified_name,
)
from ivhl.measure.rehearsal import _print_found, print_traceback
from ivhl.workload import resolve

if TYPE_CHECKING:
    from ivhl.records.record import FailureClass, Phase

# Collected from PyTorch 2.0.1 to 2.15; the sources are named in docs/measuring.md.
GATES = [
    "Dynamo is not supported on Python 3.12+",
    "Dynamo is not supported on Python 3.13+",
    "Dynamo is not supported on Python 3.14+",
    "torch.compile is not supported on Python 3.14+",
    "Python 3.11+ not yet supported for torch.compile",
    "Python 3.14+ not yet supported for torch.compile",
    "torch.compile is not supported on Python built with GIL disabled",
]


@pytest.mark.parametrize("text", GATES)
def test_every_wording_of_the_support_gate_is_known(text: str) -> None:
    assert classify(RuntimeError(text), "compile") == "support_gate"


@pytest.mark.parametrize(
    "text", ["Python 3.13 is great", "operator is not supported", "not supported on CUDA 13+"]
)
def test_other_messages_are_no_support_gate(text: str) -> None:
    assert classify(RuntimeError(text), "compile") == "compile"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Unsupported", "graph_break"),
        ("BackendCompilerFailed", "backend_compile"),
        ("InductorError", "backend_compile"),
        ("CppCompileError", "backend_compile"),
        ("CacheLimitExceeded", "recompile_limit"),
        ("RecompileLimitExceeded", "recompile_limit"),
        ("OutOfMemoryError", "out_of_memory"),
        ("SomethingNew", "compile"),
    ],
)
def test_exceptions_of_torch_are_classified_by_name(name: str, expected: FailureClass) -> None:
    kind = type(name, (RuntimeError,), {})
    assert classify(kind("boom"), "compile") == expected


def test_a_subclass_has_the_class_of_its_parent() -> None:
    parent = type("InductorError", (RuntimeError,), {})
    child = type("NewerInductorError", (parent,), {})
    assert classify(child("boom"), "compile") == "backend_compile"


@pytest.mark.parametrize("phase", ["eager", "compile", "timing"])
@pytest.mark.parametrize(
    "text",
    [
        # OSError of Python; g++ with a full TMPDIR; g++ without Debian's cpp or cc1plus
        "[Errno 28] No space left on device: '/x/y.cpp'",
        "/x/y.cpp:900: fatal error: error writing to /tmp/ccV.s: No space left on device",
        "g++: fatal error: cannot execute 'cc1plus': execvp: No such file or directory",
    ],
)
def test_a_machine_without_room_or_compiler_is_not_at_the_fault_of_pytorch(
    text: str, phase: Phase
) -> None:
    inner = type("CppCompileError", (RuntimeError,), {})(text)
    outer = type("BackendCompilerFailed", (RuntimeError,), {})(f"backend failed:\n{text}")
    outer.__cause__ = inner
    assert classify(outer, phase) == "environment"


def test_no_compiler_is_an_environment_however_it_is_wrapped() -> None:
    outer = type("BackendCompilerFailed", (RuntimeError,), {})("backend='inductor' raised")
    outer.__cause__ = type("InvalidCxxCompiler", (RuntimeError,), {})("No working C++ compiler")
    assert classify(outer, "compile") == "environment"
    assert classify(type("CppCompileError", (RuntimeError,), {})("x:1:1: error"), "compile") == (
        "backend_compile"
    )


@pytest.mark.parametrize("phase", ["eager", "compile", "timing"])
@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("\"addmm_impl_cpu_\" not implemented for 'Half'"),
        NotImplementedError("\"sin_cpu\" not implemented for 'BFloat16'"),
        type("UnsupportedHereError", (Exception,), {})("this release has no such engine"),
        type("InvalidBackend", (RuntimeError,), {})("Invalid backend: 'own'"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_a_missing_feature_is_unsupported_in_every_phase(error: Exception, phase: Phase) -> None:
    assert classify(error, phase) == "unsupported"


def test_a_missing_kernel_for_another_dtype_is_an_error_of_the_code() -> None:
    error = RuntimeError("\"addmm_impl_cpu_\" not implemented for 'Bool'")
    assert classify(error, "eager") == "eager_failed"


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        ("import", "import"),
        ("inputs", "inputs"),
        ("reference", "reference"),
        ("eager", "eager_failed"),
        ("compile", "compile"),
        ("timing", "compile"),
    ],
)
def test_only_phases_with_compiled_code_blame_the_compiler(
    phase: Phase, expected: FailureClass
) -> None:
    assert classify(ValueError("boom"), phase) == expected


def test_a_cause_decides_if_the_outer_exception_is_generic() -> None:
    outer, inner = ValueError(""), RuntimeError(GATES[1])
    outer.__cause__ = inner
    assert classify(outer, "compile") == "support_gate"
    assert message_of(outer) == GATES[1]


def test_an_error_of_cleaning_up_does_not_hide_the_cause() -> None:
    kind = type("BackendCompilerFailed", (RuntimeError,), {"__module__": "torch._dynamo.exc"})
    error = RuntimeError("!dynamicLayerStack.empty() INTERNAL ASSERT FAILED")
    error.__context__ = kind("backend='inductor' raised: stride(-1) must be 1")
    assert classify(error, "compile") == "backend_compile"
    assert qualified_name(error) == "torch._dynamo.exc.BackendCompilerFailed"
    assert message_of(error) == "backend='inductor' raised: stride(-1) must be 1"


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("boom\n\nfrom user code:\n  x", "boom"),
        (
            "backend='inductor' raised:\nLoweringException: x\n  target: y",
            "backend='inductor' raised: LoweringException: x",
        ),
        ("Failed running call_method f(*(3,)):\n \n", "Failed running call_method f(*(3,)):"),
        ("raised:\nRuntimeError:\nx\ny", "raised: RuntimeError: x"),
        ("", ""),
    ],
)
def test_a_line_of_a_message_is_whole(message: str, line: str) -> None:
    assert headline(message) == line


def test_an_error_of_the_harness_says_what_it_says_whatever_it_was_raised_from() -> None:
    kind = type("Unsupported", (RuntimeError,), {})
    error = CaseError("unsupported", "this release lacks the engine")
    error.__cause__ = kind("torch.* op returned non-Tensor")
    assert message_of(error) == "this release lacks the engine"


def test_a_package_that_no_cell_holds_is_named_with_the_next_step(asking: Path) -> None:
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module("numpie.linalg")
    assert message_of(caught.value) == f"No module named 'numpie'; {MISSING}"
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module("project_lacking.absent")  # the project is there
    assert message_of(caught.value) == "No module named 'project_lacking.absent'"
    assert asking.is_dir()


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 99 bytes"),
        RuntimeError("CUDA error: out of memory"),
    ],
)
def test_out_of_memory_has_its_class_in_every_phase(error: BaseException) -> None:
    assert classify(error, "eager") == "out_of_memory"


def test_a_cycle_of_causes_ends() -> None:
    a, b = ValueError("a"), ValueError("b")
    a.__cause__, b.__cause__ = b, a
    assert classify(a, "eager") == "eager_failed"


def test_names_and_places_are_those_of_the_users_code() -> None:
    with pytest.raises(KeyError) as caught:
        dict[str, int]()["missing"]
    assert qualified_name(caught.value) == "KeyError"
    assert place_of(caught.value).startswith("unit/test_measure_failures.py:")


def test_the_standard_library_is_no_place_in_the_users_code() -> None:
    with pytest.raises(FileNotFoundError) as caught:
        Path("nowhere", "weights.pt").read_bytes()
    assert place_of(caught.value).startswith("unit/test_measure_failures.py:")


def test_a_traceback_leaves_out_the_frames_of_the_harness(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ModuleNotFoundError) as caught:
        resolve("numpie:array")
    print_traceback(caught.value)
    told = capsys.readouterr().out
    assert "test_measure_failures.py" in told
    assert "workload.py" not in told
    assert "importlib" not in told
    with pytest.raises(SpecError) as refused:
        resolve("no form")
    refused.value.__traceback__ = refused.tb.tb_next  # all of its frames are ours
    print_traceback(refused.value)
    assert "workload.py" in capsys.readouterr().out


def test_a_trial_counts_the_outputs_that_are_exact(capsys: pytest.CaptureFixture[str]) -> None:
    error = {"limit_rmse": 1e-5, "eager_rmse": 0.0}
    found = {arm: {"samples_s": [2.0, 2.0]} for arm in ("eager", "compiled")}
    found["accuracy"] = [  # type: ignore[assignment]
        {"output": "output", "compiled_rmse": 1e-7, **error},
        {"output": "loss", "compiled_rmse": None, **error},
        *({"output": f"model.{n}", "compiled_rmse": 0.0, **error} for n in range(3)),
    ]
    _print_found(found)
    told = capsys.readouterr().out
    assert "  output: RMSE 1e-07, eager 0, allowed 1e-05\n" in told
    assert "  loss: RMSE " in told
    assert "  3 exact in both\n" in told
    assert "model.0" not in told


def test_a_long_message_is_cut() -> None:
    assert len(message_of(ValueError("x" * 10_000))) == 2000


@pytest.fixture
def asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of benchmarks for a project that may lack names."""
    project = tmp_path / "project_lacking"
    project.mkdir()
    (project / "__init__.py").write_text("")
    (project / "inner.py").write_text("from project_lacking import nothing\n")
    folder = tmp_path / "bench"
    folder.mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    return folder


@pytest.mark.parametrize(
    ("code", "lacking"),
    [
        ("import project_lacking.new", True),
        ("from project_lacking import new", True),
        ("import project_lacking as p; p.new()", True),
        ("from project_lacking.new import f", True),
        ("import project_lacking.inner", False),  # a mistake of the project
        ("import nowhere_at_all", False),
        ("import json; json.new()", False),
        ("''.new()", False),
        ("raise ValueError('new')", False),
    ],
)
def test_a_name_missing_in_the_project_is_distinguished_from_a_mistake(
    asking: Path, code: str, *, lacking: bool
) -> None:
    file = asking / "calls.py"
    file.write_text(code)
    with pytest.raises(Exception) as caught:  # noqa: PT011  (of any kind)
        exec(compile(code, str(file), "exec"), {})  # noqa: S102
    assert lacks(caught.value, lambda top: top == "project_lacking", asking) is lacking


def test_a_name_missing_for_a_declaration_counts_as_lacking(asking: Path) -> None:
    with pytest.raises(SpecError) as caught:
        resolve("project_lacking:new")
    assert lacks(caught.value, lambda top: top == "project_lacking", asking)


def test_the_place_of_a_module_that_is_no_valid_python_is_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_calls.py").write_text("import os\nx = 1 +\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SyntaxError) as caught:
        importlib.import_module("broken_calls")
    assert place_of(caught.value) == f"{tmp_path.name}/broken_calls.py:2"


@pytest.mark.parametrize("folder", ["torch", "measure"])
def test_a_folder_of_the_project_may_be_called_as_ours_or_pytorchs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    (place := tmp_path / folder).mkdir()
    (place / f"calls_in_{folder}.py").write_text("\n\nimport no_such_module_of_anybody\n")
    monkeypatch.syspath_prepend(str(place))
    with pytest.raises(ImportError) as caught:
        importlib.import_module(f"calls_in_{folder}")
    assert place_of(caught.value) == f"{folder}/calls_in_{folder}.py:3"


def test_the_error_of_a_cpp_compiler_is_in_the_first_line_behind_its_warnings() -> None:
    warning = "include/vec512_int.h:1926:7: warning: overflow in conversion changes value\n"
    error = "include/vec_n.h:143:32: error: 'blendv' is not a member of 'Vectorized'\n"
    output = f"Command:\ng++ main.cpp\n\nOutput:\n{warning * 500}{error}{warning}"
    for first in ("CppCompileError: C++ compile error", "backend='inductor' raised:"):
        shown = message_of(RuntimeError(f"{first}\n\n{output}"))
        assert shown.splitlines()[0] == (
            f"{first.rstrip(':')}: 'blendv' is not a member of 'Vectorized'"
        )
        assert len(shown) == 2000
    full = "<built-in>: fatal error: when writing output to h.i: No space left on device"
    assert message_of(RuntimeError(f"C++ compile error\n\n{full}\n")).startswith(
        "C++ compile error: when writing output to h.i: No space left on device\n"
    )
    known = "main.cpp:1:2: error: no\nmain.cpp:3:4: error: other"
    assert message_of(RuntimeError(known)) == known


PLACE = "/venv/lib/python3.12/site-packages/torch/_inductor/lowering.py"
LIBRARY = "/venv/lib/python3.12/site-packages/demo/net.py"


def raised(source: str, file: str = PLACE, **names: object) -> Exception:
    """Return what code raises that stands in a file."""
    try:
        exec(compile(source, file, "exec"), dict(names))  # noqa: S102
    except Exception as error:  # noqa: BLE001
        return error
    raise AssertionError(source)


LOWER = "def unique(x):\n    raise ValueError('no lowering')\n"


@pytest.mark.parametrize(
    ("source", "frame"),
    [
        (LOWER + "unique(1)", "unique"),
        # The frame of what PyTorch's error was raised from, and none of its own after that.
        (
            LOWER + "class InductorError(Exception): pass\n"
            "try: unique(1)\nexcept ValueError as e: raise InductorError('x') from e",
            "unique",
        ),
        (
            LOWER + "class InductorError(Exception): pass\n"
            "try: unique(1)\n"
            "except ValueError as e:\n"
            " raise InductorError('x').with_traceback(e.__traceback__) from None",
            "unique",
        ),
        # What failed before by the way is no cause.
        (LOWER + "try: unique(1)\nexcept ValueError: raise TypeError('y')", "<module>"),
        (LOWER + "e = ValueError('loop')\nraise e from e", "<module>"),
    ],
)
def test_the_innermost_frame_in_torch_is_that_of_the_cause(source: str, frame: str) -> None:
    assert frame_of(raised(source)) == f"torch/_inductor/lowering.py:{frame}"


def test_an_error_outside_of_torch_has_no_frame_in_it() -> None:
    assert frame_of(raised("1 / 0", LIBRARY)) == ""
    # A folder of that name is not PyTorch.
    assert frame_of(raised("1 / 0", "/home/a/torch/x.py")) == ""
    call = raised("f()", LIBRARY, f=lambda: raised_in(PLACE))
    assert frame_of(call) == "torch/_inductor/lowering.py:<module>"


def test_code_that_inductor_wrote_is_no_place_of_a_project() -> None:
    generated = f"/cache/2i/c{'2i4jyyfryeqybkttvxirtqwudtdguxambfjvvexphylvvjzp2jj'}.py"
    assert place_of(raised("1 / 0", generated)).startswith("unit/test_measure_failures.py:")
    assert place_of(raised("1 / 0", "/src/2i/cone.py")) == "2i/cone.py:1"


def raised_in(file: str) -> None:
    exec(compile("1 / 0", file, "exec"), {})  # noqa: S102


def test_the_place_of_code_that_dynamo_could_not_compile_is_in_its_message() -> None:
    text = f"""Unsupported: call of len

from user code:
   File "{LIBRARY}", line 12, in forward
    return self.inner(x)
  File "{LIBRARY}", line 31, in inner
    return len(x)
  File "{PLACE}", line 5, in wrapper

Set TORCHDYNAMO_VERBOSE=1
"""
    error = raised("raise RuntimeError(text)", PLACE, text=text)
    assert own_place_of(error) == "demo/net.py:31"
    plain = raised("1 / 0", LIBRARY)
    assert own_place_of(plain) == place_of(plain) == "demo/net.py:1"
