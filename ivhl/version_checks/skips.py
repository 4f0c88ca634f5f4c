"""Marks that skip tests, or let them fail, where a version is in a range."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from ivhl.version_checks.checks import CheckKind, Edit, edit_of
from ivhl.version_checks.compiling import speaks_of_compiling
from ivhl.version_checks.names import last_name
from ivhl.version_checks.version_conditions import (
    Always,
    Condition,
    Unknown,
    condition_of,
    joined,
    of_version,
    speaks_of_versions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ivhl.version_checks.names import Names
    from ivhl.version_checks.scope import Scope

_SKIPS: Final = frozenset(
    {"skip", "skipif", "skipIf", "skipUnless", "xfail", "RunIf", "withPackage"}
)
_CONDITIONAL: Final = frozenset({"skipif", "skipIf", "skipUnless", "xfail"})
_RUN_IF: Final = {"min_torch": "<", "max_torch": ">=", "min_python": "<"}
# What a mark becomes that is switched off: a decorator, one of a list, the only one, one that a
# test gives to itself (of any mark without effect, the name).
IDENTITY: Final = "(lambda function: function)"
_NONE_OF_A_LIST: Final = "*()"
_EMPTY: Final = "[]"
NO_EFFECT: Final = '"usefixtures"'


class Skips:
    """Looks at marks at the place of a scope, and adds those that ask for versions."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def all_of(self, value: ast.expr, about_code: str) -> None:
        """Look at a mark, or at a list of marks."""
        listed = isinstance(value, ast.List | ast.Tuple)
        for mark in value.elts if isinstance(value, ast.List | ast.Tuple) else [value]:
            self.mark(mark, about_code, _NONE_OF_A_LIST if listed else _EMPTY)

    def importorskip(self, node: ast.Call) -> None:
        """Look at ``pytest.importorskip("torch", minversion="2.6")``."""
        first = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else ""
        for least in (word.value for word in node.keywords if word.arg == "minversion"):
            if (
                first == "torch"
                and isinstance(least, ast.Constant)
                and isinstance(least.value, str)
            ):
                excluded = of_version("PyTorch", "<", least.value)
                reason = first_text(word.value for word in node.keywords if word.arg == "reason")
                about = speaks_of_compiling(f"{self._scope.text_around()} {reason}")
                edit = edit_of(least, "None")
                self._scope.add(node, "skip", excluded, edit, reason=reason, about=about)

    def mark(self, mark: ast.expr, about_code: str, gone: str) -> None:
        """Look at a mark.

        Args:
            mark: A call, an attribute, or a name that means one.
            about_code: Source of the code that it marks.
            gone: What stands in its place if it is switched off.
        """
        scope = self._scope
        call, direct = (mark, True) if isinstance(mark, ast.Call) else (None, False)
        if isinstance(mark, ast.Attribute) and last_name(mark.value) == "mark":
            call = ast.Call(mark, [], [])
        if call is None or last_name(call.func) not in _SKIPS:
            meaning = scope.names.find(last_name(getattr(mark, "func", mark)))
            call, direct = _skip_in(meaning), False
        if call is None:
            return
        excluded = _excluded(call, scope.names)
        reason = _reason_of(call)
        about = speaks_of_compiling(f"{about_code} {reason}")
        # Without a condition of its own it holds wherever the code around it runs.
        everywhere = isinstance(excluded, Always) and excluded.value
        if not speaks_of_versions(excluded) and not (everywhere and (about or scope.given)):
            return
        name, condition = last_name(call.func), _condition_in(call)
        edits: tuple[Edit, ...] = (edit_of(mark, gone),)  # the mark goes, other uses of it stay
        if direct and condition is not None and name in _CONDITIONAL:
            stays = name == "skipUnless"
            edits = scope.switched(condition, to=stays)
            if isinstance(condition, ast.Constant):
                edits = (edit_of(condition, str(stays)),)
        kind: CheckKind = "xfail" if name == "xfail" else "skip"
        scope.add(mark, kind, excluded, *edits, reason=reason, about=about)


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


def _excluded(call: ast.Call, names: Names) -> Condition:
    """Return where a mark skips."""
    name = last_name(call.func)
    if name == "RunIf":
        asked = {word.arg: word.value for word in call.keywords}
        return joined("or", *(
            of_version("Python" if "python" in key else "PyTorch", sign, value.value)
            for key, sign in _RUN_IF.items()
            if isinstance(value := asked.get(key), ast.Constant) and isinstance(value.value, str)
        ))  # fmt: skip
    if name == "withPackage":
        packages = (ast.Call(call.func, [package], []) for package in call.args)
        return ~joined("and", *(condition_of(package, names) for package in packages))
    node = _condition_in(call)
    condition = Always() if node is None else _read_condition(node, names)
    return ~condition if name == "skipUnless" and node is not None else condition


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
        return Unknown(node.value)
