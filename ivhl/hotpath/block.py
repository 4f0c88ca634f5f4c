"""The block in which hot paths are found and compiled, and boundaries inside of it."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import threading
import time
import types
import warnings
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast

import torch
import torch._dynamo.eval_frame
import torch._dynamo.variables.torch
import torch._functorch.eager_transforms
import torch._functorch.vmap
import torch.jit._builtins
import torch.utils.checkpoint
from torch.autograd.graph import GradientEdge
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from ivhl.errors import SpecError
from ivhl.hotpath.calls import Tree, identity
from ivhl.hotpath.log import Log
from ivhl.hotpath.pending import Pending, add_settler, remove_settler
from ivhl.hotpath.recorder import Recorder
from ivhl.hotpath.regions import ByBlock, OptimizerSteps, Region, RegionCode, key_of_arguments
from ivhl.hotpath.report import HotpathReport
from ivhl.hotpath.settings import AUTO, BoundaryRule, read_settings
from ivhl.hotpath.signs import unwatch_signs, watch_signs
from ivhl.hotpath.surroundings import is_top, pop_mode, push_mode, top_hooks
from ivhl.hotpath.timeline import Timeline

if TYPE_CHECKING:
    from ivhl.hotpath.sequence import HotSequence

T = TypeVar("T", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")

THRESHOLD: Final = 10
MIN_CALLS: Final = 2
# Calls of a function that are not looked at between two that are, where nothing of it is compiled.
_MOST_PASSED: Final = 255
# Without CUDA graphs, which would overwrite results of the run before.
HOTPATH_MODES: Final = ("default", "max-autotune-no-cudagraphs")


class auto:  # noqa: N801  (read as a verb: with hotpath.auto() as report)
    """Find sequences of operations that repeat, compile them, and run the compiled graphs instead.

    Applies to this thread, until the end of the block. If the same object is entered again, it keeps
    its counts and its compiled graphs.

    Args:
        threshold: Number N of eager runs of a sequence before it is compiled; run N + 1 is the first
            compiled run. ``IVHL_HOTPATH_THRESHOLD`` replaces the default, 10.
        min_calls: Operations of the shortest sequence. ``IVHL_HOTPATH_MIN_CALLS`` replaces the
            default, 2.
        mode: ``mode`` of ``torch.compile``.
        boundaries: Names of boundaries to compile at once (``True``) or never (``False``), in
            addition to the file that ``IVHL_HOTPATH_BOUNDARIES`` names.
        only_faster: Whether a sequence runs eagerly again if its first N compiled runs are slower
            than eager runs. ``IVHL_HOTPATH_ONLY_FASTER`` replaces the default, no.

    Raises:
        SpecError: If an argument or a variable of the environment is invalid, or a block is open.
    """

    def __init__(
        self,
        threshold: int | None = None,
        *,
        min_calls: int | None = None,
        mode: str = "default",
        boundaries: Mapping[str, bool] | None = None,
        only_faster: bool | None = None,
    ) -> None:
        settings = read_settings(os.environ)
        for name, value in (("threshold", threshold), ("min_calls", min_calls)):
            if value is not None and (type(value) is not int or value < 1):
                raise SpecError(f"hotpath.auto: {name} must be an integer from 1 (got {value!r})")
        if mode not in HOTPATH_MODES:
            raise SpecError(
                f"hotpath.auto: mode must be one of {', '.join(HOTPATH_MODES)} (got {mode!r})"
            )
        if not isinstance(boundaries, Mapping | None):
            raise SpecError(
                "hotpath.auto: boundaries must be a mapping of names to True or False "
                f"(got {boundaries!r:.60})"
            )
        for name, rule in (boundaries or {}).items():
            if type(rule) is not bool:
                raise SpecError(
                    f"hotpath.auto: boundaries[{name!r}] must be True or False (got {rule!r:.60})"
                )
        if type(only_faster) not in {bool, type(None)}:
            raise SpecError(
                f"hotpath.auto: only_faster must be True or False (got {only_faster!r:.60})"
            )
        self.only_faster = settings.only_faster if only_faster is None else only_faster
        self.is_on = settings.auto is not False
        self.threshold = threshold or settings.threshold or THRESHOLD
        if settings.everything:
            self.threshold = 1
        self.min_calls = min_calls or settings.min_calls or MIN_CALLS
        self.mode = mode
        named = {name: BoundaryRule(value) for name, value in (boundaries or {}).items()}
        self.rules = {**settings.boundaries, **named}
        self.debug = settings.debug
        self.entered: set[str] = set()
        self.roots = Tree()
        self.sequences: list[HotSequence] = []
        self.regions: list[Region] = []
        self.is_of_process = False
        self._is_open = False
        self._functions = 0  # whose block this is
        self._passes = 0  # calls of the function that will not be looked at
        self._useless = 0  # how many were not, after the last call that was in vain
        self._lock = threading.Lock()
        # While a function that the program has compiled runs: the frame of its call, by id, and
        # what keeps the mode away.
        self.in_dynamo: tuple[int, Any] | None = None

    def __enter__(self) -> HotpathReport:
        outer = _active.block
        if outer is not None and outer.is_of_process:
            outer.__exit__()
        elif outer is not None:
            raise SpecError(
                "hotpath.auto: a block is open in this thread", hint="use one block around both"
            )
        if self._functions:
            raise SpecError(
                "hotpath.auto: it is the block of a function already", hint="make another auto()"
            )
        self._set_up()
        if self.is_on:
            self._open()
        return self.report

    def __exit__(self, *_: object) -> None:
        if not self.is_on:
            return
        try:
            self.recorder.end_segment()
        finally:
            try:
                self._shut()
            finally:
                self._tear_down()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return the function, of which each call is a block that goes on where the last one ended.

        Costs less than ``with`` around each call: optimizers that it uses stay prepared between
        calls, and so does the way into PyTorch's backward pass, until the function is collected.
        ``report`` has what its calls did. A call inside of another block is part of that block.

        Raises:
            SpecError: If this object is the block of another function, or open.
        """
        if not callable(function):
            raise SpecError(
                f"hotpath.auto: what it is called with is no function (got {function!r:.60})"
            )
        if self._functions or self._is_open:
            raise SpecError(
                "hotpath.auto: it is a block already, or that of another function",
                hint="make another auto() for each function",
            )
        self._set_up()

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if self._passes > 0:
                self._passes -= 1
                return function(*args, **kwargs)
            # Two threads cannot share what is counted: one of them runs as if there were no block.
            if not self.is_on or _active.block is not None or self._lock.locked():
                return function(*args, **kwargs)
            with self._lock:
                before = self.recorder.progress
                self._open()
                try:
                    return function(*args, **kwargs)
                finally:
                    try:
                        self.recorder.end_segment()
                    finally:
                        self._shut()
                        self._let_pass(is_useless=self.recorder.progress == before)

        self._functions += 1
        if self.is_on:
            weakref.finalize(call, self._tear_down)
        return call

    def _let_pass(self, *, is_useless: bool) -> None:
        """Set how many calls are not looked at, once all that a call does has been given up."""
        is_useless = (
            is_useless
            and not self.recorder.turns.is_unseen
            and all(one.refused for one in self.regions)
        )
        self._useless = min(2 * self._useless + 1, _MOST_PASSED) if is_useless else 0
        self._passes = self._useless

    def _set_up(self) -> None:
        """Make what outlives the calls of a function."""
        log = Log(debug=self.debug)
        timeline = Timeline(time.perf_counter())
        for sequence in self.sequences:
            sequence.log = log
        for region in self.regions:
            region.log = log
        self.recorder = Recorder(
            threshold=self.threshold,
            min_calls=self.min_calls,
            mode=cast("Any", self.mode),
            only_faster=self.only_faster,
            roots=self.roots,
            sequences=self.sequences,
            log=log,
            timeline=timeline,
        )
        self.report = HotpathReport(
            self.sequences, self.regions, self.recorder.reasons, log, timeline
        )
        if not self.is_on:
            log.add("OFF", f"{AUTO} switches it off")
            return
        self.optimizers = OptimizerSteps(
            self, self.recorder, self.regions.append, cast("Any", self.mode)
        )
        self._hooks = (
            register_optimizer_step_pre_hook(self.optimizers.see),
            register_optimizer_step_post_hook(self.optimizers.end_first),
        )
        _patch()

    def _tear_down(self) -> None:
        """Undo ``_set_up``."""
        _unpatch()
        for hook in self._hooks:
            hook.remove()
        self.optimizers.give_back()
        unused = sorted(set(self.rules) - self.entered)
        self.report.unused = tuple(unused)
        for name in unused:
            self.recorder.log.add(
                "UNUSED", f"no boundary {name!r} was entered; entered: {sorted(self.entered)}"
            )

    def _open(self) -> None:
        add_settler(self._settle)
        _active.block = self
        self._is_open = True
        self.recorder.open()

    def _shut(self) -> None:
        try:
            self.optimizers.forget_first()
            self.recorder.close()
        finally:
            self._is_open = False
            _active.block = None
            remove_settler(self._settle)

    def _settle(self) -> None:
        if self.recorder.is_here():
            self.recorder.settle(is_watching=True)
            return
        # Another thread reads, in which another block may be open.
        own = _active.block
        with own.recorder.aside() if own is not None else contextlib.nullcontext():
            self.recorder.settle_elsewhere()


