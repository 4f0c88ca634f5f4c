"""The published site in a browser: it answers, explains, links, and needs no network."""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ivhl.asv.publish import publish
from ivhl.pages.build import write_pages
from ivhl.records.files import append_record, record_file
from ivhl.records.record import Calibration
from ivhl.tracker.changes.compare import SUMMARISED, choose, compare, summarise
from ivhl.tracker.store.course import MemoryHistory
from ivhl.tracker.store.entries import recorded
from ivhl.tracker.store.metrics import WORDS
from ivhl.tracker.views.project import State, load_state
from ivhl.tracker.views.source import Source
from tests.builders.history import GATE, IMAGE, SCRIPT
from tests.builders.project import make_project
from tests.builders.records import make_record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page, Request

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # of the HTTP server's sockets

CASE = "case/bench+cpu/ops.gp_evolve+small+real-compiled.html"


class Watched:
    """A page, its requests and its errors."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.requests: list[str] = []
        self.failed: list[str] = []
        self.errors: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("requestfailed", lambda request: self.failed.append(request.url))
        page.on("requestfinished", self._finished)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)

    def _finished(self, request: Request) -> None:
        response = request.response()
        if response is None or response.status >= 400:
            self.failed.append(request.url)

    def check(self, *origins: str) -> None:
        """Assert no failed request, no exception, and no request to another host."""
        assert self.failed == []
        assert self.errors == []
        assert [url for url in self.requests if not url.startswith((*origins, "data:"))] == []

    def data_files(self) -> list[str]:
        """Return the files of data that were loaded."""
        return [url.partition("/data/")[2] for url in self.requests if "/data/" in url]


@pytest.fixture
def watched(browser: Browser) -> Iterator[Watched]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(10_000)
    yield Watched(context.new_page())
    context.close()


def open_cell(page: Page, case: str, python: str, torch: str) -> str:
    """Open a cell of the matrix; return the text of its details."""
    page.locator(f'tr[data-case="{case}"]').wait_for()
    column = page.evaluate(
        "([p, t]) => [...document.querySelectorAll('th[data-cell]')]"
        ".findIndex((h) => h.dataset.python === p && h.dataset.torch === t)",
        [python, torch],
    )
    page.locator(f'tr[data-case="{case}"] td').nth(column).click()
    page.locator("#details[open] .facts").first.wait_for()
    return str(page.locator("#details").inner_text())


def test_three_questions_are_answered_without_scrolling(watched: Watched, site: Path) -> None:
    page = watched.page
    page.goto((site / "index.html").as_uri())
    answers = page.locator(".answers").inner_text()
    assert "Python 3.14 with PyTorch 2.9.1" in answers
    assert "works (1 of 4 fail) 2.6.0, works 2.8.0 to 2.9.1" in answers
    assert "On PyTorch 2.9.1" in answers
    assert "slower" in answers
    assert "2.15x to 1.20x" in answers
    for selector in (".answers", ".shares"):
        box = page.locator(selector).bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 900, selector
    watched.check("file:")


def test_from_3_12_or_3_13_to_the_cells_behind_it(watched: Watched, site: Path) -> None:
    """Which Python? The grid leads to the cases of one cell."""
    page = watched.page
    page.goto((site / "index.html").as_uri())
    page.locator(".shares a", has_text="3 of 4 pass").first.click()
    page.locator("#matrix").wait_for()
    assert "python=3.12&torch=2.6.0" in page.url
    assert page.locator("th[data-cell]:visible").count() == 1
    watched.check("file:")


def test_from_what_got_slower_to_the_command_that_repeats_it(watched: Watched, site: Path) -> None:
    """What got slower? The front page names the newest; a click leads to its cases."""
    page = watched.page
    page.goto((site / "index.html").as_uri())
    page.locator(".answers a").first.click()
    incident = page.locator(".incident:target")
    assert incident.locator("details").get_attribute("open") is not None
    assert "2.15x to 1.20x" in incident.inner_text()
    incident.get_by_role("link", name="ops.gp_evolve/small/real-compiled").first.click()
    page.wait_for_url(f"**/{CASE.rpartition('/')[2].replace('+', '*')}")
    page.locator("#over-releases canvas").first.wait_for()
    assert "--variant real-compiled" in page.locator(".command code").first.inner_text()
    watched.check("file:")


def test_from_the_last_week_to_a_list_of_what_got_worse_in_it(
    watched: Watched, site: Path
) -> None:
    """What got slower since last week? One click, whatever week it is."""
    page = watched.page
    page.clock.set_fixed_time("2026-11-14T12:00:00Z")
    page.goto((site / "index.html").as_uri())
    page.get_by_role("link", name="What got worse in the last week").click()
    page.locator("#count:not(:empty)").wait_for()  # its script has run
    shown = page.locator(".incident:visible")
    assert shown.count() > 0
    assert all(
        "worse" in text for text in page.locator(".incident:visible .sign").all_inner_texts()
    )
    page.clock.set_fixed_time("2027-01-14T12:00:00Z")
    page.reload()
    assert shown.count() == 0
    assert page.locator("#count").inner_text().startswith("0 of ")
    # An incident that is named in the address is open, and the filters work beside it.
    page.goto((site / "index.html").as_uri())
    page.locator(".answers a").first.click()
    page.locator(".incident:target details[open]").wait_for()
    page.locator("[name=worse]").select_option("better")
    assert page.locator(".incident.worse:visible").count() == 0
    watched.check("file:")


def test_from_the_front_page_to_why_a_cell_fails_in_two_clicks(
    watched: Watched, site: Path
) -> None:
    """Why does it fail on 3.13 with 2.5.1, and how do I repeat it?"""
    page = watched.page
    page.goto((site / "index.html").as_uri())
    page.locator(".shares tr", has_text="3.13").locator(
        "a", has_text="all unsupported"
    ).first.click()
    page.locator("#matrix td.s-unsupported:visible").first.click()
    page.locator("#details[open] pre.said").wait_for()
    assert GATE.format("3.13") in page.locator("#details").inner_text()
    assert "--python 3.13 --torch 2.5.1" in page.locator("#details .command code").inner_text()
    assert len(watched.data_files()) == 1
    watched.check("file:")


def test_from_a_failing_cell_to_its_reason_and_command(watched: Watched, site: Path) -> None:
    """Why does this cell fail, and how do I repeat it?"""
    page = watched.page
    page.goto((site / "matrix.html").as_uri())
    assert watched.data_files() == []
    text = open_cell(page, "ops.gp_evolve small real-compiled", "3.13", "2.5.1")
    assert "support_gate" in text
    assert page.locator("#details pre.said").inner_text() == GATE.format("3.13")
    assert "--python 3.13 --torch 2.5.1" in page.locator("#details .command code").inner_text()
    assert len(watched.data_files()) == 1
    address = page.url
    page.keyboard.press("Escape")
    assert page.locator("#details[open]").count() == 0
    page.wait_for_function("!location.hash.includes('open=')")  # a dialog reports later

    again = page.context.new_page()
    again.goto(address)
    again.locator("#details[open] pre.said").wait_for()
    watched.check("file:")


def test_opening_a_cell_works_out_the_styles_of_the_details_only(
    browser: Browser, watched: Watched, site: Path
) -> None:
    """A modal dialog makes all behind it inert: most of the time in a matrix of 2,000 cells."""
    page = watched.page
    page.goto((site / "matrix.html").as_uri())
    behind = page.evaluate("document.querySelectorAll('*').length")
    browser.start_tracing(page=page, categories=["devtools.timeline"])
    open_cell(page, "ops.gp_evolve small real-compiled", "3.12", "2.9.1")
    events = json.loads(browser.stop_tracing())["traceEvents"]
    styled = [e for e in events if e["name"] in ("UpdateLayoutTree", "RecalculateStyles")]
    counts = [e.get("args", {}).get("elementCount", 0) for e in styled]
    shown = page.evaluate("document.querySelectorAll('#details *').length")
    assert max(counts) >= shown / 2, counts  # they are counted
    assert sum(counts) < 1.5 * shown + behind / 3, (counts, shown, behind)
    watched.check("file:")


def test_the_page_behind_open_details_is_out_of_reach(watched: Watched, site: Path) -> None:
    page = watched.page
    page.goto((site / "matrix.html").as_uri())
    open_cell(page, "ops.gp_evolve small real-compiled", "3.12", "2.9.1")
    dialog = page.get_by_role("dialog", name="ops.gp_evolve / small / real-compiled")
    assert dialog.get_attribute("aria-modal") == "true"
    inside = "document.getElementById('details').contains(document.activeElement)"
    assert page.evaluate(inside)
    for key in ["Tab"] * 20 + ["Shift+Tab"] * 40:
        page.keyboard.press(key)
        assert page.evaluate(f"{inside} || document.activeElement === document.body"), key
    # A click beside it closes it, and is none on the cell that lies there.
    page.mouse.click(4, 450)
    dialog.wait_for(state="hidden")
    assert len(watched.data_files()) == 1
    page.wait_for_function("!location.hash.includes('open=')")  # a dialog reports later
    assert page.evaluate("document.activeElement.tagName") == "TD"
    watched.check("file:")


def test_details_have_numbers_facts_and_other_commits(watched: Watched, site: Path) -> None:
    page = watched.page
    page.goto((site / "matrix.html").as_uri())
    text = open_cell(page, "ops.field_superposition small naive-compiled", "3.12", "2.6.0")
    assert "6.41x [6.19, 6.63]" in text
    assert "eager over eager (noise)" in text
    page.keyboard.press("Escape")
    text = open_cell(page, "mlff.energy_forces small naive-compiled", "3.12", "2.9.1")
    assert "Tensor.item() in pair_list, painn.py:88" in text
    assert "tensor 'edges' size mismatch" in text
    assert "1.10e-07" in text
    assert "16 MiB" in text
    page.keyboard.press("Escape")
    text = open_cell(page, "ops.gp_evolve small real-compiled", "3.12", "2.9.1")
    past = page.locator("#details section", has_text="At other commits").locator("tbody tr")
    assert "1.20x" in past.nth(0).inner_text()
    assert "2.15x" in past.nth(1).inner_text()
    page.locator("#details").get_by_role("link", name="Environment").click()
    assert "numpy==2.1.0" in page.locator(".packages").first.inner_text()
    watched.check("file:")


def test_text_of_exceptions_is_text(watched: Watched, site: Path) -> None:
    page = watched.page
    page.goto((site / "matrix.html").as_uri())
    open_cell(page, "mlff.energy_forces small naive-compiled", "3.12", "2.6.0")
    assert page.locator("#details pre.said").inner_text() == SCRIPT
    page.keyboard.press("Escape")
    open_cell(page, "mlff.energy_forces small naive-compiled", "3.13", "2.6.0")
    page.locator("#details").get_by_text("End of the output").click()
    assert page.locator("#details details pre").inner_text() == IMAGE
    assert page.evaluate("window.broken") is None
    assert page.locator("img").count() == 0
    watched.check("file:")


def test_an_address_opens_no_file_of_another_place(watched: Watched, site: Path) -> None:
    page = watched.page
    for path in ("https://example.org/a/b/c.js", "data/../../etc/x/y.js", "//host/data/a/b.js"):
        page.goto("about:blank")
        page.goto(f"{(site / 'matrix.html').as_uri()}#open={path}")
        page.locator("#matrix").wait_for()
        assert page.locator("#details[open]").count() == 0
    watched.check("file:", "about:")


def test_filters_are_kept_in_the_address(watched: Watched, site: Path) -> None:
    page = watched.page
    page.goto((site / "matrix.html").as_uri())
    lines = page.locator("tr[data-case]:visible")
    everything = lines.count()
    text, python = page.locator("[name=text]"), page.locator("select[name=python]")
    text.fill("gp_evolve small real")
    assert lines.count() == 1
    python.select_option("3.14")
    assert page.locator("th[data-cell]:visible").count() == 5
    address = page.url
    again = page.context.new_page()
    again.goto(address)
    assert again.locator("tr[data-case]:visible").count() == 1
    assert again.locator("th[data-cell]:visible").count() == 5
    again.close()
    text.fill("")
    python.select_option("")
    page.locator(".toggle.s-wrong").click()
    assert lines.count() == 1
    page.locator(".toggle.s-wrong").click()
    assert lines.count() == everything
    assert "#" not in page.url
    page.get_by_label("Releases in intervals").check()
    line = page.locator('tr[data-case="ops.gp_evolve small real-compiled"]')
    assert "3.13: unsupported 2.4.1 to 2.5.1, works 2.6.0 to 2.9.1" in line.inner_text()
    watched.check("file:")


def test_what_the_address_asks_for_and_nothing_has_is_named(watched: Watched, site: Path) -> None:
    """All cases would seem to be of the release, or wrong, or of the last week."""
    page = watched.page
    page.goto(f"{(site / 'matrix.html').as_uri()}#torch=9.9.1&python=3.13&status=odd&what=%E0%A4")
    count = page.locator("#count")
    said = "cases; the address asks for torch 9.9.1, status odd, which this page does not have"
    assert count.inner_text().endswith(said)
    assert page.locator("select[name=torch]").input_value() == ""
    assert page.locator("select[name=python]").input_value() == "3.13"
    page.locator("select[name=python]").select_option("")
    assert "asks for" not in count.inner_text()
    assert "9.9.1" not in page.url
    page.goto(f"{(site / 'regressions.html').as_uri()}#along=nothing&worse=&text=ops")
    assert "asks for along nothing, which" in count.inner_text()
    assert page.locator("select[name=along]").input_value() == ""
    watched.check("file:")


def test_a_case_has_its_course_over_releases_and_commits(watched: Watched, site: Path) -> None:
    page = watched.page
    page.goto((site / CASE).as_uri())
    charts = page.locator("#over-releases figure")
    assert charts.count() == 8
    assert page.locator("#over-releases canvas").first.get_attribute("role") == "img"
    assert watched.data_files() == []
    page.locator("#cell").select_option(label="Python 3.12, PyTorch 2.9.1")
    page.locator("#course canvas").first.wait_for()
    assert len(watched.data_files()) == 1
    course = page.locator("#course").inner_text()
    assert "A/A: eager over eager again" in course
    assert "A/B: eager over compiled" in course
    page.locator("#course .numbers summary").click()
    table = page.locator("#course .numbers table").inner_text()
    assert "2.15x" in table
    assert "1.2x" in table
    watched.check("file:")


def test_older_commits_are_loaded_part_by_part(
    watched: Watched, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A click loads one file, and the details have the newest commits only."""
    monkeypatch.setattr("ivhl.tracker.views.case.POINTS_OF_A_FILE", 1)
    site = publish(project, tmp_path / "site", asv=False).output
    page = watched.page
    page.goto((site / CASE).as_uri())
    page.locator("#cell").select_option(label="Python 3.12, PyTorch 2.9.1")
    commits = page.locator("#course h3").first
    for number in (1, 2, 3):
        page.get_by_role("heading", name=f"Over {number} commits").wait_for()
        assert len(watched.data_files()) == number
        page.get_by_role("button", name="Older commits").click()
    page.get_by_role("heading", name="Over 4 commits").wait_for()
    assert commits.evaluate("(e) => e === document.activeElement")
    assert page.get_by_role("button", name="Older commits").count() == 0
    page.locator("#course .numbers summary").click()
    rows = page.locator("#course .numbers tbody tr")
    rows.nth(3).wait_for()  # the table is made when it is opened
    table = rows.all_inner_texts()
    assert [line.split()[1] for line in table] == ["2.15x", "2.15x", "2.15x", "1.2x"]
    watched.check("file:")


