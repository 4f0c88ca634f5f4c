"""Models as subjects: a copy for each arm, restored before every call.

A training step changes its model, and so may a forward pass (running means, caches, counters). So
before each call the harness puts parameters, buffers, attributes and the optimizer's state back,
outside of the timing, and after a call it reads them: they are results, as the outputs are.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ivhl.measure.draws import precision_of
from ivhl.measure.leaves import Leaves, leaves_of, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import Tensor, nn

    from ivhl.records.record import Passes

    # Dictionary, key, path and value of one part of the state.
    Place = tuple[dict[Any, Any] | None, Any, str, Any]
# For steps of a workload that names no optimizer.
LEARNING_RATE = 0.01
MOMENTUM = 0.9
# Seed of the weights of the harness's own loss.
LOSS_SEED = 4242
# Values of an attribute or of an optimizer that count as state, besides tensors.
_PLAIN = (bool, int, float, complex, str, type(None))
# Entries of a module's ``__dict__`` that hold its tensors and submodules.
_HELD_APART = frozenset({"_parameters", "_buffers", "_modules"})


class Passed(NamedTuple):
    """What a backward pass returns: the model's outputs and the loss."""

    output: Any
    loss: Tensor


@dataclass(slots=True)
class _Kept:
    """One value of the state: where it is, and what it was at the start."""

    place: dict[Any, Any] | None
    key: Any
    path: str
    value: Any
    copied: Tensor | None


class Held:
    """The model and the optimizer of one arm, and the state from which each call begins.

    Args:
        model: The arm's own copy.
        optimizer: Of its parameters; ``None`` if nothing steps.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
        self.model = model
        self.optimizer = optimizer
        self._names = {id(p): name for name, p in model.named_parameters()}
        self._start: list[_Kept] = []
        self._known: dict[int, tuple[dict[Any, Any], frozenset[Any]]] = {}

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What a call gets before its inputs."""
        return (self.model,) if self.optimizer is None else (self.model, self.optimizer)

    def keep(self) -> None:
        """Make the present state the one from which each call begins."""
        self._start = [
            _Kept(place, key, path, value, _copied(value))
            for place, key, path, value in self._places()
        ]
        places = {id(one.place): one.place for one in self._start if one.place is not None}
        self._known = {at: (place, frozenset(place)) for at, place in places.items()}

    def restore(self) -> None:
        """Go back to the start: the same tensors with the same values, and no gradients."""
        with torch.no_grad():
            for kept in self._start:
                if kept.copied is not None:
                    kept.value.copy_(kept.copied)
                # The same object is not written again: Dynamo may watch the dictionary.
                if kept.place is not None and kept.place.get(kept.key, kept) is not kept.value:
                    kept.place[kept.key] = kept.value
        for place, known in self._known.values():
            if len(place) > len(known):
                for key in [k for k in place if k not in known and _is_state(place[k])]:
                    del place[key]
        for parameter in self.model.parameters():
            parameter.grad = None

    def state(self) -> Leaves:
        """Return the state with its gradients; the tensors are not copies."""
        found = Leaves({}, {}, {})
        seen: set[int] = set()
        known = {kept.path for kept in self._start}
        for name, parameter in self.model.named_parameters():
            if parameter.grad is None:
                found.others[f"grad.{name}"] = None
            else:
                found.add(leaves_of(parameter.grad, f"grad.{name}"))
        for _, _, path, value in self._places():
            if isinstance(value, torch.Tensor):
                if id(value) in seen:  # tied
                    continue
                seen.add(id(value))
            elif path not in known:  # a note of a compiler, or a cache that begins with a number
                continue
            found.add(leaves_of(value, path))
        return found

    def started(self) -> dict[str, Tensor]:
        """Return the tensors of the start by their paths."""
        return {kept.path: kept.copied for kept in self._start if kept.copied is not None}

    def copied(self, found: Leaves) -> Leaves:
        """Return what was read with copies of its tensors; of unchanged state, those of the start.

        Nobody may write into them.
        """
        start = self.started()
        kept = {
            path: start[path]
            for path, tensor in found.tensors.items()
            if path in start and _is_equal(tensor, start[path])
        }
        changed = {path: one for path, one in found.tensors.items() if path not in kept}
        copies = Leaves(changed, found.others, found.types).copied()
        ordered = {path: kept.get(path, copies.tensors.get(path)) for path in found.tensors}
        return replace(copies, tensors=ordered)

    def _places(self) -> Iterator[Place]:
        """Yield each value of the state: its dictionary, key, path and value."""
        for prefix, module in self.model.named_modules():
            yield from _places_of(module, f"model.{prefix}." if prefix else "model.")
        if self.optimizer is None:
            return
        for parameter, entries in self.optimizer.state.items():
            name = self._names.get(id(parameter), "?")
            for key, value in list(entries.items()):
                if _is_state(value):
                    yield entries, key, f"optimizer.{key}.{name}", value
        for number, group in enumerate(self.optimizer.param_groups):
            for key, value in list(group.items()):
                if key != "params" and _is_state(value):
                    yield group, key, f"optimizer.groups[{number}].{key}", value


