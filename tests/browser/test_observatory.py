"""The table of libraries in a browser: found, filtered, shared, by keyboard, without scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ivhl.asv.publish import publish
from ivhl.observatory.record import Break, Second
from ivhl.records.text import visible
from tests.browser.test_access import ELEMENTS, barriers
from tests.builders.observatory import (
    CELLS,
    VERDICTS,
    every_verdict,
    failed,
    make_observatory,
    make_observed,
    names_of,
)
from tests.builders.project import make_project
from tests.builders.records import UNSEEN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

# One page of each kind; of libraries, with a cell that its address opens.
PAGES = (
    "index.html", "3.13.html", "library/keras.html", "library/keras.html#3.12-2.14.1",
    "signatures.html", "2.15.0.html", "2.2.2.html", "suite.html",
)  # fmt: skip
PAYLOAD = "\"'><img src=x onerror=window.broken=1>"


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the site of a project with 20 libraries in 30 cells."""
    root = tmp_path_factory.mktemp("observatory")
    make_project(root)
    names = names_of(20)
    make_observatory(root, every_verdict(names), names)
    return publish(root, root / "site", asv=False).output


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(10_000)
    found = context.new_page()
    errors: list[str] = []
    found.on("pageerror", lambda error: errors.append(str(error)))
    found.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
    yield found
    assert errors == []
    context.close()


def shown(page: Page) -> list[str]:
    """Return the names of the libraries that are in the table now."""
    return page.locator("tr[data-name]:visible th a").all_inner_texts()


def test_from_the_search_field_to_the_reason_of_a_failure(page: Page, libraries: Path) -> None:
    page.goto((libraries / "index.html").as_uri())
    everything = shown(page)
    assert len(everything) == 21  # and the suite of the project
    page.get_by_role("searchbox").fill("kER")
    assert shown(page) == ["keras", "keras-1"]
    page.locator("tr[data-name=keras] td", has_text="failed step").first.click()
    page.wait_for_url("**/library/keras.html#3.12-2.14.1")
    cell = page.locator("[id='3.12-2.14.1']")
    assert cell.is_visible()  # the address opens it
    text = cell.inner_text()
    assert "make_fallback(aten._unique2.default)" in text
    assert "ivhl observe keras --torch 2.14.1 --python 3.12 --force" in text
    assert "compiling pays after" in text
    cause = page.locator("article", has_text="_unique2").first
    assert "on 3.12: 2.11.0 to 2.14.1" in cause.inner_text()
    cause.get_by_role("link").first.click()
    assert "Not reported that we know of" in page.locator("main").inner_text()
    page.get_by_role("link", name="keras", exact=True).click()
    page.wait_for_url("**/library/keras.html")


def test_filters_are_kept_in_the_address_and_shared_by_it(page: Page, libraries: Path) -> None:
    page.goto((libraries / "index.html").as_uri())
    everything = shown(page)
    page.locator("[name=torch]").select_option("2.14.1")
    assert page.locator("#libraries thead th:visible").count() == 2
    page.locator(".toggle.s-failed").click()
    found = shown(page)
    assert 0 < len(found) < len(everything)
    verdicts = page.locator("tr[data-name]:visible td:visible").all_inner_texts()
    assert {text.split()[0] for text in verdicts} == {"failed"}
    assert page.locator("#count").inner_text() == f"{len(found)} of 20 libraries"
    again = page.context.new_page()
    again.goto(page.url)
    assert shown(again) == found
    again.close()
    page.locator(".toggle.s-failed").click()
    page.locator("[name=torch]").select_option("")
    assert shown(page) == everything
    assert "#" not in page.url


def test_a_signature_leaves_the_libraries_that_show_it(page: Page, libraries: Path) -> None:
    page.goto((libraries / "index.html").as_uri())
    select = page.locator("[name=signature]")
    name = select.locator("option", has_text="graph breaks").first.get_attribute("value")
    select.select_option(name)
    found = shown(page)
    breaks = page.locator("tr[data-name]", has=page.locator("td.s-breaks")).count()
    assert len(found) == breaks > 0
    page.locator("[name=torch]").select_option("2.15.0")  # together: in one cell
    both = page.locator("tr[data-name]", has=page.locator("td:first-of-type.s-breaks")).count()
    assert len(shown(page)) == both
    page.goto("about:blank")
    page.goto(f"{(libraries / 'index.html').as_uri()}#signature=none-of-this-name&verdict=odd")
    said = "20 libraries; the address asks for signature none-of-this-name, verdict odd"
    assert page.locator("#count").inner_text().startswith(said)


def test_another_python_is_a_page_of_its_own(page: Page, libraries: Path) -> None:
    page.goto((libraries / "index.html").as_uri())
    page.get_by_label("Pythons").get_by_role("link", name="3.13").click()
    page.wait_for_url("**/3.13.html")
    assert page.title().startswith("Does torch.compile work with your library on Python 3.13?")
    page.locator("#libraries thead").get_by_role("link", name="2.14.1").click()
    page.wait_for_url("**/2.14.1.html")
    assert "Before: 2.13.0" in page.locator("main").inner_text()


