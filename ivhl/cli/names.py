"""Find cases, releases, machines and cells by a part of their name, in any letter case."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from ivhl.bench.request import Selection, Suite, named_case
from ivhl.errors import ResultsError, SpecError, UnknownNameError
from ivhl.matrix.spec import CellSpec, Matrix, newest_of
from ivhl.tracker.wording import some
from ivhl.workload import Case, Workload, every_case

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence


T = TypeVar("T")
RELEASE = "PyTorch release"
_KINDS = {"python": "Python", "torch": RELEASE}
_NAMED = 10


def matching(kind: str, text: str, known: Collection[str]) -> tuple[str, ...]:
    """Return the names that a text means: the exact name, else all names that contain it.

    A number in the text is a whole number of the name: ``2.1`` is no part of ``2.10.0``. Two numbers
    of a PyTorch release mean the newest release of that series.

    Args:
        kind: What the names stand for, for the error, e.g. ``workload``.
        text: As it was given.
        known: All names.

    Raises:
        UnknownNameError: If there is none; lists the nearest.
    """
    text = newest_of(text, known) if kind == RELEASE else text
    if text in known:
        return (text,)
    left, right = (r"(?<![0-9])" * text[:1].isdigit(), r"(?![0-9])" * text[-1:].isdigit())
    part = re.compile(left + re.escape(text) + right, re.IGNORECASE)
    whole = [name for name in known if part.fullmatch(name)]
    found = whole or sorted(name for name in known if text and part.search(name))
    if not found:
        raise UnknownNameError(kind, text, known)
    return tuple(found)


def the_one(kind: str, text: str, known: Collection[str]) -> str:
    """Return the name that a text means, as ``matching`` finds it.

    Raises:
        UnknownNameError: If there is none.
        SpecError: If there are several.
    """
    return _only(kind, text, matching(kind, text, known))


def _only(kind: str, text: str, found: Sequence[str]) -> str:
    if len(found) > 1:
        raise SpecError(
            f"{kind} {text!r} is part of {len(found)} names",
            hint=f"name one: {some(found, _NAMED)}",
        )
    return found[0]


def all_named(kind: str, texts: Iterable[str] | None, known: Collection[str]) -> tuple[str, ...]:
    """Return the names that texts mean, without duplicates; none if there is no text.

    Raises:
        UnknownNameError: If a text means none.
    """
    return tuple(
        dict.fromkeys(name for text in texts or () for name in matching(kind, text, known))
    )


def matching_cases(text: str, cases: Collection[str]) -> tuple[str, ...]:
    """Return the workloads that a text means, or if there is none, the cases.

    Args:
        text: As it was given; a part of a workload is a part of its cases, too.
        cases: Full names of cases.

    Raises:
        UnknownNameError: If there is neither; lists the nearest.
    """
    workloads = {name.partition("/")[0] for name in cases}
    with suppress(UnknownNameError):
        return matching("case", text, workloads)
    return matching("case", text, {*workloads, *cases})


def find_case(workloads: Sequence[Workload], text: str, device: str) -> Case:
    """Return the case that a text means: of a workload, its core variant.

    Raises:
        UnknownNameError: If there is none.
        SpecError: If there are several.
    """
    cases = [case.name for case in every_case(workloads, device)]
    return named_case(workloads, _only("case", text, matching_cases(text, cases)), device)


def selection_of(
    workloads: Sequence[Workload],
    workload: Sequence[str] | None,
    size: str | None,
    variant: Sequence[str] | None,
    suite: Suite | None,
) -> Selection:
    """Return what options select.

    Raises:
        UnknownNameError: If a text means nothing.
        SpecError: If a size means several.
    """
    sizes = {size for one in workloads for size in one.sizes}
    variants = {variant.name for one in workloads for variant in one.variants}
    return Selection(
        workloads=all_named("workload", workload, {one.name for one in workloads}),
        size=size and the_one("size", size, sizes),
        variants=all_named("variant", variant, variants),
        suite=suite,
    )


def find_cell(matrix: Matrix, text: str, releases: Sequence[str] = ()) -> CellSpec:
    """Return the cell that a text means, as ``the_one`` finds it.

    Args:
        matrix: The matrix.
        text: An id or a part of it.
        releases: Further releases whose cells to search, besides those of the matrix.

    Raises:
        UnknownNameError: If there is none.
        SpecError: If there are several, or a release is not valid.
    """
    every = {cell.id: cell for cell in matrix.cells(releases=[*matrix.every_release, *releases])}
    return every[the_one("cell", text, every)]


def recorded(
    kind: str,
    wanted: Sequence[str] | None,
    known: Collection[str],
    measured_by: Mapping[str, str] | None = None,
) -> frozenset[str]:
    """Return the names with records that texts mean; all known names if there is no text.

    Args:
        kind: See ``matching``.
        wanted: The texts.
        known: Names that records have.
        measured_by: Name in the matrix to the command that would measure it.

    Raises:
        ResultsError: If a name is in the matrix but no record has it.
        UnknownNameError: If a name is in neither; lists the nearest.
    """
    if not wanted:
        return frozenset(known)
    commands = measured_by or {}
    found: set[str] = set()
    for text in wanted:
        named = matching(kind, text, {*known, *commands})
        if not (there := set(named) & set(known)):
            raise ResultsError(
                f"{kind} {named[0]}: is in the matrix, but has no record",
                hint=f"measure it with: {commands[named[0]]}",
            )
        found |= there
    return frozenset(found)


def commands_of(matrix: Matrix | None) -> dict[str, dict[str, str]]:
    """Return, for Pythons and for PyTorch releases of a matrix, the command that measures each."""
    if matrix is None:
        return {}
    first = f"ivhl bench --python {matrix.pythons[0]}"
    return {
        "Python": {python: f"ivhl bench --python {python}" for python in matrix.pythons},
        RELEASE: {one: f"{first} --torch {one}" for one in matrix.releases("extended")},
    }


def narrow(
    items: Sequence[T], matrix: Matrix | None, **options: str | Sequence[str] | None
) -> tuple[T, ...]:
    """Return the items that all options leave.

    Args:
        items: Entries of the index, or rows of cases.
        matrix: The matrix, if it is valid.
        options: Field, such as ``python``, ``torch`` or ``machine``, to the texts of its option.

    Raises:
        ResultsError: If no item is left, or what a text names was not measured.
        UnknownNameError: If a name is unknown.
    """
    commands = commands_of(matrix)
    found = tuple(items)
    for field, given in options.items():
        if given:
            kind = _KINDS.get(field, field)
            texts = [given] if isinstance(given, str) else given
            known = {_value(item, field) for item in items} - {""}  # not run: no machine
            chosen = recorded(kind, texts, known, commands.get(kind))
            found = tuple(item for item in found if _value(item, field) in chosen)
    if items and not found:
        raise nothing_left()
    return found


def nothing_left() -> ResultsError:
    """Return the error of a command whose options leave no record."""
    return ResultsError(
        "no record matches all of these options",
        hint="leave out an option; ivhl results lists the records",
    )


def _value(item: object, field: str) -> str:
    """Return a field of an item, or of its case."""
    value: str = getattr(item if hasattr(item, field) else item.case, field)  # type: ignore[attr-defined]
    return value
