"""``ivhl advise PATH``: what a code base allows, where it compiles, what the records say of it."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest
from typer.testing import CliRunner

from ivhl.cli import app
from ivhl.errors import ResultsError, SpecError
from ivhl.init.allowed import read_allowed
from ivhl.records.identity import key_of
from ivhl.syntax import read_trees
from ivhl.tracker.store.spread import SHIPPED
from ivhl.tracker.support.compat import compat_rows
from ivhl.version_checks.code_base import (
    CodeEvidence,
    recommendation,
    support_lines,
)
from ivhl.version_checks.sites import compile_sites
from tests.builders.project import make_project
from tests.builders.records import make_failure, make_record

ROOT = Path(__file__).parents[2]
PLATFORM = "x86_64-manylinux_2_28"
CELLS = [
    ("3.12", "2.5.1"), ("3.12", "2.6.0"), ("3.12", "2.15.0"),
    ("3.13", "2.5.1"), ("3.13", "2.6.0"), ("3.13", "2.15.0"), ("3.14t", "2.15.0"),
]  # fmt: skip
ALLOWED = tuple((p, t) for p in ("3.12", "3.13", "3.14") for t in ("2.5.1", "2.6.0", "2.15.0"))


def written(folder: Path, **files: str) -> Path:
    """Write files; ``__`` in a name stands for a dot, ``___`` for a slash."""
    for name, text in files.items():
        path = folder / name.replace("___", "/").replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    return folder


def project(lines: str) -> str:
    return f'[project]\nname = "demo"\nversion = "1"\n{lines}\n'


@pytest.mark.parametrize(
    ("files", "holds"),
    [
        ({}, "1111111"),
        ({"pyproject__toml": project('requires-python = ">=3.13"')}, "0001111"),
        ({"pyproject__toml": project('requires-python = ">=3.12.3,<3.14"')}, "1111110"),
        ({"pyproject__toml": project('dependencies = ["numpy", "Torch>=2.6"]')}, "0110111"),
        ({"pyproject__toml": project('dependencies = ["torchvision<0.1"]')}, "1111111"),
        (
            {"pyproject__toml": project("dependencies = [\"torch<2.6; python_version<'3.13'\"]")},
            "1001111",
        ),
        (
            {"pyproject__toml": project("dependencies = [\"torch<2.6; sys_platform=='win32'\"]")},
            "1111111",
        ),
        (
            {
                "pyproject__toml": project('dynamic = ["dependencies"]'),
                "PKG-INFO": "Name: demo\nRequires-Python: >=3.13\nRequires-Dist: torch==2.6.0\n",
            },
            "0000100",
        ),
        ({"PKG-INFO": "Name: demo\nRequires-Dist: torch==2.6.0; extra == 'gpu'\n"}, "1111111"),
        ({"setup__py": "setup(name='demo', install_requires=['torch!=2.6.0'])\n"}, "1011011"),
        (
            {"requirements__txt": "# a\n-r more.txt\ntorch==2.6.0 --hash=sha256:00  # b\n./x\n"},
            "0100100",
        ),
        ({"requirements__txt": "torch-geometric==2.0\ntorchvision\n"}, "1111111"),
    ],
)
def test_a_code_base_allows_what_its_files_say(
    tmp_path: Path, files: dict[str, str], holds: str
) -> None:
    allowed = read_allowed(written(tmp_path, **files))
    assert "".join(str(int(allowed.holds(*cell, PLATFORM))) for cell in CELLS) == holds


def test_torch_that_only_an_extra_requires_is_named_and_does_not_count(tmp_path: Path) -> None:
    text = "Name: demo\nRequires-Dist: torch==2.6.0; extra == 'gpu'\n"
    (note,) = read_allowed(written(tmp_path, **{"PKG-INFO": text})).notes
    assert note == "requires torch in extras only, which do not count: gpu"


def test_what_an_installed_package_requires_is_in_the_metadata_beside_it(tmp_path: Path) -> None:
    written(
        tmp_path,
        **{
            "one-1__dist-info___METADATA": "Name: one\nVersion: 1\nRequires-Python: >=3.13\n",
            "one-1__dist-info___RECORD": "one/__init__.py,,\n",
            "two-1__dist-info___METADATA": "Name: two\nVersion: 1\nRequires-Dist: torch<2.6\n",
            "two-1__dist-info___RECORD": "two/__init__.py,,\n",
        },
    )
    for name in ("one", "two"):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "__init__.py").write_text("")
    assert read_allowed(tmp_path / "one").text == (
        "Python >=3.13, any torch (one-1.dist-info/METADATA)"
    )
    assert read_allowed(tmp_path / "two").name == "two"


def test_each_form_of_compiling_is_found_and_nothing_else(tmp_path: Path) -> None:
    code = '''\
        """torch.compile in a text."""
        import re, torch
        import torch as th
        from functools import partial
        from torch import compile as fast
        pattern = re.compile("torch.compile")
        @torch.compile
        def one(x): return x
        @th.compile(fullgraph=True)
        def two(x): return x
        class Model(torch.nn.Module):
            def speed_up(self):
                self.f = fast(self.f)
                self.inner.compile(mode="default")
                self.template.compile("a text")
        hand = partial(torch.compile, dynamic=True)
        asked = hasattr(torch, "compile")
        old = torch._dynamo.optimize("inductor")(one)
    '''
    written(tmp_path, a__py=code, tests___test_a__py="import torch\ntorch.compile(f)\n")
    found = compile_sites(read_trees(tmp_path))
    assert [(site.line, site.how) for site in found if not site.aside] == [
        (7, "torch.compile as a decorator"),
        (9, "torch.compile as a decorator"),
        (13, "torch.compile"),
        (14, "possibly Module.compile"),
        (16, "torch.compile handed on"),
        (18, "torch._dynamo.optimize"),
    ]
    assert found[2].name == "Model.speed_up"
    assert [(site.path, site.aside) for site in found][-1] == ("tests/test_a.py", True)


def evidence(*records: object, own: bool = True, unavailable: object = ()) -> CodeEvidence:
    return CodeEvidence(
        own=own,
        project="demo" if own else "suite",
        machine="bench",
        device="cpu",
        rows=compat_rows(records),  # type: ignore[arg-type]
        allowed=ALLOWED,
        unavailable=frozenset(unavailable),  # type: ignore[call-overload]
        spreads=SHIPPED,
    )


def test_support_is_in_intervals_with_what_was_not_measured_and_cannot_be_installed() -> None:
    found = support_lines(
        evidence(
            make_record(torch="2.5.1"),
            make_failure("wrong", "", torch="2.15.0"),
            make_failure(python="3.13", torch="2.5.1"),
            make_record(python="3.13", torch="2.6.0", speedup=0.5),
            unavailable=[("3.14", "2.5.1"), ("3.14", "2.6.0")],
        )
    )
    assert [(line.what, line.python, line.text) for line in found] == [
        ("ops.gp_evolve", "3.12", "works 2.5.1, not measured 2.6.0, wrong 2.15.0"),
        ("ops.gp_evolve", "3.13", "unsupported 2.5.1, slow 2.6.0, not measured 2.15.0"),
        ("ops.gp_evolve", "3.14", "unavailable 2.5.1 to 2.6.0, not measured 2.15.0"),
    ]


def test_other_code_is_one_line_per_python_that_names_its_worst_cases() -> None:
    one = make_record(torch="2.6.0")
    found = support_lines(
        evidence(
            one,
            replace(one, workload="ops.slow", speedup=make_record(speedup=0.5).speedup),
            replace(make_failure("wrong", "", torch="2.6.0"), workload="ops.wrong"),
            own=False,
        )
    )
    assert {line.what for line in found} == {"torch.compile"}
    assert "works (1 of 3 wrong) 2.6.0" in found[0].text


def test_a_case_of_another_engine_has_its_own_line_and_is_no_torch_compile() -> None:
    records = [
        *(
            replace(make_record(python=p, torch="2.5.1"), workload="hotpath.mlp", engine="hotpath")
            for p in ("3.12", "3.13")
        ),
        make_failure(python="3.13", torch="2.5.1"),
    ]
    own = {(line.what, line.python): line.text for line in support_lines(evidence(*records))}
    assert own["hotpath.mlp", "3.13"] == "works 2.5.1, not measured 2.6.0 to 2.15.0"
    assert own["ops.gp_evolve", "3.13"] == "unsupported 2.5.1, not measured 2.6.0 to 2.15.0"
    others = support_lines(evidence(*records, own=False))
    assert [(line.what, line.text) for line in others if line.python == "3.13"] == [
        ("torch.compile", "unsupported 2.5.1, not measured on bench 2.6.0 to 2.15.0")
    ]


def test_a_disturbed_run_speaks_against_no_python() -> None:
    slow = make_record(python="3.13", speedup=1.0, recorded_at="2026-11-28T12:00:00+00:00")
    found = evidence(make_record(python="3.12"), slow)
    assert recommendation("demo 1", found, None).startswith("By its own records take Python 3.12")
    loud = replace(found, disturbed={key_of(slow)})
    assert recommendation("demo 1", loud, None).startswith("By its own records take Python 3.13")


def test_its_own_records_decide_and_others_only_say_what_is_left_to_measure() -> None:
    own = evidence(make_record(python="3.12", torch="2.6.0"))
    suite = evidence(make_record(python="3.14", torch="2.15.0"), own=False)
    text = recommendation("demo 1", own, suite)
    assert text.startswith("By its own records take Python 3.12 with PyTorch 2.6.0:")
    assert "Python 3.14 is not in its own records; torch.compile works there" in text
    assert "says nothing of this code" in text


def test_without_records_of_its_own_nothing_is_claimed_about_it() -> None:
    suite = evidence(make_record(python="3.14", torch="2.15.0"), own=False)
    text = recommendation("demo 1", None, suite)
    assert text.startswith("No record is of demo 1: nothing here shows that it compiles")
    assert "about torch.compile itself" in text
    assert "1 record of suite, bench, cpu, commit" in text
    assert "own records" not in text


def test_no_cell_is_recommended_if_none_of_its_cases_has_a_right_result() -> None:
    own = evidence(make_failure("wrong", "", torch="2.6.0"), make_failure(torch="2.5.1"))
    suite = evidence(make_record(python="3.12", torch="2.6.0"), own=False)
    text = recommendation("demo 1", own, suite)
    assert text.startswith("No cell can be recommended for demo 1")
    assert "wrong: 1" in text


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with records, named demo."""
    root = tmp_path_factory.mktemp("measured")
    make_project(root)
    (root / "model.py").write_text("import torch\nf = torch.compile(torch.exp)\n")
    return root


