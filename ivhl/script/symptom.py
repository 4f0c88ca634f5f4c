"""What a script shows with the compiler and not without it, and in which releases."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from packaging.version import Version

from ivhl.errors import ResultsError
from ivhl.measure.failures import COMPILER_ERROR, SUPPORT_GATE
from ivhl.script.outcome import (
    CRASHES,
    ScriptOutcome,
    are_alike,
    differing_numbers,
    ending,
    failure_class,
    noisy_numbers,
)
from ivhl.tracker.support.messages import carried, cause_of, dynamo_id, has_words
from ivhl.tracker.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ivhl.matrix.spec import CellSpec
    from ivhl.script.matrix import Wanted

    RunIn = Callable[[CellSpec, Mapping[str, Any] | None], ScriptOutcome]
    Run = Callable[[Mapping[str, Any] | None], ScriptOutcome]
    Setting = tuple[str, str, Any]

# Dynamo compiles nothing.
OFF: Final = {"off": True}
# What is raised there, but in the functions with which a script compares, is the compiler's.
_TORCHS: Final = re.compile(r"/torch/(?!testing/)")
# What PyTorch puts before the message of another exception; and how alike reworded messages are.
_WRAPPED: Final = re.compile(r"^(?:builtins\.)?(?P<type>[A-Z]\w*(?:Error|Exception))(?:: |:?$)")
_ALIKE: Final = 0.6
# A name in a message: in quotes, with a point, or with an underscore.
_NAME: Final = re.compile(r"(?<=')[\w.]+(?=')|\w+(?:\.\w+)+|\w*[a-zA-Z]_\w+")
_NEGLIGIBLE: Final = 0.01
_LIKE: Final = "ends the same way with and without the compiler"
Count = Literal["", "graph_breaks", "recompiles"]
# ``other``: it ends in another way. ``eager``: it fails without the compiler, too.
SymptomWord = Literal["shows", "right", "other", "eager", "absent"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Symptom:
    """What a script shows with the compiler and not without it.

    Attributes:
        seen: How it ends in the cell that shows it.
        without: How it ends there without the compiler.
        noisy: Places of numbers that vary between two runs.
        expected: What counts as good, in place of ``without``; ``None`` if nothing is said.
        count: What is to be 0, in place of both: ``graph_breaks`` or ``recompiles``.
    """

    seen: ScriptOutcome
    without: ScriptOutcome
    noisy: frozenset[int] = frozenset()
    expected: Wanted | None = None
    count: Count = ""

    def of(
        self, outcome: ScriptOutcome, releases: Sequence[str] = ()
    ) -> Literal["shows", "right", "other"]:
        """Return whether an outcome shows it, is right, or ends in another way.

        Wrong values need not be the same: memory that nobody wrote holds others in each run.

        Args:
            outcome: Of another run, perhaps in another cell.
            releases: The release of ``seen`` and that of the outcome.
        """
        if self.count:
            number: int | None = getattr(outcome, self.count)
            compiles = outcome.graphs != 0 or self.seen.graphs == 0
            if number is None or outcome.ending != self.seen.ending or not compiles:
                return "other"
            # One recompile is no sign of what compiles until the limit.
            shows = 2 * number >= (getattr(self.seen, self.count) or 1)
            return "right" if number == 0 else "shows" if shows else "other"
        if self.expected is not None:
            is_right = self.expected.is_met(outcome)
        else:
            is_right = are_alike(self.without, outcome, self.noisy, releases)
        if is_right or self._is_rounding(outcome, releases):
            return "right"
        # Wrong values without a graph are not the compiler's, such as the words of a caught refusal.
        is_unlike = self.is_wrong and outcome.graphs == 0 and bool(self.seen.graphs)
        if _manner(outcome) != _manner(self.seen) or is_unlike:
            return "other"
        has_message = _manner(outcome) in ("raises", outcome.ending)
        return "shows" if not has_message or _are_same(self.seen, outcome) else "other"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the script has what is counted."""
        of_counts = {"graph_breaks": self.seen.reasons, "recompiles": self.seen.failed_guards}
        return of_counts.get(self.count, ())

    @property
    def is_wrong(self) -> bool:
        """Whether the script runs to its end, or to its own assertion, with other values."""
        return not self.count and _manner(self.seen) == "is wrong"

    def _is_rounding(self, outcome: ScriptOutcome, releases: Sequence[str]) -> bool:
        """Return whether an outcome is off by a hundredth of what the symptom is, or less."""
        seen = differing_numbers(self.without, self.seen, releases)
        found = differing_numbers(self.without, outcome, releases)
        if seen is None or found is None or self.expected is not None:
            return False
        return all(
            place in self.noisy
            or (place in seen and abs(x - right) <= _NEGLIGIBLE * abs(seen[place][1] - right))
            for place, (right, x) in found.items()
        )


