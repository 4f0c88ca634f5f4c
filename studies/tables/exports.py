"""Tables made from what the studies export; the files lie beside the studies."""

from __future__ import annotations

import json
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from studies.founding.report import MOST_FORCE_ERROR
from studies.tables.layout import markdown, once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

PYTHONS: Final = ("3.12", "3.13")
RELEASES: Final = ("2.5.1", "2.6.0", "2.15.0")
REFUSED: Final = "Dynamo is not supported on Python 3.13+"
MILLISECOND: Final = 1e-3
SHOWN: Final = 120  # characters of a message
NAIVE: Final = "naive, eager"  # beside which the records of the operations stand
BATCHES: Final = {
    "2.15.0": "2.15.0, eager",
    "2.15.0-compiled": "2.15.0, `--compile`",
}


def founding(root: Path, *, molecule: str) -> list[str]:
    """Return speedups over the eager student by cell, those of PyTorch 2.5.1 on both Pythons."""
    exports = {
        (python, release): _load(root, f"founding/exports/py{python}-torch{release}.json")
        for release in RELEASES
        for python in PYTHONS
    }
    rows = {
        cell: {r["configuration"]: r for r in export["rows"] if r["molecule"] == molecule}
        for cell, export in exports.items()
    }
    shown = [cell for cell in exports if cell[0] == PYTHONS[0] or cell[1] == RELEASES[0]]
    lines = [
        [name, *(founding_cell(rows[cell].get(name)) for cell in shown)]
        for name in dict.fromkeys(name for one in rows.values() for name in one)
    ]
    seeds = [
        (row["seed"]["median_ms"], 1e3 * median(row["corrected"]["arm"]["samples_s"]))
        for one in rows.values()
        for row in one.values()
        if row["seed"] and row["corrected"]
    ]
    calls, ratios = [call for call, _ in seeds], [evaluation / call for call, evaluation in seeds]
    text = (
        f"By the original protocol a call took {min(calls):.2f} to {max(calls):.2f} ms; an "
        f"evaluation of the model takes {min(ratios):.0f} to {max(ratios):.0f} times as long."
    )
    head = ["configuration", *map(", ".join, shown)]
    return [*markdown(head, lines), "", text, _conditions(exports.values())]


def founding_cell(row: dict[str, Any] | None) -> str:
    """Return a speedup with its interval, or why there is none."""
    if row is None:
        return "-"
    found = row["corrected"]
    if found is None:
        return "refused" if REFUSED in row["corrected_error"] else "failed"
    if found["force_error"] > MOST_FORCE_ERROR:
        return f"**wrong**, {found['force_error']:.1g}"
    if row["configuration"] == "baseline":
        return f"{1e3 * median(found['arm']['samples_s']):.3g} ms"
    speedup = found["speedup"]
    return f"{speedup['value']:.2f} [{speedup['low']:.2f}, {speedup['high']:.2f}]"


def throughput(root: Path) -> list[str]:
    """Return microseconds per structure, the speedup over one by one, and the share of the limit."""
    exports = [_load(root, f"exports/throughput-{name}.json") for name in BATCHES]
    rows = [{(row["batch"], row["way"]): row for row in one["rows"]} for one in exports]
    lines = [
        [str(batch), way, *(_throughput_cell(one[batch, way]) for one in rows)]
        for batch, way in rows[0]
        if batch > 1
    ]
    rates = ", ".join(f"{one['flops'] / 1e9:.0f}" for one in exports)
    return [
        *markdown(["batch", "way", *BATCHES.values()], once(lines)),
        "",
        f"Percentages: share of the speed of large matrix multiplications ({rates} Gflop/s); "
        + _conditions(exports),
    ]


def rollout_parts(root: Path) -> list[str]:
    """Return the milliseconds of parts of the operator with the newest release."""
    forms = ("eager", "compiled")
    export = _load(root, f"rollout/exports/parts-{RELEASES[-1]}.json")
    rows = [[row["part"], *(f"{row[form]:.2f}" for form in forms)] for row in export["rows"]]
    return markdown(["part, ms of CPU time", *forms], rows)


