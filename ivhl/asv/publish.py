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
from ivhl.asv.site import check_replaceable, linked_to_ours
from ivhl.errors import ResultsError, explained, system_error_in
from ivhl.observatory.views import load_libraries
from ivhl.pages.build import write_pages
from ivhl.pages.folder import exchange, folder_beside, link_or_copy, mark, replaceable
from ivhl.tracker.changes.confirmations import load_confirmations
from ivhl.tracker.store.index import collector_paused
from ivhl.tracker.store.kept import load_provenance
from ivhl.tracker.views.broken import without_broken
from ivhl.tracker.views.project import State, load_state
from ivhl.tracker.views.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ivhl.tracker.store.records import Problem

# Folder of asv's pages in the site.
_ASV = "asv"
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


def publish(root: Path, output: Path, *, asv: bool | None = None, site_url: str = "") -> Published:
    """Write the site of the project at ``root``, and replace ``output`` with it.

    Args:
        root: Root of the project.
        output: Folder of the site. If it exists, it must be an earlier site.
        asv: Whether to make asv's pages again. Otherwise those of the earlier site are kept;
            ``None`` makes them if it has none and they take seconds.
        site_url: Address of the site, with its last slash; empty if nothing needs whole links.

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
        html = Path(conf["html_dir"])
        renewed = _wants_asv(html, results) if asv is None else asv
        without: tuple[str, ...] = ()
        if renewed:
            try:
                bad, text = _write_asv(root, conf)
            except ResultsError:
                if asv:
                    raise
                # Nobody asked for them, and ours do not need them.
                renewed, without = False, (_WITHOUT_ASV,)
        made = _take_asv(html, new / _ASV)
        with collector_paused():
            source, left_out = _write_ours(
                root, results, (*bad, *without), (new, output), (now, made), site_url=site_url
            )
        mark(new)
        exchange(new, output)
    off_branch = sorted(
        line.split(_OFF_BRANCH)[1].split()[0] for line in text.splitlines() if _OFF_BRANCH in line
    )
    return Published(
        output, source.state.problems, left_out, tuple(dict.fromkeys(off_branch)), made, renewed
    )


def _wants_asv(html: Path, results: Path) -> bool:
    if (html / "vendor").is_dir():
        return False
    found = (*results.glob("*/*.json"), *results.glob("*/records/*.jsonl"))
    return len(found) <= _FEW_FILES


def _take_asv(html: Path, target: Path) -> str:
    """Take the pages that ``asv publish`` wrote into the site; return when they were made.

    Empty if there are none.
    """
    try:
        made = json.loads((html / "info.json").read_text(encoding="utf-8"))["timestamp"] / 1000
        index = linked_to_ours((html / "index.html").read_text(encoding="utf-8"))
        shutil.copytree(html, target, copy_function=link_or_copy)
    except (OSError, ValueError, KeyError):
        shutil.rmtree(target, ignore_errors=True)
        return ""
    (target / "index.html").unlink()  # a link: the page of `asv preview` has no others beside it
    (target / "index.html").write_text(index, encoding="utf-8")
    return f"{datetime.fromtimestamp(made, UTC):%Y-%m-%d %H:%M} UTC"


def _write_ours(
    root: Path,
    results: Path,
    bad: Iterable[Problem | str],
    folders: tuple[Path, Path],
    times: tuple[str, str],
    *,
    site_url: str,
) -> tuple[Source, tuple[str, ...]]:
    """Write our pages, without the records that break them; return what they show, and left out."""
    (new, old), (now, made) = folders, times
    problems = [str(problem) for problem in bad]
    known: list[Any] = []
    for load, none in ((load_confirmations, ()), (load_provenance, {})):
        try:
            known.append(load(results))
        except ResultsError as error:
            known.append(none)
            # The site is public, and the whole path is that of this machine.
            problems.append(str(error).replace(f"{results.parent}{os.sep}", ""))
    libraries, unread = load_libraries(root)
    state = load_state(root, results, history=False)
    state = replace(state, problems=(*problems, *unread, *state.problems), site_url=site_url)

    def write(state: State) -> tuple[Source, tuple[str, ...]]:
        _clear(new)
        source = Source(state, now, *known)
        return source, write_pages(source, new, old, made, libraries)

    source, left_out = write(state)
    if left_out:
        every = load_state(root, results)
        without = without_broken(replace(every, problems=state.problems))
        if without.records != every.records:  # a record is the reason
            source, left_out = write(replace(without, site_url=site_url))
    if left_out:
        # Once more, so that the pages name what is left out.
        return write(replace(source.state, problems=(*source.state.problems, *left_out)))
    return source, left_out


def _clear(new: Path) -> None:
    for path in new.iterdir():
        if path.name != _ASV:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _write_asv(root: Path, conf: dict[str, Any]) -> tuple[tuple[Problem, ...], str]:
    """Let ``asv publish`` write its pages anew; return what it left out, and its output."""
    from ivhl.asv.files import unreadable_files  # noqa: PLC0415  (it imports asv)

    html = Path(conf["html_dir"])
    check_replaceable(html)
    with folder_beside(html) as folder:
        written = folder / "asv.conf.json"
        new = folder / "html"
        changed = {
            "html_dir": str(new),
            "ivhl_results": conf["results_dir"],
            "results_dir": conf["asv_results_dir"],
        }
        written.write_text(json.dumps(conf | changed), encoding="utf-8")
        text = _run_asv(root, written, new)
        exchange(new, html)
    unreadable = unreadable_files(Path(conf["asv_results_dir"]))
    return tuple(problem.seen_from(root) for problem in unreadable), text


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
