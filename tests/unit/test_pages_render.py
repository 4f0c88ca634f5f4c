"""Pages load only files of the site, escape foreign text, and stay within their budgets."""

from __future__ import annotations

import errno
import hashlib
import html
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from ivhl.cli.options import address_of
from ivhl.errors import ResultsError, SpecError
from ivhl.matrix.spec import CellSpec
from ivhl.pages import build
from ivhl.pages.build import MADE_FROM, SiteFile, write_pages
from ivhl.pages.render import _TEMPLATES, TABS, data_script
from ivhl.records.files import append_record, record_file
from ivhl.records.record import Cell, Counted, Interval, RecordedObservation
from ivhl.records.text import visible, visible_json
from ivhl.tracker.store.entries import recorded
from ivhl.tracker.support.compat import compat_json
from ivhl.tracker.views.project import State, load_state
from ivhl.tracker.views.source import Source
from ivhl.workload import Case, Variant, core_cases, load_workloads
from tests.builders.history import history
from tests.builders.project import make_commits, make_project
from tests.builders.records import EMPTY_WORKLOAD, UNSEEN, make_failure, make_record, whole
from tests.builders.site import site_files

if TYPE_CHECKING:
    from pathlib import Path

    from ivhl.records.record import RunRecord

COMMITS = ("a" * 40, "b" * 40)
HOSTILE = ["<script>alert(1)</script>", '"><img src=x onerror="alert(1)">', "</pre></dialog><b>"]
DOCUMENTATION = "https://ivhl.github.io/ivhl/docs/"
VENDOR = files("ivhl.pages").joinpath("static", "vendor")
ROW = re.compile(r"^\| `(?P<name>[^`]+)` \|.*\| `(?P<digest>[0-9a-f]{64})` \|$", re.MULTILINE)
# Budgets, in bytes and elements: of what a page needs to be seen, of any page, of any page; of what
# a click loads; of a case in a cell, for programs.
FIRST_VIEW, A_PAGE, ELEMENTS = 300_000, 1_000_000, 6_000
A_CLICK, A_ROW = 300_000, 1_000


def source_of(*records: RunRecord, **changes: Any) -> Source:  # noqa: ANN401  (fields of the state)
    state = State(
        name="demo",
        recorded=tuple(map(recorded, records)),
        problems=(),
        cells=(),
        releases=None,
        unavailable={},
        workloads=(),
        cases=(),
        commit_order=COMMITS,
    )
    return Source(replace(state, **changes), "now")


def site_of(*records: RunRecord, **changes: Any) -> dict[str, bytes]:  # noqa: ANN401
    return site_files(source_of(*records, **changes))


def pages_of(site: dict[str, bytes]) -> dict[str, Structure]:
    return {
        path: Structure(data.decode()) for path, data in site.items() if path.endswith(".html")
    }


class Structure(HTMLParser):
    """Collects elements, attributes, ids and links of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect an element and its attributes."""
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def values(self, name: str) -> list[str]:
        """Return the values of every attribute of this name."""
        return [value for key, value in self.attributes if key == name]


@pytest.mark.parametrize("text", HOSTILE)
def test_foreign_text_is_escaped(text: str) -> None:
    def site(inserted: str) -> dict[str, bytes]:
        failed = make_failure(
            "crash", inserted, exception=inserted, output_tail=inserted, python="3.13"
        )
        warned = make_record(warnings=(Counted(text=inserted, count=1),), command=inserted)
        return site_of(failed, warned, problems=(inserted,))

    harmless, hostile = pages_of(site("harmless")), pages_of(site(text))
    assert harmless.keys() == hostile.keys()
    for path, page in harmless.items():
        assert hostile[path].tags == page.tags, path
        assert not [name for name, _ in hostile[path].attributes if name.startswith("on")]
    for path, data in site(text).items():
        if path.startswith("data/"):  # JSON in ASCII as an argument, and nothing else
            call = re.fullmatch(r"site\.give\((\".*?\"),(.*)\);\n", data.decode("ascii"))
            assert call, path
            json.loads(call[2])


