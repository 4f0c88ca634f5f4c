"""The stage that first shows a symptom is blamed, and what earlier stages hide is not guessed."""

from __future__ import annotations

import json
import logging
import math
import random
import re
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from ivhl.bench.blame import (
    FEWEST_ROUNDS,
    Blamed,
    Suspicion,
    _cures,
    _rate,
    _Runner,
    _see_stages,
    _settings,
    _timed_stages,
    _undecided,
    blame,
)
from ivhl.bench.blame_report import culprit_of, write_report
from ivhl.cli import app
from ivhl.cli.blame import _again, _as_dict, _print
from ivhl.errors import SpecError, UnknownNameError
from ivhl.machine.identity import this_machine
from ivhl.matrix.spec import CellSpec
from ivhl.measure import stages as trials
from ivhl.measure.effort import Effort
from ivhl.measure.journal import Journal
from ivhl.measure.launcher import read_journal
from ivhl.records.record import Arm
from ivhl.tracker.causes.blame import (
    STAGES,
    bare_kernel,
    code_differences,
    first_stage,
    kernel_hunks,
    slower,
    slower_stage,
    stage_factors,
    suspected,
    symptom_of,
    tried_of,
)
from ivhl.tracker.store.spread import SHIPPED
from ivhl.tracker.terminal import Terminal
from ivhl.workload import Case, Variant
from studies.schemas import SCHEMAS
from tests.builders.fleet import make_fleet_project
from tests.builders.project import git
from tests.builders.records import EMPTY_WORKLOAD, make_failure, make_record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ivhl.matrix.spec import Matrix
    from ivhl.tracker.causes.blame import Stage, Tried

WRONG = {
    "phase": "accuracy", "failure_class": "wrong", "message": "off by 3", "exception": "",
    "where": "",
}  # fmt: skip
CRASHED = WRONG | {"failure_class": "compile", "message": "no such op"}
KERNEL = 'CPP Kernel:\n#include "/opt/a/cabc.h"\nextern "C" void kernel(float* out)\n{\n  %s\n}\n'


def tried(*, symptom: str = "wrong", above: float = 0.0, **found: Any) -> Tried:  # noqa: ANN401
    return tried_of({"done": True} | found, 0, symptom, above=above)


def shown(*from_stage: str) -> dict[str, Tried]:
    return {s: tried(failure=WRONG if s in from_stage else None) for s in STAGES}


@settings(derandomize=True, deadline=None)
@given(st.integers(0, len(STAGES)))
def test_the_first_stage_that_shows_it_is_blamed(first: int) -> None:
    stages = list(STAGES)
    expected = stages[first] if first < len(stages) else None
    assert first_stage(shown(*stages[first:])) == expected


def test_a_stage_that_fails_otherwise_hides_those_behind_it() -> None:
    stages = shown("inductor")
    stages["aot_eager"] = tried(failure=CRASHED)
    assert stages["aot_eager"].outcome == "other"
    assert first_stage(stages) is None


def test_a_trial_that_ended_without_a_word_shows_only_a_crash() -> None:
    assert tried_of({}, -11, "crash").outcome == "shows"
    assert tried_of({}, -11, "wrong").outcome == "other"
    late = tried_of({}, None, "wrong")
    assert (late.outcome, late.text) == ("other", "met its deadline")
    missing = tried(not_here="torch._inductor.config.nothing")
    assert missing.outcome == "not here"


def test_graph_breaks_beyond_those_of_the_good_release_show_it() -> None:
    facts = {"frames_total": 3, "frames_ok": 2, "graph_breaks": [{"text": "item", "count": 1}]}
    one = tried(symptom="graph-break", compile=facts, above=1)
    assert (one.outcome, one.breaks) == ("shows", 2)
    assert tried(symptom="graph-break", compile=facts, above=2).outcome == "works"


def timed_run(seconds: Sequence[float], *, slowed: float = 1.0) -> dict[str, Tried]:
    """Return the trials of a run, on a machine that was slower by a factor."""
    return {
        stage: tried(
            symptom="slow",
            compiled={"samples_s": [1e-3 * slowed * one]},
            eager={"samples_s": [2e-3 * slowed]},
        )
        for stage, one in zip(STAGES, seconds, strict=True)
    }


