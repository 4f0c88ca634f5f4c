"""The tier ``next``: release candidates and nightlies, from an index of one's own."""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import http.server
import sys
import threading
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from ivhl.cli import app, run
from ivhl.cli.names import find_cell
from ivhl.errors import LockError, SpecError
from ivhl.matrix.check import check_locks
from ivhl.matrix.locks import NEXT_INDEX, index_options, lock_release, lock_state
from ivhl.matrix.spec import CellSpec, Matrix, load_matrix
from ivhl.matrix.uv import run_uv
from ivhl.observatory import observing
from ivhl.observatory.record import every_observed
from ivhl.script import cells
from tests.builders.registry import make_wheel, served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NIGHTLY = "2.16.0.dev20261120"
CELL = CellSpec("3.12", NIGHTLY)


def matrix_of(**changes: Any) -> Matrix:  # noqa: ANN401  (raw TOML)
    return Matrix.model_validate(
        {
            "exclude-newer": dt.date(2026, 11, 15),
            "platform": "x86_64-manylinux_2_28",
            "python": [{"version": "3.12"}],
            "torch": [
                {"release": "2.15.0", "tier": "default"},
                {"release": NIGHTLY, "tier": "next"},
            ],
        }
        | changes
    )


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (its name)
        """Say nothing."""


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """Serve an index with a nightly as PyTorch publishes them: a local version, without a date."""
    folder = tmp_path / "index" / "torch"
    folder.mkdir(parents=True)
    name, version = "torch", f"{NIGHTLY}+cpu"
    info = f"{name}-{version}.dist-info"
    tags = "Root-Is-Purelib: true\nTag: cp312-cp312-linux_x86_64\n"
    files = {
        "torch/__init__.py": f'__version__ = "{version}"\n',
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\n{tags}",
    }
    record = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    wheel = folder / f"{name}-{version}-cp312-cp312-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in (files | {f"{info}/RECORD": record}).items():
            archive.writestr(path, text)
    handler = functools.partial(_Quiet, directory=str(folder.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_a_nightly_is_locked_and_installed_from_its_index(
    tmp_path: Path, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = matrix_of()
    monkeypatch.setenv(NEXT_INDEX, index)
    (state,) = lock_release(tmp_path, matrix, NIGHTLY)
    (wheel,) = (tmp_path / "index" / "torch").glob("*.whl")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert [(pin.version, pin.hashes) for pin in state.pins] == [
        (f"{NIGHTLY}+cpu", (f"sha256:{digest}",))
    ]
    assert "127.0.0.1" not in state.path.read_text(encoding="utf-8")
    options = index_options(CELL, of_next=lock_state(tmp_path, CELL).of_next)
    arguments = ("--require-hashes", *options, "--target", str(tmp_path / "cell"))
    platform = ("--python-version", "3.12", "--python-platform", "linux")
    done = run_uv(("pip", "sync", *arguments, *platform, str(state.path)), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert NIGHTLY in (tmp_path / "cell" / "torch" / "__init__.py").read_text(encoding="utf-8")


def test_a_candidate_is_observed_in_a_cell_from_its_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A torch that has a version and nothing else suffices: the record has what the library says."""
    root, wheels = tmp_path / "root", tmp_path / "wheels"
    cell = CellSpec("{}.{}".format(*sys.version_info), "2.16.0rc1")
    tag = "cp{0}{1}-cp{0}{1}-linux_x86_64".format(*sys.version_info)
    files = {"torch/__init__.py": f"__version__ = {cell.torch!r}\n"}
    make_wheel(tmp_path / "next", "torch", f"{cell.torch}+cpu", files=files, tag=tag)
    refuses = "import torch\nraise ImportError(f'demo is not for {torch.__version__}')\n"
    make_wheel(wheels, "demo", requires=["torch>=2"], files={"demo.py": refuses})
    make_wheel(wheels, "old", requires=["torch<2.16"])
    (root / "envs").mkdir(parents=True)
    (root / "observatory").mkdir()
    row = f'[[torch]]\nrelease = "{cell.torch}"\ntier = "next"\n'
    python = f'[[python]]\nversion = "{cell.python}"\n'
    (root / "envs" / "matrix.toml").write_text(
        f'exclude-newer = 2026-11-15\nplatform = "x86_64-manylinux_2_28"\n{python}{row}', "utf-8"
    )
    case = '{ target = "NAME:f", asks = ["forward"] }'
    (root / "observatory" / "libraries.toml").write_text(
        "".join(f"[{n}]\n[{n}.cases]\nf = {case.replace('NAME', n)}\n" for n in ("demo", "old")),
        encoding="utf-8",
    )
    for module in (cells, observing, run):
        monkeypatch.setattr(module, "SHIPPED", root)
    monkeypatch.chdir(root)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))  # no settings of the user
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    command = ["observe", "--torch", "next", "--python", cell.python]
    with served(tmp_path / "next") as (early, *_), served(wheels) as (usual, *_):
        monkeypatch.setenv("UV_DEFAULT_INDEX", usual)
        monkeypatch.setenv(NEXT_INDEX, early)
        assert CliRunner().invoke(app, ["lock"]).exit_code == 0
        monkeypatch.delenv(NEXT_INDEX)
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 7
        assert f'not run: has the tier "next", but {NEXT_INDEX} is not set' in done.stderr
        monkeypatch.setenv(NEXT_INDEX, early)
        assert CliRunner().invoke(app, command).exit_code == 0
    found = {one.library: one for one in every_observed(root / "observatory" / "records", print)}
    assert (found["old"].unavailable, found["old"].cell) == ("pinned out", cell.id)
    demo = found["demo"]
    assert (demo.torch, demo.version, demo.lock) == (
        cell.torch, "1.0", lock_state(root, cell).sha256,
    )  # fmt: skip
    assert f"demo is not for {cell.torch}" in demo.why
    lock = (root / "observatory" / "locks" / f"{demo.overlay}.txt").read_text(encoding="utf-8")
    assert lock.startswith("demo==1.0 --hash=sha256:")
    assert lock.count("\n") == 1  # torch is the cell's


def test_a_tier_without_a_release_is_named(tmp_path: Path) -> None:
    path = tmp_path / "matrix.toml"
    rows = '[[python]]\nversion = "3.12"\n[[torch]]\nrelease = "2.15.0"\ntier = "default"\n'
    path.write_text(f'exclude-newer = 2026-11-15\nplatform = "linux"\n{rows}', encoding="utf-8")
    with pytest.raises(SpecError, match=r"--torch next: envs/matrix\.toml has no release"):
        run.cells_of(load_matrix(path), ["next"], [])


def test_a_series_means_its_newest_release_and_no_candidate() -> None:
    rows = [{"release": "2.15.0", "tier": "default"}, {"release": "2.15.1rc1", "tier": "next"}]
    assert matrix_of(torch=rows).release("2.15") == "2.15.0"
    assert matrix_of(torch=rows[1:]).release("2.15") == "2.15.1rc1"


def test_where_the_index_has_no_wheel_the_reason_holds_no_address(
    tmp_path: Path, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NEXT_INDEX, index)
    matrix = matrix_of(python=[{"version": "3.12"}, {"version": "3.13"}])
    _, state = lock_release(tmp_path, matrix, NIGHTLY)
    assert state.kind == "unavailable"
    assert "cp313" in state.message
    assert "127.0.0.1" not in state.path.read_text(encoding="utf-8")


def test_a_release_that_its_index_lacks_is_no_unknown_one(
    tmp_path: Path, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = "2.99.0rc9"
    rows = [{"release": "2.15.0", "tier": "default"}, {"release": gone, "tier": "next"}]
    monkeypatch.setenv(NEXT_INDEX, index)
    with pytest.raises(LockError, match=f"the index that {NEXT_INDEX} names has no torch {gone}"):
        lock_release(tmp_path, matrix_of(torch=rows), gone)
    monkeypatch.setenv(NEXT_INDEX, "nonsense")
    with pytest.raises(LockError, match=f"{NEXT_INDEX}: must be an address .*'nonsense'"):
        lock_release(tmp_path, matrix_of(), NIGHTLY)


def test_without_its_index_a_nightly_is_refused_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(NEXT_INDEX, raising=False)
    with pytest.raises(LockError, match=f'has the tier "next", but {NEXT_INDEX} is not') as got:
        lock_release(tmp_path, matrix_of(), NIGHTLY)
    assert f"export {NEXT_INDEX}=" in got.value.hint
    # Nobody must have its lock.
    problems = check_locks(tmp_path, matrix_of())
    assert problems == ["py3.12-torch2.15.0.txt: is missing"]


def test_a_nightly_is_in_no_other_tier(tmp_path: Path) -> None:
    matrix = matrix_of()
    assert [cell.torch for cell in matrix.cells(tier="extended")] == ["2.15.0"]
    assert matrix.cells(tier="next") == (CELL,)
    assert (matrix.tier(CELL), find_cell(matrix, CELL.id)) == ("next", CELL)
    path = tmp_path / "matrix.toml"
    rows = f'[[python]]\nversion = "3.12"\n[[torch]]\nrelease = "{NIGHTLY}"\ntier = "extended"\n'
    path.write_text(f'exclude-newer = 2026-11-15\nplatform = "linux"\n{rows}', encoding="utf-8")
    with pytest.raises(SpecError, match=r'torch\.0\.tier: must be "next" for a pre-release'):
        load_matrix(path)


def test_a_later_day_makes_no_lock_of_a_nightly_stale(
    tmp_path: Path, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NEXT_INDEX, index)
    (state,) = lock_release(tmp_path, matrix_of(), NIGHTLY)
    assert not state.stale(matrix_of(**{"exclude-newer": dt.date(2026, 11, 20)}))
    assert state.stale(matrix_of(platform="x86_64-manylinux_2_34"))


def test_locks_that_are_left_without_an_index_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "envs" / "matrix.toml"
    path.parent.mkdir()
    row = f'[[torch]]\nrelease = "{NIGHTLY}"\ntier = "next"\n'
    python = '[[python]]\nversion = "3.12"\n'
    path.write_text(f'exclude-newer = 2026-11-15\nplatform = "linux"\n{python}{row}', "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(NEXT_INDEX, raising=False)
    done = CliRunner().invoke(app, ["lock"])
    assert f"skipped {NIGHTLY}: its tier is next, and {NEXT_INDEX} is not set" in done.output
