"""The schemas of files are those of the code, keep what is released, and hold for what is stored."""

from __future__ import annotations

import json
import tomllib
from copy import deepcopy
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args, get_type_hints

import pytest
from jsonschema_rs import validator_for
from jsonsubschema import is_subschema

from ivhl.records.reader import read_record
from ivhl.records.record import SCHEMA, RunRecord, to_json
from studies.schemas import FILES, file_schema_text
from tests.builders.records import make_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "docs" / "schemas"
# Of files that ivhl writes: a reader of another version must know all their fields, by the name.
NAMED: Final = ("record", "observed")
# Of what describes a value and refuses none.
_WORDS: Final = ("$defs", "$schema", "default", "description", "title")


def schema_of(name: str, folder: str = "files") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / folder / f"{name}.json").read_text("utf-8"))
    return found


def comparable(part: Any, defined: dict[str, Any]) -> Any:  # noqa: ANN401  (JSON)
    """Return a schema in the words of draft 4, which jsonsubschema reads, without references.

    A pattern is only like itself: whether another takes all that it takes may need minutes.
    """
    if isinstance(part, list):
        return [comparable(one, defined) for one in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return comparable(defined[part["$ref"].removeprefix("#/$defs/")], defined)
    if isinstance(part.get("pattern"), str):
        return {"type": "string", "enum": [f"pattern {part['pattern']}"]}
    kept: dict[str, Any] = {}
    for key, value in part.items():
        if key == "properties":
            kept[key] = {name: comparable(one, defined) for name, one in value.items()}
        elif key == "const":
            kept["enum"] = [value]
        elif key == "exclusiveMinimum":
            kept |= {"minimum": value, "exclusiveMinimum": True}
        elif key not in _WORDS:
            kept[key] = comparable(value, defined)
    return kept


def names_of(schema: dict[str, Any]) -> list[str]:
    """Return the names of a record's schema, the oldest first."""
    field = schema["properties"]["schema"]
    return list(field.get("enum", [field.get("const")]))


def mistake_between(released: dict[str, Any], now: dict[str, Any], *, is_named: bool) -> str:
    """Return why a file of the released form is lost; empty if nothing is."""
    old, new = (comparable(one, one.get("$defs", {})) for one in (released, now))
    if not is_subschema(old, new):
        return "a file that was valid is none now"
    same_name = is_named and names_of(released)[-1] == names_of(now)[-1]
    if same_name and not is_subschema(new, old):
        return f"a file of {names_of(now)[-1]} may hold what its reader refuses: a new name"
    return ""


@pytest.mark.parametrize("name", FILES)
def test_the_written_schema_of_a_file_is_that_of_its_type(name: str) -> None:
    """Write it anew with ``python -m studies.schemas docs/schemas``."""
    assert (FOLDER / "files" / f"{name}.json").read_text("utf-8") == file_schema_text(name)
    for folder in ("files", "released"):
        assert {path.stem for path in (FOLDER / folder).iterdir()} == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_the_released_form_is_still_one(name: str) -> None:
    """``python -m studies.schemas docs/schemas --release`` makes a new reference, at a release."""
    assert (
        mistake_between(
            schema_of(name, "released"), json.loads(file_schema_text(name)), is_named=name in NAMED
        )
        == ""
    )


def _required(schema: dict[str, Any]) -> None:
    schema["properties"]["more"] = {"type": "string"}
    schema["required"].append("more")


def _longer(schema: dict[str, Any]) -> None:
    _required(schema)
    schema["required"].pop()


def _newer(schema: dict[str, Any]) -> None:
    _longer(schema)
    schema["properties"]["schema"]["enum"].append("ivhl.run/6")


def _part(name: str, field: str, **changes: object) -> Callable[[dict[str, Any]], None]:
    return lambda schema: schema["$defs"][name]["properties"][field].update(changes)


LOST: Final[list[tuple[str, Callable[[dict[str, Any]], object], str]]] = [
    ("record", lambda s: s["properties"].pop("kernels"), "is none now"),
    ("record", lambda s: s["properties"]["schema"]["enum"].remove("ivhl.run/1"), "is none now"),
    ("record", _part("Arm", "calls", type="string"), "is none now"),
    (
        "record",
        lambda s: s["$defs"]["Failure"]["properties"]["phase"]["enum"].pop(),
        "is none now",
    ),
    ("record", _required, "is none now"),
    ("record", _longer, "of ivhl.run/5 may hold what its reader refuses"),
    ("observed", lambda s: s["properties"]["schema"].update(const="x"), "is none now"),
    ("observed", _longer, "of ivhl.observed/1 may hold what its reader refuses"),
    ("matrix", lambda s: s["properties"].pop("built"), "is none now"),
    ("matrix", _required, "is none now"),
    ("expectations", _part("Expectation", "workload", maxLength=100), "is none now"),
    ("expectations", _part("ChangeNote", "commit", pattern="^[0-9a-f]{4,40}$"), "is none now"),
    ("libraries", _part("_LibraryRow", "rank", type="integer", exclusiveMinimum=1), "is none now"),
    ("libraries", lambda s: s["$defs"]["_CaseTable"]["properties"].pop("asks"), "is none now"),
]
KEPT: Final[list[tuple[str, Callable[[dict[str, Any]], object]]]] = [
    ("record", _newer),
    ("record", lambda s: s.update(description="other words")),
    ("matrix", _longer),
    ("expectations", _part("Expectation", "workload", maxLength=300)),
    (
        "libraries",
        lambda s: s["$defs"]["_LibraryRow"]["properties"].update(more={"type": "integer"}),
    ),
]


# Each comparison with the schema of records takes a second; smaller schemas have the same kinds.
@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        pytest.param(*row, marks=[pytest.mark.full] if number in {0, 4} else [])
        for number, row in enumerate(LOST)
    ],
)
def test_a_planted_change_that_loses_files_is_found(
    name: str, change: Callable[[dict[str, Any]], object], why: str
) -> None:
    now = deepcopy(released := schema_of(name, "released"))
    change(now)
    assert why in mistake_between(released, now, is_named=name in NAMED)


