"""What a stack of transformer layers computes, apart from its weights. Imports without torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, get_args

NormKind = Literal["layer", "rms"]
ActivationKind = Literal["gelu", "gelu-tanh", "silu"]
WeightShapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StackConfiguration:
    """The architecture: pre-norm layers of attention and a feed-forward network, without biases.

    Attributes:
        n_layers: Layers.
        n_hidden: Width of a token.
        n_heads: Heads of attention; ``n_hidden / n_heads`` is even, for the pairs of RoPE.
        n_inner: Width of the feed-forward network.
        norm: ``layer``: less the mean, over the standard deviation, with gain and shift. ``rms``:
            over the root mean square, with a gain.
        activation: ``gelu`` with the error function, ``gelu-tanh``, or ``silu``.
        causal: Whether a token sees only those before it and itself.
        eps: Added to the variance, or the mean square.
        base: Base of RoPE's wavelengths.

    Raises:
        ValueError: If a value is not one of those named, or numbers do not fit.
    """

    n_layers: int = 4
    n_hidden: int = 2048
    n_heads: int = 16
    n_inner: int = 4096
    norm: NormKind = "layer"
    activation: ActivationKind = "gelu"
    causal: bool = False
    eps: float = 1e-5
    base: float = 10000.0

    def __post_init__(self) -> None:
        for name in ("n_layers", "n_hidden", "n_heads", "n_inner"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
        for name, kind in (("norm", NormKind), ("activation", ActivationKind)):
            if getattr(self, name) not in get_args(kind):
                known = ", ".join(get_args(kind))
                raise ValueError(f"{name} must be one of {known}, got {getattr(self, name)!r}")
        if self.n_hidden % (2 * self.n_heads):
            raise ValueError(
                f"n_hidden must be a multiple of twice n_heads, {2 * self.n_heads}, since RoPE "
                f"turns pairs of a head's numbers, got {self.n_hidden}"
            )
        for name in ("eps", "base"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not 0.0 < value < math.inf:
                raise ValueError(f"{name} must be a positive number, got {value!r}")

    @property
    def n_head(self) -> int:
        """Width of a head."""
        return self.n_hidden // self.n_heads

    @property
    def linears(self) -> WeightShapes:
        """Shape ``[n_out, n_in]`` of each linear layer of one layer, in the order of their use."""
        return {
            "qkv": (3 * self.n_hidden, self.n_hidden),
            "out": (self.n_hidden, self.n_hidden),
            "up": (self.n_inner, self.n_hidden),
            "down": (self.n_hidden, self.n_inner),
        }

    @property
    def norms(self) -> WeightShapes:
        """Shape of each gain and shift of a layer: ``first`` before attention, ``second`` after."""
        parts = ("gain", "shift") if self.norm == "layer" else ("gain",)
        return {
            f"{norm}.{part}": (self.n_hidden,) for norm in ("first", "second") for part in parts
        }

    @property
    def shapes(self) -> WeightShapes:
        """Shape of each weight of the stack, by names such as ``0.qkv``."""
        one = {**self.norms, **self.linears}
        return {
            f"{layer}.{name}": shape
            for layer in range(self.n_layers)
            for name, shape in one.items()
        }

    def flops(self, n_batch: int, n_tokens: int) -> float:
        """Return the operations of the matrix multiplications of one forward pass."""
        weights = sum(math.prod(shape) for shape in self.linears.values())
        scores = 2 * n_tokens * self.n_hidden
        return 2.0 * self.n_layers * n_batch * n_tokens * (weights + scores)


@dataclass(frozen=True, slots=True)
class StackSize:
    """A stack, and how many sequences of how many tokens it is given."""

    configuration: StackConfiguration
    n_batch: int
    n_tokens: int


# ``document``: that of the original, for a GPU; the others for a CPU.
SIZES: Final[dict[str, StackSize]] = {
    "small": StackSize(StackConfiguration(n_layers=1, n_hidden=64, n_heads=2, n_inner=128), 1, 32),
    "medium": StackSize(
        StackConfiguration(n_layers=2, n_hidden=256, n_heads=4, n_inner=512), 1, 256
    ),
    "large": StackSize(
        StackConfiguration(n_layers=4, n_hidden=512, n_heads=8, n_inner=1024), 1, 512
    ),
    "document": StackSize(StackConfiguration(), 8, 2048),
}
