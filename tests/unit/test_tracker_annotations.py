"""A person's word stands beside the changes that it is about."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ivhl.records.identity import CaseInCell
from ivhl.tracker.changes.annotations import Annotation, load_annotations
from ivhl.tracker.changes.regressions import Change

if TYPE_CHECKING:
    from ivhl.tracker.changes.series import Along

CASE = CaseInCell(
    machine="bench", device="cpu", python="3.12", torch="", existing=False,
    workload="ops.gp_evolve", workload_version=1, size="small", variant="real-compiled",
)  # fmt: skip


@pytest.mark.parametrize(
    ("along", "place", "cases", "until", "is_of"),
    [
        ("torch", "2.13.0", "*", "", True),
        ("torch", "2.7.1", "*", "", True),  # between the two, and not run
        ("torch", "2.10.0", "ops.*/small/*", "", True),
        ("torch", "2.10.0", "mlff.*", "", False),
        ("torch", "2.6.0", "*", "", False),
        ("torch", "2.14.1", "*", "", False),
        ("torch", "abcdef", "*", "", False),
        ("torch", "2.9.1", "*", "2.10.0", False),  # it was over before the place
        ("torch", "2.9.1", "*", "2.13.0", False),
        ("torch", "2.9.1", "*", "2.14.1", True),
        ("commit", "2.13", "*", "", True),  # as the beginning of a hash
        ("commit", "2.7.1", "*", "", False),
    ],
)
def test_a_word_is_about_the_change_in_which_its_place_lies(
    along: Along,
    place: str,
    cases: str,
    until: str,
    is_of: bool,  # noqa: FBT001  (a row)
) -> None:
    change = Change(
        along=along, case=CASE, before="2.6.0", place="2.13.0", kind="slower", reason="",
        effect=0.6, state="persists", at="", command="",
    )  # fmt: skip
    assert Annotation(place, cases, "known", "now", until).is_of(change) == is_of


ROOT = Path(__file__).parents[2]
# Findings that no change of a stored record shows, so that there is nothing to say beside one.
SHOWN_BY_NO_RECORD = {
    "the-staircase-every-release-on-python-312-to-315",  # of all others
    "public-reports-of-the-compiler-tried",  # of other people's code
    "which-build-of-python-costs-more-than-which-version",  # said where builds differ
    "once-pytorch-has-compiled-id-takes-nine-times-as-long",
    "torchcompile-on-python-313",  # support gates, with links in envs/expectations.toml
    "torchcompile-on-a-free-threaded-python-314t-works-and-the-lock-is-switched-on-again",
    "from-pytorch-251-to-2141-compiled-code-changes-an-input-before-it-has-read-it-all",
    "compiled-code-overlooks-the-sign-of-a-negated-view",
    "pytorch-260-does-not-compile-the-concatenation-of-a-reinterpreted-tensor",
    "pytorch-251-and-260-roll-by-more-rows-than-there-are-from-outside-the-tensor",
    (
        "floats-that-a-graph-break-hands-on-compile-again-for-each-value-up-to-260-always-"
        "since-280-with-dynamicfalse"
    ),
    "a-compiled-optimizer-step-takes-one-moment-for-the-other-once-state-is-named-in-another-order",
    "a-compiled-optimizer-step-does-not-notice-that-parameters-share-memory",
    "up-to-pytorch-2121-dynamo-does-not-ask-a-bound-method-whether-it-is-true",
    # Of libraries, whose records are in observatory/.
    "from-pytorch-271-to-291-dynamo-does-not-compile-the-kept-keys-of-an-ordereddict",
    "pytorch-260-to-2130-silently-differentiate-a-running-sum-behind-a-softmax-wrongly",
    "up-to-pytorch-271-compiled-layers-of-yolo-are-silently-wrong",
    "in-pytorch-251-to-271-a-compiled-group-norm-writes-outside-of-its-memory",
    "from-pytorch-251-to-2121-a-compiled-lookup-in-a-codebook-returns-wrong-indices",
    "from-pytorch-251-to-2121-compiled-code-loses-the-gradient-behind-to_dense",
    "pytorch-271-does-not-compile-a-training-step-of-resnet",
    (
        "on-python-314-and-later-pytorch-2150-takes-the-first-constant-of-a-function-for-"
        "its-docstring"
    ),
    "up-to-pytorch-280-a-parameter-that-compiled-code-makes-of-a-copy-is-the-original",
    "since-pytorch-2121-an-optimizer-that-is-made-in-compiled-code-loses-what-it-set-first",
    "inductor-does-not-compile-nonzero-and-unique-of-an-empty-tensor-that-compiled-code-makes",
    "transformers-5240-requires-pytorch-26-and-does-not-compile-there",
    "torchscript-differentiates-a-chunk-of-which-a-part-is-unused-to-a-wrong-shape",
}


def anchor(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def test_every_finding_is_said_beside_the_changes_that_it_explains() -> None:
    """`ivhl regressions` said "cause not known" of 2.9.1, which docs/findings.md explains."""
    page = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    findings = {anchor(text) for text in re.findall(r"^## (.+)$", page, re.MULTILINE)}
    notes = [one.text for one in load_annotations(ROOT / "results")]
    known = (ROOT / "envs" / "expectations.toml").read_text(encoding="utf-8")
    said = set(re.findall(r"docs/findings\.md#([\w-]+)", "\n".join([*notes, known])))
    assert said <= findings, "a link to a finding that is not there"
    assert findings - said == SHOWN_BY_NO_RECORD
