"""Measure the phases of the rollout's strategy, each on top of the one before, in one process.

``python -m studies.rollout`` prints a table; ``--export FILE`` keeps its figures. docs/rollout.md
explains them. With neuraloperator installed, its FNO of as many weights is timed, too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn

from ivhl.compile import get_compiled, measuring
from ivhl.git import current_commit
from ivhl.measure.engine import export
from ivhl.rollout.evolution import make_next, make_step, prepare_weights
from ivhl.rollout.operator import Architecture, join_operators, make_parameters
from studies.throughput import time_arms

if TYPE_CHECKING:
    from collections.abc import Callable

    from ivhl.rollout.operator import Parameters

    Arm = Callable[[], list[torch.Tensor]]

SCHEMA: Final = "ivhl.rollout-study/1"
DT: Final = 0.01
NOISE: Final = 0.01
FIRST: Final = "eager"
BY_HAND: Final = "torch.compile by hand, noise drawn before"


class Written(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """The operator as the original has it, out of modules.

    Args:
        architecture: Its architecture; the norm is an instance norm.
        noisy: Whether to add noise to the features before the last layer, as the original does.
    """

    def __init__(self, architecture: Architecture, *, noisy: bool) -> None:
        super().__init__()
        self.noisy = noisy

        def layer(before: int, after: int) -> nn.Module:
            return nn.Sequential(
                nn.Conv2d(before, after, 3, padding=1, bias=False),
                nn.InstanceNorm2d(after, affine=True),
            )

        widths = architecture.widths
        self.stem = layer(architecture.n_channels, widths[0])
        pairs = list(pairwise(widths))
        self.first = nn.ModuleList(layer(a, b) for a, b in pairs)
        self.second = nn.ModuleList(layer(b, b) for _, b in pairs)
        self.project = nn.ModuleList(
            nn.Identity() if a == b else nn.Conv2d(a, b, 1, bias=False) for a, b in pairs
        )
        self.last = nn.Conv2d(widths[-1], architecture.n_channels, 1)
        self.gelu = nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output of the operator."""
        h = self.gelu(self.stem(x))
        for first, second, project in zip(self.first, self.second, self.project, strict=True):
            h = self.gelu(project(h) + second(self.gelu(first(h))))
        if self.noisy:
            h = h + NOISE * torch.randn_like(h)
        return self.last(h)


