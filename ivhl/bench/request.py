"""The request of ``ivhl bench``, its outcome, and the cells in which it can run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ivhl.bench.selection import Selection
from ivhl.measure.effort import Effort

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

    from ivhl.bench.work import Shard
    from ivhl.matrix.locks import LockState
    from ivhl.matrix.spec import CellSpec, Tier
    from ivhl.measure.settings import Settings
    from ivhl.records.record import Machine
    from ivhl.workload import Case


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


class Executor(Protocol):
    """Installs cells and measures in them: on this machine itself, or in containers."""

    def machine(self, request: Request) -> Machine:
        """Return the machine that the records describe."""

    def check(self, settings: Settings, python: str) -> Settings:
        """Raise if the settings cannot work here; return them completed for this executor."""

    def prepare(self, settings: Settings, locks: Sequence[LockState], console: Console) -> None:
        """Do for all cells at once what would otherwise delay each of them."""

    def measure(
        self,
        settings: Settings,
        locks: Sequence[LockState],
        cases: Sequence[Case],
        *,
        commit: str,
        console: Console,
    ) -> tuple[str, ...]:
        """Measure the cases in the cells; return those without a record, as ``cell: case``."""
