"""Make and read locks: the exact packages of a cell, with hashes and without addresses.

A lock is a requirements file that ``uv pip sync --require-hashes --only-binary :all:`` installs
from any mirror. If a cell has no distribution, that is a result too: ``<cell>.unavailable.txt``
beside the locks holds the resolver's reason.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import re
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from ivhl.errors import InterpreterError, LockError, SpecError, UnknownNameError
from ivhl.matrix.interpreter import find_free_threaded
from ivhl.matrix.spec import CellSpec, Matrix, read_plain
from ivhl.matrix.uv import run_uv
from ivhl.records.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence


COMMAND = "ivhl lock"
# In the heads of locks: with another head, cases would have another lock and be measured again.
_MADE_BY = "ivhl matrix lock"
# Names the package index that has the releases of the tier ``next``.
NEXT_INDEX = "IVHL_NEXT_INDEX"
# Name in a lock for requirements that come from the matrix, not from a package.
ASKED = "matrix.toml"
# In the folder of the locks, in the format of sha256sum: the hash of each lock when it was made.
SUMS = "SHA256SUMS"
_SUMS_LOCK = threading.Lock()
ASKED_FILE = "requirements.in"

_PIN = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)==(?P<version>[^\s;\\]+)(?: \\)?")
_HASH = re.compile(r" {4}--hash=(?P<hash>[a-z0-9]+:[0-9a-f]{64,})(?: \\)?")
_VIA = re.compile(r" {4}# (?:via(?: (?P<one>\S+))?| {2}(?P<several>\S+))")
_OF_NEXT_IS = f"# From the index that {NEXT_INDEX} names"
_OF_NEXT = re.compile(f"^{re.escape(_OF_NEXT_IS)}", re.MULTILINE)
_DIGEST = re.compile(r"# Matrix digest: (?P<digest>[0-9a-f]+)")
_BECAUSE_IS = "# Because of: "
_BECAUSE = re.compile(rf"^{_BECAUSE_IS}(?P<requirement>.+)$", re.MULTILINE)
_ADDRESS = re.compile(r"[a-z][a-z+]*://\S*", re.IGNORECASE)
_PATH = re.compile(r"(?:(?<=\s)|^)(?:/|~/|\.\.?/|[A-Za-z]:\\)\S+")

# Messages of uv 0.8 to 0.13 for a package that exists, but not for this Python or platform. Any
# other failure may be temporary or a mistake, and must not be recorded as a result. Tests compare
# with the real uv.
_NO_WHEEL = re.compile(r"has no (?:usable )?wheels|does not satisfy Python|requires Python")
_NOT_REACHED = re.compile(r"was not found in the|network was disabled")


@dataclass(frozen=True, slots=True)
class Pin:
    """One package of a lock.

    Attributes:
        hashes: ``algorithm:hex`` of every distribution file, in the order of the lock.
        via: The packages that require it; ``matrix.toml`` for a requirement of the matrix.
    """

    name: str
    version: str
    hashes: tuple[str, ...]
    via: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LockState:
    """The lock of one cell, or why there is none.

    Attributes:
        kind: ``unavailable`` if no distribution exists for this cell.
        path: Path of the lock, existing or not.
        sha256: Digest of the file; ``None`` if it is missing.
        message: The resolver's reason if unavailable; else empty.
        because: Requirement of the project that makes it unavailable; empty if PyTorch itself does.
        digest: Digest of the matrix's entries for this cell when the lock was made.
        of_next: Whether its packages come from the index of the tier ``next``.
        pins: The packages, by name.
    """

    cell: CellSpec
    kind: Literal["locked", "unavailable", "missing"]
    path: Path
    sha256: str | None = None
    message: str = ""
    because: str = ""
    digest: str = ""
    of_next: bool = False
    pins: tuple[Pin, ...] = ()

    @property
    def packages(self) -> dict[str, str]:
        """Name to version."""
        return {pin.name: pin.version for pin in self.pins}

    def stale(self, matrix: Matrix) -> bool:
        """Return whether the lock was made from another matrix. A missing lock is not stale."""
        return self.kind != "missing" and self.digest != matrix_digest(matrix, self.cell)

    def closure(self, package: str) -> frozenset[str]:
        """Return the package and its direct and indirect requirements."""
        found = {package} & self.packages.keys()
        while more := {p.name for p in self.pins if found & set(p.via)} - found:
            found |= more
        return frozenset(found)

    def tied_to(self, package: str) -> frozenset[str]:
        """Return what another version of a package may change: its closure and its users' closures.

        A package that asks for torch, such as torchvision, may exist for one release of it only.
        """
        asking = {package}
        while more := {via for p in self.pins if p.name in asking for via in p.via} - asking:
            asking |= more
        return frozenset().union(*(self.closure(name) for name in asking - {ASKED}))


def matrix_digest(matrix: Matrix, cell: CellSpec) -> str:
    """Return a digest of the matrix's entries for this cell; other rows do not change it."""
    relevant = {
        "also": sorted(matrix.also),
        "exclude-newer": _until(matrix, cell),
        "platform": matrix.platform,
        "python": cell.python,
        "torch": cell.torch,
    }
    # Left out where they are empty, so that locks from before there were these keys stay fresh.
    more = {"requires": sorted(matrix.requires), "built": sorted(matrix.built)}
    relevant |= {key: listed for key, listed in more.items() if listed}
    return hashlib.sha256(json.dumps(relevant, sort_keys=True).encode()).hexdigest()[:16]


