"""Hot paths: ordinary code that ``ivhl.hotpath`` records and compiles, beside ``torch.compile``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.hotpath import mlp, norm_gelu

if TYPE_CHECKING:
    from ivhl.workload import Workload

WORKLOADS: Final[tuple[Workload, ...]] = (
    mlp.WORKLOAD,
    norm_gelu.WORKLOAD,
)
