"""Guards around compiled code are found by the syntax tree, and judged by the records."""

from __future__ import annotations

import ast
import gc
import json
import operator
import re
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from typer.testing import CliRunner

from ivhl.cli import app
from ivhl.errors import SpecError
from ivhl.tracker.support.compat import compat_rows
from ivhl.version_checks.find import Found, find_checks
from ivhl.version_checks.judge import CellEvidence, evidence_of, judge
from ivhl.version_checks.names import Names, with_names
from ivhl.version_checks.version_conditions import condition_of
from tests.builders.records import make_failure, make_record

torch_version = pytest.importorskip("torch.torch_version", reason="compares as torch does")
TorchVersion = torch_version.TorchVersion

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
        ("parse(torch.version.__version__).base_version >= '2.10'", "1111111"),  # as texts
        ("parse(torch.version.__version__) >= parse('2.10')", "0001001"),
        ("tuple(map(int, torch.__version__.split('.')[:2])) >= (2, 6)", "0011011"),
        ("tuple(int(x) for x in torch.__version__.split('.')[:2]) < (2, 6)", "1100100"),
        ("int(torch.__version__.split('.')[1]) >= 6", "0011011"),
        ("torch.torch_version.__version__ >= '2.6'", "0011011"),
        ("TorchVersion(torch.__version__) >= '2.6'", "0011011"),
        ("metadata.version('torch') >= '2.6'", "0010010"),  # as texts: '2.15.0' < '2.6'
        ("str(torch.__version__) < '2.6'", "1101101"),
        ("torch.version.__version__ >= '2.6'", "0010010"),
        ("torch.__version__[:3] >= '2.6'", "0010010"),
        ("float(torch.__version__[:3]) >= 2.6", "0010010"),
        ("torch.__version__[0] < '2'", "0000000"),
        ("int(torch.__version__[0]) >= 2", "1111111"),
        ("torch.__version__.startswith('2.5')", "0100100"),
        ("not torch.__version__.startswith(('2.5.', '2.6.'))", "1001001"),
        ("sys.version.startswith('3.13')", "0000110"),
        ("sys.version_info[0:2] >= (3, 13)", "0000111"),
        ("sys.version_info[:2] in [(3, 12), (3, 13)]", "1111110"),
        ("sys.version_info[:2] not in ((3, 12), (3, 13))", "0000001"),
        ("sys.hexversion >= 0x030d0000", "0000111"),
        ("0x030d0000 <= sys.hexversion", "0000111"),
        ("Version(platform.python_version()) < Version('3.13')", "1111000"),
        ("tuple(map(int, platform.python_version_tuple()[:2])) >= (3, 13)", "0000111"),
        ("operator.ge(sys.version_info, (3, 13))", "0000111"),
        ("(sys.version_info.major, sys.version_info.minor) >= (3, 13)", "0000111"),
        ("[int(x) for x in torch.__version__.split('.')[:2]] >= [2, 6]", "0011011"),
        ("tuple(map(int, torch.__version__.split('.'))) > (2, 5)", "0111111"),
        ("parse('.'.join(torch.__version__.split('.')[:2])) > parse('2.5')", "0011011"),
        ("parse(torch.__version__).release[:2] == (2, 5)", "0100100"),
        ("(False if sys.version_info >= (3, 13) else torch.__version__ >= '2.6')", "0011000"),
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
        ("TORCH_GE_2_6", "0011011"),
        ("IS_PYTHON_GE_3_13", "0000111"),
        ("TORCH_VERSION_AT_LEAST_2_6", "0011011"),
        ("_TORCH_GREATER_EQUAL_2_6_0", "0011011"),
        ("not IS_TORCH_LT_2_6", "0011011"),
        ("PY313", "???????"),
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


class Numbers(NamedTuple):
    """As ``sys.version_info``, of which a slice is a tuple."""

    major: int
    minor: int
    micro: int


def decided_by_python(text: str, python: str, torch: str) -> bool:
    """Return what a condition is where modules say that they have these versions."""
    numbers = (*map(int, python.removesuffix("t").split(".")), 99)
    info = Numbers(*numbers)
    plain = ".".join(map(str, numbers))
    names = {
        "sys": SimpleNamespace(
            version_info=info,
            version=f"{plain} (main)",
            hexversion=sum(n << shift for n, shift in zip(numbers, (24, 16, 8), strict=True)),
        ),
        "torch": SimpleNamespace(
            __version__=TorchVersion(torch),
            version=SimpleNamespace(__version__=torch),
            compile=print,
        ),
        "platform": SimpleNamespace(
            python_version=lambda: plain, python_version_tuple=lambda: tuple(plain.split("."))
        ),
        "metadata": SimpleNamespace(version=lambda _: torch),
        "re": re, "SpecifierSet": SpecifierSet,
        "Version": Version, "parse": Version, "TorchVersion": TorchVersion, "operator": operator,
    }  # fmt: skip
    return bool(eval(text, names))  # noqa: S307


