"""Let asv's own commands read our records, under their own names.

``asv publish`` reads the records, beside the results of the project's own asv suite; ``asv run`` of
ivhl's suite leaves its files where nothing reads them, since it has written records; and no command
writes into the site of ``ivhl publish``.
"""

from __future__ import annotations

import fcntl
import tempfile
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asv.commands.check import Check
from asv.commands.preview import Preview
from asv.commands.publish import Publish
from asv.commands.run import Run
from asv.console import log
from asv.machine import Machine
from asv.util import ProcessError, UserError

from ivhl.asv.configuration import HTML, SCRATCH, SUITE, load_configuration
from ivhl.asv.files import OwnSuite, write_foreign, write_places
from ivhl.asv.graphs import Graphs, add_verdicts
from ivhl.asv.site import check_replaceable, join_asv_site
from ivhl.errors import IvhlError
from ivhl.git import find_commit, published_branches
from ivhl.matrix.project import find_root
from ivhl.pages.folder import MARKER
from ivhl.tracker.changes.confirmations import load_confirmations, with_confirmed
from ivhl.tracker.changes.kinds import WORSE
from ivhl.tracker.changes.regressions import Change, changes_of, incidents_of
from ivhl.tracker.views.project import State, load_state
from ivhl.tracker.views.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# The name of this machine, once asv has said it: under plain `asv run --machine NAME` only asv knows
# it, and records go by it. asv saves the machine before it makes the first environment.
KNOWN: dict[str, str] = {}


def install() -> None:
    """Wrap asv's commands, once."""
    if hasattr(Publish.run, "__wrapped__"):
        return
    _wrap(Publish, _publish)
    _wrap(Preview, _preview)
    _wrap(Run, _run)
    _wrap(Check, _check)
    save = Machine.save

    @wraps(save)
    def keeping_name(self: Any, results_dir: str) -> None:  # noqa: ANN401  (asv has no types)
        KNOWN["machine"] = self.machine
        save(self, results_dir)

    Machine.save = keeping_name


def _wrap(command: Any, around: Callable[[Any, Callable[[], Any]], Any]) -> None:  # noqa: ANN401
    """Let a function run a command of asv, and asv print our errors as it prints its own.

    Args:
        command: The class of asv.
        around: Takes the configuration and what runs asv's own command; returns its exit status.
    """
    run = command.run.__func__

    @wraps(run)
    def wrapped(cls: Any, conf: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        try:
            root = root_of(conf)
            load_configuration(root)  # asv takes values of any type
            try:
                return around(conf, partial(run, cls, conf, *args, **kwargs))
            except ProcessError as error:  # of git, mostly: a branch without a commit
                find_commit(root, "HEAD")
                said = error.stderr or error
                raise UserError(f"{' '.join(error.args)} failed: {said}") from error
        except IvhlError as error:
            raise UserError(
                f"{error}; next: {error.hint}" if error.hint else str(error)
            ) from error

    command.run = classmethod(wrapped)


def _run(conf: Any, run: Callable[[], Any]) -> Any:  # noqa: ANN401
    if Path(conf.benchmark_dir).resolve() == SUITE.resolve():
        conf.ivhl_results = str(results_of(conf))
        conf.results_dir = str(root_of(conf) / SCRATCH)
    return run()


def _check(conf: Any, run: Callable[[], Any]) -> Any:  # noqa: ANN401
    # A cell that cannot be made leaves records; whoever checks the suite asks for none.
    conf.ivhl_results = str(root_of(conf) / SCRATCH)
    return run()


def _preview(conf: Any, run: Callable[[], Any]) -> Any:  # noqa: ANN401
    conf.html_dir = html_dir(conf)
    if not Path(conf.html_dir, "index.html").is_file():
        raise UserError(f"{conf.html_dir} has no site; next: asv publish")
    return run()


def _publish(conf: Any, run: Callable[[], Any]) -> Any:  # noqa: ANN401
    with _alone(root_of(conf)):
        conf.html_dir = html_dir(conf)
        check_replaceable(Path(conf.html_dir))
        root = root_of(conf)
        state = load_state(root, results_of(conf))
        for problem in state.problems:
            log.warning(problem)
        if Path(conf.repo).is_dir():
            # asv stops if a branch does not exist, as in the checkout of a pull request.
            conf.branches = published_branches(root, conf.branches)
        suite = OwnSuite(state.records, state.workloads)
        with _view_foreign(conf) as view:
            write_places(root, view, suite)
            results, conf.results_dir = results_of(conf), str(view)
            status = run()
        if not status:
            graphs = Graphs(conf, suite, Source(state))
            graphs.write()
            add_verdicts(graphs, _changes(state, results))
            join_asv_site(Path(conf.html_dir))
        return status


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Wait for another process that writes asv's pages: each deletes the pages of before."""
    path = root / ".asv" / "publish.lock"
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def html_dir(conf: Any) -> str:  # noqa: ANN401
    """Return asv's folder of pages: never that of ``ivhl publish``, which asv would delete."""
    root, folder = root_of(conf), Path(conf.html_dir).absolute()
    if folder != root / "site" and not (folder / MARKER).exists():
        return str(folder)
    log.info(f"{conf.html_dir} is the site of ivhl publish; asv's pages are in {root / HTML}")
    return str(root / HTML)


def root_of(conf: Any) -> Path:  # noqa: ANN401
    """Return the root of the project: asv runs in the folder of its configuration.

    Raises:
        SpecError: If that is in no project.
    """
    return Path(getattr(conf, "ivhl_root", None) or find_root())


def results_of(conf: Any) -> Path:  # noqa: ANN401
    """Return the folder of the records; asv's own results are in ``conf.results_dir``."""
    return Path(getattr(conf, "ivhl_results", root_of(conf) / "results"))


@contextmanager
def _view_foreign(conf: Any) -> Iterator[Path]:  # noqa: ANN401
    """Yield a new folder with the results of the project's own suite."""
    with tempfile.TemporaryDirectory(prefix="ivhl-asv-") as name:
        for problem in write_foreign(Path(conf.results_dir), Path(name)):
            log.warning(f"left out: {problem.seen_from(root_of(conf))}")
        yield Path(name)


def _changes(state: State, results: Path) -> tuple[Change, ...]:
    """Return what ``ivhl regressions`` lists."""
    index, order = state.history, state.commit_order
    assert index is not None  # noqa: S101  (load_state sets it)
    found = changes_of(index, state.spreads, order)
    every = with_confirmed(found, load_confirmations(results), index, order)
    incidents = incidents_of(change for change in every if change.kind in WORSE)
    return tuple(change for incident in incidents for change in incident.changes)
