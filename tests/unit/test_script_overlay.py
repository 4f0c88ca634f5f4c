"""Overlays of cells: planted wheels, a registry on this machine, and the real uv."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from ivhl.errors import IvhlError, LockError, SpecError
from ivhl.matrix.spec import CellSpec
from ivhl.script import cells
from ivhl.script.cells import (
    LIMIT_VARIABLE,
    MARK,
    cell_in_use,
    cells_folder,
    make_room,
    newest_overlay,
)
from ivhl.script.overlay import LOCK, UnavailableError
from tests.builders.registry import make_wheel, served, sha256

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

PYTHON = "{}.{}".format(*sys.version_info)
CELL = CellSpec(PYTHON, "2.15.0")
IN_CELL = {
    "torch": {
        "torch/__init__.py": "PLACE = 'cell'\n",
        "torch/run.py": "def main():\n    import library\n    print(library.V)\n",
        "torch-2.15.0.dist-info/entry_points.txt": "[console_scripts]\ntorchrun = torch.run:main\n",
    },
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
    go: threading.Event

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
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with served(folder, dated=True) as (address, asked, go):
        monkeypatch.setenv("UV_DEFAULT_INDEX", address)
        yield Registry(folder, shipped, asked, go)


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


def test_a_newer_version_is_looked_for_where_that_is_asked(registry: Registry) -> None:
    def version(*, newest: bool) -> str:
        lock = newest_overlay(CELL, ["library"]) if newest else None
        with cell_in_use(CELL, ["library"], lock) as place:
            return str(json.loads((place / MARK).read_text())["added"]["library"])

    make_wheel(registry.folder, "library", "1.0")
    assert version(newest=True) == "1.0"
    assert version(newest=False) == "1.0"
    make_wheel(registry.folder, "library", "2.0")
    assert version(newest=False) == "1.0", "what is there is taken"
    assert version(newest=True) == "2.0"


def test_of_what_the_cell_lacks_a_version_of_a_day_is_taken(registry: Registry) -> None:
    for version, day in (("1.0", 1), ("2.0", 20)):
        wheel = make_wheel(registry.folder, "library", version, requires=["torch>=2", "fsspec"])
        uploaded = dt.datetime(2025, 4, day, tzinfo=dt.UTC).timestamp()
        os.utime(wheel, (uploaded, uploaded))
    assert newest_overlay(CELL, ["library"]).startswith("library==2.0 ")
    older = newest_overlay(CELL, ["library"], dt.date(2025, 4, 10))
    # The packages of the cell are newer, and stay.
    assert [line.partition(" ")[0] for line in older.splitlines()] == ["library==1.0"]
    with pytest.raises((UnavailableError, LockError)):
        newest_overlay(CELL, ["library"], dt.date(2025, 3, 1))


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


def test_a_wheel_does_not_write_the_lock_of_its_overlay(registry: Registry) -> None:
    files = {f"library-1.0.data/data/{LOCK}": "hostile==1\n"}
    library = make_wheel(registry.folder, "library", "1.0", files=files)
    with cell_in_use(CELL, ["library"]) as place:
        line = f"library==1.0 --hash=sha256:{sha256(library)}\n"
        assert (place / LOCK).read_text() == line


def test_child_processes_and_entry_points_of_the_cell_see_the_overlay(registry: Registry) -> None:
    make_wheel(registry.folder, "library", "1.2", requires=["torch"])
    spawned = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import torch, library'])"
    )
    with cell_in_use(CELL, ["library"]) as place:
        run_in(place, spawned)
        assert subprocess.check_output([place / "bin" / "torchrun"], text=True) == "1.2\n"


@pytest.mark.parametrize(
    "init",
    ["", "# Copyright\n\n__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n"],
)
def test_a_namespace_that_stands_in_both_places_is_whole(registry: Registry, init: str) -> None:
    files = {"nvidia/dali/__init__.py": "", "json.py": "raise SystemExit('not the library')\n"}
    make_wheel(registry.folder, "nvidia-dali", files=files | {"nvidia/__init__.py": init})
    with cell_in_use(CELL, ["nvidia-dali"]) as place:
        code = "import json, nvidia.dali, nvidia.cublas; print(nvidia.cublas.PLACE, json.dumps(1))"
        assert run_in(place, code) == "cell 1"


@pytest.mark.parametrize(
    "file", ["torch/evil.py", "torch.py", "typing_extensions.py", "_ivhl_observer.py"]
)
def test_a_distribution_that_would_hide_a_package_of_the_cell_is_refused(
    registry: Registry, file: str
) -> None:
    make_wheel(registry.folder, "evil", files={file: "PLACE = 'evil'\n"})
    refusal = refusal_of("evil")
    name = file.partition("/")[0].removesuffix(".py")
    assert isinstance(refusal, LockError)
    assert f"evil 1.0: would hide {name} of the cell" in str(refusal)
    assert is_gone()


Wheels = dict[str, dict[str, object]]
TIED: Wheels = {
    "library 1.0": {"requires": ["torch==2.5.1"]},
    "library 2.0": {"requires": ["torch==2.15.0"]},
    "library 3.0": {"requires": ["torch==2.16.0"]},
}


def plant(registry: Registry, wheels: Wheels) -> None:
    for text, about in wheels.items():
        name, version = text.split()
        make_wheel(registry.folder, name, version, **about)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wheels", "asked", "added"),
    [
        (TIED, ["library"], {"library": "2.0"}),
        # The newest needs a newer Python, and another package than what is asked for.
        (
            {"library 1.0": {}, "library 2.0": {"python": ">=3.99"}},
            ["library"],
            {"library": "1.0"},
        ),
        (
            {"library 1.0": {}, "library 2.0": {"requires": ["fsspec>=10"]}, "fsspec 10.0": {}},
            ["library", "fsspec<10"],
            {"library": "1.0"},
        ),
        # What the cell has is kept where it is allowed.
        (
            {"library 1.0": {"requires": ["fsspec"]}, "fsspec 10.0": {}},
            ["library"],
            {"library": "1.0"},
        ),
        ({}, ["fsspec", "torch>2"], {}),
    ],
)
def test_an_older_release_is_taken_where_the_newest_needs_something_newer(
    registry: Registry, wheels: Wheels, asked: list[str], added: dict[str, str]
) -> None:
    plant(registry, wheels)
    with cell_in_use(CELL, asked) as place:
        assert json.loads((place / MARK).read_text())["added"] == added


OLD = f"cp38-cp38-linux_{os.uname().machine}"


@pytest.mark.parametrize(
    ("wheels", "asked", "kind", "why"),
    [
        # An old release knows no limit, and does not show that the library allows this torch.
        (
            {"library 1.0": {}, "library 2.0": {"requires": ["torch>=2.2,<2.3"]}},
            "library",
            "pinned out",
            "library 2.0 requires torch>=2.2,<2.3",
        ),
        (
            {
                "library 1.0": {},
                "library 2.0": {"requires": ["vision"]},
                "vision 0.1": {"requires": ["torch==2.5.1"]},
                "vision 0.2": {"requires": ["torch==2.6.0"]},
            },
            "library",
            "pinned out",
            "requires torch==2.",
        ),
        (
            {"library 1.0": {"python": ">=3.99"}},
            "library",
            "pinned out",
            "library 1.0 requires Python>=3.99",
        ),
        ({}, "torch<2", "pinned out", "torch<2 is required"),
        ({"fsspec 1.0": {}}, "fsspec==1.0", "pinned out", "fsspec>=2 is required"),
        (
            {"library 1.0": {}, "library 2.0": {"tag": OLD}},
            "library",
            "no wheel",
            f"library 2.0 has none for Python {PYTHON}",
        ),
        (
            {
                "library 1.0": {},
                "library 2.0": {"requires": ["solver"]},
                "solver 3.0": {"tag": OLD},
            },
            "library",
            "no wheel",
            "solver==3.0 has none",
        ),
        ({"library 1.0": {}}, "library<1", "", "library<1"),
    ],
)
def test_the_requirement_that_forbids_is_named_before_anything_is_made(
    registry: Registry, wheels: Wheels, asked: str, kind: str, why: str
) -> None:
    plant(registry, wheels)
    refusal = refusal_of(asked)
    assert isinstance(refusal, UnavailableError)
    assert refusal.kind == kind
    assert why in str(refusal)
    assert not cells_folder().exists()
    assert not any(name.startswith("torch-") for name in registry.asked)


def test_a_wheel_that_is_named_by_its_address_is_locked_by_its_hash(
    registry: Registry, tmp_path: Path
) -> None:
    wheel = make_wheel(tmp_path / "own", "library", "4.0")
    with cell_in_use(CELL, [f"library @ file://{wheel}"]) as place:
        assert (place / LOCK).read_text().endswith(f" --hash=sha256:{sha256(wheel)}\n")
        assert run_in(place, "import library; print(library.V)") == "4.0"
    assert "library-4.0-py3-none-any.whl" not in registry.asked


def test_an_upper_limit_on_python_is_heeded(registry: Registry) -> None:
    plant(registry, {"library 1.0": {}, "library 2.0": {"python": ">=3.8,<3.9"}})
    refusal = refusal_of("library")
    assert str(refusal) == "pinned out: library 2.0 requires Python>=3.8,<3.9"
    assert is_gone()


def test_a_package_that_no_registry_has_is_an_error(registry: Registry) -> None:
    refusal = refusal_of("not-there")
    assert isinstance(refusal, LockError)
    assert "not-there was not found in the package registry" in str(refusal)
    assert "check the name" in refusal.hint
    assert registry.asked == []


@pytest.mark.parametrize("text", ["-r /etc/passwd", "--index-url=http://x", "a\n-e .", "../x.whl"])
def test_an_option_of_uv_is_no_requirement(registry: Registry, text: str) -> None:
    refusal = refusal_of(text)
    assert registry.asked == []
    assert isinstance(refusal, SpecError)
    assert "must name a package" in str(refusal)


def test_an_overlay_is_made_again_from_its_lock(registry: Registry) -> None:
    make_wheel(registry.folder, "library", "1.0")
    with cell_in_use(CELL, ["library"]) as place:
        text = (place / LOCK).read_text()
    make_wheel(registry.folder, "library", "2.0")
    with cell_in_use(CELL, [], text) as again, cell_in_use(CELL, [], "") as empty:
        assert again != place
        assert run_in(again, "import library; print(library.V)") == "1.0"
        assert json.loads((empty / MARK).read_text())["added"] == {}
    for wrong in (text.replace("1.0", "2.0"), "library==1.0\n", "--index-url=http://x\n"):
        with pytest.raises(LockError), cell_in_use(CELL, [], wrong):
            pass
    assert is_gone(but=4)


def test_an_overlay_goes_with_its_cell_unless_both_are_in_use(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(registry.folder, "library")
    monkeypatch.setenv(LIMIT_VARIABLE, "0")
    with cell_in_use(CELL, ["library"]) as place:
        make_room(cells_folder(), 0)
        assert run_in(place, "import torch, library; print(1)") == "1"
    monkeypatch.setenv(LIMIT_VARIABLE, "60")
    with cell_in_use(CELL) as base:
        pass
    cells._remove(base)
    assert is_gone(but=0)
    with cell_in_use(CELL, ["library"]) as again:
        assert again == place
        assert run_in(again, "import torch, library; print(1)") == "1"


@pytest.mark.parametrize(
    "how", [pytest.param(signal.SIGINT, marks=pytest.mark.full), signal.SIGKILL]
)
def test_an_overlay_is_whole_or_made_again(registry: Registry, how: signal.Signals) -> None:
    make_wheel(registry.folder, "library")
    slow = make_wheel(registry.folder, "slow")
    with cell_in_use(CELL), registry.start("library", "slow") as process:
        while slow.name not in registry.asked:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(how)
        process.wait()
    registry.go.set()
    halves = [
        one for one in cells_folder().iterdir() if one.is_dir() and not (one / MARK).exists()
    ]
    assert len(halves) == (how == signal.SIGKILL)
    with cell_in_use(CELL, ["library", "slow"]) as place:
        assert halves in ([], [place])
        assert run_in(place, "import library, slow; print(1)") == "1"


def test_two_commands_that_need_an_overlay_make_one(registry: Registry) -> None:
    slow = make_wheel(registry.folder, "slow")
    with cell_in_use(CELL), registry.start("slow") as one, registry.start("slow") as other:
        while slow.name not in registry.asked:
            time.sleep(0.02)
        registry.go.set()
        places = {process.communicate()[0] for process in (one, other)}
    assert len(places) == 1
    assert one.returncode == other.returncode == 0
    assert is_gone(but=2)


def test_a_file_that_cannot_be_written_leaves_nothing(registry: Registry) -> None:
    make_wheel(registry.folder, "library", files={"library/data.txt": "x" * 3_000_000})
    limited = (
        f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000,) * 2)\n{MAKE}"
    )
    with cell_in_use(CELL):
        done = subprocess.run(
            [sys.executable, "-c", limited, registry.shipped, PYTHON, "library"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "LockError" in done.stderr
        assert is_gone()
