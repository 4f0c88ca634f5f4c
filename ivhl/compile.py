"""Compiled functions whose mode can be changed at any time, and which work where compiling fails.

``torch.compile`` is lazy: it compiles at the first call, and again for other inputs or settings.
So a function decorated with ``get_compiled`` looks up at each call which mode holds. Where the
compiler fails at a call, that call is run eagerly, and a warning says so once. Errors of the
function itself, such as wrong shapes, are raised as they are. For users: docs/compile.md.
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

# "auto" and "eager" stand beside the modes in what is set; None, the public name of "eager", could
# not be told from "nothing set".
_AUTO: Final = "auto"
_EAGER: Final = "eager"
# What reuses its output buffers at the next call, and the same without that.
_WITHOUT_GRAPHS: Final[dict[Mode, Mode]] = {
    "reduce-overhead": "default",
    "max-autotune": "max-autotune-no-cudagraphs",
}
_LARGEST_CAUSE: Final = 400  # characters

# Every wording of the gate from PyTorch 2.0 to 2.15. The same as in ivhl.measure.failures, which
# must do without torch and without this package; a test compares them.
SUPPORT_GATE: Final = re.compile(
    r"(?:Dynamo|torch\.compile) is not supported on Python"
    r"|Python 3\.\d+\+? not yet supported for torch\.compile"
    r"|not supported on Python built with GIL disabled"
)
_OUT_OF_MEMORY: Final = re.compile(
    r"not enough memory: you tried to allocate|out of memory|can't allocate memory"
)
# Where the exceptions of the compiler are defined. Their names changed with the releases.
_COMPILER_MODULES: Final = (
    "torch._dynamo.",
    "torch._inductor.",
    "torch._functorch.",
    "torch.fx.experimental.symbolic_shapes",
)

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())  # who configures no logging still has the warning


class CompileFallbackWarning(RuntimeWarning):
    """A function could not be compiled and runs eagerly."""


# --- what is set ---------------------------------------------------------------------------------


@dataclass(slots=True)
class _Process:
    """What holds for the whole process."""

    setting: str = _AUTO
    measurements: int = 0  # measuring() blocks that are open
    refusal: str = ""  # what the support gate said, once it did


_process = _Process()
_scoped: ContextVar[str | None] = ContextVar("ivhl_compile_mode", default=None)
# Held for a few assignments only, never while torch runs: Dynamo has a lock of its own, and calls
# us while holding it.
_lock = threading.Lock()


def get_compile_mode(device: torch.device | str | None = None) -> Mode | None:
    """Return the mode in which a decorated function without a mode of its own runs here and now.

    Unless it was set, it follows from the device: ``max-autotune`` from compute capability 9.0,
    ``reduce-overhead`` from 8.0, else ``default``, on the CPU as well. Threads other than the main
    one get these modes without CUDA graphs, which older releases confine to one thread.

    Args:
        device: Default: ``get_device()``. A call goes by the device of its tensors.

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
    """Set the mode of all decorated functions, those decorated before as well.

    It holds in the whole process until changed, except inside ``compile_mode`` blocks. What was
    compiled in other modes is kept for when they come back.

    Args:
        mode: ``None`` runs everything eagerly. A mode is for functions that were decorated without
            one of their own. ``"auto"``, as at the start, lets the device decide.

    Raises:
        ValueError: If there is no such mode.
    """
    _process.setting = _as_setting(mode)


@contextlib.contextmanager
def compile_mode(mode: Mode | Literal["auto"] | None) -> Iterator[None]:
    """Set the mode for a block: in this thread (or task of asyncio) only, the innermost wins.

    Args:
        mode: As for ``set_compile_mode``.

    Raises:
        ValueError: If there is no such mode.
    """
    token = _scoped.set(_as_setting(mode))
    try:
        yield
    finally:
        _scoped.reset(token)


@contextlib.contextmanager
def measuring() -> Iterator[None]:
    """Switch falling back off for a block: whatever fails to compile raises.

    A measurement must not time eager code and call it compiled. It holds for the whole process,
    all threads, and for functions that had fallen back before. ``IVHL_MEASURING=1`` in the
    environment does the same for good. ``set_compile_mode(None)`` still means eager: that is asked
    for.
    """
    with _lock:
        _process.measurements += 1
    try:
        yield
    finally:
        with _lock:
            _process.measurements -= 1