def test_the_stage_that_lost_half_of_the_seconds_is_blamed() -> None:
    def blamed(*factors: float) -> tuple[str | None, bool]:
        return slower_stage(stage_factors([timed_run([1] * 4)] * 2, [timed_run(factors)] * 2))

    assert blamed(1.0, 1.02, 1.01, 1.5) == ("inductor", True)
    assert blamed(10, 10, 10, 9) == ("eager", True)
    assert blamed(1, 1, 1, 0.9) == (None, True)


def test_one_run_says_nothing_of_its_noise() -> None:
    found = stage_factors([timed_run([1] * 4)], [timed_run([1.0, 1.0, 1.0, 1.5])])
    assert found["inductor"].low == 0
    assert slower_stage(found) == ("inductor", False)


def test_a_machine_that_slows_down_moves_no_stage() -> None:
    good = [timed_run([1] * 4, slowed=one) for one in (1.0, 1.3, 1.1)]
    bad = [timed_run([1.0, 1.0, 1.0, 1.2], slowed=one) for one in (1.3, 1.05, 1.0)]
    found = stage_factors(good, bad)
    ends = {"eager": 1.0, "inductor": 1.2}
    for stage, factor in ends.items():
        assert found[stage].low < factor < found[stage].high  # type: ignore[index]
    assert found["inductor"].value / found["eager"].value == pytest.approx(1.2)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.integers(0, 10_000))
