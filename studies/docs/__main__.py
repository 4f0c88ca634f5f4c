"""Build the documentation: ``python -m studies.docs`` writes ``build/docs/VERSION/``.

With ``--output site`` it stands beside the results; ``ivhl publish`` comes first, since it replaces
the folder. The version is the tag of the commit without its ``v``, or ``main``. ``docs/index.html``
leads to the newest release, or to main; ``docs/versions.js`` lists the folders that exist.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from sphinx.cmd.build import main as sphinx

from studies.docs.reference import MADE, write_reference
from studies.docs.stage import PageError, stage
from studies.docs.versions import MAIN, version_of, write_versions

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the documentation of this checkout; return the exit code of Sphinx."""
    parser = argparse.ArgumentParser(prog="python -m studies.docs", description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "build", help="folder of the site")
    output = parser.parse_args(arguments).output.resolve() / "docs"
    version, commit = version_of(ROOT)
    with TemporaryDirectory() as made:
        source = Path(made)
        try:
            # Files of main are for reading and changing; a link to lines needs the commit.
            stage(ROOT, source, MAIN if version == MAIN else commit, MADE)
            write_reference(ROOT, source, commit)
        except PageError as error:
            sys.stderr.write(f"error: {error}\n")
            return 1
        target = output / version
        options = ("-q", "-W", "--keep-going", "-E", "-d", str(source / ".doctrees"))
        more = ("-D", f"version={version}", "-D", f"release={version}")
        where = ("-c", str(ROOT / "docs"), str(source), str(target))
        code: int = sphinx([*options, *more, *where])
    if code == 0:
        write_versions(output)
        sys.stdout.write(f"{target / 'index.html'}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
