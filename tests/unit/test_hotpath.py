"""Hot paths: found at call N, replaced by one graph, equal to eager, or refused with a reason."""

from __future__ import annotations

import collections
import contextlib
import copy
import ctypes
import functools
import gc
import inspect
import io
import itertools
import operator
import os
import pickle
import queue
import random
import struct
import subprocess
import sys
import threading
import time
import types
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

pytest.importorskip("torch", reason="torch is only in the cells")
import torch
import torch._dynamo
import torch._inductor
import torch.utils.checkpoint
from hypothesis import HealthCheck, given, settings
from torch.nn import functional as F  # noqa: N812  (as everywhere)
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from ivhl import hotpath
from ivhl.errors import SpecError
from ivhl.hotpath import block, sequence, turns
from ivhl.hotpath.__main__ import main
from ivhl.hotpath.recorder import Recorder
from ivhl.hotpath.sequence import HotSequence
from ivhl.hotpath.settings import read_settings
from tests.builders.programs import (
    Program,
    check_program,
    compile_with_eager_kernels,
    programs,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning"),
    # Dynamo of 2.6.0 warns so where its settings are copied; the compiler would fail.
    pytest.mark.filterwarnings("ignore:Skipping serialization of skipfiles:UserWarning"),
    # Dynamo looks at the gradient of an argument that is no leaf.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
    # A random program may broadcast there.
    pytest.mark.filterwarnings("ignore:Using a target size:UserWarning"),
]

ROOT = Path(__file__).parents[2]
PLAIN_COMPILE = torch.compile
PLAIN_COMPILE_GRAPH = torch._inductor.compile
APPLY = torch.autograd.Function.__dict__["apply"]
BACKWARD = torch.autograd.backward
TENSOR_BACKWARD = inspect.unwrap(torch.Tensor.backward)
INFERENCE = torch.inference_mode.__enter__


class Compilations:
    """Replaces Inductor, which takes seconds; counts graphs and runs.

    Attributes:
        traces: Whether AOTAutograd makes the graphs, with eager kernels; else the calls of the graph
            are made one by one.
        fails: Whether each compilation fails.
    """

    def __init__(self) -> None:
        self.traces = False
        self.graphs = 0
        self.runs = 0
        self.outputs: list[int] = []
        self.fails = False

    def compile_graph(
        self, module: torch.fx.GraphModule, inputs: list[torch.Tensor], **_options: Any
    ) -> Callable[..., Any]:
        """Replace ``torch._inductor.compile``."""
        if self.fails:
            raise torch._dynamo.exc.Unsupported("no such compiler")
        self.graphs += 1
        self.outputs.append(len(next(iter(module.graph.find_nodes(op="output"))).args[0]))
        compiled = compile_with_eager_kernels(module, inputs) if self.traces else module

        def run(*args: Any) -> Any:
            self.runs += 1
            return compiled(*args)

        return run

    def compile_function(self, function: Callable[..., Any], **options: Any) -> Any:
        """Replace ``torch.compile``, which compiles functions, modules and optimizer steps."""
        options.pop("mode", None)
        options.setdefault("backend", "aot_eager")
        return PLAIN_COMPILE(function, **options) if self.traces else function


class Counting(torch.overrides.TorchFunctionMode):
    """Counts calls of PyTorch."""

    def __init__(self) -> None:
        self.calls = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def _leaves_nothing() -> Iterator[None]:
    yield
    assert torch.autograd.Function.__dict__["apply"] is APPLY
    assert torch.autograd.backward is BACKWARD
    # Ours stays, and is PyTorch's own outside of a block.
    assert inspect.unwrap(torch.Tensor.backward) is TENSOR_BACKWARD
    assert torch.inference_mode.__enter__ is INFERENCE
    assert torch._C._len_torch_function_stack() == 0
    assert torch._C._len_torch_dispatch_stack() == 0


@pytest.fixture(autouse=True)
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compilations:
    compiler = Compilations()
    monkeypatch.setattr(torch._inductor, "compile", compiler.compile_graph)
    monkeypatch.setattr(torch, "compile", compiler.compile_function)
    return compiler


@pytest.fixture
def inductor(monkeypatch: pytest.MonkeyPatch, compiler: Compilations) -> None:
    del compiler  # replaced before, so that this comes after
    monkeypatch.setattr(torch, "compile", PLAIN_COMPILE)
    monkeypatch.setattr(torch._inductor, "compile", PLAIN_COMPILE_GRAPH)


@pytest.fixture
def traced(compiler: Compilations) -> Compilations:
    if sys.version_info >= (3, 13) and torch.__version__ < "2.6":
        pytest.skip("torch.compile of PyTorch 2.5 refuses this Python")
    torch._dynamo.reset()
    compiler.traces = True
    return compiler


def example(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ w).sum()


X = torch.linspace(-1, 1, 30).reshape(3, 10)
W = torch.linspace(-2, 1, 40).reshape(10, 4)
PICKLED = pickle.dumps(X)
SPARSE = torch.eye(3).to_sparse()
with warnings.catch_warnings(action="ignore"):  # newer releases have no names
    NAMED = X.refine_names("a", "b") if hasattr(X, "refine_names") else X


def calls_of(
    monkeypatch: pytest.MonkeyPatch, name: str, note: Callable[[], int] = lambda: 0
) -> list[int]:
    """Return a list to which each call of a method of recorders adds a note."""
    method, notes = getattr(Recorder, name), list[int]()

    def noted(self: Recorder, *call: Any) -> Any:
        notes.append(note())
        return method(self, *call)

    monkeypatch.setattr(Recorder, name, noted)
    return notes


monitoring: Any = getattr(sys, "monitoring", None)
_MONITORED = pytest.mark.skipif(monitoring is None, reason="Python 3.11 has no sys.monitoring")

# --- when ----------------------------------------------------------------------------------------


def test_nothing_is_compiled_before_call_n(compiler: Compilations) -> None:
    with hotpath.auto(threshold=10) as report:
        for _ in range(9):
            example(X, W).item()
    assert report.paths == ()
    assert (report.hits, compiler.graphs) == (0, 0)


@pytest.mark.parametrize("n", [9, 10, 11, 13])
def test_call_n_detects_and_the_next_one_is_the_first_compiled(
    compiler: Compilations, n: int
) -> None:
    with hotpath.auto(threshold=10) as report:
        values = [example(X, W).item() for _ in range(n)]
    assert len(report.paths) == (n >= 10)
    assert (report.hits, compiler.runs) == (max(0, n - 10), max(0, n - 10))
    assert values == [example(X, W).item()] * n
    detected = [one for one in report.events if one.kind == "DETECTED"]
    assert len(detected) == (n >= 10)
    if detected:
        assert "matmul -> relu -> sum (3 operations, ran 10 times)" in detected[0].text


def test_a_loop_that_nothing_interrupts_is_cut_where_it_begins_again() -> None:
    z = X
    with hotpath.auto(threshold=10) as report:
        for _ in range(20):
            z = example(X, W)
    assert report.hits == 10
    assert report.paths[0].calls == 3
    assert type(z) is torch.Tensor
    assert torch.equal(z, example(X, W))


def test_what_precedes_a_loop_does_not_delay_it() -> None:
    with hotpath.auto(threshold=5) as report:
        w = (W * 0.5).neg()
        values = []
        for n in range(9):
            values.append(example(X, w).item())
            assert (report.hits, len(report.paths)) == (max(0, n - 4), n >= 4)
    assert values == [example(X, w).item()] * 9
    # Neither item nor anything else ends a turn of this one.
    with hotpath.auto(threshold=5) as report:
        w = z = W * 0.5
        for _ in range(9):
            z = example(X, w)
    assert report.hits == 4
    assert torch.equal(z, example(X, w))


def reaction(u: torch.Tensor) -> torch.Tensor:
    neighbours = [torch.roll(u, shift, axis) for shift in (1, -1) for axis in (0, 1)]
    return sum(neighbours) - 4 * u + u - u**3


def step_of_lorenz(u: torch.Tensor) -> torch.Tensor:
    x, y, z = u.unbind(-1)
    return torch.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z], -1)


