"""A hot sequence: the calls of a path as one function, compiled for the results that are in use."""

from __future__ import annotations

import itertools
import operator
import time
from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
import torch._inductor
from torch._C._dynamo.guards import GlobalStateGuard

from ivhl.compile import choose_cache_folder, describe
from ivhl.hotpath.calls import Call, Given, Intermediate, Role, digest_of, facts_of, fill, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ivhl.compile import Mode
    from ivhl.hotpath.log import Log

_SAMPLES: Final = 200
_MOST_GRAPHS: Final = 8  # of a sequence
# Names of methods that are operators of Python; Dynamo traces these everywhere.
_OPERATORS: Final = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "div": operator.truediv,  # Tensor.__rdiv__
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
    "matmul": operator.matmul,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "lshift": operator.lshift,
    "rshift": operator.rshift,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "iadd": operator.iadd,
    "isub": operator.isub,
    "imul": operator.imul,
    "itruediv": operator.itruediv,
    "idiv": operator.itruediv,
    "neg": operator.neg,
    "abs": operator.abs,
    "invert": operator.invert,
    "getitem": operator.getitem,
    "setitem": operator.setitem,
}


@dataclass(eq=False, slots=True)
class Gradients:
    """What a program has asked of autograd so far that compiled results cannot give.

    Attributes:
        of_gradients: Gradients of gradients.
        by_results: Gradients by tensors that are no leaves.
        apart: Whether results of one graph may be differentiated one after the other; then graphs
            are kept.
    """

    of_gradients: bool = False
    by_results: bool = False
    apart: bool = False


@dataclass(eq=False, slots=True)
class _CompiledGraph:
    """The function of a sequence for one set of live results, under one set of global settings.

    Attributes:
        run: Returns the live results.
        live: Which results these are.
        settings: Dynamo's own check of gradient mode, default dtype, threads, determinism.
        copies: Of the live results, those to copy.
        inner: Those from which another live one is computed, with a gradient. Eagerly, a gradient by
            one can be asked for; here they are results of one node of autograd's graph.
        apart: For each two with gradients that have no result in common, the inputs that they have.
            Eagerly, each can be differentiated by itself; here the first time frees the graph of
            both.
    """

    run: Callable[..., Sequence[torch.Tensor]]
    live: tuple[int, ...]
    settings: GlobalStateGuard
    inner: tuple[int, ...]
    apart: tuple[tuple[int, ...], ...]
    copies: tuple[int, ...] = ()


class SequenceRun(NamedTuple):
    """A run of the compiled graph.

    Attributes:
        results: At least those that are in use, by number.
        inner: As in ``_CompiledGraph``.
        is_apart: Whether results may be differentiated one after the other.
        is_first: Whether it was compiled for this run.
    """

    results: dict[int, torch.Tensor]
    inner: tuple[int, ...]
    is_apart: bool
    is_first: bool


