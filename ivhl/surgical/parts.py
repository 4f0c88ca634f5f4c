"""The parts of a model: classes of its modules, and functions that it looks up by name.

A model is run twice. The first pass, under ``sys.setprofile``, finds the functions and methods of
the model's own packages that are called with tensors. In the second one each of them is replaced,
in every module or class that holds it, by one that remembers what it was called with; so is each
module, by hooks.
"""

from __future__ import annotations

import inspect
import random
import sys
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from ivhl.measure.draws import same
from ivhl.measure.leaves import Leaves, leaves_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import CodeType, FrameType

FOREIGN: Final = frozenset({"torch", "builtins"})
DRAWS: Final = "draws random numbers"
READ: Final = "_local_scalar_dense"  # what `item()` and `bool()` of a tensor call
# Values whose state nobody can change: they are passed again as they are.
_FIXED: Final = (bool, int, float, complex, str, bytes, type(None), type, torch.dtype)


class NamePlace(NamedTuple):
    """Where code looks a function up: a module or a class, and the name in it."""

    holder: ModuleType | type
    name: str

    @property
    def home(self) -> str:
        """The module to import."""
        return self.holder.__module__ if isinstance(self.holder, type) else self.holder.__name__

    @property
    def path(self) -> str:
        """The place as code writes it, after the import."""
        inside = f"{self.holder.__qualname__}." if isinstance(self.holder, type) else ""
        return f"{self.home}.{inside}{self.name}"


@dataclass(frozen=True, slots=True)
class PartCall:
    """A module or a function, and what the model called it with."""

    target: Callable[..., Any]
    arguments: tuple[Any, ...]
    named: dict[str, Any]


@dataclass(slots=True)
class Part:
    """What is timed together: all modules of a class, or one function.

    Attributes:
        name: Of the class or the function; with its module where two have the same.
        target: The class or the function.
        calls: In the order of the forward pass.
        inside: Classes and functions that were called while this one ran.
        places: Where the model looks the function up; none for modules.
        refused: Why it cannot be compared, or compiled in place of what it is.
        seconds: Of a function: how long its calls took while they were profiled.
    """

    name: str
    target: Any
    calls: list[PartCall] = field(default_factory=list)
    inside: set[Any] = field(default_factory=set)
    places: list[NamePlace] = field(default_factory=list)
    refused: str = ""
    seconds: float = 0.0

    @property
    def is_function(self) -> bool:
        """Whether it is a function; else a class of modules."""
        return isinstance(self.target, FunctionType)

    @property
    def code(self) -> tuple[str, ...]:
        """What one writes to compile it, line by line."""
        if not self.is_function:
            path = NamePlace(self.target, "").path.removesuffix(".")
            if not _has_its_name(self.target):
                return (
                    "for module in model.modules():",
                    f'    if str(type(module)) == "{self.target}":',
                    "        module.compile()",
                )
            return (
                f"import {self.target.__module__}",
                "for module in model.modules():",
                f"    if type(module) is {path}:",
                "        module.compile()",
            )
        first, *others = self.places
        return (
            *dict.fromkeys(f"import {place.home}" for place in self.places),
            f"{first.path} = torch.compile({first.path})",
            *(f"{other.path} = {first.path}" for other in others),
        )

    @property
    def n_modules(self) -> int:
        """How many modules of the class were called."""
        return 0 if self.is_function else len({id(call.target) for call in self.calls})


def _has_its_name(kind: type) -> bool:
    """Return whether code can name a class: not one of a function, or that was made at run time."""
    found: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is kind


class FoundParts(NamedTuple):
    """The parts by name, and functions that take long but are not called by a name."""

    parts: dict[str, Part]
    out_of_reach: tuple[str, ...]