class _Active(threading.local):
    block: auto | None = None


_active: Final = _Active()


def start_for_process() -> None:
    """Open a block until the end of the process, if the environment asks for it.

    A variable with nonsense does not stop a program at this import; ``auto`` refuses it.
    """
    try:
        is_wanted = read_settings(os.environ).auto
    except SpecError as error:
        warnings.warn(f"no block is opened: {error} ({error.hint})", RuntimeWarning, stacklevel=2)
        return
    if not is_wanted or _active.block is not None:
        return
    block = auto()
    block.is_of_process = True
    block.__enter__()

    def stop() -> None:
        if _active.block is block:
            block.__exit__()
        if block.debug:
            sys.stderr.write(f"{block.report}\n")

    atexit.register(stop)


# --- what modes do not see, or see too late ------------------------------------------------------

_backward: Final = torch.autograd.backward
_tensor_backward: Final = torch.Tensor.backward
_apply: Final = torch.autograd.Function.__dict__["apply"]
_parameter: Final = torch.nn.Parameter.__new__
_has_function: Final = torch.overrides.has_torch_function
_OVERRIDES: Final = vars(torch.overrides)  # Dynamo traces what names a module of PyTorch
# Dynamo's table, by which it knows that function, is made at first use: that may be in a block.
torch._dynamo.variables.torch.TorchInGraphFunctionVariable._get_handlers()  # noqa: SLF001
_patched = 0