@pytest.mark.parametrize("cell", CELLS)
def test_the_syntax_tree_decides_as_python_does(cell: tuple[str, str]) -> None:
    subjects = {
        "sys.version_info": ["(3, 13)", "(3, 12, 1)", "(3,)"],
        "sys.version_info[:2]": ["(3, 13)", "(3, 12)"],
        "sys.version_info.minor": ["13", "12"],
        "sys.version_info[1]": ["13"],
        "sys.hexversion": ["0x030d0000"],
        "Version(platform.python_version())": ["Version('3.13')"],
        "platform.python_version()": ["'3.13'", "'3.9'"],
        "tuple(map(int, platform.python_version_tuple()[:2]))": ["(3, 13)"],
        "torch.__version__": ["'2.6'", "'2.6.0'", "'2.10'"],
        "Version(torch.__version__)": ["Version('2.6.0')", "Version('2.5.1')"],
        "str(torch.__version__)": ["'2.6'"],
        "torch.__version__.split('+')[0]": ["'2.6'", "'2.10'"],
        "Version(torch.__version__.split('+')[0])": ["Version('2.10')"],
        "torch.__version__[:3]": ["'2.6'"],
        "float(torch.__version__[:3])": ["2.6"],
        "float('.'.join(torch.__version__.split('.')[:2]))": ["2.5"],
        "torch.__version__.split('.')[1]": ["'6'"],
        "int(torch.__version__.split('.')[1])": ["6"],
        "tuple(int(x) for x in torch.__version__.split('.')[:2])": ["(2, 6)", "(2, 5, 1)"],
        "tuple(map(int, torch.__version__.split('.')))": ["(2, 6)", "(2, 6, 0)"],
        "[int(x) for x in torch.__version__.split('.')]": ["[2, 6]"],
        "Version(torch.__version__).release": ["(2, 6)", "(2, 6, 0)"],
        "Version(torch.__version__).base_version": ["'2.6'"],
        "Version(torch.__version__).minor": ["6"],
        "torch.version.__version__": ["'2.6'"],
        "metadata.version('torch')": ["'2.6'"],
    }
    for left, values in subjects.items():
        for right in values:
            # torch.__version__ leaves != to str, which calls 2.6.0 another release than 2.6.
            signs = (">=", ">", "<=", "<", "==", "!="[: 0 if left == "torch.__version__" else 2])
            for sign in filter(None, signs):
                for text in (f"{left} {sign} {right}", f"{right} {sign} {left}"):
                    condition = condition_of(ast.parse(text, mode="eval").body, Names({}))
                    assert condition.holds(*cell) is decided_by_python(text, *cell), text


@pytest.mark.parametrize(
    "text",
    [
        "platform.python_version_tuple() >= ('3', '13')",
        "platform.python_version_tuple()[:2] == ('3', '12')",
        "sys.hexversion >> 16 >= 0x030d",
        "(sys.hexversion >> 24, sys.hexversion >> 16 & 255) >= (3, 13)",
        "Version(torch.__version__) in SpecifierSet('>=2.5,<2.10')",
        "SpecifierSet('>=2.6').contains(torch.__version__)",
        "'3.13' in sys.version",
        "'+' not in torch.__version__ and torch.__version__ < '2.6'",
        "sys.version_info >= (3,) + (13,)",
        "any([sys.version_info >= (3, 13), torch.__version__ < '2.5'])",
        "all((sys.version_info >= (3, 13), torch.__version__ > '2.5'))",
        "max(sys.version_info[:2], (3, 13)) == sys.version_info[:2]",
        "sorted([sys.version_info[1], 13])[0] < 13",
        "float(f'{sys.version_info.major}.{sys.version_info.minor}') >= 3.13",
        "sys.version_info[1] - 12",
        "[int(x) for x in torch.__version__.split('.') if x.isdigit()] > [2, 5, 1]",
        "dict(a=1) and torch.__version__ < '2.6'",
        "torch.__version__.partition('.')[2].split('.')[0].zfill(2) > '06'",
        "(lambda: sys.version_info)() > (3, 13)",
        "sys.version_info[7] == 1",
        "int(f'{sys.version}') > 3",
    ],
)
def test_what_is_no_plain_comparison_is_computed_as_python_does(text: str) -> None:
    condition = condition_of(ast.parse(text, mode="eval").body, Names({}))
    decided = [condition.holds(*cell) for cell in CELLS]
    try:
        by_python = [decided_by_python(text, *cell) for cell in CELLS]
    except (IndexError, ValueError):
        assert decided == [None] * len(CELLS)
    else:
        beyond = ("dict(", "zfill", "lambda")  # none of what is listed there
        unknown = next((word for word in beyond if word in text), None)
        assert None in decided if unknown else decided == by_python
        wrong = [a for a, b in zip(decided, by_python, strict=True) if a not in (None, b)]
        assert wrong == []


