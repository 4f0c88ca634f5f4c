"""What the pages of the observatory show: the table, a library, a signature, a release."""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, takewhile
from pathlib import Path
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ivhl.errors import IvhlError
from ivhl.observatory.record import every_observed
from ivhl.observatory.rows import load_rows
from ivhl.observatory.signatures import fault_of, signatures_of
from ivhl.records.age import rank_of
from ivhl.tracker.support.compat import python_key, release_key
from ivhl.tracker.support.grid import grid_cell, matched_cases
from ivhl.tracker.support.spans import spans, spans_sentence
from ivhl.tracker.views.front import by_cell
from ivhl.tracker.views.project import LIBRARIES
from ivhl.tracker.views.source import environment_page, slug
from ivhl.tracker.wording import Status, counted, seconds, short_message, shortened, times

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from ivhl.observatory.record import Key, Observed
    from ivhl.observatory.rows import Case, Row
    from ivhl.observatory.signatures import Signature
    from ivhl.tracker.views.source import Source

SCHEMA: Final = "ivhl.observatory/1"


class Verdict(NamedTuple):
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
    "failed": ("fails", "compiling, or a compiled call, raised, crashed or did not end"),
    "unsupported": ("unsupported", "PyTorch refused to compile"),
    "undecided": (
        "undecided",
        "a failure that PyTorch did not cause: the library, its environment, or a limit of the run",
    ),
    "breaks": ("graph breaks", "right, and Dynamo ended a graph so often to let Python run"),
    "slow": ("slower", "right, and a compiled call took 1.1x and more of the time of an eager one"),
    "works": ("works", "compiled and right; the number is eager's time over the compiled time"),
    "unavailable": ("not installable", "the library could not be installed"),
    "pinned": ("pinned out", "a requirement excludes this PyTorch or this Python"),
    "nowheel": ("no wheel", "a package has no wheel for this Python"),
    "not_run": ("not run", "no record"),
}
NOT_RUN: Final = Verdict("not_run", "·")
_ORDER: Final = {key: number for number, key in enumerate(VERDICTS)}
_KINDS: Final = {"pinned out": "pinned", "no wheel": "nowheel", "": "unavailable"}
_BAD: Final = frozenset(("wrong", "failed", "unsupported"))
_RIGHT: Final = frozenset(("breaks", "slow", "works"))
_ABSENT: Final = frozenset(("unavailable", "pinned", "nowheel"))
# Of the project's own cases, whose speed is measured.
_OWN: Final[dict[Status, str]] = {
    "works": "works", "noisy": "works", "slow": "slow", "wrong": "wrong", "failed": "failed",
    "unsupported": "unsupported", "unavailable": "unavailable", "not_run": "not_run",
}  # fmt: skip
# A time of a few calls says no less.
_SLOWER: Final = 1.1
# Name of a lock in ``observatory/locks``.
_LOCK: Final = re.compile("[0-9a-f]{16}")
_MOST_CALLS: Final = 1e12  # after which compiling pays
_MOST_PROBLEMS: Final = 1000
_LONGEST_WHY: Final = 600


def key_of(record: Observed) -> str:
    """Return the key of a record's verdict in ``VERDICTS``."""
    if record.status == "unavailable":
        return _KINDS[record.unavailable]
    if record.failure is not None and fault_of(record.failure) != "PyTorch":
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


def verdict_of(records: Sequence[Observed]) -> Verdict:
    """Return the worst verdict of cases in one cell; of some, which or how many have it."""
    if not records:
        return NOT_RUN
    keys = [key_of(record) for record in records]
    key = min(keys, key=_ORDER.__getitem__)
    mine = [record for record, one in zip(records, keys, strict=True) if one == key]
    word = VERDICTS[key][0]
    speedups = [one for one in map(speedup_of, mine) if one is not None]
    if key == "breaks":
        most = max(map(breaks_of, mine))
        return Verdict(key, counted(most, "break"))
    if key in ("works", "slow") and speedups:
        of_all = times(geometric_mean(speedups) if key == "works" else min(speedups))
        return Verdict(key, of_all if key == "works" else f"{word} {of_all}")
    if len(mine) < len(records):
        asks = {record.ask for record in mine}
        whole = sum(record.ask in asks for record in records) == len(mine)
        part = f"{len(mine)} of {len(records)}"
        return Verdict(key, f"{word} {min(asks)}" if len(asks) == 1 and whole else f"{word} {part}")
    return Verdict(key, word)


