"""``ivhl gate`` separates regressions from missing records and from noise."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console
from typer.testing import CliRunner

from ivhl.bench.confirm import measure_pair, suspects_on
from ivhl.bench.experiment import Runs
from ivhl.bench.request import Request
from ivhl.cli import app
from ivhl.cli.gate import GapsError, _verdict_markdown, bytes_of, times_table
from ivhl.cli.sarif import SarifResult, place_in, to_annotations, to_sarif
from ivhl.errors import IvhlError, SpecError, UnknownNameError, WorseError
from ivhl.instrument import INSTRUMENT
from ivhl.matrix.spec import CellSpec
from ivhl.records.identity import key_of
from ivhl.records.record import Arm, Calibration, Counted, Wheel
from ivhl.records.text import visible
from ivhl.tracker.changes.gate import REGRESSIONS, judge
from ivhl.tracker.changes.kinds import KINDS
from ivhl.tracker.store.spread import SHIPPED, Spreads
from ivhl.tracker.support.expectations import Expectation, Expectations
from studies.containers import noise
from studies.schemas import SCHEMAS
from tests.builders.fleet import WORKLOADS, a_record, commit, make_fleet_project, write_records
from tests.builders.history import note_change
from tests.builders.project import git
from tests.builders.records import COMMIT, Known, interval, make_failure, make_record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ivhl.records.record import RunRecord

BASE, HEAD = COMMIT, "f" * 40


def kind_of(
    base: RunRecord | None, head: RunRecord | None, spreads: Spreads = SHIPPED
) -> tuple[str, str]:
    """Return kind and reason of a case; another case has records at both commits."""
    other = make_record(workload="ops.other")
    records = [other, replace(other, commit=HEAD)]
    records += [base] if base else []
    records += [replace(head, commit=HEAD)] if head else []
    verdict = judge(records, {BASE}, {HEAD}, spreads=spreads)
    (found,) = [one for one in verdict.findings if one.case.workload != "ops.other"]
    return found.kind, found.reason


@pytest.mark.parametrize(
    ("base", "head", "kind"),
    [
        (make_record(), make_record(), "unchanged"),
        (make_record(), None, "missing"),
        (None, make_record(), "new"),
        (None, make_failure(), "new"),
        (make_record(), make_failure("wrong"), "fails"),
        (make_record(), make_failure("build"), "fails"),
        (make_record(), make_failure("timeout"), "fails"),
        (make_record(), make_failure("environment"), "incomparable"),
        (make_record(), make_failure("unavailable"), "incomparable"),
        (make_record(), make_failure("crash", exception="SIGKILL"), "incomparable"),
        (make_record(), make_failure("crash", exception="SIGSEGV"), "fails"),
        (make_failure("wrong"), make_failure("crash"), "unchanged"),
        (make_failure("wrong"), make_record(), "fixed"),
    ],
)
def test_each_case_has_one_kind(base: RunRecord | None, head: RunRecord | None, kind: str) -> None:
    found, reason = kind_of(base, head)
    assert found == kind
    assert reason


@pytest.mark.parametrize(
    ("before", "now", "width", "tau", "kind"),
    [
        (2.0, 1.5, 0.01, 0.01, "slower"),
        (1.5, 2.0, 0.01, 0.01, "faster"),
        (2.0, 1.5, 0.3, 0.01, "slower"),  # the ratio is noisy, the seconds show it
        (
            2.0,
            1.5,
            0.01,
            0.1,
            "inconclusive",
        ),  # by 1.33; runs of the same code by 1.42
        (2.0, 1.5, 0.01, 0.07, "slower"),  # by 1.28
    ],
)
def test_slower_means_beyond_the_differences_of_equal_runs(
    before: float, now: float, width: float, tau: float, kind: str
) -> None:
    base, head = (make_record(speedup=value, width=width) for value in (before, now))
    assert kind_of(base, head, Known(tau))[0] == kind


@pytest.mark.parametrize(
    ("slowed", "now", "later", "kind"),
    [
        ({HEAD}, 1.5, "2026-11-25", "incomparable"),
        ({BASE}, 1.5, "2026-11-25", "incomparable"),
        ({BASE}, 2.0, "2026-11-25", "inconclusive"),  # a slower base hides what the head lost
        ({HEAD}, 3.0, "2026-11-25", "incomparable"),
        ({HEAD}, 1.5, "2026-11-16", "incomparable"),
        ({BASE, HEAD}, 1.5, "2026-11-25", "incomparable"),
        ({BASE, HEAD}, 1.5, "", "slower"),  # of one hour: both were slowed alike
        (set(), 1.5, "2026-11-25", "slower"),
    ],
)
def test_the_times_of_a_disturbed_run_are_no_verdict(
    slowed: set[str], now: float, later: str, kind: str
) -> None:
    base = make_record()
    head = replace(make_record(speedup=now), commit=HEAD)
    if later:
        head = replace(head, recorded_at=f"{later}{base.recorded_at[10:]}")
    keys = {key_of(one) for one in (base, head) if one.commit in slowed}
    verdict = judge([base, head], {BASE}, {HEAD}, spreads=Known(0.01), disturbed=keys)
    (found,) = verdict.findings
    assert found.kind == kind
    assert ("disturbed, by the calibration" in found.reason) == (
        kind in ("incomparable", "inconclusive")
    )
    # What may be slower is measured again.
    assert bool(suspects_on("bench", verdict)) == (now < 2.0)
    assert head.compile is not None
    breaks = (*head.compile.graph_breaks, Counted(text="Tensor.item", count=9))
    broken = replace(head, compile=replace(head.compile, graph_breaks=breaks))
    verdict = judge([base, broken], {BASE}, {HEAD}, spreads=Known(0.01), disturbed=keys)
    assert [one.kind for one in verdict.findings] == ["degraded"]


def test_a_case_with_unchanged_sources_is_never_slower() -> None:
    base, head = (make_record(speedup=value, sources="ab" * 32) for value in (2.0, 1.0))
    assert kind_of(base, head, Known(0.0))[0] == "unchanged"
    other = replace(head, sources="cd" * 32)
    assert kind_of(base, other, Known(0.0))[0] == "slower"


INTERVALS = st.builds(interval, st.floats(0.1, 50), st.floats(0, 0.5))
RECORDS = st.builds(lambda s, a: replace(make_record(), speedup=s, aa=a), INTERVALS, INTERVALS)


@given(first=RECORDS, second=RECORDS)
def test_at_most_one_of_two_commits_is_slower(first: RunRecord, second: RunRecord) -> None:
    there, back = kind_of(first, second)[0], kind_of(second, first)[0]
    assert (there, back) != ("slower", "slower")
    assert kind_of(first, first)[0] in {"unchanged", "inconclusive"}
    assert noise(first) >= 1


def test_a_regression_reports_eager_and_compiled_times() -> None:
    _, reason = kind_of(make_record(speedup=3.0, width=0.01), make_record(speedup=1.0, width=0.01))
    assert reason.startswith("compiled became slower; speedup 3.00x to 1.00x: 0.33x")
    assert "eager 1.2 ms to 1.2 ms" in reason
    assert "compiled 400 µs to 1.2 ms: 3.00x" in reason


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("instrument", "3", f"instrument version {INSTRUMENT} before, version 3 now"),
        ("instrument", "cdcd", f"instrument version {INSTRUMENT} before, unknown (cdcd) now"),
        (
            "instrument",
            "9b1ab22935497857",
            f"instrument version {INSTRUMENT} before, version 2 now",
        ),
        ("threads", 2, "threads 1 before, 2 now"),
        ("clock", "wall", "clock cpu before, wall now"),
    ],
)
def test_records_under_other_conditions_are_not_compared(
    field: str,
    value: Any,  # noqa: ANN401
    told: str,
) -> None:
    slow = make_record(speedup=0.5)
    head = replace(slow, conditions=replace(slow.conditions, **{field: value}))
    assert kind_of(make_record(), head) == ("incomparable", told)
    failed = make_failure("wrong", conditions=head.conditions)
    assert kind_of(make_record(), failed)[0] == "fails"


def of_wheel(*, sha: str | None = "ab" * 32, version: str = "2.6.0", **changes: Any) -> RunRecord:  # noqa: ANN401
    """Return a record with a wheel of torch."""
    wheel = Wheel(name="torch", version=version, build=None, tags=(), record_sha256=sha)
    record = make_record(**changes)
    return replace(record, conditions=replace(record.conditions, wheels=(wheel,)))


def test_another_wheel_of_the_same_version_is_not_compared() -> None:
    told = "torch 2.6.0 wheel: same version, other files"
    slow = of_wheel(sha="cd" * 32, speedup=0.5)
    assert kind_of(of_wheel(), slow) == ("incomparable", told)
    assert kind_of(of_wheel(), of_wheel(speedup=0.5))[0] == "slower"


def test_an_unknown_wheel_is_no_difference() -> None:
    slow = of_wheel(speedup=0.5)
    assert kind_of(make_record(), slow)[0] == "slower"
    assert kind_of(of_wheel(), make_record(speedup=0.5))[0] == "slower"
    assert kind_of(of_wheel(sha=None), slow)[0] == "slower"
    # Another version shows as another lock or other packages.
    assert kind_of(of_wheel(version="2.6.1", sha="cd" * 32), slow)[0] == "slower"


def test_other_environments_are_not_compared() -> None:
    slow = make_record(speedup=0.5)
    other = replace(slow, cell=replace(slow.cell, lock_sha256="00" * 32))
    kind, reason = kind_of(make_record(), other)
    assert (kind, "lock abababababab before, 000000000000 now" in reason) == ("incomparable", True)
    bare = replace(slow.cell, lock_sha256=None)
    was, now = make_record(cell=bare), replace(slow, cell=bare)
    assert kind_of(was, now)[0] == "slower"
    newer = replace(now.conditions, packages=("torch==2.6.0", "triton==3.2.0"))
    kind, reason = kind_of(was, replace(now, conditions=newer))
    assert kind == "incomparable"
    assert "triton==3.2.0" in reason


def test_other_machines_devices_and_versions_are_not_compared() -> None:
    fast, slow = make_record(speedup=9.0), make_record(speedup=1.0, commit=HEAD)
    gpu = replace(slow.conditions, device="cuda NVIDIA H200")
    newer = replace(slow, workload_version=2)
    for other in (
        replace(slow, machine=replace(slow.machine, name="other")),
        replace(slow, conditions=gpu),
        newer,
    ):
        verdict = judge([fast, other], {BASE}, {HEAD})
        assert not verdict.of(REGRESSIONS)
        assert verdict.compared == 0


def test_a_machine_without_records_of_the_head_is_listed_not_missing() -> None:
    there = make_record(machine=replace(make_record().machine, name="other"))
    verdict = judge([make_record(), there, make_record(commit=HEAD)], {BASE}, {HEAD})
    assert verdict.elsewhere == {("other", "cpu"): 1}
    assert [one.kind for one in verdict.findings] == ["unchanged"]


def test_retired_cases_are_not_missing() -> None:
    gone = make_record(workload="ops.gone")
    asked = make_record(workload="ops.two", variant="a")
    records = [gone, asked, replace(asked, commit=HEAD)]
    verdict = judge(records, {BASE}, {HEAD}, WORKLOADS)
    assert [one.kind for one in verdict.findings] == ["unchanged"]
    assert verdict.undeclared == 1  # and the gate says so
    assert len(judge(records, {BASE}, {HEAD}).findings) == 2


def test_the_newest_record_of_a_commit_counts() -> None:
    late = "2026-12-01T00:00:00+00:00"
    again = make_record(speedup=2.0, recorded_at=late)
    kind, _ = kind_of(make_record(), again)
    assert kind == "unchanged"
    first_bad = make_record(speedup=0.5, commit=HEAD)
    verdict = judge([make_record(), first_bad, replace(again, commit=HEAD)], {BASE}, {HEAD})
    assert [one.kind for one in verdict.findings] == ["unchanged"]


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("once")
    make_fleet_project(folder)
    return folder


@pytest.fixture
def root(made_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = shutil.copytree(made_once, tmp_path / "project")
    monkeypatch.chdir(folder)
    return folder


def history(root: Path, *heads: RunRecord | None) -> str:
    """Commit code and records for its parent; return the base.

    Args:
        root: The project.
        heads: Records of the cases of ``ops.one`` at the head; ``None`` is not measured.
    """
    base = git(root, "rev-parse", "HEAD")
    names = ["a", "b"][: len(heads)]
    write_records(root / "results", *(a_record(root, variant=name) for name in names))
    (root / "code.py").write_text("new")
    commit(root, "code")
    for name, head in zip(names, heads, strict=True):
        if head is not None:
            about = a_record(root, minute=1, variant=name)
            fields: Sequence[str] = (
                "project", "commit", "cell", "machine", "workload", "workload_version", "variant",
            )  # fmt: skip
            changes: dict[str, Any] = {field: getattr(about, field) for field in fields}
            write_records(root / "results", replace(head, **changes))
    commit(root, "records")
    return base


def gate(*arguments: str) -> tuple[str, IvhlError | None]:
    done = CliRunner().invoke(app, ["gate", *arguments])
    assert done.exception is None or isinstance(done.exception, IvhlError), done.exception
    return done.stdout, done.exception


def test_a_gate_without_regressions_passes(root: Path) -> None:
    base = history(root, make_record(), make_record())
    text, error = gate("--base", base)
    assert error is None
    assert "2 unchanged" in text


@pytest.mark.parametrize(("count", "headline"), [(1, "1 result fails"), (2, "2 results fail")])
def test_one_case_fails_and_two_fail(root: Path, count: int, headline: str) -> None:
    failure = make_failure("backend_compile", "oops")
    base = history(root, *[failure] * count)
    assert gate("--base", base)[0].splitlines()[0] == headline


def test_a_commit_is_not_its_own_base(root: Path) -> None:
    """A pipeline with a wrong base would always pass."""
    history(root, make_record(), make_record())
    _, error = gate("--base", "main")
    assert isinstance(error, SpecError)
    assert str(error) == "--base main and --commit HEAD are the same commit"


@pytest.mark.parametrize("form", [("--all",), ("--format", "github")])
def test_eager_code_alone_that_takes_longer_is_no_regression_and_is_shown(
    root: Path, form: tuple[str, ...]
) -> None:
    slow = make_record()
    assert slow.eager is not None
    eager = replace(slow.eager, samples_s=tuple(10 * s for s in slow.eager.samples_s))
    slow = replace(slow, eager=eager, speedup=interval(20.0, 0.01))
    base = history(root, slow, make_record())
    text, error = gate("--base", base, *form)
    assert error is None
    assert "1 eager slower, 1 unchanged" in text
    shown = text.partition("eager slower: eager code takes longer, and compiled code does not")[2]
    shown = shown.partition("seconds per call")[0]
    assert "ops.one/small/a" in shown
    assert "eager became slower" in shown.replace("&#", "")
    assert "ops.one/small/b" not in shown


def test_a_long_reason_is_cut_in_the_text_and_whole_in_json(root: Path) -> None:
    message = f"start {'x' * 500} end"
    base = history(root, make_failure("recompile_limit", message), make_record())
    text, error = gate("--base", base)
    assert isinstance(error, WorseError)
    (line,) = [one for one in text.splitlines() if "recompile_limit: start" in one]
    assert " […] " in line
    assert line.startswith("    2.00x")
    assert line.endswith("xx end now")
    assert len(line) < 300
    told = gate("--base", base, "--json")[0]
    SCHEMAS["gate"].validate_json(told)
    assert message in told


def test_a_regression_has_its_own_exit_code_before_that_of_gaps(root: Path) -> None:
    base = history(root, make_record(speedup=1.0), None)
    text, error = gate("--base", base)
    assert isinstance(error, WorseError)
    assert error.exit_code == 7
    assert "1 result slower, compared with" in str(error)
    assert "1 slower, 1 missing" in text
    assert "box, cpu, py3.12-torch2.6.0: ops.one/small/a" in text


def test_missing_records_have_their_own_exit_code(root: Path) -> None:
    base = history(root, make_record(), None)
    _, error = gate("--base", base)
    assert isinstance(error, GapsError)
    assert error.exit_code == 8
    assert "in the same way" in error.hint
    assert gate("--base", base, "--allow-missing")[1] is None


def test_nothing_to_compare_is_an_error(root: Path) -> None:
    base = history(root, None)
    text, error = gate("--base", base)
    assert isinstance(error, GapsError)
    assert "nothing to compare" in str(error)
    assert "no record on box, cpu (1 result at the base)" in text


def test_what_is_worse_is_shown_at_the_line_that_it_names(root: Path) -> None:
    """As SARIF, which GitHub shows in the changed files of a pull request."""
    message = "oops \x1b[31m at lib/other.py:7 f, at here/code.py:3 g"
    base = history(root, make_failure("compile", message), make_failure("compile", "oops"))
    text, error = gate("--base", base, "--format", "sarif")
    assert isinstance(error, WorseError)
    (run,) = json.loads(text)["runs"]
    rules = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    results = run["results"]
    assert [one["ruleId"] for one in results] == ["fails", "fails"]
    assert rules == {"fails", "degraded", "slower"}
    assert "\x1b" not in results[0]["message"]["text"]
    files = [one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for one in results]
    assert files == ["envs/matrix.toml", "envs/matrix.toml"]  # code.py is in no folder ``here``


@given(st.text(max_size=60), st.integers(min_value=-3, max_value=9))
def test_a_place_is_a_file_of_the_project_or_another_one(text: str, line: int) -> None:
    files = ["a/b/c.py", "d/c.py", "src/e/f.py"]
    place = place_in([text, f"x at e/f.py:{line} g"], files, "other")
    assert place in {("src/e/f.py", line), ("other", 1)}
    assert place_in(["at c.py:3 g"], files, "other") == ("other", 1)  # two have this name
    assert place_in(["at b/c.py:3 g"], files, "other") == ("a/b/c.py", 3)
    result = SarifResult("r", "note", text, f"{text}.py", line)
    found = json.loads(to_sarif({"r": "rule"}, [result]))["runs"][0]["results"][0]
    assert found["locations"][0]["physicalLocation"]["region"]["startLine"] >= 1
    assert len(to_annotations([result]).splitlines()) == 1
    assert to_annotations([result]).startswith("::notice file=")


def test_a_comment_escapes_text_from_records(root: Path) -> None:
    nasty = make_failure("crash", "<img src=x> | @everyone `code` #1\n| a | b |\n\x1b[31m")
    base = history(root, nasty, make_record())
    text, error = gate("--base", base, "--format", "github")
    assert isinstance(error, WorseError)
    assert text.startswith("### 1 result fails\n")
    assert "<img" not in text
    assert "@everyone" not in text
    verdict, _, times = text.partition("<summary>seconds per call")
    assert "ops.one/small/a" in times
    (row,) = [line for line in verdict.splitlines() if "ops.one/small/a" in line]
    assert row.count("|") == 6
    assert "\x1b" not in text


def test_a_comment_shows_a_limited_number_of_rows(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ivhl.cli.gate._ROWS_SHOWN", 1)
    base = history(root, make_failure("wrong"), make_failure("crash"))
    text, _ = gate("--base", base, "--format", "github")
    assert "And 1 more." in text
    assert text.count("<code>box, cpu</code>") == 1


def test_a_note_on_the_commit_stands_beside_what_it_changed(root: Path) -> None:
    """`ivhl compare` of the same commits said it, and the gate did not."""
    base = history(root, make_failure("wrong"))
    head = git(root, "rev-parse", "HEAD")
    note_change(root, commit=head[:8], reason="a | b")
    note_change(root, commit=base[:8], reason="of another commit")
    assert "    known: a | b\n" in gate("--base", base)[0]
    assert (
        "<br><code>known&#58; a &#124; b</code>" in gate("--base", base, "--format", "github")[0]
    )
    (found,) = json.loads(gate("--base", base, "--json")[0])["findings"]
    assert found["note"] == "a | b"


def commented(*failures: RunRecord, site: str = "", **more: Any) -> str:  # noqa: ANN401
    """Return the comment on cases that worked before."""
    heads = [replace(one, commit=HEAD) for one in failures]
    good = make_record()
    kept = ("workload", "size", "variant", "machine", "cell", "conditions")
    bases = [replace(good, **{name: getattr(one, name) for name in kept}) for one in heads]
    verdict = judge([*bases, *heads], {BASE}, {HEAD}, **more)
    return _verdict_markdown(verdict, BASE[:8], HEAD[:8], site, {})


def rows_of(text: str) -> list[list[str]]:
    """Return the rows of a comment's tables without their heads, as cells of Markdown."""
    return [one[2:-2].split(" | ") for one in text.splitlines() if re.match(r"\| \d", one)]


