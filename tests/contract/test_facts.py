"""Every stored record says in each command and page what it said at commit 838f273."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from tests.contract.facts import facts_of, make_project, stored_facts

# Each reason for which a fact changed since, with the facts as they are now; null: not there.
DIFFERENCES: Final = Path(__file__).with_name("facts_differences.json")
# Words of 838f273, and what replaced them.
WORDS: Final = {"mended": "fixed", "stopped": "missing"}


def test_every_record_gives_the_facts_that_it_gave_before(tmp_path: Path) -> None:
    make_project(tmp_path / "project")
    now = facts_of(tmp_path / "project")
    expected = {
        group: dict(map(_in_words_of_today, f.items())) for group, f in stored_facts().items()
    }
    for difference in json.loads(DIFFERENCES.read_text(encoding="utf-8")):
        assert difference["reason"].strip()
        expected[difference["group"]] |= difference["facts"]
    assert now.keys() == expected.keys()
    changed = [
        f"{group}: {about}: {expected[group].get(about)} before, {now[group].get(about)} now"
        for group in now
        for about in sorted(expected[group].keys() | now[group].keys())
        if expected[group].get(about) != now[group].get(about)
    ]
    shown = "\n".join(changed[:50])
    assert not changed, f"{len(changed)} facts changed; list each with its reason:\n{shown}"


def _in_words_of_today(item: tuple[str, list[Any]]) -> tuple[str, list[Any]]:
    about, fact = item
    return about, [WORDS.get(one, one) if isinstance(one, str) else one for one in fact]
