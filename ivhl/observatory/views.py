"""What the pages of the observatory show: the table, a library, a signature, a release."""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter, defaultdict
from functools import cached_property
from itertools import pairwise, takewhile
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from packaging.version import Version

from ivhl.errors import IvhlError
from ivhl.observatory.record import Ask, Key, Observed, every_observed
from ivhl.observatory.rows import AskedCase, Library, read_rows
from ivhl.observatory.signatures import (
    CAUSE_KINDS,
    Signature,
    fault_of,
    is_undecided,
    signatures_of,
)
from ivhl.records.age import rank_of
from ivhl.tracker.store.records import grouped_by
from ivhl.tracker.support.compat import is_prerelease, python_key, release_key
from ivhl.tracker.support.spans import spans, spans_sentence
from ivhl.tracker.views.front import by_cell
from ivhl.tracker.views.project import LIBRARIES
from ivhl.tracker.views.source import Source, environment_page, slug
from ivhl.tracker.wording import counted, short_message, shortened, some, times

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path


SCHEMA: Final = "ivhl.observatory/1"


class CellVerdict(NamedTuple):
    """What a case, or all cases of a library, are in a cell.

    Attributes:
        key: One of ``VERDICTS``.
        text: As the table has it, e.g. ``1.42x``, ``3 breaks``, ``wrong step``.
    """

    key: str
    text: str


# Word and meaning of a verdict by its key, the worst first: what a cell shows where cases differ.
VERDICTS: Final = {
    "wrong": ("wrong", "compiled code ran, and an output or a gradient exceeds the error budget"),
    "failed": ("failed", "compiling, or a compiled call, raised, crashed or did not end"),
    "unsupported": ("unsupported", "PyTorch refused to compile"),
    "undecided": ("undecided", "failed before compiled code ran, or ran out of memory or time"),
    "breaks": (
        "graph breaks",
        "right; Dynamo ended this number of graphs, or gave up functions, to run Python",
    ),
    "slow": ("slower", "right, but a compiled call took at least 1.1x the time of an eager call"),
    "works": ("works", "compiled and right; the number is eager's time over the compiled time"),
    "unavailable": ("not installable", "the library could not be installed"),
    "pinned": ("pinned out", "a requirement excludes this PyTorch or this Python"),
    "nowheel": ("no wheel", "a package has no wheel that this Python can use"),
    "not_run": ("not run", "no record"),
}
NOT_RUN: Final = CellVerdict("not_run", "·")
_ORDER: Final = {key: number for number, key in enumerate(VERDICTS)}
_KINDS: Final = {"pinned out": "pinned", "no wheel": "nowheel", "": "unavailable"}
_BAD: Final = frozenset(("wrong", "failed", "unsupported"))
_RIGHT: Final = frozenset(("breaks", "slow", "works"))
_ABSENT: Final = frozenset(("unavailable", "pinned", "nowheel"))
# The words, the worst first; of what compiles and is right, and of what is known not to be.
WORDS: Final = tuple(word for word, _ in VERDICTS.values())
RIGHT_WORDS: Final = frozenset(VERDICTS[key][0] for key in _RIGHT)
BAD_WORDS: Final = frozenset(VERDICTS[key][0] for key in _BAD | _ABSENT)
# What is the same where a later record corrects a verdict.
_SAME: Final = ("row", "lock", "overlay", "version")
# A time of a few calls says no less.
_SLOWER: Final = 1.1
# Name of a lock in ``observatory/locks``.
_LOCK: Final = re.compile("[0-9a-f]{16}")
_LARGEST: Final = 1 << 20  # bytes of one
_MOST_CALLS: Final = 1e12  # after which compiling pays
_MOST_PROBLEMS: Final = 1000
# Fields of a record that are no text and no number, or only for programs that run it.
_NOT_FLAT: Final = {"schema_", "row", "failure", "graph_breaks", "second"}


def key_of(record: Observed) -> str:
    """Return the key of a record's verdict in ``VERDICTS``."""
    if record.status == "unavailable":
        return _KINDS[record.unavailable]
    failure = record.failure
    if failure is not None and is_undecided(fault_of(failure), failure.phase):
        return "undecided"
    if record.status in _BAD:
        return record.status
    if breaks_of(record):
        return "breaks"
    speedup = speedup_of(record)
    return "slow" if speedup is not None and speedup * _SLOWER <= 1 else "works"


def breaks_of(record: Observed) -> int:
    """Return the number of graph breaks."""
    return sum(one.count for one in record.graph_breaks)


def speedup_of(record: Observed) -> float | None:
    """Return eager's time over the compiled time; ``None`` if there is none."""
    if not record.eager_s or not record.compiled_s:
        return None
    return record.eager_s / record.compiled_s


