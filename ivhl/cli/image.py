"""``ivhl image``: build the Docker image of a cell."""

from __future__ import annotations

from typing import Annotated

import typer

from ivhl.cli import app, options
from ivhl.cli.declared import locked
from ivhl.cli.names import find_cell
from ivhl.image.build import list_images
from ivhl.image.executor import DockerExecutor
from ivhl.matrix.project import load
from ivhl.tracker.terminal import Terminal

_GIB = 2**30


@app.command("image")
def image_command(
    image: Annotated[str, typer.Argument(metavar="CELL", help="E.g. py3.12-torch2.6.0.")],
    device: options.Device = "cpu",
    *,
    force: options.Force = False,
) -> None:
    """Build the Docker image of a cell. Needs a Docker engine."""
    root, matrix = load()
    cell = find_cell(matrix, image)
    engine = DockerExecutor(root)
    before = {one.id for one in list_images(engine.client, cell.id)}
    lock = locked(root, matrix, cell, {}, "only a locked cell can become an image")
    console = Terminal(highlight=False, soft_wrap=True)
    built = engine.image(
        lock, device, lambda line: console.print(line, style="bright_black"), fresh=force
    )
    what = "exists already" if built.id in before else "built"
    console.print(f"{cell.id}: {what}: {built.id}, {built.size_bytes / _GIB:.1f} GiB")
