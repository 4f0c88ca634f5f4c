"""Write the site into a new folder, and replace the old site only when the new one is complete."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import glob
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from asv.benchmarks import Benchmarks
from asv.machine import Machine
from asv.results import Results
from asv.util import load_json

from ivhl.asv.configuration import load_configuration
from ivhl.asv.verdicts import write_verdicts
from ivhl.errors import ResultsError
from ivhl.git import published_branches
from ivhl.pages.build import write_pages
from ivhl.records.store import Problem
from ivhl.tracker.annotations import Annotation, load_annotations
from ivhl.tracker.confirmations import Confirmation, load_confirmations
from ivhl.tracker.index import collector_paused
from ivhl.tracker.project import load_state
from ivhl.tracker.provenance import Provenance, load_provenance
from ivhl.tracker.views.broken import without_broken
from ivhl.tracker.views.source import Source

# Folder of asv's pages in the site, and in it when they were made.
_ASV = "asv"
_MADE = "made.txt"
# Unless it is asked for, a new site gets asv's pages only up to so many files of results: asv takes
# minutes for more, ours take seconds.
_FEW_FILES = 400
# In every site: only a folder with it is ever deleted.
MARKER = ".ivhl-site"
_MARKED = "This folder was made by `ivhl publish`, which replaces it as a whole.\n"
_SHOWN_LINES = 12  # last lines of asv's output, which explain a failure
_LONGEST_S = 3600  # ten times what 2.4 million values take
_LONGEST_PART = 240  # a part of a path has at most 255, and asv adds an ending
_ATTEMPTS = 10
# Of linux/fs.h and fcntl.h: exchange two names; a relative name is relative to the current folder.
_RENAME_EXCHANGE = 2
_HERE = -100
# What renaming says where somebody else replaced one of the folders in between.
_CHANGED = (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST)
_OFF_BRANCH = "Couldn't find "
_WITHOUT_ASV = "asv publish failed, so its graphs are left out: ivhl publish --asv tells why"


@dataclass(frozen=True, slots=True)
class Published:
    """A published site, and what it lacks.

    Attributes:
        problems: What could not be read or shown; everything else is published.
        off_branch: Commits that asv's graphs omit, because they are on no published branch. Our
            pages show them.
        asv: When asv's pages were made, as text; empty if the site has none.
        renewed: Whether asv's pages were made now.
    """

    output: Path
    problems: tuple[str, ...]
    off_branch: tuple[str, ...]
    asv: str
    renewed: bool


def publish(root: Path, output: Path, *, asv: bool | None = None) -> Published:
    """Write the site of the project at ``root``, and replace ``output`` with it.

    Args:
        root: Root of the project.
        output: Folder of the site. If it exists, it must be an earlier site.
        asv: Whether to make asv's pages again. Otherwise those of the earlier site are kept;
            ``None`` makes them if it has none and they take seconds.

    Raises:
        ResultsError: If the site could not be built; the earlier one is unchanged.
    """
    output = _resolved(output)
    _check_replaceable(output)
    conf = load_configuration(root)
    results = Path(conf["results_dir"])
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    with _private(output) as folder:
        new = folder / "site"
        new.mkdir()
        bad: tuple[Problem, ...] = ()
        text = ""
        renewed = _wants_asv(output, results) if asv is None else asv
        without: tuple[str, ...] = ()
        if renewed:
            try:
                bad, text = _write_asv(root, conf, folder, new / _ASV)
                (new / _ASV / _MADE).write_text(now, encoding="utf-8")
            except ResultsError:
                if asv:
                    raise
                # Nobody asked for them, and ours do not need them.
                shutil.rmtree(new / _ASV, ignore_errors=True)
                renewed, without = False, (_WITHOUT_ASV,)
        elif (output / _ASV / _MADE).is_file():
            shutil.copytree(output / _ASV, new / _ASV, copy_function=_link)
        when = new / _ASV / _MADE
        made = when.read_text(encoding="utf-8") if when.is_file() else ""
        with collector_paused():
            source, problems = _write_ours(
                root, results, (*bad, *without), (new, output), (now, made)
            )
        if renewed:
            write_verdicts(new / _ASV, source.changes, new / "feed.xml")
        (new / MARKER).write_text(_MARKED, encoding="utf-8")
        exchange(new, output)
    off_branch = sorted(
        line.split(_OFF_BRANCH)[1].split()[0] for line in text.splitlines() if _OFF_BRANCH in line
    )
    return Published(output, problems, tuple(dict.fromkeys(off_branch)), made, renewed)


def _wants_asv(output: Path, results: Path) -> bool:
    if (output / _ASV / _MADE).is_file():
        return False
    return sum(1 for _ in results.glob("*/*.json")) <= _FEW_FILES


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)


def _write_ours(
    root: Path,
    results: Path,
    bad: Iterable[Problem | str],
    folders: tuple[Path, Path],
    times: tuple[str, str],
) -> tuple[Source, tuple[str, ...]]:
    """Write our pages, without the records that break them; return what they show and name."""
    (new, old), (now, made) = folders, times
    problems = [str(problem) for problem in bad]
    annotations: tuple[Annotation, ...] = ()
    confirmations: tuple[Confirmation, ...] = ()
    provenance: Mapping[str, Provenance] = {}
    # The site is public, and the whole path is that of this machine.
    here = f"{results.parent}{os.sep}"
    try:
        annotations = load_annotations(results)
    except ResultsError as error:
        problems.append(str(error).replace(here, ""))
    try:
        confirmations = load_confirmations(results)
    except ResultsError as error:
        problems.append(str(error).replace(here, ""))
    try:
        provenance = load_provenance(results)
    except ResultsError as error:
        problems.append(str(error).replace(here, ""))
    said = annotations, confirmations, provenance
    state = load_state(root, results, history=False)
    state = replace(state, problems=(*problems, *state.problems))
    source = Source(state, now, *said)
    try:
        write_pages(source, new, old, made)
    except Exception:
        every = load_state(root, results)
        without = without_broken(replace(every, problems=state.problems))
        if without.records == every.records:  # no single record is the reason
            raise
        state, source = without, Source(without, now, *said)
        for path in new.iterdir():
            if path.name != _ASV:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        write_pages(source, new, old, made)
    return source, state.problems


def _write_asv(
    root: Path, conf: dict[str, Any], folder: Path, new: Path
) -> tuple[tuple[Problem, ...], str]:
    """Run ``asv publish`` into a new folder; return what it left out, and its output."""
    results = Path(conf["results_dir"])
    unreadable = _unreadable(results)
    if unreadable or not (results / "benchmarks.json").is_file():
        results = _view(results, {problem.path for problem in unreadable}, folder / "results")
    conf = conf | {
        # asv omits commits that are on no branch's first-parent line, and stops if a branch does
        # not exist, as in the checkout of a pull request.
        "branches": published_branches(root, conf.get("branches") or []),
        # Its list of regressions is replaced by ours (``verdicts``): asv need not make one.
        "regressions_first_commits": {".*": None},
        "results_dir": str(results),
        "html_dir": str(new),
    }
    written = folder / "asv.conf.json"
    written.write_text(json.dumps(conf), encoding="utf-8")
    text = _run_asv(root, written, new)
    return tuple(problem.seen_from(root) for problem in unreadable), text


def set_aside_unreadable(results: Path) -> tuple[Problem, ...]:
    """Rename asv's result files that asv cannot read, so that asv writes them again.

    One such file stops every later ``asv run``. The records contain all their data. Files of others
    stay as they are: a project may have had a folder ``results`` before it had ivhl.
    """
    others = set(foreign_files(results))
    unreadable = tuple(one for one in _unreadable(results) if one.path not in others)
    for problem in unreadable:
        problem.path.rename(problem.path.with_name(f"{problem.path.name}.unreadable"))
    return unreadable


def foreign_files(results: Path) -> tuple[Path, ...]:
    """Return the files in the results folder that asv would read, and that neither made."""
    return tuple(
        path
        for path in sorted(results.rglob("*.json"))
        if path != results / "benchmarks.json"
        and not (
            path.parent.parent == results
            and ((path.parent / "machine.json").exists() or (path.parent / "records").is_dir())
        )
    )


def _resolved(output: Path) -> Path:
    try:
        return output.resolve(strict=output.is_symlink())
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, before Python 3.13
        raise ResultsError(
            f"{output} cannot be the folder of the site: {error}",
            hint="choose another folder with --output",
        ) from error


def _check_replaceable(output: Path) -> None:
    """Refuse to replace a folder that ``publish`` did not make: it would be deleted."""
    try:
        if not output.exists():
            return
        ours = output.is_dir() and (not any(output.iterdir()) or _is_ours(output))
    except OSError as error:
        raise ResultsError(
            f"{output} cannot be read: {error.strerror or error}",
            hint="choose another folder with --output",
        ) from error
    if not ours:
        raise ResultsError(
            f"{output} exists and is not a site made by asv and ivhl publish: it has no {MARKER}",
            hint="choose another folder with --output, or remove this one yourself",
        )
    if output.is_mount():
        raise ResultsError(
            f"{output} is a mount point, which cannot be replaced as a whole",
            hint=f"choose a folder in it: --output {output / 'site'}",
        )


def _is_ours(folder: Path) -> bool:
    marker = folder / MARKER
    return marker.is_file() and not marker.is_symlink()


@contextmanager
def _private(output: Path) -> Iterator[Path]:
    """Yield a folder beside the site, on its file system, that is deleted at the end.

    The folder is locked while it is used: so what a killed ``publish`` left behind differs from the
    folder of one that is running.

    Raises:
        ResultsError: If the folder cannot be made.
    """
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(output)
        new = Path(tempfile.mkdtemp(dir=output.parent, prefix=f".{output.name}-new-"))
    except OSError as error:
        raise ResultsError(
            f"cannot create a folder in {output.parent}: {error}",
            hint="choose another folder with --output",
        ) from error
    lock = os.open(new, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield new
    finally:
        os.close(lock)
        shutil.rmtree(new, ignore_errors=True)


def _remove_leftovers(output: Path) -> None:
    """Remove the unfinished folders of killed runs: those that nobody has locked."""
    for left in output.parent.glob(f".{glob.escape(output.name)}-new-*"):
        with suppress(OSError):
            lock = os.open(left, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(lock)


def _unreadable(results: Path) -> tuple[Problem, ...]:
    """Return asv's files that ``asv publish`` would skip, or on which it would stop.

    asv reads every ``*.json`` below its results. On some invalid files it stops with a traceback
    after it has deleted the old site.
    """
    problems = []
    for path in sorted(results.rglob("*.json")):
        if path.is_dir():
            continue
        rule = _why_unreadable(path, is_list=path == results / "benchmarks.json")
        if rule:
            problems.append(Problem(path, None, rule))
    return tuple(problems)


def _why_unreadable(path: Path, *, is_list: bool) -> str:
    # A pipe would never end, and a device never be read.
    if not path.is_file():
        return "must be a plain file"
    try:
        if is_list:
            return _list_mistake(load_json(str(path), Benchmarks.api_version))
        if path.name == "machine.json":
            return _machine_mistake(load_json(str(path), Machine.api_version), path.parent.name)
        return _results_mistake(Results.load(str(path)))
    except Exception as error:  # noqa: BLE001  (a bad file can make asv raise anything)
        # The site is public, and asv's messages contain folder names of this machine.
        message = str(error).replace(str(path), path.name)
        return f"asv cannot read it: {type(error).__name__}: {message}"


def _machine_mistake(about: dict[str, Any], folder: str) -> str:
    if about.get("machine") != folder:
        return (
            f"machine: must be {folder!r}, the name of its folder (got {about.get('machine')!r})"
        )
    return _params_mistake({key: value for key, value in about.items() if key != "version"})


def _results_mistake(loaded: Any) -> str:  # noqa: ANN401  (asv has no types)
    if rule := _params_mistake(loaded.params | loaded.env_vars):
        return rule
    for name in loaded.get_all_result_keys():
        values = loaded.get_result_value(name, loaded.get_result_params(name) or [])
        if not _publishable(values):
            return f"{name}: a result must be a finite number or null (got {values!r})"
    return ""


def _list_mistake(benchmarks: Mapping[str, Any]) -> str:
    """Return the mistake in a list of benchmarks; their names become file names and addresses."""
    for name, benchmark in benchmarks.items():
        if name != "version" and not (
            re.fullmatch(r"[\w.]{1,200}", name, re.ASCII) and benchmark["name"] == name
        ):
            return (
                f"a benchmark must have the name of a function (got {ascii(name)[:_LONGEST_PART]})"
            )
    return ""


def _params_mistake(params: Mapping[str, Any]) -> str:
    """Return the mistake in parameters of asv's graphs: each is a part of a path."""
    for key, value in params.items():
        if not isinstance(value, str | None):
            return f"{ascii(key)[:_LONGEST_PART]}: must be a string (got {type(value).__name__})"
        if len(f"{key}-{value}".encode()) > _LONGEST_PART:
            got = len(f"{key}-{value}".encode())
            return f"{ascii(key)[:20]}: may have {_LONGEST_PART} bytes with its value (got {got})"
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
        errors="replace",  # names of branches and commits need not be UTF-8
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
    ours = (html_dir / "vendor").is_dir()
    if process.returncode != 0 or not ours:
        why = (
            f"ended with {process.returncode}" if process.returncode else "did not link our pages"
        )
        last = "\n".join(text.strip().splitlines()[-_SHOWN_LINES:])
        raise ResultsError(
            f"asv publish {why}:\n{last}",
            hint="the earlier site, if there was one, is unchanged",
        )
    return text


