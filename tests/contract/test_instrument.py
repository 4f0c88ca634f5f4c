"""A change of the measuring code that may change numbers is always detected."""

from __future__ import annotations

import ast
import io
import json
import random
import tokenize
from functools import cache
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ivhl.instrument import HISTORY, INSTRUMENT
from ivhl.measure.syntax import defined_by, is_for_type_checkers, syntax_digest
from tests.contract import instrument
from tests.contract.instrument import LEFT_OUT, PACKAGE, changed, complaint, digests

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Before any test ran: once in three runs of all contracts in one process, Python 3.12.1 gave an
# unchanged file another digest, which it did not give again.
DIGESTS = digests()
COVERED = sorted(DIGESTS)
SEEDS = st.integers(0, 2**32)


def source_of(name: str) -> str:
    return (PACKAGE / name).read_text(encoding="utf-8")


def digest(source: str) -> str:
    return syntax_digest(source, annotations=False)


def test_a_change_of_measuring_code_needs_a_new_version_or_a_reason() -> None:
    stored = instrument.load()
    files = changed(stored["files"], DIGESTS)
    assert not files, complaint(files)
    assert stored["version"] == INSTRUMENT, "take the version down: nox -s instrument"


def test_every_reason_names_a_version_and_files() -> None:
    for reason in instrument.load()["unchanged"]:
        assert set(reason) == {"version", "files", "reason"}
        assert reason["version"] in HISTORY
        assert reason["files"]
        assert reason["reason"].strip()


def test_everything_left_out_exists() -> None:
    for entry, why in LEFT_OUT.items():
        file, _, inside = entry.partition(":")
        assert why
        assert (PACKAGE / file).is_file(), entry
        names = {name for s in ast.parse(source_of(file)).body for name in defined_by(s)}
        assert not inside or inside in names, entry


def test_timing_and_judging_code_is_not_left_out() -> None:
    parts = ("case", "timing", "accuracy", "intervals", "engine", "process", "nursery",
             "launcher", "lanes", "outcome", "runner", "imports", "data", "exact", "anchors",
             "judge", "eager", "compilation", "rounds", "fresh", "footprint",
             "first_compile")  # fmt: skip
    assert {f"measure/{part}.py" for part in parts} <= set(COVERED)
    code = (PACKAGE / "measure/launcher.py").read_text(encoding="utf-8")
    for old, new in (("33554432", "33554433"), ('"PYTHONHASHSEED": "0"', '"PYTHONHASHSEED": "1"')):
        assert code.count(old) == 1
        assert digest(code) != digest(code.replace(old, new))


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with copies of the files that the command writes."""
    for name in ("STORED", "VERSIONS"):
        real = getattr(instrument, name)
        (tmp_path / real.name).write_bytes(real.read_bytes())
        monkeypatch.setattr(instrument, name, tmp_path / real.name)
    now = instrument.load()["files"] | {"measure/timing.py": "0" * 16}
    monkeypatch.setattr(instrument, "digests", lambda: now)
    return tmp_path


def test_without_a_reason_the_command_fails(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (copied / "instrument.json").read_bytes()
    assert instrument.main([]) == 1
    told = capsys.readouterr().err
    assert "ivhl/measure/timing.py: this may change numbers: raise the version" in told
    assert '--unchanged "Why no number changes."' in told
    assert instrument.main(["--unchanged", ""]) == 1
    assert (copied / "instrument.json").read_bytes() == before


def test_a_reason_why_no_number_changes_is_kept(copied: Path) -> None:
    reasons = instrument.load()["unchanged"]
    assert instrument.main(["--unchanged", "Only a name."]) == 0
    stored = json.loads((copied / "instrument.json").read_text(encoding="utf-8"))
    new = {"version": INSTRUMENT, "files": ["measure/timing.py"], "reason": "Only a name."}
    assert stored["unchanged"] == [*reasons, new]
    assert stored["version"] == INSTRUMENT
    assert instrument.main([]) == 0


@pytest.mark.parametrize("line", ["Twice the rounds.", 'A "long" line. ' + "word " * 40 + "end."])
def test_raising_the_version_writes_its_line(copied: Path, line: str) -> None:
    assert instrument.main(["--raise", line]) == 0
    space: dict[str, object] = {}
    exec((copied / "instrument.py").read_text(encoding="utf-8"), space)  # noqa: S102  (ours)
    assert space["INSTRUMENT"] == INSTRUMENT + 1
    assert space["HISTORY"] == {**HISTORY, INSTRUMENT + 1: line}
    assert json.loads((copied / "instrument.json").read_text())["version"] == INSTRUMENT + 1


def test_a_version_raised_by_hand_is_stored(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instrument, "INSTRUMENT", INSTRUMENT + 1)
    assert instrument.main([]) == 0
    assert json.loads((copied / "instrument.json").read_text())["version"] == INSTRUMENT + 1


def running(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes that run: no annotations, docstrings or code for type checkers."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.stmt) and is_for_type_checkers(node):
            continue
        yield node
        for name, value in ast.iter_fields(node):
            if name in {"annotation", "returns"}:
                continue
            items = value if isinstance(value, list) else [value]
            # Constant parts of an f-string must stay strings.
            words = ast.Constant if isinstance(node, ast.JoinedStr) else ()
            waiting.extend(n for n in items if isinstance(n, ast.AST) and not isinstance(n, words))


def break_something(tree: ast.Module, random_: random.Random) -> str:
    """Change one constant, operator or call of the tree, and return what was done."""
    nodes = [
        node
        for node in running(tree)
        if isinstance(node, ast.Constant | ast.BinOp | ast.Compare | ast.BoolOp | ast.Call)
    ]
    node = random_.choice(nodes)
    before = ast.unparse(node)
    if isinstance(node, ast.Constant):
        number = isinstance(node.value, int | float) and not isinstance(node.value, bool)
        # Doubled first, since 1e75 + 1 is 1e75.
        node.value = 2 * node.value + 1 if number else (node.value, 1)  # type: ignore[assignment,operator]
    elif isinstance(node, ast.BinOp):
        node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
    elif isinstance(node, ast.Compare):
        node.ops[0] = ast.Lt() if isinstance(node.ops[0], ast.LtE) else ast.LtE()
    elif isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    else:
        node.keywords.append(ast.keyword("another", ast.Constant(1)))
    return f"{before}: {ast.unparse(node)}"


@settings(deadline=None)
@given(name=st.sampled_from(COVERED), seed=SEEDS)
def test_any_change_of_a_constant_operator_or_call_changes_the_digest(
    name: str, seed: int
) -> None:
    tree = ast.parse(source_of(name))
    if not any(isinstance(node, ast.Call) for node in running(tree)):
        return
    told = break_something(tree, random.Random(seed))  # noqa: S311
    assert _digest_of(tree) != _digest_of_file(name), told


def test_a_file_that_is_parsed_and_written_again_has_the_same_digest() -> None:
    for name in COVERED:
        assert _digest_of(ast.parse(source_of(name))) == _digest_of_file(name), name


@cache
def _digest_of_file(name: str) -> str:
    return digest(source_of(name))


def _digest_of(tree: ast.Module) -> str:
    return digest(ast.unparse(ast.fix_missing_locations(tree)))


def with_comments(source: str, random_: random.Random) -> str:
    """Return the source with comments behind some lines and empty lines between some."""
    ends = {
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.NEWLINE
    }
    lines = source.splitlines()
    for number in ends:
        if random_.random() < 0.3:
            lines[number - 1] += f"  # {random_.random()}"
        if random_.random() < 0.1:
            lines[number - 1] += "\n\n"
    return "\n".join(lines) + "\n"


def with_other_words(source: str, random_: random.Random) -> str:
    """Return the source with other docstrings and other annotations."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = f"Words {random_.random()}."
        elif isinstance(node, ast.FunctionDef):
            node.returns = random_.choice([None, ast.Name("Another"), ast.Constant("Text")])
            if random_.random() < 0.3:
                node.body.insert(0, ast.Expr(ast.Constant("A docstring.")))
            for argument in node.args.args:  # those of a lambda can have none
                argument.annotation = random_.choice([None, ast.Name("Another")])
        elif isinstance(node, ast.AnnAssign) and "ClassVar" not in ast.unparse(node.annotation):
            node.annotation = ast.Name(random_.choice(["Another", "Other"]))
        elif isinstance(node, ast.stmt) and is_for_type_checkers(node):
            node.body = [ast.Import([ast.alias(random_.choice(["json", "csv"]))])]  # type: ignore[attr-defined]
    return ast.unparse(ast.fix_missing_locations(tree))


