"""The folder of the site: made beside the old one, which it replaces in one step when complete."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import glob
import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ivhl.errors import ResultsError

if TYPE_CHECKING:
    from collections.abc import Iterator

# In every site: only a folder with it is ever deleted.
MARKER: Final = ".ivhl-site"
_MARKED: Final = "This folder was made by `ivhl publish`, which replaces it as a whole.\n"
_ATTEMPTS: Final = 10
# Of linux/fs.h and fcntl.h: exchange two names; a relative name is relative to the current folder.
_RENAME_EXCHANGE: Final = 2
_HERE: Final = -100
# What renaming says where somebody else replaced one of the folders in between.
_CHANGED: Final = (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST)


def replaceable(output: Path) -> Path:
    """Return the folder of the site, resolved.

    Raises:
        ResultsError: If it is there and ``ivhl publish`` did not make it: it would be deleted.
    """
    with _refusing(f"{output} cannot be the folder of the site"):
        output = output.resolve(strict=output.is_symlink())
    _check_replaceable(output)
    return output


def mark(new: Path) -> None:
    """Mark a folder as one that ``ivhl publish`` made."""
    (new / MARKER).write_text(_MARKED, encoding="utf-8")


@contextmanager
def folder_beside(output: Path) -> Iterator[Path]:
    """Yield a folder beside the site, on its file system, that is deleted at the end.

    The folder is locked while it is used: so what a killed ``publish`` left behind differs from the
    folder of one that is running.

    Raises:
        ResultsError: If the folder cannot be made.
    """
    with _refusing(f"cannot create a folder in {output.parent}"):
        output.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(output)
        new = Path(tempfile.mkdtemp(dir=output.parent, prefix=f".{output.name}-new-"))
    lock = os.open(new, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield new
    finally:
        os.close(lock)
        shutil.rmtree(new, ignore_errors=True)


def exchange(new: Path, output: Path) -> None:
    """Put the new site into its place, and the old one, if there is one, where the new one was.

    The kernel exchanges the two names at once: there is no moment without a site, and of two runs
    that end together one follows the other. Where it cannot (network file systems), there is such
    a moment.

    Raises:
        ResultsError: If the old site cannot be replaced; it is unchanged.
    """
    for _ in range(_ATTEMPTS):
        try:
            if not output.exists():
                new.rename(output)
            elif not _exchanged(new, output):
                _rename_both(new, output)
        except OSError as error:
            if error.errno in _CHANGED and new.exists():
                continue  # another run published or removed a site in between
            raise ResultsError(
                f"{output} cannot be replaced: {error.strerror or error}",
                hint="the earlier site is unchanged; choose another folder with --output",
            ) from error
        else:
            return
    raise ResultsError(f"{output} cannot be replaced: other runs keep replacing it")


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    """Turn errors of the system into one that says what could not be done.

    Raises:
        ResultsError: Instead of any error of the system.
    """
    try:
        yield
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, before Python 3.13
        hint = "choose another folder with --output"
        raise ResultsError(f"{what}: {error}", hint=hint) from error


def link_or_copy(source: str | Path, target: str | Path) -> None:
    """Link a file, or copy it to another file system, or to one without links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _check_replaceable(output: Path) -> None:
    """Refuse to replace a folder that ``publish`` did not make: it would be deleted."""
    with _refusing(f"{output} cannot be read"):
        if not output.exists():
            return
        is_marked = (output / MARKER).is_file() and not (output / MARKER).is_symlink()
        ours = output.is_dir() and (is_marked or not any(output.iterdir()))
    if not ours:
        raise ResultsError(
            f"{output} exists and is not a site made by asv and ivhl publish: it has no {MARKER}",
            hint="choose another folder with --output, or remove this one yourself",
        )
    if output.is_mount():
        raise ResultsError(
            f"{output} is a mount point, which cannot be replaced as a whole",
            hint=f"choose a folder in it: --output {output / 'site'}",
        )


def _remove_leftovers(output: Path) -> None:
    """Remove the unfinished folders of killed runs: those that nobody has locked."""
    for left in output.parent.glob(f".{glob.escape(output.name)}-new-*"):
        with suppress(OSError):
            lock = os.open(left, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(lock)


def _exchanged(first: Path, second: Path) -> bool:
    """Exchange two folders in one step; return whether the system can.

    Raises:
        OSError: If it can, and this failed.
    """
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:  # a C library before glibc 2.28
        return False
    names = (_HERE, os.fsencode(first), _HERE, os.fsencode(second))
    if renameat2(*names, _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS):  # the file system, or the kernel, cannot
        return False
    raise OSError(number, os.strerror(number))


def _rename_both(new: Path, output: Path) -> None:
    old = new.with_name("old")
    output.rename(old)
    try:
        new.rename(output)
    except OSError:
        old.rename(output)
        raise
