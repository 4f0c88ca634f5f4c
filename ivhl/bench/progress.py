"""Show the progress of a run on the terminal: cell, case, elapsed time, estimated time left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from rich.console import Console

    from ivhl.bench.state import RunState


# Event to what a run does after it.
_DOING = {
    "cell-creating": "creating the environment",
    "cell-building": "installing commit {commit:.8}",
    "cell-measuring": "starting PyTorch",
    "case-started": "{case}",
    "cell-measured": "asv is reading the values",
}
_WARMS_UP = "cases without a record wait for PyTorch to start: 10 s, in a new cell up to a minute"


class Display:
    """Prints a line per finished step, and updates a live last line. It only draws the state."""

    def __init__(self, console: Console, state: RunState) -> None:
        self._console = console
        self._state = state
        self._doing = "starting asv"
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=16),
            TextColumn("{task.completed}/{task.total}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task(self._doing, total=state.n_cases, left="")

    def __enter__(self) -> Self:
        """Start the live line."""
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the live line."""
        self._progress.stop()

    def update(self) -> None:
        """Show the events since the last call."""
        state = self._state
        for event in state.read():
            self._show(event)
        left = f"about {minutes(state.seconds_left())} left" if state.n_left else ""
        self._progress.update(
            self._task,
            description=self._doing,
            completed=state.n_cases - state.n_left,
            left=left,
        )

    def _show(self, event: dict[str, Any]) -> None:
        cell, case = event.get("cell", ""), event.get("case", "")
        if event["event"] in _DOING:
            self._doing = f"{cell}: {_DOING[event['event']].format(**event)}"
        match event["event"]:
            case "cell-created":
                self._say(f"{cell}: environment ready", event["seconds"])
            case "cell-failed":
                first = event["message"].partition("\n")[0]
                self._say(f"{cell}: FAILED: {first}", event["seconds"])
            case "cell-measuring":
                self._say(f"{cell}: {_WARMS_UP}", None)
            case "case-kept":
                self._say(f"{cell}: {case}: has a record already", None)
            case "case-unchanged":
                self._say(f"{cell}: {case}: unchanged since its record at another commit", None)
            case "case-finished":
                self._say(f"{cell}: {case}: {outcome(event)}", event["seconds"])

    def _say(self, text: str, seconds: float | None) -> None:
        took = "" if seconds is None else f"  ({seconds:.1f} s)"
        self._console.print(f"{text}{took}", soft_wrap=True)


def outcome(event: dict[str, Any]) -> str:
    """Return the speedup of a finished case with what of it runs eagerly, or its failure class."""
    if event["failure_class"]:
        return str(event["failure_class"])
    speedup = event["speedup"]
    known = "works" if speedup is None else f"{speedup:.2f}x"
    return ", ".join(filter(None, (known, event.get("beside"))))


def minutes(seconds: float) -> str:
    """Return e.g. ``40 s`` or ``3 min``."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"  # noqa: PLR2004
