"""What the views read: the rows of a project and the history of each case in each cell.

Views ask only this module, so that where records come from can change without them.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from ivhl.records.age import recorded_rank
from ivhl.tracker.changes.confirmations import Confirmation, with_confirmed
from ivhl.tracker.changes.disturbed import disturbed_of
from ivhl.tracker.changes.incidents import KnownCauses
from ivhl.tracker.changes.regressions import changes_of, incidents_of
from ivhl.tracker.changes.series import Along, Point, series_of
from ivhl.tracker.store.course import MemoryHistory
from ivhl.tracker.store.records import grouped_by
from ivhl.tracker.support.compat import Row, declared_cases, is_declared, python_key, release_key
from ivhl.tracker.support.spans import by_place
from ivhl.tracker.views.project import State, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ivhl.records.identity import AtCommit, CaseInCell
    from ivhl.tracker.changes.regressions import Change, History, Incident
    from ivhl.tracker.store.entries import Entry
    from ivhl.tracker.store.kept import Provenance
    from ivhl.workload import Workload

# Newest incidents that the page *Regressions* lists.
MOST_INCIDENTS = 60
# Pages of its kind that a page links to. That of the main place lists all places, the matrix all
# cases.
MOST_LINKS = 24
_LONGEST_NAME = 120
_DIGEST = 32
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")
_PACKAGED = 3


_Name = TypeVar("_Name")
# Text and address of each link.
Links: TypeAlias = "tuple[tuple[str, str], ...]"


class Place(NamedTuple):
    """A machine and one of its devices: numbers of two places are never mixed."""

    machine: str
    device: str

    @property
    def name(self) -> str:
        """Machine and device, as text."""
        return f"{self.machine or 'no machine yet'}, {self.device}"

    @property
    def slug(self) -> str:
        """The place in file names."""
        return slug(self.machine, self.device)


@lru_cache(maxsize=8192)  # the same few parts, for each file and each link to it
def slug(*parts: str) -> str:
    """Return a file name that no other parts have, and that stays, so that links to it keep working.

    Bytes of UTF-8 that are no letter, digit, ``_``, ``.`` or ``-`` are written as ``~`` and two hex
    digits. A name that is too long for that, or that a file system may take for the same one in
    small letters, ends in ``~~`` and a digest: nobody finds two texts with the same 128 bits.
    """
    name = "+".join(_UNSAFE.sub(_escaped, part) for part in parts)
    if len(name) <= _LONGEST_NAME and name == name.lower():
        return name
    digest = hashlib.sha256(repr(parts).encode(errors="backslashreplace")).hexdigest()[:_DIGEST]
    return f"{name[: _LONGEST_NAME - _DIGEST - 2]}~~{digest}"


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"~{byte:02x}" for byte in found[0].encode(errors="surrogatepass"))


def series_slug(series: CaseInCell) -> str:
    """Return the name of the case's page in the folder of its place."""
    return slug(series.workload, series.size, series.variant)


def case_page(series: CaseInCell) -> str:
    """Return the address of a case's page, from the root of the site."""
    return f"case/{Place(series.machine, series.device).slug}/{series_slug(series)}.html"


def cell_data(series: CaseInCell, cell: str, part: int = 0) -> str:
    """Return the address of the details of a case in a cell, from the root of the site.

    Args:
        series: The case.
        cell: Id of the cell.
        part: Number of an older part of the course, from 1; 0 for the details.
    """
    folder = f"data/{Place(series.machine, series.device).slug}/{series_slug(series)}"
    return f"{folder}/{slug(cell, f'{part}') if part else slug(cell)}.js"


def matrix_page(place: Place, main: Place) -> str:
    """Return the address of a place's matrix; that of the main place has no suffix."""
    return "matrix.html" if place == main else f"matrix-{place.slug}.html"


def environment_page(cell: str) -> str:
    """Return the address of the page of a cell's environment."""
    return f"environment/{slug(cell)}.html"


