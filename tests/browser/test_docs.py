"""The documentation is built without a warning, and is found and read at any width and theme."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer

from ivhl.cli import COMMANDS, app

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parents[2]
AXE = Path(__file__).parent / "vendor" / "axe-core-4.14.1.min.js"
MODULES = ("workload", "compile", "device", "ops", "mlff", "rollout", "surgical", "hotpath")
# A front page, a how-to, and pages of the reference: a command, the API, JSON.
PAGES = ("index", "runners", "commands/gate", "api/mlff", "schemas")

# Text and ground of these have at least this contrast, by WCAG 2.2 AA.
CONTRAST = "axe.run(document, {runOnly: ['color-contrast'], resultTypes: ['violations']})"
# Short names that a cell of a table breaks, and names in the path of the page that are cut.
BROKEN = """[
  ...[...document.querySelectorAll("td code")]
    .filter((one) => one.textContent.length <= 24 && one.getClientRects().length > 1),
  ...[...document.querySelectorAll(".bd-breadcrumbs span")]
    .filter((one) => one.checkVisibility() && one.scrollWidth > one.clientWidth),
].map((one) => one.textContent)"""
# Elements that end outside of the window, except in boxes that scroll. The column of the article
# scrolls, too, so the width of the document says nothing.
TOO_WIDE = """[...document.querySelectorAll("article *, header *")].filter((one) => {
  if (one.getBoundingClientRect().right <= window.innerWidth + 1) return false;
  if (!one.checkVisibility()) return false;
  for (let box = one; box.matches("article *"); box = box.parentElement) {
    if (["auto", "scroll"].includes(getComputedStyle(box).overflowX)) return false;
  }
  return true;
}).map((one) => one.outerHTML.slice(0, 100))"""


@pytest.fixture(scope="session")
def documentation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the documentation of this checkout, beside that of an older version."""
    pytest.importorskip("sphinx", reason="needs the dependency group docs")
    output = tmp_path_factory.mktemp("site")
    older = output / "docs" / "0.1.0"
    older.mkdir(parents=True)
    (older / "index.html").write_text("<!doctype html><title>0.1.0</title>", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "studies.docs", "--output", str(output)],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    (built,) = done.stdout.splitlines()
    return Path(built).parent


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_no_page_is_wider_than_the_window_or_asks_another_host(
    browser: Browser,
    documentation: Path,
    width: int,
    scheme: Any,  # noqa: ANN401
) -> None:
    context = browser.new_context(
        color_scheme=scheme, viewport={"width": width, "height": 844}, service_workers="block"
    )
    page = context.new_page()
    asked: list[str] = []
    failed: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("requestfailed", lambda request: failed.append(request.url))
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.on("console", lambda line: failed.append(line.text) if line.type != "log" else None)
    for name in PAGES:
        page.goto((documentation / f"{name}.html").as_uri())
        page.locator(f"html[data-theme={scheme}]").wait_for()
        assert page.evaluate(TOO_WIDE) == [], name
        assert page.locator("meta[name=description]").get_attribute("content"), name
    assert failed == []
    assert [url for url in asked if not url.startswith("file:")] == []
    context.close()


def test_no_page_at_all_is_wider_than_a_phone(browser: Browser, documentation: Path) -> None:
    # Without scripts pages open faster; the widths of articles are the same.
    page = browser.new_page(viewport={"width": 390, "height": 844}, java_script_enabled=False)
    wide, broken = {}, {}
    for path in sorted(documentation.rglob("*.html")):
        name = path.relative_to(documentation).as_posix()
        page.goto(path.as_uri())
        if elements := page.evaluate(TOO_WIDE):
            wide[name] = elements[-1]
        if names := page.evaluate(BROKEN):
            broken[name] = names
    assert wide == {}
    assert broken == {}
    page.close()


def test_code_has_the_room_of_the_window(browser: Browser, documentation: Path) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto((documentation / "track.html").as_uri())
    wide = "[...document.querySelectorAll('pre')].map((one) => one.scrollWidth - one.clientWidth)"
    assert max(page.evaluate(wide)) == 0
    page.close()


