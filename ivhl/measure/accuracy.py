"""Compute errors against the float64 reference, and judge them.

The rule is that of PyTorch's own benchmarks (``torch/_dynamo/utils.py::same``): compiled code may
have eager's error times a small factor, plus a small tolerance. An absolute tolerance would pass
every output with small values, and "equal to eager" would reject a more exact output.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

import torch

from ivhl.measure.leaves import leaves_of
from ivhl.records.record import LARGEST_VALUE, OutputError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from torch import Tensor

    from ivhl.records.record import Reference
    from ivhl.workload import Workload

# Largest RMSE of eager, as a fraction of the reference's largest value: a worse eager is no anchor.
EAGER_LIMIT = 0.05
# Unit roundoff of each dtype.
ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
_COMPUTED = {getattr(torch, name) for name in ROUNDOFF}
# Roundings, all in one direction, that a variant may have in addition to its anchor. The anchor may
# be zero by chance: a single number may be exact in any dtype (docs/adr/0016).
ROUNDINGS_BESIDE = 16
# Roundings of a sum of n terms, in any order, in units of sqrt(n): more have a probability of 2 %.
# Source: N. J. Higham and T. Mary, SIAM J. Sci. Comput. 41(5), A2815 (2019), Theorem 2.4, lambda.
ROUNDINGS_OF_SUM = 3.0
# PyTorch sums numbers of 16 bits in float32.
_SUMMED_IN = {"float16": "float32", "bfloat16": "float32"}
# Roundings that a variant in its own precision may have in total.
ROUNDINGS = 64
# Limit for the largest error: this many times eager's largest error, plus this many times the
# allowed RMSE. One wrong element of many hardly changes the RMSE. Of the first 1,200 records that
# passed by RMSE none had more than a fifth of this limit; wrong ones had 0.18 of it (they failed by
# RMSE) or more than 18,000 times it.
LARGEST_BY_EAGER = 3.0
LARGEST_BY_RMSE = 8.0
FEW_ELEMENTS = 1000
# An element that jumped is off by so many times the lower quartile of the others: 20 standard
# deviations of numbers that are only rounded.
FAR_BEYOND = 64.0
FEWEST_OTHERS = 8
# Numbers of each output that a record keeps, to compare what eager code returns at two commits.
VALUES = 8
# PyTorch's limit for the cosine between the outputs of a whole model, eager and compiled
# (``torch/_dynamo/utils.py::same``).
LEAST_COSINE = 0.99
# Of a parameter whose exact gradient vanishes: how many of the largest moves of eager or of the
# reference it may be off.
FREE_MOVES = 3.0


@dataclass(frozen=True, slots=True)
class Scales:
    """What the limits of one output are multiples of, if not of its own largest value.

    Attributes:
        tolerance: For the tolerance and for eager's own error; of a parameter after a step, how far
            the step moved it.
        rounding: For roundings; of a gradient, the largest value of any gradient; of a buffer, that
            of any buffer of its name or of its module.
        free: An RMSE that always passes; of a parameter, how far a step may be off because the
            gradients are rounded, and a few moves where rounding alone decides the direction.
        largest: An error of one element that always passes; of a parameter, a few of its moves:
            optimizers that divide by the size of a gradient magnify the rounding of small ones.
        exact: Whether the values are integers: nothing is allowed.
    """

    tolerance: float
    rounding: float
    free: float = 0.0
    largest: float = 0.0
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Typical:
    """What an output of few elements is like on all draws, not only on the one that is judged.

    A sum of many terms may nearly cancel on one draw, and eager's rounding may be zero by luck.
    Neither says that compiled code must be more exact there than elsewhere.

    Attributes:
        scale: Largest absolute value on any draw; 0 for gradients and state, which have scales of
            their own.
        rounding: RMSE by which it moves if each input is rounded once more: its condition.
        error: Eager's largest RMSE on any draw.
    """

    scale: float
    rounding: float
    error: float = 0.0


UNKNOWN = Typical(0.0, 0.0)


def typical_of(values: Sequence[Tensor], moves: Sequence[float], *, own: bool) -> Typical:
    """Return what an output of few elements is like.

    An input beside a jump of the function may cross it when it is rounded. So the median of the
    draws counts, and at most what lets eager be the baseline.

    Args:
        values: Its references on all draws.
        moves: How far it moved on each draw when the inputs were rounded once more.
        own: Whether its largest value is the scale of its limits.
    """
    largest = max(largest_of(value) for value in values)
    known = [move for move in moves if math.isfinite(move)]
    most = EAGER_LIMIT / ROUNDINGS * largest
    return Typical(largest if own else 0.0, min(median(known), most) if known else 0.0)


def count_numbers(inputs: Any) -> int:  # noqa: ANN401  (any pytree)
    """Return how many numbers all tensors of a pytree hold."""
    return sum(tensor.numel() for tensor in leaves_of(inputs).tensors.values())


def distance(actual: Tensor, reference: Tensor) -> tuple[float, float]:
    """Return the largest absolute difference and the root mean square difference.

    Both are infinite if a difference is not finite. Equal infinities do not differ, nor do two NaN.

    Args:
        actual: Any shape, real or complex.
        reference: Same shape, float64 or complex128.

    Raises:
        ValueError: If the shapes differ, or one is complex and the other is not.
    """
    if actual.shape != reference.shape or actual.is_complex() != reference.is_complex():
        raise ValueError(
            f"output has shape {tuple(actual.shape)} {actual.dtype}, the reference has "
            f"{tuple(reference.shape)} {reference.dtype}"
        )
    if _is_same(actual, reference):
        return 0.0, 0.0
    difference = apart(actual, reference)
    if difference.numel() == 0:
        return 0.0, 0.0
    largest = float(difference.max())
    if not math.isfinite(largest):
        return math.inf, math.inf
    return largest, float(difference.square().mean().sqrt())


def _is_same(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors of rounded numbers have the same values, none of them NaN.

    Of the parameters of a model in a forward pass all have: then nothing else is computed of them.
    """
    if not (is_rounded(one) and is_rounded(other)):
        return False
    a, b = _numbers_of(one), _numbers_of(other)
    return a.shape == b.shape and bool((a == b).all())  # promoted one by one, without a wide copy


