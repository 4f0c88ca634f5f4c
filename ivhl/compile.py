"""Compile functions with a mode that can change at any time, and with a fallback to eager.

``torch.compile`` is lazy: it compiles at the first call, and again for other inputs or settings.
So a function decorated with ``get_compiled`` looks up the current mode at each call. If the
compiler fails during a call, the call runs eagerly and a warning is issued once. Errors of the
function itself, such as wrong shapes, are raised unchanged. User guide: docs/compile.md.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import logging
import os
import platform
import re
import shutil
import sys
import sysconfig
import threading
import time
import types
import warnings
import weakref
from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    ParamSpec,
    TypeVar,
    cast,
    get_args,
    overload,
)

import torch

from ivhl.device import compute_capability, get_device

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

P = ParamSpec("P")
R = TypeVar("R")

Mode = Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)

MEASURING_VARIABLE: Final = "IVHL_MEASURING"
CACHE_VARIABLE: Final = "TORCHINDUCTOR_CACHE_DIR"

# Settings beside the modes. Internally "eager" is not None, as it is in public, because None in
# ``_scoped`` means that nothing is set.
_AUTO: Final = "auto"
_EAGER: Final = "eager"
# Modes with CUDA graphs, which reuse output buffers at the next call, and the same without.
WITHOUT_GRAPHS: Final[dict[Mode, Mode]] = {
    "reduce-overhead": "default",
    "max-autotune": "max-autotune-no-cudagraphs",
}
_LARGEST_CAUSE: Final = 400  # characters

# Every message from PyTorch 2.0 to 2.15 that refuses the Python version. ivhl.measure.failures has
# a copy, since it must not import torch or this package; a test compares both.
SUPPORT_GATE: Final = re.compile(
    r"(?:Dynamo|torch\.compile) is not supported on Python"
    r"|Python 3\.\d+\+? not yet supported for torch\.compile"
    r"|not supported on Python built with GIL disabled"
)
_OUT_OF_MEMORY: Final = re.compile(
    r"not enough memory: you tried to allocate|out of memory|can't allocate memory"
)
# Modules that define the compiler's exceptions; the names of these change between releases.
_COMPILER_MODULES: Final = (
    "torch._dynamo.",
    "torch._inductor.",
    "torch._functorch.",
    "torch.fx.experimental.symbolic_shapes",
)

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())  # without logging configured, the warning remains


class CompileFallbackWarning(RuntimeWarning):
    """A function could not be compiled and runs eagerly."""


# --- settings ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Process:
    """Settings and state of the whole process."""

    setting: str = _AUTO
    measurements: int = 0  # number of open measuring() blocks
    refusal: str = ""  # message with which PyTorch refused this Python, or empty


_process = _Process()
_scoped: ContextVar[str | None] = ContextVar("ivhl_compile_mode", default=None)
# Held for a few assignments only, never while torch runs: Dynamo calls us while it holds its own
# lock, so anything longer could deadlock.
_lock = threading.Lock()


def get_compile_mode(device: torch.device | str | None = None) -> Mode | None:
    """Return the current mode of decorated functions that have no mode of their own.

    Unless set, the mode depends on the device: ``max-autotune`` from compute capability 9.0,
    ``reduce-overhead`` from 8.0, else ``default``, also on the CPU. Threads other than the main one
    get these modes without CUDA graphs, which older releases support in one thread only.

    Args:
        device: Default: ``get_device()``. A call uses the device of its tensors.

    Returns:
        The mode, or ``None`` for eager.
    """
    setting = _scoped.get() or _process.setting
    if setting == _EAGER:
        return None
    if setting == _AUTO:
        return _automatic_mode(get_device() if device is None else torch.device(device))
    return cast("Mode", setting)


def set_compile_mode(mode: Mode | Literal["auto"] | None) -> None:
    """Set the mode of all decorated functions, including those already decorated.

    The mode holds in the whole process until changed, except inside ``compile_mode`` blocks. Code
    compiled in other modes is kept and used again when they are set again.

    Args:
        mode: ``None`` runs everything eagerly. A mode applies to functions decorated without one of
            their own. ``"auto"``, the initial setting, chooses by device.

    Raises:
        ValueError: If the mode is unknown.
    """
    _process.setting = _as_setting(mode)


@contextlib.contextmanager
def compile_mode(mode: Mode | Literal["auto"] | None) -> Iterator[None]:
    """Set the mode for a block, in this thread or asyncio task only; the innermost block wins.

    Args:
        mode: As for ``set_compile_mode``.

    Raises:
        ValueError: If the mode is unknown.
    """
    token = _scoped.set(_as_setting(mode))
    try:
        yield
    finally:
        _scoped.reset(token)


@contextlib.contextmanager
def measuring() -> Iterator[None]:
    """Disable the fallback to eager for a block: a failure to compile raises.

    A measurement must not time eager code and report it as compiled. The setting holds in all
    threads of the process, and for functions that fell back before. ``IVHL_MEASURING=1`` in the
    environment does the same for the life of the process. ``set_compile_mode(None)`` still runs
    eagerly, as requested.
    """
    with _lock:
        _process.measurements += 1
    try:
        yield
    finally:
        with _lock:
            _process.measurements -= 1


def is_measuring() -> bool:
    """Return whether compiler failures must raise now, see ``measuring``."""
    return _process.measurements > 0 or os.environ.get(MEASURING_VARIABLE, "0") not in {"", "0"}


def _as_setting(mode: str | None) -> str:
    if mode is None:
        return _EAGER
    if mode != _AUTO and mode not in MODES:
        raise ValueError(
            f"mode must be one of {', '.join(MODES)}, auto, or None for eager, got {mode!r}"
        )
    return mode


def _automatic_mode(device: torch.device) -> Mode:
    capability = compute_capability(device)
    mode: Mode = "default"
    if capability is not None and capability >= (9, 0):
        mode = "max-autotune"
    elif capability is not None and capability >= (8, 0):
        mode = "reduce-overhead"
    if threading.current_thread() is not threading.main_thread():
        # "AssertionError: torch._C._is_key_in_tls(attr_name)" in 2.5, in any other thread.
        return WITHOUT_GRAPHS.get(mode, mode)
    return mode


# --- the decorator -------------------------------------------------------------------------------


@overload
def get_compiled(
    function: Callable[P, R],
    *,
    mode: Mode | None = None,
    dynamic: bool | None = None,
    fullgraph: bool = False,
    fallback_on_error: bool = True,
    backend: Callable[..., Any] | None = None,
) -> Callable[P, R]: ...


@overload
def get_compiled(
    function: None = None,
    *,
    mode: Mode | None = None,
    dynamic: bool | None = None,
    fullgraph: bool = False,
    fallback_on_error: bool = True,
    backend: Callable[..., Any] | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def get_compiled(
    function: Callable[P, R] | None = None,
    *,
    mode: Mode | None = None,
    dynamic: bool | None = None,
    fullgraph: bool = False,
    fallback_on_error: bool = True,
    backend: Callable[..., Any] | None = None,
) -> Callable[P, R] | Callable[[Callable[P, R]], Callable[P, R]]:
    """Return the function compiled; usable as a decorator with or without arguments.

    Nothing is compiled before the first call, and each call uses the mode set at that time. Each
    decorated function has its own recompile limit in each mode, independent of other compiled code.
    Inside a function compiled by other code it is traced like any function.

    If the compiler fails, the call is repeated eagerly from the start. If that works, the function
    runs eagerly in this mode until ``clear_compile_cache``. A warning and a log line report the
    cause once; ``compile_report`` lists it. If eager fails too, its exception is raised. If part of
    the function had already run (after a graph break), it is not repeated, because it may have side
    effects: this call raises, and later ones run eagerly. Running out of memory does not count as a
    failure of the compiler. A backward graph is compiled in ``backward()``, outside of the call,
    and its failure is raised there.

    In modes with CUDA graphs the outputs are copies, since the next call would overwrite them.

    Args:
        function: Function to compile, preferably without side effects.
        mode: Mode of this function; overrides the mode set for all, except eager.
        dynamic: As for ``torch.compile``.
        fullgraph: As for ``torch.compile``.
        fallback_on_error: Whether to run eagerly after a failure of the compiler.
        backend: As for ``torch.compile``, in the place of Inductor.

    Raises:
        ValueError: If the mode is unknown.
    """
    if mode is not None and mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")

    def decorate(plain: Callable[P, R]) -> Callable[P, R]:
        return _wrap(
            _Function(
                plain,
                mode=mode,
                dynamic=dynamic,
                fullgraph=fullgraph,
                fallback_on_error=fallback_on_error,
                backend=backend,
            )
        )

    return decorate if function is None else decorate(function)


def _wrap(decorated: _Function[P, R]) -> Callable[P, R]:
    function, ready, eager = decorated.function, decorated.ready, decorated.eager

    # Runs at every call and costs about a microsecond: keep it short.
    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        # Not is_compiling(): in newer releases that is true while any thread compiles.
        if torch.compiler.is_dynamo_compiling():
            return function(*args, **kwargs)
        setting = _scoped.get() or _process.setting
        entry = ready.get(setting) or decorated.find(setting, args, kwargs)
        if entry.starts is not None and _callbacks()[0] not in entry.starts:
            _observe()  # torch._dynamo.reset() drops our callbacks
        for one in (*args, *kwargs.values()):
            if isinstance(one, torch.Tensor) and one.is_neg():
                args = tuple(map(_with_sign, args))  # type: ignore[assignment]
                kwargs = {name: _with_sign(v) for name, v in kwargs.items()}  # type: ignore[assignment]
                break
        try:
            return entry.run(*args, **kwargs)
        except Exception as error:
            if entry is eager or not decorated.may_fall_back(entry, error):
                raise
            failure = error
        try:
            return decorated.run_eagerly(entry, failure, args, kwargs)
        finally:
            del failure  # its traceback keeps this frame and the inputs alive

    return call


@dataclass(eq=False, slots=True, weakref_slot=True)
class _Entry(Generic[P, R]):
    """A function in one mode, with its compiled form and counters."""

    mode: Mode
    dynamic: bool | None
    run: Callable[P, R]
    place: tuple[str, int]  # file and line of the function
    # Dynamo's callbacks at the start of a compilation; None before the first one.
    starts: Container[Callable[..., None]] | None
    cause: str = ""  # why it runs eagerly; empty if it does not
    frames: int = 0
    seconds: float = 0.0
    graph_breaks: Counter[str] = field(default_factory=Counter)
    recompiles: Counter[str] = field(default_factory=Counter)


class _Function(Generic[P, R]):
    """A decorated function and its entry for each mode."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        mode: Mode | None,
        dynamic: bool | None,
        fullgraph: bool,
        fallback_on_error: bool,
        backend: Callable[..., Any] | None,
    ) -> None:
        self.function = function
        self.mode = mode
        self.dynamic = dynamic
        self.fullgraph = fullgraph
        self.fallback_on_error = fallback_on_error
        self.backend = backend
        self.name = (
            f"{getattr(function, '__module__', '')}."
            f"{getattr(function, '__qualname__', type(function).__name__)}"
        )
        self.entries: dict[Mode, _Entry[P, R]] = {}
        # Entries by setting, where the setting alone determines the entry.
        self.ready: dict[str, _Entry[P, R]] = {}
        self.eager = _Entry(mode="default", dynamic=None, run=function, place=("", 0), starts=None)
        _functions[next(_numbers)] = self

    def find(self, setting: str, args: Any, kwargs: Any) -> _Entry[P, R]:  # noqa: ANN401
        """Return the entry for a setting and these arguments."""
        if setting == _EAGER:
            return self.ready.setdefault(setting, self.eager)
        mode = self.mode or (
            _automatic_mode(_device_of(args, kwargs))
            if setting == _AUTO
            else cast("Mode", setting)
        )
        with _lock:
            entry = self.entries.get(mode)
            if entry is None:
                entry = self.entries[mode] = self._make_entry(mode)
            if self.fallback_on_error and not is_measuring():
                entry.cause = entry.cause or _process.refusal
                if entry.cause:
                    return self.eager
            if not entry.cause and (self.mode or setting != _AUTO or not _has_gpu()):
                self.ready[setting] = entry
        return entry

    def may_fall_back(self, entry: _Entry[P, R], error: Exception) -> bool:
        """Return whether to run eagerly after an exception; record the failure if it is too late."""
        if not self.fallback_on_error or is_measuring() or not is_compiler_failure(error):
            return False
        started, has_begun = getattr(_local, "started", (None, False))
        if has_begun and started is not None and started() is entry:
            self._note(entry, error)
            error.add_note(
                f"ivhl: {self.name} had run in part, so it was not repeated eagerly; "
                "from now on it runs eagerly."
            )
            return False
        return True

    def run_eagerly(self, entry: _Entry[P, R], error: Exception, args: Any, kwargs: Any) -> R:  # noqa: ANN401
        """Return the result of the plain function; an error of the caller raises here, unchanged."""
        result = self.function(*args, **kwargs)
        self._note(entry, error)
        return result

    def forget(self) -> None:
        """Drop everything compiled."""
        with _lock:
            self.entries.clear()
            self.ready.clear()

    def _make_entry(self, mode: Mode) -> _Entry[P, R]:
        code = _code_of(self.function)
        making = threading.Lock()

        def first_run(*args: P.args, **kwargs: P.kwargs) -> R:
            with making:
                if entry.run is first_run:
                    compiled = torch.compile(
                        _with_own_code(self.function),
                        mode=mode,
                        dynamic=self.dynamic,
                        fullgraph=self.fullgraph,
                        **({} if self.backend is None else {"backend": self.backend}),
                    )
                    entry.starts = _observe()
                    graphs = mode in WITHOUT_GRAPHS and _has_gpu()
                    entry.run = _copying_outputs(compiled) if graphs else compiled
            return entry.run(*args, **kwargs)

        entry: _Entry[P, R] = _Entry(
            mode=mode,
            dynamic=self.dynamic,
            run=first_run,
            place=(code.co_filename, code.co_firstlineno),
            starts=None,
        )
        return entry

    def _note(self, entry: _Entry[P, R], error: Exception) -> None:
        """Switch this mode to eager from now on, and warn once."""
        cause = describe(error)
        refused = any(SUPPORT_GATE.search(str(e)) for e in _chain(error))
        with _lock:
            is_news = not (_process.refusal if refused else entry.cause)
            entry.cause = cause
            entry.recompiles.update(_new_recompiles())
            self.ready.clear()
            if refused:
                _process.refusal = cause
        if not is_news:
            return
        what = "everything" if refused else f"{self.name} (mode {entry.mode})"
        text = f"{what} runs eagerly from now on, since it could not be compiled: {cause}"
        logger.warning(text, exc_info=error)
        warnings.warn(text, CompileFallbackWarning, stacklevel=4)


