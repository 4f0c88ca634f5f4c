"""What happens to the fleet while its jobs are measured."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from studies.queues.fleet import LEASE_S, Fleet

if TYPE_CHECKING:
    import random

Happens = Callable[[Fleet, "random.Random"], None]


@dataclass(frozen=True)
class FaultPlan:
    """What happens, how often, to how many jobs of which length."""

    happens: Happens
    times: int
    jobs: int
    ms: float
    poison: int = 0
    linked: bool = False
    coordinators: int = 1  # that submit the same plan


def _nothing(fleet: Fleet, _chance: random.Random) -> None:
    """Leave the fleet alone: its jobs or who submits them are the fault."""
    fleet.wait()


def _kill_worker(fleet: Fleet, chance: random.Random) -> None:
    if name := fleet.measuring():
        fleet.signal(name, signal.SIGKILL)
        fleet.faults += 1
    fleet.wait(chance.uniform(0.5, 1.5))


def _kill_database(fleet: Fleet, chance: random.Random) -> None:
    if fleet.measuring():
        fleet.database.kill()
        fleet.faults += 1
        fleet.wait(3)
        fleet.database.start()
    fleet.wait(chance.uniform(2, 4))


def _freeze(fleet: Fleet, chance: random.Random) -> None:
    if name := fleet.measuring():
        fleet.signal(name, signal.SIGSTOP)
        fleet.faults += 1
        fleet.wait(2.5 * LEASE_S)
        fleet.signal(name, signal.SIGCONT)
    fleet.wait(chance.uniform(0.5, 1.5))


def _cut(fleet: Fleet, chance: random.Random) -> None:
    if fleet.measuring():
        fleet.database.cut()
        fleet.faults += 1
    fleet.wait(chance.uniform(0.3, 1.0))


def _drop(fleet: Fleet, chance: random.Random) -> None:
    if fleet.link and fleet.measuring():
        fleet.link.drop()
        fleet.faults += 1
    fleet.wait(chance.uniform(0.3, 1.0))


def _hang(fleet: Fleet, chance: random.Random) -> None:
    if fleet.link and fleet.measuring():
        hanging = threading.Thread(target=fleet.link.hang, args=(2 * LEASE_S,))
        hanging.start()
        fleet.faults += 1
        while hanging.is_alive():
            fleet.wait(0.1)
    fleet.wait(chance.uniform(0.5, 1.5))


def _drain(fleet: Fleet, chance: random.Random) -> None:
    if name := fleet.measuring():
        fleet.end(name)
        fleet.faults += 1
        fleet.start(name)
    fleet.wait(chance.uniform(0.5, 1.5))


# Workers are killed while the clocks of two are five minutes off.
CLOCKS: Final = {"worker-0": "+300s", "worker-3": "-300s"}
FAULTS: Final = {
    "none": FaultPlan(_nothing, times=1, jobs=500, ms=10),
    "kill -9 of a worker": FaultPlan(_kill_worker, times=20, jobs=500, ms=100),
    "kill -9 of the database": FaultPlan(_kill_database, times=3, jobs=200, ms=100),
    "SIGSTOP beyond the lease": FaultPlan(_freeze, times=3, jobs=500, ms=100),
    "connections cut by the server": FaultPlan(_cut, times=10, jobs=200, ms=100),
    "link drops": FaultPlan(_drop, times=10, jobs=200, ms=100, linked=True),
    "link hangs beyond the lease": FaultPlan(_hang, times=2, jobs=200, ms=100, linked=True),
    "clocks 5 minutes off": FaultPlan(_kill_worker, times=4, jobs=150, ms=100),
    "poisoned jobs": FaultPlan(_nothing, times=1, jobs=100, ms=20, poison=3),
    "SIGTERM": FaultPlan(_drain, times=8, jobs=200, ms=100),
    "three coordinators": FaultPlan(_nothing, times=1, jobs=100, ms=20, coordinators=3),
}
