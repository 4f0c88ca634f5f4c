"""Time ``TransformerStack(plan="whole")`` beside a module that a person compiles by hand.

``python -m studies.surgical_module`` prints both at two sizes, in inference and with gradients.
Both have the same weights, and Inductor makes the same kernels for both. The difference is what each
call costs beside them: guards, hooks, the check of the shape.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from benchmarks.surgical.stack.reference import reference
from ivhl.compile import choose_cache_folder
from ivhl.measure.launcher import ALLOCATOR
from ivhl.measure.timing import FULL, QUICK
from ivhl.surgical import StackConfiguration, TransformerStack, make_angles
from ivhl.surgical.configuration import SIZES
from ivhl.surgical.stack import make_weights
from studies.surgical_parts import SEED, compare

MEASURED: Final = ("small", "medium")


class Layer(nn.Module):  # type: ignore[misc]
    """A layer as a person writes it."""

    def __init__(self, n_hidden: int, n_heads: int, n_inner: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.first, self.second = nn.LayerNorm(n_hidden), nn.LayerNorm(n_hidden)
        self.qkv = nn.Linear(n_hidden, 3 * n_hidden, bias=False)
        self.out = nn.Linear(n_hidden, n_hidden, bias=False)
        self.up = nn.Linear(n_hidden, n_inner, bias=False)
        self.down = nn.Linear(n_inner, n_hidden, bias=False)

    def forward(self, x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
        """Return the tokens after the layer."""
        n_batch, n_tokens, n_hidden = x.shape
        qkv = self.qkv(self.first(x)).view(n_batch, n_tokens, 3, self.n_heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)

        def rotate(x: torch.Tensor) -> torch.Tensor:
            even, odd = x[..., 0::2], x[..., 1::2]
            pairs = (even * cosines - odd * sines, even * sines + odd * cosines)
            return torch.stack(pairs, dim=-1).flatten(-2)

        heads = scaled_dot_product_attention(rotate(q), rotate(k), v)
        x = x + self.out(heads.transpose(1, 2).reshape(n_batch, n_tokens, n_hidden))
        return x + self.down(gelu(self.up(self.second(x))))


class Stack(nn.Module):  # type: ignore[misc]
    """Layers in a row, with tables for the tokens that it is given."""

    def __init__(self, configuration: StackConfiguration, n_tokens: int) -> None:
        super().__init__()
        width = (configuration.n_hidden, configuration.n_heads, configuration.n_inner)
        self.layers = nn.ModuleList(Layer(*width) for _ in range(configuration.n_layers))
        cosines, sines = make_angles(n_tokens, configuration.n_head)
        self.register_buffer("cosines", cosines)
        self.register_buffer("sines", sines)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the tokens after all layers."""
        for layer in self.layers:
            x = layer(x, self.cosines, self.sines)
        return x


def load(stack: Stack, weights: dict[str, torch.Tensor]) -> None:
    """Copy weights of ``make_weights``."""
    names = {"gain": "weight", "shift": "bias"}
    state = {}
    for name, values in weights.items():
        layer, _, rest = name.partition(".")
        part, _, kind = rest.partition(".")
        state[f"layers.{layer}.{part}.{names.get(kind, 'weight')}"] = values
    stack.load_state_dict(stack.state_dict() | state)


def time_module(size: str, *, gradient: bool, threads: int, quick: bool) -> list[dict[str, Any]]:
    """Time both forms; with ``gradient``, forward and backward pass together."""
    chosen = SIZES[size]
    configuration = chosen.configuration
    generator = torch.Generator().manual_seed(SEED)
    weights = make_weights(configuration, generator)
    shape = (chosen.n_batch, chosen.n_tokens, configuration.n_hidden)
    x = torch.randn(shape, dtype=torch.float64, generator=generator).float()
    single = {name: values.float() for name, values in weights.items()}
    plain = Stack(configuration, chosen.n_tokens)
    load(plain, single)
    ours = TransformerStack(configuration, "whole")
    ours.load_weights(single)
    exact = reference(
        {name: values.double() for name, values in single.items()},
        x.double(),
        *make_angles(chosen.n_tokens, configuration.n_head, dtype=torch.float64),
    )

    def timed(module: nn.Module) -> Any:  # noqa: ANN401  (a function of the tokens)
        def step(x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = module(x)
            y.sum().backward()
            return y.detach()

        return step if gradient else module

    by_hand = torch.compile(plain, fullgraph=True)
    forms = {"eager": timed(plain), "by hand": timed(by_hand), "TransformerStack": timed(ours)}
    with torch.set_grad_enabled(gradient):
        return compare(
            *(forms, (x,), exact),
            threads=threads, schedule=QUICK if quick else FULL, hand="by hand",
        )  # fmt: skip


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m studies.surgical_module")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a second in place of six: a trial")
    parser.add_argument("--export", type=Path, metavar="FILE", help="write all of it as JSON")
    options = parser.parse_args()
    if "GLIBC_TUNABLES" not in os.environ:  # as cases of the suite are measured
        os.execve(  # noqa: S606  (this program)
            sys.executable,
            [sys.executable, "-m", "studies.surgical_module", *sys.argv[1:]],
            os.environ | {"GLIBC_TUNABLES": ALLOCATOR},
        )
    torch.set_num_threads(options.threads)
    choose_cache_folder()
    found: dict[str, Any] = {
        "torch": torch.__version__.partition("+")[0],
        "python": platform.python_version(),
        "threads": options.threads,
        "quick": options.quick,
        "load": [round(os.getloadavg()[0], 1)],
    }
    for size in MEASURED:
        for what in ("layers", "gradient"):
            print(f"{what}, {size}", flush=True)
            found[f"{what}, {size}"] = time_module(
                size,
                gradient=what == "gradient",
                threads=options.threads,
                quick=options.quick,
            )
    found["load"].append(round(os.getloadavg()[0], 1))
    if options.export:
        options.export.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