def _until(matrix: Matrix, cell: CellSpec) -> str | None:
    """Return the day after which nothing counts; ``None`` where an index may give no dates."""
    return None if matrix.tier(cell) == "next" else matrix.exclude_newer.isoformat()


def index_options(cell: CellSpec, *, of_next: bool) -> tuple[str, ...]:
    """Return uv's options for the index of a cell.

    Raises:
        LockError: If the cell is of the tier ``next`` and nothing names its index.
    """
    if not of_next:
        return ()
    if index := os.environ.get(NEXT_INDEX):
        if not _ADDRESS.match(index) and not Path(index).is_dir():
            raise LockError(
                f"{NEXT_INDEX}: must be an address such as https://..., or a folder (got {index!r})",
                hint=f"export {NEXT_INDEX}=ADDRESS, that of the index which has {cell.torch}",
            )
        return ("--index", index)
    raise LockError(
        f'{cell.id}: has the tier "next", but {NEXT_INDEX} is not set',
        hint=f"export {NEXT_INDEX}=ADDRESS, that of the package index which has this release",
    )


def digest_in(text: str) -> str:
    """Return the digest of the matrix from which a lock was made; empty if it names none."""
    found = _DIGEST.search(text)
    return found["digest"] if found else ""


def lock_path(root: Path, cell: CellSpec) -> Path:
    """Return the path of the cell's lock."""
    return root / "envs" / "locks" / f"{cell.id}.txt"


def unavailable_path(root: Path, cell: CellSpec) -> Path:
    """Return the path of the statement that the cell is unavailable."""
    return root / "envs" / "locks" / f"{cell.id}.unavailable.txt"


def wheels_path(root: Path) -> Path:
    """Return the folder of the wheels that the project has built from source distributions.

    Not named ``wheels``, which the usual ``.gitignore`` of a Python project has.
    """
    return root / "envs" / "built"


def lock_state(root: Path, cell: CellSpec) -> LockState:
    """Read the lock of a cell.

    Raises:
        LockError: If the file was edited or damaged, or both a lock and an unavailable file exist.
    """
    path, reason_path = lock_path(root, cell), unavailable_path(root, cell)
    if path.exists() and reason_path.exists():
        raise LockError(
            f"{cell.id}: both {path.name} and {reason_path.name} exist", hint=_again(cell)
        )
    if reason_path.exists():
        return _read(reason_path, cell, "unavailable")
    if path.exists():
        return _read(path, cell, "locked")
    return LockState(cell=cell, kind="missing", path=path)


