"""Decide whether two runs can be compared, for gate, comparisons and series alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from ivhl.instrument import describe_instrument
from ivhl.tracker.store.entries import Made, Run, code_of, made_of

if TYPE_CHECKING:
    from collections.abc import Iterable


BUILDS_UNKNOWN: Final = (
    "the records do not say how these Pythons were built, which may change speed"
)
Axis = Literal["commit", "torch", "python", "machine", "results", "flags"]


def differences(before: Run, after: Run, axis: Axis) -> list[str]:
    """Return what else differs, beside the compared field and what follows from it.

    Another PyTorch or Python has another lock and other packages. Along all but commits and stored
    results, both must be of the same code.
    """
    old, new = made_of(before), made_of(after)
    (was, benchmark), (now, other_benchmark) = code_of(before), code_of(after)
    of_one_code = axis in ("commit", "results") or was == now
    if old == new and of_one_code and benchmark == other_benchmark:
        return []
    pairs: dict[str, tuple[object, ...]] = {
        "instrument": (describe_instrument(old.instrument), describe_instrument(new.instrument)),
        "threads": (old.threads, new.threads),
        "clock": (old.clock, new.clock),
        "container": tuple("no" if made.image is None else "yes" for made in (old, new)),
    }
    if axis != "flags":
        flags = (" ".join(old.flags) or "none", " ".join(new.flags) or "none")
        pairs["compiler flags"] = flags
    same_cell = axis not in ("torch", "python")
    if same_cell:
        pairs["lock"] = (_short(old.lock), _short(new.lock))
    if not of_one_code:
        pairs["commit"] = (before.commit[:8], after.commit[:8])
    if benchmark and other_benchmark:  # older records count the benchmark in ``sources``
        pairs["benchmark"] = (_short(benchmark), _short(other_benchmark))
    found = [f"{name} {a} before, {b} now" for name, (a, b) in pairs.items() if a != b]
    # Along Pythons, or machines, it always is another one.
    built = "" if axis in ("python", "machine") else other_build(before, after)
    found += filter(None, [built])
    if not same_cell:
        return found
    if old.lock is None and old.packages != new.packages:
        changed = sorted(set(old.packages) ^ set(new.packages))
        found.append(f"packages of the existing environment: {', '.join(changed[:4])}")
    return found + _other_wheels(old, new)


def other_build(before: Run, after: Run) -> str:
    """Return how the Pythons of two runs were built, if in two ways; else, or if unknown, empty.

    Between two Pythons this is no reason not to compare them: they are always of two builds. But
    what is said of their versions holds for these builds of them.
    """
    was, now = made_of(before).python_build, made_of(after).python_build
    if was is None or now is None or was == now:
        return ""
    return f"Python built with {was} before, with {now} now"


def builds_beside(pairs: Iterable[tuple[Run, ...]]) -> list[str]:
    """Return what is to know of the builds of Pythons beside what is said of their versions.

    Args:
        pairs: Runs on two Pythons each, the earlier Python first.
    """
    found: dict[str, None] = {}
    for before, after in pairs:
        if None in (made_of(before).python_build, made_of(after).python_build):
            found[BUILDS_UNKNOWN] = None
        elif built := other_build(before, after):
            found[f"these builds, not only these versions: {built}"] = None
    return list(found)


def _other_wheels(old: Made, new: Made) -> list[str]:
    """Return the packages with the same version but other wheel files.

    Other versions already show as a difference of lock or packages. A wheel that one of the two
    records does not list is no difference.
    """
    was = {(name, version): digest for name, version, digest in old.wheels}
    return [
        f"{name} {version} wheel: same version, other files"
        for name, version, digest in new.wheels
        if digest is not None and was.get((name, version)) not in (None, digest)
    ]


def _short(digest: str | None) -> str:
    return "none" if digest is None else digest[:12]
