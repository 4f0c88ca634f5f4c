"""Check and time our operation and every peer on the same inputs, in one process."""

from __future__ import annotations

import contextlib
import sys
import warnings
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Literal

from ivhl.compile import CompileFallbackWarning, measuring
from ivhl.measure.imports import SEED
from ivhl.measure.intervals import paired_ratio
from ivhl.measure.job import choose_clock
from ivhl.measure.timing import time_arms
from studies.peers.judging import NAIVE, ByReference
from studies.peers.potentials import ByItself
from studies.peers.suite import Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ivhl.measure.timing import Schedule
    from ivhl.records.record import Arm, Interval
    from ivhl.workload import Workload
    from studies.peers.judging import Judge, Started
    from studies.peers.suite import PeerComparison

_JUDGES: Mapping[str, Callable[[Workload, str], Judge]] = {
    "reference": ByReference,
    "itself": ByItself,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class PeerRow:
    """The result of one implementation of one operation.

    Attributes:
        packages: Distribution to version.
        status: ``wrong``: too far from the float64 reference; ``unavailable``: does not run here.
        reason: Why the status is not ``ok``.
        error: Root mean square error over the largest value of the reference, of the worst output.
        arm: Times; ``None`` unless the status is ``ok``.
        speedup: Time of this row over ours: how many times as fast ours is. ``None`` for ours.
        n_weights: Number of weights, for models.
        note: Remark that the table prints for this row.
    """

    operation: str
    size: str
    name: str
    packages: dict[str, str] = field(default_factory=dict)
    status: Literal["ok", "wrong", "unavailable"] = "ok"
    reason: str = ""
    error: float | None = None
    arm: Arm | None = None
    speedup: Interval | None = None
    n_weights: int | None = None
    note: str = ""


@dataclass(kw_only=True, slots=True)
class _PeerEntry:
    """One implementation during a comparison."""

    peer: Peer
    started: Started | None = None
    status: Literal["ok", "wrong", "unavailable"] = "ok"
    reason: str = ""
    error: float | None = None


def compare(comparison: PeerComparison, size: str, *, schedule: Schedule) -> list[PeerRow]:
    """Return a row for ours, one for the naive code if any, and one per peer.

    An exception makes the row of that implementation ``unavailable``. An exception while all are
    timed, interleaved, makes all rows ``unavailable``. Each is judged before and after the timing
    (``studies.peers.judging``).

    Args:
        comparison: PeerComparison to run.
        size: Name of a size of the workload.
        schedule: How long to time all of them together.
    """
    workload = comparison.workload
    naive = (Peer(name=NAIVE, make=workload.eager),) if comparison.judged == "reference" else ()
    entries = [_PeerEntry(peer=p) for p in (comparison.ours, *naive, *comparison.peers)]
    ours = entries[0]
    try:
        judge = _JUDGES[comparison.judged](workload, size)
    except Exception as error:  # noqa: BLE001  (without these, nothing can be judged)
        reason = f"the naive code or its reference fails: {_text_of(error)}"
        return [
            _row(comparison, size, _PeerEntry(peer=c.peer, status="unavailable", reason=reason))
            for c in entries
        ]

    # Output of libraries, e.g. while they compile, must not mix with the table, and hundreds of
    # warnings would hide it. But a fallback of our own code to eager must be visible.
    with measuring(), contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("default", CompileFallbackWarning)
        for entry in entries:
            _start(entry, judge)
            _judge(entry, judge)
        calls = {c.peer.name: c.started.call for c in entries if c.started and c.status == "ok"}
        clock = choose_clock("cpu", 1)
        try:
            times = time_arms(calls, clock=clock, schedule=schedule, seed=SEED) if calls else {}
            arms = {name: timed.arm() for name, timed in times.items()}
        except Exception as error:  # noqa: BLE001  (the next comparison may work)
            arms = {}
            for entry in entries:
                if entry.status == "ok":
                    entry.status = "unavailable"
                    entry.reason = f"while it was timed with the others: {_text_of(error)}"
        for entry in entries:
            _judge(entry, judge)
    return [
        _row(
            comparison,
            size,
            entry,
            arm=arms.get(entry.peer.name),
            ours=arms.get(ours.peer.name) if ours.status == "ok" else None,
        )
        for entry in entries
    ]


def _start(entry: _PeerEntry, judge: Judge) -> None:
    """Make the call of an entry; if that raises, record the reason."""
    try:
        entry.started = judge.start(entry.peer)
    except Exception as error:  # noqa: BLE001  (the row shows it)
        entry.status, entry.reason = "unavailable", _text_of(error)


def _judge(entry: _PeerEntry, judge: Judge) -> None:
    """Judge the results of an entry, unless it failed already."""
    if entry.started is None or entry.status != "ok":
        return
    try:
        verdict = judge.judge(entry.peer, entry.started.call)
    except Exception as error:  # noqa: BLE001  (the row shows it)
        entry.status, entry.reason = "unavailable", _text_of(error)
        return
    entry.error = verdict.error
    if not verdict.passed:
        entry.status, entry.reason = "wrong", verdict.reason


def _row(
    comparison: PeerComparison,
    size: str,
    entry: _PeerEntry,
    *,
    arm: Arm | None = None,
    ours: Arm | None = None,
) -> PeerRow:
    peer = entry.peer
    arm = arm if entry.status == "ok" else None
    compared = arm is not None and ours is not None and peer is not comparison.ours
    return PeerRow(
        operation=comparison.workload.name,
        size=size,
        name=peer.name,
        packages={name: installed_version(name) for name in peer.packages},
        status=entry.status,
        reason=entry.reason,
        error=entry.error,
        arm=arm,
        speedup=paired_ratio(arm.samples_s, ours.samples_s) if compared and arm and ours else None,
        n_weights=entry.started.n_weights if entry.started else None,
        note=peer.note,
    )


def installed_version(package: str) -> str:
    """Return the version of a distribution, or ``not installed``."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _text_of(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