def ensure_lock(root: Path, matrix: Matrix, cell: CellSpec) -> LockState:
    """Return the lock of a cell, and make it if it is missing, e.g. for an ad hoc release.

    Raises:
        LockError: If the lock is stale, was edited, or cannot be made. A stale lock is not replaced,
            because records may have been measured with it.
        UnknownNameError: If the release does not exist.
    """
    state = lock_state(root, cell)
    if state.kind == "missing":
        return make_lock(root, matrix, cell)
    if state.stale(matrix):
        raise LockError(
            f"{state.path.name}: was made from another matrix.toml "
            f"(digest {state.digest or 'missing'}, now {matrix_digest(matrix, cell)})",
            hint=_again(cell),
        )
    if (read_sums(state.path.parent) or {}).get(state.path.name, state.sha256) != state.sha256:
        raise LockError(
            f"{state.path.name}: was edited since it was made: its hash is not that in {SUMS}",
            hint=f"restore it: git checkout -- {state.path.relative_to(root)}; or {_again(cell)}",
        )
    return state


def make_lock(root: Path, matrix: Matrix, cell: CellSpec) -> LockState:
    """Lock one cell, with the versions in its release's locks for other Pythons where possible.

    Raises:
        UnknownNameError: If the release does not exist; names the nearest.
        SpecError: If the release is newer than the matrix allows.
        LockError: If the registry does not answer, or its answer does not make a valid lock.
        InterpreterError: If the Python is free-threaded, and no interpreter is.
    """
    seed: dict[str, str] = {}
    for other in matrix.cells(releases=[cell.torch]):
        if other != cell:
            state = lock_state(root, other)
            if not state.stale(matrix):
                seed = state.packages | seed
    return _write(root, cell, _resolve(root, matrix, cell, seed))


def without_interpreter(root: Path, matrix: Matrix) -> dict[str, InterpreterError]:
    """Return the Pythons of the matrix that cannot be locked on this machine, each with why."""
    found = {}
    for python in matrix.pythons:
        try:
            _interpreter_to_lock(root, python)
        except InterpreterError as error:
            found[python] = error
    return found


def lock_release(
    root: Path, matrix: Matrix, release: str, leave: Collection[str] = ()
) -> tuple[LockState, ...]:
    """Lock a release for every Python of the matrix, with the same versions wherever possible.

    The first Python is resolved freely; later ones prefer its versions. If a later Python cannot
    have a version, all are resolved again, preferring that Python's version. ``diff_cells`` reports
    the differences that remain.

    Args:
        root: Root of the project.
        matrix: The matrix.
        release: Need not be in the matrix.
        leave: Pythons whose locks are left as they are.

    Raises:
        UnknownNameError: If the release does not exist; names the nearest.
        SpecError: If the release is newer than the matrix allows.
        LockError: If the registry does not answer, or its answer does not make a valid lock.
        InterpreterError: If the Python is free-threaded, and no interpreter is.
    """
    cells = [cell for cell in matrix.cells(releases=[release]) if cell.python not in leave]
    texts: list[_Resolved] = []
    seed: dict[str, str] = {}
    for _ in range(2):
        texts = []
        latest: dict[str, str] = {}
        for cell in cells:
            resolved = _resolve(root, matrix, cell, seed)
            texts.append(resolved)
            seed = _packages(resolved) | seed
            latest |= _packages(resolved)
        if latest == seed:
            break
        seed = latest
    return tuple(_write(root, cell, text) for cell, text in zip(cells, texts, strict=True))


def resolve_cell(
    root: Path, matrix: Matrix, cell: CellSpec, until: dt.date
) -> tuple[Literal["locked", "unavailable"], str]:
    """Return whether a cell can be locked, and if not, why; writes nothing.

    Args:
        root: Root of the project.
        matrix: Gives the other packages of the cell, and the platform.
        cell: Need not be in the matrix.
        until: Replaces ``exclude-newer``: packages published later are ignored.

    Raises:
        UnknownNameError: If the release does not exist; names the nearest.
        SpecError: If the release is newer than that day.
        LockError: If the registry does not answer, or its answer does not make a valid lock.
        InterpreterError: If the Python is free-threaded, and no interpreter is.
    """
    resolved = _resolve(root, matrix.model_copy(update={"exclude_newer": until}), cell, {})
    lines = [line for line in resolved.text.splitlines() if not line.startswith("#")]
    return resolved.kind, "\n".join(lines).strip() if resolved.kind == "unavailable" else ""


