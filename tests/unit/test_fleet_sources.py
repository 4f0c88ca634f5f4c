"""Records are read from files, folders and archives; suspicious members are refused by name."""

from __future__ import annotations

import json
import os
import stat
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ivhl.fleet.sources import EXPORT, ImportLimits, Refused, SourceLine, read_sources
from ivhl.records.record import Counted, to_json
from ivhl.records.text import printable
from studies import roofline
from tests.builders.records import make_record

HERE = Path(__file__).parents[2]


def read(*paths: Path, limits: ImportLimits | None = None) -> tuple[list[bytes], list[Refused]]:
    found = list(read_sources(list(paths), limits))
    return (
        [one.data for one in found if isinstance(one, SourceLine)],
        [one for one in found if isinstance(one, Refused)],
    )


def zipped(path: Path, *members: tuple[str | zipfile.ZipInfo, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return path


def test_a_file_a_folder_and_an_archive_give_the_same_lines(tmp_path: Path) -> None:
    file = tmp_path / "out" / "box" / "records" / "x.jsonl"
    file.parent.mkdir(parents=True)
    file.write_bytes(b'{"a": 1}\n\n{"b": 2}')
    (file.parent.parent / "machine.json").write_text("{}")
    archive = zipped(
        tmp_path / "a.zip", ("box/records/x.jsonl", file.read_bytes()), ("notes.txt", b"hello")
    )
    lines = [b'{"a": 1}', b'{"b": 2}']
    for source in (file, tmp_path / "out", tmp_path / "out" / "box", archive):
        assert read(source) == (lines, [])
    places = [found.place for found in read_sources([archive])]
    assert places == [f"{archive}!box/records/x.jsonl:{n}" for n in (1, 3)]


def test_an_export_of_roofline_gives_its_records(tmp_path: Path) -> None:
    assert EXPORT == roofline.SCHEMA
    data = {"schema": EXPORT, "limits": {}, "records": [{"a": 1}, {"b": 2}]}
    export = tmp_path / "results.json"
    export.write_text(json.dumps(data, indent=1))
    assert read(export) == ([b'{"a": 1}', b'{"b": 2}'], [])
    assert [found.place for found in read_sources([export])] == [
        f"{export}: record {n}" for n in (1, 2)
    ]
    export.write_text(json.dumps(data, indent=1)[:-9])  # truncated: its lines are no records
    lines, _ = read(export)
    assert lines[0] == b"{"


def test_journals_of_a_killed_run_are_skipped(tmp_path: Path) -> None:
    journal = tmp_path / "out" / ".scratch" / "case-1" / "cold.jsonl"
    journal.parent.mkdir(parents=True)
    journal.write_text("{}")
    (tmp_path / "out" / "x.jsonl").write_text("[]")
    archive = zipped(tmp_path / "a.zip", ("out/.scratch/cold.jsonl", b"{}"), ("x.jsonl", b"[]"))
    assert read(tmp_path / "out", archive) == ([b"[]", b"[]"], [])


def test_what_cannot_be_read_is_refused_and_everything_else_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a/x.jsonl", "b/y.jsonl", "b/z.jsonl", "c/w.jsonl"):
        (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / name).write_text("[]")
    scandir, opened = os.scandir, Path.open

    def forbidden(path: str) -> Any:  # noqa: ANN401  (root may read everything)
        if str(path).endswith("/a"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    def damaged(self: Path, mode: str) -> Any:  # noqa: ANN401  (a file)
        if self.name == "y.jsonl":
            raise OSError(5, "Input/output error", str(self))
        return opened(self, mode)

    monkeypatch.setattr(os, "scandir", forbidden)
    monkeypatch.setattr(Path, "open", damaged)
    lines, refused = read(tmp_path / "out")
    assert lines == [b"[]", b"[]"]
    assert {one.place.removeprefix(f"{tmp_path}/"): one.rule for one in refused} == {
        "out/a": "cannot be read: Permission denied",
        "out/b/y.jsonl": "cannot be read: Input/output error",
    }


def memory_of_reading(path: Path) -> tuple[int, str]:
    """Return the KiB that reading a source takes in a process of its own, and what it yields."""
    script = (
        "import resource, sys; from pathlib import Path;"
        "from ivhl.fleet.sources import SourceLine, read_sources;"
        "from ivhl.fleet.check import read_line;"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; before = peak();"
        "found = [read_line(one) if isinstance(one, SourceLine) else one"
        " for one in read_sources([Path(sys.argv[1])])];"
        "print(peak() - before, found[0].rule, len(found))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=HERE,
    )
    kib, _, said = done.stdout.partition(" ")
    return int(kib), said


def test_a_source_that_is_made_to_take_memory_takes_little(tmp_path: Path) -> None:
    """A list of a million members, a document of a million records, a record of a million errors."""
    archive = tmp_path / "many.zip"
    entry = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", *[0] * 16)
    number = 1_000_000
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, number * len(entry), 0, 0)
    with archive.open("wb") as file:
        for _ in range(number // 1000):
            file.write(entry * 1000)
        file.write(end)
    export = tmp_path / "export.json"
    export.write_text(f'{{"schema": "{EXPORT}", "records": [{"{}," * 5_000_000}{{}}]}}')
    errors = tmp_path / "errors.jsonl"
    text = to_json(make_record(warnings=(Counted(text="x", count=1),)))
    errors.write_text(text.replace('[{"count":1,"text":"x"}]', f"[{'0,' * 500_000}0]"))
    assert 900_000 < errors.stat().st_size < ImportLimits().line_bytes
    for path in (archive, export, errors):
        kib, said = memory_of_reading(path)
        assert kib < 400 << 10, (path.name, kib, said)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("../x.jsonl", "must not leave its folder"),
        ("a/../../x.jsonl", "must not leave its folder"),
        ("..\\x.jsonl", "must not leave its folder"),
        ("/etc/x.jsonl", "must be relative"),
        ("C:/x.jsonl", "must be relative"),
        ("\\\\host\\x.jsonl", "must be relative"),
        ("a\nb.jsonl", "must be printable"),
        ("../machine.json", "must not leave its folder"),
    ],
)
def test_a_name_outside_the_folder_is_refused_and_the_others_are_read(
    tmp_path: Path, name: str, told: str
) -> None:
    archive = zipped(tmp_path / "a.zip", (name, b"{}"), ("box/good.jsonl", b"[]"))
    lines, (refused,) = read(archive)
    assert lines == [b"[]"]
    assert told in refused.rule
    assert repr(name) in refused.rule
    assert "ask the sender for" in refused.hint
    assert refused.place.isprintable()


def test_links_and_devices_in_an_archive_are_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("box/link.jsonl")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    device = zipfile.ZipInfo("box/device.jsonl")
    device.external_attr = (stat.S_IFCHR | 0o666) << 16
    archive = zipped(tmp_path / "a.zip", (link, b"/etc/passwd"), (device, b""), ("x.jsonl", b"[]"))
    lines, refused = read(archive)
    assert lines == [b"[]"]
    assert ["not a link or a device" in one.rule for one in refused] == [True, True]


def test_links_in_a_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "secret.jsonl").write_text("secret")
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "link.jsonl").symlink_to(tmp_path / "secret.jsonl")
    (folder / "loop").symlink_to(folder, target_is_directory=True)
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "x.jsonl").write_text("[]")
    lines, refused = read(folder)
    assert lines == [b"[]"]
    assert {one.place.rpartition("/")[2] for one in refused} == {
        "link.jsonl",
        "loop",
        "pipe.jsonl",
    }


