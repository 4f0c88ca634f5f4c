"""A search finds what changed a case within its error, its cost, and what can be measured."""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from io import StringIO
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from ivhl.bench.bisection.bisect import bisect
from ivhl.bench.bisection.cost import Expected, announce
from ivhl.bench.bisection.question import (
    Position,
    Question,
    lacking_releases,
    log_of_search,
    seen_in,
)
from ivhl.bench.experiment import Runs
from ivhl.bench.experiment.estimate import AROUND_S
from ivhl.bench.experiment.evidence import PROCESSES_PER_ROUND, PROCESSES_PER_RUN, ROUNDS
from ivhl.bench.request import Request
from ivhl.cli import app
from ivhl.cli.bisection import _as_dict
from ivhl.errors import IvhlError, LockError, ResultsError, SpecError
from ivhl.measure.effort import Effort
from ivhl.records.files import append_record, record_file
from ivhl.records.record import Arm, Calibration, Counted
from ivhl.tracker.causes.culprit import Rates, blend, chance_of, find_gaps, next_place, simulate
from ivhl.tracker.store.spread import kind_of, shipped
from studies.schemas import SCHEMAS
from tests.builders.fleet import WORKLOADS, make_fleet_project
from tests.builders.project import git, make_commits
from tests.builders.records import make_failure, make_record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ivhl.bench.bisection.question import Culprit, Sought
    from ivhl.records.record import FailureClass, RunRecord

N = 64
CASE = "ops.gp_evolve/small/naive-compiled"
FIXED = Calibration(compute_s=(5e-5,), memory_s=(6e-4,))


def timed(compiled_s: float, draw: random.Random, sigma: float) -> RunRecord:
    """Return a run whose processes differ by ``sigma``."""
    logs = [draw.gauss(0, sigma) for _ in range(PROCESSES_PER_ROUND)]
    return replace(
        make_record(width=0.001, calibration=FIXED),
        rounds=(2,) * PROCESSES_PER_ROUND,
        eager=Arm(calls=1, samples_s=(2e-3,) * 2 * PROCESSES_PER_ROUND),
        compiled=Arm(
            calls=1, samples_s=tuple(compiled_s * math.exp(x) for x in logs for _ in range(2))
        ),
    )


@dataclass
class Bench:
    """Stands in for ``ivhl.bench.main.bench``: writes the record that ``make`` returns.

    Attributes:
        make: Index of the commit to its record, or to an error.
        code: Index of the commit to the hash of what its case reaches; ``None`` has none.
    """

    root: Path
    make: Callable[[int], RunRecord | IvhlError]
    code: Callable[[int], str | None] = lambda _: None
    dies_after: float = math.inf
    runs: list[int] = field(default_factory=list)
    calls: list[tuple[int, ...]] = field(default_factory=list)
    known: dict[str, RunRecord] = field(default_factory=dict)

    def __call__(self, request: Request, _: Console) -> None:
        """Write a record of each commit, unless its code was measured and nobody forces it."""
        commits = [name for name in (request.base, request.commit) if name is not None]
        for name in commits:
            self._write(name, request)
        self.calls.append(tuple(int(name, 16) for name in commits))

    def _write(self, commit: str, request: Request) -> None:
        number = int(commit, 16)
        name = self.code(number)
        sources = name and hashlib.sha256(name.encode()).hexdigest()
        copied = self.known.get(sources or "") if not request.effort.force else None
        if copied is None:
            if len(self.runs) >= self.dies_after:
                raise KeyboardInterrupt
            self.runs.append(number)
        made = self.make(number) if copied is None else replace(copied, same_as=copied.commit)
        if isinstance(made, IvhlError):
            raise made
        minutes, seconds = divmod(len(self.runs), 60)
        at = f"2026-11-20T{12 + minutes // 60:02}:{minutes % 60:02}:{seconds:02}+00:00"
        record = replace(made, commit=commit, sources=sources)
        if copied is None:
            record = replace(record, recorded_at=at)
            if sources:
                self.known.setdefault(sources, record)
        path = record_file(self.root / "results", "bench", commit, record.cell.id)
        append_record(path, record)


def question(sought: Sought = "slowdown", n: int = N, error: float = 0.05) -> Question:
    names = [f"{number:040x}" for number in range(n + 1)]
    return Question(
        positions=tuple(Position(name, f"commit {int(name, 16)}", name, "2.6.0") for name in names),
        along="commit", python="3.12", case=CASE, sought=sought,
        metric="cold" if sought == "compile-time" else "compiled", effect=1.05, error=error,
    )  # fmt: skip