@pytest.mark.parametrize("rate", [reaction, step_of_lorenz])
def test_steps_of_runge_and_kutta_are_compiled_without_a_read(
    rate: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    def step(u: torch.Tensor) -> torch.Tensor:
        # Its sum of two products is no loop, and its four rates begin alike.
        k1 = rate(u)
        k2 = rate(u + 0.005 * k1)
        k3 = rate(u + 0.005 * k2)
        k4 = rate(u + 0.01 * k3)
        return u + 0.01 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    u = expected = torch.linspace(-1, 1, 30).reshape(10, 3)
    for _ in range(30):
        expected = step(expected)
    with hotpath.auto() as report:
        for _ in range(30):
            u = step(u)
    assert torch.equal(u, expected)
    assert [(one.hits, one.misses) for one in report.paths] == [(20, 0)]


def test_a_loop_that_begins_a_hot_sequence_leaves_it_hot() -> None:
    def values_of(u: torch.Tensor) -> list[float]:
        return [torch.exp(torch.cos(torch.sin(u))).sum().item() for _ in range(13)]

    def run() -> list[float]:
        values, u = values_of(X), X
        for _ in range(13):
            u = torch.cos(torch.sin(u))
        return values + values_of(u)

    with hotpath.auto() as report:
        assert run() == run()
    assert [(one.calls, bool(one.refused)) for one in report.paths] == [(4, False), (2, False)]
    assert report.paths[0].hits == 4 * 13 - 10
    assert report.paths[1].hits == 2 * 13 - 10


@pytest.mark.parametrize(
    "compare", [operator.gt, operator.ge, operator.lt, operator.le, operator.eq, operator.ne]
)
def test_comparisons_with_what_is_pending_are_those_of_the_record(
    compare: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> None:
    # Python asks the second operand first, since its class is derived from that of the first one.
    def run() -> list[float]:
        return [(compare(X, torch.relu(X * 2)) * X).sum().item() for _ in range(14)]

    def run_in_order() -> list[float]:
        return [(compare(torch.relu(X * 2), X) * X).sum().item() for _ in range(14)]

    for one in (run, run_in_order):
        expected = one()
        with hotpath.auto() as report:
            assert one() == expected
        assert [(path.hits, path.misses) for path in report.paths] == [(4, 0)]


def test_turns_that_begin_with_a_comparison_of_a_pending_tensor_run_compiled() -> None:
    def run() -> torch.Tensor:
        u, v = X, X.flip(0)
        for _ in range(30):
            v = torch.where(u > v, torch.sin(v), u)
        return v

    with hotpath.auto() as report:
        found = run()
    assert torch.equal(found, run())
    assert [(one.calls, one.hits, one.misses) for one in report.paths] == [(3, 20, 0)]


def test_a_comparison_may_name_its_operand() -> None:
    def run() -> list[float]:
        return [(torch.relu(X * 2).gt(other=X) * X).sum().item() for _ in range(14)]

    expected = run()
    with hotpath.auto() as report:
        assert run() == expected
    assert [(path.hits, path.misses) for path in report.paths] == [(4, 0)]


def test_long_turns_of_few_operations_run_compiled() -> None:
    draw = random.Random(0)  # noqa: S311  (a program, not a secret)
    operations = [torch.tanh, torch.sin, torch.cos, torch.neg, torch.abs]
    calls = [torch.exp, torch.relu]
    while len(calls) < 400:
        # Without a part that is a loop itself.
        calls.append(draw.choice([one for one in operations if one is not calls[-2]]))

    def run() -> torch.Tensor:
        u = X
        for _ in range(16):
            for call in calls:
                u = call(u)
        return u

    with hotpath.auto() as report:
        found = run()
    assert torch.equal(found, run())
    assert sum(one.hits * one.calls for one in report.paths) == 6 * 400


def in_turns(u: torch.Tensor, place: int) -> torch.Tensor:
    return torch.sin(u) if place % 2 else u + place / 1e6


def with_other_parameters(u: torch.Tensor, _place: int) -> torch.Tensor:
    return torch.tanh(u * torch.nn.Parameter(X)) + u


@pytest.mark.parametrize("call", [in_turns, with_other_parameters])
def test_recording_a_call_takes_no_longer_in_a_long_segment(
    call: Callable[[torch.Tensor, int], torch.Tensor],
) -> None:
    calls_of_python = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls_of_python
        calls_of_python += event == "call"

    u, counts = X, [0]
    with hotpath.auto():
        sys.setprofile(count)
        try:
            for place in range(600):
                u = call(u, place)
                if place % 200 == 199:
                    counts.append(calls_of_python)
        finally:
            sys.setprofile(None)
    assert counts[3] - counts[2] < 1.3 * (counts[2] - counts[1])


@pytest.mark.parametrize("threshold", [2, 10])
@pytest.mark.parametrize("seed", range(12))
def test_random_loops_without_a_read_run_compiled(seed: int, threshold: int) -> None:
    draw = random.Random(seed)  # noqa: S311  (a program, not a secret)

    def lines_of(n: int, name: str, known: list[str]) -> list[str]:
        lines: list[str] = []
        for _ in range(n):
            a, b = draw.choice(known), draw.choice(known)
            value = draw.choice(
                [
                    f"torch.tanh({a})",
                    f"torch.sin({a})",
                    f"{a} + {b}",
                    f"0.5 * {a}",
                    f"f({a}, {b})",
                ][: 5 if name == "k" else 4]
            )
            known.append(f"{name}{len(lines)}")
            lines.append(f"    {known[-1]} = {value}")
        return lines

    inner, outer = ["x", "y"], ["u", "w"]
    rate = lines_of(draw.randint(1, 6), "a", inner)
    body = lines_of(draw.randint(2, 8), "k", outer)
    total = " + ".join(f"{draw.choice(['', '2 * '])}{one}" for one in draw.choices(outer, k=4))
    text = "\n".join(
        [
            *("def f(x, y):", *rate, f"    return torch.tanh({inner[-1]})"),
            *("def step(u, w):", *body, f"    return torch.tanh({total})"),
        ]
    )
    made: dict[str, Any] = {"torch": torch}
    exec(text, made)  # noqa: S102  (of nothing but the text above)
    w = torch.linspace(-1, 1, 20).reshape(4, 5)

    def run() -> torch.Tensor:
        u = torch.relu(w.neg() * 0.5)
        for _ in range(60):
            u = made["step"](u, w)
        return u

    with hotpath.auto(threshold) as report:
        found = run()
    assert torch.equal(found, run()), text
    counting = Counting()
    with counting:
        run()
    # Of 60 turns, ten are recorded, and up to ten more where parts of a turn begin alike.
    n_compiled = sum(one.hits * one.calls for one in report.paths)
    assert n_compiled > 40 / 60 * counting.calls, f"{text}\n{report}"
    assert not any(one.refused for one in report.paths), f"{text}\n{report}"


def test_equal_layers_of_a_model_are_no_loop() -> None:
    layers = [torch.nn.Linear(10, 10) for _ in range(4)]
    with torch.no_grad(), hotpath.auto(threshold=3) as report:
        for _ in range(6):
            y = X
            for layer in layers:
                y = torch.relu(layer(y))
            y.sum().item()
    assert [(one.calls, one.hits) for one in report.paths] == [(9, 3)]


def small_batch(w: torch.Tensor) -> torch.Tensor:
    return torch.relu(X[:2] @ w).sum()


def other_activation(w: torch.Tensor) -> torch.Tensor:
    return torch.tanh(X @ w).sum()


def more_operations(w: torch.Tensor) -> torch.Tensor:
    return torch.relu((X @ w.neg()).neg()).sum()


@pytest.mark.parametrize("other", [small_batch, other_activation, more_operations])
def test_turns_that_are_not_looked_at_count_by_what_they_differentiate(
    other: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    w = W.clone().requires_grad_()
    optimizer = torch.optim.SGD([w], lr=0.01)

    def turn(forward: Callable[[torch.Tensor], torch.Tensor]) -> None:
        forward(w).backward()
        optimizer.step()
        optimizer.zero_grad()

    with hotpath.auto(threshold=10) as report:
        for _ in range(4):
            turn(lambda w: torch.relu(X @ w).sum())
        for _ in range(5):
            turn(other)
        for n in range(6):
            turn(lambda w: torch.relu(X @ w).sum())
            names = {one.name for one in report.paths} - {"SGD.step"}
            assert names == ({"matmul -> relu -> sum"} if n == 5 else set())
        for _ in range(5):
            turn(other)
    (path, *_) = [one for one in report.paths if one.name == "matmul -> relu -> sum"]
    assert path.hits == 0
    assert len(report.paths) == 3


@pytest.mark.usefixtures("traced")  # to compile the optimizer's step is no sign of an evaluation
def test_turns_of_several_kinds_are_hot_at_call_n_each_and_most_are_not_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = calls_of(monkeypatch, "_record")
    w = W.clone().requires_grad_()
    optimizer = torch.optim.SGD([w], lr=0.0)
    inputs = [torch.randn(n, len(W)) for n in range(1, 6)]
    with hotpath.auto(threshold=40) as report:
        for _ in range(39):
            for x in inputs:
                torch.relu(x @ w).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
        assert {one.name for one in report.paths} <= {"SGD.step"}
        assert len(looks) < 0.1 * 3 * 39 * len(inputs)
        for n, x in enumerate(inputs):
            torch.relu(x @ w).sum().backward()
            assert len([one for one in report.paths if one.name != "SGD.step"]) == n + 1
            optimizer.step()
            optimizer.zero_grad()


@pytest.mark.usefixtures("traced")
def test_turns_beside_refused_ones_still_run_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    # Fewer than are looked at, more than turns in a row in which nothing runs compiled.
    monkeypatch.setattr(turns, "_LATELY", 33)
    w = W.clone().requires_grad_()
    optimizer = torch.optim.SGD([w], lr=0.0)
    inputs = [torch.randn(n, len(W)) for n in range(1, 31)]
    with hotpath.auto(threshold=5) as report:
        for n in range(60):
            for x in inputs[:1] if n % 5 else inputs:
                torch.relu(x @ w).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
    hot = [one for one in report.paths if one.name != "SGD.step" and not one.refused]
    assert sum(bool(one.refused) for one in report.paths) == 22
    assert hot[0].hits == 60 - 5
    assert [one.hits for one in hot[1:]] == [12 - 5] * 7


def test_what_follows_a_step_is_counted_from_its_first_run() -> None:
    w = W.clone().requires_grad_()
    optimizer = torch.optim.SGD([w], lr=0.0)
    with hotpath.auto(threshold=10) as report:
        for n in range(12):
            torch.relu(X @ w).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            torch.tanh(w.detach()).mean().item()  # as a metric that is logged
            names = {one.name for one in report.paths} - {"SGD.step"}
            assert names == (
                {"matmul -> relu -> sum", "detach -> tanh -> mean"} if n >= 9 else set()
            )


@pytest.mark.parametrize("begins_alike", [True, False])
def test_what_is_only_run_after_one_step_is_compiled_too(*, begins_alike: bool) -> None:
    w = W.clone().requires_grad_()
    optimizer = torch.optim.SGD([w], lr=0.0)
    with hotpath.auto(threshold=10) as report:
        torch.relu(X @ w).sum().backward()
        optimizer.step()
        for _ in range(24):
            torch.tanh((X if begins_alike else X[:2]) @ w).sum().item()
    assert any("matmul -> tanh -> sum" in one.name for one in report.paths)


@_MONITORED
@pytest.mark.parametrize("n_steps", [2, 3, 8])
@pytest.mark.parametrize("way", ["gradients", "no_grad", "eval"])
def test_an_evaluation_after_some_steps_is_compiled(
    compiler: Compilations, way: str, n_steps: int
) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(10, 10), torch.nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with hotpath.auto(threshold=10) as report:
        for _ in range(n_steps):
            model(X).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        if way == "eval":
            model.eval()
        with torch.no_grad() if way == "no_grad" else contextlib.nullcontext():
            for n in range(1, 16):
                model(X).sum().item()
                # A second call of a model that is trained is the first that is something else.
                is_hot = n >= 10 + (way == "gradients")
                assert any("linear" in one.name for one in report.paths) == is_hot
    assert compiler.runs


@_MONITORED
@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(n, marks=pytest.mark.full) for n in range(8, 24))]
)
def test_random_training_loops_with_evaluations_are_compiled_after_n_runs(  # noqa: C901
    seed: int,
) -> None:
    """Each kind of turn at its Nth; evaluations of one turn may be missed, or one call beside."""
    drawn = random.Random(seed)  # noqa: S311  (no secret)
    has_optimizer = drawn.random() < 0.6
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    inputs = [torch.randn(n + 2, 6) for n in range(drawn.randint(1, 4))]
    losses = [drawn.choice((lambda y: (y**2).mean(), lambda y: y.abs().sum())) for _ in inputs]
    way = drawn.choice(("no_grad", "eval", "gradients"))
    every, n_evaluated = drawn.choice((1, 2, 3, 7)), drawn.choice((1, 3, 12))
    has_metric = drawn.random() < 0.3

    def train(number: int) -> None:
        y = model(inputs[number])
        losses[number](y).backward()
        if has_optimizer:
            optimizer.step()
            optimizer.zero_grad()
        else:
            with torch.no_grad():
                for one in model.parameters():
                    one -= 0.0 * one.grad  # noqa: PLW2901  (in place)
                    one.grad = None
        if has_metric:
            (y.detach() * 2).sum().item()

    with hotpath.auto(threshold=10) as report:

        def n_hot(*, evaluated: bool) -> int:
            hot = [one for one in report.paths if "linear" in one.name]
            return sum(("softmax" in one.name) == evaluated for one in hot)

        runs = collections.Counter[Any]()
        for turn in range(60):
            number = drawn.randrange(len(inputs))
            train(number)
            runs[number] += 1
            wanted = sum(runs[n] >= 10 for n in range(len(inputs)))
            late = sum(runs[n] == 10 for n in range(len(inputs)))
            assert wanted - late <= n_hot(evaluated=False) <= wanted, (turn, runs)
            if turn % every < every - 1:
                continue
            if way == "eval":
                model.eval()
            with torch.no_grad() if way == "no_grad" else contextlib.nullcontext():
                for _ in range(n_evaluated):
                    model(inputs[0]).softmax(-1).sum().item()
                    runs["evaluated"] += 1
                    missed = runs["evaluated"] - 10
                    if not 0 <= missed <= n_evaluated + 1:
                        assert bool(n_hot(evaluated=True)) == (missed > 0), runs
            model.train()


