"""A project that adopts ivhl with ``ivhl init``, beside a resolver that asks no registry."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from ivhl.init import plan as planning
from ivhl.init.declare import write_changes
from ivhl.init.plan import make_plan
from ivhl.matrix import locks
from tests.builders.project import git

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ivhl.matrix.spec import Matrix

TODAY = dt.date(2026, 11, 23)
HASH = "--hash=sha256:" + "0" * 64
PYPROJECT = """\
[build-system]
requires = ["hatchling", "torch"]
build-backend = "hatchling.build"

[project]
name = "tensor-things"
version = "1.0"
requires-python = ">=3.10"
dependencies = ["einops>=0.8", "torch>=2.2", "tomli; python_version < '3.11'"]
"""


@pytest.fixture(autouse=True)
def resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the resolver: it takes every name as asked, and only Python 3.12 has triton."""

    def compile_(
        root: Path,
        matrix: Matrix,
        python: str,
        requirements: Sequence[str],
        seed: Mapping[str, str],
        *options: str,
        binary: bool = True,
    ) -> tuple[str, str]:
        del root, matrix, seed, options, binary
        names = [text.split(">=")[0] for text in requirements]
        pins = [n if "==" in n else f"{n}==0.8.2" for n in names]
        lines = [f"{pin} \\\n    {HASH}\n    # via -r requirements.in\n" for pin in pins]
        if python == "3.12":
            lines.append(f"triton==3.1.0 \\\n    {HASH}\n    # via torch\n")
        return "", "".join(lines).replace("asv_runner", "asv-runner")

    monkeypatch.setattr(locks, "resolve_requirements", compile_)
    monkeypatch.setattr(planning, "highest", lambda *_: "2.15.0")


def project(root: Path, files: Mapping[str, str]) -> Path:
    """Make a git repository with these files."""
    root.mkdir(parents=True, exist_ok=True)
    git(root, "init", "-q", "-b", "main")
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git(root, "add", "--all")
    git(root, "commit", "-q", "-m", "The project")
    return root


def init(
    root: Path, pythons: Sequence[str] = (), releases: Sequence[str] = (), *, github: bool = False
) -> list[str]:
    """Run it and return the notes."""
    plan = make_plan(root, pythons, releases, github=github, today=TODAY)
    write_changes(root, plan.changes)
    return list(plan.notes)


PACKAGE = {
    "tensor_things/__init__.py": "from tensor_things.parts import Block\n",
    "tensor_things/parts.py": (
        "from torch import nn\n\nclass Inner(nn.Module):\n    pass\n\n"
        "class Block(nn.Module):\n    pass\n\nclass _Hidden(nn.Module):\n    pass\n"
    ),
}
