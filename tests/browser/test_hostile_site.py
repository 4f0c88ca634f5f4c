"""A payload in every text of records, machine files and benchmarks runs on no page of the site."""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
import threading
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from asv.commands.publish import Publish
from asv.config import Config

import ivhl.asv
from ivhl.asv.publish import publish
from ivhl.records.bounds import Text
from ivhl.records.files import append_record, record_file
from ivhl.records.text import visible
from ivhl.tracker.changes.confirmations import Confirmation, keep_confirmations
from ivhl.tracker.store.kept import Provenance, digest_of, keep_provenance
from ivhl.tracker.support import known
from ivhl.tracker.support.known import KnownCause
from studies.stored import load_records
from tests.builders.history import note_change
from tests.builders.project import BENCHMARK, make_project
from tests.builders.records import UNSEEN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # of the HTTP server's sockets

# Without "/", so that it can be the name of a folder, too.
PAYLOAD = "\"'><img src=x onerror=window.broken=1>"
# What places a record, and words from a fixed list: no text that a sender can choose.
_FIXED = {"schema", "recorded_at", "commit", "id", "python", "torch", "workload", "workload_version",
          "clock", "phase", "failure_class", "project", "size", "variant", "engine", "lock_sha256",
          "device", "level", "reference", "passes"}  # fmt: skip


def planted(value: Any, key: str = "", hidden: str = "") -> Any:  # noqa: ANN401  (JSON)
    """Return JSON with the payload in each text, and behind it what no reader would see."""
    if isinstance(value, dict):
        return {name: planted(inner, name, hidden) for name, inner in value.items()}
    if isinstance(value, list):
        return [planted(inner, key, hidden) for inner in value]
    if isinstance(value, str) and key not in _FIXED:
        return f"{value} {PAYLOAD}{hidden}" if key != "name" else PAYLOAD
    return value


def plant_words(results: Path, commits: list[str]) -> None:
    """Put the payload into what people and workflows say of records, and into names of cases."""
    said = f"{PAYLOAD}{UNSEEN}"
    note_change(results.parent, commit=commits[-1], reason=said)
    note_change(results.parent, torch=">=2.9.1", reason=PAYLOAD)
    fall = Confirmation(
        machine=PAYLOAD, python="3.12", torch="2.9.1", case="ops.gp_evolve/small/real-compiled",
        base=commits[-2], head=commits[-1], verdict="slower", rounds=3, text=PAYLOAD,
        at="2026-11-28T00:00:00+00:00",
    )  # fmt: skip
    keep_confirmations(results, [fall])
    records = load_records(results).records
    digests = tuple(digest_of(record) for record in records)
    words = dict.fromkeys(("repository", "workflow", "commit", "runner", "run", "at"), PAYLOAD)
    keep_provenance(results, Provenance(**words, records=digests))
    retired = replace(records[0], size=PAYLOAD, variant=PAYLOAD, workload=PAYLOAD, same_as=PAYLOAD)
    append_record(record_file(results, PAYLOAD, retired.commit, retired.cell.id), retired)


