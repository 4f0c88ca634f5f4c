"""A change is a verdict only if it is both significant and relevant; facts need no test."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ivhl.records.reader import read_record
from ivhl.records.record import JUMPS, Arm, Calibration, Counted, to_json
from ivhl.tracker.changes.kinds import CaseChange, judge_changes
from ivhl.tracker.store.facts import changed_facts, facts_digest, warnings_of
from ivhl.tracker.store.metrics import JUDGED, difference, measured, speed_of_machine
from ivhl.tracker.store.spread import SHIPPED
from tests.builders.records import Known, make_record, verdict

if TYPE_CHECKING:
    from ivhl.records.record import RunRecord
    from ivhl.tracker.store.entries import Run
    from ivhl.tracker.store.metrics import Metric
    from ivhl.tracker.store.spread import Spread, Spreads


def timed(eager_s: float, compiled_s: float, **changes: Any) -> RunRecord:  # noqa: ANN401
    """Return a record with these seconds per call."""
    record = make_record(speedup=eager_s / compiled_s, width=0.001, **changes)
    eager, compiled = (Arm(calls=1, samples_s=(s,) * 16) for s in (eager_s, compiled_s))
    return replace(record, eager=eager, compiled=compiled)


def at_speed(record: RunRecord, slowness: float) -> RunRecord:
    """Return the record of a machine that is slower by a factor, at everything."""

    def slower(arm: Arm | None) -> Arm:
        assert arm is not None
        return Arm(calls=1, samples_s=tuple(seconds * slowness for seconds in arm.samples_s))

    fixed = Calibration(compute_s=(5e-5 * slowness,), memory_s=(6e-4 * slowness,))
    return replace(
        record,
        calibration=fixed,
        eager=slower(record.eager),
        compiled=slower(record.compiled),
    )


def judge_change(before: RunRecord, after: RunRecord, spreads: Spreads) -> CaseChange:
    """Judge one case by itself."""
    return judge_changes({0: (before, after)}, spreads)[0]


BASE = timed(2e-3, 1e-3)


def test_beside_a_verdict_alone_no_time_is_judged() -> None:
    for pair in ((BASE, verdict(BASE)), (verdict(BASE), BASE), (verdict(BASE), verdict(BASE))):
        found = judge_change(*pair, Known(0.01))
        assert (found.kind, found.changes) == ("inconclusive", {})


@pytest.mark.parametrize(
    ("head", "side", "outcomes"),
    [
        (timed(2e-3, 2e-3), "compiled became slower", ("regressed", "unchanged", "regressed")),
        (timed(1e-3, 1e-3), "eager became faster", ("regressed", "improved", "unchanged")),
        (timed(4e-3, 2e-3), "both became slower", ("unchanged", "regressed", "regressed")),
        (timed(2e-3, 5e-4), "compiled became faster", ("improved", "unchanged", "improved")),
        (
            timed(4e-3, 5e-4),
            "eager became slower, compiled faster",
            ("improved", "regressed", "improved"),
        ),
        (BASE, "neither side's seconds are shown to have moved", ("unchanged",) * 3),
    ],
)
def test_each_side_is_judged_by_its_own_seconds(
    head: RunRecord, side: str, outcomes: tuple[str, str, str]
) -> None:
    found = judge_change(BASE, head, Known(0.02))
    assert found.side == side
    assert tuple(found.outcome(m) for m in ("speedup", "eager", "compiled")) == outcomes


def test_a_side_that_may_have_moved_is_not_said_to_have_stayed() -> None:
    """By 1.2x, which noise of 10 % neither shows nor rules out."""
    noisy = judge_change(BASE, timed(2.4e-3, 1.2e-3), Known(0.07))
    assert {noisy.outcome(m) for m in ("speedup", "eager", "compiled")} == {"unchanged"}
    assert noisy.side == "neither side's seconds are shown to have moved"
    assert judge_change(BASE, BASE, Known(0.005)).side == "neither side's seconds moved"

    class Apart(Known):
        """The speedup is known better than the seconds of either side."""

        def of(self, run: Run, metric: Metric = "speedup", *, calibrated: bool = False) -> Spread:
            return Known(0.01 if metric == "speedup" else 0.07).of(run, calibrated=calibrated)

    fell = judge_change(BASE, timed(2e-3, 1.2e-3), Apart(0.07))
    assert fell.outcome("speedup") == "regressed"
    assert fell.outcome("compiled") == "unchanged"
    assert fell.side == "which side moved cannot be told from the seconds"


def test_the_speed_of_the_machine_is_taken_out() -> None:
    slow = at_speed(BASE, 1.5)
    uncalibrated = replace(slow, calibration=None)
    assert judge_change(at_speed(BASE, 1.0), slow, Known(0.02)).outcome("compiled") == "unchanged"
    assert judge_change(BASE, uncalibrated, Known(0.02)).outcome("compiled") == "regressed"
    # A change of the code shows on a machine that became slower.
    found = judge_change(at_speed(BASE, 1.0), at_speed(timed(2e-3, 2e-3), 1.5), Known(0.02))
    assert found.changes["compiled"].calibrated
    assert found.changes["compiled"].ratio == pytest.approx(2.0)


def test_no_work_that_a_python_or_a_neighbour_changes_moves_seconds() -> None:
    """CPython 3.14 has a BLAKE2 of its own; a copy of memory is noisier than the cases."""
    before, after = at_speed(BASE, 1.0), at_speed(BASE, 1.0)
    assert after.calibration is not None
    noisy = replace(after, calibration=replace(after.calibration, memory_s=(9e-4,), c_s=(9e-4,)))
    found = judge_change(before, noisy, Known(0.02)).changes["compiled"]
    assert found.ratio == pytest.approx(1.0)


def calibrated(*compute_s: float) -> RunRecord:
    """Return the base at a calibration: two figures of each process."""
    fixed = Calibration(compute_s=compute_s, memory_s=(6e-4,) * len(compute_s))
    return replace(BASE, calibration=fixed)


def test_a_disturbed_calibration_is_no_effect() -> None:
    """As ``ops.condensate_energy`` on 2.7.1: the rounds were as ever, three of four figures not."""
    before = calibrated(4.26e-5, 4.25e-5, 4.26e-5, 4.31e-5)
    after = calibrated(4.26e-5, 6.4e-5, 8.49e-5, 7.04e-5)
    found = judge_change(before, after, Known(0.02)).changes["compiled"]
    assert found.outcome not in ("improved", "regressed")
    assert found.low < 1.0 < found.high
    # What both processes agree on is the machine.
    slower = calibrated(6.4e-5, 6.4e-5, 6.41e-5, 6.4e-5)
    assert judge_change(before, slower, Known(0.02)).outcome("compiled") == "improved"


def test_a_burst_beside_one_of_two_figures_moves_nothing() -> None:
    before, after = calibrated(*[4.2e-5] * 4), calibrated(4.2e-5, 9e-5, 8e-5, 4.2e-5)
    found = judge_change(before, after, Known(0.02)).changes["compiled"]
    assert found.ratio == pytest.approx(1.0)


def by_process(compiled_s: tuple[float, float], compute_s: tuple[float, ...]) -> RunRecord:
    """Return the base with these seconds in two processes of eight rounds, and calibrations."""
    samples = (compiled_s[0],) * 8 + (compiled_s[1],) * 8
    compiled = Arm(calls=1, samples_s=samples)
    return replace(calibrated(*compute_s), compiled=compiled, rounds=(8, 8))


def compiled_of(record: RunRecord) -> tuple[float, float]:
    """Return the compiled seconds of a run, and their error."""
    found = measured(record, "compiled")
    assert found is not None
    return found.value, found.error


def test_a_process_that_its_calibration_shows_disturbed_is_left_out() -> None:
    """``ops.intensity`` on 2.6.0: 36.4 and 65.8 µs, of which the second is another load's."""
    before = by_process((1.81e-5, 1.81e-5), (4.26e-5,) * 4)
    after = by_process((3.64e-5, 6.58e-5), (4.26e-5, 4.25e-5, 6.07e-5, 4.77e-5))
    apart = difference(before, after, "compiled")
    assert apart is not None
    assert math.exp(apart) == pytest.approx(2.01, rel=0.01)
    # A disturbed calibration alone, beside seconds that are no longer, leaves no process out.
    lucky = by_process((3.64e-5, 3.6e-5), (4.26e-5, 4.25e-5, 6.07e-5, 4.77e-5))
    assert compiled_of(lucky)[0] == pytest.approx(math.sqrt(3.64e-5 * 3.6e-5))
    # What slows the processor is not seen by the clock of a GPU.
    on_gpu = replace(after, conditions=replace(after.conditions, clock="cuda_event"))
    assert compiled_of(on_gpu)[0] == pytest.approx(math.sqrt(3.64e-5 * 6.58e-5))


