"""The fixtures that all end-to-end tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which the first compile is kept, which takes a run 20 s."""
    return tmp_path_factory.mktemp("cache")
