"""``publish`` replaces a site only by a complete one, and omits only bad files."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ivhl.asv.configuration import load_configuration
from ivhl.asv.files import foreign_files
from ivhl.asv.publish import _failed, publish
from ivhl.errors import ResultsError, explained
from ivhl.pages.build import MADE_FROM
from ivhl.records.files import append_record, record_file
from ivhl.tracker.views.facts import fact_groups
from studies.stored import load_records
from tests.builders.history import note_change
from tests.builders.project import git, make_commits, make_project, write_asv_results
from tests.builders.records import interval, make_failure, make_record

if TYPE_CHECKING:
    from datetime import tzinfo

    from ivhl.records.record import RunRecord


def configure(root: Path, **changes: object) -> None:
    path = root / "asv.conf.json"
    text = path.read_text()
    conf = json.loads(text.partition("\n")[2])
    path.write_text("// as people write it\n" + json.dumps(conf | changes))


def leftovers(root: Path) -> list[str]:
    return [path.name for path in root.iterdir() if path.name.startswith((".site", "site."))]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_project(tmp_path)
    return tmp_path


def test_unreadable_results_are_named_and_all_others_published(root: Path) -> None:
    bench = root / "results" / "bench"
    good = sorted(bench.glob("*-locked-*.json"))
    torn = good[0]
    torn.write_text(torn.read_text()[:100])
    infinite = good[1]
    data = json.loads(infinite.read_text())
    (name,) = data["results"]
    column = data["result_columns"].index("result")
    data["results"][name][column][0] = float("inf")
    infinite.write_text(json.dumps(data))
    record_file = min(bench.glob("records/*.jsonl"))
    record_file.write_text("{}\n" + record_file.read_text())
    other = root / "results" / "other"
    other.mkdir()
    (other / "machine.json").write_text("no json")
    before = {p: p.read_bytes() for p in (root / "results").rglob("*") if p.is_file()}

    published = publish(root, root / "site")

    told = {problem.partition(": ")[0] for problem in published.problems}
    assert told == {
        f"results/bench/{torn.name}",
        f"results/bench/{infinite.name}",
        f"results/bench/records/{record_file.name}:1",
        "results/other/machine.json",
    }
    assert before == {p: p.read_bytes() for p in (root / "results").rglob("*") if p.is_file()}
    rows = json.loads((root / "site" / "compatibility.json").read_text())["rows"]
    assert sum(row["status"] in ("works", "noisy") for row in rows) == 32
    page = (root / "site" / "index.html").read_text()
    assert torn.name in page
    assert str(root) not in page
    index = json.loads((root / "site" / "asv" / "index.json").read_text())
    assert list(index["machines"]) == ["bench"]
    assert len(index["graph_param_list"]) == 15 + 3  # theirs by release, ours with all


def test_a_failed_publish_keeps_the_old_site_and_reports_why(root: Path) -> None:
    publish(root, root / "site", asv=False)
    (root / "site" / "mark").touch()
    configure(root, plugins=[".ivhl.asv", ".no_such_plugin"])
    with pytest.raises(ResultsError, match="no_such_plugin") as error:
        publish(root, root / "site", asv=True)
    assert "the earlier site" in error.value.hint
    assert (root / "site" / "mark").exists()
    assert leftovers(root) == []
    publish(root, root / "site", asv=False)
    assert not (root / "site" / "mark").exists()
    assert leftovers(root) == []


def test_a_site_that_cannot_be_replaced_is_kept(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(root, root / "site", asv=False)
    (root / "site" / "mark").touch()

    def refuse(*_: object) -> bool:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("ivhl.pages.folder._exchanged", refuse)
    with pytest.raises(ResultsError, match="Operation not permitted"):
        publish(root, root / "site", asv=False)
    assert (root / "site" / "mark").exists()
    assert leftovers(root) == []


@pytest.mark.parametrize("asv", [True, False])
def test_a_full_disk_is_told_in_a_sentence(root: Path, tmp_path: Path, asv: bool) -> None:  # noqa: FBT001
    """Whether asv fills it or our pages do."""
    small = tmp_path / "small"
    small.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={'300k' if asv else '20k'}", "tmpfs", str(small)],
        check=False,
        capture_output=True,
    )
    if mount.returncode:
        pytest.skip("needs the right to mount a tmpfs: " + mount.stderr.decode().strip())
    try:
        with pytest.raises((ResultsError, OSError), match="No space left on device") as full:
            publish(root, small / "site", asv=asv)
        told = explained(full.value)
        assert "Traceback" not in str(told)
        assert len(str(told).splitlines()) == 1
        assert "make room, there or in TMPDIR" in told.hint
        assert [path.name for path in small.iterdir()] == []
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_of_a_traceback_only_what_it_says_is_shown() -> None:
    text = (
        "making graphs\nTraceback (most recent call last):\n  File 'x'\n    y\nValueError: no z\n"
    )
    error = _failed(text, "ended with 1")
    assert str(error) == "asv publish ended with 1:\nValueError: no z"
    assert "earlier site" in error.hint
    assert str(_failed("a\nb\n", "did not link our pages")).endswith(":\na\nb")


def test_a_copy_that_met_a_full_disk_is_told_in_a_sentence() -> None:
    error = shutil.Error([("a", "b", "[Errno 28] No space left on device: 'b'")])
    told = explained(error)
    assert (str(told), told.exit_code) == ("b: No space left on device", 5)
    assert told.hint.startswith("make room")


def test_a_hanging_publish_is_killed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ivhl.asv.publish._LONGEST_S", 0.2)
    with pytest.raises(ResultsError, match=r"did not end within 0\.2 s"):
        publish(root, root / "site", asv=True)
    assert leftovers(root) == []
    assert not (root / "site").exists()
    # Where nobody asked for asv's pages, ours do without them.
    done = publish(root, root / "site")
    assert "asv publish failed" in done.problems[0]
    assert (done.asv, done.renewed) == ("", False)
    assert (root / "site" / "index.html").is_file()
    assert not (root / "site" / "asv").exists()
    assert leftovers(root) == []


def test_a_configuration_of_other_benchmarks_gives_what_it_says_of_the_project(root: Path) -> None:
    configure(root, plugins=[], branches=["feature"], results_dir="theirs", html_dir="pages")
    conf = load_configuration(root)
    assert conf["branches"] == ["feature"]
    assert (conf["results_dir"], conf["html_dir"]) == (
        str(root / "results"),
        str(root / ".asv/html"),
    )
    assert conf["plugins"] == [".ivhl.asv"]


def test_asvs_pages_are_kept_until_they_are_asked_for(root: Path) -> None:
    first = publish(root, root / "site")
    assert first.renewed
    index = root / "site" / "asv" / "index.json"
    before = index.stat().st_ino
    kept = publish(root, root / "site")
    assert not kept.renewed
    assert kept.asv == first.asv
    assert index.stat().st_ino == before
    assert first.asv in (root / "site" / "asv.html").read_text()
    assert publish(root, root / "site", asv=True).renewed
    assert index.stat().st_ino != before
    shutil.rmtree(root / ".asv")
    without = publish(root, root / "site", asv=False)
    assert (without.asv, index.exists()) == ("", False)
    assert "This site has none" in (root / "site" / "asv.html").read_text()


def test_a_new_site_gets_asvs_pages_only_where_they_take_seconds(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ivhl.asv.publish._FEW_FILES", 3)
    assert not publish(root, root / "site").renewed
    assert not (root / "site" / "asv").exists()


def test_a_folder_that_is_not_a_site_is_not_replaced(root: Path) -> None:
    precious = root / "site" / "thesis.tex"
    precious.parent.mkdir()
    precious.touch()
    with pytest.raises(ResultsError, match="not a site made by asv"):
        publish(root, root / "site")
    assert precious.exists()


def test_another_branch_is_published(root: Path) -> None:
    git(root, "checkout", "-q", "-b", "feature")
    (commit,) = make_commits(root, 1)
    write_asv_results(root, [make_record(commit=commit, workload="ops.field_superposition")])
    configure(root, branches=["main", "gone"])
    published = publish(root, root / "site")
    index = json.loads((root / "site" / "asv" / "index.json").read_text())
    assert index["params"]["branch"] == ["main", "feature"]
    assert published.off_branch == ()


def test_commits_on_no_published_branch_are_named(root: Path) -> None:
    git(root, "checkout", "-q", "-b", "feature")
    (commit,) = make_commits(root, 1)
    write_asv_results(root, [make_record(commit=commit, workload="ops.field_superposition")])
    git(root, "checkout", "-q", "main")
    assert publish(root, root / "site").off_branch == (commit[:8],)


def test_a_site_can_be_built_from_records_alone(root: Path) -> None:
    for path in (root / "results").rglob("*.json"):
        path.unlink()
    assert publish(root, root / "site").problems == ()
    rows = json.loads((root / "site" / "compatibility.json").read_text())["rows"]
    assert any(row["status"] == "works" for row in rows)
    assert not (root / "results" / "benchmarks.json").exists()


def test_a_project_needs_no_configuration_of_asv(root: Path) -> None:
    (root / "asv.conf.json").unlink()
    publish(root, root / "site")
    index = json.loads((root / "site" / "asv" / "index.json").read_text())
    assert (index["project"], index["params"]["branch"]) == ("demo", ["main"])


def test_a_project_in_a_folder_of_its_repository_is_built_there(root: Path) -> None:
    inner = root / "packages" / "demo"
    (inner / "envs").mkdir(parents=True)
    for name in ("pyproject.toml", "envs/matrix.toml"):
        (inner / name).write_text((root / name).read_text())
    conf = load_configuration(inner)
    assert (conf["repo"], conf["repo_subdir"]) == (str(root), "packages/demo")


def test_an_unwritable_output_is_named(root: Path) -> None:
    with pytest.raises(ResultsError, match="cannot create a folder in /proc"):
        publish(root, Path("/proc/site"))


def commits_of(root: Path) -> list[str]:
    return git(root, "log", "--format=%H").split()


def files_of(site: Path) -> dict[str, bytes]:
    return {f"{p.relative_to(site)}": p.read_bytes() for p in site.rglob("*") if p.is_file()}


# Publishes, and kills itself when it calls one of its functions for the n-th time.
KILLED = """
import importlib, os, signal, sys
from pathlib import Path
from ivhl.asv.publish import publish

