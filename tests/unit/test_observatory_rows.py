"""The table of the observatory and its records: what is read, and what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ivhl.errors import SpecError
from ivhl.measure.target_spec import Target
from ivhl.observatory.record import Break, Observed, append, read_observed, to_line
from ivhl.observatory.rows import read_rows

if TYPE_CHECKING:
    from pathlib import Path

TABLE = """
[timm]
rank = 1227
requirement = "timm>=1.0"
with = ["numpy<3"]
[timm.cases]
resnet10t = 'timm:create_model("resnet10t", pretrained=False)'
vit = { target = 'timm:create_model("vit", img_size=64)', inputs = ["2,3,64,64"] }

[einops]
rank = 880
[einops.cases]
attention = { target = "functions/einops_cases.py:attention", inputs = ["8"], asks = ["forward"] }

[rare]
[rare.cases]
f = "rare.module:f"
"""


def write(folder: Path, table: str = TABLE) -> Path:
    (folder / "functions").mkdir(exist_ok=True)
    (folder / "functions" / "einops_cases.py").write_text("attention = len\n")
    (folder / "functions" / "einops.py").write_text("attention = len\n")
    (folder / "libraries.toml").write_text(table, encoding="utf-8")
    return folder


def test_rows_are_targets_of_try_the_most_downloaded_first(tmp_path: Path) -> None:
    einops, timm, rare = read_rows(write(tmp_path))
    assert (einops.name, timm.name, rare.name) == ("einops", "timm", "rare")
    assert timm.requirements == ("timm>=1.0", "numpy<3")
    assert [(one.case, one.ask) for one in timm.questions] == [
        ("resnet10t", "forward"), ("resnet10t", "step"), ("vit", "forward"), ("vit", "step"),
    ]  # fmt: skip
    # A larger batch of a step shows no more than that of forward.
    assert timm.questions[3].target == Target(
        "timm", 'create_model("vit", img_size=64)', ("2,3,64,64",), step=True, larger=False
    )
    (only,) = einops.questions
    assert only.target == Target("einops_cases", "attention", ("8",))
    assert only.folder == tmp_path / "functions"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("[rare]\n", "[rare]\ncolour = 3\n", r"\[rare\]: colour: is no known key"),
        ("rank = 880", "rank = 0", r"\[einops\]: rank: .*\(got 0\)"),
        ("rank = 880", 'rank = "880"', r"\[einops\]: rank"),
        ("[rare]\n", "[timm]\n", r"not valid TOML: Cannot declare .*timm"),
        ("[rare]", "[Ra_re]", r"\[Ra_re\]: must be a name as in addresses"),
        ("[rare]\n[rare.cases]", "[rare]\n[rare.case]", r"\[rare\]: cases: must be there"),
        ('f = "rare.module:f"', "", r"\[rare\]: cases: "),
        ('f = "rare.module:f"', "f = 3", r"\[rare.cases\] f: .*must be a table"),
        ('f = "rare.module:f"', 'f = "rare.module:("', r"\[rare.cases\] f: .*MODULE:EXPRESSION"),
        ('f = "rare.module:f"', '"../f" = "a:f"', r"\[rare.cases\] ../f: must have up to 60"),
        ('f = "rare.module:f"', 'f = { target = "a:f", input = [] }', "did you mean inputs"),
        ('inputs = ["8"]', 'inputs = ["8;"]', r"attention: --input '8;': must be a shape"),
        ('asks = ["forward"]', 'asks = ["back"]', r"attention: asks.0: must be 'forward'"),
        ('asks = ["forward"]', "asks = []", "attention: asks: must not be empty"),
        ("einops_cases.py", "missing_cases.py", "attention: target: functions/missing_cases.py"),
        ("einops_cases.py", "einops.py", r"attention: target: must be functions/NAME_cases\.py"),
        ("functions/einops", "functions/../x", r"attention: target: must be functions/NAME_cases"),
        ("timm>=1.0", "tim>=1.0", r"\[timm\]: requirement: must name timm \(got 'tim>=1.0'\)"),
        ("timm>=1.0", "timm @ https://a.b/c.whl", r"\[timm\]: requirement: .*registry"),
        ("numpy<3", "torch<2.6", r"\[timm\]: with: must not name torch"),
        ("numpy<3", "numpy<<3", r"\[timm\]: with.0: must be a requirement"),
    ],
)
def test_a_row_that_breaks_a_rule_is_refused_with_table_key_and_rule(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    assert old in TABLE
    folder = write(tmp_path, TABLE.replace(old, new, 1))
    with pytest.raises(SpecError, match=says) as refused:
        read_rows(folder)
    assert "libraries.toml" in str(refused.value)
    assert refused.value.hint


def test_a_row_that_breaks_a_rule_leaves_the_others(tmp_path: Path) -> None:
    folder = write(tmp_path, TABLE.replace("rank = 880", "rank = 0"))
    told: list[str] = []
    assert [one.name for one in read_rows(folder, told.append)] == ["timm", "rare"]
    (line,) = told
    assert line.startswith("left out: libraries.toml: [einops]: rank: ")


def test_a_file_that_is_a_link_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path)
    (folder / "functions" / "einops_cases.py").unlink()
    (folder / "functions" / "einops_cases.py").symlink_to("/etc/hostname")
    with pytest.raises(Exception, match="must not be a link"):
        read_rows(folder)


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ("rank = 880", "rank = 881", False),
        ("attention =", "attention  = ", False),
        ('["8"]', '["9"]', True),
        (":attention", ":other", True),
        ("rank = 880", 'requirement = "einops>0"', True),
        ("rank = 880", 'with = ["numpy"]', True),
    ],
)
def test_the_hash_of_a_row_is_that_of_what_is_asked(
    tmp_path: Path, old: str, new: str, *, changes: bool
) -> None:
    def hash_of(table: str) -> str:
        return {one.name: one.questions[0].row for one in read_rows(write(tmp_path, table))}[
            "einops"
        ]

    assert (hash_of(TABLE) != hash_of(TABLE.replace(old, new))) == changes


def test_another_file_is_another_row(tmp_path: Path) -> None:
    before = [q.row for one in read_rows(write(tmp_path)) for q in one.questions]
    (tmp_path / "functions" / "einops_cases.py").write_text("attention = abs\n")
    after = [q.row for one in read_rows(tmp_path) for q in one.questions]
    assert before[0] != after[0]
    assert before[1:] == after[1:]


def observed(**more: Any) -> Observed:  # noqa: ANN401  (fields)
    about: dict[str, Any] = {
        "library": "timm", "case": "vit", "ask": "step", "target": "timm:f",
        "cell": "py3.12-torch2.6.0", "python": "3.12", "torch": "2.6.0", "lock": "ab", "row": "cd",
        "instrument": "6", "machine": "m", "at": "2026-11-28T18:00:00+00:00", "cpu_s": 1.0,
        "wall_s": 2.0, "status": "works", "why": "works",
    }  # fmt: skip
    return Observed.model_validate(about | more)


@given(
    st.text(max_size=50),
    st.none() | st.floats(0, 1e9),
    st.lists(st.builds(Break, text=st.text(max_size=9), count=st.integers(0, 9)), max_size=3),
)
def test_a_record_is_one_line_that_is_read_as_it_was(
    text: str, seconds: float | None, breaks: list[Break]
) -> None:
    failure = {
        "phase": "compile", "class": "compile", "exception": "E", "message": text, "where": "",
        "frame": "",
    }  # fmt: skip
    record = observed(failure=failure, compile_s=seconds, graph_breaks=breaks, inputs=text)
    line = to_line(record)
    assert "\n" not in line
    assert json.loads(line)["failure"]["class"] == "compile"
    assert Observed.model_validate(json.loads(line)) == record


def test_of_one_key_the_newest_record_counts_and_half_a_line_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "records"
    append(folder, observed(why="newer"))
    append(folder, observed(why="older", at="2026-11-28T17:00:00+00:00"))
    append(folder, observed(why="other", machine="n"))
    path = folder / "timm.jsonl"
    # A run is killed while it writes; the next one goes on.
    with path.open("ab") as file:
        file.write(to_line(observed(why="half")).encode()[:200])
    append(folder, observed(case="resnet", why="after"))
    told: list[str] = []
    found = read_observed(folder, told.append)
    assert sorted(one.why for one in found.values()) == ["after", "newer", "other"]
    assert told == ["timm.jsonl:4: is not JSON, as after a run that was killed"]


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("schema", "ivhl.observed/9", "schema"),
        ("cpu_s", -1, "cpu_s: must be greater than or equal to 0 (got -1)"),
        ("status", "splendid", "status"),
        ("why", "x" * 2001, "why: must have at most 2000 characters (got "),
        ("at", "2026-13-45T99:99:99+00:00", "at: must be a time like 2026-11-28T09:30:00+00:00"),
        ("torch", "2.7.1", "timm.jsonl:1: cell py3.12-torch2.6.0 must have the Python and the "),
        ("colour", 1, "colour: is no known key"),
    ],
)
def test_a_line_that_is_no_record_is_named_and_left_out(
    tmp_path: Path, field: str, value: object, says: str
) -> None:
    line = json.loads(to_line(observed())) | {field: value}
    (tmp_path / "timm.jsonl").write_text(json.dumps(line) + "\n")
    told: list[str] = []
    assert read_observed(tmp_path, told.append) == {}
    assert len(told) == 1
    assert says in told[0]
