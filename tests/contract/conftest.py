"""What the contracts share: one precompiled header, where Inductor makes none itself."""

from __future__ import annotations

import fcntl
import gc
import os
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
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    if find_spec("torch") is not None:
        # The workers share Inductor's cache: one compiles, and the others wait for its link.
        with (shared / "header.lock").open("w") as lock, suppress(FileExistsError):
            fcntl.flock(lock, fcntl.LOCK_EX)
            precompile_kernel_header(shared)
