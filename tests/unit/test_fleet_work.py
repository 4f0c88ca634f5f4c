"""Work is split so that every case is measured once; measured cases are not listed again."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from io import StringIO
from itertools import pairwise, product
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from asv.config import Config
from asv.environment import iter_matrix
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

import ivhl.bench.main
from ivhl.asv.configuration import write_configuration
from ivhl.bench.main import bench, cases_of_cells
from ivhl.bench.request import Request, Selection
from ivhl.bench.work import (
    Shard,
    Work,
    in_turns,
    leave_out_measured,
    list_work,
    parse_shard,
    records_at,
    take_shard,
)
from ivhl.cli import app
from ivhl.errors import SpecError, UnknownNameError
from ivhl.git import commits_of_range
from ivhl.machine.identity import this_machine
from ivhl.matrix.locks import lock_state, matrix_digest
from ivhl.matrix.project import load_project
from ivhl.matrix.spec import CellSpec, load_matrix
from ivhl.measure.effort import Effort
from ivhl.measure.settings import Settings
from ivhl.workload import full_cases, select_cases
from tests.builders.fleet import (
    CELLS,
    WORKLOADS,
    a_record,
    commit,
    lock_file,
    make_fleet_project,
    write_records,
)
from tests.builders.project import git, make_commits
from tests.builders.records import make_failure, make_record, verdict

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ivhl.matrix.locks import LockState
    from ivhl.records.record import RunRecord
    from ivhl.workload import Case

CASES = select_cases(WORKLOADS)
FULL = full_cases(WORKLOADS)
SPECS = [CellSpec(python, torch) for python, torch in CELLS]


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("once")
    make_fleet_project(folder)
    return folder


@pytest.fixture
def root(made_once: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made_once, tmp_path / "project")


def pieces(seconds: list[float]) -> list[Work]:
    """Return that many cases to measure, in several cells."""
    return [
        Work(SPECS[n % len(SPECS)], f"w{n // len(SPECS)}", (CASES[0],), time)
        for n, time in enumerate(seconds)
    ]


def names(work: tuple[Work, ...]) -> list[tuple[str, str]]:
    return [(one.cell.id, one.workload) for one in work]


TIMES = st.lists(st.floats(0, 1e4) | st.sampled_from([0.0, 1.0, 30.0]), max_size=40)


@settings(max_examples=200, deadline=None)
@given(seconds=TIMES, count=st.integers(1, 9))
def test_every_case_is_in_exactly_one_share(seconds: list[float], count: int) -> None:
    work = pieces(seconds)
    shares = [take_shard(work, Shard(i, count)) for i in range(1, count + 1)]
    found = [name for share in shares for name in names(share)]
    assert sorted(found) == sorted(names(tuple(work)))
    # The bound of any list schedule (Graham 1966): the longest share exceeds the mean by less
    # than one piece of work.
    longest = max(sum(one.seconds for one in share) for share in shares)
    total, largest = sum(seconds), max(seconds, default=0.0)
    assert longest <= (total / count + largest * (1 - 1 / count)) * (1 + 1e-9)


@settings(max_examples=100, deadline=None)
@given(seconds=TIMES, count=st.integers(1, 5), data=st.data())
def test_the_split_depends_on_nothing_but_the_work(
    seconds: list[float], count: int, data: st.DataObject
) -> None:
    work = pieces(seconds)
    shuffled = data.draw(st.permutations(work))
    for index in range(1, count + 1):
        share = take_shard(work, Shard(index, count))
        assert set(names(share)) == set(names(take_shard(shuffled, Shard(index, count))))
        assert list(share) == [one for one in work if one in share]


@settings(max_examples=60, deadline=None)
@given(seconds=st.lists(st.integers(1, 50), min_size=1, max_size=7), count=st.integers(2, 3))
def test_shares_are_as_even_as_longest_first_makes_them(seconds: list[int], count: int) -> None:
    work = pieces([float(s) for s in seconds])
    longest = max(
        sum(one.seconds for one in take_shard(work, Shard(i, count))) for i in range(1, count + 1)
    )
    best = min(
        max(sum(s for s, k in zip(seconds, where, strict=True) if k == i) for i in range(count))
        for where in product(range(count), repeat=len(seconds))
    )
    assert longest <= best * (4 / 3 - 1 / (3 * count)) + 1e-9


@pytest.mark.parametrize("text", ["", "1", "0/3", "4/3", "-1/3", "1/0", "1/3/5", "a/b", "1 /3"])
def test_a_share_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="expected I/N with I from 1 to N") as error:
        parse_shard(text)
    assert repr(text) in str(error.value)
    assert "--shard 2/3" in error.value.hint
    assert parse_shard("2/3") == Shard(2, 3)


def estimates(records: list[RunRecord]) -> dict[tuple[str, str], float]:
    return {
        (one.cell.id, case.name): one.seconds
        for case in CASES
        for one in list_work(SPECS, [case], records, device="cpu")
    }


def took(seconds: float, torch: str = "2.6.0", **changes: Any) -> RunRecord:  # noqa: ANN401
    about: dict[str, Any] = {"workload": "ops.one", "variant": "a", "python": "3.12"}
    return make_record(duration_s=seconds, torch=torch, **about | changes)


def test_without_records_all_weigh_the_same() -> None:
    assert set(estimates([]).values()) == {1.0}
    assert len(estimates([])) == len(SPECS) * len(CASES)


def test_an_estimate_is_of_the_cell_then_the_case_then_anything() -> None:
    found = estimates([took(10.0), took(30.0), took(50.0, "2.5.1"), took(7.0, variant="b")])
    one = "ops.one/small/a"
    assert found["py3.12-torch2.6.0", one] == 20.0
    assert found["py3.12-torch2.5.1", one] == 50.0
    assert found["py3.13-torch2.6.0", one] == 30.0
    assert found["py3.13-torch2.6.0", "ops.one/small/b"] == 7.0
    assert found["py3.13-torch2.6.0", "ops.two/small/a"] == 20.0


def test_what_a_gpu_took_says_nothing_of_a_cpu() -> None:
    one = took(100.0)
    gpu = replace(took(1.0), conditions=replace(one.conditions, device="cuda NVIDIA H200"))
    where = ("py3.12-torch2.6.0", "ops.one/small/a")
    assert estimates([one, gpu])[where] == 100.0
    assert estimates([gpu])[where] == 1.0  # the weight of every case without records


def test_a_cell_that_could_not_be_made_is_not_free_but_one_that_does_not_exist_is() -> None:
    where = ("py3.12-torch2.6.0", "ops.one/small/a")
    about: dict[str, Any] = {"workload": "ops.one", "variant": "a", "duration_s": 0.0}
    broken = make_failure("environment", phase="environment", **about)
    assert estimates([broken, took(9.0, "2.5.1")])[where] == 9.0
    gone = make_failure("unavailable", phase="environment", **about)
    assert estimates([gone, took(9.0, "2.5.1")])[where] == 0.0


def test_the_split_is_that_of_the_commit_whatever_was_measured_since(root: Path) -> None:
    records = [
        a_record(root, python=python, torch=torch, workload=workload, duration_s=seconds)
        for (python, torch), seconds in zip(CELLS, (50.0, 5.0, 20.0, 1.0), strict=True)
        for workload in ("ops.one", "ops.two")
    ]
    write_records(root / "results", *records)
    at = commit(root, "records")
    assert len(records_at(root, at)) == len(records)

    def shares() -> list[dict[CellSpec, tuple[str, ...]]]:
        matrix = load_matrix(root / "envs" / "matrix.toml")
        found = []
        for index in (1, 2, 3):
            share: dict[CellSpec, tuple[str, ...]] = {}
            for python in ("3.12", "3.13"):
                request = Request(root=root, python=python, shard=Shard(index, 3))
                mine = cases_of_cells(request, matrix, CASES, at)
                share |= {cell: tuple(case.name for case in of) for cell, of in mine.items()}
            found.append(share)
        return found

    before = shares()
    every = sorted((cell.id, name) for one in before for cell, of in one.items() for name in of)
    assert every == sorted((cell.id, case.name) for cell in SPECS for case in CASES)
    write_records(root / "results", *(replace(record, duration_s=999.0) for record in records[:3]))
    assert shares() == before
    runner = CliRunner()
    listed = []
    for index in (1, 2, 3):
        arguments = ["--suite", "full", "--shard", f"{index}/3", "--commit", at]
        listed.append(json.loads(invoke(root, runner, "matrix", "--json", *arguments))["cells"])
    assert [{row["id"]: set(row["cases"]) for row in rows} for rows in listed] == [
        {cell.id: set(of) for cell, of in share.items()} for share in before
    ]


def test_a_share_is_in_the_order_of_the_whole(root: Path) -> None:
    matrix = load_matrix(root / "envs" / "matrix.toml")
    request = Request(root=root, python="3.12", shard=Shard(1, 1))
    for order in (FULL, FULL[::-1]):
        share = cases_of_cells(request, matrix, order, git(root, "rev-parse", "HEAD"))
        assert list(share.values()) == [order, order]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The cells and cases that bench passes to asv; nothing is measured."""
    asked: list[tuple[str, str]] = []

    def run_asv(
        _: object,
        settings: Settings,
        locks: Sequence[LockState],
        cases: Sequence[Case],
        **__: object,
    ) -> tuple[str, ...]:
        # Cases that the cells of this asv run would measure.
        assert {case.name for case in settings.cases()} == {case.name for case in cases}
        asked.extend((lock.cell.id, case.name) for lock in locks for case in cases)
        return ()

    monkeypatch.setattr(ivhl.bench.main.Executor, "measure", run_asv)
    monkeypatch.setattr(ivhl.bench.main, "save_machine", lambda _: None)
    monkeypatch.setattr(
        ivhl.bench.main, "find_interpreter", lambda *_: SimpleNamespace(path="python")
    )
    return asked


