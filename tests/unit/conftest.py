"""Fixtures for every test of this folder."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType


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


def _loaded() -> dict[str, ModuleType]:
    """Return the modules of ``benchmarks`` that are loaded."""
    return {name: m for name, m in sys.modules.items() if f"{name}.".startswith("benchmarks.")}
