"""Which parts of a model are worth compiling, by measuring: each alone, the chosen ones together.

A part is all modules of one class in the model, or a function that it looks up by name. Each is
timed alone on what it was called with, eager and compiled in pairs; of those that are faster, and
right, the ones that save most are chosen, none inside another; then the model with these is timed
beside the model as it is and compiled whole.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn

from ivhl.errors import SpecError
from ivhl.measure.intervals import paired_ratio
from ivhl.measure.leaves import Leaves, difference, leaves_of
from ivhl.measure.models import Held
from ivhl.measure.timing import BRIEF, QUICK, Restored, time_arms
from ivhl.surgical.judging import ModelStep, PartStep, copied, in_float64, make_call, mistake
from ivhl.surgical.parts import (
    alike,
    contents_of,
    find_parts,
    kept,
    objects_in,
    random_state,
    reads_numbers,
    swapped,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ivhl.measure.job import Clock
    from ivhl.measure.timing import Schedule
    from ivhl.records.record import Interval
    from ivhl.surgical.judging import PartOutcome
    from ivhl.surgical.parts import NamePlace, Part, PartCall

SEED: Final = 1337
LEAST_SHARE: Final = 0.01  # of the model's time, below which a part is not compiled
TOO_SHORT: Final = f"takes less than {LEAST_SHARE:.0%}: not tried"
# How far the outputs of two calls may differ that began from the same state, over the largest.
REPEATED: Final = 1e-3
_OF_MODULES: Final = frozenset(vars(nn.Module()))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartAdvice:
    """What was measured of one part, alone.

    Attributes:
        name: Class of its modules, or the function.
        n_modules: How many modules of the class the model called; 0 of a function.
        n_calls: How often it was called.
        eager_s: Seconds that they take together in one call of the model, eager: the median.
        share: That over the seconds of the model. Parts inside of parts count in both.
        speedup: Of all of them, compiled over eager, with the interval of its rounds.
        failure: Why it is not a candidate, instead of a speedup.
        note: What has to be known of its speedup.
        chosen: Whether it is compiled in the set.
        code: What one writes to compile it, line by line.
    """

    name: str
    n_modules: int
    n_calls: int
    eager_s: float
    share: float = 1.0
    speedup: Interval | None = None
    failure: str = ""
    note: str = ""
    chosen: bool = False
    code: tuple[str, ...] = ()

    @property
    def saved_s(self) -> float:
        """Seconds that compiling it saves in one call of the model; 0 if none is sure."""
        if self.speedup is None or self.speedup.low <= 1.0:
            return 0.0
        return self.eager_s * (1.0 - 1.0 / self.speedup.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAdvice:
    """What was measured of a model.

    Attributes:
        model: Its class.
        is_random: Whether a call draws random numbers, so that nothing else was measured of it.
        train: Whether a call is a training step: forward and backward.
        eager_s: Seconds of one call, eager: the median.
        parts: The parts, those that save most first.
        again: The model over itself, eager: 1 where nothing disturbs.
        chosen: The model with the chosen parts compiled, over eager; ``None`` if none is chosen.
        whole: The model compiled whole, over eager.
        chosen_over_whole: The chosen parts over the whole.
        failures: Why ``chosen`` or ``whole`` has no speedup.
        notes: What has to be known of the figures.
        out_of_reach: Functions that take long and are not looked up by their names.
    """

    model: str
    is_random: bool
    train: bool
    eager_s: float
    parts: tuple[PartAdvice, ...]
    again: Interval
    chosen: Interval | None
    whole: Interval | None
    chosen_over_whole: Interval | None
    failures: tuple[str, ...]
    notes: tuple[str, ...] = ()
    out_of_reach: tuple[str, ...] = ()


def advise_parts(
    model: nn.Module,
    inputs: tuple[Any, ...] | dict[str, Any],
    *,
    loss: Callable[[Any], torch.Tensor] | None = None,
    train: bool = False,
    clock: Clock = "cpu",
    schedule: Schedule = QUICK,
    say: Callable[[str], None] = lambda _: None,
) -> ModelAdvice:
    """Measure which parts of a model are worth compiling, forward or in a training step.

    The model is copied where it is compiled. What a call changes in it, such as the numbers of a
    batch norm, is put back before each call, outside of the timing.

    Args:
        model: The model, on the device of its inputs.
        inputs: Arguments of one call: a tuple, or a dictionary of keyword arguments.
        loss: From the outputs, for a training step; ``None``: their own, or a weighted sum.
        train: Whether to time a training step, forward and backward, in place of the forward pass.
        clock: What times calls, see ``ivhl.measure.job.choose_clock``.
        schedule: How long each comparison takes.
        say: Called with what is being measured.

    Raises:
        SpecError: If the model does not run on its inputs, or two calls cannot be compared.
    """
    with torch.set_grad_enabled(train):
        step = ModelStep(model, inputs, train=train, loss=loss)
        subject = _Advised(step, Held(model, None))
        subject.check(inputs)
        bench = _Bench(clock, schedule, train=train, subject=subject)
        with subject.calls():
            model_s = bench.eager_s(step)
        found = find_parts(model, subject.run, LEAST_SHARE)
        advices = []
        for part in found.parts.values():
            say(f"{part.name}, {counted(len(part.calls), 'call')}")
            advices.append(_measure_part(part, bench, model_s))
        # Of a model that draws random numbers no set can be tried.
        chosen = [] if subject.is_random else _choose(advices, found.parts)
        advices = [replace(part, chosen=part.name in chosen) for part in advices]
        forms = f", with {' and '.join(chosen) or 'no part'} compiled, and whole"
        say(f"the model{'' if subject.is_random else forms}")
        made = _measure_model([found.parts[name] for name in chosen], bench, len(found.parts))
    return replace(
        made,
        parts=tuple(sorted(advices, key=lambda part: -part.saved_s)),
        out_of_reach=found.out_of_reach,
    )


class _Advised:
    """The model as the user made it, every call of which begins from the same state.

    Attributes:
        step: A call of it.
        changes: Whether a call changes its state.
        is_random: Whether a call draws random numbers.
    """

    def __init__(self, step: ModelStep, held: Held) -> None:
        self.step, self._held = step, held
        self.changes = self.is_random = False
        held.keep()

    @property
    def name(self) -> str:
        """The model's class."""
        return type(self.step.model).__name__

    def restore(self) -> None:
        """Put the state back, and the seed of random numbers."""
        self._held.restore()
        torch.manual_seed(SEED)

    def run(self) -> PartOutcome:
        """Call it once from its state.

        Raises:
            SpecError: If it raises.
        """
        self.restore()
        with self.calls():
            return self.step()

    @contextlib.contextmanager
    def calls(self) -> Iterator[None]:
        """Say of what it raises in a block that the model raised it.

        Raises:
            SpecError: If it raises.
        """
        try:
            yield
        except SpecError:
            raise
        except Exception as error:
            raise SpecError(
                f"{self.name} raised {type(error).__name__} on its inputs: {message_of(error)}",
                hint="call the model on these inputs yourself; IVHL_TRACEBACK=1 prints where",
            ) from error

    def check(self, inputs: tuple[Any, ...] | dict[str, Any]) -> None:
        """Call it twice, and note what a call changes.

        Raises:
            SpecError: If two calls cannot be compared.
        """
        given, objects = kept(inputs), [(one, contents_of(one)) for one in objects_in(inputs)]
        before, sizes = self._held.state().copied(), [_sizes(self.step.model)]
        torch.manual_seed(SEED)
        drawn = random_state()
        first = self.run()
        self.is_random = random_state() != drawn
        self.changes = not _same_leaves(before, self._held.state())
        outputs = leaves_of(first.output).copied()
        if not outputs.tensors:
            raise SpecError(
                f"{self.name} returns no tensor, but {type(first.output).__name__}",
                hint="compiled code is judged by the tensors that a call returns",
            )
        sizes.append(_sizes(self.step.model))
        changed = [type(one).__name__ for one, contents in objects if contents_of(one) != contents]
        if changed or not alike(given, inputs):
            what = f"the {changed[0]} that it gets" if changed else "its inputs"
            raise SpecError(
                f"{self.name} changes {what}, so each call would begin from something else",
                hint="let the model copy what it changes, or make it inside of the model",
            )
        second = leaves_of(self.run().output)
        for name, size in _sizes(self.step.model).items():
            earlier = sizes[1].get(name, 0)
            if size > earlier > sizes[0].get(name, 0):
                raise SpecError(
                    f"{self.name} keeps something from call to call: {name} has {earlier} items "
                    f"after one call, {size} after two",
                    hint="return a model that keeps nothing, e.g. one without a cache",
                )
        if found := difference(outputs, second) or _numbers_differ(outputs, second):
            raise SpecError(
                f"{self.name} returns something else when it is called again: {found}",
                hint="return a model that keeps nothing from call to call and draws no random "
                "numbers of its own",
            )


