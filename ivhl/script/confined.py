"""Confine foreign code by bubblewrap, where this machine has it: what it may read and write."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import ivhl

if TYPE_CHECKING:
    from collections.abc import Sequence


def confined(
    command: Sequence[str], *, cell: Path, writes: Sequence[Path], reads: Sequence[Path] = ()
) -> list[str]:
    """Return a command within bubblewrap; the command as it is where that cannot be used.

    Files of the user's home and temporary files are hidden but for those that are named, and all
    files but ``writes`` can only be read.

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
    hidden = {Path(tempfile.gettempdir()).resolve(), Path("~").expanduser().resolve()}
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    programs = [cell / "bin" / "python", *([Path(compiler)] if compiler else [])]
    here = [Path(ivhl.__file__).parent, Path(sys.prefix), Path(sys.base_prefix), *reads]
    here += [program.resolve().parents[1] for program in programs]
    words = [program, "--die-with-parent", "--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev"]
    for place in sorted(hidden - {Path("/")}):
        words += ["--tmpfs", str(place)]
    for kind, folders in (
        ("--ro-bind", (cell.resolve().parent, *here)),
        ("--bind", writes),
    ):
        for place in folders:
            words += [kind, str(place.resolve()), str(place.resolve())]
    return [*words, "--", *command]


@cache
def bubblewrap() -> str | None:
    """Return bubblewrap's program; ``None`` if this user has none that works."""
    program = shutil.which("bwrap")
    if program is None:
        return None
    command = [program, "--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "true"]
    done = subprocess.run(command, check=False, capture_output=True)
    return program if done.returncode == 0 else None
