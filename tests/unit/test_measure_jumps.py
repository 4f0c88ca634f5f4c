"""What rounding decides is taken out of outputs, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is only in the cells")

from ivhl.measure.accuracy import judge_compiled, judge_eager  # noqa: E402  (torch first)
from ivhl.measure.exact import Exact  # noqa: E402
from ivhl.measure.jumps import Jumps  # noqa: E402
from ivhl.measure.subject import Subject  # noqa: E402
from ivhl.workload import Workload, load_workloads, select_cases  # noqa: E402
from tests.e2e.jumping_calls import make_rows, nearest  # noqa: E402
from tests.e2e.models_calls import make_tokens  # noqa: E402

INDICES = torch.tensor([4, 900, 7, 7])


def jumps_of(output: Any, *looks: Any, limit: float = 1e-3) -> Jumps:  # noqa: ANN401  (tensors)
    reference = INDICES if not output.is_floating_point() else INDICES.double()
    jumps = Jumps([output], [reference], [limit])
    for look in looks:
        jumps.look([look])
    return jumps


def test_an_index_is_right_where_a_look_has_it() -> None:
    jumps = jumps_of(torch.tensor([4, 31, 7, 7]), torch.tensor([4, 31, 8, 7]))
    assert jumps.settled
    assert jumps.jumped() == [0]
    assert torch.equal(jumps.without()[0], INDICES)
    assert jumps.without()[0].dtype == torch.int64


@pytest.mark.parametrize(
    "wrong",
    [
        [4, 32, 7, 7],  # as near as can be to what a look has
        [4, 899, 7, 7],  # as near as can be to the reference
        [31, 900, 7, 7],  # what a look has elsewhere
    ],
)
def test_an_index_that_no_look_has_there_stays_wrong(wrong: list[int]) -> None:
    jumps = jumps_of(torch.tensor(wrong), torch.tensor([4, 31, 8, 7]))
    assert not jumps.settled
    assert torch.equal(jumps.without()[0], torch.tensor(wrong))


def test_one_explained_index_does_not_excuse_another() -> None:
    jumps = jumps_of(torch.tensor([4, 31, 6, 7]), torch.tensor([4, 31, 7, 7]))
    assert not jumps.settled
    assert jumps.without()[0].tolist() == [4, 900, 6, 7]


def test_what_a_look_leaves_of_a_number_is_still_off() -> None:
    output = torch.tensor([4.0, 31.5, 7.0, 7.0])
    jumps = jumps_of(output, torch.tensor([4.0, 31.0, 7.0, 7.0]))
    assert jumps.settled
    assert jumps.without()[0].tolist() == [4.0, 900.5, 7.0, 7.0]


def test_numbers_within_the_limit_are_left_as_they_are() -> None:
    output = torch.tensor([4.0005, 900.0, 7.0, 7.0])
    jumps = jumps_of(output, output)
    assert jumps.settled
    assert jumps.jumped() == []
    assert jumps.without()[0] is output


def test_a_complex_number_may_jump() -> None:
    reference = torch.tensor([1 + 2j, 3 - 1j], dtype=torch.complex128)
    there = torch.tensor([1 + 2j, -3 + 1j], dtype=torch.complex64)
    jumps = Jumps([there], [reference], [1e-3])
    jumps.look([there.to(torch.complex128)])
    assert jumps.settled
    assert jumps.without()[0].dtype == torch.complex64
    assert torch.equal(jumps.without()[0], reference.to(torch.complex64))


def test_what_is_not_finite_is_never_explained() -> None:
    output = torch.tensor([4.0, float("nan"), float("inf"), 7.0])
    jumps = jumps_of(output, output)
    assert jumps.without()[0] is output


def test_nothing_is_explained_by_a_look_of_other_shapes() -> None:
    output = torch.tensor([4, 31, 7, 7])
    jumps = jumps_of(output, output[:3])
    jumps.look([output, output])
    assert not jumps.settled


@pytest.mark.full
def test_looks_find_every_tie_of_a_draw() -> None:
    """Added one after the other, distances to twins differ otherwise than eager's."""
    workloads = load_workloads("tests.e2e.models:WORKLOADS")
    (codes,) = (one for one in workloads if one.name == "good.codes_named")
    subject = subject_of(codes)
    off = 0
    for seed in range(100):
        inputs = subject.take_inputs(make_rows(512, torch.Generator().manual_seed(seed)))
        rows, table = (tensor.float() for tensor in inputs)
        terms = (rows[:, None] - table).square().unbind(-1)
        found = sum(terms, torch.zeros(())).argmin(-1)
        reference = nearest(rows.double(), table.double())
        off += int((found != reference).sum())
        jumps = Jumps([found], [reference], [0.0])
        for look in Exact(subject).looks(inputs, exact=False, dtype="float32"):
            jumps.look([look.tensors["output[0]"]])
            if jumps.settled:
                break
        assert jumps.settled, seed
    assert off > 100


def test_integers_must_be_equal_even_where_eager_is_off() -> None:
    """Eager may differ from float64 at a tie; that allows compiled code nothing elsewhere."""
    reference = torch.arange(2000)
    eager, compiled = reference.clone(), reference.clone()
    eager[5], compiled[9] = 1999, 1998
    (error,) = judge_compiled(
        judge_eager(["codes"], [eager], [reference]),
        [compiled],
        [reference],
        dtype="float32",
        tolerance=1e-4,
    )
    assert (error.passed, error.limit_rmse, error.limit_max) == (False, 0.0, 0.0)


def subject_of(workload: Workload) -> Subject:
    (case,) = select_cases([workload])
    dtype = torch.float32
    found = Subject(case, dtype=dtype, variant_dtype=dtype, device=torch.device("cpu"), seed=1)
    found.make_models(4)
    return found


def test_looks_round_the_parameters_where_the_inputs_are_integers() -> None:
    workloads = load_workloads("tests.e2e.models:WORKLOADS")
    (tokens,) = (one for one in workloads if one.name == "good.tokens_step")
    subject = subject_of(tokens)
    inputs = subject.take_inputs(make_tokens(4, torch.Generator().manual_seed(0)))
    subject.warm_up(inputs)
    first, *others = (
        look.copied()
        for _, look in zip(
            range(9), Exact(subject).looks(inputs, exact=False, dtype="float32"), strict=False
        )
    )
    assert any(not torch.equal(first.tensors["output[0]"], o.tensors["output[0]"]) for o in others)
    # What a step does to a parameter is that of where the parameter was.
    moved = [one.tensors["model.out.weight"] for one in (first, *others)]
    assert all(torch.allclose(one, moved[0], rtol=1e-5, atol=1e-6) for one in moved)
    again = next(iter(Exact(subject).looks(inputs, exact=False, dtype="float32")))
    assert all(torch.equal(one, again.tensors[path]) for path, one in first.tensors.items())