def search(bench: Bench, asked: Question, printed: StringIO | None = None) -> Culprit:
    request = Request(root=bench.root, python="3.12", machine="bench", effort=Effort())
    console = Console(file=printed or StringIO(), width=400)
    return bisected(asked, request, console, bench)


def bisected(
    asked: Question,
    request: Request,
    console: Console,
    measure: Callable[[Request, Console], None],
) -> Culprit:
    """Search with what measures in place of ``bench``."""
    with patch("ivhl.bench.bisection.bisect.Runs", partial(Runs, measure=measure)):
        return bisect(asked, request, results=request.root / "results", console=console)


def slower_from(
    truth: int, factor: float, seed: int = 0, sigma: float = 0.01
) -> Callable[[int], RunRecord]:
    draw = random.Random(seed)  # noqa: S311

    def make(number: int) -> RunRecord:
        return timed((1e-3 if number < truth else factor * 1e-3), draw, sigma)

    return make


def fails_from(truth: int) -> Callable[[int], RunRecord]:
    return lambda number: make_failure("crash", "gone") if number >= truth else make_record()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, N), st.sampled_from([math.inf, 8.0, 3.0]), st.integers(0, 10**6))
def test_each_place_can_be_found_and_a_search_without_noise_asks_log2_of_them(
    truth: int, strength: float, seed: int
) -> None:
    found = simulate(N, 0.05, strength, truth, random.Random(seed))  # noqa: S311
    assert found.found.after - found.found.before == 1
    if math.isinf(strength):
        assert found.found.after == truth
        assert found.answers <= math.log2(N) + 1


@pytest.mark.parametrize("strength", [4.0, 2.0])
def test_noisy_searches_are_wrong_no_more_often_than_stated(strength: float) -> None:
    draw, error, n = random.Random(7), 0.1, 150  # noqa: S311
    wrong = 0
    for _ in range(n):
        truth = draw.randint(1, N)
        wrong += simulate(N, error, strength, truth, draw).found.after != truth
    assert wrong <= error * n


@settings(deadline=None)
@given(
    st.lists(st.floats(-50, 50), min_size=1, max_size=12),
    st.data(),
)
def test_gaps_are_a_distribution_and_without_skipped_places(
    values: list[float], data: st.DataObject
) -> None:
    inner = list(range(1, len(values) + 1))
    skipped = data.draw(st.sets(st.sampled_from(inner)))
    evidence = dict(zip(inner, values, strict=True))
    gaps = find_gaps([1 / (len(values) + 1)] * (len(values) + 1), evidence, skipped)
    assert sum(gap.probability for gap in gaps) == pytest.approx(1)
    assert [gap.before for gap in gaps[1:]] == [gap.after for gap in gaps[:-1]]
    ends = {end for gap in gaps for end in gap[:2]}
    assert ends == set(range(len(values) + 2)) - skipped
    assert next_place(gaps) in ends - {0, len(values) + 1} or len(gaps) == 1


def test_nothing_changed_between_places_with_the_same_code() -> None:
    gaps = find_gaps([0.25] * 4, {}, alike=[(3, 1)])
    assert [round(gap.probability, 3) for gap in gaps] == [0.5, 0, 0, 0.5]


def test_earlier_records_cannot_decide() -> None:
    prior = blend([0.25] * 4, {1: -4, 2: -4, 3: -4})
    assert sum(prior) == pytest.approx(1)
    assert max(prior) < 0.65
    assert find_gaps(prior, {1: 6.0})[0].probability > 0.9


@pytest.mark.parametrize("truth", [1, 23])
def test_a_planted_slowdown_among_64_commits_is_found(tmp_path: Path, truth: int) -> None:
    bench = Bench(tmp_path, slower_from(truth, 1.3))
    found = search(bench, question())
    assert (int(found.before.name, 16), int(found.after.name, 16)) == (truth - 1, truth)
    assert found.probability >= 0.95
    assert found.evidence.startswith(("compiled 1.29x", "compiled 1.3"))
    assert "eager 1.00x" in found.evidence
    assert found.notes == ()
    # Both ends; six questions, the first with the place by itself; one more; both sides again.
    assert len(bench.calls) == found.runs <= 1 + 1 + 6 + 3
    assert sum(len(call) == 1 for call in bench.calls) == 1
    # What is compared was measured in one run.
    assert sum(len(call) == 2 for call in bench.calls) >= 6
    assert all(call[0] != call[-1] for call in bench.calls if len(call) == 2)


