"""The subject of a case: its functions, and the model of each arm.

``Measurement`` asks it for arms and for references; whether a workload is a function of its inputs
or has a model with a state makes no difference to the phases of a case.
"""

from __future__ import annotations

import time
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch

from ivhl.measure.accuracy import (
    EAGER_LIMIT,
    FEW_ELEMENTS,
    ROUNDINGS,
    ROUNDINGS_BESIDE,
    ROUNDOFF,
    Scales,
    apart,
    as_real,
    distance,
    is_rounded,
    largest_of,
    smooth_move,
)
from ivhl.measure.draws import cast, clone, rounded_again
from ivhl.measure.failures import CaseError, classify, message_of
from ivhl.measure.jumps import FURTHER, LOOKS_S, MOST_LOOKS
from ivhl.measure.leaves import Leaves, difference, leaves_of
from ivhl.measure.models import (
    Held,
    Passed,
    default_call,
    default_optimizer,
    held_copy,
    is_trained,
)
from ivhl.measure.randomness import Drawing, DrawsIn
from ivhl.measure.timing import Restored
from ivhl.workload import resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from torch import Tensor

    from ivhl.records.record import Passes, Reference
    from ivhl.workload import Case

    Function = Callable[..., Any]
    Compiler = Callable[[Function], Function]

# Of a parameter whose exact gradient vanishes: how many of the largest moves of eager or of the
# reference it may be off.
FREE_MOVES = 3.0
# How often a model is run on rounded inputs to see whether its gradients jump there.
_LOOKS_FOR_JUMPS = 8
_CPU = torch.device("cpu")


