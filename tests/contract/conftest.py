"""What the contracts share: a cache, and a precompiled header where Inductor makes none itself."""

from __future__ import annotations

import atexit
import fcntl
import gc
import os
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from ivhl.measure.first_compile import (
    check_instructions_without_torch,
    precompile_kernel_header,
)


def pytest_collection_finish() -> None:
    """Keep what is loaded by now from the garbage collector, as in ``unit``."""
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a session, which all of its workers have."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def user_cache(shared: Path) -> Path:
    """Return a cache of a user, in which the index of our records is made once: it takes seconds."""
    folder = shared / "user cache"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session", autouse=True)
def _precompiled_header(shared: Path) -> None:
    """Before 2.8 a kernel takes g++ half of the time with it, and is the same machine code."""
    if find_spec("torch") is not None:
        from torch._inductor.codecache import cache_dir  # noqa: PLC0415  (torch is in the cells)

        check_instructions_without_torch()
        # The workers share Inductor's cache: one compiles, and the others wait for its link. The
        # cache keeps the link, and so it keeps the header for the next session.
        with (shared / "header.lock").open("w") as lock, suppress(FileExistsError):
            fcntl.flock(lock, fcntl.LOCK_EX)
            precompile_kernel_header(Path(cache_dir()))
