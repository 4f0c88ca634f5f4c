"""Draws change the data in place, and equal draws are detected."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch

from ivhl.measure.draws import (
    ShapesDifferError,
    cast,
    check_alike,
    check_different,
    clone,
    draw,
    fill,
    holds,
    made_of,
    rounded_again,
    same,
    touch,
)
from ivhl.measure.failures import CaseError
from ivhl.measure.imports import of_size_and_generator
from ivhl.measure.subject import Subject
from ivhl.workload import select_cases, workload

if TYPE_CHECKING:
    from collections.abc import Callable

CPU = torch.device("cpu")


def make_inputs(size: int, generator: torch.Generator) -> tuple[Any, ...]:
    weights, x = torch.rand(2, size, dtype=torch.float64, generator=generator)
    return {"weights": [weights]}, x, 3


def test_equal_seeds_give_equal_draws_and_others_differ() -> None:
    one, again, other = (draw(make_inputs, 5, seed) for seed in (1, 1, 2))
    check_alike(one, other)
    assert holds(one, again)
    assert not holds(one, other)


def test_fixed_inputs_are_those_of_the_first_draw() -> None:
    first = draw(make_inputs, 5, 1)
    other = draw(make_inputs, 5, 2, first=first, fixed=(0,))
    assert other[0] is first[0]
    assert not torch.equal(other[1], first[1])


def test_only_floating_and_complex_tensors_are_cast_and_none_is_shared() -> None:
    given = (torch.ones(2), torch.ones(2, dtype=torch.complex128), torch.ones(2).int(), 3)
    real, complex_, integer, number = cast(given, torch.float16, CPU)
    assert (real.dtype, complex_.dtype, integer.dtype) == (
        torch.float16,
        torch.complex64,
        torch.int32,
    )
    assert number == 3
    for tensor, copy in zip(given[:3], cast(given, torch.float32, CPU)[:3], strict=True):
        assert isinstance(tensor, torch.Tensor)
        assert tensor.data_ptr() != copy.data_ptr()


def test_fill_changes_values_but_neither_addresses_nor_the_source() -> None:
    first, other = draw(make_inputs, 5, 1), draw(make_inputs, 5, 2)
    live = clone(first)
    place = live[1].data_ptr()
    fill(live, other)
    assert holds(live, other)
    assert live[1].data_ptr() == place
    live[1].add_(1)
    assert holds(other, draw(make_inputs, 5, 2))


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ((torch.ones(3),), r"\(3,\)"),
        ((torch.ones(2).double(),), "float64"),
        ((torch.ones(2), torch.ones(2)), "pytree structure"),
        ((2.5,), r"2\.5"),
    ],
    ids=["shape", "dtype", "structure", "kind"],
)
def test_draws_that_cannot_be_copied_into_each_other_are_refused(
    other: tuple[Any, ...], says: str
) -> None:
    with pytest.raises(ShapesDifferError, match=says):
        check_alike((torch.ones(2),), other)


def test_numbers_that_differ_are_refused() -> None:
    check_alike((1.5, "a"), (1.5, "a"))
    with pytest.raises(ShapesDifferError, match=r"one draw has 1\.5, another 2\.5"):
        check_alike((1.5,), (2.5,))


def test_equal_draws_are_refused() -> None:
    check_different((torch.zeros(2), torch.ones(2)), (torch.ones(2), torch.ones(2)))
    with pytest.raises(ShapesDifferError, match="same values"):
        check_different((torch.ones(2),), (torch.ones(2),))


def test_nan_equals_nan_and_one_changed_element_is_detected() -> None:
    kept = torch.tensor([1.0, math.nan])
    assert holds([kept.clone()], [kept])
    assert not holds([torch.tensor([1.0, 2.0])], [kept])
    assert not holds([torch.tensor([1.5, math.nan])], [kept])


def test_touch_increases_versions_and_changes_no_value() -> None:
    x, grid = torch.rand(3), torch.rand(2, 2)
    before, versions = clone((x, grid)), (x._version, grid._version)
    touch((x, {"grid": grid}, 3))
    assert holds((x, grid), before)
    assert all(a > b for a, b in zip((x._version, grid._version), versions, strict=True))


@pytest.mark.parametrize(
    "arrange",
    [
        pytest.param(lambda x: x.t().contiguous(), id="transposed"),
        pytest.param(torch.view_as_real, id="planes"),
        pytest.param(lambda x: torch.stack((x.real, -x.imag)), id="conjugate"),
        pytest.param(lambda x: x.conj(), id="lazy conjugate"),
    ],
)
def test_a_rearrangement_is_made_of_its_parts(arrange: Any) -> None:  # noqa: ANN401
    x = torch.rand(40, 50, dtype=torch.complex64)
    assert made_of((arrange(x),), (x,))
    assert not made_of((arrange(x) * 1.5,), (x,))


def test_numbers_equal_in_another_draw_need_not_be_parts() -> None:
    x, y = torch.rand(2, 30)
    weights = torch.rand(30) * 7
    padded, other = (torch.cat((part, torch.full((5,), 9.0))) for part in (x, y))
    assert made_of((weights, padded), (x,), unlike=(weights, other))
    assert not made_of((weights * x,), (x,), unlike=(weights * y,))


def test_one_computed_number_is_detected_if_all_are_looked_up() -> None:
    x, y = torch.rand(2, 3000)
    computed = x.clone()
    computed[1234] = x.sum()
    assert not made_of((computed,), (x,), unlike=(y,))
    assert not made_of((x.sum(),), (x,))


class Turning(torch.Tensor):  # type: ignore[misc]  # no torch here
    """As the rotations of PyPose: its own product and difference are no arithmetic of numbers."""

    def __mul__(self, other: Any) -> Any:  # noqa: ANN401
        raise AssertionError("Invalid Tensor Dimension")

    __sub__ = __eq__ = __mul__
    __hash__ = torch.Tensor.__hash__


def test_numbers_of_a_subclass_are_rounded_and_compared_as_numbers() -> None:
    numbers = torch.linspace(1, 2, 8, dtype=torch.float64)
    moved = rounded_again(numbers.as_subclass(Turning), 2.0**-24, 3)
    assert type(moved) is Turning
    as_numbers = moved.as_subclass(torch.Tensor)
    assert torch.equal(as_numbers, rounded_again(numbers, 2.0**-24, 3))
    assert not torch.equal(as_numbers, numbers)
    assert same(moved, moved.clone())
    assert not same(moved, numbers.as_subclass(Turning))
    assert made_of(moved, as_numbers)


@pytest.mark.parametrize(
    "function",
    [
        lambda size, generator: torch.randn(size, generator=generator),
        lambda size: torch.randn(size + 1),
        lambda: torch.randn(8),
        lambda *given: torch.randn(given[0], generator=given[1]),
    ],
)
def test_inputs_of_any_signature_are_those_of_the_seed(function: Callable[..., Any]) -> None:
    make = of_size_and_generator(function)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, again, other = (make(8, torch.Generator().manual_seed(n)) for n in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(before, torch.get_rng_state())


def test_inputs_that_are_no_function_are_refused() -> None:
    with pytest.raises(CaseError, match="the inputs are a int, not a function"):
        of_size_and_generator(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("inputs", "taken"),
    [((1, 2), (1, 2)), ([1, 2], (1, 2)), ({"x": 1}, ({"x": 1},)), (2.5, (2.5,)), ((), ())],
)
def test_what_is_no_tuple_is_the_only_input(inputs: Any, taken: tuple[Any, ...]) -> None:  # noqa: ANN401
    (case,) = select_cases([workload(math.sqrt, inputs="m:g")])
    subject = Subject(
        case,
        dtype=torch.float32,
        variant_dtype=torch.float32,
        device=torch.device("cpu"),
        seed=1,
    )
    assert subject.take_inputs(inputs) == taken
    assert subject.take_inputs(torch.ones(3))[0].shape == (3,)
