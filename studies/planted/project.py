"""A small project whose commits each change one operation in a known way."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final, NamedTuple

from studies.confirmation.project import CALLS, PYPROJECT, git, write

if TYPE_CHECKING:
    from pathlib import Path

# Each operation has a module of its own, so that a commit changes the sources of one case only.
OPERATIONS: Final[dict[str, str]] = {
    "breaks": """
import torch


def eager(x):
    for _ in range(4):
        x = torch.sin(x) + 0.5 * torch.cos(x)
    return x


def fast(x):
    return eager(x)
""",
    "both_sides": """
import torch


def eager(x):
    for _ in range(3):
        x = torch.exp(-x * x) + torch.log1p(x.abs())
    return x


def fast(x):
    return eager(x)
""",
    "five_percent": """
import torch


def eager(x):
    for _ in range(3):
        x = torch.tanh(torch.cumsum(x, dim=1) / x.shape[1])
    return x


def fast(x):
    return eager(x)
""",
    "thirty_percent": """
import torch


def eager(x):
    for _ in range(3):
        x = 10.0 * torch.softmax(x, dim=1)
    return x


def fast(x):
    return eager(x)
""",
    "fails": """
import torch


def eager(x):
    return torch.sigmoid(x) * x.flip(1)


def fast(x):
    return eager(x)
""",
}
# More of the same work that does not change the result, and is computed all the same: 0 * inf is
# not 0.
_MORE: Final = "    return eager(x) + 0.0 * eager(x[: len(x) * {percent} // 100]).sum()\n"
_PLAIN: Final = "    return eager(x)\n"
_FAIL: Final = """\
    if torch.compiler.is_compiling():
        raise RuntimeError("no kernel for this layout")
    return eager(x)
"""
_BREAK: Final = """\
    if x.abs().max().item() > 1e30:
        return x
    return eager(x)
"""


class PlantedChange(NamedTuple):
    """One commit after the first.

    Attributes:
        name: What it does, for the table.
        operation: Whose module changes.
        old: Text that is replaced.
        new: Text in its place.
    """

    name: str
    operation: str
    old: str
    new: str


CHANGES: Final = (
    PlantedChange("a comment", "breaks", "import torch\n", "import torch  # nothing else\n"),
    PlantedChange("a hidden `.item()`", "breaks", _PLAIN, _BREAK),
    PlantedChange("without it again", "breaks", _BREAK, _PLAIN),
    PlantedChange("both sides slower", "both_sides", "range(3)", "range(6)"),
    PlantedChange("5 % more work", "five_percent", _PLAIN, _MORE.format(percent=5)),
    PlantedChange("30 % more work", "thirty_percent", _PLAIN, _MORE.format(percent=30)),
    PlantedChange("a compile error", "fails", _PLAIN, _FAIL),
    PlantedChange("mended", "fails", _FAIL, _PLAIN),
)
_DECLARATIONS: Final = """
from ivhl.workload import Variant, Workload

WORKLOADS = tuple(
    Workload(
        name=f"planted.{name}",
        version=1,
        title=name,
        sizes={"medium": (6400, 64)},
        default_size="medium",
        make_inputs="benchmarks.calls:make_inputs",
        eager=f"planted.{name}:eager",
        reference=f"planted.{name}:eager",
        outputs=("y",),
        variants=(Variant(name="compiled", call=f"planted.{name}:fast", fullgraph=False),),
    )
    for name in NAMES
)
"""


def make_project(root: Path, ours: Path, lock: str) -> list[str]:
    """Write the project; return the hashes of its commits, the first one without a change.

    Args:
        root: A new folder.
        ours: Root of ivhl's checkout, whose matrix and lock the project takes.
        lock: Name of the lock, e.g. ``py3.12-torch2.15.0.txt``.
    """
    for folder in ("planted", "benchmarks", "envs/locks"):
        (root / folder).mkdir(parents=True)
    shutil.copy(ours / "envs" / "matrix.toml", root / "envs")
    shutil.copy(ours / "envs" / "locks" / lock, root / "envs" / "locks")
    write(root / "planted" / "__init__.py", '"""Planted."""\n\n__version__ = "0.1.0"\n')
    for name, text in OPERATIONS.items():
        write(root / "planted" / f"{name}.py", text)
    write(root / "benchmarks" / "__init__.py", "")
    write(root / "benchmarks" / "all.py", f"NAMES = {tuple(OPERATIONS)!r}\n{_DECLARATIONS}")
    write(root / "benchmarks" / "calls.py", CALLS)
    write(root / "pyproject.toml", PYPROJECT)
    write(root / ".gitignore", ".asv/\nsite/\nresults/\n__pycache__/\n")
    git(root, "init", "--quiet", "--initial-branch=main")
    commits = [_commit(root, "Begin")]
    for change in CHANGES:
        path = root / "planted" / f"{change.operation}.py"
        text = path.read_text(encoding="utf-8")
        if change.old not in text:
            raise ValueError(f"{change.name}: {path.name} must hold {change.old!r}")
        path.write_text(text.replace(change.old, change.new), encoding="utf-8")
        commits.append(_commit(root, change.name))
    return commits


def _commit(root: Path, subject: str) -> str:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", subject)
    return git(root, "rev-parse", "HEAD").strip()
