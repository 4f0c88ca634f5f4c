"""Print the table of one or several runs, and export its contents as JSON."""

from __future__ import annotations

import json
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from ivhl.errors import ResultsError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SCHEMA: Final = "ivhl.founding/1"
NOTHING: Final = "-"
# Largest error of a force component in eV/Å: that of a good force field, far above rounding.
MOST_FORCE_ERROR: Final = 0.05


def write_export(path: Path, run: dict[str, Any]) -> None:
    """Write a run as JSON.

    Raises:
        ResultsError: If the file cannot be written.
    """
    try:
        path.write_text(json.dumps(run, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ResultsError(f"--export {path}: {error}") from error


def load_exports(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the runs from some files; joins the runs of one cell.

    Raises:
        ResultsError: If a file cannot be read or is not an export of this program.
    """
    cells: dict[str, dict[str, Any]] = {}
    for path in paths:
        try:
            run = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ResultsError(f"--show {path}: {error}") from error
        if not isinstance(run, dict) or run.get("schema") != SCHEMA:
            raise ResultsError(f"--show {path}: no export of schema {SCHEMA}")
        earlier = cells.setdefault(run["cell"], run | {"rows": []})
        earlier["rows"] = earlier["rows"] + run["rows"]
    return list(cells.values())


def table(runs: Sequence[dict[str, Any]]) -> str:
    """Return a Markdown table of molecules and configurations, with five columns for each run.

    The seed's time is the median of its trials; in brackets, the evaluations of the model in all
    calls. The corrected time is a median as well, and the speedup is over the eager student of the
    same rounds; if a force is too far from float64, ``wrong`` replaces it. A failed run has a
    number, and its error is below the table.
    """
    errors: dict[str, int] = {}
    head = ["molecule", "configuration"]
    for run in runs:
        about = f"{run['python']}, {run['torch'].split('+')[0]}"
        head += [f"{about}: seed, ms", "corrected, ms", "speedup", "frames", "force error"]
    keys = dict.fromkeys((r["molecule"], r["configuration"]) for run in runs for r in run["rows"])
    found = [{(r["molecule"], r["configuration"]): r for r in run["rows"]} for run in runs]
    lines = [head, ["---", "---", *["--:"] * (len(head) - 2)]]
    last = ""
    for key in keys:
        line = ["" if key[0] == last else key[0], key[1]]
        last = key[0]
        for rows in found:
            line += _cells(rows[key], errors) if key in rows else [NOTHING] * 5
        lines.append(line)
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    notes = "".join(f"\n({number}) `{error}`\n" for error, number in errors.items())
    return f"{text}\n{notes}"


def _cells(row: dict[str, Any], errors: dict[str, int]) -> list[str]:
    """Return the five cells of one row."""

    def note_of(error: str) -> str:
        return f"({errors.setdefault(error, len(errors) + 1)})" if error else NOTHING

    seed, corrected = row["seed"], row["corrected"]
    cells = [note_of(row["seed_error"])]
    if seed is not None:
        cells = [f"{_short(seed['median_ms'])} ({seed['evaluations']} in {seed['calls']})"]
    if corrected is None:
        frames = NOTHING if seed is None else str(seed["frames"])
        return [*cells, note_of(row["corrected_error"]), NOTHING, frames, NOTHING]
    s = corrected["speedup"]
    speedup = f"{s['value']:.2f} [{s['low']:.2f}, {s['high']:.2f}]"
    return [
        *cells,
        _short(1e3 * median(corrected["arm"]["samples_s"])),
        "wrong" if corrected["force_error"] > MOST_FORCE_ERROR else speedup,
        str(corrected["frames"]),
        f"{corrected['force_error']:.0e}",
    ]


def _short(number: float) -> str:
    return f"{number:.3g}"
