"""Random training loops, run as they are and in a block of hot paths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F  # noqa: N812  (as everywhere)

from ivhl import hotpath

if TYPE_CHECKING:
    from collections.abc import Callable

    from ivhl.hotpath.report import HotpathReport

WIDTH = 6
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "relu in place": lambda x: F.relu(x, inplace=True),
    "tanh": torch.tanh,
    "gelu": F.gelu,
    "dropout": lambda x: F.dropout(x, 0.3),
    "norm": lambda x: F.layer_norm(x, (WIDTH,)),
    "gate": lambda x: x * torch.sigmoid(x),
    "clamp": lambda x: x.clamp(-1, 1),
}
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.001),
}
# What a loop does beside its steps.
EXTRAS = (
    *("an operation before", "a run before", "a metric", "a penalty", "an evaluation"),
    *("clipping", "a schedule", "gradients that add up", "zeroing first", "batches of two sizes"),
)


@dataclass(frozen=True)
class TrainingLoop:
    """A training loop.

    Attributes:
        layers: The activation of each layer.
        has_buffers: Whether a batch norm follows the layers.
        extras: Of ``EXTRAS``.
    """

    layers: tuple[str, ...]
    optimizer: str
    has_buffers: bool
    extras: frozenset[str]
    steps: int
    threshold: int
    seed: int


def training_loops() -> st.SearchStrategy[TrainingLoop]:
    """Return a strategy of loops."""
    return st.builds(
        TrainingLoop,
        layers=st.lists(st.sampled_from(sorted(ACTIVATIONS)), min_size=1, max_size=3).map(tuple),
        optimizer=st.sampled_from(sorted(OPTIMIZERS)),
        has_buffers=st.booleans(),
        extras=st.frozensets(st.sampled_from(EXTRAS)),
        steps=st.integers(6, 16),
        threshold=st.sampled_from([2, 3, 4, 5, 10]),
        seed=st.integers(0, 99),
    )


class _Net(nn.Module):  # type: ignore[misc]  # torch is only in the cells
    def __init__(self, loop: TrainingLoop) -> None:
        super().__init__()
        # In float64, since AdamW makes a step of a gradient that is nothing but rounding.
        self.layers = nn.ModuleList(
            nn.Linear(WIDTH, WIDTH, dtype=torch.float64) for _ in loop.layers
        )
        self.activations = [ACTIVATIONS[name] for name in loop.layers]
        self.last = nn.BatchNorm1d(WIDTH, dtype=torch.float64) if loop.has_buffers else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer, activation in zip(self.layers, self.activations, strict=True):
            x = activation(layer(x))
        return x if self.last is None else self.last(x)


class _Training:
    """A run of a loop.

    Attributes:
        kept: What it kept so far.
    """

    def __init__(self, loop: TrainingLoop) -> None:
        torch.manual_seed(loop.seed)
        self.extras = loop.extras
        self.net = _Net(loop)
        self.optimizer = OPTIMIZERS[loop.optimizer](self.net.parameters())
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 5)
        sizes = (5, 7) if "batches of two sizes" in loop.extras else (5,)
        self.batches = [torch.randn(2, n, WIDTH, dtype=torch.float64).unbind() for n in sizes]
        self.kept: list[torch.Tensor] = []

    def evaluate(self) -> None:
        """Keep a number of the model."""
        self.net.eval()
        self.kept.append(torch.tensor(self.net(self.batches[0][0]).sum().item()))
        self.net.train()

    def differentiate(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the loss."""
        out = self.net(x)
        loss = F.mse_loss(out, y)
        if "a penalty" in self.extras:
            loss = loss + 0.01 * sum((one**2).sum() for one in self.net.parameters())
        loss.backward()
        if "a metric" in self.extras:
            self.kept.append((out.detach() - y).abs().mean())
        return loss

    def step(self, number: int) -> None:
        """Make a step of the optimizer."""
        x, y = self.batches[number % len(self.batches)]
        if "zeroing first" in self.extras:
            self.optimizer.zero_grad()
        loss = self.differentiate(x, y)
        if "gradients that add up" in self.extras:
            loss = self.differentiate(x, y)
        if "clipping" in self.extras:
            nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optimizer.step()
        if "zeroing first" not in self.extras:
            self.optimizer.zero_grad()
        if "a schedule" in self.extras:
            self.schedule.step()
        self.kept.append(loss.detach() if number % 2 else torch.tensor(loss.item()))


def run_training(loop: TrainingLoop) -> list[torch.Tensor]:
    """Return everything that the loop kept, and parameters and buffers."""
    run = _Training(loop)
    if "an operation before" in loop.extras:
        run.kept.append((run.batches[0][0] * 2).mean())
    if "a run before" in loop.extras:
        run.evaluate()
    for number in range(loop.steps):
        run.step(number)
        if "an evaluation" in loop.extras and number % 4 == 3:
            for _ in range(3):
                run.evaluate()
    return [*run.kept, *run.net.state_dict().values()]


def check_training(loop: TrainingLoop) -> HotpathReport:
    """Compare a loop in a block with the same loop without one; return the report.

    Compiled steps of AdamW take powers of its betas in float32.
    """
    expected = run_training(loop)
    with hotpath.auto(threshold=loop.threshold) as report:
        got = run_training(loop)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-6)
    return report
