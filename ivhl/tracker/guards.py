"""Guards in the source of others that keep code from being compiled, and what records say of them.

A guard outlives its reason: somebody skips a test on Python 3.12 because PyTorch refused it, and two
releases later nobody looks. Found by the syntax tree, without running or importing anything.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from ivhl.tracker.compat import python_key, release_key
from ivhl.tracker.spans import spans, spans_sentence
from ivhl.tracker.trees import read_trees
from ivhl.tracker.version_tests import (
    Always,
    Condition,
    Joined,
    Names,
    Unknown,
    VersionTest,
    condition_of,
    last_name,
    speaks_of_versions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ivhl.tracker.compat import Row
    from ivhl.tracker.trees import Trees

GuardKind = Literal["skip", "xfail", "branch", "disable"]
CellState = Literal["works", "refused", "unavailable"]
GuardStanding = Literal["contradicted", "agrees", "excludes nothing", "always", "cannot tell"]

_COMPILING: Final = re.compile(
    r"(?<!re\.)\b(?:torch\.compile|torch\.compiler|_dynamo|dynamo|_inductor|inductor|aot_\w+|aoti\w*"
    r"|torch\.export|torch\._export|fullgraph|compile|compiled|compiler|compiling)\b",
    re.IGNORECASE,
)
_DISABLE: Final = re.compile(r"(?:torch\.)?(?:compiler|_dynamo|dynamo)\.disable")
_SKIPS: Final = frozenset({"skipif", "skipIf", "skipUnless", "xfail", "RunIf", "withPackage"})
# What code that compiles says, not what asks whether something is compiled.
_CODE: Final = re.compile(
    r"torch\.compile\b|torch\._dynamo|torch\._inductor|torch\.export\b|torch\._export"
    r"|torch\.compiler\.|^dynamo\.|\._dynamo\b"
)
_CALLED: Final = re.compile(r"compile|\w+_compiled?|compiled?_\w+")
_ABOUT: Final = frozenset({"OptimizedModule"})
_IDENTITY: Final = "(lambda function: function)"


class Edit(NamedTuple):
    """A piece of a file to replace: from line and column to line and column, in UTF-8 bytes."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """A place that keeps code from being compiled, or a test of it from being run.

    Attributes:
        path: The file, from the folder that was searched.
        name: Function, class or module that it guards, dotted.
        excludes: Where it does so.
        reason: What it says itself.
        source: Its first line.
        edits: What switches it off; empty if that cannot be done by replacing its condition.
    """

    path: str
    line: int
    kind: GuardKind
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
        guards: Those around compiled code.
        others: Further conditions on versions, which have nothing to do with it.
        problems: A line for each file that cannot be read or does not parse.
        files: How many files were read.
    """

    guards: tuple[Guard, ...]
    others: tuple[Guard, ...]
    problems: tuple[str, ...]
    files: int


@dataclass(frozen=True, slots=True)
class GuardJudgement:
    """What the evidence says of a guard.

    Attributes:
        contradicted: Python to the releases that are excluded and work, and since which all do.
        text: A sentence for each thing to say.
    """

    standing: GuardStanding
    contradicted: Mapping[str, tuple[tuple[str, ...], str | None]]
    text: tuple[str, ...]


class CellEvidence(NamedTuple):
    """What the records say of `torch.compile` in a cell.

    Attributes:
        passed: Compiled cases that have a right result, of ``tried``.
    """

    state: CellState
    passed: int
    tried: int


def find_guards(folder: Path) -> Found:
    """Return the guards in the Python files of a folder, or in one file."""
    return guards_in(read_trees(folder))


def guards_in(code: Trees) -> Found:
    """Return the guards in files that were read."""
    bound = {file.name: dict(_bindings(file.tree)) for file in code.files}
    shared = _shared(bound.values())
    guards: list[Guard] = []
    others: list[Guard] = []
    for file in code.files:
        finder = _Finder(file.name, file.text, Names(bound[file.name], shared))
        finder.visit(file.tree)
        guards += finder.guards
        others += finder.others
    return Found(tuple(guards), tuple(others), code.problems, len(code.files))