_functions: weakref.WeakValueDictionary[int, _Function[..., Any]] = weakref.WeakValueDictionary()
_numbers = itertools.count()
_forgetting: list[Callable[[], object]] = []


def _with_sign(one: object) -> object:
    """Return a tensor without the negative bit; anything else unchanged.

    The imaginary part of a conjugate is a view with the negative bit set, which Inductor ignores, up
    to 2.15 at least (pytorch/pytorch#145093).
    """
    return one.resolve_neg() if isinstance(one, torch.Tensor) else one


def _has_gpu() -> bool:
    return bool(torch.cuda.is_available())


def _device_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device:
    """Return the device of the tensor arguments; if they differ, the first that is not the CPU."""
    devices = [v.device for v in (*args, *kwargs.values()) if isinstance(v, torch.Tensor)]
    if not devices:
        return get_device()
    return next((d for d in devices if d.type != "cpu"), devices[0])


def _with_own_code(function: Callable[P, R]) -> Callable[P, R]:
    """Return a copy of the function whose code object is its own.

    Dynamo stores compiled code, and counts its recompile limit of 8, per code object. All closures
    of a factory share a code object, and so do all modes.
    """
    if not isinstance(function, types.FunctionType):  # a method, a module, a partial, a builtin

        def call_through(*args: P.args, **kwargs: P.kwargs) -> R:
            return function(*args, **kwargs)

        return _with_own_code(call_through)
    copy = types.FunctionType(
        function.__code__.replace(),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__qualname__ = function.__qualname__
    return cast("Callable[P, R]", copy)


def _code_of(function: Callable[..., Any]) -> types.CodeType:
    code = getattr(function, "__code__", None)
    return code if isinstance(code, types.CodeType) else _with_own_code.__code__


def _copying_outputs(compiled: Callable[P, R]) -> Callable[P, R]:
    from torch.utils import _pytree  # noqa: PLC0415  (only where there are CUDA graphs)

    def copy(output: torch.Tensor) -> torch.Tensor:
        return output.clone() if output.is_cuda else output

    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        outputs: R = _pytree.tree_map_only(torch.Tensor, copy, compiled(*args, **kwargs))
        return outputs

    return run


# --- failures ------------------------------------------------------------------------------------


def is_compiler_failure(error: BaseException) -> bool:
    """Return whether an exception comes from the compiler or from PyTorch's check of the Python.

    ``torch._dynamo`` also wraps errors of the traced code, so the caller must confirm a compiler
    failure by running the plain function.
    """
    errors = list(_chain(error))
    if any(isinstance(e, MemoryError) or _OUT_OF_MEMORY.search(str(e)) for e in errors):
        return False
    return any(
        SUPPORT_GATE.search(str(e))
        or any(f"{kind.__module__}.".startswith(_COMPILER_MODULES) for kind in type(e).__mro__)
        or f"{_raised_in(e)}.".startswith(_COMPILER_MODULES)  # an assertion of Dynamo
        for e in errors
    )


def _raised_in(error: BaseException) -> str:
    """Return the name of the module that raised an exception; empty if nobody did."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return "" if place is None else place.tb_frame.f_globals.get("__name__", "")


def describe(error: BaseException) -> str:
    """Return type and message in one line of limited length."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return text if len(text) <= _LARGEST_CAUSE else f"{text[:_LARGEST_CAUSE]}..."


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and everything it was raised from, outermost first."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


# --- compilations --------------------------------------------------------------------------------


@dataclass(slots=True)
class _Compilation:
    """The compilation in progress; Dynamo's lock admits one at a time."""

    entry: _Entry[..., Any] | None
    started: float
    graph_breaks: Counter[str]
    has_own_shapes: bool


_compilations: list[_Compilation] = []  # one or none
_reasons_seen: dict[types.CodeType, int] = {}
_local = threading.local()


def _observe() -> Container[Callable[..., None]]:
    """Register our callbacks with Dynamo; return its list of start callbacks."""
    from torch._dynamo.callback import callback_handler  # noqa: PLC0415  (seconds, if first)

    start, end = _callbacks()
    with _lock:
        if start not in callback_handler.start_callbacks:
            callback_handler.register_start_callback(start)
            callback_handler.register_end_callback(end)
    starts: Container[Callable[..., None]] = callback_handler.start_callbacks
    return starts


@functools.cache
def _callbacks() -> tuple[Callable[..., None], Callable[..., None]]:
    """Return our callbacks as Dynamo gets them.

    It must not compile them. A backward pass inside of compiled code, ours or not, is compiled when
    it first runs, where Dynamo looks at every frame. That of 2.15.0 holds a lock while it calls
    them, and would wait for that lock for ever; that of 2.6.0 has none.
    """
    return torch.compiler.disable(_on_start), torch.compiler.disable(_on_end)


def _on_start(*_: object) -> None:
    """Record the start of a compilation; the arguments differ between releases."""
    from torch._dynamo.utils import counters  # noqa: PLC0415  (imported already)
    from torch.fx.experimental import _config as shapes  # noqa: PLC0415  (imported already)

    choose_cache_folder()
    entry, has_begun = _compiled_for()
    # No reference that keeps the last function, and what it closes over, for the rest of the thread.
    _local.started = None if entry is None else weakref.ref(entry), has_begun
    # Dynamo gives axes of equal length at the first call one symbol, and recompiles when they
    # differ: for a cube first and then a box. With dynamic=True we want one symbol per axis.
    has_own_shapes = entry is not None and bool(entry.dynamic) and shapes.use_duck_shape
    with _lock:
        compilation = _Compilation(
            entry, time.perf_counter(), Counter(counters["graph_break"]), has_own_shapes
        )
        _compilations[:] = [compilation]
    if has_own_shapes:
        shapes.use_duck_shape = False


def _on_end(*args: object) -> None:
    from torch._dynamo.utils import counters  # noqa: PLC0415  (imported already)
    from torch.fx.experimental import _config as shapes  # noqa: PLC0415  (imported already)

    # Since about 2.8 also called for backward graphs and CUDA graphs, which are not frames.
    trigger = getattr(args[0] if args else None, "callback_trigger", None)
    is_frame = getattr(trigger, "name", "DYNAMO") == "DYNAMO"
    with _lock:
        recompiles = _new_recompiles()
        if not _compilations:
            return
        done = _compilations.pop()
        if done.has_own_shapes:
            shapes.use_duck_shape = True
        if done.entry is None:
            return
        done.entry.frames += is_frame
        done.entry.seconds += time.perf_counter() - done.started
        done.entry.graph_breaks += Counter(counters["graph_break"]) - done.graph_breaks
        done.entry.recompiles += recompiles


def _compiled_for() -> tuple[_Entry[..., Any] | None, bool]:
    """Return the entry whose call started the compiler, and whether part of it had already run.

    Walks the stack: only when the compiler runs, which takes seconds anyway.
    """
    places = set()
    frame: types.FrameType | None = sys._getframe(1)  # noqa: SLF001  (what else walks the stack)
    while frame is not None:
        if frame.f_globals is globals() and isinstance(
            entry := frame.f_locals.get("entry"), _Entry
        ):
            return entry, entry.place in places
        places.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))
        frame = frame.f_back
    return None, False