def is_measuring() -> bool:
    """Tell whether failures of the compiler are to be raised here and now, see ``measuring``."""
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
        return _WITHOUT_GRAPHS.get(mode, mode)
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
) -> Callable[P, R]: ...


@overload
def get_compiled(
    function: None = None,
    *,
    mode: Mode | None = None,
    dynamic: bool | None = None,
    fullgraph: bool = False,
    fallback_on_error: bool = True,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def get_compiled(
    function: Callable[P, R] | None = None,
    *,
    mode: Mode | None = None,
    dynamic: bool | None = None,
    fullgraph: bool = False,
    fallback_on_error: bool = True,
) -> Callable[P, R] | Callable[[Callable[P, R]], Callable[P, R]]:
    """Return the function compiled, as a decorator with or without arguments.

    Nothing is compiled before the first call, and each call goes by the mode that holds then. Code
    that others compile is not touched, and theirs does not touch this: each decorated function has
    its own recompile limit in each mode. Inside a function that somebody else compiles, it is
    traced like any function.

    When the compiler fails, the call is repeated eagerly from the start, and if that works, the
    function runs eagerly in this mode from then on, until ``clear_compile_cache``. A warning and
    a line in the log name the cause once; ``compile_report`` shows it. If eager fails as well, its
    exception is the one that is raised. If part of the function had run already (after a graph
    break), it is not repeated, since it may have changed something: this call raises, and later
    ones run eagerly. Lack of memory is no failure of the compiler. A backward graph that is
    compiled in ``backward()`` is outside of the call, and its failure is raised there.

    In modes with CUDA graphs the outputs are copies: without that, the next call would overwrite
    them.

    Args:
        function: What to compile; functions that change nothing suit best.
        mode: Mode of this function, whichever is set for all, unless that is eager.
        dynamic: As for ``torch.compile``.
        fullgraph: As for ``torch.compile``.
        fallback_on_error: Whether a failure of the compiler is answered by running eagerly.

    Raises:
        ValueError: If there is no such mode.
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
            )
        )

    return decorate if function is None else decorate(function)


def _wrap(decorated: _Function[P, R]) -> Callable[P, R]:
    function, ready, eager = decorated.function, decorated.ready, decorated.eager

    # On the way of every call: keep it short. It costs about a microsecond.
    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        # Not is_compiling(): since some release, that is true while any thread compiles.
        if torch.compiler.is_dynamo_compiling():
            return function(*args, **kwargs)
        setting = _scoped.get() or _process.setting
        entry = ready.get(setting) or decorated.find(setting, args, kwargs)
        if _on_start not in entry.starts:
            _observe()  # torch._dynamo.reset() forgets who observes
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
            del failure  # its traceback holds this frame, and with it the inputs

    return call


@dataclass(eq=False, slots=True)
class _Entry(Generic[P, R]):
    """A function in one mode, and what became of it."""

    mode: Mode
    dynamic: bool | None
    run: Callable[P, R]
    place: tuple[str, int]  # file and line of the function
    starts: Container[Callable[..., None]]  # what Dynamo calls at each start of the compiler
    cause: str = ""  # why it runs eagerly, once it does
    frames: int = 0
    seconds: float = 0.0
    graph_breaks: Counter[str] = field(default_factory=Counter)
    recompiles: Counter[str] = field(default_factory=Counter)


class _Function(Generic[P, R]):
    """A decorated function with what is known of it in each mode."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        mode: Mode | None,
        dynamic: bool | None,
        fullgraph: bool,
        fallback_on_error: bool,
    ) -> None:
        self.function = function
        self.mode = mode
        self.dynamic = dynamic
        self.fullgraph = fullgraph
        self.fallback_on_error = fallback_on_error
        self.name = (
            f"{getattr(function, '__module__', '')}."
            f"{getattr(function, '__qualname__', type(function).__name__)}"
        )
        self.entries: dict[Mode, _Entry[P, R]] = {}
        # What a setting leads to, where that needs no second thought.
        self.ready: dict[str, _Entry[P, R]] = {}
        self.eager = _Entry(
            mode="default", dynamic=None, run=function, place=("", 0), starts=(_on_start,)
        )
        _functions[next(_numbers)] = self

    def find(self, setting: str, args: Any, kwargs: Any) -> _Entry[P, R]:  # noqa: ANN401
        """Return what a setting leads to for these arguments."""
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
        """Tell whether to answer an exception by running eagerly; take note if it is too late."""
        if not self.fallback_on_error or is_measuring() or not is_compiler_failure(error):
            return False
        if getattr(_local, "started", None) == (entry, True):
            self._note(entry, error)
            error.add_note(
                f"ivhl: {self.name} had run in part, so it was not repeated eagerly; "
                "from now on it runs eagerly."
            )
            return False
        return True

    def run_eagerly(self, entry: _Entry[P, R], error: Exception, args: Any, kwargs: Any) -> R:  # noqa: ANN401
        """Return what the plain function returns; a mistake of the caller raises here, as itself."""
        result = self.function(*args, **kwargs)
        self._note(entry, error)
        return result

    def forget(self) -> None:
        """Start anew."""
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
                    )
                    entry.starts = _observe()
                    graphs = mode in _WITHOUT_GRAPHS and _has_gpu()
                    entry.run = _copying_outputs(compiled) if graphs else compiled
            return entry.run(*args, **kwargs)

        entry: _Entry[P, R] = _Entry(
            mode=mode,
            dynamic=self.dynamic,
            run=first_run,
            place=(code.co_filename, code.co_firstlineno),
            starts=(_on_start,),
        )
        return entry

    def _note(self, entry: _Entry[P, R], error: Exception) -> None:
        """Run eagerly from now on in this mode, and say so once."""
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
    """Return a tensor whose sign is in its numbers.

    The imaginary part of a conjugate is a view with a bit for the sign, and Inductor, up to 2.15 at
    least, overlooks the bit (pytorch/pytorch#145093).
    """
    return one.resolve_neg() if isinstance(one, torch.Tensor) else one


