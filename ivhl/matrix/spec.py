"""Read and check the declaration of the matrix, ``envs/matrix.toml``."""

from __future__ import annotations

import datetime as dt
import errno
import json
import os
import re
import stat
import tomllib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeGuard, TypeVar, get_args

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from ivhl.errors import SpecError, UnknownNameError, nearest
from ivhl.records.record import Cell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

# ``next``: release candidates and nightlies, from the index that IVHL_NEXT_INDEX names.
Tier = Literal["default", "extended", "next"]
_T = TypeVar("_T")
_M = TypeVar("_M", bound=BaseModel)
# Bytes of a text that a person or a tool wrote: a lock of a thousand packages has two million.
LARGEST_TEXT: Final = 16 << 20

# Few digits: Python makes no integer of thousands.
_PIN = re.compile(r"==[^*=,\s]+")
_PYTHON = re.compile(r"3\.(0|[1-9][0-9]{0,3})(t?)")

# pydantic's errors as rules that need no knowledge of pydantic.
_RULES = {
    "string_type": "must be a string in quotes",
    "missing": "must be there",
    "date_type": "must be a date like 2026-11-15, without quotes",
    "date_from_datetime_inexact": "must be a date like 2026-11-15, without a time",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "too_short": "must not be empty",
    "string_too_short": "must not be empty",
    "extra_forbidden": "is no known key",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
}


def _python(text: str) -> str:
    if not _PYTHON.fullmatch(text):
        raise ValueError("must be a Python like 3.13, or 3.14t for a free-threaded one")
    return text


def _release(text: str) -> str:
    try:
        canonical = canonical_release(text)
    except ValueError as error:
        raise ValueError(f"must be a PyTorch release like 2.6.0: {error}") from None
    if canonical != text:
        raise ValueError(f"must be written as {canonical}")
    return text


def canonical_release(text: str) -> str:
    """Return the canonical form of a release, so that it has one cell: ``2.6`` is ``2.6.0``.

    Raises:
        ValueError: If it is not a version, or a local version, which no registry holds.
    """
    try:
        version = Version(text)
    except InvalidVersion:
        raise ValueError("not a version") from None
    if version.local:
        raise ValueError(f"a local version (+{version.local}) is in no package registry")
    written = ".".join(map(str, version.release))
    numbers = written.split(".")
    while len(numbers) > 3 and numbers[-1] == "0":  # noqa: PLR2004  (major, minor, patch)
        numbers.pop()
    numbers += ["0"] * (3 - len(numbers))
    return str(version).replace(written, ".".join(numbers), 1)


def split_pin(text: str) -> tuple[str, str]:
    """Return name and version of a pin, the name in its canonical form.

    Raises:
        ValueError: If it is not pinned, or says more.
    """
    try:
        one = Requirement(text)
    except InvalidRequirement:
        raise ValueError("must be a requirement like flit_core==3.12.0") from None
    if not _PIN.fullmatch(str(one.specifier)) or one.marker or one.url or one.extras:
        raise ValueError("must be pinned and nothing more, like flit_core==3.12.0")
    return canonicalize_name(one.name), next(iter(one.specifier)).version


def _pinned(text: str) -> str:
    split_pin(text)
    return text


def _required(text: str) -> str:
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        raise ValueError("must be a requirement like numpy>=2") from None
    if requirement.url:
        raise ValueError("must come from a registry, not from an address")
    return text


def _name_of(text: str) -> str:
    return canonicalize_name(Requirement(text).name)


def _without_torch(listed: tuple[str, ...]) -> tuple[str, ...]:
    if "torch" in map(_name_of, listed):
        raise ValueError("must not name torch, whose releases are [[torch]] rows")
    return listed


def _once(key: Callable[[Any], str]) -> AfterValidator:
    """Return a check that no two rows have the same key."""

    def check(rows: tuple[_T, ...]) -> tuple[_T, ...]:
        for name, count in Counter(map(key, rows)).items():
            if count > 1:
                raise ValueError(f"must not list {name} twice")
        return rows

    return AfterValidator(check)


