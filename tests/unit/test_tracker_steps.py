"""A step is on the side, at the release and in the cells where it was planted, and nowhere else."""

from __future__ import annotations

import itertools
import json
import math
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from ivhl.cli import app
from ivhl.errors import ResultsError, UnknownNameError
from ivhl.records.record import Arm, Calibration
from ivhl.tracker.changes.disturbed import disturbed_of
from ivhl.tracker.changes.steps import cases_of, find_steps, of_one_code
from ivhl.tracker.store.course import MemoryHistory
from ivhl.tracker.store.metrics import SIDES
from tests.builders.fleet import a_record, make_fleet_project, write_records
from tests.builders.records import Known, interval, make_failure, make_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from ivhl.records.record import RunRecord
    from ivhl.tracker.changes.steps import CourseStep
    from ivhl.tracker.store.entries import Run
    from ivhl.tracker.store.metrics import Metric
    from ivhl.tracker.store.spread import Spread

PYTHONS = ("3.12", "3.13", "3.14")
RELEASES = ("2.5.1", "2.6.0", "2.9.1", "2.10.0", "2.15.0")
FIXED = Calibration(code_s=(5e-5,), memory_s=(6e-4,))


def timed(record: RunRecord, eager_s: float, compiled_s: float) -> RunRecord:
    """Return the record with these seconds, on a machine whose speed is known."""
    eager, compiled = (Arm(calls=1, samples_s=(s,) * 16) for s in (eager_s, compiled_s))
    return replace(record, eager=eager, compiled=compiled, calibration=FIXED)


def grid(seconds: Callable[[str, str], tuple[float, float]]) -> list[RunRecord]:
    """Return a record of each cell with what ``seconds`` says of Python and release."""
    found = []
    for python, torch in itertools.product(PYTHONS, RELEASES):
        eager_s, compiled_s = seconds(python, torch)
        record = make_record(python=python, torch=torch, speedup=eager_s / compiled_s)
        found.append(timed(record, eager_s, compiled_s))
    return found


def steps_of(
    records: Iterable[RunRecord], tau: float = 0.02, *, every: bool = False
) -> list[CourseStep]:
    entries = of_one_code(MemoryHistory(records).entries)
    return list(find_steps(entries, Known(tau), every=every))


def late(torch: str) -> bool:
    return RELEASES.index(torch) >= RELEASES.index("2.10.0")


@pytest.mark.parametrize(
    ("side", "whose"),
    [
        (0, "eager moved, compiled did not: PyTorch, in what only eager code runs"),
        (1, "compiled moved, eager did not: PyTorch's compiler"),
    ],
)
def test_a_release_that_slows_one_side_on_all_pythons_is_one_step(side: int, whose: str) -> None:
    def seconds(_: str, torch: str) -> tuple[float, float]:
        pair = [2e-3, 1e-3]
        pair[side] *= 1.5 if late(torch) else 1
        return pair[0], pair[1]

    (step,) = steps_of(grid(seconds), tau=0.005)
    assert (step.along, step.before, step.place) == ("torch", "2.9.1", "2.10.0")
    assert step.cells == PYTHONS
    found = step.sides[SIDES[side]]
    assert found.low < 1.5 < found.high
    assert found.word == "became slower"
    assert step.whose == whose


# No run after it; the run after it does not show it.
@pytest.mark.parametrize("slow", ["2.15.0", "2.10.0"])
def test_what_one_python_alone_shows_is_a_step_of_it_alone(slow: str) -> None:
    steps = steps_of(grid(lambda p, t: (2e-3, 2e-3 if (p, t) == ("3.13", slow) else 1e-3)))
    release = next(step for step in steps if step.along == "torch")
    assert (release.place, release.cells) == (slow, ("3.13",))
    assert {step.place for step in steps if step.along == "python"} == {"3.13", "3.14"}
    assert release.is_alone
    # A disturbed run moves the speedup, too, so that it moved excuses nothing.
    assert release.sides["speedup"].moved
    assert release.whose.endswith("in this cell alone, so perhaps what disturbed one of its runs")
    assert all(step.cells == (slow,) for step in steps if step.along == "python")


