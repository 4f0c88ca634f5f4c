"""The phases of measuring a case, of which records hold the seconds (``RunRecord.phase_s``)."""

from __future__ import annotations

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
