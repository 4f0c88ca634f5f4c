"""Judge and time ours, the naive code and every peer on the same inputs, in one process."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Literal

import torch

from ivhl.compile import measuring
from ivhl.measure.accuracy import flatten, judge_compiled, judge_eager
from ivhl.measure.case import SEED, cast
from ivhl.measure.intervals import paired_ratio
from ivhl.measure.job import choose_clock
from ivhl.measure.timing import time_arms
from ivhl.peers.suite import Peer
from ivhl.workload import resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ivhl.measure.timing import Effort
    from ivhl.peers.suite import Comparison
    from ivhl.records import Arm, Interval, OutputError
    from ivhl.workload import Workload

NAIVE = "naive, eager"
WARM_UP_CALLS = 3  # some libraries, and Dynamo, still work on the second one


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One way to compute one operation.

    Attributes:
        packages: Distribution to version.
        status: ``wrong`` is too far from the float64 reference, ``unavailable`` does not run here.
        reason: Why it is not ok.
        error: Root mean square error over the reference's largest value, of the worst output.
        arm: Times; ``None`` unless ok.
        speedup: Time of this row over ours: how many times as fast ours is. ``None`` for ours.
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
    note: str = ""


@dataclass(kw_only=True, slots=True)
class _Contestant:
    peer: Peer
    call: Callable[[], Any] | None = None
    status: Literal["ok", "wrong", "unavailable"] = "ok"
    reason: str = ""
    error: float | None = None


def compare(comparison: Comparison, size: str, *, effort: Effort) -> list[Row]:
    """Return a row for ours, one for the naive code, and one for each peer.

    Whatever a contestant raises makes its own row unavailable, and when it raises only while all are
    timed, which take turns, everybody's. Everything is judged before it is
    timed and after it, against the float64 reference, by the rule for compiled code: at most two or
    three times the error of naive eager, and a small tolerance.

    Args:
        comparison: What to compare.
        size: Of the workload.
        effort: How long to time all of them together.
    """
    workload = comparison.workload
    naive = Peer(name=NAIVE, make=workload.eager)
    contestants = [_Contestant(peer=p) for p in (comparison.ours, naive, *comparison.peers)]
    ours, baseline, *_ = contestants
    try:
        generator = torch.Generator().manual_seed(SEED)
        drawn = resolve(workload.make_inputs)(workload.sizes[size], generator)
        cpu = torch.device("cpu")
        inputs = cast(drawn, getattr(torch, workload.dtype), cpu)
        references = flatten(resolve(workload.reference)(*cast(inputs, torch.float64, cpu)))
        eager = resolve(workload.eager)
        baseline.call = lambda: eager(*inputs)
        errors = judge_eager(workload.outputs, flatten(baseline.call()), references)
    except Exception as error:  # noqa: BLE001  (whatever it is, nothing can be judged without it)
        reason = f"the naive code or its reference fails: {_told(error)}"
        return [
            _row(comparison, size, _Contestant(peer=c.peer, status="unavailable", reason=reason))
            for c in contestants
        ]

    def judge(contestant: _Contestant) -> None:
        _judge(contestant, workload, errors, references)

    # What a library prints while it compiles is not part of the table.
    with measuring(), contextlib.redirect_stdout(sys.stderr):
        for contestant in contestants:
            if contestant is not baseline:
                _start(contestant, cast(inputs, getattr(torch, workload.dtype), cpu))
            judge(contestant)
        calls = {c.peer.name: c.call for c in contestants if c.call and c.status == "ok"}
        clock = choose_clock("cpu", 1)
        try:
            arms = time_arms(calls, clock=clock, effort=effort, seed=SEED) if calls else {}
        except Exception as error:  # noqa: BLE001  (the next comparison may well work)
            arms = {}
            for contestant in contestants:
                if contestant.status == "ok":
                    contestant.status = "unavailable"
                    contestant.reason = f"while it was timed with the others: {_told(error)}"
        for contestant in contestants:
            if contestant.status == "ok":
                judge(contestant)
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


def _judge(
    contestant: _Contestant,
    workload: Workload,
    errors: Sequence[OutputError],
    references: Sequence[torch.Tensor],
) -> None:
    """Call it a few times and compare the last result with the reference."""
    if contestant.call is None:
        return
    try:
        for _ in range(WARM_UP_CALLS):
            contestant.call()
        judged = judge_compiled(
            errors,
            as_tensors(contestant.call(), errors),
            references,
            dtype=workload.dtype,
            tolerance=workload.tolerance,
        )
    except Exception as error:  # noqa: BLE001  (a row that says so)
        contestant.status, contestant.reason = "unavailable", _told(error)
        return
    contestant.error = _relative_error(judged)
    if not all(error.passed for error in judged):
        contestant.status = "wrong"
        size = "not finite" if contestant.error is None else f"{contestant.error:.1e}"
        contestant.reason = f"relative error against float64: {size}"


def as_tensors(outputs: Any, errors: Sequence[OutputError]) -> list[torch.Tensor]:  # noqa: ANN401
    """Return the outputs as tensors: of tensors, NumPy arrays or nested lists, one per name."""
    several = outputs if len(errors) > 1 else (outputs,)
    return [torch.as_tensor(output) for output in several]


def _start(contestant: _Contestant, inputs: Sequence[Any]) -> None:
    """Make the call of a contestant; whatever it raises is why it has none."""
    peer = contestant.peer
    try:
        contestant.call = resolve(peer.make)(*inputs, **peer.arguments)
    except Exception as error:  # noqa: BLE001  (a row that says so)
        contestant.status, contestant.reason = "unavailable", _told(error)


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
        note=peer.note,
    )


def installed_version(package: str) -> str:
    """Return the version of a distribution, ``not installed`` if it is not there."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _relative_error(errors: Sequence[OutputError]) -> float | None:
    """Return the largest one, or ``None`` where one is not finite."""
    found = []
    for error in errors:
        if error.compiled_rmse is None:
            return None
        found.append(error.compiled_rmse / (error.scale or 1.0))
    return max(found)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
