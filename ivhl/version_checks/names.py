"""What names mean in the source of others, by its syntax trees."""

from __future__ import annotations

import ast
from collections import defaultdict
from copy import copy
from typing import TYPE_CHECKING, Final

from ivhl.version_checks.walks import FIELDS, blocks_of, children_of, nodes_in, statements_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

# Modules whose names in a file are replaced by their whole names.
_MODULES: Final = frozenset(
    {"torch", "sys", "sysconfig", "platform", "packaging", "importlib", "operator", "re"}
)
# Asked of every node, as are those that bind a name: a tuple is asked faster than ``A | B``.
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_BINDING: Final = frozenset(
    {ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.AugAssign, ast.ImportFrom, ast.FunctionDef}
)
# Statements of a function that is read as one expression: its local names are put in, each time.
_LONGEST_TEST: Final = 8


def whole_names(tree: ast.Module) -> ast.Module:
    """Return a tree in which modules have their whole names; it may be the same one, changed."""
    meanings: dict[str, str] = {}
    for node in statements_in(tree):
        if isinstance(node, ast.Import):
            meanings |= {
                one.asname: one.name
                for one in node.names
                if one.asname and one.name.partition(".")[0] in _MODULES
            }
        elif (
            isinstance(node, ast.ImportFrom)
            and not node.level
            and (node.module or "").partition(".")[0] in _MODULES
        ):
            meanings |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    meanings.pop("*", None)
    if meanings:
        _write_whole_names(tree, meanings)
    return tree


def _write_whole_names(tree: ast.AST, meanings: Mapping[str, str]) -> None:
    """Replace what a file calls a module's name by its whole name: ``th.compile``."""
    left = [tree]
    while left:
        node = left.pop()
        for name in FIELDS[type(node)]:
            field = getattr(node, name, None)
            if isinstance(field, ast.Name):
                setattr(node, name, _whole(field, meanings))
            elif isinstance(field, ast.AST):
                left.append(field)
            elif isinstance(field, list):
                for number, one in enumerate(field):
                    if isinstance(one, ast.Name):
                        field[number] = _whole(one, meanings)
                    elif isinstance(one, ast.AST):
                        left.append(one)


def _whole(node: ast.Name, meanings: Mapping[str, str]) -> ast.expr:
    """Return the whole name where a name of a module is read."""
    meaning = meanings.get(node.id)
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
    return _of_one_meaning(_bound(scope))


def _of_one_meaning(bound: Iterable[tuple[str, ast.expr]]) -> dict[str, ast.expr]:
    """Return the names that are bound to one expression only, however often."""
    meanings: dict[str, list[ast.expr]] = defaultdict(list)
    for name, value in bound:
        meanings[name].append(value)
    return {name: found[0] for name, found in meanings.items() if _are_one(found)}


def _are_one(found: list[ast.expr]) -> bool:
    """Return whether expressions are the same.

    Writing down each one would take most of the time: most names are bound once, or differ at once.
    """
    first, *others = found
    if not others:
        return True
    if any(type(one) is not type(first) for one in others):
        return False
    text = ast.dump(first)
    return all(ast.dump(one) == text for one in others)


def bound_in(node: ast.ClassDef) -> set[str]:
    """Return the attributes that a class binds anywhere, and the names of its methods."""
    found: set[str] = set()
    for one in nodes_in(node):
        if isinstance(one, ast.Name):
            if isinstance(one.ctx, ast.Store):
                found.add(one.id)
        elif isinstance(one, ast.Attribute):
            if isinstance(one.ctx, ast.Store):
                found.add(one.attr)
        elif isinstance(one, _FUNCTIONS):
            found.add(one.name)
    return found


def attributes(
    node: ast.ClassDef, names_in: Callable[[ast.AST], Mapping[str, ast.expr]] = bindings
) -> dict[str, ast.expr]:
    """Return what ``self.name`` means in a class whose methods bind it once, by ``self.name``.

    A property of one expression counts, too. Of a value that is an argument of the method, nothing
    tells the meaning.

    Args:
        node: The class.
        names_in: Returns ``bindings`` of a method, maybe stored ones.
    """
    meant: list[tuple[str, ast.expr]] = []
    for method in node.body:
        if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) or not method.args.args:
            continue
        if any(_is_property(one) for one in method.decorator_list):
            meant.append((f"self.{method.name}", _returned(method.body) or ast.Constant(...)))
        first, *others = (*method.args.args, *method.args.kwonlyargs)
        # What is added to, or only declared, has another meaning, which nothing tells.
        bound = [
            (one.attr, part)
            for statement in _statements_of(method)
            if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign)
            for target in (
                statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            )
            for one, part in _parts(
                target,
                (None if isinstance(statement, ast.AugAssign) else statement.value)
                or ast.Constant(...),
            )
            if isinstance(one, ast.Attribute)
            and isinstance(one.value, ast.Name)
            and one.value.id == first.arg
        ]
        if bound:
            given = {one.arg: ast.Name(f"argument {one.arg}") for one in others}
            local = {**names_in(method), **given}
            meant += [(f"self.{name}", with_names(part, local)) for name, part in bound]
    return _of_one_meaning(meant)


