"""``ivhl init``: write into a project what ivhl needs to measure it."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Annotated

import typer

from ivhl.asv.files import foreign_files
from ivhl.cli import app, options
from ivhl.cli.screen import check_github
from ivhl.init.declare import write_changes
from ivhl.init.plan import InitPlan, make_plan
from ivhl.tracker.terminal import Terminal


@app.command("init")
def init_command(
    target: Annotated[
        str,
        typer.Argument(help="What to measure: package.module:function (default: an example)."),
    ] = "",
    python: options.Pythons = None,
    torch: options.Releases = None,
    form: options.Form = None,
    *,
    dry_run: options.DryRun = False,
) -> None:
    """Write into this project what ivhl needs: matrix, locks, declarations.

    Run it in the folder with pyproject.toml. It never changes what is there already. Default: the
    Python that runs ivhl, the newest PyTorch that the project allows. --format github also writes a
    workflow.
    """
    check_github(form, "a workflow")
    root = Path.cwd()
    console = Terminal(highlight=False, soft_wrap=True)
    plan = make_plan(
        root,
        python or (),
        torch or (),
        github=form is not None,
        today=dt.datetime.now(tz=dt.UTC).date(),
        target=target,
        tell=lambda text: console.print(text, style="bright_black"),
    )
    if foreign_files(root / "results"):
        console.print(
            "note: results/ has files of other programs, and ivhl needs this folder: move them"
        )
    for note in plan.notes:
        console.print(f"note: {note}")
    if not plan.changes:
        console.print("nothing to do: all files of ivhl init exist")
        return
    if not dry_run:
        write_changes(root, plan.changes)
    _print_changes(console, plan, dry_run=dry_run)
    if not dry_run:
        _print_next(console, plan)


def _print_changes(console: Terminal, plan: InitPlan, *, dry_run: bool) -> None:
    word = ("would add to", "would write") if dry_run else ("added to", "wrote")
    for change in plan.changes:
        console.print(f"{word[0] if change.added else word[1]} {change.path}")
        if dry_run and change.path.parent.name not in ("locks", "built"):
            for line in change.data.decode().splitlines():
                console.print(f"    {line}".rstrip(), style="bright_black")


def _print_next(console: Terminal, plan: InitPlan) -> None:
    """Print the commands that come next."""
    locked = [state.cell for state in plan.cells if state.kind == "locked"]
    folder = Path(plan.folder)
    written = [one.path for one in plan.changes if one.path.parent == folder]
    first = next((path for path in written[::-1] if path.name != "__init__.py"), None)
    console.print("\nnext:")
    if not locked:
        console.print("  correct `requires` in envs/matrix.toml, or name other releases in it")
        console.print("  ivhl lock")
    if first is not None:
        console.print(f"  edit {first}: the functions in it")
    console.print("  ivhl try          the uncommitted tree in one cell, with full tracebacks")
    console.print("  git add --all && git commit")
    for python in dict.fromkeys(cell.python for cell in locked):
        console.print(f"  ivhl bench --python {python}")
