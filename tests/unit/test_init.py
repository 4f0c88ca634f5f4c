"""``ivhl init`` makes a project measurable, changes nothing there, and explains refusals."""

from __future__ import annotations

import ast
import datetime as dt
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from ivhl.cli import app
from ivhl.errors import LockError, SpecError
from ivhl.init import plan as planning
from ivhl.init.declare import declaration, write_changes
from ivhl.init.plan import make_plan
from ivhl.init.source import read_source
from ivhl.matrix import locks
from ivhl.matrix.project import load
from ivhl.matrix.spec import CellSpec, load_matrix
from ivhl.workload import load_workloads, use_benchmarks
from tests.builders.adopting import PACKAGE, PYPROJECT, TODAY, init, project, resolver  # noqa: F401  (a fixture)
from tests.builders.project import git

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def test_the_project_can_be_loaded_and_its_declarations_need_no_torch(tmp_path: Path) -> None:
    root = project(tmp_path / "demo", {"pyproject.toml": PYPROJECT, **PACKAGE})
    assert init(root, ["3.12"], ["2.15.0", "2.5.1"]) == []
    found, matrix = load(root)
    assert found == root
    assert matrix.requires == ("einops>=0.8", 'tomli; python_version < "3.11"', "hatchling")
    assert matrix.releases() == ("2.5.1", "2.15.0")
    assert matrix.exclude_newer == dt.date(2026, 11, 22)
    calls = (root / "benchmarks" / "model_calls.py").read_text()
    ast.parse(calls)
    assert "import tensor_things" in calls
    code, said = checked(root)
    assert (code, said.splitlines()[-1]) == (0, "in order: 2 cells, 2 workloads")
    assert "nothing of tensor-things yet" in said


