"""The index of a folder of records: what views need of each, without its samples, in SQLite.

Records stay the truth. The index is made from them, brought up to date by what changed since, and
thrown away and made again when it is broken or of another version. It lies in the user's cache, so
that a folder of records holds records only, and may be read-only.
"""

from __future__ import annotations

import gc
import json
import os
import sqlite3
from array import array
from collections import defaultdict
from collections.abc import MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import astuple
from functools import cached_property, lru_cache
from hashlib import sha256
from importlib.resources import files
from itertools import chain
from operator import itemgetter
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import finalize

from ivhl.errors import ResultsError
from ivhl.records.age import is_in_future, latest_possible
from ivhl.records.reader import read_record, records_in
from ivhl.tracker.course import point_of
from ivhl.tracker.entries import Entry, HeldValues, Made, Ran, Shown, entry_of, ran_of
from ivhl.tracker.metrics import METRICS, Measured, Speed
from ivhl.tracker.reading import read_records_file, records_files
from ivhl.tracker.spread import CaseKind, Learnt, Own, Scores, Spread, Spreads
from ivhl.tracker.store import Key, Problem, key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from ivhl.records.record import RunRecord
    from ivhl.tracker.metrics import Metric
    from ivhl.tracker.regressions import Searched

# Modules that decide what the index holds: with another source of one, it is made again.
_SOURCES: Final = {
    "ivhl.records": ("age.py", "record.py", "bounds.py"),
    "ivhl.tracker": (
        *("index.py", "store.py", "reading.py"),
        *("entries.py", "metrics.py", "facts.py", "spread.py", "changepoints.py"),
        *(
            "levels.py",
            "noise.py",
            "quiet_series.py",
            "short_series.py",
            "course.py",
            "wording.py",
        ),
    ),
}
# Another process may be writing the index of a long history.
_WAIT_S = 60.0
# Bytes of files: more would be a whole history in memory, the first time that it is read.
_MOST_PARSED = 64 << 20
_AGAIN: Final = "run the same command again: the index is made from the records"
_QUANTITIES: Final = (*METRICS, "calibration")
_VALUES: Final = (
    *(f"{one}{end}" for one in _QUANTITIES for end in ("", "_error")),
    "yardstick",
)
_SCHEMA: Final = f"""
CREATE TABLE about (token TEXT, possible TEXT);
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
CREATE TABLE held (id INTEGER PRIMARY KEY, json TEXT);
CREATE TABLE subject (id INTEGER PRIMARY KEY, sources TEXT, benchmark TEXT);
CREATE TABLE run (
    id INTEGER PRIMARY KEY AUTOINCREMENT, file INTEGER, line INTEGER, start INTEGER, length INTEGER,
    cases INTEGER, "commit" TEXT, recorded_at TEXT, subject INTEGER, made INTEGER,
    failure_class TEXT, exception TEXT, compiled_s REAL, facts TEXT, errors TEXT,
    {", ".join(_VALUES)}, shown TEXT,
    point TEXT, duration_s REAL, load REAL, phase_s TEXT, held INTEGER, latest INTEGER DEFAULT 1
);
CREATE INDEX run_of_case ON run (cases, "commit");
CREATE INDEX run_of_file ON run (file);
CREATE INDEX run_of_time ON run (recorded_at);
CREATE TABLE learnt (
    metric TEXT, calibrated INTEGER, json TEXT, PRIMARY KEY (metric, calibrated)
);
CREATE TABLE steps (digest TEXT PRIMARY KEY, places TEXT);
"""
_COLUMNS: Final = (
    *("file", "line", "start", "length", "cases", '"commit"', "recorded_at", "subject", "made"),
    *(
        "failure_class",
        "exception",
        "compiled_s",
        "facts",
        "errors",
        *_VALUES,
        "shown",
        "point",
        "duration_s",
        "load",
        "phase_s",
        "held",
    ),
)
_INSERT: Final = (
    f"INSERT INTO run ({', '.join(_COLUMNS)}) "  # noqa: S608  (names of this file)
    f"VALUES ({', '.join('?' * len(_COLUMNS))})"
)
_SELECT: Final = (
    'SELECT id, cases, "commit", recorded_at, subject, made, failure_class, exception, '  # noqa: S608
    "compiled_s, "
    f"facts, errors, shown, {', '.join(_VALUES)} FROM run WHERE "
)
_REPEATED: Final = (
    "(cases, subject) IN "
    "(SELECT cases, subject FROM run GROUP BY cases, subject HAVING count(*) > 1)"
)
_FIRST_VALUE: Final = 12  # of the selected columns
# Where a record is, and what it must be (``_what``).
_PLACE: Final = (
    'SELECT path, start, run.length, machine, "commit", cell, workload, cases.size, variant, '
    "recorded_at FROM run JOIN file ON file.id = file JOIN cases ON cases.id = cases "
    "WHERE run.id = ?"
)
_NAMED: Final = "SELECT 1 FROM problem WHERE file = ?"
# Within a file the later line counts, between files the later time: as in ``tracker.store``.
_LATEST: Final = """
UPDATE run SET latest = id IN (
    SELECT id FROM (
        SELECT last.id AS id, row_number() OVER (
            PARTITION BY cases, "commit"
            ORDER BY recorded_at <= ? DESC, recorded_at DESC, path DESC
        ) AS place
        FROM (
            SELECT run.*, row_number() OVER (
                PARTITION BY file, cases, "commit" ORDER BY line DESC
            ) AS from_end
            FROM run JOIN touched USING (cases, "commit")
        ) AS last JOIN file ON file.id = last.file
        WHERE from_end = 1
    ) WHERE place = 1
) WHERE (cases, "commit") IN (SELECT cases, "commit" FROM touched)
"""


