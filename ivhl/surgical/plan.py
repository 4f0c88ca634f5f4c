"""Which operations are compiled, and in which groups. Linear layers are never among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

from ivhl.compile import get_compiled
from ivhl.surgical.operations import (
    activate,
    add_residual,
    attend_sdpa,
    attend_softmax,
    combine_heads,
    normalise,
    rotate,
    split_heads,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from ivhl.surgical.configuration import ActivationKind, NormKind, StackConfiguration
    from ivhl.surgical.operations import Heads

    Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]

Operation = Literal["norm", "split", "rope", "attention", "combine", "activation", "residual"]
AttentionKind = Literal["softmax", "sdpa"]
OPERATIONS: Final[tuple[Operation, ...]] = get_args(Operation)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilePlan:
    """How a stack is run.

    Attributes:
        compiled: Operations to compile; a list or a set is converted.
        attention: ``softmax`` keeps all scores; ``sdpa`` is PyTorch's fused kernel.
        fused: Whether consecutive compiled operations become one graph: split, RoPE, attention and
            combine; residual and the norm after it. Otherwise each operation is a graph.
        whole: Whether the whole stack is one graph, linear layers included; ``compiled`` is empty.

    Raises:
        ValueError: If an operation is unknown, or ``whole`` stands beside operations.
    """

    compiled: frozenset[Operation] = frozenset()
    attention: AttentionKind = "softmax"
    fused: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        # A list or a set is what one writes first; a plan must be hashable.
        object.__setattr__(self, "compiled", frozenset(self.compiled))
        unknown = sorted(self.compiled - set(OPERATIONS))
        if unknown:
            raise ValueError(
                f"compiled must name operations of {', '.join(OPERATIONS)}, got "
                f"{', '.join(map(repr, unknown))}"
            )
        if self.attention not in get_args(AttentionKind):
            known = ", ".join(get_args(AttentionKind))
            raise ValueError(f"attention must be one of {known}, got {self.attention!r}")
        if self.whole and self.compiled:
            raise ValueError(
                "a plan compiles the whole stack or operations of it, got whole=True and "
                f"{', '.join(sorted(self.compiled))}"
            )


_SURGICAL: Final[frozenset[Operation]] = frozenset({"split", "rope", "combine"})
_POINTWISE: Final[frozenset[Operation]] = _SURGICAL | {"norm", "activation", "residual"}

# The variants of the original, and what they lead to.
PLANS: Final[dict[str, CompilePlan]] = {
    "eager": CompilePlan(),
    "surgical": CompilePlan(compiled=_SURGICAL),
    "pointwise": CompilePlan(compiled=_POINTWISE),
    "sdpa": CompilePlan(compiled=_POINTWISE | {"attention"}, attention="sdpa", fused=True),
    "whole": CompilePlan(attention="sdpa", whole=True),
}


class ChosenOperations(NamedTuple):
    """What a layer calls between its linear layers, compiled where the plan says so.

    Attributes:
        norm: ``(x, gain, shift)`` to normalised tokens.
        attend: ``(qkv, cosines, sines)`` to what the heads make of it, combined.
        activation: ``(x)``.
        residual: ``(x, branch)`` to their sum.
        residual_norm: ``(x, branch, gain, shift)`` to the sum and the sum normalised.
    """

    norm: Callable[..., torch.Tensor]
    attend: Callable[..., torch.Tensor]
    activation: Callable[..., torch.Tensor]
    residual: Callable[..., torch.Tensor]
    residual_norm: Callable[..., tuple[torch.Tensor, torch.Tensor]]


def compile_static(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile as stacks do by default: one graph for each shape, eager if the compiler fails."""
    return get_compiled(function, fullgraph=True, dynamic=False)


