"""The two identities: a case, and the same case in a cell on a device of a machine.

Everything that measures, judges or shows cases tells them apart by these. What says less, such as a
case over all releases, has some fields empty: each such projection has a name below.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ivhl.records.record import RunRecord


class CaseId(NamedTuple):
    """One workload of one version at one size in one variant, wherever it runs."""

    workload: str
    workload_version: int
    size: str
    variant: str


class CaseInCell(NamedTuple):
    """One case in one cell, on one device of one machine.

    Attributes:
        device: Its type: one machine can have two.
        existing: Whether it was measured in an existing environment, which no lock describes and
            which is not the cell with the same id.
    """

    machine: str
    device: str
    python: str
    torch: str
    existing: bool
    workload: str
    workload_version: int
    size: str
    variant: str

    @property
    def case(self) -> CaseId:
        """The case, wherever it runs."""
        return CaseId(self.workload, self.workload_version, self.size, self.variant)

    @property
    def name(self) -> str:
        """Workload, size and variant, as ``workload.Case.name`` has it."""
        return f"{self.workload}/{self.size}/{self.variant}"

    @property
    def cell(self) -> str:
        """Id of the cell, as ``record.Cell`` has it."""
        return f"py{self.python}-torch{self.torch}"

    @property
    def place(self) -> tuple[str, ...]:
        """Where it ran, as texts; of a projection without the fields that are empty."""
        existing = "existing environment" if self.existing else ""
        parts = (
            self.machine, self.device, self.python and f"Python {self.python}",
            self.torch and f"PyTorch {self.torch}", existing,
        )  # fmt: skip
        return tuple(part for part in parts if part)

    def along(self, axis: str | None) -> CaseInCell:
        """Return what runs have in common that are compared along an axis.

        Without machine, Python or PyTorch, if that is the axis; else the case in its cell itself.
        """
        if axis == "torch":
            return self._replace(torch="")
        if axis == "python":
            return self._replace(python="")
        return self._replace(machine="") if axis == "machine" else self

    @property
    def over_cells(self) -> CaseInCell:
        """The case on this device of this machine, over all Pythons and releases."""
        return self._replace(python="", torch="")

    @property
    def row(self) -> CaseInCell:
        """What a row of a table is about: ``over_cells``, with locks or without, of any version."""
        return self._replace(python="", torch="", existing=False, workload_version=0)


def titles_of(cases: Iterable[CaseInCell]) -> dict[CaseInCell, str]:
    """Return the name of each case, with its version where several versions are among them."""
    every = dict.fromkeys(cases)
    versions = Counter({one.case: one.name for one in every}.values())
    return {
        one: one.name + f" (version {one.workload_version})" * (versions[one.name] > 1)
        for one in every
    }


# What identifies a record: a later one of the same case in its cell at the same commit replaces it.
AtCommit: TypeAlias = tuple[CaseInCell, str]


@lru_cache(maxsize=256)  # of each record, several times
def type_of(device: str) -> str:
    """Return ``cuda`` for ``cuda NVIDIA H200``: the type without the name."""
    end = next((i for i, c in enumerate(device) if not c.isalpha()), len(device))
    return device[:end]


def case_of(record: RunRecord) -> CaseInCell:
    """Return what a record measured."""
    return CaseInCell(
        machine=record.machine.name,
        device=type_of(record.conditions.device),
        python=record.cell.python,
        torch=record.cell.torch,
        existing=record.cell.lock_sha256 is None,
        workload=record.workload,
        workload_version=record.workload_version,
        size=record.size,
        variant=record.variant,
    )


def key_of(record: RunRecord) -> AtCommit:
    """Return what identifies a record."""
    return case_of(record), record.commit
