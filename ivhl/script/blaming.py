"""Name the stage of the compiler that makes a script end otherwise, and settings that cure it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ivhl.script.outcome import ScriptOutcome, are_alike, noisy_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Run = Callable[[Mapping[str, Any] | None], ScriptOutcome]
_OFF = {"module": "torch._dynamo.config", "field": "disable", "value": True}


class ScriptBlame(NamedTuple):
    """What is known of a script in a cell.

    Attributes:
        stage: The first backend that shows it; empty if that cannot be said.
        why: Why it cannot be said.
        cures: Settings with which the script ends as without the compiler.
    """

    stage: str
    why: str = ""
    cures: tuple[str, ...] = ()


def blame_script(
    run: Run, stages: Sequence[str], settings: Mapping[Any, Sequence[tuple[str, str, Any]]]
) -> ScriptBlame:
    """Run a script without the compiler, with a part of it, and with other settings.

    Args:
        run: Runs it with a change of the compiler (``observer.change_compiler``).
        stages: Backends, each with more of the compiler than the one before; Inductor is the last.
        settings: Module, field and value of settings, by the stage to which they belong.
    """
    plain = run(None)
    again = run({})  # torch is imported first, as for each change
    noisy = noisy_numbers(plain, again)
    if not are_alike(plain, again, noisy):
        return ScriptBlame("", "the script is flaky, or depends on when it imports torch")
    without = run(_OFF)
    if are_alike(plain, without, noisy):
        return ScriptBlame("", "the script ends alike without the compiler")
    stage = stages[-1]
    for backend in stages[:-1]:
        found = run({"backend": backend})
        if not found.has_run:
            return ScriptBlame("", found.ending)
        if are_alike(plain, found, noisy):
            stage = backend
            break
    cures = []
    for module, field, value in settings[stage]:
        found = run({"module": module, "field": field, "value": value})
        if found.has_run and are_alike(without, found, noisy):
            cures.append(f"{module}.{field}={value!r}")
    return ScriptBlame(stage, cures=tuple(cures))
