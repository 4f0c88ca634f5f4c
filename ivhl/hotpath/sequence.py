"""A hot sequence: the calls of a path as one function, compiled for the results that are in use."""

from __future__ import annotations

import contextlib
import operator
import time
from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
import torch._inductor
from torch._C._dynamo.guards import GlobalStateGuard
from torch.autograd.graph import increment_version
from torch.utils._python_dispatch import TorchDispatchMode

from ivhl.compile import choose_cache_folder, describe
from ivhl.hotpath.backward import (
    CannotCompileError,
    Protection,
    VersionCheck,
    compiled_node,
    copy_of,
    protection_of,
    storage_of,
)
from ivhl.hotpath.calls import (
    Call,
    Given,
    Intermediate,
    Role,
    digest_of,
    facts_of,
    fill,
    name_of,
    roles_in,
    tensors_in,
)
from ivhl.hotpath.surroundings import CompilerSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ivhl.compile import Mode
    from ivhl.hotpath.log import Log

_SAMPLES: Final = 200
_MOST_GRAPHS: Final = 8  # of a sequence
MOST_PIECES: Final = 4  # of a graph: results with a gradient that are in use
_NOTHING: Final[Any] = contextlib.nullcontext()
_preserve_version: Final = torch.autograd._unsafe_preserve_version_counter  # noqa: SLF001
_creation: Final = torch._C._autograd._get_creation_meta  # noqa: SLF001
_Creation: Final = torch._C._autograd.CreationMeta  # noqa: SLF001
# Beside those that PyTorch calls pointwise.
_ELEMENTWISE: Final = frozenset(
    {
        *(torch.ops.aten.copy_.default, torch.ops.aten.zero_.default),
        *(torch.ops.aten.fill_.Scalar, torch.ops.aten._to_copy.default),  # noqa: SLF001
    }
)
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


# Compiled runs before it is told or judged what they are worth: the first ones may compile again,
# for a gradient.
LEAST_TOLD: Final = 10


def slower(speedup: float | None) -> str:
    """Return that it does not pay to compile something; empty if it does, or nobody knows."""
    if speedup is None or speedup >= 1:
        return ""
    return f"compiled it takes {1 / speedup:.2g} times as long as eager"


