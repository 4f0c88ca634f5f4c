"""The results of a row of the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ivhl.records.record import Arm, Interval


@dataclass(frozen=True, kw_only=True, slots=True)
class SeedRun:
    """Result of the founding protocol.

    Attributes:
        mean_ms: Mean elapsed time of the trials.
        median_ms: Median elapsed time, which other programs disturb less.
        calls: Calls for energy and forces, including warm-up.
        evaluations: Evaluations of the model in these calls.
        frames: Frames that Dynamo compiled.
    """

    mean_ms: float
    median_ms: float
    calls: int
    evaluations: int
    frames: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CorrectedRun:
    """Result of the corrected protocol, whose atoms move in every call.

    Attributes:
        arm: CPU times.
        baseline: CPU times of the eager student in the same rounds.
        speedup: Baseline over this configuration.
        calls: Calls for energy and forces, including warm-up.
        evaluations: Evaluations of the model in these calls, equal to ``calls``.
        frames: Frames that Dynamo compiled.
        energy_error: Error against the student in float64, in eV.
        force_error: Largest error of a force component, in eV/Å.
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
class FoundingRow:
    """One row of the table.

    Attributes:
        seed: Result of the founding protocol; ``None`` if it failed or lacks this configuration.
        corrected: Result of the corrected protocol; ``None`` likewise.
        seed_error: Error of the founding protocol; empty unless it failed.
        corrected_error: Error of the corrected protocol; empty unless it failed.
    """

    molecule: str
    configuration: str
    seed: SeedRun | None = None
    corrected: CorrectedRun | None = None
    seed_error: str = ""
    corrected_error: str = ""
