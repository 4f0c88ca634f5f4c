"""Version checks around compiled code, and ``disable``, in the source of others.

A check outlives its reason: somebody skips a test on Python 3.12 because PyTorch refused it, and two
releases later nobody looks. Found by the syntax tree, without running or importing anything.
"""

from __future__ import annotations

import ast
import gc
import re
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from ivhl.syntax import UNPARSED, SourceFile, SourceText, parsed, read_texts, why_unparsed
from ivhl.version_checks.classes import Classes
from ivhl.version_checks.compiling import (
    asks_whether_compiling,
    compiles,
    is_disable,
    names_of_disable,
    off_switch,
    off_value,
    speaks_of_compiling,
    turned_off,
)
from ivhl.version_checks.names import Names, bindings, last_name, shared, whole_names
from ivhl.version_checks.values import CaseTest
from ivhl.version_checks.version_conditions import (
    Always,
    Condition,
    Unknown,
    condition_of,
    joined,
    of_version,
    speaks_of_versions,
)
from ivhl.version_checks.walks import FIELDS, blocks_of, statements_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from ivhl.syntax import Trees

CheckKind = Literal["skip", "xfail", "branch", "disable"]

_SKIPS: Final = frozenset(
    {"skip", "skipif", "skipIf", "skipUnless", "xfail", "RunIf", "withPackage"}
)
_CONDITIONAL: Final = frozenset({"skipif", "skipIf", "skipUnless", "xfail"})
# What a mark becomes that is switched off: a decorator, one of a list, the only one, one that a
# test gives to itself (of any mark without effect, the name).
_IDENTITY: Final = "(lambda function: function)"
_NONE_OF_A_LIST: Final = "*()"
_EMPTY: Final = "[]"
_NO_EFFECT: Final = '"usefixtures"'


# Most nodes of a tree.
_HOLD_NOTHING: Final = frozenset({ast.Name, ast.Constant})


class Edit(NamedTuple):
    """A piece of a file to replace: from line and column to line and column, in UTF-8 bytes."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCheck:
    """A place that keeps code from being compiled, or a test of it from being run.

    Attributes:
        path: The file, from the folder that was searched.
        name: Function, class or module that it checks, dotted.
        excludes: Where it does so.
        reason: What it says itself.
        source: Its first line.
        edits: What switches it off; empty if that cannot be done by replacing its condition.
    """

    path: str
    line: int
    kind: CheckKind
    name: str
    excludes: Condition
    reason: str
    source: str
    edits: tuple[Edit, ...]

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.path}:{self.line}"


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


def find_checks(folder: Path) -> Found:
    """Return the checks in the Python files, stubs and notebooks of a folder, or in one file."""
    texts, problems = read_texts(folder, beside=True)
    with _collector_off():
        return _found_in(texts, problems)


def checks_in(code: Trees) -> Found:
    """Return the checks in files that were read."""
    texts = [SourceText(one.name, one.text, one.editable) for one in code.files]
    with _collector_off():
        return _found_in(texts, list(code.problems))


@contextmanager
def _collector_off() -> Iterator[None]:
    """Let nobody look for cycles: trees have none, and to look through them takes long."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _found_in(texts: Iterable[SourceText], problems: list[str]) -> Found:
    """Return the checks in texts, each of which is parsed twice: no two trees are kept.

    First for what its names and classes mean, which may be asked in other files.
    """
    read: list[SourceText] = []
    bound: list[dict[str, ast.expr]] = []
    classes = Classes()
    disables: set[str] = set()
    for one in texts:
        try:
            tree = _tree_of(one.text)
            names = bindings(tree)
            classes.add(tree)
            if "disable" in one.text:
                disables |= names_of_disable(tree)
        except RecursionError:
            problems.append(f"{one.name}: is nested too deeply to be read whole")
        except UNPARSED as error:
            problems.append(why_unparsed(one.name, error))
        else:
            read.append(one)
            bound.append(names)
    known = shared(bound)
    checks: list[FoundCheck] = []
    others: list[FoundCheck] = []
    for one, own in zip(read, bound, strict=True):
        source = SourceFile(one.name, _tree_of(one.text), one.text, one.editable)
        finder = _Finder(source, own, known, classes, disables)
        try:
            finder.visit(source.tree)
        except RecursionError:
            problems.append(f"{one.name}: is nested too deeply to be read whole")
        checks += finder.checks
        others += finder.others
    files = len({one.name.partition("#")[0] for one in read})
    return Found(tuple(checks), tuple(others), tuple(sorted(problems)), files)


