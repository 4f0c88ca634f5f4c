"""Gated recurrent units: a step, a sequence, its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.recurrent import (
    rnn_gru,
    rnn_gru_bf16,
    rnn_gru_gradient,
    rnn_step_gru,
)

if TYPE_CHECKING:
    from ivhl.workload import Workload

WORKLOADS: Final[tuple[Workload, ...]] = (
    rnn_step_gru.WORKLOAD,
    rnn_gru.WORKLOAD,
    rnn_gru_gradient.WORKLOAD,
    rnn_gru_bf16.WORKLOAD,
)
