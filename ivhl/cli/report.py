"""``ivhl report``: the text of an issue on a script or a case, as upstream wants it."""

from __future__ import annotations

import re
import shlex
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from packaging.version import Version

from ivhl.bench.blame import SETTINGS_OF_CPUS
from ivhl.cli import app, options
from ivhl.cli.blame import blame_case
from ivhl.cli.declared import given
from ivhl.cli.names import the_one
from ivhl.cli.run import cells_of, changed, expected_of, outcome_text, tell_of_network
from ivhl.cli.screen import check_suffix
from ivhl.errors import SpecError
from ivhl.matrix.locks import lock_state
from ivhl.measure.effort import DEADLINE_S, Effort
from ivhl.observatory.plain import script_of_case
from ivhl.observatory.signatures import with_same_cause
from ivhl.observatory.views import load_libraries
from ivhl.records.files import replaced_whole
from ivhl.script.cells import SHIPPED, shipped_matrix
from ivhl.script.matrix import Wanted
from ivhl.script.outcome import ScriptOutcome, not_run
from ivhl.script.overlay import UnavailableError
from ivhl.script.report import ScriptReport, as_markdown, without_secrets
from ivhl.script.requirements import needs_of
from ivhl.script.running import Script
from ivhl.script.symptom import Count, Onset, blame_script, find_first, find_symptom
from ivhl.shipped import shipped_records
from ivhl.tracker.causes.blame import STAGES
from ivhl.tracker.support.known import causes_in, causes_of_script
from ivhl.tracker.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ivhl.matrix.spec import CellSpec
    from ivhl.observatory.views import Libraries
    from ivhl.script.requirements import Needs
    from ivhl.script.symptom import ScriptBlame
    from ivhl.tracker.support.known import KnownCause

# There is no eager form of what is exported.
_EXPORTS: Final = re.compile(r"\btorch\.(?:_?export\b|_inductor\.aot)|\bexport\(|\baot_compile\b")
# Each symptom, and the count of a script that shows it.
_COUNTS: Final[dict[str, Count]] = {
    "failure": "",
    "graph-break": "graph_breaks",
    "recompile": "recompiles",
}


@app.command("report")
def report_command(
    context: typer.Context,
    case: Annotated[
        str,
        typer.Argument(
            help="A script, FILE.py; LIBRARY/CASE or LIBRARY/CASE/step of the observatory; or a "
            "case of this project, WORKLOAD/SIZE/VARIANT."
        ),
    ],
    python: options.OnePython = None,
    torch: options.Releases = None,
    requirement: options.With = None,
    expect: options.Expect = None,
    sought: options.AnySymptom = "failure",
    deadline: options.Deadline = DEADLINE_S,
    output: options.Output = None,
    *,
    network: options.Network = False,
) -> None:
    """Write the text of an issue: a script, the first bad release, the stage, and what cures it.

    The script is right if it does what it does without the compiler, or what --expect says. --for
    also takes graph-break and recompile. A script runs in cells of the shipped locks, and ivhl
    blame judges a case of a project. Folders, tokens and the name of this machine are left out.
    Exit code 5 if there is no failure to report.
    """
    check_suffix(output)
    console = Terminal(stderr=True, highlight=False, soft_wrap=True)
    libraries, _ = load_libraries(shipped_records())
    known = {one.name for one in libraries.rows} if libraries else set()
    if not case.endswith(".py") and case.partition("/")[0] not in known:
        effort = Effort(deadline_s=deadline)
        _write(_of_project(context, case, effort, console, python, torch or ()), output)
        return
    with tempfile.TemporaryDirectory(prefix="ivhl-report-") as folder:
        script, python = _script_of(case, libraries, Path(folder), python)
        needs = needs_of(script, requirement or ())
        cells = cells_of(shipped_matrix(), torch or ["all"], [python] if python else ())
        tell_of_network(console, "script", network=network)
        count = _COUNTS[the_one("symptom", sought, _COUNTS)]
        text = script.read_text(encoding="utf-8-sig", errors="replace")
        expected = expected_of(expect or ()) or (None if count else _of_exports(text, console))
        to_run = Script(path=script, deadline_s=deadline, network=network)
        onset, blame = _investigate(to_run, needs, cells, expected, count, console)
    words = [Path(case).name if case.endswith(".py") else case, f"--python={onset.cell.python}"]
    words += given(context, without=("case", "python", "deadline", "output"))
    command = shlex.join(["ivhl", "report", *words])
    of_case = _known_of(case, onset) if onset.symptom.is_wrong else ()
    report = _report_of(text, onset, blame, libraries, command)
    _write(as_markdown(replace(report, known=(*report.known, *of_case))), output)


