"""What reads files of others holds against some generated ones; ``nox -s fuzz`` makes more."""

from __future__ import annotations

import pytest

from tests.fuzz.__main__ import attack
from tests.fuzz.targets import TARGETS

_EXAMPLES = 30


@pytest.mark.parametrize("target", TARGETS)
def test_generated_files_of_others_are_read_or_refused(target: str) -> None:
    assert attack(target, 20261123, _EXAMPLES) > 0
