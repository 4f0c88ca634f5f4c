"""The model of a user, from ``package.module:function``."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import nn

from ivhl.errors import SpecError
from ivhl.workload import refusing_exits

if TYPE_CHECKING:
    from collections.abc import Callable

SEED: Final = 1337
HINT: Final = (
    "MODULE is `package.module:function`; the function takes no arguments and returns the model and "
    "its inputs, a tuple or a dictionary of keyword arguments, and as a third value, if you like, a "
    "function from the outputs to the loss"
)


class LoadedModel(NamedTuple):
    """What the user's function returned: the model, its inputs and, if it did, its loss."""

    model: nn.Module
    inputs: tuple[Any, ...] | dict[str, Any]
    loss: Callable[[Any], torch.Tensor] | None


def load_model(reference: str) -> LoadedModel:
    """Return what ``package.module:function`` makes.

    Raises:
        SpecError: If it does not import, or makes something else.
    """
    module_name, colon, name = reference.partition(":")
    if not (module_name and colon and name):
        raise SpecError(f"{reference!r} is not of the form 'package.module:function'", hint=HINT)
    try:
        with refusing_exits():
            module = importlib.import_module(module_name)
    except Exception as error:
        raise SpecError(
            f"{module_name!r} does not import: {type(error).__name__}: {error}",
            hint="run this in the folder that has it, in an environment that has what it imports",
        ) from error
    make = getattr(module, name, None)
    if not callable(make):
        what = "has no" if make is None else "has no function"
        raise SpecError(f"module {module_name!r} {what} {name!r}", hint=HINT)
    torch.manual_seed(SEED)
    made = _called(reference, make)
    if not (isinstance(made, tuple) and len(made) in {2, 3} and isinstance(made[0], nn.Module)):
        raise SpecError(
            f"{reference} must return a torch.nn.Module and its inputs, got {_described(made)}",
            hint=HINT,
        )
    model, inputs, loss = made if len(made) == 3 else (*made, None)  # noqa: PLR2004
    _check_model(reference, model)
    if isinstance(inputs, Mapping):
        inputs = dict(inputs)  # what a tokenizer returns is another mapping
    if not isinstance(inputs, (tuple, dict)):
        raise SpecError(
            f"{reference} must return the inputs as a tuple, or as a dictionary of keyword "
            f"arguments, got {_described(inputs)}",
            hint=HINT,
        )
    if isinstance(inputs, dict) and not all(isinstance(name, str) for name in inputs):
        raise SpecError(
            f"{reference}: the names of keyword arguments must be text, got "
            f"{', '.join(map(repr, inputs))}",
            hint=HINT,
        )
    if not (loss is None or callable(loss)):
        raise SpecError(
            f"{reference} must return a function of the outputs as its third value, the loss, got "
            f"{_described(loss)}",
            hint=HINT,
        )
    return LoadedModel(model, inputs, loss)


def _called(reference: str, make: Callable[[], Any]) -> Any:  # noqa: ANN401  (whatever it returns)
    try:
        return make()
    except SystemExit as error:
        raise SpecError(
            f"{reference} calls sys.exit({error.code!r})",
            hint="the function may only make the model and its inputs",
        ) from error
    except Exception as error:
        raise SpecError(
            f"{reference} raised {type(error).__name__}: {error}", hint=HINT
        ) from error


def _check_model(reference: str, model: nn.Module) -> None:
    """Raise if the parts of a model cannot be compiled or run."""
    if isinstance(model, torch.jit.ScriptModule):
        raise SpecError(
            f"{reference} returns a TorchScript module, which torch.compile leaves as it is",
            hint="return the module before torch.jit.script or torch.jit.trace",
        )
    is_compiled = [
        name or "the model"
        for name, one in model.named_modules()
        # Of torch.compile(module), and of module.compile().
        if hasattr(one, "_orig_mod") or getattr(one, "_compiled_call_impl", None)
    ]
    if is_compiled:
        raise SpecError(
            f"{reference} returns a model that is compiled already: {is_compiled[0]}; it would be "
            "timed as eager",
            hint="return the model before torch.compile(model) or model.compile()",
        )
    if any(one.is_inference() for one in (*model.parameters(), *model.buffers())):
        raise SpecError(
            f"{reference} returns a model that was made in inference mode, whose numbers cannot be "
            "put back before each call",
            hint="make the model outside of torch.inference_mode()",
        )
    if any(one.is_meta for one in (*model.parameters(), *model.buffers())):
        raise SpecError(
            f"{reference} returns a model on the device meta, which holds no numbers",
            hint="return it with its weights: model.to_empty(device='cpu'), then load them",
        )


def _described(value: object) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {', '.join(type(one).__name__ for one in value) or 'nothing'}"
    return type(value).__name__
