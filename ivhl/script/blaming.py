"""Name the stage of the compiler that makes a script end otherwise, and settings that cure it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ivhl.script.outcome import are_alike, noisy_numbers
from ivhl.script.symptom import OFF, Symptom

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ivhl.script.outcome import ScriptOutcome

    Run = Callable[[Mapping[str, Any] | None], ScriptOutcome]
    Setting = tuple[str, str, Any]


class ScriptBlame(NamedTuple):
    """What is known of a script in a cell.

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
        return ScriptBlame("", "the script ends alike without the compiler")
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
