"""``ivhl advise PATH``: what the records say about a code base."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ivhl.cli.declared import results_folder, warn, warn_unread
from ivhl.cli.names import RELEASE, recorded
from ivhl.cli.screen import print_json, screen
from ivhl.errors import ResultsError, SpecError
from ivhl.init.allowed import read_allowed
from ivhl.matrix.locks import unavailable_path
from ivhl.matrix.project import MATRIX, find_root, load_project
from ivhl.matrix.spec import CellSpec, load_matrix
from ivhl.records.text import printable
from ivhl.syntax import read_trees
from ivhl.tracker.support.compat import python_key, release_key
from ivhl.tracker.terminal import Columns, Terminal
from ivhl.tracker.views.project import load_state
from ivhl.tracker.views.source import Source
from ivhl.tracker.wording import counted
from ivhl.version_checks.code_base import (
    CodeEvidence,
    recommendation,
    recommended,
    support_lines,
)
from ivhl.version_checks.find import checks_in
from ivhl.version_checks.sites import compile_sites

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ivhl.init.allowed import Allowed
    from ivhl.matrix.spec import Matrix
    from ivhl.syntax import Trees
    from ivhl.tracker.views.project import State
    from ivhl.version_checks.checks import FoundCheck
    from ivhl.version_checks.code_base import SupportLine
    from ivhl.version_checks.find import Found
    from ivhl.version_checks.sites import CompileSite

SCHEMA = "ivhl.code-advice/2"
_SITES = 3


class Asked(NamedTuple):
    """What the options of ``ivhl advise`` leave: texts as they were given; empty for all."""

    python: Sequence[str]
    torch: Sequence[str]
    machine: Sequence[str]
    device: str | None


class _Answer(NamedTuple):
    """What is printed of one kind of evidence."""

    evidence: CodeEvidence
    support: tuple[SupportLine, ...]
    cell: tuple[str, str] | None


class _Code(NamedTuple):
    """What the syntax trees tell."""

    trees: Trees
    sites: tuple[CompileSite, ...]
    checks: Found


class _Told(NamedTuple):
    """All that is printed.

    Attributes:
        cells: Those that the code base allows.
        own: By its own records.
        suite: By the records of other code.
    """

    allowed: Allowed
    code: _Code
    cells: tuple[tuple[str, str], ...]
    own: _Answer | None
    suite: _Answer | None

    @property
    def name(self) -> str:
        """Name and version."""
        return f"{self.allowed.name} {self.allowed.version}".strip()

    @property
    def best(self) -> tuple[str, str] | None:
        """The cell that is recommended: by its own records, if it has any."""
        answer = self.own or self.suite
        return None if answer is None else answer.cell

    @property
    def excluding(self) -> tuple[FoundCheck, ...]:
        """Its checks that keep code from being compiled in that cell."""
        found = self.code.checks.checks
        return tuple(g for g in found if self.best and g.excludes.holds(*self.best))

    @property
    def paragraph(self) -> str:
        """The recommendation."""
        own, suite = (answer and answer.evidence for answer in (self.own, self.suite))
        return recommendation(self.name, own, suite)


def advise_code_base(
    text: str,
    results: Path | None,
    asked: Asked,
    *,
    every: bool,
    as_json: bool,
) -> None:
    """Print what the records say about a code base.

    Raises:
        SpecError: If there is no such code, it has no Python that parses, its requirements do not
            parse, or they exclude every cell.
        ResultsError: If there is no record to speak of.
    """
    path = _code_at(text)
    code = _read(path)
    allowed = read_allowed(path)
    roots = _roots(allowed)
    matrices = [load_matrix(root / MATRIX) for root, _ in roots]
    cells = _asked_cells(_allowed_cells(allowed, matrices), asked)
    warn(printable(problem) for problem in code.trees.problems)
    unavailable = frozenset(
        cell
        for cell in cells
        if any(unavailable_path(root, CellSpec(*cell)).is_file() for root, _ in roots)
    )
    chosen: list[CodeEvidence] = []
    states: list[State] = []
    for root, is_own in roots:
        given = results if not is_own or len(roots) == 1 else None
        folder = results_folder(given, root)
        states.append(load_state(root, folder, history=False))
        warn_unread(map(printable, states[-1].problems), given)
        chosen += _evidence(states[-1], cells, unavailable, own=is_own)
    machines = recorded("machine", asked.machine, {one.machine for one in chosen})
    devices = recorded("device", asked.device and [asked.device], {one.device for one in chosen})
    wanted = [one for one in chosen if one.machine in machines and one.device in devices]
    own_answer, suite = (
        _answer([one for one in wanted if one.own is own]) for own in (True, False)
    )
    if own_answer is None and suite is None:
        raise ResultsError(
            f"no record speaks of a cell that {allowed.name} allows",
            hint="run this in an ivhl project with results",
        )
    told = _Told(allowed, code, cells, own_answer, suite)
    if as_json:
        print_json(SCHEMA, **_as_dict(told))
        return
    with screen(every=every, soft_wrap=False) as console:
        _print(console, told, {one for matrix in matrices for one in matrix.every_release})


def _read(path: Path) -> _Code:
    trees = read_trees(path)
    if not trees.files:
        hint = "name the folder of a Python project"
        if trees.problems:
            raise SpecError(f"{path}: no file of it parses: {trees.problems[0]}", hint=hint)
        raise SpecError(f"{path}: has no Python files", hint=hint)
    return _Code(trees, compile_sites(trees), checks_in(trees))


def _code_at(text: str) -> Path:
    """Return the folder or file that a text names, or the package of an installed distribution."""
    path = Path(text)
    if path.exists():
        return path
    if re.fullmatch(r"[A-Za-z0-9][\w.-]*", text):
        try:
            found = distribution(text)
        except PackageNotFoundError:
            pass
        else:
            inside = {Path(file).parts[0] for file in found.files or () if file.suffix == ".py"}
            wanted = canonicalize_name(text)
            packages = [found.locate_file(name) for name in sorted(inside)]
            named = [p for p in packages if canonicalize_name(Path(str(p)).stem) == wanted]
            if chosen := (named or packages)[:1]:
                return Path(str(chosen[0]))
    raise SpecError(
        f"{text}: there is no such file or folder, and no such distribution is installed here",
        hint="name a folder, e.g. that of an unpacked source distribution",
    )


def _roots(allowed: Allowed) -> list[tuple[Path, bool]]:
    """Return the ivhl projects whose records count, and whether they are those of the code base.

    Its own ones are in it, or in the project here if that requires it.
    """
    found = [(allowed.base.resolve(), True)] if (allowed.base / MATRIX).is_file() else []
    try:
        here = find_root().resolve()
    except SpecError:
        if not found:
            raise
    else:
        if not found or here != found[0][0]:
            found.append((here, not found and _measures(here, allowed)))
    return found


def _measures(here: Path, allowed: Allowed) -> bool:
    """Return whether a project is a code base, or requires this version of it."""
    name = canonicalize_name(allowed.name)
    if canonicalize_name(load_project(here).name) == name:
        return True
    required = map(Requirement, load_matrix(here / MATRIX).requires)
    for one in (one for one in required if canonicalize_name(one.name) == name):
        if not allowed.version or one.specifier.contains(allowed.version, prereleases=True):
            return True
        warn([f"this project measures {one}, and this code is {allowed.version}"])
    return False


def _allowed_cells(allowed: Allowed, matrices: Sequence[Matrix]) -> tuple[tuple[str, str], ...]:
    every = {
        (cell.python, cell.torch): matrix.platform
        for matrix in matrices
        for cell in matrix.cells(matrix.pythons, matrix.every_release)
    }
    found = [cell for cell, platform in every.items() if allowed.holds(*cell, platform)]
    if not found:
        pythons, releases = _ends(every, 0), _ends(every, 1)
        raise SpecError(
            f"{allowed.name} requires {allowed.text}, which excludes every cell of "
            f"{MATRIX.as_posix()}: Python {pythons}, PyTorch {releases}",
            hint="add a Python or a release that it allows: docs/matrix.md",
        )
    return tuple(sorted(found, key=lambda cell: (python_key(cell[0]), release_key(cell[1]))))


def _asked_cells(cells: tuple[tuple[str, str], ...], asked: Asked) -> tuple[tuple[str, str], ...]:
    """Return the cells that the options leave.

    Raises:
        SpecError: If they leave none.
    """
    pythons = recorded("Python", asked.python, {python for python, _ in cells})
    releases = recorded(RELEASE, asked.torch, {torch for _, torch in cells})
    found = tuple(cell for cell in cells if cell[0] in pythons and cell[1] in releases)
    if not found:
        raise SpecError(
            "--python and --torch: no allowed cell has both", hint="leave out one of them"
        )
    return found


def _ends(cells: Mapping[tuple[str, str], str] | Sequence[tuple[str, str]], at: int) -> str:
    key = release_key if at else python_key
    names = sorted({cell[at] for cell in cells}, key=key)
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def _evidence(
    state: State,
    cells: tuple[tuple[str, str], ...],
    unavailable: frozenset[tuple[str, str]],
    *,
    own: bool,
) -> list[CodeEvidence]:
    """Return the records of each machine."""
    source = Source(state)
    return [
        CodeEvidence(
            own=own,
            project=state.name,
            machine=place.machine,
            device=place.device,
            rows=tuple(r for r in rows if (r.python, r.torch) in cells and not r.existing),
            allowed=cells,
            unavailable=unavailable,
            spreads=state.spreads,
            disturbed=source.disturbed_keys,
        )
        for place, rows in source.by_place.items()
    ]


def _answer(found: Sequence[CodeEvidence]) -> _Answer | None:
    """Return what the machine with most cells shows, of several the last that measured.

    ``None`` if none has a record in a cell.
    """

    def rank(evidence: CodeEvidence) -> tuple[int, str]:
        # That nothing can be installed is no cell more.
        ran = [row for row in evidence.measured if row.status != "unavailable"]
        newest = max((row.recorded_at or "" for row in ran), default="")
        return len({(row.python, row.torch) for row in ran}), newest

    evidence = max(found, key=rank, default=None)
    if evidence is None or not evidence.measured:
        return None
    advice = recommended(evidence)
    cell = None if advice is None else (advice.python, advice.torch)
    return _Answer(evidence, support_lines(evidence), cell)


def _print(console: Terminal, told: _Told, releases: set[str]) -> None:
    console.print(Text("Recommendation", "bold"))
    console.print(f"{printable(told.paragraph)}\n")
    _print_code(console, told, releases)
    for answer in (told.own, told.suite):
        if answer is not None:
            _print_answer(console, answer, told.name)


def _print_code(console: Terminal, told: _Told, releases: set[str]) -> None:
    code, cells = told.code, told.cells
    left_out = len(releases - {torch for _, torch in cells})
    lost = f" ({counted(left_out, 'release')} excluded)" if left_out else ""
    places: dict[tuple[str, ...], list[CompileSite]] = {}
    for site in code.sites:
        if not site.aside:
            places.setdefault((site.path, site.how, site.name), []).append(site)
    where = [
        f"{first}{f' ({1 + len(again)} times)' if again else ''}"
        for first, *again in [*places.values()][:_SITES]
    ]
    if len(places) > _SITES:
        where.append(f"and in {counted(len(places) - _SITES, 'more function')}")
    if aside := sum(site.aside for site in code.sites):
        where.append(f"{aside} in its tests, examples or docs")
    around = f"{counted(len(code.checks.checks), 'version check')} around compiled code"
    if told.best and told.excluding:
        first, *others = told.excluding
        python, torch = told.best
        around += (
            f"; on Python {python} with PyTorch {torch} {first.place} "
            f"{f'and {len(others)} more keep' if others else 'keeps'} code from being compiled"
        )
    title = f"{told.name}: {counted(len(code.trees.files), 'Python file')}"
    console.print(Text(printable(title), "bold"))
    table = Table.grid(padding=(0, 2), pad_edge=False)
    for name, lines in (
        ("requires", [told.allowed.text, *told.allowed.notes]),
        ("allows", [f"Python {_ends(cells, 0)}, PyTorch {_ends(cells, 1)}{lost}"]),
        ("compiles", where or ["nowhere by torch.compile, that its syntax trees show"]),
        ("checks", [f"{around} (ivhl version-checks)"]),
    ):
        table.add_row(Text(name), Text("\n".join(map(printable, lines))))
    console.print(Padding(table, (0, 0, 0, 2)))


def _print_answer(console: Terminal, answer: _Answer, name: str) -> None:
    evidence = answer.evidence
    title = (
        f"Its own records: {evidence}"
        if evidence.own
        else f"Not its own: {evidence}. They show what torch.compile does with other code, and "
        f"nothing of {name}."
    )
    console.print(Text(f"\n{printable(title)}", "bold"))
    table = Columns("case" if evidence.own else "", "Python", "PyTorch")
    last = ""
    for line in answer.support:
        table.add_row(*map(Text, ("" if line.what == last else line.what, line.python, line.text)))
        last = line.what
    console.print(Padding(table, (0, 0, 0, 2)))


def _as_dict(told: _Told) -> dict[str, Any]:
    allowed, code = told.allowed, told.code
    return {
        "name": allowed.name,
        "version": allowed.version,
        "requires": {"python": str(allowed.python), "torch": [str(one) for one in allowed.torch]},
        "files": len(code.trees.files),
        "problems": list(code.trees.problems),
        "compiles": [site._asdict() for site in code.sites],
        "version_checks_that_exclude_it": [check.place for check in told.excluding],
        "evidence": [
            {
                "own": answer.evidence.own,
                "text": str(answer.evidence),
                "machine": answer.evidence.machine,
                "device": answer.evidence.device,
                "support": [line._asdict() for line in answer.support],
                "cell": answer.cell,
            }
            for answer in (told.own, told.suite)
            if answer is not None
        ],
        "recommendation": told.paragraph,
    }
