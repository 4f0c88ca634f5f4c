"""What a workload is: a declaration that can be read without torch.

Callables are named as ``"module:function"`` and resolved inside the cell, at the moment they are
needed. So the list of workloads can be shown, checked and selected where no torch is installed, a
cell in which ``import torch`` fails still yields a record per workload, and a module that fails to
import takes down its own workload only.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal

from ivhl.errors import SpecError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Mode = Literal["default", "reduce-overhead", "max-autotune"]
MODES: tuple[Mode, ...] = ("default", "reduce-overhead", "max-autotune")
Dtype = Literal["float32", "float64", "bfloat16", "float16"]
Engine = Literal["compile", "cuda-graph", "aotinductor", "torchscript", "eager"]
# Those in which Dynamo captures what is run, and has to say so.
DYNAMO_ENGINES: frozenset[Engine] = frozenset({"compile", "cuda-graph"})
# Those that compile with Inductor and leave on disk what a second process finds.
INDUCTOR_ENGINES: frozenset[Engine] = frozenset({"compile", "cuda-graph", "aotinductor"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """One way to run a workload, compiled as a rule.

    Attributes:
        name: Unique within the workload, e.g. ``naive-compiled``.
        call: ``"module:function"``. With ``compiles="whole"`` the harness wraps the function in
            ``torch.compile``; with ``"parts"`` the function is called once with the compiler
            (``torch.compile`` with this variant's arguments) and returns the callable to time, so
            that it can compile only what should be compiled.
        engine: What the compiler is (``ivhl.measure.engine``): ``torch.compile``; the same captured
            in a CUDA graph by hand; ``torch.export`` with AOTInductor; a TorchScript trace; or
            nothing, so that the code runs eagerly (another formulation, or another ``dtype``).
        dtype: Floating dtype in which the variant runs; ``None`` means the workload's. The harness
            casts the inputs; the reference keeps those of the workload, so that what the cast loses
            is the variant's error.
        mode: ``mode=`` of ``torch.compile``.
        dynamic: ``dynamic=`` of ``torch.compile``.
        fullgraph: Whether one graph break already fails the variant.
        devices: Device types on which the variant means something; elsewhere it is not run.
        prepare: ``"module:function"`` from the workload's inputs, in the variant's ``dtype``, to
            this variant's inputs, e.g. complex to real planes. Not timed.
        finish: ``"module:function"`` from this variant's output to the form of the reference.
            Not timed.
    """

    name: str
    call: str
    compiles: Literal["whole", "parts"] = "whole"
    engine: Engine = "compile"
    dtype: Dtype | None = None
    mode: Mode = "default"
    dynamic: bool = False
    fullgraph: bool = False
    devices: tuple[str, ...] = ("cpu", "cuda")
    prepare: str | None = None
    finish: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """What a workload takes at one size.

    Attributes:
        flops: Floating point operations of the best way known to compute it.
        bytes: Bytes that any way must move: inputs read once, outputs written once.
        memory: Most bytes that a case holds at once, with eager and the float64 reference.
    """

    flops: float
    bytes: float
    memory: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """A question asked of every cell. Pure data.

    Attributes:
        name: ``<room>.<function>``, e.g. ``ops.field_superposition``.
        version: Raised when the meaning changes; other versions are not comparable.
        title: One line for people.
        sizes: Name to parameters, smallest first.
        default_size: The size that is run when none is asked for.
        make_inputs: ``(size, generator) -> inputs``, a tuple (nested tuples, lists and dicts of
            tensors allowed); floating tensors are drawn in float64 and cast by the harness.
        eager: ``(*inputs) -> outputs``: the code as one would first write it. The baseline of
            every speedup of this workload.
        reference: Same signature, called with float64 inputs (the *rounded* ones): the same
            quantity by an independent formula, not eager again.
        outputs: A name for each output tensor.
        variants: What is compiled and timed against ``eager``.
        dtype: Floating dtype in which eager and the variants run, those that name one excepted.
        tolerance: ``tol`` of the accuracy rule (``ivhl.measure.accuracy``).
        fixed: Positions of the inputs that are the same in every draw, such as the weights of a
            model, which a variant may keep from its first call. All others get new values between
            blocks of calls.
        core: Name of the variant that stands for the workload in a core run; ``None`` means the last
            one that is compiled by default on the CPU. ``""`` means none: another workload stands
            for this one.
        cost: ``"module:function"`` from the parameters of a size to its ``Cost``; the module must
            import without torch. Without it nothing is refused for its memory, and no fraction of
            the machine's limit is shown.
        source: Paper and equation, or upstream code.
    """

    name: str
    version: int
    title: str
    sizes: Mapping[str, Any]
    default_size: str
    make_inputs: str
    eager: str
    reference: str
    outputs: tuple[str, ...]
    variants: tuple[Variant, ...]
    dtype: Dtype = "float32"
    tolerance: float = 1e-4
    fixed: tuple[int, ...] = ()
    core: str | None = None
    cost: str | None = None
    source: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One workload at one size in one variant: what becomes one record per run.

    Attributes:
        mode: The mode that was asked for in place of the declared ones, or ``None``; the variant
            has it, and says so in its name.
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
    def dtype(self) -> Dtype:
        """Floating dtype in which the variant runs."""
        return self.variant.dtype or self.workload.dtype

    @property
    def cost(self) -> Cost | None:
        """What the case takes, ``None`` where its workload does not say."""
        if self.workload.cost is None:
            return None
        cost: Cost = resolve(self.workload.cost)(self.workload.sizes[self.size])
        return cost


def resolve(reference: str) -> Any:  # noqa: ANN401  (whatever the name stands for)
    """Return the object that ``"module:attribute"`` names.

    Raises:
        SpecError: If the text has no such form, or the module no such attribute.
        ImportError: If the module does not import.
    """
    module_name, colon, attribute = reference.partition(":")
    if not (module_name and colon and attribute):
        raise SpecError(
            f"{reference!r} is not of the form 'module:attribute'",
            hint="write it like 'ivhl.workloads:WORKLOADS'",
        )
    module = importlib.import_module(module_name)
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise SpecError(f"module {module_name!r} has no attribute {attribute!r}") from None


def load_workloads(reference: str) -> tuple[Workload, ...]:
    """Return the workloads that ``[tool.ivhl] workloads`` names, checked.

    Raises:
        SpecError: If it is not a tuple of workloads, or names in it clash; all mistakes at once.
    """
    try:
        workloads = resolve(reference)
    except SpecError:
        raise
    except Exception as error:  # whatever somebody's module raises
        raise SpecError(
            f"[tool.ivhl] workloads = {reference!r} does not import: "
            f"{type(error).__name__}: {error}",
            hint="the module must import without torch; callables are named as 'module:function'",
        ) from error
    if not isinstance(workloads, tuple) or not all(
        type(w).__name__ == "Workload" for w in workloads
    ):
        raise SpecError(f"{reference!r} must be a tuple of ivhl.workload.Workload")
    mistakes = [m for w in workloads for m in _mistakes(w)]
    names = [w.name for w in workloads]
    mistakes += [f"{n}: listed twice" for n in sorted({n for n in names if names.count(n) > 1})]
    if mistakes:
        raise SpecError(f"{reference!r}: " + "; ".join(mistakes))
    return workloads


def _mistakes(workload: Workload) -> list[str]:
    found = []
    if workload.default_size not in workload.sizes:
        found.append(
            f"{workload.name}: default_size {workload.default_size!r} is not one of "
            f"{', '.join(workload.sizes)}"
        )
    variants = [v.name for v in workload.variants]
    found += [
        f"{workload.name}: variant {v!r} listed twice"
        for v in sorted({v for v in variants if variants.count(v) > 1})
    ]
    if workload.core and workload.core not in variants:
        found.append(
            f"{workload.name}: core {workload.core!r} is not one of {', '.join(variants)}"
        )
    found += [
        f"{workload.name}: fixed input {position!r} is not the number of an input, from 0"
        for position in workload.fixed
        if type(position) is not int or position < 0
    ]
    found += [
        f"{workload.name}: variant {v.name!r} has mode={v.mode!r}, which engine={v.engine!r} "
        "does not take"
        for v in workload.variants
        if v.engine not in DYNAMO_ENGINES and v.mode != "default"
    ]
    found += [
        f"{workload.name}: {text!r} may not contain '/', ',' or spaces"
        for text in (workload.name, *workload.sizes, *variants)
        if set(text) & set("/, ")
    ]
    return found


def select_cases(
    workloads: Sequence[Workload],
    *,
    names: Sequence[str] = (),
    size: str | None = None,
    variant: str | None = None,
    device: str = "cpu",
    mode: Mode | None = None,
) -> tuple[Case, ...]:
    """Return the cases to run, in the order of the tuple.

    Args:
        workloads: Every workload there is.
        names: Workloads wanted; empty means all.
        size: Size wanted; ``None`` means each workload's default. A workload that lacks it is left
            out, unless none has it.
        variant: Variant wanted; ``None`` means all that apply to ``device``.
        device: Device type.
        mode: Mode of ``torch.compile`` in which to run every variant that goes through it, or
            ``None`` for the declared ones. A variant that is declared in another mode gets this one
            and its name behind its own, unless the workload declares the same in this mode anyway.

    Raises:
        UnknownNameError: If a name is in no workload; lists the nearest.
    """
    known = {w.name: w for w in workloads}
    for name in names:
        if name not in known:
            raise UnknownNameError("workload", name, known)
    chosen = [known[n] for n in dict.fromkeys(names)] if names else list(workloads)
    sizes = {s for w in chosen for s in w.sizes}
    if size is not None and size not in sizes:
        raise UnknownNameError("size", size, sizes)
    variants = {w.name: _variants_in(w, device, mode) for w in chosen}
    known_variants = {v.name for of_workload in variants.values() for v in of_workload}
    if variant is not None and variant not in known_variants:
        raise UnknownNameError("variant", variant, known_variants)
    return tuple(
        Case(workload=w, size=size or w.default_size, variant=v, mode=mode)
        for w in chosen
        if size is None or size in w.sizes
        for v in variants[w.name]
        if variant in (None, v.name)
    )


def every_case(workloads: Sequence[Workload], device: str = "cpu") -> tuple[Case, ...]:
    """Return the cases of every size, in every variant that applies to the device."""
    return tuple(
        Case(workload=w, size=size, variant=v)
        for w in workloads
        for size in w.sizes
        for v in _variants_in(w, device, None)
    )


def core_cases(workloads: Sequence[Workload], device: str = "cpu") -> tuple[Case, ...]:
    """Return one case for each workload that has a core variant, at its default size."""
    return tuple(
        Case(workload=w, size=w.default_size, variant=v)
        for w in workloads
        for v in _variants_in(w, device, None)
        if v.name == core_variant(w)
    )


def core_variant(workload: Workload) -> str:
    """Return the name of the variant that stands for the workload; empty if another one does."""
    if workload.core is not None:
        return workload.core
    plain = [v.name for v in workload.variants if "cpu" in v.devices and not v.dynamic]
    return plain[-1] if plain else ""


def full_cases(workloads: Sequence[Workload], device: str = "cpu") -> tuple[Case, ...]:
    """Return the core cases, then every other variant, then the core variants at other sizes.

    The first case of each workload comes before the second of any, so that a run that is ended
    early has something of everything.
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
    """Return the variants of a device, all in one mode if one is asked for."""
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
    """Refuse cases that cannot fit, before hours of others are measured.

    Args:
        cases: Those that say what they take are looked at.
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
    """Say whether a case takes no more than so many bytes, as far as it says what it takes."""
    return case.cost is None or case.cost.memory <= available


def needs_of(cases: Sequence[Case], available: float) -> str:
    """Return what cases that do not fit need, each workload at each size once."""
    gib = 2.0**30
    needs = {f"{c.workload.name}/{c.size}": c.cost.memory for c in cases if c.cost is not None}
    told = "; ".join(f"{name} needs {need / gib:.1f} GiB" for name, need in needs.items())
    return f"{told}, and {available / gib:.1f} GiB are allowed here"
