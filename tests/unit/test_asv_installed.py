"""A cell whose packages were changed after their installation is not measured."""

from __future__ import annotations

import hashlib
import os
import shutil
import zipfile
from base64 import urlsafe_b64encode
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from asv.util import ProcessError

from ivhl.asv import installed
from ivhl.asv.environment import Locked
from ivhl.asv.installed import altered_files
from ivhl.matrix.uv import run_uv

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FILES = {"demo/__init__.py": b"answer = 42\n", "demo/data.bin": bytes(range(256))}


def digest(data: bytes) -> str:
    value = urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"sha256={value}"


def make_wheel(folder: Path, name: str, files: Mapping[str, bytes]) -> Path:
    """Write a wheel of a package without dependencies."""
    about = f"{name}-1.0.dist-info"
    inside = dict(files) | {
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
        f"{about}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [f"{path},{digest(data)},{len(data)}" for path, data in inside.items()]
    inside[f"{about}/RECORD"] = ("\n".join([*rows, f"{about}/RECORD,,"]) + "\n").encode()
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inner, data in inside.items():
            archive.writestr(inner, data)
    return path


def uv(*arguments: str | Path, cwd: Path) -> None:
    done = run_uv([str(one) for one in arguments], cwd=cwd)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a lock with one package, which uv finds without a network, with a cache of its own."""
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_LINK_MODE", "hardlink")
    wheel = make_wheel(tmp_path, "demo", FILES)
    lock = tmp_path / "lock.txt"
    sha = hashlib.sha256(wheel.read_bytes()).hexdigest()
    lock.write_text(f"demo==1.0 --hash=sha256:{sha}\n")
    return lock


def cell(lock: Path, name: str) -> Path:
    """Return an environment from the lock, made as ``Locked`` makes it."""
    folder = lock.with_name(name)
    uv("venv", "--no-project", "--offline", folder, cwd=lock.parent)
    uv(
        *("pip", "sync", "--offline", "--no-index", "--find-links", lock.parent),
        *("--python", folder, "--require-hashes", "--only-binary", ":all:", lock),
        cwd=lock.parent,
    )
    return folder


def package(folder: Path) -> Path:
    (found,) = folder.glob("lib/python*/site-packages/demo")
    return found


def test_an_edit_in_one_cell_is_found_in_the_next(locked: Path) -> None:
    first = cell(locked, "first")
    assert altered_files(first, device="cpu") == []
    # In place, as a program would write it; an editor may write a new file.
    with (package(first) / "__init__.py").open("r+b") as file:
        file.write(b"answer = 666")
    second = cell(locked, "second")
    assert (package(second) / "__init__.py").read_bytes().startswith(b"answer = 666")
    for folder in (first, second):
        assert altered_files(folder, device="cpu") == ["demo/__init__.py"]


def test_a_file_is_read_again_only_after_a_change(
    locked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = cell(locked, "cell")
    read: list[str] = []
    real = installed._digest

    def counting(path: Path, expected: str) -> str:
        read.append(path.name)
        return real(path, expected)

    monkeypatch.setattr(installed, "_digest", counting)
    assert altered_files(folder, device="cpu") == []
    assert "data.bin" in read
    read.clear()
    assert altered_files(folder, device="cpu") == []
    assert read == []
    data = package(folder) / "data.bin"
    before = data.stat()
    with data.open("r+b") as file:
        file.write(b"x")
    os.utime(data, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert altered_files(folder, device="cpu") == ["demo/data.bin"]
    # It stays so: what was wrong once is never taken for seen.
    assert altered_files(folder, device="cpu") == ["demo/data.bin"]


def test_a_file_that_is_gone_and_an_empty_folder_are_found(locked: Path) -> None:
    folder = cell(locked, "cell")
    (package(folder) / "data.bin").unlink()
    assert altered_files(folder, device="cpu") == ["demo/data.bin"]
    shutil.rmtree(folder / "lib")
    assert altered_files(folder, device="cpu") != []


def test_the_project_and_libraries_of_cuda_are_left_out_on_the_cpu(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "python3.12" / "site-packages"
    for name in ("nvidia_cublas", "my_project"):
        about = packages / f"{name}-1.0.dist-info"
        about.mkdir(parents=True)
        (about / "RECORD").write_text(f"{name}.py,{digest(b'')},0\n")
    assert altered_files(tmp_path, device="cpu", without="My-Project") == []
    assert altered_files(tmp_path, device="cuda", without="My-Project") == ["nvidia_cublas.py"]


def test_an_altered_cell_fails_with_what_to_do(locked: Path) -> None:
    folder = cell(locked, "cell")
    (package(folder) / "data.bin").unlink()
    about = SimpleNamespace(
        folder=folder,
        _project="p",
        _settings=SimpleNamespace(effort=SimpleNamespace(device="cpu")),
    )
    failure = Locked._altered(about)  # type: ignore[arg-type]
    assert "must be as in their wheels (changed: demo/data.bin)" in str(failure)
    assert "uv cache clean" in str(failure)


def test_libraries_of_cuda_are_read_where_a_gpu_is_used(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "torch", {"torch/lib/libtorch_cuda.so": b"a", "torch/a.py": b"b"})
    packages = tmp_path / "cell" / "lib" / "python3.12" / "site-packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    (packages / "torch" / "lib" / "libtorch_cuda.so").write_bytes(b"c")
    assert altered_files(tmp_path / "cell", device="cpu") == []
    assert altered_files(tmp_path / "cell", device="cuda") == ["torch/lib/libtorch_cuda.so"]
    (packages / "torch" / "a.py").write_bytes(b"d")
    assert altered_files(tmp_path / "cell", device="cpu") == ["torch/a.py"]


def test_a_commit_that_does_not_build_is_built_and_reported_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built, told = [], []

    def fail(_self: object, _conf: object, _repo: object, commit: str) -> None:
        built.append(commit)
        raise OSError("no disk")

    monkeypatch.setattr("asv.environment.Environment.install_project", fail)
    monkeypatch.setattr(Locked, "cell", SimpleNamespace(id="py3.12-torch2.6.0"))
    monkeypatch.setattr(Locked, "create", lambda _self: None)
    monkeypatch.setattr(Locked, "_altered", lambda _self: None)
    monkeypatch.setattr(Locked, "_record_failure", lambda *_: None)
    monkeypatch.setattr(Locked, "name", "locked")
    cell = object.__new__(Locked)
    cell.failure, cell._unbuilt = None, {}
    settings: Any = SimpleNamespace(report=lambda event, **_: told.append(event), base=None)
    cell._settings = settings
    for _ in range(2):  # as asv does
        with pytest.raises(ProcessError):
            cell.install_project(None, None, "abc")
    assert built == ["abc"]
    assert told == ["cell-building", "cell-failed"]


def test_why_neither_of_two_commits_builds_is_reported_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[dict[str, Any]] = []
    failed: list[str] = []

    def fail(_self: object, _conf: object, _repo: object, _commit: str) -> None:
        raise OSError("no disk")

    monkeypatch.setattr(Locked, "_lay", fail)
    monkeypatch.setattr(Locked, "cell", SimpleNamespace(id="py3.12-torch2.6.0"))
    monkeypatch.setattr(Locked, "create", lambda _self: None)
    monkeypatch.setattr(Locked, "_altered", lambda _self: None)
    monkeypatch.setattr(Locked, "_record_failure", lambda *given: failed.append(given[-1]))
    monkeypatch.setattr(Locked, "name", "locked")
    cell = object.__new__(Locked)
    cell.failure, cell._unbuilt, cell._laid, cell._wanted = None, {}, {}, ""
    settings: Any = SimpleNamespace(
        report=lambda event, **facts: told.append({"event": event, **facts}), base="before"
    )
    cell._settings = settings
    for _ in range(2):  # as asv does
        with pytest.raises(ProcessError):
            cell.install_project(None, None, "after")
    assert failed == ["before", "after"]
    assert [one["message"] for one in told if one["event"] == "cell-failed"] == ["no disk"]
