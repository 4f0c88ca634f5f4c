"""A large fleet, simulated: ``python -m studies.queues.simulation``.

1,000 libraries in 60 cells on 20 machines of three kinds. What a job takes is drawn from the records
of the observatory; how often machines come, go and die is assumed (`KINDS`).
"""

from __future__ import annotations

import heapq
import random
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from ivhl.fleet.database import LEASE_S
from ivhl.fleet.queue import MOST_TRIES
from ivhl.observatory.record import read_observed

_ROOT: Final = Path(__file__).parents[2]
_LIBRARIES: Final = 1000
_CELLS: Final = 60
_COLUMNS: Final = 4  # cells of the newest release, one for each Python: they are queued first
_HOUR: Final = 3600.0
_SEED: Final = 53


@dataclass(frozen=True)
class MachineKind:
    """Machines that are alike.

    Attributes:
        number: How many there are.
        places: Jobs at a time.
        speed: Of a core, over the one that made the records.
        stays_h: Mean hours until a place leaves after its job, and until it comes again.
        dies_h: Mean hours between deaths of a place with its job; it is back after a minute.
    """

    number: int
    places: int
    speed: float
    stays_h: tuple[float, float]
    dies_h: float


KINDS: Final = {
    "server": MachineKind(4, 16, 1.5, (1e9, 1.0), 500.0),
    "old Xeon": MachineKind(8, 4, 0.7, (1e9, 1.0), 200.0),
    # A lid that is closed is a death: the jobs are measured elsewhere.
    "laptop": MachineKind(8, 4, 1.2, (3.0, 9.0), 6.0),
}


@dataclass
class FleetHistory:
    """What happened."""

    done_s: dict[int, float] = field(default_factory=dict)  # cell -> when its last job was done
    spent_s: float = 0.0  # of cores
    wasted_s: float = 0.0
    aside: int = 0
    places_s: float = 0.0


def job_seconds() -> list[float]:
    """Return the CPU seconds of each library in each cell that has records."""
    took: dict[tuple[str, str], float] = defaultdict(float)
    for record in read_observed(_ROOT / "observatory" / "records", print).values():
        took[record.library, record.cell] += record.cpu_s
    return sorted(took.values())


class Simulation:
    """Places of machines that take jobs from one queue.

    Args:
        kinds: The machines.
        lease_s: Seconds after which a job of a dead worker is put back.
    """

    def __init__(self, kinds: dict[str, MachineKind], lease_s: float) -> None:
        self._chance = random.Random(_SEED)  # noqa: S311, not a secret
        self._lease_s = lease_s
        self._places = [kind for kind in kinds.values() for _ in range(kind.number * kind.places)]
        durations = job_seconds()
        # A job is its place in the queue: cells of the newest release first, in each all libraries.
        self._waiting = list(range(_LIBRARIES * _CELLS))
        self._takes = [self._chance.choice(durations) for _ in self._waiting]
        self._remaining = len(self._waiting)
        self._tries: dict[int, int] = defaultdict(int)
        self._running: dict[int, tuple[float, int]] = {}
        self._away: set[int] = set()
        self._events: list[tuple[float, int, str, int, int]] = []
        self._number = 0
        self.fleet = FleetHistory()

    def _push(self, when: float, what: str, place: int, job: int = 0) -> None:
        self._number += 1
        heapq.heappush(self._events, (when, self._number, what, place, job))

    def _after(self, hours: float) -> float:
        return self._chance.expovariate(1 / (hours * _HOUR))

    def run(self) -> FleetHistory:
        """Let it happen until every job is done or set aside."""
        for place, kind in enumerate(self._places):
            self._push(0.0, "free", place)
            self._push(self._after(kind.stays_h[0]), "leave", place)
            self._push(self._after(kind.dies_h), "die", place)
        now = 0.0
        while self._remaining:
            now, _, what, place, job = heapq.heappop(self._events)
            getattr(self, f"_{what}")(now, place, job)
        self.fleet.places_s = now * len(self._places)
        return self.fleet

    def _free(self, now: float, place: int, _: int = 0) -> None:
        if self._waiting and place not in self._away and place not in self._running:
            job = heapq.heappop(self._waiting)
            self._running[place] = (now, job)
            self._push(now + self._takes[job] / self._places[place].speed, "end", place, job)

    def _end(self, now: float, place: int, job: int) -> None:
        since, runs = self._running.get(place, (0.0, -1))
        if runs == job:  # and its worker has not died
            del self._running[place]
            self.fleet.spent_s += now - since
            self.fleet.done_s[job // _LIBRARIES] = now
            self._remaining -= 1
        self._free(now, place)

    def _die(self, now: float, place: int, _: int) -> None:
        self._push(now + self._after(self._places[place].dies_h), "die", place)
        if place in self._running:
            since, job = self._running.pop(place)
            self.fleet.wasted_s += now - since
            self._tries[job] += 1
            self._push(now + self._lease_s, "reap", place, job)
        self._push(now + 60, "free", place)

    def _reap(self, now: float, _: int, job: int) -> None:
        if self._tries[job] >= MOST_TRIES:
            self.fleet.aside += 1
            self._remaining -= 1
        else:
            heapq.heappush(self._waiting, job)
            for place in range(len(self._places)):
                self._free(now, place)

    def _leave(self, now: float, place: int, _: int) -> None:
        self._away.add(place)
        self._push(now + self._after(self._places[place].stays_h[1]), "come", place)

    def _come(self, now: float, place: int, _: int) -> None:
        self._away.discard(place)
        self._push(now + self._after(self._places[place].stays_h[0]), "leave", place)
        self._free(now, place)


def main() -> None:
    """Print a row for each fleet."""
    usual = KINDS
    fleets = {
        "20 machines": (usual, LEASE_S),
        "without laptops": ({n: k for n, k in usual.items() if n != "laptop"}, LEASE_S),
        "laptops alone": ({"laptop": usual["laptop"]}, LEASE_S),
        "deaths ten times as often": (
            {n: replace(k, dies_h=k.dies_h / 10) for n, k in usual.items()},
            LEASE_S,
        ),
        "a lease of an hour": (usual, _HOUR),
    }
    columns = (
        *("fleet", "places", "first column, h", "newest release, h", "all, h"),
        *("core hours", "wasted, %", "used, %", "set aside"),
    )
    print("| " + " | ".join(columns) + " |")
    print("|---" * len(columns) + "|")
    for name, (kinds, lease_s) in fleets.items():
        found = Simulation(kinds, lease_s).run()
        ends = [found.done_s[cell] / _HOUR for cell in range(_CELLS)]
        places = sum(kind.number * kind.places for kind in kinds.values())
        wasted = 100 * found.wasted_s / (found.spent_s + found.wasted_s)
        used = 100 * (found.spent_s + found.wasted_s) / found.places_s
        row = (
            *(name, places, f"{ends[0]:.1f}", f"{max(ends[:_COLUMNS]):.1f}", f"{max(ends):.1f}"),
            *(f"{found.spent_s / _HOUR:.0f}", f"{wasted:.1f}", f"{used:.0f}", found.aside),
        )
        print("| " + " | ".join(map(str, row)) + " |", flush=True)


if __name__ == "__main__":
    main()