def test_pages_load_only_files_of_the_site_and_run_no_script_but_these() -> None:
    site = site_of(*history(COMMITS))
    for path, page in pages_of(site).items():
        root = "../" * path.count("/")
        for source in page.values("src"):
            assert source.removeprefix(root).partition("?")[0] in site, (path, source)
        (policy,) = (v for v in page.values("content") if "default-src" in v)
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert not [n for n, _ in page.attributes if n == "style" or n.startswith("on")]
    assert b"url(" not in site["site.css"]
    assert b"@import" not in site["site.css"]
    ours = (data for path, data in site.items() if path.endswith(".js") and "/" not in path)
    for script in ours:
        assert not re.search(rb"innerHTML|insertAdjacentHTML|\beval\b|document\.write", script)


def test_every_link_between_pages_has_a_target() -> None:
    site = site_of(*history(COMMITS))
    pages = pages_of(site)
    for path, page in pages.items():
        ids = page.values("id")
        assert len(ids) == len(set(ids)), path
        for href in page.values("href"):
            target, _, anchor = href.partition("#")
            target = target.partition("?")[0]
            if target.startswith(("data:", "asv/", "https://github.com/pytorch/", DOCUMENTATION)):
                continue
            steps = path.split("/")[:-1]
            for step in target.split("/"):
                steps = steps[:-1] if step == ".." else [*steps, step]
            name = "/".join(filter(None, steps)) if target else path
            assert name in site, (path, href)
            if anchor and "=" not in anchor:
                assert anchor in pages[name].values("id"), (path, href)


def test_every_cell_that_was_run_has_its_file_of_details() -> None:
    site = site_of(*history(COMMITS))
    run = [row for row in source_of(*history(COMMITS)).rows if row.record]
    details = {path for path in site if path.startswith("data/bench+cpu/")}
    assert len(details) == len(run)
    # matrix.js makes their addresses from those of the cases and the columns.
    html = site["matrix.html"].decode()
    heads = re.findall(r'data-cell="([^"]+)"', html)
    lines = re.findall(r'<tr data-case=[^>]*><th scope="row"><a href="case/([^"]+)\.html"', html)
    assert {f"data/{line}/{head}.js" for line in lines for head in heads} == details


def test_the_site_keeps_its_budgets() -> None:
    """26 cells and 80 cases, with 500 commits behind one of them."""
    records = [
        make_record(python=python, torch=f"2.{i}.0", workload=f"ops.workload_{number}", size=size)
        for python in ("3.12", "3.13")
        for i in range(13)
        for number in range(40)
        for size in ("medium", "large")
    ]
    commits = [f"{number:040x}" for number in range(500)]
    records += [
        make_record(
            commit=commit,
            workload="ops.workload_0",
            size="medium",
            torch="2.5.0",
            recorded_at=f"2026-10-01T{i // 60:02d}:{i % 60:02d}:00+00:00",
        )
        for i, commit in enumerate(commits)
    ]
    site = site_of(*records, commit_order=(*commits, records[0].commit))
    for path, page in pages_of(site).items():
        assert len(site[path]) <= A_PAGE, path
        assert len(page.tags) <= ELEMENTS, path
        loaded = {value.partition("?")[0] for value in page.values("src")}
        loaded |= {v.partition("?")[0] for v in page.values("href") if ".css?" in v}
        names = [name.removeprefix("../" * path.count("/")) for name in loaded]
        if path != "regressions.html":
            assert len(site[path]) + sum(len(site[name]) for name in names) <= FIRST_VIEW, path
    # Opening a cell loads one file, choosing a side of a comparison another one.
    clicked = {path: len(data) for path, data in site.items() if path.startswith("data/")}
    assert {path for path in clicked if path.startswith("data/side/")}
    assert max(clicked.values()) <= A_CLICK
    rows = json.loads(site["compatibility.json"])["rows"]
    assert len(rows) == 26 * 80
    assert len(site["compatibility.json"]) <= A_ROW * len(rows)


