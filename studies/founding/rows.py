"""What is measured, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ivhl.records import Arm, Interval


@dataclass(frozen=True, kw_only=True, slots=True)
class SeedRun:
    """What the founding protocol gives.

    Attributes:
        mean_ms: Of the trials, elapsed time.
        median_ms: The same, less disturbed by other programs.
        calls: For energy and forces, warm-up included.
        evaluations: How many of them evaluated the model.
        frames: How many frames Dynamo compiled.
    """

    mean_ms: float
    median_ms: float
    calls: int
    evaluations: int
    frames: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CorrectedRun:
    """What a protocol gives whose atoms move in every call.

    Attributes:
        arm: CPU time.
        baseline: That of the eager student in the same rounds.
        speedup: Baseline over this.
        calls: For energy and forces, timed ones and those to warm up.
        evaluations: How many of them evaluated the model; all, or it is an error.
        frames: How many frames Dynamo compiled.
        energy_error: From the student in float64, in eV.
        force_error: The largest of a component, in eV/Å.
    """

    arm: Arm
    baseline: Arm
    speedup: Interval
    calls: int
    evaluations: int
    frames: int
    energy_error: float
    force_error: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One line of the table; a run that failed has its error in place of it.

    Attributes:
        seed: ``None`` where it failed or there is no such configuration.
        corrected: The same.
        seed_error: Empty unless it failed.
        corrected_error: The same.
    """

    molecule: str
    configuration: str
    seed: SeedRun | None = None
    corrected: CorrectedRun | None = None
    seed_error: str = ""
    corrected_error: str = ""
