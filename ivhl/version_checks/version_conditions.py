"""Conditions on the versions of Python and PyTorch in the source of others, by its syntax tree.

What the tree does not tell is *unknown*, and stays unknown through ``and``, ``or`` and ``not``
unless the rest decides. An expression on versions is computed in each cell, with versions in the
place of modules, and only if all that is in it is listed here.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partialmethod
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from ivhl.version_checks.names import Names, last_name, with_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# The newest patch of a Python: cells name its series only.
NEWEST_PATCH: Final = 99
# Bounds of what one expression may take: the source is anybody's.
_LONGEST: Final = 2_000
_DEEPEST: Final = 8
_SHOWN: Final = 80  # letters of a source that a message shows
_SIGNS: Final[dict[type[ast.cmpop], str]] = {
    ast.GtE: ">=", ast.Gt: ">", ast.LtE: "<=", ast.Lt: "<", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_NEGATED: Final = {
    ">=": "<", "<": ">=", "<=": ">", ">": "<=", "==": "!=", "!=": "==", "": "",
}  # fmt: skip
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
_ASKS_TORCH: Final = re.compile(r"\btorch\.(?:\w+\.)?__version__|\(['\"]torch['\"]\)")
_ASKS_PYTHON: Final = re.compile(
    r"\bsys\.(?:version|hexversion|_is_gil)|\bplatform\.|\bsysconfig\.|\bversion_info\b"
)


@dataclass(frozen=True, slots=True)
class Leaf:
    """An expression.

    Attributes:
        what: What is compared; of any other expression its source.
        sign: By which sign; empty if it is no comparison.
        value: With which constant, as text.
        computed: Source of the same, without names of the project; empty if nobody can tell.
        negated: Whether its opposite is meant.
        subject: Source of what is compared: two conditions on one subject can be opposites.
    """

    what: str
    sign: str = ""
    value: str = ""
    computed: str = field(default="", compare=False)
    negated: bool = field(default=False, compare=False)
    subject: str = ""
    opposite: bool = False

    def holds(self, python: str, torch: str) -> bool | None:
        """Return whether it holds in a cell; ``None`` if that cannot be computed there."""
        found = _value(self.computed, python, torch) if self.computed else None
        return None if found is None else bool(found) != self.negated

    def __invert__(self) -> Leaf:
        """Return its opposite."""
        opposite = not self.opposite if not self.sign else False
        return replace(self, sign=_NEGATED[self.sign], negated=not self.negated, opposite=opposite)

    def __str__(self) -> str:
        """Return e.g. ``Python >=3.13``, or the source."""
        if self.value:
            return f"{self.what} {self.sign}{self.value}"
        return f"{'not ' if self.negated else ''}`{self.what[:_SHOWN]}`"


@dataclass(frozen=True, slots=True)
class Joined:
    """Conditions joined by ``and`` or by ``or``; of no parts, what always holds, or never."""

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
        if not self.parts:
            return "every Python and PyTorch" if self.word == "and" else "nothing"
        texts = (
            f"({part})" if isinstance(part, Joined) and part.word != self.word else str(part)
            for part in self.parts
        )
        return f" {self.word} ".join(texts)


Condition = Leaf | Joined
ALWAYS: Final = Joined("and", ())
NEVER: Final = Joined("or", ())


def speaks_of_versions(condition: Condition) -> bool:
    """Return whether a condition looks at the version of Python or PyTorch."""
    if isinstance(condition, Joined):
        return any(map(speaks_of_versions, condition.parts))
    return bool(condition.computed)


def joined(word: Literal["and", "or"], *parts: Condition) -> Condition:
    """Return conditions joined by a word, without those that decide nothing."""
    neutral, decisive = (ALWAYS, NEVER) if word == "and" else (NEVER, ALWAYS)
    if decisive in parts:
        return decisive
    left = tuple(dict.fromkeys(part for part in parts if part != neutral))
    # "not A and (A or B)" is "not A and B".
    shorter = tuple(
        joined(one.word, *(part for part in one.parts if ~part not in left))
        if isinstance(one, Joined) and one.word != word
        else one
        for one in left
    )
    if shorter != left:
        return joined(word, *shorter)
    return left[0] if len(left) == 1 else Joined(word, left)


def condition_of(node: ast.expr, names: Names, depth: int = 0) -> Condition:  # noqa: PLR0911
    """Return the condition that an expression is.

    Args:
        node: The expression.
        names: What names in it stand for.
        depth: How many names were followed already.
    """
    match node:
        case ast.NamedExpr():
            return condition_of(node.value, names, depth)
        case ast.BoolOp():
            parts = tuple(condition_of(value, names, depth) for value in node.values)
            return joined("and" if isinstance(node.op, ast.And) else "or", *parts)
        case ast.UnaryOp(op=ast.Not()):
            return ~condition_of(node.operand, names, depth)
        case ast.IfExp():
            test, then, other = (
                condition_of(one, names, depth) for one in (node.test, node.body, node.orelse)
            )
            return joined("or", joined("and", test, then), joined("and", ~test, other))
        case ast.Constant():
            return ALWAYS if node.value else NEVER
        case ast.Compare() if all(type(op) in _SIGNS for op in node.ops):
            sides = [node.left, *node.comparators]
            pairs = zip(sides, node.ops, sides[1:], strict=False)
            return joined(
                "and", *(_comparison(a, _SIGNS[type(op)], b, names) for a, op, b in pairs)
            )
        case ast.Call():
            return _call(node, names, depth) or _leaf(node, names)
        case ast.Name() | ast.Attribute() if depth < _DEEPEST:
            if (found := names.meaning(node)) is not None:
                meant = condition_of(found, names.without(last_name(node)), depth + 1)
                return meant if speaks_of_versions(meant) else Leaf(ast.unparse(node))
            return _by_name(last_name(node)) or _leaf(node, names)
    return _leaf(node, names)


def _leaf(node: ast.expr, names: Names) -> Leaf:
    source = ast.unparse(node)
    computed = _computed(node, names)
    return Leaf(source, computed=computed if _asked(computed) else "")


def _comparison(left: ast.expr, sign: str, right: ast.expr, names: Names) -> Condition:
    """Return the comparison of a version with a constant, or of anything else."""
    (op,) = (kind for kind, text in _SIGNS.items() if text == sign)
    node = ast.Compare(left, [op()], [right])
    computed = _computed(node, names)
    for subject, constant, mine in ((left, right, sign), (right, left, _SWAPPED[sign])):
        asking, plain = _computed(subject, names), _computed(constant, names)
        if len(asked := _asked(asking)) == 1 and plain and not _asked(plain) and computed:
            value = _value(asking, *_TRIED)
            text = _text(_value(plain, *_TRIED))
            if text and value is not None and _value(computed, *_TRIED) is not None:
                source = ast.unparse(subject)
                what = _called(source, asked.pop(), value)
                return Leaf(what, mine, text, computed, subject=source)
    return Leaf(ast.unparse(node), computed=computed if _asked(computed) else "")


_TRIED: Final = ("3.13", "2.6.0")


def _called(source: str, name: str, value: object) -> str:
    """Return how a message names what is compared, by its value in a cell."""
    if isinstance(value, Version | TorchVersion | tuple | list):
        return name
    return f"{name} (as text)" if isinstance(value, str) else f"`{source[:_SHOWN]}`"


def _text(value: object) -> str:
    """Return a constant version as text; empty if it is none."""
    if isinstance(value, tuple | list):
        return ".".join(map(str, value))
    return str(value) if isinstance(value, str | Version | int | float) else ""


def _asked(source: str) -> set[str]:
    return {
        name
        for name, pattern in (("PyTorch", _ASKS_TORCH), ("Python", _ASKS_PYTHON))
        if pattern.search(source)
    }


def of_version(axis: Literal["Python", "PyTorch"], sign: str, release: str) -> Condition:
    """Return the condition that a version compares so with another one; unknown if that is none."""
    try:
        Version(release)
    except InvalidVersion:
        return Leaf(f"{axis} {sign}{release}")
    mine = "torch.__version__" if axis == "PyTorch" else "platform.python_version()"
    text = f"Version({mine}) {sign} Version({release!r})"
    return condition_of(ast.parse(text, mode="eval").body, Names({}))


def _by_name(name: str) -> Condition | None:
    """Return what a constant of another package says by its name."""
    found = _NAMED.fullmatch(name)
    if found is None:
        return None
    sign = next(_WORDS[word] for word in ("ge", "lt", "gt", "le") if found[word])
    release = found["value"].replace("_", ".")
    return of_version("PyTorch" if found["axis"].lower() == "torch" else "Python", sign, release)


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
    given = [_value(_computed(argument, names), *_TRIED) for argument in node.args]
    texts = [one if isinstance(one, str) else "" for one in given]
    match name, texts:
        case "hasattr", [_, feature]:
            whole = f"{ast.unparse(node.args[0])}.{feature}"
            if whole in ("torch.__version__", "torch.version.git_version"):
                return ALWAYS
            return of_version("PyTorch", ">=", _SINCE[whole]) if whole in _SINCE else None
        case "is_torch_version", [sign, release] if sign in _SWAPPED:
            return of_version("PyTorch", sign, release)
        case "is_torch_greater_or_equal" | "is_torch_greater_or_equal_than", [release, *_]:
            return of_version("PyTorch", ">=", release)
        case "compare_version" | "compare_versions", ["torch", sign, release, *_]:
            sign = _WORDS.get(last_name(node.args[1]).strip("_")) or sign
            return of_version("PyTorch", sign, release) if sign in _SWAPPED else None
        case "RequirementCache" | "package_available", [requirement, *_]:
            return _required(requirement)
    if named := re.fullmatch(r"torch_version_(ge|gt|le|lt)", name):
        numbers = ".".join(str(one) for one in given if isinstance(one, int))
        return of_version("PyTorch", _WORDS[named[1]], numbers)
    return None


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


class _UnknownError(Exception):
    """An expression has what is not listed, or is too long."""


def _computed(node: ast.expr, names: Names) -> str:
    """Return the source of an expression without names of the project; empty if it is unknown."""
    if not all(map(_is_plain, ast.walk(node))):
        return ""  # most expressions
    try:
        source = ast.unparse(_plain(node, names, 0))
        return source if len(source) <= _LONGEST and _is_listed(source) else ""
    except (_UnknownError, RecursionError, SyntaxError, ValueError):
        return ""


def _plain(node: ast.expr, names: Names, depth: int) -> ast.expr:
    """Return an expression with its meaning in the place of each name.

    Raises:
        _UnknownError: If it is too deep.
    """
    if depth > _DEEPEST:
        raise _UnknownError
    left: dict[str, ast.expr] = {}
    for one in ast.walk(node):
        if not isinstance(one, ast.Name) or not isinstance(one.ctx, ast.Load):
            continue
        found = names.meaning(one)
        if found is not None and not isinstance(found, ast.Lambda) and one.id not in left:
            left[one.id] = _plain(found, names.without(one.id), depth + 1)
            if len(ast.unparse(left[one.id])) > _LONGEST:
                raise _UnknownError
    return with_names(node, left) if left else node


class _VersionInfo(NamedTuple):
    """As ``sys.version_info``."""

    major: int
    minor: int
    micro: int
    releaselevel: str = "final"
    serial: int = 0


class TorchVersion(str):
    """As ``torch.__version__``: a text that orders as versions do, and a text in all else.

    It leaves ``!=`` to ``str``, as PyTorch's does.
    """

    __slots__ = ()
    __hash__ = str.__hash__

    def _compared(self, compare: Callable[[Any, Any], bool], other: object) -> bool:
        if isinstance(other, tuple | list):
            other = ".".join(map(str, other))
        try:
            return compare(
                Version(self), other if isinstance(other, Version) else Version(str(other))
            )
        except ValueError:
            return compare(str(self), other)

    __lt__ = partialmethod(_compared, operator.lt)
    __le__ = partialmethod(_compared, operator.le)
    __gt__ = partialmethod(_compared, operator.gt)
    __ge__ = partialmethod(_compared, operator.ge)
    __eq__ = partialmethod(_compared, operator.eq)


# Nodes of an expression that is computed. None of them repeats: a text or tuple grows by what the
# source holds, if at most one ``join`` and one loop are in it.
_NODES: Final = (
    ast.Expression, ast.Constant, ast.Name, ast.Attribute, ast.Call, ast.keyword, ast.Compare,
    ast.cmpop, ast.BoolOp, ast.boolop, ast.UnaryOp, ast.Not, ast.USub, ast.BinOp, ast.Add, ast.Sub,
    ast.FloorDiv, ast.Div, ast.RShift, ast.BitAnd, ast.BitOr, ast.IfExp, ast.Tuple, ast.List,
    ast.Set, ast.Subscript, ast.Slice, ast.Starred, ast.GeneratorExp, ast.ListComp,
    ast.comprehension, ast.JoinedStr, ast.FormattedValue, ast.expr_context,
)  # fmt: skip
_ATTRIBUTES: Final = frozenset({
    "version_info", "version", "hexversion", "implementation", "name", "_is_gil_enabled",
    "__version__", "torch_version", "python_version", "python_version_tuple",
    "python_implementation", "get_config_var", "metadata", "get_distribution", "specifiers",
    "major", "minor", "micro", "release", "base_version", "public", "is_prerelease",
    "is_devrelease", "contains", "split", "rsplit", "partition", "rpartition", "startswith",
    "endswith", "strip", "lstrip", "rstrip", "removeprefix", "removesuffix", "lower", "isdigit",
    "join", "parse", "Version", "SpecifierSet", "TorchVersion", "ge", "gt", "le", "lt", "eq", "ne",
})  # fmt: skip


def _is_plain(node: ast.AST) -> bool:
    return isinstance(node, _NODES) and (
        not isinstance(node, ast.Attribute) or node.attr in _ATTRIBUTES
    )


@cache
def _is_listed(source: str) -> bool:
    tree = ast.parse(source, mode="eval")
    nodes = list(ast.walk(tree))
    targets = {one.target for one in nodes if isinstance(one, ast.comprehension)}
    bound = {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
    joins = sum(getattr(one, "attr", "") == "join" for one in nodes)
    return max(joins, len(targets)) <= 1 and all(
        _is_plain(one)
        and (not isinstance(one, ast.Name) or one.id in bound or one.id in _KNOWN)
        and getattr(one, "format_spec", None) is None
        for one in nodes
    )


@cache
def _value(source: str, python: str, torch: str) -> Any:  # noqa: ANN401  (whatever it is)
    """Return what an expression is in a cell; ``None`` if it is unknown, or raises."""
    if not source:
        return None
    with warnings.catch_warnings(action="ignore"), suppress(Exception):
        names = {"__builtins__": {}, **_names_in(python, torch)}
        return eval(source, names)  # noqa: S307  (all that is in it is listed)
    return None  # whatever versions and texts raise


@cache
def _names_in(python: str, torch: str) -> Mapping[str, Any]:
    """Return what the listed names are in a cell."""
    return {**_python_names(python), **_torch_names(torch), **_PLAIN_NAMES}


def _python_names(python: str) -> dict[str, Any]:
    major, minor, micro, *_ = *map(int, python.removesuffix("t").split(".")), NEWEST_PATCH
    plain = f"{major}.{minor}.{micro}"
    freed = python.endswith("t")
    return {
        "sys": SimpleNamespace(
            version_info=_VersionInfo(major, minor, micro),
            version=f"{plain} (main)",
            hexversion=major << 24 | minor << 16 | micro << 8 | 0xF0,
            implementation=SimpleNamespace(name="cpython"),
            # Of a free-threaded one, imports decide.
            **({} if freed else {"_is_gil_enabled": lambda: True}),
        ),
        "platform": SimpleNamespace(
            python_version=lambda: plain,
            python_version_tuple=lambda: tuple(plain.split(".")),
            python_implementation=lambda: "CPython",
        ),
        "sysconfig": SimpleNamespace(get_config_var={"Py_GIL_DISABLED": int(freed)}.__getitem__),
    }


def _torch_names(torch: str) -> dict[str, Any]:
    release = TorchVersion(torch)
    plain = SimpleNamespace(__version__=torch)
    metadata = SimpleNamespace(version={"torch": torch}.__getitem__)
    own = SimpleNamespace(__version__=release, TorchVersion=TorchVersion)
    return {
        "torch": SimpleNamespace(__version__=release, version=plain, torch_version=own),
        "importlib": SimpleNamespace(metadata=metadata),
        "get_distribution": {"torch": SimpleNamespace(version=torch)}.__getitem__,
        **dict.fromkeys(("metadata", "importlib_metadata"), metadata),
    }


_PACKAGED: Final = SimpleNamespace(parse=Version, Version=Version)
_PLAIN_NAMES: Final[dict[str, Any]] = {
    **{
        one.__name__: one
        for one in (tuple, list, set, int, float, str, bool, len, max, min, any, all, sorted)
    },
    **dict.fromkeys(("Version", "parse", "LooseVersion", "parse_version"), Version),
    "map": lambda function, given: list(map(function, given)),
    "TorchVersion": TorchVersion,
    "SpecifierSet": SpecifierSet,
    "operator": operator,
    "version": _PACKAGED,
    "packaging": SimpleNamespace(
        version=_PACKAGED, specifiers=SimpleNamespace(SpecifierSet=SpecifierSet)
    ),
}
_KNOWN: Final = frozenset(_names_in(*_TRIED))