@_MONITORED
@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("sizes", [1, 2, 5])
def test_behind_one_step_of_a_model_steps_are_let_pass_until_another_kind_comes(
    monkeypatch: pytest.MonkeyPatch, sizes: int
) -> None:
    looks = calls_of(monkeypatch, "__torch_function__")
    model = torch.nn.Sequential(torch.nn.Linear(10, 10), torch.nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    inputs = [torch.randn(n + 1, 10) for n in range(sizes)]
    looked = []
    with hotpath.auto(threshold=10) as report:
        for n in range(10 * sizes):
            before = len(looks)
            model(inputs[n % sizes]).sum().backward()
            looked.append(len(looks) > before)
            n_hot = sum("linear" in one.name for one in report.paths)
            assert n_hot == max(0, n + 1 - 9 * sizes)
            optimizer.step()
            optimizer.zero_grad()
    # The second step goes by unseen. If it is of another kind, its kind is waited for.
    assert looked[:2] == [True, False]
    if sizes == 1:
        assert looked == [True] + 8 * [False] + [True]
    else:
        assert all(looked[2 : sizes + 2])
        assert not any(looked[sizes + 3 : 8 * sizes + 1])


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("pattern", ["01", "000001", "0000010", "00000000001", "0110", "0012"])
def test_each_kind_of_step_is_hot_at_call_n_in_whichever_order_kinds_come(pattern: str) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(10, 10), torch.nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    inputs = [torch.randn(n + 1, 10) for n in range(3)]
    runs: collections.Counter[int] = collections.Counter()
    with hotpath.auto(threshold=10) as report:
        for number in itertools.islice(itertools.cycle(map(int, pattern)), 60):
            model(inputs[number]).sum().backward()
            runs[number] += 1
            n_hot = sum("linear" in one.name for one in report.paths)
            assert n_hot == sum(count >= 10 for count in runs.values()), runs
            optimizer.step()
            optimizer.zero_grad()


@_MONITORED
@pytest.mark.usefixtures("traced")
def test_what_follows_the_first_step_is_seen_though_the_second_one_is_not() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(10, 10), torch.nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with hotpath.auto(threshold=10) as report:
        for n in range(1, 13):
            predicted = model(X)
            predicted.sum().backward()
            optimizer.step()
            (predicted.detach() * 2).sigmoid().sum().item()
            assert any("sigmoid" in one.name for one in report.paths) == (n >= 10)


@_MONITORED
@pytest.mark.usefixtures("traced")
def test_an_evaluation_before_the_second_step_is_seen() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(10, 10), torch.nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    part = X[:2].clone()
    with hotpath.auto(threshold=10) as report:
        for n in range(13):
            if n:
                with torch.no_grad():
                    model(part).sigmoid().sum().item()
            model(X).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            hot = [one.name for one in report.paths if "linear" in one.name]
            assert any("sigmoid" in name for name in hot) == (n >= 10)
            assert len(hot) == (n >= 9) + (n >= 10)


def test_an_evaluation_that_follows_each_step_is_let_pass_with_it() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(10, 10), torch.nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    n_resting = 0
    block = hotpath.auto(threshold=10)
    with block as report:
        for n in range(1, 13):
            n_resting += block.recorder.is_resting
            model(X).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            model.eval()
            with torch.no_grad():
                model(X[:2]).sum().item()
            model.train()
            assert len([one for one in report.paths if "linear" in one.name]) == 2 * (n >= 10)
    assert n_resting >= 5


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("every", [3, 13])
@pytest.mark.parametrize("threshold", [pytest.param(3, marks=pytest.mark.full), 10])
@pytest.mark.parametrize("way", ["no_grad", "inference_mode", "a sign alone"])
def test_an_evaluation_after_every_few_steps_delays_none_of_them(
    way: str, threshold: int, every: int
) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(10, 10), torch.nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with hotpath.auto(threshold=threshold) as report:
        for n in range(1, 31):
            optimizer.zero_grad()
            loss = torch.tanh(model(X)).sum()
            loss.backward()
            optimizer.step()
            loss.item()
            hits = sum(one.hits for one in report.paths if "tanh" in one.name)
            assert hits == max(0, n - threshold)
            if n % every:
                continue
            model.train()
            if way != "a sign alone":
                with getattr(torch, way)():
                    model(X[:2]).sum().item()


@_MONITORED
@pytest.mark.usefixtures("traced")
def test_an_evaluation_whose_first_call_passes_unseen_is_seen_the_next_times() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(10, 10), torch.nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with hotpath.auto(threshold=10) as report:
        for n in range(1, 31):
            torch.tanh(model(X)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            if n % 2 == 0:  # with gradients, so nothing tells it from the beginning of a step
                model(X).sum().item()
    hits = {one.name: one.hits for one in report.paths}
    assert hits["linear -> relu -> sum"] == 15 - 10 - 1


@_MONITORED
def test_a_training_loop_without_an_optimizer_is_not_looked_at_in_every_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = calls_of(monkeypatch, "_record", lambda: n)
    w, v = W.clone().requires_grad_(), W[:4].clone().requires_grad_()

    with hotpath.auto(threshold=20) as report:
        for n in range(1, 24):
            torch.relu(X @ w @ v).sum().backward()
            with torch.no_grad():
                for one in (w, v):
                    one -= 0.0 * one.grad  # noqa: PLW2901  (in place)
                    one.grad = None
            names = {one.name for one in report.paths}
            assert ("matmul -> matmul -> relu -> sum" in names) == (n >= 20)
    assert {one.name: one.hits for one in report.paths}["mul -> sub_ -> mul -> sub_"] == 3
    assert not {*range(4, 19)} & {*looked}


def test_what_writes_into_a_parameter_is_looked_at_in_the_turn_that_makes_it_hot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = calls_of(monkeypatch, "_look", lambda: n)
    w = W.clone().requires_grad_()
    with hotpath.auto(threshold=5) as report, torch.no_grad():
        for n in range(1, 8):  # noqa: B007  (which the notes are of)
            w -= W * 0.5
            w.add_(W).mul_(0.9)
            w.sum().item()
    assert {*looked} == {5}
    assert [one.name for one in report.paths] == ["mul -> sub_ -> add_ -> mul_ -> sum"]
    assert report.hits == 2


def test_programs_are_watched_for_signs_while_there_are_blocks() -> None:
    seen = []
    with hotpath.auto():
        tool = next(n for n in (3, 4) if monitoring.get_tool(n) == "ivhl.hotpath.signs")
        assert monitoring.get_local_events(tool, torch.nn.Module.train.__code__)
        model = torch.nn.Linear(10, 10)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        for _ in range(3):
            model(X).sum().backward()
            optimizer.step()
        code = torch.nn.Linear.forward.__code__
        assert monitoring.get_local_events(tool, code)
        seen.append(code)
    assert monitoring.get_tool(tool) is None
    monitoring.use_tool_id(tool, "test")
    try:
        assert not any(monitoring.get_local_events(tool, code) for code in seen)
    finally:
        monitoring.free_tool_id(tool)


@_MONITORED
def test_programs_whose_tools_are_all_taken_run_as_before() -> None:
    for tool in (3, 4):
        monitoring.use_tool_id(tool, "others")
    try:
        program = _Turns()
        with hotpath.auto() as report:
            for _ in range(12):
                program.step()
        assert report.hits >= 2
        assert [monitoring.get_tool(tool) for tool in (3, 4)] == ["others", "others"]
    finally:
        for tool in (3, 4):
            monitoring.free_tool_id(tool)


def test_turns_of_ever_new_shapes_are_not_all_remembered() -> None:
    w = W.clone().requires_grad_()
    optimizer = torch.optim.SGD([w], lr=0.0)
    sizes = torch.randint(1, 1000, (1000,), generator=torch.Generator().manual_seed(0)).tolist()
    block = hotpath.auto(threshold=10)
    with block:
        for size in sizes:
            torch.relu(torch.ones(size, 10) @ w).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            assert len(block.recorder.turns.left_out) <= 64


def test_what_is_recorded_is_looked_at_in_the_turn_that_makes_it_hot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = calls_of(monkeypatch, "_look", lambda: n)
    with hotpath.auto(threshold=10) as report:
        for n in range(1, 11):
            torch.relu(X @ W).sum().item()
            if n % 2:
                torch.tanh(X).mean().item()
    assert looked == [10, 10, 10]
    assert len(report.paths) == 1


def test_a_second_turn_that_only_begins_as_the_first_does_not_count() -> None:
    w = W.clone().requires_grad_()
    optimizer = torch.optim.SGD([w], lr=0.0)

    def turn(middle: Callable[[torch.Tensor], torch.Tensor]) -> None:
        middle(X @ w).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    with hotpath.auto(threshold=10) as report:
        turn(torch.relu)
        turn(lambda one: torch.relu(one * 2))
        for n in range(2, 14):
            turn(torch.relu)
            assert any("relu" in one.name for one in report.paths) == (n >= 10)


class _Turns:
    """Turns of programs, each with one sequence or two."""

    def __init__(self) -> None:
        self.w = W.clone().requires_grad_()
        self.v = W[:4].clone().requires_grad_()
        self.optimizer = torch.optim.SGD([self.w], lr=0.0)
        self.other = torch.optim.SGD([self.v], lr=0.0)

    def step(self) -> None:
        """Train."""
        torch.relu(X @ self.w).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def by_hand(self) -> None:
        """Train without an optimizer."""
        torch.relu(X @ self.w).sum().backward()
        with torch.no_grad():
            self.w -= 0.0
        self.w.grad = None

    def logged(self) -> None:
        """Train and compute a metric."""
        predicted = X @ self.w
        torch.relu(predicted).sum().backward()
        self.optimizer.step()
        predicted.argmax(1).float().mean().item()

    def two_optimizers(self) -> None:
        """Train two models."""
        torch.relu(X @ self.w).sum().backward()
        self.optimizer.step()
        torch.tanh(X @ self.w.detach() @ self.v).mean().backward()
        self.other.step()

    def drawn(self) -> None:
        """Train on other data each time."""
        torch.relu((X + torch.rand(())) @ self.w).sum().backward()
        self.optimizer.step()

    def without_a_step(self) -> None:
        """Differentiate alone."""
        torch.relu(X @ self.w).sum().backward()

    def read(self) -> None:
        """Differentiate nothing."""
        torch.relu(X @ self.w).sum().item()


@pytest.mark.parametrize("as_function", [False, True])
@pytest.mark.parametrize("threshold", [3, 4, 5, 10])
@pytest.mark.parametrize(
    "turn", ["step", "by_hand", "logged", "two_optimizers", "drawn", "without_a_step", "read"]
)
def test_first_turns_that_are_not_recorded_are_counted(
    compiler: Compilations, turn: str, threshold: int, *, as_function: bool
) -> None:
    run = getattr(_Turns(), turn)
    block = hotpath.auto(threshold=threshold)
    if as_function:
        run = block(run)
    with contextlib.nullcontext() if as_function else block:
        for n in range(1, threshold + 3):
            run()
            paths = [one for one in block.report.paths if one.name != "SGD.step"]
            assert bool(paths) == (n >= threshold)
            assert bool(compiler.runs) == (n > threshold)


def test_turns_of_several_backward_passes_are_counted_by_passes() -> None:
    program = _Turns()
    with hotpath.auto(threshold=10) as report:
        for n in range(1, 7):
            for _ in range(3):
                torch.relu(X @ program.w).sum().backward()
            program.optimizer.step()
            assert any("matmul" in one.name for one in report.paths) == (n >= 4)


@pytest.mark.parametrize("n_rows", [3, 3 * 2**20])
def test_results_are_kept_until_they_are_differentiated_unless_they_are_large(n_rows: int) -> None:
    w = W.clone().requires_grad_()
    x = X[:1].expand(n_rows, 10)
    with hotpath.auto(threshold=10):
        y = x @ w
        reference = weakref.ref(y)
        z = torch.relu(y)
        del y
        assert (reference() is not None) == (n_rows == 3)
        z.sum().backward()
        assert reference() is None


def test_a_weak_reference_to_a_result_dies_with_it() -> None:
    # A cache by identity, which otherwise has a value of the turn before.
    known: tuple[weakref.ref[torch.Tensor], int] | None = None
    seen = []
    with hotpath.auto(threshold=3) as report:
        for n in range(8):
            h = X @ W
            if known is None or known[0]() is not h:
                known = weakref.ref(h), n
            seen.append(known[1])
            y = torch.relu(h) * 2.0
            del h
            assert y.tolist()
            assert known[0]() is None
    assert seen == [*range(8)]
    assert report.hits


@pytest.mark.parametrize("threshold", [1, 2, 3])
def test_tensors_that_were_recorded_may_be_swapped(threshold: int) -> None:
    w, v = W.clone(), -W

    def turn(number: int) -> Any:
        y = torch.relu(X @ w)
        torch.utils.swap_tensors(w, v)
        z = torch.relu(X @ w) * (number + 1.0)
        torch.utils.swap_tensors(y, z)
        return y, z

    _eager_and_hot(turn, threshold)


@pytest.mark.parametrize("threshold", [1, 2, 3])
def test_a_parameter_that_is_made_of_a_result_is_a_parameter(threshold: int) -> None:
    def turn(number: int) -> Any:
        one = torch.nn.Parameter(torch.relu(X @ W) + number)
        assert type(one) is type(copy.deepcopy(one)) is torch.nn.Parameter
        module = torch.nn.ParameterDict({"one": (X @ W).abs(), "no": torch.nn.Parameter()})
        assert type(module.one) is torch.nn.Parameter
        one.square().sum().backward()
        return one.grad, module.one.detach()

    _eager_and_hot(turn, threshold)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("threshold", [1, 2, 3])
@pytest.mark.parametrize("is_pending", [False, True])
def test_a_transformer_takes_the_way_that_it_takes_without_a_block(
    threshold: int, *, is_pending: bool
) -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 2).eval()
    attention: Any = encoder.layers[0].self_attn
    x = torch.randn(2, 3, 4)
    padding = torch.tensor([[False, False, False], [False, True, True]])

    def turn(number: int) -> Any:
        source = (x * 2.0 + number).tanh() if is_pending else x
        with torch.no_grad():
            y = encoder(source, src_key_padding_mask=padding)
            z, _ = attention(source, source, source)
        assert y[1, 1:].eq(0.0).all()
        return y, z + 1.0

    _eager_and_hot(turn, threshold)


@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_what_a_block_tells_transformers_is_known_to_both_compilers() -> None:
    torch._dynamo.reset()
    attention = torch.nn.MultiheadAttention(4, 2, batch_first=True).eval()
    x = torch.randn(2, 3, 4)
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    options: Any = {"backend": backend, "fullgraph": True}
    before = PLAIN_COMPILE(lambda one: attention(one, one, one)[0], **options)
    inside = PLAIN_COMPILE(lambda one: attention(one, one, one)[0] + 1, **options)
    with torch.no_grad():
        wanted = before(x)
        with hotpath.auto(threshold=2):
            for _ in range(4):
                torch.testing.assert_close(before(x), wanted)
                torch.testing.assert_close(inside(x), wanted + 1)
                torch.testing.assert_close(attention(x, x, x)[0], wanted)
            scripted: Any = torch.jit.script(attention)
            torch.testing.assert_close(scripted(x, x, x)[0], wanted)
        assert len(graphs) == 2
        torch.testing.assert_close(inside(x), wanted + 1)
        torch._dynamo.reset()
        torch.testing.assert_close(inside(x), wanted + 1)


def test_an_error_in_the_first_turn_leaves_nothing_to_record() -> None:
    w = W.clone().requires_grad_()
    with hotpath.auto(threshold=4) as report:
        for n in range(7):
            with pytest.raises(RuntimeError) if n == 0 else contextlib.nullcontext():
                y = X @ w
                torch.relu(y if n else y @ w).sum().backward()
            assert bool(report.paths) == (n >= 4)


def rectified(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    y = x * 1
    F.relu(y, *args, **kwargs)
    return y + 1


def added_into(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    torch.add(x, x, out=y)
    return y + 1


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize(
    "function",
    [
        lambda x: rectified(x, True),  # noqa: FBT003
        lambda x: rectified(x, inplace=True),
        rectified,
        added_into,
    ],
)
def test_calls_that_are_known_by_name_are_looked_at_where_they_may_do_more(
    function: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    expected = function(X).sum().item()
    with hotpath.auto(threshold=5) as report:
        assert [function(X).sum().item() for _ in range(9)] == [expected] * 9
    assert report.hits or function is added_into


@pytest.mark.usefixtures("traced")
def test_gradients_are_dropped_as_pytorch_drops_them() -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = BATCH
    with hotpath.auto(threshold=3):
        for _ in range(5):
            F.mse_loss(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
            assert all(one.grad is None for one in model.parameters())
        F.mse_loss(model(x), y).backward()
        optimizer.zero_grad(set_to_none=False)
        assert all(bool((one.grad == 0).all()) for one in model.parameters())
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True
        ) as profile:
            optimizer.zero_grad()
    assert "Optimizer.zero_grad#SGD.zero_grad" in {one.name for one in profile.events()}


@pytest.mark.usefixtures("traced")
def test_a_first_step_that_raises_does_not_end_recording() -> None:
    w = W.clone().requires_grad_()
    optimizer = torch.optim.SGD([w], lr=0.01)
    w.grad = torch.ones_like(w)

    def fail() -> float:
        raise ValueError("no data")

    with hotpath.auto(threshold=3) as report:
        with pytest.raises(ValueError, match="no data"):
            optimizer.step(fail)
        for _ in range(6):
            torch.relu(X @ w).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    # The first turn is not recorded, up to its step.
    assert [one.hits for one in report.paths if "relu" in one.name] == [2]


@pytest.mark.parametrize(
    ("named", "plain"),
    [
        (lambda: torch.clamp(X, max=0.5), lambda: torch.clamp(X, 0.5)),
        (lambda: torch.sub(other=X, input=X * 2.0), lambda: torch.sub(X, X * 2.0)),
    ],
)
def test_a_name_in_another_place_is_another_call(
    named: Callable[[], torch.Tensor], plain: Callable[[], torch.Tensor]
) -> None:
    def run() -> list[float]:
        return [((named() if n < 5 else plain()) * 2.0).sum().item() for n in range(9)]

    expected = run()
    with hotpath.auto(threshold=3) as report:
        assert run() == expected
    assert report.hits


def test_a_mode_of_the_program_around_a_step_ends_with_it() -> None:
    w = W.clone().requires_grad_()
    optimizer = torch.optim.SGD([w], lr=0.01)
    with hotpath.auto(threshold=10):
        for _ in range(20):
            torch.relu(X @ w).sum().backward()
            with torch.device("meta"):
                optimizer.step()
            optimizer.zero_grad()
            assert torch.zeros(1).device.type == "cpu"
    assert torch.zeros(1).device.type == "cpu"


def test_a_function_whose_first_step_raises_leaves_no_mode() -> None:
    w = W.clone().requires_grad_()
    optimizer = torch.optim.SGD([w], lr=0.01)
    calls = []

    def closure() -> torch.Tensor:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("no data")
        loss = torch.relu(X @ w).sum()
        loss.backward()
        return loss

    step = hotpath.auto(threshold=3)(lambda: optimizer.step(closure))
    with pytest.raises(ValueError, match="no data"):
        step()
    for _ in range(4):
        step()
        assert torch._C._len_torch_function_stack() == 0


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("as_function", [False, True])
@pytest.mark.parametrize("name", ["SGD", "LBFGS"])
def test_what_the_closure_of_a_step_calls_is_compiled(name: str, *, as_function: bool) -> None:
    def training(wrap: Callable[[Any], Any]) -> Iterator[tuple[float, torch.Tensor]]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(10, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
        options = {"max_iter": 1} if name == "LBFGS" else {}
        optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.1, **options)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = (model(X) - 1.0).square().mean()
            loss.backward()
            return loss

        step = wrap(lambda: optimizer.step(closure))
        for _ in range(12):
            yield step().item(), model[0].weight.detach().clone()

    expected = [*training(lambda step: step)]
    block = hotpath.auto(threshold=5)
    with contextlib.nullcontext() if as_function else block:
        trained = training(block if as_function else lambda step: step)
        for n, (got, wanted) in enumerate(zip(trained, expected, strict=True), 1):
            torch.testing.assert_close(got, wanted)
            hits = sum(one.hits for one in block.report.paths if "square" in one.name)
            assert hits == max(0, n - 5)
            assert torch._C._len_torch_function_stack() <= (not as_function)


@pytest.mark.usefixtures("traced")
@pytest.mark.filterwarnings("ignore:.*runs eagerly from now on")  # by an assertion in 2.9.1
def test_a_step_that_counts_itself_runs_once_each_time() -> None:
    class Counting(torch.optim.SGD):
        steps = 0

        def step(self, closure: Any = None) -> Any:
            self.steps += 1
            return super().step(closure)

    model = make_model()
    optimizer = Counting(model.parameters(), lr=0.1)
    with hotpath.auto(threshold=3):
        train(model, optimizer, 8)
    assert optimizer.steps == 8


@pytest.mark.parametrize("is_copy", [False, True])
def test_a_step_that_the_program_has_replaced_runs_each_time(*, is_copy: bool) -> None:
    w = W.clone().requires_grad_()
    optimizer = torch.optim.SGD([w], lr=0.01)
    plain = optimizer.step
    steps = []

    def clipped(_self: Any) -> None:
        steps.append(1)
        plain()

    if is_copy:
        clipped = functools.wraps(plain.__func__)(clipped)
    optimizer.step = types.MethodType(clipped, optimizer)
    with hotpath.auto(threshold=2):
        for _ in range(6):
            torch.relu(X @ w).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert len(steps) == 6


def test_losses_may_come_from_a_generator_or_as_edges() -> None:
    w = W.clone().requires_grad_()
    with hotpath.auto(threshold=2):
        for _ in range(4):
            torch.autograd.backward(one for one in [torch.relu(X @ w).sum()])
            edge = torch.autograd.graph.get_gradient_edge(torch.relu(X @ w).sum())
            torch.autograd.backward([edge], [torch.ones(())])
    torch.testing.assert_close(w.grad, 8 * torch.autograd.grad(torch.relu(X @ w).sum(), w)[0])


def test_a_range_for_the_profiler_cuts_no_sequence() -> None:
    with hotpath.auto(threshold=3) as report:
        for _ in range(6):
            with torch.profiler.record_function("forward"):
                y = torch.relu(X @ W)
            y.sum().item()
    assert [(one.calls, one.hits) for one in report.paths] == [(3, 3)]
    assert not report.reasons or "record_function" not in str(report.reasons)


def test_hooks_of_others_around_steps_run_at_each_step() -> None:
    w = W.clone().requires_grad_()
    optimizer = torch.optim.SGD([w], lr=0.01)
    steps = []

    def note(*_: Any) -> None:
        steps.append(1)

    hook = register_optimizer_step_post_hook(note)
    with hotpath.auto(threshold=2):
        for _ in range(6):
            torch.relu(X @ w).sum().backward()
            optimizer.step()
    hook.remove()
    assert len(steps) == 6


def test_what_is_pending_is_computed_before_what_orders_the_work_of_a_gpu() -> None:
    """Where there is no GPU, waiting for it raises, after what is pending was computed."""
    x = torch.linspace(-1, 1, 16)
    waiting = []
    hot = hotpath.auto(threshold=3)
    with hot:
        for _ in range(9):
            ((x * 2).sin() + x).relu()
            waiting.append(hot.recorder.is_deferring)
            with contextlib.suppress(RuntimeError, AssertionError):
                torch.cuda.synchronize()
            assert not hot.recorder.is_deferring
    assert waiting == 3 * [False] + 6 * [True]


def test_nothing_is_recorded_while_a_cuda_graph_is_captured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(block, "_begin_capture", lambda _: None)
    monkeypatch.setattr(block, "_end_capture", lambda _: None)
    x, graph = torch.linspace(-1, 1, 16), Mock()
    with hotpath.auto(threshold=3) as report:
        for _ in range(9):
            block._paused_begin_capture(graph)
            ((x * 2).sin() + x).relu()
            block._paused_end_capture(graph)
        assert not report.paths
        for _ in range(9):
            ((x * 2).sin() + x).relu().sum().item()
    assert sum(path.hits for path in report.paths) == 6


def test_what_is_hot_runs_compiled_only(compiler: Compilations) -> None:
    ran = []
    with hotpath.auto(threshold=3) as report:
        for _ in range(6):
            runs = compiler.runs
            with torch.autograd.profiler.profile() as profile:
                example(X, W).item()
            n_products = sum(one.name == "aten::mm" for one in profile.function_events)
            ran.append((n_products, compiler.runs - runs))
    # Each product once: eagerly before, by the graph from call N + 1. (The first call runs in a
    # mode, and so is in the profile twice.)
    assert ran[1:] == [(1, 0), (1, 0), (1, 1), (1, 1), (1, 1)]
    assert report.hits == 3


def test_dead_intermediates_are_not_returned(compiler: Compilations) -> None:
    with hotpath.auto(threshold=2):
        for _ in range(4):
            example(X, W).item()
    assert compiler.outputs == [1]


def test_an_intermediate_that_is_kept_later_has_its_value(compiler: Compilations) -> None:
    kept = []
    with hotpath.auto(threshold=2) as report:
        for n in range(12):
            y = X @ W
            z = torch.relu(y)
            if n in {5, 9, 10, 11}:
                kept.append(y)
            del y
            z.sum().item()
    assert all(torch.equal(one, X @ W) for one in kept)
    assert report.misses >= 1
    assert sorted(compiler.outputs) == [2, 3]


# --- keys ----------------------------------------------------------------------------------------


def wiring_one(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    y = a @ b
    return torch.relu(y) + y * 2.0


def wiring_two(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    y = a @ b
    z = torch.relu(y)
    return z + z * 2.0


def test_other_wiring_is_another_graph() -> None:
    with hotpath.auto(threshold=3) as report:
        for _ in range(8):
            for function in (wiring_one, wiring_two):
                assert torch.equal(function(X, W).clone(), function(X, W).clone())
        got = [f(X, W).tolist() for f in (wiring_one, wiring_two)]
    assert got == [f(X, W).tolist() for f in (wiring_one, wiring_two)]
    assert got[0] != got[1]
    assert len({one.number for one in report.paths}) == len(report.paths)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (lambda x: torch.relu(x).sum(dim=0), lambda x: torch.relu(x).sum(dim=1)),
        (lambda x: torch.relu(x) * 1, lambda x: torch.relu(x) * 1.0),
        (lambda x: torch.relu(x) * 0.0, lambda x: torch.relu(x) * -0.0),
        (lambda x: torch.relu(x) * True, lambda x: torch.relu(x) * 1),
        (lambda x: torch.relu(x)[0:2], lambda x: torch.relu(x)[0:3]),
        (lambda x: (x - x.t()).abs(), lambda x: (x.t() - x).neg()),
        (lambda x: torch.relu(x) - torch.tanh(x), lambda x: torch.tanh(x) - torch.relu(x)),
    ],
)
def test_collisions_give_two_graphs(
    compiler: Compilations,
    one: Callable[[torch.Tensor], torch.Tensor],
    two: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    x = torch.linspace(-3, 3, 16).reshape(4, 4)
    expected = [str(f(x).tolist()) for f in (one, two)]
    with hotpath.auto(threshold=2, min_calls=1) as report:
        for _ in range(5):
            assert [str(f(x).tolist()) for f in (one, two)] == expected
    assert len(report.paths) == 2
    assert report.paths[0].number != report.paths[1].number
    assert compiler.graphs == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x[:2],
        lambda x: x.double(),
        lambda x: x.t().contiguous().t(),
        lambda x: x.clone().requires_grad_(),
    ],
)
def test_other_facts_of_an_input_are_another_graph(
    change: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    other = change(X)
    with hotpath.auto(threshold=2) as report:
        for _ in range(5):
            for x in (X, other):
                assert torch.relu(x * 2.0).sum().item() == (x * 2.0).clamp(min=0).sum().item()
    assert len([one for one in report.paths if one.name.startswith("mul -> relu")]) == 2
    assert any(one.kind == "RECOMPILE" for one in report.events)


@pytest.mark.full
def test_numbers_of_sequences_are_the_same_in_every_process() -> None:
    code = (
        "import torch; from ivhl import hotpath; x = torch.ones(3, 4)\n"
        "with hotpath.auto(2) as report:\n"
        "    for _ in range(2): torch.relu(x * 2.0).sum().item()\n"
        "print(report.paths[0].number)"
    )
    other = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)},
    ).stdout.strip()
    x = torch.ones(3, 4)
    with hotpath.auto(2) as report:
        for _ in range(2):
            torch.relu(x * 2.0).sum().item()
    assert report.paths[0].number == other
    assert len(other) == 12


@pytest.mark.usefixtures("traced")
def test_gradient_mode_is_part_of_the_key() -> None:
    w = W.clone().requires_grad_()
    with hotpath.auto(threshold=3) as report:
        for _ in range(7):
            y = torch.relu(X @ w)
            assert y.requires_grad
            y.sum().item()
            with torch.no_grad():
                z = torch.relu(X @ w)
                assert not z.requires_grad
                assert torch.equal(y, z)
    assert [(one.name, one.hits) for one in report.paths] == [
        ("matmul -> relu -> sum", 4), ("matmul -> relu", 4)
    ]  # fmt: skip


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("other", [True, 1.0, 2], ids=repr)
def test_a_constant_of_another_type_or_value_is_another_call(other: float) -> None:
    flags = torch.tensor([True, False])
    with hotpath.auto(threshold=3) as report:
        for n in range(8):
            constant = 1 if n != 6 else other
            found = (flags * constant).neg().abs() if constant is not True else flags * constant
            expected = flags.to(torch.tensor(constant).dtype) * constant
            assert found.dtype == expected.dtype
            assert found.tolist() == expected.tolist()
    assert (report.hits, report.misses) == (4, 0)


def test_a_global_setting_that_changes_is_another_graph(compiler: Compilations) -> None:
    with hotpath.auto(threshold=2) as report:
        for n in range(8):
            torch.use_deterministic_algorithms(n >= 5)
            example(X, W).item()
        torch.use_deterministic_algorithms(mode=False)
    assert (report.hits, compiler.graphs) == (6, 2)
    assert any(one.kind == "RECOMPILE" for one in report.events)


# --- training ------------------------------------------------------------------------------------


BATCH = torch.linspace(-1, 1, 24).reshape(4, 6), torch.ones(4, 2)


def make_model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2))


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> list[float]:
    x, y = BATCH  # made before the block: its operations would belong to the first sequence
    losses = []
    for _ in range(steps):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: torch.optim.Adam(p, lr=0.01),
    ],
)
@pytest.mark.usefixtures("traced")
def test_a_training_loop_is_compiled_with_backward_pass_and_optimizer(
    make: Callable[[Any], torch.optim.Optimizer],
) -> None:
    one, two = make_model(), make_model()
    expected = train(one, make(one.parameters()), 9)
    with hotpath.auto(threshold=4) as report:
        got = train(two, make(two.parameters()), 9)
    assert got == pytest.approx(expected, rel=1e-4)
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    forward = next(one for one in report.paths if "linear" in one.name)
    step = next(one for one in report.paths if one.name.endswith(".step"))
    assert forward.hits == 5
    assert step.hits == 5


