"""A person's word stands beside the changes that it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ivhl.tracker.annotations import Annotation
from ivhl.tracker.compare import ComparedCase
from ivhl.tracker.regressions import Change

if TYPE_CHECKING:
    from ivhl.tracker.series import Along

CASE = ComparedCase(
    machine="bench", device="cpu", python="3.12", torch="", existing=False,
    workload="ops.gp_evolve", workload_version=1, size="small", variant="real-compiled",
)  # fmt: skip


@pytest.mark.parametrize(
    ("along", "place", "cases", "is_of"),
    [
        ("torch", "2.13.0", "*", True),
        ("torch", "2.7.1", "*", True),  # between the two, and not run
        ("torch", "2.10.0", "ops.*/small/*", True),
        ("torch", "2.10.0", "mlff.*", False),
        ("torch", "2.6.0", "*", False),
        ("torch", "2.14.1", "*", False),
        ("torch", "abcdef", "*", False),
        ("commit", "2.13", "*", True),  # as the beginning of a hash
        ("commit", "2.7.1", "*", False),
    ],
)
def test_a_word_is_about_the_change_in_which_its_place_lies(
    along: Along,
    place: str,
    cases: str,
    is_of: bool,  # noqa: FBT001  (a row)
) -> None:
    change = Change(
        along=along, case=CASE, before="2.6.0", place="2.13.0", kind="slower", reason="",
        effect=0.6, state="persists", at="", command="",
    )  # fmt: skip
    assert Annotation(place=place, cases=cases, text="known", at="now").is_of(change) == is_of