root, module, name, n = Path(sys.argv[1]), *sys.argv[2:4], int(sys.argv[4])
module = importlib.import_module(module)
real, calls = getattr(module, name), []

def deadly(*arguments, **options):
    calls.append(name)
    if len(calls) == n:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments, **options)

setattr(module, name, deadly)
publish(root, root / "site")
"""


@pytest.mark.parametrize(
    ("module", "name", "n"),
    [
        pytest.param("ivhl.pages.build", "_linked", 1, marks=pytest.mark.full),
        ("ivhl.pages.build", "_linked", 90),
        ("ivhl.asv.publish", "exchange", 1),
    ],
)
def test_a_publish_that_is_killed_leaves_the_old_site_whole(
    root: Path, module: str, name: str, n: int
) -> None:
    publish(root, root / "site", asv=False)
    before = files_of(root / "site")
    more = make_record(commit=commits_of(root)[0], workload="ops.mera_layer")
    append_record(record_file(root / "results", "bench", more.commit, more.cell.id), more)
    words = [sys.executable, "-c", KILLED, str(root), module, name, str(n)]
    done = subprocess.run(words, check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert files_of(root / "site") == before
    assert leftovers(root)
    publish(root, root / "site", asv=False)
    assert leftovers(root) == []


def test_a_record_that_stops_the_pages_half_way_changes_no_file_of_the_old_site(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is unchanged is a link into the old site: nothing may be written through it."""
    publish(root, root / "site", asv=False)
    before = files_of(root / "site")
    shutil.copytree(root / "site", root / "kept", copy_function=os.link)

    def fails(record: RunRecord, *more: Any) -> Any:  # noqa: ANN401
        if (record.cell.id, record.variant) == ("py3.14-torch2.9.1", "real-compiled"):
            raise OverflowError("int too large to convert to float")
        return fact_groups(record, *more)

    monkeypatch.setattr("ivhl.tracker.views.case.fact_groups", fails)
    monkeypatch.setattr("ivhl.pages.build.code_digest", lambda: "another")
    done = publish(root, root / "site", asv=False)
    assert any("cannot be shown: OverflowError" in problem for problem in done.problems)
    assert files_of(root / "kept") == before
    assert "cannot be shown" in (root / "site" / "index.html").read_text()


