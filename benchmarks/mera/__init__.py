"""Tensor networks: MERA, contraction along a path, entanglement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.mera import (
    entanglement_entropy,
    mera_ascend,
    mera_coarse_grain,
    mera_descend,
    mera_layer,
    mera_refine,
    tensor_network,
)

if TYPE_CHECKING:
    from ivhl.workload import Workload

WORKLOADS: Final[tuple[Workload, ...]] = (
    mera_layer.WORKLOAD,
    mera_coarse_grain.WORKLOAD,
    mera_refine.WORKLOAD,
    mera_ascend.WORKLOAD,
    mera_descend.WORKLOAD,
    tensor_network.WORKLOAD,
    entanglement_entropy.WORKLOAD,
)
