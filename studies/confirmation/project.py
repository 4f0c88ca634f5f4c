"""A small project whose commits differ by nothing, or by 5 % of the work of compiled code."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

OPERATIONS: Final = ("sines", "powers", "products", "softmaxes", "sums", "gathers")
WORK: Final = '''
"""Six operations on a batch; each row is computed by itself."""

import torch


def sines(x):
    for _ in range(4):
        x = torch.sin(x) + 0.5 * torch.cos(x)
    return x


def powers(x):
    for _ in range(4):
        x = torch.exp(-x * x) + torch.log1p(x.abs())
    return x


def products(x):
    y = x.reshape(len(x), 8, -1)
    for _ in range(3):
        y = torch.tanh(y @ y.transpose(1, 2) @ y / y.shape[-1])
    return y.reshape(x.shape)


def softmaxes(x):
    for _ in range(3):
        x = 10.0 * torch.softmax(x, dim=1)
    return x


def sums(x):
    for _ in range(3):
        x = torch.tanh(torch.cumsum(x, dim=1) / x.shape[1])
    return x


def gathers(x):
    for shift in range(1, 5):
        x = 0.5 * (torch.roll(x, shift, dims=1) + x.flip(1)) + 0.1 * torch.sigmoid(x)
    return x
'''
CALL: Final = """
def fast_{name}(x):
    return {name}(x)
"""
# The rows more do not change the result, and are computed all the same: 0 * inf is not 0.
MORE: Final = """
def fast_{name}(x):
    return {name}(x) + 0.0 * {name}(x[: len(x) // 20]).sum()
"""
DECLARATIONS: Final = '''
"""What ivhl measures of this project."""

from ivhl.workload import Variant, Workload

WORKLOADS = tuple(
    Workload(
        name=f"planted.{name}",
        version=1,
        title=name,
        sizes={"medium": (3200, 64)},
        default_size="medium",
        make_inputs="benchmarks.calls:make_inputs",
        eager=f"planted.work:{name}",
        reference=f"planted.work:{name}",
        outputs=("y",),
        variants=(Variant(name="compiled", call=f"planted.work:fast_{name}"),),
    )
    for name in NAMES
)
'''
CALLS: Final = """
import torch


def make_inputs(size, generator):
    return (torch.randn(size, dtype=torch.float64, generator=generator),)
"""
PYPROJECT: Final = """
[build-system]
requires = ["flit_core>=3.12,<4"]
build-backend = "flit_core.buildapi"

[project]
name = "planted"
version = "0.1.0"
description = "Operations whose changes are known"
requires-python = ">=3.12"

[tool.ivhl]
benchmarks = "benchmarks"
"""
ASV: Final = """
{
    "version": 1,
    "project": "planted",
    "repo": ".",
    "branches": ["main"],
    "environment_type": "locked",
    "plugins": [".ivhl.asv"]
}
"""


class Commits(NamedTuple):
    """Hashes: of the base, of a commit that changes a comment, and of one with 5 % more work."""

    base: str
    same: str
    more: str


def make_project(root: Path, ours: Path, lock: str) -> Commits:
    """Write the project and its three commits.

    Args:
        root: A new folder.
        ours: Root of ivhl's checkout, whose matrix and lock the project takes.
        lock: Name of the lock, e.g. ``py3.12-torch2.15.0.txt``.
    """
    (root / "planted").mkdir(parents=True)
    (root / "benchmarks").mkdir()
    (root / "envs" / "locks").mkdir(parents=True)
    shutil.copy(ours / "envs" / "matrix.toml", root / "envs")
    shutil.copy(ours / "envs" / "locks" / lock, root / "envs" / "locks")
    write(root / "planted" / "__init__.py", '"""Planted."""\n\n__version__ = "0.1.0"\n')
    write(root / "benchmarks" / "__init__.py", "")
    write(root / "benchmarks" / "all.py", f"NAMES = {OPERATIONS!r}\n{DECLARATIONS}")
    write(root / "benchmarks" / "calls.py", CALLS)
    write(root / "pyproject.toml", PYPROJECT)
    write(root / "asv.conf.json", ASV)
    write(root / ".gitignore", ".asv/\nsite/\nresults/\n__pycache__/\n")
    git(root, "init", "--quiet", "--initial-branch=main")
    work = root / "planted" / "work.py"
    calls = "".join(CALL.format(name=name) for name in OPERATIONS)
    more = "".join(MORE.format(name=name) for name in OPERATIONS)
    hashes = []
    for text in (calls, f"{calls}\n# Nothing else.\n", more):
        write(work, WORK + text)
        git(root, "add", "--all")
        git(root, "commit", "--quiet", "--message", "Change the work")
        hashes.append(git(root, "rev-parse", "HEAD").strip())
    return Commits(*hashes)


def write(path: Path, text: str) -> None:
    """Write a file without the empty line at its beginning."""
    path.write_text(text.lstrip("\n"), encoding="utf-8")


def git(root: Path, *words: str) -> str:
    """Run git with a fixed author; return what it prints."""
    identity = ("-c", "user.name=planted", "-c", "user.email=planted@example.org")
    done = subprocess.run(
        ["git", *identity, *words], cwd=root, check=True, capture_output=True, text=True
    )
    return done.stdout
