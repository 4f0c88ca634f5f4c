"""Random programs and training loops in a block of hot paths, compiled by Inductor; many of them."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch", reason="torch is only in the cells")
import torch
import torch._dynamo
from hypothesis import HealthCheck, given, settings

from ivhl import hotpath
from tests.builders.programs import Program, check_program, programs
from tests.builders.training import TrainingLoop, check_training, training_loops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [
    pytest.mark.full,
    # Of an argument that is no leaf, when AOTAutograd looks at its gradient.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
    # A random program may broadcast there.
    pytest.mark.filterwarnings("ignore:Using a target size:UserWarning"),
]

MANY = int(os.environ.get("IVHL_TEST_PROGRAMS", "150"))


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@settings(max_examples=MANY, deadline=None, suppress_health_check=list(HealthCheck))
@given(program=programs())
def test_random_programs_compiled_by_inductor_give_what_eager_code_gives(
    program: Program,
) -> None:
    torch._dynamo.reset()
    check_program(program)


@settings(max_examples=MANY // 10, deadline=None, suppress_health_check=list(HealthCheck))
@given(loop=training_loops())
def test_random_training_loops_give_what_eager_code_gives(loop: TrainingLoop) -> None:
    torch._dynamo.reset()
    check_training(loop)


def descend(p: torch.Tensor, _v: torch.Tensor) -> None:
    p -= 0.05 * p.grad


def with_momentum(p: torch.Tensor, v: torch.Tensor) -> None:
    v.mul_(0.9).add_(p.grad)
    p.add_(v, alpha=-0.05)


def adapted(p: torch.Tensor, v: torch.Tensor) -> None:
    v.mul_(0.9).addcmul_(p.grad, p.grad, value=0.1)
    p.addcdiv_(p.grad, v.sqrt() + 1e-3, value=-0.01)


def by_its_norm(p: torch.Tensor, _v: torch.Tensor) -> None:
    p.sub_(p.grad / (p.grad.norm() + 1e-3) * 0.01)


@pytest.mark.parametrize("update", [descend, with_momentum, adapted, by_its_norm])
def test_parameters_that_a_program_changes_itself_become_those_of_eager_code(
    update: Callable[[torch.Tensor, torch.Tensor], None],
) -> None:
    def trained(block: Any) -> list[torch.Tensor]:  # noqa: ANN401  (or no block)
        torch.manual_seed(0)
        layers = (torch.nn.Linear(20, 16), torch.nn.Tanh(), torch.nn.Linear(16, 16))
        model = torch.nn.Sequential(*layers, torch.nn.Linear(16, 3))
        x, y = torch.randn(8, 20), torch.randn(8, 3)
        pairs = [(p, torch.zeros_like(p)) for p in model.parameters()]
        with block:
            for _ in range(25):
                (model(x) - y).square().mean().backward()
                with torch.no_grad():
                    for p, v in pairs:
                        update(p, v)
                        p.grad = None
        return [one.detach() for pair in pairs for one in pair]

    torch._dynamo.reset()
    block = hotpath.auto(threshold=3)
    for got, wanted in zip(trained(block), trained(contextlib.nullcontext()), strict=True):
        torch.testing.assert_close(got, wanted)
    assert [one.hits for one in block.report.paths] == [22, 22]
