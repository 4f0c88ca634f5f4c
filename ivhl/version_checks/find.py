"""Version checks around compiled code in the source of others.

A check outlives its reason: somebody skips a test on Python 3.12 because PyTorch refused it, and two
releases later nobody looks. Found by the syntax tree, without running or importing anything.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from ivhl.syntax import UNPARSED, SourceText, parsed, read_texts, why_unparsed
from ivhl.tracker.store.index import collector_paused
from ivhl.version_checks.names import Names, bindings, first_name, last_name, shared, whole_names
from ivhl.version_checks.version_conditions import (
    ALWAYS,
    Condition,
    Leaf,
    condition_of,
    joined,
    speaks_of_versions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

CheckKind = Literal["skip", "xfail", "branch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCheck:
    """A place that keeps code from being compiled, or a test of it from being run.

    Attributes:
        path: The file, from the folder that was searched.
        name: Function, class or module that it checks, dotted.
        excludes: Where it does so.
        reason: The reason that the code gives.
        source: Its first line.
    """

    path: str
    line: int
    kind: CheckKind
    name: str
    excludes: Condition
    reason: str
    source: str

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.path}:{self.line}"


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
    named = (word.value for word in call.keywords if word.arg == "reason")
    return Mark(
        kind="xfail" if name == "xfail" else "skip",
        excludes=~excludes if name == "skipUnless" and condition is not None else excludes,
        reason=first_text([*named, *call.args[name != "skip" :]]),
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


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
# A file or function without one of these has no check, and binds no name for one: most have none.
_WORTH: Final = re.compile(
    r"(?i)compil|dynamo|inductor|version_info|__version__|version\(|_version\b|hexversion|gil_"
    r"|torch_gr|(?:torch|python|py)_\w*\d|hasattr\(torch"
)


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found.

    Attributes:
        checks: Those around compiled code.
        others: Further conditions on versions, which have nothing to do with it.
        problems: A line for each file that cannot be read or does not parse.
        files: How many files were read.
    """

    checks: tuple[FoundCheck, ...]
    others: tuple[FoundCheck, ...]
    problems: tuple[str, ...]
    files: int


@collector_paused()  # trees have no cycles, and to look through them takes long
def find_checks(folder: Path) -> Found:
    """Return the checks in the Python files of a folder, or in one file.

    Each is parsed twice, first for what its names mean, which may be asked in other files: no two
    trees are kept.
    """
    texts, problems = read_texts(folder)
    read: list[tuple[SourceText, dict[str, ast.expr]]] = []
    files: set[str] = set()
    for one in texts:
        try:
            tree = parsed(one.text)
            if _WORTH.search(one.text):
                read.append((one, bindings(whole_names(tree))))
        except RecursionError:
            problems.append(f"{one.name}: is nested too deeply to be read whole")
        except UNPARSED as error:
            problems.append(why_unparsed(one.name, error))
        else:
            files.add(one.name)
    known = shared(names.items() for _, names in read)
    checks: list[FoundCheck] = []
    others: list[FoundCheck] = []
    for one, own in read:
        tree = whole_names(parsed(one.text))
        finder = Finder(one, Names(own, known))
        try:
            finder.visit(tree)
        except RecursionError:
            problems.append(f"{one.name}: is nested too deeply to be read whole")
        checks += finder.checks
        others += finder.others
    return Found(tuple(checks), tuple(others), tuple(sorted(problems)), len(files))


