"""A wheel has the same hash, whichever installer installed it, in any folder."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import venv
import zipfile
from importlib.metadata import PathDistribution
from typing import TYPE_CHECKING

import pytest

from ivhl.matrix.uv import uv_bin
from ivhl.measure import wheels
from ivhl.measure.wheels import wheel_of

if TYPE_CHECKING:
    from pathlib import Path

    from ivhl.records.record import Wheel

ABOUT = (
    "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nBuild: 7\nTag: py3-none-any\nTag: py2-none-any\n"
)


def make_wheel(folder: Path, *, code: str = "x = 1\n", about: str = ABOUT) -> Path:
    """Write the wheel ``demo`` with a package, a script and an entry point."""
    files = {
        "demo/__init__.py": code,
        "demo/comma,name.txt": "text",
        "demo-1.0.data/scripts/run-demo": "#!python\nprint(1)\n",
        "demo-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
        "demo-1.0.dist-info/WHEEL": about,
        "demo-1.0.dist-info/entry_points.txt": "[console_scripts]\ndemo = demo:main\n",
    }
    record = "demo-1.0.dist-info/RECORD,,\n"
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode()
        quoted = f'"{name}"' if "," in name else name
        record += f"{quoted},sha256={digest.rstrip('=')},{len(text)}\n"
    folder.mkdir()
    path = folder / "demo-1.0-7-py2.py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in (files | {"demo-1.0.dist-info/RECORD": record}).items():
            archive.writestr(name, text)
    return path


def installed(environment: Path) -> Wheel:
    (folder,) = environment.glob("lib/python3*/site-packages/demo-1.0.dist-info")
    return wheel_of("demo", PathDistribution(folder))


@pytest.fixture(scope="module")
def by_uv(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    folder = tmp_path_factory.mktemp("by-uv")
    return install_by_uv(folder / "environment", make_wheel(folder / "wheel"))


def install_by_uv(environment: Path, wheel: Path, *more: str) -> Wheel:
    venv.create(environment)
    python = str(environment / "bin" / "python")
    command = [uv_bin(), "pip", "install", "--offline", "--no-deps", "--python", python, *more]
    subprocess.run([*command, str(wheel)], check=True, capture_output=True)
    return installed(environment)


def test_build_and_tags_come_from_the_wheel(by_uv: Wheel) -> None:
    assert (by_uv.name, by_uv.version, by_uv.build) == ("demo", "1.0", "7")
    assert by_uv.tags == ("py2-none-any", "py3-none-any")
    assert len(by_uv.record_sha256 or "") == 64


def test_pip_and_uv_give_the_same_wheel(tmp_path: Path, by_uv: Wheel) -> None:
    environment = tmp_path / "another place"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--no-index", "--no-deps"]
    subprocess.run([*pip, make_wheel(tmp_path / "wheel")], check=True, capture_output=True)
    (info,) = environment.glob("lib/python3*/site-packages/demo-1.0.dist-info")
    assert ".pyc" in (info / "RECORD").read_text()  # files that the hash leaves out exist
    assert (info / "direct_url.json").is_file()
    assert installed(environment) == by_uv


def test_bytecode_from_the_installer_does_not_change_the_wheel(
    tmp_path: Path, by_uv: Wheel
) -> None:
    wheel = make_wheel(tmp_path / "wheel")
    assert install_by_uv(tmp_path / "environment", wheel, "--compile-bytecode") == by_uv


@pytest.mark.parametrize("changes", [{"code": "x = 2\n"}, {"about": ABOUT.replace("7", "8")}])
def test_another_file_of_the_same_version_is_another_wheel(
    tmp_path: Path, by_uv: Wheel, changes: dict[str, str]
) -> None:
    other = install_by_uv(tmp_path / "environment", make_wheel(tmp_path / "wheel", **changes))
    assert other.version == by_uv.version
    assert other.record_sha256 != by_uv.record_sha256


def test_an_installation_without_a_list_of_files_has_no_hash(tmp_path: Path) -> None:
    folder = tmp_path / "demo-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
    wheel = wheel_of("demo", PathDistribution(folder))
    assert (wheel.build, wheel.tags, wheel.record_sha256) == (None, (), None)


def test_packages_that_are_not_installed_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels, "NAMES", ("pytest", "no-such-package"))
    wheels.installed_wheels.cache_clear()
    found = wheels.installed_wheels()
    wheels.installed_wheels.cache_clear()
    assert [(wheel.name, wheel.version) for wheel in found] == [("pytest", pytest.__version__)]