def run_page(place: Place, commit: str) -> str:
    """Return the address of the page of a run: one commit in one place."""
    return f"run/{place.slug}/{slug(commit)}.html"


# What a template shows: it refuses the name of a fact that is not there, so no class lists them.
View = SimpleNamespace


@dataclass(frozen=True, slots=True)
class PageView:
    """What all pages share.

    Attributes:
        built_at: When the site was built.
        newest_commit: Commit of the newest record, shortened.
        problems: Results that could not be read.
        main: The place that is shown first.
        places: All places, the main one first.
        repository: Address of the project on GitHub; empty without one.
        url: Address of the site, with its last slash; empty if it is not known.
        front: Front page of the main place; ``index.html`` unless that is the table of libraries.
    """

    project: str
    built_at: str
    newest_commit: str
    problems: tuple[str, ...]
    main: Place
    places: tuple[Place, ...]
    repository: str = ""
    url: str = ""
    front: str = "index.html"


class Source:
    """The records of a project, as the views need them.

    Args:
        state: The project with its records.
        built_at: When the site is built, as text.
        confirmations: What ``ivhl gate --confirm`` decided about changes.
        provenance: Who signed a record, by ``tracker.provenance.digest_of``.
    """

    def __init__(
        self,
        state: State,
        built_at: str = "",
        confirmations: Sequence[Confirmation] = (),
        provenance: Mapping[str, Provenance] | None = None,
    ) -> None:
        self.state = state
        self.known = KnownCauses(tuple(confirmations), state.expectations)
        self.provenance = provenance or {}
        self._built_at = built_at

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """A row for each case and cell; see ``compat_rows``."""
        return rows_of(self.state)

    @cached_property
    def by_place(self) -> Mapping[Place, tuple[Row, ...]]:
        """The rows of each place, the place with the newest complete record set first."""
        return {Place(*place): rows for place, rows in by_place(self.rows).items()}

    @cached_property
    def page(self) -> PageView:
        """What all pages share."""
        newest = max(self.state.recorded, key=recorded_rank, default=None)
        places = tuple(self.by_place) or (Place("", "cpu"),)
        return PageView(
            project=self.state.name,
            built_at=self._built_at,
            newest_commit="" if newest is None else newest.commit[:8],
            problems=self.state.problems,
            main=places[0],
            places=places,
            repository=self.state.repository,
            url=self.state.site_url,
            front="suite.html" if self.state.has_libraries else "index.html",
        )

    @cached_property
    def by_series(self) -> Mapping[CaseInCell, tuple[Row, ...]]:
        """The rows of each case in each place, in the order of ``rows``."""
        groups = grouped_by(self.rows, lambda row: row.series)
        return {series: tuple(rows) for series, rows in groups.items()}

    @cached_property
    def history(self) -> History:
        """All runs of the project."""
        return self.state.history or MemoryHistory(self.state.records)

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """The runs of cases that the project still has."""
        return tuple(filter(self._is_declared, self.history.entries))

    def _is_declared(self, entry: Entry) -> bool:
        return is_declared(entry.case, self._declared)

    @cached_property
    def _declared(self) -> frozenset[tuple[str, int, str, str]]:
        return declared_cases(self.state.workloads)

    @cached_property
    def disturbed(self) -> frozenset[int]:
        """Ids of the runs that are in no step in time; see ``disturbed_of``."""
        return disturbed_of(self.history.entries)

    @cached_property
    def disturbed_keys(self) -> frozenset[AtCommit]:
        """Keys of the same runs."""
        return frozenset(one.key for one in self.history.entries if one.id in self.disturbed)

    @cached_property
    def _by_key(self) -> Mapping[CaseInCell, tuple[Entry, ...]]:
        """The runs of each case in each cell, oldest commit first."""
        position = {commit: i for i, commit in enumerate(self.state.commit_order)}
        groups = grouped_by(self.history.entries, lambda entry: entry.case)
        return {key: _in_order(group, position) for key, group in groups.items()}

    def course(self, row: Row) -> tuple[Entry, ...]:
        """Return the runs of a row's case in its cell, of its version, oldest commit first."""
        if row.recorded is None:
            return ()
        return self._by_key.get(row.recorded.entry.case, ())

    def points_of(self, course: Iterable[Entry]) -> list[str]:
        """Return the points of runs in a course, each as JSON (``course.point_of``)."""
        return self.history.points(course)

    def digest_of(self, entries: Iterable[Entry], *parts: str) -> str:
        """Return a digest of runs and of what else a file is made from.

        Empty if the history cannot tell runs of one process from those of another.
        """
        token = self.history.token
        if not token:
            return ""
        text = "\0".join((token, *parts)).encode(errors="replace")
        ids = array("q", [entry.id for entry in entries]).tobytes()
        return hashlib.sha256(hashlib.sha256(text).digest() + ids).hexdigest()[:32]

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """Everything that changed, along commits, releases and Pythons."""
        order, wanted = self.state.commit_order, self._is_declared
        found = changes_of(self.history, self.state.spreads, order, wanted=wanted)
        return with_confirmed(found, self.known.confirmations, self.history, order, wanted=wanted)

    @cached_property
    def incidents(self) -> tuple[Incident, ...]:
        """The changes by place and direction, newest first."""
        return incidents_of(self.changes)

    @cached_property
    def listed(self) -> frozenset[tuple[str, ...]]:
        """The keys of the incidents on the page *Regressions*: links to others lead nowhere."""
        return frozenset(one.key for one in self.incidents[:MOST_INCIDENTS])

    @cached_property
    def _series(self) -> Mapping[tuple[Along, CaseInCell], tuple[Point, ...]]:
        found: dict[tuple[Along, CaseInCell], tuple[Point, ...]] = {}
        changed: dict[Along, set[CaseInCell]] = defaultdict(set)
        for change in self.changes:
            changed[change.along].add(change.case.row)
        for along, cases in changed.items():
            entries = (
                entry
                for key, group in self._by_key.items()
                if key.row in cases and is_declared(key, self._declared)
                for entry in group
            )
            for one in series_of(entries, along, self.state.commit_order):
                found[along, one.case] = one.points
        return found

    def points(self, change: Change) -> tuple[Point, ...]:
        """Return the points of the series in which a change was found."""
        return self._series.get((change.along, change.case), ())

    @cached_property
    def incidents_of(self) -> Mapping[CaseInCell, Sequence[Incident]]:
        """What changed in each case, newest first."""
        found: dict[CaseInCell, list[Incident]] = defaultdict(list)
        for incident in self.incidents:
            groups = grouped_by(incident.changes, lambda change: change.case.row)
            for series, changes in groups.items():
                found[series].append(incident._replace(changes=tuple(changes)))
        return found

    def notes_of(self, series: CaseInCell) -> tuple[str, ...]:
        """Return the known causes of changes of a case."""
        changes = (change for one in self.incidents_of[series] for change in one.changes)
        return tuple(dict.fromkeys(filter(None, map(self.known.cause, changes))))

    @cached_property
    def run(self) -> Mapping[tuple[str, ...], tuple[CaseInCell, ...]]:
        """The cases that were run: of a workload in a place, and of a case in all places."""
        found: dict[tuple[str, ...], list[CaseInCell]] = defaultdict(list)
        for series in sorted(self.by_series, key=lambda one: (self.case_order(one), one)):
            if any(row.recorded is not None for row in self.by_series[series]):
                found[series.machine, series.device, series.workload].append(series)
                found[series.name,].append(series)
        return {key: tuple(group) for key, group in found.items()}

    @cached_property
    def workloads(self) -> Mapping[str, Workload]:
        """The declarations of the project by their names."""
        return {workload.name: workload for workload in self.state.workloads}

    def releases(self, rows: Iterable[Row]) -> tuple[str, ...]:
        """Return the releases of the matrix and of the rows, oldest first."""
        known = {*self.state.known_releases, *(row.torch for row in rows)}
        return tuple(sorted(known, key=release_key))

    @cached_property
    def names(self) -> Mapping[Along, tuple[str, ...]]:
        """All releases and all Pythons, the lowest first."""
        releases = {*self.state.known_releases, *(entry.torch for entry in self.history.entries)}
        pythons = {entry.python for entry in self.history.entries}
        return {
            "torch": tuple(sorted(releases, key=release_key)),
            "python": tuple(sorted(pythons, key=python_key)),
        }

    def case_order(self, series: CaseInCell) -> tuple[object, ...]:
        """Return a key that sorts cases by subject, workload, size and variant, as declared."""
        names = list(self.workloads)
        workload = self.workloads.get(series.workload)
        sizes = list(workload.sizes) if workload else []
        variants = [variant.name for variant in workload.variants] if workload else []
        return (
            self._subjects.index(self.subject(series.workload)),
            _place_in(names, series.workload),
            _place_in(sizes, series.size),
            _place_in(variants, series.variant),
        )

    @cached_property
    def _subjects(self) -> list[str]:
        named = [*self.workloads, *sorted({row.workload for row in self.rows})]
        return list(dict.fromkeys(self.subject(name) for name in named))

    def other_places(self, place: Place, page: Callable[[Place, Place], str]) -> Links:
        """Return name and address of the pages of other places; the main one has all of them.

        Args:
            place: Whose page links to them.
            page: Its address, by the place and the main one: ``matrix_page`` or ``front_page``.
        """
        main, places = self.page.main, self.page.places
        if place == main or place not in places:
            return tuple((one.name, page(one, main)) for one in places if one != place)
        near, left = beside(places, place)
        links = [(one.name, page(one, main)) for one in near]
        return (*links, *([(f"{left} more", page(main, main))] if left else ()))

    def front_page(self, place: Place, main: Place) -> str:
        """Return the address of a place's front page."""
        front = self.page.front
        return front if place == main else f"{front[:-5]}-{place.slug}.html"

    def subject(self, workload: str) -> str:
        """Return the subject of a workload: the folder of its folder, else its name's first part."""
        declared = self.workloads.get(workload)
        parts = declared.make_inputs.partition(":")[0].split(".") if declared else []
        if len(parts) > _PACKAGED:  # benchmarks.SUBJECT.NAME.calls
            return parts[-3]
        return workload.partition(".")[0]


