"""``ivhl matrix``, and what its commands share."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ivhl.cli import app
from ivhl.errors import InterpreterError, LockError
from ivhl.matrix.interpreter import Interpreter, find_interpreter
from ivhl.matrix.locks import lock_state
from ivhl.tracker.terminal import Terminal

if TYPE_CHECKING:
    from pathlib import Path

    from ivhl.matrix.spec import CellSpec, Matrix

matrix_app = typer.Typer(
    name="matrix",
    help="Show, check and lock the cells: every Python with every PyTorch release.",
    no_args_is_help=True,
)
app.add_typer(matrix_app)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PythonOption = Annotated[list[str] | None, typer.Option("--python", help="Only this Python.")]
TorchOption = Annotated[
    list[str] | None, typer.Option("--torch", help="Only this PyTorch release, of any tier.")
]
AdHocOption = Annotated[
    list[str] | None,
    typer.Option("--torch", help="Also accept cells of this release, which the matrix lacks."),
]

COLOURS = {"locked": "green", "unavailable": "yellow", "missing": "red", "stale": "red"}


def state_of(root: Path, matrix: Matrix, cell: CellSpec) -> dict[str, str]:
    """Return the state of a cell's lock, and what is wrong with it."""
    try:
        state = lock_state(root, cell)
    except LockError as error:
        return {"lock": "damaged", "message": str(error)}
    return {"lock": "stale" if state.stale(matrix) else state.kind, "message": state.message}


def interpreter_of(root: Path, python: str) -> Interpreter | None:
    """Return the interpreter for a Python; ``None`` if there is none on this machine."""
    try:
        return find_interpreter(root, python, install=False)
    except InterpreterError:
        return None


def new_console() -> Terminal:
    """Return a console that does not wrap what it writes into a pipe."""
    # A new one at each use, because tests replace stdout.
    wide = None if sys.stdout.isatty() else 1000
    return Terminal(highlight=False, soft_wrap=True, width=wide)


def print_json(value: Any) -> None:  # noqa: ANN401  (whatever json takes)
    """Print a value as JSON."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False))
