"""The stack of layers, over weights that are inputs, and as a module with weights of its own."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import nn
from torch.nn.functional import linear, mse_loss

from ivhl.surgical.fp8 import Fp8Linear, ScalingRecipe, fp8_step
from ivhl.surgical.operations import make_angles
from ivhl.surgical.plan import (
    PLANS,
    CompilePlan,
    choose_operations,
    compile_static,
    facts_of,
    plain_operations,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ivhl.surgical.configuration import StackConfiguration
    from ivhl.surgical.plan import ChosenOperations, Compiler

    Angles = tuple[torch.Tensor, torch.Tensor]
    Linear = Callable[[str, torch.Tensor], torch.Tensor]

LinearKind = Literal["linear", "fp8"]
TOKEN_AXES = 3  # sequences, tokens, width


def make_weights(
    configuration: StackConfiguration, generator: torch.Generator
) -> dict[str, torch.Tensor]:
    """Draw random weights of a stack.

    Returns:
        Float64 tensors by name. Linear layers are ``[n_out, n_in]`` with variance ``1 / n_in``;
        gains are 1 and shifts 0, both with noise of 0.1.
    """
    drawn = {}
    for name, shape in configuration.shapes.items():
        values = torch.randn(shape, dtype=torch.float64, generator=generator)
        if len(shape) > 1:
            drawn[name] = values / math.sqrt(shape[-1])
        else:
            drawn[name] = 0.1 * values + (1.0 if name.endswith(".gain") else 0.0)
    return drawn


def apply_stack(
    n_layers: int,
    operations: ChosenOperations,
    weights: Mapping[str, torch.Tensor],
    x: torch.Tensor,
    angles: Angles,
    *,
    apply_linear: Linear | None = None,
) -> torch.Tensor:
    """Return the tokens after all layers; checks nothing.

    Args:
        n_layers: Layers.
        operations: From ``choose_operations``.
        weights: From ``make_weights``; of linear layers only if ``apply_linear`` is not given.
        x: Tokens ``[n_batch, n_tokens, n_hidden]``.
        angles: From ``make_angles``.
        apply_linear: ``(name, x)`` to what the linear layer of that name makes of it.
    """
    run = apply_linear
    # Not ``or``: Dynamo of 2.11.0 refuses to ask a bound method whether it is true.
    if run is None:
        run = lambda name, h: linear(h, weights[name])  # noqa: E731

    def norm_of(layer: int, name: str) -> tuple[torch.Tensor, torch.Tensor | None]:
        return weights[f"{layer}.{name}.gain"], weights.get(f"{layer}.{name}.shift")

    h = operations.norm(x, *norm_of(0, "first"))
    for layer in range(n_layers):
        heads = operations.attend(run(f"{layer}.qkv", h), *angles)
        branch = run(f"{layer}.out", heads)
        x, h = operations.residual_norm(x, branch, *norm_of(layer, "second"))
        branch = run(f"{layer}.down", operations.activation(run(f"{layer}.up", h)))
        if layer + 1 == n_layers:
            return operations.residual(x, branch)
        x, h = operations.residual_norm(x, branch, *norm_of(layer + 1, "first"))
    raise AssertionError("a stack has a layer")  # pragma: no cover


class TransformerStack(nn.Module):
    """A stack of layers with weights, which a plan compiles.

    Args:
        configuration: The architecture.
        plan: A plan, or the name of one of ``PLANS``.
        linear: Kind of the linear layers: ``linear``, PyTorch's; ``fp8``, ``Fp8Linear``, whose
            rounding is compiled if the plan compiles anything.
        recipe: Of ``fp8``: how scales are chosen.
        n_positions: Longest sequence.
        compiler: Compiles one function; by default ``ivhl.compile.get_compiled``, with static
            shapes.

    ``copy.deepcopy`` copies the weights. Save a stack by its ``state_dict``; do not pickle it.

    Raises:
        ValueError: If a name is unknown, ``n_positions`` is less than 1, or the FP8 layers cannot be
            made.
    """

    def __init__(
        self,
        configuration: StackConfiguration,
        plan: CompilePlan | str = "sdpa",
        *,
        linear: LinearKind = "linear",
        recipe: ScalingRecipe | None = None,
        n_positions: int = 2048,
        compiler: Compiler = compile_static,
    ) -> None:
        super().__init__()
        if isinstance(plan, str) and plan not in PLANS:
            raise ValueError(f"the plan must be one of {', '.join(PLANS)}, got {plan!r}")
        if linear not in get_args(LinearKind):
            known = ", ".join(get_args(LinearKind))
            raise ValueError(f"linear must be one of {known}, got {linear!r}")
        if n_positions < 1:
            raise ValueError(f"n_positions must be at least 1, got {n_positions}")
        if recipe is not None and linear != "fp8":
            raise ValueError(f"a recipe belongs to FP8 layers, got linear={linear!r}")
        self.configuration = configuration
        self.plan = PLANS[plan] if isinstance(plan, str) else plan
        if self.plan.whole and linear == "fp8":
            raise ValueError(
                "a stack with FP8 layers cannot be one graph: FP8 layers stay eager; "
                "take the plan sdpa"
            )
        # Layers share what is compiled for them.
        rounder = functools.cache(compiler) if self.plan.compiled else None
        for name, shape in configuration.shapes.items():
            if name.rpartition(".")[2] in configuration.linears:
                self.add_module(_attribute(name), _make_linear(shape, linear, recipe, rounder))
            else:
                start = torch.ones if name.endswith(".gain") else torch.zeros
                self.register_parameter(_attribute(name), nn.Parameter(start(shape)))
        self.n_positions = n_positions
        self._make_angles()
        self._compiler = compiler
        # None of a whole graph, which makes its own.
        self._operations = (
            None if self.plan.whole else choose_operations(configuration, self.plan, compiler)
        )
        self._choose_run()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Set up a copy: see ``torch.nn.Module``."""
        super().__setstate__(state)
        self._choose_run()  # what was compiled for the original has its weights

    def _choose_run(self) -> None:
        run = _layers_of(self.configuration, self.plan, self._operations)
        self._run = self._compiler(run) if self.plan.whole else run

    def load_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Copy weights of ``make_weights`` into the parameters.

        Raises:
            ValueError: If one is missing, unknown or of another shape.
        """
        shapes = {name: tuple(values.shape) for name, values in weights.items()}
        if shapes != self.configuration.shapes:
            wrong = sorted(
                name
                for name in {*shapes, *self.configuration.shapes}
                if shapes.get(name) != self.configuration.shapes.get(name)
            )
            raise ValueError(
                f"weights must be those of {self.configuration}: missing, unknown or of another "
                f"shape: {', '.join(wrong)}"
            )
        with torch.no_grad():
            for name, values in weights.items():
                named = getattr(self, _attribute(name))
                (named.weight if isinstance(named, nn.Module) else named).copy_(values)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the tokens after all layers.

        Args:
            x: ``[n_batch, n_tokens, n_hidden]``, at most ``n_positions`` tokens, in the dtype of the
                weights.

        Raises:
            ValueError: If the shape does not fit.
        """
        wanted, shape = self.configuration.n_hidden, x.shape
        if len(shape) != TOKEN_AXES or shape[2] != wanted or 0 in shape:
            raise ValueError(
                f"x must have shape [n_batch, n_tokens, {wanted}], none of it 0, got {list(shape)}"
            )
        if shape[1] > self.n_positions:
            raise ValueError(
                f"x must have at most n_positions tokens, {self.n_positions}, got {shape[1]}"
            )
        return self._run(self, x)

    def _make_angles(self) -> None:
        """Make the tables of RoPE beside the weights: float64 for such, else float32."""
        beside = next(self.parameters())
        # A stack that is moved in inference mode may be trained later.
        with torch.inference_mode(mode=False):
            cosines, sines = make_angles(
                *(self.n_positions, self.configuration.n_head),
                base=self.configuration.base,
                dtype=torch.float64 if beside.dtype == torch.float64 else torch.float32,
                device=beside.device,
            )
        self.register_buffer("cosines", cosines, persistent=False)
        self.register_buffer("sines", sines, persistent=False)

    def _apply(self, *args: Any, **kwargs: Any) -> TransformerStack:  # noqa: ANN401  (of nn.Module)
        """Move or convert the stack: see ``torch.nn.Module``."""
        super()._apply(*args, **kwargs)
        self._make_angles()  # ``.to(torch.bfloat16)`` has rounded them, ``.double()`` adds no digits
        return self