@pytest.mark.parametrize("kept", [10, 60, -30])
def test_a_truncated_archive_is_refused(tmp_path: Path, kept: int) -> None:
    archive = zipped(tmp_path / "a.zip", ("x.jsonl", b"[]" * 200))
    archive.write_bytes(archive.read_bytes()[:kept])
    (tmp_path / "y.jsonl").write_text("[]")
    lines, (refused,) = read(archive, tmp_path / "y.jsonl")
    assert lines == [b"[]"]
    assert "must be a complete zip archive" in refused.rule
    assert "download it again" in refused.hint


def test_a_damaged_member_does_not_hide_the_others(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("bad.jsonl", b"AAAA")
        archive.writestr("good.jsonl", b"[]")
    data = (tmp_path / "a.zip").read_bytes()
    (tmp_path / "a.zip").write_bytes(data.replace(b"AAAA", b"AABA", 1))
    lines, (refused,) = read(tmp_path / "a.zip")
    assert lines == [b"[]"]
    assert "bad.jsonl" in refused.place
    assert "CRC" in refused.rule


def test_a_zip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "a.zip", ("bomb.jsonl", b" " * (8 << 20)), ("x.jsonl", b"[]"))
    lines, (refused,) = read(archive)
    assert lines == [b"[]"]
    assert "must not unpack to more than 200 times its size" in refused.rule


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_member_of_a_method_that_unpacks_whole_blocks_is_not_unpacked(
    tmp_path: Path, method: int
) -> None:
    """337 bytes of bzip2 took 856 MB before they were refused."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w", method) as archive:
        archive.writestr("bomb.jsonl", b"\n" * (8 << 20))
        archive.writestr("x.jsonl", b"[]", zipfile.ZIP_DEFLATED)
    tracemalloc.start()
    lines, (refused,) = read(tmp_path / "a.zip")
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()
    assert lines == [b"[]"]
    assert f"must be stored or deflated (got compression method {method})" in refused.rule


def test_many_small_zip_bombs_count_as_one(tmp_path: Path) -> None:
    limits = ImportLimits(total_bytes=4 << 20)
    bombs = [(f"{n}.jsonl", b" " * (8 << 20)) for n in range(9)]
    lines, refused = read(zipped(tmp_path / "a.zip", *bombs), limits=limits)
    assert lines == []
    assert len(refused) < 6
    assert "the others are not read" in refused[-1].rule


def test_a_false_size_in_a_header_is_detected(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "a.zip", ("bomb.jsonl", b" " * (8 << 20)))
    data = archive.read_bytes().replace((8 << 20).to_bytes(4, "little"), (9).to_bytes(4, "little"))
    archive.write_bytes(data)
    lines, refused = read(archive)
    # Python stops at the size in the header, and then the checksum is wrong.
    assert lines == []
    assert len(refused) == 1


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (ImportLimits(files=1), "may have 1 files"),
        (ImportLimits(file_bytes=1 << 20, total_bytes=1 << 20), "may have 1 MiB of records"),
        (ImportLimits(file_bytes=1000), "a file may have 0 MiB"),
        (ImportLimits(line_bytes=1000), "a record may have 0 MiB"),
    ],
)
def test_every_source_has_limits(tmp_path: Path, limits: ImportLimits, told: str) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    noise = os.urandom(400_000).replace(b"\n", b" ")
    members = [(f"{n}.jsonl", noise) for n in range(3)]
    for name, data in members:
        (folder / name).write_bytes(data)
    for source in (folder, zipped(tmp_path / "a.zip", *members)):
        lines, refused = read(source, limits=limits)
        assert len(lines) < 3
        assert told in refused[-1].rule


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "a.zip", ("x.jsonl", b"[]"))
    data = bytearray(archive.read_bytes())
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + place] |= 1
    archive.write_bytes(bytes(data))
    assert read(archive)[1][0].rule == "must not be encrypted"


def test_an_empty_or_missing_source_is_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    _, refused = read(tmp_path / "nowhere", empty, zipped(tmp_path / "a.zip"))
    assert [one.rule for one in refused] == [
        "no such file or folder",
        "must contain records: files that end in .jsonl",
        "must contain records: files that end in .jsonl",
    ]


def test_control_characters_in_a_name_are_escaped() -> None:
    assert printable("a\x1b[31m\nb") == "a\\x1b[31m\\nb"
    assert printable("höhe.jsonl") == "höhe.jsonl"
