"""The files of records below a folder of results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

# `ivhl compact` wrote such files until November 2026: nobody should miss their records silently.
_PACKED: Final = ".jsonl.zst"


def records_files(results: Path) -> tuple[list[Path], list[tuple[Path, str]]]:
    """Return the files of records, sorted, and the paths that cannot be read, with a rule.

    ``glob`` passes over such folders: a machine would vanish from every table.
    """
    found: list[Path] = []
    unreadable: list[tuple[Path, str]] = []
    try:
        folders = sorted(folder for folder in results.iterdir() if folder.is_dir())
    except FileNotFoundError:
        return [], []
    except OSError as error:
        return [], [(results, f"cannot be read: {error.strerror}")]
    for folder in folders:
        records = folder / "records"
        try:
            for path in sorted(records.iterdir()):
                name = f"{folder.name}/{records.name}/{path.name}"
                if path.name.endswith(_PACKED):
                    unreadable.append((path, "must not be packed: unpack it with zstd -d --rm"))
                elif path.suffix == ".jsonl" and _is_text(name):
                    found.append(path)
                elif path.suffix == ".jsonl":
                    unreadable.append((results, f"must have names in UTF-8 (got {name!a})"))
        except FileNotFoundError:
            continue
        except OSError as error:
            unreadable.append((records, f"cannot be read: {error.strerror}"))
    return found, unreadable


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