def test_every_cell_with_500_commits_keeps_the_budgets() -> None:
    """One case in 26 cells: what grows with commits and cells. The growth is extrapolated."""
    few, many, wanted = 10, 60, 500

    def sizes(count: int) -> dict[str, tuple[int, int]]:
        commits = [f"{number:08x}{0:032x}" for number in range(count)]
        records = [
            make_record(
                commit=commit,
                python=python,
                torch=f"2.{minor}.0",
                workload="ops.w",
                recorded_at=f"2026-10-01T00:{i:02d}:00+00:00",
            )
            for i, commit in enumerate(commits)
            for python in ("3.12", "3.13")
            for minor in range(13)
        ]
        site = site_of(*records, commit_order=tuple(commits))
        pages = pages_of(site)
        return {
            path: (len(data), len(pages[path].tags) if path in pages else 0)
            for path, data in site.items()
        }

    before, after = sizes(few), sizes(many)
    assert after["compare.html"] > before["compare.html"]
    for path, (size, elements) in after.items():
        if path in before:
            was, were = before[path]
            grown = (wanted - many) / (many - few)
            assert size + grown * (size - was) <= FIRST_VIEW, path
            assert elements + grown * max(0, elements - were) <= ELEMENTS, path


def test_no_page_and_no_click_grows_with_commits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The law: beyond some commits, one more makes more files, and none of them larger.

    Here that is beyond 20 instead of hundreds. Both histories have as many points in their details.
    """
    monkeypatch.setattr("ivhl.tracker.views.case.POINTS_OF_A_FILE", 10)
    monkeypatch.setattr("ivhl.tracker.views.sides.MOST_COMMITS", 20)
    monkeypatch.setattr("ivhl.pages.build._MOST_RUNS", 20)

    def site(count: int) -> dict[str, bytes]:
        commits = tuple(f"{number:08x}{0:032x}" for number in range(count))
        records = [
            make_record(commit=commit, torch=torch, recorded_at=f"2026-10-01T00:{i:02d}:00+00:00")
            for i, commit in enumerate(commits)
            for torch in ("2.5.0", "2.6.0")
        ]
        return site_of(*records, commit_order=commits)

    few, many = site(35), site(55)
    before, after = pages_of(few), pages_of(many)
    for path, data in many.items():
        if path in few:
            assert len(data) <= len(few[path]), path
        if path in few and path in after:
            assert len(after[path].tags) <= len(before[path].tags), path
    more = sorted(path.partition("/")[0] for path in many.keys() - few.keys())
    # A page for each run, and for each cell two more parts of a course; sides of a comparison for
    # the newest commits only.
    sides = [path for path in many if path.startswith("data/side/")]
    assert more.count("run") == 20
    assert more.count("data") == 4 + 2 * 20
    assert len(sides) == 2 * (1 + 20)
    kinds = [path for path in many if path.startswith("data/bench")]
    assert len(kinds) == 2 * (1 + 4)
    assert max(len(many[path]) for path in kinds) <= A_CLICK


def test_every_point_of_a_course_is_in_one_part_and_every_break_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ivhl.tracker.views.case.POINTS_OF_A_FILE", 3)
    commits = tuple(f"{number:08x}{0:032x}" for number in range(11))
    records = []
    for i, commit in enumerate(commits):
        record = make_record(commit=commit, recorded_at=f"2026-10-01T00:{i:02d}:00+00:00")
        threads = 1 + i // 3  # another number at the first point of a part
        records.append(replace(record, conditions=replace(record.conditions, threads=threads)))
    site = site_of(*records, commit_order=commits)
    path = "data/bench+cpu/ops.gp_evolve+small+naive-compiled/py3.12-torch2.6.0.js"
    points: list[Any] = []
    breaks: list[str] = []
    loaded = []
    while path:
        call = re.fullmatch(r"site\.give\((\".*?\"),(.*)\);\n", site[path].decode("ascii"))
        assert call, path
        part = json.loads(call[2])
        points = [*part["points"], *points]
        breaks = [*part["history"]["breaks"], *breaks]
        loaded.append((path, part["history"]["marks"]))
        path = part["history"]["older"]
    assert [point[0] for point in points] == [commit[:8] for commit in commits]
    assert [text.split()[1].rstrip(":") for text in breaks] == [c[:8] for c in commits[3::3]]
    assert [marks for _, marks in loaded] == [[0, 3], [0], []]
    assert {one for one, _ in loaded} == {one for one in site if "py3.12-torch2.6.0" in one} & {
        one for one in site if one.startswith("data/bench")
    }


def test_a_history_full_of_findings_keeps_the_budgets() -> None:
    """100 commits at each of which all of 20 cases fail or are fixed."""
    commits = tuple(f"{number:040x}" for number in range(101))
    make = (make_record, lambda **changes: make_failure("crash", "x" * 2000, **changes))
    records = [
        make[i % 2](
            commit=commit,
            workload=f"ops.workload_{number}",
            recorded_at=f"2026-10-01T{i // 60:02d}:{i % 60:02d}:00+00:00",
        )
        for i, commit in enumerate(commits)
        for number in range(20)
    ]
    site = site_of(*records, commit_order=commits)
    pages = pages_of(site)
    assert (
        site["regressions.html"].count(b'class="incident ') == 60
    )  # each with its largest change
    listed = {*pages["regressions.html"].values("id")}
    for path, page in pages.items():
        assert len(site[path]) <= FIRST_VIEW, path
        assert len(page.tags) <= ELEMENTS, path
        # No link to an incident that the page does not list any more.
        named = {v.partition("#")[2] for v in page.values("href") if "regressions.html#i" in v}
        assert named <= listed, path
    case = site["case/bench+cpu/ops.workload_0+small+naive-compiled.html"].decode()
    assert case.count('class="incident ') == 20
    assert "and 80 older" in case


def test_a_thousand_releases_stay_within_the_budget() -> None:
    site = site_of(*(make_record(torch=f"2.{i}.0", workload="ops.w") for i in range(1000)))
    for path, data in site.items():
        if path.endswith(".html"):
            assert len(data) <= A_PAGE, path
    assert "976 older releases" in site["index.html"].decode()


@pytest.mark.parametrize("cells", [(), (CellSpec("3.12", "2.6.0"), CellSpec("3.13", "2.6.0"))])
def test_without_records_a_page_says_what_to_do(cells: tuple[CellSpec, ...]) -> None:
    workloads = load_workloads("benchmarks")
    site = site_of(cells=cells, cases=core_cases(workloads, "cpu"), workloads=workloads)
    front = site["index.html"].decode()
    assert "No records yet" in front
    assert "ivhl bench" in front
    assert "No records yet" in site["matrix.html"].decode()
    assert {href for href, _ in TABS} <= site.keys()


def test_one_record_is_a_whole_site() -> None:
    site = site_of(make_record())
    assert "1 of 1 pass" in site["index.html"].decode()
    assert "No change was found" in site["regressions.html"].decode()


@pytest.mark.parametrize("value", [1e-300, 1e-5, 1e5, 1e300])
def test_numbers_at_the_edge_are_shown_short(value: float) -> None:
    edge = Interval(value=value, low=value / 2, high=value * 2, confidence=0.95, n=31)
    site = site_of(make_record(torch="2.5.1"), replace(make_record(), speedup=edge))
    html = site["matrix.html"].decode()
    assert re.search(r">(slow )?1\.0e[-+]\d+x", html)
    texts = re.sub(r"<[^>]*>", "", html + site["index.html"].decode())
    assert not re.search(r"\d{15}", texts)


def test_invisible_characters_are_written_out_on_every_page() -> None:
    hidden = f"safe\u202egpj.exe\x07\ud800{UNSEEN}"
    site = site_of(make_failure("crash", hidden), problems=(hidden,))
    for path, data in site.items():
        if path.endswith((".html", ".xml")) or path.startswith("data/"):
            assert visible(data.decode()) == data.decode(), path
    assert "safe\\u202egpj" in site["index.html"].decode()
    assert "\\u3164" in site["index.html"].decode()


@pytest.mark.full
def test_data_has_each_invisible_character_written_out() -> None:
    """In texts and in names of members; a written-out one stays as it is."""
    every = [chr(code) for code in range(0x110000)]
    unseen = [one for one in every if visible(one) != one]
    text = data_script("data/a.js", {one: f"a{one}b" for one in unseen}).decode()
    given = json.loads(text.removeprefix('site.give("data/a.js",').removesuffix(");\n"))
    assert given == {visible(one): f"a{visible(one)}b" for one in unseen}
    seen = {"text": "a\n\t\\u202e\\\\u202e \u00e4\U0001f600"}
    assert json.loads(visible_json(json.dumps(seen))) == seen


def _of_a_sender(kind: str, number: int) -> RunRecord:
    """Return a record whose part of this kind is named as nobody else's."""
    record = make_record()
    commit = f"{number:040x}"
    device = replace(record.conditions, device=f"cuda GPU {number:03d}")
    packages = replace(record.conditions, packages=(f"x=={number}",))
    machine = replace(record.machine, name=f"box{number:03d}")

    def cell(python: str, torch: str) -> Cell:
        return Cell(id=f"py{python}-torch{torch}", python=python, torch=torch, lock_sha256=None)

    python, release = cell(f"3.{100 + number}", "2.6.0"), cell("3.12", f"2.{100 + number}.0")
    changes: dict[str, dict[str, Any]] = {
        "machine": {"machine": machine},
        "size": {"size": f"size{number:03d}"},
        "variant": {"variant": f"variant{number:03d}"},
        "workload": {"workload": f"ops.workload{number:03d}"},
        "commit": {"commit": commit},
        "GPU": {"conditions": device},
        "python": {"cell": python},
        "release": {"cell": release},
        "package": {"conditions": packages, "commit": commit},
        "warning": {"warnings": (Counted(text=f"warned {number}", count=1),), "commit": commit},
        "machine and python": {"machine": machine, "cell": python},
    }
    return replace(record, **changes[kind])


