"""``ivhl image``: build, run and compare Docker images of cells."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import typer
from rich.table import Table
from rich.text import Text

from ivhl.bench import bench
from ivhl.bench.request import Request
from ivhl.bench.selection import Selection
from ivhl.cli import app
from ivhl.cli.bench import bench_command
from ivhl.errors import IvhlError, LockError, SpecError, UnknownNameError
from ivhl.image.agreement import every_record, judge_agreement
from ivhl.image.bill import make_bill
from ivhl.image.build import find_image, list_images, prune_images
from ivhl.image.engine import connect
from ivhl.image.executor import DockerExecutor
from ivhl.image.packages import contents, differences
from ivhl.matrix.locks import ensure_lock, lock_state
from ivhl.matrix.project import find_root, load
from ivhl.measure.effort import MOST_THREADS, Effort
from ivhl.tracker.terminal import Terminal
from ivhl.tracker.wording import counted

if TYPE_CHECKING:
    from ivhl.image.agreement import Agreement
    from ivhl.image.build import Image
    from ivhl.matrix.locks import LockState
    from ivhl.matrix.spec import CellSpec, Matrix

image_app = typer.Typer(
    name="image",
    help="Build Docker images of cells, measure in them and compare them. Needs a Docker engine.",
    no_args_is_help=True,
)
app.add_typer(image_app)

CellArgument = Annotated[str, typer.Argument(metavar="CELL", help="E.g. py3.12-torch2.6.0.")]
DeviceOption = Annotated[Literal["cpu", "cuda"], typer.Option(help="Device to measure on.")]
WorkloadOption = Annotated[
    list[str] | None, typer.Option("--workload", help="Only this workload; repeatable.")
]
CpusOption = Annotated[str, typer.Option(help="CPUs to pin the container to, e.g. 2-3.")]
SizeOption = Annotated[
    str | None, typer.Option(help="Size (default: each workload's default size).")
]
VariantOption = Annotated[
    list[str] | None, typer.Option("--variant", help="Only this variant; repeatable.")
]
SuiteOption = Annotated[
    Literal["core", "full"] | None,
    typer.Option(
        help="As for `ivhl bench` (default: core when no workload, size or variant is named)."
    ),
]

_GIB = 2**30


class DifferentError(IvhlError):
    """Two images differ, or native and container runs give different speedups."""

    exit_code: ClassVar[int] = 10


@image_app.command("build")
def build_command(
    cell: CellArgument,
    device: DeviceOption = "cpu",
    base: Annotated[
        str, typer.Option(help="Base image (default: the one in envs/docker/bases.toml).")
    ] = "",
    certificates: Annotated[
        Path | None, typer.Option(help="PEM file of CAs to trust (default: SSL_CERT_FILE).")
    ] = None,
    network: Annotated[
        str, typer.Option(help="Network of the build, e.g. host (default: the engine's).")
    ] = "",
    *,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Build even if the image exists.")
    ] = False,
) -> None:
    """Build the image of a cell from its lock."""
    root, matrix, found = _cell(cell)
    engine = DockerExecutor(root, base=base, certificates=certificates, network=network)
    before = {image.id for image in list_images(engine.client, found.id)}
    lock = _lock(root, matrix, found)
    console = Terminal(highlight=False, soft_wrap=True)

    def show(line: str) -> None:
        console.print(line, markup=False, style="bright_black")

    image = engine.image(lock, device, show, fresh=fresh)
    what = "exists already" if image.id in before else "built"
    console.print(f"{found.id}: {what}: {image.id}, {image.size_bytes / _GIB:.1f} GiB")


@image_app.command("run")
def run_command(
    context: typer.Context,
    cell: CellArgument,
    workload: WorkloadOption = None,
    size: SizeOption = None,
    variant: VariantOption = None,
    suite: SuiteOption = None,
    commit: Annotated[str, typer.Option(help="Commit to measure.")] = "HEAD",
    machine: Annotated[
        str | None,
        typer.Option(help="Machine name in the results (default: the engine's host name)."),
    ] = None,
    results: Annotated[
        Path | None, typer.Option(help="Folder of the results (default: results).")
    ] = None,
    device: DeviceOption = "cpu",
    threads: Annotated[int, typer.Option(min=1, max=MOST_THREADS, help="CPU threads.")] = 1,
    cpus: CpusOption = "",
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Measure again cases that have a record.")
    ] = False,
) -> None:
    """Measure one cell in a container of its image; builds the image if it is missing.

    `ivhl bench --docker` does the same for all cells of a Python and builds the site.
    """
    _, _, found = _cell(cell)
    bench_command(
        context,
        python=[found.python],
        torch=[found.torch],
        workload=workload,
        size=size,
        variant=variant,
        suite=suite,
        commit=commit,
        machine=machine,
        results=results,
        device=device,
        threads=threads,
        cpus=cpus,
        force=force,
        in_docker=True,
        no_publish=True,
    )


@image_app.command("list")
def list_command(
    cell: Annotated[str, typer.Argument(metavar="[CELL]", help="Only its images.")] = "",
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """List the engine's images of cells."""
    root, matrix = load()
    images = list_images(connect(), cell)
    if as_json:
        rows = [asdict(image) | {"state": _state(root, matrix, image)} for image in images]
        typer.echo(json.dumps(rows, indent=1))
        return
    table = Table("image", "cell", "state", "GiB", "built", "base", box=None, pad_edge=False)
    for image in images:
        table.add_row(
            image.short,
            image.cell,
            _state(root, matrix, image),
            f"{image.size_bytes / _GIB:.1f}",
            image.created[:16],
            Text(image.base),
        )
    console = Terminal(highlight=False)
    console.print(table if images else "no images; ivhl image build CELL makes one")


