"""Switch a version check off, and run the tests of its code (``ivhl version-checks --run``)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from xml.etree import ElementTree as ET

from ivhl.asv.cell import make_cell
from ivhl.errors import IvhlError, LockError, SpecError
from ivhl.matrix.spec import read_plain
from ivhl.matrix.uv import cause_of, run_uv
from ivhl.measure.process import run_tree
from ivhl.syntax import decoded
from ivhl.tracker.support.compat import python_key, release_key
from ivhl.tracker.wording import counted
from ivhl.version_checks.checks import switched_off

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

    from ivhl.matrix.spec import CellSpec
    from ivhl.version_checks.checks import FoundCheck

TrialVerdict = Literal["passes", "fails", "flaky", "undecided"]
# Packages of the cell that the project's requirements must not replace; without torch, nothing asks
# for what it brings.
_FROM_THE_CELL = "torch\ntriton\n"
_LONGEST_REASON = 300
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
# So do temporary folders, times and random numbers.
_DIFFERS = re.compile(r"(?:/[^\s'\",:)]+)+|\d+")
_RAISED = re.compile(r"[A-Za-z_][\w.]*: |AssertionError$")
# What a test needs and lacks here, which no compiler raises by itself: files, modules, the network,
# fixtures. What Dynamo and backends raise has their names around it.
_LACKS = re.compile(
    r"(?:collection failure: |failed on setup with \")?(?:[\w.]+\.)?(?:"
    r"OSError|FileNotFoundError|PermissionError|ImportError|ModuleNotFoundError|TimeoutError"
    r"|Connect\w*Error|ConnectionRefusedError|ConnectionResetError|URLError|HTTPError"
    r"|LocalEntryNotFoundError|gaierror)\b|.*\bfixture '\w+' not found"
)
# Notes whether Dynamo has compiled anything in a process; Python imports a ``sitecustomize`` when it
# starts. It looks again and again, since ``torch.compiler.reset`` forgets the number of frames.
_NOTING = """
import atexit, os, sys, threading, time

def note():
    module = sys.modules.get("torch._dynamo.convert_frame")
    if getattr(module, "FRAME_COUNTER", 0):
        with open(os.environ["IVHL_COMPILED"], "a") as file:
            file.write("compiled\\n")
        return True

def look():
    while not note():
        time.sleep(0.02)

threading.Thread(target=look, daemon=True).start()
atexit.register(note)
"""
# Of these the tests may pass without coming near; a mark is on the test itself.
_ABOUT_COMPILING = frozenset({"branch", "disable"})
_COPIES = ("on", "off")  # with the check, and without it


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What is switched off, and what is run.

    Attributes:
        root: The ivhl project whose cells are used.
        folder: The code base, which is copied and stays as it is.
        tests: Tests as pytest names them, or one script with its whole path.
        extra: Further requirements of the tests.
        others: The other checks of the code base, which may decide in the place of this one.
        here: Scratch folder.
        deadline_s: Longest time of one run.
    """

    root: Path
    folder: Path
    check: FoundCheck
    tests: tuple[str, ...]
    extra: tuple[str, ...]
    here: Path
    others: tuple[FoundCheck, ...] = ()
    deadline_s: float = 900.0


@dataclass(frozen=True, slots=True)
class TrialRun:
    """One run of the tests, or of a script.

    Attributes:
        failed: Tests that failed or could not be set up; 1 for a script.
        reason: Of the first failure that says of the compiler, else of the first one, or why nothing
            ran.
        compiled: Whether Dynamo compiled anything in it, or in a process that it began.
        failures: Each test that failed, and why; a script has no name.
    """

    passed: int
    failed: int
    skipped: int
    reason: str
    compiled: bool = False
    failures: tuple[tuple[str, str], ...] = ()

    def beyond(self, before: TrialRun) -> list[str]:
        """Return why tests failed that do not fail alike with the check."""
        known = {(test, _DIFFERS.sub("", reason)) for test, reason in before.failures}
        return [
            reason
            for test, reason in self.failures
            if (test, _DIFFERS.sub("", reason)) not in known
        ]


@dataclass(frozen=True, slots=True)
class WithoutCheck:
    """What happened in a cell.

    Attributes:
        before: The run with the check, to tell what fails for another reason; ``None`` if the cell
            could not be made.
        runs: Those without it.
        reason: Of a failure, or why nothing is decided.
    """

    cell: CellSpec
    verdict: TrialVerdict
    before: TrialRun | None
    runs: tuple[TrialRun, ...]
    reason: str


