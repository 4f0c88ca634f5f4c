"""Whatever is in a configuration file or a declaration, a command ends with a sentence."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from ivhl.asv.configuration import load_configuration
from ivhl.cli import app
from ivhl.errors import IvhlError, ResultsError, SpecError, UnforeseenError, explained
from ivhl.init.check import check_project
from ivhl.init.source import read_source
from ivhl.matrix.locks import SUMS, changed_locks
from ivhl.matrix.project import load_project
from ivhl.matrix.spec import load_matrix
from ivhl.workload import Variant, Workload, load_workloads
from studies.stored import load_records
from tests.builders.fleet import a_record, make_fleet_project, write_records
from tests.builders.project import git, make_commits
from tests.builders.records import EMPTY_WORKLOAD

HERE = Path(__file__).parents[2]
MATRIX = """\
exclude-newer = {}
platform = "linux"
python = [{{version = "3.12"}}]
torch = [{{release = "2.6.0", tier = "default"}}]
{}
"""


@pytest.mark.parametrize(
    "text",
    [
        MATRIX.format("2026-11-15", "x = " + "[" * 3000 + "]" * 3000),
        MATRIX.format("2026-11-15", "x = " + "9" * 5000),
        MATRIX.format("2026-11-15", "x = 0x" + "f" * 5000),
        MATRIX.format("9999-12-31", ""),
        MATRIX.format("0001-01-01", ""),
        MATRIX.format("2026-11-15T12:00:00Z", ""),
        "x = 0x" + "f" * 5000,
        MATRIX.format("2026-11-15", "").replace("3.12", "3.1" + "2" * 5000),
        MATRIX.format("2026-11-15", "").replace("2.6.0", "2." + "6" * 5000),
        "[" * 2000,
        "\x00",
        "platform = 1\npython = 2\ntorch = 3\nalso = 4\nforced = 5\nexclude-newer = 6",
        "python = [[]]\ntorch = [1]\nforced = [{pythons = [[]]}]\nalso = [{}]",
    ],
)
def test_a_matrix_that_cannot_be_is_an_error_with_a_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "matrix.toml"
    path.write_text(text)
    with pytest.raises(SpecError):
        load_matrix(path)


@pytest.mark.parametrize(
    "text", ["x = " + "[" * 3000, "x = " + "9" * 5000, "\xff", "[tool]\nivhl=1"]
)
def test_a_project_that_cannot_be_is_an_error_with_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(SpecError):
        load_project(tmp_path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project whose ``asv.conf.json`` each test writes anew."""
    root = tmp_path_factory.mktemp("shared")
    make_fleet_project(root)
    shutil.copy(root / "asv.conf.json", root / "good.json")
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_fleet_project(tmp_path)
    return tmp_path


OF_ASV = (
    "project", "project_url", "repo_subdir", "branches", "pythons", "matrix", "exclude", "include",
    "env_dir", "results_dir", "html_dir", "show_commit_url", "hash_length", "install_timeout",
    "default_benchmark_timeout", "dvcs", "regressions_first_commits", "regressions_thresholds",
    "plugins", "build_cache_size", "launch_method", "conda_channels",
)  # fmt: skip


@pytest.mark.parametrize("key", OF_ASV)
def test_a_key_of_asv_with_a_wrong_type_is_named(shared: Path, key: str) -> None:
    path = shared / "asv.conf.json"
    good = json.loads((shared / "good.json").read_text())
    values: tuple[object, ...] = (True, [[1]], {"(": {}}, -1, [None])
    for value in values:
        path.write_text(json.dumps(good | {key: value}))
        if key == "matrix" and isinstance(value, dict):
            continue
        with pytest.raises(SpecError, match=rf"asv\.conf\.json: {key}: must be"):
            load_configuration(shared)


