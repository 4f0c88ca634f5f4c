"""Declare one function or model in a file of benchmarks: ``init TARGET`` and ``try --save``.

Also the files that ``ivhl init`` makes or adds to, and the templates they are made of.
"""

from __future__ import annotations

import ast
import json
import os
import re
from dataclasses import dataclass
from importlib.resources import files
from keyword import iskeyword
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Final, Self

from ivhl.errors import SpecError, nearest
from ivhl.git import top_level
from ivhl.matrix.spec import read_plain
from ivhl.reading import arguments_of
from ivhl.records.files import write_whole
from ivhl.syntax import UNPARSED, decoded, parsed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file that ``ivhl init`` makes or adds to.

    Attributes:
        path: Relative to the root of the project; a workflow of a monorepo is above it.
        data: The new file, or what is added at its end; text in UTF-8, except for wheels.
        added: Whether the file exists, and the data is added.
    """

    path: Path
    data: bytes
    added: bool = False

    @classmethod
    def of(cls, path: Path, text: str, *, added: bool = False) -> Self:
        """Return a change of a text file."""
        return cls(path, text.encode(), added)


def write_changes(root: Path, changes: Iterable[FileChange]) -> None:
    """Write changes of a project, each whole or not at all.

    The caller writes the settings that name the benchmarks last, so that the same command continues
    a plan that was stopped.

    Raises:
        SpecError: If a file is there by now; those before it are written.
        ResultsError: If one cannot be written, or a link is in its path; likewise.
    """
    root = root.resolve()
    for change in changes:
        path = Path(os.path.normpath(root / change.path))
        if not change.added and os.path.lexists(path):
            raise SpecError(
                f"{path}: cannot be written: File exists",
                hint="look at it and move it away, then run the same command again: it goes on",
            )
        there = read_plain(path) if change.added else b""
        write_whole(path, there + change.data, root if root in path.parents else top_level(root))


def fill(template: str, **values: str) -> str:
    """Return a template of this package with its placeholders filled in."""
    text = files("ivhl.init").joinpath("templates", template).read_text(encoding="utf-8")
    return Template(text).substitute(values)


_TARGET: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*(?:\(.*\))?")
_EXAMPLE: Final = "torch.randn(size, 64, dtype=torch.float64, generator=generator)"


def arguments_in(root: Path, target: str) -> int:
    """Return how many arguments a target needs: 1 where no file of the project says so.

    Raises:
        SpecError: If it is no ``package.module:name``, or the project has no such name.
    """
    if not _TARGET.fullmatch(target):
        raise SpecError(
            f"{target!r}: must be package.module:function, or package.module:Model(64)",
            hint="name the module as it is imported, e.g. softplus.ops:softplus",
        )
    module, _, expression = target.partition(":")
    name = expression.partition("(")[0]
    if name != expression:
        arguments_of(expression)
    path = file_of(root, module)
    if path is None:
        top = module.partition(".")[0]
        if (root / top).is_dir() or (root / "src" / top).is_dir():
            raise SpecError(
                f"{target!r}: the project has no module {module}",
                hint="name the module as it is imported, e.g. softplus.ops:softplus",
            )
        return 1
    try:
        tree = parsed(decoded(path))
    except UNPARSED as error:
        raise SpecError(f"{path}: cannot be read: {error}", hint="correct it first") from error
    if not binds(tree, name.partition(".")[0]):
        known = [one.name for one in tree.body if hasattr(one, "name")]
        raise SpecError(
            f"{target!r}: {path.relative_to(root)} defines no {name}", hint=nearest(name, known)
        )
    defined = next((one for one in tree.body if getattr(one, "name", "") == name), None)
    if isinstance(defined, ast.ClassDef):
        methods = {getattr(one, "name", ""): one for one in defined.body}
        if name == expression and _needed(methods.get("__init__")) > 1:
            raise SpecError(
                f"{target!r}: {name} needs arguments to be made",
                hint=f"write them: {module}:{name}(...)",
            )
        return max(_needed(methods.get("forward")) - 1, 1)
    return _needed(defined)


def _needed(function: ast.stmt | None) -> int:
    """Return how many arguments a function needs by position; 1 if it is none."""
    if not isinstance(function, ast.FunctionDef):
        return 1
    given = function.args
    return len(given.posonlyargs) + len(given.args) - len(given.defaults)


def declaration(
    root: Path,
    folder: str,
    target: str,
    arguments: Sequence[str] | None = None,
    *,
    keywords: Mapping[str, str] | None = None,
    fields: str = "",
) -> FileChange:
    """Return the file that declares a target.

    Args:
        root: The project.
        folder: Its folder of benchmarks.
        target: ``package.module:name``.
        arguments: Source of each input; ``None`` for as many as ``arguments_in`` counts, to correct.
        keywords: Source of each that is given by name; then the call gets nothing else.
        fields: Further arguments of ``workload``, e.g. ``, passes="forward"``.

    Raises:
        SpecError: If there is such a file already, or the folder is none.
    """
    count = arguments_in(root, target)
    if ":" in folder:
        raise SpecError(
            f"[tool.ivhl] workloads = {folder!r} is a tuple of a module, not a folder of files",
            hint="declare it there: docs/workloads.md",
        )
    name = target.partition(":")[2].partition("(")[0].rpartition(".")[2]
    stem = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    path = Path(folder, f"{stem}_case.py" if iskeyword(stem) else f"{stem}.py")
    values = [_EXAMPLE] * count if arguments is None else arguments
    lines = f"({values[0]},)" if len(values) == 1 else _lines("()", values)
    named = [f"{json.dumps(key)}: {value}" for key, value in (keywords or {}).items()]
    text = fill(
        "target.py.txt",
        target=target.partition("(")[0],
        name=name,
        parameters="size, generator" if arguments is None else "",
        correct=" Correct the shapes." if arguments is None else "",
        inputs=_lines("{}", named) if named else lines,
        call=json.dumps(target),  # ASCII, and a text of Python
        fields=fields or (', sizes={"small": 8}' if arguments is None else ""),
    )
    if (root / path).exists() and read_plain(root / path) != text.encode():
        raise SpecError(
            f"{path}: is there already, and would declare {target}",
            hint="write workload(...) for it into a file of your own: docs/workloads.md",
        )
    return FileChange.of(path, text)


def _lines(brackets: str, values: Sequence[str]) -> str:
    inside = "".join(f"        {value},\n" for value in values)
    return f"{brackets[0]}\n{inside}    {brackets[1]}" if inside else brackets


def file_of(root: Path, module: str) -> Path | None:
    """Return the file of a module of the project; ``None`` if it has none."""
    parts = module.split(".")
    for base in (root, root / "src"):
        found = base.joinpath(*parts)
        for path in (found.with_suffix(".py"), found / "__init__.py"):
            if path.is_file():
                return path
    return None


def binds(tree: ast.Module, name: str) -> bool:
    """Return whether a module binds a name anywhere; a star import or ``__getattr__`` may."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound = node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound = node.id
        elif isinstance(node, ast.alias):
            bound = node.asname or node.name.partition(".")[0]
        else:
            continue
        if bound in (name, "*", "__getattr__"):
            return True
    return False
