"""What the parent asks of a child; a module of its own, so that the parent needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ivhl.workload import Mode

Clock = Literal["cpu", "wall", "cuda_event"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One process of a case; JSON on its command line.

    Attributes:
        stage: ``seed`` only compiles the throwaway, and fills a cache that all cases start from;
            ``compile`` compiles the case and judges it; ``time`` measures it with the cache that
            was left on disk; ``eager`` times eager alone, where nothing could be compiled.
        process: Number among the processes of its stage.
        seed: Of the order in which arms take turns.
        secret: Of the draws that are used once, and that nobody can know before.
        references: File that keeps the references from process to process.
        turns: File by which the processes of a case take turns; empty where there is one at a time.
        parent: Process that the child must not outlive.
        mode: Mode that was asked for in place of the declared ones; the variant's name has it.
        skip_isa_check: Whether Inductor is told that the vector instructions work.
    """

    workloads: str
    workload: str
    size: str
    variant: str
    device: str
    threads: int
    stage: str
    journal: str
    parent: int
    skip_isa_check: bool
    process: int = 0
    seed: int = 0
    secret: int = 0
    references: str = ""
    turns: str = ""
    mode: Mode | None = None


def choose_clock(device: str, threads: int) -> Clock:
    """Return what time means here.

    CPU time of the process where one thread does all the work: a neighbour's load does not count in
    it (docs/measuring.md has figures). It would add up
    several threads, so with more than one, elapsed time is the measure.
    """
    if device == "cuda":
        return "cuda_event"
    return "cpu" if threads == 1 else "wall"
