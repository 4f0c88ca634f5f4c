"""Bring the database of an index up to date with the files of records that it is made from."""

from __future__ import annotations

import json
import sqlite3
from contextlib import contextmanager
from functools import cache, lru_cache
from hashlib import sha256
from operator import attrgetter
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Final, NamedTuple

from ivhl.errors import ResultsError
from ivhl.records.age import latest_possible
from ivhl.records.lines import read_plain
from ivhl.records.reader import records_in
from ivhl.tracker.store.course import point_of
from ivhl.tracker.store.entries import Made, Shown, entry_of, row_facts_of
from ivhl.tracker.store.metrics import METRICS
from ivhl.tracker.store.records import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ivhl.records.record import RunRecord


# Another process may be writing the index of a long history.
WAIT_S = 60.0
# Bytes of files: more would be a whole history in memory, the first time that it is read.
_MOST_PARSED = 64 << 20
# The code that decides what the index and its answers hold: with another source of it, or another
# table beside it, both are made again.
_PACKAGE: Final = Path(__file__).parents[2]
_SOURCES: Final = ("instrument.py", "records", "tracker")
_OF_INTERVAL: Final = attrgetter("value", "low", "high", "confidence", "n")
_QUANTITIES: Final = (*METRICS, "calibration")
VALUES: Final = (*(f"{one}{end}" for one in _QUANTITIES for end in ("", "_error")), "yardstick")
_SCHEMA: Final = f"""
CREATE TABLE about (token TEXT, state TEXT, possible TEXT);
CREATE TABLE file (
    id INTEGER PRIMARY KEY, path TEXT UNIQUE, size INTEGER, stamp TEXT, length INTEGER,
    sha256 TEXT, lines INTEGER
);
CREATE TABLE problem (file INTEGER, line INTEGER, rule TEXT);
CREATE TABLE cases (
    id INTEGER PRIMARY KEY, machine TEXT, device TEXT, cell TEXT, existing INTEGER, workload TEXT,
    workload_version INTEGER, size TEXT, variant TEXT, python TEXT, torch TEXT, dtype TEXT
);
CREATE TABLE made (id INTEGER PRIMARY KEY, json TEXT);
CREATE TABLE subject (id INTEGER PRIMARY KEY, sources TEXT, benchmark TEXT);
CREATE TABLE run (
    id INTEGER PRIMARY KEY AUTOINCREMENT, file INTEGER, line INTEGER, start INTEGER, length INTEGER,
    cases INTEGER, "commit" TEXT, recorded_at TEXT, subject INTEGER, made INTEGER,
    failure_class TEXT, exception TEXT, compiled_s REAL, facts TEXT, errors TEXT,
    {", ".join(VALUES)}, shown TEXT,
    point TEXT, duration_s REAL, facts_of_row TEXT,
    latest INTEGER DEFAULT 1
);
CREATE INDEX run_of_case ON run (cases, "commit");
CREATE INDEX run_of_file ON run (file);
CREATE INDEX run_of_time ON run (recorded_at);
CREATE TABLE answer (question TEXT PRIMARY KEY, lasts INTEGER, text TEXT);
"""
_NAMED: Final = "SELECT 1 FROM problem WHERE file = ?"

# Within a file the later line counts, between files the later time: as in ``tracker.store``.
_LATEST: Final = """
UPDATE run SET latest = NOT latest
WHERE (cases, "commit") IN (SELECT cases, "commit" FROM touched) AND latest != (id IN (
    SELECT id FROM (
        SELECT last.id AS id, row_number() OVER (
            PARTITION BY cases, "commit"
            ORDER BY recorded_at <= ? DESC, recorded_at DESC, path DESC
        ) AS place
        FROM (
            SELECT id, file, cases, "commit", recorded_at, row_number() OVER (
                PARTITION BY file, cases, "commit" ORDER BY line DESC
            ) AS from_end
            FROM run JOIN touched USING (cases, "commit")
        ) AS last JOIN file ON file.id = last.file
        WHERE from_end = 1
    ) WHERE place = 1
))
"""


class _Found(NamedTuple):
    path: str
    size: int
    stamp: str


@cache
def code_version(*names: str) -> str:
    """Return a digest of files and folders of ivhl: by default, of what decides the index."""
    digest = sha256()
    for place in map(_PACKAGE.joinpath, names or _SOURCES):
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.is_file() and path.suffix != ".pyc":
                digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


class Current(NamedTuple):
    """An index that is up to date.

    Attributes:
        token: Another one for each index that was made.
        state: Another one after each change of its records.
        unreadable: Folders that could not be read.
        parsed: Records that were read now, by file and place: views show most of them.
    """

    token: str
    state: str
    unreadable: tuple[Problem, ...]
    parsed: dict[tuple[str, int, int], RunRecord]


