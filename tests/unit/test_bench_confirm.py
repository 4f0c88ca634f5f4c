"""Only new runs, in turns, decide whether a suspect is real; and they stop when they suffice."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from ivhl.bench.confirm import (
    Confirmed,
    confirm,
    confirmed_only,
    judge_rounds,
    suspects_on,
)
from ivhl.bench.experiment import Runs
from ivhl.bench.experiment.evidence import (
    CONFIRMS,
    PROCESSES_PER_RUN,
    REFUTES,
    ROUNDS,
    Evidence,
    evidence_of,
    weigh,
)
from ivhl.bench.request import Done, Request
from ivhl.cli import app
from ivhl.records.files import append_record, record_file
from ivhl.records.record import Arm, Calibration, Counted
from ivhl.tracker.changes.gate import judge
from tests.builders.fleet import a_record, commit, make_fleet_project, write_records
from tests.builders.records import Known, make_failure, make_record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ivhl.records.record import RunRecord

BASE, HEAD = "a" * 40, "b" * 40
CASE = "ops.gp_evolve/small/naive-compiled"
CELL = "3.12", "2.6.0"
FIXED = Calibration(compute_s=(5e-5,), memory_s=(6e-4,))


def timed(
    eager_s: float,
    compiled_s: float,
    medians: Sequence[float] = (0.0,),
    machine: Sequence[float] = (0.0,),
) -> RunRecord:
    """Return a record of a run.

    Each process has its logarithm of the compiled seconds, and one of what the machine did to both.
    """
    each, slow = (
        (*m, *(0.0,) * PROCESSES_PER_RUN)[:PROCESSES_PER_RUN] for m in (medians, machine)
    )
    record = make_record(speedup=eager_s / compiled_s, width=0.001, calibration=FIXED)
    return replace(
        record,
        rounds=(2,) * PROCESSES_PER_RUN,
        eager=Arm(calls=1, samples_s=tuple(eager_s * math.exp(x) for x in slow for _ in range(2))),
        compiled=Arm(
            calls=1,
            samples_s=tuple(
                compiled_s * math.exp(m + x)
                for m, x in zip(each, slow, strict=True)
                for _ in range(2)
            ),
        ),
    )


@dataclass
class Bench:
    """Stands in for ``ivhl.bench.main.bench``: writes records whose times are drawn.

    Attributes:
        slower: Factor of the head's compiled seconds, by case name.
        sigma: Standard deviation of a run's logarithm.
        of_processes: Standard deviation of that of a process, beside it.
        of_machine: Standard deviation of what the machine does to two processes that take turns.
    """

    results: Path
    slower: dict[str, float]
    sigma: float = 0.003
    of_processes: float = 0.01
    of_machine: float = 0.1
    seed: int = 0
    measured: list[tuple[str, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin the clock and the draws."""
        self._draw = random.Random(self.seed)  # noqa: S311  (noise)
        self._clock = 0

    def __call__(self, request: Request, _: Console) -> None:
        """Write a record of each commit per case."""
        self.measured.append(request.selection.cases)
        assert (request.base, request.commit, request.effort.force) == (BASE, HEAD, True)
        for case in request.selection.cases:
            machine = [self._draw.gauss(0, self.of_machine) for _ in range(PROCESSES_PER_RUN)]
            for which in (BASE, HEAD):
                self._write(case, which, machine)

    def _write(self, case: str, commit: str, machine: list[float]) -> None:
        workload, size, variant = case.split("/")
        factor = self.slower[case] if commit == HEAD else 1.0
        drawn = factor * math.exp(self._draw.gauss(0, self.sigma))
        medians = [self._draw.gauss(0, self.of_processes) for _ in range(PROCESSES_PER_RUN)]
        record = timed(2e-3, 1e-3 * drawn, medians, machine)
        self._clock += 1
        minutes, seconds = divmod(self._clock, 60)
        when = f"2026-12-01T{minutes // 60:02}:{minutes % 60:02}:{seconds:02}+00:00"
        append_record(
            record_file(self.results, "bench", commit, record.cell.id),
            replace(
                record,
                commit=commit,
                recorded_at=when,
                workload=workload,
                size=size,
                variant=variant,
            ),
        )


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    make_fleet_project(folder)
    return folder