def test_the_table_is_one_stop_for_the_tab_key_and_moves_by_arrows(
    page: Page, libraries: Path
) -> None:
    page.goto((libraries / "index.html").as_uri())
    assert page.locator("#libraries tbody [tabindex='0']").count() == 1
    page.locator("#libraries tbody [tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    href = page.evaluate("document.activeElement.getAttribute('href')")
    assert str(href).endswith("#3.12-2.15.0")
    page.keyboard.press("Control+End")
    assert page.evaluate("document.activeElement.closest('tbody').className") == "own"
    page.keyboard.press("Control+Home")
    page.keyboard.press("Enter")
    page.wait_for_url("**/library/torchvision.html")


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (1280, "light"),
        (390, "dark"),
        pytest.param(1280, "dark", marks=pytest.mark.full),
        pytest.param(390, "light", marks=pytest.mark.full),
    ],
)
def test_no_page_has_a_barrier_or_is_wider_than_the_window(
    browser: Browser,
    libraries: Path,
    scheme: Any,  # noqa: ANN401
    width: int,
) -> None:
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})
    page = context.new_page()
    signature = f"signature/{min(libraries.glob('signature/*')).name}"
    for name in (
        *PAGES,
        signature,
        "index.html#verdict=wrong&torch=2.15.0",
        "index.html#text=none",
    ):
        page.goto("about:blank")
        path, _, anchor = name.partition("#")
        page.goto(f"{(libraries / path).as_uri()}#{anchor}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        assert barriers(page) == [], name
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert page.evaluate("document.querySelectorAll('*').length") <= ELEMENTS, name
    page.goto((libraries / "index.html").as_uri())
    newest = page.locator("#libraries tbody td").first.bounding_box()
    assert newest is not None
    assert newest["x"] + newest["width"] <= width
    context.close()


def test_without_scripts_every_verdict_is_there_and_leads_to_its_reason(
    browser: Browser, libraries: Path
) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((libraries / "index.html").as_uri())
    assert "Without JavaScript the filters are missing" in page.locator("main").inner_text()
    assert not page.locator("#filters").is_visible()
    assert len(shown(page)) == 21
    page.locator("tr[data-name=keras] td", has_text="failed step").first.get_by_role(
        "link"
    ).click()
    page.wait_for_url("**/library/keras.html#3.12-2.14.1")
    assert page.locator("[id='3.12-2.14.1'] .command").is_visible()
    context.close()


def test_a_printed_table_has_every_release(page: Page, libraries: Path) -> None:
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 1520, "height": 1000})  # A3, as its page asks for
    page.goto((libraries / "index.html").as_uri())
    last = page.locator("#libraries thead th").last.bounding_box()
    assert last is not None
    assert last["x"] + last["width"] <= 1520


def test_a_payload_in_every_text_runs_on_no_page(page: Page, tmp_path: Path) -> None:
    make_project(tmp_path)
    text = f"{PAYLOAD}{UNSEEN}"
    names = {"exception": text, "where": text, "frame": text}
    fields = (
        "target",
        "inputs",
        "version",
        "lock",
        "overlay",
        "row",
        "instrument",
        "machine",
        "why",
    )
    said = dict.fromkeys(fields, text)
    records = [
        make_observed(**failed(text, **names) | said),
        make_observed(ask="step", **VERDICTS["wrong"] | said),
        make_observed(case="large", graph_breaks=(Break(text=text, count=2),), **said),
        make_observed(
            case="large", ask="step", second=Second(inputs=text, recompiles=1, off=0.0), **said
        ),
        make_observed(torch="2.14.1", **VERDICTS["pinned"] | said),
        make_observed(torch="2.14.1", **VERDICTS["wrong"] | said | {"machine": f"2{text}"}),
    ]
    make_observatory(tmp_path, records, ["timm"])
    done = publish(tmp_path, tmp_path / "site", asv=False)
    assert done.problems == ()
    pages = [
        *done.output.glob("*.html"),
        *done.output.glob("library/*"),
        *done.output.glob("signature/*"),
    ]
    assert len([path for path in pages if path.parent.name == "signature"]) >= 3
    for path in pages:
        page.goto(path.as_uri())
        page.evaluate("document.querySelectorAll('summary, .copy').forEach((one) => one.click())")
        assert page.locator('img[src="x"]').count() == 0, path
        assert page.evaluate("window.broken") is None, path
        html = str(page.evaluate("document.documentElement.outerHTML"))
        assert visible(html) == html, path
    page.goto((done.output / "library" / "timm.html").as_uri())
    assert PAYLOAD in (page.locator("main").text_content() or "")


def test_cells_cover_the_goal() -> None:
    assert len(CELLS) == 30
