"""Measure base and head for ``ivhl gate``, and suspects again until the evidence suffices.

Only the runs of ``confirm`` decide about suspects, so what made a case a suspect is not counted
twice. The processes of both commits alternate, so both see the same seconds of the same machine,
and only cases in doubt are measured again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from ivhl.bench.experiment import Experiment, Runs
from ivhl.bench.experiment.estimate import told
from ivhl.bench.experiment.evidence import PROCESSES_PER_RUN, ROUNDS, WEIGHED, verdict_of, weigh
from ivhl.bench.experiment.journal import digest_of_tree
from ivhl.bench.request import Selection
from ivhl.matrix.project import load_project
from ivhl.matrix.spec import CellSpec
from ivhl.tracker.causes.attribution import Treatment
from ivhl.tracker.changes.confirmations import Confirmation, keep_confirmations
from ivhl.tracker.changes.gate import REGRESSIONS, Verdict
from ivhl.tracker.changes.kinds import BETTER, KINDS, Kind
from ivhl.tracker.store.facts import changed_facts
from ivhl.tracker.store.records import grouped_by
from ivhl.tracker.wording import counted, short_message
from ivhl.workload import load_workloads

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ivhl.records.identity import CaseInCell
    from ivhl.records.record import RunRecord
    from ivhl.tracker.changes.compare import Comparison
    from ivhl.tracker.store.metrics import Metric


# Changes by these factors are measured again also where noise may have made them.
DOUBTFUL: Final[dict[Metric, float]] = {"compiled": 1.15, "speedup": 1.15}
# Likewise where both runs are of the same hour: what runs of other days differ by hides less.
DOUBTFUL_IN_SESSION: Final[dict[Metric, float]] = {"compiled": 1.10, "speedup": 1.05}


class Confirmed(NamedTuple):
    """The outcome for one case.

    Attributes:
        cell: Cell id.
        case: Workload, size and variant.
        text: The facts or quantities that decide.
    """

    cell: str
    case: str
    verdict: Kind
    rounds: int
    text: str


def measure_pair(
    runs: Runs, cells: Sequence[CellSpec], commits: tuple[str, str], workloads: Sequence[str]
) -> None:
    """Measure the core suite where base or head lack it.

    What both have is not measured again, so a killed command goes on; what reaches the same code
    at both is measured once.

    Args:
        runs: Measures.
        cells: Cells to measure in.
        commits: Full hashes of base and head.
        workloads: Names of workloads; empty means all.

    Raises:
        IvhlError: As ``bench``; the records written before stay.
    """
    request = runs.request
    selection = Selection(workloads=tuple(workloads), suite="core")
    cases = selection.choose(load_workloads(load_project(request.root).workloads))
    known = runs.estimate(
        [case.name for case in cases], request.effort.processes, arms=len(commits)
    )
    of = f" of {counted(len(cases), 'case')}, less what both commits have"
    runs.console.print(told("expected", len(cells), known, of=of))
    for cell in cells:
        runs.console.print(f"{cell.id}: {commits[0][:8]} and {commits[1][:8]} interleaved")
        arms = [Treatment(cell.python, cell.torch, commit) for commit in commits]
        runs.run(arms, selection, request.effort)


def confirm(
    runs: Runs,
    commits: tuple[str, str],
    cells: Mapping[tuple[str, str], Sequence[str]],
    rounds: int = ROUNDS,
) -> list[Confirmed]:
    """Measure cases at two commits, cell by cell, judge them, and keep what was decided.

    Args:
        runs: Measures; the results are those of its request.
        commits: Full hashes of base and head.
        cells: Python and release to names of cases.
        rounds: Most rounds in a cell.

    Raises:
        IvhlError: As ``bench``; what was decided before is kept, and the same command goes on.
    """
    experiments = [
        _experiment(runs, commits, cell, cases, rounds) for cell, cases in sorted(cells.items())
    ]
    for one in experiments:
        runs.console.print(f"{_cell(one)}: {one.cost(1, rounds)}")
    found = [_confirm(one) for one in experiments]
    # Only now: until then a killed command finds the rounds of all cells.
    for one, decided in zip(experiments, found, strict=True):
        _keep(one, [case for case in decided if case.rounds])
        one.end()
    return [*chain(*found)]


def _experiment(
    runs: Runs,
    commits: tuple[str, str],
    cell: tuple[str, str],
    cases: Sequence[str],
    rounds: int,
) -> Experiment:
    root = runs.request.root
    return Experiment(
        runs=runs,
        kind="confirm",
        arms=[Treatment(*cell, commit) for commit in commits],
        cases=tuple(dict.fromkeys(cases)),
        rounds=rounds,
        processes=PROCESSES_PER_RUN,
        interleaved=True,
        beside=[digest_of_tree(root, [CellSpec(*cell)])],
    )


def _confirm(experiment: Experiment) -> list[Confirmed]:
    console, cell = experiment.runs.console, _cell(experiment)
    pairs: dict[str, list[tuple[RunRecord, RunRecord]]] = {}
    found: dict[str, Confirmed] = {}

    def undecided() -> list[str]:
        return [case for case, one in found.items() if one.verdict == "inconclusive"]

    for number, table in enumerate(
        experiment.tables(lambda: undecided() if found else experiment.cases), 1
    ):
        for case, (base, head) in ((case, records.values()) for case, records in table.items()):
            pairs.setdefault(case, []).append((base, head))
            found[case] = judge_rounds((cell, case), pairs[case])
        if not table:
            break
        kinds = Counter(one.verdict for one in found.values() if one.verdict != "inconclusive")
        settled = [f"{n} {kind}" for kind, n in kinds.items()] or ["none"]
        console.print(
            f"{cell}: after round {number}, settled: {', '.join(settled)}; "
            f"{counted(len(undecided()), 'case')} open"
        )
        for one in (found[case] for case in table):
            state = "open" if one.verdict == "inconclusive" else one.verdict
            console.print(f"  {state}: {one.case}: {one.text}")
    for case in experiment.cases:
        missing = Confirmed(cell, case, "inconclusive", 0, "no record of both commits")
        found.setdefault(case, missing)
    return [found[case] for case in sorted(found)]


def _cell(experiment: Experiment) -> str:
    return CellSpec(experiment.arms[0].python, experiment.arms[0].torch).id


def _keep(experiment: Experiment, decided: Sequence[Confirmed]) -> None:
    """Keep what was decided beside the records."""
    base, head = experiment.arms
    request = experiment.runs.request
    at = datetime.now(UTC).isoformat(timespec="seconds")
    keep_confirmations(
        experiment.runs.folder,
        [
            Confirmation(
                machine=request.machine or "", python=base.python, torch=base.torch, case=one.case,
                base=base.commit, head=head.commit, verdict=one.verdict, rounds=one.rounds,
                text=one.text, at=at,
            )
            for one in decided
        ],
    )  # fmt: skip


def judge_rounds(key: tuple[str, str], pairs: Sequence[tuple[RunRecord, RunRecord]]) -> Confirmed:
    """Judge one case by its rounds: pairs of a run of the base and one of the head."""
    cell, case = key
    failures = {(bool(one.failure), bool(other.failure)) for one, other in pairs}
    if failures != {(False, False)}:
        return Confirmed(cell, case, *_of_failures(pairs, failures))
    facts = changed_facts(*pairs[-1])
    if all(any(f.worse for f in changed_facts(*pair)) for pair in pairs):
        text = "; ".join(fact.text for fact in facts if fact.worse)
        return Confirmed(cell, case, "degraded", len(pairs), text)
    evidence = {metric: found for metric in WEIGHED if (found := weigh(pairs, metric)) is not None}
    text = "; ".join(map(str, evidence.values()))
    return Confirmed(cell, case, verdict_of(evidence), len(pairs), text)


def _of_failures(
    pairs: Sequence[tuple[RunRecord, RunRecord]], failures: Collection[tuple[bool, bool]]
) -> tuple[Kind, int, str]:
    one, other = pairs[-1]
    failed = other.failure or one.failure
    text = "" if failed is None else f"{failed.failure_class}: {short_message(failed.message)}"
    verdicts: dict[tuple[bool, bool], Kind] = {(False, True): "fails", (True, False): "fixed"}
    always = next(iter(failures)) if len(failures) == 1 else (True, True)
    if always == (True, True):
        text = f"fails at both commits, or not always: {text}"
    return verdicts.get(always, "inconclusive"), len(pairs), text


def suspects_on(
    machine: str, verdict: Verdict, *, every: bool = False
) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the cases that got worse on a machine, or may have, by Python and release.

    Args:
        machine: Its name.
        verdict: From the records.
        every: Whether all cases are suspects.
    """
    mine = (one for one in verdict.findings if _is_measured_here(one.case, machine))
    suspects = [
        one.case
        for one in mine
        if every or (one.kind in REGRESSIONS and not one.is_expected) or _may_be_worse(one)
    ]
    cells = grouped_by(suspects, lambda case: (case.python, case.torch))
    return {cell: tuple(case.name for case in cases) for cell, cases in cells.items()}