class Subject:
    """The functions of a case and its models.

    Args:
        case: The case.
        dtype: Precision of eager.
        variant_dtype: Precision of the variant.
        device: Where all arms run.
        seed: Seed of PyTorch's random numbers for ``make_model`` and at each call.
    """

    def __init__(
        self,
        case: Case,
        *,
        dtype: torch.dtype,
        variant_dtype: torch.dtype,
        device: torch.device,
        seed: int,
    ) -> None:
        workload = case.workload
        self._case = case
        self._dtype, self._variant_dtype, self._device = dtype, variant_dtype, device
        self._seed = seed
        self._make_model = resolve(workload.make_model) if workload.make_model else None
        self._make_optimizer = (
            resolve(workload.make_optimizer) if workload.make_optimizer else None
        )
        self._loss = resolve(workload.loss) if workload.loss else None
        self._reference = resolve(workload.reference) if ":" in workload.reference else None
        self._eager: Function | None = resolve(workload.eager) if workload.eager else None
        self._call: Function | None = resolve(case.call) if case.call else None
        self._held: Held | None = None
        self._exact: Held | None = None
        self._shaken: Held | None = None
        self._named = False
        self._arms: list[Restored] = []
        self.passes: Passes | None = None
        self.draws_random_numbers = False
        self._draws_by_itself = False  # from a generator that it makes

    @property
    def has_model(self) -> bool:
        """Whether the workload has a model."""
        return self._make_model is not None

    @property
    def eager(self) -> Function:
        """The function of the eager arm."""
        assert self._eager is not None  # noqa: S101  (there is a model otherwise, and it is made)
        return self._eager

    @property
    def is_own_source(self) -> bool:
        """Whether the variant has a source or a precision of its own."""
        return self._call is not self._eager or self._variant_dtype != self._dtype

    def take_inputs(self, inputs: Any) -> tuple[Any, ...]:  # noqa: ANN401
        """Return what ``make_inputs`` returned as positional arguments; a mapping is one of them."""
        self._named = self.has_model and isinstance(inputs, dict)
        return (inputs,) if self._named else tuple(inputs)

    def make_models(self, size: Any) -> None:  # noqa: ANN401  (whatever the sizes are)
        """Make the model, and the eager arm's copy of it.

        Raises:
            CaseError: If it is no model, cannot be copied, or has nothing to train.
        """
        if self._make_model is None:
            return
        torch.manual_seed(self._seed)
        model = self._make_model(size)
        maker = self._case.workload.make_model
        if not isinstance(model, torch.nn.Module):
            raise CaseError(
                "inputs", f"{maker} returns a {type(model).__name__}, not a torch.nn.Module"
            )
        trained = is_trained(model.parameters())
        if self._eager is None:
            self.passes = self._case.workload.passes or ("step" if trained else "forward")
            if self.passes != "forward" and not trained:
                raise CaseError(
                    "inputs",
                    f"passes={self.passes!r}, but no parameter of the model that {maker} returns "
                    "requires a gradient: write passes='forward'",
                )
            self._eager = default_call(self.passes, self._loss)
            self._call = self._call or self._eager
            if self.passes == "step" and self._make_optimizer is None:
                self._make_optimizer = default_optimizer
        self._held = self._copy(model, self._dtype, self._device)

    def _copy(self, model: torch.nn.Module, dtype: torch.dtype, device: torch.device) -> Held:
        try:
            return held_copy(
                model, self._make_optimizer, dtype=dtype, device=device, like=self._held
            )
        except Exception as error:
            raise CaseError(
                "inputs",
                "the model cannot be copied for each arm (copy.deepcopy, then its precision, then "
                f"its optimizer): {type(error).__name__}: {message_of(error)}",
            ) from error

    def warm_up(self, inputs: tuple[Any, ...]) -> None:
        """Let the optimizer make its state, by one step; all arms begin from what this leaves."""
        if self._held is None or self._held.optimizer is None:
            return
        self._run(self.eager, self._held.arguments, clone(inputs))
        self._held.keep()
        self._held.restore()

    def eager_arm(self, inputs: tuple[Any, ...]) -> Function:
        """Return the call of eager on these inputs."""
        return self._kept(self._arm(self.eager, self._held, inputs))

    def _kept(self, arm: Function) -> Function:
        if isinstance(arm, Restored):
            self._arms.append(arm)
        return arm

    def variant_copy(self) -> Held | None:
        """Return a copy of the model for the variant; ``None`` without a model."""
        if self._held is None:
            return None
        self._held.restore()
        self.reset_random_numbers()
        return self._copy(self._held.model, self._variant_dtype, self._device)

    def variant_arm(
        self, compiler: Compiler, inputs: tuple[Any, ...], held: Held | None
    ) -> Function:
        """Return the call of the variant, made with a compiler, on these inputs.

        The compiler may begin its work here, or at the first call.
        """
        variant = self._case.variant
        assert self._call is not None  # noqa: S101  (as for eager)
        if variant.compiles == "parts":
            return self._kept(self._arm(self._call(compiler), held, inputs))
        harness_calls = not self._case.call
        if held is not None and (variant.compiles == "model" or harness_calls):
            model = compiler(held.model)
            return self._kept(self._arm(self._call, held, inputs, model=model))
        return self._kept(self._arm(compiler(self._call), held, inputs))

    def _arm(
        self,
        function: Function,
        held: Held | None,
        inputs: tuple[Any, ...],
        *,
        model: Function | None = None,
    ) -> Function:
        if held is None:
            return lambda: function(*inputs)
        arguments = held.arguments if model is None else (model, *held.arguments[1:])

        def restore() -> None:
            held.restore()
            self.reset_random_numbers()

        def read(outputs: Any) -> Leaves:  # noqa: ANN401
            return _observed(outputs, held).copied()

        each = not self._arms or self._arms[0].each
        return Restored(lambda: self._run(function, arguments, inputs), restore, read, each)

    def _run(
        self,
        function: Function,
        arguments: tuple[Any, ...],
        inputs: tuple[Any, ...],
    ) -> Any:  # noqa: ANN401
        if self._named:
            return function(*arguments, **inputs[0])
        return function(*arguments, *inputs)

    def with_same_numbers(self, arm: Function) -> Function:
        """Return the arm so that each call draws the same random numbers, if eager draws any.

        Not needed with a model, whose state is put back before each call anyway.
        """
        if not self.draws_random_numbers or isinstance(arm, Restored):
            return arm
        return Restored(arm, self.reset_random_numbers, lambda outputs: outputs)

    def reset_random_numbers(self) -> None:
        """Let each call draw the same random numbers."""
        torch.manual_seed(self._seed)

    @contextmanager
    def drawing_others(self, seed: int) -> Iterator[None]:
        """Let calls draw other random numbers meanwhile."""
        usual, self._seed = self._seed, seed
        try:
            yield
        finally:
            self._seed = usual

    def note_random_numbers(self, call: Function) -> None:
        """Call eager, and take note of whether it draws random numbers, and from which generator."""
        self.reset_random_numbers()
        before = torch.get_rng_state()
        call()
        self.draws_random_numbers = not torch.equal(before, torch.get_rng_state())
        if not self.draws_random_numbers:
            drawing = Drawing()
            with suppress(Exception), drawing:  # eager that no mode can follow has run above
                call()
            self._draws_by_itself = drawing.drew

    def note_eager(self, found: Leaves) -> None:
        """Take note of what a call of eager did: it may draw random numbers, or change nothing.

        Where nothing changes, blocks of calls need no pauses.
        """
        drew = not torch.equal(
            torch.get_rng_state(), torch.Generator().manual_seed(self._seed).get_state()
        )
        self.draws_random_numbers = self.draws_random_numbers or drew
        if self._held is None:
            return
        start = self._held.started()
        self._held.restore()
        before = self._held.state()
        same = all(
            path in start and torch.equal(tensor, start[path])
            for path, tensor in found.tensors.items()
            if path in before.tensors or path.startswith("grad.")
        ) and all(found.others.get(path) == value for path, value in before.others.items())
        for arm in self._arms:
            arm.each = arm.each and not (same and not self.draws_random_numbers)

    def reference_of(self, inputs: tuple[Any, ...]) -> Leaves:
        """Return what the outputs on these inputs are judged by.

        Raises:
            CaseError: If the same code does not run in float64.
        """
        level = self._case.level
        if level in ("tolerance", "cosine"):
            arm = self._arm(self.eager, self._held, clone(inputs))
            self.reset_random_numbers()
            found = arm()
            return found if isinstance(found, Leaves) else leaves_of(found).copied()
        # From the rounded inputs: their rounding is not an error of the code under test.
        exact = cast(inputs, torch.float64, _CPU)
        if self._held is not None and self._exact is None:
            self._exact = self._copy_in_float64()
        with _explained(level):
            return self._in_float64(exact, self._exact)

    def _draws(self) -> AbstractContextManager[None]:
        """Let code in float64 draw the random numbers that eager draws, if it draws any."""
        drawn = self.draws_random_numbers or self._draws_by_itself
        return DrawsIn(self._dtype) if drawn else nullcontext()

    def _copy_in_float64(self) -> Held:
        assert self._held is not None  # noqa: S101  (there is a model)
        self._held.restore()
        return self._copy(self._held.model, torch.float64, _CPU)

    def _in_float64(self, exact: tuple[Any, ...], held: Held | None) -> Leaves:
        """Return what the reference returns; of a model, the same code also for what has none."""
        if held is None:
            function = self._reference or self.eager
            self.reset_random_numbers()
            with self._draws():
                return leaves_of(function(*exact)).copied()
        with self._draws():
            found = self._arm(self.eager, held, exact)()
        assert isinstance(found, Leaves)  # noqa: S101  (of a model)
        if self._reference is not None:
            held.restore()
            own = leaves_of(self._run(self._reference, (held.model,), exact)).copied()
            paths = [path for path in found.tensors if path.startswith("output")]
            if len(paths) != len(own.tensors):
                raise CaseError(
                    "reference",
                    f"the reference returns {len(own.tensors)} tensors, the model {len(paths)}: "
                    f"{', '.join(paths[:8])}",
                )
            found.tensors |= dict(zip(paths, own.tensors.values(), strict=True))
            held.restore()
        return found

    def moves_of(
        self, inputs: tuple[Any, ...], references: Mapping[str, Tensor], number: int
    ) -> dict[str, float]:
        """Return by which RMSE outputs of few elements move if all inputs are rounded once more.

        So are the parameters and buffers of a model. Empty where the reference refuses such inputs.

        Args:
            inputs: One draw.
            references: What ``reference_of`` returned for it.
            number: Number of the draw: each is rounded in other directions.
        """
        few = {path: reference for path, reference in references.items() if has_few(reference)}
        if not few or self._case.level in ("tolerance", "cosine"):
            return {}
        unit = ROUNDOFF[self._case.workload.dtype]
        if self._held is not None and self._shaken is None:
            self._shaken = self._copy_in_float64()
            _Rounded(self._shaken).move(unit, self._seed)
        exact = rounded_again(cast(inputs, torch.float64, _CPU), unit, self._seed + number)
        try:
            moved = self._in_float64(exact, self._shaken).tensors
            return {path: smooth_move(moved[path], one) for path, one in few.items()}
        except Exception:  # noqa: BLE001  (a reference may refuse such inputs; nothing is allowed)
            return {}

    def with_jumps(
        self, scales: list[Scales], inputs: tuple[Any, ...], references: list[Tensor]
    ) -> list[Scales]:
        """Return the scales of a backward pass with what is free because its gradients jump.

        A gradient jumps where a ReLU or a maximum changes its mind, and rounding may put compiled
        code on the other side of that from float64. So the exact pass is run on inputs that are
        rounded as often as float32 code rounds them on its way.

        Args:
            scales: Of each leaf, without jumps.
            inputs: The draw on which compiled code seems wrong.
            references: What the same code in float64 returns for it.
        """
        unit = ROUNDINGS * ROUNDOFF[self._case.workload.dtype]
        for moved in islice(self._moved(inputs, lambda _: unit, exact=True), _LOOKS_FOR_JUMPS):
            tensors = moved.tensors.values()
            for number, (one, other) in enumerate(zip(tensors, references, strict=True)):
                own = scales[number]
                if own.exact or one.shape != other.shape:
                    continue
                largest, rmse = (FREE_MOVES * move for move in distance(one, other))
                most = EAGER_LIMIT * largest_of(other)
                scales[number] = replace(
                    own, free=max(own.free, min(rmse, most)), largest=max(own.largest, largest)
                )
        return scales

    def looks(self, inputs: tuple[Any, ...], *, exact: bool, dtype: str) -> Iterator[Leaves]:
        """Yield what eager returns on these inputs, and if these are rounded a little more.

        Args:
            inputs: One draw.
            exact: Whether it is the reference that runs, in float64.
            dtype: Precision whose roundings are meant.
        """
        if not exact:
            self.reset_random_numbers()
            found = self._arm(self.eager, self._held, clone(inputs))()
            yield found if isinstance(found, Leaves) else leaves_of(found)
        unit, began = ROUNDOFF[dtype], time.perf_counter()
        for found in self._moved(
            inputs, lambda look: FURTHER[look % len(FURTHER)] * unit, exact=exact
        ):
            yield found
            if time.perf_counter() - began > LOOKS_S:
                return

    def _moved(
        self, inputs: tuple[Any, ...], far: Callable[[int], float], *, exact: bool
    ) -> Iterator[Leaves]:
        """Yield what is returned if inputs, parameters and buffers are moved, each time elsewhere.

        What a step does to a parameter is added to where the parameter was, not to where it was
        moved. Inputs that the function refuses are passed over.

        Args:
            inputs: One draw.
            far: How far each number is moved in a look, relative to its size.
            exact: Whether it is the reference that runs, in float64.
        """
        dtype, device = (torch.float64, _CPU) if exact else (self._dtype, self._device)
        numbers = leaves_of(inputs).tensors.values()
        if self._held is None and not any(map(is_rounded, numbers)):
            return  # nothing can be moved
        rounded = None
        if self._held is not None:
            self._held.restore()
            rounded = _Rounded(self._copy(self._held.model, dtype, device))
        for look in range(MOST_LOOKS):
            moved = rounded_again(cast(inputs, torch.float64, _CPU), far(look), look)
            held = None if rounded is None else rounded.move(far(look), look)
            try:
                if exact:
                    found = self._in_float64(moved, held)
                else:
                    self.reset_random_numbers()
                    returned = self._arm(self.eager, held, cast(moved, dtype, device))()
                    found = returned if isinstance(returned, Leaves) else leaves_of(returned)
            except Exception:  # noqa: BLE001, S112  (it may refuse such inputs)
                continue
            if rounded is not None:
                rounded.move_back(found)
            yield found

    def scales_of(self, eager: Mapping[str, Tensor], exact: Mapping[str, Tensor]) -> list[Scales]:
        """Return what the limits of each output are multiples of."""
        start = {} if self._held is None else self._held.started()
        largest = {path: largest_of(tensor) for path, tensor in exact.items()}
        kinds: dict[str, float] = {}
        for path, value in largest.items():
            kinds[_kind(path)] = max(kinds.get(_kind(path), 0.0), value)
        if self._loss is None and "loss" in kinds:
            # The harness's own loss sums outputs with random signs. Where they cancel, their
            # errors do not.
            kinds["loss"] = max(kinds["loss"], kinds.get("output", 0.0))
        rounding_of_gradients = ROUNDOFF[self._case.workload.dtype] * kinds.get("grad", 0.0)
        least = ROUNDINGS * rounding_of_gradients
        gradients = {
            path.removeprefix("grad."): gradient
            for path, gradient in exact.items()
            if path.startswith("grad.")
        }
        noise = {
            name: _share_of_noise(eager[f"grad.{name}"], gradient, least)
            for name, gradient in gradients.items()
        }
        found = []
        for path, reference in exact.items():
            kind, scale, moved = _kind(path), largest[path], 0.0
            rounding = scale if kind in ("output", "model") else kinds[kind]
            tolerance, free = kinds["loss"] if kind == "loss" else scale, 0.0
            parameter = path.removeprefix(f"{kind}.")
            share = noise.get(parameter)
            if path in start:
                before = start[path].to(device="cpu")
                tolerance = _moved(reference, before)
                if share is not None:
                    moved = FREE_MOVES * max(tolerance, _moved(eager[path].cpu(), before))
                if share is not None and kind == "model":
                    allowed = ROUNDINGS_BESIDE * rounding_of_gradients
                    free = _error_of_move(reference, before, gradients[parameter], allowed)
            if share:
                size = FREE_MOVES * largest_of(eager[path]) if kind == "grad" else moved
                free += size * share**0.5
            found.append(
                Scales(tolerance, rounding, free, moved, exact=not is_rounded(eager[path]))
            )
        return found

    def compare_structure(self, eager: Leaves, other: Leaves) -> str | None:
        """Return where outputs differ from eager's in structure or in what is no tensor."""
        if not self._case.workload.outputs:
            same = self._variant_dtype == self._dtype
            return difference(eager, other, dtypes=same)
        mine, theirs = (
            [v for v in one.others.values() if v is not None] for one in (eager, other)
        )
        if mine == theirs:
            return None
        path = next(iter({**other.others, **eager.others}))
        return f"{path} and what else is no tensor: {theirs!r}, eager has {mine!r}"[:400]


