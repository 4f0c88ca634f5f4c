"""A run looks at its machine once, and measures what no record made in the same way answers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ivhl.measure import runner
from ivhl.measure.runner import Run, run_cases
from ivhl.records import Failure, Machine, Observation
from ivhl.workload import Case, Variant
from tests.browser.synthetic import EMPTY_WORKLOAD, make_record

if TYPE_CHECKING:
    from pathlib import Path

    from ivhl.records import RunRecord

RECORD = make_record()
SEEN = (Observation(check="turbo", level="warning", seen="on"),)


def make_case(variant: str) -> Case:
    return Case(workload=EMPTY_WORKLOAD, size="small", variant=Variant(name=variant, call="m:f"))


CASES = (make_case("a"), make_case("b"))


def make_run(folder: Path, **changes: Any) -> Run:  # noqa: ANN401
    run = Run(
        project="demo",
        commit=RECORD.commit,
        workloads="m:W",
        cell=RECORD.cell,
        machine=Machine(name="m", cpu="c", n_cpus=1, memory_bytes=1 << 30, system="s"),
        results=str(folder / "results"),
        scratch=str(folder / "scratch"),
        repeat="again",
    )
    return replace(run, **changes)


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of what a run does; nothing is measured."""
    steps: list[str] = []

    def look(device: str) -> tuple[Observation, ...]:
        steps.append(f"look at {device}")
        return SEEN

    def make_seed(*_: object) -> object:
        steps.append("seed")
        return object()

    def measure(
        run: Run, case: Case, _seed: object, _launcher: object, seen: tuple[Observation, ...]
    ) -> RunRecord:
        steps.append(case.variant.name)
        failed = Failure(
            phase="compile", failure_class="support_gate", exception="", message="", where="",
            output_tail="",
        )  # fmt: skip
        return runner.make_record(run, case, {}, failed, duration_s=1.0, load=0.5, stability=seen)

    monkeypatch.setattr(runner, "observe", look)
    monkeypatch.setattr(runner, "make_seed", make_seed)
    monkeypatch.setattr(runner, "measure_case", measure)
    return steps


def records_of(run: Run, cases: tuple[Case, ...] = CASES) -> list[RunRecord]:
    """Run the cases and return the records that were made."""
    made: list[RunRecord] = []
    run_cases(run, cases, lambda _step, _case, record: made.append(record) if record else None)
    return made


def test_every_record_of_a_run_says_how_steady_its_machine_was(
    tmp_path: Path, done: list[str]
) -> None:
    records = records_of(make_run(tmp_path))
    assert [record.conditions.stability for record in records] == [SEEN, SEEN]
    assert done == ["look at cpu", "seed", "a", "b"]


IMAGE, OTHER = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"


@pytest.mark.usefixtures("done")
@pytest.mark.parametrize("made", [None, IMAGE])
@pytest.mark.parametrize("asked", [None, IMAGE, OTHER])
def test_a_record_answers_only_for_a_run_of_the_same_image(
    tmp_path: Path, made: str | None, asked: str | None
) -> None:
    run = make_run(tmp_path, image=made)
    first = records_of(run)
    assert [record.conditions.image for record in first] == [made, made]
    again = records_of(replace(run, image=asked))
    assert len(again) == (0 if asked == made else 2)
    # The newest is the one that is shown, so an older one answers for nothing.
    assert len(records_of(run)) == len(again)


@pytest.mark.usefixtures("done")
def test_a_quick_run_is_answered_by_a_full_one_of_the_same_image_only(tmp_path: Path) -> None:
    records_of(make_run(tmp_path, image=IMAGE))
    assert records_of(make_run(tmp_path, image=IMAGE, quick=True)) == []
    assert len(records_of(make_run(tmp_path, image=OTHER, quick=True))) == 2


def test_a_run_that_has_nothing_to_do_does_not_look(tmp_path: Path, done: list[str]) -> None:
    records_of(make_run(tmp_path))
    done.clear()
    assert records_of(make_run(tmp_path)) == []
    assert done == []
