"""Find the project under test and read its declaration."""

from __future__ import annotations

import hashlib
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self, TypeVar

from packaging.utils import InvalidName, canonicalize_name
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, model_validator

from ivhl.errors import SpecError
from ivhl.git import tracked_files
from ivhl.matrix.spec import Matrix, StrictModel, explain, load_matrix, read_plain, read_toml
from ivhl.workload import use_benchmarks

_T = TypeVar("_T", bound=BaseModel)

MATRIX = Path("envs", "matrix.toml")
_ON_GITHUB = re.compile(r"(https://github\.com/[\w.-]+/[\w.-]+?)(?:\.git)?/?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Project:
    """The settings in ``pyproject.toml`` that ivhl uses.

    Attributes:
        root: Folder that holds ``pyproject.toml`` and ``envs/matrix.toml``.
        name: ``[project] name``; without it, as in a project with a ``setup.py`` alone,
            ``[tool.ivhl] name``.
        workloads: ``[tool.ivhl] benchmarks``, a folder of the working tree that is used at every
            commit; or ``[tool.ivhl] workloads``, in the form ``module:ATTRIBUTE``, from the
            installed project. See ``ivhl.workload.load_workloads``.
        repository: Address on GitHub, the first in ``[project.urls]``; empty without one.
    """

    root: Path
    name: str
    workloads: str
    repository: str = ""

    @property
    def digest_of_benchmarks(self) -> str:
        """A digest of the Python files of the benchmarks, which may differ from the commit's."""
        folder = self.root / self.workloads
        whole = hashlib.sha256()
        for path in sorted(folder.rglob("*.py")):
            whole.update(str(path.relative_to(folder)).encode() + b"\0" + read_plain(path))
        return whole.hexdigest()


def _reference(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", text):
        raise ValueError("must be of the form 'module:ATTRIBUTE'")
    return text


def _name(text: str) -> str:
    try:
        canonicalize_name(text, validate=True)
    except InvalidName as error:
        raise ValueError("must be a name by PEP 508: ASCII letters, digits, . _ -") from error
    return text


def _folder(text: str) -> str:
    if not text.isidentifier() or text in sys.stdlib_module_names or text == "ivhl":
        raise ValueError("must be the name of a folder beside pyproject.toml, and of a package")
    return text


class _Tool(StrictModel):
    name: Annotated[str, AfterValidator(_name)] | None = None
    workloads: Annotated[str, AfterValidator(_reference)] | None = None
    benchmarks: Annotated[str, AfterValidator(_folder)] | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.workloads is None) == (self.benchmarks is None):
            raise ValueError("must have either benchmarks or workloads")
        return self


class _Named(BaseModel):
    # The build backend checks the other keys of [project].
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    name: Annotated[str, AfterValidator(_name)] | None = None


def find_root(start: Path | None = None) -> Path:
    """Return the nearest folder, from ``start`` upwards, that holds ``envs/matrix.toml``.

    Args:
        start: Folder to start from; default: the current one.

    Raises:
        SpecError: If no folder has one, or git tracks what ivhl makes there itself.
    """
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        if (folder / MATRIX).is_file():
            _refuse_tracked_scratch(folder)
            return folder
    raise SpecError(
        f"no {MATRIX.as_posix()} in {start} or in a folder above it",
        hint="make one with `ivhl init`, or run this inside an ivhl project",
    )


def _refuse_tracked_scratch(root: Path) -> None:
    """Refuse a repository that brings along files of ``.asv``, or results or a site as a link.

    ivhl writes, deletes and runs files there. A link that its user made is no part of a repository.

    Raises:
        SpecError: If there is one; names it.
    """
    links = [name for name in ("results", "site") if (root / name).is_symlink()]
    if (root / ".asv").is_dir() or (root / ".asv").is_symlink():
        links.append(".asv")
    if links and (tracked := tracked_files(root, links)):
        top, _, inside = tracked[0].partition("/")
        if inside and top != ".asv":  # the link came after the files
            raise SpecError(
                f"{root / top}: must not be a link, since git tracks {tracked[0]}",
                hint=f"make {top} a folder; or git rm -r --cached {top}, to keep it elsewhere",
            )
        raise SpecError(
            f"{root / tracked[0]}: must not be in git: ivhl writes there, and runs files from there",
            hint=f"check the file, then git rm -r --cached {shlex.quote(tracked[0])}",
        )


def load_project(root: Path) -> Project:
    """Read the project's settings from ``pyproject.toml``.

    Raises:
        SpecError: If the file is missing, not TOML, or breaks rules; reports all mistakes at once.
    """
    path = root / "pyproject.toml"
    if not path.exists():
        raise SpecError(
            f"no pyproject.toml in {root}",
            hint="it must be beside the folder envs/; `ivhl init` makes missing files",
        )
    raw = read_toml(path, f"correct {path}")
    mistakes: list[str] = []
    named = _table(raw.get("project", {}), _Named, "project", mistakes)
    tools = raw.get("tool", {})
    declared = tools.get("ivhl", {}) if isinstance(tools, dict) else tools
    tool = _table(declared, _Tool, "tool.ivhl", mistakes)
    name = (named and named.name) or (tool and tool.name) or ""
    if named is not None and not name:
        mistakes.append("project.name: must exist, or tool.ivhl.name")
    if tool is None or mistakes:
        raise SpecError(
            "\n".join(f"pyproject.toml: {mistake}" for mistake in mistakes),
            hint='it needs [project] name = "..." and [tool.ivhl] benchmarks = "FOLDER"',
        )
    repository = _repository(raw["project"].get("urls") if "project" in raw else None)
    if str(root) not in sys.path:
        # The declarations need not be installed beside ivhl.
        sys.path.append(str(root))
    if tool.benchmarks is not None:
        use_benchmarks(root, tool.benchmarks)
    return Project(
        root=root,
        name=name,
        workloads=tool.benchmarks or tool.workloads or "",
        repository=repository,
    )


def _repository(urls: object) -> str:
    """Return the first address of a repository on GitHub, whose pages of files are known."""
    for url in urls.values() if isinstance(urls, dict) else ():
        if isinstance(url, str) and (found := _ON_GITHUB.fullmatch(url)):
            return found[1]
    return ""


def load(start: Path | None = None) -> tuple[Path, Matrix]:
    """Return the root of the project around ``start`` and its matrix.

    Raises:
        SpecError: If there is no project, or its matrix is not valid.
    """
    root = find_root(start)
    return root, load_matrix(root / MATRIX)


def _table(raw: object, model: type[_T], place: str, mistakes: list[str]) -> _T | None:
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        mistakes += explain(error, model, place)
        return None
