"""Surgical compilation: transformer layers of which chosen operations are compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.surgical import rope, stack, stack_gradient

if TYPE_CHECKING:
    from ivhl.workload import Workload

WORKLOADS: Final[tuple[Workload, ...]] = (
    rope.WORKLOAD,
    stack.WORKLOAD,
    stack_gradient.WORKLOAD,
)