class Cell(NamedTuple):
    """A cell of a table: its verdict, the address of its reasons, and its signatures."""

    verdict: Verdict
    href: str = ""
    signatures: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A library in the table.

    Attributes:
        since: Its newest verdict, and the release since which each one tried has that.
    """

    name: str
    href: str
    note: str
    since: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableView:
    """The table of a Python.

    Attributes:
        pythons: Address and Python of each table.
        releases: Release and address, the newest first.
        own: The line of the project's own suite; ``None`` if it was not run on this Python.
        signatures: Number and text of each signature in the table.
        tallies: Key, word, meaning and number of cells of each verdict, the worst first.
        newest: How many libraries have which verdict with the newest release, as text.
        observed: First and last day of the records.
    """

    python: str
    pythons: tuple[tuple[str, str], ...]
    releases: tuple[tuple[str, str], ...]
    lines: tuple[Line, ...]
    own: Line | None
    signatures: tuple[tuple[str, str], ...]
    tallies: tuple[tuple[str, str, str, int], ...]
    newest: str
    observed: str


class Observation(NamedTuple):
    """A case in a cell, as the page of its library has it."""

    name: str
    verdict: Verdict
    why: str
    facts: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CellView:
    """All cases of a library in a cell.

    Attributes:
        anchor: Its id in the page.
        facts: What holds for all cases: version, machine, day.
        lock: Name of the lock of what the library adds; empty without one.
        environment: Address of the page of the cell's own lock.
        command: Checks the verdict again.
    """

    anchor: str
    title: str
    verdict: Verdict
    facts: str
    lock: str
    environment: str
    command: str
    cases: tuple[Observation, ...]


class Grid(NamedTuple):
    """The cases of a library on a Python."""

    python: str
    releases: tuple[str, ...]
    lines: tuple[tuple[str, tuple[Cell, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryView:
    """A library.

    Attributes:
        newest: Its verdict in the newest cell, as text.
        spans: Python, and what the library is over its releases.
        causes: Signature of what does not work, and where.
        tries: Name of each case, and the command that tries it outside of the project.
        corrections: Verdicts that a later record changed, with nothing else changed.
        disagreements: Where machines have different verdicts.
    """

    href: str
    name: str
    rank: int | None
    requirement: str
    newest: str
    spans: tuple[tuple[str, str], ...]
    grids: tuple[Grid, ...]
    causes: tuple[tuple[SignatureView, str], ...]
    cells: tuple[CellView, ...]
    tries: tuple[tuple[str, str], ...]
    corrections: tuple[str, ...]
    disagreements: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureView:
    """A cause across libraries and releases.

    Attributes:
        kind: Key of its verdict, and ``word`` its word.
        title: Its message in a line.
        number: Dynamo's number of a graph break, or empty.
        libraries: Library, address, and where.
        best: Rank of its library with most downloads; ``None`` if none has a rank.
        report: Text of a report; empty if PyTorch has one, or is not at fault.
    """

    href: str
    kind: str
    word: str
    title: str
    phase: str
    number: str
    signature: Signature
    libraries: tuple[tuple[str, str, str], ...]
    best: int | None
    report: str


class Moved(NamedTuple):
    """Cases of a library whose verdict differs from that with the release before."""

    library: str
    href: str
    text: str
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseView:
    """A release beside the one before.

    Attributes:
        others: Releases and addresses of the neighbours, older and newer.
        tallies: Python, and how many libraries have which verdict on it.
        changes: Title of each kind of change, with the cases.
    """

    href: str
    torch: str
    before: str
    others: tuple[tuple[str, str], ...]
    tallies: tuple[tuple[str, str, str], ...]
    changes: tuple[tuple[str, tuple[Moved, ...]], ...]


def library_page(name: str) -> str:
    """Return the address of the page of a library."""
    return f"library/{slug(name)}.html"


def signature_page(signature: Signature) -> str:
    """Return the address of the page of a signature."""
    return f"signature/{slug(signature.name)}.html"


class Observatory:
    """Libraries, and what is known of them.

    Args:
        rows: The table of libraries.
        records: All records, of any age; those of other cases are left out.
    """

    def __init__(self, rows: Iterable[Row], records: Iterable[Observed]) -> None:
        self.rows = sorted(rows, key=lambda row: (row.rank is None, row.rank or 0, row.name))
        asked = {(row.name, one.name, ask) for row in self.rows for one in row.cases for ask in one.asks}
        history: dict[Key, list[Observed]] = defaultdict(list)
        for record in records:
            if (record.library, record.case, record.ask) in asked:
                history[record.key].append(record)
        for group in history.values():
            group.sort(key=lambda one: rank_of(one.at))
        self.history: Mapping[Key, Sequence[Observed]] = history

    @cached_property
    def by_case(self) -> Mapping[Key, tuple[Observed, ...]]:
        """The newest record of each machine, by its key without the machine; the newest last."""
        found: dict[Key, list[Observed]] = defaultdict(list)
        for key, group in self.history.items():
            found[key._replace(machine="")].append(group[-1])
        return {key: tuple(sorted(group, key=lambda o: rank_of(o.at))) for key, group in found.items()}

    @cached_property
    def newest(self) -> tuple[Observed, ...]:
        """The record that counts of each case in each cell."""
        return tuple(group[-1] for group in self.by_case.values())

    @cached_property
    def by_cell(self) -> Mapping[tuple[str, str, str], tuple[Observed, ...]]:
        """These records by library, Python and release, in the order of the cases."""
        order = {(row.name, one.name): n for row in self.rows for n, one in enumerate(row.cases)}
        found: dict[tuple[str, str, str], list[Observed]] = defaultdict(list)
        for record in sorted(self.newest, key=lambda o: (order[o.library, o.case], o.ask)):
            found[record.library, record.python, record.torch].append(record)
        return {cell: tuple(group) for cell, group in found.items()}

    def verdict(self, library: str, python: str, torch: str) -> Verdict:
        """Return the verdict of a library in a cell."""
        return verdict_of(self.by_cell.get((library, python, torch), ()))

    @cached_property
    def releases(self) -> Mapping[str, tuple[str, ...]]:
        """The releases that were tried on each Python, the newest first."""
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

    @property
    def locks(self) -> tuple[str, ...]:
        """Names of the locks of what libraries add to cells."""
        names = {one.overlay for one in self.newest if one.overlay}
        return tuple(sorted(filter(_LOCK.fullmatch, names)))

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
        words = {torch: "in" if torch in releases else "" for torch in self.releases[python]}
        return ", ".join(str(one).removeprefix("in ") for one in spans(words) if one.word)


def load_observatory(root: Path) -> tuple[Observatory | None, tuple[str, ...]]:
    """Return the observatory of a project, if it has one, and what of it cannot be read."""
    if not (root / LIBRARIES).is_file():
        return None, ()
    problems: list[str] = []
    rows: tuple[Row, ...] = ()
    try:
        rows = load_rows(root)
    except IvhlError as error:
        problems.append(f"{error}")
    folder = root / LIBRARIES.parent / "records"
    records = list(every_observed(folder, problems.append))
    return Observatory(rows, records), tuple(problems[:_MOST_PROBLEMS])


def table_view(observatory: Observatory, source: Source, python: str) -> TableView:
    """Return the table of a Python."""
    releases = observatory.releases.get(python, ())
    used = [s for s in observatory.signatures if any(r.python == python for r in s.records)]
    numbers = {signature.name: f"{number}" for number, signature in enumerate(used, 1)}
    lines = tuple(
        _line(observatory, row, python, releases, numbers) for row in observatory.rows
    )
    counts = Counter(cell.verdict.key for line in lines for cell in line.cells)
    here = [record for record in observatory.newest if record.python == python]
    days = sorted(record.at[:10] for record in here)
    return TableView(
        python=python,
        pythons=observatory.pythons,
        releases=tuple((torch, f"{torch}.html") for torch in releases),
        lines=lines,
        own=_own_line(source, python, releases),
        signatures=tuple((s.name, _option(s)) for s in used),
        tallies=tuple((key, *VERDICTS[key], counts[key]) for key in VERDICTS if counts[key]),
        newest=_counted(line.cells[0].verdict for line in lines if releases),
        observed=" to ".join(dict.fromkeys((days[0], days[-1]))) if days else "",
    )


def _line(
    observatory: Observatory,
    row: Row,
    python: str,
    releases: Sequence[str],
    numbers: Mapping[str, str],
) -> Line:
    href = library_page(row.name)
    cells = []
    for torch in releases:
        records = observatory.by_cell.get((row.name, python, torch), ())
        shown = {s.name for r in records for s in observatory.signatures_of.get(r.key, ())}
        named = " ".join(sorted((numbers[name] for name in shown), key=int))
        anchor = f"{href}#{anchor_of(python, torch)}" if records else ""
        cells.append(Cell(verdict_of(records), anchor, named))
    note = f"{row.rank:,}" if row.rank else ""
    return Line(row.name, href, note, _since(releases, cells), tuple(cells))


def anchor_of(python: str, torch: str) -> str:
    """Return the id of a cell in the page of a library."""
    return f"{python}-{torch}"


def _since(releases: Sequence[str], cells: Sequence[Cell]) -> str:
    """Return the newest verdict and the first release of those with it; the newest come first."""
    tried = [
        (torch, cell.verdict.key)
        for torch, cell in zip(releases, cells, strict=True)
        if cell.verdict.key != "not_run"
    ]
    if not tried:
        return ""
    same = [torch for torch, _ in takewhile(lambda one: one[1] == tried[0][1], tried)]
    return f"{VERDICTS[tried[0][1]][0]} since {same[-1]}"


def _own_line(source: Source, python: str, releases: Sequence[str]) -> Line | None:
    """Return the line of the project's own cases on the machine that is shown first."""
    rows = source.by_place.get(source.page.main, ())
    matched, cells = matched_cases(rows), by_cell(rows)
    found = []
    for torch in releases:
        here = cells.get((python, torch), ())
        keys = [_OWN[row.status] for row in here if row.status != "not_run"]
        shown = grid_cell(here, source.page.front, matched)
        if shown is None:
            found.append(Cell(NOT_RUN))
            continue
        key = min(keys, key=_ORDER.__getitem__)
        word = VERDICTS[key][0]
        part = f"{keys.count(key)} of {len(keys)}"
        text = shown.worth or word if key == "works" else f"{word} {part}"
        found.append(Cell(Verdict(key, word if len(set(keys)) == 1 and key != "works" else text), shown.href))
    if all(cell.verdict == NOT_RUN for cell in found):
        return None
    name = f"{source.page.project}: its own suite"
    return Line(name, source.page.front, "", _since(releases, found), tuple(found))


