"""Random programs of PyTorch, run as they are and in a block of hot paths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from hypothesis import strategies as st

from ivhl import hotpath

if TYPE_CHECKING:
    from collections.abc import Callable

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool)
TURNS = 5

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
}
BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: 2 - a + b,
    "mul": lambda a, b: a * b,
    "where": lambda a, b: torch.where(a > b, a, b),
    "cat": lambda a, b: torch.cat([a, b], dim=-1)[..., :3],
    "matmul": lambda a, b: a @ b,
}
IN_PLACE: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "add_": lambda a, b: a.add_(b),
    "mul_": lambda a, _: a.mul_(2),
    "iadd": lambda a, b: a.__iadd__(b),
    "copy_": lambda a, b: a.copy_(b),
    "set_row": lambda a, b: a.__setitem__((slice(0, 1), slice(None)), b[0:1]),
    "zero_": lambda a, _: a.zero_(),
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
    """

    steps: list[tuple[str, int, int]]
    dtypes: list[torch.dtype]
    reads: set[int]
    keeps: set[int]
    seed: int
    differentiates: bool


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
    )


def check_program(program: Program) -> None:
    """Compare a program in a block with itself outside."""
    expected = run_loop(program)
    with hotpath.auto(threshold=2, min_calls=1):
        got = run_loop(program)
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        assert type(one) is type(other)
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert (one.stride(), one.requires_grad) == (other.stride(), other.requires_grad)
        # Inductor keeps what lies between two operations of bfloat16 in float32.
        rough = {"rtol": 0.1, "atol": 0.1} if one.dtype is torch.bfloat16 else {}
        torch.testing.assert_close(one, other, equal_nan=True, **rough)


def run_loop(program: Program) -> list[torch.Tensor]:
    """Return everything that the program kept, and the state, unread.

    The first tensor is new at each second turn. What shares memory shows later changes.
    """
    generator = torch.Generator().manual_seed(program.seed)
    draws = [
        [torch.randint(-3, 4, (3, 3), generator=generator).to(dtype) for dtype in program.dtypes]
        for _ in range(TURNS)
    ]
    differentiates = program.differentiates and program.dtypes[0].is_floating_point
    state = [one.clone() for one in draws[0]]
    kept = []
    for n in range(TURNS):
        if n % 2:
            state[0] = draws[n][0].clone()
            kept.append(state[0])
        if differentiates:
            state[0] = state[0].detach().requires_grad_()
        values = run_turn(program, state)
        kept += values
        if differentiates and values[-1].requires_grad:
            values[-1].sum().backward()
            kept.append(torch.zeros(()) if state[0].grad is None else state[0].grad)
    return [*kept, *state]


def run_turn(program: Program, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return what one turn kept; a step that eager code refuses has no result."""
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
                IN_PLACE[name](a, b)
                made = a
        except (RuntimeError, IndexError, TypeError):
            continue
        values.append(made)
        if place in program.reads:
            kept.append(torch.as_tensor(made.double().sum().item()))
        if place in program.keeps:
            kept.append(made)
    return [*kept, values[-1]]