def test_processes_that_differ_have_an_interval_that_holds_both() -> None:
    """``ops.condensate_energy`` on 2.13.0: 152.9 and 88.5 µs, and no calibration shows why."""
    value, error = compiled_of(by_process((15.29e-5, 8.85e-5), (4.23e-5,) * 4))
    assert value * math.exp(-1.96 * error) < 8.85e-5
    assert value * math.exp(1.96 * error) > 15.29e-5
    assert compiled_of(by_process((1e-4, 1e-4), (4.23e-5,) * 4))[1] == 0.0


def test_where_most_calibrations_of_a_run_were_disturbed_all_count() -> None:
    """``ops.gp_fourier`` on 2.13.0: one of four figures of 43 µs, and rounds longer by a third."""
    found = speed_of_machine(calibrated(5.79e-5, 5.78e-5, 4.29e-5, 5.76e-5))
    assert found is not None
    assert found.value == pytest.approx(5.37e-5, rel=0.01)
    assert found.error > 0.1


def test_what_would_not_show_is_not_called_unchanged() -> None:
    found = judge_change(BASE, timed(2e-3, 1.1e-3), Known(0.1))
    assert found.outcome("compiled") == "inconclusive"
    assert "too noisy to say" in str(found.changes["compiled"])
    assert judge_change(BASE, timed(2e-3, 1.1e-3), Known(0.01)).outcome("compiled") == "regressed"


