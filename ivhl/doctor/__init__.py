"""Check whether this machine can measure reliably. Read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ivhl.doctor.card import look_at_cards
from ivhl.doctor.memory import look_at_memory
from ivhl.doctor.processor import look_at_processor
from ivhl.doctor.storage import look_at_storage
from ivhl.doctor.tools import look_at_names, look_at_tools
from ivhl.measure.finding import LEVELS, Finding, System
from ivhl.records import Level

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ivhl.records import Machine
    from ivhl.workload import Case

__all__ = ["LEVELS", "Finding", "Level", "System", "examine"]


def examine(
    project: Path,
    *,
    pythons: Sequence[str],
    cases: Sequence[Case],
    results: Path,
    machine: Machine,
    device: str = "cpu",
    system: System | None = None,
) -> tuple[Finding, ...]:
    """Return findings about this machine, each with its level and the next step.

    Args:
        project: Root of the project.
        pythons: Pythons of the matrix.
        cases: Cases of the run, to check the memory that they need.
        results: Folder of the results.
        machine: This machine, under its name in the results.
        device: ``cpu`` or ``cuda``: device of the run.
        system: Gives access to ``/proc`` and ``/sys``.
    """
    system = system or System()
    return (
        *look_at_processor(system),
        *look_at_memory(system, cases if device == "cpu" else ()),
        *look_at_storage(project),
        *look_at_tools(project, pythons),
        *look_at_names(results, machine),
        *look_at_cards(system, wanted=device == "cuda"),
    )