def test_a_step_of_one_python_that_lasts_is_no_single_disturbed_run() -> None:
    release, *pythons = steps_of(
        grid(lambda p, t: (2e-3, 2e-3 if p == "3.13" and late(t) else 1e-3))
    )
    assert (release.place, release.cells) == ("2.10.0", ("3.13",))
    assert release.is_alone
    assert not release.may_be_disturbed
    assert release.whose.endswith("in this cell alone, and the runs before and after it agree")
    # Two releases show it beside each other, and three do not: they share a step.
    shown = [(step.place, step.cells, step.is_alone) for step in pythons]
    assert shown == [(place, ("2.10.0", "2.15.0"), False) for place in ("3.13", "3.14")]


def test_cells_that_moved_by_other_factors_or_the_other_way_are_steps_of_their_own() -> None:
    factors = {"3.12": 1.3, "3.13": 3.0, "3.14": 0.5}
    steps = steps_of(grid(lambda p, t: (2e-3, 1e-3 * (factors[p] if late(t) else 1))))
    alone = {step.cells: step.is_alone for step in steps if step.along == "torch"}
    assert alone == {("3.12",): False, ("3.13",): False, ("3.14",): True}


def test_a_python_that_is_faster_beside_every_release_is_pythons_doing() -> None:
    (step,) = steps_of(grid(lambda p, _: (2e-3, 8e-4 if p == "3.14" else 1e-3)))
    assert (step.along, step.before, step.place, step.cells) == (
        "python",
        "3.13",
        "3.14",
        RELEASES,
    )
    assert step.whose == "compiled moved, eager did not: Python, in what only compiled code runs"


def test_that_a_side_shows_no_change_is_no_evidence_that_it_did_not() -> None:
    (step,) = steps_of(grid(lambda _, t: (2e-3, 1.5e-3 if late(t) else 1e-3)), tau=0.05)
    assert step.whose == (
        "compiled moved, and by more than eager, which is too noisy to rule a change out: "
        "PyTorch's compiler, at least in part"
    )


def test_the_speedup_shows_what_neither_side_shows_alone() -> None:
    class Apart(Known):
        """Runs differ in the speed of the machine, by which the speedup is not touched."""

        def of(self, run: Run, metric: Metric = "speedup", *, calibrated: bool = False) -> Spread:
            return Known(0.01 if metric == "speedup" else 0.2).of(run, calibrated=calibrated)

    records = grid(lambda _, t: (2e-3, 1.15e-3 if late(t) else 1e-3))
    entries = of_one_code(MemoryHistory(records).entries)
    (step,) = find_steps(entries, Apart(0.2))
    assert (step.place, step.cells) == ("2.10.0", PYTHONS)
    assert [side for side, found in step.sides.items() if found.moved] == ["speedup"]
    assert step.sides["speedup"].word == "fell"
    assert step.whose == (
        "the speedup fell: PyTorch; the seconds are too noisy to say by which side"
    )


def test_all_cells_together_know_a_change_better_than_one() -> None:
    records = grid(lambda _, t: (2e-3, 1.1e-3 if late(t) else 1e-3))

    def width(part: list[RunRecord]) -> float:
        (step,) = [s for s in steps_of(part, every=True) if s.place == "2.10.0"]
        found = step.sides["compiled"]
        return math.log(found.high / found.low)

    alone = width([record for record in records if record.cell.python == "3.12"])
    assert alone / width(records) == pytest.approx(math.sqrt(len(PYTHONS)))


def test_a_cell_that_failed_is_passed_over() -> None:
    records = [
        make_failure("support_gate", python=record.cell.python, torch=record.cell.torch)
        if record.cell.torch == "2.9.1"
        else record
        for record in grid(lambda _, t: (2e-3, 2e-3 if late(t) else 1e-3))
    ]
    (step,) = steps_of(records)
    assert (step.before, step.place) == ("2.6.0", "2.10.0")


