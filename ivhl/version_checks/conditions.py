"""Conditions on the versions of Python and PyTorch in the source of others, by its syntax tree.

Nothing is run. What the tree does not tell is *unknown*, and stays unknown through ``and``, ``or``
and ``not`` unless the rest decides.
"""

from __future__ import annotations

import ast
import operator
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from ivhl.version_checks.names import with_names
from ivhl.version_checks.values import NEWEST_PATCH, CaseTest, Undecided, VersionsOfCell, value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

VersionAxis = Literal["python", "torch"]
_OPERATORS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    ">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_STARTS: Final = ("starts with", "does not start with")
_NEGATED: Final = {
    ">=": "<", "<": ">=", "<=": ">", ">": "<=", "==": "!=", "!=": "==",
    _STARTS[0]: _STARTS[1], _STARTS[1]: _STARTS[0],
}  # fmt: skip
_SWAPPED: Final = {">=": "<=", "<=": ">=", ">": "<", "<": ">", "==": "==", "!=": "!="}
_SIGNS: Final[dict[type[ast.cmpop], str]] = {
    ast.GtE: ">=", ast.Gt: ">", ast.LtE: "<=", ast.Lt: "<", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_WORDS: Final = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<", "eq": "==", "ne": "!="}
_NAMES: Final[dict[VersionAxis, str]] = {"python": "Python", "torch": "PyTorch"}
# Calls that only bring a version into another form: one that compares as versions do, numbers.
_VERSIONS: Final = frozenset(
    {"Version", "parse", "LooseVersion", "StrictVersion", "TorchVersion", "parse_version"}
)
_NUMBERS: Final = frozenset({"tuple", "list", "int", "float", "map"})
_FORMS: Final = _VERSIONS | _NUMBERS | {"str"}
_ALL: Final = 99
# Expressions that are a version, and whether they are plain texts.
_SUBJECTS: Final[tuple[tuple[str, VersionAxis, bool], ...]] = (
    (r"(sys\.)?version_info", "python", False),
    (r"platform\.python_version(_tuple)?\(\)|sys\.version", "python", True),
    (r"torch(\.torch_version)?\.__version__|torch_version\.__version__", "torch", False),
    (r"torch\.version\.__version__", "torch", True),
    (r"(importlib\.|importlib_)?(metadata\.)?version\(['\"]torch['\"]\)", "torch", True),
    (r"(pkg_resources\.)?get_distribution\(['\"]torch['\"]\)\.version", "torch", True),
)
# The last names of these expressions.
_SUBJECT_NAMES: Final = frozenset(
    {"version_info", "python_version", "python_version_tuple", "version", "__version__"}
)
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
class VersionTest:
    """A comparison of one version with a constant.

    Attributes:
        numbers: How many numbers of the version are compared, as a tuple; 0 for the version.
        number: The only one that is compared, from 0; ``None`` for all.
        letters: How many letters of its text are compared; 0 for all.
        textual: Whether two texts are compared, letter by letter: ``"2.15" < "2.6"``.
    """

    axis: VersionAxis
    sign: str
    value: tuple[int, ...] | str | float
    numbers: int = 0
    number: int | None = None
    letters: int = 0
    textual: bool = False

    def holds(self, python: str, torch: str) -> bool | None:
        """Return whether it holds in a cell; ``None`` if its version is no version."""
        try:
            return self._holds(python.removesuffix("t") if self.axis == "python" else torch)
        except (ValueError, IndexError):
            return None

    def _holds(self, given: str) -> bool:
        given, release = self._compared(given)
        value = self.value
        if self.sign in _STARTS:
            return given.startswith(str(value)) == (self.sign == _STARTS[0])
        mine: Any = release
        wanted: Any = value
        if isinstance(value, float):
            mine = float(given)
        elif isinstance(value, str):
            mine, wanted = (given, value) if self.textual else (_version(given), _version(value))
        elif self.letters or self.number is not None:
            mine, wanted = int(given), value[0]
        elif self.axis == "torch" and not self.numbers:  # TorchVersion compares as versions do
            mine, wanted = _version(given), _version(".".join(map(str, value)))
        return bool(_OPERATORS[self.sign](mine, wanted))

    def _compared(self, given: str) -> tuple[str, tuple[int, ...]]:
        """Return the part of a version that is compared, as text and as numbers."""
        release = _version(given).release
        if self.axis == "python" and len(release) < 3:  # noqa: PLR2004  (major, minor, patch)
            release = (*release, NEWEST_PATCH)
            given = ".".join(map(str, release))
        if self.letters:
            return given[: self.letters], release
        if self.number is not None:
            return str(release[self.number]), release
        if self.numbers:
            release = release[: self.numbers]
            given = ".".join(map(str, release))
        return given, release

    def __invert__(self) -> VersionTest:
        """Return its opposite."""
        return replace(self, sign=_NEGATED[self.sign])

    def __str__(self) -> str:
        """Return e.g. ``Python >=3.13``."""
        value = self.value
        text = ".".join(map(str, value)) if isinstance(value, tuple) else str(value)
        which = ("major", "minor", "patch")[self.number] if self.number is not None else ""
        if self.letters:
            which = (
                f"(its first {self.letters} letters)" if self.letters > 1 else "(its first letter)"
            )
        elif self.textual and self.sign not in _STARTS:
            which = f"{which} (as text)".strip()
        space = " " if self.sign in _STARTS else ""
        return f"{_NAMES[self.axis]} {which + ' ' if which else ''}{self.sign}{space}{text}"


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


@dataclass(frozen=True, slots=True)
class Computed:
    """An expression on versions that is no plain comparison: its value in a cell is computed.

    Attributes:
        node: The expression, or the case of a ``match``.
        names: What names in it stand for.
    """

    node: ast.expr
    names: Names
    negated: bool = False

    def holds(self, python: str, torch: str) -> bool | None:
        """Return whether it holds in a cell; ``None`` if that cannot be computed there."""
        found = self.in_cell(VersionsOfCell(python, torch))
        return None if found is None else found != self.negated

    def in_cell(self, cell: VersionsOfCell) -> bool | None:
        """Return whether the expression is true in a cell, which notes if a version was asked."""
        try:
            return bool(value_of(self.node, cell, self.names.find))
        except Undecided:
            return None

    def __invert__(self) -> Computed:
        """Return its opposite."""
        return replace(self, negated=not self.negated)

    def __str__(self) -> str:
        """Return the source."""
        text = source_of(self.node)
        return f"not `{text}`" if self.negated else f"`{text}`"


Condition = VersionTest | Computed | Unknown | Always | Joined


def speaks_of_versions(condition: Condition) -> bool:
    """Return whether a condition looks at the version of Python or PyTorch."""
    if isinstance(condition, Joined):
        return any(map(speaks_of_versions, condition.parts))
    return isinstance(condition, VersionTest | Computed)


def source_of(node: ast.expr) -> str:
    """Return the source of an expression, at most 80 letters."""
    if not isinstance(node, CaseTest):
        return ast.unparse(node)[:80]
    guard = "" if node.guard is None else f" if {ast.unparse(node.guard)}"
    return f"match {ast.unparse(node.subject)}: case {ast.unparse(node.pattern)}{guard}"[:80]


@dataclass(frozen=True, slots=True)
class _Subject:
    """An expression that is a version, or numbers of one."""

    axis: VersionAxis
    numbers: int = 0
    number: int | None = None
    letters: int = 0
    textual: bool = False

    def compared(self, sign: str, value: tuple[int, ...] | str | float) -> VersionTest:
        """Return its comparison with a constant."""
        return VersionTest(
            self.axis, sign, value, self.numbers, self.number, self.letters, self.textual
        )


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
        return _comparisons(node, names, depth) or _computed(node, names)
    if isinstance(node, ast.Call):
        return _call(node, names, depth) or _computed(node, names)
    if isinstance(node, ast.Name | ast.Attribute) and depth < _DEEPEST:
        name = last_name(node)
        if (found := names.meaning(node)) is not None:
            meant = condition_of(found, names.without(name), depth + 1)
            return meant if speaks_of_versions(meant) else Unknown(source_of(node))
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
            if name and name not in seen:
                seen.add(name)
                if (found := names.find(name)) is not None:
                    left.append(found)
    return False


_MOST_NAMES: Final = 200
# Cells in one of which an expression on versions has a value.
_TRIED: Final = (("3.12", "2.5.1"), ("3.13", "2.6.0"), ("3.14t", "2.15.0"))


def _computed(node: ast.expr, names: Names) -> Computed | Unknown:
    """Return an expression whose value depends on versions, where it can be computed."""
    if not _may_ask(node, names):
        return Unknown(source_of(node))
    found = Computed(node, names)
    for tried in _TRIED:
        cell = VersionsOfCell(*tried)
        if found.in_cell(cell) is not None and cell.asked:
            return found
    return Unknown(source_of(node))


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


def _by_name(name: str) -> VersionTest | None:
    """Return what a constant of another package says by its name."""
    found = _NAMED.fullmatch(name)
    if found is None:
        return None
    word = next(word for word in ("ge", "lt", "gt", "le") if found[word])
    axis: VersionAxis = "torch" if found["axis"].lower() == "torch" else "python"
    numbers = tuple(map(int, found["value"].split("_")))
    if axis == "python":
        return VersionTest(axis, _WORDS[word], numbers)
    return VersionTest(axis, _WORDS[word], ".".join(map(str, numbers)))


_DEEPEST: Final = 8


def _comparisons(node: ast.Compare, names: Names, depth: int) -> Condition | None:
    """Return a chain of comparisons, e.g. ``(3, 8) <= sys.version_info < (3, 13)``."""
    sides = [node.left, *node.comparators]
    parts: list[Condition] = []
    for left, op, right in zip(sides, node.ops, sides[1:], strict=False):
        if isinstance(op, ast.In | ast.NotIn):
            part = _one_of(left, right, names, depth)
            part = ~part if part is not None and isinstance(op, ast.NotIn) else part
        elif (sign := _SIGNS.get(type(op))) is not None:
            part = _comparison(left, sign, right, names, depth)
        else:
            part = None
        if part is None:
            return None
        parts.append(part)
    return joined("and", *parts)


def _comparison(
    left: ast.expr, sign: str, right: ast.expr, names: Names, depth: int
) -> Condition | None:
    for one, other, mine in ((left, right, sign), (right, left, _SWAPPED[sign])):
        subject, value = _subject(one, names, depth), _value(other, names)
        if subject is not None and value is not None:
            return subject.compared(mine, value)
        if (
            last_name(one) == "hexversion"
            and ast.unparse(one) == "sys.hexversion"
            and isinstance(other, ast.Constant)
        ):
            number = other.value
            if isinstance(number, int):  # 0x030D00F0 is 3.13.0, final
                return VersionTest("python", mine, tuple(number >> n & 255 for n in (24, 16, 8)))
    return None


def _one_of(left: ast.expr, right: ast.expr, names: Names, depth: int) -> Condition | None:
    """Return ``sys.version_info[:2] in [(3, 12), (3, 13)]``."""
    subject = _subject(left, names, depth)
    if subject is None or not isinstance(right, ast.Tuple | ast.List | ast.Set):
        return None
    values = [_value(one, names) for one in right.elts]
    tests = tuple(subject.compared("==", value) for value in values if value is not None)
    return joined("or", *tests) if tests and len(tests) == len(values) else None


def _call(node: ast.Call, names: Names, depth: int) -> Condition | None:
    """Return what a call asks: a function of the project or of Python, or a well-known helper."""
    name = last_name(node.func)
    if name == "startswith" and isinstance(node.func, ast.Attribute) and node.args:
        return _start(node.func.value, node.args[0], names, depth)
    if name in _WORDS and len(node.args) == 2:  # noqa: PLR2004  (operator.ge)
        return _comparison(node.args[0], _WORDS[name], node.args[1], names, depth)
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
    texts = [_value(argument, names) for argument in node.args]
    if name == "hasattr" and len(node.args) == 2:  # noqa: PLR2004
        feature = f"{ast.unparse(node.args[0])}.{texts[1]}"
        if feature in ("torch.__version__", "torch.version.git_version"):
            return Always()
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


def _start(of: ast.expr, given: ast.expr, names: Names, depth: int) -> Condition | None:
    """Return ``torch.__version__.startswith("2.5")``."""
    subject = _subject(of, names, depth)
    each = given.elts if isinstance(given, ast.Tuple) else [given]
    texts = [one.value for one in each if isinstance(one, ast.Constant)]
    if subject is None or not texts or not all(isinstance(text, str) for text in texts):
        return None
    whole = replace(subject, textual=True)
    return joined("or", *(whole.compared(_STARTS[0], str(text)) for text in texts))


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


_PARTS: Final[dict[str, Callable[[_Subject], _Subject]]] = {
    "release": lambda of: replace(of, numbers=of.numbers or _ALL),
    "base_version": lambda of: replace(of, textual=True),
    "public": lambda of: replace(of, textual=True),
    "major": lambda of: _Subject(of.axis, number=0),
    "minor": lambda of: _Subject(of.axis, number=1),
    "micro": lambda of: _Subject(of.axis, number=2),
}


def _subject(node: ast.expr, names: Names, depth: int) -> _Subject | None:  # noqa: PLR0911
    """Return which version an expression is; ``None`` if it is none."""
    if isinstance(node, ast.NamedExpr):
        return _subject(node.value, names, depth)
    if (known := _known_subject(node)) is not None:
        return known
    if isinstance(node, ast.Call):
        return _formed(node, names, depth)
    if isinstance(node, ast.GeneratorExp | ast.ListComp):
        of = _subject(node.generators[0].iter, names, depth)
        return of and replace(of, textual=False, numbers=of.numbers or _ALL)
    if isinstance(node, ast.Tuple):
        return _together([_subject(one, names, depth) for one in node.elts])
    if (
        isinstance(node, ast.Attribute)
        and node.attr in _PARTS
        and (of := _subject(node.value, names, depth))
    ):
        return _PARTS[node.attr](of)
    if isinstance(node, ast.Subscript):
        return _part(node, names, depth)
    if isinstance(node, ast.Name | ast.Attribute) and depth < _DEEPEST:
        found = names.meaning(node)
        return None if found is None else _subject(found, names, depth + 1)
    return None


def _known_subject(node: ast.expr) -> _Subject | None:
    """Return which version an expression is by its source."""
    # Writing down everything that is compared would take long.
    if last_name(getattr(node, "func", node)) in _SUBJECT_NAMES:
        text = ast.unparse(node)
        for pattern, axis, textual in _SUBJECTS:
            if re.fullmatch(pattern, text):
                return _Subject(axis, textual=textual)
    return None


def _formed(node: ast.Call, names: Names, depth: int) -> _Subject | None:
    """Return the version that a call brings into another form."""
    name = last_name(node.func)
    if name in ("split", "replace", "join") and isinstance(node.func, ast.Attribute):
        given = node.args[0] if name == "join" and node.args else node.func.value
        of = _subject(given, names, depth)
        return of and replace(of, textual=True)
    if name not in _FORMS or not node.args:
        return None
    of = _subject(node.args[-1], names, depth)  # of map(int, ...) too
    if of is None:
        return None
    if name in ("tuple", "list", "map"):
        texts = name != "map" and of.textual
        return replace(of, textual=texts, numbers=of.numbers or _ALL)
    return replace(of, textual=name == "str")


def _together(parts: list[_Subject | None]) -> _Subject | None:
    """Return ``(MAJOR, MINOR)`` as the numbers of a version."""
    axes = {part.axis for part in parts if part is not None}
    numbers = [part.number for part in parts if part is not None]
    if len(axes) != 1 or numbers != list(range(len(parts))):
        return None
    return _Subject(axes.pop(), len(parts))


def _part(node: ast.Subscript, names: Names, depth: int) -> _Subject | None:
    of = _subject(node.value, names, depth)
    if of is None:
        return None
    # Letters of a text are no numbers of a version.
    plain = re.search(r"__version__$|version\([^)]*\)$|sys\.version$", ast.unparse(node.value))
    where = node.slice
    if isinstance(where, ast.Slice) and isinstance(where.upper, ast.Constant):
        first = where.lower.value if isinstance(where.lower, ast.Constant) else where.lower
        n = where.upper.value
        if first in (None, 0) and isinstance(n, int) and n > 0:
            cut = _Subject(of.axis, n, textual=of.textual)
            return _Subject(of.axis, letters=n, textual=True) if plain else cut
    elif isinstance(where, ast.Constant) and isinstance(where.value, int) and where.value >= 0:
        if re.search(r"split\((['\"](\+|\+cu|a|dev|rc)['\"])?\)$", ast.unparse(node.value)):
            return of  # what is before a local version
        if not plain:
            return _Subject(of.axis, 0, where.value, textual=of.textual)
        return _Subject(of.axis, letters=1, textual=True) if where.value == 0 else None
    return None


def _value(node: ast.expr, names: Names, depth: int = 0) -> tuple[int, ...] | str | float | None:
    """Return a constant version."""
    if isinstance(node, ast.Call) and last_name(node.func) in _FORMS and len(node.args) == 1:
        return _value(node.args[0], names, depth)
    if isinstance(node, ast.Constant):
        value = node.value
        if isinstance(value, str | float):
            return value
        return (value,) if type(value) is int else None
    if isinstance(node, ast.Tuple | ast.List):
        items = [item.value for item in node.elts if isinstance(item, ast.Constant)]
        numbers = tuple(item for item in items if isinstance(item, int))
        return numbers if numbers and len(numbers) == len(node.elts) else None
    if isinstance(node, ast.Name | ast.Attribute) and depth < _DEEPEST:
        found = names.meaning(node)
        if isinstance(found, ast.Constant | ast.Tuple | ast.Call):
            return _value(found, names, depth + 1)
    return None


@lru_cache(maxsize=1024)
def _version(text: str) -> Version:
    return Version(text)
