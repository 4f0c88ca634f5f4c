"""Records calls of PyTorch as they run; replaces those of a hot sequence by a compiled graph.

A hot sequence is not looked for again: the calls of the program are compared with it one by one, and
each gets a pending result (``pending.py``). After the last one, at the next call of anything else,
the compiled graph runs once and the pending tensors turn into its results. If the program goes
another way, or reads a value before, the calls so far run as they would have. docs/adr/0031 has why.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import weakref
from collections import deque
from sys import getrefcount
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar
from weakref import getweakrefcount

import torch
from torch._C._dynamo.guards import TensorGuards
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from ivhl.hotpath.backward import history_of, storage_of
from ivhl.hotpath.calls import (
    Call,
    Given,
    Intermediate,
    Result,
    Role,
    Tree,
    UndescribableError,
    Wiring,
    facts_of,
    fill,
    identity,
    name_of,
    roles_in,
    tensors_in,
)
from ivhl.hotpath.path import Path
from ivhl.hotpath.pending import FACTS, Pending, become, make_pending
from ivhl.hotpath.rules import (
    BY_VALUES,
    MIRRORED,
    PROPERTIES,
    SET_GRADIENT,
    Look,
    alone_by_deed,
    alone_by_name,
    form_of,
    is_known,
    is_known_change,
)
from ivhl.hotpath.sequence import LEAST_TOLD, HotSequence, SequenceRun, slower
from ivhl.hotpath.surroundings import (
    CompilerSettings,
    Surroundings,
    is_top,
    n_modes,
    pop_dispatch_mode,
    pop_mode,
    push_dispatch_mode,
    push_mode,
    restored,
    set_grad_enabled,
    surroundings_now,
)
from ivhl.hotpath.turns import TrainingTurns, graph_of, nodes_made

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ivhl.compile import Mode
    from ivhl.hotpath.calls import Facts
    from ivhl.hotpath.log import Log
    from ivhl.hotpath.timeline import Timeline
    from ivhl.hotpath.turns import First

P = ParamSpec("P")
R = TypeVar("R")

# More ways to go on after a call than this: arguments that change at each step.
MOST_WAYS: Final = 64
# Calls that are known of a block, all trees together.
MOST_KNOWN: Final = 100_000
# Compiled sequences of the same operations, which differ in shapes or parameters.
MOST_SHAPES: Final = 8
# Calls of a sequence; a longer one is cut.
MOST_CALLS: Final = 2000
# Repetitions from which a known call is always only run the first time: what is met now may have
# been the end of up to two turns before.
_LEAST_FOR_SKETCHES: Final = 4
# Equal turns in a row that are a loop and no part of one.
_TURNS_OF_LOOP: Final = 3
# Segments in which the first turn of a loop is looked for.
_LATELY: Final = 16
# Bytes of results that are kept while their record is put off.
_MOST_KEPT: Final = 2**26

# Between two looks of another thread at whether it may compute what is pending.
_LOOK_AGAIN_S: Final = 0.01

_ANOTHER_WAY: Final = "the program went another way"

_probe: Final = [object()]
_OURS: Final = getrefcount(_probe[0])  # references to an element of a list that nobody else has

_NOTHING: Final = contextlib.nullcontext()


class _Watch(TorchDispatchMode):
    """Settles before anything runs past the recorder, while a change of a tensor is pending."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Any = (),
        kwargs: Any = None,
    ) -> Any:
        if self.recorder.is_deferring and not self.recorder.is_passing:
            self.recorder.settle(is_watching=True)
        # The operation may come from where no function mode was asked: it is no call of the program,
        # before which the recorder would end this mode, which PyTorch has taken off for now.
        with self.recorder.aside():
            return func(*args, **(kwargs or {}))