def _option(signature: Signature) -> str:
    libraries = counted(len(signature.libraries), "library").replace("librarys", "libraries")
    word = VERDICTS[_kind(signature)][0]
    return f"{word}, {libraries}: {short_message(signature.message, 70)}"


def _kind(signature: Signature) -> str:
    """Return the key of the verdict that a signature explains."""
    if signature.cause.kind == "graph break":
        return "breaks"
    return signature.cause.kind if signature.fault == "PyTorch" else "undecided"


def _counted(verdicts: Iterable[Verdict]) -> str:
    counts = Counter(one.key for one in verdicts)
    said = (f"{counts[key]} {VERDICTS[key][0]}" for key in VERDICTS if counts[key])
    return ", ".join(said)


def library_view(observatory: Observatory, source: Source, row: Row) -> LibraryView:
    """Return the page of a library."""
    environments = {one.cell for one in source.rows}
    cells = {
        (python, torch): records
        for python, releases in observatory.releases.items()
        for torch in releases
        if (records := observatory.by_cell.get((row.name, python, torch)))
    }
    newest = next(iter(cells[one] for one in cells if one[0] == observatory.main), ())
    return LibraryView(
        href=library_page(row.name),
        name=row.name,
        rank=row.rank,
        requirement=row.requirement,
        newest=_newest(newest),
        spans=tuple(_spans(cells).items()),
        grids=tuple(_grid(observatory, row, python) for python in _spans(cells)),
        causes=_causes(observatory, row.name),
        cells=tuple(_cell(row, records, environments) for records in cells.values()),
        tries=tuple(
            (f"{one.name} {ask}", _try(row, one, ask, newest)) for one in row.cases for ask in one.asks
        ),
        corrections=tuple(_corrections(observatory, row.name)),
        disagreements=tuple(_disagreements(observatory, row.name)),
    )