@dataclass(eq=False)
class HotSequence:
    """A sequence that was seen often enough.

    Attributes:
        name: The operations, ``linear -> relu -> linear``.
        number: The same in every process, for the same operations, wiring, facts and parameters.
        hits: How often the compiled graph ran.
        misses: How often calls that began like it went another way, or more of its results were in
            use than are compiled, and it ran eagerly.
        refused: Why it is not compiled any more; empty if it is.
        compile_s: Wall seconds of the first call of each compiled graph.
    """

    calls: list[Call]
    boundary: str
    mode: Mode
    log: Log
    name: str = ""
    number: str = ""
    hits: int = 0
    misses: int = 0
    refused: str = ""
    compile_s: list[float] = field(default_factory=list)
    eager_s: deque[float] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    compiled_s: deque[float] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    compiled: list[_CompiledGraph] = field(default_factory=list)
    seen_live: dict[tuple[int, ...], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.name = " -> ".join(name_of(call.func) for call in self.calls)
        self.number = digest_of(self.calls)
        self.changes = any(call.changes for call in self.calls)
        self.makes = [
            (call, place)
            for call in self.calls
            for place, one in enumerate(call.results)
            if one.is_new
        ]
        made = [call.results[place] for call, place in self.makes]
        self.memory = [one.memory for one in made]
        self.facts = [one.facts for one in made]
        self.origins = _origins(self.calls)  # of each result: what it is computed from

    @property
    def speedup(self) -> float | None:
        """Median eager seconds over median compiled ones, both from the first call to the last."""
        if not self.eager_s or not self.compiled_s:
            return None
        return median(self.eager_s) / median(self.compiled_s)

    def may_run(
        self, live: tuple[int, ...], given: Sequence[torch.Tensor], gradients: Gradients
    ) -> str:
        """Return why the compiled graph may not run this time; empty if it may."""
        if self.changes:
            places = [one.untyped_storage().data_ptr() for one in given]
            if len(set(places)) < len(places):
                return "inputs share their memory, and the sequence changes one of them"
        if gradients.of_gradients and any(self.facts[n].requires_grad for n in live):
            return "a gradient of a gradient is asked for, which compiled code lacks"
        if gradients.by_results and self._inner(live):
            return (
                "gradients by results are asked for, and compiled ones are no functions of others"
            )
        return ""

    def run(
        self, live: tuple[int, ...], given: Sequence[torch.Tensor], threshold: int
    ) -> SequenceRun | str:
        """Run the compiled graph.

        The first set of live results is compiled at once, another one after ``threshold`` times.

        Returns:
            The run, or the reason why there is none; then nothing has changed.

        Raises:
            Exception: Whatever the operations raise after they may have changed something.
        """
        one = self._find(live)
        if one is None:
            if self.compiled and not self._is_wanted(live, threshold):
                return "more of its results are in use than before"
            return self._run_first(live, given) or self.refused
        outputs = self._outputs(one, given)
        if outputs is None:
            return self.refused
        return self._ran(one, outputs, given, is_first=False)

    def _outputs(
        self, one: _CompiledGraph, given: Sequence[torch.Tensor]
    ) -> Sequence[torch.Tensor] | None:
        try:
            return one.run(*given)
        except Exception as error:
            if self.changes:
                raise
            self.refuse(f"its graph raised {describe(error)}")
            return None

    @staticmethod
    def _ran(
        one: _CompiledGraph,
        outputs: Sequence[torch.Tensor],
        given: Sequence[torch.Tensor],
        *,
        is_first: bool,
    ) -> SequenceRun:
        results = dict(zip(one.live, outputs, strict=True))
        for index in one.copies:
            results[index] = results[index].clone()
        # Up to PyTorch 2.6 compiled code returns one object for a result and what is detached from
        # it. A pending tensor takes the place of an object, so two need two.
        taken = {id(tensor) for tensor in given}
        for index, result in results.items():
            if id(result) in taken:
                results[index] = result.view_as(result)
            taken.add(id(result))
        is_apart = any(all(given[n].grad_fn is None for n in shared) for shared in one.apart)
        return SequenceRun(results, one.inner, is_apart, is_first)

    def _find(self, live: tuple[int, ...]) -> _CompiledGraph | None:
        for one in self.compiled:
            if (live == one.live or set(live) <= set(one.live)) and one.settings.check():
                return one
        return None

    def _is_wanted(self, live: tuple[int, ...], threshold: int) -> bool:
        """Return whether another graph is worth its seconds; count how often it was asked for."""
        if len(self.compiled) >= _MOST_GRAPHS:
            return False
        if any(set(live) <= set(one.live) for one in self.compiled):
            self.log.add("RECOMPILE", f"{self.number}: global settings have changed", self.number)
            return True
        count = self.seen_live[live] = self.seen_live.get(live, 0) + 1
        return count >= threshold

    def _run_first(
        self, live: tuple[int, ...], given: Sequence[torch.Tensor]
    ) -> SequenceRun | None:
        """Compile, run and check."""
        self.log.add("COMPILE", f"starting {self.number}: {self.name}", self.number)
        begun = time.perf_counter()
        try:
            run = _compile(self.calls, live, given, self.mode)
        except Exception as error:  # noqa: BLE001  (whatever the compiler raises)
            self.refuse(f"the compiler failed: {describe(error)}")
            return None
        one = _CompiledGraph(run, live, GlobalStateGuard(), self._inner(live), self._apart(live))
        outputs = self._outputs(one, given)
        if outputs is None:
            return None
        seconds = time.perf_counter() - begun
        self.compile_s.append(seconds)
        text = f"complete {self.number} in {seconds:.2f} s"
        self.log.add("COMPILE", text, self.number, seconds)
        one.copies = self._copies(one, outputs, given)
        if self.refused:
            return None
        self.compiled.append(one)
        return self._ran(one, outputs, given, is_first=True)

    def _inner(self, live: tuple[int, ...]) -> tuple[int, ...]:
        differentiable = [n for n in live if self.facts[n].requires_grad]
        return tuple(
            one
            for one in differentiable
            if any(Intermediate(one) in self.origins[other] for other in differentiable)
        )

    def _apart(self, live: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        differentiable = [n for n in live if self.facts[n].requires_grad]
        apart = []
        for one, other in itertools.combinations(differentiable, 2):
            shared = (self.origins[one] | {Intermediate(one)}) & (
                self.origins[other] | {Intermediate(other)}
            )
            if not any(
                isinstance(role, Intermediate) and self.facts[role.index].requires_grad
                for role in shared
            ):
                apart.append(tuple(role.index for role in shared if isinstance(role, Given)))
        return tuple(apart)

    def refuse(self, reason: str) -> None:
        """Run eagerly from now on."""
        self.refused = reason
        self.log.add("REFUSED", f"{self.number} ({self.name}): {reason}", self.number)
        self.calls[-1].heat()

    def _copies(
        self, one: _CompiledGraph, outputs: Sequence[torch.Tensor], given: Sequence[torch.Tensor]
    ) -> tuple[int, ...]:
        """Return which outputs must be copied, since they share memory and eagerly would not.

        The compiler may return one tensor for two equal expressions, or an input for ``x + 0``.
        Where it returns anything else than was recorded, the sequence is refused.

        Raises:
            RuntimeError: If it is too late to refuse, because the sequence has changed its inputs.
        """
        taken: dict[int, Role] = {}
        for number, tensor in enumerate(given):
            taken.setdefault(tensor.untyped_storage().data_ptr(), Given(number))
        owners = {role: place for place, role in taken.items()}
        copies = []
        for index, output in zip(one.live, outputs, strict=True):
            facts, seen, root = self.facts[index], facts_of(output), self.memory[index]
            place = output.untyped_storage().data_ptr()
            if seen != facts:
                self.refuse(f"the compiled result is {seen}, eagerly it was {facts}")
            elif output.numel():
                if isinstance(root, Given):
                    root = taken[given[root.index].untyped_storage().data_ptr()]
                if owners.setdefault(root, place) != place:
                    self.refuse("compiled results do not share the memory that they should share")
                elif taken.setdefault(place, root) != root:
                    copies.append(index)
        if self.refused and self.changes:
            raise RuntimeError(
                f"hotpath: {self.number} ({self.name}) {self.refused}; put it into a "
                "hotpath.boundary(name, compile=False), and please report it"
            )
        return tuple(copies)


def _origins(calls: list[Call]) -> list[set[Role]]:
    """Return for each result of a sequence the tensors from which it is computed."""
    origins: list[set[Role]] = []
    for call in calls:
        read = _roles_in((call.args, call.kwargs))
        before = [origins[role.index] for role in read if isinstance(role, Intermediate)]
        origins += [set(read).union(*before) for one in call.results if one.is_new]
    return origins


def _roles_in(template: Any) -> list[Role]:
    found: list[Role] = []

    def note(role: Role) -> Role:
        found.append(role)
        return role

    fill(template, note)
    return found


def _compile(
    calls: list[Call], live: tuple[int, ...], given: Sequence[torch.Tensor], mode: Mode
) -> Callable[..., Sequence[torch.Tensor]]:
    """Return the calls as one compiled function of what is given, which returns the live results.

    As ``torch.compile`` does, but for Dynamo: its graph and its guards are the record and the keys,
    which have been compared already, call by call.
    """
    graph = torch.fx.Graph()
    inputs = [graph.placeholder(f"given_{number}") for number in range(len(given))]
    made: list[torch.fx.Node] = []

    def of_role(role: Role) -> torch.fx.Node:
        return made[role.index] if isinstance(role, Intermediate) else inputs[role.index]

    for call in calls:
        node = _node(graph, call, fill(call.args, of_role), fill(call.kwargs, of_role))
        for place, result in enumerate(call.results):
            if result.is_new:
                alone = call.form is torch.Tensor
                made.append(
                    node if alone else graph.call_function(operator.getitem, (node, place))
                )
    graph.output(tuple([made[index] for index in live]))
    graph.lint()
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    options = torch._inductor.list_mode_options(mode)  # noqa: SLF001  (public, by its documentation)
    from torch._dynamo.convert_frame import compile_lock  # noqa: PLC0415  (seconds)

    choose_cache_folder()
    with compile_lock:
        compiled: Callable[..., Sequence[torch.Tensor]] = torch._inductor.compile(  # noqa: SLF001
            module, list(given), options=options
        )
    return compiled


def _node(graph: torch.fx.Graph, call: Call, args: Any, kwargs: Any) -> torch.fx.Node:
    func = call.func
    if getattr(func, "__name__", "") == "__get__":
        return graph.call_function(getattr, (args[0], name_of(func)))
    method = _METHODS.get(func)
    if method is None:
        return graph.call_function(func, args, kwargs)
    name = method.strip("_")
    if method.startswith("__"):
        if name in _OPERATORS:
            return graph.call_function(_OPERATORS[name], args)
        if name[:1] == "r" and name[1:] in _OPERATORS:
            return graph.call_function(_OPERATORS[name[1:]], args[::-1])
    return graph.call_method(method, args, kwargs)


# By the function that modes see, which has another name than the method for ``x ** 2``.
_METHODS: Final = {
    getattr(torch.Tensor, name): name
    for name in dir(torch.Tensor)
    if callable(getattr(torch.Tensor, name)) and name not in {"__class__", "__init_subclass__"}
}