def _has_gpu() -> bool:
    return bool(torch.cuda.is_available())


def _device_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device:
    """Return where a call runs: where a tensor among its arguments is, rather not the CPU."""
    devices = [v.device for v in (*args, *kwargs.values()) if isinstance(v, torch.Tensor)]
    if not devices:
        return get_device()
    return next((d for d in devices if d.type != "cpu"), devices[0])


def _with_own_code(function: Callable[P, R]) -> Callable[P, R]:
    """Return a copy of the function whose code object is its own.

    Dynamo keeps what it compiled, and counts its recompile limit of 8, per code object. All
    closures of a factory share one, as do all modes.
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
    """Tell whether an exception comes from the compiler or from the gate before it.

    ``torch._dynamo`` wraps mistakes of the traced code as well, so what this takes for a failure
    of the compiler is only believed if the plain function then runs.
    """
    errors = list(_chain(error))
    if any(isinstance(e, MemoryError) or _OUT_OF_MEMORY.search(str(e)) for e in errors):
        return False
    return any(
        SUPPORT_GATE.search(str(e))
        or any(f"{kind.__module__}.".startswith(_COMPILER_MODULES) for kind in type(e).__mro__)
        for e in errors
    )


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


# --- what the compiler does ----------------------------------------------------------------------


@dataclass(slots=True)
class _Compilation:
    """The one that is under way; Dynamo's lock admits one at a time."""

    entry: _Entry[..., Any] | None
    started: float
    graph_breaks: Counter[str]
    has_own_shapes: bool


_compilations: list[_Compilation] = []  # one or none
_reasons_seen: dict[types.CodeType, int] = {}
_local = threading.local()


def _observe() -> Container[Callable[..., None]]:
    """Have Dynamo call us whenever it compiles; return the list of those it calls at the start."""
    from torch._dynamo.callback import callback_handler  # noqa: PLC0415  (seconds, if first)

    with _lock:
        if _on_start not in callback_handler.start_callbacks:
            callback_handler.register_start_callback(_on_start)
            callback_handler.register_end_callback(_on_end)
    starts: Container[Callable[..., None]] = callback_handler.start_callbacks
    return starts