def test_no_incident_left_says_when_the_newest_one_was(watched: Watched, site: Path) -> None:
    page = watched.page
    page.clock.set_fixed_time("2027-01-14T12:00:00Z")
    page.goto(f"{(site / 'regressions.html').as_uri()}#worse=worse&since=7")
    assert page.locator(".incident:visible").count() == 0
    newest = page.locator("[data-worse=worse]").first.get_attribute("data-at")
    assert newest is not None
    assert (
        page.locator("#count").inner_text().endswith(f"the newest that fits is of {newest[:10]}")
    )
    page.locator("[name=text]").fill("no such case")
    assert page.locator("#count").inner_text().endswith("clear a filter")
    watched.check("file:")


def test_regressions_can_be_filtered(watched: Watched, site: Path) -> None:
    page = watched.page
    page.goto((site / "regressions.html").as_uri())
    shown = page.locator(".incident:visible")
    everything = shown.count()
    page.locator("[name=along]").select_option("commit")
    assert 0 < shown.count() < everything
    assert "Commit" in shown.first.inner_text()
    page.locator("[name=text]").fill("no such case")
    assert shown.count() == 0
    assert page.locator("#count").inner_text().startswith("0 of ")
    watched.check("file:")


def test_two_releases_are_compared_as_on_the_command_line(
    watched: Watched, project: Path, site: Path
) -> None:
    page = watched.page
    text = compare_releases(page, site)
    assert_means_of_the_command(text, project)
    assert "no speed of the machine was measured" in text
    fallen = page.locator("#result tbody tr").first
    assert fallen.locator(".chip").inner_text() == "slower"
    assert "ops.gp_evolve/small/real-compiled" in fallen.inner_text()
    case = fallen.get_by_role("link").get_attribute("href")
    assert (site / f"{case}").is_file()
    assert len(watched.data_files()) == 2
    # The choice is in the address, and another one loads one file.
    page.locator("[name=b-torch]").select_option("2.6.0")
    page.wait_for_function("location.hash.includes('b-torch=2.6.0')")
    page.locator("#result:not([aria-busy])", has_text="wrong").wait_for()
    assert len(watched.data_files()) == 3
    watched.check("file:")