def test_the_optimizer_has_its_own_methods_again_after_the_block() -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with hotpath.auto(threshold=2):
        train(model, optimizer, 4)
        assert "step" in optimizer.__dict__
    assert "step" not in optimizer.__dict__
    assert "zero_grad" not in optimizer.__dict__


def test_a_schedule_that_changes_the_rate_at_each_step_compiles_no_step() -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    other = make_model()
    plain = torch.optim.SGD(other.parameters(), lr=0.1)
    plain_scheduler = torch.optim.lr_scheduler.ExponentialLR(plain, 0.9)
    with hotpath.auto(threshold=3) as report:
        for _ in range(8):
            train(model, optimizer, 1)
            scheduler.step()
    for _ in range(8):
        train(other, plain, 1)
        plain_scheduler.step()
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    assert next(one for one in report.paths if one.name == "SGD.step").hits == 0


@pytest.mark.usefixtures("traced")
def test_buffers_that_change_have_the_values_of_eager_code() -> None:
    batches = [X * (n + 1.0) for n in range(8)]

    def run() -> list[list[float]]:
        model = torch.nn.Sequential(torch.nn.Linear(10, 4), torch.nn.BatchNorm1d(4))
        with torch.no_grad():
            model[0].weight.copy_(W.t())
            model[0].bias.zero_()
        seen = []
        for n, x in enumerate(batches):
            model.train(n != 5)
            model(x).sum().backward()
            seen.append([float(one) for b in model.buffers() for one in b.flatten().tolist()])
        seen.append(model[0].weight.grad.flatten().tolist())
        return seen

    expected = run()
    with hotpath.auto(threshold=2) as report:
        got = run()
    for a, b in zip(got, expected, strict=True):
        assert a == pytest.approx(b, rel=1e-4, abs=1e-5)
    assert report.hits


@pytest.mark.usefixtures("traced")
def test_buffers_change_behind_the_back_of_eager_nodes_as_in_eager_code() -> None:
    def run() -> list[float]:
        norm = torch.nn.BatchNorm1d(4)
        found = []
        for n in range(6):
            eager = norm(W[: 3 + n] * 1.0).square().sum()  # of another size in each turn
            eager.item()
            compiled = norm(W).exp().sum()
            compiled.item()
            eager.backward()
            compiled.backward()
            found.append(float(norm.weight.grad.sum() + norm.running_mean.sum()))
        return found

    expected = run()
    with hotpath.auto(threshold=2) as report:
        assert run() == pytest.approx(expected, rel=1e-4)
    assert [one.hits for one in report.paths if "batch_norm" in one.name] == [4]


@pytest.mark.usefixtures("traced")
def test_gradients_reach_leaves_through_every_entry_of_autograd() -> None:
    w = torch.linspace(-1, 1, 6).requires_grad_()
    expected = torch.autograd.grad((w * 2.0).tanh().sum(), w)[0]
    with hotpath.auto(threshold=2):
        for n in range(12):
            loss = (w * 2.0).tanh().sum()
            if n % 3 == 0:
                torch.autograd.backward(loss)
                got, w.grad = w.grad, None
            elif n % 3 == 1:
                (got,) = torch.autograd.grad(loss, w)
            else:
                torch.autograd.backward([loss], [torch.ones(())])
                got, w.grad = w.grad, None
            torch.testing.assert_close(got, expected)


@pytest.mark.usefixtures("traced")
def test_a_function_of_the_user_gets_its_gradient() -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
            return x * 2.0 + 0.0

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
            return gradient * 2.0 + 0.0

    w = torch.linspace(-1, 1, 6).requires_grad_()
    with hotpath.auto(threshold=2) as report:
        for _ in range(6):
            y = Twice.apply((w * 3.0).neg())
            (got,) = torch.autograd.grad((y * 1.0).abs().sum(), w)
            torch.testing.assert_close(got, 6.0 * w.detach().sign())
    assert report.hits


@pytest.mark.usefixtures("traced")
def test_a_gradient_of_a_gradient_stays_eager() -> None:
    w = torch.linspace(0.1, 1, 6).requires_grad_()
    with hotpath.auto(threshold=2):
        for _ in range(6):
            y = (w * w * w).sum()
            (first,) = torch.autograd.grad(y, w, create_graph=True)
            (second,) = torch.autograd.grad(first.sum(), w)
            torch.testing.assert_close(second, 6.0 * w.detach())


@pytest.mark.usefixtures("traced")
def test_backward_may_run_twice() -> None:
    w = torch.linspace(0.1, 1, 6).requires_grad_()
    with hotpath.auto(threshold=2):
        for _ in range(6):
            y = (w * w).tanh().sum()
            y.backward(retain_graph=True)
            y.backward()
            once = torch.autograd.grad((w * w).tanh().sum(), w)[0]
            torch.testing.assert_close(w.grad, 2.0 * once)
            w.grad = None


