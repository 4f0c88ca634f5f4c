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
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parents[2]
MODULES = ("workload", "compile", "device", "ops", "mlff", "rollout", "surgical", "hotpath")
# A front page, a how-to, and pages of the reference: a command, the API, JSON.
PAGES = ("index", "runners", "commands/gate", "api/mlff", "schemas")

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
    for name in PAGES:
        page.goto((documentation / f"{name}.html").as_uri())
        page.locator(f"html[data-theme={scheme}]").wait_for()
        assert page.evaluate(TOO_WIDE) == [], name
        assert page.locator("meta[name=description]").get_attribute("content"), name
    assert failed == []
    assert [url for url in asked if not url.startswith("file:")] == []
    context.close()


def test_no_page_at_all_is_wider_than_a_phone(browser: Browser, documentation: Path) -> None:
    # Scripts of the theme take a third of the time; the five pages above run them.
    page = browser.new_page(viewport={"width": 390, "height": 844}, java_script_enabled=False)
    wide = {}
    for path in sorted(documentation.rglob("*.html")):
        page.goto(path.as_uri())
        if elements := page.evaluate(TOO_WIDE):
            wide[path.relative_to(documentation).as_posix()] = elements[-1]
    assert wide == {}
    page.close()


def found(page: Page, documentation: Path, text: str) -> list[str]:
    """Return the addresses that a search finds, the best first."""
    page.goto((documentation / "search.html").as_uri() + "?q=" + text.replace(" ", "+"))
    page.locator("#search-results p", has_text="found").wait_for()
    links = page.locator("#search-results li > a, #search-results li a:first-child")
    links.first.wait_for()
    hrefs = [link.get_attribute("href") or "" for link in links.all()]
    return list(dict.fromkeys(href.removeprefix("./") for href in hrefs))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("slow", "glossary.html#"),
        ("add a library", "observatory.html"),
        ("another instrument", "measuring.html"),
        ("runner", "runners.html"),
        ("exit code", "commands/index.html"),
        ("gate", "commands/gate.html"),
        ("PaiNNCalculator", "api/mlff.html"),
    ],
)
def test_the_page_that_explains_a_word_is_among_the_first_three_of_a_search(
    browser: Browser, documentation: Path, text: str, expected: str
) -> None:
    page = browser.new_page()
    first = found(page, documentation, text)[:3]
    assert any(href.startswith(expected) for href in first), first
    page.close()


def test_the_row_of_slow_is_where_the_search_leads(browser: Browser, documentation: Path) -> None:
    page = browser.new_page()
    (href, *_) = found(page, documentation, "slow")
    page.goto(f"{documentation.as_uri()}/{href}")
    row = page.locator("tr", has=page.locator(f"#{href.partition('#')[2].partition('?')[0]}"))
    assert "99 of 100 other runs would find it slower" in row.inner_text()
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
    page.goto((documentation.parent / "index.html").as_uri())
    page.wait_for_url("**/0.1.0/index.html")
    page.close()


def test_each_command_has_a_page_with_all_its_options(documentation: Path) -> None:
    assert {path.stem for path in (documentation / "commands").glob("*.html")} == {
        "index",
        *COMMANDS,
    }
    group: Any = typer.main.get_group(app)
    count = 0
    for name in COMMANDS:
        text = (documentation / "commands" / f"{name}.html").read_text(encoding="utf-8")
        plain = unescape(re.sub(r"<[^>]+>", "", text))
        group.resolve_command(None, [name])  # imports it
        for one in (group.commands[name], *getattr(group.commands[name], "commands", {}).values()):
            count += 1
            # The name of a page in docs/ is a link with the title of that page.
            for part in re.split(r"docs/[\w-]+\.md", one.help.replace("`", "")):
                assert " ".join(part.split()) in " ".join(plain.split()), name
            for parameter in one.params:
                is_option = parameter.param_type_name == "option"
                named = (*parameter.opts, *parameter.secondary_opts) if is_option else ()
                for text in (*named, parameter.help or ""):
                    assert " ".join(text.split()) in " ".join(plain.split()), (name, text)
    assert count - 1 == 31  # fleet alone has commands below it, and does nothing by itself


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
