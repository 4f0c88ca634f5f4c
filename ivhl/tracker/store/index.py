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
import stat
from collections import defaultdict
from contextlib import contextmanager, suppress
from functools import cached_property
from hashlib import sha256
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import finalize

from ivhl.errors import ResultsError
from ivhl.records.age import is_in_future
from ivhl.records.identity import CaseInCell
from ivhl.records.lines import read_plain
from ivhl.records.reader import read_record
from ivhl.records.record import Interval, RunRecord
from ivhl.tracker.store.course import point_of
from ivhl.tracker.store.entries import Entry, Made, Recorded, RowFacts, Shown
from ivhl.tracker.store.indexing import VALUES, WAIT_S, Current, Update, code_version, transaction
from ivhl.tracker.store.metrics import METRICS, Measured, Speed
from ivhl.tracker.store.records import Problem
from ivhl.tracker.store.spread import Spreads
from ivhl.tracker.wording import DynamoCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence


# The garbage collector closes the database in whatever thread it runs.
_OPTIONS: Final[Any] = {"timeout": WAIT_S, "isolation_level": None, "check_same_thread": False}
_AGAIN: Final = "run the same command again: the index is made from the records"
_SELECT: Final = (
    'SELECT id, cases, "commit", recorded_at, subject, made, failure_class, exception, '  # noqa: S608
    f"compiled_s, facts, errors, shown, {', '.join(VALUES)} FROM run WHERE "
)
_REPEATED: Final = (
    "(cases, subject) IN "
    "(SELECT cases, subject FROM run GROUP BY cases, subject HAVING count(*) > 1)"
)
_OF_NUMBERS: Final = "id IN (SELECT value FROM json_each(?))"
_ROW_FACTS: Final = "SELECT id, file, facts_of_row FROM run WHERE "
_FIRST_VALUE: Final = 12  # of the selected columns
# Where a record is, and what it must be (``_what``).
_PLACE: Final = (
    'SELECT path, start, run.length, machine, "commit", cell, workload, cases.size, variant, '
    "recorded_at FROM run JOIN file ON file.id = file JOIN cases ON cases.id = cases "
    "WHERE run.id = ?"
)


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
        _refuse_of_others(place)
        try:
            return _up_to_date(results, str(place))
        except sqlite3.Error as error:
            if not _is_broken(error):
                raise
            place.unlink(missing_ok=True)
            return _up_to_date(results, str(place))
    return _up_to_date(results, ":memory:")


def _refuse_of_others(place: Path) -> None:
    """Make the folder of an index, and delete an index that another user owns.

    Raises:
        OSError: If the folder belongs to another user, who could write what this one reads.
    """
    folder = place.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user")
    folder.chmod(0o700)
    with suppress(FileNotFoundError):
        found = place.lstat()
        if found.st_uid != os.getuid() or not stat.S_ISREG(found.st_mode):
            place.unlink()


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
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "ivhl" / "index" / f"{name}.sqlite"


def _is_broken(error: sqlite3.Error | json.JSONDecodeError) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return code is None or code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


@contextmanager
def _snapshot(db: sqlite3.Connection) -> Iterator[None]:
    """Let all reads see one state, while others may write."""
    try:
        db.execute("BEGIN")
        yield
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _check_size(db: sqlite3.Connection, place: Path) -> None:
    """Refuse a file whose last page was cut off: SQLite reads zeros in the place of its end.

    Raises:
        sqlite3.DatabaseError: If it was.
    """
    with _snapshot(db):
        (page,) = db.execute("PRAGMA page_size").fetchone()
        db.execute("SELECT count(*) FROM sqlite_master")  # nobody writes until the end
        if place.stat().st_size % page:
            raise sqlite3.DatabaseError("its last page was cut off")