@pytest.mark.parametrize(
    "text", ["[]", "5", "null", '"x"', "[" * 5000, "{", "\x00", '{"version": 9}']
)
def test_a_configuration_that_is_no_table_is_an_error(shared: Path, text: str) -> None:
    (shared / "asv.conf.json").write_text(text)
    with pytest.raises(SpecError):
        load_configuration(shared)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("branches", ["a\0b"]),
        ("branches", ["\ud800"]),
        ("project", "\ud800"),
        ("pythons", "3.12\0"),
        ("regressions_thresholds", {"a{99999999999999999999}": 0.1}),
        ("regressions_thresholds", {"(" * 5000 + ")" * 5000: 0.1}),
    ],
)
def test_a_text_that_no_program_takes_is_named(shared: Path, key: str, value: object) -> None:
    good = json.loads((shared / "good.json").read_text())
    (shared / "asv.conf.json").write_text(json.dumps(good | {key: value}))
    with pytest.raises(SpecError, match=rf"asv\.conf\.json: {key}: must be"):
        load_configuration(shared)


def test_a_pattern_of_which_python_warns_is_a_pattern(shared: Path) -> None:
    good = json.loads((shared / "good.json").read_text())
    patterns = {"[[a]": 0.1}
    (shared / "asv.conf.json").write_text(json.dumps(good | {"regressions_thresholds": patterns}))
    assert load_configuration(shared)["regressions_thresholds"] == patterns


@pytest.mark.parametrize(
    "value", [[1], {"req": [1]}, {"req": {"torch": 5}}, {"req": {"torch": [[]]}}]
)
def test_lists_of_releases_of_any_type_are_no_traceback_of_check(
    root: Path, value: object
) -> None:
    good = json.loads((root / "asv.conf.json").read_text())
    (root / "asv.conf.json").write_text(json.dumps(good | {"matrix": value}))
    assert all("Error" not in problem for problem in check_project(root).problems)


BAD_TABLES = (
    ("project", "project = 5"),
    ("project.name", "[project]\nname = 5"),
    ("project.dynamic", '[project]\nname = "a"\ndynamic = 5'),
    ("project.dependencies", '[project]\nname = "a"\ndependencies = 5'),
    ("project.dependencies.0", '[project]\nname = "a"\ndependencies = [5]'),
    ("project.requires-python", '[project]\nname = "a"\nrequires-python = 5'),
    ("build-system", 'build-system = 5\n[project]\nname = "a"'),
    ("build-system.requires", '[build-system]\nrequires = {}\n[project]\nname = "a"'),
    ("build-system.requires.1", '[build-system]\nrequires = ["b", {}]\n[project]\nname = "a"'),
    ("tool", 'tool = 5\n[project]\nname = "a"'),
    ("tool.ivhl", '[tool]\nivhl = 5\n[project]\nname = "a"'),
)


@pytest.mark.parametrize(("place", "text"), BAD_TABLES)
def test_a_pyproject_with_values_of_the_wrong_type_is_named_by_init_and_check(
    shared: Path, tmp_path: Path, place: str, text: str
) -> None:
    git(tmp_path, "init", "-q")
    shutil.copytree(shared / "envs", tmp_path / "envs")
    matrix = tmp_path / "envs" / "matrix.toml"
    matrix.write_text(f'requires = ["numpy"]\n{matrix.read_text()}')
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(SpecError, match=rf"^pyproject\.toml: {place}: must be"):
        read_source(tmp_path)
    problems = check_project(tmp_path).problems
    assert any(problem.startswith(f"pyproject.toml: {place}: must be") for problem in problems)


GOOD = {name: getattr(EMPTY_WORKLOAD, name) for name in EMPTY_WORKLOAD.__slots__}


class _NotOurs:
    """Has the name of ours, as a declaration imported twice has, and none of its fields."""


