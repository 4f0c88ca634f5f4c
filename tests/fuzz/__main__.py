"""Attack for some time: ``python -m tests.fuzz --seconds 600 --seed 1 [TARGET...]``."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz.targets import TARGETS

_EXAMPLES = 200
_FRAMES = 6


def attack(name: str, number: int, examples: int) -> int:
    """Attack a target with generated arguments; return how many there were.

    Args:
        name: A key of ``TARGETS``.
        number: Seed: the same one gives the same arguments.
        examples: How many at most.

    Raises:
        Exception: What the target raised, with the smallest arguments that do so in its notes.
    """
    function, strategies = TARGETS[name]
    done = 0

    def one(arguments: tuple[object, ...]) -> None:
        nonlocal done
        done += 1
        function(*arguments)

    run = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
        print_blob=False,
    )(seed(number)(given(st.tuples(*strategies))(one)))
    run()
    return done


def main() -> int:
    """Attack the targets in turns until the time is over; return 1 if one was found broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], help="default: all")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument(
        "--seed", type=int, default=0, help="of the first round; then one more each"
    )
    given_ = parser.parse_args()
    names = given_.targets or list(TARGETS)
    counts: Counter[str] = Counter()
    broken: dict[str, int] = {}
    began, number = time.monotonic(), given_.seed
    while time.monotonic() - began < given_.seconds and len(broken) < len(names):
        for name in names:
            if name in broken or time.monotonic() - began >= given_.seconds:
                continue
            try:
                counts[name] += attack(name, number, _EXAMPLES)
            except Exception:  # noqa: BLE001  (whatever it is, the others are attacked)
                broken[name] = number
                sys.stdout.write(f"{name}, seed {number}:\n")
                traceback.print_exc(limit=-_FRAMES)
        number += 1
    took = time.monotonic() - began
    for name in names:
        state = f"broken with seed {broken[name]}" if name in broken else "held"
        sys.stdout.write(f"{name:<14} {counts[name]:>9} executions  {state}\n")
    sys.stdout.write(
        f"{counts.total()} executions in {took:.0f} s, seeds {given_.seed} to {number - 1}\n"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
