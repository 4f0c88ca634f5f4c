"""Whether two records can be compared: the one answer for gate, comparisons and series."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ivhl.instrument import describe_instrument
from ivhl.records.store import is_existing

if TYPE_CHECKING:
    from ivhl.records.record import Conditions, RunRecord

Axis = Literal["commit", "torch", "python", "machine", "results"]


def differences(before: RunRecord, after: RunRecord, axis: Axis) -> list[str]:
    """Return what else differs, beside the compared field and what follows from it.

    Another PyTorch or Python has another lock and other packages. Along all but commits and stored
    results, both records must be of the same code.
    """
    old, new = before.conditions, after.conditions
    pairs: dict[str, tuple[object, ...]] = {
        "instrument": (describe_instrument(old.instrument), describe_instrument(new.instrument)),
        "threads": (old.threads, new.threads),
        "clock": (old.clock, new.clock),
        "container": tuple("no" if c.image is None else "yes" for c in (old, new)),
    }
    same_cell = axis not in ("torch", "python")
    if same_cell:
        pairs["lock"] = (_short(before.cell.lock_sha256), _short(after.cell.lock_sha256))
    if axis not in ("commit", "results") and (
        (before.sources or before.commit) != (after.sources or after.commit)
    ):
        pairs["commit"] = (before.commit[:8], after.commit[:8])
    if before.benchmark and after.benchmark:  # older records count the benchmark in ``sources``
        pairs["benchmark"] = (_short(before.benchmark), _short(after.benchmark))
    found = [f"{name} {a} before, {b} now" for name, (a, b) in pairs.items() if a != b]
    if not same_cell:
        return found
    if is_existing(before) and old.packages != new.packages:
        changed = sorted(set(old.packages) ^ set(new.packages))
        found.append(f"packages of the existing environment: {', '.join(changed[:4])}")
    return found + _other_wheels(old, new)


def _other_wheels(old: Conditions, new: Conditions) -> list[str]:
    """Return the packages with the same version but other wheel files.

    Other versions already show as a difference of lock or packages. A wheel that one of the two
    records does not list is no difference.
    """
    was = {(wheel.name, wheel.version): wheel for wheel in old.wheels or ()}
    pairs = ((was.get((wheel.name, wheel.version)), wheel) for wheel in new.wheels or ())
    return [
        f"{now.name} {now.version} wheel: same version, other files"
        for before, now in pairs
        if before is not None and None not in (hashes := (before.record_sha256, now.record_sha256))
        if len(set(hashes)) > 1
    ]


def _short(digest: str | None) -> str:
    return "none" if digest is None else digest[:12]
