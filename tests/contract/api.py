"""What the public modules promise, as stubs: docs/api/.

``python -m tests.contract.api`` writes them. It refuses to write a change that breaks a caller, and
``--breaking`` writes that, too, for the next major version.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import griffe

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ROOT: Final = Path(__file__).parents[2]
PROMISED: Final = ROOT / "docs" / "api"
# Modules without ``__all__`` also hold what other rooms of ivhl use.
NAMES: Final[Mapping[str, tuple[str, ...] | None]] = {
    "compile": (
        *("CompileFallbackWarning", "CompileReport", "FunctionReport", "Mode"),
        *("clear_compile_cache", "compile_mode", "compile_report", "get_compile_mode"),
        *("get_compiled", "set_compile_mode"),
    ),
    "device": (
        *("Profile", "autocast_context", "autocast_dtype", "compute_capability"),
        *("get_device", "profile"),
    ),
    "hotpath": None,
    "mlff": None,
    "ops": None,
    "rollout": None,
    "surgical": None,
    "workload": (
        *("Compiles", "Cost", "Dtype", "Engine", "Mode", "Passes", "Variant", "Workload"),
        "workload",
    ),
}
_KEPT: Final = {
    "classmethod",
    "contextmanager",
    "dataclass",
    "overload",
    "property",
    "staticmethod",
}
_HEAD: Final = (
    "# Promised of ivhl.{name} (docs/api.md); python -m tests.contract.api writes it.\n"
    "import contextlib\nfrom contextlib import contextmanager\n"
    "from dataclasses import dataclass, field\nfrom typing import Final, Literal, overload\n\n"
)


def package_at(root: Path, name: str = "ivhl") -> griffe.Module:
    """Return a package as its source says, without importing it."""
    loader = griffe.GriffeLoader(search_paths=[root], allow_inspection=False)
    found = loader.load(name)
    assert isinstance(found, griffe.Module)
    return found


def names_of(package: griffe.Module, module: str) -> tuple[str, ...]:
    """Return the promised names of a module."""
    named = NAMES[module]
    return named or tuple(sorted(map(str, package[module].exports)))


def stub_of(package: griffe.Module, module: str) -> str:
    """Return the promise of a module as a stub: signatures and fields, no code and no text."""
    nodes: list[ast.stmt] = []
    for name in names_of(package, module):
        found = package[module][name]
        target = found.final_target if found.is_alias else found
        nodes += _named(ast.parse(target.filepath.read_text(encoding="utf-8")).body, target.name)
    text = "\n".join(ast.unparse(node) for node in map(_bare, nodes))
    return _HEAD.format(name=module) + text + "\n"


def _named(body: Iterable[ast.stmt], name: str) -> Iterator[ast.stmt]:
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if getattr(node, "name", None) == name or any(
            isinstance(one, ast.Name) and one.id == name for one in targets
        ):
            yield node


def _bare(node: ast.stmt) -> ast.stmt:
    """Return a statement without what a caller cannot see."""
    nothing: list[ast.stmt] = [ast.Expr(ast.Constant(...))]
    if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation).startswith("Final"):
        node.value = None
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        node.decorator_list = [d for d in node.decorator_list if _decorator(d) in _KEPT]
    if isinstance(node, ast.FunctionDef):
        node.body = nothing
    elif isinstance(node, ast.ClassDef):
        kept = (
            n for n in node.body if isinstance(n, ast.FunctionDef | ast.AnnAssign) and _is_seen(n)
        )
        node.body = [*map(_bare, kept)] or nothing
    return node


def _decorator(node: ast.expr) -> str:
    return ast.unparse(node.func if isinstance(node, ast.Call) else node).rpartition(".")[2]


def _is_seen(node: ast.FunctionDef | ast.AnnAssign) -> bool:
    name = node.name if isinstance(node, ast.FunctionDef) else ast.unparse(node.target)
    return name == "__init__" or not name.startswith("_")


def stubs(package: griffe.Module) -> dict[str, str]:
    """Return the stub of each promised module."""
    return {name: stub_of(package, name) for name in NAMES}


def promised() -> dict[str, str]:
    """Return the committed stubs."""
    return {path.stem: path.read_text(encoding="utf-8") for path in PROMISED.glob("*.pyi")}


def breaks(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return what breaks a caller, a line each.

    Stubs are compared with stubs: of a name that a module only imports, griffe compares nothing.

    Args:
        before: Stubs by module.
        after: Likewise; a module may be missing.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name, texts in (("before", before), ("after", after)):
            (Path(folder) / name).mkdir()
            (Path(folder) / name / "__init__.py").touch()
            for module, text in texts.items():
                (Path(folder) / name / f"{module}.py").write_text(text, encoding="utf-8")
        old, new = (package_at(Path(folder), name) for name in ("before", "after"))
        # A stub that is no Python would be passed over.
        assert (old.modules.keys(), new.modules.keys()) == (before.keys(), after.keys())
        found = [
            f"{change.obj.path}: {change.kind.value}: {_what(change.old_value)}"
            for change in griffe.find_breaking_changes(old, new)
        ]
        for name in old.modules.keys() & new.modules.keys():
            found += _lost_words(old[name], new[name])
    return sorted(re.sub("^(before|after)", "ivhl", line) for line in found)


def _what(value: object) -> str:
    return str(getattr(value, "name", value))


def _lost_words(before: griffe.Module, after: griffe.Module) -> Iterator[str]:
    """Yield the words that a ``Literal`` has lost, which griffe does not compare."""
    for name, old in before.attributes.items():
        if str(old.value).startswith("Literal[") and name in after.attributes:
            lost = _words(old) - _words(after.attributes[name])
            yield from (f"{before.path}.{name}: lost a word: {word}" for word in sorted(lost))


def _words(attribute: griffe.Attribute) -> set[str]:
    return set(ast.literal_eval(str(attribute.value).removeprefix("Literal")))


def main() -> int:
    """Write the stubs; return 1 if a change breaks callers."""
    parser = argparse.ArgumentParser(prog="python -m tests.contract.api", description=__doc__)
    parser.add_argument("--breaking", action="store_true", help="for the next major version")
    is_allowed = parser.parse_args().breaking
    now = stubs(package_at(ROOT))
    if (found := breaks(promised(), now)) and not is_allowed:
        print("\n".join(found))
        print("next: keep the old form, deprecated, for one minor version (docs/api.md)")
        return 1
    for name, text in now.items():
        (PROMISED / f"{name}.pyi").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
