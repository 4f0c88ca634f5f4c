"""The compile cache: keeps compiled code between runs, so that unchanged cases compile only once.

An entry holds the files and findings of the process that compiled a case. Its key covers all that
determines them: lock, Python, processor, instrument, case and the hash of the sources that the case
reaches. Every file is checked against its digest before any is used. An entry that is damaged,
incomplete or unreadable is deleted, and the case is compiled again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
SCHEMA = "ivhl.compiled/2"
# Limit for all entries together; the least recently used ones are deleted first.
LIMIT_BYTES = 4 << 30
# Older half-written entries are abandoned: no process takes this long to write or remove one.
HALF_DONE_S = 3600.0


def key_of(about: dict[str, Any]) -> str:
    """Return the key of an entry from its JSON description."""
    text = json.dumps(about, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def fetch(cache: Path, key: str, target: Path) -> dict[str, Any] | None:
    """Copy an entry into the folder of a case, and return its findings.

    Copies instead of links, because the measured code could change the files.

    Args:
        cache: Folder of all entries.
        key: From ``key_of``.
        target: Folder that gets the files of the entry; existing files are replaced.

    Returns:
        The findings; ``None`` if the entry is missing or unusable.
    """
    files: dict[str, tuple[bytes, int]] = {}
    try:
        findings, files = _read(cache / key, key)
        for name, (data, mode) in files.items():
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            path.chmod(mode)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        drop(cache, key)
        # The case will be compiled in the same folder, which must be empty.
        for top in {Path(name).parts[0] for name in files}:
            shutil.rmtree(target / top, ignore_errors=True)
            with suppress(OSError):
                (target / top).unlink()
        return None
    with suppress(OSError):
        os.utime(cache / key / MANIFEST)  # when it was last used
    return findings


def _read(entry: Path, key: str) -> tuple[dict[str, Any], dict[str, tuple[bytes, int]]]:
    """Return the findings of an entry, and the bytes and mode of each of its files, all checked.

    Raises:
        ValueError: If a file differs from what was kept; also other types for a bad manifest.
        OSError: If it cannot be read.
    """
    manifest = json.loads((entry / MANIFEST).read_text(encoding="utf-8"))
    findings: dict[str, Any] = manifest["findings"]
    if manifest["schema"] != SCHEMA or manifest["key"] != key or type(findings) is not dict:
        raise ValueError("another entry's manifest")
    files = {}
    for name, digest in manifest["files"].items():
        if ".." in Path(name).parts or Path(name).is_absolute():
            raise ValueError(f"{name} is outside of the entry")
        data = (entry / name).read_bytes()
        if hashlib.sha256(data).hexdigest() != digest:
            raise ValueError(f"{name} is not what was kept")
        files[name] = data, (entry / name).stat().st_mode
    return findings, files


def keep(
    cache: Path,
    key: str,
    source: Path,
    names: tuple[str, ...],
    findings: dict[str, Any],
    *,
    limit_bytes: int | None = None,
) -> str | None:
    """Store folders and files of a case as an entry, completely or not at all.

    Args:
        cache: Folder of all entries.
        key: From ``key_of``.
        source: Folder of the case.
        names: Folders and files in it to keep, if they exist.
        findings: Findings of compiling the case, as JSON.
        limit_bytes: Limit for all entries together; by default ``LIMIT_BYTES``.

    Returns:
        Why it could not be kept, e.g. a full disk; ``None`` if it was.
    """
    fresh = cache / f".{key}.{os.getpid()}.{time.monotonic_ns()}"
    files: dict[str, str] = {}
    try:
        fresh.mkdir(parents=True)
        for path in sorted(p for name in names for p in _files(source / name)):
            name = path.relative_to(source).as_posix()
            data = path.read_bytes()
            files[name] = hashlib.sha256(data).hexdigest()
            copy = fresh / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(data)
            copy.chmod(path.stat().st_mode)
        manifest = {"schema": SCHEMA, "key": key, "files": files, "findings": findings}
        (fresh / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
        drop(cache, key)
        with suppress(OSError):  # another run was faster
            fresh.rename(cache / key)
    except OSError as error:
        return f"{error.strerror or error}"
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    prune(cache, LIMIT_BYTES if limit_bytes is None else limit_bytes)
    return None


def drop(cache: Path, key: str) -> None:
    """Delete an entry; renames it first, so that no other run finds a part of it."""
    gone = cache / f".{key}.gone.{os.getpid()}.{time.monotonic_ns()}"
    with suppress(OSError):
        (cache / key).rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def prune(cache: Path, limit_bytes: int) -> None:
    """Delete the least recently used entries until the rest is within the limit.

    Also deletes half-written entries of killed processes.
    """
    for half in cache.glob(".*"):
        with suppress(OSError):
            if time.time() - half.stat().st_mtime > HALF_DONE_S:
                shutil.rmtree(half)
    entries = []
    for manifest in cache.glob(f"[!.]*/{MANIFEST}"):
        with suppress(OSError):
            size = sum(path.stat().st_size for path in _files(manifest.parent))
            entries.append((manifest.stat().st_mtime, size, manifest.parent.name))
    held = sum(size for _, size, _ in entries)
    for _, size, key in sorted(entries):
        if held <= limit_bytes:
            return
        drop(cache, key)
        held -= size


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
