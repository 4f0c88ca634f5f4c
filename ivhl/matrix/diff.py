"""Decide whether two cells may be compared: they must differ in the intended axis only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ivhl.matrix.locks import LockState, lock_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ivhl.matrix.spec import CellSpec, Matrix

CellAxis = Literal["none", "python", "torch", "both"]

# Why a difference is not forced.
_WHY: dict[CellAxis, str] = {
    "none": "",
    "python": ", without a [[forced]] row in matrix.toml",
    "torch": ", which torch does not require",
}


@dataclass(frozen=True, slots=True)
class CellDiff:
    """How the locks of two cells differ.

    Attributes:
        axis: The intended difference between the two cells.
        added: Packages that only the second has, with their version.
        removed: Packages that only the first has, with their version.
        changed: Packages with another version in the second: version in the first, in the second.
        forced: Differences that the axis makes unavoidable, each with its reason.
        reasons: Why the cells are not matched; empty if they are.
    """

    first: CellSpec
    second: CellSpec
    axis: CellAxis
    added: Mapping[str, str]
    removed: Mapping[str, str]
    changed: Mapping[str, tuple[str, str]]
    forced: Mapping[str, str]
    reasons: tuple[str, ...]

    @property
    def matched(self) -> bool:
        """Whether the cells differ on at most one axis, and otherwise only as that forces."""
        return not self.reasons


def diff_cells(root: Path, matrix: Matrix, first: CellSpec, second: CellSpec) -> CellDiff:
    """Compare the locks of two cells.

    Between two Pythons every version must be equal, and a package may be in only one lock where the
    matrix has a [[forced]] row for it. Between two releases only what torch and
    packages that require torch ask for, directly or indirectly, may differ. Two cells that differ in
    both are not matched.

    Raises:
        LockError: If a lock was edited or damaged.
    """
    return diff_locks(matrix, lock_state(root, first), lock_state(root, second))


def diff_locks(matrix: Matrix, first: LockState, second: LockState) -> CellDiff:
    """Compare two locks; see ``diff_cells``."""
    one, two = first.packages, second.packages
    added = {name: two[name] for name in sorted(two.keys() - one.keys())}
    removed = {name: one[name] for name in sorted(one.keys() - two.keys())}
    changed = {
        name: (one[name], two[name])
        for name in sorted(one.keys() & two.keys())
        if one[name] != two[name]
    }
    axis = _axis(first.cell, second.cell)
    forced: dict[str, str] = {}
    if axis == "python":
        presence = {**added, **removed}
        forced = {name: r for name in presence if (r := _forced(matrix, first, second, name))}
    elif axis == "torch":
        tied = first.tied_to("torch") | second.tied_to("torch")
        inside = sorted({*added, *removed, *changed} & tied)
        forced = {name: _asked_by(name, first, second) for name in inside}
    reasons = [*_not_locked(matrix, first), *_not_locked(matrix, second)]
    if not reasons and axis == "both":
        reasons.append(
            f"both axes differ: Python {first.cell.python} and {second.cell.python}, "
            f"torch {first.cell.torch} and {second.cell.torch}"
        )
    elif not reasons:  # a missing lock would differ in every package
        ids = first.cell.id, second.cell.id
        differing = {
            **{n: f"{n} {v} is in {ids[0]} but not in {ids[1]}" for n, v in removed.items()},
            **{n: f"{n} {v} is in {ids[1]} but not in {ids[0]}" for n, v in added.items()},
            **{n: f"{n} is {v} in {ids[0]} but {w} in {ids[1]}" for n, (v, w) in changed.items()},
        }
        reasons += [
            f"{text}{_WHY[axis]}" for name, text in differing.items() if name not in forced
        ]
        reasons += _other_files(first, second)
    return CellDiff(
        first=first.cell,
        second=second.cell,
        axis=axis,
        added=added,
        removed=removed,
        changed=changed,
        forced=forced,
        reasons=tuple(reasons),
    )


def _axis(first: CellSpec, second: CellSpec) -> CellAxis:
    if first.python == second.python:
        return "none" if first.torch == second.torch else "torch"
    return "python" if first.torch == second.torch else "both"


def _not_locked(matrix: Matrix, state: LockState) -> Iterator[str]:
    if state.kind == "unavailable":
        yield f"{state.cell.id} is unavailable: {state.message.splitlines()[0]}"
    elif state.kind == "missing":
        yield f"{state.cell.id} has no lock; make it: ivhl lock --torch {state.cell.torch}"
    elif state.stale(matrix):
        yield (
            f"the lock of {state.cell.id} is stale; make it again: "
            f"ivhl lock --torch {state.cell.torch}"
        )


def _forced(matrix: Matrix, first: LockState, second: LockState, name: str) -> str:
    """Return the matrix's reason for a package in only one lock; empty if it has none."""
    has, lacks = (first, second) if name in first.packages else (second, first)
    for row in matrix.forced:
        if (
            (row.torch, row.package) == (has.cell.torch, name)
            and has.cell.python in row.pythons
            and lacks.cell.python not in row.pythons
        ):
            return row.reason
    return ""


def _asked_by(name: str, first: LockState, second: LockState) -> str:
    asking = {
        f"{via} {state.packages[via]}" if via in state.packages else via
        for state in (first, second)
        for pin in state.pins
        if pin.name == name
        for via in pin.via
    }
    return "the release itself" if name == "torch" else f"required by {', '.join(sorted(asking))}"


def _other_files(first: LockState, second: LockState) -> Iterator[str]:
    """Yield packages of equal version whose locks have no file in common."""
    hashes = {(pin.name, pin.version): set(pin.hashes) for pin in first.pins}
    for pin in second.pins:
        others = hashes.get((pin.name, pin.version))
        if others is not None and not others & set(pin.hashes):
            yield f"{pin.name} {pin.version} has no hash in common in the two locks"