@image_app.command("prune")
def prune_command(
    cell: Annotated[str, typer.Argument(metavar="[CELL]", help="Only its images.")] = "",
    *,
    everything: Annotated[bool, typer.Option("--all", help="Also remove current images.")] = False,
) -> None:
    """Remove images whose cell has a newer lock, and images that a later build replaced."""
    root, matrix = load()
    client = connect()
    console = Terminal(highlight=False, soft_wrap=True)
    images = list_images(client, cell)
    chosen = [i for i in images if everything or _state(root, matrix, i) != "current"]
    freed = prune_images(client, chosen, lambda line: console.print(line, markup=False))
    kept = len(images) - len(chosen)
    summary = f"removed {counted(len(chosen), 'image')}, {freed / _GIB:.1f} GiB"
    console.print(f"{summary} (counting layers shared with other images); {kept} kept")


@image_app.command("diff")
def diff_command(
    images: Annotated[
        list[str], typer.Argument(metavar="CELL | IMAGE IMAGE", help="From `ivhl image list`.")
    ],
) -> None:
    """Compare two images: Python, packages with their files, system packages.

    With a CELL, compares its two newest images. Exit code 10 if they differ.
    """
    client = connect()
    match images:
        case [cell]:
            _, _, spec = _cell(cell)
            two = list_images(client, spec.id)[:2][::-1]
        case [one, other]:
            two = (find_image(client, one), find_image(client, other))
        case _:
            raise SpecError(
                f"expected one cell or two images (got {len(images)} names)",
                hint="ivhl image list shows both",
            )
    if len(two) < 2:  # noqa: PLR2004  (a pair)
        raise SpecError(
            f"{images[0]} has {counted(len(two), 'image')}; a comparison needs two",
            hint=f"ivhl image build {images[0]} --fresh builds another one",
        )
    before, after = (contents(client, image.id) for image in two)
    found = differences(before, after)
    console = Terminal(highlight=False, soft_wrap=True)
    for image in two:
        console.print(f"{image.short}  {image.cell}, built {image.created[:16]}")
    if not found:
        counts = ", ".join(counted(len(names), kind) for kind, names in sorted(before.items()))
        console.print(f"identical: {counts}")
        return
    table = Table("", "name", two[0].short, two[1].short, box=None, pad_edge=False)
    for thing in found:
        table.add_row(thing.kind, thing.name, thing.before or "none", thing.after or "none")
    console.print(table)
    raise DifferentError(
        f"{counted(len(found), 'difference')} between {two[0].short} and {two[1].short}",
        hint="system packages come with the base image: pin it by digest",
    )


