"""Whether the interpreter has its lock, where it can do without."""

from __future__ import annotations

import sys
import sysconfig

import pytest

from ivhl.measure.case import gil_is_on


@pytest.mark.parametrize("on", [True, False])
def test_a_free_threaded_build_tells_its_lock(
    monkeypatch: pytest.MonkeyPatch, *, on: bool
) -> None:
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: int(name == "Py_GIL_DISABLED"))
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: on, raising=False)
    assert gil_is_on() is on


def test_any_other_build_has_nothing_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_config_var", lambda _: None)
    assert gil_is_on() is None
