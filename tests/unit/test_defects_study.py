"""The public reports that were tried: each has its code, and its outcome in the findings."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from studies.defects.benchmarks.reports import WORKLOADS
from studies.defects.benchmarks.reports.listed import REPORTS

ROOT = Path(__file__).parents[2]
CODE = ROOT / "studies" / "defects" / "benchmarks" / "reports" / "calls.py"


def test_every_report_names_functions_that_are_there() -> None:
    functions = {
        node.name
        for node in ast.parse(CODE.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }
    named = {
        call.partition(":")[2]
        for workload in WORKLOADS
        for call in (workload.make_inputs, workload.make_model, workload.eager)
        if call
    }
    assert named <= functions


def test_every_report_has_one_row_beside_the_study() -> None:
    text = (ROOT / "studies" / "defects" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(\d+)\]\(\S+/(\d+)\) `(\w+)` ", text, re.MULTILINE)
    assert all(shown == linked for shown, linked, _ in rows)
    assert sorted((int(number), name) for number, _, name in rows) == sorted(
        (report.number, report.name) for report in REPORTS
    )
