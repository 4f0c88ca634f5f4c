"""Render the seconds that a run spent per phase and cell (``ivhl bench --all``)."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Group

from ivhl.tracker.terminal import Columns
from ivhl.tracker.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ivhl.records.record import RunRecord

# In the order of execution. ``start`` is the time outside the other phases; ``waiting`` is the time
# until the other process of the case has been timed.
PHASES = (
    "start",
    "waiting",
    "import",
    "inputs",
    "reference",
    "eager",
    "compile",
    "accuracy",
    "timing",
    "memory",
)


def recorded_since(records: Iterable[RunRecord], began: datetime) -> tuple[RunRecord, ...]:
    """Return the records made since ``began``, compared in whole seconds as records store them."""
    first = began.replace(microsecond=0)
    return tuple(r for r in records if datetime.fromisoformat(r.recorded_at) >= first)


def render_timings(records: Sequence[RunRecord], *, wall_s: float) -> Group:
    """Return a table of seconds per phase, with a column per cell, and the wall time below it.

    Seconds are summed over all processes of a case, which compile in parallel: the sum may exceed
    ``wall_s``. Records without phases (cells that could not be installed) add nothing.

    Args:
        records: Records of this run.
        wall_s: Duration of the whole run in seconds.
    """
    cells: dict[str, Counter[str]] = {}
    for record in records:
        if record.phase_s:
            cells.setdefault(record.cell.id, Counter()).update(record.phase_s)
    total = sum(cells.values(), Counter())
    known = [name for name in PHASES if name in total]
    phases = [*known, *sorted(total.keys() - set(PHASES))]
    n = sum(bool(record.phase_s) for record in records)
    table = Columns("seconds in")
    for name in ("all cells", "share", *(cell.replace("-", "\n", 1) for cell in cells)):
        table.add_column(name, justify="right", vertical="bottom", overflow="fold")
    everything = total.total()
    for name in phases:
        table.add_row(
            name,
            f"{total[name]:.1f}",
            f"{total[name] / everything:.0%}" if everything else "",
            *(f"{seconds[name]:.1f}" for seconds in cells.values()),
        )
    table.add_row(
        "all", f"{everything:.1f}", "", *(f"{seconds.total():.1f}" for seconds in cells.values())
    )
    return Group(table, f"{counted(n, 'case')} measured, {wall_s:.0f} s of wall time")
