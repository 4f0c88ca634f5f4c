"""The tracker reads the record that the cell wrote."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ivhl.records.files import append_record
from ivhl.records.reader import read_record
from ivhl.records.record import (
    Counted,
    Failure,
    Interval,
    RecordedObservation,
    RunRecord,
    Wheel,
    to_json,
)
from tests.builders.records import make_record

ROOT = Path(__file__).parents[2]


def failed(record: RunRecord) -> RunRecord:
    return dataclasses.replace(
        record,
        speedup=None,
        failure=Failure(
            phase="compile",
            failure_class="support_gate",
            exception="RuntimeError",
            message="Dynamo is not supported on Python 3.13+",
            where="",
            output_tail="",
        ),
    )


MEASURED = make_record()


@pytest.mark.parametrize("record", [MEASURED, failed(MEASURED)], ids=["measured", "failed"])
def test_a_record_survives_writing_and_reading(record: RunRecord) -> None:
    assert read_record(to_json(record).encode()) == record


def test_a_record_without_an_engine_is_read() -> None:
    data = json.loads(to_json(MEASURED))
    del data["engine"]
    for error in data["accuracy"]:
        del error["anchor_rmse"]
    assert read_record(json.dumps(data).encode()) == MEASURED
    assert MEASURED.accuracy


def test_the_image_of_a_container_survives_writing_and_reading() -> None:
    conditions = dataclasses.replace(MEASURED.conditions, image=f"sha256:{'a' * 64}")
    record = dataclasses.replace(MEASURED, conditions=conditions)
    assert read_record(to_json(record).encode()) == record


def test_without_a_container_a_record_has_no_field_for_the_image() -> None:
    assert "image" not in json.loads(to_json(MEASURED))["conditions"]


def test_observations_of_the_machine_survive_writing_and_reading() -> None:
    seen = (RecordedObservation(check="turbo", level="warning", seen="on"),)
    conditions = dataclasses.replace(MEASURED.conditions, stability=seen)
    record = dataclasses.replace(MEASURED, conditions=conditions)
    assert read_record(to_json(record).encode()) == record
    data = json.loads(to_json(record))
    data["conditions"]["stability"][0]["level"] = "fine"
    with pytest.raises(ValueError, match="'ok', 'warning' or 'wrong'"):
        read_record(json.dumps(data).encode())


def test_without_observations_a_record_has_no_field_for_them() -> None:
    data = json.loads(to_json(MEASURED))
    assert {"stability", "wheels", "gil"} & set(data["conditions"]) == set()
    assert "sources" not in data


def test_wheels_and_hashes_survive_writing_and_reading() -> None:
    wheel = Wheel(
        name="torch", version="2.6.0", build=None, tags=("any",), record_sha256="ab" * 32
    )
    conditions = dataclasses.replace(MEASURED.conditions, wheels=(wheel,), gil=False)
    record = dataclasses.replace(MEASURED, conditions=conditions, sources="cd" * 32)
    assert read_record(to_json(record).encode()) == record


def test_a_record_of_an_older_schema_is_read_and_keeps_its_schema() -> None:
    old = to_json(dataclasses.replace(MEASURED, schema="ivhl.run/1"))
    assert to_json(read_record(old.encode())) == old


def test_every_committed_record_is_unchanged_by_reading_and_writing() -> None:
    lines = [
        line
        for path in (ROOT / "results").glob("*/records/*.jsonl")
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    assert len(lines) > 1000
    for line in lines:
        record = read_record(line.encode())
        written = to_json(record)
        assert read_record(written.encode()) == record
        assert set(json.loads(written)) - set(json.loads(line)) <= {"engine", "reference"}


def test_an_unknown_field_is_refused() -> None:
    data = dataclasses.asdict(MEASURED) | {"surprise": 1}
    with pytest.raises(ValueError, match="surprise"):
        read_record(json.dumps(data).encode())


def test_an_unknown_field_in_a_part_is_refused() -> None:
    data = dataclasses.asdict(MEASURED)
    data["cell"]["surprise"] = 1
    with pytest.raises(ValueError, match="surprise"):
        read_record(json.dumps(data).encode())


def test_a_newer_schema_is_refused() -> None:
    data = dataclasses.asdict(MEASURED) | {"schema": "ivhl.run/99"}
    with pytest.raises(ValueError, match=r"must be 'ivhl\.run/5' or older"):
        read_record(json.dumps(data).encode())


def test_a_record_is_measured_or_failed() -> None:
    with pytest.raises(ValueError, match="either a speedup or a failure"):
        dataclasses.replace(MEASURED, speedup=None)
    with pytest.raises(ValueError, match="either a speedup or a failure"):
        dataclasses.replace(failed(MEASURED), speedup=MEASURED.speedup)


def test_nan_and_infinity_are_not_written() -> None:
    nan = Interval(value=float("nan"), low=1.0, high=1.0, confidence=0.95, n=9)
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json(dataclasses.replace(MEASURED, speedup=nan))


def test_a_truncated_line_damages_no_other_line(tmp_path: Path) -> None:
    path = tmp_path / "machine" / "records" / "x.jsonl"
    append_record(path, MEASURED)
    with path.open("ab") as file:
        file.write(to_json(MEASURED).encode()[:100])
    append_record(path, failed(MEASURED))
    first, broken, last = path.read_text(encoding="utf-8").splitlines()
    assert read_record(first.encode()) == MEASURED
    assert read_record(last.encode()) == failed(MEASURED)
    with pytest.raises(ValueError, match="must be JSON"):
        read_record(broken.encode())


def test_text_of_any_language_stays_on_one_line(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    warning = Counted(text="zwei\nZeilen \u2028 und ein \u2018Zitat\u2019", count=1)
    append_record(path, dataclasses.replace(MEASURED, warnings=(warning,)))
    (line,) = path.read_text(encoding="utf-8").split("\n")[:-1]
    assert read_record(line.encode()).warnings == (warning,)


@pytest.mark.parametrize(
    ("unwanted", "modules"),
    [
        (
            "torch",
            (
                *("benchmarks.field", "ivhl.measure.runner", "ivhl.measure.suite"),
                *("ivhl.measure.case", "ivhl.tracker.store.records", "ivhl.bench.main"),
                *("ivhl.cli", "ivhl.matrix"),
            ),
        ),
        ("pydantic", ("benchmarks.molecules", "ivhl.measure.suite", "ivhl.measure.accuracy")),
        ("asv", ("ivhl.cli.compat", "ivhl.cli.regressions")),
    ],
)
def test_importing_one_half_does_not_load_the_other(
    unwanted: str, modules: tuple[str, ...]
) -> None:
    # In one process: what it loads stays loaded.
    code = f"""
import sys
from importlib import import_module
for module in {modules!r}:
    import_module(module)
    if {unwanted!r} in sys.modules:
        sys.exit(f"{{module}} loads {unwanted}")
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        cwd=Path(__file__).parents[2],
        env=os.environ,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 0, done.stderr
