"""``ivhl try package:function``: a function or a model by its name, in cells of the user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import typer

from ivhl.cli.run import cells_of, tell_of_network
from ivhl.cli.screen import print_json
from ivhl.errors import SpecError
from ivhl.init.declare import declaration
from ivhl.init.files import write_changes
from ivhl.matrix.project import find_root, load_project
from ivhl.script.cells import cell_in_use, shipped_matrix
from ivhl.script.overlay import UnavailableError
from ivhl.script.trying import TargetTried, Trials, packages_of, read_target
from ivhl.script.verdict import details, first_line, verdict
from ivhl.tracker.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ivhl.matrix.spec import CellSpec
    from ivhl.measure.effort import Effort
    from ivhl.measure.target_spec import Target

SCHEMA: Final = "ivhl.try/1"
FAILED: Final = 7
# What JSON has of the findings of a cell, if they are known.
_FOUND: Final = ("inputs", "failure", "compile", "eager_s", "compiled_s", "second")
# Input of no file: whatever declares a target already is refused before the trial.
_UNKNOWN: Final = "not known yet"


def try_target(
    text: str,
    effort: Effort,
    *,
    inputs: Sequence[str] = (),
    step: bool = False,
    requirements: Sequence[str] = (),
    pythons: Sequence[str] = (),
    releases: Sequence[str] = (),
    network: bool = False,
    logs: bool = False,
    as_json: bool = False,
    save: bool = False,
) -> None:
    """Try a target in each cell, and print what is found; ``save`` declares it in this project.

    Raises:
        SpecError: If the target, an input or a release is not valid, or cannot be declared.
        typer.Exit: With 7 if it does not work in a cell.
    """
    target, folder = read_target(text, inputs, step=step)
    root = _project_for(text) if save else None
    matrix = shipped_matrix()
    named = list(releases) or [matrix.releases()[-1]]
    cells = cells_of(matrix, named, pythons)[::-1]
    console = Terminal(highlight=False, soft_wrap=True)
    told = Terminal(stderr=True, highlight=False, soft_wrap=True)
    tell_of_network(told, "target", network=network)
    results: dict[CellSpec, TargetTried] = {}
    for cell in cells:
        told.print(f"{cell.id}: {text}")
        tried = results[cell] = _tried(cell, requirements, target, folder, effort, network=network)
        if not as_json:
            console.print(f"{cell.id}: {first_line(tried)}")
            for line in (*details(tried), *(tried.output.splitlines() if logs else ())):
                console.print(f"  {line}")
    if root is not None:
        told.print(f"wrote {_save(root, text, list(results.values()), step=step)}")
    if as_json:
        print_json(SCHEMA, **_as_json(text, results))
    elif len(cells) > 1:
        console.print()
        for cell in reversed(cells):
            console.print(f"{cell.id:20} {first_line(results[cell])}")
    if any(verdict(tried) != "works" for tried in results.values()):
        raise typer.Exit(FAILED)


def _tried(
    cell: CellSpec,
    requirements: Sequence[str],
    target: Target,
    folder: Path | None,
    effort: Effort,
    *,
    network: bool,
) -> TargetTried:
    try:
        with (
            cell_in_use(cell, _wanted(cell, requirements, target, folder)) as place,
            Trials(place, folder, effort, network=network) as trials,
        ):
            return trials.run(target, effort.deadline_s)
    except UnavailableError as error:
        return TargetTried({"unavailable": str(error)}, "")


def _wanted(
    cell: CellSpec, requirements: Sequence[str], target: Target, folder: Path | None
) -> tuple[str, ...]:
    """Return what a cell holds: what is asked for and, if that has no such module, its namesake."""
    namesake, asked = packages_of(target, folder), tuple(requirements)
    if namesake and asked:
        with cell_in_use(cell, asked) as place:
            top = target.module.partition(".")[0]
            packages = f"lib/python*/site-packages/{top}"
            if any(place.glob(packages)) or any(place.glob(f"{packages}.*")):
                return asked
    return (*namesake, *asked)


def _project_for(text: str) -> Path:
    """Return the project that a target is saved in.

    Raises:
        SpecError: If there is none, or a cell of it could not import the target.
    """
    root = find_root()
    if text.partition(":")[0].endswith(".py"):
        raise SpecError(
            f"--save: {text}: a cell imports what is measured as a module",
            hint="name it as package.module:function",
        )
    declaration(root, load_project(root).workloads, text, [_UNKNOWN])  # refuses an existing file
    return root


def _save(root: Path, text: str, tried: Sequence[TargetTried], *, step: bool) -> Path:
    """Write the file that declares a target with the inputs that it took, and return its path.

    Raises:
        SpecError: If no cell knows its inputs, or a declaration cannot say them.
    """
    found = next((one.found for one in tried if "arguments" in one.found), None)
    if found is None:
        raise SpecError(
            f"--save: {text}: no cell could call it, so its inputs are not known",
            hint="give them, e.g. --input 8,64",
        )
    arguments, keywords = found["arguments"], found["keywords"]
    named = keywords and (arguments or not found["is_model"])
    if named or "" in (*arguments, *keywords.values()) or (step and not found["is_model"]):
        raise SpecError(
            f"--save: {text}: a function with inputs by name, with objects or with gradients needs "
            "a function that calls it so",
            hint="write that function and workload(...) into a file of benchmarks: "
            "docs/workloads.md",
        )
    folder = load_project(root).workloads
    forward = ', passes="forward"' if found["is_model"] and not step else ""
    change = declaration(root, folder, text, arguments, keywords=keywords, fields=forward)
    write_changes(root, [change])
    return change.path


def check_no_case(
    targets: Sequence[str], names: Sequence[str], size: str | None, variant: str | None
) -> None:
    """Refuse what belongs to a workload beside a target.

    Raises:
        SpecError: If there is a second name, a size or a variant.
    """
    if len(names) > 1 or size or variant:
        raise SpecError(
            f"{targets[0]}: is a target, and takes no size, variant or other name",
            hint="try one target at a time: ivhl try MODULE:EXPRESSION --input 8,64",
        )


def _as_json(text: str, results: dict[CellSpec, TargetTried]) -> dict[str, Any]:
    return {
        "target": text,
        "cells": [
            {
                "cell": cell.id,
                "python": cell.python,
                "torch": cell.torch,
                "status": verdict(tried),
                "reason": first_line(tried),
                **{name: tried.found.get(name) for name in _FOUND},
                "accuracy": tried.found.get("accuracy", []),
            }
            for cell, tried in results.items()
        ],
    }