def test_small_slowdowns_take_more_answers_and_are_found_within_the_error(tmp_path: Path) -> None:
    outcomes = []
    for seed in range(3):
        truth = 20 * seed + 3
        bench = Bench(tmp_path / str(seed), slower_from(truth, 1.1, seed, sigma=0.04))
        found = search(bench, question())
        outcomes.append((int(found.after.name, 16) == truth, found.answers))
    assert all(right for right, _ in outcomes)
    assert sum(answers for _, answers in outcomes) > 3 * 6


@pytest.mark.parametrize("truth", [40, 64])
def test_a_failure_is_found_with_one_run_for_each_question(tmp_path: Path, truth: int) -> None:
    bench = Bench(tmp_path, fails_from(truth))
    found = search(bench, question("failure"))
    assert int(found.after.name, 16) == truth
    assert "works, 2.00x -> crash: gone" in found.evidence
    assert len(bench.runs) <= 4 + 6 + 2


def test_a_graph_break_and_a_wrong_result_are_found(tmp_path: Path) -> None:
    whole = make_record()
    assert whole.compile is not None
    broken = replace(
        whole, compile=replace(whole.compile, graph_breaks=(Counted(text="item", count=2),))
    )
    found = search(
        Bench(tmp_path / "a", lambda n: broken if n >= 9 else whole), question("graph-break")
    )
    assert int(found.after.name, 16) == 9
    assert "2 graph breaks" in found.evidence
    wrong = make_failure("wrong", "off by 0.1")
    found = search(Bench(tmp_path / "b", lambda n: wrong if n >= 9 else whole), question("wrong"))
    assert int(found.after.name, 16) == 9
    mended = search(Bench(tmp_path / "c", lambda n: whole if n >= 9 else wrong), question("wrong"))
    assert mended.evidence.startswith("wrong: off by 0.1 -> works")


def test_a_second_graph_break_is_told(tmp_path: Path) -> None:
    whole = make_record()

    def make(number: int) -> RunRecord:
        assert whole.compile is not None
        breaks = (Counted(text="item", count=(number >= 3) + 2 * (number >= 8)),)
        return replace(whole, compile=replace(whole.compile, graph_breaks=breaks))

    found = search(Bench(tmp_path / "a", make), question("graph-break"))
    assert int(found.after.name, 16) == 3
    rest = "search the rest before and after it"
    assert found.notes == (f"this is 1 of the 3 that the ends differ by: {rest}",)
    assert search(Bench(tmp_path / "b", make), question("graph-break", n=5)).notes == ()


def test_compile_time_is_measured_without_the_compile_cache(tmp_path: Path) -> None:
    facts = make_record().compile
    assert facts is not None
    asked: list[bool] = []

    def make(number: int) -> RunRecord:
        cold = 6.0 if number < 30 else 9.0
        return replace(make_record(), compile=replace(facts, cold_cpu_s=cold))

    bench = Bench(tmp_path, make)

    def measure(request: Request, console: Console) -> None:
        asked.append(request.effort.cold)
        bench(request, console)

    request = Request(root=tmp_path, python="3.12", machine="bench")
    found = bisected(question("compile-time"), request, Console(file=StringIO()), measure)
    assert int(found.after.name, 16) == 30
    assert all(asked)


def test_seconds_of_compiling_are_as_noisy_as_repeated_runs_have_shown(tmp_path: Path) -> None:
    asked = question("compile-time", n=1)
    with pytest.raises(SpecError):
        search(Bench(tmp_path, lambda _: make_record()), asked)
    request = Request(root=tmp_path, python="3.12", machine="bench")
    _, *lines = log_of_search(tmp_path, asked, request).read_text().splitlines()
    expected = shipped(kind_of(make_record()), "cold", calibrated=True).tau
    assert {json.loads(line)["noise"] for line in lines} == {expected}
    assert expected > 0.05
    assert asked.assumed_noise > 0.05 > question().assumed_noise


def test_places_that_cannot_be_measured_are_skipped_and_named(tmp_path: Path) -> None:
    def make(number: int) -> RunRecord | IvhlError:
        if number == 33:
            return make_failure("build", "no backend")
        if number in (32, 34):
            return LockError("no distribution")
        return slower_from(34, 1.3)(number)

    found = search(Bench(tmp_path, make), question())
    assert (int(found.before.name, 16), int(found.after.name, 16)) == (31, 35)
    assert [(int(p.name, 16), why) for p, why in found.between if "not asked" not in why] == [
        (32, "no distribution"), (33, "build: no backend"), (34, "no distribution")
    ]  # fmt: skip