def disturbed_at(records: Iterable[RunRecord], *cells: tuple[str, str]) -> list[CourseStep]:
    """Return the steps where another load slowed these cells, of which ``disturbed_of`` knows."""
    loud = [
        replace(
            timed(record, 3e-3, 2e-3),
            speedup=interval(1.5),
            calibration=Calibration(code_s=(7.3e-5,), memory_s=(6e-4,)),
        )
        if (record.cell.python, record.cell.torch) in cells
        else record
        for record in records
    ]
    entries = of_one_code(MemoryHistory(loud).entries)
    disturbed = disturbed_of(entries)
    assert len(disturbed) == len(cells)
    assert find_steps(entries, Known(0.02)) != find_steps(
        entries, Known(0.02), disturbed=disturbed
    )
    return list(find_steps(entries, Known(0.02), disturbed=disturbed))


def test_a_disturbed_run_is_in_no_step() -> None:
    """``ops.intensity`` on 3.12 with 2.10.0, which Python was blamed for."""
    assert disturbed_at(grid(lambda *_: (2e-3, 1e-3)), ("3.12", "2.10.0")) == []
    (step,) = disturbed_at(
        grid(lambda _, t: (2e-3, 1.5e-3 if late(t) else 1e-3)), ("3.13", "2.10.0")
    )
    # Other cells show the place, so no step of 3.13 lies between 2.9.1 and 2.15.0 beside it.
    assert (step.before, step.place, step.cells) == ("2.9.1", "2.10.0", ("3.12", "3.14"))
    assert step.sides["compiled"].ratio == pytest.approx(1.5)


def test_a_step_at_a_place_that_was_disturbed_everywhere_lies_between_its_neighbours() -> None:
    records = grid(lambda _, t: (2e-3, 1.5e-3 if late(t) else 1e-3))
    (step,) = disturbed_at(records, *((python, "2.10.0") for python in PYTHONS))
    assert (step.before, step.place, step.cells) == ("2.9.1", "2.15.0", PYTHONS)


def test_a_cell_whose_processes_disagree_hardly_moves_the_size_of_a_step() -> None:
    """``ops.condensate_energy``, 2.12.1 to 2.13.0: 1.09x, 1.10x and, of two processes, 1.56x."""

    def noisy(record: RunRecord) -> RunRecord:
        if (record.cell.python, record.cell.torch) != ("3.14", "2.10.0"):
            return record
        compiled = Arm(calls=1, samples_s=(1.1e-3,) * 8 + (2.2e-3,) * 8)
        return replace(record, compiled=compiled, rounds=(8, 8))

    shown = [noisy(record) for record in grid(lambda _, t: (2e-3, 1.1e-3 if late(t) else 1e-3))]
    (step,) = [one for one in steps_of(shown, every=True) if one.place == "2.10.0"]
    found = step.sides["compiled"]
    assert found.each["3.14"] == pytest.approx(1.1 * math.sqrt(2))
    assert found.ratio == pytest.approx(1.1, rel=0.02)


def test_the_same_code_seldom_has_a_step() -> None:
    order = random.Random(0)  # noqa: S311  (noise, not a secret)

    def noisy(_python: str, _torch: str) -> tuple[float, float]:
        # So that seconds of both sides and the speedup differ by 0.03 each.
        machine, eager, compiled = (order.gauss(0, 0.03 / math.sqrt(2)) for _ in range(3))
        return 2e-3 * math.exp(machine + eager), 1e-3 * math.exp(machine + compiled)

    found = sum(bool(steps_of(grid(noisy), tau=0.03)) for _ in range(60))
    # FALSE_DISCOVERIES allows 5 % of such cases a step, in each of three quantities.
    assert found <= 5


LONG = ("2.4.1", *RELEASES[:2], "2.7.1", "2.8.0", *RELEASES[2:4], "2.11.0", "2.12.1", "2.13.0")


def long_course(
    slower: float, seed: int, sides: tuple[int, ...] = (0, 1), tau: float = 0.1
) -> list[RunRecord]:
    """Return ten releases on two Pythons, of which those from 2.9.1 on are slower by a factor."""
    order = random.Random(seed)  # noqa: S311  (noise, not a secret)
    found = []
    for python, torch in itertools.product(PYTHONS[:2], LONG):
        machine, *own = (order.gauss(0, tau / 2) for _ in range(3))
        step = slower if LONG.index(torch) >= LONG.index("2.9.1") else 1.0
        pair = [
            s * math.exp(machine + one) * (step if side in sides else 1.0)
            for side, (s, one) in enumerate(zip((2e-3, 1e-3), own, strict=True))
        ]
        record = make_record(python=python, torch=torch, speedup=pair[0] / pair[1])
        found.append(timed(record, *pair))
    return found


