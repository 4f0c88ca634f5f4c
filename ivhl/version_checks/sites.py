"""Where a code base compiles, by its syntax trees."""

from __future__ import annotations

import ast
import re
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ivhl.syntax import SourceFile, Trees

_COMPILERS: Final = frozenset({"torch.compile", "torch._dynamo.optimize"})
# Of `torch.compile`: a method of this name that takes nothing else may be that of a module.
_ARGUMENTS: Final = frozenset({"fullgraph", "dynamic", "backend", "mode", "options", "disable"})
_MODULE_METHOD: Final = "possibly Module.compile"
_ASIDE: Final = re.compile(r"tests?|testing|benchmarks?|examples?|docs|tutorials?")


class CompileSite(NamedTuple):
    """A place that compiles, or hands on what does.

    Attributes:
        how: ``torch.compile``, with how it is used, or ``possibly Module.compile``.
        name: Function, class or module that it is in, dotted.
        aside: Whether it is in tests, examples, benchmarks or docs.
    """

    path: str
    line: int
    how: str
    name: str
    aside: bool

    def __str__(self) -> str:
        """Return file, line and what is there."""
        return f"{self.path}:{self.line} {self.how} in {self.name}"


def compile_sites(code: Trees) -> tuple[CompileSite, ...]:
    """Return the places that compile, those in tests and examples last."""
    found = [site for file in code.files for site in _Sites(file).found]
    return tuple(sorted(found, key=lambda site: (site.aside, site.path, site.line)))


def imported(tree: ast.AST, package: Sequence[str] | None = None) -> dict[str, str]:
    """Return what the imports of a file bind: ``F`` to ``torch.nn.functional``.

    Args:
        tree: The file.
        package: The parts of its package's name; without it, relative imports are left out.
    """
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.partition(".")[0]
                found[alias.asname or root] = alias.name if alias.asname else root
        elif isinstance(node, ast.ImportFrom) and (package is not None or not node.level):
            parts = (package or ())[: len(package or ()) - node.level + 1] if node.level else ()
            module = ".".join(filter(None, [*parts, node.module]))
            found |= {a.asname or a.name: f"{module}.{a.name}" for a in node.names}
    return found


def dotted(node: ast.expr, names: Mapping[str, str]) -> str:
    """Return the whole name that an expression stands for; empty if it is not an imported one."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in names:
        return ""
    return ".".join([names[node.id], *reversed(parts)])


def is_aside(path: str) -> bool:
    """Return whether a file belongs to tests, examples, benchmarks or docs."""
    *folders, name = PurePath(path).parts
    return any(map(_ASIDE.fullmatch, folders)) or name.startswith("test_") or name == "conftest.py"


class _Sites(ast.NodeVisitor):
    """Collects the places of a file that compile."""

    def __init__(self, file: SourceFile) -> None:
        self.found: list[CompileSite] = []
        self._path = file.name
        self._names = imported(file.tree)
        self._inside: list[str] = []
        self._used: dict[int, str] = {}
        self.visit(file.tree)

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        for decorator in node.decorator_list:
            self._used[id(getattr(decorator, "func", decorator))] = "as a decorator"
        self._inside.append(node.name)
        self.generic_visit(node)
        self._inside.pop()

    visit_FunctionDef = _definition  # noqa: N815  (ast's name)
    visit_AsyncFunctionDef = _definition  # noqa: N815
    visit_ClassDef = _definition  # noqa: N815

    def visit_Call(self, node: ast.Call) -> None:
        """Look at a call: that of a compiler, or of a method with its name and arguments."""
        self._used.setdefault(id(node.func), "")
        given = {word.arg for word in node.keywords}
        if (
            isinstance(node.func, ast.Attribute)
            and node.func.attr == "compile"
            and not node.args
            and given <= _ARGUMENTS
            and not dotted(node.func, self._names)
        ):
            self._add(node, _MODULE_METHOD)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Look at ``torch.compile``."""
        self._name(node)
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        """Look at a name imported from torch."""
        self._name(node)

    def _name(self, node: ast.Attribute | ast.Name) -> None:
        name = dotted(node, self._names)
        if name in _COMPILERS and isinstance(node.ctx, ast.Load):
            self._add(node, f"{name} {self._used.get(id(node), 'handed on')}".rstrip())

    def _add(self, node: ast.expr, how: str) -> None:
        name = ".".join(self._inside) or "(module)"
        self.found.append(CompileSite(self._path, node.lineno, how, name, is_aside(self._path)))