def verdict_of(records: Sequence[Observed], asked: int = 0) -> CellVerdict:
    """Return the worst verdict of cases in one cell; of some, which or how many have it.

    Args:
        records: The records of the cell.
        asked: How many there would be if every case had run.
    """
    if not records:
        return NOT_RUN
    keys = [key_of(record) for record in records]
    key = min(keys, key=_ORDER.__getitem__)
    mine = [record for record, one in zip(records, keys, strict=True) if one == key]
    word = VERDICTS[key][0]
    speedups = [one for one in map(speedup_of, mine) if one is not None]
    part = f" ({len(records)} of {asked})" if len(records) < asked and key in _RIGHT else ""
    if key == "breaks":
        most = max(map(breaks_of, mine))
        return CellVerdict(key, counted(most, "break") + part)
    if key in ("works", "slow") and speedups:
        of_all = times(geometric_mean(speedups) if key == "works" else min(speedups))
        return CellVerdict(key, (of_all if key == "works" else f"{word} {of_all}") + part)
    if len(mine) < len(records):
        asks = {record.ask for record in mine}
        whole = sum(record.ask in asks for record in records) == len(mine)
        part = f"{len(mine)} of {len(records)}"
        return CellVerdict(
            key, f"{word} {min(asks)}" if len(asks) == 1 and whole else f"{word} {part}"
        )
    return CellVerdict(key, word + part)


class TableCell(NamedTuple):
    """A cell of a table: its verdict, the address of its reasons, and its signatures."""

    verdict: CellVerdict
    href: str = ""
    signatures: str = ""


class LibraryLine(NamedTuple):
    """A library in the table.

    Attributes:
        since: Its newest verdict, and the release since which each one tried has that; empty if one
            release was tried.
    """

    name: str
    href: str
    note: str
    since: str
    cells: tuple[TableCell, ...]


class TableView(NamedTuple):
    """The table of a Python.

    Attributes:
        pythons: Address and Python of each table.
        releases: Release and address, the newest first.
        own: The line of the project's own suite; ``None`` if it was not run on this Python.
        forecasts: Address and name of each pre-release whose release was not tried yet.
        signatures: Number and text of each signature in the table.
        tallies: Key, word, meaning and number of cells of each verdict, the worst first.
        totals: How many libraries have which verdict with each release, as text.
        observed: First and last day of the records.
    """

    python: str
    pythons: tuple[tuple[str, str], ...]
    releases: tuple[tuple[str, str], ...]
    forecasts: tuple[tuple[str, str], ...]
    lines: tuple[LibraryLine, ...]
    own: LibraryLine | None
    signatures: tuple[tuple[str, str], ...]
    tallies: tuple[tuple[str, str, str, int], ...]
    totals: tuple[str, ...]
    observed: str


class CaseOnPage(NamedTuple):
    """A case in a cell; ``pays`` is the number of calls after which compiling pays, if it does."""

    record: Observed
    verdict: CellVerdict
    breaks: int
    pays: int | None


class CellView(NamedTuple):
    """All cases of a library in a cell.

    Attributes:
        anchor: Its id in the page.
        newest: The newest of its records: its locks are those of all.
        lock: Whether the site has the lock of what the library adds; ``environment``: of the cell.
        command: Checks the verdict again.
    """

    anchor: str
    verdict: CellVerdict
    newest: Observed
    lock: bool
    environment: str
    command: str
    cases: tuple[CaseOnPage, ...]


class Grid(NamedTuple):
    """The cases of a library on a Python."""

    python: str
    releases: tuple[str, ...]
    lines: tuple[tuple[str, tuple[TableCell, ...]], ...]


class LibraryView(NamedTuple):
    """A library.

    Attributes:
        newest: Its verdict in the newest cell, as text.
        spans: Python, and what the library is over its releases.
        causes: Signature of what does not work, and where.
        badge: Address of its badge, without suffix.
        tries: Name of each case, and the command that tries it outside of the project.
        corrections: Verdicts that a later record changed, with nothing else changed.
        disagreements: Where machines have different verdicts.
    """

    href: str
    name: str
    rank: str
    requirements: tuple[str, ...]
    newest: str
    spans: tuple[tuple[str, str], ...]
    grids: tuple[Grid, ...]
    causes: tuple[tuple[SignatureView, str], ...]
    cells: tuple[CellView, ...]
    badge: str
    tries: tuple[tuple[str, str], ...]
    corrections: tuple[str, ...]
    disagreements: tuple[str, ...]


class SignatureView(NamedTuple):
    """A cause across libraries and releases.

    Attributes:
        kind: Key of the verdict that it explains, and ``word`` its word.
        title: Its message in a line.
        libraries: Library, address, and where; the most downloaded first.
        reportable: Whether PyTorch is at fault, and neither a report nor a page of its own is known.
    """

    href: str
    kind: str
    word: str
    title: str
    signature: Signature
    libraries: tuple[tuple[str, str, str], ...]
    reportable: bool


class Moved(NamedTuple):
    """Cases of a library whose verdict differs from that with the release before.

    Attributes:
        rank: As ``rank_text`` has it.
        cause: Title and address of the signature that explains it; both empty without one.
    """

    library: str
    href: str
    text: str
    where: str
    rank: str
    cause: tuple[str, str]


class Score(NamedTuple):
    """What became of a forecast, over the cases that have a verdict on both sides.

    Attributes:
        torch: The pre-release, and ``href`` its page.
        day: The day of the forecast.
        cases: Number of the cases; ``single``: of those with a verdict on one side only.
        counts: Number of cases under each title.
        changes: Title, with the cases: what came true, false alarms, and what was missed.
    """

    torch: str
    href: str
    day: str
    cases: int
    single: int
    counts: Mapping[str, int]
    changes: Mapping[str, Sequence[Moved]]