@pytest.mark.parametrize(
    "kind",
    [
        *("machine", "size", "variant", "workload", "commit", "GPU", "python", "release"),
        *("package", "warning", "machine and python"),
    ],
)
def test_a_site_grows_with_what_a_sender_names_and_not_with_its_square(kind: str) -> None:
    """A page for each of N that links all N, or a table of N by N, grows fourfold with twice N.

    Also by a fixed cost of each name: none is as if a machine had been asked for everything.
    """
    unrun = replace(EMPTY_WORKLOAD, name="ops.unrun", variants=(Variant(name="a", call="m:f"),))
    cases = tuple(Case(workload=unrun, size=f"s{n}", variant=unrun.variants[0]) for n in range(40))
    cells = tuple(CellSpec("3.12", f"2.{minor}.0") for minor in range(3, 9))

    def size_of(count: int) -> int:
        records = [_of_a_sender(kind, number) for number in range(count)]
        order = tuple(f"{number:040x}" for number in range(count)) + COMMITS
        site = site_of(*records, commit_order=order, cases=cases, cells=cells)
        return sum(map(len, site.values()))

    small, middle, large = map(size_of, (30, 60, 120))
    assert large - middle < 2.3 * (middle - small) + 10_000
    assert (large - small) / 90 < 60_000