def _newest(records: Sequence[Observed]) -> str:
    if not records:
        return "not run"
    word, (one, *_) = VERDICTS[verdict_of(records).key][0], records
    return f"{word} with PyTorch {one.torch} on Python {one.python}"


def _spans(cells: Mapping[tuple[str, str], Sequence[Observed]]) -> dict[str, str]:
    """Return what the library is over the releases of each Python."""
    words: dict[str, dict[str, str]] = defaultdict(dict)
    for (python, torch), records in cells.items():
        words[python][torch] = VERDICTS[verdict_of(records).key][0]
    return {python: spans_sentence(spans(found)) for python, found in words.items()}


def _grid(observatory: Observatory, row: Row, python: str) -> Grid:
    releases = observatory.releases[python]
    found: dict[tuple[str, str], list[Cell]] = {
        (one.name, ask): [] for one in row.cases for ask in one.asks
    }
    for torch in releases:
        records = observatory.by_cell.get((row.name, python, torch), ())
        known = {(record.case, record.ask): record for record in records}
        for name, line in found.items():
            record = known.get(name)
            href = f"#{anchor_of(python, torch)}"
            line.append(Cell(verdict_of((record,)), href) if record else Cell(NOT_RUN))
    lines = tuple((" ".join(name), tuple(line)) for name, line in found.items())
    return Grid(python, releases, lines)


