"""The files of records, plain or packed, where more than the standard library is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ivhl.errors import ResultsError
from ivhl.records.lines import LARGEST, lines_of, read_bytes, read_plain, within_limits

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

PACKED: Final = ".zst"
_ENDINGS: Final = (".jsonl", f".jsonl{PACKED}")
# Unpacked over packed bytes: the files here have 2.5 to 31 if they are packed, blanks a thousand.
RATIO: Final = 200
_SMALL: Final = 1 << 20  # of any ratio
# A block of 4 bytes can hold 128 KiB of one byte: so many bytes at once unpack to 8 MiB at most.
_AT_ONCE: Final = 256


def records_files(results: Path) -> tuple[list[Path], list[tuple[Path, str]]]:
    """Return the files of records, sorted, and the folders with what cannot be read, with a rule.

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
            for path in sorted(p for p in records.iterdir() if p.name.endswith(_ENDINGS)):
                name = f"{folder.name}/{records.name}/{path.name}"
                if _is_text(name):
                    found.append(path)
                else:
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


def read_records_file(path: Path) -> bytes:
    """Return the content of a file of records, unpacked.

    Raises:
        ResultsError: If it cannot be read, or is over a limit (``lines.read_plain``).
    """
    if path.suffix != PACKED:
        return read_plain(path)
    return within_limits(unpacked(read_bytes(path)))


def with_packed(path: Path) -> bytes:
    """Return the lines of a plain file of records, after those that are packed beside it.

    ``ivhl compact`` that is killed before it deletes the plain file leaves lines in both: each is
    returned once, since it is one record. Every line ends, also one that was cut off.

    Raises:
        ResultsError: If one of the files cannot be read; neither has to exist.
    """
    beside = path.with_name(path.name + PACKED)
    here = _lines(path)
    return b"".join(line + b"\n" for line in [*_lines(beside, without=set(here)), *here])


def _lines(path: Path, without: Collection[bytes] = ()) -> list[bytes]:
    if not path.exists():
        return []
    return [line.data for line in lines_of(read_records_file(path)) if line.data not in without]


def packed(data: bytes) -> bytes:
    """Return the content in the form of Zstandard, with its hash."""
    import zstandard  # noqa: PLC0415  (few results have packed files)

    return zstandard.ZstdCompressor(level=19, write_checksum=True).compress(data)


def unpacked(data: bytes) -> bytes:
    """Return the content of a packed file. What its header declares is not allocated.

    Raises:
        ResultsError: If it is cut off, damaged, or larger than ``LARGEST`` or ``RATIO`` allow.
    """
    import zstandard  # noqa: PLC0415  (likewise)

    try:
        size = zstandard.frame_content_size(data)
        if not 0 <= size <= LARGEST:
            raise ResultsError(f"cannot be unpacked: says that it holds {size} bytes")
        if size > max(_SMALL, RATIO * len(data)):
            raise ResultsError(
                f"cannot be unpacked: holds more than {RATIO} times its bytes (got {size} in "
                f"{len(data)})"
            )
        # The window that a header asks for is not larger than its content.
        frame = zstandard.ZstdDecompressor().decompressobj()
        found, position = bytearray(), 0
        while position < len(data) and len(found) <= size and not frame.eof:
            found += frame.decompress(data[position : position + _AT_ONCE])
            position += _AT_ONCE
        # What follows, as after `cat one.zst other.zst`, would be lost without a word.
        more = frame.unused_data or position < len(data)
        if not frame.eof or more or len(found) != size:
            raise ResultsError(f"cannot be unpacked: is no single frame of {size} bytes")
    except zstandard.ZstdError as error:
        raise ResultsError(f"cannot be unpacked: {error}") from error
    return bytes(found)
