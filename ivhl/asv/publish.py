"""Build the site in a new folder and replace the old site only when the new one is complete."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from asv.benchmarks import Benchmarks
from asv.machine import Machine
from asv.results import Results
from asv.util import load_json

from ivhl.asv.configuration import load_configuration
from ivhl.errors import ResultsError
from ivhl.git import published_branches
from ivhl.records.store import Problem, load_records

_OURS = ("index.html", "compatibility.html", "speedup.html")
_SHOWN_LINES = 12  # last lines of asv's output, which explain a failure
_LONGEST_S = 3600  # ten times what 2.4 million values take
_OFF_BRANCH = "Couldn't find "


@dataclass(frozen=True, slots=True)
class Published:
    """A published site, and what it lacks.

    Attributes:
        problems: Results that could not be read; all others are published.
        off_branch: Commits that asv's graphs omit, because they are on no published branch. The
            pages *Compatibility* and *Speedup* show them.
    """

    output: Path
    problems: tuple[Problem, ...]
    off_branch: tuple[str, ...]


def publish(root: Path, output: Path) -> Published:
    """Run ``asv publish`` for the project at ``root`` and replace ``output`` with the new site.

    Args:
        root: Folder with ``asv.conf.json``.
        output: Folder of the site. If it exists, it must be an earlier site.

    Raises:
        ResultsError: If the site could not be built; the earlier one is unchanged.
    """
    output = output.resolve()
    _check_replaceable(output)
    conf = load_configuration(root)
    results = Path(conf["results_dir"])
    unreadable = _unreadable(results)
    bad = tuple(problem.seen_from(root) for problem in unreadable)
    ours = tuple(problem.seen_from(root) for problem in load_records(results).problems)
    with tempfile.TemporaryDirectory(dir=_private(root), prefix="publish-") as scratch:
        if bad or not (results / "benchmarks.json").is_file():
            results = _view(
                results, {problem.path for problem in unreadable}, Path(scratch, "results")
            )
        conf |= {
            # asv omits commits that are on no branch's first-parent line, and stops if a branch does
            # not exist, as in the checkout of a pull request.
            "branches": published_branches(root, conf.get("branches") or []),
            "results_dir": str(results),
            "html_dir": str(output),
            "ivhl_problems": [str(problem) for problem in bad],
        }
        written = Path(scratch, "asv.conf.json")
        written.write_text(json.dumps(conf), encoding="utf-8")
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            new = Path(tempfile.mkdtemp(dir=output.parent, prefix=f".{output.name}-new-"))
        except OSError as error:
            raise ResultsError(
                f"cannot create a folder in {output.parent}: {error}",
                hint="choose another folder with --output",
            ) from error
        try:
            text = _run_asv(root, written, new)
            _swap(new, output)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    off_branch = sorted(
        line.split(_OFF_BRANCH)[1].split()[0] for line in text.splitlines() if _OFF_BRANCH in line
    )
    return Published(output, (*bad, *ours), tuple(dict.fromkeys(off_branch)))


def set_aside_unreadable(results: Path) -> tuple[Problem, ...]:
    """Rename asv's result files that asv cannot read, so that asv writes them again.

    One such file stops every later ``asv run``. The records contain all their data.
    """
    unreadable = _unreadable(results)
    for problem in unreadable:
        problem.path.rename(problem.path.with_name(f"{problem.path.name}.unreadable"))
    return unreadable


def _check_replaceable(output: Path) -> None:
    """Refuse to replace a folder that is not a site: it would be deleted."""
    if not output.exists():
        return
    if not output.is_dir() or (any(output.iterdir()) and not (output / "index.json").is_file()):
        raise ResultsError(
            f"{output} exists and is not a site made by asv",
            hint="choose another folder with --output, or remove this one yourself",
        )


def _private(root: Path) -> Path:
    folder = root / ".asv"
    folder.mkdir(exist_ok=True)
    return folder


def _unreadable(results: Path) -> tuple[Problem, ...]:
    """Return asv's files that ``asv publish`` would skip, or on which it would stop.

    asv reads every ``*.json`` below its results. On some invalid files it stops with a traceback
    after it has deleted the old site.
    """
    problems = []
    for path in sorted(results.rglob("*.json")):
        rule = _why_unreadable(path, is_list=path == results / "benchmarks.json")
        if rule:
            problems.append(Problem(path, None, rule))
    return tuple(problems)


def _why_unreadable(path: Path, *, is_list: bool) -> str:
    try:
        if is_list:
            load_json(str(path), Benchmarks.api_version)
        elif path.name == "machine.json":
            if not isinstance(load_json(str(path), Machine.api_version).get("machine"), str):
                return "machine: must be a string"
        else:
            loaded = Results.load(str(path))
            for name in loaded.get_all_result_keys():
                values = loaded.get_result_value(name, loaded.get_result_params(name) or [])
                if not _publishable(values):
                    return f"{name}: a result must be a finite number or null (got {values!r})"
    except Exception as error:  # noqa: BLE001  (a bad file can make asv raise anything)
        # The site is public, and asv's messages contain folder names of this machine.
        message = str(error).replace(str(path), path.name)
        return f"asv cannot read it: {type(error).__name__}: {message}"
    return ""


def _publishable(values: object) -> bool:
    """Return whether asv can publish these values; it writes NaN for a skipped benchmark."""
    if isinstance(values, str | dict):
        return False
    if isinstance(values, Iterable):
        return all(_publishable(value) for value in values)
    return values is None or (isinstance(values, int | float) and not math.isinf(values))


def _view(results: Path, without: set[Path], view: Path) -> Path:
    """Make a copy of ``results`` without some files, and return its folder.

    asv itself leaves out a machine without a readable ``machine.json``.
    """
    view.mkdir()
    for path in sorted(results.rglob("*")):
        if path.is_file() and path not in without:
            target = view / path.relative_to(results)
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(path, target)
            except OSError:  # another file system
                shutil.copy2(path, target)
    benchmarks = view / "benchmarks.json"
    if not benchmarks.exists():  # asv stops without it
        benchmarks.write_text(json.dumps({"version": Benchmarks.api_version}), encoding="utf-8")
    return view


def _run_asv(root: Path, configuration: Path, html_dir: Path) -> str:
    command = [sys.executable, "-m", "asv", "publish", "--no-pull"]
    command += ["--config", str(configuration), "--html-dir", str(html_dir)]
    with subprocess.Popen(
        command,
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            text, _ = process.communicate(timeout=_LONGEST_S)
        except BaseException as error:
            # If a worker of asv fails, the others can wait for it forever, and they hold the pipe.
            # So the whole process group is killed.
            os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise ResultsError(
                f"asv publish did not end within {_LONGEST_S} s",
                hint="the earlier site, if there was one, is unchanged",
            ) from None
    missing = [name for name in _OURS if not (html_dir / name).is_file()]
    if process.returncode != 0 or missing:
        why = f"ended with {process.returncode}" if process.returncode else f"made no {missing[0]}"
        last = "\n".join(text.strip().splitlines()[-_SHOWN_LINES:])
        raise ResultsError(
            f"asv publish {why}:\n{last}",
            hint="the earlier site, if there was one, is unchanged"
            + ("" if process.returncode else '; does asv.conf.json have ".ivhl.asv"?'),
        )
    return text


def _swap(new: Path, output: Path) -> None:
    """Replace the old site by the new one; delete the old one only afterwards."""
    if not output.exists():
        new.rename(output)
        return
    old = Path(tempfile.mkdtemp(dir=output.parent, prefix=f".{output.name}-old-"))
    output.rename(old)  # POSIX replaces the empty folder
    try:
        new.rename(output)
    except OSError as error:
        old.rename(output)
        raise ResultsError(f"{output} cannot be replaced: {error.strerror}") from error
    shutil.rmtree(old)