def test_what_a_page_does_not_link_is_named_and_linked_elsewhere() -> None:
    site = site_of(*(_of_a_sender("machine", number) for number in range(60)))
    first = Structure(site["index.html"].decode())
    assert sum(href.startswith("index-") for href in first.values("href")) == 59
    other = site["index-box030+cpu.html"].decode()
    assert '<a href="index.html">35 more</a>' in other
    assert 'href="index-box029+cpu.html"' in other
    assert "35 more" in site["matrix-box030+cpu.html"].decode()
    case = site["case/box030+cpu/ops.gp_evolve+small+naive-compiled.html"].decode()
    assert "35 more" in case
    assert "box031" in case
    assert (
        "more</a>"
        not in site_of(*(_of_a_sender("machine", n) for n in range(25)))[
            "index-box020+cpu.html"
        ].decode()
    )


def test_a_text_of_100_kb_fills_no_page() -> None:
    long = "x" * 100_000
    site = site_of(make_failure("crash", long, output_tail=long), make_record(torch="2.5.1"))
    assert max(map(len, site.values())) < 120_000


def test_an_unavailable_cell_shows_its_reason_without_a_record() -> None:
    source = source_of(
        make_record(),
        cells=(CellSpec("3.12", "2.6.0"), CellSpec("3.14", "2.6.0")),
        unavailable={"py3.14-torch2.6.0": "no wheel for cp314"},
    )
    (row,) = [row for row in source.rows if row.python == "3.14"]
    assert json.loads(compat_json([row]))["rows"][0]["message"] == "no wheel for cp314"
    site = site_files(source)
    assert "all unavailable" in site["index.html"].decode()
    assert '<td class="s-unavailable none">unavailable' in site["matrix.html"].decode()


