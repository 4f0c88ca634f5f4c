"""One verdict: what `ivhl try` finds of a case of a library in a cell, as a line of JSON.

``observatory/records/LIBRARY.jsonl`` holds them; lines are appended, and of one ``Key`` the newest
counts. ``None`` means unknown.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from ivhl.errors import ResultsError
from ivhl.matrix.spec import CellSpec, explain
from ivhl.records.age import rank_of
from ivhl.records.files import append_line
from ivhl.records.lines import LONGEST_LINE, lines_of, read_plain
from ivhl.records.record import FailureClass, Phase  # noqa: TC001  (pydantic reads them)
from ivhl.tracker.wording import Status  # noqa: TC001  (likewise)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SCHEMA: Final = "ivhl.observed/1"
LONGEST_MESSAGE: Final = 2000
LONGEST_NAME: Final = 200
MOST_BREAKS: Final = 200
LARGEST: Final = 1e9

Ask = Literal["forward", "step"]
Unavailable = Literal["", "pinned out", "no wheel"]
# Far outside of what can be counted; a sum of many stays a number that Python prints.
_Count = Annotated[int, Field(ge=0, le=2**40)]
_Seconds = Annotated[float, Field(ge=0, le=LARGEST, strict=False, allow_inf_nan=False)]
_Name = Annotated[str, Field(max_length=LONGEST_NAME)]
_Text = Annotated[str, Field(max_length=LONGEST_MESSAGE)]
# A hint for projects, which have no rows; in older records a file that Inductor wrote, as a place.
_NOT_SAID: Final = r"; `requires` in \S+ names .*|(?:^| at )[a-z2-7]{2}/c[a-z2-7]{40,}\.py:\d+"
_SAID: Final = AfterValidator(lambda text: re.sub(_NOT_SAID, "", text))
# They are parts of addresses.
Python = Annotated[str, Field(pattern=r"^[0-9]{1,2}\.[0-9]{1,3}t?$")]
Release = Annotated[
    str, Field(pattern=r"^[0-9]{1,3}(?:\.[0-9]{1,9}){2}(?:(?:a|b|rc|\.dev|\.post)[0-9]{1,9})?$")
]


def _time(text: str) -> str:
    with suppress(ValueError):
        if datetime.fromisoformat(text).isoformat(timespec="seconds") == text:
            return text
    raise ValueError("must be a time like 2026-11-28T09:30:00+00:00")


_Time = Annotated[
    str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00$"), AfterValidator(_time)
]


class _RecordModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True)


class Failed(_RecordModel):
    """Why a case failed.

    Attributes:
        exception: Its type with its module; empty without an exception.
        where: ``file:line`` of the innermost frame in code of the library, or empty.
        frame: File and function of the innermost frame in torch, such as
            ``torch/_inductor/lowering.py:_unique2``, or empty.
    """

    phase: Phase
    failure_class: FailureClass = Field(alias="class")
    exception: _Name
    message: Annotated[_Text, _SAID]
    where: Annotated[_Name, _SAID]
    frame: _Name


class Break(_RecordModel):
    """A reason of graph breaks, and how many there were."""

    text: _Text
    count: _Count


class Second(_RecordModel):
    """A call with a larger batch.

    Attributes:
        off: Largest difference from eager over the largest value; ``None`` if they were not
            compared, as after an exception or with random numbers.
    """

    inputs: _Text
    recompiles: _Count | None
    off: _Seconds | None


class Key(NamedTuple):
    """The subject of a record: a later record of the same key replaces it."""

    library: str
    case: str
    ask: Ask
    cell: str
    machine: str


class Observed(_RecordModel):
    """The verdict on a case of a library in a cell.

    Attributes:
        target: As the row has it.
        inputs: As ``ivhl try`` prints them.
        version: Version of the library.
        lock: SHA-256 of the cell's lock; ``None`` if the cell cannot exist.
        overlay: Name of the lock of what the library adds, in ``observatory/locks``.
        row: SHA-256 of what the row says of this case.
        instrument: Version of the measuring code.
        at: UTC, to the second.
        cpu_s: CPU seconds of all processes; of the first case of a library in a cell with those
            that made its environment.
        why: The verdict with its reason, in a line.
        unavailable: Its kind, if that is the status.
        error: Largest RMSE over its limit, of all outputs.
        compile_s: Seconds of the first compiled call.
        eager_s: Median seconds of a call, a first look and no measurement.
        compiled_s: Likewise.
    """

    schema_: Literal["ivhl.observed/1"] = Field(SCHEMA, alias="schema")
    library: _Name
    case: _Name
    ask: Ask
    target: _Text
    inputs: _Text | None = None
    version: _Name | None = None
    cell: _Name
    python: Python
    torch: Release
    lock: _Name | None
    overlay: _Name | None = None
    row: _Name
    instrument: _Name
    machine: _Name
    at: _Time
    cpu_s: _Seconds
    wall_s: _Seconds
    status: Status
    why: Annotated[_Text, _SAID]
    unavailable: Unavailable = ""
    failure: Failed | None = None
    graphs: _Count | None = None
    graph_breaks: Annotated[tuple[Break, ...], Field(strict=False, max_length=MOST_BREAKS)] = ()
    recompiles: _Count | None = None
    second: Second | None = None
    error: _Seconds | None = None
    compile_s: _Seconds | None = None
    eager_s: _Seconds | None = None
    compiled_s: _Seconds | None = None

    @model_validator(mode="after")
    def _is_of_its_cell(self) -> Self:
        if self.cell != CellSpec(self.python, self.torch).id:
            raise ValueError(
                f"cell {self.cell} must have the Python and the release of the record, "
                f"{self.python} and {self.torch}"
            )
        return self

    @property
    def key(self) -> Key:
        """What it is about."""
        return Key(self.library, self.case, self.ask, self.cell, self.machine)


def to_line(record: Observed) -> str:
    """Return a record as one line of JSON."""
    return json.dumps(record.model_dump(by_alias=True), allow_nan=False)


def append(folder: Path, record: Observed) -> None:
    """Append a record to the file of its library in ``observatory/records``, and force it to disk.

    Raises:
        OSError: If the disk is full, or the file cannot be written.
    """
    append_line(folder / f"{record.library}.jsonl", to_line(record))


def read_observed(folder: Path, tell: Callable[[str], object]) -> dict[Key, Observed]:
    """Return the newest record of each key in ``observatory/records``; empty without that folder.

    Args:
        folder: The folder.
        tell: Called with place and rule of each line, or file, that is no record. A killed run
            leaves half of a line, and whoever calls this goes on.
    """
    found: dict[Key, Observed] = {}
    for record in every_observed(folder, tell):
        older = found.get(record.key)
        if older is None or rank_of(record.at) >= rank_of(older.at):
            found[record.key] = record
    return found


def every_observed(folder: Path, tell: Callable[[str], object]) -> Iterator[Observed]:
    """Yield all records of ``observatory/records``, also those that later ones replace.

    Args:
        folder: The folder.
        tell: As for ``read_observed``.
    """
    for path in sorted(folder.glob("*.jsonl")):
        try:
            data = read_plain(path)
        except ResultsError as error:
            tell(f"{path.name}: {error}")
            continue
        for line in lines_of(data):
            record = _record_of(line.data, f"{path.name}:{line.number}", tell)
            if record is not None:
                yield record


def _record_of(data: bytes, place: str, tell: Callable[[str], object]) -> Observed | None:
    if len(data) > LONGEST_LINE:
        tell(f"{place}: must have at most {LONGEST_LINE} bytes")
        return None
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError):
        tell(f"{place}: is not JSON, as after a run that was killed")
        return None
    try:
        return Observed.model_validate(raw)
    except ValidationError as error:
        tell(f"{place}: {explain(error, Observed)[0]}")
        return None