@pytest.mark.parametrize("whole", [True, False])
def test_seconds_are_compared_at_equal_speed_as_on_the_command_line(
    watched: Watched, tmp_path: Path, *, whole: bool
) -> None:
    """A machine that became slower is no change of eager code, on the page neither.

    If not ``whole``, only records of ``ops`` have a calibration.
    """
    make_project(tmp_path)
    results = tmp_path / "results"
    for number, record in enumerate(load_state(tmp_path, results).records):
        slow = 1.5 + 0.01 * (number % 3) if record.cell.torch == "2.9.1" else 1.0
        if record.failure is None and (whole or record.workload.startswith("ops.")):
            slower = replace(
                record,
                recorded_at=record.recorded_at.replace("T12", "T13"),
                calibration=Calibration(compute_s=(slow * 1e-3,) * 4, memory_s=(slow * 1e-3,) * 4),
            )
            path = record_file(results, record.machine.name, record.commit, record.cell.id)
            append_record(path, slower)
    text = compare_releases(watched.page, publish(tmp_path, tmp_path / "site").output)
    assert_means_of_the_command(text, tmp_path)
    how = "at equal speed of the machine"
    assert (how if whole else f"{how} for 3 of the cases") in text
    watched.check("file:")


def test_other_builds_of_one_python_are_not_compared_as_on_the_command_line(
    watched: Watched, tmp_path: Path
) -> None:
    make_project(tmp_path)
    results = tmp_path / "results"
    for record in load_state(tmp_path, results).records:
        build = "Clang 22" if record.cell.torch == "2.9.1" else "GCC 14"
        other = replace(
            record,
            recorded_at=record.recorded_at.replace("T12", "T13"),
            conditions=replace(record.conditions, python_build=build),
        )
        path = record_file(results, record.machine.name, record.commit, record.cell.id)
        append_record(path, other)
    text = compare_releases(watched.page, publish(tmp_path, tmp_path / "site").output)
    assert "None was measured on both sides in the same way" in text
    reason = "Python built with GCC 14 before, with Clang 22 after"
    assert reason in watched.page.locator("#result").inner_text()
    watched.check("file:")


