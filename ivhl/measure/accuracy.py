"""Compute errors against the float64 reference, and judge them.

The rule is that of PyTorch's own benchmarks (``torch/_dynamo/utils.py::same``): compiled code may
have eager's error times a small factor, plus a small tolerance. An absolute tolerance would pass
every output with small values, and "equal to eager" would reject a more exact output.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_flatten

from ivhl.records.record import OutputError

if TYPE_CHECKING:
    from collections.abc import Sequence

# Largest RMSE of eager, as a fraction of the reference's largest value: a worse eager is no anchor.
EAGER_LIMIT = 0.05
# Unit roundoff of each dtype.
ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
# Roundings, all in one direction, that a variant may have in addition to its anchor. The anchor may
# be zero by chance: a single number may be exact in any dtype (docs/adr/0016).
ROUNDINGS_BESIDE = 16
# Roundings that a variant in its own precision may have in total.
ROUNDINGS = 64
# Limit for the largest error: this many times eager's largest error, plus this many times the
# allowed RMSE. One wrong element of many hardly changes the RMSE. Of the first 1,200 records that
# passed by RMSE none had more than a fifth of this limit; wrong ones had 0.18 of it (they failed by
# RMSE) or more than 18,000 times it.
LARGEST_BY_EAGER = 3.0
LARGEST_BY_RMSE = 8.0
FEW_ELEMENTS = 1000


def flatten(outputs: Any) -> list[torch.Tensor]:  # noqa: ANN401  (any pytree)
    """Return all tensors of a pytree, in order.

    Raises:
        ValueError: If it has no tensor.
    """
    tensors = [leaf for leaf in tree_flatten(outputs)[0] if isinstance(leaf, torch.Tensor)]
    if not tensors:
        raise ValueError(f"no tensor among the outputs (got {type(outputs).__name__})")
    return tensors


def distance(actual: torch.Tensor, reference: torch.Tensor) -> tuple[float, float]:
    """Return the largest absolute difference and the root mean square difference.

    Both are infinite if a difference is not finite.

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
    a, b = as_real(actual.detach().cpu()), as_real(reference.detach().cpu())
    if a.numel() == 0:
        return 0.0, 0.0
    difference = (a - b).abs()
    if not bool(torch.isfinite(difference).all()):
        return math.inf, math.inf
    return float(difference.max()), float(difference.square().mean().sqrt())


def as_real(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor as float64; a complex one gets a last axis of real and imaginary part."""
    if tensor.is_complex():
        return torch.view_as_real(tensor.to(torch.complex128).resolve_conj())
    return tensor.to(torch.float64)


def factor_for(dtype: str, n_elements: int) -> float:
    """Return the factor between eager's RMSE and the allowed one.

    2; or 3 if few elements make the RMSE uncertain, or the dtype has 16 bits.
    """
    return 3.0 if n_elements < FEW_ELEMENTS or dtype in ("float16", "bfloat16") else 2.0


def judge_eager(
    names: Sequence[str], outputs: Sequence[torch.Tensor], references: Sequence[torch.Tensor]
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
        real = as_real(reference.detach().cpu())
        errors.append(
            OutputError(
                output=name,
                scale=float(real.abs().max()) if real.numel() else 0.0,
                eager_max=finite(largest),
                eager_rmse=finite(rmse),
                compiled_max=None,
                compiled_rmse=None,
                limit_rmse=None,
                passed=None,
            )
        )
    return tuple(errors)


def eager_is_sound(error: OutputError) -> bool:
    """Return whether eager is close enough to the reference to be the baseline."""
    return error.eager_rmse is not None and error.eager_rmse <= EAGER_LIMIT * error.scale


def ceiling_for(dtype: str) -> float:
    """Return the largest allowed RMSE, as a fraction of the scale, of a variant in its own dtype.

    Without it, a variant whose anchor is its own source in that dtype could have any error.
    """
    return min(EAGER_LIMIT, ROUNDINGS * ROUNDOFF[dtype])


def judge_compiled(
    errors: Sequence[OutputError],
    outputs: Sequence[torch.Tensor],
    references: Sequence[torch.Tensor],
    *,
    dtype: str,
    tolerance: float,
    anchors: Sequence[OutputError] | None = None,
) -> tuple[OutputError, ...]:
    """Return the errors with those of the variant, its limits and its verdict.

    ``rmse(compiled) <= factor * rmse(eager) + tolerance / 10 * min(scale, 1) + 16 u scale``, where
    ``u`` is the unit roundoff of the variant's dtype. PyTorch's rule has an absolute tolerance; here
    a scale below 1 reduces it, because energies of 1e-6 would otherwise pass with any error. No
    element's error may exceed three times eager's largest error plus eight times that limit.

    Args:
        errors: Errors of eager, from ``judge_eager``.
        outputs: Outputs of the variant.
        references: References, float64 or complex128.
        dtype: Dtype in which the variant runs.
        tolerance: Tolerance of the workload.
        anchors: Errors of the variant's own source run eagerly in ``dtype``, if that source or dtype
            is not eager's. They replace eager's in the rule, up to ``ceiling_for(dtype) * scale``:
            the anchor of a broken source would let everything pass.

    Raises:
        ValueError: If the variant returns another number of tensors or other shapes.
    """
    if len(outputs) != len(errors):
        raise ValueError(f"compiled returned {len(outputs)} tensors, eager {len(errors)}")
    judged = []
    for number, (error, output, reference) in enumerate(
        zip(errors, outputs, references, strict=True)
    ):
        largest, rmse = distance(output, reference)
        anchored = error if anchors is None else anchors[number]
        anchor = anchored.eager_rmse
        limit = factor_for(dtype, reference.numel()) * (anchor or 0.0)
        limit += tolerance / 10 * min(error.scale, 1.0)
        limit += ROUNDINGS_BESIDE * ROUNDOFF[dtype] * error.scale
        if anchors is not None:
            ceiling = ceiling_for(dtype) * error.scale
            # Without a finite anchor, only the ceiling applies.
            limit = ceiling if anchor is None else min(limit, ceiling)
        limit_max = LARGEST_BY_EAGER * (anchored.eager_max or 0.0) + LARGEST_BY_RMSE * limit
        judged.append(
            replace(
                error,
                compiled_max=finite(largest),
                compiled_rmse=finite(rmse),
                limit_rmse=limit,
                limit_max=limit_max,
                passed=rmse <= limit and largest <= limit_max,
                anchor_rmse=None if anchors is None else anchor,
            )
        )
    return tuple(judged)


def worse(one: Sequence[OutputError], other: Sequence[OutputError]) -> tuple[OutputError, ...]:
    """Return, for each output, the error nearer to its limit; ``other`` if ``one`` is empty."""
    if not one:
        return tuple(other)
    return tuple(max(pair, key=_share_of_limit) for pair in zip(one, other, strict=True))


def _share_of_limit(error: OutputError) -> float:
    if error.compiled_rmse is None or error.compiled_max is None:
        return math.inf
    by_rmse = error.compiled_rmse / error.limit_rmse if error.limit_rmse else 0.0
    by_max = error.compiled_max / error.limit_max if error.limit_max else 0.0
    return max(by_rmse, by_max)


def finite(number: float) -> float | None:
    """Return the number; ``None`` for infinity and NaN, which JSON lacks."""
    return number if math.isfinite(number) else None