def _new_recompiles() -> Counter[str]:
    """Return the reasons for recompiles since the last call, one per recompile.

    Dynamo logs one reason for each graph that does not fit, the newest graph first.
    """
    from torch._dynamo.utils import guard_failures  # noqa: PLC0415  (imported already)

    new: Counter[str] = Counter()
    seen = {code: len(reasons) for code, reasons in guard_failures.items()}
    for code, count in seen.items():
        before = _reasons_seen.get(code, 0)
        if count != before:
            reasons = guard_failures[code][before if count > before else 0 :]
            new[" ".join(str(reasons[0]).split())] += 1
    _reasons_seen.clear()
    _reasons_seen.update(seen)
    return new


@dataclass(frozen=True, kw_only=True, slots=True)
class FunctionReport:
    """Compilations of one function in one mode.

    Attributes:
        name: Module and qualified name.
        mode: The requested mode.
        frames: Number of frames that Dynamo compiled: the function, or a part of it after a graph
            break; recompiles included.
        graph_breaks: Number of graph breaks by reason.
        recompiles: Number of recompiles by reason.
        seconds: Wall time of compiling forward graphs.
        fell_back: Whether it runs eagerly because compiling failed.
        cause: The failure, or ``""``.
    """

    name: str
    mode: Mode
    frames: int
    graph_breaks: dict[str, int]
    recompiles: dict[str, int]
    seconds: float
    fell_back: bool
    cause: str