_NotOurs.__name__ = "Workload"
_NotOurs.__qualname__ = "Workload"


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"name": 5}, "name must be a text (got 5)"),
        ({"version": "1"}, "version must be an integer from 1"),
        ({"version": True}, "version must be an integer from 1"),
        ({"sizes": ["small"]}, "sizes must be a dictionary of names"),
        ({"sizes": {1: 1}}, "sizes must be a dictionary of names"),
        ({"variants": [1]}, "variants must be a tuple of Variant"),
        ({"variants": (1,)}, "variant 0 must be a Variant (got int)"),
        ({"variants": (Variant(name=3),)}, "variant 0: name must be a text"),  # type: ignore[arg-type]
        ({"variants": (Variant(name="a", devices="cpu"),)}, "devices must be a tuple of texts"),  # type: ignore[arg-type]
        ({"variants": (Variant(name="a", mode="x"),)}, "mode must be one of default"),  # type: ignore[arg-type]
        ({"variants": (Variant(name="a", dtype="x"),)}, "dtype must be None or one of"),  # type: ignore[arg-type]
        ({"variants": (Variant(name="a", dynamic="x"),)}, "dynamic must be None or True or False"),  # type: ignore[arg-type]
        ({"dtype": 32}, "dtype must be one of float32"),
        ({"passes": []}, "passes must be None or one of forward, backward, step"),
        ({"variants": (Variant(name="a", compiles="x"),)}, "compiles must be one of whole"),  # type: ignore[arg-type]
        ({"tolerance": "1e-4"}, "tolerance must be a positive number"),
        ({"outputs": "y"}, "outputs must be a tuple of texts"),
        ({"fixed": 1}, "fixed must be a tuple"),
        ({"name": "x" * 101}, "1 to 100 bytes"),
        ({"name": "a\x1b[2J"}, "must be printable"),
        ({"sizes": {"": 1}, "default_size": ""}, "1 to 100 bytes"),
        ({"make_inputs": None}, "make_inputs must be a text"),
    ],
)
def test_a_malformed_workload_is_named(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], rule: str
) -> None:
    module = SimpleNamespace(WORKLOADS=(Workload(**(GOOD | changes)),))
    monkeypatch.setitem(sys.modules, "hostile_workloads", module)
    with pytest.raises(SpecError) as caught:
        load_workloads("hostile_workloads:WORKLOADS")
    assert rule in str(caught.value)


def test_something_that_only_has_the_name_of_a_workload_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = SimpleNamespace(WORKLOADS=(_NotOurs(),))
    monkeypatch.setitem(sys.modules, "hostile_workloads", module)
    with pytest.raises(SpecError, match="a workload: name must be a text"):
        load_workloads("hostile_workloads:WORKLOADS")


@pytest.mark.parametrize("status", ["0", "3", ""])
def test_declarations_that_end_the_process_are_an_error(
    root: Path, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    (root / "ending.py").write_text(f"import sys\nsys.exit({status})\n")
    project = root / "pyproject.toml"
    text = project.read_text().replace("tests.builders.fleet:WORKLOADS", "ending:WORKLOADS")
    project.write_text(text)
    record = a_record(root)
    write_records(root / "offered", record)
    monkeypatch.chdir(root)
    done = CliRunner().invoke(app, ["import", "offered"])
    assert isinstance(done.exception, SpecError)
    assert "does not import: calls sys.exit(" in str(done.exception)


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (SpecError("x"), SpecError, "x"),
        (
            OSError(28, "No space left on device", "/disk/x"),
            ResultsError,
            "/disk/x: No space left",
        ),
        (PermissionError(13, "Permission denied", "/x"), ResultsError, "/x: Permission denied"),
        (OSError("odd"), ResultsError, "odd"),
        (RecursionError("maximum"), SpecError, "nested too deeply"),
        (TypeError("a"), UnforeseenError, "TypeError: a"),
    ],
)
def test_every_error_has_a_sentence_and_a_next_step(
    error: Exception, kind: type[IvhlError], words: str
) -> None:
    found = explained(error)
    assert type(found) is kind
    assert words in str(found)
    assert found.hint or found is error


