"""One case in this process, for ``ivhl try``: prints what happens, and keeps nothing.

It goes the way of a process that times a case (``ivhl.measure.case``), once. An exception keeps its
whole traceback, which a record has no room for.
"""

from __future__ import annotations

import re
import sys
import time
import traceback
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from ivhl.errors import counted
from ivhl.measure.case import Measurement, class_of
from ivhl.measure.failures import (
    CaseError,
    headline,
    is_of_harness,
    message_of,
    number,
    place_of,
    qualified_name,
)
from ivhl.measure.intervals import paired_ratio
from ivhl.measure.job import case_of, read_job
from ivhl.measure.journal import Journal

if TYPE_CHECKING:
    from ivhl.measure.job import Job
    from ivhl.records.record import Phase

# Exit codes: what `ivhl try` reports of them is in docs/track.md.
FAILED = 7


class Spoken(Journal):
    """A journal that prints each phase when it ends, and remembers the findings."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.found: dict[str, Any] = {}
        self._since = time.perf_counter()

    def enter(self, phase: Phase) -> None:
        """Print the seconds of the phase that ends here."""
        if phase != self.phase:
            self._say()
        super().enter(phase)

    def note(self, **findings: Any) -> None:  # noqa: ANN401  (JSON)
        """Remember the findings, too."""
        self.found |= findings
        super().note(**findings)

    def end(self) -> None:
        """Print the last phase."""
        self._say()

    def _say(self) -> None:
        now = time.perf_counter()
        if now - self._since > 0.005:  # noqa: PLR2004  (nothing happened)
            print(f"  {self.phase:<10}{now - self._since:6.2f} s", flush=True)
        self._since = now


def main(argv: list[str]) -> int:
    """Try the case that ``argv[1]`` describes; return 0 if it has a speedup."""
    job = read_job(argv[1])
    journal = Spoken(Path(job.journal))
    code = attempt(job, journal)
    journal.note(done=True)  # else something ended the process before
    return code


def attempt(job: Job, journal: Spoken) -> int:
    """Go through the phases of a process that times the case, and print what happens.

    Returns:
        The exit code.
    """
    try:
        case = case_of(job)
        Measurement(job, case, journal).run()
    except Exception as error:  # noqa: BLE001  (every exception is a result of the case)
        journal.end()
        if isinstance(error, CaseError):
            print(f"{error.failure_class} in phase {journal.phase}: {error}")
            _print_compile(journal.found)
            return FAILED
        print_traceback(error)
        where = f" ({place})" if (place := place_of(error)) else ""
        told = f"{qualified_name(error)}: {headline(message_of(error))}{where}"
        print(f"{class_of(error, journal.phase, job)} in phase {journal.phase}: {told}")
        return FAILED
    journal.end()
    _print_found(journal.found)
    return 0


def print_traceback(error: Exception) -> None:
    """Print the traceback of an error without the frames of the harness, if others are left."""
    whole = traceback.TracebackException.from_exception(error)
    told: traceback.TracebackException | None = whole
    while told is not None:
        theirs = [
            frame
            for frame in told.stack
            if not (is_of_harness(frame.filename) or "importlib" in frame.filename)
        ]
        told.stack = traceback.StackSummary.from_list(theirs or told.stack)
        told = told.__cause__ or told.__context__
    print("".join(whole.format()), end="")


def _print_found(found: dict[str, Any]) -> None:
    eager, compiled = (found[arm]["samples_s"] for arm in ("eager", "compiled"))
    ratio = paired_ratio(eager, compiled, (len(eager),))
    print(
        f"right, and {ratio.value:.2f}x [{ratio.low:.2f}, {ratio.high:.2f}] the speed of eager in "
        f"this process: eager {median(eager) * 1e3:.3g} ms, compiled {median(compiled) * 1e3:.3g} ms"
    )
    errors = found.get("accuracy", ())
    # A forward pass leaves every parameter as it was.
    off = [one for one in errors if (one["compiled_rmse"], one["eager_rmse"]) != (0, 0)]
    for error in off:
        # Without a limit, a cosine is compared.
        rmse, eager_rmse, limit = (
            number(error[name]) for name in ("compiled_rmse", "eager_rmse", "limit_rmse")
        )
        print(f"  {error['output']}: RMSE {rmse}, eager {eager_rmse}, allowed {limit}")
    if len(errors) > len(off):
        print(f"  {len(errors) - len(off)} exact in both")
    _print_compile(found)


def _print_compile(found: dict[str, Any]) -> None:
    facts = found.get("compile")
    if not facts:
        return
    total, compiled = facts["frames_total"], facts["frames_ok"]
    again = _by_cause(facts["recompiles"])
    eagerly = f", {total - compiled} run eagerly" if total and compiled < total else ""
    print(
        f"  first call {facts['warm_s']:.1f} s: {counted(facts['graphs'], 'graph')}, {compiled} of "
        f"{counted(total, 'frame')} compiled{eagerly}, graph breaks of "
        f"{counted(len(facts['graph_breaks']), 'kind')}, recompiles of {counted(len(again), 'kind')}"
    )
    for one in facts["graph_breaks"]:
        print(f"  graph break, {one['count']}x: {one['text']}")
    for text, count in again.items():
        print(f"  recompile, {count}x: {text}")


def _by_cause(recompiles: list[dict[str, Any]]) -> dict[str, int]:
    """Return how often each cause made Dynamo recompile.

    Recompiles that differ in numbers alone, such as the length of a list that grows, have one cause.
    Of each, what matters is the function and the newest guard that failed; the other lines are its
    stack and the guards of earlier compilations.
    """
    texts: dict[str, str] = {}
    counts: dict[str, int] = {}
    for one in recompiles:
        text = "\n".join(one["text"].splitlines()[:3])
        text = texts.setdefault(re.sub(r"\d+", "", text), text)
        counts[text] = counts.get(text, 0) + one["count"]
    return counts


if __name__ == "__main__":
    sys.exit(main(sys.argv))