def apart(one: Tensor, other: Tensor) -> Tensor:
    """Return the absolute differences as ``as_real``: 0 of equal infinities and of two NaN.

    Integers that float64 cannot tell apart differ by 1 at least.
    """
    one, other = one.detach().cpu(), other.detach().cpu()
    a, b = as_real(one), as_real(other)
    off = (a - b).abs()
    if off.numel() and not math.isfinite(off.max()):
        off.masked_fill_((a == b) | (a.isnan() & b.isnan()), 0.0)
    if is_rounded(one) or is_rounded(other):
        return off
    return torch.where(one != other, off.clamp(min=1.0), off)


def largest_of(tensor: Tensor) -> float:
    """Return the largest finite absolute value; 0 if there is none."""
    # A copy of a model's parameters takes longer than their comparison.
    values = _numbers_of(tensor)
    if values.numel():
        largest = max(abs(float(one)) for one in values.aminmax())
        if math.isfinite(largest):
            return largest
        values = values[values.isfinite()].abs()
    return float(values.max()) if values.numel() else 0.0


def values_of(tensor: Tensor) -> tuple[float, ...]:
    """Return up to 8 numbers of a tensor, evenly spaced among those that a record can hold."""
    numbers = _numbers_of(tensor).reshape(-1)
    if not len(numbers):
        return ()
    if not max(abs(float(one)) for one in numbers.aminmax()) <= LARGEST_VALUE:
        numbers = as_real(numbers)  # 16 bits have no such limit
        numbers = numbers[numbers.abs() <= LARGEST_VALUE]
    n = len(numbers)
    k = min(n, VALUES)
    found = (float(numbers[i * (n - 1) // max(k - 1, 1)]) for i in range(k))
    return tuple(one if abs(one) >= 1 / LARGEST_VALUE else 0.0 for one in found)


def is_rounded(tensor: Tensor) -> bool:
    """Return whether a tensor holds numbers that are rounded, which integers are not."""
    return bool(tensor.is_floating_point() or tensor.is_complex())


def how_elements_differ(output: Tensor, reference: Tensor) -> str:
    """Return in how many elements they differ, and of the first one its index and both values.

    Of numbers that are rounded, only elements count that are not finite in one of the two, and not
    equal; empty if there is none.
    """
    # Not every operation has kernels for numbers of 8 bits.
    output, reference = (
        one.detach().cpu().to(torch.float64 if one.is_floating_point() else one.dtype)
        for one in (output, reference)
    )
    differs = output != reference
    if is_rounded(output) or is_rounded(reference):
        differs &= ~(output.isfinite() & reference.isfinite())
        differs &= ~(output.isnan() & reference.isnan())
    unequal = differs.nonzero()
    if not len(unequal):
        return ""
    index = tuple(unequal[0].tolist())
    at = f"at {list(index)} it" if index else "it"
    return (
        f"in {len(unequal)} of {output.numel()} elements: {at} is {output[index].item()!r} "
        f"instead of {reference[index].item()!r}"
    )


def as_real(tensor: Tensor) -> Tensor:
    """Return the tensor as float64; a complex one gets a last axis of real and imaginary part."""
    if tensor.is_complex():
        return torch.view_as_real(tensor.to(torch.complex128).resolve_conj())
    return tensor.to(torch.float64)


def _numbers_of(tensor: Tensor) -> Tensor:
    """Return what ``as_real`` does in the tensor's own precision, if PyTorch computes in that."""
    tensor = tensor.detach().cpu()
    return tensor if tensor.dtype in _COMPUTED else as_real(tensor)


def limits_of_precision(
    tensors: Sequence[Tensor], references: Sequence[Tensor], dtype: str
) -> list[Tensor]:
    """Return the references, with eager's number where both are the same limit of their precision.

    Code that keeps ``torch.finfo(x.dtype).eps``, or fills a mask with its ``min``, has others in
    float64.

    Args:
        tensors: What eager returns in ``dtype``.
        references: What the same code returns in float64.
        dtype: Precision of the workload.
    """
    own, exact = torch.finfo(getattr(torch, dtype)), torch.finfo(torch.float64)
    found = list(references)
    for number, (tensor, reference) in enumerate(zip(tensors, references, strict=False)):
        if not reference.is_floating_point() or tensor.shape != reference.shape or own == exact:
            continue
        if _is_same(tensor, reference):  # two precisions have no limit in common
            continue
        for name in ("eps", "tiny", "max", "min"):
            both = reference == getattr(exact, name)
            if both.any():
                numbers = tensor.detach().to(reference)
                both &= numbers == getattr(own, name)
                found[number] = torch.where(both, numbers, found[number])
    return found


def rounded(references: Mapping[str, Tensor]) -> list[str]:
    """Return path and dtype of each reference in less than float64 or complex128."""
    exact = (torch.float64, torch.complex128)
    return [
        f"{path} to {str(tensor.dtype).removeprefix('torch.')}"
        for path, tensor in references.items()
        if (tensor.is_floating_point() or tensor.is_complex()) and tensor.dtype not in exact
    ]


def factor_for(dtype: str, n_elements: int) -> float:
    """Return the factor between eager's RMSE and the allowed one.

    2; or 3 if few elements make the RMSE uncertain, or the dtype has 16 bits.
    """
    return 3.0 if n_elements < FEW_ELEMENTS or dtype in ("float16", "bfloat16") else 2.0


def judge_eager(
    names: Sequence[str], outputs: Sequence[Tensor], references: Sequence[Tensor]
) -> tuple[OutputError, ...]:
    """Return the error of each eager output, without a verdict.

    Raises:
        ValueError: If the number of names, outputs or references differs.
    """
    if not len(names) == len(outputs) == len(references):
        raise ValueError(
            f"outputs names {len(names)} tensors ({', '.join(names)}), eager returned "
            f"{len(outputs)}, the reference {len(references)}"
        )
    errors = []
    for name, output, reference in zip(names, outputs, references, strict=True):
        largest, rmse = distance(output, reference)
        errors.append(
            OutputError(
                output=name,
                scale=largest_of(reference),
                eager_max=finite(largest),
                eager_rmse=finite(rmse),
                compiled_max=None,
                compiled_rmse=None,
                limit_rmse=None,
                passed=None,
                dtype=str(output.dtype).removeprefix("torch."),
                shape=tuple(output.shape),
            )
        )
    return tuple(errors)


def eager_is_sound(
    error: OutputError,
    scales: Scales | None = None,
    *,
    dtype: str = "float32",
    typical: Typical | None = None,
) -> bool:
    """Return whether eager is close enough to the reference to be the baseline."""
    limit = limit_of_eager(error, scales, typical or UNKNOWN, dtype=dtype)
    return error.eager_rmse is not None and error.eager_rmse <= limit


def limit_of_eager(
    error: OutputError,
    scales: Scales | None,
    usual: Typical,
    *,
    dtype: str,
    share: float = EAGER_LIMIT,
) -> float:
    """Return the largest RMSE with which eager can be the baseline.

    Args:
        error: Of one of its outputs.
        scales: See ``Scales``.
        usual: See ``Typical``.
        dtype: Precision of eager.
        share: Fraction of the scale that is allowed.
    """
    limit = share * max(error.scale, usual.scale)
    if scales is not None:
        limit = share * max(scales.tolerance, usual.scale) + scales.free
        limit += ROUNDINGS_BESIDE * ROUNDOFF[dtype] * scales.rounding
    return limit + ROUNDINGS * usual.rounding


def share_of_rounding(dtype: str, n_inputs: int, n_outputs: int) -> float:
    """Return the RMSE that rounding alone may add, as a fraction of the scale.

    An output may be a sum, whose error depends on the order of its terms: eager's pairwise sum of
    16,000 terms is exact to one rounding, a sum with one accumulator to 100. Its terms are not
    known. As many inputs as there are for each output are taken for them.

    Args:
        dtype: Precision in which the variant runs.
        n_inputs: Numbers in all inputs.
        n_outputs: Numbers in the output.
    """
    beside = ROUNDINGS_BESIDE * ROUNDOFF[dtype]
    terms = n_inputs / max(n_outputs, 1)
    return max(
        beside, ROUNDINGS_OF_SUM * math.sqrt(terms) * ROUNDOFF[_SUMMED_IN.get(dtype, dtype)]
    )


def limit_without_jumps(
    error: OutputError,
    output: Tensor,
    reference: Tensor,
    scales: Scales | None = None,
    *,
    dtype: str,
    tolerance: float,
    n_inputs: int = 0,
    typical: Typical | None = None,
) -> float:
    """Return how far an element of eager code may be off before it seems to have jumped.

    That is, if it is off by more than compiled code may always be, and by far more than others; or
    by so much that eager would be no baseline.

    Args:
        error: Of one of its outputs.
        output: The output.
        reference: Its reference.
        scales: See ``Scales``.
        dtype: Precision of eager.
        tolerance: Tolerance of the workload.
        n_inputs: Numbers in all inputs.
        typical: See ``Typical``.
    """
    share = max(EAGER_LIMIT, ROUNDINGS * ROUNDOFF[dtype])
    usual = typical or UNKNOWN
    most = limit_of_eager(error, scales, usual, dtype=dtype, share=share)
    own = scales or Scales(error.scale, error.scale)
    rounding = share_of_rounding(dtype, n_inputs, reference.numel())
    by_tolerance, by_rounding, by_moves = _allowances(own, usual, tolerance, rounding)
    least = LARGEST_BY_RMSE * (by_tolerance + own.free + by_rounding + by_moves)
    if not output.numel() or (error.eager_max is not None and error.eager_max <= least):
        return most + own.largest
    return min(most, max(least, far_beyond(apart(output, reference)))) + own.largest


def far_beyond(off: Tensor) -> float:
    """Return how far an element is off if it is off by far more than the others.

    Args:
        off: How far each one is off, none negative.
    """
    values = off.reshape(-1)
    return FAR_BEYOND * float(values.kthvalue(1 + values.numel() // 4).values)


def smooth_move(moved: Tensor, before: Tensor) -> float:
    """Return the RMSE by which an output moved, without the elements that jumped.

    Raises:
        ValueError: If the shapes differ.
    """
    _, rmse = distance(moved, before)
    if before.numel() < FEWEST_OTHERS or not math.isfinite(rmse):
        return rmse
    off = apart(moved, before)
    near = off[off <= far_beyond(off)]
    return math.sqrt(float(near.square().sum()) / off.numel())


def ceiling_for(dtype: str) -> float:
    """Return the largest allowed RMSE, as a fraction of the scale, of a variant in its own dtype.

    Without it, a variant whose anchor is its own source in that dtype could have any error.
    """
    return min(EAGER_LIMIT, ROUNDINGS * ROUNDOFF[dtype])


def judge_compiled(
    errors: Sequence[OutputError],
    outputs: Sequence[Tensor],
    references: Sequence[Tensor],
    *,
    dtype: str,
    tolerance: float,
    n_inputs: int = 0,
    anchors: Sequence[OutputError] | None = None,
    scales: Sequence[Scales] | None = None,
    typical: Mapping[int, Typical] | None = None,
) -> tuple[OutputError, ...]:
    """Return the errors with those of the variant, its limits and its verdict.

    ``rmse(compiled) <= factor * rmse(eager) + tolerance / 10 * min(scale, 1) + r scale``, where
    ``r`` is ``share_of_rounding``, at least 16 unit roundoffs of the variant's dtype. No element's
    error may exceed three times eager's largest error plus eight times that limit. For an output of
    few elements, scale and eager's error are the largest of all draws, and it may be off by what 64
    roundings of the inputs move it: the draws show only roughly how far one does. Integers must be
    equal; ``jumps`` takes out before what only rounding decides.

    Args:
        errors: Errors of eager, from ``judge_eager``.
        outputs: Outputs of the variant.
        references: References, float64 or complex128.
        dtype: Dtype in which the variant runs.
        tolerance: Tolerance of the workload.
        n_inputs: Numbers in all inputs.
        anchors: Errors of the variant's own source run eagerly in ``dtype``, if that source or dtype
            is not eager's. They replace eager's in the rule, up to ``ceiling_for(dtype) * scale``:
            the anchor of a broken source would let everything pass.
        scales: For each output; ``None`` means that its largest value is the scale of all limits.
        typical: Of outputs of few elements, by their number; rounded in ``dtype``.

    Raises:
        ValueError: If the variant returns another number of tensors or other shapes.
    """
    _refuse_other_number(errors, outputs)
    return tuple(
        _judged(
            *row,
            anchor=anchors[number] if anchors is not None else None,
            own=Scales(row[0].scale, row[0].scale) if scales is None else scales[number],
            usual=(typical or {}).get(number, UNKNOWN),
            dtype=dtype,
            tolerance=tolerance,
            n_inputs=n_inputs,
        )
        for number, row in enumerate(zip(errors, outputs, references, strict=True))
    )


def _allowances(
    own: Scales, usual: Typical, tolerance: float, rounding: float
) -> tuple[float, float, float]:
    """Return the RMSE that is allowed by tolerance, by rounding and by moved inputs."""
    # PyTorch's rule has an absolute tolerance; here a scale below 1 reduces it, because energies of
    # 1e-6 would otherwise pass with any error.
    return (
        tolerance / 10 * min(max(own.tolerance, usual.scale), 1.0),
        rounding * max(own.rounding, usual.scale),
        ROUNDINGS * usual.rounding,
    )


def _judged(
    error: OutputError,
    output: Tensor,
    reference: Tensor,
    *,
    anchor: OutputError | None,
    own: Scales,
    usual: Typical,
    dtype: str,
    tolerance: float,
    n_inputs: int,
) -> OutputError:
    """Return the error of one output with that of the variant, its limits and its verdict."""
    limit = limit_max = 0.0
    if is_rounded(output) and not own.exact:
        anchored = anchor or error
        base = anchored.eager_rmse or 0.0
        if anchor is None:
            base = max(base, usual.error)
        rounding = share_of_rounding(dtype, n_inputs, reference.numel())
        by_tolerance, by_rounding, by_moves = _allowances(own, usual, tolerance, rounding)
        limit = factor_for(dtype, reference.numel()) * base + own.free
        limit = limit + by_tolerance + by_rounding + by_moves
        if anchor is not None:
            ceiling = ceiling_for(dtype) * max(error.scale, usual.scale)
            # Without a finite anchor, only the ceiling applies.
            limit = ceiling if anchor.eager_rmse is None else min(limit, ceiling)
        limit_max = LARGEST_BY_EAGER * (anchored.eager_max or 0.0) + LARGEST_BY_RMSE * limit
        limit_max += own.largest
    largest, rmse = distance(output, reference)
    passed = rmse <= limit and largest <= limit_max
    found = _with_variant(error, largest, rmse, (limit, limit_max), passed=passed)
    return replace(found, anchor_rmse=anchor.eager_rmse if anchor else None)


def _refuse_other_number(errors: Sequence[OutputError], outputs: Sequence[Tensor]) -> None:
    if len(outputs) != len(errors):
        raise ValueError(f"compiled returned {len(outputs)} tensors, eager {len(errors)}")


def _with_variant(
    error: OutputError, largest: float, rmse: float, limits: tuple[float, float], *, passed: bool
) -> OutputError:
    """Return the error of eager with that of the variant."""
    return replace(
        error,
        compiled_max=finite(largest),
        compiled_rmse=finite(rmse),
        limit_rmse=finite(limits[0]),
        limit_max=finite(limits[1]),
        passed=passed,
    )


def judge_by_eager(
    errors: Sequence[OutputError],
    outputs: Sequence[Tensor],
    references: Sequence[Tensor],
    *,
    rule: Reference,
    tolerance: float,
    scales: Sequence[Scales] | None = None,
    typical: Mapping[int, Typical] | None = None,
) -> tuple[OutputError, ...]:
    """Return the errors of the variant against eager's own outputs, by a rule of PyTorch's.

    ``tolerance``: ``torch.allclose`` with the tolerance as relative one; the absolute one is the
    tolerance, and a scale below 1 reduces it, at most to 16 roundings. ``cosine``: the cosine of the
    angle between both is at least ``LEAST_COSINE``. Integers must be equal.

    Args:
        errors: Errors of eager, from ``judge_eager``.
        outputs: Outputs of the variant.
        references: Eager's outputs, in float64.
        rule: ``tolerance`` or ``cosine``.
        tolerance: Tolerance of the workload.
        scales: As in ``judge_compiled``; the one for roundings reduces the tolerance, so a gradient
            that is noise beside the others may have any value of that size.
        typical: As in ``judge_compiled``.

    Raises:
        ValueError: If the variant returns another number of tensors or other shapes.
    """
    _refuse_other_number(errors, outputs)
    judged = []
    for number, (error, output, reference) in enumerate(
        zip(errors, outputs, references, strict=True)
    ):
        largest, rmse = distance(output, reference)
        own = Scales(error.scale, error.scale) if scales is None else scales[number]
        share = max(tolerance, ROUNDINGS_BESIDE * ROUNDOFF.get(error.dtype or "", 0.0))
        scale = max(own.rounding, (typical or {}).get(number, UNKNOWN).scale)
        absolute = min(tolerance, share * scale)
        limit, cosine = absolute + tolerance * error.scale, None
        limits = max(limit, own.free), max(limit, own.largest)
        a, b = as_real(output.detach().cpu()), as_real(reference.detach().cpu())
        if not is_rounded(output):
            passed, limits = largest == 0.0, (0.0, 0.0)
        elif rule == "tolerance":
            passed = torch.allclose(a, b, atol=absolute, rtol=tolerance, equal_nan=True)
            passed |= rmse <= own.free and largest <= own.largest
        else:
            finite_in_both = a.isfinite() & b.isfinite()
            cosine = cosine_of(a[finite_in_both], b[finite_in_both])
            passed, limits = cosine >= LEAST_COSINE, (math.inf, math.inf)
        passed = bool(passed) and math.isfinite(rmse)
        found = _with_variant(error, largest, rmse, limits, passed=passed)
        judged.append(replace(found, cosine=cosine))
    return tuple(judged)


def cosine_of(a: Tensor, b: Tensor) -> float:
    """Return the cosine of the angle between two tensors; 1 if both are zero."""
    one, other = a.reshape(-1), b.reshape(-1)
    product = float(one.norm() * other.norm())
    if product == 0.0:
        return float(float(one.norm()) == float(other.norm()))
    return float(one @ other) / product


def worse(one: Sequence[OutputError], other: Sequence[OutputError]) -> tuple[OutputError, ...]:
    """Return, for each output, the error nearer to its limit."""
    found = {error.output: error for error in one}
    for error in other:
        known = found.setdefault(error.output, error)
        found[error.output] = max(known, error, key=share_of_limit)
    return tuple(found.values())


def share_of_limit(error: OutputError) -> float:
    """Return how near the variant's error came to its limit; 1 is at it."""
    if error.compiled_rmse is None or error.compiled_max is None:
        return math.inf
    if error.cosine is not None:
        return (1.0 - error.cosine) / (1.0 - LEAST_COSINE)
    by_rmse = error.compiled_rmse / error.limit_rmse if error.limit_rmse else 0.0
    by_max = error.compiled_max / error.limit_max if error.limit_max else 0.0
    return max(by_rmse, by_max)


def finite(number: float) -> float | None:
    """Return the number; ``None`` for infinity and NaN, which JSON lacks."""
    return number if math.isfinite(number) else None


def scales_of(
    workload: Workload,
    eager: Mapping[str, Tensor],
    exact: Mapping[str, Tensor],
    start: Mapping[str, Tensor],
) -> list[Scales]:
    """Return the scales of each leaf.

    Args:
        workload: Its precision, and whether the loss is its own.
        eager: What eager returned, by path.
        exact: The reference of each.
        start: The state of the model before the call, by path.
    """
    largest = {path: largest_of(tensor) for path, tensor in exact.items()}
    kinds = _largest_of_kinds(largest, sums_outputs=not workload.loss)
    rounding_of_gradients = ROUNDOFF[workload.dtype] * kinds.get("grad", 0.0)
    gradients = {
        path.removeprefix("grad."): gradient
        for path, gradient in exact.items()
        if path.startswith("grad.")
    }
    noise = {
        name: _share_of_noise(eager[f"grad.{name}"], gradient, ROUNDINGS * rounding_of_gradients)
        for name, gradient in gradients.items()
    }
    buffers = _largest_buffers(exact, noise, largest)
    scales = []
    for path, reference in exact.items():
        kind, scale, moved = _kind(path), largest[path], 0.0
        rounding = scale if kind in ("output", "model") else kinds[kind]
        tolerance, free = kinds["loss"] if kind == "loss" else scale, 0.0
        parameter = path.removeprefix(f"{kind}.")
        share = noise.get(parameter)
        if kind == "model" and share is None:
            rounding = max(buffers[place] for place in _beside(path))
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
        scales.append(Scales(tolerance, rounding, free, moved, exact=not is_rounded(eager[path])))
    return scales


def _largest_of_kinds(largest: Mapping[str, float], *, sums_outputs: bool) -> dict[str, float]:
    """Return the largest value of each kind of leaf.

    Args:
        largest: That of each leaf, by path.
        sums_outputs: Whether the loss is the harness's own, which sums outputs with random signs.
            Where they cancel, their errors do not.
    """
    kinds: dict[str, float] = {}
    for path, value in largest.items():
        kinds[_kind(path)] = max(kinds.get(_kind(path), 0.0), value)
    if sums_outputs and "loss" in kinds:
        kinds["loss"] = max(kinds["loss"], kinds.get("output", 0.0))
    return kinds


def _kind(path: str) -> str:
    """Return ``output``, ``loss``, ``grad``, ``model`` or, e.g., ``optimizer.exp_avg``."""
    parts = path.split(".")
    if parts[0] == "optimizer":
        return ".".join(parts[:2])
    return parts[0].partition("[")[0]


def _largest_buffers(
    exact: Mapping[str, Tensor], gradients: Collection[str], largest: Mapping[str, float]
) -> dict[str, float]:
    """Return the largest value of all buffers of a name, such as ``running_mean``, or of a module.

    A mean of terms that cancel, as that of a second normalization, is exactly 0 in float64.
    """
    found: dict[str, float] = defaultdict(float)
    for path, tensor in exact.items():
        is_buffer = _kind(path) == "model" and path.removeprefix("model.") not in gradients
        for place in _beside(path) if is_buffer and is_rounded(tensor) else ():
            found[place] = max(found[place], largest[path])
    return found


def _beside(path: str) -> tuple[str, str]:
    """Return the module and the name of a buffer."""
    module, _, name = path.rpartition(".")
    return f"{module}.", name


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
    if now.shape != before.shape or _is_same(now, before):
        return 0.0
    return largest_of(apart(now, before))
