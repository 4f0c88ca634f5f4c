"""Which record answers a case, read as plain JSON in the cell, where there is no pydantic.

The later line of a file counts, since files are append-only and clocks are set back; between the
files of several commits, the later time. ``ivhl.records.store`` decides likewise for everything
that shows or judges records.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ivhl.instrument import version_of
from ivhl.records.age import rank_of
from ivhl.records.record import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Workload, version, size, variant and device; commit, cell, lock, threads, instrument, image and
# flags; and these with the hash of the benchmark.
CaseId = tuple[str, int, str, str, str]
MadeLike = tuple[str, str, str | None, int, str, str | None, tuple[str, ...]]
RunKey = tuple[str, str, str | None, int, str, str | None, tuple[str, ...], str | None]


def newest_keys(path: Path) -> dict[CaseId, RunKey]:
    """Return the conditions of each case's newest record, if that record is final.

    Unreadable lines are skipped: the case is measured again, and ``ivhl results`` reports the line.
    """
    found: dict[CaseId, RunKey] = {}
    for case, made, _ in read_records(path):
        found.pop(case, None)
        if made is not None:
            found[case] = made
    return found


def newest_of_other_commits(folder: Path, made_like: MadeLike) -> dict[CaseId, dict[str, Any]]:
    """Return each case's newest final record with sources that was made like this, at any commit.

    Args:
        folder: Folder of the machine's records.
        made_like: The beginning of a ``RunKey``; its commit is not looked at.
    """
    found: dict[CaseId, dict[str, Any]] = {}
    for path in folder.glob(f"*-{made_like[1]}.jsonl"):
        for case, made, data in read_records(path):
            older = found.get(case)
            if made is None or made[1:-1] != made_like[1:] or not data.get("sources"):
                continue
            if older is None or rank_of(data["recorded_at"]) > rank_of(older["recorded_at"]):
                found[case] = data
    return found


def cold_seconds(results: Path, cell_id: str) -> dict[CaseId, float]:
    """Return the compile seconds of the records of a cell, from any machine."""
    seconds: dict[CaseId, float] = {}
    for path in results.glob(f"*/records/*-{cell_id}.jsonl"):
        for case, _, data in read_records(path):
            cold = (data.get("compile") or {}).get("cold_s")
            if type(cold) is float:
                seconds[case] = cold
    return seconds


def read_records(path: Path) -> Iterator[tuple[CaseId, RunKey | None, dict[str, Any]]]:
    """Yield, for each record of a file, its case key, its run key and the record.

    The run key is ``None`` if the record is not final, or comes from an uncommitted tree.
    """
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
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
                tuple(conditions.get("flags", ())),  # nor without any
                data.get("benchmark"),
            )
            hash((case, made))  # a list is no key
            compiled = data.get("compile")
            if not isinstance(data["recorded_at"], str) or not isinstance(compiled, dict | None):
                continue
            answers = is_final(data["failure"]) and not data.get("uncommitted")
            yield case, made if answers else None, data


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