def test_what_is_computed_takes_no_more_than_its_bounds() -> None:
    for text in (
        "len('a'.join([str(i) for i in range(10 ** 9)])) and sys.version_info",
        "sum(x for x in range(999999999)) > sys.version_info[0]",
        "[[[x for x in range(900)] for y in range(900)] for z in range(900)] > sys.version_info",
        "'a'.replace('a', 'b' * 10 ** 9) > sys.version",
        "'%999999999d' % sys.version_info[0] > '3'",
        "f'{sys.version_info[0]:>999999999}' > '3'",
        "int('9' * 10 ** 7) > sys.version_info[0]",
        "re.match('(a+)+$', sys.version)",
        "re.match('a*a*a*a*a*a*a*a*$', sys.version)",
        "sys.version_info[0] << 10 ** 9",
        "sys.version_info.__class__.__base__.__subclasses__()",
        "[a for a in (1,) * 900 for b in (1,) * 900 for c in (1,) * 900] > sys.version_info",
        "'ab'.join('ab'.join('ab'.join(sys.version))) > ''",
        "(lambda: sys.version)()",
        "operator.attrgetter('__class__')(sys.version)",
        "__import__('os').system('id') > sys.version_info[0]",
    ):
        condition = condition_of(ast.parse(text, mode="eval").body, Names({}))
        assert [condition.holds(*cell) for cell in CELLS] == [None] * len(CELLS), text


def test_what_a_name_stands_for_is_computed_only_if_it_is_listed() -> None:
    for meaning in ("sys.version.__class__.__name__", "sys.version * 0"):
        names = Names({"X": ast.parse(meaning, mode="eval").body})
        condition = condition_of(ast.parse("X != sys.version", mode="eval").body, names)
        assert [condition.holds(*cell) for cell in CELLS] == [None] * len(CELLS), meaning


def test_what_a_python_or_pytorch_has_is_asked_by_its_name() -> None:
    for text, holds in (
        ("sysconfig.get_config_var('Py_GIL_DISABLED')", {"3.13": False, "3.14t": True}),
        ("not sys._is_gil_enabled()", {"3.13": False, "3.14t": None}),
    ):
        condition = condition_of(ast.parse(text, mode="eval").body, Names({}))
        assert {python: condition.holds(python, "2.15.0") for python in holds} == holds


