"""Check the C++ compiler that Inductor uses."""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path

from ivhl.machine.observation import Observation
from ivhl.machine.program import ProgramError, first_line, run_program

# Inductor's requirements for a compiler: C++17, OpenMP and shared libraries.
_FLAGS = ("-x", "c++", "-std=c++17", "-shared", "-fPIC", "-fopenmp", "-")
_SOURCE = """\
#include <cmath>
#include <vector>
#include <omp.h>
extern "C" double f(double x) { return std::sqrt(x) + omp_get_max_threads(); }
"""


def observe_compiler() -> Observation:
    """Return whether the C++ compiler builds what Inductor needs."""
    named, words = _compiler()
    hint = "install it (apt-get install g++), or name another one with CXX"
    try:
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder, "f.so")
            done = run_program([*words, *_FLAGS, "-o", str(library)], input_=_SOURCE)
            if done.returncode or not library.exists():
                why = f"cannot build a shared library with OpenMP: {first_line(done.stderr)}"
                raise ProgramError(why)  # noqa: TRY301
    except ProgramError as error:
        return Observation("C++ compiler", "wrong", f"{named} {error}", hint)
    return Observation("C++ compiler", "ok", compiler_version())


def compiler_version() -> str:
    """Return the first line that Inductor's C++ compiler prints of its version, or why none."""
    named, words = _compiler()
    try:
        return first_line(run_program([*words, "--version"]).stdout)
    except ProgramError as error:
        return f"{named} {error}"


def _compiler() -> tuple[str, list[str]]:
    """Return the compiler as it is named, and as words: as Inductor, that in CXX, else g++."""
    named = os.environ.get("CXX", "g++")
    return named, shlex.split(named) or ["g++"]