def test_bench_measures_its_share_and_nothing_else(
    root: Path, asked: list[tuple[str, str]]
) -> None:
    times = zip(CELLS, (5.0, 5.0, 500.0, 5.0), strict=True)
    records = [
        a_record(root, python=python, torch=torch, workload="ops.two", duration_s=seconds)
        for (python, torch), seconds in times
    ]
    write_records(root / "results", *records)
    commit(root, "records")
    sizes = []
    for index, python in product((1, 2, 3), ("3.12", "3.13")):
        shard = Shard(index, 3)
        request = Request(
            root=root, python=python, selection=Selection(suite="full"), shard=shard,
            machine=f"m{index}",
        )  # fmt: skip
        done = bench(request, Console(file=StringIO()))
        sizes.append(len(done.cells))
    every = sorted((cell.id, case.name) for cell in SPECS for case in CASES)
    assert sorted(asked) == every
    assert 0 in sizes  # the slow case fills a share, so its machine has no work in 3.12
    asked.clear()
    for python in ("3.12", "3.13"):
        request = Request(root=root, python=python, selection=Selection(suite="full"), machine="m")
        bench(request, Console(file=StringIO()))
    assert sorted(asked) == every


def test_bench_measures_the_core_suite_where_nothing_is_named(
    root: Path, asked: list[tuple[str, str]]
) -> None:
    done = bench(Request(root=root, python="3.12", machine="m"), Console(file=StringIO()))
    names = ("ops.one/small/b", "ops.two/small/a", "ops.three/small/a")
    assert done.cases == names
    assert sorted(asked) == sorted(product(("py3.12-torch2.5.1", "py3.12-torch2.6.0"), names))


