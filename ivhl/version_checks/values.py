"""The value that an expression on versions has in a cell, by its syntax tree.

Only what is listed here is computed, on numbers, texts, tuples and versions: nothing of the source
of others is run, and a value that is not known raises ``Undecided``.
"""

from __future__ import annotations

import ast
import functools
import operator
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from ivhl.version_checks.names import last_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ivhl.version_checks.names import Names

# The newest patch of a Python: cells name its series only.
NEWEST_PATCH: Final = 99
# Bounds of what one expression may take: the source is anybody's.
_MOST_STEPS: Final = 5_000
_LONGEST: Final = 1_000
_LARGEST: Final = 1 << 64
_DEEPEST: Final = 40


class CaseTest(ast.expr):
    """Whether a ``case`` takes the subject of its ``match``: a condition, as that of an ``if``.

    Attributes:
        subject: What is matched.
        pattern: The pattern.
        guard: What follows ``if`` in the case, or ``None``.
    """

    _fields = ("subject", "pattern", "guard")
    # Optional, so that Python from 3.13 on makes a node before its fields are known, as a copy is.
    _field_types: ClassVar = {
        "subject": ast.expr | None, "pattern": ast.pattern | None, "guard": ast.expr | None,
    }  # fmt: skip
    subject: ast.expr
    pattern: ast.pattern
    guard: ast.expr | None

    @classmethod
    def of(cls, subject: ast.expr, case: ast.match_case) -> CaseTest:
        """Return the condition of a case, which stands where its pattern is."""
        test = cls()
        test.subject, test.pattern, test.guard = subject, case.pattern, case.guard
        ast.copy_location(test, case.pattern)
        if case.guard is not None:
            test.end_lineno = case.guard.end_lineno
            test.end_col_offset = case.guard.end_col_offset
        return test


class Undecided(Exception):  # noqa: N818  (no error: the answer is that nobody can tell)
    """The syntax tree does not tell what an expression is in a cell."""


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

    def _compared(self, other: object, compare: Callable[[Value, Value], bool]) -> bool:
        if isinstance(other, tuple | list):
            other = ".".join(map(str, other))
        try:
            return compare(
                Version(self), other if isinstance(other, Version) else Version(str(other))
            )
        except ValueError:
            return compare(str(self), other)

    def __lt__(self, other: object) -> bool:
        return self._compared(other, operator.lt)

    def __le__(self, other: object) -> bool:
        return self._compared(other, operator.le)

    def __gt__(self, other: object) -> bool:
        return self._compared(other, operator.gt)

    def __ge__(self, other: object) -> bool:
        return self._compared(other, operator.ge)

    def __eq__(self, other: object) -> bool:
        return self._compared(other, operator.eq)


# One of these.
Value = Any
_VALUES: Final = (
    bool, int, float, str, tuple, list, set, frozenset, range, type(None), Version, SpecifierSet,
    re.Match,
)  # fmt: skip
_COMPARED: Final[dict[type[ast.cmpop], Callable[[Value, Value], Value]]] = {
    ast.GtE: operator.ge, ast.Gt: operator.gt, ast.LtE: operator.le, ast.Lt: operator.lt,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda one, many: one in many, ast.NotIn: lambda one, many: one not in many,
}  # fmt: skip
_COMPUTED: Final[dict[type[ast.operator], Callable[[Value, Value], Value]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv, ast.RShift: operator.rshift, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
}  # fmt: skip
_FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    **{
        one.__name__: one
        for one in (
            tuple, list, set, frozenset, int, float, str, bool, len, max, min, any, all, sorted,
            abs, range, sum,
        )
    },
    **dict.fromkeys(("Version", "parse", "LooseVersion", "StrictVersion", "parse_version"), Version),
    "TorchVersion": TorchVersion,
    "SpecifierSet": SpecifierSet,
    **{
        name: getattr(operator, name)
        for name in ("ge", "gt", "le", "lt", "eq", "ne")
    },
}  # fmt: skip
_MODULES: Final = frozenset(
    {"version", "packaging.version", "packaging.specifiers", "specifiers", "operator", "builtins",
     "torch.torch_version", "pkg_resources", "distutils.version"}
)  # fmt: skip
_METHODS: Final[dict[type, frozenset[str]]] = {
    str: frozenset({
        "split", "rsplit", "partition", "rpartition", "startswith", "endswith", "strip", "lstrip",
        "rstrip", "replace", "join", "removeprefix", "removesuffix", "lower", "upper", "isdigit",
        "isdecimal", "isnumeric", "find", "count", "index",
    }),
    tuple: frozenset({"index", "count"}),
    list: frozenset({"index", "count"}),
    SpecifierSet: frozenset({"contains"}),
    re.Match: frozenset({"group", "groups", "start", "end"}),
}  # fmt: skip
_COMPARING_METHODS: Final = frozenset({"__ge__", "__gt__", "__le__", "__lt__", "__eq__", "__ne__"})
_FIELDS: Final[dict[type, frozenset[str]]] = {
    _VersionInfo: frozenset(_VersionInfo._fields),
    Version: frozenset({
        "release", "major", "minor", "micro", "base_version", "public", "local", "epoch",
        "is_prerelease", "is_postrelease", "is_devrelease", "pre", "post", "dev",
    }),
}  # fmt: skip
_PATTERNS: Final = frozenset({"match", "search", "fullmatch"})