def test_places_are_run_by_themselves_while_half_of_them_have_known_code(tmp_path: Path) -> None:
    def code(number: int) -> str:
        return f"late {number}" if number > 48 else "middle" if number > 16 else "early"

    bench = Bench(tmp_path, slower_from(60, 1.3), code=code)
    found = search(bench, question())
    assert int(found.after.name, 16) == 60
    # 32 is new; 48, in turns, has the code of 32.
    assert bench.calls[1:4] == [(32,), (0, 32), (0, 48)]


def test_what_is_left_is_told_by_records_of_others_and_by_the_runs_of_the_ends(
    tmp_path: Path,
) -> None:
    asked = Request(root=tmp_path, python="3.12", machine="bench")

    def told() -> str:
        printed = StringIO()
        announce(question(), asked, tmp_path / "results", Console(file=printed, width=300))
        return printed.getvalue()

    def lasting(number: int) -> RunRecord:
        return replace(slower_from(23, 1.3)(number), duration_s=10.0 * PROCESSES_PER_ROUND)

    assert "; no record says what a run takes: the first one will\n" in told()
    made = lasting(1)
    there = replace(made, machine=replace(made.machine, name="elsewhere"), commit="1" * 40)
    append_record(
        record_file(tmp_path / "results", "elsewhere", there.commit, there.cell.id), there
    )
    each = re.compile(r"of (\S+ s) each by records of elsewhere: ").search(told())
    assert each is not None
    printed = StringIO()
    search(Bench(tmp_path, lasting), question(), printed)
    # Once, and in the seconds of the record: what an environment takes to make is not in it.
    (line,) = [one for one in printed.getvalue().splitlines() if "by the first run" in one]
    told_left = rf"the ends differ; left: \d+ runs, .*of {each[1]} each by the first run: "
    assert re.match(told_left, line)


def test_a_place_that_fails_otherwise_is_skipped(tmp_path: Path) -> None:
    def make(number: int) -> RunRecord:
        return make_failure("import", "other") if number == 40 else fails_from(40)(number)

    found = search(Bench(tmp_path, make), question("failure"))
    assert (int(found.before.name, 16), int(found.after.name, 16)) == (39, 41)
    assert found.between[0][1] == "import: other"
    told = {"schema": "ivhl.bisection/1", **_as_dict(question("failure"), found, "ivhl bisect")}
    SCHEMAS["bisection"].validate_json(json.dumps(told))


def test_commits_with_the_same_code_are_not_measured(tmp_path: Path) -> None:
    bench = Bench(tmp_path, slower_from(41, 1.3), code=lambda n: "new" if n >= 41 else "old")
    found = search(bench, question())
    assert int(found.after.name, 16) == 41
    assert set(bench.runs) <= {0, N, 40, 41}


@pytest.mark.parametrize(
    "changed",
    [
        {"apart": "much"},
        {"apart": 0.1, "noise": 0.0},
        {"apart": 1e999, "noise": 0.1},
        {"apart": 0.1, "noise": 0.1, "beside": {"cold": [1]}},
        {"apart": 0.1, "noise": 0.1, "beside": {"love": [1, 1]}},
        {"place": 7},
        {"more": 1},
    ],
)
def test_an_answer_that_no_search_writes_is_named(
    tmp_path: Path, changed: dict[str, object]
) -> None:
    asked = question("compile-time", n=1)
    request = Request(root=tmp_path, python="3.12", machine="bench")
    log = log_of_search(tmp_path, asked, request)
    log.parent.mkdir(parents=True)
    line = {"place": asked.positions[1].name, "at": "now", "against": asked.positions[0].name}
    log.write_text(json.dumps(line | changed) + "\n")
    with pytest.raises(ResultsError, match=r"\.jsonl:1: no answer"):
        search(Bench(tmp_path, lambda _: make_record()), asked)


def test_an_answer_about_another_place_is_refused_with_the_file(tmp_path: Path) -> None:
    bench = Bench(tmp_path, fails_from(23))
    search(bench, question("failure"))
    (log,) = (tmp_path / ".asv" / "bisect").glob("*.jsonl")
    head, *answers = log.read_text().splitlines()
    lines = [json.dumps(json.loads(line) | {"place": "elsewhere"}) for line in answers]
    log.write_text("\n".join([head, *lines, ""]))
    with pytest.raises(SpecError, match="an answer names 'elsewhere', which is not between"):
        search(bench, question("failure"))


def test_a_journal_from_before_is_refused_by_name_and_kept(tmp_path: Path) -> None:
    bench = Bench(tmp_path, fails_from(23))
    search(bench, question("failure"))
    (log,) = (tmp_path / ".asv" / "bisect").glob("*.jsonl")
    head, *answers = log.read_text().splitlines()
    # An ivhl of before wrote no first line; a later one may mean something else by the others.
    for first in ([], [head.replace('"experiment": 1', '"experiment": 2')]):
        log.write_text(before := "\n".join([*first, *answers, ""]))
        with pytest.raises(SpecError, match=rf"{log.name}: is the journal of .* from before"):
            search(bench, question("failure"))
        assert log.read_text() == before