@pytest.mark.parametrize(("name", "change"), KEPT)
def test_a_change_that_keeps_files_passes(
    name: str, change: Callable[[dict[str, Any]], object]
) -> None:
    now = deepcopy(released := schema_of(name, "released"))
    change(now)
    assert mistake_between(released, now, is_named=name in NAMED) == ""


def stored(name: str) -> Iterator[tuple[str, Any]]:
    """Yield each committed file, or line of one, of a schema."""
    toml = {
        "expectations": "envs/expectations.toml",
        "matrix": "envs/matrix.toml",
        "libraries": "observatory/libraries.toml",
    }
    lines = {"record": "results/*/records/*.jsonl", "observed": "observatory/records/*.jsonl"}
    if name in toml:
        text = (ROOT / toml[name]).read_text(encoding="utf-8")
        yield toml[name], json.loads(json.dumps(tomllib.loads(text), default=date.isoformat))
    for path in sorted(ROOT.glob(lines[name])) if name in lines else ():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            yield f"{path.name}:{number}", json.loads(line)


@pytest.mark.parametrize("name", FILES)
def test_every_committed_file_is_of_its_schema(name: str) -> None:
    validator = validator_for(schema_of(name))
    number, place = 0, ""
    one: dict[str, Any] = {}
    for place, one in stored(name):
        number += 1
        assert [f"{place}: {error.message:.300}" for error in validator.iter_errors(one)] == []
    assert number >= {"record": 1000, "observed": 1000}.get(name, 1)
    assert not validator.is_valid({**one, "surprise": 1}), place


def test_each_older_schema_of_records_has_a_stored_record_that_is_read() -> None:
    every = get_args(get_type_hints(RunRecord)["schema"])
    validator = validator_for(schema_of("record"))
    found: dict[str, str] = {}
    for path in ROOT.glob("results/*/records/*.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            found.setdefault(json.loads(line)["schema"], line)
    newest = to_json(make_record())
    assert set(found) | {SCHEMA} == set(every)
    for schema, line in {**found, SCHEMA: newest}.items():
        assert read_record(line.encode()).schema == schema
        assert validator.is_valid(json.loads(line))
    newer = newest.replace(SCHEMA, "ivhl.run/6")
    assert not validator.is_valid(json.loads(newer))