@functools.lru_cache(maxsize=1024)
def _known(python: str, torch_release: str) -> dict[str, Value]:
    """Return what expressions say of a cell, by their source."""
    numbers = list(map(int, python.removesuffix("t").split(".")))
    major, minor, micro = [*numbers, NEWEST_PATCH][:3]
    info = _VersionInfo(major, minor, micro)
    plain = ".".join(map(str, info[:3]))
    freed = python.endswith("t")
    hexversion = info.major << 24 | info.minor << 16 | info.micro << 8 | 0xF0
    gil = "sysconfig.get_config_var('Py_GIL_DISABLED')"
    torch = TorchVersion(torch_release)
    return {
        **dict.fromkeys(("sys.version_info", "version_info"), info),
        "sys.version": f"{plain} (main)",
        "sys.hexversion": hexversion,
        "sys.implementation.name": "cpython",
        "platform.python_version()": plain,
        "platform.python_version_tuple()": tuple(plain.split(".")),
        "platform.python_implementation()": "CPython",
        gil: int(freed),
        "torch.__version__": torch,
        "torch.torch_version.__version__": torch,
        "torch_version.__version__": torch,
        "torch.version.__version__": torch_release,
        **{
            f"{module}version('torch')": torch_release
            for module in ("importlib.metadata.", "importlib_metadata.", "metadata.", "")
        },
        **{
            f"getattr(torch, '{name}', None)": Version(torch_release) >= Version(since) or None
            for name, since in (("compile", "2.0"), ("_dynamo", "2.0"), ("compiler", "2.1"))
        },
        # Of a free-threaded one, imports decide.
        **({"sys._is_gil_enabled()": True} if not freed and info >= (3, 13) else {}),
        "pkg_resources.get_distribution('torch').version": torch_release,
        "get_distribution('torch').version": torch_release,
    }


# What the sources of these expressions end with, without arguments.
_LAST_NAMES: Final = frozenset(
    text.partition("(")[0].rpartition(".")[2] if text.endswith(")") else text.rpartition(".")[2]
    for text in _known("3.13", "2.6.0")
)


@dataclass
class VersionsOfCell:
    """What an expression sees of a cell.

    Attributes:
        python: E.g. ``3.13`` or ``3.14t``.
        torch: E.g. ``2.6.0``.
        asked: Whose versions were looked at.
    """

    python: str
    torch: str
    asked: set[str] = field(default_factory=set)

    def find(self, text: str) -> Value:
        """Return what an expression says of the cell; raises ``KeyError``."""
        value = _known(self.python, self.torch)[text]
        self.asked.add("PyTorch" if "torch" in text else "Python")
        return value


def value_of(node: ast.AST, cell: VersionsOfCell, names: Names) -> Value:
    """Return the value that an expression has in a cell.

    Args:
        node: The expression.
        cell: The cell.
        names: What names of the source stand for.

    Raises:
        Undecided: If it is not known, or computing it raises in Python, too.
    """
    try:
        return _Values(cell, names).visit(node)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise Undecided(str(error)) from error


