"""Find the earlier records that answer a case, so that this run need not measure it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ivhl.instrument import INSTRUMENT
from ivhl.measure.run import repeat_command
from ivhl.measure.sources import reached_sources
from ivhl.records.answers import cold_seconds, newest_of_other_commits

if TYPE_CHECKING:
    from ivhl.measure.run import Run
    from ivhl.measure.sources import Sources
    from ivhl.records.answers import CaseId, MadeLike, RunKey
    from ivhl.records.record import RunRecord
    from ivhl.workload import Case


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


def run_key(run: Run) -> MadeLike:
    """Return how a record of this run is made, whatever the benchmark."""
    cell = run.cell
    return (
        run.commit, cell.id, cell.lock_sha256, run.effort.threads, str(INSTRUMENT), run.image,
        run.effort.flags,
    )  # fmt: skip


def records_of_other_commits(run: Run) -> dict[CaseId, RunRecord]:
    """Return each case's newest final record that differs from this run only in its commit.

    Empty for existing environments: their packages may have changed.
    """
    if run.cell.lock_sha256 is None:
        return {}
    return newest_of_other_commits(run.record_file.parent, run_key(run))


def same_subject(run: Run, case: Case, elsewhere: dict[CaseId, RunRecord]) -> RunRecord | None:
    """Return another commit's record as one of this commit, if the case reaches the same sources.

    Then there is nothing to measure. The record keeps its time of measurement, so that it does not
    count as another run.
    """
    record = elsewhere.get(case_key(run, case))
    here = sources_of(run, case)
    if record is None or here is None or (record.sources, record.benchmark) != here:
        return None
    return replace(
        record,
        commit=run.commit,
        same_as=record.same_as or record.commit,
        command=repeat_command(run, case),
    )


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


def expected_compile_s(run: Run) -> dict[CaseId, float]:
    """Return the compile seconds of earlier records of this cell, from any machine.

    Used to start the longest first, so that no core is left waiting for it at the end.
    """
    return cold_seconds(Path(run.results), run.cell.id)
