"""The precision of the operator, and how far it takes a trajectory from that in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch

from ivhl.device import autocast_dtype, get_device
from ivhl.rollout.evolution import evolve

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ivhl.rollout.operator import Architecture, Parameters

NAMES: Final = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def select_precision(device: torch.device | str | None = None) -> torch.dtype:
    """Return the precision in which a device computes convolutions fast.

    Args:
        device: Default: ``ivhl.device.get_device()``.

    Returns:
        bfloat16 or float16 where ``ivhl.device.autocast_dtype`` names one, else float32. It is the
        operator's: the state stays in float32, since in bfloat16 it stands still where an increment
        is less than a 256th of it.
    """
    return autocast_dtype(get_device() if device is None else device) or torch.float32


@dataclass(frozen=True, slots=True)
class Drift:
    """How far trajectories are from those in float64.

    Attributes:
        precision: Precision of the operator.
        steps: Numbers of steps at which they were compared.
        relative: At each, the root mean square of the difference over that of the float64 state
            less its mean over rows and columns; 1 and more: nothing is left of the trajectory,
            also where that state is the same everywhere (infinite). 0 where nothing differs.
        largest: At each, the largest difference.
    """

    precision: torch.dtype
    steps: tuple[int, ...]
    relative: tuple[float, ...]
    largest: tuple[float, ...]


def measure_drift(
    architecture: Architecture,
    parameters: Parameters,
    state: torch.Tensor,
    n_steps: int,
    *,
    precisions: Iterable[torch.dtype] = (torch.float32, torch.bfloat16),
    every: int = 1,
    **options: Any,  # noqa: ANN401  (those of evolve)
) -> list[Drift]:
    """Return the drift of trajectories in short precisions from the eager one in float64.

    Args:
        architecture: The architecture of the operators.
        parameters: Their weights, as for ``evolve``.
        state: The initial state, as for ``evolve``.
        n_steps: Length of the trajectories.
        precisions: Precisions of the operator; the state is float32 in all.
        every: Compare after each so many steps.
        **options: Other arguments of ``evolve``, such as ``policy`` and ``noise``.

    Raises:
        ValueError: If an argument of ``evolve`` is wrong.
    """
    single = {name: values.float() for name, values in parameters.items()}
    # The float64 run starts from the rounded numbers: the drift is that of computing.
    double = {name: values.double() for name, values in single.items()}
    start = state.float()
    exact = evolve(
        *(architecture, double, start.double(), n_steps),
        **{**options, "keep_every": every, "precision": torch.float64, "compiled": False},
    )
    scale = _rms(exact - exact.mean((-2, -1), keepdim=True))
    found = []
    for precision in precisions:
        kept = evolve(
            *(architecture, single, start, n_steps),
            **{**options, "keep_every": every, "precision": precision},
        )
        apart = kept.double() - exact
        difference = _rms(apart)
        found.append(
            Drift(
                precision=precision,
                steps=tuple(range(0, n_steps + 1, every)),
                relative=tuple((difference / scale).where(difference > 0.0, 0.0).tolist()),
                largest=tuple(apart.abs().amax((1, 2, 3, 4, 5)).tolist()),
            )
        )
    return found


def _rms(states: torch.Tensor) -> torch.Tensor:
    return states.square().mean((1, 2, 3, 4, 5)).sqrt()