def search(folder: Path, text: str, name: str = "test_a.py") -> Found:
    (folder / name).write_text(IMPORTS + text)
    return find_checks(folder)


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
        (
            "if sys.version_info >= (3, 13):\n    @torch.compiler.disable\n    def f(): ...\n",
            "branch", "(module)", "Python >=3.13",
        ),
        (
            ("def make(f):\n    if torch.__version__ >= '2.6':\n        return torch.compile(f)\n"
            "    return f\n"),
            "branch", "make", "PyTorch <2.6",
        ),
        (
            ("def make(f):\n    if gpu():\n        if sys.version_info >= (3, 13):\n"
            "            return f\n    return torch.compile(f)\n"),
            "branch", "make", "Python >=3.13",
        ),
        (
            "if sys.version_info >= (3, 13):\n    g = f\nelse:\n    g = torch.compile(f)\n",
            "branch", "(module)", "Python >=3.13",
        ),
        (
            "import sys as s, torch as th\nif s.version_info < (3, 12):\n    g = th.compile(f)\n",
            "branch", "(module)", "Python >=3.12",
        ),
        (
            ("MAJOR, MINOR = map(int, torch.__version__.split('.')[:2])\n"
            "g = torch.compile(f) if (MAJOR, MINOR) >= (2, 6) else f\n"),
            "branch", "(module)", "PyTorch <2.6",
        ),
        (
            ("def can_compile():\n    v = sys.version_info\n    if v >= (3, 13):\n"
            "        return False\n    return hasattr(torch, 'compile')\n"
            "g = torch.compile(f) if can_compile() else f\n"),
            "branch", "(module)", "Python >=3.13 or PyTorch <2.0.0",
        ),
        (
            ("def old():\n    v = torch.__version__\n    v = Version(v)\n    v = v.release\n"
            "    return v < (2, 6)\ng = f if old() else torch.compile(f)\n"),
            "branch", "(module)", "PyTorch <2.6",
        ),
        (
            ("def at_least(v):\n    return Version(torch.__version__) >= Version(v)\n"
            "g = torch.compile(f) if at_least('2.6') else f\n"),
            "branch", "(module)", "PyTorch <2.6",
        ),
        (
            ("@pytest.mark.parametrize('m', [pytest.param(1, marks=pytest.mark.xfail(\n"
            "    condition=sys.version_info >= (3, 13), reason='torch.compile'))])\n"
            "def test_it(m): ...\n"),
            "xfail", "test_it", "Python >=3.13",
        ),
        (
            ("needs = pytest.mark.skipif(torch.__version__ < '2.6', reason='compile')\n"
            "pytestmark = (needs,)\n"),
            "skip", "(module)", "PyTorch <2.6",
        ),
        (
            "g = torch.compile(f, disable=sys.version_info >= (3, 13))\n",
            "branch", "(module)", "Python >=3.13",
        ),
        (
            "assert torch.__version__ >= '2.6', 'compile'\ng = torch.compile(f)\n",
            "branch", "(module)", "PyTorch <2.6",
        ),
        (
            "if sys.version_info >= (3, 13):\n    torch._dynamo.config.disable = True\n",
            "branch", "(module)", "Python >=3.13",
        ),
        (
            "if sys.version_info >= (3, 13):\n    os.environ['TORCHDYNAMO_DISABLE'] = '1'\n",
            "branch", "(module)", "Python >=3.13",
        ),
        (
            "if sys.version_info >= (3, 13):\n    args.use_compile = False\n",
            "branch", "(module)", "Python >=3.13",
        ),
        (
            "if sys.version_info >= (3, 13):\n    g = torch.compiler.disable(f)\nelse:\n    g = f\n",
            "branch", "(module)", "Python >=3.13",
        ),
        (
            ("def torch_version_lt(*numbers):\n    return version() < numbers\n"
            "g = f if torch_version_lt(2, 6, 0) else torch.compile(f)\n"),
            "branch", "(module)", "PyTorch <2.6.0",
        ),
        (
            ("def test_it(request):\n"
            "    mark = pytest.mark.xfail(sys.version_info >= (3, 13), reason='dynamo')\n"
            "    request.applymarker(mark)\n"),
            "xfail", "test_it", "Python >=3.13",
        ),
        (
            ("def test_it(request):\n    if sys.version_info >= (3, 13):\n"
            "        request.node.add_marker(pytest.mark.xfail(reason='dynamo'))\n"),
            "xfail", "test_it", "Python >=3.13",
        ),
        (
            ("def maybe(f):\n    if sys.version_info >= (3, 13):\n"
            "        import torch._dynamo\n        return torch._dynamo.disable(f)\n    return f\n"),
            "branch", "maybe", "Python >=3.13",
        ),
        (
            "torch._dynamo.config.disable = sys.version_info >= (3, 13)\n",
            "branch", "(module)", "Python >=3.13",
        ),
        (
            ("if sys.version_info < (3, 13):\n    from torch._dynamo import optimize as go\n"
            "else:\n    go = None\n"),
            "branch", "(module)", "Python >=3.13",
        ),
    ],
)  # fmt: skip
def test_each_kind_of_version_check_is_found_with_what_it_excludes(
    tmp_path: Path, text: str, kind: str, name: str, excludes: str
) -> None:
    (check,) = search(tmp_path, text).checks
    assert (check.kind, check.name) == (kind, name)
    assert str(check.excludes).startswith(excludes)


@pytest.mark.parametrize(
    "text",
    [
        "torch.compiler.set_stance('default')\n",
        "g = torch.compile(f, disable=False)\n",
        "@torch.compiler.disable\ndef f(): ...\n",
        "torch._dynamo.config.disable = True\n",
        "@pytest.mark.skip('torch.compile')\ndef test_it(): ...\n",
        "def f(how):\n    how['disable'] = sys.version_info >= (3, 13)\n",
        "def f(x):\n    return compile_twice(x, able=sys.version_info < (3, 13))\n",
    ],
)
def test_what_only_looks_like_one_is_no_version_check(tmp_path: Path, text: str) -> None:
    assert search(tmp_path, text).checks == ()


