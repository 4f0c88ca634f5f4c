"""Judge the outputs of a variant by those of eager and the reference on the same input set."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ivhl.measure.accuracy import (
    EAGER_LIMIT,
    LEAST_COSINE,
    ROUNDOFF,
    Scales,
    count_numbers,
    how_elements_differ,
    is_rounded,
    judge_by_eager,
    judge_compiled,
    worse,
)
from ivhl.measure.anchors import note_accuracy
from ivhl.measure.failures import CaseError, number, warn
from ivhl.measure.jumps import Jumps
from ivhl.measure.leaves import difference
from ivhl.records.record import JUMPS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ivhl.measure.accuracy import Typical
    from ivhl.measure.anchors import Anchor
    from ivhl.measure.exact import Exact
    from ivhl.measure.imports import Setup
    from ivhl.measure.leaves import Leaves
    from ivhl.records.record import FailureClass, OutputError


class OutputJudge:
    """Judges outputs; the record shows the worst ones.

    Args:
        setup: The process.
        exact: Runs the case near its inputs.
        typical: What outputs of few elements are like, by the number of the output.
        by_law: Whether the variant draws random numbers of its own, so that values say nothing.
    """

    def __init__(
        self,
        setup: Setup,
        exact: Exact,
        typical: Mapping[int, Typical],
        *,
        by_law: bool = False,
    ) -> None:
        self._setup, self._exact, self._typical = setup, exact, typical
        self.by_law = by_law
        # The errors of the worst outputs so far, in a list of one.
        self._worst: list[tuple[OutputError, ...]] = [()]

    def by_law_only(self) -> OutputJudge:
        """Return the judge of a variant that draws random numbers of its own."""
        return OutputJudge(self._setup, self._exact, self._typical, by_law=True)

    def judge(self, outputs: Leaves, anchor: Anchor, which: str) -> None:
        """Judge outputs, and note the worst one judged so far."""
        own_source = "own source" in which
        failure_class: FailureClass = "eager_failed" if own_source else "wrong"
        outputs = _without_zeros(outputs, anchor.eager)
        if self.by_law and not own_source:
            if other := self._difference(anchor.eager, outputs):
                raise CaseError(failure_class, f"{which} {other}")
            return
        try:
            judged = self._errors_of(outputs, anchor)
        except ValueError as mismatch:
            found = self._judge_by_a_look(outputs, anchor)
            if found is None:
                other = self._difference(anchor.eager, outputs)
                raise CaseError(
                    failure_class, f"{which} output cannot be compared: {other or mismatch}"
                ) from mismatch
            judged, other = found, None
        else:
            if not all(error.passed for error in judged) and self._may_jump(anchor):
                own = anchor.scales or [Scales(error.scale, error.scale) for error in judged]
                with self._setup.random_numbers_kept():
                    anchor.scales = self._exact.with_jumps(
                        list(own), anchor.inputs, anchor.references
                    )
                judged = self._errors_of(outputs, anchor)
            other = self._difference(anchor.eager, outputs)
            if other or not all(error.passed for error in judged):
                outputs, judged, other = self._judge_without_jumps(outputs, anchor, judged, other)
        if wrong := next(self._shortfalls(judged, outputs, anchor), other):
            raise CaseError(failure_class, f"{which} {wrong}")
        if not own_source:
            self._worst.append(worse(self._worst.pop(), judged))
            note_accuracy(self._setup, self._worst[0])

    def _judge_without_jumps(
        self,
        outputs: Leaves,
        anchor: Anchor,
        judged: tuple[OutputError, ...],
        other: str | None,
    ) -> tuple[Leaves, tuple[OutputError, ...], str | None]:
        """Return outputs, errors and the difference in structure that rounding does not explain.

        Args:
            outputs: What seems wrong.
            anchor: What it is judged by.
            judged: Its errors.
            other: Where it differs from eager in structure or in what is no tensor.
        """
        limits = [
            EAGER_LIMIT * error.scale if error.limit_max is None else error.limit_max
            for error in judged
        ]
        if self._setup.case.level == "tolerance":
            most = self._setup.case.workload.tolerance
            limits = [most * min(1.0, error.scale) for error in judged]
        jumps = Jumps(list(outputs.tensors.values()), anchor.references, limits)
        with self._setup.random_numbers_kept():
            for look in self._looks(anchor):
                if other and self._difference(look, outputs) is None:
                    other = None
                    self._warn_of_jumps("a value that is no tensor")
                jumps.look(list(look.tensors.values()))
                if not other and jumps.settled:
                    break
        if not (jumped := jumps.jumped()):
            return outputs, judged, other
        outputs_of = ", ".join(judged[number].output for number in jumped[:3])
        self._warn_of_jumps(f"elements of {outputs_of}")
        without = dict(zip(outputs.tensors, jumps.without(), strict=True))
        outputs = replace(outputs, tensors=without)
        return outputs, self._errors_of(outputs, anchor), other

    def _judge_by_a_look(self, outputs: Leaves, anchor: Anchor) -> tuple[OutputError, ...] | None:
        """Return the errors against eager on inputs rounded once more, if only there shapes agree.

        How many elements a mask selects jumps, too. ``None`` if no such inputs explain it.
        """
        with self._setup.random_numbers_kept():
            for look in self._looks(anchor):
                if self._difference(look, outputs) is not None:
                    continue
                beside = replace(anchor, references=list(look.tensors.values()))
                with suppress(ValueError):
                    judged = self._errors_of(outputs, beside)
                    if all(error.passed for error in judged):
                        self._warn_of_jumps("the shape of an output")
                        return judged
        return None

    def _difference(self, eager: Leaves, other: Leaves) -> str | None:
        """Return where outputs differ from eager's in structure or in what is no tensor."""
        if not self._setup.case.workload.outputs:
            same = self._setup.variant_dtype == self._setup.dtype
            return difference(eager, other, dtypes=same)
        mine, theirs = (
            [value for value in leaves.others.values() if value is not None]
            for leaves in (eager, other)
        )
        if mine == theirs:
            return None
        path = next(iter({**other.others, **eager.others}))
        return f"{path} and what else is no tensor: {theirs!r}, eager has {mine!r}"[:400]

    @staticmethod
    def _warn_of_jumps(what: str) -> None:
        warnings.warn(
            f"{JUMPS} {what}; what eager returns there on inputs that are rounded a "
            "little more counts as right",
            stacklevel=1,
        )

    def _looks(self, anchor: Anchor) -> Iterator[Leaves]:
        """Return what the same code returns on inputs that are rounded a little more."""
        dtype = self._setup.case.dtype
        return self._exact.looks(anchor.inputs, exact=False, dtype=dtype)

    def _may_jump(self, anchor: Anchor) -> bool:
        """Return whether gradients are among what is judged, by the same code in float64.

        Or eager judges: there, only looks show which outputs are nothing but rounding.
        """
        if self._setup.case.level == "tolerance":
            return True
        gradients = any(error.output.startswith("grad.") for error in anchor.errors)
        return gradients and self._setup.case.level == "float64" and anchor.scales is not None

    def _errors_of(self, outputs: Leaves, anchor: Anchor) -> tuple[OutputError, ...]:

        workload, level = self._setup.case.workload, self._setup.case.level
        tensors = list(outputs.tensors.values())
        if not workload.outputs and list(outputs.tensors) != list(anchor.eager.tensors):
            raise ValueError("other outputs than eager's")
        if level in ("tolerance", "cosine"):
            return judge_by_eager(
                anchor.errors,
                tensors,
                anchor.references,
                rule=level,
                tolerance=workload.tolerance,
                scales=anchor.scales,
                typical=self._typical_in(workload.dtype),
            )
        return judge_compiled(
            anchor.errors,
            tensors,
            anchor.references,
            dtype=self._setup.case.dtype,
            tolerance=workload.tolerance,
            n_inputs=count_numbers(anchor.inputs),
            anchors=anchor.source,
            scales=anchor.scales,
            typical=self._typical_in(self._setup.case.dtype),
        )

    def _typical_in(self, dtype: str) -> dict[int, Typical]:
        """Return what outputs are like, rounded in the variant's precision."""
        wider = ROUNDOFF[dtype] / ROUNDOFF[self._setup.case.workload.dtype]
        return {
            number: replace(usual, rounding=usual.rounding * wider)
            for number, usual in self._typical.items()
        }

    def _shortfalls(
        self, judged: tuple[OutputError, ...], outputs: Leaves, anchor: Anchor
    ) -> Iterator[str]:
        """Yield what is wrong with each output that failed, and note the errors of all."""
        tensors = outputs.tensors.values()
        for error, *tensor in zip(judged, tensors, anchor.references, strict=True):
            if not error.passed:
                note_accuracy(self._setup, judged)
                yield shortfall(self._setup, error, *tensor)