@dataclass(frozen=True, slots=True)
class CompileReport:
    """Compilations of each decorated function and mode that was called; prints as a table.

    Attributes:
        functions: In the order in which they were decorated.
    """

    functions: tuple[FunctionReport, ...]

    def __str__(self) -> str:
        lines = [f"{'frames':>6} {'breaks':>6} {'recomp.':>7} {'seconds':>8}  function (mode)"]
        for f in self.functions:
            lines.append(
                f"{f.frames:>6} {sum(f.graph_breaks.values()):>6} "
                f"{sum(f.recompiles.values()):>7} {f.seconds:>8.2f}  {f.name} ({f.mode})"
            )
            lines += [f"{n:>13}x graph break: {text}" for text, n in f.graph_breaks.items()]
            lines += [f"{n:>13}x recompiled: {text}" for text, n in f.recompiles.items()]
            if f.fell_back:
                lines.append(f"{'':>13}  runs eagerly: {f.cause}")
        return "\n".join(lines)


def compile_report() -> CompileReport:
    """Return the compilations since the start, or since ``clear_compile_cache``."""
    decorated = [function for _, function in sorted(_functions.items())]
    with _lock:
        return CompileReport(
            tuple(
                FunctionReport(
                    name=function.name,
                    mode=entry.mode,
                    frames=entry.frames,
                    graph_breaks=dict(entry.graph_breaks),
                    recompiles=dict(entry.recompiles),
                    seconds=entry.seconds,
                    fell_back=bool(entry.cause),
                    cause=entry.cause,
                )
                for function in decorated
                for entry in function.entries.values()
            )
        )


