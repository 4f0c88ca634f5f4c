"""The command line: parse, call, print. One module per group of commands."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer
from rich.console import Console

from ivhl.errors import IvhlError

app = typer.Typer(
    name="ivhl",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _version(wanted: bool) -> None:  # noqa: FBT001  (typer calls it so)
    if wanted:
        typer.echo(f"ivhl {version('ivhl')}")
        raise typer.Exit


@app.callback()
def options(
    *,
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Reproducible environment matrix and regression tracker for torch.compile."""


def main() -> None:
    """Run the command line; an error of ours is a message and an exit code, not a traceback."""
    try:
        app()
    except IvhlError as error:
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        console.print("[bold red]error:[/]", end=" ")
        console.print(str(error), markup=False)
        if error.hint:
            console.print("[bold]next:[/]", end=" ")
            console.print(error.hint, markup=False)
        sys.exit(error.exit_code)


# Each registers its commands on ``app``, which must exist before.
from ivhl.cli import bench as _bench  # noqa: E402, F401
from ivhl.cli import doctor as _doctor  # noqa: E402, F401
from ivhl.cli import fleet as _fleet  # noqa: E402, F401
from ivhl.cli import image as _image  # noqa: E402, F401
from ivhl.cli import matrix as _matrix  # noqa: E402, F401
from ivhl.cli import results as _results  # noqa: E402, F401
from ivhl.cli import spread as _spread  # noqa: E402, F401