@pytest.mark.usefixtures("traced")
def test_losses_that_have_nothing_in_common_are_differentiated_one_by_one() -> None:
    v, w = (torch.linspace(0.1, n, 6).requires_grad_() for n in (1, 2))
    with hotpath.auto(threshold=2) as report:
        for n in range(8):
            one, two = (v * 2.0).exp().sum(), (w * w).exp().sum()
            if n % 2:
                one.backward()
                two.backward()
                got = v.grad, w.grad
                v.grad = w.grad = None
            else:
                got = (*torch.autograd.grad(one, v), *torch.autograd.grad(two, w))
            torch.testing.assert_close(got[0], 2.0 * (2.0 * v.detach()).exp())
            torch.testing.assert_close(got[1], 2.0 * w.detach() * (w.detach() ** 2).exp())
    assert report.hits


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("way", ["grad", "inputs", "retain_grad", "hook"])
def test_a_gradient_by_an_intermediate_result_is_that_of_eager_code(way: str) -> None:
    w = torch.linspace(0.1, 1, 6).requires_grad_()
    with hotpath.auto(threshold=2):
        for _ in range(6):
            y = (w * 2.0).exp()
            z = (y * y).sum()
            z.item()
            seen: list[torch.Tensor] = []
            if way == "grad":
                seen += torch.autograd.grad(z, y)
            elif way == "inputs":
                z.backward(inputs=[y])
                seen.append(y.grad)
            elif way == "retain_grad":
                y.retain_grad()
                z.backward()
                seen.append(y.grad)
            else:
                y.register_hook(seen.append)
                z.backward()
            torch.testing.assert_close(seen[0], 2.0 * y.detach())


@pytest.mark.usefixtures("traced")
def test_a_gradient_by_a_result_may_be_asked_for_after_it_was_compiled() -> None:
    w = torch.linspace(0.1, 1, 6).requires_grad_()
    with hotpath.auto(threshold=2) as report:
        for n in range(6):
            y = (w * 2.0).exp()
            z = (y * y).sum()
            z.item()
            if n == 5:
                y.retain_grad()
            z.backward()
            if n == 5:
                torch.testing.assert_close(y.grad, 2.0 * y.detach())
        assert report.hits == 4


Turn = Callable[[], list[torch.Tensor | None]]


def turn_with_a_change_of_a_saved_result() -> list[torch.Tensor | None]:
    x = X.clone().requires_grad_()
    y = -x
    product = x * y  # keeps y for a gradient that nobody asks for
    y.add_(x)
    y.sum().backward()
    return [x.grad, product.detach()]


def turn_with_one_of_two_losses() -> list[torch.Tensor | None]:
    v, w = (one.clone().requires_grad_() for one in (X, W))
    one, other = (v * v).sum(), (w * w).sum()
    one.backward()
    return [v.grad, w.grad, other.detach()]


def turn_with_an_infinity_that_nobody_differentiates() -> list[torch.Tensor | None]:
    x = torch.zeros(3, requires_grad=True)
    infinite, finite = x.log(), (x + 1.0).square().sum()
    finite.backward()
    return [x.grad, infinite.detach()]


def turn_with_an_inner_result() -> list[torch.Tensor | None]:
    x = torch.zeros(3, requires_grad=True)
    inner = x + 0.0
    outer = inner.log().sum()
    inner.sum().backward()
    return [x.grad, outer.detach()]


def turn_with_a_buffer_that_changes_before_the_backward_pass() -> list[torch.Tensor | None]:
    w, buffer = W.clone().requires_grad_(), torch.ones(4)
    loss = (w + buffer).exp().sum()  # keeps neither
    loss.item()
    buffer.add_(1.0).neg_()
    loss.backward()
    return [w.grad]


def turn_with_a_view_that_is_changed() -> list[torch.Tensor | None]:
    x = X.clone().requires_grad_()
    row = (x.detach() * 2.0).reshape(-1)[:10]
    (x * 2.0).sum().item()
    row.add_(x[0])
    row.sum().backward()
    return [x.grad]


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize(
    "turn",
    [
        turn_with_a_change_of_a_saved_result,
        turn_with_one_of_two_losses,
        turn_with_an_infinity_that_nobody_differentiates,
        turn_with_an_inner_result,
        turn_with_a_buffer_that_changes_before_the_backward_pass,
        turn_with_a_view_that_is_changed,
    ],
)
def test_a_gradient_is_that_of_eager_code_whatever_is_differentiated_or_changed(
    turn: Turn,
) -> None:
    expected = turn()
    with hotpath.auto(threshold=2, min_calls=1) as report:
        got = [turn() for _ in range(4)]
    assert report.hits
    for found in got:
        for one, other in zip(found, expected, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(one, other)


@pytest.mark.usefixtures("inductor")
def test_a_parameter_that_changes_before_the_backward_pass_gives_no_wrong_gradient() -> None:
    """Of plain ``torch.compile`` it does: it keeps another view, with a version of its own."""
    if sys.version_info >= (3, 13) and torch.__version__ < "2.6":
        pytest.skip("torch.compile of PyTorch 2.5 refuses this Python")
    w, v = (
        torch.linspace(-1, 1, 40).reshape(shape).requires_grad_() for shape in ((10, 4), (4, 10))
    )
    with hotpath.auto(threshold=2) as report:
        for n in range(5):
            loss = (torch.relu(X @ w) @ v).exp().sum()
            loss.item()
            if n == 4:
                with torch.no_grad():
                    v.mul_(2.0)
                with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                    loss.backward()
            else:
                loss.backward()
    assert report.hits


class Ordinary:
    """A model with its data, trained in one of the ways in which people write it."""

    def __init__(self, name: str) -> None:
        torch.manual_seed(0)
        nn = torch.nn
        self.x, self.y = torch.randn(4, 6), torch.randn(4, 2)
        self.model: torch.nn.Module
        if name == "convolution":
            self.x = torch.randn(4, 2, 5, 5)
            self.model = nn.Sequential(
                nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.Flatten(),
                nn.Linear(27, 2),
            )  # fmt: skip
        elif name == "attention":
            self.x, self.y = torch.randn(2, 4, 8), torch.randn(2, 4, 8)
            self.model = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        else:
            self.model = nn.Sequential(
                nn.Linear(6, 5), nn.LayerNorm(5), nn.GELU(), nn.Linear(5, 2)
            )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.way = name

    def train(self, steps: int) -> list[float]:
        """Return the losses, and sums over the state of the model."""
        losses = []
        for _ in range(steps):
            out = self.model(self.x)
            loss = F.mse_loss(out, self.y)
            if self.way == "two losses":
                penalty = (out * out).mean()
                loss = loss + 0.1 * penalty
            if self.way == "logged before":
                losses.append(loss.item())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if self.way != "logged before":
                losses.append(loss.item())
        return [*losses, *[float(one.double().sum()) for one in self.model.state_dict().values()]]


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("way", ["convolution", "attention", "two losses", "logged before"])
def test_ordinary_training_is_compiled_and_nothing_of_it_refused(way: str) -> None:
    expected = Ordinary(way).train(8)
    with hotpath.auto(threshold=3) as report:
        got = Ordinary(way).train(8)
    assert got == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert [one.refused for one in report.paths if one.refused] == []
    forward, step = max(report.paths, key=lambda one: one.calls), report.paths[-1]
    assert (forward.hits, step.hits) == (5, 5)


@pytest.mark.usefixtures("traced")
def test_each_result_with_a_gradient_is_differentiated_by_itself(
    traced: Compilations,
) -> None:
    v, w = (torch.linspace(0.1, n, 6).requires_grad_() for n in (1, 2))

    def run() -> list[torch.Tensor]:
        gradients = []
        for n in range(8):
            inner = (w * v).exp() * 2.0
            outer = (inner * inner).tanh().sum() + v.exp().sum()
            outer.item()
            gradients += torch.autograd.grad(inner.sum() if n % 2 else outer, (v, w))
        return gradients

    expected = run()
    with hotpath.auto(threshold=2) as report:
        got = run()
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other)
    assert max(one.hits for one in report.paths) == 6
    assert traced.outputs[:2] == [1, 1]


@pytest.mark.usefixtures("traced")
def test_what_eager_code_differentiates_twice_is_differentiated_twice() -> None:
    w = torch.ones(3, requires_grad=True)
    with hotpath.auto(threshold=2) as report:
        for _ in range(5):
            loss = (w + 1.0).neg().sum()  # keeps nothing, so nothing is freed
            loss.backward()
            loss.backward()
            assert w.grad.tolist() == [-2.0] * 3
            w.grad = None
    assert any("sums and views" in reason for reason in report.reasons)


@pytest.mark.usefixtures("traced")
def test_a_sequence_that_changes_what_its_backward_pass_needs_is_refused() -> None:
    w, buffer = W.clone().requires_grad_(), torch.ones(4)
    with hotpath.auto(threshold=2) as report:
        for _ in range(5):
            loss = (w * buffer).sum()
            buffer.add_(1.0)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()
    assert any("changes a tensor that its backward pass needs" in one for one in report.reasons)


@pytest.mark.usefixtures("traced")
def test_more_results_with_gradients_than_pieces_run_eagerly() -> None:
    w = torch.linspace(0.1, 1, 6).requires_grad_()
    got = w
    with hotpath.auto(threshold=2) as report:
        for _ in range(4):
            one = w.tan()
            two = one.sin() * one
            three = two.cos() * one
            four = three.tanh() * two
            five = four.exp() * three
            five.sum().item()
            (got,) = torch.autograd.grad(two.sum(), w)
            assert four.requires_grad
    x = w.detach().tan()
    torch.testing.assert_close(got, (x.sin() + x * x.cos()) * (1.0 + x * x))
    assert any("results with gradients are in use" in one for one in report.reasons)


@pytest.mark.usefixtures("traced")
def test_views_that_are_in_use_are_those_of_eager_code() -> None:
    x = torch.arange(12.0).reshape(3, 4)
    with hotpath.auto(threshold=2) as report:
        for _ in range(5):
            y = x * 2.0 + 1.0
            row, halves, other = y[1], y.chunk(2, dim=1), x.t()
            z = row.sum() + halves[0].sum()
            z.item()
            assert row._base is y
            assert halves[1]._base is y
            assert other._base is x._base or other._base is x
            before = y._version
            row.zero_()
            assert y._version > before
            assert y[1].tolist() == [0.0] * 4
    assert report.hits == 3


def test_a_change_of_a_shape_in_place_runs_by_itself() -> None:
    with hotpath.auto(threshold=2) as report:
        for _ in range(5):
            y = torch.relu(X * 2.0)
            y.t_()
            assert y.shape == (10, 3)
            assert torch.equal(y, torch.relu(X * 2.0).t())
    assert any("shape" in one for one in report.reasons)


# --- mutation and aliasing -----------------------------------------------------------------------


@pytest.mark.usefixtures("traced")
def test_an_input_that_is_changed_in_place_is_changed() -> None:
    state, first, other = torch.zeros(4), 0.0, 0.0
    with hotpath.auto(threshold=2) as report:
        for _ in range(8):
            state.mul_(0.5).add_(1.0)
            view = state[1:]
            view.sub_(0.25)
            first, other = first * 0.5 + 1.0, other * 0.5 + 0.75
            assert state.tolist() == [first, other, other, other]
    assert report.hits == 6


@pytest.mark.usefixtures("traced")
def test_a_tensor_that_shares_memory_with_a_changed_one_is_read_after_the_change() -> None:
    base = torch.zeros(6)
    apart = (torch.zeros(6), torch.zeros(6))
    with hotpath.auto(threshold=2):
        for n in range(12):
            # From the seventh time on, both are one memory.
            a, b = apart if n < 6 else (base[:6], base.view(6))
            a.add_(1.0)
            c = b + a
            a.mul_(2.0)
            got = (c.tolist(), b.tolist())
            if n >= 6:
                assert got[0] == [2 * (one / 2) for one in got[1]]


def test_numpy_may_write_into_an_input_while_it_waits() -> None:
    memory = bytearray(16)
    x = torch.frombuffer(memory, dtype=torch.float32)
    with hotpath.auto(threshold=2) as report:
        for n in range(8):
            struct.pack_into("4f", memory, 0, *[float(n)] * 4)
            y = torch.relu(x + 1.0)
            struct.pack_into("4f", memory, 0, *[-100.0] * 4)
            z = y * 2.0
            assert z.tolist() == [2.0 * (n + 1)] * 4
    assert report.hits


def test_numpy_may_write_into_an_input_between_two_calls_that_read_it() -> None:
    numpy = pytest.importorskip("numpy")
    for is_changed in (True, False):
        data = numpy.ones(4, dtype=numpy.float32)
        shared = torch.from_numpy(data)
        found = []
        with hotpath.auto(threshold=3) as report:
            for turn in range(8):
                data[:] = turn
                first = (shared * 2.0).relu()
                if is_changed:
                    data[:] = 100.0 + turn
                second = (shared + 1.0).relu()
                found.append((first[0].item(), second[0].item()))
        assert found == [(2.0 * n, n + (101.0 if is_changed else 1.0)) for n in range(8)]
        assert bool(report.hits) != is_changed


class CountingDispatch(TorchDispatchMode):
    """A mode of the program."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


class CountingFunction(TorchFunctionMode):
    """A mode of the program."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        self.seen.append(func.__name__)
        return func(*args, **(kwargs or {}))


# jvp of 2.15.0 uses it.
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:FutureWarning")
@pytest.mark.parametrize("changes", [True, False])
@pytest.mark.parametrize(
    "state", ["inference", "grad", "vmap", "jvp", "dispatch", "function", "saved", "functionalize"]
)
def test_calls_that_wait_have_run_before_the_program_enters_another_state(
    state: str,
    changes: bool,  # noqa: FBT001
) -> None:
    def run(turns: int) -> list[Any]:
        torch.manual_seed(0)
        weight, x = torch.randn(4), torch.zeros(4)
        found: list[Any] = []
        for _ in range(turns):
            if changes:
                x.add_(1.0)
                x.mul_(0.5)
                x.sub_(weight)
            else:
                x = (x + 1.0) * 0.5 - weight
            if state == "inference":
                with torch.inference_mode():
                    found.append((weight * x).sum().clone())
            elif state in ("dispatch", "function"):
                mode = CountingDispatch() if state == "dispatch" else CountingFunction()
                with mode:
                    found.append((weight * x).sum())
                found.append(len(mode.seen))
            elif state == "saved":
                packed: list[Any] = []
                leaf = weight.detach().requires_grad_()
                with torch.autograd.graph.saved_tensors_hooks(
                    lambda one, packed=packed: packed.append(one.sum()) or one, lambda one: one
                ):
                    loss = (leaf * x).sum()
                loss.backward()
                found += [leaf.grad, len(packed)]
            else:
                changed = {
                    "grad": torch.func.grad(lambda one, x=x: (one * x).sum()),
                    "vmap": torch.func.vmap(lambda one, x=x: (one * x).sum()),
                    "jvp": lambda one, x=x: torch.func.jvp(lambda w: (w * x).sin(), (one,), (x,))[
                        1
                    ],
                    "functionalize": torch.func.functionalize(lambda one, x=x: one * x),
                }[state]
                given = torch.stack((weight, x)) if state == "vmap" else weight
                found.append(changed(given))
            found.append(x.sum().item())
        return found

    expected = run(8)
    with hotpath.auto(threshold=2):
        found = run(8)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    torch.randn(2)  # raises where the dispatcher was left with a mode that is gone