class _Rounded:
    """A copy of the model of which the parameters and buffers are rounded once more."""

    def __init__(self, held: Held) -> None:
        self._held = held
        self._start = held.started()
        tensors = (*held.model.parameters(), *held.model.buffers())
        self._origins = [(t, t.detach().clone()) for t in tensors if is_rounded(t)]

    def move(self, far: float, seed: int) -> Held:
        """Move each number by a fraction of itself, from where it was at first."""
        self._held.restore()
        with torch.no_grad():
            for number, (tensor, origin) in enumerate(self._origins, 1):
                wide = torch.complex128 if origin.is_complex() else torch.float64
                there = rounded_again(origin.to(wide), far, seed + number * MOST_LOOKS)
                tensor.copy_(there)
        self._held.keep()
        return self._held

    def move_back(self, found: Leaves) -> None:
        """Take out of the state by how far it was moved at first."""
        moved = self._held.started()
        for path, tensor in found.tensors.items():
            if path in self._start and is_rounded(tensor) and path in moved:
                found.tensors[path] = tensor - moved[path] + self._start[path]


@contextmanager
def _explained(level: Reference) -> Iterator[None]:
    """Explain an error of the same code in float64."""
    try:
        yield
    except Exception as error:
        if level != "float64" or classify(error, "reference") != "reference":
            raise
        raise CaseError(
            "reference",
            f"the same code in float64 raised {type(error).__name__}: {message_of(error)} "
            "(if it cannot run in float64, write reference='tolerance' or name a formula)",
        ) from error


