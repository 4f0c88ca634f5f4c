"""Wrong results fail the accuracy rule, and exact ones pass."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from ivhl.measure.accuracy import (
    EAGER_LIMIT,
    ROUNDINGS,
    ROUNDOFF,
    VALUES,
    Scales,
    _is_same,
    apart,
    ceiling_for,
    count_numbers,
    distance,
    eager_is_sound,
    how_elements_differ,
    judge_by_eager,
    judge_compiled,
    judge_eager,
    largest_of,
    limits_of_precision,
    rounded,
    share_of_rounding,
    typical_of,
    values_of,
    worse,
)
from ivhl.measure.draws import rounded_again
from ivhl.records.record import LARGEST_VALUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from ivhl.records.record import OutputError, Reference

X = torch.linspace(0.5, 5.0, 2048, dtype=torch.float32)
REFERENCE = torch.sin(X.double()) / X.double()
EAGER = torch.sin(X) / X


def passes(compiled: torch.Tensor, *, tolerance: float = 1e-4) -> bool:
    errors = judge_eager(["y"], [EAGER], [REFERENCE])
    (judged,) = judge_compiled(
        errors, [compiled], [REFERENCE], dtype="float32", tolerance=tolerance
    )
    return bool(judged.passed)


def test_eager_itself_passes() -> None:
    assert passes(EAGER)


def test_a_more_exact_result_than_eager_passes() -> None:
    assert passes(REFERENCE.float())


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(EAGER.half().float(), id="computed in half"),
        pytest.param(EAGER * (1 + 1e-3), id="scaled by 1e-3"),
        pytest.param(EAGER.roll(1), id="shifted by one"),
        pytest.param(torch.zeros_like(EAGER), id="all zero"),
        pytest.param(EAGER.index_fill(0, torch.tensor([3]), math.nan), id="one NaN"),
        pytest.param(EAGER.index_fill(0, torch.tensor([3]), math.inf), id="one infinity"),
    ],
)
def test_a_wrong_result_fails(wrong: torch.Tensor) -> None:
    assert not passes(wrong)


def test_a_small_quantity_is_judged_by_its_own_scale() -> None:
    # An absolute tolerance of 1e-5 would pass every error of a quantity of 1e-6.
    small = 1e-6
    errors = judge_eager(["y"], [EAGER * small], [REFERENCE * small])
    (judged,) = judge_compiled(
        errors, [EAGER * small * 1.01], [REFERENCE * small], dtype="float32", tolerance=1e-4
    )
    assert not judged.passed


def test_an_output_of_nan_has_an_infinite_error() -> None:
    assert distance(torch.full((3,), math.nan), torch.zeros(3, dtype=torch.float64)) == (
        math.inf,
        math.inf,
    )


def test_real_and_imaginary_parts_both_count() -> None:
    exact = torch.complex(X.double(), X.double())
    wrong = torch.complex(X, X + 1)
    largest, rmse = distance(wrong, exact)
    assert largest == pytest.approx(1)
    assert rmse == pytest.approx(math.sqrt(0.5))


@pytest.mark.parametrize(
    ("actual", "says"),
    [(X[1:], r"\(2047,\)"), (torch.complex(X, X), "complex64")],
    ids=["shape", "complex"],
)
def test_another_shape_or_kind_is_named(actual: torch.Tensor, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        distance(actual, REFERENCE)


def test_eager_far_from_the_reference_is_not_sound() -> None:
    (near,) = judge_eager(["y"], [EAGER], [REFERENCE])
    (far,) = judge_eager(["y"], [EAGER + 1], [REFERENCE])
    (nan,) = judge_eager(["y"], [EAGER * math.nan], [REFERENCE])
    assert eager_is_sound(near)
    assert not eager_is_sound(far)
    assert not eager_is_sound(nan)


def test_a_zero_result_for_a_zero_reference_is_sound() -> None:
    zero = torch.zeros(4)
    (error,) = judge_eager(["y"], [zero], [zero.double()])
    assert eager_is_sound(error)


def test_numbers_of_names_and_tensors_must_match() -> None:
    with pytest.raises(ValueError, match="names 2 tensors"):
        judge_eager(["a", "b"], [EAGER], [REFERENCE])


def judge_short(dtype: str, source: torch.Tensor, output: torch.Tensor) -> bool | None:
    """Judge an output in its own precision, whose source returns ``source`` eagerly."""
    (judged,) = judge_compiled(
        judge_eager(["y"], [EAGER], [REFERENCE]),
        [output],
        [REFERENCE],
        dtype=dtype,
        tolerance=1e-4,
        anchors=judge_eager(["y"], [source], [REFERENCE]),
    )
    return judged.passed


def in_dtype(dtype: str) -> torch.Tensor:
    x = X.to(getattr(torch, dtype))
    return torch.sin(x) / x


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_16_bit_variant_is_anchored_by_its_own_source(dtype: str) -> None:
    source = in_dtype(dtype)
    assert not passes(source)  # all of this exceeds the budget of float32
    assert judge_short(dtype, source, source)
    assert judge_short(dtype, source, EAGER)
    # An anchor that is exact by chance still allows sixteen roundings, and few more.
    step = ROUNDOFF[dtype] * float(REFERENCE.max())
    lucky = REFERENCE.float()
    assert judge_short(dtype, lucky, REFERENCE + 15.0 * step) == (
        15.0 * ROUNDOFF[dtype] <= EAGER_LIMIT
    )
    assert not judge_short(dtype, lucky, REFERENCE + 17.0 * step)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_wrong_source_does_not_raise_the_limit_above_the_ceiling(dtype: str) -> None:
    # The source as its own anchor, as in a variant that runs eagerly, and three times its error.
    wrong = in_dtype(dtype) + 1.01 * ceiling_for(dtype) * float(REFERENCE.max())
    assert not judge_short(dtype, wrong, wrong)
    assert not judge_short(dtype, wrong * math.nan, wrong * math.nan)
    overflown = wrong.clone()
    overflown[0] = math.inf
    assert not judge_short(dtype, overflown, overflown)
    # A source that overflows is no anchor; code compiled from it may still be correct.
    assert judge_short(dtype, overflown, EAGER)


def test_the_ceiling_grows_with_the_roundoff_up_to_eagers_limit() -> None:
    ceilings = [ceiling_for(d) for d in ("float64", "float32", "float16", "bfloat16")]
    assert ceilings == sorted(ceilings)
    assert ceilings[2] == 2.0**-5
    assert ceilings[3] == EAGER_LIMIT


def test_one_wrong_element_of_many_fails_by_the_largest_error() -> None:
    n = 16384
    exact = torch.rand(n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    eager = exact.float()
    wrong = eager.clone()
    wrong[7] += 1e-3
    errors = judge_eager(["y"], [eager], [exact])
    (judged,) = judge_compiled(errors, [wrong], [exact], dtype="float32", tolerance=1e-4)
    assert judged.compiled_rmse is not None
    assert judged.limit_rmse is not None
    assert judged.limit_max is not None
    assert judged.compiled_rmse < judged.limit_rmse
    assert judged.compiled_max == pytest.approx(1e-3, rel=0.01)
    assert judged.limit_max < 1e-3
    assert not judged.passed


@pytest.mark.parametrize(("ulps", "passed"), [(0, True), (2, True), (4, True), (400, False)])
@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6])
def test_an_exact_anchor_allows_some_roundings(ulps: int, scale: float, *, passed: bool) -> None:
    exact = torch.tensor(scale, dtype=torch.float64)
    errors = judge_eager(["y"], [exact], [exact])
    near = exact * (1 + ulps * 2.0**-23)
    (judged,) = judge_compiled(errors, [near], [exact], dtype="float32", tolerance=0.0)
    assert judged.passed is passed


def test_of_two_verdicts_the_one_nearer_to_its_limit_is_kept() -> None:
    errors = judge_eager(["y", "z"], [EAGER, EAGER], [REFERENCE, REFERENCE])

    def judged(*off: float) -> tuple[OutputError, ...]:
        outputs = [EAGER + o for o in off]
        return judge_compiled(errors, outputs, [REFERENCE] * 2, dtype="float32", tolerance=1e-4)

    one, other = judged(1e-6, 5e-6), judged(3e-6, 1e-6)
    assert worse(one, other) == (other[0], one[1])
    assert worse((), other) == other
    nan = judged(math.nan, 0.0)
    assert worse(one, nan)[0] == nan[0]


def judge_sum(terms: torch.Tensor, *, off: float = 0.0, known: bool = True) -> bool | None:
    """Judge a sum of float32 numbers, added in another order than eager's; eager is exact."""
    exact = terms.double()
    reference = exact.sum()
    moves = [
        float((rounded_again(exact, ROUNDOFF["float32"], seed).sum() - reference).abs())
        for seed in range(3)
    ]
    usual = typical_of([reference], moves, own=True)
    total = torch.zeros(())
    for row in terms.view(-1, 8):
        total = total + row.sum()
    (judged,) = judge_compiled(
        judge_eager(["y"], [reference.float()], [reference]),
        [total + off],
        [reference],
        dtype="float32",
        tolerance=1e-4,
        typical={0: usual} if known else None,
    )
    return judged.passed