def test_a_stage_that_is_sure_is_seldom_wrong(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311  (noise, not a secret)

    def side(factors: Sequence[float], noise: float) -> list[dict[str, Tried]]:
        return [
            timed_run(
                [one * math.exp(draw.gauss(0, noise)) for one in factors],
                slowed=math.exp(draw.gauss(0, 0.1)),
            )
            for _ in range(3)
        ]

    found = 0
    for _ in range(40):
        stage, is_sure = slower_stage(
            stage_factors(side([1] * 4, 0.05), side([1.0, 1.0, 1.5, 1.5], 0.05))
        )
        found += is_sure and stage != "aot_eager_decomp_partition"
    assert found <= 4


@pytest.mark.parametrize("factor", [1.5, 1.0])
def test_a_slowdown_is_measured_in_turns_until_its_stage_is_sure(
    tmp_path: Path, factor: float
) -> None:
    asked = suspicion(tmp_path, good=CellSpec("3.12", "2.6.0"), symptom="slow")
    turns: list[str] = []

    class Runner:
        def run(self, cell: CellSpec, trials: Sequence[dict[str, Any]]) -> dict[str, Tried]:
            turns.append(cell.torch)
            is_bad = cell.torch == "2.5.1"
            found = timed_run([1.0, 1.0, 1.0, factor if is_bad else 1.0])
            return {one["name"]: found[one["backend"]] for one in trials}

    if factor == 1.0:
        with pytest.raises(SpecError, match=r"is slower than .* 1\.00x"):
            _timed_stages(asked, Runner())  # type: ignore[arg-type]
    else:
        good, bad, factors = _timed_stages(asked, Runner())  # type: ignore[arg-type]
        assert slower_stage(factors) == ("inductor", True)
        assert bad["inductor"].compiled_s == pytest.approx(factor * 1e-3)
        assert good["inductor"].compiled_s == pytest.approx(1e-3)
    assert turns == ["2.6.0", "2.5.1"] * FEWEST_ROUNDS


def test_a_cure_that_one_run_shows_is_run_again(tmp_path: Path) -> None:
    asked = suspicion(tmp_path, good=CellSpec("3.12", "2.6.0"), symptom="slow")
    # Seconds of compiled and eager code in each run.
    runs = {
        "real": [(1.0, 4.0), (2.1, 8.0), (1.0, 4.0)],
        "lucky": [(1.0, 4.0), (1.9, 4.0), (1.9, 4.0)],
        "slow machine": [(2.0, 8.0), (2.0, 8.0), (1.0, 4.0)],
        "none": [(2.0, 4.0)],
        "fast machine": [(1.0, 2.0)],
    }
    trials: list[dict[str, Any]] = [{"name": name} for name in runs]

    class Runner:
        def run(self, _: CellSpec, trials: Sequence[dict[str, Any]]) -> dict[str, Tried]:
            found = {}
            for one in trials:
                compiled_s, eager_s = runs[one["name"].partition(",")[0]].pop(0)
                found[one["name"]] = tried(
                    symptom="slow",
                    compiled={"samples_s": [compiled_s]},
                    eager={"samples_s": [eager_s]},
                )
            return found

    bad = tried(symptom="slow", compiled={"samples_s": [2.0]}, eager={"samples_s": [4.0]})
    found = _cures(asked, Runner(), trials, bad, 1.5)  # type: ignore[arg-type]
    works = [name for name, one in found.items() if one.outcome == "works"]
    assert works == ["real", "slow machine"]
    assert found["lucky"].text == "1.9 s, the median of 3 runs"
    assert not any(runs.values())


def test_of_equal_kernels_that_differ_in_time_what_is_around_them_is_named() -> None:
    one = tried(kernels=[KERNEL % "out[0] = 1;"])
    other = tried(
        kernels=[(KERNEL % "out[0] = 1;").replace("/opt/a/cabc.h", "/home/b/cdef.h")],
    )
    lines = code_differences(one, other, timed=True)
    assert any("identical" in line and "around them" in line for line in lines)


@pytest.mark.parametrize(
    ("symptom", "fullgraph", "tried"),
    [("slow", True, True), ("slow", False, False), ("graph-break", True, False)],
)
def test_a_slow_whole_graph_is_also_tried_without_being_asked_to_be_whole(
    symptom: str, *, fullgraph: bool, tried: bool
) -> None:
    variant = SimpleNamespace(dynamic=None, fullgraph=fullgraph)
    asked = SimpleNamespace(
        case=SimpleNamespace(variant=variant),
        symptom=symptom,
        effort=SimpleNamespace(device="cpu", threads=1),
    )
    trials = [*_settings(asked, "inductor")]  # type: ignore[arg-type]
    assert ({"name": "fullgraph=False", "fullgraph": False} in trials) == tried


@pytest.mark.parametrize(
    ("symptom", "stage", "modules"),
    [
        ("compile", "eager", {"dynamo"}),
        # PyTorch 2.6.0: what AOTAutograd makes of a float fails, and `specialize_float` cures it.
        ("compile", "aot_eager_decomp_partition", {"dynamo", "functorch"}),
        ("wrong", "inductor", {"dynamo", "functorch", "inductor"}),
        ("slow", "inductor", {"inductor"}),
        ("graph-break", "aot_eager", {"dynamo"}),
    ],
)
def test_settings_of_the_stages_before_are_tried_too(
    symptom: str, stage: Stage, modules: set[str]
) -> None:
    asked = SimpleNamespace(
        case=SimpleNamespace(variant=SimpleNamespace(dynamic=None, fullgraph=False)),
        symptom=symptom,
        effort=SimpleNamespace(device="cpu", threads=1),
    )
    listed = [*_settings(asked, stage)]  # type: ignore[arg-type]
    found = {one["module"].split(".")[1].strip("_") for one in listed if "module" in one}
    assert found == modules
    assert ({"name": "threads=2", "threads": 2} in listed) == (symptom != "slow")
    # It needs CUDA.
    assert all(one.get("field") != "functionalize_rng_ops" for one in listed)


def test_a_failure_of_a_trial_names_no_folder_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "project"
    here = root / ".asv" / "blame-abc"
    site = here / "py3.12-torch2.6.0" / "site"
    site.mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.setenv("PYTHONPATH", f"{root / 'instrument'}:{site}")
    job = SimpleNamespace(workloads="benchmarks", project="demo")
    error = AssertionError(f"- Expected: {site}/demo/work.py:17, for {root}/data")
    found = trials.failure_of(error, "accuracy", job, trials.folders_of_trials())  # type: ignore[arg-type]
    assert found["message"] == "- Expected: demo/work.py:17, for data"


def test_kernels_that_differ_are_shown_side_by_side() -> None:
    one, two = (tried(kernels=[KERNEL % f"out[0] = {n};"]) for n in (1, 2))
    lines = code_differences(one, two, timed=False)
    assert "generated kernels: 1 and 1, 0 of them identical" in lines
    assert "-  out[0] = 1;" in lines[-1]
    assert "+  out[0] = 2;" in lines[-1]
    assert "include" not in bare_kernel(KERNEL)


def test_where_kernels_differ_most_is_shown_and_the_rest_counted() -> None:
    """The first place is small, and one further down is the reason."""
    plain = [f"a{n};" for n in range(80)]
    changed = [f"b{n};" if n == 0 or 40 <= n < 48 or n == 70 else a for n, a in enumerate(plain)]
    other = [f"b{n};" for n in range(30)]
    one = tried(kernels=[KERNEL % "\n".join(plain)])
    two = tried(kernels=[KERNEL % "\n".join(part) for part in (changed, other)])
    lines = code_differences(one, two, timed=False)
    assert "generated kernels: 1 and 2, 0 of them identical" in lines
    block, more = lines[-2:]
    assert "kernel 1\n" in block
    assert all(f"-a{n};\n" in block and f"+b{n};\n" in block for n in range(40, 48))
    hunks = kernel_hunks(one, two)
    assert [hunk[0].rpartition(" ")[2] for hunk in hunks] == ["1", "1", "1", "2"]
    assert "+b29;" in hunks[-1]
    left = sum(map(len, hunks)) - (block.count("\n") - 1)
    assert (
        more
        == f"{left} more lines of this difference in kernels.diff: above is where most lines change"
    )
    # What is too long as a whole is cut.
    block, more = code_differences(one, tried(kernels=[KERNEL % "\n".join(other)]), timed=False)[
        -2:
    ]
    assert block.count("\n") == 25
    assert "more lines of this difference in kernels.diff" in more


def test_records_name_the_release_and_a_mended_one_beside_it() -> None:
    wrong, right = make_failure("wrong", "off"), make_record()
    records = {"2.5.1": wrong, "2.6.0": wrong, "2.15.0": right}
    assert suspected(records, None, None, "failure", "c") == ("2.6.0", "2.15.0")
    assert suspected(records, "2.5.1", None, "failure", "c") == ("2.5.1", "2.15.0")
    newest = {"2.5.1": right, "2.6.0": wrong}
    assert suspected(newest, None, None, "failure", "c") == ("2.6.0", "2.5.1")
    with pytest.raises(SpecError, match="no record of c on this Python shows a failure"):
        suspected({"2.6.0": right}, None, None, "failure", "c")
    assert suspected({}, "2.6.0", None, "failure", "c") == ("2.6.0", None)
    with pytest.raises(SpecError, match="no record says how c fails there") as told:
        symptom_of("failure", None, None, "c")
    assert "--for wrong" in told.value.hint


def test_the_largest_step_between_releases_is_the_slowdown() -> None:
    def record(compiled_s: float) -> Any:  # noqa: ANN401
        samples = (compiled_s,) * 8
        return replace(
            make_record(speedup=2e-3 / compiled_s), compiled=Arm(calls=1, samples_s=samples)
        )

    records = {"2.5.1": record(1e-3), "2.6.0": record(2e-3), "2.15.0": record(3.2e-3)}
    assert slower([records], SHIPPED, None, None, "c") == ("2.6.0", "2.5.1")
    assert slower([records], SHIPPED, "2.15.0", None, "c") == ("2.15.0", "2.6.0")
    assert slower([], SHIPPED, "2.15.0", "2.5.1", "c") == ("2.15.0", "2.5.1")
    # Another machine's are not compared with these.
    alone = [{"2.5.1": record(1e-3)}, {"2.6.0": record(2e-3)}]
    with pytest.raises(SpecError, match=r"became slower .* by more than noise"):
        slower(alone, SHIPPED, None, None, "c")
    with pytest.raises(SpecError, match=r"became slower .* by more than noise"):
        slower([{"2.5.1": record(1e-3), "2.6.0": record(1.02e-3)}], SHIPPED, None, None, "c")


def suspicion(folder: Path, **changed: Any) -> Suspicion:  # noqa: ANN401
    variant = Variant(name="a", call="m:f")
    asked = Suspicion(
        case=Case(workload=EMPTY_WORKLOAD, size="small", variant=variant),
        bad=CellSpec("3.12", "2.5.1"), good=None, symptom="wrong", commit="ab" * 20,
        effort=Effort(deadline_s=600.0), folder=folder,
    )  # fmt: skip
    return replace(asked, **changed)


class KilledError(Exception):
    """The command was killed."""


def make_runner(
    root: Path, here: Path, asked: Suspicion, ran: list[str], *, until: int
) -> _Runner:
    """Return a runner whose cell is left out: trials leave what those of a cell leave."""
    here.mkdir(parents=True)
    runner = _Runner(root, asked, here, root, Console(quiet=True))

    def run(cell: CellSpec, trials: Mapping[str, dict[str, Any]], kept: Path) -> None:
        del cell
        for key, one in trials.items():
            journal = kept / f"{key}.jsonl"
            assert not journal.exists()
            if len(ran) == until:
                journal.write_text('{"phase": "compile"}\n{"findings": {"fail')
                with (kept / "ended.jsonl").open("a") as file:
                    file.write('{"name": "' + key)
                raise KilledError
            ran.append(one["name"])
            failure = WRONG if one["backend"] == "inductor" else None
            journal.write_text(json.dumps({"findings": {"done": True, "failure": failure}}) + "\n")
            status = None if one["name"] == "slow" else 0
            line = {"name": key, "status": status, "seconds": asked.effort.deadline_s}
            with (kept / "ended.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")

    runner._run = run  # type: ignore[method-assign]
    return runner


def write_benchmark(root: Path, text: str) -> None:
    """Declare a folder of benchmarks, and write this into it."""
    table = '[project]\nname = "demo"\n[tool.ivhl]\nbenchmarks = "measured"\n'
    (root / "pyproject.toml").write_text(table)
    (root / "measured").mkdir(exist_ok=True)
    (root / "measured" / "__init__.py").write_text(f"{text}\n")


def test_a_command_that_was_killed_goes_on_after_the_trials_that_ended(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    make_fleet_project(root)
    write_benchmark(root, "X = 1")
    asked, ran = suspicion(tmp_path), list[str]()
    trials: list[dict[str, Any]] = [{"name": stage, "backend": stage} for stage in STAGES]
    with pytest.raises(KilledError):
        make_runner(root, tmp_path / "1", asked, ran, until=2).run(asked.bad, trials)
    assert ran == list(STAGES)[:2]
    found = make_runner(root, tmp_path / "2", asked, ran, until=99).run(asked.bad, trials)
    assert ran == list(STAGES)
    assert [one.outcome for one in found.values()] == ["works", "works", "works", "shows"]
    more = [*trials, {"name": "more", "backend": "inductor"}]
    make_runner(root, tmp_path / "3", asked, ran, until=99).run(asked.bad, more)
    assert ran == [*STAGES, "more"]
    other = replace(asked, commit="cd" * 20)
    make_runner(root, tmp_path / "4", other, ran, until=99).run(asked.bad, trials[:1])
    anew = replace(asked, force=True)
    make_runner(root, tmp_path / "6", anew, ran, until=99).run(asked.bad, trials[:1])
    assert ran == [*STAGES, "more", "eager", "eager"]
    write_benchmark(root, "X = 2")
    make_runner(root, tmp_path / "7", asked, ran, until=99).run(asked.bad, trials[:1])
    assert ran == [*STAGES, "more", "eager", "eager", "eager"]


def test_a_long_message_of_a_trial_is_cut_where_it_can_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "project"
    root.mkdir()
    make_fleet_project(root)
    monkeypatch.setitem(WRONG, "message", "x" * 400)
    asked, printed = suspicion(tmp_path), StringIO()
    runner = make_runner(root, tmp_path / "1", asked, [], until=99)
    runner._console = Console(file=printed, width=400)
    runner.run(asked.bad, [{"name": "inductor", "backend": "inductor"}])
    assert re.search(r"inductor: shows; wrong: x+…  \(", printed.getvalue())
    runner.run(asked.bad, [{"name": "eager", "backend": "eager"}])
    assert "eager: works  (" in printed.getvalue()


def test_a_trial_that_met_a_shorter_deadline_is_run_again(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    make_fleet_project(root)
    asked, ran = suspicion(tmp_path), list[str]()
    trials = [{"name": "slow", "backend": "eager"}]
    for number, deadline_s in enumerate((600.0, 600.0, 900.0)):
        again = replace(asked, effort=replace(asked.effort, deadline_s=deadline_s))
        make_runner(root, tmp_path / str(number), again, ran, until=99).run(asked.bad, trials)
    assert ran == ["slow", "slow"]


@pytest.mark.parametrize(
    ("shows", "rate"),
    [
        ([True, True, True], (3, 3)),
        ([False, True, False], (1, 3)),
        ([True, False, False], (1, 3)),
        ([False, False, False, True], (1, 4)),
        ([False] * 6, (0, 6)),
    ],
)
def test_a_flaky_case_is_said_with_its_rate(
    tmp_path: Path, shows: list[bool], rate: tuple[int, int]
) -> None:
    left = iter(shows)

    def run_one(_: CellSpec, trials: list[dict[str, str]], **__: float) -> dict[str, Tried]:
        (trial,) = trials
        failure = WRONG if next(left) else None
        return {trial["name"]: tried(failure=failure)}

    first = run_one(CellSpec("3.12", "2.5.1"), [{"name": "inductor"}])["inductor"]
    runner = SimpleNamespace(run=run_one)
    found = _rate(suspicion(tmp_path), runner, first, 0.0)  # type: ignore[arg-type]
    assert found == rate
    assert next(left, None) is None
    if 0 < rate[0] < rate[1]:
        root = tmp_path / "project"
        root.mkdir()
        make_fleet_project(root)
        flaky = Blamed(stage="inductor", rate=rate, stages=shown("inductor"), good={})
        text = write_report(root, suspicion(tmp_path), flaky, {}, "ivhl blame c").read_text()
        assert f"Flaky: {rate[0]} of {rate[1]} runs show it" in text
        assert "inductor is the first stage that showed it" in text
        assert "Settings" not in text


@pytest.mark.parametrize("before", [[], [WRONG], [None, None]])
def test_a_run_that_fails_otherwise_is_no_run_without_the_symptom(
    tmp_path: Path, before: list[dict[str, str] | None]
) -> None:
    left = iter([*before, CRASHED])

    def run_one(_: CellSpec, trials: list[dict[str, str]], **__: float) -> dict[str, Tried]:
        (trial,) = trials
        return {trial["name"]: tried(failure=next(left))}

    first = run_one(CellSpec("3.12", "2.5.1"), [{"name": "inductor"}])["inductor"]
    runner = SimpleNamespace(run=run_one)
    said = rf"otherwise than with wrong in .*, in run {len(before) + 1}: compile: no such op"
    with pytest.raises(SpecError, match=said):
        _rate(suspicion(tmp_path), runner, first, 0.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("symptom", "there", "said"),
    [
        ("wrong", {"failure": WRONG}, "either, where it was to be without wrong: wrong: "),
        ("wrong", {"failure": CRASHED}, "either, .*: compile: no such op"),
        ("graph-break", {"failure": CRASHED}, "either, .*: compile: no such op"),
        ("slow", {"failure": CRASHED}, "fails in py3.12-torch2.6.0, so nothing .*: compile: no"),
    ],
)
def test_a_release_that_was_to_work_and_fails_ends_it_at_once(
    tmp_path: Path, symptom: str, there: dict[str, Any], said: str
) -> None:
    asked = suspicion(tmp_path, good=CellSpec("3.12", "2.6.0"), symptom=symptom)
    ran: list[str] = []

    def run(cell: CellSpec, trials: Sequence[dict[str, Any]], **_: float) -> dict[str, Tried]:
        ran.append(cell.torch)
        return {one["name"]: tried(symptom=symptom, **there) for one in trials}

    with pytest.raises(SpecError, match=said) as told:
        _see_stages(asked, SimpleNamespace(run=run))  # type: ignore[arg-type]
    assert "--good" in (told.value.hint or "")
    assert ran == ["2.6.0"]


def test_as_many_graph_breaks_in_the_good_release_are_said(tmp_path: Path) -> None:
    asked = suspicion(tmp_path, good=CellSpec("3.12", "2.6.0"), symptom="graph-break")
    facts = {"frames_total": 2, "frames_ok": 2, "graph_breaks": [{"count": 1}]}

    def run(_: CellSpec, trials: Sequence[dict[str, Any]], above: float = 0) -> dict[str, Tried]:
        return {
            one["name"]: tried(symptom=asked.symptom, above=above, compile=facts) for one in trials
        }

    with pytest.raises(SpecError, match=r"1 graph break; 1 graph break in py3\.12-torch2\.6\.0"):
        _see_stages(asked, SimpleNamespace(run=run))  # type: ignore[arg-type]


# PyTorch 2.2.2 has no kernel_code.
@pytest.mark.parametrize("artifacts", [["fusion"], ["fusion", "kernel_code"]])
def test_only_logs_that_the_release_has_are_switched_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, artifacts: list[str]
) -> None:
    on: dict[str, object] = {}

    def set_logs(**logs: Any) -> None:  # noqa: ANN401  (switches, and levels)
        assert logs.keys() <= {*registry.artifact_names, "dynamo"}
        on.update(logs)

    registry = SimpleNamespace(artifact_names={*artifacts})
    logs = SimpleNamespace(set_logs=set_logs, _internal=SimpleNamespace(log_registry=registry))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(_logging=logs))
    journal = Journal(tmp_path / "j.jsonl")
    with trials.heard(journal):
        logging.getLogger("torch._inductor.async_compile.__kernel_code").warning("a kernel")
        logs.set_logs(dynamo=10)
    journal.close()
    assert on == dict.fromkeys(artifacts[1:], True) | {"dynamo": 10}
    _, found = read_journal(tmp_path / "j.jsonl")
    assert found["kernels"] == ["a kernel"]


@pytest.mark.parametrize(
    ("good", "said"),
    [
        (None, "runs in py3.12-torch2.5.1: what is not there yet of 1 environment is made: 4.5"),
        (CellSpec("3.12", "2.6.0"), "py3.12-torch2.6.0: what is not there yet of 2 environments"),
    ],
)
def test_the_environments_are_announced_before_any_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, good: CellSpec | None, said: str
) -> None:
    root = tmp_path / "project"
    root.mkdir()
    make_fleet_project(root)
    (root / ".asv").mkdir()
    printed = StringIO()
    before: list[str] = []
    monkeypatch.setattr("ivhl.bench.blame._blame", lambda *_: before.append(printed.getvalue()))
    asked = replace(suspicion(tmp_path), good=good, commit=git(root, "rev-parse", "HEAD"))
    blame(root, asked, Console(file=printed, width=400))
    assert said in before[0]