def _without_zeros(outputs: Leaves, eager: Leaves) -> Leaves:
    """Return outputs with ``None`` where a gradient is all zeros, and eager has none.

    AOTAutograd returns zeros for a parameter that the loss does not depend on.
    """
    zeros = {
        path
        for path, tensor in outputs.tensors.items()
        if path.startswith("grad.") and path in eager.others and not tensor.any()
    }
    if not zeros:
        return outputs
    warn(f"zeros count as the gradient None that eager has: {', '.join(sorted(zeros))}"[:400])
    tensors = {path: tensor for path, tensor in outputs.tensors.items() if path not in zeros}
    return replace(outputs, tensors=tensors, others=outputs.others | dict.fromkeys(zeros))


def shortfall(
    setup: Setup,
    error: OutputError,
    output: Any,  # noqa: ANN401  (a tensor)
    reference: Any,  # noqa: ANN401
) -> str:
    """Return what is wrong with an output that failed."""
    by_eager = setup.case.level in ("tolerance", "cosine")
    exact = not is_rounded(output) and not is_rounded(reference)
    if elements := how_elements_differ(output, reference):
        what = "eager's" if by_eager else "the reference"
        why = (
            "no rounding of the inputs explains it, and nothing is allowed"
            if exact
            else "infinities and NaN must be eager's"
        )
        return f"{error.output} differs from {what} {elements}; {why}"
    if error.cosine is not None:
        return (
            f"{error.output} has a cosine of {error.cosine:.4f} with eager's; PyTorch's rule "
            f"for whole models asks for {LEAST_COSINE}"
        )
    if by_eager:
        return (
            f"{error.output} differs from eager's by up to {number(error.compiled_max)}; allowed is "
            f"{number(error.limit_max)} where eager's largest is, {number(error.scale)}"
        )
    if error.limit_rmse == error.limit_max == 0.0:
        return (
            f"{error.output} is off by up to {number(error.compiled_max)} against float64, and "
            "no rounding of the inputs explains it; nothing is allowed"
        )
    if error.compiled_rmse is not None and error.compiled_rmse <= (error.limit_rmse or 0.0):
        return (
            f"{error.output} has an element with an error of {number(error.compiled_max)} "
            f"against float64; eager has at most {number(error.eager_max)}, allowed is "
            f"{number(error.limit_max)}"
        )
    anchor = f"eager has {number(error.eager_rmse)}"
    if setup.variant_dtype != setup.dtype:
        anchor = f"its source, eager in {setup.case.dtype}, has {number(error.anchor_rmse)}"
    return (
        f"{error.output} has an RMSE of {number(error.compiled_rmse)} against float64; "
        f"{anchor}, allowed is {number(error.limit_rmse)}"
    )
