"""The version of the way of measuring, and which version made an older record.

A person raises ``INSTRUMENT`` when the same code could come out with other numbers, and writes one
line about it. ``tests/contract/test_instrument.py`` asks for that, or for a reason why not,
whenever code that can change a number has changed. Records of two versions are not compared.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

INSTRUMENT: Final = 5

# Version to what came out differently from then on, and why.
HISTORY: Final = MappingProxyType(
    {
        1: "The first: children imported torch themselves, glibc's thresholds moved as they went.",
        2: "The variant's own source is called before eager is timed: with thresholds that move, "
        "what was freed before decides how long an allocation takes.",
        3: "GLIBC_TUNABLES fixes the thresholds of the allocator (ADR 0010): eager calls took 0.6 "
        "or 2.7 ms before, by what the process had freed.",
        4: "Children on the CPU are forked from a process that has imported the compiler (ADR "
        "0003): other imports are left for the first compile, and another heap for every call.",
        5: "Two processes per case, forked from different ones; other data in every block, after an "
        "untimed call; balanced orders drawn by case and run (the one order of before made A/A of "
        "four arms -1.3 %); CPU time counts descendants; compiling is done beforehand, on all "
        "cores, with one compile thread each.",
    }
)

# Until ivhl.run/2 a record held a digest of the bytes of the measuring code, which a comment
# changed. These are the digests of the committed records, and of the last such code. Each names the
# commits that have it and why it begins a version, or does not; found by computing the digest of
# every commit (docs/measuring.md, "Instrument").
DIGESTS: Final = MappingProxyType(
    {
        # 5a2b5e55 to 6a204149. The first in the results.
        "8e72ef3d5de31187": 1,
        # 17ce042b to f420b1bb. Version 2 begins with 3fae6f42, before it. Inductor is told by its
        # configuration that the vector instructions work: that check ran before the clock started.
        "9b1ab22935497857": 2,
        # No commit: a working tree of 2026-11-20, 17:17 to 18:30 UTC, between 1c58db1a and
        # 578bb7c1. It had GLIBC_TUNABLES, which were there from 16:50 on.
        "7698f116d9cd54c7": 3,
        # 10684723 and later, until the nursery. Since 578bb7c1 nothing but the costs of workloads,
        # which refuse a case before it is measured.
        "83fd1d09eeab54e2": 3,
        # f9a9cc4c and later: the nursery.
        "071e20c884bab1e2": 4,
        # 4a783ef1. Engines, precisions and modes for new variants. Those there were take the same
        # path: the same calls and arms in the same order.
        "2123dbd60a6f4e52": 4,
        # ec6f4071. Sixteen roundings more for variants in a precision of their own. The 16 records
        # of such variants that the digest before has had passed without them.
        "06a768ca2795d3d7": 4,
        # 0fffef3c. Stability is looked at before the first child starts, and a record can name its
        # image. On a GPU, each call is timed between its own events with a cold L2 cache; no record
        # of a GPU is older.
        "d1597200b6c0eba2": 4,
        # 78173808. A conversion to float of what was a float.
        "8af72f5a14a824ec": 4,
    }
)


def version_of(instrument: str) -> str:
    """Return the version that made a record; an unknown digest stands for itself.

    Two records were measured alike if this is equal for both.

    Args:
        instrument: ``conditions.instrument``: a version, or the digest of a record from before
            there were versions.
    """
    return str(DIGESTS.get(instrument, instrument))


def told_instrument(instrument: str) -> str:
    """Return the version for people: ``version 4``, or ``unknown (8e72ef3d5de31187)``."""
    version = version_of(instrument)
    known = version.isdecimal() and int(version) in HISTORY
    return f"version {version}" if known else f"unknown ({version})"
