"""What projects of one user share of a first compile is whole, theirs alone, of the same build."""

from __future__ import annotations

import importlib.util
import os
import py_compile
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ivhl.measure import lanes, shared
from ivhl.measure.effort import Effort
from ivhl.records.record import Wheel


class Environments:
    """Environments of several projects, whose files are links to the same ones."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root, self._monkeypatch = root, monkeypatch
        self.torch = "2.15.0"
        monkeypatch.setattr(shared, "installed_wheels", self.wheels)
        monkeypatch.setattr(lanes, "installed_wheels", self.wheels)

    def wheels(self) -> tuple[Wheel, ...]:
        """Return what is installed."""
        return (Wheel(name="torch", version=self.torch, build=None, tags=(), record_sha256=None),)

    def enter(self, name: str) -> Path:
        """Make the environment of a project, if it is not there, and be in it from now on."""
        packages, source = self._root / name, self._root / "source"
        if not source.exists():
            (source / "torch" / "nn").mkdir(parents=True)
            for path in ("torch/__init__.py", "torch/nn/__init__.py"):
                (source / path).write_text("X = 1\n", encoding="utf-8")
        if not packages.exists():
            shutil.copytree(source, packages, copy_function=os.link)
        self._monkeypatch.setattr(shared, "packages_here", lambda: packages)
        return packages


@pytest.fixture
def environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environments:
    return Environments(tmp_path, monkeypatch)


def compiled(packages: Path) -> list[Path]:
    return [Path(py_compile.compile(str(path)) or "") for path in packages.rglob("*.py")]


def bytecode(packages: Path) -> set[str]:
    return {path.relative_to(packages).as_posix() for path in packages.rglob("*.pyc")}


def test_another_environment_gets_the_bytecode_and_python_takes_it(
    tmp_path: Path, environments: Environments
) -> None:
    folder = shared.own_folder(str(tmp_path / "shared"))
    assert folder is not None
    one = environments.enter("one")
    assert shared.lacks_bytecode()
    compiled(one)
    shared.keep_bytecode(folder)
    other = environments.enter("other")
    assert shared.lacks_bytecode()
    shared.take_bytecode(folder)
    assert not shared.lacks_bytecode()
    assert bytecode(other) == bytecode(one) != set()
    source = other / "torch" / "__init__.py"
    kept = Path(importlib.util.cache_from_source(str(source))).read_bytes()
    assert int.from_bytes(kept[8:12], "little") == int(source.stat().st_mtime)
    assert [path.name for path in other.iterdir()] == ["torch"]


@pytest.mark.parametrize("change", ["another source", "another build", "a damaged file"])
def test_bytecode_of_another_build_or_a_damaged_one_is_not_taken(
    change: str, tmp_path: Path, environments: Environments
) -> None:
    folder = shared.own_folder(str(tmp_path / "shared"))
    assert folder is not None
    compiled(environments.enter("one"))
    shared.keep_bytecode(folder)
    other = environments.enter("other")
    if change == "another source":
        os.utime(other / "torch" / "__init__.py", (1, 1))
    elif change == "another build":
        environments.torch = "2.6.0"
    else:
        next(folder.rglob("*.pyc")).write_bytes(b"exploit")
    shared.take_bytecode(folder)
    assert bytecode(other) == set()
    assert (other / "torch" / "__init__.py").exists()  # no part of a damaged entry, nor of torch


def test_a_folder_that_another_user_could_write_to_is_not_used(tmp_path: Path) -> None:
    made = shared.own_folder(str(tmp_path / "a" / "b"))
    assert made is not None
    assert made.stat().st_mode & 0o777 == 0o700
    made.parent.chmod(0o777)
    assert shared.own_folder(str(made)) is None
    made.parent.chmod(0o755)
    assert shared.own_folder(str(made)) == made
    made.chmod(0o770)
    assert shared.own_folder(str(made)) is None
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert shared.own_folder(str(tmp_path / "link")) is None
    (tmp_path / "file").touch(mode=0o600)
    assert shared.own_folder(str(tmp_path / "file")) is None
    assert shared.own_folder(None) is None


def test_a_folder_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    assert shared.own_folder(str(tmp_path / "theirs")) is None


def test_another_project_takes_the_checks_of_instructions_and_only_of_the_same_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environments: Environments
) -> None:
    compiler = "g++ 12"
    monkeypatch.setattr(lanes, "compiler_version", lambda: compiler)

    def run(project: str) -> Any:  # noqa: ANN401  (what the functions ask of a run)
        environments.enter(project)
        return SimpleNamespace(
            project=project, effort=Effort(), image=None, machine=SimpleNamespace(cpu="c"),
            cell=SimpleNamespace(lock_sha256=project[0] * 64),
            cache=str(tmp_path / project / "cache"), shared=str(tmp_path / "shared"),
        )  # fmt: skip

    def launcher(project: str) -> Any:  # noqa: ANN401
        cache = tmp_path / f"scratch-{project}" / "inductor"
        cache.parent.mkdir(exist_ok=True)
        return SimpleNamespace(cache=cache, may_fork=True, start=lambda: "a nursery")

    first, starts = run("one"), launcher("one")
    assert not lanes.take_throwaway(first, starts)
    starts.cache.mkdir()
    for name, text in (("a.cpp", "void __avx_chk_kernel()"), ("b.main.cpp", "void kernel()")):
        (starts.cache / name).write_text(text, encoding="utf-8")
        (starts.cache / name.replace(".cpp", ".so")).touch()
    compiled(tmp_path / "one")
    assert lanes.keep_throwaway(first, starts, new=True)
    second, other = run("two"), launcher("two")
    # Its nurseries compile the throwaway themselves.
    assert not lanes.take_throwaway(second, other)
    assert {path.name for path in other.cache.iterdir()} == {"a.cpp", "a.so"}
    assert bytecode(tmp_path / "two") == bytecode(tmp_path / "one")
    assert lanes.take_throwaway(run("one"), launcher("again"))
    compiler = "g++ 14"
    third = launcher("three")
    assert not lanes.take_throwaway(run("three"), third)
    assert not third.cache.exists()
    compiler, environments.torch = "g++ 12", "2.6.0"
    assert not lanes.take_throwaway(run("four"), launcher("four"))
    assert bytecode(tmp_path / "four") == set()
