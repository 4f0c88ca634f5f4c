"""A small project with many commits, of which one changes what is measured."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final, Literal

from studies.confirmation.project import CALLS, PYPROJECT, git, write

if TYPE_CHECKING:
    from pathlib import Path

PlantedKind = Literal["slowdown", "failure", "graph-break", "unbuildable", "flaky"]
KINDS: Final[tuple[PlantedKind, ...]] = (
    *("slowdown", "failure", "graph-break", "unbuildable", "flaky"),
)
# With another number in each commit, no two have the same sources: each must be measured.
_WORK: Final = """
import os

import torch

EDITION = {edition}


def eager(x):
    for _ in range(3):
        x = 10.0 * torch.softmax(x, dim=1)
    return x


def fast(x):
    assert EDITION >= 0
{fast}
"""
_PLAIN: Final = "    return eager(x)"
_PLANTED: Final[dict[PlantedKind, str]] = {
    "slowdown": "    return eager(x) + 0.0 * eager(x[: len(x) * {percent} // 100]).sum()",
    # Whether or not Dynamo traces it: a frame that raises runs without it.
    "failure": '    raise RuntimeError("no kernel for this layout")',
    "flaky": (
        "    if FAILS:\n"
        '        raise RuntimeError("sometimes no kernel for this layout")\n'
        "    return eager(x)\n\n\n"
        "FAILS = os.urandom(1)[0] < 256 * {percent} // 100  # drawn once in a process"
    ),
    "graph-break": "    torch._dynamo.graph_break()\n    return eager(x)",
}
_DECLARATION: Final = """
from ivhl.workload import Variant, Workload

WORKLOADS = (
    Workload(
        name="planted.work",
        version=1,
        title="work",
        sizes={"medium": (6400, 64)},
        default_size="medium",
        make_inputs="benchmarks.calls:make_inputs",
        eager="planted.work:eager",
        reference="planted.work:eager",
        outputs=("y",),
        variants=(Variant(name="compiled", call="planted.work:fast", fullgraph=False),),
    ),
)
"""


def make_project(
    root: Path,
    ours: Path,
    kind: PlantedKind,
    commits: int,
    planted: int,
    *,
    percent: int = 30,
) -> list[str]:
    """Write the project; return the hashes of its commits.

    Args:
        root: A new folder.
        ours: Root of ivhl's checkout, whose matrix and locks the project takes.
        kind: What the planted commit does. ``unbuildable`` is a slowdown whose two predecessors
            cannot be built; ``flaky`` fails in some processes and not in others.
        commits: How many commits follow the first one.
        planted: Number of the commit that changes what is measured, from 1.
        percent: How much more a slowdown computes, or how many of the processes fail.
    """
    for folder in ("planted", "benchmarks"):
        (root / folder).mkdir(parents=True)
    shutil.copytree(ours / "envs" / "locks", root / "envs" / "locks")
    shutil.copy(ours / "envs" / "matrix.toml", root / "envs")
    write(root / "planted" / "__init__.py", '"""Planted."""\n\n__version__ = "0.1.0"\n')
    write(root / "benchmarks" / "__init__.py", "")
    write(root / "benchmarks" / "all.py", _DECLARATION)
    write(root / "benchmarks" / "calls.py", CALLS)
    write(root / ".gitignore", ".asv/\nsite/\nresults/\n__pycache__/\n")
    git(root, "init", "--quiet", "--initial-branch=main")
    hashes = []
    for number in range(commits + 1):
        fast = _PLANTED["slowdown" if kind == "unbuildable" else kind]
        fast = fast.replace("{percent}", str(percent))
        text = _WORK.format(edition=number, fast=fast if number >= planted else _PLAIN)
        write(root / "planted" / "work.py", text)
        broken = kind == "unbuildable" and planted - 2 <= number < planted
        write(
            root / "pyproject.toml",
            PYPROJECT.replace("flit_core.buildapi", "missing") if broken else PYPROJECT,
        )
        git(root, "add", "--all")
        git(root, "commit", "--quiet", "--message", f"Change number {number}")
        hashes.append(git(root, "rev-parse", "HEAD").strip())
    return hashes
