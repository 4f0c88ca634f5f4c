"""Every option of the command line, declared once: one name, one meaning, one help everywhere.

Options that choose records or cells may be repeated; a type named ``One...`` takes one value.
"""

from __future__ import annotations

import inspect
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import typer

from ivhl.cli.screen import check_suffix
from ivhl.errors import SpecError
from ivhl.measure.effort import MOST_THREADS
from ivhl.records.text import is_printable

if TYPE_CHECKING:
    from collections.abc import Callable


def address_of(text: str) -> str:
    """Return the address of a site with its last slash; empty if none is given.

    Raises:
        SpecError: If it is none that a browser opens.
    """
    if not text:
        return ""
    with suppress(ValueError):  # no host is in brackets as this one
        parts = urlsplit(text)
        # A password would stand in a comment, and no page is behind a question.
        more = parts.username is not None or parts.query or parts.fragment
        is_page = parts.scheme in ("http", "https") and parts.hostname and not more
        if is_page and is_printable(text):
            return urlunsplit((parts.scheme, parts.netloc, f"{parts.path.rstrip('/')}/", "", ""))
    raise SpecError(
        f"--site-url: must be an address of the web, without user and question (got {text!r})",
        hint="e.g. --site-url https://owner.github.io/project/",
    )


_PYTHON = typer.Option("--python", help="Python, e.g. 3.12.")
_TORCH = typer.Option("--torch", help="PyTorch release, e.g. 2.6.0 or 2.6.")
_MACHINE = typer.Option("--machine", help="Name of a machine in the results.")
_DEVICE = typer.Option("--device", help="Processor (cpu) or GPU (cuda).")
_WORKLOAD = typer.Option("--workload", help="Workload, e.g. ops.gp_evolve.")
_SIZE = typer.Option("--size", help="Size of a workload, e.g. medium.")
_VARIANT = typer.Option("--variant", help="Variant of a workload, e.g. naive-compiled.")
_CASE = typer.Option("--case", help="Case: WORKLOAD/SIZE/VARIANT, or a part of it.")
_COMMIT = typer.Option("--commit", help="Commit: a hash, branch or tag.")
_RESULTS = typer.Option("--results", help="Folder of the results (default: results).")
_THREADS = typer.Option("--threads", min=1, max=MOST_THREADS, help="CPU threads of PyTorch.")
_DEADLINE = typer.Option("--deadline", min=1, help="Most seconds for each process of a case.")
_ALL = typer.Option("--all", help="Print everything, more than a screen of it.")
_JSON = typer.Option("--json", help="Print JSON, for programs.")
_OUTPUT = typer.Option(
    "--output", help="File to write, in the format of its suffix; of publish and blame, a folder."
)

Pythons = Annotated[list[str] | None, _PYTHON]
OnePython = Annotated[str | None, _PYTHON]
Releases = Annotated[list[str] | None, _TORCH]
OneRelease = Annotated[str | None, _TORCH]
Machines = Annotated[list[str] | None, _MACHINE]
OneMachine = Annotated[str | None, _MACHINE]
Device = Annotated[Literal["cpu", "cuda"], _DEVICE]
AnyDevice = Annotated[Literal["cpu", "cuda"] | None, _DEVICE]
Workloads = Annotated[list[str] | None, _WORKLOAD]
Sizes = Annotated[list[str] | None, _SIZE]
OneSize = Annotated[str | None, _SIZE]
Variants = Annotated[list[str] | None, _VARIANT]
OneVariant = Annotated[str | None, _VARIANT]
Cases = Annotated[list[str] | None, _CASE]
OneCase = Annotated[str, _CASE]
Commits = Annotated[list[str] | None, _COMMIT]
OneCommit = Annotated[str, _COMMIT]
AnyCommit = Annotated[str | None, _COMMIT]
Results = Annotated[Path | None, _RESULTS]
Threads = Annotated[int, _THREADS]
Deadline = Annotated[float, _DEADLINE]
Every = Annotated[bool, _ALL]
Json = Annotated[bool, _JSON]
Output = Annotated[Path | None, _OUTPUT]

# What chooses records; ``choosing`` adds them to a command.
CHOOSING = {
    "python": Pythons,
    "torch": Releases,
    "workload": Workloads,
    "size": Sizes,
    "variant": Variants,
    "machine": Machines,
    "device": AnyDevice,
}


# What each command takes that shows records.
_SHOWING = {"results": Results, "output": Output, "every": Every, "as_json": Json}


class Asked(NamedTuple):
    """The options of a command that shows records.

    Attributes:
        chosen: Field of a record to the texts of its option, for ``narrow``.
    """

    chosen: dict[str, Any]
    results: Path | None
    every: bool
    as_json: bool
    output: Path | None = None

    @property
    def is_for_programs(self) -> bool:
        """Whether JSON or a file is asked for, and no text for people."""
        return self.as_json or self.output is not None


