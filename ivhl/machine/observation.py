"""One observation about the machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, get_args

from ivhl.records.record import Level

# A result of a check: level, observation, next step.
Found: TypeAlias = tuple[Level, str, str]
LEVELS: Final[tuple[Level, ...]] = get_args(Level)


@dataclass(frozen=True, slots=True)
class Observation:
    """One observation about the machine, or about a program that a run needs.

    Attributes:
        check: What was checked, e.g. ``governor``.
        level: ``warning`` if it makes numbers noisier or a run slower; ``wrong`` if it makes a run
            fail or its numbers meaningless.
        seen: What was observed. Records keep that of stability: no path, no host name.
        hint: What to do next; empty if ``level`` is ``ok``.
    """

    check: str
    level: Level
    seen: str
    hint: str = ""