@pytest.mark.usefixtures("inductor")
@pytest.mark.parametrize("adds", ["embedding", "unfold_copy", "index_add"])
def test_values_that_are_added_to_one_place_are_all_added_by_one_thread(adds: str) -> None:
    torch.manual_seed(0)
    rows = torch.randn(3, 64, requires_grad=adds != "index_add")
    index, values = torch.tensor([1, 1, 1, 2]), torch.randn(4, 64)

    def turn() -> torch.Tensor:
        if adds == "index_add":
            return rows.sin().index_add(0, index, values.cos()).exp()
        rows.grad = None
        if adds == "unfold_copy":
            torch.unfold_copy(rows, 0, 2, 1).sin().sum().backward()
        else:
            (F.embedding(index, rows).sin() * values).sum().backward()
        return rows.grad.clone()

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        expected = turn().tolist()
        with hotpath.auto(threshold=2):
            found = [turn().tolist() for _ in range(4)]
    finally:
        torch.set_num_threads(threads)
    for one in found:
        torch.testing.assert_close(torch.tensor(one), torch.tensor(expected))


def test_a_checkpoint_keeps_the_value_of_a_result_that_nothing_else_holds(
    traced: Compilations,
) -> None:

    def run() -> list[torch.Tensor]:
        torch.manual_seed(0)
        first, second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        parameters = [*first.parameters(), *second.parameters()]
        for turn in range(8):
            x = torch.randn(2, 4)
            loss = torch.utils.checkpoint.checkpoint(
                lambda one: second(one.sin()).cos(), first(x).relu(), use_reentrant=turn == 6
            ).sum()
            loss.backward()
        return [one.grad for one in parameters]

    expected = run()
    with hotpath.auto(threshold=2):
        found = run()
    assert traced.runs > 0
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.skipif(
    sys.version_info >= (3, 13) and torch.__version__ < "2.6",
    reason="torch.compile of PyTorch 2.5 refuses this Python",
)
def test_what_the_program_compiles_itself_is_compiled_as_without_a_block() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def apart(x: torch.Tensor) -> torch.Tensor:
        return x * 3.0

    whole = PLAIN_COMPILE(lambda x: (x.sin() + 1.0).cos(), backend=backend, fullgraph=True)
    broken = PLAIN_COMPILE(lambda x: apart(x.sin()) + 1.0, backend=backend)
    expected = [whole(X * 2.0 + 1.0), broken(X * 2.0 + 1.0)]
    assert len(graphs) == 3
    with hotpath.auto(threshold=3) as report:
        for _ in range(8):
            assert torch.equal(whole(X * 2.0 + 1.0), expected[0])
            assert torch.equal(broken(X * 2.0 + 1.0), expected[1])
            assert torch._C._len_torch_function_stack() == 1
        with pytest.raises(TypeError):
            whole(X, X)
        assert torch._C._len_torch_function_stack() == 1
    assert len(graphs) == 3  # not compiled again for the block
    assert report.hits


@pytest.mark.usefixtures("traced")
def test_equal_results_do_not_share_memory() -> None:
    with hotpath.auto(threshold=2) as report:
        for _ in range(6):
            a = torch.relu(X)
            b = torch.relu(X)
            c = X + 0
            a.add_(1.0).tolist()
            c.sub_(7.0).tolist()
            assert torch.equal(b, X.clamp(min=0))
            assert torch.equal(a, X.clamp(min=0) + 1)
    assert report.hits


@pytest.mark.usefixtures("traced")
def test_a_view_of_an_input_is_one_wherever_the_input_lies() -> None:
    big = torch.arange(64.0).reshape(8, 8)
    with hotpath.auto(threshold=2) as report:
        for n in range(8):
            x = big[n]
            view = x[1:3]
            z = view * 2.0
            assert z.tolist() == [2.0 * one for one in view.tolist()] == (2.0 * x)[1:3].tolist()
            view.fill_(-1.0)
            assert big[n, 1:3].tolist() == [-1.0, -1.0]
            strided = (x + 0.0).as_strided((2,), (3,)) + x.as_strided((2,), (3,))
            assert strided.tolist() == [2.0 * big[n, 0].item(), 2.0 * big[n, 3].item()]
    assert report.hits


@pytest.mark.usefixtures("traced")
def test_results_that_share_memory_share_it_when_compiled() -> None:
    with hotpath.auto(threshold=2) as report:
        for _ in range(15):
            y = torch.relu(X * 2.0)
            v = y[0]
            v.add_(1.0).tolist()
            y.mul_(3.0)
            assert torch.equal(y[0], v)
    assert report.hits


# --- ends and readers ----------------------------------------------------------------------------


def test_whatever_reads_a_pending_tensor_gets_its_value() -> None:
    expected = torch.relu(X * 2.0)
    readers: list[Callable[[torch.Tensor], Any]] = [
        lambda y: y.tolist(),
        lambda y: [one.item() for one in y.flatten()],
        repr,
        lambda y: float(y.sum()),
        lambda y: copy.deepcopy(y).tolist(),
        lambda y: torch.equal(y, expected),
        lambda y: [row.tolist() for row in y],
        lambda y: y.data_ptr() > 0,
        lambda y: (y > 0).any().item(),
        lambda y: torch.vmap(lambda r: r * 2)(y).tolist(),
        lambda y: torch.save(y, "/dev/null"),
        lambda y: (y.shape, y.dtype, y.stride(), len(y), y.requires_grad, y.is_leaf, y.grad_fn),
        lambda y: y.untyped_storage().nbytes(),
    ]
    for read in readers:
        with hotpath.auto(threshold=2) as report:
            for _ in range(4):
                y = torch.relu(X * 2.0)
                assert str(read(y)) == str(read(expected))
                assert torch.equal(y, expected)
        assert report.hits or report.misses == 2  # under vmap nothing is compiled


@pytest.mark.usefixtures("traced")
def test_what_reads_below_autograd_leaves_the_graph_whole() -> None:
    w = torch.linspace(0.5, 1, 6).requires_grad_()
    with hotpath.auto(threshold=2) as report:
        for _ in range(6):
            y = (w * 2.0).exp()
            with torch._C.DisableTorchFunction():  # as an extension in C++, past the recorder
                peek = y.detach().tolist()
            assert peek == (w.detach() * 2.0).exp().tolist()
            assert y.grad_fn is not None
            (got,) = torch.autograd.grad(y.sum(), w)
            torch.testing.assert_close(got, 2.0 * (2.0 * w.detach()).exp())
    assert report.hits


def test_nan_and_infinity_are_values() -> None:
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1.0])
    expected = str((torch.relu(x) * float("nan")).tolist()), str((x / 0.0).tolist())
    with hotpath.auto(threshold=2, min_calls=1) as report:
        for _ in range(6):
            got = str((torch.relu(x) * float("nan")).tolist()), str((x / 0.0).tolist())
            assert got == expected
    assert report.hits == 8
    assert len(report.paths) == 2


def test_a_branch_on_a_value_takes_the_right_way() -> None:
    with hotpath.auto(threshold=2):
        for n in range(12):
            x = X if n % 3 else -X
            y = torch.relu(x * 2.0).sum()
            z = y + 1.0 if x[0, 0] > 0 else y - 1.0
            value = 2.0 * sum(max(0.0, one) for one in x.flatten().tolist())
            assert z.item() == pytest.approx(value + (1.0 if n % 3 == 0 else -1.0))


def test_a_program_that_goes_another_way_runs_eagerly() -> None:
    y = torch.relu(X * 2.0)
    ways = [(y + 1.0).sum().item(), y.tanh().sum().item()]
    with hotpath.auto(threshold=3) as report:
        for n in range(30):
            y = torch.relu(X * 2.0)
            z = y.tanh() if n % 7 == 6 else y + 1.0
            assert z.sum().item() == pytest.approx(ways[n % 7 == 6])
    # The other way is hot after three times, too.
    assert report.misses == 3
    assert report.hits == 30 - 3 - 3
    assert [one.kind for one in report.events].count("FALLBACK") == 1


def test_random_numbers_are_those_of_eager_code() -> None:
    def run() -> list[list[float]]:
        torch.manual_seed(3)
        return [
            F.dropout(torch.relu(X * 2.0) + torch.rand(3, 10), 0.5)
            .mul(2.0)
            .neg()
            .flatten()
            .tolist()
            for _ in range(6)
        ]

    expected = run()
    with hotpath.auto(threshold=2) as report:
        assert run() == expected
    assert report.hits
    assert any("dropout" in one for one in report.reasons)


def test_a_failure_of_the_compiler_is_logged_and_values_are_right(
    compiler: Compilations,
) -> None:
    compiler.fails = True
    with hotpath.auto(threshold=2) as report:
        for _ in range(5):
            assert example(X, W).item() == torch.relu(X @ W).sum().item()
    assert "no such compiler" in report.paths[0].refused
    assert any(one.kind == "REFUSED" for one in report.events)
    assert report.hits == 0


def test_shapes_that_change_at_each_step_are_not_compiled_for_ever(compiler: Compilations) -> None:
    with hotpath.auto(threshold=2) as report:
        for n in range(60):
            x = torch.ones(n % 12 + 1)
            assert torch.relu(x * 2.0).sum().item() == 2.0 * (n % 12 + 1)
    refused = [one for one in report.paths if one.refused]
    assert compiler.graphs == 8
    assert refused
    assert "8 shapes" in refused[0].refused


@pytest.mark.parametrize("threshold", [1, 2, 3])
def test_a_matrix_that_cannot_be_factored_raises_where_eager_code_does(threshold: int) -> None:
    def turn(number: int) -> torch.Tensor:
        matrix = torch.eye(3) * torch.tensor(0.0 if number % 4 == 3 else 2.0) + 0.0
        try:
            factor = torch.linalg.cholesky(matrix)
            matrix = torch.linalg.inv(matrix) @ matrix
        except torch.linalg.LinAlgError:
            factor = torch.zeros(3, 3)
        return factor * 2.0 + matrix

    _eager_and_hot(turn, threshold, turns=16)


def test_an_exception_leaves_nothing_pending() -> None:
    with hotpath.auto(threshold=2) as report:
        for n in range(8):
            y = torch.relu(X * 2.0)
            if n >= 4:
                with pytest.raises(RuntimeError, match="mat1 and mat2"):
                    _ = y @ y
            assert torch.equal(y, (X * 2.0).clamp(min=0))
    assert report.hits


def test_autocast_and_inference_mode_run_eagerly_and_right() -> None:
    with hotpath.auto(threshold=2) as report:
        for _ in range(4):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                assert (X @ W).relu().dtype is torch.bfloat16
            with torch.inference_mode():
                assert example(X, W).is_inference()
            with torch.no_grad():
                assert not example(X, W.requires_grad_()).requires_grad
            W.requires_grad_(False)  # noqa: FBT003
    assert report.misses == 0


@pytest.mark.usefixtures("traced")
def test_what_waits_is_computed_as_where_it_was_called() -> None:
    exact = torch.relu(X @ W)
    with hotpath.auto(threshold=2) as report:
        for n in range(8):
            y = torch.relu(X @ W)
            if n % 4 == 0:
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    z = y @ W.t()
                assert z.dtype is torch.bfloat16
            elif n % 4 == 1:
                with torch.inference_mode():
                    assert (y + 1.0).is_inference()
                assert not y.is_inference()
            elif n % 4 == 2:
                w = W.clone().requires_grad_()
                y = torch.relu(X @ w)
                with torch.no_grad():
                    y.sum().item()
                assert y.grad_fn is not None
            assert y.dtype is torch.float32
            assert torch.equal(y, exact)
    assert report.hits


def test_pending_results_hold_no_memory_after_the_block() -> None:
    x = torch.ones(3, 4)
    seen = weakref.ref(x)
    with hotpath.auto(threshold=2):
        for _ in range(5):
            y = torch.relu(x * 2.0)
            y.sum().item()
    del x
    gc.collect()
    assert seen() is None


def test_other_threads_are_left_alone() -> None:
    values: list[float] = []

    def work() -> None:
        values.extend(example(X, W).item() for _ in range(5))

    with hotpath.auto(threshold=2) as report:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert values == [example(X, W).item()] * 5
    assert report.paths == ()


def _saved(y: torch.Tensor) -> torch.Tensor:
    file = io.BytesIO()
    torch.save(y, file)
    file.seek(0)
    loaded: torch.Tensor = torch.load(file, weights_only=True)
    return loaded


def _written(y: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y[0] = 5.0
    return y


READERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "add": lambda y: y + 1.0,
    "copy": copy.copy,
    "equal": lambda y: torch.equal(y, y),
    "graph": lambda y: type(y.grad_fn),
    "item": lambda y: y[0].item(),
    "out": lambda y: torch.zeros(y.shape).copy_(y),
    "print": repr,
    "save": _saved,
    "set": _written,
    "shape": lambda y: y.shape,
    "tolist": lambda y: y.tolist(),
}


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", READERS)
def test_another_thread_may_read_a_result(name: str, *, requires_grad: bool) -> None:
    x = torch.linspace(0.0, 1.0, 5, requires_grad=requires_grad)

    def turn(read: Callable[[torch.Tensor], Any]) -> tuple[Any, torch.Tensor]:
        y = x * 2.0 + 1.0
        found = read(y)
        return found, (y * x).detach()

    def elsewhere(y: torch.Tensor) -> Any:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(READERS[name], y).result(timeout=60)

    wanted, after = turn(READERS[name])
    with hotpath.auto(threshold=2) as report:
        for _ in range(6):
            found, product = turn(elsewhere)
            same = torch.equal if isinstance(wanted, torch.Tensor) else operator.eq
            assert same(found, wanted)
            assert torch.equal(product, after)
    assert report.misses > 0 or name == "shape"


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Let threads take turns as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty_threads")
def test_threads_may_read_while_the_block_goes_on() -> None:
    results: queue.Queue[Any] = queue.Queue()
    wrong: list[Any] = []

    def read() -> None:
        while (found := results.get()) is not None:
            y, wanted = found
            got = sum(y.tolist()) if wanted % 2 else y.sum().item()
            if got != wanted:
                wrong.append((got, wanted))

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        try:
            with hotpath.auto(threshold=3):
                for turn in range(2000):
                    x = torch.full((8,), float(turn % 7))
                    y = (x * 2.0).relu() + 1.0
                    results.put((y, 8 * (2 * (turn % 7) + 1)))
                    z = y * 3.0 - x
                    if turn % 5 == 0:
                        assert z.sum().item() == 8 * (5 * (turn % 7) + 3)
        finally:
            for _ in readers:
                results.put(None)
        for one in readers:
            one.result(timeout=60)
    assert not wrong


# --- what no mode of functions sees ----------------------------------------------------------------


def _eager_and_hot(turn: Callable[[int], Any], threshold: int, turns: int = 8) -> None:
    """Check that some turns return the same in a block."""
    wanted = [turn(number) for number in range(turns)]
    with hotpath.auto(threshold=threshold):
        found = [turn(number) for number in range(turns)]
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")
@pytest.mark.parametrize("threshold", [1, 2, 3])
def test_torchscript_may_write_into_what_was_read(threshold: int) -> None:
    def add_one_to(x: torch.Tensor) -> None:
        x.add_(1.0)

    add_one: Any = torch.jit.script(add_one_to)
    x = torch.zeros(4)

    def turn(number: int) -> torch.Tensor:
        x.fill_(number)
        y = (x * 2.0 + 1.0).sin()
        add_one(x)
        return y

    _eager_and_hot(turn, threshold)


