"""What Dynamo did with the user's code, counted alike and with the user's frame, on each release."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch", reason="torch is only in the cells")

from ivhl.measure.dynamo import Watch, user_frame  # noqa: E402  (torch first)
from ivhl.measure.failures import SUPPORT_GATE  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

pytestmark = [
    pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning"),
    pytest.mark.filterwarnings("ignore:Graph break from:UserWarning"),
    # Dynamo reads .grad of what one compiled frame hands to the next.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]


TORCH = tuple(map(int, torch.__version__.split(".")[:2]))


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def whole(x: Tensor) -> Tensor:
    return torch.sin(x) * 2 + x


def inner(x: Tensor) -> Tensor:
    y = torch.sin(x)
    torch._dynamo.graph_break()
    return y + 1


def outer(x: Tensor) -> Tensor:
    y = inner(x)
    if y.sum() > 0:
        y = y * 2
    return torch.cos(y)


def loops_over_items(x: Tensor) -> Tensor:
    total = 0.0
    for i in range(3):
        total += x[i].item()
    return torch.sin(x) * total


def part(x: Tensor) -> Tensor:
    return torch.cos(x) * 2 + x


def calls_a_loop(x: Tensor) -> Tensor:
    y = part(x)
    total = 0.0
    for i in range(3):
        total += y[i].item()
    return part(y) * total


def rows_of(x: Tensor) -> Iterator[Tensor]:
    for row in x:
        yield torch.sin(row)


def consumes_rows(rows: Iterator[Tensor]) -> Tensor:
    torch._dynamo.graph_break()
    return torch.stack(list(rows))


def has_a_generator(x: Tensor) -> Tensor:
    return consumes_rows(rows_of(x)) + part(x)


def slices_by_a_tensor(x: Tensor) -> Tensor:
    n = torch.floor(torch.as_tensor(x.shape[0] / 2)).long()
    y = torch.sin(x)
    return y[..., :n]


def refuses(x: Tensor) -> Tensor:
    if torch.compiler.is_compiling():
        raise ValueError("not while compiling")
    return whole(x) + whole(2 * x)


class Layers(torch.nn.Module):  # type: ignore[name-defined,misc]  # no torch here
    """A branch on data in a loop, and what can be compiled in a frame below it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        for layer in self.layers:
            x = whole(layer(x))
            if x.sum() > 0:
                x = x.relu()
        return x


class Block(torch.nn.Module):  # type: ignore[name-defined,misc]
    """A break between two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        x = self.first(x)
        n = int(x.sum().item())
        return self.second(x) * (n % 3)


class Stack(torch.nn.Module):  # type: ignore[name-defined,misc]
    """Blocks in a loop, each with a break: up to 2.6 and later, other frames are given up."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        for block in self.blocks:
            x = x + block(x)
        return x


def watch(function: Callable[..., Any], *inputs: Tensor) -> Watch:
    torch._dynamo.reset()  # another test has perhaps compiled or given up the function
    watched = Watch()
    compiled = torch.compile(function, backend="eager", dynamic=False)
    try:
        assert torch.equal(compiled(*inputs), function(*inputs))
    except RuntimeError as error:
        if SUPPORT_GATE.search(str(error)):
            pytest.skip(str(error))
        raise
    return watched


def first_line(text: str) -> str:
    return text.partition("\n")[0]


def line_of(function: Callable[..., Any], text: str) -> int:
    """Return the number of the line of a function that has a text."""
    from inspect import getsourcelines  # noqa: PLC0415

    lines, first = getsourcelines(function)
    return first + next(n for n, line in enumerate(lines) if text in line)


def place(function: Callable[..., Any], text: str) -> str:
    name = getattr(function, "__name__", "?")
    return f"contract/test_dynamo.py:{line_of(function, text)} {name}"


def test_whole_graphs_have_no_breaks() -> None:
    found = watch(whole, torch.rand(4))
    assert found.graph_breaks() == ()
    assert not found.not_compiled()
    assert found.frames() == (1, 1)


def test_every_break_is_counted_with_the_users_frame() -> None:
    found = watch(outer, torch.rand(4))
    texts = {first_line(one.text): one.count for one in found.graph_breaks()}
    assert sum(texts.values()) == 3, texts
    at_inner, at_branch = place(inner, "graph_break()"), place(outer, "if y.sum()")
    assert sum(n for text, n in texts.items() if text.endswith(f" at {at_inner}")) == 2, texts
    assert sum(n for text, n in texts.items() if text.endswith(f" at {at_branch}")) == 1, texts
    assert any("data-dependent branching" in text.lower() for text in texts), texts
    assert not found.not_compiled()


