"""Find the stage of the compiler, and the setting, behind what a case shows (``ivhl blame``).

Everything runs in cells that are made from their locks, without records: what is asked here is
which part of PyTorch makes the symptom, and the answer is a report with a script that shows it.
What a trial wrote is kept as soon as it has ended: a command that was killed goes on.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import tempfile
import time
import tomllib
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from itertools import chain
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from ivhl.bench.experiment.estimate import environments
from ivhl.bench.experiment.journal import digest_of, drop_torn_line
from ivhl.bench.trial import job_of, prepare
from ivhl.errors import IvhlError, SpecError
from ivhl.git import clone_at
from ivhl.instrument import INSTRUMENT
from ivhl.matrix.locks import lock_state
from ivhl.matrix.project import load_project
from ivhl.measure.alone import only_run_here, only_user_of_gpu
from ivhl.measure.launcher import read_journal
from ivhl.measure.process import ProcessTree, run_tree
from ivhl.tracker.causes.blame import (
    MET_DEADLINE,
    SLOW_STAGES,
    STAGES,
    Tried,
    code_differences,
    first_stage,
    kernel_hunks,
    slower_stage,
    stage_factors,
    tried_of,
)
from ivhl.tracker.wording import counted, shortened
from ivhl.tracker.wording import seconds as in_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rich.console import Console

    from ivhl.matrix.spec import CellSpec
    from ivhl.measure.effort import Effort
    from ivhl.tracker.causes.blame import Stage, StageFactor, TrialOutcome
    from ivhl.workload import Case

_LISTED: Final = tomllib.loads((files("ivhl.bench") / "settings.toml").read_text(encoding="utf-8"))


def _settings_in(table: Mapping[str, Mapping[str, Any]]) -> tuple[tuple[str, str, Any], ...]:
    """Return module, field and value of each setting."""
    return tuple((module, *one) for module, fields in table.items() for one in fields.items())


# Settings that have cured defects of releases, by the first stage to which each belongs.
SETTINGS: Final[dict[Stage, tuple[tuple[str, str, Any], ...]]] = {
    stage: _settings_in(_LISTED[stage]) for stage in STAGES
}
# With these, every compilation for a CPU fails: "CUDA not available".
_OF_GPUS: Final = ("functionalize_rng_ops",)
# A CPU takes these settings; so does a script, since nobody says where a script runs.
SETTINGS_OF_CPUS: Final = {
    stage: tuple(one for one in listed if one[1] not in _OF_GPUS)
    for stage, listed in SETTINGS.items()
}
# A trial of what is slower without asking for one graph.
WITHOUT_WHOLE: Final = "fullgraph=False"
# Trials of one case: what importing and the first compile take is paid once.
_START_S: Final = 300.0
# How often it is looked whether one has ended.
_LOOK_S: Final = 0.5
# Each trial that has ended, written by ``ivhl.measure.stages``.
_ENDED: Final = "ended.jsonl"
# Runs, each in a process of its own, that tell a flaky case from a steady one; and how many are
# tried before it is said that a case does not show the symptom.
RUNS: Final = 3
MOST_RUNS: Final = 6
# Runs of each cell, in turns, of a slowdown: from the fewest on, until the slower stage is sure.
FEWEST_ROUNDS: Final = 3
MOST_ROUNDS: Final = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Suspicion:
    """What is asked.

    Attributes:
        case: The case.
        bad: Cell that shows the symptom.
        good: Cell that does not; ``None`` if no release is known.
        symptom: A failure class, ``graph-break`` or ``slow``.
        commit: Full hash of the project's commit.
        effort: How to run the case.
        folder: Where report and script go.
        force: Whether to forget what earlier trials showed.
    """

    case: Case
    bad: CellSpec
    good: CellSpec | None
    symptom: str
    commit: str
    effort: Effort
    folder: Path
    force: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Blamed:
    """What was found.

    Attributes:
        stage: First stage that shows the symptom; ``None`` if that cannot be said.
        is_sure: Whether the noise of its trials cannot have named another.
        rate: In how many runs the case showed it, and how many there were.
        stages: What each stage showed in the bad cell.
        good: Likewise in the good one: all stages of a slowdown, else the last.
        factors: Of a slowdown, by how much each stage became slower.
        settings: What each setting changed.
        bisected: What PyTorch's own bisector says; empty where the release has none.
        differences: How the code of both cells differs.
        kernels: Lines of the whole difference of the generated kernels.
        script: What is known of the script.
        shown: By cell, what the script printed there, and whether it showed the symptom.
        undecided: What did not end, a sentence each.
    """

    stage: Stage | None
    is_sure: bool = True
    rate: tuple[int, int]
    stages: dict[str, Tried]
    good: dict[str, Tried]
    factors: dict[Stage, StageFactor] = field(default_factory=dict)
    settings: dict[str, Tried] = field(default_factory=dict)
    bisected: dict[str, Any] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)
    script: dict[str, Any] = field(default_factory=dict)
    shown: dict[str, tuple[bool, str]] = field(default_factory=dict)
    undecided: list[str] = field(default_factory=list)

    @property
    def flaky(self) -> bool:
        """Whether some runs of the same code show the symptom and others do not."""
        return 0 < self.rate[0] < self.rate[1]

    @property
    def cures(self) -> list[str]:
        """The settings with which the case works."""
        return [name for name, one in self.settings.items() if one.outcome == "works"]


def blame(root: Path, asked: Suspicion, console: Console) -> Blamed:
    """Run a case stage by stage and setting by setting, and write the script that shows it.

    Raises:
        SpecError: If the case does not show the symptom in the bad cell.
        IvhlError: If a cell cannot be made, or the project not be built.
    """
    asked.folder.mkdir(parents=True, exist_ok=True)
    cells = [cell.id for cell in (asked.bad, asked.good) if cell is not None]
    console.print(f"runs in {' and '.join(cells)}: {environments(len(cells))}")
    with (
        only_run_here(root),
        only_user_of_gpu(asked.effort.device, console.print),
        tempfile.TemporaryDirectory(prefix="blame-", dir=root / ".asv") as name,
    ):
        here = Path(name)
        for left in root.joinpath(".asv").glob("blame-*"):
            if left != here:  # of a run that was killed: no other runs here now
                shutil.rmtree(left, ignore_errors=True)
        tree = clone_at(root, asked.commit, here / "clone")
        runner = _Runner(root, asked, here, tree, console)
        return _blame(asked, runner, console)


def _see_stages(asked: Suspicion, runner: _Runner) -> tuple[Blamed, float]:
    """Run the stages, before any setting is tried.

    Returns:
        What they showed, and the graph breaks, or seconds, from which a trial shows the symptom.

    Raises:
        SpecError: If the case does not show the symptom, or fails in the good cell, too.
    """
    if asked.symptom == "slow":
        good, bad, factors = _timed_stages(asked, runner)
        stage, is_sure = slower_stage(factors)
        one, other = (side["inductor"].compiled_s or 0.0 for side in (good, bad))
        seen = Blamed(
            stage=stage, is_sure=is_sure, rate=(1, 1), stages=bad, good=good, factors=factors
        )
        return seen, (one * other) ** 0.5
    stages = [_stage(stage, read=stage == "inductor") for stage in STAGES]
    good = {} if asked.good is None else runner.run(asked.good, stages[-1:])
    above = 0.0
    if asked.good is not None:
        breaks_alone = asked.symptom == "graph-break" and good["inductor"].outcome != "other"
        if not breaks_alone and good["inductor"].outcome != "works":
            raise _fails_too(asked, asked.good, good["inductor"])
        above = (good["inductor"].breaks or 0) if breaks_alone else 0.0
    bad = runner.run(asked.bad, stages, above=above)
    rate = _rate(asked, runner, bad["inductor"], above)
    if not rate[0]:
        beside = f"; {good['inductor'].text} in {asked.good.id}" if asked.good and above else ""
        raise SpecError(
            f"{asked.case.name} does not show {asked.symptom} in {asked.bad.id} in {rate[1]} "
            f"runs: {bad['inductor'].text}{beside}",
            hint="ivhl repeat measures the record again; --torch names another release",
        )
    return Blamed(stage=first_stage(bad), rate=rate, stages=bad, good=good), above


def _blame(asked: Suspicion, runner: _Runner, console: Console) -> Blamed:
    slow = asked.symptom == "slow"
    seen, above = _see_stages(asked, runner)
    stage = seen.stage
    if seen.flaky:
        console.print(f"flaky: {asked.symptom} in {seen.rate[0]} of {seen.rate[1]} runs")
        # One run without it clears neither an earlier stage nor a setting, so none is tried.
        shows = (stage for stage in STAGES if seen.stages[stage].outcome == "shows")
        script = {"why": "a flaky symptom cannot be reduced by single runs"}
        return replace(seen, stage=next(shows, None), script=script)
    words = SLOW_STAGES if slow else STAGES
    last_word = words[stage] if stage else "cannot be said: an earlier stage fails in another way"
    perhaps = "" if seen.is_sure else "perhaps "
    console.print(f"stage: {perhaps}{stage or 'unknown'} ({last_word})")
    more = [*_settings(asked, stage)]
    if not slow and asked.symptom != "graph-break":
        backend = stage or "inductor"
        more += [
            {"name": "bisect", "task": "bisect", "symptom": asked.symptom},
            {"name": "reduce", "task": "reduce", "symptom": asked.symptom, "backend": backend},
        ]
    cost = "" if runner.trial_s is None else f", about {in_words(runner.trial_s)} each and more"
    console.print(f"{asked.bad.id}: {counted(len(more), 'further trial')}{cost}")
    found = (
        _cures(asked, runner, more, seen.stages["inductor"], above)
        if slow
        else runner.run(asked.bad, more, above=above)
    )
    bisected = found.pop("bisect", None)
    reduced = found.pop("reduce", None)
    undecided = _undecided(bisected, reduced, asked.effort.deadline_s)
    script = dict(reduced.script) if reduced else {}
    shown = _show_script(asked, runner, script) if script.get("script") else {}
    good, bad = seen.good.get("inductor"), seen.stages["inductor"]
    return replace(
        seen,
        settings=found,
        bisected=dict(bisected.bisected) if bisected else {},
        differences=code_differences(good, bad, timed=slow) if good is not None else [],
        kernels=list(chain(*kernel_hunks(good, bad))) if good is not None else [],
        script=script,
        shown=shown,
        undecided=undecided,
    )


def _show_script(
    asked: Suspicion, runner: _Runner, script: Mapping[str, Any]
) -> dict[str, tuple[bool, str]]:
    """Put the script into the folder of the report, and return what it shows in each cell."""
    shutil.copy2(script["script"], asked.folder / "repro.py")
    inputs = Path(script["script"]).with_name("inputs.pt")
    if script.get("inputs") == f"in {inputs.name}":
        shutil.copy2(inputs, asked.folder)
    return {
        cell.id: runner.show(cell, asked.folder / "repro.py")
        for cell in filter(None, (asked.bad, asked.good))
    }


def _undecided(bisected: Tried | None, reduced: Tried | None, deadline_s: float) -> list[str]:
    """Return a sentence for each trial that told nothing, with what to do."""
    return [
        f"{what}: {one.text}"
        + (
            f" of {deadline_s:.0f} s; a longer --deadline runs it again"
            if one.text == MET_DEADLINE
            else ""
        )
        for what, one in (("PyTorch's bisector", bisected), ("its minifier", reduced))
        if one is not None and one.outcome in ("other", "not here")
    ]


def _fails_too(asked: Suspicion, cell: CellSpec, seen: Tried) -> SpecError:
    """Return the error of a cell that was to work: no difference to it says anything."""
    return SpecError(
        f"{asked.case.name} does not work in {cell.id} either, where it was to be without "
        f"{asked.symptom}: {seen.text}",
        hint="--good: a release in which it works (ivhl compat); --force runs again what failed by "
        "chance",
    )


def _timed_stages(
    asked: Suspicion, runner: _Runner
) -> tuple[dict[str, Tried], dict[str, Tried], dict[Stage, StageFactor]]:
    """Time every stage in both cells in turns, until the slower stage is sure or the runs are spent.

    Raises:
        SpecError: If the compiled code is not slower, or fails in a cell.
    """
    assert asked.good is not None  # noqa: S101  (a slowdown has two cells)
    runs: tuple[list[dict[str, Tried]], list[dict[str, Tried]]] = [], []
    factors: dict[Stage, StageFactor] = {}
    for number in range(1, MOST_ROUNDS + 1):
        stages = [_stage(stage, read=stage == "inductor" and number == 1) for stage in STAGES]
        if number > 1:
            stages = [one | {"name": f"{one['name']}, run {number}"} for one in stages]
        for cell, done in zip((asked.good, asked.bad), runs, strict=True):
            found = runner.run(cell, stages)
            done.append({name.partition(",")[0]: one for name, one in found.items()})
            if done[-1]["inductor"].outcome in ("other", "not here"):
                raise SpecError(
                    f"{asked.case.name} fails in {cell.id}, so nothing of it can be slower: "
                    f"{done[-1]['inductor'].text}",
                    hint="--torch and --good: two releases in which it works (ivhl compat)",
                )
        if number >= FEWEST_ROUNDS:
            factors = stage_factors(*runs)
            if slower_stage(factors)[1]:
                break
    whole = factors.get("inductor")
    if whole is None or whole.low <= 1:
        seen = f"{whole} in {counted(len(runs[0]), 'run')}" if whole else "not timed"
        raise SpecError(
            f"{asked.case.name} does not show that {asked.bad.id} is slower than {asked.good.id}: "
            f"compiled code {seen}",
            hint="ivhl course CASE shows the releases at which it moved; name them with --torch "
            "and --good",
        )
    good, bad = (_usual(done) for done in runs)
    return good, bad, factors


def _usual(runs: Sequence[Mapping[str, Tried]]) -> dict[str, Tried]:
    """Return the trials of the first run, with the seconds that are usual in all of them."""
    eager_s = median(one.eager_s for run in runs for one in run.values() if one.eager_s)
    found = {}
    for stage, one in runs[0].items():
        seconds = [_at_speed(run[stage], eager_s) for run in runs if run[stage].compiled_s]
        if seconds:
            one = replace(one, eager_s=eager_s, compiled_s=median(seconds))  # noqa: PLW2901
        found[stage] = one
    return found


def _at_speed(one: Tried, eager_s: float) -> float:
    """Return compiled seconds on a machine on which eager code takes so long as in other trials."""
    return (one.compiled_s or 0.0) * (eager_s / one.eager_s if one.eager_s else 1.0)


def _cures(
    asked: Suspicion, runner: _Runner, trials: Sequence[dict[str, Any]], bad: Tried, above: float
) -> dict[str, Tried]:
    """Run a slow case with each setting; what may be a cure again, since one run may be luck.

    Args:
        asked: What is asked.
        runner: Of the trials.
        trials: A setting each.
        bad: Inductor's code without any.
        above: Seconds from which it is slow.
    """
    assert bad.compiled_s and bad.eager_s  # noqa: S101, PT018  (it was timed)
    near = (above * bad.compiled_s) ** 0.5
    seconds: dict[str, list[float]] = {}
    found: dict[str, Tried] = {}
    left = list(trials)
    for number in range(1, RUNS + 1):
        names = [str(one["name"]) for one in left]
        again = [
            one if number == 1 else one | {"name": f"{one['name']}, run {number}"} for one in left
        ]
        for name, one in zip(names, runner.run(asked.bad, again).values(), strict=True):
            found.setdefault(name, one)
            if one.compiled_s and one.outcome == "works":
                seconds.setdefault(name, []).append(_at_speed(one, bad.eager_s))
        left = [one for one in left if median(seconds.get(one["name"], [math.inf])) < near]
        if not left:
            break
    for name, several in seconds.items():
        middle = median(several)
        text = f"{in_words(middle)}, the median of {counted(len(several), 'run')}"
        outcome: TrialOutcome = "works" if middle <= above else "shows"
        found[name] = replace(found[name], outcome=outcome, text=text, compiled_s=middle)
    return found


def _rate(asked: Suspicion, runner: _Runner, first: Tried, above: float) -> tuple[int, int]:
    """Return in how many runs the case shows the symptom, and of how many.

    Each further run is in a process of its own, since what one process drew, its forks have.

    Raises:
        SpecError: If a run fails in another way: whether it would show the symptom is not known.
    """
    seen = [first]
    while len(seen) < (RUNS if any(one.outcome == "shows" for one in seen) else MOST_RUNS):
        if seen[-1].outcome == "other":
            break
        name = f"inductor, run {len(seen) + 1}"
        trial = {"name": name, "backend": "inductor"}
        seen.append(runner.run(asked.bad, [trial], above=above)[name])
    if seen[-1].outcome == "other":
        raise SpecError(
            f"{asked.case.name} fails otherwise than with {asked.symptom} in {asked.bad.id}, in run "
            f"{len(seen)}: {seen[-1].text}",
            hint="--for names another failure class; --force runs again what failed by chance",
        )
    return sum(one.outcome == "shows" for one in seen), len(seen)


def _stage(stage: Stage, *, read: bool) -> dict[str, Any]:
    return {"name": stage, "backend": stage, "read": read}


def _settings(asked: Suspicion, stage: Stage | None) -> Iterator[dict[str, Any]]:
    """Yield a trial for each setting that can matter up to the stage."""
    dynamic = asked.case.variant.dynamic
    yield {"name": f"dynamic={not dynamic}", "dynamic": not dynamic}
    if asked.symptom == "slow" and asked.case.variant.fullgraph:
        # Since 2.11.0 it costs microseconds in each call.
        yield {"name": WITHOUT_WHOLE, "fullgraph": False}
    # Two threads share the work of slow code, too, which cures nothing.
    alone = asked.effort.device == "cpu" and asked.effort.threads == 1
    if alone and asked.symptom != "slow":
        yield {"name": "threads=2", "threads": 2}
    wanted = list(STAGES)
    if stage is not None:
        # A stage builds on those before it: what Dynamo is told also changes what AOTAutograd gets.
        # Of a slowdown, those before it did not lose the time, and each trial is several runs.
        last = wanted.index(stage)
        wanted = wanted[last if asked.symptom == "slow" else 0 : last + 1]
    if asked.symptom == "graph-break":
        wanted = ["eager"]
    for one in wanted:
        listed = (SETTINGS_OF_CPUS if asked.effort.device == "cpu" else SETTINGS)[one]
        if asked.effort.device != "cpu" and one == "inductor":
            listed += _settings_in(_LISTED["inductor_on_gpu"])
        for module, key, value in listed:
            name = f"{module}.{key}={value!r}".removeprefix("torch.")
            yield {"name": name, "module": module, "field": key, "value": value}


class _Runner:
    """Makes cells, installs the project's commit beside each, and runs trials in them."""

    def __init__(
        self, root: Path, asked: Suspicion, here: Path, tree: Path, console: Console
    ) -> None:
        self._root, self._asked, self._here, self._tree = root, asked, here, tree
        self._console = console
        self._made: dict[str, tuple[Path, dict[str, str]]] = {}
        self._forgotten: set[Path] = set()
        self.trial_s: float | None = None  # seconds of the last trial

    def run(
        self, cell: CellSpec, trials: Sequence[dict[str, Any]], *, above: float = 0.0
    ) -> dict[str, Tried]:
        """Return what each trial showed, in their order; run those that no earlier command ran."""
        kept = self._kept(cell)
        ended = _ended(kept / _ENDED, self._asked.effort.deadline_s)
        keys = {_digest(one): one for one in trials}
        left = {key: one for key, one in keys.items() if key not in ended}
        if len(left) < len(keys):
            gone_on = counted(len(keys) - len(left), "trial")
            self._console.print(f"  {cell.id}: goes on after {gone_on}")
        if left:
            _clear(kept, left)
            self._run(cell, left, kept)
            ended = _ended(kept / _ENDED, self._asked.effort.deadline_s)
        found = {}
        for key, one in keys.items():
            _, findings = read_journal(kept / f"{key}.jsonl") if key in ended else ("", {})
            status = ended.get(key, (1, 0.0))
            self.trial_s = status[1]
            name = str(one["name"])
            tried = tried_of(findings, status[0], self._asked.symptom, above=above)
            found[name] = tried
            ended_how = f"{tried.outcome}; {shortened(tried.text, 160)}"
            if tried.text == tried.outcome:
                ended_how = tried.text
            if one.get("task") is not None and tried.outcome in ("works", "shows"):
                ended_how = "done"
            self._console.print(f"  {cell.id}, {name}: {ended_how}  ({in_words(status[1])})")
        return found

    def _run(self, cell: CellSpec, trials: Mapping[str, dict[str, Any]], kept: Path) -> None:
        """Run trials by their keys; each leaves its journal, and a line in the list of the ended."""
        python, environment = self._ready(cell)
        listed = self._here / "trials.json"
        listed.write_text(json.dumps([one | {"name": key} for key, one in trials.items()]))
        asked = self._asked
        job = job_of(
            self._root, asked.case, asked.effort, self._here / cell.id,
            journal=kept, stage=self._job_stage,
        )  # fmt: skip
        before = _ended(kept / _ENDED, asked.effort.deadline_s)
        command = [str(python), "-m", "ivhl.measure.stages"]
        told = self._here / "trials.err"
        limit = time.monotonic() + _START_S + asked.effort.deadline_s * len(trials)
        with (
            self._console.status("") as status,
            told.open("w+", encoding="utf-8") as err,
            ProcessTree(
                [*command, json.dumps(asdict(job)), str(listed)],
                cwd=self._here,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=err,
            ) as tree,
        ):
            while tree.wait(_LOOK_S) is None and time.monotonic() < limit:
                n = len(trials.keys() & _ended(kept / _ENDED, asked.effort.deadline_s).keys())
                status.update(f"{cell.id}: {n} of {counted(len(trials), 'trial')}")
        if _ended(kept / _ENDED, asked.effort.deadline_s) == before:
            raise IvhlError(
                f"{cell.id}: no trial was run: "
                f"{told.read_text(encoding='utf-8', errors='replace').strip()[-600:]}",
                hint="ivhl try shows more of a case in a cell",
            )

    @property
    def _job_stage(self) -> str:
        return "time" if self._asked.symptom == "slow" else "compile"

    def _kept(self, cell: CellSpec) -> Path:
        """Return the folder in which the journals of this case in a cell are kept."""
        asked = self._asked
        about = {
            "case": asked.case.name,
            "benchmarks": load_project(self._root).digest_of_benchmarks,
            "commit": asked.commit,
            "cell": cell.id,
            "lock": lock_state(self._root, cell).sha256,
            "device": asked.effort.device,
            "threads": asked.effort.threads,
            "stage": self._job_stage,
            "instrument": INSTRUMENT,
        }
        folder = self._root / ".asv" / "blame" / "trials" / _digest(about)
        if asked.force and folder not in self._forgotten:
            shutil.rmtree(folder, ignore_errors=True)
        self._forgotten.add(folder)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def show(self, cell: CellSpec, script: Path) -> tuple[bool, str]:
        """Run a script in a cell; return whether it shows the symptom, and what it printed."""
        python, environment = self._ready(cell)
        environment = {k: v for k, v in environment.items() if k != "PYTHONPATH"}
        try:
            done = run_tree(
                [str(python), "-W", "ignore", str(script)],
                cwd=script.parent,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                timeout=self._asked.effort.deadline_s,
            )
        except subprocess.TimeoutExpired:
            return False, f"did not end within {self._asked.effort.deadline_s:.0f} s"
        printed = (done.stdout.strip() or done.stderr.strip()).splitlines()
        return done.returncode == 1, shortened(" ".join(printed), 300)

    def _ready(self, cell: CellSpec) -> tuple[Path, dict[str, str]]:
        """Return the Python of a cell, and the environment in which to run there."""
        if cell.id not in self._made:
            (beside := self._here / cell.id).mkdir()
            self._made[cell.id] = prepare(
                self._root, cell, tree=self._tree, commit=self._asked.commit,
                effort=self._asked.effort, here=beside, console=self._console,
            )  # fmt: skip
        python, environment = self._made[cell.id]
        # Code that was kept would be neither printed nor made with a setting or a pass less.
        return python, environment | {
            "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
            "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
            "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "0",
        }


def _digest(about: Mapping[str, Any]) -> str:
    return digest_of([json.dumps(about, sort_keys=True)])


def _clear(kept: Path, left: Iterable[str]) -> None:
    """Remove what trials that were killed have left: all files here are appended to."""
    for key in left:
        (kept / f"{key}.jsonl").unlink(missing_ok=True)
    drop_torn_line(kept / _ENDED)


def _ended(path: Path, deadline_s: float) -> dict[str, tuple[int | None, float]]:
    """Return the exit status and the seconds of each trial that was run.

    Not of one that met a shorter deadline than today's, and not of a line that a kill cut off.
    """
    found: dict[str, tuple[int | None, float]] = {}
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    for line in lines:
        with suppress(ValueError):
            one = json.loads(line)
            found[one["name"]] = (one["status"], one["seconds"])
    return {
        name: (status, took)
        for name, (status, took) in found.items()
        if status is not None or took >= deadline_s
    }
