"""``ivhl version-checks``: version checks around compiled code, and what the records say of each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.text import Text

from ivhl.cli import app, options
from ivhl.cli.declared import stored_state, warn
from ivhl.cli.sarif import SarifResult, to_annotations, to_sarif
from ivhl.cli.screen import picked, print_json, screen
from ivhl.errors import SpecError
from ivhl.records.text import printable
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.views.project import rows_of
from ivhl.tracker.wording import counted
from ivhl.version_checks.find import FoundCheck, find_checks
from ivhl.version_checks.judge import NOT_JUDGED, CheckJudgement, evidence_of, judge

if TYPE_CHECKING:
    from collections.abc import Sequence

_RULE = "stale-version-check"
_STYLES = {"contradicted": "yellow", "agrees": "green"}


@app.command("version-checks")
def version_checks_command(
    path: Annotated[Path, typer.Argument(help="Folder or file of a code base.")],
    results: options.Results = None,
    form: options.Form = None,
    *,
    every: options.Every = False,
    as_json: options.Json = False,
) -> None:
    """Find version checks around compiled code that the records contradict.

    The evidence is the records of the ivhl project that this is run in. --all also lists conditions
    on versions that have nothing to do with compiling.
    """
    if not path.exists():
        raise SpecError(f"{path}: there is no such file or folder", hint="name a code base")
    _, folder, state = stored_state(results)
    found = find_checks(path)
    rows = rows_of(state)
    evidence = evidence_of(rows)
    judged = [(check, judge(check, evidence)) for check in found.checks]
    if every:
        judged += [(check, NOT_JUDGED) for check in found.others]
    warn(printable(problem) for problem in found.problems)
    if found.problems and not found.files:
        raise SpecError(f"{path}: no file there can be read", hint="fix the files in the warnings")
    if not found.files:
        raise SpecError(f"{path}: has no Python files", hint="name the folder of a Python project")
    if not any(one.tried for one in evidence.values()):
        warn([f"no record in {folder}: ivhl only knows which releases can be installed"])
    if as_json:
        print_json("ivhl.version-checks/1", checks=[_as_dict(*one) for one in judged])
        return
    if form is not None:
        typer.echo(_FORMS[form](_stale(judged)))
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


def _print(console: Terminal, check: FoundCheck, judgement: CheckJudgement) -> None:
    console.print(Text(printable(f"{check.place}  {check.kind}  {check.name}"), "bold"))
    console.print(Text(f"  {printable(check.source)}", "bright_black"))
    if check.reason:
        console.print(Text(f"  says: {printable(check.reason)}", "bright_black"))
    console.print(Text(f"  excludes {printable(str(check.excludes))}"))
    for text in judgement.text:
        console.print(Text(f"  {text}", _STYLES.get(judgement.standing, "")))


def _stale(judged: Sequence[tuple[FoundCheck, CheckJudgement]]) -> list[SarifResult]:
    """Return the checks that the records contradict."""
    return [
        SarifResult(
            _RULE, "warning", ". ".join([check.name, *judgement.text]), check.path, check.line
        )
        for check, judgement in judged
        if judgement.standing == "contradicted"
    ]


def _as_sarif(found: Sequence[SarifResult]) -> str:
    return to_sarif({_RULE: "torch.compile works where this check excludes it"}, found)


_FORMS: Final = {"sarif": _as_sarif, "github": to_annotations}


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
