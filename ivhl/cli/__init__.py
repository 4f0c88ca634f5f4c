"""Command line of ivhl. Imports a command's module only when that command is called.

Importing all of them also imports asv, docker and pydantic, which takes 1 s even for --help.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from ivhl.errors import UnknownNameError, explained

# Panel to its commands, in the order in which the help shows them.
_PANELS = {
    "Start": "init check doctor advise ready",
    "Measure": "try run observe bench publish import fleet",
    "Read": "compat results compare course regressions",
    "Explain": "bisect attribute blame report repeat",
    "Maintain": "gate version-checks matrix lock image",
}
# Command to the module that registers it on ``app``, where their names differ.
_MODULES = {"try": "tryout", "import": "imports", "bisect": "bisection"}
# Command to its module and its panel.
COMMANDS = {
    name: (_MODULES.get(name, name.replace("-", "_")), panel)
    for panel, names in _PANELS.items()
    for name in names.split()
}

# New objects after which Python looks for cycles.
_COLLECTED_AFTER = 50_000


def help_of(module: str) -> str:
    """Return the first paragraph of a command's help, without an import of its module."""
    text = Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8")
    return text.partition('-> None:\n    """')[2].partition('"""')[0].partition("\n\n")[0]


class Commands(TyperGroup):
    """Lists all commands; imports only the one that is called."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401  (click's)
        """Return the names in the order in which the help shows them."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401  (click's)
        """Return the command if it is imported, else a placeholder with its help text."""
        if cmd_name not in COMMANDS or cmd_name in self.commands:
            command: Any = super().get_command(ctx, cmd_name)
        else:
            command = TyperCommand(name=cmd_name, help=help_of(COMMANDS[cmd_name][0]))
        if command is not None and cmd_name in COMMANDS:
            command.rich_help_panel = COMMANDS[cmd_name][1]
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401  (click's)
        """Import the command that the arguments name."""
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
        from importlib.metadata import version  # noqa: PLC0415  (no other option needs it)

        typer.echo(f"ivhl {version('ivhl')}")
        raise typer.Exit


@app.callback()
def ivhl(
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
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")
    if os.environ.get("COLUMNS") in [*"0123456789"]:  # some terminals say 0, and nothing fits it
        os.environ["COLUMNS"] = "80"
    # Commands make hundreds of thousands of objects that stay, and nearly no cycles: with Python's
    # 700, a tenth of the time of a view goes into looking for those, and as much at its end.
    gc.set_threshold(_COLLECTED_AFTER)
    atexit.register(gc.freeze)
    try:
        try:
            app()
        finally:
            typer.echo(nl=False)  # flushes
    except (BrokenPipeError, SystemExit) as ended:
        if BrokenPipeError not in (type(ended), type(ended.__context__)):
            raise
        # What is left to print goes nowhere, and the shell sees what ends other programs there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except Exception as raised:
        if os.environ.get("IVHL_TRACEBACK") == "1":
            raise
        error = explained(raised)
        from ivhl.tracker.terminal import Terminal  # noqa: PLC0415  (only errors need it)

        console = Terminal(stderr=True, highlight=False, soft_wrap=True)
        console.label("error:", str(error), "bold red")
        if error.hint:
            console.label("next:", error.hint, "bold")
        sys.exit(error.exit_code)