def _causes(observatory: Observatory, library: str) -> tuple[tuple[SignatureView, str], ...]:
    found = []
    for signature in observatory.signatures:
        cases: dict[str, list[Observed]] = defaultdict(list)
        for record in signature.records:
            if record.library == library:
                cases[f"{record.case} {record.ask}"].append(record)
        where = "; ".join(f"{name} on {observatory.where(some)}" for name, some in cases.items())
        if cases:
            found.append((signature_view(observatory, signature), where))
    return tuple(found)


def _cell(row: Row, records: Sequence[Observed], environments: Collection[str]) -> CellView:
    one = max(records, key=lambda record: record.at)
    name = f"{row.name} {one.version}" if one.version else row.name
    said = [name, f"observed {one.at[:10]} on {one.machine}"]
    said += [f"{seconds(sum(record.cpu_s for record in records))} of CPU"]
    return CellView(
        anchor=anchor_of(one.python, one.torch),
        title=f"Python {one.python}, PyTorch {one.torch}",
        verdict=verdict_of(records),
        facts=", ".join(said),
        lock=one.overlay if one.overlay and _LOCK.fullmatch(one.overlay) else "",
        environment=environment_page(one.cell) if one.cell in environments else "",
        command=check_command(one),
        cases=tuple(
            Observation(
                f"{record.case} {record.ask}",
                verdict_of((record,)),
                shortened(record.why, _LONGEST_WHY),
                "; ".join(_facts(record)),
            )
            for record in records
        ),
    )


def _facts(record: Observed) -> Iterator[str]:
    """Yield what is known of a case beside its verdict."""
    if record.inputs:
        yield f"inputs {shortened(record.inputs, _LONGEST_WHY)}"
    if record.compile_s is not None:
        yield f"compiled in {seconds(record.compile_s)}"
    if record.eager_s and record.compiled_s:
        yield f"a call takes {seconds(record.eager_s)} eager, {seconds(record.compiled_s)} compiled"
        yield _pays(record)
    if record.graphs is not None:
        yield f"{counted(record.graphs, 'graph')}, {counted(breaks_of(record), 'graph break')}"
    if record.recompiles is not None:
        yield counted(record.recompiles, "recompile")
    if record.second is not None:
        again = "" if record.second.recompiles is None else counted(record.second.recompiles, "recompile")
        yield f"a larger batch, {shortened(record.second.inputs, _LONGEST_WHY)}: {again or 'no result'}"
    if record.error is not None:
        yield f"largest error {record.error:.2g} of its budget"
    if record.failure is not None:
        places = filter(None, (record.failure.where, record.failure.frame))
        yield f"{record.failure.failure_class} in phase {record.failure.phase}, {', '.join(places)}".removesuffix(", ")