def _bindings(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield names that a module binds, also those in its ``if`` and ``try``, with what they mean."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            if isinstance(node.targets[0], ast.Name):
                yield node.targets[0].id, node.value
        elif isinstance(node, ast.AnnAssign) and node.value and isinstance(node.target, ast.Name):
            yield node.target.id, node.value
        elif isinstance(node, ast.FunctionDef):
            # A decorator of the project: one that returns what skips.
            returned = [n.value for n in ast.walk(node) if isinstance(n, ast.Return)]
            if len(returned) == 1 and (call := _skip_in(returned[0])) is not None:
                yield node.name, call


def _skip_in(node: ast.expr | None) -> ast.Call | None:
    while isinstance(node, ast.Call):
        if last_name(node.func) in _SKIPS:
            return node
        node = node.func  # of `unittest.skipIf(...)(test)`
    return None


def _shared(bound: Iterable[Mapping[str, ast.expr]]) -> dict[str, ast.expr]:
    """Return names that mean the same wherever they are bound: others are ambiguous."""
    meanings: dict[str, dict[str, ast.expr]] = defaultdict(dict)
    for names in bound:
        for name, value in names.items():
            meanings[name][ast.dump(value)] = value
    return {n: next(iter(found.values())) for n, found in meanings.items() if len(found) == 1}


class _Finder(ast.NodeVisitor):
    """Collects the guards of a file."""

    def __init__(self, path: str, text: str, names: Names) -> None:
        self.guards: list[Guard] = []
        self.others: list[Guard] = []
        self._path = path
        self._text = text
        self._lines = text.splitlines()
        self._names = names
        self._inside: list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef] = []
        self._seen: set[int] = set()

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self._inside.append(node)
        for decorator in node.decorator_list:
            self._seen.add(id(decorator))
            if _DISABLE.fullmatch(ast.unparse(getattr(decorator, "func", decorator))):
                edit = _edit(decorator, _IDENTITY)
                self._add(decorator, "disable", Always(), "", (edit,), about=True)
                continue
            self._skip(decorator, self._segment(node))
        self.generic_visit(node)
        self._inside.pop()

    visit_FunctionDef = _definition  # noqa: N815  (ast's name)
    visit_AsyncFunctionDef = _definition  # noqa: N815
    visit_ClassDef = _definition  # noqa: N815

    def visit_Assign(self, node: ast.Assign) -> None:
        """Look at ``pytestmark = pytest.mark.skipif(...)``, which guards the whole file."""
        if any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in node.targets):
            marks = node.value.elts if isinstance(node.value, ast.List) else [node.value]
            for mark in marks:
                self._skip(mark, self._text)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Look at ``torch.compiler.disable(f)`` that is no decorator."""
        if _DISABLE.fullmatch(ast.unparse(node.func)) and id(node) not in self._seen:
            given = self._segment(node.args[0]) if node.args else ""
            text = f"({given})" if given else _IDENTITY
            self._add(node, "disable", Always(), "", (_edit(node, text),), about=True)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        """Look at a condition of which one side compiles, or which leaves a function that does."""
        self._branch(node, node.body, node.orelse)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """Look at ``torch.compile(f) if ... else f``."""
        self._branch(node, [node.body], [node.orelse])
        self.generic_visit(node)

    def _branch(
        self, node: ast.If | ast.IfExp, body: Sequence[ast.AST], orelse: Sequence[ast.AST]
    ) -> None:
        condition = condition_of(node.test, self._names)
        if not speaks_of_versions(condition):
            return
        compiles, other = (any(map(_compiles, side)) for side in (body, orelse))
        leaves = bool(body) and _leaves(body[-1])
        around = self._inside[-1] if self._inside else None
        # What returns says nothing by its words; what raises or skips does.
        told = not isinstance(body[-1], ast.Return) and any(
            _COMPILING.search(ast.unparse(one)) for one in body
        )
        if compiles and not leaves and not other:
            self._add(node, "branch", ~condition, "", _switched(node.test, self._names, to=True),
                      about=True)  # fmt: skip
        elif (other and not compiles) or (
            leaves and (told or (around is not None and _compiles(around)))
        ):
            reason = _message(body)
            edits = _switched(node.test, self._names, to=False)
            self._add(node, "branch", condition, reason, edits, about=True)
        else:
            self._add(node, "branch", condition, "", (), about=False)

    def _skip(self, mark: ast.expr, guarded: str) -> None:
        call, shared = (mark, False) if isinstance(mark, ast.Call) else (None, True)
        if call is None or last_name(call.func) not in _SKIPS:
            found = self._names.find(last_name(getattr(mark, "func", mark)))
            call, shared = _skip_in(found), True
        if call is None:
            return
        excluded, kind = self._excluded(call)
        if not speaks_of_versions(excluded):
            return
        reason = _text_of(call)
        edits: tuple[Edit, ...] = ()
        if shared:  # the mark itself goes, other uses of it stay
            edits = (_edit(mark, _IDENTITY),) if self._inside else ()
        elif call.args and last_name(call.func) in ("skipif", "skipIf", "skipUnless"):
            stays = last_name(call.func) == "skipUnless"
            if not isinstance(call.args[0], ast.Constant):
                edits = _switched(call.args[0], self._names, to=stays)
            else:
                edits = (_edit(call.args[0], str(stays)),)
        elif self._inside:
            edits = (_edit(mark, _IDENTITY),)
        about = _COMPILING.search(f"{guarded} {reason}") is not None
        self._add(mark, kind, excluded, reason, edits, about=about)

    def _excluded(self, call: ast.Call) -> tuple[Condition, GuardKind]:
        """Return where a mark skips."""
        name = last_name(call.func)
        asked = {word.arg: word.value for word in call.keywords}
        if name == "RunIf":
            signs = {"min_torch": "<", "max_torch": ">=", "min_python": "<"}
            parts = tuple(
                VersionTest("python" if "python" in key else "torch", sign, value.value)
                for key, sign in signs.items()
                if isinstance(value := asked.get(key), ast.Constant)
                and isinstance(value.value, str)
            )
            return (Joined("or", parts) if parts else Always(value=False)), "skip"
        if name == "withPackage":
            each = (ast.Call(call.func, [one], []) for one in call.args)
            return ~Joined("and", tuple(condition_of(one, self._names) for one in each)), "skip"
        given = call.args[0] if call.args else asked.get("condition")
        if given is None:
            return Always(), "xfail" if name == "xfail" else "skip"
        condition = _read_condition(given, self._names)
        if name == "skipUnless":
            return ~condition, "skip"
        return condition, "xfail" if name == "xfail" else "skip"

    def _add(
        self,
        node: ast.expr | ast.stmt,
        kind: GuardKind,
        excludes: Condition,
        reason: str,
        edits: tuple[Edit, ...],
        *,
        about: bool,
    ) -> None:
        guard = Guard(
            path=self._path,
            line=node.lineno,
            kind=kind,
            name=".".join(one.name for one in self._inside) or "(module)",
            excludes=excludes,
            reason=reason,
            source=self._lines[node.lineno - 1].strip()[:120],
            edits=edits,
        )
        (self.guards if about else self.others).append(guard)

    def _segment(self, node: ast.AST) -> str:
        return ast.get_source_segment(self._text, node) or ""


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
        return (_edit(test, str(to)),)
    return ()


def _compiles(node: ast.AST) -> bool:
    """Return whether code compiles, not whether its texts speak of it, or it asks about it."""
    asked: set[int] = set()
    for one in ast.walk(node):  # from the outside in
        text = ""
        if isinstance(one, ast.Attribute):
            if id(one) in asked or one.attr.startswith("is_") or one.attr in _ABOUT:
                asked.add(id(one.value))
                continue
            text = ast.unparse(one)
        elif isinstance(one, ast.Call):
            text = (
                ""
                if ast.unparse(one.func) in ("re.compile", "regex.compile")
                else last_name(one.func)
            )
            if any(word.arg == "fullgraph" for word in one.keywords):
                return True
            if text in ("hasattr", "isinstance") or text.startswith("is_"):
                asked.update(map(id, ast.walk(one)))
                continue
        elif isinstance(one, ast.Import | ast.ImportFrom):
            text = ast.unparse(one)
        if id(one) not in asked and (_CODE.search(text) or _CALLED.fullmatch(text)):
            return True
    return False


def _leaves(node: ast.AST) -> bool:
    """Return whether what comes after a statement is not run."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return last_name(node.value.func) in ("skip", "skipTest", "exit")
    return isinstance(node, ast.Raise | ast.Return | ast.Continue)


