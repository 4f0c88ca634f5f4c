"""Files of a first compile that all projects of a user share: bytecode and compiler checks.

A new environment has PyTorch without bytecode, and Inductor tries out what vector instructions the
compiler can make. Neither depends on the project or on where the environment is.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from ivhl.measure import cache
from ivhl.measure.wheels import installed_wheels

# Limit for all entries together: fifteen cells.
LIMIT_BYTES: Final = 1 << 30
# What a first compile imports most of. Python compiles anew what belongs to another source.
_PACKAGES: Final = ("torch", "functorch", "torchgen", "sympy", "mpmath")
_CHECK: Final = b"__avx_chk_kernel"  # in 2.4.1 to 2.15.0
_OTHERS_MAY_WRITE: Final = 0o022


def shared_folder() -> Path | None:
    """Return where a user's projects share it; ``None`` if the user has no home."""
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    return home / "ivhl" / "first-compile"


def own_folder(name: str | None) -> Path | None:
    """Return a folder, made if necessary; ``None`` if another user could have written there."""
    if name is None:
        return None
    folder = Path(name)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about, above = folder.lstat(), folder.parent.stat()
    except OSError:
        return None
    is_own = about.st_uid == os.getuid() and not about.st_mode & _OTHERS_MAY_WRITE
    # Who may write above could put another folder of the user there.
    is_own = is_own and above.st_uid in (os.getuid(), 0) and not above.st_mode & 0o002
    return folder if is_own and folder.is_dir() and not folder.is_symlink() else None


def lacks_bytecode() -> bool:
    """Return whether the PyTorch of this environment was never imported."""
    packages = packages_here()
    return packages is not None and not (packages / "torch" / "__pycache__").exists()


def take_bytecode(folder: Path) -> None:
    """Copy the kept bytecode, if there is any, into this environment.

    Args:
        folder: From ``own_folder``.
    """
    if (packages := packages_here()) is None:
        return
    # Beside the packages: an entry that is damaged must not leave a part of itself in them.
    with suppress(OSError), tempfile.TemporaryDirectory(dir=packages, prefix="ivhl-") as scratch:
        if cache.fetch(folder, _key(packages), Path(scratch)) is None:
            return
        for path in Path(scratch).rglob("*.pyc"):
            target = packages / path.relative_to(scratch)
            target.parent.mkdir(exist_ok=True)
            path.replace(target)


def keep_bytecode(folder: Path) -> None:
    """Keep the bytecode of this environment after its first compile.

    Args:
        folder: From ``own_folder``.
    """
    if (packages := packages_here()) is None:
        return
    names = [
        path.relative_to(packages).as_posix()
        for package in _PACKAGES
        for path in (packages / package).rglob("__pycache__")
    ]
    cache.keep(folder, _key(packages), packages, tuple(names), {}, limit_bytes=LIMIT_BYTES)


def checks_in(inductor: Path) -> list[Path]:
    """Return the files by which Inductor checked vector instructions, in its cache.

    Their names depend on release, compiler and flags only. Nothing else of the cache is shared.
    """
    checks = [path for path in inductor.rglob("*.cpp") if _CHECK in path.read_bytes()]
    return sorted(file for path in checks for file in path.parent.glob(f"{path.stem}.*"))


def packages_here() -> Path | None:
    """Return the ``site-packages`` that has this environment's PyTorch; ``None`` without one."""
    with suppress(PackageNotFoundError):
        return Path(str(distribution("torch").locate_file("")))
    return None


def _key(packages: Path) -> str:
    wheels = [(wheel.name, wheel.version, wheel.record_sha256) for wheel in installed_wheels()]
    # Python takes bytecode only for a source of the same time and size.
    about = (packages / "torch" / "__init__.py").stat()
    return cache.key_of({
        "bytecode": [sys.version, importlib.util.MAGIC_NUMBER.hex(), wheels],
        "source": [about.st_mtime_ns, about.st_size],
    })  # fmt: skip
