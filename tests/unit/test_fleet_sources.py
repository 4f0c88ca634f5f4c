"""Records are read from files and folders; suspicious entries are refused by name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ivhl.fleet import sources
from ivhl.fleet.sources import Refused, SourceLine, read_sources
from ivhl.records.lines import LONGEST_LINE
from ivhl.records.record import Counted, to_json
from ivhl.records.text import printable
from tests.builders.records import make_record

HERE = Path(__file__).parents[2]


def read(*paths: Path) -> tuple[list[bytes], list[Refused]]:
    found = list(read_sources(list(paths)))
    return (
        [one.data for one in found if isinstance(one, SourceLine)],
        [one for one in found if isinstance(one, Refused)],
    )


def test_a_file_and_a_folder_give_the_same_lines(tmp_path: Path) -> None:
    file = tmp_path / "out" / "box" / "records" / "x.jsonl"
    file.parent.mkdir(parents=True)
    file.write_bytes(b'{"a": 1}\n\n{"b": 2}')
    (file.parent.parent / "machine.json").write_text("{}")
    lines = [b'{"a": 1}', b'{"b": 2}']
    for source in (file, tmp_path / "out", tmp_path / "out" / "box"):
        assert read(source) == (lines, [])
    places = [found.place for found in read_sources([file.parents[2]])]
    assert places == [f"{file}:{n}" for n in (1, 3)]


def test_a_zip_archive_is_refused_with_the_command_that_unpacks_it(tmp_path: Path) -> None:
    (tmp_path / "lab.zip").write_bytes(b"PK\x03\x04")
    lines, (refused,) = read(tmp_path / "lab.zip")
    assert lines == []
    assert refused.rule == "must be unpacked: a zip archive is not read"
    assert "unzip" in refused.hint


def test_journals_of_a_killed_run_are_skipped(tmp_path: Path) -> None:
    journal = tmp_path / "out" / ".scratch" / "case-1" / "cold.jsonl"
    journal.parent.mkdir(parents=True)
    journal.write_text("{}")
    (tmp_path / "out" / "x.jsonl").write_text("[]")
    assert read(tmp_path / "out") == ([b"[]"], [])


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
    """A record of a million errors."""
    errors = tmp_path / "errors.jsonl"
    text = to_json(make_record(warnings=(Counted(text="x", count=1),)))
    errors.write_text(text.replace('[{"count":1,"text":"x"}]', f"[{'0,' * 500_000}0]"))
    assert 900_000 < errors.stat().st_size < LONGEST_LINE
    kib, said = memory_of_reading(errors)
    assert kib < 400 << 10, (kib, said)


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


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"_MOST_FILES": 1}, "may have at most 1 files"),
        ({"LARGEST": 1 << 20, "_LARGEST_TOTAL": 1 << 20}, "may have at most 1 MiB of records"),
        ({"LARGEST": 1000}, "a file may have 0 MiB"),
        ({"LONGEST_LINE": 1000}, "a record may have 0 MiB"),
    ],
)
def test_every_source_has_limits(
    tmp_path: Path, limits: dict[str, int], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, most in limits.items():
        monkeypatch.setattr(sources, name, most)
    folder = tmp_path / "out"
    folder.mkdir()
    noise = os.urandom(400_000).replace(b"\n", b" ")
    for n in range(3):
        (folder / f"{n}.jsonl").write_bytes(noise)
    lines, refused = read(folder)
    assert len(lines) < 3
    assert told in refused[-1].rule


def test_an_empty_or_missing_source_is_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    _, refused = read(tmp_path / "nowhere", empty)
    assert [one.rule for one in refused] == [
        "no such file or folder",
        "must contain records: files that end in .jsonl",
    ]


def test_control_characters_in_a_name_are_escaped() -> None:
    assert printable("a\x1b[31m\nb") == "a\\x1b[31m\\nb"
    assert printable("höhe.jsonl") == "höhe.jsonl"