def lock_mistakes(state: LockState, matrix: Matrix) -> list[str]:
    """Return the mistakes in a lock, one line each; empty if it has none."""
    name = state.path.name
    if state.kind == "missing":
        return [f"{name}: is missing"]
    found = []
    if state.stale(matrix):
        found.append(
            f"{name}: is stale, made from another matrix.toml (digest "
            f"{state.digest or 'missing'}, now {matrix_digest(matrix, state.cell)})"
        )
    text = read_plain(state.path).decode()
    found += [f"{name}: {mistake}" for mistake in _text_mistakes(text)]
    if state.kind == "unavailable":
        if not state.message:
            found.append(f"{name}: has no reason")
        return found
    found += [
        f"{name}: {mistake}"
        for mistake in _pin_mistakes(state.pins, state.cell, local=state.of_next)
    ]
    if not state.stale(matrix):
        asked = {pin.name: pin.version for pin in state.pins if ASKED in pin.via}
        wanted = _asked(matrix, state.cell)
        if asked.keys() != {one.name for one in wanted} or any(
            not one.specifier.contains(asked[one.name], prereleases=True) for one in wanted
        ):
            found.append(
                f"{name}: must ask for {_listed(sorted(map(str, wanted)))} and nothing else "
                f"(got {_listed(asked)})"
            )
    return found


