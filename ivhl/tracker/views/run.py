"""A run: what was measured at one commit in one place, how, and how long it took."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ivhl.instrument import describe_instrument
from ivhl.tracker.compat import python_key, release_key
from ivhl.tracker.timings import PHASES
from ivhl.tracker.views.source import PageView, Place, Source, environment_page, run_page
from ivhl.tracker.wording import memory, seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ivhl.records.record import RunRecord
    from ivhl.tracker.entries import Entry


@dataclass(frozen=True, slots=True)
class RunCell:
    """What a run measured in one cell.

    Attributes:
        conditions: Label and value of what held for its records; several values are listed.
        stability: Observations before the first case: check, level, what was seen.
        phases: Phase and its seconds, summed over all processes.
    """

    cell: str
    environment: str
    counts: str
    first: str
    last: str
    conditions: tuple[tuple[str, str], ...]
    stability: tuple[tuple[str, str, str], ...]
    phases: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """The page of a run."""

    page: PageView
    href: str
    place: Place
    commit: str
    first: str
    last: str
    cases: int
    machine: str
    seconds: str
    cells: tuple[RunCell, ...]


def run_views(source: Source) -> tuple[RunView, ...]:
    """Return the page of each run, the newest first. A record that stands for another has none."""
    groups: dict[tuple[Place, str], list[Entry]] = defaultdict(list)
    for entry in source.history.entries:
        place = Place(entry.case.machine, entry.case.device)
        groups[place, entry.shown.same_as or entry.commit].append(entry)
    views = [
        _view(source, place, commit, source.history.read(group))
        for (place, commit), group in groups.items()
    ]
    return tuple(sorted(views, key=lambda view: (view.last, view.href), reverse=True))


def _view(source: Source, place: Place, commit: str, group: Sequence[RunRecord]) -> RunView:
    cells: dict[tuple[str, str, str], list[RunRecord]] = defaultdict(list)
    for record in group:
        cells[record.cell.python, record.cell.torch, record.cell.id].append(record)
    times = [record.recorded_at for record in group]
    machine = max(group, key=lambda record: record.recorded_at).machine
    return RunView(
        page=source.page,
        href=run_page(place, commit),
        place=place,
        commit=commit,
        first=min(times)[:16],
        last=max(times)[:16],
        cases=len(group),
        machine=f"{machine.cpu}, {machine.n_cpus} CPUs, {memory(machine.memory_bytes)}, "
        f"{machine.system}",
        seconds=seconds(sum(record.duration_s for record in group)),
        cells=tuple(
            _cell(cell, cells[key])
            for key in sorted(cells, key=lambda k: (python_key(k[0]), release_key(k[1])))
            for cell in [key[2]]
        ),
    )


def _cell(cell: str, records: Sequence[RunRecord]) -> RunCell:
    counts = Counter(
        record.failure.failure_class.replace("_", " ") if record.failure else "measured"
        for record in records
    )
    times = [record.recorded_at for record in records]
    phases = Counter[str]()
    for record in records:
        phases.update(record.phase_s or {})
    seen = {
        (one.check, one.level, one.seen)
        for record in records
        for one in record.conditions.stability or ()
    }
    names = [*(p for p in PHASES if p in phases), *sorted(phases.keys() - set(PHASES))]
    return RunCell(
        cell=cell,
        environment=environment_page(cell),
        counts=", ".join(f"{n} {word}" for word, n in counts.most_common()),
        first=min(times)[:16],
        last=max(times)[:16],
        conditions=tuple(_conditions(records)),
        stability=tuple(sorted(seen)),
        phases=tuple((name, seconds(phases[name])) for name in names if phases[name] > 0),
    )


def _conditions(records: Sequence[RunRecord]) -> Iterable[tuple[str, str]]:
    """Yield what held for the records; where they differ, all values."""
    conditions = [record.conditions for record in records]
    loads = [c.load_average for c in conditions if c.load_average is not None]
    found: tuple[tuple[str, Iterable[str]], ...] = (
        ("Python", (c.python_full for c in conditions)),
        ("PyTorch", (c.torch_full or "none" for c in conditions)),
        ("lock", ((r.cell.lock_sha256 or "none")[:12] for r in records)),
        ("instrument", (describe_instrument(c.instrument) for c in conditions)),
        ("device", (c.device for c in conditions)),
        ("threads, clock", (f"{c.threads}, {c.clock}" for c in conditions)),
        ("kind of run", ("quick: few samples" if c.quick else "full" for c in conditions)),
        ("container image", (c.image or "none" for c in conditions)),
    )
    for name, values in found:
        yield name, "; ".join(dict.fromkeys(values))
    if loads:
        yield "load before the cases", f"{min(loads):.2f} to {max(loads):.2f}"
