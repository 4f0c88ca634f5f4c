"""Write the site into a new folder, and replace the old site only when the new one is complete."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ivhl.asv.configuration import load_configuration
from ivhl.errors import ResultsError, explained, system_error_in
from ivhl.git import published_branches
from ivhl.pages.build import write_pages
from ivhl.pages.folder import exchange, folder_beside, mark, replaceable
from ivhl.tracker.annotations import Annotation, load_annotations
from ivhl.tracker.confirmations import Confirmation, load_confirmations
from ivhl.tracker.index import collector_paused
from ivhl.tracker.project import load_state
from ivhl.tracker.provenance import Provenance, load_provenance
from ivhl.tracker.views.broken import without_broken
from ivhl.tracker.views.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ivhl.records.store import Problem

# Folder of asv's pages in the site, and in it when they were made.
_ASV = "asv"
_MADE = "made.txt"
# Unless it is asked for, a new site gets asv's pages only up to so many files of results: asv takes
# minutes for more, ours take seconds.
_FEW_FILES = 400
_SHOWN_LINES = 12  # last lines of asv's output, which explain a failure
_LONGEST_S = 3600  # ten times what 2.4 million values take
_TRACEBACK = "Traceback (most recent call last):"
_OFF_BRANCH = "Couldn't find "
_WITHOUT_ASV = "asv publish failed, so its graphs are left out: ivhl publish --asv tells why"


@dataclass(frozen=True, slots=True)
class Published:
    """A published site, and what it lacks.

    Attributes:
        problems: What could not be read or shown; everything else is published.
        left_out: Problems of pages and data that could not be made; ``problems`` has them, too.
        off_branch: Commits that asv's graphs omit, because they are on no published branch. Our
            pages show them.
        asv: When asv's pages were made, as text; empty if the site has none.
        renewed: Whether asv's pages were made now.
    """

    output: Path
    problems: tuple[str, ...]
    left_out: tuple[str, ...]
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
    output = replaceable(output)
    conf = load_configuration(root)
    results = Path(conf["results_dir"])
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    with folder_beside(output) as folder:
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
            source, left_out = _write_ours(
                root, results, (*bad, *without), (new, output), (now, made)
            )
        if renewed and (new / "feed.xml").is_file():
            from ivhl.asv.verdicts import write_verdicts  # noqa: PLC0415  (it imports asv)

            write_verdicts(new / _ASV, source.changes, new / "feed.xml", source.expected)
        mark(new)
        exchange(new, output)
    off_branch = sorted(
        line.split(_OFF_BRANCH)[1].split()[0] for line in text.splitlines() if _OFF_BRANCH in line
    )
    return Published(
        output, source.state.problems, left_out, tuple(dict.fromkeys(off_branch)), made, renewed
    )


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
    """Write our pages, without the records that break them; return what they show, and left out."""
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
    known = annotations, confirmations, provenance
    state = load_state(root, results, history=False)
    state = replace(state, problems=(*problems, *state.problems))
    source = Source(state, now, *known)
    left_out = write_pages(source, new, old, made)
    if left_out:
        every = load_state(root, results)
        without = without_broken(replace(every, problems=state.problems))
        if without.records != every.records:  # a record is the reason
            state, source = without, Source(without, now, *known)
            _clear(new)
            left_out = write_pages(source, new, old, made)
    if left_out:
        # Once more, so that the pages name what is left out.
        state = replace(state, problems=(*state.problems, *left_out))
        source = Source(state, now, *known)
        _clear(new)
        left_out = write_pages(source, new, old, made)
    return source, left_out


def _clear(new: Path) -> None:
    for path in new.iterdir():
        if path.name != _ASV:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _write_asv(
    root: Path, conf: dict[str, Any], folder: Path, new: Path
) -> tuple[tuple[Problem, ...], str]:
    """Run ``asv publish`` into a new folder; return what it left out, and its output."""
    from ivhl.asv.unreadable import unreadable_files  # noqa: PLC0415  (it imports asv)

    results = Path(conf["results_dir"])
    unreadable = unreadable_files(results)
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


def _view(results: Path, without: set[Path], view: Path) -> Path:
    """Make a copy of ``results`` without some files, and return its folder.

    asv itself leaves out a machine without a readable ``machine.json``.
    """
    from asv.benchmarks import Benchmarks  # noqa: PLC0415  (only here)

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
    if process.returncode:
        raise _failed(text, f"ended with {process.returncode}")
    if not (html_dir / "vendor").is_dir():
        raise _failed(text, "did not link our pages")
    return text


def _failed(text: str, how: str) -> ResultsError:
    """Return the error for an asv that failed: what the system refused, or the end of its output."""
    unchanged = "the earlier site, if there was one, is unchanged"
    if (refused := system_error_in(text)) is not None:
        error = explained(refused)
        return ResultsError(f"asv publish: {error}", hint=f"{error.hint}; {unchanged}")
    # A traceback says where; its last line says what.
    last = text.strip().rpartition(_TRACEBACK)[2].splitlines()
    shown = last[-1:] if _TRACEBACK in text else last[-_SHOWN_LINES:]
    return ResultsError(f"asv publish {how}:\n" + "\n".join(shown), hint=unchanged)
