"""Random programs of PyTorch, run as they are and in a block of hot paths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from hypothesis import strategies as st
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.compilers import nop
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.nn import functional as F  # noqa: N812  (as everywhere)

from ivhl import hotpath

if TYPE_CHECKING:
    from collections.abc import Callable


def compile_with_eager_kernels(
    module: torch.fx.GraphModule, inputs: list[torch.Tensor]
) -> Callable[..., Any]:
    """Return a graph as Inductor's own AOTAutograd splits it, with eager kernels: no seconds.

    Made anew each time: the backend ``aot_eager`` of 2.5.1 wraps itself deeper with each graph.
    """
    compiled: Callable[..., Any] = aot_autograd(
        fw_compiler=nop, partition_fn=min_cut_rematerialization_partition
    )(module, inputs)
    return compiled


DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool)
TURNS = 5


def quietly(one: torch.Tensor, other: torch.Tensor) -> None:
    """Add without a word to autograd, which notices only the new version of the tensor."""
    with torch.no_grad():
        one.add_(other)


UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "neg": lambda a: -a,
    "float": lambda a: a.float(),
    "transpose": lambda a: a.transpose(0, 1),
    "row": lambda a: a[1:2],
    "expand": lambda a: a[0:1].expand(3, 3),
    "contiguous": lambda a: a.contiguous(),
    "reshape": lambda a: a.reshape(-1)[:9].view(3, 3) if a.numel() >= 9 else a,
    "sum": lambda a: a.sum(dim=0, keepdim=True),
    "max": lambda a: a.max(dim=0, keepdim=True).values,
    "clone": lambda a: a.clone(),
    "abs": abs,
    "chunk": lambda a: a.chunk(2, dim=1)[0],
    "detach": lambda a: a.detach(),
    "softmax": lambda a: torch.softmax(a, dim=-1),
    "exp": torch.exp,
    "gelu": F.gelu,
    "norm": lambda a: F.layer_norm(a, a.shape[-1:]),
    "log": torch.log,  # whose gradient is infinite at 0, which is often drawn
}
BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: 2 - a + b,
    "mul": lambda a, b: a * b,
    "where": lambda a, b: torch.where(a > b, a, b),
    "cat": lambda a, b: torch.cat([a, b], dim=-1)[..., :3],
    "matmul": lambda a, b: a @ b,
    "linear": F.linear,
    "attention": lambda a, b: F.scaled_dot_product_attention(a[None], b[None], b[None])[0],
    "mse": F.mse_loss,
}
IN_PLACE: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "add_": lambda a, b: a.add_(b),
    "mul_": lambda a, _: a.mul_(2),
    "relu_": lambda a, _: a.relu_(),
    "iadd": lambda a, b: a.__iadd__(b),
    "copy_": lambda a, b: a.copy_(b),
    "set_row": lambda a, b: a.__setitem__((slice(0, 1), slice(None)), b[0:1]),
    "zero_": lambda a, _: a.zero_(),
    "quietly": quietly,
}


@dataclass(frozen=True, slots=True)
class Program:
    """A loop of five turns over one state.

    Attributes:
        steps: Name of an operation, and the numbers of its arguments among the values so far.
        dtypes: Of the state.
        reads: Steps whose result is read at once.
        keeps: Steps whose result is kept to the end.
        seed: Of the state's values.
        differentiates: Whether a first tensor of floating numbers requires a gradient, which is
            taken at the end of each turn.
        roots: What is differentiated, by number; the last value if it is empty.
        leaves: Other tensors of the state that do, if of floating numbers, in turns that make them.
        frees: Whether a backward pass frees its graph.
    """

    steps: list[tuple[str, int, int]]
    dtypes: list[torch.dtype]
    reads: set[int]
    keeps: set[int]
    seed: int
    differentiates: bool
    roots: tuple[int, ...] = ()
    leaves: tuple[int, ...] = ()
    frees: bool = False


def programs() -> st.SearchStrategy[Program]:
    """Return programs of 2 to 9 operations."""
    numbers = st.integers(0, 20)
    names = st.sampled_from([*UNARY, *BINARY, *IN_PLACE])
    return st.builds(
        Program,
        steps=st.lists(st.tuples(names, numbers, numbers), min_size=2, max_size=9),
        dtypes=st.lists(st.sampled_from(DTYPES), min_size=1, max_size=3),
        reads=st.sets(st.integers(0, 8), max_size=2),
        keeps=st.sets(st.integers(0, 8), max_size=3),
        seed=st.integers(0, 1000),
        differentiates=st.booleans(),
        roots=st.lists(st.integers(0, 8), max_size=2).map(tuple),
        leaves=st.lists(st.integers(1, 2), max_size=1).map(tuple),
        frees=st.booleans(),
    )


def check_program(program: Program) -> hotpath.HotpathReport:
    """Compare a program in a block with itself outside; return the report of the block.

    Where eager code refuses to differentiate, since a tensor has changed in place, compiled code may
    refuse, too, or give the gradient: it may not have kept that tensor.
    """
    expected = run_loop(program)
    with hotpath.auto(threshold=2, min_calls=1) as report:
        got = run_loop(program)
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        if isinstance(other, str):
            continue
        assert isinstance(one, torch.Tensor), one
        assert type(one) is type(other)
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert (one.stride(), one.requires_grad) == (other.stride(), other.requires_grad)
        assert _history(one) == _history(other)
        # Inductor keeps what lies between two operations of bfloat16 in float32. A result in float64
        # may come from values in float32.
        rough: dict[str, float] = {}
        if one.dtype is torch.bfloat16:
            rough = {"rtol": 0.1, "atol": 0.1}
        elif one.dtype is torch.float64 and torch.float32 in program.dtypes:
            rough = {"rtol": 1.3e-6, "atol": 1e-5}  # those of float32
        # Detached, since a message with a tensor whose node autograd made invalid raises.
        torch.testing.assert_close(one.detach(), other.detach(), equal_nan=True, **rough)
    assert _shared(got) == _shared(expected)
    return report


def _history(tensor: torch.Tensor) -> bool | None:
    """Return whether autograd has a node for a tensor; ``None`` if it made that invalid."""
    try:
        return tensor.grad_fn is None
    except RuntimeError:
        return None


def _shared(values: list[torch.Tensor | str]) -> list[tuple[int, int]]:
    """Return which values share memory, but for gradients, of which autograd may share more."""
    tensors = [one for one in values if isinstance(one, torch.Tensor) and not _is_gradient(one)]
    places = [one.untyped_storage().data_ptr() for one in tensors]
    return [(n, places.index(place)) for n, place in enumerate(places) if place]


def run_loop(program: Program) -> list[torch.Tensor | str]:
    """Return everything that the program kept, its gradients or why there are none, and the state.

    The first tensor is new at each second turn. What shares memory shows later changes.
    """
    generator = torch.Generator().manual_seed(program.seed)
    draws = [
        [torch.randint(-3, 4, (3, 3), generator=generator).to(dtype) for dtype in program.dtypes]
        for _ in range(TURNS)
    ]
    differentiates = program.differentiates and program.dtypes[0].is_floating_point
    state = [one.clone() for one in draws[0]]
    kept: list[torch.Tensor | str] = []
    for n in range(TURNS):
        if n % 2:
            state[0] = draws[n][0].clone()
            kept.append(state[0])
        leaves = [0, *program.leaves] if differentiates else []
        leaves = [one for one in leaves if one < len(state) and state[one].is_floating_point()]
        for one in leaves:
            state[one] = state[one].detach().requires_grad_()
        values, made = run_turn(program, state)
        kept += values
        roots = [made[one % len(made)] for one in program.roots] or made[-1:]
        for root in roots if differentiates else ():
            if root.requires_grad:
                kept += _gradients(program, root, [state[one] for one in leaves])
    return [*kept, *state]


def _gradients(
    program: Program, root: torch.Tensor, leaves: list[torch.Tensor]
) -> list[torch.Tensor | str]:
    """Return the gradient that adds up at each leaf, or why there is none."""
    for leaf in leaves:
        leaf.grad = None
    try:
        loss = root if root.numel() == 1 else root.sum()
        if program.frees:
            loss.backward()
        else:
            loss.backward(retain_graph=True)
    except RuntimeError as error:
        return [str(error)] * len(leaves)
    found: list[torch.Tensor | str] = []
    for leaf in leaves:
        gradient = torch.zeros(()) if leaf.grad is None else leaf.grad
        gradient.__dict__["is_gradient"] = True
        found.append(gradient)
    return found


def _is_gradient(tensor: torch.Tensor) -> bool:
    return "is_gradient" in tensor.__dict__


def run_turn(
    program: Program, inputs: list[torch.Tensor]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return what one turn kept, and all its values; what eager code refuses has none."""
    values = list(inputs)
    kept = []
    for place, (name, one, two) in enumerate(program.steps):
        a, b = values[one % len(values)], values[two % len(values)]
        try:
            if name in UNARY:
                made = UNARY[name](a)
            elif name in BINARY:
                made = BINARY[name](a, b)
            else:
                # Else the result depends on the order in which eager code takes the elements.
                IN_PLACE[name](a, b.clone() if _overlap(a, b) else b)
                made = a
        except (RuntimeError, IndexError, TypeError):
            continue
        values.append(made)
        if place in program.reads:
            try:
                value = torch.as_tensor(made.double().sum().item())
            except RuntimeError:  # one of several views whose base was changed since
                continue
            # Inductor does not round to bfloat16 before it sums.
            kept.append(value.to(made.dtype) if made.dtype is torch.bfloat16 else value)
        if place in program.keeps:
            kept.append(made)
    return [*kept, values[-1]], values


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors share memory without being the same elements."""
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr() and (
        one.data_ptr(), one.shape, one.stride()
    ) != (other.data_ptr(), other.shape, other.stride())  # fmt: skip