@dataclass(eq=False, slots=True)
class _Piece:
    """Calls of a sequence that run as one function, with one node in autograd's graph.

    Attributes:
        run: Returns the results.
        takes: What it is called with.
        makes: Results that it returns.
        is_whole: Whether it takes all that the sequence is given.
        copies: Results that are copied, since the compiler gave them memory of others.
        detached: Results that the compiler made as views that may not be changed.
        root: The result with a gradient, or -1.
        protection: For a backward pass that does not follow at once.
        changes: Places among ``takes`` whose change autograd notices.
        buffers: Places whose change, by a normalisation, eager code hides from autograd.
    """

    run: Callable[..., Sequence[torch.Tensor]]
    takes: tuple[Role, ...]
    makes: tuple[int, ...]
    is_whole: bool
    copies: tuple[int, ...] = ()
    detached: tuple[int, ...] = ()
    root: int = -1
    protection: Protection = field(default_factory=Protection)
    changes: tuple[int, ...] = ()
    buffers: tuple[int, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether it returns what ``run`` returns."""
        return not self.copies and not self.detached and self.protection == _UNPROTECTED

    def __call__(
        self, inputs: Sequence[torch.Tensor], *, is_last: bool
    ) -> dict[int, torch.Tensor]:
        """Return the results by number.

        Args:
            inputs: As ``takes``.
            is_last: Whether the backward pass follows at once.
        """
        protection = _UNPROTECTED if is_last else self.protection
        if protection.clones:
            inputs = [
                copy_of(one) if place in protection.clones else one
                for place, one in enumerate(inputs)
            ]
        versions = [inputs[place]._version for place in self.changes]  # noqa: SLF001
        with contextlib.ExitStack() if self.buffers else _NOTHING as stack:
            for place in self.buffers:
                stack.enter_context(_preserve_version(inputs[place]))
            results = dict(zip(self.makes, self.run(*inputs), strict=True))
        for place, version in zip(self.changes, versions, strict=True):
            if inputs[place]._version == version:  # noqa: SLF001
                increment_version(inputs[place])
        if protection.watched:
            check = VersionCheck([inputs[place] for place in protection.watched])
            compiled_node(results[self.root]).register_prehook(check)
        for n in (*self.copies, *protection.results):
            results[n] = results[n].clone()
        for n in self.detached:
            results[n] = results[n].detach()
        return results


_UNPROTECTED: Final = Protection()


@dataclass(eq=False, slots=True)
class _CompiledGraph:
    """The function of a sequence for one set of live results, under one set of global settings.

    Attributes:
        pieces: Run one after the other.
        live: Which results these are.
        settings: Dynamo's own check of gradient mode, default dtype, threads, determinism.
        loss: The result whose backward pass must follow at once, since others with a gradient are
            results of the same piece; or -1.
        views: Calls that make live views of inputs and results, as eager code makes them.
        only: The piece, if there is but one and nothing else to do.
    """

    pieces: list[_Piece]
    live: frozenset[int]
    settings: GlobalStateGuard
    loss: int
    views: list[Call]
    only: _Piece | None = field(init=False)

    def __post_init__(self) -> None:
        self.only = None
        if len(self.pieces) == 1 and not self.views:
            piece = self.pieces[0]
            if piece.is_plain and piece.is_whole and not piece.changes and not piece.buffers:
                self.only = piece


class SequenceRun(NamedTuple):
    """A run of the compiled graph.

    Attributes:
        results: At least those that are in use, by number.
        is_first: Whether it was compiled for this run.
    """

    results: dict[int, torch.Tensor]
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
        losses: Misses that speak against it: no other sequence gets hot by them.
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
    losses: int = 0
    refused: str = ""
    compile_s: list[float] = field(default_factory=list)
    eager_s: deque[float] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    compiled_s: deque[float] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    compiled: list[_CompiledGraph] = field(default_factory=list)
    seen_live: dict[tuple[int, ...], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.name = " -> ".join(name_of(call.func) for call in self.calls)
        self.number = digest_of(self.calls)
        self.inputs = tuple(Given(n) for n in range(sum(len(call.brings) for call in self.calls)))
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
        places = {id(call): place for place, call in enumerate(self.calls)}
        self.places = [places[id(call)] for call, _ in self.makes]  # of the calls that make them
        self.reads = [roles_in((call.args, call.kwargs)) for call in self.calls]
        # All that the gradient of a result reaches, and that eager code keeps for it.
        self.reached: list[frozenset[Role]] = []
        self.kept: list[frozenset[Role]] = []
        for one in made:
            inner = [role.index for role in one.reaches if isinstance(role, Intermediate)]
            self.reached.append(one.reaches.union(*[self.reached[n] for n in inner]))
            self.kept.append(one.saves.union(*[self.kept[n] for n in inner]))
        self.changed = frozenset(role for call in self.calls for role in call.changed)
        self._lasts: dict[tuple[tuple[int, ...], int], int] = {}

    @property
    def objection(self) -> str:
        """Why it must not be compiled; empty if it may be."""
        if any(self.changed & kept for kept in self.kept):
            return "it changes a tensor that its backward pass needs"
        return ""

    @property
    def speedup(self) -> float | None:
        """Median eager seconds over median compiled ones, both from the first call to the last."""
        if not self.eager_s or not self.compiled_s:
            return None
        return median(self.eager_s) / median(self.compiled_s)

    def may_run(
        self, live: tuple[int, ...], given: Sequence[torch.Tensor], *, is_twice: bool
    ) -> str:
        """Return why the compiled graph may not run this time; empty if it may.

        Args:
            live: Results that are in use.
            given: Inputs.
            is_twice: Whether gradients of gradients are asked for.
        """
        if self.changes:
            places = [one.untyped_storage().data_ptr() for one in given]
            if len(set(places)) < len(places):
                return "inputs share their memory, and the sequence changes one of them"
        if is_twice and any(self.facts[n].requires_grad for n in live):
            return "a gradient of a gradient is asked for, which compiled code lacks"
        return ""

    def run(
        self,
        live: tuple[int, ...],
        given: Sequence[torch.Tensor],
        threshold: int,
        *,
        loss: int | None = None,
    ) -> SequenceRun | str:
        """Run the compiled graph.

        The first set of live results is compiled at once, another one after ``threshold`` times.

        Args:
            live: Results that are in use.
            given: Inputs.
            threshold: Repetitions after which something is hot.
            loss: The result whose backward pass follows at once, or ``None``.

        Returns:
            The run, or the reason why there is none; then nothing has changed.

        Raises:
            Exception: Whatever the operations raise after they may have changed something.
        """
        last = self._last(live, loss)
        one = self._find(live, last)
        if one is not None:
            try:
                return SequenceRun(self._results(one, given, is_last=last >= 0), is_first=False)
            except Exception as error:
                if self.changes:
                    raise
                self.refuse(f"its graph raised {describe(error)}")
                return self.refused
        if self.compiled and not self._is_wanted(live, threshold):
            return "more of its results are in use than before"
        self.log.add("COMPILE", f"starting {self.number}: {self.name}", self.number)
        begun = time.perf_counter()
        try:
            results = self._run_first(live, given, last)
        except CannotCompileError as error:
            self.refuse(str(error))
            return self.refused
        seconds = time.perf_counter() - begun
        self.compile_s.append(seconds)
        text = f"complete {self.number} in {seconds:.2f} s"
        self.log.add("COMPILE", text, self.number, seconds)
        return SequenceRun(results, is_first=True)

    def _last(self, live: tuple[int, ...], loss: int | None) -> int:
        """Return the result that is differentiated at once and with which all others are; or -1.

        After it, eager code cannot differentiate the others either: what it kept is freed.
        """
        if loss is None:
            return -1
        key = live, loss
        if key not in self._lasts:
            root = self.memory[loss]
            others = {n for n in self._needed(live)[0] if self.facts[n].requires_grad}
            self._lasts[key] = (
                root.index
                if isinstance(root, Intermediate)
                and all(
                    self.kept[n]
                    and (n == root.index or Intermediate(n) in self.reached[root.index])
                    for n in others
                )
                else -1
            )
        return self._lasts[key]

    def _find(self, live: tuple[int, ...], last: int) -> _CompiledGraph | None:
        for one in self.compiled:
            if one.live.issuperset(live) and one.loss in {-1, last} and one.settings.check():
                return one
        return None

    def _is_wanted(self, live: tuple[int, ...], threshold: int) -> bool:
        """Return whether another graph is worth its seconds; count how often it was asked for."""
        if len(self.compiled) >= _MOST_GRAPHS:
            return False
        if any(one.live.issuperset(live) and not one.settings.check() for one in self.compiled):
            self.log.add("RECOMPILE", f"{self.number}: global settings have changed", self.number)
            return True
        count = self.seen_live[live] = self.seen_live.get(live, 0) + 1
        return count >= threshold

    def _results(
        self, one: _CompiledGraph, given: Sequence[torch.Tensor], *, is_last: bool
    ) -> dict[int, torch.Tensor]:
        """Run the pieces, and make the views."""
        if one.only is not None:
            return dict(zip(one.only.makes, one.only.run(*given), strict=True))
        results: dict[int, torch.Tensor] = {}
        for piece in one.pieces:
            inputs = given if piece.is_whole else _of_roles(piece.takes, given, results)
            results |= piece(inputs, is_last=is_last)
        return _with_views(one.views, given, results)

    def _run_first(
        self, live: tuple[int, ...], given: Sequence[torch.Tensor], last: int
    ) -> dict[int, torch.Tensor]:
        """Compile, run and check.

        Raises:
            CannotCompileError: If the compiler fails, or the results are not what was recorded.
        """
        roots, views = self._needed(live)
        if any(call.changes for call in views):
            raise CannotCompileError(
                "an operation changes a tensor and returns a view that is in use"
            )
        grads = {n for n in roots if self.facts[n].requires_grad}
        loss = last if len(grads) > 1 else -1
        spans = [(0, len(self.calls))] if loss >= 0 else self._spans(grads)
        emitted = [self._emitted(*span) for span in spans]
        # What changes an input is tried with copies, so that it can still be refused.
        trial = [copy_of(tensor) for tensor in given] if self.changes else given
        pieces: list[_Piece] = []
        results: dict[int, torch.Tensor] = {}
        for number, (begin, end) in enumerate(spans):
            calls, takes = emitted[number]
            for _, others in emitted[number + 1 :]:
                roots |= {role.index for role in others if isinstance(role, Intermediate)}
            makes = tuple(n for n in sorted(roots) if begin <= self.places[n] < end)
            inputs = _of_roles(takes, trial, results)
            changed = {role for call in calls for role in call.changed}
            hidden = {
                role
                for call in calls
                if call.changes and not call.changed
                for role in roles_in((call.args, call.kwargs))
            } - changed
            is_eager = any(
                self.facts[n].requires_grad and not self._kept_for(n, takes) for n in makes
            ) or (len(spans) > 1 and sum(not _makes_views(call) for call in calls) <= 1)
            changes = tuple(place for place, role in enumerate(takes) if role in changed)
            piece = _Piece(
                _Eagerly(calls, takes, makes)
                if is_eager
                else self._function(calls, takes, makes, changes, inputs),
                takes,
                makes,
                is_whole=takes == self.inputs,
                changes=changes,
                buffers=tuple(
                    place
                    for place, role in enumerate(takes)
                    if role in hidden and not inputs[place].requires_grad
                ),
            )
            if loss < 0:
                piece.root = next((n for n in makes if self.facts[n].requires_grad), -1)
            results.update(self._try(piece, inputs))
            pieces.append(piece)
        if all(isinstance(piece.run, _Eagerly) for piece in pieces):
            raise CannotCompileError(
                "its results with gradients come from single operations, or from sums and views"
            )
        one = _CompiledGraph(pieces, frozenset(live), GlobalStateGuard(), loss, views)
        self.compiled.append(one)
        if trial is given and all(piece.is_plain for piece in pieces):
            return _with_views(views, given, results)
        results.clear()
        return self._results(one, given, is_last=last >= 0)

    def _needed(self, live: tuple[int, ...]) -> tuple[set[int], list[Call]]:
        """Return the results with memory of their own, and the calls that make views, for others."""
        roots: set[int] = set()
        views: set[int] = set()
        left = [Intermediate(n) for n in live]
        seen: set[Role] = set()
        while left:
            role = left.pop()
            if role in seen:
                continue
            seen.add(role)
            if self.memory[role.index] == role:
                roots.add(role.index)
                continue
            views.add(self.places[role.index])
            left += [
                one for one in self.reads[self.places[role.index]] if isinstance(one, Intermediate)
            ]
        return roots, [self.calls[place] for place in sorted(views)]

    def _emitted(self, begin: int, end: int) -> tuple[list[Call], tuple[Role, ...]]:
        """Return the calls of a piece, with those before that make views, and what they take."""
        places = set(range(begin, end))
        takes: set[Role] = set()
        left = sorted(places)
        while left:
            for role in self.reads[left.pop()]:
                if isinstance(role, Given) or (
                    self.places[role.index] not in places and self.memory[role.index] == role
                ):
                    takes.add(role)
                elif self.places[role.index] not in places:
                    places.add(self.places[role.index])
                    left.append(self.places[role.index])
        in_order = sorted(takes, key=lambda role: (isinstance(role, Intermediate), role.index))
        return [self.calls[place] for place in sorted(places)], tuple(in_order)

    def _spans(self, grads: set[int]) -> list[tuple[int, int]]:
        """Return where pieces begin and end, so that each has at most one result with a gradient.

        Raises:
            CannotCompileError: If there is no way, or it takes too many.
        """
        cuts = set(grads)
        while True:
            ends = sorted({self.places[n] + 1 for n in cuts})
            if len(ends) < len(cuts):
                raise CannotCompileError("an operation has several results with gradients in use")
            if len(ends) > MOST_PIECES:
                raise CannotCompileError(
                    f"more than {MOST_PIECES} results with gradients are in use"
                )
            spans = list(zip([0, *ends[:-1]], [*ends[:-1], len(self.calls)], strict=True))
            crossing = {
                role.index
                for span in spans or [(0, len(self.calls))]
                for role in self._emitted(*span)[1]
                if isinstance(role, Intermediate) and self.facts[role.index].requires_grad
            }
            if crossing <= cuts:
                return spans or [(0, len(self.calls))]
            cuts |= crossing

    def _function(
        self,
        calls: list[Call],
        takes: tuple[Role, ...],
        makes: tuple[int, ...],
        changes: tuple[int, ...],
        inputs: Sequence[torch.Tensor],
    ) -> Callable[..., Sequence[torch.Tensor]]:
        is_differentiated = any(self.facts[n].requires_grad for n in makes)
        if changes and not is_differentiated and _is_elementwise(calls, takes, inputs):
            changes = ()
        try:
            with CompilerSettings():
                return _compile(calls, takes, makes, changes, inputs, mode=self.mode)
        except Exception as error:  # whatever the compiler raises
            raise CannotCompileError(f"the compiler failed: {describe(error)}") from error

    def _kept_for(self, result: int, takes: tuple[Role, ...]) -> bool:
        """Return whether eager code keeps anything for a gradient from a result to these."""
        left: list[Role] = [Intermediate(result)]
        seen: set[Role] = set(takes)
        while left:
            role = left.pop()
            if role in seen or isinstance(role, Given):
                continue
            seen.add(role)
            call, place = self.makes[role.index]
            if call.results[place].saves:
                return True
            left += call.results[place].reaches
        return False

    def _try(self, piece: _Piece, inputs: Sequence[torch.Tensor]) -> dict[int, torch.Tensor]:
        """Run a piece for the first time, and note what it needs.

        The compiler may return one tensor for two equal expressions, or an input for ``x + 0``, and
        views that autograd lets nobody change.

        Raises:
            CannotCompileError: If a result is not what was recorded.
        """
        try:
            results = dict(zip(piece.makes, piece.run(*inputs), strict=True))
        except Exception as error:
            raise CannotCompileError(f"its graph raised {describe(error)}") from error
        if isinstance(piece.run, _Eagerly):
            return results
        taken = {storage_of(one) for one in inputs}
        copies, detached = [], []
        for n, one in results.items():
            if facts_of(one) != self.facts[n]:
                raise CannotCompileError(
                    f"a compiled result is {facts_of(one)}, eagerly it was {self.facts[n]}"
                )
            is_locked = one._is_view() and _creation(one) != _Creation.DEFAULT  # noqa: SLF001
            if storage_of(one) in taken or (is_locked and one.requires_grad):
                copies.append(n)
            elif is_locked:
                detached.append(n)
            taken.add(storage_of(one))
        if piece.root >= 0:
            piece.protection = protection_of(
                compiled_node(results[piece.root]),
                {n: one for n, one in results.items() if n not in copies},
                list(zip(piece.takes, inputs, strict=True)),
                self.kept[piece.root],
                self.changed,
            )
        if any(
            results[n].clone().stride() != self.facts[n].stride
            for n in (*copies, *piece.protection.results)
        ):
            raise CannotCompileError(
                "a result that must be copied has no copy of the same strides"
            )
        piece.copies, piece.detached = tuple(copies), tuple(detached)
        return results

    def refuse(self, reason: str) -> None:
        """Run eagerly from now on."""
        self.refused = reason
        self.log.add("REFUSED", f"{self.number} ({self.name}): {reason}", self.number)
        self.calls[-1].heat()


class _Elementwise(TorchDispatchMode):
    """Notes whether each operation reads of all tensors the element only that it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.holds = True

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Any = (),
        kwargs: Any = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        shapes = {one.shape for one in tensors_in((args, kwargs, result))}
        is_pointwise = torch.Tag.pointwise in func.tags or func in _ELEMENTWISE
        self.holds = self.holds and is_pointwise and len(shapes) == 1
        return result


def _is_elementwise(
    calls: list[Call], takes: tuple[Role, ...], inputs: Sequence[torch.Tensor]
) -> bool:
    """Return whether a graph of the calls may write into its inputs.

    What writes an element then has read it, and nothing else reads it later.
    """
    values = {role: copy_of(one) for role, one in zip(takes, inputs, strict=True)}
    with _Elementwise() as mode:
        _run_calls(calls, values)
    holds: bool = mode.holds
    return holds


def _makes_views(call: Call) -> bool:
    return not call.changes and all(one.memory != one.role for one in call.results)


class _Eagerly:
    """A piece that runs as it is: of one operation, or of sums and views.

    Where eager autograd keeps nothing, a result may be differentiated again and again; not so that
    of a compiled graph.
    """

    def __init__(self, calls: list[Call], takes: tuple[Role, ...], makes: tuple[int, ...]) -> None:
        self.calls, self.takes, self.makes = calls, takes, makes

    def __call__(self, *inputs: torch.Tensor) -> Sequence[torch.Tensor]:
        values = dict(zip(self.takes, inputs, strict=True))
        _run_calls(self.calls, values)
        return [values[Intermediate(n)] for n in self.makes]


def _run_calls(calls: list[Call], values: dict[Role, torch.Tensor]) -> None:
    """Run calls eagerly, and add what they make to the values."""
    for call in calls:
        args, kwargs = fill(call.args, values.__getitem__), fill(call.kwargs, values.__getitem__)
        result = call.func(*args, **kwargs)
        results = (result,) if call.form is torch.Tensor else result
        for one, tensor in zip(call.results, results or (), strict=True):
            if one.is_new:
                values[one.role] = tensor


def _with_views(
    views: list[Call], given: Sequence[torch.Tensor], results: dict[int, torch.Tensor]
) -> dict[int, torch.Tensor]:
    """Return the results with the views that eager calls make of them and of what is given."""
    if not views:
        return results
    values: dict[Role, torch.Tensor] = {Given(n): one for n, one in enumerate(given)}
    values |= {Intermediate(n): one for n, one in results.items()}
    _run_calls(views, values)
    return {role.index: one for role, one in values.items() if isinstance(role, Intermediate)}


def _of_roles(
    roles: tuple[Role, ...], given: Sequence[torch.Tensor], results: dict[int, torch.Tensor]
) -> list[torch.Tensor]:
    return [
        given[role.index] if isinstance(role, Given) else results[role.index] for role in roles
    ]


def _compile(
    calls: list[Call],
    takes: tuple[Role, ...],
    makes: tuple[int, ...],
    changes: tuple[int, ...],
    inputs: Sequence[torch.Tensor],
    *,
    mode: Mode,
) -> Callable[..., Sequence[torch.Tensor]]:
    """Return calls as one compiled function of what they take, which returns what they make.

    As ``torch.compile`` does, but for Dynamo: its graph and its guards are the record and the keys,
    which have been compared already, call by call. And the graph changes an input only where each
    element is read for itself alone: Inductor of PyTorch 2.5.1 to 2.14.1 writes into others before
    it has read them (docs/findings.md).

    Args:
        calls: In their order.
        takes: Inputs.
        makes: Results that are returned.
        changes: Places among ``takes`` that the calls change, and the graph must not.
        inputs: Examples.
        mode: Of ``torch.compile``.
    """
    graph = torch.fx.Graph()
    nodes = {role: graph.placeholder(f"input_{number}") for number, role in enumerate(takes)}
    written = [graph.call_function(torch.clone, (nodes[takes[place]],)) for place in changes]
    nodes |= {takes[place]: node for place, node in zip(changes, written, strict=True)}
    for call in calls:
        args, kwargs = fill(call.args, nodes.__getitem__), fill(call.kwargs, nodes.__getitem__)
        node = _node(graph, call, args, kwargs)
        for place, result in enumerate(call.results):
            if result.is_new:
                is_alone = call.form is torch.Tensor
                nodes[result.role] = (
                    node if is_alone else graph.call_function(operator.getitem, (node, place))
                )
    graph.output((*(nodes[Intermediate(n)] for n in makes), *written))
    graph.lint()
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    options = torch._inductor.list_mode_options(mode)  # noqa: SLF001  (public, by its documentation)
    from torch._dynamo.convert_frame import compile_lock  # noqa: PLC0415  (seconds)

    choose_cache_folder()
    with compile_lock:
        compiled: Callable[..., Sequence[torch.Tensor]] = torch._inductor.compile(  # noqa: SLF001
            module, list(inputs), options=options
        )
    return _WritingBehind(compiled, changes) if changes else compiled


class _WritingBehind:
    """A compiled function that returns the new values of what it changes, written behind it."""

    def __init__(
        self, run: Callable[..., Sequence[torch.Tensor]], changes: tuple[int, ...]
    ) -> None:
        self.run, self.changes = run, changes

    def __call__(self, *inputs: torch.Tensor) -> Sequence[torch.Tensor]:
        results = self.run(*inputs)
        n_made = len(results) - len(self.changes)
        for place, value in zip(self.changes, results[n_made:], strict=True):
            inputs[place].copy_(value)
        return results[:n_made]


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