def test_a_report_has_script_stages_cures_versions_and_both_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "clever"
    compiler.write_text("#!/bin/sh\necho 'clever++ 9.1'\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    machine = this_machine("m")
    root = tmp_path / "project"
    root.mkdir()
    make_fleet_project(root)
    variant = Variant(name="a", call="m:f")
    workload = replace(EMPTY_WORKLOAD, variants=(variant,))
    bad, good = CellSpec("3.12", "2.5.1"), CellSpec("3.12", "2.6.0")
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "repro.py").write_text("print('here')\n")
    asked = Suspicion(
        case=Case(workload=workload, size="small", variant=variant), bad=bad, good=good,
        symptom="wrong", commit="ab" * 20, effort=Effort(), folder=folder,
    )  # fmt: skip
    found = Blamed(
        stage="inductor",
        is_sure=True,
        stages=shown("inductor"),
        good=shown(),
        factors={},
        settings={"threads=2": tried(), "x=1": tried(failure=WRONG)},
        bisected={
            "backend": "inductor",
            "subsystem": "lowerings",
            "number": 3,
            "about": "index_add",
        },
        differences=["generated kernels: 1 and 1, 0 of them identical"],
        kernels=["@@ -1 +1 @@ kernel 1", "-old", "+new"],
        script={"script": "repro.py", "operations": 1, "of": 30, "inputs": "drawn"},
        shown={bad.id: (True, "2.5.1 off by 3"), good.id: (False, "2.6.0 right")},
        rate=(3, 3),
        undecided=[],
    )
    assert found.cures == ["threads=2"]
    assert "it begins with lowerings number 3 (index_add)" in culprit_of(found)
    told = {"schema": "ivhl.blame/1", **_as_dict(asked, found, folder / "report.md")}
    SCHEMAS["blame"].validate_json(json.dumps(told))
    text = write_report(root, asked, found, {"2.5.1": "wrong"}, "ivhl blame c").read_text()
    for part in (
        "# `torch.compile`, PyTorch 2.5.1: compiled code is wrong: 2.5.1 off by 3",
        "py3.12-torch2.5.1 shows it: `2.5.1 off by 3`",
        "py3.12-torch2.6.0 does not show it: `2.6.0 right`",
        "print('here')",
        "| inductor | wrong: off by 3 | works |",
        "Of 2 that were tried, 1 cure it:",
        "- `threads=2`: works",
        f"{machine.system}, {machine.cpu}, clever++ 9.1; cpu, 1 thread; case",
        "torch 2.5.1; 1 package, lock",
        "torch 2.6.0; 1 package, lock",
        "ivhl blame c",
    ):
        assert part in text, part
    kernels = folder / "kernels.diff"
    assert kernels.read_text() == "@@ -1 +1 @@ kernel 1\n-old\n+new\n"
    whole = replace(found, settings={"fullgraph=False": tried()})
    assert culprit_of(whole).startswith("what fullgraph=True does around each call")
    unknown = replace(
        found, stage=None, bisected={}, script={"why": "no graph shows it by itself"}
    )
    assert "cannot be told" in culprit_of(unknown)
    unknown = replace(unknown, kernels=[])
    text = write_report(root, asked, unknown, {}, "ivhl blame c").read_text()
    assert not kernels.exists()
    assert "None without the project: no graph shows it by itself" in text


