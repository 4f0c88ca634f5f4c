"""The tables of the docs are what their commands make of the committed records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ivhl.tracker.changes.compare import BETWEEN_SESSIONS, PAIRS_OF_SESSIONS
from ivhl.tracker.store.metrics import WORDS
from studies.tables.__main__ import main
from studies.tables.blocks import TABLES, BlockError, blocks_of, make, pages, stale
from studies.tables.exports import surgical_times

ROOT = Path(__file__).parents[2]
PAGE = """\
before
<!--made by: python -m studies.tables loops -->
{}
<!--end-->
between
<!--made by: python -m studies.tables exponential -->
{}
<!--end-->
after
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with our results and pages of its own."""
    for name in ("results", "envs", "studies"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").touch()
    (tmp_path / "CONTRIBUTING.md").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_page(project: Path, *contents: str) -> Path:
    page = project / "docs" / "page.md"
    page.write_text(PAGE.format(*contents), encoding="utf-8")
    return page


def test_every_table_is_what_its_command_makes() -> None:
    found = [f"{page.relative_to(ROOT)}:{block.line}" for page, block, _ in stale(ROOT)]
    assert found == [], "run: python -m studies.tables"


def test_every_table_is_on_a_page() -> None:
    commands = {block.command for page in pages(ROOT) for block in blocks_of(page)}
    assert {f"python -m studies.tables {name}" for name in TABLES} <= commands


def test_means_hold_what_the_sessions_of_the_records_differ_by() -> None:
    # As on its page, which has what the command makes.
    (lines,) = (
        block.content
        for page in pages(ROOT)
        for block in blocks_of(page)
        if block.command == "python -m studies.tables sessions"
    )
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    found = {row[0]: row[1:3] for row in rows if len(row) == 4}
    for metric, deviation in BETWEEN_SESSIONS.items():
        assert found[WORDS[metric]][1] == f"{deviation:.3f}"
    assert found[WORDS["compiled"]][0] == str(PAIRS_OF_SESSIONS)


def test_a_stale_block_is_named_and_nothing_else_changes(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loops, field = (
        "\n".join(make(f"python -m studies.tables {n}", project)) for n in ("loops", "exponential")
    )
    page = write_page(project, loops, field.replace("5.84", "6.84"))
    wrong = page.read_bytes()
    line = 6 + loops.count("\n")
    assert main(["--check"]) == 1
    said = capsys.readouterr().out
    assert said.startswith(f"docs/page.md:{line}: ")
    assert "'python -m studies.tables exponential'" in said
    assert said.endswith("next: python -m studies.tables\n")
    assert page.read_bytes() == wrong


def test_writing_replaces_blocks_of_any_length_and_keeps_the_text(project: Path) -> None:
    page = write_page(project, "one\ntwo\nthree", "")
    assert main([]) == 0
    lines = page.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line and line[0] not in "|<"] == [
        "before",
        "between",
        "after",
    ]
    assert "three" not in lines
    assert main(["--check"]) == 0


@pytest.mark.parametrize(
    "command",
    [
        "rm -r results",
        "ivhl bench --python 3.12",
        "python -m studies.spread --write=spread.json",
        "ivhl compat; rm -r results",
        "python -m studies.tables",
        "python -m studies.tables loops --check",
    ],
)
def test_only_commands_that_read_are_run(project: Path, command: str) -> None:
    page = project / "README.md"
    page.write_text(f"<!--made by: {command} -->\n<!--end-->\n", encoding="utf-8")
    with pytest.raises(BlockError, match=r"README\.md:1: "):
        stale(project)


@pytest.mark.parametrize("rest", ["", "<!--made by: ivhl compat -->\n<!--end-->\n"])
def test_a_block_without_an_end_is_refused(project: Path, rest: str) -> None:
    page = project / "README.md"
    page.write_text(f"text\n<!--made by: python -m studies.spread -->\n{rest}", encoding="utf-8")
    with pytest.raises(BlockError, match=r"README\.md:[23]: .*block"):
        list(blocks_of(page))


def test_two_threads_get_a_column_when_both_releases_are_measured(tmp_path: Path) -> None:
    folder = tmp_path / "studies" / "exports"
    folder.mkdir(parents=True)

    def export(name: str) -> None:
        data = json.loads((ROOT / "studies/exports/surgical-2.6.0.json").read_text())
        data |= {"threads": 2 if name.endswith("-2") else 1, "load": [0.1, 0.2]}
        (folder / f"surgical-{name}.json").write_text(json.dumps(data))

    for name in ("2.6.0", "2.15.0", "2.6.0-2"):
        export(name)
    assert surgical_times(tmp_path)[0] == "| over eager | 2.6.0, 1 thread |"
    export("2.15.0-2")
    lines = surgical_times(tmp_path)
    assert lines[0].endswith("1 thread | 2.6.0, 2 threads |")
    assert lines[-1] == "CPU, load average 0.1 to 0.2."
