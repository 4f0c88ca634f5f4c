"""Fixtures for every test of this folder."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType


# No test asserts a time: on a machine with other work, any example may take its 200 ms.
settings.register_profile("any time", deadline=None)
settings.load_profile("any time")


def pytest_collection_finish() -> None:
    """Keep what is loaded by now, 700,000 objects, from the garbage collector: it takes 7 %."""
    gc.collect()
    gc.freeze()
    # Or libraries report what is left at the end as leaks. Not before: pytest collects five times.
    atexit.register(gc.unfreeze)


@pytest.fixture(scope="session")
def _caches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for the caches of all tests, whichever worker runs them."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "caches"
    (folder / "index").mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(autouse=True)
def _own_cache(_caches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep indexes of test results out of the user's cache.

    The index of the committed records takes two seconds, so it is made once. It lies under a digest
    of what it is made from.
    """
    # Not a numbered folder: pytest lists all earlier ones to number the next.
    cache = Path(tempfile.mkdtemp(dir=_caches))
    (cache / "ivhl").mkdir()
    (cache / "ivhl" / "index").symlink_to(_caches / "index")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))


@pytest.fixture(autouse=True)
def _own_benchmarks() -> Iterator[None]:
    """Import ivhl's own ``benchmarks`` again after a test that read another project's.

    A process has one package of that name: without this, a test's result hangs on which tests its
    worker ran before.
    """
    before = _loaded()
    yield
    if sys.modules.get("benchmarks") is not before.get("benchmarks"):
        for name in _loaded():
            del sys.modules[name]
        sys.modules.update(before)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that is first on PATH."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.fixture
def empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder that is all of PATH."""
    folder = tmp_path / "nothing"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def _loaded() -> dict[str, ModuleType]:
    """Return the modules of ``benchmarks`` that are loaded."""
    return {
        name: module
        for name, module in sys.modules.items()
        if name == "benchmarks" or name.startswith("benchmarks.")
    }
