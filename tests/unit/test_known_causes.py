"""ivhl names a known cause beside the changes and failures that it explains, and beside no other."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from ivhl.observatory.record import read_observed
from ivhl.observatory.signatures import signatures_of
from ivhl.records.identity import CaseInCell, case_of
from ivhl.records.reader import read_record
from ivhl.tracker.changes.incidents import causes_on, note_on
from ivhl.tracker.changes.kinds import KINDS
from ivhl.tracker.changes.regressions import Change
from ivhl.tracker.support.expectations import ChangeNote, within
from ivhl.tracker.support.known import (
    KnownCause,
    Sign,
    causes_in,
    causes_of,
    causes_of_script,
    known_causes,
)
from studies.findings import PAGE, findings

if TYPE_CHECKING:
    from ivhl.tracker.changes.kinds import Kind
    from ivhl.tracker.changes.series import Along
    from ivhl.tracker.store.metrics import Metric

ROOT = Path(__file__).parents[2]
CASE = CaseInCell(
    machine="bench", device="cpu", python="3.12", torch="2.9.1", existing=False,
    workload="ops.gp_evolve", workload_version=1, size="small", variant="real-compiled",
)  # fmt: skip
SCRIPTS = {one.name: one for one in known_causes() if one.script}


def change(
    before: str,
    place: str,
    kind: Kind = "slower",
    *,
    along: Along = "torch",
    reason: str = "",
    of: Metric = "speedup",
) -> Change:
    return Change(
        along=along, case=CASE, before=before, place=place, kind=kind, reason=reason,
        effect=0.6, state="persists", at="", command="", effect_of=of,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("along", "before", "place", "keys", "is_of"),
    [
        ("torch", "2.6.0", "2.13.0", {"torch": ">=2.13"}, True),
        ("torch", "2.6.0", "2.13.0", {"torch": ">=2.7.1"}, True),  # between the two, and not run
        ("torch", "2.6.0", "2.13.0", {"torch": ">=2.10", "workload": "ops.*"}, True),
        ("torch", "2.6.0", "2.13.0", {"torch": ">=2.10", "workload": "mlff.*"}, False),
        ("torch", "2.6.0", "2.13.0", {"torch": ">=2.6"}, False),  # both have it
        ("torch", "2.6.0", "2.13.0", {"torch": ">=2.14"}, False),
        ("torch", "2.6.0", "2.13.0", {"torch": ">=2.9,<2.10"}, False),  # over before the place
        ("torch", "2.6.0", "2.13.0", {"torch": "<2.10"}, True),  # and where it ends
        ("python", "3.12", "3.13", {"python": ">=3.13"}, True),
        ("python", "3.12", "3.13", {"torch": ">=2.13"}, False),
        ("commit", "aaa", "213abc", {"commit": "213a"}, True),  # as the beginning of a hash
        ("commit", "aaa", "213abc", {"torch": ">=2.7"}, False),
        ("torch", "2.6.0", "2.13.0", {"commit": "2130"}, False),
    ],
)
def test_a_note_is_about_the_changes_at_the_ends_of_its_range(
    along: Along,
    before: str,
    place: str,
    keys: dict[str, str],
    is_of: bool,  # noqa: FBT001  (a row)
) -> None:
    note = ChangeNote.model_validate({"reason": "known", **keys})
    assert note_on(change(before, place, along=along), [note]) == ("known" if is_of else "")


SLOW = {
    side: KnownCause.model_validate(
        {"name": side, "title": side, "sign": [{"torch": ">=2.9,<2.10", "side": side}]}
    )
    for side in ("compiled", "eager")
}


@pytest.mark.parametrize(
    ("ends", "kind", "of", "sides"),
    [
        (("2.8.0", "2.9.1"), "slower", "speedup", ["compiled"]),
        (("2.8.0", "2.9.1"), "slower", "compiled", ["compiled"]),
        (("2.8.0", "2.9.1"), "eager slower", "eager", ["eager"]),
        (("2.8.0", "2.9.1"), "faster", "speedup", ["eager"]),  # since eager code got slower
        (("2.8.0", "2.9.1"), "faster", "compiled", []),
        (("2.8.0", "2.9.1"), "degraded", "speedup", []),
        (("2.9.1", "2.10.0"), "faster", "compiled", ["compiled"]),
        (("2.9.1", "2.10.0"), "slower", "compiled", []),
        (("2.8.0", "2.10.0"), "slower", "compiled", []),
    ],
)
def test_what_takes_longer_explains_the_changes_of_its_side(
    monkeypatch: pytest.MonkeyPatch,
    ends: tuple[str, str],
    kind: Kind,
    of: Metric,
    sides: list[str],
) -> None:
    monkeypatch.setattr("ivhl.tracker.changes.incidents.known_causes", SLOW.values)
    found = causes_on(change(*ends, kind, of=of))
    assert [one.title for one in found] == sides
    assert kind in KINDS


def test_a_failure_is_explained_where_it_begins_and_where_it_ends() -> None:
    gate = "support_gate: Dynamo is not supported on Python 3.13+"
    for kind in ("fails", "fixed"):
        (one,) = causes_on(change("2.6.0", "2.5.1", kind, reason=gate))
        assert one.short == "pytorch/pytorch#144048"
    assert causes_on(change("2.6.0", "2.5.1", "slower", reason=gate)) == ()


def test_a_cause_is_of_its_releases_cases_and_class_only() -> None:
    case = CASE._replace(workload="mlff.edge_list", torch="2.6.0")
    (one,) = causes_of(case, "wrong", "")
    assert one.name == "wrong-lost-additions"
    assert causes_of(case._replace(torch="2.7.1"), "wrong", "") == ()
    assert causes_of(case._replace(workload="ops.intensity"), "wrong", "") == ()
    assert causes_of(case, "crash", "") == ()
    assert causes_in(case, "", "Dynamo is not supported on Windows") == ()
    (one,) = causes_in(case, "", "module 'torch.compiler' has no attribute 'is_exporting'")
    assert one.name == "fails-is-exporting"
    # Any script can print these words, so the sign is of two libraries.
    assert causes_in(case, "", "name 'torch' is not defined") == ()
    (one,) = causes_in(case, "", "name 'torch' is not defined", ("transformers", "llama", "step"))
    assert one.name == "fails-is-exporting"


def test_a_sign_of_nothing_is_refused() -> None:
    with pytest.raises(ValidationError, match="a class, a message, a side or a script"):
        Sign(torch=">=2.9")


def test_the_page_of_findings_is_made_of_the_causes() -> None:
    assert findings() == PAGE.read_text(encoding="utf-8"), "run: python -m studies.findings"


def test_each_cause_has_a_script_or_a_command_that_shows_it() -> None:
    for one in known_causes():
        assert bool(one.script and one.prints) != bool(one.command), one.name
        assert not one.script or (ROOT / one.script).is_file(), one.name
    assert Counter(one.title for one in known_causes()).most_common(1)[0][1] == 1


def test_each_sign_of_a_failure_is_that_of_a_committed_record() -> None:
    observed = tuple(read_observed(ROOT / "observatory" / "records", print).values())
    seen = {one for signature in signatures_of(observed) for one in signature.known}
    lines = (
        line
        for path in (ROOT / "results").glob("*/records/*.jsonl")
        for line in path.read_bytes().splitlines()
    )
    # Of a record without a failure, only the JSON is read: all records take seconds.
    for record in map(read_record, (line for line in lines if json.loads(line)["failure"])):
        if record.failure is not None:
            failure = record.failure
            seen |= {*causes_of(case_of(record), failure.failure_class, failure.message)}
    told = {one for one in known_causes() if any(s.failure_class or s.message for s in one.signs)}
    assert {one.name for one in told - seen} == set()


@pytest.mark.parametrize(
    "name", [one.name for one in known_causes() if any(sign.script for sign in one.signs)]
)
def test_a_cause_is_found_in_our_script_of_it_and_in_no_script_of_another(name: str) -> None:
    cause = SCRIPTS[name]
    told = {one.script for one in known_causes() if any(sign.message for sign in one.signs)}
    texts = {
        path.name: path.read_text(encoding="utf-8")
        for path in (ROOT / cause.script).parent.glob("*.py")
        if str(path.relative_to(ROOT)) not in told - {cause.script}
    }
    (sign,) = (one for one in cause.signs if one.script)
    torch = next(shown[0] for shown in reversed(cause.prints) if within(sign.torch, shown[0]))
    found = {
        path for path, text in texts.items() if cause in causes_of_script(text, sign.stage, torch)
    }
    number = (cause.url or "").rpartition("/")[2]
    others = re.compile(rf"pytorch/(?:issues|pull)/(?!{number}\b)")
    assert Path(cause.script).name in found
    assert [path for path in found if others.search(texts[path])] == []
    assert all(causes_of_script(text, "another", torch) == () for text in texts.values())
