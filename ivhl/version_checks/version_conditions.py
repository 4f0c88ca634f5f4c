"""Conditions on the versions of Python and PyTorch in the source of others, by its syntax tree.

Nothing is run. What the tree does not tell is *unknown*, and stays unknown through ``and``, ``or``
and ``not`` unless the rest decides.
"""

from __future__ import annotations

import ast
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from ivhl.version_checks.names import Names, last_name, with_names
from ivhl.version_checks.values import (
    CaseTest,
    TorchVersion,
    Undecided,
    Value,
    VersionsOfCell,
    value_of,
)

_SIGNS: Final[dict[type[ast.cmpop], str]] = {
    ast.GtE: ">=", ast.Gt: ">", ast.LtE: "<=", ast.Lt: "<", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_NEGATED: Final = {
    ">=": "<", "<": ">=", "<=": ">", ">": "<=", "==": "!=", "!=": "==", "": "not", "not": "",
}  # fmt: skip
# Letters of a source that a message shows.
_SHOWN: Final = 80
_SWAPPED: Final = {">=": "<=", "<=": ">=", ">": "<", "<": ">", "==": "==", "!=": "!="}
_WORDS: Final = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<", "eq": "==", "ne": "!="}
# Names of constants that other packages define: TORCH_GE_2_6, IS_PYTHON_LT_3_13.
_NAMED: Final = re.compile(
    r".*(?P<axis>torch|python|_py|^py)(?:_?version)?_?(?:(?P<ge>greater_(?:or_)?equal(?:_than)?|ge|gte"
    r"|at_least|since)|(?P<lt>less_than|less|below|lt|before)|(?P<gt>greater(?:_than)?|gt|after)"
    r"|(?P<le>less_(?:or_)?equal|le|lte))_?(?P<value>\d+(?:_\d+)*)(?:_or_\w+)?",
    re.IGNORECASE,
)
# What `import torch` has had since which release, if somebody asks with hasattr.
_SINCE: Final = {"torch.compile": "2.0.0", "torch._dynamo": "2.0.0", "torch.compiler": "2.1.0"}


@dataclass(frozen=True, slots=True)
class Unknown:
    """What the syntax tree does not tell."""

    text: str
    negated: bool = False

    def holds(self, python: str, torch: str) -> bool | None:
        """Return ``None``."""
        del python, torch
        return None

    def __invert__(self) -> Unknown:
        """Return its opposite."""
        return Unknown(self.text, not self.negated)

    def __str__(self) -> str:
        """Return the source."""
        return f"{'not ' if self.negated else ''}`{self.text[:_SHOWN]}`"


@dataclass(frozen=True, slots=True)
class Always:
    """A condition that holds everywhere, or nowhere."""

    value: bool = True

    def holds(self, python: str, torch: str) -> bool | None:
        """Return whether it holds."""
        del python, torch
        return self.value

    def __invert__(self) -> Always:
        """Return its opposite."""
        return Always(not self.value)

    def __str__(self) -> str:
        """Return it in a word."""
        return "every Python and PyTorch" if self.value else "nothing"


@dataclass(frozen=True, slots=True)
class Joined:
    """Conditions joined by ``and`` or by ``or``."""

    word: Literal["and", "or"]
    parts: tuple[Condition, ...]

    def holds(self, python: str, torch: str) -> bool | None:
        """Return whether it holds in a cell; ``None`` if what is known does not decide."""
        found = [part.holds(python, torch) for part in self.parts]
        decided = self.word == "or"  # one part with this value decides
        if decided in found:
            return decided
        return None if None in found else not decided

    def __invert__(self) -> Joined:
        """Return its opposite."""
        return Joined("or" if self.word == "and" else "and", tuple(~part for part in self.parts))

    def __str__(self) -> str:
        """Return the parts with the word between them."""
        texts = (
            f"({part})" if isinstance(part, Joined) and part.word != self.word else str(part)
            for part in self.parts
        )
        return f" {self.word} ".join(texts)


@dataclass(frozen=True, slots=True)
class Computed:
    """A condition on versions, whose value in a cell is computed.

    Attributes:
        what: What is compared; of any other expression its source.
        sign: By which sign, ``""`` if the expression is no comparison, ``not`` if it is negated.
        value: With which constant, as text.
        node: The expression, or the case of a ``match``.
        names: What names in it stand for.
        subject: The source of what is compared: of one subject, conditions can be each other's
            opposite.
    """

    what: str
    sign: str
    value: str
    node: ast.expr = field(compare=False)
    names: Names = field(compare=False)
    negated: bool = field(default=False, compare=False)
    subject: str = ""

    def holds(self, python: str, torch: str) -> bool | None:
        """Return whether it holds in a cell; ``None`` if that cannot be computed there."""
        try:
            found = value_of(self.node, VersionsOfCell(python, torch), self.names)
        except Undecided:
            return None
        return bool(found) != self.negated

    def __invert__(self) -> Computed:
        """Return its opposite."""
        return replace(self, sign=_NEGATED[self.sign], negated=not self.negated)

    def __str__(self) -> str:
        """Return e.g. ``Python >=3.13``, or the source."""
        if not self.value:
            return f"{'not ' if self.negated else ''}`{self.what[:_SHOWN]}`"
        return f"{self.what} {self.sign}{self.value}"


Condition = Computed | Unknown | Always | Joined


def speaks_of_versions(condition: Condition) -> bool:
    """Return whether a condition looks at the version of Python or PyTorch."""
    if isinstance(condition, Joined):
        return any(map(speaks_of_versions, condition.parts))
    return isinstance(condition, Computed)


def _source(node: ast.expr) -> str:
    """Return the source of an expression, or of a case."""
    if not isinstance(node, CaseTest):
        return ast.unparse(node)
    guard = "" if node.guard is None else f" if {ast.unparse(node.guard)}"
    return f"match {ast.unparse(node.subject)}: case {ast.unparse(node.pattern)}{guard}"


def condition_of(node: ast.expr, names: Names, depth: int = 0) -> Condition:  # noqa: PLR0911
    """Return the condition that an expression is.

    Args:
        node: The expression.
        names: What names in it stand for.
        depth: How many names were followed already: a name may be bound to itself.
    """
    if isinstance(node, ast.NamedExpr):
        return condition_of(node.value, names, depth)
    if isinstance(node, ast.BoolOp):
        parts = tuple(condition_of(value, names, depth) for value in node.values)
        return joined("and" if isinstance(node.op, ast.And) else "or", *parts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return ~condition_of(node.operand, names, depth)
    if isinstance(node, ast.IfExp):
        test, then, other = (
            condition_of(one, names, depth) for one in (node.test, node.body, node.orelse)
        )
        return joined("or", joined("and", test, then), joined("and", ~test, other))
    if isinstance(node, ast.Constant):
        return Always(bool(node.value))
    if isinstance(node, ast.Compare):
        return _comparisons(node, names) or _computed(node, names)
    if isinstance(node, ast.Call):
        return _call(node, names, depth) or _computed(node, names)
    if isinstance(node, ast.Name | ast.Attribute) and depth < _DEEPEST:
        name = last_name(node)
        if (found := names.meaning(node)) is not None:
            meant = condition_of(found, names.without(name), depth + 1)
            return meant if speaks_of_versions(meant) else Unknown(_source(node))
        return _by_name(name) or _computed(node, names)
    return _computed(node, names)


# Parts of the names that ask for a version, or for the lock of a free-threaded Python.
_ASKING: Final = re.compile(r"version|get_config_var|_is_gil_enabled|getattr|get_distribution")


def _may_ask(node: ast.AST, names: Names) -> bool:
    """Return whether an expression, or one that its names stand for, may ask for a version."""
    seen: set[str] = set()
    left = [node]
    while left and len(seen) < _MOST_NAMES:
        for one in ast.walk(left.pop()):
            name = last_name(one) if isinstance(one, ast.expr) else ""
            if _ASKING.search(name):
                return True
            if isinstance(one, ast.Name | ast.Attribute) and name not in seen:
                seen.add(name)
                if (found := names.meaning(one)) is not None:
                    left.append(found)
    return False


_MOST_NAMES: Final = 200
# Cells in one of which an expression on versions has a value.
_TRIED: Final = (("3.12", "2.5.1"), ("3.13", "2.6.0"), ("3.14t", "2.15.0"))


def _computed(node: ast.expr, names: Names) -> Computed | Unknown:
    """Return an expression whose value depends on versions, where it can be computed."""
    source = _source(node)
    if _may_ask(node, names):
        for tried in _TRIED:
            cell = VersionsOfCell(*tried)
            with suppress(Undecided):
                value_of(node, cell, names)
                if cell.asked:
                    return Computed(source, "", "", node, names)
    return Unknown(source)


def _comparison(left: ast.expr, sign: str, right: ast.expr, names: Names) -> Condition | None:
    """Return the comparison of a version with a constant; ``None`` if it is none."""
    (op,) = (kind for kind, text in _SIGNS.items() if text == sign)
    node = ast.copy_location(ast.Compare(left, [op()], [right]), left)
    for subject, constant, mine in ((left, right, sign), (right, left, _SWAPPED[sign])):
        if not _may_ask(subject, names):
            continue
        for tried in _TRIED:
            cell, none = VersionsOfCell(*tried), VersionsOfCell(*tried)
            with suppress(Undecided):
                mean, value = value_of(subject, cell, names), value_of(constant, none, names)
                value_of(node, cell, names)
                if len(cell.asked) == 1 and not none.asked and (text := _text(value)):
                    source = _source(subject)
                    what = _called(source, cell.asked.pop(), mean)
                    return Computed(what, mine, text, node, names, subject=source)
    return None


def _called(source: str, name: str, value: Value) -> str:
    """Return how a message names what is compared, by its value in a cell."""
    if isinstance(value, Version | TorchVersion | tuple | list):
        return name
    return f"{name} (as text)" if isinstance(value, str) else f"`{source[:_SHOWN]}`"


def _text(value: Value) -> str:
    """Return a constant version as text; empty if it is none."""
    if isinstance(value, tuple | list):
        return ".".join(map(str, value))
    return str(value) if isinstance(value, str | Version | int | float) else ""


def of_version(axis: Literal["Python", "PyTorch"], sign: str, release: str) -> Condition:
    """Return the condition that a version compares so with another one; unknown if that is none."""
    try:
        Version(release)
    except InvalidVersion:
        return Unknown(f"{axis} {sign}{release}")
    mine = "torch.__version__" if axis == "PyTorch" else "platform.python_version()"
    text = f"Version({mine}) {sign} Version({release!r})"
    return condition_of(ast.parse(text, mode="eval").body, Names({}))


def joined(word: Literal["and", "or"], *parts: Condition) -> Condition:
    """Return conditions joined by a word, without those that decide nothing."""
    decisive = Always(word == "or")
    if decisive in parts:
        return decisive
    left = tuple(dict.fromkeys(part for part in parts if not isinstance(part, Always)))
    # "not A and (A or B)" is "not A and B".
    shorter = tuple(
        joined(one.word, *(part for part in one.parts if ~part not in left))
        if isinstance(one, Joined) and one.word != word
        else one
        for one in left
    )
    if shorter != left:
        return joined(word, *shorter)
    if not left:
        return ~decisive
    return left[0] if len(left) == 1 else Joined(word, left)


def _by_name(name: str) -> Condition | None:
    """Return what a constant of another package says by its name."""
    found = _NAMED.fullmatch(name)
    if found is None:
        return None
    sign = next(_WORDS[word] for word in ("ge", "lt", "gt", "le") if found[word])
    release = found["value"].replace("_", ".")
    return of_version("PyTorch" if found["axis"].lower() == "torch" else "Python", sign, release)


_DEEPEST: Final = 8


def _comparisons(node: ast.Compare, names: Names) -> Condition | None:
    """Return a chain of comparisons, e.g. ``(3, 8) <= sys.version_info < (3, 13)``."""
    sides = [node.left, *node.comparators]
    parts: list[Condition] = []
    for left, op, right in zip(sides, node.ops, sides[1:], strict=False):
        sign = _SIGNS.get(type(op))
        part = None if sign is None else _comparison(left, sign, right, names)
        if part is None:
            return None
        parts.append(part)
    return joined("and", *parts)


def _call(node: ast.Call, names: Names, depth: int) -> Condition | None:
    """Return what a call asks: a function of the project or of Python, or a well-known helper."""
    name = last_name(node.func)
    if name in _WORDS and len(node.args) == 2:  # noqa: PLR2004  (operator.ge)
        return _comparison(node.args[0], _WORDS[name], node.args[1], names)
    if depth < _DEEPEST and isinstance(found := names.meaning(node.func), ast.Lambda):
        body = _applied(found, node)
        meant = None if body is None else condition_of(body, names.without(name), depth + 1)
        if meant is not None and speaks_of_versions(meant):
            return meant
    if name == "bool" and len(node.args) == 1:
        return condition_of(node.args[0], names, depth)
    return _helper(node, names)


def _helper(node: ast.Call, names: Names) -> Condition | None:  # noqa: PLR0911
    """Return what well-known helpers ask, e.g. ``is_torch_version(">=", "2.1")``."""
    name = last_name(node.func)
    given = [_constant(argument, names) for argument in node.args]
    texts = [one if isinstance(one, str) else "" for one in given]
    match name, texts:
        case "hasattr", [_, feature]:
            whole = f"{ast.unparse(node.args[0])}.{feature}"
            if whole in ("torch.__version__", "torch.version.git_version"):
                return Always()
            return of_version("PyTorch", ">=", _SINCE[whole]) if whole in _SINCE else None
        case "is_torch_version", [sign, release] if sign in _SWAPPED:
            return of_version("PyTorch", sign, release)
        case "is_torch_greater_or_equal" | "is_torch_greater_or_equal_than", [release, *_]:
            return of_version("PyTorch", ">=", release)
        case "compare_version" | "compare_versions", ["torch", sign, release, *_]:
            sign = _WORDS.get(last_name(node.args[1]).strip("_")) or sign
            return of_version("PyTorch", sign, release) if sign in _SWAPPED else None
        case "RequirementCache" | "withPackage" | "package_available", [requirement, *_]:
            return _required(requirement)
    if named := re.fullmatch(r"torch_version_(ge|gt|le|lt)", name):
        numbers = ".".join(str(one) for one in given if isinstance(one, int))
        return of_version("PyTorch", _WORDS[named[1]], numbers)
    return None


def _constant(node: ast.expr, names: Names) -> Value:
    """Return the value of an expression that asks for no version; ``None`` if it has none."""
    cell = VersionsOfCell(*_TRIED[0])
    try:
        value = value_of(node, cell, names)
    except Undecided:
        return None
    return None if cell.asked else value


def _applied(function: ast.Lambda, call: ast.Call) -> ast.expr | None:
    """Return what a function of the project returns for constants, or without arguments."""
    if not all(isinstance(one, ast.Constant | ast.Tuple) for one in call.args):
        return None  # it asks about something else, such as a module
    parameters = [one.arg for one in function.args.args]
    given = dict(zip(parameters, call.args, strict=False))
    given |= {word.arg: word.value for word in call.keywords if word.arg}
    defaults = function.args.defaults
    given = dict(zip(parameters[len(parameters) - len(defaults) :], defaults, strict=True)) | given
    if set(given) != set(parameters) or len(call.args) > len(parameters):
        return None
    return with_names(function.body, given)


def _required(text: str) -> Condition | None:
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return None
    parts = [
        of_version("PyTorch", one.operator, one.version)
        for one in requirement.specifier
        if one.operator in _SWAPPED
    ]
    return joined("and", *parts) if requirement.name == "torch" and parts else None