def test_a_comment_groups_failures_by_their_signature() -> None:
    message = "shape mismatch: got {} at 0x7f00dead0000"
    alike = [make_failure("compile", message.format(n), workload=f"ops.w{n}") for n in range(9)]
    wrong = [make_failure("wrong", f"off by {n}.5e-3", workload=f"ops.w{n}") for n in (10, 11)]
    blank = make_failure("compile", "", exception="builtins.KeyError", workload="ops.x")
    text = commented(*wrong, blank, *alike)
    assert "fails: worked before and fails now (12)" in text
    rows = rows_of(text)
    assert [row[0] for row in rows] == ["9", "1", "1", "1"]
    assert (
        rows[0][4] == "<code>compile, compile&#58; shape mismatch&#58; got &#35; at &#35;</code>"
    )
    assert rows[0][3].count("<br>") == 2
    assert rows[0][3].endswith(" and 6 more")
    assert [row[4] for row in rows].count(
        "<code>compile, wrong&#58; off by &#35;</code>"  # each workload has its own wrong result
    ) == 2
    assert "<code>compile, compile&#58; builtins.KeyError</code>" in text


def test_a_comment_groups_missing_results_whatever_they_were_before() -> None:
    bases = [replace(make_record(speedup=n + 2.0), workload=f"ops.w{n}") for n in range(3)]
    verdict = judge([*bases, make_record(), replace(make_record(), commit=HEAD)], {BASE}, {HEAD})
    (row,) = rows_of(_verdict_markdown(verdict, BASE[:8], HEAD[:8], "", {}))
    assert (row[0], row[4]) == ("3", "<code>no record</code>")


