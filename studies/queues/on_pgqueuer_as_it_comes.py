"""PgQueuer as it comes: its application and supervisor, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from studies.queues import on_pgqueuer
from studies.queues.on_pgqueuer import CASES, install, submit

if TYPE_CHECKING:
    from studies.queues.worker import Worker

__all__ = ["CASES", "install", "submit", "work"]


async def work(worker: Worker, url: str) -> None:
    """Work until SIGTERM; a job is tried as often as workers die of it."""
    await on_pgqueuer.work(worker, url, filled=False)
