"""``ivhl ready``: what a project depends on, in each format, and what the records say of it."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from typer.testing import CliRunner

from ivhl.cli import app
from ivhl.errors import SpecError, UnknownNameError
from ivhl.observatory.dependencies import Dependencies, Dependency, installed, read_dependencies
from ivhl.observatory.ready import CaseVerdict, TriedCell, readiness
from ivhl.observatory.views import SCHEMA
from studies.schemas import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.12", "3.13", "3.14")
UV = """\
version = 1
revision = 3
requires-python = ">=3.12, <3.14"

[[package]]
name = "app"
version = "0.1"
source = { editable = "." }
dependencies = [
    { name = "timm", extra = ["fast"] },
    { name = "torch", version = "2.9.1", marker = "python_full_version < '3.13'" },
    { name = "torch", version = "2.10.0+cpu", marker = "python_full_version >= '3.13'" },
    { name = "zuko", marker = "sys_platform == 'win32'" },
]
[package.optional-dependencies]
more = [{ name = "lpips" }]

[[package]]
name = "timm"
version = "1.0.9"
source = { registry = "https://index.example/simple" }
dependencies = [{ name = "torch" }, { name = "pyyaml" }]
[package.optional-dependencies]
fast = [{ name = "einops" }]
slow = [{ name = "kornia" }]

[[package]]
name = "torch"
version = "2.9.1"
source = { registry = "https://index.example/simple" }
resolution-markers = ["python_full_version < '3.13'"]

[[package]]
name = "torch"
version = "2.10.0+cpu"
source = { registry = "https://index.example/simple" }
resolution-markers = ["python_full_version >= '3.13'"]

[[package]]
name = "einops"
version = "0.8.2"
source = { registry = "https://index.example/simple" }

[[package]]
name = "kornia"
version = "0.9"
source = { registry = "https://index.example/simple" }

[[package]]
name = "lpips"
version = "0.1"
source = { registry = "https://index.example/simple" }

