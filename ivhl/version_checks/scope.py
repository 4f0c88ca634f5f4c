"""What holds at a place in a file that is visited, and the checks that were found on the way."""

from __future__ import annotations

import ast
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from ivhl.version_checks.checks import CheckKind, Edit, FoundCheck, edit_of
from ivhl.version_checks.names import Names, bindings, last_name
from ivhl.version_checks.values import CaseTest
from ivhl.version_checks.version_conditions import (
    Always,
    Condition,
    condition_of,
    joined,
    speaks_of_versions,
)
from ivhl.version_checks.walks import blocks_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ivhl.syntax import SourceFile

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Scope:
    """The place in a file that a visit has come to.

    Args:
        source: The file.
        own: What its names mean (``names.bindings``).
        known: What names of other files mean.

    Attributes:
        checks: Checks around compiled code.
        others: Further conditions on versions.
        given: Conditions on versions that hold at the place: of blocks around it, and of
            statements that have left its block before.
    """

    def __init__(
        self, source: SourceFile, own: Mapping[str, ast.expr], known: Mapping[str, ast.expr]
    ) -> None:
        self.source = source
        self.checks: list[FoundCheck] = []
        self.others: list[FoundCheck] = []
        self.given: list[Condition] = []
        self._lines = source.lines
        self._own = [dict(own)]
        self._known = known
        self._places = _places(source.tree)
        self._definitions: list[Definition] = []
        self._conditions: dict[int, Condition] = {}
        self._bindings: dict[int, dict[str, ast.expr]] = {}

    @property
    def names(self) -> Names:
        """What names mean at the place."""
        return Names(self._own[-1], self._known)

    @property
    def definition(self) -> Definition | None:
        """The function or class around the place."""
        return self._definitions[-1] if self._definitions else None

    @contextmanager
    def inside(self, node: Definition) -> Iterator[None]:
        """Move into a function or class."""
        self._definitions.append(node)
        yield
        self._definitions.pop()

    @contextmanager
    def naming(self, names: Mapping[str, ast.expr]) -> Iterator[None]:
        """Let more names have a meaning."""
        self._own.append({**self._own[-1], **names})
        yield
        self._own.pop()

    def condition(self, node: ast.expr) -> Condition:
        """Return the condition that an expression is at the place, its own."""
        condition = self._conditions.get(id(node))
        if condition is None:
            condition = self._conditions[id(node)] = condition_of(node, self.names)
        return condition

    def meant(self, node: ast.expr) -> ast.expr:
        """Return what a name of this file means, or the expression itself."""
        return self._own[-1].get(last_name(node), node) if isinstance(node, ast.Name) else node

    def names_in(self, node: ast.AST) -> dict[str, ast.expr]:
        """Return ``bindings`` of a function, which a class asks for before its methods are."""
        names = self._bindings.get(id(node))
        if names is None:
            names = self._bindings[id(node)] = bindings(node)
        return names

    def defaults_of(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, ast.expr]:
        """Return what the parameters mean that ask for versions if nobody gives another value."""
        arguments = node.args
        plain = [*arguments.posonlyargs, *arguments.args][::-1]
        asking = {
            argument.arg: value
            for argument, value in (
                *zip(plain, arguments.defaults[::-1], strict=False),
                *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
            )
            if value is not None and speaks_of_versions(self.condition(value))
        }
        for child in ast.walk(node) if asking else ():
            if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                asking.pop(child.id, None)
        return asking

    def left_by(self, node: ast.stmt) -> Condition | None:
        """Return where a statement leaves its block; ``None`` if it does not, or nobody can tell."""
        if leaves(node):
            return Always()
        if not isinstance(node, ast.If):
            return None
        condition = self.condition(node.test)
        sides = []
        for side, holds in ((node.body, condition), (node.orelse, ~condition)):
            lefts = [left for child in side if (left := self.left_by(child)) is not None]
            if lefts:
                sides.append(joined("and", holds, joined("or", *lefts)))
        return joined("or", *sides) if sides else None

    def after(self, node: ast.stmt) -> list[ast.stmt]:
        """Return what runs after a statement if it does not leave, to the end of its function."""
        statements: list[ast.stmt] = []
        outer: ast.stmt | None = node
        while outer is not None:
            place = self._places[id(outer)]
            statements += place.block[place.number + 1 :]
            outer = place.around
        return statements

    def switched(self, test: ast.expr, *, to: bool) -> tuple[Edit, ...]:
        """Return what makes a condition have a value, as far as versions decide it.

        What else it asks, such as whether there is a GPU, stays.
        """
        if isinstance(test, ast.BoolOp):
            return tuple(edit for value in test.values for edit in self.switched(value, to=to))
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self.switched(test.operand, to=not to)
        if speaks_of_versions(condition_of(test, self.names)):
            return (edit_of(test, f"_ if {to}" if isinstance(test, CaseTest) else str(to)),)
        return ()

    def add(
        self,
        node: ast.expr | ast.stmt,
        kind: CheckKind,
        excludes: Condition,
        *edits: Edit,
        reason: str = "",
        about: bool = True,
    ) -> None:
        """Add a check; ``about`` says whether compiled code is around it."""
        check = FoundCheck(
            path=self.source.name,
            line=node.lineno,
            kind=kind,
            name=".".join(definition.name for definition in self._definitions) or "(module)",
            excludes=joined("and", *self.given, excludes),
            reason=reason,
            source=self._lines[node.lineno - 1].strip()[:120],
            edits=edits if self.source.editable else (),
        )
        (self.checks if about else self.others).append(check)

    def text_around(self) -> str:
        """Return the source of the function or class around the place, or else of the file."""
        return self.source.text if self.definition is None else self.segment(self.definition)

    def segment(self, node: ast.expr | ast.stmt) -> str:
        """Return the source of a node; ``ast.get_source_segment`` splits the file each time."""
        last = node.end_lineno or node.lineno
        lines = [line.encode() for line in self._lines[node.lineno - 1 : last]]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return b"\n".join(lines).decode()


def leaves(node: ast.AST) -> bool:
    """Return whether what comes after a statement is not run."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return last_name(node.value.func) in ("skip", "skipTest", "exit")
    return isinstance(node, ast.Raise | ast.Return | ast.Continue)


class _Place(NamedTuple):
    """Where a statement is.

    Attributes:
        block: The statements of its block.
        number: Its own among them.
        around: The statement whose block it is, in the same function; or ``None``.
    """

    block: list[ast.stmt]
    number: int
    around: ast.stmt | None


def _places(tree: ast.AST) -> dict[int, _Place]:
    """Return the place of each statement, by ``id``."""
    places: dict[int, _Place] = {}
    left: list[tuple[ast.AST, ast.stmt | None]] = [(tree, None)]
    while left:
        node, around = left.pop()
        if isinstance(node, Definition):
            around = None
        elif isinstance(node, ast.stmt):
            around = node
        for block in blocks_of(node):
            for number, child in enumerate(block):
                if isinstance(child, ast.stmt):
                    places[id(child)] = _Place(block, number, around)
                left.append((child, around))
    return places
