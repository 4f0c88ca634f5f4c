"""Make the calls of peers, and judge their results.

For operations, the workload's float64 reference is the correct result (``ByReference``). Models with
different weights have no common result; ``studies.peers.potentials`` judges each by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch

from ivhl.measure.accuracy import judge_compiled, judge_eager
from ivhl.measure.draws import cast
from ivhl.measure.imports import SEED
from ivhl.measure.leaves import leaves_of
from ivhl.workload import resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ivhl.records.record import OutputError
    from ivhl.workload import Workload
    from studies.peers.suite import Peer

NAIVE = "naive, eager"
WARM_UP_CALLS = 3  # some libraries, and Dynamo, still compile during the second call


@dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """A peer that is ready to be timed.

    Attributes:
        call: Function without arguments, which is timed.
        n_weights: Number of trainable weights; ``None`` without weights.
    """

    call: Callable[[], Any]
    n_weights: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """The verdict on the results of a peer.

    Attributes:
        passed: Whether the results are correct.
        error: Root mean square error over the largest value, of the worst output; ``None`` if a
            result is not finite.
        reason: Why they are not correct.
    """

    passed: bool
    error: float | None
    reason: str = ""


class Judge(Protocol):
    """Judges the peers of one comparison; does not catch their exceptions."""

    def start(self, peer: Peer) -> Started:
        """Make the call of a peer."""
        ...

    def judge(self, peer: Peer, call: Callable[[], Any]) -> Judgement:
        """Run the call a few times, as in the timing, and judge its results."""
        ...


class ByReference:
    """Compares all peers with the workload's float64 reference.

    The rule is that for compiled code: at most two or three times the error of naive eager, plus a
    small tolerance.

    Args:
        workload: Workload of the comparison.
        size: Name of a size of the workload.
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
        """Make the call of a peer with its own copy of the inputs."""
        if peer.name == NAIVE:
            return Started(call=self._naive)
        inputs = cast(self._inputs, getattr(torch, self._workload.dtype), torch.device("cpu"))
        return Started(call=resolve(peer.make)(*inputs, **peer.arguments))

    def judge(self, peer: Peer, call: Callable[[], Any]) -> Judgement:
        """Run the call a few times, and compare the last result with the reference."""
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
            return Judgement(passed=True, error=error)
        size = "not finite" if error is None else f"{error:.1e}"
        reason = f"relative error against float64: {size}"
        return Judgement(passed=False, error=error, reason=reason)


def as_tensors(outputs: Any, errors: Sequence[OutputError]) -> list[torch.Tensor]:  # noqa: ANN401
    """Return the outputs, which may be tensors, NumPy arrays or nested lists, as tensors."""
    several = outputs if len(errors) > 1 else (outputs,)
    return [torch.as_tensor(output) for output in several]


def _relative_error(errors: Sequence[OutputError]) -> float | None:
    """Return the largest relative error; ``None`` if one is not finite."""
    found = []
    for error in errors:
        if error.compiled_rmse is None:
            return None
        found.append(error.compiled_rmse / (error.scale or 1.0))
    return max(found)


def flatten(outputs: Any) -> list[torch.Tensor]:  # noqa: ANN401  (any pytree)
    """Return all tensors of a pytree, in order.

    Raises:
        ValueError: If it has no tensor.
    """
    tensors = list(leaves_of(outputs).tensors.values())
    if not tensors:
        raise ValueError(f"no tensor among the outputs (got {type(outputs).__name__})")
    return tensors