def surgical_times(root: Path) -> list[str]:
    """Return how many times as fast as eager code the plans are with the newest release.

    And what ``torch.compile`` by hand takes over each plan with both releases. A column for two
    threads if both releases have them.
    """
    names = [
        [f"exports/surgical-{release}{ending}.json" for release in RELEASES[1:]]
        for ending in ("", "-2")
    ]
    if not all((root / "studies" / name).is_file() for name in names[1]):
        del names[1]
    exports = [_load(root, name) for some in names for name in some]
    newest = exports[1::2]
    what = {"rope": "RoPE", "medium": "layers, medium", "large": "layers, large"}
    what["gradient"] = "gradient, medium"
    rows = [
        [
            f"{name}, {row['form']}",
            *("{:.2f}x [{:.2f}, {:.2f}]".format(*one[part][n]["speedup"]) for one in newest),
        ]
        for part, name in what.items()
        if part in exports[0]
        for n, row in enumerate(exports[0][part])
        if row["form"] not in {"eager", "pointwise"}  # pointwise gains nothing
    ]
    hands = []
    for form in ("rotate", "whole", "sdpa"):
        over = [
            row["over_hand"][0]
            for one in exports
            for part in what
            for row in one.get(part, ())
            if row["form"] == form
        ]
        hands.append(f"`{form}` {min(over):.2f}x to {max(over):.2f}x")
    loads = [load for one in exports for load in one["load"]]
    return [
        *markdown(["over eager", *map(_rollout_head, newest)], rows),
        "",
        f"Speedup over *by hand*, {' and '.join(RELEASES[1:])}: {', '.join(hands)}.",
        f"CPU, {_load_average(loads)}.",
    ]


def rollout(root: Path) -> list[str]:
    """Return the time of a step of each phase, its speedup over the first one, and its drift."""
    exports = _rollout_exports(root)
    lines = []
    one = exports[0]
    for name, rows in _rollout_rows(exports).items():
        newest = rows[0] or {}
        drift = newest.get("drift")
        lines.append(
            [
                name,
                *(_rollout_cell(row, "speedup") for row in rows),
                "-" if drift is None else f"{drift:.0e}",
            ]
        )
    first = " and ".join(f"{1e3 * export['rows'][0]['seconds']:.2f}" for export in exports)
    text = (
        f"A step of one realisation takes {first} ms in the first row. "
        f"A call has {one['n_steps']} steps of {one['n_realisations']} realisations on "
        f"{one['n_rows']} x {one['n_rows']} points, with {one['n_weights']:,} weights. "
        f"Drift is the distance from float64 after {one['drift_steps']} steps ({one['torch']}). "
        f"The intervals come from {one['n_processes']} processes; runs differ by more. "
    )
    head = ["speedup", *map(_rollout_head, exports), "drift"]
    return [*markdown(head, lines), "", text + _conditions(exports)]


def _rollout_exports(root: Path) -> list[dict[str, Any]]:
    """Return the exports of the newest release, on one thread and on two."""
    return [
        _load(root, f"rollout/exports/phases-{RELEASES[-1]}-{threads}.json") for threads in (1, 2)
    ]


def _rollout_rows(exports: list[dict[str, Any]]) -> dict[str, list[dict[str, Any] | None]]:
    """Return the rows of each arm, one for each export; that of one thread has all arms."""
    found = [{row["name"]: row for row in one["rows"]} for one in exports]
    return {name: [rows.get(name) for rows in found] for name in found[0]}


def _rollout_head(export: dict[str, Any]) -> str:
    threads = "1 thread" if export["threads"] == 1 else f"{export['threads']} threads"
    return f"{export['torch']}, {threads}"


def _rollout_cell(row: dict[str, Any] | None, field: str) -> str:
    if row is None or row.get(field) is None:
        return "failed" if row and "reason" in row else "-"
    found = row[field]
    return f"{found['value']:.2f}x [{found['low']:.2f}, {found['high']:.2f}]"


def _throughput_cell(row: dict[str, Any]) -> str:
    cell = f"{1e6 * row['seconds']:.0f}"
    if row["way"] != "one by one":
        cell += f" ({row['speedup']:.2f}x)"
    return f"{cell}, {row['of_limit']:.0%}"


def peers(root: Path, *, suite: str, sizes: tuple[str, ...]) -> list[str]:
    """Return the time of a call by size, and how many times as fast ours is, with its interval."""
    export = _load(root, f"peers/exports/{suite}.json")
    rows = {(r["operation"], r["name"], r["size"]): r for r in export["rows"]}
    notes: dict[str, int] = {}
    lines = []
    for operation, name in dict.fromkeys(key[:2] for key in rows):
        if name == NAIVE:
            continue
        found = [rows.get((operation, name, size)) for size in sizes]
        texts = [
            part
            for row in found
            if row
            for text in (row["reason"], row["note"])
            if text
            for part in text.split("; ")
        ]
        marks = [f" ({notes.setdefault(t, len(notes) + 1)})" for t in dict.fromkeys(texts)]
        weights = next((f"{row['n_weights']:,}" for row in found if row and row["n_weights"]), "-")
        first = weights if suite == "mlff" else f"`{operation}`"
        code = f"{name}{''.join(marks)}"
        cells = map(_peer_cell, found)
        lines.append([code, first, *cells] if suite == "mlff" else [first, code, *cells])
    head = ["code", "weights"] if suite == "mlff" else ["operation", "code"]
    versions = dict(one for row in export["rows"] for one in row["packages"].items())
    named = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    text = "; ".join(f"({number}) {text}" for text, number in notes.items())
    return [
        *markdown([*head, *sizes], lines if suite == "mlff" else once(lines)),
        "",
        *([f"{text}.", ""] if text else []),
        f"{_conditions([export])[:-1]}. Versions: {named}.",
    ]


