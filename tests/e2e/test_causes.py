"""A defect of a real release is blamed on its stage, and a script shows it there alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_lost_additions_are_blamed_on_inductor_with_a_script(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "studies.defects", str(tmp_path / "project"), "additions"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    said = done.stdout
    assert done.returncode == 0, said + done.stderr
    assert "stage inductor" in said
    assert "threads=2: works" in said
    assert "the script, py3.12-torch2.6.0: shows it" in said
    assert "the script, py3.12-torch2.15.0: does not" in said
    (report,) = (tmp_path / "project" / ".asv" / "blame").glob("*/report.md")
    text = report.read_text()
    assert "index_add" in text
    assert "- `threads=2`: works" in text
    assert text.count("(`envs/locks/") == 2
