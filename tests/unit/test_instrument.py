"""Versions of the instrument, and the versions of records."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ivhl.instrument import DIGESTS, HISTORY, INSTRUMENT, describe_instrument, version_of
from ivhl.records.answers import newest_keys
from ivhl.records.files import append_record
from tests.builders.records import make_record

ROOT = Path(__file__).parents[2]


def test_the_history_has_every_version_up_to_the_current_one() -> None:
    assert list(HISTORY) == list(range(1, INSTRUMENT + 1))
    assert all(line.endswith(".") and "\n" not in line for line in HISTORY.values())


def test_every_digest_maps_to_a_known_version() -> None:
    assert set(DIGESTS.values()) <= set(HISTORY)


def test_every_committed_record_has_a_version() -> None:
    seen = set()
    for path in (ROOT / "results").glob("*/records/*.jsonl"):
        with path.open(encoding="utf-8") as file:
            seen |= {json.loads(line)["conditions"]["instrument"] for line in file}
    assert {text for text in seen if version_of(text) not in map(str, HISTORY)} == set()


@pytest.mark.parametrize(
    ("instrument", "version", "told"),
    [
        (str(INSTRUMENT), str(INSTRUMENT), f"version {INSTRUMENT}"),
        ("9" * 5000, "9" * 5000, f"unknown ({'9' * 5000})"),
        ("8e72ef3d5de31187", "1", "version 1"),
        ("0123456789abcdef", "0123456789abcdef", "unknown (0123456789abcdef)"),
        (str(INSTRUMENT + 1), str(INSTRUMENT + 1), f"unknown ({INSTRUMENT + 1})"),
        ("0123456789012345", "0123456789012345", "unknown (0123456789012345)"),
    ],
)
def test_an_unknown_instrument_is_its_own_version(
    instrument: str, version: str, told: str
) -> None:
    assert (version_of(instrument), describe_instrument(instrument)) == (version, told)


def test_a_digest_equals_its_version(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    record = make_record()
    for n, text in enumerate(("2123dbd60a6f4e52", "0123456789abcdef", str(INSTRUMENT))):
        conditions = replace(record.conditions, instrument=text)
        append_record(path, replace(record, size=f"size-{n}", conditions=conditions))
    made = {case.size: way[4] for (case, _), way in newest_keys(path).items()}
    assert made == {"size-0": "4", "size-1": "0123456789abcdef", "size-2": str(INSTRUMENT)}
