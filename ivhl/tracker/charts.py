"""Lay out the charts of speedup against PyTorch release, with a line per Python."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import log2
from statistics import median
from typing import TYPE_CHECKING

from ivhl.instrument import version_of
from ivhl.tracker.compat import python_key, release_key
from ivhl.tracker.wording import STATUS_WORDS, marks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ivhl.tracker.compat import Row, Series, Status

# Up to this factor, times of two runs on one machine differed without a cause.
MOVED_FROM = 1.25
WIDTH = 640.0
HEIGHT = 320.0
_LEFT, _RIGHT, _TOP = 52.0, 16.0, 14.0
_PLOT_BOTTOM = 236.0
_STRIP_TOP, _STRIP_BOTTOM = 246.0, 274.0

# Pythons differ in shape as well as in colour, for colour-blind readers.
_SHAPES = (
    "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z",
    "M-4-4h8v8h-8z",
    "M0-5.4L5 3.8H-5z",
    "M0-5.8L5.8 0L0 5.8L-5.8 0z",
    "M0 5.4L5-3.8H-5z",
    "M-5.2-1.7h3.5v-3.5h3.4v3.5h3.5v3.4h-3.5v3.5h-3.4v-3.5h-3.5z",
)
# Axis steps from fine to coarse; the first that covers the values with few enough lines is used.
_STEPS = (
    tuple(round(0.8 + 0.05 * i, 2) for i in range(13)),
    tuple(round(0.5 + 0.1 * i, 1) for i in range(16)),
    (0.2, 0.25, 0.33, 0.5, 0.67, 0.8, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0),
    tuple(2.0**power for power in range(-10, 16)),
    tuple(8.0**power for power in range(-6, 10)),
)
_MOST_TICKS = 7
_SMALLEST = 0.01
_NARROWEST = 1.15  # smallest ratio of the axis limits: a narrower axis would magnify noise


@dataclass(frozen=True, slots=True)
class Tick:
    """A labelled position on an axis."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Point:
    """A speedup with its interval."""

    x: float
    y: float
    low_y: float
    high_y: float
    label: str
    href: str


@dataclass(frozen=True, slots=True)
class Line:
    """The speedups of one Python."""

    python: str
    number: int
    shape: str
    path: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Missing:
    """A measured case without a speedup, drawn in the strip below the plot."""

    x: float
    y: float
    number: int
    status: Status
    label: str
    href: str


@dataclass(frozen=True, slots=True)
class TableLine:
    """What the chart shows for one Python, as text."""

    python: str
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Speedup against PyTorch release for one case on one machine.

    Attributes:
        one_y: Position of speedup 1, where compiled is as fast as eager.
        noise: Top and height of the A/A band (noise floor); ``None`` if A/A was not measured.
        changes: A sentence per step between releases where eager or compiled seconds moved.
    """

    id: str
    size: str
    variant: str
    place: str
    description: str
    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    strip_top: float
    strip_bottom: float
    releases: tuple[Tick, ...]
    ticks: tuple[Tick, ...]
    one_y: float
    noise: tuple[float, float] | None
    lines: tuple[Line, ...]
    missing: tuple[Missing, ...]
    table: tuple[TableLine, ...]
    changes: tuple[str, ...]


def make_chart(
    chart_id: str, series: Series, rows: Sequence[Row], hrefs: Mapping[Row, str]
) -> Chart:
    """Return the chart of a series.

    Args:
        chart_id: Id, unique in the page.
        series: The series that all rows belong to.
        rows: One per Python and PyTorch release, at least one with a speedup.
        hrefs: Row to the id of its details on the page.
    """
    releases = sorted({row.torch for row in rows}, key=release_key)
    pythons = sorted({row.python for row in rows}, key=python_key)
    low, high = _range(rows)

    def y_of(value: float) -> float:
        share = log2(max(value, _SMALLEST) / low) / log2(high / low)
        return round(_PLOT_BOTTOM - share * (_PLOT_BOTTOM - _TOP), 1)

    band = (WIDTH - _LEFT - _RIGHT) / len(releases)
    centre = {torch: _LEFT + band * (i + 0.5) for i, torch in enumerate(releases)}
    # Shifted sideways, so that the intervals of several Pythons do not overlap.
    apart = min(13.0, 0.7 * band / len(pythons))
    shift = {python: (i - (len(pythons) - 1) / 2) * apart for i, python in enumerate(pythons)}

    def x_of(row: Row) -> float:
        return round(centre[row.torch] + shift[row.python], 1)

    return Chart(
        id=chart_id,
        size=series.size,
        variant=series.variant,
        place=f"{series.machine} · {series.device}",
        description=_description(series, rows),
        width=WIDTH,
        height=HEIGHT,
        left=_LEFT,
        right=WIDTH - _RIGHT,
        top=_TOP,
        bottom=_PLOT_BOTTOM,
        strip_top=_STRIP_TOP,
        strip_bottom=_STRIP_BOTTOM,
        releases=tuple(Tick(round(centre[torch], 1), torch) for torch in releases),
        ticks=tuple(Tick(y_of(value), f"{value:g}x") for value in _ticks(low, high)),
        one_y=y_of(1.0),
        noise=_noise(rows, y_of),
        lines=tuple(
            _line(i, python, [row for row in rows if row.python == python], (x_of, y_of), hrefs)
            for i, python in enumerate(pythons)
        ),
        missing=tuple(
            Missing(
                x=x_of(row),
                y=(_STRIP_TOP + _STRIP_BOTTOM) / 2,
                number=pythons.index(row.python),
                status=row.status,
                label=f"Python {row.python}, PyTorch {row.torch}: {_text(row)}",
                href=hrefs[row],
            )
            for row in rows
            if row.speedup is None and row.status != "not_run"
        ),
        table=tuple(
            TableLine(python, tuple(_text_at(rows, python, torch) for torch in releases))
            for python in pythons
        ),
        changes=tuple(
            change
            for python in pythons
            for change in _changes([r for r in rows if r.python == python])
        ),
    )


def _changes(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a sentence for each step between releases where eager or compiled seconds moved.

    The speedup hides which of the two moved: it also grows when eager becomes slower. The releases
    were measured in different runs, not in pairs, so only moves above ``MOVED_FROM`` count.
    """
    measured = sorted(
        (r for r in rows if r.record and r.record.eager and r.record.compiled),
        key=lambda row: release_key(row.torch),
    )
    for before, after in pairwise(measured):
        if _instrument(before) != _instrument(after):
            continue  # another instrument changes the seconds, too
        moves = {
            arm: _seconds(after, arm) / _seconds(before, arm) for arm in ("eager", "compiled")
        }
        if any(abs(log2(move)) > log2(MOVED_FROM) for move in moves.values()):
            text = ", ".join(f"{arm} {_moved(move)}" for arm, move in moves.items())
            yield f"Python {after.python}, PyTorch {before.torch} to {after.torch}: {text}"


