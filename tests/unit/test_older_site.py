"""A program that reads the JSON of an older site reads that of today's, and ivhl reads both.

``older_site.json`` has a few rows of each verdict, as the site had them on 28 November 2026.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from ivhl.observatory.ready import read_observatory
from ivhl.observatory.views import SCHEMA, load_libraries, rows_for_programs
from ivhl.tracker.support.compat import compat_json
from ivhl.tracker.views.project import load_state
from ivhl.tracker.views.source import Source

ROOT = Path(__file__).parents[2]
OLDER: dict[str, Any] = json.loads(Path(__file__).with_name("older_site.json").read_text("utf-8"))


def types_of(rows: list[dict[str, Any]]) -> dict[str, set[str]]:
    """Return the types of JSON that each field of the rows has; a number is a number."""
    found: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        for name, value in row.items():
            found[name].add("number" if type(value) in (int, float) else type(value).__name__)
    return found


@pytest.fixture(scope="module")
def today() -> dict[str, Any]:
    libraries, _ = load_libraries(ROOT)
    assert libraries is not None
    return {
        "observatory.json": {"schema": SCHEMA, "rows": rows_for_programs(libraries)},
        "compatibility.json": json.loads(
            compat_json(Source(load_state(ROOT, ROOT / "results")).rows)
        ),
    }


@pytest.mark.parametrize("name", list(OLDER))
def test_no_field_of_an_older_site_is_gone_or_of_another_type(
    name: str, today: dict[str, Any]
) -> None:
    assert OLDER[name]["schema"] == today[name]["schema"]
    older, newer = (types_of(site[name]["rows"]) for site in (OLDER, today))
    assert {
        field: kinds - newer[field] for field, kinds in older.items() if kinds - newer[field]
    } == {}


@pytest.mark.parametrize(
    ("name", "field"), [("observatory.json", "verdict"), ("compatibility.json", "status")]
)
def test_no_word_of_an_older_site_is_gone(name: str, field: str, today: dict[str, Any]) -> None:
    older, newer = ({row[field] for row in site[name]["rows"]} for site in (OLDER, today))
    assert older - newer == set()


def test_ready_reads_an_older_site(tmp_path: Path) -> None:
    path = tmp_path / "observatory.json"
    path.write_text(json.dumps(OLDER["observatory.json"]), encoding="utf-8")
    found, _ = read_observatory(path)
    assert set(found) == {row["library"] for row in OLDER["observatory.json"]["rows"]}
