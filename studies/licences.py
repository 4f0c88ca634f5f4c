"""Write ``LICENCES.md``: ``python -m studies.licences [--check]``.

It names what the distributions hold that is not ours, and what they need, with licences. Needs
`pip-licenses`_, and the packages of ``envs/ci/tool.txt`` in any versions.

.. _pip-licenses: https://github.com/raimon49/pip-licenses
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "LICENCES.md"
_NEEDED: Final = ROOT / "envs" / "ci" / "tool.txt"
_HEAD: Final = """\
# Licences

ivhl itself: [MIT](LICENSE). `python -m studies.licences` makes this page.

## What the distributions hold that is not ours

| npm package | licence | folder |
|---|---|---|
"""
_SECOND: Final = """
## What ivhl needs to run and to be built

| package | licence |
|---|---|
"""


def page() -> str:
    """Return the page.

    Raises:
        CalledProcessError: If pip-licenses is not installed.
    """
    held = "".join(f"| {' | '.join(row)} |\n" for row in sorted(set(vendored())))
    needs = "".join(f"| {name} | {licence} |\n" for name, licence in sorted(licences().items()))
    return _HEAD + held + _SECOND + needs


def vendored() -> Iterator[tuple[str, str, str]]:
    """Yield package, licence and folder of each file that a README of vendored files lists."""
    for readme in sorted((ROOT / "ivhl").rglob("vendor/README.md")):
        for line in readme.read_text(encoding="utf-8").splitlines():
            if found := re.match(r"\| `[^`]+` \| (\S+@\S+) \| [^|]* \| ([\w.-]+)", line):
                yield found[1], found[2], readme.parent.relative_to(ROOT).as_posix()


def needed() -> set[str]:
    """Return the packages of the lock that this Python on this system needs."""
    lines = re.findall(r"^[A-Za-z0-9][^\\#\n]*", _NEEDED.read_text("utf-8"), re.MULTILINE)
    asked = map(Requirement, lines)
    return {one.name for one in asked if one.marker is None or one.marker.evaluate()}


def licences() -> dict[str, str]:
    """Return package and licence, as the metadata of the installed packages say."""
    command = [sys.executable, "-m", "piplicenses", "--from=mixed", "--format=json"]
    found = subprocess.run(
        [*command, "--with-system", "--packages", *needed()], check=True, stdout=subprocess.PIPE
    )
    return {canonicalize_name(one["Name"]): one["License"] for one in json.loads(found.stdout)}


def main() -> int:
    """Run the command line; return 1 if ``--check`` finds another page."""
    made = page()
    if sys.argv[1:] != ["--check"]:
        PAGE.write_text(made, encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != made:
        print(f"{PAGE.name}: not what python -m studies.licences makes; next: run it")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
