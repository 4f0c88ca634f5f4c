# Promised of ivhl.surgical (docs/api.md); python -m tests.contract.api writes it.
import contextlib
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal, overload

@dataclass(frozen=True, slots=True, kw_only=True)
class CompilePlan:
    compiled: frozenset[Operation] = frozenset()
    attention: AttentionKind = 'softmax'
    fused: bool = False
    whole: bool = False
class Fp8Linear(nn.Module):

    def __init__(self, n_in: int, n_out: int, *, recipe: ScalingRecipe | None=None, kernel: Fp8Kernel | None=None, compiler: Compiler | None=None) -> None:
        ...

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ...

    def extra_repr(self) -> str:
        ...
PLANS: Final[dict[str, CompilePlan]]
SIZES: Final[dict[str, StackSize]]
@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRecipe:
    history: int = 16
    amax: AmaxChoice = 'max'
    margin: int = 0
@dataclass(frozen=True, slots=True, kw_only=True)
class StackConfiguration:
    n_layers: int = 4
    n_hidden: int = 2048
    n_heads: int = 16
    n_inner: int = 4096
    norm: NormKind = 'layer'
    activation: ActivationKind = 'gelu'
    causal: bool = False
    eps: float = 1e-05
    base: float = 10000.0

    @property
    def n_head(self) -> int:
        ...

    @property
    def linears(self) -> WeightShapes:
        ...

    @property
    def norms(self) -> WeightShapes:
        ...

    @property
    def shapes(self) -> WeightShapes:
        ...

    def flops(self, n_batch: int, n_tokens: int) -> float:
        ...
class TransformerStack(nn.Module):

    def __init__(self, configuration: StackConfiguration, plan: CompilePlan | str='sdpa', *, linear: LinearKind='linear', recipe: ScalingRecipe | None=None, n_positions: int=2048, compiler: Compiler=compile_static) -> None:
        ...

    def load_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        ...

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ...
def choose_operations(configuration: StackConfiguration, plan: CompilePlan, compiler: Compiler=compile_static) -> ChosenOperations:
    ...
def fp8_kernel(device: torch.device | str) -> Fp8Kernel:
    ...
@contextmanager
def fp8_step(model: nn.Module) -> Iterator[None]:
    ...
def make_angles(n_positions: int, n_head: int, *, base: float=10000.0, dtype: torch.dtype=torch.float32, device: torch.device | str='cpu') -> tuple[torch.Tensor, torch.Tensor]:
    ...
def rotate(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    ...
def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, target: torch.Tensor) -> float:
    ...
