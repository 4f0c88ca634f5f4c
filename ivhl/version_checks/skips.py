"""Marks that skip tests, or let them fail, where a version is in a range."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from ivhl.version_checks.checks import CheckKind, Edit, edit_of
from ivhl.version_checks.compiling import speaks_of_compiling
from ivhl.version_checks.conditions import (
    ALWAYS,
    Condition,
    Leaf,
    condition_of,
    speaks_of_versions,
)
from ivhl.version_checks.names import last_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ivhl.version_checks.find import Finder
    from ivhl.version_checks.names import Names

_SKIPS: Final = frozenset({"skip", "skipif", "skipIf", "skipUnless", "xfail"})
# What a mark becomes that is switched off: a decorator, one of a list, or the only one.
IDENTITY: Final = "(lambda function: function)"
_NONE_OF_A_LIST: Final = "*()"
EMPTY: Final = "[]"
NO_EFFECT: Final = '"usefixtures"'  # of a mark that a test gives to itself, the name


def look_at_marks(finder: Finder, value: ast.expr, about_code: str, gone: str) -> None:
    """Look at a mark, or at a list of marks; ``gone`` stands in the place of a single one."""
    listed = isinstance(value, ast.List | ast.Tuple)
    for mark in value.elts if isinstance(value, ast.List | ast.Tuple) else [value]:
        look_at_mark(finder, mark, about_code, _NONE_OF_A_LIST if listed else gone)


def look_at_mark(finder: Finder, mark: ast.expr, about_code: str, gone: str = IDENTITY) -> None:
    """Add a mark that asks for versions, or that holds where the code around it runs.

    Args:
        finder: At the place of the mark.
        mark: A call, an attribute, or a name that means one.
        about_code: Source of the code that it marks.
        gone: What stands in its place if it is switched off.
    """
    call, direct = (mark, True) if isinstance(mark, ast.Call) else (None, False)
    if isinstance(mark, ast.Attribute) and last_name(mark.value) == "mark":
        call = ast.Call(mark, [], [])
    if call is None or last_name(call.func) not in _SKIPS:
        meaning = finder.names.find(last_name(getattr(mark, "func", mark)))
        call, direct = _skip_in(meaning), False
    if call is None:
        return
    name, condition = last_name(call.func), _condition_in(call)
    excluded = ALWAYS if condition is None else _read_condition(condition, finder.names)
    if name == "skipUnless" and condition is not None:
        excluded = ~excluded
    reason = _reason_of(call)
    about = speaks_of_compiling(f"{about_code} {reason}")
    # Without a condition of its own it holds wherever the code around it runs.
    everywhere = excluded == ALWAYS
    if not speaks_of_versions(excluded) and not (everywhere and (about or finder.given)):
        return
    edits: tuple[Edit, ...] = (edit_of(mark, gone),)  # the mark goes, other uses of it stay
    if direct and condition is not None:
        stays = name == "skipUnless"
        edits = finder.switched(condition, to=stays)
        if isinstance(condition, ast.Constant):
            edits = (edit_of(condition, str(stays)),)
    kind: CheckKind = "xfail" if name == "xfail" else "skip"
    finder.add(mark, kind, excluded, *edits, reason=reason, about=about)


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
