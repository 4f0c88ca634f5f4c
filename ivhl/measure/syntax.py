"""Digest the syntax tree of Python source, with the same result under every Python."""

from __future__ import annotations

import ast
import hashlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

# Fields that follow from others, or that the interpreter ignores.
_IGNORED: Final = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
_ANNOTATIONS: Final = frozenset({"annotation", "returns", "type_params"})


def syntax_digest(source: str | bytes, *, annotations: bool, without: Collection[str] = ()) -> str:
    """Return a digest of the syntax tree; comments, docstrings and formatting do not change it.

    Code under ``if TYPE_CHECKING`` is left out. The output of ``ast.dump`` depends on the Python, so
    the tree is written here.

    Args:
        source: Python source.
        annotations: Whether annotations count; the fields that they define in a class always do.
        without: Names of top-level functions, classes and variables to leave out.

    Raises:
        SyntaxError: If this Python cannot parse it.
    """
    tree = ast.parse(source)
    tree.body = [s for s in tree.body if not (without and defined_by(s) & set(without))]
    text = "".join(_Writer(annotations=annotations).write(tree))
    return hashlib.sha256(text.encode()).hexdigest()


def defined_by(statement: ast.AST) -> set[str]:
    """Return the names that a statement defines in its own scope."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def is_for_type_checkers(statement: ast.stmt) -> bool:
    """Return whether it is an ``if TYPE_CHECKING``."""
    if not isinstance(statement, ast.If):
        return False
    test = statement.test
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


class _Writer:
    """Writes nodes as text, without empty fields, which only some Pythons have."""

    def __init__(self, *, annotations: bool) -> None:
        self._annotations = annotations

    def write(self, node: object, *, in_class: bool = False) -> Iterator[str]:
        """Yield the text of a node, of a list of them, or of a constant."""
        if isinstance(node, ast.AnnAssign) and not self._annotations:
            yield from self._write_bare(node, in_class=in_class)
        elif isinstance(node, ast.JoinedStr):
            yield from self._write_f_string(node)
        elif isinstance(node, ast.AST):
            yield type(node).__name__ + "("
            for name, value in ast.iter_fields(node):
                yield from self._field(node, name, value)
            yield ")"
        elif isinstance(node, list):
            yield "["
            for item in node:
                yield from self.write(item, in_class=in_class)
                yield ","
            yield "]"
        else:
            yield f"{type(node).__name__} {node!a}"

    def _field(self, node: ast.AST, name: str, value: object) -> Iterator[str]:
        if name in _IGNORED or (name in _ANNOTATIONS and not self._annotations):
            return
        if isinstance(value, list):
            value = list(_significant(value))
        if isinstance(node, ast.Call) and isinstance(value, list) and name == "keywords":
            value = [one for one in value if not _says_what_hashes_omit(node, one)]
        # None is a value in a constant; everywhere else it means an empty field.
        if value == [] or (value is None and not isinstance(node, ast.Constant)):
            return
        # Imports have this field from Python 3.15 on, with 0 where older Pythons have none.
        if name == "is_lazy" and not value:
            return
        yield name + "="
        yield from self.write(value, in_class=isinstance(node, ast.ClassDef))
        yield ","

    def _write_f_string(self, node: ast.JoinedStr) -> Iterator[str]:
        """Yield an f-string with joined constant parts, which only Python 3.12 splits."""
        yield "JoinedStr["
        text = ""
        for part in node.values:
            if isinstance(part, ast.Constant):
                text += str(part.value)
                continue
            yield f"{text!a},"
            text = ""
            yield from self.write(part)
        yield f"{text!a}]"

    def _write_bare(self, node: ast.AnnAssign, *, in_class: bool) -> Iterator[str]:
        """Yield an assignment without its annotation; in a class, an annotation makes a field."""
        field = in_class and "ClassVar" not in ast.unparse(node.annotation)
        if field or node.value is None:
            yield "Field("
            yield from self.write(node.target)
            if node.value is not None:
                yield "="
                yield from self.write(node.value)
            yield ")"
        else:
            yield from self.write(ast.Assign(targets=[node.target], value=node.value))


def _says_what_hashes_omit(call: ast.Call, keyword: ast.keyword) -> bool:
    """Return whether it is ``dynamic=False`` of a ``Variant``, once the default.

    The hash of the declaration has the value, where it is another one.
    """
    makers = [call.func, *call.args[:1]]  # the second one in partial(Variant, ...)
    return (
        keyword.arg == "dynamic"
        and isinstance(keyword.value, ast.Constant)
        and keyword.value.value is False
        and any(isinstance(one, ast.Name) and one.id == "Variant" for one in makers)
    )


def _significant(nodes: list[object]) -> Iterator[object]:
    """Yield the nodes except docstrings, ``pass`` and code for type checkers."""
    for node in nodes:
        if isinstance(node, ast.Pass):
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.stmt) and is_for_type_checkers(node):
            yield from _significant(list(getattr(node, "orelse", [])))
            continue
        yield node