def test_two_publishes_at_once_leave_a_whole_site(root: Path) -> None:
    script = "import sys; from pathlib import Path; from ivhl.asv.publish import publish; "
    script += "[publish(Path(sys.argv[1]), Path(sys.argv[1]) / 'site', asv=False) for _ in 'abc']"
    words = [sys.executable, "-c", script, str(root)]
    both = [subprocess.Popen(words, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    assert [one.communicate()[1] for one in both] == ["", ""]
    assert [one.returncode for one in both] == [0, 0]
    publish(root, root / "alone", asv=False)
    alone = files_of(root / "alone")
    together = files_of(root / "site")
    assert together.keys() == alone.keys()
    differ = {path for path in alone if alone[path] != together[path]}
    assert differ <= {"index.html"}  # it says when it was built
    assert leftovers(root) == []


class Noon(datetime):
    """A clock that stands still: pages say when they were made."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        """Return the same time, whenever it is."""
        return datetime(2026, 11, 23, 12, tzinfo=tz)


def change_results(root: Path, change: str, draw: random.Random) -> None:
    """Do to the results what happens to those of a project."""
    results = root / "results"
    stored = load_records(results).records
    at = f"2026-11-2{draw.randrange(3)}T00:{draw.randrange(60):02d}:00+00:00"
    if change == "another commit":
        (commit,) = make_commits(root, 1)
        some = draw.sample(stored, len(stored) // 3)
        more = [
            replace(one, commit=commit, recorded_at=at, sources=f"{draw.randrange(3):064x}")
            for one in some
        ]
    elif change == "measured again":
        more = [
            replace(one, recorded_at=at, speedup=interval(draw.uniform(0.5, 3)))
            for one in draw.sample([one for one in stored if one.speedup], 20)
        ]
    elif change == "stands for another commit":
        (commit,) = make_commits(root, 1)
        more = [replace(one, commit=commit, same_as=one.commit) for one in stored[::3]]
    elif change == "another machine":
        machine = replace(stored[0].machine, name="another")
        more = [replace(one, machine=machine, recorded_at=at) for one in stored[::5]]
    elif change == "fails":
        gone = make_failure("crash", commit=commits_of(root)[0], recorded_at=at)
        more = [replace(gone, workload=one.workload, variant=one.variant) for one in stored[::40]]
    elif change == "a lost file":
        draw.choice(sorted(results.glob("*/records/*.jsonl"))).unlink()
        more = []
    else:
        note_change(root, commit=commits_of(root)[0], reason="so")
        more = []
    draw.shuffle(more)
    for one in more:
        append_record(record_file(results, one.machine.name, one.commit, one.cell.id), one)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.full)])
def test_a_site_that_was_published_after_each_change_is_the_one_published_at_once(
    root: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    """To the byte, and with an index that was made at once, whatever happened in whatever order."""
    monkeypatch.setattr("ivhl.asv.publish.datetime", Noon)
    monkeypatch.setattr("ivhl.tracker.views.case.POINTS_OF_A_FILE", 2)
    draw = random.Random(seed)  # noqa: S311  (which changes, in which order)
    changes = [
        "another commit", "measured again", "stands for another commit", "another machine",
        "fails", "a lost file", "annotated", "another commit",
    ]  # fmt: skip
    draw.shuffle(changes)
    for number, change in enumerate(changes):
        change_results(root, change, draw)
        if number % 2:
            publish(root, root / "site", asv=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("another cache")))
    publish(root, root / "at once", asv=False)
    one_by_one, at_once = files_of(root / "site"), files_of(root / "at once")
    assert one_by_one.keys() == at_once.keys()
    differ = {path for path in at_once if one_by_one[path] != at_once[path]}
    assert differ <= {MADE_FROM}  # it says which index the runs are in
    # Nor does it hang on whether the index was just brought up to date, and has records in memory.
    publish(root, root / "again", asv=False)
    assert files_of(root / "again") == at_once


def test_files_of_the_project_in_its_results_are_named(root: Path) -> None:
    for name in ("metrics.json", "run-1/metrics.json", "benchmarks/deep/x.json"):
        path = root / "results" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"accuracy": 0.9')
    assert [path.name for path in foreign_files(root / "results")] == [
        "x.json", "metrics.json", "metrics.json",
    ]  # fmt: skip
