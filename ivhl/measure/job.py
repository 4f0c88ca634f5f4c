"""The order from the parent to a child; in its own module, so that the parent needs no torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ivhl.measure.effort import Effort, read_effort
from ivhl.workload import load_workloads, select_cases

if TYPE_CHECKING:
    from ivhl.workload import Case, Mode

Clock = Literal["cpu", "wall", "cuda_event"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One process of a case; JSON on its command line.

    Attributes:
        project: Name of the project under test.
        stage: ``seed`` only compiles the throwaway, and fills a cache that all cases start from;
            ``import`` only imports the case's modules; ``compile`` compiles the case and judges it;
            ``time`` measures it with the cache that was left on disk; ``eager`` times eager alone,
            where nothing could be compiled; ``size`` calls, in a process that has compiled the case,
            the same code at another size.
        process: Number among the processes of its stage.
        seed: Seed of the order of the arms.
        secret: Seed of the draws that are used once, which no code can know in advance.
        references: File with the references, shared by the processes of a case; empty if there is
            only one.
        turns: File of the turns (``ivhl.measure.turns``); empty if processes run one at a time.
        mode: Mode requested in place of the declared ones; the variant's name includes it.
        version: Version of the workload that the parent expects.
    """

    project: str
    workloads: str
    workload: str
    size: str
    variant: str
    effort: Effort
    stage: str
    journal: str
    process: int = 0
    seed: int = 0
    secret: int = 0
    references: str = ""
    turns: str = ""
    mode: Mode | None = None
    version: int | None = None


def read_job(text: str) -> Job:
    """Return the job that a parent has written as JSON."""
    data = json.loads(text)
    return Job(**data | {"effort": read_effort(data["effort"])})


def choose_clock(device: str, threads: int) -> Clock:
    """Return the clock that measures calls.

    With one thread, CPU time of the process: it excludes other load on the machine
    (docs/measuring.md has figures). With several threads, elapsed time, because CPU time adds up
    over threads; likewise on a device without CUDA's events.
    """
    if device == "cuda":
        return "cuda_event"
    return "cpu" if threads == 1 and device == "cpu" else "wall"


def case_of(job: Job) -> Case:
    """Return the case of a job, from what this process finds declared.

    Raises:
        UnknownNameError: If its workload, size or variant is not declared here.
    """
    (case,) = select_cases(
        load_workloads(job.workloads),
        names=[job.workload],
        size=job.size,
        variants=[job.variant],
        device=job.effort.device,
        mode=job.mode,
    )
    return case