@functools.wraps(_backward)
def _settled_backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
    return _differentiate(_backward, tensors, args, kwargs)


@functools.wraps(_tensor_backward)
def _settled_tensor_backward(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    # Through the mode, it would cost a tenth of a small backward pass.
    return _differentiate(_tensor_backward, self, args, kwargs)


def _differentiate(
    backward: Callable[..., Any], losses: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run a backward pass after what is pending; ``args`` are those behind the losses."""
    block = _active.block
    if block is None or block.recorder.paused:
        return backward(losses, *args, **kwargs)
    recorder = block.recorder
    if recorder.is_resting and not args and not kwargs:  # nothing waits
        recorder.turns.differentiate(losses)
        recorder.end_differentiated()
        recorder.paused += 1
        try:
            return backward(losses)
        finally:
            recorder.paused -= 1
            recorder.wake()
    if isinstance(losses, torch.Tensor | GradientEdge):
        several: Any = (losses,)
    elif isinstance(losses, list | tuple):
        several = losses
    else:  # a generator, of which each loss comes once
        losses = several = tuple(losses)
    if kwargs.get("create_graph") or any(args[2:3]):
        recorder.is_differentiating_twice = True
    with recorder.aside():  # all of it: asking for the size would be a call of the program
        # The graph is freed, and nothing can change a tensor before it is used, nor raise.
        is_last = (
            (not args or all(one is None or one is False for one in args))
            and (not kwargs or all(one is None or one is False for one in kwargs.values()))
            and len(several) == 1
            and isinstance(several[0], torch.Tensor)
            and several[0].numel() == 1
        )
        recorder.differentiate(losses, several[0] if is_last else None)
        recorder.end_differentiated()
        return backward(losses, *args, **kwargs)


def _settled_apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
    block = _active.block
    if block is None or block.recorder.paused:
        return _apply.__get__(None, cls)(*args, **kwargs)
    block.recorder.end_segment()
    with block.recorder.aside():
        return _apply.__get__(None, cls)(*args, **kwargs)


def _settled_parameter(cls: Any, data: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Make a parameter; of another class of tensors than its own, PyTorch makes no Parameter."""
    block = _active.block
    if block is not None and type(data) is Pending:
        block.recorder.settle()
    return _parameter(cls, data, *args, **kwargs)


def _has_torch_function(args: Any) -> bool:
    """Return what PyTorch's own would without our mode.

    Transformers and attention choose by it whether they take their fast path, which gives other
    values: zeros where a sequence is padded.
    """
    if torch.compiler.is_compiling():
        return bool(_has_function(args))
    block = _active.block
    if block is None or not is_top(block.recorder):
        return bool(_has_function(args))
    pop_mode()
    try:
        return bool(_has_function([one for one in args if type(one) is not Pending]))
    finally:
        push_mode(block.recorder)


torch.jit._builtins._register_builtin(_has_torch_function, "aten::has_torch_function")  # noqa: SLF001


def _settled(enter: Callable[P, R]) -> Callable[P, R]:
    """Return what enters a state in which calls that wait could not run as they would have."""

    @functools.wraps(enter)
    def settled(*args: P.args, **kwargs: P.kwargs) -> R:
        block = _active.block
        if block is not None and not block.recorder.is_passing:
            block.recorder.settle()
        return enter(*args, **kwargs)

    return settled


def _without_mode(switch: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return what switches Dynamo on and off, which would trace our mode with the program.

    One frame does both, around a call. What it calls may switch Dynamo off and on again.
    """

    @functools.wraps(switch)
    def switched(callback: Any) -> Any:
        block = _active.block
        if block is not None:
            caller = sys._getframe(1)  # noqa: SLF001
            if block.in_dynamo is not None:
                if id(caller) == block.in_dynamo[0] and not callable(callback):
                    block.in_dynamo[1].__exit__()
                    block.in_dynamo = None
                    _OVERRIDES["has_torch_function"] = _has_torch_function
            elif (
                callable(callback)
                and not block.recorder.paused
                and caller.f_code.co_name in ("compile_wrapper", "_fn")
            ):
                block.recorder.end_segment()
                block.in_dynamo = id(caller), block.recorder.aside()
                block.in_dynamo[1].__enter__()
                # Its guards would compile again for another function.
                _OVERRIDES["has_torch_function"] = _has_function
        return switch(callback)

    return switched


_enter_hooks: Final = torch.autograd.graph.saved_tensors_hooks.__enter__
_exit_hooks: Final = torch.autograd.graph.saved_tensors_hooks.__exit__


@functools.wraps(_enter_hooks)
def _paused_enter_hooks(self: torch.autograd.graph.saved_tensors_hooks) -> None:
    """Record nothing while hooks hold, where this release does not say that they do."""
    block = _active.block
    if block is not None:
        block.recorder.end_segment()
    _enter_hooks(self)  # raises where such hooks are disabled
    if block is not None:
        block.recorder.paused += 1
        self.__dict__["_hotpath_recorder"] = block.recorder


@functools.wraps(_exit_hooks)
def _paused_exit_hooks(self: torch.autograd.graph.saved_tensors_hooks, *error: object) -> None:
    _exit_hooks(self, *error)
    recorder = self.__dict__.pop("_hotpath_recorder", None)
    if recorder is not None:
        recorder.paused -= 1


_begin_capture: Final = torch.cuda.CUDAGraph.capture_begin
_end_capture: Final = torch.cuda.CUDAGraph.capture_end


@functools.wraps(_begin_capture)
def _paused_begin_capture(self: torch.cuda.CUDAGraph, *args: Any, **kwargs: Any) -> None:
    """Record nothing while a CUDA graph is captured: what waits would not be part of it."""
    block = _active.block
    if block is not None:
        block.recorder.end_segment()
    _begin_capture(self, *args, **kwargs)  # raises where nothing can be captured
    if block is not None:
        block.recorder.paused += 1
        _capturing[self] = block.recorder


@functools.wraps(_end_capture)
def _paused_end_capture(self: torch.cuda.CUDAGraph) -> None:
    try:
        _end_capture(self)
    finally:
        recorder = _capturing.pop(self, None)
        if recorder is not None:
            recorder.paused -= 1


_capturing: Final[weakref.WeakKeyDictionary[torch.cuda.CUDAGraph, Any]] = (
    weakref.WeakKeyDictionary()
)


def _ended(enter: Callable[P, R]) -> Callable[P, R]:
    """Return what changes or awaits the order of a GPU's work, after what is pending."""

    @functools.wraps(enter)
    def ended(*args: P.args, **kwargs: P.kwargs) -> R:
        block = _active.block
        if block is not None and not (block.recorder.is_passing or block.recorder.paused):
            block.recorder.end_segment()
        return enter(*args, **kwargs)

    return ended


# What orders the work of a GPU beside the calls themselves.
_ORDERS: Final = (
    *((torch.cuda, name) for name in ("set_stream", "synchronize")),
    *((torch.cuda.Event, name) for name in ("record", "wait", "query", "synchronize")),
    *((torch.cuda.Stream, name) for name in ("wait_event", "wait_stream", "record_event")),
    *((torch.cuda.Stream, name) for name in ("query", "synchronize")),
    (torch.cuda.CUDAGraph, "replay"),
)


# What of a group of processes reads or writes tensors.
_COLLECTIVES: Final = (
    "all",
    "_allgather",
    "broadcast",
    "gather",
    "scatter",
    "reduce",
    "_reduce",
    "send",
    "recv",
)


def _unseen() -> list[tuple[Any, str]]:
    """Return a place and a name for what C++ does with tensors and no mode of functions sees."""
    found: list[tuple[Any, str]] = [
        (torch._C.ScriptFunction, "__call__"),  # noqa: SLF001
        (torch._C.ScriptMethod, "__call__"),  # noqa: SLF001
        # What holds tensors where nobody sees that they are in use.
        (torch._C.ScriptObject, "setattr"),  # noqa: SLF001
        *(
            (torch._C.ScriptList, name)  # noqa: SLF001
            for name in ("__init__", "__setitem__", "append", "extend", "insert")
        ),
        *((torch._C.ScriptDict, name) for name in ("__init__", "__setitem__")),  # noqa: SLF001
        # Memory that is read, written, freed or moved, past the tensors that have it.
        *(
            (torch.UntypedStorage, name)
            for name in ("__getitem__", "__setitem__", "fill_", "copy_", "resize_")
        ),
    ]
    if torch.distributed.is_available():
        group = torch._C._distributed_c10d.ProcessGroup  # noqa: SLF001
        found += [(group, name) for name in dir(group) if name.startswith(_COLLECTIVES)]
    return found


def _replacements() -> list[tuple[Any, str, Any, Any]]:
    """Return a place, a name, what is there, and what is there while there are blocks."""
    hooks = torch.autograd.graph.saved_tensors_hooks
    replaced: list[tuple[Any, str, Any]] = [(torch.autograd, "backward", _settled_backward)]
    if top_hooks is None:
        replaced += [(hooks, "__enter__", _paused_enter_hooks)]
        replaced += [(hooks, "__exit__", _paused_exit_hooks)]
    # Inference, hooks on what autograd saves, modes of the program, transforms of functions.
    transforms = torch._functorch.eager_transforms  # noqa: SLF001
    for place, name in (
        (torch.inference_mode, "__enter__"),
        *(((hooks, "__enter__"),) if top_hooks is not None else ()),
        (torch.overrides.TorchFunctionMode, "__enter__"),
        (torch.utils._device.DeviceContext, "__enter__"),  # noqa: SLF001
        # Before it notes which modes there are.
        (torch.utils._python_dispatch.TorchDispatchMode, "__enter__"),  # noqa: SLF001
        (torch._functorch.vmap, "_vmap_increment_nesting"),  # noqa: SLF001
        (transforms, "_grad_increment_nesting"),
        (transforms, "_jvp_increment_nesting"),
        (transforms, "_func_increment_nesting"),
    ):
        replaced.append((place, name, _settled(getattr(place, name))))
    replaced += [(place, name, _ended(getattr(place, name))) for place, name in _ORDERS]
    # The inputs of a checkpoint: it keeps the memory that a tensor has when it is called.
    replaced += [
        (place, "_make_saved_tensor", _settled(place._make_saved_tensor))  # noqa: SLF001
        for place in (torch._C._autograd, torch.utils.checkpoint)  # noqa: SLF001
        if hasattr(place, "_make_saved_tensor")
    ]
    replaced += [(torch.overrides, "has_torch_function", _has_torch_function)]
    # It refuses tensors of which weak references exist, such as those of the record.
    replaced += [(torch.utils, "swap_tensors", _ended(torch.utils.swap_tensors))]
    replaced += [(torch.cuda.CUDAGraph, "capture_begin", _paused_begin_capture)]
    replaced += [(torch.cuda.CUDAGraph, "capture_end", _paused_end_capture)]
    dynamo = torch._dynamo.eval_frame  # noqa: SLF001
    for name in ("set_eval_frame", "_maybe_set_eval_frame"):
        if hasattr(dynamo, name):
            replaced.append((dynamo, name, _without_mode(getattr(dynamo, name))))
    return [
        *((place, name, getattr(place, name), new) for place, name, new in replaced),
        (torch.autograd.Function, "apply", _apply, classmethod(_settled_apply)),
    ]


_REPLACED: Final = _replacements()


def _see_sign(code: types.CodeType, _offset: int) -> None:
    block = _active.block
    if block is not None:
        recorder = block.recorder
        if not recorder.paused:
            recorder.see_sign(identity(code))


def _patch() -> None:
    global _patched  # noqa: PLW0603  (of the process, as what it counts)
    with _lock:
        if not _patched:
            # These stay: after a change of a class, Python looks up all its methods again, which
            # would cost each block a tenth of a small step.
            if torch.Tensor.backward is not _settled_tensor_backward:
                torch.Tensor.backward = _settled_tensor_backward
                torch.nn.Parameter.__new__ = staticmethod(_settled_parameter)
                for place, name in _unseen():
                    setattr(place, name, _ended(getattr(place, name)))
            for place, name, _, new in _REPLACED:
                setattr(place, name, new)
            watch_signs(_see_sign)
        _patched += 1


def _unpatch() -> None:
    global _patched  # noqa: PLW0603
    with _lock:
        _patched -= 1
        if not _patched:
            for place, name, old, _ in _REPLACED:
                setattr(place, name, old)
            unwatch_signs()


_lock: Final = threading.Lock()


# --- boundaries ----------------------------------------------------------------------------------


class boundary:  # noqa: N801  (as auto)
    """Name a part of a program: a block, a function or a module.

    Sequences begin and end with a block, and are counted separately in it. ``torch.compile``
    compiles a whole function or module after N calls with arguments of the same properties.

    Args:
        name: Name in the report, and in rules in YAML.
        compile: ``True`` compiles at the second occurrence, ``False`` never. A rule in YAML
            overrides this value.

    Raises:
        SpecError: If the name is empty, or ``compile`` has another value.
    """

    def __init__(
        self,
        name: str,
        *,
        compile: bool | None = None,  # noqa: A002  (as in YAML)
    ) -> None:
        if not name or not isinstance(name, str):
            raise SpecError(f"hotpath.boundary: a name must be a text (got {name!r:.60})")
        if type(compile) not in {bool, type(None)}:
            raise SpecError(
                f"hotpath.boundary: compile must be True, False or None (got {compile!r:.60})"
            )
        self.name = name
        self.compile = compile
        self._outer: list[tuple[auto, str, int | None, bool]] = []

    def __enter__(self) -> None:
        block = _active.block
        if block is None:
            return
        recorder = block.recorder
        recorder.end_segment()
        rule = self._rule(block)
        self._outer.append((block, recorder.boundary, recorder.boundary_threshold, rule is False))
        recorder.paused += rule is False
        recorder.enter(self.name, 1 if rule else None)

    def __exit__(self, *_: object) -> None:
        if not self._outer:
            return
        block, name, threshold, was_paused = self._outer.pop()
        block.recorder.end_segment()
        block.recorder.paused -= was_paused
        block.recorder.enter(name, threshold)

    def __call__(self, function: T) -> T:
        """Return the function or module, to be compiled as a whole once it is hot."""
        if isinstance(function, torch.nn.Module):
            module: torch.nn.Module = function
            module.__dict__["forward"] = _Forward(self, module)
            return function
        regions = ByBlock()

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(function, regions, args, kwargs)

        return cast("T", call)

    def __deepcopy__(self, _memo: Any) -> boundary:
        return self

    def _rule(self, block: auto) -> bool | None:
        block.entered.add(self.name)
        rule = block.rules.get(self.name)
        return self.compile if rule is None else rule.compile

    def _call(
        self,
        function: Callable[..., Any],
        regions: ByBlock,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        block = _active.block
        if block is None or block.recorder.paused or torch.compiler.is_compiling():
            return function(*args, **kwargs)
        recorder = block.recorder
        recorder.end_segment()
        rule = self._rule(block)
        known = regions.of(block)
        if known is None:
            region = Region(self.name, cast("Any", block.mode), recorder.log)
            known = region, RegionCode(function)
            regions.add(block, known)
            block.regions.append(region)
            if rule is False:
                region.refuse("compile: false", "OFF")
        region, code = known
        with recorder.aside():
            outer, recorder.boundary_threshold = recorder.boundary_threshold, 1 if rule else None
            try:
                return region.call(recorder, code, key_of_arguments(args, kwargs), args, kwargs)
            finally:
                recorder.boundary_threshold = outer


class _Forward:
    """Runs a module that is a boundary; an attribute of the module, copied and pickled with it."""

    def __init__(self, mark: boundary, module: torch.nn.Module) -> None:
        self.mark = mark
        self.module = module
        self.regions = ByBlock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it, compiled once it is hot."""
        forward = types.MethodType(type(self.module).forward, self.module)
        return self.mark._call(forward, self.regions, args, kwargs)  # noqa: SLF001