def cancelling(seed: int, left: float) -> torch.Tensor:
    """Return 1024 numbers whose sum is so small, beside a usual one of 32."""
    terms = torch.randn(1024, generator=torch.Generator().manual_seed(seed))
    terms[-1] -= terms.double().sum() - left
    return terms


def test_a_sum_that_cancels_may_be_off_by_what_its_terms_are_rounded_by() -> None:
    seeds = range(40)
    assert all(judge_sum(cancelling(seed, 1e-3)) for seed in seeds)
    # The rule without it accused honest code.
    assert not all(judge_sum(cancelling(seed, 1e-3), known=False) for seed in seeds)
    assert not any(judge_sum(cancelling(seed, 1e-3), off=1e-3) for seed in seeds)


def test_what_jumps_is_not_allowed_to_be_off_by_the_jump() -> None:
    reference = torch.tensor(1.0, dtype=torch.float64)
    usual = typical_of([reference], [0.0, 1.0, 0.0], own=True)
    assert usual.rounding == 0.0
    usual = typical_of([reference], [1.0, 1.0, math.nan], own=True)
    assert ROUNDINGS * usual.rounding <= EAGER_LIMIT


def test_the_scale_of_an_output_of_few_elements_is_that_of_all_draws() -> None:
    near = torch.tensor(1e-6, dtype=torch.float64)
    usual = typical_of([near, torch.tensor(3.0, dtype=torch.float64)], [], own=True)
    assert (usual.scale, usual.rounding) == (3.0, 0.0)
    (error,) = judge_eager(["y"], [near.float() + 1e-7], [near])
    assert not eager_is_sound(error)
    assert eager_is_sound(error, typical=usual)


