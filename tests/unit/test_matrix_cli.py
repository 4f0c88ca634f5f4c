"""``ivhl matrix`` and ``ivhl lock`` print tables and JSON, and its exit codes fit scripts."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from ivhl.cli import main
from ivhl.errors import InterpreterError
from ivhl.matrix import locks
from ivhl.matrix.locks import make_lock, matrix_digest, unavailable_path
from ivhl.matrix.project import find_root, load
from ivhl.matrix.spec import CellSpec

ROOT = find_root(Path(__file__).parent)
# CPython has free-threaded builds since 3.13.
ABSENT = CellSpec("3.11t", "2.15.0")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the project's matrix and locks, as the current folder."""
    shutil.copytree(ROOT / "envs", tmp_path / "envs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def ivhl(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ivhl:
    return Ivhl(monkeypatch, capsys)


class Ivhl:
    """Runs a command line; returns its exit code, stdout and stderr."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys
        monkeypatch.setenv("COLUMNS", "200")  # no column is folded

    def __call__(self, command: str) -> tuple[int, str, str]:
        """Run ``ivhl`` with these arguments."""
        self.monkeypatch.setattr("sys.argv", ["ivhl", *command.split()])
        with pytest.raises(SystemExit) as ended:
            main()
        said = self.capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err


@pytest.mark.usefixtures("project")
def test_list_shows_each_cell_with_its_lock(ivhl: Ivhl) -> None:
    code, out, _ = ivhl("matrix --all")
    assert code == 0
    n_cells = len(load(ROOT)[1].cells(tier="extended"))
    assert out.startswith(f"{n_cells} cells: ")
    assert re.search(r"py3\.13-torch2\.2\.2 +extended +unavailable", out)


@pytest.mark.usefixtures("project")
def test_list_selects_cells_and_prints_json(ivhl: Ivhl) -> None:
    code, out, _ = ivhl("matrix --json --python 3.13 --torch 2.2.2 --torch 2.5.0")
    rows = json.loads(out)["cells"]
    assert code == 0
    assert [(row["id"], row["tier"], row["lock"]) for row in rows] == [
        ("py3.13-torch2.2.2", "extended", "unavailable"),
        ("py3.13-torch2.5.0", None, "missing"),
    ]
    assert "no wheels" in rows[0]["message"]


def test_list_shows_damaged_and_stale_locks_instead_of_failing(project: Path, ivhl: Ivhl) -> None:
    locks = project / "envs" / "locks"
    (locks / "py3.12-torch2.5.1.txt").write_text("nonsense\n", encoding="utf-8")
    (locks / "py3.13-torch2.5.1.txt").write_text("# old\n", encoding="utf-8")
    code, out, _ = ivhl("matrix --torch 2.5.1 --json --python 3.12 --python 3.13")
    assert code == 0
    assert [row["lock"] for row in json.loads(out)["cells"]] == ["damaged", "stale"]


@pytest.mark.usefixtures("project")
def test_show_lists_the_packages_of_a_cell(ivhl: Ivhl) -> None:
    code, out, _ = ivhl("matrix py3.12-torch2.6.0")
    assert code == 0
    assert "locked, envs/locks/py3.12-torch2.6.0.txt" in out
    assert "triton" in out
    code, out, _ = ivhl("matrix py3.12-torch2.6.0 --json")
    assert json.loads(out)["packages"]["torch"] == "2.6.0"
    code, out, _ = ivhl("matrix py3.12-torch2.5.0 --torch 2.5.0")
    assert (code, "not in the matrix" in out) == (0, True)


@pytest.mark.usefixtures("project")
def test_diff_exits_1_when_cells_are_not_matched(ivhl: Ivhl) -> None:
    code, out, _ = ivhl("matrix py3.12-torch2.5.1 py3.13-torch2.5.1")
    assert (code, "matched: differ in python" in out, "no wheel for 3.13" in out) == (
        0,
        True,
        True,
    )
    code, out, _ = ivhl("matrix py3.12-torch2.5.1 py3.13-torch2.6.0 --json")
    assert (code, json.loads(out)["axis"], json.loads(out)["matched"]) == (1, "both", False)
    code, out, _ = ivhl("matrix py3.12-torch2.4.1 py3.13-torch2.4.1")
    assert (code, "not matched: py3.13-torch2.4.1 is unavailable" in out) == (1, True)


@pytest.mark.usefixtures("project")
def test_a_wrong_name_is_an_error_with_a_hint(ivhl: Ivhl) -> None:
    code, _, err = ivhl("matrix py3.12-torch2.6.1")
    assert (code, "Traceback" in err) == (2, False)
    assert "error: unknown cell 'py3.12-torch2.6.1'" in err
    assert "next: did you mean " in err
    assert "py3.12-torch2.6.0" in err


def test_check_prints_all_problems_and_exits_1(project: Path, ivhl: Ivhl) -> None:
    assert ivhl("check locks")[0] == 0
    locks = project / "envs" / "locks"
    (locks / "py3.12-torch2.6.0.txt").unlink()
    path = locks / "py3.13-torch2.15.0.txt"
    path.write_text("# from https://host/simple\n" + path.read_text("utf-8"), "utf-8")
    code, out, _ = ivhl("check locks")
    assert code == 1
    assert "py3.12-torch2.6.0.txt: is missing" in out
    assert "py3.13-torch2.15.0.txt: line 1: must hold no address" in out
    # Both are also found by their hashes.
    assert "py3.12-torch2.6.0.txt: is in SHA256SUMS, and missing" in out
    assert "4 problems" in out


def test_all_mistakes_of_a_matrix_are_printed(project: Path, ivhl: Ivhl) -> None:
    path = project / "envs" / "matrix.toml"
    text = path.read_text("utf-8").replace('"2.6.0"', "2.6").replace('"3.13"', '"3.x"')
    path.write_text(text, "utf-8")
    code, _, err = ivhl("check locks")
    assert code == 2
    assert "release: must be a string in quotes (got 2.6)" in err
    assert "version: must be a Python like 3.13" in err


@pytest.mark.usefixtures("project")
def test_lock_does_nothing_if_all_locks_are_fresh(ivhl: Ivhl) -> None:
    code, out, _ = ivhl("lock")
    assert (code, "every lock exists and is fresh" in out) == (0, True)


@pytest.mark.usefixtures("project")
def test_lock_prints_the_failures_of_every_release(
    ivhl: Ivhl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    code, _, err = ivhl("lock --torch 2.5.1 --torch 2.6.0")
    assert code == 3
    assert "py3.12-torch2.5.1: uv gives no answer" in err
    assert "py3.12-torch2.6.0: uv gives no answer" in err


def test_outside_of_a_project_the_error_has_a_hint(
    tmp_path: Path, ivhl: Ivhl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = ivhl("matrix")
    assert (code, "no envs/matrix.toml in" in err, "`ivhl init`" in err) == (
        2,
        True,
        True,
    )


def test_a_free_threaded_row_without_its_interpreter_is_named_with_the_next_step(
    project: Path, ivhl: Ivhl, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_python_nobody_has(project, monkeypatch)
    code, out, _ = ivhl("matrix --python 3.11t --torch 2.15.0")
    assert code == 0
    assert "not found: 3.11t" in out
    assert "1 missing" in out
    code, out, _ = ivhl("matrix py3.11t-torch2.15.0")
    assert code == 0
    assert "no Python 3.11t on this machine; looked here:" in out
    with pytest.raises(InterpreterError) as error:
        make_lock(project, load(project)[1], ABSENT)
    assert "uv python install 3.11t" in error.value.hint
    assert not list((project / "envs" / "locks").glob("py3.11t*"))


def test_the_locks_of_a_free_threaded_python_that_is_not_here_stay(
    project: Path, ivhl: Ivhl, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_python_nobody_has(project, monkeypatch)
    resolved: list[str] = []

    def resolve(*arguments: Any, **_: Any) -> tuple[str, str]:  # noqa: ANN401
        python, requirements = arguments[2:4]
        resolved.append(python)
        pin = "\\\n    --hash=sha256:" + "0" * 64 + "\n    # via -r requirements.in\n"
        return "", "".join(f"{one.replace('_', '-')} {pin}" for one in requirements)

    monkeypatch.setattr(locks, "resolve_requirements", resolve)
    lock = unavailable_path(project, ABSENT)
    digest = matrix_digest(load(project)[1], ABSENT)
    lock.write_text(f"# Matrix digest: {digest}\n\nno wheels\n", encoding="utf-8")
    code, out, _ = ivhl("lock --torch 2.15.0")
    assert code == 0
    assert "skipped 3.11t: no such interpreter here, so its locks are unchanged" in out
    assert {"3.12", "3.15"} <= {*resolved}
    assert lock.read_text(encoding="utf-8").endswith("no wheels\n")

    # Of a release that the matrix lacks, nobody misses the lock; of one that it has, the check does.
    assert ivhl("lock --torch 2.99.0")[0] == 0
    code, out, err = ivhl("lock --torch 2.15.0 --torch 2.14.1")
    assert code == 4
    assert "locked py3.12-torch2.14.1" in out
    assert "not locked: py3.11t-torch2.14.1: no Python 3.11t on this machine" in err


def add_python_nobody_has(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a free-threaded row, and hide the machine's interpreters."""
    for name in ("HOME", "PATH", "PYENV_ROOT", "UV_PYTHON_INSTALL_DIR"):
        monkeypatch.setenv(name, str(project / "nothing"))
    monkeypatch.setenv("UV_OFFLINE", "1")
    with (project / "envs" / "matrix.toml").open("a", encoding="utf-8") as matrix:
        matrix.write(f'\n[[python]]\nversion = "{ABSENT.python}"\ntier = "extended"\n')