@pytest.mark.usefixtures("asked")
def test_bench_asks_what_works_newest_release_first_and_then_how_fast(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ivhl.bench.main, "WORTH_A_LOOK", 3)
    oldest, newest = "py3.12-torch2.5.1", "py3.12-torch2.6.0"
    steps: list[tuple[int, list[str], int]] = []

    def measure(
        _: object,
        settings: Settings,
        locks: Sequence[LockState],
        cases: Sequence[Case],
        **__: object,
    ) -> tuple[str, ...]:
        steps.append((settings.effort.processes, [one.cell.id for one in locks], len(cases)))
        return ("missing",) * (not settings.effort.is_timed)

    def prepare(_: object, locks: Sequence[LockState], *__: object) -> None:
        steps.append((-1, [one.cell.id for one in locks], 0))

    monkeypatch.setattr(ivhl.bench.main.Executor, "measure", measure)
    monkeypatch.setattr(ivhl.bench.main, "warm_cells", prepare)
    full = Request(root=root, python="3.12", selection=Selection(suite="full"), machine="m")
    done = bench(full, Console(file=StringIO()))
    # What only the verdicts lack is missing nowhere.
    assert done.missing == ()
    n = len(FULL)
    last = [(-1, [newest, oldest], 0), (2, [newest, oldest], n)]
    assert steps == [(0, [newest], n), last[0], (0, [oldest], n), last[1]]
    for less in (
        replace(full, selection=Selection()),  # as few as are soon timed
        *(
            replace(full, effort=Effort(**changes))
            for changes in ({"force": True}, {"cold": True}, {"flags": ("inductor.x=1",)})
        ),
    ):
        steps.clear()
        bench(less, Console(file=StringIO()))
        assert [processes for processes, _, _ in steps] == [-1, 2]
    steps.clear()
    here = this_machine("m")
    write_records(
        root / "results",
        *(
            a_record(root, torch=cell.torch, workload=case.workload.name, size=case.size,
                     variant=case.variant.name, machine=here)
            for cell in SPECS if cell.id == newest
            for case in FULL
        ),
    )  # fmt: skip
    bench(full, Console(file=StringIO()))
    assert steps == [last[0], (0, [oldest], n), last[1]]


