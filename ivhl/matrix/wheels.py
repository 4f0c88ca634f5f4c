"""Build packages that exist as source distributions only: once, in a locked environment.

The wheel goes into ``envs/built/`` and is committed: building it again may give another file. Beside
it, ``NAME-VERSION.build.txt`` says from which source distribution it was built, and with what.
"""

from __future__ import annotations

import hashlib
import os
import re
import tarfile
import tempfile
import tomllib
import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name, parse_wheel_filename

from ivhl.errors import LockError
from ivhl.matrix.interpreter import find_interpreter
from ivhl.matrix.locks import parse_lock, resolve_requirements, wheels_path
from ivhl.matrix.uv import cause_of, run_uv
from ivhl.records.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ivhl.matrix.spec import Matrix

# Of a package that has no [build-system] (PEP 518).
_DEFAULT_BUILD = ["setuptools>=40.8.0"]
# Times in the wheel, so that building it again gives the same file where the backend allows.
_EPOCH = "315532800"
_NEEDS_WHEEL = re.compile(
    r"Wheels are required for `(?P<name>[\w.-]+)` because building from source"
)


def needed_wheels(message: str) -> list[str]:
    """Return the packages of which uv says that they would have to be built."""
    return list(dict.fromkeys(match["name"] for match in _NEEDS_WHEEL.finditer(message)))


def pin_of(root: Path, matrix: Matrix, python: str, name: str, requirements: Sequence[str]) -> str:
    """Return the version that uv would build, as a pin.

    Raises:
        LockError: If there is none, or its metadata cannot be had.
    """
    messages, text = resolve_requirements(
        root, matrix, python, requirements, {}, "--no-annotate", binary=False
    )
    found = {pin.name: pin.version for pin in parse_lock(text or "")}
    if name not in found:
        raise LockError(f"{name} cannot be built from source: {cause_of(messages)}")
    return f"{name}=={found[name]}"


def build_missing(root: Path, matrix: Matrix) -> list[Path]:
    """Build the wheels of ``built`` that are not there; return the new files.

    Raises:
        LockError: If one cannot be fetched or built.
        InterpreterError: If a Python is not found.
    """
    new: list[Path] = []
    for pin in matrix.built:
        for python in matrix.pythons:
            if not wheel_for(root, pin, python):
                new += _build(root, matrix, pin, python)
    return new


def wheel_for(root: Path, pin: str, python: str) -> Path | None:
    """Return the wheel of a pin that fits a Python; ``None`` if there is none."""
    name, _, version = pin.partition("==")
    wanted = {"py3", f"cp{python.replace('.', '')}"}
    for path in sorted(wheels_path(root).glob("*.whl")):
        found, built, _, tags = parse_wheel_filename(path.name)
        if (found, str(built)) == (canonicalize_name(name), version) and wanted & {
            tag.interpreter for tag in tags
        }:
            return path
    return None


def wheel_mistakes(root: Path, matrix: Matrix) -> Iterator[str]:
    """Yield what is wrong with the built wheels, one line each."""
    for pin in matrix.built:
        for python in matrix.pythons:
            if wheel_for(root, pin, python) is None:
                yield f"envs/built: no wheel of {pin} for Python {python}; ivhl lock makes it"


def _build(root: Path, matrix: Matrix, pin: str, python: str) -> list[Path]:
    """Fetch the source distribution, lock what builds it, and build it."""
    wheels = wheels_path(root)
    with tempfile.TemporaryDirectory(prefix="ivhl-wheel-") as name:
        here = Path(name)
        source = _fetch(here, pin)
        requires = _build_requires(source)
        messages, text = resolve_requirements(root, matrix, python, requires, {})
        if text is None:
            raise LockError(
                f"{pin}: its build requirements cannot be locked: {cause_of(messages)}",
                hint=f"its [build-system] requires {', '.join(requires)}",
            )
        digest = hashlib.sha256(source.read_bytes()).hexdigest()
        head = f"# {source.name} sha256:{digest}, built with these packages.\n"
        (here / "build.txt").write_text(head + text, encoding="utf-8")
        interpreter = find_interpreter(root, python)
        environment = str(here / "environment")
        _run(pin, "venv", "--no-project", "--python", str(interpreter.path), environment, cwd=here)
        _run(
            pin, "pip", "sync", "--python", environment, "--require-hashes", "build.txt", cwd=here
        )
        with variables_set({"SOURCE_DATE_EPOCH": _EPOCH}):
            _run(
                pin, "build", "--wheel", "--no-build-isolation", "--offline", "--python",
                environment, "--out-dir", "made", str(source), cwd=here,
            )  # fmt: skip
        made = sorted((here / "made").glob("*.whl"))
        log = wheels / f"{pin.replace('==', '-')}.build.txt"
        write_whole(log, (here / "build.txt").read_bytes(), root)
        for path in made:  # last: with the wheel, the log would not be made again
            write_whole(wheels / path.name, path.read_bytes(), root)
    return [wheels / path.name for path in made] + [log]


def _run(pin: str, *arguments: str, cwd: Path) -> None:
    done = run_uv(arguments, cwd=cwd)
    if done.returncode:
        raise LockError(
            f"{pin} has no wheel and cannot be built: {cause_of(done.stdout + done.stderr)}",
            hint="require a release that has a wheel, or put a wheel that you have built into "
            "envs/built/",
        )


def _fetch(here: Path, pin: str) -> Path:
    """Download a source distribution. uv has no command for that, so uv runs pip."""
    name = pin.partition("==")[0]
    index = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("UV_INDEX_URL")
    with variables_set({"PIP_INDEX_URL": index} if index else {}):
        _run(
            pin, "tool", "run", "--quiet", "pip", "download", "--quiet", "--no-deps",
            "--no-binary", name, "--dest", str(here / "source"), pin, cwd=here,
        )  # fmt: skip
    (source,) = (here / "source").iterdir()
    return source


def _build_requires(source: Path) -> list[str]:
    """Return the build requirements of a source distribution."""
    text = ""
    if source.suffix == ".zip":
        with zipfile.ZipFile(source) as archive:
            inside = [n for n in archive.namelist() if n.count("/") == 1]
            found = [n for n in inside if n.endswith("/pyproject.toml")]
            text = archive.read(found[0]).decode() if found else ""
    else:
        with tarfile.open(source) as archive:
            for member in archive:
                if member.name.count("/") == 1 and member.name.endswith("/pyproject.toml"):
                    file = archive.extractfile(member)
                    text = file.read().decode() if file else ""
    requires = tomllib.loads(text).get("build-system", {}).get("requires", _DEFAULT_BUILD)
    return [str(one) for one in requires]


@contextmanager
def variables_set(more: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables of this process for a while; then they are as before."""
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