def run(root: Path, bench: Bench, printed: StringIO | None = None) -> dict[str, Confirmed]:
    request = Request(root=root, python="3.12", machine="bench", results=bench.results)
    runs = Runs(request, Console(file=printed or StringIO(), width=500), bench)
    found = confirm(runs, (BASE, HEAD), {CELL: tuple(bench.slower)})
    return {one.case: one for one in found}


def test_only_cases_in_doubt_are_measured_again(root: Path, tmp_path: Path) -> None:
    other = "ops.other/small/a"
    bench = Bench(tmp_path, {CASE: 2.0, other: 1.0}, of_processes=0.03)
    found = run(root, bench)
    assert found[CASE].verdict == "slower"
    assert bench.measured[0] == (CASE, other)
    assert bench.measured[-1] == (other,)
    assert found[CASE].rounds < found[other].rounds <= ROUNDS


def test_a_true_change_is_confirmed_and_no_change_is_not(root: Path, tmp_path: Path) -> None:
    verdicts = []
    for factor in (1.05, 1.0):
        found = [
            run(root, Bench(tmp_path / f"{factor}-{n}", {CASE: factor}, seed=n))[CASE]
            for n in range(40)
        ]
        verdicts.append(Counter(one.verdict for one in found))
    assert verdicts[0]["slower"] >= 38
    assert verdicts[1]["slower"] == 0
    assert verdicts[1]["unchanged"] >= 36


def test_a_case_that_was_not_measured_is_undecided_and_named(root: Path, tmp_path: Path) -> None:
    printed = StringIO()

    def nothing(request: Request, _: Console) -> Done:
        return Done(
            commit=request.commit, machine="bench", cells=(), cases=(CASE,),
            missing=(f"py3.12-torch2.6.0: {CASE}",), log=tmp_path / "asv.log", seconds=1.0,
        )  # fmt: skip

    request = Request(root=root, python="3.12", machine="bench", results=tmp_path)
    runs = Runs(request, Console(file=printed, width=500), nothing)
    assert confirm(runs, (BASE, HEAD), {CELL: [CASE]}) == [
        Confirmed("py3.12-torch2.6.0", CASE, "inconclusive", 0, "no record of both commits")
    ]
    assert "warning: 1 case without a record: py3.12-torch2.6.0" in printed.getvalue()
    assert not (tmp_path / "confirmations.jsonl").exists()


def test_what_it_costs_is_printed_first_and_after_each_round_what_is_settled(
    root: Path, tmp_path: Path
) -> None:
    other = "ops.other/small/a"
    bench = Bench(tmp_path, {CASE: 2.0, other: 1.0}, of_processes=0.03)
    run(root, bench, printed := StringIO())
    lines = printed.getvalue().splitlines()
    assert lines[0] == (
        "py3.12-torch2.6.0: expected: 1 run of 2 cases, seldom more than 5; no record says what "
        "a run takes: the first one will"
    )
    told = [line for line in lines if "after round" in line]
    assert told[0] == "py3.12-torch2.6.0: after round 1, settled: 1 slower; 1 case open"
    assert len(told) == len(bench.measured)
    assert any(line.startswith(f"  slower: {CASE}: compiled 2.0") for line in lines)
    # Records of these rounds say what the next session takes.
    run(root, replace(bench, seed=3, measured=[]), printed := StringIO())
    assert "each by earlier records: " in printed.getvalue().splitlines()[0]