def plant(root: Path, commits: list[str]) -> None:
    """Put the payload into everything in the results."""
    results = root / "results"
    folder = (results / "bench").rename(results / PAYLOAD)
    for path in folder.glob("records/*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        lines = [planted(line, hidden=UNSEEN) for line in lines]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    about = json.loads((folder / "machine.json").read_text())
    about = planted(about) | {"machine": PAYLOAD, f"a {PAYLOAD}": PAYLOAD}
    (folder / "machine.json").write_text(json.dumps(about))
    for path in folder.glob("*-locked-*.json"):
        data = json.loads(path.read_text())
        data["params"] |= {key: about[key] for key in about if key != "version"}
        path.write_text(json.dumps(data))
    # A second machine, or asv shows no panel for what all share.
    other = shutil.copytree(folder, results / "bench")
    for path in other.glob("*.json"):
        path.write_text(path.read_text().replace(json.dumps(PAYLOAD), '"bench"'))
    plant_words(results, commits)
    listed = json.loads((results / "benchmarks.json").read_text())
    listed[BENCHMARK] |= {"code": PAYLOAD, "pretty_name": f"track {PAYLOAD}", "unit": PAYLOAD}
    (results / "benchmarks.json").write_text(json.dumps(listed))


def asv_here(root: Path, configuration: Path, html_dir: Path) -> str:
    """Run ``asv publish`` in this process, in which the rules of texts refuse nothing."""
    ivhl.asv.setup()
    conf = Config.load(str(configuration))
    conf.html_dir = str(html_dir)
    with contextlib.chdir(root):
        Publish.run(conf=conf, pull=False)
    return ""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hostile")
    url = f"https://a/b/c/issues/1{PAYLOAD}"
    of_all = {"title": PAYLOAD, "url": url, "report": PAYLOAD, "sign": [{"message": "."}]}
    cause = KnownCause.model_validate({"name": "wrong", **of_all})
    with pytest.MonkeyPatch.context() as patch:
        # The rules of texts refuse most of these: pages must not need them.
        patch.setattr(Text, "mistake", lambda *_: "")
        plant(root, make_project(root))
        patch.setattr(known, "known_causes", lambda: (cause,))
        patch.setattr("ivhl.asv.publish._run_asv", asv_here)
        published = publish(root, root / "site")
    assert published.problems == ()
    return published.output


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (its own name)
        pass


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    handler = functools.partial(_Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def pages_of(site: Path) -> list[str]:
    """Return the pages of the site; of those that are made for each case or cell, the first."""
    found = [f"{path.relative_to(site)}" for path in sorted(site.rglob("*.html"))]
    kinds = {
        (p.partition("/")[0] if "/" in p and not p.startswith("asv") else p): p for p in found
    }
    return list(kinds.values())


# Everything that reacts: what a hand would hover over, focus and click, without leaving the page.
_TOUCH = """
() => {
  const leaves = e => e.tagName === 'A' && !(e.getAttribute('href') || '#').startsWith('#');
  const all = [...document.querySelectorAll(
    'a, button, .btn, summary, [title], td, .panel *, svg *')];
  for (const e of all.slice(0, 3000)) {
    for (const kind of ['mouseover', 'mouseenter', 'mousemove', 'focus']) {
      e.dispatchEvent(new MouseEvent(kind, {bubbles: true}));
    }
    if (!leaves(e) && e.click && e.matches('button, .btn, summary')) { e.click(); }
  }
  return all.length;
}
"""


def touch(page: Page) -> None:
    """Hover and click everything; then assert that no payload became HTML or ran."""
    assert page.evaluate(_TOUCH) > 0
    page.wait_for_timeout(100)
    assert page.locator('img[src="x"]').count() == 0
    assert page.evaluate("window.broken") is None
    if "/asv/" not in page.url:
        # asv's pages show the texts of asv's files, for which an import takes no such character.
        html = str(page.evaluate("document.documentElement.outerHTML"))
        assert visible(html) == html


@pytest.mark.full
def test_a_payload_in_every_text_runs_on_no_page(
    browser: Browser, site: Path, address: str
) -> None:
    page = browser.new_page()
    places = pages_of(site)
    assert {"index.html", "matrix.html", "regressions.html"} <= set(places)
    for place in places:
        wait: Any = "networkidle" if place.startswith("asv/") else "load"
        page.goto(f"{address}/{place}", wait_until=wait)
        touch(page)
    for place in ("#/summarylist", "#/regressions", f"#{BENCHMARK}"):
        page.goto(f"{address}/asv/index.html{place}", wait_until="networkidle")
        page.reload(wait_until="networkidle")
        # A real pointer, too: the machine's tooltip has what its file says.
        for button in page.locator(".btn:visible").all()[:8]:
            button.hover(force=True)
        touch(page)
    page.close()


def test_what_people_and_workflows_say_is_shown_as_text(browser: Browser, address: str) -> None:
    """Opens the details of cells, and every choice of a comparison: data that is loaded later."""
    page = browser.new_page()
    page.goto(f"{address}/regressions.html")
    text = page.locator("main").text_content() or ""
    assert f"Known: {PAYLOAD}" in text
    assert f"Measured again: {PAYLOAD}" in text
    assert f"{PAYLOAD}{visible(UNSEEN)}" in text
    page.goto(f"{address}/matrix.html")
    cells = page.locator("table.matrix td:not(.support):not(.none)")
    for number in range(0, cells.count(), 9):
        cells.nth(number).click()
        page.locator("dialog[open] h3").first.wait_for()
        shown = page.locator("dialog[open]").text_content() or ""
        assert "Signed by" in shown
        assert PAYLOAD in shown
        touch(page)  # which closes it
    page.goto(f"{address}/compare.html")
    for field in page.locator("#pick select").all():
        for value in field.locator("option").all()[:4]:
            field.select_option(value.get_attribute("value"))
            page.wait_for_timeout(50)
            touch(page)
    assert page.locator("#result").text_content()
    page.close()


def test_the_tooltip_of_a_machine_shows_its_file_as_text(browser: Browser, address: str) -> None:
    page = browser.new_page()
    page.goto(f"{address}/asv/index.html#/summarylist", wait_until="networkidle")
    page.locator("#summarylist-navigation .btn").first.hover()
    assert PAYLOAD in page.locator(".tooltip-inner").inner_text()
    page.close()


def test_no_page_runs_a_script_that_was_inserted(
    browser: Browser, site: Path, address: str
) -> None:
    page = browser.new_page()
    for place in pages_of(site):
        page.goto(f"{address}/{place}", wait_until="load")
        page.evaluate(
            "document.body.insertAdjacentHTML('beforeend',"
            " '<img src=x onerror=window.broken=1><a id=away href=\"javascript:window.broken=1\">')"
        )
        page.evaluate("document.getElementById('away').click()")
        page.wait_for_timeout(100)
        assert page.evaluate("window.broken") is None, place
    page.close()
