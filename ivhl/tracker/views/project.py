"""Load a project for the views: records, cells, cases and commits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ivhl.errors import LockError, SpecError
from ivhl.git import commit_order, is_shallow
from ivhl.matrix.locks import lock_state
from ivhl.matrix.project import MATRIX, load_project
from ivhl.matrix.spec import CellSpec, Matrix, load_matrix
from ivhl.tracker.store.index import open_index
from ivhl.tracker.store.records import case_name
from ivhl.tracker.store.spread import SHIPPED, Spreads
from ivhl.tracker.support import compat
from ivhl.tracker.support.expectations import Expectations, read_expectations
from ivhl.workload import Case, Workload, broken_benchmarks, core_cases, load_workloads

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ivhl.records.record import RunRecord
    from ivhl.tracker.changes.regressions import History
    from ivhl.tracker.store.entries import Recorded

LIBRARIES: Final = Path("observatory", "libraries.toml")
_NO_WORKLOADS: tuple[Workload, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The current state of a project.

    Attributes:
        recorded: The records; each is read when something asks for it.
        problems: A line for each file or record that could not be read.
        cells: Cells of the default tier, and all cells of other releases that have records.
        releases: Releases of the default tier; ``None`` without a matrix.
        unavailable: Cell id to why nothing can be installed.
        cases: Cases that should have been run: the core suite. Other cases are shown only if
            they have a record; see ``compat_rows``.
        commit_order: Commits up to HEAD, oldest first.
        spreads: Learnt differences between runs, by machine and kind of case.
        pythons: Pythons of the default tier; ``None`` without a matrix.
        known_releases: All PyTorch releases of the matrix, so that one that was not run is a gap.
        root: Folder of the project, for its locks.
        history: Reads what ``recorded`` lacks, if it has only the newest of each case.
        expectations: Known failures.
        repository: See ``matrix.project.Project``.
        site_url: Address of the site, with its last slash; empty if it is not known.
        has_libraries: Whether it has a table of libraries, ``observatory/libraries.toml``.
    """

    name: str
    recorded: tuple[Recorded, ...]
    problems: tuple[str, ...]
    cells: tuple[CellSpec, ...]
    releases: tuple[str, ...] | None
    unavailable: Mapping[str, str]
    workloads: tuple[Workload, ...]
    cases: tuple[Case, ...]
    commit_order: tuple[str, ...]
    spreads: Spreads = SHIPPED
    pythons: tuple[str, ...] | None = None
    known_releases: tuple[str, ...] = ()
    root: Path | None = None
    history: History | None = None
    expectations: Expectations = compat.NONE_EXPECTED
    repository: str = ""
    site_url: str = ""
    has_libraries: bool = False

    @property
    def records(self) -> tuple[RunRecord, ...]:
        """The records with their samples, which are read now.

        Raises:
            ResultsError: If a file of them was changed since the index was brought up to date.
        """
        return tuple(one.record for one in self.recorded)


def load_state(root: Path, results: Path, *, history: bool = True) -> State:
    """Return the project at ``root`` with the records under ``results``.

    An unreadable matrix or list of workloads is reported in ``problems``; the state then lacks
    only the cells and cases that were never run.

    Args:
        root: Root of the project.
        results: Folder of the results.
        history: Whether all records are needed, or only the newest of each case in each cell.
    """
    order = commit_order(root)
    index = open_index(results)
    problems = [str(problem.seen_from(results.parent)) for problem in index.problems]
    if order and is_shallow(root):
        problems.append(
            "this shallow clone lacks the order of most commits, so the time of a record decides "
            "which is the newest of its case; next: git fetch --unshallow"
        )
    found = index.every() if history else index.newest(order)
    name, workloads, repository = _project(root, problems)
    matrix = None
    try:
        matrix = load_matrix(root / MATRIX)
    except SpecError as error:
        problems.append(str(error))
    expectations, unread = read_expectations(root)
    problems += unread
    cells = _cells(matrix, found) if matrix else ()
    unavailable = _unavailable(root, cells, problems)
    return State(
        name=name,
        recorded=found,
        problems=tuple(problems),
        cells=cells,
        releases=matrix.releases("default") if matrix else None,
        pythons=matrix.pythons_of("default") if matrix else None,
        unavailable=unavailable,
        workloads=workloads,
        cases=_cases(workloads, found),
        commit_order=order,
        spreads=index.spreads,
        known_releases=matrix.every_release if matrix else (),
        root=root,
        history=index,
        expectations=expectations,
        repository=repository,
        has_libraries=(root / LIBRARIES).is_file(),
    )


def _project(root: Path, problems: list[str]) -> tuple[str, tuple[Workload, ...], str]:
    """Return name, workloads and repository of the project; name what cannot be read."""
    name, workloads, repository = root.name, _NO_WORKLOADS, ""
    try:
        project = load_project(root)
        name, repository = project.name, project.repository
        workloads = load_workloads(project.workloads)
        problems += [f"left out: {problem}" for problem in broken_benchmarks(project.workloads)]
    except SpecError as error:
        problems.append(f"{error}; next: {error.hint}" if error.hint else str(error))
    return name, workloads, repository


def _unavailable(root: Path, cells: Iterable[CellSpec], problems: list[str]) -> dict[str, str]:
    """Return why nothing can be installed in a cell, by its id; name locks that cannot be read."""
    found: dict[str, str] = {}
    for cell in cells:
        try:
            state = lock_state(root, cell)
        except LockError as error:
            problems.append(str(error))
        else:
            if state.kind == "unavailable":
                found[cell.id] = state.message
    return found


def rows_of(state: State) -> tuple[compat.Row, ...]:
    """Return the rows of this project; see ``compat_rows``."""
    return compat.compat_rows(
        state.recorded,
        cells=state.cells,
        unavailable=state.unavailable,
        cases=state.cases,
        workloads=state.workloads,
        commit_order=state.commit_order,
        releases=state.releases,
        pythons=state.pythons,
        spreads=state.spreads,
        expectations=state.expectations,
    )


def retired_cases(state: State) -> tuple[str, ...]:
    """Return the cells with records that the project no longer has."""
    declared = compat.declared_cases(state.workloads)
    cases = {one.entry.case for one in state.recorded}
    gone = [case for case in cases if not compat.is_declared(case, declared)]
    return tuple(sorted({f"{case_name(case)} (version {case.workload_version})" for case in gone}))


def _cells(matrix: Matrix, found: Sequence[Recorded]) -> tuple[CellSpec, ...]:
    """Return the cells of the default tier, and those of other Pythons and releases with records."""
    pythons = {*matrix.pythons_of("default"), *(one.entry.python for one in found)}
    releases = {*matrix.releases("default"), *(one.entry.torch for one in found)}
    return tuple(
        cell
        for cell in (*matrix.cells(tier="extended"), *matrix.cells(tier="next"))
        if cell.python in pythons and cell.torch in releases
    )


def _cases(workloads: Sequence[Workload], found: Iterable[Recorded]) -> tuple[Case, ...]:
    devices = sorted({one.entry.case.device for one in found}) or ["cpu"]
    cases = {case.name: case for device in devices for case in core_cases(workloads, device)}
    return tuple(cases.values())