@given(st.integers(0, 2**32), st.sampled_from(["float32", "bfloat16"]))
def test_rounding_again_moves_each_number_by_one_rounding(seed: int, dtype: str) -> None:
    x = torch.randn(64, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    there = {"x": x, "n": 3, "i": torch.arange(3)}
    found = rounded_again(there, ROUNDOFF[dtype], seed)
    assert (found["n"], found["i"] is there["i"]) == (3, True)
    moved = (found["x"] / x - 1).abs()
    assert torch.allclose(moved, torch.full_like(moved, ROUNDOFF[dtype]), rtol=1e-6, atol=0.0)
    assert not torch.equal(rounded_again(there, ROUNDOFF[dtype], seed + 1)["x"], found["x"])


INF, NAN = math.inf, math.nan


def test_equal_infinities_and_nans_at_equal_places_are_equal() -> None:
    reference = torch.tensor([1.0, -INF, INF, NAN], dtype=torch.float64)
    assert distance(reference.float(), reference) == (0.0, 0.0)
    (error,) = judge_eager(["y"], [reference.float()], [reference])
    assert (error.scale, error.eager_max) == (1.0, 0.0)
    (judged,) = judge_compiled(
        (error,), [reference.float()], [reference], dtype="float32", tolerance=1e-4
    )
    assert judged.passed


@pytest.mark.parametrize(
    "wrong",
    [[1.0, INF, INF, NAN], [1.0, -INF, INF, 0.0], [NAN, -INF, INF, NAN], [1.0, -1e30, INF, NAN],
     [2.0, -INF, INF, NAN]],
)  # fmt: skip
@pytest.mark.parametrize("rule", ["float64", "tolerance", "cosine"])
def test_other_infinities_and_nans_are_wrong(wrong: list[float], rule: Reference) -> None:
    if rule == "cosine" and wrong[0] == 2.0:
        pytest.skip("of one number a cosine says nothing")
    reference = torch.tensor([1.0, -INF, INF, NAN], dtype=torch.float64)
    errors = judge_eager(["y"], [reference.float()], [reference])
    outputs, references = [torch.tensor(wrong)], [reference]
    if rule == "float64":
        judged = judge_compiled(errors, outputs, references, dtype="float32", tolerance=1e-4)
    else:
        judged = judge_by_eager(errors, outputs, references, rule=rule, tolerance=1e-4)
    assert not judged[0].passed


def by_eager(reference: torch.Tensor, output: torch.Tensor, *, beside: float = 0.0) -> bool | None:
    """Return the verdict by eager; with the largest value of all gradients, of a gradient."""
    exact = reference.double()
    scales = [Scales(1.0, beside)] if beside else None
    (judged,) = judge_by_eager(
        judge_eager(["y"], [reference], [exact]), [output], [exact],
        rule="tolerance", tolerance=1e-4, scales=scales,
    )  # fmt: skip
    return judged.passed


def test_eager_alone_refuses_a_wrong_output_however_small_it_is() -> None:
    small = torch.linspace(-6e-5, 6e-5, 9)
    assert by_eager(small, small * (1 + 1e-5))
    assert not by_eager(small, small * 0)
    assert not by_eager(small, small / 2, beside=0.01)


def test_eager_alone_allows_noise_beside_larger_gradients_and_roundings_of_16_bits() -> None:
    noise = torch.linspace(-1e-9, 1e-9, 9)
    assert by_eager(noise, -noise, beside=0.01)
    assert not by_eager(noise, -noise)
    short = torch.linspace(-1e-3, 1e-3, 9).bfloat16()
    assert by_eager(short, (short.double() * (1 + 2**-7)).bfloat16())


NUMBERS = st.sampled_from([0.0, -2.5, 1e308, -1e308, math.inf, -math.inf, math.nan])


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=6))
def test_equal_infinities_and_two_nan_are_not_apart(pairs: list[tuple[float, float]]) -> None:
    one, other = (torch.tensor([p[n] for p in pairs], dtype=torch.float64) for n in (0, 1))
    wanted = [0.0 if a == b or (a != a and b != b) else abs(a - b) for a, b in pairs]  # noqa: PLR0124
    found = apart(one, other).nan_to_num(-1.0)
    assert torch.equal(found, torch.tensor(wanted, dtype=torch.float64).nan_to_num(-1.0))
    assert largest_of(one) == max((abs(a) for a, _ in pairs if math.isfinite(a)), default=0.0)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=6))
