"""Marks that skip tests, or let them fail, where a version is in a range."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, NamedTuple

from ivhl.version_checks.names import last_name
from ivhl.version_checks.version_conditions import ALWAYS, Condition, Leaf, condition_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ivhl.version_checks.checks import CheckKind
    from ivhl.version_checks.names import Names

_SKIPS: Final = frozenset({"skip", "skipif", "skipIf", "skipUnless", "xfail"})


class Mark(NamedTuple):
    """A mark of a test.

    Attributes:
        excludes: Where it skips, or lets the test fail.
    """

    kind: CheckKind
    excludes: Condition
    reason: str


def marks_in(value: ast.expr) -> list[ast.expr]:
    """Return the marks of an expression."""
    return value.elts if isinstance(value, ast.List | ast.Tuple) else [value]


def read_mark(mark: ast.expr, names: Names) -> Mark | None:
    """Return what a mark says, or a name that means one; ``None`` if it is none that skips."""
    call = mark if isinstance(mark, ast.Call) else None
    if isinstance(mark, ast.Attribute) and last_name(mark.value) == "mark":
        call = ast.Call(mark, [], [])
    if call is None or last_name(call.func) not in _SKIPS:
        call = _skip_in(names.find(last_name(getattr(mark, "func", mark))))
    if call is None:
        return None
    name, condition = last_name(call.func), _condition_in(call)
    excludes = ALWAYS if condition is None else _read_condition(condition, names)
    return Mark(
        kind="xfail" if name == "xfail" else "skip",
        excludes=~excludes if name == "skipUnless" and condition is not None else excludes,
        reason=_reason_of(call),
    )


def first_text(nodes: Iterable[ast.AST]) -> str:
    """Return the first of these that is a text and not empty, cut off."""
    return " ".join(next(filter(None, map(_text, nodes)), "").split())[:200]


def _text(node: ast.AST) -> str:
    """Return a text, or one with values in braces; empty for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if not isinstance(node, ast.JoinedStr):
        return ""
    return "".join(
        f"{{{ast.unparse(part.value)}}}" if isinstance(part, ast.FormattedValue) else _text(part)
        for part in node.values
    )


def _reason_of(call: ast.Call) -> str:
    named = (word.value for word in call.keywords if word.arg == "reason")
    return first_text([*named, *call.args[last_name(call.func) != "skip" :]])


def _skip_in(node: ast.expr | None) -> ast.Call | None:
    if isinstance(node, ast.Lambda):  # a decorator of the project that returns what skips
        node = node.body
    while isinstance(node, ast.Call):
        if last_name(node.func) in _SKIPS:
            return node
        node = node.func  # of `unittest.skipIf(...)(test)`
    return None


def _condition_in(call: ast.Call) -> ast.expr | None:
    """Return the condition of a mark; ``None`` if it has none."""
    if last_name(call.func) == "skip":
        return None
    named = (word.value for word in call.keywords if word.arg == "condition")
    return call.args[0] if call.args else next(named, None)


def _read_condition(node: ast.expr, names: Names) -> Condition:
    """Return the condition of a mark, which pytest also takes as a text."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return condition_of(node, names)
    try:
        return condition_of(ast.parse(node.value, mode="eval").body, names)
    except (SyntaxError, ValueError):
        return Leaf(node.value)
