"""procrastinate as it comes: its worker, restarted when it ends, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from studies.queues import on_procrastinate
from studies.queues.on_procrastinate import CASES, install, submit

if TYPE_CHECKING:
    from studies.queues.worker import Worker

__all__ = ["CASES", "install", "submit", "work"]


async def work(worker: Worker, url: str) -> None:
    """Work until SIGTERM; a job whose worker died stays claimed."""
    await on_procrastinate.work(worker, url, filled=False)
