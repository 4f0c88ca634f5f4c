"""One incident has one count, cause and state, and one cell one speedup, wherever they are shown."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from typer.testing import CliRunner

from ivhl.cli import app
from ivhl.tracker.changes.confirmations import load_confirmations
from ivhl.tracker.views.front import front_view
from ivhl.tracker.views.incidents import incident_view
from ivhl.tracker.views.project import load_state
from ivhl.tracker.views.source import Source

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).parents[2]
RESULTS: Final = ROOT / "results"
_SUBJECT: Final = (
    "machine", "device", "python", "existing", "workload", "workload_version", "size", "variant",
)  # fmt: skip
# Compare takes the newest commit that both releases have, a series the code that most releases have.
OTHER_CODE: Final = {
    ("2.5.1", "2.6.0", "vm-core1", "rollout.group"),
    ("2.6.0", "2.15.0", "epyc-2core", "ops.gp_evolve"),
}


@pytest.fixture(scope="module", autouse=True)
def in_the_project(user_cache: Path) -> Any:  # noqa: ANN401  (a generator)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setenv("XDG_CACHE_HOME", str(user_cache))
        yield


@pytest.fixture(scope="module")
def source(in_the_project: None) -> Source:  # noqa: ARG001  (its cache)
    return Source(load_state(ROOT, RESULTS), "", load_confirmations(RESULTS))


def ivhl(*arguments: str) -> str:
    ran = CliRunner().invoke(app, arguments, catch_exceptions=False, env={"COLUMNS": "3000"})
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def test_the_site_says_of_each_incident_what_the_command_says(source: Source) -> None:
    text, told = (
        ivhl("regressions", "--all"),
        json.loads(ivhl("regressions", "--all", "--json")),
    )
    lines = text.splitlines()
    views = [incident_view(source, one, most=1) for one in source.incidents]
    assert len(views) == len(told["incidents"]) > 20
    for view, incident in zip(views, told["incidents"], strict=True):
        title = view.title.replace(" \N{RIGHTWARDS ARROW} ", " -> ").replace("Commit", "commit")
        line = f"{title}: {view.counts}; {view.states} ({view.at[:10]})"
        assert line in lines
        assert incident["cause"] == view.cause
        assert not view.cause or f"  known: {view.cause}" in lines


@pytest.mark.full
def test_compare_has_the_changes_that_regressions_counts_between_two_releases() -> None:
    told = json.loads(ivhl("regressions", "--all", "--along", "torch", "--json"))["incidents"]
    compared: dict[tuple[str, str], dict[Sequence[Any], str]] = {}
    checked = 0
    for incident in told:
        ends = incident["before"], incident["place"]
        if ends not in compared:
            cases = json.loads(ivhl("compare", *ends, "--json"))["cases"]
            compared[ends] = {tuple(c[n] for n in _SUBJECT): c["kind"] for c in cases}
        for change in incident["changes"]:
            of_other_code = (*ends, change["machine"], change["workload"]) in OTHER_CODE
            if not (change["of_levels"] or of_other_code):
                checked += 1
                assert compared[ends][tuple(change[n] for n in _SUBJECT)] == change["kind"], change
    assert checked > 400


@pytest.mark.parametrize(
    ("option", "name", "value"),
    [("--python", "python", "3.12"), ("--workload", "workload", "ops.rnn_gru")],
)
def test_what_compare_is_asked_for_changes_no_verdict(option: str, name: str, value: str) -> None:
    """Alone, a case may stand out that does not beside all others, and the other way round."""
    whole, part = (
        json.loads(ivhl("compare", "2.8.0", "2.9.1", *options, "--json"))["cases"]
        for options in ((), (option, value))
    )
    assert part == [one for one in whole if one[name] == value]
    assert part


def test_2_9_1_has_the_same_count_and_cause_in_every_command() -> None:
    """7 slower of unknown cause, 41 slower, and a cause in docs/findings.md: at 838f273."""
    told = json.loads(ivhl("regressions", "--along", "torch", "--json"))["incidents"]
    (incident,) = (one for one in told if (one["before"], one["place"]) == ("2.8.0", "2.9.1"))
    compared = json.loads(ivhl("compare", "2.8.0", "2.9.1", "--json"))
    kinds = Counter(one["kind"] for one in incident["changes"])
    assert kinds == {"degraded": 1, "slower": 41}
    there = Counter(one["kind"] for one in compared["cases"])
    assert {kind: there[kind] for kind in kinds} == kinds
    assert incident["cause"] == compared["cause"]
    anchor = (
        "PyTorch 2.9.1 takes 12 µs more for each call of compiled code (pytorch/pytorch#161783)"
    )
    assert anchor in incident["cause"]
    course = json.loads(ivhl("course", "--machine", "vm-core1", "--json"))["cases"]
    steps = [
        (case, step)
        for case in course
        for step in case["steps"]
        if (step["before"], step["place"]) == ("2.8.0", "2.9.1") and anchor in step["cause"]
    ]
    mine = [one for one in incident["changes"] if anchor in one["note"]]
    assert {case["workload"] for case, _ in steps} <= {one["workload"] for one in mine}
    assert len(steps) > 10


def test_a_cell_has_one_speedup_in_advise_readme_site_and_matrix(source: Source) -> None:
    """3.70x, 3.67x and 4.39x were shown for one cell: each a mean over other cases."""
    said = re.compile(
        r"mean speedup over eager is ([\d.]+)x, for the (\d+) cases that pass in all compared cells"
    )
    advised = said.search(" ".join(ivhl("advise").split()))
    readme = said.search(" ".join((ROOT / "README.md").read_text(encoding="utf-8").split()))
    assert advised is not None
    assert readme is not None
    speedup, cases = advised.groups()
    assert readme.groups() == (speedup, cases)
    front = front_view(source, source.page.main)
    assert front.advice is not None
    python, torch = front.advice.python, front.advice.torch
    assert f"{front.matched}" == cases
    worth = dict(front.worth)[python]
    assert (f"{worth.speedup:.2f}", f"{worth.over}") == (speedup, cases)
    (line,) = (line for line in front.lines if line.python == python)
    cell = line.cells[front.releases.index(torch)]
    assert cell is not None
    assert cell.worth == f"{speedup}x"
    grid = ivhl("compat")
    assert f"over {cases} cases" in grid
    heads = next(row for row in grid.splitlines() if "PyTorch" in row)
    (row,) = (row for row in grid.splitlines() if row.split()[:1] == [torch])
    at = heads.index(f"Python {python}")
    assert row[at : at + 8].strip().partition(",")[0] == f"{speedup}x"
