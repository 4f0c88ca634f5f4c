"""What ``ivhl bench`` is asked: workloads, a size, variants, a suite, cells; and its outcome."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from ivhl.errors import SpecError
from ivhl.measure.effort import Effort
from ivhl.workload import Case, Workload, core_cases, full_cases, named_cases, select_cases

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ivhl.bench.work import Shard
    from ivhl.matrix.spec import CellSpec, Tier


Suite = Literal["core", "full"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """The cases that a person selects, as on the command line.

    Attributes:
        workloads: Names of workloads; empty means all.
        size: Name of a size; ``None`` means each workload's default, and with ``full`` every size.
        variants: Names of variants; empty means all.
        cases: Names of cases (``Case.name``), in place of everything else.
        suite: ``core`` or ``full``, restricted to the names given. ``None`` means ``core`` if
            nothing is named, otherwise exactly what is named.
    """

    workloads: tuple[str, ...] = ()
    size: str | None = None
    variants: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    suite: Suite | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Everything that is named."""
        return (*self.workloads, *filter(None, [self.size]), *self.variants, *self.cases)

    @property
    def chosen_suite(self) -> Suite | None:
        """The suite to measure; ``None`` if exactly what is named is measured."""
        return self.suite or (None if self.names else "core")

    def choose(self, workloads: Sequence[Workload], device: str = "cpu") -> tuple[Case, ...]:
        """Return the selected cases.

        Args:
            workloads: Every workload of the project.
            device: Device type.

        Raises:
            UnknownNameError: If no workload has a name; lists the nearest.
            SpecError: If the suite has no case with the names given.
        """
        if self.cases:
            return named_cases(workloads, self.cases, device)
        every = select_cases(  # raises for unknown names
            workloads,
            names=self.workloads,
            size=self.size,
            variants=self.variants,
            device=device,
        )
        suite = self.chosen_suite
        if suite == "core":
            every = tuple(
                replace(case, size=self.size or case.size)
                for case in core_cases(workloads, device)
                if self.size in {None, *case.workload.sizes}
            )
        elif suite == "full":
            every = tuple(
                case for case in full_cases(workloads, device) if self.size in (None, case.size)
            )
        chosen = tuple(
            case
            for case in every
            if (not self.workloads or case.workload.name in self.workloads)
            and (not self.variants or case.variant.name in self.variants)
        )
        if suite is not None and not chosen:
            raise SpecError(
                f"--suite {suite} has no case of {' '.join(self.names) or 'any workload'} on "
                f"{device}",
                hint="leave out --suite to measure a named workload, size or variant of any suite",
            )
        return chosen


def named_case(workloads: Sequence[Workload], name: str, device: str) -> Case:
    """Return the case that a name stands for: of a workload, its core variant.

    Raises:
        UnknownNameError: If there is none.
    """
    if "/" in name:
        return named_cases(workloads, [name], device)[0]
    found = select_cases(workloads, names=[name], device=device)
    core = {case.name for case in core_cases(workloads, device)}
    return next((case for case in found if case.name in core), found[0])


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """The options of ``ivhl bench``.

    Attributes:
        python: A Python of the matrix.
        releases: PyTorch releases; empty means those of the tier.
        commit: Commit to measure, in any form that git resolves.
        base: Commit to measure beside it, in processes that take turns with its own; ``None``
            measures one commit.
        machine: Name of this machine in the results; ``None`` means its host name.
        results: Folder of the results; ``None`` means ``results`` in the root.
        selection: Which cases.
        effort: How to measure them.
        shard: Share of all Pythons' work to do; ``None`` means all work of this Python.
    """

    root: Path
    python: str
    releases: tuple[str, ...] = ()
    tier: Tier = "default"
    commit: str = "HEAD"
    base: str | None = None
    machine: str | None = None
    results: Path | None = None
    selection: Selection = field(default_factory=Selection)
    effort: Effort = field(default_factory=Effort)
    shard: Shard | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """The outcome of a run.

    Attributes:
        machine: Name of the machine in the records.
        cells: Requested cells, unavailable ones included.
        cases: Names of the requested cases, in any of the cells.
        missing: Cases without a record of this run, as ``cell: case``.
        log: File with asv's output.
    """

    commit: str
    machine: str
    cells: tuple[CellSpec, ...]
    cases: tuple[str, ...]
    missing: tuple[str, ...]
    log: Path
    seconds: float