def parse_lock(text: str) -> tuple[Pin, ...]:
    """Return the packages of a lock.

    Raises:
        ValueError: If a line does not have uv's format; names the line.
    """
    pins: list[tuple[str, str, list[str], list[str]]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        if pins and (match := _HASH.fullmatch(line)):  # of ten lines, nine
            pins[-1][2].append(match["hash"])
        elif match := _PIN.fullmatch(line):
            pins.append((canonicalize_name(match["name"]), match["version"], [], []))
        elif pins and (match := _VIA.fullmatch(line)):
            pins[-1][3].extend(name for name in match.groups() if name)
        else:
            raise ValueError(f"line {number} is not as uv writes it (got {line.strip()!r})")
    return tuple(Pin(n, v, tuple(hashes), tuple(via)) for n, v, hashes, via in pins)


@dataclass(frozen=True, slots=True)
class _Resolved:
    kind: Literal["locked", "unavailable"]
    text: str


def _packages(resolved: _Resolved) -> dict[str, str]:
    pins = parse_lock(resolved.text) if resolved.kind == "locked" else ()
    return {pin.name: pin.version for pin in pins}


def _asked(matrix: Matrix, cell: CellSpec) -> list[Requirement]:
    """Return what the matrix asks for in this cell, with canonical names."""
    asked = [
        Requirement(f"torch=={cell.torch}"),
        *map(Requirement, (*matrix.also, *matrix.requires)),
    ]
    environment = marker_environment(cell.python, matrix.platform)
    there = [one for one in asked if one.marker is None or one.marker.evaluate(environment)]
    for one in there:
        one.name = canonicalize_name(one.name)
        one.marker = None
    return there


def marker_environment(python: str, platform: str) -> dict[str, str]:
    """Return what markers of requirements see in a cell.

    Args:
        python: As in the matrix, e.g. ``3.14t``.
        platform: That of the matrix.
    """
    version = python.removesuffix("t")
    machine = platform.partition("-")[0]
    there = {key: str(value) for key, value in default_environment().items()}
    return there | {
        "extra": "",
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{version}.0",
        "python_version": version,
        "sys_platform": "linux",
    }


def _resolve(root: Path, matrix: Matrix, cell: CellSpec, seed: Mapping[str, str]) -> _Resolved:
    """Resolve a lock with uv, preferring the versions of the seed where possible."""
    requirements = list(map(str, _asked(matrix, cell)))
    of_next = matrix.tier(cell) == "next"
    options = index_options(cell, of_next=of_next)
    messages, text = resolve_requirements(root, matrix, cell.python, requirements, seed, *options)
    origin = (
        f"From the index that {NEXT_INDEX} names"
        if of_next
        else f"Nothing published after {matrix.exclude_newer}"
    )
    header = (
        f"# The packages of {cell.id}. Made by `{_made_by(root)}` from envs/matrix.toml; "
        "do not edit.\n"
        f"# {origin}, for {matrix.platform}.\n"
        f"# Matrix digest: {matrix_digest(matrix, cell)}\n"
    )
    if text is None:
        because, messages = _culprit(root, matrix, cell, messages)
        reason = _why_unavailable(matrix, cell, messages, because)
        if because:
            header += f"# Because of: {because}\n"
            reason = f"the project requires {because}, which this cell cannot have: {reason}"
        if of_next:
            reason = re.sub(r"\S+://[^\s,;)]*", f"what {NEXT_INDEX} names", reason)
        header = header.replace("The packages of", "No packages for", 1)
        text = header + "\n" + "".join(f"{line}".rstrip() + "\n" for line in reason.splitlines())
        resolved = _Resolved("unavailable", text)
        mistakes = list(_text_mistakes(text))
    else:
        text = header + "\n" + text.replace(f"-r {ASKED_FILE}", ASKED)
        resolved = _Resolved("locked", text)
        pins = parse_lock(text)
        mistakes = [*_text_mistakes(text), *_pin_mistakes(pins, cell, local=of_next)]
    if mistakes:
        raise LockError(
            f"{cell.id}: the answer of uv cannot be a lock: " + "; ".join(mistakes),
            hint="see which index or find-links setting of uv it comes from, and leave that out",
        )
    return resolved


def _made_by(root: Path) -> str:
    """Return the command in the head of a lock: the project's own nox session, if it has one.

    Another head would be another lock, of which every case is measured again.
    """
    path = root / "noxfile.py"
    own = path.is_file() and b"\ndef lock(" in read_plain(path).replace(b"\r\n", b"\n")
    return "nox -s lock" if own else _MADE_BY


def _interpreter_to_lock(root: Path, python: str) -> Path:
    """Return the interpreter that uv resolves for a Python with.

    uv learns the ABI of a free-threaded Python from a free-threaded interpreter only, not from a
    version. For any other Python the version suffices; an explicit interpreter keeps uv from
    searching for one, which a pyenv shim would abort.

    Raises:
        InterpreterError: If the Python is free-threaded, and no interpreter is.
    """
    return find_free_threaded(root, python).path if python.endswith("t") else Path(sys.executable)


def resolve_requirements(
    root: Path,
    matrix: Matrix,
    python: str,
    requirements: Sequence[str],
    seed: Mapping[str, str],
    *options: str,
    binary: bool = True,
) -> tuple[str, str | None]:
    """Return uv's messages, and the requirements; ``None`` if there is no solution.

    With ``binary``, only wheels count.
    """
    interpreter = _interpreter_to_lock(root, python)
    day_after = matrix.exclude_newer + dt.timedelta(days=1)
    wheels = wheels_path(root)
    with tempfile.TemporaryDirectory(prefix="ivhl-lock-") as name:
        # In a temporary folder with relative names, so that the lock contains no path.
        folder = Path(name)
        (folder / ASKED_FILE).write_text("\n".join(requirements) + "\n", encoding="utf-8")
        out = folder / "lock.txt"
        out.write_text("".join(f"{n}=={v}\n" for n, v in seed.items()), encoding="utf-8")
        process = run_uv(
            [
                *("pip", "compile", ASKED_FILE, "--output-file", out.name, "--quiet"),
                *("--generate-hashes", "--no-header"),
                *(("--only-binary", ":all:") if binary else ()),
                *("--no-emit-index-url", "--no-emit-find-links", "--no-emit-index-annotation"),
                *("--python", str(interpreter), "--python-version", python.removesuffix("t")),
                *("--python-platform", matrix.platform),
                # A date alone would be taken in this machine's time zone. The index of the tier
                # ``next`` may give no dates, and packages without one would not count.
                *(() if "--index" in options else ("--exclude-newer", f"{day_after}T00:00:00Z")),
                *(("--find-links", str(wheels)) if wheels.is_dir() else ()),
                *options,
            ],
            cwd=folder,
            project=root,
        )
        messages = process.stderr.strip()
        return messages, out.read_text(encoding="utf-8") if process.returncode == 0 else None


def _culprit(root: Path, matrix: Matrix, cell: CellSpec, messages: str) -> tuple[str, str]:
    """Return the project's requirement that has no solution, and uv's messages about it.

    Empty, with the messages unchanged, where the cell has none without the project either. If only
    several requirements together have none, all of them are named.
    """
    ours = matrix.model_copy(update={"requires": ()})
    theirs = _asked(matrix.model_copy(update={"also": ()}), cell)[1:]
    if not theirs or "No solution found" not in messages:
        return "", messages
    base = list(map(str, _asked(ours, cell)))
    without, text = resolve_requirements(root, matrix, cell.python, base, {})
    if text is None:
        return "", without
    for one in map(str, theirs):
        alone, text = resolve_requirements(root, matrix, cell.python, [*base, one], {})
        if text is None:
            return one, alone
    return ", ".join(map(str, theirs)), messages


def _why_unavailable(matrix: Matrix, cell: CellSpec, messages: str, because: str) -> str:
    """Return uv's reason if it is permanent.

    Args:
        matrix: The matrix.
        cell: Cell that has no solution.
        messages: Those of uv.
        because: Requirement of the project that has none; any permanent reason is then a result.

    Raises:
        UnknownNameError: If the release does not exist.
        SpecError: If the release is newer than the matrix allows.
        LockError: For any other reason.
    """
    if "No solution found" not in messages or _NOT_REACHED.search(messages):
        where = f" for {because}, which the project requires" if because else ""
        raise LockError(
            f"{cell.id}: uv gives no answer{where}: {_in_one_line(messages)}",
            hint="see whether the network, uv's index settings and `platform` in "
            "envs/matrix.toml are as they should be, then try again; nothing was recorded",
        )
    if f"there is no version of torch=={cell.torch} " in messages:
        if "filtered by `exclude-newer`" in messages:
            raise SpecError(
                f"PyTorch release: must not be newer than exclude-newer of envs/matrix.toml, "
                f"{matrix.exclude_newer} (got {cell.torch!r}): {_in_one_line(messages)}",
                hint=f"raise exclude-newer and make all locks again: {COMMAND}",
            )
        if matrix.tier(cell) == "next":
            raise LockError(
                f"{cell.id}: the index that {NEXT_INDEX} names has no torch {cell.torch}",
                hint="is the address right, and is the release still there? If not, remove its row "
                "from envs/matrix.toml",
            )
        # Nearest by version, not by spelling: for 2.5.7 suggest 2.5.1 and 2.6.0, not 2.9.1.
        wanted, known = Version(cell.torch), matrix.releases("extended")
        n_before = sum(Version(one) < wanted for one in known)
        near = known[max(n_before - 1, 0) : n_before + 1]
        raise UnknownNameError("PyTorch release", cell.torch, near)
    if not because and not _NO_WHEEL.search(messages):
        raise LockError(
            f"{cell.id}: cannot be resolved: {_in_one_line(messages)}",
            hint="see `also` and `platform` in envs/matrix.toml; nothing was recorded",
        )
    return "\n".join(
        line.removeprefix("  cause: ")
        for line in messages.splitlines()
        if not line.startswith("error:")
    )


def _in_one_line(messages: str) -> str:
    """Return uv's message in one line."""
    lines = (line.strip() for line in messages.splitlines())
    return " ".join(line.removeprefix("error: ") for line in lines if line)


def _write(root: Path, cell: CellSpec, resolved: _Resolved) -> LockState:
    put_lock(root, cell, resolved.text.encode(), resolved.kind)
    return lock_state(root, cell)


def put_lock(
    root: Path, cell: CellSpec, text: bytes, kind: Literal["locked", "unavailable"] = "locked"
) -> None:
    """Write a lock whole, for half of one would install, with its hash: it was not edited.

    Args:
        root: Root of the project, or of a clone of it.
        cell: The cell.
        text: The lock, or the statement that the cell is unavailable.
        kind: Which of both.
    """
    path, gone = lock_path(root, cell), unavailable_path(root, cell)
    if kind == "unavailable":
        path, gone = gone, path
    write_whole(path, text, root)
    gone.unlink(missing_ok=True)
    with _SUMS_LOCK:  # several cells are locked at the same time
        sums = path.with_name(SUMS)
        known = read_sums(sums.parent)
        if known is None:
            known = _sums_of(sums.parent)
        known.pop(gone.name, None)
        known[path.name] = hashlib.sha256(text).hexdigest()
        write_whole(sums, sums_text(known).encode(), root)


def write_missing_sums(root: Path) -> bool:
    """Write the hashes of all locks if nothing has them yet; return whether it did."""
    folder = root / "envs" / "locks"
    with _SUMS_LOCK:
        known = _sums_of(folder) if read_sums(folder) is None else {}
        if known:
            write_whole(folder / SUMS, sums_text(known).encode(), root)
    return bool(known)


def sums_text(sums: Mapping[str, str]) -> str:
    """Return hashes by file name in the format of sha256sum."""
    return "".join(f"{sums[name]}  {name}\n" for name in sorted(sums))


def _sums_of(folder: Path) -> dict[str, str]:
    return {path.name: _sha256(path) for path in sorted(folder.glob("*.txt"))}


def read_sums(folder: Path) -> dict[str, str] | None:
    """Return the hash of each lock when it was made, by file name; ``None`` without the file."""
    try:
        lines = read_plain(folder / SUMS).decode(errors="replace").splitlines()
    except FileNotFoundError:
        return None
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def _sha256(path: Path) -> str:
    return hashlib.sha256(read_plain(path)).hexdigest()


def changed_locks(root: Path) -> list[str]:
    """Return the locks that changed after they were made, one line each.

    A line of a lock can be edited so that it is still a valid lock: another hash of a package, for
    example, which only the next installation would tell, or nobody if it is that of a bad wheel.
    """
    folder = root / "envs" / "locks"
    sums = read_sums(folder)
    if sums is None:
        return []
    here = _sums_of(folder)
    again = f"restore it (git checkout -- envs/locks), or make all again ({COMMAND} --force)"
    found = [
        f"{name}: was edited since it was made: its hash is not that in {SUMS}; {again}"
        for name, digest in here.items()
        if sums.get(name, digest) != digest
    ]
    found += [f"{name}: is not in {SUMS}; {again}" for name in here if name not in sums]
    return found + [f"{name}: is in {SUMS}, and missing" for name in sums if name not in here]


def _read(path: Path, cell: CellSpec, kind: Literal["locked", "unavailable"]) -> LockState:
    try:
        data = read_plain(path)
        text = data.decode()
        pins = parse_lock(text) if kind == "locked" else ()
    except (OSError, ValueError) as error:
        raise LockError(f"{path.name}: {error}", hint=_again(cell)) from error
    # Most have neither comment, and an expression would try each of their thousands of lines.
    because = _BECAUSE.search(text) if _BECAUSE_IS in text else None
    body: list[str] = []
    if kind == "unavailable":
        body = [line for line in text.splitlines() if not line.startswith("#")]
    return LockState(
        cell=cell,
        kind=kind,
        path=path,
        sha256=hashlib.sha256(data).hexdigest(),
        message="\n".join(body).strip(),
        because=because["requirement"] if because else "",
        digest=digest_in(text),
        of_next=_OF_NEXT_IS in text and bool(_OF_NEXT.search(text)),
        pins=pins,
    )


def _text_mistakes(text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), start=1):
        if match := _ADDRESS.search(line):
            yield f"line {number}: must hold no address (got {match[0]!r})"
        elif match := _PATH.search(line):
            yield f"line {number}: must hold no path (got {match[0]!r})"


def _pin_mistakes(pins: Sequence[Pin], cell: CellSpec, *, local: bool) -> Iterator[str]:
    names = {pin.name for pin in pins}
    for pin in pins:
        if not pin.hashes:
            yield f"{pin.name}: must have a hash"
        if "+" in pin.version and not local:
            yield f"{pin.name}: a local version is not on every mirror (got {pin.version})"
        if not set(pin.via) <= {*names, ASKED} or not pin.via:
            yield f"{pin.name}: no package in the lock requires it (got {_listed(pin.via)})"
    versions = [pin.version.partition("+")[0] for pin in pins if pin.name == "torch"]
    if versions != [cell.torch]:
        yield f"torch: must be {cell.torch} (got {_listed(versions)})"


def _listed(items: Mapping[str, str] | Sequence[str]) -> str:
    if not items:
        return "nothing"
    return ", ".join(
        [f"{n}=={v}" for n, v in sorted(items.items())] if hasattr(items, "items") else items
    )


def _again(cell: CellSpec) -> str:
    return f"make it again: ivhl lock --torch {cell.torch}"
