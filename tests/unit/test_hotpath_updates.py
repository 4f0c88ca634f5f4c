"""Steps without Dynamo's guards: the same as eager steps, whatever happens between them."""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import sys
import weakref
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ivhl import hotpath
from ivhl.hotpath.regions import hyperparameters
from ivhl.hotpath.updates import StepGraph
from tests.builders.programs import compile_with_eager_kernels

if TYPE_CHECKING:
    from collections.abc import Callable

    Change = Callable[["Trained"], None]

pytestmark = [
    pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning"),
    pytest.mark.filterwarnings("ignore:Skipping serialization of skipfiles:UserWarning"),
    pytest.mark.skipif(
        sys.version_info >= (3, 13) and torch.__version__ < "2.6",
        reason="torch.compile of PyTorch 2.5 refuses this Python",
    ),
]

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": functools.partial(torch.optim.SGD, lr=0.1),
    "momentum": functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.01),
    "Adam": functools.partial(torch.optim.Adam, lr=0.01),
    "AdamW": functools.partial(torch.optim.AdamW, lr=0.01, foreach=True, amsgrad=True),
    "RMSprop": functools.partial(torch.optim.RMSprop, lr=0.01, momentum=0.5, centered=True),
    "Adagrad": functools.partial(torch.optim.Adagrad, lr=0.1),
    "Adadelta": functools.partial(torch.optim.Adadelta, lr=1.0),
    "Adamax": functools.partial(torch.optim.Adamax, lr=0.01),
    "NAdam": functools.partial(torch.optim.NAdam, lr=0.01),
    "RAdam": functools.partial(torch.optim.RAdam, lr=0.01),
    "Rprop": functools.partial(torch.optim.Rprop, lr=0.01),
    "ASGD": functools.partial(torch.optim.ASGD, lr=0.1, lambd=0.01, t0=2),
}
# In `unit` one without state, one whose state begins in its first step, and one with moments and
# options; session `hotpath` runs all.
QUICK = ("SGD", "momentum", "AdamW")


