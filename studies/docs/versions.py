"""Versions of the documentation: the one of a checkout, and those that have a folder."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Final

from packaging.version import Version

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAIN: Final = "main"
_LEADING: Final = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>ivhl: documentation</title>
<meta http-equiv="refresh" content="0; url={0}/index.html">
<a href="{0}/index.html">Documentation of ivhl, {0}</a>
</html>
"""


def version_of(root: Path) -> tuple[str, str]:
    """Return the version of a checkout, and the tag or commit of its lines."""
    found = subprocess.run(
        ("git", "describe", "--tags", "--exact-match", "--match", "v[0-9]*"),
        cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if found.returncode == 0:
        tag = found.stdout.strip()
        return tag.removeprefix("v"), tag
    head = subprocess.run(
        ("git", "rev-parse", "HEAD"), cwd=root, capture_output=True, text=True, check=False
    )
    return MAIN, head.stdout.strip() or MAIN


def write_versions(output: Path) -> None:
    """Write the page that leads to the newest version, and what the menus list.

    These are the versions that have a folder, and the results beside the documentation, if any.
    """
    folders = [path.parent for path in output.glob("*/index.html")]
    releases = sorted((p.name for p in folders if p.name != MAIN), key=Version, reverse=True)
    names = [*releases, *(MAIN for path in folders if path.name == MAIN)]
    pages = {name: [*_pages(output / name)] for name in names}
    has_results = (output.parent / "index.html").is_file()
    (output / "versions.js").write_text(
        f"window.VERSIONS = {json.dumps(pages)};\nwindow.HAS_RESULTS = {json.dumps(has_results)};\n",
        encoding="utf-8",
    )
    (output / "index.html").write_text(_LEADING.format(names[0]), encoding="utf-8")


def _pages(folder: Path) -> Iterator[str]:
    found = (path.relative_to(folder) for path in sorted(folder.rglob("*.html")))
    yield from (path.as_posix() for path in found if path.parts[0] != "_static")