def test_observations_of_the_machine_are_on_the_page_of_the_run() -> None:
    record = make_record()
    seen = (
        RecordedObservation(check="governor", level="ok", seen="performance on 8"),
        RecordedObservation(check="turbo", level="warning", seen="on <b>"),
    )
    observed = replace(record, conditions=replace(record.conditions, stability=seen))
    (run,) = (data.decode() for path, data in site_of(observed).items() if path.startswith("run/"))
    assert "<dt>governor</dt><dd>performance on 8</dd>" in run
    assert "<dt>turbo</dt><dd>on &lt;b&gt; <b>(warning)</b></dd>" in run
    (run,) = (data.decode() for path, data in site_of(record).items() if path.startswith("run/"))
    assert "Not observed" in run


def test_an_existing_environment_is_named_as_such() -> None:
    record = whole(make_record())
    bare = replace(record, cell=replace(record.cell, lock_sha256=None))
    site = site_of(bare)
    assert "<small>existing</small>" in site["matrix.html"].decode()
    page = site["environment/py3.12-torch2.6.0.html"].decode()
    assert "existing environment without a lock" in page
    assert "<code>triton==3.1.0</code>" in page
    assert "<small>existing</small>" not in site_of(record)["matrix.html"].decode()


def test_the_tab_of_asv_says_whose_verdicts_its_list_has() -> None:
    page = site_of(make_record())["asv.html"].decode()
    assert "their list of regressions is that of" in page
    assert "asv finds" not in page


def test_only_of_what_got_worse_it_is_said_that_its_cause_is_not_known() -> None:
    """A release that mends 38 cases has no cause to look for."""
    fixed = (make_failure("crash", "signal 11", torch="2.9.1"), make_record(torch="2.10.0"))
    worse = (make_record(torch="2.9.1"), make_failure("crash", "signal 11", torch="2.10.0"))
    for records, count in ((fixed, 0), (worse, 1)):
        site = site_of(*records)
        for path, heading in (
            ("regressions.html", b"PyTorch 2.9.1"),
            ("feed.xml", b"PyTorch 2.9.1"),
        ):
            is_listed = count == 1 or path == "regressions.html"  # the feed has what became worse
            assert (heading in site[path]) == is_listed
            assert site[path].count(b"Cause not known.") == count
            assert (b"State: " in site[path]) == is_listed


def test_the_feed_is_xml_with_an_entry_for_what_became_worse() -> None:
    source = source_of(*history(COMMITS))
    feed = ET.fromstring(site_files(source)["feed.xml"])  # noqa: S314  (ours)
    atom = "{http://www.w3.org/2005/Atom}"
    entries = feed.findall(f"{atom}entry")
    assert len(entries) == sum(one.worse for one in source.incidents) > 0
    ids = [entry.findtext(f"{atom}id") for entry in entries]
    assert len(ids) == len(set(ids))
    assert all(entry.findtext(f"{atom}updated") for entry in entries)