def _pays(record: Observed) -> str:
    """Return after how many calls the seconds of compiling are gained back."""
    if record.compile_s is None or not record.eager_s or not record.compiled_s:
        return "not known when compiling pays"
    gain = record.eager_s - record.compiled_s
    if gain * _MOST_CALLS <= record.compile_s:
        return "compiling never pays"
    return f"compiling pays after {math.ceil(record.compile_s / gain):,} calls"


def check_command(record: Observed) -> str:
    """Return the command that checks a verdict again, from the same locks."""
    names = ("--library", record.library), ("--torch", record.torch), ("--python", record.python)
    return " ".join(["ivhl observe", *(f"{name} {shlex.quote(value)}" for name, value in names)])


def _try(row: Row, case: Case, ask: str, records: Sequence[Observed]) -> str:
    """Return the command that tries a case outside of the project, with the newest release."""
    known = next(iter(records), None)
    version = known.version if known else None
    needs = (row.requirement if version is None else f"{row.name}=={version}", *row.also)
    words = [case.target, *(f"--input={text}" for text in case.inputs), *(f"--with={n}" for n in needs)]
    words += ["--step"] if ask == "step" else []
    words += [f"--torch={known.torch}", f"--python={known.python}"] if known else []
    return shlex.join(["ivhl", "try", *words])


def _corrections(observatory: Observatory, library: str) -> Iterator[str]:
    for key, group in observatory.history.items():
        for before, after in pairwise(group if key.library == library else ()):
            same = (before.row, before.lock, before.overlay) == (after.row, after.lock, after.overlay)
            words = [VERDICTS[key_of(one)][0] for one in (before, after)]
            if same and words[0] != words[1]:
                yield (
                    f"{after.at[:10]}: {key.case} {key.ask} on Python {after.python} with PyTorch "
                    f"{after.torch} is {words[1]}; {words[0]} was said on {before.at[:10]}"
                )


def _disagreements(observatory: Observatory, library: str) -> Iterator[str]:
    for key, group in observatory.by_case.items():
        words = {record.machine: VERDICTS[key_of(record)][0] for record in group}
        if key.library == library and len(set(words.values())) > 1:
            said = ", ".join(f"{word} on {machine}" for machine, word in words.items())
            yield f"{key.case} {key.ask} in {key.cell}: {said}"


def signature_view(observatory: Observatory, signature: Signature) -> SignatureView:
    """Return the page of a signature."""
    groups: dict[str, list[Observed]] = defaultdict(list)
    for record in signature.records:
        groups[record.library].append(record)
    ranks = {row.name: row.rank for row in observatory.rows}
    ordered = [row.name for row in observatory.rows if row.name in groups]
    cause = signature.cause
    report = "" if signature.issues or signature.fault != "PyTorch" else _report(signature)
    return SignatureView(
        href=signature_page(signature),
        kind=_kind(signature),
        word=VERDICTS[_kind(signature)][0],
        title=short_message(signature.message, 160),
        phase=cause.phase,
        number=cause.number.upper(),
        signature=signature,
        libraries=tuple(
            (name, library_page(name), observatory.where(groups[name])) for name in ordered
        ),
        best=min((rank for name in ordered if (rank := ranks[name])), default=None),
        report=report,
    )


def _report(signature: Signature) -> str:
    """Return the text of a report to PyTorch."""
    one = signature.records[-1]
    with_step = " --step" if one.ask == "step" else ""
    return "\n".join((
        f"torch.compile: {short_message(signature.message, 120)}",
        "",
        f"PyTorch {signature.first} to {signature.last}, newest on Python {one.python}, on a CPU; "
        f"in {', '.join(signature.libraries)}.",
        f"Whole lock and a command that repeats it: ivhl, {check_command(one)}",
        f"By hand: ivhl try {shlex.quote(one.target)}{with_step}",
        "",
        shortened(signature.message, 2 * _LONGEST_WHY),
    ))


def signature_views(observatory: Observatory) -> tuple[SignatureView, ...]:
    """Return all signatures: wrong results, failures, graph breaks; first the most downloaded."""
    views = [signature_view(observatory, one) for one in observatory.signatures]
    return tuple(sorted(views, key=lambda v: (_ORDER[v.kind], v.best is None, v.best or 0)))