def find_parts(model: nn.Module, run: Callable[[], object], least_share: float) -> FoundParts:
    """Return the parts of a model; the model itself is none.

    Args:
        model: The model.
        run: Calls it on its inputs, always from the same state.
        least_share: Of a pass, below which a function out of reach is not worth naming.
    """
    profile = profile_functions(model, run)
    places = _places(model, set(profile.seconds))
    recorder = _Recorder()
    with ExitStack() as stack:
        stack.enter_context(recorder.hooks(model))
        replacements = {
            place: recorder.recording(function, place)
            for function, held in places.items()
            for place in held
        }
        stack.enter_context(swapped(replacements))
        run()
    parts = recorder.named()
    reached = set()
    for part in parts.values():
        code = code_of(part.target) if part.is_function else None
        if code is not None:
            reached.add(code)
            part.seconds = profile.seconds[code]
    return FoundParts(
        parts,
        tuple(
            f"{profile.modules[code]}.{code.co_name}"
            for code, seconds in profile.seconds.items()
            if code not in reached
            and code.co_qualname == code.co_name
            and seconds >= least_share * profile.total_s
        ),
    )


@contextmanager
def swapped(replacements: Mapping[NamePlace, Callable[..., Any]]) -> Iterator[None]:
    """Put functions where others are looked up, and those back at the end, also after an error."""
    before = {place: vars(place.holder)[place.name] for place in replacements}
    try:
        for place, replacement in replacements.items():
            setattr(place.holder, place.name, replacement)
        yield
    finally:
        for place, function in before.items():
            setattr(place.holder, place.name, function)


def kept(nest: Any) -> Any:  # noqa: ANN401  (any pytree)
    """Return a copy of a pytree; its tensors are leaves, and need gradients where they did."""
    return converted(nest, _kept_leaf)


def converted(nest: Any, convert: Callable[[Any], Any]) -> Any:  # noqa: ANN401  (any pytree)
    """Return a pytree of converted leaves; what was one leaf in two places is one again.

    A model may ask whether two of its inputs are the same tensor.
    """
    leaves, spec = tree_flatten(nest)
    made: dict[int, Any] = {}
    for leaf in leaves:
        if id(leaf) not in made:
            made[id(leaf)] = convert(leaf)
    return tree_unflatten([made[id(leaf)] for leaf in leaves], spec)


def _kept_leaf(leaf: Any) -> Any:  # noqa: ANN401
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return leaf.detach().clone().requires_grad_(leaf.requires_grad)


def random_state() -> tuple[Any, ...]:
    """Return the state of the random numbers of PyTorch and Python."""
    states = [torch.get_rng_state()]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states += torch.cuda.get_rng_state_all()
    return tuple(bytes(state.tolist()) for state in states), random.getstate()


@dataclass(slots=True)
class _Profile:
    """Inclusive seconds of each function that got a tensor, and the module that defines it."""

    seconds: dict[CodeType, float] = field(default_factory=dict)
    modules: dict[CodeType, str] = field(default_factory=dict)
    total_s: float = 0.0