def test_no_tree_of_a_code_base_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trees of transformers took 3.4 GB, and of each one file's are needed at a time.

    No tree is in a cycle: nobody looks for these meanwhile, which took a seventh of the time.
    """
    for number in range(6):
        (tmp_path / f"m{number}.py").write_text("compiled = 1\nclass A:\n    def f(self): ...\n")
    alive: list[weakref.ref[ast.Module]] = []
    most = 0

    def parse(text: str) -> ast.Module:
        nonlocal most
        assert not gc.isenabled()
        most = max(most, sum(one() is not None for one in alive))
        tree = ast.parse(text)
        alive.append(weakref.ref(tree))
        return tree

    monkeypatch.setattr("ivhl.version_checks.find.parsed", parse)
    find_checks(tmp_path)
    assert len(alive) == 12
    assert most <= 2
    assert gc.isenabled()


def test_names_are_put_into_a_copy_and_only_where_they_are_read() -> None:
    node = ast.parse("(lambda: [a, b.a, (c := a)])()", mode="eval").body
    before = ast.dump(node)
    found = with_names(node, {"a": ast.Name("x", ast.Load()), "c": ast.Name("y", ast.Load())})
    assert ast.unparse(found) == "(lambda: [x, b.a, (c := x)])()"
    assert ast.dump(node) == before


TESTS = [
    "sys.version_info >= (3, 13)",
    "sys.version_info < (3, 13)",
    "Version(torch.__version__) < Version('2.6')",
    "Version(torch.__version__) >= Version('2.6')",
    "Version(torch.__version__) >= Version('2.10')",
    "sys.version_info[1] in (11, 12)",
    "sys.version_info[:2] > (3, 12)",
]


@st.composite
def blocks_with_checks(draw: st.DrawFn, depth: int = 2) -> list[str]:
    """Draw conditions on versions, in and behind each other, some of which leave."""
    lines = []
    for _ in range(draw(st.integers(1, 2))):
        lines.append(f"if {draw(st.sampled_from(TESTS))}:")
        if depth and draw(st.booleans()):
            inner = draw(blocks_with_checks(depth - 1))
            inner += draw(st.sampled_from([[], ["return torch.compile(m)"]]))
            lines += [f"    {line}" for line in inner]
        else:
            lines += draw(
                st.sampled_from(
                    [
                        ["    return m"],
                        ["    raise RuntimeError('no torch.compile here')"],
                        ["    return torch.compile(m)"],
                        ["    return torch.compile(m)", "else:", "    return m"],
                    ]
                )
            )
    return lines


@given(blocks_with_checks())
@settings(max_examples=300, deadline=None)
def test_checks_in_and_behind_each_other_exclude_what_python_does_not_compile(
    tmp_path_factory: pytest.TempPathFactory, block: list[str]
) -> None:
    lines = ["def f(m):", *[f"    {line}" for line in block], "    return torch.compile(m)"]
    text = "\n".join(lines)
    checks = search(tmp_path_factory.mktemp("checks"), text).checks
    for python, torch in CELLS:
        known = {
            "sys": SimpleNamespace(version_info=tuple(map(int, python.strip("t").split(".")))),
            "torch": SimpleNamespace(__version__=torch, compile=lambda _: "compiled"),
            "Version": Version,
        }
        exec(text, known)  # noqa: S102  (made above)
        try:
            is_off = known["f"]("plain") == "plain"  # type: ignore[operator]
        except RuntimeError:
            is_off = True
        assert any(one.excludes.holds(python, torch) for one in checks) == is_off


def test_what_does_not_compile_is_no_version_check(tmp_path: Path) -> None:
    found = search(
        tmp_path,
        "if sys.version_info >= (3, 11):\n    import tomllib\nelse:\n    import tomli\n"
        "pattern = re.compile('x') if sys.version_info >= (3, 12) else None\n"
        "def is_compiling():\n    if torch.__version__ >= '2.3':\n"
        "        return torch.compiler.is_compiling()\n    return torch._dynamo.is_compiling()\n"
        "def both():\n    if torch.__version__ >= '2.6':\n        return torch.compile(f, mode=3)\n"
        "    return torch.compile(f)\n"
        "if torch.__version__ >= '2.6':\n    torch._dynamo.config.cache_size_limit = 64\n"
        "if hasattr(torch, 'compile'):\n    patch.setattr(torch, 'compile', mocked)\n"
        "else:\n    torch.compile = mocked\n",
    )
    assert found.checks == ()
    assert len(found.others) == 6
    asks = (
        "def is_compiled(module):\n    return hasattr(torch, 'compile') and isinstance(module, C)\n"
        "if not is_compiled(model):\n    model = torch.compile(model)\n"
    )
    assert search(tmp_path, asks).checks == ()


@pytest.mark.parametrize(
    "text",
    [
        """
