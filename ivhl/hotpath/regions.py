"""Functions, modules and optimizer steps that are compiled as a whole once they are hot."""

from __future__ import annotations

import functools
import inspect
import time
import types
import weakref
from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from ivhl.compile import compile_report, get_compiled
from ivhl.hotpath.calls import UndescribableError, Wiring
from ivhl.hotpath.sequence import LEAST_TOLD, slower
from ivhl.hotpath.surroundings import set_grad_enabled
from ivhl.hotpath.updates import StepGraph

if TYPE_CHECKING:
    from collections.abc import Callable

    from ivhl.compile import Mode
    from ivhl.hotpath.log import Log
    from ivhl.hotpath.recorder import Recorder

_SAMPLES: Final = 200
_MOST_KEYS: Final = 256
_is_profiled: Final = torch.autograd._profiler_enabled  # noqa: SLF001
_KNOWN: Final = "_hotpath_blocks"  # the attribute of an optimizer
_PLAIN: Final = frozenset({float, int, bool, type(None)})  # most hyperparameters
_NOT_BY_DYNAMO: Final = (torch.optim.LBFGS, torch.optim.SparseAdam)


@dataclass(eq=False, slots=True)
class RegionCode:
    """What a region runs; whoever calls it has this, so that the block keeps nothing alive.

    Attributes:
        plain: The callable.
        subject: The optimizer whose step it is, or ``None``.
        compiled: The compiled callable, once it is hot.
        steps: What calls the graph of a step past Dynamo's guards.
    """

    plain: Callable[..., Any]
    subject: torch.optim.Optimizer | None = None
    compiled: Callable[..., Any] | None = None
    steps: StepGraph | None = None

    def compile(self, mode: Mode) -> Callable[..., Any]:
        """Return the compiled callable."""
        if self.compiled is None:
            if self.subject is not None:
                self.steps = StepGraph(self.subject, mode)
            backend = None if self.steps is None else self.steps.backend()
            self.compiled = get_compiled(self.plain, mode=mode, dynamic=False, backend=backend)
        return self.compiled