# --- caches --------------------------------------------------------------------------------------


def choose_cache_folder() -> None:
    """Set Inductor's cache folder for this PyTorch, Python, processor and number of threads.

    The number of threads is compiled into a kernel, but in older releases it is not part of the key
    in Inductor's cache: a kernel for two threads would then run on one, and the reverse. Called at
    each start of the compiler, since Dynamo recompiles when the number has changed. A folder chosen
    by the user is kept.
    """
    from torch._inductor.runtime.runtime_utils import default_cache_dir  # noqa: PLC0415  (seconds)
    from torch._inductor.utils import clear_inductor_caches  # noqa: PLC0415

    current = os.environ.get(CACHE_VARIABLE)
    default = Path(default_cache_dir())
    ours = default / "ivhl"
    # PyTorch sets the variable to its default, and child processes inherit ours.
    if current and Path(current) != default and not Path(current).is_relative_to(ours):
        return
    folder = str(ours / environment_key() / f"threads{torch.get_num_threads()}")
    if current != folder:
        os.environ[CACHE_VARIABLE] = folder
        # These caches hold paths in the previous folder. Code that includes a file from there would
        # be stored here, and fail once that folder is gone.
        clear_inductor_caches()


@functools.cache
def environment_key() -> str:
    """Return a key of PyTorch, Python and processor, for which kernels are compiled."""
    processor = [platform.machine(), platform.processor()]
    with contextlib.suppress(OSError):  # Linux only
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        names = ("model name", "flags", "Features", "CPU part")
        processor += sorted({line for line in lines if line.startswith(names)})
    processor.append(str(sysconfig.get_config_var("EXT_SUFFIX")))  # with or without the GIL
    digest = hashlib.sha256("\n".join(processor).encode()).hexdigest()[:8]
    return f"torch{torch.__version__}-{sys.implementation.cache_tag}-{digest}"


def when_cleared(forget: Callable[[], object]) -> None:
    """Register a function for ``clear_compile_cache`` to call, to clear another cache of code."""
    _forgetting.append(forget)


def clear_compile_cache(*, disk: bool = False) -> None:
    """Forget everything compiled in this process, and all fallbacks and reports.

    This includes functions compiled by other code (``torch._dynamo.reset``). All are compiled again
    at their next call. Mode settings stay.

    Args:
        disk: Whether to delete also ivhl's cache folders for this PyTorch, Python and processor. No
            other process should be compiling. A folder chosen by the user is kept.
    """
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()  # noqa: SLF001  (torch.compiler.reset refuses where Dynamo does)
    for function in list(_functions.values()):
        function.forget()
    for forget in _forgetting:
        forget()
    with _lock:
        _process.refusal = ""
    if disk:
        from torch._inductor.runtime.runtime_utils import default_cache_dir  # noqa: PLC0415
        from torch._inductor.utils import clear_inductor_caches  # noqa: PLC0415

        shutil.rmtree(Path(default_cache_dir()) / "ivhl" / environment_key(), ignore_errors=True)
        clear_inductor_caches()
