"""Measure the size of the tool and of its documents: ``python -m studies.house`` prints a table.

Below it are the lines of code of each room (folder, or module, of ``ivhl/``).

The tool is ``ivhl/`` without the libraries (``LIBRARIES``). Lines of code are those with a token
that is no comment and no docstring. Words are what ``wc -w`` counts, tables and code included;
documents are ``docs/*.md``, without decisions (``docs/adr``).
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT: Final = Path(__file__).parents[1]
LIBRARIES: Final = {"ops", "mlff", "rollout", "hotpath", "surgical", "compile", "device"}
LONG_FUNCTION: Final = 50
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


def main() -> None:
    """Print the table of this checkout, or of the one that is named."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    for name, value in measure(root).items():
        print(f"{name:45} {value:>9,}")
    print()
    for name, value in lines_of_rooms(root).most_common():
        print(f"{name:45} {value:>9,}")


def lines_of_rooms(root: Path) -> Counter[str]:
    """Return the lines of code of each room of the tool."""
    found: Counter[str] = Counter()
    for path in tool(root):
        source = path.read_text(encoding="utf-8")
        found[path.relative_to(root / "ivhl").parts[0]] += len(
            code_lines(source, ast.parse(source))
        )
    return found


def measure(root: Path) -> dict[str, float]:
    """Return each quantity of the table by its name, for a checkout of ivhl."""
    sources = {path: path.read_text(encoding="utf-8") for path in tool(root)}
    trees = {path: ast.parse(source) for path, source in sources.items()}
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    functions = [_length(node) for node in nodes if isinstance(node, _FUNCTIONS)]
    lines = {path: len(code_lines(source, trees[path])) for path, source in sources.items()}
    rooms: Counter[Path] = Counter()
    for path, n in lines.items():
        if path.parent.parent == root / "ivhl" / "tracker":
            rooms[path.parent] += n
    long = sum(length > LONG_FUNCTION for length in functions)
    pages = sorted((root / "docs").glob("*.md"))
    return {
        "lines of code of the tool": sum(lines.values()),
        "commands": sum(map(_is_command, nodes)),
        "declarations of options": sum(map(_is_option, nodes)),
        "largest room of the tracker, in percent": round(
            100 * max(rooms.values(), default=0) / sum(lines.values()), 1
        ),
        "import cycles in the tool": len(cycles(imports(root / "ivhl", trees))),
        "lines of the longest class": max(
            _length(node) for node in nodes if isinstance(node, ast.ClassDef)
        ),
        "functions over 50 lines, in percent": round(100 * long / len(functions), 2),
        "rows of the glossary": rows(root / "docs" / "glossary.md"),
        "words of README": words(root / "README.md"),
        "words of the documents": sum(map(words, pages)),
    }


def tool(root: Path) -> list[Path]:
    """Return the modules of the tool."""
    package = root / "ivhl"
    return [
        path
        for path in sorted(package.rglob("*.py"))
        if path.relative_to(package).parts[0].removesuffix(".py") not in LIBRARIES
    ]


def code_lines(source: str, tree: ast.Module) -> set[int]:
    """Return the numbers of the lines with code: no blanks, comments and docstrings."""
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT and token.string.strip():
            found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, *_FUNCTIONS)) and ast.get_docstring(node):
            text = node.body[0]
            found.difference_update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return found


def imports(package: Path, trees: Mapping[Path, ast.Module]) -> dict[str, set[str]]:
    """Return the modules that each module imports, for type checking too, wherever it does."""
    names = {".".join(("ivhl", *p.relative_to(package).with_suffix("").parts)): p for p in trees}
    modules = {name.removesuffix(".__init__"): path for name, path in names.items()}
    return {
        name: {found for found in _imported(trees[path], modules) if found != name}
        for name, path in modules.items()
    }


def _imported(tree: ast.Module, modules: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield from (name for name in (whole, node.module) if name in modules)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)


def cycles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """Return the groups of modules that import each other, directly or not."""
    reach = {name: _reached(graph, name) for name in graph}
    groups = {
        frozenset(other for other in reach[name] if name in reach[other])
        for name in graph
        if name in reach[name]
    }
    return [set(group) for group in groups]


def _reached(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    left = [start]
    while left:
        new = graph[left.pop()] - found
        found |= new
        left += new
    return found


def rows(page: Path) -> int:
    """Return the number of rows of the tables of a page, without their heads."""
    text = "\n" + page.read_text(encoding="utf-8")
    return text.count("\n| ") - text.count("\n|---")


def words(page: Path) -> int:
    """Return the number of words of a page, as ``wc -w`` counts them."""
    return len(page.read_text(encoding="utf-8").split())


def _length(node: ast.AST) -> int:
    return node.end_lineno - node.lineno + 1  # type: ignore[attr-defined, no-any-return]


def _is_command(node: ast.AST) -> bool:
    """Return whether a function is a command of typer: ``@app.command(...)``."""
    return isinstance(node, _FUNCTIONS) and any(
        isinstance(call, ast.Call) and ast.unparse(call.func).endswith(".command")
        for call in node.decorator_list
    )


def _is_option(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "typer.Option"


if __name__ == "__main__":
    main()