class _Values(ast.NodeVisitor):
    """Computes expressions in a cell."""

    def __init__(self, cell: VersionsOfCell, names: Names) -> None:
        self._cell, self._names = cell, names
        self._steps = self._depth = 0
        # Names of the comprehension, function or case that is computed.
        self._local: dict[str, Value] = {}

    def visit(self, node: ast.AST) -> Value:
        """Return the value of an expression in the names that hold where it is."""
        self._steps += 1
        if self._steps > _MOST_STEPS or self._depth > _DEEPEST:
            raise Undecided("too long")
        # Writing down every expression would take most of the time.
        named = node.func if isinstance(node, ast.Call) else node
        if isinstance(named, ast.Name | ast.Attribute) and last_name(named) in _LAST_NAMES:
            with suppress(KeyError):
                return self._cell.find(ast.unparse(node))
        self._depth += 1
        value = super().visit(node)
        self._depth -= 1
        _check(value)
        return value

    def generic_visit(self, node: ast.AST) -> Value:
        """Raise ``Undecided``: nothing else is computed."""
        raise Undecided(type(node).__name__)

    def _within(self, local: Mapping[str, Value], node: ast.AST) -> Value:
        """Return the value of an expression where these names hold."""
        outside, self._local = self._local, dict(local)
        value = self.visit(node)
        self._local = outside
        return value

    def _each(self, nodes: Iterable[ast.AST]) -> Iterator[Value]:
        for node in nodes:
            if isinstance(node, ast.Starred):
                yield from self.visit(node.value)
            else:
                yield self.visit(node)

    def visit_Constant(self, node: ast.Constant) -> Value:
        return node.value

    def visit_Name(self, node: ast.Name) -> Value:
        if node.id in self._local:
            return self._local[node.id]
        found = self._names.meaning(node)
        if found is None or isinstance(found, ast.Lambda):
            raise Undecided(node.id)
        return self._within({}, found)

    def visit_Attribute(self, node: ast.Attribute) -> Value:
        found = self._names.meaning(node)
        if found is not None and not isinstance(found, ast.Lambda):
            return self._within({}, found)
        of = self.visit(node.value)
        if node.attr in _FIELDS.get(type(of), ()):
            return getattr(of, node.attr)
        raise Undecided(node.attr)

    def visit_Tuple(self, node: ast.Tuple) -> Value:
        return tuple(self._each(node.elts))

    def visit_List(self, node: ast.List) -> Value:
        return list(self._each(node.elts))

    def visit_Set(self, node: ast.Set) -> Value:
        return set(self._each(node.elts))

    def visit_NamedExpr(self, node: ast.NamedExpr) -> Value:
        return self.visit(node.value)

    def visit_BoolOp(self, node: ast.BoolOp) -> Value:
        value = None
        for one in node.values:
            value = self.visit(one)
            if bool(value) == isinstance(node.op, ast.Or):
                break
        return value

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Value:
        value = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            return not value
        if isinstance(node.op, ast.USub) and isinstance(value, int | float):
            return -value
        raise Undecided(type(node.op).__name__)

    def visit_BinOp(self, node: ast.BinOp) -> Value:
        one, other = (self.visit(side) for side in (node.left, node.right))
        if isinstance(node.op, ast.Mod):
            if isinstance(one, str) and re.search(r"%[^ds]", one):
                raise Undecided("a format")
            return one % other
        compute = _COMPUTED.get(type(node.op))
        if compute is None:
            raise Undecided(type(node.op).__name__)
        return compute(one, other)

    def visit_Compare(self, node: ast.Compare) -> Value:
        left, value = self.visit(node.left), True
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.visit(comparator)
            value = _COMPARED[type(op)](left, right)
            if not value:
                break
            left = right
        return value

    def visit_IfExp(self, node: ast.IfExp) -> Value:
        chosen = node.body if self.visit(node.test) else node.orelse
        return self.visit(chosen)

    def visit_CaseTest(self, node: CaseTest) -> bool:
        local = dict(self._local)
        if not self._matches(node.pattern, self.visit(node.subject), local):
            return False
        return node.guard is None or bool(self._within(local, node.guard))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> str:
        return "".join(str(self.visit(one)) for one in node.values)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> str:
        if node.format_spec is not None or node.conversion not in (-1, ord("s")):
            raise Undecided("a format")
        return str(self.visit(node.value))

    def visit_Subscript(self, node: ast.Subscript) -> Value:
        of = self.visit(node.value)
        if not isinstance(node.slice, ast.Slice):
            return of[self.visit(node.slice)]
        ends = (node.slice.lower, node.slice.upper, node.slice.step)
        return of[slice(*(end and self.visit(end) for end in ends))]

    def visit_GeneratorExp(self, node: ast.GeneratorExp | ast.ListComp) -> list[Value]:
        (loop,) = node.generators
        found = []
        for item in self.visit(loop.iter):
            inside = self._local | _bound(loop.target, item)
            if all(self._within(inside, test) for test in loop.ifs):
                found.append(self._within(inside, node.elt))
        return found

    visit_ListComp = visit_GeneratorExp  # noqa: N815  (ast's name)

    def visit_Call(self, node: ast.Call) -> Value:
        function = node.func
        name = ast.unparse(function).rpartition(".")[2]
        mapped = name == "map" and len(node.args) > 1 and isinstance(function, ast.Name)
        given = list(self._each(node.args[mapped:]))
        named = {str(word.arg): self.visit(word.value) for word in node.keywords}
        if any(word.arg is None for word in node.keywords) or name in self._local:
            raise Undecided(name)
        if mapped:
            each = ast.unparse(node.args[0]).rpartition(".")[2]
            return [self._function(each, list(items), {}) for items in zip(*given, strict=False)]
        module = ast.unparse(function.value) if isinstance(function, ast.Attribute) else ""
        if module not in _MODULES and isinstance(
            body := self._names.meaning(function), ast.Lambda
        ):
            return self._applied(body, given, named)
        if isinstance(function, ast.Attribute):
            if module == "re" and name in _PATTERNS and not named:
                return _searched(name, *given)
            if module not in _MODULES:
                return self._method(self.visit(function.value), name, given, named)
        return self._function(name, given, named)

    def _function(self, name: str, given: list[Value], named: Mapping[str, Value]) -> Value:
        function = _FUNCTIONS.get(name)
        if function is None or (named and function is not Version):
            raise Undecided(name)
        if name == "range":
            _check(range(*given))
        return function(*given, **named)

    def _method(
        self, of: Value, name: str, given: list[Value], named: Mapping[str, Value]
    ) -> Value:
        if name in _COMPARING_METHODS and isinstance(of, tuple | str | int | float | Version):
            return getattr(operator, name)(of, *given)
        for kind, methods in _METHODS.items():
            if isinstance(of, kind) and name in methods:
                if name == "replace" and len(given) > 1 and len(str(given[1])) > len(str(of)):
                    raise Undecided("a text that grows")
                return getattr(of, name)(*given, **named)
        raise Undecided(name)

    def _applied(
        self, function: ast.Lambda, given: Sequence[Value], named: Mapping[str, Value]
    ) -> Value:
        """Return what a function of the source returns."""
        wanted = function.args
        if wanted.vararg or wanted.kwarg or wanted.kwonlyargs or wanted.posonlyargs:
            raise Undecided("its parameters")
        names = [one.arg for one in wanted.args]
        defaults = zip(reversed(names), reversed(wanted.defaults), strict=False)
        values = {name: self._within({}, default) for name, default in defaults}
        values |= dict(zip(names, given, strict=False)) | dict(named)
        if len(given) > len(names) or set(values) != set(names):
            raise Undecided("its arguments")
        return self._within(values, function.body)

    def _matches(self, pattern: ast.pattern, value: Value, local: dict[str, Value]) -> bool:
        """Return whether a pattern takes a value; add the names that it binds to ``local``."""
        if isinstance(pattern, ast.MatchValue):
            return bool(value == self.visit(pattern.value))
        if isinstance(pattern, ast.MatchOr):
            return any(self._matches(one, value, local) for one in pattern.patterns)
        if isinstance(pattern, ast.MatchAs):
            if pattern.pattern is not None and not self._matches(pattern.pattern, value, local):
                return False
            if pattern.name is not None:
                local[pattern.name] = value
            return True
        if isinstance(pattern, ast.MatchSequence):
            return isinstance(value, tuple | list) and self._match_each(
                pattern.patterns, value, local
            )
        raise Undecided(type(pattern).__name__)

    def _match_each(
        self, patterns: list[ast.pattern], values: Sequence[Value], local: dict[str, Value]
    ) -> bool:
        for number, one in enumerate(patterns):
            if isinstance(one, ast.MatchStar):  # takes what the others leave
                behind = len(values) - (len(patterns) - number - 1)
                if behind < number:
                    return False
                if one.name is not None:
                    local[one.name] = list(values[number:behind])
                patterns = [*patterns[:number], *patterns[number + 1 :]]
                values = [*values[:number], *values[behind:]]
                break
        return len(patterns) == len(values) and all(
            self._matches(one, value, local) for one, value in zip(patterns, values, strict=True)
        )


def _bound(target: ast.expr, value: Value) -> dict[str, Value]:
    """Return the names that a loop binds."""
    if isinstance(target, ast.Name):
        return {target.id: value}
    if isinstance(target, ast.Tuple) and all(isinstance(one, ast.Name) for one in target.elts):
        return dict(zip((ast.unparse(one) for one in target.elts), value, strict=True))
    raise Undecided("a loop")


def _searched(how: str, pattern: str, text: str) -> Value:
    """Return what a regular expression finds in a short text."""
    # Repeated groups, or many repetitions, may take for ever.
    if re.search(r"\)[+*{?]", str(pattern)) or len(re.findall(r"[+*{]", str(pattern))) > 3:  # noqa: PLR2004
        raise Undecided("a pattern")
    return getattr(re, how)(pattern, text[:80])


def _check(value: Value) -> None:
    """Raise ``Undecided`` for a value that is of no known kind, or large."""
    if not isinstance(value, _VALUES):
        raise Undecided(type(value).__name__)
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise Undecided("a large number")
    if isinstance(value, str | tuple | list | set | frozenset | range) and len(value) > _LONGEST:
        raise Undecided("a long value")
