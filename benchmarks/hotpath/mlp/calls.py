"""The training step without its optimizer, as one would first write it, and its compiled forms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional as F  # noqa: N812  (as everywhere)

from benchmarks.hotpath.mlp import WIDTHS

if TYPE_CHECKING:
    from collections.abc import Callable

    Weights = tuple[torch.Tensor, ...]
    Found = tuple[torch.Tensor, ...]
    Step = Callable[[Weights, torch.Tensor, torch.Tensor], Found]


def make_inputs(
    n_batch: int, generator: torch.Generator
) -> tuple[Weights, torch.Tensor, torch.Tensor]:
    """Draw weights and biases ``[n_out, n_in]``, ``[n_out]`` of both layers, samples and targets."""

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=generator)

    wide, hidden, out = WIDTHS
    weights = (
        draw(hidden, wide) / wide**0.5,
        0.1 * draw(hidden),
        draw(out, hidden) / hidden**0.5,
        0.1 * draw(out),
    )
    return weights, draw(n_batch, wide), draw(n_batch, out)


def loss_of(weights: Weights, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the mean squared error of the perceptron."""
    w1, b1, w2, b2 = weights
    predicted = F.linear(torch.relu(F.linear(x, w1, b1)), w2, b2)
    return ((predicted - y) ** 2).mean()


def loss_and_gradients(weights: Weights, x: torch.Tensor, y: torch.Tensor) -> Found:
    """Return the loss and its gradients by leaves."""
    loss = loss_of(weights, x, y)
    return loss, *torch.autograd.grad(loss, weights)


def of_leaves(differentiated: Step) -> Step:
    """Return a step that is given plain tensors: it makes the leaves, as a model has them."""

    def run(weights: Weights, x: torch.Tensor, y: torch.Tensor) -> Found:
        loss, *gradients = differentiated(
            tuple([one.detach().requires_grad_() for one in weights]), x, y
        )
        return loss.detach(), *gradients

    return run


def step(weights: Weights, x: torch.Tensor, y: torch.Tensor) -> Found:
    """Return the loss and the gradients by both weights and biases."""
    return of_leaves(loss_and_gradients)(weights, x, y)


def make_naive(compiler: Callable[..., Any]) -> Step:
    """Return the step with a compiled loss: what one would write by hand."""
    compiled = compiler(loss_of)

    def differentiated(weights: Weights, x: torch.Tensor, y: torch.Tensor) -> Found:
        loss = compiled(weights, x, y)
        return loss, *torch.autograd.grad(loss, weights)

    return of_leaves(differentiated)


def make_hot(compiler: Callable[..., Any]) -> Step:
    """Return the step of which forward and backward pass are in the block of hot paths."""
    return of_leaves(compiler(loss_and_gradients))
