"""Classify exceptions into failure classes.

Compares names and messages, not types: the exception types of Dynamo and Inductor moved between
releases, and the parent process does not import torch.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import traceback
import warnings
from importlib.machinery import PathFinder
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ivhl import workload
from ivhl.records.record import Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ivhl.records.record import FailureClass, Phase

_STANDARD = sysconfig.get_path("stdlib")
_HARNESS = f"{Path(__file__).parent}{os.sep}"
_INSTALLED = {"site-packages", "dist-packages"}
# Every wording of the gate from PyTorch 2.0 to 2.15; two can occur in one release.
SUPPORT_GATE = re.compile(
    r"(?:Dynamo|torch\.compile) is not supported on Python"
    r"|Python 3\.\d+\+? not yet supported for torch\.compile"
    r"|not supported on Python built with GIL disabled"
)
OUT_OF_MEMORY = re.compile(
    r"not enough memory: you tried to allocate|out of memory|can't allocate memory"
)
# A full disk, in Python's words and in g++'s, and a g++ without its parts: PyTorch is not at fault.
BROKEN_HERE = re.compile(r"No space left on device|Disk quota exceeded|cannot execute .?cc1plus")
# ATen's message for an operation that lacks a precision, e.g. "addmm" on the CPU before 2.2.
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
    "TritonMissing": "backend_compile",
    "OutOfMemoryError": "out_of_memory",
    "MemoryError": "out_of_memory",
}
# ``file:line:column: error: text`` of g++ and clang, or ``program: fatal error: text``.
COMPILER_ERROR = re.compile(r"^\S+: (?:fatal )?error: (?P<text>.+)$", re.MULTILINE)
# What Inductor writes for itself: two letters of a hash, and the hash.
_GENERATED = re.compile(r"[a-z2-7]{2}/c[a-z2-7]{40,}\.py")
# A frame as Python prints it.
_FRAME = re.compile(r'^\s*File "(?P<file>[^"\n]+)", line (?P<line>\d+)', re.MULTILINE)
# How the warning begins that stands for the class ``recompile_limit`` where there is a speedup.
LIMIT_REACHED = "Dynamo reached its recompile limit"
# Of a module that is neither in the commit nor in a package of the cell.
MISSING = (
    "`requires` in envs/matrix.toml names what a cell holds beside torch (then: ivhl matrix lock)"
)
# Phases before any compiled code runs: each has its own class.
BY_PHASE: dict[Phase, FailureClass] = {
    "environment": "environment",
    "build": "build",
    "import": "import",
    "inputs": "inputs",
    "reference": "reference",
    "eager": "eager_failed",
}


class UnsupportedHereError(Exception):
    """This release, or this cell, lacks the engine; matched by its name."""


class CaseError(Exception):
    """An error that ends the case, with its failure class."""

    def __init__(self, failure_class: FailureClass, message: str) -> None:
        super().__init__(message)
        self.failure_class = failure_class


def exit_error(error: SystemExit, phase: Phase) -> CaseError:
    """Return the error of a case whose code called ``sys.exit``, of the class of its phase."""
    who = place_of(error) or "the code under test"
    return CaseError(
        BY_PHASE.get(phase, "crash"),
        f"{who} calls sys.exit({error.code!r}) in phase {phase}: it must return, or raise what is "
        "wrong",
    )


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

    A support gate, a missing precision or engine, and missing memory, disk space or C++ compilers
    have the same class in every phase. Other errors count against the compiler only in the phases
    that run compiled code.
    """
    errors = list(chain(error))
    names = [kind.__name__ for e in errors for kind in type(e).__mro__]
    texts = "\n".join(str(e) for e in errors)
    if SUPPORT_GATE.search(texts):
        return "support_gate"
    if {UnsupportedHereError.__name__, "InvalidBackend"} & {*names} or MISSING_KERNEL.search(
        texts
    ):
        return "unsupported"
    if OUT_OF_MEMORY.search(texts) or {"OutOfMemoryError", "MemoryError"} & set(names):
        return "out_of_memory"
    if "InvalidCxxCompiler" in names or BROKEN_HERE.search(texts):
        return "environment"
    if phase in BY_PHASE:
        return BY_PHASE[phase]
    return next((BY_TYPE[name] for name in names if name in BY_TYPE), "compile")


def lacks(error: BaseException, is_theirs: Callable[[str], bool], benchmarks: Path) -> bool:
    """Return whether a benchmark used a name that this commit of the project lacks.

    A missing name that the project itself uses is an error of the project and does not count.

    Args:
        error: The exception.
        is_theirs: Returns whether a top-level module belongs to the project.
        benchmarks: Folder of the benchmarks.
    """
    return any(
        is_theirs(module.partition(".")[0]) and _is_raised_in(e, benchmarks)
        for e in chain(error)
        if (module := _lacking(e))
    )


def _lacking(error: BaseException) -> str:
    """Return the module that is missing or lacks a name; empty for other errors."""
    if isinstance(error, ImportError):
        return error.name or ""
    if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
        return error.obj.__name__
    return ""


