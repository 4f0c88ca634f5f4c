"""Version checks around compiled code, and ``disable``, in the source of others.

A check outlives its reason: somebody skips a test on Python 3.12 because PyTorch refused it, and two
releases later nobody looks. Found by the syntax tree, without running or importing anything.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from ivhl.syntax import UNPARSED, SourceFile, SourceText, parsed, read_texts, why_unparsed
from ivhl.tracker.store.index import collector_paused
from ivhl.version_checks.checks import edit_of
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
from ivhl.version_checks.names import bindings, last_name, shared, whole_names
from ivhl.version_checks.scope import Scope, leaves
from ivhl.version_checks.skips import IDENTITY, NO_EFFECT, Skips, first_text
from ivhl.version_checks.values import CaseTest
from ivhl.version_checks.version_conditions import (
    Always,
    Condition,
    joined,
    speaks_of_versions,
)
from ivhl.version_checks.walks import FIELDS, statements_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    from ivhl.syntax import Trees
    from ivhl.version_checks.checks import FoundCheck
    from ivhl.version_checks.scope import Definition
    from ivhl.version_checks.version_conditions import Condition

# Most nodes of a tree.
_HOLD_NOTHING: Final = frozenset({ast.Name, ast.Constant})


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
    return _found_in(texts, problems)


def checks_in(code: Trees) -> Found:
    """Return the checks in files that were read."""
    texts = [SourceText(file.name, file.text, file.editable) for file in code.files]
    return _found_in(texts, list(code.problems))


@collector_paused()  # trees have no cycles, and to look through them takes long
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
        scope = Scope(source, own, known)
        try:
            _Finder(scope, classes, _disables_in(source, disables)).visit(source.tree)
        except RecursionError:
            problems.append(f"{one.name}: is nested too deeply to be read whole")
        checks += scope.checks
        others += scope.others
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


class _Finder(ast.NodeVisitor):
    """Visits a file, and adds its checks to the scope.

    Args:
        scope: Of the file, at its beginning.
        classes: Those of all files.
        disables: Names in this file that mean ``torch.compiler.disable``.
    """

    def __init__(self, scope: Scope, classes: Classes, disables: Collection[str]) -> None:
        self._scope, self._classes, self._disables = scope, classes, disables
        self._skips = Skips(scope)
        self._seen: set[int] = set()  # nodes of checks that were added, or that never run

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
        given = self._scope.given
        before = len(given)
        given += filter(speaks_of_versions, conditions)
        for statement in statements:
            self.visit(statement)
            left = self._scope.left_by(statement)
            if left is not None and speaks_of_versions(left):
                given.append(~left)
        del given[before:]

    def _definition(self, node: Definition) -> None:
        scope = self._scope
        with scope.inside(node):
            for decorator in node.decorator_list:
                if _stance_in(decorator) is not None:
                    continue  # a call as others
                self._seen.add(id(decorator))
                if self._is_disable(decorator):
                    scope.add(decorator, "disable", Always(), edit_of(decorator, IDENTITY))
                else:
                    self._skips.mark(decorator, scope.segment(node), IDENTITY)
            names = (
                self._classes.attributes(node, scope.names_in)
                if isinstance(node, ast.ClassDef)
                else scope.defaults_of(node) | scope.names_in(node)
            )
            with scope.naming(names):
                self.generic_visit(node)

    visit_FunctionDef = _definition  # noqa: N815  (ast's name)
    visit_AsyncFunctionDef = _definition  # noqa: N815
    visit_ClassDef = _definition  # noqa: N815

    def _is_disable(self, node: ast.expr) -> bool:
        """Return whether a decorator is ``torch.compiler.disable``, also by a name for it."""
        name = last_name(getattr(node, "func", node))
        if is_disable(node) or (name in self._disables and isinstance(node, ast.Name)):
            return True
        named = self._scope.names.find(name)
        if isinstance(named, ast.Lambda):  # a function of the project that hands it on
            named = named.body
        return named is not None and is_disable(named)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Look at ``pytestmark = pytest.mark.skipif(...)``, which checks the whole file."""
        if any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in node.targets):
            self._skips.all_of(node.value, self._scope.source.text)
        elif (value := off_switch(node)) is not None and id(node) not in self._seen:
            off = "False" if value.value is True else '"0"'
            self._scope.add(node, "disable", Always(), edit_of(value, off))
        elif (given := off_value(node)) is not None and not isinstance(given, ast.Constant):
            self._disabled(given)
        elif _sets_disable(node) and compiles(self._scope.definition or self._scope.source.tree):
            self._disabled(node.value)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Look at ``torch.compiler.disable(f)`` that is no decorator, and at marks of parameters."""
        name = last_name(node.func)
        if is_disable(node) and id(node) not in self._seen:
            given = self._scope.segment(node.args[0]) if node.args else ""
            text = f"({given})" if given else IDENTITY
            self._scope.add(node, "disable", Always(), edit_of(node, text))
        elif name == "param":
            for word in node.keywords:
                if word.arg == "marks":
                    self._skips.all_of(word.value, self._scope.text_around())
        elif name in ("applymarker", "add_marker") and node.args:
            self._skips.mark(node.args[0], self._scope.text_around(), NO_EFFECT)
        elif name == "importorskip":
            self._skips.importorskip(node)
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
                value = _item(self._scope.meant(word.value), "disable")
            if value is not None:
                self._disabled(value)

    def _stance(self, node: ast.Call) -> None:
        """Look at ``torch.compiler.set_stance("force_eager")``, also where a condition chooses."""
        stance = _stance_in(node)
        if stance is None or id(node) in self._seen:
            return
        if _is_eager(stance):
            self._scope.add(node, "disable", Always(), edit_of(stance, '"default"'))
        elif isinstance(stance, ast.IfExp) and _is_eager(stance.body) != _is_eager(stance.orelse):
            condition, off = self._scope.condition(stance.test), _is_eager(stance.body)
            if speaks_of_versions(condition):
                edits = self._scope.switched(stance.test, to=not off)
                excluded = condition if off else ~condition
                self._scope.add(node, "branch", excluded, *edits)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """Look at ``{(3, 12): torch.compile, (3, 13): eager}[sys.version_info[:2]]``."""
        self._chosen(node, node.value, node.slice)
        self.generic_visit(node)

    def _chosen(
        self, node: ast.expr, table: ast.expr, key: ast.expr, default: ast.expr | None = None
    ) -> None:
        """Look at a table of functions, of which a version chooses one that compiles or another."""
        table = self._scope.meant(table)
        if not isinstance(table, ast.Dict) or None in table.keys:
            return
        compiling = [compiles(value) for value in table.values]
        otherwise = default is not None and compiles(default)
        if not any(compiling) and not otherwise:
            return
        rows = [self._scope.condition(_is(key, one)) for one in table.keys if one is not None]
        where = joined(
            "or", *(row for row, on in zip(rows, compiling, strict=True) if on),
            *((~joined("or", *rows),) if otherwise else ()),
        )  # fmt: skip
        if speaks_of_versions(where):
            values = [*table.values, *([default] if default is not None else [])]
            chosen = values[[*compiling, otherwise].index(True)]
            edit = edit_of(node, f"({ast.unparse(chosen)})")
            self._scope.add(node, "branch", ~where, edit)

    def _disabled(self, value: ast.expr) -> None:
        """Look at ``torch.compile(f, disable=...)``, or what ``config.disable`` is set to."""
        condition = self._scope.condition(value)
        if isinstance(value, ast.Constant) and value.value is True:
            self._scope.add(value, "disable", Always(), edit_of(value, "False"))
        elif speaks_of_versions(condition):
            edits = self._scope.switched(value, to=False)
            self._scope.add(value, "branch", condition, *edits)

    def visit_If(self, node: ast.If) -> None:
        """Look at a condition of which one side compiles, or which leaves a function that does."""
        condition = self._scope.condition(node.test)
        body: Sequence[ast.stmt] = node.body
        other: Sequence[ast.stmt] = node.orelse
        if speaks_of_versions(condition):
            # What comes after runs on the side that does not leave.
            leaves = _ends(body) or _leaves_where_it_compiles(body)
            if not leaves and (_ends(other) or _leaves_where_it_compiles(other)):
                body = [*body, *self._scope.after(node)]
            elif leaves and not _ends(other):
                other = [*other, *self._scope.after(node)]
        self._branch(node, body, other)
        self.visit(node.test)
        self._block(node.body, condition)
        self._block(node.orelse, ~condition)

    def visit_While(self, node: ast.While) -> None:
        """Look at ``while torch.__version__ >= "2.6":``, whose body compiles."""
        condition = self._scope.condition(node.test)
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
        condition = self._scope.condition(test)
        if speaks_of_versions(condition) and any(map(compiles, body)):
            edits = self._scope.switched(test, to=runs)
            self._scope.add(node, "branch", ~condition if runs else condition, *edits)

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
                condition = joined("and", *(self._scope.condition(one) for one in before))
                if speaks_of_versions(condition):
                    edits = tuple(e for b in before for e in self._scope.switched(b, to=True))
                    self._scope.add(node, "branch", ~condition, *edits)
                break
        self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        """Look at ``assert torch.__version__ >= "2.6"`` before what compiles."""
        condition = self._scope.condition(node.test)
        if speaks_of_versions(condition):
            reason = _message([node.msg] if node.msg else [])
            after = self._scope.after(node)
            about = any(map(compiles, after)) or speaks_of_compiling(reason)
            edits = self._scope.switched(node.test, to=True)
            self._scope.add(node, "branch", ~condition, *edits, reason=reason, about=about)
        self.generic_visit(node)

    def _branch(
        self,
        node: ast.If | ast.IfExp | ast.While,
        body: Sequence[ast.AST],
        orelse: Sequence[ast.AST],
    ) -> None:
        condition = self._scope.condition(node.test)
        if isinstance(condition, Always):  # what is never run turns nothing off
            _side(orelse if condition.value else body, self._seen)
        if not speaks_of_versions(condition):
            return
        yes, no = (_side(side, self._seen) for side in (body, orelse))
        if yes == no and isinstance(body[-1], ast.Raise | ast.Expr) and leaves(body[-1]):
            around = self._scope.definition
            told = any(speaks_of_compiling(ast.unparse(one)) for one in body)
            yes = "off" if told or (around is not None and compiles(around)) else yes
        if yes == no:
            about = asks_whether_compiling(node.test)
            self._scope.add(node, "branch", condition, about=about)
        elif yes == "off" or no == "compiles":
            edits = self._scope.switched(node.test, to=False)
            reason = _message(body) if isinstance(node, ast.If) else ""
            self._scope.add(node, "branch", condition, *edits, reason=reason)
        else:
            edits = self._scope.switched(node.test, to=True)
            self._scope.add(node, "branch", ~condition, *edits)


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


def _side(side: Sequence[ast.AST], seen: set[int]) -> Literal["compiles", "off", "neither"]:
    """Return what one side of a condition does with compiling; note what it turns off as seen."""
    off = [one for node in side for one in turned_off(node)]
    if any(map(compiles, side)):
        return "compiles"
    seen.update(map(id, off))
    return "off" if off else "neither"


def _ends(block: Sequence[ast.stmt]) -> bool:
    """Return whether nothing runs after a block, whatever its conditions are."""
    while block and isinstance(last := block[-1], ast.If) and _ends(last.body):
        block = last.orelse
    return bool(block) and leaves(block[-1])


def _leaves_where_it_compiles(body: Sequence[ast.stmt]) -> bool:
    """Return whether statements compile, and none of them goes on after that."""
    compiling = [
        one
        for node in body
        for one in ast.walk(node)
        if isinstance(one, ast.stmt) and not hasattr(one, "body") and compiles(one)
    ]
    return bool(compiling) and all(map(leaves, compiling))


def _message(body: Sequence[ast.AST]) -> str:
    """Return the first text that code raises with, skips with or prints."""
    return first_text(
        child
        for node in body
        if not isinstance(node, ast.stmt) or isinstance(node, ast.Raise | ast.Expr)
        for child in ast.walk(node)
    )