@pytest.mark.parametrize("site", ["", "https://owner.github.io/p/"])
def test_a_comment_leads_to_the_page_of_each_case(site: str) -> None:
    page = "case/bench+cpu/ops.w+small+naive-compiled.html"
    ((*_, case, _signature),) = rows_of(commented(make_failure(workload="ops.w"), site=site))
    name = "<code>ops.w/small/naive-compiled</code>"
    assert case == (f"[{name}]({site}{page})" if site else f"{name} <code>{page}</code>")


def test_the_command_takes_the_address_of_the_site(root: Path) -> None:
    base = history(root, make_failure("wrong"))
    comment = ("--base", base, "--format", "github", "--site-url")
    text, _ = gate(*comment, "https://owner.github.io/p")
    assert "](https://owner.github.io/p/case/box+cpu/ops.one+small+a.html)" in text
    assert isinstance(gate(*comment, "owner.github.io")[1], SpecError)


def test_a_comment_names_known_causes_and_does_not_report_itself_upstream() -> None:
    reported = make_failure(message="Dynamo is not supported on Python 3.13+", workload="ops.w")
    entry = Expectation.model_validate(
        {"python": "", "torch": "", "workload": "ops.v", "class": "crash", "reason": "a | b"}
    )
    expected = make_failure("crash", "SIGSEGV", workload="ops.v")
    text = commented(reported, expected, expectations=Expectations((entry,)))
    assert "[<code>pytorch/pytorch&#35;" in text
    assert "](https://redirect.github.com/pytorch/pytorch/issues/" in text
    assert "https://github.com" not in text
    assert "<br><code>expected&#58; a &#124; b</code>" in text


