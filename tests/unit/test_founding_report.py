"""The founding table has numbers, errors and several runs side by side; so has its JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch", reason="the harness, whose intervals are shown, imports it")

from ivhl.errors import ResultsError
from ivhl.measure.intervals import paired_ratio
from ivhl.records.record import Arm
from studies.founding.__main__ import main
from studies.founding.report import SCHEMA, load_exports, table, write_export
from studies.founding.rows import CorrectedRun, FoundingRow, SeedRun

if TYPE_CHECKING:
    from pathlib import Path

SEED = SeedRun(mean_ms=0.2, median_ms=0.153, calls=23, evaluations=1, frames=0)
BASELINE = Arm(calls=2, samples_s=(0.004, 0.006, 0.005))
FASTER = Arm(calls=4, samples_s=(0.002, 0.003, 0.0025))


def corrected(arm: Arm, *, frames: int, force_error: float = 2e-6) -> CorrectedRun:
    return CorrectedRun(
        arm=arm,
        baseline=BASELINE,
        speedup=paired_ratio(BASELINE.samples_s, arm.samples_s),
        calls=40,
        evaluations=40,
        frames=frames,
        energy_error=1e-7,
        force_error=force_error,
    )


def run_of(python: str, *rows: FoundingRow) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "cell": f"py{python}",
        "python": python,
        "torch": "2.5.1",
        "rows": [asdict(row) for row in rows],
    }


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


WORKS = FoundingRow(
    molecule="H2",
    configuration="compile default",
    seed_error="RuntimeError: Either mode or options",
    corrected=corrected(FASTER, frames=3),
)
FAILS = FoundingRow(
    molecule="H2",
    configuration="compile default",
    seed_error="RuntimeError: Dynamo is not supported",
    corrected_error="RuntimeError: Dynamo is not supported",
)
PLAIN = FoundingRow(
    molecule="H2", configuration="baseline", seed=SEED, corrected=corrected(BASELINE, frames=0)
)
BYPASSED = FoundingRow(molecule="H2O", configuration="compile, no options", seed=SEED)


def test_every_number_of_a_row_is_in_the_table() -> None:
    lines = table([run_of("3.12", PLAIN, WORKS, BYPASSED)]).splitlines()
    assert cells(lines[0])[:3] == ["molecule", "configuration", "3.12, 2.5.1: seed, ms"]
    assert cells(lines[2]) == [
        *("H2", "baseline", "0.153 (1 in 23)", "5", "1.00 [1.00, 1.00]", "0", "2e-06"),
    ]
    assert cells(lines[3]) == [
        *("", "compile default", "(1)", "2.5", "2.00 [2.00, 2.00]", "3", "2e-06"),
    ]
    assert cells(lines[4]) == ["H2O", "compile, no options", "0.153 (1 in 23)", *"--0-"]
    assert "(1) `RuntimeError: Either mode or options`" in lines


def test_a_wrong_force_has_no_speedup() -> None:
    row = FoundingRow(
        molecule="H2",
        configuration="compile + FP16",
        corrected=corrected(FASTER, frames=3, force_error=0.6),
    )
    assert cells(table([run_of("3.12", row)]).splitlines()[2])[2:] == [
        *("-", "2.5", "wrong", "3", "6e-01")
    ]


def test_runs_are_side_by_side_and_share_numbers_of_errors() -> None:
    text = table([run_of("3.12", PLAIN, WORKS), run_of("3.13", FAILS)])
    lines = text.splitlines()
    assert {len(cells(line)) for line in lines[:4]} == {12}
    assert cells(lines[2])[7:] == ["-"] * 5
    assert cells(lines[3])[7:] == ["(2)", "(2)", "-", "-", "-"]
    assert text.count("Dynamo is not supported") == 1


def test_exports_of_one_cell_are_joined(tmp_path: Path) -> None:
    paths = [tmp_path / f"{n}.json" for n in range(3)]
    runs = [run_of("3.12", PLAIN), run_of("3.13", FAILS), run_of("3.12", BYPASSED)]
    for path, run in zip(paths, runs, strict=True):
        write_export(path, run)
    first, second = load_exports(paths)
    assert [row["molecule"] for row in first["rows"]] == ["H2", "H2O"]
    assert json.loads(json.dumps(runs[1])) == second


def test_show_prints_the_table_of_its_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.json"
    write_export(path, run_of("3.12", PLAIN))
    assert main(["--show", str(path)]) == 0
    assert "| H2 | baseline | 0.153 (1 in 23) |" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "[]", '{"schema": "ivhl.peers/1"}'])
def test_a_file_that_is_not_an_export_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ResultsError, match=r"other\.json"):
        load_exports([path])


def test_an_export_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"nowhere/run\.json"):
        write_export(tmp_path / "nowhere" / "run.json", run_of("3.12", PLAIN))