class ReleaseView(NamedTuple):
    """A release, each case beside the newest older release in which it was tried.

    The page of a pre-release is a forecast: what was known before its release was tried.

    Attributes:
        before: The release before it, or empty; ``after`` is the next one, of a forecast its own.
        tallies: Python, and how many libraries have which verdict on it.
        beside: Number of cases that an older release has, too.
        changes: Title of each kind of change, with the cases.
        forecast: The day of the newest record, if this is a pre-release; else empty.
        untried: Libraries without a record; ``tried`` is the number of the others.
        scores: What became of its forecast, or of those of its pre-releases, the newest first.
    """

    href: str
    torch: str
    before: str
    after: str
    tallies: tuple[tuple[str, str], ...]
    beside: int
    changes: Mapping[str, Sequence[Moved]]
    forecast: str = ""
    untried: tuple[str, ...] = ()
    tried: int = 0
    scores: tuple[Score, ...] = ()


def library_page(name: str) -> str:
    """Return the address of the page of a library."""
    return f"library/{slug(name)}.html"


class Libraries:
    """Libraries, and what is known of them.

    Args:
        rows: The table of libraries.
        records: All records, of any age; those of other cases are left out.
        locks: What libraries add to the locks of cells, by name.
    """

    def __init__(
        self,
        rows: Iterable[Library],
        records: Iterable[Observed],
        locks: Mapping[str, bytes] | None = None,
    ) -> None:
        self.locks = locks or {}
        self.rows = tuple(rows)
        asked = {(row.name, one.case, one.ask) for row in self.rows for one in row.questions}
        history: dict[str, dict[Key, list[Observed]]] = {row.name: {} for row in self.rows}
        for record in sorted(records, key=lambda one: rank_of(one.at)):
            if (record.library, record.case, record.ask) in asked:
                history[record.library].setdefault(record.key, []).append(record)
        self.history: Mapping[str, Mapping[Key, Sequence[Observed]]] = history

    @cached_property
    def by_case(self) -> Mapping[Key, Observed]:
        """The newest record of any machine, by its key without the machine."""
        found: dict[Key, Observed] = {}
        newest = (group[-1] for groups in self.history.values() for group in groups.values())
        for record in sorted(newest, key=lambda one: rank_of(one.at)):
            found[record.key._replace(machine="")] = record
        return found

    @property
    def newest(self) -> Collection[Observed]:
        """The record that counts of each case in each cell."""
        return self.by_case.values()

    @cached_property
    def by_cell(self) -> Mapping[tuple[str, str, str], tuple[Observed, ...]]:
        """These records by library, Python and release, in the order of the cases."""
        order = {
            (row.name, one.case, one.ask): number
            for row in self.rows
            for number, one in enumerate(row.questions)
        }
        ordered = sorted(self.newest, key=lambda o: order[o.library, o.case, o.ask])
        found = grouped_by(ordered, lambda one: (one.library, one.python, one.torch))
        return {cell: tuple(group) for cell, group in found.items()}

    def verdicts(self, python: str, torch: str) -> list[CellVerdict]:
        """Return the verdict of each library in a cell."""
        return [verdict_of(self.by_cell.get((row.name, python, torch), ())) for row in self.rows]

    @cached_property
    def releases(self) -> Mapping[str, tuple[str, ...]]:
        """The releases that were tried on each Python, the newest first; no pre-releases."""
        found = {
            p: tuple(t for t in some if not is_prerelease(t)) for p, some in self.tried.items()
        }
        return {python: releases for python, releases in found.items() if releases}

    @cached_property
    def prereleases(self) -> Mapping[str, str]:
        """Each pre-release, the newest first, and its release; empty if that was not tried yet."""
        every = sorted({t for some in self.tried.values() for t in some}, key=release_key)
        # Of 2.16.0 and 2.16.0.post1, the first.
        finals = {Version(t).base_version: t for t in every[::-1] if not is_prerelease(t)}
        early = filter(is_prerelease, every[::-1])
        return {torch: finals.get(Version(torch).base_version, "") for torch in early}

    def before(self, release: str) -> Libraries:
        """Return what was known before the first record of a release; all if it has none."""
        every = [r for groups in self.history.values() for some in groups.values() for r in some]
        first = min((record.at for record in every if record.torch == release), default="")
        return Libraries(self.rows, (r for r in every if r.at < first)) if first else self

    @cached_property
    def tried(self) -> Mapping[str, tuple[str, ...]]:
        """The releases and pre-releases that were tried on each Python, the newest first."""
        found: dict[str, set[str]] = defaultdict(set)
        for _, python, torch in self.by_cell:
            found[python].add(torch)
        return {
            python: tuple(sorted(found[python], key=release_key, reverse=True))
            for python in sorted(found, key=python_key)
        }

    @cached_property
    def main(self) -> str:
        """The Python that is shown first: the one with most releases; empty without records."""
        return max(self.releases, key=lambda p: (len(self.releases[p]), python_key(p)), default="")

    @property
    def pythons(self) -> tuple[tuple[str, str], ...]:
        """Address and Python of each table."""
        return tuple((f"{python}.html", python) for python in self.releases)

    @cached_property
    def signatures(self) -> tuple[Signature, ...]:
        """The causes of what does not work, the worst first."""
        return signatures_of(self.newest)

    @cached_property
    def signatures_of(self) -> Mapping[Key, tuple[Signature, ...]]:
        """The signatures of each record, by its key."""
        found: dict[Key, list[Signature]] = defaultdict(list)
        for signature in self.signatures:
            for record in signature.records:
                found[record.key].append(signature)
        return {key: tuple(group) for key, group in found.items()}

    def where(self, records: Iterable[Observed]) -> str:
        """Return in which cells records are, e.g. ``3.12: 2.5.1 to 2.9.1, 2.11.0; 3.13: 2.9.1``."""
        found: dict[str, set[str]] = defaultdict(set)
        for record in records:
            found[record.python].add(record.torch)
        return "; ".join(
            f"{python}: {self._ranges(python, found[python])}"
            for python in sorted(found, key=python_key)
        )

    def _ranges(self, python: str, releases: Collection[str]) -> str:
        words = {torch: "in" if torch in releases else "" for torch in self.tried[python]}
        return ", ".join(str(one).removeprefix("in ") for one in spans(words) if one.word)


