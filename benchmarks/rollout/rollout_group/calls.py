"""The forms of the rollout workload with group norms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from torch.nn.functional import conv2d, gelu, group_norm

from benchmarks.rollout.rollout_instance import DEPTH, DT, N_CHANNELS
from benchmarks.rollout.rollout_instance.calls import draw, evolution, naive
from ivhl.rollout.operator import Architecture

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.rollout.rollout_instance import Size
    from benchmarks.rollout.rollout_instance.calls import Evolve
    from ivhl.rollout.operator import Parameters

N_GROUPS: Final = 4


def architecture_of(width: int) -> Architecture:
    """Return the architecture with so many channels in the first layer."""
    return Architecture(
        n_channels=N_CHANNELS,
        width=width,
        depth=DEPTH,
        norm="group",
        n_groups=N_GROUPS,
        activation="gelu-tanh",
    )


def make_inputs(
    size: Size, generator: torch.Generator
) -> tuple[Parameters, torch.Tensor, torch.Tensor]:
    """Draw weights, initial states and the noise of every step, as ``rollout.instance`` does."""
    return draw(architecture_of(size.width), size, generator)


def steps(parameters: Parameters, state: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Return the states after all steps, as one would first write it: operator by operator."""
    return naive(_step)(parameters, state, noise)


def _step(p: Parameters, x: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
    def layer(name: str, h: torch.Tensor) -> torch.Tensor:
        h = conv2d(h, p[name], padding=1)
        return group_norm(h, N_GROUPS, p[f"{name}.gain"], p[f"{name}.shift"])

    h = gelu(layer("stem", x), approximate="tanh")
    for block in ("block0", "block1"):
        kept = conv2d(h, p[f"{block}.project"]) if f"{block}.project" in p else h
        inner = gelu(layer(f"{block}.first", h), approximate="tanh")
        h = gelu(kept + layer(f"{block}.second", inner), approximate="tanh")
    return x + DT * (conv2d(h, p["last"], p["last.shift"]) + drawn)


def make_naive(compiler: Callable[..., Any]) -> Evolve:
    """Return ``steps`` with the step compiled as it is: what one would write by hand."""
    return naive(compiler(_step))


def make_evolve(compiler: Callable[..., Any]) -> Evolve:
    """Return ``steps`` as ``ivhl.rollout.evolve`` takes them, with two buffers."""
    return evolution(compiler, architecture_of, precision=torch.float32)


def make_mixed(compiler: Callable[..., Any]) -> Evolve:
    """Return ``make_evolve`` with the operator in bfloat16 and the state in float32."""
    return evolution(compiler, architecture_of, precision=torch.bfloat16)


def make_joined(compiler: Callable[..., Any]) -> Evolve:
    """Return ``make_evolve`` with all operators at once, by grouped convolutions."""
    return evolution(compiler, architecture_of, precision=torch.float32, all_at_once=True)
