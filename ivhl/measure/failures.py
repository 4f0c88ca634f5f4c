"""From an exception to a failure class.

Works on names and texts, not on types: the exception types of Dynamo and Inductor moved between
releases, and the parent process has no torch.
"""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ivhl.records import FailureClass, Phase

# Every wording of the gate from PyTorch 2.0 to 2.15; two can occur in one release.
SUPPORT_GATE = re.compile(
    r"(?:Dynamo|torch\.compile) is not supported on Python"
    r"|Python 3\.\d+\+? not yet supported for torch\.compile"
    r"|not supported on Python built with GIL disabled"
)
OUT_OF_MEMORY = re.compile(
    r"not enough memory: you tried to allocate|out of memory|can't allocate memory"
)
# What ATen says of an operation that it lacks in a precision, e.g. "addmm" on a CPU before 2.2.
MISSING_KERNEL = re.compile(r"not (?:yet )?implemented for '(?:Half|BFloat16)'")
# Exception type names, without module, of all releases from 2.2.2 to 2.15.0.
BY_TYPE: dict[str, FailureClass] = {
    "RecompileLimitExceeded": "recompile_limit",
    "CacheLimitExceeded": "recompile_limit",
    "FailOnRecompileLimitHit": "recompile_limit",
    "FailOnCacheLimitHit": "recompile_limit",
    "Unsupported": "graph_break",
    "BackendCompilerFailed": "backend_compile",
    "InductorError": "backend_compile",
    "LoweringException": "backend_compile",
    "CppCompileError": "backend_compile",
    "CUDACompileError": "backend_compile",
    "InvalidCxxCompiler": "backend_compile",
    "TritonMissing": "backend_compile",
    "OutOfMemoryError": "out_of_memory",
    "MemoryError": "out_of_memory",
}
# Of ``ivhl.measure.engine``, which imports torch.
UNSUPPORTED = "UnsupportedHereError"
# A phase in which nothing of the compiler has run yet blames its own part.
BY_PHASE: dict[Phase, FailureClass] = {
    "environment": "environment",
    "build": "build",
    "import": "import",
    "inputs": "inputs",
    "reference": "reference",
    "eager": "eager_failed",
}


class CaseError(Exception):
    """A finding that ends the case, with its class already known."""

    def __init__(self, failure_class: FailureClass, message: str) -> None:
        super().__init__(message)
        self.failure_class = failure_class


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and everything it was raised from, outermost first."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def classify(error: BaseException, phase: Phase) -> FailureClass:
    """Return the class of an exception raised in a phase.

    A support gate, a precision or engine that the release lacks, and missing memory are what they
    are in every phase; for the rest, only the phases in which compiled code runs can blame the
    compiler.
    """
    errors = list(chain(error))
    names = [kind.__name__ for e in errors for kind in type(e).__mro__]
    texts = "\n".join(str(e) for e in errors)
    if SUPPORT_GATE.search(texts):
        return "support_gate"
    if UNSUPPORTED in names or MISSING_KERNEL.search(texts):
        return "unsupported"
    if OUT_OF_MEMORY.search(texts) or {"OutOfMemoryError", "MemoryError"} & set(names):
        return "out_of_memory"
    if phase in BY_PHASE:
        return BY_PHASE[phase]
    for name in names:
        if name in BY_TYPE:
            return BY_TYPE[name]
    return "compile"


def qualified_name(error: BaseException) -> str:
    """Return the type as ``module.Name``; built-in exceptions without a module."""
    kind = type(error)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )


def message_of(error: BaseException, limit: int = 2000) -> str:
    """Return the outermost message that is not empty, cut to ``limit`` characters."""
    return next((text for e in chain(error) if (text := str(e).strip())), "")[:limit]


def place_of(error: BaseException) -> str:
    """Return ``file:line`` of the innermost frame outside torch and the harness, or ``""``.

    Only the last two parts of the path: where a project lies on a machine is nobody's business.
    """
    frames = [f for e in chain(error) for f in traceback.extract_tb(e.__traceback__)]
    for frame in reversed(frames):
        parts = Path(frame.filename).parts
        if "torch" not in parts and "measure" not in parts and frame.lineno:
            return f"{'/'.join(parts[-2:])}:{frame.lineno}"
    return ""