def test_a_search_that_was_killed_goes_on_and_asks_nothing_twice(tmp_path: Path) -> None:
    whole = Bench(tmp_path / "whole", slower_from(23, 1.3, seed=1))
    expected = search(whole, question())
    bench = Bench(tmp_path / "killed", slower_from(23, 1.3, seed=1), dies_after=9)
    printed = StringIO()
    with pytest.raises(KeyboardInterrupt):
        search(bench, question(), printed)
    last = printed.getvalue().splitlines()[-1]
    assert re.fullmatch(r"stopped after \d answers: the same command, .* goes on from there", last)
    bench.dies_after = math.inf
    printed = StringIO()
    found = search(bench, question(), printed)
    assert found.after == expected.after
    assert "goes on after" in printed.getvalue()
    # The round in which it was killed is repeated.
    assert len(bench.runs) <= len(whole.runs) + 2


def test_records_between_the_ends_point_to_where_it_looks_first(tmp_path: Path) -> None:
    bench = Bench(tmp_path, slower_from(23, 1.3, seed=1))
    asked = question()
    request = Request(root=tmp_path, python="3.12", machine="bench")
    bench(replace(request, commit=asked.positions[32].name), Console(quiet=True))
    search(bench, asked, printed := StringIO())
    assert "looks first where 1 record points\n" in printed.getvalue()


def test_stored_records_answer_for_what_has_no_noise(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    make_fleet_project(root)
    bench = Bench(root, fails_from(40))
    lock = (root / "envs" / "locks" / "py3.12-torch2.6.0.txt").read_bytes()
    sha = hashlib.sha256(lock).hexdigest()
    made = bench.make

    def locked(number: int) -> RunRecord:
        record = made(number)
        assert not isinstance(record, IvhlError)
        return replace(record, cell=replace(record.cell, lock_sha256=sha))

    bench.make = locked
    search(bench, question("failure"))
    log_of_search(
        root, question("failure"), Request(root=root, python="3.12", machine="bench")
    ).unlink()
    before = len(bench.runs)
    again = search(bench, question("failure"))
    assert int(again.after.name, 16) == 40
    # Both ends twice, and each side of the culprit once more.
    assert len(bench.runs) - before <= 6


def test_a_case_of_another_precision_than_before_has_its_newest_record(tmp_path: Path) -> None:
    search(Bench(tmp_path, fails_from(41)), question("failure"))
    double = Bench(tmp_path, lambda n: replace(fails_from(9)(n), dtype="float64"), runs=[0] * 900)
    assert int(search(double, replace(question("failure"), tree="other")).after.name, 16) == 9


def test_a_flaky_case_is_looked_at_more_often_where_its_ends_were_alike(tmp_path: Path) -> None:
    fails = iter([False] * 6 + [True] * 100)  # at the last place, where it is flaky

    def make(number: int) -> RunRecord:
        return make_failure("crash", "gone") if number == N and next(fails) else make_record()

    bench = Bench(tmp_path, make)
    for n_runs, rate in ((2, "78%"), (4, "53%"), (6, "39%")):
        with pytest.raises(
            SpecError, match=f"in {n_runs} runs each; what less than {rate}"
        ) as told:
            search(bench, question("failure"))
        assert "the same command again runs both ends twice more" in str(told.value.hint)
    assert len(bench.runs) == 12
    printed = StringIO()
    with suppress(SpecError):
        search(bench, question("failure"), printed)
    assert "works" in printed.getvalue()
    assert "crash" in printed.getvalue()


def test_an_answer_that_a_kill_cut_off_is_asked_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, fails_from(41), dies_after=6)
    asked = question("failure")
    with pytest.raises(KeyboardInterrupt):
        search(bench, asked)
    (log,) = tmp_path.glob(".asv/bisect/*.jsonl")
    log.write_bytes(log.read_bytes()[:-9])
    bench.dies_after = math.inf
    assert search(bench, asked).after == asked.positions[41]
    assert all(json.loads(line) for line in log.read_text().splitlines())