class Index:
    """The entries of a folder of results.

    Args:
        results: Folder with ``<machine>/records/*.jsonl``; a missing folder has no records.
        database: Path of the database, or ``:memory:``.
    """

    def __init__(self, results: Path, database: str) -> None:
        self._results = results
        self._current = Current("", "", (), {})
        self._db = sqlite3.connect(database, **_OPTIONS)
        self._close = finalize(self, self._db.close)
        self.place = None if database == ":memory:" else Path(database)
        # The records of ``newest`` by id, and in which file each is.
        self._read_already: dict[int, RunRecord] = {}
        self._file_of: dict[int, int] = {}

    def close(self) -> None:
        """Close the database; so does the end of the index itself."""
        self._close()

    def update(self) -> None:
        """Bring the index up to date with the files of records.

        Raises:
            sqlite3.Error: If the index is broken or cannot be written.
        """
        if self.place is not None:
            _check_size(self._db, self.place)
        with collector_paused():
            self._current = Update(self._db, self._results).run()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Read one state of the index that was brought up to date, while others may write.

        Raises:
            ResultsError: If it is broken, or another ivhl has made it again: numbers of records
                would then be those of other records.
        """
        try:
            with _snapshot(self._db):
                (token,) = self._db.execute("SELECT token FROM about").fetchone()
                if token != self.token:
                    raise ResultsError(f"the index {self.place} was made again", hint=_AGAIN)
                yield
        except (sqlite3.DatabaseError, json.JSONDecodeError) as error:
            if self.place is not None and _is_broken(error):
                with suppress(OSError):
                    self.place.unlink()
            text = f"the index {self.place} cannot be read: {error}"
            raise ResultsError(text, hint=_AGAIN) from error

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The files and lines that could not be read."""
        with self._reading():
            rows = self._db.execute(
                "SELECT path, line, rule FROM problem JOIN file ON file.id = file "
                "ORDER BY path, line"
            ).fetchall()
        found = (Problem(self._results / path, line, rule) for path, line, rule in rows)
        return (*self._current.unreadable, *found)

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """The latest entry of each key."""
        with collector_paused(), self._reading():
            return self._entries("latest")

    def _entries(self, condition: str, *parameters: str) -> tuple[Entry, ...]:
        """Return the entries of the runs for which a condition in SQL holds.

        In an order that hangs on the records alone, and not on when each was found: views keep it
        where nothing else decides.
        """
        cases = {}
        for number, machine, device, _, existing, *rest in self._db.execute("SELECT * FROM cases"):
            *what, python, torch, dtype = rest
            case = CaseInCell(machine, device, python, torch, bool(existing), *what)
            cases[number] = (case, python, torch, dtype)
        texts = dict(self._db.execute("SELECT * FROM made").fetchall())
        made: dict[int, Made] = {}
        subjects = {number: (s, b) for number, s, b in self._db.execute("SELECT * FROM subject")}
        looks: dict[str, Shown] = {}
        # What a NamedTuple's own ``__new__`` calls: half a million of those take half a second.
        new = tuple.__new__
        measured = [(metric, _FIRST_VALUE + 2 * i) for i, metric in enumerate(METRICS)]
        found = []
        place = {number: i for i, number in enumerate(sorted(cases, key=cases.__getitem__))}
        rows = self._db.execute(_SELECT + condition, parameters).fetchall()
        rows.sort(key=itemgetter(2, 3))  # commit, time
        rows.sort(key=lambda row: place[row[1]])
        for row in rows:
            number, case, commit, at, subject, how = row[:6]
            failure_class, exception, compiled_s, facts, errors, look = row[6:_FIRST_VALUE]
            key, python, torch, dtype = cases[case]
            if how not in made:
                made[how] = _made(texts[how])
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
        return self._current.token

    @cached_property
    def _listed(self) -> dict[int, tuple[str, float]]:
        """The point and the duration of each of the latest records: one pass over wide rows."""
        with self._reading():
            rows = self._db.execute(
                "SELECT id, point, duration_s FROM run WHERE latest"
            ).fetchall()
        return {number: (point, seconds) for number, point, seconds in rows}

    def points(self, entries: Iterable[Entry]) -> list[str]:
        """Return the points of latest entries in a course (``course.point_of``)."""
        known = self._listed
        # Another process may have added a later run of the case since.
        return [known[e.id][0] if e.id in known else point_of(e) for e in entries]

    def durations(self) -> dict[int, float]:
        """Return how long each of the latest records took, by ``Entry.id``."""
        return {number: seconds for number, (_, seconds) in self._listed.items()}

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
                record = self._current.parsed.get((path, start, length))
                if record is not None and _what(record) == tuple(texts):
                    found[number] = record
                else:
                    wanted[path].append((number, start, length, tuple(texts)))
        for path, places in wanted.items():
            data = read_plain(self._results / path)
            for number, start, length, what in places:
                try:
                    record = found[number] = read_record(data[start : start + length])
                except ValueError as error:
                    raise _was_changed(self._results / path) from error
                if _what(record) != what:
                    raise _was_changed(self._results / path)
        return tuple(found[number] for number in numbers)

    def every(self) -> tuple[Recorded, ...]:
        """Return the latest record of each key, as tables show it."""
        return self._recorded([entry.id for entry in self.entries])

    def newest(self, commit_order: Sequence[str] = ()) -> tuple[Recorded, ...]:
        """Return the newest record of each case in each cell, of every version of its workload.

        Args:
            commit_order: As for ``store.latest_of_cases``.
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
        return self._recorded([number for *_, number in best.values()])

    def _recorded(self, numbers: Sequence[int]) -> tuple[Recorded, ...]:
        """Return records as tables show them, by their keys."""
        wanted = json.dumps(numbers)
        with collector_paused(), self._reading():
            entries = self._entries(_OF_NUMBERS, wanted)
            rows = self._db.execute(_ROW_FACTS + _OF_NUMBERS, (wanted,)).fetchall()
            texts = json.loads(f"[{','.join(text for *_, text in rows)}]")
        self._file_of |= {number: file for number, file, _ in rows}
        facts = {row[0]: _row_facts(values) for row, values in zip(rows, texts, strict=True)}
        found = (Recorded(entry, facts[entry.id], self._record) for entry in entries)
        return tuple(sorted(found, key=lambda one: one.entry.key))

    def _record(self, entry: Entry) -> RunRecord:
        """Return the record of an entry of ``newest``; the first of a file reads the others, too."""
        found = self._read_already.get(entry.id)
        if found is None:
            file = self._file_of[entry.id]
            numbers = [number for number, its in self._file_of.items() if its == file]
            self._read_already |= zip(numbers, self._read(numbers), strict=True)
            found = self._read_already[entry.id]
        return found

    @cached_property
    def spreads(self) -> Spreads:
        """What runs of the same code differ by; what was learnt is kept until records change."""
        return Spreads(self._repeated, self.kept)

    def _repeated(self) -> tuple[Entry, ...]:
        """Return the entries of code that was measured more than once in a case."""
        with collector_paused(), self._reading():
            return self._entries(_REPEATED)

    def kept(self, question: str, make: Callable[[], Any]) -> Any:  # noqa: ANN401  (JSON)
        """Return the answer that is kept for a question; else make it, JSON, and keep it."""
        found = self.answer(question)
        if found is None:
            found = make()
            self.keep({question: found})
        return found

    def answer(self, question: str, *, lasts: bool = False) -> Any:  # noqa: ANN401  (JSON)
        """Return the answer that is kept for a question; ``None`` without one (``keep``)."""
        with self._reading():
            row = self._db.execute(
                "SELECT text FROM answer WHERE question = ?", (self._asked(question, lasts=lasts),)
            ).fetchone()
            return None if row is None else json.loads(row[0])

    def keep(self, answers: Mapping[str, object], *, lasts: bool = False) -> None:
        """Keep answers for this version of ivhl, until a record changes.

        Args:
            answers: Question to what is JSON. Whatever else decides the answer must be in the
                question.
            lasts: Whether they do not depend on records beyond what is in the question.
        """
        rows = [
            (self._asked(q, lasts=lasts), lasts, json.dumps(one)) for q, one in answers.items()
        ]
        # Not kept where another process writes.
        with suppress(sqlite3.Error), transaction(self._db):
            self._db.executemany("INSERT OR REPLACE INTO answer VALUES (?, ?, ?)", rows)

    def _asked(self, question: str, *, lasts: bool) -> str:
        """Return the question with the code and the records that the answer depends on."""
        parts = code_version(), "" if lasts else self._current.state, question
        return sha256("\0".join(parts).encode(errors="replace")).hexdigest()


def _row_facts(values: list[Any]) -> RowFacts:
    message, speedup, aa, quick, command, engine, counts, eager_s = values
    return RowFacts(
        message, _interval(speedup), _interval(aa), quick, command, engine,
        counts and DynamoCounts(*counts), eager_s,
    )  # fmt: skip


def _interval(values: list[Any] | None) -> Interval | None:
    if values is None:
        return None
    value, low, high, confidence, n = values
    return Interval(value=value, low=low, high=high, confidence=confidence, n=n)


def _was_changed(path: Path) -> ResultsError:
    return ResultsError(f"{path} was changed while it was read", hint="run the same command again")


def _what(record: RunRecord) -> tuple[str, ...]:
    """Return what tells a record from others, as ``_PLACE`` has it."""
    case = record.workload, record.size, record.variant
    return record.machine.name, record.commit, record.cell.id, *case, record.recorded_at


def _made(text: str) -> Made:
    values: list[Any] = json.loads(text)
    *how, packages, wheels, flags, build = values
    return Made._make((*how, tuple(packages), tuple(map(tuple, wheels)), tuple(flags), build))
