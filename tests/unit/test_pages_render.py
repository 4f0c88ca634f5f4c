"""Pages are self-contained, and escape foreign text."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from ivhl.matrix.spec import CellSpec
from ivhl.pages.render import compatibility_html, compatibility_json, speedup_html
from ivhl.records.record import Counted, RecordedObservation, RunRecord
from ivhl.tracker.project import State
from ivhl.tracker.views import compatibility_view, page_view, rows_of, slug, speedup_view
from tests.builders.history import history
from tests.builders.records import make_failure, make_record

COMMITS = ("a" * 40, "b" * 40)
HOSTILE = ["<script>alert(1)</script>", '"><img src=x onerror="alert(1)">', "</pre></dialog><b>"]


def make_state(*records: RunRecord, problems: tuple[str, ...] = ()) -> State:
    return State(
        name="demo",
        records=records,
        problems=problems,
        cells=(),
        releases=None,
        unavailable={},
        workloads=(),
        cases=(),
        commit_order=COMMITS,
    )


def pages_of(state: State) -> tuple[str, str]:
    rows = rows_of(state)
    page = page_view(state, "2026-11-20")
    return (
        compatibility_html(compatibility_view(state, rows, page)),
        speedup_html(speedup_view(state, rows, page)),
    )


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
    def state(inserted: str) -> State:
        failed = make_failure(
            "crash", inserted, exception=inserted, output_tail=inserted, python="3.13"
        )
        warned = make_record(
            warnings=(Counted(text=inserted, count=1),), command=inserted, recorded_at=inserted
        )
        return make_state(failed, warned, problems=(inserted,))

    for harmless, hostile in zip(pages_of(state("harmless")), pages_of(state(text)), strict=True):
        assert Structure(hostile).tags == Structure(harmless).tags
        assert not [name for name, _ in Structure(hostile).attributes if name.startswith("on")]


def test_pages_load_no_files() -> None:
    for html in pages_of(make_state(*history(COMMITS))):
        page = Structure(html)
        assert page.values("src") == []
        local = re.compile(r"(compatibility|speedup|index)\.(html|json)(#.*)?|#.+|data:,")
        assert [link for link in page.values("href") if not local.fullmatch(link)] == []
        assert "url(" not in html
        assert "@import" not in html


def test_ids_are_unique_and_internal_links_have_targets() -> None:
    compatibility, speedup = pages_of(make_state(*history(COMMITS)))
    ids = Structure(compatibility).values("id")
    assert len(ids) == len(set(ids))
    for html in (compatibility, speedup):
        links = [link.partition("#") for link in Structure(html).values("href")]
        inside = {
            anchor for page, _, anchor in links if anchor and page in ("", "compatibility.html")
        }
        assert inside - {"main"} <= set(ids)


def test_different_cases_have_different_ids() -> None:
    assert slug("a", "b c") != slug("a", "b-c")
    assert slug("a/b", "c") != slug("a", "b/c")
    assert not re.search(r"\s", slug("a b\t\u00a0c"))


def test_without_records_the_pages_are_built() -> None:
    compatibility, speedup = pages_of(make_state())
    assert "No records yet" in compatibility
    assert "No speedup has been measured yet" in speedup


def test_an_unavailable_cell_shows_its_reason_without_a_record() -> None:
    state = replace(
        make_state(make_record()),
        cells=(CellSpec("3.12", "2.6.0"), CellSpec("3.14", "2.6.0")),
        unavailable={"py3.14-torch2.6.0": "no wheel for cp314"},
    )
    compatibility, _ = pages_of(state)
    assert "no wheel for cp314" in compatibility
    (row,) = [row for row in rows_of(state) if row.python == "3.14"]
    assert json.loads(compatibility_json([row]))[0]["message"] == "no wheel for cp314"


def test_observations_of_the_machine_are_shown() -> None:
    record = make_record()
    seen = (
        RecordedObservation(check="governor", level="ok", seen="performance on 8"),
        RecordedObservation(check="turbo", level="warning", seen="on <b>"),
    )
    conditions = replace(record.conditions, stability=seen)
    page, _ = pages_of(make_state(replace(record, conditions=conditions)))
    facts = re.findall(r"<dt>([^<]*)</dt>\s*<dd>([^<]*)</dd>", page)
    at = facts.index(("load before the case", "0.30"))
    assert facts[at + 1 : at + 3] == [
        ("governor before the run", "performance on 8"),
        ("turbo before the run", "on &lt;b&gt; (warning)"),
    ]
    without, _ = pages_of(make_state(record))
    assert "before the run" not in without


def test_an_existing_environment_is_shown_with_its_packages() -> None:
    record = make_record()
    bare = replace(record, cell=replace(record.cell, lock_sha256=None))
    page, _ = pages_of(make_state(bare))
    assert "works · existing" in page
    assert "existing environment without a lock" in page
    assert "Existing environment, without a lock." in page
    assert "<code>triton==3.1.0</code>" in page
    locked, _ = pages_of(make_state(record))
    assert "xisting environment" not in locked
