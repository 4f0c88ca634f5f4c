"""What a case returns in float64, and on inputs that are rounded once more."""

from __future__ import annotations

import time
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch

from ivhl.measure.accuracy import (
    EAGER_LIMIT,
    FREE_MOVES,
    ROUNDINGS,
    ROUNDOFF,
    Scales,
    distance,
    has_few,
    is_rounded,
    largest_of,
    smooth_move,
)
from ivhl.measure.draws import cast, clone, rounded_again
from ivhl.measure.failures import CaseError, classify, message_of
from ivhl.measure.jumps import FURTHER, LOOKS_S, MOST_LOOKS
from ivhl.measure.leaves import Leaves, leaves_of
from ivhl.measure.randomness import DrawsIn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor

    from ivhl.measure.models import Held
    from ivhl.measure.subject import Subject
    from ivhl.records.record import Reference

# How often a model is run on rounded inputs to see whether its gradients jump there.
_LOOKS_FOR_JUMPS = 8
_CPU = torch.device("cpu")


class Exact:
    """Runs a case in float64, and near its inputs.

    Args:
        subject: What is called.
    """

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._held: Held | None = None
        self._shaken: Held | None = None

    def started(self) -> dict[str, Tensor]:
        """Return the state of the eager arm's model before each call; empty without a model."""
        return {} if self._subject.held is None else self._subject.held.started()

    def reference_of(self, inputs: tuple[Any, ...]) -> Leaves:
        """Return what the outputs on these inputs are judged by.

        Raises:
            CaseError: If the same code does not run in float64.
        """
        subject, level = self._subject, self._subject.case.level
        if level in ("tolerance", "cosine"):
            return self._in_own_precision(clone(inputs), subject.held).copied()
        # From the rounded inputs: their rounding is not an error of the code under test.
        exact = cast(inputs, torch.float64, _CPU)
        if subject.held is not None and self._held is None:
            self._held = subject.copied(torch.float64, _CPU)
        with _explained(level):
            return self._in_float64(exact, self._held)

    def _in_float64(self, exact: tuple[Any, ...], held: Held | None) -> Leaves:
        """Return what the reference returns; of a model, the same code also for what has none."""
        subject = self._subject
        # The random numbers that eager draws, if it draws any.
        drawn = subject.draws_random_numbers or subject.draws_by_itself
        draws = DrawsIn(subject.dtype) if drawn else nullcontext()
        if held is None:
            function = subject.reference or subject.eager
            subject.reset_random_numbers()
            with draws:
                return leaves_of(function(*exact)).copied()
        with draws:
            found = subject.arm(subject.eager, held, exact)()
        assert isinstance(found, Leaves)  # noqa: S101  (of a model)
        if subject.reference is not None:
            held.restore()
            own = leaves_of(subject.run(subject.reference, (held.model,), exact)).copied()
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

    def _in_own_precision(self, inputs: tuple[Any, ...], held: Held | None) -> Leaves:
        """Return what eager returns."""
        self._subject.reset_random_numbers()
        returned = self._subject.arm(self._subject.eager, held, inputs)()
        return returned if isinstance(returned, Leaves) else leaves_of(returned)

    def moves_of(
        self, inputs: tuple[Any, ...], references: Mapping[str, Tensor], number: int
    ) -> dict[str, float]:
        """Return by which RMSE outputs of few elements move if all inputs are rounded once more.

        So are the parameters and buffers of a model, whose state moves only where a call changes it.
        Empty where the reference refuses such inputs.

        Args:
            inputs: One draw.
            references: What ``reference_of`` returned for it.
            number: Number of the draw: each is rounded in other directions.
        """
        start = {} if self._held is None else self._held.started()
        few = {
            path: reference
            for path, reference in references.items()
            if has_few(reference) and reference is not start.get(path)
        }
        subject = self._subject
        if not few or subject.case.level in ("tolerance", "cosine"):
            return {}
        unit = ROUNDOFF[subject.case.workload.dtype]
        if subject.held is not None and self._shaken is None:
            self._shaken = subject.copied(torch.float64, _CPU)
            Rounded(self._shaken).move(unit, subject.seed)
        exact = rounded_again(cast(inputs, torch.float64, _CPU), unit, subject.seed + number)
        try:
            moved = self._in_float64(exact, self._shaken).tensors
            return {path: smooth_move(moved[path], reference) for path, reference in few.items()}
        except Exception:  # noqa: BLE001  (a reference may refuse such inputs; nothing is allowed)
            return {}

    def with_jumps(
        self, scales: list[Scales], inputs: tuple[Any, ...], references: list[Tensor]
    ) -> list[Scales]:
        """Return the scales with what is free because gradients jump, or outputs are only rounding.

        A gradient jumps where a ReLU or a maximum changes its mind, and rounding may put compiled
        code on the other side of that from float64. So the exact pass is run on inputs that are
        rounded as often as float32 code rounds them on its way. Where eager itself judges, it is run
        on inputs that are moved by a tenth of the tolerance at least, which may be that of 16 bits,
        and nothing beyond the tolerance is free.

        Args:
            scales: Of each leaf, without jumps.
            inputs: The draw on which compiled code seems wrong.
            references: What the same code in float64 returns for it, or eager.
        """
        workload, exact = self._subject.case.workload, self._subject.case.level == "float64"
        unit = ROUNDINGS * ROUNDOFF[workload.dtype]
        unit = unit if exact else max(unit, workload.tolerance / 10)
        for moved in islice(self._moved(inputs, lambda _: unit, exact=exact), _LOOKS_FOR_JUMPS):
            tensors = moved.tensors.values()
            if len(tensors) != len(references):
                continue
            for number, (one, other) in enumerate(zip(tensors, references, strict=True)):
                own = scales[number]
                if own.exact or one.shape != other.shape:
                    continue
                largest, rmse = (FREE_MOVES * move for move in distance(one, other))
                most = EAGER_LIMIT * largest_of(other) if exact else workload.tolerance
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
            yield self._in_own_precision(clone(inputs), self._subject.held)
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
        subject = self._subject
        dtype, device = (torch.float64, _CPU) if exact else (subject.dtype, subject.device)
        numbers = leaves_of(inputs).tensors.values()
        if subject.held is None and not any(map(is_rounded, numbers)):
            return  # nothing can be moved
        rounded = None if subject.held is None else Rounded(subject.copied(dtype, device))
        for look in range(MOST_LOOKS):
            moved = rounded_again(cast(inputs, torch.float64, _CPU), far(look), look)
            held = None if rounded is None else rounded.move(far(look), look)
            try:
                if exact:
                    found = self._in_float64(moved, held)
                else:
                    found = self._in_own_precision(cast(moved, dtype, device), held)
            except Exception:  # noqa: BLE001, S112  (it may refuse such inputs)
                continue
            if rounded is not None:
                rounded.move_back(found)
            yield found


class Rounded:
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
