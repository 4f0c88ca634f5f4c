"""The nine configurations of the founding benchmark, and three additional ones.

Each has two makers: one does what the benchmark's script did, the other one does it correctly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from studies.founding.model import Student, in_half, traced, with_forces
from studies.founding.student_seed import energy_all_pairs

if TYPE_CHECKING:
    from collections.abc import Callable

    from studies.founding.model import Evaluate

    Make = Callable[[Student], Evaluate]


@dataclass(frozen=True, kw_only=True, slots=True)
class Configuration:
    """One way to run the student.

    Attributes:
        name: Name in the founding table.
        seed: Makes what the script's calculator called from the module; ``None`` if the script had
            no such configuration.
        corrected: Makes the corrected version; ``None`` if that is another row.
    """

    name: str
    seed: Make | None
    corrected: Make | None


def method_of(student: Student) -> Evaluate:
    """Return the method that the script's calculator called."""
    return student.predict_energy_and_forces


def compiled_with_options(mode: str) -> Make:
    """Return a maker that gives ``torch.compile`` both a mode and options, as the script did."""

    def make(student: Student) -> Evaluate:
        return method_of(torch.compile(student, mode=mode, options={}))

    return make


def compiled_and_bypassed(student: Student) -> Evaluate:
    """Return the method of a module compiled without options: the method itself stays eager."""
    return method_of(torch.compile(student))


def compiled(mode: str) -> Make:
    """Return a maker of the compiled energy, differentiated by autograd outside of the graph."""

    def make(student: Student) -> Evaluate:
        return with_forces(torch.compile(student, mode=mode))

    return make


def compiled_for_cuda_graphs(student: Student) -> Evaluate:
    """Return the energy compiled with the option for CUDA graphs, which has no effect on a CPU."""
    return with_forces(torch.compile(student, options={"triton.cudagraphs": True}))


def all_pairs(student: Student) -> Evaluate:
    """Return the eager student over all pairs instead of a list of edges."""
    return with_forces(Student(student.weights, energy_all_pairs))


def all_pairs_compiled(student: Student) -> Evaluate:
    """Return the student over all pairs, compiled as one graph."""
    return with_forces(torch.compile(Student(student.weights, energy_all_pairs), fullgraph=True))


CONFIGURATIONS: Final = (
    Configuration(name="baseline", seed=method_of, corrected=method_of),
    Configuration(
        name="compile default",
        seed=compiled_with_options("default"),
        corrected=compiled("default"),
    ),
    Configuration(
        name="compile reduce-overhead",
        seed=compiled_with_options("reduce-overhead"),
        corrected=compiled("reduce-overhead"),
    ),
    Configuration(
        name="compile max-autotune",
        seed=compiled_with_options("max-autotune"),
        corrected=compiled("max-autotune"),
    ),
    Configuration(
        name="compile + CUDA graphs",
        seed=compiled_with_options("reduce-overhead"),
        corrected=compiled_for_cuda_graphs,
    ),
    Configuration(
        name="FP16",
        seed=lambda student: with_forces(in_half(student)),
        corrected=lambda student: with_forces(in_half(student)),
    ),
    Configuration(
        name="compile + FP16",
        seed=compiled_with_options("default"),
        corrected=lambda student: with_forces(in_half(torch.compile(student))),
    ),
    Configuration(
        name="TorchScript",
        seed=lambda student: with_forces(traced(student)),
        corrected=lambda student: with_forces(traced(student)),
    ),
    Configuration(
        name="TorchScript + FP16",
        seed=lambda student: with_forces(in_half(traced(student))),
        corrected=lambda student: with_forces(in_half(traced(student))),
    ),
    Configuration(name="compile, no options", seed=compiled_and_bypassed, corrected=None),
    Configuration(name="all pairs", seed=None, corrected=all_pairs),
    Configuration(name="compile, all pairs", seed=None, corrected=all_pairs_compiled),
)
