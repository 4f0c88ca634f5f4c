"""Workloads: declarations that can be read without torch.

Callables are named as ``"module:function"`` and resolved in the cell when they are needed. So
workloads can be listed, checked and selected without torch; a cell in which ``import torch`` fails
still yields a record per workload; and a module that fails to import affects only its own workload.
"""

from __future__ import annotations

import ast
import importlib
import os
import pkgutil
import sys
from collections.abc import Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from itertools import zip_longest
from operator import attrgetter
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, get_args

from ivhl.errors import SpecError, UnknownNameError
from ivhl.reading import UnreadError, arguments_of, holds_its_functions, name_of, read_file
from ivhl.records.record import Passes
from ivhl.records.text import is_printable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from ivhl.records.record import Reference

# What may stand in place of a reference of one's own, besides ``module:function``.
LEVELS: tuple[str, ...] = ("float64", "tolerance", "cosine")
Mode = Literal["default", "reduce-overhead", "max-autotune"]
MODES: tuple[Mode, ...] = ("default", "reduce-overhead", "max-autotune")
Dtype = Literal["float32", "float64", "bfloat16", "float16"]
Compiles = Literal["whole", "model", "parts"]
Engine = Literal["compile", "cuda-graph", "aotinductor", "torchscript", "hotpath", "eager"]
# Engines that capture the code with Dynamo; its counters must show that it did.
DYNAMO_ENGINES: frozenset[Engine] = frozenset({"compile", "cuda-graph"})
# Engines that compile with Inductor and leave a cache on disk for other processes.
INDUCTOR_ENGINES: frozenset[Engine] = frozenset(
    {"compile", "cuda-graph", "aotinductor", "hotpath"}
)
BACKEND: Final = "backend:"  # how an engine begins that is another back end of torch.compile
_LONGEST_NAME = 100
_MOST_VERSIONS = 10**9
_SHOWN_MISTAKES = 10
_HINT = (
    "correct the module: it only declares, and imports without torch; functions are named "
    "as 'module:function'"
)
_DECLARES = "a declaration only declares; the functions that it names may do this"
_ENDS = (
    'a module may not end the process that imports it; put this under `if __name__ == "__main__"`'
)


