"""What a block found, compiled and refused, with measured figures."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median, quantiles
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from ivhl.hotpath.log import Log, LogEntry
    from ivhl.hotpath.regions import Region
    from ivhl.hotpath.sequence import HotSequence
    from ivhl.hotpath.timeline import Timeline


@dataclass(frozen=True, kw_only=True, slots=True)
class PathReport:
    """A sequence, function, module or optimizer step.

    Attributes:
        name: The operations, ``linear -> relu``, or the name of the region.
        number: Number of the sequence, equal in each process; empty for a region.
        boundary: The boundary in which it ran, or empty.
        calls: Number of operations; 0 for a region.
        hits: Runs of the compiled graph.
        misses: Eager runs after compiling.
        compiles: Compiled graphs; more than one if live results or arguments differ.
        compile_s: Wall seconds of the first calls of these graphs.
        eager_s: Median wall seconds of the operations of eager runs, without recording, or ``None``.
        compiled_s: Median wall seconds of compiled runs without the first, or ``None``.
        speedup: ``eager_s / compiled_s``, or ``None``.
        speedup_range: Smallest and largest ratio of a run in the middle half of the eager runs to a
            run in the middle half of the compiled runs; ``None`` if either has only one run.
        refused: Reason why it runs eagerly from now on; empty if it runs compiled.
    """

    name: str
    number: str
    boundary: str
    calls: int
    hits: int
    misses: int
    compiles: int
    compile_s: float
    eager_s: float | None
    compiled_s: float | None
    speedup: float | None
    speedup_range: tuple[float, float] | None
    refused: str


class HotpathReport:
    """The results of a block so far; prints as a table. Later blocks continue the report.

    Attributes:
        unused: Boundaries in the YAML file that the program has not entered.
    """

    def __init__(
        self,
        sequences: Sequence[HotSequence],
        regions: Sequence[Region],
        reasons: Mapping[str, int],
        log: Log,
        timeline: Timeline,
    ) -> None:
        self._sequences = sequences
        self._regions = regions
        self._reasons = reasons
        self._log = log
        self._timeline = timeline
        self.unused: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[PathReport, ...]:
        """What was hot, in the order of detection; then functions, modules and optimizer steps."""
        return tuple(
            [
                PathReport(
                    name=one.name,
                    number=one.number,
                    boundary=one.boundary,
                    calls=len(one.calls),
                    hits=one.hits,
                    misses=one.misses,
                    compiles=len(one.compile_s),
                    compile_s=sum(one.compile_s),
                    eager_s=median(one.eager_s) if one.eager_s else None,
                    compiled_s=median(one.compiled_s) if one.compiled_s else None,
                    speedup=one.speedup,
                    speedup_range=_range(one.eager_s, one.compiled_s),
                    refused=one.refused,
                )
                for one in self._sequences
            ]
            + [
                PathReport(
                    name=one.name,
                    number="",
                    boundary="",
                    calls=0,
                    hits=one.hits,
                    misses=one.misses,
                    compiles=len(one.compile_s),
                    compile_s=sum(one.compile_s),
                    eager_s=median(one.eager_s) if one.eager_s else None,
                    compiled_s=median(one.compiled_s) if one.compiled_s else None,
                    speedup=one.speedup,
                    speedup_range=_range(one.eager_s, one.compiled_s),
                    refused=one.refused,
                )
                for one in self._regions
            ]
        )

    @property
    def hits(self) -> int:
        """Runs of compiled graphs."""
        return sum(one.hits for one in self.paths)

    @property
    def misses(self) -> int:
        """Eager runs of what was hot."""
        return sum(one.misses for one in self.paths)

    @property
    def compiles(self) -> int:
        """Graphs compiled."""
        return sum(one.compiles for one in self.paths)

    @property
    def reasons(self) -> dict[str, int]:
        """Why operations were in no sequence, or sequences are not compiled; how often they ran."""
        refused = {f"{one.name}: {one.refused}": one.misses for one in self.paths if one.refused}
        return {**self._reasons, **refused}

    @property
    def events(self) -> tuple[LogEntry, ...]:
        """The stream: detections, compilations, speedups, fallbacks, refusals."""
        return tuple(self._log.entries)

    def __str__(self) -> str:
        lines = [
            (
                f"{'hits':>7} {'misses':>6} {'compile':>9} {'eager':>10} {'compiled':>10} "
                f"{'speedup':>8} {'(middle halves)':<17} path"
            )
        ]
        for one in self.paths:
            where = f" in {one.boundary}" if one.boundary else ""
            number = f" [{one.number}]" if one.number else ""
            lines.append(
                f"{one.hits:>7} {one.misses:>6} {one.compile_s:>7.2f} s {_ms(one.eager_s):>10} "
                f"{_ms(one.compiled_s):>10} {_times(one.speedup):>8} "
                f"{_between(one):<17} {one.name}{number}{where}"
            )
            if one.refused:
                lines.append(f"{'':>15}refused: {one.refused}")
        lines += [f"by itself: {text} ({count}x)" for text, count in self._reasons.items()]
        lines += [f"boundary {name!r} has a rule and was never entered" for name in self.unused]
        return "\n".join(lines)

    def write_timeline(self, path: Path | str) -> None:
        """Write a picture (SVG) of what ran before the first compilation and what runs now."""
        with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123  (takes a str, too)
            file.write(self._timeline.svg())


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:.3f} ms"


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}x"


def _range(
    eager_s: Collection[float], compiled_s: Collection[float]
) -> tuple[float, float] | None:
    if min(len(eager_s), len(compiled_s)) < 2:  # noqa: PLR2004  (no quartile of a single one)
        return None
    eager, compiled = (quantiles(s, method="inclusive") for s in (eager_s, compiled_s))
    return eager[0] / compiled[-1], eager[-1] / compiled[0]


def _between(one: PathReport) -> str:
    if one.speedup is None:
        return ""
    if one.speedup_range is None:
        return f"(one {'eager' if one.hits > one.compiles + 1 else 'compiled'} run)"
    return "({:.2f} to {:.2f})".format(*one.speedup_range)