def _is_measured_here(case: CaseInCell, machine: str) -> bool:
    """Return whether measuring again is about a case: of the GPU, or without a lock, it is not."""
    return (case.machine, case.device, case.existing) == (machine, "cpu", False)


def _may_be_worse(finding: Comparison) -> bool:
    """Return whether a change for the worse was seen that noise alone could have made."""
    if finding.kind in BETTER or finding.change is None:
        return False
    if finding.change.kind == "slower":  # by a disturbed run, so that it is no regression yet
        return True
    changes = finding.change.changes
    limits = DOUBTFUL_IN_SESSION if finding.change.in_session else DOUBTFUL
    return any(
        changes[metric].ratio ** WEIGHED[metric] >= limit
        for metric, limit in limits.items()
        if metric in changes
    )


def confirmed_only(verdict: Verdict, machine: str, found: Iterable[Confirmed]) -> Verdict:
    """Return a verdict without what new runs on the machine did not confirm.

    What they could not measure stays as it was.
    """
    outcomes = {(one.cell, one.case): one for one in found}
    findings = []
    for finding in verdict.findings:
        outcome = outcomes.get((finding.case.cell, finding.case.name))
        if not _is_measured_here(finding.case, machine) or outcome is None:
            findings.append(finding)
            continue
        text = f"{said_of(outcome)}: {outcome.text}; before: {finding.reason}"
        # A run that failed clears nobody.
        kind = outcome.verdict if outcome.rounds else finding.kind
        findings.append(replace(finding, kind=kind, reason=text))
    findings.sort(key=lambda one: KINDS.index(one.kind))
    return replace(verdict, findings=tuple(findings))


def said_of(one: Confirmed) -> str:
    """Return e.g. ``confirmed slower in 3 rounds``."""
    word = {"unchanged": "not confirmed", "inconclusive": "inconclusive"}.get(
        one.verdict, f"confirmed {one.verdict}"
    )
    return f"{word} in {counted(one.rounds, 'round')}"