[[package]]
name = "zuko"
version = "1.6"
source = { git = "https://index.example/zuko" }
"""
PYLOCK = """\
lock-version = "1.0"
requires-python = ">=3.12,<3.14"
created-by = "a tool"
[[packages]]
name = "timm"
version = "1.0.9"
dependencies = [{ name = "torch" }]
[[packages.wheels]]
name = "timm-1.0.9-py3-none-any.whl"
url = "https://index.example/timm-1.0.9-py3-none-any.whl"
hashes = { sha256 = "00" }
[[packages]]
name = "torch"
version = "2.9.1+cpu"
marker = "'dev' not in dependency_groups and sys_platform == 'linux'"
[[packages.wheels]]
name = "torch-2.9.1+cpu-py3-none-any.whl"
url = "https://index.example/torch-2.9.1+cpu-py3-none-any.whl"
hashes = { sha256 = "00" }
"""
PROJECT = """\
[project]
name = "app"
requires-python = ">=3.12,<3.14"
dependencies = ["Timm==1.0.9", "torch==2.9.1", "zuko; python_version < '3'"]
"""
REQUIREMENTS = "Timm==1.0.9\ntorch==2.9.1\n"


def told(asked: Dependencies, python: str = "3.12") -> dict[str, str]:
    names = dict.fromkeys(one.name for one in [*asked.packages, *asked.limits])
    versions = {name: asked.versions(name, python) for name in names}
    return {name: str(allowed) for name, allowed in versions.items() if allowed is not None}


@pytest.mark.parametrize(
    ("name", "text", "pythons", "needs_torch"),
    [
        ("pylock.toml", PYLOCK, "<3.14,>=3.12", True),
        ("pylock.dev.toml", PYLOCK, "<3.14,>=3.12", True),
        ("pyproject.toml", PROJECT, "<3.14,>=3.12", None),
        ("requirements-dev.txt", REQUIREMENTS, "", None),
        ("requirements.in", REQUIREMENTS, "", None),
    ],
)
def test_every_format_says_the_same(
    tmp_path: Path,
    name: str,
    text: str,
    pythons: str,
    needs_torch: bool | None,  # noqa: FBT001
) -> None:
    path = tmp_path / name
    path.write_text(text)
    asked = read_dependencies(path, PYTHONS)
    assert told(asked) == {"timm": "==1.0.9", "torch": "==2.9.1"}
    assert str(asked.pythons) == pythons
    assert asked.packages[0].needs_torch is needs_torch
    if "-" not in name and name.count(".") == 1 and name != "requirements.in":
        assert told(read_dependencies(tmp_path, PYTHONS)) == told(asked)  # the folder


def test_a_lock_of_uv_has_what_a_python_on_linux_gets_without_extras(tmp_path: Path) -> None:
    (tmp_path / "uv.lock").write_text(UV)
    asked = read_dependencies(tmp_path, PYTHONS)
    assert told(asked) == {"timm": "==1.0.9", "einops": "==0.8.2", "torch": "==2.9.1"}
    assert told(asked, "3.13") == told(asked) | {"torch": "==2.10.0"}
    assert {one.name for one in asked.packages if one.needs_torch} == {"timm"}
    (note,) = asked.notes
    assert note == f"not read: extra more; ivhl ready '{tmp_path}/pyproject.toml[more]' adds more"
    # A lock whose project is elsewhere: all that it has.
    (tmp_path / "uv.lock").write_text(UV.replace('editable = "."', 'registry = "x"'))
    assert "zuko" in told(read_dependencies(tmp_path, PYTHONS))


def test_a_requirements_file_is_read_as_pip_reads_it(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "base.txt").write_text(
        "-r ../requirements.txt\n--constraint=pins.txt\nkornia\ntimm<1.2\n"
    )
    (tmp_path / "more" / "pins.txt").write_text("torch==2.9.1+cpu\ntimm<1.1\nnever-asked==3\n")
    (tmp_path / "requirements.txt").write_text(
        "\ufeff# a comment\n"
        "--index-url https://user:secret@index.example/simple\n"
        "timm[extra] >= 1.0 ; python_version < '3.14'  # why\n"
        "einops==0.8.2+local.1 \\\n    --hash=sha256:00 \\\n    --hash=sha256:11\n"
        "-r more/base.txt\n"
        "-e .\n"
        "./local\n"
        "local/\n"
        "https://user:secret@index.example/a.zip?token=secret\n"
        "https://index.example/roma-1.5.1%2Bcpu-py3-none-any.whl#sha256=00\n"
        "git+https://token@example.com/x.git@main#egg=Spandrel\n"
        "lpips @ git+https://example.com/lpips.git\n"
        "piq @ https://index.example/piq-0.8.0-py3-none-any.whl\n"
        "e3nn==0.5; sys_platform == 'win32'\n"
    )
    asked = read_dependencies(tmp_path / "requirements.txt", PYTHONS)
    assert told(asked) == {
        "timm": "<1.1,<1.2,>=1.0", "einops": "==0.8.2", "kornia": "", "spandrel": "", "lpips": "",
        "torch": "==2.9.1", "roma": "==1.5.1", "piq": "==0.8.0",
    }  # fmt: skip
    assert told(asked, "3.14")["timm"] == "<1.1,<1.2"
    assert asked.unread == ["-e .", "./local", "local/", "https://index.example/a.zip"]
    (tmp_path / "requirements.txt").write_text("timm\r\n", encoding="utf-16")
    assert told(read_dependencies(tmp_path, PYTHONS)) == {"timm": ""}


def test_a_patch_of_a_python_is_enough(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("timm; python_full_version >= '3.12.4'\n")
    assert told(read_dependencies(tmp_path, PYTHONS)) == {"timm": ""}
    found = readiness(asking("timm", pythons="==3.12.5"), KNOWN)
    assert found.pair == ("2.15.0", "3.12")


def test_a_folder_is_its_first_list_of_dependencies_or_its_environment(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'app'\n[tool.ruff]\n")
    assert told(read_dependencies(tmp_path / "pyproject.toml", PYTHONS)) == {}
    packages = tmp_path / ".venv" / "lib" / "python3.13t" / "site-packages"
    (packages / "timm-1.dist-info").mkdir(parents=True)
    (packages / "timm-1.dist-info" / "METADATA").write_text("Name: timm\nVersion: 1 of ours\n")
    asked = read_dependencies(tmp_path, PYTHONS)
    assert (told(asked), str(asked.pythons)) == ({"timm": ""}, "==3.13.*")
    (tmp_path / "requirements.txt").write_text("zuko\n")
    assert told(read_dependencies(tmp_path, PYTHONS)) == {"zuko": ""}


@pytest.mark.parametrize(
    ("name", "text", "rule"),
    [
        ("requirements.txt", "timm\na b c\n", r"txt:2: must be a requirement \(got 'a b c'\)"),
        ("requirements.txt", "-r nowhere.txt\n", r"requirements.txt:1: /\S*nowhere.txt: cannot"),
        ("requirements.txt", "\xff".encode("latin-1"), "must be UTF-8"),
        ("requirements.txt", "timm @ https://u:secret@x.example/a b\n", r"@ https://x.example/a b'"),
        ("requirements.txt", "-r .\n", "cannot be read"),
        ("requirements.txt", "timm; python_version ~= 'x'\n", r"txt:1: must be .*: Undefined"),
        ("pyproject.toml", "[project]\ndynamic = 3\ndependencies = [3]\n", "must be a requirement"),
        ("uv.lock", UV.replace("'win32'", ""), "lock that uv wrote: InvalidMarker"),
        ("uv.lock", UV.replace("== 'win32'", "~= 'x'"), "lock that uv wrote: UndefinedComparison"),
        ("pylock.toml", PYLOCK.replace("== 'linux'", "~= 'x'"), "is no pylock.toml: Undefined"),
        ("pyproject.toml", "[project", "is not valid TOML"),
        ("pyproject.toml", "project = 3\n", "project: must be a table"),
        ("pyproject.toml", "[project]\ndynamic = ['dependencies']\n", "has no list project"),
        ("pyproject.toml", "[tool.poetry]\nname = 'x'\n", "no list project.dependencies"),
        ("pyproject.toml", "[project]\ndependencies = [3]\n", "must be a requirement"),
        ("pyproject.toml", PROJECT.replace(">=3.12,<3.14", "new"), "requires-python: must be as"),
        ("uv.lock", UV.replace("version = 1", "version = 2", 1), r"version: must be 1.*got '2'"),
        ("uv.lock", UV.replace('name = "timm"\nv', 'nam = "timm"\nv'), "that uv wrote: KeyError"),
        ("uv.lock", "version = 1\npackage = 3\n", "no lock that uv wrote: TypeError"),
        ("pylock.toml", PYLOCK.replace("created-by", "by"), "is no pylock.toml: Missing required"),
        ("requirements.txt", "timm\n\0x\n", "txt:2: has a byte 0: no text, or UTF-16 without"),
        ("requirements.txt", "timm\n".encode("utf-16-le"), "txt:1: has a byte 0"),
        ("requirements.txt", "# coding: nonsense\ntimm\n", "must be UTF-8: unknown encoding: nons"),
        ("requirements.txt", "timm # \xe9\n".encode("latin-1"), "must be UTF-8: .* byte 0xe9"),
        ("uv.lock", "", r"version: must be 1, of a lock of uv \(got 'none'\)"),
        ("pyproject.toml", "[project]\ndependencies='a'", r"dependencies: must be a list \(got 'a'"),
        ("pyproject.toml", "[project]\noptional-dependencies = 3\n", "must be a table of lists"),
        ("pyproject.toml", "[project]\nname='a'\ndependencies=['a[b]']", "unknown extra in .* 'b'"),
        ("pyproject.toml[gpu]", None, "pyproject.toml: cannot be read: No such file"),
        ("requirements.txt[gpu]", None, "brackets are those of a pyproject.toml"),
        ("poetry.lock", "", "no file of dependencies that ivhl reads"),
        ("nowhere.txt", None, "nowhere.txt: cannot be read"),
        ("nowhere", None, "nowhere: does not exist"),
        (".", None, "has no list of dependencies and no packages"),
    ],
)  # fmt: skip
def test_bad_input_is_named(
    tmp_path: Path, name: str, text: str | bytes | None, rule: str
) -> None:
    if text is not None:
        (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(SpecError, match=rule) as caught:
        read_dependencies(tmp_path / name, PYTHONS)
    assert caught.value.exit_code == 2
    assert caught.value.hint


@pytest.mark.parametrize(
    ("name", "next_step"),
    [
        ("poetry.lock", "poetry export"),
        ("pdm.lock", "pdm export"),
        ("Pipfile", "pipenv requirements"),
        ("setup.py", "uv pip compile setup.py"),
        ("setup.cfg", "uv pip compile setup.cfg"),
        ("environment.yml", "ivhl ready $CONDA_PREFIX"),
        ("pixi.lock", "ivhl ready $CONDA_PREFIX"),
    ],
)
def test_a_file_of_another_tool_has_its_own_next_step(
    tmp_path: Path, name: str, next_step: str
) -> None:
    (tmp_path / name).write_text("timm\n")
    (tmp_path / "pyproject.toml").write_text("[build-system]\nrequires = ['setuptools']\n")
    with pytest.raises(SpecError, match=f"has {name}, which ivhl does not read") as of_folder:
        read_dependencies(tmp_path, PYTHONS)
    with pytest.raises(SpecError, match="no file of dependencies that ivhl reads") as of_file:
        read_dependencies(tmp_path / name, PYTHONS)
    assert next_step in of_folder.value.hint
    assert next_step in of_file.value.hint


@pytest.mark.parametrize("name", ["timm", "open-clip-torch", "timm>=1.0"])
def test_a_name_of_a_library_in_place_of_a_path_has_a_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError, match="does not exist") as caught:
        read_dependencies(Path(name), PYTHONS)
    command = caught.value.hint.partition(": ")[2]
    subprocess.run(command.partition(";")[0], shell=True, check=True)  # noqa: S602
    assert command.endswith("; ivhl ready one.txt")
    (asked,) = read_dependencies(Path("one.txt"), PYTHONS).packages
    assert name.startswith(asked.name)


def test_a_project_that_computes_its_dependencies_says_so_for_its_folder(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\ndynamic = ['dependencies']\n")
    with pytest.raises(SpecError, match=r"pyproject.toml: has no list") as caught:
        read_dependencies(tmp_path, PYTHONS)
    assert "uv pip compile" in caught.value.hint


def test_links_that_lead_nowhere_and_files_that_name_each_other_end(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(SpecError, match="loop: cannot be read: Too many levels of symbolic links"):
        read_dependencies(tmp_path / "loop", PYTHONS)
    (tmp_path / "requirements.txt").write_text("-r 'one more.txt'\ntimm\n")
    (tmp_path / "one more.txt").write_text("-r requirements.txt\nkornia\n")
    assert told(read_dependencies(tmp_path, PYTHONS)) == {"kornia": "", "timm": ""}


@pytest.mark.parametrize(
    "data",
    [
        "timm\r\n# \u00e9\r\nkornia".encode("utf-8-sig"),
        b"\xff\xfe" + "timm\nkornia".encode("utf-16-le"),
        b"\xfe\xff" + "timm\nkornia".encode("utf-16-be"),
        "timm\nkornia".encode("utf-32"),
        "# why \xe9\n# -*- coding: latin-1 -*-\ntimm\nkornia".encode("latin-1"),
    ],
)
def test_a_requirements_file_is_decoded_as_pip_decodes_it(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "requirements.txt").write_bytes(data)
    assert told(read_dependencies(tmp_path, PYTHONS)) == {"timm": "", "kornia": ""}


def test_a_variable_of_the_environment_is_named_and_its_value_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "VWXYZ":
        monkeypatch.setenv(name, "hunter2")
    (tmp_path / "requirements.txt").write_text(
        "--index-url https://${Z}@index.example/simple\n"
        "timm[fast]>=1,<${V}; python_version < '3.14'\n"
        "zuko==${V}; python_version < '${W}'\n"
        "${X}==1\nti${X}==1\n"
        "-r ${Y}/base.txt\n-c https://user:secret@index.example/c.txt?token=secret\n"
        "lpips @ https://${Z}@index.example/lpips-1.0-py3-none-any.whl\n"
    )
    asked = read_dependencies(tmp_path, PYTHONS)
    assert told(asked) == {"timm": "", "zuko": "", "lpips": "==1.0"}
    assert told(asked, "3.14") == {"zuko": "", "lpips": "==1.0"}
    unread = ["${X}==1", "ti${X}==1", "-r ${Y}/base.txt", "-c https://index.example/c.txt"]
    assert asked.unread == unread
    assert [note.partition("txt:")[2] for note in asked.notes] == [
        "2: ${V} is not read: any version of timm counts",
        "3: ${V}, ${W} is not read: any version of zuko counts",
    ]
    site = a_site(tmp_path / "observatory.json", [("timm", "2.15.0", "works")])
    printed = [
        CliRunner().invoke(app, ["ready", str(tmp_path), "--records", str(site), *more]).stdout
        for more in ([], ["--json"])
    ]
    assert all("${V} is not read" in text and "hunter2" not in text for text in printed)


EXTRAS = """\
[project]
name = "My.App"
dependencies = ["timm", "my-app[gpu]", "my_app[docs]; sys_platform == 'win32'"]
[project.optional-dependencies]
gpu = ["kornia; python_version < '3.14'"]
All = ["my-app[gpu,docs]"]
docs = ["einops", "my_app[all]"]
[dependency-groups]
test = ["lpips", { include-group = "dev" }]
dev = [{ include-group = "test" }, "zuko"]
lost = [{ include-group = "nowhere" }]
odd = [{ include = "test" }]
"""


def test_a_project_has_the_extras_of_itself_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(EXTRAS)
    asked = read_dependencies(tmp_path, PYTHONS)
    assert told(asked) == {"timm": "", "kornia": ""}
    assert told(asked, "3.14") == {"timm": ""}
    (note,) = asked.notes
    assert note.startswith("not read: extra all, extra docs, group test, group dev, group lost,")
    assert note.endswith("pyproject.toml[all]' adds all")


@pytest.mark.parametrize(
    ("chosen", "more"),
    [("all", {"einops"}), ("dev", {"lpips", "zuko"}), ("docs, Test", {"einops", "lpips", "zuko"})],
)
def test_extras_and_groups_are_chosen_in_brackets(
    tmp_path: Path, chosen: str, more: set[str]
) -> None:
    (tmp_path / "pyproject.toml").write_text(EXTRAS)
    (tmp_path / "uv.lock").write_text(UV)
    for path in (f"{tmp_path}[{chosen}]", f"{tmp_path}/pyproject.toml[{chosen}]"):
        asked = read_dependencies(Path(path), PYTHONS)
        assert told(asked).keys() == {"timm", "kornia"} | more
        assert asked.notes == []


@pytest.mark.parametrize(
    ("chosen", "rule"),
    [
        ("al", r"unknown extra or group of .*pyproject.toml 'al'"),
        ("lost", r"unknown group in .*pyproject.toml 'nowhere'"),
        ("odd", r"group odd: must be a requirement \(got .*include"),
    ],
)
def test_what_a_project_does_not_have_is_named(tmp_path: Path, chosen: str, rule: str) -> None:
    (tmp_path / "pyproject.toml").write_text(EXTRAS)
    with pytest.raises(SpecError, match=rule):
        read_dependencies(Path(f"{tmp_path}[{chosen}]"), PYTHONS)


def test_what_linux_does_not_get_is_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("timm\nelsewhere; sys_platform == 'win32'\nmore; sys_platform == 'win32'\n")
    asked = read_dependencies(path, PYTHONS)
    assert [one.name for one in asked.on_linux] == ["timm"]
    assert readiness(asked, KNOWN).others == 0
    path.write_text("# nothing\ntorch\n")
    done = CliRunner().invoke(app, ["ready", str(path)])
    assert done.exit_code == 0
    assert "names no package for Linux beside torch" in " ".join(done.stdout.split())


def test_a_long_file_is_read_once_per_line(tmp_path: Path) -> None:
    """Each cell asked every line: 5 MB took more than a minute."""
    (tmp_path / "requirements.txt").write_text("timm>=1.0 # again\n" * 2_000 + "timm<3\n")
    asked = read_dependencies(tmp_path, PYTHONS)
    assert [len(one) for one in asked._by_name[0].values()] == [2]
    assert told(asked) == {"timm": "<3,>=1.0"}


def test_an_environment_says_what_is_installed(tmp_path: Path) -> None:
    packages = tmp_path / "venv" / "lib" / "python3.13" / "site-packages"
    for name, version, needs in (
        ("Timm", "1.0.9", ("torch", "pyyaml")),
        ("plain", "1", ("torch; extra == 'gpu'", "not a requirement !")),
        ("torch", "2.9.1+cpu", ()),
    ):
        (info := packages / f"{name}-{version}.dist-info").mkdir(parents=True)
        lines = [f"Requires-Dist: {one}" for one in needs]
        (info / "METADATA").write_text(
            "\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines])
        )
    (packages / "broken-1.dist-info").mkdir()
    asked = read_dependencies(tmp_path / "venv", PYTHONS)
    assert told(asked) == {"timm": "==1.0.9", "plain": "==1", "torch": "==2.9.1"}
    assert {one.name for one in asked.packages if one.needs_torch} == {"timm"}
    assert str(asked.pythons) == "==3.13.*"
    assert "pytest" in told(installed(sys.path, "here"))


# --- the answer


def asking(*names: str, torch: str = "", pythons: str = "") -> Dependencies:
    packages = [Dependency(name, SpecifierSet()) for name in names]
    packages += [Dependency("torch", SpecifierSet(torch))] * bool(torch)
    return Dependencies("here", packages, SpecifierSet(pythons))


def observed(cells: dict[str, dict[str, str]]) -> dict[str, dict[TriedCell, list[CaseVerdict]]]:
    """Return verdicts from library to ``"2.15.0 3.12"`` to words of its cases."""
    return {
        library: {
            TriedCell(*pair.split()): [
                CaseVerdict("a step", word, "why", "1.2") for word in words.split(", ")
            ]
            for pair, words in verdicts.items()
        }
        for library, verdicts in cells.items()
    }


KNOWN = observed(
    {
        "timm": {"2.9.1 3.12": "works", "2.15.0 3.12": "works, slower", "2.15.0 3.14": "works"},
        "zuko": {"2.9.1 3.12": "wrong", "2.15.0 3.12": "graph breaks", "2.15.0 3.14": "failed"},
        "kornia": {"2.9.1 3.12": "works", "2.15.0 3.12": "works", "2.15.0 3.14": "no wheel"},
        "elsewhere": {"2.15.0 3.15": "works"},
    }
)  # fmt: skip


def test_the_newest_release_allowed_is_judged_and_newer_ones_are_named() -> None:
    found = readiness(asking("timm", "zuko", "numpy", torch="==2.9.0"), KNOWN)
    assert found.pair == ("2.9.1", "3.12")  # another patch of 2.9
    assert [(one.name, one.word, one.why) for one in found.judged] == [
        ("zuko", "wrong", "a step, why"),
        ("timm", "works", ""),
    ]
    assert found.bad == ("zuko",)
    assert found.others == 1
    assert found.newest == ("2.15.0", "3.12")  # whatever release is pinned
    assert not found.is_allowed
    assert (found.later, found.holding) == (("2.15.0", "3.14"), ("zuko",))
    assert found.judged[0].over_releases == "wrong 2.9.1, graph breaks 2.15.0"


def test_a_python_is_chosen_by_the_file_or_by_the_number_of_verdicts() -> None:
    assert readiness(asking("timm"), KNOWN).pair == ("2.15.0", "3.12")
    assert readiness(asking("timm", pythons=">=3.13"), KNOWN).pair == ("2.15.0", "3.14")
    assert readiness(asking("timm"), KNOWN, python="3.14").pair == ("2.15.0", "3.14")
    assert readiness(asking("timm"), KNOWN, torch="2.9.1").pair == ("2.9.1", "3.12")
    nothing = readiness(asking("timm", torch="<2"), KNOWN)
    assert (nothing.pair, nothing.judged, nothing.bad) == (None, (), ())


def test_what_nobody_tried_is_unknown_and_no_release_is_good_without_it() -> None:
    found = readiness(asking("timm", "elsewhere"), KNOWN)
    assert [(one.name, one.word) for one in found.judged] == [
        ("timm", "slower"),
        ("elsewhere", "not run"),
    ]
    assert found.bad == ()
    assert found.newest is None
    asked = asking("timm")
    asked.packages.append(Dependency("xformers", SpecifierSet(), needs_torch=True))
    asked.unread.append("./local")
    assert readiness(asked, KNOWN).unknown == ("xformers", "./local")


def test_the_pair_with_most_verdicts_is_judged_and_a_newer_one_is_named() -> None:
    known = observed(
        {"timm": {"2.9.1 3.12": "works", "2.15.0 3.12": "works"}, "zuko": {"2.9.1 3.12": "wrong"}}
    )
    found = readiness(asking("timm", "zuko"), known)
    assert (found.pair, found.newer) == (("2.9.1", "3.12"), ("2.15.0", "3.12"))
    assert readiness(asking("timm", "zuko", torch="<2.10"), known).newer is None
    assert readiness(asking("timm", "zuko"), known, torch="2.15.0").newer is None


def test_a_library_without_any_wheel_does_not_compile() -> None:
    never = {TriedCell("2.15.0", "3.12"): [CaseVerdict("a step", "no wheel", "none", "")]}
    found = readiness(asking("fairscale"), {**KNOWN, "fairscale": never})
    assert (found.unknown, found.bad, found.newest) == ((), ("fairscale",), None)
    out = {TriedCell("2.15.0", "3.12"): [CaseVerdict("a step", "pinned out", "torch<2", "")]}
    assert readiness(asking("old"), {"old": out}).bad == ("old",)


def test_a_project_none_of_whose_packages_is_for_linux_has_no_answer() -> None:
    asked = Dependencies("here", [Dependency("timm", SpecifierSet(), frozenset())])
    found = readiness(asked, KNOWN)
    assert (found.pair, found.newest, found.later, found.holding) == (None, None, None, ())
    assert len(found.tried) == 3


def test_another_version_than_the_one_tried_is_said() -> None:
    asked = Dependencies("here", [Dependency("timm", SpecifierSet("==1.0"))])
    (one,) = readiness(asked, KNOWN).judged
    assert (one.version, one.asked) == ("1.2", "==1.0")
    asked = Dependencies("here", [Dependency("timm", SpecifierSet(">=1.0"))])
    assert readiness(asked, KNOWN).judged[0].asked == ""


def pinned(name: str, versions: str, *more: Dependency) -> Dependencies:
    return Dependencies("here", [Dependency(name, SpecifierSet(versions)), *more])


def test_a_cell_with_a_version_that_is_allowed_is_chosen() -> None:
    known = {
        "torchaudio": {
            TriedCell("2.8.0", "3.12"): [CaseVerdict("a step", "undecided", "why", "2.11.0")],
            TriedCell("2.8.0", "3.13"): [CaseVerdict("a step", "works", "", "2.8.0")],
            TriedCell("2.9.1", "3.12"): [CaseVerdict("a step", "works", "", "2.11.0")],
        }
    }
    of_torch = Dependency("torch", SpecifierSet("==2.8.0"))
    found = readiness(pinned("torchaudio", "==2.8.0", of_torch), known)
    assert (found.pair, found.judged[0].asked) == (("2.8.0", "3.13"), "")
    assert readiness(pinned("torchaudio", ">=2.11", of_torch), known).pair == ("2.8.0", "3.12")


def test_a_version_that_the_project_forbids_counts_and_is_named() -> None:
    # A lock pins each version, and few are tried.
    for versions in (">=99", "==1.2,==0.9"):
        found = readiness(pinned("timm", versions), KNOWN)
        assert [(one.word, one.asked != "") for one in found.judged] == [("slower", True)]
        assert found.newest == readiness(asking("timm"), KNOWN).newest
    found = readiness(pinned("zuko", ">=99"), KNOWN, torch="2.9.1")
    assert [one.word for one in found.judged] == ["wrong"]
    assert found.bad == ("zuko",)
    # Of cells without an allowed version, the one with most records is judged.
    known = observed(
        {"timm": {"2.9.1 3.12": "works"}, "zuko": {"2.9.1 3.12": "works", "2.15.0 3.12": "works"}}
    )
    more = Dependency("zuko", SpecifierSet(">=99"))
    assert readiness(pinned("timm", ">=99", more), known).pair == ("2.9.1", "3.12")


def test_the_newest_is_on_the_python_that_is_asked_for_if_any_is() -> None:
    found = readiness(asking("timm"), KNOWN, python="3.12")
    assert (found.newest, found.later) == (("2.15.0", "3.12"), None)
    known = observed(
        {"timm": {"2.9.1 3.12": "failed", "2.15.0 3.12": "wrong", "2.15.0 3.13": "works"}}
    )
    found = readiness(asking("timm"), known, python="3.12")
    assert (found.newest, found.later) == (("2.15.0", "3.13"), ("2.15.0", "3.12"))


def test_a_python_that_is_asked_for_is_judged_though_the_project_forbids_it() -> None:
    found = readiness(asking("timm", pythons="<3.10"), KNOWN)
    assert (found.pair, {one.python for one in found.tried}) == (None, {"3.12", "3.14"})
    found = readiness(asking("timm", pythons="<3.10"), KNOWN, python="3.12")
    assert (found.pair, found.newest) == (("2.15.0", "3.12"),) * 2
    assert not found.is_allowed


NAMES, RELEASES, MINORS = "abc", ("2.9.1", "2.10.0", "2.15.0"), ("3.9", "3.12", "3.13")
WORDS = st.sampled_from(["works", "graph breaks", "slower", "wrong", "pinned out", "undecided"])


@given(
    st.fixed_dictionaries({}, optional={
        name: st.dictionaries(
            st.tuples(st.sampled_from(RELEASES), st.sampled_from(MINORS)),
            st.lists(WORDS, min_size=1, max_size=3),
            min_size=1,
        )
        for name in NAMES
    })
)  # fmt: skip
def test_newest_and_later_are_what_a_search_of_all_pairs_finds(cells: dict[str, Any]) -> None:
    known = {
        name: {
            TriedCell(*pair): [CaseVerdict("a", word, "", "1") for word in words]
            for pair, words in of.items()
        }
        for name, of in cells.items()
    }
    found = readiness(asking(*NAMES), known)
    right = {"works", "graph breaks", "slower"}

    def bad(pair: tuple[str, str]) -> set[str] | None:
        """Return what does not compile with a pair; ``None`` if that is not known of all."""
        holding = set()
        for name, of in known.items():
            words = {one.word for one in of.get(TriedCell(*pair), ())}
            if words & {"wrong", "pinned out"}:
                holding.add(name)
            elif not words or not words <= right:
                return None
        return holding

    # Written in their order, the oldest first.
    pairs = [(torch, python) for torch in RELEASES for python in MINORS]
    tried = [pair for pair in pairs if any(TriedCell(*pair) in of for of in known.values())]
    good = [pair for pair in tried if bad(pair) == set()]
    assert found.newest == (good[-1] if good else None)
    after = [p for p in tried if bad(p) and (not good or pairs.index(p) > pairs.index(good[-1]))]
    fewest = min((len(bad(pair) or ()) for pair in after), default=0)
    later = [pair for pair in after if len(bad(pair) or ()) == fewest]
    assert found.later == (later[-1] if later else None)
    assert set(found.holding) == (bad(later[-1]) if later else set())


def test_a_candidate_is_judged_if_it_is_named_and_is_no_newest_release() -> None:
    rows = {"2.15.0 3.12": "works", "2.16.0rc1 3.12": "works", "2.16.0rc1 3.14": "works"}
    known = observed({"timm": rows, "zuko": rows | {"2.16.0rc1 3.14": "failed"}})
    found = readiness(asking("timm", "zuko"), known)
    assert (found.pair, found.newest, found.newer) == (("2.15.0", "3.12"),) * 2 + (None,)
    assert (found.later, found.tried) == (None, (("2.15.0", "3.12"),))
    assert found.judged[0].over_releases == "works 2.15.0"
    named = readiness(asking("timm", "zuko"), known, torch="2.16.0rc1", python="3.14")
    assert (named.pair, named.bad) == (("2.16.0rc1", "3.14"), ("zuko",))
    assert [one.over_releases for one in named.judged] == ["failed 2.16.0rc1", "works 2.16.0rc1"]
    assert (named.newest, named.later) == (("2.15.0", "3.12"), None)


# --- the command


def a_site(path: Path, rows: Iterable[tuple[str, str, str]], **more: Any) -> Path:  # noqa: ANN401
    fields = {
        "case": "a",
        "ask": "step",
        "python": "3.12",
        "why": "[red]why[/] \x1b[31m",
        "version": "1",
        "at": "2026-11-02T03:04:05+00:00",
    }
    lines = [
        {"library": library, "torch": torch, "verdict": verdict, **fields, "more": 1}
        for library, torch, verdict in rows
    ]
    path.write_text(json.dumps({"schema": SCHEMA, "rows": lines} | more))
    return path


def test_the_command_prints_what_holds_back_and_exits_with_1(tmp_path: Path) -> None:
    site = a_site(
        tmp_path / "observatory.json",
        [("timm", "2.9.1", "works"), ("timm", "2.15.0", "wrong"), ("kornia", "2.15.0", "works")],
    )
    (tmp_path / "requirements.txt").write_text("timm\n./local[red]\n")
    command = ["ready", str(tmp_path), "--records", str(site)]
    done = CliRunner().invoke(app, command, env={"COLUMNS": "120"})
    assert done.exit_code == 1
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert lines[0].endswith(
        "with PyTorch 2.15.0 on Python 3.12: 1 of 1 package tried, 2026-11-02"
    )
    assert lines[1:3] == [
        "Newest on which all compile: PyTorch 2.9.1 on Python 3.12.",
        "PyTorch 2.15.0 on Python 3.12 is held back by timm, and by nothing else.",
    ]
    assert lines[3].split() == ["timm", "1", "wrong", "works", "2.9.1,", "wrong", "2.15.0"]
    assert lines[4:] == [
        r"a step, [red]why[/] \x1b[31m",
        "not read: ./local[red]",
    ]
    assert CliRunner().invoke(app, [*command, "--torch", "2.9"]).exit_code == 0
    printed = CliRunner().invoke(app, [*command, "--json"])
    assert printed.exit_code == 1
    SCHEMAS["ready"].validate_json(printed.stdout)
    assert json.loads(printed.stdout)["holding"] == ["timm"]
    assert json.loads(printed.stdout)["judged"][0]["at"] == "2026-11-02T03:04:05+00:00"
    error = CliRunner().invoke(app, [*command, "--torch", "7"]).exception
    assert isinstance(error, UnknownNameError)
    (tmp_path / "requirements.txt").write_text("timm\ntorch==2.4.0\n")
    done = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert done.exit_code == 0
    assert "none of its 1 package was tried on Linux, with torch ==2.4.0\n" in done.stdout
    assert "Tried on Python 3.12: 2.15.0, 2.9.1;" in done.stdout
    assert "which " in done.stdout


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        ("", "Invalid JSON"),
        (
            '{"schema": "ivhl.compat/1", "rows": []}',
            "schema: must be 'ivhl.observatory/1'",
        ),
        (f'{{"schema": "{SCHEMA}", "rows": [{{}}]}}', "rows.0.library: must be there"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_file_that_is_no_observatory_is_refused(
    tmp_path: Path, content: str | None, rule: str
) -> None:
    (tmp_path / "requirements.txt").write_text("timm\n")
    if content is not None:
        (tmp_path / "o.json").write_text(content)
    command = ["ready", str(tmp_path), "--records", str(tmp_path / "o.json")]
    error = CliRunner().invoke(app, command).exception
    assert isinstance(error, SpecError)
    assert rule in str(error)


def test_a_verdict_that_no_site_has_is_refused(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("timm\n")
    site = a_site(tmp_path / "o.json", [("timm", "2.15.0", "perfect")])
    error = CliRunner().invoke(app, ["ready", str(tmp_path), "--records", str(site)]).exception
    assert isinstance(error, SpecError)
    assert "rows.0.verdict: must be 'wrong'" in str(error)


def test_the_records_that_ship_answer_for_this_environment_and_a_file(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("einops\ntorch==2.15.0\n")
    done = CliRunner().invoke(app, ["ready", str(path), "--python", "3.12"])
    assert done.exit_code == 0
    assert "einops" in done.stdout
    assert "works" in done.stdout
    assert re.search(r"1 of 1 package tried, 20\d\d-\d\d-\d\d", " ".join(done.stdout.split()))
    assert CliRunner().invoke(app, ["ready"]).exit_code in (0, 1)


def printed(path: Path, text: str, rows: Iterable[tuple[str, str, str]], *more: str) -> list[str]:
    """Return what the command prints of a requirements file, or of a pyproject.toml."""
    path = path / ("pyproject.toml" if "[project]" in text else "requirements.txt")
    path.write_text(text)
    site = a_site(path.with_name("o.json"), rows)
    command = ["ready", path.name, "--records", str(site), *more]
    with contextlib.chdir(path.parent):
        return CliRunner().invoke(app, command, env={"COLUMNS": "70"}).stdout.splitlines()


def test_a_project_whose_pythons_have_no_record_is_answered_with_both(tmp_path: Path) -> None:
    project = "[project]\nname = 'a'\nrequires-python = '<3.10'\ndependencies = ['timm']\n"
    rows = [("timm", "2.15.0", "works")]
    assert printed(tmp_path, project, rows) == [
        "pyproject.toml: none of its 1 package was tried on Python <3.10",
        "Tried on Python 3.12; --python chooses.",
    ]
    lines = " ".join(printed(tmp_path, project, rows, "--python", "3.12"))
    assert "PyTorch 2.15.0 on Python 3.12: 1 of 1 package tried" in lines
    assert "which pyproject.toml does not allow" in lines


def test_unread_unknown_and_uninstallable_packages_have_a_line_each(tmp_path: Path) -> None:
    (tmp_path / "lib" / "python3.12" / "site-packages" / "zzz-1.dist-info").mkdir(parents=True)
    metadata = tmp_path / "lib" / "python3.12" / "site-packages" / "zzz-1.dist-info" / "METADATA"
    metadata.write_text("Metadata-Version: 2.1\nName: zzz\nVersion: 1\nRequires-Dist: torch\n")
    site = a_site(tmp_path / "o.json", [("timm", "2.15.0", "works")])
    done = CliRunner().invoke(app, ["ready", str(tmp_path), "--records", str(site)])
    assert done.stdout.splitlines()[-1] == "not in the observatory, and requires torch: zzz"
    lines = printed(tmp_path, "encodec\nplain\n./local\n", [("encodec", "2.15.0", "no wheel")])
    assert lines[-2:] == ["not read: ./local", "not in the observatory: 1 package"]
    assert any(line.split()[:2] == ["encodec", "1"] and "no wheel" in line for line in lines)


def test_pins_that_no_record_meets_are_said_and_folded_lines_are_indented(tmp_path: Path) -> None:
    lines = printed(tmp_path, "timm==0.9\ntimm==1.0.31\n", [("timm", "2.15.0", "works")])
    assert lines[1:3] == [
        "Judged by a version that requirements.txt forbids: timm.",
        "Newest on which all compile: PyTorch 2.15.0 on Python 3.12.",
    ]
    assert lines[3].startswith("  timm 1 (asked: ")
    assert all(line.startswith("  ") for line in lines[3:])
    long = printed(tmp_path, f"timm{',!='.join(['>=2', *map(str, range(3, 30))])}\n",
                   [("timm", "2.15.0", "works")])  # fmt: skip
    assert len(long) > 4
    assert all(line.startswith("  ") for line in long[3:])


def test_the_newest_on_another_python_is_said_as_such(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("timm\n")
    site = a_site(tmp_path / "o.json", [("timm", "2.15.0", "works"), ("timm", "2.9.1", "failed")])
    answer = json.loads(site.read_text())
    answer["rows"][1]["python"] = "3.13"
    site.write_text(json.dumps(answer))
    command = ["ready", str(path), "--records", str(site), "--python", "3.13"]
    done = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert (
        "Newest on which all compile: PyTorch 2.15.0 on Python 3.12; on Python 3.13, no tried "
        "release compiles all of them." in done.stdout.splitlines()
    )


@pytest.mark.parametrize("option", ["--python", "--torch"])
def test_an_empty_option_is_refused(tmp_path: Path, option: str) -> None:
    (tmp_path / "requirements.txt").write_text("timm\n")
    error = CliRunner().invoke(app, ["ready", str(tmp_path), option, ""]).exception
    assert isinstance(error, UnknownNameError)


def test_records_that_cannot_be_read_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "observatory", tmp_path / "observatory")
    (tmp_path / "observatory" / "records" / "einops.jsonl").write_bytes(b'\xff\0\n{"half": \n')
    monkeypatch.setattr("ivhl.observatory.ready.shipped_records", lambda: tmp_path)
    (tmp_path / "requirements.txt").write_text("einops\n")
    command = ["ready", str(tmp_path / "requirements.txt")]
    done = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert "tried none of its 1 package" in done.stdout
    assert done.stderr.startswith("warning: ")
    assert "einops.jsonl" in done.stderr