class Update:
    """Brings an index up to date with the files of records.

    Args:
        db: The database.
        results: Folder with ``<machine>/records/*.jsonl``; a missing folder has no records.
    """

    def __init__(self, db: sqlite3.Connection, results: Path) -> None:
        self._db = db
        self._results = results
        self._unreadable: tuple[Problem, ...] = ()
        self._parsed: dict[tuple[str, int, int], RunRecord] = {}
        self._room = _MOST_PARSED

    def run(self) -> Current:
        """Bring it up to date; a file that only grew is read from where it ended, others whole.

        Raises:
            sqlite3.Error: If the index is broken or cannot be written.
        """
        version = int(code_version()[:8], 16) >> 1
        if not self._is_current(version):
            with transaction(self._db):
                if not self._is_current(version):
                    self._create(version)
        found = {one.path: one for one in self._found()}
        if self._changed(found) or self._dated_otherwise("LIMIT 1"):
            with transaction(self._db):
                self._take(found, self._changed(found))
        token, state = self._db.execute("SELECT token, state FROM about").fetchone()
        if not self._is_current(version):
            raise sqlite3.OperationalError("another version of ivhl made it again")
        return Current(token, state, self._unreadable, self._parsed)

    def _is_current(self, version: int) -> bool:
        return bool(self._db.execute("PRAGMA user_version").fetchone() == (version,))

    def _create(self, version: int) -> None:
        names = self._db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        ).fetchall()
        for (name,) in names:
            self._db.execute(f'DROP TABLE "{name}"')
        for statement in filter(str.strip, _SCHEMA.split(";")):
            self._db.execute(statement)
        about = token_hex(16), token_hex(16), latest_possible()
        self._db.execute("INSERT INTO about VALUES (?, ?, ?)", about)
        self._db.execute(f"PRAGMA user_version = {version}")

    def _found(self) -> Iterator[_Found]:
        paths, unreadable = records_files(self._results)
        self._unreadable = tuple(Problem(folder, None, rule) for folder, rule in unreadable)
        for path in paths:
            name = "/".join(path.parts[-3:])  # the machine, ``records``, the file
            try:
                at = path.stat()
            except OSError as error:
                if isinstance(error, FileNotFoundError) and not path.is_symlink():
                    continue  # deleted since it was listed
                yield _Found(name, 0, f"{error.errno}")  # reading it says why
                continue
            # Nobody can set the time of the last change of an inode.
            stamp = f"{at.st_ino}:{at.st_mtime_ns}:{at.st_ctime_ns}"
            yield _Found(name, at.st_size, stamp)

    def _changed(self, found: dict[str, _Found]) -> list[str]:
        """Return the files that are new, gone or may have another content."""
        rows = self._db.execute("SELECT path, size, stamp FROM file")
        known = {path: _Found(path, size, stamp) for path, size, stamp in rows}
        return sorted(p for p in found.keys() | known.keys() if found.get(p) != known.get(p))

    def _dated_otherwise(self, limit: str = "") -> set[tuple[int, str]]:
        """Return the case and commit of records that were in the future, and are not, or now are.

        A clock was wrong when the index was last brought up to date, or a month has passed.
        """
        (before,) = self._db.execute("SELECT possible FROM about").fetchone()
        return set(
            self._db.execute(
                'SELECT DISTINCT cases, "commit" FROM run '  # noqa: S608  (a text of this file)
                f"WHERE recorded_at > ? AND recorded_at <= ? {limit}",
                sorted((before, latest_possible())),
            ).fetchall()
        )

    def _take(self, found: dict[str, _Found], changed: Iterable[str]) -> None:
        ids = _Ids(self._db)
        touched = self._dated_otherwise()
        self._db.execute("UPDATE about SET possible = ?", (latest_possible(),))
        for path in changed:
            touched |= self._take_file(path, found.get(path), ids)
        self._db.execute('CREATE TEMP TABLE touched (cases INTEGER, "commit" TEXT)')
        self._db.executemany("INSERT INTO touched VALUES (?, ?)", touched)
        self._db.execute(_LATEST, (latest_possible(),))
        self._db.execute("DROP TABLE touched")
        if touched:
            self._db.execute("UPDATE about SET state = ?", (token_hex(16),))
            self._db.execute("DELETE FROM answer WHERE NOT lasts")

    def _take_file(self, path: str, found: _Found | None, ids: _Ids) -> set[tuple[int, str]]:
        """Take in one file; return the case and commit of each record that is new or gone."""
        row = self._db.execute(
            "SELECT id, length, sha256, lines FROM file WHERE path = ?", (path,)
        ).fetchone()
        data, rule = b"", None
        if found is not None:
            try:
                data = read_plain(self._results / path)
            except ResultsError as error:
                rule = str(error)
        number: int | None = None
        start = lines = 0
        touched: set[tuple[int, str]] = set()
        if row is not None:
            number, start, digest, lines = row
            grew = data[start - 1 : start] == b"\n" and sha256(data[:start]).hexdigest() == digest
            # How many lines are no records is said of the whole file.
            if not grew or self._db.execute(_NAMED, (row[0],)).fetchone():
                touched |= self._forget(row[0])
                number, start, lines = None, 0, 0
        if found is None:
            return touched
        facts = (found.size, found.stamp, len(data), sha256(data).hexdigest(), data.count(b"\n"))
        number = self._db.execute(
            "INSERT OR REPLACE INTO file (id, path, size, stamp, length, sha256, lines) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (number, path, *facts),
        ).lastrowid
        if rule is not None:
            self._db.execute("INSERT INTO problem VALUES (?, NULL, ?)", (number, rule))
        self._room -= len(data) - start
        kept = self._parsed if self._room >= 0 else {}
        rows, problems = _rows(data, (start, lines), (number, path), ids, kept)
        if rows:
            marks = ", ".join("?" * len(rows[0].values))
            # All columns but ``id`` and ``latest``, in their order.
            insert = f"INSERT INTO run VALUES (NULL, {marks}, 1)"  # noqa: S608  (only marks)
            self._db.executemany(insert, (row.values for row in rows))
        self._db.executemany("INSERT INTO problem VALUES (?, ?, ?)", problems)
        return touched | {(row.case, row.commit) for row in rows}

    def _forget(self, number: int) -> set[tuple[int, str]]:
        """Drop a file; return the case and commit of each record that it had."""
        gone = self._db.execute('SELECT cases, "commit" FROM run WHERE file = ?', (number,))
        touched: set[tuple[int, str]] = set(gone.fetchall())
        self._db.execute("DELETE FROM run WHERE file = ?", (number,))
        self._db.execute("DELETE FROM problem WHERE file = ?", (number,))
        self._db.execute("DELETE FROM file WHERE id = ?", (number,))
        return touched


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Write all or nothing; wait for another process that writes."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    finally:
        if db.in_transaction:  # a reader did not let it be written in time
            db.execute("ROLLBACK")


