"""Judge eager against the reference; its errors are the anchors of the variants' budgets."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ivhl.measure.accuracy import (
    as_real,
    count_numbers,
    eager_is_sound,
    has_few,
    has_own_scale,
    is_rounded,
    judge_eager,
    limit_without_jumps,
    limits_of_precision,
    rounded,
    scales_of,
    share_of_limit,
    typical_of,
)
from ivhl.measure.failures import CaseError, warn
from ivhl.measure.jumps import Jumps

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ivhl.measure.accuracy import Scales, Typical
    from ivhl.measure.exact import Exact
    from ivhl.measure.imports import Setup
    from ivhl.measure.leaves import Leaves
    from ivhl.records.record import OutputError

    Moves = list[dict[str, float]]
    Tensors = list[dict[str, Any]]


# Outputs in a record if the declaration does not name them.
MOST_LEAVES = 12


@dataclass(slots=True)
class Anchor:
    """What outputs on one draw are judged by.

    Attributes:
        references: In float64.
        errors: Those of eager.
        eager: Structure, shapes and dtypes of eager's outputs, and what of them is no tensor.
        scales: See ``accuracy.Scales``; ``None`` where the declaration names the outputs.
        inputs: The draw.
        source: Errors of the variant's own source in its own precision; ``None`` in eager's.
    """

    references: list[Any]
    errors: tuple[OutputError, ...]
    eager: Leaves
    scales: list[Scales] | None
    inputs: tuple[Any, ...]
    source: tuple[OutputError, ...] | None = None


class Anchors:
    """Judges eager and the variant's own source.

    Args:
        setup: The process.
        exact: Runs the case in float64, and near its inputs.
        typical: What outputs of few elements are like, by the number of the output.
    """

    def __init__(self, setup: Setup, exact: Exact, typical: dict[int, Typical]) -> None:
        self._setup, self._exact, self._typical = setup, exact, typical

    def note_largest_errors(self, anchors: Iterable[Anchor]) -> None:
        """Take note of eager's largest error of each output of few elements, over all draws."""
        for anchor in anchors:
            for number, error in enumerate(anchor.errors):
                if usual := self._typical.get(number):
                    most = max(usual.error, error.eager_rmse or 0.0)
                    self._typical[number] = replace(usual, error=most)

    def _refuse_what_is_not_finite(
        self, names: Sequence[str], tensors: list[Any], references: list[Any]
    ) -> None:
        """Refuse a reference that is not finite where eager is, or in no output.

        An infinity or NaN that both have, such as that of a mask, is as good as a number.
        """
        isfinite, level, seen = self._setup.torch.isfinite, self._setup.case.level, False
        for name, tensor, reference in zip(names, tensors, references, strict=True):
            held = name.startswith(("model.", "grad.", "optimizer."))
            if isfinite(as_real(reference).sum()):  # so is each term
                seen |= not held
                continue
            finite = isfinite(reference).cpu()
            seen |= not held and (bool(finite.any()) or not finite.numel())
            same_shape = tensor.shape == reference.shape
            if same_shape and bool((isfinite(tensor).cpu() & ~finite).any()):
                which = "" if level == "independent" else f": {name}"
                raise CaseError(
                    "reference", f"the float64 reference is not finite on these inputs{which}"
                )
        if not seen:
            raise CaseError(
                "reference",
                "all outputs are infinite or NaN: give the inputs another range (ivhl try: "
                "--input '8,64 <1' draws from 0 to 1)",
            )

    def anchor_of(
        self, outputs: Leaves, inputs: tuple[Any, ...], references: dict[str, Any]
    ) -> Anchor:
        """Return what outputs on the same draw are judged by.

        Raises:
            CaseError: If eager does not agree with the reference.
        """
        workload = self._setup.case.workload
        if not outputs.tensors:
            raise CaseError("eager_failed", "no tensor among the outputs of eager")
        names = workload.outputs or tuple(outputs.tensors)
        if not workload.outputs and self._setup.case.level != "independent":
            self._refuse_other_paths(outputs, references)
        tensors = list(outputs.tensors.values())
        exact = self._reference_of_equal_shapes(tensors, list(references.values()), inputs)
        self._refuse_other_shapes(names, tensors, exact)
        exact = limits_of_precision(tensors, exact, workload.dtype)
        if len(names) == len(tensors) == len(exact):
            self._refuse_what_is_not_finite(names, tensors, exact)
        errors = judge_eager(names, tensors, exact)
        scales = None
        if not workload.outputs:
            # A reference of one's own may name its outputs as it likes.
            named = dict(zip(outputs.tensors, exact, strict=True))
            scales = scales_of(workload, outputs.tensors, named, self._exact.started())
        if self._setup.case.level not in ("tolerance", "cosine"):
            errors = self._without_jumps(
                errors, tensors, exact, inputs,
                exact=True, dtype=workload.dtype, scales=scales, typical=self._typical,
            )  # fmt: skip
        self._refuse_unsound(errors, scales)
        return Anchor(
            references=exact, errors=errors, eager=outputs.shaped(), scales=scales, inputs=inputs
        )

    def _refuse_unsound(
        self, errors: tuple[OutputError, ...], scales: list[Scales] | None
    ) -> None:
        """Refuse eager if it does not agree with the reference."""
        torch, dtype = self._setup.torch, self._setup.case.workload.dtype
        for number, error in enumerate(errors):
            own = scales[number] if scales else None
            if eager_is_sound(error, own, dtype=dtype, typical=self._typical.get(number)):
                continue
            note_accuracy(self._setup, errors)
            hint = ""
            if not torch.equal(torch.get_rng_state(), self._setup.random_state):
                hint = (
                    "; eager draws random numbers, which may differ in float64: take them from "
                    "the inputs, or write reference='tolerance'"
                )
            raise CaseError(
                "eager_failed",
                f"eager's {error.output} does not agree with the reference: RMSE "
                f"{error.eager_rmse} at a scale of {error.scale}{hint}",
            )

    def _reference_of_equal_shapes(
        self, tensors: list[Any], references: list[Any], inputs: tuple[Any, ...]
    ) -> list[Any]:
        """Return the reference, or if its shapes differ, what it is on inputs rounded once more.

        How many elements a mask selects may jump.
        """
        shapes = [tensor.shape for tensor in tensors]
        if len(shapes) != len(references) or shapes == [one.shape for one in references]:
            return references
        with self._setup.random_numbers_kept():
            for look in self._exact.looks(
                inputs, exact=True, dtype=self._setup.case.workload.dtype
            ):
                seen = list(look.tensors.values())
                if [one.shape for one in seen] == shapes:
                    return seen
        return references

    def _without_jumps(
        self,
        errors: tuple[OutputError, ...],
        tensors: list[Any],
        references: list[Any],
        inputs: tuple[Any, ...],
        *,
        exact: bool,
        dtype: str,
        scales: list[Scales] | None = None,
        typical: Mapping[int, Typical] = MappingProxyType({}),
    ) -> tuple[OutputError, ...]:
        """Return the errors of outputs without the jumps that rounding explains.

        Args:
            errors: Those with the jumps.
            tensors: The outputs.
            references: What they are judged by.
            inputs: The draw.
            exact: Whether the same code is run in float64 on inputs that are rounded a little more.
            dtype: Precision of the outputs.
            scales: See ``accuracy.Scales``.
            typical: See ``accuracy.Typical``.
        """
        limits = [
            limit_without_jumps(
                error, tensors[number], references[number], scales[number] if scales else None,
                dtype=dtype, tolerance=self._setup.case.workload.tolerance,
                n_inputs=count_numbers(inputs), typical=typical.get(number),
            )
            for number, error in enumerate(errors)
        ]  # fmt: skip
        rows = zip(errors, tensors, limits, strict=True)
        if all(_is_within(*row) for row in rows):
            return errors
        jumps = Jumps(tensors, references, limits)
        if jumps.settled:
            return errors
        with self._setup.random_numbers_kept():
            for look in self._exact.looks(inputs, exact=exact, dtype=dtype):
                jumps.look(list(look.tensors.values()))
                if jumps.settled:
                    break
        return judge_eager([error.output for error in errors], jumps.without(), references)

    def _refuse_other_paths(self, outputs: Leaves, references: dict[str, Any]) -> None:
        if list(outputs.tensors) != list(references):
            other = next(iter({*outputs.tensors} ^ {*references}), "their order")
            raise CaseError(
                "reference", f"eager in float64 returns other outputs than in float32: {other}"
            )

    def _refuse_other_shapes(
        self, names: Sequence[str], tensors: list[Any], references: list[Any]
    ) -> None:
        """Refuse eager's own float64 run where it is no reference, as of what views its bytes."""
        for name, tensor, reference in zip(names, tensors, references, strict=False):
            if self._setup.case.level == "float64" and tensor.shape != reference.shape:
                raise CaseError(
                    "reference",
                    f"eager in float64 returns another shape than in {self._setup.dtype}: {name} is "
                    f"{tuple(reference.shape)} and not {tuple(tensor.shape)}; "
                    'reference="tolerance" compares with eager itself',
                )

    def note_source(self, outputs: Leaves, anchor: Anchor) -> None:
        """Let the source's error in the variant's own precision, if it has one, be the anchor."""
        if self._setup.variant_dtype == self._setup.dtype:
            return
        dtype, tensors = self._setup.case.dtype, list(outputs.tensors.values())
        names = [error.output for error in anchor.errors]
        errors = judge_eager(names, tensors, anchor.references)
        anchor.source = self._without_jumps(
            errors, tensors, anchor.references, anchor.inputs, exact=False, dtype=dtype
        )


