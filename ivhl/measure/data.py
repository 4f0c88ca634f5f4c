"""The inputs of a case, and what its functions return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ivhl.measure.draws import (
    N_DRAWS,
    ShapesDifferError,
    cast,
    check_alike,
    check_different,
    clone,
    draw,
    fill,
    holds,
)
from ivhl.measure.failures import CaseError, warn
from ivhl.measure.imports import SEED
from ivhl.measure.leaves import Leaves, leaves_of
from ivhl.measure.subject import seed_beside_torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ivhl.measure.imports import Functions, Setup


class Data:
    """The draws of a case, and the tensors that its arms read.

    Making it is the phase ``inputs``.

    Attributes:
        draws: The inputs of each seed.
        variant_draws: What the variant takes of each.
        inputs: What eager reads: one of the draws is copied in before each block.
        variant_inputs: Likewise of the variant.
        eager_types: Types of the tensors that eager returns, as far as it has run.

    Args:
        setup: The process.
        functions: Those of the workload.
    """

    def __init__(self, setup: Setup, functions: Functions) -> None:
        self._setup, self._functions, self._subject = setup, functions, functions.subject
        self.eager_types: set[type] = set()
        setup.journal.enter("inputs")
        first = self.draw(SEED)
        self._subject.make_models(setup.case.workload.sizes[setup.case.size])
        if first and set(range(len(first))) <= set(setup.case.workload.fixed):
            raise CaseError("inputs", "`fixed` names every input, so all draws would be equal")
        self.draws = [first]
        self.variant_draws = [self.prepared(first)]
        for other, prepared in self._further_draws():
            self.draws.append(other)
            self.variant_draws.append(prepared)
        setup.synchronize()
        self.inputs = clone(first)
        self.variant_inputs = clone(self.variant_draws[0])
        setup.journal.note(
            draws=len(self.draws), reference=setup.case.level, passes=self._subject.passes
        )

    def draw(self, seed: int, first: tuple[Any, ...] | None = None) -> tuple[Any, ...]:
        """Return the inputs of a seed, with the ``fixed`` ones of a first draw."""
        workload = self._setup.case.workload
        size = workload.sizes[self._setup.case.size]
        make_inputs, take = self._functions.make_inputs, self._subject.take_inputs
        drawn = draw(
            lambda size, generator: take(make_inputs(size, generator)),
            size, seed, first=first, fixed=workload.fixed,
        )  # fmt: skip
        return cast(drawn, self._setup.dtype, self._setup.device)  # type: ignore[no-any-return]

    def prepared(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the variant's own inputs, which share no memory with the workload's."""
        own = cast(inputs, self._setup.variant_dtype, self._setup.device)
        prepared = self._functions.prepare(*own) if self._functions.prepare else own
        if not isinstance(prepared, tuple):
            prepared = (prepared,)
        self._refuse_own_types(leaves_of(prepared).types.values(), "prepare")
        copied: tuple[Any, ...] = clone(prepared)
        return copied

    def _refuse_own_types(self, types: Iterable[type], who: str) -> None:
        """Refuse tensor subclasses that eager does not return: they may compute when read."""
        for kind in types:
            if kind not in self.eager_types:
                raise CaseError(
                    "side_effect",
                    f"the variant's {who} returns a {kind.__name__}, which may compute its "
                    "values when they are read, after the clock has stopped",
                )

    def _further_draws(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Yield the draws after the first one with what the variant takes, while they are alike."""
        first = self.draws[0]
        for number in range(1, N_DRAWS):
            other = self.draw(SEED + number, first)
            prepared = self.prepared(other)
            try:
                check_alike(first, other)
                self._check_prepared_alike(prepared)
                check_different(first, other)
            except ShapesDifferError as difference:
                warn(
                    "the data cannot change between blocks, so a variant that returns kept "
                    f"results would not be noticed: {difference}"
                )
                return
            yield other, prepared

    def _check_prepared_alike(self, prepared: tuple[Any, ...]) -> None:
        try:
            check_alike(self.variant_draws[0], prepared)
        except ShapesDifferError as difference:
            raise CaseError(
                "inputs",
                f"{self._setup.case.variant.prepare} returns different shapes for inputs of equal "
                f"shapes, so the data cannot change between blocks of calls: {difference}",
            ) from difference

    def use(self, number: int) -> int:
        """Copy a draw into the tensors that the arms read, and return its number."""
        number %= len(self.draws)
        fill(self.inputs, self.draws[number])
        fill(self.variant_inputs, self.variant_draws[number])
        # Every block uses the same random numbers, whatever ran before it.
        self._setup.torch.set_rng_state(self._setup.random_state)
        seed_beside_torch(SEED)
        return number

    def refuse_changed_eager_inputs(self, number: int) -> None:
        """Refuse eager if it changed its inputs."""
        if not holds(self.inputs, self.draws[number]):
            raise CaseError(
                "eager_failed",
                "eager changes its inputs, so a second call computes something else",
            )

    def refuse_changed_inputs(self, number: int) -> None:
        """Refuse the variant if it changed its inputs."""
        if not holds(self.variant_inputs, self.variant_draws[number]):
            raise CaseError(
                "side_effect",
                "the variant changes its inputs, so a second call computes something else",
            )

    def detached(self, outputs: Any) -> Leaves:  # noqa: ANN401
        """Return copies of the outputs: CUDA graphs overwrite them at the next call."""
        found = leaves_in(outputs)
        self._refuse_own_types(found.types.values(), "call")
        if self._functions.finish:
            found = leaves_in(self._functions.finish(outputs))
        # Leaves of a model are copies already.
        return found if found is outputs else found.copied()


def leaves_in(outputs: Any) -> Leaves:  # noqa: ANN401  (any nest, or what was read of a model)
    """Return the leaves of outputs; of a model, the state is among them."""
    return outputs if isinstance(outputs, Leaves) else leaves_of(outputs)
