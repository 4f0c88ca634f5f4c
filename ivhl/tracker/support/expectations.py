"""Known failures of a project, and reasons of changes: ``envs/expectations.toml``.

A failure that an entry expects is no news. A case that passes although an entry expects it to fail
is *fixed*, and the entry must go, so that the same failure would be news again.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, Field, model_validator

from ivhl.errors import SpecError
from ivhl.matrix.spec import StrictModel, read_toml, validated
from ivhl.records.identity import CaseInCell, type_of
from ivhl.records.record import FailureClass  # noqa: TC001  (pydantic reads it)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self


EXPECTATIONS: Final = Path("envs", "expectations.toml")
_HINT = f"correct {EXPECTATIONS}; docs/expectations.md has the keys"
# Matching takes longer than linearly, and no name is as long.
_LONGEST_PATTERN = 200
_ANY = "*"


def _specifier(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        raise ValueError("must be a range of versions like >=2.5,<2.6, or empty for all") from None
    return text


def _link(text: str) -> str:
    if not text.startswith(("https://", "http://")):  # pages link to it
        raise ValueError("must be an address that begins with https:// or http://")
    return text


def _reason(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    return text


Specifier = Annotated[str, AfterValidator(_specifier)]
Pattern = Annotated[str, Field(min_length=1, max_length=_LONGEST_PATTERN)]
Link = Annotated[str, AfterValidator(_link)]
Reason = Annotated[str, AfterValidator(_reason)]


class _Cases(StrictModel):
    """Cases in cells.

    Names of workloads, variants, sizes and machines are patterns with ``*`` and ``?``.

    Attributes:
        python: Pythons, e.g. ``>=3.13``; ``3.14t`` counts as 3.14.
        torch: PyTorch releases, e.g. ``>=2.5,<2.6``.
        device: Its type, ``cpu`` or ``cuda``.
        free_threaded: Only free-threaded Pythons, or only others; ``None`` for both.
        reason: Why, for a person.
        link: A report of it.
    """

    python: Specifier = ""
    torch: Specifier = ""
    workload: Pattern = _ANY
    variant: Pattern = _ANY
    size: Pattern = _ANY
    device: Pattern = _ANY
    machine: Pattern = _ANY
    free_threaded: bool | None = Field(default=None, alias="free-threaded")
    reason: Reason
    link: Link | None = None

    def covers(self, case: CaseInCell) -> bool:
        """Return whether this says something about a case."""
        return (
            self.free_threaded in (None, case.python.endswith("t"))
            and within(self.torch, case.torch)
            and within(self.python, case.python.removesuffix("t"))
            and fnmatchcase(type_of(case.device), self.device)
            and fnmatchcase(case.workload, self.workload)
            and fnmatchcase(case.variant, self.variant)
            and fnmatchcase(case.size, self.size)
            and fnmatchcase(case.machine, self.machine)
        )

    @property
    def why(self) -> str:
        """The reason, with the link if there is one."""
        return f"{self.reason} ({self.link})" if self.link else self.reason


_C = TypeVar("_C", bound=_Cases)


class ChangeNote(_Cases):
    """Why cases change where they enter or leave a range of releases or Pythons, or at a commit.

    Attributes:
        commit: The commit, or the beginning of its hash; empty for a range.
    """

    commit: Annotated[str, Field(pattern=r"^([0-9a-f]{4,40})?$")] = ""

    @model_validator(mode="after")
    def _has_ends(self) -> Self:
        if not (self.commit or self.torch or self.python):
            raise ValueError("must have torch, python or commit: where the cases change")
        return self


class Expectation(_Cases):
    """One known failure.

    Attributes:
        failure_class: How it fails; a failure of another class is not expected.
    """

    python: Specifier
    torch: Specifier
    workload: Pattern
    failure_class: FailureClass = Field(alias="class")

    @property
    def title(self) -> str:
        """Where it holds and how it fails, in a line."""
        freed = {None: "", True: ", free-threaded", False: ", not free-threaded"}
        where = [f"Python {self.python or 'any'}{freed[self.free_threaded]}"]
        where += [f"PyTorch {self.torch or 'any'}"]
        # As cases are written elsewhere; a part that is not limited at the end is left out.
        names = [self.workload, self.size, self.variant]
        where += ["/".join(names) if names[1:] != [_ANY, _ANY] else self.workload]
        where += [name for name in (self.device, self.machine) if name != _ANY]
        return f"{', '.join(where)}: {self.failure_class}"


class _File(StrictModel):
    failure: Annotated[tuple[Expectation, ...], Field(strict=False)] = ()
    change: Annotated[tuple[ChangeNote, ...], Field(strict=False)] = ()


@dataclass(frozen=True, slots=True)
class Expectations:
    """All known failures of a project, and its notes on changes, in the order of the file."""

    entries: tuple[Expectation, ...] = ()
    notes: tuple[ChangeNote, ...] = ()

    def of(self, case: CaseInCell, failure_class: str | None) -> Expectation | None:
        """Return the entry that speaks of what a case did.

        Args:
            case: A measured case.
            failure_class: How it failed; ``None`` if it passed.

        Returns:
            For a failure the entry that expects it in this class; for a case that passed the one
            that expects it to fail: it is fixed.
        """
        mine = (one for one in self.entries if failure_class in (None, one.failure_class))
        return next((one for one in mine if one.covers(case)), None)


@lru_cache(maxsize=4096)  # few ranges and versions, asked of every case of every view
def within(specifier: str, version: str) -> bool:
    """Return whether a range has a version, pre-releases included; an odd name is in none.

    A range of all has also the empty version, of what was run with several.
    """
    if not specifier and not version:
        return True
    try:
        return SpecifierSet(specifier).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def load_expectations(root: Path) -> Expectations:
    """Return the known failures of the project at ``root``; none if it has no such file.

    Raises:
        SpecError: If the file cannot be read, is not TOML or breaks rules; reports every mistake.
    """
    path = root / EXPECTATIONS
    if not path.exists():
        return Expectations()
    found = validated(_File, read_toml(path, _HINT), EXPECTATIONS.name, _HINT)
    return Expectations(found.failure, found.change)


def read_expectations(root: Path) -> tuple[Expectations, list[str]]:
    """Return the known failures; if they cannot be read, none, and the mistakes, a line each."""
    try:
        return load_expectations(root), []
    except SpecError as error:
        return Expectations(), str(error).splitlines()


def never_covering(entries: Iterable[_C], cases: Iterable[CaseInCell]) -> tuple[_C, ...]:
    """Return the entries that speak of no case that was measured."""
    left = list(entries)
    for case in cases:
        left = [entry for entry in left if not entry.covers(case)]
        if not left:
            break
    return tuple(left)
