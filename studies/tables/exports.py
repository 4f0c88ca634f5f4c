"""Tables made from what the studies export; the files lie beside the studies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from studies.tables.layout import markdown, once

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

SHOWN: Final = 180  # characters of a message
BATCHES: Final = {
    "2.6.0": "2.6.0, eager",
    "2.15.0": "2.15.0, eager",
    "2.15.0-compiled": "2.15.0, `--compile`",
}


def throughput(root: Path) -> list[str]:
    """Return microseconds per structure, the speedup over one by one, and the share of the limit."""
    exports = [_load(root, f"exports/throughput-{name}.json") for name in BATCHES]
    rows = [{(row["batch"], row["way"]): row for row in one["rows"]} for one in exports]
    lines = [
        [str(key[0]), key[1], *(_throughput_cell(one[key]) for one in rows)] for key in rows[0]
    ]
    rates = ", ".join(f"{one['flops'] / 1e9:.0f}" for one in exports)
    return [
        *markdown(["batch", "way", *BATCHES.values()], once(lines)),
        "",
        f"At the end the share of the rate of large matrix multiplications, {rates} Gflop/s; "
        + _conditions(exports),
    ]


def _throughput_cell(row: dict[str, Any]) -> str:
    cell = f"{1e6 * row['seconds']:.0f}"
    if row["way"] != "one by one":
        cell += f" ({row['speedup']:.2f}x)"
    return f"{cell}, {row['of_limit']:.0%}"


def planted(root: Path) -> list[str]:
    """Return what the gate said of each planted commit, and the list of regressions after them."""
    export = _load(root, "planted/exports/planted.json")
    lines = []
    for row in export["rows"]:
        found = [_short(f"{one['kind']}: {one['reason']}") for one in row["findings"]]
        text = "<br>".join([row["headline"], *found]).replace("|", "\\|")
        lines.append([row["change"], str(row["exit_code"]), text, f"{row['seconds']} s"])
    return [
        *markdown(["commit", "exit code", "`ivhl gate --measure --confirm`", "took"], lines),
        "",
        _conditions([export]),
        "",
        "```console",
        "$ ivhl regressions",
        *map(_short, export["regressions"]),
        "```",
    ]


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 2].rstrip()} …"


def detection(root: Path) -> list[str]:
    """Return the scores of the detector beside the goals and the best public detectors."""
    from studies.detection.report import GOALS  # noqa: PLC0415  (imports NumPy)

    dev, fresh = (_load(root, f"detection/exports/{name}.json") for name in ("dev", "fresh"))
    scores = [dict(map(tuple, one["rows"])) for one in (dev, fresh)]
    names = dict.fromkeys(name for one in scores for name in one if not name.endswith("*"))
    lines = []
    for name in names:
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
    load = f"load average {min(loads):.1f} to {max(loads):.1f}"
    return f"{''.join(machines)}{quick}commit {commits}, {load}."


FROM_EXPORTS: Final[Mapping[str, Callable[[Path], list[str]]]] = {
    "throughput": throughput,
    "detection": detection,
    "planted": planted,
}
