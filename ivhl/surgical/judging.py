"""Calls forward or with gradients, the same in float64, and what is wrong with compiled."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from types import MethodType
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn
from torch.utils._pytree import tree_flatten

from ivhl.errors import SpecError
from ivhl.measure.accuracy import ROUNDOFF, Scales, judge_compiled, judge_eager
from ivhl.measure.draws import cast
from ivhl.measure.leaves import Leaves, difference, leaves_of
from ivhl.measure.models import Loss, cast_model
from ivhl.surgical.parts import PartCall, converted, kept

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SEED: Final = 1337
TOLERANCE: Final = 1e-4  # of workloads, unless they declare another
DTYPES: Final = {getattr(torch, name): name for name in ROUNDOFF}
CPU: Final = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class PartOutcome:
    """What a call returned, and the gradients of a training step; none forward only."""

    output: Any
    gradients: dict[str, torch.Tensor] = field(default_factory=dict)


class PartStep:
    """A call of a part, forward or with the gradients of its inputs and parameters.

    In the model a gradient arrives from behind; alone, numbers that are drawn once take its place.

    Args:
        call: What is called.
        train: Whether there is a backward pass.
        function: Called with ``call`` in place of its target.
    """

    def __init__(
        self, call: PartCall, *, train: bool, function: Callable[[PartCall], Any] | None = None
    ) -> None:
        self._call = call
        self._function = function or make_call
        self._sources = _sources(call) if train else {}
        self._arriving: list[torch.Tensor] = []

    def __call__(self) -> PartOutcome:
        """Call once."""
        output = self._function(self._call)
        if not self._sources:
            return PartOutcome(output)
        one = isinstance(output, torch.Tensor)
        leaves = [output] if one else leaves_of(output).tensors.values()
        ends = [leaf for leaf in leaves if leaf.requires_grad]
        if not ends:
            return PartOutcome(output)
        if not self._arriving:
            self._arriving = [_drawn_like(end) for end in ends]
        return PartOutcome(output, _differentiated(ends, self._sources, self._arriving))


def make_call(call: PartCall) -> Any:  # noqa: ANN401
    """Return what the target returns."""
    return call.target(*call.arguments, **call.named)


def copied(call: PartCall) -> PartCall:
    """Return the call with copies of its tensors."""
    return PartCall(call.target, *kept((call.arguments, call.named)))


def in_float64(call: PartCall) -> PartCall:
    """Return the same call on the CPU in float64, with copies of its modules."""
    target = _exact(call.target) if isinstance(call.target, nn.Module) else call.target
    return PartCall(target, *converted((call.arguments, call.named), _exact))


def _exact(leaf: Any) -> Any:  # noqa: ANN401
    if isinstance(leaf, nn.Module):
        return cast_model(copy.deepcopy(leaf), torch.float64, CPU)
    if isinstance(leaf, MethodType) and isinstance(leaf.__self__, nn.Module):
        return MethodType(leaf.__func__, _exact(leaf.__self__))
    if isinstance(leaf, torch.Tensor):
        return cast(leaf.detach(), torch.float64, CPU).requires_grad_(leaf.requires_grad)
    return leaf


def _differentiated(
    ends: list[torch.Tensor],
    sources: dict[str, torch.Tensor],
    arriving: list[torch.Tensor] | None,
) -> dict[str, torch.Tensor]:
    """Return the gradients by name; zeros for what no output depends on."""
    found = torch.autograd.grad(
        ends, list(sources.values()), arriving, allow_unused=True, materialize_grads=True
    )
    return dict(zip(sources, found, strict=True))


def _sources(call: PartCall) -> dict[str, torch.Tensor]:
    """Return what a call differentiates by: its inputs, and the parameters of its modules."""
    found: dict[int, tuple[str, torch.Tensor]] = {}
    for number, leaf in enumerate(tree_flatten((call.target, call.arguments, call.named))[0]):
        tensors = {}
        if isinstance(leaf, nn.Module):
            tensors = dict(leaf.named_parameters())
        elif isinstance(leaf, torch.Tensor):
            tensors = {f"input {number}": leaf}
        for name, tensor in tensors.items():
            if tensor.requires_grad and id(tensor) not in found:
                found[id(tensor)] = name, tensor
    return dict(found.values())


def _drawn_like(end: torch.Tensor) -> torch.Tensor:
    drawn = torch.randn(end.shape, generator=torch.Generator().manual_seed(SEED))
    return drawn.to(device=end.device, dtype=end.dtype)  # in float64 the same numbers


class ModelStep:
    """A call of a model, forward or with the gradients of all parameters.

    Args:
        model: The model.
        inputs: Of each call: a tuple, or a dictionary of keyword arguments.
        train: Whether there is a backward pass.
        loss: From the outputs; ``None``: their own ``loss``, or a weighted sum.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: tuple[Any, ...] | dict[str, Any],
        *,
        train: bool,
        loss: Callable[[Any], torch.Tensor] | None,
    ) -> None:
        self.model, self._inputs, self._train = model, inputs, train
        given = ((), inputs) if isinstance(inputs, dict) else (inputs, {})
        self._call = PartCall(model, *given)
        self._given, self._loss = loss, loss or Loss()
        self._trained = {n: p for n, p in model.named_parameters() if p.requires_grad}

    def __call__(self) -> PartOutcome:
        """Call once.

        Raises:
            SpecError: If there is nothing to differentiate.
        """
        output = make_call(self._call)
        if not self._train:
            return PartOutcome(output)
        if not self._trained:
            raise SpecError("no parameter requires a gradient", hint="leave out --train")
        if self._given is None and not any(
            leaf.requires_grad for leaf in leaves_of(output).tensors.values()
        ):
            raise SpecError(
                "no output depends on a parameter that requires a gradient",
                hint="leave out --train, or run forward without torch.no_grad()",
            )
        loss = self._loss(output)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
            what = (
                f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else ""
            )
            raise SpecError(
                "the loss must be one number that depends on the parameters, got "
                f"{what or type(loss).__name__}",
                hint="the third value that your function returns is called with the outputs",
            )
        return PartOutcome((output, loss), _differentiated([loss], self._trained, None))

    def copied(self, model: nn.Module) -> ModelStep:
        """Return the same step of another model, on copies of the inputs."""
        return ModelStep(model, kept(self._inputs), train=self._train, loss=self._given)

    def in_float64(self) -> ModelStep:
        """Return the same step in float64, of a copy of the model."""
        call = in_float64(self._call)
        return ModelStep(
            call.target, call.named or call.arguments, train=self._train, loss=self._given
        )


