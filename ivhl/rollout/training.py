"""Gradients through a rollout: activations of one step at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils.checkpoint import checkpoint

from ivhl.rollout.evolution import check_policy, check_precision, compiled_next, make_next
from ivhl.rollout.noise import NoiseSource
from ivhl.rollout.operator import (
    check_inputs,
    join_operators,
    joined,
    split_operators,
)

if TYPE_CHECKING:
    from ivhl.rollout.noise import StepNoise
    from ivhl.rollout.operator import Architecture, Parameters
    from ivhl.rollout.policy import Policy


def rollout_loss(
    architecture: Architecture,
    parameters: Parameters,
    state: torch.Tensor,
    targets: torch.Tensor,
    *,
    policy: Policy | None = None,
    noise: StepNoise | None = None,
    precision: torch.dtype | None = None,
    compiled: bool = False,
    checkpointed: bool = True,
) -> torch.Tensor:
    """Return the mean squared error of a trajectory, to be differentiated by its parameters.

    Args:
        architecture: The architecture of the operators.
        parameters: Their weights; autograd follows those that require a gradient.
        state: The initial state, as for ``evolve``.
        targets: The states after each step, shape ``[n_steps, *state.shape]``.
        policy: As for ``evolve``.
        noise: As for ``evolve``, with the same numbers.
        precision: As for ``evolve``; weights are converted in each step, so that their gradients
            stay in float32.
        compiled: Whether to compile a step, forward and backward.
        checkpointed: Whether to keep states only, and compute the activations of a step again in
            the backward pass: memory for one step in place of all, for another forward pass.

    Returns:
        A number.

    Raises:
        TypeError: If the policy or the noise is a plain name or number.
        ValueError: If a shape, a dtype or a device is wrong.
    """
    n_operators = check_inputs(architecture, parameters, state)
    precision = check_precision(precision, state)
    if targets.shape[1:] != state.shape or not len(targets):
        raise ValueError(
            f"targets must have shape [n_steps, {', '.join(map(str, state.shape))}] with at least "
            f"one step, got {list(targets.shape)}"
        )
    if (targets.dtype, targets.device) != (state.dtype, state.device):
        raise ValueError(
            f"targets must be {state.dtype} on {state.device} like the state, got {targets.dtype} "
            f"on {targets.device}"
        )
    policy = check_policy(policy, noise)
    if compiled:
        following = compiled_next(architecture, policy.kind, n_operators, precision)
    else:
        following = make_next(
            architecture, policy.kind, n_operators=n_operators, precision=precision
        )
    weights = join_operators(parameters)
    value = torch.tensor(policy.value, dtype=state.dtype, device=state.device)
    # With a gradient from the first step on, or compiled code would have that step twice.
    x = joined(state).detach().requires_grad_()
    members = [(operator, row) for row in range(state.shape[1]) for operator in range(n_operators)]
    source = None if noise is None else NoiseSource(noise, members, state.device)
    total = x.new_zeros(())
    for target in targets:
        drawn = None
        if source is not None:
            drawn = torch.empty_like(x)
            source.fill(drawn.unflatten(1, (n_operators, -1)).flatten(0, 1))
        if checkpointed:
            x = checkpoint(following, weights, x, value, drawn, use_reentrant=False)
        else:
            x = following(weights, x, value, drawn)
        total = total + (split_operators(x, n_operators) - target).square().mean()
    return total / len(targets)
