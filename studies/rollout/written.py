"""The rollout as a person writes it with PyTorch alone: modules, a loop, ``torch.compile``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable

    from ivhl.rollout.operator import Architecture, Parameters

NOISE: Final = 0.01


class WrittenOperator(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """The operator out of modules, as the original has it.

    Args:
        architecture: Its architecture; zeros are around the field.
        weights: Of one operator, from ``make_parameters`` without the leading axis.
        noisy: Whether to add noise to the features before the last layer, as the original does.
    """

    def __init__(self, architecture: Architecture, weights: Parameters, *, noisy: bool) -> None:
        super().__init__()
        self.noisy = noisy

        def convolution(name: str) -> nn.Module:
            weight = weights[name]
            n_out, n_in, size, _ = weight.shape
            made = nn.Conv2d(n_in, n_out, size, padding=size // 2, bias=name == "last")
            made.weight.data.copy_(weight)
            return made

        def layer(name: str) -> nn.Module:
            made = convolution(name)
            if architecture.norm == "instance":
                norm = nn.InstanceNorm2d(made.out_channels, affine=True)
            else:
                norm = nn.GroupNorm(architecture.n_groups, made.out_channels)
            norm.weight.data.copy_(weights[f"{name}.gain"])
            norm.bias.data.copy_(weights[f"{name}.shift"])
            return nn.Sequential(made, norm)

        blocks = [f"block{number}" for number in range(architecture.depth)]
        self.stem = layer("stem")
        self.first = nn.ModuleList(layer(f"{block}.first") for block in blocks)
        self.second = nn.ModuleList(layer(f"{block}.second") for block in blocks)
        self.project = nn.ModuleList(
            convolution(f"{block}.project") if f"{block}.project" in weights else nn.Identity()
            for block in blocks
        )
        self.last = convolution("last")
        self.last.bias.data.copy_(weights["last.shift"])
        by_tanh = architecture.activation == "gelu-tanh"
        self.gelu = nn.GELU(approximate="tanh" if by_tanh else "none")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output of the operator."""
        h = self.gelu(self.stem(x))
        for first, second, project in zip(self.first, self.second, self.project, strict=True):
            h = self.gelu(project(h) + second(self.gelu(first(h))))
        if self.noisy:
            # Drawn in float32 whatever the dtype is, so that float64 has the same.
            h = h + NOISE * torch.randn(h.shape, device=h.device).to(h.dtype)
        return self.last(h)


class WrittenStep(nn.Module):  # type: ignore[misc]
    """The residual step of an operator, with noise that was drawn before.

    Args:
        operator: The operator.
        dt: Number of the policy.
        precision: Precision of the operator; short ones by autocast.
    """

    def __init__(
        self, operator: nn.Module, dt: float, precision: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        self.operator = operator
        self.dt = dt
        self.precision = precision

    def forward(self, x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Return the next state."""
        if self.precision == torch.float32:
            return x + self.dt * (self.operator(x) + noise)
        with torch.autocast(x.device.type, dtype=self.precision):
            output = self.operator(x)
        return x + self.dt * (output.float() + noise)


def roll(
    step: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    start: torch.Tensor,
    n_steps: int,
) -> torch.Tensor:
    """Return the state after some steps ``(state, noise)``; noise is drawn before each."""
    device = start.device
    # Drawn on the device, as a person does: a copy from the CPU would be waited for in each step.
    generator = torch.Generator(device).manual_seed(0)
    x = start
    for _ in range(n_steps):
        noise = torch.randn(start.shape, generator=generator, device=device)
        x = step(x, NOISE * noise.to(start.dtype))
    return x


def roll_noisy(
    step: Callable[[torch.Tensor], torch.Tensor], start: torch.Tensor, n_steps: int
) -> torch.Tensor:
    """Return the state after some steps that draw their noise themselves."""
    torch.manual_seed(0)
    x = start
    for _ in range(n_steps):
        x = step(x)
    return x


def make_fourier(architecture: Architecture) -> tuple[nn.Module, int] | None:
    """Return neuraloperator's FNO with about as many weights, and their number.

    ``None`` where it is not installed. Two real numbers of a complex one count as two.
    """
    try:
        from neuralop.models import FNO  # noqa: PLC0415  (envs/rollout only)
    except ImportError:
        return None
    torch.manual_seed(0)
    made = [
        FNO(
            n_modes=(8, 8),
            in_channels=architecture.n_channels,
            out_channels=architecture.n_channels,
            hidden_channels=width,
            n_layers=architecture.depth,
        ).eval()
        for width in range(8, 65, 4)
    ]
    counted = [
        (one, sum(w.numel() * (2 if w.is_complex() else 1) for w in one.parameters()))
        for one in made
    ]
    return min(counted, key=lambda pair: abs(pair[1] - architecture.n_weights))