@pytest.mark.parametrize("threshold", [1, 2, 3])
@pytest.mark.parametrize("change", ["fill_", "copy_", "__setitem__", "resize_"])
def test_memory_may_be_written_or_freed_past_its_tensors(change: str, threshold: int) -> None:
    def turn(number: int) -> torch.Tensor:
        x = torch.full((2**16,), float(number))
        storage = x.untyped_storage()
        arguments = {"fill_": [1], "copy_": [storage.clone().fill_(2)], "__setitem__": [3, 7]}
        y = (x * 2.0 + 1.0).sin()
        getattr(storage, change)(*arguments.get(change, [0]))
        return y

    _eager_and_hot(turn, threshold)


@pytest.mark.parametrize("threshold", [1, 2, 3])
def test_memory_that_is_read_past_its_tensor_has_the_value(threshold: int) -> None:
    x = torch.zeros(4)
    storage = x.untyped_storage()

    def turn(number: int) -> Any:
        x.fill_(number)
        x.add_(1.0).mul_(2.0)
        first = storage[3], storage.tolist()
        x.add_(1.0).mul_(2.0)
        return first, storage.clone().tolist()

    _eager_and_hot(turn, threshold)


@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("threshold", [1, 2, 3])
def test_torchscript_may_hold_results(threshold: int) -> None:
    class Holder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("held", torch.zeros(6, 3))

        def forward(self, x: torch.Tensor) -> Any:
            return self.held + x

    holder: Any = torch.jit.script(Holder())

    def turn(number: int) -> Any:
        holder.held = torch.relu(X @ W) + number
        several: Any = torch.jit.script([torch.relu(X @ W) - number])
        several.append(torch.relu(X @ W) * number)
        named: Any = torch.jit.script({"one": torch.relu(X @ W) * 2.0})
        named["two"] = torch.relu(X @ W) * 3.0
        assert (X * 3.0 + 1.0).sum().item()
        return holder(X[:, :4] * number), [*several], named["one"], named["two"]

    _eager_and_hot(turn, threshold)


@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")
@pytest.mark.parametrize("threshold", [1, 2, 3])
def test_a_torchscript_module_may_stand_behind_an_ordinary_one(threshold: int) -> None:
    first, last = torch.nn.Linear(4, 3), torch.jit.script(torch.nn.Linear(3, 2))

    def turn(number: int) -> Any:
        loss = last(torch.relu(first(X[:2, :4] + number))).square().sum()
        first.zero_grad()
        loss.backward()
        return loss.detach(), first.weight.grad

    _eager_and_hot(turn, threshold)


@pytest.mark.parametrize("threshold", [1, 2, 3])
@pytest.mark.parametrize("split", ["tensor_split", "pack_padded_sequence"])
def test_shapes_that_depend_on_values_are_in_no_sequence(split: str, threshold: int) -> None:
    rnn = torch.nn.utils.rnn

    def turn(number: int) -> Any:
        number //= 3
        if split == "tensor_split":
            parts = torch.tensor_split(torch.arange(12.0) * 2.0, torch.tensor([2 + number, 8]))
            return [part + 1.0 for part in parts]
        packed = rnn.pack_padded_sequence(
            torch.ones(3, 5, 2) * 2.0, torch.tensor([5, 4, 1 + number]), batch_first=True
        )
        return packed.data.shape, rnn.pad_packed_sequence(packed)[0] + 1.0

    wanted = [turn(number) for number in range(9)]
    with hotpath.auto(threshold=threshold):
        for number in range(9):
            torch.testing.assert_close(turn(number), wanted[number])


def test_a_shape_that_changes_between_recorded_turns_ends_a_sequence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As an operation of which neither its name nor PyTorch tells it.
    monkeypatch.setattr("ivhl.hotpath.rules._BY_VALUES", frozenset())
    with hotpath.auto(threshold=4) as report:
        for number in range(8):
            parts = torch.tensor_split(torch.arange(12.0) * 2.0, torch.tensor([2 + number, 11]))
            assert parts[0].shape == (2 + number,)
            assert (parts[0] + 1.0).shape == (2 + number,)
            parts[1].sum().item()
    assert report.reasons["tensor_split: the shape of its result depends on values"] > 0


def test_a_shape_that_changes_once_it_is_hot_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ivhl.hotpath.rules._BY_VALUES", frozenset())
    # Inductor cannot compile it; what these tests compile with can.
    monkeypatch.setattr(torch._inductor, "compile", Mock(side_effect=RuntimeError("cannot")))

    def turn(first: int) -> float:
        parts = torch.tensor_split(torch.arange(12.0) * 2.0, torch.tensor([first, 11]))
        total: float = (parts[0] + 1.0).sum().item()
        return total

    with hotpath.auto(threshold=2):
        for _ in range(2):
            assert turn(2) == 4.0
        with pytest.raises(RuntimeError, match="tensor_split returned another shape"):
            turn(3)


def test_memory_that_dlpack_has_exported_is_read_at_once() -> None:
    x = torch.zeros(4)
    with hotpath.auto(threshold=2) as report:
        other = torch.from_dlpack(x.__dlpack__())
        memory = (ctypes.c_float * 4).from_address(other.data_ptr())
        for number in range(6):
            y = x * 2.0 + 1.0
            memory[0] = number + 1.0  # as NumPy would write
            assert y[0].item() == 2.0 * number + 1.0
    assert report.hits > 0


def test_a_write_that_nothing_sees_is_an_error_and_no_wrong_number() -> None:
    x = torch.zeros(4)
    with hotpath.auto(threshold=2) as report:
        for _ in range(3):
            (x * 2.0 + 1.0).sum().item()
        y = x * 2.0 + 1.0
        assert report.hits > 0
        # As an extension in C++ does.
        with torch._C.DisableTorchFunction():
            x.add_(1.0)
        with pytest.raises(RuntimeError, match="has changed a tensor that calls before it read"):
            y.sum().item()
        assert (x * 2.0 + 1.0).sum().item() == 12.0  # and the block goes on
    assert torch._C._len_torch_function_stack() == 0


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this build has no distributed")
def test_collectives_come_after_what_was_read(tmp_path: Path) -> None:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'group'}", rank=0, world_size=1
    )
    try:
        with hotpath.auto(threshold=2):
            for _ in range(6):
                x = torch.ones(3)
                y = (x * 2.0).sin()
                torch.distributed.all_reduce(x)
                assert type(y) is torch.Tensor
    finally:
        torch.distributed.destroy_process_group()


def test_a_record_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ivhl.hotpath.recorder.MOST_KNOWN", 50)
    block = hotpath.auto(threshold=10)
    with block as report:
        for number in range(200):
            torch.roll(X, number % 40, 0).sum().item()
            assert torch.equal(torch.roll(X, number, 1).relu(), torch.roll(X.relu(), number, 1))
    assert block.roots.size == 50
    assert any("its arguments change at each step" in one for one in report.reasons)


def test_a_result_read_elsewhere_again_and_again_is_given_up() -> None:
    with hotpath.auto(threshold=3) as report, ThreadPoolExecutor(1) as pool:
        for _ in range(12):
            y = torch.relu(X * 2.0)
            pool.submit(y.tolist).result(timeout=60)
            y.sum().item()
    assert "another thread read a result" in report.paths[0].refused


# --- functions as blocks -------------------------------------------------------------------------


def test_each_call_of_a_function_goes_on_where_the_last_one_ended(compiler: Compilations) -> None:
    block = hotpath.auto(threshold=3)
    hot = block(example)
    for n in range(6):
        y = hot(X, W)
        assert type(y) is torch.Tensor
        assert torch._C._len_torch_function_stack() == 0
        assert (block.report.hits, compiler.runs) == (max(0, n - 2), max(0, n - 2))
        example(X, W)  # of no block
        assert torch.equal(y, example(X, W))
    assert [(one.hits, one.misses) for one in block.report.paths] == [(3, 0)]
    assert torch.autograd.backward is not BACKWARD  # until the function is collected
    assert not torch._inductor.config.fallback_random


@pytest.mark.usefixtures("traced")
def test_a_function_that_trains_is_compiled_with_backward_pass_and_optimizer() -> None:
    def run(*, is_hot: bool) -> tuple[list[float], hotpath.auto]:
        model = make_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        block = hotpath.auto(threshold=3)

        def step() -> torch.Tensor:
            loss = model(torch.ones(3, 6)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        chosen = block(step) if is_hot else step
        losses = []
        for _ in range(9):
            losses.append(chosen().item())
            if is_hot:
                optimizer.zero_grad()  # beside the block
                assert torch._C._len_torch_function_stack() == 0
        return losses, block

    losses, block = run(is_hot=True)
    torch.testing.assert_close(losses, run(is_hot=False)[0])
    by_name = {one.name: one for one in block.report.paths}
    assert by_name["SGD.step"].hits >= 4
    assert sum(one.hits for one in block.report.paths if one.number) >= 4


def test_a_call_of_a_function_inside_of_a_block_is_part_of_it() -> None:
    inner = hotpath.auto(threshold=2)
    hot = inner(example)
    with hotpath.auto(threshold=2) as report:
        for _ in range(4):
            hot(X, W).item()
    assert (report.hits, inner.report.hits) == (2, 0)
    recursive = hotpath.auto(threshold=2)

    def count_down(n: int) -> torch.Tensor:
        return steps[0](n - 1) + 1.0 if n else X * 2.0 - 1.0

    steps = [recursive(count_down)]
    for _ in range(4):
        assert torch.equal(steps[0](3), X * 2.0 - 1.0 + 1.0 + 1.0 + 1.0)
    steps.clear()  # the function refers to itself
    assert recursive.report.hits == 2


def test_a_function_of_which_nothing_is_compiled_is_seldom_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    block = hotpath.auto(threshold=3)
    opened = Mock(wraps=block._open)
    monkeypatch.setattr(block, "_open", opened)
    seen = block(lambda x: x.mul(2).tolist())  # one call alone is no sequence
    for n in range(3000):
        assert seen(X) == X.mul(2).tolist()
        if n == 20:
            assert 3 <= opened.call_count <= 6
    assert opened.call_count < 30


def test_what_a_function_begins_to_do_is_compiled_though_nothing_was_before(
    compiler: Compilations,
) -> None:
    block = hotpath.auto(threshold=3)
    ways: list[Any] = [lambda x: x.mul(2).sum(), lambda x: (x * 2).relu() - 1]
    way = [ways[0]]
    seen = block(lambda x: way[0](x).tolist())
    compiler.fails = True
    for _ in range(40):
        seen(X)
    assert all(one.refused for one in block.report.paths)
    compiler.fails = False
    way[0] = ways[1]
    for _ in range(400):
        assert seen(X) == ways[1](X).tolist()
    assert block.report.hits > 100


def test_a_function_that_raises_leaves_no_block_open() -> None:
    block = hotpath.auto(threshold=2)

    @block
    def fails(x: torch.Tensor, *, is_wrong: bool) -> torch.Tensor:
        y = x * 2.0 + 1.0
        if is_wrong:
            raise ValueError("wrong")
        return y

    for _ in range(4):
        fails(X, is_wrong=False)
        with pytest.raises(ValueError, match="wrong"):
            fails(X, is_wrong=True)
        assert torch._C._len_torch_function_stack() == 0
    assert torch.equal(fails(X, is_wrong=False), X * 2.0 + 1.0)


def test_two_threads_may_call_a_function() -> None:
    block = hotpath.auto(threshold=3)
    hot = block(example)
    found: list[list[torch.Tensor]] = [[], []]

    def call(place: int) -> None:
        for _ in range(40):
            found[place].append(hot((place + 1.0) * X, W))

    threads = [threading.Thread(target=call, args=(place,)) for place in (0, 1)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    for place, results in enumerate(found):
        assert len(results) == 40
        assert all(torch.equal(one, example((place + 1.0) * X, W)) for one in results)
    assert block.report.hits > 0


def test_one_object_is_the_block_of_one_function() -> None:
    block = hotpath.auto()
    hot = block(example)
    with pytest.raises(SpecError, match="that of another function"):
        block(example)
    with pytest.raises(SpecError, match="the block of a function already"), block:
        pass
    assert torch.equal(hot(X, W), example(X, W))


def test_a_function_stays_as_it_is_where_the_environment_switches_blocks_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("IVHL_AUTO_COMPILE", "0")
    block = hotpath.auto(threshold=1)
    hot = block(example)
    assert all(torch.equal(hot(X, W), example(X, W)) for _ in range(4))
    assert [one.kind for one in block.report.events] == ["OFF"]


# --- boundaries and settings ---------------------------------------------------------------------


def test_a_boundary_compiles_without_waiting_or_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("yaml", reason="the extra `hotpath`")
    rules = tmp_path / "rules.yaml"
    rules.write_text("hot: {compile: true}\ncold: {compile: false}\nnone: {compile: true}\n")
    monkeypatch.setenv("IVHL_HOTPATH_BOUNDARIES", str(rules))
    with hotpath.auto(threshold=10) as report:
        for _ in range(4):
            with hotpath.boundary("hot"):
                a = torch.relu(X * 2.0)
            with hotpath.boundary("cold"):
                b = torch.relu(X * 2.0)
            assert torch.equal(a, b)
    assert [(one.boundary, one.hits) for one in report.paths] == [("hot", 3)]
    assert report.unused == ("none",)
    assert "none" in str(report)


@pytest.mark.usefixtures("traced")
def test_a_function_and_a_module_are_compiled_as_a_whole() -> None:
    @hotpath.boundary("loss")
    def loss(y: torch.Tensor) -> torch.Tensor:
        return (y * y).mean()

    model = make_model()
    model[0] = hotpath.boundary("first")(model[0])
    x = torch.ones(4, 6)
    expected = loss(model(x)).item()
    with hotpath.auto(threshold=3) as report:
        for _ in range(6):
            assert loss(model(x)).item() == pytest.approx(expected)
    hits = {one.name: one.hits for one in report.paths}
    assert hits["loss"] == hits["first"] == 3
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin[0].weight.zero_()
        twin[0].bias.zero_()
    assert twin[0](x).abs().sum() == 0.0
    assert model[0](x).abs().sum() > 0.0
    assert list(model.state_dict()) == list(make_model().state_dict())


@pytest.mark.parametrize(
    ("text", "value"), [("0", False), ("1", True), ("off", False), ("", None)]
)
def test_switches_are_switches(text: str, value: bool | None) -> None:  # noqa: FBT001
    assert read_settings({"IVHL_AUTO_COMPILE": text}).auto is value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("IVHL_COMPILE", "perhaps"),
        ("IVHL_DEBUG_COMPILE", "2"),
        ("IVHL_HOTPATH_THRESHOLD", "0"),
        ("IVHL_HOTPATH_THRESHOLD", "ten"),
        ("IVHL_HOTPATH_MIN_CALLS", "-1"),
        ("IVHL_HOTPATH_ONLY_FASTER", "perhaps"),
        ("IVHL_HOTPATH_BOUNDARIES", "/nowhere/rules.yaml"),
    ],
)
def test_nonsense_in_a_variable_is_named(name: str, text: str) -> None:
    if name.endswith("BOUNDARIES"):
        pytest.importorskip("yaml", reason="the extra `hotpath`")
    with pytest.raises(SpecError, match=r"perhaps|'2'|'0'|ten|-1|nowhere"):
        read_settings({name: text})


