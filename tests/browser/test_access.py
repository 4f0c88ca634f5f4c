"""No page has a barrier that axe-core finds; keyboard, width, theme and paper are no obstacle."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ivhl.asv.publish import publish
from ivhl.tracker.support.expectations import EXPECTATIONS
from tests.builders.project import make_project

if TYPE_CHECKING:
    from collections.abc import Sequence

    from playwright.sync_api import Browser, Page

VENDOR = Path(__file__).parent / "vendor"
AXE = VENDOR / "axe-core-4.14.1.min.js"
CASE = "case/bench+cpu/ops.gp_evolve+small+real-compiled.html"
# One page of each kind.
PAGES = (
    "index.html",
    "matrix.html",
    CASE,
    "regressions.html",
    "compare.html",
    "environments.html",
    "environment/py3.12-torch2.6.0.html",
    "run",
    "asv.html",
)
ELEMENTS = 6_000  # after any click, as of a page (tests/unit/test_pages_render.py)
ROW = re.compile(r"^\| `(?P<name>[^`]+)` \|.*\| `(?P<digest>[0-9a-f]{64})` \|$", re.MULTILINE)


def address_of(site: Path, name: str) -> str:
    path = min(site.glob("run/*/*.html")) if name == "run" else site / name
    return path.as_uri()


def barriers(page: Page, rules: Sequence[str] = ()) -> list[str]:
    """Return what axe-core finds against WCAG 2.2 AA, and its best practices, or some rules."""
    page.locator("[aria-busy]").wait_for(state="detached")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    options = {"resultTypes": ["violations"]} | ({"runOnly": rules} if rules else {})
    found: dict[str, Any] = page.evaluate("(options) => axe.run(document, options)", options)
    return [
        f"{one['impact']} {one['id']}: {node['target']} {node['html'][:120]}"
        for one in found["violations"]
        for node in one["nodes"][:3]
    ]


def test_axe_core_is_as_its_readme_says() -> None:
    readme = (VENDOR / "README.md").read_text(encoding="utf-8")
    listed = {row["name"]: row["digest"] for row in ROW.finditer(readme)}
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.iterdir()
        if path.name != "README.md"
    }
    assert listed == found


# Rules of axe-core for each theme: the second differs from the first in nothing but its colours.
THEMES: dict[Any, Sequence[str]] = {"light": (), "dark": ("color-contrast",)}


@pytest.mark.parametrize("scheme", THEMES)
def test_no_page_has_a_barrier(browser: Browser, site: Path, scheme: Any) -> None:  # noqa: ANN401
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1280, "height": 900})
    page = context.new_page()
    for name in PAGES:
        page.goto(address_of(site, name))
        assert barriers(page, THEMES[scheme]) == [], name
    # With everything open: the details of a cell, a course over commits, all sections.
    page.goto((site / CASE).as_uri())
    page.locator("#show").click()
    page.locator("#course .chart").first.wait_for()
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.locator(".numbers table").first.wait_for()
    assert barriers(page, THEMES[scheme]) == [], "case, open"
    page.locator("[data-details]").first.click()
    page.locator("#details[open] .facts").first.wait_for()
    assert barriers(page, THEMES[scheme]) == [], "details"
    context.close()


# What a person has done on a page: its address, what to click, what then appears.
STATES = {
    "a failed cell": ("matrix.html#status=failed&support=on", "td.s-failed", "#details[open] pre"),
    "a refused cell": ("matrix.html#python=3.13", "td.s-unsupported", "#details[open] .facts"),
    "no case left": ("matrix.html#text=no-such-case", "h1", "#count"),
    "an incident": ("regressions.html#worse=worse", "article summary", "article details[open]"),
    "no incident left": ("regressions.html#text=no-such-case", "h1", "#count"),
    "two sides": ("compare.html#a-torch=2.8.0&b-torch=2.9.1&all=on", "h1", "#result tbody tr"),
    "incomparable": ("compare.html#a-torch=2.4.1&b-python=3.13&b-torch=2.9.1", "h1", "#summary"),
    "an environment": ("environment/py3.13-torch2.6.0.html", "h1", ".neighbours"),
}


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (1024, "light"),
        (390, "dark"),
        pytest.param(1024, "dark", marks=pytest.mark.full),
        pytest.param(390, "light", marks=pytest.mark.full),
    ],
)
def test_no_state_of_a_page_has_a_barrier(
    browser: Browser,
    site: Path,
    scheme: Any,  # noqa: ANN401
    width: int,
) -> None:
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})
    page = context.new_page()
    for name, (address, click, appears) in STATES.items():
        path, _, anchor = address.partition("#")
        page.goto("about:blank")
        page.goto(f"{(site / path).as_uri()}#{anchor}")
        page.locator(click).first.click()
        page.locator(appears).first.wait_for()
        page.evaluate(
            "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
        )
        assert barriers(page) == [], name
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert page.evaluate("document.querySelectorAll('*').length") <= ELEMENTS, name
    context.close()


def test_a_site_without_records_has_no_barrier(browser: Browser, tmp_path: Path) -> None:
    make_project(tmp_path)
    shutil.rmtree(tmp_path / "results")
    site = publish(tmp_path, tmp_path / "site", asv=False).output
    context = browser.new_context()
    page = context.new_page()
    for name in ("index.html", "matrix.html", "regressions.html", "compare.html", "asv.html"):
        page.goto((site / name).as_uri())
        for scheme, rules in THEMES.items():
            page.emulate_media(color_scheme=scheme)
            assert barriers(page, rules) == [], (name, scheme)
    page.goto((site / "index.html").as_uri())
    assert "No records yet" in page.locator("main").inner_text()
    context.close()


def test_axe_core_would_find_a_barrier(browser: Browser, site: Path) -> None:
    page = browser.new_page()
    page.goto((site / "index.html").as_uri())
    page.evaluate("document.querySelector('html').removeAttribute('lang')")
    assert any("html-has-lang" in text for text in barriers(page))
    page.close()


@pytest.mark.parametrize("width", [1440, pytest.param(1024, marks=pytest.mark.full), 390])
def test_no_page_is_wider_than_the_window(browser: Browser, site: Path, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800})
    page = context.new_page()
    for name in PAGES:
        page.goto(address_of(site, name))
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
    context.close()


def test_a_long_address_of_a_known_failure_makes_no_page_wider(
    browser: Browser, tmp_path: Path
) -> None:
    make_project(tmp_path)
    (tmp_path / EXPECTATIONS).write_text(
        '[[failure]]\npython = ">=3.13"\ntorch = ""\nworkload = "*"\nclass = "support_gate"\n'
        'reason = "no"\nlink = "https://example.org/a/very/long/address/without/a/blank/144048"\n'
    )
    site = publish(tmp_path, tmp_path / "site", asv=False).output
    context = browser.new_context(viewport={"width": 390, "height": 800})
    page = context.new_page()
    page.goto((site / CASE).as_uri())
    assert "144048" in page.locator("section", has=page.locator("#expected")).inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    context.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_the_newest_release_is_in_view(browser: Browser, site: Path, width: int) -> None:
    """It is what the first page recommends; a table that begins with the oldest hides it."""
    context = browser.new_context(viewport={"width": width, "height": 800})
    page = context.new_page()
    for name, heads in (
        ("index.html", ".shares thead th"),
        ("matrix.html", "#matrix th[data-torch]"),
        (CASE, ".strip thead th"),
    ):
        page.goto((site / name).as_uri())
        newest = page.locator(heads, has_text="2.9.1").first
        assert newest.evaluate("e => e.getBoundingClientRect().right") <= width, name
    context.close()


def test_the_matrix_is_one_stop_for_the_tab_key_and_moves_by_arrows(
    browser: Browser, site: Path
) -> None:
    page = browser.new_page()
    page.goto((site / "matrix.html").as_uri())
    assert page.locator("#matrix [tabindex='0']").count() == 1
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.locator("#matrix [tabindex='0']").focus()

    def here() -> str:
        return str(page.evaluate("document.activeElement.textContent.trim()"))

    first = here()
    page.keyboard.press("ArrowRight")
    cell = here()
    assert cell != first
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    assert here() == cell
    page.keyboard.press("Control+End")
    last = here()
    page.keyboard.press("ArrowDown")
    assert here() == last
    page.keyboard.press("Control+Home")
    assert here() == first
    assert page.locator("#matrix [tabindex='0']").count() == 1
    while page.locator("#matrix td.none:focus").count() or here() == first:
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowRight")
    cell = here()
    page.keyboard.press("Enter")
    page.locator("#details[open] h2").wait_for()
    page.keyboard.press("Escape")
    page.locator("#matrix td:focus").wait_for()
    assert here() == cell
    page.close()


def test_a_status_is_never_a_colour_alone(browser: Browser, site: Path) -> None:
    page = browser.new_page()
    page.goto((site / "matrix.html").as_uri())
    for status in ("unsupported", "wrong", "failed"):
        texts = page.locator(f"#matrix td.s-{status}").all_inner_texts()
        assert texts
        assert all(status in text for text in texts)
    slow = page.locator("#matrix td.s-slow").all_inner_texts()
    assert slow
    assert all(text.startswith("slow ") for text in slow)
    page.close()


def test_paper_gets_the_whole_matrix(browser: Browser, site: Path) -> None:
    page = browser.new_page()
    page.goto((site / "matrix.html").as_uri())
    page.emulate_media(media="print")
    assert page.locator(".table-scroll").evaluate("e => getComputedStyle(e).overflow") == "visible"
    page.locator("#filters").wait_for(state="hidden")
    page.locator(".bar").wait_for(state="hidden")
    page.set_viewport_size({"width": 1045, "height": 715})  # A4, landscape, with margins
    assert page.evaluate("document.documentElement.scrollWidth") <= 1045
    page.close()


# Words of tables that are on more than one line.
BROKEN = """[...document.querySelectorAll(".plain td, .plain thead th")].filter((cell) => {
  const range = document.createRange();
  range.selectNodeContents(cell);
  const lines = new Set([...range.getClientRects()].map((one) => one.top));
  return /^\\S+$/.test(cell.textContent) && !cell.querySelector("code, .chip") && lines.size > 1;
}).map((cell) => cell.textContent)"""


@pytest.mark.parametrize("name", ["compare.html", "environments.html"])
def test_paper_gets_every_column_of_a_table(browser: Browser, site: Path, name: str) -> None:
    page = browser.new_page(viewport={"width": 718, "height": 1045})  # A4, with margins
    page.emulate_media(media="print")
    page.goto((site / name).as_uri())
    page.locator("table.plain").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 718
    assert page.evaluate(BROKEN) == []
    page.close()
