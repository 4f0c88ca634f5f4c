"""Take outputs apart: each tensor and each other value, with the path that leads to it.

A path is written as in Python: ``output.logits``, ``output['hidden'][2]``, ``output[1]``. PyTorch's
own pytrees would treat a dataclass or the output class of a model library as one opaque value.
"""

from __future__ import annotations

import enum
import inspect
from collections import deque
from collections.abc import Mapping, MappingView, Sized
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch

# Values that are compared for equality.
_PLAIN = (bool, int, str, bytes, type(None), enum.Enum, torch.dtype, torch.device, range, slice)
# An object of a class without a rule here is walked through its attributes, up to this depth.
_DEEPEST = 12


class Opaque(str):
    """Name of the type of a value that is not compared but for its type."""

    __slots__ = ()


@dataclass(slots=True)
class Leaves:
    """What outputs consist of, in order.

    Attributes:
        tensors: Path to tensor; a Python float or complex number counts as a tensor in float64.
        others: Path to every other value, such as ``None``, an integer or a name; of what cannot be
            taken apart, such as a generator, an ``Opaque``.
        types: Path to the class of each tensor that is a subclass of ``torch.Tensor``.
    """

    tensors: dict[str, torch.Tensor]
    others: dict[str, Any]
    types: dict[str, type]

    def copied(self) -> Leaves:
        """Return the same with copies of the tensors: a later call may overwrite them."""
        copies = {path: tensor.detach().clone() for path, tensor in self.tensors.items()}
        return Leaves(copies, dict(self.others), dict(self.types))

    def add(self, more: Leaves) -> None:
        """Add other leaves."""
        self.tensors |= more.tensors
        self.others |= more.others
        self.types |= more.types

    def shaped(self) -> Leaves:
        """Return the same with tensors that have shapes and dtypes, and no values."""
        bare = {path: tensor.to("meta") for path, tensor in self.tensors.items()}
        return Leaves(bare, dict(self.others), dict(self.types))


def leaves_of(outputs: Any, root: str = "output") -> Leaves:  # noqa: ANN401  (whatever is returned)
    """Return the leaves of what a function returned.

    Lists, tuples, mappings, dataclasses, named tuples and the output classes of model libraries are
    taken apart; so is an object of any other class, through its attributes, a module and what else
    can be called among them. A tensor subclass that wraps tensors is taken apart into these.
    """
    found = Leaves({}, {}, {})
    _walk(outputs, root, found, ())
    return found


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same memory as a ``torch.Tensor``: a subclass may define arithmetic of its own.

    One that wraps other tensors has no memory, and is returned as it is.
    """
    if type(tensor) in (torch.Tensor, torch.nn.Parameter) or hasattr(tensor, "__tensor_flatten__"):
        return tensor
    return tensor.as_subclass(torch.Tensor)


def _walk(value: Any, path: str, found: Leaves, above: tuple[int, ...]) -> None:  # noqa: ANN401
    if isinstance(value, torch.Tensor):
        _take_tensor(value, path, found)
    elif isinstance(value, (float, complex)):
        wide = torch.complex128 if isinstance(value, complex) else torch.float64
        found.tensors[path] = torch.tensor(value, dtype=wide, device="cpu")
    elif isinstance(value, _PLAIN):
        found.others[path] = value
    elif type(value).__module__ == "numpy":
        _walk(value.item() if value.ndim == 0 else torch.as_tensor(value), path, found, above)
    elif id(value) in above:
        found.others[path] = type(value).__qualname__
    elif len(above) > _DEEPEST or isinstance(value, type) or inspect.isroutine(value):
        found.others[path] = Opaque(type(value).__qualname__)
    else:
        parts = _parts(value)
        if not parts:
            kind = str if isinstance(value, Sized) and not len(value) else Opaque
            found.others[path] = kind(type(value).__qualname__)
        for name, part in parts:
            _walk(part, path + name, found, (*above, id(value)))


def _parts(value: Any) -> list[tuple[str, Any]]:  # noqa: ANN401
    """Return what an object consists of, each part with its step in the path."""
    if isinstance(value, Mapping):
        # A model library's output class is a mapping with attributes of the same names.
        named = is_dataclass(value)
        return [(f".{k}" if named else f"[{k!r}]", part) for k, part in value.items()]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [(f".{name}", part) for name, part in zip(value._fields, value, strict=True)]
    if isinstance(value, (list, tuple, deque, MappingView, set, frozenset)):
        ordered: Any = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value
        return [(f"[{n}]", part) for n, part in enumerate(ordered)]
    if is_dataclass(value):
        return [(f".{field.name}", getattr(value, field.name, None)) for field in fields(value)]
    if isinstance(value, torch.nn.Module):
        own = {name: part for name, part in vars(value).items() if not name.startswith("_")}
        own |= dict(value.named_parameters(recurse=False)) | dict(value.named_children())
        own |= dict(value.named_buffers(recurse=False))
        return [(f".{name}", part) for name, part in own.items()]
    slots = (vars(kind).get("__slots__", ()) for kind in type(value).__mro__)
    names = [name for own in slots for name in ([own] if isinstance(own, str) else own)]
    own = {n: getattr(value, n) for n in names if not n.startswith("__") and hasattr(value, n)}
    own |= getattr(value, "__dict__", {})
    return [(f".{name}", part) for name, part in own.items()]


def _take_tensor(value: torch.Tensor, path: str, found: Leaves) -> None:
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        found.tensors[path] = value if value.layout is torch.strided else value.to_dense()
        return
    found.types[path] = type(value)
    if hasattr(value, "__tensor_flatten__"):
        names, _ = value.__tensor_flatten__()
        for name in names:
            _take_tensor(getattr(value, name), f"{path}.{name}", found)
    else:
        found.tensors[path] = plain(value)


def difference(eager: Leaves, other: Leaves, *, dtypes: bool = True) -> str | None:
    """Return where two outputs differ in structure or in what is no tensor; ``None`` if nowhere.

    Args:
        eager: Of the baseline.
        other: Of what is judged.
        dtypes: Whether tensors must have equal dtypes, too.
    """
    for path in (*eager.tensors, *eager.others, *other.tensors, *other.others):
        here, there = (_described(leaves, path, dtypes=dtypes) for leaves in (eager, other))
        if here != there:
            return f"{path} is {there}, eager's is {here}"
    return None


def _described(leaves: Leaves, path: str, *, dtypes: bool) -> str:
    if path in leaves.tensors:
        tensor = leaves.tensors[path]
        kind = f"a tensor of shape {tuple(tensor.shape)}"
        return f"{kind} {str(tensor.dtype).removeprefix('torch.')}" if dtypes else kind
    return repr(leaves.others[path]) if path in leaves.others else "missing"
