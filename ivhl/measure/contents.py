"""Say how the Python of this environment was built."""

from __future__ import annotations

import platform
import sysconfig

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
