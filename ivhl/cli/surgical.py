"""``ivhl surgical``: which parts of a model of the project are worth compiling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer
from packaging.utils import canonicalize_name

from ivhl.bench.advising import advise_in_cell
from ivhl.bench.checks import check_device
from ivhl.cli import app
from ivhl.cli.tryout import newest_cell
from ivhl.errors import SpecError
from ivhl.git import files_of_tree
from ivhl.matrix.locks import lock_state
from ivhl.matrix.project import load
from ivhl.measure.effort import MOST_THREADS
from ivhl.tracker.terminal import Terminal

if TYPE_CHECKING:
    from pathlib import Path

    from ivhl.matrix.spec import CellSpec

surgical_app = typer.Typer(
    name="surgical",
    help="Say which parts of a model are worth compiling, by measuring them.",
    no_args_is_help=True,
)
app.add_typer(surgical_app)


@surgical_app.command("advise")
def advise_parts_command(
    module: Annotated[
        str,
        typer.Argument(
            metavar="MODULE",
            help="package.module:function; it returns the model, its inputs (a tuple, or a "
            "dictionary of keyword arguments) and, if you like, a function from the outputs to the "
            "loss.",
        ),
    ],
    python: Annotated[
        str | None, typer.Option(help="Python of the cell (default: the newest that is here).")
    ] = None,
    torch: Annotated[
        str | None, typer.Option(help="PyTorch release (default: the newest of the default tier).")
    ] = None,
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="Device to run on.")] = "cpu",
    threads: Annotated[int, typer.Option(min=1, max=MOST_THREADS, help="CPU threads.")] = 1,
    *,
    train: Annotated[
        bool, typer.Option("--train", help="Time a training step: forward and backward.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Time each part of a model alone, compiled against eager, and the best ones together.

    Runs the working tree in one cell. A part is all modules of one class, or a function of the
    model's packages.
    """
    root, matrix = load()
    check_device(device)
    if not all(module.partition(":")):
        raise SpecError(
            f"{module!r} is not of the form 'package.module:function'",
            hint="the function returns the model and its inputs; docs/surgical.md",
        )
    cell = newest_cell(root, matrix, python, torch)
    _check_module(root, cell, module.partition(":")[0])
    code = advise_in_cell(
        root,
        cell,
        [module, *(["--train"] if train else []), *(["--json"] if as_json else [])],
        device=device,
        threads=threads,
        console=Terminal(highlight=False, soft_wrap=True, stderr=True),
    )
    if code:
        raise typer.Exit(code)


def _check_module(root: Path, cell: CellSpec, module: str) -> None:
    """Refuse a module that neither the working tree nor a package of the cell has.

    Raises:
        SpecError: Making the cell first would take minutes.
    """
    path = module.replace(".", "/")
    found = {f"/{path}.py", f"/{path}/__init__.py"}
    if any(f"/{name}".endswith(end) for name in files_of_tree(root) for end in found):
        return
    if canonicalize_name(module.partition(".")[0]) not in lock_state(root, cell).packages:
        raise SpecError(
            f"there is no module {module}: no file of the working tree is {path}.py, and "
            f"{cell.id} has no package of that name",
            hint="name a module of the project: package.module:function",
        )
