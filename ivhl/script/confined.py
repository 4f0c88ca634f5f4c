"""Confine foreign code by bubblewrap, where this machine has it: what it may read and write."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import ivhl

if TYPE_CHECKING:
    from collections.abc import Sequence

_HIDDEN: Final = ("/tmp", "/var/tmp", "/run")  # noqa: S108  (nothing is written there)
# Else root takes the mounts away that hide files.
_OPTIONS: Final = (
    "--die-with-parent",
    "--cap-drop",
    "ALL",
    "--ro-bind",
    "/",
    "/",
    "--dev",
    "/dev",
)


def confined(
    command: Sequence[str], *, cell: Path, writes: Sequence[Path], reads: Sequence[Path] = ()
) -> list[str]:
    """Return a command within bubblewrap; the command as it is where that cannot be used.

    Files of the user's home, temporary files, sockets and devices are hidden but for what is named,
    and all files but ``writes`` can only be read. A command of root has no privilege left.

    Args:
        command: Program and arguments.
        cell: Folder of the environment whose Python runs. The folder around it has the cells that
            it refers to.
        writes: Folders that it may write.
        reads: Further folders that it may see.
    """
    program = bubblewrap()
    if program is None:
        return [*command]
    home, temporary = Path("~").expanduser(), Path(tempfile.gettempdir())
    hidden = {one.resolve() for one in (home, temporary, *map(Path, _HIDDEN)) if one.is_dir()}
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    programs = [cell / "bin" / "python", *([Path(compiler)] if compiler else [])]
    here = [Path(ivhl.__file__).parent, Path(sys.prefix), Path(sys.base_prefix), *reads]
    here += [program.resolve().parents[1] for program in programs]
    here += [one.resolve() for one in (Path("/etc/resolv.conf"),) if one.exists()]
    words = [program, *_OPTIONS]
    for place in sorted(hidden - {Path("/")}):
        words += ["--tmpfs", str(place)]
    for kind, folders in (
        ("--ro-bind", (cell.parent, cell.resolve().parent, *here)),
        ("--bind", writes),
    ):
        for place in folders:
            real, named = place.resolve(), place.absolute()
            words += [kind, str(real), str(real)]
            # A link is hidden with its folder.
            if named != real and any(named.is_relative_to(one) for one in hidden):
                words += [kind, str(real), str(named)]
    return [*words, "--", *command]


@cache
def bubblewrap() -> str | None:
    """Return bubblewrap's program; ``None`` if this user has none that works."""
    program = shutil.which("bwrap")
    if program is None:
        return None
    command = [program, *_OPTIONS, "true"]
    done = subprocess.run(command, check=False, capture_output=True)
    return program if done.returncode == 0 else None