def exchange(new: Path, output: Path) -> None:
    """Put the new site into its place, and the old one, if there is one, where the new one was.

    The kernel exchanges the two names at once: there is no moment without a site, and of two runs
    that end together one follows the other. Where it cannot (network file systems), there is such
    a moment.

    Raises:
        ResultsError: If the old site cannot be replaced; it is unchanged.
    """
    for _ in range(_ATTEMPTS):
        try:
            if not output.exists():
                new.rename(output)
            elif not _exchanged(new, output):
                _rename_both(new, output)
        except OSError as error:
            if error.errno in _CHANGED and new.exists():
                continue  # another run published or removed a site in between
            raise ResultsError(
                f"{output} cannot be replaced: {error.strerror or error}",
                hint="the earlier site is unchanged; choose another folder with --output",
            ) from error
        else:
            return
    raise ResultsError(f"{output} cannot be replaced: other runs keep replacing it")


def _exchanged(first: Path, second: Path) -> bool:
    """Exchange two folders in one step; return whether the system can.

    Raises:
        OSError: If it can, and this failed.
    """
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:  # a C library before glibc 2.28
        return False
    names = (_HERE, os.fsencode(first), _HERE, os.fsencode(second))
    if renameat2(*names, _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS):  # the file system, or the kernel, cannot
        return False
    raise OSError(number, os.strerror(number))


def _rename_both(new: Path, output: Path) -> None:
    old = new.with_name("old")
    output.rename(old)
    try:
        new.rename(output)
    except OSError:
        old.rename(output)
        raise
