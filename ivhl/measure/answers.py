"""Which records of earlier runs answer a case, so that it need not be measured again.

The later line of a file counts, since files are append-only and clocks are set back; between the
files of several commits, the later time.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ivhl.instrument import INSTRUMENT, version_of
from ivhl.measure.run import repeat_command
from ivhl.measure.sources import reached_sources
from ivhl.records import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ivhl.measure.run import Run
    from ivhl.measure.sources import Sources
    from ivhl.workload import Case

# Workload, version, size, variant and device; commit, cell, lock, threads, instrument, image, and
# the hash of the benchmark.
CaseId = tuple[str, int, str, str, str]
RunKey = tuple[str, str, str | None, int, str, str | None, str | None]


def is_answered(run: Run, case: Case, newest: dict[CaseId, RunKey]) -> bool:
    """Return whether the newest record of a case was made under this run's conditions.

    Only the newest counts, because all views show it.
    """
    made = newest.get(case_key(run, case))
    if made is None or made[:-1] != run_key(run):
        return False
    # A folder of benchmarks may have changed since, also at the same commit.
    return ":" in run.workloads or made[-1] == benchmark_of(run, case)


def case_key(run: Run, case: Case) -> CaseId:
    """Return the key of what a record of the case measures."""
    workload = case.workload
    return (workload.name, workload.version, case.size, case.variant.name, run.effort.device)


def run_key(run: Run) -> tuple[str, str, str | None, int, str, str | None]:
    """Return how a record of this run is made, whatever the benchmark."""
    cell = run.cell
    return (run.commit, cell.id, cell.lock_sha256, run.effort.threads, str(INSTRUMENT), run.image)


def records_of_other_commits(run: Run) -> dict[CaseId, dict[str, Any]]:
    """Return each case's newest final record that differs from this run only in its commit.

    Empty for existing environments: their packages may have changed.
    """
    found: dict[CaseId, dict[str, Any]] = {}
    if run.cell.lock_sha256 is None:
        return found
    wanted = run_key(run)[1:]
    for path in run.record_file.parent.glob(f"*-{run.cell.id}.jsonl"):
        for case, made, data in read_final(path):
            older = found.get(case)
            if made is None or made[1:-1] != wanted or not data.get("sources"):
                continue
            if older is None or data["recorded_at"] > older["recorded_at"]:
                found[case] = data
    return found


def same_subject(
    run: Run, case: Case, elsewhere: dict[CaseId, dict[str, Any]]
) -> dict[str, Any] | None:
    """Return another commit's record as one of this commit, if the case reaches the same sources.

    Then there is nothing to measure. The record keeps its time of measurement, so that it does not
    count as another run.
    """
    data = elsewhere.get(case_key(run, case))
    here = sources_of(run, case)
    if data is None or here is None or (data["sources"], data.get("benchmark")) != here:
        return None
    return data | {
        "commit": run.commit,
        "same_as": data.get("same_as") or data["commit"],
        "command": repeat_command(run, case),
    }


def sources_of(run: Run, case: Case) -> Sources | None:
    """Return the hashes of the sources that the case reaches; ``None`` if that fails here."""
    try:
        return reached_sources(case, run.workloads, run.project, ran=False)
    except Exception:  # noqa: BLE001  (the process of the case will report what is wrong)
        return None


def benchmark_of(run: Run, case: Case) -> str | None:
    """Return the hash of the benchmark; ``None`` where it is part of the project, or no Python."""
    found = sources_of(run, case)
    return None if found is None else found.benchmark


def newest_keys(path: Path) -> dict[CaseId, RunKey]:
    """Return the conditions of each case's newest record, if that record is final.

    Unreadable lines are skipped: the case is measured again, and ``ivhl results`` reports the line.
    """
    found: dict[CaseId, RunKey] = {}
    for case, made, _ in read_final(path):
        found.pop(case, None)
        if made is not None:
            found[case] = made
    return found


def read_final(path: Path) -> Iterator[tuple[CaseId, RunKey | None, dict[str, Any]]]:
    """Yield, for each record of a file, its case key, its run key and the record.

    The run key is ``None`` if the record is not final.
    """
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError, TypeError, KeyError, IndexError, AttributeError):
            data = json.loads(line)
            if data["schema"] not in SCHEMAS:
                continue
            cell, conditions = data["cell"], data["conditions"]
            case = (
                data["workload"],
                data["workload_version"],
                data["size"],
                data["variant"],
                conditions["device"].split()[0],
            )
            made = (
                data["commit"],
                cell["id"],
                cell["lock_sha256"],
                conditions["threads"],
                version_of(conditions["instrument"]),
                conditions.get("image"),  # not there outside of containers
                data.get("benchmark"),
            )
            yield case, made if is_final(data["failure"]) else None, data


def is_final(failure: dict[str, Any] | None) -> bool:
    """Return whether measuring again would be expected to give the same result.

    Not final: a cell that could not be installed, and a process killed by someone else or for its
    time or memory limit.
    """
    if failure is None:
        return True
    # The last two depend on limits that another run may set higher.
    passing = ("environment", "build", "unavailable", "timeout", "out_of_memory")
    return failure["failure_class"] not in passing and failure["exception"] != "SIGKILL"


def expected_compile_s(run: Run) -> dict[CaseId, float]:
    """Return the compile seconds of earlier records of this cell, from any machine.

    Used to start the longest first, so that no core is left waiting for it at the end.
    """
    seconds: dict[CaseId, float] = {}
    for path in Path(run.results).glob(f"*/records/*-{run.cell.id}.jsonl"):
        for case, _, data in read_final(path):
            cold = (data.get("compile") or {}).get("cold_s")
            if type(cold) is float:
                seconds[case] = cold
    return seconds
