"""Print what two queues make of faults: ``python -m studies.queues [--library L] [--fault F]``.

It needs PostgreSQL's programs, ``procrastinate``, ``pgqueuer``, ``asyncpg`` and ``psycopg[binary]``,
and for wrong clocks Debian's ``faketime``. Seeds are fixed; what happens between processes is not.
"""

from __future__ import annotations

import argparse
import importlib
import random
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from studies.queues.database import Database, Link
from studies.queues.faults import CLOCKS, FAULTS, FaultPlan
from studies.queues.fleet import Fleet, cpu_ms, import_all, overlapping
from studies.queues.worker import POISON

if TYPE_CHECKING:
    from collections.abc import Callable

LIBRARIES: Final = ("ivhl", "pgqueuer")
AS_THEY_COME: Final = ("procrastinate_as_it_comes", "pgqueuer_as_it_comes")
_PATIENCE_S: Final = 40
_SEED: Final = 53
COLUMNS: Final = {
    "fault": "fault",
    "library": "library",
    "jobs": "jobs",
    "times": "times",
    "lost": "lost",
    "twice": "twice",  # records of a case that has another
    "imported": "twice, imported",
    "overlapping": "overlapping",
    "claimed": "claimed for ever",
    "aside": "set aside",
    "hands": "hands",  # workers to start or to kill, and jobs to put back
    "drained_s": "s",
    "worker_ms": "worker, ms a job",
    "database_ms": "database, ms a job",
}


def run(library: str, fault: str, database: Database, folder: Path) -> dict[str, str | float]:
    """Let a fault happen to a fleet, and return its row of the table."""
    plan = FAULTS[fault]
    module = importlib.import_module(f"studies.queues.on_{library}")
    folder.mkdir(parents=True)
    database.renew()
    module.install(database.url())
    link = Link(database.port) if plan.linked else None
    fleet = Fleet(library, database, folder, plan.ms, module.CASES.encode(), link)
    if fault.startswith("clocks"):
        fleet.clocks = CLOCKS
    fleet.start_all()
    server, before_s, start = database.process, database.cpu_s(), time.monotonic()
    cases = _submit(module.submit, database.url(), plan)
    chance = random.Random(_SEED)  # noqa: S311, not a secret
    for _ in range(plan.times):
        plan.happens(fleet, chance)
        if not fleet.cases("todo", "doing"):
            break
    fleet.drain(_PATIENCE_S)
    drained_s = time.monotonic() - start
    server_ms = 1e3 * (database.cpu_s() - before_s) / plan.jobs
    fleet.end_all()
    if link:
        link.close()
    waiting, claimed, aside = map(fleet.cases, ("todo", "doing", "failed"))
    records = fleet.records()
    own = getattr(module, "imported", None)
    kept = own(database.url()) if own else import_all(records)
    distinct = {record["case"] for record in kept}
    return {
        "fault": fault,
        "library": library.replace("_", " "),
        "jobs": len(cases),
        "times": fleet.faults,
        "lost": len({*cases} - distinct - aside - waiting - claimed),
        "twice": len(records) - len({record["case"] for record in records}),
        "imported": len(kept) - len(distinct),
        "overlapping": overlapping(records),
        "claimed": len(claimed),
        "aside": len(aside - distinct),
        "hands": fleet.left + len(waiting | claimed),
        "drained_s": round(drained_s, 1),
        "worker_ms": round(cpu_ms(records), 1),
        "database_ms": round(server_ms, 1) if database.process is server else "",
    }


def _submit(submit: Callable[[str, list[str]], None], url: str, plan: FaultPlan) -> list[str]:
    """Submit a plan; of several coordinators one comes when the others' jobs are measured."""
    poison = [f"{POISON}-{i}" for i in range(plan.poison)]
    cases = [*poison, *(f"case-{i}" for i in range(plan.jobs - plan.poison))]
    with ThreadPoolExecutor() as at_once:
        [*at_once.map(lambda _: submit(url, cases), range(max(1, plan.coordinators - 1)))]
    if plan.coordinators > 1:
        time.sleep(0.5)
        submit(url, cases)
    return cases


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m studies.queues")
    parser.add_argument(
        "--library",
        action="append",
        choices=LIBRARIES + AS_THEY_COME,
        help="default: the first two",
    )
    parser.add_argument("--fault", action="append", choices=FAULTS, help="default: all")
    parser.add_argument("--keep", type=Path, help="an empty folder for records and logs")
    options = parser.parse_args()
    print("| " + " | ".join(COLUMNS.values()) + " |")
    print("|---" * len(COLUMNS) + "|")
    database = Database()
    with tempfile.TemporaryDirectory(prefix="records-") as temporary:
        folder = options.keep or Path(temporary)
        try:
            database.start()
            for number, fault in enumerate(options.fault or FAULTS):
                for library in options.library or LIBRARIES:
                    row = run(library, fault, database, folder / f"{number}-{library}")
                    print("| " + " | ".join(str(row[key]) for key in COLUMNS) + " |", flush=True)
        finally:
            database.stop()


if __name__ == "__main__":
    main()
