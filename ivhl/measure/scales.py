"""What the limits of each output, gradient and parameter of a model are multiples of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ivhl.measure.accuracy import (
    FEW_ELEMENTS,
    ROUNDINGS,
    ROUNDINGS_BESIDE,
    ROUNDOFF,
    Scales,
    apart,
    as_real,
    is_rounded,
    largest_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from ivhl.workload import Workload

# Of a parameter whose exact gradient vanishes: how many of the largest moves of eager or of the
# reference it may be off.
FREE_MOVES = 3.0


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
    scales = []
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
