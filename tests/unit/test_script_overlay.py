"""Overlays of cells: planted wheels, a registry on this machine, and the real uv."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from ivhl.errors import IvhlError
from ivhl.matrix.spec import CellSpec
from ivhl.script import cells
from ivhl.script.cells import MARK, cell_in_use, cells_folder
from ivhl.script.overlay import LOCK, UnavailableError
from tests.builders.registry import make_wheel, served, sha256

if TYPE_CHECKING:
    from collections.abc import Iterator

PYTHON = "{}.{}".format(*sys.version_info)
CELL = CellSpec(PYTHON, "2.15.0")
IN_CELL = {
    "torch": {"torch/__init__.py": "import numpy\n"},
    "fsspec": {"fsspec/__init__.py": "V = 9\n", "fsspec/new.py": ""},
    "nvidia-cublas": {"nvidia/__init__.py": "", "nvidia/cublas/__init__.py": "PLACE = 'cell'\n"},
    "typing-extensions": {"typing_extensions.py": "PLACE = 'cell'\n"},
}
# In a process of its own, in which a signal may arrive.
MAKE = """
import sys
from pathlib import Path
from ivhl.matrix.spec import CellSpec
from ivhl.script import cells
cells.SHIPPED = Path(sys.argv[1])
with cells.cell_in_use(CellSpec(sys.argv[2], "2.15.0"), sys.argv[3:]) as place:
    print(place)
"""


class Registry(NamedTuple):
    """A registry with the packages of one cell, and the wheels that were asked for."""

    folder: Path
    shipped: Path
    asked: list[str]

    def start(self, *requirements: str) -> subprocess.Popen[str]:
        """Start a process that makes an overlay."""
        command = [sys.executable, "-c", MAKE, str(self.shipped), PYTHON, *requirements]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
        )


ROOT = Path(__file__).parents[2]


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """Serve the packages of a cell, whose lock ships."""
    folder, shipped = tmp_path / "wheels", tmp_path / "shipped"
    lock = [f"# Matrix digest: {'0' * 16}", ""]
    for name, files in IN_CELL.items():
        version, requires = ("2.15.0", ["fsspec>=2"]) if name == "torch" else ("9.0", [])
        wheel = make_wheel(folder, name, version, files=files, requires=requires)
        lock += [f"{name}=={version} \\", f"    --hash=sha256:{sha256(wheel)}"]
        lock.append("    # via matrix.toml")
    (shipped / "envs" / "locks").mkdir(parents=True)
    (shipped / "envs" / "locks" / f"{CELL.id}.txt").write_text("\n".join(lock) + "\n")
    monkeypatch.setattr(cells, "SHIPPED", shipped)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))  # no settings of the user
    with served(folder) as (address, asked):
        monkeypatch.setenv("UV_DEFAULT_INDEX", address)
        yield Registry(folder, shipped, asked)


def run_in(place: Path, code: str) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [str(place / "bin" / "python"), "-c", code]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def refusal_of(*requirements: str) -> Exception:
    with pytest.raises((UnavailableError, IvhlError)) as raised, cell_in_use(CELL, requirements):
        pass
    return raised.value


def is_gone(*, but: int = 1) -> bool:
    """Return whether no folder is left but those of so many cells."""
    return len([one for one in cells_folder().iterdir() if one.is_dir()]) == but


def test_an_overlay_holds_what_is_added_and_its_packages_come_first(registry: Registry) -> None:
    numpy = make_wheel(registry.folder, "numpy", "3.0")
    requires = ["torch>=2", "numpy", "fsspec<9"]
    library = make_wheel(registry.folder, "library", "1.2", requires=requires)
    files = {"fsspec/__init__.py": "V = 8\n"}
    older = make_wheel(registry.folder, "fsspec", "8.0", files=files)
    with cell_in_use(CELL, ["library>=1"]) as place, cell_in_use(CELL) as base:
        mark = json.loads((place / MARK).read_text())
        assert mark["added"] == {"library": "1.2", "numpy": "3.0", "fsspec": "8.0"}
        assert (place / LOCK).read_text().splitlines() == [
            f"fsspec==8.0 --hash=sha256:{sha256(older)}",
            f"library==1.2 --hash=sha256:{sha256(library)}",
            f"numpy==3.0 --hash=sha256:{sha256(numpy)}",
        ]
        shown = run_in(
            place,
            "import importlib.metadata as m, torch, library, fsspec; "
            "print(torch.__file__, fsspec.V, m.version('fsspec'), m.version('torch'))",
        )
        (file, *versions) = shown.split()
        assert file.startswith(str(base))
        assert versions == ["8", "8.0", "2.15.0"]
        # Nothing is left of the cell's version of a package that is replaced.
        asked = "try: import fsspec.new\nexcept ImportError as error: print(error)"
        assert run_in(place, asked) == "No module named 'fsspec.new'"
        # Compiled code and bytecode of the cell are written once, in the cell.
        assert (place / "inductor").resolve() == base / "inductor"
        assert list(base.glob("lib/python3*/site-packages/torch/__pycache__/*.pyc"))
        assert not list(place.glob("lib/python3*/site-packages/torch*"))
