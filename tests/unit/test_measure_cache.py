"""Entries are stored completely or not at all, and damaged entries are deleted."""

from __future__ import annotations

import errno
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ivhl.measure import cache
from ivhl.measure.cache import MANIFEST, drop, fetch, keep, key_of, prune

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = key_of({"case": "ops.one/small/a"})
NAMES = ("inductor", "packages", "references.pt")
FINDINGS = {"compile": {"cold_s": 6.5}}
FILES = {
    "inductor/ab/code.py": b"print(1)\n",
    "inductor/ab/kernel.so": b"\x7fELF\x00",
    "packages/0.pt2": b"",
    "references.pt": b"tensors",
}


def case_folder(folder: Path, files: dict[str, bytes] = FILES) -> Path:
    """Return a folder with the files of a case."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (folder / "inductor" / "ab" / "kernel.so").chmod(0o755)
    (folder / "compile-0.jsonl").write_text("not kept")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a cache with one entry."""
    store = tmp_path / "cache"
    assert keep(store, KEY, case_folder(tmp_path / "case"), NAMES, FINDINGS) is None
    return store


def left(store: Path) -> list[str]:
    """Return the names in the cache, including half-written and deleted entries."""
    return sorted(path.name for path in store.iterdir())


def test_a_key_depends_on_every_value_but_not_on_their_order() -> None:
    assert key_of({"a": 1, "b": [2]}) == key_of({"b": [2], "a": 1})
    assert key_of({"a": 1, "b": [2]}) != key_of({"a": 1, "b": [3]})
    assert Path(KEY).name == KEY


