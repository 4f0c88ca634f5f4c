"""Find the earlier records that answer a case, so that this run need not measure it."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ivhl.instrument import INSTRUMENT
from ivhl.measure.launcher import case_environment
from ivhl.measure.process import run_tree
from ivhl.measure.run import repeat_command
from ivhl.measure.sources import Sources, reached_sources
from ivhl.records.answers import newest_of_other_commits
from ivhl.records.identity import CaseId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ivhl.measure.run import Run
    from ivhl.records.answers import MadeLike, OnDevice, RunKey
    from ivhl.records.record import RunRecord
    from ivhl.workload import Case


def is_answered(
    run: Run, case: Case, newest: dict[OnDevice, RunKey], here: Sources | None = None
) -> bool:
    """Return whether the newest record of a case was made under this run's conditions.

    Only the newest counts, because all views show it.

    Args:
        run: Settings of the run.
        case: The case.
        newest: Conditions of the newest records.
        here: What the case reaches, where this process cannot tell.
    """
    made = newest.get(case_key(run, case))
    if made is None or made[:-1] != run_key(run):
        return False
    # A folder of benchmarks may have changed since, also at the same commit.
    return ":" in run.workloads or made[-1] == benchmark_of(run, case, here)


def case_key(run: Run, case: Case) -> OnDevice:
    """Return the key of what a record of the case measures."""
    workload = case.workload
    id_ = CaseId(workload.name, workload.version, case.size, case.variant.name)
    return id_, run.effort.device


def run_key(run: Run) -> MadeLike:
    """Return how a record of this run is made, whatever the benchmark."""
    cell = run.cell
    return (
        run.commit, cell.id, cell.lock_sha256, run.effort.threads, str(INSTRUMENT), run.image,
        run.effort.flags,
    )  # fmt: skip


def records_of_other_commits(run: Run) -> dict[OnDevice, RunRecord]:
    """Return each case's newest final record that differs from this run only in its commit.

    Empty for existing environments: their packages may have changed.
    """
    if run.cell.lock_sha256 is None:
        return {}
    return newest_of_other_commits(run.record_file.parent, run_key(run), timed=run.effort.is_timed)


def same_subject(
    run: Run, case: Case, elsewhere: dict[OnDevice, RunRecord], here: Sources | None = None
) -> RunRecord | None:
    """Return another commit's record as one of this commit, if the case reaches the same sources.

    Then there is nothing to measure. The record keeps its time of measurement, so that it does not
    count as another run.
    """
    record = elsewhere.get(case_key(run, case))
    here = here or sources_of(run, case)
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


def sources_at(run: Run, cases: Sequence[Case]) -> dict[str, Sources]:
    """Return, by name of the case, what cases reach at a commit that is not installed."""
    asked = {
        "workloads": run.workloads,
        "project": run.project,
        "device": run.effort.device,
        "cases": [case.name for case in cases],
    }
    with suppress(subprocess.TimeoutExpired, ValueError):
        done = run_tree(
            [sys.executable, "-m", "ivhl.measure.sources", json.dumps(asked)],
            cwd=run.scratch,
            env=case_environment(run, Path(run.scratch)),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=run.effort.deadline_s,
        )
        found = json.loads(done.stdout.strip().rpartition("\n")[2])
        return {name: Sources(*hashes) for name, hashes in found.items() if hashes}
    return {}


def benchmark_of(run: Run, case: Case, here: Sources | None = None) -> str | None:
    """Return the hash of the benchmark; ``None`` where it is part of the project, or no Python."""
    found = here or sources_of(run, case)
    return None if found is None else found.benchmark
