"""List the contents of this environment: Python, packages with their files, system packages.

Imports nothing of ivhl: `ivhl image` runs the text of this module in images that have only a cell.
"""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
import sysconfig
from importlib.metadata import Distribution, distributions

# Of the arguments of its configure script, those that change how fast a Python is.
_OF_SPEED = (
    *("--enable-optimizations", "--with-lto", "--with-pydebug", "--disable-gil"),
    *("--enable-experimental-jit", "--with-tail-call-interp"),
)


def python_build() -> str:
    """Return how this Python was built, and its C library, e.g. ``GCC 12.2.0, glibc 2.36``.

    Two builds of one version differ by up to 15 % in what a call of compiled code costs.
    """
    given = sysconfig.get_config_var("CONFIG_ARGS") or ""
    library = " ".join(platform.libc_ver()).strip()
    chosen = [one for one in _OF_SPEED if one in given]
    return ", ".join(filter(None, [platform.python_compiler().strip(), library, *chosen]))


def contents() -> dict[str, dict[str, str]]:
    """Return kind to name to version; of a package with a digest of its list of files.

    That list, ``RECORD``, has the sha256 of every file of a package, but not of files compiled from
    them. Only packages of this environment count, not those on ``PYTHONPATH``.
    """
    packages = distributions(path=_site())
    return {
        "python": {"Python": platform.python_version()},
        "package": {
            one.name.lower().replace("_", "-"): f"{one.version} ({_digest(one)})"
            for one in packages
        },
        "system package": _of_the_system(),
    }


def _digest(package: Distribution) -> str:
    lines = sorted((package.read_text("RECORD") or "").splitlines())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _site() -> list[str]:
    return sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})


def _of_the_system() -> dict[str, str]:
    shape = "--showformat=${binary:Package} ${Version}\\n"
    try:
        asked = subprocess.run(
            ["dpkg-query", "--show", shape], capture_output=True, text=True, check=False
        )
    except OSError:  # no Debian
        return {}
    return dict(line.split(" ", 1) for line in asked.stdout.splitlines())


if __name__ == "__main__":
    print(json.dumps(contents()))