def _manner(outcome: ScriptOutcome) -> str:
    """Return in which way an outcome is bad: it crashes, raises, is wrong, or ends by a status.

    An assertion of the script itself finds a wrong value.
    """
    if outcome.ending in CRASHES:
        return "crashes"
    if SUPPORT_GATE.search(outcome.message):
        return "refuses"
    is_own = not outcome.frames or not _TORCHS.search(outcome.frames[-1][0])
    is_own = is_own and not outcome.inner[0].startswith("torch.")
    if outcome.exception == "AssertionError" and is_own:
        return "is wrong"
    if outcome.exception:
        return "raises"
    return "is wrong" if outcome.ending == "exit 0" else outcome.ending


def _are_same(one: ScriptOutcome, other: ScriptOutcome) -> bool:
    """Return whether two exceptions have one innermost cause, also in another release's words."""
    a, b = _innermost(one), _innermost(other)
    if a.type and b.type and a.type != b.type:
        return False
    if not (has_words(a.text) and has_words(b.text)):
        return a.function == b.function and (a.text == b.text or a.around == b.around != "")
    if a.text == b.text or (a.is_inside != b.is_inside and a.around == b.around != ""):
        return True
    numbers = {dynamo_id(outcome.message) for outcome in (one, other)} - {""}
    classes = {failure_class(outcome) for outcome in (one, other)}
    is_one_class = a.type == b.type != "" or len(classes) == 1
    names = set(_NAME.findall(a.text)), set(_NAME.findall(b.text))
    is_one_subject = not all(names) or bool(names[0] & names[1])
    alike = SequenceMatcher(None, a.text, b.text).ratio() >= _ALIKE
    return len(numbers) < 2 and is_one_class and is_one_subject and alike  # noqa: PLR2004  (both)


class _Cause(NamedTuple):
    """The innermost exception of an outcome.

    Attributes:
        type: Without module; empty where only a class of PyTorch's is known.
        text: Its message, without what varies.
        around: The first line of the message in which it is.
        is_inside: Whether another exception was raised from it.
        function: In which the outcome was raised.
    """

    type: str
    text: str
    around: str
    is_inside: bool
    function: str


def _innermost(outcome: ScriptOutcome) -> _Cause:
    exception, message = outcome.innermost
    kind, message = carried(message)
    is_inside = bool(outcome.inner[0] or kind)
    found = COMPILER_ERROR.search(message)
    text = cause_of(found["text"] if found else message)
    if wrapped := _WRAPPED.match(text):
        kind, text = wrapped["type"], text[wrapped.end() :]
    elif not kind and not exception.startswith("torch."):
        kind = exception.rpartition(".")[2]
    around = _WRAPPED.sub("", cause_of(outcome.first_line))
    return _Cause(kind, text, around, is_inside, outcome.frames[-1][2] if outcome.frames else "")


@dataclass(kw_only=True, slots=True)
class Onset:
    """Where the releases of one Python begin to show a symptom, and where they end.

    Attributes:
        symptom: What is shown.
        cell: The newest cell that shows it.
        outcomes: Of each cell that was run, and what it shows; by release.
        first: The oldest release that shows it, as far as all between it and ``cell`` do.
        before: The cell before ``first``, if there is any.
        right: Where ``before`` ends in another way, the newest cell that is right before it.
        fixed: The cell after ``cell``, if there is any.
    """

    symptom: Symptom
    cell: CellSpec
    outcomes: dict[CellSpec, tuple[ScriptOutcome, SymptomWord]] = field(default_factory=dict)
    first: CellSpec
    before: CellSpec | None = None
    right: CellSpec | None = None
    fixed: CellSpec | None = None

    def cells(self, word: SymptomWord) -> list[CellSpec]:
        """Return the cells that show something, oldest first."""
        found = (cell for cell, (_, shown) in self.outcomes.items() if shown == word)
        return sorted(found, key=lambda cell: Version(cell.torch))

    @property
    def between(self) -> list[CellSpec]:
        """The cells after the newest that is right and before the first that shows it."""
        if self.right is None:
            return []
        low, high = Version(self.right.torch), Version(self.first.torch)
        return [cell for cell in self.cells("other") if low < Version(cell.torch) < high]


