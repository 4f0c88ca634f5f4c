"""A Python is found on PATH, in pyenv or by uv, checked by running it, and is never a shim."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

import pytest

from ivhl.errors import InterpreterError
from ivhl.matrix.interpreter import find_free_threaded, find_interpreter

FLAG = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
THIS = f"{sys.version_info[0]}.{sys.version_info[1]}{FLAG}"
FULL = ".".join(map(str, sys.version_info[:3])) + FLAG
REAL = Path(sys._base_executable).resolve()  # type: ignore[attr-defined]

pytestmark = pytest.mark.skipif(os.name == "nt", reason="stands on shell scripts and links")


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hide the Pythons of this machine; return an empty folder that is on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("UV_OFFLINE", "1")
    return folder


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def link(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(REAL)


def test_a_python_on_path_is_found_with_its_real_path(tmp_path: Path, bare_machine: Path) -> None:
    script(bare_machine / f"python{THIS}", f'exec "{REAL}" "$@"')
    found = find_interpreter(tmp_path, THIS)
    assert (found.path, found.full_version) == (REAL, FULL)


def test_a_virtual_environment_gives_its_base_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "venv" / "bin"
    folder.mkdir(parents=True)
    (tmp_path / "venv" / "pyvenv.cfg").write_text(f"home = {REAL.parent}\n", encoding="utf-8")
    # A copy, as from ``venv --copies``: a link would resolve to the real one.
    shutil.copy(REAL, folder / "python3")
    monkeypatch.setenv("PATH", str(folder))
    found = find_interpreter(tmp_path, THIS).path
    assert tmp_path not in found.parents
    assert found.samefile(REAL)


def test_a_failing_shim_is_skipped(tmp_path: Path, bare_machine: Path) -> None:
    script(bare_machine / f"python{THIS}", "echo 'pyenv: command not found' >&2; exit 127")
    link(tmp_path / "pyenv" / "versions" / FULL / "bin" / "python")
    assert find_interpreter(tmp_path, THIS).path == REAL


def test_a_shim_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shims, run = tmp_path / "pyenv" / "shims", tmp_path / "run"
    script(shims / f"python{THIS}", f': >{run}; exec "{REAL}" "$@"')
    monkeypatch.setenv("PATH", f"{shims}{os.pathsep}{os.environ['PATH']}")
    link(tmp_path / "pyenv" / "versions" / FULL / "bin" / "python")
    assert find_interpreter(tmp_path, THIS).path == REAL
    assert not run.exists()


def test_pyenv_in_the_home_folder_is_found_without_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYENV_ROOT")
    link(tmp_path / "home" / ".pyenv" / "versions" / FULL / "bin" / "python")
    assert find_interpreter(tmp_path, THIS).path == REAL


def answer(full: str, executable: str) -> str:
    minor = ".".join(full.split(".")[:2])
    return (
        f'echo \'{{"executable": "{executable}", "full_version": "{full}", "minor": "{minor}", '
        '"free_threaded": false, "implementation": "cpython"}\''
    )


def test_pyenvs_version_for_the_project_precedes_the_newest(tmp_path: Path) -> None:
    for full in ("3.99.2", "3.99.10", "3.99.9"):
        script(tmp_path / "pyenv" / "versions" / full / "bin" / "python", answer(full, f"/{full}"))
    assert find_interpreter(tmp_path, "3.99").full_version == "3.99.10"
    (tmp_path / ".python-version").write_text("3.12.1\n3.99.9\n", encoding="utf-8")
    assert find_interpreter(tmp_path, "3.99").full_version == "3.99.9"


def test_the_version_is_checked_not_taken_from_the_name(
    tmp_path: Path, bare_machine: Path
) -> None:
    script(bare_machine / "python3.99", f'exec "{REAL}" "$@"')
    with pytest.raises(InterpreterError, match=rf"python3\.99: is Python {FULL}"):
        find_interpreter(tmp_path, "3.99", install=False)


def test_a_free_threaded_python_is_another_python(tmp_path: Path, bare_machine: Path) -> None:
    other = THIS.removesuffix("t") if FLAG else THIS + "t"
    script(bare_machine / f"python{other}", f'exec "{REAL}" "$@"')
    with pytest.raises(InterpreterError, match=rf"(?m)is Python {FULL}$"):
        find_interpreter(tmp_path, other, install=False)


def test_uv_fetches_a_python_and_leaves_the_folder_of_programs_alone(
    tmp_path: Path, bare_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --no-bin, uv writes a link into the user's ~/.local/bin."""
    del bare_machine
    asked: list[list[str]] = []

    def uv(arguments: list[str], _: Path) -> tuple[bool, str]:
        asked.append(arguments)
        return False, "no network"

    monkeypatch.setattr("ivhl.matrix.interpreter._uv", uv)
    with pytest.raises(InterpreterError, match="cannot fetch it: no network"):
        find_interpreter(tmp_path, "3.99")
    assert ["python", "install", "--no-bin", "3.99"] in asked


def test_any_free_threaded_interpreter_tells_the_abi_and_the_own_one_comes_first(
    tmp_path: Path, bare_machine: Path
) -> None:
    def add(python: str) -> None:
        text = answer(f"{python}.0", f"/{python}").replace("false", "true", 1)
        script(bare_machine / f"python{python}t", text)

    with pytest.raises(InterpreterError, match=r"no Python 3\.98t on this machine"):
        find_free_threaded(tmp_path, "3.98t")
    add("3.99")
    assert find_free_threaded(tmp_path, "3.98t").full_version == "3.99.0t"
    add("3.98")
    assert find_free_threaded(tmp_path, "3.98t").full_version == "3.98.0t"


def test_another_implementation_is_refused(tmp_path: Path, bare_machine: Path) -> None:
    text = answer("3.99.0", "/x").replace("cpython", "pypy")
    script(bare_machine / "python3.99", text)
    with pytest.raises(InterpreterError, match="is pypy, not CPython"):
        find_interpreter(tmp_path, "3.99", install=False)


def test_the_error_for_a_missing_python_lists_where_it_was_searched(
    tmp_path: Path, bare_machine: Path
) -> None:
    script(bare_machine / "python3.99", "echo 'pyenv: command not found' >&2; exit 127")
    script(bare_machine / "python3", "exit 3")
    with pytest.raises(InterpreterError) as caught:
        find_interpreter(tmp_path, "3.99")
    lines = str(caught.value).splitlines()
    assert lines[0] == "no Python 3.99 on this machine; looked here:"
    assert f"  PATH: {bare_machine}/python3.99: does not run: pyenv: command not found" in lines
    assert f"  PATH: {bare_machine}/python3: does not run: exit 3" in lines
    assert f"  pyenv: no version 3.99 in {tmp_path}/pyenv/versions" in lines
    assert f"  pyenv: no version 3.99 in {tmp_path}/home/.pyenv/versions" in lines
    assert any(line.startswith("  uv: No interpreter found for Python 3.99") for line in lines)
    assert any(line.startswith("  uv: cannot fetch it: ") for line in lines)
    assert caught.value.exit_code == 4
    assert "uv python install 3.99" in caught.value.hint
