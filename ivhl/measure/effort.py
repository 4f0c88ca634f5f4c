"""How cases are measured: one value, from the command line to the process of a case."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

DEADLINE_S = 600.0
# Processes that time a case.
PROCESSES = 2
# PyTorch 2.15.0 dies of a signal with 99,999 threads, and runs with 1,024 on two CPUs: a number that
# only a slip can mean must not become a record of a crash.
MOST_THREADS = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """How to measure, whatever is measured.

    Attributes:
        device: Device type, ``cpu`` or ``cuda``.
        threads: CPU threads.
        force: Measure again cases that have a record made in the same way.
        cold: Ignore the compile cache of earlier runs.
        deadline_s: Time limit in wall seconds for each process of a case.
        memory_limit: Bytes; ``None`` means 90 % of the machine's.
        processes: Processes that time a case, one after the other; 0 asks whether it works, and
            not how fast: the process that compiles it calls it, and nothing is timed.
        flags: Settings of the compiler, as ``ivhl.measure.flags`` writes them.
    """

    device: str = "cpu"
    threads: int = 1
    force: bool = False
    cold: bool = False
    deadline_s: float = DEADLINE_S
    memory_limit: int | None = None
    processes: int = PROCESSES
    flags: tuple[str, ...] = ()

    @property
    def is_timed(self) -> bool:
        """Whether cases are timed, and not only called."""
        return self.processes > 0

    def options(self) -> tuple[str, ...]:
        """Return the options of ``ivhl bench`` that repeat what is not the default."""
        words = []
        if self.threads != 1:
            words.append(f"--threads {self.threads}")
        if self.device != "cpu":
            words.append(f"--device {self.device}")
        if self.deadline_s != DEADLINE_S:
            words.append(f"--deadline {self.deadline_s:g}")
        if self.memory_limit is not None:
            words.append(f"--memory-limit {self.memory_limit / 2**30:g}")
        if self.processes != PROCESSES:
            words.append(f"--processes {self.processes}")
        words += [f"--flag {shlex.quote(flag)}" for flag in self.flags]
        return tuple(words)


def read_effort(data: Mapping[str, Any]) -> Effort:
    """Return the effort that was written as JSON."""
    return Effort(**{**data, "flags": tuple(data["flags"])})
