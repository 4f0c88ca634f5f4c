"""New releases and versions become branches with a pull request each, and nothing else does."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from ivhl.matrix.project import find_root
from tests.builders.project import git
from tests.builders.registry import make_wheel, served

HERE = find_root(Path(__file__))
PYTHON = "{}.{}".format(*sys.version_info)
MINOR = sys.version_info.minor + 1
NEXT = f"3.{MINOR}"
TAG = "cp{0}{1}-cp{0}{1}-linux_x86_64".format(*sys.version_info)
BOT = "41898282+github-actions[bot]@users.noreply.github.com"
MATRIX = f"""\
exclude-newer = 2026-11-15
platform = "x86_64-manylinux_2_28"

[[python]]
version = "{PYTHON}"

[[torch]]
release = "2.15.0"
tier = "default"
"""
# Keeps pull requests in a file, as GitHub would.
GH = """\
#!{python}
import json, pathlib, sys
file = pathlib.Path(__file__).with_name("requests.json")
known = json.loads(file.read_text()) if file.exists() else []
api, option, method, place, *more = sys.argv[1:]
assert (api, option) == ("api", "--method")
place, _, query = place.partition("?")
assert place.startswith("repos/we/ours/pulls")
if method == "GET":
    state, head = query.split("&")
    assert state == "state=open"
    print(json.dumps([one for one in known if f"head={{one['owner']}}:{{one['head']}}" == head]))
    sys.exit()
assert more == ["--input", "-"]
given = json.load(sys.stdin)
if method == "POST":
    assert given["base"] == "main"
    known.append({{**given, "number": len(known) + 1, "owner": "we"}})
else:
    known[int(place.rpartition("/")[2]) - 1] |= {{**given, "edited": True}}
file.write_text(json.dumps(known))
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a clone of a bare repository, with the script, a matrix and locks; `gh` beside it."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gh").write_text(GH.format(python=sys.executable), encoding="utf-8")
    (tmp_path / "bin" / "gh").chmod(0o755)
    git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", "origin.git")
    git(tmp_path, "clone", "--quiet", str(tmp_path / "origin.git"), "clone")
    clone = tmp_path / "clone"
    git(clone, "checkout", "--quiet", "-B", "main")
    write(clone, {"envs/matrix.toml": MATRIX, "envs/locks/SHA256SUMS": ""})
    links = clone / "ivhl" / "script" / "envs"
    (links / "locks").mkdir(parents=True)
    (links / "matrix.toml").symlink_to("../../../envs/matrix.toml")
    (links / "locks" / "SHA256SUMS").symlink_to("../../../../envs/locks/SHA256SUMS")
    (clone / ".ci").mkdir()
    shutil.copy(HERE / ".ci" / "upkeep.py", clone / ".ci" / "upkeep.py")
    publish(clone, "one")
    return clone


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")


def publish(clone: Path, message: str) -> None:
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "--message", message)
    git(clone, "push", "--quiet", "origin", "HEAD:main")


def difference(clone: Path, files: dict[str, str]) -> str:
    """Return the patch that writes some files, and undo it."""
    write(clone, files)
    git(clone, "add", "--all")
    patch = git(clone, "diff", "--cached", "--binary", "HEAD") + "\n"
    git(clone, "reset", "--quiet", "--hard")
    return patch


