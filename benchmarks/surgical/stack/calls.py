"""The forms of the stack of layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import gelu, layer_norm, linear

from ivhl.surgical.configuration import StackConfiguration
from ivhl.surgical.operations import make_angles
from ivhl.surgical.plan import PLANS, choose_operations, facts_of, plain_operations
from ivhl.surgical.stack import apply_stack, make_weights

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.surgical.stack import Size

    Weights = dict[str, torch.Tensor]
    Stack = Callable[[Weights, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def make_inputs(
    size: Size, generator: torch.Generator
) -> tuple[Weights, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draw weights and tokens, and make the tables of RoPE.

    Returns:
        Weights of ``make_weights``; tokens ``[n_batch, n_tokens, n_hidden]`` of unit variance;
        cosines and sines ``[n_tokens, n_head / 2]``; float64.
    """
    configuration = size.configuration
    weights = make_weights(configuration, generator)
    shape = (size.n_batch, size.n_tokens, size.n_hidden)
    x = torch.randn(shape, dtype=torch.float64, generator=generator)
    tables = make_angles(size.n_tokens, configuration.n_head, dtype=torch.float64)
    return weights, x, *tables


def stack(
    weights: Weights, x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor
) -> torch.Tensor:
    """Return the tokens after all layers, as one would first write it."""
    n_head = 2 * cosines.shape[-1]
    width = x.shape[-1]
    for layer in range(len(weights) // 8):
        w = {
            name.partition(".")[2]: v
            for name, v in weights.items()
            if name.startswith(f"{layer}.")
        }
        h = layer_norm(x, (width,), w["first.gain"], w["first.shift"])
        qkv = linear(h, w["qkv"]).unflatten(-1, (3, -1, n_head)).permute(2, 0, 3, 1, 4)
        q, k = (_rope(one, cosines, sines) for one in (qkv[0], qkv[1]))
        scores = torch.matmul(q, k.transpose(-2, -1)) / n_head**0.5
        heads = torch.matmul(scores.softmax(-1), qkv[2]).transpose(1, 2).flatten(2)
        x = x + linear(heads, w["out"])
        h = layer_norm(x, (width,), w["second.gain"], w["second.shift"])
        x = x + linear(gelu(linear(h, w["up"])), w["down"])
    return x


def _rope(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    even, odd = x[..., 0::2], x[..., 1::2]
    pairs = [even * cosines - odd * sines, even * sines + odd * cosines]
    return torch.stack(pairs, dim=-1).flatten(-2)


def make_surgical(compiler: Callable[..., Any]) -> Stack:
    """Return ``stack`` with split, RoPE and combine compiled, as the document has it."""
    return planned(compiler, "surgical")


def make_pointwise(compiler: Callable[..., Any]) -> Stack:
    """Return ``stack`` with norm, activation and residual compiled, too."""
    return planned(compiler, "pointwise")


def make_sdpa(compiler: Callable[..., Any]) -> Stack:
    """Return ``stack`` with fused attention, and neighbours in one graph."""
    return planned(compiler, "sdpa")


def planned(compiler: Callable[..., Any], plan: str) -> Stack:
    """Return ``stack`` by a plan that compiles operations."""
    kept: dict[tuple[int, ...], tuple[int, Any]] = {}

    def run(
        weights: Weights, x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor
    ) -> torch.Tensor:
        shape = (len(weights), x.shape[-1], cosines.shape[-1])
        if shape not in kept:
            configuration = configuration_of(weights, x, cosines)
            operations = choose_operations(configuration, PLANS[plan], compiler)
            kept[shape] = configuration.n_layers, operations
        return apply_stack(*kept[shape], weights, x, (cosines, sines))

    return run


def make_whole(compiler: Callable[..., Any]) -> Stack:
    """Return ``stack`` as one graph with fused attention: the best that one compiles by hand."""
    kept: dict[tuple[int, ...], Stack] = {}

    def run(
        weights: Weights, x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor
    ) -> torch.Tensor:
        shape = (len(weights), x.shape[-1], cosines.shape[-1])
        if shape not in kept:
            kept[shape] = compiler(_one_graph(configuration_of(weights, x, cosines)))
        return kept[shape](weights, x, cosines, sines)

    return run


def _one_graph(configuration: StackConfiguration) -> Stack:
    n_layers, facts = configuration.n_layers, facts_of(configuration)

    def whole(
        weights: Weights, x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor
    ) -> torch.Tensor:
        operations = plain_operations(*facts, attention="sdpa")  # traced, so not guarded
        return apply_stack(n_layers, operations, weights, x, (cosines, sines))

    return whole


def configuration_of(
    weights: Weights, x: torch.Tensor, cosines: torch.Tensor
) -> StackConfiguration:
    """Return the architecture that inputs belong to."""
    width = x.shape[-1]
    return StackConfiguration(
        n_layers=len(weights) // 8,
        n_hidden=width,
        n_heads=width // (2 * cosines.shape[-1]),
        n_inner=weights["0.up"].shape[0],
    )