def test_a_bisector_that_met_its_deadline_is_printed_with_what_to_do(tmp_path: Path) -> None:
    late = tried_of({}, None, "wrong")
    lines = _undecided(late, tried(failure=CRASHED), 600.0)
    assert lines == [
        "PyTorch's bisector: met its deadline of 600 s; a longer --deadline runs it again",
        "its minifier: compile: no such op",
    ]
    assert _undecided(None, tried(), 600.0) == []
    found = Blamed(
        stage="inductor", is_sure=True, rate=(3, 3), stages=shown("inductor"), good={}, factors={},
        settings={}, bisected={}, differences=[], kernels=[], script={}, shown={}, undecided=lines,
    )  # fmt: skip
    printed = StringIO()
    _print(Terminal(file=printed, width=200), found, tmp_path / "report.md")
    assert f"  not decided: {lines[0]}\n" in printed.getvalue()


def test_the_command_of_a_report_has_threads_and_device(tmp_path: Path) -> None:
    asked = suspicion(tmp_path, good=CellSpec("3.12", "2.6.0"))
    plain = f"ivhl blame {asked.case.name} --python 3.12 --torch 2.5.1 --good 2.6.0"
    assert _again(asked, "failure") == f"{plain} --commit {'ab' * 6}"
    other = replace(asked, good=None, effort=Effort(device="cuda", threads=2))
    assert _again(other, "graph-break") == (
        f"ivhl blame {asked.case.name} --python 3.12 --torch 2.5.1 --for graph-break "
        f"--device cuda --threads 2 --commit {'ab' * 6}"
    )


@pytest.mark.parametrize("command", ["blame ops.two --for wrong", "try ops.two"])
def test_a_release_that_does_not_exist_is_named_as_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    make_fleet_project(tmp_path)
    monkeypatch.chdir(tmp_path)

    def no_such(_: Path, __: Matrix, cell: CellSpec) -> None:
        raise UnknownNameError("PyTorch release", cell.torch, ["2.6.0"])

    monkeypatch.setattr("ivhl.cli.declared.ensure_lock", no_such)
    found = CliRunner().invoke(app, [*command.split(), "--torch", "9"]).exception
    assert isinstance(found, SpecError)
    assert (str(found), found.hint) == ("unknown PyTorch release '9'", "known: 2.6.0")


def test_what_a_killed_bisector_left_is_not_obeyed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = pytest.importorskip(
        "torch._inductor.compiler_bisector", reason="from PyTorch 2.6.0 on", exc_type=ImportError
    )
    bisector = module.CompilerBisector
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    left = Path(bisector.get_dir())
    left.mkdir()
    (left / "bisect_status.txt").write_text("backend=eager\n")
    assert bisector.get_backend() == "eager"
    trials.forget_bisection()
    assert not left.exists()
    assert bisector.get_backend() is None
    trials.forget_bisection()