@settings(deadline=None)
@given(name=st.sampled_from(COVERED), seed=SEEDS)
def test_comments_docstrings_and_annotations_do_not_change_the_digest(
    name: str, seed: int
) -> None:
    random_ = random.Random(seed)  # noqa: S311
    source = source_of(name)
    assert digest(with_comments(source, random_)) == _digest_of_file(name)
    assert digest(with_other_words(source, random_)) == _digest_of_file(name)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("x: int = 1", "x = 1", True),
        ("class A:\n  x: int = 1", "class A:\n  x: float = 1", True),
        # In a dataclass this removes a field.
        ("class A:\n  x: int = 1", "class A:\n  x = 1", False),
        ("class A:\n  x: int", "class A:\n  pass", False),
        ("class A:\n  x: ClassVar[int] = 1", "class A:\n  x = 1", True),
        ("def f():\n  'a'\n  return 1", "def f(): return (1)", True),
        ("def f(a=1): pass", "def f(a=2): pass", False),
        ("def f(a: int = 1) -> int: pass", "def f(a=1): ...", True),
        ("x = 'a' 'b'", 'x = "ab"', True),
        ("x = f'a{y}b' 'c'", "x = f'a{y}' f'bc'", True),
        ("x = f'{y}'", "x = f'{y!r}'", False),
        ("x = 1", "x = True", False),
        ("x = 1", "x = 1.0", False),
        ("x = None", "x = 0", False),
        ("x = b'a'", "x = 'a'", False),
        ("if TYPE_CHECKING:\n  import a\nelse:\n  b()", "b()", True),
        ("if typing.TYPE_CHECKING:\n  import a", "", True),
        ("import a", "import b", False),
        ("f(a, b)", "f(b, a)", False),
        ("a < b", "b > a", False),
        ("return_ = lambda: 1", "return_ = lambda: 2", False),
        ("x = [\n1,\n]", "x = [1]", True),
    ],
)
def test_the_digest_changes_only_with_the_meaning(one: str, other: str, same: bool) -> None:  # noqa: FBT001
    assert (digest(one) == digest(other)) == same


def test_imports_of_python_3_15_have_the_digest_of_older_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = {digest("import a")}
    monkeypatch.setattr(ast.Import, "_fields", ("names", "is_lazy"))
    for lazy in (0, 1):
        monkeypatch.setattr(ast.Import, "is_lazy", lazy, raising=False)
        found.add(digest("import a"))
        assert len(found) == 1 + lazy


def test_names_can_be_left_out() -> None:
    source = "A = 1\nB: int = 2\ndef f(): return A\nclass C:\n  f = 1\n"
    full = {syntax_digest(source, annotations=True, without=names) for names in ((), ("zzz",))}
    assert len(full) == 1
    less = {syntax_digest(source, annotations=True, without=[name]) for name in "ABfC"}
    assert len(less | full) == 5