def _places_of(module: nn.Module, dotted: str) -> Iterator[Place]:
    """Yield each value of the state of one module, without those of its submodules."""
    if isinstance(module, torch.jit.ScriptModule):  # has no dictionaries of its own
        tensors = (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
        for name, tensor in tensors:
            yield None, name, dotted + name, tensor
        return
    for place in (module._parameters, module._buffers):  # noqa: SLF001
        for key, value in list(place.items()):
            if value is not None:
                yield place, key, f"{dotted}{key}", value
    for key, value in list(vars(module).items()):
        if key not in _HELD_APART and _is_state(value):
            yield vars(module), key, f"{dotted}{key}", value


def _is_state(value: Any) -> bool:  # noqa: ANN401
    if isinstance(value, (tuple, list)):
        return isinstance(value, tuple) and all(isinstance(part, _PLAIN) for part in value)
    return isinstance(value, (torch.Tensor, *_PLAIN))


def _is_equal(one: Tensor, other: Tensor) -> bool:
    alike = one.dtype == other.dtype and one.layout == other.layout == torch.strided
    return bool(alike and torch.equal(one, other))


def _copied(value: Any) -> Tensor | None:  # noqa: ANN401
    return plain(value.detach()).clone() if isinstance(value, torch.Tensor) else None


def held_copy(
    model: nn.Module,
    make_optimizer: Callable[[nn.Module], torch.optim.Optimizer] | None,
    *,
    dtype: torch.dtype | None,
    device: torch.device,
    like: Held | None = None,
) -> Held:
    """Return a copy of a model in a precision and on a device, with an optimizer of its own.

    Args:
        model: The original.
        make_optimizer: Returns the optimizer of a model; ``None`` if nothing steps.
        dtype: Precision of all floating and complex tensors of the copy; ``None`` for their own.
        device: Where the copy lives.
        like: Gives the state of its optimizer to the copy's.
    """
    twin = cast_model(copy.deepcopy(model), dtype, device)
    optimizer = None if make_optimizer is None else make_optimizer(twin)
    if optimizer is not None and like is not None and like.optimizer is not None:
        # Its own tensors: load_state_dict keeps those that need no conversion.
        optimizer.load_state_dict(copy.deepcopy(like.optimizer.state_dict()))
    held = Held(twin, optimizer)
    held.keep()
    return held


def precisions_of(model: nn.Module) -> set[torch.dtype]:
    """Return the dtypes of floating parameters and buffers."""
    tensors = (*model.parameters(), *model.buffers())
    return {tensor.dtype for tensor in tensors if tensor.is_floating_point()}


def cast_model(model: nn.Module, dtype: torch.dtype | None, device: torch.device) -> nn.Module:
    """Return the model, with all floating and complex tensors in this precision; ties are kept."""
    done: dict[int, tuple[Tensor, Tensor]] = {}

    def convert(tensor: Tensor) -> Tensor:
        if id(tensor) not in done:
            precision = precision_of(tensor, dtype) if dtype else tensor.dtype
            # The original is held, so that no other tensor can get its id.
            done[id(tensor)] = tensor, tensor.to(device=device, dtype=precision)
        return done[id(tensor)][1]

    model._apply(convert)  # noqa: SLF001  (`to` would leave complex tensors as they are)
    for module in model.modules():
        if isinstance(module, torch.jit.ScriptModule):
            continue
        for key, value in list(vars(module).items()):
            if key not in _HELD_APART and isinstance(value, torch.Tensor):
                vars(module)[key] = convert(value.detach())
    return model


class Loss:
    """The harness's own loss: the outputs' own one, or one without cancellation.

    A model that returns a single number, or an output named ``loss``, is trained on that. Otherwise
    every floating output is multiplied by fixed random numbers and all is summed: a mean would have
    no gradient behind a normalisation.
    """

    def __init__(self) -> None:
        self._weights: dict[tuple[Any, ...], Tensor] = {}

    def __call__(self, outputs: Any) -> Tensor:  # noqa: ANN401  (any nest)
        """Return the loss of outputs.

        Raises:
            ValueError: If no floating output depends on a parameter.
        """
        if (own := _own_loss(outputs)) is not None:
            return own
        leaves = [
            torch.view_as_real(leaf) if leaf.is_complex() else leaf
            for leaf in leaves_of(outputs).tensors.values()
            if leaf.requires_grad
        ]
        if not leaves:
            raise ValueError(
                "no output depends on a parameter that requires a gradient, so there is no backward "
                "pass: write passes='forward'"
            )
        return sum((leaf * self._weight(leaf)).sum() for leaf in leaves)

    def _weight(self, leaf: Tensor) -> Tensor:
        key = (tuple(leaf.shape), leaf.dtype, leaf.device)
        if key not in self._weights:
            generator = torch.Generator().manual_seed(LOSS_SEED)
            # Rounded to float32 first, so that float64 has the same numbers.
            drawn = torch.randn(leaf.shape, generator=generator) / max(1.0, leaf.numel() ** 0.5)
            self._weights[key] = drawn.to(device=leaf.device, dtype=leaf.dtype)
        return self._weights[key]


def _own_loss(outputs: Any) -> Tensor | None:  # noqa: ANN401
    own = outputs
    if isinstance(outputs, Mapping):
        own = outputs.get("loss")
    elif not isinstance(outputs, torch.Tensor):
        own = getattr(outputs, "loss", None)
    if isinstance(own, torch.Tensor) and own.numel() == 1 and own.is_floating_point():
        return own.sum() if own.requires_grad else None
    return None


def default_call(passes: Passes, loss: Callable[..., Tensor] | None) -> Callable[..., Any]:
    """Return what a workload without ``eager`` does with its model.

    Args:
        passes: ``forward`` calls it without gradients; ``backward`` differentiates the loss by all
            parameters; ``step`` lets the optimizer step after that.
        loss: ``(outputs, target) -> number``: the last input is the target, which the model does not
            get. ``None`` means ``Loss``, and the model gets all inputs.
    """
    own = Loss()

    def forward(model: nn.Module, *inputs: Any, **named: Any) -> Any:  # noqa: ANN401
        with torch.no_grad():
            return model(*inputs, **named)

    def backward(model: nn.Module, *inputs: Any, **named: Any) -> Any:  # noqa: ANN401
        if loss is None:
            outputs = model(*inputs, **named)
            lost = own(outputs)
        else:
            # Inputs are either all positional or all named.
            *given, target = inputs or named.values()
            outputs = model(*given) if inputs else model(**dict(zip(named, given, strict=False)))
            lost = loss(outputs, target)
        lost.backward()
        return Passed(outputs, lost)

    def step(
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *inputs: Any,  # noqa: ANN401
        **named: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        optimizer.zero_grad()
        result = backward(model, *inputs, **named)
        optimizer.step()
        return result

    return {"forward": forward, "backward": backward, "step": step}[passes]


def default_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Return stochastic gradient descent with momentum, which keeps rounding small in its steps."""
    trained = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.SGD(trained, lr=LEARNING_RATE, momentum=MOMENTUM)


def is_trained(parameters: Iterable[Tensor]) -> bool:
    """Return whether a parameter requires a gradient."""
    return any(parameter.requires_grad for parameter in parameters)