@image_app.command("bill")
def bill_command(
    image: Annotated[str, typer.Argument(metavar="CELL | IMAGE", help="From `ivhl image list`.")],
) -> None:
    """Print the software bill of materials of an image as JSON, in CycloneDX 1.6.

    With a CELL, that of its newest image.
    """
    client = connect()
    found = list_images(client, image)[:1] or [find_image(client, image)]
    typer.echo(json.dumps(make_bill(found[0], contents(client, found[0].id)), indent=1))


@image_app.command("compare")
def compare_command(
    cell: CellArgument,
    workload: WorkloadOption = None,
    size: SizeOption = None,
    variant: VariantOption = None,
    suite: SuiteOption = None,
    rounds: Annotated[
        int, typer.Option(min=1, help="Runs on the machine itself, and in containers.")
    ] = 3,
    cpus: CpusOption = "",
) -> None:
    """Measure a cell natively and in containers, alternating, and compare the speedups.

    Exit code 10 if a speedup differs by more than the noise floor.
    """
    root, _, found = _cell(cell)
    console = Terminal(highlight=False, soft_wrap=True)
    folder = root / ".asv" / "compare"
    shutil.rmtree(folder, ignore_errors=True)
    engine = DockerExecutor(root, cpus=cpus)
    sides = {"native": None, "docker": engine}
    selection = Selection(
        workloads=tuple(workload or ()), size=size, variants=tuple(variant or ()), suite=suite
    )
    for number in range(rounds):
        # Alternate the order: the first run of a round finds a cooler machine.
        for side in sorted(sides, reverse=number % 2 == 0):
            console.print(f"round {number + 1} of {rounds}: {side}")
            request = Request(
                root=root,
                python=found.python,
                releases=(found.torch,),
                results=folder / side,
                selection=selection,
                effort=Effort(force=True),
            )
            bench(request, console, sides[side])
    found_cases, left_out = judge_agreement(
        every_record(folder / "native"), every_record(folder / "docker")
    )
    for text in (*map(_as_text, found_cases), *left_out):
        console.print(text, markup=False)
    apart = [one.case for one in found_cases if not one.agrees]
    if apart or not found_cases:
        raise DifferentError(
            f"{len(apart)} of {len(found_cases)} cases differ by more than noise: "
            + (", ".join(apart) or "nothing to compare"),
            hint=f"the records are in {folder}; repeat with more --rounds to confirm",
        )


def _as_text(one: Agreement) -> str:
    sides = (("native", one.native), ("container", one.docker))
    runs = ", ".join(f"{name} {' '.join(f'{x:.2f}x' for x in xs)}" for name, xs in sides)
    times = f"seconds: eager {one.eager_ratio:.2f}, compiled {one.compiled_ratio:.2f}"
    verdict = "agrees" if one.agrees else "DIFFERS"
    result = f"ratio {one.ratio:.2f}, noise floor {one.floor:.2f}: {verdict} ({times})"
    return f"{one.case}\n  {runs}\n  {result}"


def _cell(name: str) -> tuple[Path, Matrix, CellSpec]:
    root, matrix = load(find_root())
    return root, matrix, matrix.cell(name)


def _lock(root: Path, matrix: Matrix, cell: CellSpec) -> LockState:
    lock = ensure_lock(root, matrix, cell)
    if lock.kind != "locked":
        raise LockError(
            f"{cell.id} is {lock.kind}: {lock.message}",
            hint="only a locked cell can become an image",
        )
    return lock


def _state(root: Path, matrix: Matrix, image: Image) -> str:
    """Return how an image relates to its cell's lock: ``current``, ``replaced``, ..."""
    try:
        lock = lock_state(root, matrix.cell(image.cell))
    except UnknownNameError:
        return "no such cell"
    if image.lock != lock.sha256:
        return "another lock"
    return "current" if image.tags else "replaced"