def test_a_significant_change_that_nobody_acts_on_is_no_verdict() -> None:
    change = judge_change(BASE, timed(2e-3, 1.01e-3), Known(1e-4)).changes["compiled"]
    assert (change.significant, change.relevant, change.magnitude) == (True, False, "none")
    assert change.outcome == "unchanged"


@given(st.floats(1e-7, 10), st.floats(0.2, 5), st.floats(0.001, 0.3))
def test_the_reverse_comparison_has_the_reverse_outcome(
    compiled_s: float, factor: float, tau: float
) -> None:
    one, other = timed(2 * compiled_s, compiled_s), timed(2 * compiled_s, compiled_s * factor)
    there, back = (judge_change(a, b, Known(tau)) for a, b in ((one, other), (other, one)))
    reverse = {"regressed": "improved", "improved": "regressed"}
    for metric, change in there.changes.items():
        assert back.changes[metric].p == pytest.approx(change.p)
        assert back.outcome(metric) == reverse.get(change.outcome, change.outcome)
        assert change.low <= change.ratio <= change.high


@given(st.floats(0.001, 0.3), st.floats(0, 2), st.floats(0, 2))
def test_a_larger_change_is_less_probable(tau: float, a: float, b: float) -> None:
    small, large = sorted((a, b))
    p = [
        judge_change(BASE, timed(2e-3, 1e-3 * math.exp(x)), Known(tau)).changes["compiled"].p
        for x in (small, large)
    ]
    assert 0 <= p[1] <= p[0] <= 1


def test_the_same_code_seldom_gets_a_verdict() -> None:
    """2,000 comparisons of 50 commits of the same code; runs differ by 4 %, and that is known."""
    draw = random.Random(5)  # noqa: S311  (noise)
    tau, wrong, n = 0.04, 0, 0
    for _ in range(50):
        pairs = {}
        for case in range(40):
            runs = [timed(2e-3, 1e-3 * math.exp(draw.gauss(0, tau))) for _ in range(2)]
            pairs[case] = (runs[0], runs[1])
        # 2.33 standard deviations are exceeded by 2 % of normal differences: the known score.
        for found in judge_changes(pairs, Known(tau * 2.33 / 2.5)).values():
            wrong += found.outcome("compiled") in {"regressed", "improved"}
            n += 1
    assert n == 2000
    assert wrong / n < 0.002