def upkeep(
    clone: Path, *words: str, declined: str = "", **more: str
) -> subprocess.CompletedProcess[str]:
    """Run the script, with ivhl as it is in the clone if it is there."""
    environment = os.environ | {
        "PATH": f"{clone.parent / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(clone.parent),  # no identity of a user
        "MAIN": "main",
        "GITHUB_REPOSITORY": "we/ours",
        "GH_TOKEN": "a-secret",
        "PYTHONPATH": str(clone) if (clone / "ivhl" / "cli").is_dir() else str(HERE),
    }
    done = subprocess.run(
        [sys.executable, str(clone / ".ci" / "upkeep.py"), *words],
        env=environment | more,
        input=declined,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done


def requests(clone: Path) -> list[dict[str, Any]]:
    file = clone.parent / "bin" / "requests.json"
    return list(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else []


def branch(clone: Path, name: str) -> str:
    """Return the commit of a branch of the bare repository; empty if there is none."""
    return git(
        clone.parent / "origin.git", "for-each-ref", "--format=%(objectname)", f"refs/heads/{name}"
    )


LOCK = f"envs/locks/py{PYTHON}-torch2.16.0.txt"
ADDED = MATRIX + '\n[[torch]]\nrelease = "2.16.0"\ntier = "extended"\n'


def proposed(clone: Path, files: dict[str, str], name: str = "torch-2.16.0") -> Path:
    """Return a folder as `look` leaves it, with one change."""
    folder = clone.parent / "changes"
    shutil.rmtree(folder, ignore_errors=True)
    patch = difference(clone, files)
    write(folder, {f"{name}.patch": patch, f"{name}.md": "Add PyTorch 2.16.0\n\nthe table\n"})
    return folder


def test_a_change_is_one_pull_request_which_a_second_night_updates(place: Path) -> None:
    first = {"envs/matrix.toml": ADDED, LOCK: "torch==2.16.0\n"}
    upkeep(place, "open", str(proposed(place, first)))
    (request,) = requests(place)
    assert (request["head"], request["title"], request["body"]) == (
        "upkeep/torch-2.16.0", "Add PyTorch 2.16.0", "the table",
    )  # fmt: skip
    tip = branch(place, "upkeep/torch-2.16.0")
    shown = git(place, "show", "--format=%cn <%ce>", "--raw", tip).splitlines()
    assert shown[0] == f"github-actions[bot] <{BOT}>"
    link = f"ivhl/script/envs/locks/{Path(LOCK).name}"
    assert [line.split("\t")[1] for line in shown[2:]] == [LOCK, "envs/matrix.toml", link]
    assert git(place, "show", f"{tip}:{link}") == f"../../../../{LOCK}"
    # The same again, beside a new commit of main.
    write(place, {"README.md": "new\n"})
    git(place, "checkout", "--quiet", "main")
    publish(place, "two")
    upkeep(place, "open", str(proposed(place, first)))
    assert branch(place, "upkeep/torch-2.16.0") == tip
    # More than the night before.
    upkeep(place, "open", str(proposed(place, {**first, LOCK: "torch==2.16.0\nmore==1\n"})))
    (request,) = requests(place)
    assert request["edited"]
    now = branch(place, "upkeep/torch-2.16.0")
    assert now != tip
    assert git(place, "show", f"{now}:{LOCK}") == "torch==2.16.0\nmore==1"
    assert git(place, "rev-parse", f"{now}^") == branch(place, "main")


def test_a_branch_that_a_person_has_pushed_to_is_left_alone(place: Path) -> None:
    upkeep(place, "open", str(proposed(place, {"envs/matrix.toml": ADDED})))
    git(place, "fetch", "--quiet", "origin")
    git(place, "checkout", "--quiet", "--detach", "origin/upkeep/torch-2.16.0")
    write(place, {"envs/matrix.toml": ADDED.replace("extended", "default")})
    git(place, "commit", "--quiet", "--all", "--message", "Take the default tier")
    git(place, "push", "--quiet", "origin", "HEAD:upkeep/torch-2.16.0")
    tip = branch(place, "upkeep/torch-2.16.0")
    git(place, "checkout", "--quiet", "main")
    more = {"envs/matrix.toml": ADDED, LOCK: "torch==2.16.0\n"}
    done = upkeep(place, "open", str(proposed(place, more)))
    assert "upkeep/torch-2.16.0: somebody works on it" in done.stderr
    assert branch(place, "upkeep/torch-2.16.0") == tip
    assert not any("edited" in one for one in requests(place))


def test_a_request_of_a_fork_with_that_branch_is_not_ours(place: Path) -> None:
    theirs = {"number": 1, "head": "upkeep/torch-2.16.0", "owner": "they"}
    (place.parent / "bin" / "requests.json").write_text(json.dumps([theirs]))
    upkeep(place, "open", str(proposed(place, {"envs/matrix.toml": ADDED})))
    assert [one["number"] for one in requests(place)] == [1, 2]
    assert requests(place)[0] == theirs


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({".github/workflows/x.yml": "on: push\n"}, "must not change '.github/workflows/x.yml'"),
        ({".ci/upkeep.py": "print(1)\n"}, "must not change '.ci/upkeep.py'"),
        ({"envs/locks/x.py": "1\n"}, "must not change 'envs/locks/x.py'"),
        ({"ivhl/script/envs/locks/x.txt": "1\n"}, "must not change 'ivhl/script/envs/locks/x."),
        ({"observatory/records/a b.jsonl": "{}\n"}, "must not change 'observatory/records/a b"),
    ],
)  # fmt: skip
def test_a_patch_that_changes_another_file_opens_nothing(
    place: Path, files: dict[str, str], why: str
) -> None:
    done = upkeep(place, "open", str(proposed(place, {"envs/matrix.toml": ADDED} | files)))
    assert why in done.stderr
    assert requests(place) == []
    assert branch(place, "upkeep/torch-2.16.0") == ""


