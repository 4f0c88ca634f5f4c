"""The environment of a cell: its lock, the wheels, and what differs from its neighbours."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from ivhl.errors import LockError, SpecError
from ivhl.matrix.diff import diff_locks
from ivhl.matrix.locks import LockState, lock_state
from ivhl.matrix.project import MATRIX
from ivhl.matrix.spec import CellSpec, Matrix, load_matrix
from ivhl.records.age import recorded_rank
from ivhl.tracker.store.facts import warnings_of
from ivhl.tracker.store.records import grouped_by
from ivhl.tracker.views.source import Source, View, beside, cells_of, environment_page
from ivhl.tracker.wording import STATUS_WORDS, STATUSES, short_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ivhl.records.record import RunRecord, Wheel

_MOST_WARNINGS = 20
_MOST_INSTALLED = 6


def environment_views(source: Source) -> tuple[View, ...]:
    """Return the page of each cell that has a row.

    Facts:
        more: How many other Pythons of its release are not among the neighbours.
    """
    cells = cells_of(source.rows)
    locks = _locks(source, cells)
    records = grouped_by(source.state.records, lambda record: record.cell.id)
    counts = Counter((row.cell, row.status) for row in source.rows)
    views = []
    for python, torch, cell in cells:
        others, left = beside([name for _, release, name in cells if release == torch], cell)
        releases = [name for version, _, name in cells if version == python]
        state = locks.states.get(cell)
        installed = tuple(_installed(records[cell]))
        warned = Counter[str]()
        for warning in chain.from_iterable(map(warnings_of, records[cell])):
            warned[short_message(warning.text)] += warning.count
        views.append(
            View(
                href=environment_page(cell),
                cell=cell,
                python=python,
                torch=torch,
                kind=state.kind if state else "missing",
                lock=(state.sha256 or "") if state else "",
                message=state.message if state else "",
                pins=state.pins if state else (),
                neighbours=tuple(_neighbours(cell, [*_around(releases, cell), *others], locks)),
                more=left,
                installed=installed[:_MOST_INSTALLED],
                left_out=max(0, len(installed) - _MOST_INSTALLED),
                warnings=tuple((n, text) for text, n in warned.most_common(_MOST_WARNINGS)),
                counts=", ".join(
                    f"{n} {STATUS_WORDS[s]}" for s in STATUSES if (n := counts[cell, s])
                ),
            )
        )
    return tuple(views)


class _Locks(NamedTuple):
    matrix: Matrix | None
    states: Mapping[str, LockState]


def _locks(source: Source, cells: Iterable[tuple[str, str, str]]) -> _Locks:
    root = source.state.root
    if root is None:
        return _Locks(None, {})
    try:
        matrix = load_matrix(root / MATRIX)
    except SpecError:  # the page names it already
        return _Locks(None, {})
    locks = {}
    for python, torch, cell in cells:
        try:
            locks[cell] = lock_state(root, CellSpec(python, torch))
        except (LockError, SpecError):
            continue
    return _Locks(matrix, locks)


def _around(releases: Sequence[str], cell: str) -> Sequence[str]:
    """Return the releases before and after."""
    at = releases.index(cell)
    return (*releases[max(0, at - 1) : at], *releases[at + 1 : at + 2])


def _neighbours(cell: str, others: Sequence[str], locks: _Locks) -> Iterator[View]:
    """Yield how a cell differs from each of the others.

    Facts:
        matched: Whether they differ on one axis only, and otherwise as that forces.
        forced: Unavoidable differences, with the reason.
        reasons: Why the two are not matched.
    """
    for other in others:
        href = environment_page(other)
        if locks.matrix is None or not {cell, other} <= locks.states.keys():
            why = ("one of them has no lock",)
            yield View(cell=other, href=href, matched=False, forced=(), reasons=why)
            continue
        found = diff_locks(locks.matrix, locks.states[other], locks.states[cell])
        forced = (
            f"{name} {found.changed[name][0]} to {found.changed[name][1]}: {why}"
            if name in found.changed
            else f"{name} {'added' if name in found.added else 'removed'}: {why}"
            for name, why in found.forced.items()
        )
        yield View(
            cell=other, href=href, matched=found.matched, forced=[*forced], reasons=found.reasons
        )


def _installed(records: Iterable[RunRecord]) -> Iterator[View]:
    """Yield the environments that records list, the newest first.

    Facts:
        lock: Digest of the lock; empty for an existing environment.
        records: Number of records measured in it.
    """
    groups = grouped_by(
        (record for record in records if record.conditions.packages),
        lambda r: (r.cell.lock_sha256 or "", r.conditions.python_full, r.conditions.packages),
    )
    found = sorted(groups.items(), key=lambda g: max(map(recorded_rank, g[1])), reverse=True)
    for (lock, python, packages), group in found:
        times = [record.recorded_at for record in group]
        wheels = {wheel for record in group for wheel in record.conditions.wheels or ()}
        yield View(
            lock=lock,
            python=python,
            records=len(group),
            first=min(times)[:10],
            last=max(times)[:10],
            wheels=tuple(sorted((f"{w.name} {w.version}", _wheel(w)) for w in wheels)),
            packages=packages,
        )


def _wheel(wheel: Wheel) -> str:
    build = "" if wheel.build is None else f"build {wheel.build}, "
    return f"{build}{', '.join(wheel.tags)}, files sha256 {wheel.record_sha256 or 'unknown'}"