def test_a_missing_quantity_has_no_outcome() -> None:
    bare = replace(BASE, compile=None, memory=None)
    assert set(judge_change(BASE, bare, SHIPPED).changes) == {"speedup", "eager", "compiled"}
    assert measured(bare, "cold") is None
    assert difference(BASE, bare, "memory") is None


def test_a_cold_compile_of_an_earlier_run_is_not_judged_again() -> None:
    facts = BASE.compile
    assert facts is not None
    kept = replace(BASE, compile=replace(facts, cold_at="2026-11-01T00:00:00+00:00"))
    assert "cold" not in judge_change(BASE, kept, SHIPPED).changes


@pytest.mark.parametrize("metric", JUDGED)
def test_values_at_the_edge_are_judged_without_an_error(metric: Any) -> None:  # noqa: ANN401
    for seconds in (1e-300, 1e300, 5e-324):
        found = judge_change(BASE, timed(seconds, seconds), SHIPPED)
        assert metric not in found.changes or math.isfinite(found.changes[metric].p)


def with_facts(**changes: Any) -> RunRecord:  # noqa: ANN401
    """Return the base with other facts about compiling."""
    facts = BASE.compile
    assert facts is not None
    return replace(BASE, compile=replace(facts, **changes))


@pytest.mark.parametrize(
    ("head", "kind", "worse", "text"),
    [
        (
            with_facts(
                graph_breaks=(
                    Counted(text="Tensor.item", count=2),
                    Counted(text="call to print()", count=1),
                )
            ),
            "graph_breaks",
            True,
            "3 graph breaks, 1 before; new: Tensor.item",
        ),
        (
            with_facts(graph_breaks=()),
            "graph_breaks",
            False,
            "0 graph breaks, 1 before; gone: call to print()",
        ),
        (
            with_facts(recompiles=(Counted(text="x", count=9),)),
            "recompiles",
            True,
            "9 recompiles, 2 before; new: x",
        ),
        (with_facts(frames_total=4), "fallback", True, "2 of 4 frames run eagerly, 0 before"),
        (with_facts(graphs=1), "graphs", None, "1 graph, 2 before"),
        (with_facts(calls_captured=30), "size", None, "30 operations in the graphs, 31 before"),
        (
            replace(BASE, warnings=(Counted(text="slow path", count=1),)),
            "warnings",
            None,
            "new warning: slow path",
        ),
    ],
)
def test_a_fact_that_changed_is_a_finding(
    head: RunRecord,
    kind: str,
    *,
    worse: bool | None,
    text: str,
) -> None:
    (found,) = changed_facts(BASE, head)
    assert (found.kind, found.worse, found.text) == (kind, worse, text)
    (back,) = changed_facts(head, BASE)
    assert back.kind == kind
    assert back.worse == (None if worse is None else not worse) or kind == "warnings"


def test_a_moved_line_is_no_new_reason() -> None:
    then = with_facts(graph_breaks=(Counted(text="print at model.py:41 <0x7f01>", count=1),))
    now = with_facts(graph_breaks=(Counted(text="print at model.py:57 <0x8a22>", count=1),))
    assert changed_facts(then, now) == ()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"dtype": "float64"}, "eager returns float64 [8, 3], float32 [8, 3] before"),
        ({"shape": (3, 8)}, "eager returns float32 [3, 8], float32 [8, 3] before"),
    ],
)
def test_another_dtype_or_shape_of_an_output_is_a_fact(changes: dict[str, Any], text: str) -> None:
    """A change from float32 to float64 in both arms was *held*."""

    def returning(**about: Any) -> RunRecord:  # noqa: ANN401
        return replace(BASE, accuracy=(replace(BASE.accuracy[0], **about),))

    before = returning(dtype="float32", shape=(8, 3))
    after = returning(**{"dtype": "float32", "shape": (8, 3)} | changes)
    (fact,) = changed_facts(before, after)
    assert (fact.kind, fact.worse, fact.text) == ("outputs", True, f"output psi: {text}")
    assert judge_change(before, after, Known(0.01)).kind == "degraded"
    assert facts_digest(before) != facts_digest(after)
    # Of a record from before, nothing is known.
    assert changed_facts(BASE, after) == changed_facts(before, BASE) == ()
    assert read_record(to_json(after).encode()) == after