@pytest.mark.parametrize("kind", ["link", "program"])
def test_a_patch_makes_no_link_and_no_program(place: Path, kind: str) -> None:
    path = place / LOCK
    if kind == "link":
        path.symlink_to("/etc/passwd")
    else:
        path.write_text("1\n")
        path.chmod(0o755)
    done = upkeep(place, "open", str(proposed(place, {"envs/matrix.toml": ADDED})))
    assert "must only change plain files: create mode 1" in done.stderr
    assert requests(place) == []


def test_files_that_no_change_has_open_nothing_and_stop_no_other(place: Path) -> None:
    """The folder is what code of a new release left."""
    folder = proposed(place, {"envs/matrix.toml": ADDED})
    patch = (folder / "torch-2.16.0.patch").read_text()
    text = "Add PyTorch 2.16.0\n\n" + "x" * 90_000
    write(folder, {"torch-2.16.0.md": text, "x.patch": patch, "python-3.16.patch": "no patch\n"})
    write(folder, {"python-3.16.md": "Add Python 3.16\n", "ci-locks.patch": patch})
    write(folder, {"ci-locks.md": "Pay me\n", "library-a\n.patch": patch, "-h.patch": patch})
    (folder / "library-b.patch").symlink_to("/proc/self/environ")
    os.mkfifo(folder / "library-c.patch")
    write(folder, {"library-d.patch": patch})
    (folder / "library-d.md").symlink_to("/proc/self/environ")
    done = upkeep(place, "open", str(folder))
    (request,) = requests(place)
    assert request["title"] == "Add PyTorch 2.16.0"
    assert len(request["body"]) == 60_000
    assert "ci-locks.md: no title of a change: 'Pay me'" in done.stderr
    assert "library-d.md is no plain file" in done.stderr
    assert "python-3.16.patch: " in done.stderr


# The other half, with the real ivhl and uv, on planted packages and Pythons.


def python_of(minor: int, prerelease: str = "") -> dict[str, Any]:
    """Return what uv's list of Pythons says of one."""
    where = {"arch": {"family": "x86_64", "variant": None}, "os": "linux", "libc": "gnu"}
    which = {"major": 3, "minor": minor, "patch": 0, "prerelease": prerelease, "variant": None}
    about = {"name": "cpython", "url": "https://example.invalid/x", "sha256": None, "build": None}
    return {**where, **which, **about}


def plant(place: Path, *versions: str) -> Path:
    """Let the clone be ivhl with one library; return the folder of the versions that there are."""
    listed = git(HERE, "ls-files", "-z", "ivhl", "pyproject.toml", "asv.conf.json")
    for name in filter(None, listed.split("\0")):
        if not name.startswith("ivhl/script/envs/"):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(HERE / name, place / name, follow_symlinks=False)
    case = '{ target = "demo:f", asks = ["forward"] }'
    write(place, {"observatory/libraries.toml": f"[demo]\n[demo.cases]\nf = {case}\n"})
    # The real one takes the packages of today.
    write(place, {".ci/lock": "#!/bin/sh\n", ".gitignore": "__pycache__/\n.asv/\n/tried/\n"})
    (place / ".ci" / "lock").chmod(0o755)
    wheels = place.parent / "wheels"
    files = {"torch/__init__.py": "__version__ = '2.15.0'\n"}
    make_wheel(wheels, "torch", "2.15.0", files=files, tag=TAG)
    for version in versions:
        refuses = f"raise ImportError('demo {version} is not ready')\n"
        make_wheel(wheels, "demo", version, requires=["torch>=2"], files={"demo.py": refuses})
    return wheels


def settings(place: Path, index: str) -> dict[str, str]:
    """Return where uv finds packages and Pythons, and a user without settings."""
    return {
        "UV_DEFAULT_INDEX": index,
        "UV_PYTHON_DOWNLOADS_JSON_URL": str(place.parent / "pythons.json"),
        "XDG_CONFIG_HOME": str(place.parent),
        # A runner begins without cells; a kept one would have the old version of a library.
        "XDG_CACHE_HOME": tempfile.mkdtemp(dir=place.parent),
    }


