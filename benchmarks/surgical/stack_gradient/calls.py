"""The forms of the gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from benchmarks.surgical.stack import calls

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.surgical.stack import Size
    from benchmarks.surgical.stack.calls import Stack, Weights

    Gradients = tuple[torch.Tensor, ...]

# The last of these that the backward pass reaches are those of the first layer.
BY: Final = ("0.qkv", "0.first.gain", "0.down")


def make_inputs(
    size: Size, generator: torch.Generator
) -> tuple[Weights, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draw the inputs of ``surgical.stack``, and a projection of the tokens.

    Returns:
        Those inputs; a projection of their shape, divided by the root of the number of tokens.
    """
    inputs = calls.make_inputs(size, generator)
    shape = inputs[1].shape
    drawn = torch.randn(shape, dtype=torch.float64, generator=generator)
    return *inputs, drawn / (shape[0] * shape[1]) ** 0.5


def gradient(
    weights: Weights,
    x: torch.Tensor,
    cosines: torch.Tensor,
    sines: torch.Tensor,
    projection: torch.Tensor,
) -> Gradients:
    """Return the gradients by tokens and the weights ``BY``, as one would first write it."""
    return differentiated(calls.stack)(weights, x, cosines, sines, projection)


def differentiated(stack: Stack) -> Callable[..., Gradients]:
    """Return the gradients of a form of the stack; all weights require one, as in training."""

    def run(
        weights: Weights,
        x: torch.Tensor,
        cosines: torch.Tensor,
        sines: torch.Tensor,
        projection: torch.Tensor,
    ) -> Gradients:
        leaves = {name: w.detach().requires_grad_() for name, w in weights.items()}
        tokens = x.detach().requires_grad_()
        loss = (stack(leaves, tokens, cosines, sines) * projection).sum()
        found = torch.autograd.grad(loss, [tokens, *leaves.values()])
        by_name = dict(zip(leaves, found[1:], strict=True))
        return found[0], *(by_name[name] for name in BY)

    return run


def make_naive(compiler: Callable[..., Any]) -> Callable[..., Gradients]:
    """Return the gradients of the stack compiled as it is: what one would write by hand."""
    return differentiated(compiler(calls.stack))


def make_sdpa(compiler: Callable[..., Any]) -> Callable[..., Gradients]:
    """Return the gradients of the stack by the plan ``sdpa``."""
    return differentiated(calls.make_sdpa(compiler))
