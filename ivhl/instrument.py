"""The version of the instrument (the measuring code), and the versions of older records.

A maintainer raises ``INSTRUMENT`` when the same code under test could give other numbers, and
describes the change in one line. ``tests/contract/test_instrument.py`` demands that, or a reason
why not, whenever measuring code changes. Records of different versions are never compared.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

INSTRUMENT: Final = 6

# Version to what it changed in the numbers, and why.
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
        6: "Code that draws random numbers is judged by its law where it is wrong only "
        "with the harness's setting of random numbers, and then timed without that "
        "setting; a frame at the recompile limit keeps its number; declarations that do "
        "not say otherwise are compiled with dynamic=None; frames that 2.5 and 2.6 skip "
        "for a break in a loop are counted, and each recompile once; float64 draws from the "
        "generators of the code in eager's precision; a sum may be off by what any order of it "
        "rounds; parameters of a subclass of Tensor are compared by their numbers.",
    }
)

# Records of ivhl.run/1 hold a digest of the bytes of the measuring code, which even a comment
# changes. These are the digests in the committed records, and the last one, each with its version.
# The comments name the commits with that digest and why it does or does not begin a version. Found
# by computing the digest of every commit (docs/measuring.md, "Instrument").
DIGESTS: Final = MappingProxyType(
    {
        # 5a2b5e55 to 6a204149. The first one with records.
        "8e72ef3d5de31187": 1,
        # 17ce042b to f420b1bb. Version 2 begins with 3fae6f42, before it. Inductor's configuration
        # now declares the vector instructions; its check for them ran before the clock started.
        "9b1ab22935497857": 2,
        # No commit: a working tree of 2026-11-20, 17:17 to 18:30 UTC, between 1c58db1a and
        # 578bb7c1. It set GLIBC_TUNABLES, as the working tree did since 16:50.
        "7698f116d9cd54c7": 3,
        # 10684723 and later, until the nursery. Since 578bb7c1 only the costs of workloads changed,
        # which can only refuse a case before it is measured.
        "83fd1d09eeab54e2": 3,
        # f9a9cc4c and later: the nursery.
        "071e20c884bab1e2": 4,
        # 4a783ef1. Engines, precisions and modes for new variants. Older variants still make the
        # same calls, with the same arms in the same order.
        "2123dbd60a6f4e52": 4,
        # ec6f4071. A 16 roundings wider error limit for variants in their own precision. All 16
        # records of such variants with the previous digest had passed without it.
        "06a768ca2795d3d7": 4,
        # 0fffef3c. Stability is checked before the first child starts, and a record can name its
        # image. On a GPU, each call is timed between its own events with a cold L2 cache; no older
        # record was measured on a GPU.
        "d1597200b6c0eba2": 4,
        # 78173808. Converts a float to float.
        "8af72f5a14a824ec": 4,
    }
)


def version_of(instrument: str) -> str:
    """Return the version that made a record, or the digest itself if it is unknown.

    Two records are comparable if this is equal for both.

    Args:
        instrument: ``conditions.instrument``: a version, or in ``ivhl.run/1`` a digest.
    """
    return str(DIGESTS.get(instrument, instrument))


def describe_instrument(instrument: str) -> str:
    """Return the version as text: ``version 4``, or ``unknown (8e72ef3d5de31187)``."""
    version = version_of(instrument)
    known = version in map(str, HISTORY)
    return f"version {version}" if known else f"unknown ({version})"
