"""Random programs and training loops in a block of hot paths, compiled by Inductor; many of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("torch", reason="torch is only in the cells")
import torch
import torch._dynamo
from hypothesis import HealthCheck, given, settings

from tests.builders.programs import Program, check_program, programs
from tests.builders.training import TrainingLoop, check_training, training_loops

if TYPE_CHECKING:
    from collections.abc import Iterator

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
