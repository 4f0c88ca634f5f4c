"""What names mean in the source of others, by its syntax trees."""

from __future__ import annotations

import ast
import re
from copy import copy
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from ivhl.tracker.store.records import grouped_by

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# What is replaced by its whole name, if it is imported: not what nothing here asks for.
_WHOLE: Final = re.compile(
    r"torch$|torch\.(?:_?compile|_dynamo|_inductor|_?export|_disable|version|torch_version|__v)"
    r"|(?:sys|sysconfig|platform|packaging|importlib|operator)\b(?!.*\*)"
)
_BLOCKS: Final = ("body", "handlers", "orelse", "finalbody", "cases")
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
# Statements of a function that is read as one expression: its local names are put in, each time.
_LONGEST_TEST: Final = 8


def whole_names(tree: ast.Module) -> ast.Module:
    """Return a tree, the same one, in which modules have their whole names: ``th.compile``."""
    meanings: dict[str, str] = {}
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        left += [x for name in _BLOCKS for x in getattr(node, name, ()) if isinstance(x, ast.AST)]
        if isinstance(node, ast.Import):
            meanings |= {one.asname: one.name for one in node.names if one.asname}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            meanings |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    meanings = {name: whole for name, whole in meanings.items() if _WHOLE.match(whole)}
    return _WholeNames(meanings).visit(tree) if meanings else tree


class _WholeNames(ast.NodeTransformer):
    def __init__(self, meanings: Mapping[str, str]) -> None:
        self._meanings = meanings

    def visit_Name(self, node: ast.Name) -> ast.expr:
        meaning = self._meanings.get(node.id)
        if meaning is None or not isinstance(node.ctx, ast.Load):
            return node
        first, *others = meaning.split(".")
        whole: ast.expr = ast.copy_location(ast.Name(first, ast.Load()), node)
        for name in others:
            whole = ast.copy_location(ast.Attribute(whole, name, ast.Load()), node)
        return whole


def bindings(scope: ast.AST) -> dict[str, ast.expr]:
    """Return what names mean that a module or function binds once, also in its ``if`` and ``try``.

    A function of the project is bound as a lambda where its statements can be read as one
    expression. A name with two meanings has none.
    """
    return shared([[one] for one in _bound(scope)])


def shared(modules: Iterable[Iterable[tuple[str, ast.expr]]]) -> dict[str, ast.expr]:
    """Return names that mean the same in all modules that bind them."""
    meanings = grouped_by(chain.from_iterable(modules), itemgetter(0))
    return {
        name: first
        for name, ((_, first), *others) in meanings.items()
        if not others or {ast.dump(first)} == {ast.dump(value) for _, value in others}
    }


def _bound(scope: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    left = list(ast.iter_child_nodes(scope))
    while left:
        node = left.pop()
        if not isinstance(node, _FUNCTIONS):
            left += ast.iter_child_nodes(node)
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            yield from _assigned(node.targets[0], node.value)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value:
            yield from _assigned(node.target, node.value)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, ast.Constant(...)  # another meaning, which nothing tells
        elif isinstance(node, ast.ImportFrom):
            for one in node.names:
                if one.asname and one.asname != one.name:
                    yield one.asname, ast.Name(one.name, ast.Load())
        elif isinstance(node, ast.FunctionDef) and (returned := _returned(node.body)):
            yield node.name, ast.Lambda(node.args, returned)


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple):
        for number, one in enumerate(target.elts):  # MAJOR, MINOR = sys.version_info[:2]
            if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts):
                yield from _assigned(one, value.elts[number])
            else:
                yield from _assigned(one, ast.Subscript(value, ast.Constant(number), ast.Load()))


def _returned(
    body: list[ast.stmt], local: Mapping[str, ast.expr] | None = None
) -> ast.expr | None:
    """Return what a function returns as one expression; ``None`` if its statements are others."""
    local = dict(local or {})
    if len(body) > _LONGEST_TEST:
        return None
    for number, statement in enumerate(body):
        if isinstance(statement, ast.Return):
            return statement.value and with_names(statement.value, local)
        if isinstance(statement, ast.If):
            then = _returned(statement.body, local)
            other = _returned(statement.orelse or body[number + 1 :], local)
            test = with_names(statement.test, local)
            return ast.IfExp(test, then, other) if then and other else None
        if isinstance(statement, ast.Assign):
            local |= dict(_assigned(statement.targets[0], with_names(statement.value, local)))
        elif not (
            isinstance(statement, ast.Import | ast.ImportFrom | ast.Pass)
            or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        ):
            return None
    return None


def with_names(node: ast.expr, given: Mapping[str, ast.expr]) -> ast.expr:
    """Return an expression with others in the place of names that are read."""
    if isinstance(node, ast.Name):
        return given.get(node.id, node) if isinstance(node.ctx, ast.Load) else node
    found = copy(node)
    for name, field in ast.iter_fields(node):
        if isinstance(field, list):
            many = [with_names(x, given) if isinstance(x, ast.AST) else x for x in field]  # type: ignore[arg-type]
            setattr(found, name, many)
        elif isinstance(field, ast.AST):
            setattr(found, name, with_names(field, given))  # type: ignore[arg-type]
    return found


class Names:
    """What names stand for: constants and functions of modules that hold a condition or a version.

    Args:
        own: Name to its expression in the same file.
        others: Name to its expression in other files, where all that bind it mean the same.
    """

    def __init__(
        self, own: Mapping[str, ast.expr], others: Mapping[str, ast.expr] | None = None
    ) -> None:
        self._own = own
        self._others = others or {}
        self._hidden: frozenset[str] = frozenset()

    def inside(self, names: Mapping[str, ast.expr]) -> Names:
        """Return these names with those of a function."""
        return Names({**self._own, **names}, self._others)

    def find(self, name: str) -> ast.expr | None:
        """Return the expression that a name stands for."""
        return None if name in self._hidden else self._own.get(name) or self._others.get(name)

    def meaning(self, node: ast.expr) -> ast.expr | None:
        """Return what a name or a dotted name stands for.

        Attributes of PyTorch, of objects, and of what is called have no meaning by their name.
        """
        if first_name(node) in {"torch", "self", "cls", "packaging", "sys", ""}:
            return None
        return self.find(last_name(node))

    def without(self, name: str) -> Names:
        """Return these names but for one, whose meaning is looked at: it is not part of itself."""
        inner = Names(self._own, self._others)
        inner._hidden = self._hidden | {name}
        return inner


def first_name(node: ast.expr) -> str:
    """Return the first part of a dotted name; empty for anything else."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def last_name(node: ast.AST) -> str:
    """Return the last part of a dotted name; empty for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
