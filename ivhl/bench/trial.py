"""Run one case of the working tree in a cell, as it is, without a record (``ivhl try``)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ivhl.asv.configuration import settings_of_project
from ivhl.asv.environment import copy_instrument, make_cell
from ivhl.errors import IvhlError
from ivhl.git import copy_tree, find_commit
from ivhl.machine.identity import this_machine
from ivhl.matrix.project import load_project
from ivhl.matrix.uv import cause_of, run_uv
from ivhl.matrix.wheels import variables_set
from ivhl.measure.alone import only_run_here, only_user_of_gpu
from ivhl.measure.job import Job
from ivhl.measure.launcher import case_environment, failure_of, read_journal
from ivhl.measure.process import Ending, run_tree

if TYPE_CHECKING:
    from rich.console import Console

    from ivhl.matrix.spec import CellSpec
    from ivhl.measure.effort import Effort
    from ivhl.workload import Case

# Exit code of a case without a speedup.
FAILED = 7
# The line of `ivhl.measure.rehearsal` that says how the case ended.
_VERDICT = re.compile(r"right, and |\w+ in phase \w+: ")
# A build that derives its version from git finds no repository in the copy of the tree.
_VERSION_VARIABLE = "SETUPTOOLS_SCM_PRETEND_VERSION"


@dataclass(frozen=True, slots=True)
class TrialEnd:
    """How a case ended.

    Attributes:
        code: Exit code: 0 if the case has a speedup.
        verdict: One line: the speedup, or the failure class with its phase and message.
        told: What the process printed beside the verdict.
    """

    code: int
    verdict: str
    told: tuple[str, ...]


def try_case(
    root: Path, cell: CellSpec, case: Case, effort: Effort, *, logs: str | None, console: Console
) -> TrialEnd:
    """Build the working tree, run the case in a cell, and return how it ended.

    Args:
        root: Root of the project.
        cell: The cell.
        case: The case.
        effort: How to measure it.
        logs: ``TORCH_LOGS`` for the process, whose standard error is then printed as it comes;
            ``none`` for that without logs; ``None`` to print nothing of it.
        console: Where progress is printed.

    Raises:
        IvhlError: If the cell cannot be made, or the project cannot be built.
    """
    with (
        only_run_here(root),
        only_user_of_gpu(effort.device, console.print),
        tempfile.TemporaryDirectory(prefix="try-", dir=root / ".asv") as name,
    ):
        here = Path(name)
        commit = find_commit(root, "HEAD")
        python, environment = prepare(
            root, cell, tree=root, commit=commit, effort=effort, here=here, console=console
        )
        if logs not in (None, "none"):
            environment["TORCH_LOGS"] = str(logs)
        # The first process also measures memory.
        job = job_of(root, case, effort, here, journal=here / "journal.jsonl")
        command = [str(python), "-m", "ivhl.measure.rehearsal"]
        sys.stdout.flush()
        output = here / "output"
        try:
            # A file: what a process leaves behind would keep a pipe open.
            with output.open("wb") as kept, console.status(f"running {case.name}"):
                done = run_tree(
                    [*command, json.dumps(asdict(job))],
                    cwd=here,
                    env=environment,
                    timeout=effort.deadline_s,
                    stdout=kept,
                    stderr=subprocess.DEVNULL if logs is None else None,
                )
        except subprocess.TimeoutExpired as error:
            raise IvhlError(
                f"{case.name}: did not end within {effort.deadline_s:.0f} s",
                hint="allow more with --deadline SECONDS",
            ) from error
        code, ending = _result_of(done.returncode, Path(job.journal))
        told = output.read_text(encoding="utf-8", errors="replace").splitlines()
        verdicts = [ending] if ending else [line for line in told if _VERDICT.match(line)]
        verdict = verdicts[-1] if verdicts else f"ended with exit code {code}"
        return TrialEnd(code, verdict, tuple(line for line in told if line != verdict))


def prepare(
    root: Path,
    cell: CellSpec,
    *,
    tree: Path,
    commit: str,
    effort: Effort,
    here: Path,
    console: Console,
) -> tuple[Path, dict[str, str]]:
    """Make a cell, install a tree beside it, and return its Python and the environment to run in.

    Args:
        root: Root of the project.
        cell: The cell.
        tree: What is installed: the project itself or a clone.
        commit: Full hash, for what asks for it.
        effort: How to run.
        here: Scratch folder.
        console: Where progress is printed.

    Raises:
        IvhlError: If the cell cannot be made, or the tree cannot be built.
    """
    machine = this_machine()
    settings = settings_of_project(load_project(root), machine, root / "results", effort)
    with console.status(f"making {cell.id}"):
        folder = make_cell(root, cell)
    with console.status(f"building for {cell.id}"):
        site = install_tree(tree, folder, here)
    # asv's folder of environments, where runs put their copies, too.
    instrument = copy_instrument(folder.parent, settings)
    run = settings.run_in(cell.as_recorded(None), commit)
    return folder / "bin" / "python", case_environment(run, here) | {
        "PYTHONPATH": os.pathsep.join((str(instrument), str(site))),
        # Kept, since precompiling headers takes most of the time. By threads, which Inductor's
        # cache ignores.
        "TORCHINDUCTOR_CACHE_DIR": str(
            root / ".asv" / "try-cache" / f"{cell.id}-{effort.threads}"
        ),
    }


def job_of(
    root: Path, case: Case, effort: Effort, here: Path, *, journal: Path, stage: str = "time"
) -> Job:
    """Return the job of a process that runs a case without a record.

    Args:
        root: Root of the project.
        case: The case.
        effort: How to run it.
        here: Folder that keeps references.
        journal: Where the process reports.
        stage: See ``Job``.
    """
    project = load_project(root)
    return Job(
        project=project.name,
        workloads=project.workloads,
        workload=case.workload.name,
        size=case.size,
        variant=case.variant.name,
        mode=case.mode,
        effort=effort,
        stage=stage,
        process=1,
        journal=str(journal),
        references=str(here / "references.pt"),
    )


def _result_of(code: int, journal: Path) -> tuple[int, str]:
    """Return the exit code of a trial, and how it ended if that is all that is known of it."""
    phase, found = read_journal(journal)
    if found.get("done"):
        return code, ""
    how: Literal["signal", "exit"] = "signal" if code < 0 else "exit"
    ending = Ending(how=how, code=abs(code), seconds=0.0, peak_bytes=0)
    failure = failure_of(phase, found, ending, journal)
    assert failure is not None  # noqa: S101  (there is one unless it is done)
    return code or FAILED, f"{failure.failure_class} in phase {failure.phase}: {failure.message}"


def install_tree(root: Path, cell: Path, here: Path) -> Path:
    """Build the working tree with the backend of the cell; return a folder to import it from.

    A copy is built, since builds leave files behind, and it is installed beside the cell, which may
    hold another commit.

    Args:
        root: Root of the project.
        cell: Folder of the cell's environment.
        here: Scratch folder.

    Raises:
        IvhlError: If it cannot be built.
    """
    wheels, site = here / "wheels", here / "site"
    tree = copy_tree(root, here / "tree")
    with variables_set({_VERSION_VARIABLE: os.environ.get(_VERSION_VARIABLE, "0.0.0")}):
        built = run_uv(
            [
                *("build", "--wheel", "--no-build-isolation", "--offline"),
                *("--python", str(cell), "--out-dir", str(wheels), str(tree)),
            ],
            cwd=here,
        )
    if built.returncode:
        cause = cause_of(built.stdout + built.stderr)
        hint = "ivhl check says whether its folders are in the way; uv build --wheel shows more"
        if "No module named" in cause:
            hint = "a backend that is missing belongs into `requires` in envs/matrix.toml"
        raise IvhlError(f"the working tree cannot be built: {cause}", hint=hint)
    installed = run_uv(
        [
            *("pip", "install", "--quiet", "--no-deps", "--offline", "--python", str(cell)),
            *("--target", str(site), *map(str, wheels.glob("*.whl"))),
        ],
        cwd=here,
    )
    if installed.returncode:
        raise IvhlError(
            f"the working tree cannot be installed: {installed.stderr.strip()[-3000:]}",
            hint="does requires-python allow the Python of the cell?",
        )
    return site