def load_libraries(root: Path) -> tuple[Libraries | None, tuple[str, ...]]:
    """Return the observatory of a project, if it has one, and what of it cannot be read."""
    if not (root / LIBRARIES).is_file():
        return None, ()
    problems: list[str] = []
    rows: list[Library] = []
    try:
        rows = read_rows(root / LIBRARIES.parent, problems.append)
    except IvhlError as error:
        problems.append(f"{error}")
    folder = root / LIBRARIES.parent
    records = list(every_observed(folder / "records", problems.append))
    paths = [path for path in sorted(folder.glob("locks/*.txt")) if _LOCK.fullmatch(path.stem)]
    files = [path for path in paths if path.is_file() and not path.is_symlink()]
    locks = {path.stem: path.read_bytes() for path in files if path.stat().st_size <= _LARGEST}
    return Libraries(rows, records, locks), tuple(problems[:_MOST_PROBLEMS])


def table_view(libraries: Libraries, source: Source, python: str) -> TableView:
    """Return the table of a Python."""
    releases = libraries.releases.get(python, ())
    here = [r for r in libraries.newest if r.python == python and r.torch in releases]
    shown = {one.name for record in here for one in libraries.signatures_of.get(record.key, ())}
    used = [one for one in libraries.signatures if one.name in shown]
    numbers = {signature.name: f"{number}" for number, signature in enumerate(used, 1)}
    lines = tuple(_line(libraries, row, python, releases, numbers) for row in libraries.rows)
    counts = Counter(cell.verdict.key for line in lines for cell in line.cells)
    days = sorted(record.at[:10] for record in here)
    return TableView(
        python=python,
        pythons=libraries.pythons,
        releases=tuple((torch, f"{torch}.html") for torch in releases),
        forecasts=tuple(
            (f"{t}.html", t) for t, final in libraries.prereleases.items() if not final
        ),
        lines=lines,
        own=_own_line(source, python, releases),
        signatures=tuple((s.name, _option(s)) for s in used),
        tallies=tuple((key, *VERDICTS[key], counts[key]) for key in VERDICTS if counts[key]),
        totals=tuple(
            _counted(line.cells[number].verdict for line in lines)
            for number, _ in enumerate(releases)
        ),
        observed=" to ".join(dict.fromkeys((days[0], days[-1]))) if days else "",
    )


def _line(
    libraries: Libraries,
    row: Library,
    python: str,
    releases: Sequence[str],
    numbers: Mapping[str, str],
) -> LibraryLine:
    href = library_page(row.name)
    cells = []
    for torch in releases:
        records = libraries.by_cell.get((row.name, python, torch), ())
        shown = {s.name for r in records for s in libraries.signatures_of.get(r.key, ())}
        named = " ".join(sorted((numbers[name] for name in shown), key=int))
        anchor = f"{href}#{anchor_of(python, torch)}" if records else ""
        cells.append(TableCell(verdict_of(records, len(row.questions)), anchor, named))
    return LibraryLine(row.name, href, rank_text(row.rank), _since(releases, cells), tuple(cells))


def rank_text(rank: float) -> str:
    """Return the rank of a library; empty if it has none."""
    return "" if math.isinf(rank) else f"{rank:,}"


def anchor_of(python: str, torch: str) -> str:
    """Return the id of a cell in the page of a library."""
    return f"{python}-{torch}"


def _since(releases: Sequence[str], cells: Sequence[TableCell]) -> str:
    """Return the newest verdict and the first release of those with it; the newest come first.

    Whether a few calls were slower is no other verdict, and an undecided cell is none.
    """
    keys = [{"slow": "works"}.get(cell.verdict.key, cell.verdict.key) for cell in cells]
    seen = zip(releases, keys, strict=True)
    tried = [(torch, key) for torch, key in seen if key not in ("not_run", "undecided")]
    if not tried:
        return ""
    same = [torch for torch, _ in takewhile(lambda one: one[1] == tried[0][1], tried)]
    word = VERDICTS[tried[0][1]][0]
    if len(same) == len(tried):  # nothing says since when
        return f"{word} in all {len(tried)} tried" if len(tried) > 1 else ""
    older = tried[len(same)][0]
    first, last = releases.index(same[-1]), releases.index(same[0])
    if releases.index(older) != first + 1:
        return f"{word} in {same[-1]}, not in {older}"
    if len(same) <= first - last:  # nothing is known of a release between
        word = f"{word} in all {len(same)} tried"
    return f"{word} since {same[-1]}"


