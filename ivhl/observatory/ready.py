"""On which Python and PyTorch do all dependencies of a project compile, and which hold it back?"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from packaging.specifiers import SpecifierSet
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ivhl.errors import ResultsError, SpecError
from ivhl.matrix.spec import explain, read_plain
from ivhl.observatory.record import Python, Release  # noqa: TC001  (pydantic reads them)
from ivhl.observatory.views import BAD_WORDS, RIGHT_WORDS, VERDICTS, WORDS, key_of, load_libraries
from ivhl.shipped import shipped_records
from ivhl.tracker.support.compat import is_prerelease, python_key, release_key
from ivhl.tracker.support.spans import spans, spans_sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ivhl.observatory.dependencies import Dependencies

NOT_RUN: Final = VERDICTS["not_run"][0]
# The checkout that this ivhl is run from.
_HINT: Final = "--records FILE reads the observatory.json of a site"
_LARGEST: Final = 256 << 20


class TriedCell(NamedTuple):
    """A Python with a PyTorch release; a newer release is a newer cell."""

    torch: str
    python: str

    def __str__(self) -> str:
        """Return e.g. ``PyTorch 2.15.0 on Python 3.14``."""
        return f"PyTorch {self.torch} on Python {self.python}"

    @property
    def age(self) -> tuple[object, ...]:
        """What orders cells, the oldest first."""
        return release_key(self.torch), python_key(self.python)


class CaseVerdict(NamedTuple):
    """The verdict on a case of a library in a cell.

    Attributes:
        case: Case and what was asked of it.
        word: The word of ``views.VERDICTS``.
        why: The reason in a line.
        version: The version tried; empty if none could be installed.
        at: When, in UTC; empty if the file does not say.
    """

    case: str
    word: str
    why: str
    version: str
    at: str = ""


_Verdicts: TypeAlias = dict[str, dict[TriedCell, list[CaseVerdict]]]


class Judged(NamedTuple):
    """A dependency in a cell.

    Attributes:
        word: The worst of its cases; ``not run`` if the observatory did not try it in this cell.
        why: The reason, unless it works.
        version: The version that was tried; empty if none was.
        asked: The versions that the project asks for, if it forbids the one tried.
        over_releases: The words over all releases on this Python, e.g. ``works 2.4.1 to 2.15.0``.
        at: When it was tried, the oldest of its cases; empty if it is not known.
    """

    name: str
    word: str
    why: str
    version: str
    asked: str
    over_releases: str
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """The answer for a project.

    Attributes:
        pair: The judged cell: the newest of the allowed cells in which most of the dependencies
            were tried; ``None`` if none of them was.
        newer: The newest cell that it allows, if its release is newer.
        judged: The dependencies that the observatory tries, the worst first.
        unknown: Names of others that require torch, and what is from no index.
        others: Number of the rest: they do not require torch, or the file does not say.
        newest: The newest cell in which all are known to compile, whatever release is asked for;
            on another Python than the one judged for only if there is none on it.
        is_allowed: Whether the project allows that cell.
        later: The newest of those newer cells in which the fewest dependencies do not compile.
        holding: The names of these.
        tried: All cells in which any was tried on a Python that it allows, the newest first; on
            any Python, if there is none.
    """

    pair: TriedCell | None
    newer: TriedCell | None
    judged: tuple[Judged, ...]
    unknown: tuple[str, ...]
    others: int
    newest: TriedCell | None
    is_allowed: bool
    later: TriedCell | None
    holding: tuple[str, ...]
    tried: tuple[TriedCell, ...]

    @property
    def bad(self) -> tuple[str, ...]:
        """Names of what is known not to compile in the cell."""
        return tuple(o.name for o in self.judged if o.word in BAD_WORDS)


def readiness(
    asked: Dependencies,
    observed: Mapping[str, Mapping[TriedCell, Sequence[CaseVerdict]]],
    *,
    python: str = "",
    torch: str = "",
) -> Readiness:
    """Judge the dependencies of a project.

    Args:
        asked: The dependencies.
        observed: What the observatory knows.
        python: Judge for this Python, allowed or not; if empty, for one that is allowed.
        torch: Judge for this release or pre-release; if empty, for a release that is allowed.
    """
    names = dict.fromkeys(one.name for one in asked.packages if one.name != "torch")
    known = {name: observed[name] for name in names if name in observed}
    every = {
        p for of in known.values() for p in of if p.torch == torch or not is_prerelease(p.torch)
    }
    pairs = {one for one in every if one.python == python or asked.allows(one.python)}
    words = {
        pair: {
            name: _word(verdicts.get(pair, ()))
            for name, verdicts in known.items()
            if asked.versions(name, pair.python) is not None
        }
        for pair in pairs
    }
    pair, newer = _chosen(asked, words, _forbidden_in(asked, known, words), python, torch)
    released = {one: found for one, found in words.items() if not is_prerelease(one.torch)}
    compiles = [p for p, of in released.items() if of and RIGHT_WORDS.issuperset(of.values())]
    here = {one: found for one, found in released.items() if python in ("", one.python)}
    newest = max(compiles, key=lambda one: (one in here, one.age), default=None)
    later, holding = _later(here, newest if newest in here else None)
    judged = [] if pair is None else [_judged(asked, one, known[one], pair) for one in words[pair]]
    rest = [one for one in asked.on_linux if one.name not in known and one.name != "torch"]
    unknown = {one.name for one in rest if one.needs_torch}
    return Readiness(
        pair=pair,
        newer=newer,
        judged=tuple(sorted(judged, key=lambda one: (_rank(one.word), one.name))),
        unknown=(*sorted(unknown), *asked.unread),
        others=len({one.name for one in rest} - unknown),
        newest=newest,
        is_allowed=bool(newest and asked.allows(newest.python) and _allows_torch(asked, newest)),
        later=later,
        holding=holding,
        tried=tuple(sorted(pairs or every, key=lambda one: one.age, reverse=True)),
    )


def _chosen(
    asked: Dependencies,
    words: Mapping[TriedCell, Mapping[str, str]],
    forbidden: Mapping[TriedCell, int],
    python: str,
    torch: str,
) -> tuple[TriedCell | None, TriedCell | None]:
    """Return the allowed cell with most verdicts, and the newest one if its release is newer."""
    on = Counter(pair.python for pair, found in words.items() for _ in found)

    def worth(pair: TriedCell) -> tuple[Any, ...]:
        tried = sum(word != NOT_RUN for word in words[pair].values())
        allowed = tried - forbidden[pair]
        return allowed, tried, release_key(pair.torch), on[pair.python], pair.age

    allowed = [
        pair
        for pair, found in words.items()
        if found
        and (not python or pair.python == python)
        and (pair.torch == torch if torch else _allows_torch(asked, pair))
    ]
    if not allowed:
        return None, None
    best = max(allowed, key=worth)
    newest = max(allowed, key=lambda pair: (release_key(pair.torch), worth(pair)))
    return best, newest if newest.torch != best.torch else None


def _forbidden_in(
    asked: Dependencies,
    known: Mapping[str, Mapping[TriedCell, Sequence[CaseVerdict]]],
    words: Mapping[TriedCell, Mapping[str, str]],
) -> Mapping[TriedCell, int]:
    """Return of how many dependencies a cell has tried a version that the project forbids."""
    return Counter(
        pair
        for pair, found in words.items()
        for name in found
        if _forbidden(asked, name, known[name].get(pair, ()), pair)
    )


def _forbidden(
    asked: Dependencies, name: str, verdicts: Sequence[CaseVerdict], pair: TriedCell
) -> str:
    """Return a version that was tried and that the project forbids; empty if there is none."""
    versions = asked.versions(name, pair.python) or SpecifierSet()
    tried = (one.version for one in verdicts if one.version)
    return next((one for one in tried if not versions.contains(one, prereleases=True)), "")


def _allows_torch(asked: Dependencies, pair: TriedCell) -> bool:
    """Return whether a project allows the release, or another patch of it: few were tried."""
    major, minor = pair.torch.split(".")[:2]
    patches = (pair.torch, *(f"{major}.{minor}.{patch}" for patch in range(10)))
    versions = asked.versions("torch", pair.python)
    return versions is None or any(versions.contains(one, prereleases=True) for one in patches)


def _word(verdicts: Sequence[CaseVerdict]) -> str:
    """Return the worst of the words of the cases of a library in a cell."""
    return min((one.word for one in verdicts), key=_rank, default=NOT_RUN)


def _rank(word: str) -> tuple[bool, int]:
    """Return what orders words, the worst first."""
    return word not in BAD_WORDS, WORDS.index(word)


def _judged(
    asked: Dependencies,
    name: str,
    verdicts: Mapping[TriedCell, Sequence[CaseVerdict]],
    pair: TriedCell,
) -> Judged:
    here = verdicts.get(pair, ())
    word = _word(here)
    worst = next((one for one in here if one.word == word and word not in RIGHT_WORDS), None)
    forbidden = _forbidden(asked, name, here, pair)
    over = {
        one.torch: _word(found)
        for one, found in verdicts.items()
        if one.python == pair.python and (one == pair or not is_prerelease(one.torch))
    }
    return Judged(
        name=name,
        word=word,
        why=f"{worst.case}, {worst.why.removeprefix(f'{word} ')}" if worst else "",
        version=forbidden or next((one.version for one in here if one.version), ""),
        asked=str(asked.versions(name, pair.python)) if forbidden else "",
        over_releases=spans_sentence(spans(over)),
        at=min((one.at for one in here), default=""),
    )


def _later(
    words: Mapping[TriedCell, Mapping[str, str]], newest: TriedCell | None
) -> tuple[TriedCell | None, tuple[str, ...]]:
    """Return the cell after the newest good one in which the fewest do not compile, and these."""
    bad = {
        pair: tuple(sorted(name for name, word in found.items() if word in BAD_WORDS))
        for pair, found in words.items()
        if found
        and (newest is None or pair.age > newest.age)
        and (BAD_WORDS | RIGHT_WORDS).issuperset(found.values())
    }
    later = max(bad, key=lambda one: (-len(bad[one]), one.age), default=None)
    return later, bad.get(later, ()) if later else ()


class _SiteRow(BaseModel):
    """The fields that are read of a row of the site's ``observatory.json``."""

    model_config = ConfigDict(frozen=True, strict=True)

    library: str
    case: str
    ask: str
    python: Python
    torch: Release
    verdict: Literal[WORDS]  # type: ignore[valid-type]
    why: str
    version: str | None
    at: str = ""


