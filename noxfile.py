"""Every task by name: ``nox -l`` lists them. No logic here; sessions call tools or ``ivhl``."""

from __future__ import annotations

import sys
from pathlib import Path

import nox

from ivhl.matrix.spec import load_matrix

MATRIX = load_matrix(Path("envs/matrix.toml"))

nox.options.sessions = ["tests"]
nox.options.error_on_missing_interpreters = True


def define_bench(python: str) -> None:
    """Define ``bench-X.Y``; nox makes such names only for environments of its own."""

    @nox.session(name=f"bench-{python}", venv_backend="none")
    def bench(session: nox.Session) -> None:
        """Build the cells of one Python, measure, publish; ``-- --help`` tells the arguments."""
        session.run(sys.executable, "-m", "ivhl", "bench", "--python", python, *session.posargs)


for _python in MATRIX.pythons:
    define_bench(_python)


@nox.session(venv_backend="none")
def lock(session: nox.Session) -> None:
    """Make the locks of the whole matrix again."""
    arguments = session.posargs or ["--all"]
    session.run(sys.executable, "-m", "ivhl", "matrix", "lock", *arguments)


@nox.session(venv_backend="none")
def publish(session: nox.Session) -> None:
    """Build the site from the results that are there."""
    session.run(sys.executable, "-m", "ivhl", "publish", *session.posargs)
