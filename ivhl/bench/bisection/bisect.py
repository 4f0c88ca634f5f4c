"""Find the commit or release that changed a case, by measuring (``ivhl bisect``).

The processes of a commit take turns with those of the first commit; the runs of a release take turns
with runs of the first release. So both sides see the same hour. Failures, wrong results and graph
breaks have no noise: one run decides at each place, two where the search ends. The journal keeps
each answer at once, so a killed search continues.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

from ivhl.bench.bisection.cost import cost_left
from ivhl.bench.bisection.question import (
    Answer,
    Culprit,
    NotMeasured,
    Position,
    Question,
    SearchJournal,
    seen_in,
    symptom_of,
)
from ivhl.bench.bisection.search import FLAKY_CHANCE, FLAKY_RUNS, Search
from ivhl.bench.experiment import Runs
from ivhl.bench.experiment.evidence import (
    DRIFT,
    PROCESSES_PER_ROUND,
    PROCESSES_PER_RUN,
    ROUNDS,
    WEIGHED,
    difference_in_session,
    difference_in_turns,
    expected_noise,
)
from ivhl.bench.request import Request, Selection
from ivhl.errors import IvhlError, LockError, SpecError
from ivhl.matrix.locks import lock_state
from ivhl.records.age import recorded_rank
from ivhl.records.answers import is_final
from ivhl.tracker.causes.attribution import Treatment
from ivhl.tracker.causes.culprit import Gap, blend, chance_of, most_probable, next_place
from ivhl.tracker.changes.comparable import Axis, differences
from ivhl.tracker.store.entries import Entry, code_of
from ivhl.tracker.store.index import open_index
from ivhl.tracker.store.metrics import Metric, difference, is_calibrated
from ivhl.tracker.store.records import case_name
from ivhl.tracker.store.spread import kind_of, shipped
from ivhl.tracker.wording import counted, times

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from rich.console import Console

    from ivhl.measure.effort import Effort
    from ivhl.records.record import RunRecord


class Places:
    """Measures the places of a search, and finds their records.

    Args:
        question: The change to search for.
        runs: Measures.
        results: Folder of the results.

    Attributes:
        n_runs: Runs so far.
    """

    def __init__(self, question: Question, runs: Runs, results: Path) -> None:
        self._question, self._runs, self._results = question, runs, results
        self.n_runs = 0
        self._request = runs.request
        self._subjects: dict[tuple[str, str | None], int] = {}

    def run(self, place: int, *, force: bool) -> RunRecord:
        """Return the record of a new run of a place; raises ``NotMeasured``."""
        effort = replace(
            self._request.effort,
            force=force,
            cold=self._question.sought == "compile-time",
        )
        if self._question.timed and not self._question.in_turns:
            effort = replace(effort, processes=PROCESSES_PER_ROUND)
        record = self._added([place], effort).get(place)
        if record is None and not force:
            record = self.newest(self._question.positions[place])
        if record is None:
            raise NotMeasured("no record of it was written")
        return record

    def run_each(
        self, place: int, against: int, there: dict[int, RunRecord], *, last_first: bool
    ) -> dict[int, RunRecord]:
        """Return runs of both places, one after the other; the first alternates."""
        runs = dict(there)
        for which in (place, against) if last_first else (against, place):
            if which not in runs:
                runs[which] = self.run(which, force=True)
        return runs

    def run_both(self, place: int, against: int) -> dict[int, RunRecord]:
        """Return the records of two commits whose processes took turns in one run."""
        effort = replace(self._request.effort, force=True, processes=PROCESSES_PER_RUN)
        runs = self._added([against, place], effort)
        if place in runs and runs[place].failure is not None:
            raise NotMeasured(seen_in(runs[place], "failure"))
        for one in (against, place):
            if one not in runs:
                name = self._question.positions[one].name
                raise NotMeasured(f"no record of {name[:8]} was written")
        return runs

    def _added(self, places: Sequence[int], effort: Effort) -> dict[int, RunRecord]:
        """Measure the case at a place, or at two commits, and return the records that this added.

        Raises:
            NotMeasured: If that cannot be done there.
            IvhlError: If it can be done nowhere.
        """
        positions = [self._question.positions[place] for place in places]
        arms = [Treatment(self._question.python, one.torch, one.commit) for one in positions]
        titles = ", interleaved with ".join(one.title for one in positions[::-1])
        self._runs.console.print(f"measures {titles}")
        sizes = self._runs.sizes(arms)
        try:
            self._runs.run(arms, Selection(cases=(self._question.case,)), effort)
        except LockError as error:
            raise NotMeasured(str(error)) from error
        except IvhlError as error:
            if type(error) is not IvhlError:
                raise
            raise NotMeasured(str(error)) from error
        self.n_runs += 1
        case = self._question.case
        added = {
            place: self._runs.added(arm, sizes) for place, arm in zip(places, arms, strict=True)
        }
        return {place: records[case] for place, records in added.items() if case in records}

    def run_or_find(self, place: int) -> tuple[RunRecord, bool]:
        """Return the record of a place, and whether it was measured just now."""
        stored = self.newest(self._question.positions[place])
        record = stored or self.run(place, force=False)
        return record, stored is None and record.same_as is None

    def newest(self, position: Position) -> RunRecord | None:
        """Return the newest record of a position; ``None`` without one."""
        return self.newest_of([position]).get(position.name)

    def newest_of(self, positions: Iterable[Position]) -> dict[str, RunRecord]:
        """Return the newest record of each position that has one."""
        names = {(p.commit, self._question.cell(p).id): p.name for p in positions}
        index = open_index(self._results)
        found: dict[str, Entry] = {}
        for entry in index.entries:
            key = entry.case
            name = names.get((entry.commit, key.cell))
            made = key.machine, key.device, key.existing, case_name(key)
            here = self._request.machine, self._request.effort.device, False, self._question.case
            if name is None or made != here:
                continue
            # A case whose precision was declared otherwise has records of both.
            if name not in found or _age(found[name]) < _age(entry):
                found[name] = entry
        return dict(zip(found, index.read(found.values()), strict=True))

    def stored(self, place: int, first: RunRecord | None) -> RunRecord | None:
        """Return a record that answers for a place, made as those of the first place are."""
        position = self._question.positions[place]
        record = self.newest(position)
        first = first or self.newest(self._question.positions[0])
        if record is None or first is None:
            return None
        axis: Axis = self._question.along
        lock = lock_state(self._request.root, self._question.cell(position))
        answers = (
            is_final(record.failure)
            and not record.uncommitted
            and not record.conditions.quick
            and record.cell.lock_sha256 == lock.sha256
            and record.workload_version == first.workload_version
            and not differences(first, record, axis)
        )
        return record if answers else None

    def subject(self, place: int, record: RunRecord) -> str:
        """Note what code a place has; return the name of another place that has the same."""
        if record.sources is None or self._question.along != "commit":
            return ""
        known = self._subjects.setdefault(code_of(record), place)
        return "" if known == place else self._question.positions[known].name

    def moved(
        self, one: RunRecord, other: RunRecord, metric: Metric
    ) -> tuple[float, float] | None:
        """Return the logarithm of the second run over the first, and its noise."""
        if self._question.in_turns:
            return difference_in_turns(one, other, metric)
        apart = difference_in_session(one, other, metric)
        if apart is None:
            return None
        if metric in DRIFT:
            return apart, expected_noise(metric, (one, other))
        # A run compiles once: no rounds show the error of these seconds.
        return apart, shipped(kind_of(other), metric, calibrated=True).tau


def _age(entry: Entry) -> tuple[object, ...]:
    """Return what is larger for the record that stands for a case now."""
    return entry.case.workload_version, recorded_rank(entry)


# No answer about times decides alone: earlier records only say where to look first.
_STORED_LIMIT: Final = 4.0


# Failures before the case could run: only a search for failures has an answer in them.
_NEVER_RAN: Final = frozenset({"environment", "build", "unavailable"})


def bisect(question: Question, request: Request, *, results: Path, console: Console) -> Culprit:
    """Search, measure and return where the behaviour changed.

    Args:
        question: The change to search for.
        request: Machine and effort; commit, cell and case are filled in.
        results: Folder of the results.
        console: Where progress is printed.

    Raises:
        SpecError: If the ends do not differ in what is searched for.
        IvhlError: As ``bench``; the answers kept before stay.
        KeyboardInterrupt: Likewise; it says that the same command goes on.
    """
    search = _Bisection(question, request, results, console)
    try:
        return search.run()
    except KeyboardInterrupt:
        console.print(
            f"stopped after {counted(len(search.answers), 'answer')}: the same command, without "
            "--force, goes on from there"
        )
        raise


class _Bisection:
    def __init__(
        self, question: Question, request: Request, results: Path, console: Console
    ) -> None:
        self._question, self._results, self._console = question, results, console
        self._journal = SearchJournal(question, request)
        self.answers = self._journal.lines
        self._search = Search(question, self.answers)
        runs = Runs(replace(request, results=results), console)
        self._request, self._runs = request, Places(question, runs, results)
        self._first_records: list[RunRecord] = []
        self._last = self._search.last

    def run(self) -> Culprit:
        """Search until one gap is probable enough, and both its sides were measured."""
        began, earlier = time.monotonic(), len(self.answers)
        if self.answers:
            self._console.print(f"goes on after {counted(len(self.answers), 'answer')}")
        whole = self._ask_ends()
        prior = self._prior()
        gaps = self._search.gaps(prior)
        if len(gaps) > 1:
            last = self._runs.newest(self._question.positions[-1])
            args = self._question, self._request, self._search, gaps, last
            self._console.print(cost_left(*args))
        while True:
            gaps = self._search.gaps(prior)
            found, place = most_probable(gaps), next_place(gaps)
            sure = found.probability >= 1 - self._question.error or place is None
            todo = next(self._search.unseen(found), None) if sure else None
            if sure and todo is None:
                break
            self._ask(self._search.chosen(todo if todo is not None else place or 0))
            if not self._question.timed and self._search.flaky():
                self._ask_rates()
        evidence, notes = self._evidence(found)
        positions = self._question.positions
        skips = self._search.skips()
        return Culprit(
            before=positions[found.before],
            after=positions[found.after],
            between=tuple((positions[i], skips[i]) for i in range(found.before + 1, found.after)),
            probability=found.probability,
            whole=whole,
            evidence=evidence,
            notes=tuple(notes),
            answers=sum(0 < self._search.names[a.place] < self._last for a in self.answers),
            runs=self._runs.n_runs,
            seconds=time.monotonic() - began,
            earlier=earlier,
        )

    def _ask_ends(self) -> str:
        """Measure the ends until they are known to differ; return how.

        Raises:
            SpecError: If they do not.
        """
        if self._question.timed:
            return self._ask_times_of_ends()
        ends = (0, self._last)
        asked = min(len(self._search.symptoms(place)) for place in ends)
        # Asked again, a search whose ends were alike looks at them more often.
        wanted = 2 if not self._search.are_alike() else min(asked + 2, FLAKY_RUNS)
        for place in ends:
            for number in range(len(self._search.symptoms(place)), wanted):
                self._ask_symptom(place, force=number > 0, end=True)
        if self._search.are_alike():
            self._refuse_alike_ends()
        if self._search.flaky():
            self._ask_rates()
        first, last = (
            self._search.text(place, like_last=place == self._last) for place in (0, self._last)
        )
        return f"{first} -> {last}"

    def _refuse_alike_ends(self) -> NoReturn:
        """Raise ``SpecError``: all runs of both ends showed the same."""
        title, text = self._search.title, self._search.text(0)
        if self._search.apart()[0] in _NEVER_RAN:
            raise SpecError(
                f"--for {self._question.sought}: the case runs at neither end: "
                f"{text} at {title(0)}, and so at {title(self._last)}",
                hint="mend that first, or choose other ends",
            )
        n_runs = min(len(self._search.symptoms(place)) for place in (0, self._last))
        unseen = 1 - 0.05 ** (1 / n_runs)
        hint = "search for what differs: ivhl compare shows it"
        if n_runs < FLAKY_RUNS:
            hint += "; of a flaky case, the same command again runs both ends twice more"
        raise SpecError(
            f"--for {self._question.sought}: {text} at {title(0)}, and so at "
            f"{title(self._last)}, in {counted(n_runs, 'run')} each; what less than "
            f"{unseen:.0%} of the runs show may have been missed",
            hint=hint,
        )

    def _ask_rates(self) -> None:
        """Learn how often both ends show a flaky symptom.

        Raises:
            SpecError: If they show it about as often.
        """
        for place in (0, self._last):
            while len(self._search.shown(place)) < FLAKY_RUNS:
                self._ask_symptom(place, force=True, end=True)
        if chance_of(self._search.shown(0), self._search.shown(self._last)) > FLAKY_CHANCE:
            raise SpecError(
                f"{self._question.case} is flaky: {self._search.shown_at(0)} and "
                f"{self._search.shown_at(self._last)} show it",
                hint="no search can tell these apart; choose ends that differ, or mend the case",
            )

    def _ask_times_of_ends(self) -> str:
        effect = self._question.effect
        while True:
            if self._search.moves(self._last):
                found = self._search.weigh(self._last, 0)
                size = max(found.ratio, 1 / found.ratio)
                differs = found.low > 1 or found.high < 1
                if differs and size >= effect:
                    return str(found)
                enough = found.high < effect and found.low > 1 / effect
                if enough or found.rounds >= ROUNDS:
                    titles = " and ".join(map(self._search.title, (0, self._last)))
                    raise SpecError(
                        f"--for {self._question.sought}: {titles} differ by less than "
                        f"--effect {effect:g}, or by too little to tell: {found} in "
                        f"{counted(found.rounds, 'round')}",
                        hint="choose ends that differ (ivhl regressions), or a smaller --effect"
                        + (", or another --side" if self._question.sought == "slowdown" else ""),
                    )
            self._ask_time(self._last, 0, end=True)

    def _ask(self, place: int) -> None:
        if self._question.timed:
            self._ask_time(place, 0)
        else:
            self._ask_symptom(place, force=bool(self._search.symptoms(place)))

    def _ask_symptom(self, place: int, *, force: bool, end: bool = False) -> None:
        try:
            first = next(iter(self._first_records), None)
            stored = None if force or end else self._runs.stored(place, first)
            record = stored or self._runs.run(place, force=force)
        except NotMeasured as reason:
            self._skip(place, str(reason), end=end)
            return
        if place == 0 and not self._first_records:
            self._first_records.append(record)
        symptom = symptom_of(record, self._question.sought)
        text = seen_in(record, self._question.sought)
        if end and self._question.sought != "failure" and symptom in _NEVER_RAN:
            self._skip(place, text, end=True)
        if not end and self._search.like_last(symptom) is None:
            self._skip(place, text)
            return
        known = self._runs.subject(place, record) if not force else ""
        kept = f"; record of {stored.recorded_at}" if stored else ""
        self._keep(place, symptom=symptom, alike=known, text=text + kept)

    def _ask_time(self, place: int, against: int, *, end: bool = False) -> None:
        """Measure a place and another one in turns, as a round."""
        try:
            there = (
                self._run_by_itself(place) if not end and self._search.runs_first(place) else {}
            )
            if there is None:
                return
            last_first = len(self._search.moves(place, against)) % 2 == 1
            runs = (
                self._runs.run_both(place, against)
                if self._question.in_turns
                else self._runs.run_each(place, against, there, last_first=last_first)
            )
        except NotMeasured as reason:
            self._skip(place, str(reason), end=end)
            return
        one, other = runs[against], runs[place]
        metric = self._question.metric
        moved = self._runs.moved(one, other, metric)
        if moved is None:
            failed = next((run for run in (other, one) if run.failure), other)
            self._skip(place, seen_in(failed, "failure"), end=end or failed is one)
            return
        positions = self._question.positions
        known = {where: self._runs.subject(where, record) for where, record in runs.items()}
        if known[place] and not end and not self._search.moves(place):
            self._keep_alike(place, known[place])
        self._keep(
            place,
            against=positions[against].name,
            apart=moved[0],
            noise=moved[1],
            beside={
                beside: found
                for beside in WEIGHED
                if beside != metric and (found := self._runs.moved(one, other, beside)) is not None
            },
            text=f"{metric} {times(math.exp(moved[0]))} of {positions[against].name[:8]}",
        )

    def _skip(self, place: int, reason: str, *, end: bool = False) -> None:
        if end:
            raise SpecError(
                f"{self._search.title(place)}, an end of the search: {reason}",
                hint="choose ends that can be measured, or search with --for failure",
            )
        self._keep(place, skip=reason or "failed")

    def _keep_alike(self, place: int, known: str) -> None:
        self._keep(place, alike=known, text=f"the case reaches the same code as at {known[:8]}")

    def _keep(self, place: int, **learnt: Any) -> None:  # noqa: ANN401  (fields of an answer)
        name, at = self._question.positions[place].name, datetime.now(UTC)
        answer = Answer(place=name, at=at.isoformat(timespec="seconds"), **learnt)
        self._journal.keep(answer)
        said = f"skipped: {answer.skip}" if answer.skip else answer.text
        self._console.print(f"{self._search.title(place)}: {said}")

    def _run_by_itself(self, place: int) -> dict[int, RunRecord] | None:
        """Return the run of a place that was not seen yet; ``None`` if its code is that of another.

        Raises:
            NotMeasured: If it fails, so that nothing can be compared.
        """
        record, is_new = self._runs.run_or_find(place)
        if known := self._runs.subject(place, record):
            self._keep_alike(place, known)
            return None
        if record.failure is not None and self._question.in_turns:
            raise NotMeasured(seen_in(record, "failure"))
        return {place: record} if is_new else {}

    def _prior(self) -> list[float]:
        """Return where to look first, by the records that are there; see ``culprit.blend``."""
        n = self._last
        prior = [1 / n] * n
        if not self._question.timed:
            return prior
        index, metric = open_index(self._results), self._question.metric
        records = self._runs.newest_of(self._question.positions)
        ends = [records.get(self._question.positions[i].name) for i in (0, -1)]
        first, last = ends
        whole = None if first is None or last is None else difference(first, last, metric)
        if first is None or whole is None:
            return prior
        evidence: dict[int, float] = {}
        for place, position in enumerate(self._question.positions[1:-1], 1):
            record = records.get(position.name)
            if record is None or differences(first, record, self._question.along):
                continue
            apart = difference(first, record, metric)
            calibrated = is_calibrated(first, record, metric)
            spread = index.spreads.of(record, metric, calibrated=calibrated)
            scale = spread.scale(first, record, metric=metric)
            if apart is not None and scale > 0 and not self._search.moves(place):
                seen = (apart - whole / 2) * whole / scale**2
                evidence[place] = max(-_STORED_LIMIT, min(_STORED_LIMIT, seen))
        if evidence:
            point = "points" if len(evidence) == 1 else "point"
            self._console.print(f"looks first where {counted(len(evidence), 'record')} {point}")
        return blend(prior, evidence) if evidence else prior

    def _evidence(self, gap: Gap) -> tuple[str, list[str]]:
        """Return how both sides of a gap differ, measured in turns, and what to know of it."""
        if not self._question.timed:
            return self._search.evidence_of_symptoms(gap)
        while (found := self._search.turns(gap)) is None:
            self._ask_time(gap.after, gap.before, end=True)
        return self._search.evidence_of_times(gap, found)