def _peer_cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return "-"
    if row["arm"] is None:
        return str(row["status"])
    seconds = median(row["arm"]["samples_s"])
    text = f"{seconds * 1e3:.3g} ms" if seconds >= MILLISECOND else f"{seconds * 1e6:.3g} µs"
    s = row["speedup"]
    if s is None:
        return text
    return f"{s['value']:.2f}x [{s['low']:.2f}, {s['high']:.2f}]"


def planted(root: Path) -> list[str]:
    """Return the gate's verdict on each planted commit."""
    export = _load(root, "planted/exports/planted.json")
    lines = []
    for row in export["rows"]:
        found = [
            _short(f"{one['kind']}: {one['reason'].partition('; before')[0]}")
            for one in row["findings"]
        ]
        # With findings, the headline only counts them.
        text = "<br>".join(found if row["exit_code"] else [row["headline"]]).replace("|", "\\|")
        lines.append([row["change"], str(row["exit_code"]), text])
    return [
        *markdown(["commit", "exit code", "`ivhl gate --measure --confirm`"], lines),
        "",
        _conditions([export]),
    ]


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 2].rstrip()} …"


def confirmation(root: Path) -> list[str]:
    """Return what ``ivhl gate --confirm`` said of the same code, and of 5 % more work."""
    from studies.confirmation.report import report  # noqa: PLC0415  (imports ivhl.bench)

    path = root / "studies" / "confirmation" / "comparisons.jsonl"
    return report([json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()])


def detection(root: Path) -> list[str]:
    """Return the scores of the detector beside the goals and the best public detectors."""
    from studies.detection.report import GOALS  # noqa: PLC0415  (imports NumPy)

    dev, fresh = (_load(root, f"detection/exports/{name}.json") for name in ("dev", "fresh"))
    scores = [dict(map(tuple, one["rows"])) for one in (dev, fresh)]
    names = dict.fromkeys(name for one in scores for name in one if not name.endswith("*"))
    lines = []
    for name in names:
        if "precision" in name:
            continue
        best, goal = GOALS.get(name, ("", ""))
        lines.append([name, *(one.get(name, "-") for one in scores), goal, best])
    head = ["metric", "dev", f"fresh {fresh['seed']}", "goal", "best public"]
    return [*markdown(head, lines), "", _conditions([dev, fresh])]


def _load(root: Path, name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((root / "studies" / name).read_text(encoding="utf-8"))
    return data


def _conditions(exports: Any) -> str:  # noqa: ANN401  (any iterable of exports)
    """Return the sentence on machine, commit and load of some exports."""
    exports = list(exports)
    commits = ", ".join(dict.fromkeys(one["commit"][:7] for one in exports))
    loads = [one["load_average"] for one in exports]
    machines = dict.fromkeys(
        f"`{one['machine']['name']}`, " for one in exports if "machine" in one
    )
    quick = "`--quick`, " if any(one.get("quick") for one in exports) else ""
    return f"{''.join(machines)}{quick}commit {commits}, {_load_average(loads)}."


def _load_average(loads: Iterable[float]) -> str:
    ends = dict.fromkeys(f"{load:.1f}" for load in (min(loads), max(loads)))
    return f"load average {' to '.join(ends)}"


FROM_EXPORTS: Final[Mapping[str, Callable[[Path], list[str]]]] = {
    "founding-H2O": partial(founding, molecule="H2O"),
    "throughput": throughput,
    "peers-operations": partial(peers, suite="ops", sizes=("medium", "large")),
    "peers-force-fields": partial(peers, suite="mlff", sizes=("H2O", "C6H6")),
    "detection": detection,
    "planted": planted,
    "confirmation": confirmation,
    "rollout": rollout,
    "rollout-parts": rollout_parts,
    "surgical-times": surgical_times,
}