Python = Annotated[str, AfterValidator(_python)]
Release = Annotated[str, AfterValidator(_release)]
Pinned = Annotated[str, AfterValidator(_pinned)]
Required = Annotated[str, AfterValidator(_required)]
Text = Annotated[str, Field(min_length=1)]
# TOML has lists, not tuples, so such fields are not strict; their items are.
Pins = Annotated[
    tuple[Pinned, ...], Field(strict=False), _once(_name_of), AfterValidator(_without_torch)
]


@dataclass(frozen=True, slots=True)
class CellSpec:
    """One cell of the matrix: a Python and a PyTorch release.

    Attributes:
        python: As in the matrix, e.g. ``3.12`` or ``3.14t``.
        torch: PyTorch release, e.g. ``2.6.0``.
    """

    python: str
    torch: str

    @property
    def id(self) -> str:
        """Name of the cell everywhere; made from the fields, never parsed."""
        return f"py{self.python}-torch{self.torch}"

    def as_recorded(self, lock_sha256: str | None) -> Cell:
        """Return the cell as records name it, with its lock; ``None`` if no lock describes it."""
        return Cell(id=self.id, python=self.python, torch=self.torch, lock_sha256=lock_sha256)


class StrictModel(BaseModel):
    """The model of a file. Other keys, and values of other types, are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class PythonRow(StrictModel):
    """A Python of the matrix."""

    version: Python
    tier: Tier = "default"


class TorchRow(StrictModel):
    """A PyTorch release of the matrix."""

    release: Release
    tier: Tier

    @field_validator("tier")
    @classmethod
    def _next_if_early(cls, tier: Tier, info: ValidationInfo) -> Tier:
        release = info.data.get("release")
        if release and Version(release).is_prerelease and tier != "next":
            raise ValueError('must be "next" for a pre-release')
        return tier


class Forced(StrictModel):
    """A package that only some Pythons have, for a reason outside this project.

    Attributes:
        torch: Release to which this applies.
        package: Name of the package.
        pythons: The Pythons that have it; all others lack it.
        reason: Why; shown with the difference.
    """

    torch: Release
    package: Text
    pythons: Annotated[tuple[Python, ...], Field(strict=False, min_length=1)]
    reason: Text


class Matrix(StrictModel):
    """Every environment that can be measured.

    Attributes:
        also: Pinned packages that every cell holds.
        requires: What the project needs to run and to be built; each cell's lock pins it for its
            Python and its release.
        built: Packages without a wheel, which are built from their source distribution once.
    """

    # PyTorch had no release before, and the day after the last date does not exist.
    exclude_newer: Annotated[dt.date, Field(ge=dt.date(2016, 1, 1), le=dt.date(2999, 12, 31))] = (
        Field(alias="exclude-newer")
    )
    platform: Text
    also: Pins = ()
    # A requirement may have a line for each marker.
    requires: Annotated[
        tuple[Required, ...], Field(strict=False), AfterValidator(_without_torch)
    ] = ()
    built: Pins = ()
    python_rows: Annotated[
        tuple[PythonRow, ...], Field(strict=False, min_length=1), _once(lambda row: row.version)
    ] = Field(alias="python")
    torch_rows: Annotated[
        tuple[TorchRow, ...], Field(strict=False, min_length=1), _once(lambda row: row.release)
    ] = Field(alias="torch")
    forced: Annotated[
        tuple[Forced, ...],
        Field(strict=False),
        _once(lambda row: f"{row.package} of {row.torch}"),
    ] = ()

    @field_validator("forced")
    @classmethod
    def _has_rows(cls, forced: tuple[Forced, ...], info: ValidationInfo) -> tuple[Forced, ...]:
        pythons, releases = (info.data.get(key, ()) for key in ("python_rows", "torch_rows"))
        if pythons and releases:  # otherwise they have mistakes of their own
            there = {row.version for row in pythons} | {row.release for row in releases}
            for name in (name for row in forced for name in (row.torch, *row.pythons)):
                if name not in there:
                    raise ValueError(f"must name a Python or release with a row, unlike {name}")
        return forced

    @property
    def pythons(self) -> tuple[str, ...]:
        """Every Python, oldest first; a free-threaded one after the normal one."""
        return tuple(sorted((row.version for row in self.python_rows), key=_python_key))

    @property
    def newest_python(self) -> str:
        """The newest Python; a free-threaded one only if there is no other."""
        return max(
            self.pythons, key=lambda python: (not python.endswith("t"), _python_key(python))
        )

    def pythons_of(self, tier: Tier) -> tuple[str, ...]:
        """Return the Pythons of the tier, in order; the others include ``default``."""
        among = {row.version for row in self.python_rows if row.tier in (tier, "default")}
        return tuple(python for python in self.pythons if python in among)

    def releases(self, tier: Tier = "default") -> tuple[str, ...]:
        """Return the releases of the tier, oldest first; ``extended`` includes ``default``."""
        tiers = {"extended": ("default", "extended")}.get(tier, (tier,))
        return tuple(sorted((r.release for r in self.torch_rows if r.tier in tiers), key=Version))

    @property
    def every_release(self) -> tuple[str, ...]:
        """The releases of all tiers; those of ``next`` last."""
        return (*self.releases("extended"), *self.releases("next"))

    def tier(self, cell: CellSpec) -> Tier | None:
        """Return the tier of the cell; ``None`` if its release is not in the matrix."""
        if cell.torch in self.releases("next"):
            return "next"
        if cell.torch not in self.releases("extended"):
            return None
        default = self.pythons_of("default"), self.releases("default")
        return "default" if cell.python in default[0] and cell.torch in default[1] else "extended"

    def release(self, text: str) -> str:
        """Return the canonical release for a text; it need not be in the matrix.

        Two numbers, e.g. ``2.6``, mean the newest release of that series in the matrix, if any.

        Raises:
            SpecError: If the text is not a release; names the nearest.
        """
        try:
            return canonical_release(newest_of(text, self.every_release))
        except ValueError as error:
            known = self.releases("extended")
            raise SpecError(
                f"PyTorch release: must be a version like {known[-1]}: {error} (got {text!r})",
                hint=nearest(text, known),
            ) from None

    def cells(
        self,
        pythons: Sequence[str] = (),
        releases: Sequence[str] = (),
        tier: Tier = "default",
    ) -> tuple[CellSpec, ...]:
        """Return cells without duplicates, ordered by Python, then release.

        Args:
            pythons: Pythons of the matrix; empty means those of the tier, or all if there are
                ``releases``.
            releases: Releases, in the matrix or not; empty means those of the tier.
            tier: Used for what is empty.

        Raises:
            UnknownNameError: If a Python is not in the matrix.
            SpecError: If a release is not valid.
        """
        for python in pythons:
            if python not in self.pythons:
                raise UnknownNameError("Python", python, self.pythons)
        chosen = {self.release(r) for r in releases} if releases else set(self.releases(tier))
        among = pythons or self.pythons_of("extended" if releases else tier)
        return tuple(
            CellSpec(python=python, torch=release)
            for python in self.pythons
            if python in among
            for release in sorted(chosen, key=Version)
        )


def newest_of(text: str, releases: Iterable[str]) -> str:
    """Return the newest release of a series such as ``2.6``; any other text unchanged.

    A pre-release is it only among pre-releases.
    """
    if not re.fullmatch(r"\d+\.\d+", text):
        return text
    found = (r for r in releases if r.startswith(f"{text}."))
    return max(found, key=lambda r: (not Version(r).is_prerelease, Version(r)), default=text)


def read_plain(path: Path, largest: int = LARGEST_TEXT) -> bytes:
    """Return the content of a file that somebody else may have put there; links are followed.

    Reading a pipe would wait without end, and a device may have none.

    Args:
        path: The file.
        largest: Bytes that it may have.

    Raises:
        OSError: If it cannot be read, is no plain file, or is larger.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "must be a plain file", str(path))
        # Files of /proc have a size of 0, and a file may grow.
        data = file.read(largest + 1) if status.st_size <= largest else b""
    if max(len(data), status.st_size) > largest:
        raise OSError(errno.EFBIG, f"must have at most {largest} bytes", str(path))
    return data