HOSTILE = (
    "</code></td><img src=x> <!-- <script>",
    "[a](https://evil.example) ![a](https://evil.example/x.png) <https://evil.example>",
    "| a | b |\n\n## heading\n```\n`code` ~~~ **b** _i_ \\[x](y)",
    "@maintainer #1 owner/name#2 GH-3 www.evil.example a@evil.example",
    "\x1b[31m\x1b]8;;https://evil.example\x1b\\ \u202e \r\n- [ ] task\n[a]: https://evil.example",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_a_record_is_markdown_in_a_comment(text: str) -> None:
    machine = replace(make_record().machine, name=text)
    names: dict[str, Any] = {"workload": text, "size": text, "variant": text, "machine": machine}
    cell = replace(make_record().cell, id=text)
    failure = make_failure("crash", text, exception=text, cell=cell, **names)
    comment = commented(failure, site="https://owner.github.io/p(|)/")
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    tokens = [
        inner for token in parser.parse(comment) for inner in (token, *(token.children or ()))
    ]
    assert {one.content for one in tokens if "html" in one.type} <= {"<code>", "</code>", "<br>"}
    links = [str(one.attrs["href"]) for one in tokens if one.type == "link_open"]
    assert len(links) == 1
    assert links[0].startswith("https://owner.github.io/p%28%7C%29/case/")
    assert not any(
        one.type in ("image", "heading_open", "fence", "em_open") and one.tag != "h3"
        for one in tokens
    )
    assert sum(one.type == "tr_open" for one in tokens) == 2
    assert visible(comment) == comment
    shown = re.sub(r"\]\([^)]*\)", "", comment)  # without the address of the link
    assert not re.search(r"@|www\.evil|(?<!&)#\d|<!--", shown)


def test_a_comment_is_shorter_than_what_github_takes() -> None:
    """However many results there are, and however much their escaping adds."""
    failures = [
        make_failure("crash", f"{'|' * n}\U000e0100 {'@é' * 200}", workload=f"ops.w{n}{'*' * 300}")
        for n in range(60)
    ]
    text = commented(*failures)
    assert len(text.encode()) < 60_000
    assert re.search(r"And \d+ more\.", text)
    assert len(rows_of(text)) > 2
    records = [replace(one, commit=HEAD) for one in failures]
    timed = times_table(records, {BASE}, {HEAD}, 5_000)
    assert 1_000 < bytes_of(timed) < 5_500
    assert "And 60 more." in times_table(records, {BASE}, {HEAD}, -1)


def test_json_has_every_finding(root: Path) -> None:
    base = history(root, make_record(), make_failure("wrong"))
    text, _ = gate("--base", base, "--json")
    told = json.loads(text)
    assert [(one["variant"], one["kind"]) for one in told["findings"]] == [
        ("b", "fails"),
        ("a", "unchanged"),
    ]
    assert set(KINDS) >= {one["kind"] for one in told["findings"]}


def test_unknown_commits_and_machines_are_named(root: Path) -> None:
    base = history(root, make_record())
    assert isinstance(gate("--base", "nope")[1], SpecError)
    with_name = gate("--base", base, "--machine", "bux")[1]
    assert isinstance(with_name, UnknownNameError)
    assert "box" in with_name.hint
    assert gate("--base", base, "--machine", "box")[1] is None


def broken(record: RunRecord) -> RunRecord:
    """Return the record with a graph break more."""
    facts = record.compile
    assert facts is not None
    breaks = (*facts.graph_breaks, Counted(text="Tensor.item", count=2))
    return replace(record, compile=replace(facts, graph_breaks=breaks, graphs=4))


def at_seconds(eager_s: float, compiled_s: float) -> RunRecord:
    """Return a record with these seconds, on a machine whose speed is known."""
    eager, compiled = (Arm(calls=1, samples_s=(s,) * 16) for s in (eager_s, compiled_s))
    fixed = Calibration(compute_s=(5e-5,), memory_s=(6e-4,))
    record = make_record(speedup=eager_s / compiled_s, width=0.001, calibration=fixed)
    return replace(record, eager=eager, compiled=compiled)


def test_a_new_graph_break_is_a_finding_whatever_the_times_say() -> None:
    kind, reason = kind_of(make_record(), broken(make_record(speedup=4.0)), Known(0.02))
    assert kind == "degraded"
    assert reason.startswith("3 graph breaks, 1 before; new: Tensor.item; 4 graphs, 2 before")


@pytest.mark.parametrize(
    ("eager_s", "compiled_s", "kind", "side"),
    [
        (2e-3, 1e-3, "slower", "both became slower"),  # the ratio stays: it hides this
        (5e-4, 5e-4, "unchanged", "eager became faster"),  # the ratio fell: nothing is worse
        (1e-3, 1e-3, "slower", "compiled became slower"),
        (1e-3, 2.5e-4, "faster", "compiled became faster"),
        (2e-3, 5e-4, "eager slower", "eager became slower"),
    ],
)
def test_a_ratio_moves_when_eager_moves(
    eager_s: float, compiled_s: float, kind: str, side: str
) -> None:
    base = at_seconds(1e-3, 5e-4)
    found, reason = kind_of(base, at_seconds(eager_s, compiled_s), Known(0.02))
    assert (found, reason.partition(";")[0]) == (kind, side)


def test_eager_code_that_takes_longer_hides_what_a_noisy_speedup_would_show() -> None:
    class NoisySpeedup(Known):
        def of(self, run: Any, metric: Any = "speedup", *, calibrated: bool = False) -> Any:  # noqa: ANN401
            size = 0.5 if metric == "speedup" else 0.02
            return Known(size).of(run, metric, calibrated=calibrated)

    base, head = at_seconds(1e-3, 5e-4), replace(at_seconds(2e-3, 5e-4), commit=HEAD)
    for spreads, judged in ((Known(0.02), 1), (NoisySpeedup(0.02), 0)):
        verdict = judge([base, head], {BASE}, {HEAD}, spreads=spreads)
        assert [one.kind for one in verdict.findings] == ["eager slower"]
        assert (verdict.compared, verdict.judged) == (1, judged)


def on_threads(n: int) -> RunRecord:
    record = make_record()
    return replace(record, conditions=replace(record.conditions, threads=n))


@pytest.mark.parametrize(
    ("heads", "headline"),
    [
        ((make_record(), make_record()), "No regression in 2 results that could be judged"),
        ((make_failure("wrong"), None), "1 result fails"),
        ((on_threads(2), on_threads(2)), "Cannot judge 2 of 2 results"),
        ((None,), "Cannot judge: no case has a record of both commits"),
    ],
)
def test_the_headline_says_how_much_was_judged(
    root: Path, heads: tuple[RunRecord | None, ...], headline: str
) -> None:
    base = history(root, *heads)
    assert gate("--base", base)[0].splitlines()[0] == headline


def test_both_commits_are_measured_in_one_run_of_each_cell(root: Path) -> None:
    cells = [CellSpec("3.12", "2.5.1"), CellSpec("3.12", "2.6.0")]
    asked: list[tuple[object, ...]] = []

    def measure(one: Request, _: Console) -> None:
        assert not one.effort.force
        assert one.selection.chosen_suite == "core"
        asked.append((one.python, *one.releases, one.base, one.commit, one.selection.workloads))

    printed = StringIO()
    request = Request(root=root, python="", machine="here", results=root / "results")
    runs = Runs(request, Console(file=printed, width=300), measure)
    measure_pair(runs, cells, ("b", "h"), ["ops.one"])
    named = ("ops.one",)
    assert asked == [("3.12", "2.5.1", "b", "h", named), ("3.12", "2.6.0", "b", "h", named)]
    assert printed.getvalue().startswith(
        "expected: 2 runs of 1 case, less what both commits have; no record says"
    )


@pytest.mark.usefixtures("root")
def test_a_slurm_job_runs_the_whole_gate_so_both_commits_share_its_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[object] = []

    def run(_: Path, words: Sequence[str], options: dict[str, object], __: object) -> int:
        asked.extend((list(words), options))
        return 7

    monkeypatch.setattr("ivhl.bench.slurm.run_on_slurm", run)
    own = ["--base", "main", "--workload", "ops.one", "--json", "--measure", "--confirm"]
    words = ["gate", *own, "--executor", "slurm", "--slurm", "partition=gpu"]
    assert CliRunner().invoke(app, words).exit_code == 7
    (job, options), arguments = asked, own
    assert options == {"partition": "gpu"}
    assert isinstance(job, list)
    assert sorted(job) == sorted(["gate", *arguments])
    error = gate("--base", "main", "--slurm", "partition=gpu")[1]
    assert str(error) == "--slurm: needs --executor slurm"


def test_a_filter_of_cases_changes_no_verdict_and_the_correction_is_named(root: Path) -> None:
    """Among many cases a small change is no discovery; alone it would be one."""
    base = git(root, "rev-parse", "HEAD")
    names = [f"s{number}" for number in range(12)]
    write_records(root / "results", *(a_record(root, size=name) for name in names))
    write_records(root / "results", a_record(root, workload="ops.two", width=0.001))
    (root / "code.py").write_text("new")
    commit(root, "code")
    now = [a_record(root, minute=1, size=name) for name in names]
    slow = a_record(root, minute=1, workload="ops.two", speedup=1.9, width=0.001)
    write_records(root / "results", *now, slow)
    every = json.loads(gate("--base", base, "--json")[0])
    text, _ = gate("--base", base, "--workload", "ops.two")
    one = json.loads(gate("--base", base, "--workload", "ops.two", "--json")[0])
    assert [f["workload"] for f in one["findings"]] == ["ops.two"]
    assert one["findings"] == [f for f in every["findings"] if f["workload"] == "ops.two"]
    assert one["corrected_over"] == every["corrected_over"] == 13
    assert "times are corrected over 13 results" in text
    error = gate("--base", base, "--workload", "ops.tow")[1]
    assert isinstance(error, UnknownNameError)
    assert "ops.two" in error.hint


def test_a_comment_has_base_eager_head_eager_and_head_compiled(root: Path) -> None:
    base = history(root, make_record(), make_failure("wrong", "off by one"))
    said, _ = gate("--base", base, "--format", "github")
    table = said.split("| cell | case | base eager | head eager | head compiled | speedup |")[1]
    rows = [line.split(" | ") for line in table.splitlines()[2:4]]
    assert rows[0][1] == "<code>ops.one/small/a</code>"
    assert all(time.endswith("s") for time in rows[0][2:5])
    assert rows[1][4:] == ["-", "<code>wrong</code> |"]


def test_a_gate_of_one_release_does_not_miss_the_others(root: Path) -> None:
    base = history(root, make_record(), None)
    assert gate("--base", base, "--torch", "2.6.0", "--python", "3.12")[1] is not None
    text, error = gate("--base", base, "--torch", "2.5.1")
    assert isinstance(error, GapsError)
    assert "nothing to compare" in str(error)
    assert "missing" not in text.partition("error")[0]


def test_a_python_that_nobody_measured_is_no_verdict_also_where_records_may_be_missing(
    root: Path,
) -> None:
    base = history(root, make_record(), None)
    error = gate("--base", base, "--python", "3.21", "--allow-missing")[1]
    assert isinstance(error, UnknownNameError)
    assert "unknown Python '3.21'" in str(error)