def returning(*outputs: tuple[str, dict[str, Any]], **about: Any) -> RunRecord:  # noqa: ANN401
    """Return a record of outputs that a cell and a benchmark of one's own gave."""
    known: dict[str, Any] = {"dtype": "float32", "shape": (8,), "limit_max": 1e-6}
    errors = [replace(BASE.accuracy[0], output=name, **known | of) for name, of in outputs]
    return replace(BASE, accuracy=tuple(errors), **{"benchmark": "b" * 64} | about)


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (["output[0]", "output[1]"], ["output['a']", "output['b']"],
         "eager returns output['a'] (and 1 more), output[0] (and 1 more) before"),
        (["output['a']"], ["output['b']"], "eager returns output['b'], output['a'] before"),
        (["output[0]", "output[1]"], ["output[0]"], "eager returns output[1] no longer"),
        (["output[0]"], ["output[0]", "output[1]"], "eager returns output[1] now"),
    ],
)  # fmt: skip
def test_another_structure_of_what_eager_returns_is_a_fact(
    before: list[str], after: list[str], text: str
) -> None:
    """A tuple that became a dictionary, another key, an output fewer were *held*."""
    was, now = (returning(*((name, {}) for name in names)) for names in (before, after))
    (fact,) = changed_facts(was, now)
    assert (fact.kind, fact.worse, fact.text) == ("outputs", True, text)
    assert judge_change(was, now, Known(0.01)).kind == "degraded"
    # Of a large model a record names the worst outputs only, which are others in each run.
    assert changed_facts(replace(was, leaves=500), replace(now, leaves=500)) == ()
    (fact,) = changed_facts(replace(was, leaves=500), replace(now, leaves=499))
    assert fact.text == "eager returns 499 outputs, 500 before"
    # The state of an optimizer has other names in other releases.
    other = replace(now, cell=replace(now.cell, torch="2.9.9", id="py3.12-torch2.9.9"))
    assert changed_facts(was, other) == ()


@pytest.mark.parametrize(
    ("now", "about", "worse"),
    [
        ((0.5, -1.0 + 1.9e-6), {}, False),  # within the errors of both
        ((0.5, -1.0 + 2.1e-6), {}, True),
        ((0.5, 1.0), {}, True),
        ((0.5, 1.0), {"benchmark": "c" * 64}, False),  # other inputs
        ((0.5, 1.0), {"benchmark": None}, False),
        ((0.5, 1.0), {"warnings": (Counted(text=f"{JUMPS} output", count=1),)}, False),
        (None, {}, False),  # an older record, or random numbers
    ],
)
def test_another_value_of_what_eager_returns_is_a_fact(
    now: tuple[float, ...] | None, about: dict[str, Any], *, worse: bool
) -> None:
    before = returning(("y", {"values": (0.5, -1.0)}))
    after = returning(("y", {"values": now}), **about)
    facts = [one for one in changed_facts(before, after) if one.kind == "outputs"]
    assert [one.worse for one in facts] == [True] * worse
    assert all("where it returned -1 before" in one.text for one in facts)
    assert (judge_change(before, after, Known(0.01)).kind == "degraded") is worse
    assert read_record(to_json(after).encode()) == after


def recompiled(line: int, resumed: str = "") -> RunRecord:
    """Return a record of a function at a line that Dynamo compiled again, as Dynamo says it."""
    guard = (
        f"- 0/{line % 3}: group[0] == 'rope'     # if name == 'rope':  # plan.py:{line + 2} in run\n"
        f'    - User stack trace:\n    -   File "plan.py", line {line + 2}, in run\n'
        f"    -     if name == 'rope':  # was line {line}\n    "
    )
    text = (
        f"Recompiling function {resumed}run in plan.py:{line}\n    triggered by:\n    {guard * 5}"
    )
    return with_facts(recompiles=(Counted(text=text[:600].strip(), count=1),))