def run(root: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ivhl", *arguments],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(HERE)} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_commands_end_without_a_traceback(root: Path) -> None:
    write_records(root / "results", a_record(root))
    make_commits(root, 1)
    loop = root / "loop"
    loop.symlink_to("loop")
    (root / "file").touch()
    calls = [
        (("publish", "--output", "loop"), {}),
        (("publish", "--output", "file/site"), {}),
        (("import", "results", "--results", "loop"), {}),
        (("import", "results", "--results", "file"), {}),
        (("publish",), {"PATH": "/no/such"}),
        (("compat",), {"PATH": "/no/such"}),
        (("gate", "--base", "HEAD~1", "--results", "/no/such", "--allow-missing"), {}),
        (("gate", "--base", "HEAD~1"), {"PATH": "/no/such"}),
    ]
    for arguments, environment in calls:
        done = run(root, *arguments, **environment)
        assert "Traceback" not in done.stderr, (arguments, done.stderr)
        if arguments[0] != "compat":
            assert done.returncode not in (0, 70), (arguments, done.stdout, done.stderr)
            assert "error:" in done.stderr


def test_a_traceback_is_printed_on_request(root: Path) -> None:
    done = run(root, "publish", "--output", "/proc/x", IVHL_TRACEBACK="1")
    assert "Traceback" in done.stderr


def test_a_hash_that_was_changed_in_a_lock_is_found(tmp_path: Path) -> None:
    shutil.copytree(HERE / "envs" / "locks", tmp_path / "envs" / "locks")
    assert changed_locks(tmp_path) == []
    lock = tmp_path / "envs" / "locks" / "py3.12-torch2.6.0.txt"
    text = lock.read_text()
    place = text.index("--hash=sha256:") + len("--hash=sha256:")
    lock.write_text(text[:place] + ("0" if text[place] != "0" else "1") + text[place + 1 :])
    (found,) = changed_locks(tmp_path)
    assert found.startswith("py3.12-torch2.6.0.txt: was edited since it was made: its hash is not")
    lock.rename(lock.with_name("py3.12-torch2.6.99.txt"))
    assert len(changed_locks(tmp_path)) == 2
    (lock.parent / SUMS).unlink()
    assert changed_locks(tmp_path) == []


@pytest.mark.parametrize(
    "names",
    [
        ["pyproject.toml"],
        ["envs/matrix.toml"],
        ["envs/locks/py3.12-torch2.6.0.txt", "envs/locks/SHA256SUMS"],
        ["results/box/machine.json", "results/confirmations.jsonl", "results/provenance.jsonl"],
    ],
)
def test_a_pipe_in_the_place_of_a_file_is_waited_for_by_no_command(
    root: Path, names: list[str]
) -> None:
    write_records(root / "offered", a_record(root))
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).unlink(missing_ok=True)
        os.mkfifo(root / name)
    script = (
        "import sys; from ivhl.cli import main\n"
        "for words in ('import offered', 'compat', 'publish --no-asv', 'matrix check',"
        " 'regressions'):\n"
        "    sys.argv = ['ivhl', *words.split()]\n"
        "    try: main()\n"
        "    except SystemExit as end: assert end.code not in (70, 99), (words, end.code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(HERE)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr


def test_a_folder_of_records_that_cannot_be_read_is_named(root: Path) -> None:
    write_records(root / "results", a_record(root))
    other = root / "results" / "other"
    other.mkdir()
    (other / "records").symlink_to("records")
    (root / "results" / "third").mkdir()
    (root / "results" / "third" / "records").touch()
    loaded = load_records(root / "results")
    assert len(loaded.records) == 1
    assert [problem.path.parent.name for problem in loaded.problems] == ["other", "third"]
    (root / "file").touch()
    assert [str(one) for one in load_records(root / "file").problems] == [
        f"{root / 'file'}: cannot be read: Not a directory"
    ]
    assert load_records(root / "none").problems == ()