def test_links_of_the_feed_are_whole_where_the_address_of_the_site_is_known() -> None:
    state = source_of(*history(COMMITS)).state
    address = "https://owner.github.io/project/"
    feed = site_files(Source(replace(state, site_url=address)))["feed.xml"].decode()
    assert address_of("https://owner.github.io/project") == address
    links = re.findall(r'href="([^"]*)"', feed)
    assert len(links) > 2
    assert all(link.startswith(address) for link in links)
    for text in ("owner.github.io", "ftp://x/", "https://", "https://[a/", "https://a\u202eb/"):
        with pytest.raises(SpecError, match="must be an address of the web"):
            address_of(text)


def test_what_is_unchanged_is_not_written_again(tmp_path: Path) -> None:
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    write_pages(source_of(*history(COMMITS)), one)
    write_pages(source_of(*history(COMMITS)), two, one)
    for path in one.rglob("[!.]*.*"):
        assert path.is_dir() or path.samefile(two / path.relative_to(one)), path
    write_pages(source_of(*history(COMMITS), make_record(workload="ops.new")), three, two)
    case = "case/bench+cpu/ops.gp_evolve+small+real-compiled.html"
    assert (three / case).samefile(two / case)
    assert not (three / "matrix.html").samefile(two / "matrix.html")
    assert (two / "matrix.html").read_bytes() == (one / "matrix.html").read_bytes()


@pytest.mark.parametrize(
    ("name", "left_out"),
    [
        ("case_view", "case/bench+cpu/"),
        ("cell_details", "data/bench+cpu/"),
        ("run_view", "run/bench+cpu/"),
        ("regressions_view", "regressions.html"),
        ("environment_views", "environments.html"),
        ("side", "data/side/bench+cpu/"),
        ("front_view", "front page of bench, cpu"),
        ("feed", "feed.xml"),
    ],
)
def test_a_page_that_cannot_be_made_is_named_and_all_others_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, left_out: str
) -> None:
    source = source_of(*history(COMMITS))
    assert write_pages(source, tmp_path / "whole") == ()
    broken = Mock(side_effect=OverflowError("int too large to convert to float"))
    monkeypatch.setattr(build, name, broken)
    problems = write_pages(source, tmp_path / "part")
    assert problems
    assert all(text.startswith(left_out) for text in problems)
    assert all("is left out: OverflowError: int too large" in text for text in problems)
    whole, part = (
        {f"{path.relative_to(tmp_path / one)}" for path in (tmp_path / one).rglob("*.*")}
        for one in ("whole", "part")
    )
    assert part < whole
    assert {"asv.html", "compatibility.json"} <= part


def test_two_files_of_one_name_end_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "case_page", lambda _: "x.html")
    every = [SiteFile(path, lambda: b"") for path in ("x.html", "x.html", "y" * 300, "z.html")]
    monkeypatch.setattr(build, "_static", lambda: iter(every))
    problems = write_pages(source_of(*history(COMMITS)), tmp_path / "site")
    assert [text.partition(":")[0] for text in problems] == ["x.html", "y" * 300]
    assert "FileExistsError" in problems[0]
    assert (tmp_path / "site" / "z.html").exists()
    assert (tmp_path / "site" / "index.html").exists()