@pytest.mark.parametrize(
    ("function", "line", "reason"),
    [
        (loops_over_items, ".item()", r"Tensor\.item"),
        (refuses, "raise ValueError", "Observed exception"),
    ],
)
def test_a_frame_that_is_given_up_is_named(
    function: Callable[..., Any], line: str, reason: str
) -> None:
    found = watch(function, torch.rand(4))
    (one,) = found.graph_breaks()
    assert one.count == 1
    assert re.search(reason, one.text), one.text
    assert first_line(one.text).endswith(f" at {place(function, line)}"), one.text


def test_a_function_of_which_a_part_runs_eagerly_is_compiled_with_breaks() -> None:
    found = watch(calls_a_loop, torch.rand(4))
    assert not found.not_compiled()
    assert found.graph_breaks()
    assert all(place(calls_a_loop, ".item()") in one.text for one in found.graph_breaks())


def test_a_step_that_cannot_be_resumed_has_the_reason_that_broke_it() -> None:
    (one,) = watch(slices_by_a_tensor, torch.rand(4)).graph_breaks()
    # Up to 2.9 only the level DEBUG has the reason.
    unknown = "a step that cannot be resumed" if TORCH < (2, 10) else r"Tensor\.item"
    assert re.search(unknown, one.text), one.text
    assert first_line(one.text).endswith(f" at {place(slices_by_a_tensor, 'return')}"), one.text


@pytest.mark.parametrize(
    ("function", "compiled"), [(calls_a_loop, True), (loops_over_items, False)]
)
def test_a_frame_that_is_skipped_for_a_break_in_a_loop_counts_as_run_eagerly(
    function: Callable[..., Any],
    compiled: bool,  # noqa: FBT001
) -> None:
    total, ok = watch(function, torch.rand(4)).frames()
    assert ok < total
    assert (ok > 0) == compiled


def test_nothing_is_compiled_if_the_only_frame_is_given_up() -> None:
    found = watch(loops_over_items, torch.rand(4))
    assert found.not_compiled()


def test_layers_behind_a_frame_that_is_given_up_are_compiled() -> None:
    found = watch(Layers(), torch.rand(2, 4))
    assert not found.not_compiled()
    (one,) = found.graph_breaks()
    assert "data-dependent branching" in one.text.lower()
    assert first_line(one.text).endswith(f" at {place(Layers.forward, 'if x.sum()')}"), one.text


def test_blocks_with_breaks_are_named_by_their_own_lines() -> None:
    found = watch(Stack(), torch.rand(2, 4))
    assert not found.not_compiled()
    assert found.graph_breaks()
    own = place(Block.forward, ".item()")
    assert any(first_line(one.text).endswith(f" at {own}") for one in found.graph_breaks())
    assert all(" at contract/test_dynamo.py:" in one.text for one in found.graph_breaks())


def test_every_frame_that_is_not_compiled_is_named() -> None:
    found = watch(has_a_generator, torch.rand(3))
    assert not found.not_compiled()
    total, ok = found.frames()
    texts = [one.text for one in found.graph_breaks()]
    assert sum(one.count for one in found.graph_breaks()) >= total - ok
    assert all(" at contract/test_dynamo.py:" in first_line(text) for text in texts), texts


def test_a_recompile_names_the_users_function() -> None:
    watched = Watch()
    compiled = torch.compile(whole, backend="eager", dynamic=False)
    for n in (3, 4):
        compiled(torch.rand(n))
    (one,) = watched.recompile_reasons()
    assert one.count == 1  # the logger hands each message on to another one that is heard
    assert "whole" in one.text
    assert "test_dynamo.py" in one.text


def test_the_users_frame_is_the_innermost_outside_of_torch_and_the_standard_library() -> None:
    frames = [
        ("/home/me/project/model.py", 3, "forward"),
        (
            "/env/lib/python3.12/site-packages/lib/layers.py",
            7,
            "torch_dynamo_resume_in_attend_at_5",
        ),
        ("/env/lib/python3.12/site-packages/torch/nn/functional.py", 9, "linear"),
        (re.__file__, 2, "match"),
        ("<string>", 1, "generated"),
    ]
    assert user_frame(frames) == "lib/layers.py:7 attend"
    assert user_frame(frames[:1]) == "project/model.py:3 forward"
    assert user_frame(frames[2:]) == ""
