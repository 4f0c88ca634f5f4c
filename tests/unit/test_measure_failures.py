"""A failure must get the class that tells a person what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ivhl.measure.failures import classify, message_of, place_of, qualified_name

if TYPE_CHECKING:
    from ivhl.records import FailureClass, Phase

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
def test_other_texts_are_no_support_gate(text: str) -> None:
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
def test_exceptions_of_torch_are_known_by_name(name: str, expected: FailureClass) -> None:
    kind = type(name, (RuntimeError,), {})
    assert classify(kind("boom"), "compile") == expected


def test_a_subclass_has_the_class_of_its_parent() -> None:
    parent = type("InductorError", (RuntimeError,), {})
    child = type("NewerInductorError", (parent,), {})
    assert classify(child("boom"), "compile") == "backend_compile"


@pytest.mark.parametrize("phase", ["eager", "compile", "timing"])
@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("\"addmm_impl_cpu_\" not implemented for 'Half'"),
        NotImplementedError("\"sin_cpu\" not implemented for 'BFloat16'"),
        type("UnsupportedHereError", (Exception,), {})("this release has no such engine"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_what_a_release_lacks_is_unsupported_wherever_it_shows(
    error: Exception, phase: Phase
) -> None:
    assert classify(error, phase) == "unsupported"


def test_a_missing_kernel_for_another_type_is_a_mistake_of_the_code() -> None:
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


def test_the_cause_counts_when_the_outer_exception_says_little() -> None:
    outer, inner = ValueError(""), RuntimeError(GATES[1])
    outer.__cause__ = inner
    assert classify(outer, "compile") == "support_gate"
    assert message_of(outer) == GATES[1]


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 99 bytes"),
        RuntimeError("CUDA error: out of memory"),
    ],
)
def test_missing_memory_is_itself_in_every_phase(error: BaseException) -> None:
    assert classify(error, "eager") == "out_of_memory"


def test_a_circle_of_causes_ends() -> None:
    a, b = ValueError("a"), ValueError("b")
    a.__cause__, b.__cause__ = b, a
    assert classify(a, "eager") == "eager_failed"


def test_names_and_places_are_those_of_the_users_code() -> None:
    with pytest.raises(KeyError) as caught:
        dict[str, int]()["missing"]
    assert qualified_name(caught.value) == "KeyError"
    assert place_of(caught.value).startswith("unit/test_measure_failures.py:")


def test_a_long_message_is_cut() -> None:
    assert len(message_of(ValueError("x" * 10_000))) == 2000
