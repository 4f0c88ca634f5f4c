"""The calibration is fixed work in one thread, timed by a clock that other load does not move."""

from __future__ import annotations

import time

import pytest

torch = pytest.importorskip("torch")

from ivhl.measure import calibration  # noqa: E402  (torch first)
from ivhl.measure.calibration import calibrate  # noqa: E402


def test_each_kind_of_work_takes_time() -> None:
    found = calibrate(torch.device("cpu"))
    assert sorted(found) == ["code_s", "memory_s"]
    assert all(0 < seconds < 1 for seconds in found.values())


def test_waiting_is_not_work() -> None:
    found = calibration._seconds(lambda: time.sleep(0.02), torch.device("cpu"), 3)
    assert found < 0.01


def test_calibrating_leaves_the_random_state_alone() -> None:
    before = torch.get_rng_state()
    calibrate(torch.device("cpu"))
    assert torch.equal(before, torch.get_rng_state())