@pytest.mark.parametrize("written", [0, 1, 2, 3])
def test_a_session_that_was_killed_goes_on_and_pairs_no_runs_of_two_rounds(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    """Killed after so many records of the second round, in which two cases have two each."""
    cases = {f"ops.{name}/small/a": 1.0 for name in ("one", "two")}
    whole = run(root, Bench(tmp_path / "whole", dict(cases), of_processes=0.05, seed=5))
    assert {one.rounds for one in whole.values()} == {ROUNDS}  # noise keeps both open
    bench = Bench(tmp_path / "killed", dict(cases), of_processes=0.05, seed=5)
    write, left = bench._write, [4 + written]

    def dies(*arguments: Any) -> None:  # noqa: ANN401
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        write(*arguments)

    bench._write = dies  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyboardInterrupt):
        run(root, bench)
    bench._write = write  # type: ignore[method-assign]
    again = len(bench.measured)
    pairs: list[tuple[RunRecord, RunRecord]] = []

    def judged(key: tuple[str, str], rounds: list[tuple[RunRecord, RunRecord]]) -> Confirmed:
        pairs.extend(rounds)
        return judge_rounds(key, rounds)

    monkeypatch.setattr("ivhl.bench.confirm.judge_rounds", judged)
    found = run(root, bench, printed := StringIO())
    assert "goes on in round 2: " in printed.getvalue()
    # Of the round that was cut off, what it lacks.
    assert bench.measured[again] == tuple(list(cases)[written // 2 :])
    assert all(one.rounds > 2 for one in found.values())
    assert len(bench.measured) <= again + 4
    # The head of a pair is the record after its base: both are of one run.
    for base, head in pairs:
        times = [datetime.fromisoformat(one.recorded_at) for one in (base, head)]
        assert (times[1] - times[0]).total_seconds() == 1
        assert (base.commit, head.commit) == (BASE, HEAD)
    assert [*root.glob(".asv/confirm/*")] == []


def test_runs_of_the_base_and_the_head_swapped_are_another_session(
    root: Path, tmp_path: Path
) -> None:
    """It must measure anew: what was a slowdown would be a speedup."""
    request = Request(root=root, python="3.12", machine="bench", results=tmp_path)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    runs = Runs(request, Console(file=StringIO()), killed)
    with pytest.raises(KeyboardInterrupt):
        confirm(runs, (BASE, HEAD), {CELL: [CASE]})
    with pytest.raises(KeyboardInterrupt):
        confirm(runs, (HEAD, BASE), {CELL: [CASE]})
    names = {path.name for path in root.glob(".asv/confirm/*.jsonl")}
    assert len(names) == 2
    for path in root.glob(".asv/confirm/*.jsonl"):
        path.unlink()


def test_earlier_runs_do_not_count(root: Path, tmp_path: Path) -> None:
    before = Bench(tmp_path, {CASE: 3.0})
    run(root, before)
    bench = Bench(tmp_path, {CASE: 1.0}, sigma=0.001)
    bench._clock = 5000
    assert run(root, bench)[CASE].verdict in {"unchanged", "inconclusive"}


def test_five_looks_together_keep_the_level() -> None:
    draw = random.Random(1)  # noqa: S311
    n, wrong = 40_000, Counter[float]()
    for _ in range(n):
        total, most = 0.0, 0.0
        for look in range(1, ROUNDS + 1):
            total += draw.gauss(0, 1)
            most = max(most, total / math.sqrt(look))
        wrong.update(limit for limit in (CONFIRMS, REFUTES) if most > limit)
    assert wrong[CONFIRMS] / n == pytest.approx(0.0005, abs=0.0003)
    assert wrong[REFUTES] / n == pytest.approx(0.06, abs=0.01)


@pytest.mark.parametrize(("change", "expected"), [(0.0, "unchanged"), (math.log(1.05), "slower")])
def test_noise_with_heavy_tails_confirms_nothing_and_hides_no_five_percent(
    change: float, expected: str
) -> None:
    draw = random.Random(2)  # noqa: S311
    verdicts: Counter[str] = Counter()
    for _ in range(1000):
        rounds: list[list[float]] = []
        said = "inconclusive"
        while said == "inconclusive" and len(rounds) < ROUNDS:
            common = change + draw.gauss(0, 0.004)
            # One pair in ten has something else beside it, as was seen on a loaded machine.
            sizes = (0.06 if draw.random() < 0.1 else 0.012 for _ in range(PROCESSES_PER_RUN))
            rounds.append([common + draw.gauss(0, size) for size in sizes])
            said = evidence_of("compiled", rounds).verdict
        verdicts[said] += 1
    wrong = {"slower", "faster", "unchanged"} - {expected}
    assert verdicts[expected] >= 950
    assert sum(verdicts[one] for one in wrong) <= 2


def test_a_faster_eager_is_not_confirmed_as_a_regression() -> None:
    pairs = [(timed(2e-3, 1e-3), timed(1e-3, 1e-3))] * 5
    found = judge_rounds(("cell", CASE), pairs)
    assert found.verdict == "unchanged"
    assert "speedup 0.50x" in found.text
    both = [(timed(2e-3, 1e-3), timed(4e-3, 2e-3))] * 5
    assert judge_rounds(("cell", CASE), both).verdict == "slower"


def test_facts_and_failures_decide_at_once() -> None:
    base = timed(2e-3, 1e-3)
    facts = base.compile
    assert facts is not None
    breaks = (*facts.graph_breaks, Counted(text="Tensor.item", count=1))
    head = replace(base, compile=replace(facts, graph_breaks=breaks))
    found = judge_rounds(("cell", CASE), [(base, head)])
    assert (found.verdict, found.rounds) == ("degraded", 1)
    assert "Tensor.item" in found.text
    failed = make_failure("wrong", "off")
    for pairs, verdict in (
        ([(base, failed)], "fails"),
        ([(failed, base)], "fixed"),
        ([(failed, failed)], "inconclusive"),
        ([(base, failed), (base, base)], "inconclusive"),  # not always
    ):
        assert judge_rounds(("cell", CASE), pairs).verdict == verdict


def test_more_rounds_narrow_the_evidence() -> None:
    pair = (timed(2e-3, 1e-3), timed(2e-3, 1e-3))
    widths = [width([pair] * n) for n in (1, 3, 5)]
    assert widths == sorted(widths, reverse=True)
    assert weigh([(pair[0], make_failure())], "compiled") is None


def test_processes_and_rounds_that_differ_widen_the_evidence() -> None:
    same, apart = timed(2e-3, 1e-3), timed(2e-3, 1e-3, (0.1, -0.1) * 2)
    assert width([(same, apart)]) > 3 * width([(same, same)])
    slower = timed(2e-3, 1.05e-3)
    assert width([(same, slower), (slower, same)]) > 3 * width([(same, same)] * 2)


def test_the_noise_of_the_calibration_is_in_no_evidence() -> None:
    pair = (timed(2e-3, 1e-3), timed(2e-3, 1e-3))
    slow = Calibration(compute_s=(1e-4,), memory_s=(6e-4,))
    assert weigh([(pair[0], replace(pair[1], calibration=slow))], "compiled") == weigh(
        [pair], "compiled"
    )


def test_eager_noise_does_not_keep_a_case_open_whose_compiled_seconds_stayed() -> None:
    pairs = [(timed(2e-3, 1e-3), timed(e, 1e-3)) for e in (2.2e-3, 1.8e-3, 2.1e-3)]
    found = judge_rounds(("cell", CASE), pairs)
    assert found.verdict == "unchanged"
    assert found.text.startswith("compiled 1.00x [0.9")


@pytest.mark.parametrize(
    ("ratio", "low", "high", "verdict"),
    [
        (1.05, 1.02, 1.08, "slower"),
        (0.95, 0.92, 0.98, "faster"),
        (1.02, 1.01, 1.029, "unchanged"),  # significant, and too small to act on
        (1.025, 1.005, 1.045, "inconclusive"),  # a change of 4 % is not ruled out
        (1.0, 0.96, 1.04, "inconclusive"),
    ],
)
def test_only_an_interval_without_a_relevant_change_refutes(
    ratio: float, low: float, high: float, verdict: str
) -> None:
    assert Evidence("compiled", ratio, low, high, 2, (low, high)).verdict == verdict


def test_less_is_needed_to_refute_than_to_confirm_and_the_interval_that_decides_is_shown() -> None:
    found = Evidence("compiled", 1.0, 0.96, 1.04, 2, (0.98, 1.02))
    assert (found.verdict, str(found)) == ("unchanged", "compiled 1.00x [0.98, 1.02]")
    moved = Evidence("compiled", 1.06, 0.99, 1.13, 2, (1.02, 1.1))
    assert (moved.verdict, str(moved)) == ("inconclusive", "compiled 1.06x [0.99, 1.13]")


def width(pairs: list[tuple[RunRecord, RunRecord]]) -> float:
    found = weigh(pairs, "compiled")
    assert found is not None
    return math.log(found.high / found.low)


@pytest.mark.parametrize(
    ("said", "kind"),
    [("slower", "slower"), ("unchanged", "unchanged"), ("inconclusive", "inconclusive")],
)
def test_the_gate_drops_what_is_not_confirmed(said: Any, kind: str) -> None:  # noqa: ANN401
    records = [
        replace(make_record(speedup=speed, workload=name), commit=commit)
        for name in ("ops.a", "ops.b")
        for commit, speed in ((BASE, 2.0), (HEAD, 1.0))
    ]
    verdict = judge(records, {BASE}, {HEAD}, spreads=Known(0.01))
    assert suspects_on("bench", verdict) == {
        ("3.12", "2.6.0"): ("ops.a/small/naive-compiled", "ops.b/small/naive-compiled")
    }
    cell = records[0].cell.id
    outcome = Confirmed(cell, "ops.a/small/naive-compiled", said, 5, "compiled 1.0x")
    kinds = {
        one.case.workload: one.kind for one in confirmed_only(verdict, "bench", [outcome]).findings
    }
    assert kinds == {"ops.a": kind, "ops.b": "slower"}
    assert suspects_on("elsewhere", verdict) == {}


def test_a_run_that_failed_clears_nobody() -> None:
    records = [
        replace(make_record(speedup=speed), commit=commit)
        for commit, speed in ((BASE, 2.0), (HEAD, 1.0))
    ]
    verdict = judge(records, {BASE}, {HEAD}, spreads=Known(0.01))
    (suspect,) = verdict.findings
    outcome = Confirmed(
        suspect.case.cell, suspect.case.name, "inconclusive", 0, "no record of both commits"
    )
    (finding,) = confirmed_only(verdict, "bench", [outcome]).findings
    assert finding.kind == suspect.kind == "slower"
    assert finding.reason.startswith(
        "inconclusive in 0 rounds: no record of both commits; before: "
    )


def test_what_noise_may_hide_is_measured_again() -> None:
    records = [
        replace(make_record(speedup=speed, workload=name), commit=commit)
        for name, now in (("ops.worse", 1.6), ("ops.same", 1.95), ("ops.better", 2.6))
        for commit, speed in ((BASE, 2.0), (HEAD, now))
    ]
    verdict = judge(records, {BASE}, {HEAD}, spreads=Known(0.2))
    assert {one.kind for one in verdict.findings} == {"inconclusive"}
    case = "ops.worse/small/naive-compiled"
    assert suspects_on("bench", verdict) == {("3.12", "2.6.0"): (case,)}
    outcome = Confirmed(records[0].cell.id, case, "slower", 1, "compiled 1.25x")
    (slower, *others) = confirmed_only(verdict, "bench", [outcome]).findings
    assert (slower.case.name, slower.kind) == (case, "slower")
    assert {one.kind for one in others} == {"inconclusive"}


@pytest.mark.parametrize(
    ("later", "now", "suspected"),
    [("12:20", 1.88, True), ("12:20", 1.95, False), ("15:00", 1.88, False), ("15:00", 1.7, True)],
)
def test_less_is_measured_again_where_both_runs_are_of_one_hour(
    *, later: str, now: float, suspected: bool
) -> None:
    records = [
        replace(make_record(speedup=speed), commit=commit, recorded_at=f"2026-11-01T{at}:00+00:00")
        for commit, speed, at in ((BASE, 2.0, "12:00"), (HEAD, now, later))
    ]
    verdict = judge(records, {BASE}, {HEAD}, spreads=Known(0.2))
    assert bool(suspects_on("bench", verdict)) == suspected


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ([], {("3.12", "2.6.0"): ("ops.one/small/a",)}),
        (["--workload", "ops.two"], {("3.12", "2.6.0"): ("ops.two/small/a",)}),
        (["--workload", "ops.two", "--torch", "2.5"], {}),
    ],
)
def test_suspects_of_the_gate_are_confirmed_or_all_cases_of_a_named_workload(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    asked: dict[tuple[str, str], tuple[str, ...]],
) -> None:
    make_fleet_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    was = [a_record(tmp_path), a_record(tmp_path, workload="ops.two")]
    (tmp_path / "code.py").write_text("new")
    commit(tmp_path, "next")
    now = [
        a_record(tmp_path, minute=5, failure=make_failure("wrong").failure, speedup=None),
        a_record(tmp_path, minute=5, workload="ops.two"),
    ]
    write_records(tmp_path / "results", *was, *now)
    found: list[object] = []

    def confirmed(runs: Runs, _: object, cells: object, rounds: int) -> list[Confirmed]:
        found.append((runs.request.machine, cells, rounds))
        return []

    monkeypatch.setattr("ivhl.bench.confirm.confirm", confirmed)
    words = ["gate", "--base", "HEAD~1", "--machine", "box", "--confirm", "--rounds", "2"]
    CliRunner().invoke(app, [*words, *options])
    assert found == [("box", asked, 2)]