@dataclass(eq=False)
class Region:
    """A callable that is counted, and compiled with ``torch.compile`` once it is hot.

    Dynamo guards what it reads; the key only decides when it is worth compiling.

    Attributes:
        name: Of the boundary, or of the optimizer's step.
        hits: Calls that ran compiled.
        misses: Calls with another key than a hot one, after one was hot.
        refused: Why it is not compiled any more; empty if it is.
    """

    name: str
    mode: Mode
    log: Log
    hits: int = 0
    misses: int = 0
    refused: str = ""
    counts: dict[Any, int] = field(default_factory=dict)
    compile_s: list[float] = field(default_factory=list)
    eager_s: deque[float] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    compiled_s: deque[float] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    _ready: set[Any] = field(default_factory=set)

    @property
    def speedup(self) -> float | None:
        """Median eager seconds over median compiled ones."""
        if not self.eager_s or not self.compiled_s:
            return None
        return median(self.eager_s) / median(self.compiled_s)

    def call(
        self,
        recorder: Recorder,
        code: RegionCode,
        key: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Run eagerly and count, or compiled."""
        if self.is_hot(key, recorder.limit()):
            return self.run_compiled(recorder, code, key, args, kwargs)
        return self.run_eagerly(recorder, key, functools.partial(code.plain, *args, **kwargs))

    def is_hot(self, key: Any, threshold: int) -> bool:
        """Return whether a call with this key runs compiled."""
        return not self.refused and self.counts.get(key, 0) >= threshold

    def run_eagerly(self, recorder: Recorder, key: Any, run: Callable[[], Any]) -> Any:
        """Run, and count unless it is refused."""
        if self.refused:
            return run()
        begun = time.perf_counter()
        result = run()
        end = time.perf_counter()
        self.eager_s.append(end - begun)
        recorder.timeline.add(begun, end, "eager", self.name)
        self.count(key, recorder.limit())
        return result

    def run_compiled(  # noqa: PLR0917  (what a call is)
        self,
        recorder: Recorder,
        code: RegionCode,
        key: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        begun: float | None = None,
    ) -> Any:
        """Run the compiled callable; the first time with a key compiles it.

        Args:
            recorder: Of the block.
            code: What it runs.
            key: Of this call.
            args: Of the callable.
            kwargs: Of the callable.
            begun: When the program called it, if what came before belongs to the compiled run.
        """
        begun = begun or time.perf_counter()
        recorder.use_settings()
        is_first = key not in self._ready
        compiled = code.compile(self.mode)
        if is_first:
            kind = "RECOMPILE" if self._ready else "COMPILE"
            self.log.add(kind, f"starting {self.name}", self.name)
        if code.steps is None:
            result = compiled(*args, **kwargs)
        elif not code.steps.step(key, compiled):
            self.misses += 1
            return code.plain()
        else:
            result = None
        end = time.perf_counter()
        recorder.timeline.add(begun, end, "compile" if is_first else "compiled", self.name)
        if not is_first:
            self.hits += 1
            self.compiled_s.append(end - begun)
            if len(self.compiled_s) == max(recorder.threshold, LEAST_TOLD) and self.speedup:
                self.log.add("SPEEDUP", f"{self.name}: {self.speedup:.2f}x", self.name)
                if recorder.only_faster and (reason := slower(self.speedup)):
                    self.refuse(reason)
            return result
        self._ready.add(key)
        if cause := _cause(code.plain):
            self.refuse(cause)
            return result
        self.hits += 1
        seconds = end - begun
        self.compile_s.append(seconds)
        self.log.add("COMPILE", f"complete {self.name} in {seconds:.2f} s", self.name, seconds)
        return result

    def refuse(self, reason: str, kind: str = "REFUSED") -> None:
        """Run eagerly from now on."""
        self.refused = reason
        self.log.add(kind, f"{self.name}: {reason}", self.name)

    def count(self, key: Any, threshold: int) -> None:
        """Count an eager run."""
        if key not in self.counts and len(self.counts) >= _MOST_KEYS:
            self.refuse(f"its arguments changed more than {_MOST_KEYS} times")
            return
        count = self.counts[key] = self.counts.get(key, 0) + 1
        if self._ready:
            self.misses += 1
        if count == threshold:
            times = f"{count} times" if count > 1 else "once"
            self.log.add("DETECTED", f"{self.name} (ran {times})", self.name)


class ByBlock(dict[int, tuple[Any, Any]]):
    """What something has of each block; a copy of it, or what is read back, begins without.

    By ``id`` with a weak reference, since the first turn of each block waits for it.
    """

    def of(self, block: Any) -> Any:
        """Return what there is of a block, or ``None``."""
        reference, found = self.get(id(block), (None, None))
        return found if reference is not None and reference() is block else None

    def add(self, block: Any, value: Any) -> None:
        """Keep something of a block, and nothing of blocks that are gone."""
        for key in [key for key, (reference, _) in self.items() if reference() is None]:
            del self[key]
        self[id(block)] = weakref.ref(block), value

    def __deepcopy__(self, _memo: Any) -> ByBlock:
        return ByBlock()

    def __reduce__(self) -> tuple[Any, ...]:
        return ByBlock, ()


def _cause(function: Callable[..., Any]) -> str:
    """Return why ``ivhl.compile`` fell back to eager; empty if it did not."""
    name = f"{function.__module__}.{function.__qualname__}"
    found = (one.cause for one in compile_report().functions if one.name == name and one.fell_back)
    return next(found, "")


def key_of_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the facts of tensors among arguments, and other arguments by value or type."""
    try:
        return Wiring().describe(len, args, kwargs), torch.is_grad_enabled()
    except UndescribableError:
        return tuple(type(one).__name__ for one in (*args, *kwargs.values()))


# --- optimizers ----------------------------------------------------------------------------------


def hyperparameters(optimizer: torch.optim.Optimizer) -> Any:
    """Return what a compiled step has as constants.

    A schedule that changes one of them at each step would compile at each step.
    """
    key: list[Any] = []
    for group in optimizer.param_groups:
        for name, value in group.items():
            if type(value) in _PLAIN:
                key.append(value)
            elif name == "params":
                key.append(len(value))
            elif isinstance(value, torch.Tensor):
                key.append(name)
            else:
                key.append(value if value.__hash__ is not None else repr(value))
    return tuple(key)


class _Taken(NamedTuple):
    """What an optimizer has in itself: its region, and its own methods while ours are there."""

    region: Region
    code: RegionCode
    before: dict[str, Any]


class OptimizerSteps:
    """Takes the place of the steps of optimizers while a block is active."""

    def __init__(
        self,
        block: object,
        recorder: Recorder,
        add: Callable[[Region], None],
        mode: Mode,
    ) -> None:
        self.block = block
        self.recorder = recorder
        self.add = add
        self.mode = mode
        # An optimizer has in itself what is known of it, so that nothing keeps it alive.
        self.taken: list[weakref.ref[torch.optim.Optimizer]] = []
        self.first: tuple[Region, Any, Any] | None = None  # in its first step now

    def see(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
        """Notice an optimizer at its first step; a hook of ``torch.optim``.

        Returns:
            What the step is called with, if that has a closure.
        """
        known = optimizer.__dict__.get(_KNOWN)
        if known is None:
            known = optimizer.__dict__[_KNOWN] = ByBlock()
        taken = known.of(self.block)
        if taken is not None and taken.before:  # ours are there
            return None
        if self.recorder.paused or not self.recorder.is_here():
            return None
        if taken is None:
            taken = self._region_of(optimizer)
            known.add(self.block, taken)
            self.add(taken.region)
        self.taken.append(weakref.ref(optimizer))
        ours = {
            "step": self._step(optimizer, taken.region, taken.code),
            "zero_grad": self._zero_grad(optimizer),
        }
        for name, function in ours.items():
            taken.before[name] = optimizer.__dict__.get(name)
            optimizer.__dict__[name] = types.MethodType(function, optimizer)
        region = taken.region
        self.recorder.end_segment()
        self.recorder.has_optimizer = True
        self.recorder.turns.end()
        aside = self.recorder.aside()
        aside.__enter__()
        self.first = region, hyperparameters(optimizer), aside
        is_plain = len(args) == 1 and not kwargs  # the optimizer alone
        return None if is_plain else self._with_closure(args, kwargs)

    def _with_closure(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return what a step is called with; what a closure of it calls is recorded."""
        record = self.recorder.recording
        return (
            tuple([record(one) if callable(one) else one for one in args]),
            {name: record(one) if callable(one) else one for name, one in kwargs.items()},
        )

    def end_first(self, *_: Any) -> None:
        """Record again after the first step of an optimizer; a hook of ``torch.optim``.

        If the step raised, the next one does it.
        """
        if self.first is not None and self.recorder.is_here():
            region, key, aside = self.first
            self.first = None
            aside.__exit__()
            region.count(key, self.recorder.limit())

    def forget_first(self) -> None:
        """Leave out a first step that raised and did not end; the block ends."""
        if self.first is not None:
            self.first = None
            self.recorder.paused -= 1

    def give_back(self) -> None:
        """Restore the optimizers' own methods."""
        for reference in reversed(self.taken):
            optimizer = reference()
            if optimizer is None:
                continue
            methods = optimizer.__dict__[_KNOWN].of(self.block).before
            for name, before in methods.items():
                if before is None:
                    optimizer.__dict__.pop(name, None)
                else:
                    optimizer.__dict__[name] = before
            methods.clear()
        self.taken.clear()

    def _region_of(self, optimizer: torch.optim.Optimizer) -> _Taken:
        # The function without the wrapper of profiling and hooks, which breaks graphs.
        bare = inspect.unwrap(type(optimizer).step)

        def step() -> None:
            bare(optimizer)

        name = f"{type(optimizer).__name__}.step"
        region = Region(name, self.mode, self.recorder.log)
        if reason := _refusal_of(optimizer):
            region.refuse(reason)
        return _Taken(region, RegionCode(step, optimizer), {})

    def _step(
        self, optimizer: torch.optim.Optimizer, region: Region, code: RegionCode
    ) -> Callable[..., Any]:
        recorder, with_closure = self.recorder, self._with_closure
        plain = optimizer.step
        # PyTorch's wrapper, for hooks and the profiler, costs more than recording may.
        wrapper: Any = type(optimizer).step
        is_own = "step" not in optimizer.__dict__
        bare = wrapper.__wrapped__ if is_own and getattr(wrapper, "hooked", False) else None

        @functools.wraps(plain)
        def ours(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
            if recorder.paused or not recorder.is_here():
                return plain(*args, **kwargs)
            recorder.end_segment()
            begun = time.perf_counter()
            with recorder.aside():
                recorder.turns.end()
                if args or kwargs or _has_hooks(self):
                    args, kwargs = with_closure(args, kwargs)
                    return plain(*args, **kwargs)
                key = hyperparameters(self)
                if not region.is_hot(key, recorder.limit()):
                    run = (
                        plain if bare is None or _is_profiled() else functools.partial(bare, self)
                    )
                    return region.run_eagerly(recorder, key, run)
                self._opt_called = True  # what schedulers look at
                was_on = torch.is_grad_enabled()
                set_grad_enabled(False)
                try:
                    region.run_compiled(recorder, code, key, (), {}, begun)
                finally:
                    set_grad_enabled(was_on)
                    recorder.turns.leave_out_nodes()  # of the compiler
                return None

        return ours

    def _zero_grad(self, optimizer: torch.optim.Optimizer) -> Callable[..., Any]:
        recorder = self.recorder
        plain = optimizer.zero_grad
        is_own = "zero_grad" not in optimizer.__dict__
        is_torchs = is_own and type(optimizer).zero_grad is torch.optim.Optimizer.zero_grad

        @functools.wraps(plain)
        def ours(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
            if recorder.paused or not recorder.is_here():
                return plain(*args, **kwargs)
            is_usual = is_torchs and not args and not kwargs
            run = plain
            if is_usual and not _is_profiled():
                # As PyTorch's own, whose range for the profiler costs more than recording may.
                run = functools.partial(_drop_gradients, self)
            if recorder.is_resting:
                try:
                    return run(*args, **kwargs)
                finally:
                    recorder.wake()
            # Gradients that become None are no tensors that anything waiting reads.
            if not is_usual:
                recorder.end_segment()
            with recorder.aside():
                return recorder.pass_by(run, args, kwargs)

        return ours


def _drop_gradients(optimizer: torch.optim.Optimizer) -> None:
    for group in optimizer.param_groups:
        for one in group["params"]:
            if one.grad is not None:
                one.grad = None


def _refusal_of(optimizer: torch.optim.Optimizer) -> str:
    if isinstance(optimizer, _NOT_BY_DYNAMO):
        return "Dynamo does not compile this optimizer"
    replaced = optimizer.__dict__.get("step")
    if replaced is not None and not hasattr(replaced, "_wrapped_by_lr_sched"):
        return "the program has replaced its step"
    if any(group.get("differentiable") for group in optimizer.param_groups):
        return "its steps are differentiable"
    return ""


def _has_hooks(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether a step runs code of others; the block's own two hooks are none."""
    return bool(
        optimizer._optimizer_step_pre_hooks  # noqa: SLF001
        or optimizer._optimizer_step_post_hooks  # noqa: SLF001
        or len(_global_optimizer_pre_hooks) > 1
        or len(_global_optimizer_post_hooks) > 1
    )
