"""``ivhl advise``: which Python and PyTorch release to take, for the suite or for a code base."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from ivhl.cli import app
from ivhl.cli.codebase import advise_code_base
from ivhl.cli.declared import results_folder, warn_unread
from ivhl.errors import ResultsError, SpecError, UnknownNameError
from ivhl.matrix.project import find_root
from ivhl.tracker.advice import advise
from ivhl.tracker.project import load_state
from ivhl.tracker.spans import spans_sentence
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.views.front import supported, supported_over
from ivhl.tracker.views.source import Source
from ivhl.tracker.wording import counted

if TYPE_CHECKING:
    from ivhl.tracker.advice import Advice
    from ivhl.tracker.project import State
    from ivhl.tracker.views.source import Place


@app.command("advise")
def advise_command(
    path: Annotated[
        str | None,
        typer.Argument(
            help="A code base: a folder, a file, or the name of an installed distribution "
            "(default: the suite of this project).",
        ),
    ] = None,
    machine: Annotated[
        str | None, typer.Option(help="Machine (default: the one with most cases).")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda (default: as machine).")] = None,
    results: Annotated[
        Path | None, typer.Option(help="Folder of the results (default: results).")
    ] = None,
    own: Annotated[
        Path | None,
        typer.Option(
            help="With PATH: the ivhl project that has the code base's own records (default: PATH)."
        ),
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Say which Python and PyTorch release to take, and what the records have against others.

    Only what was run counts: a Python that was not is not recommended. For a code base, what its own
    records show is kept apart from what only other code shows. Nothing of it is run.
    """
    if path is not None:
        advise_code_base(path, own, results, machine, device, as_json=as_json)
        return
    if own is not None:
        raise SpecError(
            "--own: needs the PATH of a code base", hint="ivhl advise PATH --own FOLDER"
        )
    root = find_root()
    folder = results_folder(results, root)
    state = load_state(root, folder, history=False)
    warn_unread(state.problems, results)
    _print(state, folder, machine, device, as_json=as_json)


def _print(
    state: State, folder: Path, machine: str | None, device: str | None, *, as_json: bool
) -> None:
    source = Source(state)
    places = list(source.by_place)
    for kind, wanted, known in (
        ("machine", machine, {place.machine for place in places}),
        ("device", device, {place.device for place in places}),
    ):
        if wanted is not None and wanted not in known:
            raise UnknownNameError(kind, wanted, known)
    chosen = [
        place
        for place in places
        if place.machine == (machine or place.machine) and place.device == (device or place.device)
    ]
    rows = source.by_place[chosen[0]] if chosen else ()
    found = advise(rows, state.spreads, source.disturbed_keys)
    if found is None:
        if any(row.existing for row in rows):
            raise ResultsError(
                f"{chosen[0].machine} has results in existing environments only, which nobody can "
                "build again, so there is no advice",
                hint=f"ivhl compat --machine {chosen[0].machine} shows them; nox -s bench-3.12 "
                "measures in cells",
            )
        asked = [*([f"machine {machine}"] if machine else []), *([device] if device else [])]
        of_what = f" of {', '.join(asked)}" if asked else ""
        raise ResultsError(
            f"no case{of_what} has a result in {folder}",
            hint="measure first, e.g. nox -s bench-3.12, or ivhl bench"
            + ("; ivhl results lists the records" if places else ""),
        )
    place = chosen[0]
    if as_json:
        typer.echo(json.dumps(_as_dict(source, place, found), indent=1))
        return
    console = Terminal(highlight=False)
    over = counted(supported_over(rows), "case")
    console.print(Text(f"torch.compile on {place.machine}, {place.device}, over {over}", "bold"))
    lines = Table.grid(padding=(0, 1))
    for python, intervals in supported(source, rows).items():
        lines.add_row(f"  Python {python}:", spans_sentence(intervals))
    console.print(lines)
    console.print(f"\n{found}")


def _as_dict(source: Source, place: Place, found: Advice) -> dict[str, Any]:
    """Return the advice in numbers and names, and as the text for people."""
    rows = source.by_place[place]
    return {
        "schema": "ivhl.advice/1",
        **place._asdict(),
        "python": found.python,
        "torch": found.torch,
        "cell": asdict(found.worth),
        "compared_with": {
            python: asdict(beside) | {"speedup": beside.speedup and beside.speedup._asdict()}
            for python, beside in found.beside.items()
        },
        "support_over": supported_over(rows),
        "support": {
            python: [
                {"word": one.word, "torch": one.tried, "not_run": one.skipped} for one in intervals
            ]
            for python, intervals in supported(source, rows).items()
        },
        "text": str(found),
    }
