"""What the grid of the committed records looks like on a terminal of 80 columns."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def lines_of(*words: str) -> list[str]:
    """Return what a command prints about the committed records, on a terminal of 80 columns."""
    done = subprocess.run(
        [sys.executable, "-m", "ivhl", *words],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_the_grid_has_a_column_for_each_python_and_a_line_for_each_release() -> None:
    lines = lines_of("compat")
    (head,) = (line for line in lines if line.startswith("PyTorch"))
    assert head.split()[1::2] == ["Python"] * 4
    cells = {line.split()[0]: line for line in lines if line.startswith("2.")}
    assert "unavailable" in cells["2.4.1"]
    assert cells["2.15.0"].split()[1].endswith("x")
    assert list(cells)[-2:] == ["2.14.1", "2.15.0"]


@pytest.mark.parametrize(
    ("redirection", "code", "says"), [(">/dev/full", 5, "No space left on device"), (">&-", 0, "")]
)
def test_an_output_that_takes_nothing_is_named(redirection: str, code: int, says: str) -> None:
    command = f"{sys.executable} -m ivhl matrix {redirection}"
    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "should not have" not in done.stderr
