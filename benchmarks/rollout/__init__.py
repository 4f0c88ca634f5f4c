"""Neural-operator rollout: a convolutional operator, applied again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.rollout import rollout_group, rollout_instance

if TYPE_CHECKING:
    from ivhl.workload import Workload

WORKLOADS: Final[tuple[Workload, ...]] = (
    rollout_instance.WORKLOAD,
    rollout_group.WORKLOAD,
)