def _message(body: Sequence[ast.AST]) -> str:
    texts = (
        one.value
        for node in body
        for one in ast.walk(node)
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    )
    return " ".join(next(texts, "").split())[:200]


def _text_of(call: ast.Call) -> str:
    """Return the reason that a mark gives."""
    given = [*(word.value for word in call.keywords if word.arg == "reason"), *call.args[1:]]
    texts = (one.value for one in given if isinstance(one, ast.Constant))
    return " ".join(str(next(texts, "")).split())[:200]


def switched_off(text: str, edits: Iterable[Edit]) -> str:
    """Return the text of a file with its guard switched off."""
    lines = text.encode("utf-8").splitlines(keepends=True)
    for edit in sorted(edits, reverse=True):
        first, last = lines[edit.line - 1], lines[edit.end_line - 1]
        joined = first[: edit.column] + edit.text.encode() + last[edit.end_column :]
        lines[edit.line - 1 : edit.end_line] = [joined]
    return b"".join(lines).decode("utf-8")


def evidence_of(rows: Iterable[Row]) -> dict[tuple[str, str], CellEvidence]:
    """Return what the records say of `torch.compile` in each cell, over all machines."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        engine = row.record.engine if row.record is not None else ""
        if engine == "compile" or row.status == "unavailable":
            groups[row.python, row.torch].append(row)
    found: dict[tuple[str, str], CellEvidence] = {}
    for cell, group in groups.items():
        tried = [row for row in group if row.status != "unavailable"]
        passed = sum(row.failure_class is None for row in tried)
        if passed:
            found[cell] = CellEvidence("works", passed, len(tried))
        elif any(row.status == "unsupported" for row in tried):
            found[cell] = CellEvidence("refused", 0, len(tried))
        elif not tried:
            found[cell] = CellEvidence("unavailable", 0, 0)
    return found


def judge_guard(guard: Guard, evidence: Mapping[tuple[str, str], CellEvidence]) -> GuardJudgement:
    """Return what the evidence says of a guard."""
    if isinstance(guard.excludes, Always):
        text = "in every cell; whether it may go is not in the records: --run tells"
        return GuardJudgement("always", {}, (text,))
    where = {cell: guard.excludes.holds(*cell) for cell in evidence}
    excluded = [cell for cell, holds in where.items() if holds]
    unclear = [cell for cell, holds in where.items() if holds is None]
    if not excluded:
        if unclear:
            text = "what else it asks decides, which the syntax tree does not tell"
            return GuardJudgement("cannot tell", {}, (text,))
        text = "excludes no cell that was measured"
        return GuardJudgement("excludes nothing", {}, (text,))
    contradicted: dict[str, tuple[tuple[str, ...], str | None]] = {}
    texts: list[str] = []
    for python in sorted({python for python, _ in excluded}, key=python_key):
        releases = sorted((t for p, t in excluded if p == python), key=release_key)
        words = {torch: _word(evidence[python, torch]) for torch in releases}
        texts.append(f"excludes on Python {python}: {spans_sentence(spans(words))}")
        works = tuple(t for t in releases if evidence[python, t].state == "works")
        if works:
            contradicted[python] = (works, _since(python, releases, evidence))
    for python, (works, since) in contradicted.items():
        last = evidence[python, works[-1]]
        texts.append(
            f"contradicted: torch.compile works on Python {python} "
            + (f"since PyTorch {since}" if since else f"with PyTorch {', '.join(works)}")
            + f": {last.passed} of {last.tried} compiled cases pass with {works[-1]}"
        )
    return GuardJudgement("contradicted" if contradicted else "agrees", contradicted, tuple(texts))


def _word(found: CellEvidence) -> str:
    return {"works": "works", "refused": "unsupported", "unavailable": "unavailable"}[found.state]


def _since(
    python: str, releases: Sequence[str], evidence: Mapping[tuple[str, str], CellEvidence]
) -> str | None:
    """Return the oldest excluded release from which every one measured works."""
    since = None
    for torch in reversed(releases):
        if evidence[python, torch].state != "works":
            break
        since = torch
    return since


def at(guards: Iterable[Guard], place: str) -> tuple[Guard, ...]:
    """Return the guards at a place, ``FILE:LINE``."""
    name, _, line = place.rpartition(":")
    return tuple(g for g in guards if line == str(g.line) and Path(g.path).match(name or g.path))
