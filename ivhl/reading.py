"""Read a file of benchmarks that holds its functions, too, without what it imports.

The file runs with a name in the place of each import, so torch, the project and whatever else the
functions need may be missing, or broken (docs/adr/0043). Nothing of it stays in ``sys.modules``.
"""

from __future__ import annotations
import __future__

import ast
import sys
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from ivhl.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_API: Final = "ivhl.workload"
_NAMED: Final = "__named__"


class UnreadError(Exception):
    """A file that cannot be read so: the text is a sentence with the line."""


class Named:
    """What an import binds while a file is read: a name, and what it would be called with.

    Args:
        path: Dotted name, e.g. ``torch.nn.Linear``; empty for a value that nobody can know.
        modules: All modules that the file imports: the longest that begins the name has it.
        called: Arguments and keywords, if it was called.
    """

    def __init__(
        self,
        path: str,
        modules: frozenset[str],
        called: tuple[tuple[Any, ...], Mapping[str, Any]] | None = None,
    ) -> None:
        self._path, self._modules, self._called = path, modules, called

    def __getattr__(self, name: str) -> Named:
        """Return an attribute: of the result of a call nobody knows any."""
        if name.startswith("__"):
            raise AttributeError(name)
        return Named("" if self._called else f"{self._path}.{name}", self._modules)

    def __call__(self, *arguments: Any, **keywords: Any) -> Named:  # noqa: ANN401
        """Return the name of the result."""
        path = "" if self._called else self._path
        return Named(path, self._modules, (arguments, keywords))

    def __str__(self) -> str:
        """Return ``module:name``, with the arguments of a call; empty if nobody can know it."""
        parts = self._path.split(".")
        known = [n for n in range(1, len(parts)) if ".".join(parts[:n]) in self._modules]
        if not known:
            return ""
        name = f"{'.'.join(parts[: known[-1]])}:{'.'.join(parts[known[-1] :])}"
        return name if self._called is None else _with_arguments(name, *self._called)


def name_of(value: object) -> str:
    """Return ``module:name`` of a function, a class, or a call of one; empty if it has no such name.

    Args:
        value: A function, a class, what an import bound while a file is read, one of these in
            ``functools.partial``, or the text itself.
    """
    if isinstance(value, str | Named):
        return str(value)
    if isinstance(value, partial):
        return _with_arguments(name_of(value.func), value.args, value.keywords)
    module, name = (getattr(value, key, None) for key in ("__module__", "__qualname__"))
    return f"{module}:{name}" if module and name and "<" not in name else ""


def _with_arguments(name: str, arguments: Iterable[Any], keywords: Mapping[str, Any]) -> str:
    words = [*map(repr, arguments), *(f"{key}={value!r}" for key, value in keywords.items())]
    return f"{name}({', '.join(words)})"


def arguments_of(expression: str) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments and keywords of ``name(...)``.

    Raises:
        SpecError: If they are no literals.
    """
    try:
        call = ast.parse(expression, mode="eval").body
        assert isinstance(call, ast.Call)  # noqa: S101
        keywords = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
        return [ast.literal_eval(one) for one in call.args], keywords
    except (AssertionError, SyntaxError, ValueError, TypeError) as error:
        raise SpecError(
            f"{expression!r}: must be a name with literal arguments, such as Linear(64, 3)",
            hint="for other arguments write a function make_model(size) that returns the model",
        ) from error


def holds_its_functions(tree: ast.Module) -> bool:
    """Return whether a file declares by ``ivhl.workload.workload``."""
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module == _API
        and any(alias.name == "workload" for alias in node.names)
        for node in tree.body
    )


def read_file(name: str, path: Path, tree: ast.Module) -> dict[str, Any]:
    """Return what a file binds if it runs without what it imports.

    Args:
        name: Of its module.
        path: The file, for messages.
        tree: Its syntax tree, which is changed.

    Raises:
        UnreadError: If it raises; names the line.
    """
    naming = _Naming(name, package=path.name == "__init__.py")
    tree = ast.fix_missing_locations(naming.visit(tree))
    modules = frozenset({name, *naming.modules})
    module = ModuleType(name)
    module.__file__ = str(path)
    vars(module)[_NAMED] = lambda path: Named(path, modules)
    usual = sys.modules.get(name)
    sys.modules[name] = module  # dataclasses look there
    try:
        flags = __future__.annotations.compiler_flag
        exec(compile(tree, str(path), "exec", flags, dont_inherit=True), vars(module))  # noqa: S102
    except Exception as error:
        lines, frame = [1], error.__traceback__
        while frame is not None:
            if frame.tb_frame.f_code.co_filename == str(path):
                lines.append(frame.tb_lineno)
            frame = frame.tb_next
        why = f"{error}; {error.hint}" if isinstance(error, SpecError) else (
            f"{type(error).__name__}: {error}; it is read without what it imports: what needs that "
            "belongs into a function"
        )  # fmt: skip
        raise UnreadError(f"line {lines[-1]}: {why}") from error
    finally:
        del sys.modules[name]
        if usual is not None:
            sys.modules[name] = usual
    return vars(module)


class _Naming(ast.NodeTransformer):
    """Puts names in the place of imports, and of classes that derive from something.

    Attributes:
        modules: Those that are imported, with their parents.
    """

    def __init__(self, home: str, *, package: bool) -> None:
        self.modules: set[str] = set()
        self._home = home
        self._package = [*home.split("."), ""] if package else home.split(".")

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        """``import torch.nn as nn`` binds a name."""
        found: list[ast.stmt] = []
        for alias in node.names:
            root = alias.name.partition(".")[0]
            if root in sys.stdlib_module_names or alias.name == _API:
                found.append(ast.copy_location(ast.Import([alias]), node))
            else:
                self._know(alias.name)
                path = alias.name if alias.asname else root
                found.append(_binding(node, alias.asname or root, path))
        return found

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt | list[ast.stmt]:
        """``from torch import nn`` binds names."""
        module = node.module or ""
        if not node.level and (
            module == _API or module.partition(".")[0] in sys.stdlib_module_names
        ):
            return node
        if any(alias.name == "*" for alias in node.names):
            raise UnreadError(f"line {node.lineno}: imports *; import the names that it uses")
        if node.level:
            module = ".".join([*self._package[: -node.level], *filter(None, [node.module])])
        self._know(module)
        return [_binding(node, a.asname or a.name, f"{module}.{a.name}") for a in node.names]

    def _know(self, module: str) -> None:
        parts = module.split(".")
        self.modules |= {".".join(parts[:n]) for n in range(1, len(parts) + 1)}

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.stmt:
        """A function stays, without decorators, which may be imported."""
        node.decorator_list = []
        return node

    visit_FunctionDef = _function  # noqa: N815  (ast's name)
    visit_AsyncFunctionDef = _function  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.stmt:
        """A class stays; one with a base, such as ``torch.nn.Module``, is a name."""
        return _binding(node, node.name, f"{self._home}.{node.name}") if node.bases else node


def _binding(node: ast.stmt, name: str, path: str) -> ast.stmt:
    call = ast.Call(ast.Name(_NAMED, ast.Load()), [ast.Constant(path)], [])
    return ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], call), node)
