"""A release that the matrix lacks is reported, with the Pythons that it can be installed on."""

from __future__ import annotations

import datetime as dt
import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from typer.testing import CliRunner

from ivhl.cli import app
from ivhl.cli.gate import code
from ivhl.errors import LockError
from ivhl.matrix.project import find_root
from ivhl.matrix.releases import find_new_releases, last_day_of, support_of
from ivhl.matrix.spec import Matrix
from ivhl.matrix.uv import run_uv
from studies.schemas import SCHEMAS
from tests.builders.registry import make_wheel, served

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = find_root(Path(__file__))
TODAY = dt.date(2026, 11, 1)


def matrix_of(*releases: str, pythons: Sequence[str] = ("3.12", "3.13"), **more: Any) -> Matrix:  # noqa: ANN401  (raw TOML)
    return Matrix.model_validate(
        {
            "exclude-newer": dt.date(2024, 1, 1),
            "platform": "x86_64-manylinux_2_28",
            "python": [{"version": version} for version in pythons],
            "torch": [{"release": release, "tier": "default"} for release in releases],
            **more,
        }
    )


def has(monkeypatch: pytest.MonkeyPatch, *versions: str) -> list[str]:
    """Replace uv by a registry with these versions; return its list of requests."""
    asked: list[str] = []

    def run(arguments: Sequence[str], *, cwd: Path) -> subprocess.CompletedProcess[str]:
        text = (cwd / arguments[2]).read_text(encoding="utf-8").strip()
        asked.append(text)
        allowed = SpecifierSet(text.removeprefix("torch"), prereleases=False)
        fitting = sorted(allowed.filter(versions), key=Version)
        if not fitting:
            return subprocess.CompletedProcess(arguments, 1, "", "error: No solution found\n")
        return subprocess.CompletedProcess(arguments, 0, f"torch=={fitting[-1]}\n", "")

    monkeypatch.setattr("ivhl.matrix.releases.run_uv", run)
    return asked


@pytest.mark.parametrize(
    ("registry", "new"),
    [
        (["2.14.1", "2.15.0"], []),
        (["2.14.1", "2.15.0", "2.16.0", "2.15.1", "3.0.0"], ["2.15.1", "2.16.0", "3.0.0"]),
        (["2.14.1", "2.14.2", "2.14.3", "2.15.0"], ["2.14.2", "2.14.3"]),
        (["2.13.0", "2.13.9", "2.14.0", "2.14.1", "2.15.0"], []),
        (["2.14.1", "2.15.0", "2.16.0rc1", "2.16.0.dev1"], []),
    ],
)
def test_newer_releases_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registry: list[str], new: list[str]
) -> None:
    has(monkeypatch, *registry)
    assert find_new_releases(tmp_path, matrix_of("2.15.0", "2.14.1")) == tuple(new)


VERSIONS = st.builds("2.{}.{}".format, st.integers(0, 4), st.integers(0, 3))


@given(registry=st.sets(VERSIONS, min_size=1), data=st.data())
def test_new_means_a_newer_patch_or_newer_than_all(
    registry: set[str], data: st.DataObject
) -> None:
    rows = data.draw(st.sets(st.sampled_from(sorted(registry)), min_size=1))
    newest_of: dict[tuple[int, ...], Version] = {}
    for version in sorted(map(Version, rows)):
        newest_of[version.release[:2]] = version
    expected = {
        version
        for version in map(Version, registry)
        if version > max(newest_of.values())
        or version > newest_of.get(version.release[:2], Version("9"))
    }
    with pytest.MonkeyPatch.context() as patch:
        asked = has(patch, *registry)
        found = find_new_releases(Path("none"), matrix_of(*rows))
    assert [Version(text) for text in found] == sorted(expected)
    assert len(asked) == len(newest_of) + len(expected)


def test_no_answer_is_not_reported_as_nothing_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has(monkeypatch, "2.14.1")
    with pytest.raises(LockError, match=r"no answer for torch>=2\.15\.0: error: No solution"):
        find_new_releases(tmp_path, matrix_of("2.15.0"))


@pytest.mark.parametrize("text", ["", "torch==2.15.0\ntorch==2.16.0\n", "nonsense\n"])
def test_an_invalid_answer_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(
        "ivhl.matrix.releases.run_uv",
        lambda *_, **__: subprocess.CompletedProcess((), 0, text, ""),
    )
    with pytest.raises(LockError, match="uv answers torch>=2"):
        find_new_releases(tmp_path, matrix_of("2.15.0"))


def test_settings_of_the_index_are_not_taken_for_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "ivhl.matrix.releases.run_uv",
        lambda *_, **__: subprocess.CompletedProcess(
            (), 0, "--index-url x\n\ntorch==2.15.0\n", ""
        ),
    )
    assert find_new_releases(tmp_path, matrix_of("2.15.0")) == ()


