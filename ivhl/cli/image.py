"""``ivhl image``: the Docker image of a cell, built and compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from ivhl.cli import app, options
from ivhl.cli.complete import complete_cells
from ivhl.cli.declared import locked
from ivhl.cli.names import find_cell, the_one
from ivhl.cli.screen import screen
from ivhl.errors import IvhlError, SpecError, UnknownNameError
from ivhl.image.build import find_image, list_images
from ivhl.image.engine import connect
from ivhl.image.executor import DockerExecutor
from ivhl.image.packages import contents, differences
from ivhl.matrix.project import find_root, load
from ivhl.tracker.terminal import Columns, Terminal
from ivhl.tracker.wording import counted

if TYPE_CHECKING:
    from ivhl.image.build import Image
    from ivhl.image.engine import Client

_GIB = 2**30


class DifferentError(IvhlError):
    """Two images differ."""

    exit_code: ClassVar[int] = 10


@app.command("image")
def image_command(
    image: Annotated[
        str,
        typer.Argument(
            metavar="CELL", help="E.g. py3.12-torch2.6.0.", autocompletion=complete_cells
        ),
    ],
    other: Annotated[
        str | None,
        typer.Argument(metavar="[IMAGE]", help="With two images or cells: compare them."),
    ] = None,
    device: options.Device = "cpu",
    *,
    force: options.Force = False,
    every: options.Every = False,
) -> None:
    """Build the Docker image of a cell, or compare two images.

    Needs a Docker engine. Two images are compared by Python, packages with their files, and system
    packages; a cell means its newest image. Exit code 10 if images differ.
    """
    if other is not None:
        _compare_images(connect(), (image, other), every=every)
        return
    root, matrix = load(find_root())
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


def _newest(client: Client, name: str) -> Image:
    """Return an image by its name or digest, or the newest image of a cell."""
    try:
        return find_image(client, name)
    except UnknownNameError:
        images = list_images(client)
        cell = the_one("image or cell", name, {one.cell for one in images})
        return next(one for one in images if one.cell == cell)


def _compare_images(client: Client, names: tuple[str, str], *, every: bool) -> None:
    """Print what differs between two images.

    Raises:
        DifferentError: If something does.
        SpecError: If both are the same.
    """
    two = tuple(_newest(client, name) for name in names)
    if two[0].id == two[1].id:
        raise SpecError(
            f"{names[0]} and {names[1]} are the same image, {two[0].short}",
            hint="docker image ls --filter label=org.ivhl.cell lists images; ivhl image CELL "
            "--force builds another one",
        )
    before, after = (contents(client, one.id) for one in two)
    found = differences(before, after)
    with screen(every=every) as console:
        for one in two:
            console.print(f"{one.short}  {one.cell}, built {one.created[:16]}")
        if not found:
            counts = ", ".join(counted(len(them), kind) for kind, them in sorted(before.items()))
            console.print(f"identical: {counts}")
            return
        table = Columns("kind", "name", two[0].short, two[1].short)
        for thing in found:
            table.add_row(thing.kind, thing.name, thing.before or "none", thing.after or "none")
        console.print(table)
    raise DifferentError(
        f"{counted(len(found), 'difference')} between {two[0].short} and {two[1].short}",
        hint="system packages come with the base image: pin it by digest",
    )
