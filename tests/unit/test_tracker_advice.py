"""``ivhl advise``: the newest Python that costs nothing, and why not the others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from ivhl.records.identity import key_of
from ivhl.tracker.causes.advice import Advice, advise
from ivhl.tracker.store.spread import SHIPPED
from ivhl.tracker.support.compat import compat_rows, python_key
from tests.builders.records import make_failure, make_record

if TYPE_CHECKING:
    from ivhl.records.record import RunRecord

CASES = tuple(f"ops.case_{n}" for n in range(4))


def advice_of(*records: RunRecord) -> Advice | None:
    return advise(compat_rows(records), SHIPPED)


def on(python: str, torch: str = "2.15.0", speedup: float = 2.0) -> list[RunRecord]:
    """Return a record of every case in a cell."""
    made = make_record(python=python, torch=torch, speedup=speedup, width=0.005)
    return [replace(made, workload=case) for case in CASES]


def test_the_newest_python_is_taken_where_all_are_alike() -> None:
    found = advice_of(*on("3.12"), *on("3.13"), *on("3.14"))
    assert found is not None
    assert (found.python, found.torch, found.against) == ("3.14", "2.15.0", {})
    assert "4 of 4 cases pass" in str(found)
    assert "times those on 3.12 (4 comparable cases)." in str(found)


def test_a_python_that_breaks_a_case_is_not_taken_and_the_case_is_named() -> None:
    broken = replace(make_failure("crash", "signal 11", python="3.14", torch="2.15.0"))
    on_14 = [replace(broken, workload=CASES[0]), *on("3.14")[1:]]
    found = advice_of(*on("3.12"), *on("3.13"), *on_14)
    assert found is not None
    assert found.python == "3.13"
    # Compared with the one to take, not with each other one.
    assert found.against["3.14"].startswith("1 case passes on 3.13 but fails on 3.14: ")
    assert f"{CASES[0]}/" in found.against["3.14"]
    assert "3.12" not in found.against["3.14"]


def test_a_slower_python_is_not_taken() -> None:
    found = advice_of(*on("3.12"), *on("3.13", speedup=1.0))
    assert found is not None
    assert found.python == "3.12"
    assert "are slower on 3.13 than on 3.12: " in found.against["3.13"]


def test_a_release_with_a_single_case_of_a_search_is_not_judged() -> None:
    """`ivhl bisect` runs one case on a newer release: nothing is known of the others there."""
    (one, *_) = on("3.13", torch="2.16.0", speedup=0.1)
    found = advice_of(*on("3.12"), *on("3.13"), one)
    assert found is not None
    assert (found.python, found.torch, found.changed) == ("3.13", "2.15.0", "")
    earlier, *_ = on("3.13", torch="2.14.0", speedup=9.0)
    assert advice_of(*on("3.12"), *on("3.13"), one, earlier) == found
    half = on("3.13", torch="2.16.0")[:2]
    found = advice_of(*on("3.12"), *on("3.13"), *half)
    assert found is not None
    assert found.torch == "2.16.0"


def test_a_python_is_not_slower_by_a_disturbed_run() -> None:
    slow = [replace(one, recorded_at="2026-11-28T12:00:00+00:00") for one in on("3.13", speedup=1)]

    def with_disturbed(number: int) -> Advice | None:
        keys = {key_of(one) for one in slow[:number]}
        return advise(compat_rows([*on("3.12"), *slow]), SHIPPED, keys)

    found = with_disturbed(4)
    assert found is not None
    assert (found.python, found.against) == ("3.13", {})
    assert found.reasons == ("Times on 3.12 are not compared: 4 cases with a disturbed run.",)
    found = with_disturbed(2)
    assert found is not None
    assert found.python == "3.12"
    assert "2 cases are slower on 3.13 than on 3.12: " in found.against["3.13"]
    assert found.reasons[0].endswith(
        "(2 comparable cases; 2 cases with a disturbed run left out)."
    )


def test_the_newest_release_with_a_result_is_taken_with_what_it_changed() -> None:
    refused = [
        replace(make_failure(python="3.13", torch="2.16.0"), workload=case) for case in CASES
    ]
    found = advice_of(*on("3.13", "2.6.0", 4.0), *on("3.13"), *refused)
    assert found is not None
    assert found.torch == "2.15.0"
    assert found.changed.startswith("Since PyTorch 2.6.0: 4 slower cases: ")
    candidate = on("3.13", "2.15.0rc1")
    assert advice_of(*on("3.13", "2.6.0", 4.0), *candidate, *on("3.13"), *refused) == found


def test_a_release_that_could_not_be_installed_was_not_the_one_before() -> None:
    absent = make_failure("unavailable", "no wheels", python="3.14", torch="2.6.0")
    found = advice_of(*(replace(absent, workload=case) for case in CASES), *on("3.14"))
    assert found is not None
    assert found.changed == ""


def test_a_nightly_is_not_taken_where_a_release_works() -> None:
    nightly = "2.16.0.dev20261120"
    found = advice_of(*on("3.13"), *on("3.13", nightly))
    assert found is not None
    assert found.torch == "2.15.0"
    alone = advice_of(*on("3.13", nightly))
    assert alone is not None
    assert alone.torch == nightly


def test_other_builds_of_python_are_named_beside_their_versions() -> None:
    def built(records: list[RunRecord], build: str | None) -> list[RunRecord]:
        return [
            replace(one, conditions=replace(one.conditions, python_build=build)) for one in records
        ]

    gcc, other = "GCC 12.2.0, glibc 2.36", "GCC 14.2.0, glibc 2.41"
    for build, said in (
        (gcc, ""),
        (
            other,
            f"differ in their builds, too, which may change speed (3.12: {gcc}; 3.13: {other}).",
        ),
        (None, "The records do not say how these Pythons were built, which may change speed."),
    ):
        found = advice_of(*built(on("3.12"), gcc), *built(on("3.13"), build))
        assert found is not None
        assert found.builds.endswith(said)
        assert bool(found.builds) == bool(said)
        assert found.builds in str(found)
    alone = advice_of(*on("3.13"))
    assert alone is not None
    assert alone.builds == ""


def test_nothing_is_advised_without_a_result() -> None:
    assert advice_of() is None
    assert advice_of(make_failure(python="3.13")) is None


def test_a_free_threaded_python_is_compared_and_not_taken() -> None:
    found = advice_of(*on("3.13"), *on("3.14"), *on("3.14t", speedup=8.0), *on("3.14t", "2.16.0"))
    assert found is not None
    assert (found.python, found.torch, found.cost) == ("3.14", "2.15.0", "")
    assert "times those on 3.14t (4 comparable cases)." in str(found)
    slow = advice_of(*on("3.14"), *on("3.14t", speedup=1.0))
    assert slow is not None
    assert "slower on 3.14t than on 3.14: " in slow.against["3.14t"]


def test_a_free_threaded_python_is_taken_where_no_other_works() -> None:
    refused = [replace(make_failure(python="3.14", torch="2.15.0"), workload=c) for c in CASES]
    found = advice_of(*refused, *on("3.14t"))
    assert found is not None
    assert found.python == "3.14t"


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["3.12", "3.13", "3.14"]), st.booleans(), min_size=1))
def test_a_python_on_which_all_fails_is_taken_only_if_none_is_left(works: dict[str, bool]) -> None:
    records = [
        record
        for python, right in works.items()
        for record in (
            on(python)
            if right
            else [replace(make_failure(python=python, torch="2.15.0"), workload=c) for c in CASES]
        )
    ]
    found = advice_of(*records)
    right = sorted((python for python, one in works.items() if one), key=python_key)
    assert (found.python if found else None) == (right[-1] if right else None)
