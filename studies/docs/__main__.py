"""Build the documentation: ``python -m studies.docs`` writes ``build/docs/VERSION/``.

With ``--output site`` it stands beside the results; ``ivhl publish`` comes first, since it replaces
the folder. The version is the tag of the commit without its ``v``, or ``main``. ``docs/index.html`` leads to
the newest release, or to main; ``docs/versions.js`` lists the folders that exist.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from packaging.version import Version
from sphinx.cmd.build import main as sphinx

from studies.docs.reference import MADE, write_reference
from studies.docs.stage import PageError, stage

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).parents[2]
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the documentation of this checkout; return the exit code of Sphinx."""
    parser = argparse.ArgumentParser(prog="python -m studies.docs", description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "build", help="folder of the site")
    output = parser.parse_args(arguments).output.resolve() / "docs"
    version, commit = version_of(ROOT)
    with TemporaryDirectory() as made:
        source = Path(made)
        try:
            stage(ROOT, source, commit, MADE)
        except PageError as error:
            sys.stderr.write(f"error: {error}\n")
            return 1
        write_reference(ROOT, source, commit)
        target = output / version
        options = ("-q", "-W", "--keep-going", "-E", "-d", str(source / ".doctrees"))
        more = ("-D", f"version={version}", "-D", f"release={version}")
        where = ("-c", str(ROOT / "docs"), str(source), str(target))
        code = sphinx([*options, *more, *where])
    if code == 0:
        write_versions(output)
        sys.stdout.write(f"{target / 'index.html'}\n")
    return code


def version_of(root: Path) -> tuple[str, str]:
    """Return the version of a checkout, and the tag or commit that links to files name."""
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
    """Write the list of the versions that have a folder, and the page that leads to the newest."""
    folders = [path.parent for path in output.glob("*/index.html")]
    releases = sorted((p.name for p in folders if p.name != MAIN), key=Version, reverse=True)
    names = [*releases, *(MAIN for path in folders if path.name == MAIN)]
    pages = {
        name: sorted(p.relative_to(output / name).as_posix() for p in (output / name).rglob("*.html"))
        for name in names
    }
    (output / "versions.js").write_text(f"const VERSIONS = {json.dumps(pages)};\n", encoding="utf-8")
    (output / "index.html").write_text(_LEADING.format(names[0]), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
