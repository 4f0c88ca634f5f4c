"""When which sequence ran, eagerly or compiled; and a picture of it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

SpanKind = Literal["eager", "compile", "compiled"]

_KEPT: Final = 500  # spans at each end of a run
_SHOWN: Final = 30  # spans in a row of the picture
_WIDTH: Final = 900
_COLOURS: Final[dict[SpanKind, str]] = {
    "eager": "#8c8c8c",
    "compile": "#c0392b",
    "compiled": "#2f7ed8",
}


@dataclass(frozen=True, slots=True)
class TimelineSpan:
    """A run of a sequence or region.

    Attributes:
        begin_s: Seconds since the block began.
        end_s: Likewise.
        kind: Whether it ran eagerly, compiled for the first time, or ran compiled.
        name: The sequence's number, the region or the boundary.
    """

    begin_s: float
    end_s: float
    kind: SpanKind
    name: str


@dataclass(eq=False)
class Timeline:
    """The first and the last spans of a block."""

    zero: float
    first: list[tuple[float, float, SpanKind, str]] = field(default_factory=list)
    last: deque[tuple[float, float, SpanKind, str]] = field(
        default_factory=lambda: deque(maxlen=_KEPT)
    )

    def add(self, begin: float, end: float, kind: SpanKind, name: str) -> None:
        """Add a span; times are those of ``time.perf_counter``."""
        if not begin:
            return
        kept = self.first if len(self.first) < _KEPT else self.last
        kept.append((begin - self.zero, end - self.zero, kind, name))

    def spans(self) -> list[TimelineSpan]:
        """Return the kept spans in their order."""
        return [TimelineSpan(*one) for one in (*self.first, *self.last)]

    def svg(self) -> str:
        """Return a picture: what ran before the first compilation and what runs now."""
        spans = self.spans()
        compiling = [n for n, one in enumerate(spans) if one.kind == "compile"]
        cut = compiling[0] if compiling else len(spans)
        rows = [("before", spans[max(0, cut - _SHOWN) : cut])]
        if compiling:
            rows.append(("compiling", [spans[n] for n in compiling][:_SHOWN]))
            rows.append(("after", spans[compiling[-1] + 1 :][-_SHOWN:]))
        # One scale for before and after; compiling takes thousands of times as long.
        longest = max((_length(row) for name, row in rows if name != "compiling"), default=0.0)
        parts = [
            _row(name, row, 40 + 70 * place, longest if name != "compiling" else _length(row))
            for place, (name, row) in enumerate(rows)
        ]
        height = 40 + 70 * len(rows)
        legend = "".join(
            f'<rect x="{10 + 110 * place}" y="8" width="12" height="12" fill="{colour}"/>'
            f'<text x="{27 + 110 * place}" y="18">{kind}</text>'
            for place, (kind, colour) in enumerate(_COLOURS.items())
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH + 20}" height="{height}" '
            f'font-family="sans-serif" font-size="12"><title>Hot paths before and after</title>'
            f"{legend}{''.join(parts)}</svg>\n"
        )


def _length(row: Sequence[TimelineSpan]) -> float:
    return row[-1].end_s - row[0].begin_s if row else 0.0


def _row(name: str, row: Sequence[TimelineSpan], y: int, longest: float) -> str:
    seconds = _length(row)
    text = f"{name}: {len(row)} runs in {1e3 * seconds:.2f} ms" if row else f"{name}: nothing"
    parts = [f'<text x="10" y="{y + 12}">{text}</text>']
    for one in row:
        x = 10 + _WIDTH * (one.begin_s - row[0].begin_s) / longest if longest else 10.0
        width = max(0.5, _WIDTH * (one.end_s - one.begin_s) / longest) if longest else 0.5
        title = f"{one.name or 'sequence'}, {one.kind}: {1e6 * (one.end_s - one.begin_s):.0f} us"
        parts.append(
            f'<rect x="{x:.1f}" y="{y + 20}" width="{width:.1f}" height="24" '
            f'fill="{_COLOURS[one.kind]}"><title>{escape(title)}</title></rect>'
        )
    return "".join(parts)
