"""The command line: parse, call, print; each group of commands is imported when it is called.

Importing all of them brings asv, docker and pydantic along: 1 s before a word of help.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperCommand, TyperGroup

from ivhl.errors import IvhlError

if TYPE_CHECKING:
    from typing import Any

# Command: the module that registers it on ``app``, and the first sentence of its help.
COMMANDS = {
    "bench": ("bench", "Measure one Python's cells, publish the site and print the table."),
    "compat": (
        "results",
        "Show what works where: the newest record of every case, and the cases without one.",
    ),
    "results": (
        "results",
        "List the records, oldest first. With --json as they are stored, samples included.",
    ),
    "publish": (
        "results",
        "Build the site: asv's pages, Compatibility and Speedup, ready for any static server.",
    ),
    "gate": ("fleet", "Fail on what newly fails or is clearly slower than at the base commit."),
    "import": (
        "fleet",
        "Take records of other machines: each once, in any order, checked one by one.",
    ),
    "spread": (
        "spread",
        "Show how far apart runs of the same case lie, and how often intervals held another run.",
    ),
    "matrix": (
        "matrix",
        "Show, check and lock the cells: every Python with every PyTorch release.",
    ),
    "image": (
        "image",
        "Build images of cells, measure in them, compare them. Needs a Docker engine.",
    ),
    "doctor": ("doctor", "Say what on this machine makes measurements noisy, slow or impossible."),
}


class Commands(TyperGroup):
    """Lists all commands, and imports the one that is called."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401  (click's)
        """Return the names in the order of the help."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401  (click's)
        """Return what the help shows of a command, or the command itself once it is imported."""
        if cmd_name not in COMMANDS or cmd_name in self.commands:
            return super().get_command(ctx, cmd_name)
        return TyperCommand(name=cmd_name, help=COMMANDS[cmd_name][1])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401  (click's)
        """Import the command that the arguments name."""
        if args and args[0] in COMMANDS and args[0] not in self.commands:
            import_module(f"ivhl.cli.{COMMANDS[args[0]][0]}")
            self.commands = {**self.commands, **typer.main.get_group(app).commands}
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="ivhl",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
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
        from rich.console import Console  # noqa: PLC0415  (where it is needed)

        console = Console(stderr=True, highlight=False, soft_wrap=True)
        console.print("[bold red]error:[/]", end=" ")
        console.print(str(error), markup=False)
        if error.hint:
            console.print("[bold]next:[/]", end=" ")
            console.print(error.hint, markup=False)
        sys.exit(error.exit_code)
