"""Check every file of a project that ivhl reads, and report all problems (``ivhl check``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ivhl.asv.configuration import load_configuration
from ivhl.asv.files import foreign_files
from ivhl.errors import IvhlError, SpecError
from ivhl.git import untracked_files
from ivhl.init.declare import binds, file_of
from ivhl.init.plan import EXAMPLE_MARK, lacking_ignores
from ivhl.init.source import lines_for_build, load_pyproject
from ivhl.matrix.check import check_locks
from ivhl.matrix.locks import COMMAND, SUMS, read_sums
from ivhl.matrix.project import MATRIX, Project, load_project
from ivhl.matrix.spec import Matrix, load_matrix, read_plain
from ivhl.syntax import decoded, parsed
from ivhl.tracker.support.expectations import read_expectations
from ivhl.tracker.wording import counted
from ivhl.workload import Workload, broken_benchmarks, load_workloads

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Report:
    """What is wrong, and what is worth knowing.

    Attributes:
        problems: A run would fail, or measure something else than the files say.
        notes: A run works.
        summary: What was checked.
    """

    problems: tuple[str, ...]
    notes: tuple[str, ...]
    summary: str


def check_project(root: Path) -> Report:
    """Check matrix, locks, settings, benchmarks, notes and asv's configuration of a project."""
    problems: list[str] = []
    notes: list[str] = []
    matrix, project = None, None
    workloads: tuple[Workload, ...] = ()
    try:
        matrix = load_matrix(root / MATRIX)
        problems += check_locks(root, matrix)
    except IvhlError as error:
        problems += str(error).splitlines()
    problems += read_expectations(root)[1]
    try:
        project = load_project(root)
        problems += broken_benchmarks(project.workloads)
        workloads = load_workloads(project.workloads)
        problems += _not_there(root, project, workloads)
        notes += _examples(root, project)
    except IvhlError as error:
        problems += str(error).splitlines()
    try:
        conf = load_configuration(root)
    except IvhlError as error:
        problems += str(error).splitlines()
    else:
        if matrix is not None:
            problems += _other_cells(conf, matrix)
    problems += [
        f"results/: holds {path.relative_to(root)}, not ivhl's; records go there: move it"
        for path in foreign_files(root / "results")[:3]
    ]
    problems += _build(root, project) if project else ()
    about = [*_dependencies(root, matrix)]
    problems += [text for text, wrong in about if wrong]
    notes += [text for text, wrong in about if not wrong]
    notes += [f".gitignore: lacks {line}" for line in lacking_ignores(root)]
    if (root / "envs" / "locks").is_dir() and read_sums(root / "envs" / "locks") is None:
        notes.append(f"envs/locks: has no {SUMS}: no edited lock is noticed; {COMMAND} writes it")
    if loose := untracked_files(root, "envs"):
        notes.append(f"not committed, so records cannot be repeated: {', '.join(loose)}")
    n_cells = len(matrix.cells(tier="extended")) if matrix else 0
    summary = f"{counted(n_cells, 'cell')}, {counted(len(workloads), 'workload')}"
    return Report(tuple(dict.fromkeys(problems)), tuple(notes), summary)


def _build(root: Path, project: Project) -> Iterator[str]:
    """Yield what makes the project build otherwise than without ivhl."""
    try:
        tables = lines_for_build(root, project.workloads)
    except SpecError as error:
        yield f"{error}; {' '.join(error.hint.split())}"
    else:
        if tables:
            text = f"take ivhl's folders for packages; ivhl init adds: {' '.join(tables.split())}"
            yield f"pyproject.toml: its build backend would {text}"


def _not_there(root: Path, project: Project, workloads: tuple[Workload, ...]) -> Iterator[str]:
    """Yield the functions that declarations name and that no file of the tree defines."""
    for one in workloads:
        named = [
            *(one.make_inputs, one.make_model, one.make_optimizer, one.eager, one.loss),
            *(one.reference, one.cost),
            *(text for v in one.variants for text in (v.call, v.prepare, v.finish)),
        ]
        for text in dict.fromkeys(name for name in named if name and ":" in name):
            module, _, attribute = text.partition("(")[0].partition(":")
            path = file_of(root, module)
            if path is None:
                if module.partition(".")[0] == project.workloads:
                    yield f"{one.name}: {text!r}: there is no module {module}"
                continue
            try:
                tree = parsed(decoded(path))
            except SyntaxError as error:
                yield f"{path.relative_to(root)}:{error.lineno}: {error.msg}"
                continue
            except (OSError, ValueError, RecursionError, MemoryError) as error:
                yield f"{path.relative_to(root)}: cannot be parsed: {error}"
                continue
            if not binds(tree, attribute.partition(".")[0]):
                yield f"{one.name}: {text!r}: {path.relative_to(root)} defines no {attribute}"


def _examples(root: Path, project: Project) -> Iterator[str]:
    for path in sorted((root / project.workloads).glob("*.py")):
        if path.is_file() and EXAMPLE_MARK.encode() in read_plain(path):
            yield (
                f"{path.relative_to(root)}: measures the example of `ivhl init`, nothing of "
                f"{project.name} yet"
            )


def _other_cells(conf: dict[str, object], matrix: Matrix) -> Iterator[str]:
    """Yield how the lists in the project's own asv.conf.json differ from the matrix."""
    pythons, wanted = conf.get("pythons"), matrix.pythons_of("default")
    if isinstance(pythons, list) and pythons and tuple(pythons) != wanted:
        yield f"asv.conf.json: pythons: must be the default tier of {MATRIX}: {', '.join(wanted)}"
    listed: object = conf
    for key in ("matrix", "req", "torch"):
        listed = listed.get(key) if isinstance(listed, dict) else None
    if listed and listed != list(matrix.releases("default")):
        default = ", ".join(matrix.releases("default"))
        yield f"asv.conf.json: matrix.req.torch: must be the default tier of {MATRIX}: {default}"


def _dependencies(root: Path, matrix: Matrix | None) -> Iterator[tuple[str, bool]]:
    """Yield what ``pyproject.toml`` requires and the matrix lacks, and whether a build needs it."""
    if matrix is None or not matrix.requires:
        return  # the project pins everything in `also`
    try:
        pyproject = load_pyproject(root / "pyproject.toml")
    except SpecError as error:
        yield from ((line, True) for line in str(error).splitlines())
        return
    build = pyproject.build_system
    asked = {canonicalize_name(Requirement(t).name) for t in (*matrix.requires, *matrix.also)}
    for place, texts, needed in (
        ("build-system.requires", build.requires if build.model_fields_set else [], True),
        ("project.dependencies", pyproject.project.dependencies, False),
    ):
        for text in texts:
            try:
                one = Requirement(text)
            except InvalidRequirement:
                yield f"pyproject.toml: {place}: {text!r} is no requirement", True
                continue
            if canonicalize_name(one.name) in {*asked, "torch"} or one.marker is not None:
                continue
            yield (
                f"{MATRIX}: requires: lacks {text!r}, which pyproject.toml has in {place}",
                needed,
            )