def _sizes(model: nn.Module) -> dict[str, int]:
    """Return how many items each list, dictionary or set has that a module holds as an attribute."""
    return {
        f"{prefix}.{name}" if prefix else name: len(value)
        for prefix, module in model.named_modules()
        for name, value in vars(module).items()
        if name not in _OF_MODULES and isinstance(value, (list, dict, set))
    }


def _same_leaves(one: Leaves, other: Leaves) -> bool:
    return difference(one, other) is None and alike(one.tensors, other.tensors)


def _numbers_differ(one: Leaves, other: Leaves) -> str:
    """Return which tensors differ by more than the order of additions explains."""
    for name, tensor in one.tensors.items():
        a, b = (t.detach().cpu().to(torch.complex128) for t in (tensor, other.tensors[name]))
        if not torch.allclose(a, b, rtol=REPEATED, atol=1e-6, equal_nan=True):
            return f"{name} differs by {float((a - b).abs().max()):.1e}"
    return ""


@dataclass(frozen=True, slots=True)
class _Bench:
    """How calls are timed."""

    clock: Clock
    schedule: Schedule
    train: bool
    subject: _Advised

    def arms(self, **arms: Callable[[], Any]) -> dict[str, list[float]]:
        """Return the seconds of each arm in each round, the arms in turns."""
        times = time_arms(
            {name: self._begun(arm) for name, arm in arms.items()},
            clock=self.clock,
            schedule=self.schedule,
            seed=SEED,
        )
        return {name: one.samples_s for name, one in times.items()}

    def eager_s(self, call: Callable[[], Any]) -> float:
        """Return the seconds of a call, measured briefly."""
        arms = {"eager": self._begun(call)}
        times = time_arms(arms, clock=self.clock, schedule=BRIEF, seed=SEED)
        return median(times["eager"].samples_s)

    def _begun(self, call: Callable[[], Any]) -> Callable[[], Any]:
        """Return the call, from the state of its model where calls change that."""
        if not self.subject.changes or isinstance(call, Restored):
            return call
        return Restored(call, self.subject.restore, lambda output: output)

    def run(self, steps: Sequence[Callable[[], PartOutcome]]) -> list[PartOutcome]:
        """Return what steps make, one after the other."""
        return [step() for step in steps]


