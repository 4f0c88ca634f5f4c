"""The study of ``ivhl gate --confirm`` judges stored pairs again, and draws sessions from them."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from ivhl.bench.experiment.evidence import ROUNDS, WEIGHED
from studies.confirmation.drawn import draw_sessions
from studies.confirmation.report import GOES_ON, judge_again

QUIET = [0.002, -0.002, 0.003, -0.003, 0.001, -0.001]
NOISY = [0.3, -0.3, 0.2, -0.2, 0.1, -0.1]


def moves_of(compiled: list[float], rounds: int = 1) -> dict[str, list[list[float]]]:
    return {metric: [compiled if metric == "compiled" else QUIET] * rounds for metric in WEIGHED}


@pytest.mark.parametrize(
    ("moves", "said"),
    [
        (moves_of(QUIET, 3), ("unchanged", 1)),
        (moves_of([move + 0.05 for move in QUIET]), ("slower", 1)),
        (moves_of(NOISY, 2), (GOES_ON, 2)),
        (moves_of(NOISY, ROUNDS), ("inconclusive", ROUNDS)),
    ],
)
def test_stored_rounds_are_judged_by_the_rule_of_today(
    moves: dict[str, list[list[float]]], said: tuple[str, int]
) -> None:
    assert judge_again(moves) == said


def test_drawn_sessions_have_the_noise_of_unchanged_code_and_the_shift() -> None:
    same: dict[str, Any] = {
        "planted": "same",
        "session": "a",
        "case": "b",
        "moves": moves_of(QUIET),
    }
    more = same | {"planted": "more", "moves": moves_of(NOISY)}  # not drawn from
    for shift, verdict in (
        (0.0, "unchanged"),
        (math.log(1.1), "slower"),
        (-math.log(1.1), "faster"),
    ):
        assert draw_sessions([same, more], shift, 50, random.Random(0)) == {verdict: 50}  # noqa: S311