# Each question, and the page that answers it.
ANSWERS = {
    "slow": "glossary.html#",
    "add a library": "observatory.html",
    "table of libraries": "observatory.html",
    "librarys": "observatory.html",
    "another instrument": "measuring.html",
    "runner": "runners.html",
    "self-hosted runner": "runners.html",
    "GPU runner for my own project": "runners.html",
    "CI": "track.html",
    "continuous integration": "track.html",
    "broke in a new release": "regressions.html",
    "macOS": "index.html",
    "windows": "index.html",
    "exit code": "commands/index.html",
    "gate": "commands/gate.html",
    "get_compiled": "api/compile.html",
    "PaiNNCalculator": "api/mlff.html",
}


@pytest.fixture(scope="module")
def searching(browser: Browser, documentation: Path) -> Iterator[Page]:
    """Yield the page of the search, which several questions share."""
    page = browser.new_page()
    page.goto((documentation / "search.html").as_uri())
    yield page
    page.close()


def found(page: Page, text: str) -> list[str]:
    """Return the addresses that a search finds, the best first."""
    page.locator("#main-content input").fill(text)
    page.keyboard.press("Enter")
    page.locator("#search-results > p", has_text=f"found for “{text}”.").wait_for()
    links: list[str] = page.evaluate(
        "[...document.querySelectorAll('#search-results li > a')].map((a) => a.getAttribute('href'))"
    )
    return links


def test_the_page_that_answers_is_among_the_first_three_of_a_search(searching: Page) -> None:
    missed = {}
    for text, expected in ANSWERS.items():
        first = found(searching, text)[:3]
        if not any(href.startswith(expected) for href in first):
            missed[text] = first
    assert missed == {}


def test_a_word_of_the_glossary_is_found_with_its_meaning(
    browser: Browser, documentation: Path
) -> None:
    page = browser.new_page()
    page.goto((documentation / "search.html").as_uri() + "?q=slow")
    page.locator("#search-results li").first.wait_for()
    page.keyboard.press("Tab")  # the search leaves the focus before its first link
    assert page.evaluate("document.activeElement.matches('#search-results li:first-child > a')")
    row = page.locator("#search-results li", has=page.locator("> a[href^='glossary.html#']"))
    assert re.fullmatch(r"Glossary: (.+, )?slow", row.locator("> a").inner_text())
    meaning = "slower than eager code in 99 of 100 repeated runs"
    assert meaning in row.locator("p").first.inner_text()
    row.locator("> a").click()
    target = page.locator("tr", has=page.locator(f"#{page.url.partition('#')[2]}"))
    assert meaning in target.inner_text()
    page.close()


def test_a_search_that_finds_nothing_reports_it(searching: Page) -> None:
    assert found(searching, "<qqqqzzzz>") == []
    text = searching.locator("#search-results > p").inner_text()
    assert text == "Nothing found for “<qqqqzzzz>”."


def test_no_page_but_the_search_loads_what_is_searched(
    browser: Browser, documentation: Path
) -> None:
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
    page.goto((documentation / "index.html").as_uri())
    assert [name for name in asked if "search" in name or name == "passages.js"] == []
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_told_from_its_ground(
    browser: Browser,
    documentation: Path,
    scheme: Any,  # noqa: ANN401
) -> None:
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1280, "height": 900})
    page = context.new_page()
    for name in ("runners.html", "search.html?q=gate"):
        page.goto(f"{documentation.as_uri()}/{name}")
        page.locator(".versions summary").locator("visible=true").click()
        page.evaluate(AXE.read_text(encoding="utf-8"))
        violations = page.evaluate(CONTRAST)["violations"]
        assert [node["html"] for one in violations for node in one["nodes"]] == [], name
        # A single sign, such as that between two keys, is none of axe's texts.
        signs = page.locator(".search-button__kbd-shortcut, body")
        assert (
            len(set(signs.evaluate_all("(all) => all.map((s) => getComputedStyle(s).color)"))) == 1
        )
    context.close()


