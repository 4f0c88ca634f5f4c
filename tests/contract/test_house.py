"""The tool and its documents stay as small as they are: each number may only go down."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Final

from studies.house import measure, rows, words

ROOT: Final = Path(__file__).parents[2]
# What `python -m studies.house` printed last. Lower a limit with the work that lowers its number.
LIMITS: Final = {
    "lines of code of the tool": 42_287,
    "commands": 32,
    "declarations of options": 57,
    "largest room of the tracker, in percent": 5.0,
    "import cycles in the tool": 0,
    "lines of the longest class": 271,
    "functions over 50 lines, in percent": 0.9,
    "rows of the glossary": 36,
    "words of README": 500,
    "words of the documents": 35_000,
}


def test_no_number_of_the_house_grows() -> None:
    measured = measure(ROOT)
    assert measured.keys() == LIMITS.keys()
    grown = {
        name: f"{value:,} > {LIMITS[name]:,}"
        for name, value in measured.items()
        if value > LIMITS[name]
    }
    assert grown == {}, "make it smaller, or say in the commit why the limit must rise"


def test_what_is_counted_is_what_the_table_says(tmp_path: Path) -> None:
    files = {
        "ivhl/__init__.py": '"""A package."""\n',
        "ivhl/ops.py": "import ivhl.cli\n" * 9,
        "ivhl/cli.py": """\
            # A comment, and a docstring of two lines.
            '''One.

            Two.'''
            from typing import TYPE_CHECKING

            import typer

            if TYPE_CHECKING:
                from ivhl.git import head

            @app.command("x", hidden=True)
            def x(name: str = typer.Option("two", help='''two
            lines''')) -> None:
                '''Do nothing.'''
            """,
        "ivhl/git.py": """\
            def head() -> None:
                from ivhl import cli


            class Commit:
                name: str
            """,
        "README.md": "# ivhl\n\n| one | `two three` |\n",
        "docs/glossary.md": "| word | meaning |\n|---|---|\n| cell | a Python |\n| lock | |\n",
        "docs/adr/0001.md": "not counted",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
    assert measure(tmp_path) == {
        "lines of code of the tool": 7 + 4,
        "commands": 1,
        "declarations of options": 1,
        "largest room of the tracker, in percent": 0,
        "import cycles in the tool": 1,
        "lines of the longest class": 2,
        "functions over 50 lines, in percent": 0,
        "rows of the glossary": 2,
        "words of README": 8,
        "words of the documents": 16,
    }
    assert rows(tmp_path / "docs/glossary.md") == 2
    assert words(tmp_path / "README.md") == 8