def mistake(
    eager: Sequence[PartOutcome], compiled: Sequence[PartOutcome], exact: Sequence[PartOutcome]
) -> str:
    """Return why compiled calls are wrong, by the rule of workloads; empty if they are not.

    Raises:
        ValueError: If no output is a tensor.
    """
    sides = [_leaves_of(one) for one in (eager, compiled, exact)]
    if found := difference(sides[0], sides[1]):
        return f"wrong: {found}"
    names = list(sides[0].tensors)
    if not names:
        raise ValueError("it returns no tensor")
    if found := difference(sides[0], sides[2], dtypes=False):
        return f"not judged: in float64 {found}"
    each = [_without_masks(*(side.tensors[name] for side in sides)) for name in names]
    outputs, tried, references = (list(column) for column in zip(*each, strict=True))
    found_dtypes = {DTYPES[one.dtype] for one in outputs if one.dtype in DTYPES} or {"float32"}
    errors = judge_eager(names, outputs, references)
    largest = max((e.scale for e in errors if e.output.startswith("grad")), default=0.0)
    judged = judge_compiled(
        errors,
        tried,
        references,
        dtype=max(found_dtypes, key=ROUNDOFF.__getitem__),
        tolerance=TOLERANCE,
        scales=[
            Scales(e.scale, largest if e.output.startswith("grad") else e.scale) for e in errors
        ],
    )
    for error in judged:
        if error.eager_rmse is None:
            return f"not judged: eager's {error.output} is not finite"
        if not error.passed:
            rmse = error.compiled_rmse
            off = "is not finite" if rmse is None else f"has RMSE {rmse:.1e}"
            return f"wrong: {error.output} {off}, allowed {error.limit_rmse:.1e}"
    return ""


def _leaves_of(outcomes: Sequence[PartOutcome]) -> Leaves:
    """Return outputs and gradients with the names that messages use."""
    found = Leaves({}, {}, {})
    for number, outcome in enumerate(outcomes):
        where = f" of call {number + 1}" if len(outcomes) > 1 else ""
        found.add(leaves_of(outcome.output, f"output{where}"))
        for name, gradient in outcome.gradients.items():
            found.tensors[f"gradient of {name}{where}"] = gradient
    return found


def _without_masks(
    eager: torch.Tensor, compiled: torch.Tensor, exact: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return an output with zeros where its dtype cannot hold the exact number, and both agree.

    Attention masks with the smallest number of its dtype, which is another one in float64.
    """
    if eager.dtype not in DTYPES or not eager.shape == compiled.shape == exact.shape:
        return eager, compiled, exact
    masked = (exact.abs() > torch.finfo(eager.dtype).max).to(eager.device) & (eager == compiled)
    there = masked.to(exact.device)
    return (
        eager.masked_fill(masked, 0),
        compiled.masked_fill(masked, 0),
        exact.masked_fill(there, 0),
    )