def look(place: Path, index: str, declined: str = "") -> tuple[dict[str, str], str]:
    """Run the half that runs foreign code; return the files that it wrote, and its messages."""
    folder = place.parent / "looked"
    shutil.rmtree(folder, ignore_errors=True)
    git(place, "fetch", "--quiet", "origin")
    done = upkeep(place, "look", str(folder), declined=declined, **settings(place, index))
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}, done.stderr


@pytest.mark.full
def test_a_planted_release_python_and_version_become_pull_requests(place: Path) -> None:
    wheels = plant(place, "1.0")
    before = dt.datetime(2026, 11, 20, tzinfo=dt.UTC).timestamp()
    for wheel in wheels.iterdir():
        os.utime(wheel, (before, before))
    pythons = place.parent / "pythons.json"
    pythons.write_text(json.dumps({"a": python_of(MINOR, "a1")}), encoding="utf-8")
    with served(wheels, dated=True) as (index, *_):
        # As main is: locked on a day before the new release, and observed.
        write(place, {"envs/matrix.toml": MATRIX.replace("11-15", "11-21")})
        lock = f"py{PYTHON}-torch2.15.0.txt"
        link = place / "ivhl" / "script" / "envs" / "locks" / lock
        link.symlink_to(f"../../../../envs/locks/{lock}")
        environment = os.environ | {"PYTHONPATH": str(place)} | settings(place, index)
        for words in (("lock",), ("observe", "--torch", "2.15.0")):
            command = [sys.executable, "-m", "ivhl", *words]
            subprocess.run(command, cwd=place, env=environment, check=True)
        publish(place, "as main is")
        found, said = look(place, index)
        assert found == {}, said

    # The next night has a release, a Python and a version.
    files = {"torch/__init__.py": "__version__ = '2.16.0'\n"}
    make_wheel(wheels, "torch", "2.16.0", files=files, tag=TAG)
    refuses = "raise ImportError('demo 1.1 is not ready')\n"
    make_wheel(wheels, "demo", "1.1", requires=["torch>=2"], files={"demo.py": refuses})
    pythons.write_text(
        json.dumps({"a": python_of(MINOR), "b": python_of(MINOR + 1, "a1")}), "utf-8"
    )
    with served(wheels, dated=True) as (index, *_):
        declined = "Observe demo 1.1\nAdd Python 3.98\n"
        found, said = look(place, index, declined)
        names = f"python-{NEXT}", "torch-2.16.0"
        assert sorted(found) == [f"{name}.{kind}" for name in names for kind in ("md", "patch")], (
            said
        )
        found, said = look(place, index)
        assert sorted(found)[:2] == ["library-demo.md", "library-demo.patch"], said
        text, patch = found["library-demo.md"], found["library-demo.patch"]
        assert text.startswith("Observe demo 1.1\n\nVerdicts on PyTorch 2.15.0:\n")
        assert "demo 1.1 is not ready" in text
        assert "(before: failed in phase import: ImportError: demo 1.0 is not ready" in text
        assert re.findall(r"^\+\+\+ b/(\S+)", patch, re.MULTILINE) == [
            f"observatory/locks/{re.findall('locks/([0-9a-f]+)', patch)[0]}.txt",
            "observatory/records/demo.jsonl",
        ]
        # Every command is one that ivhl takes.
        assert not re.search("No such (option|command)|Usage:", "".join(found.values()) + said)
        text, patch = found["torch-2.16.0.md"], found["torch-2.16.0.patch"]
        assert '+release = "2.16.0"' in patch
        assert "+exclude-newer = " in patch
        assert f"envs/locks/py{PYTHON}-torch2.16.0.txt" in patch
        assert f"py{PYTHON}-torch2.16.0 demo f forward: " in text
        assert f"locked py{PYTHON}-torch2.16.0" in text
        text, patch = found[f"python-{NEXT}.md"], found[f"python-{NEXT}.patch"]
        assert f'+version = "{NEXT}"' in patch
        assert f"envs/locks/py{NEXT}-torch2.15.0.unavailable.txt" in patch
        assert f"py{NEXT}-torch2.15.0 demo f forward: " in text
        upkeep(place, "open", str(place.parent / "looked"))
        assert [one["title"] for one in requests(place)] == [
            "Observe demo 1.1", f"Add Python {NEXT}", "Add PyTorch 2.16.0",
        ]  # fmt: skip
        # The night after goes on where that was, and has nothing to add.
        git(place, "checkout", "--quiet", "main")
        found, said = look(place, index)
        assert found == {}, said
        assert "origin/upkeep/torch-2.16.0: nothing new" in said