class Finder(ast.NodeVisitor):
    """Visits a file, and collects its checks.

    Attributes:
        names: What names mean at the place that the visit has come to.
        checks: Checks around compiled code.
        others: Further conditions on versions.
        given: Conditions on versions that hold at the place: of blocks around it, and of
            statements that have left its block before.
    """

    def __init__(self, source: SourceText, names: Names) -> None:
        self.names = names
        self.checks: list[FoundCheck] = []
        self.others: list[FoundCheck] = []
        self.given: list[Condition] = []
        self._source, self._lines = source, source.lines
        self._definitions: list[Definition] = []
        self._rest: list[Sequence[ast.stmt]] = []  # of each block in the function, after the place
        # Each is asked for several times: nodes are told apart by identity.
        self._condition = cache(lambda node: condition_of(node, self.names))

    def generic_visit(self, node: ast.AST) -> None:
        """Visit what is inside, blocks with what holds in them."""
        for _, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                self._block(value)
                continue
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, ast.AST):
                    self.visit(one)

    def _block(self, statements: Sequence[ast.stmt], *conditions: Condition) -> None:
        """Visit statements that run where conditions hold."""
        before = len(self.given)
        self.given += filter(speaks_of_versions, conditions)
        for number, statement in enumerate(statements):
            self._rest.append(statements[number + 1 :])
            self.visit(statement)
            self._rest.pop()
            left = self._left_by(statement)
            if left is not None and speaks_of_versions(left):
                self.given.append(~left)
        del self.given[before:]

    def _definition(self, node: Definition) -> None:
        outside, rest = self.names, self._rest
        self._definitions.append(node)
        for decorator in node.decorator_list:
            self._mark(decorator, self._segment(node))
        self._rest = []
        if isinstance(node, ast.ClassDef):
            self.generic_visit(node)
        elif node.decorator_list or _WORTH.search(self._segment(node)):
            self.names = outside.inside(bindings(node))
            self.generic_visit(node)
        self._definitions.pop()
        self.names, self._rest = outside, rest

    visit_FunctionDef = _definition  # noqa: N815  (ast's name)
    visit_AsyncFunctionDef = _definition  # noqa: N815
    visit_ClassDef = _definition  # noqa: N815

    def visit_Assign(self, node: ast.Assign) -> None:
        """Look at ``pytestmark = pytest.mark.skipif(...)``, which checks the whole file."""
        if any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in node.targets):
            for mark in marks_in(node.value):
                self._mark(mark, self._source.text)
        if ast.unparse(node.targets[0]).endswith("_dynamo.config.disable"):
            self._disabled(node.value)
        self.generic_visit(node)

    def _mark(self, node: ast.expr, about_code: str) -> None:
        """Add a mark that asks for versions, or that holds where the code around it runs.

        Args:
            node: The mark.
            about_code: Source of the code that it marks.
        """
        mark = read_mark(node, self.names)
        if mark is None:
            return
        # Without a condition of its own it holds wherever the code around it runs.
        given = self.given if mark.excludes == ALWAYS else [mark.excludes]
        if any(map(speaks_of_versions, given)):
            about = speaks_of_compiling(f"{about_code} {mark.reason}")
            self.add(node, mark.kind, mark.excludes, reason=mark.reason, about=about)

    def _disabled(self, value: ast.expr) -> None:
        """Look at ``torch.compile(f, disable=...)``, or what ``config.disable`` is set to."""
        if speaks_of_versions(condition := self._condition(value)):
            self.add(value, "branch", condition)

    def visit_Call(self, node: ast.Call) -> None:
        """Look at ``torch.compile(f, disable=...)``, and at marks of parameters."""
        name = last_name(node.func)
        marks = [word.value for word in node.keywords if name == "param" and word.arg == "marks"]
        marks += node.args[: name in ("applymarker", "add_marker")]
        around = self._segment(self._definitions[-1]) if self._definitions else self._source.text
        for value in marks:
            for mark in marks_in(value):
                self._mark(mark, around)
        for word in node.keywords:
            if word.arg == "disable" and name == "compile":
                self._disabled(word.value)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        """Look at a condition of which one side compiles, or which leaves a function that does."""
        condition = self._condition(node.test)
        body: Sequence[ast.stmt] = node.body
        other: Sequence[ast.stmt] = node.orelse
        if speaks_of_versions(condition):
            # What comes after runs on the side that does not leave.
            leaves = _ends(body) or _leaves_where_it_compiles(body)
            if not leaves and (_ends(other) or _leaves_where_it_compiles(other)):
                body = [*body, *self._after()]
            elif leaves and not _ends(other):
                other = [*other, *self._after()]
        self._branch(node, body, other)
        self.visit(node.test)
        self._block(node.body, condition)
        self._block(node.orelse, ~condition)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """Look at ``torch.compile(f) if ... else f``."""
        self._branch(node, [node.body], [node.orelse])
        self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        """Look at ``assert torch.__version__ >= "2.6"`` before what compiles."""
        condition = self._condition(node.test)
        if speaks_of_versions(condition):
            reason = _message([node.msg] if node.msg else [])
            about = any(map(compiles, self._after())) or speaks_of_compiling(reason)
            self.add(node, "branch", ~condition, reason=reason, about=about)
        self.generic_visit(node)

    def _branch(
        self, node: ast.If | ast.IfExp, body: Sequence[ast.AST], orelse: Sequence[ast.AST]
    ) -> None:
        condition = self._condition(node.test)
        if not speaks_of_versions(condition):
            return
        yes, no = map(_side, (body, orelse))
        if yes == no and isinstance(body[-1], ast.Raise | ast.Expr) and _leaves(body[-1]):
            around = self._definitions[-1] if self._definitions else None
            told = any(speaks_of_compiling(ast.unparse(one)) for one in body)
            yes = "off" if told or (around is not None and compiles(around)) else yes
        if yes == no:
            self.add(node, "branch", condition, about=asks_whether_compiling(node.test))
            return
        off = yes == "off" or no == "compiles"
        self.add(
            node,
            "branch",
            condition if off else ~condition,
            reason=_message(body) if off and isinstance(node, ast.If) else "",
        )

    def _after(self) -> list[ast.stmt]:
        """Return what runs after the place if nothing leaves, to the end of its function."""
        return [statement for block in self._rest[::-1] for statement in block]

    def _left_by(self, node: ast.stmt) -> Condition | None:
        """Return where a statement leaves its block; ``None`` if it does not, or nobody can tell."""
        if _leaves(node):
            return ALWAYS
        if not isinstance(node, ast.If):
            return None
        condition = self._condition(node.test)
        sides = []
        for side, holds in ((node.body, condition), (node.orelse, ~condition)):
            lefts = [left for child in side if (left := self._left_by(child)) is not None]
            if lefts:
                sides.append(joined("and", holds, joined("or", *lefts)))
        return joined("or", *sides) if sides else None

    def add(
        self,
        node: ast.expr | ast.stmt,
        kind: CheckKind,
        excludes: Condition,
        *,
        reason: str = "",
        about: bool = True,
    ) -> None:
        """Add a check; ``about`` says whether compiled code is around it."""
        check = FoundCheck(
            path=self._source.name,
            line=node.lineno,
            kind=kind,
            name=".".join(definition.name for definition in self._definitions) or "(module)",
            excludes=joined("and", *self.given, excludes),
            reason=reason,
            source=self._lines[node.lineno - 1].strip()[:120],
        )
        (self.checks if about else self.others).append(check)

    def _segment(self, node: ast.expr | ast.stmt) -> str:
        """Return the source of a node; ``ast.get_source_segment`` splits the file each time."""
        last = node.end_lineno or node.lineno
        lines = [line.encode() for line in self._lines[node.lineno - 1 : last]]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return b"\n".join(lines).decode()