@pytest.mark.parametrize(
    ("workloads", "variants", "names"),
    [
        ((), ("b", "a"), ["one/b", "one/a", "two/a", "three/a"]),
        ((), ("b", "b"), ["one/b"]),
        (("ops.two", "ops.one"), ("a", "b"), ["two/a", "one/a", "one/b"]),
    ],
)
def test_bench_measures_the_variants_that_are_named(
    root: Path,
    asked: list[tuple[str, str]],
    workloads: tuple[str, ...],
    variants: tuple[str, ...],
    names: list[str],
) -> None:
    request = Request(
        root=root,
        python="3.12",
        machine="m",
        selection=Selection(workloads=workloads, variants=variants),
    )
    done = bench(request, Console(file=StringIO()))
    cases = [f"ops.{name.replace('/', '/small/')}" for name in names]
    cells = [cell.id for cell in SPECS if cell.python == "3.12"]
    assert sorted(asked) == sorted(product(cells, cases))
    assert sorted(done.cases) == sorted(cases)
    options = [word for name in workloads for word in ("--workload", name)]
    options += [word for name in variants for word in ("--variant", name)]
    told = invoke(root, CliRunner(), "matrix", "--json", "--shard=1/1", *options)
    rows = json.loads(told)["cells"]
    assert [sorted(row["cases"]) for row in rows] == [sorted(cases)] * len(CELLS)


def test_a_variant_that_no_workload_has_is_refused_among_others(root: Path) -> None:
    request = Request(
        root=root, python="3.12", machine="m", selection=Selection(variants=("a", "bb"))
    )
    with pytest.raises(UnknownNameError, match="unknown variant 'bb'"):
        bench(request, Console(file=StringIO()))


def test_on_a_gpu_asv_keeps_results_of_their_own(root: Path) -> None:
    project = load_project(root)
    results = Settings.of_checkout(
        root,
        project=project.name,
        workloads=project.workloads,
        machine=this_machine("m"),
        results=root / "results",
        effort=Effort(device="cuda"),
    )
    (root / ".asv").mkdir()
    lock = lock_state(root, SPECS[0])
    for device, variables in (("cuda", {"IVHL_DEVICE": "cuda"}), ("cpu", {})):
        path = write_configuration(root, replace(results, effort=Effort(device=device)), [lock])
        conf = Config.load(str(path))
        (cell,) = iter_matrix("locked", conf.pythons, conf)
        found = {key: value for (kind, key), value in cell.items() if kind == "env_nobuild"}
        assert found == variables


