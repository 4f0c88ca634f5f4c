"""Pack the records that ship with a release: ``python -m studies.shipped [FILE [PRESET]]``.

The same commit gives the same bytes.
"""

from __future__ import annotations

import io
import lzma
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

from ivhl.shipped import PACKED

_ROOT: Final = Path(__file__).parents[1]
# What commands read that show records: no scripts that checked the observatory, no locks of CI.
_WHAT: Final = ("benchmarks", "envs", "observatory", "pyproject.toml", "results")
_NOT: Final = ("observatory/checked/", "envs/ci/")
_SMALLEST: Final = 9 | lzma.PRESET_EXTREME


def pack(path: Path, preset: int = _SMALLEST) -> None:
    """Write the committed files of the records as an archive, compressed by a preset of xz."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", *_WHAT], cwd=_ROOT, check=True, capture_output=True
    )
    names = sorted(name for name in listed.stdout.decode().split("\0") if name)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in names:
            if name.startswith(_NOT):
                continue
            data = (_ROOT / name).read_bytes()
            about = tarfile.TarInfo(name)
            about.size, about.mode = len(data), 0o644
            tar.addfile(about, io.BytesIO(data))
    path.write_bytes(lzma.compress(archive.getvalue(), preset=preset))


def main() -> None:
    """Run the command line."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else PACKED
    preset = int(sys.argv[2]) if len(sys.argv) > 2 else _SMALLEST  # noqa: PLR2004
    pack(path, preset)
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