def _measure_part(part: Part, bench: _Bench, model_s: float) -> PartAdvice:
    """Time all calls of a part, one after the other, eager and compiled."""
    advice = PartAdvice(
        name=part.name,
        n_modules=part.n_modules,
        n_calls=len(part.calls),
        eager_s=part.seconds,
        share=part.seconds / model_s,
        code=part.code,
    )
    if part.refused and part.is_function:  # the seconds are those of its profile
        return replace(advice, failure=f"{part.refused}: not tried")
    try:
        return _measure_calls(part, bench, advice, model_s)
    except Exception as error:  # noqa: BLE001  (whatever the model or the compiler raises)
        return replace(advice, failure=first_line(error))


def _measure_calls(part: Part, bench: _Bench, advice: PartAdvice, model_s: float) -> PartAdvice:
    def steps(
        function: Callable[[PartCall], Any] = make_call,
        convert: Callable[[PartCall], PartCall] = lambda c: c,
    ) -> list[PartStep]:
        return [PartStep(convert(c), train=bench.train, function=function) for c in part.calls]

    def fresh(function: Callable[[PartCall], Any] = make_call) -> list[PartOutcome]:
        bench.subject.restore()
        return bench.run(steps(function, copied))

    eager = steps()
    seconds = bench.eager_s(lambda: bench.run(eager))
    advice = replace(advice, eager_s=seconds, share=seconds / model_s)
    if advice.share < LEAST_SHARE:
        return replace(advice, failure=TOO_SHORT)
    if part.refused:
        return replace(advice, failure=f"{part.refused}: not tried")
    if part.is_function and reads_numbers(part.target, part.calls[0]):
        return replace(advice, failure="returns values that depend on its tensors: not tried")
    _allow_recompiles(len(part.calls))
    compiled_form = _compiled(part)
    expected, found = fresh(), fresh(compiled_form)
    try:
        bench.subject.restore()
        exact = bench.run(steps(convert=in_float64))
    except Exception as error:  # noqa: BLE001  (a model may be of one precision)
        exact = expected
        advice = replace(advice, note=f"beside eager, as in float64: {first_line(error)}")
    if wrong := mistake(expected, found, exact):
        return replace(advice, failure=wrong)
    compiled = steps(compiled_form)
    samples = bench.arms(eager=lambda: bench.run(eager), compiled=lambda: bench.run(compiled))
    return replace(
        advice,
        eager_s=median(samples["eager"]),
        speedup=paired_ratio(samples["eager"], samples["compiled"]),
    )


def _compiled(part: Part) -> Callable[[PartCall], Any]:
    """Return what makes a call of the part, compiled."""
    if not part.is_function:
        compiled: Any = torch.compile(_call)
        return lambda call: compiled(call.target, call.arguments, call.named)
    function = torch.compile(part.target)
    return lambda call: function(*call.arguments, **call.named)