def test_a_step_of_both_sides_that_no_two_neighbours_show_is_shown_by_all_of_them() -> None:
    """Of two runs that differ by 1.3x where nothing changed, 1.25x says nothing."""
    found = [steps_of(long_course(1.25, seed), tau=0.1) for seed in range(10)]
    steps = [step for steps in found for step in steps if step.place == "2.9.1"]
    assert len(steps) >= 8
    for step in steps:
        assert step.of_levels
        assert step.before == "2.8.0"
        assert "by all runs before and after it, as no two neighbours show it" in step.whose
    both = [step for step in steps if all(step.sides[side].moved for side in SIDES)]
    assert len(both) >= 6
    assert all(step.sides["compiled"].low < 1.25 < step.sides["compiled"].high for step in both)
    assert both[0].whose.startswith("both sides moved: PyTorch, in what eager and compiled code")


def test_levels_seldom_show_a_step_of_the_same_code() -> None:
    found = [steps_of(long_course(1.0, seed), tau=0.1) for seed in range(60)]
    assert sum(any(step.of_levels for step in steps) for steps in found) <= 2


def test_what_neighbours_show_is_no_second_step_of_the_levels() -> None:
    (step,) = steps_of(long_course(1.5, 3, tau=0.01), tau=0.02)
    assert not step.of_levels
    assert (step.place, step.cells) == ("2.9.1", PYTHONS[:2])


def test_a_calibration_that_moves_alone_is_no_step_of_the_levels() -> None:
    records = [
        replace(record, calibration=Calibration(code_s=(5e-5 / 1.25,), memory_s=(6e-4,)))
        if LONG.index(record.cell.torch) >= 5
        else record
        for record in long_course(1.0, 1, tau=0.02)
    ]
    assert not any(step.of_levels for step in steps_of(records, tau=0.1))


def test_every_place_can_be_listed() -> None:
    steps = steps_of(grid(lambda *_: (2e-3, 1e-3)), every=True)
    assert len(steps) == len(RELEASES) - 1 + len(PYTHONS) - 1
    assert {step.whose for step in steps} == {"no change is shown"}


def test_runs_of_other_code_are_left_out() -> None:
    new = [replace(record, sources="a" * 64) for record in grid(lambda *_: (2e-3, 1e-3))]
    old = [replace(record, sources="b" * 64) for record in grid(lambda *_: (2e-3, 5e-3))]
    entries = MemoryHistory([*old[:3], *new]).entries
    assert len(cases_of(entries)) == 1
    assert {entry.sources for entry in of_one_code(entries)} == {"a" * 64}


def test_the_command_shows_cells_and_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_fleet_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    record = timed(a_record(tmp_path), 2e-3, 1e-3)
    cell = replace(record.cell, torch="2.7.1", id="py3.12-torch2.7.1")
    write_records(tmp_path / "results", record, timed(replace(record, cell=cell), 2e-2, 1e-3))
    run = CliRunner().invoke
    text = run(app, ["course", "ops.one"]).stdout
    assert "PyTorch 2.6.0 -> 2.7.1, on Python 3.12" in text
    assert "eager became slower: 10.00x" in text
    assert "20 ms*" in text
    (told,) = json.loads(run(app, ["course", "ops.one", "--json"]).stdout)["cases"]
    assert [step["place"] for step in told["steps"]] == ["2.7.1"]
    assert isinstance(run(app, ["course", "ops.two"]).exception, UnknownNameError)
    places = run(app, ["course"]).stdout.splitlines()
    assert places[0].endswith(", cpu: 1 case over 2 PyTorch releases and 1 Python")
    assert places[1] == "  PyTorch 2.6.0 -> 2.7.1, on Python 3.12"
    assert places[2].startswith("    eager became slower, 1 case: ops.one 10.00x [")
    monkeypatch.setattr("ivhl.cli.course.disturbed_of", lambda es: frozenset({es[0].id}))
    marked = " ".join(run(app, ["course", "ops.one"]).stdout.split())
    assert "1 ms !" in marked
    assert "! disturbed, in no step" in marked
    assert "no step is shown" in marked
    assert " ".join(run(app, ["course"]).stdout.split()).endswith(
        " 1 run was disturbed, by the calibration, and left out of steps in time: "
        "ops.one/small/a in py3.12-torch2.6.0"
    )
    (told,) = json.loads(run(app, ["course", "ops.one", "--json"]).stdout)["cases"]
    assert [cell["disturbed"] for cell in told["cells"]] == [True, False]
    option = ["course", "ops.one", "--machine", "nowhere"]
    assert isinstance(run(app, option).exception, UnknownNameError)


