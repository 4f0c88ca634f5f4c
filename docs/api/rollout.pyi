# Promised of ivhl.rollout (docs/api.md); python -m tests.contract.api writes it.
import contextlib
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal, overload

@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    n_channels: int = 3
    width: int = 64
    depth: int = 4
    norm: Norm = 'instance'
    n_groups: int = 8
    activation: Activation = 'gelu'
    boundary: Boundary = 'zeros'

    @property
    def widths(self) -> tuple[int, ...]:
        ...

    @property
    def n_weights(self) -> int:
        ...
@dataclass(frozen=True, slots=True)
class Policy:
    kind: PolicyKind = 'residual'
    value: float | None = None
@dataclass(frozen=True, slots=True)
class StepNoise:
    scale: float = 0.01
    seed: int = 0
def apply_operator(architecture: Architecture, parameters: Parameters, state: torch.Tensor) -> torch.Tensor:
    ...
def evolve(architecture: Architecture, parameters: Parameters, state: torch.Tensor, n_steps: int, *, policy: Policy | None=None, noise: StepNoise | None=None, precision: torch.dtype | None=None, compiled: bool=True, keep_every: int | None=None, memory_budget: int | None=None, operators_at_once: int | None=None, first_operator: int=0, check: bool=True) -> torch.Tensor:
    ...
def make_parameters(architecture: Architecture, generator: torch.Generator, *, n_operators: int=1) -> Parameters:
    ...
def make_step(architecture: Architecture, kind: PolicyKind, *, n_operators: int=1, precision: torch.dtype=torch.float32) -> Step:
    ...
def measure_drift(architecture: Architecture, parameters: Parameters, state: torch.Tensor, n_steps: int, *, precisions: Iterable[torch.dtype]=(torch.float32, torch.bfloat16), every: int=1, **options: Any) -> list[Drift]:
    ...
def profile(architecture: Architecture, parameters: Parameters, state: torch.Tensor, n_steps: int=10, *, n_kernels: int=5, **options: Any) -> list[Kernel]:
    ...
def rollout_loss(architecture: Architecture, parameters: Parameters, state: torch.Tensor, targets: torch.Tensor, *, policy: Policy | None=None, noise: StepNoise | None=None, precision: torch.dtype | None=None, compiled: bool=False, checkpointed: bool=True) -> torch.Tensor:
    ...
def select_precision(device: torch.device | str | None=None) -> torch.dtype:
    ...
