"""asv's own commands read our records beside the project's asv suite, and leave our site alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from ivhl.asv.files import OwnSuite
from ivhl.asv.publish import publish
from ivhl.cli import app
from ivhl.errors import ResultsError
from ivhl.measure.suite import operation_of
from ivhl.records.files import append_record, record_file
from ivhl.tracker.views.project import load_state
from ivhl.tracker.views.source import Source
from ivhl.workload import load_workloads
from studies.stored import load_records
from tests.builders.project import BENCHMARK, git, make_project
from tests.builders.records import make_failure, make_record

if TYPE_CHECKING:
    from ivhl.records.record import RunRecord

HERE = Path(__file__).parents[2]
SPEEDUP = "condensate.gp_evolve.track_speedup"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project in which ``asv publish`` has written its pages."""
    root = tmp_path_factory.mktemp("project")
    make_project(root)
    assert asv(root, "publish", "--no-pull").returncode == 0
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_project(tmp_path)
    return tmp_path


def asv(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(HERE), "HOME": str(root), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "asv", *arguments]
    return subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, check=False
    )


def index_of(root: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((root / "html" / "index.json").read_text())
    return data


def verdicts(site: Path) -> list[dict[str, Any]]:
    listed = json.loads((site / "regressions.json").read_text())["regressions"]
    return [item[7] for item in listed if len(item) > 7]


def add(root: Path, *records: RunRecord) -> None:
    for record in records:
        path = record_file(root / "results", record.machine.name, record.commit, record.cell.id)
        append_record(path, record)


def test_each_workload_and_metric_is_a_benchmark_with_the_core_variant_first(
    published: Path,
) -> None:
    index = index_of(published)
    ours = {name: one for name, one in index["benchmarks"].items() if "failures" in one}
    assert len(ours) == 3 * 7
    assert ours[SPEEDUP]["param_names"] == ["size", "variant", "torch"]
    assert ours[SPEEDUP]["params"] == [
        ["'small'"],
        ["'real-compiled'", "'naive-compiled'"],
        ["'2.4.1'", "'2.5.1'", "'2.6.0'", "'2.8.0'", "'2.9.1'"],
    ]
    assert [name for name, one in ours.items() if one["grid"]] == [
        SPEEDUP, "field.field_superposition.track_speedup", "molecules.energy_forces.track_speedup",
    ]  # fmt: skip


def test_every_graph_that_the_index_names_is_there_and_a_failure_is_a_one(published: Path) -> None:
    index = index_of(published)
    failed = Counter[float]()
    for name, one in index["benchmarks"].items():
        for number in one.get("graphs", ()):
            params = index["graph_param_list"][number]
            parts = sorted(f"{k}-{'null' if v is None else v}" for k, v in params.items())
            graph = published.joinpath("html", "graphs", *parts, f"{name}.json")
            points = json.loads(graph.read_text())
            assert [revision for revision, _ in points] == sorted(
                revision for revision, _ in points
            )
            if name.endswith(".track_failed"):
                failed.update(
                    value for _, values in points for value in values if value is not None
                )
    records = load_records(published / "results").records
    assert failed[1] == sum(r.failure is not None for r in records) > 0
    assert failed[0] == sum(r.failure is None for r in records)


def test_releases_are_in_the_order_of_their_versions(root: Path) -> None:
    commit = git(root, "rev-parse", "HEAD")
    add(root, make_record(commit=commit, torch="2.10.0", variant="real-compiled"))
    assert asv(root, "publish", "--no-pull").returncode == 0
    torches = index_of(root)["benchmarks"][SPEEDUP]["params"][2]
    assert torches[-2:] == ["'2.9.1'", "'2.10.0'"]


def test_the_sparkline_is_of_the_newest_default_cell_and_the_grid_counts_what_fails(
    published: Path,
) -> None:
    grid = index_of(published)["benchmarks"][SPEEDUP]["grid"]
    assert grid["name"] == "gp_evolve"
    where = "small, real-compiled, bench, Python 3.14, PyTorch 2.9.1"
    assert grid["where"] == f"{where}; drawn along commits"
    assert grid["failed"] == "fails in 6 of 15 cells"
    points = json.loads((published / f"html/graphs/summary/{SPEEDUP}.json").read_text())
    assert len(points) == 4
    assert points[-1][1] == pytest.approx(1.2, rel=0.1)
    start = index_of(published)["benchmarks"]["condensate.gp_evolve.track_failed"]["start"]
    assert start["torch"]["python"] == ["3.12", "3.13", "3.14"]
    assert start["axis"] == "commit"


def test_a_sparkline_of_few_commits_is_drawn_along_releases(root: Path) -> None:
    for path in (root / "results").rglob("*.jsonl"):
        path.unlink()
    commit = git(root, "rev-parse", "HEAD")
    for torch, speedup in (("2.9.1", 2.0), ("2.15.0", 4.0), ("2.10.0", 3.0)):
        made = make_record(torch=torch, speedup=speedup, workload="ops.gp_evolve")
        add(root, replace(made, commit=commit, variant="real-compiled"))
    assert asv(root, "publish", "--no-pull").returncode == 0
    page = index_of(root)["benchmarks"][SPEEDUP]
    assert page["start"]["axis"] == "torch"
    assert page["grid"]["where"].endswith("PyTorch 2.9.1; drawn along releases")
    points = json.loads((root / f"html/graphs/summary/{SPEEDUP}.json").read_text())
    assert [value for _, value in points] == pytest.approx([2.0, 3.0, 4.0])


def test_a_failed_cell_says_why(published: Path) -> None:
    listed = json.loads((published / "html/failures/condensate.gp_evolve.json").read_text())
    founding = [f for f in listed if (f["python"], f["torch"]) == ("3.13", "2.5.1") and f["now"]]
    assert {f["variant"] for f in founding} == {"real-compiled", "naive-compiled"}
    assert "Dynamo is not supported on Python 3.13+" in founding[0]["why"]


@pytest.mark.parametrize("how", ["asv publish", "ivhl publish"])
def test_the_list_is_that_of_ivhl_regressions_entry_by_entry(
    root: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    commit = git(root, "rev-parse", "HEAD~1")
    add(root, make_failure("wrong", commit=commit, torch="2.8.0", variant="real-compiled"))
    if how == "asv publish":
        assert asv(root, "publish", "--no-pull").returncode == 0
        site = root / "html"
    else:
        site = publish(root, root / "site", asv=True).output / "asv"
    monkeypatch.chdir(root)
    done = CliRunner().invoke(app, ["regressions", "--json"])
    changes = [change for one in json.loads(done.stdout)["incidents"] for change in one["changes"]]
    assert {change["along"] for change in changes} == {"commit", "torch", "python"}
    found = verdicts(site)
    assert len(found) == len(changes)
    for ours, change in zip(found, changes, strict=True):
        for key in ("kind", "state", "along", "reason", "at"):
            assert ours[key] == change[key]
        if change["along"] != "python":  # a page may begin with the other axis
            assert f"x-axis={change['along']}" in ours["url"]
        short = 8 if change["along"] == "commit" else None
        assert change["before"][:short] in ours["place"]
        assert change["place"][:short] in ours["place"]
        if change["effect"] is not None:
            assert ours["factor"] == f"{change['effect']:.2f}x {change['effect_of']}"


def test_an_empty_list_is_a_list(root: Path) -> None:
    shutil.rmtree(root / "results")
    add(root, make_record(commit=git(root, "rev-parse", "HEAD")))
    assert asv(root, "publish", "--no-pull").returncode == 0
    assert json.loads((root / "html/regressions.json").read_text()) == {"regressions": []}


def test_a_suite_of_the_project_stands_beside_ours(published: Path) -> None:
    index = index_of(published)
    assert BENCHMARK in index["benchmarks"]
    theirs = [p for p in index["graph_param_list"][: index["theirs"]] if p["device"] is None]
    assert len(theirs) == index["theirs"] == 15
    assert SPEEDUP in index["benchmarks"]


@pytest.mark.parametrize(
    ("folder", "suffix"),
    [
        pytest.param(".", "json", marks=pytest.mark.full),
        (".", "jsonc"),
        ("asv_suite", "json"),
    ],
)
def test_a_configuration_beside_the_suite_is_found_by_both_commands(
    root: Path, folder: str, suffix: str
) -> None:
    conf = {
        "version": 1,
        "project": "demo",
        "repo": "." if folder == "." else "..",
        "branches": ["HEAD"],
        "plugins": [".ivhl.asv"],
        "matrix": {"numpy": []},
        "environment_type": "virtualenv",
    }
    (root / "asv.conf.json").unlink()
    (root / folder).mkdir(exist_ok=True)
    (root / folder / f"asv.conf.{suffix}").write_text("// theirs\n" + json.dumps(conf))
    if folder != ".":
        (root / "results" / "benchmarks.json").rename(root / "moved.json")
        (root / folder / "results").mkdir()
        (root / "moved.json").rename(root / folder / "results" / "benchmarks.json")
        for path in [*root.glob("results/bench/*.json")]:
            target = root / folder / path.relative_to(root)
            target.parent.mkdir(exist_ok=True)
            path.rename(target)
    assert asv(root / folder, "publish", "--no-pull").returncode == 0
    names = set(index_of(root / folder)["benchmarks"])
    assert {BENCHMARK, SPEEDUP} <= names
    publish(root, root / "site", asv=True)
    assert set(json.loads((root / "site/asv/index.json").read_text())["benchmarks"]) == names


def test_without_a_commit_asv_says_so_in_a_sentence(root: Path) -> None:
    """It ended with a traceback of asv, about `git rev-list --first-parent master`."""
    git(root, "checkout", "-q", "--orphan", "new")
    git(root, "branch", "-q", "-D", "main")
    done = asv(root, "publish", "--no-pull")
    said = done.stdout + done.stderr
    assert done.returncode
    assert "Traceback" not in said
    assert "no commit yet; next: commit the project first" in said


def test_asv_never_writes_into_our_site(root: Path) -> None:
    site = publish(root, root / "site").output
    before = {path: path.read_bytes() for path in site.rglob("*") if path.is_file()}
    conf = root / "asv.conf.json"
    conf.write_text(conf.read_text().replace('"version": 1', '"html_dir": "site", "version": 1'))
    said = asv(root, "publish", "--no-pull")
    assert said.returncode == 0
    assert "site is the site of ivhl publish" in said.stdout
    assert before == {path: path.read_bytes() for path in site.rglob("*") if path.is_file()}
    assert (root / ".asv" / "html" / "index.html").is_file()
    assert "has no site; next: asv publish" in asv(root, "preview", "-o", "none").stdout


def test_asv_deletes_no_folder_that_it_did_not_make(root: Path) -> None:
    precious = root / "html" / "thesis.tex"
    precious.parent.mkdir()
    precious.touch()
    said = asv(root, "publish", "--no-pull")
    assert said.returncode == 1
    assert "is not a site made by asv" in said.stdout
    assert "next: choose another folder" in said.stdout
    conf = root / "asv.conf.json"
    conf.write_text(conf.read_text().replace('"version": 1', '"html_dir": "html", "version": 1'))
    with pytest.raises(ResultsError, match="is not a site made by asv"):
        publish(root, root / "site", asv=True)
    assert precious.exists()


def test_two_publishes_at_once_leave_one_whole_site(root: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda _: asv(root, "publish", "--no-pull"), range(2)))
    assert [one.returncode for one in done] == [0, 0], done
    assert (root / "html" / "asv.js").is_file()
    assert SPEEDUP in index_of(root)["benchmarks"]


def test_asv_reads_our_records_wherever_its_own_results_are(root: Path) -> None:
    path = root / "asv.conf.json"
    conf = json.loads(path.read_text().split("\n", 1)[1]) | {"results_dir": ".asv/own"}
    path.write_text(json.dumps(conf))
    assert asv(root, "publish", "--no-pull").returncode == 0
    assert SPEEDUP in index_of(root)["benchmarks"]


@pytest.mark.parametrize(
    ("key", "value"), [("html_dir", 3), ("results_dir", 7), ("hash_length", "8")]
)
def test_asv_refuses_what_ivhl_refuses_of_its_configuration(
    root: Path, key: str, value: object
) -> None:
    path = root / "asv.conf.json"
    path.write_text(json.dumps(json.loads(path.read_text().split("\n", 1)[1]) | {key: value}))
    done = asv(root, "publish", "--no-pull")
    assert done.returncode
    assert "Traceback" not in done.stdout + done.stderr
    assert key in done.stdout + done.stderr


def test_a_character_that_nobody_sees_is_written_out(root: Path) -> None:
    commit = git(root, "rev-parse", "HEAD")
    failed = make_failure("wrong", commit=commit, workload="ops.hidden")
    assert failed.failure
    message = f"a{chr(0x200B)}b"
    add(root, replace(failed, failure=replace(failed.failure, message=message)))
    assert asv(root, "publish", "--no-pull").returncode == 0
    (listed,) = json.loads((root / "html/failures/ops.hidden.json").read_text())
    assert chr(0x200B) not in listed["why"]
    assert "200b" in listed["why"]


def test_a_workload_that_was_renamed_keeps_its_history(root: Path) -> None:
    commit = git(root, "rev-parse", "HEAD")
    add(root, make_record(commit=commit, workload="ops.old_name", variant="gone", size="vast"))
    assert asv(root, "publish", "--no-pull").returncode == 0
    one = index_of(root)["benchmarks"]["ops.old_name.track_speedup"]
    assert one["params"] == [["'vast'"], ["'gone'"], ["'2.6.0'"]]
    assert one["grid"]["where"].startswith("vast, gone, ")


def test_commits_that_are_not_in_the_clone_and_newer_records_stop_nothing(root: Path) -> None:
    add(root, make_record(commit="ab" * 20, workload="ops.lost"))
    newer = root / "results" / "bench" / "records" / "newer.jsonl"
    newer.write_text('{"schema": "ivhl.run/99"}\n')
    done = asv(root, "publish", "--no-pull")
    assert done.returncode == 0
    assert "abababab" in done.stdout  # asv names what it leaves out
    assert "newer.jsonl:1" in done.stdout
    one = index_of(root)["benchmarks"]["ops.lost.track_failed"]
    assert one["graphs"] == []
    assert SPEEDUP in index_of(root)["benchmarks"]


def test_a_hundred_workloads_of_ten_variants_are_seven_hundred_benchmarks(root: Path) -> None:
    commit = git(root, "rev-parse", "HEAD")
    record = make_record(commit=commit)
    add(
        root,
        *(
            replace(record, workload=f"many.w{n}", variant=f"v{variant}")
            for n in range(100)
            for variant in range(10)
        ),
    )
    assert asv(root, "publish", "--no-pull").returncode == 0
    many = [name for name in index_of(root)["benchmarks"] if name.startswith("many.")]
    assert len(many) == 700
    (path,) = (root / "html/graphs").glob("**/python-3.12/**/many.w7.track_speedup.json")
    ((_, values),) = json.loads(path.read_text())
    assert len(values) == 10
    assert None not in values


def test_two_workloads_of_one_short_name_stay_apart() -> None:
    records = [make_record(workload=name) for name in ("a-b.one", "a_b.one")]
    names = [operation.name for operation in OwnSuite(records, ()).records]
    assert names == ["a_b.one", "a_b.one_"]


def test_asvs_subjects_are_those_of_our_pages() -> None:
    source = Source(load_state(HERE, HERE / "nothing"))
    for workload in load_workloads("benchmarks"):
        name = operation_of(workload.name, workload).name
        assert name.partition(".")[0] == source.subject(workload.name)