class _Site(BaseModel):
    model_config = ConfigDict(frozen=True)

    schema_: Literal["ivhl.observatory/1"] = Field(alias="schema")
    rows: tuple[_SiteRow, ...]


def read_observatory(path: Path | None) -> tuple[_Verdicts, tuple[str, ...]]:
    """Return verdicts by library and cell, and the problems of records that cannot be read.

    Args:
        path: The ``observatory.json`` of a site; ``None`` for the records that ship with ivhl.

    Raises:
        SpecError: If it cannot be read, or is not such a file.
        ResultsError: If this ivhl was installed without records.
    """
    found: _Verdicts = defaultdict(lambda: defaultdict(list))
    if path is None:
        libraries, problems = load_libraries(shipped_records())
        if libraries is None:
            raise ResultsError("this ivhl was installed without the observatory", hint=_HINT)
        for one in libraries.newest:
            word = VERDICTS[key_of(one)][0]
            verdict = CaseVerdict(
                f"{one.case} {one.ask}", word, one.why, one.version or "", one.at
            )
            found[one.library][TriedCell(one.torch, one.python)].append(verdict)
        return found, problems
    try:
        rows = _Site.model_validate_json(read_plain(path, _LARGEST)).rows
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}", hint=_HINT) from error
    except ValidationError as error:
        raise SpecError(f"{path}: {explain(error, _Site)[0]}", hint=_HINT) from error
    for row in rows:
        name = f"{row.case} {row.ask}"
        verdict = CaseVerdict(name, row.verdict, row.why, row.version or "", row.at)
        found[row.library][TriedCell(row.torch, row.python)].append(verdict)
    return found, ()
