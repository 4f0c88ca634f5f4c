"""asv's pages of our records: what a person finds there, and in how many clicks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.browser.test_site import watched  # noqa: F401  (a fixture)

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

    from tests.browser.test_site import Watched

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

OPERATION = "condensate.gp_evolve"


def legend(page: Page) -> list[str]:
    page.locator("#ivhl-legend .legendLabel").first.wait_for()
    return page.locator("#ivhl-legend .legendLabel").all_inner_texts()


def test_the_founding_failure_is_two_clicks_from_the_grid(watched: Watched, address: str) -> None:  # noqa: F811
    page = watched.page
    page.goto(f"{address}/asv/index.html")
    cell = page.locator(".ivhl-cell", has_text="gp_evolve")
    assert "Python 3.14, PyTorch 2.9.1" in cell.inner_text()
    cell.get_by_text("fails in").click()
    found = page.locator("#ivhl-failures p", has_text="Python 3.13, PyTorch 2.5.1")
    found.first.wait_for()
    assert "Dynamo is not supported on Python 3.13+" in found.first.inner_text()
    assert [label[-4:] for label in legend(page)] == ["3.12", "3.13", "3.14"]
    page.wait_for_load_state("networkidle")
    watched.check(address)


def test_an_operation_has_a_line_for_each_release_of_one_python(
    watched: Watched,  # noqa: F811
    address: str,
) -> None:
    page = watched.page
    page.goto(f"{address}/asv/index.html#{OPERATION}.track_speedup")
    labels = legend(page)
    assert labels == sorted(labels)
    assert all(label.startswith("torch 2.") for label in labels)
    graph, beside = page.locator("#main-graph").bounding_box(), page.locator("#ivhl-side")
    side = beside.bounding_box()
    assert graph
    assert side
    assert side["x"] >= graph["x"] + graph["width"]
    assert page.evaluate("document.documentElement.scrollHeight") < 1000
    page.locator("#graphdisplay-navigation-params .btn", has_text="torch").first.click()
    page.locator(".flot-x-axis .flot-tick-label", has_text="2.9.1").wait_for()
    page.locator("#graphdisplay-state-params .btn", has_text="3.13").click()
    page.locator("#ivhl-legend .legendLabel", has_text="3.13").wait_for()
    page.wait_for_load_state("networkidle")
    watched.check(address)


def test_releases_stand_in_the_order_of_their_versions(
    watched: Watched,  # noqa: F811
    address: str,
    site: Path,
) -> None:
    index = json.loads((site / "asv" / "index.json").read_text())
    page = watched.page
    page.goto(f"{address}/asv/index.html#{OPERATION}.track_speedup?x-axis=torch")
    page.locator(".flot-x-axis .flot-tick-label").first.wait_for()
    labels = page.locator("#main-graph .flot-x-axis .flot-tick-label").all_inner_texts()
    params = [
        value.strip("'")
        for value in index["benchmarks"][f"{OPERATION}.track_speedup"]["params"][2]
    ]
    assert labels == [name for name in params if name in labels]
    assert len(labels) >= 3


def test_a_verdict_leads_to_its_graph_and_nothing_is_wider_than_a_phone(
    watched: Watched,  # noqa: F811
    address: str,
) -> None:
    page = watched.page
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(f"{address}/asv/index.html#/regressions")
    row = page.locator("#regressions-body tbody tr", has_text="PyTorch").first
    row.wait_for()
    row.locator("a").first.click()
    page.locator("#main-graph canvas").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    first, then = (
        page.locator(f"#{x}").bounding_box() for x in ("main-graph", "graphdisplay-navigation")
    )
    assert first
    assert then
    assert first["y"] < then["y"]
    watched.check(address)