def test_ends_that_do_not_differ_are_refused_with_what_was_seen(tmp_path: Path) -> None:
    few = r"differ by less than --effect 1.05.*compiled (1\.0|0\.9)"
    with pytest.raises(SpecError, match=few) as refused:
        search(Bench(tmp_path / "a", slower_from(99, 1.0)), question())
    assert "another --side" in refused.value.hint
    with pytest.raises(SpecError, match=r"--for compile-time.*cold 1\.00x") as refused:
        search(Bench(tmp_path / "d", fails_from(99)), question("compile-time"))
    assert "--side" not in refused.value.hint
    with pytest.raises(SpecError, match=r"--for failure: works, 2\.00x at commit 0, and so at"):
        search(Bench(tmp_path / "b", fails_from(99)), question("failure"))
    with pytest.raises(SpecError, match=r"an end of the search: crash: gone"):
        search(Bench(tmp_path / "c", fails_from(30)), question())


@pytest.mark.parametrize("sought", ["wrong", "graph-break"])
@pytest.mark.parametrize("failed", ["environment", "build", "unavailable"])
def test_an_end_at_which_the_case_never_ran_is_refused(
    tmp_path: Path, sought: Sought, failed: FailureClass
) -> None:
    def make(number: int) -> RunRecord:
        return make_failure(failed, "gone") if number >= 41 else make_record()

    with pytest.raises(SpecError, match=f"an end of the search: {failed}: gone"):
        search(Bench(tmp_path / sought, make), question(sought))
    found = search(Bench(tmp_path / "failure", make), question("failure"))
    assert int(found.after.name, 16) == 41
    nowhere = Bench(tmp_path / "nowhere", lambda _: make_failure(failed, "gone"))
    with pytest.raises(SpecError, match="runs at neither end") as refused:
        search(nowhere, question("failure"))
    assert "flaky" not in refused.value.hint


def test_a_flaky_failure_is_found_and_its_rates_are_told(tmp_path: Path) -> None:
    runs: list[int] = []

    def make(number: int) -> RunRecord:
        runs.append(number)
        fails = number >= 20 and runs.count(number) % 4 != 2  # three of four
        return make_failure("crash", "gone") if fails else make_record()

    bench = Bench(tmp_path, make)
    found = search(bench, question("failure"))
    assert int(found.after.name, 16) == 20
    assert found.notes[0].startswith("flaky: 0 of 8 runs show it at commit 0")


def test_a_flaky_failure_that_was_mended_is_found_whatever_its_first_run_showed(
    tmp_path: Path,
) -> None:
    runs: list[int] = []

    def make(number: int) -> RunRecord:
        runs.append(number)
        fails = number < 20 and runs.count(number) % 4 != 1  # the first run of each works
        return make_failure("crash", "gone") if fails else make_record()

    found = search(Bench(tmp_path, make), question("failure"))
    assert int(found.after.name, 16) == 20
    assert found.evidence == found.whole == "crash: gone -> works, 2.00x"
    rates = r"flaky: [56] of 8 runs show it at commit 0, 0 of 8 runs at commit 64, .* 19, 0 of"
    assert re.match(rates, found.notes[0])


def test_a_case_that_is_as_flaky_at_both_ends_is_refused_with_its_rates(tmp_path: Path) -> None:
    runs: list[int] = []

    def make(number: int) -> RunRecord:
        runs.append(number)
        return make_failure("crash", "gone") if runs.count(number) % 2 else make_record()

    with pytest.raises(
        SpecError, match=r"is flaky: [34] of 8 runs at commit 0 and [345] of 8 runs"
    ):
        search(Bench(tmp_path, make), question("failure"))


def test_the_chance_of_rates_is_that_of_the_exact_test() -> None:
    assert chance_of([False] * 8, [True] * 4 + [False] * 4) == pytest.approx(0.0385, abs=1e-4)
    assert chance_of([True, False], [True, False]) > 0.5
    assert chance_of([True] * 8, [False] * 8) == 1.0


