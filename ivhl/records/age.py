"""Which of two records is newer, also where a clock was wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final, Protocol

# A machine without a working clock battery is years off; one with another time zone, hours.
_AHEAD: Final = timedelta(days=31)


class Dated(Protocol):
    """A record, or what the index keeps of one."""

    @property
    def recorded_at(self) -> str:
        """When it was made."""


def recorded_rank(record: Dated) -> tuple[bool, str]:
    """Return the rank of a record by time: whatever asks which of two is newer compares these."""
    at = record.recorded_at
    return at <= latest_possible(), at  # as ``rank_of``: called for every point of a history


def rank_of(recorded_at: str) -> tuple[bool, str]:
    """Return the rank of a time of recording.

    A record from the future is older than all others. Its machine had a wrong clock, or its sender
    wants it to stay: by its date alone, one of 2099 would hide every later record of its case until
    then.
    """
    return not is_in_future(recorded_at), recorded_at


def is_in_future(recorded_at: str) -> bool:
    """Return whether a time of recording lies further ahead than clocks of machines differ."""
    # In one form and one zone, so the order of the texts is that of the times.
    return recorded_at > latest_possible()


@cache
def latest_possible() -> str:
    """Return the latest time of recording that is not in the future, as this process started."""
    return (datetime.now(UTC) + _AHEAD).isoformat(timespec="seconds")
