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


def problems(tag: str, folder: Path) -> Iterator[str]:
    """Yield what is wrong with a release, one line each."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    version = project["version"]
    if tag != f"v{version}" or not re.fullmatch(r"v\d+\.\d+\.\d+", tag):
        yield f"pyproject.toml: version: must be that of the tag {tag!r} (got {version!r}); next: uv version --frozen X.Y.Z"
    build = f"next: towncrier build --yes --version {version}"
    left = sorted(path.name for path in (ROOT / "changelog.d").iterdir())
    left.remove("README.md")
    if left:
        yield f"changelog.d: must have no fragments (got {len(left)}, {left[0]} first); {build}"
    if not notes(version):
        yield f"CHANGELOG.md: must have a part for {version}; {build}"
    wheel = folder / "dist" / f"ivhl-{version}-py3-none-any.whl"
    source = folder / "dist" / f"ivhl-{version}.tar.gz"
    found = sorted((folder / "dist").iterdir())
    if found != sorted([wheel, source]):
        names = ", ".join(path.name for path in found)
        yield f"dist: must have {wheel.name} and {source.name} (got {names}); next: delete it, and build again"
        return
    with ZipFile(wheel) as opened:
        inside = set(opened.namelist())
    with open_tar(source) as opened_tar:
        listed = [entry.name.partition("/")[2] for entry in opened_tar if not entry.isdir()]
    yield from wrong_files(wheel, inside, version)
    if lacking := sorted(
        name for name in inside if name.startswith("ivhl/") and name not in listed
    ):
        yield f"{source.name}: must have the files of the wheel (lacks {lacking[0]}); next: [tool.flit.sdist]"
    for path in found:
        if (size := path.stat().st_size) > _LARGEST:
            yield f"{path.name}: must have at most {_LARGEST} bytes (got {size}); next: _WHAT in studies/shipped.py"


def wrong_files(wheel: Path, inside: set[str], version: str) -> Iterator[str]:
    """Yield the files that a wheel has too much, and those that it lacks.

    What git tracks in ``ivhl/`` is in it, and the records once, as they are packed.
    """
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "ivhl"], check=True, stdout=subprocess.PIPE
    )
    wanted = {*filter(None, listed.stdout.decode().split("\0")), _PACKED}
    about = f"ivhl-{version}.dist-info/"
    for name in sorted(inside ^ wanted):
        if name in wanted:
            step = "python -m studies.shipped" if name == _PACKED else "git status"
            yield f"{wheel.name}: must have {name}; next: {step}"
        elif not name.startswith(about):
            yield f"{wheel.name}: must not have {name}; next: delete it, and build again"
    for name in sorted(inside & wanted):
        if re.search(r"(^|/)(test_\w+\.py|conftest\.py|tests/)|\.jsonl$", name):
            yield f"{wheel.name}: must have no test, and no record beside the packed ones (got {name}); next: git mv"


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