def test_a_distance_is_that_of_all_elements(pairs: list[tuple[float, float]]) -> None:
    one, other = (torch.tensor([p[n] for p in pairs], dtype=torch.float64) for n in (0, 1))
    off = apart(one, other)
    wanted = (float(off.max()), float(off.square().mean().sqrt())) if pairs else (0.0, 0.0)
    assert distance(one, other) == (wanted if math.isfinite(wanted[0]) else (math.inf, math.inf))


def test_integers_that_float64_cannot_tell_apart_differ() -> None:
    one = torch.tensor([2**60, 5])
    largest, rmse = distance(one + torch.tensor([1, 0]), one)
    assert largest == 1.0
    assert rmse == pytest.approx(math.sqrt(0.5), rel=1e-15)


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=1, max_size=12))
def test_integers_are_described_by_number_and_first_place(pairs: list[tuple[int, int]]) -> None:
    ours, theirs = (list(one) for one in zip(*pairs, strict=True))
    unequal = [n for n, (a, b) in enumerate(pairs) if a != b]
    assume(unequal)
    text = how_elements_differ(torch.tensor(ours), torch.tensor(theirs))
    first = unequal[0]
    assert text == (
        f"in {len(unequal)} of {len(pairs)} elements: at [{first}] it is {ours[first]} instead of "
        f"{theirs[first]}"
    )