class Recorder(TorchFunctionMode):
    """The mode of one thread, from the beginning to the end of a block.

    Attributes:
        threshold: Repetitions after which a sequence is hot.
        min_calls: Calls of the shortest sequence.
        only_faster: Whether what is measured slower compiled is given up.
        roots: The trees of sequences, by boundary and surroundings; they outlive the block.
        boundary: The name of the innermost boundary, or empty.
        paused: Number of reasons not to record now.
        timeline: Begin, end (``time.perf_counter``), kind and name of what ran last.
    """

    def __init__(
        self,
        *,
        threshold: int,
        min_calls: int,
        mode: Mode,
        only_faster: bool,
        roots: Tree,
        sequences: list[HotSequence],
        log: Log,
        timeline: Timeline,
    ) -> None:
        super().__init__()
        self.threshold = threshold
        self.min_calls = min_calls
        self.compile_mode = mode
        self.only_faster = only_faster
        self.roots = roots
        self.sequences = sequences
        self.log = log
        self.timeline = timeline
        self.boundary = ""
        self.boundary_threshold: int | None = None
        self.paused = 1  # since it is not open yet
        self.is_deferring = False
        self.is_passing = False
        # Whether a thread computes what is pending, and what keeps the others away meanwhile.
        self._is_settling = False
        self._lock = threading.RLock()
        self.is_differentiating_twice = False  # whether a gradient of a gradient was asked for
        self.has_optimizer = False  # whether one has made a step, which ends a turn
        self.reasons: dict[str, int] = {}  # why calls ran by themselves
        self.turns = TrainingTurns(self._count, self.limit)
        self._progress = 0  # compiled runs, and what may become hot
        self.is_resting = False  # whether the mode is not active, since turns are not looked at
        self._watch: _Watch | None = None  # while it is active
        self._unused_watch: _Watch | None = None
        self._surroundings = surroundings_now(0)
        self._settings: CompilerSettings | None = None  # from the first compiled region on
        self._lately: deque[Path] = deque(maxlen=_LATELY)  # of segments
        self._turn = 0  # calls of a turn of the loop that was found last; 0 if there was none
        self._dispatch_keys = (
            torch._C._dispatch_tls_local_include_set(),  # noqa: SLF001
            torch._C._dispatch_tls_local_exclude_set(),  # noqa: SLF001
        )
        self._thread = threading.get_ident()
        self._node: Call
        self._wiring: Wiring
        self._depth: int
        # Calls that have run and are not recorded yet, with their results, at the beginning of a new
        # block: most are differentiated at once, and then their graph tells enough (TrainingTurns).
        self._postponed: list[tuple[Any, Any, Any, Any]] | None = None
        # Where the program went on, or the last call if it began anew, while what waits is settled.
        self._other_way: Call | None = None
        self._result: list[Any] = []  # of a call that has run and is recorded now
        self._nodes = 0  # of autograd that were made before this segment
        self._graph: tuple[
            Any, ...
        ] = ()  # in which this segment ends, if it may have been left out
        if not roots and not log.debug and threshold >= _LEAST_FOR_SKETCHES:
            self._forget_postponed()
        self._begun: float
        self._spent: float
        self._has_met: bool
        self._first: tuple[Any, Any]
        self._has_copies: bool
        self._begin()

    # --- calls -----------------------------------------------------------------------------------

    def __torch_function__(  # noqa: C901, PLR0911, PLR0912  (one way through it, at each call)
        self,
        func: Any,
        types: Any,
        args: Any = (),
        kwargs: Any = None,
    ) -> Any:
        """Record, defer or run a call."""
        if kwargs is None:
            kwargs = {}
        with self._lock:  # see settle_elsewhere
            call = self._node.likely
            if call is not None and call.func is func:
                if call.hot and call.is_plain:
                    pending = self._wait(call, args, kwargs)
                    if pending is not None:
                        return pending
            else:
                call = None
                if func in FACTS or (
                    (func in PROPERTIES or (func == SET_GRADIENT and args[1] is None))
                    and type(args[0]) is not Pending
                ):
                    return func(*args, **kwargs)
            if self.paused or (self.turns.follows and self.turns.pass_one()):
                return func(*args, **kwargs)
            # As Python calls it: two operands and nothing else.
            may_be_mirrored = (
                func in MIRRORED
                and [type(one) for one in args] == [Pending, torch.Tensor]
                and not kwargs
            )
            surroundings = self._now() if self._watch is not None else surroundings_now(0)
            if surroundings != self._surroundings:
                self.end_segment()
                self._surroundings = surroundings
                self._begin()
                has_begun = True
            else:  # nothing goes on behind the last call of a sequence
                has_begun = self.is_deferring and not self._node.then and self.settle()
            if surroundings is None:
                return func(*args, **kwargs)
            if has_begun:
                call = self._node.likely
                if call is not None and call.func is not func:
                    call = None
                if call is not None and call.hot and call.is_plain:
                    pending = self._wait(call, args, kwargs)
                    if pending is not None:
                        return pending
            if self._postponed is not None:
                if is_known(func, kwargs):
                    if self._may_postpone(func, args):
                        return self._postpone(func, args, kwargs)
                elif next(tensors_in((args, kwargs)), None) is None:
                    return self.pass_by(func, args, kwargs)
                self._record_postponed()
            if self.is_deferring:
                self._number()
            if may_be_mirrored and self._is_mirrored(func, args):
                call, func, args = None, MIRRORED[func], args[::-1]
            return self._record(call, func, args, kwargs)

    def _is_mirrored(self, func: Any, args: Any) -> bool:
        """Return whether the record has a comparison the other way round, and only so."""
        try:
            as_it_came = self._wiring.key_of(func, args)
            mirrored = self._wiring.key_of(MIRRORED[func], args[::-1])
        except UndescribableError:
            return False
        return mirrored in self._node.then and as_it_came not in self._node.then

    def _record(self, call: Call | None, func: Any, args: Any, kwargs: Any) -> Any:
        """Record or defer a call, or run it by itself.

        Args:
            call: Which is expected here, if it may be this one.
            func: Of the call.
            args: Of the call.
            kwargs: Of the call.
        """
        key = None
        n_given = len(self._wiring.given)
        if call is None or not self._wiring.fits(call, args, kwargs):
            try:
                key = self._wiring.describe(func, args, kwargs)
            except UndescribableError as error:
                self._note_alone(func, str(error))
                return self._alone(func, args, kwargs)
            if not self._wiring.tensors:
                return self.pass_by(self._run_call, (func, args, kwargs), {})
            call = self._node.then.get(key)
        try:
            return self._see(call, key, func, args, kwargs, n_given)
        except BaseException:
            self._forget_segment()
            raise

    def _see(  # noqa: C901, PLR0911, PLR0912, PLR0917  (one way through it, too)
        self,
        call: Call | None,
        key: Any,
        func: Any,
        args: Any,
        kwargs: Any,
        n_given: int,
    ) -> Any:
        if self.is_deferring:
            if call is not None and call.hot and self._bind(call):
                return self._defer(call)
            self._other_way = call or self._node
            has_ended = self.settle()
            self._other_way = None
        else:
            has_ended = False
        if not has_ended and call is None and self._is_first_again(func, args, kwargs, n_given):
            self.end_segment()
            has_ended = True
        if has_ended:
            n_given = 0
            key = self._wiring.describe(func, args, kwargs)
            call = self._node.then.get(key)
        if self._depth == 0:
            if call is not None:
                key = call.key
            is_new = not self._result and (call is None or not call.hot)
            if is_new and self.turns.begins_as_known((key, torch.is_grad_enabled())):
                self._begin()
                return func(*args, **kwargs)
            self._begun = time.perf_counter()
            self._nodes = nodes_made()
            self._first = func, key
        if call is None:
            return self._meet(key, func, args, kwargs, n_given)
        if call.alone:
            return self._alone(func, args, kwargs)
        if call.hot and self._depth == 0 and self._bind(call):
            self.is_deferring = True
            return self._defer(call)
        if call.is_sketch and self._may_get_hot(call):
            result = self._look(call, func, args, kwargs, n_given)
            if call.alone:
                return result
        else:
            began = time.perf_counter()
            result = self._run_call(func, args, kwargs)
            self._spent += time.perf_counter() - began
            if call.is_watched and _has_other_shapes(call, result):
                call.alone = BY_VALUES
                self._note_alone(func, call.alone)
                self.end_segment()
                return result
        self._went(call, result)
        return result

    def _run_call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return the result of a call, which may have run already."""
        return self._result.pop() if self._result else func(*args, **kwargs)

    # --- calls that are recorded later, or never ---------------------------------------------------

    def _may_postpone(self, func: Any, args: Any) -> bool:
        """Return whether the record of a known call can wait."""
        kept = self._postponed
        assert kept is not None  # noqa: S101  (the caller has looked)
        # N repetitions of a loop have N calls of each function.
        n = self._runs_of[func] = self._runs_of.get(func, 0) + 1
        if 2 * n >= self.limit():
            return False
        if len(kept) < self.min_calls or func is not kept[0][0]:
            return True
        # As in _is_first_again.
        known = {identity(one) for call in kept for one in call[1]}
        return any(type(one) is torch.nn.Parameter and identity(one) not in known for one in args)

    def _postpone(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run a call, and keep what its record needs."""
        kept = self._postponed
        assert kept is not None  # noqa: S101
        if not kept:
            self._begun = time.perf_counter()
            self._nodes = nodes_made()
            self.turns.begin()
        try:
            result = func(*args, **kwargs)
        except BaseException:
            self._forget_segment()
            raise
        kept.append((func, args, kwargs, result))
        if type(result) is torch.Tensor:
            self._kept_bytes += result.numel() * result.element_size()
        if type(result) is not torch.Tensor or self._kept_bytes > _MOST_KEPT:
            self._record_postponed()
        return result

    def _first_of(self, kept: list[tuple[Any, Any, Any, Any]]) -> First:
        func, args, kwargs, _ = kept[0]
        try:
            return Wiring().describe(func, args, kwargs), torch.is_grad_enabled()
        except UndescribableError:
            return (func,), False

    def _forget_postponed(self) -> None:
        self._postponed = []
        self._runs_of: dict[Any, int] = {}
        self._kept_bytes = 0

    def _record_postponed(self) -> None:
        """Record the calls that wait, as if they ran now; from now on none waits."""
        kept, self._postponed = self._postponed or [], None
        begun, nodes = self._begun, self._nodes
        with self.aside():
            for func, args, kwargs, result in kept:
                self._has_met = True  # their seconds are not known
                self._result = [result]
                self._record(None, func, args, kwargs)
        self._result = []
        if self._depth == len(kept):
            self._begun, self._nodes = begun, nodes

    def differentiate(self, losses: Any, loss: Any) -> None:
        """End the segment before a backward pass.

        Args:
            losses: What is differentiated.
            loss: The same, if the pass frees its graph.
        """
        kept = self._postponed
        if kept is not None and len(kept) >= self.min_calls:
            self._progress += 1
            self.timeline.add(self._begun, time.perf_counter(), "eager", self.boundary)
            graph = *graph_of(losses), nodes_made() - self._nodes
            self._forget_postponed()
            if self.turns.leave_out(graph, lambda: self._first_of(kept), len(kept)):
                self._postponed = None
        elif self.turns.left_out and not self.is_deferring:
            self._graph = *graph_of(losses), nodes_made() - self._nodes
        self.end_segment(loss)
        self._graph = ()
        self.turns.differentiate(losses)

    def end_differentiated(self) -> None:
        """End a turn with what was differentiated, in a program without an optimizer."""
        if not self.has_optimizer:
            self.turns.end()

    # --- calls that are recorded as they run -------------------------------------------------------

    def _is_first_again(self, func: Any, args: Any, kwargs: Any, n_given: int) -> bool:
        """Return whether the segment begins anew, as in a loop in which nothing else ends it.

        Args:
            func: Of the call.
            args: Of the call.
            kwargs: Of the call.
            n_given: Number of tensors that came from outside before this call.
        """
        # Of a loop of which nothing else is known, a turn may begin as its other parts do.
        least = self.min_calls if self.limit() < _LEAST_FOR_SKETCHES else self._turn
        if not least or self._depth < least or func is not self._first[0]:
            return False
        # Another layer of the same sizes has other parameters, another turn of a loop the same.
        parameters = [one for one in tensors_in((args, kwargs)) if type(one) is torch.nn.Parameter]
        known = {Given(n) for n in range(n_given)}
        return bool(Wiring().describe(func, args, kwargs) == self._first[1]) and all(
            self._wiring.role_of(one) in known for one in parameters
        )

    def _last_turn(self) -> int:
        """Return the calls of a turn, if the last ones are equal turns of a loop; else 0.

        Two equal turns may be a sum, ``k1 + 2 * k2 + 2 * k3``; a loop has more, if it may get hot
        after more.
        """
        turns = min(_TURNS_OF_LOOP, max(2, self.limit() - 1))
        return self._path_to_here().last_turn(turns, self.min_calls)

    def _path_to_here(self) -> Path:
        """Return the calls of this segment."""
        path = self._path
        for call in self._node.path(self._depth - len(path.calls)):
            path.add(call)
        return path

    def _meet(self, key: Any, func: Any, args: Any, kwargs: Any, n_given: int) -> Any:
        """Run a call for the first time at this place, and look at what it is."""
        above = self._node
        if len(above.then) >= MOST_WAYS or self.roots.size >= MOST_KNOWN:
            self._note_alone(func, "its arguments change at each step")
            return self._alone(func, args, kwargs)
        self._progress += 1
        self.roots.size += 1
        if self._depth == 0:
            self.turns.begin()
        call = Call(func, key, above, torch.is_grad_enabled())
        is_ordinary = is_known(func, kwargs) or is_known_change(func)
        call.alone = "" if is_ordinary else alone_by_name(func, kwargs)
        if call.alone:
            above.then[key] = call
            self._note_alone(func, call.alone)
            return self._alone(func, args, kwargs)
        call.args = self._wiring.template(tuple(args))
        call.kwargs = self._wiring.template(kwargs)
        call.brings = tuple(self._wiring.brought)
        if is_ordinary and self._may_sketch():
            result = self._sketch(call, func, args, kwargs)
        else:
            result = self._look(call, func, args, kwargs, n_given)
        above.then[key] = call
        if call.alone:
            return result
        self._went(call, result)
        turn = self._last_turn()
        if turn or self._depth >= MOST_CALLS:
            # The loop goes on in segments of one turn, whose first end finds these.
            self._turn = turn
            call.is_cut = True
            self._cut_behind_first(turn)
            self.end_segment()
        return result

    def _cut_behind_first(self, turn: int) -> None:
        """End segments behind the first turn of a loop, if nothing precedes it in this one."""
        path = self._path.calls
        if turn and len(path) % turn == 0 and self._path.are_alike(turn, turn):
            # What the program did before, and perhaps runs compiled, goes on behind this turn.
            for place in range(len(path) - 1, turn - 1, -1):
                call, above = path[place], path[place - 1]
                if call.then or call.count:
                    return
                del above.then[call.key]
                above.likely = None
                self.roots.size -= 1
            last = path[turn - 1]
            last.is_cut = not last.then

    def _may_sketch(self) -> bool:
        limit = self.limit()
        return limit >= _LEAST_FOR_SKETCHES and self.turns.most_left_out() + 1 < limit

    def _may_get_hot(self, call: Call) -> bool:
        """Return whether a sequence through a call may be hot after this run."""
        return call.most + self.turns.most_left_out() + 1 >= self.limit()

    def _sketch(self, call: Call, func: Any, args: Any, kwargs: Any) -> Any:
        """Run a known call for the first time; most calls of a program never come again."""
        self._has_met = True
        result = self._run_call(func, args, kwargs)
        is_new = not is_known_change(func)
        if (type(result) is not torch.Tensor) if is_new else (result is not args[0]):
            # NotImplemented: the other operand knows how.
            call.alone = "it returns something other than tensors"
            self._note_alone(func, call.alone)
            self.end_segment()
            return result
        role = Intermediate(self._wiring.made) if is_new else self._wiring.role_of(result)
        assert role is not None  # noqa: S101  (arguments have been described)
        call.form = torch.Tensor
        call.results = (Result(role, is_new, facts_of(result), memory=role),)
        call.is_sketch = True
        return result

    def _look(self, call: Call, func: Any, args: Any, kwargs: Any, n_given: int) -> Any:
        """Run a call and look at what it is; one that is in no sequence ends this one."""
        is_ordinary, call.is_sketch = call.is_sketch or is_known(func, kwargs), False
        call.make_plan()
        given: dict[Role, torch.Tensor] = {}
        for one in tensors_in((args, kwargs)):
            role = self._wiring.role_of(one)
            assert role is not None  # noqa: S101  (they have been described)
            given[role] = one
        before = [(one._version, facts_of(one)) for one in given.values()]  # noqa: SLF001
        new = [reference() for reference in self._wiring.given[n_given:]]
        call.guard = _guard_of(new) if new else None
        if is_ordinary:
            began = time.perf_counter()
            result = func(*args, **kwargs)
            self._spent += time.perf_counter() - began
            call.form = form_of(result)
        else:
            self._has_met = True
            look = Look()
            state = torch.get_rng_state()
            with look:
                result = func(*args, **kwargs)
            call.form = form_of(result)
            call.alone = alone_by_deed(
                func,
                look.ran,
                result,
                [*given.values()],
                has_drawn=lambda: not torch.equal(state, torch.get_rng_state()),
            )
        if not call.alone:
            call.alone = self._look_at(call, result, given, before)
        if call.alone:
            self._note_alone(func, call.alone)
            self.end_segment()
        return result

    def _look_at(
        self,
        call: Call,
        result: Any,
        given: dict[Role, torch.Tensor],
        before: list[tuple[int, Facts]],
    ) -> str:
        """Note what a call has changed and made; return why it is in no sequence, or nothing.

        Args:
            call: That has run.
            result: What it returned.
            given: Its tensors.
            before: Version and facts of each of them, before.
        """
        path = self._path_to_here()
        made, brought = path.made, [*path.brought, *call.brings]
        owners: dict[int, Role] = {}
        changed = []
        for (role, one), (version, facts) in zip(given.items(), before, strict=True):
            root = made[role.index].memory if isinstance(role, Intermediate) else role
            owners.setdefault(storage_of(one), root)
            if facts_of(one) != facts:
                return "it changes the shape of a tensor, or whether it requires a gradient"
            if one._version != version:  # noqa: SLF001
                changed.append(root)
                is_tracked = one.requires_grad or (
                    made[root.index].facts.requires_grad
                    if isinstance(root, Intermediate)
                    else brought[root.index][4]
                )
                if call.grad and is_tracked:
                    return "it changes a tensor of autograd's graph in place"
        # Of "_norm", PyTorch marks neither schema nor version.
        call.changes = bool(changed) or "_norm" in name_of(call.func)
        call.changed = tuple(changed)
        try:
            call.results = self._results(result, given, owners)
        except RuntimeError as error:  # one of several views of a tensor that changed
            return f"autograd does not say how it is differentiated, {error}"
        call.spare = [None] * len(call.results)
        call.is_watched = not is_known(call.func, {})
        call.is_plain = call.form is torch.Tensor and call.plan is not None
        return ""

    def _results(
        self, result: Any, given: dict[Role, torch.Tensor], owners: dict[int, Role]
    ) -> tuple[Result, ...]:
        """Return what a call returns, before its results are numbered."""
        found = []
        n_made = self._wiring.made
        for one in tensors_in(result):
            role = self._wiring.role_of(one)
            is_new = role is None
            if role is None:
                role = Intermediate(n_made)
                n_made += 1
            memory = owners.setdefault(storage_of(one), role)
            reaches, saves = (
                history_of(one, given, owners)
                if is_new and one.requires_grad
                else (frozenset(), frozenset())
            )
            found.append(Result(role, is_new, facts_of(one), memory, reaches, saves))
        return tuple(found)

    def _went(self, call: Call, result: Any) -> None:
        """Go on to the next place of the tree, after a call has run."""
        results = (result,) if call.form is torch.Tensor else result
        for one, tensor in zip(call.results, results or (), strict=True):
            if one.is_new:
                self._wiring.add_made(tensor)
        self._node.likely = call
        self._node = call
        self._depth += 1
        if self.log.debug:
            self.log.add("CALL", name_of(call.func))
        if call.is_cut:
            self.end_segment()

    def _alone(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run a call that no sequence holds; it ends one."""
        if func is torch.autograd.grad and (kwargs.get("create_graph") or any(args[4:5])):
            self.is_differentiating_twice = True
        if name_of(func) == "dlpack":
            for one in tensors_in((args, kwargs)):
                _note_export(one)
        self.end_segment()
        return self._run_call(func, args, kwargs)

    def pass_by(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run a call that reads no tensor that waits, such as ``torch.zeros``; it ends nothing."""
        self.is_passing = True
        try:
            return func(*args, **kwargs)
        finally:
            self.is_passing = False

    def _note_alone(self, func: Any, reason: str) -> None:
        text = f"{name_of(func)}: {reason}"
        if text not in self.reasons:
            self.log.add("CUT", f"{text}, so it runs by itself")
        self.reasons[text] = self.reasons.get(text, 0) + 1

    # --- pending calls ---------------------------------------------------------------------------

    def _wait(  # noqa: C901  (the shortest way, of nearly all hot calls)
        self, call: Call, args: Any, kwargs: Any
    ) -> torch.Tensor | None:
        """Return the result of the expected call, pending; ``None`` if this may be another one.

        What waits is held by us, so its tensors are known by their identity alone.
        """
        watch = self._watch
        if (
            not (self.is_deferring or not (self._depth or self._wiring.roles))
            or self.paused
            or self._has_copies
            or surroundings_now(watch is not None) != self._surroundings
        ):
            return None
        values = args
        if kwargs or call.names:
            if tuple(kwargs) != call.names:
                return None
            values = (*args, *kwargs.values())
        match = call.match or call.make_match()
        new = match(values, self._pendings, self._originals, self._held)
        if new is None:
            return None
        if new:
            # In C++: class, dispatch keys, dtype, device, shape, strides, requires_grad; no doubles.
            guard = call.guard if watch is None else call.guard_below
            if guard is None or not guard.check(*new):
                return None
            for value in new:
                if _is_shared(value):
                    return None  # _bind has why
            self._hold(new, new)
        if not self._depth:
            self._begun = time.perf_counter()
            self._first = call.func, call.key
            self.is_deferring = True
        self._node.likely = self._node = call
        self._depth += 1
        one = call.results[0]
        result = self._pending_of(call, 0) if one.is_new else self._object(one.role)
        if call.changes:
            self._watch_changes()
        return result

    def _watch_changes(self) -> None:
        if self._watch is None:
            if self._unused_watch is None:
                self._unused_watch = _Watch(self)
            self._watch = self._unused_watch
            push_dispatch_mode(self._watch)

    def _hold(self, originals: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> None:
        """Keep tensors that waiting calls bring from outside, and what the graph reads of them."""
        self._originals += originals
        self._inputs += inputs
        self._versions += [one._version for one in inputs]  # noqa: SLF001
        self._held.update(map(identity, originals))

    def _pending_of(self, call: Call, place: int) -> Pending:
        """Return the pending tensor for a result of a call that waits."""
        pending = call.spare[place]
        if pending is None:
            # It runs operations, which must not compute what waits.
            pending = self.pass_by(make_pending, (call.results[place].facts,), {})
        else:
            call.spare[place] = None
            pending.__dict__.clear()  # of what it became the last time
        self._pendings.append(pending)
        return pending

    def _number(self) -> None:
        """Number what waits as what has run is numbered; ``_wait`` leaves that out."""
        for one in self._originals[len(self._wiring.given) :]:
            self._wiring.add_given(one)
        for pending in self._pendings[self._wiring.made :]:
            self._wiring.add_made(pending)

    def _bind(self, call: Call) -> bool:
        """Keep the inputs of a call; return whether it may wait."""
        if self._has_copies and not self._are_copies_exact(call):
            return self._may_not_wait("the memory of an input was changed by NumPy or others")
        if len(self._inputs) == len(self._wiring.given) and not self._has_copies:
            return True
        inputs: list[Any] = [reference() for reference in self._wiring.given[len(self._inputs) :]]
        # NumPy, DLPack or another process may write into these before we read them.
        shared = [one for one in inputs if _is_shared(one)]
        if any(one.requires_grad for one in shared):
            return self._may_not_wait("its memory is shared and it requires a gradient")
        if (shared or self._has_copies) and not self._may_copy(call):
            return self._may_not_wait("the memory of an input is shared with NumPy or others")
        originals = inputs
        if shared:
            self._has_copies = True
            inputs = [
                self.pass_by(one.clone, (), {}) if any(one is other for other in shared) else one
                for one in inputs
            ]
        self._hold(originals, inputs)
        return True

    def _are_copies_exact(self, call: Call) -> bool:
        """Return whether what a call reads again is still what was copied when it was read first."""
        again = [
            (self._originals[role.index], self._inputs[role.index])
            for role in roles_in((call.args, call.kwargs))
            if isinstance(role, Given) and role.index < len(self._inputs)
        ]
        return all(one is copy or self.pass_by(_are_same, (one, copy), {}) for one, copy in again)

    def _may_not_wait(self, reason: str) -> bool:
        text = f"inputs: {reason}"
        if text not in self.reasons:
            self.log.add("FALLBACK", f"runs eagerly: {reason}")
        self.reasons[text] = self.reasons.get(text, 0) + 1
        return False

    @staticmethod
    def _may_copy(call: Call) -> bool:
        return not call.changes and not any(isinstance(one.memory, Given) for one in call.results)

    def _defer(self, call: Call) -> Any:
        """Return pending results of a call."""
        results: list[torch.Tensor] = []
        for place, one in enumerate(call.results):
            if one.is_new:
                pending = self._pending_of(call, place)
                self._wiring.add_made(pending)
                results.append(pending)
            else:
                results.append(self._object(one.role))
        self._node.likely = call
        self._node = call
        self._depth += 1
        if self._watch is not None and call.brings and call.guard_below is None:
            call.guard_below = _guard_of(self._originals[-len(call.brings) :])
        if call.changes:
            self._watch_changes()
        if call.form is None:
            return None
        return results[0] if call.form is torch.Tensor else call.form(results)

    def _object(self, role: Role) -> torch.Tensor:
        return (
            self._pendings[role.index]
            if isinstance(role, Intermediate)
            else self._originals[role.index]
        )

    def settle(self, loss: Any = None, *, is_watching: bool = False) -> bool:
        """Compute what is pending; return whether that ended the segment.

        Args:
            loss: What is differentiated at once, by a backward pass that frees its graph.
            is_watching: Whether something reads past the recorder.
        """
        if not (self.is_deferring or self._is_settling):
            return False
        with self._lock:
            if not self.is_deferring:
                return False
            self._is_settling, self.is_deferring = True, False
            try:
                if not is_watching:
                    self._stop_watching()
                with self.aside(), self._above_autograd() if is_watching else _NOTHING:
                    return self._run_where_called(loss)
            finally:
                self._is_settling = False

    def settle_elsewhere(self) -> None:
        """Compute what is pending in another thread than the recorder's, which waits meanwhile.

        It runs eagerly: settings of the compiler, and who holds a result, are known in the
        recorder's thread only.
        """
        # A look now and then: the recorder's thread may have settled, and wait for this one.
        while self.is_deferring or self._is_settling:
            if not self._lock.acquire(timeout=_LOOK_AGAIN_S):
                continue
            try:
                if self.is_deferring:
                    self._is_settling, self.is_deferring = True, False
                    with self._above_autograd():
                        self._run_where_called(None, "another thread read a result")
            finally:
                self._is_settling = False
                self._lock.release()

    def _above_autograd(self) -> Any:
        """Return a context in which operations meet autograd; a dispatch mode runs below it."""
        return torch._C._ForceDispatchKeyGuard(*self._dispatch_keys)  # noqa: SLF001

    def _run_where_called(self, loss: Any, objection: str = "") -> bool:
        """Run what is pending in the surroundings of its calls.

        Args:
            loss: As in ``settle``.
            objection: Why it runs eagerly.
        """
        surroundings = self._surroundings
        assert surroundings is not None  # noqa: S101  (of calls that were recorded)
        now = surroundings_now(0)
        if now == surroundings:
            return self._run(loss, objection)
        if now is not None and now[1] is surroundings[1]:  # as behind no_grad
            set_grad_enabled(surroundings[0])
            try:
                return self._run(loss, objection)
            finally:
                set_grad_enabled(now[0])
        with restored(surroundings):
            if surroundings_now(0) != surroundings:
                objection = objection or _ANOTHER_WAY
            return self._run(loss, objection)

    def _run(self, loss: Any, objection: str) -> bool:
        """Run what is pending, compiled or eagerly; return whether that ended the segment.

        Raises:
            RuntimeError: If it cannot be computed any more as it would have been.
        """
        if [one._version for one in self._inputs] != self._versions:  # noqa: SLF001
            raise RuntimeError(
                "hotpath: something that no mode of PyTorch sees, such as an extension in C++, "
                "has changed a tensor that calls before it read; call it outside of hotpath.auto "
                "or in a hotpath.boundary(name, compile=False)"
            )
        sequence = self._node.sequence
        reason = objection or _ANOTHER_WAY
        if sequence is not None and not sequence.refused and not objection:
            given = self._inputs
            # Nobody else has a pending tensor that is dead: neither a name nor the stack.
            pendings = self._pendings
            live = tuple([n for n in range(len(pendings)) if getrefcount(pendings[n]) > _OURS])
            reason = sequence.may_run(live, given, is_twice=self.is_differentiating_twice)
            if not reason:
                at = next((n for n in live if pendings[n] is loss), None)
                ran = sequence.run(live, given, self.threshold, loss=at)
                if isinstance(ran, SequenceRun):
                    self._become(sequence, ran, live)
                    self._ran(sequence, is_first=ran.is_first)
                    return True
                reason = ran
        self._run_eagerly(self._node.path())
        self._missed(sequence, reason)
        return False

    def _become(self, sequence: HotSequence, ran: SequenceRun, live: tuple[int, ...]) -> None:
        """Turn the live pending tensors into results; keep the others for the next time."""
        pendings: list[Any] = self._pendings
        self._wiring.references.clear()  # which are not the program's
        for (call, place), pending in zip(sequence.makes, pendings, strict=True):
            # A weak reference of the program must die with its tensor, and not mean the next result.
            call.spare[place] = None if getweakrefcount(pending) else pending
        for index in live:
            real: Any = ran.results[index]
            become(pendings[index], real)
            call, place = sequence.makes[index]
            # Code in C++ may still hold it, such as a batch of vmap; else none asks what it became.
            is_free = real._use_count() <= 1  # noqa: SLF001
            if is_free:
                real.__dict__.clear()
            call.spare[place] = real if is_free else None

    def _run_eagerly(self, calls: list[Call]) -> None:
        """Run the pending calls as they would have run."""
        self._number()
        pendings, inputs = self._pendings, self._inputs

        def of_role(role: Role) -> torch.Tensor:
            return pendings[role.index] if isinstance(role, Intermediate) else inputs[role.index]

        index = 0
        for call in calls:
            result = call.func(*fill(call.args, of_role), **fill(call.kwargs, of_role))
            if _has_other_shapes(call, result):
                raise RuntimeError(
                    f"hotpath: {name_of(call.func)} returned another shape than in the calls "
                    "before, which the program may have read; call it in a "
                    "hotpath.boundary(name, compile=False)"
                )
            results = (result,) if call.form is torch.Tensor else result
            for one, tensor in zip(call.results, results or (), strict=True):
                if one.is_new:
                    become(pendings[index], tensor)
                    index += 1
        self._drop_pending()
        self._begun = 0.0  # no sample of eager seconds

    def _ran(self, sequence: HotSequence, *, is_first: bool) -> None:
        sequence.hits += 1
        self._progress += 1
        self.turns.ran_compiled()
        end = time.perf_counter()
        if not is_first:
            sequence.compiled_s.append(end - self._begun)
            if len(sequence.compiled_s) == self.threshold and sequence.speedup is not None:
                self.log.add(
                    "SPEEDUP",
                    f"{sequence.number}: {sequence.speedup:.2f}x, medians of "
                    f"{len(sequence.eager_s)} eager and {self.threshold} compiled runs",
                    sequence.number,
                )
            judged = len(sequence.compiled_s) == max(self.threshold, LEAST_TOLD)
            if self.only_faster and judged and (reason := slower(sequence.speedup)):
                sequence.refuse(reason)
        if self.log.debug:
            self.log.add("HIT", f"{sequence.number}: {sequence.name} (COMPILED)", sequence.number)
        self.timeline.add(self._begun, end, "compile" if is_first else "compiled", sequence.number)
        self._begin()

    def _missed(self, sequence: HotSequence | None, reason: str) -> None:
        node = self._node
        while sequence is None:
            node = next(one for one in node.then.values() if one.hot)
            sequence = node.sequence
        sequence.misses += 1
        if sequence.misses == 1:
            self.log.add("FALLBACK", f"{sequence.number} ran eagerly: {reason}", sequence.number)
        # Where little makes something hot, several sequences that begin alike are so before others.
        least = max(self.threshold, LEAST_TOLD) if reason == _ANOTHER_WAY else self.threshold
        if not self._may_get_hot_otherwise():
            sequence.losses += 1
        if not sequence.refused and sequence.losses >= least and sequence.losses > sequence.hits:
            sequence.refuse(f"it ran eagerly {sequence.misses} times: {reason}")

    def _may_get_hot_otherwise(self) -> bool:
        """Return whether the program went a way that is on its way to be hot as well."""
        other = self._other_way
        if other is None:
            return False
        # Where a segment ended, what goes on from there is not this way.
        runs = other.count if other is self._node else other.most
        return 0 < runs < self.limit()

    # --- segments --------------------------------------------------------------------------------

    def _begin(self) -> None:
        place = self.boundary, self._surroundings
        root = self.roots.get(place)
        if root is None:
            root = self.roots[place] = Call(torch.Tensor, (), None, grad=False)
        self._node = root
        self._wiring = Wiring()
        self._depth = 0
        self._begun = 0.0
        self._spent = 0.0  # seconds in calls that ran
        self._has_met = False  # whether one of them was looked at for the first time
        self._first = None, None
        self._path = Path()  # as far as somebody asked
        self._drop_pending()

    def _drop_pending(self) -> None:
        self._pendings: list[Pending] = []
        self._inputs: list[torch.Tensor] = []
        self._originals: list[torch.Tensor] = []
        self._versions: list[int] = []  # of the inputs, when they came
        self._held: set[int] = set()  # identities of the originals
        self._has_copies = False

    def end_segment(self, loss: Any = None) -> None:
        """Compute what is pending, count the calls since the last end, and begin anew."""
        if self._postponed:
            self._record_postponed()
        if self.settle(loss):
            return
        node = self._node
        if self._depth >= self.min_calls:
            node.count_runs(1)
            if self._graph:
                node.count_runs(self.turns.count_left_out(self._graph, node))
            self._progress += node.sequence is None
            end = time.perf_counter()
            if self._begun:
                if not self._has_met:
                    # Of the operations alone: what recording adds is not the program's.
                    samples = node.eager_s if node.sequence is None else node.sequence.eager_s
                    samples.append(self._spent)
                self.timeline.add(self._begun, end, "eager", self.boundary)
            if node.count == 1:
                path = Path(node.path())
                # What precedes a loop is in one segment with its first turns, of which each may be
                # several sequences.
                node.count_runs(sum(map(path.turns_like, self._lately)))
                self._lately.append(path)
            self.turns.add(node)
            self._detect_if_hot(node)
        if self._depth or self._wiring.roles:
            self._begin()

    def _forget_segment(self) -> None:
        """Begin anew after an exception, without counting."""
        self.is_deferring = False
        if self._postponed:
            self._forget_postponed()
        self._stop_watching()
        self._begin()

    def _count(self, node: Call) -> None:
        node.count_runs(1)
        self._detect_if_hot(node)

    def _detect_if_hot(self, node: Call) -> None:
        if (
            node.sequence is None
            and node.count >= self.limit()
            and not any(call.is_sketch for call in node.path())
        ):
            self._detect(node)

    def _detect(self, node: Call) -> None:
        sequence = HotSequence(node.path(), self.boundary, self.compile_mode, self.log)
        sequence.eager_s.extend(node.eager_s)
        node.eager_s.clear()
        alike = [
            one
            for one in self.sequences
            if one.name == sequence.name and one.boundary == sequence.boundary
        ]
        self.sequences.append(sequence)
        node.sequence = sequence
        times = f"{node.count} times" if node.count > 1 else "once"
        self.log.add(
            "DETECTED",
            f"{sequence.number}: {sequence.name} ({len(sequence.calls)} operations, ran {times})",
            sequence.number,
        )
        if alike:
            self.log.add(
                "RECOMPILE",
                f"{sequence.number}: the operations of {alike[0].number} with other shapes, "
                "wiring or parameters",
                sequence.number,
            )
        if sequence.objection:
            sequence.refuse(sequence.objection)
        if len(alike) >= MOST_SHAPES:
            sequence.refuse(f"these operations are compiled for {MOST_SHAPES} shapes already")
        node.heat()

    def enter(self, boundary: str, threshold: int | None) -> None:
        """Begin in another boundary; the segment before has ended."""
        self.turns.forget()
        self._postponed = None
        self.wake()
        self.boundary = boundary
        self.boundary_threshold = threshold
        self._turn = 0
        self._begin()

    def open(self) -> None:
        """Watch this thread from now on."""
        self.paused -= 1
        self._thread = threading.get_ident()
        self.turns.leave_out_nodes()
        if not self.is_resting:
            push_mode(self)

    def see_sign(self, sign: int) -> None:
        """Look at calls again, or not for some turns, where a function begins that is a sign."""
        turns = self.turns
        if turns.is_something_else(sign):
            self.wake()
        elif (
            self._postponed == []  # a new block, and no call of this turn has come
            and self.has_optimizer
            and not (self._depth or self._wiring.roles)
            and is_top(self)
            and turns.begins_as_first(sign)
        ):
            pop_mode()
            self.is_resting = True

    def wake(self) -> None:
        """Look at calls again after turns that were not looked at, below no mode of the program."""
        if self.is_resting and not self.turns.rests and not n_modes():
            self.is_resting = False
            if self.turns.most_left_out() + 1 >= self.limit():
                self._postponed = None  # what is hot after this turn must be in the record
            push_mode(self)

    def close(self) -> None:
        """Leave no mode behind; the block, or a call of its function, ends."""
        try:
            self._stop_watching()
        finally:
            self._unused_watch = None  # which has us
            self.paused += 1
            if is_top(self):
                pop_mode()
            if self._settings is not None:
                self._settings.restore()
                self._settings = None

    def use_settings(self) -> None:
        """Use our settings of the compiler until the block is closed: Dynamo may compile again."""
        if self._settings is None:
            self._settings = CompilerSettings()

    @property
    def progress(self) -> int:
        """How often something ran compiled, or came nearer to that."""
        return self._progress + self.turns.counted

    def limit(self) -> int:
        """Return after how many repetitions something is hot here."""
        return self.boundary_threshold or self.threshold

    def is_here(self) -> bool:
        """Return whether this is the thread of the recorder."""
        return threading.get_ident() == self._thread

    # --- modes -----------------------------------------------------------------------------------

    def _now(self) -> Surroundings | None:
        """Return what is around a call, with a dispatch mode of ours that may have to end."""
        if not self.is_deferring:
            self._stop_watching()
        return surroundings_now(self._watch is not None)

    def _stop_watching(self) -> None:
        if self._watch is not None:
            pop_dispatch_mode(None)
            self._watch = None

    def aside(self) -> _Aside:
        """Return a context in which the mode is not active."""
        return _Aside(self)

    def recording(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return a function of the program that is called aside, such as the closure of a step."""

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if not self.paused or not self.is_here():
                return function(*args, **kwargs)
            self.paused -= 1
            if not (self.paused or self.is_resting or n_modes()):
                push_mode(self)
            try:
                return function(*args, **kwargs)
            finally:
                try:
                    self.end_segment()
                finally:
                    self.paused += 1
                    if is_top(self):
                        pop_mode()
                        self.is_resting = True  # until ``aside`` ends

        return call


class _Aside:
    """Takes the recorder off the stack of modes, if it is on top, and puts it back."""

    __slots__ = ("has_popped", "recorder")

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.has_popped = False

    def __enter__(self) -> None:
        self.recorder.paused += 1
        if is_top(self.recorder):
            pop_mode()
            self.has_popped = True

    def __exit__(self, *_: object) -> None:
        recorder = self.recorder
        recorder.paused -= 1
        if recorder.turns.rests:
            recorder.is_resting = recorder.is_resting or self.has_popped
        elif self.has_popped:
            recorder.is_resting = False
            push_mode(recorder)
        else:
            recorder.wake()


def _are_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether numbers are the same, signs of zeros too."""
    if not torch.equal(one, other):
        return False
    same: bool = torch.equal(one.signbit(), other.signbit())
    return same


def _has_other_shapes(call: Call, result: Any) -> bool:
    """Return whether results have other shapes than those that a call had before."""
    results = (result,) if call.form is torch.Tensor else result or ()
    return len(results) != len(call.results) or any(
        tensor.shape != one.facts.shape for tensor, one in zip(results, call.results, strict=True)
    )


# Storages whose memory others know by DLPack, by identity. PyTorch itself marks those of NumPy.
_exported: Final[dict[int, weakref.ref[torch.UntypedStorage]]] = {}


def _note_export(tensor: torch.Tensor) -> None:
    for key in [key for key, reference in _exported.items() if reference() is None]:
        del _exported[key]
    storage = tensor.untyped_storage()
    _exported[identity(storage)] = weakref.ref(storage)


def _is_shared(tensor: torch.Tensor) -> bool:
    """Return whether NumPy, DLPack or another process may write into the memory of a tensor."""
    storage = tensor.untyped_storage()
    exported = _exported.get(identity(storage)) if _exported else None
    is_exported = exported is not None and exported() is storage
    can_resize: bool = storage.resizable()
    return is_exported or not can_resize


def _guard_of(tensors: list[Any]) -> Any:
    """Return what compares tensors with these, without a compilation: Dynamo's own, in C++."""
    return TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