def choosing(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options that choose and show records, in one argument: ``asked``.

    Args:
        without: Names of options that it does not take.
    """
    added = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=False if name in ("every", "as_json") else None,
            annotation=option,
        )
        for name, option in {**CHOOSING, **_SHOWING}.items()
        if name not in without
    ]

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def called(**values: Any) -> None:  # noqa: ANN401  (what the options hold)
            given = {one.name: values.pop(one.name) for one in added}
            check_suffix(given.get("output"), ".csv", ".json")
            chosen = {name: given.pop(name) for name in CHOOSING if name in given}
            command(**values, asked=Asked(chosen, **given))

        signature = inspect.signature(command, eval_str=True)
        own = [
            one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for name, one in signature.parameters.items()
            if name != "asked"
        ]
        called.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
        called.__annotations__ = {}
        return called

    return wrap


Tier = Annotated[
    Literal["default", "extended", "next"],
    typer.Option(
        "--tier", help="Cells: default; extended, which includes default; next, pre-releases."
    ),
]
Suite = Annotated[
    Literal["core", "full"] | None,
    typer.Option(
        "--suite",
        help="core: each workload once (default when no case is named). full: all variants, and "
        "the core variants at all sizes.",
    ),
]
Status = Annotated[
    list[str] | None,
    typer.Option("--status", help="Status of a case, e.g. works."),
]
Shard = Annotated[
    str | None, typer.Option("--shard", help="I/N: only the I-th of N shares, for a fleet.")
]
Force = Annotated[bool, typer.Option("--force", help="Measure or make again what exists.")]
Key = Annotated[
    Path | None, typer.Option("--key", help="Private key of ssh that signs the results.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done; do nothing.")]
Rounds = Annotated[
    int | None,
    typer.Option("--rounds", min=1, max=20, help="Rounds to measure; for gate, the limit."),
]

# Of bench alone, or nearly so.
MemoryLimit = Annotated[
    float | None,
    typer.Option(
        "--memory-limit", min=0.1, help="Most GiB of a case (default: 90 % of the machine's)."
    ),
]
Processes = Annotated[
    int,
    typer.Option(
        "--processes",
        min=0,
        max=32,
        help="Processes that time each case; 0: only whether it works.",
    ),
]
Flags = Annotated[
    list[str] | None,
    typer.Option("--flag", help="Setting of the compiler, e.g. inductor.cpp.simdlen=1."),
]
Executor = Annotated[
    str,
    typer.Option("--executor", help="docker: in containers; slurm: on a cluster; or a plug-in's."),
]
Slurm = Annotated[
    list[str] | None, typer.Option("--slurm", help="Option of Slurm, e.g. partition=gpu.")
]
Cold = Annotated[bool, typer.Option("--cold", help="Ignore the compile cache of earlier runs.")]
SiteUrl = Annotated[
    str,
    typer.Option(
        "--site-url",
        callback=address_of,
        help="Address of the site, for whole links in feed, badges and comments.",
    ),
]
NoPublish = Annotated[bool, typer.Option("--no-publish", help="Do not build the site.")]

# Of scripts and targets outside of a project.
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", help='Input of a target: 8,64 or "long 2,32 <1000" (else guessed).'),
]
Step = Annotated[bool, typer.Option("--step", help="Also judge the gradients of a target.")]
Save = Annotated[
    bool, typer.Option("--save", help="Declare a target in this project, with these inputs.")
]
Expect = Annotated[
    list[str] | None,
    typer.Option("--expect", help="Expected outcome: an exit status, or a printed text."),
]
Search = Annotated[
    bool, typer.Option("--search", help="Run only the releases needed to find the change.")
]
Network = Annotated[bool, typer.Option("--network", help="Let the code use the network.")]

# Of views and of upkeep.
Along = Annotated[
    list[str] | None, typer.Option("--along", help="Only changes along commit, torch or python.")
]
Records = Annotated[
    Path | None,
    typer.Option("--records", help="observatory.json of a site (default: the records that ship)."),
]
Stale = Annotated[
    bool, typer.Option("--stale", help="Only cells with a case that lacks a final record.")
]
New = Annotated[bool, typer.Option("--new", help="List PyTorch releases that the matrix lacks.")]
Form = Annotated[
    Literal["github", "sarif"] | None,
    typer.Option(
        "--format",
        help="github: a comment (gate), annotations (version-checks), a job matrix (matrix) or a "
        "workflow (init). sarif: findings at their lines (gate, version-checks).",
    ),
]
Attestation = Annotated[
    Path | None,
    typer.Option("--attestation", help="Import only files that this attestation names."),
]
Signer = Annotated[
    str | None,
    typer.Option(
        "--signer",
        metavar="OWNER/NAME",
        help="Repository or workflow (OWNER/NAME/.github/workflows/FILE@REF) that must have signed.",
    ),
]
Asv = Annotated[
    bool | None,
    typer.Option(
        "--asv/--no-asv", help="Make asv's pages again, or not (default: only for a new site)."
    ),
]
With = Annotated[
    list[str] | None,
    typer.Option("--with", help="A package to install into the cell, besides what is locked."),
]

# Of what explains, by measuring.
_FOR = typer.Option(
    "--for", help="What to explain; blame also takes a failure class, e.g. compile."
)
For = Annotated[Literal["slowdown", "failure", "wrong", "graph-break", "compile-time"], _FOR]
AnySymptom = Annotated[str, _FOR]
Side = Annotated[
    Literal["compiled", "eager", "speedup"] | None,
    typer.Option("--side", help="Code whose seconds count, for a slowdown (default: compiled)."),
]
Effect = Annotated[
    float | None,
    typer.Option(
        "--effect", min=1.005, help="Smallest factor to find (default: 1.05; compiling 1.1)."
    ),
]
Error = Annotated[
    float, typer.Option("--error", min=1e-6, max=0.5, help="Probability of a wrong answer.")
]
Good = Annotated[
    str | None, typer.Option("--good", help="Release that works (default: from the records).")
]
Keep = Annotated[
    bool, typer.Option("--keep", help="Keep the clone and the environment (up to 7 GB).")
]

# Of the gate.
Base = Annotated[str, typer.Option("--base", help="Commit to compare with.")]
Measure = Annotated[
    bool, typer.Option("--measure", help="First measure both commits here, interleaved.")
]
Confirm = Annotated[
    bool,
    typer.Option("--confirm", help="Measure suspects again; with --workload, all of its cases."),
]
AllowMissing = Annotated[
    bool, typer.Option("--allow-missing", help="Do not fail when records are missing.")
]