def test_a_single_boolean_is_described_without_a_place() -> None:
    text = how_elements_differ(torch.tensor(True), torch.tensor(False))  # noqa: FBT003
    assert text == "in 1 of 1 elements: it is True instead of False"


def test_numbers_are_described_by_those_that_alone_are_not_finite() -> None:
    nan, inf = math.nan, math.inf
    theirs = torch.tensor([[nan, inf, 1.0], [-inf, 2.0, 3.0]], dtype=torch.float64)
    for ours, text in (
        ([[nan, inf, 1.5], [-inf, 2.0, 3.0]], ""),  # an error, which a number describes
        (
            [[nan, inf, 1.0], [inf, nan, 3.0]],
            "in 2 of 6 elements: at [1, 0] it is inf instead of -inf",
        ),
        (
            [[0.0, inf, 1.0], [-inf, 2.0, 3.0]],
            "in 1 of 6 elements: at [0, 0] it is 0.0 instead of nan",
        ),
    ):
        assert how_elements_differ(torch.tensor(ours), theirs) == text
        assert how_elements_differ(torch.tensor(ours, dtype=torch.bfloat16), theirs) == text
    eighth = torch.tensor([nan, 1.0]).to(torch.float8_e4m3fn)
    assert "at [0] it is nan instead of 1.0" in how_elements_differ(eighth, torch.ones(2))


def test_the_dtype_and_shape_of_what_eager_returns_are_recorded() -> None:
    output = torch.ones(8, 3)
    (error,) = judge_eager(["y"], [output], [output.double()])
    assert (error.dtype, error.shape) == ("float32", (8, 3))
    (error,) = judge_eager(["y"], [torch.tensor(1.0, dtype=torch.bfloat16)], [torch.tensor(1.0)])
    assert (error.dtype, error.shape) == ("bfloat16", ())


@pytest.mark.parametrize(
    ("dtype", "n_inputs", "n_outputs", "roundings"),
    [
        ("float32", 4096, 1, 3 * 64),  # a sum of all
        ("float32", 8192 * 2048, 2048, 3 * 8192**0.5),  # sums of columns
        ("float32", 4096, 4096, 16),  # number by number
        ("float32", 0, 1, 16),  # a function without inputs
        ("float64", 4096, 1, 3 * 64),
        # Summed in float32.
        ("bfloat16", 4096, 1, 16),
        ("bfloat16", 1 << 40, 1, 3 * 2.0**20 * 2.0**-16),
    ],
)
def test_an_output_may_be_off_by_what_summing_its_inputs_in_any_order_rounds(
    dtype: str, n_inputs: int, n_outputs: int, roundings: float
) -> None:
    share = share_of_rounding(dtype, n_inputs, n_outputs)
    assert share == pytest.approx(roundings * ROUNDOFF[dtype])