def _call(module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:  # noqa: ANN401
    return module(*arguments, **named)


def _choose(advices: Sequence[PartAdvice], parts: Mapping[str, Part]) -> list[str]:
    """Return the parts to compile: those that save most, none inside another."""
    names = {part.target: name for name, part in parts.items()}
    inside = {
        name: {
            names.get(target)
            for target in (
                *part.inside,
                *(type(inner) for call in part.calls for inner in _modules_inside(call)),
            )
        }
        for name, part in parts.items()
    }
    chosen: list[str] = []
    for advice in sorted(advices, key=lambda one: -one.saved_s):
        apart = all(
            advice.name not in inside[other] and other not in inside[advice.name]
            for other in chosen
        )
        if advice.saved_s > 0.0 and apart:
            chosen.append(advice.name)
    return chosen


def _modules_inside(call: PartCall) -> Iterator[nn.Module]:
    if isinstance(call.target, nn.Module):
        yield from (inner for inner in call.target.modules() if inner is not call.target)


def _measure_model(chosen: Sequence[Part], bench: _Bench, n_parts: int) -> ModelAdvice:
    """Time the model eager, with the chosen parts compiled, and compiled whole, in turns."""
    subject = bench.subject
    arms: dict[str, Callable[[], Any]] = {"eager": subject.step, "again": subject.step}
    failures, notes = [], []
    if subject.is_random:
        failures.append("the model draws random numbers, so no two forms of it can be compared")
    else:
        expected = subject.run()
        try:
            subject.restore()
            exact = subject.step.in_float64()()
        except Exception as error:  # noqa: BLE001  (a model may be of one precision)
            exact = expected
            notes.append(
                f"compiled models were compared with eager, as in float64: {first_line(error)}"
            )
        _allow_recompiles(n_parts + sum(1 for _ in subject.step.model.modules()))
        for name in ("chosen", "whole") if chosen else ("whole",):
            try:
                form = _make_form(subject, None if name == "whole" else chosen)
                wrong = mistake([expected], [form()], [exact])
            except Exception as error:  # noqa: BLE001  (whatever the compiler raises)
                failures.append(f"{name}: {first_line(error)}")
                continue
            if wrong:
                failures.append(f"{name}: {wrong}")
            else:
                arms[name] = form
    with subject.calls():
        samples = bench.arms(**arms)

    def ratio(one: str, other: str) -> Interval | None:
        found = samples.get(one), samples.get(other)
        return None if None in found else paired_ratio(samples[one], samples[other])

    return ModelAdvice(
        model=subject.name,
        is_random=subject.is_random,
        train=bench.train,
        eager_s=median(samples["eager"]),
        parts=(),
        again=paired_ratio(samples["eager"], samples["again"]),
        chosen=ratio("eager", "chosen"),
        whole=ratio("eager", "whole"),
        chosen_over_whole=ratio("whole", "chosen"),
        failures=tuple(failures),
        notes=tuple(notes),
    )


def _make_form(subject: _Advised, chosen: Sequence[Part] | None) -> Callable[[], PartOutcome]:
    """Return a step of a copy of the model, of which these parts are compiled; ``None``: all."""
    subject.restore()
    form = copy.deepcopy(subject.step.model)
    step = subject.step.copied(form)
    functions: dict[NamePlace, Callable[..., Any]] = {}
    if chosen is None:
        form.compile()
    else:
        kinds = tuple(part.target for part in chosen if not part.is_function)
        for module in _outermost(form, kinds):
            module.compile()
        for part in chosen:
            if part.is_function:
                functions |= dict.fromkeys(part.places, torch.compile(part.target))

    def run() -> PartOutcome:
        with swapped(functions):
            return step()

    if not subject.changes:
        return run if functions else step
    held = Held(form, None)
    held.keep()
    return Restored(run, held.restore, lambda outcome: outcome)


def _outermost(module: nn.Module, kinds: tuple[type, ...]) -> Iterator[nn.Module]:
    """Yield the modules of some classes that are in none of them."""
    for inner in module.children():
        if type(inner) in kinds:
            yield inner
        else:
            yield from _outermost(inner, kinds)


def _allow_recompiles(n_modules: int) -> None:
    """Let Dynamo compile a function once for each module: by default it gives up at eight."""
    torch._dynamo.reset()  # noqa: SLF001  (it has no public name)
    config: Any = importlib.import_module("torch._dynamo.config")
    config.cache_size_limit = max(config.cache_size_limit, n_modules + 8)
    config.accumulated_cache_size_limit = max(
        config.accumulated_cache_size_limit, 8 * config.cache_size_limit
    )


def first_line(error: Exception) -> str:
    """Return the class of an error and the first line of its message."""
    return f"{type(error).__name__}: {message_of(error)}"


def message_of(error: Exception) -> str:
    """Return the first line of the message of an error."""
    return (str(error).strip().splitlines() or [""])[0]


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