def _tree_of(text: str) -> ast.Module:
    """Return the tree of a text with the whole names of modules, and ``if`` for ``match``."""
    tree = whole_names(parsed(text))
    if re.search(r"^\s*match\s", text, re.MULTILINE):
        tree = _WithoutMatch().visit(tree)
    return tree


def _disables_in(source: SourceFile, known: Collection[str]) -> frozenset[str]:
    """Return the names in a file that somewhere become ``torch.compiler.disable``.

    Args:
        source: The file, which assigns or imports them.
        known: Such names of all files.
    """
    if not any(name in source.text for name in known):
        return frozenset()
    imported = (
        alias.asname or alias.name
        for node in statements_in(source.tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name in known
    )
    return names_of_disable(source.tree).union(imported)


def _skip_in(node: ast.expr | None) -> ast.Call | None:
    if isinstance(node, ast.Lambda):  # a decorator of the project that returns what skips
        node = node.body
    while isinstance(node, ast.Call):
        if last_name(node.func) in _SKIPS:
            return node
        node = node.func  # of `unittest.skipIf(...)(test)`
    return None


class _WithoutMatch(ast.NodeTransformer):
    """Writes each ``match`` as the ``if`` and ``elif`` that it means."""

    def visit_Match(self, node: ast.Match) -> ast.AST:
        """Return the chain, whose conditions stand where the patterns are."""
        self.generic_visit(node)
        chain: list[ast.stmt] = []
        for case in reversed(node.cases):
            whole = isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None
            if whole and case.guard is None:
                chain = case.body
                continue
            test = CaseTest.of(node.subject, case)
            chain = [ast.copy_location(ast.If(test, case.body, chain), test)]
        if len(chain) == 1:
            return chain[0]
        return ast.copy_location(ast.If(ast.Constant(value=True), chain or [ast.Pass()], []), node)


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
    found: dict[int, _Place] = {}
    left: list[tuple[ast.AST, ast.stmt | None]] = [(tree, None)]
    while left:
        node, around = left.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            around = None
        elif isinstance(node, ast.stmt):
            around = node
        for block in blocks_of(node):
            for number, child in enumerate(block):
                if isinstance(child, ast.stmt):
                    found[id(child)] = _Place(block, number, around)
                left.append((child, around))
    return found


class _Finder(ast.NodeVisitor):
    """Collects the checks of a file."""

    def __init__(
        self,
        source: SourceFile,
        own: Mapping[str, ast.expr],
        known: Mapping[str, ast.expr],
        classes: Classes,
        disables: Collection[str],
    ) -> None:
        self._classes = classes
        self._disables = _disables_in(source, disables)
        self.checks: list[FoundCheck] = []
        self.others: list[FoundCheck] = []
        self._source = source
        self._lines = source.lines
        self._own = [dict(own)]
        self._known = known
        self._places = _places(source.tree)
        # Conditions on versions that hold where the visit is: of blocks around, and of those that
        # have left the block before.
        self._given: list[Condition] = []
        self._inside: list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef] = []
        self._seen: set[int] = set()
        self._conditions: dict[int, Condition] = {}
        self._bindings: dict[int, dict[str, ast.expr]] = {}

    def _condition(self, node: ast.expr) -> Condition:
        """Return the condition that an expression is in the scope that is visited, its own."""
        found = self._conditions.get(id(node))
        if found is None:
            found = self._conditions[id(node)] = condition_of(node, self._names)
        return found

    @property
    def _names(self) -> Names:
        return Names(self._own[-1], self._known)

    def generic_visit(self, node: ast.AST) -> None:
        """Visit what is inside, blocks with what holds in them."""
        for name in FIELDS[type(node)]:
            field = getattr(node, name, None)
            if isinstance(field, list) and field and isinstance(field[0], ast.stmt):
                self._block(field)
                continue
            for one in field if isinstance(field, list) else [field]:
                # Most are names and constants, in which nothing is.
                if isinstance(one, ast.AST) and type(one) not in _HOLD_NOTHING:
                    self.visit(one)

    def _block(self, statements: Sequence[ast.stmt], *conditions: Condition) -> None:
        """Visit statements that run where conditions hold."""
        before = len(self._given)
        self._given += filter(speaks_of_versions, conditions)
        for one in statements:
            self.visit(one)
            left = self._left_by(one)
            if left is not None and speaks_of_versions(left):
                self._given.append(~left)
        del self._given[before:]

    def _left_by(self, node: ast.stmt) -> Condition | None:
        """Return where a statement leaves its block; ``None`` if it does not, or nobody can tell."""
        if _leaves(node):
            return Always()
        if not isinstance(node, ast.If):
            return None
        condition = self._condition(node.test)
        sides = []
        for side, holds in ((node.body, condition), (node.orelse, ~condition)):
            lefts = [left for one in side if (left := self._left_by(one)) is not None]
            if lefts:
                sides.append(joined("and", holds, joined("or", *lefts)))
        return joined("or", *sides) if sides else None

    def _after(self, node: ast.stmt) -> list[ast.stmt]:
        """Return what runs after a statement if it does not leave, to the end of its function."""
        found: list[ast.stmt] = []
        one: ast.stmt | None = node
        while one is not None:
            place = self._places[id(one)]
            found += place.block[place.number + 1 :]
            one = place.around
        return found

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self._inside.append(node)
        for decorator in node.decorator_list:
            if _stance_in(decorator) is not None:
                continue  # a call as others
            self._seen.add(id(decorator))
            if self._is_disable(decorator):
                edit = _edit(decorator, _IDENTITY)
                self._add(decorator, "disable", Always(), "", (edit,), about=True)
                continue
            self._skip(decorator, self._segment(node), _IDENTITY)
        inner = (
            self._classes.attributes(node, self._names_in)
            if isinstance(node, ast.ClassDef)
            else self._by_default(node) | self._names_in(node)
        )
        self._own.append(self._own[-1] | inner)
        self.generic_visit(node)
        self._own.pop()
        self._inside.pop()

    visit_FunctionDef = _definition  # noqa: N815  (ast's name)
    visit_AsyncFunctionDef = _definition  # noqa: N815
    visit_ClassDef = _definition  # noqa: N815

    def _by_default(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, ast.expr]:
        """Return what the parameters mean that ask for versions if nobody gives another value."""
        given = node.args
        plain = [*given.posonlyargs, *given.args]
        pairs = [
            *zip(plain[len(plain) - len(given.defaults) :], given.defaults, strict=True),
            *(
                (one, value)
                for one, value in zip(given.kwonlyargs, given.kw_defaults, strict=True)
            ),
        ]
        asking = {
            one.arg: value
            for one, value in pairs
            if value is not None and speaks_of_versions(self._condition(value))
        }
        for one in ast.walk(node) if asking else ():
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
                asking.pop(one.id, None)
        return asking

    def _names_in(self, node: ast.AST) -> dict[str, ast.expr]:
        """Return ``bindings`` of a function, which a class asks for before its methods are."""
        found = self._bindings.get(id(node))
        if found is None:
            found = self._bindings[id(node)] = bindings(node)
        return found

    def _is_disable(self, node: ast.expr) -> bool:
        """Return whether a decorator is ``torch.compiler.disable``, also by a name for it."""
        name = last_name(getattr(node, "func", node))
        if is_disable(node) or (name in self._disables and isinstance(node, ast.Name)):
            return True
        named = self._names.find(name)
        if isinstance(named, ast.Lambda):  # a function of the project that hands it on
            named = named.body
        return named is not None and is_disable(named)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Look at ``pytestmark = pytest.mark.skipif(...)``, which checks the whole file."""
        if any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in node.targets):
            self._marks(node.value, self._source.text)
        elif (value := off_switch(node)) is not None and id(node) not in self._seen:
            off = "False" if value.value is True else '"0"'
            self._add(node, "disable", Always(), "", (_edit(value, off),), about=True)
        elif (given := off_value(node)) is not None and not isinstance(given, ast.Constant):
            self._disabled(given)
        elif _sets_disable(node) and compiles(
            self._inside[-1] if self._inside else self._source.tree
        ):
            self._disabled(node.value)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Look at ``torch.compiler.disable(f)`` that is no decorator, and at marks of parameters."""
        name = last_name(node.func)
        if is_disable(node) and id(node) not in self._seen:
            given = self._segment(node.args[0]) if node.args else ""
            text = f"({given})" if given else _IDENTITY
            self._add(node, "disable", Always(), "", (_edit(node, text),), about=True)
        elif name == "param":
            for word in node.keywords:
                if word.arg == "marks":
                    self._marks(word.value, self._around())
        elif name in ("applymarker", "add_marker") and node.args:
            self._skip(node.args[0], self._around(), _NO_EFFECT)
        elif name == "importorskip":
            self._importorskip(node)
        elif name == "compile" or (name == "partial" and any(map(compiles, node.args[:1]))):
            self._options(node)
        elif name == "set_stance":
            self._stance(node)
        elif name == "get" and isinstance(node.func, ast.Attribute) and node.args:
            self._chosen(node, node.func.value, *node.args[:2])
        self.generic_visit(node)

    def _options(self, node: ast.Call) -> None:
        """Look at ``torch.compile(f, disable=...)``, also by ``**options``."""
        for word in node.keywords:
            value: ast.expr | None = word.value if word.arg == "disable" else None
            if word.arg is None:
                value = _item(self._meant(word.value), "disable")
            if value is not None:
                self._disabled(value)

    def _meant(self, node: ast.expr) -> ast.expr:
        """Return what a name of this file means, or the expression itself."""
        return self._own[-1].get(last_name(node), node) if isinstance(node, ast.Name) else node

    def _stance(self, node: ast.Call) -> None:
        """Look at ``torch.compiler.set_stance("force_eager")``, also where a condition chooses."""
        stance = _stance_in(node)
        if stance is None or id(node) in self._seen:
            return
        if _is_eager(stance):
            edits: tuple[Edit, ...] = (_edit(stance, '"default"'),)
            self._add(node, "disable", Always(), "", edits, about=True)
        elif isinstance(stance, ast.IfExp) and _is_eager(stance.body) != _is_eager(stance.orelse):
            condition, off = self._condition(stance.test), _is_eager(stance.body)
            if speaks_of_versions(condition):
                edits = _switched(stance.test, self._names, to=not off)
                excluded = condition if off else ~condition
                self._add(node, "branch", excluded, "", edits, about=True)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """Look at ``{(3, 12): torch.compile, (3, 13): eager}[sys.version_info[:2]]``."""
        self._chosen(node, node.value, node.slice)
        self.generic_visit(node)

    def _chosen(
        self, node: ast.expr, table: ast.expr, key: ast.expr, default: ast.expr | None = None
    ) -> None:
        """Look at a table of functions, of which a version chooses one that compiles or another."""
        table = self._meant(table)
        if not isinstance(table, ast.Dict) or None in table.keys:
            return
        compiling = [compiles(value) for value in table.values]
        otherwise = default is not None and compiles(default)
        if not any(compiling) and not otherwise:
            return
        rows = [self._condition(_is(key, one)) for one in table.keys if one is not None]
        where = joined(
            "or", *(row for row, on in zip(rows, compiling, strict=True) if on),
            *((~joined("or", *rows),) if otherwise else ()),
        )  # fmt: skip
        if speaks_of_versions(where):
            values = [*table.values, *([default] if default is not None else [])]
            chosen = values[[*compiling, otherwise].index(True)]
            edit = _edit(node, f"({ast.unparse(chosen)})")
            self._add(node, "branch", ~where, "", (edit,), about=True)

    def _marks(self, value: ast.expr, about_code: str) -> None:
        listed = isinstance(value, ast.List | ast.Tuple)
        for mark in value.elts if isinstance(value, ast.List | ast.Tuple) else [value]:
            self._skip(mark, about_code, _NONE_OF_A_LIST if listed else _EMPTY)

    def _importorskip(self, node: ast.Call) -> None:
        """Look at ``pytest.importorskip("torch", minversion="2.6")``."""
        first = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else ""
        for least in (word.value for word in node.keywords if word.arg == "minversion"):
            if (
                first == "torch"
                and isinstance(least, ast.Constant)
                and isinstance(least.value, str)
            ):
                excluded = of_version("PyTorch", "<", least.value)
                reason = _text_of(ast.Call(node.func, [], node.keywords))
                about = speaks_of_compiling(f"{self._around()} {reason}")
                edit = _edit(least, "None")
                self._add(node, "skip", excluded, reason, (edit,), about=about)

    def _disabled(self, value: ast.expr) -> None:
        """Look at ``torch.compile(f, disable=...)``, or what ``config.disable`` is set to."""
        condition = self._condition(value)
        if isinstance(value, ast.Constant) and value.value is True:
            self._add(value, "disable", Always(), "", (_edit(value, "False"),), about=True)
        elif speaks_of_versions(condition):
            edits = _switched(value, self._names, to=False)
            self._add(value, "branch", condition, "", edits, about=True)

    def visit_If(self, node: ast.If) -> None:
        """Look at a condition of which one side compiles, or which leaves a function that does."""
        condition = self._condition(node.test)
        body: Sequence[ast.stmt] = node.body
        other: Sequence[ast.stmt] = node.orelse
        if speaks_of_versions(condition):
            # What comes after runs on the side that does not leave.
            leaves = _ends(body) or _leaves_where_it_compiles(body)
            if not leaves and (_ends(other) or _leaves_where_it_compiles(other)):
                body = [*body, *self._after(node)]
            elif leaves and not _ends(other):
                other = [*other, *self._after(node)]
        self._branch(node, body, other)
        self.visit(node.test)
        self._block(node.body, condition)
        self._block(node.orelse, ~condition)

    def visit_While(self, node: ast.While) -> None:
        """Look at ``while torch.__version__ >= "2.6":``, whose body compiles."""
        condition = self._condition(node.test)
        self._branch(node, node.body, node.orelse or [ast.Pass()])
        self.visit(node.test)
        self._block(node.body, condition)
        self._block(node.orelse)

    def _loop(self, node: ast.For | ast.AsyncFor) -> None:
        """Look at ``for f in functions if ... else []:``, whose body compiles."""
        given = node.iter
        if isinstance(given, ast.IfExp) and _is_empty(given.body) != _is_empty(given.orelse):
            self._only_if(node, given.test, node.body, runs=_is_empty(given.orelse))
        self.generic_visit(node)

    visit_For = _loop  # noqa: N815  (ast's name)
    visit_AsyncFor = _loop  # noqa: N815

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
    ) -> None:
        """Look at ``[torch.compile(f) for f in functions if ...]``."""
        made = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        for test in (test for loop in node.generators for test in loop.ifs):
            self._only_if(node, test, made, runs=True)
        self.generic_visit(node)

    visit_ListComp = _comprehension  # noqa: N815
    visit_SetComp = _comprehension  # noqa: N815
    visit_GeneratorExp = _comprehension  # noqa: N815
    visit_DictComp = _comprehension  # noqa: N815

    def _only_if(
        self, node: ast.expr | ast.stmt, test: ast.expr, body: Sequence[ast.AST], *, runs: bool
    ) -> None:
        """Add code that compiles and runs only where a condition holds, or only where not."""
        condition = self._condition(test)
        if speaks_of_versions(condition) and any(map(compiles, body)):
            edits = _switched(test, self._names, to=runs)
            self._add(node, "branch", ~condition if runs else condition, "", edits, about=True)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """Look at ``torch.compile(f) if ... else f``."""
        self._branch(node, [node.body], [node.orelse])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Look at ``... and torch.compile(f)``."""
        for number, value in enumerate(node.values):
            called = isinstance(value, ast.Call) and compiles(value)
            if number and called and isinstance(node.op, ast.And):
                before = node.values[:number]
                condition = joined("and", *(self._condition(one) for one in before))
                if speaks_of_versions(condition):
                    edits = tuple(e for b in before for e in _switched(b, self._names, to=True))
                    self._add(node, "branch", ~condition, "", edits, about=True)
                break
        self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        """Look at ``assert torch.__version__ >= "2.6"`` before what compiles."""
        condition = self._condition(node.test)
        if speaks_of_versions(condition):
            reason = _message([node.msg] if node.msg else [])
            after = self._after(node)
            about = any(map(compiles, after)) or speaks_of_compiling(reason)
            edits = _switched(node.test, self._names, to=True)
            self._add(node, "branch", ~condition, reason, edits, about=about)
        self.generic_visit(node)

    def _branch(
        self,
        node: ast.If | ast.IfExp | ast.While,
        body: Sequence[ast.AST],
        orelse: Sequence[ast.AST],
    ) -> None:
        condition = self._condition(node.test)
        if isinstance(condition, Always):  # what is never run turns nothing off
            _side(orelse if condition.value else body, self._seen)
        if not speaks_of_versions(condition):
            return
        yes, no = (_side(side, self._seen) for side in (body, orelse))
        if yes == no and isinstance(body[-1], ast.Raise | ast.Expr) and _leaves(body[-1]):
            around = self._inside[-1] if self._inside else None
            told = any(speaks_of_compiling(ast.unparse(one)) for one in body)
            yes = "off" if told or (around is not None and compiles(around)) else yes
        if yes == no:
            about = asks_whether_compiling(node.test)
            self._add(node, "branch", condition, "", (), about=about)
        elif yes == "off" or no == "compiles":
            edits = _switched(node.test, self._names, to=False)
            reason = _message(body) if isinstance(node, ast.If) else ""
            self._add(node, "branch", condition, reason, edits, about=True)
        else:
            edits = _switched(node.test, self._names, to=True)
            self._add(node, "branch", ~condition, "", edits, about=True)

    def _skip(self, mark: ast.expr, about_code: str, gone: str) -> None:
        call, direct = (mark, True) if isinstance(mark, ast.Call) else (None, False)
        if isinstance(mark, ast.Attribute) and last_name(mark.value) == "mark":
            call = ast.Call(mark, [], [])
        if call is None or last_name(call.func) not in _SKIPS:
            found = self._names.find(last_name(getattr(mark, "func", mark)))
            call, direct = _skip_in(found), False
        if call is None:
            return
        excluded, kind = self._excluded(call)
        reason = _text_of(call)
        about = speaks_of_compiling(f"{about_code} {reason}")
        # Without a condition of its own it holds wherever the code around it runs.
        everywhere = isinstance(excluded, Always) and excluded.value
        if not speaks_of_versions(excluded) and not (everywhere and (about or self._given)):
            return
        given = _condition_in(call)
        if direct and given is not None and last_name(call.func) in _CONDITIONAL:
            stays = last_name(call.func) == "skipUnless"
            if isinstance(given, ast.Constant):
                edits: tuple[Edit, ...] = (_edit(given, str(stays)),)
            else:
                edits = _switched(given, self._names, to=stays)
        else:  # the mark itself goes, other uses of it stay
            edits = (_edit(mark, gone),)
        self._add(mark, kind, excluded, reason, edits, about=about)

    def _excluded(self, call: ast.Call) -> tuple[Condition, CheckKind]:
        """Return where a mark skips."""
        name = last_name(call.func)
        if name == "RunIf":
            asked = {word.arg: word.value for word in call.keywords}
            signs = {"min_torch": "<", "max_torch": ">=", "min_python": "<"}
            parts = tuple(
                of_version("Python" if "python" in key else "PyTorch", sign, value.value)
                for key, sign in signs.items()
                if isinstance(value := asked.get(key), ast.Constant)
                and isinstance(value.value, str)
            )
            return joined("or", *parts), "skip"
        if name == "withPackage":
            each = (ast.Call(call.func, [one], []) for one in call.args)
            return ~joined("and", *(condition_of(one, self._names) for one in each)), "skip"
        given = _condition_in(call)
        if given is None:
            return Always(), "xfail" if name == "xfail" else "skip"
        condition = _read_condition(given, self._names)
        if name == "skipUnless":
            return ~condition, "skip"
        return condition, "xfail" if name == "xfail" else "skip"

    def _add(
        self,
        node: ast.expr | ast.stmt,
        kind: CheckKind,
        excludes: Condition,
        reason: str,
        edits: tuple[Edit, ...],
        *,
        about: bool,
    ) -> None:
        check = FoundCheck(
            path=self._source.name,
            line=node.lineno,
            kind=kind,
            name=".".join(one.name for one in self._inside) or "(module)",
            excludes=joined("and", *self._given, excludes),
            reason=reason,
            source=self._lines[node.lineno - 1].strip()[:120],
            edits=edits if self._source.editable else (),
        )
        (self.checks if about else self.others).append(check)

    def _around(self) -> str:
        """Return the source of the function or class that is visited, or else of the file."""
        return self._segment(self._inside[-1]) if self._inside else self._source.text

    def _segment(self, node: ast.expr | ast.stmt) -> str:
        """Return the source of a node; ``ast.get_source_segment`` splits the file each time."""
        last = node.end_lineno or node.lineno
        lines = [line.encode() for line in self._lines[node.lineno - 1 : last]]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return b"\n".join(lines).decode()


def _item(table: ast.expr, name: str) -> ast.expr | None:
    """Return the value of a name in ``{"disable": ...}`` or ``dict(disable=...)``."""
    if isinstance(table, ast.Dict):
        pairs = zip(table.keys, table.values, strict=True)
        return next((v for k, v in pairs if isinstance(k, ast.Constant) and k.value == name), None)
    if isinstance(table, ast.Call) and last_name(table.func) == "dict":
        return next((word.value for word in table.keywords if word.arg == name), None)
    return None


def _sets_disable(node: ast.Assign) -> bool:
    """Return whether code sets ``options["disable"]``, which a later call unpacks."""
    return any(
        isinstance(one, ast.Subscript)
        and isinstance(one.slice, ast.Constant)
        and one.slice.value == "disable"
        for one in node.targets
    )


def _stance_in(node: ast.expr) -> ast.expr | None:
    """Return what a call of ``torch.compiler.set_stance`` sets; ``None`` if it is none."""
    if not isinstance(node, ast.Call) or last_name(node.func) != "set_stance":
        return None
    named = (word.value for word in node.keywords if word.arg == "stance")
    return node.args[0] if node.args else next(named, None)


def _is_eager(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == "force_eager"


def _is_empty(node: ast.expr) -> bool:
    return isinstance(node, ast.List | ast.Tuple) and not node.elts


def _is(left: ast.expr, right: ast.expr) -> ast.expr:
    """Return the condition that a key is this one of a table."""
    if isinstance(right, ast.Constant) and isinstance(right.value, bool):
        return left if right.value else ast.UnaryOp(ast.Not(), left)
    return ast.copy_location(ast.Compare(left, [ast.Eq()], [right]), left)


def _condition_in(call: ast.Call) -> ast.expr | None:
    """Return the condition of a mark; ``None`` if it has none."""
    if last_name(call.func) == "skip":
        return None
    named = (word.value for word in call.keywords if word.arg == "condition")
    return call.args[0] if call.args else next(named, None)


def _side(side: Sequence[ast.AST], seen: set[int]) -> Literal["compiles", "off", "neither"]:
    """Return what one side of a condition does with compiling; note what it turns off as seen."""
    off = [one for node in side for one in turned_off(node)]
    if any(map(compiles, side)):
        return "compiles"
    seen.update(map(id, off))
    return "off" if off else "neither"


def _read_condition(given: ast.expr, names: Names) -> Condition:
    """Return the condition of a mark, which pytest also takes as a text."""
    if not isinstance(given, ast.Constant) or not isinstance(given.value, str):
        return condition_of(given, names)
    try:
        return condition_of(ast.parse(given.value, mode="eval").body, names)
    except (SyntaxError, ValueError):
        return Unknown(given.value)


def _edit(node: ast.expr, text: str) -> Edit:
    end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
    return Edit(node.lineno, node.col_offset, end_line, end_column, text)


def _switched(test: ast.expr, names: Names, *, to: bool) -> tuple[Edit, ...]:
    """Return what makes a condition have a value, as far as versions decide it.

    What else it asks, such as whether there is a GPU, stays.
    """
    if isinstance(test, ast.BoolOp):
        return tuple(e for value in test.values for e in _switched(value, names, to=to))
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _switched(test.operand, names, to=not to)
    if speaks_of_versions(condition_of(test, names)):
        return (_edit(test, f"_ if {to}" if isinstance(test, CaseTest) else str(to)),)
    return ()


def _leaves(node: ast.AST) -> bool:
    """Return whether what comes after a statement is not run."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return last_name(node.value.func) in ("skip", "skipTest", "exit")
    return isinstance(node, ast.Raise | ast.Return | ast.Continue)


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
    texts = (
        _text(one)
        for node in body
        if not isinstance(node, ast.stmt) or isinstance(node, ast.Raise | ast.Expr)
        for one in ast.walk(node)
    )
    return " ".join(next(filter(None, texts), "").split())[:200]


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


def _text_of(call: ast.Call) -> str:
    """Return the reason that a mark gives."""
    others = call.args[last_name(call.func) != "skip" :]
    given = [*(word.value for word in call.keywords if word.arg == "reason"), *others]
    return " ".join(next(filter(None, map(_text, given)), "").split())[:200]


def switched_off(text: str, edits: Iterable[Edit]) -> str:
    """Return the text of a file with its check switched off."""
    lines = text.encode("utf-8").splitlines(keepends=True)
    for edit in sorted(edits, reverse=True):
        first, last = lines[edit.line - 1], lines[edit.end_line - 1]
        joined = first[: edit.column] + edit.text.encode() + last[edit.end_column :]
        lines[edit.line - 1 : edit.end_line] = [joined]
    return b"".join(lines).decode("utf-8")


def at(checks: Iterable[FoundCheck], place: str) -> tuple[FoundCheck, ...]:
    """Return the checks at a place, ``FILE:LINE``."""
    name, _, line = place.rpartition(":")
    return tuple(g for g in checks if line == str(g.line) and Path(g.path).match(name or g.path))