class ImportRefusedError(Exception):
    """A module does what no import may do; the text is a sentence without its subject."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """One way to run a workload, usually compiled.

    Attributes:
        name: Unique within the workload, e.g. ``naive-compiled``.
        call: ``"module:function"``; by default the workload's ``eager``, or what the harness does
            with its model.
        compiles: With ``"whole"`` the harness wraps the function in ``torch.compile``; with
            ``"model"``, and where the harness itself calls a model, it wraps the model and hands it
            to the function; with ``"parts"`` the function is called once with the compiler
            (``torch.compile`` with this variant's arguments) and returns the callable to time, so
            that it can choose which parts to compile.
        engine: The compiler (``ivhl.measure.engine``): ``torch.compile``; the same, captured in a
            CUDA graph by hand; ``torch.export`` with AOTInductor; a TorchScript trace;
            ``ivhl.hotpath``; or none, so that the code runs eagerly (another formulation, or another
            ``dtype``). ``backend:NAME`` is ``torch.compile`` with this ``backend``, which the entry
            points ``torch_dynamo_backends`` of an installed package may add.
        dtype: Floating dtype in which the variant runs; ``None`` means the workload's. The harness
            casts the inputs, but not those of the reference, so that rounding in the cast counts as
            an error of the variant.
        mode: ``mode=`` of ``torch.compile``.
        dynamic: ``dynamic=`` of ``torch.compile``. ``None``, PyTorch's own default, compiles static
            shapes first, and dynamic ones for sizes that were seen to change; ``False`` compiles
            static shapes only.
        fullgraph: Whether a single graph break fails the variant.
        devices: Device types that run the variant.
        prepare: ``"module:function"`` that converts the workload's inputs, in the variant's
            ``dtype``, to this variant's inputs, e.g. complex to real planes. Not timed.
        finish: ``"module:function"`` that converts this variant's output to the form of the
            reference. Not timed.
    """

    name: str
    call: str = ""
    compiles: Compiles = "whole"
    engine: Engine | str = "compile"
    dtype: Dtype | None = None
    mode: Mode = "default"
    dynamic: bool | None = None
    fullgraph: bool = False
    devices: tuple[str, ...] = ("cpu", "cuda")
    prepare: str | None = None
    finish: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """The operations, memory traffic and memory of a workload at one size.

    Attributes:
        flops: Floating point operations of the best known algorithm.
        bytes: Bytes that any algorithm must move: inputs read once, outputs written once.
        memory: Peak memory of a case in bytes, with eager and the float64 reference.
    """

    flops: float
    bytes: float
    memory: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """A benchmark that every cell runs. Pure data.

    Attributes:
        name: ``<room>.<function>``, e.g. ``ops.field_superposition``.
        version: Raised when the meaning changes; other versions are not comparable.
        title: One-line description.
        sizes: Name to parameters, smallest first.
        default_size: The size that runs by default.
        make_inputs: ``(size, generator) -> inputs``, a tuple (nested tuples, lists and dicts of
            tensors allowed); floating tensors are drawn in float64 and cast by the harness.
        eager: ``(*inputs) -> outputs``: the straightforward code. The baseline of every speedup of
            this workload. With a model, ``(model, *inputs)``, or ``(model, optimizer, *inputs)`` if
            ``make_optimizer`` is given too; without it, the harness does what ``passes`` says.
        make_model: ``"module:function"``, ``(size) -> torch.nn.Module``. The harness casts the
            model, moves it, copies it for each arm, and puts it back before each call. Parameters,
            buffers, attributes, gradients and the optimizer's state are judged like outputs.
        make_optimizer: ``"module:function"``, ``(model) -> torch.optim.Optimizer``; by default SGD
            with momentum, if the harness takes steps.
        passes: What a call does with the model if there is no ``eager``; by default a whole training
            step if a parameter requires a gradient, else the forward pass.
        loss: ``"module:function"``, ``(outputs, target) -> number``, for the harness's own calls,
            e.g. ``torch.nn.functional:cross_entropy``. The last input is then the target, which the
            model does not get. By default ``ivhl.measure.models.Loss``, of the outputs alone.
        reference: ``"module:function"`` with the signature of eager, called with float64 inputs (the
            *rounded* ones): the same quantity by an independent formula, not eager again. With a
            model it gets a copy in float64 and stands for the outputs, not for the state. Or a
            weaker level: ``float64``, the same code in float64; ``tolerance`` or ``cosine``, eager
            itself by one of PyTorch's rules for whole models.
        outputs: A name for each output tensor; without names, each has its path, such as
            ``output.logits``, and outputs must agree in structure too.
        variants: The variants that are compiled and timed against ``eager``.
        dtype: Floating dtype of eager, and of the variants without their own.
        tolerance: ``tol`` of the accuracy rule (``ivhl.measure.accuracy``).
        fixed: Positions of the inputs that are the same in every draw, such as the weights of a
            model, which a variant may keep from its first call. All others get new values between
            blocks of calls.
        core: Name of the variant that represents the workload in the core suite; ``None`` means the
            last one for the CPU without ``dynamic=True``. ``""`` means none: another workload
            represents this one.
        cost: ``"module:function"`` that returns the ``Cost`` for the parameters of a size; the
            module must import without torch. Without it, the memory check and the fraction of the
            machine's limit are skipped.
        source: Paper and equation, or upstream code.
    """

    name: str
    version: int
    title: str
    sizes: Mapping[str, Any]
    default_size: str
    make_inputs: str
    eager: str = ""
    make_model: str | None = None
    make_optimizer: str | None = None
    passes: Passes | None = None
    loss: str | None = None
    reference: str = "float64"
    outputs: tuple[str, ...] = ()
    variants: tuple[Variant, ...] = (Variant(name="compiled"),)
    dtype: Dtype = "float32"
    tolerance: float = 1e-4
    fixed: tuple[int, ...] = ()
    core: str | None = None
    cost: str | None = None
    source: str = ""


# What ``workload`` declares in the file that is read; ``None`` where one is imported, as in a cell.
_declared: list[Workload] | None = None
_FUNCTIONS = (
    *("make_inputs", "eager", "make_model", "make_optimizer", "loss", "reference", "cost"),
)  # fmt: skip


def workload(call: object = None, *, inputs: object, **more: Any) -> Workload:  # noqa: ANN401
    """Declare a function or a model in its own file, or by its name.

    ivhl reads such a file without running its imports, so torch is not needed.

    Args:
        call: A function, which is the workload's ``eager``; a class of models; a call of a class
            with literal arguments; or a string, ``package.module:function`` or
            ``package.module:Model(64)``.
        inputs: A function ``(size, generator)``, ``(size)`` or ``()``. It returns a tuple or list of
            arguments; any other object is the only argument.
        more: Fields of ``Workload``; pass functions themselves or their names. Defaults: the name
            of module and function, version 1, and the size ``default``.

    Raises:
        SpecError: If a function has no name by which a cell finds it, or there is no such field.
    """
    given: dict[str, Any] = {"make_inputs": inputs, **more}
    if call is not None:
        name = _named("the first argument", call)
        is_class = isinstance(call, type) or name.rpartition(":")[2][:1].isupper()
        is_called = name.endswith(")")
        given["make_model" if is_class or is_called else "eager"] = name + "()" * (
            is_class and not is_called
        )
    known = {field.name for field in fields(Workload)}
    for field, value in given.items():
        if field not in known:
            raise UnknownNameError("field of a workload", field, known)
        if field in _FUNCTIONS and value is not None:
            given[field] = _named("inputs" if field == "make_inputs" else field, value)
    if isinstance(given.get("variants"), tuple):
        given["variants"] = tuple(map(_by_names, given["variants"]))
    main = given.get("eager") or given.get("make_model") or ""
    module, _, attribute = main.partition("(")[0].partition(":")
    sizes = given.setdefault("sizes", {"default": 0})
    first = next(iter(sizes), "") if isinstance(sizes, Mapping) else ""
    name = f"{module.rpartition('.')[2]}.{attribute}"
    usual: dict[str, Any] = {"name": name, "version": 1, "title": main, "default_size": first}
    declared = Workload(**usual | given)
    if _declared is not None:
        _declared.append(declared)
    return declared


def _by_names(variant: Variant) -> Variant:
    parts = {field: getattr(variant, field, None) for field in ("call", "prepare", "finish")}
    named: dict[str, Any] = {field: _named(field, part) for field, part in parts.items() if part}
    return replace(variant, **named) if named else variant


def _named(place: str, value: object) -> str:
    """Return the name by which a cell finds a function; one that is imported there needs none.

    Raises:
        SpecError: If it has none.
    """
    found = name_of(value)
    if found.endswith(")") and _declared is not None:
        arguments_of(found.partition(":")[2])
    if ":" in found or _declared is None or (place == "reference" and found in LEVELS):
        return found
    got = "a function or a value without a name" if callable(value) else repr(value)[:60]
    raise SpecError(
        f"{place} must be a function of this file, an imported one, or 'module:function' "
        f"(got {got})",
        hint="define it with def at the top of the file, and write its name here",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One workload at one size in one variant; a run makes one record of it.

    Attributes:
        mode: A mode that replaces the declared mode, or ``None``. The variant then has this mode,
            also in its name.
    """

    workload: Workload
    size: str
    variant: Variant
    mode: Mode | None = None

    @property
    def name(self) -> str:
        """Readable and unique, e.g. ``ops.gp_evolve/medium/real-compiled``."""
        return f"{self.workload.name}/{self.size}/{self.variant.name}"

    @property
    def call(self) -> str:
        """The variant's function; empty if the harness itself calls the model."""
        return self.variant.call or self.workload.eager

    @property
    def level(self) -> Reference:
        """What the outputs are judged by."""
        reference = self.workload.reference
        return "independent" if ":" in reference else reference  # type: ignore[return-value]

    @property
    def dtype(self) -> Dtype:
        """Floating dtype in which the variant runs."""
        return self.variant.dtype or self.workload.dtype

    @property
    def cost(self) -> Cost | None:
        """Cost of the case; ``None`` if its workload declares none."""
        if self.workload.cost is None:
            return None
        cost: Cost = resolve(self.workload.cost)(self.workload.sizes[self.size])
        return cost


def resolve(reference: str) -> Any:  # noqa: ANN401  (whatever the name stands for)
    """Return the object that ``"module:attribute"`` names.

    For ``"module:Model(64)"``, return a function that ignores its arguments and makes the object.

    Raises:
        SpecError: If the text has no such form, or the module no such attribute.
        ImportError: If the module does not import.
    """
    module_name, colon, attribute = reference.partition(":")
    if not (module_name and colon and attribute):
        raise SpecError(
            f"{reference!r} is not of the form 'module:attribute'",
            hint="write it like 'package.module:WORKLOADS'",
        )
    module = importlib.import_module(module_name)
    name = attribute.partition("(")[0]
    try:
        found = attrgetter(name)(module)
    except AttributeError as error:
        near = get_close_matches(name, vars(module), n=1)
        raise SpecError(
            f"module {module_name!r} has no attribute {name!r}"
            + (f"; did you mean {near[0]}?" if near else ""),
            hint=f"name what {module_name} defines",
        ) from error
    if name == attribute:
        return found
    arguments, keywords = arguments_of(attribute)
    return lambda *_: found(*arguments, **keywords)


def load_workloads(reference: str) -> tuple[Workload, ...]:
    """Return the workloads of a project, checked.

    Args:
        reference: ``"module:ATTRIBUTE"`` of a tuple, as ``[tool.ivhl] workloads`` has it; or the
            name of a package, as ``[tool.ivhl] benchmarks`` has it: then each module in it that has
            a tuple ``WORKLOADS`` counts, in the order of their names. One that does not import
            takes away its own workloads only (``broken_benchmarks``).

    Raises:
        SpecError: If it is not a tuple of workloads, or names in it clash; all mistakes at once.
    """
    if ":" in reference:
        parts = {reference: _tuple_of(reference)}
    else:
        modules = _benchmark_modules(reference)
        parts = {m: _tuple_of(f"{m}:WORKLOADS") for m, why in modules.items() if why is None}
        if not parts:
            broken = broken_benchmarks(reference)
            raise SpecError(
                "; ".join(broken) or f"{reference}: no module in it has a tuple WORKLOADS",
                hint=_HINT if broken else "docs/workloads.md shows one",
            )
    workloads = tuple(w for part in parts.values() for w in part)
    if mistakes := [m for w in workloads for m in _wrong_types(w)]:  # other checks need the types
        raise SpecError(
            f"{reference!r}: " + "; ".join(mistakes[:_SHOWN_MISTAKES]),
            hint="correct the declarations; docs/workloads.md has the fields",
        )
    mistakes = [m for w in workloads for m in _mistakes(w)]
    places: dict[str, list[str]] = {}
    for module, part in parts.items():
        for w in part:
            places.setdefault(w.name, []).append(module)
    mistakes += [
        f"{name}: listed twice, in {' and '.join(dict.fromkeys(where))}"
        for name, where in sorted(places.items())
        if len(where) > 1
    ]
    if mistakes:
        raise SpecError(
            f"{reference!r}: " + "; ".join(mistakes),
            hint="correct the declarations; a name stands for one workload",
        )
    return workloads


def use_benchmarks(root: Path, package: str) -> None:
    """Import a package of benchmarks from a folder, whatever else on the path has its name.

    An editable install of ivhl puts ivhl's own ``benchmarks`` on the path of every project.

    Args:
        root: The folder that holds it.
        package: Its name.

    Raises:
        SpecError: If it is not there, or does not import.
    """
    place = root.resolve() / package
    init = place / "__init__.py"
    if not init.is_file():
        raise SpecError(
            f"[tool.ivhl] benchmarks = {package!r}: there is no {init}",
            hint="it is a folder beside pyproject.toml; docs/workloads.md shows one",
        )
    loaded = sys.modules.get(package)
    if loaded is not None and str(place) in getattr(loaded, "__path__", ()):
        return
    for name in [name for name in sys.modules if f"{name}.".startswith(f"{package}.")]:
        del sys.modules[name]
    spec = spec_from_file_location(package, init, submodule_search_locations=[str(place)])
    assert spec is not None  # noqa: S101  (it is a file of Python)
    assert spec.loader is not None  # noqa: S101
    module = module_from_spec(spec)
    sys.modules[package] = module
    what, hint = f"benchmarks = {package!r}", f"correct {init}; it must import without torch"
    try:
        with _explained(f"{what} does not import", hint):
            spec.loader.exec_module(module)
    except SpecError:
        del sys.modules[package]
        raise


@contextmanager
def _explained(what: str, hint: str) -> Iterator[None]:
    """Import somebody's declarations as ``_importing`` does, and explain whatever they raise.

    Raises:
        SpecError: With what failed, why, and the hint.
    """
    try:
        with _importing():
            yield
    except SpecError:
        raise
    except Exception as error:
        raise SpecError(f"[tool.ivhl] {what}: {_why(error)}", hint=hint) from error


@contextmanager
def _importing() -> Iterator[None]:
    """Import somebody's declarations: nothing that they do lasts, but what they declare.

    What they print is no output of the command. A thread would keep ivhl from ending; a forked
    process would run the command a second time.

    Raises:
        ImportRefusedError: If they end the process, fork it, start a thread, or change the working
            directory.
    """

    def start(_: Thread) -> None:
        raise ImportRefusedError(f"starts a thread: {_DECLARES}")

    def fork() -> int:
        raise ImportRefusedError(f"forks the process: {_DECLARES}")

    folder, usual = Path.cwd(), (Thread.start, os.fork)
    Thread.start, os.fork = start, fork  # type: ignore[assignment, method-assign]
    try:
        with redirect_stdout(sys.stderr), refusing_exits():
            yield
    finally:
        Thread.start, os.fork = usual  # type: ignore[method-assign]
        moved = Path.cwd()
        os.chdir(folder)
    if moved != folder:
        raise ImportRefusedError(f"changes the working directory to {moved}: {_DECLARES}")


@contextmanager
def refusing_exits() -> Iterator[None]:
    """Refuse what ends the process while somebody's module is imported, instead of ending.

    Raises:
        ImportRefusedError: If it calls ``sys.exit`` or ``os._exit``.
    """
    process, ends = os.getpid(), os._exit

    def end(status: int) -> NoReturn:
        if os.getpid() != process:  # a fork of its own
            ends(status)
        raise ImportRefusedError(f"calls os._exit({status!r}): {_ENDS}")

    os._exit = end
    try:
        yield
    except SystemExit as error:
        raise ImportRefusedError(f"calls sys.exit({error.code!r}): {_ENDS}") from error
    finally:
        os._exit = ends


def _why(error: Exception) -> str:
    """Return why a module does not import."""
    said = isinstance(error, ImportRefusedError | UnreadError)
    return str(error) if said else f"{type(error).__name__}: {error}"


def broken_benchmarks(reference: str) -> tuple[str, ...]:
    """Return the modules of a benchmark package that do not import, each with the reason."""
    if ":" in reference:
        return ()
    return tuple(f"{m} {why}" for m, why in _benchmark_modules(reference).items() if why)


def _benchmark_modules(package: str) -> dict[str, str | None]:
    """Return the modules with workloads that are directly in a package, and why one is of no use.

    Raises:
        SpecError: If the package does not import, or is none.
    """
    what = f"benchmarks = {package!r} does not import as a package"
    hint = f"it is a folder beside pyproject.toml, with a file {package}/__init__.py"
    with _explained(what, hint):
        places = importlib.import_module(package).__path__
    found: dict[str, str | None] = {}
    for name in sorted(module.name for module in pkgutil.iter_modules(places, f"{package}.")):
        try:
            if _binds_workloads(name):
                with _importing():
                    if _read_here(name) is None:
                        importlib.import_module(name)
                found[name] = None
        except Exception as error:  # noqa: BLE001  (whatever somebody's module raises)
            sys.modules.pop(name, None)  # one that is refused after its import is not there
            found[name] = f"does not import: {_why(error)}"
    return found


def _tree_of(module: str) -> tuple[Path, ast.Module] | None:
    """Return the file of a module and its syntax tree; ``None`` if it is no file of Python.

    Raises:
        SyntaxError: If it is not valid Python.
        OSError: If it is no plain file: reading a pipe would wait without end.
    """
    spec = None
    with suppress(ValueError):  # of a module that somebody made without a file
        spec = find_spec(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    path = Path(spec.origin)
    if not path.is_file():
        raise OSError(f"{path} must be a plain file")
    return path, ast.parse(path.read_bytes(), filename=str(path))


def _binds_workloads(module: str) -> bool:
    """Return whether a module declares: binds the name ``WORKLOADS``, or calls ``workload``.

    Parses the module instead of importing it: it may hold benchmark code that needs torch.
    """
    found = _tree_of(module)
    return found is not None and (
        holds_its_functions(found[1])
        or any(
            (
                isinstance(node, ast.Name)
                and node.id == "WORKLOADS"
                and isinstance(node.ctx, ast.Store)
            )
            or (isinstance(node, ast.alias) and "WORKLOADS" in (node.name, node.asname))
            for node in ast.walk(found[1])
        )
    )


def _read_here(module: str) -> object:
    """Return what a module that holds its functions declares; ``None`` if it is no such module."""
    found = _tree_of(module)
    if found is None or not holds_its_functions(found[1]):
        return None
    global _declared  # noqa: PLW0603  (one file is read at a time, by this process)
    _declared = []
    try:
        bound = read_file(module, *found)
        return bound.get("WORKLOADS", tuple(_declared))
    finally:
        _declared = None


def _tuple_of(reference: str) -> tuple[Workload, ...]:
    """Return the tuple of workloads that ``"module:ATTRIBUTE"`` names.

    Raises:
        SpecError: If it is none.
    """
    module, _, attribute = reference.partition(":")
    with _explained(f"workloads = {reference!r} does not import", _HINT):
        workloads = _read_here(module) if attribute == "WORKLOADS" else None
        if workloads is None:
            workloads = resolve(reference)
    if isinstance(workloads, tuple) and all(type(w).__name__ == "Workload" for w in workloads):
        return workloads
    raise SpecError(
        f"{reference!r} must be a tuple of ivhl.workload.Workload (got {type(workloads).__name__})",
        hint="write WORKLOADS = (Workload(...),), with the comma",
    )


def _wrong_types(workload: Workload) -> Iterator[str]:
    """Yield the fields that do not hold what they should."""
    name = getattr(workload, "name", None)
    place = f"workload {name!r}" if isinstance(name, str) else "a workload"
    yield from _wrong_fields(workload, Workload, place)
    variants = getattr(workload, "variants", ())
    for number, variant in enumerate(variants if isinstance(variants, tuple) else ()):
        if type(variant).__name__ == "Variant":
            yield from _wrong_fields(variant, Variant, f"{place}: variant {number}")
        else:
            yield f"{place}: variant {number} must be a Variant (got {type(variant).__name__})"


def _wrong_fields(part: object, kind: type[Workload | Variant], place: str) -> Iterator[str]:
    for field in fields(kind):
        value = getattr(part, field.name, None)
        annotation = str(field.type)
        rule, holds = _TYPES[annotation.removesuffix(" | None")]
        optional = annotation.endswith(" | None")
        if not holds(value) and not (optional and value is None):
            simple = isinstance(value, str | int | float)
            got = f"{value!r:.60}" if simple else type(value).__name__
            yield f"{place}: {field.name} must be {'None or ' * optional}{rule} (got {got})"


def uses_dynamo(engine: str) -> bool:
    """Return whether an engine captures the code with Dynamo."""
    return engine in DYNAMO_ENGINES or backend_of(engine) is not None


def backend_of(engine: str) -> str | None:
    """Return the back end that an engine names; ``None`` if it names none."""
    name = engine.removeprefix(BACKEND)
    return name if name and name != engine else None


def _one_of(words: Any) -> tuple[str, Callable[[Any], bool]]:  # noqa: ANN401  (a Literal)
    return f"one of {', '.join(get_args(words))}", get_args(words).__contains__


# By annotation of a field: the rule in words, and whether a value keeps it.
_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "str": ("a text", lambda value: isinstance(value, str)),
    "int": ("an integer from 1", lambda value: type(value) is int and 0 < value < _MOST_VERSIONS),
    "bool": ("True or False", lambda value: isinstance(value, bool)),
    "float": ("a positive number", lambda value: type(value) in (int, float) and value > 0),
    "tuple[str, ...]": (
        "a tuple of texts",
        lambda value: isinstance(value, tuple) and all(isinstance(one, str) for one in value),
    ),
    "tuple[int, ...]": ("a tuple", lambda value: isinstance(value, tuple)),
    "tuple[Variant, ...]": ("a tuple of Variant", lambda value: isinstance(value, tuple)),
    "Mapping[str, Any]": (
        "a dictionary of names",
        lambda value: isinstance(value, Mapping) and all(isinstance(key, str) for key in value),
    ),
    "Dtype": _one_of(Dtype),
    "Passes": _one_of(Passes),
    "Compiles": _one_of(Compiles),
    "Engine | str": (
        f"{_one_of(Engine)[0]} or {BACKEND}NAME",
        lambda value: (
            isinstance(value, str) and (value in get_args(Engine) or backend_of(value) is not None)
        ),
    ),
    "Mode": _one_of(Mode),
}


def _mistakes(w: Workload) -> Iterator[str]:
    """Yield what is wrong between the fields of a declaration."""
    variants = [v.name for v in w.variants]
    names = (w.name, *w.sizes, *variants)
    rules: list[tuple[object, str]] = [
        (
            w.default_size not in w.sizes,
            f"default_size {w.default_size!r} is not one of {', '.join(w.sizes)}",
        ),
        *((variants.count(v) > 1, f"variant {v!r} listed twice") for v in sorted({*variants})),
        (
            w.core and w.core not in variants,
            f"core {w.core!r} is not one of {', '.join(variants)}",
        ),
        *(
            (
                type(position) is not int or position < 0,
                f"fixed input {position!r} is not the number of an input, from 0",
            )
            for position in w.fixed
        ),
        *_rules_of_functions(w),
        *(_rules_of_model(w) if w.make_model is not None else _rules_without_model(w)),
        *(
            (
                v.engine not in DYNAMO_ENGINES and v.mode != "default",
                f"variant {v.name!r} has mode={v.mode!r}, which engine={v.engine!r} does not take",
            )
            for v in w.variants
        ),
        *(
            (set(text) & set("/, "), f"{text!r} may not contain '/', ',' or spaces")
            for text in names
        ),
    ]
    yield from (f"{w.name}: {text}" for broken, text in rules if broken)
    # They become file names and lines of tables; an import refuses others, too.
    for text in (*names, *(v.engine for v in w.variants)):
        if not (is_printable(text) and 0 < len(text.encode(errors="replace")) <= _LONGEST_NAME):
            rule = f"must be printable, and have 1 to {_LONGEST_NAME} bytes"
            yield f"{w.name!r:.60}: {text!r:.60} {rule}"


def _rules_of_functions(w: Workload) -> Iterator[tuple[object, str]]:
    """Yield for each function whether its name has another form, and the rule."""
    named = {
        "make_inputs": w.make_inputs,
        "eager": w.eager or None,
        "make_model": w.make_model,
        "make_optimizer": w.make_optimizer,
        "loss": w.loss,
        "reference": None if w.reference in LEVELS else w.reference,
    }
    for field, text in named.items():
        beside = f" or one of {', '.join(map(repr, LEVELS))}" * (field == "reference")
        broken = text is not None and not all(text.partition(":"))
        yield broken, f"{field} must be 'module:function'{beside} (got {text!r})"


def _rules_without_model(w: Workload) -> Iterator[tuple[object, str]]:
    yield not w.eager, "eager is missing: name the function to measure, or a make_model"
    for field in ("make_optimizer", "passes", "loss"):
        rule = f"{field} needs make_model, the function that returns the model"
        yield getattr(w, field) is not None, rule
    for v in w.variants:
        rule = f"variant {v.name!r} has compiles='model', which needs make_model"
        yield v.compiles == "model", rule


def _rules_of_model(w: Workload) -> Iterator[tuple[object, str]]:
    for field in ("passes", "loss"):
        rule = f"{field} goes with the harness's own call: leave out eager, or {field}"
        yield w.eager and getattr(w, field) is not None, rule
    rule = f"make_optimizer goes with passes='step' (got {w.passes!r})"
    yield not w.eager and w.make_optimizer and w.passes in {"forward", "backward"}, rule
    rule = "loss goes with passes='backward' or 'step' (got 'forward')"
    yield w.loss and w.passes == "forward", rule
    yield w.outputs, "outputs: those of a model are named by their paths; leave it out"
    for v in w.variants:
        name = f"variant {v.name!r}"
        yield v.prepare or v.finish, f"{name}: prepare and finish do not go with make_model"
        rule = f"{name} has compiles='parts', which needs a call of its own"
        yield v.compiles == "parts" and not (v.call or w.eager), rule
        rule = f"{name} has engine={v.engine!r}, which needs passes='forward'"
        yield v.engine not in {"compile", "eager"} and w.passes != "forward", rule


def select_cases(
    workloads: Sequence[Workload],
    *,
    names: Sequence[str] = (),
    size: str | None = None,
    variants: Sequence[str] = (),
    device: str = "cpu",
    mode: Mode | None = None,
) -> tuple[Case, ...]:
    """Return the cases to run, in the order of the tuple.

    Args:
        workloads: Every workload there is.
        names: Workloads wanted; empty means all.
        size: Size wanted; ``None`` means each workload's default. A workload that lacks it is left
            out, unless none has it.
        variants: Variants wanted; empty means all that apply to ``device``.
        device: Device type.
        mode: Mode of ``torch.compile`` in which to run every variant that goes through it, or
            ``None`` for the declared ones. A variant that is declared in another mode gets this one
            and its name behind its own, unless the workload declares the same in this mode anyway.

    Raises:
        UnknownNameError: If a name is in no workload; lists the nearest.
    """
    known = {w.name: w for w in workloads}
    _refuse_unknown("workload", names, known)
    chosen = [known[n] for n in dict.fromkeys(names)] if names else list(workloads)
    _refuse_unknown("size", [] if size is None else [size], {s for w in chosen for s in w.sizes})
    applicable = {w.name: _variants_in(w, device, mode) for w in chosen}
    _refuse_unknown("variant", variants, {v.name for vs in applicable.values() for v in vs})
    return tuple(
        Case(workload=w, size=size or w.default_size, variant=v, mode=mode)
        for w in chosen
        if size is None or size in w.sizes
        for v in applicable[w.name]
        if not variants or v.name in variants
    )


def _refuse_unknown(kind: str, names: Iterable[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise UnknownNameError(kind, name, known)


def every_case(workloads: Sequence[Workload], device: str = "cpu") -> tuple[Case, ...]:
    """Return the cases of all sizes and all variants of the device."""
    return tuple(
        Case(workload=w, size=size, variant=v)
        for w in workloads
        for size in w.sizes
        for v in _variants_in(w, device, None)
    )


def named_cases(
    workloads: Sequence[Workload], names: Sequence[str], device: str = "cpu"
) -> tuple[Case, ...]:
    """Return the cases with these names (``Case.name``), in their order.

    Raises:
        UnknownNameError: If there is no case of a name; lists the nearest.
    """
    known = {case.name: case for case in every_case(workloads, device)}
    _refuse_unknown("case", names, known)
    return tuple(known[name] for name in names)


def core_cases(workloads: Sequence[Workload], device: str = "cpu") -> tuple[Case, ...]:
    """Return one case for each workload that has a core variant, at its default size."""
    return tuple(
        Case(workload=w, size=w.default_size, variant=v)
        for w in workloads
        for v in _variants_in(w, device, None)
        if v.name == core_variant(w)
    )


def core_variant(workload: Workload) -> str:
    """Return the name of the core variant; empty if another workload represents this one."""
    if workload.core is not None:
        return workload.core
    plain = [v.name for v in workload.variants if "cpu" in v.devices and not v.dynamic]
    return plain[-1] if plain else ""


def full_cases(workloads: Sequence[Workload], device: str = "cpu") -> tuple[Case, ...]:
    """Return the core cases, then every other variant, then the core variants at other sizes.

    The first case of each workload comes before the second of any, so that an interrupted run has
    measured something of every workload.
    """
    core = core_cases(workloads, device)
    others = [
        [c for c in select_cases(workloads, names=[w.name], device=device) if c not in core]
        for w in workloads
    ]
    turns = zip_longest(*others)
    variants = [case for turn in turns for case in turn if case is not None]
    sizes = [
        replace(case, size=size)
        for case in core
        for size in case.workload.sizes
        if size != case.size
    ]
    return (*core, *variants, *sizes)


def _variants_in(workload: Workload, device: str, mode: Mode | None) -> list[Variant]:
    """Return the variants of a device, all in ``mode`` if it is given."""
    here = [v for v in workload.variants if device in v.devices]
    if mode is None:
        return here
    here = [v for v in here if v.engine in DYNAMO_ENGINES]
    chosen = {_without_mode(v): v for v in here if v.mode == mode}
    for v in here:
        chosen.setdefault(_without_mode(v), replace(v, name=f"{v.name}-{mode}", mode=mode))
    return list(chosen.values())


def _without_mode(variant: Variant) -> Variant:
    return replace(variant, name="", mode="default", devices=())


def check_memory(cases: Sequence[Case], available: float) -> None:
    """Refuse cases that do not fit into memory, before a run of hours starts.

    Args:
        cases: Cases to check; those without a ``cost`` pass.
        available: Bytes.

    Raises:
        SpecError: If a case needs more; names every one of them.
    """
    if too_large := [case for case in cases if not fits(case, available)]:
        raise SpecError(
            f"not enough memory: {needs_of(too_large, available)}",
            hint="choose a smaller --size, name other workloads, or raise --memory-limit",
        )


def fits(case: Case, available: float) -> bool:
    """Return whether a case fits into so many bytes; ``True`` if it declares no cost."""
    return case.cost is None or case.cost.memory <= available


def needs_of(cases: Sequence[Case], available: float) -> str:
    """Return a text with the memory that cases need, once per workload and size."""
    gib = 2.0**30
    needs = {f"{c.workload.name}/{c.size}": c.cost.memory for c in cases if c.cost is not None}
    needed = "; ".join(f"{name} needs {need / gib:.1f} GiB" for name, need in needs.items())
    return f"{needed}, and {available / gib:.1f} GiB are allowed here"