def _on_start(*_: object) -> None:
    """Take note of a start; the arguments changed with the releases."""
    from torch._dynamo.utils import counters  # noqa: PLC0415  (imported already)
    from torch.fx.experimental import _config as shapes  # noqa: PLC0415  (imported already)

    choose_cache_folder()
    entry, has_begun = _compiled_for()
    _local.started = (entry, has_begun)
    # Two axes that are equally long at the first call are one symbol to Dynamo, and compiled anew
    # where they are not: a cube first and then a box. Who asks for dynamic shapes means each axis.
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

    # Since 2.8 or so also for backward graphs and CUDA graphs, which are no frames.
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
    """Return whose call led here, and whether a part of that function had run before.

    Looking up the stack costs time where the compiler takes seconds, and none in other calls.
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
    """Return the reasons of the recompiles since last asked, one per recompile.

    Dynamo notes one reason per graph that it has and cannot use, the newest graph first.
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
    """What compiling did for one function in one mode.

    Attributes:
        name: Module and qualified name.
        mode: The mode that was asked for.
        frames: How often Dynamo compiled a frame: the function, or a part of it after a graph
            break; for the first time, or again.
        graph_breaks: Reasons with their number.
        recompiles: Reasons with their number.
        seconds: Wall time of compiling forward graphs.
        fell_back: Whether it runs eagerly since compiling failed.
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
    """What compiling did for each decorated function and mode that was called; prints as a table.

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
    """Return what compiling did since the start, or since ``clear_compile_cache``."""
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
    """Point Inductor to the folder for this PyTorch, Python, processor and number of threads.

    Up to some release Inductor finds a compiled kernel again whatever the number of threads, and
    the number is compiled in: one for two threads then runs on one, and the reverse. Called at
    each start of the compiler, since Dynamo compiles anew when the number has changed. A folder
    that the user has chosen is left alone.
    """
    from torch._inductor.runtime.runtime_utils import default_cache_dir  # noqa: PLC0415  (seconds)
    from torch._inductor.utils import clear_inductor_caches  # noqa: PLC0415

    current = os.environ.get(CACHE_VARIABLE)
    default = Path(default_cache_dir())
    ours = default / "ivhl"
    # PyTorch itself sets the variable to its default, and processes inherit what we have set.
    if current and Path(current) != default and not Path(current).is_relative_to(ours):
        return
    folder = str(ours / environment_key() / f"threads{torch.get_num_threads()}")
    if current != folder:
        os.environ[CACHE_VARIABLE] = folder
        # They hold paths in the folder before, be it one that the environment no longer names; what
        # includes a file there would be kept here, and fail when that folder is gone.
        clear_inductor_caches()


@functools.cache
def environment_key() -> str:
    """Return PyTorch, Python and a digest of the processor: what kernels are compiled for."""
    processor = [platform.machine(), platform.processor()]
    with contextlib.suppress(OSError):  # Linux only
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        names = ("model name", "flags", "Features", "CPU part")
        processor += sorted({line for line in lines if line.startswith(names)})
    processor.append(str(sysconfig.get_config_var("EXT_SUFFIX")))  # with or without the GIL
    digest = hashlib.sha256("\n".join(processor).encode()).hexdigest()[:8]
    return f"torch{torch.__version__}-{sys.implementation.cache_tag}-{digest}"


def when_cleared(forget: Callable[[], object]) -> None:
    """Have ``clear_compile_cache`` call a function: for what keeps compiled code by itself."""
    _forgetting.append(forget)


def clear_compile_cache(*, disk: bool = False) -> None:
    """Forget everything compiled in this process, and all fallbacks and reports.

    Functions that others compiled are forgotten as well (``torch._dynamo.reset``); all are
    compiled again when they are called. Modes stay as they are set.

    Args:
        disk: Whether to delete our folders of this PyTorch, Python and processor too. No other
            process should be compiling. A folder that the user has chosen is left alone.
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