def _is_within(error: OutputError, tensor: Any, limit: float) -> bool:  # noqa: ANN401
    """Return whether no element of eager is further off than a limit; integers may not be off."""
    return error.eager_max is not None and error.eager_max <= (
        limit if is_rounded(tensor) else 0.0
    )


def note_accuracy(setup: Setup, errors: tuple[OutputError, ...]) -> None:
    """Note the errors of outputs: of a model, which has hundreds, the worst."""
    if setup.case.workload.outputs:
        setup.journal.note(accuracy=[asdict(e) for e in errors])
        return
    # Those that fail first, then those nearest to their limits.
    worst = sorted(errors, key=lambda e: (bool(e.passed), -share_of_limit(e)))[:MOST_LEAVES]
    setup.journal.note(accuracy=[asdict(e) for e in worst], leaves=len(errors))


def run_reference(
    setup: Setup, exact: Exact, draws: Sequence[tuple[Any, ...]]
) -> tuple[Tensors, Moves]:
    """Return the reference of each output by its path, and what ``Exact.moves_of`` does, by draw.

    Saved for the other processes of the case. They compute the references again if loading fails:
    the disk may be full, and PyTorch 2.5.1 cannot save on Python 3.13.
    """
    setup.journal.enter("reference")
    path = Path(setup.job.references)
    with suppress(Exception):
        tensors, moves = setup.torch.load(path, weights_only=True)
        return tensors, moves
    tensors = [exact.reference_of(inputs).tensors for inputs in draws]
    moves = [
        exact.moves_of(inputs, tensors[number], number) for number, inputs in enumerate(draws)
    ]
    with suppress(Exception):  # also if the job names no file
        fresh = path.with_name(f"{path.name}.{setup.job.process}")
        setup.torch.save([tensors, moves], fresh)
        fresh.rename(path)
    return tensors, moves


def warn_of_rounded_references(setup: Setup, references: Tensors) -> None:
    """Warn of what the same code in float64 rounds all the same: it judges less sharply."""
    if setup.case.level == "float64" and (names := rounded(references[0])):
        warn(
            f"the float64 reference rounds {', '.join(names[:8])}: the code casts to a "
            "precision of its own; with `reference`, another formula judges it"
        )


def typical_outputs(references: Tensors, moves: Moves) -> dict[int, Typical]:
    """Return what outputs of few elements are like on all draws, by the number of the output."""
    return {
        number: typical_of(
            [one[path] for one in references if path in one],
            [one[path] for one in moves if path in one],
            own=has_own_scale(path),
        )
        for number, (path, first) in enumerate(references[0].items())
        if has_few(first)
    }
