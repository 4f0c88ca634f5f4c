"""Bring the known failures up to date with what was measured (``ivhl check --update``).

What people wrote stays: an entry is touched only if a case that it covers passes now. The rest of
such an entry is narrowed to what still fails, with its reason and its link.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from ivhl.errors import SpecError
from ivhl.matrix.spec import toml_text
from ivhl.tracker.support.compat import python_key, release_key
from ivhl.tracker.support.expectations import EXPECTATIONS, TABLE, Expectation, Expectations
from ivhl.tracker.support.messages import cause_of
from ivhl.tracker.support.upstream import issues_of
from ivhl.tracker.wording import CLASS_MEANINGS, short_message

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from ivhl.records.record import FailureClass
from ivhl.tracker.support.compat import Row

# So many different workloads, or variants of one, must fail alike before an entry speaks of all.
_MANY_WORKLOADS, _MANY_VARIANTS = 3, 2
_LONGEST_REASON = 160
# What the project's own code did: to expect it would hide a mistake that nobody has looked at, so
# only a person enters it.
OF_THE_PROJECT: Final[frozenset[FailureClass]] = frozenset(
    {"build", "absent", "import", "inputs", "reference", "eager_failed"}
)
_HEAD: Final = """\
# Known failures, checked by `ivhl check expectations`; `ivhl check --update` writes them from the
# records and keeps what people wrote. Reasons are for people: see docs/expectations.md.
"""
_HEADER: Final = re.compile(rf"\s*\[\[\s*{TABLE}\s*\]\]\s*(#.*)?")


@dataclass(frozen=True, slots=True)
class Standing:
    """What the records say of an entry.

    Attributes:
        occurs: Cases that fail as it says.
        fixed: Cases that pass.
        otherwise: Cases that fail in another way, which no entry expects.
        is_unmatched: Whether it covers nothing that was measured.
    """

    entry: Expectation
    occurs: tuple[Row, ...]
    fixed: tuple[Row, ...]
    otherwise: tuple[Row, ...]
    is_unmatched: bool


@dataclass(frozen=True, slots=True)
class Updated:
    """A file of known failures brought up to date.

    Attributes:
        text: The new file.
        added: Entries that are new, narrowed ones included.
        dropped: Entries that are gone.
    """

    text: str
    added: tuple[Expectation, ...]
    dropped: tuple[Expectation, ...]


def standings(expectations: Expectations, rows: Iterable[Row]) -> tuple[Standing, ...]:
    """Return what the rows say of each entry, in the order of the file."""
    measured = _measured(rows)
    found = []
    for entry in expectations.entries:
        here = [row for row in measured if entry.covers(row.in_cell)]
        occurs = tuple(row for row in here if row.failure_class == entry.failure_class)
        fixed = tuple(row for row in here if row.failure_class is None)
        otherwise = tuple(
            row
            for row in here
            if row.failure_class not in (None, entry.failure_class)
            and expectations.of(row.in_cell, row.failure_class) is None
        )
        found.append(Standing(entry, occurs, fixed, otherwise, not here))
    return tuple(found)


def unexpected(expectations: Expectations, rows: Iterable[Row]) -> tuple[Row, ...]:
    """Return the rows that PyTorch failed and no entry expects."""
    failed = (row for row in _measured(rows) if row.is_failure)
    return tuple(row for row in failed if expectations.of(row.in_cell, row.failure_class) is None)


def updated(text: str, expectations: Expectations, rows: Sequence[Row]) -> Updated:
    """Return a file in which every failure of PyTorch is expected, and nothing that passes.

    Args:
        text: The file as it is; empty if there is none.
        expectations: What it declares.
        rows: What was measured.
    """
    stood = standings(expectations, rows)
    kept = Expectations(tuple(one.entry for one in stood if not one.fixed))
    dropped = [one for one in stood if one.fixed]
    left = [row for row in unexpected(kept, rows) if not row.uncommitted]
    added: list[Expectation] = []
    for one in dropped:
        ids = {_id(row) for row in one.occurs}
        still = [row for row in left if _id(row) in ids]
        left = [row for row in left if _id(row) not in ids]
        added += _entries(still, rows, one.entry)
    for group in _by_cause(row for row in left if row.failure_class not in OF_THE_PROJECT):
        added += _entries(group, rows)
    return Updated(
        _written(text, [bool(one.fixed) for one in stood], added),
        tuple(added),
        tuple(one.entry for one in dropped),
    )


def _measured(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row.recorded is not None and not row.existing]


def _by_cause(rows: Iterable[Row]) -> Iterator[list[Row]]:
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.failure_class or "", cause_of(row.message)].append(row)
    yield from groups.values()


class _Names(NamedTuple):
    workload: str
    variant: str
    size: str = "*"
    machine: str = "*"

    def match(self, row: Row) -> bool:
        return (
            fnmatchcase(row.workload, self.workload)
            and fnmatchcase(row.variant, self.variant)
            and fnmatchcase(row.size, self.size)
            and fnmatchcase(row.machine, self.machine)
        )


def _suffix(variant: str) -> str:
    """Return all variants that end alike: ``*-compiled``."""
    return f"*-{variant.rpartition('-')[2]}" if "-" in variant else variant


# Pythons, PyTorch releases, and whether free-threaded; and the cells of them that failed.
_Range = tuple[tuple[str, str, bool | None], frozenset[tuple[str, str]]]

# From wide to narrow: which names an entry for a row may have, and how many different names of what
# must fail alike before it may be so wide.
_Wide = tuple["Callable[[Row], tuple[str, ...]]", Literal["workload", "variant"], int]
_LEVELS: Final[tuple[_Wide, ...]] = (
    (lambda _: ("*", "*"), "workload", _MANY_WORKLOADS),
    (lambda row: ("*", _suffix(row.variant)), "workload", _MANY_WORKLOADS),
    (lambda row: ("*", row.variant), "workload", _MANY_WORKLOADS),
    (lambda row: (row.workload, "*"), "variant", _MANY_VARIANTS),
    (lambda row: (row.workload, _suffix(row.variant)), "variant", _MANY_VARIANTS),
    (lambda row: (row.workload, row.variant), "variant", 1),
    (lambda row: (row.workload, row.variant, row.size), "variant", 1),
    (lambda row: (row.workload, row.variant, row.size, row.machine), "variant", 1),
)


def _entries(
    failed: Sequence[Row], rows: Iterable[Row], was: Expectation | None = None
) -> Iterator[Expectation]:
    """Yield entries for rows that failed alike, none of which covers a row that passes.

    Args:
        failed: Rows with one class of failure.
        rows: Everything measured.
        was: The entry whose reason and link they keep.
    """
    measured = _measured(rows)
    for device in sorted({row.device for row in failed}):
        here = [row for row in measured if row.device == device]
        left = [row for row in failed if row.device == device]
        for names_of, counted_by, least in _LEVELS:
            for wide in dict.fromkeys(names_of(row) for row in left):
                names = _Names(*wide)
                wanted = [row for row in left if names.match(row)]
                if names_of(wanted[0]) != wide:
                    continue
                among = [row for row in here if names.match(row)]
                passed = {_cell(row) for row in among if row.failure_class is None}
                cells = _wide_enough(wanted, counted_by, least) - passed
                done = [row for row in wanted if _cell(row) in cells]
                for where, inside in _ranges(cells, passed, here):
                    of_range = [row for row in done if _cell(row) in inside]
                    yield _entry(where, names, device, of_range, was)
                ids = {_id(row) for row in done}
                left = [row for row in left if _id(row) not in ids]


def _wide_enough(
    rows: Iterable[Row], counted_by: Literal["workload", "variant"], least: int
) -> set[tuple[str, str]]:
    """Return the cells in which so many different ones failed."""
    names: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row in rows:
        names[_cell(row)].add(getattr(row, counted_by))
    return {cell for cell, found in names.items() if len(found) >= least}


def _id(row: Row) -> tuple[object, ...]:
    return row.series, row.cell


def _cell(row: Row) -> tuple[str, str]:
    return row.python, row.torch


def _ranges(
    cells: Collection[tuple[str, str]], passed: Collection[tuple[str, str]], here: Iterable[Row]
) -> Iterator[_Range]:
    """Yield ranges of Pythons and releases that have all of the cells, and none that passed."""
    tried = {_cell(row) for row in here}
    for freed in (False, True):
        mine = {cell for cell in cells if cell[0].endswith("t") == freed}
        rivals = {cell for cell in passed if cell[0].endswith("t") == freed}
        boxes = _boxes(mine, rivals, {cell for cell in tried if cell[0].endswith("t") == freed})
        others = {cell for cell in passed if cell[0].endswith("t") != freed}
        for box in boxes:
            bare = [python.removesuffix("t") for python in box[0]]
            inside = any(_is_in((p.removesuffix("t"), t), (bare, box[1])) for p, t in others)
            where = _range(bare), _range(box[1]), freed if freed or inside else None
            yield where, frozenset(cell for cell in mine if _is_in(cell, box))


def _boxes(
    cells: Collection[tuple[str, str]],
    passed: Collection[tuple[str, str]],
    tried: Collection[tuple[str, str]],
) -> list[tuple[list[str], list[str]]]:
    """Return rectangles of Pythons and releases: of one Python first, then neighbours joined."""
    boxes: list[tuple[list[str], list[str]]] = []
    for python in sorted({python for python, _ in cells}, key=python_key):
        run: list[str] = []
        for torch in sorted({t for p, t in tried if p == python}, key=release_key):
            if (python, torch) in cells:
                run.append(torch)
            elif (python, torch) in passed and run:
                boxes.append(([python], run))
                run = []
        boxes += [([python], run)] if run else []
    joined: list[tuple[list[str], list[str]]] = []
    for pythons, releases in boxes:
        for i, (theirs, shared) in enumerate(joined):
            hull = ([*theirs, *pythons], sorted({*shared, *releases}, key=release_key))
            if not any(_is_in(cell, hull) for cell in passed):
                joined[i] = hull
                break
        else:
            joined.append((pythons, releases))
    return joined


def _is_in(cell: tuple[str, str], box: tuple[Sequence[str], Sequence[str]]) -> bool:
    """Return whether a rectangle of Pythons and releases has a cell."""
    pythons = sorted(map(python_key, box[0]))
    releases = sorted(map(release_key, box[1]))
    python, torch = python_key(cell[0]), release_key(cell[1])
    return pythons[0] <= python <= pythons[-1] and releases[0] <= torch <= releases[-1]


def _range(names: Iterable[str]) -> str:
    ordered = sorted(set(names), key=release_key)
    return f"=={ordered[0]}" if len(ordered) == 1 else f">={ordered[0]},<={ordered[-1]}"


def _entry(
    where: tuple[str, str, bool | None],
    names: _Names,
    device: str,
    rows: Sequence[Row],
    was: Expectation | None,
) -> Expectation:
    python, torch, freed = where
    first = max(rows, key=lambda row: row.recorded_at or "")
    issues = issues_of(first.record) if first.record else ()
    values: dict[str, Any] = {
        "python": python,
        "torch": torch,
        **({} if freed is None else {"free-threaded": freed}),
        **names._asdict(),
        "device": device,
        "class": first.failure_class,
        "reason": was.reason if was else _reason(first),
        "link": was.link if was else next((issue.url for issue in issues), None),
    }
    return Expectation.model_validate(values)


def _reason(row: Row) -> str:
    text = short_message(row.message)
    if not text and row.failure_class:
        return CLASS_MEANINGS[row.failure_class]
    return text if len(text) <= _LONGEST_REASON else f"{text[: _LONGEST_REASON - 1]}…"


def _written(text: str, fixed: Sequence[bool], added: Sequence[Expectation]) -> str:
    """Return the file without the entries that are fixed, and with those that are added.

    By lines, so that all others stay as they were written. A library would know the syntax, but
    tomlkit counts the comment above an entry to the entry before it.
    """
    head, blocks = _blocks(text or _HEAD)
    if len(blocks) != len(fixed):
        raise SpecError(
            f"{EXPECTATIONS.name}: must have each entry below a line [[{TABLE}]] of its own "
            f"(got {len(fixed)} entries below {len(blocks)} such lines)",
            hint=f"write them so, then run ivhl check --update again; see {EXPECTATIONS}",
        )
    parts = [head, *(b for b, gone in zip(blocks, fixed, strict=True) if not gone)]
    parts += [_block(entry) for entry in added]
    joined = "\n\n".join(part.strip("\n") for part in parts if part.strip())
    return f"{joined}\n" if joined else ""


def _blocks(text: str) -> tuple[str, list[str]]:
    """Return what is above the first entry, and the text of each entry with its comment above."""
    lines = text.splitlines()
    starts = []
    for number, line in enumerate(lines):
        if _HEADER.fullmatch(line):
            start = number
            while start and lines[start - 1].lstrip().startswith("#"):
                start -= 1
            starts.append(start)
    ends = [*starts, len(lines)]
    blocks = ["\n".join(lines[start:end]) for start, end in pairwise(ends)]
    return "\n".join(lines[: ends[0]]), blocks


def _block(entry: Expectation) -> str:
    lines = [f"[[{TABLE}]]"]
    for key, value in entry.model_dump(by_alias=True, exclude_none=True).items():
        if value != "*" or key in ("workload", "variant"):
            lines.append(f"{key} = {toml_text(value)}")
    return "\n".join(lines)