def _leaves(node: ast.AST) -> bool:
    """Return whether what comes after a statement is not run."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return last_name(node.value.func) in ("skip", "skipTest", "exit")
    return isinstance(node, ast.Raise | ast.Return | ast.Continue)


def _side(side: Sequence[ast.AST]) -> Literal["compiles", "off", "neither"]:
    """Return what one side of a condition does with compiling."""
    if any(map(compiles, side)):
        return "compiles"
    return "off" if any(map(turns_off, side)) else "neither"


def _ends(block: Sequence[ast.stmt]) -> bool:
    """Return whether nothing runs after a block, whatever its conditions are."""
    while block and isinstance(last := block[-1], ast.If) and _ends(last.body):
        block = last.orelse
    return bool(block) and _leaves(block[-1])


def _leaves_where_it_compiles(body: Sequence[ast.stmt]) -> bool:
    """Return whether statements compile, and none of them goes on after that."""
    compiling = [
        one
        for node in body
        for one in ast.walk(node)
        if isinstance(one, ast.stmt) and not hasattr(one, "body") and compiles(one)
    ]
    return bool(compiling) and all(map(_leaves, compiling))


def _message(body: Sequence[ast.AST]) -> str:
    """Return the first text that code raises with, skips with or prints."""
    return first_text(
        child
        for node in body
        if not isinstance(node, ast.stmt) or isinstance(node, ast.Raise | ast.Expr)
        for child in ast.walk(node)
    )


# Words that speak of compiling, in names and in texts.
COMPILING: Final = re.compile(
    r"(?<!re\.)\b(?:torch\.compile|torch\.compiler|_dynamo|dynamo|_inductor|inductor|aot_\w+|aoti\w*"
    r"|torch\.export|torch\._export|fullgraph|compile|compiled|compiler|compiling)\b",
    re.IGNORECASE,
)
_DISABLE: Final = re.compile(
    r"(?:torch\.)?(?:compiler|_dynamo|dynamo)\.(?:disable|skip)|torch\._disable_dynamo"
)
_OFF_NAMES: Final = frozenset({"disable", "skip", "_disable_dynamo"})  # their last parts
# What code that compiles says, not what asks whether something is compiled, or sets it up.
_CODE: Final = re.compile(
    r"torch\.compile\b|torch\._dynamo|torch\._inductor|torch\.export\b|torch\._export"
    r"|torch\.compiler\.|^dynamo\.|\._dynamo\b"
)
# What only describes an argument or a result of an export, or sets the compiler up.
_SET_UP: Final = re.compile(
    r"torch\.export\.(?:Dim|dims|ShapesCollection|ExportedProgram)\b.*"
    r"|.*\.(?:_dynamo|_inductor|dynamo|compiler)\.(?:config\b.*|reset|(?:dis)?allow_in_graph"
    r"|(?:maybe_)?mark_\w+|assume_constant_result)"
)
# Packages whose `compile` is their own.
_FOREIGN: Final = frozenset(
    {
        *("re", "regex", "torch_tensorrt", "tensorrt", "trt", "triton", "tl", "tilelang", "numba"),
        *("jax", "tf", "tensorflow", "keras", "openvino", "ov", "coremltools", "builtins"),
    }
)
# The exporter to ONNX has an argument of this name.
_OF_ONNX: Final = re.compile(r"torch\.onnx\.[\w.]+|[\"']?\bdynamo\b[\"']?\s*[]=:,]")
_CALLED: Final = re.compile(r"compile|\w+_compiled?|compiled?_\w+")
_ASKING: Final = re.compile(r"is_\w+|hasattr|isinstance|setattr")
# What turns compiling off for all that runs after it.
_TURNS_OFF: Final = re.compile(
    r".*\b_?dynamo\.config\.disable = True|.*environ.*TORCH(?:DYNAMO|_COMPILE)_DISABLE.*"
    r"|(?:\w+\.)*(?!\w*(?:pre|re)compil)\w*(?:compile|dynamo|inductor)\w* = False"
)


def speaks_of_compiling(text: str) -> bool:
    """Return whether a text is about compiling."""
    return COMPILING.search(_OF_ONNX.sub("", text)) is not None


def asks_whether_compiling(node: ast.AST) -> bool:
    """Return whether a condition holds only in compiled code, or only outside of it."""
    calls = (one for one in ast.walk(node) if isinstance(one, ast.Call))
    return any(last_name(one.func) in {"is_compiling", "is_dynamo_compiling"} for one in calls)


def is_disable(node: ast.AST) -> bool:
    """Return whether an expression is ``torch.compiler.disable``, called or not."""
    named = getattr(node, "func", node)
    # Nearly all are none, and writing down each would take long.
    return (
        isinstance(named, ast.Attribute)
        and named.attr in _OFF_NAMES
        and _DISABLE.fullmatch(ast.unparse(named)) is not None
    )


def compiles(node: ast.AST) -> bool:
    """Return whether code compiles, not whether its texts speak of it, or it asks about it.

    To import a function that compiles counts, since it is called elsewhere. To import a module does
    not: code that turns compiling off does so, too.
    """
    left = [node]
    while left:
        one = left.pop()
        text = _said(one)
        if text is None:
            continue
        if _CODE.search(text) or _CALLED.fullmatch(text):
            return True
        left += ast.iter_child_nodes(one)
    return False


def _said(node: ast.AST) -> str | None:
    """Return what a node says of compiling; ``None`` if nothing inside of it compiles."""
    if isinstance(node, ast.Attribute):
        text = ast.unparse(node)
        asks = _ASKING.fullmatch(node.attr) or node.attr == "OptimizedModule"
        is_set = not isinstance(node.ctx, ast.Load)
        return None if asks or is_set or is_disable(node) or _SET_UP.fullmatch(text) else text
    if isinstance(node, ast.Call):
        text = "" if first_name(node.func) in _FOREIGN else last_name(node.func)
        whole = any(word.arg == "fullgraph" for word in node.keywords)
        return None if _ASKING.fullmatch(text) else "compile" if whole else text
    if isinstance(node, ast.ImportFrom):
        names = (f"{node.module}.{alias.name}" for alias in node.names)
        return next((n for n in names if not (_SET_UP.match(n) or _DISABLE.match(n))), "")
    return ""


def turns_off(node: ast.AST) -> bool:
    """Return whether code turns compiling off for what runs after it, or for a function."""
    return any(
        (isinstance(one, ast.Call) and is_disable(one))
        or (isinstance(one, ast.Assign | ast.Expr) and _TURNS_OFF.fullmatch(ast.unparse(one)))
        or any(map(is_disable, getattr(one, "decorator_list", ())))
        for one in ast.walk(node)
    )