def find_symptom(
    run: RunIn, cells: Sequence[CellSpec], expected: Wanted | None = None, count: Count = ""
) -> Onset:
    """Run a script in cells, newest first, until one shows a symptom.

    Args:
        run: Runs it in a cell, with a change of the compiler; two threads call it.
        cells: Of one Python, oldest first.
        expected: What counts as good; ``None`` to compare with what eager code does.
        count: What is sought in place of a failure.

    Raises:
        ResultsError: If no cell shows any, a run in one cell is unlike another, or none exists.
    """
    outcomes: dict[CellSpec, tuple[ScriptOutcome, SymptomWord]] = {}
    fixed: CellSpec | None = None
    right: ScriptOutcome | None = None
    for cell in reversed(cells):
        with ThreadPoolExecutor(1) as pool:
            # A later release that is right tells how eager code ends, perhaps here, too.
            beside = None if count or right else pool.submit(run, cell, OFF)
            seen = run(cell, None)
        if not seen.has_run:
            outcomes[cell] = seen, "absent"
            continue
        releases = tuple({cell.torch, fixed.torch if fixed else cell.torch})
        if not count and right is not None and are_alike(right, seen, (), releases):
            outcomes[cell], fixed = (seen, "right"), cell
            continue
        if fixed is not None and SUPPORT_GATE.search(seen.message):
            outcomes[cell] = seen, "other"  # later releases support this Python
            continue
        without = beside.result() if beside else seen if count else run(cell, OFF)
        symptom = Symptom(seen=seen, without=without, expected=expected, count=count)
        if symptom.of(seen) != "right":
            symptom = _without_noise(symptom, cell, run(cell, None))
        if symptom.of(seen) == "shows":
            outcomes[cell] = seen, "shows"
            return Onset(symptom=symptom, cell=cell, outcomes=outcomes, first=cell, fixed=fixed)
        if not (expected or count) and seen.ending != "exit 0":
            if fixed is None:
                raise _fails_itself(cell, without)
            outcomes[cell] = seen, "eager"  # e.g. for want of a function that later releases have
            continue
        outcomes[cell], fixed, right = (seen, "right"), cell, without
    raise _no_failure(outcomes, "is as expected" if expected else _LIKE, count)


def _without_noise(symptom: Symptom, cell: CellSpec, again: ScriptOutcome) -> Symptom:
    """Return the symptom without what varies between two runs, such as a duration."""
    steady = replace(symptom, noisy=noisy_numbers(symptom.seen, again))
    if steady.of(symptom.seen) != steady.of(again):
        raise ResultsError(
            f"{cell.id}: the script is flaky: two runs end with {ending(symptom.seen)} and with "
            f"{ending(again)}",
            hint="fix its seed, or name the expected outcome with --expect",
        )
    return steady


def _fails_itself(cell: CellSpec, without: ScriptOutcome) -> ResultsError:
    return ResultsError(
        f"no failure of the compiler to report: in {cell.id} the script ends with "
        f"{ending(without)} without the compiler, too",
        hint="mend the script, name a release in which it runs by --torch, or say by --expect "
        "what is good",
    )


def _no_failure(
    outcomes: Mapping[CellSpec, tuple[ScriptOutcome, SymptomWord]], what: str, count: Count
) -> ResultsError:
    """Return the error of a script that shows nothing, with what else could be asked."""
    ran = [outcome for outcome, word in outcomes.values() if word != "absent"]
    if not ran:
        whys = dict.fromkeys(outcome.ending for outcome, _ in outcomes.values())
        return ResultsError(
            f"the script ran in no cell: {'; '.join(whys)}",
            hint="choose other cells with --torch, --python",
        )
    n_right = sum(word == "right" for _, word in outcomes.values())
    hint = "--expect names the expected outcome: an exit status, or a printed text"
    if count:
        what = f"has no {count.replace('_', ' ')}"
    elif ran[0].graph_breaks or ran[0].recompiles:
        sought = "graph-break" if ran[0].graph_breaks else "recompile"
        hint = f"the newest release has {sought}s, which --for {sought} reports; {hint}"
    elif ran[0].graphs == 0:
        hint = "the script compiles nothing in the newest release"
    return ResultsError(
        f"no failure to report: the script {what} in {counted(n_right, 'release')}", hint=hint
    )