def test_a_release_that_one_python_lacks_is_checked_with_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = tmp_path / "envs" / "locks"
    locks.mkdir(parents=True)
    (locks / "py3.13-torch2.2.2.unavailable.txt").write_text("no wheels\n", encoding="utf-8")
    pythons = []

    def run(arguments: Sequence[str], **_: object) -> subprocess.CompletedProcess[str]:
        pythons.append(arguments[arguments.index("--python-version") + 1])
        return subprocess.CompletedProcess(arguments, 0, "torch==2.2.2\n", "")

    monkeypatch.setattr("ivhl.matrix.releases.run_uv", run)
    assert find_new_releases(tmp_path, matrix_of("2.2.2")) == ()
    assert pythons == ["3.12"]


# The real registry.


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip if no package registry answers."""
    folder = tmp_path_factory.mktemp("asked")
    (folder / "requirements.in").write_text("iniconfig==2.0.0\n", encoding="utf-8")
    asked = run_uv(["pip", "compile", "requirements.in", "--python", sys.executable], cwd=folder)
    if asked.returncode:
        pytest.skip(f"no package registry: {asked.stderr.strip()}")


@pytest.mark.usefixtures("registry")
def test_real_uv_lists_the_releases_after_2_14_0(tmp_path: Path) -> None:
    found = find_new_releases(tmp_path, matrix_of("2.11.0", "2.14.0"))
    assert {"2.14.1", "2.15.0"} <= set(found)
    assert not {"2.11.0", "2.12.0", "2.14.0"} & set(found)


@pytest.mark.usefixtures("registry")
def test_real_uv_finds_the_pythons_of_a_release_and_writes_nothing(tmp_path: Path) -> None:
    rows = support_of(tmp_path, matrix_of("2.15.0"), "2.4.1", TODAY)
    assert [(row.cell.id, row.kind) for row in rows] == [
        ("py3.12-torch2.4.1", "locked"),
        ("py3.13-torch2.4.1", "unavailable"),
    ]
    assert rows[0].message == ""
    assert "no wheels" in rows[1].message
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("registry")
def test_a_release_that_does_not_exist_is_undecided(tmp_path: Path) -> None:
    (row,) = support_of(tmp_path, matrix_of("2.15.0", pythons=["3.12"]), "2.14.7", TODAY)
    assert (row.kind, "unknown PyTorch release '2.14.7'" in row.message) == ("undecided", True)


# The command.


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["matrix", "--new", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add PyTorch 2.98.1, which 3.13 lacks, with a reason that contains markup."""
    monkeypatch.chdir(HERE)
    has(monkeypatch, *_releases(), "2.98.1")

    def resolve(*arguments: Any) -> tuple[str, str]:  # noqa: ANN401
        cell = arguments[2]
        why = "|no `wheels` @you <b>#1\nhint: more"
        return ("locked", "") if cell.python == "3.12" else ("unavailable", why)

    monkeypatch.setattr("ivhl.matrix.releases.resolve_cell", resolve)


def _releases() -> tuple[str, ...]:
    text = (HERE / "envs" / "matrix.toml").read_text(encoding="utf-8")
    return tuple(re.findall(r'release = "(.*)"', text))


@pytest.mark.usefixtures("offered")
def test_the_command_prints_text_and_json() -> None:
    assert "locked py3.12-torch2.98.1" in run()
    told = json.loads(run("--json"))["releases"]
    assert list(told) == ["2.98.1"]
    SCHEMAS["releases"].validate_json(run("--json"))
    assert {python: row["lock"] for python, row in told["2.98.1"].items()} == {
        "3.12": "locked",
        **dict.fromkeys(("3.13", "3.14", "3.14t", "3.15"), "unavailable"),
    }


def test_nothing_new_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HERE)
    has(monkeypatch, *_releases())
    assert run().startswith("no release newer than the matrix")
    assert json.loads(run("--json"))["releases"] == {}


def test_the_last_day_of_a_release_is_the_day_before_the_upload_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads = {
        "2.5.1": dt.date(2024, 10, 29),
        "2.6.0": dt.date(2025, 1, 29),
        "2.7.0": dt.date(2025, 4, 23),
    }
    for version, day in uploads.items():
        python = "cp312" if version == "2.5.1" else "cp313"  # 3.13 has no older release
        for tag in {"cp312", python}:
            wheel = make_wheel(
                tmp_path, "torch", version, tag=f"{tag}-{tag}-manylinux_2_28_x86_64"
            )
            uploaded = dt.datetime.combine(day, dt.time(15), dt.UTC).timestamp()
            os.utime(wheel, (uploaded, uploaded))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))  # no settings of the user
    with served(tmp_path, dated=True) as (address, _, _):
        monkeypatch.setenv("UV_DEFAULT_INDEX", address)
        assert last_day_of("3.12", "2.5.1") == dt.date(2025, 1, 28)
        assert last_day_of("3.13", "2.6.0") == dt.date(2025, 4, 22)
        assert last_day_of("3.13", "2.7.0") is None
    with pytest.raises(LockError):
        last_day_of("3.13", "2.7.0")


@given(st.text(st.characters(codec="ascii", exclude_categories=["C"]), max_size=200))
def test_text_in_code_is_never_markup(text: str) -> None:
    written = code(text)
    inside = written.removeprefix("<code>").removesuffix("</code>")
    assert not set(inside) & set("<>|`@")
    assert html.unescape(inside) == text