def profile_functions(model: nn.Module, run: Callable[[], object]) -> _Profile:
    """Return which functions of the model's packages one pass calls with tensors."""
    own = _own_modules(model)
    found = _Profile()
    running: list[tuple[FrameType, float]] = []

    def watch(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and frame.f_globals.get("__name__") in own and _is_plain(code):
            if code in found.seconds or _gets_tensor(frame):
                found.seconds.setdefault(code, 0.0)
                found.modules[code] = frame.f_globals["__name__"]
                running.append((frame, time.perf_counter()))
        elif event == "return" and running and running[-1][0] is frame:
            found.seconds[code] += time.perf_counter() - running.pop()[1]

    before = sys.getprofile()
    began = time.perf_counter()
    sys.setprofile(watch)
    try:
        run()
    finally:
        sys.setprofile(before)
    found.total_s = time.perf_counter() - began
    return found


def _is_plain(code: CodeType) -> bool:
    """Return whether code is that of a function which returns when it has run, and has a name."""
    later = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    name = code.co_name
    return not (
        code.co_flags & later
        or name == "forward"  # that is its module
        or name.startswith(("<", "__"))
        or "<locals>" in code.co_qualname
    )


def _gets_tensor(frame: FrameType) -> bool:
    code = frame.f_code
    n_names = code.co_argcount + code.co_kwonlyargcount
    n_names += bool(code.co_flags & inspect.CO_VARARGS) + bool(
        code.co_flags & inspect.CO_VARKEYWORDS
    )
    local = frame.f_locals
    given = [local.get(name) for name in code.co_varnames[:n_names]]
    return any(isinstance(leaf, torch.Tensor) for leaf in tree_flatten(given)[0])


def _own_modules(model: nn.Module) -> dict[str, ModuleType]:
    """Return the imported modules of the packages from which the model's classes come.

    A module that belongs to no package brings those beside it: a project without a package.
    """
    packages = {type(module).__module__.partition(".")[0] for module in model.modules()} - FOREIGN
    beside = {
        Path(file).parent
        for name in packages
        if not hasattr(sys.modules.get(name), "__path__")
        and (file := getattr(sys.modules.get(name), "__file__", None))
    }
    return {
        name: module
        for name, module in sys.modules.copy().items()
        if name.partition(".")[0] in packages
        or ("." not in name and Path(vars(module).get("__file__") or "/").parent in beside)
    }


def _places(model: nn.Module, called: set[CodeType]) -> dict[FunctionType, list[NamePlace]]:
    """Return the functions that were called, each with the places that hold it."""
    holders: list[ModuleType | type] = [*dict.fromkeys(_own_modules(model).values())]
    classes = dict.fromkeys(kind for module in model.modules() for kind in type(module).__mro__)
    holders += [
        kind
        for kind in classes
        if kind.__module__.partition(".")[0] not in FOREIGN and "<" not in kind.__qualname__
    ]
    found: dict[FunctionType, list[NamePlace]] = {}
    for holder in holders:
        for name, value in list(vars(holder).items()):
            if isinstance(value, FunctionType) and code_of(value) in called:
                found.setdefault(value, []).append(NamePlace(holder, name))
    return found


def code_of(function: FunctionType) -> CodeType | None:
    """Return the code that runs in the end, below decorators; ``None`` if it is not Python's."""
    inner = inspect.unwrap(function)
    return inner.__code__ if isinstance(inner, FunctionType) else None


class _Recorder:
    """Remembers what modules and functions are called with, and which ones inside of others."""

    def __init__(self) -> None:
        self.parts: dict[Any, Part] = {}
        self._running: list[Part] = []
        self._watched: list[tuple[Part, Any, Any]] = []
        self._recorded: dict[Callable[..., Any], FunctionType] = {}

    @contextmanager
    def hooks(self, model: nn.Module) -> Iterator[None]:
        """Remember the calls of all modules inside a model."""
        states: list[tuple[Any, ...]] = []  # of random numbers, where each running call began

        def enter(module: nn.Module, arguments: Any, named: Any) -> None:  # noqa: ANN401
            part = self._enter(type(module), type(module).__name__)
            part.calls.append(PartCall(module, *self._kept((arguments, named))))
            states.append(random_state())

        def leave(*_: object) -> None:
            part = self._running.pop()
            if random_state() != states.pop():
                part.refused = DRAWS

        with ExitStack() as stack:
            for module in model.modules():
                if module is not model:
                    for handle in (
                        module.register_forward_pre_hook(enter, with_kwargs=True),
                        module.register_forward_hook(leave, always_call=True),
                    ):
                        stack.callback(handle.remove)
            yield

    def recording(self, function: FunctionType, place: NamePlace) -> Callable[..., Any]:
        """Return a function that remembers the calls at one place, and calls the original."""

        @wraps(function)
        def record(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
            part = self._enter(function, function.__name__)
            if place not in part.places:
                part.places.append(place)
            before, state = self._kept((arguments, named)), random_state()
            part.calls.append(PartCall(function, *before))
            self._watched += [(part, o, contents_of(o)) for o in objects_in((arguments, named))]
            try:
                returned = function(*arguments, **named)
            finally:
                self._running.pop()
            if random_state() != state:
                part.refused = part.refused or DRAWS
            if not alike(before, (arguments, named)):
                part.refused = part.refused or "changes its arguments"
            if isinstance(returned, (float, complex)) or not taken_apart(returned).tensors:
                part.refused = part.refused or "returns no tensor"
            return returned

        self._recorded[record] = function
        return record

    def _kept(self, nest: Any) -> Any:  # noqa: ANN401  (any pytree)
        """Return a copy as ``kept``, with the functions themselves in the place of ours."""

        def keep(leaf: Any) -> Any:  # noqa: ANN401
            if isinstance(leaf, MethodType):
                function: Any = self._recorded.get(leaf.__func__, leaf.__func__)
                return MethodType(function, leaf.__self__)
            if isinstance(leaf, FunctionType):
                return self._recorded.get(leaf, leaf)
            return _kept_leaf(leaf)

        return converted(nest, keep)

    def named(self) -> dict[str, Part]:
        """Return all parts by name, those of one name with their modules before it."""
        for part, leaf, before in self._watched:
            if contents_of(leaf) != before:
                part.refused = part.refused or f"gets a {type(leaf).__name__} that changes"
        names = Counter(part.name for part in self.parts.values())
        for part in self.parts.values():
            if names[part.name] > 1:
                path = f"{part.target.__module__}.{part.name}"
                part.name = part.places[0].path if part.places else path
        return {part.name: part for part in self.parts.values()}

    def _enter(self, target: Any, name: str) -> Part:  # noqa: ANN401
        part = self.parts.setdefault(target, Part(name, target))
        for outer in self._running:
            outer.inside.add(target)
        self._running.append(part)
        return part


def objects_in(nest: Any) -> list[Any]:  # noqa: ANN401  (any pytree)
    """Return the objects of a pytree that a call may change unseen, such as a cache."""
    return [
        leaf
        for leaf in tree_flatten(nest)[0]
        if not isinstance(leaf, (torch.Tensor, nn.Module, *_FIXED)) and not callable(leaf)
    ]


def taken_apart(value: Any) -> Leaves:  # noqa: ANN401
    """Return the leaves of a value; none of one that cannot be taken apart, such as a module."""
    try:
        return leaves_of(value)
    except Exception:  # noqa: BLE001  (attributes of any object)
        return Leaves({}, {"": type(value).__name__}, {})


def contents_of(value: object) -> str:
    """Return what an object holds, as text that is equal where all of it is."""
    found = taken_apart(value)
    tensors = [(path, tensor.tolist()) for path, tensor in found.tensors.items()]
    return repr((tensors, found.others))


def alike(one: Any, other: Any) -> bool:  # noqa: ANN401  (pytrees)
    """Return whether two pytrees have the same structure and equal tensors."""
    (ones, spec), (others, other_spec) = tree_flatten(one), tree_flatten(other)
    return spec == other_spec and all(
        same(a, b) for a, b in zip(ones, others, strict=True) if isinstance(a, torch.Tensor)
    )


def reads_numbers(function: Callable[..., Any], call: PartCall) -> bool:
    """Return whether what a function returns besides tensors may depend on the numbers it gets.

    It is called again with each tensor's numbers in the opposite order, and watched for reads of a
    single number such as ``item()``.
    """
    expected = _no_tensors(function(*kept(call.arguments), **kept(call.named)))
    if not any(value is not None for value in expected):
        return False
    leaves, spec = tree_flatten((call.arguments, call.named))
    arguments, named = tree_unflatten([_turned(leaf) for leaf in leaves], spec)
    reads = _Reads()
    try:
        with reads:
            other = _no_tensors(function(*arguments, **named))
    except Exception:  # noqa: BLE001  (whatever other numbers make it raise)
        return True
    return reads.seen or other != expected


def _no_tensors(returned: Any) -> list[Any]:  # noqa: ANN401
    floats = [leaf for leaf in tree_flatten(returned)[0] if isinstance(leaf, (float, complex))]
    return [*floats, *taken_apart(returned).others.values()]


def _turned(leaf: Any) -> Any:  # noqa: ANN401
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return leaf.detach().flatten().flip(0).reshape(leaf.shape)


class _Reads(TorchDispatchMode):  # type: ignore[misc]
    """Notes whether a single number of a tensor is read."""

    seen = False

    def __torch_dispatch__(
        self,
        operation: Any,  # noqa: ANN401
        types: Any,  # noqa: ANN401
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        """Run the operation."""
        del types
        self.seen |= operation is getattr(torch.ops.aten, READ).default
        return operation(*args, **(kwargs or {}))