@settings(max_examples=50, deadline=None)
@given(before=st.integers(1, 9), after=st.integers(100, 99_999))
def test_recompiles_are_compared_by_cause_and_function_not_by_line(
    before: int, after: int
) -> None:
    """A function that had only moved was "new: Recompiling function ... :343"."""
    assert changed_facts(recompiled(before), recompiled(after)) == ()
    assert facts_digest(recompiled(before)) == facts_digest(recompiled(after))
    resumed = [
        recompiled(7, f"torch_dynamo_resume_in_step_at_{line}_of_") for line in (before, after)
    ]
    assert changed_facts(*resumed) == ()
    (fact,) = changed_facts(recompiled(before), resumed[1])
    assert (fact.kind, fact.worse) == ("recompiles", None)


@pytest.mark.parametrize(
    ("rmse", "worse"), [(1.5e-7, None), (4e-7, True), (0.0, None), (4e-8, None), (3e-8, None)]
)
def test_an_error_counts_from_twice_on_and_above_a_rounding(
    rmse: float, *, worse: bool | None
) -> None:
    error = BASE.accuracy[0]
    head = replace(BASE, accuracy=(replace(error, compiled_rmse=rmse),))
    found = changed_facts(BASE, head)
    assert [fact.worse for fact in found if fact.worse] == ([True] if worse else [])


# The first is of hotpath.mlp/small/hot: one commit and release, Python 3.13 and 3.14, two draws.
@pytest.mark.parametrize(("rmse", "worse"), [(2.3e-7, False), (2e-6, True)])
def test_the_error_of_a_single_number_is_worse_from_some_roundings_on(
    rmse: float, *, worse: bool
) -> None:
    def of_a_loss(scale: float, error: float) -> RunRecord:
        loss = replace(BASE.accuracy[0], scale=scale, compiled_rmse=error, compiled_max=error)
        return replace(BASE, accuracy=(loss,))

    found = changed_facts(of_a_loss(1.25, 9.7e-8), of_a_loss(1.86, rmse))
    assert [fact.worse for fact in found] == ([True] if worse else [])


@pytest.mark.parametrize(
    "text",
    [
        "UserWarning: Warning: Profiler clears events at the end of each cycle.Only events ...",
        "FutureWarning: You are using `torch.load` with `weights_only=False` (the current ...",
    ],
)
def test_a_warning_of_the_harness_itself_is_no_fact_of_the_case(text: str) -> None:
    head = replace(BASE, warnings=(*BASE.warnings, Counted(text=text, count=1)))
    assert changed_facts(BASE, head) == changed_facts(head, BASE) == ()
    assert facts_digest(head) == facts_digest(BASE)
    assert warnings_of(head) == BASE.warnings


def test_beside_many_cases_the_side_of_a_changed_speedup_is_asked_of_the_case_alone() -> None:
    """The change of the seconds alone would drown among so many comparisons."""

    class Uneven(Known):
        """Seconds that repeat five times worse than speedups."""

        def of(self, run: Any, metric: Any = "speedup", *, calibrated: bool = False) -> Any:  # noqa: ANN401
            del run, calibrated
            return Known(0.02 if metric == "speedup" else 0.1)._spread

    pairs = dict.fromkeys(range(2000), (BASE, BASE))
    found = judge_changes(pairs | {-1: (BASE, timed(2e-3, 2.5e-3))}, Uneven(0.02))[-1]
    assert found.side == "compiled became slower"
    assert "too noisy" not in str(found.changes["compiled"])
    # Where the speedup stays, both sides' seconds are judged beside all others, and it says so.
    both = judge_changes(pairs | {-1: (BASE, timed(5e-3, 2.5e-3))}, Uneven(0.02))[-1]
    assert both.outcome("compiled") == "inconclusive"
    assert str(both.changes["compiled"]).endswith("too noisy to say beside so many cases")