class _Found(NamedTuple):
    path: str
    size: int
    stamp: str


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the collector of garbage: it would go through all of a history, which has none."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def open_index(results: Path) -> Index:
    """Return the index of a folder of results, up to date.

    Where none can be kept (no cache folder, no room), it is made in memory.
    """
    with suppress(OSError, RuntimeError, sqlite3.Error):
        place = index_file(results)
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            return _up_to_date(results, str(place))
        except sqlite3.Error as error:
            if not _is_broken(error):
                raise
            place.unlink(missing_ok=True)
            return _up_to_date(results, str(place))
    return _up_to_date(results, ":memory:")


def _up_to_date(results: Path, database: str) -> Index:
    index = Index(results, database)
    try:
        index.update()
    except BaseException:
        index.close()
        raise
    return index


def index_file(results: Path) -> Path:
    """Return where the index of a folder of results is kept.

    Raises:
        RuntimeError: If the user has no home.
    """
    name = sha256(os.fsencode(results.resolve())).hexdigest()[:16]
    return cache_folder() / "index" / f"{name}.sqlite"


def cache_folder() -> Path:
    """Return the user's folder for what can be made again.

    Raises:
        RuntimeError: If the user has no home.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ivhl"


def _is_broken(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return code is None or code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _version() -> int:
    """Return a number that is another one after any change of what the index holds."""
    digest = sha256()
    for package, names in _SOURCES.items():
        for name in names:
            digest.update((files(package) / name).read_bytes())
    return int.from_bytes(digest.digest()[:4]) >> 1


class Index:
    """The entries of a folder of results.

    Args:
        results: Folder with ``<machine>/records/*.jsonl``; a missing folder has no records.
        database: Path of the database, or ``:memory:``.
    """

    def __init__(self, results: Path, database: str) -> None:
        self._results = results
        self._unreadable: tuple[Problem, ...] = ()
        self._token = ""
        # Records that were read to bring it up to date, by file and place: views show most of them.
        self._parsed: dict[tuple[str, int, int], RunRecord] = {}
        self._room = _MOST_PARSED
        self._db = sqlite3.connect(database, timeout=_WAIT_S, isolation_level=None)
        self._close = finalize(self, self._db.close)
        self.place = None if database == ":memory:" else Path(database)

    def close(self) -> None:
        """Close the database; so does the end of the index itself."""
        self._close()

    def update(self) -> None:
        """Bring the index up to date with the files of records.

        A file that only grew is read from where it ended; another one whole.

        Raises:
            sqlite3.Error: If the index is broken or cannot be written.
        """
        version = _version()
        if not self._is_current(version):
            with self._writing():
                if not self._is_current(version):
                    self._create(version)
        found = {one.path: one for one in self._found()}
        if self._changed(found) or self._dated_otherwise("LIMIT 1"):
            with self._writing():
                self._take(found, self._changed(found))
        (self._token,) = self._db.execute("SELECT token FROM about").fetchone()
        if not self._is_current(version):
            raise sqlite3.OperationalError("another version of ivhl made it again")

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Read one state of the index that was brought up to date, while others may write.

        Raises:
            ResultsError: If it is broken, or another ivhl has made it again: numbers of records
                would then be those of other records.
        """
        try:
            self._db.execute("BEGIN")
            (token,) = self._db.execute("SELECT token FROM about").fetchone()
            if token != self.token:
                raise ResultsError(f"the index {self.place} was made again", hint=_AGAIN)
            yield
        except sqlite3.DatabaseError as error:
            if self.place is not None and _is_broken(error):
                with suppress(OSError):
                    self.place.unlink()
            text = f"the index {self.place} cannot be read: {error}"
            raise ResultsError(text, hint=_AGAIN) from error
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def _is_current(self, version: int) -> bool:
        return bool(self._db.execute("PRAGMA user_version").fetchone() == (version,))

    def _writing(self) -> _Transaction:
        return _Transaction(self._db)

    def _create(self, version: int) -> None:
        names = self._db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        ).fetchall()
        for (name,) in names:
            self._db.execute(f'DROP TABLE "{name}"')
        for statement in filter(str.strip, _SCHEMA.split(";")):
            self._db.execute(statement)
        about = token_hex(16), latest_possible()
        self._db.execute("INSERT INTO about VALUES (?, ?)", about)
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
            self._db.execute("DELETE FROM learnt")

    def _take_file(self, path: str, found: _Found | None, ids: _Ids) -> set[tuple[int, str]]:
        """Take in one file; return the case and commit of each record that is new or gone."""
        row = self._db.execute(
            "SELECT id, length, sha256, lines FROM file WHERE path = ?", (path,)
        ).fetchone()
        data, rule = b"", None
        if found is not None:
            try:
                data = read_records_file(self._results / path)
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
        self._db.executemany(_INSERT, (row.values for row in rows))
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

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The files and lines that could not be read."""
        with self._reading():
            rows = self._db.execute(
                "SELECT path, line, rule FROM problem JOIN file ON file.id = file "
                "ORDER BY path, line"
            ).fetchall()
        found = (Problem(self._results / path, line, rule) for path, line, rule in rows)
        return (*self._unreadable, *found)

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """The latest entry of each key."""
        with collector_paused(), self._reading():
            return self._entries("latest")

    @cached_property
    def replaced(self) -> tuple[Entry, ...]:
        """Earlier entries of these keys: other runs of the same case."""
        with self._reading():
            return self._entries("NOT latest")

    def _entries(self, condition: str) -> tuple[Entry, ...]:
        """Return the entries of the runs for which a condition in SQL holds."""
        cases = {}
        for number, machine, device, cell, existing, *rest in self._db.execute(
            "SELECT * FROM cases"
        ):
            workload, version, size, variant, *how = rest
            what = (workload, version, size, variant)
            cases[number] = (Key(machine, device, "", cell, bool(existing), *what), *how)
        made = {number: _made(text) for number, text in self._db.execute("SELECT * FROM made")}
        subjects = {number: (s, b) for number, s, b in self._db.execute("SELECT * FROM subject")}
        looks: dict[str, Shown] = {}
        # What a NamedTuple's own ``__new__`` calls: half a million of those take half a second.
        new = tuple.__new__
        measured = [(metric, _FIRST_VALUE + 2 * i) for i, metric in enumerate(METRICS)]
        found = []
        # In an order that hangs on the records alone, and not on when each was found: views keep it
        # where nothing else decides.
        place = {number: i for i, number in enumerate(sorted(cases, key=cases.__getitem__))}
        rows = self._db.execute(_SELECT + condition).fetchall()
        rows.sort(key=itemgetter(2, 3))  # commit, time
        rows.sort(key=lambda row: place[row[1]])
        for row in rows:
            number, case, commit, at, subject, how = row[:6]
            failure_class, exception, compiled_s, facts, errors, look = row[6:_FIRST_VALUE]
            key, python, torch, dtype = cases[case]
            shown = looks.get(look)
            if shown is None:
                shown = looks[look] = Shown(*json.loads(look))
            values = {m: new(Measured, row[i : i + 2]) for m, i in measured if row[i] is not None}
            calibration = None if row[-3] is None else new(Speed, row[-3:])
            columns = (
                number, key, commit, python, torch, dtype, at, *subjects[subject], made[how],
                failure_class, exception, compiled_s, facts, errors, values, calibration, shown,
            )  # fmt: skip
            found.append(new(Entry, columns))
        return tuple(found)

    @property
    def token(self) -> str:
        """Another one for each index that was made, so that ids of entries are never mixed."""
        return self._token

    @cached_property
    def _points(self) -> dict[int, str]:
        with self._reading():
            return dict(self._db.execute("SELECT id, point FROM run WHERE latest").fetchall())

    def points(self, entries: Iterable[Entry]) -> list[str]:
        """Return the points of latest entries in a course (``course.point_of``)."""
        known = self._points
        # Another process may have added a later run of the case since.
        return [known.get(entry.id) or point_of(entry) for entry in entries]

    def durations(self) -> dict[int, float]:
        """Return how long each of the latest records took, by ``Entry.id``."""
        with self._reading():
            found = self._db.execute("SELECT id, duration_s FROM run WHERE latest").fetchall()
        return dict(found)

    @cached_property
    def _held_by_id(self) -> dict[int, HeldValues]:
        with self._reading():
            rows = self._db.execute("SELECT * FROM held").fetchall()
        return {number: _held(text) for number, text in rows}

    def ran(self, entries: Iterable[Entry]) -> list[Ran]:
        """Return what pages of runs show of entries.

        Raises:
            ResultsError: If a record of them is gone since the index was brought up to date.
        """
        found, held = [], self._held_by_id
        with self._reading():
            for entry in entries:
                duration_s, load, phase_s, how = self._one(
                    "SELECT duration_s, load, phase_s, held FROM run WHERE id = ?", entry.id
                )
                found.append(Ran(duration_s, load, json.loads(phase_s), held[how]))
        return found

    def _one(self, query: str, number: int) -> tuple[Any, ...]:
        """Return the row of a record."""
        row: tuple[Any, ...] | None = self._db.execute(query, (number,)).fetchone()
        if row is None:
            raise _was_changed(self._results)
        return row

    def read(self, entries: Iterable[Entry]) -> tuple[RunRecord, ...]:
        """Return the records of entries, in their order.

        Raises:
            ResultsError: If a file was changed since the index was brought up to date.
        """
        return self._read([entry.id for entry in entries])

    def _read(self, numbers: Sequence[int]) -> tuple[RunRecord, ...]:
        wanted: dict[str, list[tuple[int, int, int, tuple[str, ...]]]] = defaultdict(list)
        found: dict[int, RunRecord] = {}
        with self._reading():
            for number in dict.fromkeys(numbers):
                path, start, length, *texts = self._one(_PLACE, number)
                record = self._parsed.get((path, start, length))
                if record is not None and _what(record) == tuple(texts):
                    found[number] = record
                else:
                    wanted[path].append((number, start, length, tuple(texts)))
        for path, places in wanted.items():
            data = read_records_file(self._results / path)
            for number, start, length, what in places:
                try:
                    record = found[number] = read_record(data[start : start + length])
                except ValueError as error:
                    raise _was_changed(self._results / path) from error
                if _what(record) != what:
                    raise _was_changed(self._results / path)
        return tuple(found[number] for number in numbers)

    def newest(self, commit_order: Sequence[str] = ()) -> tuple[RunRecord, ...]:
        """Return the newest record of each case in each cell, of every version of its workload.

        Args:
            commit_order: As for ``store.latest_per_case``.
        """
        position = {commit: i for i, commit in enumerate(commit_order)}
        best: dict[int, tuple[int, bool, str, str, int]] = {}
        with self._reading():
            for number, case, commit, at in self._db.execute(
                'SELECT id, cases, "commit", recorded_at FROM run WHERE latest'
            ):
                at_commit, known = position.get(commit, -1), best.get(case)
                if known is None or at_commit >= known[0]:
                    rank = (at_commit, not is_in_future(at), at, commit, number)
                    if known is None or rank > known:
                        best[case] = rank
        records = self._read([number for *_, number in best.values()])
        return tuple(sorted(records, key=key_of))

    @property
    def spreads(self) -> Spreads:
        """What runs of the same code differ by; what was learnt is kept until records change."""
        return Spreads(self._repeated, _Known(self._db, self._reading))

    def _repeated(self) -> tuple[Entry, ...]:
        """Return the entries of code that was measured more than once in a case."""
        with collector_paused(), self._reading():
            return self._entries(_REPEATED)

    def detect(self, series: Sequence[Searched]) -> list[list[int]]:
        """Return ``changepoints.detect_all`` of many series; the answers are kept."""
        digests = [_digest_of(*one) for one in series]
        known: dict[str, list[int]] = {}
        with self._reading():
            for digest in set(digests):
                for (places,) in self._db.execute(
                    "SELECT places FROM steps WHERE digest = ?", (digest,)
                ):
                    known[digest] = json.loads(places)
        wanted = {d: one for d, one in zip(digests, series, strict=True) if d not in known}
        if wanted:
            # Imported here: NumPy takes a tenth of a second, and most commands find no steps.
            from ivhl.tracker.changepoints import detect_all  # noqa: PLC0415

            found = dict(zip(wanted, detect_all([*wanted.values()]), strict=True))
            known |= found
            rows = [(digest, json.dumps(places)) for digest, places in found.items()]
            with suppress(sqlite3.Error), self._writing():  # not kept, where another one writes
                self._db.executemany("INSERT OR IGNORE INTO steps VALUES (?, ?)", rows)
        return [known[digest] for digest in digests]


class _Transaction:
    """Writes all or nothing; waits for another process that writes."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._db.execute("COMMIT")
        finally:
            if self._db.in_transaction:  # a reader did not let it be written in time
                self._db.execute("ROLLBACK")


class _Ids:
    """The numbers of what many records share."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._known: dict[str, dict[tuple[object, ...], int]] = {}
        for table in ("cases", "made", "held", "subject"):
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


class _Known(MutableMapping[tuple["Metric", bool], "Learnt"]):
    """What was learnt from the runs, kept in the index."""

    def __init__(
        self, db: sqlite3.Connection, reading: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._db = db
        self._reading = reading
        self._here: dict[tuple[Metric, bool], Learnt] = {}

    def __getitem__(self, key: tuple[Metric, bool]) -> Learnt:
        if key not in self._here:
            with self._reading():
                row = self._db.execute(
                    "SELECT json FROM learnt WHERE metric = ? AND calibrated = ?", key
                ).fetchone()
            if row is None:
                raise KeyError(key)
            kinds, cases = json.loads(row[0])
            self._here[key] = Learnt(
                {
                    (machine, CaseKind(*kind)): Spread(
                        tau, Scores(*scores), Scores(*own_scores), *rest
                    )
                    for machine, kind, tau, scores, own_scores, *rest in kinds
                },
                {Key(*case): Own(*own) for case, own in cases},
            )
        return self._here[key]

    def __setitem__(self, key: tuple[Metric, bool], learnt: Learnt) -> None:
        self._here[key] = learnt
        kinds = [
            (machine, kind, *astuple(found)) for (machine, kind), found in learnt.kinds.items()
        ]
        text = json.dumps((kinds, [*learnt.cases.items()]))
        with suppress(sqlite3.Error):  # not kept, where another process is writing
            self._db.execute("INSERT OR REPLACE INTO learnt VALUES (?, ?, ?)", (*key, text))

    def __delitem__(self, key: tuple[Metric, bool]) -> None:
        del self._here[key]

    def __iter__(self) -> Iterator[tuple[Metric, bool]]:
        return iter(self._here)

    def __len__(self) -> int:
        return len(self._here)


@lru_cache(maxsize=1024)
def _json_of(part: Made | HeldValues | Shown) -> str:
    """Return JSON of what many records share."""
    return json.dumps(part)


def _was_changed(path: Path) -> ResultsError:
    return ResultsError(f"{path} was changed while it was read", hint="run the same command again")


def _what(record: RunRecord) -> tuple[str, ...]:
    """Return what tells a record from others, as ``_PLACE`` has it."""
    case = record.workload, record.size, record.variant
    return record.machine.name, record.commit, record.cell.id, *case, record.recorded_at


def _digest_of(values: Sequence[float], intervals: Sequence[tuple[float, float]]) -> str:
    numbers = array("d", chain(values, chain.from_iterable(intervals)))
    return sha256(numbers.tobytes()).hexdigest()[:32]


def _made(text: str) -> Made:
    values: list[Any] = json.loads(text)
    *how, packages, wheels, flags, build = values
    return Made._make((*how, tuple(packages), tuple(map(tuple, wheels)), tuple(flags), build))


def _held(text: str) -> HeldValues:
    values: list[Any] = json.loads(text)
    return HeldValues._make((*values[:-1], tuple(map(tuple, values[-1]))))


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
    entry, ran = entry_of(record), ran_of(record)
    machine, device, _, *what = entry.case
    case = ids.of("cases", (machine, device, *what, entry.python, entry.torch, entry.dtype))
    values = (
        *(number for m in METRICS for number in entry.values.get(m, (None, None))),
        *(entry.calibration or (None, None, None)),
    )
    columns = (
        *place, case, entry.commit, entry.recorded_at,
        ids.of("subject", (entry.sources, entry.benchmark)),
        ids.of("made", (_json_of(entry.made),)),
        entry.failure_class, entry.exception, entry.compiled_s, entry.facts, entry.errors,
        *values, _json_of(entry.shown), point_of(entry),
        ran.duration_s, ran.load, json.dumps(ran.phase_s), ids.of("held", (_json_of(ran.held),)),
    )  # fmt: skip
    return _Row(case, entry.commit, columns)