def find_tests(folder: Path, check: FoundCheck) -> tuple[str, ...]:
    """Return the tests of the code that a check keeps out: itself, or those files that name it.

    Raises:
        SpecError: If no test does.
    """
    path = folder / check.path
    is_test = re.fullmatch(r"test_.*\.py|.*_tests?\.py", path.name) is not None
    if is_test:
        inside = "" if check.name == "(module)" else "::" + check.name.replace(".", "::")
        return (f"{check.path}{inside}",)
    # Of a class, tests name the method; of a function in a function, the outer one.
    parts = check.name.split(".")
    name = next((part for part in parts if part.lstrip("_")[:1].islower()), parts[-1])
    word = re.compile(rf"\b{re.escape(name)}\b")
    found = [
        str(one.relative_to(folder))
        for one in sorted(folder.rglob("*.py"))
        if one.is_file()
        and re.fullmatch(r"test_.*\.py|.*_tests?\.py", one.name)
        and word.search(read_plain(one).decode(errors="replace"))
    ]
    if not found:
        raise SpecError(
            f"{check.place}: no test names {name}",
            hint="say what to run with --check: a test as pytest names it, or a script",
        )
    return tuple(found)


def run_without(
    attempt: Attempt, cells: Sequence[CellSpec], console: Console
) -> list[WithoutCheck]:
    """Run those tests with and without the check in each cell, the oldest release first.

    Raises:
        SpecError: If the check cannot be switched off by replacing its condition.
        IvhlError: If the project cannot be installed.
    """
    check, here = attempt.check, attempt.here
    if not check.edits:
        raise SpecError(
            f"{check.place}: cannot be switched off by replacing its condition",
            hint="change it by hand in a copy, and run its tests there",
        )
    for name in _COPIES:
        left_out = shutil.ignore_patterns(".git", ".asv", ".nox", "__pycache__")
        shutil.copytree(attempt.folder, here / name, ignore=left_out)
    path = here / "off" / check.path
    text, encoding = decoded(path)
    path.write_bytes(switched_off(text, check.edits).encode(encoding))
    found = []
    for cell in sorted(cells, key=lambda one: (python_key(one.python), release_key(one.torch))):
        try:
            with console.status(f"making {cell.id}"):
                python = make_cell(attempt.root, cell) / "bin" / "python"
        except LockError as error:
            found.append(WithoutCheck(cell, "undecided", None, (), str(error)))
            continue
        with console.status(f"{cell.id}: installing"):
            _install(attempt, cell, python)
        with console.status(f"{cell.id}: running"):
            found.append(_without_others(attempt, _try(attempt, cell, python)))
    return found


def _install(attempt: Attempt, cell: CellSpec, python: Path) -> None:
    """Install both copies and what they require beside the cells of a Python, once."""
    target = attempt.here / cell.python
    if target.exists():
        return
    target.mkdir()
    without = target / "without.txt"
    without.write_text(_FROM_THE_CELL, encoding="utf-8")
    copies = {name: str(attempt.here / name) for name in _COPIES}
    requires = ["--excludes", str(without), copies["on"], "pytest", *attempt.extra]
    for name, what in (
        ("requires", requires),
        *((name, ["--no-deps", copy]) for name, copy in copies.items()),
    ):
        done = run_uv(
            ["pip", "install", "--python", str(python), "--target", str(target / name), *what],
            cwd=target,
        )
        if done.returncode:
            raise IvhlError(
                f"the code base cannot be installed: {cause_of(done.stdout + done.stderr)}",
                hint="does it allow this Python, and is everything it requires on the registry?",
            )


def _try(attempt: Attempt, cell: CellSpec, python: Path) -> WithoutCheck:
    before, first = (_run(attempt, cell, python, name) for name in _COPIES)
    if not first.failed and first.passed:
        if first.compiled or attempt.check.kind not in _ABOUT_COMPILING:
            return WithoutCheck(cell, "passes", before, (first,), "")
        reason = f"nothing was compiled: {counted(first.passed, 'test')} passed without it"
        return WithoutCheck(cell, "undecided", before, (first,), reason)
    # A test that a mark skips shows nowhere else what it lacks.
    ran_before = before.passed or before.failed
    lacks = first.failed and not ran_before and bool(_LACKS.match(first.reason))
    if not first.failed or lacks:
        reason = first.reason or f"nothing ran: {counted(first.skipped, 'test')} skipped"
        if lacks:
            reason = f"lacks what it needs here, whatever the compiler does: {reason}"
        return WithoutCheck(cell, "undecided", before, (first,), reason)
    again = _run(attempt, cell, python, "off")
    runs = (first, again)
    if not again.failed:
        return WithoutCheck(cell, "flaky", before, runs, f"failed in 1 of 2 runs: {first.reason}")
    new = first.beyond(before)
    if not new:
        text = f"fails with the check, too: {first.reason}"
        return WithoutCheck(cell, "undecided", before, runs, text)
    return WithoutCheck(cell, "fails", before, runs, new[0])


def _without_others(attempt: Attempt, tried: WithoutCheck) -> WithoutCheck:
    """Return an undecided result where another check raised or skipped, told by its words."""
    if tried.verdict == "passes":
        return tried
    for other in attempt.others:
        may_hold = other.excludes.holds(tried.cell.python, tried.cell.torch) is not False
        if may_hold and other.reason and other.reason in tried.reason:
            text = f"another check decides, {other.place}: {tried.reason}"
            return replace(tried, verdict="undecided", reason=text)
    return tried