def _of_exports(text: str, console: Terminal) -> Wanted | None:
    """Return what counts as good of a script that exports, which has no eager form."""
    if not _EXPORTS.search(text):
        return None
    console.print("the script exports a model, without an eager form: exit status 0 is expected")
    return Wanted(ending="exit 0")


def _known_of(case: str, onset: Onset) -> tuple[KnownCause, ...]:
    """Return the known causes of the wrong values of a case of a library."""
    library, _, rest = case.partition("/")
    name, _, ask = rest.partition("/")
    return causes_in(onset.cell, "wrong", "", (library, name, ask))


def _script_of(
    case: str, libraries: Libraries | None, folder: Path, python: str | None
) -> tuple[Path, str | None]:
    """Return the path of a script, in a folder if it is a case, and the Python of its record."""
    if libraries is None or case.endswith(".py"):
        return Path(case), python
    text, record = script_of_case(libraries, case)
    script = folder / f"{record.library}-{record.case}-{record.ask}.py"
    script.write_text(text, encoding="utf-8")
    return script, python or record.python


def _report_of(
    text: str, onset: Onset, blame: ScriptBlame, libraries: Libraries | None, command: str
) -> ScriptReport:
    """Return what is known of a script, with reports and libraries that show the same."""
    exception, message = onset.symptom.seen.innermost
    same = libraries is not None and with_same_cause(libraries.signatures, exception, message)
    return ScriptReport(
        text=text,
        onset=onset,
        blame=blame,
        lock=lock_state(SHIPPED, onset.cell),
        known=causes_in(onset.cell, "", message),
        perhaps=_perhaps(text, onset, blame.stage),
        alike=[
            f"{', '.join(one.libraries)}: the same message ({libraries.where(one.records)})"
            for one in same or ()
            if libraries is not None
        ],
        command=command,
    )


def _perhaps(text: str, onset: Onset, stage: str) -> tuple[KnownCause, ...]:
    """Return the causes that a script like this one shows, and those of the releases between.

    A cause whose range holds a release that is right is another one.
    """

    def likely_in(cell: CellSpec) -> tuple[KnownCause, ...]:
        return causes_of_script(text, stage, cell.torch)

    of_right = {cause for cell in onset.cells("right") for cause in likely_in(cell)}
    likely = [cause for cause in likely_in(onset.cell) if cause not in of_right]
    earlier = [
        cause
        for cell in onset.between
        for cause in causes_in(cell, "", onset.outcomes[cell][0].innermost[1])
    ]
    return tuple(dict.fromkeys([*likely, *earlier]))


def _of_project(
    context: typer.Context,
    case: str,
    effort: Effort,
    console: Terminal,
    python: str | None,
    torch: Sequence[str],
) -> str:
    """Return the report of ``ivhl blame`` on a case of the project.

    Raises:
        SpecError: If an option is given that a case does not take, or the case shows nothing.
    """
    others = given(context, without=("case", "python", "torch", "deadline", "output"))
    if others or len(torch) > 1:
        raise SpecError(
            f"{case}: is a case of this project, which takes one --torch, --python, --deadline "
            f"and --output (got {' '.join([*others, *torch])})",
            hint=f"ivhl report {case}",
        )
    release = torch[0] if torch else None
    *_, path = blame_case(case, effort, console, python=python, torch=release)
    return without_secrets(path.read_text(encoding="utf-8"))


def _investigate(
    script: Script,
    needs: Needs,
    cells: Sequence[CellSpec],
    expected: Wanted | None,
    count: Count,
    console: Terminal,
) -> tuple[Onset, ScriptBlame]:
    """Find the releases that show what a script shows, and meanwhile the stage."""

    def run(cell: CellSpec, change: Mapping[str, Any] | None) -> ScriptOutcome:
        try:
            with needs.cell_in_use(cell) as place:
                outcome = script.run_in(place, change)
        except UnavailableError as error:
            outcome = not_run(str(error))
        console.print(f"{cell.id}{changed(change)}: {outcome_text(outcome)}")
        return outcome

    ordered = sorted(cells, key=lambda cell: Version(cell.torch))
    onset = find_symptom(run, ordered, expected, count)
    console.print(f"{onset.cell.id} shows the symptom; next: the first bad release, and the stage")
    with ThreadPoolExecutor(1) as pool:
        blame = pool.submit(
            blame_script,
            lambda change: run(onset.cell, change),
            tuple(map(str, STAGES)),
            SETTINGS_OF_CPUS,
            onset.symptom,
            every=False,
        )
        find_first(run, onset, ordered)
    return onset, blame.result()


def _write(text: str, output: Path | None) -> None:
    if output is None:
        typer.echo(text, nl=False)
        return
    with replaced_whole(output) as path:
        path.write_text(text, encoding="utf-8")
