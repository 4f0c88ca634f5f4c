"""What uv is told of the settings of a user and of a project."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from ivhl.errors import LockError
from ivhl.matrix.uv import kept_settings, run_uv

if TYPE_CHECKING:
    from pathlib import Path

# Each forbids or changes what a lock says; uv ends with 2 if it obeys the first.
HOSTILE = """
exclude-newer = "30 days"
no-binary = true
no-build = true
resolution = "lowest"
prerelease = "allow"
python-preference = "only-system"
required-version = ">=99"
no-cache = true
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("UV_CONFIG")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    (tmp_path / "home/uv").mkdir(parents=True)
    (tmp_path / "project/inner").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize("place", ["project/pyproject.toml", "project/uv.toml", "home/uv/uv.toml"])
def test_no_setting_that_would_change_a_cell_is_obeyed(home: Path, place: str) -> None:
    head = "[tool.uv]\n" if place.endswith("pyproject.toml") else ""
    (home / place).write_text(head + HOSTILE, encoding="utf-8")
    done = run_uv(["pip", "list", "--python", sys.executable], cwd=home / "project/inner")
    assert done.returncode == 0, done.stderr
    assert kept_settings(home / "project/inner") == {}


def test_variables_that_would_change_a_cell_are_not_obeyed(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_REQUIRE_HASHES", "1")
    monkeypatch.setenv("UV_NO_BUILD_PACKAGE", "no name at all!")
    monkeypatch.setenv("UV_EXCLUDE_NEWER", "no date")
    (home / "asked.in").write_text("", encoding="utf-8")
    done = run_uv(["pip", "compile", "asked.in", "--python", sys.executable], cwd=home)
    assert done.returncode == 0, done.stderr


def test_indexes_and_proxies_are_kept_where_each_file_places_them(home: Path) -> None:
    project, user = home / "project/pyproject.toml", home / "home/uv/uv.toml"
    project.write_text(
        '[tool.uv]\nfind-links = ["wheels"]\nhttp-proxy = "http://here"\n'
        '[[tool.uv.index]]\nname = "own"\nurl = "./simple"\nexplicit = true\n',
        encoding="utf-8",
    )
    user.write_text(
        'find-links = ["/mirror"]\nallow-insecure-host = ["mirror"]\nhttp-proxy = "http://there"\n',
        encoding="utf-8",
    )
    assert kept_settings(home / "project/inner") == {
        "index": [{"name": "own", "url": f"{home}/project/simple", "explicit": True}],
        "find-links": [f"{home}/project/wheels", "/mirror"],
        "http-proxy": "http://here",
        "allow-insecure-host": ["mirror"],
    }
    # uv reads the same, and finds no package where it is told to look.
    (home / "asked.in").write_text("flit_core\n", encoding="utf-8")
    user.write_text('no-index = true\nfind-links = ["wheels"]\n', encoding="utf-8")
    (home / "home/uv/wheels").mkdir()
    done = run_uv(["pip", "compile", "asked.in", "--python", sys.executable], cwd=home)
    assert "flit-core was not found in the provided package locations" in done.stderr


def test_the_file_that_the_user_names_takes_the_place_of_the_others(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "home/uv/uv.toml").write_text("offline = true\n", encoding="utf-8")
    (home / "named.toml").write_text('link-mode = "copy"\n', encoding="utf-8")
    monkeypatch.setenv("UV_CONFIG_FILE", str(home / "named.toml"))
    assert kept_settings(home) == {"link-mode": "copy"}
    monkeypatch.delenv("UV_CONFIG_FILE")
    assert kept_settings(home) == {"offline": True}
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    assert kept_settings(home) == {}


@pytest.mark.parametrize("text", ["tool = 3", "[tool]\nuv = 3", ""])
def test_a_project_without_settings_of_uv_has_none(home: Path, text: str) -> None:
    (home / "project/pyproject.toml").write_text(text, encoding="utf-8")
    assert kept_settings(home / "project") == {}


@pytest.mark.parametrize("text", ["index = [", f"index = {'[' * 100_000}"])
def test_settings_that_are_no_toml_are_refused_by_name(home: Path, text: str) -> None:
    (home / "project/uv.toml").write_text(text, encoding="utf-8")
    with pytest.raises(LockError, match=r"project/uv\.toml: must be TOML"):
        kept_settings(home / "project")


def test_the_indexes_of_a_project_count_wherever_uv_runs(home: Path) -> None:
    """Locks are made in a temporary folder."""
    (home / "project/uv.toml").write_text("no-index = true\n", encoding="utf-8")
    (home / "asked.in").write_text("flit_core\n", encoding="utf-8")
    words = ["pip", "compile", "asked.in", "--python", sys.executable]
    done = run_uv(words, cwd=home, project=home / "project")
    assert "flit-core was not found in the provided package locations" in done.stderr