def _in_order(group: Sequence[Entry], position: Mapping[str, int]) -> tuple[Entry, ...]:
    """Return the runs of a case in a cell, oldest commit first; of unknown commits, by time."""
    return tuple(sorted(group, key=lambda e: (position.get(e.commit, -1), recorded_rank(e))))


def beside(names: Sequence[_Name], own: _Name) -> tuple[Sequence[_Name], int]:
    """Return the other names of a list, and how many were left out.

    Of many those around its own: if each of N pages linked all others, the links would grow with the
    square of N, and anybody who sends records can name machines and sizes.
    """
    at = names.index(own) if own in names else 0
    first = max(0, min(at - MOST_LINKS // 2, len(names) - MOST_LINKS - 1))
    near = [name for name in names[first : first + MOST_LINKS + 1] if name != own]
    return near, len(names) - (own in names) - len(near)


def cells_of(rows: Iterable[Row]) -> tuple[tuple[str, str, str], ...]:
    """Return Python, release and id of all cells of the rows, by Python and release."""
    cells = {(row.python, row.torch, row.cell) for row in rows}
    return tuple(sorted(cells, key=lambda c: (python_key(c[0]), release_key(c[1]), c[2])))


def _place_in(names: Sequence[str], name: str) -> tuple[int, str]:
    """Return a key that sorts by position, unknown names last."""
    return (names.index(name) if name in names else len(names), name)