def _own_line(source: Source, python: str, releases: Sequence[str]) -> LibraryLine | None:
    """Return the line of the project's own cases on the machine that is shown first."""
    cells = by_cell(source.by_place.get(source.page.main, ()))
    found = []
    for torch in releases:
        run = [row for row in cells.get((python, torch), ()) if row.status != "not_run"]
        keys = ("works" if row.status == "noisy" else row.status for row in run)
        key = min(keys, key=_ORDER.__getitem__, default="not_run")
        text = f"{sum(row.passes for row in run)} of {len(run)}"
        found.append(
            TableCell(CellVerdict(key, text), source.page.front) if run else TableCell(NOT_RUN)
        )
    if all(cell.verdict == NOT_RUN for cell in found):
        return None
    name = f"{source.page.project}: its own suite"
    return LibraryLine(name, source.page.front, "", _since(releases, found), tuple(found))


def _option(signature: Signature) -> str:
    libraries = counted(len(signature.libraries), "library").replace("librarys", "libraries")
    word = VERDICTS[_kind(signature)][0]
    return f"{word}, {libraries}: {short_message(signature.message, 70)}"


def _kind(signature: Signature) -> str:
    """Return the key of the verdict that a signature explains."""
    if signature.cause.kind == "graph break":
        return "breaks"
    cause = signature.cause
    return "undecided" if is_undecided(signature.fault, cause.phase) else cause.kind


def _counted(verdicts: Iterable[CellVerdict]) -> str:
    """Return e.g. ``53 of 60 work (3 slower), 4 wrong, 3 undecided``; of those that were tried."""
    counts = Counter(one.key for one in verdicts)
    right = sum(counts[key] for key in _RIGHT)
    parts = {key: f"{counts[key]} {VERDICTS[key][0]}" for key in VERDICTS if counts[key]}
    weaker = ", ".join(parts[key] for key in ("breaks", "slow") if key in parts)
    tried = counts.total() - counts["not_run"]
    work = f"{right} of {tried} work" + (f" ({weaker})" if weaker else "")
    return ", ".join([work, *(text for key, text in parts.items() if key not in _RIGHT)])


def library_view(libraries: Libraries, source: Source, row: Library) -> LibraryView:
    """Return the page of a library."""
    pages = {*libraries.locks, *(one.cell for one in source.rows)}
    tried = {
        (python, torch): records
        for python, releases in libraries.tried.items()
        for torch in releases
        if (records := libraries.by_cell.get((row.name, python, torch)))
    }
    cells = {cell: records for cell, records in tried.items() if not is_prerelease(cell[1])}
    said = _spans(libraries, cells)
    newest = next((cells[one] for one in cells if one[0] == libraries.main), ())
    word = VERDICTS[verdict_of(newest).key][0]
    cell = f" with PyTorch {newest[0].torch} on Python {newest[0].python}" if newest else ""
    return LibraryView(
        href=library_page(row.name),
        name=row.name,
        rank=rank_text(row.rank),
        requirements=row.requirements,
        newest=word + cell,
        spans=tuple(said.items()),
        grids=tuple(_grid(libraries, row, python) for python in said),
        causes=_causes(libraries, row.name),
        cells=tuple(_cell(records, pages) for records in tried.values()),
        badge=badge_page(row.name),
        tries=tuple((f"{one.case} {one.ask}", _try(row, one, newest)) for one in row.questions),
        corrections=tuple(_corrections(libraries, row.name)),
        disagreements=tuple(_disagreements(libraries, row.name)),
    )


# Colors of badges; white letters on each have a contrast of 4.5 or more.
_GREEN, _AMBER, _RED, _GREY = "#1d7a3c", "#8a5a00", "#b3261e", "#5f6368"
_COLORS: Final = {"works": _GREEN, "slow": _AMBER, "breaks": _AMBER} | dict.fromkeys(_BAD, _RED)


def badge_page(name: str) -> str:
    """Return the address of the badge of a library, without its suffix."""
    return f"badge/{slug(name)}"


