"""What a script says that it needs: the block of PEP 723 at its top."""

from __future__ import annotations

import re
import tomllib
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from ivhl.errors import SpecError
from ivhl.matrix.spec import CellSpec, read_plain
from ivhl.script.cells import cell_in_use
from ivhl.script.overlay import UnavailableError, read_requirement

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


# Source: the reference implementation of PEP 723.
_BLOCK: Final = re.compile(
    r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$"
)


@dataclass(frozen=True)
class Needs:
    """What a script needs.

    Args:
        python: Pythons that it allows.
        torch: Releases of torch that it allows.
        others: Requirements of other packages.
    """

    python: SpecifierSet = field(default_factory=SpecifierSet)
    torch: SpecifierSet = field(default_factory=SpecifierSet)
    others: tuple[str, ...] = ()

    def forbids(self, cell: CellSpec) -> str:
        """Return why a cell is pinned out, or nothing."""
        if not self.python.contains(cell.python.removesuffix("t"), prereleases=True):
            return f"pinned out: the script needs Python {self.python}"
        if not self.torch.contains(cell.torch, prereleases=True):
            return f"pinned out: the script needs torch{self.torch}"
        return ""

    @contextmanager
    def cell_in_use(self, cell: CellSpec) -> Iterator[Path]:
        """Yield the folder of a cell with what the script needs.

        Raises:
            UnavailableError: If it cannot exist.
            LockError: If it cannot be made.
            InterpreterError: If this machine lacks the Python.
        """
        if why := self.forbids(cell):
            raise UnavailableError(why, "pinned out")
        with cell_in_use(cell, self.others) as folder:
            yield folder


def needs_of(script: Path, more: Sequence[str] = ()) -> Needs:
    """Read the needs of a script.

    Args:
        script: A Python file.
        more: Further requirements, of its user.

    Raises:
        SpecError: If the file cannot be read, its block is no valid TOML, or a requirement is none.
    """
    try:
        text = read_plain(script).decode("utf-8-sig", "replace").replace("\r\n", "\n")
    except OSError as error:
        raise SpecError(
            f"{script}: {error.strerror or error}", hint="name a Python file"
        ) from error
    blocks = [m["content"] for m in _BLOCK.finditer(text) if m["type"] == "script"]
    if len(blocks) > 1:
        raise SpecError(f"{script}: has two blocks `# /// script`", hint="PEP 723 allows one")
    about = _table(script, blocks[0]) if blocks else {}
    dependencies = about.get("dependencies", [])
    if not isinstance(dependencies, list):
        raise SpecError(f"{script}: dependencies: must be a list", hint="see PEP 723")
    torch, others = SpecifierSet(), []
    asked = [*((f"{script}", one) for one in dependencies), *(("--with", one) for one in more)]
    for place, requirement in asked:
        parsed = read_requirement(place, requirement)
        if canonicalize_name(parsed.name) != "torch":
            others.append(str(parsed))
        elif parsed.url or parsed.extras or parsed.marker:
            raise SpecError(
                f"{place}: torch comes from the cell (got {requirement!r})",
                hint="choose releases with --torch; a block may have only a range, torch>=2.6",
            )
        else:
            # The cell decides which build it has: ==2.15.0+cpu asks for 2.15.0. And !=2.15.0+cpu
            # forbids no release.
            asks = (str(one) for one in parsed.specifier)
            allowed = (one if one.startswith("!=") else one.partition("+")[0] for one in asks)
            torch &= SpecifierSet(",".join(allowed))
    try:
        python = SpecifierSet(str(about.get("requires-python", "")))
    except InvalidSpecifier as error:
        raise SpecError(f"{script}: requires-python: {error}", hint="e.g. >=3.12") from error
    return Needs(python, torch, tuple(others))


def _table(script: Path, block: str) -> dict[str, Any]:
    lines = [line.removeprefix("#").removeprefix(" ") for line in block.splitlines(keepends=True)]
    try:
        return tomllib.loads("".join(lines))
    except tomllib.TOMLDecodeError as error:
        raise SpecError(
            f"{script}: its block `# /// script` is not valid TOML: {error}", hint="see PEP 723"
        ) from error
