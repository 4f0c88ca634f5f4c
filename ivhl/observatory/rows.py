"""Read the table of the observatory, ``observatory/libraries.toml``: a row for each library."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pydantic import Field

from ivhl.errors import SpecError
from ivhl.matrix.spec import Required, StrictModel, Text, read_toml, validated
from ivhl.observatory.record import LONGEST_MESSAGE, Ask
from ivhl.records.files import without_links
from ivhl.script.trying import read_target

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ivhl.measure.target_spec import Target

TABLE: Final = "libraries.toml"
_HINT: Final = "observatory/README.md describes a row"
_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_CASE: Final = re.compile(r"\w[\w.-]{0,59}")
# Its folder comes before the packages: a file named kornia.py would be imported in their place.
_FILE: Final = re.compile(r"functions/\w+_cases\.py")


class _RowTable(StrictModel):
    rank: Annotated[int, Field(gt=0)] | None = None
    requirement: Required | None = None
    others: Annotated[tuple[Required, ...], Field(strict=False, alias="with")] = ()
    cases: Annotated[dict[str, Any], Field(min_length=1)]


class _CaseTable(StrictModel):
    target: Annotated[Text, Field(max_length=LONGEST_MESSAGE)]
    inputs: Annotated[tuple[str, ...], Field(strict=False)] = ()
    asks: Annotated[tuple[Ask, ...], Field(strict=False, min_length=1)] = ("forward", "step")


@dataclass(frozen=True, kw_only=True, slots=True)
class AskedCase:
    """What is asked of one case of a library.

    Attributes:
        case: Its name.
        text: The target, as the row has it.
        target: The same for ``Trials.run``.
        folder: Where its module is, if it is not installed.
        row: SHA-256 of all that the row says of it, and of its file.
    """

    case: str
    ask: Ask
    text: str
    target: Target
    folder: Path | None
    row: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Library:
    """A row of the table.

    Attributes:
        name: At PyPI.
        rank: Place among the most downloaded packages; infinite if it is not on the list.
        requirements: What is laid over a cell: the library, then what else it needs.
    """

    name: str
    rank: float
    requirements: tuple[str, ...]
    questions: tuple[AskedCase, ...]


def read_rows(folder: Path, tell: Callable[[str], object] | None = None) -> list[Library]:
    """Return the libraries of ``folder/libraries.toml``, the most downloaded first.

    Args:
        folder: ``observatory`` of a checkout.
        tell: Called with each row that breaks a rule and is left out; without it, that is an error.

    Raises:
        SpecError: If the table cannot be read, or a row breaks a rule; names table and key.
    """
    found = []
    for name, row in read_toml(folder / TABLE, _HINT).items():
        try:
            found.append(_library(folder, name, row))
        except SpecError as error:
            if tell is None:
                raise
            tell(f"left out: {error}")
    return sorted(found, key=lambda one: (one.rank, one.name))


def _library(folder: Path, name: str, raw: object) -> Library:
    place = f"{TABLE}: [{name}]"
    # One form of a name, so that TOML itself refuses a second row of it.
    if not _NAME.fullmatch(name):
        raise SpecError(
            f"{place}: must be a name as in addresses of PyPI",
            hint=f"[{canonicalize_name(name)}]",
        )
    row = validated(_RowTable, raw, place, _HINT)
    requirements = (row.requirement or name, *row.others)
    if canonicalize_name(Requirement(requirements[0]).name) != name:
        raise SpecError(
            f"{place}: requirement: must name {name} (got {row.requirement!r})",
            hint="`with` lists requirements of other packages",
        )
    if any(canonicalize_name(Requirement(one).name) == "torch" for one in requirements):
        raise SpecError(f"{place}: with: must not name torch", hint="the cell has it")
    questions = [
        question
        for case, about in row.cases.items()
        for question in _questions(folder, f"{TABLE}: [{name}.cases]", case, about, requirements)
    ]
    return Library(
        name=name,
        rank=math.inf if row.rank is None else row.rank,
        requirements=requirements,
        questions=tuple(questions),
    )


def _questions(
    folder: Path, table: str, case: str, raw: object, requirements: tuple[str, ...]
) -> list[AskedCase]:
    place = f"{table} {case}"
    if not _CASE.fullmatch(case):
        raise SpecError(
            f"{place}: must have up to 60 letters, digits, dots and hyphens", hint=_HINT
        )
    about = validated(_CaseTable, {"target": raw} if isinstance(raw, str) else raw, place, _HINT)
    file = _file_of(folder, place, about.target)
    found = []
    for ask in dict.fromkeys(about.asks):
        try:
            target, where = read_target(
                about.target, about.inputs, step=ask == "step", beside=folder
            )
        except SpecError as error:
            raise SpecError(f"{place}: {error}", hint=error.hint) from error
        said = [*requirements, about.target, about.inputs, ask, file]
        found.append(
            AskedCase(
                case=case,
                ask=ask,
                text=about.target,
                # What compiles for a larger batch is shown by forward, at half the price.
                target=target._replace(larger=ask == "forward" or "forward" not in about.asks),
                folder=where,
                row=hashlib.sha256(json.dumps(said).encode()).hexdigest(),
            )
        )
    return found


def _file_of(folder: Path, place: str, target: str) -> str:
    """Return the content of the file that a target is in; empty if it is in a package.

    Raises:
        SpecError: If it is not a file of ``functions/``.
    """
    name = target.partition(":")[0]
    if not name.endswith(".py"):
        return ""
    rule = "must be functions/NAME_cases.py, a file beside the table"
    if not _FILE.fullmatch(name):
        raise SpecError(f"{place}: target: {rule} (got {name!r})", hint=_HINT)
    try:
        return without_links(folder / name, folder).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise SpecError(f"{place}: target: {name}: {rule}: {error}", hint=_HINT) from error