def badges_of(libraries: Libraries, row: Library) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the address, without its suffix, and the label, message and color of each badge.

    The first is the newest verdict on the main Python, the others are those of all cells. A badge
    changes with a verdict, and with nothing else.
    """
    label, path = "torch.compile", badge_page(row.name)
    newest = {"label": label, "message": VERDICTS["not_run"][0], "color": _GREY}
    of_cells = {}
    for python, releases in libraries.releases.items():
        for torch in reversed(releases):
            if records := libraries.by_cell.get((row.name, python, torch)):
                key = verdict_of(records).key
                verdict, color = VERDICTS[key][0], _COLORS.get(key, _GREY)
                message = f"{verdict}, PyTorch {torch}"
                if python == libraries.main:
                    newest = {"label": label, "message": message, "color": color}
                message += f", Python {python}"
                said = {"label": label, "message": message, "color": color}
                of_cells[f"{path}/{python}-{torch}"] = said
    yield path, newest
    yield from of_cells.items()


def _spans(
    libraries: Libraries, cells: Mapping[tuple[str, str], Sequence[Observed]]
) -> dict[str, str]:
    """Return what the library is over the releases of each Python."""
    words: dict[str, dict[str, str]] = defaultdict(dict)
    for (python, torch), records in cells.items():
        words[python][torch] = VERDICTS[verdict_of(records).key][0]
    releases = libraries.releases
    return {one: spans_sentence(spans(found, releases[one])) for one, found in words.items()}


def _grid(libraries: Libraries, row: Library, python: str) -> Grid:
    releases = libraries.releases[python]
    found: dict[tuple[str, Ask], list[TableCell]] = {
        (one.case, one.ask): [] for one in row.questions
    }
    for torch in releases:
        records = libraries.by_cell.get((row.name, python, torch), ())
        known = {(record.case, record.ask): record for record in records}
        for name, line in found.items():
            record = known.get(name)
            href = f"#{anchor_of(python, torch)}"
            line.append(TableCell(verdict_of((record,)), href) if record else TableCell(NOT_RUN))
    lines = tuple((" ".join(name), tuple(line)) for name, line in found.items())
    return Grid(python, releases, lines)


def _causes(libraries: Libraries, library: str) -> tuple[tuple[SignatureView, str], ...]:
    found = []
    for signature in libraries.signatures:
        cases: dict[str, list[Observed]] = defaultdict(list)
        for record in signature.records:
            if record.library == library:
                cases[f"{record.case} {record.ask}"].append(record)
        if cases:
            where = {name: libraries.where(some) for name, some in cases.items()}
            found.append((signature_view(libraries, signature), _by_place(where)))
    return tuple(found)


def _by_place(where: Mapping[str, str]) -> str:
    """Return names with their places, those of one place together."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, place in where.items():
        found[place].append(name)
    return "; ".join(f"{', '.join(names)} on {place}" for place, names in found.items())


def _cell(records: Sequence[Observed], pages: Collection[str]) -> CellView:
    newest = max(records, key=lambda record: rank_of(record.at))
    return CellView(
        anchor_of(newest.python, newest.torch),
        verdict_of(records),
        newest,
        newest.overlay in pages,
        environment_page(newest.cell) if newest.cell in pages else "",
        check_command(newest),
        tuple(CaseOnPage(one, verdict_of((one,)), breaks_of(one), _pays(one)) for one in records),
    )


def _pays(record: Observed) -> int | None:
    """Return after how many calls the seconds of compiling are gained back, if they are."""
    gain = (record.eager_s or 0.0) - (record.compiled_s or math.inf)
    if record.compile_s is None or gain * _MOST_CALLS <= record.compile_s:
        return None
    return math.ceil(record.compile_s / gain)


def check_command(record: Observed) -> str:
    """Return the command that asks a library again in a cell."""
    words = record.library, "--torch", record.torch, "--python", record.python, "--force"
    return shlex.join(["ivhl", "observe", *words])


def _try(row: Library, question: AskedCase, records: Sequence[Observed]) -> str:
    """Return the command that tries a case outside of the project, with the newest release."""
    known = next(iter(records), None)
    version = known.version if known else None
    needs = (f"{row.name}=={version}", *row.requirements[1:]) if version else row.requirements
    target = question.text if question.folder is None else f"{LIBRARIES.parent}/{question.text}"
    words = [target, *(f"--input={text}" for text in question.target.inputs)]
    words += [f"--with={need}" for need in needs]
    words += ["--step"] if question.ask == "step" else []
    words += [f"--torch={known.torch}", f"--python={known.python}"] if known else []
    return shlex.join(["ivhl", "try", *words])


def _corrections(libraries: Libraries, library: str) -> Iterator[str]:
    for key, group in libraries.history[library].items():
        for before, after in pairwise(group):
            same = all(getattr(before, name) == getattr(after, name) for name in _SAME)
            was, now = (VERDICTS[key_of(one)][0] for one in (before, after))
            if same and was != now:
                yield (
                    f"{after.at[:10]}: {key.case} {key.ask} on Python {after.python} with PyTorch "
                    f"{after.torch} is {now}; {was} was said on {before.at[:10]}"
                )


def _disagreements(libraries: Libraries, library: str) -> Iterator[str]:
    by_place: dict[str, list[Observed]] = defaultdict(list)
    for key, group in libraries.history[library].items():
        by_place[f"{key.case} {key.ask} in {key.cell}"].append(group[-1])
    for place, records in by_place.items():
        newest = max(records, key=lambda record: record.at)
        said = {
            record.machine: VERDICTS[key_of(record)][0]
            for record in records
            if all(getattr(record, name) == getattr(newest, name) for name in _SAME)
        }
        if len(set(said.values())) > 1:
            yield f"{place}: {', '.join(f'{word} on {name}' for name, word in said.items())}"


def signature_view(libraries: Libraries, signature: Signature) -> SignatureView:
    """Return the page of a signature."""
    groups: dict[str, list[Observed]] = {row.name: [] for row in libraries.rows}
    for record in signature.records:
        groups[record.library].append(record)
    cause, kind = signature.cause, _kind(signature)
    said = f"{cause.place}: {short_message(signature.message)}"
    title = said if kind == "wrong" else cause.text  # which has # for numbers
    return SignatureView(
        f"signature/{slug(signature.name)}.html",
        kind,
        VERDICTS[kind][0],
        shortened(title, 120),
        signature,
        tuple(
            (name, library_page(name), libraries.where(some))
            for name, some in groups.items()
            if some
        ),
        reportable=signature.fault == "PyTorch"
        and not (any(one.url for one in signature.known) or signature.is_explained),
    )


