# Promised of ivhl.hotpath (docs/api.md); python -m tests.contract.api writes it.
import contextlib
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal, overload

class HotpathReport:

    def __init__(self, sequences: Sequence[HotSequence], regions: Sequence[Region], reasons: Mapping[str, int], log: Log, timeline: Timeline) -> None:
        ...

    @property
    def paths(self) -> tuple[PathReport, ...]:
        ...

    @property
    def hits(self) -> int:
        ...

    @property
    def misses(self) -> int:
        ...

    @property
    def compiles(self) -> int:
        ...

    @property
    def reasons(self) -> dict[str, int]:
        ...

    @property
    def events(self) -> tuple[LogEntry, ...]:
        ...

    def write_timeline(self, path: Path | str) -> None:
        ...
@dataclass(frozen=True, slots=True)
class LogEntry:
    at_s: float
    kind: str
    text: str
    number: str = ''
    seconds: float | None = None
@dataclass(frozen=True, kw_only=True, slots=True)
class PathReport:
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
@dataclass(frozen=True, slots=True)
class TimelineSpan:
    begin_s: float
    end_s: float
    kind: SpanKind
    name: str
class auto:

    def __init__(self, threshold: int | None=None, *, min_calls: int | None=None, mode: str='default', boundaries: Mapping[str, bool] | None=None, only_faster: bool | None=None) -> None:
        ...
class boundary:

    def __init__(self, name: str, *, compile: bool | None=None) -> None:
        ...
def load_boundaries(path: Path) -> dict[str, BoundaryRule]:
    ...