def invoke(root: Path, runner: CliRunner, *arguments: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        return runner.invoke(app, arguments, catch_exceptions=False).stdout


def test_a_commit_without_results_has_no_records(root: Path) -> None:
    assert records_at(root, git(root, "rev-parse", "HEAD")) == ()
    with pytest.raises(SpecError, match="git ls-tree failed"):
        records_at(root, "f" * 40)


def test_a_verdict_does_not_tell_how_long_timing_takes(root: Path) -> None:
    full = a_record(root, workload="ops.one", variant="a", duration_s=500.0)
    for record, seconds in ((full, 500.0), (verdict(full), 1.0)):
        (work,) = list_work([SPECS[1]], [CASES[0]], [record], device="cpu")
        assert work.seconds == seconds


def test_only_a_final_record_as_things_are_now_answers(root: Path) -> None:
    here = a_record(root)
    spec = SPECS[1]
    work = list_work([spec], [CASES[0]], [], device="cpu")

    def stale(*records: RunRecord, machine: str | None = None) -> bool:
        locks = {spec.id: here.cell.lock_sha256}
        left = leave_out_measured(
            work, records, locks=locks, commits={here.commit}, device="cpu", machine=machine
        )
        return left == work

    about = {name: getattr(here, name) for name in ("commit", "cell", "workload_version")}
    about |= {"workload": "ops.one", "variant": "a", "machine": here.machine}
    killed = make_failure("crash", exception="SIGKILL", **about)
    gate = make_failure("support_gate", **about)
    later = "2026-11-21T00:00:00+00:00"
    assert stale()
    assert not stale(here)
    assert not stale(here, machine="box")
    assert stale(here, machine="other")
    assert stale(replace(here, commit="e" * 40))
    assert stale(replace(here, workload_version=1))
    assert stale(replace(here, cell=replace(here.cell, lock_sha256="0" * 64)))
    assert stale(replace(here, cell=replace(here.cell, lock_sha256=None)))
    assert stale(replace(here, conditions=replace(here.conditions, device="cuda X")))
    boxed = replace(here, conditions=replace(here.conditions, image=f"sha256:{'a' * 64}"))
    assert stale(boxed)
    assert stale(here, replace(boxed, recorded_at=later))
    assert not stale(boxed, replace(here, recorded_at=later))
    assert stale(verdict(here))
    assert not stale(verdict(here), replace(here, recorded_at=later))
    assert stale(make_failure("timeout", **about))
    assert not stale(gate)
    assert stale(here, replace(killed, recorded_at=later))
    assert not stale(
        replace(killed, recorded_at=here.recorded_at), replace(here, recorded_at=later)
    )
    assert not stale(here, replace(killed, recorded_at=later, machine=a_record(root, "b").machine))


def test_a_job_per_stale_cell_for_github(root: Path) -> None:
    runner = CliRunner()
    github = ["matrix", "--format", "github", "--stale"]
    text = invoke(root, runner, *github)
    assert text.count("\n") == 1
    assert json.loads(text)["include"][0] == {
        "cell": "py3.12-torch2.5.1",
        "python": "3.12",
        "torch": "2.5.1",
        "arguments": "--torch 2.5.1 --suite core",
    }
    assert len(json.loads(text)["include"]) == len(CELLS)
    measured = [
        a_record(
            root,
            python=python,
            torch=torch,
            workload=case.workload.name,
            variant=case.variant.name,
        )
        for python, torch in CELLS[:2]
        for case in CASES
        if (torch, case.workload.name) != ("2.6.0", "ops.two")
    ]
    write_records(root / "results", *measured)
    commit(root, "records, and nothing else: the code is that of its parent")
    include = json.loads(invoke(root, runner, *github))["include"]
    assert [(job["cell"], job["arguments"]) for job in include] == [
        ("py3.12-torch2.6.0", "--torch 2.6.0 --suite core --workload ops.two"),
        ("py3.13-torch2.5.1", "--torch 2.5.1 --suite core"),
        ("py3.13-torch2.6.0", "--torch 2.6.0 --suite core"),
    ]
    (only,) = json.loads(invoke(root, runner, *github, "--python", "3.12"))["include"]
    assert only["cell"] == "py3.12-torch2.6.0"
    two = invoke(root, runner, *github, "--python=3.13", "--variant=a", "--variant=b")
    assert json.loads(two)["include"][0]["arguments"] == "--torch 2.5.1 --variant a --variant b"
    # The job lists the named cases, even if all cases are to be measured.
    named = invoke(root, runner, *github, "--python=3.13", "--workload=ops.one", "--suite=full")
    assert [job["arguments"] for job in json.loads(named)["include"]] == [
        f"--torch {torch} --suite full --workload ops.one" for torch in ("2.5.1", "2.6.0")
    ]
    (root / "code.py").write_text("new")
    commit(root, "code")
    assert len(json.loads(invoke(root, runner, *github))["include"]) == len(CELLS)


def test_what_cannot_be_installed_is_no_job(root: Path) -> None:
    path = lock_file(root, "3.13", "2.5.1")
    path.unlink()
    matrix = load_matrix(root / "envs" / "matrix.toml")
    digest = matrix_digest(matrix, CellSpec("3.13", "2.5.1"))
    reason = path.with_name(f"{path.stem}.unavailable.txt")
    reason.write_text(f"# Matrix digest: {digest}\n\nno wheels\n")
    github = ["matrix", "--format", "github"]
    jobs = json.loads(invoke(root, CliRunner(), *github))["include"]
    assert [job["cell"] for job in jobs] == [
        f"py{python}-torch{torch}"
        for python, torch in CELLS
        if (python, torch) != ("3.13", "2.5.1")
    ]


def test_nothing_to_do_is_an_empty_matrix(root: Path) -> None:
    write_records(
        root / "results",
        *(
            a_record(
                root, python=python, torch=torch, workload=case.workload.name,
                variant=case.variant.name,
            )
            for python, torch in CELLS
            for case in CASES
        ),
    )  # fmt: skip
    runner = CliRunner()
    text = invoke(root, runner, "matrix", "--format", "github", "--stale")
    assert text == '{"include":[]}\n'
    assert "no cells" in invoke(root, runner, "matrix", "--stale")


def test_more_jobs_than_github_starts_are_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ivhl.bench.work._GITHUB_JOBS", 3)
    with pytest.raises(SpecError, match=r"may have at most 3 jobs \(got 4\)"):
        invoke(root, CliRunner(), "matrix", "--format", "github")


def test_people_see_how_many_cases_a_cell_has(root: Path) -> None:
    text = invoke(root, CliRunner(), "matrix", "--shard", "1/1")
    assert "3: ops.one, ops.two, ops.three" in text
    text = invoke(root, CliRunner(), "matrix", "--shard", "1/1", "--suite", "full")
    assert "4: ops.one, ops.two, ops.three" in text


@given(st.integers(1, 60), st.integers(1, 60))
def test_a_range_is_measured_from_its_ends_inwards(count: int, at_most: int) -> None:
    commits = [str(number) for number in range(count)]
    order = in_turns(commits)
    assert sorted(order, key=int) == commits
    assert order[0] == commits[0]
    assert count == 1 or order[1] == commits[-1]
    some = sorted(map(int, order[:at_most]))
    assert len(some) == min(count, at_most)
    # No gap is more than twice as large as an even spread would have, once both ends are there.
    if len(some) > 1:
        gaps = [b - a for a, b in pairwise(some)]
        assert max(gaps) <= 2 * -(-(count - 1) // (len(some) - 1))


def test_a_range_of_commits_follows_the_first_parents_and_knows_tags(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    a, b, c = make_commits(tmp_path, 3)
    git(tmp_path, "tag", "v1", a)
    git(tmp_path, "tag", "-a", "v2", "-m", "second", c)
    assert commits_of_range(tmp_path, "v1..v2") == (c, b)
    assert commits_of_range(tmp_path, "v1..") == (c, b)
    assert set(commits_of_range(tmp_path, "tags")) == {a, c}
    for text, problem in (
        ("v1", r"must be A\.\.B or tags"),
        ("v1...v2", r"must be A\.\.B or tags"),
        ("v2..v1", "no commit in v2..v1"),
        ("v9..v1", "git knows no commit 'v9'"),
    ):
        with pytest.raises(SpecError, match=problem):
            commits_of_range(tmp_path, text)