def compare_releases(page: Page, site: Path) -> str:
    """Open the comparison of two releases on Python 3.12; return its summary."""
    choice = "&".join(
        f"{side}-python=3.12&{side}-torch={torch}"
        for side, torch in (("a", "2.8.0"), ("b", "2.9.1"))
    )
    page.goto(f"{(site / 'compare.html').as_uri()}#{choice}&all=on")
    summary = page.locator("#summary")
    summary.wait_for()
    return summary.inner_text()


def assert_means_of_the_command(text: str, project: Path) -> None:
    """Assert that the means and intervals are those of ``ivhl compare``."""
    state = load_state(project, project / "results")
    here = MemoryHistory(record for record in state.records if record.cell.python == "3.12")
    before, after = (
        here.read(choose(here.entries, "torch", {torch})) for torch in ("2.8.0", "2.9.1")
    )
    (expected,) = summarise(compare(before, after, "torch", state.spreads))
    assert f"Over the {expected.means['speedup'].cases} measured on both sides" in text
    for metric in SUMMARISED:
        mean = expected.means[metric]
        shown = f"{WORDS[metric]} {mean.ratio:.2f}x [{mean.low:.2f}x, {mean.high:.2f}x]"
        assert shown in text


def test_sides_that_differ_in_how_they_were_measured_are_not_compared(
    watched: Watched, site: Path
) -> None:
    """Along commits the sources may differ; between cells they must not."""
    page = watched.page
    page.goto((site / "compare.html").as_uri())
    commits = page.locator("[name=a-commit] option").all_inner_texts()
    page.locator("[name=a-torch]").select_option("2.9.1")
    page.locator("[name=a-commit]").select_option(commits[1])
    page.locator("[name=b-torch]").select_option("2.8.0")
    page.locator("[name=b-commit]").select_option(commits[2])
    page.locator("#summary", has_text="incomparable").wait_for()
    assert "other sources" in page.locator("#result").inner_text()
    page.locator("[name=b-torch]").select_option("2.9.1")
    page.locator("#result:not([aria-busy])").wait_for()
    assert "measured on both sides in the same way: " in page.locator("#summary").inner_text()
    assert "incomparable" not in page.locator("#summary").inner_text()
    watched.check("file:")


