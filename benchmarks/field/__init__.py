"""The complex field: superposition of waves, its gradient, intensity, norm and phase gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.field import (
    field_gradient,
    field_superposition,
    intensity,
    normalize_field,
    phase_gradient,
)

if TYPE_CHECKING:
    from ivhl.workload import Workload

WORKLOADS: Final[tuple[Workload, ...]] = (
    field_superposition.WORKLOAD,
    field_gradient.WORKLOAD,
    intensity.WORKLOAD,
    normalize_field.WORKLOAD,
    phase_gradient.WORKLOAD,
)
