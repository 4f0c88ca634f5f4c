"""The records that ship with ivhl: they answer where there is no project.

``python -m studies.shipped`` packs them before a release is built. A checkout has them as they are.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from ivhl.errors import ResultsError

# No string of a measured module names it: whether it is there changes no hash of a source.
PACKED: Final = Path(__file__).with_name("ivhl-records.tar.xz")


def shipped_records() -> Path:
    """Return a folder with matrix, declarations, records and observatory, as a checkout has them.

    What a release has packed is unpacked into the user's cache once. Without, the folder is that of
    the checkout, and has nothing if ivhl was installed from a commit.

    Raises:
        ResultsError: If it cannot be unpacked.
    """
    if not PACKED.is_file():
        return Path(__file__).parents[2]
    data = PACKED.read_bytes()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ivhl"
    folder = cache / f"records-{hashlib.sha256(data).hexdigest()[:12]}"
    if folder.is_dir():
        return folder
    try:
        cache.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix="records-", dir=cache))
        try:
            with tarfile.open(PACKED) as packed:
                packed.extractall(unfinished, filter="data")
            unfinished.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    except OSError as error:
        if folder.is_dir():  # another process was faster
            return folder
        raise ResultsError(
            f"{folder}: the records of ivhl cannot be unpacked: {error.strerror or error}",
            hint="make room there, or set XDG_CACHE_HOME to a folder of yours",
        ) from error
    return folder