def test_the_command_keeps_own_records_apart_from_those_of_others(
    measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(measured)
    runner = CliRunner()
    mine = json.loads(runner.invoke(app, ["advise", str(measured), "--json"]).stdout)
    assert [one["own"] for one in mine["evidence"]] == [True]
    assert mine["recommendation"].startswith("By its own records take Python")
    assert [site["line"] for site in mine["compiles"]] == [2]
    other = written(
        tmp_path,
        pyproject__toml='[project]\nname = "other"\ndependencies = ["torch>=2.8"]\n',
        a__py="import torch\ntorch.exp(x)\n",
        b__py="print 'hello'\n",
    )
    shown = runner.invoke(app, ["advise", str(other), "--json"])
    theirs = json.loads(shown.stdout)
    assert "b.py:1: does not parse" in shown.stderr
    assert [one["own"] for one in theirs["evidence"]] == [False]
    assert theirs["recommendation"].startswith("No record is of other:")
    texts = [line["text"] for line in theirs["evidence"][0]["support"]]
    assert texts
    assert not [text for text in texts if "2.6.0" in text]  # it requires a newer one
    for_people = runner.invoke(app, ["advise", str(other)], env={"COLUMNS": "80"})
    assert max(map(len, for_people.stdout.splitlines())) <= 80
    assert "nothing of other" in " ".join(for_people.stdout.split())


@pytest.mark.parametrize(
    ("files", "options", "said"),
    [
        (None, [], "there is no such file or folder"),
        ({"a__txt": ""}, [], "has no Python files"),
        ({"a__py": "def f(:\n"}, [], "no file of it parses: a.py:1"),
        (
            {"a__py": "", "pyproject__toml": project('requires-python = "<3.9"')},
            [],
            "excludes every cell of envs/matrix.toml: Python 3.12 to 3.14",
        ),
        (
            {"a__py": "", "pyproject__toml": project('requires-python = "three"')},
            [],
            "requires-python: must be a version specifier (got 'three')",
        ),
        (
            {"a__py": "", "pyproject__toml": project('dependencies = ["torch>>2"]')},
            [],
            "a requirement does not parse",
        ),
        ({"a__py": "", "requirements__txt": "torch >>2\n"}, [], "does not parse"),
        ({"a__py": "", "pyproject__toml": "["}, [], "is not valid TOML"),
        ({"a__py": ""}, ["--machine", "beach"], "unknown machine 'beach'"),
        (
            {"a__py": "", "pyproject__toml": project('dependencies = ["torch==2.10.0"]')},
            [],
            "no record speaks of a cell",
        ),
    ],
)
def test_what_cannot_be_advised_on_is_a_sentence(
    measured: Path, tmp_path: Path, files: dict[str, str] | None, options: list[str], said: str
) -> None:
    place = tmp_path / "nothing" if files is None else written(tmp_path, **files)
    with contextlib.chdir(measured):
        found = CliRunner().invoke(app, ["advise", str(place), *options])
    assert isinstance(found.exception, SpecError | ResultsError)
    assert said in str(found.exception)
    assert found.exception.hint


@pytest.mark.parametrize(("version", "own"), [("0.5.0", False), ("0.6.0", True)])
def test_the_records_of_a_project_that_requires_this_version_are_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, *, own: bool
) -> None:
    monkeypatch.chdir(ROOT / "examples" / "e3nn")
    text = f'[project]\nname = "e3nn"\nversion = "{version}"\n'
    place = written(tmp_path, pyproject__toml=text, a__py="")
    found = CliRunner().invoke(app, ["advise", str(place), "--json"])
    assert {one["own"] for one in json.loads(found.stdout)["evidence"]} == {own}
    said = "measures e3nn==0.6.0, and this code is 0.5.0" in " ".join(found.stderr.split())
    assert said is not own
