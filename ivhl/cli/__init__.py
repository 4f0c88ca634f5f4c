"""Command line of ivhl. Imports a command's module only when that command is called.

Importing all of them also imports asv, docker and pydantic, which takes 1 s even for --help.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperCommand, TyperGroup

from ivhl.errors import SpecError, UnknownNameError, explained

if TYPE_CHECKING:
    from typing import Any

# Command to the module that registers it on ``app``, and to the first sentence of its help.
COMMANDS = {
    "init": (
        "init",
        "Write into this project what ivhl needs: matrix, locks, two example workloads.",
    ),
    "check": (
        "check",
        "Check every file that ivhl reads: matrix, locks, settings, benchmarks.",
    ),
    "try": (
        "tryout",
        "Run cases of the uncommitted tree in one cell: full traceback, no record.",
    ),
    "run": (
        "run",
        "Run a script in each PyTorch release and say which release is the first that differs.",
    ),
    "bench": ("bench", "Measure cells, publish the site and print the table."),
    "compat": (
        "results",
        "Show which cases work in which cell, from the newest record of each case.",
    ),
    "advise": (
        "advise",
        "Say which Python and PyTorch release to take, and what the records have against others.",
    ),
    "results": (
        "results",
        "List the records, oldest first. --json prints them as stored, with all samples.",
    ),
    "publish": (
        "results",
        "Build the static site.",
    ),
    "compare": (
        "compare",
        "Compare two commits, PyTorch releases, Pythons, machines or stored results.",
    ),
    "regressions": (
        "regressions",
        "List what newly failed, broke more graphs or got slower in the stored history.",
    ),
    "course": (
        "course",
        "Show cases over all releases and Pythons, and where eager and compiled moved.",
    ),
    "annotate": (
        "annotate",
        "Say what is known about a change; `ivhl regressions` shows it. Commit the file.",
    ),
    "bisect": (
        "bisection",
        "Find the commit or PyTorch release that changed a case, by measuring.",
    ),
    "blame": (
        "blame",
        "Find the stage of the compiler and the setting behind a failure, graph breaks or slowness.",
    ),
    "repeat": (
        "repeat",
        "Build the environment of a record, run its case, and say whether it reproduces.",
    ),
    "attribute": (
        "attribute",
        "Say whether Python, PyTorch, a package, flags or the commit makes two cells differ.",
    ),
    "gate": (
        "gate",
        "Fail if a case newly fails, breaks more graphs, or is slower than at the base commit.",
    ),
    "expect": (
        "expect",
        "Check the known failures, envs/expectations.toml, against the records.",
    ),
    "version-checks": (
        "version_checks",
        "Find version checks around compiled code, and say which the records contradict.",
    ),
    "import": (
        "fleet",
        "Import records from other machines. Checks each one and skips duplicates.",
    ),
    "spread": (
        "spread",
        "Show how much repeated runs of a case differ, and how often intervals predicted it.",
    ),
    "compact": (
        "storage",
        "Pack the records of old commits; no value is lost, and every command reads them as before.",
    ),
    "export": (
        "storage",
        "Write all records with their samples to a Parquet file, a row each. Needs pyarrow.",
    ),
    "matrix": (
        "matrix",
        "Show, check and lock the cells: every Python with every PyTorch release.",
    ),
    "image": (
        "image",
        "Build Docker images of cells, measure in them and compare them. Needs a Docker engine.",
    ),
    "surgical": (
        "surgical",
        "Say which parts of a model are worth compiling, by measuring them.",
    ),
    "doctor": (
        "doctor",
        "Check whether this machine can measure reliably. Read-only.",
    ),
}

# New objects after which Python looks for cycles.
_COLLECTED_AFTER = 50_000
# Commands of before, and what they are called now.
RENAMED = {"guards": "version-checks", "confirm": "gate --confirm"}


class Commands(TyperGroup):
    """Lists all commands; imports only the one that is called."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401  (click's)
        """Return the names in the order in which the help shows them."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401  (click's)
        """Return the command if it is imported, else a placeholder with its help text."""
        if cmd_name not in COMMANDS or cmd_name in self.commands:
            return super().get_command(ctx, cmd_name)
        return TyperCommand(name=cmd_name, help=COMMANDS[cmd_name][1])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401  (click's)
        """Import the command that the arguments name."""
        if args and (name := RENAMED.get(args[0])) is not None:
            raise SpecError(
                f"ivhl {args[0]}: the command is now ivhl {name}", hint=f"ivhl {name} --help"
            )
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            raise UnknownNameError("command", args[0], COMMANDS)
        if args and args[0] in COMMANDS and args[0] not in self.commands:
            import_module(f"ivhl.cli.{COMMANDS[args[0]][0]}")
            self.commands = {**self.commands, **typer.main.get_group(app).commands}
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401  (click's)
        """Run the command; its refusal of a value does not begin with words of pydantic."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise


app = typer.Typer(
    name="ivhl",
    cls=Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:  # noqa: FBT001  (typer calls it so)
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415  (only this option needs it)

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
    """Run the command line. An error prints a message and exits, without a traceback."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        # Supervisors of jobs send it: as after Ctrl-C, contexts end processes and remove folders.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # Commands make hundreds of thousands of objects that stay, and nearly no cycles: with Python's
    # 700, a tenth of the time of a view goes into looking for those, and as much at its end.
    gc.set_threshold(_COLLECTED_AFTER)
    atexit.register(gc.freeze)
    try:
        app()
    except Exception as raised:
        if os.environ.get("IVHL_TRACEBACK") == "1":
            raise
        error = explained(raised)
        from ivhl.tracker.terminal import Terminal  # noqa: PLC0415  (only errors need it)

        console = Terminal(stderr=True, highlight=False, soft_wrap=True)
        console.print("error:", end=" ", style="bold red")
        console.print(str(error))
        if error.hint:
            console.print("next:", end=" ", style="bold")
            console.print(error.hint)
        sys.exit(error.exit_code)
