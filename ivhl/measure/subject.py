"""The subject of a case: its functions, and the model of each arm.

Whether a workload is a function of its inputs or has a model with a state makes no difference to
the phases of a case.
"""

from __future__ import annotations

import random
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import torch

from ivhl.measure.draws import clone
from ivhl.measure.failures import CaseError, message_of
from ivhl.measure.leaves import Leaves, leaves_of
from ivhl.measure.models import (
    Held,
    Passed,
    default_call,
    default_optimizer,
    held_copy,
    is_trained,
    precisions_of,
)
from ivhl.measure.randomness import Drawing
from ivhl.measure.timing import Restored
from ivhl.workload import resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ivhl.records.record import Passes
    from ivhl.workload import Case

    Function = Callable[..., Any]
    Compiler = Callable[[Function], Function]


class Subject:
    """The functions of a case and its models.

    Args:
        case: The case.
        dtype: Precision of eager.
        variant_dtype: Precision of the variant.
        device: Where all arms run.
        seed: Seed of random numbers for ``make_model`` and at each call.

    Attributes:
        held: The eager arm's model, if there is one.
        reference: The formula by which outputs are judged, if it is not eager's own code.
        draws_random_numbers: Whether eager draws from the generator of PyTorch, Python or NumPy.
        draws_by_itself: Whether it draws from a generator that it makes.
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
        self.case, self.seed = case, seed
        self.dtype, self.device, self._variant_dtype = dtype, device, variant_dtype
        self._make_model = resolve(workload.make_model) if workload.make_model else None
        self._make_optimizer = (
            resolve(workload.make_optimizer) if workload.make_optimizer else None
        )
        self._loss = resolve(workload.loss) if workload.loss else None
        self.reference = resolve(workload.reference) if ":" in workload.reference else None
        self._eager: Function | None = resolve(workload.eager) if workload.eager else None
        self._call: Function | None = resolve(case.call) if case.call else None
        self.held: Held | None = None
        self._named = False
        self._arms: list[Restored] = []
        self.passes: Passes | None = None
        self.draws_random_numbers = False
        self.draws_by_itself = False
        self._seeded: list[Any] = []

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
        return self._call is not self._eager or self._variant_dtype != self.dtype

    def take_inputs(self, inputs: Any) -> tuple[Any, ...]:  # noqa: ANN401
        """Return what ``make_inputs`` returned as positional arguments.

        A mapping is one of them, as is anything else that is neither tuple nor list.
        """
        self._named = self.has_model and isinstance(inputs, dict)
        return tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)

    def make_models(self, size: Any) -> None:  # noqa: ANN401  (whatever the sizes are)
        """Make the model, and the eager arm's copy of it.

        Raises:
            CaseError: If it is no model, cannot be copied, or has nothing to train.
        """
        if self._make_model is None:
            return
        torch.manual_seed(self.seed)
        model = self._make_model(size)
        maker = self.case.workload.make_model
        if not isinstance(model, torch.nn.Module):
            raise CaseError(
                "inputs", f"{maker} returns a {type(model).__name__}, not a torch.nn.Module"
            )
        trained = is_trained(model.parameters())
        if self._eager is None:
            self.passes = self.case.workload.passes or ("step" if trained else "forward")
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
        self.held = self._copy(model, self.dtype, self.device)

    def _copy(self, model: torch.nn.Module, dtype: torch.dtype, device: torch.device) -> Held:
        # Cast to one precision, a model that mixes them is another one: its float64 form alone is.
        mixed = len(precisions_of(model)) > 1 and dtype == self.dtype != torch.float64
        own = None if mixed else dtype
        try:
            return held_copy(model, self._make_optimizer, dtype=own, device=device, like=self.held)
        except Exception as error:
            raise CaseError(
                "inputs",
                "the model cannot be copied for each arm (copy.deepcopy, then its precision, then "
                f"its optimizer): {type(error).__name__}: {message_of(error)}",
            ) from error

    def warm_up(self, inputs: tuple[Any, ...]) -> None:
        """Let the optimizer make its state, by one step; all arms begin from what this leaves."""
        if self.held is None or self.held.optimizer is None:
            return
        self.run(self.eager, self.held.arguments, clone(inputs))
        self.held.keep()
        self.held.restore()

    def eager_arm(self, inputs: tuple[Any, ...]) -> Function:
        """Return the call of eager on these inputs."""
        return self._kept(self.arm(self.eager, self.held, inputs))

    def _kept(self, arm: Function) -> Function:
        if isinstance(arm, Restored):
            self._arms.append(arm)
        return arm

    def variant_copy(self) -> Held | None:
        """Return a copy of the model for the variant; ``None`` without a model."""
        if self.held is None:
            return None
        self.reset_random_numbers()
        return self.copied(self._variant_dtype, self.device)

    def copied(self, dtype: torch.dtype, device: torch.device) -> Held:
        """Return a copy of the eager arm's model, as it is at the start of each call."""
        assert self.held is not None  # noqa: S101  (there is a model)
        self.held.restore()
        return self._copy(self.held.model, dtype, device)

    def variant_arm(
        self, compiler: Compiler, inputs: tuple[Any, ...], held: Held | None
    ) -> Function:
        """Return the call of the variant, made with a compiler, on these inputs.

        The compiler may begin its work here, or at the first call.
        """
        variant = self.case.variant
        assert self._call is not None  # noqa: S101  (as for eager)
        if variant.compiles == "parts":
            return self._kept(self.arm(self._call(compiler), held, inputs))
        harness_calls = not self.case.call
        if held is not None and (variant.compiles == "model" or harness_calls):
            model = compiler(held.model)
            return self._kept(self.arm(self._call, held, inputs, model=model))
        return self._kept(self.arm(compiler(self._call), held, inputs))

    def arm(
        self,
        function: Function,
        held: Held | None,
        inputs: tuple[Any, ...],
        *,
        model: Function | None = None,
    ) -> Function:
        """Return the call of a function on inputs, with a model or without."""
        if held is None:
            return lambda: function(*inputs)
        arguments = held.arguments if model is None else (model, *held.arguments[1:])

        def restore() -> None:
            held.restore()
            self.reset_random_numbers()

        def read(outputs: Any) -> Leaves:  # noqa: ANN401
            return held.copied(_observed(outputs, held))

        each = not self._arms or self._arms[0].each
        return Restored(lambda: self.run(function, arguments, inputs), restore, read, each)

    def run(
        self,
        function: Function,
        arguments: tuple[Any, ...],
        inputs: tuple[Any, ...],
    ) -> Any:  # noqa: ANN401
        """Call a function, with inputs by name if they are a mapping."""
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
        torch.manual_seed(self.seed)
        seed_beside_torch(self.seed)

    @contextmanager
    def drawing_others(self, seed: int) -> Iterator[None]:
        """Let calls draw other random numbers meanwhile."""
        usual, self.seed = self.seed, seed
        try:
            yield
        finally:
            self.seed = usual

    def note_random_numbers(self, call: Function) -> None:
        """Call eager, and take note of whether it draws random numbers, and from which generator."""
        self.reset_random_numbers()
        self._seeded = _random_states()
        call()
        self.draws_random_numbers = self._has_drawn()
        if not self.draws_random_numbers:
            drawing = Drawing()
            with suppress(Exception), drawing:  # eager that no mode can follow has run above
                call()
            self.draws_by_itself = drawing.drew

    def _has_drawn(self) -> bool:
        # A call may import NumPy.
        return any(a != b for a, b in zip(self._seeded, _random_states(), strict=False))

    def note_eager(self, found: Leaves) -> None:
        """Take note of what a call of eager did: it may draw random numbers, or change nothing.

        Where nothing changes, blocks of calls need no pauses.
        """
        self.draws_random_numbers = self.draws_random_numbers or self._has_drawn()
        if self.held is None:
            return
        start = self.held.started()
        self.held.restore()
        before = self.held.state()
        same = all(
            path in start and (tensor is start[path] or torch.equal(tensor, start[path]))
            for path, tensor in found.tensors.items()
            if path in before.tensors or path.startswith("grad.")
        ) and all(found.others.get(path) == value for path, value in before.others.items())
        for arm in self._arms:
            arm.each = arm.each and not (same and not self.draws_random_numbers)


def seed_beside_torch(seed: int) -> None:
    """Seed the generators of Python and, if it is imported, of NumPy."""
    random.seed(seed)
    if (numpy := sys.modules.get("numpy.random")) is not None:
        numpy.seed(seed)


def _random_states() -> list[Any]:
    """Return the states of the generators of PyTorch, Python and, if it is imported, NumPy."""
    numpy = sys.modules.get("numpy.random")
    keys = [] if numpy is None else [(one[1].tolist(), one[2]) for one in (numpy.get_state(),)]
    return [torch.get_rng_state().tolist(), random.getstate(), *keys]


def _observed(outputs: Any, held: Held) -> Leaves:  # noqa: ANN401
    """Return the outputs of a call with the state that it left."""
    if isinstance(outputs, Passed):
        found = leaves_of(outputs.output)
        found.add(leaves_of(outputs.loss, "loss"))
    else:
        found = leaves_of(outputs)
    found.add(held.state())
    return found