def test_without_scripts_pages_have_colours_versions_and_a_menu(
    browser: Browser, documentation: Path
) -> None:
    context = browser.new_context(
        color_scheme="dark", java_script_enabled=False, viewport={"width": 390, "height": 844}
    )
    page = context.new_page()
    page.goto((documentation / "track.html").as_uri())
    # A page without scripts can still be asked from outside.
    colour = "(one) => getComputedStyle(one).{}"
    ground = page.locator("body").evaluate(colour.format("backgroundColor"))
    assert sum(map(int, re.findall(r"\d+", ground))) < 150, ground
    code = page.locator("pre span").evaluate_all(f"(all) => all.map({colour.format('color')})")
    assert len(set(code)) > 2
    assert not page.locator(".sidebar-toggle").locator("visible=true").count()
    page.get_by_role("link", name="Menu").click()
    entry = page.locator("#pst-primary-sidebar").get_by_role("link", name="Set up a runner")
    assert entry.is_visible()
    page.locator("#pst-primary-sidebar .versions summary").click()
    assert (
        page.locator("#pst-primary-sidebar .versions a").get_attribute("href") == "../index.html"
    )
    entry.click()
    page.wait_for_url("**/runners.html")
    context.close()


def test_the_menu_of_a_phone_ends_inside_of_its_drawer(
    browser: Browser, documentation: Path
) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto((documentation / "track.html").as_uri())
    page.get_by_label("Site navigation").click()
    drawer = page.locator("#pst-primary-sidebar-modal[open]")
    drawer.wait_for()
    outside = """(drawer) => [...drawer.querySelectorAll("a, button, summary")].filter((one) =>
      one.checkVisibility()
      && one.getBoundingClientRect().right > drawer.getBoundingClientRect().right)
      .map((one) => one.outerHTML)"""
    assert drawer.evaluate(outside) == []
    page.close()


def test_a_heading_that_a_link_leads_to_keeps_away_from_the_header(
    browser: Browser, documentation: Path
) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 500})
    page.goto((documentation / "runners.html").as_uri() + "#runner")
    gap = """document.querySelector("#runner").getBoundingClientRect().top
      - document.querySelector("header").getBoundingClientRect().bottom"""
    assert page.evaluate(gap) > 8
    page.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_a_keyboard_reaches_the_navigation(
    browser: Browser, documentation: Path, width: int
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 844})
    page.goto((documentation / "index.html").as_uri())
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to main content"
    for _ in range(40):
        page.keyboard.press("Tab")
        active = page.evaluate("document.activeElement.getAttribute('aria-label') || ''")
        if active == "Site navigation":
            page.keyboard.press("Enter")
            page.locator("#pst-primary-sidebar-modal[open]").wait_for()
        # The front page has the same links in its text.
        inside = "document.activeElement.closest('.bd-docs-nav')?.contains(document.activeElement)"
        if (
            page.evaluate(f"{inside} && document.activeElement.textContent.trim()")
            == "Set up a runner"
        ):
            break
    else:
        pytest.fail("no Tab reaches the navigation")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runners.html")
    page.close()


def test_the_versions_are_the_folders_that_exist(browser: Browser, documentation: Path) -> None:
    page = browser.new_page()
    page.goto((documentation / "runners.html").as_uri())
    (switcher,) = (one for one in page.locator(".versions").all() if one.is_visible())
    switcher.locator("summary").click()
    links = switcher.locator("a").all()
    version = documentation.name
    assert {link.inner_text(): link.get_attribute("href") for link in links} == {
        "0.1.0": "../0.1.0/index.html",
        version: f"../{version}/runners.html",
    }
    results = page.get_by_text("Results", exact=True).locator("visible=true")
    assert results.count() == 0
    listed = documentation.parent / "versions.js"
    text = listed.read_text(encoding="utf-8")
    # As where results stand beside the documentation (tests/unit/test_docs_site.py).
    listed.write_text(text.replace("HAS_RESULTS = false", "HAS_RESULTS = true"), encoding="utf-8")
    page.reload()
    assert results.get_attribute("href") == "../../index.html"
    listed.write_text(text, encoding="utf-8")
    page.goto((documentation.parent / "index.html").as_uri())
    page.wait_for_url("**/0.1.0/index.html")
    page.close()