@pytest.fixture(autouse=True)
def _eager_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out Inductor, which takes seconds; AOTAutograd stays."""

    def compile_graph(module: Any, inputs: Any, **_: Any) -> Any:
        return compile_with_eager_kernels(module, inputs)

    monkeypatch.setattr(torch._inductor, "compile", compile_graph)
    torch._dynamo.reset()


def spaced(begin: float, end: float, n: int) -> torch.Tensor:
    """Return numbers whose rounding does not grow into a difference within a few steps."""
    return torch.linspace(begin, end, n, dtype=torch.float64)


class Trained:
    """Two parameters and an optimizer, stepped eagerly or compiled; gradients are made by hand."""

    def __init__(self, name: str, *, compiled: bool) -> None:
        self.params = [torch.nn.Parameter(spaced(-1, n, 6).view(2, 3)) for n in (1, 2)]
        self.optimizer = OPTIMIZERS[name](self.params)
        self.turn = 0
        self.dynamo = 0  # steps that went through Dynamo
        bare = inspect.unwrap(type(self.optimizer).step)
        optimizer = self.optimizer

        def step() -> None:
            bare(optimizer)

        self.graph = StepGraph(optimizer, "default")
        self.plain = step
        self.is_compiled = compiled
        through = torch.compile(step, dynamic=False, backend=self.graph.backend())

        def through_dynamo() -> None:
            self.dynamo += 1
            through()

        self.through_dynamo = through_dynamo

    def step(self) -> None:
        """Make gradients and a step."""
        self.turn += 1
        for n, one in enumerate(self.params):
            if one.grad is None and one.requires_grad:
                one.grad = torch.sin(one.detach() * self.turn + n)
        with torch.no_grad():
            if not self.is_compiled or not self.graph.step(
                hyperparameters(self.optimizer), self.through_dynamo
            ):
                self.plain()
        self.optimizer.zero_grad()

    def values(self) -> list[torch.Tensor]:
        """Return parameters and state."""
        state = [
            one
            for values in self.optimizer.state.values()
            for one in values.values()
            if isinstance(one, torch.Tensor)
        ]
        return [*[one.detach() for one in self.params], *state]


def assert_same(eager: Trained, compiled: Trained) -> None:
    torch.testing.assert_close(compiled.values(), eager.values(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "name",
    [one if one in QUICK else pytest.param(one, marks=pytest.mark.full) for one in OPTIMIZERS],
)
def test_steps_that_find_all_as_it_was_do_not_ask_dynamo(name: str) -> None:
    eager, compiled = (Trained(name, compiled=one) for one in (False, True))
    for _ in range(9):
        eager.step()
        compiled.step()
        assert_same(eager, compiled)
    # Momentum begins in the first step, which is another graph.
    assert compiled.dynamo == (3 if name == "momentum" else 2)


# --- what may happen between two steps -----------------------------------------------------------


def another_rate(one: Trained) -> None:
    one.optimizer.param_groups[0]["lr"] *= 0.5


def no_gradient(one: Trained) -> None:
    """Leave the second parameter without a gradient for this step."""
    one.params[1].requires_grad_(requires_grad=not one.params[1].requires_grad)


def gradient_of_other_strides(one: Trained) -> None:
    one.params[0].grad = spaced(0, 1, 6).view(3, 2).t()


def one_gradient_for_both(one: Trained) -> None:
    one.params[0].grad = torch.full((2, 3), 0.25, dtype=torch.float64)
    one.params[1].grad = one.params[0].grad


def loaded_state(one: Trained) -> None:
    one.optimizer.load_state_dict(copy.deepcopy(one.optimizer.state_dict()))


def loaded_state_of_another_order(one: Trained) -> None:
    state = one.optimizer.state_dict()
    for number, values in state["state"].items():
        state["state"][number] = dict(reversed(list(values.items())))
    one.optimizer.load_state_dict(copy.deepcopy(state))


def renamed_state(one: Trained) -> None:
    """Exchange the names of the two moments of Adam, and leave their order."""
    for param, values in list(one.optimizer.state.items()):
        if "exp_avg_sq" in values:
            first, second = values["exp_avg"], values["exp_avg_sq"]
            first.abs_()  # a square root is taken of it now
            one.optimizer.state[param] = {
                "step": values["step"],
                "exp_avg_sq": first,
                "exp_avg": second,
                **{name: value for name, value in values.items() if name.startswith("max_")},
            }


def other_data(one: Trained) -> None:
    one.params[0].data = spaced(0, 2, 6).view(2, 3)


def shared_data(one: Trained) -> None:
    one.params[0].data = one.params[1].data


def another_parameter(one: Trained) -> None:
    new = torch.nn.Parameter(spaced(3, 4, 6).view(2, 3))
    one.optimizer.state.pop(one.params[0], None)
    one.params[0] = new
    one.optimizer.param_groups[0]["params"][0] = new


def another_group(one: Trained) -> None:
    new = torch.nn.Parameter(spaced(3, 4, 6).view(2, 3))
    one.params.append(new)
    one.optimizer.add_param_group({"params": [new]})


def changed_in_place(one: Trained) -> None:
    with torch.no_grad():
        one.params[0].mul_(0.9)


CHANGES: list[Change] = [
    another_rate,
    no_gradient,
    gradient_of_other_strides,
    one_gradient_for_both,
    loaded_state,
    loaded_state_of_another_order,
    renamed_state,
    other_data,
    shared_data,
    another_parameter,
    another_group,
    changed_in_place,
]


def assert_alike(name: str, changes: list[Change | None]) -> None:
    """Assert that steps with a change before each are what they are eagerly."""
    eager, compiled = (Trained(name, compiled=one) for one in (False, True))
    for change in changes:
        for one in (eager, compiled):
            if change is not None:
                change(one)
            one.step()
        assert_same(eager, compiled)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("SGD", marks=pytest.mark.full),
        pytest.param("momentum", marks=pytest.mark.full),
        "Adam",
    ],
)
def test_a_change_between_steps_does_what_it_does_eagerly(name: str, change: Change) -> None:
    eager, compiled = (Trained(name, compiled=one) for one in (False, True))
    for turn in range(9):
        for one in (eager, compiled):
            if turn == 4:
                change(one)
            one.step()
        assert_same(eager, compiled)


@pytest.mark.full
@settings(max_examples=12, deadline=None)
@given(
    name=st.sampled_from(["SGD", "momentum", "AdamW"]),
    changes=st.lists(st.none() | st.sampled_from(CHANGES), min_size=4, max_size=9),
)
def test_any_changes_in_any_order_do_what_they_do_eagerly(
    name: str, changes: list[Change | None]
) -> None:
    torch._dynamo.reset()
    assert_alike(name, [None, None, *changes, None, None])


def test_state_that_was_named_in_another_order_after_a_graph_of_one_parameter() -> None:
    """torch.compile of 2.15.0 takes one moment of Adam for the other then, without a word."""
    assert_alike("AdamW", [None, None, None, None, no_gradient, renamed_state, None, None])


def exchanged_values(one: Trained) -> None:
    """Exchange the two moments of Adam, and leave their names in order."""
    for param, values in list(one.optimizer.state.items()):
        if "exp_avg_sq" in values:
            first, second = values["exp_avg"], values["exp_avg_sq"]
            first.abs_()
            one.optimizer.state[param] = {**values, "exp_avg": second, "exp_avg_sq": first}


@pytest.mark.parametrize("before", [None, no_gradient])
def test_exchanged_moments_are_used_as_they_are_called(before: Change | None) -> None:
    assert_alike("AdamW", [None, None, None, None, before, exchanged_values, None, None])


def test_a_class_of_the_user_always_goes_through_dynamo() -> None:
    steps: list[Any] = []

    class Counting(torch.optim.SGD):  # type: ignore[misc]
        def step(self, closure: Any = None) -> Any:
            steps.append(closure)
            return super().step(closure)

    OPTIMIZERS["counting"] = functools.partial(Counting, lr=0.1)
    try:
        compiled = Trained("counting", compiled=True)
    finally:
        del OPTIMIZERS["counting"]
    for _ in range(5):
        compiled.step()
    assert steps == [None] * 5


def test_dynamo_is_asked_after_a_change_of_what_kernels_depend_on() -> None:
    compiled = Trained("SGD", compiled=True)
    threads = torch.get_num_threads()
    for turn in range(8):
        if turn == 4:
            assert compiled.dynamo == 2
            torch.set_num_threads(threads + 1)
        compiled.step()
    torch.set_num_threads(threads)
    assert compiled.dynamo > 2


def test_an_optimizer_whose_step_was_compiled_is_not_kept() -> None:
    def train() -> weakref.ref[torch.Tensor]:
        parameter = torch.nn.Parameter(spaced(-1, 1, 6))
        optimizer = torch.optim.Adam([parameter])
        for _ in range(8):
            parameter.square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return weakref.ref(parameter)

    with hotpath.auto(threshold=2) as report:
        first, last = train(), train()
        gc.collect()
        assert (first(), last()) == (None, None)
    steps = [one.hits for one in report.paths if one.name == "Adam.step"]
    assert len(steps) == 2
    assert all(steps)


def test_no_gradient_lives_longer_than_its_step() -> None:
    compiled = Trained("SGD", compiled=True)
    for _ in range(4):
        gradient = torch.ones(2, 3, dtype=torch.float64)
        reference = weakref.ref(gradient)
        compiled.params[0].grad = gradient
        del gradient
        compiled.step()
        assert reference() is None