@pytest.mark.parametrize(
    "terms",
    [
        # What 2.5.1 to 2.6.0 sum with one accumulator, and 2.15.0 where they add rows to each other.
        pytest.param(lambda x: (2 * x[(x > 0).nonzero()[:, 0]].sin()).reshape(-1), id="selected"),
        pytest.param(lambda x: x.reshape(-1).abs(), id="all"),
        pytest.param(lambda x: x.reshape(-1).square() / x.numel(), id="mean of squares"),
    ],
)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("factor", "passed"), [(1.0, True), (1.0 + 1e-4, False)])
def test_a_sum_with_one_accumulator_passes_and_a_wrong_one_fails(
    terms: Callable[[torch.Tensor], torch.Tensor], seed: int, factor: float, *, passed: bool
) -> None:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(512, 8, dtype=torch.float64, generator=generator).float()
    exact = terms(inputs.double()).sum()
    one_by_one = np.add.accumulate(terms(inputs).numpy())[-1]
    errors = judge_eager(["y"], [terms(inputs).sum()], [exact])
    (judged,) = judge_compiled(
        errors,
        [torch.tensor(one_by_one * np.float32(factor))],
        [exact],
        dtype="float32",
        tolerance=0.0,
        n_inputs=count_numbers((inputs,)),
    )
    assert judged.passed is passed


def test_a_few_values_of_an_output_are_kept_that_a_record_can_hold() -> None:
    assert values_of(torch.arange(15.0)) == tuple(range(0, 15, 2))
    assert values_of(torch.tensor([[1.0, -math.inf], [math.nan, 1e80]]).double()) == (1.0,)
    assert values_of(torch.tensor([1 - 2j])) == (1.0, -2.0)
    assert values_of(torch.tensor([True, False])) == (1.0, 0.0)
    assert values_of(torch.zeros(0)) == ()


@given(
    st.lists(st.one_of(NUMBERS, st.floats(width=32)), max_size=20),
    st.sampled_from(["float16", "bfloat16", "float32", "float64"]),
)
def test_the_kept_values_are_those_of_a_wide_copy(numbers: list[float], dtype: str) -> None:
    one = torch.tensor(numbers, dtype=torch.float64).to(getattr(torch, dtype))
    wide = [float(x) for x in one if abs(float(x)) <= LARGEST_VALUE]
    wide = [x if abs(x) >= 1 / LARGEST_VALUE else 0.0 for x in wide]
    n, k = len(wide), min(len(wide), VALUES)
    assert values_of(one) == tuple(wide[i * (n - 1) // max(k - 1, 1)] for i in range(k))
    finite = [abs(float(x)) for x in one if math.isfinite(x)]
    assert largest_of(one) == max(finite, default=0.0)
    other = one.double()
    same = not any(math.isnan(x) for x in one)
    assert _is_same(one, other) == same
    assert not numbers or not _is_same(one, torch.where(other == 0, 1.0, -other))


def test_what_the_reference_rounds_is_named_with_its_precision() -> None:
    one = torch.ones(2, dtype=torch.float64)
    references = {"output.y": one.to(torch.complex64), "output.z": one, "loss": one.to(torch.half)}
    references |= {"output.n": torch.ones(2, dtype=torch.int64), "output.c": one + 1j}
    assert rounded(references) == ["output.y to complex64", "loss to float16"]


def test_a_limit_of_the_precision_is_right_in_each_precision() -> None:
    def code(dtype: torch.dtype) -> list[torch.Tensor]:
        limits = torch.finfo(dtype)
        mask = torch.tensor([0.5, limits.min, limits.max], dtype=dtype)
        return [mask, torch.tensor(limits.eps, dtype=torch.float64), torch.tensor(3)]

    eager, exact = code(torch.float32), code(torch.float64)
    found = limits_of_precision(eager, exact, "float32")
    assert all(torch.equal(a.to(b), b) for a, b in zip(eager, found, strict=True))
    wrong = [torch.zeros(3), torch.tensor(1e-3, dtype=torch.float64), torch.tensor(4)]
    kept = limits_of_precision(wrong, exact, "float32")
    assert all(torch.equal(a, b) for a, b in zip(kept, exact, strict=True))
