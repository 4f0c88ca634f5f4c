"""``ivhl advise``: which Python and PyTorch release to take."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ivhl.cli import app, options
from ivhl.cli.declared import matrix_beside_records, no_records, stored_state
from ivhl.cli.names import narrow
from ivhl.cli.screen import picked, print_json, screen
from ivhl.errors import ResultsError
from ivhl.tracker.causes.advice import Advice, advise
from ivhl.tracker.support.spans import cases_run, spans_sentence
from ivhl.tracker.terminal import Columns
from ivhl.tracker.views.front import by_cell, supported, supported_over
from ivhl.tracker.views.source import Place, Source
from ivhl.tracker.wording import counted, some

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ivhl.tracker.support.compat import Row


@app.command("advise")
@options.choosing("workload", "size", "variant", "output")
def advise_command(asked: options.Asked) -> None:
    """Recommend a Python and a PyTorch release, from the records.

    Only what was run counts: a Python that was not is not recommended.
    """
    root, folder, state = stored_state(asked.results)
    source = Source(state)
    recorded = [row for rows in source.by_place.values() for row in rows]
    if not any(row.recorded for row in recorded):
        raise no_records(folder)
    kept = narrow(recorded, matrix_beside_records(root, is_named=True), **asked.chosen)
    places = {(row.machine, row.device) for row in kept}
    place = next(one for one in source.by_place if (one.machine, one.device) in places)
    rows = [row for row in kept if (row.machine, row.device) == (place.machine, place.device)]
    found = advise(rows, state.spreads, source.disturbed_keys)
    if found is None:
        raise _no_advice(rows, place.machine, folder)
    over, support = supported_over(rows), supported(source, rows)
    if asked.as_json:
        print_json(
            "ivhl.advice/1",
            **_as_dict(place, found),
            support_over=over,
            support={
                python: [
                    {"word": one.word, "torch": one.tried, "not_run": one.skipped} for one in spans
                ]
                for python, spans in support.items()
            },
        )
        return
    with screen(every=asked.every, soft_wrap=False) as console:
        every = max(map(cases_run, by_cell(rows).values()))
        uses = f"{over} of {counted(every, 'case')} {'uses' if over == 1 else 'use'} torch.compile"
        console.print(Text(f"On {place.machine}, {place.device}, {uses}:", "bold"))
        lines = Columns("", "")
        for python, spans in support.items():
            lines.add_row(f"  Python {python}:", spans_sentence(spans))
        console.print(lines)
        console.print(f"\n{found}")


def _no_advice(rows: Sequence[Row], machine: str, folder: Path) -> ResultsError:
    """Return the error that says why nothing can be advised."""
    text = f"no case with these options has a result in {folder}"
    hint = "leave out an option; ivhl results lists the records"
    absent = [one.cell for one in rows if one.failure_class == "unavailable"]
    if any(row.existing for row in rows):
        text = f"{machine} has results only in existing environments, which nobody can build again"
        hint = f"ivhl compat --machine {machine} shows them; nox -s bench-3.12 measures in cells"
    elif all(row.cell in absent for row in rows):
        cells = dict.fromkeys(f"PyTorch {one.torch} for Python {one.python}" for one in rows)
        text = f"there is no wheel of {some([*cells], 3)}"
    return ResultsError(text, hint=hint)


def _as_dict(place: Place, found: Advice) -> dict[str, Any]:
    """Return the advice in numbers and names, and as the text for people."""
    return {
        **place._asdict(),
        **picked(found, "python torch"),
        "cell": asdict(found.worth),
        "compared_with": {
            python: {
                **{kind: beside.named(kind) for kind in ("fails", "degraded", "slower", "fixed")},
                "speedup": beside.speedup and beside.speedup._asdict(),
            }
            for python, beside in found.beside.items()
        },
        "text": str(found),
    }
