"""``ivhl version-checks``: version checks around compiled code, and which may go."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from ivhl.cli import app, options
from ivhl.cli.declared import results_folder, warn, warn_unread
from ivhl.cli.names import RELEASE, all_named
from ivhl.cli.screen import picked, print_json, screen
from ivhl.errors import SpecError, UnknownNameError
from ivhl.matrix.project import MATRIX, find_root
from ivhl.matrix.spec import load_matrix
from ivhl.records.text import printable
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.views.project import load_state, rows_of
from ivhl.tracker.wording import counted
from ivhl.version_checks.checks import at
from ivhl.version_checks.find import find_checks
from ivhl.version_checks.judge import NOT_JUDGED, evidence_of, judge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ivhl.version_checks.checks import FoundCheck
    from ivhl.version_checks.find import Found
    from ivhl.version_checks.judge import CheckJudgement
    from ivhl.version_checks.trial import TrialRun

_RUN_STYLES = {"passes": "green", "fails": "red", "flaky": "yellow", "undecided": "yellow"}
_STYLES = {"contradicted": "yellow", "agrees": "green"}


@app.command("version-checks")
def version_checks_command(
    path: Annotated[Path, typer.Argument(help="Folder or file of a code base.")],
    python: options.Pythons = None,
    torch: options.Releases = None,
    results: options.Results = None,
    *,
    run: options.Run = None,
    test: options.Check = None,
    extra: options.With = None,
    every: options.Every = False,
    as_json: options.Json = False,
) -> None:
    """Find version checks around compiled code that the records contradict.

    The evidence is the records of the ivhl project that this is run in. --all also lists conditions
    on versions that have nothing to do with compiling. --run needs --python or --torch only to
    choose cells.
    """
    if not path.exists():
        raise SpecError(f"{path}: there is no such file or folder", hint="name a code base")
    root = find_root()
    found = find_checks(path)
    state = load_state(root, results_folder(results, root), history=False)
    warn_unread(map(printable, state.problems), results)
    rows = rows_of(state)
    evidence = evidence_of(rows)
    if run is not None:
        _run(root, path, found, run, (test or (), python, torch, tuple(extra or ())))
        return
    if test or python or torch or extra:
        raise SpecError(
            "--check, --python, --torch and --with say what --run runs, and where",
            hint="ivhl version-checks PATH --run FILE:LINE ...",
        )
    judged = [(check, judge(check, evidence)) for check in found.checks]
    if every:
        judged += [(check, NOT_JUDGED) for check in found.others]
    warn(printable(problem) for problem in found.problems)
    if found.problems and not found.files:
        raise SpecError(f"{path}: no file of it can be read", hint="mend what the warnings name")
    if not found.files:
        raise SpecError(f"{path}: has no Python files", hint="name the folder of a Python project")
    if not any(one.tried for one in evidence.values()):
        warn(
            [f"no record in {results_folder(results, root)}: only what can be installed is known"]
        )
    if as_json:
        print_json("ivhl.version-checks/1", checks=[_as_dict(*one) for one in judged])
        return
    machines = len({row.machine for row in rows if row.recorded})
    contradicted = sum(one.standing == "contradicted" for _, one in judged)
    with screen(every=every) as console:
        console.print(
            Text(
                f"{counted(len(found.checks), 'version check')} around compiled code in "
                f"{counted(found.files, 'file')}: {contradicted} contradicted by the records of "
                f"{counted(machines, 'machine')}; "
                f"{counted(len(found.others), 'other condition')} on versions",
                "bold",
            )
        )
        for check, judgement in judged:
            _print(console, check, judgement)


def _run(
    root: Path,
    path: Path,
    found: Found,
    place: str,
    asked: tuple[Sequence[str], Sequence[str] | None, Sequence[str] | None, tuple[str, ...]],
) -> None:
    """Run tests without a version check, and print what that shows.

    Args:
        root: Root of the project.
        path: The code base.
        found: Its version checks.
        place: ``FILE:LINE`` of the check.
        asked: Tests, Pythons, PyTorch releases and packages, as they were given.
    """
    # Imported here: it needs all that measures.
    from ivhl.version_checks.trial import (  # noqa: PLC0415
        Attempt,
        conclusion,
        find_tests,
        run_without,
    )

    named, pythons, releases, extra = asked
    if not path.is_dir():
        raise SpecError(f"{path}: --run needs the folder of a project", hint="name that folder")
    checks = at((*found.checks, *found.others), place)
    if not checks:
        known = {check.place for check in found.checks}
        raise UnknownNameError("version check", place, known)
    if len(checks) > 1:
        places = list(dict.fromkeys(check.place for check in checks))
        raise SpecError(
            f"--run {place}: {len(checks)} version checks are there; --run switches one off",
            hint=f"name one: {', '.join(places)}"
            if len(places) > 1
            else "write each on a line of its own, in a copy of the code base",
        )
    (check,) = checks
    matrix = load_matrix(root / MATRIX)
    chosen = matrix.cells(
        all_named("Python", pythons, matrix.pythons),
        all_named(RELEASE, releases, matrix.every_release),
    )
    cells = [cell for cell in chosen if check.excludes.holds(cell.python, cell.torch) is not False]
    if not cells:
        raise SpecError(
            f"{check.place}: excludes no cell of {MATRIX}",
            hint="name others with --python and --torch",
        )
    # A script is run from the folder of the copy: its path must be whole.
    scripts = [str(Path(one).resolve()) for one in named if Path(one).is_file()]
    tests = tuple(scripts) if scripts else tuple(named) or find_tests(path, check)
    for name in tests:
        file = name.partition("::")[0]
        if not (path / file).exists():
            raise SpecError(
                f"--check {name}: {path} has no {file}",
                hint="a test as pytest names it in the folder of the project, or a script",
            )
    console = Terminal(highlight=False, soft_wrap=True)
    console.print(Text(printable(f"{check.place}: {check.source}"), "bold"))
    console.print(Text(f"  runs {', '.join(tests)} in {counted(len(cells), 'cell')}"))
    (root / ".asv").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="version-checks-", dir=root / ".asv") as here:
        attempt = Attempt(
            root=root,
            folder=path,
            check=check,
            tests=tests,
            extra=extra,
            here=Path(here),
            others=tuple(one for one in (*found.checks, *found.others) if one is not check),
        )
        results = run_without(attempt, cells, console)
    for one in results:
        console.print(Text(f"  {one.cell.id}: {one.verdict} without it", _RUN_STYLES[one.verdict]))
        lines = [f"with it: {_told(one.before)}"] if one.before is not None else []
        lines += [f"without: {_told(again)}" for again in one.runs]
        lines += [printable(one.reason)] if one.reason else []
        for line in lines:
            console.print(Text(f"    {line}", "bright_black"))
    for line in conclusion(results):
        console.print(Text(line, "bold"))


def _told(one: TrialRun) -> str:
    return f"{one.passed} passed, {one.failed} failed, {one.skipped} skipped"


def _print(console: Terminal, check: FoundCheck, judgement: CheckJudgement) -> None:
    console.print(Text(printable(f"{check.place}  {check.kind}  {check.name}"), "bold"))
    console.print(Text(f"  {printable(check.source)}", "bright_black"))
    if check.reason:
        console.print(Text(f"  says: {printable(check.reason)}", "bright_black"))
    console.print(Text(f"  excludes {printable(str(check.excludes))}"))
    for text in judgement.text:
        console.print(Text(f"  {text}", _STYLES.get(judgement.standing, "")))


def _as_dict(check: FoundCheck, judgement: CheckJudgement) -> dict[str, object]:
    return {
        "file": check.path,
        **picked(check, "line kind name source reason"),
        "excludes": str(check.excludes),
        "standing": judgement.standing,
        "contradicted": {
            python: {"works": list(works), "since": since}
            for python, (works, since) in judgement.contradicted.items()
        },
        "evidence": list(judgement.text),
    }