def test_the_site_works_below_any_address(browser: Browser, site: Path, tmp_path: Path) -> None:
    below = tmp_path / "some" / "where"
    below.parent.mkdir()
    shutil.copytree(site, below)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (its own name)
            pass

    handler = functools.partial(Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        watched = Watched(browser.new_page())
        origin = f"http://127.0.0.1:{server.server_port}"
        watched.page.goto(f"{origin}/some/where/matrix.html")
        open_cell(watched.page, "ops.gp_evolve small real-compiled", "3.13", "2.5.1")
        watched.page.locator("#details").get_by_role("link", name="The case").click()
        watched.page.locator("#over-releases canvas").first.wait_for()
        watched.check(f"{origin}/some/where/")
        watched.page.close()
        server.shutdown()
        thread.join()


def test_asv_pages_work_without_any_other_host(watched: Watched, address: str) -> None:
    page = watched.page
    page.goto(f"{address}/asv.html")
    page.get_by_role("link", name="Open asv's pages").click()
    page.locator("#summarygrid-display a").first.wait_for()
    page.get_by_role("link", name="Benchmark list").click()
    page.locator("#summarylist-body table").first.wait_for()
    page.get_by_role("link", name="Regressions").click()
    page.locator("#regressions-body table", has_text="real-compiled").first.wait_for()
    page.get_by_role("link", name="Benchmark grid").click()
    page.locator("#summarygrid-display a").first.click()
    page.locator("#main-graph canvas").first.wait_for()
    page.wait_for_load_state("networkidle")
    page.get_by_role("link", name="Matrix").click()
    assert page.locator("h1").inner_text() == "Matrix"
    watched.check(address)


LONG = "ops." + "a_name_of_eighty_eight_letters_" * 3


@pytest.fixture
def wide_site(tmp_path: Path) -> Path:
    """Return a site with a long name and more releases than a window or a sheet is wide."""
    records = [
        make_record(python=python, torch=f"2.{minor}.0", workload=name[:88])
        for python in ("3.12", "3.13", "3.14")
        for minor in range(2, 16)
        for name in (LONG, LONG.replace("_", ""), "ops.short")
    ]
    state = State(
        name="demo", recorded=tuple(map(recorded, records)), problems=(), cells=(), releases=None,
        unavailable={}, workloads=(), cases=(), commit_order=(),
    )  # fmt: skip
    write_pages(Source(state), tmp_path)
    return tmp_path


def test_a_long_name_widens_no_page_of_a_phone(watched: Watched, wide_site: Path) -> None:
    """A case page was 1,233 px wide, and the matrix hid its values."""
    page = watched.page
    page.set_viewport_size({"width": 390, "height": 820})
    for path in wide_site.rglob("*.html"):
        page.goto(path.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") == 390, path
    page.goto((wide_site / "matrix.html").as_uri())
    for cell in page.locator("tr[data-case] td:first-of-type").all():
        box = cell.bounding_box()
        assert box is not None
        assert 0 < box["x"] < box["x"] + box["width"] < 390
    watched.check(wide_site.as_uri())


def test_a_printed_page_has_every_release_and_its_legend(
    watched: Watched, wide_site: Path
) -> None:
    """Paper does not scroll: the oldest releases were cut off, and the swatches were white."""
    page = watched.page
    (case,) = wide_site.glob("case/*/ops.short+*.html")
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 718, "height": 1000})  # A4 with margins
    for path, table in (("index.html", ".shares"), (case, ".strip")):
        page.goto((wide_site / path).as_uri())
        for cell in page.locator(f"{table} th, {table} td").all():
            box = cell.bounding_box()
            assert box is not None
            assert box["x"] + box["width"] <= 718, cell.inner_text()
    page.set_viewport_size({"width": 1520, "height": 1000})  # A3, as its page asks for
    page.goto((wide_site / "matrix.html").as_uri())
    last = page.locator("thead th[data-cell]").last.bounding_box()
    assert last is not None
    assert last["x"] + last["width"] <= 1520
    page.goto((wide_site / "index.html").as_uri())
    swatch = page.locator(".swatch").first
    exact = "one => getComputedStyle(one).getPropertyValue('print-color-adjust')"
    assert swatch.evaluate(exact) == "exact"


def test_without_scripts_a_page_says_what_it_lacks(browser: Browser, wide_site: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    (case,) = wide_site.glob("case/*/ops.short+*.html")
    titles = []
    for path in ("matrix.html", case, "index.html"):
        page.goto((wide_site / path).as_uri())
        titles.append(page.title()[: -len(" - demo")])
        if path != "index.html":
            assert "Without JavaScript" in page.locator("main").inner_text()
    assert titles == [
        "Matrix of bench, cpu",
        "ops.short small naive-compiled on bench, cpu",
        "Does torch.compile work on bench, cpu?",
    ]
    context.close()
