"""The policies: how the next state follows from the state and what the operator makes of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, get_args

if TYPE_CHECKING:
    import torch

PolicyKind = Literal["autoregressive", "residual", "convex"]
DEFAULT_VALUE: Final[dict[PolicyKind, float]] = {
    "autoregressive": 0.0,
    "residual": 0.01,
    "convex": 0.5,
}


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy and its number.

    Attributes:
        kind: ``autoregressive``: the output is the next state. ``residual``: state + ``value`` *
            output, an explicit step of time ``value``. ``convex``: ``value`` * state +
            (1 - ``value``) * output; 1 keeps the state.
        value: Any number for ``residual``, one in ``[0, 1]`` for ``convex``; ``None``: 0.01 and 0.5.
            ``autoregressive`` has none.

    Raises:
        ValueError: If the kind is unknown, or the value is not one of its.

    Source:
        ``src/spinlock/rollout`` of dgabriele/spinlock. Its strategy document has the convex policy
        the other way round, ``alpha`` * output + (1 - ``alpha``) * state.
    """

    kind: PolicyKind = "residual"
    value: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(PolicyKind):
            known = ", ".join(get_args(PolicyKind))
            raise ValueError(f"the policy must be one of {known}, got {self.kind!r}")
        if self.value is None:
            object.__setattr__(self, "value", DEFAULT_VALUE[self.kind])
        try:
            value = float(self.value or 0.0)
        except (TypeError, ValueError):
            raise ValueError(
                f"the value of a policy must be a number, got {self.value!r}"
            ) from None
        object.__setattr__(self, "value", value)
        if not math.isfinite(value):
            raise ValueError(f"the value of a policy must be finite, got {self.value}")
        if self.kind == "autoregressive" and value:
            raise ValueError(f"the policy autoregressive has no value, got {self.value}")
        if self.kind == "convex" and not 0.0 <= value <= 1.0:
            raise ValueError(f"the value of a convex policy must be in [0, 1], got {self.value}")


def update(
    kind: PolicyKind, state: torch.Tensor, output: torch.Tensor, value: torch.Tensor
) -> torch.Tensor:
    """Return the next state.

    Args:
        kind: A constant of compiled code: one graph for each.
        state: The state, any shape.
        output: What the operator made of it, same shape and dtype.
        value: The policy's number as a tensor without axes, so that another number is not another
            graph, as a Python number would be.
    """
    if kind == "autoregressive":
        return output
    if kind == "residual":
        return state + value * output
    # Not output + value * (state - output): of an output much larger than the state, 1 would keep
    # nothing of the state.
    return value * state + (1.0 - value) * output
