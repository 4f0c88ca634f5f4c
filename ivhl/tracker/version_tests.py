"""Conditions on the versions of Python and PyTorch in the source of others, by its syntax tree.

Nothing is run. What the tree does not tell is *unknown*, and stays unknown through ``and``, ``or``
and ``not`` unless the rest decides.
"""

from __future__ import annotations

import ast
import operator
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

VersionAxis = Literal["python", "torch"]
_OPERATORS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    ">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_NEGATED: Final = {">=": "<", "<": ">=", "<=": ">", ">": "<=", "==": "!=", "!=": "=="}
_SWAPPED: Final = {">=": "<=", "<=": ">=", ">": "<", "<": ">", "==": "==", "!=": "!="}
_SIGNS: Final[dict[type[ast.cmpop], str]] = {
    ast.GtE: ">=", ast.Gt: ">", ast.LtE: "<=", ast.Lt: "<", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_WORDS: Final = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<", "eq": "==", "ne": "!="}
_NAMES: Final[dict[VersionAxis, str]] = {"python": "Python", "torch": "PyTorch"}
# Calls that only bring a version into another form.
_FORMS: Final = frozenset(
    {
        "Version", "parse", "LooseVersion", "StrictVersion", "TorchVersion", "parse_version",
        "tuple", "list", "str", "int", "map",
    }
)  # fmt: skip
# The newest patch of a Python: cells name its series only.
_NEWEST_PATCH: Final = 99
# What `import torch` has had since which release, if somebody asks with hasattr.
_SINCE: Final = {"torch.compile": "2.0.0", "torch._dynamo": "2.0.0", "torch.compiler": "2.1.0"}


@dataclass(frozen=True, slots=True)
class VersionTest:
    """A comparison of one version with a constant.

    Attributes:
        numbers: How many numbers of the version are compared; 0 for all.
        number: The only one that is compared, from 0; ``None`` for all.
    """

    axis: VersionAxis
    sign: str
    value: tuple[int, ...] | str
    numbers: int = 0
    number: int | None = None

    def holds(self, python: str, torch: str) -> bool | None:
        """Return whether it holds in a cell; ``None`` if its version is no version."""
        text = python.removesuffix("t") if self.axis == "python" else torch
        try:
            version = _version(text)
            mine = version.release
            if self.axis == "python" and len(mine) < 3:  # noqa: PLR2004  (major, minor, patch)
                mine = (*mine, _NEWEST_PATCH)
            compare: Callable[[Any, Any], bool] = _OPERATORS[self.sign]
            if self.number is not None and not isinstance(self.value, str):
                return compare(mine[self.number], self.value[0])
            if isinstance(self.value, str):
                if self.numbers:
                    cut = _version(self.value).release[: self.numbers]
                    return compare(mine[: self.numbers], cut)
                here = Version(".".join(map(str, mine))) if self.axis == "python" else version
                return compare(here, _version(self.value))
            if self.axis == "torch" and not self.numbers:  # TorchVersion compares as versions do
                return compare(version, _version(".".join(map(str, self.value))))
            return compare(mine[: self.numbers] if self.numbers else mine, self.value)
        except (InvalidVersion, IndexError):
            return None

    def __invert__(self) -> VersionTest:
        """Return its opposite."""
        sign = _NEGATED[self.sign]
        return VersionTest(self.axis, sign, self.value, self.numbers, self.number)

    def __str__(self) -> str:
        """Return e.g. ``Python >=3.13``."""
        text = self.value if isinstance(self.value, str) else ".".join(map(str, self.value))
        which = ("major", "minor", "patch")[self.number] if self.number is not None else ""
        return f"{_NAMES[self.axis]} {which + ' ' if which else ''}{self.sign}{text}"


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
        return f"not `{self.text}`" if self.negated else f"`{self.text}`"


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


Condition = VersionTest | Unknown | Always | Joined


def speaks_of_versions(condition: Condition) -> bool:
    """Return whether a condition looks at the version of Python or PyTorch."""
    if isinstance(condition, Joined):
        return any(map(speaks_of_versions, condition.parts))
    return isinstance(condition, VersionTest)


@dataclass(frozen=True, slots=True)
class _Subject:
    """An expression that is a version, or numbers of one."""

    axis: VersionAxis
    numbers: int = 0
    number: int | None = None


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

    def find(self, name: str) -> ast.expr | None:
        """Return the expression that a name stands for."""
        return self._own.get(name) or self._others.get(name)


def condition_of(node: ast.expr, names: Names, depth: int = 0) -> Condition:  # noqa: PLR0911
    """Return the condition that an expression is.

    Args:
        node: The expression.
        names: What names in it stand for.
        depth: How many names were followed already: a name may be bound to itself.
    """
    unknown = Unknown(ast.unparse(node)[:80])
    if isinstance(node, ast.BoolOp):
        parts = tuple(condition_of(value, names, depth) for value in node.values)
        return Joined("and" if isinstance(node.op, ast.And) else "or", parts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return ~condition_of(node.operand, names, depth)
    if isinstance(node, ast.Constant):
        return Always(bool(node.value))
    if isinstance(node, ast.Compare):
        return _comparisons(node, names, depth) or unknown
    if isinstance(node, ast.Call):
        return _call(node, names, depth) or unknown
    if isinstance(node, ast.Name | ast.Attribute) and depth < _DEEPEST:
        name = node.id if isinstance(node, ast.Name) else node.attr
        if (found := names.find(name)) is not None:
            meant = condition_of(found, names, depth + 1)
            return meant if speaks_of_versions(meant) else unknown
        if named := re.fullmatch(r".*torch.*(?:greater_or_equal|ge)\w*?_(\d+)_(\d+)", name):
            return VersionTest("torch", ">=", f"{named[1]}.{named[2]}")
    return unknown


_DEEPEST: Final = 8


def _comparisons(node: ast.Compare, names: Names, depth: int) -> Condition | None:
    """Return a chain of comparisons, e.g. ``(3, 8) <= sys.version_info < (3, 13)``."""
    sides = [node.left, *node.comparators]
    parts: list[Condition] = []
    for left, op, right in zip(sides, node.ops, sides[1:], strict=False):
        sign = _SIGNS.get(type(op))
        if sign is None:
            return None
        subject, value = _subject(left, names, depth), _value(right)
        if subject is None or value is None:
            subject, value, sign = _subject(right, names, depth), _value(left), _SWAPPED[sign]
        if subject is None or value is None:
            return None
        parts.append(VersionTest(subject.axis, sign, value, subject.numbers, subject.number))
    return parts[0] if len(parts) == 1 else Joined("and", tuple(parts))


def _call(node: ast.Call, names: Names, depth: int) -> Condition | None:  # noqa: PLR0911
    """Return what well-known helpers ask, e.g. ``is_torch_version(">=", "2.1")``."""
    name = last_name(node.func)
    texts = [_value(argument) for argument in node.args]
    if name == "bool" and len(node.args) == 1:
        return condition_of(node.args[0], names, depth)
    if name == "hasattr" and len(node.args) == 2:  # noqa: PLR2004
        feature = f"{ast.unparse(node.args[0])}.{texts[1]}"
        return VersionTest("torch", ">=", _SINCE[feature]) if feature in _SINCE else None
    if name == "is_torch_version" and len(texts) == 2 and texts[0] in _OPERATORS:  # noqa: PLR2004
        return VersionTest("torch", str(texts[0]), texts[1]) if texts[1] else None
    if name in ("is_torch_greater_or_equal", "is_torch_greater_or_equal_than") and texts:
        return VersionTest("torch", ">=", texts[0]) if texts[0] else None
    if named := re.fullmatch(r"torch_version_(ge|gt|le|lt)", name):
        numbers = [a.value for a in node.args if isinstance(a, ast.Constant)]
        given = tuple(n for n in numbers if isinstance(n, int))
        return VersionTest("torch", _WORDS[named[1]], given) if given else None
    if name in ("compare_version", "compare_versions") and len(node.args) >= 3:  # noqa: PLR2004
        sign = _WORDS.get(last_name(node.args[1]).strip("_")) or str(texts[1])
        if texts[0] == "torch" and sign in _OPERATORS and texts[2]:
            return VersionTest("torch", sign, texts[2])
    if name in ("RequirementCache", "withPackage", "package_available") and texts:
        return _required(texts[0])
    return None


def _required(text: object) -> Condition | None:
    try:
        requirement = Requirement(str(text))
    except InvalidRequirement:
        return None
    if requirement.name != "torch" or not requirement.specifier:
        return None
    parts = [
        VersionTest("torch", one.operator, one.version)
        for one in requirement.specifier
        if one.operator in _OPERATORS
    ]
    return Joined("and", tuple(parts)) if len(parts) > 1 else parts[0] if parts else None


def last_name(node: ast.expr) -> str:
    """Return the last part of a dotted name; empty for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _subject(node: ast.expr, names: Names, depth: int) -> _Subject | None:  # noqa: PLR0911, C901
    """Return which version an expression is; ``None`` if it is none."""
    text = ast.unparse(node)
    if text in ("sys.version_info", "version_info", "platform.python_version()"):
        return _Subject("python")
    if re.fullmatch(r"torch(\.(torch_)?version)?\.__version__|torch_version\.__version__", text):
        return _Subject("torch")
    if re.fullmatch(r"(importlib\.|importlib_)?(metadata\.)?version\(['\"]torch['\"]\)", text):
        return _Subject("torch")
    if isinstance(node, ast.Call):
        if last_name(node.func) in ("split", "replace") and isinstance(node.func, ast.Attribute):
            return _subject(node.func.value, names, depth)
        if last_name(node.func) in _FORMS and node.args:
            argument = node.args[-1]  # map(int, ...) too
            if isinstance(argument, ast.GeneratorExp | ast.ListComp):
                argument = argument.generators[0].iter
            return _subject(argument, names, depth)
    if isinstance(node, ast.Attribute):
        if node.attr in ("release", "base_version", "public"):
            return _subject(node.value, names, depth)
        if node.attr in ("major", "minor", "micro"):
            of = _subject(node.value, names, depth)
            return of and _Subject(of.axis, 0, ("major", "minor", "micro").index(node.attr))
    if isinstance(node, ast.Subscript):
        return _part(node, names, depth)
    if isinstance(node, ast.Name | ast.Attribute) and depth < _DEEPEST:
        found = names.find(last_name(node))
        return None if found is None else _subject(found, names, depth + 1)
    return None


def _part(node: ast.Subscript, names: Names, depth: int) -> _Subject | None:
    of = _subject(node.value, names, depth)
    if of is None:
        return None
    where = node.slice
    if (
        isinstance(where, ast.Slice)
        and where.lower is None
        and isinstance(where.upper, ast.Constant)
    ):
        n = where.upper.value
        # Letters of a text are no numbers of a version.
        textual = ast.unparse(node.value).endswith("__version__")
        return _Subject(of.axis, n) if isinstance(n, int) and not textual else None
    if isinstance(where, ast.Constant) and isinstance(where.value, int):
        if re.search(r"split\(['\"](\+|\+cu|a|dev|rc)['\"]\)$", ast.unparse(node.value)):
            return of  # what is before a local version
        return _Subject(of.axis, 0, where.value)
    return None


def _value(node: ast.expr) -> tuple[int, ...] | str | None:
    """Return a constant version."""
    if isinstance(node, ast.Call) and last_name(node.func) in _FORMS and len(node.args) == 1:
        return _value(node.args[0])
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return (node.value,)
    if isinstance(node, ast.Tuple | ast.List):
        items = [item.value for item in node.elts if isinstance(item, ast.Constant)]
        numbers = tuple(item for item in items if isinstance(item, int))
        return numbers if numbers and len(numbers) == len(node.elts) else None
    return None


@lru_cache(maxsize=1024)
def _version(text: str) -> Version:
    return Version(text)