class _Ids:
    """The numbers of what many records share."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._known: dict[str, dict[tuple[object, ...], int]] = {}
        for table in ("cases", "made", "subject"):
            rows = db.execute(f"SELECT * FROM {table}")  # noqa: S608  (a name of this file)
            self._known[table] = {tuple(values): number for number, *values in rows}

    def of(self, table: str, values: tuple[object, ...]) -> int:
        known = self._known[table]
        number = known.get(values)
        if number is None:
            marks = ", ".join("?" * len(values))
            found = self._db.execute(
                f"INSERT INTO {table} VALUES (NULL, {marks})",  # noqa: S608  (likewise)
                values,
            ).lastrowid
            assert found is not None  # noqa: S101  (for the type checker: it was an INSERT)
            number = known[values] = found
        return number


@lru_cache(maxsize=1024)
def _json_of(part: Made | Shown) -> str:
    """Return JSON of what many records share."""
    return json.dumps(part)


def _rows(
    data: bytes,
    known: tuple[int, int],
    where: tuple[int | None, str],
    ids: _Ids,
    kept: dict[tuple[str, int, int], RunRecord],
) -> tuple[list[_Row], list[tuple[object, ...]]]:
    """Return the rows of the records that are not known, and those of the lines that are none.

    Args:
        data: The content of a file.
        known: So many bytes and lines of it are known.
        where: Number and path of the file.
        ids: Numbers of what many records share.
        kept: Gets the records.
    """
    (file, path), (start, lines) = where, known
    rows: list[_Row] = []
    problems: list[tuple[object, ...]] = []
    for (number, at, line), found in records_in(data, start, lines):
        if isinstance(found, str):
            problems.append((file, number, found))
            continue
        try:
            rows.append(_row(found, (file, number, at, len(line)), ids))
        except (ValueError, ArithmeticError) as error:
            problems.append((file, number, str(error)))
        else:
            kept[path, at, len(line)] = found
    return rows, problems


class _Row(NamedTuple):
    case: int
    commit: str
    values: tuple[object, ...]


def _row(record: RunRecord, place: tuple[object, ...], ids: _Ids) -> _Row:
    entry = entry_of(record)
    machine, device, python, torch, *what = entry.case
    case = ids.of("cases", (machine, device, entry.case.cell, *what, python, torch, entry.dtype))
    values = (
        *(number for m in METRICS for number in entry.values.get(m, (None, None))),
        *(entry.calibration or (None, None, None)),
    )
    columns = (
        *place, case, entry.commit, entry.recorded_at,
        ids.of("subject", (entry.sources, entry.benchmark)),
        ids.of("made", (_json_of(entry.made),)),
        entry.failure_class, entry.exception, entry.compiled_s, entry.facts, entry.errors,
        *values, _json_of(entry.shown), point_of(entry), record.duration_s,
        json.dumps(row_facts_of(record), default=_OF_INTERVAL),
    )  # fmt: skip
    return _Row(case, entry.commit, columns)


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
                if path.suffix == ".jsonl" and _is_text(name):
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
