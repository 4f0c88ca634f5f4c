"""Guards around compiled code are found by the syntax tree, and judged by the records."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ivhl.cli import app
from ivhl.errors import SpecError, UnknownNameError
from ivhl.tracker.compat import compat_rows
from ivhl.tracker.guards import (
    CellEvidence,
    Found,
    evidence_of,
    find_guards,
    judge_guard,
    switched_off,
)
from ivhl.tracker.version_tests import Names, condition_of
from tests.builders.records import make_failure, make_record

ROOT = Path(__file__).parents[2]
CELLS = [
    ("3.12", "2.2.2"), ("3.12", "2.5.1"), ("3.12", "2.6.0"), ("3.12", "2.15.0"),
    ("3.13", "2.5.1"), ("3.13", "2.6.0"), ("3.14t", "2.15.0"),
]  # fmt: skip
IMPORTS = "import sys, pytest, torch, unittest\nfrom packaging.version import Version, parse\n"


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("sys.version_info >= (3, 13)", "0000111"),
        ("(3, 13) <= sys.version_info", "0000111"),
        ("(3, 8) <= sys.version_info < (3, 13)", "1111000"),
        ("sys.version_info[:2] == (3, 13)", "0000110"),
        ("sys.version_info > (3, 12)", "1111111"),
        ("sys.version_info == (3, 13)", "0000000"),
        ("sys.version_info.minor >= 13", "0000111"),
        ("sys.version_info[1] < 13", "1111000"),
        ("torch.__version__ < '2.6'", "1100100"),
        ("torch.__version__ >= (2, 6)", "0011011"),
        ("Version(torch.__version__) >= Version('2.6.0')", "0011011"),
        ("parse(torch.__version__).release < (2, 6)", "1100100"),
        ("parse(torch.__version__.split('+')[0]) > parse('2.10')", "0001001"),
        ("parse(torch.version.__version__).base_version >= '2.10'", "0001001"),
        ("tuple(map(int, torch.__version__.split('.')[:2])) >= (2, 6)", "0011011"),
        ("tuple(int(x) for x in torch.__version__.split('.')[:2]) < (2, 6)", "1100100"),
        ("int(torch.__version__.split('.')[1]) >= 6", "0011011"),
        ("torch.torch_version.__version__ >= '2.6'", "0011011"),
        ("TorchVersion(torch.__version__) >= '2.6'", "0011011"),
        ("metadata.version('torch') >= '2.6'", "0011011"),
        ("not sys.version_info >= (3, 13)", "1111000"),
        ("sys.version_info >= (3, 13) and torch.__version__ < '2.6'", "0000100"),
        ("sys.version_info >= (3, 13) or torch.__version__ < '2.6'", "1100111"),
        ("sys.version_info >= (3, 13) and cuda()", "0000???"),
        ("sys.version_info >= (3, 13) or cuda()", "????111"),
        ("hasattr(torch, 'compile')", "1111111"),
        ("hasattr(torch, 'something')", "???????"),
        ("is_torch_version('>=', '2.6')", "0011011"),
        ("is_torch_greater_or_equal('2.6')", "0011011"),
        ("is_torch_greater_or_equal_than_2_6", "0011011"),
        ("torch_version_lt(2, 6, 0)", "1100100"),
        ("compare_version('torch', operator.ge, '2.6.0')", "0011011"),
        ("RequirementCache('torch>=2.6,<2.10')", "0010010"),
        ("OURS", "0011011"),
        ("numpy.__version__ >= '2'", "???????"),
        ("torch.__version__ >= UNKNOWN", "???????"),
        ("torch.__version__[:3] >= '2.6'", "???????"),
    ],
)
def test_a_condition_holds_where_python_says_so(text: str, holds: str) -> None:
    ours = ast.parse("Version(torch.__version__) >= Version('2.6')", mode="eval").body
    condition = condition_of(ast.parse(text, mode="eval").body, Names({"OURS": ours}))
    marks = {True: "1", False: "0", None: "?"}
    found = "".join(marks[condition.holds(*cell)] for cell in CELLS)
    assert found == holds
    opposite = "".join(marks[(~condition).holds(*cell)] for cell in CELLS)
    assert opposite == holds.translate(str.maketrans("01", "10"))


def search(folder: Path, text: str, name: str = "test_a.py") -> Found:
    (folder / name).write_text(IMPORTS + text)
    return find_guards(folder)


@pytest.mark.parametrize(
    ("text", "kind", "name", "excludes"),
    [
        (
            ("@pytest.mark.skipif(sys.version_info >= (3, 12), reason='no Dynamo')\n"
            "def test_it():\n    torch.compile(f)(1)\n"),
            "skip", "test_it", "Python >=3.12",
        ),
        (
            ("@unittest.skipUnless(Version(torch.__version__) >= Version('2.6'), 'dynamo')\n"
            "class T:\n    pass\n"),
            "skip", "T", "PyTorch <2.6",
        ),
        (
            ("@pytest.mark.skipif('sys.version_info >= (3, 12)', reason='torch.compile')\n"
            "def test_it(): ...\n"),
            "skip", "test_it", "Python >=3.12",
        ),
        (
            ("needs = pytest.mark.skipif(torch.__version__ < '2.6', reason='compile')\n"
            "@needs\ndef test_it(): ...\n"),
            "skip", "test_it", "PyTorch <2.6",
        ),
        (
            ("def needs(f):\n"
            "    return unittest.skipUnless(torch.__version__ >= '2.6', 'compile')(f)\n"
            "@needs\ndef test_it(): ...\n"),
            "skip", "test_it", "PyTorch <2.6",
        ),
        (
            "pytestmark = [pytest.mark.skipif(sys.version_info >= (3, 12), reason='dynamo')]\n",
            "skip", "(module)", "Python >=3.12",
        ),
        (
            ("@pytest.mark.xfail(sys.version_info >= (3, 12), reason='dynamo')\n"
            "def test_it(): ...\n"),
            "xfail", "test_it", "Python >=3.12",
        ),
        (
            "@RunIf(min_torch='2.6', dynamo=True)\ndef test_it(): torch.compile(f)\n",
            "skip", "test_it", "PyTorch <2.6",
        ),
        (
            ("def test_it():\n    if sys.version_info >= (3, 12):\n"
            "        pytest.skip('no torch.compile')\n"),
            "branch", "test_it", "Python >=3.12",
        ),
        (
            "def make(f):\n    if sys.version_info < (3, 12):\n        f = torch.compile(f)\n",
            "branch", "make", "Python >=3.12",
        ),
        (
            "fast = torch.compile(f) if torch.__version__ >= '2.6' else f\n",
            "branch", "(module)", "PyTorch <2.6",
        ),
        (
            ("def check():\n    if torch.__version__ < '2.6':\n"
            "        raise ValueError('compile=True needs torch 2.6')\n"),
            "branch", "check", "PyTorch <2.6",
        ),
        ("class A:\n    @torch.compiler.disable\n    def f(self): ...\n", "disable", "A.f", "every"),
        ("@torch._dynamo.disable(recursive=False)\ndef f(): ...\n", "disable", "f", "every"),
        ("g = torch.compiler.disable(f)\n", "disable", "(module)", "every"),
    ],
)  # fmt: skip
def test_each_kind_of_guard_is_found_with_what_it_excludes(
    tmp_path: Path, text: str, kind: str, name: str, excludes: str
) -> None:
    (guard,) = search(tmp_path, text).guards
    assert (guard.kind, guard.name) == (kind, name)
    assert str(guard.excludes).startswith(excludes)
    assert guard.edits
    switched = switched_off(IMPORTS + text, guard.edits)
    ast.parse(switched)
    (tmp_path / "test_a.py").write_text(switched)
    assert find_guards(tmp_path).guards == ()


def test_what_else_a_condition_asks_stays_when_its_guard_is_switched_off(tmp_path: Path) -> None:
    text = (
        "if not (sys.version_info >= (3, 13) or old('é')) and gpu():\n    f = torch.compile(f)\n"
    )
    (guard,) = search(tmp_path, text).guards
    assert switched_off(IMPORTS + text, guard.edits) == IMPORTS + text.replace(
        "sys.version_info >= (3, 13)", "False"
    )


def test_what_does_not_compile_is_no_guard(tmp_path: Path) -> None:
    found = search(
        tmp_path,
        "if sys.version_info >= (3, 11):\n    import tomllib\nelse:\n    import tomli\n"
        "pattern = re.compile('x') if sys.version_info >= (3, 12) else None\n"
        "def is_compiling():\n    if torch.__version__ >= '2.3':\n"
        "        return torch.compiler.is_compiling()\n    return torch._dynamo.is_compiling()\n",
    )
    assert found.guards == ()
    assert len(found.others) == 3


def test_a_constant_of_another_file_counts_unless_two_files_mean_different_things(
    tmp_path: Path,
) -> None:
    text = "from a import NEW\nif NEW:\n    f = torch.compile(f)\n"
    (tmp_path / "a.py").write_text("NEW = torch.__version__ >= '2.6'\n")
    (guard,) = search(tmp_path, text).guards
    assert str(guard.excludes) == "PyTorch <2.6"
    (tmp_path / "b.py").write_text("NEW = torch.__version__ >= '2.9'\n")
    assert find_guards(tmp_path).guards == ()


def test_a_file_that_does_not_parse_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text("x = 1\nprint 'hello'\n")
    (tmp_path / "bytes.py").write_bytes(b"x = '\xff'\n")
    found = search(tmp_path, "@torch.compiler.disable\ndef f(): ...\n")
    assert len(found.guards) == 1
    broken, unreadable = sorted(found.problems, reverse=True)
    assert broken.startswith("old.py:2: does not parse: ")
    assert unreadable.startswith("bytes.py: is not UTF-8")


EVIDENCE = {
    ("3.12", "2.2.2"): CellEvidence("refused", 0, 3),
    ("3.12", "2.5.1"): CellEvidence("works", 9, 10),
    ("3.12", "2.6.0"): CellEvidence("works", 10, 10),
    ("3.13", "2.2.2"): CellEvidence("unavailable", 0, 0),
    ("3.13", "2.5.1"): CellEvidence("refused", 0, 10),
    ("3.13", "2.6.0"): CellEvidence("works", 10, 10),
}


@pytest.mark.parametrize(
    ("condition", "standing", "since"),
    [
        ("sys.version_info >= (3, 12)", "contradicted", {"3.12": "2.5.1", "3.13": "2.6.0"}),
        ("sys.version_info >= (3, 13)", "contradicted", {"3.13": "2.6.0"}),
        ("torch.__version__ < '2.5'", "agrees", {}),
        ("torch.__version__ < '2.0'", "excludes nothing", {}),
        ("sys.version_info >= (3, 13) and slow()", "cannot tell", {}),
    ],
)
def test_a_guard_is_contradicted_since_the_release_from_which_all_work(
    tmp_path: Path, condition: str, standing: str, since: dict[str, str]
) -> None:
    (guard,) = search(tmp_path, f"if not ({condition}):\n    f = torch.compile(f)\n").guards
    judgement = judge_guard(guard, EVIDENCE)
    assert judgement.standing == standing
    assert {python: found for python, (_, found) in judgement.contradicted.items()} == since


def test_the_evidence_is_of_compiled_cases_over_all_machines() -> None:
    rows = compat_rows(
        [
            make_record(torch="2.6.0"),
            make_failure("wrong", "", torch="2.6.0", variant="other-compiled"),
            make_failure("support_gate", python="3.13", torch="2.5.1"),
            make_record(python="3.13", torch="2.5.1", variant="aot", engine="aotinductor"),
        ]
    )
    assert evidence_of(rows) == {
        ("3.12", "2.6.0"): CellEvidence("works", 1, 2),
        ("3.13", "2.5.1"): CellEvidence("refused", 0, 1),
    }


def test_the_command_judges_by_the_committed_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    (tmp_path / "old.py").write_text("print 'hello'\n")
    search(tmp_path, "if sys.version_info < (3, 13):\n    f = torch.compile(f)\n", "new.py")
    runner = CliRunner()
    shown = runner.invoke(app, ["guards", str(tmp_path), "--json"])
    (guard,) = json.loads(shown.stdout)
    assert guard["excludes"] == "Python >=3.13"
    assert guard["contradicted"]["3.13"]["since"] == "2.6.0"
    assert "old.py:1: does not parse" in shown.stderr
    missing = runner.invoke(app, ["guards", str(tmp_path / "nothing")])
    assert isinstance(missing.exception, SpecError)
    unknown = runner.invoke(app, ["guards", str(tmp_path), "--run", "new.py:1"])
    assert isinstance(unknown.exception, UnknownNameError)
    untested = runner.invoke(app, ["guards", str(tmp_path), "--run", "new.py:3"])
    assert isinstance(untested.exception, SpecError)
    assert "no test names" in str(untested.exception)