def signature_views(libraries: Libraries) -> tuple[SignatureView, ...]:
    """Return all signatures: wrong results, failures, graph breaks; first the most downloaded."""
    place = {row.name: number for number, row in enumerate(libraries.rows)}
    views = [signature_view(libraries, one) for one in libraries.signatures]
    return tuple(sorted(views, key=lambda v: (_ORDER[v.kind], place[v.libraries[0][0]])))


def release_views(libraries: Libraries) -> tuple[ReleaseView, ...]:
    """Return a page for each release and pre-release, the newest first."""
    every = sorted({t for some in libraries.releases.values() for t in some}, key=release_key)
    around = zip(["", *every], every, [*every[1:], ""], strict=False)
    known = {final: libraries.before(final) for final in libraries.prereleases.values()}
    found = (_forecast(libraries, known[f], t, f) for t, f in libraries.prereleases.items())
    # None, if all records of a pre-release are later than those of its release.
    forecasts = [view for view in found if view.forecast]
    views = list(forecasts)
    for before, torch, after in around:
        view = _release(libraries, libraries, before, torch, after)
        scores = (score for one in forecasts if one.after == torch for score in one.scores)
        views.append(view._replace(scores=tuple(scores)))
    return tuple(sorted(views, key=lambda view: release_key(view.torch), reverse=True))


def _beside(libraries: Libraries, torch: str) -> dict[Key, tuple[Observed, Observed]]:
    """Return what each case of a release was in the newest older one that says something of it."""
    cases: dict[Key, list[Observed]] = defaultdict(list)
    for key, record in libraries.by_case.items():
        is_older = release_key(record.torch) < release_key(torch) and not is_prerelease(
            record.torch
        )
        if key_of(record) != "undecided" and (is_older or record.torch == torch):
            cases[key._replace(cell=record.python)].append(record)
    found = {}
    for case, records in cases.items():
        *older, newest = sorted(records, key=lambda one: release_key(one.torch))
        if older and newest.torch == torch:
            found[case] = older[-1], newest
    return found


def _release(
    libraries: Libraries, known: Libraries, before: str, torch: str, after: str
) -> ReleaseView:
    """Return the page of a release, or of a pre-release by what was ``known`` before its release."""
    beside = _beside(known, torch)
    changed = (
        (title, record, _words(old, record, before), _cause_of(libraries, known, old, record))
        for old, record in beside.values()
        if (title := _change(old, record))
    )
    moved = _moved(libraries, changed)
    return ReleaseView(
        f"{torch}.html",
        torch,
        before,
        after,
        tuple(
            (python, _counted(known.verdicts(python, torch)))
            for python, releases in known.tried.items()
            if torch in releases
        ),
        len(beside),
        {title: moved[title] for title in _CHANGES if title in moved},
    )


def _forecast(libraries: Libraries, known: Libraries, torch: str, final: str) -> ReleaseView:
    """Return the page of a pre-release by what was known before the first record of its release."""
    mine = [record for record in known.newest if record.torch == torch]
    older = {
        one
        for python, tried in known.tried.items()
        for one in known.releases.get(python, ())
        if torch in tried and release_key(one) < release_key(torch)
    }
    last = max(mine, key=lambda record: rank_of(record.at), default=None)
    names = {record.library for record in mine}
    before = max(older, key=release_key, default="")
    view = _release(libraries, known, before, torch, final)._replace(
        forecast=last.at[:10] if last else "",
        untried=tuple(row.name for row in libraries.rows if row.name not in names),
        tried=len(names),
    )
    return view._replace(scores=(_score(libraries, known, view),)) if final else view


def _score(libraries: Libraries, known: Libraries, view: ReleaseView) -> Score:
    """Return what became of a forecast, which was made of what was ``known``."""
    said, became = _beside(known, view.torch), _beside(libraries, view.after)
    both = [case for case in said if case in became]
    changed = []
    for case in both:
        (old, foretold), (before, record) = said[case], became[case]
        words = f"{_words(before, record, view.before)} (forecast: {_word_of(foretold)})"
        for title in _outcomes(_change(old, foretold), _change(before, record)):
            sides = (known, old, foretold) if title == _FALSE else (libraries, before, record)
            changed.append((title, record, words, _cause_of(libraries, *sides)))
    counts = Counter(title for title, *_ in changed)
    moved = _moved(libraries, changed)
    return Score(
        view.torch,
        view.href,
        view.forecast,
        len(both),
        len(said.keys() ^ became.keys()),
        {title: counts[title] for title in _OUTCOMES},
        {title: moved[title] for title in _OUTCOMES if title in moved},
    )


def _outcomes(said: str, became: str) -> Iterator[str]:
    """Yield the outcomes of a case; of one that got worse otherwise than forecast, two."""
    if said == became and said in _WORSE:
        yield _TRUE
        return
    if said in _WORSE:
        yield _FALSE
    if became in _WORSE:
        yield _MISSED