def make_arms(
    architecture: Architecture, *, batch: int, large_batch: int, n_rows: int
) -> dict[str, tuple[Arm, int]]:
    """Return what is timed: a step of each phase, and how many realisations it makes.

    Args:
        architecture: Architecture of the operators, with an instance norm.
        batch: Realisations of all phases but the last.
        large_batch: Realisations of the phase of batching.
        n_rows: Rows and columns of the field.
    """
    generator = torch.Generator().manual_seed(0)
    value = torch.tensor(DT)

    def fields(n: int) -> torch.Tensor:
        shape = (n, architecture.n_channels, n_rows, n_rows)
        return torch.randn(shape, generator=generator)

    x, noise = fields(batch), NOISE * fields(batch)
    torch.manual_seed(0)
    noisy, written = (Written(architecture, noisy=n).eval() for n in (True, False))

    def original(state: torch.Tensor) -> torch.Tensor:
        return state + DT * noisy(state)

    def by_hand(state: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
        return state + DT * (written(state) + drawn)

    compiled = torch.compile(original, fullgraph=True, dynamic=False)
    hand = torch.compile(by_hand, fullgraph=True, dynamic=False)
    arms: dict[str, tuple[Arm, int]] = {
        FIRST: (lambda: [original(x)], batch),
        "+ torch.compile of it": (lambda: [compiled(x)], batch),
    }

    def ours(one: Architecture, precision: torch.dtype, n: int) -> Arm:
        parameters = {k: v.float() for k, v in make_parameters(one, generator).items()}
        weights = prepare_weights(parameters, precision)
        step = get_compiled(
            make_step(one, "residual", precision=precision), fullgraph=True, dynamic=False
        )
        now, after = fields(n), torch.empty(n, one.n_channels, n_rows, n_rows)
        # Drawn in the loop, as evolve does.
        drawn = torch.empty_like(now)
        source = torch.Generator().manual_seed(1)

        def call() -> list[torch.Tensor]:
            torch.randn(drawn.shape, generator=source, out=drawn)
            step(weights, now, value, drawn.mul_(NOISE), after)
            return [after]

        return call

    short = torch.bfloat16
    chosen = Architecture(
        n_channels=architecture.n_channels,
        width=architecture.width,
        depth=architecture.depth,
        norm="group",
        n_groups=min(8, architecture.width),
        activation="gelu-tanh",
    )
    arms["+ noise drawn before the step (ivhl.rollout)"] = (
        ours(architecture, torch.float32, batch),
        batch,
    )
    arms["+ bfloat16, state in float32"] = (ours(architecture, short, batch), batch)
    arms["+ group norm, GELU by tanh: another model"] = (ours(chosen, short, batch), batch)
    arms[f"+ {large_batch} realisations at once"] = (ours(chosen, short, large_batch), large_batch)
    arms[BY_HAND] = (lambda: [hand(x, noise)], batch)
    arms["AOTInductor of the step of ivhl.rollout"] = (
        _exported(architecture, x, value, noise, generator),
        batch,
    )
    return arms | _fourier(architecture, x)


def _exported(
    architecture: Architecture,
    x: torch.Tensor,
    value: torch.Tensor,
    noise: torch.Tensor,
    generator: torch.Generator,
) -> Arm:
    drawn = {k: v.float() for k, v in make_parameters(architecture, generator).items()}
    weights: Parameters = join_operators(drawn)
    names = list(weights)
    following = make_next(architecture, "residual")

    def flat(*inputs: torch.Tensor) -> torch.Tensor:
        return following(dict(zip(names, inputs[3:], strict=True)), *inputs[:3])

    inputs = (x, value, noise, *weights.values())
    run = export(flat, inputs)
    return lambda: [run(*inputs)]


def _fourier(architecture: Architecture, x: torch.Tensor) -> dict[str, tuple[Arm, int]]:
    """Return neuraloperator's FNO with about as many weights; nothing where it is missing."""
    try:
        from neuralop.models import FNO  # noqa: PLC0415  (in no lock)
    except ImportError:
        return {}
    n_channels, n_modes = architecture.n_channels, 8

    def made(hidden: int) -> Any:  # noqa: ANN401  (a module of neuraloperator)
        return FNO(
            n_modes=(n_modes, n_modes),
            in_channels=n_channels,
            out_channels=n_channels,
            hidden_channels=hidden,
            n_layers=architecture.depth,
        ).eval()

    def weights_of(model: Any) -> int:  # noqa: ANN401
        return sum(p.numel() for p in model.parameters())

    nearest = min(range(8, 65, 4), key=lambda n: abs(weights_of(made(n)) - architecture.n_weights))
    model = made(nearest)
    name = f"neuraloperator FNO, {weights_of(model):,} weights, eager"
    return {name: (lambda: [x + DT * model(x)], len(x))}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m studies.rollout", description=__doc__)
    parser.add_argument("--features", type=int, default=16, help="channels of the first layer")
    parser.add_argument("--rows", type=int, default=64, help="rows and columns of the field")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--large-batch", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--least-seconds", type=float, default=0.1, help="duration of a sample")
    parser.add_argument("--machine", default=os.uname().nodename, metavar="NAME")
    parser.add_argument("--export", type=Path, metavar="FILE", help="write the figures as JSON")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    architecture = Architecture(width=arguments.features)
    began = time.monotonic()
    with measuring(), torch.no_grad():
        arms = make_arms(
            architecture,
            batch=arguments.batch,
            large_batch=arguments.large_batch,
            n_rows=arguments.rows,
        )
        samples = time_arms(
            {name: arm for name, (arm, _) in arms.items()},
            device=torch.device("cpu"),
            rounds=arguments.rounds,
            least_s=arguments.least_seconds,
        )
    each = {name: [s / arms[name][1] for s in found] for name, found in samples.items()}
    rows = []
    print(f"torch {torch.__version__}, one thread, {architecture.n_weights:,} weights")
    for name, seconds in each.items():
        ratios = [a / b for a, b in zip(each[FIRST], seconds, strict=True)]
        low, _, _, high = statistics.quantiles(ratios, n=5)
        row: dict[str, Any] = {
            "name": name,
            "seconds": statistics.median(seconds),
            "speedup": statistics.median(ratios),
            "low": low,
            "high": high,
            "by_hand": statistics.median(
                a / b for a, b in zip(each[BY_HAND], seconds, strict=True)
            ),
        }
        print(f"{name:<46}{1e3 * row['seconds']:>9.2f} ms{row['speedup']:>7.2f}x"
              f"{row['by_hand']:>7.2f}x by hand")  # fmt: skip
        rows.append(row)
    if arguments.export:
        about = {
            "schema": SCHEMA,
            "commit": current_commit(Path.cwd()),
            "machine": {"name": arguments.machine},
            "torch": torch.__version__,
            "features": arguments.features,
            "n_rows": arguments.rows,
            "batch": arguments.batch,
            "n_weights": architecture.n_weights,
            "load_average": os.getloadavg()[0],
            "took_s": round(time.monotonic() - began),
            "rows": rows,
        }
        arguments.export.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
