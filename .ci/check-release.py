#!/usr/bin/env python3
"""Check the distributions of a release, and write its part of the changelog beside them.

    .ci/check-release.py TAG FOLDER    FOLDER/dist has the distributions; writes FOLDER/notes.md

Each line of what it prints names the place, the rule, the value and the next step.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from tarfile import open as open_tar
from typing import TYPE_CHECKING, Final
from zipfile import ZipFile

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[1]
_PACKED: Final = "ivhl/shipped/ivhl-records.tar.xz"
_LARGEST: Final = 8_000_000
_SOURCE: Final = re.compile(
    r"PKG-INFO|pyproject\.toml|README\.md|LICENSE|envs/matrix\.toml|envs/locks/[\w.-]+"
)
_RELATIVE: Final = re.compile(r"\]\((?!https?://|#)([^)]+)\)")
_WRONG: Final = re.compile(r"(^|/)(test_\w+\.py|conftest\.py|tests/)|\.jsonl$")


def problems(tag: str, folder: Path) -> Iterator[str]:
    """Yield what is wrong with a release, one line each."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    version = project["version"]
    if tag != f"v{version}" or not re.fullmatch(r"v\d+\.\d+\.\d+", tag):
        rule = f"must be that of the tag {tag!r}"
        yield f"pyproject.toml: version: {rule} (got {version!r}); next: uv version --frozen X.Y.Z"
    build = f"next: towncrier build --yes --version {version}"
    left = sorted(path.name for path in (ROOT / "changelog.d").iterdir())
    left.remove("README.md")
    if left:
        yield f"changelog.d: must have no fragment (got {len(left)}, {left[0]} first); {build}"
    if not notes(version):
        yield f"CHANGELOG.md: must begin with the part of {version}; {build}"
    wheel = folder / "dist" / f"ivhl-{version}-py3-none-any.whl"
    source = folder / "dist" / f"ivhl-{version}.tar.gz"
    found = sorted((folder / "dist").iterdir())
    if found != sorted([wheel, source]):
        names = ", ".join(path.name for path in found)
        rule = f"must have {wheel.name} and {source.name}"
        yield f"dist: {rule} (got {names}); next: .ci/build-release"
        return
    for path in found:
        if (size := path.stat().st_size) > _LARGEST:
            rule = f"must have at most {_LARGEST} bytes"
            yield f"{path.name}: {rule} (got {size}); next: _WHAT in studies/shipped.py"
    with ZipFile(wheel) as zipped:
        about = f"ivhl-{version}.dist-info/"
        yield from wrong_files(wheel.name, set(zipped.namelist()), about)
        for link in _RELATIVE.findall(zipped.read(f"{about}METADATA").decode()):
            rule = "each link must be an address, since PyPI has no files"
            yield f"METADATA: {rule} (got {link}); next: .ci/build-release"
    with open_tar(source) as tar:
        yield from wrong_files(
            source.name, {e.name.partition("/")[2] for e in tar if not e.isdir()}
        )


def wrong_files(place: str, inside: set[str], about: str = "") -> Iterator[str]:
    """Yield the files that a distribution has too much, and those that it lacks.

    It has what git tracks in ``ivhl/``, and the records once, as they are packed.

    Args:
        place: Name of the distribution.
        inside: Its files.
        about: Folder of its metadata; empty for a source distribution.
    """
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "ivhl"], check=True, stdout=subprocess.PIPE
    )
    wanted = {*filter(None, listed.stdout.decode().split("\0")), _PACKED}
    for name in sorted(wanted - inside):
        step = "python -m studies.shipped" if name == _PACKED else "git status"
        yield f"{place}: must have {name}; next: {step}"
    for name in sorted(inside - wanted):
        # A source distribution has its own files, and the locks to which `ivhl/script/envs` links.
        if not (name.startswith(about) if about else _SOURCE.fullmatch(name)):
            yield f"{place}: must not have {name}; next: delete it, and .ci/build-release"
    for name in sorted(inside):
        if _WRONG.search(name):
            rule = "must have no test, and no record beside the packed records"
            yield f"{place}: {rule} (got {name}); next: move it out of ivhl/"


def notes(version: str) -> str:
    """Return the part of the changelog for a version, which must be its first."""
    parts = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text("utf-8"), flags=re.MULTILINE)
    title, _, text = parts[1].partition("\n")
    return text.strip() + "\n" if title.split()[0] == version else ""


def main(tag: str, folder: Path) -> int:
    """Run the command line; return 1 if something is wrong."""
    found = list(problems(tag, folder))
    for line in found:
        sys.stderr.write(f"error: {line}\n")
    if not found:
        (folder / "notes.md").write_text(notes(tag.removeprefix("v")), "utf-8")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
