"""Fixtures for every test of this folder."""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType


# No test asserts a time: on a machine with other work, any example may take its 200 ms.
settings.register_profile("any time", deadline=None)
settings.load_profile("any time")


def pytest_collection_finish() -> None:
    """Keep what is loaded by now, 700,000 objects, from the garbage collector: it takes 7 %."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Give it all back, or libraries report what is left at the end as leaks."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def _made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for what the tests of a process share."""
    return tmp_path_factory.mktemp("made once")


@pytest.fixture(autouse=True)
def _own_cache(
    _made_once: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keep indexes of test results out of the user's cache.

    The index of the committed records takes two seconds, so it is made once. It lies under a digest
    of what it is made from.
    """
    cache = tmp_path_factory.mktemp("cache")
    (cache / "ivhl").mkdir()
    (_made_once / "index").mkdir(exist_ok=True)
    (cache / "ivhl" / "index").symlink_to(_made_once / "index")
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
    return {name: m for name, m in sys.modules.items() if f"{name}.".startswith("benchmarks.")}