def _run(attempt: Attempt, cell: CellSpec, python: Path, name: str) -> TrialRun:
    """Run tests or a script in a copy of the code base."""
    here, tree = attempt.here, attempt.here / name
    # What both require was installed with the project: the copy comes first.
    sites = [here / "noting", here / cell.python / name, here / cell.python / "requires"]
    sites[0].mkdir(exist_ok=True)
    (sites[0] / "sitecustomize.py").write_text(_NOTING, encoding="utf-8")
    compiled = here / "compiled.txt"
    compiled.unlink(missing_ok=True)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, sites)),
        "TORCHINDUCTOR_CACHE_DIR": str(here / f"cache-{cell.id}-{name}"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "IVHL_COMPILED": str(compiled),
    }
    report = here / "report.xml"
    report.unlink(missing_ok=True)
    # Where the code base has no settings of pytest, those of a project around it would hold.
    (here / "pytest.ini").touch()
    command = [str(python), *attempt.tests]
    script = len(attempt.tests) == 1 and Path(attempt.tests[0]).is_absolute()
    if not script:
        command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += [f"--rootdir={tree}", f"--junitxml={report}", *attempt.tests]
    try:
        done = run_tree(
            command,
            cwd=tree,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=attempt.deadline_s,
        )
    except subprocess.TimeoutExpired:
        reason = f"did not end within {attempt.deadline_s:.0f} s"
        return TrialRun(0, 1, 0, reason, failures=(("", reason),))
    copies = (f"{sites[1]}/", f"{tree}/")
    if not script and report.is_file():
        return replace(_read(report, copies), compiled=compiled.exists())
    lines = (done.stdout + done.stderr).strip().splitlines()
    failed = int(done.returncode != 0)
    # Dynamo's advice comes after the exception, and is the same for all.
    raised = [line for line in lines if _RAISED.match(line)] or lines
    reason = _plain(" ".join(raised[-1:]), copies) if failed else ""
    failures = (("", reason),) if failed else ()
    return TrialRun(1 - failed, failed, 0, reason, compiled.exists(), failures)


def _plain(text: str, copies: Iterable[str]) -> str:
    """Return a reason without what differs between two runs that fail alike: paths, addresses."""
    for path in copies:
        text = text.replace(path, "")
    return _ADDRESS.sub("", text)[:_LONGEST_REASON]


def _read(report: Path, copies: Iterable[str]) -> TrialRun:
    cases = list(ET.parse(report).getroot().iter("testcase"))  # noqa: S314  (pytest's own)
    said: dict[str, list[tuple[str, str]]] = {"failure": [], "error": [], "skipped": []}
    for case in cases:
        name = f"{case.get('classname')}.{case.get('name')}"
        for one in case:
            if one.tag in said:
                said[one.tag].append((name, _plain(" ".join(_message(one).split()), copies)))
    # One that does not come from what a test lacks here says more than the first one.
    bad = sorted(said["failure"] + said["error"], key=lambda one: bool(_LACKS.match(one[1])))
    skipped = said["skipped"]
    _, reason = next(iter((*bad, *skipped)), ("", ""))
    passed = len(cases) - len(bad) - len(skipped)
    return TrialRun(passed, len(bad), len(skipped), reason, failures=tuple(bad))


def _message(one: ET.Element) -> str:
    """Return why a test failed or was skipped; of a file that cannot be imported, what it raised."""
    said = one.get("message") or ""
    if said != "collection failure":
        return said
    raised = [line[1:].strip() for line in (one.text or "").splitlines() if line.startswith("E ")]
    return f"{said}: {raised[-1]}" if raised else said


def conclusion(found: Iterable[WithoutCheck]) -> list[str]:
    """Return a sentence for each Python: whether the check may go, and from which release on."""
    groups: dict[str, list[WithoutCheck]] = {}
    for one in found:
        groups.setdefault(one.cell.python, []).append(one)
    lines = []
    for python, group in groups.items():
        decided = [one for one in group if one.verdict in ("passes", "fails", "flaky")]
        since = None
        for one in reversed(decided):
            if one.verdict != "passes":
                break
            since = one.cell.torch
        tried = ", ".join(one.cell.torch for one in group)
        if not decided:
            text = f"nothing is decided (tried {tried})"
        elif since is None:
            last = decided[-1]
            text = f"must stay: {last.verdict} with PyTorch {last.cell.torch}"
        elif all(one.verdict == "passes" for one in decided):
            text = f"may go: passes without it from PyTorch {since} on (tried {tried})"
        else:
            bad = [one.cell.torch for one in decided if one.verdict != "passes"]
            text = (
                f"may go from PyTorch {since} on; must stay for {', '.join(bad)} (tried {tried})"
            )
        lines.append(f"Python {python}: {text}")
    return lines
