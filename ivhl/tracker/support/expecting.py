"""What the records say of the known failures (``ivhl check expectations``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ivhl.records.record import FailureClass
    from ivhl.tracker.support.compat import Row
    from ivhl.tracker.support.expectations import Expectation, Expectations

# What the project's own code did, before anything was compiled.
OF_THE_PROJECT: Final[frozenset[FailureClass]] = frozenset(
    {"build", "absent", "import", "inputs", "reference", "eager_failed"}
)


@dataclass(frozen=True, slots=True)
class Standing:
    """What the records say of an entry.

    Attributes:
        occurs: Cases that fail as it says.
        fixed: Cases that pass.
        otherwise: Cases that fail in another way, which no entry expects.
        is_unmatched: Whether it covers nothing that was measured.
    """

    entry: Expectation
    occurs: tuple[Row, ...]
    fixed: tuple[Row, ...]
    otherwise: tuple[Row, ...]
    is_unmatched: bool


def standings(expectations: Expectations, rows: Iterable[Row]) -> tuple[Standing, ...]:
    """Return what the rows say of each entry, in the order of the file."""
    measured = _measured(rows)
    found = []
    for entry in expectations.entries:
        here = [row for row in measured if entry.covers(row.in_cell)]
        occurs = tuple(row for row in here if row.failure_class == entry.failure_class)
        fixed = tuple(row for row in here if row.failure_class is None)
        otherwise = tuple(
            row
            for row in here
            if row.failure_class not in (None, entry.failure_class)
            and expectations.of(row.in_cell, row.failure_class) is None
        )
        found.append(Standing(entry, occurs, fixed, otherwise, not here))
    return tuple(found)


def unexpected(expectations: Expectations, rows: Iterable[Row]) -> tuple[Row, ...]:
    """Return the rows that PyTorch failed and no entry expects."""
    failed = (row for row in _measured(rows) if row.is_failure)
    return tuple(row for row in failed if expectations.of(row.in_cell, row.failure_class) is None)


def _measured(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row.recorded is not None and not row.existing]