def test_run_again_it_changes_nothing(tmp_path: Path) -> None:
    root = project(tmp_path / "demo", {"pyproject.toml": PYPROJECT, **PACKAGE})
    init(root, ["3.12", "3.13"], ["2.5.1"], github=True)
    before = {p: p.read_bytes() for p in root.rglob("*") if p.is_file()}
    again = make_plan(root, ["3.12", "3.13"], ["2.5.1"], github=True, today=TODAY)
    assert (again.changes, again.notes) == ((), ())
    init(root, ["3.12"], [], github=True)
    assert before == {p: p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_what_takes_long_is_said_only_when_it_begins(tmp_path: Path) -> None:
    root = project(tmp_path / "demo", {"pyproject.toml": PYPROJECT, **PACKAGE})
    told: list[str] = []
    for python, releases in (("2.7", ["2.5.1"]), ("3.12", ["no"])):
        with pytest.raises(SpecError):
            make_plan(root, [python], releases, github=False, today=TODAY, tell=told.append)
    assert told == []
    plan = make_plan(root, ["3.12"], ["2.5.1"], github=False, today=TODAY, tell=told.append)
    assert told == ["resolving the packages of 1 cell ..."]
    write_changes(root, plan.changes)
    make_plan(root, ["3.12"], ["2.5.1"], github=False, today=TODAY, tell=told.append)
    assert len(told) == 1  # nothing is left to resolve


def test_what_is_there_is_added_to_and_never_changed(tmp_path: Path) -> None:
    there = {"pyproject.toml": PYPROJECT.rstrip("\n"), ".gitignore": "*.pyc\n/site", **PACKAGE}
    root = project(tmp_path / "demo", there | {"benchmarks/mine.py": "x = 1\n"})
    init(root, ["3.12"], ["2.5.1"])
    for name, text in there.items():
        assert (root / name).read_text().startswith(text)
    assert (root / ".gitignore").read_text() == "*.pyc\n/site\n/.asv/\n"
    assert tomllib.loads((root / "pyproject.toml").read_text())["tool"]["ivhl"] == {
        "benchmarks": "ivhl_benchmarks"
    }
    assert not (root / "benchmarks" / "__init__.py").exists()


def test_a_file_that_appears_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    root = project(tmp_path / "demo", {"pyproject.toml": PYPROJECT, **PACKAGE})
    plan = make_plan(root, ["3.12"], ["2.5.1"], github=False, today=TODAY)
    (root / "envs").mkdir()
    (root / "envs" / "matrix.toml").write_text("mine")
    with pytest.raises(SpecError, match=r"matrix\.toml: cannot be written: File exists"):
        write_changes(root, plan.changes)
    assert (root / "envs" / "matrix.toml").read_text() == "mine"


def test_packages_that_only_some_pythons_have_get_a_row(tmp_path: Path) -> None:
    root = project(tmp_path / "demo", {"pyproject.toml": PYPROJECT, **PACKAGE})
    init(root, ["3.12", "3.13"], ["2.5.1"])
    (row,) = load_matrix(root / "envs" / "matrix.toml").forced
    assert (row.torch, row.package, row.pythons) == ("2.5.1", "triton", ("3.12",))


@pytest.mark.parametrize("python", ["abc", "", "3", "2.7", "3.x", "3.12.4", "312"])
def test_what_is_no_python_is_refused(tmp_path: Path, python: str) -> None:
    root = project(tmp_path / "demo", {"pyproject.toml": PYPROJECT, **PACKAGE})
    with pytest.raises(SpecError, match="--python: must be a Python like") as refused:
        init(root, [python], ["2.5.1"])
    assert "this one is 3." in refused.value.hint


def test_rows_that_a_matrix_lacks_are_named_and_not_written(tmp_path: Path) -> None:
    root = project(tmp_path / "demo", {"pyproject.toml": PYPROJECT, **PACKAGE})
    init(root, ["3.12"], ["2.5.1"])
    assert [note.split("; ")[1] for note in init(root, ["3.13"], ["2.6.0"])] == [
        'add [[python]] version = "3.13"',
        'add [[torch]] release = "2.6.0"',
    ]


def test_a_package_in_a_folder_of_the_repository_gets_its_own_matrix(tmp_path: Path) -> None:
    project(tmp_path / "mono", {"packages/demo/pyproject.toml": PYPROJECT, "README": "x"})
    root = tmp_path / "mono" / "packages" / "demo"
    plan = make_plan(root, ["3.12"], ["2.5.1"], github=True, today=TODAY)
    assert "../../.github/workflows/ivhl.yml" in [one.path.as_posix() for one in plan.changes]
    write_changes(root, plan.changes)
    assert (root / "envs" / "matrix.toml").is_file()
    workflow = (tmp_path / "mono" / ".github" / "workflows" / "ivhl.yml").read_text()
    assert "packages/demo" in workflow
    # A branch would run what is pushed there later.
    pins = set(re.findall(r"ivhl/ivhl/\S+@(\S+)", workflow))
    assert pins == {git(Path(__file__).parents[2], "rev-parse", "HEAD")}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"url": "https://github.com/ivhl/ivhl", "vcs_info": {"commit_id": "a" * 40}}, "a" * 40),
        ({"url": "CLONE", "dir_info": {"editable": True}}, "HEAD"),
        ({"url": "https://files.example/ivhl.whl", "archive_info": {}}, ""),
        ({"url": "file://INSIDE", "dir_info": {}}, ""),
        ({}, ""),
    ],
)
def test_a_workflow_is_pinned_to_the_commit_that_was_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: dict[str, Any], expected: str
) -> None:
    """A wheel in a project's own environment is not of the project's commit."""
    root = project(tmp_path / "a b", {"ivhl/x.py": ""})
    text = json.dumps(source).replace("CLONE", root.as_uri()).replace("INSIDE", f"{root}/ivhl")
    monkeypatch.setattr(planning, "__file__", str(root / ".venv" / "lib" / "init" / "x.py"))
    monkeypatch.setattr(
        planning, "distribution", lambda _: SimpleNamespace(read_text=lambda _: text)
    )
    if not expected:
        with pytest.raises(SpecError, match="commit of the installed ivhl is not known") as raised:
            planning.installed_commit()
        assert "pip install git+https" in str(raised.value.hint)
        return
    head = git(root, "rev-parse", "HEAD") if expected == "HEAD" else expected
    assert planning.installed_commit() == head