def test_a_full_disk_and_changed_records_end_a_publish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No page is at fault there, and every other one would be left out, too."""
    for error in (OSError(errno.ENOSPC, "No space left"), ResultsError("was changed")):
        monkeypatch.setattr(build, "feed", Mock(side_effect=error))
        with pytest.raises(type(error)):
            write_pages(source_of(*history(COMMITS)), tmp_path / type(error).__name__)


def test_a_file_is_made_again_only_if_what_it_is_made_from_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one more run of one case: its details, and no other's; nothing of other runs."""
    make_project(tmp_path)
    results = tmp_path / "results"
    made: list[str] = []

    def counted(path: str, *data: Any, **more: Any) -> bytes:  # noqa: ANN401
        made.append(path)
        return data_script(path, *data, **more)

    def site(name: str, old: str | None = None) -> dict[str, bytes]:
        made.clear()
        earlier = None if old is None else tmp_path / old
        write_pages(Source(load_state(tmp_path, results), "now"), tmp_path / name, earlier)
        return {
            f"{path.relative_to(tmp_path / name)}": path.read_bytes()
            for path in (tmp_path / name).rglob("*")
            if path.is_file()
        }

    monkeypatch.setattr("ivhl.pages.build.data_script", counted)
    first = site("one")
    every = [*made]
    assert set(every) == {path for path in first if path.startswith("data/")}
    assert site("two", "one") == first
    assert made == []

    (commit,) = make_commits(tmp_path, 1)
    more = make_record(
        commit=commit, workload="ops.gp_evolve", size="small", variant="real-compiled",
        recorded_at="2026-11-20T00:00:00+00:00",
    )  # fmt: skip
    append_record(record_file(results, "bench", commit, more.cell.id), more)
    kept = site("three", "two")
    assert kept == site("whole")
    site("four", "two")
    assert len(made) < len(every) / 4
    assert "data/bench+cpu/ops.gp_evolve+small+real-compiled/py3.12-torch2.6.0.js" in made

    # Neither a change of the code nor what somebody wrote into the folder is passed over.
    (tmp_path / "four" / MADE_FROM).write_text("[]")
    assert site("five", "four") == kept
    assert len(made) == len([path for path in kept if path.startswith("data/")])
    monkeypatch.setattr("ivhl.pages.build.code_digest", lambda: "another")
    site("six", "five")
    assert len(made) == len([path for path in kept if path.startswith("data/")])


def test_vendored_files_match_the_readme() -> None:
    readme = VENDOR.joinpath("README.md").read_text(encoding="utf-8")
    listed = {row["name"]: row["digest"] for row in ROW.finditer(readme)}
    found = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in VENDOR.iterdir()
        if file.name != "README.md"
    }
    assert listed == found


def test_every_text_can_be_in_the_feed() -> None:
    every = "".join(map(chr, [*range(0x3000), *range(0xD7F0, 0x10010)]))
    ET.fromstring(f"<a>{html.escape(visible(every))}</a>")  # noqa: S314  (ours)


def test_reports_of_pytorch_are_links_and_no_other_address_is() -> None:
    linked = _TEMPLATES.filters["linked"]
    assert linked("since 2.9.1, pytorch#161783: docs/findings.md#each-call") == (
        'since 2.9.1, <a href="https://github.com/pytorch/pytorch/issues/161783" rel="noreferrer">'
        "pytorch#161783</a>: docs/findings.md"
    )
    repository = "https://github.com/demo/demo"
    assert linked("docs/findings.md#each-call, <b>", repository) == (
        f'<a href="{repository}/blob/HEAD/docs/findings.md#each-call" rel="noreferrer">'
        "docs/findings.md</a>, &lt;b&gt;"
    )
    for text in ("https://example.org/docs/findings.md", "../docs/findings.md", "docs/../a.md"):
        assert "<a" not in linked(text, repository), text
    report = "https://github.com/pytorch/pytorch/pull/173080"
    assert linked(f"<b>({report})") == (
        f'&lt;b&gt;(<a href="{report}" rel="noreferrer">{report}</a>)'
    )
    for text in (
        "http://github.com/pytorch/pytorch/issues/1",
        "https://github.com.example/pytorch/pytorch/issues/1",
        "https://github.com/other/pytorch/issues/1",
        "https://example.org/?https:/github.com/pytorch",
        "javascript:alert(1)",
    ):
        assert "<a" not in linked(text), text
    assert "\u202e" not in linked("\u202epytorch#1")


def test_the_text_of_a_record_is_never_a_link() -> None:
    """Also where it names a report: imported records choose their texts."""
    text = "see https://github.com/pytorch/pytorch/issues/7 or pytorch#7"
    site = site_of(make_record(torch="2.5.1"), make_failure("crash", text))
    pages = [data.decode() for path, data in site.items() if path.endswith(".html")]
    assert any("issues/7" in page for page in pages)
    assert not any('href="https://github.com/pytorch/pytorch/issues/7"' in page for page in pages)