def find_first(run: RunIn, onset: Onset, cells: Sequence[CellSpec]) -> None:
    """Find the first release that shows a symptom, from the oldest cell and halves.

    Args:
        run: As for ``find_symptom``.
        onset: Of ``cells``; what is found is written into it.
        cells: The same cells.
    """
    left = list(cells[: cells.index(onset.cell)])
    place = 0
    while left:
        cell = left[place]
        word = _shown_in(run, onset, cell)
        if word == "absent":
            del left[place]
        elif word == "shows":
            onset.first = cell
            del left[place:]
        else:
            onset.before = cell
            del left[: place + 1]
        place = min(len(left) // 2, max(len(left) - 1, 0)) if onset.before else 0
    if onset.before and onset.outcomes[onset.before][1] == "other":
        _find_right(run, onset, list(cells[: cells.index(onset.before) + 1]))


def _find_right(run: RunIn, onset: Onset, left: list[CellSpec]) -> None:
    """Find the newest cell that is right, of some of which the last ends in another way."""
    place = len(left) - 1
    while left:
        cell = left[place]
        if cell not in onset.outcomes:
            _shown_in(run, onset, cell)
        outcome, word = onset.outcomes[cell]
        if word == "absent":
            del left[place]
        elif word == "right" or SUPPORT_GATE.search(outcome.message):
            onset.right = cell if word == "right" else onset.right
            del left[: place + 1]
        else:
            del left[place:]
        place = len(left) // 2


def _shown_in(run: RunIn, onset: Onset, cell: CellSpec) -> SymptomWord:
    """Run a script in a cell, and where it seems to show a symptom also without the compiler."""
    outcome = run(cell, None)
    releases = (onset.cell.torch, cell.torch)
    word: SymptomWord = onset.symptom.of(outcome, releases) if outcome.has_run else "absent"
    if word == "shows" and onset.symptom.expected is None and not onset.symptom.count:
        without = run(cell, OFF)
        if are_alike(outcome, without, onset.symptom.noisy):
            same = outcome.ending == onset.symptom.without.ending
            word = "right" if same else "eager"
    onset.outcomes[cell] = outcome, word
    return word


class ScriptBlame(NamedTuple):
    """Findings on a script in a cell.

    Attributes:
        stage: The first backend that shows it; empty if that cannot be said.
        why: Why it cannot be said.
        cures: Settings with which the script ends as without the compiler; several in one text do
            so together, and none of them alone.
        others: The backends before it with which the script ends in another way, and how.
    """

    stage: str
    why: str = ""
    cures: tuple[str, ...] = ()
    others: tuple[tuple[str, ScriptOutcome], ...] = ()


def blame_script(
    run: Run,
    stages: Sequence[str],
    settings: Mapping[Any, Sequence[Setting]],
    symptom: Symptom | None = None,
    *,
    every: bool = True,
) -> ScriptBlame:
    """Run a script without the compiler, with a part of it, and with other settings.

    Args:
        run: Runs it with changes of the compiler (``observer.change_compiler``).
        stages: Backends, each with more of the compiler than the one before; Inductor is the last.
        settings: Module, field and value of settings, by the stage to which they belong.
        symptom: What is known already, also that the script is not flaky.
        every: Whether to look for every cure, or for one.
    """
    if symptom is None:
        seen = run(None)
        again = run({})  # torch is imported first, as for each change
        noisy = noisy_numbers(seen, again)
        if not are_alike(seen, again, noisy):
            return ScriptBlame("", "the script is flaky, or depends on when it imports torch")
        symptom = Symptom(seen=seen, without=run(OFF), noisy=noisy)
    if symptom.of(symptom.seen) == "right":
        return ScriptBlame("", "the script ends the same way without the compiler")
    stage = stages[-1]
    others = []
    for backend in stages[:-1]:
        found = run({"backend": backend})
        if not found.has_run:
            return ScriptBlame("", found.ending)
        shown = symptom.of(found)
        if shown == "shows":
            stage = backend
            break
        if shown == "other":
            others.append((backend, found))
    cures: list[str] = []
    # What an earlier stage hands on may be what the stage cannot do.
    for one in reversed(stages[: stages.index(stage) + 1]):
        if every or not cures:
            cures += _cures(run, settings.get(one, ()), symptom, every=every)
    return ScriptBlame(stage, cures=tuple(cures), others=tuple(others))


def _cures(run: Run, settings: Sequence[Setting], symptom: Symptom, *, every: bool) -> list[str]:
    """Return which settings cure, from runs with half of them at a time.

    Source: A. Zeller, R. Hildebrandt, Simplifying and Isolating Failure-Inducing Input (2002), for
    settings that cure each alone; a half without a cure costs one run.
    """
    if not settings:
        return []
    changes = [{"module": m, "field": f, "value": value} for m, f, value in settings]
    found = run({"settings": changes})
    cures: list[str] = []
    # A setting with which nothing is compiled cures nothing.
    compiles = found.graphs != 0 or symptom.seen.graphs == 0
    is_right = found.has_run and compiles and symptom.of(found) == "right"
    if not is_right:
        # Several at once may be refused, or be at odds: then each is tried by itself.
        if len(settings) == 1 or (found.has_run and symptom.of(found) == "shows"):
            return []
        parts = [[one] for one in settings]
    elif len(settings) == 1:
        parts, cures = [], [_named(settings)]
    else:
        middle = len(settings) // 2
        parts = [[*settings[:middle]], [*settings[middle:]]]
    for part in parts:
        if every or not cures:
            cures += _cures(run, part, symptom, every=every)
    return cures or [_named(settings)] * is_right


def _named(settings: Sequence[Setting]) -> str:
    return ", ".join(f"{module}.{name}={value!r}" for module, name, value in settings)