def _moved(
    libraries: Libraries, changed: Iterable[tuple[str, Observed, str, tuple[str, str]]]
) -> dict[str, list[Moved]]:
    """Return cases by title: those of a library with one cause and the same words in a line.

    Args:
        libraries: All.
        changed: Title, record, words and cause of each case.
    """
    found: dict[tuple[str, tuple[str, str], str, str], dict[str, list[str]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for title, record, words, cause in changed:
        found[title, cause, record.library, words][f"{record.case} {record.ask}"].append(
            record.python
        )
    ranks = {row.name: (number, rank_text(row.rank)) for number, row in enumerate(libraries.rows)}
    lines = Counter(line[:2] for line in found)

    def key(line: tuple[str, tuple[str, str], str, str]) -> tuple[object, ...]:
        cause = line[1]
        return not cause[0], -lines[line[:2]], cause, ranks[line[2]][0]

    moved: dict[str, list[Moved]] = defaultdict(list)
    for line in sorted(found, key=key):
        title, cause, library, words = line
        cases = found[line]
        where = {name: ", ".join(sorted(cases[name], key=python_key)) for name in cases}
        page, rank = library_page(library), ranks[library][1]
        moved[title].append(Moved(library, page, words, _by_place(where), rank, cause))
    return moved


def _words(old: Observed, record: Observed, before: str) -> str:
    then = "" if old.torch == before else f" in {old.torch}"
    return f"{_word_of(old)}{then} → {_word_of(record)}"


def _cause_of(
    libraries: Libraries, known: Libraries, old: Observed, record: Observed
) -> tuple[str, str]:
    """Return title and address of the worst signature that one of two ``known`` records has."""
    then, now = (known.signatures_of.get(one.key, ()) for one in (old, record))
    differ = [one for one in (*now, *then) if (one in now) != (one in then)]
    worst = min(differ, key=lambda one: CAUSE_KINDS.index(one.cause.kind), default=None)
    if worst is None:
        return "", ""
    view = signature_view(known, worst)
    has_page = known is libraries or any(one.name == worst.name for one in libraries.signatures)
    return view.title, view.href if has_page else ""


_NAMED: Final = 5  # libraries in a title


class WorseRelease(NamedTuple):
    """What became worse with a release of PyTorch, as an entry of the feed.

    Attributes:
        id: Stable.
        at: When the newest of its records was made.
        href: Address of its page.
    """

    id: str
    title: str
    at: str
    href: str
    summary: str


def worse_releases(libraries: Libraries) -> list[WorseRelease]:
    """Return the releases with which cases of libraries began to fail; forecasts are no news."""
    found = []
    for view in release_views(libraries):
        broke = view.changes.get("Broke", ())
        if not broke or view.forecast:
            continue
        names = dict.fromkeys(one.library for one in broke)
        # The first records: a later one that says the same is no news.
        firsts = (
            group[0].at
            for name in names
            for group in libraries.history[name].values()
            if group[0].torch == view.torch
        )
        found.append(
            WorseRelease(
                f"release-{view.torch}",
                f"PyTorch {view.torch}: {some(list(names), _NAMED)} broke",
                max(firsts),
                view.href,
                "; ".join(f"{one.library}: {one.text}, {one.where}" for one in broke) + ".",
            )
        )
    return found


# Titles of the kinds of change of a release, the worst first.
_CHANGES: Final = (
    "Broke",
    "Fixed",
    "More graph breaks",
    "Fewer graph breaks",
    "No longer installable",
    "Newly installable",
)
_WORSE: Final = frozenset(("Broke", "More graph breaks", "No longer installable"))
# What became of a forecast.
_OUTCOMES: Final = ("Came true", "False alarms", "Missed")
_TRUE, _FALSE, _MISSED = _OUTCOMES


def _change(before: Observed, after: Observed) -> str:
    """Return the title of the change between two releases; empty if none counts."""
    old, new = key_of(before), key_of(after)
    if (old in _ABSENT) != (new in _ABSENT):
        return "No longer installable" if new in _ABSENT else "Newly installable"
    if old in _RIGHT and new in _BAD:
        return "Broke"
    if old in _BAD and new in _RIGHT:
        return "Fixed"
    more = breaks_of(after) - breaks_of(before)
    if new in _BAD or old in _BAD or not more:
        return ""
    return "More graph breaks" if more > 0 else "Fewer graph breaks"


def _word_of(record: Observed) -> str:
    verdict = verdict_of((record,))
    return verdict.text if verdict.key == "breaks" else VERDICTS[verdict.key][0]


def rows_for_programs(libraries: Libraries) -> list[dict[str, Any]]:
    """Return every verdict on a release as a flat row; docs/schemas/observatory.json."""
    ranks = {row.name: int(row.rank) for row in libraries.rows if math.isfinite(row.rank)}
    return [
        {"rank": ranks.get(record.library), "verdict": VERDICTS[key_of(record)][0]}
        | record.model_dump(exclude=_NOT_FLAT)
        | {
            "failure_class": record.failure and record.failure.failure_class,
            "graph_breaks": breaks_of(record),
            "signatures": [one.name for one in libraries.signatures_of.get(record.key, ())],
            "page": f"{library_page(record.library)}#{anchor_of(record.python, record.torch)}",
        }
        for record in libraries.newest
        if not is_prerelease(record.torch)
    ]
