"""``gil_is_on`` reports the GIL of free-threaded builds."""

from __future__ import annotations

import sys
import sysconfig

import pytest

from ivhl.measure.imports import gil_is_on


@pytest.mark.parametrize("on", [True, False])
def test_a_free_threaded_build_reports_whether_the_gil_is_on(
    monkeypatch: pytest.MonkeyPatch, *, on: bool
) -> None:
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: int(name == "Py_GIL_DISABLED"))
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: on, raising=False)
    assert gil_is_on() is on


def test_other_builds_report_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_config_var", lambda _: None)
    assert gil_is_on() is None
