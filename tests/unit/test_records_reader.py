"""One reader and one set of limits: bench, views and imports take the same lines."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ivhl.fleet.check import read_line
from ivhl.fleet.sources import Refused, SourceLine
from ivhl.image.executor import records_of_image
from ivhl.measure.flags import parse_flag
from ivhl.measure.suite import values_in
from ivhl.records import record as parts
from ivhl.records.answers import cold_seconds, newest_keys, newest_of_other_commits
from ivhl.records.bounds import TEXTS
from ivhl.records.files import append_record, record_file
from ivhl.records.identity import type_of
from ivhl.records.lines import LARGEST, LONGEST_LINE, MOST_LINES, MOST_NAMED
from ivhl.records.reader import NewerSchemaError, read_record, records_in
from ivhl.records.record import RunRecord, to_json
from ivhl.tracker.store.index import Index
from studies.stored import load_records
from tests.builders.records import make_failure, make_record
from tests.fuzz.targets import changed_json

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parents[2]
RECORD = make_record()
DATA: dict[str, Any] = json.loads(to_json(RECORD))
# A record with every optional part.
FULL = json.loads(
    next(
        line
        for path in sorted((HERE / "results" / "h200" / "records").iterdir())
        for line in path.read_text(encoding="utf-8").splitlines()
        if '"wheels"' in line and '"kernels"' in line and '"recompiles":[{' in line
    )
)


def texts_of(kind: type) -> Iterator[str]:
    """Yield class and field of every text of a part of a record, and of its parts."""
    for name, hint in get_type_hints(kind).items():
        left = [hint]
        while left:
            one = left.pop()
            left += get_args(one)
            if one is str:
                yield f"{kind.__name__}.{name}"
            elif isinstance(one, type) and is_dataclass(one):
                yield from texts_of(one)


@pytest.mark.parametrize("device", ["cpu", "cuda", "xpu Intel Arc B580", "mps", "privateuseone"])
def test_a_record_is_of_any_device_of_pytorch(device: str) -> None:
    line = to_json(make_record()).replace('"device":"cpu"', f'"device":"{device}"')
    record = read_record(line.encode())
    assert record.conditions.device == device
    assert type_of(device) == device.partition(" ")[0]


@pytest.mark.parametrize("device", ["", "cpu Intel", "Cuda", "cuda:0", "cuda ", "xpu\n"])
def test_a_record_is_of_no_other_device(device: str) -> None:
    data = json.loads(to_json(make_record()))
    data["conditions"]["device"] = device
    with pytest.raises(ValueError, match=r"conditions.device: must be cpu, or another type"):
        read_record(json.dumps(data).encode())


def test_every_text_of_a_record_has_a_rule() -> None:
    assert set(texts_of(RunRecord)) == set(TEXTS)


def places(data: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:  # noqa: ANN401
    """Yield where the texts of a record are."""
    if isinstance(data, str):
        yield place
    elif isinstance(data, dict | list):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from places(value, (*place, key))


def with_value(data: Any, place: tuple[str | int, ...], value: object) -> bytes:  # noqa: ANN401
    """Return the line of a record in which one value is another."""
    copy = json.loads(json.dumps(data))
    inner = copy
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return json.dumps(copy).encode()


@pytest.mark.parametrize(
    "text", ["x" * 70_000, "\N{GRINNING FACE}" * 20_000, "a \ud800", 5, None, []]
)
def test_no_text_of_a_record_is_of_any_length_or_type(text: object) -> None:
    read_record(json.dumps(FULL).encode())
    for place in places(FULL):
        if text is None and place[-1] in ("build", "record_sha256", "same_as", "cold_at", "sources",
                                          "benchmark", "lock_sha256", "python_build", "passes",
                                          "torch_full"):  # fmt: skip
            continue
        with pytest.raises(ValueError, match=r"must|missing") as refused:
            read_record(with_value(FULL, place, text))
        assert len(str(refused.value)) < 1500
        assert str(place[0]) in str(refused.value)


# Texts that reach names of files, git, shells or the pages of others: what each may not be.
@pytest.mark.parametrize(
    ("place", "text", "rule"),
    [
        (("same_as",), "HEAD~3", "same_as: must be 40 or 64 hex digits (got 'HEAD~3')"),
        (("same_as",), "--output=x", "same_as: must be 40 or 64 hex digits"),
        (("same_as",), "a" * 39, "same_as: must be 40 or 64 hex digits"),
        (("same_as",), "A" * 40, "same_as: must be 40 or 64 hex digits"),
        (("commit",), "a" * 40 + "\n", "commit: must be 40 or 64 hex digits"),
        (("compile", "cold_at"), "yesterday", "compile.cold_at: must be UTC to the second"),
        (("compile", "cold_at"), "x" * 60_000, "compile.cold_at: must be UTC to the second"),
        (("phase_s",), {"../x": 1.0}, "phase_s: must be a phase of a case (got '../x')"),
        (("phase_s",), {"x" * 500: 1.0}, "phase_s: must be a phase of a case"),
        (("conditions", "packages", 0), "torch", "conditions.packages.0: must be NAME==VERSION"),
        (("conditions", "packages", 0), "a==1\nb", "conditions.packages.0: must be NAME==VERSION"),
        (("conditions", "flags"), ["--force"], "conditions.flags.0: must be PART.FIELD=VALUE"),
        (("conditions", "image"), "latest", "conditions.image: must be sha256: and 64 hex"),
        (("conditions", "device"), "cuda\u202e", "conditions.device: must be cpu, or another"),
        (("conditions", "instrument"), "../5", "conditions.instrument: must be a version or a"),
        (("conditions", "python_build"), "a\nb", "conditions.python_build: must be one line"),
        (("cell", "lock_sha256"), "ab", "cell.lock_sha256: must be 64 hex digits"),
        (("cell", "python"), "3.12/..", "cell.python: must be a version"),
        (("machine", "name"), "..", "machine.name: must have at most 100 bytes of letters"),
        (("machine", "name"), "-rf", "machine.name: must have at most 100 bytes of letters"),
        (("machine", "name"), "a/b", "machine.name: must have at most 100 bytes of letters"),
        (("machine", "name"), "a.json", "machine.name: must have at most 100 bytes of letters"),
        (("size",), "a/b", "size: must be a name without spaces"),
        (("size",), "a\u2028b", "size: must be a name without spaces"),
        (("workload",), "", "workload: must be a name without spaces"),
        (("variant",), "\x1b[2J", "variant: must be a name without spaces"),
        (("project",), "a\x00b", "project: must be one line"),
        (("command",), "ivhl bench\nrm", "command: must be one line of at most"),
        (("sources",), "0" * 63, "sources: must be 64 hex digits"),
        (("mode",), " ", "mode: must be a short text"),
        (("machine", "n_cpus"), -1, "machine.n_cpus: must be from 0 to 1e+18 (got -1)"),
        (("machine", "n_cpus"), 8.0, "machine.n_cpus: must be an integer (got 8.0)"),
        (("machine", "n_cpus"), True, "machine.n_cpus: must be an integer (got True)"),
        (("eager", "samples_s", 3), 0, "eager.samples_s: must hold positive seconds"),
        (("eager", "samples_s", 3), float("nan"), "eager.samples_s: must hold positive seconds"),
        (("duration_s",), "1", "duration_s: must be a number (got '1')"),
        (("surprise",), 1, "surprise: is no field of a record"),
        (("compile",), None, "compile: required if there is a speedup"),
        (("workload_version",), 0, "workload_version: must be at least 1"),
    ],
)  # fmt: skip
def test_a_value_that_no_measurement_gives_is_no_record_for_any_reader(
    tmp_path: Path, place: tuple[str | int, ...], text: object, rule: str
) -> None:
    assert rule in refused_by_all(tmp_path, with_value(DATA, place, text))


def refused_by_all(folder: Path, line: bytes) -> str:
    """Return the rule that a line breaks, which every reader of records must name or pass over."""
    path = record_file(folder, "bench", RECORD.commit, RECORD.cell.id)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(line + b"\n")
    loaded = load_records(folder)
    assert loaded.records == ()
    (problem,) = loaded.problems
    index = Index(folder, ":memory:")
    index.update()
    assert list(map(str, index.problems)) == [str(problem)]
    assert index.entries == ()
    index.close()
    refused = read_line(SourceLine("x:1", line))
    assert isinstance(refused, Refused)
    assert refused.rule == problem.rule
    # For ``ivhl bench`` it is no answer, natively and in a container, nor a value for asv.
    assert newest_keys(path) == {}
    made = newest_made()
    assert newest_of_other_commits(path.parent, made) == {}
    assert cold_seconds(folder, RECORD.cell.id) == {}
    assert values_in(path, RECORD.cell, "cpu") == {}
    assert records_of_image(path, RECORD.conditions.image or "") == ()
    return problem.rule


def newest_made() -> Any:  # noqa: ANN401
    return (RECORD.commit, RECORD.cell.id, RECORD.cell.lock_sha256, 1, "5", None, ())


@given(changed_json((DATA, FULL, json.loads(to_json(make_failure())))))
def test_every_reader_takes_the_same_lines(tmp_path_factory: Any, data: Any) -> None:  # noqa: ANN401
    folder: Path = tmp_path_factory.mktemp("lines")
    try:
        line = json.dumps(data).encode()
    except ValueError:  # Python writes no integer of 5,000 digits
        return
    try:
        record = read_record(line)
    except ValueError:
        refused_by_all(folder, line)
        return
    path = record_file(folder, "bench", RECORD.commit, RECORD.cell.id)
    append_record(path, record)  # what was read can be written, and is the same again
    assert load_records(folder).records == (record,)
    assert read_line(SourceLine("x:1", line)).record == record  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe{\x00}\x00",
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"9" * 5000,
        b"null",
        b"{}",
        b"[]",
        b"NaN",
        b'"\\ud800"',
        b'{"schema":"ivhl.run/4","schema":5}',
        b"x" * (LONGEST_LINE + 1),
    ],
    ids=lambda line: line[:12].decode(errors="replace"),
)
def test_a_line_that_is_no_record_is_refused_with_a_short_sentence(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"must|missing") as refused:
        read_record(line)
    assert len(str(refused.value)) < 500


def test_the_message_of_many_mistakes_is_short() -> None:
    many = {f"{'x' * 300}{n}": n for n in range(1000)}
    with pytest.raises(ValueError, match=r"is no field of a record; .*; and 997 more") as refused:
        read_record(json.dumps(DATA | many).encode())
    assert len(str(refused.value)) < 1000
    accuracy: list[dict[str, object]] = [{}] * 10_000
    with pytest.raises(ValueError, match=r"accuracy.0.output: is missing") as refused:
        read_record(json.dumps(DATA | {"accuracy": accuracy}).encode())
    assert len(str(refused.value)) < 500


def test_a_newer_schema_is_named_with_what_to_do() -> None:
    with pytest.raises(NewerSchemaError, match=r"got 'ivhl.run/6'\); a newer ivhl wrote it"):
        read_record(json.dumps(DATA | {"schema": "ivhl.run/6", "new": 1}).encode())


def test_every_flag_that_ivhl_writes_can_be_read() -> None:
    for text in (
        "inductor.cpp.simdlen=1",
        "torch._dynamo.config.x='a\nb'",
        "_inductor.config.a.b=é",
    ):
        assert TEXTS["Conditions.flags"].mistake(str(parse_flag(text))) == ""


@given(st.binary(max_size=300), st.integers(0, 300), st.integers(0, 9))
def test_lines_have_the_same_numbers_and_places_from_wherever_one_reads(
    data: bytes, cut: int, number: int
) -> None:
    found = [line for line, _ in records_in(data)]
    assert [line.data for line in found] == [
        line.lstrip() for line in data.split(b"\n") if line.strip()
    ]
    for line in found:
        assert data[line.start :].startswith(line.data)
        assert data.count(b"\n", 0, line.start) == line.number - 1
    start = data.rfind(b"\n", 0, cut) + 1
    after = [line for line, _ in records_in(data, start, data.count(b"\n", 0, start) + number)]
    assert [(n - number, at) for n, at, _ in after] == [
        (n, at) for n, at, _ in found if at >= start
    ]


def test_of_many_lines_that_are_no_records_a_few_are_named(tmp_path: Path) -> None:
    path = record_file(tmp_path, "bench", RECORD.commit, RECORD.cell.id)
    append_record(path, RECORD)
    with path.open("ab") as file:
        file.write(b"x\n" * (MOST_LINES - 1))
    loaded, index = load_records(tmp_path), Index(tmp_path, ":memory:")
    assert loaded.records == (RECORD,)
    assert len(loaded.problems) == MOST_NAMED
    assert str(loaded.problems[-1]).endswith(
        f"; and {MOST_LINES - 1 - MOST_NAMED} more lines are no records"
    )
    index.update()
    assert list(map(str, index.problems)) == list(map(str, loaded.problems))
    index.close()


def test_a_file_that_grew_after_lines_that_are_no_records_is_named_as_if_read_at_once(
    tmp_path: Path,
) -> None:
    path = record_file(tmp_path, "bench", RECORD.commit, RECORD.cell.id)
    path.parent.mkdir(parents=True)
    index = Index(tmp_path, ":memory:")
    for n in (1, MOST_NAMED - 2, 5, 5):
        with path.open("ab") as file:
            file.write(b"x\n" * n)
        append_record(path, RECORD)
        index.update()
        assert list(map(str, index.problems)) == list(map(str, load_records(tmp_path).problems))
    index.close()


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"x\n" * (MOST_LINES + 1), f"must have at most {MOST_LINES} lines (got more)"),
        (b"x" * (LONGEST_LINE + 1), f"must have at most {LONGEST_LINE} bytes"),
    ],
)
def test_a_file_over_a_limit_is_named_and_the_others_are_read(
    tmp_path: Path, content: bytes, rule: str
) -> None:
    append_record(record_file(tmp_path, "bench", RECORD.commit, RECORD.cell.id), RECORD)
    bad = tmp_path / "bench" / "records" / f"00000000-{RECORD.cell.id}.jsonl"
    bad.write_bytes(content)
    loaded = load_records(tmp_path)
    assert loaded.records == (RECORD,)
    (problem,) = loaded.problems
    assert problem.path == bad
    assert problem.rule.startswith(rule)
    assert newest_keys(bad) == {}


def test_a_file_of_more_than_64_mib_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    append_record(record_file(tmp_path, "bench", RECORD.commit, RECORD.cell.id), RECORD)
    with (tmp_path / "bench" / "records" / "00000000.jsonl").open("wb") as file:
        file.truncate(LARGEST + 1)
    loaded = load_records(tmp_path)
    assert loaded.records == (RECORD,)
    (problem,) = loaded.problems
    assert problem.rule == f"must have at most {LARGEST} bytes (got {LARGEST + 1})"


def test_no_record_is_written_where_nobody_would_read_it(tmp_path: Path) -> None:
    path = record_file(tmp_path, "bench", RECORD.commit, RECORD.cell.id)
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(LARGEST - 100)
    with pytest.raises(OSError, match="File too large"):
        append_record(path, RECORD)
    assert path.stat().st_size == LARGEST - 100


def test_the_records_of_this_repository_are_far_from_every_limit() -> None:
    longest = most = 0
    for path in (HERE / "results").glob("*/records/*.jsonl"):
        data = path.read_bytes()
        if data:
            longest = max(longest, *map(len, data.splitlines()))
            most = max(most, data.count(b"\n"))
    assert longest * 10 < LONGEST_LINE
    assert most * 100 < MOST_LINES


def test_every_part_of_a_record_is_checked_by_its_own_fields() -> None:
    """A part whose fields have no types could hold anything."""
    kinds = [one for one in vars(parts).values() if isinstance(one, type) and is_dataclass(one)]
    assert len(kinds) > 10
    for kind in kinds:
        assert {field.name for field in fields(kind)} <= set(get_type_hints(kind))
