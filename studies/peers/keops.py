"""Field and vortices with KeOps, which does not store the tensor of all pairs either.

The complex exponential of KeOps is not faster than a cosine and a sine, so both sums compute real
and imaginary part together. KeOps documents such sums with ``LazyTensor``; ``Genred`` compiles the
formula once and avoids the Python overhead of a ``LazyTensor`` at each call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import torch
from pykeops.torch import Genred, LazyTensor

from ivhl.ops.field import MIN_DISTANCE

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[[], torch.Tensor]

T = TypeVar("T")

CORE_RADIUS = 0.1  # the default of compute_vortex_field
FARTHEST = 3e38  # KeOps clamps on both sides

_DISTANCE = "Sqrt(Sum(Square(X-Y)))"
_CLAMPED = f"Clamp({_DISTANCE},Low,High)"
_DECAY = f"Exp(Rate*{_DISTANCE})"
_FIELD = (
    f"AutoFactorize(Concat(A/{_CLAMPED}*Cos(K*{_CLAMPED}+P),A/{_CLAMPED}*Sin(K*{_CLAMPED}+P)))"
)
_VORTICES = (
    f"AutoFactorize(Concat(Log((One-{_DECAY})/(One+{_DECAY})),Q*Atan2(Elem(X-Y,1),Elem(X-Y,0))))"
)


def make_field(  # noqa: PLR0917  (inputs of a workload come in order)
    points: torch.Tensor,
    sources: torch.Tensor,
    frequencies: torch.Tensor,
    amplitudes: torch.Tensor,
    phases: torch.Tensor,
    t: torch.Tensor,
) -> Call:
    """Return the field as a sum of ``LazyTensor``; inputs of the field workload."""

    def call() -> torch.Tensor:
        x, y = LazyTensor(points[:, None, :]), LazyTensor(sources[None, :, :])
        own = LazyTensor((frequencies * t + phases)[None, :, None])
        d = ((x - y) ** 2).sum(-1).sqrt().clamp(MIN_DISTANCE, FARTHEST)
        weight = LazyTensor(amplitudes[None, :, None]) / d
        angle = d + own
        planes = (weight * angle.cos()).concat(weight * angle.sin()).sum(dim=1)
        return torch.view_as_complex(planes)

    return _loaded(call)


def make_field_genred(  # noqa: PLR0917  (inputs of a workload come in order)
    points: torch.Tensor,
    sources: torch.Tensor,
    frequencies: torch.Tensor,
    amplitudes: torch.Tensor,
    phases: torch.Tensor,
    t: torch.Tensor,
) -> Call:
    """Return the field as one ``Genred``; inputs of the field workload."""
    pairs = ["X=Vi(3)", "Y=Vj(3)", "A=Vj(1)", "P=Vj(1)", "K=Pm(1)", "Low=Pm(1)", "High=Pm(1)"]
    formula = Genred(_FIELD, pairs, reduction_op="Sum", axis=1)
    numbers = [points.new_tensor([value]) for value in (1.0, MIN_DISTANCE, FARTHEST)]

    def call() -> torch.Tensor:
        own = (frequencies * t + phases)[:, None]
        planes = formula(points, sources, amplitudes[:, None], own, *numbers)
        return torch.view_as_complex(planes)

    return _loaded(call)


def make_vortices(points: torch.Tensor, centers: torch.Tensor, charges: torch.Tensor) -> Call:
    """Return the vortices as sums of ``LazyTensor``; inputs of the vortex workload."""

    def call() -> torch.Tensor:
        away = LazyTensor(points[:, None, :]) - LazyTensor(centers[None, :, :])
        decay = ((-2.0 / CORE_RADIUS) * (away**2).sum(-1).sqrt()).exp()
        logarithm = ((1.0 - decay) / (1.0 + decay)).log()  # of tanh
        angle = LazyTensor(charges[None, :, None]) * away[1].atan2(away[0])
        return _from_logarithms(logarithm.concat(angle).sum(dim=1))

    return _loaded(call)


def make_vortices_genred(
    points: torch.Tensor, centers: torch.Tensor, charges: torch.Tensor
) -> Call:
    """Return the vortices as one ``Genred``; inputs of the vortex workload."""
    pairs = ["X=Vi(3)", "Y=Vj(3)", "Q=Vj(1)", "One=Pm(1)", "Rate=Pm(1)"]
    formula = Genred(_VORTICES, pairs, reduction_op="Sum", axis=1)
    numbers = [points.new_tensor([value]) for value in (1.0, -2.0 / CORE_RADIUS)]

    def call() -> torch.Tensor:
        return _from_logarithms(formula(points, centers, charges[:, None], *numbers))

    return _loaded(call)


def _from_logarithms(sums: torch.Tensor) -> torch.Tensor:
    return torch.polar(sums[:, 0].exp(), sums[:, 1])


def _loaded(call: Callable[[], T]) -> Callable[[], T]:
    """Return the call after its first run, which compiles and loads a library.

    With GCC before 13, loading a library linked with ``-ffast-math`` disables denormal numbers in
    the whole process. This enables them again.
    """
    try:
        call()
    finally:
        torch.set_flush_denormal(False)
    return call
