"""Each report for PyTorch in docs/reports: its script, as pasted, shows what the report says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ivhl.errors import InterpreterError
from ivhl.matrix.spec import CellSpec
from ivhl.script.matrix import Wanted
from ivhl.script.requirements import needs_of
from ivhl.script.running import Script
from ivhl.script.symptom import OFF, Symptom

if TYPE_CHECKING:
    from ivhl.script.outcome import ScriptOutcome

REPORTS = sorted((Path(__file__).parents[2] / "docs" / "reports").glob("[!R]*.md"))
_CELL = re.compile(r"^PyTorch (?P<torch>\S+) on Python (?P<python>\S+): ", re.MULTILINE)
_CODE = re.compile(
    r"^## Script\n\n(?P<fence>`{3,})python\n(?P<code>.*?)\n(?P=fence)$", re.MULTILINE | re.DOTALL
)
_RIGHT = re.compile(r"; (?P<torch>\d[\d.]*) is right again\.")


@pytest.mark.full
@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_the_script_of_a_report_shows_what_the_report_says(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    cell, code, right = (pattern.search(text) for pattern in (_CELL, _CODE, _RIGHT))
    assert cell is not None
    assert code is not None
    script = tmp_path / "script.py"
    script.write_text(f"{code['code']}\n", encoding="utf-8")

    def run(torch: str, change: dict[str, bool] | None = None) -> ScriptOutcome:
        with needs_of(script).cell_in_use(CellSpec(cell["python"], torch)) as folder:
            return Script(path=script).run_in(folder, change)

    try:
        seen = run(cell["torch"])
    except InterpreterError:
        pytest.skip(f"no Python {cell['python']} here")
    expected = Wanted(ending="exit 0") if "where `exit 0` is expected" in text else None
    symptom = Symptom(seen=seen, without=run(cell["torch"], OFF), expected=expected)
    assert symptom.of(seen) == "shows"
    assert right is None or symptom.of(run(right["torch"])) == "right"


def test_there_are_ten_reports() -> None:
    assert len(REPORTS) == 10