def test_a_second_change_is_told(tmp_path: Path) -> None:
    draw = random.Random(3)  # noqa: S311

    def make(number: int) -> RunRecord:
        return timed(
            1e-3 * (1.1 if number >= 10 else 1) * (1.4 if number >= 50 else 1), draw, 0.005
        )

    found = search(Bench(tmp_path, make), question())
    assert int(found.after.name, 16) == 50
    assert found.evidence.startswith("compiled 1.4")
    steep = search(
        Bench(tmp_path / "b", lambda n: timed(1e-3 * 1.3 ** (n // 21), draw, 0.005)), question()
    )
    assert "of what the ends differ by" in steep.notes[0]


def test_rates_of_certain_runs_leave_a_surprise() -> None:
    rates = Rates.of((False, False), (True, True), flaky=False)
    assert 4 < rates.evidence(seen=True) < 8
    assert rates.evidence(seen=False) == pytest.approx(-rates.evidence(seen=True))


def test_the_cost_is_told_before_anything_is_measured(tmp_path: Path) -> None:
    printed = StringIO()
    announce(
        question("failure"), Request(root=tmp_path, python="3.12", machine="bench"),
        tmp_path / "results", Console(file=printed, width=200),
    )  # fmt: skip
    assert printed.getvalue().startswith("64 commits, Python 3.12; expected: 12 runs")
    assert ROUNDS == 5  # of the ends, in what is told of a slowdown
    # The command that a search ends with: both ends are both sides.
    about = question("failure")
    sides = announce(
        replace(about, positions=about.positions[:2]),
        Request(root=tmp_path, python="3.12", machine="bench"),
        tmp_path / "results", Console(file=printed),
    )  # fmt: skip
    assert sides.runs == sides.most_runs == 4
    assert sides.clear_runs is None


def test_the_cost_is_told_of_ends_that_differ_by_more_than_what_is_searched_for(
    tmp_path: Path,
) -> None:
    printed = StringIO()
    asked = Request(root=tmp_path, python="3.12", machine="bench")
    console = Console(file=printed, width=200)
    told = announce(question(), asked, tmp_path / "results", console)
    assert told.clear_runs is not None
    assert told.clear_runs < told.runs
    assert f"just 1.05x; {told.clear_runs} runs if by 2x\n" in printed.getvalue()
    announce(replace(question(), effect=2.0), asked, tmp_path / "results", console)
    assert printed.getvalue().count("if by 2x") == 1


@pytest.mark.parametrize("processes", [2, 6])
def test_the_cost_is_that_of_the_processes_of_a_run(tmp_path: Path, processes: int) -> None:
    made = replace(make_record(), commit="1" * 40, rounds=(2,) * processes)
    made = replace(made, duration_s=10.0 * processes)
    append_record(record_file(tmp_path / "results", "bench", made.commit, made.cell.id), made)
    asked = Request(root=tmp_path, python="3.12", machine="bench")
    told = {
        sought: announce(question(sought), asked, tmp_path / "results", Console(file=StringIO()))
        for sought in ("slowdown", "failure")
    }
    assert made.compile is not None
    cold_s = made.compile.cold_s
    assert cold_s is not None
    each = 10.0 - cold_s / processes
    # Two commits take turns in a run of a slowdown.
    assert told["slowdown"].run_s == pytest.approx(
        2 * (PROCESSES_PER_RUN * each + cold_s) + AROUND_S
    )
    assert told["failure"].run_s == pytest.approx(Effort().processes * each + cold_s + AROUND_S)


def test_compile_times_are_told_with_the_compile_that_an_earlier_run_spared(
    tmp_path: Path,
) -> None:
    made = replace(make_record(), commit="1" * 40, rounds=(2, 2), duration_s=10.0)
    assert made.compile is not None
    cached = replace(made.compile, cold_s=60.0, cold_at="2026-11-20T00:00:00+00:00")
    made = replace(made, compile=cached)
    append_record(record_file(tmp_path / "results", "bench", made.commit, made.cell.id), made)
    asked = Request(root=tmp_path, python="3.12", machine="bench")
    printed = StringIO()
    about = replace(question("compile-time"), metric="cold", effect=1.1)
    two = replace(about, positions=about.positions[:2])
    told = announce(two, asked, tmp_path / "results", Console(file=printed, width=300))
    assert told.run_s == pytest.approx(4 * 5.0 + 60.0 + AROUND_S)
    # Compile times of the same code differ by 8 %: two runs do not tell 1.1x.
    assert told.runs == told.most_runs == 2 * ROUNDS
    assert "expected: 10 runs, of 92 s each by earlier records: 920 s" in printed.getvalue()
    clear = announce(
        replace(two, effect=2.0), asked, tmp_path / "results", Console(file=printed, width=300)
    )
    assert clear.runs == 2
    assert "92 s each by earlier records: 184 s, seldom more than 920 s" in printed.getvalue()


def test_long_messages_are_cut_where_it_can_be_seen() -> None:
    text = "start " + "x" * 900 + " end"
    broken = seen_in(make_failure("crash", text), "failure")
    assert broken.startswith("crash: start x")
    assert " […] " in broken
    assert len(broken) < 270
    facts = make_record().compile
    assert facts is not None
    one = replace(facts, graph_breaks=(Counted(text=text, count=1),), frames_total=1, frames_ok=1)
    broken = seen_in(replace(make_record(), compile=one), "graph-break")
    assert " […] " in broken
    assert len(broken) < 330


def test_series_that_the_matrix_lacks_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search over 2.6.0, 2.8.0 names the change of 2.7 as one of 2.8.0."""
    assert lacking_releases(["2.6.0", "2.8.0", "2.9.1", "2.12.0"]) == ("2.7", "2.10", "2.11")
    assert lacking_releases(["2.6.0", "2.6.1", "2.7.1"]) == ()
    assert lacking_releases(["1.13.1", "2.0.0"]) == lacking_releases(["nightly"]) == ()
    make_fleet_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ivhl.cli.bisection.lacking_releases", lambda _: ("2.5", "2.7"))
    words = ["bisect", "2.5.1", "2.6.0", "--case", "ops.one", "--dry-run"]
    done = CliRunner().invoke(app, words)
    assert "(--tier extended): PyTorch 2.5, 2.7; a change there shows" in done.output


@pytest.mark.parametrize("sought", ["failure", "wrong", "graph-break", "compile-time"])
def test_only_a_slowdown_has_a_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sought: str
) -> None:
    make_fleet_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    words = ["bisect", "2.5.1", "2.6.0", "--case", "ops.one", "--for", sought, "--dry-run"]
    assert CliRunner().invoke(app, words).exit_code == 0
    done = CliRunner().invoke(app, [*words, "--side", "eager"])
    assert isinstance(done.exception, SpecError)
    assert str(done.exception).startswith(f"--side eager: not with --for {sought}")


def test_answers_of_other_benchmarks_or_locks_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both come from the working tree, so the commits do not say which were measured."""
    make_fleet_project(tmp_path)
    make_commits(tmp_path, 3)
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "demo"\n[tool.ivhl]\nbenchmarks = "measured"\n'
    )
    (tmp_path / "measured").mkdir()
    declarations = tmp_path / "measured" / "__init__.py"
    monkeypatch.chdir(tmp_path)
    asked: list[Question] = []

    def announced(question: Question, *_: object) -> Expected:
        asked.append(question)
        return Expected(1, 1, 1, None, None, 0)

    monkeypatch.setattr("ivhl.cli.bisection.announce", announced)
    monkeypatch.setattr("ivhl.cli.bisection.declared", lambda _: WORKLOADS)
    command = ["bisect", "HEAD~3", "HEAD", "--case", "ops.one", "--python", "3.12", "--dry-run"]
    lock = tmp_path / "envs" / "locks" / "py3.12-torch2.6.0.txt"
    for change in (
        lambda: declarations.write_text("A = 1\n"),
        lambda: None,
        lambda: declarations.write_text("A = 2\n"),
        lambda: lock.write_text(f"{lock.read_text()}numpy==2.1.0\n"),
    ):
        change()
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.exception
    request = Request(root=tmp_path, python="3.12", machine="bench", effort=Effort())
    first, again, *others = [log_of_search(tmp_path, one, request) for one in asked]
    assert first == again
    assert len({first, *others}) == 3


def test_the_command_refuses_ends_that_are_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "project"
    root.mkdir()
    make_fleet_project(root)
    make_commits(root, 3)
    git(root, "tag", "2.0")
    monkeypatch.chdir(root)
    case = ["--case", "ops.one"]
    for ends, text in (
        (["HEAD", "HEAD"], "are the same commit"),
        (["HEAD", "HEAD~2"], "no commit leads from HEAD to HEAD~2"),
        (["2.6.0", "2.5.1"], "BEFORE must be older than AFTER"),
        (["HEAD", "nothing"], "git knows no commit 'nothing'"),
        (["HEAD~2", "HEAD", "--python", "3.21"], "unknown Python '3.21'"),
        (["HEAD~2", "HEAD", "--commit", "HEAD"], "--commit HEAD: not between two commits"),
        (["2.5.1", "2.6.0", "--torch", "2.6.0"], "--torch 2.6.0: not between two releases"),
    ):
        done = CliRunner().invoke(app, ["bisect", *ends, *case])
        assert text in str(done.exception)
    for ends, text in (
        (["2.5.1", "2.6.0"], "1 release, Python 3.1"),
        (["2.5", "2.6"], "1 release, Python 3.1"),
        (["HEAD~3", "2.0"], "3 commits, Python 3.1"),
    ):
        done = CliRunner().invoke(app, ["bisect", *ends, *case, "--dry-run"])
        assert text in done.output
    told = CliRunner().invoke(app, ["bisect", "HEAD~3", "2.0", *case, "--dry-run", "--json"])
    SCHEMAS["estimate"].validate_json(told.stdout)
    expected = json.loads(told.stdout)
    assert (expected["places"], expected["run_s"], expected["answers"]) == (3, None, 0)
    assert 0 < expected["runs"] <= expected["most_runs"]