def test_an_entry_is_restored_unchanged(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    assert fetch(store, KEY, target) == FINDINGS
    assert contents(target) == FILES
    assert os.access(target / "inductor" / "ab" / "kernel.so", os.X_OK)
    assert left(store) == [KEY]


def test_changing_restored_files_does_not_change_the_entry(store: Path, tmp_path: Path) -> None:
    for number in range(2):
        target = tmp_path / f"target-{number}"
        assert fetch(store, KEY, target) == FINDINGS
        assert contents(target) == FILES
        for name in FILES:
            (target / name).write_bytes(b"changed")


def test_files_of_the_entry_are_replaced_and_others_stay(store: Path, tmp_path: Path) -> None:
    target = case_folder(tmp_path / "target", dict.fromkeys((*FILES, "other"), b"old"))
    assert fetch(store, KEY, target) == FINDINGS
    found = contents(target)
    assert (found.pop("other"), found.pop("compile-0.jsonl")) == (b"old", b"not kept")
    assert found == FILES


def test_missing_names_are_not_stored(tmp_path: Path) -> None:
    source = tmp_path / "case"
    source.mkdir()
    (source / "references.pt").write_bytes(b"tensors")
    assert keep(tmp_path / "cache", KEY, source, NAMES, {}) is None
    assert fetch(tmp_path / "cache", KEY, tmp_path / "target") == {}
    assert contents(tmp_path / "target") == {"references.pt": b"tensors"}


def test_a_missing_entry_is_none(tmp_path: Path) -> None:
    assert fetch(tmp_path / "cache", KEY, tmp_path / "target") is None
    assert list(tmp_path.iterdir()) == []


def test_a_later_entry_replaces_the_earlier_one(store: Path, tmp_path: Path) -> None:
    source = case_folder(tmp_path / "again", FILES | {"references.pt": b"others"})
    assert keep(store, KEY, source, NAMES, {"compile": {}}) is None
    assert fetch(store, KEY, tmp_path / "target") == {"compile": {}}
    assert (tmp_path / "target" / "references.pt").read_bytes() == b"others"
    assert left(store) == [KEY]


def rewrite(entry: Path, **changes: Any) -> None:  # noqa: ANN401  (JSON)
    path = entry / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def flip(entry: Path) -> None:
    (entry / "inductor" / "ab" / "code.py").write_bytes(b"print(2)\n")


def cut_off(entry: Path) -> None:
    path = entry / "references.pt"
    path.write_bytes(path.read_bytes()[:-1])


def make_a_folder(entry: Path) -> None:
    (entry / "references.pt").unlink()
    (entry / "references.pt").mkdir()


def add_a_name(name: str, entry: Path) -> None:
    """Add an existing file outside of the entry to the manifest, with its correct digest."""
    files = json.loads((entry / MANIFEST).read_text())["files"]
    (entry.parent.parent / "secret").write_bytes(FILES["references.pt"])
    rewrite(entry, files={name.format(entry.parent.parent): files["references.pt"]} | files)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a file changed": flip,
    "a file cut off": cut_off,
    "a file missing": lambda entry: (entry / "packages" / "0.pt2").unlink(),
    "a folder in place of a file": make_a_folder,
    "the manifest missing": lambda entry: (entry / MANIFEST).unlink(),
    "the manifest cut off": lambda entry: (entry / MANIFEST).write_text('{"schema"'),
    "no JSON": lambda entry: (entry / MANIFEST).write_bytes(b"\xff\xfe\x00"),
    "no object": lambda entry: (entry / MANIFEST).write_text("[1]"),
    "another key": lambda entry: rewrite(entry, key="0" * 32),
    "another schema": lambda entry: rewrite(entry, schema="ivhl.compiled/1"),
    "files that are none": lambda entry: rewrite(entry, files=["references.pt"]),
    "a digest that is none": lambda entry: rewrite(entry, files={"references.pt": 1}),
    "findings that are none": lambda entry: rewrite(entry, findings=[1]),
    "no findings": lambda entry: (entry / MANIFEST).write_text(
        json.dumps({"schema": cache.SCHEMA, "key": KEY, "files": {}})
    ),
    "a name above the entry": lambda entry: add_a_name("../../secret", entry),
    "a name that climbs within": lambda entry: add_a_name("inductor/../../../secret", entry),
    "an absolute name": lambda entry: add_a_name("{}/secret", entry),
    "a name with a null": lambda entry: add_a_name("a\0b", entry),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_entry_is_deleted(store: Path, tmp_path: Path, damage: str) -> None:
    DAMAGE[damage](store / KEY)
    target = tmp_path / "deep" / "down" / "target"
    before = contents(tmp_path)
    assert fetch(store, KEY, target) is None
    assert left(store) == []
    # No file of the entry was written, neither for the case nor elsewhere.
    assert contents(tmp_path).items() <= before.items()


def test_a_link_in_an_entry_is_copied_as_a_file(store: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(FILES["references.pt"])
    (store / KEY / "references.pt").unlink()
    (store / KEY / "references.pt").symlink_to(tmp_path / "secret")
    # Its content matches the manifest, so it is used; the case gets a copy, not a link.
    assert fetch(store, KEY, tmp_path / "target") == FINDINGS
    assert not (tmp_path / "target" / "references.pt").is_symlink()


def test_two_writers_leave_one_complete_entry(tmp_path: Path) -> None:
    store = tmp_path / "cache"
    sources = [
        case_folder(tmp_path / f"case-{n}", FILES | {"references.pt": bytes([n])})
        for n in range(4)
    ]
    for _ in range(20):
        with ThreadPoolExecutor(4) as pool:
            told = list(pool.map(lambda s: keep(store, KEY, s, NAMES, {"from": s.name}), sources))
        assert told == [None] * 4
        assert left(store) == [KEY]
        target = tmp_path / "target"
        found = fetch(store, KEY, target)
        assert found is not None
        number = int(found["from"].removeprefix("case-"))
        assert contents(target) == FILES | {"references.pt": bytes([number])}


def test_a_slower_writer_keeps_the_others_entry(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run stores its entry between the deletion and the rename."""
    monkeypatch.setattr(cache, "drop", lambda *_: None)
    source = case_folder(tmp_path / "slower", FILES | {"references.pt": b"slower"})
    assert keep(store, KEY, source, NAMES, {}) is None
    monkeypatch.undo()
    assert fetch(store, KEY, tmp_path / "target") == FINDINGS
    assert left(store) == [KEY]


def test_a_full_disk_is_reported_and_leaves_no_file(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Path] = []
    write_bytes = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if len(written) == 2:
            write_bytes(path, data[:1])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(path)
        return write_bytes(path, data)

    source = case_folder(tmp_path / "again")
    monkeypatch.setattr(Path, "write_bytes", full)
    assert keep(store, KEY, source, NAMES, {}) == "No space left on device"
    other = key_of({"case": "other"})
    assert keep(store, other, source, NAMES, {}) == "No space left on device"
    monkeypatch.undo()
    # The earlier entry is still complete.
    assert left(store) == [KEY]
    assert fetch(store, KEY, tmp_path / "target") == FINDINGS


def test_an_unwritable_cache_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    source = case_folder(tmp_path / "case")
    assert keep(tmp_path / "file" / "cache", KEY, source, NAMES, {}) == "Not a directory"


def test_an_entry_that_cannot_be_copied_is_none(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bytes = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if path.name == "references.pt":
            write_bytes(path, data[:1])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write_bytes(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    target = tmp_path / "target"
    target.mkdir()
    (target / "compile-0.jsonl").touch()
    assert fetch(store, KEY, target) is None
    # The case will be compiled there.
    assert [path.name for path in target.iterdir()] == ["compile-0.jsonl"]


def entries(store: Path, source: Path, n: int) -> list[str]:
    """Return the keys of entries, least recently used first."""
    keys = [key_of({"n": number}) for number in range(n)]
    for number, key in enumerate(keys):
        assert keep(store, key, source, ("references.pt",), {}) is None
        os.utime(store / key / MANIFEST, (1e9 + number, 1e9 + number))
    return keys


def test_the_least_recently_used_entry_is_deleted_first(tmp_path: Path) -> None:
    store = tmp_path / "cache"
    source = case_folder(tmp_path / "case", FILES | {"references.pt": bytes(10_000)})
    keys = entries(store, source, 4)
    prune(store, 1 << 20)
    assert left(store) == sorted(keys)
    assert fetch(store, keys[0], tmp_path / "target") == {}  # used just now
    prune(store, 25_000)
    assert left(store) == sorted([keys[0], keys[3]])
    prune(store, 0)
    assert left(store) == []


def test_old_half_written_entries_are_deleted(store: Path) -> None:
    old, new = store / f".{KEY}.1.1", store / f".{KEY}.gone.2.2"
    for half in (old, new):
        half.mkdir()
        (half / MANIFEST).touch()
    os.utime(old, (1e9, 1e9))
    prune(store, 1 << 20)
    assert left(store) == sorted([new.name, KEY])


def test_storing_an_entry_prunes_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "cache"
    source = case_folder(tmp_path / "case", FILES | {"references.pt": bytes(10_000)})
    monkeypatch.setattr(cache, "LIMIT_BYTES", 25_000)
    keys = entries(store, source, 4)
    assert left(store) == sorted(keys[2:])


def test_dropping_a_missing_entry_is_no_error(store: Path) -> None:
    drop(store, "0" * 32)
    drop(store, KEY)
    drop(store, KEY)
    assert left(store) == []
