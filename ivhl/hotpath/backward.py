"""The backward pass of a compiled piece, kept to what eager code does.

Eagerly each operation is a node of autograd's graph; compiled, a piece of a sequence is one. A piece
has one result with a gradient, so its node runs when, and only when, eager code would run the nodes
that it replaces. What is left are tensors that change in place between forward and backward pass:

* The compiled node may keep a tensor that no eager node keeps. Autograd would raise where eager code
  differentiates, so results are copied, and such inputs are copied before.
* Inductor keeps inputs as other views (``reinterpret_tensor``) with versions of their own. Autograd
  would not notice a change, and the gradient would be wrong, so a hook compares the versions.

Neither is needed where the backward pass follows at once. docs/adr/0031 has the rules.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.autograd.graph import increment_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from ivhl.hotpath.calls import Role

    Node = Any  # of autograd's graph; its class in Python has no public name
    Edge = tuple[Node, int]  # a node, and which of its results

_COMPILED: Final = "CompiledFunctionBackward"
_MOST_VIEWS: Final = 4  # nodes of views between a result and the compiled node
_keeps_graph: Final = torch._C._autograd._get_current_graph_task_keep_graph  # noqa: SLF001
_preserve_version: Final = torch.autograd._unsafe_preserve_version_counter  # noqa: SLF001


class CannotCompileError(Exception):
    """Why a sequence is not compiled."""


def storage_of(tensor: torch.Tensor) -> int:
    """Return a number of the memory of a tensor, while it lives."""
    number: int = tensor.untyped_storage()._cdata  # noqa: SLF001
    return number


# --- what eager autograd does, seen when a call is recorded --------------------------------------


def history_of(
    result: torch.Tensor, given: Mapping[Role, torch.Tensor], owners: Mapping[int, Role]
) -> tuple[frozenset[Role], frozenset[Role]]:
    """Return to which arguments of a call the gradient of its result flows, and what is kept for it.

    Args:
        result: Of a call that has just run eagerly.
        given: Its arguments.
        owners: By number of the memory (``storage_of``), the tensor with whose memory it was made.

    Raises:
        RuntimeError: If autograd does not say.
    """
    edges = {_edge(one): role for role, one in given.items() if one.grad_fn is not None}
    leaves = {id(one): role for role, one in given.items() if one.grad_fn is None}
    reaches: set[Role] = set()
    saves: set[Role] = set()
    left = [_edge(result)]
    seen: set[Edge] = set()  # keeps the nodes, which Python makes anew otherwise
    while left:
        edge = left.pop()
        node = edge[0]
        if node is None or edge in seen:
            continue
        seen.add(edge)
        role = edges.get(edge) or leaves.get(id(getattr(node, "variable", None)))
        if role is not None:
            reaches.add(role)
            continue
        saves.update(owners[one] for one in _saved_storages(node) if one in owners)
        left += node.next_functions
    return frozenset(reaches), frozenset(saves)


def _edge(tensor: torch.Tensor) -> Edge:
    return tensor.grad_fn, tensor.output_nr


def _saved_storages(node: Node) -> Iterable[int]:
    for name in _saved_names(type(node)):  # type: ignore[arg-type]  # a class can be hashed
        value = getattr(node, name)
        several = value if isinstance(value, tuple | list) else (value,)
        for one in several:
            if isinstance(one, torch.Tensor):
                yield storage_of(one)


@functools.cache
def _saved_names(kind: type) -> tuple[str, ...]:
    """Return the attributes in which nodes of a class have what they keep.

    A class for each operation. Nodes of a function of the user have no such names.
    """
    return tuple(name for name in dir(kind) if name.startswith("_saved_"))


# --- what the compiled node does -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Protection:
    """What a piece needs unless its backward pass follows at once.

    Attributes:
        results: Those that the node keeps; the program gets copies.
        clones: Inputs, by place, that the node keeps and eager code does not; it gets copies.
        watched: Inputs, by place, that the node keeps with versions of their own.
    """

    results: tuple[int, ...] = ()
    clones: tuple[int, ...] = ()
    watched: tuple[int, ...] = ()


def compiled_node(result: torch.Tensor) -> Node:
    """Return the node of the compiled piece that a result comes from.

    Raises:
        CannotCompileError: If there is none.
    """
    node = result.grad_fn
    for _ in range(_MOST_VIEWS):
        if node is None or node.name() == _COMPILED or not node.next_functions:
            break
        node = node.next_functions[0][0]
    if node is None or node.name() != _COMPILED:
        raise CannotCompileError("its compiled graph has no backward pass that autograd knows")
    return node


def protection_of(
    node: Node,
    results: Mapping[int, torch.Tensor],
    inputs: Sequence[tuple[Role, torch.Tensor]],
    kept: AbstractSet[Role],
    changed: AbstractSet[Role],
) -> Protection:
    """Return what a piece needs, after its first run.

    Args:
        node: Of the piece.
        results: Of the piece, by number.
        inputs: Of the piece.
        kept: What eager nodes keep for its result.
        changed: Inputs whose memory the sequence changes.

    Raises:
        CannotCompileError: If nothing makes it right.
    """
    saved = [*node.saved_tensors, *getattr(node, "_tensors_no_vc_check", ())]
    places = {storage_of(one) for one in saved}
    clones, watched = [], []
    for place, (role, one) in enumerate(inputs):
        if storage_of(one) not in places:
            continue
        if role not in kept:
            if role in changed:
                raise CannotCompileError(
                    "its backward pass keeps an input that the sequence changes"
                )
            clones.append(place)
        elif not all(
            _share_version(one, other) for other in saved if storage_of(other) == storage_of(one)
        ):
            watched.append(place)
    return Protection(
        tuple(n for n, one in results.items() if storage_of(one) in places),
        tuple(clones),
        tuple(watched),
    )


def _share_version(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether a change of one tensor in place is seen at the other."""
    before = other._version  # noqa: SLF001
    with _preserve_version(one):
        increment_version(one)
        is_seen: bool = other._version != before  # noqa: SLF001
    return is_seen


def copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy with the same strides, through which gradients flow.

    Raises:
        CannotCompileError: If elements share memory, so that there is none.
    """
    copy = tensor.clone()
    if copy.stride() == tensor.stride():
        return copy
    try:
        return torch.empty_strided(
            tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
        ).copy_(tensor)
    except RuntimeError as error:
        raise CannotCompileError(
            "elements of a tensor that must be copied share memory"
        ) from error


class VersionCheck:
    """A hook before a node: raises, as eager code does, if a tensor that it needs has changed."""

    __slots__ = ("versions",)

    def __init__(self, watched: Iterable[torch.Tensor]) -> None:
        self.versions = [(one, one._version) for one in watched]  # noqa: SLF001

    def __call__(self, _gradients: object) -> None:
        """Compare.

        Raises:
            RuntimeError: If one has changed.
        """
        if any(one._version != version for one, version in self.versions):  # noqa: SLF001
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                "inplace operation (hotpath: an input of a compiled sequence)"
            )
        if not _keeps_graph():
            self.versions = []
