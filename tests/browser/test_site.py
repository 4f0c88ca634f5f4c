"""The published site in a browser: it renders, explains, links both ways, and needs no network."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.builders.history import GATE, IMAGE, SCRIPT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page, Request

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # of the HTTP server's sockets


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


@pytest.fixture
def watched(browser: Browser) -> Iterator[Watched]:
    context = browser.new_context()
    context.set_default_timeout(10_000)
    yield Watched(context.new_page())
    context.close()


def cell(python: str, torch: str, case: str) -> str:
    """Return a selector for a cell of a matrix."""
    return f'a.cell[href="#py{python}-torch{torch}/{case}/bench/cpu"]'


def test_a_support_gate_failure_is_shown_and_explained(watched: Watched, site: Path) -> None:
    page = watched.page
    page.goto((site / "compatibility.html").as_uri())
    gated = page.locator(cell("3.13", "2.5.1", "ops.gp_evolve/small/real-compiled"))
    assert gated.inner_text().strip() == "unsupported"
    assert gated.get_attribute("aria-label") == "Python 3.13, PyTorch 2.5.1: unsupported"

    gated.click()

    reason = page.locator("dialog[open]")
    assert "support_gate" in reason.inner_text()
    assert reason.locator("pre.said").inner_text() == GATE.format("3.13")
    assert "--cell py3.13-torch2.5.1" in reason.locator(".command code").inner_text()
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0
    watched.check("file:")


def test_a_reason_opens_by_keyboard_and_by_its_address(watched: Watched, site: Path) -> None:
    page = watched.page
    page.goto((site / "compatibility.html").as_uri())
    measured = page.locator(cell("3.12", "2.6.0", "ops.field_superposition/small/naive-compiled"))
    measured.focus()
    page.keyboard.press("Enter")
    text = page.locator("dialog[open]").inner_text()
    assert "6.41x [6.19, 6.63]" in text
    assert "eager over eager (noise)" in text
    assert "cold compile" in text
    address = page.url
    page.go_back()
    assert page.locator("dialog[open]").count() == 0

    again = page.context.new_page()
    again.goto(address)
    assert "6.41x" in again.locator("dialog[open]").inner_text()
    watched.check("file:")


def test_the_regression_is_in_the_reason_and_in_asv(watched: Watched, address: str) -> None:
    page = watched.page
    page.goto(f"{address}/compatibility.html")
    page.locator(cell("3.12", "2.9.1", "ops.gp_evolve/small/real-compiled")).click()
    past = page.locator("dialog[open] .past li")
    assert "1.20x" in past.nth(0).inner_text()
    assert "2.15x" in past.nth(1).inner_text()
    page.goto(f"{address}/index.html#/regressions")
    page.get_by_text("real-compiled").first.wait_for()
    watched.check(address)


def test_graph_breaks_recompiles_and_errors_are_shown(watched: Watched, site: Path) -> None:
    page = watched.page
    page.goto((site / "compatibility.html").as_uri())
    page.locator(cell("3.12", "2.9.1", "mlff.energy_forces/small/naive-compiled")).click()
    text = page.locator("dialog[open]").inner_text()
    assert "Tensor.item() in pair_list, painn.py:88" in text
    assert "tensor 'edges' size mismatch" in text
    assert "1.10e-07" in text
    assert "16 MiB" in text
    page.locator("dialog[open]").get_by_text("All packages").click()
    assert page.locator("details[open] .packages").inner_text().startswith("numpy==2.1.0")
    watched.check("file:")


def test_text_of_exceptions_is_escaped(watched: Watched, site: Path) -> None:
    page = watched.page
    page.goto((site / "compatibility.html").as_uri())
    page.locator(cell("3.12", "2.6.0", "mlff.energy_forces/small/naive-compiled")).click()
    assert page.locator("dialog[open] pre.said").inner_text() == SCRIPT
    page.keyboard.press("Escape")
    page.locator(cell("3.13", "2.6.0", "mlff.energy_forces/small/naive-compiled")).click()
    page.locator("dialog[open]").get_by_text("End of the output").click()
    assert page.locator("dialog[open] details pre").inner_text() == IMAGE
    assert page.evaluate("window.broken") is None
    assert page.locator("img").count() == 0
    watched.check("file:")


def test_first_good_and_last_bad_are_shown(watched: Watched, site: Path) -> None:
    page = watched.page
    page.goto((site / "compatibility.html").as_uri())
    support = page.locator('.matrix[data-text="ops.gp_evolve small real-compiled"] .support')
    assert "first good 2.6.0; last bad 2.5.1 (unsupported)" in support.inner_text()


def test_matrices_can_be_found_by_status_and_name(watched: Watched, site: Path) -> None:
    page = watched.page
    page.goto((site / "compatibility.html").as_uri())
    everything = page.locator(".matrix:visible").count()
    page.locator(".toggle.s-slow").click()
    assert page.locator(".matrix:visible").count() == 1
    page.locator(".toggle.s-slow").click()
    page.get_by_label("Workload, size or variant").fill("gp_evolve real")
    assert page.locator(".matrix:visible h3").all_inner_texts() == ["real-compiled small"]
    page.get_by_label("Workload, size or variant").fill("")
    assert page.locator(".matrix:visible").count() == everything
    watched.check("file:")


def test_speedup_page_has_charts_tables_and_links_to_the_reasons(
    watched: Watched, site: Path
) -> None:
    page = watched.page
    page.goto((site / "speedup.html").as_uri())
    title = page.locator("svg.plot > title", has_text="ops.field_superposition")
    chart = page.locator(".chart", has=title).first
    assert "a line per Python" in (chart.locator("svg.plot > desc").text_content() or "")
    assert chart.locator(".mark").count() == 9  # 5 + 3 + 1 releases that work
    assert chart.locator(".gone").count() == 6
    chart.get_by_text("As a table").click()
    assert "6.41x [" in chart.locator("table").inner_text()
    chart.locator(".gone").first.click()
    page.wait_for_url("**/compatibility.html#**")
    assert "support_gate" in page.locator("dialog[open]").inner_text()
    watched.check("file:")


def test_asv_pages_work_without_any_other_host(watched: Watched, address: str) -> None:
    page = watched.page
    page.goto(f"{address}/index.html")
    page.locator("#summarygrid-display a").first.wait_for()
    page.get_by_role("link", name="Benchmark list").click()
    page.locator("#summarylist-body table").first.wait_for()
    page.get_by_role("link", name="Regressions").click()
    page.locator("#regressions-body table").first.wait_for()
    page.get_by_role("link", name="Benchmark grid").click()
    page.locator("#summarygrid-display a").first.click()
    page.locator("#main-graph canvas").first.wait_for()
    watched.check(address)


def test_our_pages_and_asvs_link_to_each_other(watched: Watched, address: str) -> None:
    page = watched.page
    # Requests fail if the browser leaves a page while it loads.
    page.goto(f"{address}/index.html", wait_until="networkidle")
    page.get_by_role("link", name="Compatibility").click()
    assert page.locator("h1").inner_text() == "Compatibility"
    page.get_by_role("link", name="Speedup").click()
    assert page.locator("h1").inner_text() == "Speedup"
    page.get_by_role("link", name="Regressions").click()
    page.locator("#regressions-body table").first.wait_for()
    page.wait_for_load_state("networkidle")
    page.get_by_role("link", name="Speedup").click()
    page.get_by_role("link", name="Benchmark list").click()
    page.locator("#summarylist-body table").first.wait_for()
    watched.check(address)


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_overflows_the_window_and_no_word_its_cell(
    browser: Browser, site: Path, width: int, scheme: str
) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 800},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    page = context.new_page()
    for name in ("compatibility.html", "speedup.html"):
        page.goto((site / name).as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(
            "[...document.querySelectorAll('.cell')].every(c => c.scrollWidth <= c.clientWidth)"
        )
    context.close()


def test_the_json_equals_the_page(site: Path) -> None:
    rows = json.loads((site / "compatibility.json").read_text())
    gated = [row for row in rows if row["status"] == "unsupported"]
    assert {row["message"] for row in gated} == {GATE.format("3.13"), GATE.format("3.14")}
    assert all(row["failure_class"] == "support_gate" for row in gated)
