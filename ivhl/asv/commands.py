"""Let asv's own commands read our records, under their own names.

``asv publish``, ``show`` and ``compare`` read the records, beside the results of the project's own
asv suite; ``asv run`` of ivhl's suite leaves its files where nothing reads them, since it has
written records; and no command writes into the site of ``ivhl publish``.
"""

from __future__ import annotations

import fcntl
import tempfile
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from asv.commands.check import Check
from asv.commands.compare import Compare
from asv.commands.preview import Preview
from asv.commands.publish import Publish
from asv.commands.run import Run
from asv.commands.show import Show
from asv.console import log
from asv.machine import Machine
from asv.util import UserError

from ivhl.asv.configuration import HTML, SCRATCH, SUITE, load_configuration
from ivhl.asv.files import OwnSuite, write_foreign, write_ours, write_places
from ivhl.asv.site import check_replaceable, join_asv_site
from ivhl.asv.verdicts import add_verdicts
from ivhl.errors import IvhlError
from ivhl.git import published_branches
from ivhl.matrix.project import find_root
from ivhl.pages.folder import MARKER
from ivhl.tracker.changes.confirmations import load_confirmations, with_confirmed
from ivhl.tracker.changes.history import changes_of
from ivhl.tracker.changes.kinds import WORSE
from ivhl.tracker.changes.regressions import incidents_of
from ivhl.tracker.views.project import load_state
from ivhl.tracker.views.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ivhl.tracker.changes.regressions import Change
    from ivhl.tracker.views.project import State

# The name of this machine, once asv has said it: under plain `asv run --machine NAME` only asv knows
# it, and records go by it. asv saves the machine before it makes the first environment.
KNOWN: dict[str, str] = {}
# asv counts a higher value as worse.
_HIGHER_IS_BETTER: Final = ("speedup",)


def install() -> None:
    """Wrap asv's commands, once."""
    if hasattr(Publish.run, "__wrapped__"):
        return
    Machine.save = _keeping_name(Machine.save)
    for command, wrap in (
        (Publish, _publishing),
        (Preview, _previewing),
        (Show, _reading()),
        (Compare, _reading(without=_HIGHER_IS_BETTER)),
        (Run, _running),
        (Check, _checking),
    ):
        command.run = classmethod(_told(wrap(command.run.__func__)))


def _told(run: Callable[..., Any]) -> Callable[..., Any]:
    """Let asv print our errors as it prints its own."""

    @wraps(run)
    def wrapped(cls: Any, conf: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  (asv has no types)
        try:
            load_configuration(root_of(conf))  # asv takes values of any type
            return run(cls, conf, *args, **kwargs)
        except IvhlError as error:
            raise UserError(
                f"{error}; next: {error.hint}" if error.hint else str(error)
            ) from error

    return wrapped


def _keeping_name(save: Callable[..., None]) -> Callable[..., None]:
    @wraps(save)
    def wrapped(self: Any, results_dir: str) -> None:  # noqa: ANN401
        KNOWN["machine"] = self.machine
        save(self, results_dir)

    return wrapped


def _running(run: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(run)
    def wrapped(cls: Any, conf: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if Path(conf.benchmark_dir).resolve() == SUITE.resolve():
            conf.ivhl_results = str(results_of(conf))
            conf.results_dir = str(root_of(conf) / SCRATCH)
        return run(cls, conf, *args, **kwargs)

    return wrapped


def _checking(run: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(run)
    def wrapped(cls: Any, conf: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        # A cell that cannot be made leaves records; whoever checks the suite asks for none.
        conf.ivhl_results = str(root_of(conf) / SCRATCH)
        return run(cls, conf, *args, **kwargs)

    return wrapped


def _reading(without: tuple[str, ...] = ()) -> Callable[..., Callable[..., Any]]:
    def wrap(run: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(run)
        def wrapped(cls: Any, conf: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            root, state = _load(conf)
            with tempfile.TemporaryDirectory(prefix="ivhl-asv-") as name:
                _view_foreign(conf, Path(name))
                write_ours(root, Path(name), OwnSuite(state.records, state.workloads), without)
                conf.results_dir = name
                return run(cls, conf, *args, **kwargs)

        return wrapped

    return wrap


def _previewing(run: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(run)
    def wrapped(cls: Any, conf: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        conf.html_dir = html_dir(conf)
        if not Path(conf.html_dir, "index.html").is_file():
            raise UserError(f"{conf.html_dir} has no site; next: asv publish")
        return run(cls, conf, *args, **kwargs)

    return wrapped


def _publishing(run: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(run)
    def wrapped(cls: Any, conf: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        with _alone(root_of(conf)):
            return _publish(partial(run, cls), conf, *args, **kwargs)

    return wrapped


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Wait for another process that writes asv's pages: each deletes the pages of before."""
    path = root / ".asv" / "publish.lock"
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _publish(run: Callable[..., Any], conf: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    from ivhl.asv.graphs import Graphs  # noqa: PLC0415  (only here)

    conf.html_dir = html_dir(conf)
    check_replaceable(Path(conf.html_dir))
    root, state = _load(conf)
    if Path(conf.repo).is_dir():
        # asv stops if a branch does not exist, as in the checkout of a pull request.
        conf.branches = published_branches(root, conf.branches)
    suite = OwnSuite(state.records, state.workloads)
    with tempfile.TemporaryDirectory(prefix="ivhl-asv-") as name:
        _view_foreign(conf, Path(name))
        write_places(root, Path(name), suite)
        results, conf.results_dir = results_of(conf), name
        status = run(conf, *args, **kwargs)
    if not status:
        graphs = Graphs(conf, suite, Source(state))
        graphs.write()
        add_verdicts(graphs, _changes(state, results))
        join_asv_site(Path(conf.html_dir))
    return status


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


def _load(conf: Any) -> tuple[Path, State]:  # noqa: ANN401
    root = root_of(conf)
    state = load_state(root, results_of(conf))
    for problem in state.problems:
        log.warning(problem)
    return root, state


def _view_foreign(conf: Any, view: Path) -> None:  # noqa: ANN401
    for problem in write_foreign(Path(conf.results_dir), view):
        log.warning(f"left out: {problem.seen_from(root_of(conf))}")


def _changes(state: State, results: Path) -> tuple[Change, ...]:
    """Return what ``ivhl regressions`` lists."""
    index, order = state.history, state.commit_order
    assert index is not None  # noqa: S101  (load_state sets it)
    found = changes_of(index, state.spreads, order)
    every = with_confirmed(found, load_confirmations(results), index, order)
    incidents = incidents_of(change for change in every if change.kind in WORSE)
    return tuple(change for incident in incidents for change in incident.changes)
