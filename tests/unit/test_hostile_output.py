"""Text from records, locks and declarations is shown on terminals and in summaries, never obeyed."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from unicodedata import category

import pytest
from markdown_it import MarkdownIt
from rich.table import Table
from typer.testing import CliRunner

from ivhl.cli import app
from ivhl.cli.gate import code
from ivhl.matrix.project import find_root
from ivhl.records.text import is_printable, printable, visible
from ivhl.tracker.terminal import Terminal
from tests.builders.fleet import a_record, make_fleet_project, write_records
from tests.builders.project import make_commits
from tests.builders.records import UNSEEN, make_failure

# Clears the screen, sets the title of the window, writes a link, reverses the line, hides a letter.
NASTY = (
    f"\x1b[2J\x1b]0;owned\x07\x1b]8;;https://evil.example\x1b\\x\u202eab\x9b31m\x08\x7f{UNSEEN}"
)
MARKUP = "[bold red]x[/] [link=https://evil.example]here[/link] :skull:"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project whose results hold texts that no import would let in."""
    make_fleet_project(tmp_path)
    good = a_record(tmp_path)
    bad = make_failure("crash", f"{NASTY} {MARKUP}", exception=NASTY, output_tail=NASTY)
    kept = ("project", "commit", "workload_version", "recorded_at", "cell")
    bad = replace(
        bad,
        **{name: getattr(good, name) for name in kept},
        machine=replace(good.machine, name="evil", cpu=NASTY),
        workload="ops.two",
        size=f"s{NASTY}",
        variant=f"v{MARKUP}",
        command=NASTY,
    )
    cell = replace(bad.cell, python=f"3.12{NASTY}{MARKUP}")
    cell = replace(cell, id=f"py{cell.python}-torch{cell.torch}")
    bad = replace(bad, cell=cell, workload_version=1)
    write_records(tmp_path / "results", good)
    path = tmp_path / "results" / "evil" / "records" / "x.jsonl"
    path.parent.mkdir(parents=True)
    from ivhl.records.files import append_record  # noqa: PLC0415  (its path would be hostile)

    append_record(path, bad)
    with path.open("a") as file:
        file.write(json.dumps({"schema": NASTY}) + "\n")
    make_commits(tmp_path, 1)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        "compat",
        "results",
        "results --json",
        "compat --json",
        "regressions --all",
        "compare evil box",
        "gate --base HEAD~1 --allow-missing",
        "gate --base HEAD~1 --allow-missing --format github",
        "spread",
        "import results",
    ],
)
def test_no_command_passes_a_control_character_on(root: Path, command: str) -> None:
    done = CliRunner().invoke(app, command.split())
    assert visible(done.output) == done.output, command
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        assert visible(visible(str(done.exception))) == visible(str(done.exception))
    del root


def test_a_console_shows_control_characters_and_markup() -> None:
    out = io.StringIO()
    console = Terminal(file=out, force_terminal=True, width=300, highlight=False)
    table = Table("a", box=None)
    table.add_row(f"{NASTY} {MARKUP}")
    console.print(table)
    console.print(MARKUP, NASTY)
    text = out.getvalue()
    assert "\\x1b[2J" in text
    assert MARKUP in text
    # Only rich's own style of the heading is left.
    assert "\x1b]8" not in text
    assert "\x1b[2J" not in text


@pytest.mark.parametrize(
    "text",
    [
        "[a](https://evil.example)",
        "![a](https://evil.example/x.png)",
        "<https://evil.example>",
        "https://evil.example www.evil.example",
        "WWW.evil.example",
        "**a** _b_ ~~c~~ `d` $e$",
        "[a]: https://evil.example\n\n[a]",
        "\\[a](b)",
        "<img src=x>",
        "@maintainer #1 :skull:",
        "</code>[a](b)",
    ],
)
def test_text_in_a_summary_is_neither_link_nor_image(text: str) -> None:
    written = code(text)
    tokens = [
        inner
        for token in MarkdownIt("commonmark").enable("strikethrough").parse(written)
        for inner in (token, *(token.children or ()))
    ]
    kinds = {token.type for token in tokens}
    assert kinds <= {
        "paragraph_open",
        "inline",
        "paragraph_close",
        "html_inline",
        "text",
        "text_special",
    }
    assert {t.content for t in tokens if t.type == "html_inline"} == {"<code>", "</code>"}
    inside = written.removeprefix("<code>").removesuffix("</code>")
    assert not set(inside) & set("<>|`@[]!*_~$:\\")
    assert "www." not in inside.lower()


def test_whatever_has_no_picture_is_written_out() -> None:
    """By Unicode's categories, so that a character of a later Unicode is no gap."""
    for point in range(0x110000):
        sign = chr(point)
        unseen = category(sign)[0] in "CZ" and sign not in " \t\n"
        assert not unseen or visible(sign) == ascii(sign)[1:-1], hex(point)
    for sign in UNSEEN:
        assert visible(f"a{sign}b") == f"a{ascii(sign)[1:-1]}b"
        assert sign not in code(sign)
        assert not is_printable(f"a{sign}b")
    assert visible("höhe 42 µs → 日本 😀\n\t") == "höhe 42 µs → 日本 😀\n\t"
    assert printable("a\n\tb\u200b") == "a\\n\\tb\\u200b"


def test_every_escape_of_invisible_characters_is_the_one_rule() -> None:
    """A second list of such characters would lack what the first one learns."""
    folder = find_root(Path(__file__)) / "ivhl"
    lists = re.compile(r"isprintable|\\u20(0|2|6)|\\x7f-|\\x9f|\\ufeff|unicodedata")
    theirs = ("vendor", "text.py")
    paths = [p for p in folder.rglob("*.py") if not set(p.parts) & {*theirs}]
    assert [f"{p}" for p in paths if lists.search(p.read_text(encoding="utf-8"))] == []


def test_every_command_prints_through_the_one_console() -> None:
    folder = files("ivhl").joinpath("cli")
    sources = [file for file in folder.iterdir() if file.name.endswith(".py")]
    assert [
        file.name for file in sources if "rich.console import Console" in file.read_text()
    ] == []