def release_views(observatory: Observatory) -> tuple[ReleaseView, ...]:
    """Return a page for each release, the newest first."""
    every = sorted({t for some in observatory.releases.values() for t in some}, key=release_key)
    return tuple(
        _release(observatory, every, number) for number in reversed(range(len(every)))
    )


def _release(observatory: Observatory, every: Sequence[str], number: int) -> ReleaseView:
    torch, before = every[number], every[number - 1] if number else ""
    beside = [*every[max(0, number - 1) : number], *every[number + 1 : number + 2]]
    changes: dict[str, dict[tuple[str, str], list[tuple[str, str]]]] = {
        title: defaultdict(list) for title in _CHANGES
    }
    for record in observatory.newest:
        key = record.key._replace(machine="", cell=f"py{record.python}-torch{before}")
        old = observatory.by_case.get(key)
        if record.torch == torch and old:
            title = _change(old[-1], record)
            words = " → ".join(_word_of(one) for one in (old[-1], record))
            if title:
                changes[title][record.library, words].append((f"{record.case} {record.ask}", record.python))
    order = {row.name: n for n, row in enumerate(observatory.rows)}
    return ReleaseView(
        href=f"{torch}.html",
        torch=torch,
        before=before,
        others=tuple((one, f"{one}.html") for one in beside),
        tallies=tuple(
            (
                python,
                f"{python}.html",
                _counted(observatory.verdict(row.name, python, torch) for row in observatory.rows),
            )
            for python, releases in observatory.releases.items()
            if torch in releases
        ),
        changes=tuple(
            (
                title,
                tuple(
                    Moved(library, f"{library_page(library)}#{anchor_of(cases[0][1], torch)}", words, _cases(cases))
                    for (library, words), cases in sorted(found.items(), key=lambda o: order[o[0][0]])
                ),
            )
            for title, found in changes.items()
            if found
        ),
    )


# Titles of the kinds of change of a release, the worst first.
_CHANGES: Final = (
    "Broke", "Fixed", "More graph breaks", "Fewer graph breaks",
    "No longer installable", "Newly installable",
)  # fmt: skip


def _change(before: Observed, after: Observed) -> str:
    """Return the title of the change between two releases; empty if none counts."""
    old, new = key_of(before), key_of(after)
    if "undecided" in (old, new):
        return ""
    if (old in _ABSENT) != (new in _ABSENT):
        return "No longer installable" if new in _ABSENT else "Newly installable"
    if old in _RIGHT and new in _BAD:
        return "Broke"
    if old in _BAD and new in _RIGHT:
        return "Fixed"
    if old in _RIGHT and new in _RIGHT and breaks_of(before) != breaks_of(after):
        return "More graph breaks" if breaks_of(after) > breaks_of(before) else "Fewer graph breaks"
    return ""


def _word_of(record: Observed) -> str:
    key = key_of(record)
    return counted(breaks_of(record), "break") if key in _RIGHT and breaks_of(record) else VERDICTS[key][0]


def _cases(cases: Iterable[tuple[str, str]]) -> str:
    """Return names of cases with the Pythons of each."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, python in cases:
        found[name].append(python)
    return "; ".join(
        f"{name} on {', '.join(sorted(pythons, key=python_key))}" for name, pythons in found.items()
    )


def rows_for_programs(observatory: Observatory) -> list[dict[str, Any]]:
    """Return every verdict as a flat row, for JSON and CSV; docs/schemas/observatory.json."""
    ranks = {row.name: row.rank for row in observatory.rows}
    found = []
    for record in observatory.newest:
        row = {"library": record.library, "rank": ranks[record.library]}
        row |= {name: getattr(record, name) for name in _SHOWN.split()}
        failure = record.failure
        found.append(
            row | {
                "verdict": VERDICTS[key_of(record)][0],
                "failure_class": failure.failure_class if failure else None,
                "graph_breaks": breaks_of(record),
                "signatures": [s.name for s in observatory.signatures_of.get(record.key, ())],
                "page": f"{library_page(record.library)}#{anchor_of(record.python, record.torch)}",
            }
        )
    return found


_SHOWN: Final = (
    "case ask target inputs version cell python torch lock overlay machine at status why unavailable "
    "graphs recompiles error compile_s eager_s compiled_s"
)