def test_versions_of_a_case_are_named_and_are_one_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_fleet_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    record = timed(a_record(tmp_path), 2e-3, 1e-3)
    cell = replace(record.cell, torch="2.7.1", id="py3.12-torch2.7.1")
    slow = timed(replace(record, cell=cell), 2e-2, 1e-3)
    before = [replace(one, workload_version=1) for one in (record, slow)]
    write_records(tmp_path / "results", record, slow, *before)
    run = CliRunner().invoke
    heads = [line for line in run(app, ["course", "ops.one"]).stdout.splitlines() if "/a" in line]
    assert [head.partition("  ")[0] for head in heads] == [
        "ops.one/small/a (version 1)",
        "ops.one/small/a (version 2)",
    ]
    places = " ".join(run(app, ["course"]).stdout.split())
    assert ", cpu: 1 case over 2 PyTorch releases and 1 Python" in places
    assert "eager became slower, 1 case: ops.one (version" in places
    assert places.count("ops.one (version 1) ") == places.count("ops.one (version 2) ") > 0


def test_a_case_with_a_step_of_each_python_is_named_with_its_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_fleet_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    record = a_record(tmp_path)

    def run_in(python: str, torch: str, eager_s: float) -> RunRecord:
        cell = replace(record.cell, python=python, torch=torch, id=f"py{python}-torch{torch}")
        return timed(replace(record, cell=cell), eager_s, 1e-3)

    seconds = {("3.12", "2.6.0"): 2e-3, ("3.12", "2.7.1"): 4e-3}
    seconds |= {("3.13", "2.6.0"): 2e-3, ("3.13", "2.7.1"): 2e-2}
    write_records(tmp_path / "results", *(run_in(*cell, s) for cell, s in seconds.items()))
    places = " ".join(CliRunner().invoke(app, ["course"]).stdout.split())
    assert "eager became slower, 1 case: ops.one on 3.13 10.00x [" in places
    assert "ops.one on 3.12 2.00x [" in places


def test_a_folder_without_records_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_fleet_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    for arguments in (["course"], ["course", "ops.one"], ["course", "--json"]):
        found = CliRunner().invoke(app, [*arguments, "--results", "empty"]).exception
        assert isinstance(found, ResultsError)
        assert str(found) == "no records in empty"
        assert found.hint


def test_what_a_session_moves_all_cells_by_is_no_step_of_their_mean() -> None:
    """Between two days seconds differ by what no number of cells averages out."""
    moved = 1.22  # of seconds on both sides: a session of another day may do that

    def seconds(_: str, torch: str) -> tuple[float, float]:
        slower = moved if late(torch) else 1.0
        return 2e-3 * slower, 1e-3 * slower

    records = grid(seconds)
    (step,) = steps_of(records, tau=0.05)
    assert all(step.sides[side].moved for side in SIDES)
    tomorrow = [
        replace(record, recorded_at=f"2026-11-24{record.recorded_at[10:]}")
        if late(record.cell.torch)
        else record
        for record in records
    ]
    assert {record.recorded_at[:10] for record in records} != {"2026-11-24"}
    assert steps_of(tomorrow, tau=0.05) == []
    for before, after in zip(
        steps_of(records, tau=0.05, every=True), steps_of(tomorrow, tau=0.05, every=True),
        strict=True,
    ):  # fmt: skip
        for name, side in after.sides.items():
            was = before.sides[name]
            assert side.low <= was.low <= was.ratio == side.ratio <= was.high <= side.high
