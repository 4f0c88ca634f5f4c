"""What the attributes of the classes of a code base mean, inherited ones included."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ivhl.version_checks.names import attributes, bindings, bound_in, last_name
from ivhl.version_checks.walks import statements_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class _Class(NamedTuple):
    """What other classes inherit from a class.

    Attributes:
        bases: The last names of its bases.
        own: As ``attributes`` of it.
        bound: As ``bound_in`` of it.
    """

    bases: tuple[str, ...]
    own: Mapping[str, ast.expr]
    bound: frozenset[str]


class Classes:
    """The classes of a code base, and what their attributes mean."""

    def __init__(self) -> None:
        # Nobody can tell which of several with one name is inherited from: these are ``None``.
        self._named: dict[str, _Class | None] = {}
        self._found: dict[str, dict[str, ast.expr]] = {}

    def add(self, tree: ast.AST) -> None:
        """Add the classes of a file."""
        for node in statements_in(tree):
            if isinstance(node, ast.ClassDef):
                known = node.name in self._named
                self._named[node.name] = None if known else _class_of(node, bindings)

    def attributes(
        self, node: ast.ClassDef, names_in: Callable[[ast.AST], Mapping[str, ast.expr]]
    ) -> dict[str, ast.expr]:
        """Return ``attributes`` of a class, and what it inherits and does not bind itself."""
        # The only class of its name is this one.
        known = self._named.get(node.name) or _class_of(node, names_in)
        return self._whole(known, frozenset({node.name}))

    def _whole(self, one: _Class, below: frozenset[str]) -> dict[str, ast.expr]:
        """Return what a class binds and inherits; ``below`` are those that inherit from it."""
        inherited: dict[str, ast.expr] = {}
        for base in reversed(one.bases):
            parent = self._named.get(base)
            if parent is not None and base not in below:
                if base not in self._found:
                    self._found[base] = self._whole(parent, below | {base})
                inherited |= self._found[base]
        kept = {name: meant for name, meant in inherited.items() if name not in one.bound}
        above = {
            f"super().{name.removeprefix('self.')}": meant
            for name, meant in inherited.items()
            if name.startswith("self.")
        }
        return above | kept | dict(one.own)


def _class_of(node: ast.ClassDef, names_in: Callable[[ast.AST], Mapping[str, ast.expr]]) -> _Class:
    return _Class(
        tuple(map(last_name, node.bases)),
        attributes(node, names_in),
        frozenset(f"self.{name}" for name in bound_in(node)),
    )