def _observed(outputs: Any, held: Held) -> Leaves:  # noqa: ANN401
    """Return the outputs of a call with the state that it left."""
    if isinstance(outputs, Passed):
        found = leaves_of(outputs.output)
        found.add(leaves_of(outputs.loss, "loss"))
    else:
        found = leaves_of(outputs)
    found.add(held.state())
    return found


def _kind(path: str) -> str:
    """Return ``output``, ``loss``, ``grad``, ``model`` or, e.g., ``optimizer.exp_avg``."""
    parts = path.split(".")
    if parts[0] == "optimizer":
        return ".".join(parts[:2])
    return parts[0].partition("[")[0]


def has_few(reference: Tensor) -> bool:
    """Return whether an output has so few elements that all of them may cancel or be exact."""
    return bool(is_rounded(reference) and 0 < reference.numel() < FEW_ELEMENTS)


def has_own_scale(path: str) -> bool:
    """Return whether the largest value of a leaf is the scale of its limits.

    A gradient's is that of all gradients, and a parameter's how far a step moves it.
    """
    return _kind(path) in ("output", "loss")


def _share_of_noise(eager: Tensor, exact: Tensor, least: float) -> float:
    """Return the fraction of a gradient's elements that only rounding keeps from zero."""
    if not exact.numel():
        return 0.0
    a, b = as_real(eager.detach().cpu()), as_real(exact)
    return float(((b.abs() <= least) & (a != 0)).double().mean())


def _error_of_move(now: Tensor, before: Tensor, gradient: Tensor, error: float) -> float:
    """Return the RMSE of a parameter after a step if each gradient has this error.

    No optimizer magnifies the relative error of a gradient: stochastic gradient descent moves a
    parameter in proportion to it, Adam nearly by its sign.
    """
    if not gradient.numel() or now.shape != gradient.shape or error == 0.0:
        return 0.0
    relative = error / as_real(gradient).abs().clamp(min=error)
    off = apart(now, before) * relative
    return float(off.masked_fill(~off.isfinite(), 0.0).square().mean().sqrt())


def _moved(now: Tensor, before: Tensor) -> float:
    return largest_of(apart(now, before)) if now.shape == before.shape else 0.0
