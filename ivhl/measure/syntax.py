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
    return hashlib.sha256(_text(tree, annotations=annotations).encode()).hexdigest()


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


def _text(node: object, *, annotations: bool, in_class: bool = False) -> str:
    """Return the text of a node, of a list of them, or of a constant.

    Without empty fields, which only some Pythons have.
    """
    if isinstance(node, ast.AnnAssign) and not annotations:
        return _bare(node, in_class=in_class)
    if isinstance(node, ast.JoinedStr):
        return _f_string(node, annotations=annotations)
    # No generators: their frames count where a tree is nearly too deep.
    found = ""
    if isinstance(node, ast.AST):
        for name, value in ast.iter_fields(node):
            found += _field(node, name, value, annotations=annotations)
        return f"{type(node).__name__}({found})"
    if isinstance(node, list):
        for item in node:
            found += f"{_text(item, annotations=annotations, in_class=in_class)},"
        return f"[{found}]"
    return f"{type(node).__name__} {node!a}"


def _field(node: ast.AST, name: str, value: object, *, annotations: bool) -> str:
    if name in _IGNORED or (name in _ANNOTATIONS and not annotations):
        return ""
    if isinstance(value, list):
        value = list(_significant(value))
        if isinstance(node, ast.Call) and name == "keywords":
            value = [one for one in node.keywords if not _says_what_hashes_omit(node, one)]
    # None is a value in a constant; everywhere else it means an empty field. Imports have is_lazy
    # from Python 3.15 on, with 0 where older Pythons have none.
    is_empty = value == [] or (value is None and not isinstance(node, ast.Constant))
    if is_empty or (name == "is_lazy" and not value):
        return ""
    in_class = isinstance(node, ast.ClassDef)
    return f"{name}={_text(value, annotations=annotations, in_class=in_class)},"


def _f_string(node: ast.JoinedStr, *, annotations: bool) -> str:
    """Return an f-string with joined constant parts, which only Python 3.12 splits."""
    found, text = "", ""
    for part in node.values:
        if isinstance(part, ast.Constant):
            text += str(part.value)
        else:
            found += f"{text!a},{_text(part, annotations=annotations)}"
            text = ""
    return f"JoinedStr[{found}{text!a}]"


def _bare(node: ast.AnnAssign, *, in_class: bool) -> str:
    """Return an assignment without its annotation; in a class, an annotation makes a field."""
    field = in_class and "ClassVar" not in ast.unparse(node.annotation)
    if not field and node.value is not None:
        plain = ast.Assign(targets=[node.target], value=node.value)
        return _text(plain, annotations=False)
    value = "" if node.value is None else f"={_text(node.value, annotations=False)}"
    return f"Field({_text(node.target, annotations=False)}{value})"


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