def export(m, given):
    if torch.__version__ >= "2.9":
        given["dynamo"] = False
    torch.onnx.export(m, **given)
""",
        """
def engine(m):
    if torch.__version__ < "2.6":
        raise RuntimeError("too old")
    return torch_tensorrt.compile(m)
""",
        """
def axis():
    if torch.__version__ >= "2.7":
        return "a"
    return torch.export.Dim.AUTO
""",
        """
def export(m):
    if torch.__version__ < "2.5":
        raise RuntimeError("to_onnx(dynamo=True) needs 2.5")
    return m
""",
        """
def fast(f):
    if sys.version_info >= (3, 13):
        import torch._dynamo
        from torch._inductor import config
        torch._dynamo.config.suppress_errors = True
        config.max_autotune = False
    return torch.compile(f)
""",
    ],
)
def test_exports_and_compilers_of_others_are_no_compiled_code(tmp_path: Path, text: str) -> None:
    found = search(tmp_path, text)
    assert found.checks == ()
    assert len(found.others) == 1


def test_a_function_of_the_project_is_not_the_one_of_pytorch_with_its_name(tmp_path: Path) -> None:
    text = (
        "NEW = torch.__version__ >= '2.3'\nOLD = torch.__version__ >= '2.1'\n"
        "def is_compiling():\n    if NEW:\n        return torch.compiler.is_compiling()\n"
        "    if OLD:\n        return torch._dynamo.is_compiling()\n    return False\n"
        "def f(x):\n    if not is_compiling():\n        return x\n    return torch.compile(x)\n"
    )
    (check,) = search(tmp_path, text).checks
    assert len(str(check.excludes)) < 250
    assert check.excludes.holds("3.12", "2.0.1") is True
    assert check.excludes.holds("3.12", "2.6.0") is None


def test_a_condition_is_said_once() -> None:
    text = "not other() and (other() or torch.__version__ < '2.10')"
    condition = condition_of(ast.parse(text, mode="eval").body, Names({}))
    assert str(condition) == "not `other()` and PyTorch <2.10"
    wheel = "not hasattr(torch.version, 'git_version') or torch.__version__ < '2.10'"
    condition = condition_of(ast.parse(wheel, mode="eval").body, Names({}))
    assert str(condition) == "PyTorch <2.10"


def test_the_reason_of_a_version_check_has_its_values_in_braces(tmp_path: Path) -> None:
    text = (
        "def f(m):\n    if torch.__version__ < '2.6':\n"
        "        raise RuntimeError(f'`{NAME}` needs torch.compile of {LEAST}')\n"
        "    return torch.compile(m)\n"
    )
    (check,) = search(tmp_path, text).checks
    assert check.reason == "`{NAME}` needs torch.compile of {LEAST}"


def test_a_name_that_is_bound_to_itself_is_followed_no_further(tmp_path: Path) -> None:
    text = "low = Version(low)\nV = Version(V)\nif V >= low:\n    g = torch.compile(f)\n"
    again = "def can(x):\n    return can(x)\nif can(V) and sys.version_info > low:\n    f()\n"
    long = "def long(x):\n" + "    x = x + x + x\n" * 60 + "    return x > sys.version_info\n"
    found = search(tmp_path, text + again + long)
    assert (found.checks, found.others, found.problems) == ((), (), ())


def test_a_function_of_packaging_is_not_the_one_of_the_project_with_its_name(
    tmp_path: Path,
) -> None:
    """In diffusers 0.42.1: it has a ``parse`` of its own, and asks ``version.parse`` elsewhere."""
    (tmp_path / "ours.py").write_text("def parse(path, mode):\n    return path\n")
    text = (
        "from packaging import version\nnow = version.parse(torch.__version__)\n"
        "if now >= version.parse('2.6'):\n    f = torch.compile(f)\n"
    )
    (check,) = search(tmp_path, text).checks
    assert str(check.excludes) == "PyTorch <2.6"


def test_a_name_with_two_meanings_has_none(tmp_path: Path) -> None:
    text = "OURS = sys.version_info < (3, 13)\nif cuda():\n    OURS = False\n"
    assert search(tmp_path, text + "if OURS:\n    g = torch.compile(f)\n").checks == ()
    local = (
        "OURS = sys.version_info < (3, 13)\ndef other():\n    OURS = 3\n    return OURS\n"
        "def make(f):\n    return torch.compile(f) if OURS else f\n"
    )
    (check,) = search(tmp_path, local).checks
    assert str(check.excludes) == "Python >=3.13"


@pytest.mark.parametrize(
    "text",
    [
        # Another method, or class, gives it another meaning.
        ("class Model:\n    def __init__(self):\n        self.able = sys.version_info < (3, 13)\n"
        "    def allow(self):\n        self.able = True\n"
        "    def build(self):\n        return torch.compile(self) if self.able else self\n"),
        ("class One:\n    def __init__(self):\n        self.able = sys.version_info < (3, 13)\n"
        "class Model:\n"
        "    def build(self):\n        return torch.compile(self) if self.able else self\n"),
        ("class Model:\n    def __init__(self):\n        self.minor = sys.version_info[1]\n"
        "        self.minor += 1\n"
        "    def build(self):\n        return torch.compile(self) if self.minor < 13 else self\n"),
        # A name of the function is no attribute.
        ("class Model:\n    def __init__(self):\n        self.able = sys.version_info < (3, 13)\n"
        "    def build(self, able):\n        return torch.compile(self) if able else self\n"),
        # Nothing tells what is given.
        ("able = sys.version_info < (3, 13)\n"
        "class Model:\n    def __init__(self, able):\n        self.able = able\n"
        "    def build(self):\n        return torch.compile(self) if self.able else self\n"),
        "@pytest.mark.skip(reason='slow')\ndef test_it(): ...\n",
        # What it asks itself is no version, though it stands where one is.
        ("if sys.version_info < (3, 13):\n"
        "    @pytest.mark.skipif(not torch.cuda.is_available(), reason='torch.compile')\n"
        "    def test_it(): ...\n"),
    ],
)  # fmt: skip
def test_what_has_no_known_meaning_is_no_version_check(tmp_path: Path, text: str) -> None:
    assert search(tmp_path, text).checks == ()


CHECK = "g = torch.compile(f) if torch.__version__ >= '2.6' else f\n"


def test_a_file_is_read_in_the_encoding_that_it_names(tmp_path: Path) -> None:
    text = (
        "# coding: latin-1\nimport sys\n"
        "s = 'é'; g = torch.compile(f) if sys.version_info < (3, 13) else f\n"
    )
    (tmp_path / "a.py").write_bytes(text.encode("latin-1"))
    (tmp_path / "b.py").write_bytes(b"\xef\xbb\xbf" + CHECK.encode())
    first, second = find_checks(tmp_path).checks
    assert (str(first.excludes), second.line) == ("Python >=3.13", 1)


def test_a_constant_of_another_file_counts_unless_two_files_mean_different_things(
    tmp_path: Path,
) -> None:
    text = "from a import NEW\nif NEW:\n    f = torch.compile(f)\n"
    (tmp_path / "a.py").write_text("NEW = torch.__version__ >= '2.6'\n")
    (check,) = search(tmp_path, text).checks
    assert str(check.excludes) == "PyTorch <2.6"
    (tmp_path / "b.py").write_text("NEW = torch.__version__ >= '2.9'\n")
    assert find_checks(tmp_path).checks == ()


def test_a_file_that_does_not_parse_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text("x = 1\nprint 'hello'\n")
    (tmp_path / "bytes.py").write_bytes(b"x = '\xff'\n")
    found = search(tmp_path, CHECK)
    assert len(found.checks) == 1
    (tmp_path / "nul.py").write_bytes(b"x = '\0'\n")
    deep = "x = " + " + ".join("abc" * 3000) + f"\n{CHECK}"
    (tmp_path / "deep.py").write_text(deep)
    broken, empty, deeper, unreadable = sorted(find_checks(tmp_path).problems, reverse=True)
    assert broken.startswith("old.py:2: does not parse: ")
    assert deeper.startswith("deep.py: ")
    assert empty.startswith("nul.py: does not parse: ")
    assert unreadable.startswith("bytes.py: cannot be read: ")


def test_a_text_whose_tree_takes_gigabytes_or_cannot_be_printed_is_named(tmp_path: Path) -> None:
    """2 MiB of assignments took 2.3 GB; Python prints no integer of 4,300 digits."""
    number = f"if sys.version_info >= (0x{'f' * 3600},):\n    f = torch.compile(f)\n"
    (tmp_path / "integer.py").write_text(f"import sys\n{number}")
    (tmp_path / "long.py").write_text("x=1\n" * 200_000)
    (tmp_path / "wide.py").write_text("x = " + "0," * 300_000)
    found = search(tmp_path, CHECK)
    assert len(found.checks) == 1
    assert sorted(found.problems) == [
        "integer.py: cannot be read: has an integer of thousands of digits",
        "long.py: cannot be read: has more than 500000 tokens",
        "wide.py: cannot be read: has more than 500000 tokens",
    ]


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
def test_a_version_check_is_contradicted_since_the_release_from_which_all_work(
    tmp_path: Path, condition: str, standing: str, since: dict[str, str]
) -> None:
    (check,) = search(tmp_path, f"if not ({condition}):\n    f = torch.compile(f)\n").checks
    judgement = judge(check, EVIDENCE)
    assert judgement.standing == standing
    assert {python: found for python, (_, found) in judgement.contradicted.items()} == since
    # Of a case on two machines, both count.
    counted = [text for text in judgement.text if text.startswith("contradicted: ")]
    assert len(counted) == len(since)
    assert all(": 10 of 10 compiled results pass with 2.6.0" in text for text in counted)


def test_a_cell_has_the_word_that_advice_has_for_it(tmp_path: Path) -> None:
    """Of Python 3.15, one said "works", the other "works (1 of 31 fail)"."""
    (check,) = search(
        tmp_path, "if sys.version_info < (3, 12):\n    f = torch.compile(f)\n"
    ).checks
    assert judge(check, EVIDENCE).text[0] == (
        "excludes on Python 3.12: unsupported 2.2.2, works (1 of 10 fail) 2.5.1, works 2.6.0"
    )


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


def test_a_condition_that_asks_whether_it_is_compiled_is_a_version_check(tmp_path: Path) -> None:
    (tmp_path / "safe.py").write_text(
        "import torch\nfrom packaging.version import Version\n"
        "OLD = Version(torch.__version__) < Version('2.6.0')\n"
        "def tanh(x):\n    if torch.compiler.is_compiling() and OLD:\n        complain()\n"
        "    return x\n"
        "def plain(x):\n    if OLD:\n        complain('__version__')\n    return x\n"
    )
    found = find_checks(tmp_path)
    assert [check.line for check in found.checks] == [5]
    assert [other.line for other in found.others] == [9]


def test_the_command_judges_by_the_committed_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    (tmp_path / "old.py").write_text("print 'hello'\n")
    search(tmp_path, "if sys.version_info < (3, 13):\n    f = torch.compile(f)\n", "new.py")
    runner = CliRunner()
    shown = runner.invoke(app, ["version-checks", str(tmp_path), "--json"])
    (check,) = json.loads(shown.stdout)["checks"]
    assert check["excludes"] == "Python >=3.13"
    assert check["contradicted"]["3.13"]["since"] == "2.6.0"
    assert "old.py:1: does not parse" in shown.stderr
    (result,) = json.loads(
        runner.invoke(app, ["version-checks", str(tmp_path), "--format", "sarif"]).stdout
    )["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "new.py"
    assert place["region"]["startLine"] == check["line"]
    assert "torch.compile works on Python 3.13 since PyTorch 2.6.0" in result["message"]["text"]
    notes = runner.invoke(app, ["version-checks", str(tmp_path), "--format", "github"]).stdout
    assert notes.startswith(
        f"::warning file=new.py,line={check['line']},title=stale-version-check"
    )
    search(tmp_path, "if sys.version_info < (3, 13):\n    import tomli\n", "beside.py")
    every = runner.invoke(app, ["version-checks", str(tmp_path), "--all", "--json"])
    (beside,) = [one for one in json.loads(every.stdout)["checks"] if one["file"] == "beside.py"]
    assert (beside["standing"], beside["evidence"]) == ("cannot tell", [])
    unread = runner.invoke(app, ["version-checks", str(tmp_path / "old.py")])
    assert "no file there can be read" in str(unread.exception)
    empty = runner.invoke(app, ["version-checks", str(tmp_path), "--results", str(tmp_path)])
    assert "no record in" in empty.stderr
    missing = runner.invoke(app, ["version-checks", str(tmp_path / "nothing")])
    assert isinstance(missing.exception, SpecError)
