"""How a contestant gets its call, and who says whether its results are right.

Operations have one right answer: the workload's float64 reference (``ByReference``). Models with
weights of their own have none in common; ``studies.peers.potentials`` judges each by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch

from ivhl.measure.accuracy import flatten, judge_compiled, judge_eager
from ivhl.measure.case import SEED
from ivhl.measure.draws import cast
from ivhl.workload import resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ivhl.records import OutputError
    from ivhl.workload import Workload
    from studies.peers.suite import Peer

NAIVE = "naive, eager"
WARM_UP_CALLS = 3  # some libraries, and Dynamo, still work on the second one


@dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """What a peer is timed by.

    Attributes:
        call: Without arguments.
        n_weights: Numbers that were, or would be, trained; ``None`` where there are none.
    """

    call: Callable[[], Any]
    n_weights: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What was found.

    Attributes:
        passed: Whether the results are right.
        error: Root mean square error over the largest value, of the worst output; ``None`` where a
            result is not finite.
        reason: Why they are not right.
    """

    passed: bool
    error: float | None
    reason: str = ""


class Judge(Protocol):
    """Knows the inputs of one comparison. What a peer raises goes through."""

    def start(self, peer: Peer) -> Started:
        """Make the call of a peer."""
        ...

    def judge(self, peer: Peer, call: Callable[[], Any]) -> Verdict:
        """Call it a few times, as it is timed, and judge what it returns."""
        ...


class ByReference:
    """All must return what the workload's float64 reference returns, given its inputs.

    The rule is that for compiled code: at most two or three times the error of naive eager, and a
    small tolerance.

    Args:
        workload: Of the comparison.
        size: Of the workload.
    """

    def __init__(self, workload: Workload, size: str) -> None:
        drawn = resolve(workload.make_inputs)(
            workload.sizes[size], torch.Generator().manual_seed(SEED)
        )
        inputs = self._inputs = cast(drawn, getattr(torch, workload.dtype), torch.device("cpu"))
        exact = cast(inputs, torch.float64, torch.device("cpu"))
        eager = resolve(workload.eager)
        self._workload = workload
        self._naive: Callable[[], Any] = lambda: eager(*inputs)
        self._references = flatten(resolve(workload.reference)(*exact))
        self._errors = judge_eager(workload.outputs, flatten(self._naive()), self._references)

    def start(self, peer: Peer) -> Started:
        """Make the call of a peer from inputs of its own."""
        if peer.name == NAIVE:
            return Started(call=self._naive)
        inputs = cast(self._inputs, getattr(torch, self._workload.dtype), torch.device("cpu"))
        return Started(call=resolve(peer.make)(*inputs, **peer.arguments))

    def judge(self, peer: Peer, call: Callable[[], Any]) -> Verdict:
        """Call it a few times and compare the last result with the reference."""
        del peer  # all have the same reference
        for _ in range(WARM_UP_CALLS):
            call()
        judged = judge_compiled(
            self._errors,
            as_tensors(call(), self._errors),
            self._references,
            dtype=self._workload.dtype,
            tolerance=self._workload.tolerance,
        )
        error = _relative_error(judged)
        if all(output.passed for output in judged):
            return Verdict(passed=True, error=error)
        size = "not finite" if error is None else f"{error:.1e}"
        reason = f"relative error against float64: {size}"
        return Verdict(passed=False, error=error, reason=reason)


def as_tensors(outputs: Any, errors: Sequence[OutputError]) -> list[torch.Tensor]:  # noqa: ANN401
    """Return the outputs as tensors: of tensors, NumPy arrays or nested lists, one per name."""
    several = outputs if len(errors) > 1 else (outputs,)
    return [torch.as_tensor(output) for output in several]


def _relative_error(errors: Sequence[OutputError]) -> float | None:
    """Return the largest one, or ``None`` where one is not finite."""
    found = []
    for error in errors:
        if error.compiled_rmse is None:
            return None
        found.append(error.compiled_rmse / (error.scale or 1.0))
    return max(found)