def _is_property(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name in {"property", "cached_property"}


def shared(modules: Iterable[Mapping[str, ast.expr]]) -> dict[str, ast.expr]:
    """Return names that mean the same in all modules that bind them."""
    return _of_one_meaning(one for names in modules for one in names.items())


def _bound(scope: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for node in (one for one in _inside(scope) if type(one) in _BINDING):
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
        elif isinstance(node, ast.FunctionDef):
            returned = _returned(node.body)
            if returned is not None:
                yield node.name, ast.Lambda(node.args, returned)


def _inside(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a scope, without those of the functions in it."""
    left = children_of(scope)
    while left:
        node = left.pop()
        yield node
        if not isinstance(node, _FUNCTIONS) and not isinstance(node, ast.Lambda):
            left += children_of(node)


def _statements_of(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a scope, without those of the functions in it, as ``_inside`` does."""
    left = [one for block in blocks_of(scope) for one in block]
    while left:
        node = left.pop()
        yield node
        if not isinstance(node, _FUNCTIONS):
            for block in blocks_of(node):
                left += block


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    for one, part in _parts(target, value):
        if isinstance(one, ast.Name):
            yield one.id, part


def _parts(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    if not isinstance(target, ast.Tuple | ast.List):
        yield target, value
        return
    for number, one in enumerate(target.elts):  # MAJOR, MINOR = sys.version_info[:2]
        if isinstance(one, ast.Starred):
            break
        part = (
            value.elts[number]
            if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)
            else ast.Subscript(value, ast.Constant(number), ast.Load())
        )
        yield one, part


def with_names(node: ast.expr, given: Mapping[str, ast.expr]) -> ast.expr:
    """Return an expression with others in the place of names that are read.

    Arguments stand in the place of parameters, values in that of local names. What has none of the
    names is not copied.
    """
    found = _with_names(node, given)
    assert isinstance(found, ast.expr)  # noqa: S101  (as the node itself)
    return found


def _with_names(node: ast.AST, given: Mapping[str, ast.expr]) -> ast.AST:
    if isinstance(node, ast.Name):
        return given.get(node.id, node) if isinstance(node.ctx, ast.Load) else node
    changed: dict[str, object] = {}
    for name in FIELDS[type(node)]:
        field = getattr(node, name, None)
        if isinstance(field, ast.AST):
            if (new := _with_names(field, given)) is not field:
                changed[name] = new
        elif isinstance(field, list):
            each = [_with_names(one, given) if isinstance(one, ast.AST) else one for one in field]
            if any(new is not one for new, one in zip(each, field, strict=True)):
                changed[name] = each
    if not changed:
        return node
    found = copy(node)
    for name, value in changed.items():
        setattr(found, name, value)
    return found


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
            continue
        plain = isinstance(statement, ast.Import | ast.ImportFrom | ast.Pass) or (
            isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        )
        if not plain:
            return None
    return None


class Names:
    """What names stand for: constants of modules that hold a condition or a version.

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
        self._inner: dict[str, Names] = {}

    def find(self, name: str) -> ast.expr | None:
        """Return the expression that a name stands for."""
        if name.removeprefix("self.") in self._hidden:
            return None
        return self._own.get(name) or self._others.get(name)

    def meaning(self, node: ast.expr) -> ast.expr | None:
        """Return what a name or a dotted name stands for; of PyTorch's own ones nothing."""
        if isinstance(node, ast.Attribute) and _is_super(node.value):
            return self.find(f"super().{node.attr}")
        first = first_name(node) if isinstance(node, ast.Attribute) else None
        if first == "torch":
            return None
        own = self.find(f"self.{last_name(node)}") if first == "self" else None
        return own or self.find(last_name(node))

    def without(self, name: str) -> Names:
        """Return these names but for one, whose meaning is looked at: it is not part of itself."""
        inner = self._inner.get(name)
        if inner is None:
            inner = self._inner[name] = Names(self._own, self._others)
            inner._hidden = self._hidden | {name}
        return inner


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) == "super"


def first_name(node: ast.expr) -> str:
    """Return the first part of a dotted name."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return last_name(node)


def last_name(node: ast.expr) -> str:
    """Return the last part of a dotted name; empty for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
