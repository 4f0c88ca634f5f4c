"""Which operations of PyTorch a workload calls, by the syntax trees of what its functions reach."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import ivhl
from ivhl.matrix.spec import read_plain
from ivhl.version_checks.sites import dotted, imported, operations_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ivhl.workload import Workload


class _Module(NamedTuple):
    """A file of the project.

    Attributes:
        names: What its imports bind.
        defined: What it defines at its top, by name.
    """

    names: Mapping[str, str]
    defined: Mapping[str, ast.stmt]


class Reached:
    """Follows the functions of workloads through the files of a project, without importing them.

    Args:
        root: Folder of the project.
    """

    def __init__(self, root: Path) -> None:
        self._places = (root, Path(ivhl.__path__[0]).parent)
        self._modules: dict[str, _Module | None] = {}

    def operations(self, workload: Workload) -> frozenset[str]:
        """Return the operations that eager or a variant of a workload calls by a name of torch.

        Those that make inputs, convert them, or compute the reference do not count.
        """
        begin = [workload.eager, workload.make_model, workload.loss]
        begin += [variant.call for variant in workload.variants]
        left = [text.replace(":", ".") for text in begin if text]
        seen: set[str] = set()
        found: set[str] = set()
        while left:
            name = left.pop()
            if name in seen:
                continue
            seen.add(name)
            module, node = self._find(name)
            if module is None or node is None:
                continue
            found |= operations_of([node], module.names).keys()
            left += _named(node, name.rpartition(".")[0], module)
        return frozenset(found)

    def _find(self, name: str) -> tuple[_Module | None, ast.stmt | None]:
        """Return the module that defines a dotted name, and the definition."""
        home, _, last = name.rpartition(".")
        module = self._module(home) if home else None
        return module, None if module is None else module.defined.get(last)

    def _module(self, name: str) -> _Module | None:
        if name not in self._modules:
            paths = [
                place.joinpath(*name.split(".")).with_suffix(suffix)
                for place in self._places
                for suffix in (".py", "")
            ]
            files = [path if path.suffix else path / "__init__.py" for path in paths]
            found = next((path for path in files if path.is_file()), None)
            self._modules[name] = None if found is None else _read(found, name)
        return self._modules[name]


def _read(path: Path, name: str) -> _Module | None:
    try:
        tree = ast.parse(read_plain(path))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    defined: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined[node.name] = node
        elif isinstance(node, ast.Assign):
            defined |= {one.id: node for one in node.targets if isinstance(one, ast.Name)}
    return _Module(imported(tree, package), defined)


def _named(node: ast.AST, home: str, module: _Module) -> Iterator[str]:
    """Yield the dotted names that a definition uses."""
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and one.id in module.defined:
            yield f"{home}.{one.id}"
        elif isinstance(one, ast.Name | ast.Attribute) and (name := dotted(one, module.names)):
            yield name