def _instrument(row: Row) -> str:
    return version_of(row.record.conditions.instrument) if row.record else ""


def _seconds(row: Row, arm: str) -> float:
    return float(median(getattr(row.record, arm).samples_s))


def _moved(ratio: float) -> str:
    """Return e.g. ``5.1 times slower``; ``about the same`` up to ``MOVED_FROM``."""
    if abs(log2(ratio)) <= log2(MOVED_FROM):
        return "about the same"
    return f"{ratio:.1f} times slower" if ratio > 1 else f"{1 / ratio:.1f} times faster"


def _line(
    number: int,
    python: str,
    rows: Sequence[Row],
    place: tuple[Callable[[Row], float], Callable[[float], float]],
    hrefs: Mapping[Row, str],
) -> Line:
    x_of, y_of = place
    points, path, pen_down = [], [], False
    for row in sorted(rows, key=lambda row: release_key(row.torch)):
        if row.speedup is None or row.speedup_low is None or row.speedup_high is None:
            pen_down = False  # a line across a failure would hide it
            continue
        x, y = x_of(row), y_of(row.speedup)
        path.append(f"{'L' if pen_down else 'M'}{x:g} {y:g}")
        pen_down = True
        points.append(
            Point(
                x,
                y,
                y_of(row.speedup_low),
                y_of(row.speedup_high),
                f"Python {python}, PyTorch {row.torch}: {_text(row)}",
                hrefs[row],
            )
        )
    shape = _SHAPES[number % len(_SHAPES)]
    return Line(python, number % len(_SHAPES), shape, "".join(path), tuple(points))


def _range(rows: Sequence[Row]) -> tuple[float, float]:
    values = [1.0]
    for row in rows:
        values += [
            max(value, _SMALLEST)
            for value in (row.speedup_low, row.speedup_high, row.aa_low, row.aa_high)
            if value is not None
        ]
    low, high = min(values), max(values)
    pad = max((high / low) ** 0.08, (_NARROWEST / min(high / low, _NARROWEST)) ** 0.5)
    return low / pad, high * pad


def _ticks(low: float, high: float) -> tuple[float, ...]:
    covering = [steps for steps in _STEPS if steps[0] <= low and high <= steps[-1]] or _STEPS[-1:]
    inside = [tuple(value for value in steps if low <= value <= high) for steps in covering]
    return next((values for values in inside if len(values) <= _MOST_TICKS), inside[-1])


def _noise(rows: Sequence[Row], y_of: Callable[[float], float]) -> tuple[float, float] | None:
    lows = [row.aa_low for row in rows if row.aa_low is not None]
    highs = [row.aa_high for row in rows if row.aa_high is not None]
    if not lows or not highs:
        return None
    top = y_of(max(highs))
    return top, round(y_of(min(lows)) - top, 1)


def _text(row: Row) -> str:
    word = STATUS_WORDS[row.status]
    if row.speedup is not None:
        value = f"{row.speedup:.2f}x [{row.speedup_low:.2f}, {row.speedup_high:.2f}]"
        value = " · ".join((value, *marks(row.reference, uncommitted=row.uncommitted)))
        return value if row.status == "works" else f"{value}, {word}"
    if row.status == "failed":
        return f"{word}: {row.failure_class}"
    return word


def _text_at(rows: Sequence[Row], python: str, torch: str) -> str:
    found = next((r for r in rows if (r.python, r.torch) == (python, torch)), None)
    return STATUS_WORDS["not_run"] if found is None else _text(found)


def _description(series: Series, rows: Sequence[Row]) -> str:
    measured = [row for row in rows if row.speedup is not None]
    best = max(measured, key=lambda row: row.speedup or 0.0)
    worst = min(measured, key=lambda row: row.speedup or 0.0)
    return (
        f"Speedup over eager of {series.workload}, size {series.size}, variant {series.variant}, "
        f"on {series.machine}, {series.device}, per PyTorch release, with a line per Python. "
        f"Highest: {_text(best)} with Python {best.python} and PyTorch {best.torch}. "
        f"Lowest: {_text(worst)} with Python {worst.python} and PyTorch {worst.torch}. "
        f"{len(rows) - len(measured)} of {len(rows)} have no speedup. "
        "The table below has the same numbers."
    )
