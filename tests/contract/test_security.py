"""Each statement of docs/security.md names the tests that show it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


def statements() -> dict[str, list[str]]:
    """Return the rows of the table: each statement, and its tests."""
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    table = text.split("\n## What tests keep true\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")]
    assert rows[0] == ["statement", "test"]
    return {row[0]: re.findall(r"`(test_\w+)`", row[1]) for row in rows[2:]}


def test_each_statement_names_a_test() -> None:
    found = statements()
    assert len(found) > 40
    assert not [statement for statement, tests in found.items() if not tests]


def test_each_named_test_is_there() -> None:
    named = {test for tests in statements().values() for test in tests}
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    assert not [test for test in sorted(named) if f"def {test}(" not in sources]