def _is_raised_in(error: BaseException, folder: Path) -> bool:
    """Return whether the innermost frame is in the folder, or in ``ivhl.workload``'s lookup."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    ours = [Path(f) for f in files if "importlib" not in Path(f).parts and not f.startswith("<")]
    return bool(ours) and (ours[-1].is_relative_to(folder) or ours[-1] == Path(workload.__file__))


def telling(error: BaseException) -> BaseException:
    """Return the error of the chain that gives the class; else the outermost one.

    Where PyTorch cleans up after a failure and that fails, too, the outermost error hides the cause:
    in 2.6.0 a ``BackendCompilerFailed`` inside of ``torch.vmap`` ends as "!dynamicLayerStack.empty()
    INTERNAL ASSERT FAILED".
    """
    if isinstance(error, CaseError):
        return error
    for e in chain(error):
        if SUPPORT_GATE.search(str(e)) or any(
            kind.__name__ in BY_TYPE for kind in type(e).__mro__
        ):
            return e
    return error


def qualified_name(error: BaseException) -> str:
    """Return the type as ``module.Name``; built-in exceptions without a module."""
    kind = type(telling(error))
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"{module}{kind.__qualname__}"


def message_of(error: BaseException, limit: int = 2000) -> str:
    """Return the message of the error that gives the class, cut to ``limit`` characters.

    A C++ compiler's error goes to the first line: PyTorch puts the command before it, and g++ a
    thousand lines of warnings about the headers of PyTorch 2.11.0.
    """
    told = ((e, text) for e in chain(telling(error)) if (text := str(e).strip()))
    source, text = next(told, (error, ""))
    if found := COMPILER_ERROR.search(text):
        first, _, rest = text.partition("\n")
        if found["text"] not in first:
            text = f"{first.rstrip(':')}: {found['text']}\n{rest}"
    if isinstance(source, ModuleNotFoundError) and source.name:
        top = source.name.partition(".")[0]
        if top not in sys.modules and PathFinder.find_spec(top) is None:
            text += f"; {MISSING}"
    return text[:limit]


def headline(message: str) -> str:
    """Return the first line of a message, and the next one if the first ends with a colon.

    PyTorch writes ``backend='inductor' raised:`` or ``Failed running call_method sin(...):``, and
    the error below it.
    """
    first, _, rest = message.strip().partition("\n")
    return f"{first} {headline(rest)}" if first.endswith(":") and rest else first


def place_of(error: BaseException) -> str:
    """Return ``file:line`` of the innermost frame of a project or a library, or ``""``.

    Only the last two parts of the path, because records are published.
    """
    errors = list(chain(error))
    frames = [
        (f.filename, f.lineno) for e in errors for f in traceback.extract_tb(e.__traceback__)
    ]
    # A module that is no valid Python has no frame.
    frames += [(e.filename, e.lineno) for e in errors if isinstance(e, SyntaxError) and e.filename]
    for file, line in reversed(frames):
        parts = Path(file).parts
        # The standard library is beside site-packages: no place in anybody's project.
        python = file.startswith((_STANDARD, "<frozen")) and not _INSTALLED & {*parts}
        generated = _GENERATED.fullmatch(place := "/".join(parts[-2:]))
        if not (is_of_torch(parts) or is_of_harness(file) or python or generated) and line:
            return f"{place}:{line}"
    return ""


def own_place_of(error: BaseException) -> str:
    """Return ``file:line`` of the code that Dynamo could not compile, else ``place_of``.

    Dynamo does not run that code, so it has no frame; its message ends with where it stands.
    """
    for e in chain(error):
        _, found, code = str(e).partition("from user code:")
        places = [*_FRAME.finditer(code)] if found else []
        for place in reversed(places):
            parts = Path(place["file"]).parts
            if not is_of_torch(parts):
                return f"{'/'.join(parts[-2:])}:{place['line']}"
    return place_of(error)


def frame_of(error: BaseException) -> str:
    """Return file and function of the innermost frame in torch, or ``""``.

    The frame is of the error that gives the class, or of its cause: e.g.
    ``torch/_inductor/lowering.py:_unique2``, without the line, which each release moves.
    """
    errors, found = [telling(error)], ""
    while (cause := errors[-1].__cause__) is not None and cause not in errors:
        errors.append(cause)
    for frame in (f for e in errors for f in traceback.extract_tb(e.__traceback__)):
        parts = Path(frame.filename).parts
        if is_of_torch(parts):
            at = next(i for i, (a, b) in enumerate(pairwise(parts)) if _is_torch(a, b))
            found = f"{'/'.join(parts[at + 1 :])}:{frame.name}"
    return found


def reported(error: BaseException, failure_class: FailureClass, phase: Phase) -> dict[str, str]:
    """Return the failure of a case as a journal has it."""
    return {
        "phase": phase,
        "failure_class": failure_class,
        "exception": "" if isinstance(error, CaseError) else qualified_name(error),
        "message": message_of(error),
        "where": place_of(error),
    }


def failed(
    phase: Phase,
    failure_class: FailureClass,
    message: str,
    *,
    exception: str = "",
    output_tail: str = "",
) -> Failure:
    """Return the failure of a case that no exception of its code explains."""
    return Failure(
        phase=phase,
        failure_class=failure_class,
        exception=exception,
        message=message,
        where="",
        output_tail=output_tail,
    )


def warn(text: str) -> None:
    """Warn of what the record of the case shows beside its numbers."""
    warnings.warn(f"ivhl: {text}", stacklevel=2)


def is_of_harness(file: str) -> bool:
    """Return whether a file is one of the code that measures."""
    return file == workload.__file__ or file.startswith(_HARNESS)


def is_of_torch(parts: tuple[str, ...]) -> bool:
    """Return whether a path leads into an installed PyTorch, not into a folder of that name."""
    return any(_is_torch(a, b) for a, b in pairwise(parts))


def _is_torch(folder: str, name: str) -> bool:
    return folder in _INSTALLED and name == "torch"


def number(value: float | None) -> str:
    """Return three significant digits, or ``not finite``."""
    return "not finite" if value is None else f"{value:.3g}"
