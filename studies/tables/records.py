"""Tables made from the committed records, which no command of ``ivhl`` prints."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from functools import cache
from itertools import combinations, product
from math import exp
from pathlib import Path
from statistics import fmean, median, stdev
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NamedTuple, get_args

from ivhl.records.files import record_file
from ivhl.tracker.store.metrics import WORDS, Metric, difference
from ivhl.tracker.store.records import is_existing
from ivhl.tracker.store.spread import repeats
from ivhl.workload import load_workloads
from studies.stored import latest_per_case, load_records
from studies.tables.layout import markdown, once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ivhl.records.record import RunRecord


class TablePlace(NamedTuple):
    """A case in a locked cell."""

    workload: str
    size: str
    variant: str
    python: str
    torch: str


if TYPE_CHECKING:
    Records = Mapping[TablePlace, RunRecord]

MACHINE: Final = "xeon-2core"
# Cases of unchanged code that two sessions must have measured, to be compared.
FEWEST_OF_SESSION: Final = 5
PYTHONS: Final = ("3.12", "3.13")
RELEASES: Final = ("2.5.1", "2.6.0", "2.15.0")
NOT_RECORDED: Final = "-"
MOLECULES: Final = {"small": "H2O", "large": "C6H6"}
# Speedups that the operations were to reach: the best of a few hours on a core of an AMD EPYC.
GOALS: Final = (
    (6.4, "ops.field_superposition", "medium", "rows-compiled"),
    (9.0, "ops.field_superposition", "large", "rows-compiled"),
    (13.0, "ops.field_superposition", "extreme", "rows-compiled"),
    (12.0, "ops.vortex_field", "medium", "whole-charges-compiled"),
    (20.0, "ops.condensate_potential", "medium", "planes-compiled"),
    (7.0, "ops.gp_euler", "medium", "planes-compiled"),
    (16.0, "ops.gp_euler", "large", "planes-compiled"),
    (2.0, "ops.gp_evolve", "extreme", "real-compiled"),
    (7.0, "ops.mera_layer", "medium", "precontracted-compiled"),
    (35.0, "ops.mera_layer", "large", "precontracted-compiled"),
)
# Compiled loops that took longer from one release to the next, at a commit that has them with all
# three, and the Python of the later two (2.5.1 has 3.12).
LOOPS: Final = (
    ("159fb332", "3.12", "ops.condensate_potential", "real-dynamic"),
    ("159fb332", "3.12", "ops.mera_layer", "precontracted-dynamic"),
    ("e2de3d41", "3.13", "ops.vortex_field", "real-compiled"),
    ("e2de3d41", "3.13", "ops.cdt_sweep", "naive-compiled"),
)
# The repeated runs that spread.json was learnt from: conditions to machine, and commits to files.
REPEATED: Final = {"quiet": "vm-2core", "beside other work": "vm-2core-load"}
REPEATED_COMMITS: Final = ("6715d198", "44f8ac83")
REPEATED_CELL: Final = "py3.12-torch2.15.0"
# The machine on which the core suite ran with every release and Python.
STAIRCASE: Final = "vm-core1"


@cache
def _load(root: Path) -> tuple[RunRecord, ...]:
    """Return the records of ``MACHINE`` in locked cells."""
    return tuple(
        record
        for record in load_records(root / "results").records
        if record.machine.name == MACHINE and not is_existing(record)
    )


def _newest(root: Path, commit: str = "") -> Records:
    """Return the newest record of each case in each cell, or that of a commit.

    By time and not by git's order, so that a shallow clone shows the same.
    """
    return _newest_of(r for r in _load(root) if r.commit.startswith(commit))


def _newest_of(records: Iterable[RunRecord]) -> Records:
    return {
        TablePlace(r.workload, r.size, r.variant, r.cell.python, r.cell.torch): r
        for r in latest_per_case(records)
    }


def operations(root: Path) -> list[str]:
    """Return the speedups of the operations at medium, Python 3.12, by release."""
    records = _newest(root)
    rows = []
    for workload in load_workloads("benchmarks"):
        if not workload.name.startswith("ops."):
            continue
        for variant in workload.variants:
            cells = [
                _speedup(records, TablePlace(workload.name, "medium", variant.name, "3.12", torch))
                for torch in RELEASES[1:]
            ]
            if cells != [NOT_RECORDED] * len(cells):
                rows.append([f"`{workload.name}`", variant.name, *cells])
    return markdown(["workload", "variant", *RELEASES[1:]], once(rows))


def goals(root: Path) -> list[str]:
    """Return the goals that the operations do not reach, and what was measured."""
    records = _newest(root)
    rows = []
    for goal, workload, size, variant in GOALS:
        found = {
            (python, torch): records[place].speedup
            for torch, python in product(RELEASES[1:], PYTHONS)
            if (place := TablePlace(workload, size, variant, python, torch)) in records
        }
        values = {cell: speedup for cell, speedup in found.items() if speedup is not None}
        missed = ["/".join(cell) for cell, s in values.items() if s.high < goal]
        below = ["/".join(cell) for cell, s in values.items() if s.value < goal <= s.high]
        verdict = [f"**missed** ({', '.join(missed)})"] * bool(missed)
        verdict += [f"**not shown** ({', '.join(below)})"] * bool(below)
        measured = [
            " and ".join(f"{s.value:.1f}" for (_, t), s in values.items() if t == torch)
            for torch in RELEASES[1:]
        ]
        case = f"`{workload}/{size}/{variant}`"
        if verdict:
            rows.append([case, f"{goal:g}", *measured, "; ".join(verdict)])
    reached = (
        f"Of {len(GOALS)} goals, {len(GOALS) - len(rows)} are reached. This table has the rest:"
    )
    return [reached, "", *markdown(["case", "goal", *RELEASES[1:], ""], rows)]


def force_field(root: Path) -> list[str]:
    """Return the speedups of energy and forces, and how those of moving geometries differ."""
    records = _newest(root)
    columns = [("3.12", "2.5.1"), ("3.13", "2.5.1"), ("3.12", "2.6.0"), ("3.12", "2.15.0")]
    order = (
        *("naive-compiled", "one-graph-compiled", "packed-compiled", "aotinductor"),
        *("torchscript", "torchscript-fp16"),
    )
    rows = [
        [
            molecule,
            f"`{variant}`",
            *(
                _speedup(records, TablePlace("mlff.energy_forces", size, variant, *c))
                for c in columns
            ),
        ]
        for size, molecule in MOLECULES.items()
        for variant in order
    ]
    table = markdown(["molecule", "variant", *(f"{p}, {t}" for p, t in columns)], once(rows))
    moving = _change(records, "mlff.energy_forces", RELEASES, workload="mlff.trajectory")
    python = _change(records, "mlff.energy_forces", RELEASES[1:], python="3.13")
    return [
        *table,
        "",
        f"* Speedup at moving geometries (`mlff.trajectory`) over this table's: {moving}.",
        f"* Speedup on Python 3.13 over that on 3.12, with 2.6.0 and 2.15.0: {python}.",
    ]


def edge_list(root: Path) -> list[str]:
    """Return the speedups of a list of edges, by cell."""
    records = _newest(root)
    columns = list(product(RELEASES, PYTHONS))
    rows = [
        [
            f"`{variant}`",
            *(
                _speedup(records, TablePlace("mlff.edge_list", "medium", variant, p, t))
                for t, p in columns
            ),
        ]
        for variant in ("naive-compiled", "one-graph-compiled")
    ]
    return markdown(["variant", *(f"{p}, {t}" for t, p in columns)], rows)


def exponential(root: Path) -> list[str]:
    """Return speedup and times of the field, before and after its eager code became slower."""
    records = _newest(root)
    columns = [(PYTHONS[0], release) for release in RELEASES[1:]]
    places = [
        TablePlace("ops.field_superposition", "medium", "real-compiled", *cell) for cell in columns
    ]
    return markdown(
        ["", *(_cell(*cell) for cell in columns)],
        [
            ["speedup", *(_speedup(records, place) for place in places)],
            ["eager", *(_time(records, place, compiled=False) for place in places)],
            ["compiled", *(_time(records, place) for place in places)],
        ],
    )


def loops(root: Path) -> list[str]:
    """Return the times of compiled loops by release, each row at one commit."""
    rows = []
    for commit, python, workload, variant in LOOPS:
        records = _newest(root, commit)
        cells = zip(("3.12", python, python), RELEASES, strict=True)
        times = [_time(records, TablePlace(workload, "medium", variant, *cell)) for cell in cells]
        rows.append([f"`{workload}/medium/{variant}`", f"{commit}, {python}", *times])
    return markdown(["case", "commit, Python", *RELEASES], rows)


def spread(root: Path) -> list[str]:
    """Return what repeated runs teach, from ``python -m studies.spread`` and the records."""
    columns = {"all": tuple(REPEATED.values()), **{name: (m,) for name, m in REPEATED.items()}}
    rows = zip(*(_spread_column(root, machines) for machines in columns.values()), strict=True)
    labels = (
        "records",
        "load average",
        "additional standard deviation between runs",
        "second runs in the interval of another run",
        "second runs in the interval within the first run",
        "second runs judged slower",
        "A/A",
    )
    return markdown(
        ["", *columns], [[label, *row] for label, row in zip(labels, rows, strict=True)]
    )


def _spread_column(root: Path, machines: Sequence[str]) -> list[str]:
    """Return the column of some machines, of which no two are compared with each other."""
    files = [
        (machine, file)
        for machine in machines
        for commit in REPEATED_COMMITS
        if (file := record_file(root / "results", machine, commit, REPEATED_CELL)).is_file()
    ]
    command = [sys.executable, "-m", "studies.spread", "--json"]
    with TemporaryDirectory() as folder:
        for machine, file in files:
            link = Path(folder, machine, machine, "records", file.name)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(file)
        for machine in machines:
            command += ["--results", str(Path(folder, machine))]
        done = subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE)
    found = json.loads(done.stdout)
    lines = [line for _, file in files for line in file.read_text(encoding="utf-8").splitlines()]
    records = [json.loads(line) for line in lines]
    load_averages = [record["conditions"]["load_average"] for record in records]
    speedup = found["speedup"]
    aa = found["aa_mean"]["4 arms"]
    return [
        str(len(records)),
        f"{min(load_averages):.1f} to {max(load_averages):.1f}",
        f"{found['spreads']['any']['tau']:.1%}",
        f"{speedup['another_run']:.1%} of {speedup['pairs']} pairs",
        f"{speedup['within_run']:.1%}",
        f"{speedup['slower']:.2%}",
        f"{aa['mean'] - 1:+.2%} ± {aa['error']:.2%}",
    ]


def _change(records: Records, workload: str, releases: Sequence[str], /, **change: str) -> str:
    """Return how the speedups of a workload change with the place, over all cases and cells."""
    ratios = []
    for place, record in records.items():
        other = place._replace(**change)
        if place.workload != workload or place.torch not in releases or place == other:
            continue
        here, there = record.speedup, records[other].speedup if other in records else None
        if here is not None and there is not None:
            ratios.append(there.value / here.value)
    return (
        f"{min(ratios):.2f} to {max(ratios):.2f} times, median {median(ratios):.2f} "
        f"({len(ratios)} pairs)"
    )


def _cell(python: str, torch: str) -> str:
    return f"{python}, {torch}"


def _speedup(records: Records, place: TablePlace) -> str:
    """Return a speedup with the interval of its rounds, or the class of its failure."""
    record = records.get(place)
    if record is None:
        return NOT_RECORDED
    if record.failure is not None:
        return record.failure.failure_class
    s = record.speedup
    return NOT_RECORDED if s is None else f"{s.value:.2f} [{s.low:.2f}, {s.high:.2f}]"


def _time(records: Records, place: TablePlace, *, compiled: bool = True) -> str:
    """Return the median time of a call in microseconds."""
    record = records.get(place)
    arm = None if record is None else record.compiled if compiled else record.eager
    return NOT_RECORDED if arm is None else f"{1e6 * median(arm.samples_s):.0f} µs"


def sessions(root: Path) -> list[str]:
    """Return by how much two sessions of a machine differ, as the mean over unchanged cases.

    The staircase is of pyenv's Python 3.13; another session was of Debian's, and is left out.
    """
    loaded = load_records(root / "results")
    runs = [
        replace(one, machine=replace(one.machine, name=STAIRCASE))
        if one.machine.name.startswith(STAIRCASE)
        else one
        for one in (*loaded.records, *loaded.replaced)
        if (one.machine.name, one.cell.python) != (f"{STAIRCASE}-debian", "3.13")
    ]
    rows = []
    for metric in get_args(Metric):
        if metric in ("aa", "memory"):
            continue
        apart: dict[tuple[str, ...], list[float]] = {}
        for of_case in repeats(runs):
            for one, other in combinations(of_case, 2):
                days = one.recorded_at[:10], other.recorded_at[:10]
                key = one.case.machine, one.python, one.torch, *days, one.commit, other.commit
                if (moved := difference(one, other, metric)) is not None:
                    apart.setdefault(key, []).append(moved)
        pairs = [found for found in apart.values() if len(found) >= FEWEST_OF_SESSION]
        squares = [fmean(found) ** 2 - stdev(found) ** 2 / len(found) for found in pairs]
        largest = max((abs(fmean(found)) for found in pairs), default=0.0)
        deviation = max(0.0, fmean(squares)) ** 0.5
        rows.append([WORDS[metric], str(len(pairs)), f"{deviation:.3f}", f"{exp(largest):.2f}x"])
    return markdown(["", "pairs of sessions", "standard deviation", "largest"], rows)


FROM_RECORDS: Final[Mapping[str, Callable[[Path], list[str]]]] = {
    "operations": operations,
    "goals": goals,
    "force-field": force_field,
    "edge-list": edge_list,
    "exponential": exponential,
    "loops": loops,
    "spread": spread,
    "sessions": sessions,
}
