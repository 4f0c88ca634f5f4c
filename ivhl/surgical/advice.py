"""Which parts of a model are worth compiling, by measuring: each alone, the chosen ones together.

A part is all modules of one class in the model. Each is timed alone on what it was called with,
eager and compiled in pairs; of those that are faster, and right, the ones that save most are chosen,
none inside another; then the model with these is timed beside the model as it is and compiled whole.
"""

from __future__ import annotations

import copy
import importlib
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from itertools import starmap
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn

from ivhl.errors import SpecError
from ivhl.measure.accuracy import flatten, judge_compiled, judge_eager
from ivhl.measure.draws import cast, clone
from ivhl.measure.intervals import paired_ratio
from ivhl.measure.timing import BRIEF, QUICK, time_arms
from ivhl.workload import refusing_exits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ivhl.measure.job import Clock
    from ivhl.measure.timing import Schedule
    from ivhl.records.record import Interval

SEED: Final = 1337
TOLERANCE: Final = 1e-4  # of workloads, unless they declare another
HINT: Final = (
    "MODULE is `package.module:function`; the function takes no arguments and returns the model and "
    "a tuple of its inputs"
)
LEAST_SHARE: Final = 0.01  # of the model's time, below which a part is not compiled
DTYPES: Final = {
    getattr(torch, name): name for name in ("float32", "float64", "bfloat16", "float16")
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartAdvice:
    """What was measured of one part, alone.

    Attributes:
        name: Class of its modules.
        n_modules: How many modules of the class the model called.
        eager_s: Seconds that they take together in one call of the model, eager: the median.
        share: That over the seconds of the model. Parts inside of parts count in both.
        speedup: Of all of them, compiled over eager, with the interval of its rounds.
        failure: Why it is not a candidate, instead of a speedup.
        chosen: Whether it is compiled in the set.
    """

    name: str
    n_modules: int
    eager_s: float
    share: float = 1.0
    speedup: Interval | None = None
    failure: str = ""
    chosen: bool = False

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
        eager_s: Seconds of one call, eager: the median.
        parts: The parts, those that save most first.
        again: The model over itself, eager: 1 where nothing disturbs.
        chosen: The model with the chosen parts compiled, over eager; ``None`` if none is chosen.
        whole: The model compiled whole, over eager.
        chosen_over_whole: The chosen parts over the whole.
        failures: Why ``chosen`` or ``whole`` has no speedup.
    """

    model: str
    eager_s: float
    parts: tuple[PartAdvice, ...]
    again: Interval
    chosen: Interval | None
    whole: Interval | None
    chosen_over_whole: Interval | None
    failures: tuple[str, ...]


def load_model(reference: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """Return the model and the inputs that ``package.module:function`` makes.

    Raises:
        SpecError: If it does not import, or makes something else.
    """
    module_name, colon, name = reference.partition(":")
    if not (module_name and colon and name):
        raise SpecError(f"{reference!r} is not of the form 'package.module:function'", hint=HINT)
    try:
        with refusing_exits():
            module = importlib.import_module(module_name)
    except Exception as error:
        raise SpecError(
            f"{module_name!r} does not import: {type(error).__name__}: {error}",
            hint="run this in the folder that has it, in an environment that has what it imports",
        ) from error
    make = getattr(module, name, None)
    if not callable(make):
        what = "has no" if make is None else "has no function"
        raise SpecError(f"module {module_name!r} {what} {name!r}", hint=HINT)
    torch.manual_seed(SEED)
    try:
        made = make()
    except Exception as error:
        raise SpecError(
            f"{reference} raised {type(error).__name__}: {error}", hint=HINT
        ) from error
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module)):  # noqa: PLR2004
        raise SpecError(
            f"{reference} must return a torch.nn.Module and a tuple of its inputs, got "
            f"{_described(made)}",
            hint=HINT,
        )
    model, inputs = made
    if not isinstance(inputs, tuple):
        raise SpecError(
            f"{reference} must return the inputs as a tuple, got {_described(inputs)}", hint=HINT
        )
    return model, inputs


def _described(value: object) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {', '.join(type(one).__name__ for one in value) or 'nothing'}"
    return type(value).__name__


@dataclass(frozen=True, slots=True)
class _Call:
    """A module, and what the model called it with."""

    module: nn.Module
    arguments: tuple[Any, ...]
    named: dict[str, Any]


def advise_parts(
    model: nn.Module,
    inputs: tuple[Any, ...],
    *,
    clock: Clock = "cpu",
    schedule: Schedule = QUICK,
    say: Callable[[str], None] = lambda _: None,
) -> ModelAdvice:
    """Measure which parts of a model are worth compiling, without gradients.

    The model is copied where it is compiled, and run as it is: in training mode its own state, such
    as that of a batch norm, changes as in any call.

    Args:
        model: The model, on the device of its inputs.
        inputs: Positional arguments of one call.
        clock: What times calls, see ``ivhl.measure.job.choose_clock``.
        schedule: How long each comparison takes.
        say: Called with what is being measured.

    Raises:
        SpecError: If the model does not run on its inputs.
    """
    timing = _Timing(clock, schedule)
    with torch.no_grad():
        calls = _calls_of(model, inputs)
        model_s = timing.eager_s(lambda: model(*inputs))
        parts = []
        for name, found in calls.items():
            say(f"{name}, {len(found)} calls")
            parts.append(_measure_part(name, found, timing, model_s))
        chosen = _choose(parts, calls)
        parts = [replace(part, chosen=part.name in chosen) for part in parts]
        say(f"the model, with {' and '.join(chosen) or 'no part'} compiled, and whole")
        return _measure_model(
            *(model, inputs, tuple(sorted(parts, key=lambda part: -part.saved_s))),
            kinds=tuple(type(calls[name][0].module) for name in chosen),
            timing=timing,
        )


@dataclass(frozen=True, slots=True)
class _Timing:
    """How calls are timed."""

    clock: Clock
    schedule: Schedule

    def arms(self, **arms: Callable[[], Any]) -> dict[str, list[float]]:
        """Return the seconds of each arm in each round, the arms in turns."""
        times = time_arms(arms, clock=self.clock, schedule=self.schedule, seed=SEED)
        return {name: one.samples_s for name, one in times.items()}

    def eager_s(self, call: Callable[[], Any]) -> float:
        """Return the seconds of a call, measured briefly."""
        times = time_arms({"eager": call}, clock=self.clock, schedule=BRIEF, seed=SEED)
        return median(times["eager"].samples_s)


def _calls_of(model: nn.Module, inputs: tuple[Any, ...]) -> dict[str, list[_Call]]:
    """Return the calls of the parts of a model in one pass, by the name of their class.

    The model itself is no part.
    """
    found: dict[type, list[_Call]] = {}

    def remember(module: nn.Module, arguments: Any, named: Any) -> None:  # noqa: ANN401
        found.setdefault(type(module), []).append(_Call(module, *clone((arguments, named))))

    hooks = [
        module.register_forward_pre_hook(remember, with_kwargs=True)
        for module in model.modules()
        if module is not model
    ]
    try:
        model(*inputs)
    except Exception as error:
        raise SpecError(
            f"{type(model).__name__} raised {type(error).__name__} on its inputs: "
            f"{_first_line(error)}",
            hint=HINT,
        ) from error
    finally:
        for hook in hooks:
            hook.remove()
    names = Counter(kind.__name__ for kind in found)
    return {
        kind.__name__ if names[kind.__name__] == 1 else f"{kind.__module__}.{kind.__name__}": calls
        for kind, calls in found.items()
    }


def _measure_part(
    name: str, calls: Sequence[_Call], timing: _Timing, model_s: float
) -> PartAdvice:
    """Time all modules of a class, one after the other, eager and compiled."""
    n_modules = len({id(call.module) for call in calls})

    def run(function: Callable[..., Any]) -> list[Any]:
        return [function(call.module, call.arguments, call.named) for call in calls]

    part = PartAdvice(name=name, n_modules=n_modules, eager_s=timing.eager_s(lambda: run(_call)))
    part = replace(part, share=part.eager_s / model_s)
    if part.share < LEAST_SHARE:
        return replace(part, failure=f"takes less than {LEAST_SHARE:.0%}: not tried")
    _allow_recompiles(len(calls))
    compiled = torch.compile(_call)
    try:
        outputs = [
            [function(call.module, *clone((call.arguments, call.named))) for call in calls]
            for function in (_call, compiled)
        ]
        eager, first = outputs
        if wrong := _mistake(eager, first, run(_in_float64)):
            return replace(part, failure=wrong)
    except Exception as error:  # noqa: BLE001  (whatever the compiler raises)
        return replace(part, failure=_first_line(error))
    samples = timing.arms(eager=lambda: run(_call), compiled=lambda: run(compiled))
    return replace(
        part,
        eager_s=median(samples["eager"]),
        speedup=paired_ratio(samples["eager"], samples["compiled"]),
    )


def _call(module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:  # noqa: ANN401
    return module(*arguments, **named)


def _in_float64(module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:  # noqa: ANN401
    exact = copy.deepcopy(module).to("cpu", torch.float64)
    arguments, named = cast((arguments, named), torch.float64, torch.device("cpu"))
    return exact(*arguments, **named)


def _mistake(eager: Any, compiled: Any, exact: Any) -> str:  # noqa: ANN401
    """Return why compiled outputs are wrong, by the rule of workloads; empty if they are not."""
    outputs, tried, references = flatten(eager), flatten(compiled), flatten(exact)
    dtypes = [DTYPES[one.dtype] for one in outputs if one.dtype in DTYPES]
    if len(outputs) == len(tried) == len(references):
        each = starmap(_without_masks, zip(outputs, tried, references, strict=True))
        outputs, tried, references = map(list, zip(*each, strict=True))
    names = [str(number) for number in range(len(outputs))]
    judged = judge_compiled(
        judge_eager(names, outputs, references),
        tried,
        references,
        dtype=dtypes[0] if dtypes else "float32",
        tolerance=TOLERANCE,
    )
    for error in judged:
        if not error.passed:
            rmse = error.compiled_rmse
            found = "not finite" if rmse is None else f"RMSE {rmse:.1e}"
            return f"wrong: {found}, allowed {error.limit_rmse:.1e}"
    return ""


def _without_masks(
    eager: torch.Tensor, compiled: torch.Tensor, exact: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return an output with zeros where its dtype cannot hold the exact number, and both agree.

    Attention masks with the smallest number of its dtype, which is another one in float64.
    """
    if eager.dtype not in DTYPES or not eager.shape == compiled.shape == exact.shape:
        return eager, compiled, exact
    masked = (exact.abs() > torch.finfo(eager.dtype).max).to(eager.device) & (eager == compiled)
    there = masked.to(exact.device)
    return (
        eager.masked_fill(masked, 0),
        compiled.masked_fill(masked, 0),
        exact.masked_fill(there, 0),
    )


def _choose(parts: Sequence[PartAdvice], calls: dict[str, list[_Call]]) -> list[str]:
    """Return the parts to compile: those that save most, none inside another."""
    names = {type(found[0].module): name for name, found in calls.items()}
    inside = {
        name: {
            names.get(type(inner))
            for call in found
            for inner in call.module.modules()
            if inner is not call.module
        }
        for name, found in calls.items()
    }
    chosen: list[str] = []
    for part in sorted(parts, key=lambda part: -part.saved_s):
        apart = all(
            part.name not in inside[other] and other not in inside[part.name] for other in chosen
        )
        if part.saved_s > 0.0 and apart:
            chosen.append(part.name)
    return chosen


def _measure_model(
    model: nn.Module,
    inputs: tuple[Any, ...],
    parts: tuple[PartAdvice, ...],
    *,
    kinds: tuple[type, ...],
    timing: _Timing,
) -> ModelAdvice:
    """Time the model eager, with the chosen parts compiled, and compiled whole, in turns."""
    plain: Callable[[], Any] = partial(model, *inputs)
    arms = {"eager": plain, "again": plain}
    expected, exact = model(*clone(inputs)), _in_float64(model, inputs, {})
    failures = []
    _allow_recompiles(sum(part.n_modules for part in parts))
    for name in ("chosen", "whole") if kinds else ("whole",):
        form = copy.deepcopy(model)
        for module in _outermost(form, kinds) if name == "chosen" else (form,):
            module.compile()
        try:
            wrong = _mistake(expected, form(*clone(inputs)), exact)
        except Exception as error:  # noqa: BLE001  (whatever the compiler raises)
            wrong = _first_line(error)
        if wrong:
            failures.append(f"{name}: {wrong}")
        else:
            arms[name] = partial(form, *inputs)
    samples = timing.arms(**arms)

    def ratio(one: str, other: str) -> Interval | None:
        found = samples.get(one), samples.get(other)
        return None if None in found else paired_ratio(samples[one], samples[other])

    return ModelAdvice(
        model=type(model).__name__,
        eager_s=median(samples["eager"]),
        parts=parts,
        again=paired_ratio(samples["eager"], samples["again"]),
        chosen=ratio("eager", "chosen"),
        whole=ratio("eager", "whole"),
        chosen_over_whole=ratio("whole", "chosen"),
        failures=tuple(failures),
    )


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


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"
