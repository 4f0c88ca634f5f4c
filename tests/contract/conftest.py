"""What the contracts share: one precompiled header, where Inductor makes none itself."""

from __future__ import annotations

import gc
from contextlib import suppress
from importlib.util import find_spec

import pytest

from ivhl.measure.first_compile import precompile_kernel_header


def pytest_collection_finish() -> None:
    """Keep what is loaded by now from the garbage collector, as in ``unit``."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Give it all back, as in ``unit``."""
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def _precompiled_header(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Before 2.8 a kernel takes g++ half of the time with it, and is the same machine code."""
    shared = tmp_path_factory.getbasetemp() / "headers"
    shared.mkdir()
    if find_spec("torch") is not None:
        with suppress(FileExistsError):  # another worker was first
            precompile_kernel_header(shared)