def _layers_of(
    configuration: StackConfiguration, plan: CompilePlan, chosen: ChosenOperations | None
) -> Callable[[TransformerStack, torch.Tensor], torch.Tensor]:
    """Return what runs the layers of a stack, with operations that are chosen, or plain ones.

    A function with constants of its own: at each call of a graph, Dynamo guards what a bound method
    is made of, each function that is found in an object, and every field of a configuration.
    """
    n_layers, facts, attention = configuration.n_layers, facts_of(configuration), plan.attention
    has_shift = configuration.norm == "layer"

    def run(stack: TransformerStack, x: torch.Tensor) -> torch.Tensor:
        operations = plain_operations(*facts, attention=attention) if chosen is None else chosen
        weights = {
            name: getattr(stack, _attribute(name))
            for layer in range(n_layers)
            for norm in ("first", "second")
            for part in (("gain", "shift") if has_shift else ("gain",))
            for name in [f"{layer}.{norm}.{part}"]
        }
        return apply_stack(
            *(n_layers, operations, weights, x, (stack.cosines, stack.sines)),
            apply_linear=lambda name, h: getattr(stack, _attribute(name))(h),
        )

    return run


def _attribute(name: str) -> str:
    return name.replace(".", "_")


def _make_linear(
    shape: tuple[int, ...],
    kind: LinearKind,
    recipe: ScalingRecipe | None,
    compiler: Compiler | None,
) -> nn.Module:
    n_out, n_in = shape
    if kind == "fp8":
        return Fp8Linear(n_in, n_out, recipe=recipe, compiler=compiler)
    return nn.Linear(n_in, n_out, bias=False)


def train_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    x: torch.Tensor,
    target: torch.Tensor,
) -> float:
    """Make one optimizer step for the mean squared error, and return the error before the step.

    Scales of FP8 layers are updated once, after the step.

    Raises:
        ValueError: If a parameter is in a 16-bit precision: an update of less than a 256th of a
            weight leaves a weight in bfloat16 where it is, at every step.
    """
    for name, parameter in model.named_parameters():
        if parameter.dtype in (torch.bfloat16, torch.float16):
            raise ValueError(
                f"parameter {name} must be float32 or float64 to be trained, got "
                f"{parameter.dtype}: small updates would be lost; run the model under "
                "torch.autocast instead"
            )
    optimizer.zero_grad(set_to_none=True)
    with fp8_step(model):
        loss = mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
    return float(loss.detach())
