"""Check and time our operation and every peer on the same inputs, in one process."""

from __future__ import annotations

import contextlib
import sys
import warnings
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Literal

from ivhl.compile import CompileFallbackWarning, measuring
from ivhl.measure.case import SEED
from ivhl.measure.intervals import paired_ratio
from ivhl.measure.job import choose_clock
from ivhl.measure.timing import time_arms
from studies.peers.judging import NAIVE, ByReference
from studies.peers.potentials import ByItself
from studies.peers.suite import Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ivhl.measure.timing import Effort
    from ivhl.records import Arm, Interval
    from ivhl.workload import Workload
    from studies.peers.judging import Judge, Started
    from studies.peers.suite import Comparison

_JUDGES: Mapping[str, Callable[[Workload, str], Judge]] = {
    "reference": ByReference,
    "itself": ByItself,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One way to compute one operation.

    Attributes:
        packages: Distribution to version.
        status: ``wrong`` is too far from the float64 numbers, ``unavailable`` does not run here.
        reason: Why it is not ok.
        error: Root mean square error over the largest value of what is right, of the worst output.
        arm: Times; ``None`` unless ok.
        speedup: Time of this row over ours: how many times as fast ours is. ``None`` for ours.
        n_weights: Of a model that has some of its own.
        note: What one has to know to read the row.
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
class _Contestant:
    peer: Peer
    started: Started | None = None
    status: Literal["ok", "wrong", "unavailable"] = "ok"
    reason: str = ""
    error: float | None = None


def compare(comparison: Comparison, size: str, *, effort: Effort) -> list[Row]:
    """Return a row for ours, one for the naive code if any, and one per peer.

    Whatever a contestant raises makes its own row unavailable, and when it raises only while all are
    timed, which take turns, everybody's. Everything is judged before it is
    timed and after it (``studies.peers.judging``).

    Args:
        comparison: What to compare.
        size: Of the workload.
        effort: How long to time all of them together.
    """
    workload = comparison.workload
    naive = (Peer(name=NAIVE, make=workload.eager),) if comparison.judged == "reference" else ()
    contestants = [_Contestant(peer=p) for p in (comparison.ours, *naive, *comparison.peers)]
    ours = contestants[0]
    try:
        judge = _JUDGES[comparison.judged](workload, size)
    except Exception as error:  # noqa: BLE001  (whatever it is, nothing can be judged without it)
        reason = f"the naive code or its reference fails: {_told(error)}"
        return [
            _row(comparison, size, _Contestant(peer=c.peer, status="unavailable", reason=reason))
            for c in contestants
        ]

    # What a library prints while it compiles is not part of the table. What it warns of, hundreds of
    # times, would hide it; that something of ours runs eagerly has to be seen.
    with measuring(), contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("default", CompileFallbackWarning)
        for contestant in contestants:
            _start(contestant, judge)
            _judge(contestant, judge)
        calls = {
            c.peer.name: c.started.call for c in contestants if c.started and c.status == "ok"
        }
        clock = choose_clock("cpu", 1)
        try:
            times = time_arms(calls, clock=clock, effort=effort, seed=SEED) if calls else {}
            arms = {name: timed.arm() for name, timed in times.items()}
        except Exception as error:  # noqa: BLE001  (the next comparison may well work)
            arms = {}
            for contestant in contestants:
                if contestant.status == "ok":
                    contestant.status = "unavailable"
                    contestant.reason = f"while it was timed with the others: {_told(error)}"
        for contestant in contestants:
            _judge(contestant, judge)
    return [
        _row(
            comparison,
            size,
            contestant,
            arm=arms.get(contestant.peer.name),
            ours=arms.get(ours.peer.name) if ours.status == "ok" else None,
        )
        for contestant in contestants
    ]


def _start(contestant: _Contestant, judge: Judge) -> None:
    """Make the call of a contestant; if that raises, record the reason."""
    try:
        contestant.started = judge.start(contestant.peer)
    except Exception as error:  # noqa: BLE001  (a row that says so)
        contestant.status, contestant.reason = "unavailable", _told(error)


def _judge(contestant: _Contestant, judge: Judge) -> None:
    """Judge what is still in the race."""
    if contestant.started is None or contestant.status != "ok":
        return
    try:
        verdict = judge.judge(contestant.peer, contestant.started.call)
    except Exception as error:  # noqa: BLE001  (a row that says so)
        contestant.status, contestant.reason = "unavailable", _told(error)
        return
    contestant.error = verdict.error
    if not verdict.passed:
        contestant.status, contestant.reason = "wrong", verdict.reason


def _row(
    comparison: Comparison,
    size: str,
    contestant: _Contestant,
    *,
    arm: Arm | None = None,
    ours: Arm | None = None,
) -> Row:
    peer = contestant.peer
    arm = arm if contestant.status == "ok" else None
    compared = arm is not None and ours is not None and peer is not comparison.ours
    return Row(
        operation=comparison.workload.name,
        size=size,
        name=peer.name,
        packages={name: installed_version(name) for name in peer.packages},
        status=contestant.status,
        reason=contestant.reason,
        error=contestant.error,
        arm=arm,
        speedup=paired_ratio(arm.samples_s, ours.samples_s) if compared and arm and ours else None,
        n_weights=contestant.started.n_weights if contestant.started else None,
        note=peer.note,
    )


def installed_version(package: str) -> str:
    """Return the version of a distribution, or ``not installed``."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