def test_a_project_of_setuptools_old_form_is_named_in_a_new_pyproject(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = project(
        tmp_path / "demo", {"setup.py": "from setuptools import setup\nsetup(packages=[])\n"}
    )
    monkeypatch.setattr(
        "ivhl.init.source._built_metadata", lambda _: ("old-form", ["torch", "einops>=0.8"], "")
    )
    init(root, ["3.12"], ["2.5.1"])
    assert tomllib.loads((root / "pyproject.toml").read_text()) == {
        "tool": {"ivhl": {"name": "old-form", "benchmarks": "benchmarks"}}
    }
    assert load_matrix(root / "envs" / "matrix.toml").requires == (
        "einops>=0.8",
        "setuptools>=40.8.0",
    )


SETUP = """\
import torch
from setuptools import setup

setup(name="needs-torch", install_requires=["torch>=2", "einops>=0.8"], python_requires=">=3.10")
"""


def fails_to_build(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    def run(arguments: Sequence[str], *, cwd: Path) -> subprocess.CompletedProcess[str]:
        del cwd
        return subprocess.CompletedProcess(arguments, 2, "", said)

    monkeypatch.setattr("ivhl.init.source.run_uv", run)


def test_a_setup_that_imports_torch_is_read_where_it_cannot_be_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails_to_build(monkeypatch, "ModuleNotFoundError: No module named 'torch'\n")
    found = read_source(project(tmp_path / "one", {"setup.py": SETUP}))
    assert (found.name, found.requires) == ("needs-torch", ("einops>=0.8",))
    assert (str(found.torch), str(found.requires_python)) == (">=2", ">=3.10")
    computed = SETUP.replace('"needs-torch"', "name()")
    with pytest.raises(SpecError, match="No module named 'torch'") as refused:
        read_source(project(tmp_path / "two", {"setup.py": computed}))
    assert "write [project] name and dependencies" in refused.value.hint


def test_a_failed_build_says_what_the_compiler_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "c.c:1:2: error: #error no header\nerror: Failed to build\n  cause: an error\n"
    fails_to_build(monkeypatch, f"{said}error: command '/usr/bin/gcc' failed\nhint: usually ...\n")
    with pytest.raises(
        SpecError, match=r"built to learn them: c\.c:1:2: error: #error no header$"
    ):
        read_source(project(tmp_path / "one", {"setup.py": SETUP}))


@pytest.mark.parametrize(
    ("files", "message", "hint"),
    [
        ({"README": "x"}, "no pyproject.toml and no setup.py", "write a pyproject.toml"),
        (
            {"lib/pyproject.toml": PYPROJECT},
            "no pyproject.toml and no setup.py",
            "e.g. cd lib",
        ),
        ({"pyproject.toml": "[project"}, "is not valid TOML", "correct "),
        (
            {"pyproject.toml": PYPROJECT.replace(">=3.10", ">=3.13")},
            "requires-python '>=3.13' excludes Python 3.12",
            "--python 3.13,",
        ),
        ({"setup.cfg": "[metadata]\nname = x\n"}, "has a setup.cfg alone", "[build-system]"),
        (
            {"pyproject.toml": PYPROJECT.replace("einops>=0.8", "einops @ git+https://x/y")},
            "einops comes from an address",
            "require a release",
        ),
        ({"pyproject.toml": PYPROJECT.replace("einops>=", "einops=>")}, "einops=>0.8", "correct"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_the_next_step(
    tmp_path: Path, files: Mapping[str, str], message: str, hint: str
) -> None:
    root = project(tmp_path / "demo", files)
    with pytest.raises(SpecError) as refused:
        make_plan(root, ["3.12"], ["2.5.1"], github=False, today=TODAY)
    assert message in str(refused.value)
    assert hint in refused.value.hint
    assert not (root / "envs").exists()


def test_outside_of_git_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    with pytest.raises(SpecError, match="is in no git repository"):
        make_plan(tmp_path, ["3.12"], ["2.5.1"], github=False, today=TODAY)


def test_a_release_that_the_project_excludes_is_measured_and_said_to_be_so(tmp_path: Path) -> None:
    text = PYPROJECT.replace("torch>=2.2", "torch==2.6.0")
    root = project(tmp_path / "demo", {"pyproject.toml": text, **PACKAGE})
    (note,) = init(root, ["3.12"], ["2.5.1", "2.6.0"])
    assert "requires torch==2.6.0, which excludes 2.5.1" in note


# --- ivhl check


@pytest.fixture
def made(tmp_path: Path) -> Path:
    root = project(tmp_path / "demo", {"pyproject.toml": PYPROJECT, **PACKAGE})
    init(root, ["3.12"], ["2.5.1"])
    git(root, "add", "--all")
    git(root, "commit", "-q", "-m", "Measure it")
    return root


def checked(root: Path) -> tuple[int, str]:
    """Run ``ivhl check``, in a process of its own: it imports a package named benchmarks."""
    done = subprocess.run(
        [sys.executable, "-m", "ivhl", "check"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_records_that_cannot_be_read_are_problems_of_a_check(made: Path) -> None:
    assert checked(made)[0] == 0
    for name in ("results/box/records/a.jsonl", "observatory/records/b.jsonl"):
        (made / name).parent.mkdir(parents=True)
        (made / name).write_text("{\n")
    (made / "observatory" / "libraries.toml").write_text("")
    code, told = checked(made)
    assert code == 1
    assert "problem: results/box/records/a.jsonl:1: must be JSON" in told
    assert "b.jsonl" in told


@pytest.mark.parametrize(
    ("path", "old", "new", "problem"),
    [
        ("envs/matrix.toml", "2.5.1", "2.6.0", "py3.12-torch2.6.0.txt: is missing"),
        ("pyproject.toml", '"hatchling"', '"pdm-backend"', "requires: lacks 'pdm-backend'"),
        (
            "pyproject.toml",
            'benchmarks = "',
            'benchmark = "',
            "tool.ivhl.benchmark: is no known key",
        ),
        (
            "benchmarks/model.py",
            "}:make_model",
            "}:make_models",
            "benchmarks/model_calls.py defines no make_models",
        ),
        ("benchmarks/model.py", "model_calls", "calls", "there is no module benchmarks.calls"),
        (
            "benchmarks/model.py",
            "from ivhl",
            "raise OSError\nfrom ivhl",
            "does not import: OSError",
        ),
        (
            "benchmarks/model.py",
            "from ivhl",
            "exit(3)\nfrom ivhl",
            "does not import: calls sys.exit(3): a module may not end the process",
        ),
        ("benchmarks/model_calls.py", "import torch", "import torch as", "model_calls.py:3: "),
    ],
)
def test_each_mistake_is_named_with_its_file(
    made: Path, path: str, old: str, new: str, problem: str
) -> None:
    text = (made / path).read_text()
    assert old in text
    (made / path).write_text(text.replace(old, new))
    code, said = checked(made)
    assert (code, problem in said) == (1, True), said


def edit(lock: Path) -> None:
    """Change a hash, which leaves a valid lock."""
    text = lock.read_text()
    lock.write_text(text.replace("--hash=sha256:0", "--hash=sha256:1", 1))


def test_an_edited_lock_is_a_problem_and_is_not_installed(made: Path) -> None:
    assert "edited" not in checked(made)[1]
    name = "py3.12-torch2.5.1.txt"
    edit(made / "envs" / "locks" / name)
    code, said = checked(made)
    assert (code, f"{name}: was edited since it was made" in said) == (1, True), said
    matrix = load_matrix(made / "envs" / "matrix.toml")
    with pytest.raises(LockError, match="was edited since it was made") as caught:
        locks.ensure_lock(made, matrix, CellSpec("3.12", "2.5.1"))
    assert f"git checkout -- envs/locks/{name}" in str(caught.value.hint)


def test_locks_that_are_added_are_added_to_the_hashes(made: Path) -> None:
    path = made / "envs" / "matrix.toml"
    row = '\n[[torch]]\nrelease = "2.6.0"\ntier = "default"\n'
    path.write_text(path.read_text() + row)
    init(made)
    assert (locks.read_sums(made / "envs" / "locks") or {}).keys() == {
        "py3.12-torch2.5.1.txt",
        "py3.12-torch2.6.0.txt",
    }
    assert locks.changed_locks(made) == []


def test_a_project_without_hashes_of_its_locks_gets_them_with_the_next_lock(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums = made / "envs" / "locks" / locks.SUMS
    sums.unlink()
    code, said = checked(made)
    assert (code, "no edited lock is noticed; ivhl lock writes it" in said) == (0, True)
    monkeypatch.chdir(made)
    done = CliRunner().invoke(app, ["lock"])
    assert (done.exit_code, f"wrote envs/locks/{locks.SUMS}" in done.output) == (0, True)
    edit(made / "envs" / "locks" / "py3.12-torch2.5.1.txt")
    assert len(locks.changed_locks(made)) == 1


def test_a_configuration_of_asv_must_list_the_cells_of_the_matrix(made: Path) -> None:
    cells = '"pythons": ["3.13"], "matrix": {"req": {"torch": ["2.6.0"]}}'
    conf = f'{{"version": 1, "plugins": [".ivhl.asv"], {cells}}}'
    (made / "asv.conf.json").write_text(conf)
    code, said = checked(made)
    assert code == 1
    assert "asv.conf.json: pythons: must be the default tier of envs/matrix.toml: 3.12" in said
    assert "matrix.req.torch: must be the default tier of envs/matrix.toml: 2.5.1" in said


OPS = """
import torch
def softplus(x): ...
def mix(a, b, scale=2): ...
class Net(torch.nn.Module):
    def __init__(self, size, width=2): ...
    def forward(self, x, y): ...
"""


@pytest.mark.parametrize(
    ("target", "file", "inputs"),
    [
        ("demo.ops:softplus", "softplus", 1),
        ("demo.ops:mix", "mix", 2),
        ("demo.ops:Net(3, width=4)", "net", 2),
        ("torch.nn.functional:softmax", "softmax", 1),
    ],
)
def test_a_target_is_declared_in_one_file_that_is_read_as_it_is_named(
    tmp_path: Path, target: str, file: str, inputs: int
) -> None:
    root = project(tmp_path / "demo", {"pyproject.toml": PYPROJECT, **PACKAGE, "demo/ops.py": OPS})
    folder = f"bench_{file}"
    (root / folder).mkdir()
    (root / folder / "__init__.py").write_text("")
    change = declaration(root, folder, target)
    write_changes(root, [change])
    assert change.data.decode().count("torch.randn") == inputs
    use_benchmarks(root, folder)
    (only,) = load_workloads(folder)
    assert target in (only.eager, only.make_model)
    assert only.make_inputs == f"{folder}.{file}:inputs"
    assert declaration(root, folder, target) == change  # a killed run goes on
    (root / change.path).write_text("mine")
    with pytest.raises(SpecError, match="is there already"):
        declaration(root, folder, target)


@pytest.mark.parametrize(
    ("target", "says", "hint"),
    [
        ("demo.ops:softpls", "ops.py defines no softpls", "did you mean softplus?"),
        ("demo.op:softplus", "the project has no module demo.op", "as it is imported"),
        ("softplus", "must be package.module:function", "as it is imported"),
        ("demo.ops:Net(x)", "must be a name with literal arguments", "make_model"),
        ("demo.ops:Net", "Net needs arguments to be made", "write them: demo.ops:Net(...)"),
    ],
)
def test_a_target_that_is_not_there_is_refused_before_anything_is_resolved(
    tmp_path: Path, target: str, says: str, hint: str
) -> None:
    root = project(tmp_path / "demo", {"pyproject.toml": PYPROJECT, **PACKAGE, "demo/ops.py": OPS})
    with pytest.raises(SpecError, match=re.escape(says)) as refused:
        make_plan(root, ["3.12"], ["2.5.1"], github=False, today=TODAY, target=target)
    assert hint in refused.value.hint