def choose_operations(
    configuration: StackConfiguration, plan: CompilePlan, compiler: Compiler = compile_static
) -> ChosenOperations:
    """Return the operations of a configuration, compiled as a plan says.

    All layers share them, so each is compiled once.

    Args:
        configuration: Its norm, activation, heads and whether attention is causal.
        plan: Which are compiled.
        compiler: Compiles one function of tensors.
    """
    plain = plain_operations(*facts_of(configuration), attention=plan.attention)
    if not plan.compiled:
        return plain
    n_heads, causal = configuration.n_heads, configuration.causal
    attention = _attention_of(plan.attention)

    def split(qkv: torch.Tensor) -> Heads:
        return split_heads(qkv, n_heads)

    def rope(
        q: torch.Tensor, k: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return rotate(q, cosines, sines), rotate(k, cosines, sines)

    def attend_once(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attention(q, k, v, causal=causal)

    def compiled(name: Operation, function: Callable[..., Any]) -> Callable[..., Any]:
        return compiler(function) if name in plan.compiled else function

    norm_alone = compiled("norm", plain.norm)
    residual_alone = compiled("residual", add_residual)

    def residual_then_norm(
        x: torch.Tensor, branch: torch.Tensor, gain: torch.Tensor, shift: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        x = residual_alone(x, branch)
        return x, norm_alone(x, gain, shift)

    both = plan.fused and {"norm", "residual"} <= plan.compiled
    return ChosenOperations(
        norm=norm_alone,
        attend=_make_attend(
            {
                "split": split,
                "rope": rope,
                "attention": attend_once,
                "combine": combine_heads,
            },
            plan,
            compiler,
        ),
        activation=compiled("activation", plain.activation),
        residual=residual_alone,
        residual_norm=compiler(plain.residual_norm) if both else residual_then_norm,
    )


def facts_of(
    configuration: StackConfiguration,
) -> tuple[NormKind, float, ActivationKind, int, bool]:
    """Return what ``plain_operations`` needs to know of a configuration."""
    one = configuration
    return one.norm, one.eps, one.activation, one.n_heads, one.causal


def plain_operations(
    norm_kind: NormKind,
    eps: float,
    activation_kind: ActivationKind,
    n_heads: int,
    causal: bool,  # noqa: FBT001  (in a row with the others)
    *,
    attention: AttentionKind,
) -> ChosenOperations:
    """Return the operations of a configuration, none of them compiled.

    Dynamo may trace this: of functions that are made in a trace it guards nothing.

    Args:
        norm_kind: ``norm`` of a configuration.
        eps: ``eps``.
        activation_kind: ``activation``.
        n_heads: ``n_heads``.
        causal: ``causal``.
        attention: ``attention`` of a plan.
    """
    attend_once = _attention_of(attention)

    def norm(x: torch.Tensor, gain: torch.Tensor, shift: torch.Tensor | None) -> torch.Tensor:
        return normalise(norm_kind, x, gain, shift, eps)

    def attend(qkv: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
        q, k, v = split_heads(qkv, n_heads)
        q, k = rotate(q, cosines, sines), rotate(k, cosines, sines)
        return combine_heads(attend_once(q, k, v, causal=causal))

    def activation(x: torch.Tensor) -> torch.Tensor:
        return activate(activation_kind, x)

    def residual_norm(
        x: torch.Tensor, branch: torch.Tensor, gain: torch.Tensor, shift: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        x = x + branch
        return x, norm(x, gain, shift)

    return ChosenOperations(norm, attend, activation, add_residual, residual_norm)


def _attention_of(kind: AttentionKind) -> Callable[..., torch.Tensor]:
    return attend_sdpa if kind == "sdpa" else attend_softmax


def _make_attend(
    steps: dict[Operation, Callable[..., Any]], plan: CompilePlan, compiler: Compiler
) -> Callable[..., torch.Tensor]:
    """Return split, RoPE, attention and combine in a row, neighbours grouped as the plan says."""
    groups: list[list[Operation]] = []
    for name in steps:
        last = groups[-1][-1] if groups else name
        joins = plan.fused and groups and {last, name} <= plan.compiled
        if joins:
            groups[-1].append(name)
        else:
            groups.append([name])
    chain = [_make_group(group, steps) for group in groups]
    chain = [
        compiler(one) if group[0] in plan.compiled else one
        for group, one in zip(groups, chain, strict=True)
    ]

    def attend(qkv: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
        values: Any = (qkv,)
        for one in chain:
            values = one(*values, cosines=cosines, sines=sines)
        (combined,) = values
        return combined

    return attend


def _make_group(
    group: list[Operation], steps: dict[Operation, Callable[..., Any]]
) -> Callable[..., Any]:
    """Return some steps as one function from a tuple of tensors to a tuple of tensors."""

    def run(*values: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> Any:  # noqa: ANN401
        for name in group:
            if name == "rope":
                q, k, v = values
                values = (*steps["rope"](q, k, cosines, sines), v)
            else:
                made = steps[name](*values)
                values = made if isinstance(made, tuple) else (made,)
        return values

    return run