@pytest.mark.parametrize(
    "text", ["[1, 2]", "a: 1", "a: {compile: 1}", "a: {shard: 2}", "1: {compile: true}", "a: {"]
)
def test_a_file_of_boundaries_that_says_something_else_is_refused(
    tmp_path: Path, text: str
) -> None:
    pytest.importorskip("yaml", reason="the extra `hotpath`")
    path = tmp_path / "rules.yaml"
    path.write_text(text)
    with pytest.raises(SpecError, match=r"rules\.yaml"):
        hotpath.load_boundaries(path)


def test_the_environment_switches_off_and_compiles_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("IVHL_AUTO_COMPILE", "0")
    with hotpath.auto(threshold=2) as report:
        for _ in range(4):
            example(X, W).item()
    assert report.paths == ()
    monkeypatch.setenv("IVHL_AUTO_COMPILE", "1")
    monkeypatch.setenv("IVHL_COMPILE", "1")
    with hotpath.auto(threshold=10) as report:
        for _ in range(4):
            example(X, W).item()
    assert report.hits == 3


@pytest.mark.full
def test_a_program_that_begins_with_nonsense_in_a_variable_gets_a_sentence(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("print('ran')")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "ivhl.hotpath", str(script)],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"IVHL_AUTO_COMPILE": "perhaps", "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == SpecError.exit_code
    assert "IVHL_AUTO_COMPILE: expected a switch (got 'perhaps')" in done.stderr
    assert "Traceback" not in done.stderr
    assert "ran" not in done.stdout


def test_a_timeline_that_cannot_be_written_is_refused_before_the_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.py"
    script.write_text("print('ran')")
    picture = tmp_path / "missing" / "timeline.svg"
    monkeypatch.setattr(sys, "argv", ["hotpath", "--timeline", str(picture), str(script)])
    with pytest.raises(SystemExit):
        main()
    shown = capsys.readouterr()
    assert f"no folder {picture.parent}" in shown.err
    assert "ran" not in shown.out


def test_arguments_are_checked() -> None:
    wrong: tuple[dict[str, Any], ...] = (
        {"threshold": 0},
        {"min_calls": True},
        {"mode": "reduce-overhead"},
        {"boundaries": {"loss": 1}},
        {"only_faster": 1},
    )
    for arguments in wrong:
        with pytest.raises(SpecError):
            hotpath.auto(**arguments)
    with hotpath.auto(), pytest.raises(SpecError, match="a block is open"), hotpath.auto():
        pass
    for name in ("", None, 3):
        with pytest.raises(SpecError, match=r"hotpath\.boundary"):
            hotpath.boundary(name)  # type: ignore[arg-type]


def test_the_report_has_a_line_and_a_picture(tmp_path: Path) -> None:
    with hotpath.auto(threshold=3) as report:
        for _ in range(12):
            example(X, W).item()
    text = str(report)
    assert "matmul -> relu -> sum" in text
    assert report.paths[0].number in text
    (path,) = report.paths
    assert path.eager_s is not None
    assert path.compiled_s is not None
    assert path.speedup == pytest.approx(path.eager_s / path.compiled_s)
    assert path.speedup is not None
    assert path.speedup_range is not None
    assert path.speedup_range[0] <= path.speedup <= path.speedup_range[1]
    assert "({:.2f} to {:.2f})".format(*path.speedup_range) in text
    assert [one.kind for one in report.events] == [
        "CUT", "DETECTED", "COMPILE", "COMPILE", "SPEEDUP"
    ]  # fmt: skip
    picture = tmp_path / "timeline.svg"
    report.write_timeline(picture)
    drawn = picture.read_text()
    assert "before: 3 runs" in drawn
    assert "after: 8 runs" in drawn


def test_a_report_says_how_far_apart_the_runs_are() -> None:
    with hotpath.auto(threshold=3) as report:
        for _ in range(12):
            example(X, W).item()
    (sequence,) = report._sequences
    sequence.eager_s = collections.deque([9.0, 2.0, 3.0, 4.0, 0.1])
    sequence.compiled_s = collections.deque([1.0, 2.0, 1.0, 2.0])
    assert report.paths[0].speedup == 2.0
    assert report.paths[0].speedup_range == (1.0, 4.0)
    sequence.eager_s = collections.deque([3.0])
    assert report.paths[0].speedup == 2.0
    assert report.paths[0].speedup_range is None
    assert "2.00x (one eager run) " in str(report)


@pytest.mark.parametrize("how", ["argument", "environment", "neither"])
def test_what_is_slower_compiled_is_given_up_if_asked(
    compiler: Compilations, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    compile_graph = compiler.compile_graph

    def compile_slowly(*arguments: Any, **options: Any) -> Callable[..., Any]:
        run = compile_graph(*arguments, **options)

        def run_slowly(*inputs: Any) -> Any:
            time.sleep(0.02)
            return run(*inputs)

        return run_slowly

    monkeypatch.setattr(torch._inductor, "compile", compile_slowly)
    if how == "environment":
        monkeypatch.setenv("IVHL_HOTPATH_ONLY_FASTER", "1")
    expected = example(X, W).item()
    with hotpath.auto(threshold=3, only_faster=True if how == "argument" else None) as report:
        for _ in range(20):
            assert example(X, W).item() == pytest.approx(expected)
    (path,) = report.paths
    if how == "neither":
        assert (path.hits, path.refused) == (17, "")
        return
    assert path.hits == 11  # the one that compiles, and ten that are judged
    assert path.refused.startswith("compiled it takes ")
    assert path.refused.endswith(" times as long as eager")
    assert [one.kind for one in report.events][-1] == "REFUSED"


def test_what_is_faster_compiled_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HotSequence, "speedup", 1.5)
    with hotpath.auto(threshold=3, only_faster=True) as report:
        for _ in range(20):
            example(X, W).item()
    assert (report.paths[0].hits, report.paths[0].refused) == (17, "")


def test_a_function_that_is_slower_compiled_is_given_up_if_asked(
    compiler: Compilations, monkeypatch: pytest.MonkeyPatch
) -> None:
    del compiler

    def compile_slowly(function: Callable[..., Any], **_options: Any) -> Callable[..., Any]:
        def run_slowly(*inputs: Any) -> Any:
            time.sleep(0.02)
            return function(*inputs)

        return run_slowly

    monkeypatch.setattr(torch, "compile", compile_slowly)
    function = hotpath.boundary("whole")(example)
    with hotpath.auto(threshold=3, only_faster=True) as report:
        for _ in range(20):
            function(X, W)
    (path,) = [one for one in report.paths if one.name.startswith("whole")]
    assert path.refused.startswith("compiled it takes ")
    assert path.hits < 17


# --- random programs -----------------------------------------------------------------------------


@pytest.mark.usefixtures("traced")
@settings(
    max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(program=programs())
def test_random_programs_give_what_eager_code_gives(program: Program) -> None:
    check_program(program)


@pytest.mark.usefixtures("inductor")
@settings(max_examples=2, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(program=programs())
def test_random_programs_compiled_by_inductor_give_what_eager_code_gives(
    program: Program,
) -> None:
    check_program(program)


def mirror_twice(x: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return x - x.flip(0)


def scatter_and_mirror(x: torch.Tensor) -> torch.Tensor:
    x[torch.arange(4)] = x * 2
    return x.add_(x.flip(0))


@pytest.mark.usefixtures("inductor")
@pytest.mark.parametrize("function", [mirror_twice, scatter_and_mirror])
def test_what_is_changed_is_read_first_where_other_elements_are_written(
    function: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    """With ``torch.compile`` the first is wrong on 2.5.1 to 2.9.1, the second to 2.14.1."""
    start = torch.arange(12.0).reshape(4, 3).sin()
    wanted_state = start.clone()
    wanted = function(wanted_state)
    with hotpath.auto(threshold=2) as report:
        for _ in range(4):
            state = start.clone()
            state.sum().item()  # what follows is a sequence that is given the state
            got = function(state)
            assert torch.equal(got, wanted)
            assert torch.equal(state, wanted_state)
    assert any(path.hits for path in report.paths if "mul" in path.name), str(report)


def step_of_momentum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    y.mul_(0.9).add_(x)
    x -= 0.1 * y
    return x.sigmoid() * y


def doubled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(x)
    z = x * 2
    x.copy_(y)
    return x.lerp_(z, 0.25) - z


def one_row_everywhere(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    y.mul_(2.0)
    return x.sub_(y[:1])


def less_its_mean(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.sub_(x.mean(0, keepdim=True)).mul_(y)


@pytest.mark.usefixtures("inductor")
@pytest.mark.parametrize(
    ("function", "is_elementwise"),
    [
        (step_of_momentum, True),
        (doubled, True),
        (one_row_everywhere, False),
        (less_its_mean, False),
    ],
)
def test_a_graph_writes_into_inputs_where_each_element_is_read_for_itself_alone(
    monkeypatch: pytest.MonkeyPatch,
    function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    *,
    is_elementwise: bool,
) -> None:
    behind: list[Any] = []
    write = sequence._WritingBehind.__call__

    def noted(self: Any, *inputs: Any) -> Any:
        behind.append(inputs)
        return write(self, *inputs)

    monkeypatch.setattr(sequence._WritingBehind, "__call__", noted)
    start = torch.arange(12.0).reshape(4, 3).sin(), torch.arange(12.0).reshape(4, 3).cos()
    wanted_state = [one.clone() for one in start]
    wanted = function(*wanted_state)
    with hotpath.auto(threshold=2) as report:
        for _ in range(4):
            state = [one.clone() for one in start]
            state[0].sum().item()  # what follows is a sequence that is given the state
            versions = [one._version for one in state]
            got = function(*state)
            torch.testing.assert_close(got, wanted)
            for one, other, version in zip(state, wanted_state, versions, strict=True):
                torch.testing.assert_close(one, other)
                assert one._version > version or torch.equal(one, start[1])
    assert any(path.hits for path in report.paths if path.calls > 1), str(report)
    assert bool(behind) != is_elementwise


def test_the_run_in_which_calls_are_looked_at_is_no_sample_of_eager_seconds() -> None:
    block = hotpath.auto(threshold=5)
    x = torch.ones(8)
    with block:
        for _ in range(8):
            (x * 2.0).sin().sum().item()
    (sequence,) = block.sequences
    assert len(sequence.eager_s) == 4
    assert len(sequence.compiled_s) == 2  # nor that in which it is compiled


# --- what a program has beside sequences -----------------------------------------------------------


@pytest.mark.parametrize(
    "unseen",
    [
        lambda: torch.Tensor([1.0]),
        lambda: torch.empty(0).set_(X.untyped_storage(), 0, (3,), (1,)),
        lambda: pickle.loads(PICKLED),  # noqa: S301  (our own)
    ],
    ids=["Tensor", "set_", "loads"],
)
def test_what_no_function_mode_sees_may_follow_a_change_that_waits(
    unseen: Callable[[], torch.Tensor],
) -> None:
    total = torch.zeros(3)
    with hotpath.auto(threshold=3) as report:
        for _ in range(8):
            total += (X[0, :3] * 2).relu() + 1
            unseen()
    assert torch.equal(total, 8 * ((X[0, :3] * 2).relu() + 1))
    assert report.hits


def test_a_block_that_cannot_end_its_modes_is_over_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = hotpath.auto()
    one.__enter__()
    monkeypatch.setattr(one.recorder, "_stop_watching", Mock(side_effect=IndexError))
    with pytest.raises(IndexError):
        one.__exit__()
    with hotpath.auto():
        pass


def test_a_module_with_a_boundary_can_be_pickled() -> None:
    module = hotpath.boundary("part")(torch.nn.Linear(10, 4))
    read = pickle.loads(pickle.dumps(module))  # noqa: S301  (our own)
    assert torch.equal(read(X), module(X))
    with hotpath.auto(threshold=2) as report:
        for _ in range(3):
            read(X)
    assert [one.name for one in report.paths] == ["part"]
    assert read.forward.module is read


def test_models_and_optimizers_of_a_search_are_not_kept() -> None:
    def turn() -> weakref.ref[torch.Tensor]:
        model = hotpath.boundary("model")(torch.nn.Linear(10, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(X).sum().backward()
        optimizer.step()
        return weakref.ref(model.weight)

    with hotpath.auto(threshold=100) as report:
        weights = [turn() for _ in range(3)]
        gc.collect()
        assert not any(one() is not None for one in weights)
    assert [one.name for one in report.paths].count("SGD.step") == 3


def test_an_optimizer_is_itself_after_a_block_and_in_a_copy() -> None:
    w = W.clone().requires_grad_()
    optimizer = torch.optim.SGD([w], lr=0.0)
    with hotpath.auto(threshold=100):
        torch.relu(X @ w).sum().backward()
        optimizer.step()
        copied = copy.deepcopy(optimizer)
    assert not {"step", "zero_grad"} & (vars(optimizer).keys() | vars(copied).keys())


class _Adds:
    def __radd__(self, other: object) -> str:
        return "added"


def raised(function: Callable[[], Any]) -> str:
    try:
        return str(function())
    except TypeError as error:
        return str(error)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("threshold", [1, 3, 10])
@pytest.mark.parametrize(
    "function",
    [
        lambda: (SPARSE + SPARSE).to_dense() * 1,
        lambda: torch.relu(X.to_sparse()).to_dense(),
        lambda: torch.quantize_per_tensor(X, 0.1, 0, torch.qint8).relu().dequantize(),
        lambda: torch.nested.nested_tensor([X[0], X[1, :3]]).mul(2).unbind()[1],
        lambda: (torch._efficientzerotensor(3) + 1).mul(2).tolist(),
        lambda: getattr(torch.relu(NAMED * 2) + 1, "names", ()),
        lambda: X + _Adds(),
        lambda: X + "text",
    ],
    ids=["sparse", "to_sparse", "quantised", "nested", "zero", "named", "other", "nothing"],
)
def test_what_is_no_dense_tensor_runs_eagerly(function: Callable[[], Any], threshold: int) -> None:
    expected = raised(function)
    with hotpath.auto(threshold=threshold):
        for _ in range(threshold + 3):
            before = torch.relu(X * 2)
            assert raised(function) == expected
            (before + 1).sum().item()
