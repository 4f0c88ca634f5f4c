"""The forms of the rollout workload with instance norms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from torch.nn.functional import conv2d, gelu, instance_norm

from benchmarks.rollout.rollout_instance import DEPTH, DT, N_CHANNELS
from ivhl.rollout.evolution import make_next, make_step, prepare_weights
from ivhl.rollout.operator import (
    Architecture,
    join_operators,
    joined,
    make_parameters,
    split_operators,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.rollout.rollout_instance import Size
    from ivhl.rollout.operator import Parameters

    Evolve = Callable[[Parameters, torch.Tensor, torch.Tensor], torch.Tensor]

NOISE: Final = 0.01


def architecture_of(width: int) -> Architecture:
    """Return the architecture with so many channels in the first layer."""
    return Architecture(n_channels=N_CHANNELS, width=width, depth=DEPTH, norm="instance")


def make_inputs(
    size: Size, generator: torch.Generator
) -> tuple[Parameters, torch.Tensor, torch.Tensor]:
    """Draw weights, initial states and the noise of every step.

    Returns:
        Weights of ``make_parameters``; states ``[n_operators, n_realisations, 3, n_rows, n_rows]``
        of unit variance; noise with a leading axis for the steps, of 0.01; float64.
    """
    return draw(architecture_of(size.width), size, generator)


def draw(
    architecture: Architecture, size: Size, generator: torch.Generator
) -> tuple[Parameters, torch.Tensor, torch.Tensor]:
    """Draw the inputs for an architecture."""
    parameters = make_parameters(architecture, generator, n_operators=size.n_operators)
    shape = (size.n_operators, size.n_realisations, N_CHANNELS, size.n_rows, size.n_rows)
    state = torch.randn(shape, dtype=torch.float64, generator=generator)
    noise = torch.randn((size.n_steps, *shape), dtype=torch.float64, generator=generator)
    return parameters, state, NOISE * noise


def steps(parameters: Parameters, state: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Return the states after all steps, as one would first write it: operator by operator."""
    ends = []
    for number in range(state.shape[0]):
        p = {name: values[number] for name, values in parameters.items()}
        x = state[number]
        for drawn in noise[:, number]:
            x = x + DT * (_operator(p, x) + drawn)
        ends.append(x)
    return torch.stack(ends)


def _operator(p: Parameters, x: torch.Tensor) -> torch.Tensor:
    def layer(name: str, h: torch.Tensor) -> torch.Tensor:
        h = conv2d(h, p[name], padding=1)
        return instance_norm(h, weight=p[f"{name}.gain"], bias=p[f"{name}.shift"])

    h = gelu(layer("stem", x))
    for block in ("block0", "block1"):
        kept = conv2d(h, p[f"{block}.project"]) if f"{block}.project" in p else h
        h = gelu(kept + layer(f"{block}.second", gelu(layer(f"{block}.first", h))))
    return conv2d(h, p["last"], p["last.shift"])


def make_naive(compiler: Callable[..., Any]) -> Evolve:
    """Return ``steps`` with the step compiled as it is: what one would write by hand."""
    return naive(compiler(lambda p, x, drawn: x + DT * (_operator(p, x) + drawn)))


def naive(step: Callable[..., torch.Tensor]) -> Evolve:
    """Return the evolution by a step ``(parameters, state, noise)`` of one operator."""

    def evolve(parameters: Parameters, state: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        ends = []
        for number in range(state.shape[0]):
            p = {name: values[number] for name, values in parameters.items()}
            x = state[number]
            for drawn in noise[:, number]:
                x = step(p, x, drawn)
            ends.append(x.clone())  # the next replay of a CUDA graph overwrites it
        return torch.stack(ends)

    return evolve


def make_evolve(compiler: Callable[..., Any]) -> Evolve:
    """Return ``steps`` as ``ivhl.rollout.evolve`` takes them, with two buffers."""
    return evolution(compiler, architecture_of, precision=torch.float32)


def make_mixed(compiler: Callable[..., Any]) -> Evolve:
    """Return ``make_evolve`` with the operator in bfloat16 and the state in float32."""
    return evolution(compiler, architecture_of, precision=torch.bfloat16)


def evolution(
    compiler: Callable[..., Any],
    architecture_at: Callable[[int], Architecture],
    *,
    precision: torch.dtype,
    all_at_once: bool = False,
) -> Evolve:
    """Return the evolution by compiled steps.

    On a CPU one operator after the other unless ``all_at_once``, each step into one of two buffers;
    elsewhere all at once, without buffers.
    """
    kept: dict[int, Callable[..., Any]] = {}

    def evolve(parameters: Parameters, state: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        n_operators = state.shape[0]
        on_cpu = state.device.type == "cpu"
        at_once = 1 if on_cpu and not all_at_once else n_operators
        width = parameters["stem"].shape[1]
        if width not in kept:
            make = make_step if on_cpu else make_next
            kept[width] = compiler(
                make(
                    architecture_at(width),
                    "residual",
                    n_operators=at_once,
                    precision=precision,
                )
            )
        value = torch.tensor(DT, device=state.device)
        ends = []
        for first in range(0, n_operators, at_once):
            some = slice(first, first + at_once)
            here = {name: values[some].float() for name, values in parameters.items()}
            weights = prepare_weights(here, precision)
            now = joined(state[some].float()).clone()
            # Joined for all steps: a call has few, and evolve draws into a buffer.
            noises = noise[:, some].float().transpose(1, 2).flatten(2, 3).contiguous()
            if on_cpu:
                after = torch.empty_like(now)
                for drawn in noises:
                    kept[width](weights, now, value, drawn, after)
                    now, after = after, now
            else:
                for drawn in noises:
                    now = kept[width](weights, now, value, drawn)
            ends.append(split_operators(now, at_once))
        return torch.cat(ends)

    return evolve


def make_exported(compiler: Callable[..., Any]) -> Evolve:
    """Return ``steps`` with the step of one operator as PyTorch exports it, for AOTInductor."""
    return exported(compiler, architecture_of)


def exported(
    compiler: Callable[..., Any], architecture_at: Callable[[int], Architecture]
) -> Evolve:
    """Return the evolution by an exported step; its weights are inputs, as everywhere here."""
    kept: dict[int, Callable[..., torch.Tensor]] = {}

    def evolve(parameters: Parameters, state: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        width = parameters["stem"].shape[1]
        names = list(parameters)
        if width not in kept:
            following = make_next(architecture_at(width), "residual")
            kept[width] = compiler(
                lambda x, value, drawn, *weights: following(
                    dict(zip(names, weights, strict=True)), x, value, drawn
                )
            )
        value = torch.tensor(DT, dtype=state.dtype, device=state.device)
        ends = []
        for number in range(state.shape[0]):
            here = {name: values[number : number + 1] for name, values in parameters.items()}
            weights = join_operators(here)
            x = state[number].clone()
            for drawn in noise[:, number]:
                x = kept[width](x, value, drawn.contiguous(), *weights.values())
            ends.append(x)
        return torch.stack(ends)

    return evolve
