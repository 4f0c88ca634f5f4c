"""Energy and forces of one moving molecule: the cost of molecular dynamics per step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks.molecules import energy_forces

if TYPE_CHECKING:
    from ivhl.workload import Cost

CALLS = "benchmarks.molecules.trajectory.calls"
EAGER = f"{CALLS}:trajectory"
N_FRAMES = 8


def cost(size: energy_forces.Size) -> Cost:
    """Count the steps; each one reads the weights again."""
    step = energy_forces.cost(size)
    return replace(step, flops=N_FRAMES * step.flops, bytes=N_FRAMES * step.bytes)


WORKLOAD = replace(
    energy_forces.WORKLOAD,
    name="mlff.trajectory",
    version=1,
    title="Energies and forces of a molecule at eight geometries, one after the other",
    make_inputs=f"{CALLS}:make_inputs",
    eager=EAGER,
    reference="benchmarks.molecules.trajectory.reference:reference",
    outputs=("energies", "forces"),
    core="",  # mlff.energy_forces stands for it: it compiles the same model
    variants=energy_forces.configurations(CALLS, eager=EAGER),
    cost=f"{__name__}:cost",
)