def test_pages_have_titles_of_their_own_and_no_markup(documentation: Path) -> None:
    titles: dict[str, str] = {}
    for path in sorted(documentation.rglob("*.html")):
        name = path.relative_to(documentation).as_posix()
        assert not name.startswith("_static/")  # a template of the theme
        text = path.read_text(encoding="utf-8")
        (title,) = re.findall(r"<title>(.*?)</title>", text)
        assert title not in titles, (name, titles[title])
        titles[title] = name
        (heading,) = re.findall(r"(?s)<h1>(.*?)</h1>", text)
        assert "`" not in title + heading, name
        assert 'rel="icon"' in text
        if "/" in name or name == "contributing.html":
            continue
        article = unescape(re.sub(r"<[^>]+>", "", text.partition("<article")[2]))
        assert not re.search(r"\]\(|\b(?:docs/)?(?:fleet|founding|measuring)\.md", article), name
    assert titles["ivhl: documentation"] == "index.html"
    assert titles["Search — ivhl"] == "search.html"


def test_files_that_one_edits_are_those_of_the_branch(documentation: Path) -> None:
    version = documentation.name
    tag = version if version == "main" else f"v{version}"
    text = (documentation / "observatory.html").read_text(encoding="utf-8")
    assert f"github.com/ivhl/ivhl/blob/{tag}/observatory/libraries.toml" in text


def test_each_command_has_a_page_with_all_its_options(documentation: Path) -> None:
    assert {path.stem for path in (documentation / "commands").glob("*.html")} == {
        "index",
        *COMMANDS,
    }
    group: Any = typer.main.get_group(app)
    count = 0
    for name in COMMANDS:
        page = (documentation / "commands" / f"{name}.html").read_text(encoding="utf-8")
        plain = unescape(re.sub(r"<[^>]+>", "", page))
        group.resolve_command(None, [name])  # imports it
        for one in (group.commands[name], *getattr(group.commands[name], "commands", {}).values()):
            count += 1
            # The name of a page in docs/ is a link with the title of that page.
            for part in re.split(r"docs/[\w-]+\.md", one.help.replace("`", "")):
                assert " ".join(part.split()) in " ".join(plain.split()), name
            for parameter in one.params:
                is_option = parameter.param_type_name == "option"
                named = (*parameter.opts, *parameter.secondary_opts) if is_option else ()
                for text in (*named, (parameter.help or "").replace("`", "")):
                    assert " ".join(text.split()) in " ".join(plain.split()), (name, text)
        (example,) = re.findall(r"(?s)Example</strong>.*?<pre>(.*?)</pre>.*?Guide: <a ", page)
        assert f"ivhl {name}" in unescape(re.sub(r"<[^>]+>", "", example))
    assert count - 1 == 32  # fleet alone has commands below it, and does nothing by itself


@pytest.mark.parametrize("module", MODULES)
def test_each_module_has_a_page_with_what_it_exports(documentation: Path, module: str) -> None:
    text = (documentation / "api" / f"{module}.html").read_text(encoding="utf-8")
    ids = set(re.findall(rf'id="ivhl\.{module}\.(\w+)"', text))
    source = ROOT / "ivhl" / module / "__init__.py"
    exported = (
        set(re.findall(r'^    "(\w+)",$', source.read_text("utf-8"), re.MULTILINE))
        if source.is_file()
        else {"workload": {"workload"}, "compile": {"get_compiled"}, "device": {"get_device"}}[
            module
        ]
    )
    assert exported
    assert exported <= ids


def test_each_schema_has_a_section(documentation: Path) -> None:
    text = (documentation / "schemas.html").read_text(encoding="utf-8")
    names = [path.stem for path in sorted((ROOT / "docs" / "schemas").glob("*.json"))]
    assert [name for name in names if f'id="{name}"' not in text] == []
    assert "ivhl.gate/1" in text
