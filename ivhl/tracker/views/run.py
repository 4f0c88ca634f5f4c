"""A run: what was measured at one commit on one machine, how, and how long it took."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, get_args

from ivhl.instrument import describe_instrument
from ivhl.records.record import Phase, RunRecord
from ivhl.tracker.store.records import grouped_by
from ivhl.tracker.support.compat import python_key, release_key
from ivhl.tracker.views.source import Place, Source, View, environment_page, run_page
from ivhl.tracker.wording import QUICK_MEANING, memory, seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ivhl.tracker.store.entries import Entry

# In the order of execution. ``start`` is the time outside the other phases; ``waiting`` is the time
# until the other process of the case has been timed.
_PHASES: Final = ("start", "waiting", *get_args(Phase))


def run_lines(source: Source) -> tuple[View, ...]:
    """Return all runs, the newest first. A record that stands for another belongs to its run.

    Facts:
        cells: Number of cells that it measured.
        entries: Its records.
    """
    groups: dict[tuple[str, str, str], list[Entry]] = defaultdict(list)
    for entry in source.history.entries:
        case = entry.case
        groups[case.machine, case.device, entry.shown.same_as or entry.commit].append(entry)
    durations = source.history.durations()
    lines = []
    for (machine, device, commit), group in groups.items():
        place = Place(machine, device)
        times = [entry.recorded_at for entry in group]
        lines.append(
            View(
                href=run_page(place, commit),
                place=place,
                commit=commit,
                first=min(times)[:16],
                last=max(times)[:16],
                cases=len(group),
                cells=len({entry.case.cell for entry in group}),
                seconds=seconds(sum(durations[entry.id] for entry in group)),
                entries=tuple(group),
            )
        )
    return tuple(sorted(lines, key=lambda line: (line.last, line.href), reverse=True))


def run_view(source: Source, line: View) -> View:
    """Return the page of a run."""
    records = source.history.read(line.entries)
    cells = grouped_by(records, lambda one: (one.cell.python, one.cell.torch, one.cell.id))
    machine = max(records, key=lambda record: record.recorded_at).machine
    return View(
        line=line,
        machine=f"{machine.cpu}, {machine.n_cpus} CPUs, {memory(machine.memory_bytes)}, "
        f"{machine.system}",
        cells=tuple(
            _cell(cells[place])
            for place in sorted(cells, key=lambda one: (python_key(one[0]), release_key(one[1])))
        ),
    )


def _cell(records: Sequence[RunRecord]) -> View:
    outcomes = (r.failure.failure_class if r.failure else "measured" for r in records)
    counts = Counter(outcome.replace("_", " ") for outcome in outcomes)
    times = [record.recorded_at for record in records]
    phases = Counter[str]()
    for record in records:
        phases.update(record.phase_s or {})
    names = [*(p for p in _PHASES if p in phases), *sorted(phases.keys() - set(_PHASES))]
    observed = {o for record in records for o in record.conditions.stability or ()}
    cell = records[0].cell.id
    return View(
        cell=cell,
        environment=environment_page(cell),
        counts=", ".join(f"{n} {word}" for word, n in counts.most_common()),
        first=min(times)[:16],
        last=max(times)[:16],
        conditions=tuple(_conditions(records)),
        stability=tuple(sorted((one.check, one.level, one.seen) for one in observed)),
        phases=tuple((name, seconds(phases[name])) for name in names if phases[name] > 0),
    )


def _conditions(records: Sequence[RunRecord]) -> Iterator[tuple[str, str]]:
    """Yield what held for the records; where they differ, all values.

    Facts:
        conditions: Label and value of what held for its records; several values are listed.
        stability: Observations before the first case: check, level, what was seen.
        phases: Phase and its seconds, summed over all processes.
    """
    locks = [(record.cell.lock_sha256 or "none")[:12] for record in records]
    held = [record.conditions for record in records]
    found: tuple[tuple[str, Iterable[str]], ...] = (
        ("Python", (one.python_full for one in held)),
        ("PyTorch", (one.torch_full or "none" for one in held)),
        ("lock", locks),
        ("instrument", (describe_instrument(one.instrument) for one in held)),
        ("device", (one.device for one in held)),
        ("threads, clock", (f"{one.threads}, {one.clock}" for one in held)),
        ("kind of run", (f"quick: {QUICK_MEANING}" if one.quick else "full" for one in held)),
        ("container image", (one.image or "none" for one in held)),
    )
    for name, values in found:
        yield name, "; ".join(dict.fromkeys(values))
    if loads := [one.load_average for one in held if one.load_average is not None]:
        yield "load before the cases", f"{min(loads):.2f} to {max(loads):.2f}"
