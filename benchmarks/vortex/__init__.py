"""The field of quantised vortices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.vortex import (
    vortex_field,
)

if TYPE_CHECKING:
    from ivhl.workload import Workload

WORKLOADS: Final[tuple[Workload, ...]] = (vortex_field.WORKLOAD,)