def read_toml(path: Path, hint: str) -> dict[str, Any]:
    """Return the content of a file of TOML (``read_plain``).

    Raises:
        SpecError: If it cannot be read, or is not TOML.
    """
    try:
        text = read_plain(path).decode()
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}", hint=hint) from error
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: must be UTF-8: {error}", hint=hint) from error
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also integers of 5,000 digits, deep nesting
        raise SpecError(f"{path.name}: is not valid TOML: {error}", hint=hint) from error


def validated(model: type[_M], raw: object, place: str, hint: str) -> _M:
    """Return what a model makes of the content of a file.

    Raises:
        SpecError: If it breaks rules; reports every mistake.
    """
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        lines = [f"{place}: {mistake}" for mistake in explain(error, model)]
        raise SpecError("\n".join(lines), hint=hint) from error


def toml_text(text: str) -> str:
    """Return a text as a basic string of TOML, which is one of JSON without halves of characters."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def load_matrix(path: Path) -> Matrix:
    """Read and check the matrix.

    Raises:
        SpecError: If the file cannot be read, is not TOML, or breaks rules; reports every mistake
            with its place, the rule and the value.
    """
    hint = f"correct {path}; its comments explain each key"
    return validated(Matrix, read_toml(path, hint), path.name, hint)


def explain(error: ValidationError, model: type[BaseModel], place: str = "") -> list[str]:
    """Return one line per mistake: its place, the rule and the value.

    Args:
        error: Error from pydantic.
        model: The model that pydantic checked.
        place: Place of the table in its file; empty for the whole file.
    """
    return [
        _explain(mistake, model, place)
        for mistake in error.errors(include_url=False)
        # pydantic counts only the valid items of a list; the invalid ones are reported already.
        if not (mistake["type"] == "too_short" and mistake["input"])
    ]


def _explain(mistake: Any, model: type[BaseModel], table: str) -> str:  # noqa: ANN401  (pydantic's)
    loc = mistake["loc"]
    place = ".".join(map(str, [table, *loc] if table else loc))
    kind = mistake["type"]
    if kind == "value_error":
        rule = str(mistake["ctx"]["error"])
    elif kind == "literal_error":
        rule = f"must be {mistake['ctx']['expected']}"
    else:
        rule = _RULES.get(kind, re.sub(r"^\w+ should ", "must ", mistake["msg"]))
    if kind == "missing" or not loc:  # the value is a whole table
        return f"{place}: {rule}".removeprefix(": ")
    if kind == "extra_forbidden":
        keys = sorted(_keys_at(model, loc[:-1]))
        return f"{place}: {rule}; {nearest(str(loc[-1]), keys)}"
    return f"{place}: {rule} (got {_shown(mistake['input'])})"


def _shown(value: object) -> str:
    """Return the value roughly as written, cut to 60 characters."""
    try:
        text = value.isoformat() if hasattr(value, "isoformat") else repr(value)
    except (ValueError, RecursionError):  # an integer of 5,000 digits, in base 16; deep nesting
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= 60 else text[:57] + "..."  # noqa: PLR2004  (fits a line)


def _keys_at(model: type[BaseModel], parents: Iterable[int | str]) -> Iterator[str]:
    """Yield the keys allowed in the table at this place."""
    for part in parents:
        for name, field in model.model_fields.items():
            if part in (name, field.alias):
                rows = (field.annotation, *get_args(field.annotation))
                model = next((r for r in rows if _is_model(r)), model)
    for name, field in model.model_fields.items():
        yield field.alias or name


def _is_model(kind: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _python_key(python: str) -> tuple[int, str]:
    match = _PYTHON.fullmatch(python)
    if match is None:  # the model has checked it
        raise ValueError(python)
    return int(match[1]), match[2]
